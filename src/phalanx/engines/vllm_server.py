"""One vLLM server process: started, waited for, put to sleep, ended with everything below it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.config.schema import VllmSettings
from phalanx.engines import keeper
from phalanx.errors import EngineError, MissingPackage

BASE_NAME = "base"
"""The name under which a server that was started here knows its base."""
MAX_LOGPROBS = 128
"""As many as vLLM gives for token ids of one's own choice."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What ``--max-lora-rank`` may be (vllm/config/lora.py, 0.32)."""
DEVICE_LORAS = 8
"""Adapters on the device at once; further ones wait in main memory."""
_TAIL_LINES = 30
_NOISE = re.compile(r"nanobind|\bleaked\b|skipped remainder|resource_tracker|\[shutdown\]|Route: ")
"""Lines that vLLM's libraries write whenever it ends, and that would hide why it did."""
_POLL_S = 0.1
_REST_S = 300.0


class StartStopped(EngineError):
    """A start was called off, as was asked."""


@dataclass(frozen=True, slots=True)
class ServedBase:
    """What a server is started with. ``source`` is a folder or a hub id.

    ``num_adapters`` is the number of members that may have one, 0 for none; ``rank`` the largest.
    """

    source: str
    dtype: str = "auto"
    trust_remote_code: bool = False
    num_adapters: int = 0
    rank: int = 1


@dataclass
class Server:
    """A server that answers. ``loaded`` are its adapters, in the order of their last use.

    ``process`` is None for a server that somebody else runs; such a one is never stopped.
    """

    url: str
    base_name: str
    context_length: int | None
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    loaded: dict[str, str] = field(default_factory=dict)
    asleep: bool = False
    sleeps: bool = False
    """Whether it was started so that it can sleep."""
    root: str = ""
    """The folder or hub id of the base, as the server tells it."""
    was_put_to_sleep: bool = False
    """Whether it sleeps because of :meth:`sleep`, not of somebody else."""

    def check_alive(self) -> None:
        """Raises EngineError with the end of the log where the process has ended."""
        code = self.process.poll() if self.process else None
        if code is not None:
            raise EngineError(
                f"the vLLM server ended with exit code {code}; the end of {self.log}:\n"
                f"{self.tail()}"
            )

    def tail(self) -> str:
        """The last lines of the log."""
        if self.log is None or not self.log.is_file():
            return "(no log)"
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line for line in lines if line.strip() and not _NOISE.search(line)]
        return "\n".join(telling[-_TAIL_LINES:]) or "(the log is empty)"

    def stop(self) -> None:
        """End the process and everything below it. A server of somebody else goes on."""
        if self.process is None:
            return
        process, self.process = self.process, None
        _end(process)

    def sleep(self) -> bool:
        """Free the device's memory (level 1: weights wait in main memory). False: it cannot."""
        if not self.sleeps:
            return False
        status, _ = self.post("/sleep?level=1", timeout=_REST_S)
        if status != 200:
            return False
        self.was_put_to_sleep = self.learn_whether_asleep()
        return self.asleep

    def learn_whether_asleep(self) -> bool:
        """One without sleep mode, or that does not tell, is awake."""
        status, body = self.get("/is_sleeping")
        self.asleep = status == 200 and isinstance(body, dict) and bool(body.get("is_sleeping"))
        return self.asleep

    def wake(self) -> None:
        """Raises EngineError where it does not wake."""
        status, body = self.post("/wake_up", timeout=_REST_S)
        if status != 200:
            raise EngineError(f"the vLLM server at {self.url} did not wake: {status} {body}")
        self.asleep = self.was_put_to_sleep = False

    def load_adapter(self, name: str, folder: str) -> None:
        """Raises EngineError where the server refuses it."""
        body = {"lora_name": name, "lora_path": folder}
        status, said = self.post("/v1/load_lora_adapter", body, timeout=_REST_S)
        if status != 200:
            raise EngineError(
                f"the vLLM server at {self.url} did not load the adapter {folder} as {name}: "
                f"{status} {said}; it needs --enable-lora, a --max-lora-rank of at least the "
                "adapter's, VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and the same folders as here"
            )
        self.loaded[name] = folder

    def unload_adapter(self, name: str) -> None:
        """Forget it; one that the server does not know is forgotten already."""
        status, said = self.post("/v1/unload_lora_adapter", {"lora_name": name})
        self.loaded.pop(name, None)
        if status not in (200, 404):
            raise EngineError(f"the vLLM server did not unload {name}: {status} {said}")

    def health(self, timeout: float = 60.0) -> int:
        """The status of /health. Raises OSError where nobody answers."""
        return _call("GET", f"{self.url}/health", None, timeout)[0]

    def is_reachable(self) -> bool:
        try:
            return self.health() == 200
        except OSError:
            return False

    def get(self, path: str, timeout: float = 60.0) -> tuple[int, Any]:
        """Status and body. Raises EngineError, with the end of the log, where nobody answers."""
        return self._talk("GET", path, None, timeout)

    def post(self, path: str, body: Any = None, timeout: float = 60.0) -> tuple[int, Any]:
        """Status and body. Raises EngineError, with the end of the log, where nobody answers."""
        return self._talk("POST", path, body or {}, timeout)

    def _talk(self, method: str, path: str, body: Any, timeout: float) -> tuple[int, Any]:
        try:
            return _call(method, self.url + path, body, timeout)
        except OSError as error:
            self.check_alive()
            log = f"; the end of {self.log}:\n{self.tail()}" if self.log else ""
            raise EngineError(
                f"the vLLM server at {self.url} did not answer {method} {path}: {error}{log}"
            ) from error


