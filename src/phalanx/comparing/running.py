"""Arms times seeds: each a run in a folder of its own, one after another or several at a time.

``OUT/seed-S/pool`` has the recruits of a seed, ``OUT/seed-S/NAME`` an arm's run and
``OUT/seed-S/NAME.yaml`` its whole configuration. The same command goes on where it stopped; what is
finished is opened, checked against its inputs, and left as it is. An arm that fails is reported
at the end and stops no other.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from phalanx.asking import stop_on_interrupt, stored_config
from phalanx.comparing import arm as one_arm
from phalanx.comparing.reading import read_run
from phalanx.comparing.spec import Arm, Comparison, best_lined_up, pool_folder
from phalanx.config import differences, from_yaml, to_yaml
from phalanx.config.schema import Config
from phalanx.errors import Interrupted, LedgerError, PhalanxError
from phalanx.ledger import Ledger, RunLock, run_ledger_path
from phalanx.report.html import write_whole
from phalanx.report.words import duration, plural
from phalanx.types import Progress

RECRUIT = "recruit.yaml"
"""In the pool's folder: the configuration that it was made by."""
STOPPED = "stopped; everything finished is recorded, and the same command goes on from here"


@dataclass(frozen=True, slots=True)
class Failed:
    """An arm that could not be run to its end; ``name`` is "pool" where a seed has no pool."""

    name: str
    seed: int
    why: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.name}: {self.why}"


