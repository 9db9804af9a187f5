"""Cells of a table, filled from the ledgers of the runs that exist.

Nothing is kept between two calls: what a cell shows is read from the ledgers each time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from phalanx.asking import stored_config
from phalanx.config import Config
from phalanx.config.compare import RESUME_FREE, differences
from phalanx.config.loading import map_paths
from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import MemberSettings, TaskSettings
from phalanx.errors import LedgerError
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import CONTEST
from phalanx.report.games import Contest, Line, Measure, contests, item_values
from phalanx.reproducing.configurations import Run, Study, changed
from phalanx.reproducing.papers import BEST_ALIGNED, BEST_INITIAL, Benchmark, Column, Published, Row
from phalanx.statistics import Interval, score_interval
from phalanx.tasks import TaskItem, split_of

EVAL = "-eval"
"""What the folder of a run's evaluation is called, behind that of the run."""
Key = tuple[int, str]
_FREE = (*RESUME_FREE, "resources")
_FREE_OF_RUN = tuple(key for key in _FREE if key != "iterations")


@dataclass(frozen=True, slots=True)
class Value:
    """What one run says of a cell, in the unit that its benchmark has here (a share, a rating).

    ``who`` was measured, on ``n`` items that are reported; ``partial`` says what is still to come.
    """

    seed: str
    value: float
    interval: Interval | None
    n: int
    who: str
    unit: str = "share"
    partial: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A published figure, and what is here beside it.

    ``absent`` says why nothing can be here yet; ``pending`` what runs are still without. ``notes``
    are conditions that differ from the paper's; with ``other_scale`` the two cannot be compared.
    """

    published: Published | None
    absent: str = ""
    values: tuple[Value, ...] = ()
    pending: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    other_scale: bool = False

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        found = [value.value for value in self.values]
        return sum(found) / len(found) if found else None


def cells(study: Study, runs: Path) -> dict[tuple[str, int, str], Cell]:
    """Every cell of the study: (table, position of the row, column) -> what it holds."""
    found = {}
    for place, row, column in study.cells():
        published = row.published(place[2])
        reason = study.absent.get(place, "")
        if reason:
            found[place] = Cell(published, reason)
        else:
            found[place] = _filled(study, row, column, published, runs)
    return found


def _filled(
    study: Study, row: Row, column: Column, published: Published | None, runs: Path
) -> Cell:
    run, benchmark = study.run_of(row, column), study.paper.benchmarks[column.benchmark]
    values, pending, missing = [], [], []
    notes = dict.fromkeys(_of_rows(benchmark))
    for seed in study.wish.seeds:
        folder = runs / run.name / f"seed-{seed}"
        if not folder.is_dir():
            missing.append(f"{folder.name}: no run yet")
            continue
        try:
            value, conditions = _of_seed(study, row, column, folder, seed)
        except LedgerError as error:
            pending.append(f"{folder.name}: {error}")
            continue
        if isinstance(value, str):
            pending.append(f"{folder.name}: {value}")
            continue
        values.append(value)
        notes |= dict.fromkeys(conditions)
    if values or pending:
        pending += missing
    other = bool(benchmark.other_scale) or any(value.note for value in values)
    return Cell(published, "", tuple(values), tuple(pending), tuple(notes) if values else (), other)


def _of_seed(
    study: Study, row: Row, column: Column, folder: Path, seed: int
) -> tuple[Value | str, list[str]]:
    """A run's value for a cell, or why it has none yet; and its conditions.

    Raises LedgerError where the run or its evaluation has no ledger that can be read.
    """
    run, benchmark = study.run_of(row, column), study.paper.benchmarks[column.benchmark]
    with _opened(folder) as ledger:
        config = stored_config(folder, ledger.get("config") or "{}")
        partial = _partial(ledger, config)
        written = run.config.model_copy(update={"seed": seed})
        notes = list(_other_settings(run.name, written, config, _FREE_OF_RUN))
        found: Value | str | None = None
        if benchmark.by == "run":
            found = _of_run(ledger, config, row.take, column.benchmark, folder.name, partial)
    measured = config
    if benchmark.by == "eval":
        place = folder.with_name(f"{folder.name}{EVAL}")
        with _opened(place) as ledger:
            measured = stored_config(place, ledger.get("config") or "{}")
            notes += _other_settings(f"{run.name}{EVAL}", _as_evaluated(config, run), measured)
            partial = partial or _eval_partial(ledger, config)
            source = _Evaluation(ledger, measured, study, benchmark, folder.name, partial)
            found = _of_eval(source, column.benchmark, row.take)
    notes += _conditions(study, run, config, measured, benchmark)
    return found or partial or f"{row.take} was not measured", notes


def _opened(folder: Path) -> Ledger:
    path = run_ledger_path(folder)
    if not path.is_file():
        raise LedgerError(f"not measured yet ({folder.name} is missing)")
    return Ledger(path)


def _partial(ledger: Ledger, config: Config) -> str:
    if ledger.get("finished") is not None:
        return ""
    last = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"]
    if last is None:
        return "not finished"
    return f"not finished, after iteration {last} of {config.iterations}"


# What a run measured itself -----------------------------------------------------------------------


def _of_run(
    ledger: Ledger, config: Config, take: str, task: str, seed: str, partial: str
) -> Value | None:
    """The best member by the dev items of the task, or the one that is named, on its test items.

    The mean weighs every item the same, as published accuracies do.
    """
    rows = ledger.query(
        "SELECT iteration, member, split, avg(score) AS score, count(*) AS n FROM evaluations "
        "WHERE task = ? AND member <> ? GROUP BY iteration, member, split",
        (task, MIXTURE),
    )
    means = {(r["iteration"], r["member"], r["split"]): r["score"] for r in rows}
    measured = [
        (number, member)
        for number, member, split in means
        if split == "test" and ledger.has_evaluation(number)
    ]
    chosen = _chosen(measured, take, lambda key: means.get((*key, "dev")))
    if chosen is None:
        return None
    iteration, member = chosen
    scores = [
        row["score"]
        for row in ledger.query(
            "SELECT score FROM evaluations WHERE iteration = ? AND member = ? AND task = ? AND "
            "split = 'test' ORDER BY item",
            (iteration, member, task),
        )
    ]
    place = derive_seed("report", config.seed, member, iteration, task)
    who = f"{member}, {'at the start' if not iteration else f'after iteration {iteration}'}"
    interval = score_interval(scores, place)
    return Value(seed, sum(scores) / len(scores), interval, len(scores), who, "share", partial)


def _chosen(measured: Sequence[Key], take: str, dev: Callable[[Key], float | None]) -> Key | None:
    """(iteration, member): the best by ``dev``; of equals the earlier one, then by name."""
    if take not in (BEST_INITIAL, BEST_ALIGNED):
        name, _, number = take.rpartition("@")
        return (int(number), name) if (int(number), name) in measured else None
    able = [
        key for key in sorted(measured)
        if (key[0] == 0) == (take == BEST_INITIAL) and dev(key) is not None
    ]  # fmt: skip
    return max(able, key=lambda key: dev(key) or 0.0) if able else None


# What an evaluation measured after it -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """The ledger of a run's evaluation, and what its values are beside."""

    ledger: Ledger
    config: Config
    study: Study
    benchmark: Benchmark
    seed: str
    partial: str


