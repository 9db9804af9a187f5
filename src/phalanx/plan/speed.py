"""A rough time, from sizes and speeds. On a CPU speeds were measured; on a GPU they are reckoned.

GPU: a roofline. Writing is bound by memory bandwidth: each step reads the weights and the caches
of the whole batch. Reading and training are bound by operations. Neither is ever reached, so
both are multiplied by a share, and a step of the in-process engine takes at least a millisecond a
layer, which is what launching its kernels from Python takes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.config.machine import cores as cores_here
from phalanx.config.schema import Config
from phalanx.plan import memory
from phalanx.plan.memory import BasePlan
from phalanx.plan.placement import HERE, Placement
from phalanx.plan.rounds import Demand, Round, Training, batches_of
from phalanx.plan.units import Units
from phalanx.plan.work import recruit_examples

__all__ = ["Times", "times_of", "words"]

RECRUIT_TOKENS = 60
"""Tokens of a usual demonstration beside its instruction."""
COMPUTE_SHARE, BANDWIDTH_SHARE = 0.4, 0.6
"""Shares of a GPU's operations and bandwidth that are reckoned with."""
LAYER_S = 0.001
"""Least seconds a layer and step of the in-process engine on a GPU; training takes three times."""
SERVER_STEP_S = 0.01
"""Least seconds a step of a vLLM server."""
SERVER_START_S = 60
"""Seconds until a vLLM server answers, beside loading its weights (54 were seen on a CPU)."""
FORWARD, TRAIN, TUNE, AGAIN, FULL = 2, 6, 4, 2, 2
"""Operations for each parameter and token: forward; DPO on an adapter (forward, backward through
frozen weights, the reference's forward); fine-tuning an adapter; activations computed again; what
gradients of all weights add."""
LOAD_BYTES_A_SECOND = 1e9
SWITCH_BYTES_A_SECOND = 5e9
"""Loading a base; setting its weights to those of another member."""


@dataclass(frozen=True, slots=True)
class CpuSpeed:
    """Operations a second of one core in each kind of work."""

    write: float
    read: float
    train: float


