"""Only what fills a cell is made, and what fails stops nothing else."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace

import pytest

from phalanx.reproducing import reproduce_to
from tests.scripts import command


def test_runs_that_fill_no_cell_are_comments_and_in_no_sum(wish, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "data/medqa.jsonl").unlink()  # then they come from the hub
    columns = ("gsm8k", "alpaca", "medqa")
    judging = (*wish.overrides, "evaluate.judges=[bob]")
    made = reproduce_to(replace(wish, columns=columns, overrides=judging), out)
    assert made.idle == ("full-alpaca",)
    assert "roles: []}" in made.cells["main", 0, "alpaca"].absent, "bob is measured himself"
    script = (out / "commands.sh").read_text("utf-8")
    assert "\nphalanx run configs/full-gsm8k.yaml" in script
    assert "\nphalanx run configs/full-alpaca.yaml" not in script
    assert "\n# phalanx run configs/full-alpaca.yaml" in script
    assert "\n# alpaca: needs a judge who is not measured" in script
    plan = (out / "plan.md").read_text("utf-8")
    assert "| full-alpaca (fills no cell) |" in plan
    counts = {}
    for line in plan.splitlines():
        if found := re.match(r"\| ([^|]+) \| ([\d,]+) \|", line):
            counts[found[1]] = int(found[2].replace(",", ""))
    (total,) = (count for name, count in counts.items() if name.startswith("**"))
    assert total == 2 * (counts["full-gsm8k"] + counts["full-medqa"]), "two seeds"
    assert "**all seeds (2) but 1**" in plan
    page = (out / "README.md").read_text("utf-8")
    assert "- MedQA: measured on hub:GBaker/MedQA-USMLE-4-options" in page
    assert "GSM8K: measured on hub" not in page, "its rows are in --data"
    (tmp_path / "data/gsm8k_train.jsonl").unlink()
    told = command(
        "reproduce", "sparta", *wish.overrides, "--data", wish.data, "--pool", wish.pool,
        "--table", "main", "--only", "gsm8k", "--out", out,
    ).stdout  # fmt: skip
    assert "Wrote 1 configuration, plan.md" in told
    page = (out / "README.md").read_text("utf-8")
    assert "- GSM8K: aligned on hub:openai/gsm8k:main" in page


@pytest.mark.parametrize(
    ("judges", "fine"),
    [
        ("ada", False),
        ("ada,bob", False),
        ("bob,cora", True),
        ("umpire", True),
        ("ada,umpire", True),
    ],
)
def test_a_judge_is_missing_just_where_the_evaluation_refuses(
    wish, tmp_path, monkeypatch, judges, fine
):
    out = tmp_path / "out"
    with (tmp_path / "pool.yaml").open("a", encoding="utf-8") as opened:
        opened.write("  - {name: umpire, engine: scripted, model: 'script:script.yaml', roles: []}")
    reproduce_to(replace(wish, columns=("alpaca",)), out)
    settings = (*wish.overrides, f"evaluate.judges=[{judges}]")
    made = reproduce_to(replace(wish, columns=("alpaca",), overrides=settings), out)
    assert (made.idle == ()) == fine
    data = tmp_path / "data/alpaca.jsonl"
    done = command(
        "eval", out / "configs/full-alpaca.yaml", "--tasks", f"open={data}", "--limit", "2",
        f"evaluate.judges=[{judges}]", "--out", tmp_path / "eval",
    )  # fmt: skip
    assert done.returncode == (0 if fine else 2), done.stderr
    assert ("nobody may judge" in done.stderr) == (not fine), done.stderr


def test_a_command_that_fails_stops_no_other_and_is_told(wish, tmp_path):
    """The script as it is, with a `phalanx` that writes down what it is asked."""
    out, tools = tmp_path / "out", tmp_path / "tools"
    judge = "  - {name: dan, engine: scripted, model: 'script:script.yaml', roles: []}\n"
    with (tmp_path / "pool.yaml").open("a", encoding="utf-8") as opened:
        opened.write(judge)
    settings = (*wish.overrides, "evaluate.judges=[dan]")
    reproduce_to(replace(wish, columns=("alpaca", "gsm8k"), overrides=settings), out)
    tools.mkdir()
    tool, told = tools / "phalanx", tmp_path / "told"
    path = f"{tools}:{os.environ['PATH']}"

    def obeyed(broken: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        tool.write_text(
            f'#!/bin/sh\necho "$1" "$2" "$3" >> {told}\ncase "$*" in {broken}) exit 3;; esac\n'
        )
        tool.chmod(0o755)
        told.write_text("")
        done = subprocess.run(
            ["sh", out / "commands.sh"], env={**os.environ, "PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done, [line.split(" --")[0] for line in told.read_text().splitlines()]

    done, whole = obeyed("nothing")
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("eval ") for line in whole) == 2
    done, made = obeyed("run*full-alpaca*seed=1*")
    assert done.returncode == 1
    assert "phalanx run configs/full-alpaca.yaml seed=1" in done.stderr
    assert "full-gsm8k" not in done.stderr
    (skipped,) = (line for line in whole if line.startswith("eval ") and "seed-1 " in line)
    assert made == [line for line in whole if line != skipped]
    assert made[-1].startswith("reproduce sparta")
