"""From the facts of a run by any other method to sections of words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.report.moaa_words import Section, TableView, p_value
from phalanx.report.records import Change, RunFacts, TrainingFacts
from phalanx.report.rivals import MadeRows, Measured, RivalFacts
from phalanx.report.servers import repeatability
from phalanx.report.words import (
    DROP_WORDS,
    counted,
    duration,
    percent,
    plural,
    points,
    points_span,
    span,
    verdict,
)

_SHOWN = 5
"""Iterations that a table of figures has at most."""
_WHAT = {"pairs": "pairs", "demonstrations": "demonstrations", "rated": "rated responses"}
_HEADS = {
    "num_instructions": "instructions",
    "mean_length_chosen": "mean length of the chosen, characters",
    "mean_length_rejected": "mean length of the rejected, characters",
    "share_ties": "share of ties",
    "num_samples": "responses sampled",
    "num_samples_failed": "responses that failed",
    "num_samples_empty": "empty responses",
    "num_samples_truncated": "responses cut at the token limit",
}
_SCORES = (
    "Of equal texts of a group one is scored, and a request that several learners share is sent "
    "once. A judge's scores are one comparison a group, and one judgment: best against worst."
)
_NOTHING = (
    "Warning: no row was kept, so nothing can be learned. Look at the reasons, and at the "
    "responses (phalanx export RUN responses)."
)


def rival_sections(facts: RunFacts, rival: RivalFacts) -> list[Section]:
    """Result of answering together, what was made, who learned, the method's own figures."""
    found = [
        _result(rival),
        _made(rival.made),
        _trained(facts.trainings),
        _figures(facts, rival.figures or {}),
    ]
    return [section for section in found if section.lines or section.tables]


def _result(rival: RivalFacts) -> Section:
    """Everybody's level, and what all together are over the best one alone."""
    if not rival.levels:
        return Section("result", "Result")
    lines, overall = [], next((c for c in rival.over_best if not c.domain), None)
    if overall:
        lines.append(
            f"Together over {rival.best}, the best on dev items: {points(overall.difference)} "
            f"points [{points_span(overall.interval)}], {verdict(overall)}."
        )
    elif rival.best:
        lines.append(f"Best on dev items: {rival.best}.")
    else:
        lines.append("Nobody was measured on dev items, so nobody is called the best.")
    tables = [
        TableView(
            "Accuracy",
            ("who", "dev %", "test %", "95 %"),
            tuple(_level(one) for one in rival.levels),
            _items(rival.levels[0]),
            left=(0,),
        )
    ]
    if domains := [change for change in rival.over_best if change.domain]:
        tables.append(
            TableView(
                f"Together over {rival.best} alone, by domain",
                ("domain", "items", "alone %", "together %", "points", "95 %", "p", "Holm"),
                tuple(_domain(change) for change in domains),
                "p: exact McNemar where every item is right or wrong, else of flipped signs. Holm "
                "adjusts it over the domains.",
                left=(0,),
            )
        )
    return Section("result", "Result", tuple(lines), tuple(tables))


def _items(one: Measured) -> str:
    dev = f"; {one.num_dev} others (dev) choose the best member" if one.num_dev else ""
    return f"Means over domains on {one.num_test} test items{dev}."


def _level(one: Measured) -> tuple[str, ...]:
    name = f"together ({one.name})" if one.together else one.name
    dev = "–" if one.dev is None else percent(one.dev)
    return name, dev, percent(one.test), span(one.interval)


def _domain(change: Change) -> tuple[str, ...]:
    return (
        change.domain, f"{change.n:,}", percent(change.before), percent(change.after),
        points(change.difference), points_span(change.interval, 0),
        *("–" if p is None else p_value(p) for p in (change.pvalue, change.adjusted)),
    )  # fmt: skip


def _made(made: Sequence[MadeRows]) -> Section:
    rows = tuple(
        (str(one.iteration), one.source or "–", _WHAT[one.what], f"{one.instructions:,}",
         f"{one.rows:,}", f"{one.kept:,}", counted(one.dropped, DROP_WORDS))
        for one in made
    )  # fmt: skip
    if not rows:
        return Section("made", "What was made")
    table = TableView(
        "Rows to learn from",
        ("it.", "of", "what", "instr.", "made", "kept", "dropped"),
        rows,
        "Nothing is lost: made = kept + dropped.",
        left=(0, 1, 2, 6),
    )
    lines = () if any(one.kept for one in made) else (_NOTHING,)
    return Section("made", "What was made", lines, (table,))


def _trained(trainings: Sequence[TrainingFacts]) -> Section:
    rows = []
    for one in trainings:
        loss = one.last("loss")
        lost = {key.replace("_", " "): count for key, count in one.num_dropped.items() if count}
        rows.append(
            (str(one.iteration), one.member, f"{one.num_examples:,}",
             "–" if loss is None else f"{loss:.3f}", duration(one.seconds), counted(lost))
        )  # fmt: skip
    if not rows:
        return Section("learned", "Who learned")
    table = TableView(
        "Trainings",
        ("it.", "member", "examples", "last loss", "time", "dropped"),
        tuple(rows),
        left=(0, 1, 5),
    )
    return Section("learned", "Who learned", (), (table,))


