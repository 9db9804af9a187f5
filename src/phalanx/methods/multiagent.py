"""Multiagent fine-tuning (arXiv 2501.05707): members learn from their own debates.

The pool debates every instruction (section ``debate``), and the most frequent final answer of the
last round is taken for right. A generator learns its own first answers that agree with it. A critic
learns its own last revisions that do: those of first answers that were wrong (``corrected``) and
those of a debate in which it was right throughout, mixed by the setting of that name. Nobody learns
another's words, so that members stay different, which is what the paper is about.

Assumes final answers that can be read and compared. Deviations:

* The paper makes N generators and N critics out of one base. Here the members of the pool are one
  or the other, and all of them take part in every round, so that a critic has a first answer of its
  own to correct.
* A critic learns its last revision alone, not all turns of its debate: revisions between may be
  wrong. With two rounds, the default, that is the same.
* Equal votes, and an answer that one member alone gives, are no majority: nobody learns from them.
* A first answer that cannot be read was neither right nor wrong, and who gave up a right answer on
  the way was not right throughout: neither is learned by a critic (``unsettled``).
* A revision of a prompt that had to be shortened is not learned (``shortened``).
* Where the share of corrected answers cannot be had, the kind that is too frequent is thinned by
  lot (``surplus``). Where there is none of one kind, the other is used alone.
* The summary of a debate (``debate.summariser``) has no part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from phalanx.collective.consensus import Agreement, agreed
from phalanx.collective.conversation import Answer
from phalanx.collective.debate import Debated, debate, slot_of
from phalanx.collective.mixture import Proposal
from phalanx.config.mixing import critics_of, debaters_of, named
from phalanx.config.schema import Config, MultiagentSettings
from phalanx.identity import derived_random
from phalanx.methods.demonstrations import of_answer, refuse_nothing, row_counts
from phalanx.methods.method import Method, fresh
from phalanx.pool import learners
from phalanx.tasks.comparing import reader_of
from phalanx.types import (
    Ask,
    Demonstration,
    Instruction,
    Iteration,
    IterationResult,
    Message,
    Request,
    Response,
)

GENERATOR, CRITIC = "generator", "critic"
CORRECTED, KEPT = "corrected", "kept"
"""What a revision of a critic did to its first answer: both end with the majority's answer."""


def lesson(config: Config, number: int, name: str) -> str:
    """A debater learns what it wrote as a generator or as a critic; others learn nothing."""
    if name not in debaters_of(config):
        return ""
    return f"demonstrations:{_builder(config, name)}"


def _builder(config: Config, name: str) -> str:
    return f"{CRITIC if name in critics_of(config) else GENERATOR}.{name}"


@dataclass
class _Noted:
    """An ``ask`` that keeps what was asked: a critic learns from the prompt that it revised by."""

    ask: Ask
    turns: dict[str, tuple[Message, ...]] = field(default_factory=dict)

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        for request in requests:  # training puts the member's own system prompt in front again
            said = tuple(turn for turn in request.messages if turn.role != "system")
            self.turns[request.id] = said
        return self.ask(phase, requests)


@dataclass(frozen=True)
class _Course:
    """One debate, and what it came to. ``turns`` has what was asked, by the request's id."""

    instruction: Instruction
    debated: Debated
    settings: MultiagentSettings
    turns: dict[str, tuple[Message, ...]]
    place: tuple

    def final(self, said: Proposal) -> str:
        """The final answer that was given; "" where there is none, or it may not count."""
        cut = said.response.truncated and self.settings.truncated == "drop"
        return "" if cut else reader_of(self.settings.match)[0](said.text)

    @cached_property
    def verdict(self) -> Agreement:
        """What the answers with which the debate ended agree on."""
        votes = {f"{one.member}#{one.sample}": self.final(one) for one in self.debated.last}
        return agreed(votes, same=reader_of(self.settings.match)[1])

    def gap(self, said: Proposal) -> str:
        """Why a final answer is not to be learned."""
        if self.verdict.reason:
            return self.verdict.reason
        answer, same = self.final(said), reader_of(self.settings.match)[1]
        if not answer:
            return "unreadable"
        return "" if same(answer, self.verdict.answer) else "minority"

    def said(self, name: str) -> list[Proposal]:
        """What a member said in each round in which it was asked; of several seats, the first."""
        return [one for made in self.debated.rounds for one in made if slot_of(one) == (name, 0)]


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One row for every debate of every learner in it, to be learned or with the reason why not.

    Raises ConfigError for debaters that are no members, and JudgmentError for a learner that has
    nothing to learn because its requests failed.
    """
    settings = config.multiagent
    names = debaters_of(config)
    known = named(names, iteration.members, "debate.debaters")
    noted, place = _Noted(ask), (iteration.seed, iteration.number)
    debated = debate(
        [(Message("user", instruction.text),) for instruction in iteration.instructions],
        [[known[name] for name in names]] * config.debate.rounds,
        noted,
        config.debate.sample,
        place=place,
    )
    courses = [
        _Course(instruction, one, settings, noted.turns, place)
        for instruction, one in zip(iteration.instructions, debated, strict=True)
    ]
    critics = critics_of(config)
    rows, counts = list[Demonstration](), Counter[str]()
    builders = []
    for member in learners(iteration.members):
        if member.name not in names:
            continue
        builder = _builder(config, member.name)
        if member.name in critics:
            made = _critic_rows(builder, member.name, courses, iteration, settings, counts)
        else:
            made = [_generator_row(builder, member.name, one, settings) for one in courses]
        refuse_nothing(builder, made, "multiagent.truncated", only_failed=True)
        builders.append(builder)
        rows += made
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        faded=iteration.faded,
        demonstrations=tuple(rows),
        metrics=_metrics(courses, builders, rows, counts),
    )


def _generator_row(
    builder: str, name: str, course: _Course, settings: MultiagentSettings
) -> Demonstration:
    """A member's first answer, learned where it is that of the majority at the end."""
    first = course.said(name)[0]
    answer = Answer.of(first.response, name)
    drop = course.gap(first)
    return of_answer(
        builder, course.instruction, answer, settings.truncated, place=course.place, drop=drop
    )


