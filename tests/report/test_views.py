"""Cells of the page's tables against the counts behind them."""

from __future__ import annotations

import shutil

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report import machine, views
from phalanx.report.facts import gather


def test_who_beats_whom_counts_ties_as_the_reputations_do(facts):
    _, rows = views.heat(facts)
    won = {line.member: line for line in facts.reputations}
    assert any(line.ties for line in facts.reputations)
    for row in rows:
        counts = [list(map(int, c["text"].split(" / "))) for c in row["cells"] if c["share"]]
        line = won[row["name"]]
        assert [sum(part) for part in zip(*counts, strict=True)] == [
            line.wins, line.losses, line.ties,
        ]  # fmt: skip
        for (wins, lost, tied), cell in zip(
            counts, [c for c in row["cells"] if c["share"]], strict=True
        ):
            share = (wins + tied / 2) / (wins + lost + tied)
            assert cell["share"] == f"{100 * share:.0f} %"


@pytest.mark.parametrize("protocol", ["likelihood", "pairwise"])
def test_flips_are_counted_only_where_judges_see_both_responses(run_folder, tmp_path, protocol):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    with Ledger(run_ledger_path(copy), writable=True) as ledger, ledger.transaction():
        ledger._db.execute("UPDATE judgments SET protocol = ?", (protocol,))
    with Ledger(run_ledger_path(copy)) as ledger:
        facts = gather(ledger)
    counted = protocol == "pairwise"
    assert (machine.status_object(facts)["flipped"] is None) is not counted
    cells = [judge["flipped"][0] for judge in views.judges(facts)]
    assert all((cell == "–") is not counted for cell in cells), cells
    assert cells
