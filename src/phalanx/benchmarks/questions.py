"""The questions of a contest: tasks of kind alpaca_eval, arena_hard, mt_bench and open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from phalanx.benchmarks import readers
from phalanx.benchmarks.fields import Fields, Unfit, read_records
from phalanx.benchmarks.records import Question
from phalanx.config.schema import TaskSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.rows import PROMPTS, read_rows

Version = Literal["v0.1", "v2.0"]
_GROUPS = ("domain", "category", "dataset", "group")
_PUBLISHED: dict[str, Callable[..., tuple[Question, ...]]] = {
    "alpaca_eval": readers.read_alpaca_eval,
    "arena_hard": readers.read_arena_hard,
    "mt_bench": readers.read_mt_bench,
}


@dataclass(frozen=True, slots=True)
class Questions:
    """``version`` is that of Arena-Hard's rows, which says how its verdicts are read."""

    rows: tuple[Question, ...]
    version: Version = "v0.1"


def read_questions(task: TaskSettings, seed: int) -> Questions:
    """The questions of a contest, ``task.limit`` of each group and ``task.total`` in all, drawn by
    ``seed``.

    A file has the benchmark's published columns, or ``{id, prompt, meta}``; one of kind ``open``
    has ``instruction`` (or ``prompt``, ``question``) and where it likes ``input``, ``output`` (the
    baseline's), ``id`` and ``domain``. Raises ConfigError that lists every row that does not fit,
    and for a domain that is not there.
    """
    split = task.split or ("eval" if task.kind == "alpaca_eval" else "train")
    found = read_rows(task.source, split=split).rows
    fields = found[0].fields if found else {}
    if fields.get("prompt") is not None and isinstance(fields.get("meta"), dict):
        rows = readers.read_prepared_questions(task.source, split=split)
    else:
        rows = _PUBLISHED.get(task.kind, read_open)(task.source, split=split)
    if task.kind == "mt_bench" and (short := [row.id for row in rows if len(row.turns) != 2]):
        raise ConfigError(
            f"task {task.name}: MT-Bench has two turns, and {len(short)} rows have not "
            f"(the first: {', '.join(short[:5])})",
            task.source,
        )
    version: Version = "v2.0" if task.kind == "arena_hard" and "uid" in fields else "v0.1"
    return Questions(_chosen(rows, task, seed), version)


def read_open(path: str, *, split: str = "train") -> tuple[Question, ...]:
    """Any prompts; in Alpaca's files a blank ``input`` is none, and another follows the prompt."""

    def make(row: Fields) -> Question:
        name = next((name for name in PROMPTS if name in row), None)
        if name is None:
            raise Unfit(f"has none of {', '.join(PROMPTS)}")
        text = _with_input(row, name)
        group = next((row.text(one) for one in _GROUPS if one in row), "")
        output = (row.text("output"),) if "output" in row else ()
        return Question(row.name("id") if "id" in row else content_id(text), (text,), group, output)

    return read_records(path, make, lambda row: row.id, split=split)


def _with_input(row: Fields, name: str) -> str:
    text = row.words(name)
    given = row.text("input") if "input" in row else ""
    return f"{text}\n\n{given}" if given.strip() else text


def _chosen(rows: Sequence[Question], task: TaskSettings, seed: int) -> tuple[Question, ...]:
    groups = dict.fromkeys(row.group for row in rows)
    if unknown := sorted(set(task.domains) - set(groups)):
        raise ConfigError(
            f"task {task.name}: no rows of the domain {', '.join(unknown)}; domains there: "
            f"{', '.join(sorted(filter(None, groups))) or 'none'}",
            task.source,
        )
    rows = [row for row in rows if not task.domains or row.group in task.domains]
    if task.limit is not None:
        kept: set[str] = set()
        for group in groups:
            names = [row.id for row in rows if row.group == group]
            derived_random("task", seed, group).shuffle(names)
            kept.update(names[: task.limit])
        rows = [row for row in rows if row.id in kept]
    if task.total is not None:
        names = [row.id for row in rows]
        derived_random("task total", seed).shuffle(names)
        chosen = set(names[: task.total])
        rows = [row for row in rows if row.id in chosen]
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Outputs:
    """One model's answers, by the question's id and by its text; ``generator`` is its name.

    ``asked`` has the text of each id that stands beside one.
    """

    generator: str
    by_id: dict[str, str]
    by_text: dict[str, str]
    asked: dict[str, str]

    def of(self, question: Question) -> str | None:
        """The answer to a question; an id may stand behind a prefix such as ``arena_hard/``.

        An id beside another question's text is not that question.
        """
        text = question.turns[0]
        for name in (question.id, question.id.rpartition("/")[2]):
            if name in self.by_id and self.asked.get(name, text) == text:
                return self.by_id[name]
        return self.by_text.get(text)


def read_outputs(path: str) -> Outputs:
    """A file of one model's answers, in one of these forms.

    AlpacaEval's ``{instruction, output, generator}``; ``{id, output}`` (also ``question_id`` or
    ``uid``); Arena-Hard's ``{question_id, model_id, choices}`` or ``{uid, model, messages}``.
    Where a row has both, both have to be the question's. Raises ConfigError that lists every row
    that does not fit or repeats an id (without ids: an instruction), or where there are several
    models.
    """

    def make(row: Fields) -> tuple[str, str, str, str]:
        key = next((name for name in ("uid", "question_id", "id") if name in row), None)
        prompt = _with_input(row, "instruction") if "instruction" in row else ""
        if key is None and not prompt:
            raise Unfit("has neither an id ('id', 'question_id', 'uid') nor an 'instruction'")
        model = next((row.words(n) for n in ("generator", "model_id", "model") if n in row), "")
        return row.name(key) if key else "", prompt, _output(row), model

    found = read_records(path, make, lambda row: row[0] or row[1])
    models = list(dict.fromkeys(model for *_, model in found if model))
    if len(models) > 1:
        raise ConfigError(
            f"has answers of {len(models)} models ({', '.join(models[:5])}); give a file of one",
            path,
        )
    return Outputs(
        models[0] if models else "",
        {key: text for key, _, text, _ in found if key},
        {prompt: text for _, prompt, text, _ in found if prompt},
        {key: prompt for key, prompt, *_ in found if key and prompt},
    )


def _output(row: Fields) -> str:
    """The answer in any of the forms of :func:`read_outputs`."""
    if "output" in row:
        return row.text("output")
    try:
        if "choices" in row:
            value = row.get("choices")[0]["turns"][0]["content"]
        else:
            value = row.get("messages")[-1]["content"]
        text = value.get("answer") if isinstance(value, dict) else value
    except (LookupError, TypeError, AttributeError):
        text = None
    if not isinstance(text, str):
        raise Unfit("has no 'output', and no 'choices' or 'messages' as in Arena-Hard's answers")
    return text
