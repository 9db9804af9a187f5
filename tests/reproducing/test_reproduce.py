"""The whole way: write, run the written commands, fill the cells, recount them."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report.games import contests
from phalanx.reproducing import Wish, reproduce_to
from phalanx.reproducing.filling import without_folders
from phalanx.statistics import wilson
from phalanx.tasks import TaskItem, split_of
from tests.reproducing.conftest import COUNT
from tests.reproducing.rows import write_data
from tests.scripts import command, read_rows, write_rows

DEV_SHARE = Config().evaluate.dev_share
PLACE = {name: ("main", row, "gsm8k") for name, row in (("initial", 0), ("sparta", 5))}


def right(member: str, number: int) -> bool:
    """What the script makes of an item, told without it."""
    if member == "ada":
        return number % 2 == 0
    return member == "bob" and not set(str(number)) & set("03689")


def lines(out: Path) -> list[str]:
    text = (out / "commands.sh").read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if line.startswith("phalanx ")]
    return [line.removesuffix(" &&") for line in found]


def obey(line: str) -> str:
    done = command(*shlex.split(line)[1:])
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def expected(folder: Path, data: Path) -> tuple[str, float, int]:
    """(member, share right on test items, their number) of the best by dev items."""
    numbers = {row["id"]: int(row["id"][1:]) for row in read_rows(data / "gsm8k.jsonl")}
    with Ledger(run_ledger_path(folder)) as ledger:
        split = {r["item"]: r["split"] for r in ledger.query("SELECT item, split FROM evaluations")}
    assert set(split) == set(numbers)

    def share(member: str, part: str) -> float:
        mine = [right(member, numbers[item]) for item in split if split[item] == part]
        return sum(mine) / len(mine)

    best = max(("ada", "bob", "cora"), key=lambda member: share(member, "dev"))
    return best, share(best, "test"), sum(part == "test" for part in split.values())


def test_cells_are_filled_by_the_commands_that_are_written(wish, tmp_path, monkeypatch):
    out = tmp_path / "out"
    made = reproduce_to(wish, out)
    assert (made.num_able, made.num_filled) == (2, 0)
    page = (out / "README.md").read_text(encoding="utf-8")
    assert "| best initial member (slides) | 0.778 | – |" in page
    assert "| Sparta (slides) | 0.813 | – |" in page
    assert "| SPIN (slides) | 0.782 | no run |" in page
    check, first, second, again = lines(out)
    assert check == "phalanx check configs/full-gsm8k.yaml"
    monkeypatch.chdir(out)
    obey(check)
    obey(first)

    assert "2 of 2 cells" in obey(again)
    made = reproduce_to(wish, out)
    who, share, n = expected(out / "runs/full-gsm8k/seed-1", tmp_path / "data")
    for name, words in (("initial", "at the start"), ("sparta", "after iteration 1")):
        (value,) = made.cells[PLACE[name]].values
        assert (value.value, value.n) == (pytest.approx(share), n)
        assert value.interval == wilson(round(share * n), n)
        assert value.who == f"{who}, {words}"
        assert made.cells[PLACE[name]].pending == ("seed-2: no run yet",)
    other = reproduce_to(replace(wish, seeds=(2, 5)), tmp_path / "other", out / "runs")
    assert not other.num_filled, "of seeds that nobody wished for"
    assert (out / "README.md").read_text("utf-8").count("*(partial)*") == 2

    obey(second)
    obey(second)  # a finished run is left as it is
    cell = reproduce_to(wish, out).cells[PLACE["sparta"]]
    assert [value.seed for value in cell.values] == ["seed-1", "seed-2"]
    assert not cell.pending
    assert cell.mean == pytest.approx(sum(v.value for v in cell.values) / 2)
    page = (out / "README.md").read_text(encoding="utf-8")
    assert f"2 seeds), n {n} |" in page
    assert "*(partial)*" not in page
    assert "match.duels: 4 (the paper's preset: 1000)" in page
    assert "3 on a script; the paper: ten LoRA adapters" in page
    assert "other settings" not in page


def test_the_worse_member_on_test_is_kept_where_dev_chose_it(wish, tmp_path, monkeypatch):
    """The best test score would be another number in at least one of many draws of items."""
    out = tmp_path / "out"
    reproduce_to(wish, out)
    monkeypatch.chdir(out)
    obey(lines(out)[1])
    folder = out / "runs/full-gsm8k/seed-1"
    database = sqlite3.connect(run_ledger_path(folder))
    with database:  # dora is right about every dev item and no other
        database.execute(
            "INSERT INTO evaluations SELECT iteration, 'dora', task, item, domain, split, "
            "split = 'dev', 1, split = 'dev', answer, reason, response FROM evaluations "
            "WHERE member = 'cora'"
        )
    database.close()
    cell = reproduce_to(wish, out).cells[PLACE["initial"]]
    assert cell.values[0].value == 0
    assert cell.values[0].who == "dora, at the start"


def test_what_is_not_whole_says_so(wish, tmp_path, monkeypatch):
    out = tmp_path / "out"
    reproduce_to(wish, out)
    monkeypatch.chdir(out)
    _, first, _, _ = lines(out)
    more = "seed=1 answer.temperature=0.9 iterations=1 judge.max_new_tokens=9 pairs.keep=0.9 "
    obey(first.replace("seed=1", f"{more} evaluate.dev_share=0.4"))
    ledger = run_ledger_path(out / "runs/full-gsm8k/seed-1")
    database = sqlite3.connect(ledger)
    with database:  # as if it were still running
        database.execute("DELETE FROM run WHERE key = 'finished'")
    database.close()
    broken = run_ledger_path(out / "runs/full-gsm8k/seed-2")
    broken.parent.mkdir()
    broken.write_bytes(b"nothing of the kind" * 100)
    (out / "runs/full-gsm8k/seed-3").mkdir()
    cell = reproduce_to(replace(wish, seeds=(1, 2, 3)), out).cells[PLACE["sparta"]]
    assert [value.partial for value in cell.values] == ["not finished, after iteration 1 of 1"]
    assert any("seed-2" in text and "not a ledger" in text for text in cell.pending)
    assert any("seed-3: not measured yet" in text for text in cell.pending)
    (note,) = (n for n in cell.notes if "other settings than its file" in n)
    assert set(note.rpartition(": ")[2].split(", ")) == {
        "iterations", "answer.temperature", "judge.max_new_tokens", "pairs.keep",
        "evaluate.dev_share",
    }  # fmt: skip
    assert "answer.temperature: 0.9 (the paper's preset: 0.7)" in cell.notes, "the run's, not ours"


def test_a_model_of_another_owner_is_another_one():
    """Folders are left out of names of files, not owners out of names on the hub."""

    def pool(model: str) -> Config:
        return without_folders(Config.model_validate({"pool": {"base": model}}))

    assert pool("/here/model") == pool("/there/model")
    assert pool("Qwen/Qwen2.5-7B-Instruct") != pool("unsloth/Qwen2.5-7B-Instruct")


def test_the_folder_may_move_and_runs_may_be_elsewhere(wish, tmp_path, monkeypatch):
    out = tmp_path / "out"
    reproduce_to(wish, out, tmp_path / "elsewhere")
    first, again = lines(out)[1], lines(out)[-1]
    assert "../elsewhere/full-gsm8k/seed-1" in first
    moved = tmp_path / "moved"
    out.rename(moved)
    monkeypatch.chdir(moved)
    obey(first)
    assert "--runs ../elsewhere" in again
    assert "2 of 2 cells" in obey(again)
    assert "other settings" not in (moved / "README.md").read_text(encoding="utf-8")


def test_the_written_command_may_be_given_as_it_was_typed(wish, tmp_path, monkeypatch):
    """From within its folder, though its files were named from another one."""
    monkeypatch.chdir(tmp_path)
    Path("other.jsonl").write_text('{"instruction": "Say it."}\n', encoding="utf-8")
    more = ("instructions.source=other.jsonl", "pool=pool.yaml")
    wish = replace(wish, pool=None, overrides=(*wish.overrides, *more))
    reproduce_to(wish, Path("out"))
    again = lines(Path("out"))[-1]
    assert "../other.jsonl" in again
    assert "pool=../pool.yaml" in again
    before = Path("out/configs/full-gsm8k.yaml").read_text("utf-8")
    assert "../../other.jsonl" in before
    monkeypatch.chdir("out")
    obey(again)
    assert Path("configs/full-gsm8k.yaml").read_text("utf-8") == before
    assert again in Path("README.md").read_text("utf-8")


def test_the_judges_are_tested_where_there_are_rows(wish, tmp_path, monkeypatch):
    out = tmp_path / "out"
    wish = replace(wish, table="", columns=(), seeds=(0,))
    reproduce_to(wish, out)
    script = (out / "commands.sh").read_text("utf-8")
    assert "# needs rows, judgebench.jsonl in the folder of --data" in script
    pair = {"source": "own", "question": "Name a tree.", "label": "A>B"}
    rows = [pair | {"pair_id": f"p{n}", "response_A": f"oak {n}", "response_B": "a cat"}
            for n in range(4)]  # fmt: skip
    write_rows(tmp_path / "data/judgebench.jsonl", rows)
    reproduce_to(wish, out)
    (line,) = (line for line in lines(out) if line.startswith("phalanx judge-bench"))
    monkeypatch.chdir(out)
    obey(line)
    assert phalanx.open_run(out / "runs/judge-bench/judgebench").facts().tested
    reproduce_to(replace(wish, table="judges"), out)
    script = (out / "commands.sh").read_text("utf-8")
    assert "# needs judges: those of a run of 'Sparta'" in script


def test_a_run_without_room_stops_no_other(tmp_path):
    data, out = write_data(tmp_path / "data", count=300), tmp_path / "out"
    fewer = ("match.duels=20",)
    wish = Wish("sparta", "main", ("gsm8k", "com2"), data, None, fewer, machine="1xa100")
    made = reproduce_to(wish, out)
    assert made.refused == ("full-com2",), "QwQ-32B has no room on a small GPU"
    script = (out / "commands.sh").read_text("utf-8")
    assert "\nphalanx run configs/full-gsm8k.yaml" in script
    assert "\n# phalanx run configs/full-com2.yaml" in script
    assert "\nphalanx run configs/full-com2.yaml" not in script
    plan = (out / "plan.md").read_text("utf-8")
    assert "| full-com2 | | | refused: see below |" in plan
    assert "`evaluate.every=8` measures at the start and at the end alone" in plan
    # Configurations of an earlier call do not stay; those of a person do.
    (out / "configs/mine.yaml").write_text("preset: sparta\n", encoding="utf-8")
    reproduce_to(replace(wish, columns=("gsm8k",), overrides=(*fewer, "evaluate.every=8")), out)
    assert {path.name for path in (out / "configs").iterdir()} == {"full-gsm8k.yaml", "mine.yaml"}
    assert "evaluate.every=" not in (out / "plan.md").read_text("utf-8")


def test_nothing_is_written_where_something_is_wrong(wish, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="betta"):
        phalanx.reproduce("sparta", out, ["train.betta=1"], machine="8xb200")
    assert not out.exists()
    done = command("reproduce", "sparta", "--out", out, "--seeds", "one")
    assert (done.returncode, "expected numbers" in done.stderr) == (2, True)
    out.write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="is a file"):
        reproduce_to(wish, out)


def is_dev(task: str, prompt: str) -> bool:
    """As everywhere: by the question of the task."""
    return split_of(TaskItem("any", prompt, "", "", task, "exact"), DEV_SHARE) == "dev"


OPEN = r"""
sampling:
  - {when: 'number \d*[1357]\)', member: bob, purpose: evaluate, reply: a good tree}
  - {when: ., purpose: evaluate, reply: a tree}
  - {when: 'a good tree', purpose: judge, reply: '{"score": 9}'}
  - {when: ., purpose: judge, reply: '{"score": 4}'}
  - {when: ., reply: [one answer, another answer]}
