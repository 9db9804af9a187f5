"""What came of the students: their accuracy, against whom, and at which cost."""

from __future__ import annotations

from phalanx.config.mixing import MIXTURE
from phalanx.report.moaa_records import Comparison, Level, MoaaFacts, Ratio, StageFacts
from phalanx.report.moaa_words import Section, TableView, p_value, stage_name
from phalanx.report.records import Change, RunFacts
from phalanx.report.words import percent, points, points_span, span

_ARROWS = {1: "▲", -1: "▼", 0: ""}


def result_section(facts: RunFacts, moaa: MoaaFacts) -> Section:
    """Verdicts in words, everybody's level, and every comparison with its interval and test."""
    result = moaa.result
    lines = [f"{result.note[:1].upper()}{result.note[1:]}."] if result.note else []
    lines += _unmeasured(moaa)
    if result.levels and not result.comparisons:
        lines.append("No student has been measured after it had learned.")
    lines += teacher_lines(moaa)
    lines += generation_lines(moaa)
    lines += ratio_lines(moaa)
    tables = []
    if result.levels:
        tables.append(
            TableView(
                "Accuracy",
                ("who", "what", "measured", "dev %", "test %", "95 %"),
                tuple(_level_row(level, moaa) for level in result.levels),
                f"Means over domains on {result.num_test} test items; {result.num_dev} others "
                "(dev) choose the best teacher.",
                left=(0, 1, 2),
            )
        )
    tables += _differences(moaa)
    if domains := _by_domain(facts, moaa):
        tables.append(domains)
    return Section("result", "Result", tuple(lines), tuple(tables))


def _differences(moaa: MoaaFacts) -> list[TableView]:
    """Every student's newest comparisons; the others as a detail."""
    every = moaa.result.comparisons
    newest = {one.name: one.iteration for one in every}
    now = [one for one in every if one.iteration == newest[one.name]]
    earlier = [one for one in every if one not in now]
    headers = ("student", "measured", "over", "diff.", "95 %", "p", "")
    note = (
        "▲▼ where the paired 95 % interval excludes 0; p is exact McNemar over all items, not "
        "adjusted for the number of comparisons."
    )
    titles = ("Differences on the same test items, in points", "The same of earlier measurements")
    return [
        TableView(
            title,
            headers,
            tuple(_comparison_row(one, moaa) for one in some),
            "" if detail else note,
            left=(0, 1, 2, 6),
            detail=detail,
        )
        for title, some, detail in zip(titles, (now, earlier), (False, True), strict=True)
        if some
    ]


def _unmeasured(moaa: MoaaFacts) -> list[str]:
    students = {name for name, *_ in moaa.students}
    missing = moaa.result.unmeasured
    lines = []
    if learned := [name for name in missing if name in students]:
        lines.append(f"Students that were not measured: {', '.join(learned)}.")
    if taught := [name for name in missing if name not in students]:
        lines.append(
            f"Teachers that were not measured: {', '.join(taught)}; any of them may be better than "
            "what is called the best teacher here."
        )
    return lines


def _by_domain(facts: RunFacts, moaa: MoaaFacts) -> TableView | None:
    """Students by domain, from the start to the last measurement; with one domain it says no more
    than the levels."""
    measured = facts.evaluation
    if len(measured.domains) < 2 or len(measured.iterations) < 2:
        return None
    rows = []
    for name, *_ in moaa.students:
        changes = [measured.change(name, domain) for domain in measured.domains]
        if any(changes):
            rows.append((name, *(_change(change) for change in changes)))
    if not rows:
        return None
    return TableView(
        f"Students by domain, % right at the start → after {when(moaa, measured.last)}",
        ("student", *measured.domains),
        tuple(rows),
        "▲▼ where the paired 95 % interval of that domain excludes 0.",
        left=(0,),
        detail=True,
    )


def _change(change: Change | None) -> str:
    if change is None:
        return "–"
    arrow = _ARROWS[change.direction]
    return f"{percent(change.before, 0)} → {percent(change.after, 0)} {arrow}".strip()


def when(moaa: MoaaFacts, iteration: int) -> str:
    """``start``, or the stage after which something was measured: ``1 dpo``."""
    if iteration == 0:
        return "start"
    stage = _stage(moaa, iteration)
    return stage_name(stage.generation, stage.kind)


