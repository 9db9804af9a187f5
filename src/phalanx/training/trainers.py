"""What TRL's trainers have in common here, and the one for demonstrations.

Rows are token ids already. Added to each trainer: a batch plan and health signals; taken away:
telemetry, checkpoints, printing. Pairs are in :mod:`pairs`, rated responses in :mod:`rated`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import OptimiserSettings
from phalanx.errors import MissingPackage, TrainingError
from phalanx.training.batches import step_count, warmup_steps
from phalanx.training.examples import DemonstrationRow
from phalanx.training.health import Watch, watching
from phalanx.training.scoring import Scorer

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

CHECKPOINT_FROM = 1_000_000_000
"""Base parameters from which activations are recomputed rather than kept (half the speed, a
fraction of the memory)."""
NO_AUX = {"router_aux_loss_coef": 0.0}
"""No loss of a mixture of experts' own beside the one that is asked for."""
_KEPT = ("row", "weight", "probabilities", "advantage")
_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}


@dataclass(frozen=True)
class Setup:
    """What all trainers need. ``batches``: row positions, one list a batch, all epochs.

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


def demonstration_trainer(
    setup: Setup, rows: Sequence[DemonstrationRow], settings: OptimiserSettings
) -> Trainer:
    """An SFT trainer; the loss is on the completion alone, averaged over its tokens."""
    need_trl()
    from trl import SFTConfig

    arguments = SFTConfig(**training_arguments(setup, settings), max_length=None, **NO_AUX)
    columns = [
        {
            "input_ids": [*row.prompt_ids, *row.completion_ids],
            "labels": [*[-100] * len(row.prompt_ids), *row.completion_ids],
            "row": number,
        }
        for number, row in enumerate(rows)
    ]
    trainer = _demonstration_class()(**trainer_parts(setup, arguments, columns))
    trainer.prepare(setup)
    return trainer


def need_trl() -> None:
    try:
        import datasets  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise MissingPackage(error.name or "trl", "hf", "training") from error


def training_arguments(setup: Setup, settings: OptimiserSettings) -> dict[str, Any]:
    """What every trainer is told: the settings, and nothing printed, saved or sent."""
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
        "seed": setup.seed % 2**32,
        "use_cpu": device.type == "cpu",
        "bf16": setup.half,
        "gradient_checkpointing": base.num_parameters() >= CHECKPOINT_FROM,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": device.type == "cuda",
        **({"optim": "rmsprop"} if settings.optimizer == "rmsprop" else {}),
    }


def trainer_parts(setup: Setup, arguments: Any, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """What every trainer is made of."""
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


def planned(trainer_class: type) -> type:
    """A TRL trainer that takes rows as they are, in planned batches, and reports nowhere."""
    from torch.utils.data import DataLoader
    from transformers import PrinterCallback

    class Planned(trainer_class):
        in_pairs = False
        """Whether a batch has the chosen completions and then the rejected ones."""

        def prepare(self, setup: Setup) -> None:
            self._setup = setup
            self.remove_callback(PrinterCallback)
            self.data_collator = _keeping(self.data_collator, _KEPT)

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
            return Scorer(model, self._setup.base, pairs=self.in_pairs)

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
def _demonstration_class() -> type:
    from trl import SFTTrainer

    class DemonstrationTrainer(planned(SFTTrainer)):
        def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
            inputs.pop("row")
            labelled = (inputs["labels"] != -100).sum(dim=1).float().mean().item()
            self._metrics["train"]["length/completion"].append(labelled)
            return super().compute_loss(self.scorer(model), inputs, *rest, **named)

    return DemonstrationTrainer
