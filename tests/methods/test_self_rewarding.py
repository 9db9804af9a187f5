"""Self-Rewarding on the scripted engine: samples, own judgments, best over worst."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from phalanx.config import Config, load
from phalanx.config.rules import faults, notes
from phalanx.errors import ConfigError, JudgmentError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.methods.self_rewarding import SEED, draw, given, lesson, run
from phalanx.types import Instruction, Member, Message
from tests.methods.rivals import SMOKE, Asked, golden, start, told

ITEMS = [Instruction("i1", "Name a prime."), Instruction("i2", "Name a river.")]


def says(text: str, reply, **more) -> dict:
    """A rule for judgments of that response."""
    when = rf"<<<response \w+>>>\n{text}\n"
    return {"when": when, "purpose": "judge", "reply": reply, **more}


JUDGING = [
    says("Good", "It answers.\nScore: 5"),
    says("Fair", ["Half of it.\nScore: 3", "Half of it.\nScore: 4"]),
    says("Poor", "It does not.\nScore: 0"),
]


def script(samples, judging=JUDGING) -> dict:
    rules = samples if isinstance(samples[0], dict) else [{"when": ".", "reply": samples}]
    return {"sampling": [*judging, *({**rule, "purpose": "sample"} for rule in rules)]}


def configuration(**section) -> Config:
    section = {"samples": 4, "judgments": 2, **section.pop("self_rewarding", {})}
    return Config.model_validate({"method": "self_rewarding", "seed": 7, **section_of(section)})


def section_of(section: dict) -> dict:
    return {"self_rewarding": section}


def settled(config: Config, **changes) -> Config:
    return config.model_copy(
        update={
            key: getattr(config, key).model_copy(update=value) for key, value in changes.items()
        }
    )


def done(asked: Asked, config: Config, names=("ada",), items=ITEMS, **changes):
    return run(start(config, names, items, **changes), asked, config)


MIXED = ["Good", "Fair", "Poor"]


def test_golden_transcript():
    asked = Asked(script(MIXED))
    config = configuration(self_rewarding={"samples": 3})
    result = done(asked, config, ("ada", "bob"), ITEMS[:1])
    golden("self_rewarding", told(asked, result))


def test_every_learner_answers_and_judges_itself_in_one_ask_each():
    asked = Asked(script(MIXED))
    done(asked, configuration(), ("ada", "bob"))
    assert asked.phases == ["sample", "judge"]
    samples = [request for request in asked.requests if request.purpose == "sample"]
    assert len(samples) == 2 * 2 * 4
    assert len({request.seed for request in samples}) == len({r.id for r in samples}) == 16
    judged = {
        (request.member.name, request.messages[-1].content)
        for request in asked.requests
        if request.purpose == "judge"
    }
    # No prompt is shared: everybody's marks are their own, and nobody judges another's response.
    assert len({prompt for _, prompt in judged}) == len(judged)
    assert {name for name, _ in judged} == {"ada", "bob"}


def test_best_over_worst_is_an_own_pair():
    result = done(Asked(script(MIXED)), configuration(self_rewarding={"samples": 12}), ("ada",))
    assert [pair.drop for pair in result.pairs] == ["", ""]
    for pair in result.pairs:
        assert (pair.chosen, pair.rejected) == ("Good", "Poor")
        assert pair.chosen_member == pair.rejected_member == "ada"
        assert pair.margin == 5.0
    for duel, judgment, outcome in zip(
        result.duels, result.judgments, result.outcomes, strict=True
    ):
        assert duel.left.startswith("ada#")
        assert judgment.judge == "ada"
        assert judgment.protocol == "additive"
        assert set(judgment.requests) == {"left.1", "left.2", "right.1", "right.2"}
        assert {judgment.score_left, judgment.score_right} == {0.0, 5.0}
        assert outcome.status == "decided"
        assert {(duel.id, name) for name in duel.contestants} <= result.responses.keys()


def test_the_mean_of_what_can_be_read_counts():
    judging = [
        says("Good", "Score: 3"),
        says("Fair", ["Score: 5", "Score: 5", "I cannot say."]),
        says("Poor", ["Score: 2", "Score: 9"]),
    ]
    config = configuration(self_rewarding={"samples": 12, "judgments": 6})
    result = done(Asked(script(MIXED, judging)), config)
    assert {(pair.chosen, pair.rejected) for pair in result.pairs} == {("Fair", "Poor")}
    assert {pair.margin for pair in result.pairs} == {3.0}  # nothing is taken for a number
    asked, lost = result.metrics["scores.asked"], result.metrics["scores.unreadable"]
    assert asked == 2 * 3 * 6
    assert 0 < lost < asked
    assert 2 < result.metrics["scores.mean"] < 5


@pytest.mark.parametrize(
    ("samples", "judging", "drop", "judged"),
    [
        (["Good", "Fair"], [says(".*", "Score: 3")], "tie", True),
        (["Good", "Fair"], [says(".*", "I cannot say.")], "unscored", True),
        (["Good"], JUDGING, "identical", False),
        (["", " "], JUDGING, "empty", False),
    ],
)
def test_what_makes_no_pair_is_dropped_by_name(samples, judging, drop, judged):
    config = configuration(self_rewarding={"samples": 8})
    result = done(Asked(script(samples, judging)), config)
    assert [pair.drop for pair in result.pairs] == [drop, drop]
    assert result.metrics[f"num_dropped.{drop}"] == 2
    assert result.metrics["num_pairs"] == 0
    assert bool(result.duels) == judged
    assert result.metrics.get("share_ties") == ({"tie": 1.0, "unscored": 0.0}.get(drop))


def test_one_readable_response_is_no_pair_and_no_tie():
    judging = [says("Good", "Score: 3"), says("Fair", "I cannot say.")]
    config = configuration(self_rewarding={"samples": 8})
    result = done(Asked(script(["Good", "Fair"], judging)), config)
    assert {pair.drop for pair in result.pairs} == {"unscored"}


def test_what_cannot_be_read_does_not_hide_a_tie():
    judging = [says("Good|Fair", "Score: 3"), says("Poor", "I cannot say.")]
    result = done(Asked(script(MIXED, judging)), configuration(self_rewarding={"samples": 12}))
    assert {pair.drop for pair in result.pairs} == {"tie"}
    assert {outcome.status for outcome in result.outcomes} == {"tie"}


def cut_samples(asked_reply: str):
    """ada's responses of which the best was cut at the token limit."""

    class CutGood(Asked):
        def __call__(self, phase, requests):
            replies = super().__call__(phase, requests)
            return [
                replace(reply, finish_reason="length") if reply.text == asked_reply else reply
                for reply in replies
            ]

    return CutGood


