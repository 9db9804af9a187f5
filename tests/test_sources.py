from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.schema import InstructionSettings
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.sources import (
    clean_text,
    fresh_sample,
    instructions_from,
    read_demonstrations,
    read_instructions,
)
from phalanx.turns import read_turns
from phalanx.types import Demonstration, Instruction, Message


def write(folder: Path, name: str, *rows: Any) -> str:
    path = folder / name
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def texts(read: Any) -> list[str]:
    return [row.text for row in read.instructions]


# The case file: every line as expected.


def test_bad_file_is_refused_with_every_line(cases_dir: Path) -> None:
    expected = json.loads((cases_dir / "instructions_bad.expected.json").read_text())["lines"]
    path = str(cases_dir / "instructions_bad.jsonl")
    with pytest.raises(ConfigError) as caught:
        read_instructions(path)
    wanted = [(n, text[5:]) for n, text in expected.items() if text.startswith("bad: ")]
    assert len(caught.value.faults) == len(wanted)
    for fault, (line, reason) in zip(caught.value.faults, wanted, strict=True):
        assert fault.startswith(f"{path}:{line}: {reason}")


def test_bad_file_skipped_and_counted(cases_dir: Path) -> None:
    expected = json.loads((cases_dir / "instructions_bad.expected.json").read_text())["lines"]
    read = read_instructions(str(cases_dir / "instructions_bad.jsonl"), bad_rows="skip")
    bad = [int(n) for n, text in expected.items() if text.startswith("bad: ")]
    assert [fault.line for fault in read.skipped] == bad
    assert read.num_blank == sum("blank" in text for text in expected.values())
    assert read.duplicates == ((8, 1),)
    assert read.cleaned == (12,)
    assert [row.id for row in read.instructions] == ["i1", "i9", "i12", "i14"]
    assert read.instructions[2].text == "half \ufffd pair"
    assert read.instructions[2].flags == ("cleaned_text",)
    assert texts(read)[3] == "spaces around"
    assert any("skipped 7" in note for note in read.notes())


# Rows and fields.


def test_defaults_and_optional_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.jsonl",
        {"instruction": "Say hi.", "domain": "talk", "answer": 4},
        {"instruction": "Sum it.", "input": "1, 2", "id": 7, "answer": 2.0},
        {"instruction": "Alone.", "input": "", "domain": None, "answer": None, "id": None},
    )  # fmt: skip
    first, second, third = read_instructions(path).instructions
    assert first == Instruction(content_id("Say hi."), "Say hi.", "talk", "4")
    assert (second.id, second.text, second.answer) == ("7", "Sum it.\n\n1, 2", "2")
    assert third == Instruction(content_id("Alone."), "Alone.")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"instruction": "x", "id": ["a"]}, "id is not text"),
        ({"instruction": "x", "domain": 3}, "domain is not text"),
        ({"instruction": "x", "answer": True}, "answer is not text"),
        ({"instruction": "x", "input": {"a": 1}}, "input is not text"),
        ({"instruction": "  \u3000 "}, "empty instruction"),
        ("[1", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("1" * 5000, "not valid JSON"),
        ("null", "not an object"),
    ],
)
def test_bad_rows_name_the_line(tmp_path: Path, row: Any, reason: str) -> None:
    path = write(tmp_path, "a.jsonl", {"instruction": "fine"}, "", row)
    with pytest.raises(ConfigError, match=rf"a\.jsonl:3: {reason}"):
        read_instructions(path)
    assert texts(read_instructions(path, bad_rows="skip")) == ["fine"]


def test_line_separators_inside_a_text_are_not_line_ends(tmp_path: Path) -> None:
    row = json.dumps({"instruction": "a\u2028b\u0085c\x0cd"}, ensure_ascii=False)
    path = write(tmp_path, "a.jsonl", row, "broken")
    read = read_instructions(path, bad_rows="skip")
    assert texts(read) == ["a\u2028b\u0085c\x0cd"]
    assert read.skipped[0].line == 2


