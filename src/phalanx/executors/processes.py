"""Jobs in several processes of this machine, each with one thread and weights of its own.

On a CPU this is what several cores are good for here: the matrix products of a small model are
too small to be shared by threads, while two members learn side by side at full speed each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from phalanx.errors import EngineError

_POLL_S = 0.2


class ProcessExecutor:
    """``map`` as :class:`phalanx.types.Executor` has it; results in the order of the jobs.

    ``setup(*arguments)`` runs once in each worker, before its first job. ``poll`` is called
    several times a second while jobs run; what it raises ends the work. Jobs, functions and
    results must be picklable, functions importable. Close it when done: the workers live on
    between maps, so that a base is loaded once.
    """

    def __init__(
        self,
        workers: int,
        setup: Callable[..., None],
        arguments: tuple[Any, ...] = (),
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._abandoned = self._context.Event()
        self._workers = workers
        self._setup = (self._abandoned, os.getpid(), setup, arguments)
        self._pool: ProcessPoolExecutor | None = None

    def map(
        self,
        function: Callable[[Any], Any],
        jobs: Sequence[Any],
        poll: Callable[[], None] = lambda: None,
    ) -> Iterator[Any]:
        """Raises what a job raised, EngineError when a worker died, and what ``poll`` raises."""
        if self._pool is None:
            self._pool = self._start()
        futures = [self._pool.submit(function, job) for job in jobs]
        try:
            for future in futures:
                yield _result(future, poll)
        except BaseException:
            for future in futures:
                future.cancel()
            self.close()
            raise

    def close(self) -> None:
        """End the workers now, whatever they are doing."""
        if self._pool is not None:
            self._abandoned.set()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            self._abandoned.clear()

    def _start(self) -> ProcessPoolExecutor:
        # Read by the workers' numerical libraries when they are loaded there.
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"
        try:
            pool = ProcessPoolExecutor(
                self._workers,
                mp_context=self._context,
                initializer=_begin,
                initargs=self._setup,
            )
            for _ in range(self._workers):
                pool.submit(os.getpid)  # starts the processes while the variable is set
        finally:
            if before is None:
                del os.environ["OMP_NUM_THREADS"]
            else:
                os.environ["OMP_NUM_THREADS"] = before
        return pool


def _result(future: Future, poll: Callable[[], None]) -> Any:
    while True:
        poll()
        try:
            return future.result(timeout=_POLL_S)
        except NotYet:
            # Done by now: a result, or what the job raised (which may be a TimeoutError too).
            if future.done():
                return future.result()
        except BrokenProcessPool as error:
            raise EngineError(
                "a worker process died (out of memory, or killed); nothing recorded is lost: "
                "start again, with fewer resources.workers if memory is short"
            ) from error


def _begin(abandoned: Any, parent: int, setup: Callable[..., None], arguments: tuple) -> None:
    """First thing in a worker: die with the parent, leave Ctrl-C to it, then set up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent and not abandoned.is_set():
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    setup(*arguments)
