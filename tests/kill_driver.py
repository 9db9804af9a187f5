"""Run a configuration whole, then again under SIGKILL at random moments; compare the ledgers.

python kill_driver.py CONFIG FOLDER KILLS SEED
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from phalanx.config import load
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align


def start(config, folder: Path) -> int:
    """Fork a process that runs (or goes on with) the run in ``folder``; returns its id."""
    child = os.fork()
    if child:
        return child
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        align(config, folder)
    except BaseException as error:
        print(f"child failed: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


def finish(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"the run ended with status {status}")


def contents(folder: Path) -> dict:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def differing(one: dict, other: dict) -> list[str]:
    return [name for name in one if one[name] != other.get(name)]


def main() -> None:
    config_path, folder, kills, seed = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5])
    config = load(config_path)
    if any(member.engine == "hf" for member in config.pool.members) or config.pool.recruit:
        import datasets  # noqa: F401
        import peft  # noqa: F401
        import torch  # noqa: F401
        import trl.trainer.dpo_trainer  # noqa: F401
    started = time.monotonic()
    finish(start(config, folder / "whole"))
    whole_s = time.monotonic() - started
    expected = contents(folder / "whole")
    rng = random.Random(seed)
    landed = rounds = 0
    while landed < kills:
        rounds += 1
        cut = folder / f"cut-{rounds}"
        while landed < kills:
            child = start(config, cut)
            time.sleep(rng.uniform(0.01, 0.6) * whole_s)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if status != 0:
                    sys.exit(f"the run ended with status {status}")
                break
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            landed += os.WIFSIGNALED(status)
        finish(start(config, cut))
        wrong = differing(expected, contents(cut))
        if wrong:
            sys.exit(f"after {landed} kills these tables differ from the whole run: {wrong}")
        shutil.rmtree(cut)
    print(f"{landed} kills landed in {rounds} runs of {whole_s:.2f} s; every ledger is the same")


if __name__ == "__main__":
    main()
