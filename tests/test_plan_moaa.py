"""The plan of moaa: what it counts is what the stages ask, on the methods themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from phalanx.config import Config
from phalanx.config.schema import StudentSettings
from phalanx.config.starter import starter
from phalanx.errors import ConfigError
from phalanx.methods import METHODS
from phalanx.plan import Plan, check, make_plan, plan_for, require
from phalanx.plan.machines import machine_named
from phalanx.plan.rounds import Round
from phalanx.plan.stages import measuring_of, rankers_of, rounds_of
from phalanx.pool import members_from
from phalanx.types import (
    Instruction,
    Iteration,
    Message,
    Options,
    Request,
    Response,
    Reward,
)

TEACHERS = ("ada", "bob", "cora")
PROPOSERS = ("ada", "bob")


def moaa(**changes: Any) -> Config:
    """ada and bob propose, cora aggregates; ``pat`` learns from all of it, without weights."""
    members: list[dict[str, Any]] = [
        {"name": name, "engine": "scripted", "roles": ["contest", "judge"]} for name in TEACHERS
    ]
    members.append({"name": "pat", "engine": "scripted"})
    data: dict[str, Any] = {
        "method": "moaa",
        "iterations": 2,
        "pool": {"members": members},
        "instructions": {"source": "builtin:skills"},
        "mixture": {"proposers": list(PROPOSERS), "aggregator": "cora"},
        "moaa": {"students": [{"name": "pat"}], "sft_instructions": 5, "dpo_instructions": 4},
        "judge": {"protocol": "rubric"},
        "resources": {"device": "cpu"},
    }
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(data.get(key), dict) else value
    return Config.model_validate(data)


def students(*data: str, **settings: Any) -> dict[str, Any]:
    """As many students as there are kinds of data; all but the first have no reward."""
    listed = [{"name": "pat" if n == 0 else f"s{n}", "data": one} for n, one in enumerate(data)]
    for one in listed[1:]:
        one["reward"] = "none"
    return {"students": listed, "sft_instructions": 5, "dpo_instructions": 4, **settings}


class Answering:
    """An ``ask`` that has a new text for everybody, and that counts who was asked what."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self._new = count()

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        self.requests[request.id] = request
        want = request.want
        if isinstance(want, Options):
            chances = {option: float(n) for n, option in enumerate(want.options, start=1)}
            total = sum(chances.values())
            found = {option: chance / total for option, chance in chances.items()}
            return Response(request.id, probabilities=found, option_mass=1.0)
        if isinstance(want, Reward):
            return Response(request.id, reward=float(next(self._new)))
        verdict = "[[A]]" if "[[A]]" in request.messages[-1].content else '{"score": 5}'
        text = {"verdict": verdict, "criteria": "1, 2, 3", "judge": verdict}
        said = text.get(request.purpose, f"text {request.id}")
        return Response(request.id, text=said, finish_reason="stop")

    def counts(self) -> Counter[tuple[str, str]]:
        """(member, purpose) -> requests."""
        return Counter((r.member.name, r.purpose) for r in self.requests.values())


def asked_in(config: Config, number: int, turns: int = 1) -> Counter[tuple[str, str]]:
    """What the iteration really asks, each request once."""
    members = members_from(config)
    later = [Message("assistant", "As found."), Message("user", "And then?")] * (turns - 1)
    settings = config.moaa
    instructions = tuple(
        Instruction(f"i{n}", f"Question {n}?", later=tuple(later))
        for n in range(settings.sft_instructions if number % 2 else settings.dpo_instructions)
    )
    iteration = Iteration(
        number=number,
        seed=0,
        members=members,
        instructions=instructions,
        standings={},
        reliability={},
        earlier=(members,) * number,
    )
    ask = Answering()
    METHODS["moaa"].run(iteration, ask, config)
    return ask.counts()


def planned(one: Round) -> dict[tuple[str, str], float]:
    sums: dict[tuple[str, str], float] = {}
    for demand in one.demands:
        key = (demand.member, demand.purpose)
        sums[key] = sums.get(key, 0.0) + demand.requests
    return {key: total for key, total in sums.items() if total}


