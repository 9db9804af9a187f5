"""Equal budgets: what a run may use, how large that lets a method be, and what it used.

Four quantities of a whole run:

``responses``
    Texts that members wrote, but for verdicts and the members' measurement.
``judgments``
    Requests to judge (:data:`phalanx.collective.purposes.JUDGING`): each order of a pair and each
    repetition is one.
``steps``
    Optimiser steps of all members together.
``tokens``
    Tokens read and written by requests, save for the members' measurement, and tokens of what was
    learned, each epoch's.

Recruiting and the measurement of the members are outside: they are the same for all. Of methods
that answer together, the requests behind the collective's answers to the items count: that is
their price, paid anew for every question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from phalanx.collective.purposes import JUDGING, MEASURING
from phalanx.config.base import Section
from phalanx.config.schema import Config
from phalanx.ledger import Ledger
from phalanx.methods import METHODS
from phalanx.plan import Plan, make_plan, rescaled
from phalanx.plan.rounds import Demand, Round, all_demands

Quantity = Literal["responses", "judgments", "steps", "tokens"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
TOLERANCE = 0.1
"""A run that used more or less than this share beside its budget is warned of."""

KEYS: dict[str, tuple[str, ...]] = {
    "sparta": ("match.duels",),
    "moaa": ("moaa.sft_instructions", "moaa.dpo_instructions"),
    "self_rewarding": ("self_rewarding.instructions",),
    "meta_rewarding": ("meta_rewarding.instructions",),
    "spin": ("spin.instructions",),
    "sppo": ("sppo.instructions",),
    "preference_file": ("preference_file.pairs",),
    "rejection_sampling": ("rejection_sampling.instructions",),
    "multiagent": ("multiagent.instructions",),
    "consensus_grpo": ("consensus_grpo.instructions",),
    "single_multi": ("single_multi.instructions",),
    "self_consistency": ("self_consistency.samples",),
    "debate": ("debate.rounds",),
    "mixture": ("mixture.samples",),
    "best_of_n": ("best_of_n.samples",),
    "council": (),
    "frozen": (),
}
"""What says how much a method does. Several keys grow together, in the proportion that they have;
a method without any does as much as it does."""
MOST = {"samples": 1024, "rounds": 4}
"""The largest size by the last word of its key; others end where the instructions do. Debates were
published with 2 to 8 rounds; more of them are another method, not a larger one."""
BOUNDS: dict[str, str] = {
    "judgments": "Plans of judgments are upper bounds, since alike responses are not judged.",
    "steps": "Plans of steps are upper bounds, since ties and dropped texts teach nothing.",
    "tokens": "Plans of tokens guess the lengths of texts, and may be far off either way.",
}
"""What the plan of a quantity is where the ledger may count something else."""
FAR = 1 << 40
"""The largest size where nothing else ends it: no budget reaches it."""
MOST_PAIRS = 1 << 20
"""The same for pairs of a data set that nobody counted: they are planned one by one."""
NEAR = 0.8
"""Who is to use less than this share of a budget, or more than all of it, is told so before."""
Amount = Annotated[int | None, Field(ge=1, le=10**12)]


class Budget(Section):
    responses: Amount = None
    """Texts written, but for verdicts and the measurement of members."""
    judgments: Amount = None
    """Requests to judges."""
    steps: Amount = None
    """Optimiser steps of all members together."""
    tokens: Amount = None
    """Tokens read, written and learned."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Budget:
        given = [name for name in QUANTITIES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of {', '.join(QUANTITIES)}, got {', '.join(given) or 'none'}"
            )
        return self

    @property
    def quantity(self) -> Quantity:
        return next(name for name in QUANTITIES if getattr(self, name) is not None)

    @property
    def amount(self) -> int:
        return getattr(self, self.quantity)


