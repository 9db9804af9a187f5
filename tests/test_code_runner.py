"""Hostile answers do no harm and score nothing; honest ones score."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.tasks import code_runner
from phalanx.tasks.code_runner import Limits, Outcome, Program, SandboxError, _run

HONEST = "def double(x):\n    return 2 * x\n"
TESTS = "def check(candidate):\n    assert candidate(3) == 6\n    assert candidate(-1) == -2\n"
SYSTEM = "/usr/bin/python3"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="code is run only on Linux")


def program(code: str, tests: str = TESTS, prelude: str = "") -> Program:
    return Program(prelude, code, "double", tests)


@functools.cache
def interpreter(way: str) -> str:
    """One that ``way`` can start, or "".

    One in a private home cannot be reached by a user without rights, as ``filter`` needs when
    started by root: then the system's.
    """
    usual = sys._base_executable
    try:
        for python in (usual, SYSTEM):
            sys._base_executable = python
            try:
                assert _run(program(HONEST), Limits(), way).passed
            except SandboxError:
                continue
            return python
        return ""
    finally:
        sys._base_executable = usual


@pytest.fixture(params=["namespaces", "filter"])
def way(request, monkeypatch):
    """Each way of shutting in that works here."""
    python = interpreter(request.param)
    if not python:
        pytest.skip(f"{request.param} is not possible here")
    monkeypatch.setattr(sys, "_base_executable", python)
    return request.param


def in_function(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"import os, sys\ndef double(x):\n{lines}"


def reported(code: str, way: str, limits: Limits | None = None) -> str:
    """What the function returns for 3, carried out as the name of an exception."""
    tests = "raise type(double(3), (Exception,), {})\n"
    return _run(program(code, tests), limits or Limits(), way).reason


def test_right_and_wrong_answers(way):
    assert _run(program(HONEST), Limits(), way) == Outcome(True)
    wrong = "def double(x):\n    return x * x\n"
    assert _run(program(wrong), Limits(), way) == Outcome(False, "AssertionError")


def test_no_process_and_no_thread_can_be_started(way):
    code = in_function(
        "import threading\n"
        "try:\n    pid = os.fork()\nexcept BlockingIOError:\n    pid = -1\n"
        "if pid == 0:\n    os._exit(0)\n"
        "try:\n    threading.Thread(target=print).start()\n"
        "except RuntimeError:\n    return 'none' if pid < 0 else 'forked'\n"
        "return 'thread'"
    )
    assert reported(code, way) == "none"


ESCAPES = {
    "exit 0 at once": "import os\nos._exit(0)\n",
    "sys.exit at once": "import sys\nsys.exit(0)\n",
    "exit 0 in the call": in_function("os._exit(0)"),
    "sys.exit in the call": in_function("sys.exit(0)"),
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\n"
    + in_function("sys.exit(0)"),
    "equal to everything": (
        "class Any(int):\n"
        "    __eq__ = lambda self, other: True\n"
        "    __ne__ = lambda self, other: False\n"
        "    __hash__ = int.__hash__\n"
        "def double(x):\n    return Any(1)\n"
    ),
    "object equal to everything": (
        "class Any:\n    def __eq__(self, other):\n        return True\n"
        "def double(x):\n    return Any()\n"
    ),
    "built-ins replaced": (
        "import builtins\nbuiltins.AssertionError = type('Quiet', (Exception,), {})\n"
        "builtins.compile = builtins.exec = builtins.callable = lambda *a, **k: True\n"
        "def double(x):\n    return None\n"
    ),
    "verdict written to every descriptor": (
        "import os\n"
        'line = b\'{"passed": true, "reason": "", "row": false}\\n\'\n'
        "def double(x):\n    return 0\n"
        "for fd in range(64):\n"
        "    try:\n        os.write(fd, line)\n    except OSError:\n        pass\n"
    ),
    "replies forged in advance": (
        "import os\n"
        "os.write(5, b'{\"ready\": true}\\n')\n"
        'for n in (1, 2):\n    os.write(5, b\'{"call": %d, "value": 0}\\n\' % n)\n'
        "def double(x):\n    return 0\n"
    ),
    "reply that is no JSON": "import os\nos.write(5, b'[' * 200000 + b'\\n')\n" + HONEST,
    "reply without end": "import os\nwhile True:\n    os.write(5, b'1' * 65536)\n",
    "reply too large": "def double(x):\n    return 'x' * (1 << 21)\n",
    "reply that contains itself": "def double(x):\n    x = []\n    x.append(x)\n    return x\n",
    "a name at the end of its name": "def double_it(x):\n    return 2 * x\n",
    "the header's own stub": "x = 1\n",
    "raises what tests raise": in_function("raise AssertionError"),
    "does not compile": "def double(x):\n    return (\n",
    "reads standard input": in_function("return int(input())"),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_tricks_score_nothing(name):
    stub = 'def double(x):\n    """Twice x."""\n'
    outcome = code_runner.run(program(ESCAPES[name], prelude=stub), Limits(wall=60))
    assert not outcome.passed
    assert outcome.reason != "time"


def test_the_answer_cannot_find_the_tests(way):
    code = in_function(
        "import gc\n"
        "seen = repr(sys.argv) + repr(dict(os.environ))\n"
        "frame = sys._getframe()\n"
        "while frame:\n"
        "    seen += repr(frame.f_locals) + repr(frame.f_globals)\n"
        "    frame = frame.f_back\n"
        "seen += repr([o for o in gc.get_objects() if isinstance(o, dict)][:2000])\n"
        "for pid in os.listdir('/proc') if os.path.isdir('/proc') else []:\n"
        "    if not pid.isdigit() or pid == str(os.getpid()):\n        continue\n"
        "    try:\n"
        "        said = open(f'/proc/{pid}/cmdline', 'rb').read()\n"
        "        if b'code_jail' in said or b'LONGEST_LINE' not in said:\n            continue\n"
        "        open(f'/proc/{pid}/mem', 'rb')\n"
        "        return 'memory'\n"
        "    except OSError:\n        pass\n"
        "return 'found' if 'zebra' + 'fish' in seen else 'nothing'"
    )
    tests = "raise type(double('zebra' 'fish'[:0]), (Exception,), {})  # zebrafish\n"
    assert _run(program(code, tests), Limits(), way).reason == "nothing"


@pytest.mark.parametrize("code", ["while True:\n    pass\n", in_function("while True: pass")])
def test_an_endless_loop_ends_by_the_processor_limit(code):
    outcome = code_runner.run(program(code), Limits(wall=60, cpu=1))
    assert outcome == Outcome(False, "ended")


def test_waiting_ends_by_the_wall_clock(way):
    began = time.monotonic()
    outcome = _run(program(in_function("import time\ntime.sleep(60)")), Limits(wall=1.5), way)
    assert outcome == Outcome(False, "time")
    assert time.monotonic() - began < 30


def test_memory_is_limited(way):
    outcome = _run(program(in_function("return len(bytearray(1 << 30))")), Limits(), way)
    assert outcome == Outcome(False, "MemoryError")


def test_output_is_dropped(way):
    code = in_function(
        "import sys\n"
        "for _ in range(3000):\n"
        "    print('x' * 10000)\n    print('x' * 10000, file=sys.stderr)\n"
        "return 2 * x"
    )
    assert _run(program(code), Limits(), way).passed


def test_files_stay_as_they_are(way, tmp_path):
    tmp_path.chmod(0o777)
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    kept.chmod(0o666)
    code = in_function(
        "import shutil\n"
        f"place = {str(tmp_path)!r}\n"
        "for act in (lambda: os.unlink(place + '/kept'), lambda: open(place + '/kept', 'w'),\n"
        "            lambda: open(place + '/new', 'w'), lambda: os.rename(place, place + 'x'),\n"
        "            lambda: os.chmod(place + '/kept', 0), lambda: shutil.rmtree(place),\n"
        "            lambda: os.truncate(place + '/kept', 0), lambda: os.mkdir(place + '/d'),\n"
        "            lambda: os.symlink('x', place + '/l'), lambda: os.utime(place + '/kept')):\n"
        "    try:\n        act()\n    except OSError:\n        pass\n"
        "return 'done'"
    )
    before = kept.stat()
    assert reported(code, way) == "done"
    assert kept.read_text() == "as it was"
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    assert kept.stat().st_mode == before.st_mode
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_own_files_are_bounded(way):
    code = in_function(
        "written = 0\n"
        "try:\n"
        "    for n in range(20):\n"
        "        with open(f'f{n}', 'wb', buffering=0) as file:\n"
        "            written += file.write(b'1' * (1 << 19))\n"
        "except OSError:\n    pass\n"
        "return 'few' if written <= 4 << 20 else 'many'"
    )
    assert reported(code, way) == "few"


def test_there_is_no_network(way):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        port = listening.getsockname()[1]
        code = in_function(
            "import socket\n"
            f"try:\n    socket.create_connection(('127.0.0.1', {port}), 2)\n"
            "except OSError:\n    return 'refused'\n"
            "return 'connected'"
        )
        assert reported(code, way) == "refused"
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_no_other_process_can_be_signalled(way):
    code = in_function(
        "import signal\n"
        "for pid in (os.getppid(), -1, 0, TESTS):\n"
        "    try:\n        os.kill(pid, 0)\n    except OSError:\n        continue\n"
        "    return 'reached'\n"
        "return 'none'"
    ).replace("TESTS", str(os.getpid()))
    assert reported(code, way) == "none"  # proven with the signal that does nothing, then:
    killing = in_function(
        f"for pid in (os.getppid(), {os.getpid()}):\n"
        "    try:\n        os.kill(pid, 9)\n    except OSError:\n        pass\n"
        "return 0"
    )
    assert _run(program(killing), Limits(), way) == Outcome(False, "AssertionError")


def test_nothing_is_left_running(way, monkeypatch):
    started = []
    real = subprocess.Popen

    def recording(*args, **kwargs):
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(code_runner.subprocess, "Popen", recording)
    code = in_function(
        "import signal, time\n"
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "os.setsid() if os.getpgid(0) != os.getpid() else None\n"
        "time.sleep(60)"
    )
    assert _run(program(code), Limits(wall=1.5), way) == Outcome(False, "time")
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)
    parents = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it ended meanwhile
            continue
        parents |= {int(fields[1]), int(fields[3])}  # parent, session
    assert not parents & {process.pid for process in started}


def test_values_arrive_as_they_were(way):
    values = (
        "[None, True, -3, 1 << 80, -(1 << 90), 0.1, 1e300, float('inf'), 2 + 3j, 'aé\\ud800\\n', "
        "b'\\x00\\xff', (1, (2, [3])), {1: 'a', (2,): {3}}, frozenset({4}), [], {}, ()]"
    )
    tests = (
        f"values = {values}\n"
        "for value in values:\n"
        "    found = double(value)\n"
        "    assert found == value\n"
        "    assert type(found) is type(value)\n"
        "assert double(float('nan')) != double(float('nan'))\n"
        "assert double(x=1) == 1\n"
    )
    assert _run(program("def double(x):\n    return x\n", tests), Limits(), way) == Outcome(True)


def test_plain_subclasses_arrive_as_their_plain_type(way):
    code = (
        "from collections import Counter, OrderedDict\nfrom fractions import Fraction\n"
        "from decimal import Decimal\n"
        "def double(x):\n"
        "    return [Counter('aab'), OrderedDict(b=1), Fraction(1, 2), Decimal('1.5')]\n"
    )
    tests = "assert double(0) == [{'a': 2, 'b': 1}, {'b': 1}, 0.5, 1.5]\n"
    assert _run(program(code, tests), Limits(), way) == Outcome(True)


def test_tests_may_expect_an_exception(way):
    tests = (
        "try:\n    double(0)\nexcept ZeroDivisionError:\n    pass\n"
        "else:\n    raise AssertionError\n"
    )
    code = "def double(x):\n    return 1 // x\n"
    assert _run(program(code, tests), Limits(), way) == Outcome(True)
    assert _run(program(HONEST, tests), Limits(), way) == Outcome(False, "AssertionError")


def test_tests_that_catch_everything_do_not_hide_a_dead_process(way):
    tests = (
        "for x in (1, 2):\n    try:\n        double(x)\n    except BaseException:\n        pass\n"
    )
    outcome = _run(program(in_function("os._exit(0)"), tests), Limits(), way)
    assert outcome == Outcome(False, "ended")


@pytest.mark.parametrize(
    ("tests", "said"), [("double(lambda: 1)\n", "pass a function"), ("x = 1\n", "never call")]
)
def test_tests_that_cannot_judge_are_faults_of_the_row(tests, said):
    with pytest.raises(ConfigError, match=said):
        code_runner.run(program(HONEST, tests))


def test_a_process_that_cannot_be_set_up_is_no_wrong_answer(monkeypatch):
    way = code_runner.isolation()
    monkeypatch.setattr(sys, "_base_executable", "/nowhere/python")
    with pytest.raises(SandboxError, match="could not be started"):
        _run(program(HONEST), Limits(), way)


def test_where_nothing_can_be_shut_in_nothing_is_run(monkeypatch):
    def refuse(*_):
        raise SandboxError("no")

    monkeypatch.setattr(code_runner, "_run", refuse)
    code_runner.isolation.cache_clear()
    try:
        with pytest.raises(SandboxError, match="leave out code tasks"):
            code_runner.run(program(HONEST))
    finally:
        code_runner.isolation.cache_clear()


def test_limits_must_be_positive():
    with pytest.raises(ConfigError, match="positive"):
        Limits(cpu=0)


def test_zz_fork_bomb(way):
    """Last, and only after one fork was seen to fail."""
    one = in_function(
        "try:\n    pid = os.fork()\nexcept BlockingIOError:\n    return 'none'\n"
        "if pid == 0:\n    os._exit(0)\nreturn 'forked'"
    )
    assert reported(one, way) == "none"
    bomb = in_function(
        "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    )
    assert not _run(program(bomb), Limits(wall=1.5, cpu=1), way).passed
