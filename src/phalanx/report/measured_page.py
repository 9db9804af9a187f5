"""The headline of an evaluation's page, and how its numbers are to be read."""

from __future__ import annotations

from phalanx.report.measured_records import Measured
from phalanx.report.measured_views import comparison_line
from phalanx.report.words import percent, plural, points, points_span, span


def measured_headline(measured: Measured) -> list[dict[str, str]]:
    """At most two numbers: the best on test, and the mean change, or the largest of several."""
    items = []
    if measured.best:
        best = measured.best
        items.append(
            {
                "name": "Best by dev, on test",
                "value": f"{percent(best.test)} %",
                "note": f"{best.subject} [{span(best.interval)}], {plural(best.num_test, 'item')}",
            }
        )
    compared = [(measured.overall(rows), rows) for rows in measured.comparisons.values()]
    found = [(line, rows) for line, rows in compared if line]
    if found:
        line, rows = max(found, key=lambda pair: abs(pair[0].difference))
        change = f"{points(line.difference)} points"
        on = f" on {line.task}" if len(rows) > 1 and line.task else ""
        largest = f"; the largest change of {len(found)}" if len(found) > 1 else ""
        items.append(
            {
                "name": f"{line.subject} minus {line.other}{on}",
                "value": change if line.direction else f"unclear ({change})",
                "note": f"[{points_span(line.interval, 0)}] {comparison_line(rows)}{largest}",
            }
        )
    if not items:
        items += [
            {
                "name": f"{one.subject} on {one.task}",
                "value": f"{percent(one.score)} %",
                "note": f"[{span(one.interval)}], {plural(one.n, 'item')}",
            }
            for one in measured.scores[:3]
        ]
    return items


def measured_notes(measured: Measured, seed: int) -> list[str]:
    """What the numbers do and do not say; nothing of an evaluation without rows."""
    if not measured.subjects:
        return []
    lines = [
        "Scores and comparisons are of all items; “best by dev” is chosen on the dev items alone "
        "and reported on the others (evaluate.dev_share).",
        "Intervals are 95 %. Wilson's where every item is right or wrong, Tango's for their "
        "differences; else items are resampled (several samples of an item as one). Those of the "
        "mean are made of the tasks'. They say what other items could change, and do not cover "
        f"another seed than {seed}, another training or other responses.",
        "Items that failed or could not be read count as wrong, and are counted beside the score.",
        "Holm keeps the chance of any false claim over the tasks of one comparison below 5 %. "
        "With many comparisons, about one in twenty has one by chance alone.",
    ]
    return lines if measured.paired else lines[:3]
