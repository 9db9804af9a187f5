"""How much duels are to do: requests and tokens, before anything is loaded.

Token counts are upper bounds: every response as long as allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from phalanx.config.mixing import students_of
from phalanx.config.schema import Config
from phalanx.config.uses import trains
from phalanx.plan.rounds import (
    USUAL_SHARE,
    VERDICT_TOKENS,
    Demand,
    Round,
    Training,
    batches_of,
    long_text,
    steps_of,
    writing,
)
from phalanx.pool import TRAINABLE, contestants, judges, learners
from phalanx.types import Member

__all__ = ["Asked", "Work", "asked_of", "batches_of", "duel_rounds", "steps_of", "work_of"]

RUBRIC_TOKENS = 120
"""Tokens of a judging prompt around the judged text."""


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one iteration. ``training_pairs`` is what one learner sees at most."""

    duels: int
    responses: int
    judgments: int
    judge_requests: int
    pairs: int
    training_pairs: int
    training_steps: int
    answer_tokens: int
    judge_tokens: int
    train_tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests that one member gets in one iteration, on average."""

    answers: float
    judgings: float


def asked_of(config: Config, members: Sequence[Member]) -> dict[str, Asked]:
    """Requests of every member, all pairs of contestants being equally likely."""
    who_judges = [member.name for member in judges(members)]
    names = [member.name for member in contestants(members)]
    duels = list(combinations(names, 2))
    share = dict.fromkeys((member.name for member in members), 0.0)
    for duel in duels:
        asked = [judge for judge in who_judges if judge not in duel]
        limit = min(config.judge.per_duel or len(asked), len(asked))
        for judge in asked:
            share[judge] += limit / len(asked) / len(duels)
    each = 2 * config.match.duels / max(1, len(names))
    # Each response alone, or both orders of the pair: two requests a judgment.
    return {
        name: Asked(each if name in names else 0.0, 2 * config.match.duels * judged)
        for name, judged in share.items()
    }


def trained(config: Config, members: Sequence[Member]) -> tuple[Member, ...]:
    """Members that learn: those with the role whose weights are here; with moaa, students."""
    if config.train.method == "none" or not trains(config):
        return ()
    able = tuple(member for member in learners(members) if member.engine in TRAINABLE)
    if config.method != "moaa":
        return able
    students = {student.name for student in students_of(config)}
    return tuple(member for member in able if member.name in students)


def duel_rounds(
    config: Config, members: Sequence[Member], instruction_tokens: int
) -> tuple[Round, ...]:
    """Iterations of duels, which are all alike."""
    asked, answer = asked_of(config, members), config.answer.max_new_tokens
    usual = ceil(answer * USUAL_SHARE)
    both = (instruction_tokens, instruction_tokens)
    answers = [writing(name, "answer", mine.answers, both, answer) for name, mine in asked.items()]
    judgings = [
        judging(config, name, mine.judgings, both, (answer, usual)) for name, mine in asked.items()
    ]
    names = [member.name for member in trained(config, members)]
    examples = dict.fromkeys(names, examples_of(config, members))
    training = Training(
        phase="train",
        settings=config.pair_training,
        examples=examples,
        texts=_texts(config),
        most=instruction_tokens + answer,
        usual=instruction_tokens + usual,
        long=long_text(config.pair_training, instruction_tokens, answer),
    )
    trainings = (training,) if names else ()
    return (Round("", config.iterations, (*answers, *judgings), trainings, config.match.duels),)


def judging(
    config: Config,
    judge: str,
    requests: float,
    instruction: tuple[float, float],
    response: tuple[int, int],
    protocol: str = "",
) -> Demand:
    """Requests to a judge, by ``judge.protocol``; tokens are (at most, usually)."""
    protocol = protocol or config.judge.protocol
    read, written = judge_request_tokens(config, instruction[0], response[0], protocol)
    usual_read, _ = judge_request_tokens(config, instruction[1], response[1], protocol)
    verdict = min(written, VERDICT_TOKENS)
    return Demand(
        member=judge,
        purpose="judge",
        requests=requests,
        read=read,
        written=written,
        usual_read=usual_read,
        usual=verdict,
        longest=verdict,
        # A server that cannot be told how to begin writes even a score that is read off.
        unguided=config.judge.max_new_tokens,
        scored=response[0] if protocol == "likelihood" else 0,
    )


def work_of(config: Config, members: Sequence[Member], instruction_tokens: int) -> Work:
    """The counts of one iteration."""
    duels, answer = config.match.duels, config.answer.max_new_tokens
    judgments = round(sum(asked.judgings for asked in asked_of(config, members).values()) / 2)
    pairs = max(1, round(duels * config.pairs.keep))
    learning = len(trained(config, members))
    each = examples_of(config, members) if learning else 0
    judge_tokens = ceil(sum(judge_request_tokens(config, instruction_tokens, answer)))
    settings, texts = config.pair_training, _texts(config) * learning * each
    return Work(
        duels=duels,
        responses=2 * duels,
        judgments=judgments,
        judge_requests=2 * judgments,
        pairs=pairs,
        training_pairs=each,
        training_steps=steps_of(each, settings),
        answer_tokens=2 * duels * (instruction_tokens + answer),
        judge_tokens=2 * judgments * judge_tokens,
        train_tokens=texts * (instruction_tokens + answer) * settings.epochs,
    )


def _texts(config: Config) -> int:
    """Texts that are learned of a pair: both, or the chosen one alone."""
    return 1 if config.train.method == "sft" else 2


def examples_of(config: Config, members: Sequence[Member]) -> int:
    """Pairs that one learner sees in an iteration, at most."""
    pairs = max(1, round(config.match.duels * config.pairs.keep))
    if config.train.scope == "own":
        return min(pairs, ceil(pairs * 2 / max(1, len(contestants(members)))))
    return pairs


def judge_request_tokens(
    config: Config, instruction_tokens: float, response_tokens: int, protocol: str = ""
) -> tuple[float, int]:
    """Tokens of one judging request: (read, written at most)."""
    one = instruction_tokens + response_tokens
    match protocol or config.judge.protocol:
        case "likelihood" | "reward":
            return one, 0
        case "expected":
            return one + RUBRIC_TOKENS, 0
        case "pairwise":
            return one + response_tokens + RUBRIC_TOKENS, config.judge.max_new_tokens
        case _:
            return one + RUBRIC_TOKENS, config.judge.max_new_tokens


def recruit_examples(config: Config) -> dict[str, int]:
    """Demonstrations of every recruit."""
    recruit = config.pool.recruit
    if recruit is None:
        return {}
    return {
        name: len(wanted) * recruit.examples_per_domain
        for name, wanted in recruit.specialists.items()
    }