def with_students(config: Config) -> Config:
    """Further students of :func:`students` as members."""
    names = [student.name for student in config.moaa.students]
    have = {member.name: member for member in config.pool.members}
    members = [*have.values()]
    members += [have["pat"].model_copy(update={"name": n}) for n in names if n not in have]
    return config.model_copy(update={"pool": config.pool.model_copy(update={"members": members})})


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        (("mixture",), {}),
        (("mixture",), {"mixture": {"layers": 3, "samples": 2}}),
        (("mixture",), {"mixture": {"per_layer": [["ada"], ["bob", "cora"]]}}),
        (("mixture",), {"mixture": {"layers": 1}}),
        (("combined",), {}),
        (("teacher:bob",), {}),
        (("mixture", "combined"), {}),
        (("mixture", "combined", "best_of", "teacher:ada"), {}),
        (("best_of",), {"judge": {"protocol": "pairwise"}}),
        (("best_of",), {"judge": {"protocol": "reward"}}),
        (("best_of",), {"moaa": {"ranker": "moa"}}),
        (("best_of", "mixture"), {"moaa": {"ranker": "ada"}}),
    ],
)
@pytest.mark.parametrize(("turns", "repair"), [(1, "cut"), (3, "faithful"), (2, "rewrite")])
def test_a_stage_sft_asks_what_was_planned(
    data: tuple[str, ...], changes: dict[str, Any], turns: int, repair: str
) -> None:
    more = changes.get("moaa", {})
    settings = students(*data, multi_turn=repair, **more)
    config = with_students(moaa(**{**changes, "moaa": settings}))
    found = asked_in(config, 1, turns)
    # Every user turn is said not to fit here, so that all are rewritten: the most there is.
    (sft, _) = rounds_of(config, members_from(config), 20, turns)
    if turns > 1 and "best_of" in data and len(data) > 2:
        # After the first turn the best one's conversation is that of a teacher alone.
        assert all(found[key] <= most for key, most in planned(sft).items())
        assert sum(found.values()) > 0.85 * sum(planned(sft).values())
    else:
        assert planned(sft) == pytest.approx(dict(found))


def test_teachers_at_random_are_planned_on_average() -> None:
    config = with_students(moaa(moaa=students("random", sft_instructions=30)))
    found, (sft, _) = asked_in(config, 1), rounds_of(config, members_from(config), 20)
    assert sum(found.values()) == pytest.approx(sum(planned(sft).values())) == 30
    assert planned(sft) == pytest.approx({(name, "propose"): 10 for name in TEACHERS})


@pytest.mark.parametrize(
    ("reward", "changes"),
    [
        ("moa", {}),
        ("moa", {"reward": {"samples": 3, "both_orders": False}}),
        ("moa", {"reward": {"num_criteria": 0}}),
        ("moa", {"reward": {"verdict": "options", "proposers": ["bob"], "selector": "ada"}}),
        ("moa", {"mixture": {"layers": 1, "proposers": []}}),
        ("ada", {}),
        ("ada", {"judge": {"protocol": "pairwise"}}),
        ("ada", {"judge": {"protocol": "reward"}}),
        ("none", {}),
    ],
)
def test_a_stage_dpo_asks_what_was_planned(reward: str, changes: dict[str, Any]) -> None:
    listed = [{"name": "pat", "reward": reward}]
    config = moaa(**{**changes, "moaa": {"students": listed}})
    _, dpo = rounds_of(config, members_from(config), 20)
    assert planned(dpo) == pytest.approx(dict(asked_in(config, 2)))


def test_two_students_share_the_criteria_of_an_instruction() -> None:
    settings = students("mixture", "mixture")
    settings["students"][1]["reward"] = "moa"
    config = with_students(moaa(moaa=settings))
    _, dpo = rounds_of(config, members_from(config), 20)
    assert planned(dpo) == pytest.approx(dict(asked_in(config, 2)))
    assert planned(dpo)["cora", "criteria"] == 4
    assert planned(dpo)["cora", "verdict"] == 4 * 2 * 10 * 2


