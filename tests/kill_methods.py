"""Runs of scripted configurations, whole and killed at a random request; compares the ledgers.

python kill_methods.py FOLDER SEED CONFIG...

Prints one JSON object: configuration's name -> what happened. A configuration that asks nobody is
killed before its first iteration is recorded.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

from phalanx.config import load
from phalanx.engines.scripted import ScriptedEngine
from phalanx.ledger import Ledger
from phalanx.loop import align
from phalanx.plan import require
from phalanx.types import Request, Response
from tests.kill_driver import contents, differing, finish, start


def align_and_die(config, folder: Path, at: int) -> None:
    """The run, killed as its ``at``-th request comes up (0: before an iteration is recorded)."""
    answer, record, asked = ScriptedEngine._one, Ledger.record_iteration, 0

    def counted(engine: ScriptedEngine, request: Request) -> Response:
        nonlocal asked
        asked += 1
        if asked == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(engine, request)

    def recorded(*given) -> None:
        if not at:
            os.kill(os.getpid(), signal.SIGKILL)
        record(*given)

    ScriptedEngine._one, Ledger.record_iteration = counted, recorded
    align(config, folder)


def main() -> None:
    folder, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    found = {}
    for path in map(Path, sys.argv[3:]):
        config = load(path)
        require(config)  # what it reads is read once, here, and not in each of the processes
        whole, cut = folder / path.stem / "whole", folder / path.stem / "cut"
        finish(start(align, config, whole))
        expected = contents(whole)
        total = len(expected["responses"])
        at = rng.randint(1, total) if total else 0
        _, status = os.waitpid(start(align_and_die, config, cut, at), 0)
        stored = len(contents(cut)["responses"])
        finish(start(align, config, cut))
        found[path.stem] = {
            "requests": total,
            "killed_at": at,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            "stored": stored,
            "differing": differing(expected, contents(cut)),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