def _critic_rows(
    builder: str,
    name: str,
    courses: Sequence[_Course],
    iteration: Iteration,
    settings: MultiagentSettings,
    counts: Counter[str],
) -> list[Demonstration]:
    """A member's last revisions, thinned to the share of corrected ones that is wanted."""
    rows, kinds = [], []
    for course in courses:
        said = course.said(name)
        last, kind = said[-1], _kind([course.gap(one) for one in said])
        answer = Answer.of(last.response, name)
        if len(said) == 1:  # there was nobody to read
            drop = "unrevised"
        elif not (drop := course.gap(last)) and last.response.num_shortened_tokens:
            drop = "shortened"  # the prompt of the row is the whole one
        rows.append(
            of_answer(
                builder,
                course.instruction,
                answer,
                settings.truncated,
                place=course.place,
                turns=course.turns[last.response.request_id],
                drop=drop or ("" if kind else "unsettled"),
            )
        )
        kinds.append(kind)
    found = {
        kind: [row.id for row, its in zip(rows, kinds, strict=True) if its == kind and not row.drop]
        for kind in (CORRECTED, KEPT)
    }
    wanted = mixed(len(found[CORRECTED]), len(found[KEPT]), settings.corrected)
    taken: set[str] = set()
    for (kind, ids), count in zip(found.items(), wanted, strict=True):
        rng = derived_random("critic", iteration.seed, iteration.number, name, kind)
        taken |= set(rng.sample(ids, count))
        counts[f"{kind}.{name}"] = count
    return [row if row.drop or row.id in taken else replace(row, drop="surplus") for row in rows]


def _kind(gaps: Sequence[str]) -> str:
    """What a member's revisions did to its first answer, from the gap of each of its answers; ""
    where neither: the first one could not be read, or a right one was given up on the way."""
    if gaps[0] == "minority":
        return CORRECTED
    return "" if any(gaps) else KEPT


def mixed(corrected: int, kept: int, share: float) -> tuple[int, int]:
    """How many of each kind are learned: as many as possible with that ``share`` of corrected ones.

    Where there is none of a kind, all of the other, unless the share is 0 or 1.

    >>> mixed(3, 10, 0.5), mixed(3, 10, 0.25), mixed(0, 10, 0.5), mixed(3, 10, 1.0)
    ((3, 3), (3, 9), (0, 10), (3, 0))
    """
    if share in (0, 1):
        return (corrected, 0) if share else (0, kept)
    if not corrected or not kept:
        return corrected, kept
    most_kept = corrected * (1 - share) / share
    most_corrected = kept * share / (1 - share)
    return round(min(corrected, most_corrected)), round(min(kept, most_kept))


def _metrics(
    courses: Sequence[_Course],
    builders: Sequence[str],
    rows: Sequence[Demonstration],
    counts: Counter[str],
) -> dict[str, float]:
    """``agreement.NAME``: the share of a learner's first answers that are the majority's at the
    end, where there is one; ``corrected.NAME`` and ``kept.NAME``: rows of each kind it learns."""
    reasons = Counter(course.verdict.reason for course in courses)
    agreement = {}
    for name in (builder.partition(".")[2] for builder in builders):
        gaps = [one.gap(one.said(name)[0]) for one in courses if not one.verdict.reason]
        if gaps:
            agreement[f"agreement.{name}"] = gaps.count("") / len(gaps)
    said = [one for course in courses for made in course.debated.rounds for one in made]
    return {
        "num_instructions": len(courses),
        "debate.answers": len(said),
        "debate.without_answer": sum(not one.usable for one in said),
        "labels.found": reasons.pop("", 0),
        **{f"labels.{reason}": count for reason, count in sorted(reasons.items())},
        "num_demonstrations": sum(not row.drop for row in rows),
        **row_counts(builders, rows),
        **agreement,
        **counts,
    }


METHOD = Method(
    title="members debate; each learns those of its own answers that the majority comes to",
    paper="Multiagent Finetuning, arXiv 2501.05707",
    kind="several",
    run=run,
    draw=fresh,
    lesson=lesson,
)
