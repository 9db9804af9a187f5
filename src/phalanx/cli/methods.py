"""The verb ``methods``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from phalanx.cli.base import app, out


@app.command()
def methods(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of text.")] = False,
) -> None:
    """List the methods that a configuration can name: kind, what they do, and the paper."""
    from phalanx.api import list_methods
    from phalanx.report.methods import methods_table

    rows = list_methods()
    if as_json:
        out.print_json(json.dumps(rows))
    else:
        out.print(methods_table(rows))
