"""The verdicts of contests: how judges are asked, and what becomes a row of ``games``.

A row is one judge's verdict on one answer, alone or against another. Who has no answer loses, or
has the lowest rating; equal answers are a tie; no judge is asked about either. A verdict that
cannot be read is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.benchmarks import arena_hard, mt_bench
from phalanx.benchmarks.questions import Version
from phalanx.benchmarks.records import Question
from phalanx.collective.conversation import Answer
from phalanx.collective.judging import LOW_MASS
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.templates import INSTRUCTION, USER, fence, fill, load_template
from phalanx.config.schema import Config, TaskSettings
from phalanx.identity import content_id, derive_seed, derived_random
from phalanx.ledger import Ledger
from phalanx.types import Ask, Member, Message, Options, Request, Response, Sampling, Want

Row = dict[str, Any]
PHASE = "judge"
PREFER = Options('{"better": "', ("A", "B"))
"""The judge's share for the answer shown first; the prompt asks for the same object."""
AGAIN = "Go on from where you stopped, and end with your verdict: one of the five labels, alone."
NO_ANSWER = "no answer"
IDENTICAL = "identical"


@dataclass(frozen=True, slots=True)
class Match:
    """A member's answers to a question, one a turn, and a rival's ("" and none: rated alone)."""

    question: Question
    member: str
    rival: str
    answers: tuple[Answer, ...]
    others: tuple[Answer, ...]
    judges: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where judges are asked: the task, its settings, the way to ask, and what was answered."""

    task: TaskSettings
    config: Config
    ask: Ask
    ledger: Ledger

    @property
    def written(self) -> Sampling:
        """A verdict that is written out: greedy, as published, within ``judge.max_new_tokens``."""
        limit = self.config.judge.max_new_tokens
        return Sampling(temperature=0.0, top_p=1.0, top_k=0, max_new_tokens=limit)

    def fences(self, *parts: Any) -> int:
        return derive_seed("fence", self.config.seed, "contest", self.task.name, *parts)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``value`` is what counts; None with the ``reason`` where there is no verdict.

    A verdict that stands may have a reason, too: what is odd about it (``low_mass``)."""

    value: float | None
    label: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Game:
    """One verdict that is wanted; ``settled`` where no judge has to be asked for it."""

    match: Match
    judge: Member
    name: str
    turn: int = 0
    settled: Verdict | None = None

    @property
    def member_first(self) -> bool:
        return self.name == "first"

    @property
    def shown(self) -> tuple[str, str]:
        """The two answers in the order in which the judge sees them."""
        texts = (self.match.answers[0].text, self.match.others[0].text)
        return texts if self.member_first else texts[::-1]


def settled(match: Match) -> Verdict | None:
    """The verdict on two answers that no judge need see; None: judges have to decide."""
    answer, other = match.answers[0], match.others[0]
    if other.drop:
        return Verdict(None, "", f"{NO_ANSWER} of the baseline: {other.drop}")
    if answer.drop:
        return Verdict(0.0, "", f"{NO_ANSWER}: {answer.drop}")
    if answer.text.strip() == other.text.strip():
        return Verdict(0.5, "", IDENTICAL)
    return None


# AlpacaEval ---------------------------------------------------------------------------------------


def preferences(matches: Sequence[Match], bench: Bench) -> list[Row]:
    """AlpacaEval: the judge's probability of the member's answer, in one order by a coin.

    The coin is the item's and the same for every member and judge.
    """
    seed, task = bench.config.seed, bench.task.name
    games = []
    for match in matches:
        coin = derived_random("coin", seed, task, match.question.id).random()
        name, known = ("first" if coin < 0.5 else "second"), settled(match)
        games += [_Game(match, judge, name, settled=known) for judge in match.judges]
    requests = _requests(games, bench, lambda game: _compared("prefer", game, bench), PREFER)
    replies = iter(bench.ask(PHASE, requests) if requests else ())
    return [
        _row(game, game.settled, None)
        if game.settled
        else _read(game, next(replies), read_preference)
        for game in games
    ]


