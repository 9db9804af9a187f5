"""A large finished run of invented words, for whatever has to show one: pages, reports, exports.

Everything goes through the real method and the real ledger; only what members say is made up:
long responses, judges with tastes of their own, and everything that goes wrong in practice.

    python -m bench.big_ledger /tmp/big --duels 10000
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from phalanx.collective.reputation import initial_standing
from phalanx.config.schema import Config
from phalanx.identity import derived_random
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods.sparta import run as sparta
from phalanx.sources import fresh_sample
from phalanx.types import Failure, Instruction, Iteration, Member, Request, Response, TrainResult

DUELS_AN_ITERATION = 1000
DOMAINS = ("code", "history", "law", "maths", "medicine")
# Member -> family, how good its responses are, how much it favours its own family's as a judge.
POOL = {
    "ada": ("north", 0.6, 0.5),
    "bob": ("north", 0.2, 0.0),
    "cora": ("south", 0.0, 0.8),
    "dan": ("south", -0.3, 0.0),
    "eve": ("east", -0.6, 0.3),
}
HOSTILE = (
    "<script>alert(1)</script> </script><img src=x onerror=alert(2)> {{ 7 * 7 }} & \"'`",
    "\u202eright to left\u202c and \u2067isolated\u2069, a bell \x07, a null \x00, escape \x1b[31m",
    "| a | cell | **bold** [link](javascript:alert(3))\n# heading",
)
_PROSE = """a model judge answer reason because therefore first second often rarely shows that this
value depends on context evidence while another view holds where data are thin so we weigh both
sides then compare results with known limits before any claim"""


def make(
    folder: Path | str,
    duels: int = 10_000,
    *,
    mean_chars: int = 1500,
    finished: bool = True,
    huge: bool = True,
) -> Path:
    """Write the run, and return its folder. The same arguments make the same run.

    Iterations of at most 1,000 duels, at least two; three judges a duel. ``mean_chars`` is the mean
    length of a response. ``huge``: one response has 100,000 characters, and some texts are hostile.
    Not ``finished``: half of the next iteration's responses are there, too.
    """
    rounds = max(2, -(-duels // DUELS_AN_ITERATION))
    settings = configuration(rounds, duels // rounds)
    world = _World(mean_chars, huge)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        _start(ledger, settings, world.instructions)
        _measure(ledger, 0)
        for number in range(1, rounds + (1 if finished else 0)):
            _play(ledger, settings, world, number)
        if finished:
            ledger.put("finished", "2026-01-02T03:14:15+00:00")
        else:
            _begin(ledger, settings, world, rounds)
    return Path(folder)


def configuration(iterations: int, duels: int) -> Config:
    return Config.model_validate(
        {
            "seed": 11,
            "iterations": iterations,
            "pool": {
                "members": [
                    {"name": name, "engine": "scripted", "family": family}
                    for name, (family, _, _) in POOL.items()
                ]
            },
            "instructions": {"source": "builtin:skills"},
            "match": {"duels": duels},
            "judge": {"protocol": "rubric", "per_duel": 3},
            "evaluate": {
                "tasks": [{"name": "skills", "source": "builtin:skills", "limit": 40}],
                "dev_share": 0.3,
            },
        }
    )


class _World:
    """What every member says. Texts are pieces of one long text, which is quick to cut."""

    def __init__(self, mean_chars: int, huge: bool) -> None:
        rng, words = random.Random(5), _PROSE.split()
        sentences = (
            " ".join(rng.choices(words, k=rng.randint(6, 18))).capitalize() + "."
            for _ in range(4000)
        )
        self._sea = "\n".join(" ".join(group) for group in zip(*[sentences] * 4, strict=False))
        self._mean_chars = mean_chars
        self._huge = huge
        self._quality: dict[str, tuple[float, str]] = {}
        self.instructions = [
            Instruction(f"i{n}", self._instruction(n, rng), DOMAINS[n % len(DOMAINS)])
            for n in range(3000)
        ]

    def _instruction(self, number: int, rng: random.Random) -> str:
        odd = f" {HOSTILE[number // 50 % 3]}" if self._huge and number % 50 == 0 else ""
        return f"Question {number}: {self._piece(rng, rng.randint(40, 300))}{odd}"

    def _piece(self, rng: random.Random, chars: int) -> str:
        start = rng.randrange(max(1, len(self._sea) - chars))
        piece = self._sea[start : start + chars]
        while len(piece) < chars:
            piece += self._sea[: chars - len(piece)]
        return piece

    def ask(self, ledger: Ledger, iteration: int) -> Callable[..., list[Response]]:
        def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
            say = self._judge if phase == "judge" else self._answer
            replies = [say(request) for request in requests]
            batch = [(q, a, 1) for q, a in zip(requests, replies, strict=True)]
            for start in range(0, len(batch), 1000):
                part = batch[start : start + 1000]
                ledger.record_responses(iteration, phase, part, 0.05 * len(part))
            seconds = {"answer": 0.4, "judge": 0.2}[phase] * len(requests)
            ledger.add_seconds(iteration, phase, seconds, len(requests))
            return replies

        return ask

    def _answer(self, request: Request) -> Response:
        rng = random.Random(request.seed)
        member = request.member
        roll = rng.random()
        if roll < 0.01:
            kind = rng.choice(("engine", "timeout"))
            return Response(request.id, error=Failure(kind, "the device is out of memory"))
        chars = round(self._mean_chars * math.exp(rng.gauss(-0.25, 0.7)))
        text = f"{self._piece(rng, max(20, chars))} ({request.seed % 10**9})"
        if self._huge and roll > 0.995:
            text += "\n" + rng.choice(HOSTILE)
        if self._huge and not self._quality:
            text = self._piece(rng, 100_000)
        family, skill, _ = POOL[member.name]
        self._quality[text] = (rng.gauss(skill + 0.04 * member.version, 1.0), family)
        finish = "length" if rng.random() < 0.03 else "stop"
        return Response(request.id, text=text, finish_reason=finish, num_prompt_tokens=60,
                        num_completion_tokens=len(text) // 4)  # fmt: skip

    def _judge(self, request: Request) -> Response:
        rng = random.Random(request.seed)
        roll = rng.random()
        said = self._piece(rng, rng.randint(60, 400))
        counts = {"num_prompt_tokens": 500, "num_completion_tokens": len(said) // 4}
        if roll < 0.02:
            return Response(request.id, text=said, finish_reason="stop", **counts)
        if roll < 0.03:
            return Response(request.id, text=said + ' {"sc', finish_reason="length", **counts)
        judged = request.shortenable[0]
        quality, family = self._quality.get(judged, (0.0, ""))
        own, _, bias = POOL[request.member.name]
        level = 5.5 + 1.4 * quality + (bias if family == own else 0.0) + len(judged) / 4000
        score = min(10, max(1, round(level + rng.gauss(0, 1.2))))
        if self._huge and roll > 0.99:
            said += f" {rng.choice(HOSTILE)}"
        return Response(request.id, text=f'{said}\n{{"score": {score}}}', finish_reason="stop",
                        **counts)  # fmt: skip


def _start(ledger: Ledger, settings: Config, instructions: Sequence[Instruction]) -> None:
    members = [
        Member(name, "", engine="scripted", family=family) for name, (family, _, _) in POOL.items()
    ]
    facts = {
        "config": settings.model_dump_json(),
        "pool_order": json.dumps(list(POOL)),
        "method": "sparta",
        "seed": str(settings.seed),
        "num_iterations": str(settings.iterations),
        "engines": '["scripted"]',
        "phalanx_version": "0.1.0",
        "created_at": "2026-01-02T03:04:05+00:00",
    }
    ledger.record_start(facts, members, instructions)


def _iteration(ledger: Ledger, settings: Config, world: _World, number: int) -> Iteration:
    state = ledger.state(number - 1)
    standings = state["standings"] if state else {
        name: initial_standing(settings.reputation, None) for name in POOL
    }  # fmt: skip
    return Iteration(
        number=number,
        seed=settings.seed,
        members=tuple(ledger.members(number - 1)),
        instructions=fresh_sample(
            world.instructions, settings.match.duels, seed=settings.seed, iteration=number
        ),
        standings=standings,
        reliability={},
        num_duels_before=(number - 1) * settings.match.duels,
    )


def _play(ledger: Ledger, settings: Config, world: _World, number: int) -> None:
    iteration = _iteration(ledger, settings, world, number)
    result = sparta(iteration, world.ask(ledger, number), settings)
    ledger.record_iteration(number, result)
    for member in iteration.members:
        ledger.record_training(number, _trained(member, number))
        ledger.add_seconds(number, "train", 240.0, 1)
    _measure(ledger, number)


class _HalfWay(Exception):
    """No error: it ends the making."""


def _begin(ledger: Ledger, settings: Config, world: _World, number: int) -> None:
    """The first half of an iteration's responses."""
    whole = world.ask(ledger, number)

    def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
        ledger.add_seconds(number, phase, 0.0, len(requests))
        whole(phase, requests[: len(requests) // 2])
        ledger.add_seconds(number, phase, 0.0, len(requests))
        raise _HalfWay

    try:
        sparta(_iteration(ledger, settings, world, number), ask, settings)
    except _HalfWay:
        return


def _trained(member: Member, number: int) -> TrainResult:
    """Signals of the kind that the DPO trainer records: 40 steps."""
    rng = derived_random("train", member.name, number)
    steps = []
    for step in range(1, 41):
        moved = 1 - math.exp(-3 * (step - 1) / 40)
        chosen, rejected = 0.5 * moved + rng.gauss(0, 0.03), -0.8 * moved + rng.gauss(0, 0.03)
        steps.append(
            {
                "step": float(step),
                "loss": 0.693 - 0.2 * moved + rng.gauss(0, 0.02),
                "grad_norm": 1.0 + rng.random(),
                "learning_rate": 1e-6 * (1 - step / 40),
                "rewards/chosen": chosen,
                "rewards/rejected": rejected,
                "rewards/margins": chosen - rejected,
                "rewards/accuracies": min(1.0, 0.5 + 0.3 * moved + rng.gauss(0, 0.04)),
                "logps/chosen": -420.0 + 6 * moved - (60 * moved if member.name == "eve" else 0),
                "logps/rejected": -430.0 - 20 * moved,
                "kl/chosen": (-0.15 if member.name == "eve" else 0.02) * moved,
                "length/chosen": 380 + 20 * rng.random(),
                "length/rejected": 360 + 20 * rng.random(),
            }
        )
    newer = replace(member, version=member.version + 1)
    return TrainResult(newer, 780, {"too_long": 3}, tuple(steps), {"steps": 40}, 240.0)


def _measure(ledger: Ledger, number: int) -> None:
    """40 items in every domain; who is better at the start is better here, too."""
    rows = []
    for name, (_, skill, _) in POOL.items():
        for domain in DOMAINS:
            for place in range(40):
                rng = derived_random("measure", name, domain, place)
                right = rng.random() < 0.45 + 0.15 * skill + 0.012 * number
                split = "dev" if place % 10 < 3 else "test"
                item = f"{domain}-{place}"
                rows.append(
                    {
                        "iteration": number, "member": name, "task": "skills", "item": item,
                        "domain": domain, "split": split, "correct": int(right), "readable": 1,
                        "score": float(right), "answer": "yes" if right else "no", "reason": "",
                        "response": "",
                    }
                )  # fmt: skip
    ledger.record_evaluation(rows)
    ledger.put(f"evaluated:{number}", "yes")
    ledger.add_seconds(number, "evaluate", 90.0, len(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the run goes; it must not exist")
    parser.add_argument("--duels", type=int, default=10_000)
    parser.add_argument("--mean-chars", type=int, default=1500)
    parser.add_argument("--unfinished", action="store_true")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists; name another folder")
    started = time.perf_counter()
    make(given.folder, given.duels, mean_chars=given.mean_chars, finished=not given.unfinished)
    size = run_ledger_path(given.folder).stat().st_size / 2**20
    print(f"{given.folder}: {size:.0f} MiB in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
