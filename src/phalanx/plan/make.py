"""A configuration to a :class:`Plan`: every number that is known before a model is loaded."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx import pool
from phalanx.config import Config, load, rules
from phalanx.config.faults import Fault
from phalanx.config.keys import dotted
from phalanx.config.rules_answering import is_free
from phalanx.config.rules_tasks import LIKELIHOODS, is_judged
from phalanx.config.schema import MemberSettings, PoolSettings, StudentSettings, TaskSettings
from phalanx.config.uses import USES, source_of, wanted_of
from phalanx.errors import ConfigError
from phalanx.plan import speed
from phalanx.plan.content import content_faults, overlaps_of
from phalanx.plan.contexts import context_notes
from phalanx.plan.endpoints import EndpointPlan, budget_lines, endpoints_of
from phalanx.plan.guards import guard_notes
from phalanx.plan.machines import Machine, machine_named, this_machine
from phalanx.plan.memory import BasePlan
from phalanx.plan.placement import Placement
from phalanx.plan.rounds import CHARACTERS_A_TOKEN, Demand, Round, all_demands
from phalanx.plan.sizes import ModelShape, Size
from phalanx.plan.speed import Times, times_of
from phalanx.plan.stages import measuring_of, rankers_of, rounds_of
from phalanx.plan.units import unit_faults
from phalanx.plan.ways import Question, certain_faults, memory_faults, small_batches
from phalanx.plan.work import Work, recruit_examples, trained, work_of
from phalanx.types import Member

if TYPE_CHECKING:
    from phalanx.tasks.contamination import Overlaps

PAPER_MEMBERS = 10
PAPER_BASE = "Qwen/Qwen2.5-7B-Instruct"
PAPER_SHAPE = ModelShape(
    hidden=3584, layers=28, intermediate=18944, kv=512, vocabulary=152064, tied=False
)
PAPER_SIZE = Size(
    PAPER_SHAPE.parameters, "that of the paper's base", guessed=True, shape=PAPER_SHAPE
)
PAPER_PROPOSERS = {
    "wizardlm": "alpindale/WizardLM-2-8x22B",
    "gemma": "google/gemma-2-27b-it",
    "qwen2": "Qwen/Qwen2-72B-Instruct",
    "llama": "meta-llama/Llama-3.1-70B-Instruct",
}
PAPER_AGGREGATOR = ("qwen1.5", "Qwen/Qwen1.5-110B-Chat")
PAPER_STUDENT = ("student", "meta-llama/Llama-3.1-8B-Instruct")
USUAL_ROWS = 1000
"""Rows of a task on the hub, where nobody counted them."""
CHOICES = 5
"""Choices of a question that is scored by likelihood, where nobody counted them."""
USUAL_TOKENS = 60
"""Tokens of an instruction where nothing was measured."""
SKILL_TOKENS = 20
"""Tokens of an instruction of the embedded skills."""
MANY_SKILL_ROWS = 600
"""Up to this many there are certainly enough embedded instructions; counting them takes time."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """``count`` is None where it cannot be counted from here; ``tokens`` is an average.

    ``turns``: user turns of each, on average; ``tokens`` are those of one. ``notes``: what the
    reader of the file has to say.
    """

    count: int | None
    tokens: int
    how: str
    turns: float = 1.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All numbers of a run. ``work`` is for one iteration, ``evaluation_requests`` for all, as is
    ``measuring``, which has them by member and purpose.

    ``rounds`` say the same of every method: what is asked and trained in iterations that are alike.
    ``work`` is None where iterations are no duels.
    ``assumed`` says, for a preset without a pool, which pool the numbers are for.
    """

    config: Config
    iterations: int
    contestants: tuple[str, ...]
    judges: tuple[str, ...]
    learners: tuple[str, ...]
    recruits: tuple[str, ...]
    recruit_examples: int
    instructions: Instructions
    rounds: tuple[Round, ...]
    measuring: tuple[Demand, ...]
    work: Work | None
    evaluation_items: int
    evaluation_requests: int
    bases: tuple[BasePlan, ...]
    placement: Placement
    endpoints: tuple[EndpointPlan, ...]
    budget: tuple[str, ...]
    times: Times | None
    assumption: str
    writes_verdicts: bool
    assumed: str
    notes: tuple[str, ...]

    @property
    def seconds(self) -> dict[str, float] | None:
        """Rough seconds of one iteration (the first) by phase; None where they are not known."""
        return None if self.times is None else self.times.each

    @property
    def total_seconds(self) -> float | None:
        """Rough seconds of the whole run, recruiting and evaluation included."""
        return None if self.times is None else self.times.total


