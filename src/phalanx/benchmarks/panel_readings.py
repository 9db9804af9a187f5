"""What each judge, and the panel by every rule, says of pairs whose better response is known.

Readings are made from judgments as they are recorded, so that they can be made again from a
ledger. A pair's first response is its left side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from phalanx.benchmarks.judgebench import JudgedPair, Verdict
from phalanx.collective.aggregation import spreads
from phalanx.collective.comparing import RANKER
from phalanx.collective.judging import read_reward, read_written_verdict
from phalanx.collective.panel import decide
from phalanx.config.mixing import MOA
from phalanx.config.schema import AggregateSettings
from phalanx.statistics import Slot
from phalanx.types import Duel, Instruction, Judgment, Response

MAJORITY = "majority"
BOTH_ORDERS = ("first", "second")
_VERDICTS: dict[Slot, Verdict] = {"first": "A>B", "second": "B>A", "tie": "A=B"}
_SLOTS: dict[str, Slot] = {"A": "first", "B": "second", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class Side:
    """Where the score of one response is: a judged duel and its side."""

    duel: str
    side: Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class TestedPair:
    """A pair as judges saw it. ``lengths`` are in characters; "" is a writer or family unknown.

    Pairs with the same ``prompt`` (its id) are not independent of each other. ``sides`` say where
    the scores of A and B are found: the two sides of one duel, or of several where responses were
    scored one by one.
    """

    __test__ = False  # no test case, whatever pytest makes of its name

    id: str
    prompt: str
    group: str
    label: Literal["A", "B"]
    lengths: tuple[int, int]
    sides: tuple[Side, Side]
    writers: tuple[str, str] = ("", "")
    families: tuple[str, str] = ("", "")

    @property
    def truth(self) -> int:
        """1 where A is better, -1 where B is."""
        return 1 if self.label == "A" else -1


@dataclass(frozen=True, slots=True)
class Reading:
    """One verdict: ``sign`` 1 for A, -1 for B, 0 for neither, None where it could not be read.

    ``orders`` has the slot that won in each order (None unread), where both were asked; then
    ``flipped`` says whether they contradict each other. ``probability`` is that of A being better.
    """

    sign: int | None
    orders: tuple[Slot | None, Slot | None] | None = None
    flipped: bool | None = None
    probability: float | None = None


def right(pair: TestedPair, reading: Reading) -> bool:
    """Whether a reading is right; a tie and a missing verdict are not."""
    return reading.sign == pair.truth


def in_both_orders(pair: TestedPair, reading: Reading) -> JudgedPair:
    """What JudgeBench's rule counts: both verdicts as they were said, missing where not asked."""
    first, second = (slot and _VERDICTS[slot] for slot in reading.orders or (None, None))
    return JudgedPair(pair.id, pair.group, "A>B" if pair.label == "A" else "B>A", first, second)


# Judges alone ------------------------------------------------------------------------------------


def judgments_of_pairs(
    pairs: Sequence[TestedPair], judgments: Sequence[Judgment]
) -> list[Judgment]:
    """Judgments of pairs, from those of the duels that their sides are in; named after the pair.

    A pair whose sides are not those of one duel has a judgment by everybody who scored both.
    """
    by_duel: dict[str, dict[str, Judgment]] = {}
    for judgment in judgments:
        by_duel.setdefault(judgment.duel_id, {})[judgment.judge] = judgment
    found = []
    for pair in pairs:
        a, b = pair.sides
        theirs = by_duel.get(b.duel, {})
        for judge, mine in by_duel.get(a.duel, {}).items():
            other = theirs.get(judge)
            if a.duel == b.duel and a.side == "left":
                found.append(replace(mine, duel_id=pair.id))
            elif other is not None:
                found.append(_across(pair.id, (mine, a), (other, b)))
    return found


def _across(key: str, left: tuple[Judgment, Side], right_: tuple[Judgment, Side]) -> Judgment:
    """One judge's scores of two responses from different duels, with the replies they are from."""
    (mine, a), (other, b) = left, right_
    replies = {"left": mine.requests.get(a.side), "right": other.requests.get(b.side)}
    return Judgment(
        key,
        mine.judge,
        mine.protocol,
        _score(mine, a),
        _score(other, b),
        requests={slot: reply for slot, reply in replies.items() if reply is not None},
    )


def _score(judgment: Judgment, side: Side) -> float | None:
    return judgment.score_left if side.side == "left" else judgment.score_right


def readings(
    pairs: Sequence[TestedPair],
    judgments: Sequence[Judgment],
    replies: Mapping[str, Response],
) -> dict[str, list[Reading]]:
    """Every judge's reading of every pair, in order; ``judgments`` are those of pairs.

    ``replies`` has the responses that judgments name, by id; both orders and probabilities are
    read from them. A pair that a judge has no judgment of is unread.
    """
    spread = spreads(judgments)
    found: dict[str, dict[str, Reading]] = {}
    for judgment in judgments:
        slots = {slot: replies[key] for slot, key in judgment.requests.items() if key in replies}
        mine = found.setdefault(judgment.judge, {})
        mine[judgment.duel_id] = _reading(judgment, slots, spread)
    return {
        judge: [mine.get(pair.id, Reading(None)) for pair in pairs] for judge, mine in found.items()
    }


