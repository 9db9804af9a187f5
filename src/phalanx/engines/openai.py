"""Members behind OpenAI-compatible servers: many requests in flight, beside the caller.

One background thread runs an asyncio loop. Each request is a batch of its own, so that nothing
answered is ever sent again; each endpoint has a lane that begins its requests in order, as its
gate lets them through. Failures of one request are responses; only what no further try can change
(a refused key, an unknown model, a silent server, a spent budget) ends the work, and what is under
way then still ends and is returned.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.config.rules_served import fault_in_key
from phalanx.config.schema import BudgetSettings, EndpointSettings
from phalanx.engines.http_account import Account
from phalanx.engines.http_endpoint import Dropped, Endpoint, SilentEndpoint
from phalanx.engines.http_orders import GivenUp, fulfil
from phalanx.engines.http_reading import Token
from phalanx.engines.http_stream import SHOWN_OTHERWISE, Listener
from phalanx.engines.http_talk import Talk, estimate, modes_for
from phalanx.engines.http_work import HttpWork, Place
from phalanx.engines.orders import Order, Written, never
from phalanx.errors import EngineError
from phalanx.types import Failure, Member, Options, Request, Response, Sampling, Work

_POLL_S = 0.2
# Probings of one model that may come to nothing before its requests go side by side.
_MOST_PROBES = 3
# After so many seconds the others do not wait for it any longer.
_PROBE_S = 30.0
_CLOSE_S = 10.0
# A stream that nobody listens to any more ends within this, and what it cost is known.
_CANCEL_S = 5.0


class OpenAIEngine:
    """Implements :class:`phalanx.types.ConcurrentEngine`, and :meth:`stream`.

    ``environ`` holds the keys that endpoints name. ``options_tokens`` is the most that a judge may
    write, reasoning included, where its options cannot be read off after a given start
    (``judge.max_new_tokens``). ``backoff_s`` is the wait before a second try. Raises EngineError
    where a named key is not set or can be no key.
    """

    name = "openai"

    def __init__(
        self,
        endpoints: Sequence[EndpointSettings],
        budget: BudgetSettings | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        options_tokens: int = 256,
        backoff_s: float = 0.5,
    ) -> None:
        self._options_tokens = options_tokens
        self._account = Account(endpoints, budget or BudgetSettings(), self.name)
        self._endpoints = {
            settings.name: Endpoint(settings, self._account, _key(settings, environ), backoff_s)
            for settings in endpoints
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._probes: dict[tuple[str, str], int] = {}
        self._ends_reasoning: set[tuple[str, str]] = set()

    # The caller's side ---------------------------------------------------------------------------

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        """Every request alone."""
        return [[position] for position in range(len(requests))]

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """Responses in order, when all of them are there. Raises what broke the engine."""
        work = self.start([requests])
        found: list[Response] = []
        while work.num_open:
            for _, replies in work.wait(_POLL_S):
                found += replies
        return found

    def start(self, batches: Sequence[Sequence[Request]]) -> Work:
        """Begin all batches; raises EngineError for a member whose endpoint is not known."""
        for batch in batches:
            for request in batch:
                self._endpoint_of(request.member)
        loop = self._running_loop()
        crew = _Crew(loop)
        work = HttpWork(batches, crew.halt)
        crew.begin(lambda: self._run(work, crew))
        return work

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """Answer one Sampling request; ``show`` gets the text as it comes, in the caller's thread.

        It is counted like any other request, also where ``show`` raises, which gives the request
        up: :meth:`facts` then hold what it may have cost. Trouble after the first piece is a
        failure: nothing is shown twice. Raises what breaks the engine.
        """
        endpoint = self._endpoint_of(request.member)
        if not isinstance(request.want, Sampling):
            raise ValueError(f"only a Sampling request can be streamed, not {request.want.kind}")
        return self._told(request, endpoint, show, {}, never)[0]

    def fulfil(self, orders: Sequence[Order]) -> list[Written]:
        """Texts of conversations, one after the other; safe to call from several threads.

        Log-probabilities are the server's: where it gives none, that is an error of the order.
        Raises what breaks the engine.
        """
        return [fulfil(order, self._told, self._endpoint_of(order.member)) for order in orders]

    def _told(
        self,
        request: Request,
        endpoint: Endpoint,
        show: Callable[[str], None] | None,
        more: Mapping[str, Any],
        given_up: Callable[[], bool],
    ) -> tuple[Response, tuple[Token, ...]]:
        """The response; meanwhile this thread shows the pieces, and may give up."""
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        ended = threading.Event()
        hear = pieces.put if show else None
        told = asyncio.run_coroutine_threadsafe(
            self._streamed(request, endpoint, hear, ended, more), self._running_loop()
        )
        told.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := _next(pieces, given_up)) is not None:
                if show:
                    show(piece)
        except BaseException:
            told.cancel()  # which the loop hears of later
            ended.wait(_CANCEL_S)
            raise
        return told.result()

    def facts(self) -> dict[str, str]:
        """What every endpoint has cost since the run began, and what was learnt about it."""
        return self._account.facts()

    def restore(self, facts: Mapping[str, str]) -> None:
        """Take up the facts of a run; they replace what was counted so far."""
        self._account.restore(facts)

    def news(self) -> list[str]:
        """What has happened to the endpoints since the last call, for whoever watches the run."""
        found: list[str] = []
        for endpoint in self._endpoints.values():
            while endpoint.news:
                found.append(endpoint.news.popleft())
        return found

    def close(self) -> None:
        """Give up whatever is under way and close the connections."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop.close()
        self._loop = self._thread = None

    def _endpoint_of(self, member: Member) -> Endpoint:
        if member.endpoint not in self._endpoints:
            known = ", ".join(self._endpoints) or "none"
            raise EngineError(
                f"{member.name} is behind the endpoint {member.endpoint!r}, which is not among "
                f"endpoints ({known})"
            )
        return self._endpoints[member.endpoint]

    # The loop's side -----------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=f"phalanx-{self.name}", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _streamed(
        self,
        request: Request,
        endpoint: Endpoint,
        show: Callable[[str], None] | None,
        ended: threading.Event,
        more: Mapping[str, Any],
    ) -> tuple[Response, tuple[Token, ...]]:
        """Answer, and tell ``ended`` when nothing is sent or counted any more."""
        try:
            endpoint.begin()
            epoch = await endpoint.gate.enter(estimate(endpoint, request, self._options_tokens))
            key = (endpoint.name, request.member.base)
            ends_reasoning = key in self._ends_reasoning
            listener = Listener(show, endpoint.secret, ends_reasoning) if show else None
            limit = self._options_tokens
            talk = Talk(endpoint, request, limit, lambda: False, epoch, listener, more)
            try:
                response = await talk.answer()
            finally:
                talk.release()
        finally:
            ended.set()
        if SHOWN_OTHERWISE in response.flags:
            self._ends_reasoning.add(key)
        return response, talk.tokens

    async def _shut(self) -> None:
        current = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.close()

    async def _run(self, work: HttpWork, crew: _Crew) -> None:
        """One lane for each endpoint; over when every request that was begun has ended."""
        lanes: dict[str, list[tuple[Place, Request]]] = {}
        for number, batch in enumerate(work.batches):
            for position, request in enumerate(batch):
                endpoint = self._endpoint_of(request.member)
                lanes.setdefault(endpoint.name, []).append(((number, position), request))
        try:
            for name in lanes:
                self._endpoints[name].begin()
            crew.lanes = [
                asyncio.create_task(self._lane(work, crew, self._endpoints[name], owed))
                for name, owed in lanes.items()
            ]
            if work.stopped:
                crew.halt_here()
            for ended in await asyncio.gather(*crew.lanes, return_exceptions=True):
                if isinstance(ended, Exception):
                    work.fail(ended)
            await asyncio.gather(*crew.tasks, return_exceptions=True)
        except Exception as error:
            work.fail(error)
        finally:
            work.over()

    async def _lane(
        self,
        work: HttpWork,
        crew: _Crew,
        endpoint: Endpoint,
        owed: Sequence[tuple[Place, Request]],
    ) -> None:
        """Begin the requests of one endpoint in order, as its gate lets them through."""
        for place, request in owed:
            if not isinstance(request.want, Sampling | Options):
                work.begin(place)
                work.put(place, _not_here(request, endpoint))
                continue
            epoch = await endpoint.gate.enter(estimate(endpoint, request, self._options_tokens))
            if work.stopped:
                endpoint.gate.leave()
                return
            work.begin(place)
            talk = Talk(endpoint, request, self._options_tokens, lambda: work.stopped, epoch)
            task = asyncio.create_task(self._one(work, crew, place, talk))
            crew.add(task, talk)
            if self._is_probe(talk):
                # What it learns decides how the others are asked.
                await talk.taught(task, _PROBE_S)

    def _is_probe(self, talk: Talk) -> bool:
        """Whether the request is sent alone: a model's first one, or one that looks for a way."""
        key = (talk.endpoint.name, talk.model)
        if key not in self._probes:
            self._probes[key] = 0
            return True
        if not isinstance(talk.request.want, Options):
            return False
        if len(modes_for(talk.endpoint, talk.model)) <= 1:
            return False
        self._probes[key] += 1
        return self._probes[key] <= _MOST_PROBES

    async def _one(self, work: HttpWork, crew: _Crew, place: Place, talk: Talk) -> None:
        try:
            reply = await talk.answer()
        except (Dropped, asyncio.CancelledError):
            return  # not answered, so it is asked again when the run goes on
        except SilentEndpoint as error:
            work.fail(error)
            crew.abandon(talk.endpoint)
        except Exception as error:
            work.fail(error)
        else:
            work.put(place, reply)


