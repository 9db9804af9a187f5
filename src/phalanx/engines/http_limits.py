"""How many requests an endpoint gets, and when: an adaptive window, pauses and smooth rates."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from phalanx.identity import derived_random

START_WINDOW = 4
"""Requests in flight at first."""
CROWDED = 0.15
"""Share of busy replies in a round from which on the window is too wide."""
LONGEST_WAIT_S = 300.0
"""The longest that a server's Retry-After is obeyed."""
_LONGEST_BACKOFF_S = 30.0
# Of fewer replies a share says little: one in four is chance where one in ten is busy.
_FEWEST = 10


def backoff(base: float, number: int, *place: object) -> float:
    """Seconds before another try: doubles from ``base``, with jitter derived from ``place``.

    >>> 0.5 <= backoff(0.5, 1, "r1") <= 1.0
    True
    """
    longest = min(base * 2.0 ** min(number, 60), _LONGEST_BACKOFF_S)
    return longest * (0.5 + 0.5 * derived_random("backoff", number, *place).random())


class Bucket:
    """A smooth rate: ``per_minute`` units a minute, at most a second's worth at once.

    A single amount larger than that passes when the bucket is full, and is paid back after. What
    is given back stays as credit, at most a minute's worth.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, self._rate)
        self._level = self._most
        self._credit = 0.0
        self._at = now

    def delay(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken."""
        self._fill(now)
        there = self._level + self._credit
        return max(0.0, (min(amount, self._most) - there) / self._rate)

    def take(self, amount: float, now: float) -> None:
        """Take it; a negative amount gives back what was estimated too high."""
        self._fill(now)
        self._level -= amount
        over = self._level - self._most
        if over > 0:
            self._level -= over
            self._credit = min(self._credit + over, 60 * self._rate)
        elif self._level < 0:
            used = min(self._credit, -self._level)
            self._credit -= used
            self._level += used

    def _fill(self, now: float) -> None:
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now


class Gate:
    """Lets requests of one endpoint through: used inside one asyncio loop.

    The window starts at :data:`START_WINDOW` and grows by one with every good reply, or, once the
    server was seen crowded, by one a round, up to ``most``. A round is a window's worth of replies
    (ten at least). It ends with a cut in proportion to the share of busy ones, as DCTCP does
    (Alizadeh et al. 2010): all busy halves the window, a few that are busy for reasons of their
    own hardly narrow it. A round with more than :data:`CROWDED` is followed by one without growth,
    and what was in flight then counts no more.
    """

    def __init__(
        self,
        most: int,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._clock = clock
        now = clock()
        self._requests = Bucket(requests_per_minute, now) if requests_per_minute else None
        self._tokens = Bucket(tokens_per_minute, now) if tokens_per_minute else None
        self._window = float(min(START_WINDOW, most))
        self._slow_start = True
        self._crowded = False
        self._epoch = 0
        self._ended = self._busy = 0
        self._paused_until = 0.0
        self._first: deque[tuple[asyncio.Future[None], int]] = deque()
        self._others: deque[tuple[asyncio.Future[None], int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.num_inside = 0

    @property
    def window(self) -> int:
        """Requests that may be in flight now."""
        return int(self._window)

    async def enter(self, tokens: int, again: bool = False) -> int:
        """Wait for a place; returns the epoch that :meth:`congested` wants. ``again`` goes first.

        ``tokens`` is the estimate that the token rate is charged with.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._first if again else self._others).append((place, tokens))
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise
        return self._epoch

    def leave(self) -> None:
        """Give the place back."""
        self.num_inside -= 1
        self._admit()

    def correct(self, tokens: int) -> None:
        """Charge the token rate with ``tokens`` more (or fewer) than were estimated."""
        if self._tokens:
            self._tokens.take(tokens, self._clock())

    def went_well(self, epoch: int) -> None:
        """A reply came; while the window is in use, a wider one may do."""
        if self.num_inside >= self.window and not self._crowded:
            self._window += 1.0 if self._slow_start else 1.0 / self._window
            self._window = min(self._window, float(self._most))
        self._count(epoch, busy=False)

    def congested(self, epoch: int) -> bool:
        """The server is busy. Returns whether it is news: the first such reply of its round."""
        news = epoch == self._epoch and not self._busy
        self._count(epoch, busy=True)
        return news

    def _count(self, epoch: int, busy: bool) -> None:
        if epoch != self._epoch:
            return
        self._ended += 1
        self._busy += busy
        # A round ends early where it is clear already that half of it is too much.
        size = max(self.window, _FEWEST)
        if self._ended < size and 2 * self._busy < size:
            return
        share = self._busy / self._ended
        self._window = max(1.0, self._window * (1 - share / 2))
        self._crowded = share > CROWDED
        self._slow_start = self._slow_start and not self._crowded
        self._next_round(news=self._crowded)

    def _next_round(self, news: bool) -> None:
        """Begin to count anew; after news what is in flight says nothing about the new window."""
        self._epoch += news
        self._ended = self._busy = 0

    def closed(self, epoch: int) -> bool:
        """The server cannot be reached: one request at a time, and a slow start afterwards.

        Returns whether that is news: requests that began together fail together.
        """
        if epoch != self._epoch:
            return False
        self._window, self._slow_start, self._crowded = 1.0, True, False
        self._next_round(news=True)
        return True

    def pause(self, seconds: float) -> None:
        """Let nothing through for so long; what is in flight goes on."""
        seconds = min(seconds, LONGEST_WAIT_S)
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _admit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.num_inside < self.window:
            queue = self._first or self._others
            if not queue:
                return
            place, tokens = queue[0]
            if place.done():  # cancelled while it waited
                queue.popleft()
                continue
            now = self._clock()
            if (delay := self._delay(tokens, now)) > 0:
                self._timer = asyncio.get_running_loop().call_later(delay, self._admit)
                return
            queue.popleft()
            self._charge(tokens, now)
            self.num_inside += 1
            place.set_result(None)

    def _delay(self, tokens: int, now: float) -> float:
        delays = [self._paused_until - now]
        if self._requests:
            delays.append(self._requests.delay(1, now))
        if self._tokens:
            delays.append(self._tokens.delay(tokens, now))
        # A timer may ring a little early; asking again at once would spin.
        longest = max(delays)
        return max(longest, 0.001) if longest > 0 else 0.0

    def _charge(self, tokens: int, now: float) -> None:
        if self._requests:
            self._requests.take(1, now)
        if self._tokens:
            self._tokens.take(tokens, now)
