"""What a run of the method moaa took, and what an answer of each member and the mixture takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.config.mixing import MIXTURE
from phalanx.config.rules import BUILTIN_BASES
from phalanx.config.schema import Config
from phalanx.config.staging import stage_of
from phalanx.ledger import Ledger
from phalanx.pool import members_from
from phalanx.report.moaa_records import AnswerCost, CostFacts

_TOKENS = "total(num_prompt_tokens) AS tokens_in, total(num_completion_tokens) AS tokens_out"
# Whatever is asked to measure somebody, the mixture's proposals included.
_MEASURED = "phase LIKE 'evaluate%'"
_BUILTIN = "builtin:"


@dataclass(frozen=True)
class _Rates:
    """Money for a token read and written, and parameters, of each member where they are known."""

    prices: dict[str, tuple[float, float]]
    sizes: dict[str, int]

    def money(self, rows: Sequence[dict[str, Any]]) -> float | None:
        """What the rows cost; those without a price cost nothing, and None where none has one."""
        priced = [row for row in rows if row["member"] in self.prices]
        if not priced:
            return None
        pay = 0.0
        for row in priced:
            read, written = self.prices[row["member"]]
            pay += read * row["tokens_in"] + written * row["tokens_out"]
        return pay

    def weighted(self, rows: Sequence[dict[str, Any]]) -> float | None:
        """Tokens x parameters; None where a size is not known."""
        if not rows or any(row["member"] not in self.sizes for row in rows):
            return None
        return float(
            sum((row["tokens_in"] + row["tokens_out"]) * self.sizes[row["member"]] for row in rows)
        )


def _rates(config: Config) -> _Rates:
    endpoints = {endpoint.name: endpoint for endpoint in config.endpoints}
    prices, sizes = {}, {}
    for member in members_from(config):
        endpoint = endpoints.get(member.endpoint)
        if endpoint and (endpoint.price_in or endpoint.price_out):
            prices[member.name] = (endpoint.price_in / 1e6, endpoint.price_out / 1e6)
        size = BUILTIN_BASES.get(member.base.removeprefix(_BUILTIN))
        if member.base.startswith(_BUILTIN) and size:
            sizes[member.name] = size
    return _Rates(prices, sizes)


def costs(ledger: Ledger, config: Config) -> tuple[CostFacts, ...]:
    """One row for each stage and purpose, in the order of asking; training is a purpose, too.

    Measuring counts as a stage of its own, "evaluation". A request that was asked in one stage
    and used again in another one counts where it was asked.
    """
    rates = _rates(config)
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    for row in ledger.query(
        f"SELECT iteration, {_MEASURED} AS measured, purpose, member, count(*) AS n, {_TOKENS}, "
        "total(seconds) AS seconds FROM responses GROUP BY 1, 2, 3, 4 "
        "ORDER BY 2, 1, min(at), min(rowid)"
    ):
        place = _place(config, row["iteration"], bool(row["measured"]))
        groups.setdefault((*place, row["purpose"]), []).append(row)
    found = [
        CostFacts(
            generation=generation,
            kind=kind,
            purpose=purpose,
            requests=sum(row["n"] for row in rows),
            tokens_in=int(sum(row["tokens_in"] for row in rows)),
            tokens_out=int(sum(row["tokens_out"] for row in rows)),
            seconds=sum(row["seconds"] for row in rows),
            money=rates.money(rows),
        )
        for (generation, kind, purpose), rows in groups.items()
    ]
    for row in ledger.query(
        "SELECT iteration, total(seconds) AS seconds FROM trainings GROUP BY 1 ORDER BY 1"
    ):
        generation, kind = _place(config, row["iteration"], False)
        found.append(CostFacts(generation, kind, "train", 0, 0, 0, row["seconds"], None))
    order = {kind: place for place, kind in enumerate(("recruiting", *config.moaa.stages))}
    found.sort(key=lambda c: (c.kind == "evaluation", c.generation, order.get(c.kind, 99)))
    return tuple(found)


def _place(config: Config, iteration: int, measured: bool) -> tuple[int, str]:
    if measured:
        return 0, "evaluation"
    if iteration == 0:
        return 0, "recruiting"
    stage = stage_of(config, iteration)
    return stage.generation, stage.kind


def answer_costs(
    ledger: Ledger, config: Config, students: Sequence[str], teachers: Sequence[str]
) -> tuple[AnswerCost, ...]:
    """Students as they are now, teachers and the mixture as they were first measured."""
    measured = {
        row["member"]: (row["first"], row["last"])
        for row in ledger.query(
            "SELECT member, min(iteration) AS first, max(iteration) AS last "
            "FROM evaluations GROUP BY 1"
        )
    }
    rates = _rates(config)
    asked = [(name, "student", 1) for name in students]
    asked += [(name, "teacher", 0) for name in teachers if name not in students]
    asked += [(MIXTURE, MIXTURE, 0)]
    found = []
    for name, role, which in asked:
        if name in measured:
            read = _of_mixture if name == MIXTURE else _of_member
            num_items, rows = read(ledger, name, measured[name][which])
            if num_items:
                found.append(_answer_cost(name, role, num_items, rows, rates))
    return tuple(found)


def _of_member(ledger: Ledger, name: str, iteration: int) -> tuple[int, list[dict[str, Any]]]:
    rows = ledger.query(
        f"SELECT e.member AS member, count(*) AS n, {_TOKENS} FROM evaluations e "
        "JOIN responses r ON r.id = e.response WHERE e.member = ? AND e.iteration = ? GROUP BY 1",
        (name, iteration),
    )
    return sum(row["n"] for row in rows), rows


def _of_mixture(ledger: Ledger, name: str, iteration: int) -> tuple[int, list[dict[str, Any]]]:
    """Everything that proposers and aggregator were asked for the items of that measurement."""
    items = ledger.count("evaluations", "member = ? AND iteration = ?", (name, iteration))
    rows = ledger.query(
        f"SELECT member, count(*) AS n, {_TOKENS} FROM responses WHERE iteration = ? "
        f"AND {_MEASURED} AND purpose IN ('propose', 'aggregate') GROUP BY 1",
        (iteration,),
    )
    return (items, rows) if rows else (0, [])


def _answer_cost(
    name: str, role: str, num_items: int, rows: Sequence[dict[str, Any]], rates: _Rates
) -> AnswerCost:
    money, weighted = rates.money(rows), rates.weighted(rows)
    return AnswerCost(
        name=name,
        role=role,
        num_items=num_items,
        requests=sum(row["n"] for row in rows) / num_items,
        tokens_in=sum(row["tokens_in"] for row in rows) / num_items,
        tokens_out=sum(row["tokens_out"] for row in rows) / num_items,
        weighted=None if weighted is None else weighted / num_items,
        money=None if money is None else money / num_items,
    )
