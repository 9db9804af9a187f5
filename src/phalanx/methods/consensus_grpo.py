"""Label-free consensus GRPO (RLCCF, arXiv 2508.12338): what the pool agrees on is taken for right.

Every learner writes a group of responses to each instruction. The final answer with the largest
sum, over members, of self-consistency times count is the pseudo-label; a response earns 1 where it
gives that answer and 0 otherwise; every learner learns from its own groups by GRPO.

Assumes final answers that can be read and compared, and a pool that is right more often than wrong:
where members agree on a mistake, they learn it. Deviations, each since the paper does not say:

* Equal sums, and an answer that one response alone gives, are no label: nobody learns from them.
* A truncated response has no vote, earns 0 and is not learned itself (``truncated: allow`` undoes
  all three); its reward stays in the group's mean, as with TRL's masked completions.
* The text of a response is learned, encoded anew, which may give other tokens than were sampled.
* A failed request is no part of its group. A response without an answer is: it earns 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from phalanx.collective.consensus import Agreement, advantages, pseudo_label, self_consistency
from phalanx.collective.samples import Samples, sample_own, sampling_metrics
from phalanx.config.schema import Config
from phalanx.identity import content_id
from phalanx.methods.demonstrations import refuse_nothing, row_counts
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.tasks.comparing import Reader, Same, reader_of
from phalanx.types import (
    Ask,
    Demonstration,
    Iteration,
    IterationResult,
    Member,
    Response,
)

SETTING = "consensus_grpo.truncated"


def lesson(config: Config, number: int, name: str) -> str:
    """Every learner learns from its own groups."""
    return f"rated:{name}"


@dataclass(frozen=True, slots=True)
class _Group:
    """One learner's responses to one instruction, and the pool's label of it.

    ``answers`` has the final answer of each response that was written, by its name.
    """

    sampled: Samples
    answers: dict[str, str]
    label: Agreement

    @property
    def rewards(self) -> dict[str, float]:
        """1 for each response that gives the pseudo-label, else 0; none without a label."""
        if self.label.reason:
            return {}
        given = self.label.answers
        return {name: float(given[name] == self.label.answer) for name in self.answers}


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One row for each response of each learner, with its advantage or the reason why not.

    Raises JudgmentError for a learner that has none to learn from because its requests failed.
    """
    settings = config.consensus_grpo
    read, same = reader_of(settings.match)
    place = (iteration.seed, iteration.number)
    members = learners(iteration.members)
    sampled = sample_own(
        members, iteration.instructions, settings.sample, settings.samples, ask, place=place
    )
    answers = [_answers(one, read, settings.truncated) for one in sampled]
    by_instruction: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for one, given in zip(sampled, answers, strict=True):
        by_instruction[one.instruction.id][one.member.name] = given
    labels = {
        key: pseudo_label(given, same, settings.weights) for key, given in by_instruction.items()
    }
    groups = [
        _Group(one, given, labels[one.instruction.id])
        for one, given in zip(sampled, answers, strict=True)
    ]
    rows = [row for group in groups for row in _rows(group, settings.truncated, place)]
    for member in members:
        mine = [row for row in rows if row.builder == member.name]
        refuse_nothing(member.name, mine, SETTING, only_failed=True)
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        faded=iteration.faded,
        demonstrations=tuple(rows),
        metrics=_metrics(members, groups, labels, rows, same),
    )


def _answers(one: Samples, read: Reader, truncated: str) -> dict[str, str]:
    """The final answer of each response that was written; "" where it gives none."""
    return {
        name: "" if reply.truncated and truncated == "drop" else read(reply.text or "")
        for name, reply in zip(one.names, one.responses, strict=True)
        if reply.error is None
    }


def _rows(group: _Group, truncated: str, place: tuple) -> list[Demonstration]:
    """The rows of one group, which are learned against each other."""
    rewards = group.rewards
    gains = dict(zip(rewards, advantages([*rewards.values()]), strict=True))
    one, label = group.sampled, group.label
    drop = label.reason or ("" if any(gains.values()) else "no_advantage")
    return [
        Demonstration(
            id=content_id("rated", *place, one.instruction.id, name),
            prompt=one.instruction.text,
            response=reply.text or "",  # with its reasoning, which is part of the action
            domain=one.instruction.domain,
            builder=one.member.name,
            instruction=one.instruction.id,
            writer=one.member.name,
            response_id=reply.request_id,
            advantage=gains.get(name),
            truncated=reply.truncated,
            drop=_gap(reply, truncated) or drop,
        )
        for name, reply in zip(one.names, one.responses, strict=True)
    ]


def _gap(reply: Response, truncated: str) -> str:
    """Why a response cannot be learned, whatever it earned."""
    if reply.error is not None:
        return "failed"
    if not (reply.text or "").strip():
        return "empty"
    return "truncated" if reply.truncated and truncated == "drop" else ""


def _metrics(
    members: Sequence[Member],
    groups: Sequence[_Group],
    labels: Mapping[str, Agreement],
    rows: Sequence[Demonstration],
    same: Same,
) -> dict[str, float]:
    """``agreement.NAME``: the share of a learner's responses that give the pseudo-label, where
    there is one; ``consistency.NAME``: its mean self-consistency over all instructions."""
    reasons = Counter(label.reason for label in labels.values())
    given = [answer for group in groups for answer in group.answers.values()]
    counts: dict[str, float] = {
        "num_instructions": len(labels),
        **sampling_metrics([group.sampled for group in groups]),
        "answers.read": sum(bool(answer) for answer in given),
        "answers.unreadable": sum(not answer for answer in given),
        "labels.found": reasons.pop("", 0),
        **{f"labels.{reason}": count for reason, count in sorted(reasons.items())},
        "num_demonstrations": sum(not row.drop for row in rows),
        **row_counts([member.name for member in members], rows),
    }
    for member in members:
        mine = [group for group in groups if group.sampled.member.name == member.name]
        rewards = [reward for group in mine for reward in group.rewards.values()]
        trust = [self_consistency([*g.answers.values()], same) for g in mine if g.answers]
        if rewards:
            counts[f"agreement.{member.name}"] = fmean(rewards)
        if trust:
            counts[f"consistency.{member.name}"] = fmean(trust)
    return counts


METHOD = Method(
    title="members sample answers, and those that the pool agrees on are rewarded (GRPO)",
    paper="RLCCF: label-free co-training by collective consensus, arXiv 2508.12338",
    kind="several",
    run=run,
    draw=fresh,
    lesson=lesson,
)
