"""A chat: the turns of one person, and answers of members or of the collective to them.

Nothing here knows a terminal: what is shown while it is written goes to a callback, and everything
else that a person has to hear is in the :class:`Reply`.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.asking import stop_on_interrupt
from phalanx.collective.ownwords import answer_alone
from phalanx.engines.orders import Written
from phalanx.engines.streaming import Shown, answer_so_far
from phalanx.errors import ConfigError, Interrupted
from phalanx.identity import derive_seed
from phalanx.sources import clean_text
from phalanx.types import Message, Sampling

if TYPE_CHECKING:
    from phalanx.serving.desk import Desk

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one turn. ``text`` is the answer, without reasoning before it; where there is
    none, ``why`` says so. ``shown`` is what the callback got of it.
    """

    name: str
    written: Written
    text: str = ""
    why: str = ""
    shown: str = ""

    @property
    def seen(self) -> bool:
        """Whether what was shown is the answer."""
        return self.shown == self.text


@dataclass
class Chat:
    """A conversation. ``turns`` has what whoever answers is shown, ``dropped`` what came before it
    and no longer fits; both begin with a user's turn and end with an answer. ``answered_by`` names
    whoever wrote each answer, in order, those that were dropped included.
    """

    desk: Desk
    sampling: Sampling
    seed: int
    system: str = ""
    turns: tuple[Message, ...] = ()
    dropped: tuple[Message, ...] = ()
    answered_by: tuple[str, ...] = ()
    duels: list[dict[str, Any]] = field(default_factory=list)
    """What was said of its duels (:mod:`phalanx.serving.duelling`), for its line in a file."""
    last: str = ""
    """The user's last turn, answered or not: what is asked again."""
    attempt: int = 0
    """How often it was asked again."""
    _answered: bool = False

    @property
    def number(self) -> int:
        """How many turns of the user went before the last one."""
        return len(self.answered_by) - self._answered

    def reset(self) -> None:
        """Begin anew; the system prompt stays."""
        self.turns, self.dropped, self.answered_by = (), (), ()
        self.last, self.attempt, self._answered, self.duels = "", 0, False, []

    def ask(self, text: str) -> None:
        """The user's next turn; :meth:`hear` has it answered."""
        self.last, self.attempt, self._answered = clean_text(text), 0, False

    def ask_again(self) -> None:
        """The last turn once more, by other seeds; its answer is taken back. Raises ConfigError
        where nothing was said yet."""
        if not self.last:
            raise ConfigError("there is nothing to ask again yet")
        if self._answered:
            self.turns, self.answered_by = self.turns[:-2], self.answered_by[:-1]
        self.attempt, self._answered = self.attempt + 1, False
        self.duels = [one for one in self.duels if one["turn"] <= self.number]

    def messages(self) -> tuple[Message, ...]:
        """The conversation as it is put to whoever answers next, up to the last user's turn."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, *self.turns, Message("user", self.last))

    def hear(self, names: Sequence[str], show: Show | None = None) -> tuple[list[Reply], int]:
        """An answer of each to the same conversation, and how many of its turns had to go for it.

        Where the conversation is too long for one of them, its oldest question and answer are
        dropped, for all of them and for good, until it fits or only the last turn is left. Nothing
        is remembered before :meth:`take`. Ctrl-C, or ``show`` by raising Interrupted, ends the
        answers: Interrupted is raised. ``show`` gets each piece of an answer, no reasoning.
        """
        before = (self.turns, self.dropped)
        try:
            with stop_on_interrupt() as stopped:
                while True:
                    replies = self._heard(names, show, stopped)
                    if replies[-1].written.error is None or not self._shorten(replies[-1]):
                        break
        except BaseException:
            self.turns, self.dropped = before
            raise
        num_dropped = len(before[0]) - len(self.turns)
        if any(reply.why for reply in replies):
            self.turns, self.dropped = before
        return replies, num_dropped

    def take(self, reply: Reply) -> None:
        """The answer with which the conversation goes on."""
        answer = Message("assistant", reply.text)
        self.turns = (*self.turns, Message("user", self.last), answer)
        self.answered_by = (*self.answered_by, reply.name)
        self._answered = True

    def row(self) -> dict[str, Any]:
        """The conversation as a line of a file: all of it, in chat form."""
        system = (Message("system", self.system),) if self.system else ()
        turns = (*system, *self.dropped, *self.turns)
        row: dict[str, Any] = {
            "messages": [{"role": turn.role, "content": turn.content} for turn in turns],
            "answered_by": list(self.answered_by),
        }
        if self.dropped:
            row["num_dropped_turns"] = len(self.dropped)
        if self.duels:
            row["duels"] = self.duels
        return row

    def _heard(
        self, names: Sequence[str], show: Show | None, stopped: Callable[[], bool]
    ) -> list[Reply]:
        """Replies up to the first that is a failure, or of all."""
        replies: list[Reply] = []
        for name in names:
            replies.append(self._one(name, show, stopped))
            if replies[-1].written.error is not None:
                break
        return replies

    def _one(self, name: str, show: Show | None, stopped: Callable[[], bool]) -> Reply:
        heard: list[str] = []
        shown = Shown(show or (lambda piece: None))

        def hear(piece: str, _: object) -> None:
            if stopped():
                raise Interrupted("the answer was stopped")
            heard.append(piece)
            shown.up_to(answer_so_far("".join(heard)))

        seed = derive_seed(self.seed, 0, "chat", name, self.number, self.attempt)
        written = self.desk.write(
            name,
            self.messages(),
            self.sampling,
            seed,
            fits=not self.turns,  # the last turn alone: a shorter answer is better than none
            hear=hear,
            given_up=stopped,
        )
        if stopped():
            raise Interrupted("the answer was stopped")
        if written.error is not None:
            why = f"{written.error.kind}: {written.error.message}"
            return Reply(name, written, why=why, shown=shown.text)
        text = answer_alone(written.text)
        if not text.strip():
            why = "nothing but reasoning" if written.text.strip() else "nothing was written"
            return Reply(name, written, why=why, shown=shown.text)
        shown.up_to(text)
        return Reply(name, written, text, shown=shown.text)

    def _shorten(self, reply: Reply) -> bool:
        """Drop the oldest question and answer where a reply says that it does not fit."""
        error = reply.written.error
        if error is None or error.kind != "too_long" or not self.turns:
            return False
        self.dropped, self.turns = (*self.dropped, *self.turns[:2]), self.turns[2:]
        return True


@dataclass
class Transcript:
    """A file of conversations: a JSON object a line, the last one as far as it has come.
    Lines that were there before stay. Use :func:`open_transcript`.
    """

    path: Path
    _file: int
    _start: int
    _end: int = field(init=False)

    def __post_init__(self) -> None:
        self._end = self._start

    def write(self, row: dict[str, Any]) -> None:
        """The conversation as it is now, in the place of what it was; whole after every turn."""
        line = json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n"
        at, left = self._start, line
        while left:
            done = os.pwrite(self._file, left, at)
            at, left = at + done, left[done:]
        os.ftruncate(self._file, self._start + len(line))
        self._end = self._start + len(line)

    def next(self) -> None:
        """What comes is another conversation."""
        self._start = self._end

    def close(self) -> None:
        os.close(self._file)


def open_transcript(path: Path | str) -> Transcript:
    """Write below what a file of conversations has. Raises ConfigError for what is no such file,
    cannot be written, or is being written by another chat.
    """
    path = Path(path).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise ConfigError(f"--save {path}: {error.strerror}; name a file") from None
    try:
        _refuse_file(path, file)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            size += os.pwrite(file, b"\n", size)
    except BaseException:
        os.close(file)
        raise
    return Transcript(path, file, size)


def _refuse_file(path: Path, file: int) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise ConfigError(f"--save {path}: it is no file; name one that ends in .jsonl")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError(
            f"--save {path}: it is being written by a chat; name another file"
        ) from None
    with path.open("rb") as lines:
        last = b""
        for line in lines:
            last = line.strip() or last
    try:
        good = not last or isinstance(json.loads(last), dict)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"--save {path}: its last line is no JSON object, so it holds something else than "
            "conversations; name another file"
        )
