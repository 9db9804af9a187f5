"""TRL's DPO and SFT trainers on rows that are already token ids.

The losses are TRL's own. Added here: pair weights, a batch plan, stored reference
log-probabilities, health signals; taken away: telemetry, checkpoints, printing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import OptimiserSettings, TrainSettings
from phalanx.errors import MissingPackage, TrainingError
from phalanx.training.batches import step_count, warmup_steps
from phalanx.training.examples import DemonstrationRow, PairRow
from phalanx.training.health import Watch, watching
from phalanx.training.scoring import Scorer

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

CHECKPOINT_FROM = 1_000_000_000
"""Base parameters from which activations are recomputed rather than kept (half the speed, a
fraction of the memory)."""
_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}


@dataclass(frozen=True)
class Setup:
    """What both trainers need. ``batches``: row positions, one list a batch, all epochs.

    ``base`` is the model below the adapter, or ``model`` itself where all weights train. ``half``:
    the member is served in half precision, so that is what losses are computed in.
    """

    model: PeftModel | PreTrainedModel
    base: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    batches: list[list[int]]
    watch: Watch
    seed: int
    scratch: str
    half: bool


def pair_trainer(setup: Setup, rows: Sequence[PairRow], settings: TrainSettings) -> Trainer:
    """A DPO trainer; call its ``collect_reference`` before ``train``.

    TRL has put a copy of the start on the model as the adapter ``ref``: the reference, unless it
    is replaced before it is collected. Where all weights train, the model before its first step is
    the reference, and no second one is loaded.
    """
    _need_trl()
    from trl import DPOConfig

    nll = settings.nll_weight
    arguments = DPOConfig(
        **_arguments(setup, settings),
        beta=settings.beta,
        loss_type=["sigmoid", "sft"] if nll else ["sigmoid"],
        loss_weights=[1.0, nll] if nll else None,
        # An adapter's dropout is its own; that of the base is off already.
        disable_dropout=False,
        precompute_ref_log_probs=setup.model is setup.base,
    )
    columns = [
        {
            "prompt_ids": list(row.prompt_ids),
            "chosen_ids": list(row.chosen_ids),
            "rejected_ids": list(row.rejected_ids),
            "weight": row.weight,
            "row": number,
        }
        for number, row in enumerate(rows)
    ]
    trainer = _pair_class()(**_common(setup, arguments, columns))
    trainer.prepare(setup)
    return trainer


def demonstration_trainer(
    setup: Setup, rows: Sequence[DemonstrationRow], settings: OptimiserSettings
) -> Trainer:
    """An SFT trainer; the loss is on the completion alone, averaged over its tokens."""
    _need_trl()
    from trl import SFTConfig

    arguments = SFTConfig(**_arguments(setup, settings))
    columns = [
        {
            "input_ids": [*row.prompt_ids, *row.completion_ids],
            "labels": [*[-100] * len(row.prompt_ids), *row.completion_ids],
            "row": number,
        }
        for number, row in enumerate(rows)
    ]
    trainer = _demonstration_class()(**_common(setup, arguments, columns))
    trainer.prepare(setup)
    return trainer


def _need_trl() -> None:
    try:
        import datasets  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise MissingPackage(error.name or "trl", "hf", "training") from error


def _arguments(setup: Setup, settings: OptimiserSettings) -> dict[str, Any]:
    base, device = setup.base, setup.base.device
    if device.type == "cuda" and device.index not in (None, 0):
        raise TrainingError(
            f"training runs on the first visible GPU, not on {device}; set "
            f"CUDA_VISIBLE_DEVICES={device.index} and resources.device=cuda"
        )
    steps = step_count(len(setup.batches), settings.accumulate)
    return {
        "output_dir": setup.scratch,
        "per_device_train_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.accumulate,
        "num_train_epochs": 1,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": _SCHEDULES[settings.schedule],
        "warmup_steps": warmup_steps(settings.warmup, steps),
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "max_length": None,
        "seed": setup.seed % 2**32,
        "use_cpu": device.type == "cpu",
        "bf16": setup.half,
        "gradient_checkpointing": base.num_parameters() >= CHECKPOINT_FROM,
        "router_aux_loss_coef": 0.0,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": device.type == "cuda",
    }


def _common(setup: Setup, arguments: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    from datasets import Dataset

    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # one process, one GPU: a member is not split over several
    return {
        "model": setup.model,
        "args": arguments,
        "train_dataset": Dataset.from_list(columns),
        "processing_class": setup.tokenizer,
        "callbacks": [watching(setup.watch)],
    }


def _planned(trainer_class: type) -> type:
    """A TRL trainer that takes rows as they are, in planned batches, and reports nowhere."""
    from torch.utils.data import DataLoader
    from transformers import PrinterCallback
    from trl import DPOTrainer

    class Planned(trainer_class):
        def prepare(self, setup: Setup) -> None:
            self._setup = setup
            self.remove_callback(PrinterCallback)
            self.data_collator = _keeping(self.data_collator, ("row", "weight"))

        def _send_telemetry(self) -> None:
            """Nothing is sent anywhere."""

        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

        def get_train_dataloader(self) -> Any:
            return self.loader(self._setup.batches)

        def loader(self, batches: list[list[int]]) -> Any:
            loader = DataLoader(
                self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator
            )
            return self.accelerator.prepare(loader)

        def scorer(self, model: Any) -> Scorer:
            return Scorer(model, self._setup.base, pairs=issubclass(trainer_class, DPOTrainer))

        def training_step(
            self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any
        ) -> Any:
            self._setup.watch.batch(inputs["row"].tolist())
            loss = super().training_step(model, inputs, *rest, **named)
            self._setup.watch.check_loss(loss.item())
            return loss

    return Planned


def _keeping(collate: Any, columns: tuple[str, ...]) -> Any:
    """TRL's collator, and the named number columns beside what it makes."""
    import torch

    def collated(examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = collate(examples)
        for name in columns:
            if name in examples[0]:
                batch[name] = torch.tensor([example[name] for example in examples])
        return batch

    return collated


@functools.cache
def _pair_class() -> type:
    import torch
    from trl import DPOTrainer

    class PairTrainer(_planned(DPOTrainer)):
        def collect_reference(self, batches: list[list[int]]) -> None:
            """Log-probabilities of both completions under the reference, shape (pairs, 2).

            These batches are those of the first epoch, so policy and reference go through the
            same arithmetic: before the first step their difference is exactly zero on a CPU.
            """
            self.reference = torch.full((len(self.train_dataset), 2), torch.nan)
            self.model.eval()
            for batch in self.loader(batches):
                rows, _ = batch.pop("row").cpu(), batch.pop("weight")
                chosen, rejected = self.compute_ref_log_probs(self.scorer(self.model), batch)
                self.reference[rows] = torch.stack([chosen, rejected], dim=1).float().cpu()
            self.model.train()
            if "ref" in getattr(self.model, "peft_config", ()):
                self.model.delete_adapter("ref")
            self.precompute_ref_logps = True

        def _precompute_ref_logps(self, dataset: Any, *_: Any) -> Any:
            """TRL's own pass, in its constructor; ``collect_reference`` is ours."""
            return dataset

        def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
            rows, weight = inputs.pop("row").cpu(), inputs.pop("weight")
            stored = self.reference[rows].to(inputs["input_ids"].device)
            inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = stored.unbind(dim=1)
            score = self.scorer(model)
            loss = super()._compute_loss(score, inputs, False)
            mask = inputs["completion_mask"][:, 1:]
            if (weight != 1).any():
                loss = loss + weight_correction(
                    score.log_probs, mask, stored, weight, self.beta, self._setup_nll()
                )
            self._note(mask, score.log_probs.detach(), stored)
            return loss

        def _setup_nll(self) -> float:
            return dict(zip(self.loss_types, self.loss_weights, strict=True)).get("sft", 0.0)

        def _note(self, mask: torch.Tensor, log_probs: torch.Tensor, stored: torch.Tensor) -> None:
            chosen, rejected = mask.sum(dim=1).float().chunk(2)
            policy = log_probs.sum(dim=1).chunk(2)[0]
            noted = self._metrics["train"]
            noted["kl/chosen"].append(((policy - stored[:, 0]).sum() / chosen.sum()).item())
            noted["length/chosen"].append(chosen.mean().item())
            noted["length/rejected"].append(rejected.mean().item())

    return PairTrainer


def weight_correction(
    log_probs: torch.Tensor,
    mask: torch.Tensor,
    reference: torch.Tensor,
    weight: torch.Tensor,
    beta: float,
    nll_weight: float,
) -> torch.Tensor:
    """What pair weights add to TRL's unweighted loss: the same terms times (weight - 1).

    The sum is mean(weight * -log sigmoid(beta * delta)) + nll_weight * sum(weight * nll) / tokens,
    where delta is the difference of the log-ratios (DPO, arXiv 2305.18290) and nll and tokens are
    those of the chosen responses. ``log_probs`` and ``mask`` have shape (2 * pairs, tokens), the
    chosen half first; ``reference`` (pairs, 2); ``weight`` (pairs,).
    """
    import torch

    extra = (weight - 1).to(log_probs.dtype)
    chosen, rejected = log_probs.sum(dim=1).chunk(2)
    delta = (chosen - reference[:, 0]) - (rejected - reference[:, 1])
    correction = (extra * -torch.nn.functional.logsigmoid(beta * delta)).mean()
    if nll_weight:
        tokens = mask.chunk(2)[0].sum()
        correction = correction + nll_weight * (extra * -chosen).sum() / tokens
    return correction


@functools.cache
def _demonstration_class() -> type:
    from trl import SFTTrainer

    class DemonstrationTrainer(_planned(SFTTrainer)):
        def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
            inputs.pop("row")
            labelled = (inputs["labels"] != -100).sum(dim=1).float().mean().item()
            self._metrics["train"]["length/completion"].append(labelled)
            return super().compute_loss(self.scorer(model), inputs, *rest, **named)

    return DemonstrationTrainer
