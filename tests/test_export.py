"""Exports load where they are meant to, hold the ledger's rows, and say why they are empty."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from phalanx.errors import ConfigError, LedgerError, MissingPackage
from phalanx.export import export, rows_of
from phalanx.ledger import Ledger, run_ledger_path
from tests import moaa_run
from tests.report import fixture_eval, fixture_run
from tests.tiny import make_tiny

KINDS = ("preferences", "judgments", "responses", "reputations")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    settings = fixture_run.config(duels=24, evaluate={})
    folder = fixture_run.build(tmp_path_factory.mktemp("export") / "run", settings)
    with Ledger(run_ledger_path(folder)) as opened:
        yield opened


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_preferences_are_the_kept_pairs(ledger, tmp_path):
    count = export(ledger, "preferences", out=tmp_path / "p.jsonl")
    rows = lines(tmp_path / "p.jsonl")
    kept = ledger.query("SELECT * FROM pairs WHERE dropped = '' ORDER BY iteration, id")
    assert 0 < count == len(rows) == len(kept) < ledger.count("pairs")
    assert list(rows[0]) == [
        "prompt", "chosen", "rejected", "margin", "weight", "chosen_member", "rejected_member",
        "iteration", "instruction_id", "domain", "chosen_truncated", "rejected_truncated",
    ]  # fmt: skip
    texts = {row["id"]: row["text"] for row in ledger.query("SELECT id, text FROM instructions")}
    for row, pair in zip(rows, kept, strict=True):
        assert row["prompt"] == texts[pair["instruction"]]
        assert (row["chosen"], row["rejected"]) == (pair["chosen"], pair["rejected"])
        assert (row["margin"], row["iteration"]) == (pair["margin"], pair["iteration"])
        assert row["chosen_member"] != row["rejected_member"]
        assert (row["chosen_truncated"], row["rejected_truncated"]) == (
            bool(pair["chosen_truncated"]), bool(pair["rejected_truncated"]),
        )  # fmt: skip
    assert any(fixture_run.HOSTILE in row["rejected"] for row in rows), "texts are kept as they are"


@pytest.mark.parametrize("what", KINDS)
def test_every_format_holds_the_same_rows(ledger, tmp_path, what):
    import datasets
    import pyarrow.parquet

    expected = list(rows_of(ledger, what))
    for format in ("jsonl", "parquet", "datasets"):
        assert export(ledger, what, out=tmp_path / format, format=format) == len(expected)
    assert lines(tmp_path / "jsonl") == expected
    assert pyarrow.parquet.read_table(tmp_path / "parquet").to_pylist() == expected
    assert datasets.load_from_disk(str(tmp_path / "datasets")).to_list() == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["datasets", "jsonl", "parquet"]


def test_one_iteration_alone(ledger):
    for what in KINDS:
        parts = [list(rows_of(ledger, what, iteration=number)) for number in (1, 2)]
        assert all(parts)
        assert sum(map(len, parts)) == len(list(rows_of(ledger, what)))
        assert {row["iteration"] for row in parts[1]} == {2}


def test_evaluations_and_games_are_their_rows(tmp_path):
    game = {
        "iteration": 0, "task": "arena", "member": "ada@2", "rival": "ada@0", "item": "i",
        "judge": "bob", "game": "first", "domain": "", "label": "", "value": None,
        "reason": "no label", "length": 12, "rival_length": 30, "response": "r", "request": "q",
    }  # fmt: skip
    with Ledger(run_ledger_path(fixture_eval.build(tmp_path / "eval")), writable=True) as ledger:
        with pytest.raises(LedgerError, match="no answers were compared or rated"):
            export(ledger, "games", out=tmp_path / "x.jsonl")
        ledger.record_games([game])
        expected = {what: list(rows_of(ledger, what)) for what in ("evaluations", "games")}
        for what, rows in expected.items():
            assert export(ledger, what, out=tmp_path / f"{what}.parquet", format="parquet")
            assert export(ledger, what, out=tmp_path / f"{what}.jsonl") == len(rows)
            assert lines(tmp_path / f"{what}.jsonl") == rows
        stored = ledger.query("SELECT sum(score) AS score, sum(correct) AS n FROM evaluations")[0]
    rows = expected["evaluations"]
    assert sum(row["score"] for row in rows) == pytest.approx(stored["score"])
    assert sum(row["correct"] for row in rows) == stored["n"]
    assert any(row["score"] not in (0, 1) for row in rows)
    assert {type(row["correct"]) for row in rows} == {bool}
    assert all(row["question"].endswith(f" {row['item']}?") for row in rows)
    assert {row["gold"] for row in rows} == {"4"}
    assert {row["text"] for row in rows if row["reason"] == "timeout"} == {None}
    assert {row["text"] for row in rows if row["task"] == "skills" and row["readable"]} == {"four"}
    renamed = {"response": "response_id", "request": "request_id"}
    assert expected["games"] == [{renamed.get(key, key): value for key, value in game.items()}]
    settings = fixture_run.config(evaluate={})
    with (
        fixture_run.start(tmp_path / "run", settings) as ledger,
        pytest.raises(LedgerError, match=r"nothing has been measured; look at evaluate\.tasks"),
    ):
        export(ledger, "evaluations", out=tmp_path / "x.jsonl")


def test_judgments_and_responses_are_typed(ledger):
    judgments = list(rows_of(ledger, "judgments"))
    unreadable = [row for row in judgments if row["score_left"] is None]
    assert unreadable
    assert all(row["reason"] for row in unreadable)
    assert all(isinstance(row["flipped"], bool) for row in judgments)
    assert set(json.loads(judgments[0]["raw"])) == {"left", "right"}
    responses = list(rows_of(ledger, "responses"))
    assert {row["status"] for row in responses} == {"done", "failed"}
    failed = [row for row in responses if row["status"] == "failed"]
    assert all(row["text"] is None and row["error_kind"] for row in failed)
    assert responses[0]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("conversational", [False, True])
@pytest.mark.parametrize("format", ["jsonl", "parquet", "datasets"])
def test_preferences_load_into_trl(ledger, tmp_path, conversational, format):
    """The published road to another trainer: load, recognise, tokenise."""
    import datasets
    from trl.data_utils import is_conversational

    out = tmp_path / "prefs"
    count = export(ledger, "preferences", out=out, format=format, conversational=conversational)
    if format == "datasets":
        loaded = datasets.load_from_disk(str(out))
    else:
        builder = {"jsonl": "json", "parquet": "parquet"}[format]
        loaded = datasets.load_dataset(
            builder, data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
        )
    assert len(loaded) == count
    assert is_conversational(loaded[0]) == conversational


@pytest.mark.slow
@pytest.mark.parametrize("conversational", [False, True])
def test_trl_tokenises_both_forms(ledger, tmp_path, conversational):
    """The real DPOTrainer, on a tiny model: prompt and responses arrive whole."""
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    folder = make_tiny(tmp_path / "model", words=" ".join(fixture_run.WRONG))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    out = tmp_path / "prefs.jsonl"
    export(ledger, "preferences", out=out, conversational=conversational, iteration=1)
    loaded = datasets.load_dataset(
        "json", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
    )
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=DPOConfig(output_dir=str(tmp_path / "out"), report_to=[], use_cpu=True),
        train_dataset=loaded,
        processing_class=tokenizer,
    )
    row = trainer.train_dataset[0]
    source = lines(out)[0]

    def content(value: str | list[dict]) -> str:
        return value if isinstance(value, str) else value[0]["content"]

    assert content(source["prompt"]) in tokenizer.decode(row["prompt_ids"])
    assert content(source["chosen"]) in tokenizer.decode(row["chosen_ids"])
    assert content(source["rejected"]) in tokenizer.decode(row["rejected_ids"])


def test_unknown_kinds_and_formats_name_the_closest(ledger, tmp_path):
    with pytest.raises(ConfigError, match=r"prompts, judgments.*did you mean 'preferences'"):
        export(ledger, "preference", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="did you mean 'preferences'"):
        export(ledger, "pairs", out=tmp_path / "x")
    with pytest.raises(ConfigError, match=r"known: jsonl, parquet, .*verl; did you mean 'jso"):
        export(ledger, "judgments", out=tmp_path / "x", format="json")
    with pytest.raises(ConfigError, match="known: ") as caught:
        export(ledger, "zzz", out=tmp_path / "x")
    assert "did you mean" not in str(caught.value)
    with pytest.raises(ConfigError, match="weights, adapter; did you mean 'weights'"):
        export(ledger, "weigths", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="`phalanx export RUN adapter` writes it"):
        export(ledger, "adapter", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="prompts can be conversational"):
        export(ledger, "judgments", out=tmp_path / "x", conversational=True)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_export_says_why_and_writes_nothing(ledger, tmp_path):
    settings = fixture_run.config(duels=12, evaluate={}, pairs={"margin": 99.0})
    with fixture_run.start(tmp_path / "run", settings) as started:
        for what in ("preferences", "judgments", "reputations"):
            with pytest.raises(LedgerError, match="no iteration has finished its duels yet"):
                export(started, what, out=tmp_path / "x.jsonl")
        with pytest.raises(LedgerError, match="nobody has answered anything yet"):
            export(started, "responses", out=tmp_path / "x.jsonl")
        fixture_run.play(started, settings, 1, learn=False)
        with pytest.raises(LedgerError, match=r"every pair was dropped \(\d+ margin"):
            export(started, "preferences", out=tmp_path / "x.jsonl")
        with pytest.raises(LedgerError, match="iteration 2 has not finished its duels"):
            export(started, "preferences", out=tmp_path / "x.jsonl", iteration=2)
    with pytest.raises(LedgerError, match="iteration 7 was asked for, and this run has"):
        export(ledger, "preferences", out=tmp_path / "x.jsonl", iteration=7)
    with pytest.raises(LedgerError, match="iteration 0 is the pool before alignment"):
        export(ledger, "preferences", out=tmp_path / "x.jsonl", iteration=0)
    assert not (tmp_path / "x.jsonl").exists()


def test_what_was_there_is_replaced_whole_or_kept(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = Path("p.jsonl")
    out.write_text("old", encoding="utf-8")

    def dies(path: Path, rows, columns) -> int:
        path.write_text("half", encoding="utf-8")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setitem(export.__globals__["WRITERS"], "jsonl", dies)
        with pytest.raises(OSError, match="disk full"):
            export(ledger, "preferences", out=out)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("p.jsonl", "old")]
    assert export(ledger, "preferences", out=out) == len(lines(out))
    folder = Path("set")
    for iteration in (1, 2):
        export(ledger, "preferences", out=folder, format="datasets", iteration=iteration)
    import datasets

    assert set(datasets.load_from_disk(str(folder))["iteration"]) == {2}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.jsonl", "set"]


def test_places_that_would_lose_something_are_refused(ledger, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(ConfigError, match="other than a data set"):
        export(ledger, "preferences", out=tmp_path / "mine", format="datasets")
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        export(ledger, "preferences", out=tmp_path / "mine")
    with pytest.raises(ConfigError, match="is a file"):
        export(ledger, "preferences", out=tmp_path / "mine" / "thesis.tex", format="datasets")
    assert (tmp_path / "mine" / "thesis.tex").read_text(encoding="utf-8") == "years of work"
    settings = fixture_run.config(duels=24, evaluate={})
    (tmp_path / "prompts.jsonl").write_text('{"instruction": "x"}\n', encoding="utf-8")
    settings = settings.model_copy(update={"instructions": settings.instructions.model_copy(
        update={"source": str(tmp_path / "prompts.jsonl")})})  # fmt: skip
    with fixture_run.start(tmp_path / "run", settings) as started:
        fixture_run.play(started, settings, 1, learn=False)
        (tmp_path / "link").symlink_to(tmp_path / "prompts.jsonl")
        for way in ("prompts.jsonl", "run/../prompts.jsonl", "link"):
            with pytest.raises(ConfigError, match=r"the run reads .*, so nothing is written there"):
                export(started, "prompts", out=tmp_path / way)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a file"):
        export(ledger, "preferences", out=tmp_path / "pipe", format="datasets")


@pytest.mark.parametrize(("package", "format"), [("pyarrow", "parquet"), ("datasets", "datasets")])
def test_a_missing_package_has_the_command(ledger, tmp_path, monkeypatch, package, format):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=r"pip install 'phalanx\[data\]'"):
        export(ledger, "preferences", out=tmp_path / "x", format=format)
    assert list(tmp_path.iterdir()) == []


# Demonstrations.


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    with moaa_run.record(tmp_path_factory.mktemp("taught") / "run") as ledger:
        yield ledger


def test_demonstrations_are_prompt_completion_rows_of_every_builder(taught, tmp_path):
    out = tmp_path / "d.jsonl"
    kept = [row for row in moaa_run.demonstrations() if not row.drop]
    assert export(taught, "demonstrations", out=out, conversational=True) == len(kept) == 12
    rows = lines(out)
    assert list(rows[0]) == [
        "prompt", "completion", "builder", "writer", "domain", "turn", "truncated", "iteration",
        "instruction_id",
    ]  # fmt: skip
    assert rows[0] == {
        "prompt": [{"role": "user", "content": "what is cat"}],
        "completion": [{"role": "assistant", "content": "cat town"}],
        "builder": "mixture",
        "writer": "mixture",
        "domain": "words",
        "turn": 0,
        "truncated": True,
        "iteration": 1,
        "instruction_id": "i1",
    }
    (talk,) = [row for row in rows if row["turn"] == 1]
    assert [turn["role"] for turn in talk["prompt"]] == ["user", "assistant", "user"]
    assert [turn["content"] for turn in talk["prompt"]] == [
        "what is lima",
        "the capital",
        "of what",
    ]
    assert talk["completion"] == [{"role": "assistant", "content": "of a small town"}]
    by_builder = {
        name: list(rows_of(taught, "demonstrations", conversational=True, builder=name))
        for name in ("mixture", "random")
    }
    assert [*by_builder["mixture"], *by_builder["random"]] == rows
    assert {row["writer"] for row in by_builder["random"]} == {"ada"}


def test_demonstrations_of_one_turn_can_be_text(taught, tmp_path):
    with pytest.raises(ConfigError, match=r"1 of 12 demonstrations .* --conversational"):
        export(taught, "demonstrations", out=tmp_path / "d.jsonl")
    assert list(tmp_path.iterdir()) == []
    rows = list(rows_of(taught, "demonstrations", builder="random"))
    assert [row["prompt"] for row in rows] == [row.text for row in moaa_run.INSTRUCTIONS]
    assert all(isinstance(row["completion"], str) for row in rows)
    assert "history" not in rows[0]


@pytest.mark.parametrize("format", ["jsonl", "parquet", "datasets"])
def test_demonstrations_load_into_trl(taught, tmp_path, format):
    import datasets
    from trl.data_utils import is_conversational

    out = tmp_path / "shown"
    expected = list(rows_of(taught, "demonstrations", conversational=True))
    count = export(taught, "demonstrations", out=out, format=format, conversational=True)
    if format == "datasets":
        loaded = datasets.load_from_disk(str(out))
    else:
        builder = {"jsonl": "json", "parquet": "parquet"}[format]
        loaded = datasets.load_dataset(
            builder, data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
        )
    assert loaded.to_list() == expected
    assert count == len(expected)
    assert is_conversational(loaded[0])


def test_no_demonstrations_says_why(taught, ledger, tmp_path):
    out = tmp_path / "x.jsonl"
    with pytest.raises(ConfigError, match=r"unknown builder 'mixtur'; .*did you mean 'mixture'"):
        export(taught, "demonstrations", out=out, builder="mixtur")
    with pytest.raises(ConfigError, match="only demonstrations have a builder"):
        export(taught, "preferences", out=out, builder="mixture")
    with pytest.raises(LedgerError, match=r"no demonstration was made.*iterations that did: 1"):
        export(taught, "demonstrations", out=out, iteration=2)
    with pytest.raises(LedgerError, match=r"no pair was made there.*iterations that did: 2"):
        export(taught, "preferences", out=out, iteration=1)
    with pytest.raises(LedgerError, match=r"no demonstration was made there \(method sparta\)$"):
        export(ledger, "demonstrations", out=out)
    with pytest.raises(LedgerError, match="iteration 3 has not finished its answers yet"):
        export(taught, "demonstrations", out=out, iteration=3)
    assert not out.exists()
