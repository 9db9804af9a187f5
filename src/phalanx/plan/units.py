"""The places where weights live: how many work side by side, and the memory of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor
from typing import TypeVar

from phalanx.config.faults import Fault
from phalanx.config.schema import Config
from phalanx.plan.machines import Card, Machine, in_words

USABLE = 0.9
"""Share of a memory that the plan counts on; the rest is for CUDA, the system and fragments."""
VLLM_SHARE = 0.9
"""vLLM's own --gpu-memory-utilization."""
PROCESS = 10**9
"""Main memory of a process that trains on a CPU, beside weights and batches (measured)."""
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Units:
    """``count`` units alike work side by side. ``kind``: here, processes or ray.

    ``room`` is the memory of one unit in bytes that may be used, None where unknown. ``cores``
    are those of one unit, less than one where units share a core, None where unknown. ``card`` is
    the GPU of one unit, of which it has ``share``. ``known`` off: the units are on a cluster of
    which nothing is known. ``one_device``: a vLLM server that is started here uses the same device.
    """

    machine: Machine
    kind: str
    count: int
    room: int | None
    cores: float | None
    card: Card | None
    share: float = 1.0
    known: bool = True

    @property
    def gpu(self) -> bool:
        return self.card is not None

    @property
    def server_gpu(self) -> bool:
        """Whether a vLLM server that is started here has a GPU."""
        return self.machine.card is not None

    @property
    def one_device(self) -> bool:
        return self.gpu == self.server_gpu and self.known

    def server_room(self, share: float) -> int | None:
        """Bytes that a vLLM server may take: its share of a GPU, or of main memory."""
        if self.machine.card is not None:
            return int(self.machine.card.memory * share)
        return None if self.machine.memory is None else int(self.machine.memory * USABLE)

    def server_rest(self, config: Config) -> str:
        """What a server does while members train; one that cannot sleep, on a CPU, is stopped."""
        rest = config.vllm.between_phases
        return "stop" if rest == "sleep" and not self.server_gpu else rest

    @property
    def dtype_width(self) -> int:
        """Bytes a weight that ``dtype: auto`` means: two where bfloat16 is multiplied natively."""
        if self.card is not None:
            return 2 if self.card.bfloat16 else 4
        return 2 if self.machine.bfloat16 else 4


def units_of(config: Config, machine: Machine) -> Units:
    """Where members are answered for, judged with and trained, by ``resources``."""
    resources = config.resources
    if resources.executor == "ray":
        return _ray(config, machine)
    card = device_card(config, machine)
    memory = card.memory if card else machine.memory
    count = resources.workers
    room = None if memory is None else _share_of(memory, count, card is not None)
    if count > 1:
        cores = _cores_each(1, count, machine)
        return Units(machine, "processes", count, room, cores, card, 1 / count)
    threads = resources.threads
    cores = _cores_each(threads, 1, machine) if threads else machine.cores
    return Units(machine, "here", 1, room, cores, card)


def _cores_each(threads: int, count: int, machine: Machine) -> float:
    """Cores that ``threads`` of one of ``count`` processes keep busy: no more than there are."""
    return threads if machine.cores is None else min(threads, machine.cores / count)


def _share_of(memory: int, count: int, gpu: bool) -> int:
    """What one of ``count`` processes may use of a GPU, or of main memory."""
    return max(0, int(memory * USABLE / count) - (0 if gpu else PROCESS))


def device_card(config: Config, machine: Machine) -> Card | None:
    """The GPU of ``resources.device``, None for a CPU."""
    resources = config.resources
    wanted = resources.device.startswith("cuda") or resources.device == "auto"
    if resources.device == "auto" and resources.gpus == 0:
        return None
    return machine.card if wanted else None


