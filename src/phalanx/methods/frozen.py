"""Frozen: nothing is done, and the members are measured as they are.

The line to beat: the best initial member, chosen on the dev items and reported on the test items.
There is no paper to it, and nothing is assumed but that the dev items are like the test items.
"""

from __future__ import annotations

from phalanx.methods.method import Method

METHOD = Method(
    title="the members as they are; the best of them is the line to beat",
    paper="none: the baseline of all others",
    kind="none",
)
