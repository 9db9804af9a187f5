"""Debate: members answer, read each other's answers and revise, over several rounds.

Multiagent Debate (Du et al., arXiv 2305.14325): three agents and two rounds, the first answers
included, and at the end the majority. It assumes debaters that can tell a good reason from a
confident one. The debate itself, and what is ours in it, is :mod:`phalanx.collective.debate`.

At the end, by what is asked:

* with ``debate.summariser``, that member reads the last answers and writes the answer;
* else the most frequent final answer counts, of equals the one that the first debater gives;
* of free answers, which have none, the council of the debaters votes for one
  (:mod:`phalanx.collective.council`; ours). The paper has no such questions.

The published agents are one model; here they are the members, and one that is named several times
has as many seats.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import pool
from phalanx.collective.choosing import candidate
from phalanx.collective.council import elect
from phalanx.collective.debate import Debated, debate, summary_request
from phalanx.collective.ownwords import split_reasoning
from phalanx.collective.voting import first_of_majority
from phalanx.config.mixing import named
from phalanx.config.schema import Config
from phalanx.methods.answering import no_answer, no_longer, reached, usable_text
from phalanx.methods.method import Method, Question, Reached
from phalanx.types import Ask, Member, Response, Sampling


def answer(
    questions: Sequence[Question],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    best: str,
    want: Sampling,
    place: tuple,
) -> list[Reached]:
    """See :class:`phalanx.methods.Answer`."""
    settings = config.debate
    debaters = settings.debaters or [member.name for member in pool.contestants(members)]
    known = named([*debaters, *filter(None, [settings.summariser])], members, "debate")
    panel = [known[name] for name in debaters]
    sample = settings.sample if settings.summariser else no_longer(settings.sample, want)
    found = debate(
        [question.turns for question in questions],
        [panel] * settings.rounds,
        ask,
        sample,
        place=place,
        phase="evaluate",
    )
    if settings.summariser:
        return _summarised(questions, found, known[settings.summariser], ask, want, place)
    free = [at for at, question in enumerate(questions) if question.read is None]
    elected = dict(
        zip(free, _elected([questions[at] for at in free], [found[at] for at in free],
                           panel, ask, config, place), strict=True)
    )  # fmt: skip
    return [
        elected[at] if at in elected else _most_frequent(question, one)
        for at, (question, one) in enumerate(zip(questions, found, strict=True))
    ]


def _counts(one: Debated) -> dict[str, int]:
    return {"answers": sum(map(len, one.rounds)), "failed": one.num_failed}


def _most_frequent(question: Question, one: Debated) -> Reached:
    if one.reason:
        return Reached(None, reason=one.reason, counts=_counts(one))
    at = first_of_majority([said.text for said in one.last], question.read, question.same)
    return _at(at, one, no_answer([said.response for said in one.last]), {})


def _at(at: int | None, one: Debated, reason: str, counts: dict[str, int]) -> Reached:
    replies = [said.response for said in one.last]
    writers = [said.member for said in one.last]
    return reached(at, replies, writers, reason, _counts(one) | counts)


def _summarised(
    questions: Sequence[Question],
    found: Sequence[Debated],
    summariser: Member,
    ask: Ask,
    want: Sampling,
    place: tuple,
) -> list[Reached]:
    requests = [
        summary_request(summariser, question.turns, one.last, want, place=place)
        for question, one in zip(questions, found, strict=True)
        if not one.reason
    ]
    replies = iter(ask("evaluate summarise", requests) if requests else [])
    return [
        Reached(None, reason=one.reason, counts=_counts(one))
        if one.reason
        else _last(next(replies), summariser.name, _counts(one))
        for one in found
    ]


def _last(reply: Response, writer: str, counts: dict[str, int]) -> Reached:
    if reply.error is not None:
        reason = f"failed: {reply.error.kind}: {reply.error.message}"
        return Reached(None, writer, reason, counts)
    if usable_text(reply):
        return Reached(reply, writer, counts=counts)
    _, reasoned = split_reasoning(reply.text or "")
    why = "nothing but reasoning" if reasoned else "nothing"
    return Reached(None, writer, f"empty: the summariser wrote {why}", counts)


def _elected(
    questions: Sequence[Question],
    found: Sequence[Debated],
    panel: Sequence[Member],
    ask: Ask,
    config: Config,
    place: tuple,
) -> list[Reached]:
    """Free answers: the debaters vote, each once and none for an answer of its own."""
    voters = list(dict.fromkeys(panel))
    groups = [
        (
            question.turns,
            [candidate(f"{said.member}#{said.sample + 1}", said.response) for said in one.last],
        )
        for question, one in zip(questions, found, strict=True)
    ]
    votes = config.council.votes
    chosen = elect(groups, voters, ask, votes, place=(*place, "debate"), phase="evaluate")
    return [
        _at(choice.at, one, one.reason or choice.reason, choice.counts)
        for one, choice in zip(found, chosen, strict=True)
    ]


METHOD = Method(
    title="members answer, read each other, and revise; then the majority",
    paper="Du et al. 2023, arXiv 2305.14325",
    kind="answer",
    answer=answer,
)
