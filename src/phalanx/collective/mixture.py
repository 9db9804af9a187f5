"""A mixture of agents: layers of proposers and an aggregator that answer as one.

Mixture-of-Agents (arXiv 2406.04692): in the first layer every proposer answers the conversation;
in each further one the proposers get the original conversation and, in the system message, the
answers of the layer before with the instruction to synthesise them; the aggregator gets the same
and writes the answer. One proposer with several samples is Self-MoA (arXiv 2502.00674).

Proposals are untrusted text: each stands between marks of its own that nobody could foresee, is
never read for placeholders, and is shortened, visibly, only where a prompt does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from phalanx.collective.ownwords import answer_alone, split_reasoning
from phalanx.collective.templates import fence, fill, load_template
from phalanx.config.base import Writes, sampling
from phalanx.config.mixing import named, proposers_of
from phalanx.config.schema import Config, MixtureSettings
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json, derive_seed, joined_id, joined_seed, messages_json
from phalanx.types import Ask, Member, Message, Request, Response, Sampling

TEMPLATE = "aggregate"


@dataclass(frozen=True, slots=True)
class Mixture:
    """``layers`` has the proposers of each layer before the aggregator's; it may be empty.

    >>> ada, bob = (Member(name, "base") for name in ("ada", "bob"))
    >>> mixture = Mixture(((ada, bob),), ada, MixtureSettings(samples=2))
    >>> [member.name for member in mixture.members]
    ['ada', 'bob']
    """

    layers: tuple[tuple[Member, ...], ...]
    aggregator: Member
    settings: MixtureSettings

    @property
    def members(self) -> tuple[Member, ...]:
        """The teachers: every member of the mixture once, proposers first, in their order."""
        everybody = [member for layer in self.layers for member in layer]
        return tuple(dict.fromkeys([*everybody, self.aggregator]))


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposer's answer in one layer; ``layer`` counts from 1, ``sample`` from 0."""

    layer: int
    member: str
    sample: int
    response: Response

    @property
    def text(self) -> str:
        """What an aggregator is shown: the answer, without reasoning that goes before it; "" where
        the proposal is left out."""
        return answer_alone(self.response.text or "").strip() if self.response.error is None else ""

    @property
    def usable(self) -> bool:
        """Not failed, empty or reasoning alone. One that was cut at the token limit is usable."""
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class Mixed:
    """The mixture's answer to one conversation, with all proposals, those left out included.

    ``reason`` is "" or says why there is no answer; it starts with ``too_few_proposals``,
    ``failed``, ``empty`` or ``truncated`` (in its reasoning) and a colon. Exactly then ``response``
    is None. Its text is the answer alone; ``reasoned``: reasoning before it was taken off.
    """

    response: Response | None
    proposals: tuple[Proposal, ...] = ()
    reason: str = ""
    reasoned: bool = False


@dataclass
class _Course:
    """One conversation on its way through the layers; ``shown`` is the last layer's proposals."""

    turns: tuple[Message, ...]
    shown: tuple[Proposal, ...] = ()
    proposals: list[Proposal] = field(default_factory=list)
    reason: str = ""


def mixture_from(config: Config, members: Sequence[Member], joined: Sequence[str] = ()) -> Mixture:
    """The mixture of the configuration, of these versions of its members.

    Members named in ``joined`` propose in every layer, too. Raises ConfigError where a name is
    not among the members, or no aggregator is named.
    """
    settings = config.mixture
    layers = proposers_of(config, joined)
    if not settings.aggregator:
        raise ConfigError("mixture.aggregator is not set; name the member that writes the answer")
    known = named([*chain(*layers), settings.aggregator], members, "mixture")
    empty = [str(number) for number, layer in enumerate(layers, start=1) if not layer]
    if empty:
        raise ConfigError(
            f"mixture: layer {', '.join(empty)} has no proposer; name some in mixture.proposers, "
            "or set mixture.layers to 1 (the aggregator alone)"
        )
    proposers = tuple(tuple(known[name] for name in layer) for layer in layers)
    return Mixture(proposers, known[settings.aggregator], settings)


def answer_request(
    member: Member,
    turns: Sequence[Message],
    settings: Writes,
    *,
    place: tuple,
    sample: int = 0,
    purpose: str = "propose",
    shown: Sequence[str] = (),
) -> Request:
    """The request with which a member answers a conversation.

    The member's own system prompt comes first; a system message of the conversation is joined to
    it, since chat templates know one. The same member, turns, settings, place, sample and purpose
    are the same request, so that whoever needs the answer again shares it. ``shown`` are texts of
    members within the conversation, which may be shortened.
    """
    return _request(member, turns, settings, shown, place, sample, purpose)


def _request(
    member: Member,
    turns: Sequence[Message],
    settings: Writes,
    shown: Sequence[str],
    place: tuple,
    sample: int,
    purpose: str,
) -> Request:
    messages = _one_system(member.conversation(turns))
    want = sampling(settings)
    where = (
        canonical_json((purpose, *place, member.key, sample))[1:-1],
        messages_json(messages),
    )
    return Request(
        id=joined_id(*where, canonical_json(want)),
        member=member,
        messages=messages,
        want=want,
        purpose=purpose,
        seed=joined_seed(*where),
        shortenable=tuple(shown),
    )