CPU = CpuSpeed(40e9, 250e9, 75e9)
"""In bfloat16: 300 tokens a second written in batches of 32, 1,900 read, and a DPO pair of 280
tokens in 1.5 s, with a 135M model on two cores. In float32 training reached 50e9."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds by phase of one of ``count`` iterations that are alike."""

    name: str
    count: int
    each: dict[str, float]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every kind of iteration, and ``once`` a run (recruiting, all evaluation)."""

    rounds: tuple[RoundTimes, ...]
    once: dict[str, float]

    @property
    def each(self) -> dict[str, float]:
        """Seconds by phase of the first kind of iteration."""
        return self.rounds[0].each

    @property
    def total(self) -> float:
        iterations = sum(one.count * sum(one.each.values()) for one in self.rounds)
        return iterations + sum(self.once.values())


def times_of(
    config: Config,
    bases: Sequence[BasePlan],
    placement: Placement,
    instruction_tokens: int,
    rounds: Sequence[Round],
    measuring: Sequence[Demand],
) -> Times | None:
    """Seconds of a run, or None where a base has no known size. Endpoints are not counted.

    ``measuring``: requests of all evaluation.
    """
    if any(base.parameters is None for base in bases) or not placement.units.known:
        return None
    evaluation = Round("", 1, tuple(measuring))
    once = {
        "recruit": _recruit(config, bases, placement.units, instruction_tokens),
        "start servers": sum(map(_start_seconds, _servers(placement))),
        "evaluate": sum(_phases(config, bases, placement, evaluation).values()),
    }
    kept = {name: seconds for name, seconds in once.items() if seconds}
    return Times(tuple(_round(config, bases, placement, one) for one in rounds), kept)


def _round(
    config: Config, bases: Sequence[BasePlan], placement: Placement, one: Round
) -> RoundTimes:
    each = _phases(config, bases, placement, one)
    each["train"] = sum(_train(bases, placement.units, training) for training in one.trainings)
    loading = _loading(config, bases, placement, one)
    return RoundTimes(one.name, one.count, each | ({"load and switch": loading} if loading else {}))


def _phases(
    config: Config, bases: Sequence[BasePlan], placement: Placement, one: Round
) -> dict[str, float]:
    return {
        phase: _serve(config, bases, placement, [d for d in one.demands if d.when == phase])
        for phase in one.phases
    }


def _serve(
    config: Config,
    bases: Sequence[BasePlan],
    placement: Placement,
    demands: Iterable[Demand],
) -> float:
    """The longer of what goes on side by side: units on batches, a server on its own.

    Units take one batch after another, those of one member too; no more are busy than there are.
    """
    units, here, served, batches = placement.units, 0.0, 0.0, 0
    where = {member.name: (member, base) for base in bases for member in base.members}
    for demand in demands:
        if demand.member not in where or not demand.requests:
            continue  # behind an endpoint
        member, base = where[demand.member]
        if member.engine in HERE:
            planned = memory.rows_wanted(config, ceil(demand.usual_read) + demand.written)
            rows = placement.rows(base, planned)
            here += _seconds(base, demand, units, rows)
            batches += ceil(demand.requests / rows)
        elif member.engine == "vllm":
            held = placement.serving(base, server=True)
            rows = held.rows if held else config.vllm.max_concurrency
            served += _server_seconds(base, demand, units, rows)
    return max(here / max(1, min(units.count, batches)), served)


def _seconds(base: BasePlan, task: Demand, units: Units, rows: int) -> float:
    """In-process: a batch goes on until its longest response."""
    operations = FORWARD * (base.parameters or 0)
    if units.card is None:
        speed = _cores(units)
        read = task.usual_read / (CPU.read * speed)
        return task.requests * operations * (read + task.usual / (CPU.write * speed))
    flops = units.card.flops * COMPUTE_SHARE * units.share
    seconds = task.requests * task.usual_read * operations / flops
    if task.usual:
        floor = LAYER_S * (base.shape.layers if base.shape else 0)
        rows = max(1, min(rows, ceil(task.requests)))
        step = _step(base, rows, task.usual_read + task.longest, units, floor)
        seconds += task.requests / rows * task.longest * step
    return seconds


def _server_seconds(base: BasePlan, task: Demand, units: Units, rows: int) -> float:
    """vLLM: a response that ends makes room for the next at once."""
    card = units.machine.card
    operations = FORWARD * (base.parameters or 0)
    if card is None:
        speed = units.machine.cores or cores_here()
        read = task.usual_read / (CPU.read * speed)
        return task.requests * operations * (read + task.usual / (CPU.write * speed))
    seconds = task.requests * task.usual_read * operations / (card.flops * COMPUTE_SHARE)
    if task.usual and task.requests:
        rows = max(1, min(rows, ceil(task.requests)))
        context = task.usual_read + task.usual
        step = _card_step(base, rows, context, card.bandwidth, card.flops, SERVER_STEP_S)
        seconds += task.requests / rows * task.usual * step
    return seconds


def _step(base: BasePlan, rows: int, context: float, units: Units, floor: float) -> float:
    assert units.card is not None
    bandwidth, flops = units.card.bandwidth * units.share, units.card.flops * units.share
    return _card_step(base, rows, context, bandwidth, flops, floor)


def _card_step(
    base: BasePlan, rows: int, context: float, bandwidth: float, flops: float, floor: float
) -> float:
    """Seconds in which every row of a batch gets one more token."""
    moved = base.weights + rows * context * memory.kv_bytes(base)
    operations = rows * FORWARD * (base.parameters or 0)
    return max(moved / (bandwidth * BANDWIDTH_SHARE), operations / (flops * COMPUTE_SHARE), floor)


def _cores(units: Units) -> float:
    return units.cores or cores_here()


def _train(bases: Sequence[BasePlan], units: Units, training: Training) -> float:
    """One member after another on each unit; the units take the next as they become free."""
    settings = training.settings
    operations = TRAIN if training.texts == 2 else TUNE
    if settings.is_full:
        operations += FULL
    jobs = []
    for base in bases:
        for member in base.members:
            if count := training.examples.get(member.name, 0):
                tokens = float(training.texts) * count * training.usual * settings.epochs
                batches = batches_of(count, settings)
                jobs.append(_training_seconds(base, units, operations, tokens, batches))
    return _side_by_side(jobs, units.count)


def _recruit(
    config: Config, bases: Sequence[BasePlan], units: Units, instruction_tokens: int
) -> float:
    recruit = config.pool.recruit
    if recruit is None:
        return 0.0
    sizes = {member.name: base for base in bases for member in base.members}
    length, settings = instruction_tokens + RECRUIT_TOKENS, recruit.train
    jobs = [
        _training_seconds(
            sizes[name], units, TUNE, count * length * settings.epochs, batches_of(count, settings)
        )
        for name, count in recruit_examples(config).items()
    ]
    return _side_by_side(jobs, units.count)


def _training_seconds(
    base: BasePlan, units: Units, operations: int, tokens: float, batches: int
) -> float:
    per_token = (base.parameters or 0) * operations
    if units.card is None:
        return tokens * per_token / (CPU.train * _cores(units))
    if memory.checkpointed(base):
        per_token += (base.parameters or 0) * AGAIN
    floor = 3 * LAYER_S * (base.shape.layers if base.shape else 0) * batches
    return max(tokens * per_token / (units.card.flops * COMPUTE_SHARE * units.share), floor)


def _side_by_side(jobs: Sequence[float], count: int) -> float:
    """When the last of ``count`` workers is done, each taking the next job as it becomes free."""
    free = [0.0] * count
    for job in jobs:
        heapq.heappush(free, heapq.heappop(free) + job)
    return max(free)


def _loading(config: Config, bases: Sequence[BasePlan], placement: Placement, one: Round) -> float:
    """Seconds an iteration for bases that come and go, and members that follow each other."""
    units, phases = placement.units, len(one.phases)
    seconds = 0.0
    turns = [("serve", phases), *((training.phase, 1) for training in one.trainings)]
    for phase, times in turns:
        mine = [wave for wave in placement.of(phase) if not wave.server]
        if len(mine) > 1:
            weights = sum(held.base.weights for wave in mine for held in wave.held)
            seconds += times * weights / LOAD_BYTES_A_SECOND / min(units.count, len(mine))
    switched = sum(
        base.weights
        for base in bases
        for member in base.members
        if member.engine == "hf" and config.resources.merge_adapters
    )
    servers = _servers(placement)
    if len(servers) > 1 and not config.resources.keep_all_loaded:
        seconds += phases * sum(map(_start_seconds, servers))
    elif units.server_rest(config) == "stop":
        seconds += sum(map(_start_seconds, servers))
    return seconds + phases * 2 * switched / SWITCH_BYTES_A_SECOND / units.count


def _servers(placement: Placement) -> list[BasePlan]:
    return [wave.held[0].base for wave in placement.of("serve") if wave.server]


def _start_seconds(base: BasePlan) -> float:
    return SERVER_START_S + base.weights / LOAD_BYTES_A_SECOND


def words(units: Units, served: bool) -> str:
    """What the times assume."""
    parts = []
    if units.card is not None:
        parts.append(
            f"{COMPUTE_SHARE:.0%} of the operations and {BANDWIDTH_SHARE:.0%} of the bandwidth of "
            f"{units.card.name} (its maker's figures; not measured), at least "
            f"{LAYER_S * 1000:g} ms a layer and step"
        )
    else:
        cores = _cores(units)
        parts.append(
            f"{cores:.3g} CPU core{'' if cores == 1 else 's'}, at speeds measured with a 135M "
            "model on two cores"
        )
    if units.count > 1:
        parts[0] += f", for each of {units.count} workers"
    if served:
        parts.append(f"a vLLM server at {SERVER_STEP_S * 1000:g} ms a step or slower")
    return "; ".join(parts)
