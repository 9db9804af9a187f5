"""Which member goes where: waves of bases, one after another, and whether each fits.

What the code can do is the limit. This process, or each worker process or Ray worker, has one
device and holds one base at a time (with ``resources.keep_all_loaded`` all of them); a vLLM server
holds one base, beside whatever trains. Members behind endpoints need nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from phalanx.config.schema import Config
from phalanx.plan import memory
from phalanx.plan.machines import GB
from phalanx.plan.memory import BasePlan
from phalanx.plan.rounds import Round, Training, long_text
from phalanx.plan.units import Units, server_share, tensor_parallel
from phalanx.plan.work import trained
from phalanx.pool import recruits_from
from phalanx.types import Member
from phalanx.weights.store import KEPT_BYTES

SLEEPING = int(1.5 * GB)
"""What a vLLM server that sleeps still holds on its device (assumed: its CUDA context)."""
VLLM_CPU_CACHE = 4 * GB
"""vLLM's cache on a machine without a GPU (its default, assumed)."""
HERE = ("hf", "reward")
"""Engines whose weights are in this process, or its workers."""


@dataclass(frozen=True, slots=True)
class Held:
    """One base in a wave. ``rows``: requests or examples of a batch; ``parts`` in bytes.

    ``wanted`` rows were asked for; fewer where memory is short. ``whole``: all weights train, and
    ``adapters`` are their gradients and moments.
    """

    base: BasePlan
    members: tuple[str, ...]
    weights: int
    adapters: int
    batch: int
    rows: int
    wanted: int
    whole: bool = False

    @property
    def resident(self) -> int:
        return self.weights + self.adapters


@dataclass(frozen=True, slots=True)
class Wave:
    """Bases that are in memory together. ``room`` in bytes; None where the device is unknown.

    ``server``: a vLLM server holds them, not this process. ``beside`` is what something else
    holds on the same device meanwhile.
    """

    phase: str
    held: tuple[Held, ...]
    room: int | None
    server: bool = False
    beside: int = 0

    @property
    def needed(self) -> int:
        return sum(held.resident for held in self.held) + max(held.batch for held in self.held)

    @property
    def fits(self) -> bool:
        """Unknown sizes and devices are given the benefit of the doubt."""
        return self.room is None or self.needed <= self.room

    @property
    def scores(self) -> bool:
        """Whether it is a reward model, which is in memory beside the base that answers."""
        engines = {m.engine for held in self.held for m in held.base.members}
        return engines == {"reward"}

    @property
    def key(self) -> tuple[str, str]:
        """What this wave is, whatever the settings: to compare plans."""
        return self.phase, ",".join(held.base.base for held in self.held)


@dataclass(frozen=True, slots=True)
class Placement:
    """Waves of every phase in the order in which they come, and where members without any are.

    ``keeps_all``: every unit holds all bases at once (``resources.keep_all_loaded``).
    """

    units: Units
    waves: tuple[Wave, ...]
    behind: dict[str, tuple[str, ...]]
    scripted: tuple[str, ...]
    keeps_all: bool

    def of(self, phase: str) -> tuple[Wave, ...]:
        return tuple(wave for wave in self.waves if wave.phase == phase)

    def rows(self, base: BasePlan, wanted: int) -> int:
        """Requests in a batch of that base in this process: ``wanted``, or as memory allows."""
        held = self.serving(base, server=False)
        return wanted if held is None or held.rows == held.wanted else min(wanted, held.rows)

    def serving(self, base: BasePlan, server: bool) -> Held | None:
        """The base as it serves here, or in a vLLM server."""
        for wave in self.of("serve"):
            for held in wave.held:
                if held.base == base and wave.server == server:
                    return held
        return None