def _figures(facts: RunFacts, figures: Mapping[str, Mapping[int, float]]) -> Section:
    """Those of the whole pool, and as a detail those of single members and rarer ones."""
    names = {member.name for member in facts.members}
    whole = {key: row for key, row in figures.items() if not names & set(key.split("."))}
    single = {key: row for key, row in figures.items() if key not in whole}
    tables = []
    by = "while all together answered" if facts.rival and facts.rival.answers else "by iteration"
    for title, some, detail in (
        (f"The method's figures {by}", whole, False),
        ("The same of single members", single, True),
    ):
        if some:
            tables.append(_figure_table(title, some, detail))
    return Section("figures", "Figures", (), tuple(tables))


def _figure_table(
    title: str, figures: Mapping[str, Mapping[int, float]], detail: bool
) -> TableView:
    numbers = sorted({number for row in figures.values() for number in row})
    shown = numbers if len(numbers) <= _SHOWN else [numbers[0], *numbers[1 - _SHOWN :]]
    rows = tuple(
        (figure_words(key), *(_value(row.get(number)) for number in shown))
        for key, row in figures.items()
    )
    left_out = len(numbers) - len(shown)
    notes = [f"{plural(left_out, 'iteration')} between: see the ledger's states."] * bool(left_out)
    notes += [_SCORES] * any(key.startswith("scores.asked") for key in figures)
    headers = ("", *(f"it. {number}" if number else "count" for number in shown))
    return TableView(title, headers, rows, " ".join(notes), left=(0,), detail=detail)


def figure_words(key: str) -> str:
    """A figure's name as it is read.

    >>> figure_words("labels.no_majority")
    'labels: no majority'
    """
    head, *tail = key.split(".")
    head = _HEADS.get(head, head.removeprefix("num_").replace("_", " "))
    return ": ".join([head, *(DROP_WORDS.get(part, part.replace("_", " ")) for part in tail)])


def _value(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"


# The page ----------------------------------------------------------------------------------------


def rival_headline(facts: RunFacts, rival: RivalFacts) -> list[dict[str, str]]:
    """Together and the best alone; of a method that trains, what was learned from."""
    together = next((one for one in rival.levels if one.name == facts.method), None)
    best = next((one for one in rival.levels if one.name == rival.best), None)
    items = [
        {
            "name": name,
            "value": f"{percent(one.test)} %",
            "note": f"95 % [{span(one.interval)}], {one.num_test} items",
        }
        for name, one in (
            (f"Best alone: {rival.best}", best),
            (f"Together: {facts.method}", together),
        )
        if one
    ]
    account = facts.accounting
    if rival.answers or rival.kind == "none":
        return items
    whole = [("demonstrations", account.demonstrations_kept, account.num_demonstrations),
             ("preference pairs", account.pairs_kept, account.num_pairs)]  # fmt: skip
    learned = [(what, kept, made) for what, kept, made in whole if made]
    return [
        *items,
        {
            "name": "Kept to learn from",
            "value": " + ".join(f"{kept:,}" for _, kept, _ in learned) or "0",
            "note": " and ".join(f"of {made:,} {what}" for what, _, made in learned) or "no rows",
        },
    ]


def rival_notes(facts: RunFacts, rival: RivalFacts) -> list[str]:
    """What the numbers do and do not say."""
    lines = [f"{facts.method}: {rival.title} ({rival.paper})."]
    if rival.levels:
        lines.append(
            "Intervals are 95 % and resample the items, in pairs where two are compared. They do "
            "not cover another seed, another pool, or sampling noise."
        )
    elif facts.evaluation.num_test:
        measured = facts.evaluation
        lines.append(
            f"n: {measured.num_test} test items and {measured.num_dev} dev items over "
            f"{plural(len(measured.domains), 'domain')}. Intervals are 95 % and say what another "
            "draw of items could change, not another seed or pool."
        )
    if remote := repeatability(facts):
        lines.append(remote)
    lines.append(
        f"This is one run with one seed ({facts.seed}). Before concluding anything, repeat it with "
        "other seeds, and beside other methods at equal cost (phalanx compare)."
    )
    if not rival.answers and rival.kind != "none":
        lines.append(_labels(facts))
    return lines


def _labels(facts: RunFacts) -> str:
    """Which labels, made by whoever is no member, were learned from."""
    if facts.method == "spin":
        return "The reference answers of the instructions were learned from: this is supervised."
    if facts.method == "preference_file":
        return "The labels of the file were learned from: this is not label-free."
    if facts.config[facts.method].get("judge_seed"):
        return (
            "The demonstrations of judging of the file were learned from: this is not label-free."
        )
    return (
        "No label was used for the training: reference answers, where instructions have them, "
        "serve this report alone."
    )
