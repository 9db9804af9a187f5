"""Instructions and demonstrations from files, the hub or the embedded skills.

Every row is checked, every fault is reported with its file and line, and nothing is skipped
unless the user asked for it. Zero usable rows is an error, never an empty success.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from phalanx import skills
from phalanx.config.schema import Config, InstructionSettings, PreferenceFileSettings
from phalanx.config.uses import USES
from phalanx.errors import ConfigError
from phalanx.identity import content_id, derived_random
from phalanx.rows import PROMPTS, BadRow, Row, read_rows, require_columns
from phalanx.turns import BadTurns, looks_like_turns, read_preference, read_turns, turns_of
from phalanx.types import Demonstration, Instruction, Message, PreferencePair

BUILTIN = "builtin:skills"
CLEANED = "cleaned_text"
WHOLE = "whole_conversation"
"""The flag of a prompt of several turns whose last user turn is the one that is answered."""
BUILTIN_COUNT = 1000
NO_ANSWER = "no answer"
LATER_TURNS = "has several user turns, and one instruction with one answer is learned; cut it"


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a source gave. Line numbers are physical lines (row numbers for Parquet and hubs).

    ``lines`` are those of the instructions, ``duplicates`` pairs the line of a repeated text with
    the line that had it first; ``cleaned`` lists rows whose broken characters were replaced.
    ``pairs`` are those of a preference file, one for each instruction, which is its prompt.
    """

    where: str
    instructions: tuple[Instruction, ...]
    skipped: tuple[BadRow, ...] = ()
    duplicates: tuple[tuple[int, int], ...] = ()
    cleaned: tuple[int, ...] = ()
    num_blank: int = 0
    lines: tuple[int, ...] = ()
    pairs: tuple[PreferencePair, ...] = ()

    def notes(self) -> list[str]:
        """What a user should hear before a run starts; empty if all was well."""
        notes = []
        if self.skipped:
            reasons = [f"line {bad.line}: {bad.reason}" for bad in self.skipped]
            notes.append("\n  ".join([f"skipped {len(self.skipped)} bad rows", *reasons]))
        if self.duplicates:
            what = "pairs" if self.pairs else "texts"
            lines = _first([f"{line} (as {first})" for line, first in self.duplicates])
            notes.append(f"{len(self.duplicates)} repeated {what}: {lines}")
        if self.cleaned:
            notes.append(f"broken characters replaced in {len(self.cleaned)} rows")
        if opposed := self._opposed():
            lines = _first([f"{line} (against {first})" for line, first in opposed])
            notes.append(
                f"{len(opposed)} contradictory pairs, which choose the other of the same two "
                f"answers and are learned too: {lines}"
            )
        return [f"{self.where}: {note}" for note in notes]

    def _opposed(self) -> list[tuple[int, int]]:
        """The lines of pairs that contradict an earlier one, and of that one."""
        found, seen = [], dict[tuple[Any, ...], int]()
        for line, pair in zip(self.lines, self.pairs, strict=False):
            about = (pair.instruction.text, pair.instruction.later)
            seen[*about, pair.chosen, pair.rejected] = line
            if first := seen.get((*about, pair.rejected, pair.chosen)):
                found.append((line, first))
        return found


def _first(lines: Sequence[str]) -> str:
    return ", ".join(lines[:10]) + (" ..." if len(lines) > 10 else "")


