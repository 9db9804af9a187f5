"""A member judges its own judgments, so that judging can be learned, too.

Meta-Rewarding (arXiv 2407.19594, section 2.3): two judgments of one response are compared in both
orders. What the place is worth is taken off: a verdict for the judgment shown first weighs as much
as the share of verdicts for the second one, and the other way round. A fit of strengths to the
weighed verdicts (Bradley and Terry's, which is Elo's model) finds the best and the worst judgment;
they are a preference pair whose prompt is the judge's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import permutations

from phalanx.collective.judging import read_written_verdict
from phalanx.collective.mixture import answer_request
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.preference import keep_and_weigh, make_pair
from phalanx.collective.reading import Verdict
from phalanx.collective.samples import Place, Samples
from phalanx.collective.self_judging import Judged, OwnJudgments
from phalanx.collective.templates import fence, fill, load_template
from phalanx.config.base import Writes
from phalanx.config.schema import PairSettings
from phalanx.identity import content_id, derive_seed
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Message,
    Outcome,
    PreferencePair,
    Request,
)

TEMPLATE = "meta_judge"
DOMAIN = "judging"
"""The domain of instructions that are judges' prompts."""
_PULL = 0.1
"""Penalty of the fit: a judgment that wins every comparison would lie at infinity."""
_TIE = 1e-6
"""Log-odds below which two strengths are the same, and beyond the fit's own precision."""


@dataclass(frozen=True, slots=True)
class Contest:
    """One response's judgments before the meta-judge; ``entrants`` are their positions, those
    with a score and each text once."""

    samples: Samples
    at: int
    said: OwnJudgments
    entrants: tuple[int, ...]

    def text(self, entrant: int) -> str:
        return answer_alone(self.said.replies[entrant].text or "").strip()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on two judgments: ``A`` is the one shown first. None where unreadable."""

    first: int
    second: int
    verdict: Verdict | None


def contest_of(judged: Judged) -> Contest | None:
    """The judgments of the response on which the member agrees with itself least.

    That is the largest variance of the scores, the first of several. None where nothing was
    judged, or where every response has one score alone.
    """
    if not judged.said:
        return None
    at = max(judged.said, key=lambda position: judged.said[position].variance)
    said = judged.said[at]
    if said.variance == 0:
        return None
    contest = Contest(judged.samples, at, said, ())
    first: dict[str, int] = {}
    for entrant, score in enumerate(said.scores):
        if score is not None:
            first.setdefault(contest.text(entrant), entrant)
    return changed(contest, entrants=tuple(first.values())) if len(first) > 1 else None


def compare_judgments(
    contests: Sequence[Contest], settings: Writes, ask: Ask, *, place: Place
) -> list[list[Comparison]]:
    """All pairs of every contest's entrants, in both orders, in one ask (phase ``meta-judge``)."""
    template = load_template(TEMPLATE, ("task", "judgment_a", "judgment_b"))
    orders = [list(permutations(contest.entrants, 2)) for contest in contests]
    requests = [
        _request(template, contest, order, settings, place)
        for contest, mine in zip(contests, orders, strict=True)
        for order in mine
    ]
    replies = iter(ask("meta-judge", requests) if requests else ())
    return [
        [Comparison(*order, read_written_verdict(next(replies))[0]) for order in mine]
        for mine in orders
    ]


def _request(
    template: str, contest: Contest, order: tuple[int, int], settings: Writes, place: Place
) -> Request:
    one = contest.samples
    where = (*place, one.instruction.id, one.names[contest.at])
    shown = [contest.text(entrant) for entrant in order]
    # The same marks whichever comes first, so that the two orders differ in nothing else.
    seed = derive_seed("fence", *where, one.member.key, sorted(order))
    prompt = fill(
        template,
        {
            "task": fence(contest.said.prompt, seed, "task")[0],
            "judgment_a": fence(shown[0], seed + 1, "review A")[0],
            "judgment_b": fence(shown[1], seed + 2, "review B")[0],
        },
    )
    request = answer_request(
        one.member,
        (Message("user", prompt),),
        settings,
        place=(*where, *order),
        purpose="meta_judge",
    )
    return changed(request, shortenable=(one.candidates[contest.at].text, *shown))


