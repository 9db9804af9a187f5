"""Verbs that look at a run while it goes on: status, watch."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from phalanx.cli.base import RunFolder, app, out

Json = Annotated[bool, typer.Option("--json", help="For machines: JSON with stable keys.")]
Short = Annotated[bool, typer.Option("--quiet", "-q", help="One line and no more.")]


@app.command()
def status(folder: RunFolder, as_json: Json = False, quiet: Short = False) -> None:
    """How far a run is, from its ledger. Works while it runs."""
    import json

    from phalanx.ledger import Ledger, run_ledger_path
    from phalanx.report.facts import gather
    from phalanx.report.machine import status_object
    from phalanx.report.terminal import status as render
    from phalanx.report.watch_views import plain_line
    from phalanx.report.words import harmless

    with Ledger(run_ledger_path(folder)) as ledger:
        facts = gather(ledger, tables=False)
    if as_json:
        print(json.dumps(status_object(facts), indent=2))
    elif quiet:
        print(harmless(plain_line(facts)))
    else:
        out.print(render(facts))


@app.command()
def watch(
    folder: RunFolder,
    as_json: Json = False,
    quiet: Short = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks, at least.")
    ] = 1.0,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for a run that has not begun.")
    ] = 0.0,
) -> None:
    """Follow a run in the terminal until it ends. Ctrl-C ends watching, not the run.

    Exit code: 0 finished; that of the run's own command where it ended early (1 error, 3 budget,
    130 interrupted); 4 its process is gone without a word; 130 Ctrl-C here.
    """
    from phalanx.report.following import JsonLines, Log, Quiet, Window, wait_for
    from phalanx.report.following import watch as follow

    def say(text: str) -> None:
        print(text, flush=True)

    console = Console()
    try:
        wait_for(folder, wait, every)
        if as_json:
            shown = JsonLines(say)
        elif quiet:
            shown = Quiet(say)
        else:
            # A dumb terminal would show a window once it is closed, and nothing until then.
            drawn = console.is_terminal and not console.is_dumb_terminal
            shown = Window(console) if drawn else Log(say)
        end = follow(folder, shown, every_s=every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(end.exit_code)
