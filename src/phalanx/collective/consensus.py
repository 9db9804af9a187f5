"""What members agree on without a judge, and what each response earns by agreeing. Pure.

Label-free co-training (RLCCF, arXiv 2508.12338): a member is trusted as far as it agrees with
itself. The share of its samples on its most frequent answer is its self-consistency; the answer
with the largest sum, over members, of self-consistency times the number of samples that give it is
taken for right; a response earns 1 where it gives that answer, else 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Literal

from phalanx.collective.voting import as_first_written, tally

Weighing = Literal["consistency", "count"]
STEADY = 1e-4
"""Added to the deviation of a group's rewards, as TRL does."""
_ALIKE = 1e-9  # sums that differ by less are the same: they are sums of fractions


@dataclass(frozen=True, slots=True)
class Agreement:
    """``answer`` is what is taken for right; where it is "", ``reason`` says why: ``no_answer``
    (nobody gave one), ``no_majority`` (one voter alone gives it) or ``tie``.

    ``answers`` has every voter's, written as the first that is the same.
    """

    answers: dict[str, str]
    answer: str = ""
    reason: str = ""


def agreed(
    answers: Mapping[str, str],
    weights: Mapping[str, float] | None = None,
    same: Callable[[str, str], bool] = eq,
) -> Agreement:
    """The answer with the most votes, if two voters give it; equal sums agree on nothing.

    ``answers``: voter -> final answer, "" where there is none. Without ``weights`` each counts one.
    Unlike :func:`phalanx.collective.voting.winning_answer`, which must give an answer, this one is
    for labels to learn from, where a coin's is worse than none.

    >>> agreed({"ada": "4", "bob": "5", "cora": "4"}).answer
    '4'
    >>> agreed({"ada": "4", "bob": "5"}).reason, agreed({"ada": "4", "bob": ""}).reason
    ('no_majority', 'no_majority')
    >>> agreed({"ada": "4", "bob": "5", "cora": "4", "dan": "5"}).reason
    'tie'
    """
    given = as_first_written(answers, same)
    sums = tally(given, weights or dict.fromkeys(given, 1.0))
    if not sums:
        return Agreement(given, reason="no_answer")
    voices = Counter(answer for answer in given.values() if answer)
    most = max(sums.values())
    best = [answer for answer, total in sums.items() if math.isclose(total, most, rel_tol=_ALIKE)]
    if max(voices[answer] for answer in best) < 2:
        return Agreement(given, reason="no_majority")
    if len(best) > 1:
        return Agreement(given, reason="tie")
    return Agreement(given, best[0])


def self_consistency(answers: Sequence[str], same: Callable[[str, str], bool] = eq) -> float:
    """The share of one member's samples that give its most frequent answer, from 0 to 1.

    A sample without an answer ("") agrees with none.

    >>> self_consistency(["4", "4", "5", ""])
    0.5
    """
    given = as_first_written(dict(enumerate(answers)), same)
    voices = tally(given, dict.fromkeys(given, 1.0))
    return max(voices.values(), default=0.0) / len(answers) if answers else 0.0


def pseudo_label(
    answers: Mapping[str, Mapping[str, str]],
    same: Callable[[str, str], bool] = eq,
    weighing: Weighing = "consistency",
) -> Agreement:
    """What the samples of all members agree on; its voters are samples.

    ``answers``: member -> sample's id -> final answer. ``count`` gives every sample one vote.

    >>> given = {"ada": {"a0": "4", "a1": "4"}, "bob": {"b0": "5", "b1": "6"}}
    >>> pseudo_label(given).answer
    '4'
    """
    weights: dict[str, float] = {}
    for samples in answers.values():
        trust = self_consistency([*samples.values()], same) if weighing == "consistency" else 1.0
        weights |= dict.fromkeys(samples, trust)
    every = {key: answer for samples in answers.values() for key, answer in samples.items()}
    return agreed(every, weights, same)


def advantages(rewards: Sequence[float]) -> list[float]:
    """Each reward against its group: (r - mean) / (sample deviation + 1e-4), as in TRL's GRPO.

    All 0 where the rewards are alike, or where there is one alone: such a group teaches nothing.

    >>> [round(a, 3) for a in advantages([1.0, 0.0, 0.0, 0.0])]
    [1.5, -0.5, -0.5, -0.5]
    >>> advantages([1.0, 1.0])
    [0.0, 0.0]
    """
    if len(set(rewards)) < 2:
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (spread + STEADY) for reward in rewards]