def place(
    config: Config,
    members: Sequence[Member],
    bases: Sequence[BasePlan],
    units: Units,
    rounds: Sequence[Round],
    instruction_tokens: int,
) -> Placement:
    """The placement of every member in every phase; fits or not is for the waves to say."""
    length = memory.longest_request(config, rounds, instruction_tokens)
    request = (length, memory.longest_scored(rounds))
    served = _server_waves(config, bases, units, length)
    beside = units.one_device * max((wave.needed for wave in served), default=0)
    waves = _recruit_waves(config, bases, units, instruction_tokens)
    waves += served + _serve_waves(config, bases, units, request, beside)
    resting = _resting(config, served, units)
    for training in _trainings(rounds):
        waves += _train_waves(config, training, bases, units, resting)
    endpoints: dict[str, tuple[str, ...]] = {}
    for member in members:
        if member.engine == "openai":
            endpoints[member.endpoint] = (*endpoints.get(member.endpoint, ()), member.name)
    scripted = tuple(member.name for member in members if member.engine == "scripted")
    keeps_all = config.resources.keep_all_loaded
    return Placement(units, tuple(waves), endpoints, scripted, keeps_all)


def _waves(
    config: Config, phase: str, held: Sequence[Held], room: int | None, beside: int
) -> list[Wave]:
    """A wave for each base, or one for all where all are kept loaded."""
    if not held:
        return []
    together = [tuple(held)] if config.resources.keep_all_loaded else [(one,) for one in held]
    return [Wave(phase, group, room, beside=beside) for group in together]


def _of_engine(base: BasePlan, engines: Sequence[str]) -> list[Member]:
    return [member for member in base.members if member.engine in engines]


def _held(
    config: Config,
    bases: Sequence[BasePlan],
    engine: str,
    units: Units,
    request: tuple[int, int],
    beside: int,
) -> list[Held]:
    """What each base takes that answers for members of this engine."""
    return [
        _serving(config, base, mine, units, request, beside)
        for base in bases
        if (mine := _of_engine(base, [engine]))
    ]


def _serve_waves(
    config: Config,
    bases: Sequence[BasePlan],
    units: Units,
    request: tuple[int, int],
    beside: int,
) -> list[Wave]:
    held = _held(config, bases, "hf", units, request, beside)
    if config.resources.keep_all_loaded and len(held) > 1:
        others = sum(one.resident for one in held)
        held = [
            _serving(
                config, one.base, _of_engine(one.base, ["hf"]), units, request,
                beside + others - one.resident,
            )
            for one in held
        ]  # fmt: skip
    waves = _waves(config, "serve", held, _less(units.room, beside), beside)
    resident = max((sum(one.resident for one in wave.held) for wave in waves), default=0)
    return waves + _reward_waves(config, bases, units, request, beside + resident)


def _reward_waves(
    config: Config,
    bases: Sequence[BasePlan],
    units: Units,
    request: tuple[int, int],
    beside: int,
) -> list[Wave]:
    """Reward models, one at a time beside the base that answers, in this process."""
    held = _held(config, bases, "reward", units, request, beside)
    return _waves(config, "serve", held, _less(units.room, beside), beside)


def _less(room: int | None, beside: int) -> int | None:
    return None if room is None else max(0, room - beside)


def _serving(
    config: Config,
    base: BasePlan,
    members: Sequence[Member],
    units: Units,
    request: tuple[int, int],
    beside: int,
) -> Held:
    """A base that serves: as many requests in a batch as fit, and one at least.

    ``request``: tokens of the longest one, and those whose likelihood is asked.
    """
    length, scored = request
    lora, merged = config.pair_training.lora, config.resources.merge_adapters
    learning = {member.name for member in trained(config, base.members)}
    recruited = {member.name for member in recruits_from(config)}
    sizes = [
        memory.adapter_bytes(base, member, lora, member.name in learning | recruited)
        for member in members
    ]
    adapters = max(sizes)
    if merged:
        adapters = min(sum(sizes), max(adapters, KEPT_BYTES))
    weights = base.weights
    if merged and adapters and not units.gpu:
        weights += memory.untouched_copy(base, lora)
    row = memory.row_bytes(base, length, scored)
    wanted = memory.rows_wanted(config, length)
    rows = _rows_that_fit(_less(units.room, beside + weights + adapters), row, wanted)
    names = tuple(member.name for member in members)
    return Held(base, names, weights, adapters, rows * row, rows, wanted)


def _rows_that_fit(room: int | None, row: int, wanted: int) -> int:
    """Batches that do not fit are halved, down to one request (engines.hf)."""
    rows = wanted
    while rows > 1 and room is not None and rows * row > room:
        rows //= 2
    return rows


