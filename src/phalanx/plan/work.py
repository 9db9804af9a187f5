"""How much there is to do: requests, tokens, memory and a rough time, before anything is loaded.

Token counts are upper bounds (every response as long as allowed). Seconds are a rough estimate
from parameter counts and three throughputs, for responses of half that length; :data:`CPU` was
measured, :data:`GPU` was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

from phalanx.config.machine import cores, count_gpus
from phalanx.config.schema import Config, OptimiserSettings
from phalanx.plan.sizes import Size, adapter_parameters, base_size
from phalanx.pool import contestants, judges, learners
from phalanx.types import Member

RUBRIC_TOKENS = 120
"""Tokens of a judging prompt around the judged text."""
BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}
TRAINED_BYTES = 16
"""Bytes for each trained weight: value, gradient and two moments in float32."""
FORWARD, TRAIN = 2, 6
"""Operations for each parameter and token: forward; DPO on an adapter (forward, backward through
frozen weights, and the reference's forward)."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Operations a second that a device reaches in each kind of work."""

    decode: float
    read: float
    train: float
    words: str


CPU = Speed(40e9, 250e9, 75e9, "at speeds measured with a 135M model on two cores")
"""For each core, in bfloat16: 300 tokens a second written in batches of 32, 1,900 read, and a DPO
pair of 280 tokens in 1.5 s, on two cores."""
GPU = Speed(15e12, 150e12, 80e12, "one large GPU, at speeds that are assumed, not measured")
USUAL_SHARE = 0.5
"""Length of a usual response as a share of what is allowed."""
LOAD_BYTES_A_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class BasePlan:
    """One base: who shares it and what it takes. Bytes; None where the size is unknown."""

    base: str
    members: tuple[str, ...]
    parameters: int | None
    guessed: bool
    how: str
    weights: int | None
    adapters: int | None
    training: int | None


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


def judgments_of(config: Config, members: Sequence[Member]) -> float:
    """Mean number of judges of a duel, all pairs of contestants being equally likely."""
    who_judges = {member.name for member in judges(members)}
    names = [member.name for member in contestants(members)]
    counts = [len(who_judges - set(pair)) for pair in combinations(names, 2)]
    limit = config.judge.per_duel
    counts = [min(count, limit) if limit else count for count in counts]
    return sum(counts) / len(counts) if counts else 0.0


def work_of(
    config: Config, members: Sequence[Member], instruction_tokens: int, share: float = 1.0
) -> Work:
    """The counts of one iteration, for responses of ``share`` of the allowed length."""
    duels, answer = config.match.duels, ceil(config.answer.max_new_tokens * share)
    judgments = round(duels * judgments_of(config, members))
    requests = judgments * 2  # each response alone, or both orders of the pair
    pairs = max(1, round(duels * config.pairs.keep))
    each = pairs
    if config.train.scope == "own":
        each = min(pairs, ceil(pairs * 2 / max(1, len(contestants(members)))))
    learning = len(learners(members)) if config.train.method != "none" else 0
    example = 2 * (instruction_tokens + answer)
    if learning == 0:
        each = 0
    return Work(
        duels=duels,
        responses=2 * duels,
        judgments=judgments,
        judge_requests=requests,
        pairs=pairs,
        training_pairs=each,
        training_steps=steps_of(each, config.train),
        answer_tokens=2 * duels * (instruction_tokens + answer),
        judge_tokens=requests * judge_request_tokens(config, instruction_tokens, answer),
        train_tokens=each * example * config.train.epochs * learning,
    )


def steps_of(examples: int, settings: OptimiserSettings) -> int:
    """Optimiser steps for one member."""
    return ceil(ceil(examples / settings.batch_size) / settings.accumulate) * settings.epochs


def judge_request_tokens(config: Config, instruction_tokens: int, response_tokens: int) -> int:
    """Tokens of one judging request, read and written."""
    one = instruction_tokens + response_tokens
    match config.judge.protocol:
        case "likelihood":
            return one
        case "expected":
            return one + RUBRIC_TOKENS
        case "pairwise":
            both = one + response_tokens
            return both + RUBRIC_TOKENS + config.judge.max_new_tokens
        case _:
            return one + RUBRIC_TOKENS + config.judge.max_new_tokens


def bases_of(config: Config, members: Sequence[Member], size: Size | None = None) -> list[BasePlan]:
    """One entry for each base, in pool order. ``size`` overrides what the disk says."""
    plans = []
    for base in dict.fromkeys(member.base for member in members):
        mine = [member for member in members if member.base == base]
        known = size or base_size(base)
        count = known.parameters
        bytes_each = max(BYTES[member.dtype] for member in mine)
        adapter = _adapter_bytes(config, mine, known)
        plans.append(
            BasePlan(
                base=base,
                members=tuple(member.name for member in mine),
                parameters=count,
                guessed=known.guessed,
                how=known.how,
                weights=None if count is None else count * bytes_each,
                adapters=adapter,
                training=_training_bytes(config, mine, known, adapter),
            )
        )
    return plans


def _adapter_bytes(config: Config, members: Sequence[Member], size: Size) -> int | None:
    """Two bytes a weight: adapters that exist, and one new one for each learner without."""
    total = 0
    trains = config.train.method != "none"
    new = size.shape.lora_parameters(config.train.lora) if size.shape else None
    for member in members:
        if member.engine == "scripted":
            continue
        count = adapter_parameters(member.adapter) if member.adapter else 0
        if count is None or (trains and not member.adapter and "learn" in member.roles):
            if new is None:
                return None
            count = new
        total += 2 * count
    return total


def _training_bytes(
    config: Config, members: Sequence[Member], size: Size, adapters: int | None
) -> int | None:
    """The optimiser's state of one member, and the values kept of one batch of pairs."""
    if config.train.method == "none" or not learners(members) or size.parameters == 0:
        return 0
    if size.shape is None or adapters is None:
        return None
    shape, settings = size.shape, config.train
    tokens = 2 * settings.batch_size * settings.max_length
    logits = tokens * shape.vocabulary * 4 * 2
    kept = tokens * shape.layers * (10 * shape.hidden + 3 * shape.intermediate) * 2
    return shape.lora_parameters(settings.lora) * TRAINED_BYTES + logits + kept


def device_speed(config: Config) -> Speed:
    """The device of the run and what it is assumed to reach."""
    device, gpus = config.resources.device, count_gpus()
    if device.startswith("cuda") or (device == "auto" and gpus and config.resources.gpus != 0):
        return GPU
    count = config.resources.threads or cores()
    words = f"{count} CPU core{'' if count == 1 else 's'}, {CPU.words}"
    return Speed(CPU.decode * count, CPU.read * count, CPU.train * count, words)


def seconds_of(
    config: Config,
    members: Sequence[Member],
    bases: Sequence[BasePlan],
    instruction_tokens: int,
    speed: Speed,
) -> dict[str, float] | None:
    """Seconds of one iteration by phase, or None where a base has no known size."""
    sizes = {name: plan.parameters for plan in bases for name in plan.members}
    if any(size is None for size in sizes.values()):
        return None

    def mean(group: Sequence[Member]) -> float:
        return sum(sizes[member.name] or 0 for member in group) / max(1, len(group))

    work = work_of(config, members, instruction_tokens, USUAL_SHARE)
    read = work.responses * instruction_tokens
    answer = read / speed.read + (work.answer_tokens - read) / speed.decode
    writes = config.judge.protocol in ("rubric", "pairwise")
    verdicts = work.judge_requests * config.judge.max_new_tokens if writes else 0
    judge = (work.judge_tokens - verdicts) / speed.read + verdicts / speed.decode
    seconds = {
        "answer": mean(contestants(members)) * FORWARD * answer,
        "judge": mean(judges(members)) * FORWARD * judge,
        "train": mean(learners(members)) * TRAIN * work.train_tokens / speed.train,
    }
    if len(bases) > 1 and not config.resources.keep_all_loaded:
        loading = sum(plan.weights or 0 for plan in bases) / LOAD_BYTES_A_SECOND
        seconds["load"] = loading * 3  # once to answer, once to judge, once to train
    return seconds
