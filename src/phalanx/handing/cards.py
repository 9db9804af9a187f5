"""Cards: what a model or a data set is, for people and for the Hub.

Everything that models, files or people wrote is fenced or escaped. A licence is read or said to be
unknown, never guessed; a score comes with its interval and the number of its items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from phalanx.config.schema import Config
from phalanx.errors import MissingPackage
from phalanx.handing.members import UNKNOWN_LICENCE, base_label, base_name, licence_of
from phalanx.handing.private import Marks
from phalanx.handing.settings import shown_settings
from phalanx.ledger import Ledger
from phalanx.methods import METHODS
from phalanx.report.facts import gather
from phalanx.report.records import Change, RunFacts
from phalanx.report.warnings import warnings
from phalanx.report.words import percent, plural, points, points_span, run_name, span
from phalanx.types import Member
from phalanx.version import __version__

CARD = "README.md"
MAX_SHOWN = 600
"""Characters of a text that an example in a card shows."""
_METRIC = "accuracy"


@dataclass(frozen=True, slots=True)
class Sent:
    """A member that is handed on: ``folder`` within the repository ("" its root), whether its
    weights are ``merged``, and the base it ``began`` from."""

    member: Member
    folder: str
    merged: bool
    began: Member


def own_card(ledger: Ledger, members: Sequence[Member], *, merged: bool) -> str:
    """The card of an export: of a folder on this machine."""
    config = _config(ledger)
    sent = [Sent(one, "", merged, began(ledger, one)) for one in members]
    return model_card(ledger, config, Marks(ledger, config), sent, where="FOLDER")


def began(ledger: Ledger, member: Member) -> Member:
    """The member before the run, whose base says what it was made from."""
    first = {one.name: one for one in ledger.members(0)}
    return first.get(member.name, member)


def model_card(
    ledger: Ledger,
    config: Config,
    marks: Marks,
    sent: Sequence[Sent],
    *,
    where: str,
    dataset: str = "",
) -> str:
    """The card of a model repository ``where`` (a Hub name, or a folder). Needs huggingface_hub."""
    facts = gather(ledger, tables=False)
    names = [one.member.name for one in sent]
    title = where.rpartition("/")[2] if where != "FOLDER" else ", ".join(names)
    changes = [] if "metrics" in marks.things else _scores(facts, names)
    named = (base_name(one.began, config.share.bases) for one in sent)
    bases = list(dict.fromkeys(filter(None, named)))
    licences = [licence_of(one.began) for one in sent]
    data = _card_data(
        base_model=bases or None,
        datasets=[dataset] if dataset else None,
        library_name="transformers" if all(one.merged for one in sent) else "peft",
        license=_joint_licence(licences),
        pipeline_tag="text-generation",
        tags=["phalanx", facts.method or "phalanx"],
        model_name=title,
        eval_results=_results(changes),
    )
    if bases:
        data["base_model_relation"] = "finetune" if sent[0].merged else "adapter"
    parts = [
        f"# {_safe(title)}",
        _whose(facts, names),
        "## How to load",
        *(_loading(one, where, config, marks) for one in sent),
        *([] if where == "FOLDER" else [f"All of it as a pool of Phalanx: `phalanx pull {where}`"]),
        "## Scores",
        *_score_parts(changes, facts, config, "metrics" in marks.things),
        "## What it was trained on",
        *_trained(facts, names, dataset),
        *_settings(config, marks),
        "## Licence",
        *_licences(sent, licences),
        "## Limitations",
        _list([*_limits(facts), *_warnings(facts, marks)]),
        "## Versions",
        _versions(facts),
    ]
    return _front(data) + "\n\n".join(parts) + "\n"


def dataset_card(
    ledger: Ledger,
    config: Config,
    marks: Marks,
    *,
    where: str,
    counts: Mapping[str, int],
    left_out: Mapping[str, Mapping[str, int]],
    examples: Mapping[str, Mapping[str, Any]],
    model: str = "",
) -> str:
    """The card of a data set repository: ``counts`` of each kind, what was left out and why."""
    facts = gather(ledger, tables=False)
    data = _card_data(
        license=UNKNOWN_LICENCE,
        task_categories=["text-generation"],
        tags=["phalanx", "trl", facts.method or "phalanx"],
        size_categories=[_size(sum(counts.values()))],
        configs=[{"config_name": kind, "data_files": f"{kind}.jsonl"} for kind in counts],
        dataset=True,
    )
    first = next(iter(counts))
    parts = [
        f"# {_safe(where.rpartition('/')[2])}",
        _whose(facts, [m.name for m in facts.members]),
        *([f"The models that learned from it: [{_safe(model)}](https://huggingface.co/{model})."]
          if model and _learners(facts) else []),
        "## How to load",
        _fence(
            f'from datasets import load_dataset\n\nrows = load_dataset("{where}", "{first}", '
            'split="train")  # TRL reads the columns as they are',
            "python",
        ),
        "## What is in it",
        *(_kind(kind, counts[kind], left_out.get(kind, {}), examples.get(kind)) for kind in counts),
        *_settings(config, marks),
        "## Licence",
        "No licence is stated: the texts come from the instructions that were given to the run and "
        "from the models that answered them, whose own terms go on.",
        "## Limitations",
        _list(
            [
                _origin(facts),
                "Texts are as the models wrote them. They may be wrong, biased or offensive.",
                *_unfinished(facts),
                *_warnings(facts, marks),
            ]
        ),
        "## Versions",
        _versions(facts),
    ]  # fmt: skip
    return _front(data) + "\n\n".join(parts) + "\n"


def _config(ledger: Ledger) -> Config:
    return Config.model_validate(json.loads(ledger.get("config") or "{}"))


def _card_data(dataset: bool = False, **fields: Any) -> dict[str, Any]:
    try:
        from huggingface_hub import DatasetCardData, ModelCardData
    except ImportError:
        raise MissingPackage("huggingface_hub", "hf", "writing a card") from None
    kind = DatasetCardData if dataset else ModelCardData
    return kind(**{name: value for name, value in fields.items() if value is not None}).to_dict()


def _front(data: Mapping[str, Any]) -> str:
    from huggingface_hub import CardData

    return f"---\n{CardData(**data).to_yaml()}\n---\n\n"


def _whose(facts: RunFacts, names: Sequence[str]) -> str:
    return f"{run_in_words(facts)} Here: {', '.join(map(_safe, names))}."


def run_in_words(facts: RunFacts) -> str:
    """What the run was, and what became of its models, in sentences."""
    method = METHODS.get(facts.method)
    if method is None:
        how = f"`phalanx {facts.method}`" if facts.method else "a run of Phalanx"
    else:
        how = f"a run of Phalanx by the method `{facts.method}` ({_safe(method.paper)})"
    done = "" if facts.progress.finished else ", not finished when this was made"
    models = plural(len(facts.members), "model")
    return f"From {how}, with {models}{done}. {_learned(facts)}"


def _learners(facts: RunFacts) -> list[str]:
    """Who was trained in the run, as its ledger has it, whatever the settings wanted."""
    found = (one.member for one in facts.trainings if one.num_examples)
    return list(dict.fromkeys(found))


def _learned(facts: RunFacts) -> str:
    """Who has learned, and by what; or that nobody has, and why."""
    method, trained = METHODS.get(facts.method), _learners(facts)
    if trained:
        return f"{_safe(', '.join(trained))} learned in it, by {_how(facts)}."
    if method is None or method.kind == "none":
        why = ""
    elif method.kind == "answer":
        why = ": this method only answers"
    elif Config.model_validate(facts.config).train.method == "none":
        why = ": it stops after the data (`train.method: none`)"
    elif not facts.progress.finished:
        why = " so far"
    else:
        why = ": there was nothing to learn from"
    return f"No model was trained in it{why}."


def _how(facts: RunFacts) -> str:
    """By what the recorded trainings learned, each way once."""
    config = Config.model_validate(facts.config)
    lesson_of, ways = METHODS[facts.method].lesson, list[str]()
    for one in facts.trainings:
        if not (one.num_examples and lesson_of):
            continue
        lesson = lesson_of(config, one.iteration, one.member)
        if lesson.startswith("rated:"):
            ways.append("GRPO")
        elif lesson.startswith("demonstrations:") or config.train.method == "sft":
            ways.append("supervised fine-tuning")
        else:
            own = "sppo" if facts.method == "sppo" else "sigmoid"
            loss = config.train.named(own).loss
            ways.append("DPO" if loss == "sigmoid" else f"preference pairs (loss `{loss}`)")
    return " and ".join(dict.fromkeys(ways))


def _loading(one: Sent, where: str, config: Config, marks: Marks) -> str:
    place = json.dumps(where)
    within = f", subfolder={json.dumps(one.folder)}" if one.folder else ""
    if one.merged:
        code = (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f"model = AutoModelForCausalLM.from_pretrained({place}{within})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({place}{within})"
        )
    else:
        name = base_name(one.member, config.share.bases)
        base = json.dumps(name or base_label(one.member), ensure_ascii=False)
        note = "" if name else "  # this base has no public name: write here where it lies"
        code = (
            "from peft import PeftModel\n"
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f"base = {base}{note}\n"
            "model = AutoModelForCausalLM.from_pretrained(base)\n"
            f"model = PeftModel.from_pretrained(model, {place}{within})\n"
            "tokenizer = AutoTokenizer.from_pretrained(base)"
        )
    text = f"{_safe(one.member.name)}:\n\n{_fence(code, 'python')}"
    if marks.keep_system(one.member):
        return f"{text}\n\nIt answers with a system prompt, which is not published."
    if one.member.system:
        return f"{text}\n\nIts system prompt:\n\n{_fence(_cut(one.member.system), 'text')}"
    return text


def _scores(facts: RunFacts, names: Sequence[str]) -> list[Change]:
    found = [change for change in facts.evaluation.changes if change.member in names]
    return sorted(found, key=lambda change: (names.index(change.member), change.domain))


def _results(changes: Sequence[Change]) -> list[Any] | None:
    if not changes:
        return None
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=re.sub(r"[^\w.-]+", "-", change.domain) or "all",
            dataset_name=change.domain or "all domains, each counting the same",
            dataset_split="test",
            metric_type=_METRIC,
            metric_name=f"{_METRIC} of {change.member}",
            metric_value=round(change.after, 4),
            metric_args={
                "items": change.n,
                "interval_95": [round(change.after_interval.low, 4),
                                round(change.after_interval.high, 4)],
                "before": round(change.before, 4),
            },
        )
        for change in changes
    ]  # fmt: skip


def _score_parts(
    changes: Sequence[Change], facts: RunFacts, config: Config, private: bool
) -> list[str]:
    if private:
        return ["Scores are not published."]
    if not changes:
        note = facts.evaluation.note
        return ["Nothing was measured in this run." + (f" ({_safe(note)})" if note else "")]
    lines = [
        "| member | domain | items | before % [95 %] | after % [95 %] | points [95 %] |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {_safe(c.member)} | {_safe(c.domain) or 'all'} | {c.n} "
        f"| {percent(c.before)} [{span(c.before_interval)}] "
        f"| {percent(c.after)} [{span(c.after_interval)}] "
        f"| {points(c.difference)} [{points_span(c.interval)}] |"
        for c in changes
    ]
    tasks = ", ".join(_safe(task.name) for task in config.evaluate.tasks)
    how = (
        f"Share of items right, on the test split of {tasks}; before is the member as the run "
        "began. Intervals are 95 %."
    )
    return ["\n".join(lines), how]


def _trained(facts: RunFacts, names: Sequence[str], dataset: str) -> list[str]:
    account = facts.accounting
    lines = []
    for name in names:
        own = [one for one in facts.trainings if one.member == name]
        examples = sum(one.num_examples for one in own)
        rounds = plural(len({one.iteration for one in own}), "iteration")
        text = f"{examples:,} examples in {rounds}" if own else "nothing: it was not trained here"
        lines.append(f"{_safe(name)}: {text}")
    if account.pairs_kept:
        lines.append(f"{plural(account.pairs_kept, 'preference pair')} were kept in the run")
    if account.demonstrations_kept:
        lines.append(f"{plural(account.demonstrations_kept, 'demonstration')} were kept in the run")
    if dataset:
        lines.append(f"the data: [{dataset}](https://huggingface.co/datasets/{dataset})")
    return [_list(lines)]


def _settings(config: Config, marks: Marks) -> list[str]:
    text = shown_settings(config, marks)
    if not text:
        return ["## Settings", "The settings are not published."]
    return ["## Settings", "What was set; the rest are defaults.", _fence(text.rstrip(), "yaml")]


def _licences(sent: Sequence[Sent], found: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for base, (licence, source) in {
        base_label(one.began): known for one, known in zip(sent, found, strict=True)
    }.items():
        said = f"`{licence}`, as {source} states" if source else (
            "unknown: no card of the base was found here; look at its own page before use"
        )  # fmt: skip
        lines.append(f"the base {_safe(base)}: {said}")
    return ["The base's licence goes on.", _list(lines)]


def _joint_licence(found: Sequence[tuple[str, str]]) -> str:
    """One licence where all bases state the same one."""
    names = {licence for licence, _ in found}
    return names.pop() if len(names) == 1 else UNKNOWN_LICENCE


def _limits(facts: RunFacts) -> list[str]:
    learned = (
        "What is learned here comes from what models wrote or preferred, which no person has "
        "checked; what they like too much (length, their own style) may be learned, too."
    )
    limits = [
        *([learned] if _learners(facts) and facts.method != "preference_file" else []),
        "It was not tested for safety. The limits of its base go on.",
    ]
    limits += _unfinished(facts)
    if facts.accounting.unreadable:
        lost = sum(facts.accounting.unreadable.values())
        asked = plural(facts.accounting.judgments_asked, "judgment")
        limits.append(f"{lost:,} of {asked} could not be read, and counted for nothing.")
    return limits


def _origin(facts: RunFacts) -> str:
    if facts.method == "preference_file":
        return "The pairs are those of the file that the run was given, which was not checked."
    if facts.method == "spin":
        return ("What is `chosen` is the reference that the run was given, what is `rejected` a "
                "model's own answer; nobody compared the two.")  # fmt: skip
    return (
        "Models wrote the answers and, where there are pairs, models judged them: what is "
        "`chosen` is what they preferred, which no person has checked."
    )


def _unfinished(facts: RunFacts) -> list[str]:
    return [] if facts.progress.finished else ["The run was not finished when this was made."]


def _warnings(facts: RunFacts, marks: Marks) -> list[str]:
    """They are about scores."""
    return [] if "metrics" in marks.things else [_safe(text) for text in warnings(facts)]


def _kind(
    kind: str, count: int, left_out: Mapping[str, int], example: Mapping[str, Any] | None
) -> str:
    lines = [f"### {kind}", "", plural(count, "row")]
    if left_out:
        why = ", ".join(f"{n:,} ({_safe(reason)})" for reason, n in left_out.items())
        lines.append(f"Left out: {why}.")
    if example:
        text = json.dumps(_cut(example), ensure_ascii=False, indent=1)
        lines += ["", "One of them:", "", _fence(text, "json")]
    return "\n".join(lines)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"{value[:MAX_SHOWN]} […{len(value) - MAX_SHOWN:,} more characters]"
    if isinstance(value, Mapping):
        return {key: _cut(part) for key, part in value.items()}
    return [_cut(part) for part in value] if isinstance(value, list) else value


def _versions(facts: RunFacts) -> str:
    made = facts.version or "unknown"
    return _list([f"the run: phalanx {_safe(made)}, {_safe(run_name(facts))}",
                  f"this card: phalanx {__version__}"])  # fmt: skip


def _size(count: int) -> str:
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"),
              (1_000_000, "100K<n<1M"))  # fmt: skip
    return next((name for bound, name in bounds if count < bound), "1M<n<10M")


def _fence(text: str, language: str) -> str:
    """A block that no backticks within it can close. Signs that turn a line around, and the like,
    are written out."""
    text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    ticks = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _safe(text: str) -> str:
    """A text in a sentence: it begins no tag, link, code, or cell, and turns nothing around."""
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return re.sub(r"([\\`*_\[\]|<>#])", r"\\\1", escape(text, quote=False)) if text else ""
