"""A folder that grows: a name stays who it was, and what was there before decides nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.subjects import answering
from phalanx.measuring.wanted import wanted
from phalanx.measuring.work import measure_subjects
from phalanx.report.facts import gather
from tests.measuring.test_work import GSM8K, MEDQA, RULES
from tests.scripts import write_pool, write_rows
from tests.tiny import make_tiny

MORE = """
judge: {protocol: pairwise}
aggregate: {rule: mean}
mixture: {aggregator: cora}
evaluate: {max_new_tokens: 6}
resources: {device: cpu, threads: 1}
"""


@pytest.fixture
def config(tmp_path) -> str:
    write_rows(tmp_path / "gsm8k.jsonl", GSM8K)
    write_rows(tmp_path / "medqa.jsonl", MEDQA)
    write_rows(tmp_path / "open.jsonl", [{"instruction": "Say much about apples"}])
    return str(write_pool(tmp_path, ["ada", "bob", "cora"], RULES, MORE))


@pytest.fixture
def tiny(tmp_path) -> str:
    return str(make_tiny(tmp_path / "tiny"))


def measure(config: str, folder: Path, *members: str, task: str = "gsm8k", **options):
    wish = wanted(
        config, options.pop("settings", []), tasks=[task], members=list(members),
        data=folder.parent, **options,
    )  # fmt: skip
    measure_subjects(wish, folder)
    return wish


def asked(folder: Path, where: str = "purpose = purpose") -> list[str]:
    with Ledger(run_ledger_path(folder)) as ledger:
        rows = ledger.query(f"SELECT DISTINCT member FROM responses WHERE {where} ORDER BY member")
    return [row["member"] for row in rows]


def test_a_name_stays_with_its_members(config, tiny, tmp_path):
    out = tmp_path / "out"
    measure(config, out, "majority", f"tiny={tiny}")
    with pytest.raises(LedgerError, match="has measured another majority: its members were"):
        measure(config, out, "majority", task="medqa")
    measure(config, out, "majority", f"tiny={tiny}", task="medqa")


def test_models_of_their_own_neither_judge_nor_propose(config, tiny, tmp_path):
    """Alone, in one call with the collectives, and from an earlier call: the same are asked."""
    for folder, first in (("alone", []), ("later", [f"tiny={tiny}"])):
        if first:
            measure(config, tmp_path / folder, *first)
        measure(config, tmp_path / folder, "mixture", "best_of")
    measure(config, tmp_path / "beside", f"tiny={tiny}", "mixture")
    for folder in ("alone", "later", "beside"):
        assert asked(tmp_path / folder, "purpose = 'propose'") == ["ada", "bob", "cora"]
        assert "tiny" not in asked(tmp_path / folder, "purpose = 'judge'")
    with Ledger(run_ledger_path(tmp_path / "alone")) as ledger:
        assert ledger.get("judges") == "ada, bob, cora"


def test_other_judges_and_another_baseline_are_refused_before_anybody_is_asked(config, tmp_path):
    out = tmp_path / "out"
    measure(config, out, "bob", "ada", task="open")
    with Ledger(run_ledger_path(out)) as ledger:
        before = ledger.count("responses")
    text = Path(config).read_text(encoding="utf-8")
    members = text.replace("members:", "members:\n    - {name: dora, engine: scripted}", 1)
    other = tmp_path / "other.yaml"
    other.write_text(members, encoding="utf-8")
    with pytest.raises(LedgerError, match=r"has its judges .ada, bob, cora., who cannot change"):
        measure(str(other), out, "bob", "ada", task="open")
    wish = wanted(config, tasks=["gsm8k", "open"], members=["ada", "bob"], data=tmp_path)
    with pytest.raises(LedgerError, match=r"the baseline of task open .bob., who cannot change"):
        measure_subjects(wish, out)
    with Ledger(run_ledger_path(out)) as ledger:
        assert ledger.count("responses") == before


def test_whom_others_are_compared_with_can_be_taken_back(config, tmp_path):
    out = tmp_path / "out"
    pairs = []
    for against in ("bob", ""):
        measure(config, out, "ada", "bob", "cora", against=against)
        with Ledger(run_ledger_path(out)) as ledger:
            pairs.append({(one.subject, one.other) for one in gather(ledger).measured.paired})
    assert pairs == [{("ada", "bob"), ("cora", "bob")}, {("bob", "ada"), ("cora", "ada")}]


def test_recruits_that_are_not_made_are_never_left_out_silently(tmp_path):
    path = tmp_path / "unmade.yaml"
    path.write_text(
        "pool:\n  base: builtin:smollm2-135m\n  recruit: {specialists: {ada: [echo]}}\n"
        "  members: [{name: bob}, {name: cora}]\nmixture: {aggregator: cora}\n",
        encoding="utf-8",
    )
    for word in ("majority", "best_of", "mixture"):
        with pytest.raises(ConfigError, match=f"--members {word}: ada: recruits are made by a run"):
            wanted(str(path), tasks=["skills"], members=[word])
    chosen = wanted(str(path), ["mixture.proposers=[bob]"], tasks=["skills"], members=["mixture"])
    assert [one.name for one in chosen.subjects[0].members] == ["bob", "cora"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["judge.protocol=reward"], "judge.protocol is 'reward', by which judy"),
        (
            ["judge.protocol=moa", "mixture.aggregator=''"],
            "judge.protocol is moa, and reward.aggreg",
        ),
    ],
)
def test_judges_that_cannot_choose_are_found_before_anybody_answers(tmp_path, settings, words):
    path = tmp_path / "config.yaml"
    path.write_text(
        "pool:\n  base: builtin:smollm2-135m\n  members: [{name: ada}, {name: bob}, {name: judy}]\n"
        "mixture: {aggregator: bob}\nevaluate: {judges: [judy]}\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match=words):
        wanted(str(path), settings, tasks=["skills"], members=["best_of"])


def test_answers_that_only_their_writer_could_judge_are_refused(config, tmp_path):
    write_rows(tmp_path / "com2.jsonl", [{"question": "Why?", "answer": "so"}])
    for word, name in (("mixture", "mixture"), ("best_of", "cora")):
        with pytest.raises(ConfigError, match=f"com2: {name} has no judge but itself"):
            wanted(config, ["evaluate.judges=[cora]"], tasks=["com2"], members=[word],
                   data=tmp_path)  # fmt: skip


def test_options_that_nothing_reads_are_refused(config, tmp_path):
    write_rows(tmp_path / "mine.jsonl", GSM8K[:2])
    settings = [
        "evaluate.tasks="
        + json.dumps([{"name": "gsm8k", "kind": "gsm8k", "source": f"{tmp_path}/mine.jsonl"}])
    ]
    with pytest.raises(ConfigError, match=r"--task gsm8k: evaluate.tasks has it with rows of its"):
        wanted(config, settings, tasks=["gsm8k"], members=["ada"], data=tmp_path)
    with pytest.raises(ConfigError, match=r"--data .* is read for tasks of --task alone"):
        wanted(config, settings, members=["ada"], data=tmp_path)


def test_faults_of_contests_stand_beside_the_others(config, tmp_path):
    tasks = [
        {"name": "mine", "kind": "open", "source": f"{tmp_path}/open.jsonl", "baseline": "zed"}
    ]
    with pytest.raises(ConfigError) as caught:
        wanted(config, [f"evaluate.tasks={json.dumps(tasks)}"], tasks=["mine", "gpqa"],
               members=["ada", "bob"])  # fmt: skip
    assert "baseline 'zed' is neither a file nor one of those" in str(caught.value)
    assert "--task gpqa: no rows of kind gpqa" in str(caught.value)


def test_endpoints_are_not_asked_for_likelihoods_that_nobody_needs(tmp_path):
    far = [{"name": name, "engine": "openai", "model": "m"} for name in ("ada", "bob", "judy")]
    far.append({"name": "near", "engine": "scripted", "roles": ["judge"]})
    settings = {
        "pool.members": far,
        "endpoints": [{"name": "lab", "url": "http://127.0.0.1:9/v1"}],
        "judge.protocol": "pairwise",
        "evaluate.judges": ["judy"],
    }
    choices = {"choices": ["a", "b"], "labels": [1, 0]}
    row = {"prompt": "Which?", "answer": "A", "choices": {"A": "a", "B": "b"},
           "meta": {"mc1": choices, "mc2": choices}}  # fmt: skip
    write_rows(tmp_path / "truthfulqa.jsonl", [row])
    write_rows(tmp_path / "gsm8k.jsonl", GSM8K)
    wish = wanted(None, settings, tasks=["truthfulqa_mc1", "gsm8k"], members=["best_of", "near"],
                  data=tmp_path)  # fmt: skip
    asked_of = {
        name: [one.name for one in answering(wish.subjects, wish.voters, some[0])]
        for name, some in wish.items.items()
    }
    assert asked_of["truthfulqa_mc1"] == ["near"]
    assert asked_of["gsm8k"] == ["best_of", "near", "ada", "bob", "judy"]
    with pytest.raises(ConfigError, match="there is no text to choose; name members besides"):
        wanted(None, settings, tasks=["truthfulqa_mc1"], members=["best_of"], data=tmp_path)
    with pytest.raises(ConfigError, match="--members ada: an endpoint gives no likelihood"):
        wanted(None, settings, tasks=["truthfulqa_mc1"], members=["majority"], data=tmp_path)
