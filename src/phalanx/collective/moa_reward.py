"""The mixture as a pairwise reward: readers evaluate two responses, an aggregator decides.

MoAA, stage 2 (arXiv 2505.03059): for the criteria of the instruction every proposer writes a
balanced evaluation of both responses; the aggregator reads all evaluations and gives the verdict.
Both orders are judged, from the evaluations on, since the order is what is controlled; verdicts
that contradict each other are a tie (our reading: the paper does not say).

An evaluation that failed or is empty is left out and counted; an order without any, or without a
readable verdict, has none: the judgment is then missing, never a number and never a tie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.collective.conversation import earlier_answers
from phalanx.collective.criteria import (
    DEFAULT_CRITERIA,
    Choice,
    Criterion,
    choose_criteria,
    load_criteria,
    numbered,
)
from phalanx.collective.judging import LOW_MASS, WRITTEN_SCORE, read_written_verdict
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.reading import SCORES, Verdict, combine_orders
from phalanx.collective.templates import QUESTION, fence, fill, imitates_verdict, load_template
from phalanx.config.base import sampling
from phalanx.config.mixing import MIXTURE, MOA, named, panel_of, selector_of, verdict_of
from phalanx.config.schema import Config, RewardSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derive_seed, derived_random
from phalanx.types import (
    Ask,
    Duel,
    Instruction,
    Judgment,
    Member,
    Message,
    Options,
    Request,
    Response,
    Sampling,
    Want,
)

JUDGE = MIXTURE
PROTOCOL = MOA
LEFT_OUT = "evaluations_left_out"
"""The flag of a judgment for which some evaluation failed or was empty."""

Texts = tuple[str, str]
_ORDERS = ("first", "second")
_OPTIONS = Options('{"better": "', ("A", "B"))
_WRITE = (
    "You may give your reasons in a few sentences. Then end with your verdict on a line of its "
    "own: [[A]] if response A is better, [[B]] if response B is better, [[C]] if they are equally "
    "good."
)
_OPTION = (
    'Reply with nothing but a JSON object that has the single key "better". Its value is "A" if '
    'response A is better, "B" if response B is better.'
)


@dataclass(frozen=True, slots=True)
class Panel:
    """Who evaluates, who decides, who chooses the criteria, and the list to choose from."""

    proposers: tuple[Member, ...]
    aggregator: Member
    selector: Member
    criteria: tuple[Criterion, ...]
    settings: RewardSettings


@dataclass(frozen=True, slots=True)
class PanelVerdicts:
    """One judgment a duel, in order; how many evaluations of each proposer were left out."""

    judgments: tuple[Judgment, ...]
    left_out: dict[str, int]


def panel_from(config: Config, members: Sequence[Member]) -> Panel:
    """The panel of ``config.reward``, of these versions of its members.

    What it leaves open is the mixture's; where the mixture has no proposers the aggregator
    evaluates, too. Raises ConfigError where a name is not among the members, and for a list of
    criteria that cannot be used.
    """
    settings = config.reward
    if not verdict_of(config):
        raise ConfigError(
            "reward.aggregator and mixture.aggregator are not set; name the member that gives the "
            "verdict"
        )
    names = [*panel_of(config), verdict_of(config), selector_of(config)]
    known = named(names, members, "reward")
    *readers, aggregator, selector = names
    return Panel(
        proposers=tuple(known[name] for name in readers),
        aggregator=known[aggregator],
        selector=known[selector],
        criteria=load_criteria(settings.criteria),
        settings=settings,
    )


def choose(
    panel: Panel, instructions: Sequence[Instruction], ask: Ask, *, place: tuple[Any, ...]
) -> dict[str, Choice]:
    """The panel's criteria for each instruction, by its id; each instruction is asked about once.

    ``place`` must be the same wherever the choice is to be shared.
    """
    return choose_criteria(
        instructions, panel.criteria, panel.selector, panel.settings, ask, place=place
    )


def panel_metrics(choices: Mapping[str, Choice], left_out: Mapping[str, int]) -> dict[str, float]:
    """How often each criterion was chosen and none could be read, and what was left out."""
    chosen = Counter(item.name for choice in choices.values() for item in choice.criteria)
    return {
        **{f"evaluations.left_out.{name}": count for name, count in sorted(left_out.items())},
        "criteria.unreadable": sum(bool(choice.reason) for choice in choices.values()),
        **{f"criteria.chosen.{name}": count for name, count in sorted(chosen.items())},
    }


# Asking ------------------------------------------------------------------------------------------


@dataclass
class _Order:
    """One order of one duel: ``shown`` are the texts as A and B."""

    slot: str
    shown: Texts
    assess: list[Request]
    evaluations: list[Response] = field(default_factory=list)
    verdict: Request | None = None
    reply: Response | None = None
    reason: str = ""

    @property
    def usable(self) -> list[str]:
        return [text for response in self.evaluations if (text := _text(response))]


@dataclass
class _Hearing:
    """One duel before the panel."""

    duel: Duel
    texts: Texts
    choice: Choice
    orders: list[_Order]


def judge_duels(
    panel: Panel,
    duels: Sequence[Duel],
    texts: Sequence[Texts],
    choices: Mapping[str, Choice],
    ask: Ask,
    *,
    place: tuple[Any, ...],
    suffix: str = "",
) -> PanelVerdicts:
    """The panel's judgment of each duel, whose responses (left, right) are ``texts``.

    Two phases are asked, ``assess`` and ``verdict`` (with ``suffix`` behind), all duels in each.
    ``choices`` are those of :func:`choose`, by the instruction's id.
    """
    hearings = [
        _hearing(panel, duel, pair, choices[duel.instruction.id], place)
        for duel, pair in zip(duels, texts, strict=True)
    ]
    orders = [(hearing, order) for hearing in hearings for order in hearing.orders]
    requests = [request for _, order in orders for request in order.assess]
    replies = iter(ask(f"assess{suffix}", requests) if requests else ())
    left_out: Counter[str] = Counter()
    for hearing, order in orders:
        order.evaluations = [next(replies) for _ in order.assess]
        for proposer, response in zip(panel.proposers, order.evaluations, strict=True):
            left_out[proposer.name] += not _text(response)
        if order.usable:
            order.verdict = _verdict_request(panel, hearing, order, place)
        else:
            order.reason = f"no evaluation ({_whys(panel, order)})"
    heard = [order for _, order in orders if order.verdict]
    replies = ask(f"verdict{suffix}", [order.verdict for order in heard]) if heard else []
    for order, reply in zip(heard, replies, strict=True):
        order.reply = reply
    return PanelVerdicts(
        tuple(_judgment(panel, hearing) for hearing in hearings),
        {name: count for name, count in left_out.items() if count},
    )


def _hearing(
    panel: Panel, duel: Duel, texts: Texts, choice: Choice, place: tuple[Any, ...]
) -> _Hearing:
    hearing = _Hearing(duel, texts, choice, [])
    slots: Sequence[str] = _ORDERS
    if not panel.settings.both_orders:
        slots = (derived_random("order", *place, duel.id).choice(_ORDERS),)
    for slot in slots:
        order = _Order(slot, texts if slot == "first" else texts[::-1], [])
        order.assess = [
            _assess_request(panel, hearing, order, proposer, place) for proposer in panel.proposers
        ]
        hearing.orders.append(order)
    return hearing


def _values(hearing: _Hearing, order: _Order, seed: int) -> dict[str, str]:
    """What both prompts show. The marks are new in each prompt: whoever saw one knows no other."""
    return {
        "criteria": numbered(hearing.choice.criteria),
        "instruction": fence(hearing.duel.instruction.text, seed + 2, QUESTION)[0],
        "response_a": fence(order.shown[0], seed, "response A")[0],
        "response_b": fence(order.shown[1], seed + 1, "response B")[0],
    }


def _assess_request(
    panel: Panel, hearing: _Hearing, order: _Order, proposer: Member, place: tuple[Any, ...]
) -> Request:
    here = (*place, hearing.duel.id, order.slot, proposer.key)
    values = _values(hearing, order, derive_seed("assess fence", *here))
    message = Message("user", fill(load_template("assess", values), values))
    want = sampling(panel.settings.evaluate)
    parts = (*order.shown, *earlier_answers(hearing.duel.instruction))
    return _request("assess", here, proposer, message, want, parts)


def _verdict_request(
    panel: Panel, hearing: _Hearing, order: _Order, place: tuple[Any, ...]
) -> Request:
    here = (*place, hearing.duel.id, order.slot, panel.aggregator.key)
    seed = derive_seed("verdict fence", *here)
    fenced = [
        fence(text, seed + 2 + number, f"evaluation {number}")[0]
        for number, text in enumerate(order.usable, start=1)
    ]
    written = panel.settings.verdict == "written"
    values = {
        **_values(hearing, order, seed),
        "evaluations": "\n\n".join(fenced),
        "reply": _WRITE if written else _OPTION,
    }
    message = Message("user", fill(load_template("verdict", values), values))
    want = Sampling(0.0, 1.0, 0, panel.settings.verdict_tokens) if written else _OPTIONS
    parts = (*order.shown, *order.usable, *earlier_answers(hearing.duel.instruction))
    return _request("verdict", here, panel.aggregator, message, want, parts)


def _request(
    purpose: str,
    here: tuple[Any, ...],
    member: Member,
    message: Message,
    want: Want,
    parts: Sequence[str],
) -> Request:
    return Request(
        id=content_id(purpose, *here, message, want),
        member=member,
        messages=(message,),
        want=want,
        purpose=purpose,
        seed=derive_seed(purpose, *here),
        shortenable=tuple(part for part in parts if part),
    )


# Reading -----------------------------------------------------------------------------------------


def _text(response: Response) -> str:
    """An evaluation as the aggregator reads it: without reasoning that goes before it."""
    return answer_alone(response.text or "").strip() if response.error is None else ""


def _whys(panel: Panel, order: _Order) -> str:
    whys = [
        f"{proposer.name}: {response.error.kind if response.error else 'empty'}"
        for proposer, response in zip(panel.proposers, order.evaluations, strict=True)
    ]
    return ", ".join(whys)


def _judgment(panel: Panel, hearing: _Hearing) -> Judgment:
    choice = hearing.choice
    said = {"criteria": choice.response} if choice.response else {}
    for order in hearing.orders:
        for proposer, response in zip(panel.proposers, order.evaluations, strict=True):
            said[f"{order.slot}.assess.{proposer.name}"] = response
        if order.reply:
            said[order.slot] = order.reply
    if panel.settings.verdict == "written":
        value, flipped, reasons = _written(hearing)
    else:
        value, flipped, reasons = _weighed(hearing, panel.settings)
    left, right = SCORES[value]
    return Judgment(
        duel_id=hearing.duel.id,
        judge=JUDGE,
        protocol=PROTOCOL,
        score_left=left,
        score_right=right,
        reason="; ".join(reasons),
        flipped=flipped,
        raw={slot: response.said for slot, response in said.items()},
        flags=_flags(hearing),
        requests={slot: response.request_id for slot, response in said.items()},
    )


def _written(hearing: _Hearing) -> tuple[Verdict | None, bool, list[str]]:
    """The verdict in the letters of the first order, whether the orders disagreed, and gaps."""
    verdicts: list[Verdict | None] = []
    reasons = []
    for order in hearing.orders:
        verdict, why = _read(order)
        verdicts.append(verdict)
        if why:
            reasons.append(f"{order.slot}: {why}")
    if len(verdicts) == 2:
        both = combine_orders(*verdicts)
        return both.value, both.flipped, reasons
    turned: dict[Verdict, Verdict] = {"A": "B", "B": "A", "tie": "tie"}
    (verdict,) = verdicts
    if verdict and hearing.orders[0].slot == "second":
        verdict = turned[verdict]
    return verdict, False, reasons


def _read(order: _Order) -> tuple[Verdict | None, str]:
    """The verdict that the aggregator wrote, in its own words alone."""
    reply = order.reply
    return (None, order.reason) if reply is None else read_written_verdict(reply)


def _weighed(hearing: _Hearing, settings: RewardSettings) -> tuple[Verdict | None, bool, list[str]]:
    """The same from probabilities.

    A preference is the probability of the left response less that of the right one. Orders that
    prefer different responses, each by more than ``tie_below``, contradict each other: a tie with
    ``contradiction: tie``. Otherwise their mean decides, and one below ``tie_below`` is a tie.
    """
    tie_below = settings.tie_below
    preferences, reasons = [], []
    for order in hearing.orders:
        preference, why = _preference(order)
        if preference is None:
            reasons.append(f"{order.slot}: {why}")
        else:
            preferences.append(preference)
    if reasons:
        return None, False, reasons
    opposed = min(preferences) < 0 < max(preferences)
    opposed = opposed and min(map(abs, preferences)) > tie_below
    mean = sum(preferences) / len(preferences)
    if opposed and settings.contradiction == "tie":
        return "tie", True, []
    if mean == 0 or abs(mean) < tie_below:
        return "tie", opposed, []
    return ("A" if mean > 0 else "B"), opposed, []


def _preference(order: _Order) -> tuple[float | None, str]:
    reply = order.reply
    if reply is None:
        return None, order.reason
    if reply.error is not None:
        return None, f"{reply.error.kind}: {reply.error.message}"
    if not reply.probabilities:
        return None, "no probabilities"
    for_a, for_b = (reply.probabilities.get(option, 0.0) for option in _OPTIONS.options)
    if not for_a + for_b > 0:
        return None, f"probabilities sum to {for_a + for_b:g}"
    preference = (for_a - for_b) / (for_a + for_b)
    return (preference if order.slot == "first" else -preference), ""


def _flags(hearing: _Hearing) -> tuple[str, ...]:
    replies = [order.reply for order in hearing.orders if order.reply]
    readers = [response for order in hearing.orders for response in order.evaluations]
    flags = []
    if hearing.choice.reason:
        flags.append(DEFAULT_CRITERIA)
    if any(not _text(response) for response in readers):
        flags.append(LEFT_OUT)
    if any(reply.option_mass is not None and reply.option_mass < LOW_MASS for reply in replies):
        flags.append("low_mass")
    if any(response.num_shortened_tokens > 0 for response in (*readers, *replies)):
        flags.append("shortened")
    if any(WRITTEN_SCORE in reply.flags for reply in replies):
        flags.append(WRITTEN_SCORE)
    sides = zip(("left", "right"), hearing.texts, strict=True)
    flags += [f"imitates_verdict:{side}" for side, text in sides if imitates_verdict(text)]
    return tuple(flags)
