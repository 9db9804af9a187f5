"""What the machine has, found without torch: GPUs, memory, cores."""

from __future__ import annotations

import os
import re
from pathlib import Path


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
