"""The published files of the judge-based benchmarks, read into the records of :mod:`.records`.

Each reader takes a path (JSONL, JSON, Parquet, ``hub:...``: see :mod:`phalanx.rows`) and knows the
names of one format. ``read_prepared_*`` read rows of ``{id, prompt, choices, answer, meta}``.
All raise ConfigError that lists every row that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.benchmarks.fields import Fields, Unfit, read_records
from phalanx.benchmarks.judgebench import group_of
from phalanx.benchmarks.records import ManyResponses, Pair, Question, Side

_BY_VERDICT: dict[str, Side] = {"A>B": "A", "B>A": "B"}
_BY_NUMBER: dict[int, Side] = {1: "A", 2: "B"}
_BY_LETTER: dict[str, Side] = {"A": "A", "B": "B"}
_BY_WINNER: dict[str, Side] = {
    "model_a": "A", "model_b": "B", "tie": "tie", "tie (bothbad)": "tie",
}  # fmt: skip
_META_GROUPS = ("group", "subset", "category", "cluster")


def read_judgebench(path: str, *, split: str = "gpt") -> tuple[Pair, ...]:
    """JudgeBench: ``pair_id, source, question, response_A, response_B, label`` ("A>B" or "B>A").

    The group is that of the published tables (all of MMLU-Pro is one).
    """

    def make(row: Fields) -> Pair:
        return Pair(
            id=row.name("pair_id"),
            instruction=row.words("question"),
            response_a=row.text("response_A"),
            response_b=row.text("response_B"),
            label=row.one_of("label", _BY_VERDICT),
            group=group_of(row.words("source")),
        )

    return read_records(path, make, _id, split=split)


def read_llmbar(path: str, subset: str, *, split: str = "train") -> tuple[Pair, ...]:
    """One file of LLMBar: ``input, output_1, output_2, label`` (1 or 2).

    The files name neither themselves nor their rows: ``subset`` ("llmbar-natural", ...) becomes
    the group, and an id is the subset and the row's place from 0.
    """

    def make(row: Fields) -> Pair:
        return Pair(
            id=f"{subset}/{row.number}",
            instruction=row.words("input"),
            response_a=row.text("output_1"),
            response_b=row.text("output_2"),
            label=row.one_of("label", _BY_NUMBER),
            group=subset,
        )

    return read_records(path, make, _id, split=split)


def read_rewardbench(path: str, *, split: str = "filtered") -> tuple[Pair, ...]:
    """RewardBench 1: ``id, prompt, chosen, rejected, subset``; A is always the chosen response.

    Rows of version 2 (lists of responses) do not fit, and are refused.
    """

    def make(row: Fields) -> Pair:
        subset = row.words("subset")
        return Pair(
            id=f"{subset}/{row.name('id')}",
            instruction=row.words("prompt"),
            response_a=row.text("chosen"),
            response_b=row.text("rejected"),
            label="A",
            group=subset,
            writers=_writers(row, "chosen_model", "rejected_model"),
        )

    return read_records(path, make, _id, split=split)


def read_ppe_preferences(path: str, *, split: str = "test") -> tuple[Pair, ...]:
    """PPE's human preferences: ``question_id, prompt, response_1, response_2, winner, language``.

    The winner is model_a (the first response), model_b, tie or tie (bothbad). The group is the
    language.
    """

    def make(row: Fields) -> Pair:
        return Pair(
            id=row.name("question_id"),
            instruction=row.words("prompt"),
            response_a=row.text("response_1"),
            response_b=row.text("response_2"),
            label=row.one_of("winner", _BY_WINNER),
            group=row.text("language") if "language" in row else "",
            writers=_writers(row, "model_a", "model_b"),
        )

    return read_records(path, make, _id, split=split)


def read_ppe_responses(path: str, *, split: str = "train") -> tuple[ManyResponses, ...]:
    """PPE's verifiable responses: ``question_id, prompt, model_name, response_1 ... response_K,
    scores`` (K times true or false) and, where there are any, ``sampled_conflict_pairs``.

    The group is the model that wrote the responses.
    """

    def make(row: Fields) -> ManyResponses:
        right = row.get("scores")
        if not isinstance(right, list | tuple) or not right:
            raise Unfit("'scores' must be a list of true and false, one a response")
        if not all(isinstance(value, bool) for value in right):
            raise Unfit("'scores' must hold true and false only")
        if f"response_{len(right) + 1}" in row:
            raise Unfit(f"has more responses than its {len(right)} 'scores'")
        return ManyResponses(
            id=row.name("question_id"),
            instruction=row.words("prompt"),
            responses=tuple(row.text(f"response_{k}") for k in range(1, len(right) + 1)),
            right=tuple(right),
            group=row.words("model_name"),
            conflicts=_conflicts(row, right),
        )

    return read_records(path, make, _id, split=split)


def _conflicts(row: Fields, right: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    if "sampled_conflict_pairs" not in row:
        return ()
    pairs = row.get("sampled_conflict_pairs")
    if not isinstance(pairs, list | tuple):
        raise Unfit("'sampled_conflict_pairs' must be a list of pairs of places")
    found = []
    for pair in pairs:
        places = tuple(pair) if isinstance(pair, list | tuple) else ()
        if len(places) != 2 or not all(
            type(place) is int and 0 <= place < len(right) for place in places
        ):
            raise Unfit(f"a conflict must be two places from 0 to {len(right) - 1}, got {pair!r}")
        if right[places[0]] == right[places[1]]:
            raise Unfit(f"responses {places[0]} and {places[1]} are no right and wrong one")
        found.append((places[0], places[1]))
    return tuple(found)


def read_arena_hard(path: str, *, split: str = "train") -> tuple[Question, ...]:
    """Arena-Hard's questions: v0.1 (``question_id, cluster, turns``) or v2.0 (``uid, category,
    prompt``). The group is the cluster (v0.1) or the category (v2.0)."""

    def make(row: Fields) -> Question:
        if "uid" in row:
            return Question(row.name("uid"), (row.words("prompt"),), row.words("category"))
        turns = row.get("turns")
        if not isinstance(turns, list | tuple) or len(turns) != 1 or not isinstance(turns[0], dict):
            raise Unfit("'turns' must be a list of one object with 'content'")
        content = turns[0].get("content")
        if not isinstance(content, str) or not content.strip():
            raise Unfit("the turn's 'content' must be text that is not blank")
        return Question(row.name("question_id"), (content,), row.words("cluster"))

    return read_records(path, make, _id, split=split)


def read_alpaca_eval(path: str, *, split: str = "eval") -> tuple[Question, ...]:
    """AlpacaEval's instructions or a model's outputs: ``instruction, dataset`` and ``output``.

    An id is the row's place from 0, which is the index of the instruction difficulties: give whole
    files only. The group is the source; the reference is the output, where there is one.
    """

    def make(row: Fields) -> Question:
        return Question(
            id=str(row.number),
            turns=(row.words("instruction"),),
            group=row.words("dataset"),
            references=(row.text("output"),) if "output" in row else (),
            index=row.number,
        )

    return read_records(path, make, _turns, split=split)


def read_mt_bench(path: str, *, split: str = "train") -> tuple[Question, ...]:
    """MT-Bench: ``question_id, category, turns`` (two) and, for some, ``reference`` (two)."""

    def make(row: Fields) -> Question:
        references = row.texts("reference") if "reference" in row else ()
        return _two_turns(row.name("question_id"), row.texts("turns"), references, row)

    return read_records(path, make, _id, split=split)


def _two_turns(
    name: str, turns: tuple[str, ...], references: tuple[str, ...], row: Fields
) -> Question:
    if len(turns) != 2 or not all(turn.strip() for turn in turns):
        raise Unfit(f"'turns' must be two texts that are not blank, got {len(turns)}")
    if len(references) not in (0, 2):
        raise Unfit(f"'reference' must have a text for each of two turns, got {len(references)}")
    return Question(name, turns, row.words("category"), references)


def read_prepared_pairs(path: str, *, split: str = "train") -> tuple[Pair, ...]:
    """Pairs as ``{id, prompt, choices: {A, B}, answer: A or B, meta}``."""

    def make(row: Fields) -> Pair:
        choices, meta = row.inner("choices"), row.inner("meta")
        if more := sorted(set(row.get("choices")) - set(_BY_LETTER)):
            raise Unfit(f"a pair has the choices A and B alone, got {', '.join(map(str, more))}")
        return Pair(
            id=row.name("id"),
            instruction=row.words("prompt"),
            response_a=choices.text("A"),
            response_b=choices.text("B"),
            label=row.one_of("answer", _BY_LETTER),
            group=_meta_group(meta),
            writers=_writers(meta, "writer_a", "writer_b"),
        )

    return read_records(path, make, _id, split=split)


def read_prepared_questions(path: str, *, split: str = "train") -> tuple[Question, ...]:
    """Questions as ``{id, prompt, meta}``; in ``meta`` there may be two turns and references as in
    MT-Bench, or the ``index`` of an AlpacaEval instruction."""

    def make(row: Fields) -> Question:
        meta = row.inner("meta")
        if "turns" not in meta:
            index = meta.whole("index") if "index" in meta else None
            turns = (row.words("prompt"),)
            return Question(row.name("id"), turns, _meta_group(meta), index=index)
        references = meta.texts("reference") if "reference" in meta else ()
        return _two_turns(row.name("id"), meta.texts("turns"), references, meta)

    return read_records(path, make, _id, split=split)


def _writers(row: Fields, left: str, right: str) -> tuple[str, str]:
    """Who wrote the responses, where the row says so of both."""
    return (row.text(left), row.text(right)) if left in row and right in row else ("", "")


def _meta_group(meta: Fields) -> str:
    return next((meta.text(name) for name in _META_GROUPS if name in meta), "")


def _id(record: Pair | Question | ManyResponses) -> str:
    return record.id


def _turns(record: Question) -> tuple[str, ...]:
    return record.turns
