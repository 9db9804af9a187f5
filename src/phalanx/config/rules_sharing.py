"""Rules about ``share``: what is marked private must be there, or the mark would keep nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.schema import Config


def check_sharing(config: Config, complete: bool) -> Iterator[Fault]:
    """Unknown members and missing files; without a pool (a bare preset) members are not known."""
    recruits = config.pool.recruit.specialists if config.pool.recruit else {}
    names = [*(member.name for member in config.pool.members), *recruits]
    for position, name in enumerate(config.share.members):
        if (complete or names) and name not in names:
            hint = did_you_mean(name, names)
            yield Fault(("share", "members", position), f"there is no member {name!r}; {hint}")
    for position, source in enumerate(config.share.sources):
        if not FilePath(source).expanduser().is_file():
            text = f"there is no file {source!r}, so nothing in it could be kept back"
            yield Fault(("share", "sources", position), text)
