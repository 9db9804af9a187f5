"""Every configuration that is written is good, says what it should, and asks nobody."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError
from phalanx.plan import plan_for
from phalanx.reproducing.configurations import Wish, changed, run_name, study
from phalanx.reproducing.filling import without_folders
from phalanx.reproducing.papers import load_paper, paper_names
from phalanx.reproducing.writing import config_path, write_configurations
from tests.reproducing.rows import SETS, write_data

ROOMY = {"sparta": (), "moaa": ("sft.weights=lora", "train.weights=lora")}


@pytest.fixture
def nobody(monkeypatch):
    """Whoever asks the network fails the test."""

    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(f"the network was asked: {words}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", paper_names())
def test_every_configuration_passes_check_and_nobody_is_asked(name, tmp_path, nobody):
    data = write_data(tmp_path / "data")
    wish = Wish(name, data=data, overrides=ROOMY[name], machine="8xb200")
    made = study(load_paper(name), wish)
    assert made.absent.keys() == {p for p, row, _ in made.cells() if row.absent}
    write_configurations(made, tmp_path / "out")
    for run in made.runs.values():
        path = config_path(tmp_path / "out", run)
        read = load(path, gpus=8)
        assert without_folders(read) == without_folders(run.config), "not what was checked"
        assert all(Path(task.source).is_file() for task in read.evaluate.tasks)
        assert plan_for(path, (), "8xb200").iterations == run.config.iterations
        assert str(tmp_path) not in path.read_text("utf-8"), "a path that cannot move"


@pytest.mark.parametrize("name", paper_names())
def test_without_rows_what_the_hub_has_is_written(name, tmp_path, nobody):
    made = study(load_paper(name), Wish(name, overrides=ROOMY[name], machine="8xb200"))
    write_configurations(made, tmp_path / "out")
    assert made.runs
    for run in made.runs.values():
        assert plan_for(config_path(tmp_path / "out", run), (), "8xb200")
        assert run.config.instructions.source.startswith("hub:")
    for place, row, column in made.cells():
        if row.arm and place in made.absent:
            assert "needs" in made.absent[place], column


def test_one_run_a_set_and_an_arm_and_the_arms_differ_as_they_say(tmp_path):
    paper, data = load_paper("sparta"), write_data(tmp_path / "data")
    made = study(paper, Wish("sparta", data=data, machine="8xb200"))
    assert {name for name in made.runs if name.startswith("full-")} == {
        run_name("full", one) for one in SETS
    }
    full = made.runs["full-gsm8k"].config
    assert [member.name for member in full.pool.members][:2] == ["code_alpaca", "cot"]
    assert len(full.pool.members) == 10, "the judge of other sets has no place here"
    assert len(made.runs["full-com2"].config.pool.members) == 11
    assert made.runs["full-com2"].config.evaluate.judges == ["qwq"]
    without = made.runs["no-reputation-gsm8k"].config
    assert without == full.model_copy(update={"without": ["reputation"]})
    smaller = made.runs["pool-4-gsm8k"].config
    assert smaller.pool.members == full.pool.members[:4]
    # One set is measured in a run: that which it is aligned on.
    assert [task.name for task in full.evaluate.tasks] == ["gsm8k"]


def test_students_are_copies_and_others_stay_out(tmp_path):
    data = write_data(tmp_path / "data")
    wish = Wish("moaa", data=data, overrides=ROOMY["moaa"], machine="8xb200")
    made = study(load_paper("moaa"), wish)
    config = made.runs["sft-data-both"].config
    models = {member.name: member.model for member in config.pool.members}
    assert models["by-random"] == models["by-best"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert "llama8" not in models
    assert "mistral7" not in models
    assert {s.name: s.data for s in config.moaa.students}["by-qwen72"] == "teacher:qwen72"
    assert made.runs["all-criteria-both"].config.reward.num_criteria == 0
    assert set(made.runs["main-llama-both"].members) == {"llama8@0", "llama8@1", "llama8@2"}


def test_a_pool_and_settings_of_the_user(tmp_path):
    data = write_data(tmp_path / "data")
    pool = tmp_path / "pool.yaml"
    pool.write_text("members:\n" + "".join(
        f"  - {{name: {name}, engine: scripted}}\n" for name in ("ada", "bob", "cora", "dan", "eve")
    ))  # fmt: skip
    wish = Wish("sparta", data=data, pool=pool, overrides=("match.duels=6", "iterations=2"))
    longer = replace(wish, columns=("medqa",), overrides=("evaluate.max_new_tokens=9",))
    made = study(load_paper("sparta"), longer)
    medqa = made.runs["full-medqa"]
    asked = list(changed(made, medqa, medqa.config))
    assert asked == [("evaluate.max_new_tokens", 9, 512)], "512 is what every run here has"
    made = study(load_paper("sparta"), wish)
    run = made.runs["no-reputation-medqa"]
    assert {key: value for key, value, _ in changed(made, run, run.config)} == {
        "match.duels": 6, "iterations": 2,
    }  # fmt: skip
    assert {usual for key, _, usual in changed(made, run, run.config) if key == "match.duels"} == {
        1000
    }
    assert [m.name for m in made.runs["pool-4-medqa"].config.pool.members] == [
        "ada", "bob", "cora", "dan",
    ]  # fmt: skip
    reasons = {place[2]: text for place, text in made.absent.items() if place[0] == "main"}
    assert "needs a judge" in reasons["com2"], "the paper's judge is not in this pool"
    assert "full-com2" not in made.runs
    assert "full-alpaca" in made.runs, "it can be made; a judge can come later"
    assert made.runs["full-alpaca"].lacking
    assert "smaller pool" in made.absent["pool-size", 3, "gsm8k"], "8 of 5 members"
    assert "pool of its own" in made.absent["mixed-pool", 0, "gsm8k"]


def test_parts_that_nobody_plays_are_named(tmp_path):
    pool = tmp_path / "pool.yaml"
    pool.write_text("members: [{name: llama8, engine: scripted}]\n")
    made = study(load_paper("moaa"), Wish("moaa", pool=pool, data=write_data(tmp_path / "data")))
    assert not made.runs
    assert "the pool has no wizardlm, gemma27" in made.absent["main", 0, "arena_hard"]


def test_a_recruit_plays_no_part(tmp_path):
    parts = ("wizardlm", "gemma27", "qwen72", "llama70", "qwen110")
    pool = tmp_path / "pool.yaml"
    members = "".join(f"  - {{name: {name}, engine: scripted}}\n" for name in parts)
    pool.write_text(
        f"base: builtin:smollm2-135m\nmembers:\n{members}"
        "recruit: {data: builtin:skills, specialists: {llama8: [kinds]}}\n"
    )
    wish = Wish("moaa", "main", pool=pool, data=write_data(tmp_path / "data"))
    made = study(load_paper("moaa"), wish)
    assert not made.runs
    assert "the pool has no llama8" in made.absent["main", 0, "mt_bench"]


def test_all_faults_are_in_one_message_each_once(tmp_path):
    data = write_data(tmp_path / "data")
    (data / "medqa.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    wish = Wish("sparta", data=data, overrides=("match.nearest=0",), machine="8xb200")
    with pytest.raises(ConfigError) as caught:
        study(load_paper("sparta"), wish)
    assert len([f for f in caught.value.faults if "match.nearest" in f]) == 1
    with pytest.raises(ConfigError) as caught:
        study(load_paper("sparta"), replace(wish, overrides=("train.betta=1", "match.duels=0")))
    assert {"betta" in f for f in caught.value.faults} == {True, False}
    with pytest.raises(ConfigError, match=r"medqa\.jsonl.*\(in full-medqa, no-reputation-medqa"):
        study(load_paper("sparta"), replace(wish, overrides=()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": ("gsm9k",)}, "no column 'gsm9k'; did you mean gsm8k"),
        ({"data": Path("nowhere")}, "--data nowhere: there is no such folder"),
        ({"table": "mian"}, "did you mean main"),
        ({"machine": "abacus"}, "abacus"),
        ({"pool": Path("nowhere.yaml")}, "nowhere.yaml"),
    ],
)
def test_wishes_that_make_no_sense(change, message):
    with pytest.raises(ConfigError, match=message):
        study(load_paper("sparta"), replace(Wish("sparta"), **change))
