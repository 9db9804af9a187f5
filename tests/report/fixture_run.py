"""A synthetic run of realistic shape, written through the real method, evaluation and ledger.

Only the words are invented: members that are right with a chance that depends on the domain,
judges that score better what is right, and everything that goes wrong in practice.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from phalanx import skills
from phalanx.collective.reputation import initial_standing
from phalanx.config.schema import Config
from phalanx.evaluate import evaluate, label_metrics, load_tasks
from phalanx.identity import derived_random
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods.sparta import run as sparta
from phalanx.sources import fresh_sample
from phalanx.types import (
    Failure,
    Instruction,
    Iteration,
    Member,
    Request,
    Response,
    TrainResult,
)

HOSTILE = '<script>alert(1)</script> & "quotes" <img src=x onerror=alert(2)> {{ 7 * 7 }}'
KNOWS = {
    "ada": (0, 1),
    "bob": (0, 2),
    "cora": (0, 3),
    "dan": (1, 2),
    "eve": (1, 3),
    "finn": (2, 3),
}
NAMES = tuple(KNOWS)
WRONG = ("Lisbon", "no idea, sorry", "42", "blue", "perhaps", HOSTILE)


def config(iterations: int = 2, duels: int = 96, **sections: dict) -> Config:
    return Config.model_validate(
        {
            "seed": 3,
            "iterations": iterations,
            "pool": {
                "base": "builtin:smollm2-135m",
                "members": [{"name": name, "adapter": f"pool/{name}"} for name in NAMES],
            },
            "instructions": {"source": "builtin:skills"},
            "match": {"duels": duels},
            "reputation": {"rule": "elo"},
            "pairs": {"keep": 0.8},
            "evaluate": {
                "tasks": [{"name": "skills", "source": "builtin:skills", "limit": 40}],
                "dev_share": 0.3,
            },
            **sections,
        }
    )


def start(folder: Path, settings: Config) -> Ledger:
    """A writable ledger with its facts, members and instructions."""
    ledger = Ledger(run_ledger_path(folder), writable=True)
    members = [Member(name, "builtin:smollm2-135m", f"pool/{name}") for name in NAMES]
    facts = {
        "config": settings.model_dump_json(),
        "pool_order": json.dumps(NAMES),
        "method": "sparta",
        "seed": str(settings.seed),
        "num_iterations": str(settings.iterations),
        "engines": '["hf"]',
        "phalanx_version": "0.1.0",
        "created_at": "2026-01-02T03:04:05+00:00",
    }
    ledger.record_start(facts, members, skills.instructions(400, 1))
    return ledger


class World:
    """Answers every request in place of an engine, and records it as the dispatcher does."""

    def __init__(self, ledger: Ledger, settings: Config) -> None:
        known = [*skills.instructions(400, 1)]
        self.answers = {row.text: row for row in known}
        for domain in skills.DOMAINS:
            self.answers |= {row.text: row for row in skills.items(domain, 40, settings.seed)}
        self.ledger = ledger
        self.settings = settings

    def skill(self, member: str, version: int, domain: str) -> float:
        expert = skills.DOMAINS.index(domain) in KNOWS[member]
        return min(0.97, (0.72 if expert else 0.14) + version * (0.04 if expert else 0.13))

    def ask(self, iteration: int) -> Callable[[str, Sequence[Request]], list[Response]]:
        def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
            replies = [self._reply(phase, request) for request in requests]
            batch = [(q, a, 1) for q, a in zip(requests, replies, strict=True)]
            self.ledger.record_responses(iteration, phase, batch, 0.02 * len(batch))
            seconds = {"answer": 7.2, "judge": 31.5, "evaluate": 12.8}[phase]
            self.ledger.add_seconds(iteration, phase, seconds, len(requests))
            return replies

        return ask

    def _reply(self, phase: str, request: Request) -> Response:
        rng = derived_random("world", request.id)
        if phase == "judge":
            return self._judge(request, rng)
        row = self.answers[request.messages[-1].content]
        if rng.random() < 0.02:
            kind = rng.choice(["engine", "timeout", "too_long"])
            return Response(request.id, error=Failure(kind, "the device is out of memory"))
        if rng.random() < 0.02:
            return Response(request.id, text="  ", finish_reason="stop")
        right = rng.random() < self.skill(request.member.name, request.member.version, row.domain)
        text = row.answer if right else rng.choice(WRONG)
        if rng.random() < 0.05:
            rambling = "Let me think about it step by step, and then once more. " * 4
            return self._done(request, f"{rambling}{text}", "length")
        return self._done(request, text, "stop")

    def _judge(self, request: Request, rng: random.Random) -> Response:
        prompt = request.messages[-1].content
        row = next(row for text, row in self.answers.items() if text in prompt)
        judged = request.shortenable[0]
        roll = rng.random()
        if roll < 0.04:
            return self._done(request, "This response is quite good, I would say.", "stop")
        if roll < 0.06:
            return self._done(request, 'Let me weigh the response. {"sc', "length")
        if roll < 0.065:
            return Response(request.id, error=Failure("too_long", "900 tokens, 512 fit"))
        knows = self.skill(request.member.name, request.member.version, row.domain)
        right = judged.strip().endswith(row.answer)
        level = 5 + (2.4 if right else -1.6) * knows + rng.gauss(0, 1.3) + len(judged) / 300
        score = min(10, max(1, round(level)))
        return self._done(request, f'{HOSTILE} {{"score": {score}}}', "stop")

    def _done(self, request: Request, text: str, finish: str) -> Response:
        return Response(
            request.id, text=text, finish_reason=finish, num_completion_tokens=len(text) // 4
        )


def trained(member: Member, number: int, num_pairs: int) -> TrainResult:
    """Signals of the kind that the trainer records."""
    rng = derived_random("train", member.name, number)
    steps = []
    count = max(1, num_pairs // 8)
    for step in range(1, count + 1):
        moved = 1 - math.exp(-3 * step / count)
        chosen, rejected = 0.4 * moved + rng.gauss(0, 0.05), -0.9 * moved + rng.gauss(0, 0.05)
        if step == 1:
            chosen = rejected = 0.0
        steps.append(
            {
                "step": float(step),
                "loss": 0.693 - 0.25 * moved + rng.gauss(0, 0.02),
                "grad_norm": 1.1 + rng.random(),
                "learning_rate": 2e-4 * (1 - step / count),
                "rewards/chosen": chosen,
                "rewards/rejected": rejected,
                "rewards/margins": chosen - rejected,
                "rewards/accuracies": min(1.0, 0.5 + 0.4 * moved + rng.gauss(0, 0.04)),
                "logps/chosen": -14 + 4 * moved,
                "logps/rejected": -15 - 9 * moved,
                "kl/chosen": 0.12 * moved,
                "length/chosen": 6 + rng.random(),
                "length/rejected": 9 + rng.random(),
            }
        )
    newer = replace(member, version=number, adapter=f"adapters/iteration-{number}/{member.name}")
    return TrainResult(newer, num_pairs, {"too_long": 1}, tuple(steps), {"steps": count}, 21.0)


def play(ledger: Ledger, settings: Config, number: int, *, learn: bool = True) -> None:
    """One iteration: duel, judge, learn, measure."""
    world = World(ledger, settings)
    members = tuple(ledger.members(number - 1))
    state = ledger.state(number - 1)
    standings = state["standings"] if state else {
        name: initial_standing(settings.reputation, None) for name in NAMES
    }  # fmt: skip
    instructions: list[Instruction] = skills.instructions(400, 1)
    result = sparta(
        Iteration(
            number=number,
            seed=settings.seed,
            members=members,
            instructions=fresh_sample(
                instructions, settings.match.duels, seed=settings.seed, iteration=number
            ),
            standings=standings,
            reliability={},
            num_duels_before=(number - 1) * settings.match.duels,
        ),
        world.ask(number),
        settings,
    )
    metrics = {**result.metrics, **label_metrics(result)}
    ledger.record_iteration(number, replace(result, metrics=metrics))
    if learn:
        kept = sum(not pair.drop for pair in result.pairs)
        for member in members:
            ledger.record_training(number, trained(member, number, kept))
            ledger.add_seconds(number, "train", 21.0, 1)
    measure(ledger, settings, number)


def measure(ledger: Ledger, settings: Config, number: int) -> None:
    items = load_tasks(settings)
    if items:
        members = ledger.members(number)
        evaluate(members, items, World(ledger, settings).ask(number), ledger, settings,
                 iteration=number)  # fmt: skip


def build(folder: Path, settings: Config | None = None) -> Path:
    """The whole run, finished; returns its folder."""
    settings = settings or config()
    with start(folder, settings) as ledger:
        measure(ledger, settings, 0)
        for number in range(1, settings.iterations + 1):
            play(ledger, settings, number)
        ledger.put("finished", "2026-01-02T03:14:15+00:00")
    return folder


__all__ = ["HOSTILE", "NAMES", "World", "build", "config", "measure", "play", "start"]
