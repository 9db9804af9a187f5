"""Does `phalanx eval` agree with lm-eval where both measure the same thing?

    python -m bench.harness truthfulqa.jsonl gsm8k.jsonl --rows 20

The same rows and prompts go to one model three ways: through lm-eval's own model class
(``HFLM``, with the chat template), through `phalanx eval --task lm-eval:FILE.yaml`, and as the
kinds truthfulqa_mc1 and truthfulqa_mc2. Compared item by item: sums of log-probabilities, MC1, the
mass of MC2, and what is written greedily. Needs the extras hf and lm-eval; no network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.asking import Asking, asking
from phalanx.config.schema import Config, TaskSettings
from phalanx.evaluate import evaluate
from phalanx.measuring.lm_eval import measure_lm_eval, row_name
from phalanx.measuring.subjects import Subject
from phalanx.tasks import TaskItem, load_task
from phalanx.types import Member
from phalanx.weights import Weights

TOKENS = 48
_CHOICES = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{gold}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
_MASS = "process_results: !function mass.of_true\n"
_MASS_CODE = """\
import math


def of_true(doc, results):
    chances = [math.exp(total) for total, _ in results]
    true = sum(chance for chance, mark in zip(chances, doc["true"]) if mark)
    return {"acc": true / sum(chances)}
