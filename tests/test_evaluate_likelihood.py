"""Tasks scored by the likelihood of each choice: one request a choice, rows, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.config import load, rules
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.evaluate import answers, evaluate, load_tasks
from phalanx.identity import canonical_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.plan.make import _evaluation_items
from phalanx.pool import members_from
from phalanx.types import Failure, Likelihood, Request, Response
from tests.search_pool import write_config

TRUE, WRONG = ["To three.", "A little."], ["Never.", "To ten."]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    rows = tmp_path / "true.jsonl"
    marked = {
        "mc1_targets": {"choices": [TRUE[0], *WRONG], "labels": [1, 0, 0]},
        "mc2_targets": {"choices": [*TRUE, *WRONG], "labels": [1, 1, 0, 0]},
    }
    rows.write_text("\n".join(json.dumps({"question": f"q{n}?", **marked}) for n in range(6)))
    tasks = [
        f"{{name: {kind}, source: '{rows}', kind: truthfulqa_{kind}}}" for kind in ("mc1", "mc2")
    ]
    extra = "mixture: {proposers: [ada, bob], aggregator: cora}"
    path = write_config(tmp_path, items=2, extra=extra)
    return load(path, [f"evaluate.tasks=[{', '.join(tasks)}]"], purpose="mix")


def measured(config: Config, folder: Path, sums) -> tuple[list[dict], list[Request]]:
    """The rows of ada alone, whose likelihood of a text is ``sums(text)``, None for a failure."""
    asked: list[Request] = []

    def ask(phase: str, requests: list[Request]) -> list[Response]:
        asked.extend(requests)
        found = [(request, sums(request.want.completion)) for request in requests]
        return [
            Response(request.id, error=Failure("timeout", "late"))
            if value is None
            else Response(request.id, logprob_sum=value)
            for request, value in found
        ]

    members = members_from(config)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        names = canonical_json([member.name for member in members])
        ledger.record_start({"pool_order": names}, members, ())
        evaluate(members[:1], load_tasks(config), ask, ledger, config, iteration=0)
        return ledger.query("SELECT * FROM evaluations ORDER BY task, item"), asked


def test_each_choice_is_asked_once(config: Config, tmp_path: Path) -> None:
    rows, asked = measured(config, tmp_path / "run", lambda text: -float(len(text)) / 100)
    assert len(asked) == len({request.id for request in asked}) == 6 * (3 + 4)
    assert {request.want for request in asked} == {Likelihood(text) for text in TRUE + WRONG}
    assert all(request.messages[-1].content.startswith("q") for request in asked)
    assert len(rows) == 12
    assert all(row["readable"] for row in rows)
    # "Never." is the shortest text and so the likeliest
    assert [row["correct"] for row in rows if row["task"] == "mc1"] == [0] * 6
    known = {request.id for request in asked}
    assert all(row["response"] in known for row in rows)


def test_right_members_are_right(config: Config, tmp_path: Path) -> None:
    rows, _ = measured(config, tmp_path / "run", lambda text: -1.0 if text in TRUE else -9.0)
    assert all(row["correct"] and row["readable"] for row in rows)
    masses = {row["answer"] for row in rows if row["task"] == "mc2"}
    assert masses == {"0.999665"}  # 1 / (1 + e^-8)


def test_a_broken_member_is_unreadable(config: Config, tmp_path: Path) -> None:
    rows, _ = measured(config, tmp_path / "same", lambda text: -1.0)
    assert {(row["correct"], row["readable"], row["reason"]) for row in rows} == {(0, 0, "tie")}
    late = lambda text: None if text == WRONG[0] else -1.0  # noqa: E731
    rows, _ = measured(config, tmp_path / "late", late)
    found = {(row["correct"], row["readable"], row["reason"], row["answer"]) for row in rows}
    assert found == {(0, 0, "timeout", "")}


def test_a_mixture_cannot_be_asked(config: Config) -> None:
    with pytest.raises(ConfigError, match="gives no likelihood of a given text, which mc1, mc2"):
        answers(None, load_tasks(config), None, config, phase="")  # type: ignore[arg-type]


def test_a_plan_counts_every_choice(config: Config) -> None:
    assert _evaluation_items(config)[:2] == (6 * (3 + 4), 0)


def test_rules(config: Config) -> None:
    tasks = [task.model_copy(update={"match": "number"}) for task in config.evaluate.tasks]
    update = {"tasks": tasks, "mixture": True}
    evaluation = config.evaluate.model_copy(update=update)
    member = config.pool.members[0].model_copy(update={"engine": "openai", "endpoint": "lab"})
    pool = config.pool.model_copy(update={"members": [member, *config.pool.members[1:]]})
    found = rules.faults(config.model_copy(update={"evaluate": evaluation, "pool": pool}))
    for name in ("mc1", "mc2"):
        said = "\n".join(fault for fault in found if f"evaluate.tasks.{name}." in fault)
        assert "number beside kind truthfulqa_mc" in said
        assert "cannot be asked of ada" in said
        assert "cannot be asked of a mixture" in said
    assert not [fault for fault in rules.faults(config) if "truthfulqa" in fault]