def _reading(
    judgment: Judgment, slots: Mapping[str, Response], spread: Mapping[str, float]
) -> Reading:
    orders = None
    if all(slot in slots for slot in BOTH_ORDERS):
        orders = (
            _winning_slot(slots["first"], RANKER in judgment.flags),
            _winning_slot(slots["second"], RANKER in judgment.flags),
        )
    sign = None
    if judgment.readable:
        left, right_ = judgment.score_left, judgment.score_right
        sign = (left > right_) - (left < right_)
    asked_twice = orders is not None or judgment.protocol == "pairwise"
    return Reading(
        sign=sign,
        orders=orders,
        flipped=judgment.flipped if asked_twice and sign is not None else None,
        probability=_probability(judgment, slots, spread),
    )


def _winning_slot(reply: Response, ranker: bool) -> Slot | None:
    """Which of the two responses shown won: by a logit, by option probabilities, or in words."""
    if ranker:
        reward, _ = read_reward(reply)
        return None if reward is None else _leaning(reward)
    if reply.error is not None:
        return None
    if reply.probabilities:
        chances = reply.probabilities
        return _leaning(chances.get("A", 0.0) - chances.get("B", 0.0))
    verdict, _ = read_written_verdict(reply)
    return None if verdict is None else _SLOTS[verdict]


def _leaning(value: float) -> Slot:
    return "tie" if value == 0 else "first" if value > 0 else "second"


def _probability(
    judgment: Judgment, slots: Mapping[str, Response], spread: Mapping[str, float]
) -> float | None:
    """That the left response is better, where the protocol gives one.

    ``expected``: from the two distributions of scores, as if independent, ties half; None where
    they are not known. ``reward``:
    Bradley-Terry's, the logistic of the difference. ``rubric`` and ``likelihood`` state none: the
    normal distribution function of the difference in units of the judge's own spread.
    """
    from scipy.special import expit, ndtr

    if not judgment.readable or judgment.protocol in ("pairwise", MOA):
        return None
    difference = judgment.score_left - judgment.score_right
    if judgment.protocol == "reward":
        return float(expit(difference))
    if judgment.protocol == "expected":
        both = [slots[side].probabilities for side in ("left", "right") if side in slots]
        return _beats(both[0], both[1]) if len(both) == 2 and all(both) else None
    scale = spread.get(judgment.judge, 1.0)
    return float(ndtr(difference / scale))


def _beats(left: Mapping[str, float], right_: Mapping[str, float]) -> float:
    total = math.fsum(left.values()) * math.fsum(right_.values())
    won = math.fsum(
        p * q * (1.0 if float(a) > float(b) else 0.5 if float(a) == float(b) else 0.0)
        for a, p in left.items()
        for b, q in right_.items()
    )
    return min(1.0, max(0.0, won / total))


# All together ------------------------------------------------------------------------------------


def rules(with_reputations: bool) -> dict[str, AggregateSettings]:
    """Every aggregation rule by its name in tables; ``std.``: with ``standardise``."""
    names = ["mean", "reputation", "median", "one_coin"] if with_reputations else [
        "mean", "median", "one_coin",
    ]  # fmt: skip
    return {
        f"{name} std." if standardise else name: AggregateSettings(
            rule=name, standardise=standardise
        )
        for name in names
        for standardise in (False, True)
    }


def together(
    pairs: Sequence[TestedPair],
    judgments: Sequence[Judgment],
    alone: Mapping[str, Sequence[Reading]],
    *,
    quorum: float,
    reputations: Mapping[str, float],
) -> dict[str, list[Reading]]:
    """The panel's reading of every pair by every rule, and by the majority of the judges' signs.

    ``reputations`` (at the time of judging) may be empty: then that rule is left out. The mean's
    probability is the mean of the judges' own.
    """
    judges = list(alone)
    duels = [Duel(pair.id, Instruction(pair.id, ""), "A", "B") for pair in pairs]
    found = {}
    for name, settings in rules(bool(reputations)).items():
        outcomes, _ = decide(
            duels, {}, judgments, judges, settings, quorum=quorum, reputations=reputations
        )
        signs = {"left": 1, "right": -1, None: 0}
        found[name] = [
            Reading(
                None if outcomes[pair.id].status == "no_quorum" else signs[outcomes[pair.id].winner]
            )
            for pair in pairs
        ]
    found[MAJORITY] = [
        Reading(_majority([alone[judge][at].sign for judge in judges], quorum))
        for at in range(len(pairs))
    ]
    chances = [
        _mean([alone[judge][at].probability for judge in judges]) for at in range(len(pairs))
    ]
    found["mean"] = [
        replace(reading, probability=chance)
        for reading, chance in zip(found["mean"], chances, strict=True)
    ]
    return found


def _majority(signs: Sequence[int | None], quorum: float) -> int | None:
    known = [sign for sign in signs if sign is not None]
    if not known or len(known) < quorum * len(signs) - 1e-12:
        return None
    return int(np.sign(sum(known)))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
