"""The table of the first result, from the ledgers of its runs alone.

Three measures of a pool: its best member, which is chosen on dev items and reported on test items,
the mean over its members, and the vote of its members, each with one voice. Domains weigh the same.
Every difference is paired by item, and has two intervals: over items (these seeds, other questions)
and over seeds (these questions, other pools).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy import stats

from phalanx.asking import stored_config
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import stored_pairs, with_label_noise
from phalanx.report.scores import weighted
from phalanx.statistics import Interval, clustered_mean, holm, seeds_apart_from_items
from phalanx.tasks import TaskItem, score
from phalanx.types import PreferencePair

COLLECTIVE = "collective"
Scores = dict[str, float]  # item -> share right


@dataclass(frozen=True)
class Run:
    """One arm of one seed. ``scores`` is keyed by iteration, member and split; ``answers``, as
    they were read, by iteration and member, has those that could be read."""

    members: tuple[str, ...]
    last: int
    domains: Mapping[str, str]
    scores: Mapping[tuple[int, str, str], Scores]
    answers: Mapping[tuple[int, str], Mapping[str, str]]
    counts: Mapping[str, float]

    def macro(self, values: Mapping[str, float]) -> float:
        """Mean of the domains' means."""
        parts: dict[str, list[float]] = defaultdict(list)
        for item, value in values.items():
            parts[self.domains[item]].append(value)
        return sum(sum(part) / len(part) for part in parts.values()) / len(parts)

    def best(self, iteration: int) -> str:
        """The best member on dev items; the first of equals."""
        return max(self.members, key=lambda name: self.macro(self.scores[iteration, name, "dev"]))

    def of_best(self, iteration: int) -> Scores:
        return self.scores[iteration, self.best(iteration), "test"]

    def of_pool(self, iteration: int) -> Scores:
        rows = [self.scores[iteration, name, "test"] for name in self.members]
        return {item: sum(row[item] for row in rows) / len(rows) for item in rows[0]}

    def of_vote(self, iteration: int) -> Scores:
        """The answer that most members give; of equals, the share that is right."""
        found = {}
        for item in self.scores[iteration, self.members[0], "test"]:
            votes: Counter[str] = Counter()
            right = {}
            for name in self.members:
                answer = self.answers[iteration, name].get(item)
                if answer is not None:
                    votes[answer] += 1
                    right[answer] = self.scores[iteration, name, "test"][item]
            most = [answer for answer, count in votes.items() if count == max(votes.values())]
            found[item] = sum(right[answer] for answer in most) / len(most) if most else 0.0
        return found


MEASURES: dict[str, Callable[[Run, int], Scores]] = {
    "best member": Run.of_best,
    "mean over members": Run.of_pool,
    "vote": Run.of_vote,
}


@dataclass(frozen=True)
class Difference:
    """Of two pools, per seed and over all; ``pvalues`` are over items and over seeds."""

    value: float
    by_seed: tuple[float, ...]
    items: Interval
    seeds: Interval | None
    pvalues: dict[str, float]
    adjusted: dict[str, float] = field(default_factory=dict)


def initial_best(folder: Path) -> str:
    """The best member before alignment, by dev items."""
    return read_run(folder).best(0)


def write_table(
    out: Path, seeds: Sequence[int], arms: Sequence[str], taught: Mapping[str, Sequence[str]]
) -> str:
    """Write results.json and results.md of the seeds whose every arm is finished; the text.

    ``taught``: the domains of each specialist.
    """
    runs: dict[tuple[int, str], Run] = {}
    missing = []
    for seed in seeds:
        found = {arm: _finished(out / f"seed-{seed}" / arm) for arm in arms}
        if names := lacking(found):
            missing.append(f"seed {seed} lacks {', '.join(names)}")
            continue
        runs |= {(seed, arm): run for arm, run in found.items() if run is not None}
    complete = sorted({seed for seed, _ in runs})
    if not complete:
        return f"no seed is complete: {'; '.join(missing)}"
    results = _results(runs, complete, arms) | {"missing": missing}
    results["taught"] = {
        arm: _taught([runs[seed, arm] for seed in complete], taught) for arm in arms
    }
    text = "\n".join(_markdown(results))
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / "results.md").write_text(text + "\n", encoding="utf-8")
    return text


