"""Runs of the methods that only answer: measured, recorded, resumed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.config.rules import faults, notes
from phalanx.config.rules_answering import is_free
from phalanx.config.schema import TaskSettings
from phalanx.config.schema_evaluate import CONTESTS
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import together_key
from phalanx.loop import align
from phalanx.measuring.wanted import KINDS
from phalanx.plan import content_faults
from phalanx.report.facts import gather
from phalanx.report.scores import best_on_dev
from phalanx.tasks.items import is_voted
from phalanx.workshop import Workshop

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = ROOT / "configs" / "smoke" / "questions.jsonl"
NAMES = ["self_consistency", "debate", "mixture", "council", "best_of_n"]


TWICE = f"evaluate.tasks=[{{name: t, source: '{QUESTIONS}', samples: 2, temperature: 0.9}}]"


def smoke(name: str, *overrides: str):
    return load(ROOT / "configs" / "smoke" / f"{name}.yaml", overrides)


@pytest.mark.parametrize("name", NAMES)
def test_members_are_measured_then_the_collective_and_the_run_is_finished(name, tmp_path):
    align(smoke(name, "iterations=7"), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        rows = ledger.query(
            "SELECT member, count(*) AS n, max(iteration) AS last FROM evaluations GROUP BY 1"
        )
        assert {row["member"]: (row["n"], row["last"]) for row in rows} == dict.fromkeys(
            ("ada", "bob", "cora", "dan", name), (10, 0)
        )
        counts = json.loads(ledger.get(together_key(0, name)) or "{}")
        missing = ledger.count("evaluations", "member = ? AND response = ''", (name,))
        assert counts["asked"] == 10
        assert counts["unanswered"] == missing
        assert (ledger.get("num_iterations"), bool(ledger.get("finished"))) == ("0", True)
        facts = gather(ledger, tables=False)
        assert (facts.progress.phase, facts.progress.num_iterations) == ("finished", 0)
        phases = {row["phase"] for row in ledger.query("SELECT DISTINCT phase FROM responses")}
        assert all(phase.startswith("evaluate") for phase in phases)
        first = ledger.contents()
    align(smoke(name, "iterations=9"), tmp_path / "run")  # it has no meaning here
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        again = ledger.contents()
    assert again["responses"] == first["responses"]
    assert again["evaluations"] == first["evaluations"]


class Stops(ScriptedEngine):
    """Stops after so many batches, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        super().__init__(batch_size=16)
        self.left = after

    def respond(self, requests):
        if not self.left:
            raise Interrupted("stopped")
        self.left -= 1
        return super().respond(requests)


@pytest.mark.parametrize("name", ["council", "debate"])
def test_a_stopped_run_goes_on_to_the_same_ledger(name, tmp_path):
    def run(folder: Path, after: int) -> None:
        config = smoke(name)
        shop = Workshop(config, folder)
        shop.use("scripted", Stops(after))
        align(config, folder, workshop=shop)

    run(tmp_path / "whole", 10**6)
    seen = set()
    for _ in range(40):
        try:
            run(tmp_path / "stopped", 1)
            break
        except Interrupted:
            with Ledger(run_ledger_path(tmp_path / "stopped")) as ledger:
                seen.add(gather(ledger, tables=False).progress.phase)
    assert {"evaluate"} < seen  # a status says which phase of the collective is under way
    contents = []
    for folder in ("whole", "stopped"):
        with Ledger(run_ledger_path(tmp_path / folder)) as ledger:
            contents.append(ledger.contents())
    assert contents[0] == contents[1]


