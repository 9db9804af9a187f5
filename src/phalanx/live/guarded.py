"""The guard around whatever Phalanx serves over HTTP, and the server itself.

A page of another site may make a browser send requests to this machine. So the guard looks at the
Host header (DNS rebinding: a foreign name that points here is refused), at the origin of whatever
writes, and, for pages that write, at a token that only the page itself knows. Every answer carries
headers that let the page load nothing from elsewhere and run no script but its own files.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import ConfigError, MissingPackage, PhalanxError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_HEADER = "x-phalanx-token"
CLOSING = "phalanx.closing"
"""Key of the ASGI scope: an event (``is_set``) that is set when the server is to end; whoever
streams without an end of its own looks at it at least every half second."""

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_GRACE = 1  # seconds that answers under way have to end before they are cut off


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in: which names the server answers to, and what a writing page has to know.

    ``names`` are host names without a port (a tunnel such as ``ssh -L 9000:localhost:8137`` changes
    it, and a rebound name is foreign at every port). With ``any_address`` every numeric address is
    a name of this server, too: an attacker cannot rebind what is no name. ``token`` (where it is
    not empty) has to be in the header ``X-Phalanx-Token`` of every request that is no read.
    """

    names: frozenset[str] = frozenset(_LOOPBACK)
    any_address: bool = False
    token: str = ""

    def refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """(status, sentence) where a request is not let in. ``headers`` have lower-case names."""
        host = headers.get("host", "")
        name = _host_name(host)
        if not self._is_own(name):
            known = ", ".join(sorted(self.names))
            return 421, f"this server answers to {known}, not to the host {name[:200]!r}"
        if method in _READS:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and origin.split("://", 1)[-1] != host
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "only this server's own pages may write to it"
        if self.token and not hmac.compare_digest(
            headers.get(TOKEN_HEADER, "").encode(), self.token.encode()
        ):
            return 403, "the page is of an earlier start of this server; load it again"
        return None

    def _is_own(self, name: str) -> bool:
        if name in self.names:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def door(host: str, *, allowed: Sequence[str] = (), token: str = "") -> Door:
    """The door of a server bound to ``host``; ``allowed`` are further names it may be called by.

    Who binds an address beyond this machine is reached by that address, by the machine's name, or,
    bound to all addresses (``0.0.0.0``, ``::``), by any numeric one.
    """
    names = {*_LOOPBACK, *(name.lower() for name in allowed)}
    everywhere = host in ("0.0.0.0", "::", "")
    if not is_local(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        names |= set() if everywhere else {host.lower().strip("[]")}
    return Door(frozenset(names), everywhere, token)


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server bound to ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(host: str) -> str:
    """The name in a Host header, without its port: ``[::1]:80`` is ``::1``."""
    if host.startswith("["):
        return host[1:].split("]", 1)[0].lower()
    return host.rsplit(":", 1)[0].lower() if ":" in host else host.lower()


class Guarded:
    """An ASGI application behind a :class:`Door`. Methods that a route lacks are the app's to
    refuse (starlette answers 405)."""

    def __init__(self, app: Application, entrance: Door, closing: threading.Event) -> None:
        self._app, self._door, self._closing = app, entrance, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no page of Phalanx uses a websocket
            return await send({"type": "websocket.close", "code": 1008})
        named = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in scope["headers"]]
        refused = self._door.refusal(scope["method"], dict(named))
        if sum(name == "host" for name, _ in named) != 1:
            refused = (400, "a request has one Host header")
        guarded = _with_headers(send)
        if refused is not None:
            return await _answer(guarded, *refused)
        return await self._app({**scope, CLOSING: self._closing}, receive, guarded)


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))
            known = {name.lower() for name, _ in own}
            own += [
                (name.encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.encode() not in known
            ]
            message = {**message, "headers": own}
        await send(message)

    return guarded


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = f"{sentence}\n".encode(errors="replace")
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---- the server ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Serving:
    """A server that is bound: ``url`` is where; ``run`` serves until a signal or ``stop``."""

    url: str
    _app: Application
    _socket: socket.socket
    _closing: threading.Event = field(default_factory=threading.Event)
    _server: Any = None

    def run(self) -> None:
        """Serve, in this thread. In the main thread SIGINT and SIGTERM end it, quietly."""
        self._server = _quiet_server(self._app, self._closing)
        if self._closing.is_set():  # stopped before it began
            self._socket.close()
            return
        # At the end uvicorn reports every stream that it cuts off as an error; it is none.
        log = logging.getLogger("uvicorn.error")
        log.addFilter(self._is_news)
        try:
            self._server.run(sockets=[self._socket])
        finally:
            log.removeFilter(self._is_news)

    def _is_news(self, record: logging.LogRecord) -> bool:
        return not self._closing.is_set()

    def stop(self) -> None:
        """End it from another thread, within about a second even with streams open."""
        self._closing.set()
        if self._server is not None:
            self._server.should_exit = True


def bind(
    app: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    allowed: Sequence[str] = (),
    token: str = "",
) -> Serving:
    """Take the address and put the guard before ``app``. Port 0 is any free one.

    Raises ConfigError where the address cannot be had, MissingPackage without uvicorn.
    """
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingPackage("uvicorn", "serve", "serving a page") from None
    listening = _listen(host, port)
    closing = threading.Event()
    entrance = door(host, allowed=allowed, token=token)
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else "::1" if host == "::" else host.strip("[]")
    shown = f"[{shown}]" if ":" in shown else shown
    url = f"http://{shown}:{listening.getsockname()[1]}/"
    return Serving(url, Guarded(app, entrance, closing), listening, closing)


def serve(
    app: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    say: Callable[[str], None] = print,
    *,
    name: str = "The page",
    allowed: Sequence[str] = (),
    token: str = "",
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve ``app`` until Ctrl-C or SIGTERM; says where at the start, and one line at the end.

    ``ready`` is called with the address once it is bound: requests made then wait and are served.
    """
    serving = bind(app, host, port, allowed=allowed, token=token)
    say(f"{name}: {serving.url} (Ctrl-C ends it)")
    if not is_local(host):
        say(f"Whoever can reach {host or 'this machine'} over the network can read it.")
    if ready is not None:
        ready(serving.url)
    serving.run()
    say(f"{name} has ended.")


@contextmanager
def served(
    app: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    allowed: Sequence[str] = (),
    token: str = "",
) -> Iterator[str]:
    """The address of ``app``, served in a thread of this process while the block runs."""
    serving = bind(app, host, port, allowed=allowed, token=token)
    thread = threading.Thread(target=serving.run, name="phalanx-served", daemon=True)
    thread.start()
    try:
        yield serving.url
    finally:
        serving.stop()
        thread.join(timeout=10)
        if thread.is_alive():
            raise PhalanxError(f"the server at {serving.url} did not end within 10 s")


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port}: expected 0 (any free one) to 65535")
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host {host!r} is no address of this machine: {error}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        what = f"cannot serve at {host}, port {port}: {error.strerror}"
        raise ConfigError(f"{what}; choose another --port (0: any free one) or --host") from None
    return listening


def _quiet_server(app: Application, closing: threading.Event) -> Any:
    """uvicorn without its access lines, that ends at the first signal instead of passing it on."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            closing.set()
            self.should_exit = True

    return Server(
        uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            lifespan="auto",
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
    )