def read_preference(game: _Game, reply: Response) -> Verdict:
    """The share of the judge's probability that the member's answer has."""
    if reply.error is not None:
        return Verdict(None, "", f"{reply.error.kind}: {reply.error.message}")
    for_a, for_b = ((reply.probabilities or {}).get(option, 0.0) for option in PREFER.options)
    if not for_a + for_b > 0:
        return Verdict(None, "", "no probabilities")
    share = for_a / (for_a + for_b)
    label = "A" if share > 0.5 else "B" if share < 0.5 else "tie"
    low = reply.option_mass is not None and reply.option_mass < LOW_MASS
    return Verdict(share if game.member_first else 1 - share, label, "low_mass" if low else "")


# Arena-Hard ---------------------------------------------------------------------------------------


def battles(matches: Sequence[Match], bench: Bench, version: Version) -> list[Row]:
    """Arena-Hard: five labels, in both orders; v0.1 asks once more where there is no label."""
    games = [
        _Game(match, judge, name, settled=_labelled(settled(match), name))
        for match in matches
        for judge in match.judges
        for name in ("second", "first")  # the published first game shows the baseline first
    ]
    open_ = [game for game in games if game.settled is None]
    requests = _requests(open_, bench, lambda game: _compared("arena", game, bench), bench.written)
    replies = bench.ask(PHASE, requests) if requests else []
    said = [_said(reply) for reply in replies]
    again = [
        at
        for at, reply in enumerate(replies)
        if version == "v0.1"
        and said[at].strip()
        and arena_hard.read_label(said[at]).reason == "no verdict"
        and reply.error is None
    ]
    further = [_once_more(requests[at], said[at]) for at in again]
    for at, reply in zip(again, bench.ask(PHASE, further) if further else (), strict=True):
        said[at] += f"\n{_said(reply)}"
    heard = iter(zip(replies, said, strict=True))
    rows = []
    for game in games:
        if game.settled:
            rows.append(_row(game, game.settled, None))
            continue
        reply, text = next(heard)
        rows.append(_row(game, _label(game, reply, text, version), reply))
    return rows


def _labelled(verdict: Verdict | None, name: str) -> Verdict | None:
    """A settled verdict with the label that counts as much: who has no answer clearly loses."""
    if verdict is None or verdict.value is None:
        return verdict
    lost = "B>>A" if name == "first" else "A>>B"
    return Verdict(verdict.value, "A=B" if verdict.value else lost, verdict.reason)


def _label(game: _Game, reply: Response, text: str, version: Version) -> Verdict:
    if reply.error is not None:
        return Verdict(None, "", f"{reply.error.kind}: {reply.error.message}")
    reading = arena_hard.read_label(text, version=version)
    if reading.label is None:
        cut = "truncated at the token limit: " if reply.truncated else ""
        return Verdict(None, "", f"{cut}{reading.reason}")
    played = arena_hard.Game(game.match.question.id, game.member_first, reading.label)
    return Verdict(played.score, reading.label)


def _once_more(request: Request, said: str) -> Request:
    messages = (*request.messages, Message("assistant", said), Message("user", AGAIN))
    return Request(
        id=content_id("again", request.id, messages),
        member=request.member,
        messages=messages,
        want=request.want,
        purpose=request.purpose,
        seed=derive_seed("again", request.seed),
        shortenable=(*request.shortenable, said),
    )


# MT-Bench -----------------------------------------------------------------------------------------


def ratings(matches: Sequence[Match], bench: Bench) -> list[Row]:
    """MT-Bench: a rating from 1 to 10 of each turn; the second is rated with both in view."""
    games = [
        _Game(match, judge, f"turn {turn + 1}", turn, _unrated(match.answers[turn]))
        for match in matches
        for judge in match.judges
        for turn in range(len(match.answers))
    ]
    requests = _requests(games, bench, lambda game: _graded(game, bench), bench.written)
    replies = iter(bench.ask(PHASE, requests) if requests else ())
    return [
        _row(game, game.settled, None) if game.settled else _read(game, next(replies), _rating)
        for game in games
    ]


def _unrated(answer: Answer) -> Verdict | None:
    """Who has no answer has the lowest rating."""
    return Verdict(mt_bench.LOW, "", f"{NO_ANSWER}: {answer.drop}") if answer.drop else None


