"""Train one member: examples in, a new version of the member out.

The same call again, with the same inputs, returns the stored result of the first. On a CPU the
same inputs give the same weights, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import OptimiserSettings, TrainSettings
from phalanx.config.schema_rivals import GrpoSettings
from phalanx.errors import ConfigError, LossError, TrainingError
from phalanx.identity import content_id
from phalanx.trackers import Target, reporting
from phalanx.training.batches import plan_batches
from phalanx.training.examples import (
    DemonstrationRow,
    PairRow,
    demonstration_rows,
    pair_rows,
    rated_rows,
)
from phalanx.training.health import Watch
from phalanx.training.pairs import pair_trainer
from phalanx.training.rated import rated_trainer
from phalanx.training.saving import (
    copy_adapter,
    finished,
    held_in,
    save_adapter,
    start_of,
    trained_member,
    whole_folder,
    write_manifest,
)
from phalanx.training.traces import own_randomness, silence, untouched
from phalanx.training.trainers import Setup, demonstration_trainer
from phalanx.types import Demonstration, Member, PreferencePair, Progress, TrainResult
from phalanx.weights.adapters import adapter_hash, resolve_adapter

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, Trainer

    from phalanx.weights.store import Weights


@dataclass(frozen=True)
class _Job:
    """One training, before its kind matters."""

    kind: str
    weights: Weights
    member: Member
    settings: OptimiserSettings
    folder: Path
    seed: int
    version: int
    progress: Progress | None
    tracked: Target | None
    max_kl: float | None


def train_dpo(
    weights: Weights,
    member: Member,
    pairs: Sequence[PreferencePair],
    settings: TrainSettings,
    folder: Path,
    *,
    seed: int,
    version: int,
    initial_adapter: str | None = None,
    progress: Progress | None = None,
    tracked: Target | None = None,
    max_kl: float | None = None,
) -> TrainResult:
    """Preference optimisation of the member on the pairs, by ``settings.loss``.

    ``auto`` and ``sigmoid`` are direct preference optimisation (arXiv 2305.18290); with pairs of
    given answers and the member's own ones, that is SPIN's loss (arXiv 2401.01335). A ``beta`` of
    None is the loss's own. The reference,
    where the loss has one, is the member as it is given, or, with ``settings.reference``
    ``initial``, its base with ``initial_adapter`` (None: the bare base).
    ``settings.label_noise`` is the caller's.
    With no usable pair the member comes back as a new version with the weights that it had. With
    ``settings.weights`` ``full`` the new version has ``folder`` as its base, and no adapter.

    Raises :class:`GuardError` where the member is farther than ``max_kl`` nats a token from the
    reference, :class:`LossError` when a loss or gradient is not finite (naming the pairs), and
    :class:`TrainingError` when nothing changed, when a pair lacks what the loss needs, or when
    ``folder`` holds something else; the member then stays as it was. Raises :class:`ConfigError`
    for ``reference`` ``initial`` with ``weights`` ``full`` or a loss without a reference.
    """
    settings = settings.named()
    _check_reference(member, settings)
    place = (Path(folder), seed, version)
    job = _Job("dpo", weights, member, settings, *place, progress, tracked, max_kl)
    reference = None
    if settings.reference == "initial":
        reference = _hash_of(initial_adapter, member) or "base"
    key = _key(job, pairs, reference)
    stored = finished(job.folder, key, member, version)
    if stored is not None:
        return stored
    rows, dropped = pair_rows(
        weights.chat(member),
        member,
        pairs,
        _longest(job),
        settings.max_prompt_length,
        probabilities=settings.loss == "sppo",
    )

    def make(setup: Setup, num_first: int) -> Trainer:
        trainer = pair_trainer(setup, rows, settings)
        if settings.reference == "initial":  # an adapter, as checked above
            _put_reference(setup.model, initial_adapter, member)
        if settings.has_reference:
            trainer.collect_reference(setup.batches[:num_first])
        return trainer

    return _train(job, key, rows, dropped, make)


def train_sft(
    weights: Weights,
    member: Member,
    demonstrations: Sequence[Demonstration],
    settings: OptimiserSettings,
    folder: Path,
    *,
    seed: int,
    version: int,
    progress: Progress | None = None,
    tracked: Target | None = None,
    max_kl: float | None = None,
) -> TrainResult:
    """Supervised fine-tuning of the member on the demonstrations' responses.

    Raises what :func:`train_dpo` raises; demonstrations have no reference to be far from.
    """
    place = (Path(folder), seed, version)
    job = _Job("sft", weights, member, settings, *place, progress, tracked, max_kl)
    key = _key(job, demonstrations, None)
    stored = finished(job.folder, key, member, version)
    if stored is not None:
        return stored
    rows, dropped = demonstration_rows(
        weights.chat(member), member, demonstrations, _longest(job), settings.max_prompt_length
    )

    def make(setup: Setup, num_first: int) -> Trainer:
        return demonstration_trainer(setup, rows, settings)

    return _train(job, key, rows, dropped, make)


def train_grpo(
    weights: Weights,
    member: Member,
    rated: Sequence[Demonstration],
    settings: GrpoSettings,
    folder: Path,
    *,
    seed: int,
    version: int,
    progress: Progress | None = None,
    tracked: Target | None = None,
    max_kl: float | None = None,
) -> TrainResult:
    """Group-relative policy optimisation (arXiv 2402.03300) of the member on rated responses.

    Each response has an ``advantage``, which is the method's: no groups are formed here. Responses
    with an advantage of 0 are counted as ``no_advantage``. Their texts are encoded anew, which may
    give other tokens than were sampled. The ratio of probabilities is that to the member at the
    start, which wrote them, and so is the distance with ``settings.kl``.

    Raises what :func:`train_dpo` raises, and :class:`TrainingError` for a response without an
    advantage.
    """
    place = (Path(folder), seed, version)
    job = _Job("grpo", weights, member, settings, *place, progress, tracked, max_kl)
    key = _key(job, rated, None)
    stored = finished(job.folder, key, member, version)
    if stored is not None:
        return stored
    rows, dropped = rated_rows(
        weights.chat(member), member, rated, _longest(job), settings.max_prompt_length
    )

    def make(setup: Setup, num_first: int) -> Trainer:
        return rated_trainer(setup, rows, settings, num_first)

    return _train(job, key, rows, dropped, make)


def _check_reference(member: Member, settings: TrainSettings) -> None:
    if settings.reference == "start":
        return
    if not settings.has_reference:
        raise ConfigError(
            f"{member.name}: train.reference: initial has no use with train.loss: {settings.loss}, "
            "which has no reference; set train.reference: start"
        )
    if settings.is_full:
        raise ConfigError(
            f"{member.name}: train.reference: initial needs a second model in memory where all "
            "weights are trained; set train.reference: start, or train.weights: lora"
        )


def _train(
    job: _Job,
    key: str,
    rows: Sequence[PairRow | DemonstrationRow],
    dropped: dict[str, int],
    make: Callable[[Setup, int], Trainer],
) -> TrainResult:
    began = time.monotonic()
    steps: list[dict[str, float]] = []
    summary: dict[str, float] = {}
    notes: list[str] = []
    with whole_folder(job.folder) as scratch:
        if rows:
            steps, summary, notes = _run(job, rows, make, scratch)
        elif job.member.adapter is not None:
            copy_adapter(resolve_adapter(job.member.adapter, job.member.name), scratch)
        result = TrainResult(
            member=trained_member(job.member, job.folder, job.version, held_in(scratch)),
            num_examples=len(rows),
            num_dropped=dropped,
            steps=tuple(steps),
            summary=summary,
            seconds=time.monotonic() - began,
            notes=tuple(notes),
        )
        inputs = {"kind": job.kind, "seed": job.seed, "settings": job.settings.model_dump()}
        write_manifest(scratch, key, inputs, result)
    return result


def _run(
    job: _Job,
    rows: Sequence[PairRow | DemonstrationRow],
    make: Callable[[Setup, int], Trainer],
    scratch: Path,
) -> tuple[list[dict[str, float]], dict[str, float], list[str]]:
    """Train and save into ``scratch``; the steps' signals, their summary, what trackers said."""
    settings, member = job.settings, job.member
    plan = plan_batches(
        [row.length for row in rows], settings.batch_size, settings.epochs, job.seed
    )
    tokenizer = job.weights.tokenizer(member)
    with ExitStack() as stack:
        stack.enter_context(own_randomness(job.seed))
        if job.settings.is_full:
            model = base = stack.enter_context(job.weights.training_all(member))
        else:
            model = stack.enter_context(job.weights.training(member, settings.lora))
            base = model.get_base_model()
        stack.enter_context(silence())
        with untouched(base, tokenizer):
            watch = Watch(
                member.name,
                [row.id for row in rows],
                job.progress,
                _starts_at_reference(job, model),
                job.max_kl,
            )
            batches = [batch for epoch in plan for batch in epoch]
            half = job.weights.is_half(member)
            setup = Setup(model, base, tokenizer, batches, watch, job.seed, str(scratch), half)
            before = _trainable(model)
            trainer = make(setup, len(plan[0]))
            if job.progress is not None:
                total = math.ceil(len(batches) / settings.accumulate)
                job.progress.start(f"train {member.name}", total, "step")
            with reporting(job.tracked, trainer) as notes:
                trainer.train()
            change = _change(job, before, model, watch.steps)
        if job.settings.is_full:
            job.weights.save(member, base, scratch)
        else:
            save_adapter(model, scratch, member.base)
        if job.progress is not None:
            job.progress.finish()
    what = "weights_change" if job.settings.is_full else "adapter_change"
    tokens = float(sum(_num_tokens(rows[number]) for batch in batches for number in batch))
    return watch.steps, {**_summary(watch.steps), what: change, "tokens": tokens}, notes


