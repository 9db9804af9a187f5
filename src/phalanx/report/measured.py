"""What an evaluation (``phalanx eval``) measured, from the ledger's rows alone.

Scores and comparisons are of all items; only the choice of the best subject keeps to the dev items
and is reported on the test items. Intervals are 95 % and say what another draw of items could
change: not another seed, nor other samples of the responses.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from phalanx.config.rules_tasks import is_judged
from phalanx.config.schema import Config
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger
from phalanx.ledger.rows import SUBJECT
from phalanx.report.measured_examples import examples_in
from phalanx.report.measured_records import (
    Measured,
    Paired,
    PassAt,
    Picked,
    Sums,
    TaskMean,
    TaskScore,
)
from phalanx.statistics import holm, pass_at_k
from phalanx.statistics.paired import detectable, detectable_mean, mean_test, paired_test
from phalanx.statistics.scores import difference_interval, mean_of_parts, score_interval

_AT = re.compile(r"^(?P<name>.+)@(?P<iteration>\d+)$")
_FEW = 5  # items of a domain that say nothing alone
_EQUAL = 1e-12  # means of the same scores, in another order
_KS = (1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True, slots=True)
class _Row:
    score: float
    correct: int
    domain: str
    split: str
    trouble: str  # "", "unreadable" or "failed"
    reason: str
    characters: int | None
    cut: bool  # at the limit of new tokens


@dataclass
class _Rows:
    """(subject, task) -> item -> row, with subjects and tasks in their order."""

    of: dict[tuple[str, str], dict[str, _Row]] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def scores(self, subject: str, task: str, split: str = "") -> dict[str, float]:
        rows = self.of.get((subject, task), {})
        return {item: row.score for item, row in rows.items() if split in ("", row.split)}


def measured(ledger: Ledger, config: Config, against: str | None = None) -> Measured:
    """Scores, comparisons, domains and the choice of the best.

    ``against`` names the subject that all others are compared with. Without it a subject
    ``NAME@2`` is compared with ``NAME`` as it was measured first, others with the first subject.
    """
    rows = _read(ledger, config)
    if not rows.of:
        return Measured()
    settings = {task.name: task for task in config.evaluate.tasks}
    common = tuple(t for t in rows.tasks if all((s, t) in rows.of for s in rows.subjects))
    pairs = pairs_of(rows.subjects, against)
    places = [(s, t) for t in rows.tasks for s in rows.subjects if (s, t) in rows.of]
    return Measured(
        subjects=rows.subjects,
        tasks=rows.tasks,
        max_new_tokens=config.evaluate.max_new_tokens,
        kinds={name: settings[name].kind if name in settings else "" for name in rows.tasks},
        judged=tuple(
            name for name, task in settings.items() if name in rows.tasks and is_judged(task)
        ),
        sampled={
            name: task.samples
            for name, task in settings.items()
            if name in rows.tasks and task.samples > 1
        },
        common=common,
        missing=tuple((s, t) for t in rows.tasks for s in rows.subjects if (s, t) not in rows.of),
        scores=tuple(_score(s, t, "", rows.of[s, t], config.seed) for s, t in places),
        by_domain=tuple(_by_domain(rows, places, config.seed)),
        means=tuple(_means(rows, common, config.seed)),
        paired=tuple(
            line
            for subject, other in pairs
            for line in _paired(rows, subject, other, common, config.seed)
        ),
        passes=tuple(_passes(rows, places, config, ledger)),
        best=_best(rows, common, config.seed),
        examples=tuple(examples_in(ledger, pairs)),
    )


def sums(ledger: Ledger, config: Config) -> tuple[Sums, ...]:
    """What became of every item, by task and subject."""
    rows = _read(ledger, config)
    found = []
    for task in rows.tasks:
        for subject in rows.subjects:
            if some := rows.of.get((subject, task)):
                count = Counter(row.trouble for row in some.values())
                found.append(Sums(subject, task, count[""], count["unreadable"], count["failed"]))
    return tuple(found)


def _read(ledger: Ledger, config: Config) -> _Rows:
    """Rows as they are; a row whose request failed, or that has no response, is ``failed``."""
    kinds = {
        row["kind"]
        for row in ledger.query(
            "SELECT DISTINCT error_kind AS kind FROM responses WHERE status = 'failed'"
        )
    }
    found = _Rows()
    for row in ledger.iterate(
        "SELECT e.member, e.task, e.item, e.domain, e.split, e.correct, e.readable, e.score, "
        "e.reason, e.response, length(r.text) AS characters, "
        "r.finish_reason = 'length' AS cut "
        "FROM evaluations e LEFT JOIN responses r ON r.id = e.response ORDER BY e.task, e.item"
    ):
        failed = not row["response"] or row["reason"] in kinds
        trouble = "" if row["readable"] else "failed" if failed else "unreadable"
        found.of.setdefault((row["member"], row["task"]), {})[row["item"]] = _Row(
            row["score"], row["correct"], row["domain"] or "", row["split"], trouble,
            row["reason"] or "", row["characters"], bool(row["cut"]),
        )  # fmt: skip
    named = json.loads(ledger.get("subjects") or ledger.get("pool_order") or "[]")
    configured = [task.name for task in config.evaluate.tasks]
    found.subjects = _ordered({subject for subject, _ in found.of}, named)
    found.tasks = _ordered({task for _, task in found.of}, configured)
    return found


def _ordered(present: set[str], order: Sequence[str]) -> tuple[str, ...]:
    """Those of ``order`` first, as they stand there, then the others by name."""
    known = [name for name in dict.fromkeys(order) if name in present]
    return (*known, *sorted(present.difference(known)))


def _score(subject: str, task: str, domain: str, rows: Mapping[str, _Row], seed: int) -> TaskScore:
    written = [row.characters for row in rows.values() if row.characters is not None]
    scores = [row.score for row in rows.values()]
    return TaskScore(
        subject=subject,
        task=task,
        domain=domain,
        n=len(rows),
        score=sum(scores) / len(scores),
        interval=score_interval(scores, derive_seed("report", seed, subject, task, domain)),
        whole=sum(row.correct for row in rows.values()) / len(rows),
        unreadable=sum(row.trouble == "unreadable" for row in rows.values()),
        failed=sum(row.trouble == "failed" for row in rows.values()),
        reasons=dict(
            Counter(row.reason or "no reason given" for row in rows.values() if row.trouble)
            .most_common()
        ),
        cut=sum(row.cut for row in rows.values()),
        cut_unread=dict(
            Counter(row.reason for row in rows.values() if row.cut and row.trouble == "unreadable")
        ),
        characters=sum(written) / len(written) if written else None,
        later=sum(row.reason.startswith("sample ") and not row.trouble for row in rows.values()),
    )  # fmt: skip


def _by_domain(rows: _Rows, places: Sequence[tuple[str, str]], seed: int) -> list[TaskScore]:
    """Of tasks with more than one domain, in the order of their names; the small ones together."""
    found = []
    for subject, task in places:
        domains: dict[str, dict[str, _Row]] = {}
        for item, row in rows.of[subject, task].items():
            domains.setdefault(row.domain, {})[item] = row
        small = sorted(domain for domain, some in domains.items() if len(some) < _FEW)
        names = sorted(domains)
        if len(small) > 1:
            names = [name for name in names if name not in small] + [
                f"other domains ({len(small)})"
            ]
            domains[names[-1]] = {
                item: row for name in small for item, row in domains[name].items()
            }
        if len(names) > 1:
            found += [_score(subject, task, name, domains[name], seed) for name in names]
    return found


def _plain_mean(tasks: Mapping[str, Sequence[float]]) -> float:
    return sum(sum(scores) / len(scores) for scores in tasks.values()) / len(tasks)


def _means(rows: _Rows, common: Sequence[str], seed: int) -> list[TaskMean]:
    found = []
    for subject in rows.subjects if common else ():
        tasks = {task: list(rows.scores(subject, task).values()) for task in common}
        place = derive_seed("report mean", seed, subject)
        found.append(TaskMean(subject, *mean_of_parts(tasks, score_interval, place)))
    return found


def pairs_of(subjects: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """Who is compared with whom, as (subject, other).

    >>> pairs_of(["ada@0", "ada@2", "bob@0", "bob@2"], None)
    [('ada@2', 'ada@0'), ('bob@2', 'bob@0')]
    """
    if against is not None:
        return [(name, against) for name in subjects if name != against and against in subjects]
    starts: dict[str, tuple[int, str]] = {}
    for name in subjects:
        if found := _AT.match(name):
            place = (int(found["iteration"]), name)
            starts[found["name"]] = min(place, starts.get(found["name"], place))
    own = {}
    for name in subjects:
        found = _AT.match(name)
        if found and starts[found["name"]][1] != name:
            own[name] = starts[found["name"]][1]
    first = subjects[0] if subjects else ""
    return [
        (name, own.get(name, first))
        for name in subjects
        if name in own or (name != first and name not in own.values())
    ]


def _paired(
    rows: _Rows, subject: str, other: str, common: Sequence[str], seed: int
) -> list[Paired]:
    """One line a task that both have, and the mean over the ``common`` tasks, of several."""
    both: dict[str, tuple[list[float], list[float]]] = {}
    for task in rows.tasks:
        after, before = rows.scores(subject, task), rows.scores(other, task)
        items = [item for item in before if item in after]
        if items:
            both[task] = [before[item] for item in items], [after[item] for item in items]
    place = derive_seed("report paired", seed, subject, other)
    lines = [
        _difference(subject, other, task, *pair, derive_seed("task", place, task), len(both))
        for task, pair in both.items()
    ]
    adjusted = holm([line.pvalue for line in lines])
    lines = [replace(line, adjusted=p) for line, p in zip(lines, adjusted, strict=True)]
    apart = {t: [y - x for x, y in zip(*both[t], strict=True)] for t in common if t in both}
    if len(apart) < 2:
        return lines
    n, gained, lost = (
        sum(getattr(line, name) for line in lines if line.task in apart)
        for name in ("n", "gained", "lost")
    )
    mean = Paired(
        subject,
        other,
        "",
        n,
        *mean_of_parts(apart, difference_interval, place),
        gained,
        lost,
        exact=False,
        pvalue=mean_test(list(apart.values()), seed=place),
        detectable=detectable_mean(list(apart.values())),
    )
    return [*lines, mean]


def _difference(
    subject: str,
    other: str,
    task: str,
    before: Sequence[float],
    after: Sequence[float],
    seed: int,
    family: int,
) -> Paired:
    changes = [two - one for one, two in zip(before, after, strict=True)]
    test = paired_test(before, after, seed=seed)
    return Paired(
        subject=subject,
        other=other,
        task=task,
        n=test.n,
        difference=sum(changes) / len(changes),
        interval=difference_interval(changes, seed),
        gained=test.gained,
        lost=test.lost,
        exact=test.exact,
        pvalue=test.pvalue,
        detectable=detectable(before, after, family=family),
    )


def _passes(
    rows: _Rows, places: Sequence[tuple[str, str]], config: Config, ledger: Ledger
) -> list[PassAt]:
    """pass@k of the tasks with several samples an item, whose score is the share that is right.

    A vote and the best of several are one answer to each item, so they have none. A score that is
    no whole number of samples is partial credit: no sample of it passed or failed.
    """
    made = {name: json.loads(ledger.get(f"{SUBJECT}{name}") or "{}") for name in rows.subjects}
    once = {name for name, of in made.items() if of.get("together") in ("majority", "best_of")}
    samples = {task.name: task.samples for task in config.evaluate.tasks if task.samples > 1}
    found = []
    for subject, task in places:
        count = 1 if subject in once else samples.get(task, 1)
        right = [row.score * count for row in rows.of[subject, task].values()]
        if count == 1 or any(abs(number - round(number)) > 1e-6 for number in right):
            continue
        for k in sorted({*(k for k in _KS if k < count), count}):
            shares = [pass_at_k(count, round(number), k) for number in right]
            place = derive_seed("report pass", config.seed, subject, task, k)
            mean, interval = sum(shares) / len(shares), score_interval(shares, place)
            found.append(PassAt(subject, task, count, k, len(shares), mean, interval))
    return found


def _best(rows: _Rows, common: Sequence[str], seed: int) -> Picked | None:
    """Chosen on dev, reported on test; of equals the one named first. None with one subject,
    where a task that all have lacks a split, and where all are equal on dev."""
    split = {
        name: {
            subject: {t: list(rows.scores(subject, t, name).values()) for t in common}
            for subject in rows.subjects
        }
        for name in ("dev", "test")
    }
    every = [scores for of in split.values() for tasks in of.values() for scores in tasks.values()]
    if len(rows.subjects) < 2 or not every or not all(every):
        return None
    levels = {s: _plain_mean(tasks) for s, tasks in split["dev"].items()}
    if max(levels.values()) - min(levels.values()) < _EQUAL:
        return None
    name = max(rows.subjects, key=lambda subject: levels[subject])
    place = derive_seed("report best", seed, name)
    test, interval = mean_of_parts(split["test"][name], score_interval, place)
    num_dev, num_test = (sum(map(len, split[part][name].values())) for part in ("dev", "test"))
    return Picked(name, levels[name], num_dev, test, num_test, interval)
