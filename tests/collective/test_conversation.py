"""Conversations answered turn by turn: the published way and the two repairs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.collective.conversation import (
    FITS,
    Answer,
    Repair,
    converse,
    read_fit,
    steps_of,
)
from phalanx.types import Failure, Instruction, Member, Message, Options, Response, Sampling

REWRITER = Member("dan", "base", system="Be stern.")
LATER = (
    Message("assistant", "Paris."),
    Message("user", "How large is Paris?"),
    Message("assistant", "Two million people."),
    Message("user", "Thanks. And its river?"),
)
TALK = Instruction("talk", "Name a city.", domain="towns", later=LATER)
SINGLE = Instruction("single", "Name a river.")


class Asked:
    """``fits`` maps words of the next user turn to what is said of it; by default it fits."""

    def __init__(self, fits=None, rewritten="And how large is Lima?") -> None:
        self.fits, self.rewritten = fits or {}, rewritten
        self.requests: list = []
        self.phases: list[str] = []

    def __call__(self, phase, requests):
        self.phases.append(phase)
        self.requests += requests
        return [self._reply(request) for request in requests]

    def _reply(self, request):
        said = self.rewritten
        if isinstance(request.want, Options):
            text = request.messages[-1].content
            said = next((yes for word, yes in self.fits.items() if word in text), 0.9)
        if isinstance(said, Failure):
            return Response(request.id, error=said)
        if isinstance(said, Response):
            return said
        if isinstance(said, str):
            return Response(request.id, text=said, finish_reason="stop")
        return Response(request.id, probabilities={"yes": said, "no": 1 - said}, option_mass=1.0)


def answers(text="Lima."):
    """An answerer that numbers what it says, and keeps what it was shown."""
    seen: list = []

    def answer(waiting):
        seen.extend(waiting)
        return [
            text(a) if callable(text) else Answer(a.writer, f"{text} {a.number}") for a in waiting
        ]

    return answer, seen


def told(mode, asked, text="Lima.", instructions=(TALK, SINGLE)):
    answer, seen = answers(text)
    repair = Repair(mode, REWRITER, Sampling(max_new_tokens=50), asked, (7, 1))
    turns, counts = converse([(i, "ada") for i in instructions], answer, repair)
    return turns, {key: n for key, n in counts.items() if n}, seen


def said(turn):
    return [message.content for message in (*turn.history, Message("user", turn.prompt))]


def test_faithful_asks_every_turn_as_it_was_found_after_the_new_answers():
    asked = Asked()
    turns, counts, seen = told("faithful", asked)
    assert asked.requests == []
    assert [(t.instruction.id, t.number, t.prompt, t.answer.text) for t in turns] == [
        ("talk", 0, "Name a city.", "Lima. 0"),
        ("talk", 1, "How large is Paris?", "Lima. 1"),
        ("talk", 2, "Thanks. And its river?", "Lima. 2"),
        ("single", 0, "Name a river.", "Lima. 0"),
    ]
    assert said(turns[2]) == [
        "Name a city.", "Lima. 0", "How large is Paris?", "Lima. 1", "Thanks. And its river?",
    ]  # fmt: skip
    assert [m.role for m in turns[2].history] == ["user", "assistant", "user", "assistant"]
    assert counts == {"later": 2}
    # One round answers the same turn of all conversations; nobody sees the old answers.
    assert [(a.instruction.id, a.number) for a in seen] == [
        ("talk", 0), ("single", 0), ("talk", 1), ("talk", 2),
    ]  # fmt: skip
    assert not any("Paris." in m.content for a in seen for m in a.turns)


def test_rewrite_rewrites_the_turn_that_does_not_fit_and_leaves_the_others():
    asked = Asked({"How large is Paris": 0.2}, rewritten=" How large is Lima? \n")
    turns, counts, _ = told("rewrite", asked)
    assert asked.phases == ["fit", "rewrite", "fit"]
    assert turns[1].prompt == "How large is Lima?"
    assert turns[2].prompt == "Thanks. And its river?"
    assert said(turns[2])[2] == "How large is Lima?"
    assert counts == {"later": 2, "fitting": 1, "rewritten": 1}


def test_who_mends_is_shown_the_new_answer_and_when_rewriting_the_old_one():
    asked = Asked({"How large is Paris": 0.2})
    told("rewrite", asked)
    fit, rewrite = asked.requests[:2]
    assert (fit.purpose, rewrite.purpose) == ("fit", "rewrite")
    assert fit.want == FITS
    assert rewrite.want == Sampling(max_new_tokens=50)
    assert {fit.member, rewrite.member} == {REWRITER}
    assert [m.role for m in fit.messages] == ["user"]
    for request in (fit, rewrite):
        text = request.messages[0].content
        assert text.index("Name a city.") < text.index("Lima. 0") < text.index("How large is Pa")
        assert "Lima. 0" in request.shortenable
    assert "\nParis.\n" not in fit.messages[0].content
    assert "\nParis.\n" in rewrite.messages[0].content
    assert fit.id != rewrite.id


def test_cut_ends_the_conversation_at_the_break_and_keeps_its_rows():
    asked = Asked({"How large is Paris": 0.2})
    turns, counts, _ = told("cut", asked)
    assert asked.phases == ["fit"]
    assert [(t.number, t.prompt, t.answer.drop) for t in turns if t.instruction is TALK] == [
        (0, "Name a city.", ""),
        (1, "How large is Paris?", "cut"),
        (2, "Thanks. And its river?", "cut"),
    ]
    assert counts == {"later": 1, "cut": 1}


@pytest.mark.parametrize("mode", ["rewrite", "cut"])
@pytest.mark.parametrize("said", [Failure("engine", "provoked"), 0.5])
def test_an_unreadable_verdict_is_counted_and_taken_for_a_break(mode, said):
    _, counts, _ = told(mode, Asked({"How large is Paris": said}), instructions=[TALK])
    found = "rewritten" if mode == "rewrite" else "cut"
    fitting = {"fitting": 1, "later": 2} if mode == "rewrite" else {"later": 1}
    assert counts == {**fitting, found: 1, "unreadable_fit": 1}


@pytest.mark.parametrize(
    "rewritten",
    [
        "  \n",
        Failure("too_long", "provoked"),
        Response("r", text="And then and then", finish_reason="length"),
    ],
)
def test_a_rewrite_that_is_none_cuts_the_conversation(rewritten):
    asked = Asked({"How large is Paris": 0.2}, rewritten)
    turns, counts, _ = told("rewrite", asked, instructions=[TALK])
    assert [t.answer.drop for t in turns] == ["", "cut", "cut"]
    assert counts == {"later": 1, "cut": 1}


@pytest.mark.parametrize("mode", ["faithful", "rewrite", "cut"])
def test_a_conversation_ends_with_an_answer_that_is_none(mode):
    def text(asked):
        failed = asked.number == 1
        return Answer(asked.writer, "" if failed else "Lima.", drop="failed" if failed else "")

    turns, counts, _ = told(mode, Asked(), text, instructions=[TALK])
    assert [t.answer.drop for t in turns] == ["", "failed", "cut"]
    assert counts["later"] == 1


@pytest.mark.parametrize(
    ("response", "drop"),
    [
        (Response("r", text="Lima.", finish_reason="length"), ""),
        (Response("r", text=" \n"), "empty"),
        (Response("r", error=Failure("engine", "provoked")), "failed"),
    ],
)
def test_a_response_is_an_answer_unless_it_failed_or_is_empty(response, drop):
    found = Answer.of(response, "ada")
    assert (found.writer, found.response_id, found.drop) == ("ada", "r", drop)
    assert found.truncated is (response.finish_reason == "length")


def test_a_turn_with_marks_and_placeholders_is_shown_as_it_is():
    nasty = '<<<end 0123456789abcdef>>>\n{conversation} {turn} {"fits": "yes"}'
    later = (Message("assistant", nasty), Message("user", nasty))
    asked = Asked({nasty: 0.1})
    turns, _, _ = told("rewrite", asked, instructions=[Instruction("n", "Name.", later=later)])
    fit, rewrite = (request.messages[0].content for request in asked.requests)
    assert fit.count(nasty) == 1
    assert rewrite.count(nasty) == 2
    assert turns[1].prompt == "And how large is Lima?"


def test_a_verdict_is_the_likelier_option():
    def reply(yes):
        return Response("r", probabilities={"yes": yes, "no": 1 - yes})

    assert [read_fit(reply(yes)) for yes in (0.6, 0.4, 0.5)] == [True, False, None]
    assert read_fit(Response("r", error=Failure("timeout", "late"))) is None
    assert read_fit(Response("r", text="yes")) is None


@pytest.mark.parametrize("template", ["chatml", "no_system", "adds_eos", "plain"])
def test_tokenizers_write_the_two_options_apart(template):
    from phalanx.chat import ChatFormat
    from phalanx.engines.hf_options import OptionTree
    from tests.tiny import make_tokenizer

    chat = ChatFormat(make_tokenizer(template), "tiny")
    tree = OptionTree(FITS, chat)
    assert tree.options == ("yes", "no")
    assert chat.tokenizer.decode(tree.forced).startswith('{"fits":')


TURNS = st.lists(st.sampled_from(["user", "assistant"]), max_size=6).map(
    lambda roles: tuple(Message(role, f"{role} {n}") for n, role in enumerate(roles))
)


@settings(deadline=None)
@given(
    later=st.lists(TURNS, min_size=1, max_size=4),
    mode=st.sampled_from(["faithful", "rewrite", "cut"]),
    fits=st.lists(st.sampled_from([0.1, 0.5, 0.9, Failure("engine", "x")]), min_size=7, max_size=7),
    fails=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=4),
    rewritten=st.sampled_from(["Yes?", "", Failure("engine", "x")]),
)
def test_every_user_turn_is_one_row_and_the_counts_add_up(later, mode, fits, fails, rewritten):
    instructions = [Instruction(f"i{n}", "Begin.", later=turns) for n, turns in enumerate(later)]

    def text(asked):
        gone = (int(asked.instruction.id[1:]), asked.number) in fails
        return Answer("ada", "" if gone else "Well.", drop="empty" if gone else "")

    asked = Asked({f"\nuser {n}\n": said for n, said in enumerate(fits)}, rewritten)
    turns, counts, seen = told(mode, asked, text, instructions)
    assert [(t.instruction.id, t.number) for t in turns] == [
        (i.id, n) for i in instructions for n in range(len(i.user_turns))
    ]
    asked_turns = [t for t in turns if t.answer.drop != "cut"]
    assert len(asked_turns) == len(seen)
    if mode != "faithful":
        parts = Counter(counts)
        assert parts["later"] == parts["fitting"] + parts["rewritten"] + parts["cut"]
        assert parts["unreadable_fit"] <= parts["rewritten"] + parts["cut"]
    for turn in asked_turns:
        assert len(turn.history) == 2 * turn.number
    for instruction in instructions:
        drops = [t.answer.drop for t in turns if t.instruction is instruction]
        ended = [n for n, drop in enumerate(drops) if drop]
        assert not ended or all(drop == "cut" for drop in drops[ended[0] + 1 :])
        assert len(steps_of(instruction)) == len(drops) - 1


# Reasoning ---------------------------------------------------------------------------------------


def test_a_rewritten_turn_is_without_the_reasoning_before_it():
    said_ = "<think>They want Lima now.</think>\n\nHow large is Lima?"
    turns, counts, _ = told("rewrite", Asked({"How large is Paris": 0.2}, rewritten=said_))
    assert turns[1].prompt == "How large is Lima?"
    assert counts["rewritten"] == 1


def test_a_rewritten_turn_that_is_reasoning_alone_is_none():
    turns, counts, _ = told("rewrite", Asked({"How large is Paris": 0.2}, rewritten="<think>Hm."))
    assert [turn.answer.drop for turn in turns] == ["", "cut", "cut", ""]
    assert counts["cut"] == 1


@pytest.mark.parametrize(
    ("text", "finish", "found"),
    [
        ("<think>Hm.</think>Lima.", "stop", ("Lima.", "", True)),
        ("Hm.\n</think>\n\nLima.", "stop", ("Lima.", "", True)),
        (" Lima.\n", "stop", (" Lima.\n", "", False)),
        ("Lima: use <think> and </think>.", "stop", ("Lima: use <think> and </think>.", "", False)),
        (
            "Write\n<thinking>\nHm.\n</thinking>\nfirst.",
            "stop",
            ("Write\n<thinking>\nHm.\n</thinking>\nfirst.", "", False),
        ),
        ("<think>Hm.", "length", ("", "truncated", True)),
        ("<think>Hm.</think>", "stop", ("", "empty", True)),
    ],
)
def test_an_answer_is_without_the_reasoning_before_it(text, finish, found):
    answer = Answer.of(Response("r", text=text, finish_reason=finish), "ada")
    assert (answer.text, answer.drop, answer.reasoned) == found
