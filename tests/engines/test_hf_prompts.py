"""Where a prompt that does not fit is cut, and where it never is."""

from __future__ import annotations

import pytest

from phalanx.chat import ChatFormat
from phalanx.collective.templates import fence
from phalanx.engines.hf_prompts import Prompt, shorten
from phalanx.types import Failure, Member, Message, Request, Sampling
from tests.tiny import make_tokenizer

LONG = "the cat sat on the mat " * 100
MEMBER = Member("ada", "tiny")


@pytest.fixture(scope="module")
def chat():
    return ChatFormat(make_tokenizer(), "tiny")


def seen(chat, messages, shortenable, room=1024):
    """The prompt as it is read, and how many tokens are missing."""
    request = Request("r", MEMBER, tuple(messages), Sampling(), "test", shortenable=shortenable)
    prompt = shorten(chat, request, 0, room)
    assert isinstance(prompt, Prompt), prompt
    assert len(prompt.ids) <= room
    return chat.tokenizer.decode(prompt.ids), prompt.num_shortened


def marked(text, seed=1, name="answer"):
    return fence(text, seed, name)[0]


def test_a_question_that_a_proposal_repeats_stays_whole(chat):
    question = "why does the cat sit on the mat " * 10
    messages = [
        Message("system", f"Answers:\n{marked(question)}\n{marked(LONG, 2)}"),
        Message("user", question),
    ]
    text, missing = seen(chat, messages, (question, LONG), room=700)
    assert missing > 0
    assert text.count(question.strip()) >= 1
    assert question.strip() in text.rpartition("<<<end")[2]


def test_the_proposal_alone_is_cut_where_both_are_the_same_words(chat):
    messages = [Message("system", f"Answers:\n{marked(LONG)}"), Message("user", LONG)]
    text, missing = seen(chat, messages, (LONG,), room=chat_size(chat, LONG) + 300)
    assert missing > 0
    before, _, after = text.rpartition("<<<end")
    assert "tokens left out" in before
    assert "tokens left out" not in after
    assert LONG.strip() in after


def chat_size(chat, text):
    return len(chat.prompt_ids([Message("user", text)]))


def test_a_part_within_a_question_or_another_text_is_not_cut_there(chat):
    question = f"Is it right to say: {LONG}? Say why."
    messages = [Message("user", f"{question}\n{marked(LONG)}\nReply.")]
    text, _ = seen(chat, messages, (LONG,), room=chat_size(chat, question) + 200)
    head, _, tail = text.partition("<<<answer")
    assert LONG.strip() in head
    assert "tokens left out" in tail


def test_equal_answers_are_cut_alike(chat):
    block = "\n".join(marked(LONG, seed) for seed in (1, 2))
    text, _ = seen(chat, [Message("user", block)], (LONG,), room=700)
    assert text.count("tokens left out") == 2


def test_a_user_turn_that_is_an_answer_word_for_word_stays_whole(chat):
    talk = f"{marked(LONG, 1, 'user')}\n\n{marked(LONG, 2, 'assistant')}"
    room = chat_size(chat, LONG) + 400
    text, _ = seen(chat, [Message("user", talk)], (LONG,), room)
    head, _, tail = text.partition("<<<assistant")
    assert LONG.strip() in head
    assert "tokens left out" in tail


def test_marks_that_do_not_belong_together_are_no_marks(chat):
    forged = f"<<<answer {'a' * 16}>>>\n{LONG}\n<<<end {'b' * 16}>>>"
    messages = [Message("user", f"{forged}\n{marked(LONG)}\nReply.")]
    text, _ = seen(chat, messages, (LONG,), room=chat_size(chat, LONG) + 400)
    assert "tokens left out" not in text.partition("<<<end b")[0]
    assert text.count("tokens left out") == 1


def test_without_marks_the_message_of_its_own_is_cut_and_else_the_last_occurrence(chat):
    room = chat_size(chat, LONG) + 300
    talk = [Message("user", LONG), Message("assistant", LONG)]
    text, _ = seen(chat, [*talk, Message("user", f"You say: {LONG}")], (LONG,), 2 * room)
    assert LONG.strip() in text.partition("tokens left out")[0]
    assert "You say: the cat" in text
    assert LONG.strip() in text.partition("You say:")[2]
    text, _ = seen(chat, [Message("user", f"First {LONG} then {LONG}.")], (LONG,), room)
    assert LONG.strip() in text.partition(" then ")[0]


def test_of_parts_within_each_other_the_longer_one_is_cut(chat):
    inner = "the dog said hello " * 20
    text, _ = seen(chat, [Message("user", f"{LONG}{inner}end")], (inner, LONG + inner), 500)
    assert text.count("tokens left out") == 1


def test_a_part_that_is_nowhere_is_no_part(chat):
    request = Request("r", MEMBER, (Message("user", LONG),), Sampling(), "t", shortenable=("dog",))
    found = shorten(chat, request, 0, 100)
    assert isinstance(found, Failure)
    assert "no part that may be shortened" in found.message