def start(
    base: ServedBase,
    settings: VllmSettings,
    log: Path,
    should_stop: Callable[[], bool] = lambda: False,
) -> Server:
    """Start a server and wait until it is ready.

    Raises EngineError, with the end of its log, where it ends early, is not ready within
    ``start_timeout`` seconds, or ``should_stop`` says so. A vLLM whose platform has no sleep mode
    is started again without.
    """
    wants_sleep = settings.between_phases == "sleep"
    try:
        return _start(base, settings, log, wants_sleep, should_stop)
    except EngineError as error:
        if not (wants_sleep and re.search("sleep mode is not supported", str(error), re.I)):
            raise
    return _start(base, settings, log, False, should_stop)


def _start(
    base: ServedBase, settings: VllmSettings, log: Path, sleeps: bool, stopped: Callable[[], bool]
) -> Server:
    port = _free_port()
    command = command_of(base, settings, port, sleeps)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"\n$ {' '.join(command)}\n".encode())
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(os.getpid()), *command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=_environment(sleeps),
        )
    server = Server(f"http://127.0.0.1:{port}", BASE_NAME, None, process, log, sleeps=sleeps)
    try:
        _wait(server, settings, stopped)
    except BaseException:
        server.stop()
        raise
    return server


def connect(settings: VllmSettings) -> Server:
    """The server at ``vllm.url``, asleep or not. Raises EngineError where none answers there."""
    url = settings.url.rstrip("/").removesuffix("/v1")
    server = Server(url, "", None, sleeps=settings.between_phases == "sleep")
    try:
        status = server.health()
    except OSError as error:
        raise EngineError(f"no vLLM server answers at {url} (vllm.url): {error}") from error
    if status != 200:
        raise EngineError(f"{url}/health (vllm.url) says {status}, not 200; is it a vLLM server?")
    look(server)
    server.learn_whether_asleep()
    return server


def command_of(
    base: ServedBase, settings: VllmSettings, port: int, sleeps: bool = False
) -> list[str]:
    """The whole command line; ``vllm.arguments`` come last, and so they win.

    >>> command_of(ServedBase("org/name"), VllmSettings(), 8000)[:3]
    ['vllm', 'serve', 'org/name']
    """
    command = list(settings.command)
    if len(command) == 1 and re.match(r"python[\d.]*(\.exe)?$", Path(command[0]).name):
        command += ["-m", "vllm.entrypoints.cli.main"]
    command += ["serve", base.source, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", BASE_NAME, "--dtype", base.dtype]
    # Without the model's own generation config a request alone says how text is sampled.
    command += ["--generation-config", "vllm", "--max-logprobs", str(MAX_LOGPROBS)]
    command.append("--disable-uvicorn-access-log")  # a line for each request says nothing new
    if base.trust_remote_code:
        command.append("--trust-remote-code")
    if base.num_adapters:
        rank = next((r for r in LORA_RANKS if r >= base.rank), base.rank)
        on_device = min(base.num_adapters, DEVICE_LORAS)
        command += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(on_device)]
        command += ["--max-cpu-loras", str(base.num_adapters)]
    if sleeps:
        command.append("--enable-sleep-mode")
    return [*command, *settings.arguments]


def _environment(sleeps: bool) -> dict[str, str]:
    added = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1"}
    if sleeps:
        added["VLLM_SERVER_DEV_MODE"] = "1"  # without it the sleep endpoints are missing
    return {**os.environ, **added}


def _wait(server: Server, settings: VllmSettings, stopped: Callable[[], bool]) -> None:
    deadline = time.monotonic() + settings.start_timeout
    while True:
        server.check_alive()
        with contextlib.suppress(OSError):  # it does not listen yet
            if server.health(timeout=5.0) == 200:
                break
        if stopped():
            raise StartStopped("stopped while a vLLM server was starting")
        if time.monotonic() > deadline:
            raise EngineError(
                f"the vLLM server was not ready within {settings.start_timeout:g} s "
                f"(vllm.start_timeout); the end of {server.log}:\n{server.tail()}"
            )
        time.sleep(_POLL_S)
    look(server)


def look(server: Server) -> None:
    """Learn the base's name, its context, and the adapters that are loaded already."""
    status, body = server.get("/v1/models")
    models = body.get("data", []) if status == 200 and isinstance(body, dict) else []
    bases = [model for model in models if not model.get("parent")]
    if not bases:
        raise EngineError(f"{server.url}/v1/models names no base model: {status} {body}")
    server.base_name = server.base_name or bases[0]["id"]
    server.root = str(bases[0].get("root") or "")
    server.context_length = bases[0].get("max_model_len")
    server.loaded = {m["id"]: str(m.get("root", "")) for m in models if m.get("parent")}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the keeper's standard input, which makes it end the tree; kill what does not listen."""
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(timeout=3 * keeper.TERM_S)
    except subprocess.TimeoutExpired:
        left = [process.pid, *keeper.descendants(process.pid)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _call(method: str, url: str, body: Any, timeout: float) -> tuple[int, Any]:
    """Status and body (JSON where it is some). Raises OSError where nobody answers."""
    client = http_client()
    try:
        # No proxy of the environment: the server is on this machine, or one the user named.
        with client.Client(timeout=timeout, trust_env=False) as session:
            reply = session.request(method, url, json=body)
    except client.TransportError as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    try:
        return reply.status_code, reply.json()
    except ValueError:
        return reply.status_code, reply.text


def http_client() -> Any:
    """The HTTP package that the openai SDK brings."""
    for name in ("httpx2", "httpx"):
        with contextlib.suppress(ImportError):
            return __import__(name)
    raise MissingPackage("openai", "openai", "talking to a vLLM server")
