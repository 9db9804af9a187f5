"""Everything about single duels (pairs, demonstrations, answers): texts, judgments, what became of
them. Read for many at once, because a report file takes thousands."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from phalanx.config.stored import readable
from phalanx.ledger import Ledger
from phalanx.ledger.labels import LAST_LABELS
from phalanx.ledger.rows import CONTEST
from phalanx.report.duels import Kind
from phalanx.report.examples import PAIR_OF_DUEL
from phalanx.report.views import said
from phalanx.types import Response

Detail = dict[str, Any]
_CHUNK = 500


class NoSuchId(ValueError):
    """What is asked for has not the form of an id of its kind."""


def details(ledger: Ledger, kind: Kind, ids: Sequence[str]) -> dict[str, Detail]:
    """Id -> what the browser shows of it; ids that are not there are left out.

    ``instruction`` and ``history`` ([role, text] each); ``sides`` with ``name``, ``text`` and
    ``notes``; ``outcome`` sentences; ``judgments``, each with every text ``said`` by slot;
    ``people``: what persons said of it. Raises :class:`NoSuchId` for what is no row's id.
    """
    read = {
        "duels": _duels, "pairs": _pairs, "demonstrations": _demonstrations,
        "contests": _contests, "answers": _answers,
    }[kind]  # fmt: skip
    found: dict[str, Detail] = {}
    for start in range(0, len(ids), _CHUNK):
        found.update(read(ledger, ids[start : start + _CHUNK]))
    return found


def holding(ledger: Ledger, kind: Kind, wanted: str) -> Iterator[str]:
    """Ids of the rows that have ``wanted`` in the instruction, a response or what a judge said;
    capital letters or not."""
    needle = wanted.lower()
    texts = {
        "duels": _duel_texts,
        "pairs": _PAIR_TEXTS,
        "demonstrations": _DEMONSTRATION_TEXTS,
        "contests": _CONTEST_TEXTS,
        "answers": _ANSWER_TEXTS,
    }[kind]
    rows = texts(ledger) if callable(texts) else ledger.iterate(texts)
    for row in rows:
        if any(needle in text.lower() for text in list(row.values())[1:] if text):
            yield row["id"]


_PAIR_TEXTS = (
    "SELECT p.id, i.text, p.chosen, p.rejected FROM pairs p "
    "LEFT JOIN instructions i ON i.id = p.instruction"
)
_DEMONSTRATION_TEXTS = (
    "SELECT json_array(iteration, builder, position) AS id, history, prompt, response "
    "FROM demonstrations"
)
_ASKED = "CASE WHEN r.messages IS NULL THEN NULL ELSE full_messages(r.messages) END"
_CONTEST_TEXTS = (
    "SELECT json_array(g.iteration, g.task, g.member, g.rival, g.item, g.judge, g.game) AS id, "
    f"g.item, g.reason, a.text, {_ASKED} AS asked, r.text AS said FROM games g "
    "LEFT JOIN responses a ON a.id = g.response LEFT JOIN responses r ON r.id = g.request"
)
_ANSWER_TEXTS = (
    "SELECT json_array(e.iteration, e.member, e.task, e.item) AS id, e.item, e.answer, r.text, "
    f"{_ASKED} AS asked FROM evaluations e "
    "LEFT JOIN responses r ON r.id = e.response"
)


def _duel_texts(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Rows of duels, then those of their judgments: a duel may come more than once."""
    yield from ledger.iterate(
        "SELECT d.id, i.text, l.text AS l, r.text AS r FROM duels d "
        "LEFT JOIN instructions i ON i.id = d.instruction "
        "LEFT JOIN responses l ON l.id = d.left_response "
        "LEFT JOIN responses r ON r.id = d.right_response"
    )
    # What judges wrote stands in their responses, where the judgment does not have it itself.
    yield from ledger.iterate(
        "SELECT j.duel AS id, j.raw, group_concat(r.text, char(10)) AS said FROM judgments j "
        "LEFT JOIN json_each(coalesce(j.requests, '{}')) e "
        "LEFT JOIN responses r ON r.id = e.value GROUP BY j.rowid"
    )


