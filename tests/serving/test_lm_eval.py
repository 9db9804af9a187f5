"""lm-eval's `local-completions` over the endpoint, against its own model of transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measuring.test_lm_eval import CHOICE, WRITTEN, task_file

pytest.importorskip("lm_eval", reason="needs lm-eval")
pytest.importorskip("tenacity", reason="needs what lm-eval[api] brings")

GREEDY = WRITTEN.replace("do_sample: false", "do_sample: false, temperature: 0")


def samples(model: str, arguments: str, folder: Path) -> dict[str, list[dict]]:
    import lm_eval
    from lm_eval.tasks import TaskManager

    made = lm_eval.simple_evaluate(
        model=model,
        model_args=arguments,
        tasks=["sums", "written"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        batch_size=4,
        device="cpu",
        bootstrap_iters=0,
        log_samples=True,
    )
    return {
        name: sorted(rows, key=lambda row: row["doc_id"]) for name, rows in made["samples"].items()
    }


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    task_file(folder, CHOICE, "sums")
    task_file(folder, GREEDY, "written")
    return folder


@pytest.fixture(scope="module")
def theirs(tasks, tiny_pool) -> dict[str, list[dict]]:
    base = tiny_pool.parent / "base"
    adapter = tiny_pool.parent / "adapter"
    return samples("hf", f"pretrained={base},peft={adapter},dtype=float32", tasks)


@pytest.mark.parametrize(
    "how", ["num_concurrent=10", "num_concurrent=1", "num_concurrent=10,tokenized_requests=False"]
)
def test_every_likelihood_and_text_is_that_of_lm_evals_own_model(
    tiny, tiny_pool, tasks, theirs, how
):
    place = f"base_url={tiny.url}/completions,tokenizer_backend=huggingface"
    mine = samples(
        "local-completions",
        f"model=bob,{place},tokenizer={tiny_pool.parent / 'base'},max_length=1024,{how}",
        tasks,
    )
    for own, other in zip(mine["sums"], theirs["sums"], strict=True):
        for (found,), (expected,) in zip(own["resps"], other["resps"], strict=True):
            assert float(found[0]) == pytest.approx(float(expected[0]), abs=1e-3)
            assert found[1] == expected[1]
        assert own["acc"] == other["acc"]
    assert [row["resps"] for row in mine["written"]] == [row["resps"] for row in theirs["written"]]
