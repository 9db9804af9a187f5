"""Inline SVG, drawn by hand: small, accessible, and coloured by the page's CSS variables.

Every chart is 420 units wide, so that its text stays readable on a phone; wide screens put two
side by side. Text goes through ``escape``; nothing else comes from outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

WIDTH = 420
NUM_COLOURS = 10
MAX_POINTS = 160
MAX_DRAWN = 4000
"""Points of all lines of a chart together: a page stays small however long the run is."""
_LEAST_POINTS = 6
_BAND_POINTS = 60
_DASHES = ("", "7 3", "2 3")


@dataclass(frozen=True, slots=True)
class Dot:
    """One row of a dot plot; shares in [0, 1], intervals as (low, high)."""

    label: str
    before: float
    before_interval: tuple[float, float]
    after: float
    after_interval: tuple[float, float]
    note: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a line chart; ``colour`` is a number that stays with a member. ``band`` is how
    far up and down from each point its uncertainty reaches; empty where there is none."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    band: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One bar of a flow: what is left, and in words what was lost on the way here."""

    label: str
    count: int
    lost: str = ""


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> Markup:
    body = "".join(parts)
    box = f'viewBox="0 0 {width:g} {height:g}"'
    return Markup(f'<svg {box} role="img" aria-label="{escape(label)}">{body}</svg>')


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers that span [low, high]: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if high <= low:
        # A flat line still gets an axis: a little above and below it.
        pad = abs(low) * 0.01 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def number(value: float, step: float) -> str:
    """As many decimals as the step between the ticks needs."""
    places = next((p for p in range(7) if abs(step * 10**p - round(step * 10**p)) < 1e-6), 7)
    return f"{value:,.{places}f}".replace("-", "−")


