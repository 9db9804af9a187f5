"""The checks of IFEval (Zhou et al. 2023, arXiv 2311.07911): one function an instruction.

Written from the published rules, with no packages and no data. Where the published program uses a
tokeniser or a language guesser, a fixed rule stands here, so that single verdicts can differ:

- sentences (``number_sentences``; there Punkt): a full stop, question or exclamation mark, with
  the quotes and brackets after it, ends one before white space, unless it follows an abbreviation
  or a single capital letter or a lower-case word comes next; so does an empty line;
- words in capitals (``capital_word_frequency``; there a Treebank tokeniser): what stands between
  white space, commas and dashes, without marks around it; "DON'T" is one word;
- English (``english_capital``, ``english_lowercase``; there a guesser): nine letters in ten are
  plain Latin ones, and no other language's common words are more frequent than English ones.

Keywords are looked for as they are written, not as regular expressions, and ``letter_frequency``
counts any sign, where the published program draws a letter at random in the place of other signs.
Every check takes time linear in the response. ``language:response_language`` is not here: it needs
a guesser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Check = Callable[[str, Mapping[str, Any]], bool]
LESS, AT_LEAST = "less than", "at least"


class Rule(NamedTuple):
    """A check and the arguments that it needs, by name, with their types."""

    check: Check
    needs: dict[str, type]


def _compared(count: int, relation: str, wanted: int) -> bool:
    return count < wanted if relation == LESS else count >= wanted


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def existence(text: str, args: Mapping[str, Any]) -> bool:
    folded = text.lower()
    return all(word.strip().lower() in folded for word in args["keywords"])


def frequency(text: str, args: Mapping[str, Any]) -> bool:
    count = text.lower().count(args["keyword"].strip().lower())
    return _compared(count, args["relation"], args["frequency"])


def forbidden_words(text: str, args: Mapping[str, Any]) -> bool:
    return not any(
        re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE)
        for word in args["forbidden_words"]
    )


def letter_frequency(text: str, args: Mapping[str, Any]) -> bool:
    count = text.lower().count(args["letter"].lower())
    return _compared(count, args["let_relation"], args["let_frequency"])


_SHORT = (
    "mr mrs ms dr prof st jr sr vs etc e.g i.e cf no fig vol al inc ltd co corp dept est approx "
    "gen col sgt capt rev hon jan feb mar apr jun jul aug sep sept oct nov dec a.m p.m"
)
_ABBREVIATIONS = frozenset(_SHORT.split())
_END = re.compile(r"[.!?]+[\"'”’)\]*_]*(?=\s|$)")


def count_sentences(text: str) -> int:
    """How many sentences, by the rule at the top of this file.

    >>> count_sentences("Dr. Lee paid 3.50 dollars. Why? Nobody knows")
    3
    """
    return sum(_sentences_in(part) for part in re.split(r"\n[ \t]*\n", text))


def _sentences_in(paragraph: str) -> int:
    """Every end that counts closes what has words since the last one; the rest is one more."""
    count = start = 0
    for match in _END.finditer(paragraph):
        if not re.search(r"\w", paragraph[start : match.end()]):
            continue
        if match[0][0] == "." and not _ends(paragraph, match):
            continue
        count += 1
        start = match.end()
    return count + bool(re.search(r"\w", paragraph[start:]))


def _ends(paragraph: str, match: re.Match[str]) -> bool:
    before = paragraph[max(0, match.start() - 40) : match.start()].split()
    last = before[-1].lstrip("(\"'“‘[") if before else ""
    if last.lower() in _ABBREVIATIONS or (len(last) == 1 and last.isalpha() and last != "I"):
        return False
    following = paragraph[match.end() : match.end() + 40].lstrip()
    return not following[:1].islower()


def number_sentences(text: str, args: Mapping[str, Any]) -> bool:
    return _compared(count_sentences(text), args["relation"], args["num_sentences"])


def number_words(text: str, args: Mapping[str, Any]) -> bool:
    return _compared(len(_words(text)), args["relation"], args["num_words"])


def number_paragraphs(text: str, args: Mapping[str, Any]) -> bool:
    """Paragraphs parted by ``***``; an empty one counts for nothing at the ends, fails inside."""
    parts = [part.strip() for part in text.split("***")]
    if any(not part for part in parts[1:-1]):
        return False
    return sum(bool(part) for part in parts) == args["num_paragraphs"]


def nth_paragraph_first_word(text: str, args: Mapping[str, Any]) -> bool:
    """Paragraphs parted by two line ends; the number counts those that hold something."""
    parts = text.split("\n\n")
    number = sum(bool(part.strip()) for part in parts)
    if not 1 <= args["nth_paragraph"] <= number or number != args["num_paragraphs"]:
        return False
    words = parts[args["nth_paragraph"] - 1].split()
    if not words:
        return False
    first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0]
    return first.lower() == args["first_word"].lower()


def number_placeholders(text: str, args: Mapping[str, Any]) -> bool:
    count = 0
    for line in text.split("\n"):
        place = line.find("[")
        while place >= 0 and (end := line.find("]", place)) >= 0:
            count += 1
            place = line.find("[", end)
    return count >= args["num_placeholders"]


def postscript(text: str, args: Mapping[str, Any]) -> bool:
    """The marker anywhere, without case; spaces may stand in ``P. S.`` and ``P. P. S``."""
    marker = args["postscript_marker"].strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker)
    return re.search(pattern or re.escape(marker.lower()), text.lower()) is not None


def number_bullet_lists(text: str, args: Mapping[str, Any]) -> bool:
    """Lines that begin with ``-``, or with ``*`` and no second one: exactly so many."""
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(
        line.startswith("-") or (line.startswith("*") and not line.startswith("**"))
        for line in lines
    )
    return count == args["num_bullets"]


_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def constrained_response(text: str, args: Mapping[str, Any]) -> bool:
    return any(option in text for option in _OPTIONS)


def number_highlighted_sections(text: str, args: Mapping[str, Any]) -> bool:
    """Between stars, ``*so*`` or ``**so**``, on one line, not empty."""
    single = [part for part in re.findall(r"\*([^\n*]*)\*", text) if part.strip()]
    double = [part for part in re.findall(r"\*\*([^\n*]*)\*\*", text) if part.strip()]
    return len(single) + len(double) >= args["num_highlights"]


def multiple_sections(text: str, args: Mapping[str, Any]) -> bool:
    marks = re.findall(rf"{re.escape(args['section_spliter'].strip())}\s?\d+", text)
    return len(marks) >= args["num_sections"]


def json_format(text: str, args: Mapping[str, Any]) -> bool:
    """All of the response is JSON, in a fence or not."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = re.sub(r"^```(?:json)?", "", bare, flags=re.IGNORECASE).removesuffix("```")
    try:
        json.loads(bare.strip())
    except (ValueError, RecursionError):
        return False
    return True


