"""The mixture as a pseudo-member of evaluations: rows, reasons, when it is measured, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.collective.mixture import mixture_from
from phalanx.config import load
from phalanx.dispatch import Dispatcher
from phalanx.evaluate import evaluate_mixture, load_tasks, mixture_after
from phalanx.identity import canonical_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.pool import members_from
from phalanx.progress import Silent
from phalanx.report.facts import gather
from phalanx.report.terminal import summary
from phalanx.report.views import matrix
from phalanx.types import Member, TrainResult
from tests.report.test_renderers import printed
from tests.search_pool import Pool, write_config

ROOT = Path(__file__).resolve().parent.parent
MIXTURE = "mixture: {proposers: [ada, bob], aggregator: cora, propose: {temperature: 0.9}}"


@pytest.fixture
def config(tmp_path):
    extra = MIXTURE + "\nmoaa: {stages: [sft, dpo]}"
    path = write_config(tmp_path, items=8, extra=extra)
    return load(path, ["evaluate.mixture=true"], purpose="mix")


@pytest.fixture
def ledger(config, tmp_path):
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as ledger:
        members = members_from(config)
        names = canonical_json([member.name for member in members])
        ledger.record_start({"pool_order": names}, members, ())
        yield ledger


def measured(config, ledger, engine) -> list[dict]:
    ask = Dispatcher(ledger, lambda name: engine, Silent(), lambda: False, 0).ask
    mixture = mixture_from(config, ledger.members(0))
    evaluate_mixture(mixture, load_tasks(config), ask, ledger, config, iteration=0)
    return ledger.query("SELECT * FROM evaluations")


def test_rows_have_the_last_answer_and_its_request(config, ledger):
    rows = measured(config, ledger, Pool())
    assert len(rows) == 8
    assert {row["member"] for row in rows} == {"mixture"}
    assert all(row["correct"] and row["readable"] for row in rows)
    for row in rows:
        (response,) = ledger.query("SELECT * FROM responses WHERE id = ?", (row["response"],))
        assert (response["purpose"], response["member"]) == ("aggregate", "cora")


def test_the_last_answer_is_written_as_members_write_theirs(config, ledger):
    engine = Pool()
    measured(config, ledger, engine)
    wants = {request.purpose: request.want for request in engine.calls}
    last = wants["aggregate"]
    assert (last.temperature, last.top_p, last.top_k) == (0.0, 1.0, 0)
    assert last.max_new_tokens == config.evaluate.max_new_tokens
    assert wants["propose"].temperature == 0.9
    assert wants["propose"].max_new_tokens == config.mixture.propose.max_new_tokens


def test_nothing_is_asked_twice(config, ledger):
    first = measured(config, ledger, Pool())
    engine = Pool()
    assert measured(config, ledger, engine) == first
    assert engine.calls == []


def test_no_answer_is_wrong_not_readable_and_has_a_reason(config, ledger):
    few = config.mixture.model_copy(update={"min_proposals": 2})
    rows = measured(config.model_copy(update={"mixture": few}), ledger, Pool(broken="bob"))
    assert len(rows) == 8
    for row in rows:
        assert (row["correct"], row["readable"], row["response"]) == (0, 0, "")
        assert row["reason"].startswith("too_few_proposals")


def test_an_aggregator_that_fails_is_the_reason(config, ledger):
    rows = measured(config, ledger, Pool(broken="cora"))
    assert {row["reason"].split(":")[0] for row in rows} == {"failed"}
    assert not any(row["correct"] or row["readable"] for row in rows)


def learned(ledger: Ledger, iteration: int, name: str) -> None:
    member = next(m for m in ledger.members() if m.name == name)
    newer = Member(member.name, member.base, version=member.version + 1, engine=member.engine)
    ledger.record_training(iteration, TrainResult(newer, 1, {}, (), {}, 1.0))


def keys(mixture) -> list[str]:
    return [member.key for member in mixture.members]


def with_moaa(config, **changed):
    from phalanx.config.schema import StudentSettings

    moaa = config.moaa.model_copy(update={"students": [StudentSettings(name="judy")], **changed})
    return config.model_copy(update={"moaa": moaa})


def test_moaa_measures_the_mixture_of_the_generation_to_come(config, ledger):
    config = with_moaa(config, self_improve="join")
    assert keys(mixture_after(config, ledger, 0)) == ["ada@0", "bob@0", "cora@0"]
    assert mixture_after(config, ledger, 1) is None
    learned(ledger, 1, "judy")
    learned(ledger, 2, "ada")
    after = mixture_after(config, ledger, 2)
    assert keys(after) == ["ada@1", "bob@0", "judy@1", "cora@0"]
    replaced = mixture_after(with_moaa(config, self_improve="replace"), ledger, 2)
    assert keys(replaced) == ["ada@1", "bob@0", "cora@0"]
    off = mixture_after(with_moaa(config, self_improve="off"), ledger, 2)
    assert keys(off) == ["ada@0", "bob@0", "cora@0"]


def test_it_is_measured_only_where_asked_for(config, ledger):
    silent = config.evaluate.model_copy(update={"mixture": False})
    assert mixture_after(config.model_copy(update={"evaluate": silent}), ledger, 0) is None


@pytest.mark.parametrize("method", ["sparta", "rejection_sampling"])
def test_a_run_that_trains_measures_the_mixture_of_its_members_and_shows_it(tmp_path, method):
    rows = '{"instruction": "Say seven.", "answer": "seven"}\n'
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(rows, encoding="utf-8")
    overrides = [
        f"method={method}",
        "rejection_sampling={instructions: 2, samples: 2}",
        "evaluate.mixture=true",
        "evaluate.dev_share=0",
        "mixture={proposers: [ada, bob], aggregator: cora}",
        f"evaluate.tasks=[{{name: seven, source: '{tasks}', match: contains}}]",
    ]
    config = load(ROOT / "configs/smoke/rubric.yaml", overrides)
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        facts = gather(ledger)
        (change,) = (one for one in facts.evaluation.mixture if not one.domain)
        scores = ledger.query(
            "SELECT score FROM evaluations WHERE member = 'mixture' ORDER BY iteration"
        )
        assert (change.before, change.after) == (scores[0]["score"], scores[-1]["score"])
        assert "mixture" in {row["name"] for row in matrix(facts)}
        assert "mixture" in printed(summary(facts))
        found = ledger.query("SELECT iteration, member FROM evaluations ORDER BY iteration, member")
        members = [member.name for member in ledger.members()]
    numbers = range(config.iterations + 1)
    wanted = [(n, name) for n in numbers for name in sorted([*members, "mixture"])]
    assert [(row["iteration"], row["member"]) for row in found] == wanted


def test_a_moaa_run_measures_it_at_the_start_and_after_every_generation(tmp_path):
    overrides = [
        "evaluate.mixture=true",
        "evaluate.tasks=[{name: skills, source: 'builtin:skills', limit: 1}]",
    ]
    config = load(ROOT / "configs/smoke/moaa.yaml", overrides)
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        rows = ledger.query("SELECT DISTINCT iteration, member FROM evaluations")
        proposed = ledger.query(
            "SELECT DISTINCT iteration, member FROM responses WHERE phase = 'evaluate propose 1'"
        )
        before = ledger.contents()
    at = {name: sorted(r["iteration"] for r in rows if r["member"] == name)
          for name in ("mixture", "ada")}  # fmt: skip
    assert at == {"mixture": [0, 2, 4], "ada": [0, 1, 2, 3, 4]}
    assert {r["iteration"] for r in rows if r["member"] == "cora"} == {0, 1, 2, 3, 4}, "a judge"
    who = {(row["iteration"], row["member"]) for row in proposed}
    assert who == {(0, "ada"), (0, "bob"), (2, "student")}, "nobody is asked twice"
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.contents() == before
