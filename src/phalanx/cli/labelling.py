"""`phalanx label`: a person judges duels blind, in a terminal or on a page."""

from __future__ import annotations

import getpass
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.base import RunFolder, app, err, listed, out
from phalanx.cli.talking import printable

if TYPE_CHECKING:
    from phalanx.labelling import Labelling, Shown
    from phalanx.ledger import Ledger

KEYS = {
    "1": "first", "\x1b[d": "first", "l": "first", "left": "first", "first": "first",
    "2": "second", "\x1b[c": "second", "r": "second", "right": "second", "second": "second",
    "t": "tie", "0": "tie", "tie": "tie",
    "s": "skip", "skip": "skip",
    "b": "back", "back": "back",
    "m": "more", "more": "more",
    "q": "quit", "quit": "quit",
}  # fmt: skip
# The two that are no letters are the arrows to the left and to the right.
HELP = "1 the first is better, 2 the second, t tie, s skip, b back, m all of it, q quit"
MAX_LINES = 16
"""Lines of one text on the screen; more are cut with a mark, and shown by ``m``."""


@app.command()
def label(
    folder: RunFolder,
    person: Annotated[
        str | None, typer.Option("--as", help="Who judges. Default: the name of this login.")
    ] = None,
    sample: Annotated[int, typer.Option(help="How many duels; half are disputed ones.")] = 50,
    only_disagreed: Annotated[
        bool, typer.Option("--only-disagreed", help="Only duels on which judges disagree.")
    ] = False,
    member: Annotated[
        list[str] | None, typer.Option("--member", help="Only duels of these members.")
    ] = None,
    iteration: Annotated[int | None, typer.Option(help="Only duels of this iteration.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another sample. Default: the run's.")] = None,
    page: Annotated[bool, typer.Option("--page", help="In the browser, on this machine.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page; 0: any free one.")] = 0,
    show: Annotated[
        bool, typer.Option("--show", help="Only show how people and judges agree.")
    ] = False,
) -> None:
    """Judge a sample of duels blind: no names, sides shuffled. The same command goes on.

    Labels are rows of the run: `status`, `report` and `export RUN labels` have them, and judges can
    be anchored by them (`aggregate.anchors`). A run that goes on has to be stopped first.
    """
    from phalanx.labelling import label as labelled
    from phalanx.ledger import Ledger, run_ledger_path

    if show:
        with Ledger(run_ledger_path(folder)) as ledger:
            _show(ledger)
        return
    with labelled(
        folder,
        login() if person is None else person,
        sample=sample,
        only_disagreed=only_disagreed,
        members=tuple(listed(member)),
        iteration=iteration,
        seed=seed,
    ) as at_work:
        if page:
            _serve(at_work, port)
        else:
            _work(at_work)
        _show(at_work.ledger)


def login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, as in some containers
        return "somebody"


def _show(ledger: Ledger) -> None:
    from phalanx.report.people import people
    from phalanx.report.people_views import people_sections
    from phalanx.report.terminal import sections_page

    found = people_sections(people(ledger, int(ledger.get("seed") or 0)))
    if not found:
        out.print("Nobody labelled a duel yet.")
        return
    out.print(sections_page("How people and judges agree", found))


def _work(at_work: Labelling) -> None:
    """Show and ask until all is labelled, the person leaves, or the input ends."""
    total = len(at_work.duels)
    _say(f"{at_work.person}: {at_work.num_done} of {total} duels are labelled. {HELP}.")
    try:
        while (answer := _asked(at_work)) != "quit":
            if answer == "back":
                if not at_work.back():
                    _say("This is the first one.")
            elif not at_work.done:
                at_work.say(answer)
    except KeyboardInterrupt:
        _say("")  # every label so far is recorded
    if at_work.num_done < total:
        _say(f"{at_work.num_done} of {total} labelled; the same command goes on.")


def _asked(at_work: Labelling) -> str:
    """Show the duel at hand, or that it was the last, and read what the person says."""
    if at_work.done:
        _say(f"All {len(at_work.duels)} labelled: q quit, b back.")
        return _answer()
    shown = at_work.shown()
    cut, whole = _duel(shown, MAX_LINES), _duel(shown, None)
    _say(cut)
    while (answer := _answer()) == "more":
        if cut == whole:
            _say(f"It is whole: nothing was cut. {HELP}.")
            continue
        _page_through(whole)
        if sys.stdout.isatty():  # what was read has left the screen
            _say(cut)
    return answer


def _answer() -> str:
    """One of the words of ``KEYS``; "quit" where the input ends."""
    while True:
        if sys.stdin.isatty():
            import click

            key = click.getchar()
            if key in ("\x03", "\x04"):
                return "quit"
        else:
            line = sys.stdin.readline()
            if not line:
                return "quit"
            key = line.strip()
        if found := KEYS.get(key.lower()):
            return found
        err.print(f"{printable(key[:20])!r} means nothing here: {HELP}", style="dim", markup=False,
                  highlight=False, soft_wrap=True)  # fmt: skip


def _duel(shown: Shown, limit: int | None) -> str:
    """The instruction and both responses, each at most ``limit`` lines, with a mark where more.

    Texts are indented, headings are not: no text can look as if another one began in it.
    """
    before = f"  (you said: {shown.said})" if shown.said else ""
    parts = [f"\n== {shown.place} of {shown.total}{before}"]
    for title, text in (
        ("Instruction", shown.instruction),
        ("1. First response", shown.first),
        ("2. Second response", shown.second),
    ):
        parts += [f"\n-- {title}", *(f"  {line}".rstrip() for line in _lines(text, limit))]
    return "\n".join(parts)


def _lines(text: str, limit: int | None) -> list[str]:
    width = max(20, shutil.get_terminal_size().columns - 2)
    text = text.replace("\r\n", "\n")
    # Wrapping takes long for what is not shown anyway.
    cut = text if limit is None else text[: 4 * limit * width]
    lines = [
        piece
        for line in printable(cut).translate(_DIRECTIONS).split("\n")
        for piece in textwrap.wrap(line, width, drop_whitespace=False) or [""]
    ]
    if limit is None or (len(lines) <= limit and len(cut) == len(text)):
        return lines
    return [*lines[:limit], f"[cut here; {len(text):,} characters in all: m shows them]"]


# Characters that turn the direction of what follows, beyond their own line and text.
_DIRECTIONS = dict.fromkeys((*range(8234, 8239), *range(8294, 8298)), "�")


def _page_through(text: str) -> None:
    if sys.stdout.isatty():
        import click

        click.echo_via_pager(f"q leaves this and goes back to the question.\n{text}\n")
    else:
        _say(text)


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _serve(at_work: Labelling, port: int) -> None:
    from phalanx.labelling.page import serve

    serve(at_work, port=port, say=_say)
