"""Rules about the loss that pairs are learned by: what it needs, and settings that it ignores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config, TrainSettings
from phalanx.config.uses import learns_pairs, sections_learned

_PUBLISHED: dict[str, tuple[Callable[[float], bool], str]] = {
    "sppo": (lambda beta: beta > 0.01, "0.001 (1 / eta, an eta of 1000)"),
    "sppo_hard": (lambda beta: beta > 0.01, "0.001 (1 / eta, an eta of 1000)"),
    "simpo": (lambda beta: beta < 1, "2 to 10, as it scales mean log-probabilities of a token"),
}
"""For losses whose beta is of another size than DPO's: whether one is far off, and the paper's."""


def check_loss(config: Config) -> Iterator[Fault]:
    """What a loss cannot do, and what has no use with it."""
    settings = config.pair_training
    learned = "train" in sections_learned(config) and learns_pairs(config)
    if not learned or not isinstance(settings, TrainSettings):
        return
    loss = settings.loss
    if loss == "sppo" and config.method != "sppo":
        text = (
            f"is sppo, which learns win probabilities, and pairs of the method {config.method} "
            "have none; use sppo_hard, or method: sppo"
        )
        yield Fault(("train", "loss"), text)
    if not settings.has_reference and settings.reference == "initial":
        text = f"is initial, and {loss} has no reference; leave it at start, or use another loss"
        yield Fault(("train", "reference"), text)
    if loss == "orpo" and settings.nll_weight:
        text = (
            f"is {settings.nll_weight:g}, and orpo is a likelihood with odds beside it: it has "
            "that term already; leave it at 0, and weigh the odds by train.beta"
        )
        yield Fault(("train", "nll_weight"), text)
    yield from _smoothing(loss, settings.smoothing)
    if loss != "simpo" and settings.margin != TrainSettings().margin:
        text = f"has no use with the loss {loss}; it is SimPO's"
        yield Fault(("train", "margin"), text, "note")
    far_off, published = _PUBLISHED.get(loss, (lambda _: False, ""))
    if far_off(settings.beta):
        text = f"is {settings.beta:g}; the paper of {loss} has {published}"
        yield Fault(("train", "beta"), text, "note")


def _smoothing(loss: str, share: float) -> Iterator[Fault]:
    path = ("train", "smoothing")
    if loss == "exo_pair" and not 0 < share < 1:
        text = f"is {share:g}; exo_pair takes a logarithm of it: set it between 0 and 1, to 0.001"
        yield Fault(path, text)
    elif loss == "robust" and share >= 0.5:
        text = f"is {share:g}; robust divides by 1 - 2 * smoothing: set it below 0.5"
        yield Fault(path, text)
    elif share and loss not in ("exo_pair", "robust"):
        text = f"has no use with the loss {loss}; it is that of robust and exo_pair"
        yield Fault(path, text, "note")
