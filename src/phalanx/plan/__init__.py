"""What ``phalanx check`` prints: what a run would do and take. Nothing heavy is imported.

>>> from phalanx.plan import check
>>> code, text = check("preset:sparta")
>>> code
0
"""

from __future__ import annotations

from phalanx.plan.content import content_faults
from phalanx.plan.make import Plan, check, make_plan, plan_for, require, rescaled
from phalanx.plan.table import render

__all__ = [
    "Plan", "check", "content_faults", "make_plan", "plan_for", "render", "require", "rescaled",
]  # fmt: skip
