"""Server processes: started, waited for, put to sleep, and ended with everything below them.

The program that is started is ``python -m tests.server``, which takes the arguments of
``vllm serve``; everything else is as with vLLM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from phalanx.config.schema import VllmSettings
from phalanx.engines import vllm_server
from phalanx.engines.vllm_server import ServedBase, command_of, start
from phalanx.errors import EngineError
from tests.tiny import make_adapter, make_tiny

COMMAND = [sys.executable, "-m", "tests.server"]
SETTINGS = VllmSettings(command=COMMAND, start_timeout=120)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def ended(pids: list[int], within: float = 30.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(p) and not _is_zombie(p) for p in pids):
            return True
        time.sleep(0.05)
    return False


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def tree(server: vllm_server.Server) -> list[int]:
    root = psutil.Process(server.process.pid)
    return [root.pid, *(child.pid for child in root.children(recursive=True))]


def test_the_command_is_vllm_serve_with_room_for_the_adapters():
    base = ServedBase("org/name", "bfloat16", num_adapters=12, rank=20)
    settings = VllmSettings(arguments=["--max-loras", "3"])
    command = command_of(base, settings, 8123, sleeps=True)
    assert command[:7] == ["vllm", "serve", "org/name", "--host", "127.0.0.1", "--port", "8123"]
    text = " ".join(command)
    assert "--enable-lora --max-lora-rank 32 --max-loras 8 --max-cpu-loras 12" in text
    assert "--dtype bfloat16" in text
    assert "--enable-sleep-mode" in text
    assert command[-2:] == ["--max-loras", "3"]  # the user's own come last and win
    bare = command_of(ServedBase("org/name"), VllmSettings(), 1)
    assert not {"--enable-lora", "--enable-sleep-mode", "--trust-remote-code"} & set(bare)


def test_a_python_interpreter_runs_vllms_own_program():
    settings = VllmSettings(command=["/opt/vllm/bin/python3.12"])
    assert command_of(ServedBase("m"), settings, 1)[:4] == [
        "/opt/vllm/bin/python3.12", "-m", "vllm.entrypoints.cli.main", "serve",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_server_answers_takes_adapters_sleeps_and_ends(tiny, tmp_path):
    server = start(ServedBase(str(tiny), num_adapters=2, rank=4), SETTINGS, tmp_path / "s.log")
    pids = tree(server)
    try:
        assert len(pids) >= 2
        assert server.context_length == 512
        adapter = make_adapter(tiny, tmp_path / "ada", rank=4)
        server.load_adapter("ada@1", str(adapter))
        assert "ada@1" in json.dumps(server.get("/v1/models")[1])
        with pytest.raises(EngineError, match=r"ada@2.*No adapter found"):
            server.load_adapter("ada@2", str(tmp_path / "nowhere"))
        server.unload_adapter("ada@1")
        server.unload_adapter("ada@1")
        assert "ada@1" not in json.dumps(server.get("/v1/models")[1])
        assert server.sleep()
        assert server.asleep
        server.wake()
        assert server.get("/is_sleeping")[1] == {"is_sleeping": False}
    finally:
        server.stop()
    assert ended(pids)
    assert "listening on" in (tmp_path / "s.log").read_text()


@pytest.mark.slow
def test_a_start_that_fails_shows_the_end_of_the_log(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_SERVER_FAIL", "CUDA error: no device is left")
    with pytest.raises(EngineError, match=r"exit code 1[\s\S]*s.log[\s\S]*CUDA error: no device"):
        start(ServedBase(str(tiny)), SETTINGS, tmp_path / "s.log")


@pytest.mark.slow
def test_without_sleep_mode_on_its_platform_it_is_started_without(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_SERVER_NO_SLEEP", "1")
    server = start(ServedBase(str(tiny)), SETTINGS, tmp_path / "s.log")
    try:
        assert not server.sleep()
        assert not server.asleep
    finally:
        server.stop()
    assert (tmp_path / "s.log").read_text().count("$ ") == 2


@pytest.mark.slow
def test_a_start_that_takes_too_long_or_is_called_off_leaves_no_process(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setenv("TEST_SERVER_SLOW", "60")
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    hasty = VllmSettings(command=COMMAND, start_timeout=0.5)
    with pytest.raises(EngineError, match=r"not ready within 0.5 s \(vllm.start_timeout\)"):
        start(ServedBase(str(tiny)), hasty, tmp_path / "s.log")
    with pytest.raises(EngineError, match="stopped while"):
        start(ServedBase(str(tiny)), SETTINGS, tmp_path / "s.log", lambda: True)
    left = [p.pid for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert ended(left)


def test_nobody_at_the_url():
    with pytest.raises(EngineError, match=r"no vLLM server answers at http://127.0.0.1:9 \(vllm"):
        vllm_server.connect(VllmSettings(url="http://127.0.0.1:9/v1"))


def test_a_server_that_stops_answering_is_an_error_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "s.log"
    log.write_text("loading\nCUDA error: out of memory\n")
    server = vllm_server.Server("http://127.0.0.1:9", "base", None, log=log, sleeps=True)
    with pytest.raises(
        EngineError, match=r"did not answer POST /sleep[\s\S]*s.log[\s\S]*out of mem"
    ):
        server.sleep()
    with pytest.raises(EngineError, match="did not answer GET /v1/models"):
        vllm_server.look(server)
    assert not server.is_reachable()


OWNER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from pathlib import Path
from phalanx.config.schema import VllmSettings
from phalanx.engines.vllm_server import ServedBase, start
command = [sys.executable, sys.argv[1]]
server = start(ServedBase("m"), VllmSettings(command=command, start_timeout=60), Path(sys.argv[2]))
print("ready", flush=True)
how = sys.argv[3]
if how == "error":
    raise RuntimeError("something else went wrong")
if how == "sleep":
    time.sleep(600)
if how == "exit":
    sys.exit(0)
"""
# A server in miniature that starts a child in a session of its own, which starts another child;
# the first of them does not listen to SIGTERM.
TREE = """
import http.server, json, signal, subprocess, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
code = "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
code += "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "base", "parent": None}]}).encode())
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="whole trees are found through /proc")
@pytest.mark.parametrize("how", ["exit", "error", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_however_the_owner_ends(how, tmp_path, monkeypatch):
    (tmp_path / "owner.py").write_text(OWNER)
    (tmp_path / "tree.py").write_text(TREE)
    way = how if how in ("exit", "error") else "sleep"
    arguments = [str(tmp_path / "tree.py"), str(tmp_path / "s.log"), way]
    owner = subprocess.Popen(
        [sys.executable, str(tmp_path / "owner.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    # In the two quick ways the owner may be gone before its tree can be looked at, so every
    # process that mentions the folder counts.
    assert owner.stdout.readline() == "ready\n"
    if how.startswith("SIG"):
        deadline = time.monotonic() + 20
        while len(_of(owner)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        pids = _of(owner)
        assert len(pids) >= 4  # the keeper, the server, its child and grandchild
        os.kill(owner.pid, getattr(signal, how))
    else:
        pids = _mentioning(str(tmp_path))
        pids = [pid for pid in pids if pid != owner.pid]
    owner.wait(timeout=60)
    assert ended(pids, within=40)
    assert not _mentioning(str(tmp_path))


def _of(owner: subprocess.Popen) -> list[int]:
    return [child.pid for child in psutil.Process(owner.pid).children(recursive=True)]


def _mentioning(text: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and text in " ".join(process.info["cmdline"] or ()):
            found.append(process.pid)
    return found


def test_the_end_of_a_log_leaves_out_what_libraries_write_at_every_end(tmp_path):
    log = tmp_path / "s.log"
    noise = [' - leaked type "triton._C"', "nanobind: leaked 6 types", "", "... skipped remainder"]
    log.write_text("\n".join(["old"] * 50 + ["ValueError: no memory", *noise * 20]))
    shown = vllm_server.Server("http://x", "base", None, log=log).tail().splitlines()
    assert shown[-1] == "ValueError: no memory"
    assert len(shown) == 30
