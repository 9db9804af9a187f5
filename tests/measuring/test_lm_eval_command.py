"""`phalanx eval --task lm-eval:FILE`, and a run's instructions that an evaluation asks about."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.measuring.wanted import wanted
from phalanx.measuring.work import measure_subjects
from phalanx.report.facts import gather
from tests.measuring.test_lm_eval import CHOICE, SHOWN, WRITTEN, task_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    align(load(ROOT / "configs/smoke/rubric.yaml", ["iterations=1"]), folder)
    return folder


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs lm-eval")
def test_a_task_of_lm_eval_stands_beside_others(run, tmp_path, capfd):
    path = task_file(tmp_path, WRITTEN)
    word, name = f"lm-eval:{path}", "lm-eval:task.yaml"
    wish = wanted(str(run), tasks=[word], members=["ada", "bob", "majority"], limit=3)
    assert any(note.startswith("majority is not measured on lm-eval:") for note in wish.notes)
    done = measure_subjects(wish, tmp_path / "e")
    assert {(one.subject, one.task): one.items for one in done.sums} == {
        ("ada", name): 3, ("bob", name): 3
    }  # fmt: skip
    said = capfd.readouterr()
    assert "%|" not in said.err  # bars of lm-eval
    assert "Generating" not in said.err  # of datasets
    changed = [{**row, "answer": "#### 9"} for row in SHOWN]
    again = wanted(str(run), tasks=[f"lm-eval:{task_file(tmp_path, WRITTEN, rows=changed)}"],
                   members=["ada"], limit=3)  # fmt: skip
    with pytest.raises(LedgerError, match=r"rows of task lm-eval:task\.yaml"):
        measure_subjects(again, tmp_path / "e")
    with pytest.raises(ConfigError, match="a vote writes no answer"):
        wanted(str(run), tasks=[word], members=["majority"])
    with pytest.raises(ConfigError, match="mixture cannot say"):
        wanted(
            str(run),
            ['mixture.proposers=["ada", "bob"]', "mixture.aggregator=cora"],
            tasks=[f"lm-eval:{task_file(tmp_path, CHOICE, 'c')}"],
            members=["mixture"],
        )


def test_what_a_run_learned_from_is_named_when_it_is_asked(run, tmp_path):
    with Ledger(run_ledger_path(run)) as ledger:
        texts = [row["text"] for row in ledger.query("SELECT text FROM instructions LIMIT 2")]
    rows = [*texts, "Which of these towns has the most bridges over water?"]
    source = tmp_path / "gsm8k.jsonl"
    source.write_text("".join(json.dumps({"id": str(n), "question": text.upper(), "answer": "4"})
                              + "\n" for n, text in enumerate(rows)))  # fmt: skip
    wish = wanted(str(run), tasks=[f"gsm8k={source}"], members=["ada"])
    assert {one.item for one in wish.learned[0].found} == {"0", "1"}
    assert any("2 of " in note and "overlap evaluation items" in note for note in wish.notes)
    measure_subjects(wish, tmp_path / "e")
    with Ledger(run_ledger_path(tmp_path / "e")) as ledger:
        (found,) = gather(ledger).overlaps
    assert {one.item for one in found.found} == {"0", "1"}
