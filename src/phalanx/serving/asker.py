"""``ask`` for a collective that is talked to: straight to the engines, and into no ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from phalanx.collective.ownwords import answer_alone
from phalanx.engines.orders import Hear
from phalanx.engines.streaming import Shown, answer_so_far
from phalanx.errors import Interrupted
from phalanx.types import Request, Response, Sampling

_TRIES = 3
"""A failure that may pass is tried again so often in all."""
Respond = Callable[[str, Sequence[Request]], list[Response]]


class ShowOne(Protocol):
    """A response that is heard while it is written; None where its engine cannot do that."""

    def __call__(
        self, request: Request, hear: Hear, given_up: Callable[[], bool]
    ) -> Response | None: ...


class Asker:
    """The :class:`phalanx.types.Ask` of one answer.

    The last request of a mixture, its aggregator's, is shown as it is written: ``shown`` is what
    was. ``num_prompt_tokens`` and ``num_completion_tokens`` are those of everything that was asked
    on the way. Raises Interrupted between requests where the answer is ``given_up``.
    """

    def __init__(
        self, respond: Respond, show: ShowOne, hear: Hear | None, given_up: Callable[[], bool]
    ) -> None:
        self._respond, self._show, self._hear = respond, show, hear
        self._given_up = given_up
        self.shown = ""
        self.num_prompt_tokens = 0
        self.num_completion_tokens = 0
        self.too_long = False
        """Whether the conversation did not fit in the context of one of them."""

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        unique = list({request.id: request for request in requests}.values())
        done: dict[str, Response] = {}
        if phase.endswith("aggregate") and len(unique) == 1 and self._hear is not None:
            self._one(unique[0], done)
        for attempt in range(1, _TRIES + 1):
            owed: dict[str, list[Request]] = {}
            for request in unique:
                if request.id not in done:
                    owed.setdefault(request.member.engine, []).append(request)
            for engine, some in owed.items():
                if self._given_up():
                    raise Interrupted("nobody waits for this answer any more")
                for reply in self._respond(engine, some):
                    self._count(reply)
                    if reply.error is None or not reply.error.transient or attempt == _TRIES:
                        done[reply.request_id] = reply
        return [done[request.id] for request in requests]

    def _one(self, request: Request, done: dict[str, Response]) -> None:
        """Show the answer while it is written: no reasoning that goes before it."""
        hear = self._hear
        if hear is None or not isinstance(request.want, Sampling):
            return
        shown, written = Shown(lambda piece: hear(piece, ())), []

        def take(piece: str, _: object) -> None:
            written.append(piece)
            shown.up_to(answer_so_far("".join(written)))

        reply = self._show(request, take, self._given_up)
        if reply is None:
            return
        self._count(reply)
        shown.up_to(answer_alone(reply.text or ""))
        self.shown = shown.text
        done[request.id] = reply

    def _count(self, reply: Response) -> None:
        self.too_long |= reply.error is not None and reply.error.kind == "too_long"
        self.num_prompt_tokens += reply.num_prompt_tokens
        self.num_completion_tokens += reply.num_completion_tokens