def test_a_truncated_response_is_rejected_but_never_chosen():
    config = configuration(self_rewarding={"samples": 12})
    result = done(cut_samples("Good")(script(MIXED)), config)
    assert {(p.chosen, p.rejected, p.drop) for p in result.pairs} == {("Fair", "Poor", "")}
    result = done(cut_samples("Poor")(script(MIXED)), config)
    assert {(p.chosen, p.rejected, p.drop) for p in result.pairs} == {("Good", "Poor", "")}


def test_where_only_a_truncated_one_is_better_the_pair_is_dropped_for_that():
    config = configuration(self_rewarding={"samples": 8})
    result = done(cut_samples("Good")(script(["Good", "Poor"])), config)
    assert {(p.chosen, p.rejected, p.drop) for p in result.pairs} == {("Good", "Poor", "truncated")}
    allowing = settled(config, pairs={"truncated": "allow"})
    result = done(cut_samples("Good")(script(["Good", "Poor"])), allowing)
    assert {pair.drop for pair in result.pairs} == {""}


def test_truncated_ones_are_not_even_judged_where_they_are_dropped():
    config = settled(configuration(self_rewarding={"samples": 12}), pairs={"truncated": "drop"})
    asked = cut_samples("Good")(script(MIXED))
    result = done(asked, config)
    assert {(p.chosen, p.rejected) for p in result.pairs} == {("Fair", "Poor")}
    assert not any(">>>\nGood\n" in r.messages[-1].content for r in asked.requests)
    result = done(cut_samples("Good")(script(["Good"])), config)
    assert {pair.drop for pair in result.pairs} == {"truncated"}


def test_reasoning_is_neither_judged_nor_learned():
    asked = Asked(script(["<think>Poor?</think>Good", "Poor"]))
    result = done(asked, configuration(self_rewarding={"samples": 8}))
    assert {(p.chosen, p.rejected) for p in result.pairs} == {("Good", "Poor")}
    assert not any("<think>" in r.messages[-1].content for r in asked.requests)


def test_failures_are_counted_and_stop_a_learner_that_has_nothing():
    failing = {"kind": "engine", "message": "broken"}
    some = [{"when": "river", "fail": failing}, {"when": ".", "reply": MIXED}]
    result = done(Asked(script(some)), configuration(self_rewarding={"samples": 12}))
    assert [pair.drop for pair in result.pairs] == ["", "unscored"]
    assert result.metrics["num_samples_failed"] == 12
    with pytest.raises(JudgmentError, match="ada has nothing to learn from: 8 of its 8 samples"):
        done(Asked(script([{"when": ".", "fail": failing}])), configuration())


