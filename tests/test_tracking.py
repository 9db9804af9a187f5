"""Trackers get a run's numbers, each once; none is needed, and none can end a run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx import trackers, tracking
from phalanx.config import load
from phalanx.config.rules import faults
from phalanx.errors import ConfigError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.trackers import Target
from tests.test_run_hf import configuration
from tests.tiny import make_tiny

ROOT = Path(__file__).resolve().parent.parent
TENSORBOARD = {"track.report_to": ["tensorboard"]}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What failed in one test is tried again in the next."""
    yield
    trackers.given_up.clear()
    trackers._written.clear()
    tracking._told.clear()


@pytest.fixture(scope="module")
def tiny_members(tmp_path_factory) -> list[dict]:
    base = make_tiny(tmp_path_factory.mktemp("bases") / "base", seed=1)
    return [{"name": name, "model": str(base)} for name in ("ada", "bob", "cora")]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every number that TensorBoard shows of a run: tag -> (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def said(folder: Path) -> list[str]:
    with Ledger(run_ledger_path(folder)) as ledger:
        return [row["text"] for row in ledger.query("SELECT text FROM events WHERE kind='tracker'")]


class Heard(Silent):
    """Keeps what was said, and may ask to stop at a certain point."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def say(self, text: str) -> None:
        self.texts.append(text)


def test_tensorboard_has_every_step_of_every_training_and_a_row_an_iteration(
    tiny_members, tmp_path
):
    """Against the ledger, for real trainings in worker processes; one cannot be reported."""
    changes = {"resources.workers": 2, "resources.device": "cpu", "resources.threads": None}
    config = configuration(tiny_members, **TENSORBOARD, **changes, **{"train.batch_size": 2})
    track = tmp_path / "run" / "track"
    track.mkdir(parents=True)
    (track / "cora@2").write_text("in the way")
    align(config, tmp_path / "run")
    names = [f"{name}@{version}" for name in ("ada", "bob", "cora") for version in (1, 2)]
    there = {path.name for path in track.iterdir()}
    # What follows in the process where it failed is left out, and who follows is not ordered.
    assert {*names, "pool"} - {"ada@2", "bob@2"} <= there <= {*names, "pool"}
    names = [name for name in names if name in there]
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert len(ledger.trained(2)) == 3
        for name in names[:-1]:
            member, _, version = name.partition("@")
            rows = ledger.query(
                "SELECT step, json_extract(signals, '$.loss') AS loss FROM training_steps "
                "WHERE member = ? AND iteration = ? ORDER BY step",
                (member, int(version)),
            )
            assert len(rows) > 1
            shown = scalars(track / name)["train/loss"]
            assert [step for step, _ in shown] == [row["step"] for row in rows]
            assert [v for _, v in shown] == pytest.approx([row["loss"] for row in rows], rel=1e-5)
        pool = scalars(track / "pool")
        for member in ("ada", "bob", "cora"):
            values = [ledger.state(number)["standings"][member].value for number in (1, 2)]
            shown = pool[f"reputation/{member}"]
            assert [step for step, _ in shown] == [1, 2]
            assert [value for _, value in shown] == pytest.approx(values)
        (row,) = ledger.query("SELECT sum(attempts) AS n FROM responses")
        assert pool["cost/requests"][-1] == (2, row["n"])
        assert [step for step, _ in pool["cost/requests"]] == [0, 1, 2]
        for step, value in pool["evaluation/ada"]:
            (row,) = ledger.query(
                "SELECT avg(score) AS mean FROM (SELECT avg(score) AS score FROM evaluations WHERE "
                "member = 'ada' AND iteration = ? AND split = 'test' GROUP BY domain)",
                (step,),
            )
            assert value == pytest.approx(row["mean"])
            low, high = (dict(pool[f"evaluation/ada/{end}"])[step] for end in ("low", "high"))
            assert low <= value <= high
            assert low < high
    notes = said(tmp_path / "run")
    assert len([n for n in notes if n.startswith("tensorboard failed at cora@2")]) == 1


def test_no_row_is_written_twice_however_often_a_run_is_stopped(tmp_path):
    """Stopped after every phase; the last start finds everything done and sends nothing more."""
    config = load(ROOT / "configs" / "smoke" / "rubric.yaml", TENSORBOARD)
    align(config, tmp_path / "whole")

    class Stops(Silent):
        left = 0

        def finish(self, note: str = "") -> None:
            Stops.left -= 1
            if not Stops.left:
                raise Interrupted("here")

    for phases in (1, 2, 3, 1, 2):
        Stops.left = phases
        with pytest.raises(Interrupted):
            align(config, tmp_path / "cut", progress=Stops())
    align(config, tmp_path / "cut")
    align(config, tmp_path / "cut")
    whole, cut = (scalars(tmp_path / name / "track" / "pool") for name in ("whole", "cut"))
    assert len(whole["cost/requests"]) == config.iterations + 1
    unclocked = {tag for tag in whole if tag not in ("cost/seconds",)}
    assert {tag: cut[tag] for tag in unclocked} == {tag: whole[tag] for tag in unclocked}
    with Ledger(run_ledger_path(tmp_path / "cut")) as ledger:
        assert ledger.get("tracked:tensorboard") == str(config.iterations)


def test_a_row_that_was_sent_but_not_marked_is_not_shown_twice(tmp_path):
    target = Target(("tensorboard",), "p", "run", "pool", "id", tmp_path)
    for steps in ((0, 1), (1, 2)):  # killed between sending step 1 and marking it
        trackers._written.clear()
        assert trackers.write(target, {step: {"a": float(step)} for step in steps}, "about") == {}
    assert scalars(tmp_path / "pool") == {"a": [(0, 0.0), (1, 1.0), (2, 2.0)]}


def test_a_training_that_begins_anew_shows_its_new_steps_alone(tiny_members, tmp_path, monkeypatch):
    """Cut off in its second step, it has written the first; TensorBoard shows each step once."""
    from phalanx.training.health import Watch

    config = configuration(tiny_members, **TENSORBOARD, **{"train.batch_size": 2, "iterations": 1})
    whole = Watch.end_step

    def cut(watch: Watch, logs: dict) -> None:
        if len(watch.steps) == 1:
            raise KeyboardInterrupt
        whole(watch, logs)

    monkeypatch.setattr(Watch, "end_step", cut)
    with pytest.raises(KeyboardInterrupt):
        align(config, tmp_path / "run")
    ada = tmp_path / "run" / "track" / "ada@1"
    assert [step for step, _ in scalars(ada)["train/loss"]] == [1]
    monkeypatch.setattr(Watch, "end_step", whole)
    align(config, tmp_path / "run")
    assert len(list(ada.iterdir())) == 2
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        count = ledger.count("training_steps", "member = 'ada'")
    assert [step for step, _ in scalars(ada)["train/loss"]] == list(range(1, count + 1))


def test_a_tracker_that_fails_is_told_once_and_ends_nothing(tiny_members, tmp_path, monkeypatch):
    """A file where its folder should be: neither the pool's run nor a training's can be opened."""
    (tmp_path / "in the way").write_text("")
    password = "correct-horse-battery"
    monkeypatch.setenv("SOME_PASSWORD", password)
    folder = tmp_path / "in the way" / password
    more = {"iterations": 1, "track.folder": str(folder)}
    heard = Heard()
    align(configuration(tiny_members, **TENSORBOARD, **more), tmp_path / "run", progress=heard)
    (note,) = said(tmp_path / "run")
    assert note.startswith("tensorboard failed at pool and is left out until the next start")
    assert [text for text in heard.texts if "tensorboard" in text] == [f"Note: {note}"]
    assert password not in note
    assert "[key]" in note
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.get("finished")
        assert len(ledger.trained(1)) == 3
        assert ledger.get("tracked:tensorboard") is None
    trackers.given_up.clear()  # the next start; the way is free, and what is owed is sent
    (tmp_path / "in the way").unlink()
    align(configuration(tiny_members, **TENSORBOARD, **more), tmp_path / "run")
    assert [step for step, _ in scalars(folder / "run" / "pool")["cost/requests"]] == [0, 1]


def test_tracking_changes_nothing_of_the_run(tiny_members, tmp_path):
    """And it may be switched on later: then all rows of the pool are sent."""
    plain = configuration(tiny_members, iterations=1)
    align(plain, tmp_path / "plain")
    align(configuration(tiny_members, iterations=1, **TENSORBOARD), tmp_path / "tracked")
    contents = []
    for name in ("plain", "tracked"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            rows = ledger.contents()
            rows["run"] = [
                row for row in rows["run"] if row["key"] not in ("config", "tracked:tensorboard")
            ]
            contents.append(rows)
    assert contents[0] == contents[1]
    align(configuration(tiny_members, iterations=1, **TENSORBOARD), tmp_path / "plain")
    late, early = (scalars(tmp_path / name / "track" / "pool") for name in ("plain", "tracked"))
    del late["cost/seconds"], early["cost/seconds"]
    assert late == early


def test_a_package_that_is_missing_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    smoke = ROOT / "configs" / "smoke" / "rubric.yaml"
    config = load(smoke, TENSORBOARD)
    assert not faults(config)
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorboard" else found(name)
    )
    with pytest.raises(ConfigError, match="pip install tensorboard, or leave tensorboard out"):
        align(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_transformers_has_the_integrations_that_are_used():
    """Of trackers that are not installed here, at least that the callbacks are what is expected."""
    from transformers import integrations

    for name in ("TensorBoardCallback", "WandbCallback", "TrackioCallback", "MLflowCallback"):
        callback = getattr(integrations, name)
        for event in ("setup", "on_train_begin", "on_log", "on_train_end"):
            assert hasattr(callback, event) or (name, event) == ("TensorBoardCallback", "setup")
    assert trackers._TRACKERS.keys() == {"tensorboard", "wandb", "trackio", "mlflow"}


@pytest.mark.skipif(bool(trackers.lacking("trackio")), reason="trackio is not installed")
def test_trackio_that_loses_numbers_without_a_word_is_told(tmp_path):
    """It warns and goes on where its folder cannot be made; what was lost is not marked as sent."""
    (tmp_path / "in the way").write_text("")
    code = (
        "import sys; from pathlib import Path; from phalanx import trackers\n"
        "target = trackers.Target(('trackio',), 'p', 'run', 'pool', 'id', Path(sys.argv[1]))\n"
        "print(trackers.write(target, {0: {'a': 1.0}}, 'about'))"
    )
    place = str(tmp_path / "in the way" / "trackio")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        env={**os.environ, "TRACKIO_DIR": place, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"numbers could not be kept in {place}" in ran.stdout


INSTALLED = [name for name in ("wandb", "trackio", "mlflow") if not trackers.lacking(name)]


@pytest.mark.skipif(not INSTALLED, reason="none of wandb, trackio, mlflow is installed")
def test_the_other_trackers_that_are_installed_get_a_whole_run(tiny_members, tmp_path, monkeypatch):
    """Offline, with stores in files, read back with their own packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    more = {"track.report_to": INSTALLED, "iterations": 1, "track.project": "tries"}
    align(configuration(tiny_members, **more), tmp_path / "run")
    assert said(tmp_path / "run") == []
    trainings = {f"run/{name}@1" for name in ("ada", "bob", "cora")}
    if "wandb" in INSTALLED:
        runs = list((tmp_path / "run" / "track" / "wandb").glob("offline-run-*/run-*.wandb"))
        texts = [path.read_bytes() for path in runs]
        for name in (*trainings, "run/pool"):
            assert any(name.encode() in text for text in texts)
        assert sum(b"train/loss" in text for text in texts) == 3
        assert any(b"reputation/ada" in text for text in texts)
        assert not any(Path(sys.argv[0]).name.encode() in text for text in texts)
    if "trackio" in INSTALLED:
        import trackio

        names = {run.name for run in trackio.Api().runs("tries")}
        assert trainings < names
        assert len(names) == 4
    if "mlflow" in INSTALLED:
        import mlflow

        client = mlflow.MlflowClient()
        found = client.search_runs([client.get_experiment_by_name("tries").experiment_id])
        by_name = {run.info.run_name: run for run in found}
        assert by_name.keys() == trainings | {"run/pool"}
        assert all(run.info.status == "FINISHED" for run in found)
        assert len(client.get_metric_history(by_name["run/ada@1"].info.run_id, "loss")) == 1
        history = client.get_metric_history(by_name["run/pool"].info.run_id, "cost/requests")
        assert [one.step for one in history] == [0, 1]
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert "WANDB_LOG_MODEL" not in os.environ
