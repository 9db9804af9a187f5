"""A chat in a real terminal, for tests: type, and read what it shows."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Typist:
    """A process in a terminal of its own; ``seen`` is all it has shown."""

    def __init__(self, words: Sequence[object], columns: int, **environment: str) -> None:
        self._screen, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        # What says how wide other terminals are would win over the width of this one.
        here = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        environment = {**here, "TERM": "xterm", "NO_COLOR": "1", **environment}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)], stdin=child, stdout=child, stderr=child,
            env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(child)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = self.seen = ""

    def type(self, text: str, until: str) -> str:
        """Type, and what is shown from then on up to ``until``."""
        os.write(self._screen, text.encode())
        return self.read(until)

    def read(self, until: str) -> str:
        """What is shown next, up to and with ``until``; what comes after it is read later."""
        deadline = time.monotonic() + 60
        while until not in self._unread and time.monotonic() < deadline and self._look(1):
            pass
        assert until in self._unread, f"no {until!r} in {self._unread!r}"
        before, _, self._unread = self._unread.partition(until)
        return before + until

    def read_more(self, count: int) -> str:
        """At least so many further characters."""
        deadline = time.monotonic() + 60
        while len(self._unread) < count and time.monotonic() < deadline and self._look(1):
            pass
        shown, self._unread = self._unread, ""
        return shown

    def interrupt(self, until: str) -> str:
        """Ctrl-C, until it is heard: input() misses one between its prompt and its waiting."""
        for _ in range(20):
            os.kill(self.process.pid, signal.SIGINT)
            deadline = time.monotonic() + 1
            while until not in self._unread and time.monotonic() < deadline:
                self._look(0.1)
            if until in self._unread:
                return self.read(until)
        raise AssertionError(f"nobody heard Ctrl-C: {self._unread!r}")

    def end(self, text: str = "\x04") -> int:
        """Type what ends the program (Ctrl-D), and its exit code."""
        os.write(self._screen, text.encode())
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline and self._look(0.05):
            pass
        return self.process.wait(10)

    def _look(self, seconds: float) -> bool:
        """Take up what is shown within some time; False where the other end is closed."""
        if select.select([self._screen], [], [], seconds)[0]:
            try:
                piece = os.read(self._screen, 65536)
            except OSError:
                return False
            shown = self._decoder.decode(piece)
            self.seen += shown
            self._unread += shown
        return True

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._screen)


@contextmanager
def typing(*words: object, columns: int = 100, **environment: str) -> Iterator[Typist]:
    """``python WORDS`` in a terminal: ``typing("-m", "phalanx.cli", "chat", config)``."""
    typist = Typist(words, columns, **environment)
    try:
        yield typist
    finally:
        typist.close()
