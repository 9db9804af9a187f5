"""The tables of judges under test, from facts alone."""

from __future__ import annotations

from phalanx.report import judged_facts
from phalanx.report.judged import _many


def test_no_judge_vanishes_from_the_best_of_many():
    """One whose scores have gaps has no curve, and another has prompts of fewer responses."""
    many = (
        judged_facts.BestOf("gaps", 0, {}),
        judged_facts.BestOf("short", 2, {1: 0.5, 2: 0.75}),
        judged_facts.BestOf("whole", 3, {1: 0.4, 2: 0.6, 4: 0.8}),
    )
    tested = judged_facts.Tested(
        where="x.jsonl", format="ppe", protocol="reward", ordered=False, left_out={},
        tests={}, shifts=(), many={0: many},
    )  # fmt: skip
    (table,) = _many(tested, 0)
    assert not list(_many(tested, 1))
    assert table.headers == ("judge", "prompts", "k=1", "k=2", "k=4")
    assert table.rows == (
        ("gaps", "0", "–", "–", "–"),
        ("short", "2", "50.0", "75.0", "–"),
        ("whole", "3", "40.0", "60.0", "80.0"),
    )