# ---- duels --------------------------------------------------------------------------------------


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def _duels(ledger: Ledger, ids: Sequence[str]) -> dict[str, Detail]:
    duels = ledger.query(
        "SELECT d.*, i.text, i.domain, i.answer, i.later, o.status, o.winner, o.score_left, "
        "o.score_right, o.agreement, o.reason, o.num_judges, o.num_missing FROM duels d "
        "LEFT JOIN instructions i ON i.id = d.instruction LEFT JOIN outcomes o ON o.duel = d.id "
        f"WHERE d.id IN ({_marks(ids)})",
        ids,
    )
    judged: dict[str, list[dict[str, Any]]] = {}
    for row in ledger.query(
        f"SELECT * FROM judgments WHERE duel IN ({_marks(ids)}) ORDER BY judge", ids
    ):
        row["requests"] = json.loads(row["requests"] or "{}")
        judged.setdefault(row["duel"], []).append(row)
    asked = {request for rows in judged.values() for row in rows
             for request in row["requests"].values()}  # fmt: skip
    asked |= {row[side] for row in duels for side in ("left_response", "right_response")}
    responses = _responses(ledger, asked - {None, ""})
    pairs = {
        row["duel"]: row
        for row in ledger.query(
            f"SELECT d.id AS duel, p.* FROM duels d JOIN {PAIR_OF_DUEL} "
            f"WHERE d.id IN ({_marks(ids)})",
            ids,
        )
    }
    people: dict[str, list[dict[str, Any]]] = {}
    for row in ledger.query(f"{LAST_LABELS} AND duel IN ({_marks(ids)}) ORDER BY person", ids):
        people.setdefault(row["duel"], []).append(row)
    weights = _Weights(ledger)
    return {
        duel["id"]: {
            "instruction": duel["text"] or "",
            "answer": duel["answer"],
            "history": _turns(duel["later"]),
            "sides": [_side(duel, side, responses) for side in ("left", "right")],
            "outcome": {
                name: duel[name]
                for name in ("status", "winner", "agreement", "reason", "num_judges", "num_missing")
            }
            | {"scores": [duel["score_left"], duel["score_right"]]},
            "pair": _pair(pairs.get(duel["id"])),
            "judgments": [
                _judgment(row, responses, weights.of(duel["iteration"], row["judge"]))
                for row in judged.get(duel["id"], [])
            ],
            "people": [
                {"person": row["person"], "verdict": row["verdict"], "note": row["note"] or ""}
                for row in people.get(duel["id"], [])
            ],
        }
        for duel in duels
    }


def _responses(ledger: Ledger, ids: Iterable[str]) -> dict[str, Response]:
    return {id_: response for id_, (response, _) in ledger.responses(sorted(ids)).items()}


def _side(duel: dict[str, Any], side: str, responses: dict[str, Response]) -> Detail:
    response = responses.get(duel[f"{side}_response"])
    return {
        "name": duel[side],
        "text": (response.text if response else None) or "",
        "notes": _notes(response),
    }


def _notes(response: Response | None) -> list[str]:
    if response is None:
        return ["no response is recorded"]
    notes = [flag.replace("_", " ") for flag in response.flags]
    if response.error is not None:
        notes.append(f"failed: {response.error.kind}: {response.error.message}")
    elif not (response.text or "").strip():
        notes.append("empty")
    if response.truncated:
        notes.append("truncated at the token limit")
    if response.num_shortened_tokens:
        notes.append(f"its prompt was shortened by {response.num_shortened_tokens:,} tokens")
    return notes


def _pair(row: dict[str, Any] | None) -> Detail | None:
    if row is None:
        return None
    return {name: row[name] for name in ("dropped", "margin", "weight", "chosen_member")}


