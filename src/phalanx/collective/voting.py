"""One vote of several members over their answers, as answers are compared. Pure: asks nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from operator import eq
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def winning_answer(
    answers: Mapping[str, str],
    weights: Mapping[str, float],
    same: Callable[[str, str], bool] = eq,
) -> str:
    """The answer with the largest summed weight; "" where nobody has one.

    ``answers``: member -> normalised answer; "" is no vote. Answers that are the ``same`` are one,
    written as the first of them. Of equal sums, the one with the heaviest single voter wins, then
    the one named first.

    >>> winning_answer({"ada": "4", "bob": "5", "cora": "4"}, {"ada": 1, "bob": 1.5, "cora": 1})
    '4'
    >>> same = lambda one, other: float(one) == float(other)
    >>> winning_answer({"ada": "7", "bob": ".5", "cora": "0.5"}, dict.fromkeys(
    ...     ("ada", "bob", "cora"), 1), same)
    '.5'
    """
    sums: dict[str, float] = defaultdict(float)
    heaviest: dict[str, float] = defaultdict(float)
    for member, answer in answers.items():
        if answer:
            answer = next((known for known in sums if same(known, answer)), answer)
            sums[answer] += weights[member]
            heaviest[answer] = max(heaviest[answer], weights[member])
    return max(sums, key=lambda answer: (sums[answer], heaviest[answer]), default="")


def vote(
    answers: Mapping[str, Mapping[Item, tuple[str, int]]],
    weights: Mapping[str, float],
    same: Callable[[Item], Callable[[str, str], bool]] = lambda _: eq,
) -> dict[Item, int]:
    """Item -> 1 where the :func:`winning_answer` is right.

    ``answers``: member -> item -> (normalised answer, correct). An item without votes is wrong.
    ``same`` says of an item how its answers are compared.
    """
    result: dict[Item, int] = {}
    for item in dict.fromkeys(item for rows in answers.values() for item in rows):
        given = {member: rows.get(item, ("", 0)) for member, rows in answers.items()}
        said = {member: answer for member, (answer, _) in given.items()}
        winner = winning_answer(said, weights, same(item))
        right = next((correct for answer, correct in given.values() if answer == winner), 0)
        result[item] = right if winner else 0
    return result
