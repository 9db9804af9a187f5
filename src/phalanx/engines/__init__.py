"""What runs the members: each module holds one implementation of :class:`phalanx.types.Engine`."""

from __future__ import annotations
