"""Which runs the chosen tables need, and the configuration of each."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from phalanx.config import Config, differences, load
from phalanx.config.faults import did_you_mean
from phalanx.config.loading import shaped
from phalanx.config.rules import TABLES
from phalanx.errors import ConfigError
from phalanx.plan import content_faults
from phalanx.plan.machines import machine_named
from phalanx.reproducing.papers import Arm, Benchmark, Column, Paper, PaperTable, Row
from phalanx.tasks.kinds import HUB

Section = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user wants of a paper.

    ``data`` is a folder with rows, ``pool`` a file with the section of that name, instead of the
    paper's; ``overrides`` are ``key.path=value`` for every configuration. ``machine`` is planned
    for, as in ``phalanx check``.
    """

    paper: str
    table: str = ""
    columns: tuple[str, ...] = ()
    data: Path | None = None
    pool: Path | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    machine: str | None = None

    def file(self, *names: str) -> Path | None:
        """The file of rows in ``data``; None where there is none."""
        if self.data is None:
            return None
        found = (self.data / f"{name}{ending}" for name in names for ending in TABLES)
        return next((path for path in found if path.is_file()), None)


@dataclass(slots=True)
class Run:
    """One configuration. ``evals`` are the tasks that are measured after the run.

    ``benchmarks`` says where the rows of each benchmark are on which it is measured, and
    ``lacking`` why it is not measured on another; without any of the former the run can be made,
    and fills no cell. ``members`` are those to measure (none: the default).
    """

    name: str
    arm: str
    instructions: str
    config: Config
    difference: Section
    benchmarks: dict[str, str]
    evals: list[Section] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """The chosen tables and the runs that fill them.

    ``absent`` says why a cell has no run: (table, position of the row, column) -> reason.
    ``own_pool``: the pool is the user's, not the paper's.
    """

    paper: Paper
    wish: Wish
    tables: tuple[PaperTable, ...]
    runs: dict[str, Run]
    absent: dict[tuple[str, int, str], str]
    own_pool: bool = False

    def run_of(self, row: Row, column: Column) -> Run:
        return self.runs[run_name(row.arm, column.instructions)]

    def cells(self) -> Iterator[tuple[tuple[str, int, str], Row, Column]]:
        yield from _cells(self.tables)


@dataclass(slots=True)
class _Need:
    """What a run is asked for, before it is a configuration."""

    arm: str
    instructions: str
    benchmarks: dict[str, str] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    members: dict[str, None] = field(default_factory=dict)


def run_name(arm: str, instructions: str) -> str:
    return f"{arm}-{instructions}"


def study(paper: Paper, wish: Wish) -> Study:
    """The runs of the chosen tables, each with a configuration that was checked.

    A cell without a run says why. Raises ConfigError with the faults of all configurations.
    """
    tables = tuple(_only(table, wish.columns) for table in paper.chosen(wish.table))
    if wish.columns:
        tables = tuple(table for table in tables if table.columns)
        known = {name for table in paper.chosen(wish.table) for name in table.columns}
        if unknown := [name for name in wish.columns if name not in known]:
            hints = [f"there is no column {n!r}; {did_you_mean(n, sorted(known))}" for n in unknown]
            raise ConfigError(hints)
    if wish.data is not None and not wish.data.is_dir():
        raise ConfigError(f"--data {wish.data}: there is no such folder")
    material = _Material(paper, wish)
    needs: dict[str, _Need] = {}
    absent: dict[tuple[str, int, str], str] = {}
    for place, row, column in _cells(tables):
        benchmark = paper.benchmarks[column.benchmark]
        reason, unmeasured = material.missing(row, column), material.unmeasured(benchmark, row)
        if reason or (row.arm and unmeasured):
            absent[place] = "; ".join(part for part in (reason, unmeasured) if part)
        if reason or (unmeasured and benchmark.by == "run"):
            continue
        name = run_name(row.arm, column.instructions)
        need = needs.setdefault(name, _Need(row.arm, column.instructions))
        if unmeasured:  # the run can be made all the same
            need.lacking[column.benchmark] = unmeasured
            continue
        need.benchmarks[column.benchmark] = material.rows_of(benchmark)
        if "@" in row.take and benchmark.by == "eval":
            need.members[row.take] = None
    return Study(paper, wish, tables, _configured(material, needs), absent, material.own)


def _only(table: PaperTable, columns: tuple[str, ...]) -> PaperTable:
    if not columns:
        return table
    kept = {name: column for name, column in table.columns.items() if name in columns}
    return table.model_copy(update={"columns": kept})


def _cells(tables: tuple[PaperTable, ...]) -> Iterator[tuple[tuple[str, int, str], Row, Column]]:
    for table in tables:
        for position, row in enumerate(table.rows):
            for name, column in table.columns.items():
                yield (table.id, position, name), row, column


