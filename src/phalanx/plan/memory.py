"""Bytes: what a base, its members, a batch and a training take. Estimates, on the high side.

They follow what the code does: served weights are base + adapter with an untouched copy in main
memory, adapters that served lately are kept, activations are recomputed in training from a
billion parameters on, and log-probabilities are computed in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.config.rules_answering import is_free
from phalanx.config.rules_tasks import is_judged
from phalanx.config.schema import Config, LoraSettings, OptimiserSettings
from phalanx.plan.rounds import Round, all_demands, longest_of
from phalanx.plan.sizes import ModelShape, Size, adapter_parameters, base_size
from phalanx.plan.stages import grading, measuring_of
from phalanx.pool import members_from
from phalanx.training.scoring import MAX_KEPT_LOGITS
from phalanx.training.trainers import CHECKPOINT_FROM
from phalanx.types import Member

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
ADAPTER_BYTES = 4
"""PEFT keeps adapters in float32."""
TRAINED_BYTES = 20
"""Bytes for each trained weight in float32: value, gradient, two moments, and the reference."""
FLOAT = 4
WHOLE_BYTES = 12
"""Beside each weight of a base that is trained as a whole, in float32: gradient and two moments."""
KEPT_BYTES = 4
"""The weights as they were before, in main memory: to measure by how much training changed them."""


@dataclass(frozen=True, slots=True)
class BasePlan:
    """One base: who shares it, and its size (None where unknown; ``guessed`` where not counted).

    ``width`` is bytes a weight. ``shape`` is a usual one where no config.json says it.
    """

    base: str
    members: tuple[Member, ...]
    parameters: int | None
    guessed: bool
    how: str
    shape: ModelShape | None
    width: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def weights(self) -> int:
        """Bytes of the weights; 0 where the size is unknown."""
        return (self.parameters or 0) * self.width


def bases_of(
    members: Sequence[Member],
    width: int,
    size: Size | None = None,
    apart: frozenset[str] = frozenset(),
    sizes: dict[str, Size] | None = None,
) -> list[BasePlan]:
    """One entry for each base that is loaded apart, in pool order; members of endpoints have none.

    ``width`` is what ``dtype: auto`` means on the device. ``size`` overrides what the disk says.
    ``apart`` names members that will have a base of their own, all of whose weights are trained.
    ``sizes`` has what the disk was found to say, and gets what it is asked now.
    """
    groups: dict[tuple[str, str, bool, str, str], list[Member]] = {}
    for member in members:
        if member.engine != "openai":
            own = member.name if member.name in apart else ""
            head = "reward" if member.engine == "reward" else ""
            groups.setdefault((*member.base_key, own, head), []).append(member)
    plans, found = [], {} if sizes is None else sizes
    for (base, dtype, *_), mine in groups.items():
        if size is None and base not in found:
            found[base] = base_size(base)
        known = size or found[base]
        count = known.parameters
        plans.append(
            BasePlan(
                base=base,
                members=tuple(mine),
                parameters=count,
                guessed=known.guessed,
                how=known.how,
                shape=known.shape or (usual_shape(count) if count else None),
                width=BYTES.get(dtype, width),
            )
        )
    return plans


def usual_shape(parameters: int) -> ModelShape:
    """A decoder of about that size: a layer for every 128 of its width, keys a quarter of it."""
    hidden = 64 * max(1, round((parameters * 128 / 12) ** (1 / 3) / 64))
    return ModelShape(
        hidden=hidden,
        layers=max(1, round(parameters / (12 * hidden**2))),
        intermediate=3 * hidden,
        kv=max(64, hidden // 4),
        vocabulary=128_000,
    )


def adapter_bytes(plan: BasePlan, member: Member, lora: LoraSettings, trained: bool) -> int:
    """The member's adapter, or the one it will have; 0 where it serves the bare base."""
    count = adapter_parameters(member.adapter) if member.adapter else None
    if count is None and plan.shape and (trained or member.adapter):
        count = plan.shape.lora_parameters(lora)
    return ADAPTER_BYTES * (count or 0)


