"""A pool whose best mixture is known, for tests of ``mixture-search``; also run as a process.

ada can add, bob can multiply, cora can neither, but repeats what somebody else has worked out.
ada and bob do not listen. So ``ada, bob > cora`` is right on everything, nobody alone is right on
more than half, and everything else that is as good costs more. judy scores what she reads.

python -m tests.search_pool CONFIG FOLDER DIES_AFTER
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from phalanx.config import load
from phalanx.search import search
from phalanx.types import Failure, Request, Response, Reward, Sampling
from phalanx.workshop import Workshop

UNKNOWN = "I do not know."
SKILLS = {"ada": "+", "bob": "*", "cora": "", "dan": "", "judy": ""}
_SUM = re.compile(r"What is (\d+) ([+*]) (\d+)\?")


def write_config(folder: Path, *, items: int = 40, extra: str = "", search: str = "") -> Path:
    """A configuration with its task file; half of the items are sums, half are products."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(items):
        a, b, sign = 2 + number // 2, 3, "+*"[number % 2]
        value = a + b if sign == "+" else a * b
        domain = {"+": "sums", "*": "products"}[sign]
        question = f"What is {a} {sign} {b}?"
        rows.append({"instruction": question, "answer": str(value), "domain": domain})
    tasks = folder / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = folder / "search.yaml"
    path.write_text(
        f"""
method: moaa
seed: 5
pool:
  members:
    - {{name: ada, engine: scripted}}
    - {{name: bob, engine: scripted}}
    - {{name: cora, engine: scripted}}
    - {{name: judy, engine: scripted, roles: [judge]}}
evaluate:
  dev_share: 0.9
  tasks: [{{name: sums, source: "{tasks}", match: number}}]
search: {{items: 18, max_proposers: 3, max_layers: 3{search}}}
{extra}
""",
        encoding="utf-8",
    )
    return path


class Pool:
    """The engine: no script can read the proposals, which stand in the system message."""

    def __init__(
        self,
        *,
        dies_after: int | None = None,
        broken: str = "",
        tries: int = 1,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.calls: list[Request] = []
        self._left = dies_after
        self._broken = broken
        self._tries = tries
        self._flags = flags

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        at = range(len(requests))
        return [list(at[start : start + 5]) for start in range(0, len(requests), 5)]

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        if self._left is not None:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        self.calls += requests
        tried = Counter(request.id for request in self.calls)
        return [
            Response(request.id, error=Failure("timeout", "busy", transient=True))
            if tried[request.id] < self._tries
            else self._one(request)
            for request in requests
        ]

    def _one(self, request: Request) -> Response:
        if request.member.name == self._broken:
            return Response(request.id, error=Failure("refused", "not today"))
        if isinstance(request.want, Reward):
            reward = -5.0 if UNKNOWN in request.want.response else 2.5
            return Response(request.id, reward=reward, flags=self._flags)
        assert isinstance(request.want, Sampling)
        told = request.messages[-1].content
        if request.purpose == "judge":
            text = '{"score": 2}' if UNKNOWN in told else '{"score": 9}'
        else:
            text = _answer(request.member.name, told, request.messages[0].content)
        read = sum(len(message.content.split()) for message in request.messages)
        return Response(
            request.id,
            text=text,
            finish_reason="stop",
            num_prompt_tokens=read,
            num_completion_tokens=len(text.split()),
        )

    def close(self) -> None:
        pass


def _answer(name: str, question: str, system: str) -> str:
    a, sign, b = _SUM.search(question).groups()
    if sign == SKILLS[name]:
        return f"The answer is {int(a) + int(b) if sign == '+' else int(a) * int(b)}."
    heard = re.search(r"The answer is (\d+)", system)
    return heard[0] + "." if name == "cora" and heard else UNKNOWN


def run(path: Path, folder: Path, overrides: Sequence[str] = (), engine: Pool | None = None):
    """One start of the search in ``folder``; returns what it found."""
    config = load(path, list(overrides), purpose="search")
    shop = Workshop(config, folder)
    for name in ("scripted", "reward"):
        shop.use(name, engine or Pool())
    return search(config, folder, workshop=shop)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), engine=Pool(dies_after=int(sys.argv[3])))
