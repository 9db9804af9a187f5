"""Pairs for testing judges, from whichever file they are in: the format is named, or found out.

A format is the benchmark; its rows may have the published columns, or be prepared ones of two
choices (``{id, prompt, choices, answer, meta}``). ``pairs`` are rows of one's own::

    {"instruction": ..., "response_a": ..., "response_b": ..., "label": "A",
     "group": ..., "writer_a": ..., "writer_b": ..., "family_a": ..., "family_b": ...}

or ``chosen`` and ``rejected`` instead of the two responses and the label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from phalanx.benchmarks.fields import Fields, Unfit, read_records
from phalanx.benchmarks.judgebench import GROUPS
from phalanx.benchmarks.readers import (
    read_judgebench,
    read_llmbar,
    read_ppe_preferences,
    read_ppe_responses,
    read_prepared_pairs,
    read_rewardbench,
)
from phalanx.benchmarks.records import ManyResponses, Pair, Side
from phalanx.benchmarks.rewardbench import SUBSETS
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.rows import PROMPTS, read_rows

Format = Literal["judgebench", "llmbar", "rewardbench", "ppe", "ppe-responses", "pairs"]
FORMATS: tuple[Format, ...] = get_args(Format)
_SPLITS = {"judgebench": "gpt", "rewardbench": "filtered", "ppe": "test"}
"""The split of a hub data set or folder in which a format's published rows are; else train."""

