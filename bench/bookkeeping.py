"""How many duels a second the bookkeeping carries, and whether memory stays flat.

Everything of a run but the models: match-making, prompts, ids, the ledger, judgments, reputations,
pairs. Scripted members answer, three judges a duel score, nobody learns.

    python -m bench.bookkeeping --duels 10000
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from phalanx.config.schema import Config
from phalanx.ledger import run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent

DUELS_AN_ITERATION = 1000
NUM_INSTRUCTIONS = 3000
SHARES = (0.1, 0.5, 1.0)


class _Watch(Silent):
    """Notes the clock and the peak memory (MiB) at the beginning of every iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.peaks: list[float] = []

    def say(self, text: str) -> None:
        if text.startswith("Iteration "):
            self.note()

    def note(self) -> None:
        self.seconds.append(time.perf_counter())
        self.peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def configuration(duels: int, members: int, folder: Path) -> Config:
    """Iterations of 1,000 duels over generated instructions; protocol ``expected``."""
    source = folder / "instructions.jsonl"
    with source.open("w", encoding="utf-8") as file:
        for number in range(NUM_INSTRUCTIONS):
            text = f"Explain in two sentences why the number {number} is {number % 7} modulo 7."
            file.write(json.dumps({"instruction": text}) + "\n")
    each = min(duels, DUELS_AN_ITERATION)
    names = [f"member-{number:02d}" for number in range(members)]
    return Config.model_validate(
        {
            "seed": 7,
            "iterations": -(-duels // each),
            "pool": {"members": [{"name": name, "engine": "scripted"} for name in names]},
            "instructions": {"source": str(source)},
            "match": {"duels": each},
            "judge": {"protocol": "expected", "per_duel": 3},
            "train": {"method": "none"},
        }
    )


def measure(duels: int, members: int, folder: Path) -> dict[str, float]:
    """Run ``duels`` duels in ``folder``/run and read the report from it.

    Returns duels per second over the whole run (of the clock, and of this process's work alone:
    the fairer figure on a machine that others use) and over its last iteration, peak memory (MiB)
    when a tenth, half and all of it was done, ledger bytes per duel, and the seconds and further
    peak memory of the report. The peaks are those of this process: run it in a fresh one.
    """
    config, watch = configuration(duels, members, folder), _Watch()
    started, cpu = time.perf_counter(), time.process_time()
    align(config, folder / "run", progress=watch)
    watch.note()
    cpu = time.process_time() - cpu
    seconds = watch.seconds[-1] - started
    done = config.iterations * config.match.duels
    peak_at = {share: watch.peaks[round(share * config.iterations)] for share in SHARES}
    report_s = _report_seconds(folder / "run")
    after_report = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "duels": done,
        "members": members,
        "seconds": seconds,
        "duels_per_s": done / seconds,
        "duels_per_cpu_s": done / cpu,
        "last_iteration_duels_per_s": config.match.duels / (watch.seconds[-1] - watch.seconds[-2]),
        **{f"peak_mib_at_{share:.0%}": peak for share, peak in peak_at.items()},
        "peak_ratio": peak_at[1.0] / peak_at[0.1],
        "ledger_bytes_per_duel": run_ledger_path(folder / "run").stat().st_size / done,
        "report_s": report_s,
        "peak_mib_with_report": after_report,
    }


def _report_seconds(run: Path) -> float:
    from phalanx.api import open_run

    started = time.perf_counter()
    open_run(run).report()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duels", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="keep the run here; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(measure(given.duels, given.members, folder), indent=2))


if __name__ == "__main__":
    main()
