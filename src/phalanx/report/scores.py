"""Evaluation: before and after on the test split, checkpoints chosen on the dev split.

Means weigh every domain the same and every member the same. Intervals are over items, with the
members as they are: they say how far another draw of items could move a number, not another
seed or another pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import eq
from typing import TypeVar

from phalanx.collective.voting import vote
from phalanx.config.mixing import MIXTURE
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger
from phalanx.report.records import Change, Choice, Evaluation
from phalanx.statistics import Interval, holm
from phalanx.statistics.paired import detectable, paired_test
from phalanx.statistics.scores import difference_interval, mean_of_parts, score_interval
from phalanx.tasks import equivalence

COLLECTIVE = "collective"

Item = tuple[str, str]  # task, item
Scores = dict[Item, float]  # item -> share right
Key = TypeVar("Key")


class Table:
    """The rows of ``evaluations``, indexed. Items are those that every member was asked."""

    def __init__(self, ledger: Ledger, names: Sequence[str]) -> None:
        self.score: dict[tuple[int, str, str], Scores] = defaultdict(dict)
        self.answer: dict[tuple[int, str], dict[Item, tuple[str, int]]] = defaultdict(dict)
        self.domain: dict[Item, str] = {}
        self.unreadable: dict[int, int] = defaultdict(int)
        tasks = ledger.query("SELECT DISTINCT task FROM evaluations")
        seen: dict[str, None] = {}
        for row in ledger.iterate(
            "SELECT * FROM evaluations ORDER BY iteration, task, domain, item"
        ):
            item = (row["task"], row["item"])
            label = row["domain"] or row["task"]
            if len(tasks) > 1 and row["domain"]:
                label = f"{row['task']}: {row['domain']}"
            self.domain[item] = label
            seen[label] = None
            place = (row["iteration"], row["member"])
            self.score[*place, row["split"]][item] = row["score"]
            if row["member"] in names:
                self.unreadable[row["iteration"]] += not row["readable"]
            if row["split"] == "test":
                answer = row["answer"] if row["readable"] else ""
                self.answer[place][item] = (answer or "", row["correct"])
        self.domains = tuple(seen)
        present = {member for _, member, _ in self.score}
        self.members = tuple(name for name in names if name in present)
        self.iterations = tuple(sorted({number for number, _, _ in self.score}))

    def of(self, iteration: int, member: str, split: str) -> Scores:
        return self.score.get((iteration, member, split), {})

    def pool_mean(self, iteration: int, split: str) -> Scores:
        """Mean score of the members, for each item that all of them were asked."""
        rows = [self.of(iteration, member, split) for member in self.members]
        common = set.intersection(*(set(row) for row in rows))
        return {item: sum(row[item] for row in rows) / len(rows) for item in sorted(common)}


def evaluation(
    ledger: Ledger,
    names: Sequence[str],
    *,
    seed: int,
    weights_before: Mapping[str, float],
    weights_after: Mapping[str, float],
    unvoted: Collection[str] = (),
    maths: Collection[str] = (),
) -> Evaluation:
    """Everything measured. ``weights_*`` are the reputations for the collective's vote.

    ``unvoted`` names the tasks without an answer that members could agree on: no vote on them;
    ``maths`` those whose answers are compared as expressions, by math-verify: none without it.
    """
    if not ledger.count("evaluations"):
        return Evaluation(note="no evaluation task is configured, so nothing was measured")
    table = Table(ledger, names)
    first, last = table.iterations[0], table.iterations[-1]
    base = Evaluation(
        iterations=table.iterations,
        domains=table.domains,
        num_dev=len({i for (_, _, s), row in table.score.items() if s == "dev" for i in row}),
        num_test=len({i for (_, _, s), row in table.score.items() if s == "test" for i in row}),
        unreadable=dict(table.unreadable),
        trajectory=_trajectory(table),
        note=_note(table),
    )
    if first != 0 or not base.num_test:
        return base
    fields = {name: getattr(base, name) for name in Evaluation.__dataclass_fields__}
    fields["changes"] = tuple(_changes(table, first, last, seed))
    weights = (weights_before, weights_after)
    asked = {task for task, _ in table.domain}
    fields["unvoted"] = tuple(task for task in unvoted if task in asked)
    fields["uncompared"] = tuple(
        task
        for task in maths
        if task in asked and task not in unvoted and not equivalence.is_there()
    )
    out = (*fields["unvoted"], *fields["uncompared"])
    fields["collective"] = _collective(table, (first, last), weights, seed, out, maths)
    ends = (table.of(number, MIXTURE, "test") for number in (first, last))
    fields["mixture"] = tuple(by_domain(table, MIXTURE, *ends, seed))
    if base.num_dev:
        fields |= _selection(table, seed)
    return Evaluation(**fields)


def _note(table: Table) -> str:
    if table.iterations[0] != 0:
        return "the pool was not measured before alignment, so there is nothing to compare with"
    splits = {split for _, _, split in table.score}
    if "test" not in splits:
        return "no item is in the test split; lower evaluate.dev_share"
    if len(table.iterations) == 1:
        return "measured before alignment only; no iteration has been measured yet"
    if "dev" not in splits:
        return "no item is in the dev split, so no checkpoint was chosen; raise evaluate.dev_share"
    return ""


def _trajectory(table: Table) -> dict[tuple[int, str], float]:
    result = {}
    for number in table.iterations:
        for member in table.members:
            scores = table.of(number, member, "test")
            if scores:
                result[number, member] = macro(scores, table.domain)
        pool = table.pool_mean(number, "test")
        if pool:
            result[number, ""] = macro(pool, table.domain)
    return result


def macro(scores: Mapping[Item, float], domain: Mapping[Item, str]) -> float:
    values = weighted(scores, domain)
    return sum(values) / len(values)


def weighted(scores: Mapping[Item, float], domain: Mapping[Item, str]) -> list[float]:
    """Scores scaled so that their plain mean is the mean over domains of the domain means."""
    counts: dict[str, int] = defaultdict(int)
    for item in scores:
        counts[domain[item]] += 1
    scale = len(scores) / len(counts) if counts else 0.0
    return [score * scale / counts[domain[item]] for item, score in scores.items()]


def _changes(table: Table, first: int, last: int, seed: int) -> list[Change]:
    """Members and their mean, times domains and their mean."""
    result: list[Change] = []
    for member in ("", *table.members):
        if member:
            before, after = (table.of(number, member, "test") for number in (first, last))
        else:
            before, after = (table.pool_mean(number, "test") for number in (first, last))
        result += by_domain(table, member, before, after, seed)
    return result


def by_domain(table: Table, member: str, before: Scores, after: Scores, seed: int) -> list[Change]:
    """The mean over domains, then each domain; the tests of the domains adjusted together."""
    family = len({table.domain[item] for item in before if item in after})
    found = [
        compare(table, member, domain, before, after, seed, family=family if domain else 1)
        for domain in ("", *table.domains)
    ]
    changes = [change for change in found if change is not None]
    tested = [change for change in changes if change.pvalue is not None]
    adjusted = iter(holm([change.pvalue for change in tested]))
    return [
        change if change.pvalue is None else replace(change, adjusted=next(adjusted))
        for change in changes
    ]


def compare(
    table: Table,
    member: str,
    domain: str,
    before: Mapping[Item, float],
    after: Mapping[Item, float],
    seed: int,
    *,
    family: int = 1,
) -> Change | None:
    """One comparison on the items that both have; None where there is none.

    ``family`` is the number of tests that are adjusted together.
    """
    items = [i for i in before if i in after and (not domain or table.domain[i] == domain)]
    if not items:
        return None
    one = {item: before[item] for item in items}
    two = {item: after[item] for item in items}
    place = derive_seed("report", seed, member, domain)
    changes = {item: two[item] - one[item] for item in items}
    parts = _by_part(changes, table.domain)
    difference, interval = mean_of_parts(parts, difference_interval, place)
    first, first_interval = domain_mean(one, table.domain, place)
    last, last_interval = domain_mean(two, table.domain, place)
    pair = (list(one.values()), list(two.values()))
    return Change(
        member=member,
        domain=domain,
        n=len(items),
        before=first,
        before_interval=first_interval,
        after=last,
        after_interval=last_interval,
        difference=difference,
        interval=interval,
        pvalue=paired_test(*pair, seed=place).pvalue if domain else None,
        detectable=detectable(*pair, family=family) if domain else None,
    )


def domain_mean(
    scores: Mapping[Item, float], domain: Mapping[Item, str], seed: int
) -> tuple[float, Interval]:
    """:func:`macro`, and 95 % around it, made of the intervals of the domains."""
    return mean_of_parts(_by_part(scores, domain), score_interval, seed)


def _by_part(scores: Mapping[Item, float], domain: Mapping[Item, str]) -> dict[str, list[float]]:
    """The scores of each domain."""
    found: dict[str, list[float]] = {}
    for item, score in scores.items():
        found.setdefault(domain[item], []).append(score)
    return found


def _selection(table: Table, seed: int) -> dict[str, object]:
    """Best checkpoints by dev mean; of equals the earlier one, then the earlier member, wins."""
    choices = {
        (member, number): _choice(table, member, number, seed)
        for member in table.members
        for number in table.iterations
        if table.of(number, member, "dev") and table.of(number, member, "test")
    }
    if not choices:
        return {}

    def best(keys: Sequence[tuple[str, int]]) -> Choice | None:
        order = sorted(keys, key=lambda key: (key[1], table.members.index(key[0])))
        return choices[leading({key: choices[key].dev for key in order})] if order else None

    initial = best([key for key in choices if key[1] == 0])
    aligned = best([key for key in choices if key[1] > 0])
    chosen: dict[str, object] = {
        "best_of_member": tuple(
            best([key for key in choices if key[0] == member])
            for member in table.members
            if any(key[0] == member for key in choices)
        ),
        "best_initial": initial,
        "best_aligned": aligned,
    }
    if initial and aligned:
        chosen["aligned_over_initial"] = compare(
            table,
            "best",
            "",
            table.of(initial.iteration, initial.member, "test"),
            table.of(aligned.iteration, aligned.member, "test"),
            seed,
        )
    return chosen


def best_on_dev(ledger: Ledger, names: Sequence[str], iteration: int = 0) -> str:
    """The member with the best dev mean after an iteration; of equals the first of ``names``.

    "" where none of them was measured on dev items.
    """
    return best_in(Table(ledger, names), iteration)


def best_in(table: Table, iteration: int = 0) -> str:
    """:func:`best_on_dev` of a table that is read already."""
    means = {
        name: macro(scores, table.domain)
        for name in table.members
        if (scores := table.of(iteration, name, "dev"))
    }
    return leading(means) if means else ""


def leading(levels: Mapping[Key, float]) -> Key:
    """Whose level is highest; the first of those that are equal but for the rounding of sums.

    ValueError where there is none.
    """
    return max(levels, key=lambda key: round(levels[key], 9))


def _choice(table: Table, member: str, number: int, seed: int) -> Choice:
    dev, test = table.of(number, member, "dev"), table.of(number, member, "test")
    level, interval = domain_mean(test, table.domain, derive_seed("report", seed, member, number))
    return Choice(
        member=member,
        iteration=number,
        dev=macro(dev, table.domain),
        num_dev=len(dev),
        test=level,
        num_test=len(test),
        test_interval=interval,
    )


def _collective(
    table: Table,
    iterations: tuple[int, int],
    weights: tuple[Mapping[str, float], Mapping[str, float]],
    seed: int,
    unvoted: Collection[str],
    maths: Collection[str],
) -> tuple[Change, ...]:
    """The pool answering together: one weighted vote an item over the members' answers."""

    def answers(number: int, member: str) -> dict[Item, tuple[str, int]]:
        given = table.answer.get((number, member), {})
        return {item: answer for item, answer in given.items() if item[0] not in unvoted}

    before, after = (
        vote(
            {member: answers(number, member) for member in table.members},
            {member: weight.get(member, 1.0) for member in table.members},
            lambda item: equivalence.same if item[0] in maths else eq,
        )
        for number, weight in zip(iterations, weights, strict=True)
    )
    return tuple(by_domain(table, COLLECTIVE, before, after, seed))
