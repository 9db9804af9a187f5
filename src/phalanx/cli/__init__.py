"""The command ``phalanx``. Each verb is a few lines over the Python API.

Verbs of runs are in ``runs``, those that ask members without a run in ``asking``, those that
measure in ``measuring`` and ``judging``, and that of the papers' tables in ``reproducing``;
``methods`` lists what a run can do, and ``comparing`` puts several of them on equal terms;
``handing`` exports and shares, ``keeping`` packs runs, and ``labelling`` asks people;
``chatting`` talks to members, ``speaking`` makes an endpoint of them;
``serving`` shows runs on a page, ``watching`` in a terminal.
"""

from phalanx.cli import (
    asking,
    chatting,
    comparing,
    handing,
    judging,
    keeping,
    labelling,
    measuring,
    methods,
    reproducing,
    runs,
    search,
    serving,
    speaking,
    watching,
)
from phalanx.cli.base import app, main

__all__ = [
    "app", "asking", "chatting", "comparing", "handing", "judging", "keeping", "labelling", "main",
    "measuring", "methods", "reproducing", "runs", "search", "serving", "speaking",
    "watching",
]  # fmt: skip