def lacking(found: Mapping[str, Run | None]) -> list[str]:
    """Arms that are not finished, or have fewer iterations than another."""
    longest = max((run.last for run in found.values() if run is not None), default=0)
    return [arm for arm, run in found.items() if run is None or run.last < longest]


def _finished(folder: Path) -> Run | None:
    if not run_ledger_path(folder).exists():
        return None
    with Ledger(run_ledger_path(folder)) as ledger:
        if ledger.get("finished") is None:
            return None
    return read_run(folder)


def read_run(folder: Path) -> Run:
    """What a run measured and what it learned from."""
    with Ledger(run_ledger_path(folder)) as ledger:
        members = tuple(m.name for m in ledger.members() if "learn" in m.roles)
        scores: dict[tuple[int, str, str], Scores] = defaultdict(dict)
        answers: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
        domains = {}
        for row in ledger.query("SELECT * FROM evaluations ORDER BY task, item"):
            scores[row["iteration"], row["member"], row["split"]][row["item"]] = row["score"]
            domains[row["item"]] = row["domain"]
            if row["readable"]:
                answers[row["iteration"], row["member"]][row["item"]] = row["answer"]
        last = max(iteration for iteration, _, _ in scores)
        return Run(members, last, domains, scores, answers, _counts(ledger))


def _counts(ledger: Ledger) -> dict[str, float]:
    """What was asked, how the pairs were labelled, and what was learned."""
    config = stored_config(Path(), ledger.get("config") or "")
    found: Counter[str] = Counter()
    answers = {row["id"]: row["answer"] for row in ledger.query("SELECT * FROM instructions")}
    for number in range(1, config.iterations + 1):
        pairs = stored_pairs(ledger, number)
        kinds = Counter(kind(pair, answers) for pair in pairs)
        found["pairs"] += len(pairs)
        found["right chosen"] += kinds["right", "wrong"]
        found["wrong chosen"] += kinds["wrong", "right"]
        found["both right"] += kinds["right", "right"]
        found["both wrong"] += kinds["wrong", "wrong"]
        learned = with_label_noise(pairs, config)
        found["learned right"] += sum(kind(pair, answers)[0] == "right" for pair in learned)
    found["responses"] = ledger.count("responses", "purpose = 'answer'")
    found["judgments"] = ledger.count("judgments")
    (row,) = ledger.query(
        "SELECT sum(num_examples) AS examples, sum(json_extract(summary, '$.steps')) AS steps "
        "FROM trainings WHERE iteration > 0"
    )
    found["examples"], found["steps"] = row["examples"] or 0, int(row["steps"] or 0)
    (row,) = ledger.query("SELECT sum(seconds) AS seconds FROM phases")
    return {**found, "seconds": row["seconds"]}


def kind(pair: PreferencePair, answers: Mapping[str, str]) -> tuple[str, str]:
    """Whether the chosen and the rejected response are right, by the answer to the instruction."""
    known = pair.instruction
    item = TaskItem(known.id, known.text, answers[known.id], known.domain, "labels", "exact")
    chosen, rejected = (score(text, item).correct for text in (pair.chosen, pair.rejected))
    return ("right" if chosen else "wrong", "right" if rejected else "wrong")


def difference(pairs: Sequence[tuple[Run, Scores, Scores]], domain: str = "") -> Difference:
    """(run, before, after) of each seed, on the same items; ``domain``: of this one alone."""
    rows = []
    for run, before, after in pairs:
        items = sorted(item for item in after if not domain or run.domains[item] == domain)
        rows.append(weighted({item: after[item] - before[item] for item in items}, run.domains))
    by_seed = tuple(sum(row) / len(row) for row in rows)
    over_items = clustered_mean([sum(column) / len(column) for column in zip(*rows, strict=True)])
    pvalues = {"items": _student(over_items.value, over_items.error, over_items.clusters - 1)}
    seeds = None
    if len(rows) > 1:
        apart = seeds_apart_from_items(rows)
        seeds = apart.over_seeds
        error = apart.seed_deviation / apart.seeds**0.5
        pvalues["seeds"] = _student(apart.value, error, apart.seeds - 1)
    return Difference(over_items.value, by_seed, over_items.interval, seeds, pvalues)