@dataclass(frozen=True, slots=True)
class Use:
    """What a run uses, or used. ``shared`` of the requests that count were answered by another run
    and taken from there (never in a plan)."""

    responses: float = 0
    judgments: float = 0
    steps: float = 0
    tokens: float = 0
    shared: int = 0

    def share(self, budget: Budget) -> float:
        """Of the budget."""
        return getattr(self, budget.quantity) / budget.amount

    def off_budget(self, budget: Budget) -> bool:
        """Whether it is so far from the budget that a reader must know."""
        return abs(self.share(budget) - 1) > TOLERANCE


def planned(config: Config) -> Use:
    """What a run by this configuration is to use, by its plan: responses of usual length, nothing
    failed, no pair dropped, and with ``train.scope: own`` as many pairs for each as for the mean
    member. Raises ConfigError as ``phalanx check``."""
    plan = make_plan(config)
    return _use(config, plan.rounds, plan.measuring)


def _use(config: Config, rounds: Sequence[Round], measuring: Sequence[Demand]) -> Use:
    demands = list(all_demands(rounds))
    if METHODS[config.method].kind == "answer":
        demands += [(1, one) for one in measuring if one.purpose not in MEASURING]
    responses = sum(n * one.requests for n, one in demands if one.purpose not in JUDGING)
    judgments = sum(n * one.requests for n, one in demands if one.purpose in JUDGING)
    tokens = sum(n * one.requests * _tokens(one) for n, one in demands)
    steps = 0
    for one in rounds:
        for training in one.trainings:
            texts = sum(training.examples.values()) * training.texts * training.settings.epochs
            steps += one.count * training.steps
            tokens += one.count * texts * training.usual
    return Use(responses, judgments, steps, tokens)


def _tokens(demand: Demand) -> float:
    return demand.usual_read + demand.usual


def sized(config: Config, budget: Budget) -> tuple[Config, str, float]:
    """The largest version of a method whose planned use is within the budget, how that came about,
    and the use. One that cannot come within it stays as small as it can be, and says so.

    Raises ConfigError as :func:`planned`.
    """
    keys, quantity = KEYS[config.method], budget.quantity
    plan = make_plan(config)

    def of(size: int) -> float:
        changed = _resized(config, keys, size)
        return getattr(_use(changed, *rescaled(plan, changed)), quantity)

    if not keys:
        used = getattr(_use(config, plan.rounds, plan.measuring), quantity)
        return config, *_unsized(config, used, budget)
    most, why = _most(keys, plan)
    if _without_effect(of, keys, most):
        return config, *_left(config, keys, of(1), budget)
    size = _largest(of, budget.amount, most)
    used = of(max(size, 1))
    chosen = _resized(config, keys, max(size, 1))
    note = f"{_sizes(chosen, keys)}: {used:,.0f} {quantity} planned"
    if not size:
        return chosen, note + _more(used, budget), used
    if size == most and used < (1 - TOLERANCE) * budget.amount:
        note += f", {used / budget.amount:.0%} of the budget; it cannot use more ({why})"
    return chosen, note, used


def _sizes(config: Config, keys: tuple[str, ...]) -> str:
    return ", ".join(f"{key} = {_value(config, key):,}" for key in keys)


def _unsized(config: Config, used: float, budget: Budget) -> tuple[str, float]:
    """The note, and the use, of a method that nothing makes larger or smaller."""
    note = f"uses {used:,.0f} {budget.quantity}"
    if used > budget.amount:
        return note + _more(used, budget), used
    free = METHODS[config.method].kind != "none"
    return note + ("; nothing says how much it does, so the budget has no effect" * free), used


def _without_effect(of: Callable[[int], float], keys: tuple[str, ...], most: int) -> bool:
    """Whether the size changes no use. Few sizes say so: plans of many samples are slow, and what
    two do not use a thousand do not."""
    first = of(1)
    if first != of(min(2, most)):
        return False
    if not first or keys[0].rpartition(".")[2] in MOST:
        return True
    return first == of(min(most, 4096))  # steps are of batches


