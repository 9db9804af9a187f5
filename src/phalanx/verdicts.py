"""Judging pairs of responses that are in a file: by the pool's judges, or by the mixture.

Each row is a duel between two responses from elsewhere. Where the file says which one is better
(``chosen``/``rejected``), the verdicts say how often the judges agree with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.asking import Asking, Spent, asking, refuse_unmade, spent
from phalanx.collective.gaps import too_many
from phalanx.collective.hearing import hear, settle
from phalanx.collective.moa_reward import Panel, panel_from
from phalanx.collective.panel import judging_metrics, unjudged
from phalanx.collective.reputation import initial_standing
from phalanx.config.mixing import MOA
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, JudgmentError
from phalanx.identity import content_id
from phalanx.rows import PROMPTS, BadRow, Row, Table, read_rows
from phalanx.sources import clean_text
from phalanx.statistics import Interval, wilson
from phalanx.turns import BadTurns, looks_like_turns, turns_of
from phalanx.types import (
    Duel,
    Instruction,
    IterationResult,
    Judgment,
    Member,
    Message,
    Outcome,
    Progress,
)
from phalanx.workshop import Workshop

Texts = tuple[str, str]
SIDES = (("response_a", "response_b"), ("chosen", "rejected"), ("left", "right"))
"""Names of the two columns with responses; ``chosen`` is the better one, as the file says."""
LABELLED = ("chosen", "rejected")


@dataclass(frozen=True, slots=True)
class Case:
    """One row: an instruction and two responses, named by their columns."""

    line: int
    instruction: Instruction
    texts: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cases:
    """What a file holds. ``sides`` are the columns of the left and the right response."""

    where: str
    sides: tuple[str, str]
    rows: tuple[Case, ...]
    skipped: tuple[BadRow, ...] = ()

    @property
    def labelled(self) -> bool:
        return self.sides == LABELLED


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge (or all of them together) prefers what the file prefers.

    ``decided`` rows have a winner, ``agreed`` of them the file's; ``interval`` is Wilson's, of
    the share among the decided rows. ``total`` counts ties and missing verdicts, too.
    """

    agreed: int
    decided: int
    total: int

    @property
    def interval(self) -> Interval:
        return wilson(self.agreed, self.decided)

    def __str__(self) -> str:
        if not self.decided:
            return f"no row of {self.total} was decided"
        low, high = self.interval
        return (
            f"agrees in {self.agreed} of {self.decided} decided rows, "
            f"{self.agreed / self.decided:.1%} (95% interval {low:.1%} to {high:.1%}); "
            f"{self.total - self.decided} of {self.total} not decided"
        )


@dataclass(frozen=True, slots=True)
class JudgeLine:
    """One judge's account: judgments, how many could not be read, how many contradicted
    themselves when the order was swapped, and its agreement with the file."""

    name: str
    judgments: int
    unreadable: int
    flipped: int
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """``rows`` has a line for every row of the file; ``statuses`` counts their outcomes.

    ``panel``: what the mixture left out and could not read, empty for judges.
    """

    rows: tuple[dict[str, Any], ...]
    statuses: dict[str, int]
    judges: tuple[JudgeLine, ...]
    agreement: Agreement | None
    spent: Spent
    panel: dict[str, float]


# Reading -----------------------------------------------------------------------------------------


def read_cases(path: str, config: Config) -> Cases:
    """The rows of a file (any format that instructions may have), each with two responses.

    A response may be a text, or a conversation that ends with it; so may the instruction, if it
    has one user turn. Judges see no more than that: a row with a system turn, or with a response
    to other turns, cannot be used. Raises ConfigError for missing columns and, unless
    ``instructions.bad_rows`` is ``skip``, for rows that cannot be used, listing all of them.
    """
    return cases_of(read_rows(path, split=config.instructions.split), config)


def cases_of(table: Table, config: Config) -> Cases:
    """:func:`read_cases` of rows that are at hand."""
    prompt, sides = _columns(table.where, table.rows, config.instructions.column)
    rows: list[Case] = []
    bad = list(table.bad)
    for row in table.rows:
        try:
            text = _prompt(_field(row, prompt), prompt)
            texts = [_response(_field(row, side), side, text) for side in sides]
        except ValueError as error:
            bad.append(BadRow(row.line, str(error)))
            continue
        domain = row.fields.get("domain")
        instruction = Instruction(content_id(text), text, domain if isinstance(domain, str) else "")
        rows.append(Case(row.line, instruction, (texts[0], texts[1])))
    bad.sort(key=lambda fault: fault.line)
    if bad and (config.instructions.bad_rows == "refuse" or not rows):
        faults = [f"{table.where}:{fault.line}: {fault.reason}" for fault in bad]
        advice = "" if not rows else " (or set instructions.bad_rows to skip)"
        raise ConfigError(faults, f"{table.where}: bad rows; mend them{advice}")
    if not rows:
        raise ConfigError("there is not one usable row", table.where)
    return Cases(table.where, sides, tuple(rows), tuple(bad))


