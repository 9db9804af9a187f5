"""One vote of several members over their answers, as answers are compared. Pure: asks nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import eq
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
Voter = TypeVar("Voter", bound=Hashable)


def as_first_written(
    answers: Mapping[Voter, str], same: Callable[[str, str], bool] = eq
) -> dict[Voter, str]:
    """Answers that are the ``same``, each written as the first of them; "" is no answer.

    >>> same = lambda one, other: float(one) == float(other)
    >>> as_first_written({"ada": "0.5", "bob": ".5", "cora": ""}, same)
    {'ada': '0.5', 'bob': '0.5', 'cora': ''}
    """
    known: dict[str, None] = {}
    found = {}
    for voter, answer in answers.items():
        if answer and answer not in known:
            answer = next((one for one in known if same(one, answer)), answer)
            known[answer] = None
        found[voter] = answer
    return found


def tally(answers: Mapping[Voter, str], weights: Mapping[Voter, float]) -> dict[str, float]:
    """The summed weight of each answer, in the order in which they are named first.

    >>> tally({"ada": "4", "bob": "5", "cora": "4", "dan": ""}, dict.fromkeys(
    ...     ("ada", "bob", "cora", "dan"), 1))
    {'4': 2.0, '5': 1.0}
    """
    sums: dict[str, float] = defaultdict(float)
    for voter, answer in answers.items():
        if answer:
            sums[answer] += weights[voter]
    return dict(sums)


def winning_answer(
    answers: Mapping[Voter, str],
    weights: Mapping[Voter, float],
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
    given = as_first_written(answers, same)
    sums = tally(given, weights)
    heaviest: dict[str, float] = defaultdict(float)
    for voter, answer in given.items():
        if answer:
            heaviest[answer] = max(heaviest[answer], weights[voter])
    return max(sums, key=lambda answer: (sums[answer], heaviest[answer]), default="")


def first_of_majority(
    texts: Sequence[str],
    read: Callable[[str], str],
    same: Callable[[str, str], bool] = eq,
) -> int | None:
    """The position of the first text that gives the most frequent answer; None without any.

    ``read`` gives a text's answer as it is compared, "" where there is none. Of answers that are
    as frequent, the one given first wins.

    >>> first_of_majority(["7 it is", "4, so", "4"], lambda text: text[0])
    1
    """
    answers = {str(at): read(text) for at, text in enumerate(texts)}
    won = winning_answer(answers, dict.fromkeys(answers, 1.0), same)
    return next((int(at) for at, answer in answers.items() if won and answer == won), None)


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


def shared_vote(
    answers: Mapping[str, Mapping[Item, tuple[str, int]]],
    same: Callable[[Item], Callable[[str, str], bool]] = lambda _: eq,
) -> dict[Item, float]:
    """Item -> how right the most frequent answer is, with one voice each.

    As :func:`vote`, but of equally frequent answers none wins: they share, so that the order of
    the members decides nothing.

    >>> answers = {"ada": {"i": ("4", 1)}, "bob": {"i": ("5", 0)}}
    >>> shared_vote(answers)
    {'i': 0.5}
    """
    found: dict[Item, float] = {}
    for item in dict.fromkeys(item for rows in answers.values() for item in rows):
        given = {member: rows.get(item, ("", 0)) for member, rows in answers.items()}
        said = as_first_written(
            {member: answer for member, (answer, _) in given.items()}, same(item)
        )
        voices = tally(said, dict.fromkeys(said, 1.0))
        right = {answer: given[member][1] for member, answer in reversed(said.items())}
        most = [answer for answer, count in voices.items() if count == max(voices.values())]
        found[item] = sum(right[answer] for answer in most) / len(most) if most else 0.0
    return found
