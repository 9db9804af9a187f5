"""A pool from repositories of the Hub, or from folders of the same shape."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from phalanx.config.schema import MemberSettings
from phalanx.errors import ConfigError
from phalanx.handing.hub import clear_words, hub
from phalanx.handing.members import folder_for
from phalanx.handing.parcel import FORMAT, MANIFEST, SharedMember, refuse_name
from phalanx.placing import placed
from phalanx.weights.adapters import CONFIG, TENSORS

POOL = "pool.yaml"
_WANTED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "README.md")
"""What is fetched of a member: never code, never what would have to be unpickled."""
_ROLES = ("contest", "judge", "learn")


def pull(
    sources: Sequence[str],
    out: Path | str = "pool",
    *,
    bases: Mapping[str, str] | None = None,
    base: str | None = None,
) -> Path:
    """Fetch members and write ``out/pool.yaml``, which lists them: its path.

    A source is a Hub repository (OWNER/NAME), or a folder that `phalanx push --dry-run` wrote or
    that has an adapter of PEFT. ``base`` is the base of members whose own has no public name,
    ``bases`` says so by the name that they have for it. Raises ConfigError for a source that holds
    no members, two members of one name, a base that is not known, and a folder that is taken;
    HubError where the Hub does not give it.
    """
    if not sources:
        raise ConfigError("name at least one repository or folder")
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already; remove it, or name another with --out")
    known = {name: _base_place(place) for name, place in (bases or {}).items()}
    with placed(target) as place:
        place.mkdir()
        found: dict[str, SharedMember] = {}
        for number, source in enumerate(sources):
            scratch = place / f".fetched-{number}"
            for member, folder in _members_of(source, scratch):
                if member.name in found:
                    raise ConfigError(
                        f"{source}: there is a member {member.name} already; pull it into a folder "
                        "of its own, and join the two files by hand under other names"
                    )
                _take(folder, place / _folder_name(member), source)
                found[member.name] = member
            if scratch.exists():
                shutil.rmtree(scratch)
        text = _pool_text(sources, list(found.values()), known, base and _base_place(base))
        (place / POOL).write_text(text, encoding="utf-8")
    return target / POOL


def _base_place(base: str) -> str:
    """A base that is here by its whole place: pool.yaml lies in another folder."""
    place = Path(base).expanduser()
    if place.exists():
        return str(place.absolute())
    if base.startswith((".", "/", "~")):
        raise ConfigError(f"--base {base}: there is no such folder")
    return base


def _folder_name(member: SharedMember) -> str:
    return folder_for(member.name, (POOL,))


def _members_of(source: str, scratch: Path) -> list[tuple[SharedMember, Path]]:
    """The members of a source, and where the files of each are now."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        folder = folder / "model" if (folder / "model" / MANIFEST).is_file() else folder
        members = read_members(folder, source)
    else:
        name = source.removeprefix("hub:")
        if name.startswith((".", "/", "~")):
            raise ConfigError(f"{source}: there is no such folder")
        refuse_name(name)
        folder = scratch
        # What it holds is known before anything large is fetched, and nothing else is.
        _fetch(name, scratch, [MANIFEST, CONFIG])
        members = read_members(folder, source)
        for member in members:
            inner = f"{member.folder}/" if member.folder else ""
            _fetch(name, scratch, [f"{inner}{one}" for one in _WANTED], f"{inner}*/*")
    places = [(member, folder / member.folder) for member in members]
    for member, place in places:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{source}: the folder of {member.name} is a link out of it")
    return places


def _fetch(name: str, folder: Path, wanted: list[str], unwanted: str | None = None) -> None:
    api = hub()
    with clear_words(name):
        api.snapshot_download(
            name, local_dir=folder, allow_patterns=wanted, ignore_patterns=unwanted
        )


