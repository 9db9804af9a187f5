"""Cells of a table, filled from the ledgers of the runs that exist.

Nothing is kept between two calls: what a cell shows is read from the ledgers each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.asking import stored_config
from phalanx.config import Config
from phalanx.config.compare import RESUME_FREE, differences
from phalanx.config.loading import map_paths
from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import MemberSettings
from phalanx.errors import LedgerError
from phalanx.identity import content_id, derive_seed
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report.games import Contest, Line, Measure, contests, item_values
from phalanx.report.measured import score_interval
from phalanx.reproducing.configurations import Run, Study, changed
from phalanx.reproducing.papers import BEST_ALIGNED, BEST_INITIAL, Benchmark, Column, Published, Row
from phalanx.statistics import Interval

EVAL = "-eval"
"""What the folder of a run's evaluation is called, behind that of the run."""
Key = tuple[int, str]
_FREE = (*RESUME_FREE, "seed", "resources")


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


def seed_folders(runs: Path, name: str) -> list[Path]:
    """The folders of a run's seeds that exist, in order."""
    found = (runs / name).glob("seed-*")
    return sorted(path for path in found if path.is_dir() and not path.name.endswith(EVAL))


def _filled(
    study: Study, row: Row, column: Column, published: Published | None, runs: Path
) -> Cell:
    run, benchmark = study.run_of(row, column), study.paper.benchmarks[column.benchmark]
    values, pending, notes = [], [], dict.fromkeys([*_of_rows(benchmark)])
    for folder in seed_folders(runs, run.name):
        place = folder if benchmark.by == "run" else folder.with_name(f"{folder.name}{EVAL}")
        if not run_ledger_path(place).is_file():
            pending.append(f"{folder.name}: not measured yet ({place.name} is missing)")
            continue
        try:
            with Ledger(run_ledger_path(place)) as ledger:
                config = stored_config(place, ledger.get("config") or "{}")
                value = _value(ledger, config, row, column.benchmark, benchmark, folder.name)
        except LedgerError as error:
            pending.append(f"{folder.name}: {error}")
            continue
        if isinstance(value, str):
            pending.append(f"{folder.name}: {value}")
            continue
        values.append(value)
        notes |= dict.fromkeys(_conditions(study, run, config, benchmark))
    if 0 < len(values) < len(study.wish.seeds):
        pending.append(f"{len(values)} of {len(study.wish.seeds)} seeds")
    other = bool(benchmark.other_scale) or any(value.note for value in values)
    conditions = tuple(notes) if values else ()
    return Cell(published, "", tuple(values), tuple(pending), conditions, other)


def _value(
    ledger: Ledger, config: Config, row: Row, name: str, benchmark: Benchmark, seed: str
) -> Value | str:
    """A run's value for a cell, or why it has none yet."""
    partial = _partial(ledger, config)
    found: Value | str | None
    if benchmark.by == "run":
        found = _of_run(ledger, config, row.take, name, seed, partial)
    else:
        found = _of_eval(ledger, config, row.take, benchmark, seed, partial)
    return found or partial or f"{row.take} was not measured"


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


def _of_eval(
    ledger: Ledger, config: Config, take: str, benchmark: Benchmark, seed: str, partial: str
) -> Value | str | None:
    """The line of a member in a contest, or of the best one by the dev items."""
    for contest in contests(ledger, config.seed):
        if contest.kind != benchmark.kind:
            continue
        found: Value | str | None
        if take in (BEST_INITIAL, BEST_ALIGNED):
            found = _best_of_contest(ledger, config, contest, take, seed, partial)
        else:
            found = _of_line(contest, take, seed, partial)
        if found is not None:
            return found
    return None


def _of_line(contest: Contest, take: str, seed: str, partial: str) -> Value | str | None:
    line = next((one for one in _together(contest) if one.member == take), None)
    if line is None:
        return f"{take} is whom all meet, so it has no number" if take == contest.baseline else None
    measure, note = _measure(line), ""
    if contest.kind == "alpaca_eval" and not contest.published:
        note = "another judge or baseline than the published, so another quantity"
    elif "@" in contest.baseline:
        note = f"against {contest.baseline} instead of the published baseline, so another quantity"
    who = f"{line.member}, {measure.name}"
    return Value(
        seed, measure.value, measure.interval, line.items, who, measure.unit, partial, note
    )


def _best_of_contest(
    ledger: Ledger, config: Config, contest: Contest, take: str, seed: str, partial: str
) -> Value | None:
    """The best by dev items, on the others; whom all meet has half of every item."""
    rows = ledger.query("SELECT * FROM games WHERE task = ?", (contest.task,))
    of_member: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_member.setdefault(row["member"], []).append(row)
    values = {name: item_values(mine, contest.kind) for name, mine in of_member.items()}
    if "@" in contest.baseline:
        values[contest.baseline] = {row["item"]: 0.5 for row in rows}
    splits = {
        name: [[v for item, v in sorted(found.items()) if _is_dev(item, config) is dev]
               for dev in (True, False)]
        for name, found in values.items()
    }  # fmt: skip
    able = [
        name for name in sorted(splits)
        if name.endswith("@0") == (take == BEST_INITIAL) and all(splits[name])
    ]  # fmt: skip
    if not able:
        return None
    best = max(able, key=lambda name: sum(splits[name][0]) / len(splits[name][0]))
    scores = splits[best][1]
    place = derive_seed("report", config.seed, best, contest.task)
    mean = sum(scores) / len(scores)
    if best == contest.baseline:
        return Value(seed, mean, None, len(scores), f"{best}, whom all meet", "share", partial)
    who = f"{best}, win rate against {contest.baseline}"
    return Value(seed, mean, score_interval(scores, place), len(scores), who, "share", partial)


def _is_dev(item: str, config: Config) -> bool:
    """Whether an item chooses, by a hash of its id."""
    place = int(content_id("split", item, length=8), 16) / 16**8
    return place < config.evaluate.dev_share


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


def _conditions(study: Study, run: Run, config: Config, benchmark: Benchmark) -> Iterator[str]:
    """What differs from the paper, as the ledger has it."""
    paper = study.paper
    if benchmark.by == "run":
        written, made = without_folders(run.config), without_folders(config)
        own = [key for key, _, _ in differences(written, made, _FREE)]
        more = f" and {len(own) - 4} more" if len(own) > 4 else ""
        if own:
            yield f"{run.name} has other settings than its file: {', '.join(own[:4])}{more}"
    if study.own_pool:
        yield f"pool: {_pool_words(config)}; the paper: {paper.pool.words}"
    source = paper.instructions[run.instructions]
    if config.instructions.source == source.hub:
        text = source.hub_words or "the data set of the hub"
        yield f"instructions: {text} ({source.hub}); the paper: {source.words}"
    else:
        name = Path(config.instructions.source).name
        yield f"instructions: {name}; the paper: {source.words}"
    for key, value, usual in changed(study, run):
        yield f"{key}: {value} (the paper's preset: {usual})"
    if benchmark.judged:
        models = {one.name: _weights(one, config) for one in config.pool.members}
        named = ", ".join(f"{name} ({models.get(name)})" for name in config.evaluate.judges)
        yield f"judged by {named}; the paper: {paper.judges.words}"


def without_folders(config: Config) -> Config:
    """The same wherever its files are, as long as they are called the same."""
    return Config.model_validate(map_paths(config.model_dump(), lambda text: Path(text).name))


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
