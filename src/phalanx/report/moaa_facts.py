"""Stages, mixtures and rewards of a run of the method moaa, from the ledger alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from phalanx.config.mixing import proposers_of, students_of, teachers_of
from phalanx.config.schema import Config
from phalanx.config.staging import stage_of
from phalanx.ledger import Ledger
from phalanx.report.accounting import short_reason
from phalanx.report.moaa_costs import answer_costs, costs
from phalanx.report.moaa_examples import mixture_examples
from phalanx.report.moaa_records import (
    BuilderFacts,
    MoaaFacts,
    PairFacts,
    ProposerFacts,
    RewardFacts,
    StageFacts,
    TurnFacts,
)
from phalanx.report.moaa_scores import result
from phalanx.report.records import TrainingFacts

METHOD = "moaa"


def moaa_facts(
    ledger: Ledger, config: Config, trainings: Sequence[TrainingFacts]
) -> MoaaFacts | None:
    """None for every other method, and for commands that are no run."""
    if (ledger.get("method") or config.method) != METHOD:
        return None
    students = tuple((s.name, s.data, s.reward) for s in students_of(config))
    teachers = teachers_of(config)
    answers = answer_costs(ledger, config, [name for name, *_ in students], teachers)
    return MoaaFacts(
        students=students,
        teachers=teachers,
        stages=tuple(_stages(ledger, config, students, trainings)),
        result=result(ledger, config, students, teachers, answers),
        costs=costs(ledger, config),
        answers=answers,
        examples=mixture_examples(
            ledger, {*chain(*proposers_of(config)), *(name for name, *_ in students)}
        ),
    )


def _stages(
    ledger: Ledger,
    config: Config,
    students: Sequence[tuple[str, str, str]],
    trainings: Sequence[TrainingFacts],
) -> list[StageFacts]:
    """Every stage that is recorded, and the one under way."""
    metrics = {
        row["iteration"]: json.loads(row["metrics"])
        for row in ledger.query("SELECT iteration, metrics FROM states ORDER BY iteration")
    }
    begun = ledger.query("SELECT coalesce(max(iteration), 0) AS n FROM responses")[0]["n"]
    stages = []
    for number in range(1, max([begun, *metrics]) + 1):
        stage = stage_of(config, number)
        if number not in metrics:
            stages.append(StageFacts(number, stage.kind, stage.generation, recorded=False))
            continue
        counts = metrics[number]
        stages.append(
            StageFacts(
                iteration=number,
                kind=stage.kind,
                generation=stage.generation,
                recorded=True,
                builders=tuple(_builders(ledger, number, students)),
                pairs=tuple(_pairs(ledger, number, students)),
                trainings=tuple(t for t in trainings if t.iteration == number),
                proposers=_left_out(counts, "proposals"),
                num_mixed=int(counts.get("mixed.asked", 0)),
                unanswered=_named(counts, "mixed.without_answer."),
                turns=_turns(counts),
                reasoning_removed=_named(counts, "reasoning_removed."),
                best_of=_named(counts, "best_of."),
                rewards=tuple(_rewards(ledger, number)),
                scores_asked=int(counts.get("scores.asked", 0)),
                scores_unreadable=int(counts.get("scores.unreadable", 0)),
                outcomes=_outcomes(ledger, number),
                evaluators=_evaluators(ledger, number, counts),
                criteria=_named(counts, "criteria.chosen."),
                unreadable_criteria=int(counts.get("criteria.unreadable", 0)),
                **_chosen_for(ledger, number),
            )
        )
    return stages


def _chosen_for(ledger: Ledger, number: int) -> dict[str, int]:
    """For how many instructions criteria were chosen, and for how many in an earlier stage."""
    row = ledger.query(
        "SELECT count(*) AS whole, total(iteration < ?) AS reused FROM responses WHERE id IN "
        "(SELECT json_extract(requests, '$.criteria') FROM judgments WHERE iteration = ?)",
        (number, number),
    )[0]
    return {"criteria_chosen_for": row["whole"], "criteria_reused_for": int(row["reused"])}


def _builders(
    ledger: Ledger, number: int, students: Sequence[tuple[str, str, str]]
) -> list[BuilderFacts]:
    return [
        BuilderFacts(
            name=builder,
            students=tuple(name for name, data, _ in students if data == builder),
            **counts,
        )
        for builder, counts in made_of(ledger, number, "demonstrations", "builder").items()
    ]


def _pairs(
    ledger: Ledger, number: int, students: Sequence[tuple[str, str, str]]
) -> list[PairFacts]:
    """A pair's two responses are of the same student."""
    rewards = {name: reward for name, _, reward in students}
    return [
        PairFacts(student=student, reward=rewards.get(student, ""), **counts)
        for student, counts in made_of(ledger, number, "pairs", "chosen_member").items()
    ]


