"""Where a run is: the first step that is not recorded as done, and what of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.config.schema import Config
from phalanx.config.staging import stage_of
from phalanx.ledger import STOPPED, Ledger
from phalanx.ledger.rows import together_key
from phalanx.methods import METHODS
from phalanx.pool import TRAINABLE, learners
from phalanx.report.accounting import PHASES
from phalanx.report.moaa_words import stage_name
from phalanx.report.records import Progress
from phalanx.types import Member


def progress(ledger: Ledger, config: Config, members: Sequence[Member]) -> Progress:
    """The first step that is not recorded as done."""
    total = int(ledger.get("num_iterations") or config.iterations)
    finished, stopped = ledger.get("finished"), ledger.get("stop_reason")
    if finished or stopped:
        done = ledger.query("SELECT coalesce(max(iteration), 0) AS n FROM states")[0]["n"]
        return Progress(done, total, "finished" if finished else "stopped", 0, 0, "",
                        finished, stopped)  # fmt: skip
    kind = ledger.get("method") or config.method
    if kind not in METHODS:  # a command that asks members without a run
        stored = ledger.count("responses")
        return Progress(0, 0, kind, stored, 0, "requests", finished, stopped, known=False)
    for number in range(total + 1):
        step = _owed(ledger, config, members, number)
        if step is not None:
            stage = stage_of(config, number) if kind == "moaa" and number else None
            return Progress(
                number,
                total,
                step.phase,
                step.asked,
                step.owed,
                step.unit,
                finished,
                stopped,
                _last_error(ledger),
                known=step.known,
                stage=stage_name(stage.generation, stage.kind) if stage else "",
            )
    return Progress(total, total, "closing", 0, 0, "", finished, stopped)


@dataclass(frozen=True)
class _Step:
    phase: str
    asked: int
    owed: int
    unit: str = "requests"
    known: bool = True


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


def _owed(ledger: Ledger, config: Config, members: Sequence[Member], number: int) -> _Step | None:
    """The step of this iteration that is under way, or None."""
    trained = len(ledger.trained(number))
    if number == 0:
        recruit = config.pool.recruit
        wanted = len(recruit.specialists) if recruit else 0
        if trained < wanted:
            return _Step("recruit", wanted, wanted - trained, "members")
    elif ledger.state(number) is None:
        if config.method == "sparta":
            return _duelling(ledger, config, members, number)
        return _asking(ledger, number)
    elif config.train.method != "none":
        # Members on other engines cannot be trained; the loop leaves them as they are.
        lesson = METHODS[config.method].lesson
        able = [m for m in learners(members) if m.engine in TRAINABLE]
        wanted = sum(bool(lesson(config, number, m.name)) for m in able)
        if trained < wanted:
            return _Step("train", wanted, wanted - trained, "members")
    due = number % config.evaluate.every == 0 or number == config.iterations
    if config.evaluate.tasks and due and not ledger.has_evaluation(number):
        return _measuring(ledger, number)
    name = ledger.get("method") or config.method
    if METHODS[name].answer and ledger.get(together_key(0, name)) is None:
        return _answering(ledger, name)
    return None


def _answering(ledger: Ledger, name: str) -> _Step:
    """The phase under way where the members answer as one."""
    rows = [row for row in ledger.query(PHASES) if row["phase"].startswith("evaluate ")]
    if not rows:
        return _Step(f"evaluate {name}", 0, 0, known=False)
    last = rows[-1]
    asked = max(last["asked"] or 0, last["stored"])
    return _Step(last["phase"], asked, asked - last["stored"], known=last["asked"] is not None)


def _measuring(ledger: Ledger, number: int) -> _Step:
    """Members that have not changed since they were measured are not asked again; how much there
    is to ask is known from the measurement before."""
    stored = _stored(ledger, number, "evaluate")
    last = ledger.query(
        "SELECT max(iteration) AS n FROM evaluations WHERE iteration < ?", (number,)
    )[0]["n"]
    if last is None:
        return _Step("evaluate", stored, 0, known=False)
    asked = {
        row["member"]: row["n"]
        for row in ledger.query(
            "SELECT member, count(*) AS n FROM evaluations WHERE iteration = ? GROUP BY 1", (last,)
        )
    }
    old = {member.name: member.version for member in ledger.members(last)}
    changed = [m.name for m in ledger.members(number) if m.version != old.get(m.name)]
    total = max(sum(asked.get(name, 0) for name in changed), stored)
    return _Step("evaluate", total, total - stored)


def _asking(ledger: Ledger, number: int) -> _Step:
    """The phase under way in a stage. How much it asks is known once it has begun; what comes
    after it depends on what is answered."""
    rows = [
        row
        for row in ledger.query(PHASES)
        if row["iteration"] == number and not row["phase"].startswith("evaluate")
    ]
    if not rows:
        return _Step("ask", 0, 0, known=False)
    last = rows[-1]
    asked = max(last["asked"] or 0, last["stored"])
    return _Step(last["phase"], asked, asked - last["stored"], known=last["asked"] is not None)


def _duelling(ledger: Ledger, config: Config, members: Sequence[Member], number: int) -> _Step:
    duels = config.match.duels
    answered = _stored(ledger, number, "answer")
    judged = _stored(ledger, number, "judge")
    if not judged and answered < 2 * duels:
        return _Step("answer", 2 * duels, 2 * duels - answered)
    judges = [m for m in members if "judge" in m.roles]
    contesting = sum("contest" in m.roles for m in judges)
    # With everybody a contestant, two of the judges sit in every duel.
    each = len(judges) - min(2, contesting)
    asked = max(2 * duels * min(each, config.judge.per_duel or each), judged)
    return _Step("judge", asked, asked - judged)


def _stored(ledger: Ledger, number: int, phase: str) -> int:
    return ledger.count("responses", "iteration = ? AND phase = ?", (number, phase))
