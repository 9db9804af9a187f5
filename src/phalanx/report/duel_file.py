"""The browser of duels inside a report file: data, style and script in one fragment of HTML.

A file has room for so much. All rows' facts are in it (of very long runs: of the last ones), and
texts in a share of the rest: every text is cut in the middle at the longest length at which all
fit; where that would leave too little to read, only every second (third, ...) row has texts, and
none where there is no room at all. What is cut or left out is visible, and says what shows the
whole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from phalanx.ledger import Ledger
from phalanx.report.duel_texts import Detail, details
from phalanx.report.duels import Kind, browsable, lines, packed

FOLDER = Path(__file__).parent / "browser"
"""The browser's files; the live page serves them one by one."""
MAX_BYTES = 5_900_000
"""Of a whole report file."""

_MODULES = ("text.js", "table.js", "detail.js", "browser.js", "embedded.js")  # in order of need
_MAX_ROWS = 20_000
_PART = 100  # rows whose texts are packed together: what is unpacked to show one
_FRAME = 60  # bytes around a part
_SAMPLE = 400
_CAPS = (
    1_000_000_000, 100_000, 50_000, 25_000, 12_000, 8000, 6000, 4500, 3500, 2800, 2200, 1800, 1500,
    1200, 1000, 800,
)  # fmt: skip
"""Characters at which texts are cut; below the last one there is too little to read."""
_SAFETY = 0.92  # a sample says how long all will be, nearly
_TITLES = {
    "duels": "All duels", "pairs": "All pairs", "demonstrations": "All demonstrations",
    "contests": "All verdicts of contests", "answers": "All answers",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DuelFile:
    """The parts of a report file that browse: a section of its own, and the script's hash."""

    title: str
    data: Markup
    """Blocks of base64; no script runs in them."""
    attributes: dict[str, str]
    """Of the element that becomes the browser."""
    style: Markup
    script: Markup
    script_hash: str
    note: str


def duel_file(ledger: Ledger, room: int) -> DuelFile | None:
    """The browser with data of at most ``room`` bytes; None where there is nothing to browse.

    Reads a whole ledger's texts, so it takes seconds where there are ten thousand duels.
    """
    kinds = browsable(ledger)
    if not kinds:
        return None
    kind, total = next(iter(kinds.items()))
    rows = list(lines(ledger, kind))[-_MAX_ROWS:]
    script = inlined()
    style = (FOLDER / "browser.css").read_text(encoding="utf-8")
    room -= len(script) + len(style) + 2000
    while rows and len(_block(packed(rows, kind, total=total))) > room:
        rows = rows[len(rows) // 2 + 1 :]
    facts = _block(packed(rows, kind, total=total))
    ids = [row["id"] for row in rows]
    parts, cap, stride = _texts(ledger, kind, ids, room - len(facts))
    texted = len(range((len(ids) - 1) % stride, len(ids), stride)) if parts else 0
    shows = f"phalanx serve {ledger.folder} shows them whole"
    blocks = [f'<script type="text/plain" id="duel-facts">{facts}</script>']
    blocks += [f'<script type="text/plain" class="duel-texts">{part}</script>' for part in parts]
    note = _note(kind, cap, stride, shows) if texted else f"No text has room in this file: {shows}."
    return DuelFile(
        title=_TITLES[kind],
        data=Markup("\n".join(blocks)),
        attributes={
            "data-kind": kind,
            "data-count": str(len(rows)),
            "data-size": str(_PART),
            "data-stride": str(stride),
            "data-texts": str(texted),
            "data-missing": shows,
            "data-note": "The search sees the texts as they are in this file." if note else "",
        },
        style=Markup(style),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        note=note,
    )


def _note(kind: Kind, cap: int, stride: int, shows: str) -> str:
    notes = []
    if stride > 1:
        notes.append(f"texts are in this file for one in {stride} of the {kind}")
    if cap < _CAPS[0]:
        notes.append(f"texts of more than {cap:,} characters are cut in the middle")
    if not notes:
        return ""
    sentence = "; ".join(notes)
    return f"{sentence[0].upper()}{sentence[1:]}, because a report has to stay small: {shows}."


@cache
def inlined() -> str:
    """The modules as one script: without imports and exports, each name is known to all."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in _MODULES]
    script = "\n".join(re.sub(r"(?m)^import [^;]*;\n", "", text) for text in texts)
    return re.sub(r"(?m)^export ", "", script).replace("</script", "<\\/script")


def _block(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _sizes(ledger: Ledger, kind: Kind, ids: Sequence[str]) -> Callable[[int], float]:
    """How many bytes the texts of all rows take, by the length at which they are cut; by a sample
    of the rows, read once."""
    step = max(1, len(ids) // _SAMPLE)
    taken = list(ids[::step])
    found = details(ledger, kind, taken)

    @cache
    def size_at(cap: int) -> float:
        size = sum(
            len(_block(_json([found[one] for one in taken[at : at + _PART]], cap))) + _FRAME
            for at in range(0, len(taken), _PART)
        )
        return size * len(ids) / len(taken) / (_SAFETY if step > 1 else 1)

    return size_at


def _fitting(size_at: Callable[[int], float], room: float) -> tuple[int, int]:
    """(length at which texts are cut, of how many rows one has texts)."""
    stride = max(1, math.ceil(size_at(_CAPS[-1]) / max(1, room)))
    place = bisect_left(_CAPS, True, key=lambda cap: size_at(cap) / stride <= room)
    return _CAPS[min(place, len(_CAPS) - 1)], stride


def _texts(ledger: Ledger, kind: Kind, ids: Sequence[str], room: int) -> tuple[list[str], int, int]:
    """(packed texts, length at which they are cut, of how many rows one has them); no texts where
    not even one row's would fit."""
    if room <= 0 or not ids:
        return [], _CAPS[-1], 1
    size_at, hoped = _sizes(ledger, kind, ids), float(room)
    while True:
        cap, stride = _fitting(size_at, hoped)
        if stride > len(ids):
            return [], cap, 1
        # Counted from the end, so that the newest row has its texts.
        parts = _parts(ledger, kind, ids[(len(ids) - 1) % stride :: stride], cap, room)
        if parts is not None:
            return parts, cap, stride
        hoped *= 0.9  # the sample was of shorter texts than most


def _parts(ledger: Ledger, kind: Kind, ids: Sequence[str], cap: int, room: int) -> list[str] | None:
    """Packed texts, in order; None where there is no room for all."""
    parts: list[str] = []
    for start in range(0, len(ids), _PART):
        wanted = ids[start : start + _PART]
        found = details(ledger, kind, wanted)
        part = _block(_json([found[one] for one in wanted], cap))
        room -= len(part) + _FRAME
        if room < 0:
            return None
        parts.append(part)
    return parts


def _json(found: Sequence[Detail], cap: int) -> str:
    return json.dumps([cut(one, cap) for one in found], ensure_ascii=True, separators=(",", ":"))


def cut(value: Any, most: int) -> Any:
    """The same with texts of more than ``most`` characters as [head, number left out, tail].

    Numbers are rounded: nobody reads the tenth digit, and all of them do not compress.
    """
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, str) and len(value) > most:
        head, tail = most * 2 // 3, most // 3
        return [value[:head], len(value) - head - tail, value[len(value) - tail :]]
    if isinstance(value, dict):
        return {name: cut(one, most) for name, one in value.items()}
    if isinstance(value, list):
        return [cut(one, most) for one in value]
    return value
