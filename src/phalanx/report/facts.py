"""``gather``: every number that a report shows, read once from the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.alarms import FACT, Guarded, from_json, in_words
from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import Config
from phalanx.config.stored import readable
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger
from phalanx.ledger.holding import holder
from phalanx.report.accounting import accounting, encounters, reputations
from phalanx.report.commands import EVAL, found_in, is_command, joined_phases, joined_times
from phalanx.report.examples import examples
from phalanx.report.games import contests
from phalanx.report.judged_facts import tested_in
from phalanx.report.judging import judges
from phalanx.report.measured import measured
from phalanx.report.moaa_facts import moaa_facts
from phalanx.report.pace import pace, spending
from phalanx.report.people import people
from phalanx.report.records import (
    Evaluation,
    MemberFacts,
    PhaseTime,
    ReputationLine,
    RunFacts,
    TrainingFacts,
)
from phalanx.report.rivals import rival_facts
from phalanx.report.scores import evaluation
from phalanx.report.servers import endpoints, written_scores
from phalanx.report.underway import progress
from phalanx.report.warnings import one_verdicts
from phalanx.tasks.contamination import read_stored
from phalanx.tasks.items import is_voted

__all__ = ["RunFacts", "gather"]

_ORDER = ("recruit", "answer", "judge", "train", "evaluate")


def gather(ledger: Ledger, *, tables: bool = True) -> RunFacts:
    """All facts of the run, finished or not. Reads only, and all of it from one moment.

    Without ``tables``: no contests, no judges under test and no examples, which take long and are
    no part of a run's status. Raises LedgerError where nothing was begun.
    """
    # Before the rows: who is gone by then has written all of them, so that a run which ends while
    # it is read never looks as if it had been killed.
    process = holder(ledger.folder)
    ledger.query("BEGIN")  # a read transaction: the run may go on writing meanwhile
    try:
        if ledger.get("method") is None:
            raise LedgerError(f"no run has begun in {ledger.folder}: nothing is recorded there")
        config = readable(ledger.get("config"), ledger.folder)
        facts = _gather(ledger, config, tables, process)
        return _of_command(ledger, facts, config, tables) if is_command(facts.method) else facts
    finally:
        ledger.query("COMMIT")


def _gather(ledger: Ledger, config: Config, tables: bool, process: int | None) -> RunFacts:
    members = ledger.members()
    names = json.loads(ledger.get("pool_order") or "[]")
    trainings = _trainings(ledger, names)
    moaa = moaa_facts(ledger, config, trainings)
    rival = rival_facts(ledger, config)
    ranked = moaa is not None or rival is not None
    # Responses of the same learner that meet are no members: they have no reputations.
    lines, boundaries = ((), ()) if ranked else reputations(ledger, names)
    seed = int(ledger.get("seed") or 0)
    state, account, times = progress(ledger, config, members), accounting(ledger), _times(ledger)
    method = ledger.get("method") or ""
    return RunFacts(
        folder=str(ledger.folder),
        method=method,
        version=ledger.get("phalanx_version") or "",
        code=ledger.get("code") or "",
        created_at=ledger.get("created_at") or "",
        seed=seed,
        engines=tuple(json.loads(ledger.get("engines") or "[]")),
        config=config.model_dump(mode="json"),
        progress=state,
        members=tuple(
            MemberFacts(m.name, m.version, m.base, m.family, m.roles, m.engine) for m in members
        ),
        accounting=account,
        reputations=lines,
        boundaries=boundaries,
        encounters=() if ranked else encounters(ledger),
        judges=judges(ledger, [*names, MIXTURE] if moaa or is_command(method) else names, members),
        label_accuracy=_label_accuracy(ledger),
        trainings=trainings,
        evaluation=Evaluation()
        if is_command(method)
        else evaluation(
            ledger,
            names,
            seed=seed,
            weights_before=_weights(lines, "start"),
            weights_after=_weights(lines, "value"),
            unvoted=[
                task.name for task in config.evaluate.tasks if not is_voted(task.kind, task.match)
            ],
            maths=[task.name for task in config.evaluate.tasks if task.kind == "math"],
        ),
        times=times,
        pace=pace(ledger, state, account.phases, times, process),
        spending=spending(ledger),
        examples=examples(ledger, ranked=ranked) if tables else (),
        endpoints=endpoints(ledger),
        written_scores=written_scores(ledger),
        moaa=moaa,
        rival=rival,
        overlaps=read_stored(ledger.get("contamination")),
        one_verdicts=one_verdicts(ledger),
        people=people(ledger, seed),
        guards=None
        if is_command(method)
        else Guarded(in_words(config), tuple(from_json(ledger.get(FACT)))),
    )


def _of_command(ledger: Ledger, facts: RunFacts, config: Config, tables: bool) -> RunFacts:
    """The same without iterations, which the work of a command has not."""
    phases = joined_phases(facts.accounting.phases)
    return replace(
        facts,
        command=facts.method,
        accounting=replace(facts.accounting, phases=phases),
        times=joined_times(facts.times),
        found=found_in(ledger, config),
        contests=tuple(contests(ledger, config.seed)) if tables else (),
        measured=measured(ledger, config, ledger.get("against") or None)
        if facts.method == EVAL
        else None,
        tested=tested_in(ledger, config) if tables else None,
    )


def _weights(lines: Sequence[ReputationLine], which: str) -> dict[str, float]:
    return {line.member: getattr(line, which) for line in lines}


def _label_accuracy(ledger: Ledger) -> dict[int, tuple[float, int]]:
    """Iteration -> (share of decidable pairs that prefer the right response, their number)."""
    result = {}
    for row in ledger.query("SELECT iteration, metrics FROM states ORDER BY iteration"):
        metrics = json.loads(row["metrics"])
        if "label_accuracy" in metrics:
            count = int(metrics.get("num_decidable_pairs", 0))
            result[row["iteration"]] = (metrics["label_accuracy"], count)
    return result


def _trainings(ledger: Ledger, names: Sequence[str]) -> tuple[TrainingFacts, ...]:
    steps: dict[tuple[int, str], list[dict[str, float]]] = {}
    for row in ledger.iterate("SELECT * FROM training_steps ORDER BY iteration, member, step"):
        steps.setdefault((row["iteration"], row["member"]), []).append(json.loads(row["signals"]))
    rows = ledger.query("SELECT * FROM trainings")
    rows.sort(key=lambda row: (row["iteration"], names.index(row["member"])))
    return tuple(
        TrainingFacts(
            iteration=row["iteration"],
            member=row["member"],
            version=row["version"],
            num_examples=row["num_examples"],
            num_dropped=json.loads(row["num_dropped"]),
            seconds=row["seconds"],
            steps=tuple(steps.get((row["iteration"], row["member"]), ())),
        )
        for row in rows
    )


def _times(ledger: Ledger) -> tuple[PhaseTime, ...]:
    rows = ledger.query("SELECT iteration, phase, seconds FROM phases ORDER BY at, phase")
    known = {phase: float(number) for number, phase in enumerate(_ORDER)}

    def place(phase: str) -> float:
        """Phases of other methods stand between answering and learning, in the order they came."""
        return known.get(
            phase, _ORDER.index("evaluate") + 0.5 if phase.startswith("evaluate") else 2.5
        )

    rows.sort(key=lambda row: (row["iteration"], place(row["phase"])))
    return tuple(PhaseTime(row["iteration"], row["phase"], row["seconds"]) for row in rows)
