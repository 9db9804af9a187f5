"""The table of the results, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: what was measured, the figure, its target, whether it is met, and a note."""
    lines = ["| measured | figure | target | met | note |", "|---|---|---|---|---|"]
    for record in records:
        figure = record.get("ratio", record.get("value"))
        shown = "failed" if figure is None else f"{_number(figure)} {record['unit']}"
        met = {True: "yes", False: "no", None: ""}[record["met"]]
        note = str(record.get("note", "")).replace("|", "/")
        lines.append(
            f"| {record['name']} | {shown} | {record.get('target', '')} | {met} | {note} |"
        )
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def write_page(results: dict[str, Any], page: Path) -> None:
    """Put the table and the machine between the two marks of the page."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{page} needs the lines {BEGIN} and {END}, once each")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    about = results["machine"]
    machine = (
        f"Taken on {about['date']}: {about['cores']} cores of {about['cpu']}, "
        f"{about['memory_gib']} GiB, {about.get('gpu', 'no GPU used')}; Python {about['python']}, "
        f"torch {about['torch']}, transformers {about['transformers']}, TRL {about['trl']}, "
        f"PEFT {about['peft']}; model `{about['model']}`; load before "
        f"{about['load_before']:.1f}."
    )
    body = f"{BEGIN}\n{machine}\n\n{table(results['items'])}\n{END}"
    page.write_text(head + body + tail, encoding="utf-8")
