"""What `phalanx chat` reads and shows: a terminal, a pipe, or JSON lines."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from phalanx.cli.base import err
from phalanx.cli.talking import interruptible
from phalanx.report.words import harmless

if TYPE_CHECKING:
    from phalanx.serving.chatting import Reply
    from phalanx.serving.duelling import Round

COMMAND = re.compile(r"/([a-z]+)(?:[ ]+(.*))?")
"""A message that is one: a word behind a stroke, and what follows in the same line."""
SIDE_BY_SIDE = 72
"""Columns of a terminal from which on two answers stand side by side."""
_PASTE_S = 0.02
"""A pasted line is there at once; nobody types one as fast."""


class Typed:
    """Messages as they are typed, pasted or piped; None where the input ends.

    A line that ends in a backslash goes on in the next one. In a terminal, lines that are pasted
    are one message, but for a command, which is its line; KeyboardInterrupt is raised on Ctrl-C.
    With ``as_json`` a line may also be a JSON string, which can have line ends in it.
    """

    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
        if self.is_terminal:
            with suppress(ImportError):
                import readline  # noqa: F401  # line editing, history, and whole pastes
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")

    def message(self, prompt: str) -> str | None:
        lines: list[str] = []
        while True:
            line = self.line("… " if lines else prompt)
            if line is None:
                return "\n".join(lines) if lines else None
            goes_on = _goes_on(line)
            lines.append(line[:-1] if goes_on else line)
            if goes_on:
                continue
            is_command = len(lines) == 1 and COMMAND.fullmatch(lines[0].rstrip())
            if is_command or not self._more_is_there():
                return "\n".join(lines)

    def line(self, prompt: str) -> str | None:
        """One line, without its end."""
        if self.is_terminal:
            try:
                with interruptible():
                    return input(prompt)
            except EOFError:
                return None
        line = sys.stdin.readline()
        if not line:
            return None
        line = line.rstrip("\r\n")
        if self._as_json and line.startswith('"'):
            with suppress(ValueError):
                text = json.loads(line)
                return text if isinstance(text, str) else line
        return line

    def _more_is_there(self) -> bool:
        """Whether another line waits already: the rest of what was pasted."""
        return self.is_terminal and bool(select.select([sys.stdin], [], [], _PASTE_S)[0])


def _goes_on(line: str) -> bool:
    """Whether a line ends in a backslash that is not itself escaped by one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


class Terminal:
    """Answers while they are written, duels side by side, and remarks in dim letters."""

    prompt = "> "

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._at_start = True
        if hasattr(sys.stdout, "reconfigure"):  # models write what a locale may not have
            sys.stdout.reconfigure(errors="replace")

    def begins(self, name: str) -> None:
        self._write(f"{name}: ")

    def piece(self, text: str) -> None:
        self._write(text)

    def answer(self, reply: Reply, seconds: float, num_dropped: int) -> None:
        """The end of an answer: what of it was not shown yet, and remarks."""
        if not reply.seen:
            self._end_line()
            if reply.shown:
                self.note("what was shown is not the answer; this is the whole of it")
            self._write(reply.text)
        self._end_line()
        self._remarks(reply, seconds, num_dropped)

    def no_answer(self, why: str) -> None:
        self._end_line()
        self.note(f"no answer: {why} (not remembered; /retry asks again)")

    def stopped(self) -> None:
        self._end_line()
        self.note("stopped; this turn is not remembered, /retry asks again")

    def duel(self, at: Round) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Rich takes every dumb terminal for 80 columns wide.
        width, height = shutil.get_terminal_size()
        console = Console(highlight=False, width=width, height=height)
        _dropped(self, at.num_dropped)
        if console.width >= SIDE_BY_SIDE and not at.is_same:
            table = Table.grid(expand=True, padding=(0, 2, 1, 0))
            for _ in "AB":
                table.add_column(ratio=1, overflow="fold")
            table.add_row("A", "B")
            table.add_row(*(Text(_safe(reply.text)) for reply in (at.a, at.b)))
            console.print(table)
            return
        for line in _one_after_another(at):
            self._write(line + "\n")

    def verdict(self, at: Round, choice: str, recorded: bool) -> None:
        self.note(_revealed(at, recorded))

    def note(self, text: str) -> None:
        """What has to be heard."""
        self._end_line()
        style = None if "NO_COLOR" in os.environ else "dim"
        err.print(harmless(text), style=style, markup=False, highlight=False, soft_wrap=True)

    def hint(self, text: str) -> None:
        """What is left out with --quiet."""
        if not self._quiet:
            self.note(text)

    def _remarks(self, reply: Reply, seconds: float, num_dropped: int) -> None:
        _dropped(self, num_dropped)
        if reply.written.finish_reason == "length":
            self.note("cut off at the limit of tokens; raise --max-new-tokens for longer answers")
        tokens = reply.written.num_completion_tokens
        self.hint(f"{tokens} tokens, {seconds:.1f} s" if tokens else f"{seconds:.1f} s")

    def _write(self, text: str) -> None:
        sys.stdout.write(harmless(text))
        sys.stdout.flush()
        if text:
            self._at_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._at_start:
            self._write("\n")