def _one_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """All system messages as one, in front; the other turns stay as they are."""
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    head = (Message("system", "\n\n".join(system)),) if system else ()
    return (*head, *turns)


def numbered(texts: Sequence[str], seed: int) -> str:
    """Answers numbered from 1, each between marks of its own, drawn from ``seed``."""
    fenced = [fence(text, derive_seed(seed, at), "answer")[0] for at, text in enumerate(texts)]
    return "\n\n".join(f"{number}.\n{text}" for number, text in enumerate(fenced, start=1))


def _with_proposals(course: _Course, template: str, seed: int) -> tuple[Message, ...]:
    """The original conversation and, in its system message, the proposals of the last layer."""
    block = fill(template, {"proposals": numbered([p.text for p in course.shown], seed)})
    return _one_system((*course.turns, Message("system", block)))


def mix(
    conversations: Sequence[Sequence[Message]],
    mixture: Mixture,
    ask: Ask,
    *,
    place: tuple,
    phase: str = "",
) -> list[Mixed]:
    """The mixture's answer to each conversation (its last turn is the user's), in order.

    All conversations go through a layer together: phases ``propose 1``, ``propose 2``, ...,
    ``aggregate``, with ``phase`` in front where given. A layer with fewer usable proposals than
    ``min_proposals`` ends its conversation with a reason. ``place`` places the requests in the run,
    for instance (run seed, iteration). Raises ConfigError for a template that cannot be used.
    """
    settings = mixture.settings
    template = load_template(settings.template or TEMPLATE, ("proposals",))
    lead = f"{phase} " if phase else ""
    courses = [_Course(tuple(turns)) for turns in conversations]
    for number, layer in enumerate(mixture.layers, start=1):
        going = [course for course in courses if not course.reason]
        slots = [(member, sample) for member in layer for sample in range(settings.samples)]
        told = [_told(course, template, place, number) for course in going]
        requests = [
            _request(member, turns, settings.propose, shown, place, sample, "propose")
            for turns, shown in told
            for member, sample in slots
        ]
        replies = iter(ask(f"{lead}propose {number}", requests) if requests else [])
        for course in going:
            made = [Proposal(number, m.name, sample, next(replies)) for m, sample in slots]
            _take_proposals(course, made, settings, number)
    going = [course for course in courses if not course.reason]
    told = [_told(course, template, place, len(mixture.layers) + 1) for course in going]
    requests = [
        _request(mixture.aggregator, turns, settings.aggregate, shown, place, 0, "aggregate")
        for turns, shown in told
    ]
    replies = iter(ask(f"{lead}aggregate", requests) if requests else [])
    return [_mixed(course, None if course.reason else next(replies)) for course in courses]


def mix_as(
    conversations: Sequence[Sequence[Message]],
    mixture: Mixture,
    ask: Ask,
    want: Sampling,
    *,
    place: tuple,
    phase: str = "",
) -> list[Mixed]:
    """:func:`mix`, with the last answer written as ``want`` says: as members write theirs where
    both are measured. Proposers write by their own settings."""
    given = {key: getattr(want, key) for key in ("temperature", "top_p", "top_k", "max_new_tokens")}
    settings = mixture.settings
    last = settings.aggregate.model_copy(update=given)
    settings = settings.model_copy(update={"aggregate": last})
    return mix(conversations, replace(mixture, settings=settings), ask, place=place, phase=phase)


def _told(
    course: _Course, template: str, place: tuple, layer: int
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """(what a member of this layer is told, the parts of it that may be shortened)."""
    if not course.shown:
        return course.turns, ()
    seed = derive_seed("proposals", *place, layer, course.turns)
    shown = tuple(dict.fromkeys(proposal.text for proposal in course.shown))
    return _with_proposals(course, template, seed), shown


def _take_proposals(
    course: _Course, made: Sequence[Proposal], settings: MixtureSettings, layer: int
) -> None:
    """Give a conversation its proposals of a layer, and end it where they are too few."""
    course.proposals += made
    course.shown = tuple(proposal for proposal in made if proposal.usable)
    # Without any there is nothing to aggregate, whatever the minimum.
    least = max(settings.min_proposals, 1)
    if len(course.shown) < least:
        course.reason = (
            f"too_few_proposals: layer {layer} has {len(course.shown)} usable of {len(made)}, and "
            f"mixture.min_proposals is {least}"
        )


def _mixed(course: _Course, reply: Response | None) -> Mixed:
    proposals = tuple(course.proposals)
    if reply is None:
        return Mixed(None, proposals, course.reason)
    if reply.error is not None:
        return Mixed(None, proposals, f"failed: {reply.error.kind}: {reply.error.message}")
    text, reasoned = split_reasoning(reply.text or "")
    if text.strip():
        return Mixed(replace(reply, text=text), proposals, reasoned=reasoned)
    if not reasoned:
        return Mixed(None, proposals, "empty: the aggregator wrote nothing")
    if reply.truncated:
        limit = "mixture.aggregate.max_new_tokens"
        return Mixed(None, proposals, f"truncated: the aggregator was still reasoning at {limit}")
    return Mixed(None, proposals, "empty: the aggregator wrote nothing but reasoning")
