"""TRL's GRPO trainer on responses that were written and rated before.

The loss is TRL's own. Its trainer writes and rates responses itself; here both are done, by
engines and by a method, so that what is left is the loss on stored groups.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from phalanx.config.schema_rivals import GrpoSettings
from phalanx.errors import TrainingError
from phalanx.training.batches import step_count
from phalanx.training.examples import DemonstrationRow
from phalanx.training.trainers import (
    NO_AUX,
    Setup,
    need_trl,
    planned,
    trainer_parts,
    training_arguments,
)

if TYPE_CHECKING:
    import torch
    from transformers import Trainer


def rated_trainer(
    setup: Setup, rows: Sequence[DemonstrationRow], settings: GrpoSettings, num_first: int
) -> Trainer:
    """A GRPO trainer (arXiv 2402.03300) whose ratios are to the model as it is now.

    ``num_first``: batches of the first epoch. Log-probabilities of the start are computed once,
    and only where a ratio or a distance can differ from nothing: with more than one step, or with
    ``settings.kl``. No second model is loaded. They are those at temperature 1.
    """
    need_trl()
    from trl import GRPOConfig

    arguments = GRPOConfig(
        **training_arguments(setup, settings),
        **NO_AUX,
        loss_type=settings.loss,
        epsilon=settings.clip,
        beta=0.0,  # TRL would load a reference; set below, where the start is known
        max_completion_length=settings.max_length,
        # Sizes of what it would write; they need only agree with each other.
        num_generations=2,
        generation_batch_size=2 * settings.batch_size,
    )
    columns = [
        {
            "prompt_ids": list(row.prompt_ids),
            "completion_ids": list(row.completion_ids),
            "advantage": row.advantage,
            "row": number,
        }
        for number, row in enumerate(rows)
    ]
    parts = trainer_parts(setup, arguments, columns)
    trainer = _rated_class()(**parts, reward_funcs=[_rated_already])
    trainer.beta = settings.kl
    trainer.lengths = [len(row.completion_ids) for row in rows]
    trainer.prepare(setup)
    if settings.kl or step_count(len(setup.batches), settings.accumulate) > 1:
        trainer.collect_start(setup.batches[:num_first])
    return trainer


def _rated_already(*_: Any, **__: Any) -> list[float]:
    raise TrainingError("GRPO asked for a reward, though every response has its advantage already")


@functools.cache
def _rated_class() -> type:
    import torch
    from trl import GRPOTrainer

    class RatedTrainer(planned(GRPOTrainer)):
        start: Sequence[Any] = ()
        """Log-probabilities of each row's completion before the first step, where needed."""

        def prepare(self, setup: Setup) -> None:
            self.data_collator = _padded
            super().prepare(setup)

        def collect_start(self, batches: list[list[int]]) -> None:
            """Through the batches of the first epoch: on a CPU its first step has ratios of 1."""
            found: list[Any] = [None] * len(self.train_dataset)
            self.model.eval()
            with torch.no_grad(), self.accelerator.autocast():
                for batch in self.loader(batches):
                    log_probs = self._scored(self.scorer(self.model), batch).log_probs
                    labelled = batch["completion_mask"][:, 1:].bool()
                    for place, row in enumerate(batch["row"].tolist()):
                        found[row] = log_probs[place][labelled[place]].cpu()
            self.model.train()
            self.start = found

        def _prepare_inputs(self, batch: dict[str, Any]) -> dict[str, Any]:
            """What TRL would write and rate: here it is in the batch.

            TRL puts prompts on the left and completions on the right of one line. Rows are one
            text each here, filled on the right as everywhere, so its "prompt" is their first token
            and its "completion" the rest, in which only the response is marked.
            """
            ids, mask = batch["input_ids"], batch["completion_mask"][:, 1:]
            self._batch = batch
            inputs = {
                "prompt_ids": ids[:, :1],
                "prompt_mask": batch["attention_mask"][:, :1],
                "completion_ids": ids[:, 1:],
                "completion_mask": mask,
                "advantages": batch["advantage"],
                "num_items_in_batch": self._items(mask),
            }
            if self.start:
                start = _in_place([self.start[row] for row in batch["row"].tolist()], mask)
                inputs["old_per_token_logps"] = inputs["ref_per_token_logps"] = start
            noted = self._metrics["train"]
            noted["length/completion"].append(mask.sum(dim=1).float().mean().item())
            return inputs

        def _items(self, mask: torch.Tensor) -> torch.Tensor:
            """Tokens of the step, as TRL counts them: it expects those of all that it wrote."""
            batches, size = self._setup.batches, self.args.gradient_accumulation_steps
            begin = self._step // size * size
            tokens = sum(
                self.lengths[row] for each in batches[begin : begin + size] for row in each
            )
            share = self.args.steps_per_generation / self.current_gradient_accumulation_steps
            return torch.tensor(tokens * share, device=mask.device)

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            return super()._compute_loss(self.scorer(model), inputs)

        def _get_per_token_logps_and_entropies(
            self, model: Any, *_: Any, **__: Any
        ) -> tuple[Any, Any, None]:
            outputs = self._scored(model, self._batch)
            return outputs.log_probs, outputs.entropy, None

        def _scored(self, score: Any, batch: dict[str, Any]) -> Any:
            ids = batch["input_ids"]
            return score(
                input_ids=ids,
                attention_mask=batch["attention_mask"],
                labels=ids.masked_fill(batch["completion_mask"] == 0, -100),
                use_cache=False,
            )

    return RatedTrainer


def _in_place(values: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
    """The values of each row where its mask is set, and 0 elsewhere."""
    import torch

    together = torch.cat(values).to(mask.device)
    placed = together.new_zeros(mask.shape)
    placed[mask.bool()] = together
    return placed


def _padded(examples: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of one width, filled on the right: ids, what is text, what is response."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    texts = [example["prompt_ids"] + example["completion_ids"] for example in examples]
    marks = [
        [0] * len(example["prompt_ids"]) + [1] * len(example["completion_ids"])
        for example in examples
    ]
    seen = [[1] * len(text) for text in texts]
    ids, attention, completion = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        for rows in (texts, seen, marks)
    )
    return {"input_ids": ids, "attention_mask": attention, "completion_mask": completion}
