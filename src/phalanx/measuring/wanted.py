"""What is to be measured, from the words of a command: a configuration, subjects, tasks.

Every fault is found before a model is loaded, and all of them are in one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from phalanx.config import rules
from phalanx.config.faults import did_you_mean
from phalanx.config.rules_tasks import is_judged
from phalanx.config.schema import Config, TaskSettings
from phalanx.config.schema_evaluate import CONTESTS, TaskKind
from phalanx.errors import ConfigError, MissingPackage, PhalanxError
from phalanx.identity import content_id
from phalanx.measuring.contests import prepare
from phalanx.measuring.origins import NAME, Members, Origin, origin_of, with_members
from phalanx.measuring.subjects import (
    BEST_OF,
    MIXED,
    Subject,
    judges_from,
    left_out,
    mixture_of,
    voters,
)
from phalanx.rows import SUFFIXES
from phalanx.sources import BUILTIN, read_demonstrations
from phalanx.tasks import BY_LIKELIHOOD, TaskItem, load_task, skipped_rows
from phalanx.tasks.contamination import DEMONSTRATIONS, INSTRUCTIONS, Overlaps, overlaps
from phalanx.tasks.kinds import HUB
from phalanx.types import Member

LM_EVAL = "lm-eval:"
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
        others = [word for word in dict.fromkeys(words) if word.startswith(LM_EVAL)]
        for word in words:
            if word.startswith(LM_EVAL):
                continue
            task = known.get(word) or self._task(word)
            if task is None:
                continue
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
            self.faults.append(
                f"--task {word}: no task and no kind has that name; {did_you_mean(name, known)}"
            )
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
        stems = dict.fromkeys((name, kind, *_STEMS.get(kind, ())))
        if self.data is not None:
            files = [self.data / f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES]
            for file in files:
                if file.is_file():
                    return _task(name, kind, str(file.absolute()))
        if kind in HUB and name == kind and self.data is None:
            return _task(name, kind, HUB[kind][0])
        looked = f" (looked in {self.data} for {', '.join(stems)})" if self.data else ""
        self.faults.append(
            f"--task {name}: no rows of kind {kind}{looked}; give them as {name}=FILE, or as "
            f"{name}.jsonl in the folder of --data"
        )
        return None


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
    ``start`` has everybody at iteration 0, judges among them; ``members`` whoever is asked, with
    the iteration that they are of. ``weights``: subject that votes -> member -> weight. ``rows``:
    task -> content id of what is asked. ``learned``: instructions of the run that overlap items.
    ``notes`` are shown before anybody is asked.
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
    members: tuple[tuple[int, Member], ...] = ()
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    learned: Overlaps = field(default_factory=lambda: Overlaps(INSTRUCTIONS, 0))
    notes: tuple[str, ...] = ()

    @property
    def contests(self) -> list[TaskSettings]:
        return [task for task in self.config.evaluate.tasks if task.kind in CONTESTS]


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
    items, faults = _items(chosen, config.seed)
    names = [subject.name for subject in subjects]
    if against and against not in names:
        faults.append(f"--against {against}: nobody of that name is measured; "
                      f"{did_you_mean(against, names)}")  # fmt: skip
    faults += [
        *reader.faults,
        *given.faults,
        *_nothing(subjects, reader, [*chosen, *others], given),
        *(rules.faults(config, purpose="eval") if source is not None or reader.bare else ()),
        *_unfit(subjects, items, chosen, config, start),
        *_of_lm_eval(others, subjects),
    ]
    rows = {name: content_id(some) for name, some in items.items()}
    if not faults:
        asked, faults = _contests(subjects, chosen, config, start)
        rows |= asked
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    also = voters(subjects)
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
        members=_asked(origin, subjects),
        weights={s.name: _weights(origin, s) for s in subjects if s.together},
        rows=rows,
        learned=learned,
        notes=(
            *_notes(subjects, also, items, chosen, others),
            *(learned.lines() if learned.found else ()),
        ),
    )


def _with_tasks(config: Config, tasks: Sequence[TaskSettings]) -> Config:
    return config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"tasks": list(tasks)})}
    )


def _nothing(
    subjects: Sequence[Subject], reader: Members, tasks: Sequence[object], given: Tasks
) -> list[str]:
    """Faults of what is not there at all."""
    faults = []
    if given.data is not None and not given.data.is_dir():
        faults.append(f"--data {given.data}: there is no such folder")
    if not subjects and not reader.faults:
        faults.append("nobody to measure: name --members, such as builtin:smollm2-135m")
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


def _contests(
    subjects: Sequence[Subject],
    tasks: Sequence[TaskSettings],
    config: Config,
    start: Sequence[Member],
) -> tuple[dict[str, str], list[str]]:
    """Content ids of what every contest reads, and what is wrong with it."""
    found, faults = {}, []
    for task in tasks:
        if task.kind in CONTESTS:
            players = [one for one in subjects if not left_out(one, None)]
            try:
                made = prepare(task, players, judges_from(config, start), config)
            except ConfigError as error:
                faults.append(str(error))
            else:
                found[task.name] = made.inputs
    return found, faults


def _of_lm_eval(tasks: Sequence[str], subjects: Sequence[Subject]) -> list[str]:
    """Why tasks of lm-eval cannot be asked of those who are not left out of them."""
    if not tasks:
        return []
    players = [one for one in subjects if not left_out(one, None)]
    if subjects and not players:
        return [f"{', '.join(tasks)}: {left_out(subjects[0], None)}; name members besides"]
    from phalanx.measuring.lm_eval import lm_eval_faults

    try:
        return [
            fault for task in tasks for fault in lm_eval_faults(task.removeprefix(LM_EVAL), players)
        ]
    except MissingPackage as error:
        return [str(error)]


def _learned(
    origin: Origin, items: Mapping[str, Sequence[TaskItem]], tasks: Sequence[TaskSettings]
) -> Overlaps:
    """Instructions of the run that overlap the items: its members may have learned from them."""
    every = [item for some in items.values() for item in some]
    if not origin.instructions or origin.config.instructions.contamination == "off":
        return Overlaps(INSTRUCTIONS, 0)
    texts = {one.id: one.user_turns for one in origin.instructions}
    return overlaps(INSTRUCTIONS, texts, origin.config.instructions.source, tasks, every)


def _asked(origin: Origin, subjects: Sequence[Subject]) -> tuple[tuple[int, Member], ...]:
    """Everybody who answers, each version once, with the first iteration that it is of."""
    first: dict[Member, int] = {}
    for number in sorted(origin.versions):
        for member in origin.versions[number]:
            first.setdefault(member, number)
    every = dict.fromkeys(member for subject in subjects for member in subject.members)
    return tuple((first.get(member, 0), member) for member in every)


def _weights(origin: Origin, subject: Subject) -> dict[str, float]:
    """Reputations at the subject's iteration; 1 for whoever has none."""
    _, at, number = subject.name.partition("@")
    values = origin.reputations.get(int(number) if at else origin.last, {})
    return {member.name: values.get(member.name, 1.0) for member in subject.members}


