"""The page's and the Markdown's headline and notes of a run of the method moaa."""

from __future__ import annotations

from phalanx.report.moaa_records import MoaaFacts
from phalanx.report.moaa_result import ratio_lines
from phalanx.report.records import RunFacts
from phalanx.report.servers import repeatability
from phalanx.report.words import percent, plural, span


def moaa_headline(facts: RunFacts, moaa: MoaaFacts) -> list[dict[str, str]]:
    """Each student's way from the start to now (at most two), its share of the mixture, and what
    was made of it."""
    items = []
    result = moaa.result
    for name, data, _ in moaa.students[:2]:
        mine = [level for level in result.levels if level.name == name and level.role == "student"]
        if len(mine) > 1:
            items.append(
                {
                    "name": f"{name}, student of {data}",
                    "value": f"{percent(mine[0].test)} → {percent(mine[-1].test)} %",
                    "note": f"95 % [{span(mine[-1].interval)}], {result.num_test} items",
                }
            )
    for ratio in result.ratios[:1]:
        items.append(
            {
                "name": f"{ratio.student}, of the mixture's accuracy",
                "value": f"{percent(ratio.accuracy)} %",
                "note": f"95 % [{span(ratio.interval)}]; "
                + (ratio_lines(moaa)[0].partition(" at ")[2].rstrip(".") or "cost not recorded"),
            }
        )
    account = facts.accounting
    items.append(
        {
            "name": "Learned from",
            "value": f"{account.demonstrations_kept:,} + {account.pairs_kept:,}",
            "note": f"demonstrations (of {account.num_demonstrations:,}) and preference pairs "
            f"(of {account.num_pairs:,})",
        }
    )
    return items


def moaa_finding(moaa: MoaaFacts) -> str:
    """The title of the result: a count of students, not a claim."""
    last = {one.name: one for one in moaa.result.comparisons if one.against == "teacher"}
    if not last:
        return "Result"
    up, down = (sum(o.change.direction == sign for o in last.values()) for sign in (1, -1))
    same = len(last) - up - down
    parts = [f"{up} above it", f"{down} below it", f"{same} not told apart"]
    shown = [part for part, count in zip(parts, (up, down, same), strict=True) if count]
    return f"Of {plural(len(last), 'student')} beside the best teacher: {', '.join(shown)}"


def moaa_notes(facts: RunFacts, moaa: MoaaFacts) -> list[str]:
    """What the numbers do and do not say."""
    result = moaa.result
    lines = []
    if result.levels:
        lines += [
            f"n: {result.num_test} test items and {result.num_dev} dev items. Members answer "
            "greedily; the mixture's proposers write by their own settings, its aggregator "
            "greedily.",
            "Intervals are 95 % and resample the items, in pairs where two are compared. They do "
            "not cover another seed, another pool, or sampling noise in the data that was made.",
            "The best teacher is chosen on dev items, as it was at the start. p-values are not "
            f"adjusted: of {plural(len(result.comparisons), 'comparison')}, about one in twenty "
            "is below .05 by chance alone.",
        ]
    if remote := repeatability(facts):
        lines.append(remote)
    lines.append(
        f"This is one run with one seed ({facts.seed}). Before concluding anything, repeat it with "
        "other seeds, and beside students of random and best_of."
    )
    lines.append(
        "No label was used for the alignment: reference answers, where instructions have them, "
        "serve this report alone."
    )
    return lines
