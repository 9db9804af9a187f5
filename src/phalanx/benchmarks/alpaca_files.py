"""The files of the length-controlled win rate: verdicts, instruction difficulties, gamed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from phalanx.benchmarks.alpaca_eval import Comparison, Gamed
from phalanx.benchmarks.fields import Fields, Unfit, read_records
from phalanx.benchmarks.records import Question


class Comparisons(NamedTuple):
    """The verdicts of a file, and how many of its rows have none."""

    rows: tuple[Comparison, ...]
    num_missing: int


def read_comparisons(path: str, questions: Sequence[Question] = ()) -> Comparisons:
    """A judge's verdicts on one model.

    A row has ``preference`` (1 the baseline, 2 the model, between them in part; 1.5 or the old 0
    is a draw; nothing or null: no verdict), the lengths or the texts (``len_baseline`` and
    ``len_model``, or ``output_1`` of the baseline and ``output_2`` of the model), and the
    instruction's ``index``. Published annotations have the ``instruction`` instead: it is looked
    up among ``questions`` (:func:`.readers.read_alpaca_eval` of the baseline's outputs).
    Raises ConfigError that lists every row that does not fit.
    """
    places = {question.turns[0]: int(question.id) for question in questions}

    def make(row: Fields) -> tuple[int, Comparison | None]:
        index = _index(row, places)
        if "preference" not in row or row.get("preference") == "":
            return index, None
        lengths = (
            (len(row.text("output_1")), len(row.text("output_2")))
            if "output_1" in row
            else (row.whole("len_baseline"), row.whole("len_model"))
        )
        return index, Comparison(index, _share(row.number_of("preference")), *lengths)

    found = read_records(path, make, lambda pair: pair[0])
    rows = tuple(row for _, row in found if row is not None)
    return Comparisons(rows, len(found) - len(rows))


def _index(row: Fields, places: dict[str, int]) -> int:
    if "index" in row:
        return row.whole("index")
    instruction = row.words("instruction")
    if instruction not in places:
        raise Unfit("has no 'index', and its instruction is not among the questions given")
    return places[instruction]


def _share(preference: float) -> float:
    if preference == 0:
        return 0.5
    if not 1 <= preference <= 2:
        raise Unfit(f"'preference' must lie between 1 and 2, or be 0 for a draw, got {preference}")
    return preference - 1


def read_difficulty(path: str) -> dict[int, float]:
    """Instruction difficulties: ``index, instruction_difficulty``; in the published CSV the
    column of the index may have no name."""

    def make(row: Fields) -> tuple[int, float]:
        return row.whole("index" if "index" in row else ""), row.number_of("instruction_difficulty")

    return dict(read_records(path, make, lambda pair: pair[0]))


def read_gamed(path: str) -> tuple[Gamed, ...]:
    """The regulariser: ``model, index, preference`` (0 to 1), ``std_delta_len`` (in SDs) and
    ``instruction_difficulty``; one row for each gamed baseline and instruction."""

    def make(row: Fields) -> tuple[str, Gamed]:
        share = row.number_of("preference")
        if not 0 <= share <= 1:
            raise Unfit(f"'preference' of a gamed row must lie between 0 and 1, got {share}")
        return row.words("model"), Gamed(
            row.whole("index"),
            share,
            row.number_of("std_delta_len"),
            row.number_of("instruction_difficulty"),
        )

    found = read_records(path, make, lambda pair: (pair[0], pair[1].index))
    return tuple(gamed for _, gamed in found)
