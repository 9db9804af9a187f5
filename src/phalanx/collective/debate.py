"""A debate of several models: everybody answers, reads what the others answered, and revises.

Multiagent Debate (Du et al., arXiv 2305.14325). In the first round every debater answers the
conversation by itself. In each further one it gets the conversation, its own last answer as its
turn, and the last answers of the others in the next user turn. What is ours:

* The published prompt carries everything said in all rounds. Here a debater sees the last round
  alone, which is what its context has room for.
* A debater without a usable answer (failed, empty, reasoning alone) is out of that question's
  debate from then on. Nobody is asked to revise who has nobody to read.
* A newcomer of a later round, who has no answer of its own, reads the answers as a summariser does.

Answers of members are untrusted: each stands between marks of its own, and is shortened, visibly,
only where a prompt does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from phalanx.collective.mixture import Proposal, answer_request, numbered
from phalanx.collective.templates import fill, load_template
from phalanx.config.base import Writes
from phalanx.identity import derive_seed
from phalanx.types import Ask, Member, Message, Request

REVISE, SUMMARISE = "debate", "summarise"
"""Names of the templates."""
Slot = tuple[str, int]
"""A debater: a member's name, and the number of its seat where it has several (from 0)."""


@dataclass(frozen=True, slots=True)
class Debated:
    """One question's debate. ``rounds`` has every answer that was asked for, ``layer`` of it the
    round from 1; those that are not ``usable`` are the failed ones.

    ``last`` are the usable answers with which it ended, in the order of the debaters. Without any
    ``reason`` says why, and starts with ``failed:``.
    """

    rounds: tuple[tuple[Proposal, ...], ...]
    last: tuple[Proposal, ...]
    reason: str = ""

    @property
    def num_failed(self) -> int:
        return sum(not said.usable for made in self.rounds for said in made)


@dataclass
class _Course:
    """A debate under way; ``standing`` are the last usable answers, ``out`` who has none."""

    turns: tuple[Message, ...]
    rounds: list[tuple[Proposal, ...]] = field(default_factory=list)
    standing: list[Proposal] = field(default_factory=list)
    out: set[Slot] = field(default_factory=set)

    @property
    def reason(self) -> str:
        if not self.rounds or self.standing:
            return ""
        return f"failed: nobody in round {len(self.rounds)} of the debate has a usable answer"


def seats(panel: Sequence[Member]) -> list[tuple[Member, int]]:
    """Each debater with the number of its seat: a member that is named twice has two.

    >>> ada, bob = Member("ada", "base"), Member("bob", "base")
    >>> [(member.name, seat) for member, seat in seats([ada, bob, ada])]
    [('ada', 0), ('bob', 0), ('ada', 1)]
    """
    taken: Counter[str] = Counter()
    found = []
    for member in panel:
        found.append((member, taken[member.name]))
        taken[member.name] += 1
    return found


def debate(
    conversations: Sequence[Sequence[Message]],
    panels: Sequence[Sequence[Member]],
    ask: Ask,
    settings: Writes,
    *,
    place: tuple,
    phase: str = "",
) -> list[Debated]:
    """Debate each conversation (its last turn is the user's), all of them side by side.

    ``panels`` has the debaters of each round; usually they are the same. Phases ``debate 1``,
    ``debate 2``, ..., with ``phase`` in front where given. ``place`` places the requests in the
    run, the run seed among it. Raises ValueError where a round has no debaters, or there is none.
    """
    if not panels or not all(panels):
        raise ValueError("a debate has one round at least, and each round somebody who debates")
    lead = f"{phase} " if phase else ""
    courses = [_Course(tuple(turns)) for turns in conversations]
    for number, panel in enumerate(panels, start=1):
        owed = [(course, _takers(course, panel, number)) for course in courses]
        requests = [
            _request(course, member, seat, settings, place, number)
            for course, takers in owed
            for member, seat in takers
        ]
        if not requests:
            continue
        replies = iter(ask(f"{lead}debate {number}", requests))
        for course, takers in owed:
            made = [Proposal(number, m.name, seat, next(replies)) for m, seat in takers]
            _take(course, made, panel)
    return [Debated(tuple(c.rounds), tuple(c.standing), c.reason) for c in courses]


def summary_request(
    summariser: Member,
    turns: Sequence[Message],
    said: Sequence[Proposal],
    settings: Writes,
    *,
    place: tuple,
    purpose: str = "summarise",
    sample: int = 0,
) -> Request:
    """The request with which a member who took no part answers, having read the answers ``said``.

    They stand in the system message, as in a mixture of agents, so that the conversation is whole.
    """
    texts = [one.text for one in said]
    seed = derive_seed("debate", *place, purpose, turns)
    block = fill(load_template(SUMMARISE, ("answers",)), {"answers": numbered(texts, seed)})
    return answer_request(
        summariser,
        (*turns, Message("system", block)),
        settings,
        place=place,
        sample=sample,
        purpose=purpose,
        shown=tuple(dict.fromkeys(texts)),
    )


def slot_of(said: Proposal) -> Slot:
    return said.member, said.sample


def _takers(course: _Course, panel: Sequence[Member], number: int) -> list[tuple[Member, int]]:
    """Who is asked in this round: whoever is still in, and has somebody else's answer to read."""
    if course.reason:
        return []
    return [
        (member, seat)
        for member, seat in seats(panel)
        if (member.name, seat) not in course.out
        and (number == 1 or any(slot_of(one) != (member.name, seat) for one in course.standing))
    ]


def _take(course: _Course, made: Sequence[Proposal], panel: Sequence[Member]) -> None:
    """Give a debate the answers of a round. Who was not asked stands by the answer it has."""
    if not made:
        return
    course.rounds.append(tuple(made))
    course.out |= {slot_of(one) for one in made if not one.usable}
    asked = {slot_of(one): one for one in made}
    before = {slot_of(one): one for one in course.standing} | asked
    slots = [(member.name, seat) for member, seat in seats(panel)]
    course.standing = [before[s] for s in slots if s in before and before[s].usable]


def _request(
    course: _Course, member: Member, seat: int, settings: Writes, place: tuple, number: int
) -> Request:
    if number == 1:
        return answer_request(
            member, course.turns, settings, place=place, sample=seat, purpose="answer"
        )
    own = next((one for one in course.standing if slot_of(one) == (member.name, seat)), None)
    others = [one for one in course.standing if one is not own]
    if own is None:
        return summary_request(
            member, course.turns, others, settings, place=place, purpose="debate", sample=seat
        )
    texts = [one.text for one in others]
    seed = derive_seed("debate", *place, number, course.turns)
    values = {"answers": numbered(texts, seed)}
    revise = fill(load_template(REVISE, ("answers",)), values)
    return answer_request(
        member,
        (*course.turns, Message("assistant", own.text), Message("user", revise)),
        settings,
        place=place,
        sample=seat,
        purpose="debate",
        shown=tuple(dict.fromkeys([own.text, *texts])),
    )
