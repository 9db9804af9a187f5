"""Guards that are set, and get too few numbers in an iteration to fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from phalanx.collective.purposes import JUDGING
from phalanx.config.rules_guarding import idle
from phalanx.config.schema import Config
from phalanx.plan.rounds import Demand, Round, steps_of
from phalanx.plan.speed import Times
from phalanx.report.words import duration
from phalanx.thresholds import MIN_ITEMS, MIN_JUDGMENTS, MIN_RESPONSES, MIN_STEPS


def guard_notes(
    config: Config, rounds: Sequence[Round], dev_items: float, times: Times | None
) -> Iterator[str]:
    """A note for each guard that wants more numbers than an iteration has, on average, and for a
    budget of seconds that will not do.

    ``dev_items``: so many are asked of each member.
    """
    limit = config.budget.seconds
    if limit is not None and times is not None and times.total > limit:
        yield (
            f"budget.seconds: the run takes about {duration(times.total)} and is stopped after "
            f"{duration(limit)}, to go on when the budget is raised"
        )
    off = idle(config)
    for key, least, most, of in (
        ("max_flips", MIN_JUDGMENTS, _judgments(rounds), "judgments an iteration"),
        ("length_drift", MIN_RESPONSES, _responses(rounds), "responses of a member an iteration"),
        ("hacking", MIN_ITEMS, dev_items, "dev items"),
        ("max_kl", MIN_STEPS, _steps(rounds), "steps of a training"),
    ):
        if getattr(config.guard, key) is not None and key not in off and 0 < most < least:
            yield (
                f"guard.{key}: this guard will hardly ever fire: there are about {most:.0f} {of}, "
                f"and it wants at least {least}"
            )


def _judgments(rounds: Sequence[Round]) -> float:
    """Each is of two replies, or more."""
    return _most(rounds, lambda demand: demand.purpose in JUDGING, sum) / 2


def _responses(rounds: Sequence[Round]) -> float:
    return _most(rounds, lambda demand: demand.when in ("answer", "sample"), max)


def _most(
    rounds: Sequence[Round], counts: Callable[[Demand], bool], join: Callable[..., float]
) -> float:
    """Requests of one round, joined over members; the largest of all rounds."""
    largest = 0.0
    for one in rounds:
        by_member: dict[str, float] = {}
        for demand in filter(counts, one.demands):
            by_member[demand.member] = by_member.get(demand.member, 0.0) + demand.requests
        largest = max(largest, join(by_member.values() or [0.0]))
    return largest


def _steps(rounds: Sequence[Round]) -> int:
    trainings = [training for one in rounds for training in one.trainings]
    return max(
        (steps_of(count, one.settings) for one in trainings for count in one.examples.values()),
        default=0,
    )
