"""Mark answers: each is scored, or graded by judges, and becomes a row of the ledger.

Judges grade the items whose gold answer is one of many right ones (match ``judged``). They are
those of ``evaluate.judges`` as they were at the start of a run, so that what is measured before and
after is measured by the same ruler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.collective.grading import Grade, grade_request, judges_for, read_grade, together
from phalanx.collective.ownwords import answer_alone
from phalanx.config.mixing import named
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json
from phalanx.ledger import Ledger
from phalanx.ledger.rows import ITEMS
from phalanx.tasks import (
    BY_LIKELIHOOD,
    Score,
    TaskItem,
    answer_of,
    normalise,
    score,
    score_sums,
    split_of,
)
from phalanx.types import Ask, Member, Response

GOLD = "gold"
"""The game (in ``games``) of a judge's verdict on an answer beside the gold one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An item and what was answered: one response a sample, or one a choice (likelihoods).

    ``name`` is that of its row, ``writer`` the member that wrote it, who does not judge it;
    ``writers`` has the one of each sample where several may have written them. Where a response is
    None the ``missing`` of its sample says why.
    """

    name: str
    item: TaskItem
    responses: tuple[Response | None, ...]
    writer: str
    missing: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()

    def writer_of(self, sample: int) -> str:
        return self.writers[sample] if self.writers else self.writer


def record_answers(
    answered: Sequence[Answered],
    ask: Ask,
    ledger: Ledger,
    config: Config,
    *,
    iteration: int,
    judges: Sequence[Member] | None = None,
) -> None:
    """Score what was answered and record a row of ``evaluations`` each, and what was asked.

    With several samples ``score`` is the share of them that are right as a whole, so that
    ``round(score * samples)`` are, from which pass@k follows; the other columns are of the first.
    Items of match ``judged`` are put before ``judges`` (default: those of ``evaluate.judges`` as
    they were at the start); their verdicts are rows of ``games``. Raises ConfigError where such an
    item has no judges, or one that only gives rewards.
    """
    verdicts: dict[tuple[int, int], Grade] = {}
    games: list[dict[str, Any]] = []
    if any(one.item.match == "judged" for one in answered):
        chosen = named_judges(config, ledger.members(0)) if judges is None else judges
        _refuse_judges(chosen)
        for place, grade, rows in _graded(answered, chosen, ask, config, iteration):
            verdicts[place] = grade
            games += rows
    rows = [
        _likelihood_row(one, iteration, config)
        if one.item.match in BY_LIKELIHOOD
        else _row(at, one, verdicts, iteration, config)
        for at, one in enumerate(answered)
    ]
    for task in dict.fromkeys(one.item.task for one in answered):
        texts = {
            one.item.id: (one.item.instruction, one.item.answer)
            for one in answered
            if one.item.task == task
        }
        ledger.put(f"{ITEMS}{task}", canonical_json(texts))
    ledger.record_evaluation(rows)
    if games:
        ledger.record_games(games)


def named_judges(config: Config, members: Sequence[Member]) -> tuple[Member, ...]:
    """Those of ``evaluate.judges``. Raises ConfigError for a name that is no member's."""
    known = named(config.evaluate.judges, members, "evaluate.judges")
    return tuple(known[name] for name in dict.fromkeys(config.evaluate.judges))


def _refuse_judges(judges: Sequence[Member]) -> None:
    if not judges:
        raise ConfigError(
            "evaluate.judges names nobody, and a task is judged (match: judged, kind com2); name "
            "members that say whether an answer means the same as the gold one"
        )
    if unfit := [judge.name for judge in judges if judge.engine == "reward"]:
        raise ConfigError(
            f"evaluate.judges: {', '.join(unfit)} only gives rewards, and a reward does not say "
            "whether two answers mean the same; name members that write"
        )


