"""Instructions that a program can check: each check both ways, rows."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import ConfigError
from phalanx.rows import Row, Table, read_rows
from phalanx.tasks import TaskItem, score
from phalanx.tasks.ifeval_checks import RULES, count_sentences, is_english
from tests.tasks.reading_rows import read_items

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
def test_no_response_breaks_a_check(text):
    for name, args, _, _ in CASES:
        assert isinstance(RULES[name].check(text, args), bool)


@pytest.mark.parametrize(
    "unit", ["[", "*", "<<", "\n", "-", "a.", '"', " ", "P.", "Section 1", "`"]
)
def test_long_responses_take_little_time(unit):
    began = time.process_time()
    for name, args, _, _ in CASES:
        RULES[name].check(unit * (50_000 // len(unit)), args)
    assert time.process_time() - began < 5


def row(**changes) -> dict:
    base = {
        "key": 7, "prompt": "Write without commas, and end so.",
        "instruction_id_list": ["punctuation:no_comma", "startend:end_checker"],
        "kwargs": [{"num_words": None}, {"end_phrase": "so"}],
    }  # fmt: skip
    return base | changes


def read(*rows: dict) -> list[TaskItem]:
    table = Table("own", tuple(Row(line, fields) for line, fields in enumerate(rows, 1)))
    return read_items(table, "ifeval", "t")


def test_score_of_a_row():
    (item,) = read(row())
    assert (item.id, item.match) == ("7", "ifeval")
    assert score("and so", item).correct
    assert score("a, b so", item).reason == "punctuation:no_comma"
    assert score("a b", item).reason == "startend:end_checker"
    assert not score("a b **so**", item).correct, "strictly: stars are not taken away"


def test_the_other_format():
    fields = row()
    meta = {key: fields.pop(key) for key in ("instruction_id_list", "kwargs")}
    del fields["key"]
    (item,) = read({**fields, "id": "7", "choices": None, "meta": meta})
    assert [item] == read(row())


def test_all_bad_rows_are_listed_and_unknown_instructions_named():
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
    ]  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        read(*(fields | {"key": key} for key, (fields, _) in enumerate(bad)))
    assert len(caught.value.faults) == len(bad)
    for line, ((_, said), fault) in enumerate(zip(bad, caught.value.faults, strict=True), 1):
        assert fault.startswith(f"own:{line}: ")
        assert said in fault


def test_every_instruction_of_the_data_folder_can_be_checked(data_dir):
    path = data_dir / "ifeval.jsonl"
    if not path.exists():
        pytest.skip("the data folder is not here")
    items = read_items(read_rows(str(path)), "ifeval", "t")
    assert len(items) == 200
    assert all(score("A text.", item).readable for item in items)
