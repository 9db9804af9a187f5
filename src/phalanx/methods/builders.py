"""Who writes the demonstrations of stage 1: the mixture, and the baselines of the paper.

A builder is two things: the conversations that it wants answered, each with the name of its
writer, and an answerer for them. All builders of a stage ask from the same place of the run, so
that an answer of a teacher that several of them need is one request: a teacher's answer is its
proposal of the first layer (sample 0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from phalanx.collective.conversation import Answer, Answerer, Asked, transcript
from phalanx.collective.mixture import Mixture, answer_request, mix
from phalanx.collective.referee import Candidate, Ranked, rank_by
from phalanx.config.mixing import BUILDERS, MIXTURE, TEACHER, named, ranker_of
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import derive_seed, derived_random
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Iteration,
    Judgment,
    Member,
    Outcome,
    Response,
)

CONVERSATION = "Go on with this conversation: answer its last message."
"""Above a conversation, where judges of an answer are shown it in the place of a question."""


@dataclass
class Bench:
    """What builders work with, and what they leave beside their answers.

    ``teachers`` are whose answers the baselines learn: the configured members of the mixture, not
    the students that have joined it. ``counts`` become metrics; the duels and what follows are
    those of ``best_of``.
    """

    iteration: Iteration
    mixture: Mixture
    members: Sequence[Member]
    ask: Ask
    config: Config
    teachers: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    duels: list[Duel] = field(default_factory=list)
    responses: dict[tuple[str, str], str] = field(default_factory=dict)
    judgments: list[Judgment] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        return (self.iteration.seed, self.iteration.number)


@dataclass(frozen=True, slots=True)
class Builder:
    """``asked`` lists (instruction, writer) of the conversations; ``answer`` answers them."""

    asked: list[tuple[Instruction, str]]
    answer: Answerer


def builder_of(name: str, bench: Bench) -> Builder:
    """The builder of that name (``moaa.students[].data``). Raises ConfigError for another one."""
    instructions = bench.iteration.instructions
    if name.startswith(TEACHER):
        teacher = name.removeprefix(TEACHER)
        return Builder([(i, teacher) for i in instructions], _by_writer(bench))
    if name not in BUILDERS:
        raise ConfigError(
            f"moaa.students: data is {name!r}; expected {', '.join(BUILDERS)}, {TEACHER}NAME or "
            "none"
        )
    return _MAKERS[name](bench)


def _mixture(bench: Bench) -> Builder:
    return Builder([(i, MIXTURE) for i in bench.iteration.instructions], _by_mixture(bench))


def _combined(bench: Bench) -> Builder:
    """Every teacher's answer to every instruction: as many times the rows."""
    pairs = [(i, teacher) for i in bench.iteration.instructions for teacher in bench.teachers]
    return Builder(pairs, _by_writer(bench))


def _random(bench: Bench) -> Builder:
    """One teacher at random for each instruction, the same through its conversation."""
    drawn = [
        (i, derived_random("random teacher", *bench.place, i.id).choice(bench.teachers))
        for i in bench.iteration.instructions
    ]
    return Builder(drawn, _by_writer(bench))


def _best_of(bench: Bench) -> Builder:
    """All teachers answer each turn, and the ranker's favourite becomes the turn's answer."""
    return Builder([(i, "") for i in bench.iteration.instructions], _by_ranker(bench))


_MAKERS: dict[str, Callable[[Bench], Builder]] = dict(
    zip(BUILDERS, (_mixture, _combined, _random, _best_of), strict=True)
)


# Answerers ---------------------------------------------------------------------------------------


def _by_mixture(bench: Bench) -> Answerer:
    def answer(waiting: Sequence[Asked]) -> list[Answer]:
        turns = [asked.turns for asked in waiting]
        answers = []
        for mixed in mix(turns, bench.mixture, bench.ask, place=bench.place):
            for proposal in mixed.proposals:
                bench.counts[f"proposals.asked.{proposal.member}"] += 1
                bench.counts[f"proposals.left_out.{proposal.member}"] += not proposal.usable
            bench.counts["mixed.asked"] += 1
            bench.counts["mixed.without_answer"] += mixed.response is None
            if (reply := mixed.response) is not None:  # its text is the answer alone already
                answer = Answer(MIXTURE, reply.text or "", reply.request_id, reply.truncated)
                answers.append(replace(answer, reasoned=mixed.reasoned))
            else:
                why = mixed.reason.partition(":")[0]
                bench.counts[f"mixed.without_answer.{why}"] += 1
                answers.append(Answer(MIXTURE, drop=why))
        return answers

    return answer