def _judgment(row: dict[str, Any], responses: dict[str, Response], weight: float | None) -> Detail:
    if row["requests"]:
        raw = {slot: responses[r].said for slot, r in row["requests"].items() if r in responses}
    else:
        raw = json.loads(row["raw"] or "{}")
    return {
        "judge": row["judge"],
        "protocol": row["protocol"],
        "scores": [row["score_left"], row["score_right"]],
        "reason": row["reason"],
        "flipped": bool(row["flipped"]),
        "flags": json.loads(row["flags"] or "[]"),
        "weight": weight,
        "said": [[slot, said(one)] for slot, one in raw.items()],
    }


class _Weights:
    """What a judge's word counted for in an iteration, by the rule of the run.

    None where it is not known: methods other than sparta weigh in ways of their own.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        config = readable(ledger.get("config"), ledger.folder)
        plain = "reputation" in config.without
        self._rule = "mean" if plain else config.aggregate.rule
        self._known = (ledger.get("method") or config.method) == "sparta"
        self._by_iteration: dict[int, dict[str, float]] = {}

    def of(self, iteration: int, judge: str) -> float | None:
        if not self._known:
            return None
        if self._rule not in ("reputation", "one_coin"):
            return 1.0
        if iteration not in self._by_iteration:
            self._by_iteration[iteration] = self._read(iteration)
        return self._by_iteration[iteration].get(judge)

    def _read(self, iteration: int) -> dict[str, float]:
        if self._rule == "one_coin":
            chances = (self._ledger.state(iteration) or {}).get("reliability", {})
            return {
                name: max(0.0, math.log(p / (1 - p))) for name, p in chances.items() if 0 < p < 1
            }
        # All weights of an iteration are the reputations at its start.
        before = self._ledger.query(
            "SELECT member, before, min(position) FROM reputations WHERE iteration = ? "
            "GROUP BY member",
            (iteration,),
        )
        known = {row["member"]: row["before"] for row in before}
        state = self._ledger.state(iteration - 1)
        return known | ({n: s.value for n, s in state["standings"].items()} if state else {})


# ---- rows without judges ------------------------------------------------------------------------


def _turns(later: str | None) -> list[list[str]]:
    """[role, text] of turns; they are stored as objects or as pairs, by who wrote them."""
    turns = json.loads(later or "[]")
    return [[t["role"], t["content"]] if isinstance(t, dict) else list(t) for t in turns]


def _pairs(ledger: Ledger, ids: Sequence[str]) -> dict[str, Detail]:
    rows = ledger.query(
        "SELECT p.*, i.text, i.answer, i.later FROM pairs p "
        f"LEFT JOIN instructions i ON i.id = p.instruction WHERE p.id IN ({_marks(ids)})",
        ids,
    )
    return {
        row["id"]: {
            "instruction": row["text"] or "",
            "answer": row["answer"],
            "history": _turns(row["later"]),
            "sides": [
                {
                    "name": row[f"{side}_member"] or "not a member",
                    "text": row[side] or "",
                    "notes": [
                        side,
                        *(["truncated at the token limit"] if row[f"{side}_truncated"] else []),
                        *_chance(row[f"{side}_probability"]),
                    ],
                }
                for side in ("chosen", "rejected")
            ],
            "outcome": None,
            "pair": _pair(row),
            "judgments": [],
            "people": [],
        }
        for row in rows
    }


def _chance(probability: float | None) -> list[str]:
    return [] if probability is None else [f"beats the policy's own with {probability:.2f}"]


def _demonstrations(ledger: Ledger, ids: Sequence[str]) -> dict[str, Detail]:
    found = {}
    for id_ in ids:
        for row in ledger.query(
            "SELECT * FROM demonstrations WHERE iteration = ? AND builder = ? AND position = ?",
            _key(id_, 3),
        ):
            notes = [f"made by {row['builder']}"] if row["builder"] else []
            if row["advantage"] is not None:
                notes.append(f"advantage {row['advantage']:.3f}")
            if row["truncated"]:
                notes.append("truncated at the token limit")
            found[id_] = _one_sided(
                row["prompt"], _turns(row["history"]), row["writer"], row["response"], notes
            )
            found[id_]["pair"] = {"dropped": row["dropped"]}
    return found


def _answers(ledger: Ledger, ids: Sequence[str]) -> dict[str, Detail]:
    found = {}
    for id_ in ids:
        for row in ledger.query(
            f"SELECT e.*, r.text AS said, {_ASKED} AS asked FROM evaluations e "
            "LEFT JOIN responses r ON r.id = e.response WHERE e.iteration = ? AND e.member = ? "
            "AND e.task = ? AND e.item = ?",
            _key(id_, 4),
        ):
            turns = [[t["role"], t["content"]] for t in json.loads(row["asked"] or "[]")]
            asked = turns.pop()[1] if turns else f"item {row['item']} of {row['task']}"
            notes = [f"{row['split']} split"]
            if row["answer"]:
                notes.append(f"read as {row['answer'][:200]!r}")
            notes += [row["reason"]] if row["reason"] else []
            found[id_] = _one_sided(asked, turns, row["member"], row["said"], notes)
    return found


def _contests(ledger: Ledger, ids: Sequence[str]) -> dict[str, Detail]:
    """Verdicts: what the judge was asked, which has both answers in it, and what it said."""
    found = {}
    for id_ in ids:
        for row in ledger.query(
            f"SELECT g.*, a.text, {_ASKED} AS asked FROM games g "
            "LEFT JOIN responses a ON a.id = g.response LEFT JOIN responses r ON r.id = g.request "
            "WHERE g.iteration = ? AND g.task = ? AND g.member = ? AND g.rival = ? "
            "AND g.item = ? AND g.judge = ? AND g.game = ?",
            _key(id_, 7),
        ):
            turns = [[t["role"], t["content"]] for t in json.loads(row["asked"] or "[]")]
            asked = turns.pop()[1] if turns else f"item {row['item']} of {row['task']}"
            found[id_] = _one_sided(asked, turns, row["member"], row["text"], [])
            verdict = _responses(ledger, {row["request"]} - {None, ""})
            value, rival = row["value"], row["rival"]
            scores = [value, None if value is None else 1 - value] if rival else [value]
            found[id_]["judgments"] = [
                {
                    "judge": row["judge"],
                    "protocol": row["game"],
                    "scores": scores,
                    "reason": row["reason"],
                    "flipped": False,
                    "flags": [],
                    "weight": None,
                    "said": [[row["game"], said(one.said)] for one in verdict.values()],
                }
            ]
            if rival:
                found[id_]["sides"].append(_rival(ledger, row))
    return found


def _rival(ledger: Ledger, row: dict[str, Any]) -> Detail:
    """The other side; answers that came from a file are no responses of the run."""
    known = json.loads(ledger.get(f"{CONTEST}{row['task']}") or "{}").get("baseline_answers", {})
    id_ = known.get(row["item"], "")
    answer = _responses(ledger, {id_} - {""}).get(id_)
    text = answer.text if answer else "It stands in what the judge was asked."
    return {"name": row["rival"], "text": text or "", "notes": _notes(answer) if answer else []}


def _key(id_: str, length: int) -> list[Any]:
    """What a row is found by: a list in JSON, with numbers and text that SQLite takes."""
    try:
        parts = json.loads(id_)
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or len(parts) != length or not all(map(_storable, parts)):
        raise NoSuchId(f"{id_[:200]!r} is not the id of a row")
    return parts


def _storable(part: Any) -> bool:
    """Whether SQLite takes it: numbers have 64 bits, and half a surrogate pair has no bytes."""
    if isinstance(part, str):
        return not any("\ud800" <= one <= "\udfff" for one in part)
    return isinstance(part, int) and -(2**63) <= part < 2**63


def _one_sided(
    instruction: str, history: list[list[str]], name: str, text: str | None, notes: list[str]
) -> Detail:
    return {
        "instruction": instruction,
        "answer": None,
        "history": history,
        "sides": [{"name": name, "text": text or "", "notes": notes}],
        "outcome": None,
        "pair": None,
        "judgments": [],
        "people": [],
    }
