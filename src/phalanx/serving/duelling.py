"""Duels that a person holds in a chat: two answers to one conversation, blind, side by side.

Both answer the same conversation, and who is A is drawn anew for every turn. Names are told after
the verdict; the conversation then goes on, for both, with the answer that was chosen (after a tie
or a skip with A's, which chance put there). With a ledger the verdict becomes a row of it: a label
of this person on a bout (:mod:`phalanx.ledger.labels`), which no reputation is computed from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from phalanx.errors import ConfigError
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger
from phalanx.ledger.labels import Bout, Label, Verdict, record_label
from phalanx.serving.chatting import Chat, Reply
from phalanx.serving.collective import COLLECTIVE
from phalanx.types import Member, Message

if TYPE_CHECKING:
    from phalanx.serving.desk import Desk

CHOICES = {
    "a": "a", "1": "a", "left": "a",
    "b": "b", "2": "b", "right": "b",
    "tie": "tie", "t": "tie", "0": "tie", "=": "tie",
    "skip": "skip", "s": "skip",
}  # fmt: skip
"""What a person may type of a duel, and what it means."""


@dataclass(frozen=True, slots=True)
class Round:
    """Two answers to ``messages``. ``left`` is the contestant named first, wherever it is shown;
    ``swapped`` says that its answer is B."""

    messages: tuple[Message, ...]
    left: Reply
    right: Reply
    swapped: bool
    num_dropped: int = 0
    began: float = 0.0

    @property
    def a(self) -> Reply:
        return self.right if self.swapped else self.left

    @property
    def b(self) -> Reply:
        return self.left if self.swapped else self.right

    @property
    def is_same(self) -> bool:
        """Both wrote the same: there is nothing to choose."""
        return self.a.text.strip() == self.b.text.strip()

    def verdict(self, choice: str) -> Verdict:
        """What ``a``, ``b``, ``tie`` or ``skip`` says of the contestants' own sides.

        >>> from phalanx.engines.orders import Written
        >>> ada, bob = (Reply(name, Written(), name) for name in ("ada", "bob"))
        >>> Round((), ada, bob, swapped=True).verdict("a")
        'right'
        """
        if choice in ("tie", "skip"):
            return choice  # type: ignore[return-value]
        return "right" if (choice == "a") == self.swapped else "left"


@dataclass
class Duelling:
    """A chat of which every turn is a duel. ``names``: two contestants, or more, of whom two are
    drawn for every turn. ``ledger`` is open for writing, or None where nothing is to be recorded.
    """

    chat: Chat
    names: tuple[str, ...]
    person: str = ""
    ledger: Ledger | None = None
    clock: Callable[[], float] = time.monotonic
    _last: tuple[dict[str, Any], Label | None] | None = field(default=None, init=False)
    """The last verdict: as the chat keeps it, and as it was recorded."""

    def pair(self) -> tuple[str, str]:
        """The contestants of the turn at hand; asked again, it has the same."""
        pairs = list(combinations(dict.fromkeys(self.names), 2))
        return pairs[derive_seed(self.chat.seed, 0, "pair", self.chat.number) % len(pairs)]

    def hear(self) -> tuple[list[Reply], int]:
        """Both answers to the turn at hand, up to one that failed: see :meth:`Chat.hear`.

        Nothing is shown while it is written: speed would tell who is who.
        """
        return self.chat.hear(self.pair())

    def round(self, replies: Sequence[Reply], num_dropped: int = 0) -> Round:
        """The two answers as a person is shown them, from now on."""
        chat, (left, right) = self.chat, replies
        place = (left.name, right.name, chat.number, chat.attempt)
        swapped = derive_seed(chat.seed, 0, "sides", *place) % 2 == 1
        return Round(chat.messages(), left, right, swapped, num_dropped, self.clock())

    def decide(self, at: Round, choice: str, why: str = "") -> bool:
        """Take ``a``, ``b``, ``tie`` or ``skip`` for an answer; whether it was recorded.

        Two answers that are the same are no duel: nothing is recorded of them. Raises ConfigError
        for another word.
        """
        if choice not in CHOICES.values():
            raise ConfigError(f"{choice!r} is no verdict; expected a, b, tie or skip")
        seconds = round(self.clock() - at.began, 3)
        self.chat.take(at.b if choice == "b" else at.a)
        if at.is_same:
            return False
        kept = {
            "turn": self.chat.number + 1, "a": at.a.name, "b": at.b.name,
            "text_a": at.a.text, "text_b": at.b.text, "verdict": choice, "why": why,
        }  # fmt: skip
        self.chat.duels.append(kept)
        self._last = (kept, None)
        if self.ledger is None:
            return False
        left, right = (self._contestant(reply.name) for reply in (at.left, at.right))
        bout = Bout(at.messages, left, right, at.left.text, at.right.text)
        label = Label(bout.id, self.person, at.verdict(choice), at.swapped, seconds, why)
        record_label(self.ledger, label, bout)
        self._last = (kept, label)
        return True

    def take_back(self) -> None:
        """Make the last verdict a ``skip``, recorded or not; the conversation stays as it is.

        Nobody is asked again: the names were told. Raises ConfigError where there is no verdict.
        """
        if self._last is None:
            raise ConfigError("there is no verdict to take back")
        (kept, label), self._last = self._last, None
        kept.update(verdict="skip", why="taken back")
        if label is not None and self.ledger is not None:
            record_label(self.ledger, replace(label, verdict="skip", note="taken back"))

    def _contestant(self, name: str) -> Member:
        """Whoever answered, for the record; a collective is as new as its newest member."""
        desk = self.chat.desk
        if name != COLLECTIVE or desk.together is None:
            return desk.member(name)
        return Member(COLLECTIVE, "", version=max(one.version for one in desk.together.members))


def verdict_of(text: str) -> tuple[str, str] | None:
    """A verdict and why, from what was typed; None where it is no verdict.

    >>> verdict_of("B, it is shorter"), verdict_of("  tie"), verdict_of("better?")
    (('b', 'it is shorter'), ('tie', ''), None)
    """
    word, _, why = text.strip().partition(" ")
    choice = CHOICES.get(word.rstrip(",.:;").lower())
    return None if choice is None else (choice, why.strip())


def contestants(desk: Desk, wanted: Sequence[str]) -> tuple[str, ...]:
    """Who duels: those that are wanted, or all members. Raises ConfigError, all faults in one."""
    faults = []
    for name in dict.fromkeys(wanted):
        try:
            desk.about(name)
        except ConfigError as error:
            faults += error.faults
    chosen = tuple(dict.fromkeys(wanted or desk.members))
    if not faults and len(chosen) < 2:
        faults.append(f"a duel needs two different members, got {', '.join(chosen) or 'none'}")
    if faults:
        raise ConfigError([f"--duel: {fault}" for fault in faults])
    return chosen