"""
_WRITTEN = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{gold}}}}"
generation_kwargs: {{until: [], max_gen_toks: {tokens}, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


@dataclass(frozen=True, slots=True)
class Both:
    """One task; of each way its numbers by the item's place.

    ``sums`` has (lm-eval's own, ours) of each choice, in nats; ``ends`` what lm-eval's own have
    more: it counts the white space at the prompt's end as the choice's. ``texts`` likewise what
    was written; ``scores`` (lm-eval's own, through lm-eval here, the kind of that name, if any).
    """

    task: str
    sums: tuple[tuple[tuple[float, float], ...], ...] = ()
    ends: tuple[float, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    scores: tuple[tuple[float, float, float | None], ...] = ()

    @property
    def worst_sum(self) -> float:
        """Largest difference of a sum, without the prompt's end; 0 without sums."""
        pairs = zip(self.sums, self.ends, strict=True)
        return max((abs(a - end - b) for one, end in pairs for a, b in one), default=0.0)

    @property
    def worst_score(self) -> float:
        """Largest difference of a score between any two of the ways."""
        every = ([score for score in one if score is not None] for one in self.scores)
        return max((max(one) - min(one) for one in every), default=0.0)

    @property
    def same_texts(self) -> int:
        return sum(a == b for a, b in self.texts)


def compare(
    truth: Path, numbers: Path, folder: Path, model: str, rows: int, tokens: int = TOKENS
) -> list[Both]:
    """All three tasks on the first ``rows`` items of two files, by one model in float32."""
    items = {
        kind: _items(path, kind, rows)
        for kind, path in (("truthfulqa_mc1", truth), ("truthfulqa_mc2", truth), ("gsm8k", numbers))
    }
    files = {kind: write_task(folder, kind, mine, tokens) for kind, mine in items.items()}
    member = Member("m", model, dtype="float32")
    theirs = _theirs(member, files)
    tasks = [{"name": kind, "kind": kind, "source": "rows.jsonl"} for kind in items]
    given = {
        "pool": {"members": [{"name": "m", "model": model, "dtype": "float32"}]},
        "evaluate": {"max_new_tokens": tokens, "tasks": tasks},
    }
    config = Config.model_validate(given)
    with asking(config, folder / "eval", kind="eval", inputs="harness", members=[member]) as place:
        for path in files.values():
            measure_lm_eval(str(path), [Subject("m", (member,))], place, None)
        chosen = [item for kind, mine in items.items() if kind != "gsm8k" for item in mine]
        evaluate([member], chosen, place.ask(0), place.ledger, config, iteration=0)
        return [_both(kind, mine, theirs[kind], files[kind], place) for kind, mine in items.items()]


def _items(path: Path, kind: str, rows: int) -> list[TaskItem]:
    task = TaskSettings(name=kind, kind=kind, source=str(path))
    return list(load_task(task, seed=0)[:rows])


def write_task(folder: Path, kind: str, items: Sequence[TaskItem], tokens: int) -> Path:
    """The rows and a YAML file with which lm-eval asks what the kind asks."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{kind}.json"
    data.write_text(json.dumps([_row(item) for item in items]), encoding="utf-8")
    (folder / "mass.py").write_text(_MASS_CODE, encoding="utf-8")
    form = _WRITTEN if kind == "gsm8k" else _CHOICES
    text = form.format(name=f"local_{kind}", data=data, tokens=tokens)
    path = folder / f"{kind}.yaml"
    path.write_text(text + (_MASS if kind == "truthfulqa_mc2" else ""), encoding="utf-8")
    return path


def _row(item: TaskItem) -> dict[str, Any]:
    row: dict[str, Any] = {"question": item.instruction, "gold": item.answer}
    if item.choices:
        true = item.answer.split()
        row["choices"] = [text for _, text in item.choices]
        row["true"] = [label in true for label, _ in item.choices]
        row["gold"] = row["true"].index(True)
    return row


def _theirs(
    member: Member, files: Mapping[str, Path]
) -> dict[str, list[tuple[Mapping[str, Any], float]]]:
    """lm-eval's own (sample, log-probability of the prompt's end), by its own model class."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    weights = Weights()
    try:
        tokenizer = weights.chat(member).tokenizer
        with weights.serving(member) as model:
            player = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
            results = simple_evaluate(
                player,
                tasks=[str(path) for path in files.values()],
                task_manager=TaskManager(include_defaults=False),
                apply_chat_template=True,
                bootstrap_iters=0,
            )
            samples = {kind: results["samples"][f"local_{kind}"] for kind in files}
            return {
                kind: [
                    (one, 0.0 if kind == "gsm8k" else _end(player, one["arguments"][0][0]))
                    for one in mine
                ]
                for kind, mine in samples.items()
            }
    finally:
        weights.close()


def _end(player: Any, prompt: str) -> float:
    """The log-probability (nats) of the white space with which a prompt ends."""
    from lm_eval.api.instance import Instance

    before = prompt.rstrip()
    if before == prompt:
        return 0.0
    asked = Instance("loglikelihood", {}, (before, prompt[len(before) :]), 0)
    return player.loglikelihood([asked])[0][0]


def _both(
    kind: str,
    items: Sequence[TaskItem],
    theirs: Sequence[tuple[Mapping[str, Any], float]],
    path: Path,
    place: Asking,
) -> Both:
    through = _by_item(place, row_name(str(path)))
    own = _by_item(place, kind)
    texts, sums, scores = [], [], []
    for at, (item, (sample, _)) in enumerate(zip(items, theirs, strict=True)):
        mine = through[str(at)]
        if kind == "gsm8k":
            ((reply, _),) = place.ledger.responses([mine["response"]]).values()
            texts.append((sample["resps"][0][0], reply.text or ""))
            scores.append((float(sample["exact_match"]), mine["score"], None))
            continue
        sums.append(tuple(zip((one[0] for one in sample["filtered_resps"]),
                              _sums(place, item), strict=True)))  # fmt: skip
        kept = own[item.id]
        mass = kept["score"] if kind == "truthfulqa_mc1" else float(kept["answer"])
        scores.append((float(sample["acc"]), mine["score"], mass))
    ends = [end for _, end in theirs] if sums else []
    return Both(kind, tuple(sums), tuple(ends), tuple(texts), tuple(scores))


def _by_item(place: Asking, task: str) -> dict[str, dict[str, Any]]:
    rows = place.ledger.query("SELECT * FROM evaluations WHERE task = ?", (task,))
    return {row["item"]: row for row in rows}


def _sums(place: Asking, item: TaskItem) -> list[float]:
    """Our sums of an item's choices, from the ledger alone."""
    found = {}
    for row in place.ledger.iterate(
        "SELECT id, full_messages(messages) AS messages, full_text(want) AS want FROM responses"
    ):
        want = json.loads(row["want"])
        if want["kind"] == "likelihood" and json.loads(row["messages"])[-1]["content"] == (
            item.instruction
        ):
            found[want["completion"]] = row["id"]
    replies = place.ledger.responses(list(found.values()))
    sums = [replies[found[text]][0].logprob_sum for _, text in item.choices]
    return [total for total in sums if total is not None]


def report(both: Sequence[Both]) -> str:
    """A table in Markdown."""
    lines = [
        "| task | items | lm-eval's own mean | through phalanx | largest difference of an item's "
        "score | of a sum, nats, without the prompt's end | same texts |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in both:
        theirs, ours = (sum(s[way] for s in one.scores) / len(one.scores) for way in (0, 1))
        sums = f"{one.worst_sum:.1e} of {sum(map(len, one.sums))}" if one.sums else "–"
        texts = f"{one.same_texts} of {len(one.texts)}" if one.texts else "–"
        lines.append(
            f"| {one.task} | {len(one.scores)} | {theirs:.4f} | {ours:.4f} "
            f"| {one.worst_score:.1e} | {sums} | {texts} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.harness", description=__doc__)
    parser.add_argument("truth", type=Path, help="rows of TruthfulQA, with MC1 and MC2")
    parser.add_argument("numbers", type=Path, help="rows of GSM8K")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--model", default="builtin:smollm2-135m")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="phalanx-harness-") as folder:
        print(report(compare(given.truth, given.numbers, Path(folder), given.model, given.rows)))


if __name__ == "__main__":
    main()
