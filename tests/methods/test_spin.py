"""SPIN: references over a learner's own responses, and over those of the iteration before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from phalanx.config import Config, load
from phalanx.config.rules import faults, notes
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.methods.spin import draw, run
from phalanx.sources import instructions_of
from phalanx.types import Instruction
from tests.methods.rivals import SMOKE, Asked, golden, start, told

REPLIES = ["Seven.", "Nine.", "Eleven.", "<think>Let me see.</think>Seven."]
SCRIPT = {"sampling": [{"when": ".", "reply": REPLIES}]}
ITEMS = [Instruction(f"i{n}", f"Name a prime, not {n}.", answer="Seven.") for n in range(6)]


def config(**changes) -> Config:
    return Config.model_validate(
        {"method": "spin", "spin": {"instructions": 2, **changes.pop("spin", {})}, **changes}
    )


def ran(number=1, script=SCRIPT, names=("ada", "bob"), items=ITEMS, asked=None, **changes):
    settings = config(**changes)
    asked = asked or Asked(script)
    begin = start(settings, names, draw(settings, items, number), number)
    return asked, run(begin, asked, settings)


def test_golden_transcript():
    asked, result = ran(2)
    golden("spin", told(asked, result))


def test_the_reference_is_chosen_and_the_own_response_rejected():
    _, result = ran(script={"sampling": [{"when": ".", "reply": "Nine."}]})
    assert [(p.chosen, p.rejected, p.drop) for p in result.pairs] == [("Seven.", "Nine.", "")] * 4
    assert [(p.chosen_member, p.rejected_member) for p in result.pairs] == [
        ("", "ada"), ("", "ada"), ("", "bob"), ("", "bob"),
    ]  # fmt: skip
    assert METHODS["spin"].lesson(config(), 1, "ada") == "own pairs"
    assert {p.margin for p in result.pairs} == {1.0}


def test_a_response_that_equals_its_reference_teaches_nothing():
    """Reasoning before an answer is no part of it."""
    for reply in ("Seven.", " Seven. ", "<think>Hm.</think>\nSeven."):
        _, result = ran(script={"sampling": [{"when": ".", "reply": reply}]})
        assert {pair.drop for pair in result.pairs} == {"identical"}
        assert result.metrics["num_dropped.identical"] == 4


@pytest.mark.parametrize(
    ("rule", "drop"),
    [
        ({"reply": "  "}, "empty"),
        ({"reply": "Nine.", "finish": "length"}, ""),
        ({"fail": {"kind": "refused", "message": "no"}}, "unscored"),
    ],
)
def test_responses_that_are_none(rule, drop):
    rules = [{"when": "not 0", **rule}, {"when": ".", "reply": "Nine."}]
    _, result = ran(script={"sampling": rules}, names=["ada"], spin={"instructions": 6})
    by_item = {pair.instruction.id: pair for pair in result.pairs}
    assert by_item["i0"].drop == drop
    assert {pair.drop for key, pair in by_item.items() if key != "i0"} == {""}


def test_truncated_responses_are_rejected_or_dropped_as_pairs_say():
    script = {"sampling": [{"when": ".", "reply": "Nine", "finish": "length"}]}
    _, result = ran(script=script)
    assert all(pair.rejected_truncated and not pair.chosen_truncated for pair in result.pairs)
    _, result = ran(script=script, pairs={"truncated": "drop"})
    assert {pair.drop for pair in result.pairs} == {"truncated"}


def test_history_is_made_of_the_same_requests_again():
    first, one = ran(1)
    second, two = ran(2)
    before = {request.id for request in first.requests}
    assert [r.id for r in second.requests if r.id in before] == [r.id for r in first.requests]
    assert two.metrics["num_earlier"] == len(first.requests) == 4
    texts = [(p.instruction.id, p.rejected_member, p.rejected) for p in one.pairs]
    again = [(p.instruction.id, p.rejected_member, p.rejected) for p in two.pairs]
    assert set(texts) <= set(again)
    assert len({pair.id for pair in (*one.pairs, *two.pairs)}) == 4 + 8
    _, without = ran(2, spin={"history": False})
    assert len(without.pairs) == 4


def test_earlier_responses_are_those_of_the_member_as_it_was():
    settings, asked = config(), Asked(SCRIPT)
    begin = start(settings, ["ada"], draw(settings, ITEMS, 3), 3)
    old = begin.members[0]
    versions = tuple((replace(old, version=number),) for number in range(3))
    run(replace(begin, members=versions[2], earlier=versions), asked, settings)
    assert [request.member.version for request in asked.requests] == [2, 2, 1, 1]


def test_the_same_call_again_gives_the_same_rows():
    assert ran(2)[1] == ran(2)[1]


def test_fewer_instructions_than_wanted_are_taken_once_each():
    settings = config(spin={"instructions": 100})
    assert sorted(one.id for one in draw(settings, ITEMS, 1)) == [one.id for one in ITEMS]
    assert len(draw(settings, ITEMS, 2)) == 12
    fresh = draw(config(), ITEMS, 1), draw(config(), ITEMS, 2)
    assert not {one.id for one in fresh[0]} & {one.id for one in fresh[1][:2]}
    assert fresh[1][2:] == fresh[0]


def test_instructions_without_answers_are_refused():
    items = [replace(one, answer=None) if one.id == "i1" else one for one in ITEMS]
    with pytest.raises(ConfigError, match=r"1 of 6 instructions have no answer.*i1"):
        ran(items=items, spin={"instructions": 6})


def test_they_are_refused_before_anything_loads(tmp_path):
    source = tmp_path / "items.jsonl"
    rows = [{"instruction": "a", "answer": "x"}, {"instruction": "b"}, {"instruction": "c"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = [f"instructions.source={source}"]
    with pytest.raises(ConfigError) as error:
        align(load(SMOKE / "spin.yaml", changes), tmp_path / "run")
    assert "2 of 3 rows have no answer" in str(error.value)
    assert f"{source}:2: no answer" in str(error.value)
    skipping = load(SMOKE / "spin.yaml", [*changes, "instructions.bad_rows=skip"])
    assert len(instructions_of(skipping).instructions) == 1


def test_a_learner_whose_samples_failed_is_named():
    rules = [{"when": ".", "fail": {"kind": "engine", "message": "gone"}}]
    with pytest.raises(JudgmentError, match=r"ada has nothing to learn from: 2 of its 2 samples"):
        ran(script={"sampling": rules})


def test_rules():
    pool = {"members": [{"name": "ada", "engine": "scripted"}]}
    given = {"pool": pool, "instructions": {"source": "builtin:skills"}}
    assert faults(config(**given)) == []
    found = faults(config(**given, pairs={"margin": 2}))
    assert [text for text in found if text.startswith("pairs.margin: is 2")]
    told_ = notes(config(**given, pairs={"keep": 0.5}, train={"loss": "ipo"}))
    assert any(text.startswith("pairs.keep: goes by scores") for text in told_)
    assert any(text.startswith("train.loss: is ipo") for text in told_)


def test_the_embedded_skills_have_answers():
    read = instructions_of(load(SMOKE / "spin.yaml"))
    assert len(read.instructions) == 12
    assert all(one.answer for one in read.instructions)


def test_a_run_is_the_same_in_one_go_and_in_two(tmp_path):
    align(load(SMOKE / "spin.yaml"), tmp_path / "whole")
    align(load(SMOKE / "spin.yaml", ["iterations=1"]), tmp_path / "parts")
    align(load(SMOKE / "spin.yaml"), tmp_path / "parts")
    tables = []
    for name in ("whole", "parts"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            tables.append(ledger.query("SELECT * FROM pairs ORDER BY id"))
            assert ledger.count("responses") == 16  # nothing is asked twice
            # That a reference is right says nothing about whoever labelled.
            assert "label_accuracy" not in ledger.state(1)["metrics"]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 8 + 16


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    settings = {
        "method": "spin",
        "iterations": 1,
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]},
        "instructions": {"source": "builtin:skills", "limit": 3},
        "spin": {"sample": {"max_new_tokens": 8}},
        "train": {"learning_rate": 1e-4, "lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        kept = ledger.count("pairs", "dropped = '' AND rejected_member = 'ada'")
        (trained,) = ledger.query("SELECT * FROM trainings WHERE iteration = 1")
        assert trained["num_examples"] == kept > 0
        assert ledger.members(1)[0].version == 1
