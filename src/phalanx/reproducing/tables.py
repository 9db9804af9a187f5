"""The tables as Markdown: the published figure beside what is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phalanx.report.words import plural
from phalanx.reproducing.configurations import Study
from phalanx.reproducing.filling import Cell, Value
from phalanx.reproducing.papers import Paper, PaperTable, Published

Place = tuple[str, int, str]
Cells = Mapping[Place, Cell]
UNKNOWN = "not known"
EMPTY = "–"
ABSENT = "no run"
MOST_ACROSS = 4
"""Columns that stand side by side; more than these go down."""


def readme(study: Study, cells: Cells, again: str) -> str:
    """The page: how to go on, the tables, what differs, what cannot be reproduced."""
    paper = study.paper
    ours = [cells[place] for place, row, _ in study.cells() if row.arm]
    filled, able = sum(bool(c.values) for c in ours), sum(not c.absent for c in ours)
    lacking = (
        f"; {len(ours) - able} lack something, said under the tables" if able < len(ours) else ""
    )
    lines = [
        f"# {paper.title}: the tables",
        "",
        f"Of {len(ours)} cells that Phalanx has a run for, {filled} are filled{lacking}. "
        f"Beside this page: {plural(len(study.runs), 'configuration')} in `configs/`, the plan in "
        "[plan.md](plan.md), all commands in `commands.sh` (`sh commands.sh`; stopped, it goes on "
        "where it was). "
        "This page is written anew, with what the runs have measured by then, by (in this folder):",
        "",
        f"    {again}",
        "",
        f'{paper.metric} "{UNKNOWN}": the figure is not known here. "{EMPTY}": not measured '
        "yet. In brackets: 95 % over items, not over seeds; with several seeds the mean, and the "
        "lowest and highest seed.",
        "",
        *[f"- {note}" for note in paper.notes],
        "",
        "Where figures come from: "
        + "; ".join(f"*{name}*: {words}" for name, words in paper.sources.items())
        + ".",
    ]
    for table in study.tables:
        lines += ["", *_table(study, table, cells)]
    return "\n".join(lines) + "\n"


def _table(study: Study, table: PaperTable, cells: Cells) -> Iterator[str]:
    called = f" ({table.paper} in the paper)" if table.paper else ""
    yield f"## {table.title}{called}"
    yield ""
    if table.columns:
        yield from _grid(study.paper, table, cells)
    else:
        yield from (f"- {row.title}: {row.absent}" for row in table.rows)
    yield from _details(table, cells)
    yield from _from_hub(study, table, cells)
    if table.cannot:
        yield "\nWhat cannot be reproduced here, and why:\n"
        yield from (f"- {text}" for text in table.cannot)


def _grid(paper: Paper, table: PaperTable, cells: Cells) -> Iterator[str]:
    """Rows as in the paper; where it has many columns, they go down and its rows across.

    Each figure has two places, "paper" and "here", or one where nothing is measured here.
    """
    heads = [f"{row.title}{f' ({row.source})' if row.source else ''}" for row in table.rows]
    columns = [column.title for column in table.columns.values()]
    pairs = [
        [
            (_figure(cells[table.id, position, name].published),
             _here(cells[table.id, position, name], paper.percent) if row.arm else None)
            for name in table.columns
        ]
        for position, row in enumerate(table.rows)
    ]  # fmt: skip
    if len(columns) > MOST_ACROSS:
        heads, columns = columns, heads
        pairs = [list(down) for down in zip(*pairs, strict=True)]
    double = [any(row[place][1] is not None for row in pairs) for place in range(len(columns))]
    top = [""]
    for title, both in zip(columns, double, strict=True):
        top += [f"{title}: paper", f"{title}: here"] if both else [f"{title}: paper"]
    yield _line(top)
    yield _line(["---", *["---:"] * (len(top) - 1)])
    for head, row in zip(heads, pairs, strict=True):
        texts = [head]
        for (figure, here), both in zip(row, double, strict=True):
            texts += [figure, here or ABSENT] if both else [figure]
        yield _line(texts)


def _line(texts: Sequence[str]) -> str:
    cells = [text.replace("|", "\\|") for text in texts]
    return f"| {' | '.join(cells)} |"


def _figure(published: Published | None) -> str:
    if published is None:
        return UNKNOWN
    value = published.value
    places = 3 if value < 1 else 1 if value == round(value, 1) else 2
    return f"{value:.{places}f}" + (f" ({published.note})" if published.note else "")


def _here(cell: Cell, percent: bool) -> str:
    if not cell.values or cell.mean is None:
        return EMPTY
    first = cell.values[0]
    text = number(cell.mean, first.unit, percent)
    if len(cell.values) > 1:
        found = [value.value for value in cell.values]
        low, high = (number(end, first.unit, percent) for end in (min(found), max(found)))
        text += f" ({low} to {high}, {len(found)} seeds)"
    elif first.interval is not None:
        low, high = (number(end, first.unit, percent) for end in first.interval)
        text += f" [{low} to {high}]"
    items = sorted({value.n for value in cell.values})
    text += f", n {items[0]}" if len(items) == 1 else f", n {items[0]} to {items[-1]}"
    partial = cell.pending or any(value.partial for value in cell.values)
    marks = [" *(partial)*"] * bool(partial) + [" *(other scale)*"] * cell.other_scale
    return text + "".join(marks)


def number(value: float, unit: str, percent: bool) -> str:
    """A share as the paper writes shares; ratings and points as they are."""
    if unit == "share":
        return f"{value * 100:.1f}" if percent else f"{value:.3f}"
    return f"{value:.2f}"


def _details(table: PaperTable, cells: Cells) -> Iterator[str]:
    """What the numbers are of, what is partial, and under which conditions; empty cells' needs."""
    mine = {place: cell for place, cell in cells.items() if place[0] == table.id}
    filled = {place: cell for place, cell in mine.items() if cell.values or cell.pending}
    if filled:
        yield "\nWhat the numbers are of:\n"
        for (_, position, name), cell in filled.items():
            where = f"{table.columns[name].title}, {table.rows[position].title}"
            parts = [*map(_of, cell.values), *cell.pending]
            yield f"- {where}: {'; '.join(parts)}"
    notes: dict[str, dict[str, None]] = {}
    for (_, _, name), cell in filled.items():
        for note in cell.notes:
            notes.setdefault(note, {})[table.columns[name].title] = None
    if notes:
        columns = {name for _, _, name in filled}
        yield "\nConditions that differ from the paper's, or may:\n"
        for note, titles in notes.items():
            everywhere = len(titles) == len(columns)
            yield f"- {note}" + ("" if everywhere else f" ({', '.join(titles)})")
    needs: dict[str, dict[str, None]] = {}
    for (_, position, name), cell in mine.items():
        if cell.absent and table.rows[position].arm:
            needs.setdefault(cell.absent, {})[table.columns[name].title] = None
    if needs:
        yield "\nCells that no run here can fill yet:\n"
        yield from (f"- {', '.join(titles)}: {reason}" for reason, titles in needs.items())
    absent = {row.title: row.absent for row in table.rows if row.absent and table.columns}
    if absent:
        yield "\nRows without a run here:\n"
        yield from (f"- {title}: {reason}" for title, reason in absent.items())


def _from_hub(study: Study, table: PaperTable, cells: Cells) -> Iterator[str]:
    """Which columns are aligned or measured on rows that ``--data`` does not have."""
    found: dict[str, dict[str, None]] = {}
    for place, row, column in study.cells():
        if place[0] != table.id or cells[place].absent:
            continue
        run = study.run_of(row, column)
        taken = {
            "aligned": run.config.instructions.source,
            "measured": run.benchmarks[column.benchmark],
        }
        for words, source in taken.items():
            if source.startswith("hub:"):
                found.setdefault(f"{words} on {source}", {})[column.title] = None
    if found:
        yield "\nCells that take rows from the hub:\n"
        yield from (f"- {', '.join(titles)}: {words}" for words, titles in found.items())


def _of(value: Value) -> str:
    return ", ".join(
        part for part in (f"{value.seed} {value.who}", value.partial, value.note) if part
    )