class _Whole:
    """What is written is shown when it is whole, and nobody is prompted."""

    prompt = ""

    def begins(self, name: str) -> None:
        pass

    def piece(self, text: str) -> None:
        pass


class Plain(_Whole, Terminal):
    """Answers as whole lines on the standard output, everything else on the standard error."""

    def answer(self, reply: Reply, seconds: float, num_dropped: int) -> None:
        _dropped(self, num_dropped)
        self._write(reply.text)
        self._end_line()
        if reply.written.finish_reason == "length":
            self.note("cut off at the limit of tokens; raise --max-new-tokens for longer answers")

    def no_answer(self, why: str) -> None:
        self.note(f"no answer: {why}")

    def duel(self, at: Round) -> None:
        _dropped(self, at.num_dropped)
        for line in _one_after_another(at):
            self._write(line + "\n")

    def hint(self, text: str) -> None:
        pass


class JsonLines(_Whole):
    """One JSON object for everything that happens, on the standard output."""

    def answer(self, reply: Reply, seconds: float, num_dropped: int) -> None:
        written = reply.written
        self._say(
            "answer",
            **{"with": reply.name},
            text=reply.text,
            truncated=written.finish_reason == "length",
            num_prompt_tokens=written.num_prompt_tokens,
            num_completion_tokens=written.num_completion_tokens,
            num_dropped_turns=num_dropped,
            seconds=round(seconds, 3),
        )

    def no_answer(self, why: str) -> None:
        self._say("no_answer", why=why)

    def stopped(self) -> None:
        self._say("stopped")

    def duel(self, at: Round) -> None:
        self._say(
            "duel", a=at.a.text, b=at.b.text, same=at.is_same, num_dropped_turns=at.num_dropped
        )

    def verdict(self, at: Round, choice: str, recorded: bool) -> None:
        self._say("verdict", verdict=choice, a=at.a.name, b=at.b.name, recorded=recorded)

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def hint(self, text: str) -> None:
        pass

    def _say(self, event: str, **known: Any) -> None:
        # Escapes keep whatever would steer a terminal out of the line.
        print(json.dumps({"event": event, **known}, ensure_ascii=True), flush=True)


Screen = Terminal | JsonLines


def _dropped(screen: Screen, count: int) -> None:
    if count:
        screen.note(
            f"the conversation no longer fits: its oldest {count} turns were left out (questions "
            "and answers alike)"
        )


def _one_after_another(at: Round) -> list[str]:
    """Answers are indented, headings are not: no answer can look as if the other one began."""
    if at.is_same:
        return ["Both", *_indented(at.a.text), ""]
    return ["A", *_indented(at.a.text), "", "B", *_indented(at.b.text), ""]


def _safe(text: str) -> str:
    return harmless(text.replace("\r\n", "\n"))


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in _safe(text).split("\n")]


def _revealed(at: Round, recorded: bool) -> str:
    noted = "; recorded" if recorded else ""
    return f"A was {at.a.name}, B was {at.b.name}{noted}"