def title(text: str, args: Mapping[str, Any]) -> bool:
    for line in text.split("\n"):
        begin, end = line.find("<<"), line.rfind(">>")
        if 0 <= begin < end and line[begin:end].strip("<> \t\r"):
            return True
    return False


def two_responses(text: str, args: Mapping[str, Any]) -> bool:
    parts = [part.strip() for part in text.split("******")]
    if any(not part for part in parts[1:-1]):
        return False
    full = [part for part in parts if part]
    return len(full) == 2 and full[0] != full[1]


def repeat_prompt(text: str, args: Mapping[str, Any]) -> bool:
    return text.strip().lower().startswith(args["prompt_to_repeat"].strip().lower())


def end_checker(text: str, args: Mapping[str, Any]) -> bool:
    return text.strip().strip('"').lower().endswith(args["end_phrase"].strip().lower())


def quotation(text: str, args: Mapping[str, Any]) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def no_comma(text: str, args: Mapping[str, Any]) -> bool:
    return "," not in text


def capital_word_frequency(text: str, args: Mapping[str, Any]) -> bool:
    pieces = re.split(r"\s|,|--|[–—…]", text)
    count = sum(piece.strip("\"'“”‘’()[]{}<>*_`.;:!?#").isupper() for piece in pieces)
    return _compared(count, args["capital_relation"], args["capital_frequency"])


