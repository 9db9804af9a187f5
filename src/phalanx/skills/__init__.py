"""The embedded skills: small text tasks written by code, for demos and tests without downloads.

Four domains whose answers are short and checkable, and which a 135M model learns in seconds.
Demonstrations, alignment instructions and evaluation items come from three disjoint parts: the
facts behind the questions are dealt out by a stable hash, so not even a paraphrase is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.skills.domains import BUILDERS, Question
from phalanx.types import Demonstration, Instruction

DOMAINS: tuple[str, ...] = tuple(BUILDERS)

Part = Literal["train", "align", "evaluate"]
PARTS: tuple[Part, ...] = ("train", "align", "evaluate")


@cache
def _questions(domain: str, part: Part) -> tuple[Question, ...]:
    """The questions whose key was dealt to ``part``: keys sorted by hash, dealt in turn."""
    if domain not in BUILDERS:
        known = ", ".join(DOMAINS)
        raise ConfigError(f"unknown skill {domain!r}; the embedded skills are: {known}")
    questions = BUILDERS[domain]()
    keys: dict[str, set[str]] = {}
    for question in questions:
        keys.setdefault(question.stratum, set()).add(question.key)
    mine = set()
    for stratum, members in keys.items():
        dealt = sorted(members, key=lambda key: (content_id("skill", domain, key), key))
        mine.update((stratum, key) for key in dealt[PARTS.index(part) :: len(PARTS)])
    return tuple(q for q in questions if (q.stratum, q.key) in mine)


def available(domain: str, part: Part) -> int:
    """How many different texts ``part`` ("train", "align", "evaluate") of ``domain`` holds."""
    return sum(len(question.texts) for question in _questions(domain, part))


def _draw(domain: str, part: Part, count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` different (text, answer) rows; every question once before any is asked again.

    A larger count with the same seed extends the smaller draw.
    """
    most = available(domain, part)
    if count > most:
        raise ConfigError(
            f"{count} {part} rows of the skill {domain!r} were asked for, but only {most} exist; "
            f"ask for at most {most}"
        )
    random = derived_random("skills", domain, part, seed)
    order = [(q, random.sample(q.texts, len(q.texts))) for q in _questions(domain, part)]
    rows: list[tuple[str, str]] = []
    turn = 0
    while len(rows) < count:
        random.shuffle(order)
        rows += [(texts[turn], q.answer) for q, texts in order if turn < len(texts)]
        turn += 1
    return rows[:count]


def demonstrations(domain: str, count: int, seed: int) -> tuple[Demonstration, ...]:
    """``count`` different examples of ``domain`` to train a specialist on.

    Raises :class:`ConfigError` for an unknown domain or more rows than exist.
    """
    return tuple(
        Demonstration(content_id(text, answer), text, answer, domain)
        for text, answer in _draw(domain, "train", count, seed)
    )


def items(domain: str, count: int, seed: int) -> tuple[Instruction, ...]:
    """``count`` different evaluation questions of ``domain``, with their answers."""
    return _instructions(domain, "evaluate", count, seed)


def instructions(
    count: int, seed: int, domains: Sequence[str] = DOMAINS
) -> tuple[Instruction, ...]:
    """``count`` alignment instructions, the domains in turn (so any prefix is balanced).

    ``answer`` is set so that a report can tell how often the judges were right; no method
    reads it.
    """
    share, rest = divmod(count, len(domains))
    rows = [
        _instructions(domain, "align", share + (place < rest), seed)
        for place, domain in enumerate(domains)
    ]
    return tuple(rows[place % len(domains)][place // len(domains)] for place in range(count))


def num_instructions(domains: Sequence[str] = DOMAINS) -> int:
    """The most that :func:`instructions` can give."""
    return min(available(domain, "align") for domain in domains) * len(domains)


def _instructions(domain: str, part: Part, count: int, seed: int) -> tuple[Instruction, ...]:
    return tuple(
        Instruction(content_id(text), text, domain, answer)
        for text, answer in _draw(domain, part, count, seed)
    )
