"""Rows of a run for other tools: JSONL, Parquet or a ``datasets`` folder.

``preferences`` has TRL's columns (prompt, chosen, rejected), ``demonstrations`` those of
supervised fine-tuning (prompt, completion), ``prompts`` those of reinforcement learning (prompt),
each as text or as conversations, with where every row came from. A file appears whole or not at
all.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.config.loading import map_paths
from phalanx.config.uses import USES
from phalanx.errors import ConfigError, LedgerError, MissingPackage
from phalanx.export_kinds import ASKED, KINDS, Kind, with_history, without_history
from phalanx.ledger import Ledger
from phalanx.placing import placed
from phalanx.sources import WHOLE

if TYPE_CHECKING:
    import pyarrow

FORMATS = ("jsonl", "parquet", "datasets")
TOOLS = ("axolotl", "llama-factory", "openrlhf", "verl")
"""Trainers whose own forms :mod:`phalanx.handing.tools` writes."""
TRAINING = {
    "preferences": ("prompt", "chosen", "rejected"),
    "demonstrations": ("prompt", "completion"),
    "prompts": ("prompt",),
}
"""Kinds that other trainers read, and their columns that can be conversations."""
ANSWERS = ("alpaca-eval", "arena-hard")
"""Kinds that published tools read: see :mod:`phalanx.export_answers`."""
WEIGHTS = ("weights", "adapter")
"""What is written of a member, rather than rows: see :mod:`phalanx.handing.weights`."""
_ALSO = {"pairs": "preferences"}  # what reports call them
_BATCH = 10_000


def rows_of(
    ledger: Ledger,
    what: str,
    *,
    conversational: bool = False,
    iteration: int | None = None,
    builder: str | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows of one kind, in the order of the run; none is no error here.

    ``conversational`` turns the texts of :data:`TRAINING` into lists of {role, content};
    ``builder`` keeps the demonstrations of one builder ("mixture", "random", ...).
    Raises ConfigError, before the first row, for an unknown kind or builder, and for prompts of
    several turns that are to be text.
    """
    kind = _kind(what)
    if conversational and what not in TRAINING:
        raise ConfigError(
            f"only {', '.join(TRAINING)} can be conversational, got {what!r}; leave "
            "--conversational out"
        )
    where, values = _narrowed(ledger, what, iteration, builder)
    if what in TRAINING and not conversational:
        _refuse_turns(ledger, what, where, values)
    convert = functools.partial(_conversational, TRAINING[what]) if conversational else kind.convert
    return map(convert, ledger.iterate(kind.sql.format(where=where), values))


def export(
    ledger: Ledger,
    what: str,
    *,
    out: Path | str,
    format: str = "jsonl",
    conversational: bool = False,
    iteration: int | None = None,
    builder: str | None = None,
) -> int:
    """Write the rows of one kind to ``out`` (a file; a folder for ``datasets``): how many.

    The rows are those of :func:`rows_of`. A file that exists is replaced. Raises ConfigError as
    :func:`rows_of` does, for an unknown format and for a place that cannot be written to,
    LedgerError where there is nothing to write, saying why.
    """
    if format not in FORMATS:
        raise ConfigError(_unknown("format", format, (*FORMATS, *TOOLS)))
    rows = some_rows(
        ledger, what, conversational=conversational, iteration=iteration, builder=builder
    )
    out = Path(out)
    _check_place(ledger, out, format)
    columns: dict[str, Any] = dict(_kind(what).columns)
    if conversational:
        columns |= dict.fromkeys(TRAINING[what], "messages")
    with placed(out) as place:
        return WRITERS[format](place, rows, columns)


def some_rows(
    ledger: Ledger,
    what: str,
    *,
    conversational: bool = False,
    iteration: int | None = None,
    builder: str | None = None,
) -> Iterator[dict[str, Any]]:
    """:func:`rows_of`, and LedgerError, saying why, where there are none."""
    rows = rows_of(
        ledger, what, conversational=conversational, iteration=iteration, builder=builder
    )
    first = next(rows, None)
    if first is None:
        raise LedgerError(f"nothing to export: {_why_empty(ledger, what, iteration, builder)}")
    return itertools.chain([first], rows)


