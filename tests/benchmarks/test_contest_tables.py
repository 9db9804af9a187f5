"""Published AlpacaEval verdicts as rows of games: the contest's table has the published rates."""

from __future__ import annotations

import json

import pytest

from phalanx.benchmarks.alpaca_files import read_comparisons, read_difficulty, read_gamed
from phalanx.report import games


@pytest.mark.parametrize("published", [True, False])
def test_games_give_the_published_rates(data_dir, monkeypatch, published):
    monkeypatch.setattr(games, "LC_DRAWS", 2)
    folder = data_dir / "alpacaeval_lc"
    name = "vicuna-7b-v1.5"
    found, _ = read_comparisons(str(folder / f"{name}.csv"))
    rows = [
        {"member": name, "rival": "gpt4_1106_preview", "item": str(one.index), "judge": "gpt",
         "game": ("first", "second")[one.index % 2], "domain": "", "label": "", "reason": "",
         "value": one.share, "length": one.len_model, "rival_length": one.len_baseline,
         "response": "a", "request": "r"}
        for one in found
    ]  # fmt: skip
    gamed = read_gamed(str(folder / "gamed_surrogate.csv"))
    difficulty = read_difficulty(str(folder / "instruction_difficulty.csv"))
    facts = {
        "kind": "alpaca_eval", "version": "v0.1", "baseline": "gpt4_1106_preview",
        "judges": ["gpt"], "subjects": [name], "published": published, "notes": [],
        "turns": {row["item"]: ["?"] for row in rows}, "groups": {row["item"]: "" for row in rows},
        "index": {row["item"]: int(row["item"]) for row in rows},
        "difficulty": {str(index): value for index, value in difficulty.items()},
        "gamed": [[g.index, g.share, g.length_difference, g.difficulty] for g in gamed],
    }  # fmt: skip
    (line,) = games._contest("alpaca", facts, rows, 3, None).lines
    raw, controlled = line.measures
    want = json.loads((folder / "expected.json").read_text())[name]
    assert 100 * raw.value == pytest.approx(want["win_rate"], abs=1e-6)
    assert 100 * raw.error == pytest.approx(want["standard_error"], abs=1e-6)
    assert 100 * controlled.value == pytest.approx(want["length_controlled_winrate"], abs=0.35)
    words = "length-controlled" if published else "length-controlled, own judge"
    assert controlled.name == words
