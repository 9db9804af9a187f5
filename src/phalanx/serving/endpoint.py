"""An OpenAI-compatible endpoint over a desk: members and the collective for any client.

Each text of a request is a thread that waits at the desk, which writes together what waits for one
member. A client that leaves frees its place: its texts end with the next token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.engines.orders import Hear, Token, Written
from phalanx.errors import BudgetError, Interrupted, MissingPackage, PhalanxError
from phalanx.live import guarded
from phalanx.serving.bodies import MOST_CHOICES, Refused, Wish, read_chat, read_text
from phalanx.serving.desk import Desk, Unknown
from phalanx.serving.replies import Replies, dumped, event
from phalanx.types import Failure

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PORT = 8138
LONGEST = 1024
"""New tokens of a chat answer for which the client gives no number."""
MAX_BODY = 32 << 20
"""Bytes of the longest request."""
_LOOK_S = 0.2
_STILL_S = 15.0
_DONE = b"data: [DONE]\n\n"
_ROUTES = "GET /v1/models, POST /v1/chat/completions, POST /v1/completions, GET /health"
Handler = Callable[["Request"], Awaitable["Response"]]


def serve(
    desk: Desk,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    allowed: Sequence[str] = (),
    api_key: str = "",
    longest: int = LONGEST,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until Ctrl-C. Raises ConfigError for an address that cannot be had, MissingPackage
    without the extra ``serve``."""
    app = application(desk, api_key=api_key, longest=longest)
    for name in desk.names:
        say(f"  {name}: {desk.about(name)}")
    if not guarded.is_local(host) and not api_key:
        say("No key is asked for: whoever reaches this address can use it (--api-key).")
    guarded.serve(
        app, host, port, say, name="The endpoint", allowed=allowed,
        ready=lambda url: say(f"Base URL for clients: {url}v1"),
    )  # fmt: skip


def application(desk: Desk, *, api_key: str = "", longest: int = LONGEST) -> Starlette:
    """The routes; :func:`phalanx.live.guarded.bind` puts the guard before them.

    With ``api_key`` every route but ``/`` and ``/health`` wants it, as a bearer token.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
    except ImportError:
        raise MissingPackage("starlette", "serve", "serving an endpoint") from None
    place = _Endpoint(desk, api_key, longest)

    async def refused(_: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        detail = str(getattr(error, "detail", "")).lower() or "error"
        refusal = Refused(f"{detail}: this endpoint has {_ROUTES}", status)
        return _json(refusal.body, status, getattr(error, "headers", None))

    return Starlette(
        routes=[
            Route("/", place.root),
            Route("/health", place.health),
            Route("/v1/models", place.guarded(place.models)),
            Route("/v1/models/{name:path}", place.guarded(place.model)),
            Route("/v1/chat/completions", place.guarded(place.chat), methods=["POST"]),
            Route("/v1/completions", place.guarded(place.text), methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )


class _Endpoint:
    def __init__(self, desk: Desk, api_key: str, longest: int) -> None:
        self._desk, self._key, self._longest = desk, api_key, longest
        self._began = int(time.time())
        self._threads = ThreadPoolExecutor(MOST_CHOICES, "phalanx-client")

    def guarded(self, handler: Handler) -> Handler:
        """With the key looked at, and every refusal in OpenAI's shape."""

        async def asked(request: Request) -> Response:
            try:
                self._check_key(request)
                return await handler(request)
            except Refused as refusal:
                headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
                if refusal.status >= 429 and not refusal.transient:  # clients try again otherwise
                    headers["x-should-retry"] = "false"
                return _json(refusal.body, refusal.status, headers)

        return asked

    def _check_key(self, request: Request) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        good = hmac.compare_digest(given.strip().encode(), self._key.encode())
        if self._key and not (good and kind.lower() == "bearer"):
            said = "the key is wrong" if given else "a key is wanted"
            raise Refused(f"{said}: send the header Authorization: Bearer KEY, with the key that "
                          "the endpoint was started with", 401, code="invalid_api_key")  # fmt: skip

    # ---- what is there --------------------------------------------------------------------------

    async def root(self, _: Request) -> Response:
        return _json({"name": "phalanx", "base_url": "/v1", "routes": _ROUTES})

    async def health(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def models(self, _: Request) -> Response:
        return _json({"object": "list", "data": list(map(self._model, self._desk.names))})

    async def model(self, request: Request) -> Response:
        return _json(self._model(self._known(request.path_params["name"])))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "phalanx"}

    def _known(self, name: str) -> str:
        if name not in self._desk.names:
            try:
                self._desk.member(name)
            except Unknown:
                there = ", ".join(self._desk.names)
                raise Refused(f"there is no model {name[:80]!r} here; there are {there}, and of a "
                              "run's members NAME@ITERATION, as they were then", 404, param="model",
                              code="model_not_found") from None  # fmt: skip
        return name

    # ---- texts ----------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, read_chat(await _body(request), self._longest))

    async def text(self, request: Request) -> Response:
        return await self._answer(request, read_text(await _body(request)))

    async def _answer(self, request: Request, wish: Wish) -> Response:
        self._known(wish.model)
        course = _Course(self, wish)
        if wish.stream:
            return await _streamed(course, await course.first(request))
        try:
            while not course.over:
                await course.news(request)
        finally:
            course.gone.set()
        return _json(course.replies.whole(course.choices))

    def begin(
        self, wish: Wish, at: int, hear: Hear | None, gone: threading.Event
    ) -> asyncio.Future[Written]:
        """One text of a request, in a thread of its own."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._write, wish, at, hear, gone)

    def _write(self, wish: Wish, at: int, hear: Hear | None, gone: threading.Event) -> Written:
        prompt = wish.prompts[at // wish.n]
        try:
            written = self._desk.write(
                wish.model,
                prompt,
                wish.sampling,
                wish.seed_of(at),
                fits=wish.fits,
                stop=wish.stop,
                num_top=wish.num_top,
                echo=wish.echo,
                hear=hear,
                given_up=gone.is_set,
            )
        except PhalanxError as error:
            raise _broken(error) from error
        except Exception as error:
            print(traceback.format_exc(), file=sys.stderr)
            said = f"the endpoint failed: {type(error).__name__}; its terminal has more"
            raise Refused(said, 500, kind="server_error") from error
        if written.error is not None:
            raise _refusal(written.error, "messages" if wish.is_chat else "prompt")
        return written


@dataclass(frozen=True, slots=True)
class _News:
    """A piece of a choice, or its end."""

    at: int
    text: str = ""
    tokens: Sequence[Token] = ()
    written: Written | None = None


class _Course:
    """One request under way. ``gone`` ends its texts; ``choices`` has them when it is ``over``."""

    def __init__(self, place: _Endpoint, wish: Wish) -> None:
        self.wish = wish
        self.replies = Replies(wish)
        self.gone = threading.Event()
        self._done: dict[int, Written] = {}
        self._queue: asyncio.Queue[_News | BaseException] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._texts = []
        for at in range(wish.num_choices):
            hear = self._hear(at) if wish.stream and not wish.echo else None
            text = place.begin(wish, at, hear, self.gone)
            text.add_done_callback(lambda done, at=at: self._ended(at, done))
            self._texts.append(text)

    @property
    def over(self) -> bool:
        return len(self._done) == self.wish.num_choices

    @property
    def choices(self) -> list[Written]:
        return [self._done[at] for at in range(self.wish.num_choices)]

    def _hear(self, at: int) -> Hear:
        def hear(piece: str, tokens: Sequence[Token]) -> None:
            news = _News(at, piece, tuple(tokens))
            try:
                self._loop.call_soon_threadsafe(self._queue.put_nowait, news)
            except RuntimeError:  # the loop is closed
                raise Interrupted("the endpoint has ended") from None

        return hear

    def _ended(self, at: int, done: asyncio.Future[Written]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        self._queue.put_nowait(_News(at, written=done.result()) if error is None else error)

    async def first(self, request: Request) -> _News:
        """What comes first: where that is a failure, the reply has its status."""
        try:
            return await self.news(request)
        except BaseException:
            self.gone.set()
            raise

    async def news(self, request: Request) -> _News:
        """What comes next. Raises Refused where a text fails, or the client has left."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    found = await self._queue.get()
            except TimeoutError:
                if await request.is_disconnected():
                    raise Refused("the client has left", 499) from None
                continue
            return self._taken(found)

    async def stream(self) -> AsyncIterator[_News | None]:
        """What comes next, until all is said; None now and then where nothing came."""
        while not self.over:
            try:
                async with asyncio.timeout(_STILL_S):
                    found = await self._queue.get()
            except TimeoutError:
                yield None
                continue
            yield self._taken(found)

    def _taken(self, found: _News | BaseException) -> _News:
        if isinstance(found, BaseException):
            raise found
        if found.written is not None:
            self._done[found.at] = found.written
        return found