def read_instructions(
    path: str,
    *,
    column: str = "instruction",
    bad_rows: Literal["refuse", "skip"] = "refuse",
    duplicates: Literal["keep", "drop"] = "drop",
    limit: int | None = None,
    split: str = "train",
    require_answer: bool = False,
    domains: Sequence[str] = (),
    seed: int = 0,
) -> InstructionSet:
    """Read instructions from a file, a folder, ``hub:org/name`` or ``builtin:skills``.

    Files are JSONL, JSON (a list), CSV, TSV or Parquet.

    Fields: ``column`` (the instruction: a text, or a conversation as :mod:`phalanx.turns` reads
    it), and optionally ``id``, ``domain``, ``answer`` and ``input`` (appended to a text after a
    blank line). Order is the file's. ``limit`` keeps the first ones,
    after the whole source was checked. ``require_answer`` makes a row bad that has no ``answer``,
    where the last turn of an assistant is one, too, or that has several user turns.
    ``domains`` keeps those domains alone. ``seed`` matters for ``builtin:skills`` alone.

    Raises :class:`ConfigError` listing every bad row (``bad_rows="refuse"``), a missing column
    with the columns that exist, or a source without a usable row.
    """
    if path == BUILTIN:
        wanted = tuple(domains) or skills.DOMAINS
        most = skills.num_instructions(wanted)
        count = min(BUILTIN_COUNT, most) if limit is None else limit
        made = skills.instructions(count, seed, wanted)
        return InstructionSet(BUILTIN, made, lines=tuple(range(1, len(made) + 1)))
    table = read_rows(path, split=split)
    apart = require_answer and not any(looks_like_turns(r.fields.get(column)) for r in table.rows)
    require_columns(table.where, table.rows, (column, "answer") if apart else (column,))
    reader = _InstructionReader(column, duplicates == "keep", require_answer)
    bad = list(table.bad)
    for row in table.rows:
        reason = reader.take(row)
        if reason:
            bad.append(BadRow(row.line, reason))
    bad.sort(key=lambda fault: fault.line)
    if bad and bad_rows == "refuse":
        lacking = sum(fault.reason == NO_ANSWER for fault in bad)
        count = f"; {lacking} of {len(table.rows)} rows have no answer" if lacking else ""
        raise _refusal(table.where, bad, f" (or set instructions.bad_rows to skip){count}")
    if not reader.instructions:
        raise _nothing(table.where, bad)
    numbered = list(zip(reader.lines, reader.instructions, strict=True))
    kept = _of_domains(table.where, numbered, domains)[:limit]
    return InstructionSet(
        table.where,
        tuple(one for _, one in kept),
        tuple(bad),
        tuple(reader.duplicates),
        tuple(reader.cleaned),
        table.num_blank,
        tuple(line for line, _ in kept),
    )


def instructions_of(config: Config) -> InstructionSet:
    """What a run by this configuration is about: its instructions, with an answer each where the
    method learns from those (``spin``), or the prompts of a preference file; nothing for a method
    that takes none.

    Raises ConfigError as :func:`read_instructions` and :func:`read_preferences` do.
    """
    if config.method == "preference_file":
        return preferences_from(config.preference_file)
    if "instructions" not in USES[config.method]:
        return InstructionSet("", ())
    answered = config.method == "spin"
    return instructions_from(config.instructions, config.seed, require_answer=answered)


def instructions_from(
    settings: InstructionSettings, seed: int = 0, *, require_answer: bool = False
) -> InstructionSet:
    """:func:`read_instructions` with the settings of a configuration."""
    if not settings.source:
        raise ConfigError(
            "instructions.source is not set; give a file, hub:org/name or builtin:skills"
        )
    return read_instructions(
        settings.source,
        column=settings.column,
        bad_rows=settings.bad_rows,
        duplicates=settings.duplicates,
        limit=settings.limit,
        split=settings.split,
        require_answer=require_answer,
        domains=settings.domains,
        seed=seed,
    )


def preferences_from(settings: PreferenceFileSettings) -> InstructionSet:
    """:func:`read_preferences` with the settings of a configuration."""
    if not settings.source:
        raise ConfigError(
            "preference_file.source is not set; give a file of pairs, or hub:org/name"
        )
    return read_preferences(settings.source, split=settings.split, bad_rows=settings.bad_rows)


