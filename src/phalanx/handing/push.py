"""``push``: make the parcel, look at the Hub, ask, send."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from phalanx.errors import ConfigError
from phalanx.handing import hub
from phalanx.handing.parcel import Parcel, build, refuse_name
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.placing import placed

MARK = ".phalanx-push.json"
"""In a folder of ``--dry-run``: which files it wrote, with size and time of each."""
Ask = Callable[[Parcel, Sequence[hub.State]], bool]


def push(
    run: Path | str,
    repository: str,
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    data: Sequence[str] | None = None,
    weights: str = "adapter",
    public: bool = False,
    confirm: Ask = lambda parcel, states: True,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Send a run's adapters (or merged weights), data sets and cards to the Hub: their addresses.

    ``repository`` is OWNER/NAME, once as a model and once as a data set, private unless ``public``.
    ``confirm`` sees what is to be sent, and what is there, before anything leaves; where it says
    no, nothing does, and the list is empty. Else as :func:`phalanx.handing.parcel.build`; raises
    HubError where the Hub cannot be reached or refuses.
    """
    refuse_name(repository)
    hub.refuse_without_token()  # before whole models are written
    with TemporaryDirectory(prefix="phalanx-push-") as scratch:
        parcel = build(
            run, repository, Path(scratch), members=members, data=data, weights=weights,
            overrides=overrides,
        )  # fmt: skip
        states = hub.look(parcel.repositories, public=public)
        if not confirm(parcel, states):
            return []
        return hub.send(states, public=public, say=say)


def write_parcel(
    run: Path | str,
    repository: str,
    out: Path | str,
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    data: Sequence[str] | None = None,
    weights: str = "adapter",
) -> Parcel:
    """Write to ``out`` what :func:`push` would send. The Hub is not asked.

    What an earlier call wrote there is replaced, where it is as that call left it; ConfigError for
    a folder that has anything else.
    """
    target = Path(out)
    with Ledger(run_ledger_path(run)) as ledger:
        ledger.refuse_target(target)
    _refuse_others(target)
    with placed(target) as place:
        place.mkdir()
        parcel = build(
            run, repository, place, members=members, data=data, weights=weights,
            overrides=overrides,
        )  # fmt: skip
        (place / MARK).write_text(json.dumps(_files(place), indent=1) + "\n", encoding="utf-8")
    there = tuple(replace(r, folder=target / r.kind) for r in parcel.repositories)
    return replace(parcel, repositories=there)


def _refuse_others(target: Path) -> None:
    """Raise ConfigError for a place that has anything but an untouched folder of ``--dry-run``."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    way = "remove it, or name another with --out"
    mark = target / MARK
    if not mark.is_file():
        raise ConfigError(f"{target} exists already, and is not of --dry-run; {way}")
    try:
        written = json.loads(mark.read_text(encoding="utf-8"))
    except ValueError:
        written = None
    if not isinstance(written, dict):
        raise ConfigError(f"{target} exists already, and its {MARK} cannot be read; {way}")
    found = _files(target)
    changed = [name for name in sorted({*found, *written}) if found.get(name) != written.get(name)]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ConfigError(
            f"{target} exists already, and was changed since --dry-run wrote it: "
            f"{', '.join(changed[:3])}{more}; {way}"
        )


def _files(folder: Path) -> dict[str, list[int]]:
    """Path within the folder -> [bytes, time of the last change in ns], links as they are."""
    paths = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
    return {
        p.relative_to(folder).as_posix(): [p.lstat().st_size, p.lstat().st_mtime_ns]
        for p in sorted(paths)
        if p != folder / MARK
    }
