"""Which duels a person judges, in which order and with which response first.

All of it follows from a seed and the ids of the duels, so whoever comes back goes on where they
were: what they labelled is in the ledger, and nothing else has to be remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.errors import ConfigError, LedgerError
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.labels import Label, labels_of, person_named, record_label
from phalanx.report.people import disputed_duels

DEFAULT_SAMPLE = 50
CHOICES = ("first", "second", "tie", "skip")
"""What a person may say; which side ``first`` is, only the ledger knows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose labels, and of which duels. ``members``: only duels of one of them."""

    person: str
    sample: int = DEFAULT_SAMPLE
    only_disagreed: bool = False
    members: tuple[str, ...] = ()
    iteration: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person sees of a duel: no names, and the responses in an order of their own.

    ``place`` counts from 1 to ``total``; ``said`` is what the person said of it before, "" where
    nothing.
    """

    duel: str
    place: int
    total: int
    instruction: str
    first: str
    second: str
    swapped: bool
    said: str = ""


@dataclass
class Labelling:
    """One person at work on a sample. The ledger is open for writing; so nobody else is."""

    ledger: Ledger
    person: str
    duels: tuple[str, ...]
    seed: int
    said: dict[str, str] = field(default_factory=dict)
    at: int = 0
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None

    @property
    def num_done(self) -> int:
        return sum(duel in self.said for duel in self.duels)

    @property
    def done(self) -> bool:
        return self.at >= len(self.duels)

    def shown(self) -> Shown:
        """The duel at hand. Raises IndexError after the last one."""
        duel = self.duels[self.at]
        swapped = derive_seed("label", self.seed, self.person, duel) % 2 == 1
        row = _texts(self.ledger, duel)
        texts = (row["left_text"], row["right_text"])
        first, second = reversed(texts) if swapped else texts
        self._since = self.clock()
        return Shown(
            duel=duel,
            place=self.at + 1,
            total=len(self.duels),
            instruction=row["instruction"],
            first=first,
            second=second,
            swapped=swapped,
            said=_as_seen(self.said.get(duel, ""), swapped),
        )

    def say(self, choice: str, *, seconds: float | None = None, note: str = "") -> None:
        """Record ``choice`` (:data:`CHOICES`) on the duel at hand, and go on to the next.

        The next is the next one that has no label; who went back comes so to where they were.
        ``seconds`` is how long it took, by default since :meth:`shown`; None where nobody knows.
        Raises ConfigError for another word, IndexError after the last one.
        """
        if choice not in CHOICES:
            raise ConfigError(f"{choice!r} is no answer; expected {', '.join(CHOICES)}")
        duel = self.duels[self.at]
        swapped = derive_seed("label", self.seed, self.person, duel) % 2 == 1
        sides = {"first": "right", "second": "left"} if swapped else {
            "first": "left", "second": "right"
        }  # fmt: skip
        verdict = sides.get(choice, choice)
        if seconds is None and self._since is not None:
            seconds = self.clock() - self._since
        took = None if seconds is None else round(seconds, 3)
        record_label(self.ledger, Label(duel, self.person, verdict, swapped, took, note))  # type: ignore[arg-type]
        self.said[duel], self._since = verdict, None
        self.at = next(
            (at for at in range(self.at + 1, len(self.duels)) if self.duels[at] not in self.said),
            len(self.duels),
        )

    def back(self) -> bool:
        """To the one before; False where there is none."""
        if self.at == 0:
            return False
        self.at -= 1
        return True

    def go(self, place: int) -> None:
        """To the one of that place, from 1; one further than the last is the end."""
        self.at = max(0, min(place - 1, len(self.duels)))


@contextmanager
def label(folder: Path | str, person: str, **wanted: Any) -> Iterator[Labelling]:
    """A person's sample of the run in ``folder``, to be labelled while the block runs.

    ``wanted`` has the further fields of :class:`Wanted`. The run is locked meanwhile. Raises what
    :func:`start` does, and LedgerError where there is no run, or it goes on.

    >>> with label("runs/mine", "eve", sample=20) as work:  # doctest: +SKIP
    ...     while not work.done:
    ...         shown = work.shown()
    ...         work.say("first" if len(shown.first) > len(shown.second) else "second")
    """
    path = run_ledger_path(folder)
    with Ledger(path):
        pass  # whoever opens it for writing would make one
    with Ledger(path, writable=True) as ledger:
        yield start(ledger, Wanted(person, **wanted))


