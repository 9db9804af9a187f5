"""Faults on demand. Which request meets which fault depends on the seed and the request alone."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from phalanx.identity import derived_random

FaultKind = Literal[
    "", "busy", "error", "unavailable", "hang", "cut_json", "cut_connection", "html", "empty"
]


@dataclass(frozen=True)
class Raw:
    """A reply to send as it is; a ``body`` that is not text is sent as JSON."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = ""


@dataclass
class Faults:
    """Shares of the requests to /v1/completions and /v1/chat/completions that go wrong.

    ``busy`` is 429 (with ``retry_after`` seconds in the header unless None), ``error`` 500,
    ``unavailable`` 503, ``hang`` never answers until the client hangs up, ``cut_json`` has the
    right length and half of the JSON, ``cut_connection`` ends in mid-body, ``html`` is a page with
    status 200, ``empty`` has empty content. The n-th sending of one body meets the same fault
    under the same seed, whatever the order of arrival. ``most`` bounds the faults that one body
    meets. ``latency`` seconds are waited before each reply, plus up to ``jitter``.
    """

    seed: int = 0
    busy: float = 0.0
    error: float = 0.0
    unavailable: float = 0.0
    hang: float = 0.0
    cut_json: float = 0.0
    cut_connection: float = 0.0
    html: float = 0.0
    empty: float = 0.0
    retry_after: float | None = None
    most: int = 3
    latency: float = 0.0
    jitter: float = 0.0
    met: Counter[str] = field(default_factory=Counter)
    """How many requests met each kind of fault."""

    def __post_init__(self) -> None:
        self._seen: Counter[bytes] = Counter()
        self._faulty: Counter[bytes] = Counter()
        self._raw: deque[Raw] = deque()
        self._lock = threading.Lock()

    def queue(self, replies: Iterable[Raw]) -> None:
        """Send these to the next requests, one each, before anything else."""
        with self._lock:
            self._raw.extend(replies)

    def draw(self, body: bytes) -> tuple[FaultKind | Raw, float]:
        """The fault of this sending of this body, and the seconds to wait before replying."""
        with self._lock:
            self._seen[body] += 1
            rng = derived_random("fault", self.seed, body.decode("latin-1"), self._seen[body])
            point, wait = rng.random(), self.latency + self.jitter * rng.random()
            if self._raw:
                return self._raw.popleft(), wait
            kind = self._kind(point)
            if kind and self._faulty[body] >= self.most:
                kind = ""
            if kind:
                self._faulty[body] += 1
                self.met[kind] += 1
            return kind, wait

    def _kind(self, point: float) -> FaultKind:
        kinds: tuple[FaultKind, ...] = (
            "busy", "error", "unavailable", "hang", "cut_json", "cut_connection", "html", "empty",
        )  # fmt: skip
        sums = itertools.accumulate(getattr(self, kind) for kind in kinds)
        return next((kind for kind, end in zip(kinds, sums, strict=True) if point < end), "")
