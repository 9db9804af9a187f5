"""TRL's trainers for preference pairs: DPO and its kin, SimPO and ORPO.

The losses are TRL's own, save soft SPPO, which it lacks. Added here: pair weights and stored
reference log-probabilities. ``docs/methods/losses.md`` has every loss in a table.
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import TrainSettings
from phalanx.training.examples import PairRow
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


def pair_trainer(setup: Setup, rows: Sequence[PairRow], settings: TrainSettings) -> Trainer:
    """The trainer of ``settings.loss``; ``settings`` name the loss and its beta.

    Where the loss has a reference, call ``collect_reference`` before ``train``. TRL has put a copy
    of the start on the model as the adapter ``ref``: the reference, unless it is replaced before
    it is collected. Where all weights train, the model before its first step is the reference, and
    no second one is loaded.
    """
    need_trl()
    columns = [
        {
            "prompt_ids": list(row.prompt_ids),
            "chosen_ids": list(row.chosen_ids),
            "rejected_ids": list(row.rejected_ids),
            "weight": row.weight,
            "row": number,
            **({"probabilities": list(row.probabilities)} if row.probabilities else {}),
        }
        for number, row in enumerate(rows)
    ]
    make = _referenced if settings.has_reference else _reference_free
    trainer = make(setup, columns, settings)
    trainer.prepare(setup)
    return trainer


def _referenced(setup: Setup, columns: list[dict[str, Any]], settings: TrainSettings) -> Any:
    from trl import DPOConfig

    # Soft SPPO is computed here; TRL is asked for the hard one, of which only the signals count.
    loss = "sppo_hard" if settings.loss == "sppo" else settings.loss
    nll = settings.nll_weight
    arguments = DPOConfig(
        **training_arguments(setup, settings),
        **NO_AUX,
        max_length=None,
        beta=settings.beta,
        loss_type=[loss, "sft"] if nll else [loss],
        loss_weights=[1.0, nll] if nll else None,
        label_smoothing=settings.smoothing,
        # An adapter's dropout is its own; that of the base is off already.
        disable_dropout=False,
        precompute_ref_log_probs=setup.model is setup.base,
    )
    trainer = _pair_class()(**trainer_parts(setup, arguments, columns))
    trainer.soft, trainer.nll_weight = settings.loss == "sppo", nll
    return trainer


def _reference_free(setup: Setup, columns: list[dict[str, Any]], settings: TrainSettings) -> Any:
    from trl.trainer.dpo_trainer import DataCollatorForPreference
    from trl.trainer.utils import add_fused_lm_head

    config, trainer_class = _free_classes()[settings.loss]
    own = {}
    if settings.loss == "simpo":
        own = {"loss_type": "simpo", "simpo_gamma": settings.margin}
        own["cpo_alpha"] = settings.nll_weight
    arguments = config(
        **training_arguments(setup, settings),
        max_length=settings.max_length,  # rows are no longer; None would be warned of
        beta=settings.beta,
        disable_dropout=False,
        **own,
    )
    parts = trainer_parts(setup, arguments, columns)
    parts["train_dataset"] = _Rows(columns)
    tokenizer = setup.tokenizer
    filler = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    trainer = trainer_class(**parts, data_collator=DataCollatorForPreference(filler))
    trainer.aux_loss_enabled = False
    add_fused_lm_head(setup.base, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
    return trainer


class _Rows(list[dict[str, Any]]):
    """Rows that TRL would template and tokenise itself, and that are tokens already."""

    def map(self, *_: Any, **__: Any) -> _Rows:
        return self


@functools.cache
def _pair_class() -> type:
    import torch
    from trl import DPOTrainer

    class PairTrainer(planned(DPOTrainer)):
        in_pairs = True
        soft = False
        nll_weight = 0.0

        def collect_reference(self, batches: list[list[int]]) -> None:
            """Log-probabilities of both completions under the reference, shape (pairs, 2).

            These batches are those of the first epoch, so policy and reference go through the
            same arithmetic: before the first step their difference is exactly zero on a CPU.
            """
            self.reference = torch.full((len(self.train_dataset), 2), torch.nan)
            self.model.eval()
            for batch in self.loader(batches):
                rows = batch.pop("row").cpu()
                for name in ("weight", "probabilities"):
                    batch.pop(name, None)
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
            probabilities = inputs.pop("probabilities", None)
            stored = self.reference[rows].to(inputs["input_ids"].device)
            inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = stored.unbind(dim=1)
            score = self.scorer(model)
            loss = super()._compute_loss(score, inputs, False)
            mask = inputs["completion_mask"][:, 1:]
            if self.soft or (weight != 1).any():
                if self.soft:
                    ratios = torch.stack(score.log_probs.sum(dim=1).chunk(2), dim=1) - stored
                    own = sppo_losses(ratios, probabilities, self.beta)
                else:
                    own = self._loss_of_each(score.outputs, inputs)
                loss = weighted_loss(own, weight, score.log_probs, mask, self.nll_weight)
            self._note(mask, score.log_probs.detach(), stored)
            return loss

        def _loss_of_each(self, outputs: Any, inputs: dict[str, Any]) -> torch.Tensor:
            """TRL's loss of every pair of the batch alone, shape (pairs,), from one pass."""
            count = inputs["input_ids"].shape[0] // 2
            kept = self._metrics, self._total_train_tokens, self.loss_types, self.loss_weights
            self._metrics = {"train": defaultdict(list)}
            self.loss_types, self.loss_weights = self.loss_types[:1], self.loss_weights[:1]
            found = []
            try:
                for pair in range(count):
                    both = [pair, count + pair]
                    part = {
                        name: value[[pair] if name.startswith("ref_") else both]
                        for name, value in inputs.items()
                    }
                    found.append(super()._compute_loss(_replay(outputs, both), part, False))
            finally:
                self._metrics, self._total_train_tokens, *own = kept
                self.loss_types, self.loss_weights = own
            return torch.stack(found)

        def _note(self, mask: torch.Tensor, log_probs: torch.Tensor, stored: torch.Tensor) -> None:
            chosen, rejected = mask.sum(dim=1).float().chunk(2)
            policy = log_probs.sum(dim=1).chunk(2)[0]
            noted = self._metrics["train"]
            noted["kl/chosen"].append(((policy - stored[:, 0]).sum() / chosen.sum()).item())
            noted["length/chosen"].append(chosen.mean().item())
            noted["length/rejected"].append(rejected.mean().item())

    return PairTrainer


