"""What all verbs share: the application, its consoles, words for arguments, and `main`."""

from __future__ import annotations

import os
import sqlite3
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from phalanx.errors import ConfigError, Interrupted, PhalanxError
from phalanx.version import __version__

if TYPE_CHECKING:
    from phalanx.config.schema import Config

VERBS = {
    "Start": ("demo", "init", "methods", "recruit", "check"),
    "Runs": ("run", "status", "watch", "serve", "report", "label"),
    "Several methods": ("compare", "ablate", "reproduce"),
    "Measure": ("eval", "judge-bench"),
    "Use": ("chat", "serve-openai"),
    "Ask without a run": ("mix", "judge", "synthesise", "mixture-search"),
    "Hand on": ("export", "push", "pull", "pack", "unpack"),
}
"""The verbs as the help lists them."""


class _Verbs(TyperGroup):
    def list_commands(self, ctx) -> list[str]:
        return [verb for verbs in VERBS.values() for verb in verbs]

    def get_command(self, ctx, cmd_name: str):
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.rich_help_panel = next(k for k, verbs in VERBS.items() if cmd_name in verbs)
        return command


app = typer.Typer(
    name="phalanx",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Align a pool of language models together, without labels.\n\n"
    "Start with `phalanx demo`, or write a configuration with `phalanx init`, look at the plan "
    "with `phalanx check`, and start with `phalanx run`.",
)
out = Console()
err = Console(stderr=True)

Source = Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file, or preset:NAME.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings that win over the file: train.beta=0.2"
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; the summary only.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"phalanx {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def load(source: str, overrides: Sequence[str] | None, purpose: str = "run"):
    """The configuration of a run, or of another command, with every fault in one message."""
    from phalanx.api import load_config

    return load_config(source, overrides or [], purpose=purpose)


def folder_of(source: str, config: Config, verb: str) -> Path:
    """The default folder of a command that is no run: the run's, with the verb behind it."""
    from phalanx.api import default_folder

    path = Path(source).expanduser()
    if path.is_dir():  # beside the run itself, wherever its configuration has its output
        whole = path.resolve()
        return path.with_name(f"{whole.name}-{verb}") if path.name else whole.parent / verb
    folder = default_folder(source, config)
    return folder.with_name(f"{folder.name}-{verb}")


def listed(given: Sequence[str] | None) -> list[str]:
    """Options that may be repeated, and list several words each.

    Raises ConfigError for one that lists none: an empty variable of a shell is not "everything".
    """
    words = [word.strip() for text in given or () for word in text.split(",")]
    if given is not None and not all(words):
        raise ConfigError(f"{', '.join(map(repr, given))} has an empty name; leave the option out")
    return words


def numbers(text: str) -> tuple[int, ...]:
    """The seeds of an option: 1,2,3. Raises ConfigError, also where one stands twice."""
    names = listed([text])
    if not all(name.isascii() and name.isdecimal() for name in names):
        raise ConfigError(f"--seeds {text!r}: expected numbers from 0, such as 1,2,3")
    found = tuple(map(int, names))
    if len(set(found)) < len(found):
        raise ConfigError(f"--seeds {text!r}: one stands twice; name each once")
    return found


@contextmanager
def stopping() -> Iterator[None]:
    """The second Ctrl-C stops at once; it is a message, too."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped at once; everything recorded is kept, and the same command goes on from there"
        ) from None


def main() -> None:
    """Entry point: errors of the user's making are one message, not a traceback."""
    # Notes of the libraries below to their developers; real faults reach us as exceptions.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # for worker processes
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        app()
    except PhalanxError as error:
        _complain(error)
        sys.exit(error.exit_code)
    except (OSError, sqlite3.Error) as error:
        _complain(error)
        sys.exit(1)


def _complain(error: Exception) -> None:
    """What servers and files say is in it: none of that steers the terminal."""
    from phalanx.report.words import harmless

    err.print(harmless(f"phalanx: {error}"), markup=False, highlight=False, soft_wrap=True)
