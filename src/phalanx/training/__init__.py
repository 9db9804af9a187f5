"""Learning from preference pairs, demonstrations and rated responses.

Importing this package loads no torch.
"""

from __future__ import annotations

from phalanx.training.jobs import TrainJob
from phalanx.training.train import train_dpo, train_grpo, train_sft

__all__ = ["TrainJob", "train_dpo", "train_grpo", "train_sft"]
