"""What endpoints will be asked: requests, tokens, money, and whether the budget holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.config.schema import Config, EndpointSettings
from phalanx.plan.rounds import Demand, Round, all_demands
from phalanx.types import Member


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """The whole run, each request sent once, every response as long as allowed.

    What is read is estimated, chat templates included by a flat number of tokens; tries are not
    counted. ``money`` is None without prices.
    ``minutes`` is the least time that its own rates allow; None where it has none.
    """

    name: str
    members: tuple[str, ...]
    requests: int
    tokens_in: int
    tokens_out: int
    money: float | None
    minutes: float | None

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def endpoints_of(
    config: Config,
    members: Sequence[Member],
    rounds: Sequence[Round],
    measuring: Sequence[Demand],
) -> tuple[EndpointPlan, ...]:
    """One entry for each endpoint that a member is behind.

    ``measuring``: requests of all evaluation.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        if member.engine == "openai":
            groups.setdefault(member.endpoint, []).append(member)
    settings = {endpoint.name: endpoint for endpoint in config.endpoints}
    asked = [*all_demands(rounds), *((1, demand) for demand in measuring)]
    return tuple(
        _of_one(settings[name], mine, asked) for name, mine in groups.items() if name in settings
    )


def _of_one(
    endpoint: EndpointSettings, mine: Sequence[Member], asked: Sequence[tuple[int, Demand]]
) -> EndpointPlan:
    names = tuple(member.name for member in mine)
    wanted = [(times * d.requests, d) for times, d in asked if d.member in names]
    sums: dict[str, float] = {}
    for count, demand in wanted:
        sums[demand.purpose] = sums.get(demand.purpose, 0.0) + count
    requests = sum(map(_whole, sums.values()))
    tokens_in = _whole(sum(count * demand.read for count, demand in wanted))
    tokens_out = _whole(sum(count * max(d.written, d.unguided) for count, d in wanted))
    money = None
    if endpoint.price_in or endpoint.price_out:
        money = endpoint.money(tokens_in, tokens_out)
    rates = []
    if endpoint.requests_per_minute:
        rates.append(requests / endpoint.requests_per_minute)
    if endpoint.tokens_per_minute:
        rates.append((tokens_in + tokens_out) / endpoint.tokens_per_minute)
    return EndpointPlan(
        endpoint.name, names, requests, tokens_in, tokens_out, money, max(rates, default=None)
    )


def _whole(number: float) -> int:
    """The next whole number, save for what rounding has added."""
    return ceil(round(number, 6))


def amount(money: float) -> str:
    """
    >>> amount(0.00412), amount(1234.5)
    ('0.0041', '1,234.50')
    """
    return f"{money:,.2f}" if money >= 1 else f"{money:.2g}"


def budget_lines(config: Config, plans: Sequence[EndpointPlan]) -> list[str]:
    """How these numbers compare with the budget, a line for each limit that is set."""
    budget, lines = config.budget, []
    priced = [plan.money for plan in plans if plan.money is not None]
    sums = (
        ("requests", budget.requests, sum(plan.requests for plan in plans), ",.0f"),
        ("tokens", budget.tokens, sum(plan.tokens for plan in plans), ",.0f"),
        ("money", budget.money, sum(priced), ",.4g"),
    )
    for name, limit, needed, how in sums:
        if limit is None or not plans or (name == "money" and not priced):
            continue
        about = f"budget.{name}: about {needed:{how}}"
        if needed <= limit:
            lines.append(f"{about} fit within {limit:{how}} (tries come on top)")
        else:
            lines.append(
                f"{about} do not fit within {limit:{how}}; if responses are as long as allowed, "
                f"the run stops after about {limit / needed:.1%} of its requests, to go on when "
                "the budget is raised"
            )
    return lines
