"""What is to be measured, from the words of the command; every fault in one message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phalanx.cli import app
from phalanx.cli.base import folder_of
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.wanted import KINDS, wanted
from phalanx.tasks.kinds import HUB, READERS, split_for
from phalanx.types import IterationResult, Member, Standing, TrainResult
from tests.scripts import write_pool, write_rows
from tests.tiny import make_tiny

ROWS = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(20)]
LETTERS = [
    {"prompt": f"Is {n} odd?", "choices": {"A": "yes", "B": "no"}, "answer": "AB"[n % 2]}
    for n in range(8)
]
MORE = """
mixture: {proposers: [ada, bob], aggregator: cora}
evaluate:
  tasks: [{name: sums, kind: gsm8k, source: gsm8k.jsonl}]
"""


@pytest.fixture
def config(tmp_path) -> str:
    write_rows(tmp_path / "gsm8k.jsonl", ROWS)
    write_rows(tmp_path / "medqa.jsonl", LETTERS)
    return str(write_pool(tmp_path, ["ada", "bob", "cora"], "sampling: []", MORE))


@pytest.fixture
def run(tmp_path) -> Path:
    """A run of two iterations in which ada learned twice and bob once, through the real writer."""
    config = Config.model_validate(
        {"pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}, {"name": "bob"}]}}
    )
    folder = tmp_path / "run"
    start = [Member(name, "builtin:smollm2-135m") for name in ("ada", "bob")]
    facts = {"config": config.model_dump_json(), "method": "sparta", "inputs": "x", "seed": "0",
             "pool_order": '["ada","bob"]'}  # fmt: skip
    learned = {1: [("ada", 1), ("bob", 1)], 2: [("ada", 2)]}
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.record_start(facts, start, [])
        for number, lessons in learned.items():
            standings = {"ada": Standing(100 + number), "bob": Standing(100 - number)}
            ledger.record_iteration(number, IterationResult(standings=standings))
            for name, version in lessons:
                member = Member(name, "builtin:smollm2-135m", f"adapters/{number}", version)
                ledger.record_training(number, TrainResult(member, 1, {}, (), {}, 1.0))
        ledger.put("finished", "yes")
    return folder


@pytest.mark.parametrize(
    ("source", "output", "folder"),
    [
        ("mine", "runs/demo", "mine-eval"),  # the run's own place, not its configuration's
        ("mine/", "", "mine-eval"),
        ("mine.yaml", "runs/demo", "runs/demo-eval"),
        ("mine.yaml", "", "runs/mine-eval"),
    ],
)
def test_the_default_folder_is_beside_the_run(source, output, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert folder_of(source, Config.model_validate({"output": output}), "eval") == Path(folder)


def names(wish) -> list[str]:
    return [subject.name for subject in wish.subjects]


def test_defaults_are_everybody_and_the_tasks_of_the_configuration(config):
    wish = wanted(config)
    assert names(wish) == ["ada", "bob", "cora"]
    assert {name: len(items) for name, items in wish.items.items()} == {"sums": 20}
    assert not wish.notes


def test_bad_rows_that_a_task_skips_are_told(config, tmp_path):
    path = write_rows(tmp_path / "bad.jsonl", [*ROWS[:3], {"question": "What is left?"}])
    task = {"name": "sums", "kind": "gsm8k", "source": str(path), "bad_rows": "skip"}
    wish = wanted(config, [f"evaluate.tasks={json.dumps([task])}"])
    assert len(wish.items["sums"]) == 3
    assert any("task sums: skipped 1 of 4 rows" in note for note in wish.notes)


def test_a_limit_is_of_the_whole_task_and_drawn_alike(config, tmp_path):
    few, more = (wanted(config, limit=n).items["sums"] for n in (5, 9))
    assert len(few) == 5
    assert len(more) == 9
    assert {item.id for item in few} < {item.id for item in more}
    assert wanted(config, limit=5).rows == wanted(config, limit=5).rows
    assert wanted(config, ["seed=9"], limit=5).rows != wanted(config, limit=5).rows


def test_tasks_by_name_kind_and_file(config, tmp_path):
    write_rows(tmp_path / "math_hard.jsonl", [{"problem": "1+1?", "answer": "2", "level": 5}])
    words = ["sums", "gsm8k", "medqa", "math_hard", "skills", f"mmlu={tmp_path}/medqa.jsonl"]
    wish = wanted(config, tasks=words, data=tmp_path, limit=2)
    kinds = {task.name: task.kind for task in wish.config.evaluate.tasks}
    assert kinds == {
        "sums": "gsm8k", "gsm8k": "gsm8k", "medqa": "medqa", "math_hard": "math", "skills": "",
        "mmlu": "mmlu",
    }  # fmt: skip
    assert {len(items) for name, items in wish.items.items() if name != "math_hard"} == {2}


def test_models_are_members_named_by_their_last_part(config, tmp_path):
    base = make_tiny(tmp_path / "models" / "small")
    wish = wanted(config, members=["ada", str(base), f"other={base}", "majority"])
    assert names(wish) == ["ada", "small", "other", "majority"]
    assert wish.subjects[1].members == (Member("small", str(base), roles=()),)
    assert [one.name for one in wish.subjects[3].members] == [
        "ada",
        "bob",
        "cora",
        "small",
        "other",
    ]
    assert [one.name for one in wish.voters] == ["bob", "cora"]
    assert [one.name for one in wish.start] == [one.name for one in wish.subjects[3].members]
    alone = wanted(None, tasks=["skills"], members=["builtin:smollm2-135m"])
    assert names(alone) == ["smollm2-135m"]


def test_members_of_a_run_at_their_iterations(run):
    wish = wanted(str(run), tasks=["skills"])
    assert names(wish) == ["ada@0", "bob@0", "ada@2", "bob@2"]
    assert [subject.members[0].version for subject in wish.subjects] == [0, 0, 2, 1]
    assert [(n, one.key) for n, one in wish.members] == [
        (0, "ada@0"), (0, "bob@0"), (2, "ada@2"), (1, "bob@1"),
    ]  # fmt: skip
    wish = wanted(str(run), tasks=["skills"], members=["ada", "ada@1", "majority@1", "majority"])
    assert [subject.members[0].version for subject in wish.subjects] == [2, 1, 1, 2]
    assert [one.name for one in wish.voters] == ["bob@1"]  # at 1 as at 2
    assert wish.weights["majority@1"] == {"ada": 101.0, "bob": 99.0}
    assert wish.weights["majority"] == {"ada": 102.0, "bob": 98.0}
    assert Path(wish.subjects[0].members[0].adapter or "").name == "2"
    assert [one.version for one in wish.start] == [0, 0]  # judges are those of the start


def test_an_iteration_that_has_not_ended_is_not_measured(run):
    with Ledger(run_ledger_path(run), writable=True) as ledger:
        ledger.grow({})  # no longer finished: the second iteration may still be learning
        # The run goes on: its folder is locked, and its last rows are in the log alone.
        assert names(wanted(str(run), tasks=["skills"])) == ["ada@0", "bob@0", "ada@1", "bob@1"]
        with pytest.raises(ConfigError, match="no iteration '2'; the run has 0 to 1"):
            wanted(str(run), tasks=["skills"], members=["ada@2"])


def test_all_faults_are_in_one_message(config, tmp_path):
    with pytest.raises(ConfigError) as caught:
        wanted(
            config,
            ["match.duels=3"],
            tasks=["medqq", "mine=mine.jsonl", "gpqa", "mmlu=nowhere.jsonl", "medqa", "medqa"],
            members=["adda", "ada@3", "org/name/x", "cora", "cora", "1bad!=builtin:smollm2-135m"],
            data=tmp_path,
            against="zed",
        )
    text = str(caught.value)
    for words in (
        "--task medqq: no task and no kind has that name; did you mean medqa?",
        "--task mine=mine.jsonl: no task and no kind has that name; rows of your own are a task of "
        "the configuration: evaluate.tasks: [{name: mine",
        "--task gpqa: no rows of kind gpqa (looked in",
        "two tasks are named medqa",
        "there is no file 'nowhere.jsonl'",
        "--members adda: no member has that name (did you mean ada?)",
        "no iteration '3'; a configuration has 0 alone",
        "there is no file or folder 'org/name/x'",
        "--members: cora is named twice",
        "is not a short name",
        "--against zed: nobody of that name is measured",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (None, {"tasks": ["skills"]}, "nobody to measure"),
        (None, {"members": ["builtin:smollm2-135m"]}, "nothing to measure on"),
        (None, {"members": ["builtin:smollm"], "tasks": ["skills"]}, "did you mean builtin:smoll"),
        (None, {"members": ["builtin:smollm2-135m"], "tasks": ["gpqa"]}, "no rows of kind gpqa;"),
        (None, {"members": ["builtin:smollm2-135m", "majority"], "tasks": ["skills"]}, "takes two"),
    ],
)
def test_faults_alone(source, options, words):
    with pytest.raises(ConfigError, match=words):
        wanted(source, **options)


def test_mixtures_and_judges_that_are_missing(tmp_path):
    write_rows(tmp_path / "gsm8k.jsonl", ROWS)
    write_rows(tmp_path / "com2.jsonl", [{"question": "Why?", "answer": "so"}])
    bare = str(write_pool(tmp_path, ["ada", "bob"], "sampling: []"))
    with pytest.raises(ConfigError) as caught:
        wanted(bare, tasks=["gsm8k", "com2"], data=tmp_path, members=["mixture", "best_of", "ada"])
    text = str(caught.value)
    assert "--members mixture: mixture.aggregator is not set" in text
    assert "best_of: every judge is one of two members" in text
    assert "evaluate.judges: names nobody" in text
    with pytest.raises(ConfigError, match="com2: ada has no judge but itself"):
        wanted(bare, ["evaluate.judges=[ada]"], tasks=["com2"], data=tmp_path, members=["ada"])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(LedgerError, match="no run in"):
        wanted(str(tmp_path), tasks=["skills"])
    with pytest.raises(ConfigError, match=r"nowhere: there is no such run's folder, and no such f"):
        wanted(str(tmp_path / "nowhere"), tasks=["skills"])


def test_kinds_of_the_hub_are_kinds_that_can_be_read():
    assert set(HUB) <= set(READERS) <= set(KINDS)
    assert all(source.startswith("hub:") and split for source, split in HUB.values())
    assert split_for("gsm8k") == "test"
    assert split_for("") == "train"


def test_recruits_that_are_not_made_are_refused_and_a_pool_alone_is_a_source(tmp_path):
    unmade = tmp_path / "unmade.yaml"
    unmade.write_text(
        "pool:\n  base: builtin:smollm2-135m\n  recruit: {specialists: {ada: [echo]}}\n"
        "  members: [{name: bob}]\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match="ada: recruits are made by a run"):
        wanted(str(unmade), tasks=["skills"])
    with pytest.raises(ConfigError, match="--members ada: recruits are made by a run"):
        wanted(str(unmade), tasks=["skills"], members=["ada"])
    assert names(wanted(str(unmade), tasks=["skills"], members=["bob"])) == ["bob"]
    alone = tmp_path / "pool.yaml"
    alone.write_text("base: builtin:smollm2-135m\nmembers: [{name: cora}]\n", encoding="utf-8")
    assert names(wanted(str(alone), {"seed": 4}, tasks=["skills"])) == ["cora"]


def test_students_that_joined_are_in_the_mixture_from_then_on(tmp_path):
    members = [{"name": name} for name in ("ada", "bob", "kid")]
    config = Config.model_validate(
        {"method": "moaa", "pool": {"base": "builtin:smollm2-135m", "members": members},
         "mixture": {"proposers": ["ada", "bob"], "aggregator": "ada"},
         "moaa": {"students": [{"name": "kid"}], "stages": ["sft"], "self_improve": "join"}}
    )  # fmt: skip
    folder = tmp_path / "run"
    start = [Member(one["name"], "builtin:smollm2-135m") for one in members]
    facts = {"config": config.model_dump_json(), "method": "moaa", "inputs": "x", "seed": "0",
             "pool_order": '["ada","bob","kid"]', "finished": "yes"}  # fmt: skip
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.record_start(facts, start, [])
        ledger.record_iteration(1, IterationResult())
        kid = Member("kid", "builtin:smollm2-135m", "adapters/1", 1)
        ledger.record_training(1, TrainResult(kid, 1, {}, (), {}, 1.0))
        ledger.put("finished", "yes")
    wish = wanted(str(folder), tasks=["skills"], members=["mixture@0", "mixture@1"])
    made = [[one.key for one in subject.members] for subject in wish.subjects]
    assert made == [["ada@0", "bob@0"], ["ada@0", "bob@0", "kid@1"]]


def test_a_setting_of_the_pool_changes_no_member_of_a_run(run):
    with pytest.raises(ConfigError, match=r"pool\.base: a run's members are as they were"):
        wanted(str(run), ["pool.base=org/other"], tasks=["skills"], members=["ada"])


def test_what_recruits_learned_from_is_compared_with_the_items(tmp_path):
    question = "How many of the nine red apples on the kitchen table are left after lunch today?"
    write_rows(
        tmp_path / "shown.jsonl", [{"instruction": question, "response": "4", "domain": "echo"}]
    )
    write_rows(tmp_path / "gsm8k.jsonl", [{"question": question, "answer": "#### 4"}])
    recruit = {"specialists": {"ada": ["echo"]}, "data": str(tmp_path / "shown.jsonl")}
    config = Config.model_validate(
        {"pool": {"base": "builtin:smollm2-135m", "recruit": recruit, "members": [{"name": "bob"}]}}
    )
    folder = tmp_path / "run"
    start = [Member(name, "builtin:smollm2-135m") for name in ("ada", "bob")]
    facts = {"config": config.model_dump_json(), "method": "sparta", "inputs": "x", "seed": "0",
             "pool_order": '["ada","bob"]'}  # fmt: skip
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.record_start(facts, start, [])
    wish = wanted(str(folder), tasks=["gsm8k"], members=["ada"], data=tmp_path)
    assert [(one.what, len(one.found)) for one in wish.learned] == [("demonstrations", 1)]


def test_judges_who_are_not_there_are_refused_before_anybody_is_asked(config, tmp_path):
    """Without a configuration, too, and where the rules know a name that is not made yet."""
    alone = tmp_path / "pool.yaml"
    alone.write_text(
        "base: builtin:smollm2-135m\nmembers: [{name: ada}, {name: bob}]\n", encoding="utf-8"
    )
    words = [f"pool={alone}", "evaluate.judges=[typo]"]
    with pytest.raises(ConfigError, match=r"evaluate\.judges: no member is named typo"):
        wanted(None, words, tasks=["skills"], members=["ada", "bob", "best_of"])
    unmade = tmp_path / "unmade.yaml"
    unmade.write_text(
        "pool:\n  base: builtin:smollm2-135m\n  recruit: {specialists: {new: [echo]}}\n"
        "  members: [{name: ada}, {name: bob}]\nevaluate: {judges: [new]}\n",
        encoding="utf-8",
    )
    write_rows(tmp_path / "com2.jsonl", [{"question": "Why?", "answer": "so"}])
    asked = {"members": ["ada"], "data": tmp_path}
    with pytest.raises(ConfigError, match=r"evaluate\.judges: no member is named new"):
        wanted(str(unmade), tasks=["com2"], **asked)
    assert names(wanted(str(unmade), tasks=["skills"], members=["ada"])) == ["ada"]  # none judges


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("eval pool.yaml", "--members"),
        ("eval pool.yaml", "--task"),
        ("judge-bench pool.yaml", "--members"),
        ("judge-bench pool.yaml", "--iterations"),
        ("reproduce sparta", "--only"),
    ],
)
@pytest.mark.parametrize("given", ["", ",", "ada,"])
def test_an_empty_name_is_not_everything(verb, option, given):
    """An empty variable of a shell must not start the whole measurement."""
    done = CliRunner().invoke(app, [*verb.split(), option, given])
    assert isinstance(done.exception, ConfigError)
    assert "has an empty name; leave the option out" in str(done.exception)