class _Material:
    """The pool and the rows that there are."""

    def __init__(self, paper: Paper, wish: Wish) -> None:
        self.paper, self.wish = paper, wish
        given = [f"pool={wish.pool}"] if wish.pool else []
        loaded = shaped(f"preset:{paper.preset}", [*given, *wish.overrides])
        self.own = bool(loaded.pool.members or loaded.pool.recruit)
        dumped = loaded.model_dump(exclude_unset=True)
        self.pool = dumped["pool"] if self.own else paper.pool.section
        self.endpoints = dumped.get("endpoints") or ([] if self.own else paper.pool.endpoints)
        self.judges = list(loaded.evaluate.judges)
        if not self.own and not self.judges:
            self.judges = [str(member["name"]) for member in paper.judges.members]
        self.instructions = loaded.instructions.source

    def missing(self, row: Row, column: Column) -> str:
        """Why there is no run for a cell; "" where there is one."""
        if not row.arm:
            return row.absent
        reasons = [self._members_missing(self.paper.arms[row.arm])]
        source = self.paper.instructions[column.instructions]
        if not (self.instructions or self.wish.file(source.file) or source.hub):
            reasons.append(f"needs instructions, {self._wanted(source.file)}: {source.words}")
        return "; ".join(reason for reason in reasons if reason)

    def unmeasured(self, benchmark: Benchmark, row: Row) -> str:
        """Why a row of a run cannot be measured on a benchmark; "" where it can."""
        reasons = []
        if not self.rows_of(benchmark):
            reasons.append(f"needs rows, {self._wanted(benchmark.file)}")
        if benchmark.judged and not self._has_judge(benchmark, row):
            reasons.append(
                "needs a judge who is not measured, e.g. {name: umpire, model: MODEL, roles: []} "
                "in the pool file, and evaluate.judges=[umpire]"
            )
        return "; ".join(reasons)

    def _has_judge(self, benchmark: Benchmark, row: Row) -> bool:
        """Whether somebody may judge each who is measured: nobody judges an answer of their own.

        In contests of a row without a member's name all meet the first one, who judges none then.
        """
        named = "@" in row.take
        recruits = (self.pool.get("recruit") or {}).get("specialists", ())
        players = [str(member["name"]) for member in self._players()]
        measured = [row.take.partition("@")[0]] if named else [*players, *recruits]
        met = set() if named or benchmark.by == "run" else set(measured[:1])
        return all(set(self.judges) - met - {name} for name in measured)

    def _members_missing(self, arm: Arm) -> str:
        if arm.pool is not None:
            return "has a pool of its own, which yours replaces" if self.own else ""
        names = [member["name"] for member in self.pool.get("members", ())]
        wanted = [*arm.members, *(student.of for student in arm.students.values())]
        if lacking := [name for name in dict.fromkeys(wanted) if name not in names]:
            return (
                f"the pool has no {', '.join(lacking)} (the name of a member says the part that it "
                "plays; recruits play none)"
            )
        playing = len(self._players())
        if arm.first is not None and arm.first >= playing:
            return f"a smaller pool than the whole one of {playing} is wanted"
        return ""

    def _players(self) -> list[Section]:
        return [m for m in self.pool.get("members", ()) if "contest" in m.get("roles", ["contest"])]

    def _wanted(self, name: str) -> str:
        where = self.wish.data or "DIR with --data DIR"
        return f"{name}{TABLES[0]} in {where}"

    def rows_of(self, benchmark: Benchmark) -> str:
        """Where the rows of a benchmark are; "" where nobody has them."""
        path = self.wish.file(benchmark.file, *benchmark.also)
        if path is not None:
            return str(path.absolute())
        return HUB[benchmark.kind][0] if benchmark.hub else ""

    def data_of(self, need: _Need) -> Section:
        """The configuration of a run: the preset, and what it wants besides."""
        arm = self.paper.arms[need.arm]
        judged = any(self.paper.benchmarks[name].judged for name in need.benchmarks)
        data: Section = {"preset": self.paper.preset, **arm.settings}
        data["pool"], data["endpoints"] = self._pool_of(arm, judged)
        data["instructions"] = self._instructions_of(need.instructions)
        if arm.students:
            students = [
                {"name": name, "data": one.data, "reward": one.reward}
                for name, one in arm.students.items()
            ]
            data["moaa"] = {**data.get("moaa", {}), "students": students}
        tasks = self.tasks_of(need, "run")
        data["evaluate"] = dict(self.paper.evaluate) | ({"tasks": tasks} if tasks else {})
        if judged:
            data["evaluate"]["judges"] = self.judges
        return {key: value for key, value in data.items() if value not in ({}, [])}

    def tasks_of(self, need: _Need, by: str) -> list[Section]:
        """What is measured by the run, or after it."""
        found = []
        for name, source in need.benchmarks.items():
            benchmark = self.paper.benchmarks[name]
            task = {"name": name, "kind": benchmark.kind, "source": source}
            for key, stem in benchmark.files.items():
                if path := self.wish.file(stem):
                    task[key] = str(path.absolute())
            if benchmark.by == by:
                found.append(task)
        return found

    def _pool_of(self, arm: Arm, judged: bool) -> tuple[Section, list[Section]]:
        pool, endpoints = dict(arm.pool or self.pool), list(self.endpoints)
        members = list(pool.get("members", ()))
        judges = self.judges if judged else []
        if judged and not self.own:
            members += self.paper.judges.members
            known = {endpoint["name"] for endpoint in endpoints}
            endpoints += [e for e in self.paper.judges.endpoints if e["name"] not in known]
        by_name = {member["name"]: member for member in members}
        if arm.members:
            kept = {*arm.members, *judges}
            members = [member for member in members if member["name"] in kept]
        if arm.first is not None:
            out = {member["name"] for member in self._players()[arm.first :]} - set(judges)
            members = [member for member in members if member["name"] not in out]
        for name, student in arm.students.items():
            members = [member for member in members if member["name"] != name]
            members.append({**by_name[student.of], "name": name, "roles": ["contest", "learn"]})
        used = {member.get("endpoint") for member in members}
        if len(endpoints) > 1:
            endpoints = [endpoint for endpoint in endpoints if endpoint["name"] in used]
        elif not any(member.get("engine") == "openai" for member in members):
            endpoints = []
        return ({**pool, "members": members} if members else pool), endpoints

    def _instructions_of(self, name: str) -> Section:
        source = self.paper.instructions[name]
        path = self.wish.file(source.file)
        if self.instructions:
            return {"source": self.instructions}
        if path is not None:
            return {"source": str(path.absolute())}
        return {"source": source.hub, "column": source.hub_column}


