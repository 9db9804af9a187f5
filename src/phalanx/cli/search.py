"""The verb ``mixture-search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.base import Overrides, Quiet, Source, app, folder_of, load, out, stopping
from phalanx.errors import ConfigError


@app.command("mixture-search")
def mixture_search(
    source: Source,
    overrides: Overrides = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The search's folder. Default: runs/NAME-search.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write the best design here; use it with mixture=FILE."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Choose proposers, aggregator and layers of a mixture on the dev rows of evaluate.tasks.

    Settings are in the section `search`: strategy, metric, and the most requests (`search.calls`).
    The same command goes on where it stopped; `search.calls` may be raised in between.
    """
    from phalanx.collective.designs import choose
    from phalanx.progress import for_terminal
    from phalanx.report.trials import fragment, trials_table
    from phalanx.search import search

    if to is not None and to.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--to {to}: expected a name that ends in .yaml, for mixture=FILE")
    config = load(source, overrides, "search")
    folder = out_folder or folder_of(source, config, "search")
    progress = for_terminal(quiet=quiet)
    progress.say(f"Search folder: {folder}")
    try:
        with stopping():
            found = search(config, folder, progress=progress)
    finally:
        progress.finish()
    out.print(trials_table(found))
    if found.trials and not found.stopped and choose(found.trials) is None:
        raise ConfigError(
            f"no design has a score on enough of its items, so none was chosen"
            f"{f' and {to} was not written' if to else ''}: what is missing is said below the "
            "table, and why in the table `responses` of the ledger; the same command asks what "
            "failed again"
        )
    if to is not None:
        try:
            to.write_text(fragment(found), encoding="utf-8")
        except ValueError as error:
            raise ConfigError(f"--to {to}: nothing was written: {error}") from None
        out.print(f"Wrote {to}. Next: phalanx run CONFIG mixture={to}", markup=False)