def test_bytes_that_are_not_utf8_and_bom_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"instruction": "one"}\r\n\r\n{"instruction": "\xff"}\r\n')
    read = read_instructions(str(path), bad_rows="skip")
    assert texts(read) == ["one"]
    assert read.num_blank == 1
    assert (read.skipped[0].line, read.skipped[0].reason[:9]) == (3, "not UTF-8")
    table = tmp_path / "a.csv"
    table.write_bytes(b"instruction\ncaf\xe9\n")
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        read_instructions(str(table))


@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_duplicates(tmp_path: Path, policy: Any) -> None:
    rows = [{"instruction": t} for t in ("a", "b", "a", " a ")]
    rows += [{"instruction": "a", "id": "x"}, {"instruction": "a", "id": "x"}]
    read = read_instructions(write(tmp_path, "a.jsonl", *rows), duplicates=policy)
    assert read.duplicates == ((3, 1), (4, 1), (5, 1), (6, 1))
    assert texts(read) == (["a", "b", "a", "a", "a", "a"] if policy == "keep" else ["a", "b"])
    assert len({row.id for row in read.instructions}) == len(read.instructions)


def test_id_of_a_dropped_duplicate_is_still_used(tmp_path: Path) -> None:
    rows = [{"instruction": "a"}, {"instruction": "a", "id": "x"}, {"instruction": "b", "id": "x"}]
    with pytest.raises(ConfigError, match=":3: id x already used on line 2"):
        read_instructions(write(tmp_path, "a.jsonl", *rows))