def _replay(outputs: Any, rows: list[int]) -> Any:
    """Stands where TRL calls the model, and answers with these rows of what it has said."""
    names = ("log_probs", "entropy", "mean_logits", "is_top1")
    part = SimpleNamespace(**{name: getattr(outputs, name)[rows] for name in names})
    return lambda **_: part


@functools.cache
def _free_classes() -> dict[str, tuple[type, type]]:
    """For each loss without a reference TRL's configuration and our trainer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that trl.experimental may change; the tests would say so
        from trl.experimental.cpo import CPOConfig, CPOTrainer
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    class SimpoTrainer(_averaging(CPOTrainer)):
        def cpo_loss(self, chosen: torch.Tensor, rejected: torch.Tensor) -> Any:
            losses, *rewards = super().cpo_loss(chosen, rejected)
            return self.weight * losses, *rewards

    class OrpoTrainer(_averaging(ORPOTrainer)):
        def odds_ratio_loss(self, chosen: torch.Tensor, rejected: torch.Tensor) -> Any:
            losses, *signals = super().odds_ratio_loss(chosen, rejected)
            return self.weight * losses, *signals

    return {"simpo": (CPOConfig, SimpoTrainer), "orpo": (ORPOConfig, OrpoTrainer)}


def _averaging(trainer_class: type) -> type:
    """A TRL trainer whose losses are of mean log-probabilities, as :class:`Scorer` finds them."""

    class Averaging(planned(trainer_class)):
        in_pairs = True

        def concatenated_forward(self, model: Any, batch: dict[str, Any]) -> tuple[Any, ...]:
            """Mean log-probabilities a token of both completions, mean logits, and the NLL.

            TRL's own runs the head over prompts and padding, too. The NLL is that of the chosen
            completions, by weight; TRL's for ORPO has the prompts in it, the paper's has not.
            """
            ids, mask = batch["input_ids"], batch["completion_mask"]
            self.weight = batch["weight"]
            outputs = self.scorer(model)(
                input_ids=ids,
                attention_mask=batch["attention_mask"],
                labels=ids.masked_fill(mask == 0, -100),
                use_cache=False,
            )
            tokens, sums = mask[:, 1:].sum(dim=1), outputs.log_probs.sum(dim=1)
            first = sums.chunk(2)[0]
            nll = (self.weight * -first).sum() / tokens.chunk(2)[0].sum()
            self.store_metrics(
                {
                    f"length/{side}": count.float().mean().item()
                    for side, count in zip(("chosen", "rejected"), tokens.chunk(2), strict=True)
                }
            )
            return (*(sums / tokens).chunk(2), *outputs.mean_logits.chunk(2), nll)

    return Averaging


def sppo_losses(log_ratios: torch.Tensor, probabilities: torch.Tensor, beta: float) -> torch.Tensor:
    """The squared loss of SPPO (arXiv 2405.00675, equation 4.7) for each pair, shape (pairs,).

    ``log_ratios``, shape (pairs, 2): log policy - log reference of the chosen and the rejected
    response, summed over tokens. ``probabilities``, shape (pairs, 2): that each of them beats the
    policy's own responses. Each log-ratio is drawn to (probability - 1/2) / beta, where 1 / beta
    is the paper's eta. The two squares are added, as in TRL's ``sppo_hard``, whose loss this is
    with probabilities of 1 and 0; the authors' code halves the sum.
    """
    return (log_ratios - (probabilities - 0.5) / beta).square().sum(dim=1)


def weighted_loss(
    losses: torch.Tensor,
    weight: torch.Tensor,
    log_probs: torch.Tensor,
    mask: torch.Tensor,
    nll_weight: float,
) -> torch.Tensor:
    """mean(weight * loss), and ``nll_weight`` times the weighted NLL of the chosen responses.

    The latter is sum(weight * nll) / tokens, with the nll and the tokens of the chosen responses.
    ``losses`` and ``weight`` have shape (pairs,); ``log_probs`` and ``mask`` (2 * pairs, tokens),
    the chosen half first.
    """
    loss = (weight * losses).mean()
    if nll_weight:
        chosen, tokens = log_probs.chunk(2)[0].sum(dim=1), mask.chunk(2)[0].sum()
        loss = loss + nll_weight * (weight * -chosen).sum() / tokens
    return loss
