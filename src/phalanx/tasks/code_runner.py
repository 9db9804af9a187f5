"""Run an answer's code against tests where it can do no harm and cannot say that it passed.

Two processes, each shut in on its own (:mod:`phalanx.tasks.code_jail`): one runs the answer, the
other the tests. The tests call the function over a pipe of plain data
(:mod:`phalanx.tasks.code_inside`) and alone hold the descriptor on which the verdict is written.

What that guards: the answer sees neither tests nor verdict. ``os._exit(0)``, ``sys.exit``, a look
at frames, arguments, standard input or the garbage collector, replaced built-ins, exit handlers
and results that claim to equal everything happen in a process whose word does not count: a result
is rebuilt from plain data, and a process that ended is a failure. A fork fails, the network does
not exist, memory, processor and wall-clock time, files and open files are limited, output is
dropped. No secret is needed: a token in the answer's process could be read there.

What it does not guard: faults of the kernel or of the interpreter's JSON reader; tests that are
themselves wrong; an answer that tells the tests' inputs apart and returns what is expected. Under
``filter`` (see :func:`isolation`) files of the machine can be read, though never sent anywhere,
and elsewhere than on x86-64 ``namespaces`` stand without the filter of system calls (not tried).
What differs from one process: arguments are copies, so that tests see no change made to them;
results other than plain data (generators, own classes) fail; no threads, no packages beyond the
standard library. Verdicts near the time limits depend on the speed of the machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phalanx.errors import ConfigError, PhalanxError

Way = Literal["namespaces", "filter"]
_HERE = Path(__file__).parent
_JAIL = _HERE / "code_jail.py"
_PATIENCE = 10.0  # seconds for a launcher to end after it was told to


class SandboxError(PhalanxError):
    """Code cannot be run safely on this machine, or a run could not be set up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """For each of the two processes. Seconds and bytes."""

    wall: float = 15.0
    cpu: int = 8
    memory: int = 512 << 20
    file: int = 1 << 20

    def __post_init__(self) -> None:
        if min(self.wall, self.cpu, self.memory, self.file) <= 0:
            raise ConfigError(f"limits must be positive, got {self}")


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: ``prelude`` and ``code`` define ``name``; ``tests`` call it.

    ``tests`` are Python that either defines ``check(candidate)`` or asserts at once; they run
    after ``prelude``, with ``name`` bound to the answer's function.
    """

    prelude: str
    code: str
    name: str
    tests: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """``reason`` is "" if passed, else "time", "ended", or the name of an exception."""

    passed: bool
    reason: str = ""


def run(program: Program, limits: Limits | None = None) -> Outcome:
    """Whether the answer passes the tests.

    Raises :class:`SandboxError` where code cannot be shut in, and :class:`ConfigError` for tests
    that cannot be run this way whatever the answer.
    """
    return _run(program, limits or Limits(), isolation())


@functools.cache
def isolation() -> Way:
    """How code is shut in on this machine, tried once: see :mod:`phalanx.tasks.code_jail`.

    Raises :class:`SandboxError` where neither way works: then no code is run at all.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"code can be run safely only on Linux, not on {sys.platform}; leave out code tasks"
        )
    probe = Program("", "def probe(x):\n    return x + 1\n", "probe", "assert probe(1) == 2\n")
    faults = []
    ways: tuple[Way, ...] = ("namespaces", "filter")
    for way in ways:
        try:
            outcome = _run(probe, Limits(), way)
        except SandboxError as error:
            faults.append(f"{way}: {error}")
            continue
        if outcome.passed:
            return way
        faults.append(f"{way}: {outcome.reason}")
    raise SandboxError(
        "code cannot be run safely here; it needs user namespaces, or seccomp on x86-64; "
        f"leave out code tasks ({'; '.join(faults)})"
    )


def _run(program: Program, limits: Limits, way: Way) -> Outcome:
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-code-"))
        verdict, started = _start(program, limits, way, root, stack)
        begun = time.monotonic()
        text = _read(verdict, begun + limits.wall)
        late = time.monotonic() - begun >= limits.wall
        _end(started)  # also says what kept a process from being set up
    if not text:
        return Outcome(False, "time" if late else "ended")
    told = json.loads(text)
    if told["row"]:
        raise ConfigError(
            f"the tests of {program.name} cannot be run: {told['reason']}; tests must call the "
            "function with plain data (numbers, texts, lists, tuples, sets, dictionaries)"
        )
    return Outcome(told["passed"], told["reason"])


def _start(
    program: Program, limits: Limits, way: Way, root: str, stack: contextlib.ExitStack
) -> tuple[int, list[subprocess.Popen[bytes]]]:
    """Both processes, and the descriptor to read the verdict from."""
    calls, asking = os.pipe()
    results, replying = os.pipe()
    verdict, judging = os.pipe()
    stack.callback(os.close, verdict)
    common = {"prelude": program.prelude, "name": program.name}
    answer = [_job({**common, "program": program.code}), calls, replying]
    tests = [_job({**common, "tests": program.tests}), results, asking, judging]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for fds in (answer, tests):
            process = _launch(fds, limits, way, root)
            stack.callback(_finish, process)
            started.append(process)
    finally:
        for fd in (*answer, *tests):
            os.close(fd)
    return verdict, started


def _job(content: dict[str, str]) -> int:
    """A file in memory that holds the job, read once by the process."""
    fd = os.memfd_create("job")
    data = json.dumps(content).encode()
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _launch(fds: list[int], limits: Limits, way: Way, root: str) -> subprocess.Popen[bytes]:
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    spec = {
        "way": way,
        "fds": fds,
        "wall": limits.wall,
        "cpu": limits.cpu,
        "memory": limits.memory,
        "file": limits.file,
        "python": python,
        "prefix": os.path.realpath(sys.base_prefix),
        "root": root,
        "code": _inside(),
    }
    try:
        return subprocess.Popen(
            [python, "-I", "-S", str(_JAIL), json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            env={},
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"a process to run code in could not be started: {error}") from error


@functools.cache
def _inside() -> str:
    return (_HERE / "code_inside.py").read_text(encoding="utf-8")


def _read(fd: int, deadline: float) -> bytes:
    """The verdict, or b"" where none was written in time. Only the tests' process can write."""
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([fd], [], [], left)[0]:
        return b""
    return os.read(fd, 4096)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """Tell the launchers to end what they started. Raises what one could not set up."""
    faults = []
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        _, said = process.communicate(timeout=_PATIENCE)
        if process.returncode not in (0, -signal.SIGTERM):  # the latter: told before it began
            faults.append(said.decode(errors="replace").strip() or f"status {process.returncode}")
    if faults:
        raise SandboxError(f"a process to run code in could not be set up: {'; '.join(faults)}")


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Whatever happened, nothing is left: kill the launcher's group if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_PATIENCE)
    if process.stderr:
        process.stderr.close()
