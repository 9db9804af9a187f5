"""From the numbers of an evaluation to sections of words and tables, the same in every renderer.

A table fits 80 columns as long as names are short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.report.measured_examples import examples_section
from phalanx.report.measured_records import Measured, Paired, Picked, TaskScore
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.words import (
    counted,
    p_value,
    percent,
    plural,
    points,
    points_span,
    share_of,
    span,
)

_ACROSS = 4  # tasks, or subjects without intervals, that fit 80 columns
_ROWS = 40  # a terminal shows tables of tasks up to so many rows in all; the page shows all
_JUDGED = (
    "Judged against one gold answer: others may be right as well, and judges tend to favour "
    "longer ones, so look at the lengths."
)
_READING = (
    "p is that of exact McNemar (of flipped signs, where items are partly right); Holm corrects it "
    "for the number of tasks that are tested, and decides: below .05 is better or worse. + and − "
    "count items that gained and lost."
)
_FINDS = (
    "“Unclear” is not “equal”: “finds” is the smallest difference (points) that the test would "
    "find with 80 % chance, given how much the items differ; a dash: none."
)


def measured_sections(measured: Measured) -> list[Section]:
    """Scores, comparisons, domains, samples: those that there is something to say of."""
    if not measured.subjects:
        return []
    found = [_scores(measured), _compared(measured), _domains(measured), _samples(measured)]
    found.append(examples_section(measured))
    return [section for section in found if section.tables]


def best_line(best: Picked) -> str:
    """The choice, and the result that it did not decide."""
    return (
        f"Best by dev: {best.subject} ({percent(best.dev)} % of {plural(best.num_dev, 'dev item')})"
        f"; on {plural(best.num_test, 'test item')}: {percent(best.test)} % "
        f"[{span(best.interval)}]."
    )


def comparison_line(rows: Sequence[Paired]) -> str:
    """``better on 1 of 3 tasks, worse on 0``."""
    tasks = [row for row in rows if row.task]
    up, down = (sum(row.direction == sign for row in tasks) for sign in (1, -1))
    return f"better on {up} of {plural(len(tasks), 'task')}, worse on {down}"


def _chunks(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _scores(measured: Measured) -> Section:
    lines = []
    if measured.best:
        lines.append(
            f"{best_line(measured.best)} The tables have all items, so that the highest number in "
            "them is that of the luckiest."
        )
    if measured.missing:
        gone = ", ".join(f"{subject} on {task}" for subject, task in measured.missing)
        lines.append(f"Not measured: {gone}. Means are of the tasks that all have.")
    if cut := sum(sum(one.cut_unread.values()) for one in measured.scores):
        lines.append(
            f"{plural(cut, 'answer')} that could not be read had been cut off: raise "
            f"evaluate.max_new_tokens (now {measured.max_new_tokens:,})."
        )
    tables = _overview(measured) if len(measured.common) > 1 else []
    many = len(measured.scores) > _ROWS
    tables += [_task(measured, task, detail=many and bool(tables)) for task in measured.tasks]
    return Section("scores", "Scores", tuple(lines), tuple(tables))


def _overview(measured: Measured) -> list[TableView]:
    """Subjects down, their mean and tasks across."""
    tables = []
    for number, tasks in enumerate(_chunks(measured.common, _ACROSS)):
        rows = []
        for mean in measured.means:
            cells = [_share(measured.score(mean.subject, task)) for task in tasks]
            level = [percent(mean.score), span(mean.interval)]
            rows.append((mean.subject, *(() if number else level), *cells))
        level = () if number else ("mean", "95 %")
        title = "Mean of the tasks that all have, % right"
        title += " (more tasks)" if number else ""
        tables.append(TableView(title, ("subject", *level, *tasks), tuple(rows), left=(0,)))
    return tables


def _share(score: TaskScore | None) -> str:
    return "–" if score is None else percent(score.score)


def _task(measured: Measured, task: str, *, detail: bool) -> TableView:
    scores = [one for one in measured.scores if one.task == task]
    partly = task not in measured.sampled and any(one.whole != one.score for one in scores)
    judged = task in measured.judged
    kind = measured.kinds[task]
    header = _header(measured, task)
    whole = "over half %" if task.startswith("lm-eval:") else "wholly right %"
    whole = "% right" if kind == "truthfulqa_mc2" else whole
    cut = any(one.cut for one in scores)
    headers = ("subject", "n", header, "95 %", "unreadable", *(("cut",) if cut else ()), "failed")
    headers += ((whole,) if partly else ()) + (("characters",) if judged else ())
    rows = []
    for one in scores:
        row = (one.subject, f"{one.n:,}", percent(one.score), span(one.interval),
               share_of(one.unreadable, one.n), *((f"{one.cut:,}",) if cut else ()),
               f"{one.failed:,}")  # fmt: skip
        row += (percent(one.whole),) if partly else ()
        length = "–" if one.characters is None else f"{one.characters:,.0f}"
        rows.append(row + ((length,) if judged else ()))
    notes = [why] if (why := _reasons(scores)) else []
    later = sum(one.later for one in scores) if task in measured.sampled else 0
    if later:
        notes.append(
            f"That is of first samples; {plural(later, 'item')} had a later one that failed or "
            "could not be read, which is wrong too."
        )
    notes += [_JUDGED] if judged else []
    title = task if kind in ("", task) else f"{task} ({kind})"
    return TableView(title, headers, tuple(rows), " ".join(notes), left=(0,), detail=detail)


def _reasons(scores: Sequence[TaskScore]) -> str:
    """``Counted as wrong: 7 no number (7 cut off), 1 timeout.``; "" where nothing was."""
    reasons: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for one in scores:
        reasons.update(one.reasons)
        cut.update(one.cut_unread)
    ended = {reason: f"{reason} ({cut[reason]:,} cut off)" for reason in cut}
    return f"Counted as wrong: {counted(dict(reasons.most_common()), ended)}." if reasons else ""


def _header(measured: Measured, task: str) -> str:
    if measured.kinds[task] == "truthfulqa_mc2":
        return "true mass %"
    return "pass@1 %" if task in measured.sampled else "% right"


def _compared(measured: Measured) -> Section:
    several = len(measured.comparisons) > 1
    tables = _changes(measured) if several else []
    tables += [
        TableView(
            f"{subject} minus {other}: {comparison_line(rows)}",
            ("task", "n", "points", "95 %", "+/−", "p", "Holm", "verdict", "finds"),
            tuple(_comparison(row) for row in rows),
            left=(0,),
            detail=several,
        )
        for (subject, other), rows in measured.comparisons.items()
    ]
    return Section("compared", "Compared", (_READING, _FINDS) if tables else (), tuple(tables))


def _changes(measured: Measured) -> list[TableView]:
    """Comparisons down, their mean and tasks across."""
    found = measured.comparisons
    names = [*dict.fromkeys(row.task for rows in found.values() for row in rows if row.task)]
    names = ["", *names] if any(not row.task for row in measured.paired) else names
    tables = []
    for some in _chunks(names, _ACROSS - 1):
        lines = []
        for (subject, other), rows in found.items():
            at = {row.task: row for row in rows}
            lines.append((f"{subject} minus {other}", *(_change(at.get(name)) for name in some)))
        title = "Differences, points" + (" (more tasks)" if tables else "")
        headers = ("comparison", *(name or "mean" for name in some))
        note = (
            "▲ better, ▼ worse, by the adjusted test; without a mark it is unclear. The page "
            "(phalanx report) has intervals, p and “finds” of each comparison, folded."
        )
        tables.append(TableView(title, headers, tuple(lines), note, left=(0,)))
    return tables


def _change(row: Paired | None) -> str:
    if row is None:
        return "–"
    return points(row.difference) + {1: " ▲", -1: " ▼", 0: ""}[row.direction]


def _comparison(row: Paired) -> tuple[str, ...]:
    finds = ""
    if not row.direction:
        finds = "–" if row.detectable is None else percent(row.detectable)
    return (
        row.task or "mean of tasks",
        f"{row.n:,}",
        points(row.difference),
        points_span(row.interval, 0),
        f"{row.gained}/{row.lost}",
        p_value(row.pvalue),
        "" if row.adjusted is None else p_value(row.adjusted),
        verdict_word(row.direction),
        finds,
    )


def verdict_word(direction: int) -> str:
    return {1: "better", -1: "worse", 0: "unclear"}[direction]


def _domains(measured: Measured) -> Section:
    """Domains down, subjects across; in a terminal only what is short enough to read there."""
    tables = []
    for task in measured.tasks:
        scores = {(s.subject, s.domain): s for s in measured.by_domain if s.task == task}
        domains = list(dict.fromkeys(domain for _, domain in scores))
        subjects = [name for name in measured.subjects if any(name == s for s, _ in scores)]
        if not domains:
            continue
        label = measured.kinds[task].startswith("normad")
        title = (
            f"{task}: recall of each label, %" if label else f"{task}, {_header(measured, task)}"
        )
        for number, some in enumerate(_chunks(subjects, 3)):
            rows = []
            for domain in domains:
                cells = [scores.get((subject, domain)) for subject in some]
                n = max(cell.n for cell in cells if cell) if any(cells) else 0
                rows.append((domain or "(none)", f"{n:,}", *map(_with_span, cells)))
            long = len(domains) > 10 or len(subjects) > 6
            headers = ("label" if label else "domain", "n", *some)
            name = f"{title} (more subjects)" if number else title
            tables.append(TableView(name, headers, tuple(rows), left=(0,), detail=long))
    return Section("domains", "By domain", (), tuple(tables))


def _with_span(score: TaskScore | None) -> str:
    return "–" if score is None else f"{percent(score.score)} [{span(score.interval)}]"


def _samples(measured: Measured) -> Section:
    tables = []
    for task in dict.fromkeys(one.task for one in measured.passes):
        rows = tuple(
            (one.subject, str(one.k), f"{one.n:,}", percent(one.share), span(one.interval))
            for one in measured.passes
            if one.task == task
        )
        headers = ("subject", "k", "n", "pass@k %", "95 %")
        title = f"{task}, {measured.sampled[task]} samples an item"
        tables.append(TableView(title, headers, rows, left=(0,)))
    return Section("samples", "Several samples", (), tuple(tables))
