"""Preference files as a method: a fresh part each iteration, learned as it stands."""

from __future__ import annotations

import json

import pytest

from phalanx.collective.preference import chosen_alone
from phalanx.config import Config, load
from phalanx.config.rules import faults, notes
from phalanx.errors import ConfigError, LedgerError
from phalanx.export import rows_of
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align, stored_pairs
from phalanx.methods import METHODS
from phalanx.methods.preference_file import METHOD, given, run
from phalanx.plan import check
from phalanx.report.facts import gather
from phalanx.report.terminal import summary
from phalanx.sources import instructions_of
from phalanx.training.examples import pair_rows
from phalanx.types import Member, Message
from tests.methods.rivals import SMOKE, Asked, golden, start, told
from tests.report.test_renderers import printed

LONG = [
    {"role": "user", "content": "Name a prime."},
    {"role": "assistant", "content": "Five."},
    {"role": "user", "content": "A larger one."},
]
ROWS = [
    {"prompt": LONG, "chosen": "Seven.", "rejected": "Six."},
    *({"prompt": f"What is {n} + 1?", "chosen": str(n + 1), "rejected": "No."} for n in range(5)),
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def config(source, **changes) -> Config:
    own = {"source": str(source), "pairs": 2, **changes.pop("own", {})}
    return Config.model_validate({"method": "preference_file", "preference_file": own, **changes})


def ran(source, number=1, **changes):
    settings, asked = config(source, **changes), Asked({})
    items = METHOD.draw(settings, instructions_of(settings).instructions, number)
    begin = start(settings, ["ada", "bob"], items, number, given=given(settings, number))
    return asked, run(begin, asked, settings)


def test_what_needs_margins_says_that_the_file_has_none(source):
    said = "\n".join(
        notes(config(source, pairs={"margin": 0.2, "weight_by_margin": True, "keep": 0.5}))
    )
    for key in ("margin", "weight_by_margin"):
        assert f"pairs.{key}: has no use with method: preference_file; leave it out" in said
    assert "pairs.keep: pairs of a file have no margins to choose by" in said
    assert "pairs." not in "\n".join(notes(config(source, pairs={"max_length_ratio": 2.0})))


def test_golden_transcript(source):
    golden("preference_file", told(*ran(source, own={"pairs": 6})))


def test_a_fresh_part_in_each_iteration(source):
    parts = [[pair.chosen for pair in ran(source, number)[1].pairs] for number in (1, 2, 3, 4)]
    assert len({text for part in parts[:3] for text in part}) == 6  # each once, then anew
    assert parts == [[p.chosen for p in ran(source, n)[1].pairs] for n in (1, 2, 3, 4)]
    assert len(ran(source, own={"pairs": 100})[1].pairs) == 6
    other = [pair.chosen for pair in ran(source, seed=8)[1].pairs]
    assert other != parts[0]


def test_nobody_is_asked_and_everybody_learns_from_all(source):
    asked, result = ran(source)
    assert asked.requests == []
    assert {(p.chosen_member, p.rejected_member) for p in result.pairs} == {("", "")}
    assert METHODS["preference_file"].lesson(config(source), 1, "ada") == "pairs"
    assert len({p.id for n in (1, 4) for p in ran(source, n, own={"pairs": 6})[1].pairs}) == 12


def test_pairs_are_dropped_by_length_alone(source):
    _, result = ran(source, own={"pairs": 6}, pairs={"max_length_ratio": 1.0})
    assert [p.drop for p in result.pairs if p.chosen == "Seven."] == ["length"]
    assert result.metrics == {"num_pairs": 5, "num_dropped.length": 1}


def test_a_file_that_changes_meanwhile_is_told(source):
    settings = config(source, own={"pairs": 6})
    items = instructions_of(settings).instructions
    source.write_text(json.dumps(ROWS[1]) + "\n")
    begin = start(settings, ["ada"], items, 1, given=given(settings, 1))
    with pytest.raises(ConfigError, match=r"5 of 6 pairs are no longer in .*pairs\.jsonl"):
        run(begin, Asked({}), settings)


def test_prompts_of_several_turns_are_learned_as_conversations(source, tmp_path):
    settings = config(
        source,
        iterations=1,
        own={"pairs": 6},
        pool={"members": [{"name": "ada", "engine": "scripted"}]},
    )
    folder = align(settings, tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        pairs = {pair.chosen: pair for pair in stored_pairs(ledger, 1)}
        with pytest.raises(ConfigError, match="1 of 6 preferences come after earlier turns"):
            rows_of(ledger, "preferences")
        exported = {
            row["chosen"][0]["content"]: row
            for row in rows_of(ledger, "preferences", conversational=True)
        }
    turns = tuple(Message(turn["role"], turn["content"]) for turn in LONG)
    assert pairs["Seven."].instruction.turns == turns
    assert pairs["5"].instruction.turns == ()
    assert exported["Seven."]["prompt"] == LONG
    assert exported["5"]["prompt"] == [{"role": "user", "content": "What is 4 + 1?"}]
    assert "later" not in exported["5"]
    alone = chosen_alone(pairs["Seven."])
    assert (alone.history, alone.prompt) == (turns[:2], "A larger one.")
    (row,), _ = pair_rows(Chat(), Member("ada", "b", system="Hm."), [pairs["Seven."]], 10_000)
    assert (
        bytes(row.prompt_ids).decode()
        == "system:Hm.|user:Name a prime.|assistant:Five.|user:A larger one."
    )


class Chat:
    """Bytes as tokens: shows which conversation reaches the loss."""

    def prompt_ids(self, messages):
        return list("|".join(f"{m.role}:{m.content}" for m in messages).encode())

    def completion_ids(self, text, ended):
        return list(text.encode())


def test_the_pairs_of_a_run_are_part_of_its_inputs(source, tmp_path):
    pool = {"members": [{"name": "ada", "engine": "scripted"}]}
    settings = config(source, iterations=1, pool=pool)
    align(settings, tmp_path / "run")
    rows = [{**row, "rejected": f"{row['rejected']} Never."} for row in ROWS]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(LedgerError, match="have changed since it was started"):
        align(settings, tmp_path / "run")


def test_bad_rows_are_refused_before_anything_loads(source, tmp_path):
    source.write_text('{"prompt": "a", "chosen": "b", "rejected": "b"}\n{"prompt": "a"}\n')
    pool = {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]}
    with pytest.raises(ConfigError) as error:
        align(config(source, pool=pool), tmp_path / "run")
    assert ":1: chosen and rejected are the same" in str(error.value)
    assert ":2: field 'chosen' missing" in str(error.value)
    assert not (tmp_path / "run" / "ledger.sqlite").exists()


def test_rules(source):
    pool = {"members": [{"name": "ada", "engine": "scripted"}]}
    assert faults(config(source, pool=pool)) == []
    (text,) = faults(config("", pool=pool))
    assert text.startswith("preference_file.source: names no pairs; expected a JSONL")
    (text,) = faults(config("builtin:skills", pool=pool))
    assert text.startswith("preference_file.source: 'builtin:skills' has no pairs")
    (text,) = faults(config("nowhere.jsonl", pool=pool))
    assert "there is no file 'nowhere.jsonl'" in text
    (text,) = faults(config(source, pool=pool, train={"loss": "sppo"}))
    assert text.startswith("train.loss: is sppo, which learns win probabilities")
    told_ = notes(config(source, pool=pool, instructions={"source": "builtin:skills"}))
    assert any(text.startswith("instructions.source: has no use with") for text in told_)


def test_check_says_what_is_in_the_file():
    code, text = check(str(SMOKE / "preference_file.yaml"), ["preference_file.pairs=5"])
    assert code == 0
    assert "Pairs, their prompts: 6, about" in text
    assert "pairs: 6, fewer than the 10 that preference_file.pairs asks for" in text


def test_a_run_is_the_same_in_one_go_and_in_two(tmp_path):
    align(load(SMOKE / "preference_file.yaml"), tmp_path / "whole")
    align(load(SMOKE / "preference_file.yaml", ["iterations=1"]), tmp_path / "parts")
    align(load(SMOKE / "preference_file.yaml"), tmp_path / "parts")
    rows = []
    for name in ("whole", "parts"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            rows.append(ledger.contents()["pairs"])
            shown = printed(summary(gather(ledger)))
        assert "nobody was asked anything" in shown
    assert rows[0] == rows[1]
    assert len(rows[0]) == 6


@pytest.mark.real
@pytest.mark.parametrize("loss", ["sigmoid", "simpo"])
def test_one_step_on_the_embedded_model(source, tmp_path, loss):
    settings = config(
        source,
        iterations=1,
        own={"pairs": 4},
        pool={"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]},
        train={"loss": loss, "beta": 2.0, "learning_rate": 1e-4, "lora": {"rank": 4}},
        resources={"threads": 1},
    )
    folder = align(settings, tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        (trained,) = ledger.query("SELECT * FROM trainings WHERE iteration = 1")
        assert trained["num_examples"] == 4
        assert ledger.members(1)[0].version == 1
