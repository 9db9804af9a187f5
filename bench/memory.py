"""Peak memory of serving and training one to eight members that share a base."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.dpo import SETTINGS, pairs
from bench.measuring import Item, Tree
from bench.setting import ROOT, Setting, instructions, weights_of

COUNTS = (1, 8)


def run(setting: Setting) -> list[Item]:
    counts = COUNTS[:2] if setting.quick else COUNTS
    setting.members(counts[-1])
    peaks = {count: _in_its_own_process(setting, count) for count in counts}
    first, last = peaks[counts[0]], peaks[counts[-1]]
    gpu = setting.device.startswith("cuda")
    return [
        Item(f"memory: {counts[-1]} members against one", last / first, "x memory", at_most=1.5,
             raw={"peak_mib": peaks}, note=f"peak MiB by members: {_rounded(peaks)}; " +
             ("of the GPU" if gpu else "the process tree's own pages")),
    ]  # fmt: skip


def _rounded(peaks: dict[int, float]) -> str:
    return ", ".join(f"{count}: {peak:.0f}" for count, peak in peaks.items())


def _in_its_own_process(setting: Setting, count: int) -> float:
    given = {
        "model": str(setting.model),
        "device": setting.device,
        "quick": setting.quick,
        "scratch": str(setting.scratch),
    }
    command = [sys.executable, "-m", "bench.memory", str(count), json.dumps(given)]
    done = subprocess.run(
        command, check=True, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.splitlines()[-1])


def peak(setting: Setting, count: int) -> float:
    """MiB at the most while ``count`` members answer and then learn, in this process."""
    import torch

    from phalanx.engines.hf import HFEngine
    from phalanx.training import train_dpo
    from phalanx.types import Request, Sampling

    members = setting.members(count)
    new = setting.size(8, 4)
    gpu = setting.device.startswith("cuda")
    with Tree().watching() as tree:
        weights = weights_of(setting)
        asked = [
            Request(f"{m.name}-{n}", m, m.messages(text), Sampling(max_new_tokens=new), "bench", n)
            for m in members
            for n, text in enumerate(instructions(8))
        ]
        HFEngine(weights).respond(asked)
        for member in members:
            folder = setting.scratch / f"memory-{count}" / member.name
            learned = pairs(2)
            train_dpo(weights, member, learned, SETTINGS, folder, seed=1, version=1)
    return torch.cuda.max_memory_allocated() / 2**20 if gpu else tree.peak


def main() -> None:
    given = json.loads(sys.argv[2])
    given |= {"model": Path(given["model"]), "scratch": Path(given["scratch"])}
    print(peak(Setting(**given), int(sys.argv[1])))


if __name__ == "__main__":
    main()