def require(config: Config, *, one_of_many: bool = False) -> list[str]:
    """Refuse a configuration that cannot run, with every fault in one message.

    Of memory only what is certain: ``check`` refuses by estimates too. Returns what is worth
    knowing of the configuration; of ``one_of_many``, whose file serves other methods as well,
    without the settings that its own method does not read. Raises ConfigError.
    """
    found = [*rules.check(config), *content_faults(config)]
    _refuse(config, found)
    question = Question(config, pool.members_from(config), this_machine(), USUAL_TOKENS)
    _refuse(config, list(certain_faults(question)))
    return _notes(config, [f for f in found if not (one_of_many and f.level == "unused")])


def _notes(config: Config, found: Sequence[Fault]) -> list[str]:
    data = config.model_dump()
    return [f"{dotted(one.path, data)}: {one.text}" for one in found if one.level != "fault"]


def _refuse(config: Config, found: Sequence[Fault]) -> None:
    data = config.model_dump()
    texts = [f"{dotted(f.path, data)}: {f.text}" for f in found if f.level == "fault"]
    if texts:
        raise ConfigError(texts)


def make_plan(config: Config, machine: Machine | None = None) -> Plan:
    """The plan of a configuration; a bare preset is planned for the paper's pool, and says so.

    ``machine``: plan for this one instead of the machine that runs here. Raises ConfigError with
    every fault, one for each base that has no room too; a pool and instructions may be missing.
    """
    complete = bool(config.pool.members or config.pool.recruit)
    gpus = None if machine is None else machine.gpus
    found = [*rules.check(config, complete=False, gpus=gpus), *content_faults(config)]
    _refuse(config, found)
    return _plan(config, found, complete, machine or this_machine())


def _plan(config: Config, found: list[Fault], complete: bool, machine: Machine) -> Plan:
    duels, mixes = config.method == "sparta", config.method == "moaa"
    if not complete and mixes:
        config = _with_papers_mixture(config)
    members = pool.members_from(config) if complete or mixes else _paper_pool()
    overlaps = overlaps_of(config)
    instructions = _without(_instructions(config), overlaps)
    tokens = instructions.tokens
    size = None if complete or mixes else PAPER_SIZE
    question = Question(
        config, members, machine, tokens, size, instructions.turns, instructions.count
    )
    placement, bases, rounds = question.placement(), question.bases(), question.rounds()
    faults = [*unit_faults(config, placement.units), *memory_faults(question, placement)]
    if not complete and machine.here:  # a preset alone: nobody has said yet where it is to run
        faults = [replace(fault, level="note") for fault in faults]
    _refuse(config, faults)
    items, judged, free = _evaluation_items(config)
    measuring = measuring_of(config, members, tokens, items, judged, free)
    endpoints = endpoints_of(config, members, rounds, measuring)
    notes = _notes(config, [*found, *faults])
    notes += ["\n  ".join(one.lines()) for one in overlaps if one.found]
    notes += instructions.notes
    notes += [*_short_of(config, instructions), *_first_turns(config, instructions)]
    notes += [*_skipped(config), *_from_hub(config)]
    asked = [*(demand for _, demand in all_demands(rounds)), *measuring]
    notes += context_notes(config, bases, asked)
    times = times_of(config, bases, placement, tokens, rounds, measuring)
    notes += guard_notes(config, rounds, items * config.evaluate.dev_share, times)
    if mixes:
        notes += rankers_of(config)
    served = any(wave.server for wave in placement.waves)
    contestants = pool.contestants(members)
    writes = any(d.purpose == "judge" and d.written for one in rounds for d in one.demands)
    return Plan(
        config=config,
        iterations=config.iterations,
        contestants=_names(contestants),
        judges=_names(pool.judges(members)),
        learners=_names(trained(config, members)),
        recruits=_names(pool.recruits_from(config)),
        recruit_examples=sum(recruit_examples(config).values()),
        instructions=instructions,
        rounds=rounds,
        measuring=tuple(measuring),
        work=work_of(config, members, tokens) if duels else None,
        evaluation_items=items,
        evaluation_requests=math.ceil(sum(demand.requests for demand in measuring)),
        bases=tuple(bases),
        placement=placement,
        endpoints=endpoints,
        budget=tuple(budget_lines(config, endpoints)),
        times=times,
        assumption=speed.words(placement.units, served),
        writes_verdicts=writes,
        assumed="" if complete else _assumed(mixes),
        notes=(*notes, *small_batches(question, placement)),
    )


