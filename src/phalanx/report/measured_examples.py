"""A few answers of an evaluation as they were given: gained, lost, wrong, unreadable."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from phalanx.ledger import Ledger
from phalanx.ledger.rows import ITEMS
from phalanx.report.measured_records import AnswerExample, Measured
from phalanx.report.moaa_words import Section, TableView

_MOST = 3  # of each kind
_TEXT = 1000  # characters of a text
_KINDS = {
    "gained": "Gained: more right than whom it is compared with",
    "lost": "Lost: less right than whom it is compared with",
    "wrong": "Wrong",
    "unreadable": "Not readable, or failed",
}


def examples_in(ledger: Ledger, pairs: Sequence[tuple[str, str]]) -> list[AnswerExample]:
    """At most three of each kind, of different subjects and tasks as far as there are some.

    Items are taken by their ids, which are hashes: in no order that says anything.
    """
    rows = ledger.query(
        "SELECT member, task, item, score, correct, readable FROM evaluations "
        "WHERE iteration = 0 ORDER BY item, task, member"
    )
    at = {(row["member"], row["task"], row["item"]): row for row in rows}
    others = dict(pairs)
    found: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in _KINDS}
    for place, row in at.items():
        other = at.get((others.get(place[0], ""), *place[1:]))
        change = row["score"] - other["score"] if other is not None else 0
        if change:
            found["gained" if change > 0 else "lost"].append(place)
        if not row["correct"]:
            found["wrong" if row["readable"] else "unreadable"].append(place)
    chosen = [(kind, place) for kind, places in found.items() for place in _spread(places)]
    asked = {task: json.loads(ledger.get(f"{ITEMS}{task}") or "{}") for _, (_, task, _) in chosen}
    examples = []
    for kind, place in chosen:
        _, task, item = place
        question, gold = asked[task].get(item, ("", ""))
        said = _said(ledger, place, others if kind in _PAIRED else {})
        examples.append(AnswerExample(kind, *place, question, gold, said))
    return examples


_PAIRED = ("gained", "lost")


def _spread(places: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """So many as are shown, each of the task, then the subject, that has the fewest so far."""
    left, chosen = list(places), []
    tasks: Counter[str] = Counter()
    subjects: Counter[str] = Counter()
    while left and len(chosen) < _MOST:
        place = min(left, key=lambda one: (tasks[one[1]], subjects[one[0]]))
        left.remove(place)
        chosen.append(place)
        subjects[place[0]] += 1
        tasks[place[1]] += 1
    return chosen


def _said(
    ledger: Ledger, place: tuple[str, str, str], others: dict[str, str]
) -> tuple[tuple[str, str, str, bool], ...]:
    """What the subject and ``others`` of it said and was read as."""
    subject, task, item = place
    rows = ledger.query(
        "SELECT p.member, p.answer, p.reason, r.text, r.finish_reason "
        "FROM evaluations p LEFT JOIN responses r ON r.id = p.response "
        "WHERE p.iteration = 0 AND p.task = ? AND p.item = ? AND p.member IN (?, ?)",
        (task, item, subject, others.get(subject, subject)),
    )
    rows.sort(key=lambda row: row["member"] == subject)
    return tuple(
        (row["member"], row["answer"] or row["reason"] or "", row["text"] or "",
         row["finish_reason"] == "length")
        for row in rows
    )  # fmt: skip


def examples_section(measured: Measured) -> Section:
    """A table for each kind, for the page alone."""
    tables = []
    for kind, title in _KINDS.items():
        rows = tuple(row for one in measured.examples if one.kind == kind for row in _rows(one))
        headers = ("task", "question", "gold", "who", "read as", "answer")
        if rows:
            columns = tuple(range(len(headers)))
            tables.append(TableView(title, headers, rows, left=columns, detail=True))
    return Section("answers", "Examples", (), tuple(tables))


def _rows(one: AnswerExample) -> Iterator[tuple[str, ...]]:
    for name, read, text, cut in one.said:
        ended = " [cut off at the limit of new tokens]" if cut else ""
        yield (one.task, _short(one.question), _short(one.gold), name, _short(read),
               f"{_short(text)}{ended}")  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} [… {len(text) - _TEXT:,} more]"