def test_missing_column_lists_what_is_there(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", *[{"instructions": "x", "n": 1}] * 3)
    with pytest.raises(ConfigError) as caught:
        read_instructions(path, bad_rows="skip")
    assert len(caught.value.faults) == 1
    assert "'instructions', 'n'; did you mean 'instructions'?" in str(caught.value)
    path = write(tmp_path, "b.jsonl", {"question": "x", "n": 1})
    with pytest.raises(ConfigError, match="did you mean 'question'"):
        read_instructions(path)
    assert texts(read_instructions(path, column="question")) == ["x"]


def test_input_as_the_column_is_not_appended_to_itself(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", {"input": "x"})
    assert texts(read_instructions(path, column="input")) == ["x"]


@pytest.mark.parametrize("rows", [[], ["", "  "], ["{"], [{"instruction": ""}]])
def test_nothing_usable_is_an_error_even_when_skipping(tmp_path: Path, rows: list[Any]) -> None:
    with pytest.raises(ConfigError, match="not one usable row"):
        read_instructions(write(tmp_path, "a.jsonl", *rows), bad_rows="skip")


def test_limit_comes_after_cleaning(tmp_path: Path) -> None:
    rows = [{"instruction": t} for t in ("", "a", "a", "b", "c")]
    path = write(tmp_path, "a.jsonl", *rows)
    assert texts(read_instructions(path, bad_rows="skip", limit=2)) == ["a", "b"]
    with pytest.raises(ConfigError, match=":1: empty"):
        read_instructions(path, limit=1)


def test_require_answer(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", {"instruction": "a", "answer": "1"}, {"instruction": "b"})
    with pytest.raises(ConfigError, match=":2: no answer"):
        read_instructions(path, require_answer=True)


def chat(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant") * len(texts)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def test_the_last_turn_of_an_assistant_is_the_answer_that_is_required(tmp_path: Path) -> None:
    """As the data sets of SPIN and UltraChat write it; a column `answer` wins."""
    rows = [
        {"messages": chat("a", " one ")},
        {"messages": chat("b", "two"), "answer": "2"},
        {"messages": chat("c"), "answer": "3"},
    ]
    path = write(tmp_path, "a.jsonl", *rows)
    read = read_instructions(path, column="messages", require_answer=True)
    answers = [(one.text, one.answer) for one in read.instructions]
    assert answers == [("a", "one"), ("b", "2"), ("c", "3")]
    alone = write(tmp_path, "b.jsonl", rows[0])
    assert read_instructions(alone, column="messages").instructions[0].answer is None
    texts = write(tmp_path, "c.jsonl", {"instruction": "a"})
    with pytest.raises(ConfigError, match="no row has the column 'answer'"):
        read_instructions(texts, require_answer=True)


def test_one_answer_to_several_user_turns_is_refused(tmp_path: Path) -> None:
    """It would be paired with the first of them."""
    rows = [
        {"messages": chat("What is 2+2?", "4", "The capital of France?"), "answer": "Paris"},
        {"messages": chat("a", "one")},
        {"messages": chat("b", "")},
        {"messages": chat("c", "one", "d", "two")},
    ]
    path = write(tmp_path, "a.jsonl", *rows)
    with pytest.raises(ConfigError) as caught:
        read_instructions(path, column="messages", require_answer=True)
    found = [fault.partition(".jsonl")[2] for fault in caught.value.faults]
    several = " has several user turns, and one instruction with one answer is learned; cut it"
    assert found == [f":1:{several}", ":3: no answer", f":4:{several}"]
    skipping = read_instructions(path, column="messages", require_answer=True, bad_rows="skip")
    assert (texts(skipping), len(skipping.skipped)) == (["a"], 3)


@given(st.text(alphabet=st.characters(min_codepoint=0, max_codepoint=0x10FFFF)))
def test_cleaned_text_can_be_saved_and_stays_clean(text: str) -> None:
    clean = clean_text(text)
    clean.encode("utf-8")
    assert clean_text(clean) == clean
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert clean == text


def test_surrogate_pair_becomes_its_character() -> None:
    assert clean_text("\ud83d\ude80 \ude80\ud83d") == "🚀 \ufffd\ufffd"


# Formats.


def test_json_list_with_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '[{"instruction":\n "a"},', "3,", '{"instruction": ""}', "]")
    read = read_instructions(
        write(tmp_path, "b.json", '[{"instruction": "a"}', ', {"x": "]"}, {"instruction": "b"}]'),
        bad_rows="skip",
    )
    assert texts(read) == ["a", "b"]
    assert read.skipped[0].line == 2
    with pytest.raises(ConfigError) as caught:
        read_instructions(path)
    assert [f.split(".json:")[1] for f in caught.value.faults] == [
        "3: not an object",
        "4: empty instruction",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"instruction": "a"},\n{"instr', "line 2: the list is broken"),
        ('[{"instruction": "a"}\n{"instruction": "b"}]', "line 1: expected"),
        ('[{"instruction": "a"}] x', "more text"),
        ('[{"instruction": "a"},]', "broken"),
        ("[]", "not one usable"),
        ('{"data": [1]}', "columns found: 'data'"),
    ],
)
def test_broken_json_is_never_half_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_instructions(write(tmp_path, "a.json", text), bad_rows="skip")


def test_json_lines_under_the_name_json(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", {"instruction": "a"}, {"instruction": "b"})
    assert texts(read_instructions(path)) == ["a", "b"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter="," if suffix == "csv" else "\t")
        writer.writerow(["instruction", "domain"])
        writer.writerow(['say "hi",\tthen\nstop', "talk"])
        file.write("\r\n")
        writer.writerow(["", "talk"])
        writer.writerow(["too", "many", "fields"])
        writer.writerow(["end", ""])
    read = read_instructions(str(path), bad_rows="skip")
    assert [(row.text, row.domain) for row in read.instructions] == [
        ('say "hi",\tthen\nstop', "talk"),
        ("end", ""),
    ]
    assert [(bad.line, bad.reason) for bad in read.skipped] == [
        (5, "empty instruction"),
        (6, "has 3 fields, the header has 2"),
    ]
    assert read.num_blank == 1


def test_csv_cut_in_a_quote_and_bad_headers(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "instruction", "fine", '"cut here', "more")
    with pytest.raises(ConfigError, match=r"a\.csv:3: not valid CSV"):
        read_instructions(path)
    with pytest.raises(ConfigError, match="twice"):
        read_instructions(write(tmp_path, "b.csv", "instruction,instruction", "a,b"))
    with pytest.raises(ConfigError, match="no header"):
        read_instructions(write(tmp_path, "c.csv"))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    table = pyarrow.table({"prompt": ["a", None, "b"], "answer": [1.0, 2.0, None]})
    parquet.write_table(table, path)
    read = read_instructions(str(path), column="prompt", bad_rows="skip")
    assert [(row.text, row.answer) for row in read.instructions] == [("a", "1"), ("b", None)]
    assert [(bad.line, bad.reason) for bad in read.skipped] == [(2, "prompt is null")]
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        read_instructions(str(path))


def test_data_sets_from_folders(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"instruction": "a"}, {"instruction": "b"}])
    rows.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"dev": rows}).save_to_disk(str(tmp_path / "many"))
    assert texts(read_instructions(str(tmp_path / "one"))) == ["a", "b"]
    assert texts(read_instructions(f"hub:{tmp_path / 'many'}", split="dev")) == ["a", "b"]
    with pytest.raises(ConfigError, match="no split 'train'; the data set has: dev"):
        read_instructions(f"hub:{tmp_path / 'many'}")


