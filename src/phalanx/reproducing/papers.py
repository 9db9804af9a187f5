"""What is published: the tables of a paper, and which configuration makes each row here.

Data of the package, one YAML file a paper. A figure that is not in the file is not known here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from phalanx.config.base import Section
from phalanx.config.faults import did_you_mean
from phalanx.config.reading import read_file
from phalanx.config.schema import TaskKind
from phalanx.errors import ConfigError

PAPERS = Path(__file__).parent / "papers"
BEST_INITIAL, BEST_ALIGNED = "best_initial", "best_aligned"


class PoolOfPaper(Section):
    words: str
    """What the paper's pool is, for a person."""
    section: dict[str, Any]
    """The section `pool`."""
    endpoints: list[dict[str, Any]] = Field(default_factory=list)


class JudgesOfPaper(Section):
    words: str
    members: list[dict[str, Any]] = Field(default_factory=list)
    """Members without roles, which only measure."""
    endpoints: list[dict[str, Any]] = Field(default_factory=list)


class Source(Section):
    """Instructions: a file of `--data`, or else a data set of the hub."""

    file: str
    hub: str = ""
    hub_column: str = "instruction"
    hub_words: str = ""
    """How the data set of the hub differs from the paper's rows."""
    words: str
    """What the paper has."""


class Benchmark(Section):
    kind: TaskKind
    file: str
    also: list[str] = Field(default_factory=list)
    """Other names of the file."""
    files: dict[Literal["baseline", "difficulty", "gamed"], str] = Field(default_factory=dict)
    """Further files of the task, where `--data` has them."""
    published_baseline: list[str] = Field(default_factory=list)
    """Whom everybody meets in the paper, by any of their names."""
    hub: bool = False
    """Whether the kind's own data set of the hub will do."""
    judged: bool = False
    by: Literal["run", "eval"] = "run"
    """Measured by the run itself, or by `phalanx eval` after it."""
    why: str = ""
    """What the reader has to know of these rows."""
    other_scale: str = ""
    """Why a result here cannot be set beside the published figure, though it is the same table."""


class Student(Section):
    of: str
    """The member that it is another of."""
    data: str = "mixture"
    reward: str = "moa"


class Arm(Section):
    """What makes a row: the preset and these differences."""

    title: str
    settings: dict[str, Any] = Field(default_factory=dict)
    members: list[str] = Field(default_factory=list)
    """Only these members of the pool; default: all."""
    first: int | None = Field(None, ge=3)
    """Only so many members, the first ones."""
    students: dict[str, Student] = Field(default_factory=dict)
    pool: dict[str, Any] | None = None
    """A pool of its own; only without a pool of the user's."""


class Published(Section):
    value: float
    note: str = ""


class Row(Section):
    title: str
    arm: str = ""
    take: str = ""
    """`best_initial`, `best_aligned`, or NAME@ITERATION."""
    absent: str = ""
    """Why there is no arm."""
    source: str = ""
    figures: dict[str, float | Published] = Field(default_factory=dict)

    def published(self, column: str) -> Published | None:
        """The figure of a column; None where it is not known here."""
        figure = self.figures.get(column)
        return figure if isinstance(figure, Published | None) else Published(value=figure)


class Column(Section):
    title: str
    instructions: str
    benchmark: str


class JudgeTest(Section):
    """What ``phalanx judge-bench`` measures, with its own report."""

    file: str
    arm: str
    """Whose configuration names the judges."""
    settings: list[str] = Field(default_factory=list)


class PaperTable(Section):
    id: str
    title: str
    paper: str = ""
    """What it is called in the paper, where that is known."""
    columns: dict[str, Column] = Field(default_factory=dict)
    rows: list[Row]
    tests: list[JudgeTest] = Field(default_factory=list)
    cannot: list[str] = Field(default_factory=list)
    """What cannot be reproduced here, and why."""


class Paper(Section):
    title: str
    preset: str
    metric: str
    percent: bool
    """Whether the paper prints shares in percent."""
    evaluate: dict[str, Any]
    """Settings of the section that every run has."""
    sources: dict[str, str]
    notes: list[str]
    pool: PoolOfPaper
    judges: JudgesOfPaper
    instructions: dict[str, Source]
    benchmarks: dict[str, Benchmark]
    arms: dict[str, Arm]
    tables: list[PaperTable]

    def chosen(self, wanted: str = "") -> list[PaperTable]:
        """The tables of that id, or of that number in the paper; all of them for ``""``.

        Raises ConfigError for a table that is not there.
        """
        if not wanted:
            return self.tables
        found = [t for t in self.tables if wanted in (t.id, t.paper.removeprefix("Table "))]
        if not found:
            known = [table.id for table in self.tables]
            hint = did_you_mean(wanted, known)
            listed = "" if hint.startswith("known") else f" (known: {', '.join(known)})"
            raise ConfigError(f"there is no table {wanted!r}; {hint}{listed}")
        return found


def paper_names() -> list[str]:
    """The papers whose tables are known here."""
    return sorted(path.stem for path in PAPERS.glob("*.yaml"))


def load_paper(name: str) -> Paper:
    """The tables of a paper. Raises ConfigError for one that is not known here."""
    known = paper_names()
    if name not in known:
        raise ConfigError(f"there is no paper {name!r}; {did_you_mean(name, known)}")
    path = PAPERS / f"{name}.yaml"
    data = read_file(path).data
    try:
        return Paper.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