@pytest.mark.parametrize("samples", range(2, 9))
def test_a_knockout_asks_no_more_than_planned(samples: int) -> None:
    config = moaa(reward={"samples": samples, "ranking": "knockout"})
    _, dpo = rounds_of(config, members_from(config), 20)
    found = asked_in(config, 2)
    for key, most in planned(dpo).items():
        assert found[key] <= most
    every = moaa(reward={"samples": samples, "ranking": "round_robin"})
    _, full = rounds_of(every, members_from(every), 20)
    assert (planned(dpo)["cora", "verdict"] < planned(full)["cora", "verdict"]) == (samples > 3)


def test_students_propose_from_the_second_generation_on() -> None:
    config = moaa(iterations=6)
    rounds = rounds_of(config, members_from(config), 20)
    assert [(one.name, one.count) for one in rounds] == [
        ("sft", 1), ("dpo", 3), ("sft, students propose", 2)
    ]  # fmt: skip
    assert planned(rounds[0]).get(("pat", "propose")) is None
    assert planned(rounds[2])["pat", "propose"] == 5
    assert planned(rounds[2]) == pytest.approx(dict(asked_in(config, 3)))
    for word in ("replace", "off"):
        other = moaa(iterations=6, moaa={"self_improve": word})
        names = [(o.name, o.count) for o in rounds_of(other, members_from(other), 20)]
        assert names == [("sft", 3), ("dpo", 3)]


@pytest.mark.parametrize("baseline", ["combined", "best_of", "teacher:bob"])
def test_baselines_do_not_learn_from_students_that_have_joined(baseline: str) -> None:
    config = with_students(moaa(iterations=4, moaa=students("mixture", baseline)))
    *_, sft = rounds_of(config, members_from(config), 20)
    assert sft.name == "sft, students propose"
    assert planned(sft) == pytest.approx(dict(asked_in(config, 3)))
    members = trainable(iterations=4, moaa=students("mixture", baseline))
    rows = {"combined": 5 * 3}.get(baseline, 5)
    (tune,) = rounds_of(members, members_from(with_students(members)), 20)[-1].trainings
    assert tune.examples == {"pat": 5, "s1": rows}


def test_a_stage_takes_no_instruction_twice(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"instruction": "What of {n}?"}}\n' for n in range(4)), "utf-8")
    source = {"source": str(path)}
    plan = plan_of(instructions=source)
    sft, dpo = plan.rounds
    assert (sft.instructions, dpo.instructions) == (4, 4)
    assert planned(sft)["cora", "aggregate"] == 4
    assert (sft.trainings[0].examples, dpo.trainings[0].examples) == ({"pat": 4}, {"pat": 4})
    (note,) = [note for note in plan.notes if note.startswith("instructions:")]
    assert note == (
        "instructions: 4, fewer than moaa.sft_instructions = 5: a stage takes all of them, and "
        "none twice"
    )
    longer = plan_of(iterations=4, instructions=source)
    again = [note for note in longer.notes if "met again" in note]
    assert len(again) == 2
    assert "4, fewer than the 10 that moaa.sft_instructions asks for in all" in again[0]


def test_tokens_by_hand() -> None:
    config = moaa(
        mixture={
            "propose": {"max_new_tokens": 100},
            "aggregate": {"max_new_tokens": 60},
        }
    )
    sft, _ = rounds_of(config, members_from(config), 20)
    by_purpose = {demand.purpose: demand for demand in sft.demands}
    propose, aggregate = by_purpose["propose"], by_purpose["aggregate"]
    assert (propose.read, propose.written, propose.usual) == (20, 100, 50)
    around = aggregate.read - 20 - 2 * 100
    assert aggregate.usual_read == 20 + 2 * 50 + around
    assert (around > 0, aggregate.written) == (True, 60)
    # Of two turns the second one has the first, and its answer, in front of it.
    longer, _ = rounds_of(config, members_from(config), 20, 2.0)
    again = {demand.purpose: demand for demand in longer.demands}["propose"]
    assert again.read == 20 + (20 + 60) / 2