def _student(value: float, error: float, freedom: int) -> float:
    """Two-sided p-value of Student's t."""
    if error == 0:
        return 1.0 if value == 0 else 0.0
    return float(2 * stats.t.sf(abs(value / error), freedom))


def _results(
    runs: Mapping[tuple[int, str], Run], seeds: Sequence[int], arms: Sequence[str]
) -> dict[str, Any]:
    results: dict[str, Any] = {"seeds": list(seeds), "arms": list(arms), "measures": {}}
    some = runs[seeds[0], COLLECTIVE]
    results["domains"] = sorted(set(some.domains.values()))
    results["items"] = {
        split: len(some.scores[0, some.members[0], split]) for split in ("dev", "test")
    }
    for name, of in MEASURES.items():
        results["measures"][name] = _measure(runs, seeds, arms, of, results["domains"])
    results["counts"] = {arm: _summed([runs[seed, arm].counts for seed in seeds]) for arm in arms}
    results["members"] = {
        f"{arm}, seed {seed}": _members(runs[seed, arm]) for seed in seeds for arm in arms
    }
    return results


def _measure(
    runs: Mapping[tuple[int, str], Run],
    seeds: Sequence[int],
    arms: Sequence[str],
    of: Callable[[Run, int], Scores],
    domains: Sequence[str],
) -> dict[str, Any]:
    """Each arm against the start, whole and by domain, and the collective against each arm."""
    starts = {seed: (runs[seed, COLLECTIVE], of(runs[seed, COLLECTIVE], 0)) for seed in seeds}
    ends = {key: of(run, run.last) for key, run in runs.items()}
    found: dict[str, Any] = {"start": _macros(starts.values()), "end": {}}
    gains, leads = {}, {}
    for arm in arms:
        mine = [(*starts[seed], ends[seed, arm]) for seed in seeds]
        found["end"][arm] = _macros((runs[seed, arm], ends[seed, arm]) for seed in seeds)
        gains[arm] = difference(mine)
        found.setdefault("gain by domain", {})[arm] = {
            domain: _plain(difference(mine, domain))
            | {"before": _mean_of(starts.values(), domain),
               "after": _mean_of([(runs[s, arm], ends[s, arm]) for s in seeds], domain)}
            for domain in domains
        }  # fmt: skip
        if arm != COLLECTIVE:
            leads[arm] = difference(
                [(runs[s, arm], ends[s, arm], ends[s, COLLECTIVE]) for s in seeds]
            )
    found["gain"] = {arm: _plain(gains[arm]) for arm in arms}
    adjusted = {
        over: dict(zip(leads, holm([one.pvalues[over] for one in leads.values()]), strict=True))
        for over in ("items", "seeds")
        if all(over in one.pvalues for one in leads.values())
    }
    found["lead of collective"] = {
        arm: _plain(one) | {"adjusted": {over: of_arm[arm] for over, of_arm in adjusted.items()}}
        for arm, one in leads.items()
    }
    return found


def _macros(found: Any) -> list[float]:
    return [run.macro(scores) for run, scores in found]


def _mean_of(found: Any, domain: str) -> float:
    means = []
    for run, scores in found:
        mine = [value for item, value in scores.items() if run.domains[item] == domain]
        means.append(sum(mine) / len(mine))
    return sum(means) / len(means)


def _plain(one: Difference) -> dict[str, Any]:
    return {
        "value": one.value,
        "by seed": list(one.by_seed),
        "items": list(one.items),
        "seeds": list(one.seeds) if one.seeds else None,
        "p": one.pvalues,
    }


def _summed(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in counts) for name in counts[0]}


def _members(run: Run) -> dict[str, Any]:
    """Test accuracy of every member by domain, start and end, and who was chosen on dev."""
    found: dict[str, Any] = {"best at start": run.best(0), "best at end": run.best(run.last)}
    for name in run.members:
        found[name] = {
            domain: [
                _mean_of([(run, run.scores[number, name, "test"])], domain)
                for number in (0, run.last)
            ]
            for domain in sorted(set(run.domains.values()))
        }
    return found


