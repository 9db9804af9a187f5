"""What is to be measured, from the words of a command: a configuration, subjects, tasks.

Every fault is found before a model is loaded, and all of them are in one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from phalanx.collective.moa_reward import panel_from
from phalanx.config import rules
from phalanx.config.faults import did_you_mean
from phalanx.config.mixing import MOA
from phalanx.config.rules_answering import all_alike
from phalanx.config.rules_tasks import is_judged
from phalanx.config.schema import Config, TaskSettings
from phalanx.config.schema_evaluate import CONTESTS, TaskKind
from phalanx.errors import ConfigError, MissingPackage, PhalanxError
from phalanx.identity import content_id
from phalanx.measuring.contests import Prepared, prepare
from phalanx.measuring.lm_eval import PREFIX, lm_eval_faults, lm_eval_rows, row_name
from phalanx.measuring.origins import NAME, Members, Origin, origin_of, with_members
from phalanx.measuring.subjects import (
    BEST_OF,
    Subject,
    answering,
    judges_from,
    left_out,
    may_compare,
    voters,
    writing,
)
from phalanx.rows import SUFFIXES
from phalanx.sources import BUILTIN, read_demonstrations
from phalanx.tasks import BY_LIKELIHOOD, TaskItem, load_task, skipped_rows
from phalanx.tasks.contamination import DEMONSTRATIONS, INSTRUCTIONS, Overlaps, overlaps
from phalanx.tasks.kinds import HUB
from phalanx.types import Member

SKILLS = "skills"
KINDS: tuple[str, ...] = tuple(kind for kind in get_args(TaskKind) if kind)
_STEMS = {
    "truthfulqa_mc1": ("truthfulqa",),
    "truthfulqa_mc2": ("truthfulqa",),
    "normad_country": ("normad",),
    "normad_value": ("normad",),
    "normad_rot": ("normad",),
    "alpaca_eval": ("alpacaeval",),
}
"""Kinds that share a file with others, or whose file may be called otherwise."""


@dataclass(slots=True)
class Tasks:
    """Tasks from words; faults are gathered."""

    config: Config
    data: Path | None = None
    limit: int | None = None
    faults: list[str] = field(default_factory=list)

    def read(self, words: Sequence[str]) -> tuple[list[TaskSettings], list[str]]:
        """The tasks, and those of lm-eval."""
        known = {task.name: task for task in self.config.evaluate.tasks}
        found: dict[str, TaskSettings] = {}
        others = [word for word in dict.fromkeys(words) if word.startswith(PREFIX)]
        for word in words:
            if word.startswith(PREFIX):
                continue
            task = known.get(word) or self._task(word)
            if task is None:
                continue
            file = self._file(word, _kind_of(word)) if word in known else None
            if file is not None and str(file.absolute()) != task.source:
                self.faults.append(
                    f"--task {word}: evaluate.tasks has it with rows of its own ({task.source}), "
                    f"and --data has {file.name}; give {word}={file}, or leave --data out"
                )
            if task.name in found:
                self.faults.append(f"--task: two tasks are named {task.name}")
            found[task.name] = self._limited(task)
        return list(found.values()), others

    def default(self) -> list[TaskSettings]:
        return [self._limited(task) for task in self.config.evaluate.tasks]

    def _limited(self, task: TaskSettings) -> TaskSettings:
        return task if self.limit is None else task.model_copy(update={"total": self.limit})

    def _task(self, word: str) -> TaskSettings | None:
        name, equals, source = word.partition("=")
        if word == SKILLS:
            return _task(SKILLS, "", "builtin:skills")
        kind = _kind_of(name)
        if not kind:
            known = [*(task.name for task in self.config.evaluate.tasks), *KINDS, SKILLS]
            hint = did_you_mean(name, known)
            if Path(source or word).suffix in SUFFIXES:
                hint = (
                    "rows of your own are a task of the configuration: evaluate.tasks: "
                    "[{name: mine, source: mine.jsonl, match: number}]"
                )
            self.faults.append(f"--task {word}: no task and no kind has that name; {hint}")
            return None
        if not NAME.fullmatch(name):
            self.faults.append(f"--task {word}: {name!r} is not a short name")
            return None
        if equals:
            path = Path(source).expanduser()
            place = str(path.absolute()) if path.exists() else source
            return _task(name, kind, place)
        return self._by_kind(word, kind)

    def _by_kind(self, name: str, kind: str) -> TaskSettings | None:
        if file := self._file(name, kind):
            return _task(name, kind, str(file.absolute()))
        if kind in HUB and name == kind and self.data is None:
            return _task(name, kind, HUB[kind][0])
        stems = ", ".join(_stems(name, kind))
        looked = f" (looked in {self.data} for {stems})" if self.data else ""
        self.faults.append(
            f"--task {name}: no rows of kind {kind}{looked}; give them as {name}=FILE, or as "
            f"{name}.jsonl in the folder of --data"
        )
        return None

    def _file(self, name: str, kind: str) -> Path | None:
        """The file of a kind's rows in ``data``."""
        if self.data is None:
            return None
        files = [self.data / f"{stem}{end}" for stem in _stems(name, kind) for end in SUFFIXES]
        return next((file for file in files if file.is_file()), None)


