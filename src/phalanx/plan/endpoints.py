"""What endpoints will be asked: requests, tokens, money, and whether the budget holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.config.schema import Config, EndpointSettings
from phalanx.plan.work import asked_of, judge_request_tokens
from phalanx.pool import contestants
from phalanx.types import Member

MILLION = 1_000_000


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
    config: Config, members: Sequence[Member], instruction_tokens: int, items: int
) -> tuple[EndpointPlan, ...]:
    """One entry for each endpoint that a member is behind.

    Each contestant answers ``items`` of evaluation, once: it does not change, and what it has
    answered is not asked again.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        if member.engine == "openai":
            groups.setdefault(member.endpoint, []).append(member)
    settings = {endpoint.name: endpoint for endpoint in config.endpoints}
    return tuple(
        _of_one(config, settings[name], mine, members, instruction_tokens, items)
        for name, mine in groups.items()
        if name in settings
    )


def _of_one(
    config: Config,
    endpoint: EndpointSettings,
    mine: Sequence[Member],
    members: Sequence[Member],
    instruction_tokens: int,
    items: int,
) -> EndpointPlan:
    asked = asked_of(config, members)
    answer = config.answer.max_new_tokens
    read, written = judge_request_tokens(config, instruction_tokens, answer)
    # A server that cannot be told how to begin writes even a score that is read off.
    written = max(written, config.judge.max_new_tokens)
    measured = {member.name for member in contestants(members)}
    answers = config.iterations * sum(asked[member.name].answers for member in mine)
    judgings = config.iterations * sum(asked[member.name].judgings for member in mine)
    measurings = items * sum(member.name in measured for member in mine)
    requests = ceil(answers) + ceil(judgings) + measurings
    tokens_in = ceil((answers + measurings) * instruction_tokens + judgings * read)
    tokens_out = ceil(
        answers * answer + judgings * written + measurings * config.evaluate.max_new_tokens
    )
    money = None
    if endpoint.price_in or endpoint.price_out:
        money = (tokens_in * endpoint.price_in + tokens_out * endpoint.price_out) / MILLION
    rates = []
    if endpoint.requests_per_minute:
        rates.append(requests / endpoint.requests_per_minute)
    if endpoint.tokens_per_minute:
        rates.append((tokens_in + tokens_out) / endpoint.tokens_per_minute)
    names = tuple(member.name for member in mine)
    return EndpointPlan(
        endpoint.name, names, requests, tokens_in, tokens_out, money, max(rates, default=None)
    )


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