def rescaled(plan: Plan, config: Config) -> tuple[tuple[Round, ...], tuple[Demand, ...]]:
    """(rounds, measuring) of a configuration that differs from the plan's in sizes alone.

    No fault is looked for again, and nothing about the machine is reckoned.
    """
    known, members = plan.instructions, pool.members_from(config)
    rounds = rounds_of(config, members, known.tokens, known.turns, known.count)
    sums = _evaluation_items(config)
    return rounds, tuple(measuring_of(config, members, known.tokens, *sums))


def _assumed(mixes: bool) -> str:
    words = f"planned for {PAPER_MEMBERS} members on {PAPER_BASE}"
    if mixes:
        words = f"planned for {', '.join([*PAPER_PROPOSERS.values(), PAPER_AGGREGATOR[1]])} and "
        words += f"one student, {PAPER_STUDENT[1]}"
    return f"there is no pool yet: {words}, as in the paper"


def _paper_pool() -> tuple[Member, ...]:
    return tuple(Member(name=f"m{n}", base=PAPER_BASE) for n in range(1, PAPER_MEMBERS + 1))


def _with_papers_mixture(config: Config) -> Config:
    """The preset with the mixture of the paper (stage 1), and one of its students."""
    teachers = {**PAPER_PROPOSERS, PAPER_AGGREGATOR[0]: PAPER_AGGREGATOR[1]}
    members = [
        MemberSettings(name=name, model=model, roles=["contest", "judge"])
        for name, model in teachers.items()
    ]
    members.append(MemberSettings(name=PAPER_STUDENT[0], model=PAPER_STUDENT[1]))
    given = {"proposers": list(PAPER_PROPOSERS), "aggregator": PAPER_AGGREGATOR[0]}
    students = [StudentSettings(name=PAPER_STUDENT[0])]
    return config.model_copy(
        update={
            "pool": PoolSettings(members=members),
            "mixture": config.mixture.model_copy(update=given),
            "moaa": config.moaa.model_copy(update={"students": students}),
        }
    )


def _names(members: Sequence[Member]) -> tuple[str, ...]:
    return tuple(member.name for member in members)


def _instructions(config: Config) -> Instructions:
    settings = config.instructions
    if settings.source == "builtin:skills":
        count = settings.limit
        if count is None and max(_wanted(config).values(), default=0) > MANY_SKILL_ROWS:
            from phalanx.skills import DOMAINS, num_instructions
            from phalanx.sources import BUILTIN_COUNT

            count = min(BUILTIN_COUNT, num_instructions(settings.domains or DOMAINS))
        return Instructions(count, SKILL_TOKENS, "the embedded skills")
    if not Path(source_of(config)[1]).expanduser().is_file():
        return Instructions(None, USUAL_TOKENS, "assumed")
    from phalanx.sources import instructions_of

    found = instructions_of(config)
    if not (read := found.instructions):
        return Instructions(None, USUAL_TOKENS, "assumed")
    asked = [turn for instruction in read for turn in instruction.user_turns]
    tokens = max(1, round(sum(map(len, asked)) / len(asked) / CHARACTERS_A_TOKEN))
    turns, notes = len(asked) / len(read), tuple(found.notes())
    return Instructions(len(read), tokens, "measured in the file", turns, notes)


def _without(instructions: Instructions, overlaps: Sequence[Overlaps]) -> Instructions:
    """Those that are left where some overlap evaluation items. Raises ConfigError for none."""
    for found in overlaps:
        from phalanx.tasks.contamination import INSTRUCTIONS  # only where there are items

        found.refuse_nothing_left()
        if found.what == INSTRUCTIONS and instructions.count is not None:
            instructions = replace(instructions, count=instructions.count - len(found.ids))
    return instructions


def _wanted(config: Config) -> dict[str, int]:
    """Fresh instructions that the whole run asks for, by the setting that says how many."""
    wanted: dict[str, int] = {}
    if "instructions" in USES[config.method] or config.method == "preference_file":
        for number in range(1, config.iterations + 1):
            key, each = wanted_of(config, number) or ("", 0)
            wanted[key] = wanted.get(key, 0) + each
    return dict(sorted(wanted.items(), reverse=True))


def _short_of(config: Config, instructions: Instructions) -> list[str]:
    """A note where instructions come round again."""
    count = instructions.count
    if count is None:
        return []
    if config.method != "sparta":
        return _short_of_each(config, count)
    needed = config.match.duels * config.iterations
    if count >= needed:
        return []
    if count < config.match.duels:
        return [
            f"instructions: {count}, fewer than match.duels = {config.match.duels}: "
            "some are duelled over more than once in an iteration"
        ]
    return [f"instructions: {count} for {needed} duels in all: later iterations meet some again"]