def dot_plot(
    rows: Sequence[Dot],
    label: str,
    highest: float = 0.0,
    *,
    names: tuple[str, str] = ("before", "after"),
    axis: str = "% right, test items",
) -> Markup:
    """Before (hollow) and after (filled) with 95 % intervals, in percent; the note at the right.

    The axis runs from 0 to at least ``highest``, so that two plots can share it. ``names`` say in
    the legend what is hollow and what is filled.
    """
    left, right, top, step = 104, WIDTH - 62, 34, 34
    ends = [end for row in rows for end in (*row.before_interval, *row.after_interval)]
    marks = ticks(min(0.0, *ends), max(highest, *ends))
    low, high = marks[0], marks[-1]

    def x(share: float) -> float:
        return left + (share - low) / (high - low) * (right - left)

    bottom = top + step * len(rows)
    second = 33 + 7 * len(names[0])
    parts = [
        f'<circle cx="{left + 5}" cy="10" r="4" class="before"/>',
        _text(left + 14, 14, names[0]),
        f'<circle cx="{left + second}" cy="10" r="4.5" class="after"/>',
        _text(left + second + 9, 14, names[1]),
        _text(WIDTH, 14, "change", "end", "muted"),
    ]
    for mark in marks:
        parts.append(_rule(x(mark), top - 6, x(mark), bottom, "grid"))
        text = number(100 * mark, 100 * (marks[1] - marks[0]))
        parts.append(_text(x(mark), bottom + 15, text, "middle", "muted"))
    parts.append(_text((left + right) / 2, bottom + 32, axis, "middle", "muted"))
    for place, row in enumerate(rows):
        middle = top + step * place + step / 2 - 3
        if row.strong:
            parts.append(_rule(0, middle - step / 2, WIDTH, middle - step / 2, "grid"))
        kind = "strong" if row.strong else ""
        parts.append(_text(left - 10, middle + 4, row.label, "end", kind))
        parts.append(_text(WIDTH, middle + 4, row.note, "end", f"num {kind}".strip()))
        pair = (
            ("before", row.before, row.before_interval, middle - 5, 4),
            ("after", row.after, row.after_interval, middle + 5, 4.5),
        )
        for name, value, (a, b), y, radius in pair:
            parts.append(_rule(x(a), y, x(b), y, f"whisker {name}"))
            parts.append(f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="{radius}" class="{name}"/>')
    return _svg(WIDTH, bottom + 38, label, parts)


def thinned(points: Sequence[Any], most: int = MAX_POINTS) -> list[Any]:
    """At most about ``most`` points: every n-th, and always the last."""
    stride = max(1, math.ceil(len(points) / most))
    kept = list(points[::stride])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _path(points: Sequence[tuple[float, float]], steps: bool) -> str:
    (x0, y0), *rest = points
    words = [f"M{x0:.1f} {y0:.1f}"]
    for x, y in rest:
        words.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
    return "".join(words)


def _spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, at least ``gap`` apart where the room allows it."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    placed = [0.0] * len(wanted)
    floor = low
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def dash_of(colour: int) -> str:
    """A pattern beside the colour, for whoever cannot tell the colours apart."""
    dash = _DASHES[colour % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def key(colour: int) -> Markup:
    """A short piece of a member's line, for a legend."""
    return Markup(
        f'<svg class="key" viewBox="0 0 26 8" aria-hidden="true"><path d="M0 4H26" '
        f'class="line c{colour % NUM_COLOURS}"{dash_of(colour)}/></svg>'
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where numbers stand in a line chart."""

    left: float
    right: float
    top: float
    bottom: float
    last_x: float
    low: float
    high: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        share = (y - self.low) / (self.high - self.low)
        across = self.left + x / self.last_x * (self.right - self.left)
        return across, self.bottom - share * (self.bottom - self.top)


def line_chart(
    lines: Sequence[Line],
    label: str,
    *,
    x_label: str,
    y_label: str,
    boundaries: Sequence[float] = (),
    steps: bool = False,
    named: bool = True,
    limits: Sequence[float] = (),
    width: int = WIDTH,
    height: int = 250,
) -> Markup:
    """Lines over a common axis. ``named`` writes each line's label at its end.

    ``boundaries`` are ends of iterations, drawn as vertical rules and numbered. ``limits`` are
    thresholds, drawn where they lie within what is shown.
    """
    values = [y for line in lines for _, y in line.points]
    values += [y + sign * spread for line in lines if line.band
               for (_, y), spread in zip(line.points, line.band, strict=True)
               for sign in (1, -1)]  # fmt: skip
    marks = ticks(min(values), max(values))
    step = marks[1] - marks[0]
    widest = max(len(number(mark, step)) for mark in marks)
    frame = _Frame(
        left=14 + 6.4 * widest,
        right=width - (62 if named else 8),
        top=22,
        bottom=height - 34,
        last_x=max(x for line in lines for x, _ in line.points) or 1.0,
        low=marks[0],
        high=marks[-1],
    )
    parts = [_text(0, 11, y_label, kind="muted")]
    for mark in marks:
        y = frame.at(0, mark)[1]
        parts.append(_rule(frame.left, y, frame.right, y, "grid"))
        parts.append(_text(frame.left - 6, y + 4, number(mark, step), "end", "muted"))
    parts += _x_axis(frame, boundaries)
    middle = (frame.left + frame.right) / 2
    parts.append(_text(middle, height - 5, x_label, "middle", "muted"))
    for limit in limits:
        if frame.low < limit < frame.high:
            y = frame.at(0, limit)[1]
            parts.append(_rule(frame.left, y, frame.right, y, "limit"))
            parts.append(_text(frame.right, y - 3, "warns", "end", "muted"))
    most = min(MAX_POINTS, max(_LEAST_POINTS, MAX_DRAWN // len(lines)))
    parts += [_band(frame, line, min(most, _BAND_POINTS)) for line in lines if line.band]
    parts += [_drawn(frame, line, steps, most) for line in lines]
    if named:
        parts += _names(frame, lines)
    return _svg(width, height, label, parts)


def _x_axis(frame: _Frame, boundaries: Sequence[float]) -> list[str]:
    """Numbers, or the iterations: as many names as have room."""
    parts = []
    if not boundaries:
        for mark in ticks(0, frame.last_x):
            if mark <= frame.last_x and mark == int(mark):
                x = frame.at(mark, frame.low)[0]
                parts.append(_text(x, frame.bottom + 13, number(mark, 1), "middle", "muted"))
    every = max(1, math.ceil(len(boundaries) * 30 / (frame.right - frame.left)))
    begin = 0.0
    for place, end in enumerate(boundaries, start=1):
        x = frame.at(end, frame.low)[0]
        if place % every == 0:
            parts.append(_rule(x, frame.top, x, frame.bottom, "edge"))
        if place % every == 1 or every == 1:
            middle = (frame.at(begin, frame.low)[0] + x) / 2
            parts.append(_text(middle, frame.bottom + 13, f"it. {place}", "middle", "muted"))
        begin = end
    return parts


def _drawn(frame: _Frame, line: Line, steps: bool, most: int) -> str:
    drawn = [frame.at(x, y) for x, y in thinned(line.points, most)]
    return (
        f'<path d="{_path(drawn, steps)}" class="line c{line.colour % NUM_COLOURS}"'
        f"{dash_of(line.colour)}><title>{escape(line.label)}</title></path>"
    )


def _band(frame: _Frame, line: Line, most: int) -> str:
    both = thinned(list(zip(line.points, line.band, strict=True)), most)
    above = [frame.at(x, y + spread) for (x, y), spread in both]
    below = [frame.at(x, y - spread) for (x, y), spread in reversed(both)]
    path = _path([*above, *below], steps=False)
    return f'<path d="{path}Z" class="band c{line.colour % NUM_COLOURS}"/>'


def _names(frame: _Frame, lines: Sequence[Line]) -> list[str]:
    parts = []
    ends = [frame.at(*line.points[-1])[1] for line in lines]
    places = _spread(ends, 12.5, frame.top, frame.bottom)
    for line, y, own in zip(lines, places, ends, strict=True):
        kind = f"c{line.colour % NUM_COLOURS}"
        x_end = frame.at(line.points[-1][0], frame.low)[0]
        parts.append(_rule(x_end, own, frame.right + 5, y, f"leader {kind}"))
        parts.append(_text(frame.right + 8, y + 4, line.label[:9], kind=f"name {kind}"))
    return parts


def flow(stages: Sequence[Stage], label: str) -> Markup:
    """Bars that get shorter from stage to stage, with what was lost in words below each."""
    whole = max(stage.count for stage in stages) or 1
    parts, y = [], 0.0
    for place, stage in enumerate(stages):
        lost = _wrapped(stage.lost, 66)
        for row in lost:
            parts.append(_text(8, y + 13, row, kind="muted"))
            y += 15
        y += 6 if lost else 0
        width = max(1.0, stage.count / whole * WIDTH)
        parts.append(
            f'<rect x="0" y="{y:.1f}" width="{width:.1f}" height="26" rx="2" class="s{place}"/>'
        )
        parts.append(_text(8, y + 17.5, f"{stage.count:,} {stage.label}", kind="inbar"))
        y += 30
    return _svg(WIDTH, y, label, parts)


def _wrapped(text: str, most: int) -> list[str]:
    rows: list[str] = []
    for word in text.split():
        if rows and len(rows[-1]) + 1 + len(word) <= most:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows


def time_bars(rows: Sequence[tuple[str, Sequence[tuple[str, float]], str]], label: str) -> Markup:
    """One stacked bar an iteration: (name, (phase, seconds) each, total in words)."""
    left, right = 84, WIDTH - 84
    most = max(sum(s for _, s in phases) for _, phases, _ in rows) or 1.0
    names = list(dict.fromkeys(name for _, phases, _ in rows for name, _ in phases))
    parts, x = [], 0.0
    for place, name in enumerate(names):
        parts.append(f'<rect x="{x:.1f}" y="3" width="10" height="10" class="p{place % 5}"/>')
        parts.append(_text(x + 15, 12, name))
        x += 28 + 6.6 * len(name)
    y = 24
    for name, phases, total in rows:
        parts.append(_text(left - 10, y + 15, name, "end"))
        x = float(left)
        for phase, seconds in phases:
            width = seconds / most * (right - left)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(0.0, width - 1):.1f}" height="21" '
                f'class="p{names.index(phase) % 5}"><title>{escape(phase)} {seconds:.1f} s</title>'
                "</rect>"
            )
            x += width
        parts.append(_text(x + 6, y + 15, total, kind="num"))
        y += 28
    return _svg(WIDTH, y, label, parts)