def _narrowed(
    ledger: Ledger, what: str, iteration: int | None, builder: str | None
) -> tuple[str, list[Any]]:
    """The condition for the rows that are wanted, and its values."""
    where: list[str] = []
    values: list[Any] = []
    if iteration is not None:
        where.append("p.iteration = ?")
        values.append(iteration)
    if builder is not None:
        if what != "demonstrations":
            raise ConfigError(f"only demonstrations have a builder, got {what!r}; leave it out")
        found = ledger.query("SELECT DISTINCT builder FROM demonstrations ORDER BY builder")
        known = [row["builder"] for row in found]
        if known and builder not in known:
            raise ConfigError(_unknown("builder", builder, known))
        where.append("p.builder = ?")
        values.append(builder)
    return " AND ".join(where) or "1", values


def _refuse_turns(ledger: Ledger, what: str, where: str, values: Sequence[Any]) -> None:
    """Earlier turns have no place in a prompt that is one text."""
    table, longer = "demonstrations p", "p.history != '[]'"
    if what != "demonstrations":
        table = "pairs p" if what == "preferences" else f"({ASKED}) p"
        table += " JOIN instructions i ON i.id = p.instruction"
        longer = f"instr(i.flags, '\"{WHOLE}\"') > 0"
    kept = "1" if what == "prompts" else "p.dropped = ''"
    query = (
        f"SELECT count(*) AS every, coalesce(sum({longer}), 0) AS longer "
        f"FROM {table} WHERE {kept} AND {where}"
    )
    (counts,) = ledger.query(query, values)
    if counts["longer"]:
        raise ConfigError(
            f"{counts['longer']} of {counts['every']} {what} come after earlier turns of a "
            "conversation, which a prompt of plain text cannot hold; export them with "
            "--conversational"
        )


def _kind(what: str) -> Kind:
    if what in WEIGHTS:
        raise ConfigError(f"{what!r} names no rows; `phalanx export RUN {what}` writes it")
    if what not in KINDS:
        raise ConfigError(_unknown("export", what, (*KINDS, *ANSWERS, *WEIGHTS)))
    return KINDS[what]


