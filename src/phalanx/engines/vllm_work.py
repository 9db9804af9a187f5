"""The requests of one phase under way on vLLM servers: a thread with its own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phalanx.engines import vllm_asking as asking
from phalanx.engines.hf_options import OptionTree
from phalanx.engines.hf_prompts import not_a_reward_model
from phalanx.engines.http_work import HttpWork
from phalanx.engines.vllm_asking import Body, Job
from phalanx.engines.vllm_names import BaseKey
from phalanx.engines.vllm_server import MAX_LOGPROBS, Server, StartStopped, http_client
from phalanx.errors import EngineError
from phalanx.identity import derived_random
from phalanx.types import (
    Failure,
    Member,
    Options,
    Request,
    Response,
    Reward,
    Sampling,
    UserTurn,
)

if TYPE_CHECKING:
    from phalanx.engines.vllm import VllmEngine

MAX_TRIES = 5
"""Times that a request is sent while the server does not answer it properly."""
_BACKOFF_S = 0.5
_OLD_TOP = 20
"""The likeliest tokens that every vLLM gives; asked for where ids of choice are not known."""


class _Dropped(Exception):
    """The work was stopped between two tries: this request is as if it had not begun."""


class _Failed(Exception):
    """This request has no result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class _Phase:
    """What the requests to one server share."""

    key: BaseKey
    server: Server
    session: Any
    names: dict[Member, str]
    members: list[Member]
    trees: dict[Options, OptionTree] = field(default_factory=dict)
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    num_renewed: int = 0


