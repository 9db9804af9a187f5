"""The verb ``reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.base import Overrides, app, listed, numbers, out


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="sparta or moaa.")],
    overrides: Overrides = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Where it is written. Default: reproduce/PAPER.")
    ] = None,
    table: Annotated[
        str, typer.Option("--table", help="One table: main, ablations, ... Default: all.")
    ] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="COLUMN,...", help="Only these: gsm8k,medqa. Default: all columns."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A folder with rows: gsm8k.jsonl, gsm8k_train.jsonl, ..."),
    ] = None,
    pool: Annotated[
        Path | None, typer.Option("--pool", help="Your pool (YAML) instead of the paper's.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Where the runs are. Default: OUT/runs.")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="One run for each: 1,2,3.")] = "0",
    machine: Annotated[
        str | None, typer.Option(help="Plan for this one instead: h200, 2x8xh100, cpu:32:64GB")
    ] = None,
) -> None:
    """Write what would reproduce a paper's tables, and fill them from the runs that exist.

    `phalanx reproduce sparta --table main --only gsm8k --data data --machine 8xh100`

    Configurations, commands, a plan, and README.md with the published figures beside cells; the
    same command again fills those that have been measured by then. Loads no model.
    """
    from phalanx.api import reproduce as made_of
    from phalanx.report.words import plural

    made = made_of(
        paper,
        out_folder,
        overrides or [],
        runs=runs,
        data=data,
        pool=pool,
        table=table,
        columns=tuple(dict.fromkeys(listed(only))),
        seeds=numbers(seeds),
        machine=machine,
    )
    folder = made.folder
    out.print(
        f"Wrote {plural(len(made.study.runs), 'configuration')}, plan.md and commands.sh to "
        f"{folder}; "
        f"{made.num_filled} of {made.num_able} cells that these runs can fill are filled: "
        f"{folder / 'README.md'}",
        markup=False,
        soft_wrap=True,
    )
    if made.refused:
        out.print(
            f"{len(made.refused)} have no room on {machine or 'this machine'}, and their commands "
            "are comments: plan.md says why",
            markup=False,
            soft_wrap=True,
        )
    if idle := len(made.idle):
        out.print(
            f"{plural(idle, 'configuration')} cannot fill a cell yet; such commands are comments",
            markup=False,
        )
    if lacking := made.num_lacking:
        out.print(f"{lacking} more cells lack something: README.md says what", markup=False)
    if made.num_filled < made.num_able:
        out.print(f"Next: sh {folder / 'commands.sh'}", markup=False, soft_wrap=True)
