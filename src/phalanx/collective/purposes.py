"""What requests are for, in three kinds: texts, judgments on them, and measurement.

``Request.purpose`` is a word of its method's; here stands which words are no texts. Everything
else is written to be learned from, compared, or shown to others.
"""

from __future__ import annotations

JUDGING = frozenset(
    {"judge", "assess", "verdict", "criteria", "fit", "vote", "meta", "meta_judge"}
)
"""Verdicts, scores, votes and decisions, and what judges write on the way to them."""

MEASURING = frozenset({"evaluate", "grade"})
"""The members' answers to evaluation items, and what graders say of them: the same for all."""