_COMMON = {
    "English": "the a of and to in is that it for was on are with as his they be at this have "
    "from or by not but what all were when we there can an your which their if do you i my",
    "French": "le la les de des du et est une un que qui dans pour pas sur au avec il elle nous "
    "vous je ce se plus",
    "German": "der die das und ist nicht ein eine zu den von mit dem sich des auf für im auch ich "
    "es sie wir",
    "Spanish": "el la los las de que en un una es por con para se del no lo al como su más",
    "Italian": "il la di che è un una per non in con del della le si i sono da",
    "Portuguese": "os as de que do da em um uma para com não se por mais no na",
    "Dutch": "de het een en van is dat niet op te in met zijn voor die er aan ik",
}
_SETS = {language: frozenset(words.split()) for language, words in _COMMON.items()}


def is_english(text: str) -> bool:
    """By the rule at the top of this file; a text without letters passes, as published."""
    letters = [sign for sign in text if sign.isalpha()]
    if not letters:
        return True
    if sum(sign.isascii() for sign in letters) < 0.9 * len(letters):
        return False
    words = _words(text.lower())
    shares = {language: sum(word in common for word in words) for language, common in _SETS.items()}
    return shares["English"] >= max(shares.values())


def english_capital(text: str, args: Mapping[str, Any]) -> bool:
    return text.isupper() and is_english(text)


def english_lowercase(text: str, args: Mapping[str, Any]) -> bool:
    return text.islower() and is_english(text)


RULES: dict[str, Rule] = {
    "keywords:existence": Rule(existence, {"keywords": list}),
    "keywords:frequency": Rule(frequency, {"keyword": str, "frequency": int, "relation": str}),
    "keywords:forbidden_words": Rule(forbidden_words, {"forbidden_words": list}),
    "keywords:letter_frequency": Rule(
        letter_frequency, {"letter": str, "let_frequency": int, "let_relation": str}
    ),
    "length_constraints:number_sentences": Rule(
        number_sentences, {"num_sentences": int, "relation": str}
    ),
    "length_constraints:number_words": Rule(number_words, {"num_words": int, "relation": str}),
    "length_constraints:number_paragraphs": Rule(number_paragraphs, {"num_paragraphs": int}),
    "length_constraints:nth_paragraph_first_word": Rule(
        nth_paragraph_first_word, {"nth_paragraph": int, "num_paragraphs": int, "first_word": str}
    ),
    "detectable_content:number_placeholders": Rule(number_placeholders, {"num_placeholders": int}),
    "detectable_content:postscript": Rule(postscript, {"postscript_marker": str}),
    "detectable_format:number_bullet_lists": Rule(number_bullet_lists, {"num_bullets": int}),
    "detectable_format:constrained_response": Rule(constrained_response, {}),
    "detectable_format:number_highlighted_sections": Rule(
        number_highlighted_sections, {"num_highlights": int}
    ),
    "detectable_format:multiple_sections": Rule(
        multiple_sections, {"section_spliter": str, "num_sections": int}
    ),
    "detectable_format:json_format": Rule(json_format, {}),
    "detectable_format:title": Rule(title, {}),
    "combination:two_responses": Rule(two_responses, {}),
    "combination:repeat_prompt": Rule(repeat_prompt, {"prompt_to_repeat": str}),
    "startend:end_checker": Rule(end_checker, {"end_phrase": str}),
    "startend:quotation": Rule(quotation, {}),
    "change_case:english_capital": Rule(english_capital, {}),
    "change_case:english_lowercase": Rule(english_lowercase, {}),
    "change_case:capital_word_frequency": Rule(
        capital_word_frequency, {"capital_frequency": int, "capital_relation": str}
    ),
    "punctuation:no_comma": Rule(no_comma, {}),
}
