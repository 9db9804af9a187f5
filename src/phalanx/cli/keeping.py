"""Verbs that keep a run: pack, unpack."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.base import RunFolder, app, err, out


@app.command()
def pack(
    folder: RunFolder,
    path: Annotated[
        Path | None,
        typer.Option("--out", help="The archive (.tar.gz, .tar.xz). Default: NAME.phalanx.tar.gz."),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="With adapters and trained weights.")
    ] = True,
) -> None:
    """Put a run into one archive that another machine can open. Bases are named, not packed."""
    from phalanx.packing import pack as pack_run

    packed = pack_run(folder, path, weights=weights)
    manifest = packed.manifest
    _say(f"Wrote {packed.path}: {len(manifest.files)} files, {size_in_words(packed.num_bytes)}")
    for base in manifest.bases:
        _note(f"Base, not packed: {base}")
    for missing in manifest.missing:
        _note(f"Missing: {missing}")
    if manifest.left_out:
        _note(f"Left out: {', '.join(manifest.left_out)}")
    _say(f"Next, anywhere: phalanx unpack {shlex.quote(packed.path.name)}")


@app.command()
def unpack(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="What `phalanx pack` wrote.")],
    path: Annotated[
        Path | None, typer.Option("--out", help="The run's folder. Default: its name, here.")
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option("--base", help="Where a local base is here: OLD=NEW. May be repeated."),
    ] = None,
) -> None:
    """Open an archive as a run: `report`, `export`, `serve` and `run` work on it. Checks it all."""
    from phalanx.errors import ConfigError
    from phalanx.methods import METHODS
    from phalanx.packing import unpack as unpack_run

    bases = {}
    for text in base or ():
        old, sign, new = text.rpartition("=")
        if not (sign and old and new):
            raise ConfigError(f"--base {text!r}: expected OLD=NEW, as phalanx pack listed it")
        bases[old] = str(Path(new).expanduser().absolute()) if Path(new).exists() else new
    opened = unpack_run(archive, path, bases=bases)
    for missing in opened.missing_bases:
        _note(f"Not here: the base {missing}; where it is elsewhere: --base {missing}=FOLDER")
    for missing in opened.manifest.missing:
        _note(f"Not in the archive: {missing}")
    folder = shlex.quote(str(opened.folder))
    _say(f"Unpacked {opened.folder}. Next: phalanx report {folder}")
    if opened.manifest.method in METHODS:
        config = shlex.quote(str(opened.folder / "config.yaml"))
        _say(f"Read {config} before you go on: phalanx run {config} --out {folder} iterations=N")


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _note(text: str) -> None:
    err.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def size_in_words(num_bytes: int) -> str:
    size, unit = float(num_bytes), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
