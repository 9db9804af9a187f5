"""A synthetic run of the method moaa, written through the real method, evaluation and ledger.

As in :mod:`tests.report.fixture_run` only the words are invented: teachers that know two domains
each, an aggregator that mostly keeps what is right, readers and verdicts that err, and everything
that goes wrong in practice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from phalanx import skills
from phalanx.config.schema import Config
from phalanx.evaluate import (
    evaluate,
    evaluate_mixture,
    label_metrics,
    load_tasks,
    mixture_after,
)
from phalanx.identity import derived_random
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods import METHODS
from phalanx.pool import contestants, members_from
from phalanx.types import (
    Failure,
    Instruction,
    Iteration,
    Member,
    Message,
    Options,
    Request,
    Response,
)
from tests.report.fixture_run import HOSTILE, WRONG, trained

KNOWS = {"ada": (0, 1), "bob": (1, 2), "cora": (2, 3), "dan": (0, 3)}
STUDENTS = {"stu": "mixture", "rnd": "random", "bst": "best_of"}


def config(iterations: int = 4, **sections: dict) -> Config:
    teachers = [{"name": name, "roles": ["contest", "judge"]} for name in KNOWS]
    students = [{"name": name, "roles": ["contest", "learn"]} for name in STUDENTS]
    return Config.model_validate(
        {
            "method": "moaa",
            "seed": 5,
            "iterations": iterations,
            "pool": {"base": "builtin:smollm2-135m", "members": [*teachers, *students]},
            "instructions": {"source": "builtin:skills"},
            "mixture": {"proposers": ["ada", "bob", "cora"], "aggregator": "dan"},
            "reward": {"samples": 3},
            "moaa": {
                "students": [
                    {"name": name, "data": data, "reward": "moa" if name == "stu" else "none"}
                    for name, data in STUDENTS.items()
                ],
                "sft_instructions": 48,
                "dpo_instructions": 16,
            },
            "evaluate": {
                "tasks": [{"name": "skills", "source": "builtin:skills", "limit": 15}],
                "dev_share": 0.3,
                "mixture": True,
            },
            **sections,
        }
    )


def instructions() -> list[Instruction]:
    """Every fourth one is a conversation of two user turns."""
    rows = list(skills.instructions(400, 1))
    return [
        replace(row, later=(Message("assistant", "As I said."), Message("user", rows[at - 1].text)))
        if at % 4 == 3
        else row
        for at, row in enumerate(rows)
    ]


def start(folder: Path, settings: Config) -> Ledger:
    ledger = Ledger(run_ledger_path(folder), writable=True)
    members = members_from(settings)
    facts = {
        "config": settings.model_dump_json(),
        "pool_order": json.dumps([member.name for member in members]),
        "method": "moaa",
        "seed": str(settings.seed),
        "num_iterations": str(settings.iterations),
        "engines": '["hf"]',
        "phalanx_version": "0.1.0",
        "created_at": "2026-01-02T03:04:05+00:00",
    }
    ledger.record_start(facts, members, instructions())
    return ledger


class World:
    """Answers every request in place of an engine, and records it as the dispatcher does."""

    def __init__(self, ledger: Ledger, settings: Config) -> None:
        self.answers = {row.text: row for row in skills.instructions(400, 1)}
        for domain in skills.DOMAINS:
            self.answers |= {row.text: row for row in skills.items(domain, 15, settings.seed)}
        self.ledger = ledger

    def ask(self, iteration: int) -> Callable[[str, Sequence[Request]], list[Response]]:
        def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
            unique = {request.id: request for request in requests}
            known = self.ledger.responses(list(unique))
            fresh = [request for key, request in unique.items() if key not in known]
            batch = [(request, self._reply(request), 1) for request in fresh]
            here = ("iteration = ? AND phase = ?", (iteration, phase))
            own = self.ledger.count("responses", *here) + len(fresh)
            self.ledger.add_seconds(iteration, phase, 0.0, own)
            self.ledger.record_responses(iteration, phase, batch, 0.02 * len(batch))
            self.ledger.add_seconds(iteration, phase, 0.02 * len(batch))
            done = {key: response for key, (response, _) in known.items()}
            done |= {request.id: response for request, response, _ in batch}
            return [done[request.id] for request in requests]

        return ask

    def _reply(self, request: Request) -> Response:
        rng = derived_random("world", request.id)
        if request.purpose in ("propose", "aggregate", "sample", "evaluate", "assess"):
            if rng.random() < 0.03:
                return Response(request.id, error=Failure("timeout", "no reply in 120 s"))
            if rng.random() < 0.03:
                return self._done(request, "  ")
        return getattr(self, f"_{request.purpose}", self._answer)(request, rng)

    def _skill(self, member: Member, domain: str) -> float:
        if member.name in KNOWS:
            return 0.85 if skills.DOMAINS.index(domain) in KNOWS[member.name] else 0.2
        gain = {"stu": 0.15, "rnd": 0.06, "bst": 0.1}[member.name]
        return min(0.95, 0.2 + gain * member.version)

    def _answer(self, request: Request, rng: random.Random) -> Response:
        row = self.answers[request.messages[-1].content]
        right = rng.random() < self._skill(request.member, row.domain)
        text = row.answer if right else rng.choice(WRONG)
        if rng.random() < 0.05:
            return self._done(request, f"{'Step by step. ' * 20}{text}", "length")
        return self._done(request, text)

    def _aggregate(self, request: Request, rng: random.Random) -> Response:
        row = self.answers[request.messages[-1].content]
        seen = any(text.endswith(row.answer) for text in request.shortenable)
        right = rng.random() < (0.85 if seen else 0.15)
        answer = row.answer if right else rng.choice(WRONG)
        thought = "<think>I weigh them.</think>\n\n" if rng.random() < 0.1 else ""
        return self._done(request, f"{thought}{answer}")

    def _fit(self, request: Request, rng: random.Random) -> Response:
        yes = rng.choice([0.9, 0.2, 0.1, 0.5])
        return self._options(request, (yes, 1 - yes))

    def _rewrite(self, request: Request, rng: random.Random) -> Response:
        if rng.random() < 0.3:
            return self._done(request, "")
        return self._done(request, rng.choice(sorted(self.answers)))

    def _criteria(self, request: Request, rng: random.Random) -> Response:
        if rng.random() < 0.15:
            return self._done(request, "All of them matter, I would say.")
        numbers = rng.sample(range(1, 6), 3)
        return self._done(request, f"Criteria: {', '.join(map(str, numbers))}")

    def _assess(self, request: Request, rng: random.Random) -> Response:
        return self._done(request, f"Response A is short, response B is, too. {HOSTILE} [[B]]")

    def _verdict(self, request: Request, rng: random.Random) -> Response:
        if rng.random() < 0.05:
            return self._done(request, "Both are fine in their own way.")
        prompt = request.messages[-1].content
        row = next(row for text, row in self.answers.items() if text in prompt)
        first, second = (text.strip().endswith(row.answer) for text in request.shortenable[:2])
        verdict = "A" if first > second else "B" if second > first else rng.choice("ABC")
        if rng.random() < 0.15:
            verdict = "A"  # favours what it sees first
        return self._done(request, f"I looked at both.\n[[{verdict}]]")

    def _judge(self, request: Request, rng: random.Random) -> Response:
        score = rng.randint(3, 9)
        if rng.random() < 0.05:
            return self._done(request, "I would rather not say.")
        return self._done(request, f'{{"score": {score}}}')

    def _options(self, request: Request, chances: Sequence[float]) -> Response:
        assert isinstance(request.want, Options)
        named = dict(zip(request.want.options, chances, strict=True))
        return Response(request.id, probabilities=named, option_mass=0.9, num_prompt_tokens=40)

    def _done(self, request: Request, text: str, finish: str = "stop") -> Response:
        read = sum(len(message.content) for message in request.messages) // 4
        return Response(
            request.id,
            text=text,
            finish_reason=finish,
            num_prompt_tokens=read,
            num_completion_tokens=max(1, len(text) // 4),
        )


def play(ledger: Ledger, settings: Config, number: int, *, learn: bool = True) -> None:
    """One stage: ask, record, learn, measure."""
    method = METHODS["moaa"]
    result = method.run(
        Iteration(
            number=number,
            seed=settings.seed,
            members=tuple(ledger.members(number - 1)),
            instructions=method.draw(settings, instructions(), number),
            standings={},
            reliability={},
            earlier=tuple(tuple(ledger.members(before)) for before in range(number)),
        ),
        World(ledger, settings).ask(number),
        settings,
    )
    ledger.record_iteration(
        number, replace(result, metrics={**result.metrics, **label_metrics(result)})
    )
    if not learn:
        return
    for member in ledger.members(number - 1):
        lesson = method.lesson(settings, number, member.name)
        if lesson:
            kind, _, builder = lesson.partition(":")
            kept = sum(not pair.drop for pair in result.pairs)
            if kind == "demonstrations":
                kept = sum(not d.drop for d in result.demonstrations if d.builder == builder)
            newer = trained(member, number, kept)
            newer = replace(newer, member=replace(newer.member, version=member.version + 1))
            ledger.record_training(number, newer)
            ledger.add_seconds(number, "train", 21.0, 1)
    measure(ledger, settings, number)


def measure(ledger: Ledger, settings: Config, number: int) -> None:
    items = load_tasks(settings)
    if not items:
        return
    ask = World(ledger, settings).ask(number)
    mixture = mixture_after(settings, ledger, number)
    if mixture is not None:
        evaluate_mixture(mixture, items, ask, ledger, settings, iteration=number)
    members = contestants(ledger.members(number))
    evaluate(members, items, ask, ledger, settings, iteration=number)


def build(folder: Path, settings: Config | None = None) -> Path:
    """The whole run, finished; returns its folder."""
    settings = settings or config()
    with start(folder, settings) as ledger:
        measure(ledger, settings, 0)
        for number in range(1, settings.iterations + 1):
            play(ledger, settings, number)
        ledger.put("finished", "2026-01-02T03:14:15+00:00")
    return folder


__all__ = ["HOSTILE", "KNOWS", "STUDENTS", "World", "build", "config", "measure", "play", "start"]
