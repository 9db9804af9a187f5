"""The composition root: a run from its first row to its report, one iteration on one screen."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.anchoring import anchors_of
from phalanx.asking import (
    Asking,
    files_behind,
    now,
    refuse_changes,
    start_facts,
    stop_is_recorded,
    stop_on_interrupt,
    stored_config,
    timed,
)
from phalanx.collective.preference import chosen_alone, with_label_noise
from phalanx.config.compare import differences
from phalanx.config.schema import Config, OptimiserSettings
from phalanx.dispatch import Elsewhere
from phalanx.errors import LedgerError
from phalanx.evaluate import (
    evaluate,
    evaluate_mixture,
    evaluate_together,
    label_metrics,
    load_tasks,
    mixture_after,
    skipped_of,
)
from phalanx.guarding import Guards, standings_at_start
from phalanx.identity import canonical_json, content_id, derive_seed
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import messages, together_key
from phalanx.methods import METHODS
from phalanx.plan import require
from phalanx.progress import Silent
from phalanx.recruit import recruit_jobs
from phalanx.report.scores import best_on_dev
from phalanx.sources import BUILTIN, WHOLE, instructions_of, read_demonstrations
from phalanx.tasks import TaskItem, contamination
from phalanx.tracking import follow, tell, tracked
from phalanx.training import TrainJob
from phalanx.training.jobs import NOT_FINITE
from phalanx.types import (
    Ask,
    Demonstration,
    Instruction,
    Iteration,
    Member,
    Message,
    PreferencePair,
    Progress,
    Standing,
    TrainResult,
)
from phalanx.version import __version__
from phalanx.workshop import TRAINABLE, Workshop


@dataclass
class Session(Asking):
    """What one process holds while it works on a run."""

    instructions: tuple[Instruction, ...] = ()
    items: tuple[TaskItem, ...] = ()
    left_out: frozenset[str] = frozenset()
    """Demonstrations that overlap evaluation items, by id; recruits do not learn from them."""

    @property
    def guards(self) -> Guards:
        return Guards(self.config, self.ledger, self.progress)

    def ask(self, iteration: int) -> Ask:
        """The ``ask`` of one iteration, which guards listen to."""
        return self.dispatcher(iteration, self.guards.hearing(iteration)).ask


def align(
    config: Config,
    folder: Path | str,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
    elsewhere: Elsewhere | None = None,
    one_of_many: bool = False,
) -> Path:
    """Start or continue the run in ``folder`` until its last iteration; returns the folder.

    ``elsewhere`` may know responses that another run has (:class:`phalanx.dispatch.Dispatcher`).
    ``one_of_many``: the configuration serves other methods, too (:func:`phalanx.plan.require`).

    Raises ConfigError for a configuration that cannot work, LedgerError for a run in use or one
    made with another configuration, Interrupted on Ctrl-C, JudgmentError and TrainingError
    where going on would be meaningless, GuardError and LossError where a guard says so.
    """
    notes = require(config, one_of_many=one_of_many)
    folder = Path(folder)
    with (
        stop_on_interrupt() as should_stop,
        Ledger(run_ledger_path(folder), writable=True) as ledger,
        workshop or Workshop(config, folder) as shop,
        timed(config, ledger, should_stop) as should_stop,
    ):
        session = Session(
            config, folder, ledger, shop, progress or Silent(), should_stop, elsewhere=elsewhere
        )
        open_run(session, notes)
        with stop_is_recorded(ledger):
            prepare_pool(session)
            measure(session, 0)
            measure_together(session)
            follow(config, ledger, session.progress, 0)
            for number in range(1, length_of(config) + 1):
                iterate(session, number)
        if ledger.get("finished") is None:
            ledger.put("finished", now())
    return folder


def length_of(config: Config) -> int:
    """How many iterations a run has: none where the method trains nobody."""
    return config.iterations if METHODS[config.method].run else 0


def iterate(session: Session, number: int) -> None:
    """One iteration: duel and judge, record, learn, measure. Skips whatever is recorded."""
    config, ledger = session.config, session.ledger
    if ledger.state(number) is None:
        session.progress.say(f"Iteration {number} of {config.iterations}")
        result = METHODS[config.method].run(_start_of(session, number), session.ask(number), config)
        session.guards.judged(result, number)
        metrics = {**result.metrics, **label_metrics(result)}
        ledger.record_iteration(number, replace(result, metrics=metrics))
    session.guards.recorded(number)
    learn(session, number)
    if number % config.evaluate.every == 0 or number == config.iterations:
        measure(session, number)
        session.guards.measured(number)
    follow(config, ledger, session.progress, number)


def open_run(session: Session, notes: Sequence[str]) -> None:
    """Read the inputs; start the ledger and say ``notes``, or check that it is of the same run."""
    config, ledger = session.config, session.ledger
    read = instructions_of(config)
    session.items = load_tasks(config)
    overlaps = guard(session, read.instructions)
    fingerprint = content_id(session.instructions, session.items, files_behind(config))
    stored = ledger.get("config")
    if stored is not None and ledger.is_untouched():
        ledger.forget_start()  # nothing was answered yet, so there is nothing to be true to
        stored = None
    if stored is not None:
        before = stored_config(session.folder, stored)
        misnamed = _unheard(ledger, pool.members_from(config))
        changed = [c for c in differences(before, config) if c[0] not in misnamed]
        refuse_changes(session.folder, changed)
        if ledger.get("inputs") != fingerprint:
            raise LedgerError(
                f"the instructions or evaluation items of {session.folder}, or a file that its "
                "configuration names, have changed since it was started; restore them, or choose "
                "another folder with --out"
            )
        _change_length(session, before)
        ledger.rename(config.model_dump_json(), misnamed.values())
        made_with = ledger.get("phalanx_version")
        if made_with != __version__:
            ledger.event("version", f"continued with {__version__}, started with {made_with}")
            session.progress.say(f"Note: this run was started with phalanx {made_with}")
        return
    members = pool.members_from(config)
    facts = start_facts(
        config, members, method=config.method, inputs=fingerprint, iterations=length_of(config)
    )
    facts["skipped_instructions"] = canonical_json(read.skipped)
    facts["skipped_items"] = canonical_json(skipped := skipped_of(config))
    facts["contamination"] = contamination.stored(overlaps)
    for note in (*notes, *read.notes(), *skipped):
        session.progress.say(f"Note: {note}")
    for found in overlaps:
        if found.found:
            session.progress.say("Note: " + "\n  ".join(found.lines()))
    recruits = {member.name for member in pool.recruits_from(config)}
    ready = [member for member in members if member.name not in recruits]
    ledger.record_start(facts, ready, session.instructions)


def guard(session: Session, read: Sequence[Instruction]) -> list[contamination.Overlaps]:
    """Leave out what overlaps evaluation items, as ``instructions.contamination`` says.

    Raises ConfigError where nothing is left.
    """
    config, recruit = session.config, session.config.pool.recruit
    overlaps = [contamination.of_instructions(read, config, session.items)]
    session.instructions = tuple(one for one in read if one.id not in overlaps[0].ids)
    if recruit is not None and recruit.data != BUILTIN:
        rows = read_demonstrations(recruit.data)
        overlaps.append(contamination.of_demonstrations(rows, config, session.items))
        session.left_out = overlaps[1].ids
    for found in overlaps:
        found.refuse_nothing_left()
    return overlaps


def _unheard(ledger: Ledger, members: Sequence[Member]) -> dict[str, Member]:
    """Members behind endpoints that have answered nothing: the name of their model may be mended.

    Keyed as :func:`differences` says it.
    """
    return {
        f"pool.members.{member.name}.model": member
        for member in members
        if member.engine == "openai"
        and not ledger.count("responses", "member = ? AND status = 'done'", (member.name,))
    }


def _change_length(session: Session, before: Config) -> None:
    """A run may go on to more iterations, or be content with fewer, but not unmake one."""
    config, ledger = session.config, session.ledger
    if _shown(config) != _shown(before):
        ledger.put("config", config.model_dump_json())
    if config.iterations == before.iterations or not length_of(config):
        return
    recorded = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"] or 0
    if config.iterations < recorded:
        raise LedgerError(
            f"{session.folder} has {recorded} iterations already; iterations cannot be "
            f"{config.iterations}"
        )
    ledger.set_length(config.model_dump_json(), config.iterations)


def _shown(config: Config) -> tuple[Any, ...]:
    """What may change at any time, and is shown, or read, from the ledger."""
    limits = (config.judge.max_unreadable, config.guard, config.budget)
    return (config.aggregate.anchors, *limits, config.share, config.track)


def prepare_pool(session: Session) -> None:
    """Make the recruits that do not exist yet."""
    settings = session.config.pool.recruit
    if settings is None:
        return
    done = session.ledger.trained(0)
    owed = [m for m in pool.recruits_from(session.config) if m.name not in done]
    if not owed:
        return
    session.progress.say(f"Recruiting {len(owed)} specialists from {owed[0].base}")
    folder = session.folder.resolve() / "adapters" / "iteration-0"
    jobs = recruit_jobs(settings, owed, folder, seed=session.config.seed, left_out=session.left_out)
    jobs = tracked(session.config, session.ledger, jobs)
    results = session.workshop.train("recruit", jobs, session.progress, session.check_stop)
    _record_trainings(session, 0, "recruit", results)


def learn(session: Session, number: int) -> None:
    """Train every learner on what the iteration gave it; recorded one by one, in pool order.

    Who had nothing to learn from keeps its version: it has not changed, and is not measured anew.
    """
    config, ledger = session.config, session.ledger
    if config.train.method == "none":
        return
    done = ledger.trained(number)
    members = [m for m in ledger.members(number - 1) if m.name not in done]
    lesson_of = METHODS[config.method].lesson
    lessons = {
        member: lesson
        for member in pool.learners(members)
        if member.engine in TRAINABLE and (lesson := lesson_of(config, number, member.name))
    }
    if not lessons:
        return
    pairs = with_label_noise(stored_pairs(ledger, number), config.train.label_noise, config.seed)
    initial = {member.name: member for member in ledger.members(0)}
    jobs = [
        _job(session, number, member, lesson, pairs, initial[member.name].adapter)
        for member, lesson in lessons.items()
    ]
    jobs = session.guards.watched(number, tracked(config, ledger, jobs))
    results = session.workshop.train("train", jobs, session.progress, session.check_stop)
    results = session.guards.trained(number, results)
    _record_trainings(session, number, "train", _learned(session, number, lessons, results))


def _learned(
    session: Session, number: int, lessons: Mapping[Member, str], results: Iterator[TrainResult]
) -> Iterator[TrainResult]:
    """The results; those of no example are of the member as it was before, and are told."""
    before = {member.name: member for member in lessons}
    for result in results:
        if result.num_examples or NOT_FINITE in result.num_dropped:
            yield result
            continue
        member, ledger = before[result.member.name], session.ledger
        lesson = lessons[member]
        lost = result.num_dropped or _dropped_rows(ledger, number, member, lesson)
        listed = ", ".join(f"{count} {reason}" for reason, count in sorted(lost.items()))
        hint = "where texts are too long, raise the limit"
        kinds = ("judgments", "responses") if lesson.endswith("pairs") else ("responses",)
        if what := next((k for k in kinds if ledger.count(k, "iteration = ?", (number,))), ""):
            alike = "ties are scores or votes that are alike"
            hint = f"look at the {what} (phalanx export RUN {what}): {alike}; {hint}"
        session.progress.say(
            f"Note: {member.name} had nothing to learn from in iteration {number} and stays as it "
            f"was (dropped: {listed or 'none'}); {hint}"
        )
        yield replace(result, member=member)


def _dropped_rows(ledger: Ledger, number: int, member: Member, lesson: str) -> dict[str, int]:
    """How many rows of this lesson were dropped, by the reason."""
    _, _, builder = lesson.partition(":")
    table, own, values = "demonstrations", " AND builder = ?", (builder,)
    if lesson == "own pairs":
        table, own, values = "pairs", " AND ? IN (chosen_member, rejected_member)", (member.name,)
    elif not builder:
        table, own, values = "pairs", "", ()
    rows = ledger.query(
        f"SELECT dropped, count(*) AS n FROM {table} WHERE iteration = ? AND dropped <> ''{own} "
        "GROUP BY 1",
        (number, *values),
    )
    return {row["dropped"]: row["n"] for row in rows}


def _job(
    session: Session,
    number: int,
    member: Member,
    lesson: str,
    pairs: Sequence[PreferencePair],
    initial_adapter: str | None,
) -> TrainJob:
    """One learner's training in one iteration, which made ``pairs``; see
    :data:`phalanx.methods.Lesson`."""
    config, ledger = session.config, session.ledger
    examples: Sequence[PreferencePair] | Sequence[Demonstration]
    settings: OptimiserSettings
    kind, _, builder = lesson.partition(":")
    if kind in ("demonstrations", "rated"):
        settings = config.sft if kind == "demonstrations" else config.grpo
        examples = [row for row in ledger.demonstrations(number, builder) if not row.drop]
    else:
        settings = config.pair_training
        examples = pairs
        if lesson == "own pairs":
            examples = [p for p in pairs if member.name in (p.chosen_member, p.rejected_member)]
        if config.train.method == "sft":
            examples = [chosen_alone(pair) for pair in examples]
    return TrainJob(
        member=member,
        examples=tuple(examples),
        settings=settings,
        folder=session.folder.resolve() / "adapters" / f"iteration-{number}" / member.name,
        seed=derive_seed("train", config.seed, number, member.name),
        version=member.version + 1,
        initial_adapter=initial_adapter,
    )


def measure(session: Session, number: int) -> None:
    """Evaluate the members, and the mixture, as they are after an iteration (0: at the start)."""
    ledger = session.ledger
    if not session.items or ledger.has_evaluation(number):
        return
    members = pool.measured(session.config, ledger.members(number))
    ask = session.ask(number)
    mixture = mixture_after(session.config, ledger, number)
    if mixture is not None:
        evaluate_mixture(mixture, session.items, ask, ledger, session.config, iteration=number)
    evaluate(members, session.items, ask, ledger, session.config, iteration=number)


def measure_together(session: Session) -> None:
    """Where the method is one that only answers: the members answer every item as one."""
    config, ledger = session.config, session.ledger
    method = METHODS[config.method]
    if method.answer is None or ledger.get(together_key(0, config.method)) is not None:
        return
    members = ledger.members(0)
    counts = evaluate_together(
        config.method,
        members,
        session.items,
        session.ask(0),
        ledger,
        config,
        best=best_on_dev(ledger, [member.name for member in members]),
        iteration=0,
    )
    listed = ", ".join(f"{count} {what}" for what, count in counts.items())
    session.progress.say(f"{config.method}: {listed}")


def stored_pairs(ledger: Ledger, number: int) -> list[PreferencePair]:
    """The kept pairs of an iteration, in the order of their ids: the same in every process."""
    rows = ledger.query(
        "SELECT p.*, i.text, i.domain, i.flags, i.later FROM pairs p JOIN instructions i "
        "ON i.id = p.instruction WHERE p.iteration = ? AND p.dropped = '' ORDER BY p.id",
        (number,),
    )
    return [
        PreferencePair(
            id=row["id"],
            instruction=prompt_of(row),
            chosen=row["chosen"],
            rejected=row["rejected"],
            chosen_member=row["chosen_member"],
            rejected_member=row["rejected_member"],
            margin=row["margin"],
            weight=row["weight"],
            chosen_probability=row["chosen_probability"],
            rejected_probability=row["rejected_probability"],
            chosen_truncated=bool(row["chosen_truncated"]),
            rejected_truncated=bool(row["rejected_truncated"]),
        )
        for row in rows
    ]


def prompt_of(row: Mapping[str, Any]) -> Instruction:
    """What a stored pair is about: the first user turn, or the whole of a conversation."""
    plain = Instruction(row["instruction"], row["text"], row["domain"])
    if WHOLE not in json.loads(row["flags"]):
        return plain
    return replace(plain, turns=(Message("user", row["text"]), *messages(row["later"])))


def _start_of(session: Session, number: int) -> Iteration:
    """Everything the method sees, from the ledger alone: that is what makes resuming exact."""
    config, ledger = session.config, session.ledger
    method = METHODS[config.method]
    members = tuple(ledger.members(number - 1))
    state = ledger.state(number - 1)
    if state is None:
        state = {
            "standings": standings_at_start(config, members), "reliability": {}, "faded": {},
        }  # fmt: skip
    standings: dict[str, Standing] = state["standings"]
    judged = ledger.num_judged(before=number)
    if getattr(config.reputation, "restart_each_iteration", False):
        judged = 0
        standings = {name: replace(s, changes=()) for name, s in standings.items()}
    return Iteration(
        number=number,
        seed=config.seed,
        members=members,
        instructions=method.draw(config, session.instructions, number),
        standings=standings,
        reliability=state["reliability"],
        num_duels_before=judged,
        faded=state["faded"],
        earlier=tuple(tuple(ledger.members(before)) for before in range(number)),
        given=method.given(config, number) if method.given else (),
        anchors=anchors_of(ledger, config, number),
    )


def _record_trainings(
    session: Session, number: int, phase: str, results: Iterator[TrainResult]
) -> None:
    started = time.monotonic()
    for result in results:
        session.ledger.record_training(number, result)
        tell(session.ledger, session.progress, result.notes)
        session.ledger.add_seconds(number, phase, time.monotonic() - started, 1)
        started = time.monotonic()