async def _streamed(course: _Course, first: _News) -> Response:
    from starlette.responses import StreamingResponse

    replies = course.replies
    opened: set[int] = set()

    def events(news: _News) -> bytes:
        found = [] if news.at in opened else replies.began(news.at)
        opened.add(news.at)
        if news.written is None:
            found.append(replies.piece(news.at, news.text, news.tokens))
        else:
            found.append(replies.ended(news.at, news.written))
        return b"".join(map(event, found))

    async def body() -> AsyncIterator[bytes]:
        try:
            yield events(first)
            async for news in course.stream():
                yield b": still here\n\n" if news is None else events(news)
            if course.wish.include_usage:
                yield event(replies.used(course.choices))
            yield _DONE
        except Refused as refusal:  # the status is sent already
            yield event(refusal.body)
        finally:  # the client may have left in the middle
            course.gone.set()

    headers = {"cache-control": "no-store"}
    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)


def _refusal(failure: Failure, param: str) -> Refused:
    """A text that could not be written, by whose fault it is."""
    if failure.kind == "too_long":
        return Refused(failure.message, param=param, code="context_length_exceeded")
    if failure.kind == "refused":
        return Refused(failure.message)
    status = {"timeout": 504, "empty": 502}.get(failure.kind, 503 if failure.transient else 500)
    return Refused(failure.message, status, kind="server_error", code=failure.kind,
                   transient=failure.transient)  # fmt: skip


def _broken(error: PhalanxError) -> Refused:
    if isinstance(error, BudgetError):
        return Refused(str(error), 429, kind="insufficient_quota", code="insufficient_quota")
    if isinstance(error, Interrupted):
        return Refused(str(error), 503, kind="server_error", transient=True)
    return Refused(str(error), 500, kind="server_error")


async def _body(request: Request) -> Any:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise Refused(f"the request is longer than {MAX_BODY >> 20} MiB", 413)
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}"[:300]) from None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    return Response(dumped(value), status, headers, media_type="application/json")
