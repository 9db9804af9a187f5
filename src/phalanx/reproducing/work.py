"""The command ``phalanx reproduce``: write everything, and fill what can be filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import ConfigError
from phalanx.reproducing.configurations import Study, Wish, study
from phalanx.reproducing.filling import Cell, cells
from phalanx.reproducing.papers import load_paper
from phalanx.reproducing.tables import readme
from phalanx.reproducing.writing import (
    again,
    commands,
    plan,
    plans_of,
    write,
    write_configurations,
)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What was written in ``folder``. ``cells``: (table, position of the row, column) -> cell.

    ``refused``: the runs that have no room on the machine. The commands of these and of ``idle``
    ones are comments.
    """

    folder: Path
    runs: Path
    study: Study
    cells: Mapping[tuple[str, int, str], Cell]
    refused: tuple[str, ...] = ()

    @property
    def idle(self) -> tuple[str, ...]:
        """The runs that fill no cell, since their rows or a judge are missing."""
        return tuple(name for name, run in self.study.runs.items() if not run.benchmarks)

    @property
    def num_filled(self) -> int:
        return sum(bool(cell.values) for cell in self.cells.values())

    @property
    def num_able(self) -> int:
        """Cells that the runs written here can fill."""
        return sum(not cell.absent for cell in self.cells.values())

    @property
    def num_lacking(self) -> int:
        """Cells of rows that Phalanx has, which lack rows, members or a judge."""
        ours = (place for place, row, _ in self.study.cells() if row.arm)
        return sum(bool(self.cells[place].absent) for place in ours)


def reproduce_to(wish: Wish, out: Path, runs: Path | None = None) -> Reproduction:
    """Write ``configs/``, ``commands.sh``, ``plan.md`` and ``README.md`` into ``out``.

    Cells are filled from the ledgers in ``runs`` (default: ``out/runs``), as far as they are. No
    model is loaded and no hub is asked. Raises ConfigError with every fault, and writes nothing
    then; a configuration that has no room on the machine is written, its commands are comments,
    and the plan says why.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; expected a folder")
    wanted = study(load_paper(wish.paper), wish)
    where = runs or out / "runs"
    found = cells(wanted, where)
    write_configurations(wanted, out)
    plans = plans_of(wanted, out)
    write(out / "commands.sh", commands(wanted, out, where, plans))
    write(out / "plan.md", plan(wanted, plans))
    write(out / "README.md", readme(wanted, found, again(wish, out, where)))
    refused = tuple(name for name, made in plans.items() if isinstance(made, str))
    return Reproduction(out, where, wanted, found, refused)