def _teacher_replies(wanted: Sequence[tuple[Asked, str]], bench: Bench) -> list[Response]:
    """The answers of (conversation, teacher): the same requests whichever builder asks."""
    known = named([name for _, name in wanted], bench.members, "moaa.students")
    settings = bench.config.mixture.propose
    requests = [
        answer_request(known[name], asked.turns, settings, place=bench.place)
        for asked, name in wanted
    ]
    return bench.ask("teachers", requests)


def _by_writer(bench: Bench) -> Answerer:
    """Each conversation is answered by the teacher that is its writer."""

    def answer(waiting: Sequence[Asked]) -> list[Answer]:
        replies = _teacher_replies([(asked, asked.writer) for asked in waiting], bench)
        return [
            Answer.of(reply, asked.writer) for asked, reply in zip(waiting, replies, strict=True)
        ]

    return answer


def _by_ranker(bench: Bench) -> Answerer:
    """The best of all teachers' answers, as the ranker sees them."""

    def answer(waiting: Sequence[Asked]) -> list[Answer]:
        wanted = [(asked, name) for asked in waiting for name in bench.teachers]
        replies = iter(_teacher_replies(wanted, bench))
        groups = [
            (asked, [Answer.of(next(replies), name) for name in bench.teachers])
            for asked in waiting
        ]
        competing = [(asked, _competing(asked, answers, bench)) for asked, answers in groups]
        ranked = iter(_ranked([group for group in competing if _differ(group[1])], bench))
        chosen = []
        for (_, answers), (_, usable) in zip(groups, competing, strict=True):
            if _differ(usable):
                chosen.append(_favourite(usable, next(ranked), bench))
            else:  # one text needs no ranker; where there is none, an answer says why
                bench.counts["best_of.unranked"] += 1
                chosen.append(usable[0] if usable else answers[0])
        return chosen

    return answer


def _competing(asked: Asked, answers: Sequence[Answer], bench: Bench) -> list[Answer]:
    """Those that are answers; truncated ones, where they are not learned, only if all are.

    Shuffled, so that where the ranker likes two alike no teacher comes first by its place.
    """
    usable = [answer for answer in answers if not answer.drop]
    if bench.config.moaa.truncated == "drop":
        usable = [answer for answer in usable if not answer.truncated] or usable
    derived_random("best_of", *bench.place, asked.instruction.id, asked.number).shuffle(usable)
    return usable


def _differ(answers: Sequence[Answer]) -> bool:
    return len({answer.text.strip() for answer in answers}) > 1


def _ranked(groups: Sequence[tuple[Asked, Sequence[Answer]]], bench: Bench) -> Sequence[Ranked]:
    """What the ranker says of each group; its verdicts stay on the bench."""
    if not groups:
        return ()
    candidates = [
        (_as_instruction(asked), [_candidate(answer) for answer in answers])
        for asked, answers in groups
    ]
    number = groups[0][0].number  # all conversations are at the same turn
    judge = ranker_of(bench.config)
    place = (*bench.place, "best_of", number)
    found = rank_by(judge, candidates, bench.members, bench.ask, bench.config, place=place)
    bench.duels += found.duels
    bench.judgments += found.judgments
    bench.outcomes += found.outcomes
    bench.counts.update(found.metrics)
    # A duel's instruction is found by its id: there is one group for each in a turn.
    ids = {(i.id, c.name): c.response_id for i, some in candidates for c in some}
    for duel in found.duels:
        for name in duel.contestants:
            bench.responses[duel.id, name] = ids[duel.instruction.id, name]
    return found.ranked


def _candidate(answer: Answer) -> Candidate:
    """A teacher's answer; ``ada#1``, since nobody may judge duels of their own name."""
    return Candidate(f"{answer.writer}#1", answer.text, answer.response_id, answer.truncated)


def _as_instruction(asked: Asked) -> Instruction:
    """What judges are told is answered: the first turn, or the conversation up to the last one.

    Those that judge by a prompt read a transcript. Reward models and likelihoods get the turns.
    """
    if asked.number == 0:
        return replace(asked.instruction, later=())
    seed = derive_seed("conversation", asked.instruction.id, asked.turns)
    text = f"{CONVERSATION}\n\n{transcript(asked.turns, seed)}"
    return replace(asked.instruction, text=text, later=(), turns=asked.turns)


def _favourite(answers: Sequence[Answer], ranked: Ranked, bench: Bench) -> Answer:
    """The ranker's favourite; the first of the (shuffled) answers that it likes best alike."""
    if ranked.best is not None:
        return answers[ranked.best]
    scores = [score for score in ranked.scores if score is not None]
    if not scores:
        bench.counts["best_of.unscored"] += 1
        return Answer("", drop="unscored")
    bench.counts["best_of.tied"] += scores.count(max(scores)) > 1
    return answers[ranked.scores.index(max(scores))]
