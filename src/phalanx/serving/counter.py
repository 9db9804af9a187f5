"""One thread that works off what many threads want: what waits for the same thing goes together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

_GATHER_S = 0.01
"""Seconds that an idle counter waits for the others of a crowd that comes at once."""
MOST = 64
"""Things that are taken together at most; what came later gets its turn after them."""
Serve = Callable[[Any, list[Any]], Sequence[Any]]


class Counter:
    """First come, first served, by one thread; use it as a context manager.

    ``serve(kind, things)`` gives one result for each thing, in order. All things of the kind that
    has waited longest are served together. What it raises is raised to everybody of that batch.
    """

    def __init__(self, serve: Serve, *, most: int = MOST) -> None:
        self._serve = serve
        self._most = most
        self._waiting: deque[tuple[Hashable, Any, Future[Any]]] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="phalanx-counter", daemon=True)

    def __enter__(self) -> Counter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """What waits is given up; what is under way ends first."""
        with self._news:
            self._closing = True
            for _, _, result in self._waiting:
                result.cancel()
            self._waiting.clear()
            self._news.notify_all()
        self._thread.join()

    def put(self, kind: Hashable, thing: Any) -> Future[Any]:
        """The result to come; it is cancelled where the counter closes before its turn."""
        result: Future[Any] = Future()
        with self._news:
            if self._closing:
                result.cancel()
            else:
                self._waiting.append((kind, thing, result))
                self._news.notify_all()
        return result

    def _work(self) -> None:
        while batch := self._next():
            kind, things, results = batch
            try:
                found = self._serve(kind, things)
                if len(found) != len(things):
                    raise ValueError(f"{len(things)} things were served with {len(found)} results")
            except BaseException as error:
                for result in results:
                    result.set_exception(error)
                continue
            for result, one in zip(results, found, strict=True):
                result.set_result(one)

    def _next(self) -> tuple[Hashable, list[Any], list[Future[Any]]] | None:
        """The things to be served next; None where the counter closes."""
        with self._news:
            if not self._waiting and not self._closing:
                self._news.wait_for(lambda: self._waiting or self._closing)
                self._news.wait_for(lambda: self._closing, timeout=_GATHER_S)
            if self._closing:
                return None
            kind = self._waiting[0][0]
            taken = [one for one in self._waiting if one[0] == kind][: self._most]
            places = set(map(id, taken))
            self._waiting = deque(one for one in self._waiting if id(one) not in places)
        running = [one for one in taken if one[2].set_running_or_notify_cancel()]
        return kind, [thing for _, thing, _ in running], [result for _, _, result in running]