def _rating(game: _Game, reply: Response) -> Verdict:
    if reply.error is not None:
        return Verdict(None, "", f"{reply.error.kind}: {reply.error.message}")
    reading = mt_bench.read_rating(_said(reply))
    if reading.value is None:
        cut = "truncated at the token limit: " if reply.truncated else ""
        return Verdict(None, "", f"{cut}{reading.reason}")
    return Verdict(reading.value, f"{reading.value:g}")


def _graded(game: _Game, bench: Bench) -> tuple[str, tuple[str, ...]]:
    """The conversation up to the turn that is rated, with the references that there are."""
    match, question = game.match, game.match.question
    seed = bench.fences(question.id, match.member, game.judge.key)
    parts: list[str] = []

    def put(title: str, mark: str, text: str) -> None:
        parts.append(f"{title}:\n{fence(text, seed + len(parts), mark)[0]}")

    for at in range(game.turn + 1):
        put("User", USER, question.turns[at])
        if question.references and question.references[at].strip():
            put("Reference answer", "reference", question.references[at])
        put("Assistant", "answer", match.answers[at].text)
    prompt = fill(
        load_template("rate_answer", ["conversation"]), {"conversation": "\n\n".join(parts)}
    )
    return prompt, tuple(match.answers[at].text for at in range(game.turn + 1))


# Asking and rows ----------------------------------------------------------------------------------


def _compared(template: str, game: _Game, bench: Bench) -> tuple[str, tuple[str, ...]]:
    """The prompt with two answers side by side, and its parts that may be shortened."""
    match = game.match
    seed = bench.fences(match.question.id, match.member, match.rival, game.judge.key)
    first, second = game.shown
    values = {
        "instruction": fence(match.question.turns[0], seed, INSTRUCTION)[0],
        "response_a": fence(first, seed + 1, "answer A")[0],
        "response_b": fence(second, seed + 2, "answer B")[0],
    }
    return fill(load_template(template, list(values)), values), (first, second)


def _requests(
    games: Sequence[_Game],
    bench: Bench,
    prompt: Callable[[_Game], tuple[str, tuple[str, ...]]],
    want: Want,
) -> list[Request]:
    """The questions of the games that are not settled, in order."""

    def made() -> Iterator[Request]:
        for game in games:
            if game.settled is not None:
                continue
            text, parts = prompt(game)
            messages = (Message("user", text),)
            match = game.match
            place = ("contest", bench.config.seed, bench.task.name, match.question.id)
            here = (*place, match.member, match.rival, game.name, game.judge.key)
            yield Request(
                id=content_id(*here, messages, want),
                member=game.judge,
                messages=messages,
                want=want,
                purpose="judge",
                seed=derive_seed(*here),
                shortenable=tuple(part for part in parts if part),
            )

    return list(made())


def _said(reply: Response) -> str:
    """The judge's own words, without reasoning that goes before them."""
    return answer_alone(reply.text or "")


def _read(game: _Game, reply: Response, read: Callable[[_Game, Response], Verdict]) -> Row:
    return _row(game, read(game, reply), reply)


def _row(game: _Game, verdict: Verdict, reply: Response | None) -> Row:
    reason = verdict.reason
    if reply is not None and reply.num_shortened_tokens and verdict.value is not None:
        reason = ", ".join(filter(None, (reason, "shortened")))
    verdict = Verdict(verdict.value, verdict.label, reason)
    request = reply.request_id if reply else ""
    return row(game.match, game.judge.name, game.name, verdict, request, game.turn)


def row(match: Match, judge: str, game: str, verdict: Verdict, request: str, turn: int = 0) -> Row:
    """A row of ``games`` but for the task; lengths are in characters of the whole answer."""
    answer = match.answers[turn]
    return {
        "iteration": 0,
        "member": match.member,
        "rival": match.rival,
        "item": match.question.id,
        "judge": judge,
        "game": game,
        "domain": match.question.group,
        "label": verdict.label,
        "value": verdict.value,
        "reason": verdict.reason,
        "length": len(answer.text),
        "rival_length": len(match.others[turn].text) if match.others else None,
        "response": answer.response_id,
        "request": request,
    }
