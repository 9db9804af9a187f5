"""What the machine has, found without torch: GPUs, memory, cores."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NVIDIA_SMI_S = 5
"""Longest wait for nvidia-smi, in seconds; it is asked only where there is a GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of this machine. ``memory`` in bytes, None where the driver does not say."""

    name: str
    memory: int | None


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use, in order; those that CUDA_VISIBLE_DEVICES numbers."""
    count = count_gpus()
    if not count:
        return ()
    found = _all_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [int(word) for word in visible.split(",") if word.strip().isdigit()]
    chosen = tuple(found[number] for number in numbers if number < len(found)) or found
    return (*chosen, *[Gpu("", None)] * count)[:count]


@functools.cache
def _all_gpus() -> tuple[Gpu, ...]:
    """Names and memory by nvidia-smi, else names alone from the driver's folder."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            done = subprocess.run(
                [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                timeout=NVIDIA_SMI_S,
                check=True,
            )
            return read_gpus(done.stdout)
        except (OSError, subprocess.SubprocessError):
            pass  # a driver that does not answer says no memory; the names below may still do
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    models = [re.search(r"Model:\s*(.+)", file.read_text(encoding="utf-8")) for file in files]
    return tuple(Gpu(model.group(1).strip() if model else "", None) for model in models)


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """What nvidia-smi prints, a line a GPU, memory in MiB.

    >>> read_gpus("NVIDIA H200, 143771\\n")
    (Gpu(name='NVIDIA H200', memory=150754820096),)
    """
    found = []
    for line in text.strip().splitlines():
        name, _, memory = line.rpartition(",")
        number = re.match(r"\s*(\d+)", memory)  # "[N/A]" where memory is the machine's own
        found.append(Gpu(name.strip(), int(number.group(1)) * 2**20 if number else None))
    return tuple(found)


def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16, without which auto means float32."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return bool(flags) and bool({"avx512_bf16", "amx_bf16"} & set(flags.group(1).split()))


def count_gpus() -> int:
    """GPUs that this process may use: device files, cut down by CUDA_VISIBLE_DEVICES."""
    names = (path.name for path in Path("/dev").glob("nvidia*"))
    found = sum(1 for name in names if re.fullmatch(r"nvidia\d+", name))
    if not found and Path("/dev/kfd").exists():  # AMD: one render node a card
        found = len(list(Path("/dev/dri").glob("renderD*")))
    if not found and Path("/dev/dxg").exists():  # a Linux inside Windows shows one device for all
        found = 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    return min(found, len([word for word in visible.split(",") if word.strip() not in ("", "-1")]))


def memory_bytes() -> int | None:
    """Memory of the machine, or None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