def test_a_bad_file_of_a_folder_is_named_and_nothing_else_is_shown(tmp_path: Path, capfd) -> None:
    pytest.importorskip("datasets")
    write(tmp_path, "a.jsonl", {"instruction": "a"})
    (tmp_path / "b.jsonl").write_text('{"instruction": 3, "inp\n[[', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_instructions(str(tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: the data set cannot be loaded: ")
    assert str(tmp_path / "b.jsonl") in message
    assert "mend or take out the file at fault" in message
    assert "network" not in message
    assert capfd.readouterr() == ("", "")


def test_what_data_sets_warn_of_is_shown(tmp_path: Path, monkeypatch) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list([{"instruction": "a"}]).save_to_disk(str(tmp_path / "one"))
    load, shown = datasets.load_from_disk, io.StringIO()
    handlers = [logging.StreamHandler(shown)]
    monkeypatch.setattr(logging.getLogger("datasets"), "handlers", handlers)

    def warn(path: str) -> object:
        logging.getLogger("datasets.load").warning("an earlier download is used")
        return load(path)

    monkeypatch.setattr(datasets, "load_from_disk", warn)
    assert texts(read_instructions(str(tmp_path / "one"))) == ["a"]
    assert shown.getvalue() == "an earlier download is used\n"
    (tmp_path / "one" / "state.json").write_text("{")
    with pytest.raises(ConfigError) as caught:
        read_instructions(str(tmp_path / "one"))
    assert "an earlier download" not in str(caught.value)


def test_hub_name_without_network_says_what_to_do() -> None:
    pytest.importorskip("datasets")
    with pytest.raises(ConfigError, match=r"hub:nobody/nothing-here: .*works offline"):
        read_instructions("hub:nobody/nothing-here")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere.jsonl", "no file 'nowhere.jsonl'"),
        ("a.xlsx", "unknown kind"),
        ("", "unknown kind"),
    ],
)
def test_bad_paths(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_instructions(path)


def test_from_settings() -> None:
    chosen = InstructionSettings(source="builtin:skills", limit=30)
    read = instructions_from(chosen, seed=1)
    assert len(read.instructions) == 30
    assert read == instructions_from(chosen, seed=1)
    assert read != instructions_from(chosen, seed=2)
    assert len(read_instructions("builtin:skills").instructions) == 1000
    with pytest.raises(ConfigError, match=r"instructions.source is not set"):
        instructions_from(InstructionSettings())


# Demonstrations.


def test_demonstrations(tmp_path: Path) -> None:
    good = {"instruction": "Add.", "input": "1 2", "response": " 3 ", "domain": "sums"}
    path = write(tmp_path, "a.jsonl", good)
    prompt = "Add.\n\n1 2"
    assert read_demonstrations(path) == (
        Demonstration(content_id(prompt, "3"), prompt, "3", "sums"),
    )
    path = write(tmp_path, "b.jsonl", good, {**good, "response": ""}, "{", {"response": "x"})
    with pytest.raises(ConfigError) as caught:
        read_demonstrations(path)
    assert [fault.split(".jsonl:")[1][:20] for fault in caught.value.faults] == [
        "2: empty response",
        "3: not valid JSON (E",
        "4: field 'instructio",
    ]
    with pytest.raises(ConfigError, match=r"no row has the column 'domain'; [^;]*$"):
        read_demonstrations(write(tmp_path, "c.jsonl", {"instruction": "a", "response": "b"}))


# Splitting and sampling.


def some(count: int) -> list[Instruction]:
    return [Instruction(f"i{n}", f"text {n}", f"d{n % 3}") for n in range(count)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 3))
def test_fresh_samples_use_everything_before_repeating(size: int, count: int, seed: int) -> None:
    rows = some(size)
    drawn: list[str] = []
    for iteration in range(5):
        sample = fresh_sample(rows, count, seed=seed, iteration=iteration)
        assert len(sample) == count
        if count <= size:
            assert len(set(sample)) == count
        drawn += [row.id for row in sample]
    for start in range(0, len(drawn) - size + 1, size):
        assert len(set(drawn[start : start + size])) == size


def test_fresh_sample_is_fresh_and_repeatable() -> None:
    rows = some(1000)
    first, second = (fresh_sample(rows, 100, seed=0, iteration=n) for n in (1, 2))
    assert not set(first) & set(second)
    assert fresh_sample(rows, 100, seed=0, iteration=2) == second
    assert fresh_sample(rows, 100, seed=1, iteration=2) != second
    assert [rows.index(row) for row in first] != sorted(rows.index(row) for row in first)
    with pytest.raises(ConfigError, match="no instructions"):
        fresh_sample([], 1, seed=0, iteration=0)


# Conversations.


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


TALK = [user(" Name a prime. "), assistant("Two."), user("And the next?"), assistant("Three.")]
SHARED = [
    {"from": "human", "value": "Name a prime."},
    {"from": "gpt", "value": "Two."},
    {"from": "human", "value": "And the next?"},
]
LATER = (Message("assistant", "Two."), Message("user", "And the next?"))


def test_conversations_in_both_spellings_and_texts_beside_them(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.jsonl",
        {"messages": TALK, "domain": "sums"},
        {"messages": "Say hi."},
        {"messages": [{"role": "system", "content": "  "}, user("Say bye."), assistant("")]},
        {"messages": SHARED[:1]},
    )  # fmt: skip
    first, second, third, fourth = read_instructions(path, column="messages").instructions
    identity = content_id("Name a prime.", LATER)
    assert first == Instruction(identity, "Name a prime.", "sums", later=LATER)
    assert first.user_turns == ("Name a prime.", "And the next?")
    assert second == Instruction(content_id("Say hi."), "Say hi.")
    assert (third.text, third.later) == ("Say bye.", ())
    assert fourth.id == content_id("Name a prime."), "one turn has the id of the same text"
    read = read_instructions(
        write(tmp_path, "b.jsonl", {"conversations": SHARED}), column="conversations"
    )
    assert read.instructions[0].id == first.id


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([{"role": "system", "content": "Be brief."}, user("Hi.")], "turn 1 is a system prompt;"),
        ([assistant("Hi."), user("Hello.")], "turn 1 is of the assistant, where the user's is due"),
        ([user("a"), user("b")], "turn 2 is of the user, where the assistant's is due"),
        ([user("a"), assistant("b"), assistant("c")], "turn 3 is of the assistant"),
        ([user("a"), assistant(" "), user("c")], "turn 2 is empty"),
        ([user("a"), assistant("b"), user("")], "turn 3 is empty"),
        ([user("a"), {"role": "tool", "content": "x"}], "turn 2 has the role 'tool'"),
        ([user("a"), {"role": "assistant", "content": [{"text": "x"}]}], "turn 2: its content is"),
        ([{"text": "a"}], "turn 1 has 'text'; a turn has 'role' and 'content'"),
        (["a"], "turn 1 is not an object"),
        ([], "has no turns"),
        ([{"role": "system", "content": ""}], "has no turns"),
        ({"role": "user", "content": "a"}, "is an object, not a list of turns"),
    ],
)
def test_bad_conversations_name_the_turn(tmp_path: Path, turns: Any, reason: str) -> None:
    path = write(tmp_path, "a.jsonl", {"messages": [user("fine")]}, {"messages": turns})
    with pytest.raises(ConfigError, match=rf"a\.jsonl:2: messages: {reason}"):
        read_instructions(path, column="messages")
    read = read_instructions(path, column="messages", bad_rows="skip")
    assert texts(read) == ["fine"]
    assert len(read.skipped) == 1


