"""Guards while members learn: real models, tiny ones, and real losses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.collective.alarms import FACT, from_json
from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import BudgetError, GuardError, LossError
from phalanx.executors.processes import ProcessExecutor
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.workshop import Workshop
from tests.executors import work
from tests.scripts import command, write_rows
from tests.test_guarding import contents, count, fired, sent, stopped
from tests.tiny import make_tiny


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("guarded") / "base", seed=1)


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> dict:
    """The ledger of a run that nothing stops: guards warn."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    align(learning(base, **{"guard.max_kl": 0.01, "guard.action.max_kl": "warn"}), folder)
    assert count(folder, "trainings") == 2
    assert fired(folder) == [("max_kl", 1, name, "warn") for name in ("ada", "bob")]
    return contents(folder)


def learning(base: Path, **more) -> Config:
    """One iteration of duels among tiny models, then ten steps of DPO for two of them."""
    settings = {
        "seed": 3,
        "iterations": 1,
        "pool.members": [
            {"name": "ada", "model": str(base)},
            {"name": "bob", "model": str(base)},
            {"name": "cora", "model": str(base), "roles": ["judge"]},
        ],
        "instructions.source": "builtin:skills",
        "match.duels": 10,
        "answer.max_new_tokens": 8,
        "judge.protocol": "likelihood",
        "pairs.truncated": "allow",
        "pairs.keep": 1.0,
        "train.epochs": 2,
        "train.batch_size": 2,
        "train.learning_rate": 1e-2,
        "resources.threads": 1,
    }
    return load("preset:sparta-small", {**settings, **more})


class Steps(Silent):
    """Which trainings begin."""

    def __init__(self) -> None:
        self.began: list[str] = []

    def start(self, phase: str, total: int, unit: str = "") -> None:
        if phase.startswith("train"):
            self.began.append(phase)


def test_a_member_that_moves_too_far_ends_the_run_and_keeps_what_was_judged(base, whole, tmp_path):
    run = tmp_path / "run"
    strict = learning(base, **{"guard.max_kl": 0.01})
    error = stopped(strict, run, "guard max_kl stopped the run in iteration 1: ada is 0.")
    assert (error.fired.rule, error.fired.where, error.exit_code) == ("max_kl", "ada", 5)
    assert "nats a token from its reference in step 8 " in str(error)
    assert count(run, "judgments") == 10
    assert count(run, "trainings") == 0
    assert not (run / "adapters" / "iteration-1" / "ada").exists()
    told, before = Steps(), sent(run)
    with pytest.raises(GuardError) as again:
        align(strict, run, progress=told)
    assert (told.began, sent(run)) == ([], before), "it is known without training again"
    assert str(again.value) == str(error)
    with pytest.raises(BudgetError, match="seconds, all starts together"):
        align(learning(base, **{"budget.seconds": 1e-3}), run)
    assert count(run, "judgments") == 10

    higher = stopped(learning(base, **{"guard.max_kl": 0.02}), run, "limit 0.02")
    with Ledger(run_ledger_path(run)) as ledger:
        known = [(one.limit, did) for one, did in from_json(ledger.get(FACT))]
        assert known == [(0.02, "stop")], "the newest limit is the one that is shown"
        assert ledger.count("events", "kind = 'guard'") == 2
    assert higher.fired.value == error.fired.value

    key, value = error.fired.setting.split("=")
    assert float(value) > error.fired.value
    align(learning(base, **{key: 50.0}), run)
    assert contents(run) == whole


def test_a_pause_in_training_is_one_for_each_member(base, whole, tmp_path):
    """After it that member learns to the end, and is not trained again; a warning is said then."""
    paused = learning(base, **{"guard.max_kl": 0.01, "guard.action.max_kl": "pause"})
    for name in ("ada", "bob"):
        error = stopped(paused, tmp_path / "run", f"paused the run in iteration 1: {name} is")
        assert error.exit_code == 6
    told = Steps()
    warned = learning(base, **{"guard.max_kl": 0.01, "guard.action.max_kl": "warn"})
    align(warned, tmp_path / "run", progress=told)
    assert told.began == ["train bob"]
    assert contents(tmp_path / "run") == whole
    assert fired(tmp_path / "run") == [
        ("max_kl", 1, "ada", "pause"),
        ("max_kl", 1, "bob", "pause"),
    ]


