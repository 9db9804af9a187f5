"""What people said of duels, beside what the council and every judge said of the same ones.

The sample that a person sees has more duels on which judges disagree than the run has, so the
share of agreement over what was seen is not that over the run. Both kinds are shown apart, and
joined with the weights that they have in the run (post-stratification).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from phalanx.ledger import Ledger
from phalanx.ledger.labels import labels_of, majority
from phalanx.statistics import Interval, bootstrap, cohen_kappa, krippendorff_alpha, wilson
from phalanx.statistics.shares import wilson_of_share

COUNCIL = "the council"
EVERYBODY = "most people"
"""Stands for what most of the people say, where there are several."""
MIN_KAPPA = 10
"""Duels that two have to judge before kappa says anything."""
_DRAWS = 500


@dataclass(frozen=True, slots=True)
class Share:
    """``equal`` of ``n``, with a 95 % interval; ``value`` is None where there is nothing."""

    equal: int
    n: int

    @property
    def value(self) -> float | None:
        return self.equal / self.n if self.n else None

    @property
    def interval(self) -> Interval:
        return wilson(self.equal, self.n)


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa over left, right and tie, with its interval; None where it does not exist:
    of fewer than :data:`MIN_KAPPA` duels, or where one of the two always said the same."""

    n: int
    value: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often ``who`` (the council, a judge, a person) and ``person`` name the same side.

    ``share`` is over the duels of which both name one; ``kappa`` over all that both labelled, ties
    among them. ``disputed`` and ``clear`` are the share where judges disagreed, and where they did
    not. ``over_run`` is that of all of the run's duels, estimated, with its interval.
    """

    who: str
    person: str
    share: Share
    kappa: Kappa
    disputed: Share
    clear: Share
    over_run: tuple[float, Interval] | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """One person's labels: how many name a side, are ties, were skipped; the median time each took;
    how often the response that was shown first was the better one."""

    name: str
    num_labels: int
    num_sided: int
    num_ties: int
    num_skipped: int
    seconds: float | None
    first: Share


@dataclass(frozen=True, slots=True)
class BoutLine:
    """A member's bouts (blind, beside another member, in a chat), as people judged them.

    ``member`` is its key (``ada@2``) where versions of it were in bouts, for they differ.
    """

    member: str
    won: int
    lost: int
    tied: int


@dataclass(frozen=True, slots=True)
class People:
    """``council`` has a line for each person, ``judges`` one for each judge against what most
    people say, ``between`` one for each two persons; ``alpha`` is Krippendorff's of all."""

    persons: tuple[Person, ...] = ()
    council: tuple[Agreement, ...] = ()
    judges: tuple[Agreement, ...] = ()
    between: tuple[Agreement, ...] = ()
    alpha: float | None = None
    bouts: tuple[BoutLine, ...] = ()


def disputed_duels(ledger: Ledger, iteration: int | None = None) -> dict[str, bool]:
    """Duel -> whether its judges disagree, for every duel that judges decided or left a tie.

    They agree where at least one could be read, and all that could name the same side.
    """
    where, values = ("", ()) if iteration is None else ("AND o.iteration = ?", (iteration,))
    signs: dict[str, set[int]] = {
        row["duel"]: set()
        for row in ledger.query(
            "SELECT o.duel FROM outcomes o JOIN duels d ON d.id = o.duel "
            "WHERE o.status IN ('decided', 'tie', 'no_quorum') AND o.num_judges > 0 "
            f"{where} ORDER BY d.iteration, d.position",
            values,
        )
    }
    for duel, _, sign in _signs(ledger):
        if duel in signs:
            signs[duel].add(sign)
    return {duel: len(found) != 1 or 0 in found for duel, found in signs.items()}


def _signs(ledger: Ledger) -> Iterator[tuple[str, str, int]]:
    """(duel, judge, 1 where left is better, -1 for right, 0 for a tie) of every readable one."""
    for row in ledger.iterate(
        "SELECT duel, judge, (score_left > score_right) - (score_left < score_right) AS sign "
        "FROM judgments WHERE score_left IS NOT NULL AND score_right IS NOT NULL"
    ):
        yield row["duel"], row["judge"], row["sign"]


def people(ledger: Ledger, seed: int = 0) -> People | None:
    """None where nobody said anything."""
    rows = labels_of(ledger)
    if not rows:
        return None
    bouts = {row["id"]: row for row in ledger.query("SELECT * FROM bouts")}
    of_duels = [row for row in rows if row["duel"] not in bouts]
    said: dict[str, dict[str, str]] = defaultdict(dict)
    for row in of_duels:
        if row["verdict"] != "skip":
            said[row["person"]][row["duel"]] = row["verdict"]
    most = _most(said)
    disputed = disputed_duels(ledger) if of_duels else {}
    council = _council(ledger)
    one = _Beside(disputed, seed)
    named = dict(said) if len(said) < 2 else {**said, EVERYBODY: most}
    judges = _judges(ledger) if of_duels else {}
    target = EVERYBODY if len(said) > 1 else next(iter(said), EVERYBODY)
    names = sorted(said)
    return People(
        persons=tuple(_person(name, rows) for name in sorted({row["person"] for row in rows})),
        council=tuple(
            one.line(COUNCIL, name, council, theirs, whole=True) for name, theirs in named.items()
        ),
        judges=tuple(one.line(name, target, judges[name], most) for name in sorted(judges)),
        between=tuple(
            one.line(a, b, said[a], said[b])
            for place, a in enumerate(names) for b in names[place + 1 :]
        ),
        alpha=_alpha(said),
        bouts=_bout_lines(rows, bouts),
    )  # fmt: skip


