"""Judging a hundred responses: the expected score in one pass against a score written as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bench.measuring import Item, ratio, seconds_of
from bench.setting import Setting, instructions, weights_of
from phalanx.collective.judging import judge_requests
from phalanx.config.schema import JudgeSettings
from phalanx.types import Duel, Instruction, Member, Request, Response

WRITTEN = JudgeSettings(protocol="rubric", max_new_tokens=32)
EXPECTED = JudgeSettings(protocol="expected")
_SENTENCE = (
    "It has a frame, a moving part and something that drives it, and people use it because it "
    "saves them time and does the same thing again and again without getting tired of it. "
)


def questions(judge: Member, settings: JudgeSettings, count: int) -> list[Request]:
    """Two questions a duel: each response alone, about 40 to 80 tokens of it."""
    asked: list[Request] = []
    for number, text in enumerate(instructions(count // 2)):
        duel = Duel(f"d{number}", Instruction(f"i{number}", text), "left", "right")
        texts = (_SENTENCE * (1 + number % 2), "First, " + _SENTENCE)
        asked += judge_requests(duel, texts, judge, settings, seed_parts=("bench",))
    return asked


def run(setting: Setting) -> list[Item]:
    from phalanx.engines.hf import HFEngine

    count = setting.size(24, 4)  # three times
    (judge,) = setting.members(1)
    engine = HFEngine(weights_of(setting), batch_size=32)
    here = _against(engine, judge, count, setting.size(3, 1))
    items = [
        Item("judging: expected score against written JSON", ratio(here["json"], here["expected"]),
             "x faster", at_least=2.0, raw={"seconds": here, "questions": count}),
    ]  # fmt: skip
    few = setting.size(4, 2)
    there = _through_a_server(setting, judge, few)
    items.append(
        Item("judging: the same through a server", ratio(there["json"], there["expected"]),
             "x faster", raw={"seconds": there, "questions": few},
             note="a small loopback server with the same weights, no batching: a lower bound")
    )  # fmt: skip
    return items


def _against(engine: Any, judge: Member, count: int, repeats: int) -> dict[str, list[float]]:
    def asking(settings: JudgeSettings) -> Callable[[], None]:
        asked = questions(judge, settings, count)
        return lambda: _check(engine.respond(asked), count)

    return seconds_of({"json": asking(WRITTEN), "expected": asking(EXPECTED)}, repeats)


def _through_a_server(setting: Setting, judge: Member, count: int) -> dict[str, list[float]]:
    """The test server on a real socket, an HF engine behind it, the HTTP engine before it."""
    from phalanx.config.schema import EndpointSettings
    from phalanx.engines.hf import HFEngine
    from phalanx.engines.openai import OpenAIEngine
    from tests.server import TestServer

    behind = replace(judge, base="judge", adapter=None, engine="openai", endpoint="bench")
    with TestServer(HFEngine(weights_of(setting)), {"judge": judge}) as server:
        engine = OpenAIEngine([EndpointSettings(name="bench", url=server.url, options="logprobs")])

        def asking(settings: JudgeSettings) -> Callable[[], None]:
            asked = questions(behind, settings, count)
            return lambda: _check(_all_at_once(engine, asked), count)

        try:
            return seconds_of({"json": asking(WRITTEN), "expected": asking(EXPECTED)}, 1)
        finally:
            engine.close()


def _all_at_once(engine: Any, asked: list[Request]) -> list[Response]:
    work = engine.start([[request] for request in asked])
    found: list[Response] = []
    while work.num_open:
        for _, responses in work.wait(0.2):
            found += responses
    return found


def _check(responses: list[Response], count: int) -> None:
    # Whether a judge can be read is no matter of speed.
    errors = [r.error for r in responses if r.error is not None]
    failed = [error for error in errors if error.kind != "unreadable"]
    if failed or len(responses) != count:
        raise SystemExit(f"{len(failed)} of {count} questions failed: {failed[:1]}")
