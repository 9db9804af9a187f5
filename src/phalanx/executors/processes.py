"""Jobs in several processes of this machine, each with one thread and weights of its own.

On a CPU this is what several cores are good for here: the matrix products of a small model are
too small to be shared by threads, while two members work side by side at full speed each.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from phalanx.errors import EngineError
from phalanx.executors.sharing import POLL_S, Ended, Function, Lost, Station, WorkerExecutor

_VARIABLE = "OMP_NUM_THREADS"
# Time to tidy up: half-written folders, semaphores.
_LEAVE_S = 3.0


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    pipe: Connection


class ProcessExecutor(WorkerExecutor):
    """``workers`` processes. Close it when done: they live on, so that a base is loaded once."""

    def __init__(
        self, workers: int, setup: Callable[..., None], arguments: tuple[Any, ...] = ()
    ) -> None:
        super().__init__()
        self._context = multiprocessing.get_context("spawn")
        self._count = workers
        self._setup = (os.getpid(), setup, arguments)
        self._crew: dict[int, _Worker] = {}
        self._hired = 0

    def open(self) -> None:
        while len(self._crew) < self._count:
            self._hire()

    def close(self) -> None:
        for worker in self._crew.values():
            worker.process.terminate()
            worker.pipe.close()
        until = time.monotonic() + _LEAVE_S
        for worker in self._crew.values():
            worker.process.join(max(0.0, until - time.monotonic()))
            worker.process.kill()
            worker.process.join()
        self._crew.clear()
        self.last.clear()

    def ready(self) -> Sequence[int]:
        return list(self._crew)

    def give(self, worker: Hashable, function: Function, job: Any) -> None:
        try:
            self._crew[worker].pipe.send((function, job))
        except OSError:
            return  # it died just now: its pipe tells so, too

    def events(
        self, seconds: float, report: Callable[[int], None] | None
    ) -> Sequence[Ended | Lost]:
        number_of = {worker.pipe: number for number, worker in self._crew.items()}
        found: list[Ended | Lost] = []
        for pipe in wait(list(number_of), seconds):
            number = number_of[pipe]
            try:
                kind, *value = pipe.recv()
            except (EOFError, OSError):
                found.append(Lost(number, self._bury(number)))
                self._hire()
                continue
            if kind == "ended":
                found.append(Ended(number, *value))
            elif report is not None:
                report(*value)
        return found

    def _hire(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_work, args=(there, *self._setup), daemon=True)
        # Read by the worker's numerical libraries when they are loaded there.
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = "1"
        try:
            process.start()
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before
        there.close()
        self._hired += 1
        self._crew[self._hired] = _Worker(process, here)

    def _bury(self, number: int) -> str:
        worker = self._crew.pop(number)
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode or 0
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return f"worker process {worker.process.pid} died {how}"


def _work(pipe: Connection, parent: int, setup: Callable[..., None], arguments: tuple) -> None:
    """A worker's life: it leaves Ctrl-C to its parent and dies with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    station = Station(setup, lambda amount: pipe.send(("report", amount)), arguments)
    while True:
        function, job = pipe.recv()
        ok, value = station.do(function, job)
        try:
            pipe.send(("ended", ok, value))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            what = "result" if ok else f"{type(value).__name__}: {value}"
            pipe.send(("ended", False, EngineError(f"cannot be sent back: {what} ({error})")))
