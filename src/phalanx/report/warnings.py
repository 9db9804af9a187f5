"""What makes a measurement worthless, for the top of a summary, whatever else stands below."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.ledger import Ledger
from phalanx.methods.answering import verdicts_in
from phalanx.report.measured_records import Measured
from phalanx.report.records import OneVerdict, RunFacts

_LEAST = 10  # verdicts that may be alike by chance
_MOST = 0.5  # share of items without a readable answer, of verdicts that say nothing


def one_verdicts(ledger: Ledger) -> tuple[OneVerdict, ...]:
    """Judges of answers beside the gold ones that said the same to all of them."""
    rows = ledger.query(
        "SELECT task, judge, min(label) AS label, count(*) AS n FROM games "
        "WHERE game LIKE 'gold%' AND value IS NOT NULL GROUP BY task, judge "
        "HAVING min(value) = max(value) AND count(*) >= ? ORDER BY task, judge",
        (_LEAST,),
    )
    return tuple(OneVerdict(row["task"], row["judge"], row["label"], row["n"]) for row in rows)


def warnings(facts: RunFacts) -> list[str]:
    """One sentence for each subject that was mostly not read, for each guard that fired, for those
    who answer together where most of their verdicts were not, and for each judge of one verdict."""
    found = _unread(facts.measured) if facts.measured else []
    found += [f"Warning: {line}." for line in facts.guards.sentences] if facts.guards else []
    return [*found, *_unvoted(facts)] + [
        f"Warning: {one.judge} said {one.label} to all {one.count:,} answers of {one.task} that it "
        "judged. Such a judge measures nothing: name others in evaluate.judges."
        for one in facts.one_verdicts
    ]


def _unvoted(facts: RunFacts) -> list[str]:
    figures = facts.rival.figures if facts.rival and facts.rival.answers else None
    counts = {key: row.get(0, 0) for key, row in (figures or {}).items()}
    words = mostly_unread(facts.method, counts)
    return [
        f"Warning: {words}. What all answered together says little of what they can; look at the "
        "responses (phalanx export RUN responses)."
    ] * bool(words)


def mostly_unread(method: str, counts: Mapping[str, float]) -> str:
    """Where most verdicts on the way to a method's answers say nothing, how many; else ""."""
    asked, silent = verdicts_in(counts)
    if silent <= _MOST * asked:
        return ""
    return f"{silent:,} of {asked:,} votes or judgments of {method} could not be read"


def _unread(measured: Measured) -> list[str]:
    found = []
    for subject in measured.subjects:
        places = []
        for one in measured.scores:
            bad = one.unreadable + one.failed
            if one.subject == subject and bad > _MOST * one.n:
                cut = sum(one.cut_unread.values())
                ended = f", {cut:,} cut off" if cut else ""
                places.append(f"{bad:,} of {one.n:,} on {one.task}{ended}")
        if places:
            found.append(
                f"Warning: most answers of {subject} could not be read, or failed "
                f"({'; '.join(places)}). That score says nothing of what {subject} knows."
            )
    return found
