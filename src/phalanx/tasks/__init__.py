"""Evaluation sets: load the items, and score a response against an answer."""

from phalanx.tasks.items import BY_LIKELIHOOD, TaskItem
from phalanx.tasks.likelihoods import answer_of, score_sums
from phalanx.tasks.loading import load_task, skipped_rows, split_of
from phalanx.tasks.scoring import Score, normalise, score

__all__ = [
    "BY_LIKELIHOOD", "Score", "TaskItem", "answer_of", "load_task", "normalise", "score",
    "score_sums", "skipped_rows", "split_of",
]  # fmt: skip
