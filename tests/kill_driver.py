"""Run a configuration whole, then again under SIGKILL at random moments; compare the ledgers.

python kill_driver.py CONFIG FOLDER KILLS SEED [each]

With ``each`` it goes on until a kill has landed in every step of every iteration that trains:
while its rows were made, and while its members learned.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from phalanx.config import load
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align


def start(work: Callable[..., object], *given: object) -> int:
    """Fork a process that does ``work(*given)``; returns its id."""
    child = os.fork()
    if child:
        return child
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        work(*given)
    except BaseException as error:
        print(f"child failed: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


def finish(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"the child ended with status {status}")


def contents(folder: Path) -> dict:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def differing(one: dict, other: dict) -> list[str]:
    return [name for name in one if one[name] != other.get(name)]


def step_of(folder: Path, expected: dict) -> str:
    """What a killed run was at: ``making 1``, ``learning 1``, ``making 2`` ... or ``starting``."""
    if not run_ledger_path(folder).exists():
        return "starting"
    try:
        found = contents(folder)
    except LedgerError:  # killed before the tables were there
        return "starting"
    if not found["members"]:
        return "starting"
    recorded = max((row["iteration"] for row in found["states"]), default=0)
    trained = sum(row["iteration"] == recorded for row in found["trainings"])
    owed = sum(row["iteration"] == recorded for row in expected["trainings"])
    return f"learning {recorded}" if trained < owed else f"making {recorded + 1}"


def steps_with_training(expected: dict) -> set[str]:
    numbers = {row["iteration"] for row in expected["trainings"] if row["num_examples"]}
    return {f"{step} {number}" for step in ("making", "learning") for number in numbers}


def main() -> None:
    config_path, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5])
    config = load(config_path)
    if any(member.engine == "hf" for member in config.pool.members) or config.pool.recruit:
        import datasets  # noqa: F401
        import peft  # noqa: F401
        import torch  # noqa: F401
        import trl.trainer.dpo_trainer
        import trl.trainer.sft_trainer  # noqa: F401
    started = time.monotonic()
    finish(start(align, config, folder / "whole"))
    whole_s = time.monotonic() - started
    print(f"whole run: {whole_s:.2f} s", flush=True)
    expected = contents(folder / "whole")
    missing = steps_with_training(expected) if "each" in sys.argv[5:] else set()
    rng = random.Random(seed)
    landed = rounds = 0
    steps: Counter[str] = Counter()
    while landed < kills or (missing and landed < 10 * kills):
        rounds += 1
        cut = folder / f"cut-{rounds}"
        while landed < kills or missing:
            child = start(align, config, cut)
            time.sleep(rng.uniform(0.01, 0.6) * whole_s)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if status != 0:
                    sys.exit(f"the child ended with status {status}")
                break
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                landed += 1
                step = step_of(cut, expected)
                steps[step] += 1
                missing.discard(step)
        finish(start(align, config, cut))
        wrong = differing(expected, contents(cut))
        if wrong:
            sys.exit(f"after {landed} kills these tables differ from the whole run: {wrong}")
        shutil.rmtree(cut)
    if missing:
        sys.exit(f"no kill landed while the run was {', '.join(sorted(missing))}: {dict(steps)}")
    where = ", ".join(f"{step}: {count}" for step, count in sorted(steps.items()))
    print(
        f"{landed} kills landed in {rounds} runs of {whole_s:.2f} s; every ledger is the same "
        f"({where})"
    )


if __name__ == "__main__":
    main()