# Columns that tell a format, the most telling first.
_TELLING: tuple[tuple[Format, tuple[str, ...]], ...] = (
    ("judgebench", ("pair_id", "response_A", "response_B")),
    ("llmbar", ("input", "output_1", "output_2")),
    ("ppe", ("question_id", "response_1", "response_2", "winner")),
    ("ppe-responses", ("question_id", "response_1", "scores")),
    ("rewardbench", ("prompt", "chosen", "rejected", "subset", "id")),
    ("pairs", ("response_a", "response_b")),
    ("pairs", ("chosen", "rejected")),
)
_PREPARED = ("prompt", "choices", "answer")
_GROUPS = ("group", "subset", "category", "domain")
_WRITERS = (
    ("writer_a", "writer_b"), ("model_a", "model_b"), ("chosen_model", "rejected_model"),
)  # fmt: skip
_LABELS: dict[str, Side] = {
    "A": "A", "B": "B", "response_a": "A", "response_b": "B", "tie": "tie",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PairFile:
    """``pairs``, or for ``ppe-responses`` the prompts with ``many`` responses; ``left_out`` counts
    what the file has besides, by the reason."""

    where: str
    format: Format
    pairs: tuple[Pair, ...] = ()
    many: tuple[ManyResponses, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()

    def limited(self, limit: int | None, seed: int) -> PairFile:
        """At most ``limit`` pairs (or prompts), by a seeded draw, in the order of the file.

        Raises ConfigError for a limit below 1.
        """
        if limit is not None and limit < 1:
            raise ConfigError(f"--limit must be at least 1, got {limit}", self.where)
        num_over = len(self.pairs) + len(self.many) - (limit or 0)
        if limit is None or num_over <= 0:
            return self
        return replace(
            self,
            pairs=_drawn(self.pairs, limit, seed),
            many=_drawn(self.many, limit, seed),
            left_out=(*self.left_out, ("not drawn", num_over)),
        )


def read_pair_file(path: str, format: Format | Literal["auto"] = "auto") -> PairFile:
    """The pairs of a file. Raises ConfigError that lists every row that does not fit.

    ``auto`` goes by the columns; prepared rows are those of the benchmark that all their groups
    belong to.
    """
    split = _SPLITS.get(format, "train")
    columns = {name for row in read_rows(path, split=split).rows for name in row.fields}
    if columns >= set(_PREPARED):
        if format == "ppe-responses":
            raise ConfigError(
                "prepared rows hold two responses; ppe-responses needs the published columns "
                "(question_id, prompt, model_name, response_1 ..., scores)", path,
            )  # fmt: skip
        pairs = read_prepared_pairs(path, split=split)
        return PairFile(path, _benchmark_of(pairs) if format == "auto" else format, pairs)
    found = _by_columns(path, columns) if format == "auto" else format
    if found == "ppe-responses":
        return PairFile(path, found, many=read_ppe_responses(path, split=split))
    return PairFile(path, found, _reader(found)(path, split=split))


def _by_columns(path: str, columns: set[str]) -> Format:
    for name, telling in _TELLING:
        if columns >= set(telling):
            return name
    known = "; ".join(f"{name}: {', '.join(telling)}" for name, telling in _TELLING)
    raise ConfigError(
        f"the columns tell no format of pairs: {', '.join(sorted(columns)) or 'there are none'}; "
        f"name it with --format, or rename columns ({known}; prepared: {', '.join(_PREPARED)})",
        path,
    )


def _benchmark_of(pairs: Sequence[Pair]) -> Format:
    groups = {pair.group for pair in pairs}
    if groups <= set(GROUPS):
        return "judgebench"
    if groups <= set(SUBSETS):
        return "llmbar" if all(group.startswith("llmbar") for group in groups) else "rewardbench"
    return "pairs"


def _reader(format: Format) -> Callable[..., tuple[Pair, ...]]:
    if format == "llmbar":
        return partial(read_llmbar, subset="llmbar")
    return {
        "judgebench": read_judgebench,
        "rewardbench": read_rewardbench,
        "ppe": read_ppe_preferences,
        "pairs": read_own_pairs,
    }[format]


def read_own_pairs(path: str, *, split: str = "train") -> tuple[Pair, ...]:
    """Rows of one's own: see the top of this file. An id is its own column, or the row's place.

    ``label`` is A, B or tie (``response_a`` and ``response_b`` as well); writers may also be
    called ``model_a`` and ``model_b``, or ``chosen_model`` and ``rejected_model``.
    """

    def make(row: Fields) -> Pair:
        sides, label = _sides(row)
        return Pair(
            id=row.name("id") if "id" in row else str(row.number),
            instruction=row.words(_first(row, PROMPTS, "an instruction")),
            response_a=row.text(sides[0]),
            response_b=row.text(sides[1]),
            label=label,
            group=next((row.text(name) for name in _GROUPS if name in row), ""),
            writers=_both(row, _WRITERS),
            families=_both(row, (("family_a", "family_b"),)),
        )

    return read_records(path, make, lambda pair: pair.id, split=split)


def _sides(row: Fields) -> tuple[tuple[str, str], Side]:
    if "chosen" in row and "rejected" in row:
        return ("chosen", "rejected"), "A"
    if "response_a" not in row or "response_b" not in row:
        raise Unfit("needs response_a and response_b, or chosen and rejected")
    return ("response_a", "response_b"), row.one_of("label", _LABELS)


def _first(row: Fields, names: Sequence[str], what: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise Unfit(f"has no column for {what}: one of {', '.join(names)}")
    return found


def _both(row: Fields, names: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The texts of the first two columns that the row has both of."""
    for left, right in names:
        if left in row and right in row:
            return (row.text(left), row.text(right))
    return ("", "")


# Leaving out and drawing -------------------------------------------------------------------------


def usable(pairs: Sequence[Pair]) -> tuple[list[Pair], Counter[str]]:
    """The pairs that tell a good judge from a bad one, and how many are left out for which reason.

    One that the file calls a tie has no right answer; two texts that are the same, or an empty
    one, are no question for a judge.
    """
    kept, left_out = [], Counter()
    for pair in pairs:
        texts = (pair.response_a.strip(), pair.response_b.strip())
        if pair.label == "tie":
            left_out["a tie, by the file"] += 1
        elif not all(texts):
            left_out["an empty response"] += 1
        elif texts[0] == texts[1]:
            left_out["identical responses"] += 1
        else:
            kept.append(pair)
    return kept, left_out


def _drawn(rows: tuple, limit: int, seed: int) -> tuple:
    if limit >= len(rows):
        return rows
    draw = derived_random("judge-bench", seed, content_id(*(row.id for row in rows)))
    places = sorted(draw.sample(range(len(rows)), limit))
    return tuple(rows[place] for place in places)
