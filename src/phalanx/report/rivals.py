"""What runs of all methods but the papers' two have to show, from the ledger alone.

Who made what for whom and what was kept, the method's own figures, and, where members only answer
together, how that compares with the best of them alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import Config
from phalanx.config.uses import PAPERS, trains
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger
from phalanx.ledger.rows import together_key
from phalanx.methods import METHODS
from phalanx.report.moaa_facts import made_of
from phalanx.report.records import Change
from phalanx.report.scores import Table, best_in, by_domain, domain_mean, macro
from phalanx.statistics import Interval

_ELSEWHERE = (
    "num_pairs", "num_demonstrations", "num_dropped", "num_judgments", "num_unreadable",
    "num_decidable_pairs", "label_accuracy", "num_duels", "num_decided", "num_tie", "num_flipped",
    "num_no_quorum", "num_unanswered",
)  # fmt: skip
"""Counts that stand in other places of a report, by the first part of their names."""


@dataclass(frozen=True, slots=True)
class MadeRows:
    """What one iteration made of one ``source``: a learner's own rows, or a builder's.

    ``what`` is ``pairs``, ``demonstrations`` or ``rated`` (demonstrations with an advantage).
    ``rows == kept + sum(dropped)``.
    """

    iteration: int
    source: str
    what: str
    instructions: int
    rows: int
    kept: int
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean over domains: of a member before the run, or of those who answer ``together``.

    ``dev`` is None where ``num_dev`` is 0.
    """

    name: str
    together: bool
    dev: float | None
    test: float
    interval: Interval
    num_test: int
    num_dev: int


@dataclass(frozen=True, slots=True)
class RivalFacts:
    """``figures``: metric -> iteration -> value, as the method counted them.

    ``over_best``: together against the member that was best on dev items, by domain ("": all).
    """

    title: str
    paper: str
    kind: str
    made: tuple[MadeRows, ...] = ()
    figures: dict[str, dict[int, float]] | None = None
    levels: tuple[Measured, ...] = ()
    best: str = ""
    over_best: tuple[Change, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether members answer together and train nobody."""
        return self.kind == "answer"


def rival_facts(ledger: Ledger, config: Config) -> RivalFacts | None:
    """None for the papers' methods, and for commands that are no run."""
    name = ledger.get("method") or config.method
    if name in PAPERS or name not in METHODS:
        return None
    method = METHODS[name]
    levels, best, over = ((), "", ()) if trains(config) else _levels(ledger, config, name)
    return RivalFacts(
        title=method.title,
        paper=method.paper,
        kind=method.kind,
        made=tuple(_made(ledger)),
        figures=_on_the_way(ledger, name) if method.kind == "answer" else _figures(ledger),
        levels=levels,
        best=best,
        over_best=over,
    )


def _made(ledger: Ledger) -> list[MadeRows]:
    rated = {
        (row["iteration"], row["builder"])
        for row in ledger.query(
            "SELECT DISTINCT iteration, builder FROM demonstrations WHERE advantage IS NOT NULL"
        )
    }
    found = []
    for number in [row["iteration"] for row in ledger.query(
        "SELECT iteration FROM states ORDER BY iteration"
    )]:  # fmt: skip
        for source, counts in made_of(ledger, number, "demonstrations", "builder").items():
            what = "rated" if (number, source) in rated else "demonstrations"
            found.append(MadeRows(number, source, what, **counts))
        for source, counts in made_of(ledger, number, "pairs", "chosen_member").items():
            found.append(MadeRows(number, source, "pairs", **counts))
    return found


def _figures(ledger: Ledger) -> dict[str, dict[int, float]]:
    figures: dict[str, dict[int, float]] = {}
    for row in ledger.query("SELECT iteration, metrics FROM states ORDER BY iteration"):
        for key, value in json.loads(row["metrics"]).items():
            if key.split(".")[0] not in _ELSEWHERE:
                figures.setdefault(key, {})[row["iteration"]] = value
    return figures


def _on_the_way(ledger: Ledger, together: str) -> dict[str, dict[int, float]]:
    """What happened while all together were measured."""
    counts = json.loads(ledger.get(together_key(0, together)) or "{}")
    return {key: {0: float(count)} for key, count in counts.items()}


def _levels(
    ledger: Ledger, config: Config, together: str
) -> tuple[tuple[Measured, ...], str, tuple[Change, ...]]:
    """Everybody measured at the start (the mixture of ``evaluate.mixture``, too), who of the
    members was best on dev items, and how all together compare with that one on test items."""
    if not ledger.count("evaluations"):
        return (), "", ()
    names = json.loads(ledger.get("pool_order") or "[]")
    table = Table(ledger, names)
    first = table.iterations[0]
    who = dict.fromkeys(names, False) | {together: True, MIXTURE: True}
    levels = [one for name in who if (one := _level(table, config, name, who[name]))]
    best = best_in(table, first)
    before, after = (table.of(first, name, "test") for name in (best, together))
    return tuple(levels), best, tuple(by_domain(table, together, before, after, config.seed))


def _level(table: Table, config: Config, name: str, together: bool) -> Measured | None:
    first = table.iterations[0]
    dev, test = table.of(first, name, "dev"), table.of(first, name, "test")
    if not test:
        return None
    level, interval = domain_mean(
        test, table.domain, derive_seed("report", config.seed, name, first)
    )
    return Measured(
        name=name,
        together=together,
        dev=macro(dev, table.domain) if dev else None,
        test=level,
        interval=interval,
        num_test=len(test),
        num_dev=len(dev),
    )