def _left(config: Config, keys: tuple[str, ...], used: float, budget: Budget) -> tuple[str, float]:
    """The note, and the use, of a method whose size does not change what it uses."""
    much = f"{used:,.0f}" if used else "no"
    beyond = f", of a budget of {budget.amount:,} ({used / budget.amount:.0%})" if used else ""
    return (
        f"uses {much} {budget.quantity}{beyond}, whatever its size: left at {_sizes(config, keys)}",
        used,
    )


def _more(used: float, budget: Budget) -> str:
    return (
        f", more than the budget of {budget.amount:,} ({used / budget.amount:.0%}): it cannot be "
        "made smaller"
    )


def _most(keys: tuple[str, ...], plan: Plan) -> tuple[int, str]:
    """The largest size that makes a difference, and what it is the largest by."""
    word = keys[0].rpartition(".")[2]
    if word in MOST:
        return MOST[word], f"{MOST[word]:,} {word} are the most"
    count, pairs = plan.instructions.count, word == "pairs"
    if count and (pairs or word.endswith("instructions")):
        return count, f"there are {count:,} {'pairs' if pairs else 'instructions'}"
    most = MOST_PAIRS if pairs else FAR
    return most, f"{most:,} {word} are the most"


def _largest(of: Callable[[int], float], amount: int, most: int) -> int:
    """The largest size from 1 to ``most`` whose use is within the amount; 0 where none is.

    ``of`` must not fall. Use is about proportional to the size, so guesses come close at once.
    """
    low, high = 0, most + 1  # of(low) fits, of(high) does not
    at, guesses = min(most, 16), 4
    while high - low > 1:
        used = of(at)
        if used <= amount:
            low = at
        else:
            high = at
        guess = round(at * amount / used) if used and guesses else (low + high) // 2
        at, guesses = min(max(guess, low + 1), high - 1), max(0, guesses - 1)
    return low


def _resized(config: Config, keys: tuple[str, ...], size: int) -> Config:
    """The first key set to ``size``, the others in proportion."""
    first = _value(config, keys[0])
    for key in keys:
        section, _, name = key.partition(".")
        value = max(1, round(size * _value(config, key) / first))
        new = getattr(config, section).model_copy(update={name: value})
        config = config.model_copy(update={section: new})
    return config


def _value(config: Config, key: str) -> int:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


# After the run --------------------------------------------------------------------------------


def spent(ledger: Ledger) -> Use:
    """What a run used by its ledger's own counts, shared responses included."""
    counted, values = _counted(ledger)
    judging = ", ".join("?" * len(JUDGING))
    row = ledger.query(
        f"SELECT total(purpose IN ({judging})) AS judgments, count(*) AS requests, "
        "total(num_prompt_tokens + num_completion_tokens) AS tokens, total(attempts = 0) AS shared "
        f"FROM responses WHERE {counted}",
        (*JUDGING, *values),
    )[0]
    trained = ledger.query(
        "SELECT total(json_extract(summary, '$.tokens')) AS tokens FROM trainings "
        "WHERE iteration > 0"
    )[0]["tokens"]
    return Use(
        responses=row["requests"] - int(row["judgments"]),
        judgments=int(row["judgments"]),
        steps=ledger.count("training_steps", "iteration > 0"),
        tokens=int(row["tokens"] + trained),
        shared=int(row["shared"]),
    )


def _counted(ledger: Ledger) -> tuple[str, tuple[Any, ...]]:
    """Which requests count: those of a method, not those that measure."""
    method = ledger.get("method") or ""
    if method in METHODS and METHODS[method].kind == "answer":
        marks = ", ".join("?" * len(MEASURING))
        return f"phase LIKE 'evaluate%' AND purpose NOT IN ({marks})", tuple(MEASURING)
    return "phase NOT LIKE 'evaluate%'", ()


def shared_in_all(ledger: Ledger) -> int:
    """Requests that another run had answered, the measurement of members included."""
    return ledger.count("responses", "attempts = 0")
