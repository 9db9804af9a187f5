"""Evaluation sets: load the items, and score a response against an answer."""

from phalanx.tasks.items import TaskItem
from phalanx.tasks.loading import load_task, split_of
from phalanx.tasks.scoring import Score, normalise, score

__all__ = ["Score", "TaskItem", "load_task", "normalise", "score", "split_of"]
