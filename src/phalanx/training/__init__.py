"""Learning from preference pairs and demonstrations. Importing this package loads no torch."""

from __future__ import annotations

from phalanx.training.train import train_dpo, train_sft

__all__ = ["train_dpo", "train_sft"]
