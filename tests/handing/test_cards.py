"""A card says what became of the models: of every method, whatever it was set to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phalanx.cli import app
from phalanx.config.schema import Config
from phalanx.handing.cards import run_in_words
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods import METHODS
from phalanx.report.facts import gather
from phalanx.report.records import RunFacts, TrainingFacts

SMOKE = Path(__file__).parents[2] / "configs" / "smoke" / "rubric.yaml"
PAIRS = {"sparta", "self_rewarding", "meta_rewarding", "spin", "sppo", "preference_file"}
LEARN = [name for name, method in METHODS.items() if method.run]


@pytest.fixture(scope="module")
def facts(tmp_path_factory) -> RunFacts:
    """A run of scripted members, finished, that stopped after its pairs."""
    folder = tmp_path_factory.mktemp("cards") / "run"
    words = ["run", str(SMOKE), "--out", str(folder), "train.method=none", "iterations=1", "-q"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


def of(
    facts: RunFacts, method: str, train: str = "dpo", num: int = 0, loss: str = "auto", **more
) -> str:
    settings = Config().model_dump(mode="json") | {"method": method}
    settings["train"] |= {"method": train, "loss": loss}
    if method == "moaa":
        settings["moaa"]["students"] = [{"name": "ada"}]
    if method == "multiagent":
        settings["pool"] = facts.config["pool"]
    trained = (TrainingFacts(1, "ada", 1, num, {}, 1.0, ()),) if num else ()
    return run_in_words(replace(facts, method=method, config=settings, trainings=trained, **more))


def test_a_data_set_that_nobody_learned_from_says_so(facts, tmp_path):
    done = CliRunner().invoke(
        app, ["push", facts.folder, "me/mine", "--dry-run", "--out", str(tmp_path / "parcel")]
    )
    assert done.exit_code == 0, done.output
    card = (tmp_path / "parcel" / "dataset" / "README.md").read_text("utf-8")
    assert "with 4 models. No model was trained in it: it stops after the data" in card
    assert "DPO" not in card.partition("## Settings")[0]
    assert "aligned" not in card
    assert "not finished" not in card


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("train", ["none", "sft", "dpo"])
def test_no_card_says_that_models_learned_where_none_did(facts, method, train):
    text = of(facts, method, train)
    assert "No model was trained in it" in text
    assert f"`{method}`" in text
    own_words = text.replace(METHODS[method].paper, "")
    for word in ("DPO", "fine-tuning", "GRPO", "aligned", "learned in it"):
        assert word not in own_words
    kind = METHODS[method].kind
    assert ("only answers" in text) is (kind == "answer")
    assert ("stops after the data" in text) is (method in LEARN and train == "none")


@pytest.mark.parametrize("method", LEARN)
def test_a_card_names_by_what_was_learned(facts, method):
    text = of(facts, method, num=3)
    assert "ada learned in it, by " in text
    assert "No model" not in text
    how = text.partition("learned in it, by ")[2]
    wanted = "DPO" if method in PAIRS else "supervised fine-tuning"
    wanted = {
        "consensus_grpo": "GRPO",
        "sppo": "preference pairs (loss `sppo`)",
    }.get(method, wanted)
    assert how.startswith(wanted), how


def test_other_losses_and_ends_are_named(facts):
    assert "by supervised fine-tuning" in of(facts, "sparta", "sft", num=3)
    simpo = of(facts, "preference_file", num=3, loss="simpo")
    assert "by preference pairs (loss `simpo`)" in simpo
    going = replace(facts.progress, finished=None)
    text = of(facts, "sparta", progress=going)
    assert "not finished when this was made. No model was trained in it so far" in text
    assert "nothing to learn from" in of(facts, "sparta")
    assert "`phalanx judge`" in of(facts, "judge")
