"""The verbs ``compare`` and ``ablate``: several methods, or what is left of one, on equal terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.base import Overrides, Quiet, Source, app, err, listed, numbers, out, stopping

if TYPE_CHECKING:
    from phalanx.comparing.spec import Comparison
    from phalanx.comparing.work import Compared
    from phalanx.types import Progress

Out = Annotated[
    Path | None,
    typer.Option("--out", help="The folder of all runs. Default: runs/NAME-compare (-ablate)."),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", help="1,2,3. Default: the file's; of a configuration its own and the next."
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="NAME,...", help="Only these ways, and what they are compared with."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, a process each.")]
TableOnly = Annotated[
    bool, typer.Option("--table", help="Run nothing: the table of whatever is finished.")
]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="Run nothing: what would be run, and how much that is.")
]


@app.command()
def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is compared, and how (YAML).")],
    overrides: Overrides = None,
    out_folder: Out = None,
    seeds: Seeds = None,
    only: Only = None,
    jobs: Jobs = 1,
    table: TableOnly = False,
    plan: PlanOnly = False,
    quiet: Quiet = False,
) -> None:
    """Run several methods on the same pool under an equal budget, and compare them.

    `phalanx compare configs/compare/smoke.yaml`

    One pool a seed, one run of each method and seed, and one table: comparison.md and
    comparison.json. The same command goes on where it stopped. Settings change what all methods
    share. Exit code 1 where a run failed; the table has the others.
    """
    from phalanx.api import compare as compared
    from phalanx.comparing.loading import read_comparison

    wanted = numbers(seeds) if seeds is not None else ()
    chosen = tuple(dict.fromkeys(listed(only)))
    if plan:
        return _show_plan(read_comparison(file, overrides or [], seeds=wanted, only=chosen))
    with _told(quiet) as progress:
        made = compared(
            file,
            overrides or [],
            out=out_folder,
            seeds=wanted,
            only=chosen,
            jobs=jobs,
            table=table,
            progress=progress,
        )
    _show(made)


@app.command()
def ablate(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="sparta.")],
    source: Source,
    overrides: Overrides = None,
    out_folder: Out = None,
    seeds: Seeds = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--groups",
            metavar="GROUP,...",
            help="Only these: components, pool, diversity, protocols, aggregation. Default: all.",
        ),
    ] = None,
    only: Only = None,
    jobs: Jobs = 1,
    table: TableOnly = False,
    plan: PlanOnly = False,
    quiet: Quiet = False,
) -> None:
    """Take Sparta apart: the whole method, and one way without each of its parts.

    `phalanx ablate sparta configs/ablate/smoke.yaml --groups components,pool`

    Each way is a run of each seed from the same pool; the table compares it with the whole method
    and with the best initial member. The same command goes on where it stopped; one with more
    groups adds to it. What the configuration does not have is not taken away, and the reason said.
    """
    from phalanx.api import ablate as taken_apart
    from phalanx.comparing.ablating import ablation

    wanted = numbers(seeds) if seeds is not None else ()
    choice = {"groups": tuple(dict.fromkeys(listed(groups)))}
    choice["only"] = tuple(dict.fromkeys(listed(only)))
    if plan:
        return _show_plan(ablation(method, source, overrides or [], seeds=wanted, **choice))
    with _told(quiet) as progress:
        made = taken_apart(
            method,
            source,
            overrides or [],
            out=out_folder,
            seeds=wanted,
            **choice,
            jobs=jobs,
            table=table,
            progress=progress,
        )
    _show(made)


@contextmanager
def _told(quiet: bool) -> Iterator[Progress]:
    """Progress on the terminal while runs go on, until they end or are stopped."""
    from phalanx.progress import for_terminal

    progress = for_terminal(quiet=quiet)
    try:
        with stopping():
            yield progress
    finally:
        progress.finish()


def _show(made: Compared) -> None:
    from phalanx.comparing.rendering import page

    out.print(page(made.findings, made.title, made.notes, made.more))
    out.print(f"Table: {made.path}", markup=False, soft_wrap=True)
    show_failed(made.failed)


def _show_plan(comparison: Comparison) -> None:
    from phalanx.comparing.work import plan_of

    for line in plan_of(comparison):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def show_failed(failed) -> None:
    """Name the runs that failed, and end with exit code 1 where there are some."""
    for one in failed:
        err.print(f"phalanx: failed: {one}", markup=False, highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)
