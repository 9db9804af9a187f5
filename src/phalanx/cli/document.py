"""Writes the page of all verbs from the application itself.

``python -m phalanx.cli.document`` prints it; the documentation site makes it anew at every build,
so that no page has to be kept in step by hand.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

HEAD = """# Command line

Made from the program itself. Every command prints the same with `--help`.

Exit codes: 0 done; 1 it failed, or the run is in use; 2 the configuration or the input is wrong,
with every fault in one message; 3 the budget is spent; 5 a guard stopped the run; 6 a guard paused
it; 130 stopped by Ctrl-C. After 3, 6 and 130 the same command goes on.
"""


def document() -> str:
    """All commands as one Markdown page, in the order of the alphabet."""
    from typer.main import get_command

    from phalanx.cli import app

    commands = getattr(get_command(app), "commands", {})
    shown = [name for name in sorted(commands) if not commands[name].hidden]
    listed = "\n".join(f"- [`phalanx {name}`](#phalanx-{name})" for name in shown)
    return "\n".join([HEAD, listed, *(_section(name, commands[name]) for name in shown)])


def _section(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    params = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in params if _is_argument(param)]
    options = [param for param in params if not _is_argument(param)]
    names = [_argument_name(one) for one in arguments]
    usage = " ".join(["phalanx", name, *names, *(["[OPTIONS]"] if options else [])])
    parts = [f"\n## phalanx {name}\n", f"```text\n{usage}\n```\n", inspect.cleandoc(command.help)]
    if arguments:
        meanings = [one.help or "" for one in arguments]
        parts.append(_table("argument", list(zip(names, meanings, strict=True))))
    if options:
        parts.append(_table("option", [one.get_help_record(context) for one in options]))
    return "\n".join(parts)


def _is_argument(param: Any) -> bool:
    return not param.opts[0].startswith("-")


def _argument_name(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return name if param.required or name.startswith("[") else f"[{name}]"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"\n| {title} | what it means |", "|---|---|"]
    return "\n".join(lines + [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows])


if __name__ == "__main__":
    sys.stdout.write(document() + "\n")
