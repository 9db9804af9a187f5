"""A council: members vote for the best of several answers, none for one of their own.

After the Language Model Council (Zhao et al., arXiv 2406.08598), whose members answer and then
judge each other, both orders of every comparison counting only where they agree. What is ours:

* There the council compares two answers at a time on four or five levels, to rank its members. Here
  the best answer to each question is wanted: a voter sees all answers but its own at once and names
  one, which are two requests a voter instead of two for every pair.
* Answers of the same words are one. Who wrote it does not see it either.

Every voter votes twice, on a drawn order and on its opposite; a vote counts where both name the
same answer. Unreadable and inconsistent ones are missing, and counted. Of answers with equally many
votes one is drawn, and that is counted, too. Where nobody is left who could choose between two (a
council of two, say), the answer that most members wrote wins: what they wrote is all there is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.collective import ownwords as own
from phalanx.collective.conversation import transcript
from phalanx.collective.mixture import numbered
from phalanx.collective.ownwords import Statement
from phalanx.collective.ranking import Candidate
from phalanx.collective.templates import QUESTION, fence, fill, load_template
from phalanx.config.base import Writes, sampling
from phalanx.identity import content_id, derive_seed, derived_random
from phalanx.types import Ask, Member, Message, Request, Response

TEMPLATE = "vote"
_PLACEHOLDERS = ("count", "question", "answers")
_BRACKETS = re.compile(r"\[\[[ \t]{0,4}([0-9]{1,4}|[^\[\]\n]{1,20})\]\]")
_LABEL = re.compile(
    r"(?<![^\W\d])(?i:(?:my[ ])?(?:final[ ])?(?:vote|verdict|choice)|best[ ](?:answer|one))"
    r"[*_`\"' \t]{0,8}(?:[:=]|\bis\b)[*_`\"' \t\n]{0,8}"
    r"(?i:(?:answer|number|no\.?)[ \t#]{1,3})?#?(?P<value>[0-9]{1,4})"
    r"(?=[*_`\"'”)]{0,6}[ \t]{0,4}(?:[.,;!)](?![0-9])|\r?\n|\Z))"
)
_WHOLE = re.compile(r"(?i:(?:answer|number|no\.?)[ \t]{0,2}#?)?#?([0-9]{1,4})[.!)]?")

Group = tuple[Sequence[Message], Sequence[Candidate]]
"""A conversation, and the answers to it; ``NAME#2`` is an answer of the member NAME, too."""


@dataclass(frozen=True, slots=True)
class Elected:
    """``at`` is the position of the answer that won; None where there is none, and exactly then
    ``reason`` says why.

    ``num_votes`` are those that count, by voters who were asked twice each; ``drawn``: of several
    answers with equally many votes.
    """

    at: int | None
    reason: str = ""
    num_votes: int = 0
    num_inconsistent: int = 0
    num_unreadable: int = 0
    drawn: bool = False

    @property
    def counts(self) -> dict[str, int]:
        return {
            "votes": self.num_votes,
            "inconsistent": self.num_inconsistent,
            "unreadable": self.num_unreadable,
            "drawn": int(self.drawn),
        }


@dataclass(frozen=True, slots=True)
class _Ballot:
    """What one voter is shown: positions of candidates in the order of its first request."""

    voter: Member
    order: tuple[int, ...]

    @property
    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.order, self.order[::-1]


def elect(
    groups: Sequence[Group],
    voters: Sequence[Member],
    ask: Ask,
    settings: Writes,
    *,
    place: tuple,
    phase: str = "",
) -> list[Elected]:
    """The council's choice for each conversation, in order; one ask, the phase ``vote`` (with
    ``phase`` in front where given).

    ``settings`` say how votes are written. ``place`` places the requests in the run, the run seed
    among it.
    """
    lead = f"{phase} " if phase else ""
    ballots = [_ballots(turns, candidates, voters, place) for turns, candidates in groups]
    requests = [
        _request(ballot.voter, turns, [candidates[at].text for at in order], settings, place)
        for (turns, candidates), mine in zip(groups, ballots, strict=True)
        for ballot in mine
        for order in ballot.orders
    ]
    replies = iter(ask(f"{lead}vote", requests) if requests else [])
    elected = []
    for (turns, candidates), mine in zip(groups, ballots, strict=True):
        given = [(ballot, (next(replies), next(replies))) for ballot in mine]
        elected.append(_count(turns, candidates, given, place))
    return elected


def writers(one: Candidate, candidates: Sequence[Candidate]) -> set[str]:
    """The members that wrote this text."""
    same = (other for other in candidates if other.text.strip() == one.text.strip())
    return {other.name.partition("#")[0] for other in same if other.usable}


def distinct(candidates: Sequence[Candidate]) -> list[int]:
    """The position of the first candidate with each usable text."""
    first: dict[str, int] = {}
    for at, one in enumerate(candidates):
        if one.usable:
            first.setdefault(one.text.strip(), at)
    return list(first.values())


