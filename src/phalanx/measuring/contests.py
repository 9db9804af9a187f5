"""Contests: tasks without a right answer, whose answers judges compare or rate.

``alpaca_eval`` and ``arena_hard`` against one baseline, ``mt_bench`` alone and in two turns,
``open`` by ``judge.protocol``. Every verdict is a row of ``games``; what follows from them is in
:mod:`phalanx.report.games`, and from them alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.asking import Asking
from phalanx.benchmarks import mt_bench
from phalanx.benchmarks.alpaca_eval import Gamed
from phalanx.benchmarks.alpaca_files import read_difficulty, read_gamed
from phalanx.benchmarks.questions import Outputs, Questions, read_outputs, read_questions
from phalanx.benchmarks.records import Question
from phalanx.collective.conversation import Answer
from phalanx.config.schema import Config, TaskSettings
from phalanx.errors import ConfigError, LedgerError
from phalanx.evaluate import summed
from phalanx.identity import canonical_json, content_id
from phalanx.ledger.rows import CONTEST
from phalanx.measuring.contests_judging import Bench, Match, Row, battles, preferences, ratings
from phalanx.measuring.contests_open import comparisons
from phalanx.measuring.subjects import Subject, answers, may_compare, record_counts
from phalanx.methods import Reached
from phalanx.types import Member, Message, Sampling

OUTPUT = "baseline"
"""The rival's name where the baseline's answers are in the rows themselves."""
PUBLISHED_JUDGE = "gpt-4-1106-preview"
PUBLISHED_BASELINES = ("gpt4_1106_preview", "gpt-4-1106-preview")


@dataclass(frozen=True, slots=True)
class Baseline:
    """Whom everybody meets: a subject, or answers that are there already, by the question's id."""

    name: str
    subject: Subject | None = None
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def members(self) -> frozenset[str]:
        return frozenset(one.name for one in self.subject.members) if self.subject else frozenset()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A contest that can begin: everything is read and checked, and nobody was asked.

    ``judges`` has those who may judge each subject, by its name. ``facts`` go to the ledger, for
    whoever computes the tables.
    """

    task: TaskSettings
    questions: Questions
    subjects: tuple[Subject, ...]
    baseline: Baseline | None
    judges: dict[str, tuple[Member, ...]]
    facts: dict[str, Any]

    @property
    def inputs(self) -> str:
        """The content id of everything that was read: questions, outputs, difficulties."""
        texts = self.baseline.texts if self.baseline else {}
        lengths = (self.facts["difficulty"], self.facts["gamed"])
        return content_id(self.questions, texts, *lengths)


def prepare(
    task: TaskSettings, subjects: Sequence[Subject], judges: Sequence[Member], config: Config
) -> Prepared:
    """Read and check everything that a contest needs; no model is loaded and nobody is asked.

    Nobody judges an answer of their own, nor one against it, whatever its version. Raises
    ConfigError with all faults: bad rows, nobody to meet, no judge left, judges that cannot judge
    this kind, files that do not fit.
    """
    questions = read_questions(task, config.seed)
    faults = _settings_faults(task, subjects, judges, config)
    baseline, difficulty, gamed = None, {}, ()
    try:
        baseline = _baseline(task, questions, subjects)
    except ConfigError as error:
        faults += error.faults
    try:
        difficulty, gamed = _lengths(task, questions)
    except ConfigError as error:
        faults += error.faults
    players = tuple(one for one in subjects if baseline is None or one is not baseline.subject)
    if baseline is not None and baseline.name in [one.name for one in players]:
        faults.append(
            f"the baseline's answers, which are there already, are called {baseline.name}, and so "
            "is one of those who are measured; give one of them another name (NAME=MODEL; of a "
            "file of outputs, its generator)"
        )
    if baseline is not None and not players:
        faults.append(
            f"nobody is left to meet the baseline {baseline.name}; name further members, or a file "
            "of outputs as the baseline"
        )
    may_judge = {subject.name: _outsiders(subject, baseline, judges) for subject in players}
    if lost := [name for name, found in may_judge.items() if judges and not found]:
        faults.append(
            f"nobody may judge {', '.join(lost)}: the judges are "
            f"{', '.join(judge.name for judge in judges)}, and nobody judges an answer of their "
            "own or one against it; name others in evaluate.judges"
        )
    if faults:
        raise ConfigError(faults, f"task {task.name}")
    facts = {
        "kind": task.kind,
        "version": questions.version,
        "baseline": baseline.name if baseline else "",
        "subjects": [subject.name for subject in players],
        "judges": [judge.name for judge in judges],
        "published": _is_published(judges, baseline),
        "turns": {row.id: list(row.turns) for row in questions.rows},
        "groups": {row.id: row.group for row in questions.rows},
        "index": {row.id: row.index for row in questions.rows if row.index is not None},
        "difficulty": {str(index): value for index, value in difficulty.items()},
        "gamed": [[g.index, g.share, g.length_difference, g.difficulty] for g in gamed],
        "notes": _notes(players, judges, config),
    }
    return Prepared(task, questions, players, baseline, may_judge, facts)


def contest(made: Prepared, place: Asking) -> None:
    """Have the subjects answer and the judges judge; every verdict is in ``games`` then.

    The same call goes on where an earlier one stopped, and one with further subjects adds to it.
    Raises LedgerError, before anybody is asked, where the folder has this contest against another
    baseline.
    """
    task = made.task
    earlier = json.loads(place.ledger.get(f"{CONTEST}{task.name}") or "{}")
    if earlier and earlier["baseline"] != made.facts["baseline"]:
        raise LedgerError(
            f"task {task.name} was played against {earlier['baseline']} here, and is now to be "
            f"against {made.facts['baseline']}; measure {earlier['baseline']} again beside the "
            "others, name it as the baseline, or choose another folder with --out"
        )
    said = {one.name: _answered(one, made, place) for one in made.subjects}
    others = _baseline_answers(made, place)
    matches = [
        Match(
            question,
            subject.name,
            made.baseline.name if made.baseline else "",
            said[subject.name][at],
            others[at],
            made.judges[subject.name],
        )
        for subject in made.subjects
        for at, question in enumerate(made.questions.rows)
    ]
    bench = Bench(task, place.config, place.ask(0), place.ledger)
    ways: dict[str, Callable[[], list[Row]]] = {
        "alpaca_eval": lambda: preferences(matches, bench),
        "arena_hard": lambda: battles(matches, bench, made.questions.version),
        "mt_bench": lambda: ratings(matches, bench),
        "open": lambda: comparisons(matches, bench),
    }
    rows = ways[task.kind]()
    ids = {
        question.id: mine[0].response_id
        for question, mine in zip(made.questions.rows, others, strict=True)
        if made.baseline and made.baseline.subject
    }
    facts = {**made.facts, "baseline_answers": ids}
    for name in ("subjects", "judges", "notes"):
        facts[name] = list(dict.fromkeys([*earlier.get(name, []), *facts[name]]))
    place.ledger.put(f"{CONTEST}{task.name}", canonical_json(facts))
    place.ledger.record_games([{**row, "task": task.name} for row in rows])


# Checking -----------------------------------------------------------------------------------------


def _outsiders(
    subject: Subject, baseline: Baseline | None, judges: Sequence[Member]
) -> tuple[Member, ...]:
    """The judges who have no answer of their own in a match of this subject."""
    own = {member.name for member in subject.members} | (baseline.members if baseline else set())
    return tuple(judge for judge in judges if judge.name not in own)


def _settings_faults(
    task: TaskSettings, subjects: Sequence[Subject], judges: Sequence[Member], config: Config
) -> list[str]:
    faults = []
    if not judges:
        faults.append("nobody judges; name judges in evaluate.judges")
    names = [one.name for one in subjects]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        faults.append(f"{', '.join(twice)} is there twice; give every one a name of its own")
    if task.bad_rows == "skip":
        faults.append("bad_rows is skip, and a contest asks every question; mend the file's rows")
    if task.kind == "mt_bench" and task.temperature:
        faults.append("mt_bench has its published temperature for each category; leave it out")
    if task.kind == "mt_bench" and task.baseline:
        faults.append("mt_bench rates answers alone; leave baseline out")
    if task.kind != "alpaca_eval" and (task.difficulty or task.gamed):
        faults.append("difficulty and gamed are for kind alpaca_eval; leave them out")
    for judge in judges:
        if task.kind != "open" and judge.engine == "reward":
            faults.append(f"the judge {judge.name} is a reward model, which serves kind open alone")
        elif task.kind == "open" and not may_compare(judge, config):
            faults.append(
                f"judge.protocol is {config.judge.protocol!r}, by which {judge.name} (engine "
                f"{judge.engine}) cannot compare answers; set it to pairwise, rubric, expected or "
                "likelihood, or name judges with engine: reward"
            )
    return faults


def _baseline(
    task: TaskSettings, questions: Questions, subjects: Sequence[Subject]
) -> Baseline | None:
    """Whom everybody meets; None where answers are rated alone."""
    if task.kind == "mt_bench":
        return None
    known = {one.name: one for one in subjects}
    if task.baseline in known:
        return Baseline(task.baseline, known[task.baseline])
    if task.baseline:
        if not Path(task.baseline).expanduser().is_file():
            raise ConfigError(
                f"baseline {task.baseline!r} is neither a file nor one of those who are measured "
                f"({', '.join(known)})"
            )
        found = read_outputs(task.baseline)
        return Baseline(
            found.generator or Path(task.baseline).stem, texts=_texts(found, questions, task)
        )
    outputs = {row.id: row.references[0] for row in questions.rows if row.references}
    if outputs and task.kind in ("alpaca_eval", "open"):
        if missing := [row.id for row in questions.rows if row.id not in outputs]:
            raise ConfigError(
                f"{len(missing)} of {len(questions.rows)} rows have no output of the baseline (the "
                f"first: {', '.join(missing[:5])}); mend the file, or name a baseline"
            )
        return Baseline(OUTPUT, texts=outputs)
    if not subjects:
        raise ConfigError("nobody is measured, and no baseline is named")
    return Baseline(subjects[0].name, subjects[0])


def _texts(found: Outputs, questions: Questions, task: TaskSettings) -> dict[str, str]:
    texts = {row.id: found.of(row) for row in questions.rows}
    if missing := [name for name, text in texts.items() if text is None]:
        raise ConfigError(
            f"the baseline file {task.baseline} has no output for {len(missing)} of {len(texts)} "
            f"questions (the first: {', '.join(missing[:5])}); a row is found by its id and its "
            "instruction, whichever it has"
        )
    return {name: text for name, text in texts.items() if text is not None}


def _lengths(
    task: TaskSettings, questions: Questions
) -> tuple[dict[int, float], tuple[Gamed, ...]]:
    """Difficulties of the questions and the gamed rows; none where no file is named."""
    if task.kind != "alpaca_eval" or not (task.difficulty or task.gamed):
        return {}, ()
    if not task.difficulty:
        raise ConfigError("gamed is set without difficulty; name the file of difficulties, too")
    known = read_difficulty(task.difficulty)
    missing = [row.id for row in questions.rows if row.index is None or row.index not in known]
    if missing:
        raise ConfigError(
            f"{len(missing)} of {len(questions.rows)} questions have no difficulty in "
            f"{task.difficulty} (the first: {', '.join(missing[:5])}); rows need the index of "
            "AlpacaEval's instructions"
        )
    gamed = read_gamed(task.gamed) if task.gamed else ()
    return {row.index: known[row.index] for row in questions.rows if row.index is not None}, gamed


def _is_published(judges: Sequence[Member], baseline: Baseline | None) -> bool:
    """Whether judge and baseline are those of the published length-controlled win rates."""
    return (
        [judge.base for judge in judges] == [PUBLISHED_JUDGE]
        and baseline is not None
        and baseline.name in PUBLISHED_BASELINES
    )


def _notes(subjects: Sequence[Subject], judges: Sequence[Member], config: Config) -> list[str]:
    """Reward models that labelled the pairs from which somebody here has learned."""
    labelled = {student.reward for student in config.moaa.students}
    if config.judge.protocol == "reward":
        labelled |= {judge.name for judge in judges if judge.engine == "reward"}
    trained = any(member.version > 0 for one in subjects for member in one.members)
    return [
        f"{judge.name} labelled the pairs that members learned from: that they please it more now "
        "says little; have another judge"
        for judge in judges
        if trained and judge.name in labelled
    ]


# Answering ----------------------------------------------------------------------------------------


def _baseline_answers(made: Prepared, place: Asking) -> list[tuple[Answer, ...]]:
    """The baseline's answer to each question; none where answers are rated alone."""
    baseline = made.baseline
    if baseline is None:
        return [()] * len(made.questions.rows)
    if baseline.subject is not None:
        return _answered(baseline.subject, made, place)
    texts = [baseline.texts[row.id] for row in made.questions.rows]
    return [(Answer(baseline.name, text, drop="" if text.strip() else "empty"),) for text in texts]


