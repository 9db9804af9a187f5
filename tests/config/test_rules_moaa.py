"""Rules of mixtures and of the method moaa: each one broken alone, and none on a sound one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from phalanx.config import Config, differences, load, rules
from phalanx.config.loading import preset_names
from phalanx.config.mixing import panel_of, proposers_of, selector_of, students_of, verdict_of
from phalanx.config.rules_moaa import Purpose
from phalanx.errors import ConfigError
from phalanx.plan import content_faults

BASE = "builtin:smollm2-135m"
LAB = {"name": "lab", "url": "http://127.0.0.1:1/v1"}


def member(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "roles": ["contest", "judge"], **settings}


POOL = [*map(member, ("ada", "bob", "cora")), {"name": "pat"}]
SCORER = {"name": "scorer", "engine": "reward", "model": "org/head-1B", "roles": ["judge"]}


def sound(*more: dict[str, Any], **changes: Any) -> Config:
    """ada and bob propose, cora aggregates, pat learns; sections are changed key by key."""
    data: dict[str, Any] = {
        "method": "moaa",
        "iterations": 2,
        "pool": {"base": BASE, "members": [*POOL, *more]},
        "instructions": {"source": "builtin:skills"},
        "mixture": {"proposers": ["ada", "bob"], "aggregator": "cora"},
        "moaa": {"students": [{"name": "pat"}]},
        "reward": {},
        "judge": {},
        "sft": {"max_length": 4096},
        "train": {"max_length": 4096},
    }
    for key, value in changes.items():
        data[key] = {**data[key], **value} if isinstance(data.get(key), dict) else value
    return Config.model_validate(data)


def student(**settings: Any) -> dict[str, Any]:
    return {"students": [{"name": "pat", **settings}]}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "count_gpus", lambda: 0)


def test_a_sound_one_has_none() -> None:
    assert rules.faults(sound()) == []
    assert rules.notes(sound()) == []
    assert rules.faults(sound(SCORER, moaa=student(reward="scorer"))) == []


def test_rules_of_duels_do_not_apply() -> None:
    """Two members are enough, nobody need judge, and nobody is outside of anything."""
    config = sound(pool={"members": [member("ada", roles=["contest"]), {"name": "pat"}]},
                   mixture={"proposers": ["ada"], "aggregator": "ada"})  # fmt: skip
    assert rules.faults(config) == []
    assert len(rules.faults(config.model_copy(update={"method": "sparta"}))) >= 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": {"members": []}}, "pool.members: the pool is empty"),
        ({"instructions": {"source": ""}}, "instructions.source: names no instructions"),
        ({"mixture": {"aggregator": ""}}, "mixture.aggregator: names nobody; expected the member"),
        ({"mixture": {"aggregator": "core"}}, "no member 'core'; did you mean cora?"),
        ({"mixture": {"proposers": ["ada", "bo"]}}, "no member 'bo'; did you mean bob?"),
        ({"mixture": {"proposers": ["ada", "ada"]}}, "names ada 2 times; several proposals of one"),
        ({"mixture": {"per_layer": [["ada"], []]}}, "nobody proposes"),
        ({"mixture": {"per_layer": [["ada"], ["b"]]}}, "there is no member 'b'"),
        ({"mixture": {"min_proposals": 3}}, "layer 1 has 2 proposers x 1 samples; lower it to 2"),
        (
            {"mixture": {"per_layer": [["ada", "bob"], ["ada"]], "min_proposals": 2}},
            "layer 2 has 1 proposers",
        ),
        ({"mixture": {"template": "no.txt"}}, "mixture.template: there is no file 'no.txt'"),
        ({"moaa": {"stages": []}}, "moaa.stages: is empty; expected sft, dpo, or both"),
        ({"moaa": {"stages": ["sft", "sft", "dpo"]}, "iterations": 3}, "names sft 2 times"),
        ({"moaa": {"rewriter": "x"}}, "moaa.rewriter: there is no member 'x'"),
        ({"moaa": {"ranker": "x"}}, "moaa.ranker: there is no member 'x'"),
        ({"moaa": {"students": [{"name": "p"}]}}, "there is no member 'p'"),
        ({"moaa": {"students": [{"name": "pat"}] * 2}}, "names pat 2 times"),
        ({"moaa": {"students": [{"name": "ada"}]}}, "ada has not the role learn"),
        ({"moaa": student(data="mixtures")}, "'mixtures' is not known here; did you mean mixture?"),
        ({"moaa": student(data="teacher:bbo")}, "no member 'bbo'; did you mean bob?"),
        ({"moaa": student(reward="mo")}, "there is no reward 'mo'; did you mean moa?"),
        ({"moaa": student(data="none", reward="none")}, "pat learns in no stage"),
        ({"moaa": student(data="none") | {"stages": ["sft"]}}, "pat learns in no stage"),
        ({"moaa": student(reward="none") | {"stages": ["dpo"]}}, "pat learns in no stage"),
        (
            {"moaa": student(reward="ada"), "judge": {"protocol": "reward"}},
            "ada is no reward model, which judge.protocol: reward needs",
        ),
        (
            {"moaa": student(reward="ada"), "judge": {"protocol": "moa"}},
            "judge.protocol: moa is the mixture, not ada",
        ),
        (
            {"moaa": student(data="best_of"), "judge": {"protocol": "reward"}},
            "moaa.ranker: cora is no reward model",
        ),
        ({"reward": {"proposers": ["x"]}}, "reward.proposers: there is no member 'x'"),
        ({"reward": {"proposers": ["ada", "ada"]}}, "each evaluates once"),
        ({"reward": {"aggregator": "x"}}, "reward.aggregator: there is no member 'x'"),
        ({"reward": {"selector": "x"}}, "reward.selector: there is no member 'x'"),
        ({"reward": {"criteria": "no.yaml"}}, "reward.criteria: there is no file 'no.yaml'"),
        ({"reward": {"sample": {"temperature": 0}}}, "is 0 (greedy): the 5 responses"),
        ({"sft": {"max_prompt_length": 4096}}, "sft.max_prompt_length: a prompt of 4096 tokens"),
        ({"train": {"max_prompt_length": 4096}}, "train.max_prompt_length: a prompt of 4096"),
        ({"judge": {"template": "a", "protocol": "reward"}}, "no use with the reward protocol"),
    ],
)
def test_one_fault(changes: dict[str, Any], words: str) -> None:
    faults = rules.faults(sound(**changes))
    assert len(faults) == 1, faults
    assert words in faults[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"iterations": 3}, "3 stages are no whole number of generations of 2 (sft, dpo)"),
        ({"moaa": {"students": []}, "mixture": {"proposers": []}}, "nor are mixture.proposers"),
        ({"sft": {"max_length": 2048}}, "a response of mixture.aggregate.max_new_tokens = 2048"),
        (
            {
                "sft": {"max_length": 2048},
                "mixture": {"aggregate": {"max_new_tokens": 16}},
                "moaa": student(data="teacher:ada"),
            },
            "a response of mixture.propose.max_new_tokens = 2048",
        ),
        (
            {"moaa": student(data="best_of")},
            "moaa.ranker: cora (the default, mixture.aggregator) ranks the answers of best_of, and "
            "one of them is its own; name a reward model",
        ),
        (
            {
                "moaa": student(data="best_of") | {"ranker": "ada"},
                "judge": {"protocol": "likelihood"},
            },
            "moaa.ranker: ada ranks the answers of best_of, and one of them is its own, and by "
            "judge.protocol: likelihood",
        ),
        ({"train": {"max_length": 2048}}, "a response of reward.sample.max_new_tokens = 2048"),
        ({"reward": {"tie_below": 0.2}}, "has no effect on written verdicts"),
        ({"mixture": {"samples": 2, "propose": {"temperature": 0}}}, "are all the same"),
    ],
)
def test_one_note(changes: dict[str, Any], words: str) -> None:
    config = sound(**changes)
    assert rules.faults(config) == []
    notes = rules.notes(config)
    assert len(notes) == 1, notes
    assert words in notes[0]


def test_what_is_not_used_is_not_asked_for() -> None:
    """The panel matters where it rewards or ranks, the ranker where something is best of."""
    broken = {"proposers": ["x"]}
    assert rules.faults(sound(moaa=student(reward="ada"), reward=broken)) == []
    assert rules.faults(sound(moaa={"stages": ["sft"]}, reward=broken)) == []
    ranks = student(data="best_of", reward="ada") | {"ranker": "moa"}
    assert len(rules.faults(sound(moaa=ranks, reward=broken))) == 1
    assert rules.faults(sound(judge={"protocol": "reward"})) == []
    greedy = {"sample": {"temperature": 0}}
    assert rules.faults(sound(moaa=student(reward="none"), reward=greedy)) == []
    short = sound(train={"method": "none", "max_length": 64}, sft={"max_length": 64})
    assert rules.notes(short) == []


def test_a_ranker_that_has_no_answer_among_them_is_not_noted() -> None:
    ranks = student(data="best_of") | {"ranker": "scorer"}
    assert rules.notes(sound(SCORER, moaa=ranks)) == []
    assert rules.notes(sound(moaa={**ranks, "ranker": "moa"})) == []
    assert rules.notes(sound(moaa={"ranker": "ada"})) == []


def test_lengths_are_those_of_what_each_student_learns() -> None:
    both = {"students": [{"name": "pat"}, {"name": "eve", "data": "random", "reward": "none"}]}
    config = sound({"name": "eve"}, moaa=both, sft={"max_length": 2048})
    assert len(rules.notes(config)) == 2
    short = {"propose": {"max_new_tokens": 16}, "aggregate": {"max_new_tokens": 16}}
    settings = config.mixture.model_validate(config.mixture.model_dump() | short)
    assert rules.notes(config.model_copy(update={"mixture": settings})) == []
    # A student that learns from the mixture alone does not learn what proposers write.
    proposed = {"aggregate": {"max_new_tokens": 16}}
    assert rules.notes(sound(sft={"max_length": 2048}, mixture=proposed)) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mixture", "a mixture"),
        ("moa", "a mixture"),
        ("none", "nobody"),
        ("majority", "a vote"),
        ("best_of", "the best of several answers"),
    ],
)
def test_nobody_is_called_as_collectives_are(name: str, words: str) -> None:
    (fault,) = rules.faults(sound({"name": name}))
    assert fault.startswith("pool.members.")
    assert f"{name} is what settings and results call {words}; give the member another" in fault
    recruit = {"data": "builtin:skills", "specialists": {name: ["addition"]}}
    pool = {"base": BASE, "members": POOL, "recruit": recruit}
    (fault,) = rules.faults(sound(pool=pool))
    assert fault.startswith(f"pool.recruit.specialists.{name}: {name} is what settings")


def test_nobody_left_to_teach() -> None:
    config = sound(pool={"members": POOL[:3]}, moaa={"students": []})
    (fault,) = rules.faults(config)
    assert "moaa.students: nobody" in fault
    joint = sound(moaa={"students": []}, mixture={"aggregator": "pat"})
    assert "moaa.students: nobody" in rules.faults(joint)[0]


@pytest.mark.parametrize(("engine", "words"), [("scripted", "scripted"), ("openai", "behind an")])
def test_students_without_weights_are_data_only(engine: str, words: str) -> None:
    own = {"name": "sam", "engine": engine, "model": "far" if engine == "openai" else None}
    config = sound(own, endpoints=[LAB], moaa={"students": [{"name": "sam"}]})
    assert rules.faults(config) == []
    (note,) = rules.notes(config)
    assert f"sam is {words}" in note
    assert "its data are made, no more" in note


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": None}, "scorer is a reward model and has no model"),
        ({"model": BASE}, f"scorer is a reward model and has {BASE}"),
        ({"model": "no/such/folder"}, "there is no file or folder 'no/such/folder'"),
        ({"adapter": "hub:org/adapter"}, "scorer is a reward model, which has no adapter"),
        ({"roles": ["judge", "learn"]}, "expected roles: [judge], got [judge, learn]"),
        ({"serve": "vllm"}, "is about weights here, and scorer is reward"),
    ],
)
def test_reward_models(given: dict[str, Any], words: str) -> None:
    (fault,) = rules.faults(sound({**SCORER, **given}))
    assert words in fault


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("mixture", {"proposers": ["ada", "scorer"]}),
        ("mixture", {"aggregator": "scorer"}),
        ("mixture", {"per_layer": [["scorer"]]}),
        ("reward", {"proposers": ["scorer"]}),
        ("reward", {"aggregator": "scorer"}),
        ("reward", {"selector": "scorer"}),
        ("moaa", {"rewriter": "scorer"}),
        ("moaa", student(data="teacher:scorer")),
    ],
)
def test_a_reward_model_does_not_write(section: str, settings: dict[str, Any]) -> None:
    (fault,) = rules.faults(sound(SCORER, **{section: settings}))
    assert "scorer is a reward model, which gives scores and writes nothing" in fault


def test_likelihood_is_not_asked_of_endpoints() -> None:
    far = member("far", engine="openai", model="far")
    settings = {"endpoints": [LAB], "judge": {"protocol": "likelihood"}}
    (fault,) = rules.faults(sound(far, moaa=student(reward="far"), **settings))
    assert "likelihood cannot be asked of far" in fault
    # An endpoint that only proposes may stand beside a judge by likelihood.
    propose = {"proposers": ["ada", "far"]}
    assert rules.faults(sound(far, mixture=propose, moaa=student(reward="ada"), **settings)) == []


@pytest.mark.parametrize("mixture", [{"proposers": ["ada", "far"]}, {"aggregator": "far"}])
def test_a_task_by_likelihood_is_not_asked_of_a_measured_endpoint(mixture: dict[str, Any]) -> None:
    """Who is in the mixture is measured without the role contest, too."""
    far = member("far", engine="openai", model="far", roles=["judge"])
    task = {"name": "true", "kind": "truthfulqa_mc1", "source": "hub:org/set"}
    settings = {"endpoints": [LAB], "evaluate": {"tasks": [task], "mixture": False}}
    assert rules.faults(sound(far, **settings)) == []
    (fault,) = rules.faults(sound(far, mixture=mixture, **settings))
    assert "truthfulqa_mc1 cannot be asked of far" in fault


@pytest.mark.parametrize("part", ["sft", "train"])
def test_whole_weights(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {part: {"weights": "full", "max_length": 4096}}
    assert rules.faults(sound(**whole)) == []
    monkeypatch.setattr("phalanx.config.rules_vllm._command", lambda _: iter(()))
    members = [*POOL[:3], {"name": "pat", "serve": "vllm"}]
    (fault,) = rules.faults(sound(pool={"members": members}, **whole))
    assert f"{part}.weights: full weights change the base, and a vLLM server keeps that of pat" in (
        fault
    )
    teacher = [member("ada", serve="vllm"), *POOL[1:]]
    assert rules.faults(sound(pool={"members": teacher}, **whole)) == []
    initial = {"train": {**whole.get("train", {}), "reference": "initial", "max_length": 4096}}
    (fault,) = rules.faults(sound(**(whole | initial)))
    assert "train.reference: is initial" in fault
    ray = {"executor": "ray", "ray": {"adapters": "store"}}
    (fault,) = rules.faults(sound(resources=ray, **whole))
    assert "resources.ray.adapters: folder" in fault
    ray["ray"] = {"adapters": "folder"}
    assert rules.faults(sound(resources=ray, **whole)) == []


def test_sparta_and_mixtures() -> None:
    names = [{"name": name} for name in ("ada", "bob", "cora")]

    def sparta(*more: dict[str, Any], **changes: Any) -> Config:
        data = {
            "pool": {"base": BASE, "members": [*names, *more]},
            "instructions": {"source": "builtin:skills"},
        }
        return Config.model_validate(data | changes)

    assert rules.notes(sparta(moaa={"sft_instructions": 5})) == [
        "moaa: has no use with method: sparta; set method: moaa"
    ]
    mixture = {"aggregator": "ada", "proposers": ["bob"]}
    (note,) = rules.notes(sparta(mixture=mixture))
    assert "unless evaluate.mixture is on" in note
    measured = {"mixture": True}
    assert rules.notes(sparta(mixture=mixture, evaluate=measured)) == []
    (fault,) = rules.faults(sparta(evaluate=measured))
    assert "mixture.aggregator: names nobody" in fault
    (fault,) = rules.faults(sparta(judge={"protocol": "moa"}))
    assert "moa is one judge made of many" in fault
    (fault,) = rules.faults(sparta(judge={"protocol": "reward"}))
    assert "ada, bob, cora are none" in fault
    (fault,) = rules.faults(sparta(SCORER))
    assert "rubric cannot be asked of scorer, which only gives scores" in fault
    judged = [{**name, "roles": ["contest", "learn"]} for name in names]
    config = sparta(judge={"protocol": "reward"})
    pool = {"base": BASE, "members": [*judged, SCORER]}
    assert rules.faults(Config.model_validate(config.model_dump() | {"pool": pool})) == []


def for_purpose(purpose: str, config: Config) -> list[str]:
    return rules.faults(config, purpose=purpose)  # type: ignore[arg-type]


@pytest.mark.parametrize("purpose", [word for word in get_args(Purpose) if word != "run"])
def test_commands_want_neither_duels_nor_instructions(purpose: str) -> None:
    tasks = {"tasks": [{"name": "t", "source": "builtin:skills"}]}
    config = sound(instructions={"source": ""}, moaa={"students": []}, evaluate=tasks)
    alone = config.model_copy(update={"method": "sparta"})
    for one in (config, alone):
        assert for_purpose(purpose, one) == []
        assert rules.faults(one) != []


@pytest.mark.parametrize(
    ("purpose", "changes", "words"),
    [
        ("mix", {"mixture": {"aggregator": ""}}, "mixture.aggregator: names nobody"),
        ("mix", {"mixture": {"proposers": ["x"]}}, "there is no member 'x'"),
        ("judge", {"judge": {"protocol": "moa"}, "mixture": {"aggregator": ""}}, "names nobody"),
        ("judge", {"judge": {"protocol": "moa"}, "reward": {"proposers": ["x"]}}, "member 'x'"),
        ("judge", {"judge": {"protocol": "reward"}}, "ada, bob, cora, pat are none"),
        ("search", {}, "evaluate.tasks: a search is scored on the dev rows of tasks"),
        ("search", {"evaluate": {"dev_share": 0.0}}, "evaluate.tasks"),
    ],
)
def test_what_commands_want(purpose: str, changes: dict[str, Any], words: str) -> None:
    (fault,) = for_purpose(purpose, sound(**changes))
    assert words in fault


def test_judge_and_synthesise_need_somebody_who_can() -> None:
    nobody = sound(pool={"members": [{"name": "ada", "roles": ["contest"]}]})
    assert "nobody has the role judge" in for_purpose("judge", nobody)[0]
    far = {"name": "far", "engine": "openai", "model": "far"}
    config = sound(pool={"members": [far, SCORER]}, endpoints=[LAB])
    assert "nobody can invent instructions" in for_purpose("synthesise", config)[0]


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"metric": "judge"}, "search.judge: names nobody, and metric: judge asks somebody"),
        ({"metric": "reward", "judge": "x"}, "search.judge: there is no member 'x'"),
        ({"metric": "reward", "judge": "ada"}, "ada is no reward model"),
        ({"metric": "reward", "judge": "scorer"}, ""),
        ({"metric": "judge", "judge": "ada"}, ""),
        ({"metric": "accuracy"}, ""),
    ],
)
def test_who_scores_a_search(search: dict[str, Any], words: str) -> None:
    tasks = {"tasks": [{"name": "t", "source": "builtin:skills"}]}
    faults = for_purpose("search", sound(SCORER, search=search, evaluate=tasks))
    assert len(faults) == bool(words), faults
    assert words in "".join(faults)


def test_a_search_scores_no_pairs_and_tries_a_sound_mixture() -> None:
    tasks = {"tasks": [{"name": "t", "source": "builtin:skills"}]}
    pairs: dict[str, Any] = {"judge": {"protocol": "pairwise"}, "evaluate": tasks}
    judged = {"metric": "judge", "judge": "ada"}
    (fault,) = for_purpose("search", sound(SCORER, search=judged, **pairs))
    assert "judge.protocol: pairwise compares two answers" in fault
    scored = {"metric": "reward", "judge": "scorer"}
    assert for_purpose("search", sound(SCORER, search=scored, **pairs)) == []
    typo = sound(SCORER, mixture={"proposers": ["x"]}, evaluate=tasks)
    (fault,) = for_purpose("search", typo)
    assert "mixture.proposers: there is no member 'x'" in fault


def test_a_search_is_scored_by_one_member() -> None:
    evaluate = {"tasks": [{"name": "t", "source": "builtin:skills"}]}
    for judge, key in (("ada", "judge.protocol"), ("moa", "search.judge")):
        search = {"metric": "judge", "judge": judge}
        config = sound(SCORER, search=search, evaluate=evaluate, judge={"protocol": "moa"})
        (fault,) = for_purpose("search", config)
        assert f"{key}: a search is scored by one member" in fault
        assert "expected, rubric or likelihood" in fault


@pytest.mark.parametrize("protocol", ["pairwise", "moa", "rubric"])
def test_a_script_gives_rewards_whatever_the_protocol(protocol: str) -> None:
    evaluate = {"tasks": [{"name": "t", "source": "builtin:skills"}]}
    rita = {"name": "rita", "engine": "scripted", "roles": ["judge"]}
    search = {"metric": "reward", "judge": "rita"}
    config = sound(rita, search=search, evaluate=evaluate, judge={"protocol": protocol})
    assert for_purpose("search", config) == []


def test_files_are_looked_into(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Make one of them.", encoding="utf-8")
    (tmp_path / "list.yaml").write_text("- accuracy\n", encoding="utf-8")
    text = (
        f"method: moaa\niterations: 2\npool: {{base: '{BASE}', members: [{{name: ada}}, "
        "{name: pat}]}\nmixture: {aggregator: ada, proposers: [ada], template: mine.txt}\n"
        "moaa: {students: [{name: pat}]}\nreward: {criteria: list.yaml}\n"
        "instructions: {source: 'builtin:skills'}\n"
    )
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(path, also=(content_faults,))
    first, second = caught.value.faults
    assert "c.yaml:4: mixture.template" in first
    assert "proposals" in first
    assert "c.yaml:6: reward.criteria" in second
    (tmp_path / "mine.txt").write_text("One of these: {proposals}", encoding="utf-8")
    (tmp_path / "list.yaml").write_text("accuracy: Facts are true.\n", encoding="utf-8")
    config = load(path, also=(content_faults,))
    assert config.mixture.template == str(tmp_path / "mine.txt")
    assert config.reward.criteria == str(tmp_path / "list.yaml")


def test_who_does_what_by_default() -> None:
    config = sound()
    assert proposers_of(config) == (("ada", "bob"),)
    assert panel_of(config) == ("ada", "bob")
    assert (verdict_of(config), selector_of(config)) == ("cora", "cora")
    assert panel_of(sound(mixture={"layers": 1, "proposers": []})) == ("cora",)
    assert selector_of(sound(reward={"aggregator": "ada"})) == "ada"
    assert [s.name for s in students_of(sound(moaa={"students": []}))] == ["pat"]
    every = sound(mixture={"proposers": [], "layers": 3})
    assert proposers_of(every) == (("ada", "bob", "cora"),) * 2


def test_recruits_mix_and_learn_as_others_do() -> None:
    recruit = {"specialists": {"dan": ["addition"], "eve": ["words"]}}
    config = sound(
        pool={"base": BASE, "members": [], "recruit": recruit},
        mixture={"proposers": ["dan"], "aggregator": "dan"},
        moaa={"students": []},
    )
    assert rules.faults(config) == []
    assert [s.name for s in students_of(config)] == ["eve"]


@pytest.mark.parametrize("name", [name for name in preset_names() if "moaa" in name])
def test_presets_alone_are_sound(name: str) -> None:
    config = load(f"preset:{name}")
    assert config.method == "moaa"
    assert rules.faults(config, complete=False) == []


def test_a_search_may_go_on_with_more_calls() -> None:
    more, trials = sound(search={"calls": 9}), sound(search={"trials": 2})
    assert differences(sound(search={"calls": 5}), more) == []
    assert len(differences(sound(), trials)) == 1


def test_supervised_fine_tuning_on_pairs_is_for_duels() -> None:
    (fault,) = rules.faults(sound(train={"method": "sft"}))
    assert fault.startswith("train.method: sft is for duels")
    assert "moaa.stages" in fault
