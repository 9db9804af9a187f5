"""Jobs shared out one by one: an idle worker takes the next, and a lost worker's job goes again.

This file knows nothing of processes or clusters. An executor of either kind says which workers
can take a job, gives it to them, and tells what became of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.errors import EngineError, Interrupted

# A job whose worker died this often is given up: it is the likely cause.
MAX_LOSSES = 3
POLL_S = 0.2
Key = tuple[str, ...]
Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker's job has ended: ``value`` is its result, or the exception it raised."""

    worker: Hashable
    ok: bool
    value: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone, and with it the job that it had, if any."""

    worker: Hashable
    reason: str


class WorkerExecutor(ABC):
    """Workers that live from one phase to the next, each with one job at a time.

    ``setup(report, *arguments)`` runs once in each worker, before its first job; ``report(n)``
    there reaches the ``report`` of the work under way here. Functions must be importable and
    jobs, results and exceptions picklable.
    """

    def __init__(self) -> None:
        self.last: dict[Hashable, Key] = {}
        self._work: Sharing | None = None

    def start(
        self,
        function: Function,
        jobs: Sequence[Any],
        keys: Sequence[Key] = (),
        report: Callable[[int], None] | None = None,
    ) -> Sharing:
        """Begin the jobs. ``keys`` say what a worker must hold for each, coarse to fine.

        A worker goes on with what it holds while there is such a job, so that weights are seldom
        set anew. Raises EngineError while earlier work is under way.
        """
        if self._work is not None and self._work.num_busy:
            raise EngineError("the workers are busy with earlier work; wait for it, or close them")
        self.open()
        self._work = Sharing(self, function, jobs, keys or [()] * len(jobs), report)
        return self._work

    def map(
        self,
        function: Function,
        jobs: Sequence[Any],
        poll: Callable[[], None] = lambda: None,
        *,
        keys: Sequence[Key] = (),
        report: Callable[[int], None] | None = None,
        arrived: Callable[[int, Any], Any] = lambda number, result: result,
    ) -> Iterator[Any]:
        """Results in the order of the jobs. ``poll`` is called several times a second.

        ``arrived(number, result)`` is called as each job ends; what it returns is handed on.
        Raises what a job raised, and EngineError for a job that costs its worker's life again
        and again: nothing more is begun then, what is under way ends and arrives, and the first
        error is the one that is raised. Where ``poll`` raises Interrupted, on KeyboardInterrupt,
        and where the results are not wanted any more, workers that are busy are ended at once.
        """
        work = self.start(function, jobs, keys, report)
        ended: dict[int, Any] = {}

        def take() -> None:
            for at, result in work.wait(POLL_S):
                ended[at] = arrived(at, result)

        try:
            for number in range(len(jobs)):
                while number not in ended:
                    poll()
                    take()
                poll()
                yield ended.pop(number)
        except BaseException as error:
            work.stop()
            try:
                if isinstance(error, Exception) and not isinstance(error, Interrupted):
                    _wind_down(work, poll, take)
            finally:
                self._end_if_busy(work)
            raise

    def _end_if_busy(self, work: Sharing) -> None:
        if work.num_busy:
            self.close()
            self._work = None

    @abstractmethod
    def open(self) -> None:
        """Make the workers, if there are none yet."""

    @abstractmethod
    def close(self) -> None:
        """End the workers now, whatever they are doing."""

    @abstractmethod
    def ready(self) -> Sequence[Hashable]:
        """The workers that live and can take jobs, busy ones included."""

    @abstractmethod
    def give(self, worker: Hashable, function: Function, job: Any) -> None:
        """Hand an idle worker a job. That it died in the meantime is told by :meth:`events`."""

    @abstractmethod
    def events(
        self, seconds: float, report: Callable[[int], None] | None
    ) -> Sequence[Ended | Lost]:
        """What happened; waits up to ``seconds`` for something. A lost worker is replaced."""


class Sharing:
    """The jobs of one call of :meth:`WorkerExecutor.start`."""

    def __init__(
        self,
        workers: WorkerExecutor,
        function: Function,
        jobs: Sequence[Any],
        keys: Sequence[Key],
        report: Callable[[int], None] | None,
    ) -> None:
        self._workers = workers
        self._function = function
        self._jobs = jobs
        self._keys = keys
        self._report = report
        self._queues: dict[Key, deque[int]] = {}
        for number, key in enumerate(keys):
            self._queues.setdefault(key, deque()).append(number)
        self._busy: dict[Hashable, int] = {}
        self._losses: Counter[int] = Counter()
        self._ended: list[tuple[int, Any]] = []
        self._failed: deque[BaseException] = deque()
        self._stopped = False
        self._feed()

    @property
    def num_busy(self) -> int:
        return len(self._busy)

    @property
    def num_open(self) -> int:
        """Jobs that :meth:`wait` has yet to return or raise."""
        waiting = sum(map(len, self._queues.values()))
        return waiting + len(self._busy) + len(self._ended) + len(self._failed)

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        """(number of the job, its result) of those that ended; blocks for the first one.

        Raises what a job raised, after the results that came before it were returned.
        """
        until = time.monotonic() + seconds
        while self._busy or self._queues:
            left = 0.0 if self._ended or self._failed else max(0.0, until - time.monotonic())
            for event in self._workers.events(left, self._report):
                self._take(event)
            if not self._failed:  # whoever waits is told first, and may want no more begun
                self._feed()
            if left <= 0 or self._ended or self._failed:
                break
        if not self._ended and self._failed:
            raise self._failed.popleft()
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        """Begin nothing more; what is under way still ends."""
        self._stopped = True
        self._queues.clear()

    def _feed(self) -> None:
        for worker in self._workers.ready():
            if not self._queues:
                return
            if worker not in self._busy:
                number = self._pick(worker)
                self._busy[worker] = number
                self._workers.last[worker] = self._keys[number]
                try:
                    self._workers.give(worker, self._function, self._jobs[number])
                except Exception as error:  # it cannot be sent; raised by wait
                    del self._busy[worker]
                    self._failed.append(error)

    def _pick(self, worker: Hashable) -> int:
        """What it holds already; else what no other worker holds; else the longest queue."""
        last = self._workers.last.get(worker, ())
        held = [self._keys[number] for other, number in self._busy.items() if other != worker]

        def merit(key: Key) -> tuple[int, int, int]:
            others = max((_shared(key, other) for other in held), default=0)
            return (_shared(key, last), -others, len(self._queues[key]))

        key = max(self._queues, key=merit)
        number = self._queues[key].popleft()
        if not self._queues[key]:
            del self._queues[key]
        return number

    def _take(self, event: Ended | Lost) -> None:
        if isinstance(event, Lost):
            self._workers.last.pop(event.worker, None)
        number = self._busy.pop(event.worker, None)
        if number is None:
            return
        if isinstance(event, Lost):
            self._lose(number, event.reason)
        elif event.ok:
            self._ended.append((number, event.value))
        else:
            self._failed.append(event.value)

    def _lose(self, number: int, reason: str) -> None:
        self._losses[number] += 1
        key = self._keys[number]
        if self._losses[number] < MAX_LOSSES and not self._stopped:
            self._queues.setdefault(key, deque()).appendleft(number)
            return
        name = f"{number + 1} of {len(self._jobs)}" + (f" ({', '.join(key)})" if key else "")
        self._failed.append(
            EngineError(
                f"job {name} was given up after {self._losses[number]} losses of its worker "
                f"(out of memory, or killed?); the last: {reason}. Nothing recorded is lost: start "
                "again, with fewer workers or a smaller resources.batch_size if memory is short"
            )
        )


class Station:
    """A worker's side: set up once, then one job after another; nothing is raised here."""

    def __init__(
        self, setup: Callable[..., None], report: Callable[[int], None], arguments: tuple[Any, ...]
    ) -> None:
        self._fault: Exception | None = None
        try:
            setup(report, *arguments)
        except Exception as error:  # told to whoever gives the first job
            self._fault = error

    def do(self, function: Function, job: Any) -> tuple[bool, Any]:
        """(True, result) or (False, what was raised)."""
        if self._fault is not None:
            return False, self._fault
        try:
            return True, function(job)
        except Exception as error:
            return False, error


def _wind_down(work: Sharing, poll: Callable[[], None], take: Callable[[], None]) -> None:
    """Wait for what is under way in stopped work. Raises what ``poll`` raises, and nothing else."""
    while count := work.num_open:
        poll()
        try:
            take()
        except Exception:
            # A job that failed too: the first error is the one that is told. Where none has
            # ended, the executor itself is broken, and nothing more will come of it.
            if work.num_open == count:
                return


def _shared(one: Key, other: Key) -> int:
    """How many leading parts the keys have in common."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
