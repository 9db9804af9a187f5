"""Every training setting of the configuration reaches the trainer."""

from __future__ import annotations

import pytest

from phalanx.config.schema import LoraSettings, TrainSettings
from phalanx.training import train_dpo
from phalanx.types import Instruction, Member, PreferencePair
from phalanx.weights.store import Weights
from tests.tiny import make_tiny

pytestmark = pytest.mark.slow


def pairs(count: int) -> list[PreferencePair]:
    return [
        PreferencePair(
            id=f"p{n}",
            instruction=Instruction(f"i{n}", f"Say the number {n}."),
            chosen=f"The number {n}.",
            rejected="No.",
        )
        for n in range(count)
    ]


def test_training_settings_reach_the_trainer(tmp_path):
    """In the released script learning rate, epochs, batch and accumulation were never passed."""
    base = make_tiny(tmp_path / "base", seed=1)
    member = Member("ada", str(base))
    weights = Weights(device="cpu", threads=1)

    def trained(name: str, **changes):
        settings = TrainSettings(
            **{
                "learning_rate": 3e-3,
                "schedule": "constant",
                "warmup": 0.0,
                "epochs": 3,
                "batch_size": 2,
                "accumulate": 2,
                "max_length": 128,
                "lora": LoraSettings(rank=4),
                **changes,
            }
        )
        return train_dpo(weights, member, pairs(8), settings, tmp_path / name, seed=1, version=1)

    first = trained("first")
    assert len(first.steps) == 3 * 8 // (2 * 2)
    assert {step["learning_rate"] for step in first.steps} == {3e-3}
    assert len(trained("epochs", epochs=1).steps) == 2
    assert len(trained("batch", batch_size=4).steps) == 3
    falling = [step["learning_rate"] for step in trained("linear", schedule="linear").steps]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > falling[-1]
    losses = {
        name: trained(name, **change).steps[-1]["loss"]
        for name, change in (
            ("beta", {"beta": 0.9}),
            ("decay", {"weight_decay": 5.0}),
            ("norm", {"max_grad_norm": 1e-3}),
            ("nll", {"nll_weight": 1.0}),
        )
    }
    for name, loss in losses.items():
        assert loss != pytest.approx(first.steps[-1]["loss"], rel=1e-6), name
    dropped = trained("short", max_prompt_length=4)
    assert (dropped.num_examples, sum(dropped.num_dropped.values())) == (0, 8)
    config = (tmp_path / "first" / "adapter_config.json").read_text(encoding="utf-8")
    assert '"r": 4' in config