"""


def test_an_open_task_chooses_on_dev_items_too(wish, tmp_path, monkeypatch):
    (tmp_path / "script.yaml").write_text(OPEN, encoding="utf-8")
    judge = "  - {name: dan, engine: scripted, model: 'script:script.yaml', roles: []}\n"
    with (tmp_path / "pool.yaml").open("a", encoding="utf-8") as opened:
        opened.write(judge)
    settings = (*wish.overrides, "evaluate.judges=[dan]")
    wish = replace(wish, columns=("alpaca",), overrides=settings, seeds=(0,))
    out = tmp_path / "out"
    reproduce_to(wish, out)
    monkeypatch.chdir(out)
    for line in lines(out):
        obey(line)
    cells = reproduce_to(wish, out).cells
    with Ledger(run_ledger_path(out / "runs/full-alpaca/seed-0-eval")) as ledger:
        items = {row["item"] for row in ledger.query("SELECT item FROM games")}
    assert len(items) == COUNT
    dev = {n for n in range(COUNT) if is_dev("alpaca", f"Name a tree. (number {n})")}
    for row, who in ((0, "bob@0"), (5, "bob@2")):
        cell = cells["main", row, "alpaca"]
        (value,) = cell.values
        assert value.who == f"{who}, win rate against ada@0"
        assert cell.other_scale
        assert value.n == COUNT - len(dev), "dev items are not reported"
        # bob is better on some items and ties on the others.
        better = [n for n in range(COUNT) if str(n)[-1] in "1357" and n not in dev]
        assert value.value == pytest.approx(0.5 + len(better) / 2 / value.n)
    assert cells["main", 0, "alpaca"].mean == cells["main", 5, "alpaca"].mean


# The other paper: judges after the run ------------------------------------------------------------

JUDGE = r"""
sampling:
  - {when: 'exactly one', purpose: judge, reply: "so: [[A>B]]"}
  - {when: ., purpose: judge, reply: "fine: [[8]]"}