@dataclass(frozen=True)
class _Beside:
    """Two sets of labels (duel -> left, right or tie) side by side."""

    disputed: Mapping[str, bool]
    seed: int

    def line(
        self,
        who: str,
        person: str,
        ours: Mapping[str, str],
        theirs: Mapping[str, str],
        *,
        whole: bool = False,
    ) -> Agreement:
        both = [duel for duel in theirs if duel in ours]
        sided = [duel for duel in both if "tie" not in (ours[duel], theirs[duel])]
        equal = {duel: ours[duel] == theirs[duel] for duel in sided}
        parts = {
            which: Share(
                sum(equal[duel] for duel in sided if self.disputed.get(duel) is which),
                sum(self.disputed.get(duel) is which for duel in sided),
            )
            for which in (True, False)
        }
        return Agreement(
            who=who,
            person=person,
            share=Share(sum(equal.values()), len(sided)),
            kappa=self._kappa([(ours[duel], theirs[duel]) for duel in both]),
            disputed=parts[True],
            clear=parts[False],
            over_run=self._over_run(parts, ours) if whole else None,
        )

    def _kappa(self, labels: Sequence[tuple[str, str]]) -> Kappa:
        def kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
            return cohen_kappa([a for a, _ in pairs], [b for _, b in pairs])

        # Beside somebody who says one thing alone, kappa is 0 however often both agree.
        said = [len(set(side)) for side in zip(*labels, strict=True)]
        if len(labels) < MIN_KAPPA or min(said) < 2:
            return Kappa(len(labels))
        value, interval = bootstrap(labels, kappa, seed=self.seed, draws=_DRAWS)
        return Kappa(len(labels), value, interval)

    def _over_run(
        self, parts: Mapping[bool, Share], ours: Mapping[str, str]
    ) -> tuple[float, Interval] | None:
        """Weighted by how many duels of each kind have a side in the run (Cochran, 5A.9).

        The interval is Wilson's with Kish's effective number, 1 / sum(weight^2 / n).
        """
        sided = Counter(self.disputed[duel] for duel, verdict in ours.items()
                        if verdict != "tie" and duel in self.disputed)  # fmt: skip
        total = sum(sided.values())
        kinds = [which for which in (True, False) if sided[which]]
        if not kinds or any(not parts[which].n for which in kinds):
            return None
        weights = {which: sided[which] / total for which in kinds}
        share = math.fsum(w * parts[k].equal / parts[k].n for k, w in weights.items())
        effective = 1 / math.fsum(w * w / parts[k].n for k, w in weights.items())
        return share, wilson_of_share(share, effective)  # type: ignore[arg-type]


def _most(said: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What most persons say of each duel; a tie where that is no side."""
    verdicts: dict[str, list[str]] = defaultdict(list)
    for theirs in said.values():
        for duel, verdict in theirs.items():
            verdicts[duel].append(verdict)
    return {duel: majority(found) or "tie" for duel, found in verdicts.items()}


def _council(ledger: Ledger) -> dict[str, str]:
    rows = ledger.query(
        "SELECT duel, coalesce(winner, 'tie') AS verdict FROM outcomes "
        "WHERE status IN ('decided', 'tie') AND num_judges > 0"
    )
    return {row["duel"]: row["verdict"] for row in rows}


def _judges(ledger: Ledger) -> dict[str, dict[str, str]]:
    words = {1: "left", -1: "right", 0: "tie"}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for duel, judge, sign in _signs(ledger):
        found[judge][duel] = words[sign]
    return found


def _alpha(said: Mapping[str, Mapping[str, str]]) -> float | None:
    duels = sorted({duel for theirs in said.values() for duel in theirs})
    if sum(sum(d in theirs for theirs in said.values()) > 1 for d in duels) < 2:
        return None
    return krippendorff_alpha([[theirs.get(duel) for duel in duels] for theirs in said.values()])


def _person(name: str, rows: Sequence[Mapping[str, Any]]) -> Person:
    own = [row for row in rows if row["person"] == name]
    kinds = Counter(row["verdict"] for row in own)
    sided = [row for row in own if row["verdict"] in ("left", "right")]
    first = sum((row["verdict"] == "right") == row["swapped"] for row in sided)
    times = [row["seconds"] for row in own if row["seconds"] is not None]
    return Person(
        name=name,
        num_labels=len(own),
        num_sided=len(sided),
        num_ties=kinds["tie"],
        num_skipped=kinds["skip"],
        seconds=median(times) if times else None,
        first=Share(first, len(sided)),
    )


def _bout_lines(
    rows: Sequence[Mapping[str, Any]], bouts: Mapping[str, Mapping[str, Any]]
) -> tuple[BoutLine, ...]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    versions: dict[str, set[int]] = defaultdict(set)
    for bout in bouts.values():
        for side in ("left", "right"):
            versions[bout[side]].add(bout[f"{side}_version"])
    for row in rows:
        bout = bouts.get(row["duel"])
        if bout is None or row["verdict"] == "skip":
            continue
        for side, other in (("left", "right"), ("right", "left")):
            what = {side: "won", other: "lost"}.get(row["verdict"], "tied")
            name = bout[side]
            several = len(versions[name]) > 1
            counts[f"{name}@{bout[f'{side}_version']}" if several else name][what] += 1
    return tuple(
        BoutLine(name, found["won"], found["lost"], found["tied"])
        for name, found in sorted(counts.items())
    )
