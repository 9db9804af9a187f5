"""A council: members vote for the best of several answers, none for one of their own.

After the Language Model Council (Zhao et al., arXiv 2406.08598), whose members answer and then
judge each other, both orders of every comparison counting only where they agree. What is ours:

* There the council compares two answers at a time on four or five levels, to rank its members. Here
  the best answer to each question is wanted: a voter sees all answers but its own at once and names
  one, which are two requests a voter instead of two for every pair.
* Answers of the same words are one. Who wrote it does not see it either.

Every voter votes twice, on a drawn order and on another in which no answer has its place again; a
vote counts where both name the same answer. Unreadable and inconsistent ones are missing, and
counted. Since its writers may not vote for an answer, each has its share of the votes of those that
saw it, and the largest share wins, however many wrote it. Of equal shares the answer that more
members wrote wins, then one is drawn, and that is counted, too. Where nobody is left who could
choose between two (a council of two, say), the answer that most members wrote wins: what they wrote
is all there is.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from phalanx.collective import ownwords as own
from phalanx.collective.conversation import transcript
from phalanx.collective.mixture import numbered
from phalanx.collective.ownwords import Statement
from phalanx.collective.ranking import Candidate, distinct
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
    r"(?i:(?:answer|number|no\.?)[ \t#]{1,3})?\[?#?(?P<value>[0-9]{1,4})\]?"
    r"(?=[*_`\"'”)]{0,6}[ \t]{0,4}(?:[.,;!)](?![0-9])|\r?\n|\Z))"
)
_PRAISED = re.compile(
    r"\b(?i:answer|number)[ \t#]{1,3}(?P<value>[0-9]{1,4})[*_`\"' \t]{1,6}(?i:is)[ ](?i:the[ ])?"
    r"(?i:best)(?i:[ ](?:answer|one|overall))?"
    r"(?=[*_`\"'”)]{0,6}[ \t]{0,4}(?:[.,;!)](?![0-9])|\r?\n|\Z))"
)
_NEGATED = re.compile(
    r"\b(?:not|never|neither|nor|cannot|hardly|\w{1,10}n['’]t)\b[^,;:.!?\n]{0,80}\Z", re.IGNORECASE
)
_SENTENCE_ENDS = re.compile(r"\n|[.!?:](?=\s)")
_WHOLE = re.compile(r"(?i:(?:answer|number|no\.?)[ \t]{0,2}#?)?#?([0-9]{1,4})[.!)]?")

Group = tuple[Sequence[Message], Sequence[Candidate]]
"""A conversation, and the answers to it; ``NAME#2`` is an answer of the member NAME, too."""


@dataclass(frozen=True, slots=True)
class Elected:
    """``at`` is the position of the answer that won; None where there is none, and exactly then
    ``reason`` says why.

    ``num_votes`` are those that count, by voters who were asked twice each; ``drawn``: of several
    answers with equal shares and equally many writers.
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
    """What one voter is shown: positions of candidates in the order of its first request.

    The second is the opposite one. In the middle of an odd number two change places, or else who
    always names the middle would be consistent.

    >>> _Ballot(Member("ada", "b"), (4, 5, 6, 7, 8)).orders[1]
    (8, 7, 5, 6, 4)
    """

    voter: Member
    order: tuple[int, ...]

    @property
    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        again = [*reversed(self.order)]
        if len(again) % 2:
            middle = len(again) // 2
            again[middle], again[middle + 1] = again[middle + 1], again[middle]
        return self.order, tuple(again)


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
    seen, votes = Counter[int](), Counter[int]()
    inconsistent = unreadable = 0
    for ballot, replies in given:
        named = [_named(reply, order) for order, reply in zip(ballot.orders, replies, strict=True)]
        if None in named:
            unreadable += 1
        elif named[0] != named[1]:
            inconsistent += 1
        else:
            votes[named[0]] += 1
            seen.update(ballot.order)
    if given and not votes:
        return Elected(
            None,
            f"no vote: of {len(given)} voters {unreadable} could not be read, and {inconsistent} "
            "named different answers in the two orders",
            num_inconsistent=inconsistent,
            num_unreadable=unreadable,
        )
    ranks = {
        at: (
            Fraction(votes[at], seen[at] or 1),
            len(writers(candidates[at], candidates)),
        )
        for at in options
    }
    top = [at for at in options if ranks[at] == max(ranks.values())]
    texts = [candidates[at].text for at in top]
    won = derived_random("drawn", *place, turns, texts).choice(top)
    return Elected(won, "", votes.total(), inconsistent, unreadable, drawn=len(top) > 1)


def _named(reply: Response, order: Sequence[int]) -> int | None:
    """The position of the candidate that a voter names; None where that cannot be read."""
    if reply.error is not None:
        return None
    number, _ = read_vote(reply.text or "", len(order), truncated=reply.truncated)
    return None if number is None else order[number - 1]


def read_vote(text: str, count: int, *, truncated: bool = False) -> tuple[int | None, str]:
    """(the number from 1 to ``count`` that a voter states, ""), or (None, why there is none).

    Read are ``[[2]]``, ``Vote: 2``, ``The best answer is 2``, ``Answer 2 is the best``, and a text
    that is nothing but the number. The voter's own last vote counts, as with verdicts
    (:func:`phalanx.collective.ownwords.conclude`). What is denied is no vote, and two numbers in
    brackets in one sentence are none either. Never raises on any text.

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
    statements = _bracketed(plain, count, truncated)
    for pattern, strength in ((_LABEL, own.FINAL), (_PRAISED, own.STATED)):
        for found in pattern.finditer(plain):
            number, why = _within(found["value"], count)
            statements.append(Statement(*found.span(), strength, number, why))
    mine = [one for one in statements if not _NEGATED.search(plain[: one.start][-100:])]
    return own.conclude(plain, [], mine, "vote", truncated)


def _bracketed(plain: str, count: int, truncated: bool) -> list[Statement]:
    """A vote as it is asked for; with none on a line of its own, the one that ends the text."""
    sentences: dict[int, list[re.Match[str]]] = {}
    ends = [found.end() for found in _SENTENCE_ENDS.finditer(plain)]
    for found in _BRACKETS.finditer(plain):
        sentences.setdefault(bisect.bisect_right(ends, found.start()), []).append(found)
    single = [
        found
        for several in sentences.values()
        if len({found[1].strip() for found in several}) == 1
        for found in several
    ]
    alone = {found.start() for found in single if own.stands_alone(plain, *found.span())}
    statements = []
    for found in single:
        last = not (alone or truncated or plain[found.end() :].strip(" \t\n*_`.!"))
        strength = own.FINAL if last or found.start() in alone else own.MENTIONED
        number, why = _within(found[1].strip(), count)
        statements.append(Statement(*found.span(), strength, number, why))
    return statements


def _within(number: str, count: int) -> tuple[int | None, str]:
    value = int(number) if number.isascii() and number.isdigit() else 0
    if 1 <= value <= count:
        return value, ""
    return None, f"not one of 1 to {count}: {number[:20]}"
