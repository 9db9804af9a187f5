"""``ask``: skip what the ledger has, plan, execute, record, put back in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from phalanx.errors import EngineError, Interrupted
from phalanx.ledger import Ledger
from phalanx.types import Engine, Progress, Request, Response

# Attempts that a request gets in all, over every time the run is started again.
MAX_ATTEMPTS = 5
# Rounds within one start: the first, and two more for failures that may pass.
_ROUNDS = 3


class Dispatcher:
    """Carries one iteration's questions to the engines and their answers to the ledger.

    ``engine_of(name)`` makes or returns an engine. ``should_stop()`` is looked at between
    batches: Ctrl-C finishes the batch in hand, which is recorded, and raises Interrupted.
    """

    def __init__(
        self,
        ledger: Ledger,
        engine_of: Callable[[str], Engine],
        progress: Progress,
        should_stop: Callable[[], bool],
        iteration: int,
    ) -> None:
        self._ledger = ledger
        self._engine_of = engine_of
        self._progress = progress
        self._should_stop = should_stop
        self._iteration = iteration
        # A stored failure is asked again once per start, not once per call.
        self._retried: set[str] = set()

    def ask(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        """Responses in the order of the requests; a failed one carries its error.

        Batches are planned from the whole phase, answered or not, so that a resumed run forms
        the same ones; of a batch that is partly answered the owed rows alone are recorded.
        """
        unique = list({request.id: request for request in requests}.values())
        known = self._ledger.responses([request.id for request in unique])
        attempts = {key: tries for key, (_, tries) in known.items()}
        done = {key: reply for key, (reply, tries) in known.items() if self._settled(reply, tries)}
        started = time.monotonic()
        self._progress.start(phase, len(unique), "requests")
        self._progress.advance(len(done))
        try:
            for round_ in range(_ROUNDS):
                self._round(phase, unique, done, attempts, last=round_ == _ROUNDS - 1)
                if len(done) == len(unique):
                    break
        finally:
            self._ledger.add_seconds(
                self._iteration, phase, time.monotonic() - started, len(unique)
            )
            self._progress.finish()
        return [done[request.id] for request in requests]

    def _settled(self, reply: Response, tries: int) -> bool:
        if reply.error is None or tries >= MAX_ATTEMPTS:
            return True
        return reply.request_id in self._retried

    def _round(
        self,
        phase: str,
        unique: Sequence[Request],
        done: dict[str, Response],
        attempts: dict[str, int],
        *,
        last: bool,
    ) -> None:
        by_engine: dict[str, list[Request]] = {}
        for request in unique:
            by_engine.setdefault(request.member.engine, []).append(request)
        for name, group in by_engine.items():
            if all(request.id in done for request in group):
                continue
            engine = self._engine_of(name)
            for positions in engine.plan(group):
                batch = [group[position] for position in positions]
                owed = [request for request in batch if request.id not in done]
                if not owed:
                    continue
                self._check_stop(phase)
                started = time.monotonic()
                replies = engine.respond(batch)
                _check_replies(name, batch, replies)
                fresh = []
                for request, reply in zip(batch, replies, strict=True):
                    if request.id in done:
                        continue
                    attempts[request.id] = attempts.get(request.id, 0) + 1
                    fresh.append((request, reply, attempts[request.id]))
                    tired = last or attempts[request.id] >= MAX_ATTEMPTS
                    if reply.error is None or not reply.error.transient or tired:
                        done[request.id] = reply
                        self._retried.add(request.id)
                        self._progress.advance()
                elapsed = time.monotonic() - started
                self._ledger.record_responses(self._iteration, phase, fresh, elapsed)

    def _check_stop(self, phase: str) -> None:
        if self._should_stop():
            raise Interrupted(
                f"stopped in iteration {self._iteration}, phase {phase}; everything answered is "
                "recorded, and the same command goes on from here"
            )


def _check_replies(name: str, batch: Sequence[Request], replies: Sequence[Response]) -> None:
    """An engine that loses or mixes up responses is broken; nothing of it is recorded."""
    expected = [request.id for request in batch]
    if [reply.request_id for reply in replies] != expected:
        raise EngineError(
            f"engine {name} was given {len(batch)} requests and returned {len(replies)} responses "
            "that are not theirs, in order"
        )
