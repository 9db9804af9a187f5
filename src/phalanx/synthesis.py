"""Instructions that a member invents, in rounds, until enough of them pass the filters.

Magpie (arXiv 2406.08464): given nothing but the part of the chat template before a user's turn, an
aligned model writes a user's turn. Here a member's own system prompt, or one that steers it, stands
before that. What it writes is screened: lengths, control tokens, repeats,
and where wanted a member's rating and a reward model's score of the member's own answer. Every
try ends kept or dropped by the name of one filter, so the sums add up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.asking import Asking, Spent, asking, refuse_unmade, spent
from phalanx.collective.screening import (
    GOOD,
    Limits,
    Seen,
    fault_of,
    rating_request,
    read_rating,
)
from phalanx.config.faults import did_you_mean
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, PhalanxError
from phalanx.identity import content_id, derive_seed
from phalanx.sources import clean_text
from phalanx.types import (
    Ask,
    Member,
    Message,
    Progress,
    Request,
    Response,
    Reward,
    Sampling,
    UserTurn,
)
from phalanx.workshop import Workshop

_LEAST_RATE = 0.1
"""No round asks for more than ten times what is missing, however little was kept so far."""
SURPLUS = "surplus"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted. ``member`` invents; ``system`` steers it (default: its own system prompt,
    and none where it has none).

    ``rater`` rates each instruction, and ``good`` and ``excellent`` ones are kept. ``rewarder``, a
    reward model, scores the member's own greedy answer, which must reach ``min_reward``.
    ``max_tries`` (default: twenty times ``count``) bounds what is asked; ``domain`` is written
    into every row.
    """

    member: str
    count: int
    system: str = ""
    domain: str = ""
    rater: str = ""
    rewarder: str = ""
    min_reward: float | None = None
    max_tries: int | None = None
    temperature: float = 1.0
    max_new_tokens: int = 256
    answer_tokens: int = 512
    limits: Limits = field(default_factory=Limits)

    @property
    def flags(self) -> dict[str, Any]:
        """The values by the names of the command's flags."""
        named = {"system": "domain_system", "rewarder": "reward"}
        values = asdict(self)
        values |= values.pop("limits")
        return {
            "--" + named.get(name, name).replace("_", "-"): value for name, value in values.items()
        }

    @property
    def tries(self) -> int:
        return 20 * self.count if self.max_tries is None else self.max_tries


@dataclass(frozen=True, slots=True)
class Synthesis:
    """``rows`` load as ``instructions.source``. ``dropped`` counts the other tries by filter."""

    rows: tuple[dict[str, Any], ...]
    tried: int
    dropped: dict[str, int]
    wanted: int
    spent: Spent

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {name}" for name, count in self.dropped.items())
        return f"{len(self.rows)} kept of {self.tried} tried; dropped: {reasons or 'none'}"


@dataclass
class _Found:
    """One try that has passed so far."""

    number: int
    text: str
    rating: str = ""
    reward: float | None = None
    response: str = ""


@dataclass
class _Work:
    """The work in hand: who is asked, what was seen, and what became of every try."""

    wish: Wish
    member: Member
    rater: Member | None
    rewarder: Member | None
    ask: Ask
    seed: int
    seen: Seen
    kept: list[_Found] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    tried: int = 0


