"""The guard around what is served, over real connections on loopback."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from urllib.parse import urlsplit

import pytest

from phalanx.errors import ConfigError
from phalanx.live.guarded import bind, door, served

starlette = pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

APP = """
import asyncio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

async def read(request):
    return PlainTextResponse("read")

async def write(request):
    return PlainTextResponse("written")

async def events(request):
    async def forever():
        while True:
            yield b"data: x\\n\\n"
            await asyncio.sleep(0.1)
    return StreamingResponse(forever(), media_type="text/event-stream")

app = Starlette(routes=[Route("/", read), Route("/events", events),
                        Route("/write", write, methods=["POST"])])
"""


def app():
    space: dict = {}
    exec(APP, space)
    return space["app"]


def ask(url, method="GET", path="/", **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def url():
    with served(app(), token="open sesame") as url:
        yield url


def test_a_page_is_read_with_headers_that_let_nothing_in(url):
    status, text, headers = ask(url)
    assert (status, text) == (200, "read")
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_is_refused(url, host):
    status, text, headers = ask(url, Host=host)
    assert status == 421
    assert "answers to 127.0.0.1" in text
    assert "content-security-policy" in headers


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:9000", "LocalHost:9000"])
def test_its_own_names_are_answered_at_any_port_for_tunnels(url, host):
    assert ask(url, Host=host)[0] == 200


def test_two_host_headers_are_refused(url):
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port), timeout=10) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")
        assert line.recv(200).startswith(b"HTTP/1.1 400 ")


def test_a_method_that_a_route_lacks_is_refused(url):
    assert ask(url, "POST", "/", X_Phalanx_Token="open sesame")[0] == 405


def test_writing_needs_the_token_and_this_origin(url):
    own = url.rstrip("/")
    assert ask(url, "POST", "/write")[0] == 403
    assert ask(url, "POST", "/write", X_Phalanx_Token="open says me")[0] == 403
    known = {"X_Phalanx_Token": "open sesame"}
    assert ask(url, "POST", "/write", **known, Origin="http://evil.example")[0] == 403
    assert ask(url, "POST", "/write", **known, Origin="null")[0] == 403
    assert ask(url, "POST", "/write", **known, Sec_Fetch_Site="cross-site")[0] == 403
    assert ask(url, "POST", "/write", **known, Origin=own)[:2] == (200, "written")
    assert ask(url, "POST", "/write", **known)[:2] == (200, "written")


def test_beyond_this_machine_the_names_of_the_machine_and_numbers_are_let_in():
    everywhere = door("0.0.0.0", allowed=["Box.lan"])
    assert everywhere.refusal("GET", {"host": "192.0.2.7:8137"}) is None
    assert everywhere.refusal("GET", {"host": f"{socket.gethostname()}:8137"}) is None
    assert everywhere.refusal("GET", {"host": "box.lan"}) is None
    assert everywhere.refusal("GET", {"host": "rebound.example"})[0] == 421
    one = door("192.0.2.7")
    assert one.refusal("GET", {"host": "192.0.2.7:8137"}) is None
    assert one.refusal("GET", {"host": "192.0.2.8:8137"})[0] == 421


def test_an_address_that_cannot_be_had_is_said_with_what_to_do(url):
    with pytest.raises(ConfigError, match="choose another --port"):
        bind(app(), port=urlsplit(url).port)
    with pytest.raises(ConfigError, match="expected 0"):
        bind(app(), port=70_000)
    with pytest.raises(ConfigError, match="no address of this machine"):
        bind(app(), host="no.such.name.invalid")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line_although_a_stream_is_open(tmp_path, sent):
    (tmp_path / "the_app.py").write_text(
        APP + "from phalanx.live.guarded import serve\n"
        "serve(app, say=lambda text: print(text, flush=True), name='Page')\n"
    )
    process = subprocess.Popen(
        [sys.executable, tmp_path / "the_app.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        first = process.stdout.readline()
        url = first.split()[1]
        stream = urllib.request.urlopen(f"{url}events", timeout=20)
        assert stream.read(7) == b"data: x"
        began = time.monotonic()
        process.send_signal(sent)
        rest, _ = process.communicate(timeout=20)
        assert time.monotonic() - began < 5  # a grace of one second, and a slow machine
    finally:
        process.kill()
        process.wait()
    assert rest == "Page has ended.\n"
    assert process.returncode == 0
