"""Instructions that a program can check: each check both ways, loose versions, rows."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import ConfigError
from phalanx.tasks import ifeval
from phalanx.tasks.ifeval import Followed, follow, score, shares
from phalanx.tasks.ifeval_checks import RULES, count_sentences, is_english

DATA = Path(
    os.environ.get("PHALANX_DATA", Path(__file__).resolve().parent.parent.parent / "shared/data")
)

# name, arguments, responses that keep it, responses that do not
CASES = [
    ("keywords:existence", {"keywords": ["rain", "C++"]}, ["Rain in c++"], ["rain in C"]),
    (
        "keywords:frequency",
        {"keyword": "tea", "frequency": 2, "relation": "at least"},
        ["Tea, tea", "steamy teas, tea"],
        ["tea", "te a te a"],
    ),
    (
        "keywords:frequency",
        {"keyword": "tea", "frequency": 2, "relation": "less than"},
        ["tea", "coffee"],
        ["tea tea"],
    ),
    ("keywords:forbidden_words", {"forbidden_words": ["key"]}, ["monkey"], ["a KEY.", "key"]),
    (
        "keywords:letter_frequency",
        {"letter": "O", "let_frequency": 2, "let_relation": "less than"},
        ["only"],
        ["Oslo"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["One. Two.", "Is it? Yes"],
        ["Dr. Lee came at 3.30 p.m. today."],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        ["two words"],
        ["it's two"],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb", "***\na\n***\nb\n***"],
        ["a\n\nb", "a\n***\n***\nb"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"nth_paragraph": 2, "num_paragraphs": 2, "first_word": "Moon"},
        ["Sun\n\n'moon' it is", "a\n\nMOON, and so on"],
        ["Moon\n\nSun", "a\n\nMoonlight", "a\n\nmoon\n\nb", "moon"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] and [b]", "[[a] [b]]"],
        ["[a]", "[a\nb] [c]"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye\nP.S. more", "p. s. more"],
        ["PS more"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        ["P. P. S more"],
        ["P.S. more"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n  - b", "- a\n* b\n**bold**"],
        ["* a", "* a\n* b\n* c"],
    ),
    ("detectable_format:constrained_response", {}, ["So: My answer is no."], ["no", "My answer"]),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and **b**"],
        ["*a*", "* *  ** **", "*a\nb* c"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1\na", "section 1 section 2"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": 1}', '```json\n["a"]\n```', "```\n1\n```"],
        ["a: 1", 'Here: {"a": 1}', "```json\n{\n```", "[" * 100_000],
    ),
    ("detectable_format:title", {}, ["<<A poem>>\nIt is"], ["<<>>", "<< >>", "<<a\nb>>", "a>> <<"]),
    ("combination:two_responses", {}, ["a\n******\nb"], ["a", "a******a", "a******b******c"]),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say why. "},
        [" say WHY. Because"],
        ["Because. Say why."],
    ),
    ("startend:end_checker", {"end_phrase": "The end."}, ['So "the END."', "the end.\n"], ["end."]),
    ("startend:quotation", {}, [' "so" '], ['"so', '"', "'so'"]),
    ("change_case:english_capital", {}, ["THE CAT IS HERE"], ["The cat", "LE CHAT EST DANS LA"]),
    (
        "change_case:english_lowercase",
        {},
        ["the cat, at 3", "a b"],
        ["The cat", "кот сидит дома", "der hund ist nicht da"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["I saw NASA.", '"STOP," "GO"'],
        ["Nasa AND us"],
    ),
    ("punctuation:no_comma", {}, ["a; b"], ["a, b"]),
]


@pytest.mark.parametrize(("name", "args", "kept", "broken"), CASES)
def test_each_check(name, args, kept, broken):
    for text in kept:
        assert RULES[name].check(text, args), text
    for text in broken:
        assert not RULES[name].check(text, args), text


def test_every_rule_has_a_case():
    assert {case[0] for case in CASES} == set(RULES)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("No end", 1),
        ("One. Two! Three?", 3),
        ("Wait... what?", 1),
        ('He said "go." She went.', 2),
        ("J. K. Rowling wrote it. Mr. Lee read it, e.g. aloud.", 2),
        ("It is I. Come in.", 2),
        ("A heading\n\nA text.\n\n...", 2),
        ("See www.example.org for 2.5 more.", 1),
    ],
)
def test_sentences(text, count):
    assert count_sentences(text) == count


def test_english_by_its_rule():
    assert is_english("42 :-)")
    assert is_english("COFFEE NAPS WORK")
    assert not is_english("LE CHIEN EST DANS LA MAISON ET LE CHAT AUSSI")
    assert not is_english("これは英語ではありません")


@given(st.text(max_size=300))
def test_no_response_breaks_a_check_and_loose_allows_what_strict_does(text):
    found = follow(text, [(case[0], case[1]) for case in CASES])
    for strict, loose in zip(found.strict, found.loose, strict=True):
        assert loose or not strict


@pytest.mark.parametrize(
    "unit", ["[", "*", "<<", "\n", "-", "a.", '"', " ", "P.", "Section 1", "`"]
)
def test_long_responses_take_little_time(unit):
    began = time.process_time()
    follow(unit * (50_000 // len(unit)), [(case[0], case[1]) for case in CASES])
    assert time.process_time() - began < 5


def test_loose_versions():
    no_comma, end = ("punctuation:no_comma", {}), ("startend:end_checker", {"end_phrase": "end"})
    quote = ("startend:quotation", {})
    cases = [
        ("Sure, here:\nthe text", no_comma, True),  # without the first line
        ("the text\nBye, all", no_comma, True),  # without the last
        ("Sure, so:\nthe text\nBye, all", no_comma, True),  # without both
        ("the, text\nthe, text\nthe, text", no_comma, False),
        ("the **end**", end, True),  # without stars
        ('Sure:\n**"so"**', quote, True),  # both edits at once
        ("a, b", no_comma, False),  # nothing is left of one line: nothing is kept by it
    ]
    for text, instruction, loose in cases:
        found = follow(text, [instruction])
        assert (found.strict, found.loose) == ((False,), (loose,)), text


def test_an_empty_response_keeps_nothing():
    assert follow(" \n", [("punctuation:no_comma", {})]).loose == (False,)


def row(**changes) -> dict:
    base = {
        "key": 7, "prompt": "Write without commas, and end so.",
        "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"],
        "kwargs": [{"num_words": None}, {"end_phrase": "so"}],
    }  # fmt: skip
    return base | changes


def write(path: Path, *rows: dict) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return str(path)


def test_score_of_a_row(tmp_path):
    (item,) = ifeval.read(write(tmp_path / "a.jsonl", row()))
    assert item.id == "7"
    meta = dict(item.meta)
    assert score("and so", meta).correct
    assert score("a, b so", meta).reason == "punctuation:no_comma"
    assert score("a b", meta).reason == "startend:end_checker"
    assert not score("a b **so**", meta).correct
    assert score("a b **so**", meta, "loose").correct
    assert score("<think>well, well</think>and so", meta).correct
    empty = score("<think>so</think>", meta)
    assert (empty.correct, empty.readable, empty.reason) == (False, False, "empty")


def test_the_other_format(tmp_path):
    fields = row()
    meta = {key: fields.pop(key) for key in ("instruction_id_list", "kwargs")}
    del fields["key"]
    path = write(tmp_path / "b.jsonl", {**fields, "id": "dev-1", "choices": None, "meta": meta})
    (item,) = ifeval.read(path)
    assert [name for name, _ in item.instructions] == meta["instruction_id_list"]


def test_all_bad_rows_are_listed_and_unknown_instructions_named(tmp_path):
    bad = [
        (row(instruction_id_list=["language:response_language"], kwargs=[{"language": "de"}]),
         "'language:response_language' cannot be checked"),
        (row(kwargs=[{}]), "2 instructions but 1 kwargs"),
        (row(kwargs=[{}, {}]), "startend:end_checker needs end_phrase as str, got None"),
        (row(instruction_id_list=["length_constraints:number_words"],
             kwargs=[{"num_words": 3, "relation": "about"}]), "'less than' or 'at least'"),
        (row(instruction_id_list=["keywords:existence"], kwargs=[{"keywords": ["a", ""]}]),
         "list of texts"),
        (row(prompt=""), "prompt must be"),
        (row(key=None), "key (or id) is missing"),
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        ifeval.read(write(tmp_path / "bad.jsonl", *(fields for fields, _ in bad)))
    assert len(caught.value.faults) == len(bad)
    for line, ((_, said), fault) in enumerate(zip(bad, caught.value.faults, strict=True), 1):
        assert fault.startswith(f"line {line}: ")
        assert said in fault


def test_the_four_numbers():
    first = Followed(("a", "b"), (True, False), (True, True))
    second = Followed(("c",), (True,), (True,))
    assert shares([first, second]) == {
        "prompt_strict": 0.5,
        "instruction_strict": pytest.approx(2 / 3),
        "prompt_loose": 1.0,
        "instruction_loose": 1.0,
    }
    with pytest.raises(ValueError, match="at least one"):
        shares([])


def test_every_instruction_of_the_data_folder_can_be_checked():
    path = DATA / "ifeval.jsonl"
    if not path.exists():
        pytest.skip("the data folder is not here")
    items = ifeval.read(str(path))
    assert len(items) == 200
    for item in items:
        assert len(follow("A text.", item.instructions).strict) == len(item.instructions)
