"""A small OpenAI-compatible server on real sockets, for the tests.

In process::

    with TestServer(ScriptedEngine(), {"m": Member("m", "script:default", engine="scripted")}) as s:
        ...  # s.url is http://127.0.0.1:PORT/v1

or as a program that takes the arguments of ``vllm serve``: ``python -m tests.server serve MODEL``.
"""

from __future__ import annotations

from tests.server.faults import Faults, Raw
from tests.server.http import Entry, TestServer
from tests.server.texts import Abilities

__all__ = ["Abilities", "Entry", "Faults", "Raw", "TestServer"]