def _eval_partial(ledger: Ledger, config: Config) -> str:
    """Whether a run was evaluated before it ended; ``config`` is the run's."""
    if ledger.get("finished") is None:
        return "evaluation not finished"
    names = json.loads(ledger.get("subjects") or "[]")
    last = max((int(name.rpartition("@")[2]) for name in names if "@" in name), default=0)
    return f"evaluated after iteration {last}" if last < config.iterations else ""


def _of_eval(source: _Evaluation, task: str, take: str) -> Value | str | None:
    """The line of a member in a contest, or of the best one by the dev items."""
    contest = next(contests(source.ledger, source.config.seed, task), None)
    if contest is None:
        return None
    if take in (BEST_INITIAL, BEST_ALIGNED):
        return _best_of_contest(source, contest, take)
    return _of_line(source, contest, take)


def _of_line(source: _Evaluation, contest: Contest, take: str) -> Value | str | None:
    line = next((one for one in _together(contest) if one.member == take), None)
    if line is None:
        return f"{take} is whom all meet, so it has no number" if take == contest.baseline else None
    measure = _measure(line)
    who, note = f"{line.member}, {measure.name}", _other_quantity(source, contest, measure)
    return Value(
        source.seed, measure.value, measure.interval, line.items, who, measure.unit,
        source.partial, note,
    )  # fmt: skip


def _other_quantity(source: _Evaluation, contest: Contest, measure: Measure) -> str:
    """Why the number is not the published quantity; "" where it is."""
    paper, reasons = source.study.paper, []
    models = {one.name: _weights(one, source.config) for one in source.config.pool.members}
    judges = [models.get(name, name) for name in contest.judges]
    theirs = [str(member["model"]) for member in paper.judges.members]
    if judges != theirs:
        reasons.append(f"judged by {', '.join(judges)}, not {', '.join(theirs)}")
    baselines = source.benchmark.published_baseline
    if baselines and contest.baseline not in baselines:
        reasons.append(f"against {contest.baseline}, not {baselines[0]}")
    if contest.kind == "alpaca_eval" and measure.name != "length-controlled":
        reasons.append(f"{measure.name}, without the published difficulties or gamed baselines")
    if contest.kind == "arena_hard" and contest.version != "v0.1":
        reasons.append(f"rows of {contest.version}, not v0.1")
    return f"another quantity: {'; '.join(reasons)}" if reasons else ""


