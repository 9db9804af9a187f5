"""What a loss cannot do is refused before a model loads; what it ignores is said."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.config import Config, rules


def configured(method: str = "sparta", **train: Any) -> Config:
    members = [{"name": name} for name in ("ada", "bob", "cora")]
    return Config.model_validate(
        {
            "method": method,
            "pool": {"base": "builtin:smollm2-135m", "members": members},
            "instructions": {"source": "builtin:skills"},
            "train": train,
        }
    )


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"loss": "sppo", "beta": 0.001}, "train.loss: is sppo, which learns win probabilities"),
        ({"loss": "simpo", "beta": 2, "reference": "initial"}, "simpo has no reference"),
        ({"loss": "orpo", "reference": "initial"}, "orpo has no reference"),
        ({"loss": "orpo", "nll_weight": 0.5}, "train.nll_weight: is 0.5, and orpo"),
        ({"loss": "exo_pair"}, "train.smoothing: is 0; exo_pair takes a logarithm"),
        ({"loss": "exo_pair", "smoothing": 1.0}, "train.smoothing: is 1; exo_pair"),
        ({"loss": "robust", "smoothing": 0.5}, "train.smoothing: is 0.5; robust divides"),
    ],
)
def test_what_cannot_be_learned_is_refused(train: dict[str, Any], words: str) -> None:
    (fault,) = rules.faults(configured(**train))
    assert words in fault


def test_all_of_them_at_once() -> None:
    found = rules.faults(configured(loss="orpo", nll_weight=1.0, reference="initial"))
    assert [fault.partition(":")[0] for fault in found] == ["train.reference", "train.nll_weight"]


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"loss": "simpo", "beta": 0.1}, "train.beta: is 0.1; the paper of simpo has 2 to 10"),
        ({"loss": "sppo_hard", "beta": 0.1}, "train.beta: is 0.1; the paper of sppo_hard has 0.00"),
        ({"margin": 0.5}, "train.margin: has no use with the loss sigmoid"),
        ({"loss": "ipo", "smoothing": 0.1}, "train.smoothing: has no use with the loss ipo"),
    ],
)
def test_what_has_no_use_or_is_far_from_the_paper_is_said(train: dict, words: str) -> None:
    assert rules.faults(configured(**train)) == []
    (note,) = rules.notes(configured(**train))
    assert words in note


@pytest.mark.parametrize(
    "train",
    [
        {"loss": "simpo", "beta": 2.5, "margin": 1.4, "nll_weight": 0.1, "weights": "full"},
        {"loss": "orpo", "optimizer": "rmsprop"},
        {"loss": "robust", "smoothing": 0.1, "reference": "initial"},
        {"loss": "exo_pair", "smoothing": 0.001},
        {"loss": "sppo_hard", "beta": 0.001, "nll_weight": 1.0},
        {"loss": "sppo_hard"},
        {"loss": "simpo"},
    ],
)
def test_what_works_says_nothing(train: dict[str, Any]) -> None:
    assert rules.faults(configured(**train)) == []
    assert rules.notes(configured(**train)) == []


def test_the_loss_is_the_methods_own_where_none_is_named() -> None:
    auto = configured(beta=0.5, **{"optimizer": "rmsprop"})
    assert auto.pair_training.loss == "sigmoid"
    notes = rules.notes(configured("sppo", beta=0.5))
    assert any("train.beta: is 0.5; the paper of sppo has 0.001" in note for note in notes)
    assert not any("train.loss" in fault for fault in rules.faults(configured("sppo")))


@pytest.mark.parametrize(
    ("method", "train", "loss", "beta"),
    [
        ("sppo", {}, "sppo", 0.001),
        ("sppo", {"beta": 0.1}, "sppo", 0.1),
        ("sppo", {"loss": "sigmoid"}, "sigmoid", 0.1),
        ("spin", {}, "sigmoid", 0.1),
        ("sparta", {"loss": "simpo"}, "simpo", 2.0),
        ("sparta", {"loss": "sppo_hard"}, "sppo_hard", 0.001),
        ("sparta", {"loss": "orpo"}, "orpo", 0.1),
    ],
)
def test_a_beta_that_is_not_given_is_the_losss_own(
    method: str, train: dict[str, Any], loss: str, beta: float
) -> None:
    """An eta of 1000 is SPPO's: a DPO's beta of 0.1 would be an eta of 10."""
    settings = configured(method, **train).pair_training
    assert (settings.loss, settings.beta) == (loss, beta)


def test_a_loss_that_is_not_used_is_not_checked() -> None:
    """Chosen responses are learned by themselves, or nobody learns."""
    for method in ("sft", "none"):
        config = configured(method="sparta", loss="exo_pair", nll_weight=1.0)
        train = config.train.model_copy(update={"method": method})
        assert rules.faults(config.model_copy(update={"train": train})) == []