def start(ledger: Ledger, wanted: Wanted) -> Labelling:
    """The sample that is wanted, at the first duel of it that the person has not labelled.

    Raises ConfigError for what cannot be wanted, all faults in one message; LedgerError where the
    run has no duel of that kind.
    """
    person = person_named(wanted.person)
    _refuse(ledger, wanted)
    seed = int(ledger.get("seed") or 0) if wanted.seed is None else wanted.seed
    duels = chosen(ledger, wanted, seed)
    said = {row["duel"]: row["verdict"] for row in labels_of(ledger, person)}
    first = next((at for at, duel in enumerate(duels) if duel not in said), len(duels))
    return Labelling(ledger, person, duels, seed, said, first)


def chosen(ledger: Ledger, wanted: Wanted, seed: int) -> tuple[str, ...]:
    """Ids of the sample, in the order in which they are shown.

    Half of it are duels on which judges disagree, or as many as there are; the rest is drawn from
    the others. Where there are too few others, the first kind fills up.
    """
    kinds: dict[bool, list[str]] = {True: [], False: []}
    able = _able(ledger, wanted)
    for duel, disputed in disputed_duels(ledger, wanted.iteration).items():
        if duel in able:
            kinds[disputed].append(duel)
    rank = {duel: derive_seed("sample", seed, duel) for found in kinds.values() for duel in found}
    for found in kinds.values():
        found.sort(key=rank.__getitem__)
    if wanted.only_disagreed:
        kinds[False] = []
    size = wanted.sample
    half = max((size + 1) // 2, size - len(kinds[False]))
    picked = kinds[True][:half]
    picked += kinds[False][: size - len(picked)]
    if not picked:
        what = "on which judges disagree " if wanted.only_disagreed else ""
        raise LedgerError(
            f"{ledger.folder} has no judged duel {what}of two different responses"
            + (" among those wanted" if wanted.members or wanted.iteration is not None else "")
            + "; look at phalanx status"
        )
    return tuple(sorted(picked, key=rank.__getitem__))


def _refuse(ledger: Ledger, wanted: Wanted) -> None:
    faults = []
    if wanted.sample < 1:
        faults.append(f"--sample {wanted.sample}: at least 1 duel")
    known = json.loads(ledger.get("pool_order") or "[]")
    faults += [
        f"--member {name}: the run has no such member; it has {', '.join(known)}"
        for name in wanted.members
        if name not in known
    ]
    last = ledger.query("SELECT max(iteration) AS n FROM duels")[0]["n"]
    if wanted.iteration is not None and not ledger.count(
        "duels", "iteration = ?", (wanted.iteration,)
    ):
        faults.append(
            f"--iteration {wanted.iteration}: it has no duel recorded; the last that has is {last}"
        )
    if faults:
        raise ConfigError(faults)


def _able(ledger: Ledger, wanted: Wanted) -> set[str]:
    """Duels whose two responses are there and differ, of the members that are wanted."""
    where, values = "1", ()
    if wanted.members:
        marks = ",".join("?" * len(wanted.members))
        # A contestant may be one of several responses of a member: ada#2.
        name = "substr({0}, 1, instr({0} || '#', '#') - 1)"
        where = f"({name.format('d.left')} IN ({marks}) OR {name.format('d.right')} IN ({marks}))"
        values = (*wanted.members, *wanted.members)
    rows = ledger.query(
        "SELECT d.id FROM duels d JOIN responses l ON l.id = d.left_response "
        "JOIN responses r ON r.id = d.right_response "
        "WHERE l.status = 'done' AND r.status = 'done' AND trim(l.text) <> trim(r.text) "
        f"AND {where}",
        values,
    )
    return {row["id"] for row in rows}


def _texts(ledger: Ledger, duel: str) -> dict[str, str]:
    return ledger.query(
        "SELECT i.text AS instruction, l.text AS left_text, r.text AS right_text FROM duels d "
        "JOIN instructions i ON i.id = d.instruction JOIN responses l ON l.id = d.left_response "
        "JOIN responses r ON r.id = d.right_response WHERE d.id = ?",
        (duel,),
    )[0]


def _as_seen(verdict: str, swapped: bool) -> str:
    """A verdict in the words of whoever saw the responses in that order."""
    sides: Sequence[str] = ("right", "left") if swapped else ("left", "right")
    return dict(zip(sides, ("first", "second"), strict=True)).get(verdict, verdict)