def trainable(**changes: Any) -> Config:
    """The same with weights here."""
    config = moaa(**changes)
    members = [
        m.model_copy(update={"engine": "hf", "model": "builtin:smollm2-135m"})
        for m in config.pool.members
    ]
    return config.model_copy(update={"pool": config.pool.model_copy(update={"members": members})})


def plan_of(machine: str = "cpu:8:64GB", **changes: Any) -> Plan:
    return make_plan(trainable(**changes), machine_named(machine))


def test_what_students_learn_from() -> None:
    plan = plan_of(sft={"batch_size": 2, "epochs": 3}, pairs={"keep": 0.5})
    (tune,), (train,) = (one.trainings for one in plan.rounds)
    assert (tune.phase, tune.examples, tune.texts, tune.steps) == ("tune", {"pat": 5}, 1, 9)
    assert (train.phase, train.examples, train.texts) == ("train", {"pat": 2}, 2)
    combined = plan_of(moaa={"students": [{"name": "pat", "data": "combined", "reward": "none"}]})
    assert combined.rounds[0].trainings[0].examples == {"pat": 15}
    assert combined.rounds[1].trainings == ()
    assert plan_of(train={"method": "none"}).learners == ()
    assert all(not one.trainings for one in make_plan(moaa()).rounds)


def test_tokens_to_learn_are_those_of_the_answers_that_are_learned() -> None:
    lengths = {"propose": {"max_new_tokens": 100}, "aggregate": {"max_new_tokens": 60}}

    def learned(*data: str, turns: float = 1.0) -> tuple[float, int]:
        settings = students(*data)
        for one in settings["students"]:
            one["reward"] = "none"
        config = with_students(trainable(mixture=lengths, moaa=settings))
        (tune,) = rounds_of(config, members_from(config), 20, turns)[0].trainings
        return tune.tokens / config.sft.epochs, tune.long

    assert learned("mixture")[0] == 5 * (20 + 60)
    assert learned("random")[0] == 5 * (20 + 100)
    assert learned("combined")[0] == 15 * (20 + 100)
    assert learned("mixture", "combined")[0] == pytest.approx(5 * 80 + 15 * 120)
    assert learned("mixture", "combined")[1] == learned("combined")[1] > learned("mixture")[1]
    # Of two turns the second one has the first, and its teacher's answer, in front of it.
    assert learned("random", turns=2.0)[0] == pytest.approx(10 * (20 + (20 + 100) / 2 + 100))


def test_evaluation_asks_the_unchanged_once() -> None:
    tasks = {"tasks": [{"name": "t", "source": "builtin:skills", "limit": 1}]}
    plan = plan_of(iterations=4, evaluate=tasks)
    assert plan.evaluation_requests == plan.evaluation_items * (3 + 5)
    half = plan_of(iterations=4, evaluate=tasks, moaa={"stages": ["sft", "dpo"], "students": [
        {"name": "pat", "reward": "none"}]})  # fmt: skip
    assert half.evaluation_requests == half.evaluation_items * (3 + 3)
    config = trainable(iterations=4, evaluate={**tasks, "mixture": True})
    demands = measuring_of(config, members_from(config), 20, 10)
    aggregated = sum(d.requests for d in demands if d.purpose == "aggregate")
    proposed = Counter[str]()
    for demand in demands:
        if demand.purpose == "propose":
            proposed[demand.member] += int(demand.requests)
    assert aggregated == 10 * 3  # at the start and after two generations
    assert proposed == {"ada": 10, "bob": 10, "pat": 20}
    still = trainable(iterations=4, evaluate={**tasks, "mixture": True}, moaa={
        "self_improve": "off", "students": [{"name": "pat"}]})  # fmt: skip
    again = measuring_of(still, members_from(still), 20, 10)
    assert sum(d.requests for d in again if d.purpose == "aggregate") == 10


