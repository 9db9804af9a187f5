"""What a server is known by here, and what a member is known by on it."""

from __future__ import annotations

import re

from phalanx.types import Member
from phalanx.weights import adapter_hash, resolve_adapter

BaseKey = tuple[str, str, bool]


def served_name(member: Member) -> str | None:
    """The adapter's name on a server, such as ``ada@2.1f0c9a3b``; None for a bare base.

    The content's hash is in it, so that another run's adapter is never taken for this one.
    """
    if member.adapter is None:
        return None
    folder = resolve_adapter(member.adapter, member.name)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", member.name)
    return f"{name}@{member.version}.{adapter_hash(folder)[:8]}"
