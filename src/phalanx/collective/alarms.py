"""The rules of guards, pure: numbers in, what fired out, in words.

:mod:`phalanx.guarding` gathers the numbers, records what fired, and warns, pauses or stops.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from phalanx.collective.gaps import above, unreadable_limit
from phalanx.config.rules_guarding import idle
from phalanx.config.schema import Config
from phalanx.thresholds import MIN_ITEMS, MIN_JUDGMENTS, MIN_RESPONSES, MIN_STEPS

DISTANCES = ("kl/chosen", "kl")
"""Signals of a training that say how far the member is from its reference, nats a token."""
Place = tuple[str, int, str]
"""Rule, iteration, where in it."""
FACT = "guards"
"""Fact of a run's ledger: what fired, with what was done about it (:func:`as_json`)."""
_SET = ("max_unreadable", "max_flips", "length_drift", "hacking", "max_kl")
"""Guards that have a limit to set."""


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule whose limit the value exceeds.

    ``where`` tells apart what may fire in one iteration; ``says`` is the finding in words,
    ``advice`` what else than the limit to change, ``setting`` the override that lets it pass.
    """

    rule: str
    where: str
    value: float
    limit: float
    says: str
    advice: str
    setting: str
    iteration: int = 0

    @property
    def place(self) -> Place:
        return (self.rule, self.iteration, self.where)

    @property
    def sentence(self) -> str:
        figures = f" ({self.value:.3g}, limit {self.limit:g})" if math.isfinite(self.value) else ""
        return f"iteration {self.iteration}: {self.says}{figures}"


def flips(flipped: int, readable: int, limit: float) -> Fired | None:
    """Whether too many of the readable judgments are of the place, not of the response."""
    # A share, since a limit times a count may be rounded to less than the count at the limit.
    if readable < MIN_JUDGMENTS or flipped / readable <= limit:
        return None
    return Fired(
        "max_flips", "judgments", flipped / readable, limit,
        f"{flipped} of {readable} readable judgments changed when the responses changed places",
        "give judges that flip no role of a judge (phalanx report lists them; with another --out)",
        f"guard.max_flips={above(flipped / readable)}",
    )  # fmt: skip


def length_drift(
    lengths: Mapping[str, Mapping[int, tuple[int, float]]], now: int, limit: float
) -> Fired | None:
    """The member whose responses became longer or shorter by the largest ratio above the limit.

    ``lengths``: member -> iteration -> (responses, their mean tokens). Those of ``now`` are
    compared with those of the first iteration that has enough of them.
    """
    found: list[tuple[float, str]] = []
    for member, known in lengths.items():
        enough = {at: mean for at, (count, mean) in known.items() if count >= MIN_RESPONSES}
        first = min(enough, default=now)
        if first >= now or now not in enough or not enough[first] or not enough[now]:
            continue
        ratio = max(enough[now] / enough[first], enough[first] / enough[now])
        if ratio > limit:
            word = "longer" if enough[now] > enough[first] else "shorter"
            found.append((ratio, f"the responses of {member} became {word}, {enough[first]:.0f} "
                          f"tokens in iteration {first} and {enough[now]:.0f} now"))  # fmt: skip
    if not found:
        return None
    ratio, says = max(found)
    more = f", and those of {len(found) - 1} more, by less" if len(found) > 1 else ""
    return Fired(
        "length_drift", "responses", ratio, limit, says + more,
        "see what judges favour (phalanx report), and pairs.max_length_ratio (with another --out)",
        f"guard.length_drift={above(ratio)}",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Course:
    """A member ``since`` an iteration: its reputation and its mean score on ``items`` dev items,
    then and now."""

    member: str
    since: int
    reputation: tuple[float, float]
    dev: tuple[float, float]
    items: int

    @property
    def fall(self) -> float:
        return round(self.dev[0] - self.dev[1], 9)  # 0.8 - 0.7 is 0.1, and no more


def hacking(courses: Sequence[Course], limit: float) -> Fired | None:
    """The member whose dev score fell the most, above the limit, while its reputation rose."""
    found = [
        one
        for one in courses
        if one.items >= MIN_ITEMS
        and one.reputation[1] > one.reputation[0]
        and one.fall > limit
    ]  # fmt: skip
    if not found:
        return None
    worst = max(found, key=lambda one: one.fall)
    others = len({one.member for one in found}) - 1
    more = f"; so did {others} more" if others else ""
    return Fired(
        "hacking", "evaluation", worst.fall, limit,
        f"since iteration {worst.since} the reputation of {worst.member} rose from "
        f"{worst.reputation[0]:.4g} to {worst.reputation[1]:.4g} while its score on {worst.items} "
        f"dev items fell from {worst.dev[0]:.3f} to {worst.dev[1]:.3f}{more}",
        "read duels that it won: what judges reward is not what the tasks measure",
        f"guard.hacking={above(worst.fall)}",
    )  # fmt: skip


def too_far(member: str, steps: Sequence[Mapping[str, float]], limit: float) -> Fired | None:
    """Whether the distance to the reference is above the limit at the last of ``steps``.

    It is the mean over the last :data:`MIN_STEPS` steps: one step is one batch, and varies.
    """
    last = steps[-MIN_STEPS:]
    signal = next((name for name in DISTANCES if last and name in last[-1]), None)
    if signal is None or len(last) < MIN_STEPS:
        return None
    value = abs(fmean(step[signal] for step in last))
    if value <= limit:
        return None
    # It may still grow, so a limit just above the value would stop it at the next step.
    return Fired(
        "max_kl", member, value, limit,
        f"{member} is {value:.3g} nats a token from its reference in step {last[-1]['step']:.0f}",
        "lower the learning rate or train.epochs, or raise train.beta (with another --out)",
        f"guard.max_kl={above(2 * value)}",
    )  # fmt: skip


def ever_too_far(member: str, steps: Sequence[Mapping[str, float]], limit: float) -> Fired | None:
    """The first step of a whole training that was too far."""
    ends = range(MIN_STEPS, len(steps) + 1)
    found = (too_far(member, steps[end - MIN_STEPS : end], limit) for end in ends)
    return next((fired for fired in found if fired), None)


def not_finite(member: str, says: str) -> Fired:
    """The guard without a limit; what was not finite, and where, is in ``says``."""
    return Fired(
        "finite_loss", member, math.nan, 0.0, says,
        "look at these examples, or lower the learning rate (with another --out)",
        "guard.action.finite_loss=skip",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Guarded:
    """The guards of a run in words, and what fired, each with what was done about it."""

    words: str
    fired: tuple[tuple[Fired, str], ...] = ()

    @property
    def sentences(self) -> list[str]:
        return [f"guard {one.rule} {_DID[did]} in {one.sentence}" for one, did in self.fired]


_DID = {
    "warn": "fired",
    "pause": "paused the run",
    "stop": "stopped the run",
    "skip": "skipped a training",
}


def as_json(fired: Sequence[tuple[Fired, str]]) -> str:
    """What fired, each with what was done about it, as a ledger keeps it."""
    rows = [asdict(one) | {"action": action} for one, action in fired]
    return json.dumps([row | {"value": _finite(row["value"])} for row in rows], ensure_ascii=False)


def from_json(text: str | None) -> list[tuple[Fired, str]]:
    """The reverse of :func:`as_json`; None: nothing has fired."""
    rows = json.loads(text or "[]")
    return [
        (Fired(**row | {"value": math.nan if row["value"] is None else row["value"]}), action)
        for row in rows
        for action in [row.pop("action")]
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def in_words(config: Config) -> str:
    """The guards that are on, with limits and actions, budgets among them.

    Those that are on by default are left out where they can never fire.

    >>> in_words(Config())
    'max_unreadable 0.5 (stop), finite_loss (stop)'
    """
    guard, off = config.guard, idle(config)
    limits = {name: one for name in _SET if (one := getattr(guard, name)) is not None}
    if "max_unreadable" not in off:
        limits = {"max_unreadable": unreadable_limit(config)[0]} | limits
    listed = [f"{name} {limit:g} ({getattr(guard.action, name)})" for name, limit in limits.items()]
    if "finite_loss" not in off:
        listed.append(f"finite_loss ({guard.action.finite_loss})")
    budget = {key: most for key, most in config.budget if most is not None}
    listed += [f"budget.{key} {most:g} (stop)" for key, most in budget.items()]
    return ", ".join(listed) or "none"