def test_conversations_are_repeated_when_all_turns_are(tmp_path: Path) -> None:
    other = [*TALK[:2], user("And the one after?")]
    path = write(
        tmp_path, "a.jsonl", {"messages": TALK}, {"messages": other}, {"messages": SHARED}
    )  # fmt: skip
    read = read_instructions(path, column="messages")
    assert len(read.instructions) == 2
    assert read.duplicates == ((3, 1),)
    kept = read_instructions(path, column="messages", duplicates="keep")
    assert len({row.id for row in kept.instructions}) == 3


def test_a_conversation_has_no_input_and_its_broken_characters_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", {"messages": TALK, "input": "1, 2"})
    with pytest.raises(ConfigError, match="has an input beside the turns of messages"):
        read_instructions(path, column="messages")
    path = write(tmp_path, "b.jsonl", {"messages": [user("a"), assistant("b\ud83d"), user("c")]})
    read = read_instructions(path, column="messages")
    assert read.instructions[0].later[0].content == "b�"
    assert read.cleaned == (1,)


def test_conversations_from_parquet_and_data_sets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"messages": TALK}, {"messages": [user("Say hi.")]}])
    rows.to_parquet(str(tmp_path / "a.parquet"))
    rows.save_to_disk(str(tmp_path / "saved"))
    for source in ("a.parquet", "saved"):
        first, second = read_instructions(str(tmp_path / source), column="messages").instructions
        assert (first.text, first.later) == ("Name a prime.", LATER)
        assert (second.text, second.later) == ("Say hi.", ())


def test_a_record_of_lists_is_a_conversation_too(tmp_path: Path) -> None:
    columns = {"from": ["human", "gpt", "human"], "value": ["Name a prime.", "Two.", "And?"]}
    path = write(tmp_path, "a.jsonl", {"conversations": columns})
    (read,) = read_instructions(path, column="conversations").instructions
    assert read.user_turns == ("Name a prime.", "And?")


def test_the_missing_column_hint_names_the_conversations(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", {"conversations": SHARED})
    with pytest.raises(ConfigError, match="did you mean 'conversations'"):
        read_instructions(path)


@given(
    st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=9),
    st.booleans(),
)
def test_turns_are_kept_in_order_up_to_the_last_of_the_user(parts: list[str], share: bool) -> None:
    keys = ("from", "value") if share else ("role", "content")
    names = ("human", "gpt") if share else ("user", "assistant")
    turns = [dict(zip(keys, (names[at % 2], text), strict=True)) for at, text in enumerate(parts)]
    read = read_turns(turns)
    assert read[-1].role == "user"
    assert len(read) == len(parts) - (len(parts) % 2 == 0)
    assert [turn.content for turn in read] == [text.strip() for text in parts[: len(read)]]
