"""Verbs that hand a result on: export, push, pull."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.base import RunFolder, app, err, listed, out
from phalanx.cli.keeping import size_in_words
from phalanx.cli.talking import printable

if TYPE_CHECKING:
    from phalanx.handing.hub import State
    from phalanx.handing.parcel import Parcel


@app.command()
def export(
    ctx: typer.Context,
    folder: RunFolder,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="preferences, demonstrations, prompts, judgments, responses, reputations, "
            "evaluations, games, labels, alpaca-eval, arena-hard, weights, adapter",
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Option("--out", help="The file, or the folder of a data set or of weights."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="jsonl, parquet or datasets (default: by the name's ending), or a folder for "
            "axolotl, llama-factory, openrlhf or verl",
        ),
    ] = None,
    conversational: Annotated[
        bool, typer.Option("--conversational", help="Lists of {role, content} instead of text.")
    ] = False,
    iteration: Annotated[int | None, typer.Option(help="This iteration only.")] = None,
    builder: Annotated[
        str | None,
        typer.Option(help="Demonstrations of this builder only: mixture, random, teacher:NAME ..."),
    ] = None,
    system_of: Annotated[
        str | None,
        typer.Option(help="For a tool: open conversations with this member's system prompt."),
    ] = None,
    member: Annotated[
        str | None, typer.Option(help="Whose weights; default: the only one that has learned.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Of weights: bfloat16, float16, float32; auto: the base's own.")
    ] = "auto",
) -> None:
    """Write a run's rows for other tools, or a member's weights.

    Pairs and demonstrations load into TRL as they are. `weights` is base + adapter as one model
    for transformers, `adapter` a folder for PEFT.
    """
    from phalanx.export import WEIGHTS

    _leave_nothing_half(ctx)
    if what in WEIGHTS:
        given = {"--format": format_, "--conversational": conversational, "--builder": builder,
                 "--system-of": system_of}  # fmt: skip
        _refuse(what, given)
        _export_weights(folder, what, path, member, iteration, dtype)
        return
    _refuse(what, {"--member": member, "--dtype": None if dtype == "auto" else dtype})
    _export_rows(folder, what, path, format_, conversational, iteration, builder, system_of)


def _refuse(what: str, given: Mapping[str, object]) -> None:
    from phalanx.errors import ConfigError

    if useless := [name for name, value in given.items() if value]:
        raise ConfigError(f"{', '.join(useless)} says nothing about {what}; leave it out")


def _export_rows(
    folder: Path,
    what: str,
    path: Path | None,
    format_: str | None,
    conversational: bool,
    iteration: int | None,
    builder: str | None,
    system_of: str | None,
) -> None:
    from phalanx.api import open_run
    from phalanx.errors import ConfigError
    from phalanx.export import TOOLS
    from phalanx.handing import export_for
    from phalanx.ledger import Ledger, run_ledger_path

    if path is None:
        raise ConfigError("name the file or folder with --out")
    if format_ in TOOLS:
        if conversational:
            raise ConfigError(f"{format_} has its own form; leave --conversational out")
        with Ledger(run_ledger_path(folder)) as ledger:
            made = export_for(
                ledger, what, format_, out=path, iteration=iteration, builder=builder,
                system_of=system_of,
            )  # fmt: skip
        _say(f"Wrote {made.count} {what} to {made.folder}: {', '.join(made.files)}")
        if made.left_out:
            _note(f"Left out {made.left_out} whose answer hit the token limit: its end would be "
                  "taught")  # fmt: skip
        if made.note:
            _note(f"Note: {made.note}")
        return
    _refuse(f"the format {format_ or 'of a file'}", {"--system-of": system_of})
    by_ending = "parquet" if path.suffix == ".parquet" else "jsonl"
    count = open_run(folder).export(
        what,
        path,
        format=format_ or by_ending,
        conversational=conversational,
        iteration=iteration,
        builder=builder,
    )
    # Where the rows go to a screen or a pipe they are alone there.
    tell = _say if path.is_file() or path.is_dir() else _note
    tell(f"Wrote {count} {what} to {path}")


def _export_weights(
    folder: Path,
    what: str,
    path: Path | None,
    member: str | None,
    iteration: int | None,
    dtype: str,
) -> None:
    from phalanx.handing import export_adapter, export_weights

    if what == "adapter":
        _refuse(what, {"--dtype": None if dtype == "auto" else dtype})
        made = export_adapter(folder, member=member, iteration=iteration, out=path)
    else:
        made = export_weights(
            folder, member=member, iteration=iteration, out=path, dtype=dtype, say=_note
        )
    _say(f"Wrote {made}")


@app.command()
def push(
    ctx: typer.Context,
    folder: RunFolder,
    repository: Annotated[str, typer.Argument(metavar="REPO", help="OWNER/NAME on the Hub.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SHARE]...", help="Further marks: share.private=[system]"),
    ] = None,
    member: Annotated[
        list[str] | None, typer.Option("--member", help="Only these members' weights.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="preferences, demonstrations or none; default: what there is."),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="adapter; merged: base + adapter as one model; none.")
    ] = "adapter",
    public: Annotated[
        bool, typer.Option("--public", help="Everybody may see it. Default: private.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: for scripts.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write the folders that would be sent; send nothing.")
    ] = False,
    path: Annotated[
        Path | None, typer.Option("--out", help="With --dry-run: the folder. Default: NAME-push.")
    ] = None,
) -> None:
    """Send adapters, data sets and cards to the Hugging Face Hub, private, after showing it all.

    What the section `share` of the configuration marks private never leaves.
    """
    from phalanx.errors import ConfigError
    from phalanx.handing import push as push_run
    from phalanx.handing import write_parcel

    _leave_nothing_half(ctx)
    members, kinds = listed(member), None if data is None else listed(data)
    if dry_run:
        target = path or Path(f"{repository.rpartition('/')[2] or 'run'}-push")
        parcel = write_parcel(
            folder, repository, target, overrides or [], members=members, data=kinds,
            weights=weights,
        )  # fmt: skip
        _show_parcel(parcel, ["" for _ in parcel.repositories])
        _say(f"Wrote {target}; nothing was sent. Next: the same without --dry-run")
        return
    if path is not None:
        raise ConfigError("--out is for --dry-run; what is sent is written nowhere else")
    if not yes and not sys.stdin.isatty():
        raise ConfigError(
            "what would be sent is shown and asked about first, and nobody is here to answer; look "
            "at it with --dry-run, then say --yes"
        )

    def confirm(parcel: Parcel, states: Sequence[State]) -> bool:
        _show_parcel(parcel, [state.visibility(public) for state in states])
        for state in states:
            if state.stays:
                _say(f"There from before, and stays, in {state.repository.kind} "
                     f"{state.repository.name}: {_few(state.stays)}")  # fmt: skip
        return yes or typer.confirm("Send this?", default=False)

    sent = push_run(
        folder, repository, overrides or [], members=members, data=kinds, weights=weights,
        public=public, confirm=confirm, say=_note,
    )  # fmt: skip
    for address in sent:
        _say(f"Sent: {address}")
    if not sent:
        _say("Nothing was sent.")


@app.command()
def pull(
    ctx: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(metavar="REPO...", help="OWNER/NAME, or a folder of `push --dry-run`."),
    ],
    path: Annotated[Path, typer.Option("--out", help="Where the pool goes.")] = Path("pool"),
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="A base without a public name: FOLDER, or NAME=FOLDER."),
    ] = None,
) -> None:
    """Start a pool from pushed repositories: adapters, and a pool.yaml that lists them.

    Use it with: phalanx run CONFIG pool=pool/pool.yaml
    """
    from phalanx.errors import ConfigError
    from phalanx.handing import pull as pull_pool

    _leave_nothing_half(ctx)
    named, alone = {}, []
    for text in base or ():
        name, _, place = text.rpartition("=")
        if name and place and not Path(text).expanduser().exists():
            named[name] = place
        else:
            alone.append(text)
    if len(alone) > 1:
        raise ConfigError(f"--base {', '.join(alone)}: say which is whose: NAME=FOLDER")
    made = pull_pool(sources, path, bases=named, base=alone[0] if alone else None)
    _say(f"Wrote {made}. Next: phalanx run CONFIG pool={made}")


def _leave_nothing_half(ctx: typer.Context) -> None:
    """A SIGTERM ends the command by an exception, as Ctrl-C does: half-written files are removed.

    A parcel of whole models may have hundreds of gigabytes.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ctx.call_on_close(lambda: signal.signal(signal.SIGTERM, before))


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return printable(", ".join(names[:5])) + more


def _show_parcel(parcel: Parcel, visibility: Sequence[str]) -> None:
    for one, how in zip(parcel.repositories, visibility, strict=True):
        files = one.files
        total = size_in_words(sum(size for _, size in files))
        shown = f" ({how})" if how else ""
        _say(f"{one.kind.capitalize()} {one.name}{shown}: {len(files)} files, {total}")
        for name, size in files:
            _say(f"  {size_in_words(size):>9}  {name}")
    for line in parcel.withheld:
        _say(f"Stays here: {printable(line)}")


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _note(text: str) -> None:
    err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
