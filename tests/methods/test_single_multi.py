"""The single-multi loop on the scripted engine: which collective answers, and what all learn."""

from __future__ import annotations

import pytest

from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.types import Instruction, Member
from tests.methods.rivals import SMOKE, Asked, golden, start, told

METHOD = METHODS["single_multi"]
NAMES = ("ada", "bob", "cora", "dan")
SUM = Instruction("sum", "What is 2 + 2?", "sums")
FREE = Instruction("free", "Say something.", "talk")
SCRIPT = {
    "sampling": [
        {"when": r"1\.\n<<<answer \w+>>>\nSeven", "purpose": "vote", "reply": "[[1]]"},
        {"when": r"2\.\n<<<answer \w+>>>\nSeven", "purpose": "vote", "reply": "[[2]]"},
        {"when": r"3\.\n<<<answer \w+>>>\nSeven", "purpose": "vote", "reply": "[[3]]"},
        {"when": ".", "purpose": "vote", "member": "bob", "reply": "[[1]]"},
        {"when": ".", "purpose": "vote", "reply": "Hard to say."},
        {"when": ".", "purpose": "aggregate", "reply": "<think>Hm.</think>Together: 4."},
        {"when": "mute", "reply": ""},
        {"when": "breaks", "fail": {"kind": "engine", "message": "provoked"}},
        {"when": "long", "reply": "Four and", "finish": "length"},
        {"when": "Say something", "member": "ada", "reply": "Seven."},
        {"when": "Say something", "member": "bob", "reply": "Nine."},
        {"when": "Say something", "reply": ["Two.", "Three."]},
        {"when": ".", "purpose": "debate", "member": "ada", "reply": "Seven."},
        {"when": ".", "purpose": "debate", "member": "dan", "reply": "5"},
        {"when": ".", "purpose": "debate", "reply": "It is 4."},
        {"when": ".", "member": "cora", "reply": "<think>2 + 2</think>4"},
        {"when": ".", "reply": "5"},
    ],
    "reward": [{"when": "4", "reward": 2.0}, {"when": ".", "reward": 0.5}],
}


def config(collective="debate", match="number", more=(), **settings) -> Config:
    return Config.model_validate(
        {
            "method": "single_multi",
            "pool": {"members": [{"name": name, "engine": "scripted"} for name in NAMES]},
            "single_multi": {"collective": collective, "match": match, **settings},
            "mixture": {"proposers": ["ada", "bob"], "aggregator": "cora"},
            **dict(more),
        }
    )


def made(*instructions, settings=None, asked=None):
    settings = settings or config()
    return METHOD.run(start(settings, NAMES, instructions), asked or Asked(SCRIPT), settings)


def test_golden_transcript():
    asked = Asked(SCRIPT)
    result = made(FREE, settings=config(match="none"), asked=asked)
    golden("single_multi", told(asked, result))


@pytest.mark.parametrize(
    ("collective", "phases"),
    [
        ("debate", ["debate 1", "debate 2"]),
        ("mixture", ["propose 1", "aggregate"]),
        ("council", ["answer", "vote"]),
        ("best_of_n", ["answer", "rank"]),
    ],
)
def test_every_collective_answers_and_all_learn_it(collective, phases):
    more = {"best_of_n": {"member": "dan", "samples": 2, "judge": "ada"}}
    settings = config(collective, more=more)
    asked = Asked(SCRIPT)
    result = made(SUM, settings=settings, asked=asked)
    [row] = result.demonstrations
    assert not [phase for phase in asked.phases if phase.startswith("evaluate")]
    assert asked.phases[: len(phases) - 1] == phases[:-1]
    assert (row.builder, row.prompt, row.domain, row.history) == (
        "collective", SUM.text, "sums", (),
    )  # fmt: skip
    assert row.response_id in {request.id for request in asked.requests}
    expected = {
        "debate": ("bob", "It is 4."),
        "mixture": ("cora", "Together: 4."),
        "council": ("ada", "5"),  # nobody could vote: what three of the four wrote
        "best_of_n": ("dan", "5"),
    }
    assert (row.writer, row.response) == expected[collective]
    assert row.drop == ""
    assert result.metrics[f"written.{row.writer}"] == 1
    for name in NAMES:
        assert METHOD.lesson(settings, 1, name) == "demonstrations:collective"


def test_the_same_call_again_asks_the_same():
    first, second = Asked(SCRIPT), Asked(SCRIPT)
    assert made(SUM, FREE, asked=first) == made(SUM, FREE, asked=second)
    assert [r.id for r in first.requests] == [r.id for r in second.requests]


def test_iterations_ask_anew():
    settings, first, second = config(), Asked(SCRIPT), Asked(SCRIPT)
    METHOD.run(start(settings, NAMES, [SUM]), first, settings)
    METHOD.run(start(settings, NAMES, [SUM], number=2), second, settings)
    assert not {r.id for r in first.requests} & {r.id for r in second.requests}