def read_members(folder: Path, source: str) -> list[SharedMember]:
    """The members of a folder: by its manifest, or the one adapter at its root.

    What it says is not trusted: names, roles and folders are checked. Raises ConfigError.
    """
    if not (folder / MANIFEST).is_file():
        return [_foreign(folder, source)]
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ConfigError(
                f"{source}: its {MANIFEST} is of format {data['format']}, and this version reads "
                f"{FORMAT}; use the phalanx that wrote it ({str(data.get('phalanx'))[:40]})"
            )
        members = [_checked(one) for one in data["members"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{source}: its {MANIFEST} cannot be read: {error!r}") from None
    if not members:
        raise ConfigError(f"{source}: its {MANIFEST} lists no members")
    return members


def _checked(one: Mapping[str, Any]) -> SharedMember:
    member = SharedMember(**{**one, "roles": tuple(one["roles"])})
    MemberSettings.model_validate({"name": member.name})  # the rule for names
    texts = (member.folder, member.base, member.label, member.system, member.family)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{member.name}: a field that is no text")
    parts = PurePosixPath(member.folder).parts
    if member.folder.startswith("/") or ".." in parts or "\\" in member.folder:
        raise ValueError(f"{member.name}: the folder {member.folder!r}")
    if not set(member.roles) <= set(_ROLES) or member.kind not in ("adapter", "merged"):
        raise ValueError(f"{member.name}: roles {member.roles!r}, kind {member.kind!r}")
    if member.base and not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", member.base):
        raise ValueError(f"{member.name}: the base {member.base!r}")
    return member


def _foreign(folder: Path, source: str) -> SharedMember:
    """An adapter that Phalanx has not pushed, under the name of its repository."""
    if not (folder / CONFIG).is_file():
        raise ConfigError(
            f"{source}: it has no {MANIFEST} and no {CONFIG}, so no members; a whole model needs "
            "no pull: name it as `model` of a member"
        )
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        base = str(settings.get("base_model_name_or_path") or "")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{source}: its {CONFIG} cannot be read: {error!r}") from None
    is_name = bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", base))
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(source).name).lstrip("-_.")[:64] or "member"
    label = Path(base).name or "unknown"
    return SharedMember(name, "", "adapter", base if is_name else "", label)


def _take(source: Path, target: Path, where: str) -> None:
    """Copy a member's own files; folders of other members stay behind."""
    root = source.resolve()
    target.mkdir()
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        is_wanted = any(path.match(pattern) for pattern in _WANTED) and path.name != MANIFEST
        if path.is_file() and is_wanted and path.resolve().is_relative_to(root):
            shutil.copyfile(path, target / path.name)
    whole = (target / "config.json").is_file() and any(target.glob("*.safetensors"))
    if not whole and not ((target / CONFIG).is_file() and (target / TENSORS).is_file()):
        raise ConfigError(f"{where}: {target.name} has neither an adapter nor whole weights")


def _pool_text(
    sources: Sequence[str],
    members: Sequence[SharedMember],
    bases: Mapping[str, str],
    base: str | None,
) -> str:
    lines = [
        f"# Made by `phalanx pull` from {json.dumps(list(sources), ensure_ascii=True)};",
        "# use it with: phalanx run CONFIG pool=THIS_FILE",
        "members:",
    ]
    known = {name for one in members for name in (one.label, one.base) if name}
    faults = [
        f"--base {name}: no member has a base of this name; there are {', '.join(sorted(known))}"
        for name in bases
        if name not in known
    ]
    for one in members:
        lines.append(f"  - name: {_quoted(one.name)}")
        own = _folder_name(one)
        if one.kind == "merged":
            lines.append(f"    model: {_quoted(own)}")
        else:
            place = bases.get(one.label) or bases.get(one.base) or one.base or base or ""
            if not place:
                faults.append(
                    f"{one.name}: its base {one.label!r} has no public name; say where it is with "
                    f"--base {one.label}=FOLDER"
                )
            lines.append(f"    model: {_quoted(place)}")
            lines.append(f"    adapter: {_quoted(own)}")
        if one.system:
            lines.append(f"    system: {_quoted(one.system)}")
        elif one.system_kept:
            lines.append("    # Its system prompt was not sent: add it as `system`.")
        if one.family:
            lines.append(f"    family: {_quoted(one.family)}")
        if one.roles != SharedMember.__dataclass_fields__["roles"].default:
            lines.append(f"    roles: {json.dumps(list(one.roles))}")
    if faults:
        raise ConfigError(faults)
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A text in YAML's double quotes: JSON's, save that a sign beyond U+FFFF is not two there."""
    marks = json.dumps(text, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in marks)