def _ray(config: Config, machine: Machine) -> Units:
    ray = config.resources.ray
    threads = max(1, floor(ray.cpus))
    if _elsewhere(config, machine):  # what the driver's machine has says nothing about it
        return Units(machine, "ray", ray.workers or 1, None, threads, None, known=False)
    fits = room_for(config, machine)
    count = ray.workers or max(1, fits)
    per_node = max(1, fits // (1 if ray.address == "local" else machine.nodes))
    if ray.workers:
        per_node = max(1, min(per_node, ray.workers))
    cores = _cores_each(threads, per_node, machine)
    card = machine.card if ray.gpus > 0 and config.resources.device != "cpu" else None
    if card is not None:
        room = int(card.memory * USABLE * ray.gpus)
        return Units(machine, "ray", count, room, cores, card, ray.gpus)
    memory = machine.memory
    room = None if memory is None else _share_of(memory, per_node, gpu=False)
    return Units(machine, "ray", count, room, cores, None)


def _elsewhere(config: Config, machine: Machine) -> bool:
    """Whether members are on a cluster of which nothing is said (``--machine`` says it)."""
    resources = config.resources
    return resources.executor == "ray" and resources.ray.address != "local" and machine.here


def room_for(config: Config, machine: Machine) -> int:
    """Ray workers that a cluster of such machines has room for."""
    ray, limits = config.resources.ray, []
    nodes = 1 if ray.address == "local" else machine.nodes
    if ray.gpus > 0:
        limits.append(floor(1 / ray.gpus) * machine.gpus)
    if machine.cores is not None:
        limits.append(floor(machine.cores / ray.cpus))
    return nodes * min(limits, default=1)


def unit_faults(config: Config, units: Units) -> Iterator[Fault]:
    """Workers that the machine has no room for, and devices that are not made use of."""
    resources, machine = config.resources, units.machine
    if resources.executor == "ray":
        yield from _ray_faults(config, units)
        used = units.count * resources.ray.gpus
        if machine.nodes > 1 and resources.ray.address == "local":
            text = (
                f"local uses one of {machine.nodes} nodes; join them with ray start, and set auto"
            )
            yield Fault(("resources", "ray", "address"), text, "note")
    else:
        served = any(member.serve == "vllm" for member in config.pool.members)
        used = max(int(units.gpu), tensor_parallel(config) if served else 0)
        yield from _core_notes(config, units)
        if resources.workers > 1 and units.gpu:
            text = (
                f"{resources.workers} processes share one GPU, each with weights of its own; leave "
                "it at 1 on a GPU, and use resources.executor: ray for several GPUs"
            )
            yield Fault(("resources", "workers"), text, "note")
        if machine.nodes > 1:
            text = (
                f"local uses one of {machine.nodes} nodes; join them with ray start, and set "
                "resources.executor: ray and resources.ray.address: auto"
            )
            yield Fault(("resources", "executor"), text, "note")
    idle = machine.all_gpus - used
    wants = resources.device != "cpu" and resources.gpus != 0
    many = units.known and machine.all_gpus > 1
    if idle >= 1 and many and wants and not resources.ray.workers:
        yield Fault(
            ("resources", "executor"),
            f"{in_words(machine.all_gpus, 'GPU')} there, of which members use {used:g}; one worker "
            "a GPU uses them all: resources.executor: ray, resources.ray.gpus: 1",
            "note",
        )


def _core_notes(config: Config, units: Units) -> Iterator[Fault]:
    """Processes and threads that have no core of their own."""
    resources, cores = config.resources, units.machine.cores
    if cores is None or units.gpu:
        return
    there = f"{in_words(cores, 'CPU core')} there"
    if resources.workers > cores:
        text = f"{resources.workers} processes share the {there}, and each takes memory; at most "
        yield Fault(("resources", "workers"), f"{text}{cores} make a run faster", "note")
    elif resources.workers == 1 and (resources.threads or 0) > cores:
        text = f"{resources.threads} threads share the {there}; at most {cores} make a run faster"
        yield Fault(("resources", "threads"), text, "note")


def _ray_faults(config: Config, units: Units) -> Iterator[Fault]:
    ray, machine = config.resources.ray, units.machine
    if _elsewhere(config, machine):
        text = (
            f"the cluster at {ray.address} is not asked; say what it is with --machine, such as "
            "2x8xh100 (nodes x GPUs)"
        )
        yield Fault(("resources", "ray", "address"), text, "note")
        return
    asked, has = ray.workers or 1, room_for(config, machine)
    if asked > has:
        parts = [f"cpus: {ray.cpus:g}"] * (machine.cores is not None)
        parts += [f"gpus: {ray.gpus:g}"] * (ray.gpus > 0)
        nodes = 1 if ray.address == "local" else machine.nodes
        have = [in_words(nodes * machine.cores, "CPU")] if machine.cores else []
        have.append(in_words(nodes * machine.gpus, "GPU"))
        yield Fault(
            ("resources", "ray", "workers"),
            f"{in_words(asked, 'worker')} with {' and '.join(parts) or 'nothing'} each asked for; "
            f"there is room for {has} ({', '.join(have)}); lower workers, or what each holds",
        )


def server_share(config: Config) -> float:
    """--gpu-memory-utilization of ``vllm.arguments``, or vLLM's default."""
    value = _argument(config, "--gpu-memory-utilization", float)
    return VLLM_SHARE if value is None else value


def tensor_parallel(config: Config) -> int:
    """--tensor-parallel-size of ``vllm.arguments``: GPUs over which a server's base is split."""
    value = _argument(config, "--tensor-parallel-size", int)
    return max(1, value if value is not None else _argument(config, "-tp", int) or 1)


def _argument(config: Config, name: str, kind: Callable[[str], Number]) -> Number | None:
    words = [part for word in config.vllm.arguments for part in word.split("=", 1)]
    if name not in words[:-1]:
        return None
    try:
        return kind(words[words.index(name) + 1])
    except ValueError:
        return None  # vLLM itself will refuse it