def _unfit(
    subjects: Sequence[Subject],
    items: Mapping[str, Sequence[TaskItem]],
    tasks: Sequence[TaskSettings],
    config: Config,
    start: Sequence[Member],
) -> list[str]:
    """Subjects that cannot be measured, or not on these tasks; nobody who could judge."""
    faults = []
    by_likelihood = [name for name, some in items.items() if some[0].match in BY_LIKELIHOOD]
    for subject in subjects:
        behind = any(member.engine == "openai" for member in subject.members)
        if by_likelihood and behind and subject.together not in (MIXED, BEST_OF):
            faults.append(
                f"--members {subject.name}: an endpoint gives no likelihood of a given text, which "
                f"{', '.join(by_likelihood)} is scored by; use kind truthfulqa, or leave one out"
            )
        if subject.together == MIXED:
            try:
                mixture_of(subject, config)
            except ConfigError as error:
                faults.append(f"--members {subject.name}: {error}")
    judged = [task.name for task in tasks if is_judged(task)]
    only = [
        subject.name
        for subject in subjects
        if not subject.together and config.evaluate.judges == [subject.members[0].name]
    ]
    if judged and only:
        faults.append(
            f"{', '.join(judged)}: {', '.join(only)} has no judge but itself, and nobody judges an "
            "answer of their own; name another in evaluate.judges"
        )
    contests = [task.name for task in tasks if task.kind in CONTESTS]
    choosing = [subject for subject in subjects if subject.together == BEST_OF]
    if not contests and not choosing:
        return faults
    known = {member.name for member in start}
    if not known.issuperset(config.evaluate.judges):
        return faults  # the rules say so
    judges = judges_from(config, start)
    if not judges:
        words = ", ".join([*contests, *(subject.name for subject in choosing)])
        faults.append(f"{words}: nobody judges; name members in evaluate.judges")
    for subject in choosing:
        names = [member.name for member in subject.members]
        if judges and config.judge.protocol != "moa" and not _judged(names, judges):
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