class ServedWork(HttpWork):
    """Implements :class:`phalanx.types.Work`. Batches are single requests.

    Servers take turns: all requests to one base are answered before the next base's server starts.
    After :meth:`stop` no request is sent again; one whose tries so far came to nothing counts as
    not begun.
    """

    def __init__(self, engine: VllmEngine, batches: Sequence[Sequence[Request]]) -> None:
        super().__init__(batches, self._end_pauses)
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="phalanx-vllm", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Drop what is under way; its responses are lost."""
        self.stop()
        self._in_loop(lambda task: task.cancel())

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _end_pauses(self) -> None:
        self._in_loop(lambda _: self._stopping.set())

    def _in_loop(self, do: Callable[[asyncio.Task[None]], object]) -> None:
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is under way
                loop.call_soon_threadsafe(do, task)

    # In the thread.

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except (asyncio.CancelledError, StartStopped):
            pass  # given up, or stopped before anything began
        except BaseExceptionGroup as group:
            self._broken(group.exceptions[0])  # the first one ended the others
        except BaseException as error:
            self._broken(error)
        self.over()

    def _broken(self, error: BaseException) -> None:
        if not isinstance(error, EngineError):
            text = f"the vLLM engine failed: {type(error).__name__}: {error}"
            error, error.__cause__ = EngineError(text), error
        self.fail(error)

    async def _run(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        groups: dict[BaseKey, dict[Member, list[int]]] = {}
        for number, (request,) in enumerate(self.batches):
            of_base = groups.setdefault(request.member.base_key, {})
            of_base.setdefault(request.member, []).append(number)
        for key in sorted(groups, key=lambda key: not self._engine.is_up(key)):
            if not self.stopped:
                await self._serve(key, groups[key])

    async def _serve(self, key: BaseKey, members: Mapping[Member, list[int]]) -> None:
        """All requests to one base, at most ``max_concurrency`` at once, adapter by adapter."""
        engine = self._engine
        server = await asyncio.to_thread(engine.ready, key, lambda: self.stopped)
        names = await asyncio.to_thread(engine.names, key, list(members))
        numbers = deque(number for of_member in members.values() for number in of_member)
        most = min(engine.settings.max_concurrency, len(numbers))
        client = http_client()
        limits = client.Limits(max_connections=None, max_keepalive_connections=most)
        timeout = client.Timeout(engine.settings.timeout, pool=None)
        async with client.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as session:
            phase = _Phase(key, server, session, names, list(members))
            async with asyncio.TaskGroup() as group:
                for _ in range(most):
                    group.create_task(self._answer_all(phase, numbers))

    async def _answer_all(self, phase: _Phase, numbers: deque[int]) -> None:
        while numbers and not self.stopped:
            number = numbers.popleft()
            self.begin((number, 0))
            (request,) = self.batches[number]
            try:
                response = await self._answer(phase, request)
            except _Failed as failed:
                response = Response(request.id, error=failed.failure)
            except _Dropped:
                self._begun.discard(number)
                return
            self.put((number, 0), response)

    async def _answer(self, phase: _Phase, request: Request) -> Response:
        engine, want = self._engine, request.want
        chat = engine.texts.chat(request.member)
        tree = None
        if isinstance(want, Reward):
            raise _Failed(not_a_reward_model(request.member))
        if isinstance(want, Options):
            if want not in phase.trees:
                phase.trees[want] = OptionTree(want, chat)
            tree = phase.trees[want]
        job = asking.prepare(request, chat, engine.context(phase.key, request.member), tree)
        if isinstance(job, Failure):
            raise _Failed(job)
        if isinstance(want, Sampling | UserTurn):
            return asking.read_sampling(job, await self._ask(phase, job, asking.sampling_body(job)))
        if isinstance(want, Options):
            return await self._options(phase, job)
        ids = [*job.prompt.ids, *job.completion]
        choice = await self._ask(phase, job, asking.scored_body(ids))
        return asking.likelihood_response(job, asking.read_scored(choice, ids, len(job.completion)))

    async def _options(self, phase: _Phase, job: Job) -> Response:
        """One request at each node of the tree; tokens that a reply lacks are read one by one."""
        assert job.tree is not None
        found: dict[tuple[int, ...], dict[int, float]] = {}
        for path, tokens in asking.nodes(job.tree).items():
            found[path] = {}
            for start in range(0, len(tokens), MAX_LOGPROBS):
                part = tokens[start : start + MAX_LOGPROBS]
                found[path] |= await self._node(phase, job, path, part)
        return asking.options_response(job, found)

    async def _node(
        self, phase: _Phase, job: Job, path: tuple[int, ...], tokens: Sequence[int]
    ) -> dict[int, float]:
        assert job.tree is not None
        limit = _OLD_TOP if phase.server.process is None else MAX_LOGPROBS
        choice = await self._ask(phase, job, asking.node_body(job, path, tokens, limit))
        found = asking.read_node(choice, tokens)
        before = [*job.prompt.ids, *job.tree.forced, *path]
        for token in tokens:
            if token not in found:
                ids = [*before, token]
                choice = await self._ask(phase, job, asking.scored_body(ids))
                found[token] = asking.read_scored(choice, ids, 1)[0]
        return found

    async def _ask(self, phase: _Phase, job: Job, body: Body) -> Mapping[str, Any]:
        """The first choice of the reply; tries again what may pass.

        Raises _Failed, _Dropped, and EngineError where the server is not there any more.
        """
        client = http_client()
        failure = Failure("engine", "not sent")
        cut: Exception | None = None
        for number in range(MAX_TRIES):
            if number:
                rng = derived_random("backoff", job.request.id, number)
                await self._pause(_BACKOFF_S * 2**number * (0.5 + rng.random()))
            cut = None
            renewed = phase.num_renewed
            sent = {**body, "model": phase.names[job.request.member]}
            try:
                reply = await phase.session.post(f"{phase.server.url}/v1/completions", json=sent)
            except (client.ReadTimeout, client.WriteTimeout) as error:
                limit = self._engine.settings.timeout
                text = f"no reply within {limit:g} s (vllm.timeout): {type(error).__name__}"
                failure = Failure("timeout", text, transient=True)
            except client.TransportError as error:
                text = f"the connection failed: {type(error).__name__}: {error}"
                failure, cut = Failure("engine", text, transient=True), error
            else:
                choice = _choice(reply) if reply.status_code == 200 else None
                broken = failure_of(reply) if choice is None else asking.broken_off(choice)
                if choice is not None and broken is None:
                    return choice
                failure = broken
                if reply.status_code == 404:
                    await self._renew(phase, renewed)
                elif not failure.transient:
                    break
            phase.server.check_alive()
        if cut is not None and not await asyncio.to_thread(phase.server.is_reachable):
            raise EngineError(
                f"the vLLM server at {phase.server.url} cannot be reached any more "
                f"({failure.message}); everything answered is recorded, and the same command goes "
                "on from here"
            ) from cut
        raise _Failed(failure)

    async def _pause(self, seconds: float) -> None:
        """Raises _Dropped as soon as the work is stopped."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        if self.stopped:
            raise _Dropped

    async def _renew(self, phase: _Phase, seen: int) -> None:
        """Load the adapters again, once for all the requests that missed them."""
        async with phase.renewing:
            if phase.num_renewed == seen:
                await asyncio.to_thread(self._engine.look_again, phase.key)
                phase.names = await asyncio.to_thread(self._engine.names, phase.key, phase.members)
                phase.num_renewed += 1


def _choice(reply: Any) -> Mapping[str, Any] | None:
    """The first choice of a good reply; None where the reply is no such thing."""
    try:
        choices = reply.json()["choices"]
        return choices[0] if isinstance(choices[0], dict) else None
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def failure_of(reply: Any) -> Failure:
    """What a reply without a result amounts to, in the server's own words."""
    try:
        error = reply.json().get("error", {})
        message = str(error.get("message") or reply.text)[:500]
    except (ValueError, AttributeError):
        message = reply.text[:200]
    status = reply.status_code
    text = f"the vLLM server said {status}: {message}"
    if status == 400 and ("max_model_len" in message or "context length" in message):
        return Failure("too_long", text)
    if status in (401, 403):
        raise EngineError(text)
    return Failure("engine", text, transient=status == 200 or status >= 429)
