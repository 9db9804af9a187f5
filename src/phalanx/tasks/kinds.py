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

HUB: dict[str, tuple[str, str]] = {
    "gsm8k": ("hub:openai/gsm8k:main", "test"),
    "math": ("hub:HuggingFaceH4/MATH-500", "test"),
    "medqa": ("hub:GBaker/MedQA-USMLE-4-options", "test"),
    "mmlu": ("hub:cais/mmlu:all", "test"),
    "truthfulqa": ("hub:truthfulqa/truthful_qa:multiple_choice", "validation"),
    "truthfulqa_mc1": ("hub:truthfulqa/truthful_qa:multiple_choice", "validation"),
    "truthfulqa_mc2": ("hub:truthfulqa/truthful_qa:multiple_choice", "validation"),
    "humaneval": ("hub:openai/openai_humaneval", "test"),
    "ifeval": ("hub:google/IFEval", "train"),
}
"""Where the published rows of a kind are on the hub, and the split that is measured. The others
are behind a gate (GPQA), in one data set a subject (MMLU-Redux), or not there in these columns: the
user gives their rows."""

HUB_ROWS = {
    "gsm8k": 1319, "math": 500, "medqa": 1273, "mmlu": 14042, "truthfulqa": 817,
    "truthfulqa_mc1": 817, "truthfulqa_mc2": 817, "humaneval": 164, "ifeval": 541,
}  # fmt: skip
"""Published rows in that split, for plans: nobody asks the hub for them."""
HUB_DOMAINS = {"math": 5, "mmlu": 57}
"""The domains of those rows, of each of which a limit draws; the other kinds have one."""


def split_for(kind: str) -> str:
    """The split that is read of a hub data set or folder where the settings name none."""
    return HUB[kind][1] if kind in HUB else "train"