def _short_of_each(config: Config, count: int) -> list[str]:
    """An iteration takes no instruction twice; later ones may meet some again."""
    notes = []
    what = "a stage" if config.method == "moaa" else "an iteration"
    rows = "pairs" if config.method == "preference_file" else "instructions"
    for key, needed in _wanted(config).items():
        section, name = key.split(".")
        each = getattr(getattr(config, section), name)
        if count < each:
            text = f"fewer than {key} = {each:,}: {what} takes all of them, and none twice"
            notes.append(f"{rows}: {count:,}, {text}")
        if count < needed and needed > each:
            text = f"fewer than the {needed:,} that {key} asks for in all: some are met again"
            notes.append(f"{rows}: {count:,}, {text}")
    return notes


def _first_turns(config: Config, instructions: Instructions) -> list[str]:
    """A note where later turns of conversations are not used."""
    if instructions.turns <= 1 or config.method == "preference_file":
        return []  # pairs are learned with all of their turns
    if config.method != "moaa":
        what = "duels are" if config.method == "sparta" else f"{config.method} is"
        return [f"instructions: some have several user turns; {what} about the first one alone"]
    if not any(key.startswith("moaa.dpo") for key in _wanted(config)):
        return []
    return ["instructions: some have several user turns; a stage dpo uses the first one alone"]


def _evaluation_items(config: Config) -> tuple[int, int, int]:
    """(requests to somebody who is measured, answers of theirs that judges grade, and those that
    nobody can vote on).

    An item is asked once, one scored by likelihood once for each choice, and one with samples once
    for each of them.
    """
    asked = graded = free = 0
    for task in config.evaluate.tasks:
        from phalanx.tasks import BY_LIKELIHOOD, loading

        if task.source == "builtin:skills":  # counted without drawing them, which takes time
            wanted = task.domains or loading.skills.DOMAINS
            items = len(wanted) * (task.limit or loading.ITEMS_PER_SKILL)
            count = items if task.total is None else min(items, task.total)
        elif task.source.startswith("hub:"):
            count = _hub_items(task)
        else:
            found = loading.load_task(task, seed=config.evaluate.items_seed(config.seed))
            count = sum(len(i.choices) if i.match in BY_LIKELIHOOD else 1 for i in found)
        asked += count * task.samples
        graded += count * task.samples * is_judged(task)
        free += count * task.samples * is_free(task)
    return asked, graded, free


def _hub_items(task: TaskSettings) -> int:
    """Requests, one sample of each, for a task whose rows are on the hub, which no plan asks.

    At most so many of a kind whose rows are known; else a guess, without the limit.
    """
    from phalanx.tasks.kinds import HUB_DOMAINS, HUB_ROWS

    rows = HUB_ROWS.get(task.kind, USUAL_ROWS)
    if task.kind in HUB_ROWS and task.limit:
        domains = len(task.domains) or HUB_DOMAINS.get(task.kind, 1)
        rows = min(rows, task.limit * domains)
    rows = min(rows, task.total or rows)
    return rows * (CHOICES if task.kind in LIKELIHOODS else 1)


def _skipped(config: Config) -> list[str]:
    """A note for each task that leaves bad rows out; the hub is not asked."""
    tasks = [task for task in config.evaluate.tasks if task.bad_rows == "skip"]
    if not (local := [task for task in tasks if not task.source.startswith("hub:")]):
        return []
    from phalanx.tasks import skipped_rows

    return [note for task in local if (note := skipped_rows(task))]


def _from_hub(config: Config) -> list[str]:
    """A note where the rows of a task were not counted."""
    return [
        f"evaluate.tasks: the hub is not asked for the rows of {task.name}; reckoned with "
        f"{_hub_items(task) * task.samples:,} requests to each member"
        for task in config.evaluate.tasks
        if task.source.startswith("hub:")
    ]


def check(
    source: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    machine: str | None = None,
    width: int = 100,
) -> tuple[int, str]:
    """(exit code, text) of ``phalanx check SOURCE OVERRIDES --machine MACHINE``.

    0 and the plan, or 2 and the faults.
    """
    from rich.console import Console

    from phalanx.plan.table import render

    try:
        plan = plan_for(source, overrides, machine)
    except ConfigError as error:
        return error.exit_code, str(error)
    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False)
    console.print(render(plan))
    return 0, stream.getvalue()


def plan_for(
    source: str | os.PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    machine: str | None = None,
) -> Plan:
    """Load a configuration and plan it, for this machine or the one named. Raises ConfigError."""
    other = None if machine is None else machine_named(machine)
    gpus = None if other is None else other.gpus
    return make_plan(load(source, overrides, also=(content_faults,), gpus=gpus), other)
