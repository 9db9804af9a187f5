"""Preference pairs from what members say of their own responses, one record an instruction.

The duel behind a pair is the best response against the worst; its judgment has the mean scores,
and the requests of every judgment that went into them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from phalanx.collective.aggregation import outcome
from phalanx.collective.length_control import best_and_worst, length_controlled
from phalanx.collective.preference import keep_and_weigh, make_pair, pair_counts
from phalanx.collective.samples import Place
from phalanx.collective.self_judging import TEMPLATE, Judged, OwnJudgments
from phalanx.collective.templates import imitates_verdict
from phalanx.config.schema import AggregateSettings, PairSettings
from phalanx.identity import content_id
from phalanx.types import Duel, Judgment, Outcome, PreferencePair


@dataclass(frozen=True, slots=True)
class OwnPair:
    """A pair, kept or dropped; the duel and what follows are set where responses were judged."""

    pair: PreferencePair
    duel: Duel | None = None
    judgment: Judgment | None = None
    outcome: Outcome | None = None


def own_pairs(
    judged: Sequence[Judged], settings: PairSettings, rho: float | None, *, place: Place
) -> list[OwnPair]:
    """One record for each, in order; shares and weights are those among one member's pairs.

    ``rho`` is length control's, None for none. ``place`` is where in the work this happens.
    """
    found = [_own_pair(one, settings, rho, place) for one in judged]
    by_member: dict[str, list[int]] = {}
    for at, one in enumerate(judged):
        by_member.setdefault(one.samples.member.name, []).append(at)
    for places in by_member.values():
        weighed = keep_and_weigh([found[at].pair for at in places], settings)
        for at, pair in zip(places, weighed, strict=True):
            found[at] = replace(found[at], pair=pair)
    return found


def _own_pair(judged: Judged, settings: PairSettings, rho: float | None, place: Place) -> OwnPair:
    member, instruction = judged.samples.member, judged.samples.instruction
    found, drop = _placed(judged, settings, rho)
    left, right = sorted(found)
    key = content_id("own", *place, member.key, instruction.id, left, right)
    names, responses = judged.samples.names, judged.samples.responses
    duel = Duel(key, instruction, names[left], names[right], matched="ranking")
    judgment = None
    if judged.said:
        judgment = _judgment(duel, judged, left, right)
        rule = AggregateSettings(rule="mean")
        said = outcome(duel, [judgment], num_asked=1, settings=rule, quorum=1.0, reputations={})
    elif drop == "identical":
        said = Outcome(key, "tie", score_left=0.0, score_right=0.0)
    else:
        said = Outcome(key, "unanswered", reason="empty response" if drop == "empty" else drop)
    pair = make_pair(duel, said, responses[left], responses[right], settings)
    pair = replace(
        pair,
        id=content_id("pair", member.name, instruction.id, *place),
        chosen_member=member.name,
        rejected_member=member.name,
        drop=drop if drop in ("length", "truncated", "identical") else pair.drop,
    )
    return OwnPair(pair, *((duel, judgment, said) if judgment else ()))


def _placed(
    judged: Judged, settings: PairSettings, rho: float | None
) -> tuple[tuple[int, int], str]:
    """Positions of two responses, best first where one is better, and why they are no pair."""
    responses, scores = judged.samples.responses, judged.scores
    if not judged.said:
        return _unjudged(judged, settings)
    whole = [settings.truncated == "allow" or not reply.truncated for reply in responses]
    ends = best_and_worst(scores, whole)
    if ends is None:
        cut = best_and_worst(scores, [True] * len(scores))
        return (cut, "truncated") if cut else (_alike(judged), "")
    if rho is None:
        return ends, ""
    lengths = [len(reply.text or "") for reply in responses]
    controlled = length_controlled(scores, lengths, rho, whole)
    return (controlled, "") if controlled else (ends, "length")


def _alike(judged: Judged) -> tuple[int, int]:
    """The first two with a score, or else the first two: a tie, or not to be read."""
    shown = list(judged.said)
    known = [at for at in shown if judged.scores[at] is not None]
    first, second, *_ = known if len(known) > 1 else shown
    return first, second


def _unjudged(judged: Judged, settings: PairSettings) -> tuple[tuple[int, int], str]:
    """The same where there were no two answers to compare."""
    candidates = judged.samples.candidates
    usable = [at for at, one in enumerate(candidates) if one.usable]
    compared = [at for at, twin in enumerate(judged.twins) if twin is not None]
    if len(compared) > 1:
        return (compared[0], compared[1]), "identical"
    if settings.truncated == "drop" and len(usable) > 1:
        return (usable[0], usable[1]), "truncated"
    failed = any(one.failed for one in candidates)
    return (0, 1), "failed" if failed else "empty"


def _judgment(duel: Duel, judged: Judged, left: int, right: int) -> Judgment:
    """What the member said of both, as one judgment: each slot is one of its replies."""
    raw, requests, reasons, flags = {}, {}, [], []
    sides = {"left": left, "right": right}
    for side, at in sides.items():
        said = judged.said[judged.twins[at]]
        for number, reply in enumerate(said.replies, start=1):
            raw[f"{side}.{number}"] = reply.said
            requests[f"{side}.{number}"] = reply.request_id
        if said.mean is None:
            reasons.append(f"{side}: {said.gap}")
    replies = [reply for at in sides.values() for reply in judged.said[judged.twins[at]].replies]
    if any(reply.num_shortened_tokens > 0 for reply in replies):
        flags.append("shortened")
    for side, at in sides.items():
        if imitates_verdict(judged.samples.responses[at].text or ""):
            flags.append(f"imitates_verdict:{side}")
    return Judgment(
        duel_id=duel.id,
        judge=judged.samples.member.name,
        protocol=TEMPLATE,
        score_left=judged.scores[left],
        score_right=judged.scores[right],
        reason="; ".join(reasons),
        raw=raw,
        flags=tuple(flags),
        requests=requests,
    )


def own_metrics(judged: Sequence[Judged], pairs: Sequence[PreferencePair]) -> dict[str, float]:
    """Judgments that are unreadable, mean scores, ties, and lengths of what pairs prefer.

    ``scores.*`` count single judgments, those of a member under ``scores.*.NAME``, too;
    ``share_ties`` is that among the pairs whose responses were judged, and lengths are characters
    of the kept pairs' responses.
    """
    by_member: dict[str, list[OwnJudgments]] = {}
    for group in judged:
        by_member.setdefault(group.samples.member.name, []).extend(group.said.values())
    said = [one for mine in by_member.values() for one in mine]
    kept = [pair for pair in pairs if not pair.drop]
    compared = [pair for group, pair in zip(judged, pairs, strict=True) if group.said]
    return {
        **_score_counts(said, ""),
        **{
            key: value
            for name, mine in by_member.items()
            for key, value in _score_counts(mine, f".{name}").items()
        },
        **_mean("share_ties", [pair.drop == "tie" for pair in compared]),
        **_mean("mean_length_chosen", [len(pair.chosen) for pair in kept]),
        **_mean("mean_length_rejected", [len(pair.rejected) for pair in kept]),
        **pair_counts(pairs),
    }


def _score_counts(said: Sequence[OwnJudgments], whose: str) -> dict[str, float]:
    replies = [reply for one in said for reply in one.replies]
    return {
        f"scores.asked{whose}": sum(len(one.scores) for one in said),
        f"scores.unreadable{whose}": sum(len(one.scores) - len(one.known) for one in said),
        f"scores.shortened{whose}": sum(r.num_shortened_tokens > 0 for r in replies),
        **_mean(f"scores.mean{whose}", [score for one in said for score in one.known]),
    }


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: math.fsum(values) / len(values)} if values else {}
