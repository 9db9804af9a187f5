"""What an archive says of itself, and which files may be in one."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phalanx.errors import ConfigError
from phalanx.ledger import FILE_NAME

FORMAT = 1
"""The version of the archive's own form; the ledger's schema is counted apart."""
MANIFEST = "manifest.json"
CONFIG = "config.yaml"
REPORTS = ("report.html", "report.md")
INPUTS = "inputs"
ADAPTERS = "adapters"
HERE = "run:"
"""Stands for the folder of the run in the archive's ledger, as it does for its members."""

_FILES = {FILE_NAME, CONFIG, *REPORTS}
_FOLDERS = {INPUTS, ADAPTERS}


class PackedFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """The first file of an archive, ``manifest.json``.

    ``weights``: whether adapters and trained weights are in it. ``bases``: what members stand on,
    named and never packed. ``missing``: files that the configuration names and that were not
    there. ``left_out``: what else the run's folder had. ``files``: every other file, in order.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    phalanx: str
    ledger_schema: int
    name: Annotated[str, Field(min_length=1, max_length=200)]
    method: str
    finished: bool
    weights: bool
    bases: list[str]
    missing: list[str]
    left_out: list[str]
    files: dict[str, PackedFile]

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files.values())


def read_manifest(text: bytes, where: str) -> Manifest:
    """Raises ConfigError for what is no manifest, is of a newer form, or names what may not be."""
    import json

    try:
        found = json.loads(text)
        version = found["format"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{where} is not an archive of a run: its manifest has no form") from None
    if isinstance(version, int) and version > FORMAT:
        raise ConfigError(
            f"{where} is an archive of form {version}, this version of phalanx reads {FORMAT}; "
            "update phalanx: pip install --upgrade phalanx"
        )
    try:
        manifest = Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))[:80]
        why = f"{place}: {first['msg']}"
        raise ConfigError(f"{where} is not an archive of a run: its manifest: {why}") from None
    for name in manifest.files:
        if why := why_not(name):
            raise ConfigError(f"{where} is refused: {name[:80]!r} {why}")
    if FILE_NAME not in manifest.files:
        raise ConfigError(f"{where} is not an archive of a run: it has no {FILE_NAME}")
    return manifest


def why_not(name: str) -> str:
    """Why an archive may not have a file of that name; "" where it may.

    >>> why_not("adapters/iteration-1/ada/training.json"), why_not("inputs/../../x")
    ('', 'leaves its folder')
    """
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "" in parts or "." in parts:
        return "leaves its folder"
    if not name.isprintable() or "\\" in name or ":" in name or len(name) > 1000:
        return "is no plain name"
    if name in _FILES or (len(parts) > 1 and parts[0] in _FOLDERS):
        return ""
    return "is no file of a run"


def as_path(name: str) -> PurePosixPath:
    return PurePosixPath(name)
