"""The collective of a source: whoever of its members answer as one.

The rule, unless a name says otherwise: the method of the configuration where it is one that
answers; else its mixture, where it names an aggregator; else, where judges say by probabilities
what they think, the best of several answers as they see it, since such a pool may not write a vote
that can be read; else a council of all contestants, where their votes can be asked for; else there
is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phalanx.collective.mixture import mix_as
from phalanx.config.mixing import TOGETHER
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.measuring.origins import Members, Origin
from phalanx.measuring.subjects import MIXED, SAMPLED, Subject
from phalanx.methods import METHODS, Question, Reached
from phalanx.types import Ask, Message, Sampling

COLLECTIVE = "collective"
"""The name by which the collective is talked to."""
AUTO, NONE = "auto", "none"
KINDS = (MIXED, *(name for name in TOGETHER if name != SAMPLED))
"""What a collective may be. ``self_consistency`` is none: it votes on final answers, and free texts
have none."""
BY_PROBABILITIES = ("expected", "likelihood")
"""Protocols whose judges write nothing."""


def collective_of(origin: Origin, kind: str = AUTO, iteration: int | None = None) -> Subject | None:
    """Who answers together, as they were at an iteration (None: the last); None for nobody.

    Raises ConfigError for a kind that is not known, or that this source cannot have.
    """
    if kind == NONE:
        return None
    if kind not in (AUTO, *KINDS):
        raise ConfigError(
            f"--collective {kind}: expected {', '.join((AUTO, *KINDS, NONE))}; self_consistency "
            "votes on final answers, which free texts have none of"
            if kind == SAMPLED
            else f"--collective {kind}: expected {', '.join((AUTO, *KINDS, NONE))}"
        )
    at = "" if iteration is None else f"@{iteration}"
    config = origin.config
    if kind != AUTO:
        found, faults = _read(origin, kind, at)
        if found is None:
            raise ConfigError([fault.replace("--members", "--collective") for fault in faults])
        return found
    if config.method in KINDS:
        return _read(origin, config.method, at)[0]
    if config.mixture.aggregator:
        return _read(origin, MIXED, at)[0]
    kind = "best_of_n" if config.judge.protocol in BY_PROBABILITIES else "council"
    for one in dict.fromkeys((kind, "council")):
        found, _ = _read(origin, one, at)
        # Of two members each has the other's answer alone to judge, which decides nothing.
        if found is not None and len(found.asked) > 2:
            return found
    return None


def _read(origin: Origin, kind: str, at: str) -> tuple[Subject | None, list[str]]:
    reader = Members(origin)
    try:
        (found,) = reader.read([kind + at]) or [None]
    except ConfigError as error:
        return None, error.faults
    return (None if reader.faults else found), reader.faults


def in_words(subject: Subject) -> str:
    """Who answers, for people: ``mixture: ada, bob → cleo``."""
    names = [member.name for member in subject.members]
    if subject.mixture is not None:
        layers = [", ".join(one.name for one in layer) for layer in subject.mixture.layers]
        return f"{MIXED}: {' → '.join([*layers, subject.mixture.aggregator.name])}"
    return f"{subject.together}: {', '.join(names)}"


def answer(
    subject: Subject,
    turns: Sequence[Message],
    want: Sampling,
    seed: int,
    ask: Ask,
    config: Config,
) -> Reached:
    """The collective's answer to a conversation that ends with a user turn, or why there is none.

    Proposers and voters write by their own settings, the last answer as wanted.
    """
    place = ("serve", config.seed, seed)
    if subject.mixture is not None:
        (mixed,) = mix_as([tuple(turns)], subject.mixture, ask, want, place=place)
        failed = [one.response.error.message for one in mixed.proposals if one.response.error]
        why = f"{mixed.reason} (such as: {failed[0]})" if mixed.reason and failed else mixed.reason
        return Reached(mixed.response, subject.mixture.aggregator.name, why)
    method = METHODS[subject.together].answer
    if method is None:
        raise ValueError(f"{subject.together} does not answer")
    question = Question(content_id(*place, *turns), tuple(turns))
    settings = subject.settings(config)
    (reached,) = method(
        [question], subject.asked, ask, settings, best=subject.best, want=want, place=place
    )
    if reached.response is not None:
        return reached
    other = " (--collective best_of_n and debate need no votes)" * (subject.together == "council")
    return replace(reached, reason=(reached.reason or "no answer") + other)
