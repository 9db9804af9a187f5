"""What a question asks for at its end: the answer in a form that can be read back."""

from __future__ import annotations

from phalanx.tasks.fields import Choices


def for_number(question: str) -> str:
    return (
        f"{question}\n\nWork it out step by step. End with the final number alone in \\boxed{{}}, "
        "without a unit."
    )


def for_expression(question: str) -> str:
    return f"{question}\n\nWork it out step by step. End with the final answer in \\boxed{{}}."


def for_letter(question: str, choices: Choices) -> str:
    listed = "\n".join(f"({label}) {text}" for label, text in choices)
    letters = any_of([label for label, _ in choices])
    return (
        f"{question}\n\n{listed}\n\nExactly one option is right. You may think first. End with a "
        f'line that says "Answer:" and the letter of that option: {letters}.'
    )


def for_label(question: str, labels: list[str]) -> str:
    return (
        f'{question}\n\nYou may think first. End with a line that says "Answer:" and one word: '
        f"{any_of(labels)}."
    )


def any_of(words: list[str]) -> str:
    """ "A, B or C"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