def _stage(moaa: MoaaFacts, iteration: int) -> StageFacts:
    return next(stage for stage in moaa.stages if stage.iteration == iteration)


def _level_row(level: Level, moaa: MoaaFacts) -> tuple[str, ...]:
    builders = {name: data for name, data, _ in moaa.students}
    what = f"student of {builders[level.name]}" if level.role == "student" else level.role
    if level.role == MIXTURE:
        what = ""
    return (
        level.name,
        what,
        when(moaa, level.iteration),
        "–" if level.dev is None else percent(level.dev),
        percent(level.test),
        span(level.interval),
    )


def _comparison_row(one: Comparison, moaa: MoaaFacts) -> tuple[str, ...]:
    return (
        one.name,
        when(moaa, one.iteration),
        _other(one, moaa),
        points(one.change.difference),
        points_span(one.change.interval, 0),
        p_value(one.pvalue),
        _ARROWS[one.change.direction],
    )


def _other(one: Comparison, moaa: MoaaFacts) -> str:
    builders = {name: data for name, data, _ in moaa.students}
    then = when(moaa, one.other_iteration)
    return {
        "stage": f"itself, {then}",
        "generation": f"generation before, {then}",
        "teacher": f"best teacher {one.other}",
        "baseline": f"{one.other}, student of {builders.get(one.other, '?')}, {then}",
        MIXTURE: f"mixture, {then}",
    }[one.against]


def teacher_lines(moaa: MoaaFacts) -> list[str]:
    """For each student: does it pass its best teacher?"""
    last: dict[str, Comparison] = {}
    for one in moaa.result.comparisons:
        if one.against == "teacher":
            last[one.name] = one
    return [_teacher_line(one) for one in last.values()]


def _teacher_line(one: Comparison) -> str:
    change = one.change
    level = f"{percent(change.after)} against {percent(change.before)} %"
    difference = f"{points(change.difference)} points [{points_span(change.interval)}]"
    best = f"its best teacher {one.other}"
    if one.other == one.name:
        best = "its best teacher, itself at the start,"
    verdict = {
        1: f"{one.name} passes {best}",
        -1: f"{one.name} does not reach {best}",
        0: f"{one.name} and {best} cannot be told apart",
    }[change.direction].rstrip(",")
    text = f"{verdict}: {level}, {difference}, p {p_value(one.pvalue)}."
    if change.direction == 0 and one.detectable is not None:
        text += (
            f" With {change.n} items, differences below about {percent(one.detectable)} points "
            "would mostly go unnoticed."
        )
    return text


def generation_lines(moaa: MoaaFacts) -> list[str]:
    """Each student's newest generation beside the one before it; nothing in the first one."""
    last: dict[str, Comparison] = {}
    for one in moaa.result.comparisons:
        if one.against not in ("stage", "generation") or one.other_iteration == 0:
            continue
        now, then = (_stage(moaa, n).generation for n in (one.iteration, one.other_iteration))
        if now > then:
            last[one.name] = one
    return [
        f"{one.name}, generation {_stage(moaa, one.iteration).generation} over the one before: "
        f"{points(one.change.difference)} points [{points_span(one.change.interval)}], "
        f"p {p_value(one.pvalue)}{_clear(one)}."
        for one in last.values()
    ]


def _clear(one: Comparison) -> str:
    return {1: ", higher", -1: ", lower", 0: ", no clear change"}[one.change.direction]


def ratio_lines(moaa: MoaaFacts) -> list[str]:
    """``stu reaches 93.1 % [88 to 98] of the mixture's accuracy at 12.0 % of its tokens``."""
    return [_ratio_line(ratio) for ratio in moaa.result.ratios]


def _ratio_line(ratio: Ratio) -> str:
    text = (
        f"{ratio.student} reaches {percent(ratio.accuracy)} % [{span(ratio.interval)}] of the "
        "mixture's accuracy"
    )
    at = []
    if ratio.tokens is not None:
        at.append(f"{percent(ratio.tokens)} % of its tokens an answer")
    shown = percent(ratio.tokens) if ratio.tokens is not None else ""
    if ratio.weighted is not None and percent(ratio.weighted) != shown:
        at.append(f"{percent(ratio.weighted)} % of its tokens × parameters")
    if ratio.money is not None:
        at.append(f"{percent(ratio.money)} % of its price")
    if not at:
        return f"{text}; what the mixture's answers took is not recorded."
    return f"{text} at {', '.join(at)}."
