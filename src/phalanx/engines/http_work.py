"""Batches on their way through the background loop: what the dispatcher holds of them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from phalanx.types import Request, Response

Place = tuple[int, int]
"""(number of the batch, position in it)"""


class HttpWork:
    """The :class:`phalanx.types.Work` of engines that answer in a loop of their own.

    The caller's thread uses ``num_open``, ``wait`` and ``stop``; the loop uses the rest.
    """

    def __init__(self, batches: Sequence[Sequence[Request]], halt: Callable[[], None]) -> None:
        self.batches = [list(batch) for batch in batches]
        self.stopped = False
        self._halt = halt
        self._replies: list[dict[int, Response]] = [{} for _ in self.batches]
        self._ended: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._begun: set[int] = set()
        self._num_returned = 0
        self._over = False
        self._error: BaseException | None = None

    # The caller's side.

    @property
    def num_open(self) -> int:
        if self._over:
            return 1 if self._error else 0  # one more wait, to raise it
        total = len(self._begun) if self.stopped else len(self.batches)
        return max(total - self._num_returned, 1)

    def wait(self, seconds: float) -> list[tuple[int, list[Response]]]:
        if self._over:
            self._raise()
            return []
        numbers: list[int] = []
        try:
            item = self._ended.get(timeout=seconds) if seconds > 0 else self._ended.get_nowait()
            while True:
                if item is None:
                    self._over = True
                else:
                    numbers.append(item)
                item = self._ended.get_nowait()
        except queue.Empty:
            pass  # that is all for now
        self._num_returned += len(numbers)
        if self._over and not numbers:
            self._raise()
        return [(number, self._in_order(number)) for number in numbers]

    def stop(self) -> None:
        self.stopped = True
        self._halt()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _in_order(self, number: int) -> list[Response]:
        replies, self._replies[number] = self._replies[number], {}
        return [replies[position] for position in range(len(self.batches[number]))]

    # The loop's side.

    def begin(self, place: Place) -> None:
        self._begun.add(place[0])

    def put(self, place: Place, reply: Response) -> None:
        """A request is answered; the batch ends with its last one."""
        number, position = place
        self._replies[number][position] = reply
        if len(self._replies[number]) == len(self.batches[number]):
            self._ended.put(number)

    def fail(self, error: BaseException) -> None:
        """Begin nothing more, and raise this when what is under way has ended."""
        if self._error is None:
            self._error = error
        self.stopped = True
        self._halt()

    def over(self) -> None:
        """Nothing is under way any more."""
        self._ended.put(None)
