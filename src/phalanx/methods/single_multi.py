"""Single-multi evolution loop (arXiv 2602.05182): members learn what they reach together.

In every iteration the collective (``single_multi.collective``: a debate, a council, a mixture, or
the best of n) answers fresh instructions, every learner learns its answers by supervised
fine-tuning, and the next iteration's collective is made of the members as they then are.

Assumes a collective that answers better than its members; where it does not, its members are taught
mistakes, and grow alike. What is ours:

* Every learner learns the same rows, those that it wrote itself among them.
* The collective is that of the section of its name, and answers as it does when it is measured.
  Nothing here is another implementation.
* An answer that the collective could not reach teaches nothing, and is counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.collective.conversation import Answer
from phalanx.config.base import sampling
from phalanx.config.mixing import collective_writes
from phalanx.config.schema import Config
from phalanx.methods import best_of_n, council, debate, mixture
from phalanx.methods.answering import verdicts_in
from phalanx.methods.demonstrations import of_answer, refuse_nothing, row_counts
from phalanx.methods.method import Answer as AnswerTogether
from phalanx.methods.method import Method, Question, Reached, fresh
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

BUILDER = "collective"
_COLLECTIVES: dict[str, AnswerTogether] = {
    "debate": debate.answer,
    "council": council.answer,
    "mixture": mixture.answer,
    "best_of_n": best_of_n.answer,
}


def lesson(config: Config, number: int, name: str) -> str:
    """Every learner learns what the collective answered."""
    return f"demonstrations:{BUILDER}"


def run(iteration: Iteration, ask: Ask, config: Config) -> IterationResult:
    """One row for every instruction, to be learned or with the reason why there is no answer.

    Raises ConfigError for a collective that the configuration does not allow, and JudgmentError
    where it answered nothing at all.
    """

    def ask_here(phase: str, requests: Sequence[Request]) -> list[Response]:
        return ask(phase.removeprefix("evaluate "), requests)  # nobody is measured by this

    settings, place = config.single_multi, (iteration.seed, iteration.number)
    reached = _COLLECTIVES[settings.collective](
        [_question(instruction, config) for instruction in iteration.instructions],
        iteration.members,
        ask_here,
        config,
        best="",  # not known while members learn: those that need it are named
        want=sampling(collective_writes(config)[1]),
        place=place,
    )
    rows = [
        _row(instruction, one, config, place)
        for instruction, one in zip(iteration.instructions, reached, strict=True)
    ]
    refuse_nothing(BUILDER, rows, "single_multi.truncated")
    return IterationResult(
        standings=iteration.standings,
        reliability=iteration.reliability,
        faded=iteration.faded,
        demonstrations=tuple(rows),
        metrics=_metrics(reached, rows),
    )


def _question(instruction: Instruction, config: Config) -> Question:
    turns = (Message("user", instruction.text),)
    if config.single_multi.match == "none":
        return Question(instruction.id, turns)
    read, same = reader_of(config.single_multi.match)
    return Question(instruction.id, turns, read, same)


def _row(instruction: Instruction, one: Reached, config: Config, place: tuple) -> Demonstration:
    if one.response is None:
        reason = one.reason.partition(":")[0].replace(" ", "_")
        answer = Answer(one.writer, drop=reason)
    else:
        answer = Answer.of(one.response, one.writer)
    return of_answer(BUILDER, instruction, answer, config.single_multi.truncated, place=place)


def _metrics(reached: Sequence[Reached], rows: Sequence[Demonstration]) -> dict[str, float]:
    """``collective.*`` are the collective's own counts, ``written.NAME`` the rows of a member."""
    counts: Counter[str] = Counter()
    for one in reached:
        counts.update(one.counts)
    verdicts, silent = verdicts_in(counts)
    written = Counter(row.writer for row in rows if not row.drop)
    return {
        "num_instructions": len(rows),
        "num_demonstrations": sum(not row.drop for row in rows),
        **row_counts([BUILDER], rows),
        **{f"written.{name}": count for name, count in sorted(written.items())},
        **{f"collective.{key}": count for key, count in counts.items()},
        **({"num_judgments": verdicts, "num_unreadable": silent} if verdicts else {}),
    }


METHOD = Method(
    title="a collective of the members answers, and every member learns its answers; again",
    paper="Single-Multi Evolution Loop, arXiv 2602.05182",
    kind="several",
    run=run,
    draw=fresh,
    lesson=lesson,
)