def _server_waves(
    config: Config, bases: Sequence[BasePlan], units: Units, length: int
) -> list[Wave]:
    """One vLLM server for each base, one after another or all at once."""
    held = []
    mine = [base for base in bases if _of_engine(base, ["vllm"])]
    if config.vllm.url or not mine:  # a server that runs elsewhere is not ours to reckon with
        return []
    at_once = len(mine) if config.resources.keep_all_loaded else 1
    for base in mine:
        members = _of_engine(base, ["vllm"])
        lora = config.pair_training.lora
        learning = {member.name for member in trained(config, members)}
        adapters = sum(
            memory.adapter_bytes(base, member, lora, member.name in learning) for member in members
        ) // (memory.ADAPTER_BYTES // base.width if base.width < memory.ADAPTER_BYTES else 1)
        row = length * memory.kv_bytes(base)
        weights = base.weights // tensor_parallel(config)
        space = units.server_room(server_share(config))
        cache = VLLM_CPU_CACHE if not units.server_gpu else 0
        if space is not None and units.server_gpu:
            cache = max(row, space // at_once - weights - adapters)
        rows = max(1, min(config.vllm.max_concurrency, (cache // row) if row and cache else 1))
        names = tuple(member.name for member in members)
        wanted = config.vllm.max_concurrency
        held.append(Held(base, names, weights, adapters, cache, rows, wanted))
    room = units.server_room(server_share(config))
    if config.resources.keep_all_loaded and len(held) > 1:
        share = None if room is None else room // len(held)
        return [Wave("serve", (one,), share, server=True) for one in held]
    return [Wave("serve", (one,), room, server=True) for one in held]


def _resting(config: Config, served: Sequence[Wave], units: Units) -> int:
    """Bytes that vLLM servers hold on the training device while members train."""
    if not served or not units.one_device:
        return 0
    at_once = len(served) if config.resources.keep_all_loaded else 1
    match units.server_rest(config):
        case "keep":
            return at_once * max(wave.needed for wave in served)
        case "sleep":
            return at_once * SLEEPING
        case _:
            return 0


def _trainings(rounds: Sequence[Round]) -> list[Training]:
    """One of each kind: that with the longest texts, of every member that learns so."""
    kinds: dict[str, Training] = {}
    for training in (training for one in rounds for training in one.trainings):
        other = kinds.get(training.phase, training)
        longer = max(other, training, key=lambda one: one.long)
        kinds[training.phase] = replace(longer, examples=other.examples | training.examples)
    return list(kinds.values())


def _train_waves(
    config: Config,
    training: Training,
    bases: Sequence[BasePlan],
    units: Units,
    beside: int,
) -> list[Wave]:
    held = [
        _training(config, base, mine, units, training)
        for base in bases
        if (mine := [member for member in base.members if member.name in training.examples])
    ]
    return _waves(config, training.phase, held, _less(units.room, beside), beside)


def _recruit_waves(
    config: Config, bases: Sequence[BasePlan], units: Units, instruction_tokens: int
) -> list[Wave]:
    recruit = config.pool.recruit
    if recruit is None:
        return []
    answer = config.answer.max_new_tokens
    training = Training(
        phase="recruit",
        settings=recruit.train,
        examples=dict.fromkeys((member.name for member in recruits_from(config)), 0),
        texts=1,
        most=instruction_tokens + answer,
        usual=instruction_tokens + answer,
        long=long_text(recruit.train, instruction_tokens, answer),
    )
    return _train_waves(config, training, bases, units, 0)


def _training(
    config: Config,
    base: BasePlan,
    members: Sequence[Member],
    units: Units,
    training: Training,
) -> Held:
    """One member after another on the untouched base; a batch is never made smaller by itself."""
    settings = training.settings
    optimiser = max(memory.optimiser_bytes(base, m, settings, units.gpu) for m in members)
    weights, whole = base.weights, settings.is_full
    serves_merged = config.resources.merge_adapters and bool(_of_engine(base, ["hf"]))
    if whole:  # in float32, in place of the base that served
        weights = (base.parameters or 0) * memory.FLOAT
    elif serves_merged and not units.gpu and training.phase != "recruit":
        weights += memory.untouched_copy(base, settings.lora)
    rows = settings.batch_size
    batch = memory.training_batch(base, rows * training.texts, training.long, units.gpu)
    names = tuple(member.name for member in members)
    return Held(base, names, weights, optimiser, batch, rows, rows, whole)