def place_weights(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    """What a verdict for the judgment shown first, and one for the second, weigh.

    Each is the other place's share of the wins, times two: 1 and 1 for a judge that does not mind
    the place. Ties are half a win for both; without any verdict both are 1. A judge that always
    names one place says nothing: all its verdicts weigh 0.

    >>> place_weights([Comparison(0, 1, "A"), Comparison(1, 0, "A"), Comparison(0, 2, "B"),
    ...                Comparison(2, 0, "A")])
    (0.5, 1.5)
    """
    points = {"A": 1.0, "tie": 0.5, "B": 0.0}
    known = [points[one.verdict] for one in comparisons if one.verdict is not None]
    if not known:
        return 1.0, 1.0
    first = sum(known) / len(known)
    return 2 * (1 - first), 2 * first


def best_and_worst_judgment(
    comparisons: Sequence[Comparison], weights: tuple[float, float]
) -> tuple[int, int, float] | None:
    """The strongest and the weakest judgment and their distance in log-odds, or None.

    None where no verdict has a weight, or all judgments are equally strong.
    """
    from phalanx.statistics.pairwise import Battle, bradley_terry  # it loads scipy

    scores = {"A": 1.0, "B": 0.0, "tie": 0.5}
    weighs = {"A": weights[0], "B": weights[1], "tie": sum(weights) / 2}
    battles = [
        Battle(f"{one.first:06d}", f"{one.second:06d}", scores[one.verdict], weighs[one.verdict])
        for one in comparisons
        if one.verdict is not None and weighs[one.verdict] > 0
    ]
    if not battles:
        return None
    strengths = bradley_terry(battles, penalty=_PULL).strengths
    best = max(strengths, key=strengths.__getitem__)
    worst = min(strengths, key=strengths.__getitem__)
    margin = strengths[best] - strengths[worst]
    return (int(best), int(worst), margin) if margin > _TIE else None


def judgment_pairs(
    contests: Sequence[Contest],
    compared: Sequence[Sequence[Comparison]],
    settings: PairSettings,
    *,
    place: Place,
) -> list[PreferencePair]:
    """The best judgment of every contest over its worst, as pairs; weights by place per member.

    Where verdicts do not tell them apart the first two entrants stand in a dropped pair. What was
    said of a prompt that had to be shortened is not learned under the whole one (``shortened``).
    """
    settings = settings.model_copy(update={"margin": 0.0})  # it is of scores, not of log-odds
    pairs: list[PreferencePair] = []
    for name in dict.fromkeys(contest.samples.member.name for contest in contests):
        mine = [
            (contest, said)
            for contest, said in zip(contests, compared, strict=True)
            if contest.samples.member.name == name
        ]
        weights = place_weights([one for _, said in mine for one in said])
        made = [_pair(contest, said, weights, settings, place) for contest, said in mine]
        pairs += keep_and_weigh(made, settings)
    return pairs


def _pair(
    contest: Contest,
    said: Sequence[Comparison],
    weights: tuple[float, float],
    settings: PairSettings,
    place: Place,
) -> PreferencePair:
    one, prompt = contest.samples, contest.said.prompt
    found = best_and_worst_judgment(said, weights)
    if found is not None:
        left, right, margin = found
        outcome = Outcome("", "decided", winner="left", score_left=margin, score_right=0.0)
    else:
        left, right = contest.entrants[:2]
        known = any(comparison.verdict is not None for comparison in said)
        reason = "" if known else "no readable verdict"
        outcome = Outcome("", "tie" if known else "no_quorum", reason=reason)
    instruction = Instruction(content_id("judging", prompt), prompt, DOMAIN)
    replies = {
        entrant: changed(contest.said.replies[entrant], text=contest.text(entrant))
        for entrant in (left, right)
    }
    duel = Duel("", instruction, f"judgment {left + 1}", f"judgment {right + 1}", "ranking")
    pair = make_pair(duel, outcome, replies[left], replies[right], settings)
    name = one.member.name
    key = content_id("judgment pair", name, one.instruction.id, *place)
    shortened = any(reply.num_shortened_tokens > 0 for reply in replies.values())
    return changed(
        pair,
        id=key,
        chosen_member=name,
        rejected_member=name,
        drop=pair.drop or ("shortened" if shortened else ""),
    )


def meta_metrics(
    contests: Sequence[Contest],
    compared: Sequence[Sequence[Comparison]],
    pairs: Sequence[PreferencePair],
) -> dict[str, float]:
    """Verdicts asked for and unreadable, how they lean, and the pairs that came of them.

    ``meta.follows_score`` is the share of verdicts between judgments with different scores that
    prefer the higher one, ``meta.first_place`` that of all verdicts for the one shown first (a
    half where the place does not count).
    """
    verdicts = [one for said in compared for one in said]
    decided = [one for one in verdicts if one.verdict in ("A", "B")]
    higher = [
        (contest.said.scores[one.first] > contest.said.scores[one.second]) == (one.verdict == "A")
        for contest, said in zip(contests, compared, strict=True)
        for one in said
        if one.verdict in ("A", "B")
        and contest.said.scores[one.first] != contest.said.scores[one.second]
    ]
    found: dict[str, float] = {
        "meta.contests": len(contests),
        "meta.asked": len(verdicts),
        "meta.unreadable": sum(one.verdict is None for one in verdicts),
        "num_judgment_pairs": sum(not pair.drop for pair in pairs),
        "num_judgment_pairs_dropped": sum(bool(pair.drop) for pair in pairs),
    }
    if decided:
        found["meta.first_place"] = sum(one.verdict == "A" for one in decided) / len(decided)
    if higher:
        found["meta.follows_score"] = sum(higher) / len(higher)
    return found