def test_the_best_on_dev_items_answers_whoever_is_best_on_the_others(tmp_path):
    align(smoke("self_consistency"), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        names = [member.name for member in ledger.members(0)]
        dev = {
            name: ledger.count(
                "evaluations", "member = ? AND split = 'dev' AND correct = 1", (name,)
            )
            for name in names
        }
        best = best_on_dev(ledger, names)
        assert dev[best] == max(dev.values())
        (asked,) = ledger.query("SELECT DISTINCT member FROM responses WHERE purpose = 'answer'")
        assert asked["member"] == best
        assert best_on_dev(ledger, []) == ""
        assert best_on_dev(ledger, names, iteration=3) == ""
        nobody = [name for name in names if dev[name] == dev["bob"]]
        assert best_on_dev(ledger, nobody) == nobody[0]  # of equals the first


def test_a_judged_task_is_not_judged_by_whoever_wrote_the_answer(tmp_path):
    """Of several samples each has its own writer."""
    config = smoke(
        "council",
        f"evaluate.tasks=[{{name: free, source: '{QUESTIONS}', match: judged, samples: 3, "
        "temperature: 0.9}]",
        "evaluate.judges=[ada,bob]",
        "council.sample.temperature=0.7",
    )
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        rows = ledger.query(
            "SELECT g.judge, r.member FROM games g JOIN responses r ON r.id = g.response "
            "WHERE g.member = 'council'"
        )
    assert rows
    assert all(row["judge"] != row["member"] for row in rows)


# Rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("self_consistency", ["evaluate.dev_share=0"], "no dev items on which a member is best"),
        ("self_consistency", ["self_consistency.member=eve"], "there is no member 'eve'"),
        ("self_consistency", ["self_consistency.sample.temperature=0"], "all the same text"),
        ("self_consistency", ["evaluate.tasks=[{name: h, kind: humaneval, source: a.jsonl}]"],
         "there is nothing to vote on"),
        ("debate", ["debate.debaters=[ada]"], "a debate needs two debaters"),
        ("debate", ["debate.summariser=eve"], "there is no member 'eve'"),
        ("debate", ["evaluate.tasks=[{name: t, kind: truthfulqa_mc1, source: a.jsonl}]"],
         "who answers together only writes"),
        ("mixture", ["mixture.aggregator=''"], "names nobody"),
        ("council", ["council.members=[ada]"], "needs two answers to choose from, and 1"),
        ("council", ["council.members=[ada,bob]", "council.voters=[bob]"], "nobody votes for an"),
        ("debate", ["debate.debaters=[ada,ada,bob]", "debate.sample.temperature=0"],
         "all seats of ada say the same"),
        ("best_of_n", ["best_of_n.member=ada", "best_of_n.judge=ada"], "nobody judges an answer"),
        ("best_of_n", ["best_of_n.judge=cora"], "cora may be the best on dev items"),
        ("best_of_n", ["pool.members=[{name: bob, engine: scripted, roles: [contest]}, "
                       "{name: ada, engine: scripted}]"], "ada may be .* the only one with"),
        ("best_of_n", ["judge.protocol=moa", "mixture.aggregator=dan", "best_of_n.member=ada"],
         "ada is the one that answers, and sits on the panel"),
        ("best_of_n", ["judge.protocol=moa", "mixture.aggregator=ada", "reward.proposers=[bob]",
                       "mixture.proposers=[cora]"], "ada or bob may be .* sits on the panel"),
        ("best_of_n", ["judge.protocol=moa", "reward.proposers=[bob]"], "names nobody"),
        ("best_of_n", ["best_of_n.judge=eve"], "there is no member 'eve'"),
        ("best_of_n", ["judge.protocol=moa", "best_of_n.judge=bob"], "cannot rank answers"),
        ("best_of_n", ["best_of_n.sample.temperature=0"], "all the same text"),
        ("council", [TWICE, "council.sample.temperature=0"], "so they are all the same"),
        ("debate", [TWICE, "debate.sample.temperature=0"], "so they are all the same"),
        ("best_of_n", [TWICE, "best_of_n.samples=1", "best_of_n.sample.temperature=0"],
         "so they are all the same"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_a_model_loads(name, overrides, message):
    with pytest.raises(ConfigError, match=message):
        smoke(name, *overrides)


def test_samples_that_a_summariser_or_an_aggregator_writes_differ():
    summarised = ["debate.summariser=ada", "debate.sample.temperature=0"]
    for name, more in (("debate", summarised), ("mixture", [])):
        assert faults(smoke(name, TWICE, *more)) == []


def test_the_panel_chooses_among_the_answers_of_another():
    panel = ["judge.protocol=moa", "reward.proposers=[bob,cora]", "mixture={aggregator: dan}"]
    config = smoke("best_of_n", "best_of_n.member=ada", *panel)
    assert faults(config) == []
    assert not [note for note in notes(config) if "no use" in note]
    unread = smoke("best_of_n", "aggregate.rule=median", *panel[1:])
    without = {note.partition(":")[0] for note in notes(unread) if "no use" in note}
    assert without == {"aggregate", "mixture", "reward"}


@pytest.mark.parametrize("name", ["self_consistency", "best_of_n"])
def test_a_task_without_dev_items_is_refused_where_the_best_on_them_answers(name):
    few = "evaluate.dev_share=0.03"
    (fault,) = content_faults(smoke(name, few))
    assert "none of the 10 items is a dev item" in fault.text
    assert fault.path == (name, "member")
    assert not [*content_faults(smoke(name, few, f"{name}.member=ada"))]
    assert not [*content_faults(smoke(name))]
    hub = "evaluate.tasks=[{name: h, kind: gsm8k, source: 'hub:openai/gsm8k'}]"
    assert not [*content_faults(smoke(name, few, hub))]


def test_all_faults_are_in_one_message():
    with pytest.raises(ConfigError) as refused:
        smoke("best_of_n", "best_of_n.member=eve", "best_of_n.judge=dave",
              "best_of_n.sample.temperature=0")  # fmt: skip
    text = str(refused.value)
    assert all(word in text for word in ("eve", "dave", "temperature"))


def test_smoke_configurations_have_no_faults_and_a_draw_is_worth_a_note():
    for name in [*NAMES, "frozen"]:
        assert faults(smoke(name)) == []
    two = smoke(
        "debate",
        "debate.debaters=[ada,bob]",
        f"evaluate.tasks=[{{name: t, source: '{QUESTIONS}', match: contains}}]",
    )
    assert any("so one is drawn" in note for note in notes(two))


def test_what_is_free_is_what_nobody_can_vote_on():
    for kind in KINDS:
        if kind not in CONTESTS:
            task = TaskSettings(name="t", kind=kind, source="s")
            assert is_free(task) is not is_voted(kind, "exact"), kind
    for match in ("exact", "number", "choice", "contains", "judged"):
        task = TaskSettings(name="t", match=match, source="s")
        assert is_free(task) is not is_voted("", match), match
