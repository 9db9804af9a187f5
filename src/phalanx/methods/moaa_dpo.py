"""Stage 2 of MoAA: the students' responses, ranked by a reward, become preference pairs.

Every student that has a reward writes ``reward.samples`` responses to each instruction's first
turn; its reward ranks them; the best is chosen, the worst rejected. An instruction without a best
and a worst gives a dropped pair that says why, so that the sums add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from phalanx.collective.mixture import answer_request
from phalanx.collective.preference import keep_and_weigh, make_pair
from phalanx.collective.ranking import Candidate, Ranked
from phalanx.collective.referee import Rankings, rank_by
from phalanx.config.schema import Config, StudentSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Iteration,
    IterationResult,
    Member,
    Message,
    Outcome,
    PreferencePair,
    Response,
)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """One student's responses to one instruction, by the candidate's name."""

    student: StudentSettings
    instruction: Instruction
    responses: dict[str, Response]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(
                name=name,
                text=response.text or "",
                response_id=response.request_id,
                truncated=response.truncated,
                failed=response.error.kind if response.error else "",
            )
            for name, response in self.responses.items()
        )


def compare(
    iteration: Iteration,
    students: Sequence[StudentSettings],
    members: Sequence[Member],
    joined: Sequence[str],
    ask: Ask,
    config: Config,
) -> IterationResult:
    """One record of a pair for every student with a reward and every instruction.

    Students answer as they are now; ``members``, of whom the mixture is made, rank. ``joined`` are
    students that propose too; nobody of them judges, since they would judge themselves.
    """
    place = (iteration.seed, iteration.number)
    learning = [student for student in students if student.reward != "none"]
    sampled = _sample(iteration, learning, ask, config)
    rankings: dict[str, Rankings] = {}
    pairs: list[PreferencePair] = []
    ranked: dict[tuple[str, str], Ranked] = {}
    for reward in dict.fromkeys(student.reward for student in learning):
        mine = [one for one in sampled if one.student.reward == reward]
        groups = [(one.instruction, one.candidates) for one in mine]
        rankings[reward] = rank_by(reward, groups, members, ask, config, place=place)
        for one, result in zip(mine, rankings[reward].ranked, strict=True):
            ranked[one.student.name, one.instruction.id] = result
    for student in learning:
        records = [
            _pair(one, ranked[student.name, one.instruction.id], config, place)
            for one in sampled
            if one.student.name == student.name
        ]
        pairs += keep_and_weigh(records, config.pairs)
    found = list(rankings.values())
    written = {
        (one.instruction.id, name): response.request_id
        for one in sampled
        for name, response in one.responses.items()
    }
    duels = tuple(duel for ranking in found for duel in ranking.duels)
    return IterationResult(
        duels=duels,
        responses={
            (duel.id, name): written[duel.instruction.id, name]
            for duel in duels
            for name in duel.contestants
        },
        judgments=tuple(judgment for ranking in found for judgment in ranking.judgments),
        outcomes=tuple(outcome for ranking in found for outcome in ranking.outcomes),
        standings=iteration.standings,
        reliability=iteration.reliability,
        pairs=tuple(pairs),
        metrics=_metrics(sampled, found, pairs),
        faded=iteration.faded,
    )


def _sample(
    iteration: Iteration, students: Sequence[StudentSettings], ask: Ask, config: Config
) -> list[_Sampled]:
    """All responses of all students, in one phase."""
    newest = {member.name: member for member in iteration.members}
    unknown = [student.name for student in students if student.name not in newest]
    if unknown:
        raise ConfigError(
            f"moaa.students: no member is named {', '.join(unknown)}; there are {', '.join(newest)}"
        )
    numbers = range(1, config.reward.samples + 1)
    place = (iteration.seed, iteration.number)
    asked = [(student, item) for student in students for item in iteration.instructions]
    requests = [
        answer_request(
            newest[student.name],
            (Message("user", item.text),),
            config.reward.sample,
            place=(*place, item.id),
            sample=number,
            purpose="sample",
        )
        for student, item in asked
        for number in numbers
    ]
    replies = iter(ask("sample", requests) if requests else ())
    return [
        _Sampled(student, item, {f"{student.name}#{number}": next(replies) for number in numbers})
        for student, item in asked
    ]


def _pair(one: _Sampled, ranked: Ranked, config: Config, place: tuple) -> PreferencePair:
    """Best over worst. Without them the first two that differ stand in a dropped pair."""
    name = one.student.name
    left, right = ranked.candidates[:2]
    if ranked.best is not None and ranked.worst is not None:
        left, right = ranked.candidates[ranked.best], ranked.candidates[ranked.worst]
    elif ranked.reason in ("tie", "unscored"):
        usable = [candidate for candidate in ranked.candidates if candidate.usable]
        left = usable[0]
        right = next(other for other in usable if other.text.strip() != left.text.strip())
    elif ranked.reason == "identical":
        left, right = [candidate for candidate in ranked.candidates if candidate.usable][:2]
    duel = Duel("", one.instruction, left.name, right.name, matched="ranking")
    pair = make_pair(
        duel,
        _outcome(ranked),
        one.responses[left.name],
        one.responses[right.name],
        config.pairs,
    )
    key = content_id("pair", name, one.instruction.id, *place)
    return replace(pair, id=key, chosen_member=name, rejected_member=name)


def _outcome(ranked: Ranked) -> Outcome:
    """What the ranking says of best (left) and worst (right), in the words of outcomes."""
    if ranked.best is not None and ranked.worst is not None:
        best, worst = ranked.scores[ranked.best], ranked.scores[ranked.worst]
        return Outcome("", "decided", winner="left", score_left=best, score_right=worst)
    if ranked.reason in ("tie", "identical"):
        return Outcome("", "tie", score_left=0.0, score_right=0.0)
    if ranked.reason == "unscored":
        return Outcome("", "no_quorum", reason="no readable verdict")
    gap = "empty response" if ranked.reason == "empty" else ranked.reason
    return Outcome("", "unanswered", reason=gap)


def _metrics(
    sampled: Sequence[_Sampled], found: Sequence[Rankings], pairs: Sequence[PreferencePair]
) -> dict[str, float]:
    judgments = [judgment for ranking in found for judgment in ranking.judgments]
    outcomes = [outcome for ranking in found for outcome in ranking.outcomes]
    statuses = Counter(outcome.status for outcome in outcomes)
    candidates = [candidate for one in sampled for candidate in one.candidates]
    counts: Counter[str] = Counter()
    for ranking in found:
        counts.update(ranking.metrics)
    return {
        "num_duels": len(outcomes),
        "num_judgments": len(judgments),
        "num_unreadable": sum(not judgment.readable for judgment in judgments),
        "num_flipped": sum(judgment.flipped for judgment in judgments),
        **{f"num_{status}": count for status, count in sorted(statuses.items())},
        "num_samples": len(candidates),
        "num_samples_failed": sum(bool(candidate.failed) for candidate in candidates),
        "num_samples_empty": sum(not c.failed and not c.usable for c in candidates),
        "num_samples_truncated": sum(candidate.truncated for candidate in candidates),
        "num_pairs": sum(not pair.drop for pair in pairs),
        **counts,
    }