def test_lengths_of_what_is_preferred_are_told():
    judging = [says("Good", "Score: 1"), says("Longer than that", "Score: 4")]
    config = configuration(self_rewarding={"samples": 8})
    result = done(Asked(script(["Good", "Longer than that"], judging)), config)
    assert result.metrics["mean_length_chosen"] == 16
    assert result.metrics["mean_length_rejected"] == 4


def test_only_learners_take_part_and_standings_are_carried_over():
    config = configuration()
    judge = Member("zoe", "script:s", engine="scripted", roles=("judge",))
    begun = start(config, ["ada"], ITEMS)
    begun = replace(begun, members=(*begun.members, judge), reliability={"zoe": 0.9})
    asked = Asked(script(MIXED))
    result = run(begun, asked, config)
    assert {request.member.name for request in asked.requests} == {"ada"}
    assert result.standings == begun.standings
    assert result.reliability == {"zoe": 0.9}


def test_of_a_conversation_the_first_turn_is_answered_and_judged():
    later = (Message("assistant", "Two."), Message("user", "Another."))
    asked = Asked(script(MIXED))
    done(asked, configuration(), items=[replace(ITEMS[0], later=later)])
    assert all("Another." not in r.messages[-1].content for r in asked.requests)


def test_the_same_call_again_asks_and_finds_the_same():
    config = configuration(self_rewarding={"samples": 5})
    first, again = Asked(script(MIXED)), Asked(script(MIXED))
    one, two = done(first, config, ("ada", "bob")), done(again, config, ("ada", "bob"))
    assert one == two
    assert [request.id for request in first.requests] == [r.id for r in again.requests]
    other = Asked(script(MIXED))
    done(other, config, ("ada", "bob"), number=2)
    assert not {r.id for r in first.requests} & {r.id for r in other.requests}


def test_instructions_are_fresh_and_each_once_where_they_are_few():
    items = [Instruction(f"i{n}", f"Name {n}.") for n in range(10)]
    config = configuration(self_rewarding={"instructions": 5})
    first, second = draw(config, items, 1), draw(config, items, 2)
    assert len({one.id for one in (*first, *second)}) == 10
    many = configuration(self_rewarding={"instructions": 50})
    assert sorted(one.id for one in draw(many, items, 1)) == [one.id for one in items]


# Demonstrations of judging ------------------------------------------------------------------------


@pytest.fixture
def seed_file(tmp_path):
    path = tmp_path / "judging.jsonl"
    rows = [{"instruction": f"Rate answer {n}.", "response": f"Score: {n}"} for n in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_first_iteration_learns_to_judge_and_makes_no_pairs(seed_file):
    config = configuration(self_rewarding={"judge_seed": str(seed_file)})
    assert draw(config, ITEMS, 1) == ()
    assert lesson(config, 1, "ada") == f"demonstrations:{SEED}"
    assert lesson(config, 2, "ada") == "own pairs"
    assert given(config, 2) == ()
    asked = Asked(script(MIXED))
    result = done(asked, config, items=(), given=given(config, 1))
    assert not asked.requests
    assert not result.pairs
    assert [row.response for row in result.demonstrations] == [f"Score: {n}" for n in range(6)]
    assert {row.builder for row in result.demonstrations} == {SEED}
    assert result.metrics["num_demonstrations"] == 6
    assert run(start(config, ["ada"], ITEMS, number=2), asked, config).pairs


def test_without_a_seed_the_first_iteration_makes_pairs():
    assert given(configuration(), 1) == ()
    assert lesson(configuration(), 1, "ada") == "own pairs"


def smoke(**changes) -> Config:
    return load(SMOKE / "self_rewarding.yaml", changes)


def test_the_seed_must_be_there_and_have_its_columns(seed_file, tmp_path):
    config = load(SMOKE / "self_rewarding.yaml", {})

    def with_seed(path, **train):
        section = config.self_rewarding.model_copy(update={"judge_seed": str(path)})
        return config.model_copy(
            update={"self_rewarding": section, "train": config.train.model_copy(update=train)}
        )

    assert any("there is no file" in fault for fault in faults(with_seed(tmp_path / "no.jsonl")))
    learning = with_seed(seed_file, method="dpo")
    assert faults(learning) == []
    assert any("train.method is none" in fault for fault in faults(with_seed(seed_file)))
    once = learning.model_copy(update={"iterations": 1})
    assert any("no pairs are made" in note for note in notes(once))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"instruction": "Rate it.", "answer": "Score: 3"}\n')
    with pytest.raises(ConfigError, match="column 'response'"):
        given(with_seed(bad, method="dpo"), 1)


