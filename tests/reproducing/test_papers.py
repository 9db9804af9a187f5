"""The published figures hang together, and say where they come from."""

from __future__ import annotations

import pytest

from phalanx.config.loading import preset_names
from phalanx.errors import ConfigError
from phalanx.reproducing.papers import BEST_ALIGNED, BEST_INITIAL, load_paper, paper_names


@pytest.mark.parametrize("name", paper_names())
def test_every_word_of_a_paper_leads_somewhere(name):
    paper = load_paper(name)
    assert paper.preset in preset_names()
    used = set()
    for table in paper.tables:
        for column in table.columns.values():
            assert column.instructions in paper.instructions
            assert column.benchmark in paper.benchmarks
        for row in table.rows:
            assert bool(row.arm) != bool(row.absent), row.title
            assert row.source == "" or row.source in paper.sources
            assert row.source or not row.figures, f"{row.title} has figures of nobody"
            assert set(row.figures) <= set(table.columns)
            if row.arm:
                used.add(row.arm)
                assert row.arm in paper.arms
                assert row.take in (BEST_INITIAL, BEST_ALIGNED) or row.take.count("@") == 1
        assert all(test.arm in paper.arms for test in table.tests)
    assert used == set(paper.arms)
    assert len({table.id for table in paper.tables}) == len(paper.tables)


@pytest.mark.parametrize("name", paper_names())
def test_figures_are_on_the_scale_of_their_column(name):
    paper = load_paper(name)
    rated = {"com2", "alpaca", "mt_bench"}
    for table in paper.tables:
        for row in table.rows:
            for column in row.figures:
                value = row.published(column).value
                top = 10 if column in rated else 100 if paper.percent else 1
                assert 0 < value <= top
                assert column not in rated or value >= 1


def test_what_is_not_listed_is_not_known():
    paper = load_paper("sparta")
    (row,) = (r for r in paper.chosen("3")[0].rows if r.arm == "no-reputation")
    assert row.published("gsm8k") is None
    (sparta,) = (r for r in paper.chosen("main")[0].rows if r.title == "Sparta")
    assert sparta.published("gsm8k").value == 0.813
    assert "0.634" in sparta.published("medqa").note


def test_unknown_names_are_refused_with_advice():
    with pytest.raises(ConfigError, match="no paper 'spatra'; did you mean sparta"):
        load_paper("spatra")
    with pytest.raises(ConfigError, match="no table 'abblations'; did you mean ablations"):
        load_paper("sparta").chosen("abblations")
