"""Rules about devices: ``resources.device``, GPUs that are counted, and what a Ray worker holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config


def check_devices(config: Config, machine: int, here: bool = True) -> Iterator[Fault]:
    """All faults and notes of devices. ``machine``: its GPUs; ``here``: that of this process."""
    resources = config.resources
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", resources.device)
    if not match:
        text = f"expected auto, cpu, cuda or cuda:N, got {resources.device!r}"
        yield Fault(("resources", "device"), text)
    elif resources.executor == "ray":
        yield from _ray_device(config, match.group(1))
    elif resources.device.startswith("cuda") and int(match.group(1) or 0) >= machine:
        text = f"is {resources.device}, but this machine has {_gpus_in_words(machine)}; "
        yield Fault(("resources", "device"), f"{text}use auto or cpu")
    elsewhere = resources.executor == "ray" and resources.ray.address != "local"
    yield from _gpus(config, None if elsewhere and here else machine)
    if resources.executor == "ray":
        yield from _ray_gpus(config)


def _ray_device(config: Config, number: str | None) -> Iterator[Fault]:
    """The workers' device; what this machine has does not matter to them."""
    device, path = config.resources.device, ("resources", "device")
    if number is not None:
        text = f"is {device}, but every Ray worker sees the GPU that it holds as cuda:0"
        yield Fault(path, f"{text}; use cuda or auto")
    elif device == "cuda" and config.resources.ray.gpus == 0:
        text = "is cuda, but Ray workers hold no GPU; set resources.ray.gpus: 1, or use auto or cpu"
        yield Fault(path, text)


def _ray_gpus(config: Config) -> Iterator[Fault]:
    gpus, path = config.resources.ray.gpus, ("resources", "ray", "gpus")
    if gpus > 1:
        yield Fault(
            path,
            f"a worker computes on one GPU and would hold {gpus:g}, the others idle; use 1 or "
            "less, and more workers for more GPUs",
        )
    elif gpus > 0 and config.resources.device == "cpu":
        text = f"a worker holds {gpus:g} GPU and leaves it idle, for resources.device is cpu"
        yield Fault(path, f"{text}; set 0", "note")


def _gpus_in_words(count: int) -> str:
    return f"{count or 'no'} GPU{'' if count == 1 else 's'}"


def _gpus(config: Config, machine: int | None) -> Iterator[Fault]:
    """GPUs that members ask for; nothing is counted against a ``machine`` that is not known."""
    limit = config.resources.gpus
    available = machine if limit is None else limit
    if available is None:
        return
    source = "this machine" if limit is None else "resources.gpus"
    if limit is not None and machine is not None and limit > machine:
        text = f"{_gpus_in_words(limit)} asked for, this machine has {_gpus_in_words(machine)}"
        yield Fault(("resources", "gpus"), text)
    asked = sum(member.gpus for member in config.pool.members)
    largest = max((member.gpus for member in config.pool.members), default=0)
    for position, member in enumerate(config.pool.members):
        if member.gpus > available:
            yield Fault(
                ("pool", "members", position, "gpus"),
                f"{member.name} needs {_gpus_in_words(member.gpus)}, available: {available} "
                f"({source}); use a smaller base, or gpus: 0, which asks for none",
            )
    if config.resources.keep_all_loaded and asked > available and largest <= available:
        yield Fault(
            ("resources", "keep_all_loaded"),
            f"all members loaded at once need {_gpus_in_words(asked)}, available: {available} "
            f"({source}); set resources.keep_all_loaded: false, so that they take turns "
            f"(at most {_gpus_in_words(largest)} at a time)",
        )