def synthesise(
    config: Config,
    folder: Path | str,
    wish: Wish,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Synthesis:
    """Ask, screen, and go on in rounds until ``wish.count`` are kept or all tries are used.

    The same call on the same folder goes on where it was stopped; with a larger ``count``,
    elsewhere. Raises ConfigError for members that cannot do their part, PhalanxError where not one
    try was kept.
    """
    wish = replace(wish, system=clean_text(wish.system), domain=clean_text(wish.domain))
    members = _cast(config, wish)
    refuse_unmade(config, [member for member in members if member is not None])
    seen = Seen(wish.limits.overlap)  # before anybody is asked: a package may be missing
    with asking(
        config,
        folder,
        kind="synthesise",
        inputs=content_id("synthesise", wish),
        flags=wish.flags,
        progress=progress,
        workshop=workshop,
    ) as place:
        work = _Work(wish, *members, place.ask(0), config.seed, seen)
        while len(work.kept) < wish.count and work.tried < wish.tries:
            _round(work, place)
        dropped = dict(work.dropped.most_common())
        rows = tuple(_row(work, found) for found in work.kept)
        made = Synthesis(rows, work.tried, dropped, wish.count, spent(place))
        if not rows:
            raise PhalanxError(f"nothing to write: {made}; look at the responses of {folder}")
        place.ledger.put("finished", "yes")
        return made


def _cast(config: Config, wish: Wish) -> tuple[Member, Member | None, Member | None]:
    """The member, the rater and the reward model. Raises ConfigError with every fault."""
    known = {member.name: member for member in pool.members_from(config)}
    roles = {"--member": wish.member, "--rater": wish.rater, "--reward": wish.rewarder}
    faults = [
        f"{option}: there is no member {name!r}; {did_you_mean(name, list(known))}"
        for option, name in roles.items()
        if name and name not in known
    ]
    member = known.get(wish.member)
    if member is not None and member.engine not in ("hf", "scripted", "vllm"):
        faults.append(
            f"--member: {wish.member} has engine {member.engine}, which cannot invent a user's "
            "turn: that needs the chat template; name a member with weights here"
        )
    rater, rewarder = known.get(wish.rater), known.get(wish.rewarder)
    if rater is not None and rater.engine == "reward":
        faults.append(f"--rater: {wish.rater} is a reward model; give it as --reward instead")
    if rewarder is not None and rewarder.engine not in ("reward", "scripted"):
        faults.append(
            f"--reward: {wish.rewarder} has engine {rewarder.engine}; expected a member with "
            "engine: reward"
        )
    if bool(wish.rewarder) != (wish.min_reward is not None):
        faults.append("--reward and --min-reward go together: a reward model, and its threshold")
    if wish.count < 1 or wish.tries < 1:
        faults.append(f"--count is {wish.count} and --max-tries {wish.tries}; at least 1 each")
    if faults or member is None:
        raise ConfigError(faults)
    return member, rater, rewarder


def _round(work: _Work, place: Asking) -> None:
    """Ask for about as many as are missing, by the share that was kept so far."""
    missing = work.wish.count - len(work.kept)
    rate = len(work.kept) / work.tried if work.tried else 1.0
    size = min(math.ceil(missing / max(rate, _LEAST_RATE)), work.wish.tries - work.tried)
    numbers = range(work.tried, work.tried + size)
    work.tried += size
    replies = work.ask("user turns", [_turn_request(work, number) for number in numbers])
    found = _screened(work, [*zip(numbers, replies, strict=True)])
    if work.rater is not None:
        found = _rated(work, found, work.rater)
    if work.rewarder is not None:
        found = _rewarded(work, found, work.rewarder)
    work.kept += found[:missing]
    if len(found) > missing:
        work.dropped[SURPLUS] += len(found) - missing
    place.progress.say(f"  {len(work.kept)} of {work.wish.count} kept after {work.tried} tries")


def _turn_request(work: _Work, number: int) -> Request:
    wish = work.wish
    system = wish.system or work.member.system
    messages = (Message("system", system),) if system else ()
    want = UserTurn(temperature=wish.temperature, max_new_tokens=wish.max_new_tokens)
    where = ("user_turn", work.seed, number, work.member.key)
    return Request(
        content_id(*where, messages, want),
        work.member,
        messages,
        want,
        "user_turn",
        seed=derive_seed(*where),
    )


def _screened(work: _Work, asked: Sequence[tuple[int, Response]]) -> list[_Found]:
    found = []
    for number, response in asked:
        text = clean_text((response.text or "").strip())
        fault = fault_of(response, work.wish.limits) or work.seen.take(text)
        if fault:
            work.dropped[fault] += 1
        else:
            found.append(_Found(number, text))
    return found


def _rated(work: _Work, found: list[_Found], rater: Member) -> list[_Found]:
    """Those that the rater calls good or excellent; what cannot be read is no rating."""
    replies = work.ask("rate", [rating_request(one.text, rater) for one in found])
    kept = []
    for one, reply in zip(found, replies, strict=True):
        rating = read_rating(reply)
        if rating in GOOD:
            one.rating = rating
            kept.append(one)
        else:
            work.dropped[f"rated {rating}" if rating else "unrated"] += 1
    return kept


def _rewarded(work: _Work, found: list[_Found], rewarder: Member) -> list[_Found]:
    """Those whose greedy answer by the member itself reaches the threshold."""
    want = Sampling(0.0, 1.0, 0, work.wish.answer_tokens)
    requests = [_request(work.member, one.text, want, "answer") for one in found]
    answered = []
    for one, reply in zip(found, work.ask("answer", requests), strict=True):
        one.response = (reply.text or "").strip()
        if reply.error is not None or not one.response:
            work.dropped["unanswered"] += 1
        elif reply.truncated:  # half an answer has no score that says anything
            work.dropped["truncated_answer"] += 1
        else:
            answered.append(one)
    requests = [_request(rewarder, one.text, Reward(one.response), "reward") for one in answered]
    kept = []
    for one, reply in zip(answered, work.ask("reward", requests), strict=True):
        one.reward = reply.reward
        if one.reward is None:
            work.dropped["unscored"] += 1
        elif work.wish.min_reward is not None and one.reward < work.wish.min_reward:
            work.dropped["low_reward"] += 1
        else:
            kept.append(one)
    return kept


def _request(member: Member, text: str, want: Sampling | Reward, purpose: str) -> Request:
    """Greedy and without noise: the same question has the same id wherever it is asked."""
    messages = member.messages(text)
    return Request(content_id(purpose, member.key, messages, want), member, messages, want, purpose)


def _row(work: _Work, found: _Found) -> dict[str, Any]:
    row: dict[str, Any] = {"id": content_id(found.text), "instruction": found.text}
    if work.wish.domain:
        row["domain"] = work.wish.domain
    row["writer"] = work.member.name
    if found.rating:
        row["rating"] = found.rating
    if found.reward is not None:
        row |= {"reward": found.reward, "response": found.response}
    return row
