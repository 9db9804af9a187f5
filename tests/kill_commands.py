"""Commands whole, then under SIGKILL at random SQL statements; the ledgers are compared.

python -m tests.kill_commands COMMANDS.json FOLDER KILLS SEED

COMMANDS is a list of commands, as lists of words; all write to the same ``--out``, so the later
ones grow what the first has. A process dies as it is about to run its n-th statement that is no
SELECT, n drawn over all those of the command: before, between and inside transactions. After a kill
comes the same command again or, once it has recorded answers, the next one; at the end each command
to its end.
Every batch is written down as the engine answers it: at most the last one is lost, and none is
asked for that the ledger has wholly. (One that it has in part is asked for as it was, so that
answers do not depend on where a run was cut.)
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from phalanx import dispatch
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import LedgerError
from tests.kill_driver import contents, differing, start
from tests.scripts import command

COUNTED = ("responses", "evaluations", "games", "judgments")


def run(words: Sequence[str], out: Path, log: Path, at: int = 0) -> None:
    """One command in this process, which dies at statement ``at`` (0: at none)."""
    statements, file = 0, open(log, "ab", buffering=0)  # noqa: SIM115
    connect, respond = sqlite3.connect, ScriptedEngine.respond

    def counted(statement: str) -> None:
        nonlocal statements
        statements += not statement.startswith("SELECT")
        if statements == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*given, **options) -> sqlite3.Connection:
        database = connect(*given, **options)
        database.set_trace_callback(counted)
        return database

    def written(engine: ScriptedEngine, requests):
        replies = respond(engine, requests)
        line = json.dumps([[reply.request_id, reply.error is None] for reply in replies])
        file.write(f"{line}\n".encode())
        return replies

    sqlite3.connect, ScriptedEngine.respond = connected, written
    dispatch._TURN_S = 0.0  # every batch is written before the next one
    done = command(*words, "--out", out, "-q")
    if done.returncode:
        raise RuntimeError(done.stderr)
    log.with_suffix(".statements").write_text(str(statements), encoding="utf-8")


def known(out: Path) -> dict[str, list[dict]]:
    """What a killed process left behind; nothing where it died before the tables were there."""
    try:
        return contents(out)
    except LedgerError:
        return {}


class Cut:
    """One folder in which commands are killed; ``where`` says what its ledger had each time."""

    def __init__(self, out: Path, where: Counter[tuple[int, ...]]) -> None:
        self.out, self.log, self.where = out, out.with_suffix(".log"), where
        self.asked: set[str] = set()

    def goes_on(self, words: Sequence[str], at: int = 0) -> bool:
        """Whether the command ended. Exits where something was asked in vain, or lost."""
        before = self.answered()
        self.log.unlink(missing_ok=True)
        child = start(run, words, self.out, self.log, at)
        _, status = os.waitpid(child, 0)
        if status and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"the child ended with status {status}")
        self.check(before)
        if status:
            found = known(self.out)
            self.where[tuple(len(found.get(table, ())) for table in COUNTED)] += 1
        return not status

    def answered(self) -> set[str]:
        responses = known(self.out).get("responses", ())
        return {row["id"] for row in responses if row["status"] == "done"}

    def check(self, answered: set[str]) -> None:
        """What the last process asked, against what was ``answered`` before and is now."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        last: set[str] = set()
        for line in lines:
            batch = json.loads(line)
            self.asked.update(key for key, _ in batch)
            if answered.issuperset(key for key, _ in batch):
                sys.exit(f"a batch was asked again that the ledger had: {line}")
            last = {key for key, good in batch if good} - answered
            answered = answered | last
        if lost := answered - self.answered() - last:
            sys.exit(f"{len(lost)} answers before the last batch were not recorded")


def main() -> None:
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder, kills, seed = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng, where = random.Random(seed), Counter()
    command(*commands[0], "--out", folder / "imports", "-q")  # so that no kill lands in an import
    whole, statements = Cut(folder / "whole", Counter()), []
    for words in commands:
        whole.goes_on(words)
        counted = whole.log.with_suffix(".statements")
        statements.append(int(counted.read_text(encoding="utf-8")))
    expected = contents(whole.out)
    rounds = 0
    while where.total() < kills:
        rounds += 1
        cut = Cut(folder / f"cut-{rounds}", where)
        for words, number in zip(commands, statements, strict=True):
            had = cut.answered()
            while where.total() < kills and not cut.goes_on(words, rng.randint(1, number)):
                if cut.answered() > had and rng.random() < 0.5:
                    break
        for words in commands:
            cut.goes_on(words)
        found = contents(cut.out)
        for table in differing(expected, found):
            print(f"whole: {expected[table]}\ncut: {found[table]}")
            sys.exit(f"after {where.total()} kills the table {table} is not that of the whole")
        if cut.asked != whole.asked:
            sys.exit("other requests were asked than without kills")
        shutil.rmtree(cut.out)
    print(json.dumps({"rounds": rounds, "where": sorted(where.elements())}))


if __name__ == "__main__":
    main()
