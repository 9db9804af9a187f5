"""The benchmark suite still runs: tiny sizes, a tiny model, every item in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

pytestmark = pytest.mark.slow


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )


def test_items_run_and_are_recorded(tmp_path):
    out = tmp_path / "latest.json"
    done = bench("--quick", "--out", str(out), "generation", "judging", "bookkeeping")
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(out.read_text(encoding="utf-8"))
    assert results["machine"]["quick"] is True
    assert results["machine"]["cores"] == os.cpu_count()
    by_item = {record["item"] for record in results["items"]}
    assert by_item == {"generation", "judging", "bookkeeping"}
    for record in results["items"]:
        assert (record.get("ratio") or record["value"]) > 0
        assert record["met"] in ((True, False) if record["target"] else (None,))
    for line in done.stdout.splitlines()[-len(results["items"]) :]:
        assert line.count("|") == 6


def test_a_failed_item_is_recorded_and_the_others_still_run(tmp_path):
    """A model that is not there: every item fails, with its error, and the exit code says so."""
    out = tmp_path / "latest.json"
    model = str(tmp_path / "missing")
    done = bench("--quick", "--model", model, "--out", str(out), "judging", "generation")
    assert done.returncode == 1
    records = json.loads(out.read_text(encoding="utf-8"))["items"]
    assert [record["item"] for record in records] == ["judging", "generation"]
    for record in records:
        assert record["met"] is False
        assert "missing" in record["error"]


def test_the_page_gets_the_table_between_its_marks(tmp_path):
    from bench.measuring import Item
    from bench.page import BEGIN, END, write_page

    records = [
        Item("one", 2.356, "x faster", at_least=2.0, note="a | b").record(),
        Item("two", 1.31, "x time", at_most=1.3).record(),
        Item("three", 12345.6, "tokens/s").record(),
        {"name": "four: failed", "error": "boom", "met": False, "note": "boom"},
    ]
    about = dict.fromkeys(("date", "cpu", "python", "torch", "transformers", "trl", "peft"), "x")
    about |= {"cores": 2, "memory_gib": 8, "model": "m", "load_before": 0.1}
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{BEGIN}\nold\n{END}\nrest\n", encoding="utf-8")
    write_page({"machine": about, "items": records}, page)
    text = page.read_text(encoding="utf-8")
    assert "| one | 2.36 x faster | >= 2 | yes | a / b |" in text
    assert "| two | 1.31 x time | <= 1.3 | no |  |" in text
    assert "| three | 12,346 tokens/s |  |  |  |" in text
    assert "| four: failed | failed |  | no | boom |" in text
    assert "old" not in text
    assert text.startswith("# Title\n")
    assert text.endswith("rest\n")
