"""Verbs of runs: demo, init, check, run, recruit, report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.base import Overrides, Quiet, RunFolder, Source, app, load, out, stopping


@app.command()
def demo(
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller pool, under four minutes.")
    ] = False,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The run's folder.")] = None,
    quiet: Quiet = False,
) -> None:
    """Recruit a pool from the embedded model, align it, measure it. Minutes on a laptop.

    The same as `phalanx run preset:demo` (with `--quick`: `preset:demo-quick`).
    """
    _run("preset:demo-quick" if quick else "preset:demo", [], out_folder, quiet)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("phalanx.yaml"),
    preset: Annotated[str, typer.Option(help="Start from this preset.")] = "sparta-small",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented configuration to start from."""
    from phalanx.config.starter import starter
    from phalanx.errors import ConfigError

    text = starter(preset)
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; choose another name, or --force to overwrite it")
    path.write_text(text, encoding="utf-8")
    out.print(f"Wrote {path}. Next: edit it, then: phalanx check {path}", markup=False)


@app.command()
def check(
    source: Source,
    overrides: Overrides = None,
    machine: Annotated[
        str | None,
        typer.Option(help="Plan for this one instead: h200, 2x8xh100, 1x40GB, cpu:32:64GB"),
    ] = None,
) -> None:
    """Validate a configuration and print the plan: who goes where, memory, time. Loads no model.

    Exit code 2 with every fault in one message where something is wrong or has no room.
    """
    from phalanx.plan import plan_for, render

    out.print(render(plan_for(source, overrides or [], machine)))


@app.command()
def run(
    source: Source,
    overrides: Overrides = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The run's folder. Default: runs/NAME.")
    ] = None,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For machines: progress as JSON lines, nothing else.")
    ] = False,
) -> None:
    """Start a run, or continue it: the same command goes on where it stopped."""
    if as_json:
        _run_for_machines(source, overrides, out_folder)
    else:
        _run(source, overrides, out_folder, quiet)


@app.command()
def recruit(
    source: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A YAML file with pool.base and pool.recruit.")
    ],
    overrides: Overrides = None,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the pool goes.")] = Path("pool"),
    quiet: Quiet = False,
) -> None:
    """Make a pool of specialists from one base: adapters, and a pool.yaml that lists them.

    Use it with: phalanx run CONFIG pool=pool/pool.yaml
    """
    from phalanx.progress import for_terminal
    from phalanx.recruit import recruit_to

    path = recruit_to(load(source, overrides), out_folder, progress=for_terminal(quiet=quiet))
    out.print(f"Wrote {path}. Next: phalanx run CONFIG pool={path}", markup=False)


@app.command()
def report(
    folder: RunFolder,
    path: Annotated[
        Path | None,
        typer.Option("--out", help="The file (.html, or .md). Default: RUN/report.html."),
    ] = None,
) -> None:
    """Print the summary and write the one-page HTML report."""
    from phalanx.api import open_run

    _show(open_run(folder), path)


def _run(source: str, overrides: list[str] | None, out_folder: Path | None, quiet: bool) -> None:
    from phalanx.api import default_folder, open_run
    from phalanx.loop import align
    from phalanx.progress import for_terminal

    config = load(source, overrides)
    folder = out_folder or default_folder(source, config)
    progress = for_terminal(quiet=quiet)
    progress.say(f"Run folder: {folder}")
    try:
        with stopping(), _as_typed(source, overrides, out_folder):
            align(config, folder, progress=progress)
    finally:
        progress.finish()
    _show(open_run(folder), None)


@contextmanager
def _as_typed(source: str, overrides: list[str] | None, out_folder: Path | None) -> Iterator[None]:
    """Where an error says how to go on, the command is that of this run: it can be copied."""
    from phalanx.errors import PhalanxError

    try:
        yield
    except PhalanxError as error:
        words = ["phalanx", "run", source, *(overrides or [])]
        words += ["--out", str(out_folder)] if out_folder else []
        error.args = (str(error).replace("phalanx run CONFIG", shlex.join(words)),)
        raise


def _run_for_machines(source: str, overrides: list[str] | None, out_folder: Path | None) -> None:
    """The same, told in JSON lines on stdout; the last one says how it ended, and why."""
    from phalanx.api import default_folder, open_run
    from phalanx.errors import PhalanxError
    from phalanx.loop import align
    from phalanx.progress import JsonLines
    from phalanx.report.health import signs

    progress = JsonLines()
    try:
        config = load(source, overrides)
        folder = out_folder or default_folder(source, config)
        progress.event("start", folder=str(folder), method=config.method,
                       iterations=config.iterations)  # fmt: skip
        try:
            with stopping(), _as_typed(source, overrides, out_folder):
                align(config, folder, progress=progress)
        finally:
            progress.finish()
    except PhalanxError as error:
        progress.event("end", state="ended", exit_code=error.exit_code, reason=str(error))
        raise
    done = open_run(folder)
    for sign in signs(done.facts()):
        progress.event("warning", rule=sign.name, where=sign.where, says=sign.says,
                       value=sign.value, threshold=sign.threshold)  # fmt: skip
    path = done.report()
    progress.event("end", state="finished", exit_code=0, reason="", report=str(path))


def _show(run, path: Path | None) -> None:
    from phalanx.report.terminal import summary

    target = run.report(path)
    out.print(summary(run.facts()), crop=False)
    out.print(f"Report: {target}", markup=False, soft_wrap=True)