def _stems(name: str, kind: str) -> list[str]:
    return [stem for stem in dict.fromkeys((name, kind, *_STEMS.get(kind, ()))) if stem]


def _task(name: str, kind: str, source: str) -> TaskSettings:
    return TaskSettings.model_validate({"name": name, "kind": kind, "source": source})


def _kind_of(name: str) -> str:
    """The kind that a name says: its own, or the longest that it begins with (math_hard)."""
    if name in KINDS:
        return name
    begun = [kind for kind in KINDS if name.startswith(f"{kind}_")]
    also = [kind for kind, stems in _STEMS.items() if name in stems and kind == "alpaca_eval"]
    return max([*begun, *also], key=len, default="")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured. ``config.evaluate.tasks`` are the tasks; ``items`` those that are scored.

    ``voters`` are members who answer as well because a collective chooses among their answers.
    ``start`` has everybody at iteration 0; ``judges`` are those of them who judge, the same for
    everybody, and empty where nothing is judged. ``members``: whoever is asked, with the iteration
    that they are of. ``weights``: subject that votes -> member -> weight. ``contests`` are ready to
    begin. ``rows``: task -> content id of what is asked. ``learned``: instructions and
    demonstrations of the run, those that overlap items. ``notes`` are shown before anybody is
    asked.
    """

    config: Config
    origin: Origin
    subjects: tuple[Subject, ...]
    voters: tuple[Subject, ...] = ()
    items: dict[str, tuple[TaskItem, ...]] = field(default_factory=dict)
    lm_eval: tuple[str, ...] = ()
    limit: int | None = None
    against: str = ""
    start: tuple[Member, ...] = ()
    judges: tuple[Member, ...] = ()
    members: tuple[tuple[int, Member], ...] = ()
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    contests: tuple[Prepared, ...] = ()
    rows: dict[str, str] = field(default_factory=dict)
    learned: tuple[Overlaps, ...] = ()
    notes: tuple[str, ...] = ()


def wanted(
    source: str | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    tasks: Sequence[str] = (),
    members: Sequence[str] = (),
    data: Path | str | None = None,
    limit: int | None = None,
    against: str = "",
) -> Wanted:
    """Read the words of ``phalanx eval``. Raises ConfigError that lists every fault.

    ``tasks``: names of ``evaluate.tasks``, kinds, ``KIND=FILE``, ``lm-eval:TASK``; default: all of
    ``evaluate.tasks``. ``members``: see :class:`Members`; default: everybody who answers, of a run
    at its start and at its end. ``limit``: items of each task. ``against``: whom the others are
    compared with.
    """
    origin = origin_of(source, overrides)
    reader = Members(origin)
    subjects = reader.read(members) if members else reader.default()
    given = Tasks(origin.config, None if data is None else Path(data).expanduser(), limit)
    chosen, others = given.read(tasks) if tasks else (given.default(), [])
    config = _with_tasks(with_members(origin.config, reader.bare), chosen)
    start = (*origin.versions[0], *reader.bare_members)
    items, faults = _items(chosen, config.evaluate.items_seed(config.seed))
    judges, unknown = _judges(config, start)
    subjects = [replace(s, judges=judges) if s.together == BEST_OF else s for s in subjects]
    also = _voters(subjects, items)
    names = [subject.name for subject in subjects]
    if against and against not in names:
        faults.append(f"--against {against}: nobody of that name is measured; "
                      f"{did_you_mean(against, names)}")  # fmt: skip
    faults += [
        *reader.faults,
        *given.faults,
        *_nothing(subjects, reader, [*chosen, *others], given, tasks),
        *(rules.faults(config, purpose="eval") if source is not None or start else ()),
        *_unfit(subjects, also, items, config),
        *_of_lm_eval(others, subjects),
    ]
    judged = any(task.kind in CONTESTS or is_judged(task) for task in chosen)
    judged = judged or any(subject.together == BEST_OF for subject in subjects)
    if unknown and judged and not faults:  # the rules do not know that recruits are not made
        faults.append(unknown)
    contests: list[Prepared] = []
    if not unknown:
        faults += _unfit_to_choose(subjects, judges, config, start)
    if not unknown and not reader.faults:  # whoever plays and judges is known
        contests, more = _contests(subjects, chosen, config, judges)
        faults += more
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    rows = {name: content_id(some) for name, some in items.items()}
    learned = _learned(origin, items, chosen)
    return Wanted(
        config=config,
        origin=origin,
        subjects=tuple(subjects),
        voters=also,
        items=items,
        lm_eval=tuple(others),
        limit=limit,
        against=against,
        start=start,
        judges=judges if judged else (),
        members=_asked(origin, subjects),
        weights={s.name: _weights(origin, s) for s in subjects if s.together},
        contests=tuple(contests),
        rows=rows | {made.task.name: made.inputs for made in contests} | _of_harness(others, limit),
        learned=learned,
        notes=(
            *_notes(subjects, also, items, chosen, others),
            *(line for one in learned for line in one.lines()),
        ),
    )


def _with_tasks(config: Config, tasks: Sequence[TaskSettings]) -> Config:
    return config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"tasks": list(tasks)})}
    )


def _nothing(
    subjects: Sequence[Subject],
    reader: Members,
    tasks: Sequence[object],
    given: Tasks,
    named: Sequence[str],
) -> list[str]:
    """Faults of what is not there at all, and of what nothing reads."""
    faults = []
    if given.data is not None and not given.data.is_dir():
        faults.append(f"--data {given.data}: there is no such folder")
    if not subjects and not reader.faults:
        faults.append("nobody to measure: name --members, such as builtin:smollm2-135m")
    if given.data is not None and not named:
        faults.append(f"--data {given.data} is read for tasks of --task alone; name some there")
    if not tasks and not given.faults:
        faults.append("nothing to measure on: name --task, or list tasks in evaluate.tasks")
    return faults


def _items(
    tasks: Sequence[TaskSettings], seed: int
) -> tuple[dict[str, tuple[TaskItem, ...]], list[str]]:
    """Items by task, and what is wrong with those that cannot be loaded."""
    found: dict[str, tuple[TaskItem, ...]] = {}
    faults = []
    for task in tasks:
        if task.kind in CONTESTS:
            continue
        try:
            found[task.name] = load_task(task, seed)
        except PhalanxError as error:  # a missing package or sandbox is a fault of the wish, too
            faults.append(str(error))
    return found, faults


def _judges(config: Config, start: Sequence[Member]) -> tuple[tuple[Member, ...], str]:
    """Who judges, and why not all who are named are there."""
    try:
        return judges_from(config, start), ""
    except ConfigError as error:
        return (), str(error)


def _voters(
    subjects: Sequence[Subject], items: Mapping[str, Sequence[TaskItem]]
) -> tuple[Subject, ...]:
    """The voters that some task asks."""
    every = voters(subjects)
    asked = [one for some in items.values() for one in answering(subjects, every, some[0])]
    return tuple(one for one in every if one in asked)


def _contests(
    subjects: Sequence[Subject],
    tasks: Sequence[TaskSettings],
    config: Config,
    judges: Sequence[Member],
) -> tuple[list[Prepared], list[str]]:
    """Every contest that can begin, and what is wrong with the others."""
    found, faults = [], []
    players = writing(subjects)
    for task in tasks:
        if task.kind in CONTESTS:
            try:
                found.append(prepare(task, players, judges, config))
            except ConfigError as error:
                faults.append(str(error))
    return found, faults


def _of_lm_eval(tasks: Sequence[str], subjects: Sequence[Subject]) -> list[str]:
    """Why tasks of lm-eval cannot be asked of those who are not left out of them."""
    if not tasks:
        return []
    players = writing(subjects)
    if subjects and not players:
        return [f"{', '.join(tasks)}: {left_out(subjects[0], None)}; name members besides"]
    try:
        return [
            fault for task in tasks for fault in lm_eval_faults(task.removeprefix(PREFIX), players)
        ]
    except MissingPackage as error:
        return [str(error)]


def _of_harness(tasks: Sequence[str], limit: int | None) -> dict[str, str]:
    """Content ids of what tasks of lm-eval ask, by the names of their rows."""
    if not tasks:
        return {}
    words = [task.removeprefix(PREFIX) for task in tasks]
    names = [row_name(word) for word in words]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{', '.join(twice)}: two files of one name; rename one")
    return {row_name(word): lm_eval_rows(word, limit) for word in words}


def _learned(
    origin: Origin, items: Mapping[str, Sequence[TaskItem]], tasks: Sequence[TaskSettings]
) -> tuple[Overlaps, ...]:
    """What the run's members may have learned of the items; only where something overlaps."""
    every = [item for some in items.values() for item in some]
    config, recruit = origin.config, origin.config.pool.recruit
    if not origin.is_run or config.instructions.contamination == "off" or not every:
        return ()
    texts = {one.id: one.user_turns for one in origin.instructions}
    found = [overlaps(INSTRUCTIONS, texts, config.instructions.source, tasks, every)]
    if recruit is not None and recruit.data != BUILTIN:
        prompts = {one.id: (one.prompt,) for one in read_demonstrations(recruit.data)}
        found.append(overlaps(DEMONSTRATIONS, prompts, recruit.data, tasks, every))
    return tuple(one for one in found if one.found)


