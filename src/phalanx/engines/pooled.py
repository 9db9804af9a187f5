"""Members answer on workers: batches are planned here, where no weights are, and answered there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from phalanx.types import Member, Request, Response, StreamingEngine, Work


class Workers(Protocol):
    """What this engine needs of an executor (see ``phalanx.executors.sharing``)."""

    def start(
        self,
        function: Callable[[Any], list[Response]],
        jobs: Sequence[Any],
        keys: Sequence[tuple[str, ...]],
    ) -> Work: ...


class PooledEngine:
    """A :class:`phalanx.types.ConcurrentEngine`.

    ``planner`` is the engine that would answer here; but for streams it only plans, so the
    batches, and with them the responses, are those of the same engine in one process.
    ``answer(job)`` answers one batch on a worker; ``pack(batches)`` makes the jobs.
    """

    def __init__(
        self,
        planner: StreamingEngine,
        workers: Workers,
        answer: Callable[[Any], list[Response]],
        pack: Callable[[Sequence[Sequence[Request]]], Sequence[Any]],
    ) -> None:
        self._planner = planner
        self._workers = workers
        self._answer = answer
        self._pack = pack

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        """The planner's batches; needs tokenizers only."""
        return self._planner.plan(requests)

    def start(self, batches: Sequence[Sequence[Request]]) -> Work:
        """Batches of one member go to one worker while the others have work of their own."""
        # A planned phase has each member's long batches last; begun first, none is waited for
        # at the end while the other workers are idle.
        backwards = list(batches)[::-1]
        keys = [job_key(batch[0].member) for batch in backwards]
        work = self._workers.start(self._answer, self._pack(backwards), keys)
        return _Backwards(work, len(backwards))

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        plan = self.plan(requests)
        work = self.start([[requests[at] for at in batch] for batch in plan])
        found: dict[int, Response] = {}
        while work.num_open:
            for number, replies in work.wait(1.0):
                found.update(zip(plan[number], replies, strict=True))
        return [found[at] for at in range(len(requests))]

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """Answered here, by the engine that plans: a text is shown where somebody sits.

        That loads the member's weights into this process, beside those of the workers.
        """
        return self._planner.stream(request, show)

    def facts(self) -> dict[str, str]:
        """Nothing to keep: the workers hold no state that a later start needs."""
        return {}

    def restore(self, facts: Mapping[str, str]) -> None: ...

    def close(self) -> None:
        """Forget the tokenizers. The workers are the executor's to end."""
        self._planner.close()


def job_key(member: Member) -> tuple[str, str]:
    """What a worker must hold for a member, coarse to fine: the base as it is loaded, the version.

    >>> job_key(Member("ada", "org/base", version=2, dtype="float16"))
    ('org/base as float16', 'ada@2')
    """
    dtype = f" as {member.dtype}" if member.dtype != "auto" else ""
    trust = " with its own code" if member.trust_remote_code else ""
    return f"{member.base}{dtype}{trust}", member.key


class _Backwards:
    """Work whose batches were handed over in reverse."""

    def __init__(self, work: Work, count: int) -> None:
        self._work = work
        self._count = count

    @property
    def num_open(self) -> int:
        return self._work.num_open

    def wait(self, seconds: float) -> list[tuple[int, list[Response]]]:
        return [(self._count - 1 - at, replies) for at, replies in self._work.wait(seconds)]

    def stop(self) -> None:
        self._work.stop()