def _columns(where: str, rows: Sequence[Row], configured: str) -> tuple[str, tuple[str, str]]:
    """The column of the instruction, and those of the two responses."""
    found = dict.fromkeys(key for row in rows for key in row.fields)
    prompt = next((name for name in (configured, *PROMPTS) if name in found), None)
    sides = [pair for pair in SIDES if pair[0] in found and pair[1] in found]
    listed = ", ".join(map(repr, found)) or "none"
    faults = []
    if prompt is None:
        known = " or ".join(dict.fromkeys((configured, *PROMPTS)))
        faults.append(f"no column holds the instruction ({known}); columns found: {listed}")
    if len(sides) != 1:
        pairs = ", or ".join(" and ".join(pair) for pair in SIDES)
        got = "; ".join(" and ".join(pair) for pair in sides) or "none of them"
        faults.append(f"expected the columns {pairs}; got {got}; columns found: {listed}")
    if faults or prompt is None:
        raise ConfigError(faults, where)
    return prompt, sides[0]


def _field(row: Row, name: str) -> Any:
    if name not in row.fields:
        raise ValueError(f"field {name!r} missing; a file's columns are chosen once, for all rows")
    return row.fields[name]


def _prompt(value: Any, name: str) -> str:
    if looks_like_turns(value):
        turns = _turns(value, name)
        if [turn.role for turn in turns] != ["user"]:
            raise ValueError(f"{name} is a conversation of several turns; judges see one")
        value = turns[0].content
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {'empty' if isinstance(value, str) else 'no text'}")
    return clean_text(value.strip())


def _response(value: Any, name: str, prompt: str) -> str:
    """A text, which may be empty: an empty response is a finding, not a fault of the file."""
    if looks_like_turns(value):
        turns = _turns(value, name)
        if not turns or turns[-1].role != "assistant":
            raise ValueError(f"{name} is a conversation that does not end with the assistant")
        before = [(turn.role, clean_text(turn.content.strip())) for turn in turns[:-1]]
        if before and before != [("user", prompt)]:
            raise ValueError(
                f"{name} has {len(before)} turns before its answer that are not just the "
                "instruction, and judges see the instruction alone"
            )
        value = turns[-1].content
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return clean_text(value)


def _turns(value: Any, name: str) -> list[Message]:
    """Empty system turns say nothing and are left out."""
    try:
        found = turns_of(value)
    except BadTurns as fault:
        raise ValueError(f"{name}: {fault}") from None
    turns = [turn for turn in found if turn.role != "system" or turn.content.strip()]
    if any(turn.role == "system" for turn in turns):
        raise ValueError(f"{name} has a system turn, which judges would not see; leave it out")
    return turns


# Judging -----------------------------------------------------------------------------------------


