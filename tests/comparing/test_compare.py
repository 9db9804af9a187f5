"""``phalanx compare`` on the files that ship: the smoke comparison whole, the other one planned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import phalanx
from phalanx.cli import app
from phalanx.collective.purposes import JUDGING, MEASURING
from phalanx.comparing.budget import planned
from phalanx.comparing.loading import read_comparison
from phalanx.comparing.work import reckoned
from phalanx.config import load
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger
from phalanx.methods import METHODS
from phalanx.plan import make_plan
from tests.comparing.files import ROOT

CONFIGS = ROOT / "configs" / "compare"
SMOKE = ROOT / "configs" / "smoke"
WRITING = {"answer", "sample", "propose", "aggregate", "rewrite", "debate", "summarise"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("smoke")
    done = CliRunner().invoke(
        app, ["compare", str(CONFIGS / "smoke.yaml"), "--out", str(out), "--quiet"]
    )
    assert done.exit_code == 0, done.output
    return out, done.output


@pytest.fixture(scope="module")
def ways():
    return read_comparison(CONFIGS / "smoke.yaml").ways


def test_every_method_of_the_smoke_comparison_is_in_the_table(smoke, ways):
    out, shown = smoke
    found = json.loads((out / "comparison.json").read_text("utf-8"))
    assert [row["name"] for row in found["rows"]] == [way.name for way in ways]
    assert all(len(row["seeds"]) == 2 for row in found["rows"])
    assert found["missing"] == []
    assert "Budget of each run: 72 responses." in shown
    assert str(out / "comparison.md") in shown.replace("\n", "")


def test_budgets_are_equal_by_the_ledgers_own_counts(smoke, ways):
    out, _ = smoke
    found = json.loads((out / "comparison.json").read_text("utf-8"))
    used = {row["name"]: row["used"]["responses"] for row in found["rows"]}
    assert used.pop("frozen") == 0
    assert set(used.values()) == {72}
    for way in ways:
        assert planned(way.config).responses == used.get(way.name, 0)


def test_a_request_is_asked_once_in_a_seed(smoke):
    out, _ = smoke
    for seed in (1, 2):
        sent = []
        for path in (out / f"seed-{seed}").glob("*/ledger.sqlite"):
            with Ledger(path) as ledger:
                sent += [
                    r["id"] for r in ledger.query("SELECT id FROM responses WHERE attempts > 0")
                ]
        assert len(sent) == len(set(sent))


def test_the_table_alone_has_whatever_has_begun(smoke, ways, tmp_path):
    """Whatever of it is asked for: a part of a comparison does not overwrite the whole."""
    out, _ = smoke
    whole = (out / "comparison.json").read_text("utf-8")
    made = phalanx.compare(CONFIGS / "smoke.yaml", out=out, only=["sppo"], seeds=[2], table=True)
    assert {row.name: row.seeds for row in made.findings.rows} == {way.name: (1, 2) for way in ways}
    assert made.findings.missing == ()
    made = phalanx.compare(CONFIGS / "smoke.yaml", out=out, only=["sppo"], seeds=[3], table=True)
    assert [(one.name, one.seed) for one in made.findings.missing] == [("frozen", 3), ("sppo", 3)]
    phalanx.compare(CONFIGS / "smoke.yaml", out=out, table=True)
    assert (out / "comparison.json").read_text("utf-8") == whole


def test_a_table_of_nothing_is_refused_and_makes_no_folder(tmp_path):
    with pytest.raises(LedgerError, match="no run of a comparison has begun there"):
        phalanx.compare(CONFIGS / "smoke.yaml", out=tmp_path / "typo", table=True)
    assert not (tmp_path / "typo").exists()


def test_a_table_of_runs_of_other_settings_is_refused(smoke):
    out, _ = smoke
    with pytest.raises(LedgerError, match=r"evaluate\.max_new_tokens was"):
        phalanx.compare(
            CONFIGS / "smoke.yaml", ["evaluate.max_new_tokens=3"], out=out, only=["sppo"],
            table=True,
        )  # fmt: skip


def test_the_plan_alone_says_what_would_be_run(tmp_path):
    words = ["compare", str(CONFIGS / "smoke.yaml"), "--out", str(tmp_path / "out"), "--plan"]
    done = CliRunner().invoke(app, [*words, "budget.tokens=1000"])
    assert done.exit_code == 0, done.output
    for line in (
        "Budget of each run: 72 responses.",
        "no-reputation (sparta): 3 members; match.duels = 36: 72 responses planned.",
        "budget.tokens is a limit for each run by itself: 14,000 for all of them.",
    ):
        assert line in done.output.splitlines()
    assert re.search(r"14 runs with about [\d,]+ requests: a rough estimate", done.output)
    assert not (tmp_path / "out").exists()


def test_the_requests_of_a_plan_are_those_of_the_runs(smoke):
    """Judgments of alike responses are not asked, so the plan has more."""
    out, _ = smoke
    (text,) = reckoned(read_comparison(CONFIGS / "smoke.yaml"))
    planned_requests = int(re.search(r"about ([\d,]+) requests", text)[1].replace(",", ""))
    asked = 0
    for path in out.glob("seed-*/*/ledger.sqlite"):
        with Ledger(path) as ledger:
            asked += ledger.count("responses")
    assert 0.5 * planned_requests < asked <= planned_requests


@pytest.mark.parametrize("verb", ["status", "report", "export"])
def test_a_comparison_is_no_run(smoke, verb):
    out, _ = smoke
    more = ["preferences", "--out", str(out / "x.jsonl")] if verb == "export" else []
    done = CliRunner().invoke(app, [verb, str(out), *more])
    assert f"no run in {out}: it is a comparison, whose runs are below it" in str(done.exception)
    assert f"such as {out / 'seed-1' / 'debate'}; its table: phalanx" in str(done.exception)


@pytest.mark.parametrize("verb", ["check", "run"])
def test_the_file_of_a_comparison_is_that_of_no_run(verb):
    done = CliRunner().invoke(app, [verb, str(CONFIGS / "smoke.yaml")])
    assert f"smoke.yaml: is a comparison; run it with: phalanx compare {CONFIGS}" in str(
        done.exception
    )


def test_a_failed_arm_is_exit_code_1(tmp_path):
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "sppo").write_text("in the way", encoding="utf-8")
    done = CliRunner().invoke(
        app,
        ["compare", str(CONFIGS / "smoke.yaml"), "--out", str(tmp_path), "--seeds", "1",
         "--only", "sppo", "-q"],
    )  # fmt: skip
    assert done.exit_code == 1
    assert "failed: seed 1, sppo: " in done.output
    assert "Left out: sppo, seed 1: not started" in done.output


def test_seeds_are_numbers():
    done = CliRunner().invoke(app, ["compare", str(CONFIGS / "smoke.yaml"), "--seeds", "one"])
    assert "expected numbers from 0" in str(done.exception)


def test_the_embedded_comparison_is_sound_and_on_equal_terms():
    made = read_comparison(CONFIGS / "embedded.yaml")
    kinds = {METHODS[way.config.method].kind for way in made.ways}
    assert kinds == {"none", "single", "several", "answer"}
    assert len(made.ways) >= 7
    assert len(made.seeds) == 2
    used = {way.name: planned(way.config).responses / made.budget.amount for way in made.ways}
    assert used.pop("frozen") == 0
    assert set(used.values()) == {1.0}


@pytest.mark.parametrize("name", list(METHODS))
def test_every_purpose_of_every_method_is_a_text_or_a_judgment_or_a_measurement(name):
    """One of another kind would be counted as a text."""
    path = SMOKE / f"{name}.yaml"
    plan = make_plan(load(path if path.exists() else SMOKE / "rubric.yaml"))
    demands = [one for part in plan.rounds for one in part.demands] + list(plan.measuring)
    assert {one.purpose for one in demands} <= WRITING | JUDGING | MEASURING
    assert not JUDGING & MEASURING
