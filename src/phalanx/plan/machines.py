"""What a machine has: this one, or one that is only planned for (``--machine``).

Figures of known devices are their makers': memory in GB (10**9 bytes), dense bfloat16 operations a
second (half of what is often printed, which counts sparsity), memory bandwidth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from phalanx.config import machine as _here
from phalanx.config.faults import did_you_mean
from phalanx.errors import ConfigError

GB = 10**9


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: memory in bytes, dense bfloat16 operations and bytes a second.

    ``bfloat16`` off: it has none, weights are float32, and so are the operations counted here.
    ``known`` off: it is another one that is reckoned at the speed of ``name``.
    """

    name: str
    memory: int
    flops: float
    bandwidth: float
    bfloat16: bool = True
    known: bool = True


def _card(
    name: str, gigabytes: float, teraflops: float, bandwidth: float, bfloat16: bool = True
) -> Card:
    return Card(name, int(gigabytes * GB), teraflops * 1e12, bandwidth * 1e9, bfloat16)


CARDS = (
    _card("t4", 16, 8.1, 320, bfloat16=False),
    _card("v100", 32, 15.7, 900, bfloat16=False),
    _card("l4", 24, 121, 300),
    _card("a10", 24, 125, 600),
    _card("rtx3090", 24, 71, 936),
    _card("rtx4090", 24, 165, 1008),
    _card("rtx5090", 32, 209, 1792),
    _card("a100-40gb", 40, 312, 1555),
    _card("a6000", 48, 155, 768),
    _card("l40s", 48, 362, 864),
    _card("a100-80gb", 80, 312, 2039),
    _card("h100-pcie", 80, 756, 2000),
    _card("h100", 80, 989, 3350),
    _card("h200", 141, 989, 4800),
    _card("b200", 180, 2250, 8000),
    _card("mi300x", 192, 1307, 5300),
)
"""Known devices, by memory. Of equal memory the slower ones come first: an unknown device is
reckoned at the speed of the first that has its memory."""
OTHER_NAMES = {"a100": "a100-40gb", "h100-sxm": "h100", "rtxa6000": "a6000", "a10g": "a10"}
EXAMPLES = "h200, 8xh100, 2x8xh100 (nodes x GPUs), 1x40GB, cpu:32:64GB (cores, memory)"
_CPU = re.compile(r"(?:(\d+)x)?cpu(?::(\d+))?(?::(\d+(?:\.\d+)?)gb)?")
_GPUS = re.compile(r"(?:(\d+)x)?(?:(\d+)x)?([a-z0-9.-]+)")


@dataclass(frozen=True, slots=True)
class Machine:
    """``nodes`` alike, each with ``gpus`` cards, ``cores`` and ``memory`` bytes (None: unknown).

    ``here``: it is the machine that this process runs on.
    """

    words: str
    card: Card | None = None
    nodes: int = 1
    gpus: int = 0
    cores: int | None = None
    memory: int | None = None
    here: bool = False
    bfloat16: bool = False

    @property
    def all_gpus(self) -> int:
        return self.nodes * self.gpus


def this_machine() -> Machine:
    """What the system says, without torch."""
    found = _here.gpus()
    cores, memory = _here.cores(), _here.memory_bytes()
    parts = [in_words(len(found), "GPU")] if found else []
    card = card_like(found[0].name, found[0].memory) if found else None
    parts += [found[0].name] if found and found[0].name else []
    parts += [in_words(cores, "CPU core")] + ([f"{memory / GB:.1f} GB"] if memory else [])
    words = f"this machine ({', '.join(parts)})"
    return Machine(
        words, card, 1, len(found), cores, memory, here=True, bfloat16=_here.multiplies_bfloat16()
    )


def machine_named(text: str) -> Machine:
    """The machine that ``--machine`` describes. Raises ConfigError for what is not known.

    >>> machine_named("2x8xh100").all_gpus, machine_named("cpu:32:64GB").memory
    (16, 64000000000)
    """
    word = text.strip().lower()
    if match := _CPU.fullmatch(word):
        nodes, cores, memory = match.groups()
        return Machine(
            text.strip(),
            nodes=_count(nodes, text),
            cores=int(cores) if cores else None,
            memory=int(float(memory) * GB) if memory else None,
        )
    match = _GPUS.fullmatch(word)
    if match is None:
        raise ConfigError(f"--machine {text!r} cannot be read; expected, for example, {EXAMPLES}")
    first, second, name = match.groups()
    nodes, gpus = (first, second) if second else (None, first)
    return Machine(
        text.strip(),
        card=_card_named(name, text),
        nodes=_count(nodes, text),
        gpus=_count(gpus, text),
    )


def _count(number: str | None, text: str) -> int:
    if number is not None and int(number) == 0:
        raise ConfigError(f"--machine {text!r} has none of something; expected, e.g., {EXAMPLES}")
    return int(number or 1)


def _card_named(name: str, text: str) -> Card:
    if memory := re.fullmatch(r"(\d+(?:\.\d+)?)gb", name):
        size = int(float(memory.group(1)) * GB)
        if size > 0:
            return card_like("", size)
    known = {card.name: card for card in CARDS}
    name = OTHER_NAMES.get(name, name)
    if name in known:
        return known[name]
    raise ConfigError(
        f"--machine {text!r}: there is no device {name!r} here; {did_you_mean(name, list(known))} "
        f"Memory alone does too (1x40GB), and a machine without a GPU (cpu:32:64GB)"
    )


def card_like(name: str, memory: int | None) -> Card:
    """A card by the name its driver gives, and its memory; unknown ones by their memory."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    named = [card for card in CARDS if card.name.split("-")[0] in plain]
    longest = max((len(card.name.split("-")[0]) for card in named), default=0)
    named = [card for card in named if len(card.name.split("-")[0]) == longest]
    if any(card.name.endswith("pcie") for card in named):
        named = [card for card in named if card.name.endswith("pcie") == ("pcie" in plain)]
    likely = named or [card for card in CARDS if card.bfloat16]
    size = memory or min(card.memory for card in likely)
    best = min(likely, key=lambda card: abs(card.memory - size))
    if named:
        return replace(best, memory=size)
    return replace(best, memory=size, known=False)


def in_words(count: int, noun: str) -> str:
    """``no GPUs``, ``1 GPU``, ``2 GPUs``."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