def _unknown(thing: str, got: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(_ALSO.get(got, got), known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {thing} {got!r}; known: {', '.join(known)}{hint}"


def _conversational(columns: Sequence[str], row: dict[str, Any]) -> dict[str, Any]:
    """TRL's conversational form: the instruction is the user's turn, a response the assistant's.

    The turns before the instruction, if there are any, open the prompt.
    """
    prompt, *answers = columns
    row = with_history(row)
    earlier = json.loads(row.get("history", "[]"))
    return {
        **without_history(row),
        prompt: [*earlier, {"role": "user", "content": row[prompt]}],
        **{name: [{"role": "assistant", "content": row[name]}] for name in answers},
    }


def _why_empty(ledger: Ledger, what: str, iteration: int | None, builder: str | None) -> str:
    planned = int(ledger.get("num_iterations") or 0)
    if iteration is not None and not 0 <= iteration <= planned:
        return f"iteration {iteration} was asked for, and this run has iterations 1 to {planned}"
    place = "" if iteration is None else f" in iteration {iteration}"
    if what == "responses":
        return f"nobody has answered anything yet{place}"
    if what == "evaluations":
        return f"nothing has been measured{place}; look at evaluate.tasks and evaluate.every"
    if what == "games":
        return "no answers were compared or rated; `phalanx eval` does, on tasks like arena_hard"
    if what == "labels":
        return f"nobody labelled a duel{place}; `phalanx label RUN` shows some to a person"
    method = ledger.get("method") or ""
    if method in USES and "train" not in USES[method]:
        return f"a run of {method} makes no {what}: nobody learns there; it has evaluations"
    if iteration == 0:
        return "iteration 0 is the pool before alignment; duels begin with iteration 1"
    clause, values = ("1", ()) if iteration is None else ("iteration = ?", (iteration,))
    if not ledger.count("states", clause, values):
        which = "no iteration has" if iteration is None else f"iteration {iteration} has not"
        work = "duels" if method == "sparta" and what != "demonstrations" else "answers"
        return f"{which} finished its {work} yet; continue the run, then export again"
    if what == "prompts":
        return "nobody was asked an instruction there; look at the report"
    if what in TRAINING:
        return _why_none_trains(ledger, what, clause, values, builder)
    if what == "judgments":
        return "no duel had two different responses to judge; look at the report"
    return "the run's reputation rule changed nothing; look at reputation.rule"


def _why_none_trains(
    ledger: Ledger, what: str, clause: str, values: Sequence[Any], builder: str | None
) -> str:
    table, one = ("pairs", "pair") if what == "preferences" else (what, "demonstration")
    if builder is not None:
        clause, values, one = f"{clause} AND builder = ?", (*values, builder), f"{one} of {builder}"
    reasons = ledger.query(
        f"SELECT dropped, count(*) AS n FROM {table} WHERE {clause} GROUP BY 1 ORDER BY n DESC",
        values,
    )
    if not reasons:
        made = {
            row["iteration"]
            for row in ledger.query(f"SELECT DISTINCT iteration FROM {table} ORDER BY iteration")
        }
        where = f"; iterations that did: {', '.join(map(str, sorted(made)))}" if made else ""
        return f"no {one} was made there (method {ledger.get('method')}){where}"
    counts = ", ".join(f"{row['n']} {row['dropped']}" for row in reasons)
    advice = "loosen pairs.*" if what == "preferences" else "see the method's page in docs/methods"
    return f"every {one} was dropped ({counts}); look at the report, or {advice}"


def _check_place(ledger: Ledger, out: Path, format: str) -> None:
    """A file never replaces a folder or what the run reads, a data set only another one."""
    ledger.refuse_target(out)
    refuse_input(ledger, out)
    if format != "datasets":
        if out.is_dir():
            raise ConfigError(f"{out} is a folder; name a file for the format {format}")
    elif out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; the format datasets writes a folder")
    elif out.is_dir() and any(out.iterdir()) and not (out / "dataset_info.json").exists():
        raise ConfigError(f"{out} holds something other than a data set; choose another folder")


def refuse_input(ledger: Ledger, out: Path) -> None:
    """Raise ConfigError where ``out`` is a file that the run's configuration names, or is in a
    folder that it names."""

    def refuse(text: str) -> str:
        place = Path(text).resolve()
        if text and place.exists() and out.resolve().is_relative_to(place):
            raise ConfigError(
                f"the run reads {out}, so nothing is written there; name another file"
            )
        return text

    if out.is_file():
        map_paths(json.loads(ledger.get("config") or "{}"), refuse)


def _write_jsonl(path: Path, rows: Iterator[dict[str, Any]], columns: dict[str, Any]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json_line(row))
            count += 1
    return count


def json_line(row: Mapping[str, Any]) -> str:
    """A row as one line, also for readers that end lines where Unicode does."""
    return json.dumps(row, ensure_ascii=False).translate(_LINE_ENDS) + "\n"


_LINE_ENDS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"}


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]], columns: dict[str, Any]) -> int:
    count, schema = 0, _schema(columns)
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    with ParquetWriter(path, schema) as writer:
        for batch in _batches(rows):
            writer.write_table(Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _write_datasets(path: Path, rows: Iterator[dict[str, Any]], columns: dict[str, Any]) -> int:
    schema = _schema(columns)
    from pyarrow import Table

    try:
        from datasets import (
            Dataset,
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )
    except ImportError:
        raise MissingPackage("datasets", "data", "Exporting a data set") from None
    table = Table.from_pylist(list(rows), schema=schema)
    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        Dataset(table).save_to_disk(path)
    finally:
        if shown:
            enable_progress_bars()
    return table.num_rows


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(rows, _BATCH)):
        yield batch


def _schema(columns: dict[str, Any]) -> pyarrow.Schema:
    """``columns``: the type of each by its word, or a dictionary of such words for a record."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingPackage("pyarrow", "data", "Exporting Parquet") from None
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    types = {
        "string": pa.string(),
        "strings": pa.list_(pa.string()),
        "messages": pa.list_(message),
        "exchanges": pa.list_(pa.list_(pa.string())),
        "double": pa.float64(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
    }
    records = {
        name: pa.struct([(part, types[kind]) for part, kind in parts.items()])
        for name, parts in columns.items()
        if isinstance(parts, dict)
    }
    return pa.schema([(n, records[n] if n in records else types[columns[n]]) for n in columns])


WRITERS = {"jsonl": _write_jsonl, "parquet": _write_parquet, "datasets": _write_datasets}