def test_a_loss_that_is_not_finite_ends_the_run_or_skips_the_member(base, tmp_path):
    run = tmp_path / "run"
    absurd = {"train.learning_rate": 1e30, "train.warmup": 0.0, "train.epochs": 3}
    with pytest.raises(LossError) as caught:
        align(learning(base, **absurd), run)
    assert caught.value.exit_code == 5
    said = str(caught.value)
    assert said.startswith("guard finite_loss stopped the run in iteration 1: ada: ")
    assert said.endswith("phalanx run CONFIG guard.action.finite_loss=skip")
    assert "\n" not in said
    assert (count(run, "judgments"), count(run, "trainings")) == (10, 0)
    skip = learning(base, **absurd, **{"guard.action.finite_loss": "skip"})
    align(skip, run)
    align(skip, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")
    with Ledger(run_ledger_path(run)) as ledger:
        assert {member.version for member in ledger.members()} == {0}
        rows = ledger.query("SELECT member, num_examples, num_dropped FROM trainings")
        assert [row["num_examples"] for row in rows] == [0, 0]
        assert all('"not_finite"' in row["num_dropped"] for row in rows)
    shown = " ".join(command("status", run).stdout.split())
    assert "! guard finite_loss skipped a training in iteration 1: ada: the" in shown
    assert "the member stays as it was" in shown


# Reputations that rise while dev scores fall -----------------------------------------------------

ANSWERS = """
sampling:
  - {when: ada says so, purpose: judge, reply: '{"score": 9}'}
  - {when: ., purpose: judge, reply: '{"score": 3}'}
  - {when: '^Question', member: ada, reply: %s}
  - {when: '^Question', reply: seven}
  - {when: ., member: ada, reply: ada says so}
  - {when: ., member: bob, reply: bob says so}
"""


class Ageing(ScriptedEngine):
    """Members answer by the script of their version: it is learning that spoils one of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def respond(self, requests):
        return super().respond([replace(one, member=self._aged(one.member)) for one in requests])

    def _aged(self, member):
        return replace(member, base=f"script:{self._folder}/version-{member.version}.yaml")


def measured_by_age(config: Config, folder: Path, scripts: Path) -> None:
    with Workshop(config, folder) as shop:
        shop.use("hf", Ageing(scripts))
        align(config, folder, workshop=shop)


def test_judges_reward_what_the_tasks_do_not(base, tmp_path):
    """ada wins every duel; from version 2 on it answers no question right."""
    for version, answer in enumerate(("seven", "seven", "eight", "eight")):
        text = ANSWERS % answer
        (tmp_path / f"version-{version}.yaml").write_text(text, encoding="utf-8")
    items = write_rows(
        tmp_path / "items.jsonl",
        [{"id": f"q{n}", "instruction": f"Question {n}?", "answer": "seven"} for n in range(80)],
    )
    more = {
        "iterations": 3,
        "judge.protocol": "rubric",
        "judge.max_new_tokens": 16,
        "match.duels": 6,
        "train.epochs": 1,
        "train.learning_rate": 1e-5,
        "evaluate.dev_share": 0.5,
        "evaluate.tasks": [{"name": "sevens", "source": str(items), "match": "exact"}],
    }
    run, strict = tmp_path / "run", learning(base, **more, **{"guard.hacking": 0.2})
    with pytest.raises(GuardError, match="guard hacking stopped the run in iteration 2") as caught:
        measured_by_age(strict, run, tmp_path)
    assert "the reputation of ada rose from" in str(caught.value)
    assert "dev items fell from 1.000 to 0.000 (1, limit 0.2)" in str(caught.value)
    assert "guard.hacking=1" in str(caught.value)
    with pytest.raises(GuardError, match="guard hacking stopped the run in iteration 2"):
        measured_by_age(strict, run, tmp_path)
    free = learning(base, **more, **{"guard.hacking": 0.2, "guard.action.hacking": "warn"})
    measured_by_age(free, run, tmp_path)
    measured_by_age(free, tmp_path / "whole", tmp_path)
    assert contents(run) == contents(tmp_path / "whole")
    assert fired(tmp_path / "whole") == [
        ("hacking", number, "evaluation", "warn") for number in (2, 3)
    ]


def test_a_guard_that_fires_in_a_worker_is_heard_here():
    executor = ProcessExecutor(1, work.set_up, ("tool",))
    try:
        with pytest.raises(GuardError, match="too far") as caught:
            list(executor.map(work.guard, ["ada"]))
    finally:
        executor.close()
    assert (caught.value.fired.rule, caught.value.fired.where) == ("max_kl", "ada")
