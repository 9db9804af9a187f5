"""Outcomes to preference pairs. Every duel becomes one pair record, kept or dropped by name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phalanx.collective.conversation import judged_turns
from phalanx.config.schema import PairSettings
from phalanx.identity import content_id, derived_random
from phalanx.types import Demonstration, Duel, Outcome, PreferencePair, Response


def _drop_reason(
    texts: tuple[str, str], truncated: tuple[bool, bool], outcome: Outcome, settings: PairSettings
) -> str:
    """Why (chosen, rejected) does not train, or "". Faults of texts come before the verdict's."""
    if outcome.status in ("unanswered", "no_quorum"):
        return "empty" if outcome.reason.endswith("empty response") else "unscored"
    chosen, rejected = texts[0].strip(), texts[1].strip()
    if not chosen or not rejected:
        return "empty"
    if chosen == rejected:
        return "identical"
    if outcome.status == "tie":
        return "tie"
    if truncated[0] and settings.truncated != "allow":
        return "truncated"
    if truncated[1] and settings.truncated == "drop":
        return "truncated"
    if outcome.margin < settings.margin:
        return "margin"
    ratio = settings.max_length_ratio
    if ratio is not None and len(texts[0]) > ratio * len(texts[1]):
        return "length"
    return ""


def make_pair(
    duel: Duel,
    outcome: Outcome,
    left: Response | None,
    right: Response | None,
    settings: PairSettings,
) -> PreferencePair:
    """The pair of one duel. Without a winner, left stands under ``chosen`` of a dropped pair."""
    sides = {"left": (duel.left, left), "right": (duel.right, right)}
    winner = outcome.winner or "left"
    loser = "right" if winner == "left" else "left"
    (chosen_member, chosen), (rejected_member, rejected) = sides[winner], sides[loser]
    texts = ((chosen and chosen.text) or "", (rejected and rejected.text) or "")
    truncated = (bool(chosen and chosen.truncated), bool(rejected and rejected.truncated))
    return PreferencePair(
        id=content_id("pair", duel.id),
        instruction=duel.instruction,
        chosen=texts[0],
        rejected=texts[1],
        chosen_member=chosen_member,
        rejected_member=rejected_member,
        margin=outcome.margin,
        chosen_truncated=truncated[0],
        rejected_truncated=truncated[1],
        drop=_drop_reason(texts, truncated, outcome, settings),
    )


def keep_widest(pairs: Sequence[PreferencePair], share: float) -> list[PreferencePair]:
    """Mark all but the given share of the kept pairs, those with the largest margin, as dropped.

    Equal margins are ranked by id, so the choice does not depend on the order of the duels.
    """
    kept = sorted(
        (pair for pair in pairs if not pair.drop), key=lambda pair: (-pair.margin, pair.id)
    )
    allowed = {pair.id for pair in kept[: math.ceil(share * len(kept))]}
    return [
        pair if pair.drop or pair.id in allowed else replace(pair, drop="margin_rank")
        for pair in pairs
    ]


def weigh_by_margin(pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """Weight each kept pair by its margin, scaled so that the mean weight is 1."""
    margins = [pair.margin for pair in pairs if not pair.drop]
    mean = math.fsum(margins) / len(margins) if margins else 0.0
    if mean == 0:
        return list(pairs)
    return [pair if pair.drop else replace(pair, weight=pair.margin / mean) for pair in pairs]


def keep_and_weigh(pairs: Sequence[PreferencePair], settings: PairSettings) -> list[PreferencePair]:
    """What is decided over all pairs at once: which share of them is kept, and their weights."""
    kept = keep_widest(pairs, settings.keep) if settings.keep < 1 else list(pairs)
    return weigh_by_margin(kept) if settings.weight_by_margin else kept


def make_pairs(
    duels: Sequence[Duel],
    outcomes: Mapping[str, Outcome],
    responses: Mapping[tuple[str, str], Response],
    settings: PairSettings,
) -> list[PreferencePair]:
    """One record per duel, in order; ``responses`` maps (duel id, member) to its response."""
    pairs = [
        make_pair(
            duel,
            outcomes[duel.id],
            responses.get((duel.id, duel.left)),
            responses.get((duel.id, duel.right)),
            settings,
        )
        for duel in duels
    ]
    return keep_and_weigh(pairs, settings)


def pair_counts(pairs: Sequence[PreferencePair]) -> dict[str, float]:
    """How many pairs are kept, and how many are dropped for each reason."""
    drops = Counter(pair.drop for pair in pairs if pair.drop)
    return {
        "num_pairs": len(pairs) - drops.total(),
        **{f"num_dropped.{reason}": count for reason, count in sorted(drops.items())},
    }


def chosen_alone(pair: PreferencePair) -> Demonstration:
    """The chosen response as something to imitate; as with pairs, no end follows a truncated one.

    Imitating what judges preferred is rejection sampling (arXiv 2308.01825); a pair's weight has no
    part in it.
    """
    *history, last = judged_turns(pair.instruction)
    return Demonstration(
        id=pair.id,
        prompt=last.content,
        response=pair.chosen,
        domain=pair.instruction.domain,
        history=tuple(history),
        instruction=pair.instruction.id,
        writer=pair.chosen_member,
        truncated=pair.chosen_truncated,
        drop=pair.drop,
    )


def with_label_noise(
    pairs: Sequence[PreferencePair], share: float, seed: int
) -> list[PreferencePair]:
    """The random-winner control: swap chosen and rejected with chance ``share``."""

    def swapped(pair: PreferencePair) -> PreferencePair:
        return replace(
            pair,
            chosen=pair.rejected,
            rejected=pair.chosen,
            chosen_member=pair.rejected_member,
            rejected_member=pair.chosen_member,
            chosen_probability=pair.rejected_probability,
            rejected_probability=pair.chosen_probability,
            chosen_truncated=pair.rejected_truncated,
            rejected_truncated=pair.chosen_truncated,
        )

    return [
        swapped(pair) if derived_random("noise", seed, pair.id).random() < share else pair
        for pair in pairs
    ]