def _best_of_contest(source: _Evaluation, contest: Contest, take: str) -> Value | None:
    """The best by dev items, on the others; whom all meet has half of every item."""
    config, task = source.config, contest.task
    rows = source.ledger.query("SELECT * FROM games WHERE task = ?", (task,))
    of_member: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_member.setdefault(row["member"], []).append(row)
    values = {name: item_values(mine, contest.kind) for name, mine in of_member.items()}
    if "@" in contest.baseline:
        values[contest.baseline] = {row["item"]: 0.5 for row in rows}
    turns = json.loads(source.ledger.get(f"{CONTEST}{task}") or "{}")["turns"]
    parts = {
        item: split_of(
            TaskItem(item, "\n\n".join(said), "", "", task, "exact"), config.evaluate.dev_share
        )
        for item, said in turns.items()
    }
    splits = {
        name: {part: [v for item, v in sorted(found.items()) if parts[item] == part]
               for part in ("dev", "test")}
        for name, found in values.items()
    }  # fmt: skip
    able = [
        name for name in sorted(splits)
        if name.endswith("@0") == (take == BEST_INITIAL) and all(splits[name].values())
    ]  # fmt: skip
    if not able:
        return None
    best = max(able, key=lambda name: fmean(splits[name]["dev"]))
    scores = splits[best]["test"]
    interval, who = None, f"{best}, whom all meet"
    if best != contest.baseline:
        interval = score_interval(scores, derive_seed("report", config.seed, best, task))
        who = f"{best}, win rate against {contest.baseline}"
    return Value(source.seed, fmean(scores), interval, len(scores), who, "share", source.partial)


def _together(contest: Contest) -> Iterator[Line]:
    """One line a member: by all judges together, or by the only one."""
    for line in contest.lines:
        if line.measures and (line.judge == "" or len(contest.judges) == 1):
            yield line


def _measure(line: Line) -> Measure:
    """The length-controlled rate where there is one, else the first number of the line."""
    controlled = (one for one in line.measures if "length-controlled" in one.name)
    return next(controlled, line.measures[0])


# Under which conditions ---------------------------------------------------------------------------


def _of_rows(benchmark: Benchmark) -> Iterator[str]:
    if benchmark.other_scale:
        yield f"not on the paper's scale: {benchmark.other_scale}"
    if benchmark.why:
        yield f"rows: {benchmark.why}"


def _other_settings(
    name: str, written: Config, made: Config, free: Sequence[str] = _FREE
) -> Iterator[str]:
    """All settings that are not as they were written; an evaluation may have more than that."""
    unlike = differences(without_folders(written), without_folders(made), free)
    more = {f"evaluate.tasks.{task.name}" for task in made.evaluate.tasks}
    more |= {f"pool.members.{member.name}" for member in made.pool.members}
    own = [key for key, old, _ in unlike if not (old is None and key in more)]
    if own:
        yield f"{name} has other settings than its file: {', '.join(own)}"


def _as_evaluated(config: Config, run: Run) -> Config:
    """The run's configuration as the written command evaluates it."""
    tasks = [TaskSettings.model_validate(task) for task in run.evals]
    return config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"tasks": tasks})}
    )


def _conditions(
    study: Study, run: Run, config: Config, measured: Config, benchmark: Benchmark
) -> Iterator[str]:
    """What differs from the paper, as the ledgers of the run and of its evaluation have it."""
    paper = study.paper
    if study.own_pool:
        yield f"pool: {_pool_words(config)}; the paper: {paper.pool.words}"
    source = paper.instructions[run.instructions]
    if config.instructions.source == source.hub:
        text = source.hub_words or "the data set of the hub"
        yield f"instructions: {text} ({source.hub}); the paper: {source.words}"
    else:
        name = Path(config.instructions.source).name
        yield f"instructions: {name}; the paper: {source.words}"
    for key, value, usual in changed(study, run, config):
        yield f"{key}: {value} (the paper's preset: {usual})"
    if benchmark.judged:
        models = {one.name: _weights(one, measured) for one in measured.pool.members}
        named = ", ".join(f"{name} ({models.get(name)})" for name in measured.evaluate.judges)
        yield f"judged by {named}; the paper: {paper.judges.words}"


def without_folders(config: Config) -> Config:
    """The same wherever its files are, as long as they are called the same."""

    def name(text: str) -> str:
        path = Path(text.removeprefix("script:"))
        return path.name if path.is_absolute() else text  # names on the hub have slashes, too

    return Config.model_validate(map_paths(config.model_dump(), name))


def _weights(member: MemberSettings, config: Config) -> str:
    if member.engine == "scripted":
        return "a script"
    return member.model or config.pool.base or ""


def _pool_words(config: Config) -> str:
    """The members by what they are made of: ``4 on builtin:smollm2-135m``."""
    counts: Counter[str] = Counter()
    for member in config.pool.members:
        counts[_weights(member, config)] += 1
    recruits = len(config.pool.recruit.specialists) if config.pool.recruit else 0
    if recruits:
        counts[f"{config.pool.base} (recruits)"] += recruits
    return ", ".join(f"{count} on {weights}" for weights, count in counts.items())