def read_preferences(
    path: str, *, split: str = "train", bad_rows: Literal["refuse", "skip"] = "refuse"
) -> InstructionSet:
    """Read preference pairs with TRL's columns from a file, a folder or ``hub:org/name``.

    ``chosen`` and ``rejected``, and ``prompt`` (or ``instruction``, ``question``) where it does not
    stand within the two: :func:`phalanx.turns.read_preference` says in which forms. Optionally
    ``domain``. A row that is the same as an earlier one is left out. Ids are made of the contents.

    Raises :class:`ConfigError` listing every bad row (``bad_rows="refuse"``), a missing column, or
    a source without a usable row.
    """
    table = read_rows(path, split=split)
    require_columns(table.where, table.rows, ("chosen", "rejected"))
    columns = {name for row in table.rows for name in row.fields}
    column = next((name for name in ("prompt", *PROMPTS) if name in columns), None)
    bad, duplicates, cleaned = list(table.bad), list[tuple[int, int]](), list[int]()
    pairs: dict[str, PreferencePair] = {}
    lines: dict[str, int] = {}
    for row in table.rows:
        try:
            pair = _preference(row, column)
        except (_BadField, BadTurns) as fault:
            bad.append(BadRow(row.line, str(fault)))
            continue
        if lines.setdefault(pair.id, row.line) != row.line:
            duplicates.append((row.line, lines[pair.id]))
        else:
            pairs[pair.id] = pair
            cleaned += [row.line] * (CLEANED in pair.instruction.flags)
    bad.sort(key=lambda fault: fault.line)
    if bad and bad_rows == "refuse":
        raise _refusal(table.where, bad, " (or set preference_file.bad_rows to skip)")
    if not pairs:
        raise _nothing(table.where, bad)
    return InstructionSet(
        table.where,
        tuple(pair.instruction for pair in pairs.values()),
        tuple(bad),
        tuple(duplicates),
        tuple(cleaned),
        table.num_blank,
        tuple(lines[key] for key in pairs),
        tuple(pairs.values()),
    )


def _preference(row: Row, column: str | None) -> PreferencePair:
    """The pair of a row; its instruction has the pair's id, so that a prompt can have several."""
    for name in ("chosen", "rejected"):
        if row.fields.get(name) is None:
            raise _BadField(f"{name} is null" if name in row.fields else f"field {name!r} missing")
    prompt = row.fields.get(column) if column else None
    if row.fields.get("tools") not in (None, "", "[]", []):
        raise _BadField("has tools, which are not shown to members; write them into the prompt")
    found, *answers = read_preference(prompt, row.fields["chosen"], row.fields["rejected"])
    turns = tuple(Message(turn.role, clean_text(turn.content)) for turn in found)
    chosen, rejected = map(clean_text, answers)
    identity = content_id("preference", turns, chosen, rejected)
    flags = (WHOLE,) if len(turns) > 1 else ()
    if (turns, [chosen, rejected]) != (found, answers):
        flags = (*flags, CLEANED)
    first, *later = turns
    domain = clean_text(_optional(row, "domain"))
    instruction = Instruction(identity, first.content, domain, flags=flags, later=tuple(later))
    return PreferencePair(identity, instruction, chosen, rejected)


def _of_domains(
    where: str, rows: list[tuple[int, Instruction]], domains: Sequence[str]
) -> list[tuple[int, Instruction]]:
    if not domains:
        return rows
    known = {one.domain for _, one in rows}
    unknown = sorted(set(domains) - known)
    if unknown:
        listed = ", ".join(sorted(known - {""})) or "none"
        raise ConfigError(
            f"no rows of the domain {', '.join(unknown)}; domains there: {listed}", where
        )
    return [(line, one) for line, one in rows if one.domain in domains]


@dataclass(frozen=True, slots=True)
class _Read:
    """One row, its texts clean. ``key``: what makes two rows the same instruction."""

    text: str
    later: tuple[Message, ...]
    domain: str
    answer: str
    given_id: str

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.text, self.later) if self.later else (self.text,)


