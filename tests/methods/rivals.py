"""What the tests of all methods have in common: a recorded ``ask``, a start, golden files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.collective.reputation import initial_standing
from phalanx.config import Config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.types import Instruction, Iteration, IterationResult, Member, Request, Response

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SMOKE = ROOT / "configs" / "smoke"


class Asked:
    """An ``ask`` that answers from the script ``script:s`` and writes down what was asked."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.engine = ScriptedEngine({"script:s": script})
        self.lines: list[str] = []
        self.phases: list[str] = []
        self.requests: list[Request] = []

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        replies = self.engine.respond(requests)
        self.phases.append(phase)
        self.requests += requests
        for request, reply in zip(requests, replies, strict=True):
            last = request.messages[-1].content.replace("\n", " / ")
            roles = "+".join(message.role for message in request.messages)
            self.lines.append(
                f"{phase} | {request.purpose} | {request.member.key} | {roles} | {last} -> "
                f"{reply.said}"
            )
        return replies


def start(
    config: Config,
    names: Sequence[str],
    instructions: Sequence[Instruction],
    number: int = 1,
    **changes: Any,
) -> Iteration:
    """The beginning of an iteration with members that all answer by ``script:s``."""
    members = tuple(Member(name, "script:s", engine="scripted") for name in names)
    return Iteration(
        **{
            "number": number,
            "seed": config.seed,
            "members": members,
            "instructions": tuple(instructions),
            "standings": {name: initial_standing(config.reputation) for name in names},
            "reliability": {},
            "earlier": (members,) * number,
            **changes,
        }
    )


def told(asked: Asked, result: IterationResult) -> str:
    """Who was asked what, and what follows from it, as text."""
    lines = [*asked.lines, ""]
    lines += [
        f"pair {p.chosen_member} {p.chosen!r} > {p.rejected_member} {p.rejected!r} "
        f"margin={p.margin:.6g} weight={p.weight:.6g} p={p.chosen_probability},"
        f"{p.rejected_probability} drop={p.drop!r}"
        for p in result.pairs
    ]
    lines += [
        f"row {d.builder} {d.writer} {d.prompt!r} -> {d.response!r} advantage={d.advantage} "
        f"drop={d.drop!r}"
        for d in result.demonstrations
    ]
    lines += [f"metric {name} {value}" for name, value in result.metrics.items()]
    return "\n".join(lines) + "\n"


def golden(name: str, text: str) -> None:
    """Compare with ``tests/golden/NAME.txt``. Set PHALANX_UPDATE_GOLDEN=1 to write it anew, and
    read the difference before you commit."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PHALANX_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