def _asked(origin: Origin, subjects: Sequence[Subject]) -> tuple[tuple[int, Member], ...]:
    """Everybody who answers, each version once, with the first iteration that it is of."""
    first: dict[Member, int] = {}
    for number in sorted(origin.versions):
        for member in origin.versions[number]:
            first.setdefault(member, number)
    every = dict.fromkeys(
        member for subject in subjects for member in (*subject.members, *subject.asked)
    )
    return tuple((first.get(member, 0), member) for member in every)


def _weights(origin: Origin, subject: Subject) -> dict[str, float]:
    """Reputations at the subject's iteration; 1 for whoever has none."""
    _, at, number = subject.name.partition("@")
    values = origin.reputations.get(int(number) if at else origin.last, {})
    return {member.name: values.get(member.name, 1.0) for member in subject.members}


def _unfit(
    subjects: Sequence[Subject],
    also: Sequence[Subject],
    items: Mapping[str, Sequence[TaskItem]],
    config: Config,
) -> list[str]:
    """Whoever answers and cannot be measured on a task: no likelihoods, nobody who could judge."""
    faults = []
    for name, some in items.items():
        players = answering(subjects, also, some[0])
        if subjects and not players:
            faults.append(f"{name}: {left_out(subjects[0], some[0])}; name members besides")
        if some[0].match in BY_LIKELIHOOD:
            behind = [s for s in players if not s.together and s.members[0].engine == "openai"]
            faults += [
                f"--members {one.name}: an endpoint gives no likelihood of a given text, which "
                f"{name} is scored by; use kind truthfulqa, or leave one out"
                for one in behind
            ]
        only = [one.name for one in players if config.evaluate.judges == [one.writer]]
        task = next(task for task in config.evaluate.tasks if task.name == name)
        alike = {s.together: all_alike(s.together, task, config) for s in players if s.is_method}
        faults += [f"--members {together}: {text}" for together, text in alike.items() if text]
        if some[0].match == "judged" and only:
            faults.append(
                f"{name}: {', '.join(only)} has no judge but itself, and nobody judges an answer "
                "of their own; name another in evaluate.judges"
            )
    return faults


