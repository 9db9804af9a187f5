"""``gather``: every number that a report shows, read once from the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence

from phalanx.config.schema import Config
from phalanx.ledger import STOPPED, Ledger
from phalanx.report.accounting import accounting, encounters, judges, reputations
from phalanx.report.examples import examples
from phalanx.report.records import (
    MemberFacts,
    PhaseTime,
    Progress,
    ReputationLine,
    RunFacts,
    TrainingFacts,
)
from phalanx.report.scores import evaluation
from phalanx.report.servers import endpoints, written_scores
from phalanx.types import Member

__all__ = ["RunFacts", "gather"]

_ORDER = ("recruit", "answer", "judge", "train", "evaluate")


def gather(ledger: Ledger) -> RunFacts:
    """All facts of the run, finished or not. Reads only, and all of it from one moment."""
    ledger.query("BEGIN")  # a read transaction: the run may go on writing meanwhile
    try:
        return _gather(ledger)
    finally:
        ledger.query("COMMIT")


def _gather(ledger: Ledger) -> RunFacts:
    config = Config.model_validate(json.loads(ledger.get("config") or "{}"))
    members = ledger.members()
    names = json.loads(ledger.get("pool_order") or "[]")
    lines, boundaries = reputations(ledger, names)
    seed = int(ledger.get("seed") or 0)
    return RunFacts(
        folder=str(ledger.folder),
        method=ledger.get("method") or "",
        version=ledger.get("phalanx_version") or "",
        code=ledger.get("code") or "",
        created_at=ledger.get("created_at") or "",
        seed=seed,
        engines=tuple(json.loads(ledger.get("engines") or "[]")),
        config=config.model_dump(mode="json"),
        progress=_progress(ledger, config, members),
        members=tuple(
            MemberFacts(m.name, m.version, m.base, m.family, m.roles, m.engine) for m in members
        ),
        accounting=accounting(ledger),
        reputations=lines,
        boundaries=boundaries,
        encounters=encounters(ledger),
        judges=judges(ledger, names),
        label_accuracy=_label_accuracy(ledger),
        trainings=_trainings(ledger, names),
        evaluation=evaluation(
            ledger,
            names,
            seed=seed,
            weights_before=_weights(lines, "start"),
            weights_after=_weights(lines, "value"),
        ),
        times=_times(ledger),
        examples=examples(ledger),
        endpoints=endpoints(ledger),
        written_scores=written_scores(ledger),
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
    rows = ledger.query("SELECT iteration, phase, seconds FROM phases")
    known = {phase: number for number, phase in enumerate(_ORDER)}
    rows.sort(key=lambda row: (row["iteration"], known.get(row["phase"], 99), row["phase"]))
    return tuple(PhaseTime(row["iteration"], row["phase"], row["seconds"]) for row in rows)


def _progress(ledger: Ledger, config: Config, members: Sequence[Member]) -> Progress:
    """The first step that is not recorded as done."""
    total = int(ledger.get("num_iterations") or config.iterations)
    finished, stopped = ledger.get("finished"), ledger.get("stop_reason")
    if finished or stopped:
        done = ledger.query("SELECT coalesce(max(iteration), 0) AS n FROM states")[0]["n"]
        return Progress(done, total, "finished" if finished else "stopped", 0, 0, "",
                        finished, stopped)  # fmt: skip
    for number in range(total + 1):
        step = _owed(ledger, config, members, number)
        if step is not None:
            return Progress(number, total, *step, finished, stopped, _last_error(ledger))
    return Progress(total, total, "closing", 0, 0, "", finished, stopped)


def _last_error(ledger: Ledger) -> str:
    """What ended the last start, unless responses or trainings have come since."""
    rows = ledger.query(
        "SELECT at, text FROM events WHERE kind = ? ORDER BY at DESC LIMIT 1", (STOPPED,)
    )
    if not rows:
        return ""
    newer = "SELECT EXISTS (SELECT 1 FROM {} WHERE at > ?) AS yes"
    since = [
        ledger.query(newer.format(table), (rows[0]["at"],))[0]["yes"]
        for table in ("responses", "trainings")
    ]
    return "" if any(since) else rows[0]["text"]


def _owed(
    ledger: Ledger, config: Config, members: Sequence[Member], number: int
) -> tuple[str, int, int, str] | None:
    """(phase, asked, owed, unit) of the step of this iteration that is under way, or None."""
    trained = len(ledger.trained(number))
    if number == 0:
        recruit = config.pool.recruit
        wanted = len(recruit.specialists) if recruit else 0
        if trained < wanted:
            return ("recruit", wanted, wanted - trained, "members")
    elif ledger.state(number) is None:
        return _duelling(ledger, config, members, number)
    elif config.train.method != "none":
        # Members on other engines cannot be trained; the loop leaves them as they are.
        wanted = sum("learn" in m.roles and m.engine not in ("scripted", "openai") for m in members)
        if trained < wanted:
            return ("train", wanted, wanted - trained, "members")
    due = number % config.evaluate.every == 0 or number == config.iterations
    if config.evaluate.tasks and due and not ledger.has_evaluation(number):
        items = ledger.query("SELECT count(*) AS n FROM evaluations WHERE iteration = 0")[0]["n"]
        stored = _stored(ledger, number, "evaluate")
        asked = max(items, stored)
        return ("evaluate", asked, asked - stored, "requests")
    return None


def _duelling(
    ledger: Ledger, config: Config, members: Sequence[Member], number: int
) -> tuple[str, int, int, str]:
    duels = config.match.duels
    answered = _stored(ledger, number, "answer")
    judged = _stored(ledger, number, "judge")
    if not judged and answered < 2 * duels:
        return ("answer", 2 * duels, 2 * duels - answered, "requests")
    judges = [m for m in members if "judge" in m.roles]
    contesting = sum("contest" in m.roles for m in judges)
    # With everybody a contestant, two of the judges sit in every duel.
    each = len(judges) - min(2, contesting)
    asked = max(2 * duels * min(each, config.judge.per_duel or each), judged)
    return ("judge", asked, asked - judged, "requests")


def _stored(ledger: Ledger, number: int, phase: str) -> int:
    return ledger.count("responses", "iteration = ? AND phase = ?", (number, phase))
