"""The sockets: routes, faults, the log, and stopping and starting on the same port."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from phalanx.types import Engine, Member
from tests.server import api
from tests.server.faults import Faults, Raw
from tests.server.texts import Abilities, ApiError, blank, writer_of

_ANSWERS = ("/v1/chat/completions", "/v1/completions")


@dataclass
class Entry:
    """One request: times are ``time.monotonic()``; ``end`` and ``status`` stay 0 until replied.

    Status -1: the client hung up or the connection was cut, and nobody read the reply.
    """

    method: str
    path: str
    body: Any
    start: float
    headers: dict[str, str] = field(default_factory=dict)
    end: float = 0.0
    status: int = 0


class TestServer:
    """See the package's docstring. ``models`` maps names to the members that answer for them."""

    __test__ = False

    def __init__(
        self,
        engine: Engine,
        models: dict[str, Member],
        *,
        faults: Faults | None = None,
        can: Abilities | None = None,
        key: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        max_lora_rank: int = 64,
        max_loras: int = 1_000,
    ) -> None:
        self.engine = engine
        self.models = dict(models)
        self.faults = faults or Faults()
        self.can = can or Abilities()
        self.key = key
        self.host = host
        self.port = port
        self.max_lora_rank = max_lora_rank
        self.max_loras = max_loras
        self.loras: dict[str, Member] = {}
        self.sleeping = False
        self.log: list[Entry] = []
        self._writer = writer_of(engine)
        self._lock = threading.Lock()
        self._awake = threading.Event()
        self._awake.set()
        self._connections: set[socket.socket] = set()
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> TestServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL as an endpoint's ``url`` wants it."""
        return f"http://{self.host}:{self.port}/v1"

    def start(self) -> None:
        """Listen; after :meth:`stop` on the same port again."""
        self._http = _Http((self.host, self.port), _Handler)
        self._http.app = self
        self.port = self._http.server_address[1]
        self._awake.set()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and cut every connection, as a killed server would."""
        http, self._http = self._http, None
        if http is None:
            return
        http.shutdown()
        http.server_close()
        self._awake.set()
        with self._lock:
            open_ = list(self._connections)
        for connection in open_:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def restart(self) -> None:
        self.stop()
        self.start()

    def settle(self, quiet: float = 0.3) -> None:
        """Wait, once its clients are dead, until all that they had sent is in the log."""
        since = time.monotonic()
        while time.monotonic() - since < quiet:
            with self._lock:
                busy = bool(self._connections)
            if busy:
                since = time.monotonic()
            time.sleep(0.01)

    def pause(self) -> None:
        """Take requests and answer none until :meth:`resume`."""
        self._awake.clear()

    def resume(self) -> None:
        self._awake.set()

    @property
    def running(self) -> bool:
        return self._http is not None

    def requests(self, path: str = "") -> list[Entry]:
        """The log, or its entries whose path is ``path``."""
        with self._lock:
            return [entry for entry in self.log if not path or entry.path == path]

    def max_in_flight(self, suits: Callable[[Entry], bool] | None = None) -> int:
        """Most requests (those that suit) that were being answered at one moment."""
        marks = []
        for entry in self.requests():
            if suits is None or suits(entry):
                marks += [(entry.start, 1), (entry.end or time.monotonic(), -1)]
        most = now = 0
        for _, change in sorted(marks):
            now += change
            most = max(most, now)
        return most

    # What the handler calls.

    def connected(self, connection: socket.socket, here: bool) -> None:
        with self._lock:
            (self._connections.add if here else self._connections.discard)(connection)

    def note(self, entry: Entry) -> None:
        with self._lock:
            self.log.append(entry)

    def hold(self) -> None:
        self._awake.wait()

    def answer(self, method: str, target: str, body: Any, empty: bool) -> Any:
        """The reply's body: JSON, or text for the adapter endpoints. Raises ApiError."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        route = (method, path)
        if route == ("GET", "/health"):
            return ""
        if route == ("GET", "/v1/models"):
            return self._list()
        if route == ("GET", "/is_sleeping") and self.can.sleep:
            return {"is_sleeping": self.sleeping}
        if route in (("POST", "/sleep"), ("POST", "/wake_up")) and self.can.sleep:
            self.sleeping = path == "/sleep"
            return {"status": "success", "level": query.get("level", ["1"])[0]}
        tokenizes = self.can.tokenize and hasattr(self.engine, "weights")
        if method == "POST" and (path in _ANSWERS or (path == "/tokenize" and tokenizes)):
            if not isinstance(body, dict):
                raise ApiError(400, "the request body is not a JSON object")
            return self._written(path, body, empty)
        if method == "POST" and path.endswith("load_lora_adapter") and self.can.lora:
            return self._lora(path, body)
        raise ApiError(404, "Not Found")

    def member(self, name: Any) -> Member:
        found = self.models.get(name) or self.loras.get(name)
        if found is None:
            raise ApiError(404, f"The model `{name}` does not exist.", "model", "model_not_found")
        return found

    def _list(self) -> dict[str, Any]:
        data: list[dict[str, Any]] = [
            {"id": name, "object": "model", "owned_by": "tests", "root": m.base, "parent": None}
            for name, m in self.models.items()
        ]
        if hasattr(self.engine, "weights"):
            for one, member in zip(data, self.models.values(), strict=True):
                one["max_model_len"] = self.engine.weights.context_length(member)
        first = next(iter(self.models))
        data += [
            {"id": name, "object": "model", "owned_by": "tests", "root": m.adapter, "parent": first}
            for name, m in self.loras.items()
        ]
        return {"object": "list", "data": data}

    def _written(self, path: str, body: dict[str, Any], empty: bool) -> Any:
        member = self.member(body.get("model"))
        if path == "/tokenize":  # as in vLLM, asleep or not
            tokenizer = self.engine.weights.tokenizer(member)
            marked = body.get("add_special_tokens", True)
            ids = tokenizer(body["prompt"], add_special_tokens=marked)["input_ids"]
            return {"tokens": ids, "count": len(ids)}
        if self.sleeping:
            raise ApiError(500, "the engine is asleep; wake it first")
        api.refused(self.can, body)
        if path == "/v1/chat/completions":
            ask = api.read_chat(body, member, self.can)
            written = self._writer.write(ask)
            written = blank(written) if empty else written
            return api.chat_reply(body, written, self.can, ask.num_top)
        asks = api.read_completions(body, member, self.can)
        texts = [self._writer.write(ask) for ask in asks]
        return api.completions_reply(body, asks, [blank(t) for t in texts] if empty else texts)

    def _lora(self, path: str, body: Any) -> str:
        name, folder = body.get("lora_name"), body.get("lora_path")
        with self._lock:
            if path == "/v1/unload_lora_adapter":
                if name not in self.loras:
                    raise ApiError(404, f"The lora adapter '{name}' cannot be found.")
                del self.loras[name]
                return f"Success: LoRA adapter '{name}' removed successfully."
            if name in self.loras:
                raise ApiError(400, f"The lora adapter '{name}' has already been loaded.")
            settings = Path(folder or "") / "adapter_config.json"
            if not settings.is_file():
                raise ApiError(404, f"Loading lora {name} failed: No adapter found for {folder}")
            rank = json.loads(settings.read_text(encoding="utf-8"))["r"]
            if rank > self.max_lora_rank:
                raise ApiError(
                    400, f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}."
                )
            if len(self.loras) >= self.max_loras:
                raise ApiError(400, f"there is room for {self.max_loras} adapters only")
            base = next(iter(self.models.values()))
            self.loras[name] = Member(name, base.base, folder, engine="hf", dtype=base.dtype)
            return f"Success: LoRA adapter '{name}' added successfully."


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 1024
    app: TestServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news; anything else is printed by the base class."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.app.connected(self.connection, True)

    def finish(self) -> None:
        self.server.app.connected(self.connection, False)
        super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """The server's log is ``TestServer.log``."""

    def do_GET(self) -> None:
        self._serve("GET", b"")

    def do_POST(self) -> None:
        self._serve("POST", self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _serve(self, method: str, data: bytes) -> None:
        app = self.server.app
        path = urlsplit(self.path).path
        entry = Entry(method, path, _parsed(data), time.monotonic(), dict(self.headers.items()))
        app.note(entry)
        status = -1
        try:
            app.hold()
            status = self._reply(method, data, entry)
            self.wfile.flush()
        except ConnectionError:
            self.close_connection = True
        finally:
            entry.end, entry.status = time.monotonic(), status

    def _reply(self, method: str, data: bytes, entry: Entry) -> int:
        app = self.server.app
        kind: Any = ""
        if entry.path in _ANSWERS:
            kind, wait = app.faults.draw(data)
            time.sleep(wait)
        if isinstance(kind, Raw):
            text = kind.body if isinstance(kind.body, str) else json.dumps(kind.body)
            return self._send(kind.status, text, kind.headers)
        if kind in ("busy", "error", "unavailable"):
            return self._failing(kind)
        if kind == "html":
            page = "<html><body>Gateway busy</body></html>"
            return self._send(200, page, {"Content-Type": "text/html"})
        if kind == "hang":
            return self._hang()
        try:
            if app.key and self.headers.get("Authorization") != f"Bearer {app.key}":
                raise ApiError(401, "Incorrect API key provided")
            found = app.answer(method, self.path, entry.body, kind == "empty")
        except ApiError as error:
            return self._send(error.status, json.dumps(error.body))
        except (KeyError, TypeError, ValueError) as error:
            body = ApiError(400, f"malformed request: {type(error).__name__}: {error}").body
            return self._send(400, json.dumps(body))
        if isinstance(found, dict) and isinstance(entry.body, dict) and entry.body.get("stream"):
            return self._stream(api.events(found, entry.body), cut=kind == "cut_connection")
        text = found if isinstance(found, str) else json.dumps(found)
        if kind == "cut_json":
            return self._send(200, text[: len(text) // 2])
        if kind == "cut_connection":
            self._send(200, text, cut=True)
            self.close_connection = True
            return -1
        return self._send(200, text)

    def _stream(self, events: list[str], cut: bool) -> int:
        """Events one by one in chunks of their own; a cut one ends in the middle of them."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events[: len(events) // 2] if cut else events:
            data = f"data: {event}\n\n".encode("utf-8", "surrogatepass")
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        if cut:
            self.close_connection = True
            return -1
        self.wfile.write(b"0\r\n\r\n")
        return 200

    def _failing(self, kind: str) -> int:
        status, message = {
            "busy": (429, "slow down"),
            "error": (500, "internal error"),
            "unavailable": (503, "overloaded"),
        }[kind]
        after = self.server.app.faults.retry_after
        headers = {"Retry-After": f"{after:g}"} if kind == "busy" and after is not None else {}
        return self._send(status, json.dumps({"error": {"message": message}}), headers)

    def _hang(self) -> int:
        """Until the client hangs up, or the server stops."""
        while self.server.app.running:
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                break
        self.close_connection = True
        return -1

    def _send(
        self, status: int, text: str, headers: dict[str, str] | None = None, cut: bool = False
    ) -> int:
        data = text.encode("utf-8", "surrogatepass")
        self.send_response(status)
        sent = {"Content-Type": "application/json", **(headers or {})}
        for name, value in sent.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        return status


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data.decode("utf-8", "replace")