def _num_tokens(row: PairRow | DemonstrationRow) -> int:
    """Tokens of all texts of a row, the prompt with each of them."""
    if isinstance(row, PairRow):
        return 2 * len(row.prompt_ids) + len(row.chosen_ids) + len(row.rejected_ids)
    return row.length


def _starts_at_reference(job: _Job, model: PeftModel | PreTrainedModel) -> bool:
    """Whether policy and reference must agree before the first step."""
    settings = job.settings
    if not isinstance(settings, TrainSettings) or not settings.has_reference:
        return False
    if settings.reference != "start":
        return False
    return job.settings.is_full or not model.peft_config["default"].lora_dropout


def _put_reference(model: PeftModel, adapter: str | None, member: Member) -> None:
    """Replace TRL's reference, a copy of the start, by the initial adapter or the bare base."""
    model.delete_adapter("ref")
    if adapter is not None:
        model.load_adapter(str(resolve_adapter(adapter, member.name)), adapter_name="ref")
        model.set_adapter("default")


def _longest(job: _Job) -> int:
    return min(job.settings.max_length, job.weights.context_length(job.member))


def _hash_of(adapter: str | None, member: Member) -> str | None:
    return None if adapter is None else adapter_hash(resolve_adapter(adapter, member.name))


def _key(job: _Job, examples: Sequence[Any], reference: str | None) -> str:
    member = job.member
    base, adapter = start_of(member)
    return content_id(
        job.kind,
        [member.name, base, member.system, member.dtype, adapter],
        reference,
        job.settings.model_dump(),
        [job.seed, job.version],
        list(examples),
    )


