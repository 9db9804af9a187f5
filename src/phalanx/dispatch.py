"""``ask``: skip what the ledger has, plan, execute, record, put back in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from phalanx.errors import EngineError, Interrupted, PhalanxError
from phalanx.ledger import Ledger
from phalanx.types import ConcurrentEngine, Engine, Progress, Request, Response, Work

Elsewhere = Callable[[Sequence[Request]], Mapping[str, Response]]
"""Responses that are known at another place, by the ids of the requests."""
Heard = Callable[[str, int, Sequence[tuple[Request, Response]]], None]
"""Called with a phase, how many requests it has, and those answered since the last call, the
stored ones first. What it raises ends the phase; what was answered until then is recorded."""

# Attempts that a request gets in all, over every time the run is started again.
MAX_ATTEMPTS = 5
# Attempts of a response that was taken from another run: this one sent nothing.
TAKEN = 0
# Rounds within one start: the first, and two more for failures that may pass.
_ROUNDS = 3
# Responses of concurrent engines are recorded together for up to this long.
_WAIT_S = 0.2
# Batches answered in turn are recorded together where they end faster than this.
_TURN_S = 0.05


def is_settled(reply: Response, tries: int) -> bool:
    """Whether a recorded reply stands: it is an answer, or was tried as often as is allowed."""
    return reply.error is None or tries >= MAX_ATTEMPTS


class InTurn:
    """The :class:`phalanx.types.Work` of an engine that answers one batch when waited for."""

    def __init__(self, engine: Engine, batches: Sequence[Sequence[Request]]) -> None:
        self._engine = engine
        self._batches = batches
        self._next = 0

    @property
    def num_open(self) -> int:
        return len(self._batches) - self._next

    def wait(self, seconds: float) -> list[tuple[int, list[Response]]]:
        number = self._next
        replies = self._engine.respond(self._batches[number])
        self._next += 1
        return [(number, replies)]

    def stop(self) -> None:
        self._batches = self._batches[: self._next]


@dataclass
class _Group:
    """The batches of one engine that are owed, and the work on them."""

    engine: str
    batches: list[list[Request]]
    work: Work
    facts: Callable[[], Mapping[str, str]]
    news: Callable[[], Sequence[str]] = tuple

    @property
    def waits(self) -> bool:
        """Whether waiting is all there is to do: the work goes on elsewhere."""
        return not isinstance(self.work, InTurn)


@dataclass
class _Phase:
    """One call of ``ask``: what is done, and how often each request was tried."""

    name: str
    requests: list[Request]
    done: dict[str, Response]
    attempts: dict[str, int]
    last_round: bool = False
    groups: list[_Group] = field(default_factory=list)
    unwritten: list[tuple[Request, Response, int]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    recorded_at: float = field(default_factory=time.monotonic)


class Dispatcher:
    """Carries one iteration's questions to the engines and their answers to the ledger.

    ``engine_of(name)`` makes or returns an engine. ``should_stop()`` is looked at between
    batches: Ctrl-C finishes what is under way, which is recorded, and raises Interrupted.
    Concurrent engines (endpoints, servers, workers) go on while this process serves its own
    members. Only this process writes to the ledger. ``elsewhere(requests)`` may know the responses
    to some that the ledger has not, by their ids: from another run, say. They are recorded as if
    they had been asked here, with no attempt.
    """

    def __init__(
        self,
        ledger: Ledger,
        engine_of: Callable[[str], Engine],
        progress: Progress,
        should_stop: Callable[[], bool],
        iteration: int,
        elsewhere: Elsewhere | None = None,
        heard: Heard | None = None,
    ) -> None:
        self._ledger = ledger
        self._engine_of = engine_of
        self._progress = progress
        self._should_stop = should_stop
        self._iteration = iteration
        self._elsewhere = elsewhere
        self._heard = heard
        # A stored failure is asked again once per start, not once per call.
        self._retried: set[str] = set()

    def ask(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        """Responses in the order of the requests; a failed one carries its error.

        Batches are planned from the whole phase, answered or not, so that a resumed run forms
        the same ones; of a batch that is partly answered the owed rows alone are recorded.
        """
        unique = list({request.id: request for request in requests}.values())
        known = self._ledger.responses([request.id for request in unique])
        asked = _Phase(
            phase,
            unique,
            done={
                key: reply for key, (reply, tries) in known.items() if self._settled(reply, tries)
            },
            attempts={key: tries for key, (_, tries) in known.items()},
        )
        started = time.monotonic()
        # A phase may be asked several times, as for each turn of conversations: what it has and
        # what is new. What another phase asked first is accounted for there. Written before the
        # first response, since a process that is killed writes nothing at its end.
        here = ("iteration = ? AND phase = ?", (self._iteration, phase))
        own = self._ledger.count("responses", *here) + len(unique) - len(known)
        self._ledger.add_seconds(self._iteration, phase, 0.0, own)
        self._take_from_elsewhere(asked)
        self._progress.start(phase, len(unique), "requests")
        self._progress.advance(len(asked.done))
        try:
            self._tell(asked, [one for one in unique if one.id in asked.done])
            for number in range(_ROUNDS):
                asked.last_round = number == _ROUNDS - 1
                self._round(asked)
                if len(asked.done) == len(unique):
                    break
        finally:
            self._ledger.add_seconds(self._iteration, phase, time.monotonic() - started)
            self._progress.finish()
        return [asked.done[request.id] for request in requests]

    def _take_from_elsewhere(self, asked: _Phase) -> None:
        """Record what another place has answered already."""
        new = [request for request in asked.requests if request.id not in asked.attempts]
        found = self._elsewhere(new) if self._elsewhere and new else {}
        taken = [(request, found[request.id], TAKEN) for request in new if request.id in found]
        if taken:
            self._ledger.record_responses(self._iteration, asked.name, taken, 0.0)
            asked.done |= {request.id: reply for request, reply, _ in taken}

    def _settled(self, reply: Response, tries: int) -> bool:
        return is_settled(reply, tries) or reply.request_id in self._retried

    def _round(self, asked: _Phase) -> None:
        """Every owed batch once. Concurrent work is begun first, and looked at between batches."""
        if len(asked.done) < len(asked.requests):
            self._check_stop(asked)
        # Whatever may be refused is refused before the first request is sent.
        planned = self._planned(asked)
        asked.recorded_at = time.monotonic()
        asked.groups = []
        try:
            for name, engine, batches in planned:
                asked.groups.append(_begin(name, engine, batches))
            asked.groups.sort(key=lambda group: not group.waits)
            while open_ := [group for group in asked.groups if group.work.num_open]:
                idle = all(group.waits for group in open_)
                for group in open_:
                    self._take(asked, group, _WAIT_S if idle else 0.0)
                if any(group.work.num_open for group in asked.groups):
                    self._check_stop(asked)
        except Exception:  # not KeyboardInterrupt: the second Ctrl-C stops at once
            self._wind_down(asked)
            raise
        finally:
            self._write(asked)

    def _planned(
        self, asked: _Phase
    ) -> list[tuple[str, Engine | ConcurrentEngine, list[list[Request]]]]:
        """(name, engine, owed batches) of every engine that has any; none is begun."""
        by_engine: dict[str, list[Request]] = {}
        for request in asked.requests:
            by_engine.setdefault(request.member.engine, []).append(request)
        planned = []
        for name, requests in by_engine.items():
            if all(request.id in asked.done for request in requests):
                continue
            engine = self._engine_of(name)
            batches = ([requests[at] for at in positions] for positions in engine.plan(requests))
            owed = [b for b in batches if any(request.id not in asked.done for request in b)]
            planned.append((name, engine, owed))
        return planned

    def _take(self, asked: _Phase, group: _Group, seconds: float) -> None:
        """Note what has ended, and write it: at once where it ended elsewhere or took a while."""
        settled: list[Request] = []
        for number, replies in group.work.wait(seconds):
            batch = group.batches[number]
            _check_replies(group.engine, batch, replies)
            for request, reply in zip(batch, replies, strict=True):
                if request.id in asked.done:
                    continue
                tries = asked.attempts[request.id] = asked.attempts.get(request.id, 0) + 1
                asked.unwritten.append((request, reply, tries))
                tired = asked.last_round or tries >= MAX_ATTEMPTS
                if reply.error is None or not reply.error.transient or tired:
                    asked.done[request.id] = reply
                    if reply.error is not None:
                        self._retried.add(request.id)
                    settled.append(request)
        if group.waits or time.monotonic() - asked.recorded_at >= _TURN_S:
            self._write(asked)
        if settled:
            self._progress.advance(len(settled))
        for text in group.news():
            self._progress.say(text)
        self._tell(asked, settled)

    def _tell(self, asked: _Phase, settled: Sequence[Request]) -> None:
        if self._heard is not None and settled:
            replies = [(request, asked.done[request.id]) for request in settled]
            self._heard(asked.name, len(asked.requests), replies)

    def _write(self, asked: _Phase) -> None:
        """Everything that is not written yet, in one transaction, with the engines' facts.

        Facts count without responses, too: a try that came to nothing may have cost money.
        """
        facts = {key: text for group in asked.groups for key, text in group.facts().items()}
        if asked.unwritten or facts != asked.facts:
            now = time.monotonic()
            self._ledger.record_responses(
                self._iteration, asked.name, asked.unwritten, now - asked.recorded_at, facts
            )
            if asked.unwritten:  # rows share the time since the last ones were written
                asked.recorded_at = now
            asked.unwritten, asked.facts = [], facts

    def _wind_down(self, asked: _Phase) -> None:
        """Begin nothing more; what is under way elsewhere ends and is recorded."""
        for group in asked.groups:
            group.work.stop()
        for group in asked.groups:
            try:
                while group.waits and group.work.num_open:
                    self._take(asked, group, _WAIT_S)
            except PhalanxError:
                continue  # broken as well; the first error is the one that is reported

    def _check_stop(self, asked: _Phase) -> None:
        if self._should_stop():
            raise Interrupted(
                f"stopped in iteration {self._iteration}, phase {asked.name}; everything answered "
                "is recorded, and the same command goes on from here"
            )


def _begin(name: str, engine: Engine | ConcurrentEngine, batches: list[list[Request]]) -> _Group:
    if hasattr(engine, "start"):
        news = getattr(engine, "news", tuple)
        return _Group(name, batches, engine.start(batches), engine.facts, news)
    return _Group(name, batches, InTurn(engine, batches), dict)


def _check_replies(name: str, batch: Sequence[Request], replies: Sequence[Response]) -> None:
    """An engine that loses or mixes up responses is broken; nothing of it is recorded."""
    expected = [request.id for request in batch]
    if [reply.request_id for reply in replies] != expected:
        raise EngineError(
            f"engine {name} was given {len(batch)} requests and returned {len(replies)} responses "
            "that are not theirs, in order"
        )
