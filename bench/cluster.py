"""A Ray cluster on this machine: the same iteration with one worker and with two."""

from __future__ import annotations

import json
from typing import Any

from bench.dpo import SETTINGS, pairs
from bench.iteration import Phases
from bench.measuring import Item
from bench.setting import Setting, instructions
from phalanx.progress import Silent

WORK = ("answer", "judge", "train")


def run(setting: Setting) -> list[Item]:
    found = {workers: _seconds(setting, workers) for workers in (1, 2)}
    total = {workers: sum(phases[name] for name in WORK) for workers, phases in found.items()}
    return [
        Item("Ray: two workers against one", total[1] / total[2], "x faster", at_least=1.6,
             raw={"phases": found}, note=f"seconds {total[1]:.0f} and {total[2]:.0f}; answering, "
             "judging and training of four members; the start of the cluster is not counted"),
    ]  # fmt: skip


def _seconds(setting: Setting, workers: int) -> dict[str, float]:
    from phalanx.loop import align
    from phalanx.workshop import Workshop

    config, clock = _config(setting, workers), Phases()
    folder = setting.scratch / f"ray-{workers}"
    workshop = Workshop(config, folder)  # align closes it
    _warm(setting, workshop)
    align(config, folder, progress=clock, workshop=workshop)
    return dict(clock.seconds)


def _warm(setting: Setting, workshop: Any) -> None:
    """Every worker is there, holds the base and has loaded its packages before the clock runs."""
    from phalanx.training import TrainJob
    from phalanx.types import Request, Sampling

    members = setting.members(4)
    asked = [
        Request(f"warm-{m.name}", m, m.messages("Hello"), Sampling(max_new_tokens=2), "bench")
        for m in members
    ]
    work = workshop.engine("hf").start([[request] for request in asked])
    while work.num_open:
        work.wait(1.0)
    folder = setting.scratch / f"warm-{id(workshop)}"
    jobs = [
        TrainJob(m, tuple(pairs(1)), SETTINGS, folder / m.name, seed=1, version=1) for m in members
    ]
    list(workshop.train("warm", jobs, Silent(), lambda: None))


def _config(setting: Setting, workers: int) -> Any:
    from phalanx.config.schema import Config

    duels = setting.size(4, 4)
    source = setting.scratch / "few.jsonl"
    lines = [json.dumps({"instruction": text}) for text in instructions(duels)]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    members = [{"name": m.name, "model": m.base, "adapter": m.adapter} for m in setting.members(4)]
    return Config.model_validate(
        {
            "iterations": 1,
            "pool": {"members": members},
            "instructions": {"source": str(source)},
            "match": {"duels": duels},
            "answer": {"max_new_tokens": setting.size(32, 4)},
            "judge": {"protocol": "likelihood"},
            "pairs": {"truncated": "allow"},
            "train": {"batch_size": 8},
            "resources": {
                "device": setting.device,
                "executor": "ray",
                "ray": {"workers": workers, "cpus": 1},
            },
        }
    )
