"""The plan: counts by hand, sizes from headers, and nothing heavy loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config import Config, load
from phalanx.config.loading import preset_names
from phalanx.errors import ConfigError
from phalanx.plan import check, make_plan, require
from phalanx.plan.machines import machine_named
from phalanx.plan.memory import longest_request
from phalanx.plan.sizes import (
    SMOLLM2_135M,
    base_size,
    safetensors_parameters,
    size_from_name,
)
from phalanx.plan.table import duration
from phalanx.plan.work import batches_of, steps_of

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "datasets", "trl", "peft", "scipy", "numpy", "pandas", "choix")


def small(**changes: Any) -> Config:
    names = ("ada", "bob", "cora", "dan")
    data: dict[str, Any] = {
        "iterations": 3,
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": name} for name in names]},
        "instructions": {"source": "builtin:skills"},
        "match": {"duels": 10},
        "answer": {"max_new_tokens": 100},
        "judge": {"protocol": "likelihood"},
        "train": {"batch_size": 4, "epochs": 2},
        "resources": {"device": "cpu"},
    }
    return Config.model_validate(data | changes)


def test_counts_by_hand() -> None:
    plan = make_plan(small())
    work, tokens = plan.work, plan.instructions.tokens
    assert (work.duels, work.responses, work.judgments, work.judge_requests) == (10, 20, 20, 40)
    assert (work.pairs, work.training_pairs) == (10, 10)
    assert work.training_steps == 6  # ceil(10 / 4) batches, twice
    assert work.answer_tokens == 20 * (tokens + 100)
    assert work.judge_tokens == 40 * (tokens + 100)
    assert work.train_tokens == 10 * 2 * (tokens + 100) * 2 * 4
    assert plan.evaluation_requests == 0
    assert plan.assumed == ""


def test_counts_of_learning_the_chosen_responses_alone() -> None:
    plan = make_plan(small(train={"method": "sft", "epochs": 9}, sft={"batch_size": 3}))
    assert (plan.work.pairs, plan.work.training_steps) == (10, 4)  # ceil(10 / 3) batches, once
    assert plan.work.train_tokens == 10 * (plan.instructions.tokens + 100) * 4
    (training,) = plan.rounds[0].trainings
    assert training.texts == 1
    assert training.steps == 4 * 4


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 5), st.integers(1, 9))
def test_steps_are_those_of_the_trainer(examples: int, size: int, epochs: int, gather: int) -> None:
    from phalanx.training.batches import plan_batches, step_count

    wanted = Config.model_validate(
        {"train": {"batch_size": size, "epochs": epochs, "accumulate": gather}}
    ).train
    batches = [one for epoch in plan_batches([7] * examples, size, epochs, 0) for one in epoch]
    assert batches_of(examples, wanted) == len(batches)
    assert steps_of(examples, wanted) == step_count(len(batches), gather)


def test_settings_change_the_counts() -> None:
    assert make_plan(small(judge={"per_duel": 1})).work.judge_requests == 20
    assert make_plan(small(pairs={"keep": 0.5})).work.pairs == 5
    assert make_plan(small(train={"method": "none"})).work.train_tokens == 0
    assert make_plan(small(train={"method": "none"})).learners == ()
    assert make_plan(small(train={"scope": "own"})).work.training_pairs == 5
    written = make_plan(small(judge={"protocol": "rubric"})).work.judge_tokens
    assert written > make_plan(small(judge={"protocol": "expected"})).work.judge_tokens


def test_a_pure_judge_judges_every_duel() -> None:
    members = [{"name": "a"}, {"name": "b"}, {"name": "c", "roles": ["judge"]}]
    pool = {"base": "builtin:smollm2-135m", "members": members}
    plan = make_plan(small(pool=pool))
    assert plan.work.judgments == 10
    assert (plan.contestants, plan.judges) == (("a", "b"), ("a", "b", "c"))


def test_evaluation_requests() -> None:
    from phalanx.tasks import load_task

    tasks = [{"name": "t", "source": "builtin:skills", "limit": 3}]
    config = small(evaluate={"tasks": tasks, "every": 2})
    plan = make_plan(config)
    assert plan.evaluation_items == len(load_task(config.evaluate.tasks[0], seed=0))
    assert plan.evaluation_requests == plan.evaluation_items * 4 * 3  # start, second, third (last)


@pytest.mark.parametrize(
    ("task", "requests"),
    [
        ({"kind": "gsm8k"}, 1319),
        ({"kind": "gsm8k", "limit": 20}, 20),
        ({"kind": "gsm8k", "limit": 20, "samples": 3, "temperature": 1.0}, 60),
        ({"kind": "math", "limit": 20}, 100),  # of each of five levels
        ({"kind": "math", "limit": 20, "domains": ["level 5"]}, 20),
        ({"kind": "math", "limit": 20, "total": 30}, 30),
        ({"kind": "truthfulqa_mc1", "limit": 20}, 100),  # five choices each
        ({"limit": 20}, 1000),
    ],
)
def test_rows_on_the_hub_are_reckoned_with_at_most_the_limit(
    task: dict[str, Any], requests: int
) -> None:
    plan = make_plan(small(evaluate={"tasks": [{"name": "t", "source": "hub:a/b", **task}]}))
    assert plan.evaluation_items == requests
    assert any(f"reckoned with {requests:,} requests" in note for note in plan.notes)


def test_bad_rows_that_are_left_out_are_no_requests_and_a_note(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"instruction": "2 + 2?", "answer": "4"}, {"instruction": "3 + 3?", "answer": ""}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    task = {"name": "t", "source": str(path), "bad_rows": "skip"}
    plan = make_plan(small(evaluate={"tasks": [task]}))
    assert plan.evaluation_items == 1
    assert "task t: skipped 1 of 2 rows\n  line 2: no answer" in plan.notes


def test_evaluation_requests_of_samples_and_judges(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"instruction": f"q{n}", "answer": "a"} for n in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tasks = [{"name": "t", "source": str(path), "match": "judged", "samples": 3, "temperature": 1}]
    judges = {"tasks": tasks, "judges": ["ada", "bob"]}
    plan = make_plan(small(evaluate=judges))
    assert plan.evaluation_items == 5 * 3
    # At the start and after three iterations: 4 members answer; ada and bob grade the other three.
    assert plan.evaluation_requests == 4 * 15 * 4 + 4 * 15 * 3 * 2
    mixture = {"proposers": ["cora"], "aggregator": "dan"}
    both = make_plan(small(evaluate=judges | {"mixture": True}, mixture=mixture))
    again = both.evaluation_requests - plan.evaluation_requests
    assert again == 4 * 15 * 2 + 4 * 15 * 2  # a proposal and an answer each, and both judges
    exact = [tasks[0] | {"match": "exact"}]
    longest = [
        longest_request(small(evaluate={**judges, "tasks": one, "max_new_tokens": 3000}), (), 50)
        for one in (exact, tasks)
    ]
    assert longest[0] == 3050
    assert longest[1] > 3050 + 150, "judges read a prompt around the answer"


def test_code_that_cannot_be_confined_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phalanx.tasks import code_runner

    def refuse(*_: Any) -> None:
        raise code_runner.SandboxError("no user namespaces")

    row = {"task_id": "a/0", "prompt": "def f(x):\n    pass\n", "entry_point": "f", "test": "pass"}
    (tmp_path / "code.jsonl").write_text(json.dumps(row), encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        "pool: {members: [{name: ada, engine: scripted}]}\n"
        "evaluate: {tasks: [{name: code, source: code.jsonl, kind: humaneval}]}\n"
    )
    monkeypatch.setattr(code_runner, "_run", refuse)
    code_runner.isolation.cache_clear()
    try:
        code, said = check(config)
    finally:
        code_runner.isolation.cache_clear()
    assert code == 2
    assert "a duel needs two contestants" in said, "all faults are in one message"
    assert "evaluate.tasks.code.source: code cannot be run safely here" in said.replace("\n", " ")


def test_instructions_are_measured(tmp_path: Path) -> None:
    rows = [{"instruction": "x" * 36 + str(1000 + n)} for n in range(5)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    plan = make_plan(small(instructions={"source": str(path)}))
    assert (plan.instructions.count, plan.instructions.tokens) == (5, 10)
    assert any("5, fewer than match.duels = 10" in note for note in plan.notes)


def test_bad_rows_and_domains_are_refused_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"instruction": "a"}\n[1]\n{"prompt": "b"}\n', encoding="utf-8")
    pool = {
        "base": "builtin:smollm2-135m",
        "recruit": {"specialists": {name: ["addition"] for name in "abc"} | {"d": ["additon"]}},
    }
    config = small(pool=pool, instructions={"source": str(path)}, judge={"low": 3, "high": 2})
    for refuse in (require, make_plan):
        with pytest.raises(ConfigError) as caught:
            refuse(config)
        message = str(caught.value)
        assert "2" in message
        assert "3" in message
        assert "no domain 'additon'; did you mean addition?" in message
        assert "judge.low" in message


def test_placeholders_of_a_template(tmp_path: Path) -> None:
    from importlib import resources

    shipped = resources.files("phalanx.collective") / "prompts" / "rubric.txt"
    path = tmp_path / "mine.txt"
    path.write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    judge = {"protocol": "rubric", "template": str(path)}
    assert make_plan(small(judge=judge)).work.duels == 10
    path.write_text("Judge {instruction} as you please.", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"judge\.template.*response"):
        make_plan(small(judge=judge))


def test_the_same_through_check(tmp_path: Path) -> None:
    text = (
        "pool:\n  base: builtin:smollm2-135m\n  recruit:\n    specialists:\n"
        "      a: [addition]\n      b: [additon]\n      c: [words]\n"
        "instructions: {source: nowhere.csv}\ntrain: {lerning_rate: 1}\n"
    )
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    code, message = check(path)
    assert code == 2
    assert "3 faults" in message
    for words in ("c.yaml:6: pool.recruit.specialists.b", "nowhere.csv", "learning_rate?"):
        assert words in message


def test_require_wants_a_pool_and_instructions() -> None:
    with pytest.raises(ConfigError, match="the pool is empty"):
        require(load("preset:sparta"))
    require(small())


def test_a_bare_preset_is_planned_for_the_papers_pool() -> None:
    plan = make_plan(load("preset:sparta-paper"))
    assert "10 members" in plan.assumed
    assert len(plan.contestants) == 10
    work = plan.work
    assert (work.responses, work.judgments, work.judge_requests) == (2000, 8000, 16000)
    assert plan.bases[0].parameters == pytest.approx(7.6e9, rel=0.01)
    code, text = check("preset:sparta-paper")
    assert code == 0
    assert "as in the paper" in text


def test_who_judges_its_own_responses_is_said() -> None:
    for method in ("self_rewarding", "meta_rewarding"):
        code, text = check(f"configs/smoke/{method}.yaml", width=200)
        assert code == 0
        assert "Judges: each learner judges its own responses" in text
    assert "Judges: cora" in check("configs/smoke/rejection_sampling.yaml", width=200)[1]


@pytest.mark.parametrize("width", [36, 60, 100])
def test_a_narrow_terminal_loses_no_number(width: int) -> None:
    code, text = check("preset:sparta-paper", width=width)
    assert code == 0
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for number in ("121,344,000", "9,152,000", "128,000"):
        assert number in text


def test_bases_take_turns() -> None:
    members = [
        {"name": "a"},
        {"name": "b", "model": "org/big-3B"},
        {"name": "c", "model": "org/mystery"},
    ]
    pool = {"base": "builtin:smollm2-135m", "members": members}
    large = machine_named("cpu:8:64GB")
    plan = make_plan(small(pool=pool), large)
    assert [len(plan.placement.of(phase)) for phase in ("serve", "train")] == [3, 3]
    assert [base.parameters for base in plan.bases] == [134_515_008, 3_000_000_000, None]
    assert [base.guessed for base in plan.bases] == [False, True, True]
    assert plan.seconds is None
    together = make_plan(small(pool=pool, resources={"keep_all_loaded": True}), large).placement
    assert [len(together.of(phase)) for phase in ("serve", "train")] == [1, 1]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7_000_000_000),
        ("google/gemma-2-2b-it", 2_000_000_000),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 135_000_000),
        ("org/Mixtral-8x7B-v0.1", 56_000_000_000),
        ("org/Qwen3-0.6B", 600_000_000),
        ("org/model-v2", None),
        ("org/4bit-thing", None),
    ],
)
def test_size_from_name(name: str, parameters: int | None) -> None:
    assert size_from_name(name).parameters == parameters


def test_size_from_headers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7)}, tmp_path / "model-1.safetensors")
    save_file({"c": torch.zeros(2, 2)}, tmp_path / "model-2.safetensors", metadata={"x": "y"})
    assert base_size(str(tmp_path)).parameters == 26
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a safetensors file"):
        safetensors_parameters(tmp_path / "broken.safetensors")
    with pytest.raises(ConfigError, match=r"the base .*broken\.safetensors is not a safetensors"):
        base_size(str(tmp_path))


def test_size_of_the_embedded_model_agrees_with_its_shape() -> None:
    size = base_size("builtin:smollm2-135m")
    assert size.parameters == 134_515_008
    # The shape leaves the norms out: 61 vectors of 576.
    assert size.parameters == SMOLLM2_135M.parameters + 61 * 576


def test_size_from_config_alone(tmp_path: Path) -> None:
    shape = {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    size = base_size(str(tmp_path))
    assert (size.parameters, size.guessed) == (SMOLLM2_135M.parameters, True)


@pytest.mark.parametrize(
    ("what", "machine"),
    [
        # Meta-rewarding fits the strengths of judgments, in a rehearsal too, and so loads scipy.
        *[(f"preset:{name}", None) for name in preset_names() if "meta" not in name],
        ("preset:sparta-paper", "2x8xh100"),
        ("configs/smoke/rubric.yaml", None),
    ],
)
def test_check_is_light(what: str, machine: str | None) -> None:
    program = (
        "import sys\n"
        "from phalanx.plan import check\n"
        f"code, text = check({what!r}, machine={machine!r})\n"
        "assert code == 0, text\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_time_of_scripted_and_of_unknown_members() -> None:
    _, text = check(ROOT / "configs/smoke/rubric.yaml")
    assert "scripted members take next to none" in text
    pool = {"base": "org/mystery", "members": [{"name": name} for name in "abc"]}
    plan = make_plan(small(pool=pool))
    assert plan.total_seconds is None


def test_time_grows_with_the_work() -> None:
    one = make_plan(small()).seconds
    ten = make_plan(small(match={"duels": 100})).seconds
    assert one is not None
    assert ten is not None
    for phase in ("answer", "judge", "train"):
        assert ten[phase] == pytest.approx(10 * one[phase])


def test_duration() -> None:
    words = [duration(s) for s in (0.2, 45, 119, 754, 4 * 3600, 50 * 3600)]
    assert words == ["0.2 s", "45 s", "119 s", "13 min", "4.0 h", "2.1 d"]
