"""What people say of duels, and the bouts that a person saw outside of iterations.

A label is one person's verdict on one duel, or on one bout. A bout is what `phalanx chat` shows
side by side: two members' answers to one conversation. Bouts have a table of their own, so that
nothing that is counted or computed anew from duels ever meets them.

A person may judge a duel again: every label stays as a row, and the last one counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from phalanx.errors import ConfigError, LedgerError
from phalanx.identity import canonical_json, content_id
from phalanx.ledger.store import Ledger
from phalanx.types import Member, Message

Verdict = Literal["left", "right", "tie", "skip"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
MAX_NAME = 64
"""Longest name of a person, in characters."""

LAST_LABELS = (
    "SELECT * FROM labels WHERE number IN (SELECT max(number) FROM labels GROUP BY duel, person)"
)
"""The labels that count: of each person on each duel or bout the last one."""


@dataclass(frozen=True, slots=True)
class Label:
    """One person's verdict on one duel (or bout): ``Label("d0", "eve", "left", swapped=True)``.

    ``verdict`` is about the duel's own sides, whatever the person saw where: ``swapped`` says that
    its right response was shown first. ``skip`` is no verdict: the person would not say.
    ``seconds`` is how long the person took, None where nobody knows.
    """

    duel: str
    person: str
    verdict: Verdict
    swapped: bool = False
    seconds: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bout:
    """Two members' answers to one conversation: shown to a person, in no iteration.

    >>> ada, bob = Member("ada", "base"), Member("bob", "base")
    >>> Bout((Message("user", "2+2?"),), ada, bob, "4", "5").id == Bout(
    ...     (Message("user", "2+2?"),), ada, bob, "4", "6").id
    False
    """

    messages: tuple[Message, ...]
    left: Member
    right: Member
    left_text: str
    right_text: str

    @property
    def id(self) -> str:
        sides = (self.left.key, self.right.key, self.left_text, self.right_text)
        return content_id("bout", self.messages, *sides)


def record_label(ledger: Ledger, label: Label, bout: Bout | None = None) -> None:
    """Record one person's verdict, and the ``bout`` that it is about where there is one.

    A new bout enters here and nowhere else: ``record_label(ledger, Label(bout.id, ...), bout)``.
    ``ledger`` is open for writing, so nobody else is at work on the run. A label of the same
    person on the same duel takes the place of the one before, which stays as a row.

    Raises ConfigError for a name or verdict that is none, LedgerError for a duel that is not
    there.
    """
    person = person_named(label.person)
    if label.verdict not in VERDICTS:
        raise ConfigError(f"{label.verdict!r} is no verdict; expected {', '.join(VERDICTS)}")
    if bout is not None and bout.id != label.duel:
        raise ValueError(f"the label is about {label.duel!r}, the bout is {bout.id!r}")
    now = time.time()
    with ledger.transaction():
        if bout is not None:
            ledger.insert("bouts", _bout_row(bout, now), replace=True)
        elif not is_known(ledger, label.duel):
            raise LedgerError(f"{ledger.folder} has no duel {label.duel!r}; labels are of its own")
        ledger.insert(
            "labels",
            {
                "duel": label.duel, "person": person, "verdict": label.verdict,
                "swapped": int(label.swapped), "seconds": label.seconds, "note": label.note,
                "at": now,
            },
        )  # fmt: skip


def labels_of(ledger: Ledger, person: str | None = None) -> list[dict[str, Any]]:
    """The labels that count, in the order of writing, of one person or of all.

    Rows have the columns of the table, ``swapped`` as a truth value.
    """
    where, values = ("WHERE person = ?", (person,)) if person is not None else ("", ())
    rows = ledger.query(f"SELECT * FROM ({LAST_LABELS}) {where} ORDER BY number", values)
    return [{**row, "swapped": bool(row["swapped"])} for row in rows]


def is_known(ledger: Ledger, duel: str) -> bool:
    """Whether there is such a duel, or bout."""
    return bool(
        ledger.count("duels", "id = ?", (duel,)) or ledger.count("bouts", "id = ?", (duel,))
    )


def person_named(name: str) -> str:
    """The name of a person as it is kept: without spaces around it.

    Raises ConfigError for one that is empty, too long, or has characters that do not print.
    """
    name = name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise ConfigError(
            f"{name[:80]!r} names nobody; a person's name has 1 to {MAX_NAME} printable characters"
        )
    return name


def majority(verdicts: Sequence[str]) -> Literal["left", "right"] | None:
    """The side that more people name than the other, and than a tie; None where there is none.

    >>> majority(["left", "left", "right", "tie"]), majority(["left", "tie", "skip"])
    ('left', None)
    """
    left, right, tie = map(verdicts.count, ("left", "right", "tie"))
    if max(left, right) <= max(min(left, right), tie):
        return None
    return "left" if left > right else "right"


def _bout_row(bout: Bout, now: float) -> dict[str, Any]:
    return {
        "id": bout.id, "messages": canonical_json(bout.messages),
        "left": bout.left.name, "right": bout.right.name, "left_version": bout.left.version,
        "right_version": bout.right.version, "left_text": bout.left_text,
        "right_text": bout.right_text, "at": now,
    }  # fmt: skip
