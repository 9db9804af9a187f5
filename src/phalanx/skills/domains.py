"""What each embedded skill asks: questions with a right answer, and several ways to ask them.

A question's ``key`` is the fact or item behind it. Keys, not texts, are dealt to training,
alignment and evaluation, so an evaluation item asks something that was never demonstrated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phalanx.skills import lexicon


@dataclass(frozen=True, slots=True)
class Question:
    """``texts`` are the ways of asking; every one has the same ``answer``.

    ``stratum`` groups keys that are dealt evenly between the parts (one answer class each).
    """

    key: str
    stratum: str
    texts: tuple[str, ...]
    answer: str


def _ask(templates: tuple[str, ...], **values: str) -> tuple[str, ...]:
    return tuple(template.format(**values) for template in templates)


ADDITION = (
    "What is {a} + {b}?",
    "Add {a} and {b}.",
    "Compute {a} plus {b}.",
    "Work out the sum of {a} and {b}.",
    "{a} + {b} = ?",
    "How much is {a} plus {b}?",
)


def addition() -> list[Question]:
    """Two-digit sums. The key is the unordered pair: 34 + 58 and 58 + 34 are one fact."""
    return [
        Question(f"{min(a, b)}+{max(a, b)}", "", _ask(ADDITION, a=str(a), b=str(b)), str(a + b))
        for a in range(10, 100)
        for b in range(10, 100)
    ]


UPPER = (
    "Write the word {word} in capital letters.",
    "Put {word} in upper case.",
    "Change {word} to all capitals.",
)
FIRST = (
    "What is the first letter of {word}?",
    "Give the first letter of the word {word}.",
    "Which letter does {word} start with?",
)
LAST = (
    "What is the last letter of {word}?",
    "Give the last letter of the word {word}.",
    "Which letter does {word} end with?",
)


def words() -> list[Question]:
    """Upper case, first letter, last letter of a word."""
    questions = []
    for word in lexicon.WORDS:
        questions.append(Question(word, "", _ask(UPPER, word=word), word.upper()))
        questions.append(Question(word, "", _ask(FIRST, word=word), word[0]))
        questions.append(Question(word, "", _ask(LAST, word=word), word[-1]))
    return questions


SENTIMENT = (
    'Is this review positive or negative? "{review}"',
    'Review: "{review}" Positive or negative?',
    'Judge the mood of this review, positive or negative: "{review}"',
    'Someone wrote: "{review}" Was the review positive or negative?',
)


def sentiment() -> list[Question]:
    """One-sentence reviews. The key is the opinion: evaluation opinions are never demonstrated."""
    return [
        Question(opinion, label, _ask(SENTIMENT, review=f"The {subject} {opinion}."), label)
        for label, opinions in (("positive", lexicon.PRAISE), ("negative", lexicon.BLAME))
        for opinion in opinions
        for subject in lexicon.SUBJECTS
    ]


KINDS = (
    "What is this: {thing}? Choose from animal, food, tool, vehicle, instrument, clothing.",
    "Sort the word {thing} into one group: clothing, vehicle, food, instrument, tool, animal.",
    "Which group fits {thing} best: tool, animal, clothing, food, instrument or vehicle?",
    "Is this an animal, a food, a tool, a vehicle, an instrument or clothing: {thing}?",
)


def kinds() -> list[Question]:
    """Which of six groups a thing belongs to."""
    return [
        Question(thing, kind, _ask(KINDS, thing=thing), kind)
        for kind, things in lexicon.KINDS.items()
        for thing in things
    ]


BUILDERS: dict[str, Callable[[], list[Question]]] = {
    "addition": addition,
    "words": words,
    "sentiment": sentiment,
    "kinds": kinds,
}
