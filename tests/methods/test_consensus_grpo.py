"""Label-free consensus GRPO on the scripted engine: who is asked what, and what each row earns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.progress import Silent
from phalanx.types import Instruction
from tests.methods.rivals import SMOKE, Asked, golden, start, told
from tests.tiny import make_tiny

METHOD = METHODS["consensus_grpo"]
NAMES = ("ada", "bob", "cora")
SUM = Instruction("sum", "What is 2 + 2?", "sums")
SCRIPT = {
    "sampling": [
        {"when": "breaks", "fail": {"kind": "engine", "message": "provoked"}},
        {"when": "long", "member": "ada", "reply": "So far 4", "finish": "length"},
        {"when": "mute", "member": "ada", "reply": ["", "4", "5"]},
        {"when": "words", "reply": ["Four.", "Five."]},
        {"when": "all alike", "reply": "4"},
        {"when": ".", "member": "ada", "reply": ["It is 4.", "4", "Two and two make 4.0."]},
        {"when": ".", "member": "bob", "reply": ["5", "It is 4.", "6"]},
        {"when": ".", "reply": ["7", "8", "I do not know.", "4"]},
    ]
}


def config(**more) -> Config:
    given = {"samples": 4, **more}
    return Config.model_validate({"method": "consensus_grpo", "consensus_grpo": given})


def made(*instructions, settings=None, asked=None, names=NAMES):
    settings = settings or config()
    asked = asked or Asked(SCRIPT)
    return METHOD.run(start(settings, names, instructions), asked, settings)


def test_golden_transcript():
    asked = Asked(SCRIPT)
    result = made(SUM, Instruction("long", "A long sum: 1 + 3?"), asked=asked)
    golden("consensus_grpo", told(asked, result))


def test_everybody_is_asked_in_one_phase_and_again_for_the_same_ids():
    first, second = Asked(SCRIPT), Asked(SCRIPT)
    one, two = made(SUM, asked=first), made(SUM, asked=second)
    assert first.phases == ["sample"]
    assert [r.id for r in first.requests] == [r.id for r in second.requests]
    assert len({r.id for r in first.requests}) == 3 * 4
    assert one == two


def test_rows_of_two_iterations_are_not_the_same():
    settings = config()
    first, second = (
        METHOD.run(start(settings, NAMES, [SUM], number), Asked(SCRIPT), settings)
        for number in (1, 2)
    )
    ids = {row.id for result in (first, second) for row in result.demonstrations}
    assert len(ids) == 2 * 3 * 4


def test_a_response_is_rewarded_for_the_answer_of_the_pool():
    result = made(SUM)
    assert result.metrics["labels.found"] == 1
    for row in result.demonstrations:
        assert row.builder == row.writer
        if not row.drop:
            assert (row.advantage > 0) == ("4" in row.response), row
    for name in NAMES:
        mine = [r for r in result.demonstrations if r.builder == name]
        assert len(mine) == 4
        assert sum(r.advantage for r in mine) == pytest.approx(0, abs=1e-9)


def test_groups_that_are_all_alike_teach_nothing():
    result = made(Instruction("i", "all alike"))
    assert {row.drop for row in result.demonstrations} == {"no_advantage"}
    assert {row.advantage for row in result.demonstrations} == {0.0}
    assert result.metrics["num_demonstrations"] == 0
    assert result.metrics["agreement.ada"] == 1.0


def test_no_readable_answer_is_no_label():
    result = made(Instruction("i", "in words"))
    assert {row.drop for row in result.demonstrations} == {"no_answer"}
    assert {row.advantage for row in result.demonstrations} == {None}
    assert result.metrics["labels.no_answer"] == 1
    assert result.metrics["answers.unreadable"] == 12
    assert "agreement.ada" not in result.metrics


def test_equal_sums_are_no_label():
    script = {
        "sampling": [
            {"when": ".", "member": "ada", "reply": "4"},
            {"when": ".", "member": "bob", "reply": "5"},
        ]
    }
    result = made(SUM, asked=Asked(script), names=("ada", "bob"))
    assert {row.drop for row in result.demonstrations} == {"tie"}


def test_truncated_and_empty_responses():
    long = Instruction("long", "A long sum: 1 + 3?")
    dropped = {row.drop for row in made(long).demonstrations if row.writer == "ada"}
    assert dropped == {"truncated"}
    allowed = made(long, settings=config(truncated="allow"))
    mine = [row for row in allowed.demonstrations if row.writer == "ada"]
    assert {row.drop for row in mine} <= {"", "no_advantage"}
    assert all(row.truncated for row in mine)
    mute = made(Instruction("mute", "A mute sum"), settings=config(samples=8))
    rows = [row for row in mute.demonstrations if row.writer == "ada"]
    assert {"", "empty"} <= {row.drop for row in rows}
    assert all((row.drop == "empty") == (not row.response) for row in rows)
    assert all(row.advantage < 0 for row in rows if row.drop == "empty")


def test_failed_requests_are_no_part_of_a_group_and_a_pool_of_them_is_refused():
    script = {
        "sampling": [
            {"when": ".", "member": "bob", "fail": {"kind": "engine", "message": "provoked"}},
            *SCRIPT["sampling"],
        ]
    }
    with pytest.raises(JudgmentError, match=r"'bob' made no demonstration .*4 failed"):
        made(SUM, asked=Asked(script))
    result = made(SUM, asked=Asked(script), names=("ada", "cora"))
    assert result.metrics["num_samples_failed"] == 0


def test_one_learner_alone_agrees_with_itself():
    result = made(SUM, names=("bob",), settings=config(samples=8))
    assert {row.builder for row in result.demonstrations} == {"bob"}
    assert result.metrics["labels.found"] in (0, 1)


def test_only_learners_are_asked():
    settings, asked = config(), Asked(SCRIPT)
    iteration = start(settings, NAMES, [SUM])
    judge = replace(iteration.members[2], roles=("judge",))
    METHOD.run(replace(iteration, members=(*iteration.members[:2], judge)), asked, settings)
    assert {request.member.name for request in asked.requests} == {"ada", "bob"}


def test_what_was_carried_over_is_carried_on():
    settings = config()
    iteration = start(settings, NAMES, [SUM], reliability={"ada": 0.5}, faded={"bob": 0.1})
    result = METHOD.run(iteration, Asked(SCRIPT), settings)
    assert result.standings == iteration.standings
    assert result.reliability == {"ada": 0.5}
    assert result.faded == {"bob": 0.1}


def test_every_iteration_draws_fresh_instructions():
    settings = config(instructions=2)
    every = [Instruction(f"i{n}", f"{n} + {n}?") for n in range(4)]
    drawn = [METHOD.draw(settings, every, number) for number in (1, 2, 3)]
    assert all(len(set(some)) == 2 for some in drawn)
    assert not set(drawn[0]) & set(drawn[1])  # 2 of 4 each: then a new round begins
    assert drawn[0] == METHOD.draw(settings, every, 1)
    assert len(METHOD.draw(config(), every, 1)) == 4
    assert METHOD.lesson(settings, 1, "ada") == "rated:ada"


def test_a_group_that_cannot_differ_is_refused():
    with pytest.raises(ConfigError, match=r"consensus_grpo\.sample\.temperature"):
        load(SMOKE / "consensus_grpo.yaml", {"consensus_grpo.sample.temperature": 0.0})


def test_the_smoke_configuration_runs(tmp_path):
    folder = align(load(SMOKE / "consensus_grpo.yaml"), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("finished")
        rows = ledger.demonstrations(1, "ada")
    assert len(rows) == 6 * 6
    assert any(row.advantage for row in rows if not row.drop)


class Listening(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.slow
def test_a_learner_without_labels_stays_as_it_was_and_is_told_why(tmp_path):
    """A model of random words writes no numbers."""
    settings = {
        "pool": {"members": [{"name": "ada", "model": str(make_tiny(tmp_path / "base", seed=1))}]},
        "method": "consensus_grpo",
        "iterations": 1,
        "instructions": {"source": str(SMOKE / "instructions.jsonl")},
        "consensus_grpo": {
            "instructions": 2,
            "samples": 2,
            "sample": {"max_new_tokens": 4},
            "truncated": "allow",
        },
        "resources": {"threads": 1},
    }
    heard = Listening()
    folder = align(Config.model_validate(settings), tmp_path / "run", progress=heard)
    [note] = [text for text in heard.said if "had nothing to learn from" in text]
    assert "(dropped: 4 no_answer)" in note
    with Ledger(run_ledger_path(folder)) as ledger:
        assert [member.version for member in ledger.members(1)] == [0]


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    """Two members with other system prompts learn from groups of short answers."""
    source = tmp_path / "sums.jsonl"
    row = '{"id": "a", "instruction": "What is 4 plus 4? Answer with a number."}\n'
    source.write_text(row)
    settings = {
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": "ada"}, {"name": "bob", "system": "You are brief."}],
        },
        "method": "consensus_grpo",
        "iterations": 1,
        "instructions": {"source": str(source)},
        "consensus_grpo": {
            "samples": 4,
            "sample": {"max_new_tokens": 12},
            "truncated": "allow",
        },
        "grpo": {"lora": {"rank": 4}, "learning_rate": 1e-4},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.count("responses", "status = 'done'") == 2 * 4
        kept = {
            name: sum(not row.drop for row in ledger.demonstrations(1, name))
            for name in ("ada", "bob")
        }
        trained = ledger.query("SELECT member, num_examples FROM trainings WHERE iteration = 1")
        versions = {member.name: member.version for member in ledger.members(1)}
    assert any(kept.values())
    assert {row["member"]: row["num_examples"] for row in trained} == kept
    assert versions == {name: int(count > 0) for name, count in kept.items()}