def _ballots(
    turns: Sequence[Message],
    candidates: Sequence[Candidate],
    voters: Sequence[Member],
    place: tuple,
) -> list[_Ballot]:
    """Of every voter that can choose between two answers that it did not write."""
    options = distinct(candidates)
    found = []
    for voter in voters:
        shown = [at for at in options if voter.name not in writers(candidates[at], candidates)]
        if len(shown) > 1:
            derived_random("council", *place, voter.name, turns).shuffle(shown)
            found.append(_Ballot(voter, tuple(shown)))
    return found


def _request(
    voter: Member, turns: Sequence[Message], texts: Sequence[str], settings: Writes, place: tuple
) -> Request:
    """Like all judges, a voter is asked without its system prompt."""
    seed = derive_seed("vote", *place, turns, texts)
    question = (
        fence(turns[0].content, derive_seed(seed, "question"), QUESTION)[0]
        if len(turns) == 1
        else transcript(turns, derive_seed(seed, "question"))
    )
    values = {
        "count": str(len(texts)),
        "question": question,
        "answers": numbered(texts, derive_seed(seed, "answers")),
    }
    message = Message("user", fill(load_template(TEMPLATE, _PLACEHOLDERS), values))
    want = sampling(settings)
    earlier = [turn.content for turn in turns if turn.role == "assistant"]
    return Request(
        id=content_id("vote", *place, voter.key, message, want),
        member=voter,
        messages=(message,),
        want=want,
        purpose="vote",
        seed=derive_seed("vote", *place, voter.key, message),
        shortenable=tuple(dict.fromkeys([*texts, *earlier])),
    )


def _count(
    turns: Sequence[Message],
    candidates: Sequence[Candidate],
    given: Sequence[tuple[_Ballot, tuple[Response, Response]]],
    place: tuple,
) -> Elected:
    options = distinct(candidates)
    if not options:
        failed = next((one.failed for one in candidates if one.failed), "empty")
        return Elected(None, f"failed: no answer to vote on ({failed})")
    if len(options) == 1:
        return Elected(options[0])
    if not given:
        votes = Counter({at: len(writers(candidates[at], candidates)) for at in options})
        return _most(votes, turns, candidates, place, 0, 0, 0)
    votes, inconsistent, unreadable = Counter[int](), 0, 0
    for ballot, replies in given:
        named = [_named(reply, order) for order, reply in zip(ballot.orders, replies, strict=True)]
        if None in named:
            unreadable += 1
        elif named[0] != named[1]:
            inconsistent += 1
        else:
            votes[named[0]] += 1
    if not votes:
        return Elected(
            None,
            f"no vote: of {len(given)} voters {unreadable} could not be read, and {inconsistent} "
            "named different answers in the two orders",
            num_inconsistent=inconsistent,
            num_unreadable=unreadable,
        )
    return _most(votes, turns, candidates, place, votes.total(), inconsistent, unreadable)


def _most(
    votes: Counter[int],
    turns: Sequence[Message],
    candidates: Sequence[Candidate],
    place: tuple,
    counted: int,
    inconsistent: int,
    unreadable: int,
) -> Elected:
    """The answer with the most votes; of several one is drawn."""
    top = sorted(at for at, count in votes.items() if count == max(votes.values()))
    texts = [candidates[at].text for at in top]
    at = derived_random("drawn", *place, turns, texts).choice(top)
    return Elected(at, "", counted, inconsistent, unreadable, drawn=len(top) > 1)


def _named(reply: Response, order: Sequence[int]) -> int | None:
    """The position of the candidate that a voter names; None where that cannot be read."""
    if reply.error is not None:
        return None
    number, _ = read_vote(reply.text or "", len(order), truncated=reply.truncated)
    return None if number is None else order[number - 1]


def read_vote(text: str, count: int, *, truncated: bool = False) -> tuple[int | None, str]:
    """(the number from 1 to ``count`` that a voter states, ""), or (None, why there is none).

    Read are ``[[2]]``, ``Vote: 2``, ``The best answer is 2``, and a text that is nothing but the
    number. The voter's own last vote counts, as with verdicts
    (:func:`phalanx.collective.ownwords.conclude`). Never raises on any text.

    >>> read_vote('Answer 1 says "[[1]]", which I ignore.\\n[[2]]', 3)
    (2, '')
    """
    if not text.strip():
        return None, "empty"
    plain, reason = own.without_reasoning(own.normalise(text))
    if reason:
        return None, reason
    if not plain:
        return None, "nothing after the reasoning"
    if not truncated and (whole := _WHOLE.fullmatch(plain.strip(" \t\r\n*_`\"'[]"))):
        return _within(whole[1], count)
    statements = []
    for found in _BRACKETS.finditer(plain):
        alone = own.stands_alone(plain, *found.span())
        strength = own.FINAL if alone else own.MENTIONED
        number, why = _within(found[1].strip(), count)
        statements.append(Statement(*found.span(), strength, number, why))
    for found in _LABEL.finditer(plain):
        number, why = _within(found["value"], count)
        statements.append(Statement(*found.span(), own.STATED, number, why))
    return own.conclude(plain, [], statements, "vote", truncated)


def _within(number: str, count: int) -> tuple[int | None, str]:
    value = int(number) if number.isascii() and number.isdigit() else 0
    if 1 <= value <= count:
        return value, ""
    return None, f"not one of 1 to {count}: {number[:20]}"