def test_an_own_rubric_is_looked_at_before_a_model_loads(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        smoke(**{"self_rewarding.template": str(tmp_path / "no.txt")})
    mine = tmp_path / "mine.txt"
    mine.write_text("Rate {respons}.")
    with pytest.raises(ConfigError, match=r"did you mean \{response\}"):
        align(smoke(**{"self_rewarding.template": str(mine)}), tmp_path / "run")


# Whole runs ---------------------------------------------------------------------------------------


def test_the_smoke_configuration_runs_and_continues(tmp_path):
    config = smoke()
    folder = align(config, tmp_path / "run")
    align(config, folder)
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("method") == "self_rewarding"
        rows = ledger.query("SELECT dropped, chosen_member, rejected_member FROM pairs")
        assert len(rows) == 2 * 2 * 4
        assert all(row["chosen_member"] == row["rejected_member"] for row in rows)
        assert ledger.count("judgments", "protocol = 'additive'") == ledger.count("duels")
        asked = ledger.query("SELECT count(*) AS n, count(DISTINCT id) AS ids FROM responses")[0]
        assert asked["n"] == asked["ids"]


def test_judgments_that_cannot_be_read_stop_the_run(tmp_path):
    script = tmp_path / "mute.yaml"
    script.write_text(
        "sampling:\n"
        "  - {when: the word Score, purpose: judge, reply: I cannot say.}\n"
        "  - {when: ., reply: [One., Two., Three.]}\n"
    )
    pool = [{"name": "ada", "engine": "scripted", "model": f"script:{script}"}]
    with pytest.raises(JudgmentError, match=r"could not be read .*follow the rubric") as caught:
        align(smoke(**{"pool.members": pool}), tmp_path / "run")
    assert "no score line" in str(caught.value)


def test_a_seed_that_changes_is_another_run(seed_file, tmp_path):
    settings = {"self_rewarding.judge_seed": str(seed_file), "train.method": "dpo"}
    folder = align(smoke(**settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert len(ledger.demonstrations(1, SEED)) == 6
        assert ledger.count("pairs", "iteration = 1") == 0
        assert ledger.count("pairs", "iteration = 2") == 8
    seed_file.write_text('{"instruction": "Rate it.", "response": "Score: 3"}\n')
    with pytest.raises(LedgerError, match="have changed since it was started"):
        align(smoke(**settings), folder)


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    """It learns the form of a judgment from demonstrations, judges itself, and learns from that."""
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("Instruction: {instruction}\nResponse: {response}\nRate it from 0 to 5.")
    rows = [
        {
            "instruction": f"Instruction: Name {what}.\nResponse: {answer}\nRate it from 0 to 5.",
            "response": f"Score: {score}",
        }
        for what in ("a prime", "a river")
        for answer, score in (("No.", 0), ("Here is one.", 4))
    ]
    seed = tmp_path / "judging.jsonl"
    seed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = tmp_path / "items.jsonl"
    source.write_text('{"id": "a", "instruction": "Name a tree."}\n')
    settings = {
        "method": "self_rewarding",
        "iterations": 2,
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]},
        "instructions": {"source": str(source)},
        "self_rewarding": {
            "samples": 3,
            "judgments": 2,
            "sample": {"max_new_tokens": 4, "temperature": 1.0},
            "judge": {"max_new_tokens": 6, "temperature": 1.0},
            "template": str(rubric),
            "judge_seed": str(seed),
        },
        "pairs": {"truncated": "allow"},
        "sft": {"learning_rate": 3e-3, "epochs": 4, "batch_size": 4, "lora": {"rank": 4}},
        "train": {"learning_rate": 1e-4, "lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        metrics = ledger.state(2)["metrics"]
        versions = [ledger.members(number)[0].version for number in (0, 1, 2)]
        kept = ledger.count("pairs", "iteration = 2 AND dropped = ''")
    assert metrics["scores.asked"] > 2 * metrics["scores.unreadable"]
    assert metrics["num_pairs"] == kept
    assert versions == [0, 1, 1 + (kept > 0)]


def test_it_is_in_the_list():
    assert METHODS["self_rewarding"].kind == "single"
