"""Multi-agent fine-tuning on the scripted engine: who debates, and what each learns of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.methods.multiagent import mixed
from phalanx.types import Instruction
from tests.methods.rivals import SMOKE, Asked, golden, start, told

METHOD = METHODS["multiagent"]
NAMES = ("ada", "bob", "cora", "dan")
SUM = Instruction("sum", "What is 2 + 2?", "sums")


def replies(first: dict[str, str], last: dict[str, str], *rules) -> dict:
    """A script by which each debater answers first so and then so."""
    said = [
        {"when": ".", "purpose": purpose, "member": name, "reply": text}
        for purpose, by_name in (("answer", first), ("debate", last))
        for name, text in by_name.items()
    ]
    return {"sampling": [*rules, *said]}


AT_FIRST = {"ada": "It is 4.", "bob": "5", "cora": "3", "dan": "4"}
AT_LAST = {"ada": "Still 4.", "bob": "4, I was wrong", "cora": "3", "dan": "So it is 4."}
SCRIPT = replies(AT_FIRST, AT_LAST)


def config(rounds=2, **more) -> Config:
    members = [{"name": name, "engine": "scripted"} for name in NAMES]
    return Config.model_validate(
        {
            "method": "multiagent",
            "pool": {"members": members},
            "debate": {"rounds": rounds},
            "multiagent": {"match": "number", **more},
        }
    )


def made(*instructions, settings=None, asked=None):
    settings = settings or config()
    return METHOD.run(start(settings, NAMES, instructions), asked or Asked(SCRIPT), settings)


def row_of(result, builder: str):
    [row] = [row for row in result.demonstrations if row.builder == builder]
    return row


def test_golden_transcript():
    asked = Asked(SCRIPT)
    golden("multiagent", told(asked, made(SUM, asked=asked)))


def test_generators_learn_first_answers_and_critics_revisions():
    asked = Asked(SCRIPT)
    result = made(SUM, asked=asked)
    assert asked.phases == ["debate 1", "debate 2"]
    ada, bob = row_of(result, "generator.ada"), row_of(result, "critic.bob")
    assert (ada.response, ada.prompt, ada.history, ada.drop) == ("It is 4.", SUM.text, (), "")
    assert (bob.response, bob.drop, bob.domain) == ("4, I was wrong", "", "sums")
    assert [turn.role for turn in bob.history] == ["user", "assistant"]
    assert bob.history[0].content == SUM.text
    assert bob.history[1].content == "5"
    assert "It is 4." in bob.prompt
    assert row_of(result, "generator.cora").drop == "minority"
    assert row_of(result, "critic.dan").drop == ""
    agreement = {name: result.metrics[f"agreement.{name}"] for name in NAMES}
    assert agreement == {"ada": 1.0, "bob": 0.0, "cora": 0.0, "dan": 1.0}
    assert METHOD.lesson(config(), 1, "ada") == "demonstrations:generator.ada"
    assert METHOD.lesson(config(), 1, "bob") == "demonstrations:critic.bob"


def test_a_critic_learns_from_the_very_conversation_that_it_was_asked():
    """Its own system prompt is left out: training puts it in front again."""
    settings, asked = config(), Asked(SCRIPT)
    iteration = start(settings, NAMES, [SUM])
    members = tuple(replace(member, system="Be brief.") for member in iteration.members)
    result = METHOD.run(replace(iteration, members=members), asked, settings)
    row = row_of(result, "critic.bob")
    [request] = [r for r in asked.requests if r.id == row.response_id]
    shown = [("system", "Be brief."), *((m.role, m.content) for m in row.history)]
    assert [(m.role, m.content) for m in request.messages] == [*shown, ("user", row.prompt)]


def test_the_same_call_again_asks_the_same():
    first, second = Asked(SCRIPT), Asked(SCRIPT)
    assert made(SUM, asked=first) == made(SUM, asked=second)
    assert [r.id for r in first.requests] == [r.id for r in second.requests]


def test_rows_of_two_iterations_are_not_the_same():
    settings = config()
    first, second = (
        METHOD.run(start(settings, NAMES, [SUM], number), Asked(SCRIPT), settings)
        for number in (1, 2)
    )
    assert not {row.id for row in first.demonstrations} & {row.id for row in second.demonstrations}


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"ada": "1", "bob": "2", "cora": "3", "dan": "4"}, "no_majority"),
        ({"ada": "1", "bob": "2", "cora": "1", "dan": "2"}, "tie"),
        (dict.fromkeys(NAMES, "Who knows?"), "no_answer"),
    ],
)
def test_without_a_majority_nobody_learns(last, reason):
    result = made(SUM, asked=Asked(replies(AT_FIRST, last)))
    assert {row.drop for row in result.demonstrations} == {reason}
    assert result.metrics[f"labels.{reason}"] == 1
    assert result.metrics["labels.found"] == 0


def test_an_answer_that_cannot_be_read_is_neither_right_nor_wrong():
    first = {**AT_FIRST, "ada": "Who knows?"}
    assert row_of(made(SUM, asked=Asked(replies(first, AT_LAST))), "generator.ada").drop == (
        "unreadable"
    )


def test_a_truncated_answer_has_no_vote_unless_allowed():
    cut = {"when": ".", "purpose": "debate", "member": "bob", "reply": "4", "finish": "length"}
    last = {"ada": "4", "cora": "3", "dan": "3", "bob": "4"}
    script = replies(AT_FIRST, last, cut)
    strict = made(SUM, asked=Asked(script))
    assert row_of(strict, "critic.bob").drop == "truncated"
    assert row_of(strict, "generator.cora").drop == ""  # 3 it is: one voice for 4 is not counted
    allowed = made(SUM, asked=Asked(script), settings=config(truncated="allow"))
    assert {row.drop for row in allowed.demonstrations} == {"tie"}


def test_who_fails_first_is_out_and_who_stands_alone_revises_nothing():
    fail = {"kind": "engine", "message": "provoked"}
    out = {"when": ".", "purpose": "answer", "member": "bob", "fail": fail}
    easy = Instruction("easy", "1 + 1?")
    only = {"when": r"1 \+ 1", "purpose": "answer", "member": "bob", "reply": "4"}
    asked = Asked(replies(AT_FIRST, AT_LAST, only, out))
    result = made(SUM, easy, asked=asked)
    drops = {r.instruction: r.drop for r in result.demonstrations if r.builder == "critic.bob"}
    assert drops["sum"] == "failed"
    assert "bob" not in {
        r.member.name
        for r in asked.requests
        if r.purpose == "debate" and r.messages[0].content == SUM.text
    }
    alone = [{"when": ".", "member": name, "fail": fail} for name in NAMES if name != "bob"]
    solo = Asked(replies(AT_FIRST, AT_LAST, *alone))
    with pytest.raises(JudgmentError, match=r"'generator.ada' made no demonstration .*1 failed"):
        made(SUM, asked=solo)
    assert solo.phases == ["debate 1"]
    mute = [{"when": ".", "member": name, "reply": ""} for name in NAMES if name != "bob"]
    result = made(SUM, asked=Asked(replies(AT_FIRST, AT_LAST, *mute)))
    assert row_of(result, "generator.ada").drop == "empty"
    assert row_of(result, "critic.bob").drop == "unrevised"


def test_corrected_and_kept_answers_are_mixed_by_the_share():
    """bob corrects every second sum; of the sums that he knew all along as many are learned."""
    wrong = {"when": r"odd", "purpose": "answer", "member": "bob", "reply": "5"}
    right = {"when": r".", "purpose": "answer", "member": "bob", "reply": "4"}
    sums = [Instruction(f"i{n}", f"2 + 2, {'odd' if n < 2 else n}-{n}?") for n in range(8)]
    script = replies(AT_FIRST, AT_LAST, wrong, right)
    result = made(*sums, asked=Asked(script))
    rows = [row for row in result.demonstrations if row.builder == "critic.bob"]
    assert Counter(row.drop for row in rows) == {"": 4, "surplus": 4}
    assert {row.instruction for row in rows if not row.drop} >= {"i0", "i1"}
    assert result.metrics["corrected.bob"] == result.metrics["kept.bob"] == 2
    only = made(*sums, asked=Asked(script), settings=config(corrected=1.0))
    kept = {r.instruction for r in only.demonstrations if r.builder == "critic.bob" and not r.drop}
    assert kept == {"i0", "i1"}


def test_later_rounds_are_revisions_of_the_last_one():
    settings, asked = config(rounds=3), Asked(SCRIPT)
    row = row_of(made(SUM, asked=asked, settings=settings), "critic.bob")
    assert asked.phases == ["debate 1", "debate 2", "debate 3"]
    assert row.history[1].content == "4, I was wrong"


@pytest.mark.parametrize(
    ("first", "more", "drop"),
    [
        ("5", {}, ""),  # wrong, then right
        ("4", {}, ""),  # right throughout
        ("Who knows?", {}, "unsettled"),
        ("4", {"finish": "length"}, "unsettled"),
    ],
)
def test_a_first_answer_that_cannot_be_read_was_not_corrected(first, more, drop):
    rule = {"when": ".", "purpose": "answer", "member": "bob", "reply": first, **more}
    result = made(SUM, asked=Asked(replies(AT_FIRST, AT_LAST, rule)))
    assert row_of(result, "critic.bob").drop == drop
    assert result.metrics["corrected.bob"] + result.metrics["kept.bob"] == (not drop)


class InTurn(Asked):
    """bob answers so in each round."""

    says = ("4", "5", "4")

    def __call__(self, phase, requests):
        made = super().__call__(phase, requests)
        text = self.says[int(phase.split()[-1]) - 1]
        return [
            replace(reply, text=text) if request.member.name == "bob" else reply
            for request, reply in zip(requests, made, strict=True)
        ]


def test_who_gave_up_a_right_answer_on_the_way_was_not_right_throughout():
    result = made(SUM, asked=InTurn(SCRIPT), settings=config(rounds=3))
    assert row_of(result, "critic.bob").drop == "unsettled"
    steady = InTurn(SCRIPT)
    steady.says = ("4", "4", "4")
    result = made(SUM, asked=steady, settings=config(rounds=3))
    assert (row_of(result, "critic.bob").drop, result.metrics["kept.bob"]) == ("", 1)


class Shortened(Asked):
    """An engine that had to shorten the prompts of revisions."""

    def __call__(self, phase, requests):
        made = super().__call__(phase, requests)
        return [replace(r, num_shortened_tokens=7 * (phase == "debate 2")) for r in made]


def test_a_revision_of_a_shortened_prompt_is_not_learned():
    result = made(SUM, asked=Shortened(SCRIPT))
    assert row_of(result, "critic.bob").drop == "shortened"
    assert row_of(result, "generator.ada").drop == ""


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0, 1))
def test_the_mix_is_as_large_as_the_share_allows(corrected, kept, share):
    some, others = mixed(corrected, kept, share)
    assert 0 <= some <= corrected
    assert 0 <= others <= kept
    if share in (0, 1):
        assert (some, others) == ((corrected, 0) if share else (0, kept))
    elif corrected and kept:
        assert some == corrected or others == kept
        assert some + others >= 1
        # Within what rounding one of the two can do.
        assert abs(some * (1 - share) - others * share) <= max(share, 1 - share) / 2 + 1e-9
    else:
        assert (some, others) == (corrected, kept)


def test_settings_that_cannot_work_are_refused_together():
    changes = {
        "debate.rounds": 1,
        "debate.debaters": ["ada", "bobb"],
        "multiagent.critics": ["ada", "cora", "zoe"],
    }
    with pytest.raises(ConfigError) as error:
        load(SMOKE / "multiagent.yaml", changes)
    text = str(error.value)
    assert "there is no member 'bobb'; did you mean bob?" in text
    assert "zoe has not the role learn" in text
    assert "cora is no debater" in text
    assert "debate.rounds" in text


def test_one_debater_is_no_debate():
    with pytest.raises(ConfigError, match="a debate needs two debaters, and there is one"):
        load(SMOKE / "multiagent.yaml", {"debate.debaters": ["ada"]})


def test_who_does_not_debate_learns_nothing():
    settings = config()
    debate = settings.debate.model_copy(update={"debaters": ["ada", "bob"]})
    settings = settings.model_copy(update={"debate": debate})
    same = replies(dict.fromkeys(NAMES, "4"), dict.fromkeys(NAMES, "4"))
    result = made(SUM, asked=Asked(same), settings=settings)
    assert {row.builder for row in result.demonstrations} == {"generator.ada", "critic.bob"}
    assert METHOD.lesson(settings, 1, "cora") == ""


def test_the_smoke_configuration_runs(tmp_path):
    folder = align(load(SMOKE / "multiagent.yaml"), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("finished")
        builders = ledger.query("SELECT DISTINCT builder FROM demonstrations WHERE iteration = 2")
        kept = ledger.count("demonstrations", "dropped = ''")
    assert {row["builder"] for row in builders} == {
        "generator.ada", "critic.bob", "generator.cora", "critic.dan",
    }  # fmt: skip
    assert kept


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    """Twins of one base that answer greedily agree: the generator learns, the critic too."""
    source = tmp_path / "sums.jsonl"
    source.write_text('{"id": "b", "instruction": "Say only the number 7."}\n')
    settings = {
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}, {"name": "bob"}]},
        "method": "multiagent",
        "iterations": 1,
        "instructions": {"source": str(source)},
        "multiagent": {"truncated": "allow", "match": "number"},
        "debate": {"sample": {"max_new_tokens": 8, "temperature": 0.0}},
        "sft": {"lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.count("responses", "status = 'done'") == 2 * 2
        kept = {
            name: sum(not row.drop for row in ledger.demonstrations(1, builder))
            for name, builder in (("ada", "generator.ada"), ("bob", "critic.bob"))
        }
        trained = ledger.query("SELECT member, num_examples FROM trainings WHERE iteration = 1")
        versions = {member.name: member.version for member in ledger.members(1)}
    assert kept["ada"]
    assert {row["member"]: row["num_examples"] for row in trained} == kept
    assert versions == {name: int(count > 0) for name, count in kept.items()}
