"""Tables for a terminal; where the window is too narrow for one, a paragraph for each row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2
_LONG_WORD = 20
"""Cells; longer words are folded."""


class Columns:
    """Columns of words (``left``) may wrap; numbers keep their width, and none is cut.

    The first cell begins a row's paragraph; the others follow as ``header cell``, those that are
    empty left out.
    """

    def __init__(
        self, headers: Sequence[str], left: Collection[int] = (0,), *, wrap: bool = False
    ) -> None:
        self._headers = headers
        self._left = left
        self._wrap = wrap
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = zip(self._headers, *self._rows, strict=True)
        widths = [self._least(number, cells) for number, cells in enumerate(columns)]
        if sum(widths) + _GAP * len(widths) - _GAP <= options.max_width:
            yield self._table()
        else:
            yield from (self._paragraph(row) for row in self._rows)

    def _least(self, number: int, cells: Sequence[str]) -> int:
        """The width that a column needs; where it wraps, that of its longest word."""
        if not (self._wrap and number in self._left):
            return max(map(cell_len, cells))
        words = [word for cell in cells for word in cell.split()]
        return min(_LONG_WORD, max(map(cell_len, words), default=0))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False)
        for number, header in enumerate(self._headers):
            left = number in self._left
            table.add_column(
                Text(header, style="dim"),
                justify="left" if left else "right",
                no_wrap=not (left and self._wrap),
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def _paragraph(self, row: Sequence[str]) -> Text:
        named = [
            f"{header} {cell}".strip()
            for header, cell in zip(self._headers[1:], row[1:], strict=True)
            if cell.strip()
        ]
        return Text(f"{row[0]}: {', '.join(named)}" if named else row[0], overflow="fold")