def test_a_mixture_beside_duels_is_measured_and_has_room() -> None:
    tasks = {"tasks": [{"name": "t", "source": "builtin:skills", "limit": 1}]}
    names = [{"name": name} for name in TEACHERS]
    data: dict[str, Any] = {
        "iterations": 2,
        "pool": {"base": "builtin:smollm2-135m", "members": names},
        "instructions": {"source": "builtin:skills"},
        "mixture": {"aggregator": "cora", "proposers": list(PROPOSERS)},
        "evaluate": tasks,
    }
    machine = machine_named("cpu:8:64GB")
    alone = make_plan(Config.model_validate(data), machine)
    both = make_plan(
        Config.model_validate({**data, "evaluate": {**tasks, "mixture": True}}), machine
    )
    items = alone.evaluation_items
    assert alone.evaluation_requests == items * 3 * 3
    assert both.evaluation_requests == items * 3 * (3 + 3)  # three times two proposals, an answer
    (small,), (large,) = alone.placement.of("serve"), both.placement.of("serve")
    assert small.held[0].batch / small.held[0].rows < large.held[0].batch / large.held[0].rows


def test_waves_times_and_words() -> None:
    plan = plan_of()
    assert [wave.phase for wave in plan.placement.waves] == ["serve", "tune", "train"]
    assert plan.times is not None
    assert [one.name for one in plan.times.rounds] == ["sft", "dpo"]
    for one in plan.times.rounds:
        assert all(seconds > 0 for seconds in one.each.values())
    each = sum(sum(one.each.values()) * one.count for one in plan.times.rounds)
    assert plan.total_seconds == pytest.approx(each)
    more = plan_of(moaa={"sft_instructions": 50, "students": [{"name": "pat"}]})
    assert more.times is not None
    assert more.times.rounds[0].each["propose 1"] == pytest.approx(
        10 * plan.times.rounds[0].each["propose 1"]
    )


def test_whole_weights_have_a_base_of_their_own() -> None:
    lora = plan_of(sft={"max_length": 4096})
    whole = plan_of(sft={"weights": "full", "max_length": 4096})
    assert [base.names for base in lora.bases] == [("ada", "bob", "cora", "pat")]
    assert [base.names for base in whole.bases] == [("ada", "bob", "cora"), ("pat",)]
    (before,), (after,) = lora.placement.of("tune"), whole.placement.of("tune")
    assert after.held[0].weights + after.held[0].adapters == 20 * 134_515_008
    assert after.needed > before.needed
    with pytest.raises(ConfigError, match=r"sft\.weights: lora"):
        plan_of(
            "cpu:8:4GB",
            sft={"weights": "full", "batch_size": 1, "max_length": 64},
            moaa={"stages": ["sft"], "students": [{"name": "pat"}]},
        )


def test_a_reward_model_is_beside_the_base_that_answers() -> None:
    config = trainable(moaa={"students": [{"name": "pat", "reward": "scorer"}]})
    head = config.pool.members[0].model_copy(
        update={"name": "scorer", "engine": "reward", "model": "org/head-1B", "roles": ["judge"]}
    )
    pool = config.pool.model_copy(update={"members": [*config.pool.members, head]})
    config = config.model_copy(update={"pool": pool})
    plan = make_plan(config, machine_named("cpu:8:64GB"))
    answers, scores = plan.placement.of("serve")
    assert (answers.scores, scores.scores) == (False, True)
    assert scores.beside == sum(held.resident for held in answers.held)
    assert planned(plan.rounds[1])["scorer", "judge"] == 4 * 5 + 1
    assert plan.times is not None
    assert plan.times.rounds[1].each["judge"] > 0
    (note,) = [note for note in plan.notes if note.startswith("scorer:")]
    assert "a stage dpo is planned for a model that scores each response alone, 5 requests" in note
    assert note.endswith("a ranker of pairs, such as PairRM, is sent 20")
    ranks = config.moaa.model_copy(update={"ranker": "scorer", "students": [
        StudentSettings(name="pat", data="best_of", reward="ada")]})  # fmt: skip
    (note,) = rankers_of(config.model_copy(update={"moaa": ranks}))
    assert "a stage sft" in note
    assert note.endswith("is sent 6")
    assert list(rankers_of(moaa())) == []


