"""What an archive says of itself, and which files may be in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from phalanx.errors import ConfigError
from phalanx.ledger import FILE_NAME
from phalanx.ledger.schema import SCHEMA_VERSION

FORMAT = 1
"""The version of the archive's own form; the ledger's schema is counted apart."""
MANIFEST = "manifest.json"
CONFIG = "config.yaml"
INPUTS = "inputs"
ADAPTERS = "adapters"

_FILES = {FILE_NAME, CONFIG}
_FOLDERS = {INPUTS, ADAPTERS}
_LONGEST = 255
"""Bytes of the longest name of one file or folder that file systems take."""


def plain(text: str) -> str:
    """``text`` with a question mark for whatever does not print: it is shown on terminals."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that do not print")
    return text


Plain = Annotated[str, AfterValidator(_plain)]


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

    format: int = Field(strict=True, ge=1)
    phalanx: Plain
    ledger_schema: int = Field(strict=True, ge=0)
    name: Annotated[Plain, Field(min_length=1, max_length=200)]
    method: Plain
    finished: bool
    weights: bool
    bases: list[Plain]
    missing: list[Plain]
    left_out: list[Plain]
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
    except (ValueError, KeyError, TypeError, RecursionError):
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
        place = plain(".".join(map(str, first["loc"])))[:80]
        why = f"{place}: {first['msg']}"
        raise ConfigError(f"{where} is not an archive of a run: its manifest: {why}") from None
    if manifest.ledger_schema > SCHEMA_VERSION:
        raise ConfigError(
            f"{where} has a ledger of schema {manifest.ledger_schema}, newer than the "
            f"{SCHEMA_VERSION} of this version of phalanx; update phalanx: "
            "pip install --upgrade phalanx"
        )
    for refusal in (why_not, lambda name: _inside_a_file(name, manifest.files)):
        for name in manifest.files:
            if why := refusal(name):
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
    if max(len(part.encode()) for part in parts) > _LONGEST:
        return f"has a part of more than {_LONGEST} bytes"
    if name in _FILES or (len(parts) > 1 and parts[0] in _FOLDERS):
        return ""
    return "is no file of a run"


def _inside_a_file(name: str, files: Mapping[str, PackedFile]) -> str:
    parts = name.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return next((f"lies in {file[:80]!r}, which is a file" for file in above if file in files), "")