def made_of(ledger: Ledger, number: int, table: str, column: str) -> dict[str, dict[str, Any]]:
    """The rows of a stage by a column, first come first: how many were kept, and dropped why."""
    found: dict[str, dict[str, Any]] = {}
    for row in ledger.query(
        f"SELECT {column} AS name, count(*) AS n, count(DISTINCT instruction) AS instructions, "
        f"sum(dropped = '') AS kept FROM {table} WHERE iteration = ? "
        "GROUP BY 1 ORDER BY min(rowid)",
        (number,),
    ):
        dropped = ledger.query(
            f"SELECT dropped, count(*) AS n FROM {table} WHERE iteration = ? AND {column} = ? "
            "AND dropped != '' GROUP BY 1 ORDER BY n DESC, 1",
            (number, row["name"]),
        )
        found[row["name"]] = {
            "instructions": row["instructions"],
            "rows": row["n"],
            "kept": row["kept"],
            "dropped": {one["dropped"]: one["n"] for one in dropped},
        }
    return found


def _rewards(ledger: Ledger, number: int) -> list[RewardFacts]:
    found = []
    readable = "score_left IS NOT NULL AND score_right IS NOT NULL"
    for row in ledger.query(
        f"SELECT judge, protocol, count(*) AS asked, sum({readable}) AS readable, "
        f"total({readable} AND score_left = score_right) AS ties, sum(flipped) AS flipped, "
        "total(flags LIKE '%\"default_criteria\"%') AS defaulted "
        "FROM judgments WHERE iteration = ? GROUP BY 1, 2 ORDER BY min(rowid)",
        (number,),
    ):
        reasons: Counter[str] = Counter()
        for one in ledger.query(
            f"SELECT reason, count(*) AS n FROM judgments WHERE NOT ({readable}) "
            "AND iteration = ? AND judge = ? AND protocol = ? GROUP BY 1",
            (number, row["judge"], row["protocol"]),
        ):
            reasons[short_reason(one["reason"])] += one["n"]
        found.append(
            RewardFacts(
                judge=row["judge"],
                protocol=row["protocol"],
                asked=row["asked"],
                readable=row["readable"],
                decided=row["readable"] - int(row["ties"]),
                ties=int(row["ties"]),
                flipped=row["flipped"],
                default_criteria=int(row["defaulted"]),
                reasons=dict(reasons.most_common()),
            )
        )
    return found


def _outcomes(ledger: Ledger, number: int) -> dict[str, int]:
    rows = ledger.query(
        "SELECT status, count(*) AS n FROM outcomes WHERE iteration = ? GROUP BY 1 "
        "ORDER BY n DESC, 1",
        (number,),
    )
    return {row["status"]: row["n"] for row in rows}


def _evaluators(
    ledger: Ledger, number: int, counts: Mapping[str, float]
) -> tuple[ProposerFacts, ...]:
    """How many evaluations each member of the panel was asked for, and those left out."""
    lost = _named(counts, "evaluations.left_out.")
    rows = ledger.query(
        "SELECT member, count(*) AS n FROM responses WHERE iteration = ? AND purpose = 'assess' "
        "GROUP BY 1 ORDER BY min(rowid)",
        (number,),
    )
    return tuple(ProposerFacts(r["member"], r["n"], lost.get(r["member"], 0)) for r in rows)


def _left_out(counts: Mapping[str, float], what: str) -> tuple[ProposerFacts, ...]:
    lost = _named(counts, f"{what}.left_out.")
    asked = _named(counts, f"{what}.asked.")
    return tuple(ProposerFacts(name, count, lost.get(name, 0)) for name, count in asked.items())


def _named(counts: Mapping[str, float], prefix: str) -> dict[str, int]:
    """The counts under a prefix by what follows it, the largest first."""
    found = {k.removeprefix(prefix): int(n) for k, n in counts.items() if k.startswith(prefix)}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _turns(counts: Mapping[str, float]) -> tuple[TurnFacts, ...]:
    found: dict[str, dict[str, int]] = {}
    for key, count in counts.items():
        if key.startswith("turns."):
            builder, _, what = key.removeprefix("turns.").rpartition(".")
            found.setdefault(builder, {})[what] = int(count)
    return tuple(TurnFacts(builder, counted) for builder, counted in sorted(found.items()))