def _taught(runs: Sequence[Run], taught: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Mean test accuracy, start and end, of members at skills they were taught and at others."""
    cells: dict[str, list[tuple[float, float]]] = {"taught": [], "not taught": []}
    for run in runs:
        of_members = _members(run)
        for name, known in taught.items():
            for domain, (before, after) in of_members[name].items():
                kind = "taught" if domain in known else "not taught"
                cells[kind].append((before, after))
    return {
        kind: [sum(column) / len(column) for column in zip(*rows, strict=True)]
        for kind, rows in cells.items()
        if rows
    }


def _markdown(results: Mapping[str, Any]) -> Iterator[str]:
    seeds, items = results["seeds"], results["items"]
    yield f"Seeds {', '.join(map(str, seeds))}; {items['dev']} dev and {items['test']} test items."
    for name, found in results["measures"].items():
        yield from ("", f"### {name[0].upper()}{name[1:]}", "")
        yield from _main_table(results["arms"], found)
        yield ""
        yield from _domain_table(results, found)
    yield from ("", "### What was asked and learned, all seeds together", "")
    yield from _count_table(results)
    if any(results["taught"].values()):
        yield from ("", "### Skills that a member was taught, and others", "")
        yield from _taught_table(results)
    for line in results["missing"]:
        yield from ("", f"Not finished: {line}.")


def _main_table(arms: Sequence[str], found: Mapping[str, Any]) -> Iterator[str]:
    yield "| arm | start → end | gain, [over items] [over seeds] | by seed | collective's lead | p (Holm): items, seeds |"  # noqa: E501
    yield "|---|---|---|---|---|---|"
    start = _mean(found["start"])
    for arm in arms:
        gain = found["gain"][arm]
        by_seed = ", ".join(f"{100 * value:+.1f}" for value in gain["by seed"])
        lead, pvalues = "", ""
        if arm in found["lead of collective"]:
            one = found["lead of collective"][arm]
            lead = _with_intervals(one)
            pvalues = ", ".join(f"{one['adjusted'][over]:.3f}" for over in one["adjusted"])
        ends = f"{100 * start:.1f} → {100 * _mean(found['end'][arm]):.1f}"
        yield f"| {arm} | {ends} | {_with_intervals(gain)} | {by_seed} | {lead} | {pvalues} |"


def _domain_table(results: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    domains = results["domains"]
    yield f"| arm | {' | '.join(domains)} |"
    yield "|---" * (len(domains) + 1) + "|"
    for arm in results["arms"]:
        cells = []
        for domain in domains:
            one = found["gain by domain"][arm][domain]
            low, high = one["items"]
            cells.append(
                f"{100 * one['before']:.1f} → {100 * one['after']:.1f} "
                f"[{100 * low:+.1f}, {100 * high:+.1f}]"
            )
        yield f"| {arm} | {' | '.join(cells)} |"


def _count_table(results: Mapping[str, Any]) -> Iterator[str]:
    yield "| arm | responses | judgments | pairs kept | one right: the right one chosen | both right, both wrong | learned responses that are right | examples, steps | minutes |"  # noqa: E501
    yield "|---" * 9 + "|"
    for arm in results["arms"]:
        n = results["counts"][arm]
        decidable = n["right chosen"] + n["wrong chosen"]
        yield (
            f"| {arm} | {n['responses']:.0f} | {n['judgments']:.0f} | {n['pairs']:.0f} "
            f"| {n['right chosen']:.0f} of {decidable:.0f} "
            f"| {n['both right']:.0f}, {n['both wrong']:.0f} "
            f"| {n['learned right']:.0f} of {n['pairs']:.0f} "
            f"| {n['examples']:.0f}, {n['steps']:.0f} | {n['seconds'] / 60:.1f} |"
        )


def _taught_table(results: Mapping[str, Any]) -> Iterator[str]:
    yield "| arm | taught: start → end | not taught: start → end |"
    yield "|---|---|---|"
    for arm in results["arms"]:
        cells = [
            " → ".join(f"{100 * value:.1f}" for value in results["taught"][arm].get(kind, []))
            for kind in ("taught", "not taught")
        ]
        yield f"| {arm} | {' | '.join(cells)} |"


def _with_intervals(one: Mapping[str, Any]) -> str:
    text = f"{100 * one['value']:+.1f}"
    for over in ("items", "seeds"):
        if one[over]:
            low, high = one[over]
            text += f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return text


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