class _Crew:
    """The tasks of one work, and which of them may be cut short when it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.lanes: list[asyncio.Task[None]] = []
        self.tasks: dict[asyncio.Task[None], Talk] = {}

    def begin(self, run: Callable[[], object]) -> None:
        """Start the coroutine that ``run`` makes, in the loop."""

        def here() -> None:
            self._main = self._loop.create_task(run())

        self._loop.call_soon_threadsafe(here)

    def add(self, task: asyncio.Task[None], talk: Talk) -> None:
        self.tasks[task] = talk
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.pop(task).release()

    def halt(self) -> None:
        """From any thread: begin nothing more; only what is being sent goes on."""
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self.halt_here)

    def halt_here(self) -> None:
        for lane in self.lanes:
            lane.cancel()
        for task, talk in list(self.tasks.items()):
            if task not in talk.endpoint.sending:
                task.cancel()

    def abandon(self, endpoint: Endpoint) -> None:
        """Nobody answers there: what is being sent is given up, too."""
        for task, talk in list(self.tasks.items()):
            if talk.endpoint is endpoint and task is not asyncio.current_task():
                task.cancel()


def _next(pieces: queue.SimpleQueue[str | None], given_up: Callable[[], bool]) -> str | None:
    """The next piece, None at the end. Raises GivenUp where nobody waits for it any more."""
    while True:
        if given_up():
            raise GivenUp
        try:
            return pieces.get(timeout=None if given_up is never else _POLL_S)
        except queue.Empty:
            continue


def _key(settings: EndpointSettings, environ: Mapping[str, str]) -> str:
    if not settings.key:
        return ""
    key = environ.get(settings.key, "").strip()
    if not key:
        raise EngineError(
            f"endpoint {settings.name}: the environment variable {settings.key} is not set; "
            "put the key there, or leave endpoints.key out where the server wants none"
        )
    if fault := fault_in_key(key):
        raise EngineError(
            f"endpoint {settings.name}: the environment variable {settings.key} {fault}, which no "
            "key does; put the key alone there"
        )
    return key


def _not_here(request: Request, endpoint: Endpoint) -> Response:
    """What no endpoint can do; it is never sent."""
    failure = {
        "likelihood": Failure(
            "refused",
            f"{endpoint.title}: an endpoint gives no likelihood of a given text; use "
            "judge.protocol: expected, or rubric, or pairwise",
        ),
        "user_turn": Failure(
            "engine",
            f"{endpoint.title}: an endpoint writes the assistant's turns only; ask a member of "
            "engine hf (served by vllm or not) for user turns",
        ),
        "reward": Failure(
            "engine",
            f"{endpoint.title}: an endpoint gives no rewards; ask a member of engine reward",
        ),
    }[request.want.kind]
    return Response(request.id, error=failure)
