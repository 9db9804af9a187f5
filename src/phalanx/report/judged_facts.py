"""What a ledger of ``judge-bench`` says of its judges, read back and counted anew."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phalanx.benchmarks.judgebench import is_right
from phalanx.benchmarks.panel_readings import (
    Reading,
    Side,
    TestedPair,
    in_both_orders,
    judgments_of_pairs,
    readings,
    right,
    together,
)
from phalanx.benchmarks.panel_test import Change, PanelTest, panel_test, shifts
from phalanx.benchmarks.ppe import best_of_k_curve
from phalanx.benchmarks.records import ManyResponses
from phalanx.config.schema import Config
from phalanx.config.stored import readable
from phalanx.ledger import Ledger
from phalanx.types import Judgment

JUDGEBENCH = "judgebench"
ALL = "all judges (mean of standardised scores)"


@dataclass(frozen=True, slots=True)
class BestOf:
    """``curve``: the chance that the best scored of k responses is right, by k; over ``rows``
    prompts all of whose responses the judge scored."""

    name: str
    rows: int
    curve: dict[int, float]


@dataclass(frozen=True, slots=True)
class Tested:
    """Judges under test: ``tests`` by iteration; ``shifts`` between the first and the last.

    ``ordered`` says whether judges saw both orders,
    ``many`` whose of several responses are best, by iteration. ``left_out`` counts pairs by reason.
    """

    where: str
    format: str
    protocol: str
    ordered: bool
    left_out: dict[str, int]
    tests: dict[int, PanelTest]
    shifts: tuple[Change, ...]
    many: dict[int, tuple[BestOf, ...]]


@dataclass(frozen=True, slots=True)
class _Heard:
    """One iteration: judgments of the pairs, and readings of each judge and by each rule."""

    duels: list[Judgment]
    pairs: list[Judgment]
    alone: dict[str, list[Reading]]
    collective: dict[str, list[Reading]]


def tested_in(ledger: Ledger, config: Config) -> Tested | None:
    """None for a ledger of other work, and until the first iteration is judged."""
    stored = ledger.get("bench")
    if stored is None:
        return None
    about, pairs = json.loads(stored), _pairs(ledger)
    published = about["format"] == JUDGEBENCH
    heard = {n: _heard(ledger, config, pairs, n) for n in _judged(ledger)}
    if not heard:
        return None
    first, last = min(heard), max(heard)
    return Tested(
        where=about["where"],
        format=about["format"],
        protocol=config.judge.protocol,
        ordered=any(
            one.orders is not None for h in heard.values() for mine in h.alone.values()
            for one in mine
        ),
        left_out=about["left_out"],
        tests={
            number: panel_test(
                pairs, one.alone, one.collective, about["families"], published=published
            )
            for number, one in heard.items()
        },
        shifts=_shifts(pairs, heard[first], heard[last]) if first != last else (),
        many=_many(ledger, heard),
    )  # fmt: skip


def pair_rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """One row for each pair and iteration: what every judge and every rule said, and the truth.

    ``published``: whether JudgeBench's rule counts it as right, where it is one of its pairs.
    """
    config = readable(ledger.get("config"), ledger.folder)
    pairs = _pairs(ledger)
    published = json.loads(ledger.get("bench") or "{}")["format"] == JUDGEBENCH
    for number in _judged(ledger):
        heard = _heard(ledger, config, pairs, number)
        of_pair: dict[str, dict[str, Judgment]] = {}
        for judgment in heard.pairs:
            of_pair.setdefault(judgment.duel_id, {})[judgment.judge] = judgment
        for at, pair in enumerate(pairs):
            mine = of_pair.get(pair.id, {})
            yield {
                "id": pair.id,
                "iteration": number,
                "group": pair.group,
                "label": pair.label,
                "writers": list(pair.writers),
                "judges": {
                    name: _said(pair, one[at], mine.get(name), published=published)
                    for name, one in heard.alone.items()
                },
                "together": {name: _said(pair, one[at]) for name, one in heard.collective.items()},
            }


def _said(
    pair: TestedPair,
    reading: Reading,
    judgment: Judgment | None = None,
    *,
    published: bool = False,
) -> dict[str, Any]:
    words = {1: "A", -1: "B", 0: "tie", None: None}
    said: dict[str, Any] = {
        "verdict": words[reading.sign],
        "right": right(pair, reading),
        "probability": reading.probability,
    }
    if judgment is not None:
        said["scores"] = {"A": judgment.score_left, "B": judgment.score_right}
        said["reason"] = judgment.reason
    if reading.orders is not None:
        said["orders"] = list(reading.orders)
        if published:
            said["published"] = is_right(in_both_orders(pair, reading))
    return said


# Reading back ------------------------------------------------------------------------------------


def _pairs(ledger: Ledger) -> list[TestedPair]:
    return [
        TestedPair(
            id=row["id"],
            prompt=row["prompt"],
            group=row["group"],
            label=row["label"],
            lengths=tuple(row["lengths"]),
            sides=tuple(Side(**side) for side in row["sides"]),
            writers=tuple(row["writers"]),
            families=tuple(row["families"]),
        )
        for row in json.loads(ledger.get("pairs") or "[]")
    ]


def _judged(ledger: Ledger) -> list[int]:
    rows = ledger.query("SELECT iteration FROM states ORDER BY iteration")
    return [row["iteration"] for row in rows]


def _heard(ledger: Ledger, config: Config, pairs: Sequence[TestedPair], number: int) -> _Heard:
    duels = _judgments(ledger, number)
    ids = [key for one in duels for key in one.requests.values()]
    replies = {key: reply for key, (reply, _) in ledger.responses(ids).items()}
    mine = judgments_of_pairs(pairs, duels)
    alone = readings(pairs, mine, replies)
    state = ledger.state(number) or {}
    known = {name: standing.value for name, standing in state["standings"].items()}
    quorum = config.judge.quorum
    collective = {}
    if len(alone) > 1:
        collective = together(pairs, mine, alone, quorum=quorum, reputations=known)
    return _Heard(duels, mine, alone, collective)


def _judgments(ledger: Ledger, number: int) -> list[Judgment]:
    """In the order in which they were recorded, with the ids that pairs know duels by."""
    return [
        Judgment(
            duel_id=row["duel"].rpartition("@")[0],
            judge=row["judge"],
            protocol=row["protocol"],
            score_left=row["score_left"],
            score_right=row["score_right"],
            reason=row["reason"],
            flipped=bool(row["flipped"]),
            flags=tuple(json.loads(row["flags"])),
            requests=json.loads(row["requests"]) if row["requests"] else {},
        )
        for row in ledger.iterate(
            "SELECT * FROM judgments WHERE iteration = ? ORDER BY rowid", (number,)
        )
    ]


def _shifts(pairs: Sequence[TestedPair], before: _Heard, after: _Heard) -> tuple[Change, ...]:
    return shifts(pairs, {**before.alone, **before.collective}, {**after.alone, **after.collective})


# The best of many --------------------------------------------------------------------------------


def _many(ledger: Ledger, heard: dict[int, _Heard]) -> dict[int, tuple[BestOf, ...]]:
    rows = json.loads(ledger.get("many") or "[]")
    if not rows:
        return {}
    return {number: tuple(_best_of(rows, one)) for number, one in heard.items()}


def _best_of(rows: Sequence[dict[str, Any]], heard: _Heard) -> Iterator[BestOf]:
    scores: dict[str, dict[tuple[str, str], float | None]] = {name: {} for name in heard.alone}
    for one in heard.duels:
        scores[one.judge][one.duel_id, "left"] = one.score_left
        scores[one.judge][one.duel_id, "right"] = one.score_right
    tables = {
        name: [[known.get((side["duel"], side["side"])) for side in row["sides"]] for row in rows]
        for name, known in scores.items()
    }
    for name, table in tables.items():
        yield _curve(name, rows, table)
    if len(tables) > 1:
        yield _curve(ALL, rows, _mean_of(list(tables.values())))


def _mean_of(tables: Sequence[list[list[float | None]]]) -> list[list[float | None]]:
    """The mean of the judges' scores, each standardised; None where one of them is missing."""
    scaled = []
    for table in tables:
        known = np.array([value for row in table for value in row if value is not None])
        spread = float(known.std()) if known.size else 0.0
        middle = float(known.mean()) if known.size else 0.0
        scaled.append(
            [[None if v is None else (v - middle) / (spread or 1.0) for v in row] for row in table]
        )
    return [
        [None if None in values else sum(values) / len(values)
         for values in zip(*rows, strict=True)]
        for rows in zip(*scaled, strict=True)
    ]  # fmt: skip


def _curve(
    name: str, rows: Sequence[dict[str, Any]], table: Sequence[Sequence[float | None]]
) -> BestOf:
    whole = [
        (ManyResponses(row["id"], "", ("",) * len(given), tuple(row["right"]), row["group"]), given)
        for row, given in zip(rows, table, strict=True)
        if None not in given
    ]
    if not whole:
        return BestOf(name, 0, {})
    most = min(len(given) for _, given in whole)
    ks = [2**power for power in range(most.bit_length()) if 2**power <= most]
    curve = best_of_k_curve([row for row, _ in whole], [given for _, given in whole], ks)
    return BestOf(name, len(whole), curve)