def _unfit_to_choose(
    subjects: Sequence[Subject],
    judges: Sequence[Member],
    config: Config,
    start: Sequence[Member],
) -> list[str]:
    """Why the judges could not choose for ``best_of``."""
    choosing = [subject for subject in subjects if subject.together == BEST_OF]
    if not choosing:
        return []
    words = ", ".join(f"--members {subject.name}" for subject in choosing)
    protocol = config.judge.protocol
    if protocol == MOA:
        try:
            panel_from(config, start)
        except ConfigError as error:
            return [f"{words}: judge.protocol is moa, and {error}"]
        return []
    if not judges:
        return [f"{words}: nobody judges; name members in evaluate.judges"]
    faults = [
        f"{words}: judge.protocol is {protocol!r}, by which {judge.name} (engine {judge.engine}) "
        "cannot compare answers; set it to pairwise, rubric, expected or likelihood, or name "
        "judges with engine: reward"
        for judge in judges
        if not may_compare(judge, config)
    ]
    for subject in choosing:
        if not _judged([member.name for member in subject.members], judges):
            faults.append(
                f"--members {subject.name}: every judge is one of two members, and nobody judges "
                "an answer of their own; name another in evaluate.judges"
            )
    return faults


def _judged(names: Sequence[str], judges: Sequence[Member]) -> bool:
    """Whether some two of the members have a judge who is neither."""
    return len(names) > 2 or any(judge.name not in names for judge in judges)


def _notes(
    subjects: Sequence[Subject],
    also: Sequence[Subject],
    items: Mapping[str, Sequence[TaskItem]],
    tasks: Sequence[TaskSettings],
    others: Sequence[str],
) -> list[str]:
    """Who is measured beside those named, what collectives are not measured on, and bad rows."""
    found = [note for task in tasks if (note := skipped_rows(task))]
    if also:
        names = ", ".join(subject.name for subject in also)
        found.append(f"Measured as well, since a collective chooses among their answers: {names}")
    for subject in subjects:
        for task in tasks:
            some = items.get(task.name)
            if reason := left_out(subject, some[0] if some else None):
                found.append(f"{subject.name} is not measured on {task.name}: {reason}")
        for name in others:
            if reason := left_out(subject, None):
                found.append(f"{subject.name} is not measured on {name}: {reason}")
    return found
