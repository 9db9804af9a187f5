"""The command ``phalanx``. Each verb is a few lines over the Python API.

Verbs of runs are in ``runs``, those that ask members without a run in ``asking``.
"""

from phalanx.cli import asking, runs, search
from phalanx.cli.base import app, main

__all__ = ["app", "asking", "main", "runs", "search"]