class _InstructionReader:
    """Turns rows into instructions, remembering ids and texts seen so far."""

    def __init__(self, column: str, keep: bool, require_answer: bool) -> None:
        self.column = column
        self.keep = keep
        self.require_answer = require_answer
        self.instructions: list[Instruction] = []
        self.lines: list[int] = []
        self.duplicates: list[tuple[int, int]] = []
        self.cleaned: list[int] = []
        self._line_of: dict[tuple[Any, ...], int] = {}
        self._used_ids: dict[str, tuple[tuple[Any, ...], int]] = {}
        self._repeats: dict[tuple[Any, ...], int] = {}

    def take(self, row: Row) -> str:
        """Add the row; returns why it is bad, or an empty string."""
        try:
            found = self._read(row)
        except _BadField as fault:
            return str(fault)
        read = _cleaned(found)
        used_key, used_line = self._used_ids.get(read.given_id, (read.key, 0))
        if used_key != read.key:
            return f"id {read.given_id} already used on line {used_line}"
        first_line = self._line_of.setdefault(read.key, row.line)
        repeated = first_line != row.line
        if repeated:
            self.duplicates.append((row.line, first_line))
        identity = self._identity(read)
        if read.given_id:
            self._used_ids.setdefault(read.given_id, (read.key, row.line))
        if repeated and not self.keep:
            return ""
        flags = (CLEANED,) if read != found else ()
        if flags:
            self.cleaned.append(row.line)
        self.lines.append(row.line)
        self.instructions.append(
            Instruction(identity, read.text, read.domain, read.answer or None, flags, read.later)
        )
        return ""

    def _read(self, row: Row) -> _Read:
        text, *later = self._turns(row)
        answer = _optional(row, "answer", numbers=True)
        if self.require_answer:
            if later:
                raise _BadField(LATER_TURNS)
            answer = answer or self._last_answer(row)
            if not answer:
                raise _BadField(NO_ANSWER)
        identity = _optional(row, "id", numbers=True)
        return _Read(text.content, tuple(later), _optional(row, "domain"), answer, identity)

    def _last_answer(self, row: Row) -> str:
        value = row.fields[self.column]
        last = turns_of(value)[-1] if looks_like_turns(value) else None
        return last.content.strip() if last and last.role == "assistant" else ""

    def _turns(self, row: Row) -> tuple[Message, ...]:
        extra = "" if self.column == "input" else _optional(row, "input")
        value = row.fields.get(self.column)
        if not looks_like_turns(value):
            text = _required(row, self.column)
            return (Message("user", f"{text}\n\n{extra}" if extra else text),)
        if extra:
            raise _BadField(f"has an input beside the turns of {self.column}")
        try:
            return read_turns(value)
        except BadTurns as fault:
            raise _BadField(f"{self.column}: {fault}") from None

    def _identity(self, read: _Read) -> str:
        """The id given, or a content id. A kept repeat needs an id of its own."""
        if read.given_id and read.given_id not in self._used_ids:
            return read.given_id
        repeat = self._repeats.get(read.key, 0)
        self._repeats[read.key] = repeat + 1
        numbered = (*read.key, repeat) if repeat or read.given_id else read.key
        return content_id(*numbered)


def _cleaned(read: _Read) -> _Read:
    return _Read(
        clean_text(read.text),
        tuple(Message(turn.role, clean_text(turn.content)) for turn in read.later),
        *map(clean_text, (read.domain, read.answer, read.given_id)),
    )


