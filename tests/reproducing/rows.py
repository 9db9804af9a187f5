"""Rows of our own for every set of the papers, and pools of scripted members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.scripts import write_rows

COUNT = 6
COLOURS = ["red", "green", "blue", "white"]


def _row(number: int, prompt: str, answer: str | None, choices: Any = None, **meta: Any) -> dict:
    prompt = f"{prompt} (number {number})"
    return {
        "id": f"r{number}",
        "prompt": prompt,
        "choices": choices,
        "answer": answer,
        "meta": meta,
    }


def _letters() -> dict[str, str]:
    return dict(zip("ABCD", COLOURS, strict=True))


def _truth(number: int) -> dict:
    both = {"choices": ["it is grey", "it is pink"], "labels": [1, 0]}
    return _row(number, "Of what colour is fog?", "A", _letters(), mc1=both, mc2=both)


def _of_kind(name: str, number: int) -> dict:
    if name.startswith("math"):
        return _row(number, "What is 3 + 4?", "7", level=3, subject="Algebra")
    if name.startswith("normad"):
        choices = {"yes": "Yes", "no": "No", "neutral": "Neutral"}
        more = {"value": "courtesy", "rule_of_thumb": "One bows."}
        story = _row(number, "Country: nowhere\nAlex bows. Is it acceptable?", "yes", choices)
        return story | {"meta": {"country": "nowhere", "background": "They bow.", **more}}
    if name == "gsm8k":
        return _row(number, "What is 3 + 4?", "7")
    if name == "truthfulqa":
        return _truth(number)
    if name == "kcross":
        return _row(number, "Fill the blank.", "B", _letters(), blanks=1)
    if name == "medqa":
        return _row(number, "Of what colour is grass?", "B", _letters())
    if name == "com2":
        return _row(number, "What does one need to bake?", "flour", kind="1p")
    if name == "mt_bench":
        turns = ["Name a tree.", f"And another, number {number}?"]
        return _row(number, turns[0], None, category="writing", turns=turns, reference=None)
    if name == "arena_hard":
        return _row(number, "Name a tree.", None, cluster="c1")
    return _row(number, "Name a tree.", None, index=number, subset="own")


SETS = (
    "medqa", "normad_country", "normad_value", "normad_rot", "kcross", "gsm8k", "com2", "math_easy",
    "math_medium", "math_hard", "alpaca", "truthfulqa",
)  # fmt: skip


def write_data(folder: Path, *, count: int = COUNT) -> Path:
    """Every file that `--data` may hold, for both papers."""
    folder.mkdir()
    for name in (*SETS, "arena_hard", "mt_bench"):
        write_rows(folder / f"{name}.jsonl", [_of_kind(name, n) for n in range(count)])
    asked = [_of_kind("alpaca_eval", n) for n in range(count)]
    write_rows(folder / "alpaca_eval.jsonl", asked)
    met = [{"id": row["id"], "output": "An oak, I think.", "generator": "old"} for row in asked]
    write_rows(folder / "alpaca_eval_baseline.jsonl", met)
    prompts = [{"instruction": f"Say the number {n}."} for n in range(count)]
    for name in SETS:
        write_rows(folder / f"{name}_train.jsonl", prompts)
    for name in ("ultrafeedback", "ultrafeedback_ultrachat"):
        write_rows(folder / f"{name}.jsonl", prompts)
    return folder
