"""Stage 2 of MoAA: the students' responses, ranked by a reward, become preference pairs.

Every student that has a reward writes ``reward.samples`` responses to each instruction's first
turn; its reward ranks them; the best is chosen, the worst rejected. An instruction without a best
and a worst gives a dropped pair that says why, so that the sums add up. A truncated response never
costs an instruction its pair where whole ones differ: ``pairs.truncated`` says what becomes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.panel import judging_metrics
from phalanx.collective.preference import keep_and_weigh, make_pair
from phalanx.collective.ranking import Candidate, Ranked
from phalanx.collective.referee import Rankings, rank_by
from phalanx.collective.samples import Samples, responses_in, sample_own, sampling_metrics
from phalanx.config.mixing import named
from phalanx.config.schema import Config, StudentSettings
from phalanx.errors import JudgmentError
from phalanx.identity import content_id
from phalanx.types import (
    Ask,
    Duel,
    Iteration,
    IterationResult,
    Member,
    Outcome,
    PreferencePair,
)


def _competing(one: Samples, config: Config) -> tuple[Candidate, ...]:
    """Those that are ranked.

    With ``pairs.truncated: drop`` the whole ones. With ``rejected_only``, too, in a knockout,
    which knows of no second best, where two whole ones differ.
    """
    rule = config.pairs.truncated
    whole = tuple(candidate for candidate in one.candidates if not candidate.truncated)
    if rule == "drop":
        return whole
    differ = len({candidate.text.strip() for candidate in whole if candidate.usable}) > 1
    knockout = config.reward.ranking == "knockout"
    return whole if rule == "rejected_only" and knockout and differ else one.candidates


def compare(
    iteration: Iteration,
    students: Sequence[StudentSettings],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
) -> IterationResult:
    """One record of a pair for every student with a reward and every instruction.

    Students answer as they are now; ``members``, of whom the mixture is made, rank. Students
    that propose too do not judge, since they would judge themselves. Raises JudgmentError for a
    student that has no pair because its samples failed.
    """
    place = (iteration.seed, iteration.number)
    learning = [student for student in students if student.reward != "none"]
    names = [student.name for student in learning]
    newest = named(names, iteration.members, "moaa.students")
    sampled = sample_own(
        [newest[name] for name in names],
        iteration.instructions,
        config.reward.sample,
        config.reward.samples,
        ask,
        place=place,
    )
    rankings: dict[str, Rankings] = {}
    pairs: list[PreferencePair] = []
    ranked: dict[tuple[str, str], Ranked] = {}
    for reward in dict.fromkeys(student.reward for student in learning):
        ours = [student.name for student in learning if student.reward == reward]
        mine = [one for one in sampled if one.member.name in ours]
        groups = [(one.instruction, _competing(one, config)) for one in mine]
        rankings[reward] = rank_by(reward, groups, members, ask, config, place=place)
        for one, result in zip(mine, rankings[reward].ranked, strict=True):
            ranked[one.member.name, one.instruction.id] = result
    for student in learning:
        mine = [one for one in sampled if one.member.name == student.name]
        results = [ranked[student.name, one.instruction.id] for one in mine]
        records = [
            _pair(one, result, config, place) for one, result in zip(mine, results, strict=True)
        ]
        _refuse_failed(student.name, mine, results, records)
        pairs += keep_and_weigh(records, config.pairs)
    found = list(rankings.values())
    duels = tuple(duel for ranking in found for duel in ranking.duels)
    return IterationResult(
        duels=duels,
        responses=responses_in(duels, sampled),
        judgments=tuple(judgment for ranking in found for judgment in ranking.judgments),
        outcomes=tuple(outcome for ranking in found for outcome in ranking.outcomes),
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics=_metrics(sampled, found, pairs),
        faded=iteration.faded,
    )


def _pair(one: Samples, ranked: Ranked, config: Config, place: tuple) -> PreferencePair:
    """Best over worst. Without them the first two that differ stand in a dropped pair."""
    name = one.member.name
    written = dict(zip(one.names, one.responses, strict=True))
    usable = [candidate for candidate in one.candidates if candidate.usable]
    ranking = [candidate for candidate in ranked.candidates if candidate.usable]
    missing = ranked.reason in ("empty", "failed", "single")
    cut = missing and len(usable) > 1 and any(candidate.truncated for candidate in usable)
    placed = _placed(ranked, config)
    left, right = one.candidates[:2]
    if placed:
        left, right = (ranked.candidates[at] for at in placed)
    elif ranked.reason in ("tie", "unscored"):
        left = ranking[0]
        right = next(other for other in ranking if other.text.strip() != left.text.strip())
    elif ranked.reason == "identical":
        left, right = ranking[:2]
    elif cut:
        left, right = usable[:2]
    duel = Duel("", one.instruction, left.name, right.name, matched="ranking")
    pair = make_pair(
        duel,
        _outcome(ranked, placed),
        written[left.name],
        written[right.name],
        config.pairs,
    )
    key = content_id("pair", name, one.instruction.id, *place)
    drop = "truncated" if cut else pair.drop
    return replace(pair, id=key, chosen_member=name, rejected_member=name, drop=drop)


def _placed(ranked: Ranked, config: Config) -> tuple[int, int] | None:
    """Positions of the chosen and the rejected response, or None.

    Where a truncated one is best, and may not be chosen, the best whole one with a higher score
    than the worst; where there is none it stays, and its pair is dropped.
    """
    best, worst = ranked.best, ranked.worst
    if best is None or worst is None:
        return None
    if config.pairs.truncated != "allow" and ranked.candidates[best].truncated:
        low = ranked.scores[worst]
        whole = {
            at: score
            for at, (candidate, score) in enumerate(
                zip(ranked.candidates, ranked.scores, strict=True)
            )
            if not candidate.truncated and None not in (score, low) and score > low
        }
        if whole:
            best = max(whole, key=whole.__getitem__)
    return best, worst


def _outcome(ranked: Ranked, placed: tuple[int, int] | None) -> Outcome:
    """What the ranking says of best (left) and worst (right), in the words of outcomes."""
    if placed:
        best, worst = (ranked.scores[at] for at in placed)
        return Outcome("", "decided", winner="left", score_left=best, score_right=worst)
    if ranked.reason in ("tie", "identical"):
        return Outcome("", "tie", score_left=0.0, score_right=0.0)
    if ranked.reason == "unscored":
        return Outcome("", "no_quorum", reason="no readable verdict")
    gap = "empty response" if ranked.reason == "empty" else ranked.reason
    return Outcome("", "unanswered", reason=gap)


def _refuse_failed(
    name: str,
    sampled: Sequence[Samples],
    ranked: Sequence[Ranked],
    pairs: Sequence[PreferencePair],
) -> None:
    """Raise JudgmentError where a student has no pair, for most instructions since samples failed.

    Samples that were written and make no pair all the same, ties for instance, are a result.
    """
    failed = [one for one in ranked if one.reason == "failed"]
    if not failed or 2 * len(failed) < len(ranked) or any(not pair.drop for pair in pairs):
        return
    kinds = Counter(c.failed for one in sampled for c in one.candidates if c.failed)
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    raise JudgmentError(
        f"{name} has no pair to learn from: {kinds.total()} of its samples failed ({listed}), and "
        f"{len(failed)} of {len(ranked)} instructions have no two to compare. Look at the "
        "responses (phalanx export RUN responses); failed ones are asked again next time"
    )


def _metrics(
    sampled: Sequence[Samples], found: Sequence[Rankings], pairs: Sequence[PreferencePair]
) -> dict[str, float]:
    judgments = [judgment for ranking in found for judgment in ranking.judgments]
    outcomes = [outcome for ranking in found for outcome in ranking.outcomes]
    counts: Counter[str] = Counter()
    for ranking in found:
        counts.update(ranking.metrics)
    return {
        **judging_metrics(judgments, outcomes),
        **sampling_metrics(sampled),
        "num_pairs": sum(not pair.drop for pair in pairs),
        **counts,
    }
