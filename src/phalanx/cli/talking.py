"""The mixture in a terminal: an answer that is shown while it is written, and a chat.

Standard output has the answer and nothing else. Texts of models are not trusted with a terminal:
control characters are replaced there, and kept where the output goes to a file or a pipe.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.cli.base import err
from phalanx.errors import Interrupted, PhalanxError
from phalanx.identity import content_id
from phalanx.types import Message, Response

if TYPE_CHECKING:
    from phalanx.collective.mixture import Mixed
    from phalanx.config.schema import Config
    from phalanx.mixing import Chat, Mixer


def answer(config: Config, folder: Path, prompt: str, show_proposals: bool, quiet: bool) -> None:
    """Answer one prompt. Raises PhalanxError where there is no answer, with the reason."""
    from phalanx.mixing import open_mixer
    from phalanx.progress import for_terminal

    turns = (Message("user", prompt),)
    progress = for_terminal(quiet=quiet)
    with open_mixer(config, folder, inputs=content_id("mix", turns), progress=progress) as mixer:
        _note(quiet, f"Asking {mixer.title}")
        screen = _Screen(mixer)
        # Half an answer in a file or a pipe could not be taken back.
        mixed = mixer.answer(turns, screen.show if screen.is_terminal else None)
        screen.end(mixed, show_proposals, quiet)
        mixer.place.ledger.put("finished", "yes")
    if mixed.response is None:
        raise PhalanxError(f"no answer: {mixed.reason}")


def chat(config: Config, folder: Path, show_proposals: bool, quiet: bool) -> None:
    """Read turns and answer them until /exit or the end of the input."""
    from phalanx.mixing import Chat, open_mixer
    from phalanx.progress import for_terminal

    with suppress(ImportError):
        import readline  # noqa: F401  # line editing and history for input()
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")
    inputs = content_id("chat")  # what is said is no part of it: another chat may go there, too
    with open_mixer(config, folder, inputs=inputs, progress=for_terminal(quiet=quiet)) as mixer:
        talk = Chat(mixer)
        _note(quiet, f"Asking {mixer.title}. /new begins anew, /exit ends, Ctrl-C ends an answer.")
        for text in _turns():
            if text == "/new":
                talk.new()
                _note(quiet, "A new conversation.")
            elif text.startswith("/"):
                _note(False, f"{text.split()[0]} is not known; there are /new and /exit")
            else:
                _chat_turn(talk, mixer, text, show_proposals, quiet)


def _turns() -> Iterator[str]:
    """What is typed, until /exit or the end of the input; Ctrl-C at the prompt ends it, too."""
    while True:
        try:
            with interruptible():
                text = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text == "/exit":
            return
        if text:
            yield text


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts the reading of a line, which otherwise waits for its end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _chat_turn(talk: Chat, mixer: Mixer, text: str, show_proposals: bool, quiet: bool) -> None:
    screen = _Screen(mixer)
    try:
        mixed = talk.say(text, screen.show)
    except Interrupted:
        screen.stop()
        _note(False, "(stopped; this turn is not remembered)")
        return
    screen.end(mixed, show_proposals, quiet)
    if mixed.response is None:
        _note(False, f"(no answer: {mixed.reason}; this turn is not remembered)")


class _Screen:
    """One answer on the terminal: what was shown, and what it took."""

    def __init__(self, mixer: Mixer) -> None:
        self._mixer = mixer
        self._before = mixer.spent()
        self._began = time.monotonic()
        self._shown: list[str] = []
        self.is_terminal = sys.stdout.isatty()

    def show(self, piece: str) -> None:
        self._shown.append(piece)
        self._write(piece)

    def _write(self, text: str) -> None:
        sys.stdout.write(printable(text) if self.is_terminal else text)
        sys.stdout.flush()

    def stop(self) -> None:
        if self._shown:
            self._write("\n")

    def end(self, mixed: Mixed, show_proposals: bool, quiet: bool) -> None:
        """Write what was not shown yet, and the notes."""
        from phalanx.mixing import left_out_why

        text = mixed.response.text or "" if mixed.response else ""
        shown = "".join(self._shown)
        if mixed.response is not None and shown != text:
            if shown:
                self._write("\n")
                _note(False, f"({_why_again(mixed, mixed.response)}; this is the whole answer)")
            self._write(text)
        if (text or shown) and not (text or shown).endswith("\n"):
            self._write("\n")
        if mixed.response is not None and mixed.response.truncated:
            _note(quiet, "(cut off at mixture.aggregate.max_new_tokens)")
        if show_proposals:
            for proposal in mixed.proposals:
                name = f"{proposal.member}, layer {proposal.layer}, sample {proposal.sample + 1}"
                _note(False, f"--- {name}\n{left_out_why(proposal) or proposal.text}")
        for proposal in mixed.proposals:
            if why := left_out_why(proposal):
                name = f"{proposal.member} (layer {proposal.layer})"
                _note(quiet, f"Left out: {name}: {why}")
        seconds = time.monotonic() - self._began
        _note(quiet, f"{self._mixer.spent() - self._before}, {seconds:.1f} s")


def _why_again(mixed: Mixed, response: Response) -> str:
    from phalanx.engines.http_stream import SHOWN_OTHERWISE

    if mixed.reasoned or SHOWN_OTHERWISE in response.flags:
        return "what was shown was not the answer alone: the model was still reasoning"
    return "the stream broke off"


def _note(quiet: bool, text: str) -> None:
    """A line beside the answer, on standard error."""
    if not quiet:
        text = printable(text) if err.is_terminal else text
        err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def printable(text: str) -> str:
    """The text without characters that command a terminal.

    >>> printable("a\\x1b[2Jb\\tc\\n")
    'a�[2Jb\\tc\\n'
    """
    return "".join(
        "\ufffd" if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 else c for c in text
    )
