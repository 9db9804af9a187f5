"""One vote of several members over their answers, as answers are compared. Pure: asks nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def winning_answer(answers: Mapping[str, str], weights: Mapping[str, float]) -> str:
    """The answer with the largest summed weight; "" where nobody has one.

    ``answers``: member -> normalised answer; "" is no vote. Of equal sums, the one with the
    heaviest single voter wins, then the one named first.

    >>> winning_answer({"ada": "4", "bob": "5", "cora": "4"}, {"ada": 1, "bob": 1.5, "cora": 1})
    '4'
    """
    sums: dict[str, float] = defaultdict(float)
    heaviest: dict[str, float] = defaultdict(float)
    for member, answer in answers.items():
        if answer:
            sums[answer] += weights[member]
            heaviest[answer] = max(heaviest[answer], weights[member])
    return max(sums, key=lambda answer: (sums[answer], heaviest[answer]), default="")


def vote(
    answers: Mapping[str, Mapping[Item, tuple[str, int]]], weights: Mapping[str, float]
) -> dict[Item, int]:
    """Item -> 1 where the :func:`winning_answer` is right.

    ``answers``: member -> item -> (normalised answer, correct). An item without votes is wrong.
    """
    result: dict[Item, int] = {}
    for item in dict.fromkeys(item for rows in answers.values() for item in rows):
        given = {member: rows.get(item, ("", 0)) for member, rows in answers.items()}
        winner = winning_answer({member: answer for member, (answer, _) in given.items()}, weights)
        right = next((correct for answer, correct in given.values() if answer == winner), 0)
        result[item] = right if winner else 0
    return result