options:
  - {when: ., weights: {A: 3, B: 1}}
"""
NAMES = ("wizardlm", "gemma27", "qwen72", "llama70", "qwen110")


def test_contests_of_a_run_fill_the_other_paper(tmp_path, monkeypatch):
    (tmp_path / "judge.yaml").write_text(JUDGE, encoding="utf-8")
    pool = "members:\n" + "".join(
        f"  - {{name: {name}, engine: scripted, roles: [contest, judge]}}\n" for name in NAMES
    )
    pool += "  - {name: llama8, engine: scripted, roles: [contest, learn]}\n"
    pool += "  - {name: umpire, engine: scripted, model: 'script:judge.yaml', roles: []}\n"
    (tmp_path / "pool.yaml").write_text(pool, encoding="utf-8")
    data, out = write_data(tmp_path / "data", count=8), tmp_path / "out"
    settings = [
        "train.method=none", "moaa.sft_instructions=3", "moaa.dpo_instructions=2",
        "reward.samples=2", "reward.verdict=options", "evaluate.judges=[umpire]",
    ]  # fmt: skip
    asked = {"data": data, "pool": tmp_path / "pool.yaml", "table": "main"}
    made = phalanx.reproduce("moaa", out, settings, **asked)
    assert list(made.study.runs) == ["main-llama-both"]
    assert "the pool has no gemma9" in made.cells["main", 3, "arena_hard"].absent
    monkeypatch.chdir(out)
    check, run, evaluation, again = lines(out)
    assert "--members llama8@0,llama8@1,llama8@2" in evaluation
    obey(check)
    obey(run)
    cells = phalanx.reproduce("moaa", out, settings, **asked).cells
    assert "seed-0-eval is missing" in cells["main", 0, "mt_bench"].pending[0]
    obey(evaluation)
    obey(again)

    cells = phalanx.reproduce("moaa", out, settings, **asked).cells
    with Ledger(run_ledger_path(out / "runs/main-llama-both/seed-0-eval")) as ledger:
        found = {one.kind: one for one in contests(ledger, json.loads(ledger.get("seed")))}
    for kind, contest in found.items():
        for row, member in enumerate(("llama8@0", "llama8@1", "llama8@2")):
            if member == contest.baseline:
                assert "whom all meet" in cells["main", row, kind].pending[0]
                continue
            (line,) = (one for one in contest.lines if one.member == member)
            (value,) = cells["main", row, kind].values
            assert value.n == line.items == 8
            assert value.value in {measure.value for measure in line.measures}
    assert set(found) == {"alpaca_eval", "arena_hard", "mt_bench"}
    # Every rating is 8, whatever it is of.
    assert cells["main", 2, "mt_bench"].mean == 8
    assert "@" not in found["alpaca_eval"].baseline, "the file of answers was met"
    assert found["arena_hard"].baseline == "llama8@0", "its rows have no answers to meet"
    for kind in found:
        note = cells["main", 2, kind].values[0].note
        assert "judged by a script, not gpt-4-1106-preview" in note
        assert ("without the published difficulties" in note) == (kind == "alpaca_eval")
        assert cells["main", 2, kind].other_scale
    assert "against old, not gpt4_1106_preview" in cells["main", 2, "alpaca_eval"].values[0].note
    assert "against llama8@0, not gpt-4-0314" in cells["main", 2, "arena_hard"].values[0].note
    page = (out / "README.md").read_text(encoding="utf-8")
    assert re.search(r"its MoAA-DPO.*57\.23 \| \d+\.\d .*other scale.* 48\.3 \| .*8\.00", page)
    assert "judged by umpire (a script); the paper: GPT-4-1106-preview" in page

    # What the run and its evaluation were, as their ledgers have it.
    run_folder = out / "runs/main-llama-both/seed-0"
    eval_folder = run_folder.with_name("seed-0-eval")
    edit(run_folder, "finished", None)
    edit(run_folder, "config", lambda config: config["mixture"].update(min_proposals=2))
    edit(eval_folder, "config", limit_and_publish)
    edit(eval_folder, "contest:arena_hard", lambda facts: facts.update(baseline="gpt-4-0314"))
    cells = phalanx.reproduce("moaa", out, settings, **asked).cells
    cell = cells["main", 2, "mt_bench"]
    assert cell.values[0].partial == "not finished, after iteration 2 of 2"
    told = [note for note in cell.notes if "other settings than its file" in note]
    assert "main-llama-both has other settings than its file: mixture.min_proposals" in told
    (note,) = (note for note in told if note.startswith("main-llama-both-eval"))
    assert "evaluate.max_new_tokens" in note
    assert "evaluate.tasks.alpaca_eval.total" in note
    assert [cells["main", 2, kind].other_scale for kind in found] == [True, False, False]
    edit(eval_folder, "subjects", lambda names: names.remove("llama8@2"))
    edit(run_folder, "finished", "now")
    cell = phalanx.reproduce("moaa", out, settings, **asked).cells["main", 1, "mt_bench"]
    assert cell.values[0].partial == "evaluated after iteration 1"


def edit(folder: Path, key: str, change: Any) -> None:
    """Another value of a ledger's fact, or its JSON changed."""
    with Ledger(run_ledger_path(folder)) as ledger:
        value = ledger.get(key)
    if callable(change):
        facts = json.loads(value)
        change(facts)
        change = json.dumps(facts)
    with closing(sqlite3.connect(run_ledger_path(folder))) as database, database:
        database.execute("DELETE FROM run WHERE key = ?", (key,))
        if change is not None:
            database.execute("INSERT INTO run (key, value) VALUES (?, ?)", (key, change))


def limit_and_publish(config: dict[str, Any]) -> None:
    config["evaluate"]["max_new_tokens"] = 7
    (alpaca,) = (task for task in config["evaluate"]["tasks"] if task["name"] == "alpaca_eval")
    alpaca["total"] = 5
    (umpire,) = (member for member in config["pool"]["members"] if member["name"] == "umpire")
    umpire |= {"engine": "openai", "endpoint": "paid", "model": "gpt-4-1106-preview"}
