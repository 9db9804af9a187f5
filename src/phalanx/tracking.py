"""What trackers get of a run: a run of their own for each training, and one for the pool.

A training (``ada@1``) sends its steps itself (:mod:`phalanx.trackers`). The pool's run has one row
an iteration, made from the ledger alone, so that it is the same whenever it is sent; which
iterations a tracker has is kept in the ledger, and none is sent twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx import trackers
from phalanx.config.schema import Config
from phalanx.identity import content_id, derive_seed
from phalanx.ledger import Ledger
from phalanx.report.accounting import FLIPPED
from phalanx.report.scores import Table, domain_mean
from phalanx.trackers import Target
from phalanx.training import TrainJob
from phalanx.types import Progress

POOL = "pool"
"""Name of the run that has a row an iteration; trainings have an @ in theirs."""
EVENT = "tracker"
"""Kind of the ledger's event where a tracker failed."""
_told: set[tuple[str, str]] = set()
"""(run folder, tracker) of failures that were told in this process."""


def target_of(config: Config, ledger: Ledger, name: str) -> Target | None:
    """Where a training of this name, or the pool, is reported; None where nothing is tracked."""
    settings = config.track
    if not settings.report_to:
        return None
    group = settings.name or ledger.folder.resolve().name
    folder = Path(settings.folder).expanduser() / group if settings.folder else ledger.folder
    return Target(
        report_to=tuple(dict.fromkeys(settings.report_to)),
        project=settings.project,
        group=group,
        name=name,
        id=content_id("track", ledger.get("created_at"), ledger.get("inputs"), group, name),
        folder=(folder if settings.folder else folder / "track").resolve(),
    )