def run_all(
    comparison: Comparison, out: Path, *, jobs: int = 1, progress: Progress
) -> tuple[Failed, ...]:
    """Start or continue every arm; those that failed. ``jobs`` is how many run at a time.

    Raises LedgerError where a folder has work of other settings, and Interrupted on Ctrl-C.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = RunLock(out)
    try:
        refuse_changes(comparison, out)
        if jobs == 1:
            return _in_turn(_Work(comparison, out, _Here(progress), progress))
        with stop_on_interrupt() as should_stop:
            elsewhere = _Processes()
            work = _Work(comparison, out, elsewhere, progress)
            return _side_by_side(work, elsewhere, jobs, should_stop)
    finally:
        lock.release()


def refuse_changes(comparison: Comparison, out: Path) -> None:
    """Raise LedgerError that names every arm whose run was made with other settings."""
    faults = []
    for seed in comparison.seeds:
        made = pool_folder(out, seed) / RECRUIT
        if comparison.base.pool.recruit and made.exists():
            before = from_yaml(made.read_text(encoding="utf-8"), str(made))
            now = _recruiting(comparison.base, seed)
            faults += _changed(pool_folder(out, seed), before, now, only="pool")
    for arm in comparison.all_arms(out):
        if not run_ledger_path(arm.folder).exists():
            continue
        with Ledger(run_ledger_path(arm.folder)) as ledger:
            stored = None if ledger.is_untouched() else ledger.get("config")
        if stored is not None:
            # Who was best is found again when the arm is opened, which then compares all.
            skipped = "pool" if arm.lineup.needs_best else ""
            before = stored_config(arm.folder, stored)
            faults += _changed(arm.folder, before, arm.config, skipped=skipped)
    if faults:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise LedgerError(
            f"{out} was made with other settings; restore them, or choose another folder with "
            f"--out\n{listed}"
        )


def _changed(
    folder: Path, before: Config, now: Config, *, only: str = "", skipped: str = ""
) -> list[str]:
    return [
        f"{folder}: {key} was {old!r} and is now {new!r}"
        for key, old, new in differences(before, now)
        if (not only or key.split(".")[0] == only) and (key.split(".")[0] != skipped)
    ]


def _recruiting(base: Config, seed: int) -> Config:
    return base.model_copy(update={"seed": seed})


class _Runner(Protocol):
    """Does one piece of work to its end, or raises."""

    def recruit(self, config: Config, source: Path, folder: Path) -> None: ...

    def run(self, arm: Arm, source: Path, shared: Sequence[Path]) -> None: ...


@dataclass
class _Here:
    """In this process: the bars of each arm are shown."""

    progress: Progress

    def recruit(self, config: Config, source: Path, folder: Path) -> None:
        one_arm.recruit(config, folder, self.progress)

    def run(self, arm: Arm, source: Path, shared: Sequence[Path]) -> None:
        try:
            one_arm.run(arm.config, arm.folder, shared, self.progress)
        finally:
            self.progress.finish()


@dataclass
class _Processes:
    """In processes of their own, several at a time; what they say goes to a file beside."""

    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    stopping: bool = False

    def recruit(self, config: Config, source: Path, folder: Path) -> None:
        self._do("recruit", source, folder, [], folder.with_name(f"{folder.name}.log"))

    def run(self, arm: Arm, source: Path, shared: Sequence[Path]) -> None:
        self._do("run", source, arm.folder, shared, source.with_suffix(".log"))

    def _do(self, what: str, source: Path, folder: Path, shared: Sequence[Path], log: Path) -> None:
        words = [sys.executable, "-m", one_arm.__name__, what, *map(str, (source, folder, *shared))]
        with log.open("ab") as stream:
            if self.stopping:
                raise Interrupted(STOPPED)
            # A session of its own: Ctrl-C in a terminal reaches us alone, and we pass it on once.
            child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
            )
            self.running[child.pid] = child
            try:
                code = child.wait()
            finally:
                del self.running[child.pid]
        if code in (Interrupted.exit_code, -signal.SIGINT):
            raise Interrupted(STOPPED)
        if code:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            raise PhalanxError(f"ended with {code}: {' '.join(last)} ({log})")

    def stop(self) -> None:
        """Ask all to stop after the batch in hand, and begin no other."""
        self.stopping = True
        self._send(signal.SIGINT)

    def kill(self) -> None:
        """End all at once; what they recorded is kept."""
        self.stopping = True
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for child in list(self.running.values()):
            child.send_signal(number)


@dataclass
class _Work:
    """What is done and what has failed; every arm may take from those of its seed that are done,
    whose files were checked when they were opened."""

    comparison: Comparison
    out: Path
    runner: _Runner
    progress: Progress
    done: dict[int, list[Path]] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pool(self, seed: int) -> bool:
        """Make the recruits of a seed; whether there is a pool."""
        recruit, folder = self.comparison.base.pool.recruit, pool_folder(self.out, seed)
        if recruit is None or (folder / "pool.yaml").exists():
            return True
        config = _recruiting(self.comparison.base, seed)
        write_whole(folder / RECRUIT, to_yaml(config))

        def work() -> None:
            self.runner.recruit(config, folder / RECRUIT, folder)

        return self._do("pool", seed, work)

    def arm(self, arm: Arm) -> bool:
        """Run an arm to its end; whether it got there."""

        def work() -> None:
            with self.lock:
                shared = list(self.done.get(arm.seed, ()))
            ready = arm
            if arm.lineup.needs_best:
                ready = self._lined_up(arm, shared)
            source = arm.folder.with_name(f"{arm.name}.yaml")
            write_whole(source, to_yaml(ready.config))
            self.runner.run(ready, source, shared)

        there = self._do(arm.name, arm.seed, work)
        if there:
            with self.lock:
                self.done.setdefault(arm.seed, []).append(arm.folder)
        return there

    def _lined_up(self, arm: Arm, done: Sequence[Path]) -> Arm:
        first = arm.folder.with_name(self.comparison.against)
        if first not in done:
            raise LedgerError(f"needs {self.comparison.against}, which says who was best")
        best = read_run(first).best(0)
        return best_lined_up(arm, self.comparison.base, self.out, best)

    def _do(self, name: str, seed: int, work: Callable[[], None]) -> bool:
        self.progress.say(f"Seed {seed}, {name}")
        began = time.monotonic()
        try:
            work()
        except Interrupted:
            raise
        except Exception as error:  # one arm's fault is not another's
            why = str(error)
            if not isinstance(error, PhalanxError | OSError):
                log = pool_folder(self.out, seed).with_name(f"{name}.log")
                with log.open("a", encoding="utf-8") as stream:
                    traceback.print_exc(file=stream)
                why = f"{type(error).__name__}: {error} ({log})"
            folder = pool_folder(self.out, seed).with_name(name)
            words = [f"{folder}.yaml", "--out", str(folder)]  # what a guard proposes, for this run
            why = why.replace("phalanx run CONFIG", f"phalanx run {shlex.join(words)}")
            with self.lock:
                self.failed.append(Failed(name, seed, why))
            self.progress.say(f"  Seed {seed}, {name} failed: {why}")
            return False
        took = duration(time.monotonic() - began)
        self.progress.say(f"  Seed {seed}, {name}: done in {took}{self._taken(name, seed)}")
        return True

    def _taken(self, name: str, seed: int) -> str:
        path = run_ledger_path(pool_folder(self.out, seed).with_name(name))
        if not path.exists():
            return ""
        with Ledger(path) as ledger:
            count = ledger.count("responses", "attempts = 0")
        return f", {plural(count, 'response')} taken from other runs" if count else ""

    def no_pool(self, seed: int) -> None:
        """Nobody of this seed can begin."""
        for arm in self.comparison.arms(self.out, seed):
            self.failed.append(Failed(arm.name, seed, "the pool of this seed could not be made"))


def _in_turn(work: _Work) -> tuple[Failed, ...]:
    for seed in work.comparison.seeds:
        if not work.pool(seed):
            work.no_pool(seed)
            continue
        for arm in work.comparison.arms(work.out, seed):
            work.arm(arm)
    return tuple(work.failed)


def _side_by_side(
    work: _Work, processes: _Processes, jobs: int, should_stop: Callable[[], bool]
) -> tuple[Failed, ...]:
    """Of each seed its pool and its first arm, whose measurement all share; then the others."""

    def begin(seed: int) -> list[Arm]:
        if not work.pool(seed):
            work.no_pool(seed)
            return []
        first, *rest = work.comparison.arms(work.out, seed)
        work.arm(first)
        return rest

    with ThreadPoolExecutor(jobs) as workers:
        beginnings: set[Future] = {workers.submit(begin, s) for s in work.comparison.seeds}
        open_ = set(beginnings)
        stopped = False
        try:
            while open_:
                ended, open_ = wait(open_, timeout=0.2, return_when=FIRST_COMPLETED)
                if should_stop() and not stopped:
                    stopped = True
                    processes.stop()
                for future in ended:
                    if isinstance(future.exception(), Interrupted):
                        stopped = True
                    elif future in beginnings and not stopped:
                        open_ |= {workers.submit(work.arm, arm) for arm in future.result()}
                    else:
                        future.result()
        except BaseException:  # the second Ctrl-C
            processes.kill()
            raise
    if stopped:
        raise Interrupted(STOPPED)
    return tuple(work.failed)