def test_money_of_endpoints() -> None:
    lab = {"name": "lab", "url": "http://127.0.0.1:1/v1", "price_in": 1.0, "price_out": 2.0}
    config = moaa(endpoints=[lab], budget={"requests": 10})
    members = [
        m.model_copy(update={"engine": "openai", "model": m.name}) if m.name != "pat" else m
        for m in config.pool.members
    ]
    config = config.model_copy(update={"pool": config.pool.model_copy(update={"members": members})})
    plan = make_plan(config)
    (lab_plan,) = plan.endpoints
    sums = [planned(one) for one in plan.rounds]
    theirs = sum(total for one in sums for (name, _), total in one.items() if name != "pat")
    assert lab_plan.requests == theirs
    demands = [d for one in plan.rounds for d in one.demands if d.member != "pat"]
    read = sum(d.requests * d.read for d in demands)
    written = sum(d.requests * d.written for d in demands)
    assert (lab_plan.tokens_in, lab_plan.tokens_out) == (read, written)
    assert lab_plan.money == pytest.approx((read + 2 * written) / 1e6)
    assert "do not fit within 10" in plan.budget[0]


def test_conversations_are_measured(tmp_path: Path) -> None:
    lines = []
    for number in range(4):
        turns = ["user", "assistant", "user", "assistant"]
        said = ", ".join(
            f'{{"role": "{role}", "content": "{"x" * 36}{number}{at}xx"}}'
            for at, role in enumerate(turns)
        )
        lines.append(f'{{"messages": [{said}]}}\n')
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    source = {"instructions": {"source": str(path), "column": "messages"}}
    plan = make_plan(moaa(**source))
    assert (plan.instructions.count, plan.instructions.turns) == (4, 2)
    assert plan.instructions.tokens == 10
    assert planned(plan.rounds[0])["cora", "fit"] == 4
    first = "instructions: some have several user turns; "
    assert f"{first}a stage dpo uses the first one alone" in plan.notes
    alone = moaa(**source, moaa={"stages": ["sft"], "students": [{"name": "pat"}]})
    assert not any(first in note for note in make_plan(alone).notes)
    duels = make_plan(moaa(**source, method="sparta", match={"duels": 2}))
    assert f"{first}duels are about the first one alone" in duels.notes
    assert not any(first in note for note in make_plan(moaa()).notes)


@pytest.mark.parametrize("preset", ["moaa", "moaa-paper"])
def test_presets_are_planned_for_the_papers_mixture(preset: str) -> None:
    plan = plan_for(f"preset:{preset}")
    assert "Qwen1.5-110B" in plan.assumed
    assert plan.work is None
    (sft, dpo, *_) = plan.rounds
    settings = plan.config
    number = settings.moaa.sft_instructions
    assert planned(sft)["qwen1.5", "aggregate"] == number
    verdicts = settings.moaa.dpo_instructions * 10 * 2
    assert planned(dpo)["qwen1.5", "verdict"] == verdicts
    assert planned(dpo)["wizardlm", "assess"] == verdicts


@pytest.mark.parametrize("preset", ["moaa", "moaa-paper"])
@pytest.mark.parametrize("width", [40, 100])
def test_the_starting_file_is_checked(preset: str, width: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(starter(preset), encoding="utf-8")
    code, text = check(path, machine="8xh200", width=width)
    assert code == 0, text
    words = " ".join(text.split())
    assert "Proposers: ada, bob, cora" in words
    assert "Student student (demonstrations: mixture, reward: moa)" in words
    assert "…" not in text
    require(plan_for(path, machine="8xh200").config)