def read_demonstrations(path: str, *, domains: bool = True) -> tuple[Demonstration, ...]:
    """Read SFT rows with the fields ``instruction``, ``response`` and ``domain`` (all required).

    The same formats as :func:`read_instructions`; ``input`` is appended to the instruction.
    Without ``domains`` a row may lack its domain. Raises :class:`ConfigError` listing every bad
    row, or when there is none that can be used.
    """
    table = read_rows(path)
    needed = ("instruction", "response", *(["domain"] if domains else []))
    require_columns(table.where, table.rows, needed)
    bad = list(table.bad)
    rows: list[Demonstration] = []
    for row in table.rows:
        try:
            prompt, response, *_ = (clean_text(_required(row, name)) for name in needed)
            domain = clean_text(_optional(row, "domain"))
            extra = clean_text(_optional(row, "input"))
        except _BadField as fault:
            bad.append(BadRow(row.line, str(fault)))
            continue
        prompt = f"{prompt}\n\n{extra}" if extra else prompt
        rows.append(Demonstration(content_id(prompt, response), prompt, response, domain))
    if bad:
        raise _refusal(table.where, sorted(bad, key=lambda fault: fault.line))
    if not rows:
        raise _nothing(table.where, bad)
    return tuple(rows)


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone halves by U+FFFD, so that the text can be saved."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def fresh_sample(
    instructions: Sequence[Instruction], count: int, *, seed: int, iteration: int
) -> tuple[Instruction, ...]:
    """The ``count`` instructions of one iteration, without replacement until all were used.

    Then a new shuffled round begins; an iteration that spans two rounds still repeats nothing
    (unless ``count`` is larger than the set). The place in the rounds follows from the iteration
    number and ``count`` alone, so a resumed run draws the same ones.
    """
    if not instructions:
        raise ConfigError("there are no instructions to sample from; check instructions.source")
    if count < 1 or iteration < 0:
        raise ConfigError(f"cannot draw {count} instructions for iteration {iteration}")
    size, start = len(instructions), iteration * count
    needed = range(start // size, (start + count - 1) // size + 1)
    orders: dict[int, list[int]] = {}
    order: list[int] = []
    begin = needed.start
    while 0 < (begin * size) % count < size:  # a round that depends on the one before it
        begin -= 1
    for number in range(begin, needed.stop):
        drawn = (number * size) % count  # by the iteration in which this round begins
        order = _shuffled_round(order, size, drawn, (seed, "fresh", number))
        if number in needed:
            orders[number] = order
    places = range(start, start + count)
    return tuple(instructions[orders[place // size][place % size]] for place in places)


def _shuffled_round(
    previous: list[int], size: int, num_drawn: int, seed: tuple[int, str, int]
) -> list[int]:
    """A new round in which what the straddling iteration has drawn already comes last."""
    order = list(range(size))
    derived_random(*seed).shuffle(order)
    drawn = set(previous[size - num_drawn :]) if 0 < num_drawn < size else set()
    return [i for i in order if i not in drawn] + [i for i in order if i in drawn]


class _BadField(Exception):
    """Why one field of one row cannot be used; never leaves this module."""


def _required(row: Row, name: str) -> str:
    if name not in row.fields:
        raise _BadField(f"field {name!r} missing")
    value = row.fields[name]
    if value is None:
        raise _BadField(f"{name} is null")
    if not isinstance(value, str):
        raise _BadField(f"{name} is not text")
    if not value.strip():
        raise _BadField(f"empty {name}")
    return value.strip()


def _optional(row: Row, name: str, numbers: bool = False) -> str:
    """The field as text, "" where absent or null; numbers are read only where allowed."""
    value = row.fields.get(name)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and math.isnan(value):
            return ""  # how tables write "no value" in a column of numbers
        return str(int(value)) if value == value // 1 else str(value)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _BadField(f"{name} is not text")
    return value.strip()


def _refusal(where: str, bad: Sequence[BadRow], advice: str = "") -> ConfigError:
    lines = [f"{where}:{fault.line}: {fault.reason}" for fault in bad]
    return ConfigError(lines, f"{where}: bad rows; mend them{advice}")


def _nothing(where: str, bad: Sequence[BadRow]) -> ConfigError:
    lines = [f"{where}:{fault.line}: {fault.reason}" for fault in bad]
    return ConfigError(["there is not one usable row", *lines], where)