def _configured(material: _Material, needs: Mapping[str, _Need]) -> dict[str, Run]:
    """Each configuration, checked. Raises ConfigError with the faults of all of them."""
    runs: dict[str, Run] = {}
    faults: dict[str, list[str]] = {}
    wish = material.wish
    gpus = machine_named(wish.machine).gpus if wish.machine else None
    preset = shaped(f"preset:{material.paper.preset}")
    with TemporaryDirectory(prefix="phalanx-") as scratch:
        for name, need in needs.items():
            path = Path(scratch) / f"{name}.yaml"
            path.write_text(yaml_text(material.data_of(need)), encoding="utf-8")
            try:
                config = load(path, wish.overrides, also=(content_faults,), gpus=gpus)
            except ConfigError as error:
                for fault in error.faults:
                    faults.setdefault(_without_place(fault, path), []).append(name)
                continue
            evals = material.tasks_of(need, "eval")
            unlike = difference(config, preset, material.paper.preset)
            members = tuple(need.members)
            runs[name] = Run(
                name, need.arm, need.instructions, config, unlike, need.benchmarks, evals,
                need.lacking, members,
            )  # fmt: skip
    if faults:
        raise ConfigError([_in(fault, names) for fault, names in faults.items()])
    return runs


def _in(fault: str, names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{fault} (in {', '.join(names[:3])}{more})"


def _without_place(fault: str, path: Path) -> str:
    """A fault without the line of a file that nobody has seen."""
    return re.sub(rf"^{re.escape(str(path))}(:\d+)?: ", "", fault)


def difference(config: Config, preset: Config, name: str) -> Section:
    """The preset's name and every setting that is not the preset's."""
    own, base = (one.model_dump(exclude_unset=True) for one in (config, preset))
    return {"preset": name, **_unlike(own, base)}


def _unlike(own: Section, base: Section) -> Section:
    found: Section = {}
    for key, value in own.items():
        other = base.get(key)
        if value == other:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            value = _unlike(value, other)
        found[key] = value
    return found


def changed(study: Study, run: Run, made: Config) -> Iterator[tuple[str, Any, Any]]:
    """(key, value, the paper's) of settings of ``made`` that neither the preset nor the row asks
    for."""
    paper = study.paper
    asked = {"evaluate": paper.evaluate, **paper.arms[run.arm].settings}
    usual = shaped(f"preset:{paper.preset}", asked)
    for key, before, value in differences(usual, made, _MATERIAL):
        yield key, value, before


_MATERIAL = (
    "seed", "pool", "endpoints", "budget", "resources", "vllm", "output", "instructions.source",
    "instructions.column", "evaluate.tasks", "evaluate.judges", "moaa.students",
)  # fmt: skip
"""What runs differ in without another method."""


def yaml_text(data: Section) -> str:
    """The YAML of plain data; no long text is folded."""
    yaml = YAML()
    yaml.width = 4096
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
