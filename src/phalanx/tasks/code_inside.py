"""What runs shut in: the answer's process, and the process of the tests that calls it.

Given as text to a fresh interpreter (``python -c``), so it imports nothing of the package. The two
processes share nothing but two pipes of JSON lines, and only plain data passes them; there is no
pickle. Descriptors: 3 the job (JSON), 4 lines read, 5 lines written, 6 (tests only) the verdict.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

LONGEST_LINE = 1 << 20
_SMALL = 1 << 53
_MANY = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class Unsendable(BaseException):
    """A value is not plain data. No ``Exception``: tests that catch those must not hide it."""


class Broken(BaseException):
    """The answer's process ended, or wrote what it should not."""


def encode(value: object) -> object:
    """Plain data as JSON; a subclass is sent as the plain type, with no method of its own."""
    if value is None or isinstance(value, bool | float | str):
        return value if value is None or isinstance(value, bool) else _plain(value)
    if isinstance(value, int):
        return int(value) if abs(value) < _SMALL else ["int", hex(value)]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, bytes | bytearray):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        return ["dict", [[encode(key), encode(kept)] for key, kept in value.items()]]
    for name, kind in _MANY.items():
        if isinstance(value, kind):
            return [name, [encode(part) for part in value]]
    if isinstance(value, Fraction):
        return ["Fraction", hex(value.numerator), hex(value.denominator)]
    if isinstance(value, Decimal):
        return ["Decimal", str(value)]
    raise Unsendable(type(value).__name__)


def _plain(value: float | str) -> float | str:
    return float(value) if isinstance(value, float) else str.__str__(value)


def decode(sent: object) -> object:
    """The value again. Raises :class:`Broken` for anything that :func:`encode` does not write."""
    if not isinstance(sent, list):
        if isinstance(sent, dict):
            raise Broken("malformed")
        return sent
    try:
        tag, *parts = sent
        if tag == "int":
            return int(parts[0], 16)
        if tag == "complex":
            return complex(float(parts[0]), float(parts[1]))
        if tag == "bytes":
            return bytes.fromhex(parts[0])
        if tag == "dict":
            return {decode(key): decode(value) for key, value in parts[0]}
        if tag == "Fraction":
            return Fraction(int(parts[0], 16), int(parts[1], 16))
        if tag == "Decimal":
            return Decimal(parts[0])
        return _MANY[tag](decode(part) for part in parts[0])
    except Exception as error:
        raise Broken("malformed") from error


class Channel:
    """JSON lines in and out."""

    def __init__(self) -> None:
        self.source = os.fdopen(4, "rb")
        self.sink = os.fdopen(5, "wb")

    def send(self, message: object) -> None:
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            raise Unsendable("too large")
        self.sink.write(line)
        self.sink.flush()

    def receive(self) -> Any:
        """The next line; None at the end."""
        line = self.source.readline(LONGEST_LINE + 1)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise Broken("too large")
        return json.loads(line)


def answer(job: dict, channel: Channel) -> None:
    """Run the answer's program, then its function for every call that comes."""
    space: dict[str, Any] = {"__name__": "answer"}
    try:
        exec(compile(job["prelude"], "<prompt>", "exec", dont_inherit=True), space)
        before = space.get(job["name"])
        exec(compile(job["program"], "<answer>", "exec", dont_inherit=True), space)
        if space.get(job["name"]) is before or not callable(space[job["name"]]):
            raise NameError(job["name"])
    except BaseException as error:
        channel.send({"error": type(error).__name__})
        return
    channel.send({"ready": True})
    while (call := channel.receive()) is not None:
        channel.send(_called(space[job["name"]], call))


def _called(function: Callable[..., object], call: dict) -> dict:
    try:
        given = [decode(value) for value in call["args"]]
        named = {name: decode(value) for name, value in call["named"].items()}
        value = encode(function(*given, **named))
    except BaseException as error:
        text = str(error) if isinstance(error, Unsendable) else ""
        return {"call": call["call"], "error": type(error).__name__, "type": text}
    return {"call": call["call"], "value": value}


class Remote:
    """Called by the tests in the place of the function; the answer's process computes."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.calls = 0
        self.broken = ""  # stays, whatever the tests catch

    def start(self) -> None:
        """Wait until the answer has been run."""
        told = self._receive()
        if told.get("ready") is not True:
            raise Broken(_name(told.get("error")))

    def __call__(self, *args: object, **named: object) -> object:
        if self.broken:
            raise Broken(self.broken)
        self.calls += 1
        call = {
            "call": self.calls,
            "args": [encode(value) for value in args],
            "named": {name: encode(value) for name, value in named.items()},
        }
        try:
            self.channel.send(call)
        except OSError as error:
            self._fail("ended", error)
        told = self._receive()
        if told.get("call") != self.calls:
            self._fail("malformed")
        if "error" in told:
            raise _exception(told)
        try:
            return decode(told.get("value"))
        except (Broken, RecursionError) as error:
            self._fail("malformed", error)

    def _receive(self) -> dict:
        try:
            told = self.channel.receive()
        except (Broken, ValueError, RecursionError) as error:
            self._fail("malformed", error)
        if told is None:
            self._fail("ended")
        if not isinstance(told, dict):
            self._fail("malformed")
        return told

    def _fail(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        self.broken = reason
        raise Broken(reason) from cause


class AnswerError(Exception):
    """The function raised something that is no built-in exception."""


def _exception(told: dict) -> Exception:
    """The built-in exception of that name: tests may expect one."""
    name = _name(told["error"])
    if name == "Unsendable":
        return AnswerError(f"returned {_name(told.get('type'))}")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind.__new__(kind)
    return AnswerError(name)


def _name(given: object) -> str:
    text = given if isinstance(given, str) else ""
    return text if text.isidentifier() and len(text) < 60 else "malformed"


def tests(job: dict, channel: Channel) -> dict:
    """Run the tests against the answer's process; the verdict."""
    remote = Remote(channel)
    space: dict[str, Any] = {"__name__": "tests"}
    try:
        exec(compile(job["prelude"], "<prompt>", "exec", dont_inherit=True), space)
        remote.start()
        space[job["name"]] = remote
        exec(compile(job["tests"], "<tests>", "exec", dont_inherit=True), space)
        if callable(space.get("check")):
            space["check"](remote)
    except Unsendable as error:
        return {"passed": False, "reason": f"the tests pass a {error}", "row": True}
    except Broken as error:
        return {"passed": False, "reason": str(error), "row": False}
    except BaseException as error:
        text = str(error) if isinstance(error, AnswerError) else type(error).__name__
        return {"passed": False, "reason": remote.broken or text, "row": False}
    if not remote.calls:
        return {"passed": False, "reason": f"the tests never call {job['name']}", "row": True}
    return {"passed": not remote.broken, "reason": remote.broken, "row": False}


def main() -> None:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: no other process can read its memory
    with os.fdopen(3, "rb") as file:
        job = json.load(file)
    channel = Channel()
    if "tests" in job:
        os.write(6, json.dumps(tests(job, channel)).encode())
    else:
        answer(job, channel)
    os._exit(0)


if __name__ == "__main__":
    main()
