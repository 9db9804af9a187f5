"""The benchmarks by name: which reader turns a row into an item."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from phalanx.tasks import (
    com2,
    gpqa,
    gsm8k,
    humaneval,
    ifeval,
    kcross,
    maths,
    medqa,
    mmlu,
    normad,
    truthfulqa,
)
from phalanx.tasks.fields import Fields
from phalanx.tasks.items import TaskItem

Reader = Callable[[Fields, str], TaskItem | None]
"""(fields of a row, name of the task) to the item; None where a benchmark leaves the row out."""

READERS: dict[str, Reader] = {
    "gsm8k": gsm8k.read,
    "math": maths.read,
    "medqa": medqa.read,
    "mmlu": mmlu.read,
    "mmlu_redux": mmlu.read_redux,
    "gpqa": gpqa.read,
    "kcross": kcross.read,
    "normad_country": partial(normad.read, context="country"),
    "normad_value": partial(normad.read, context="value"),
    "normad_rot": partial(normad.read, context="rot"),
    "humaneval": humaneval.read,
    "ifeval": ifeval.read,
    "com2": com2.read,
    "truthfulqa": truthfulqa.read_letter,
    "truthfulqa_mc1": partial(truthfulqa.read, form="mc1"),
    "truthfulqa_mc2": partial(truthfulqa.read, form="mc2"),
}
