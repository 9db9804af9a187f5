"""The verb serve: the live page of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.base import app, out


@app.command()
def serve(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Runs, comparisons, or folders with runs in them."),
    ],
    host: Annotated[
        str, typer.Option(help="The address. Beyond this machine: 0.0.0.0, and whoever reaches it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 is any free one.")] = 8137,
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show runs on a local web page, while they go on: progress, judges, training, every duel.

    It only reads. Ctrl-C ends it; the runs go on.
    """
    from phalanx.live.application import serve as serve_page

    serve_page(
        folders,
        host=host,
        port=port,
        open_page=open_page,
        say=lambda text: out.print(text, markup=False, highlight=False, soft_wrap=True),
    )