def test_reasoning_is_not_learned():
    [row] = made(SUM, settings=config("mixture")).demonstrations
    assert row.response == "Together: 4."


def test_free_texts_are_chosen_by_the_council_and_what_cannot_be_read_is_counted():
    result = made(FREE, settings=config(match="none"))
    [row] = result.demonstrations
    assert (row.writer, row.response) == ("ada", "Seven.")
    counts = result.metrics
    assert (
        counts["num_judgments"]
        == counts["collective.votes"]
        + counts["num_unreadable"]
        + (counts["collective.inconsistent"])
    )
    assert counts["num_unreadable"] == counts["collective.unreadable"]


def test_what_was_not_reached_is_dropped_with_its_reason():
    breaks = Instruction("breaks", "It breaks.")
    result = made(SUM, breaks, Instruction("mute", "A mute one."))
    drops = {row.instruction: row.drop for row in result.demonstrations}
    assert drops == {"sum": "", "breaks": "failed", "mute": "failed"}
    assert result.metrics["num_demonstrations.collective"] == 1
    assert result.metrics["num_dropped.collective.failed"] == 2
    with pytest.raises(JudgmentError, match=r"'collective' made no demonstration .*1 failed"):
        made(breaks)


def test_truncated_answers_are_dropped_or_kept_without_an_end():
    long = Instruction("long", "Something long.")
    settings = config("mixture", more={"mixture": {"aggregator": "ada", "layers": 1}})
    script = {"sampling": [{"when": ".", "reply": "Four and", "finish": "length"}]}
    with pytest.raises(JudgmentError, match=r"set single_multi\.truncated: allow"):
        made(long, settings=settings, asked=Asked(script))
    again = settings.model_copy(
        update={"single_multi": settings.single_multi.model_copy(update={"truncated": "allow"})}
    )
    [row] = made(long, settings=again, asked=Asked(script)).demonstrations
    assert (row.drop, row.truncated) == ("", True)


def test_who_is_best_must_be_named():
    changes = {"single_multi.collective": "best_of_n"}
    with pytest.raises(ConfigError, match=r"best_of_n\.member: names nobody; .* while members"):
        load(SMOKE / "single_multi.yaml", changes)
    named = {**changes, "best_of_n.member": "bob"}
    assert load(SMOKE / "single_multi.yaml", named).best_of_n.member == "bob"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"single_multi.collective": "mixture"}, r"mixture\.aggregator: names nobody"),
        ({"debate.debaters": ["ada"]}, "a debate needs two debaters"),
        ({"debate.summariser": "zoe"}, "there is no member 'zoe'"),
        (
            {"single_multi.collective": "council", "council.voters": ["zoe"]},
            "there is no member 'zoe'",
        ),
        (
            {
                "single_multi.collective": "best_of_n",
                "best_of_n.member": "ada",
                "best_of_n.judge": "ada",
            },
            "nobody judges an answer of their own",
        ),
    ],
)
def test_a_collective_that_cannot_answer_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        load(SMOKE / "single_multi.yaml", changes)


def test_the_collective_of_an_iteration_is_of_the_members_as_they_then_are():
    settings, asked = config(), Asked(SCRIPT)
    members = tuple(Member(n, "script:s", engine="scripted", version=3) for n in NAMES)
    METHOD.run(start(settings, NAMES, [SUM], members=members), asked, settings)
    assert {request.member.version for request in asked.requests} == {3}


def test_the_smoke_configuration_runs(tmp_path):
    folder = align(load(SMOKE / "single_multi.yaml"), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("finished")
        assert len(ledger.demonstrations(1, "collective")) == 6
        phases = {row["phase"] for row in ledger.query("SELECT DISTINCT phase FROM responses")}
    assert phases == {"debate 1", "debate 2"}


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    """Two members with other system prompts debate, and learn the same rows."""
    source = tmp_path / "sums.jsonl"
    source.write_text('{"id": "b", "instruction": "Say only the number 7."}\n')
    settings = {
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": "ada"}, {"name": "bob", "system": "You are brief."}],
        },
        "method": "single_multi",
        "iterations": 1,
        "instructions": {"source": str(source)},
        "single_multi": {"match": "exact", "truncated": "allow"},
        "debate": {"sample": {"max_new_tokens": 8}},
        "sft": {"lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.count("responses", "status = 'done'") == 2 * 2
        rows = [row for row in ledger.demonstrations(1, "collective") if not row.drop]
        trained = ledger.query("SELECT member, num_examples FROM trainings WHERE iteration = 1")
        versions = {member.name: member.version for member in ledger.members(1)}
    assert rows
    assert {row["member"]: row["num_examples"] for row in trained} == dict.fromkeys(
        ("ada", "bob"), len(rows)
    )
    assert versions == {"ada": 1, "bob": 1}