def judge_file(
    config: Config,
    cases: Cases,
    folder: Path | str,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Verdicts:
    """Judge every row by ``judge.protocol``; the same call on the same folder goes on.

    Duels, judgments and outcomes are recorded as those of iteration 1. A call after the last row
    asks for failed responses again, and what follows from them takes the place of what was
    recorded, so that record and result are the same. Raises JudgmentError where
    not one row that judges saw has an outcome, or more judgments than ``judge.max_unreadable``
    could not be read.
    """
    by_mixture = config.judge.protocol == MOA
    members = pool.members_from(config)
    refuse_unmade(config, _members_of(panel_from(config, members)) if by_mixture else members)
    with asking(
        config,
        folder,
        kind="judge",
        inputs=content_id("judge", cases.sides, cases.rows),
        instructions=[case.instruction for case in cases.rows],
        facts={"num_iterations": "1"},
        progress=progress,
        workshop=workshop,
    ) as place:
        duels = _duels(cases)
        settled = {
            duel.id: outcome
            for duel, case in zip(duels, cases.rows, strict=True)
            if (outcome := unjudged(duel, case.texts)) is not None
        }
        open_ = [
            (duel, case.texts)
            for duel, case in zip(duels, cases.rows, strict=True)
            if duel.id not in settled
        ]
        members = place.ledger.members()
        judgments, heard = hear(open_, members, config, place.ask(1), work="judge")
        outcomes = settle(duels, settled, judgments, _reputations(place), config)
        _refuse_unreadable(judgments, outcomes, settled, config)
        result = IterationResult(
            duels=tuple(duels),
            judgments=tuple(judgments),
            outcomes=tuple(outcomes),
            metrics={**judging_metrics(judgments, outcomes), **heard},
        )
        place.ledger.record_iteration(1, result, replace=True)
        place.ledger.put("finished", "yes")
        return _verdicts(cases, result, spent(place), heard)


def _members_of(panel: Panel) -> tuple[Member, ...]:
    return (*panel.proposers, panel.aggregator, panel.selector)


def _duels(cases: Cases) -> list[Duel]:
    """A duel a row, between ``file#chosen`` and ``file#rejected``: no member has such a name."""
    left, right = (f"file#{side}" for side in cases.sides)
    return [
        Duel(content_id("judge", number, case), case.instruction, left, right, matched="ranking")
        for number, case in enumerate(cases.rows)
    ]


def _reputations(place: Asking) -> dict[str, float]:
    """Of all judges, by name."""
    settings, given = place.config.reputation, pool.starting_reputations(place.config)
    names = [judge.name for judge in pool.judges(place.ledger.members())]
    return {name: initial_standing(settings, given.get(name)).value for name in names}


def _refuse_unreadable(
    judgments: Sequence[Judgment],
    outcomes: Sequence[Outcome],
    settled: Mapping[str, Outcome],
    config: Config,
) -> None:
    judged = [outcome for outcome in outcomes if outcome.duel_id not in settled]
    unreadable = [judgment for judgment in judgments if not judgment.readable]
    lost = all(outcome.status == "no_quorum" for outcome in judged)
    limit = config.judge.max_unreadable
    if limit < 1 and judged and (lost or len(unreadable) > limit * len(judgments)):
        raise JudgmentError(too_many(unreadable, len(unreadable), len(judgments), config))


# Verdicts ----------------------------------------------------------------------------------------


def _verdicts(
    cases: Cases, result: IterationResult, cost: Spent, panel: dict[str, float]
) -> Verdicts:
    judgments, outcomes = result.judgments, result.outcomes
    of_duel: dict[str, list[Judgment]] = {duel.id: [] for duel in result.duels}
    for judgment in judgments:
        of_duel[judgment.duel_id].append(judgment)
    rows = [
        _row(case, cases.sides, outcome, of_duel[outcome.duel_id])
        for case, outcome in zip(cases.rows, outcomes, strict=True)
    ]
    rows += [
        {"line": bad.line, "status": "bad row", "winner": None, "reason": bad.reason}
        for bad in cases.skipped
    ]
    rows.sort(key=lambda row: row["line"])
    statuses = Counter(row["status"] for row in rows)
    names = dict.fromkeys(judgment.judge for judgment in judgments)
    lines = [_line(name, [j for j in judgments if j.judge == name], cases) for name in names]
    return Verdicts(
        rows=tuple(rows),
        statuses=dict(statuses.most_common()),
        judges=tuple(lines),
        agreement=_agreement([_sign_of(o) for o in outcomes]) if cases.labelled else None,
        spent=cost,
        panel=panel,
    )


def _row(
    case: Case, sides: tuple[str, str], outcome: Outcome, judgments: Sequence[Judgment]
) -> dict[str, Any]:
    """A verdict as a line of a file, in the words of the file's columns."""
    left, right = sides
    return {
        "line": case.line,
        "instruction": case.instruction.text,
        "status": outcome.status,
        "winner": {"left": left, "right": right, None: None}[outcome.winner],
        "scores": {left: outcome.score_left, right: outcome.score_right},
        "agreement": outcome.agreement,
        "num_judges": outcome.num_judges,
        "num_missing": outcome.num_missing,
        "reason": outcome.reason,
        "judges": [
            {
                "judge": judgment.judge,
                "protocol": judgment.protocol,
                "scores": {left: judgment.score_left, right: judgment.score_right},
                "flipped": judgment.flipped,
                "flags": list(judgment.flags),
                "reason": judgment.reason,
            }
            for judgment in judgments
        ],
    }


def _line(name: str, judgments: Sequence[Judgment], cases: Cases) -> JudgeLine:
    return JudgeLine(
        name=name,
        judgments=len(judgments),
        unreadable=sum(not judgment.readable for judgment in judgments),
        flipped=sum(judgment.flipped for judgment in judgments),
        agreement=_agreement([_sign(j) for j in judgments]) if cases.labelled else None,
    )


def _sign(judgment: Judgment) -> int:
    """1: the left response is better; 0: a tie, or not readable."""
    left, right = judgment.score_left, judgment.score_right
    if left is None or right is None:
        return 0
    return (left > right) - (left < right)


def _sign_of(outcome: Outcome) -> int:
    return {"left": 1, "right": -1, None: 0}[outcome.winner]


def _agreement(signs: Sequence[int]) -> Agreement:
    """Of a file whose left response is the better one."""
    decided = sum(sign != 0 for sign in signs)
    return Agreement(sum(sign > 0 for sign in signs), decided, len(signs))