def _answered(subject: Subject, made: Prepared, place: Asking) -> list[tuple[Answer, ...]]:
    """A subject's answers, turn by turn: its own first answer is in the second conversation.

    After a turn without an answer nothing more is asked.
    """
    questions = made.questions.rows
    said: list[list[Answer]] = [[] for _ in questions]
    reached: list[Reached] = []
    for turn in range(max(len(row.turns) for row in questions)):
        asked = [
            at
            for at, row in enumerate(questions)
            if turn < len(row.turns) and not any(answer.drop for answer in said[at])
        ]
        turns = [_so_far(questions[at], said[at], turn) for at in asked]
        wants = [_want(questions[at], made.task, place.config) for at in asked]
        found = answers(subject, turns, wants, place) if asked else []
        for at, one in zip(asked, found, strict=True):
            missing = Answer(subject.name, drop=one.reason)
            said[at].append(Answer.of(one.response, subject.name) if one.response else missing)
        reached += found
    record_counts(subject, made.task.name, summed(reached), place)
    for row, mine in zip(questions, said, strict=True):
        mine += [Answer(subject.name, drop="no earlier answer")] * (len(row.turns) - len(mine))
    return [tuple(mine) for mine in said]


def _so_far(question: Question, said: Sequence[Answer], turn: int) -> tuple[Message, ...]:
    found = []
    for number, answer in enumerate(said):
        found += [Message("user", question.turns[number]), Message("assistant", answer.text)]
    return (*found, Message("user", question.turns[turn]))


def _want(question: Question, task: TaskSettings, config: Config) -> Sampling:
    """MT-Bench has a temperature for each category, the others that of the task."""
    temperature = task.temperature
    if task.kind == "mt_bench":
        temperature = mt_bench.TEMPERATURES.get(question.group, 0.0)
    limit = config.evaluate.max_new_tokens
    return Sampling(temperature=temperature, top_p=1.0, top_k=0, max_new_tokens=limit)