def untouched_copy(plan: BasePlan, lora: LoraSettings) -> int:
    """The copy of those weights that adapters change."""
    shape = plan.shape
    if shape is None:
        return 0
    attention = 2 * shape.hidden * (shape.hidden + shape.kv)
    layer = attention
    if lora.targets != "attention":
        layer += 3 * shape.hidden * shape.intermediate
    return min(plan.weights, shape.layers * layer * plan.width)


def longest_request(config: Config, rounds: Sequence[Round], instruction_tokens: int) -> int:
    """Tokens, read and written, of the longest usual request of the run."""
    length = longest_of(demand for _, demand in all_demands(rounds))
    if config.evaluate.tasks:
        length = max(length, instruction_tokens + config.evaluate.max_new_tokens)
        members = members_from(config)
        free = int(any(is_free(task) for task in config.evaluate.tasks))  # with votes: the longest
        measuring = measuring_of(config, members, instruction_tokens, 1, free=free)
        length = max(length, longest_of(measuring))
        if any(is_judged(task) for task in config.evaluate.tasks):
            length = max(length, longest_of([grading(config, "", 1, instruction_tokens)]))
    return length


def longest_scored(rounds: Sequence[Round]) -> int:
    """Tokens of the longest text whose likelihood is asked; 0 where none is."""
    return max((demand.scored for _, demand in all_demands(rounds)), default=0)


def kv_bytes(plan: BasePlan) -> int:
    """Keys and values of one token."""
    shape = plan.shape
    return 2 * shape.layers * shape.kv * plan.width if shape else 0


def row_bytes(plan: BasePlan, length: int, scored: int) -> int:
    """One request of a batch: its cache, one layer's activations while it is read, its logits.

    ``scored``: tokens whose likelihood is asked.
    """
    shape = plan.shape
    if shape is None:
        return 0
    activations = length * (6 * shape.hidden + 3 * shape.intermediate) * plan.width
    logits = 3 * shape.vocabulary * FLOAT
    if scored:
        logits = max(logits, (scored + 1) * shape.vocabulary * plan.width)
    return length * kv_bytes(plan) + activations + logits


def rows_wanted(config: Config, length: int) -> int:
    """Requests in a batch, as the settings say; ``length`` is 0 where nobody is asked."""
    resources = config.resources
    return max(1, min(resources.batch_size, resources.batch_tokens // max(1, length)))


def optimiser_bytes(plan: BasePlan, member: Member, settings: OptimiserSettings, gpu: bool) -> int:
    """What is trained, its gradient and both moments, and the reference; less a whole base.

    The reference of an adapter is counted for demonstrations, too, as it is small. A model that is
    trained as a whole needs none: its log-probabilities are computed before the first step.
    """
    if settings.is_full:
        return (plan.parameters or 0) * (WHOLE_BYTES + (0 if gpu else KEPT_BYTES))
    weights = adapter_bytes(plan, member, settings.lora, trained=True)
    return weights // ADAPTER_BYTES * TRAINED_BYTES


def training_batch(plan: BasePlan, rows: int, length: int, gpu: bool) -> int:
    """Activations and logits of one batch of ``rows`` texts of ``length`` tokens."""
    shape = plan.shape
    if shape is None:
        return 0
    tokens = rows * length
    layer = tokens * (10 * shape.hidden + 3 * shape.intermediate) * plan.width
    if checkpointed(plan):
        kept = layer + tokens * shape.layers * shape.hidden * plan.width
    else:
        kept = layer * shape.layers
    logits = min(tokens * shape.vocabulary, MAX_KEPT_LOGITS) * FLOAT
    return kept + (logits if gpu else 3 * logits)  # on a CPU: logits, float32 of them, gradient


def checkpointed(plan: BasePlan) -> bool:
    """Whether activations are recomputed in training."""
    return (plan.parameters or 0) >= CHECKPOINT_FROM
