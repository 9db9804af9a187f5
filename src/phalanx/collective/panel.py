"""Several judges on many duels: one ask for all of their verdicts, then one outcome a duel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.collective.aggregation import estimate_reliability, outcome, spreads
from phalanx.collective.judging import judge_requests, read_judgment
from phalanx.config.schema import AggregateSettings, JudgeSettings
from phalanx.types import Ask, Duel, Judgment, Member, Outcome, Request, Winner

Texts = tuple[str, str]


def judge_duels(
    asked: Sequence[tuple[Duel, Texts, Sequence[Member]]],
    settings: JudgeSettings,
    ask: Ask,
    *,
    place: tuple[Any, ...],
) -> list[Judgment]:
    """Every judge's judgment on its duels; ``asked`` has (duel, left and right text, judges).

    ``place`` is where in the work this happens, for instance (run seed, iteration).
    """
    put: list[tuple[Duel, Texts, Member, list[Request]]] = []
    for duel, texts, judges in asked:
        for judge in judges:
            requests = judge_requests(duel, texts, judge, settings, seed_parts=place)
            put.append((duel, texts, judge, requests))
    replies = iter(ask("judge", [request for *_, requests in put for request in requests]))
    return [
        read_judgment(duel, texts, judge, settings, [next(replies) for _ in requests])
        for duel, texts, judge, requests in put
    ]


def judging_metrics(judgments: Sequence[Judgment], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How many judgments there are, cannot be read and were flipped; outcomes by their status."""
    statuses = Counter(outcome.status for outcome in outcomes)
    return {
        "num_duels": len(outcomes),
        "num_judgments": len(judgments),
        "num_unreadable": sum(not judgment.readable for judgment in judgments),
        "num_flipped": sum(judgment.flipped for judgment in judgments),
        **{f"num_{status}": count for status, count in sorted(statuses.items())},
    }


def unjudged(duel: Duel, texts: Texts, gap: str = "") -> Outcome | None:
    """The outcome of a duel that needs no judge: a missing response, or two that are the same.

    ``gap`` says what is missing, where the caller knows it; None: judges have to decide.
    """
    for side, text in zip(("left", "right"), texts, strict=True):
        if not gap and not text.strip():
            gap = f"{side}: empty response"
    if gap:
        return Outcome(duel.id, "unanswered", reason=gap)
    if texts[0].strip() == texts[1].strip():
        reason = "identical responses"
        return Outcome(duel.id, "tie", reason=reason, score_left=0.0, score_right=0.0)
    return None


def decide(
    duels: Sequence[Duel],
    settled: Mapping[str, Outcome],
    judgments: Sequence[Judgment],
    judges: Sequence[str],
    settings: AggregateSettings,
    *,
    quorum: float,
    reputations: Mapping[str, float],
    anchors: Sequence[tuple[Judgment, Winner]] = (),
) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Every duel's outcome, and the judges' reliability as estimated from these judgments.

    ``settled`` has the outcomes of duels that no judge saw, by the duel's id;
    ``anchors`` are those of :func:`estimate_reliability`.
    """
    reliability = estimate_reliability(duels, judgments, judges, anchors)
    spread = spreads(judgments) if settings.standardise else {}
    of_duel: dict[str, list[Judgment]] = {duel.id: [] for duel in duels}
    for judgment in judgments:
        of_duel[judgment.duel_id].append(judgment)
    outcomes = {}
    for duel in duels:
        mine = of_duel[duel.id]
        outcomes[duel.id] = settled.get(duel.id) or outcome(
            duel,
            mine,
            num_asked=len(mine),
            settings=settings,
            quorum=quorum,
            reputations=reputations,
            reliability=reliability,
            spread=spread,
        )
    return outcomes, reliability