def _graded(
    answered: Sequence[Answered],
    judges: Sequence[Member],
    ask: Ask,
    config: Config,
    iteration: int,
) -> Iterator[tuple[tuple[int, int], Grade, list[dict[str, Any]]]]:
    """((position, sample), what the judges say together, a row of ``games`` for each of them)."""
    shown = [
        (at, number, text)
        for at, one in enumerate(answered)
        for number, response in enumerate(one.responses)
        if one.item.match == "judged" and (text := _shown(response))
    ]
    asked = []
    for at, number, text in shown:
        item, mine = answered[at].item, judges_for(answered[at].writer_of(number), judges)
        asked += [
            grade_request(item.instruction, item.answer, text, judge, seed=config.seed)
            for judge in mine
        ]
    replies = iter(ask("evaluate grade", asked) if asked else [])
    for at, number, text in shown:
        one = answered[at]
        given = [(judge, next(replies)) for judge in judges_for(one.writer_of(number), judges)]
        grades = {judge.name: read_grade(reply) for judge, reply in given}
        rows = [
            _game(one, number, text, judge.name, grades[judge.name], reply, iteration)
            for judge, reply in given
        ]
        yield (at, number), together(grades), rows


def _shown(response: Response | None) -> str:
    """An answer as judges see it, "" where there is none."""
    if response is None or response.error is not None:
        return ""
    return answer_alone(response.text or "").strip()


def _game(
    one: Answered,
    number: int,
    text: str,
    judge: str,
    grade: Grade,
    reply: Response,
    iteration: int,
) -> dict[str, Any]:
    answer = one.responses[number]
    return {
        "iteration": iteration,
        "task": one.item.task,
        "member": one.name,
        "rival": "",
        "item": one.item.id,
        "judge": judge,
        "game": f"{GOLD} {number + 1}" if number else GOLD,
        "domain": one.item.domain,
        "label": {True: "yes", False: "no", None: ""}[grade.same],
        "value": None if grade.same is None else float(grade.same),
        "reason": grade.reason,
        "length": len(text),
        "rival_length": len(one.item.answer),
        "response": answer.request_id if answer else "",
        "request": reply.request_id,
    }


def _mark(one: Answered, sample: int, grade: Grade | None) -> Score:
    """Right, readable and why not, of one response."""
    response = one.responses[sample]
    if response is None:
        return Score(False, False, one.missing[sample])
    if response.error is not None:
        return Score(False, False, response.error.kind)
    if one.item.match != "judged":
        return score(response.text or "", one.item)
    if grade is None:
        return Score(False, False, "empty")
    return Score(grade.same is True, grade.same is not None, grade.reason)


def _row(
    at: int,
    one: Answered,
    verdicts: Mapping[tuple[int, int], Grade],
    iteration: int,
    config: Config,
) -> dict[str, Any]:
    """One row of ``evaluations``; ``verdicts`` are by the place of the item and its sample."""
    marks = [_mark(one, number, verdicts.get((at, number))) for number in range(len(one.responses))]
    first, response = marks[0], one.responses[0]
    share = first.share if len(marks) == 1 else sum(mark.correct for mark in marks) / len(marks)
    later = [f"sample {n}: {m.reason}" for n, m in enumerate(marks[1:], 2) if not m.readable]
    text = (response.text if response else None) or ""
    return _columns(one, iteration, config, first, share) | {
        "answer": normalise(text, one.item),
        "reason": next(iter(later), first.reason) if first.readable else first.reason,
        "response": response.request_id if response else "",
    }


def _likelihood_row(one: Answered, iteration: int, config: Config) -> dict[str, Any]:
    """One row from the likelihoods of all choices; ``response`` names the first one's."""
    replies = [reply for reply in one.responses if reply is not None]
    sums = [reply.logprob_sum for reply in replies]
    result = score_sums(sums, one.item)
    failed = next((reply.error.kind for reply in replies if reply.error is not None), "")
    return _columns(one, iteration, config, result, result.share) | {
        "answer": answer_of(sums, one.item),
        "reason": failed or result.reason,
        "response": replies[0].request_id,
    }


def _columns(
    one: Answered, iteration: int, config: Config, result: Score, share: float
) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "member": one.name,
        "task": one.item.task,
        "item": one.item.id,
        "domain": one.item.domain,
        "split": split_of(one.item, config.evaluate.dev_share),
        "correct": int(result.correct),
        "readable": int(result.readable),
        "score": share,
    }