def _trainable(model: PeftModel | PreTrainedModel) -> dict[str, torch.Tensor]:
    """Copies, in main memory, of what will change."""
    return {
        name: weight.detach().to("cpu", copy=True)
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def _change(
    job: _Job,
    before: dict[str, torch.Tensor],
    model: PeftModel | PreTrainedModel,
    steps: Sequence[dict[str, float]],
) -> float:
    """Euclidean length of the change of what trained. Raises :class:`TrainingError` for none."""
    name, what = job.member.name, "model" if job.settings.is_full else "adapter"
    after = {key: weight for key, weight in model.named_parameters() if weight.requires_grad}
    if before.keys() != after.keys():
        raise TrainingError(f"{name}: the trained weights are not those of the {what}")
    total = 0.0
    for key, start in before.items():  # one at a time: a second copy of a model is large
        moved = after[key].detach().to("cpu").double() - start.double()
        total += float(moved.square().sum())
    change = math.sqrt(total) if math.isfinite(total) else math.nan
    rate = max((step["learning_rate"] for step in steps), default=0.0)
    norm = max((step["grad_norm"] for step in steps), default=0.0)
    if not math.isfinite(change):
        raise LossError(
            f"{name}: after {len(steps)} steps the {what} holds numbers that are not "
            f"finite (largest gradient norm {norm:.3g}); lower the learning rate",
            name,
        )
    if change == 0 or rate == 0:
        raise TrainingError(
            f"{name}: training changed nothing: {len(steps)} steps, largest learning rate "
            f"{rate:.3g}, largest gradient norm {norm:.3g}, change of the {what} {change:.3g}; "
            "check that the examples differ and have weights above 0, and the learning rate"
        )
    return change


def _summary(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """``first/...`` and ``last/...`` of the signals, the largest rate."""
    summary = {"steps": float(len(steps))}
    summary["max_learning_rate"] = max(step["learning_rate"] for step in steps)
    for place, step in (("first", steps[0]), ("last", steps[-1])):
        summary |= {
            f"{place}/{name}": value
            for name, value in step.items()
            if name not in ("step", "learning_rate")
        }
    return summary
