"""What requests are for (``Request.purpose``): judgments on texts, measurement, and, all others,
texts that are learned from, compared, or shown to others."""

from __future__ import annotations

JUDGING = frozenset({"judge", "meta_judge", "assess", "verdict", "criteria", "fit", "vote"})
"""Verdicts, scores, votes and decisions, and what judges write on the way to them."""

MEASURING = frozenset({"evaluate", "grade"})
"""The members' answers to evaluation items, and what graders say of them: the same for all."""