def tracked(config: Config, ledger: Ledger, jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """The jobs, each with the run that its steps are reported to."""
    names = [f"{job.member.name}@{job.version}" for job in jobs]
    targets = [target_of(config, ledger, name) for name in names]
    return [replace(job, tracked=target) for job, target in zip(jobs, targets, strict=True)]


def follow(config: Config, ledger: Ledger, progress: Progress, number: int) -> None:
    """Send the pool's rows up to iteration ``number`` (0: the start) to trackers that lack them.

    A tracker that fails is told once, on the screen and in the ledger, and gets what it lacks at
    the next start.
    """
    target = target_of(config, ledger, POOL)
    if target is None:
        return
    rows: dict[int, dict[str, float]] = {}
    for tracker in target.report_to:
        key = f"tracked:{tracker}"
        owed = range(int(ledger.get(key) or -1) + 1, number + 1)
        if not owed or target.place(tracker) in trackers.given_up:
            continue
        rows |= {at: row_of(ledger, config, at) for at in owed if at not in rows}
        one = replace(target, report_to=(tracker,))
        failed = trackers.write(one, {at: rows[at] for at in owed}, _about(ledger))
        tell(ledger, progress, list(failed.values()))
        if not failed:
            ledger.put(key, str(number))


def tell(ledger: Ledger, progress: Progress, notes: Sequence[str]) -> None:
    """What trackers failed at, each tracker once in a process."""
    for note in notes:
        place = (str(ledger.folder.resolve()), note.partition(" ")[0])
        if place not in _told:
            _told.add(place)
            ledger.event(EVENT, note)
            progress.say(f"Note: {note}")


def _about(ledger: Ledger) -> str:
    method, version, seed = (ledger.get(key) for key in ("method", "phalanx_version", "seed"))
    return f"method {method}, seed {seed}, phalanx {version}"


# Rows -------------------------------------------------------------------------------------------


def row_of(ledger: Ledger, config: Config, number: int) -> dict[str, float]:
    """What is known of an iteration (0: before the first), by names that trackers group at ``/``.

    Shares are from 0 to 1; ``evaluation/...`` are means over domains on the test split, with the
    ends of their 95 % interval in ``/low`` and ``/high``, ``dev/...`` those of the dev split;
    ``cost/...`` are sums since the start.
    """
    return {
        **_cost(ledger, config, number),
        **_standings(ledger, number),
        **_judging(ledger, number),
        **_rows_made(ledger, number),
        **_trainings(ledger, number),
        **_evaluation(ledger, config, number),
    }


def _cost(ledger: Ledger, config: Config, number: int) -> dict[str, float]:
    """Failed requests and repetitions included; money by the endpoints' prices."""
    prices = {end.name: end for end in config.endpoints}
    behind = {member.name: prices.get(member.endpoint) for member in ledger.members()}
    total = dict.fromkeys(("cost/requests", "cost/tokens_in", "cost/tokens_out"), 0.0)
    money = 0.0
    for row in ledger.query(
        "SELECT member, sum(attempts) AS sent, sum(num_prompt_tokens) AS tokens_in, "
        "sum(num_completion_tokens) AS tokens_out FROM responses WHERE iteration <= ? "
        "GROUP BY member",
        (number,),
    ):
        for key, column in zip(total, ("sent", "tokens_in", "tokens_out"), strict=True):
            total[key] += row[column] or 0
        if endpoint := behind.get(row["member"]):
            money += endpoint.money(row["tokens_in"] or 0, row["tokens_out"] or 0)
    if config.endpoints:
        total["cost/money"] = money
    spent = "SELECT coalesce(sum(seconds), 0) AS seconds FROM phases WHERE iteration <= ?"
    return total | {"cost/seconds": ledger.query(spent, (number,))[0]["seconds"]}


def _standings(ledger: Ledger, number: int) -> dict[str, float]:
    """Reputations after the iteration, reliabilities where a rule estimates them, and what the
    method counted."""
    state = ledger.state(number)
    if state is None:
        return {}
    found = {f"reputation/{name}": one.value for name, one in state["standings"].items()}
    found |= {f"reliability/{name}": value for name, value in state["reliability"].items()}
    counted = {f"method/{name}": value for name, value in state["metrics"].items()}
    return {name: float(value) for name, value in (found | counted).items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _judging(ledger: Ledger, number: int) -> dict[str, float]:
    found: dict[str, float] = {}
    (row,) = ledger.query(
        "SELECT count(*) AS n, coalesce(sum(score_left IS NULL OR score_right IS NULL), 0) "
        f"AS unreadable, {FLIPPED} AS flipped FROM judgments WHERE iteration = ?",
        (number,),
    )
    if count := row["n"]:
        found["judging/unreadable"] = row["unreadable"] / count
        readable = count - row["unreadable"]
        if readable and row["flipped"] is not None:
            found["judging/flipped"] = row["flipped"] / readable
    for row in ledger.query(
        "SELECT status, count(*) AS n, avg(agreement) AS agreement FROM outcomes "
        "WHERE iteration = ? GROUP BY status",
        (number,),
    ):
        found[f"duels/{row['status']}"] = float(row["n"])
        if row["status"] == "decided" and row["agreement"] is not None:
            found["judging/agreement"] = row["agreement"]
    return found


def _rows_made(ledger: Ledger, number: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for table in ("pairs", "demonstrations"):
        if ledger.count(table, "iteration = ?", (number,)):
            for name, sign in (("kept", "="), ("dropped", "<>")):
                where = f"iteration = ? AND dropped {sign} ''"
                found[f"{table}/{name}"] = float(ledger.count(table, where, (number,)))
    return found


def _trainings(ledger: Ledger, number: int) -> dict[str, float]:
    """The last step of each member's training; all steps are in a run of the training's own."""
    found: dict[str, float] = {}
    for row in ledger.query("SELECT * FROM trainings WHERE iteration = ?", (number,)):
        found[f"training/{row['member']}/examples"] = float(row["num_examples"])
        for name, value in json.loads(row["summary"]).items():
            if name.startswith("last/"):
                found[f"training/{row['member']}/{name.removeprefix('last/')}"] = float(value)
    return found


def _evaluation(ledger: Ledger, config: Config, number: int) -> dict[str, float]:
    if not ledger.count("evaluations", "iteration = ?", (number,)):
        return {}
    members = [member.name for member in ledger.members(number)]
    query = "SELECT DISTINCT member FROM evaluations WHERE iteration = ? ORDER BY member"
    names = [row["member"] for row in ledger.query(query, (number,))]
    table = Table(ledger, [name for name in members if name in names])
    found: dict[str, float] = {}
    for heading, split in (("evaluation", "test"), ("dev", "dev")):
        scores: dict[str, Mapping[tuple[str, str], float]] = {
            name: table.of(number, name, split) for name in names
        }
        if table.members and table.of(number, table.members[0], split):
            scores["members"] = table.pool_mean(number, split)
        for name, known in scores.items():
            if not known:
                continue
            seed = derive_seed("track", config.seed, name, number)
            mean, interval = domain_mean(known, table.domain, seed)
            place = f"{heading}/{name}"
            found |= {place: mean, f"{place}/low": interval.low, f"{place}/high": interval.high}
    return found
