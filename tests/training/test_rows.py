"""What reaches the loss: token rows, dropped rows, batches, warm-up, the weighted loss."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from phalanx.chat import ChatFormat
from phalanx.errors import TrainingError
from phalanx.training.batches import plan_batches, step_count, warmup_steps
from phalanx.training.examples import demonstration_rows, pair_rows, rated_rows
from phalanx.training.pairs import weighted_loss
from phalanx.types import Demonstration, Instruction, Member, Message, PreferencePair
from tests.tiny import make_tokenizer

ADA = Member("ada", "base", system="answer with one word")


def pair(chosen: str = "the cat", rejected: str = "a dog", **changes) -> PreferencePair:
    return PreferencePair("p1", Instruction("i1", "what is two"), chosen, rejected, **changes)


@pytest.fixture(params=["chatml", "no_system", "adds_eos", "plain"])
def chat(request) -> ChatFormat:
    return ChatFormat(make_tokenizer(request.param), request.param)


def test_rows_have_one_end_token_and_the_prompt_of_generation(chat):
    (row,), dropped = pair_rows(chat, ADA, [pair()], 500)
    assert dropped == {}
    assert list(row.prompt_ids) == chat.prompt_ids(ADA.messages("what is two"))
    assert "answer with one word" in chat.tokenizer.decode(row.prompt_ids)
    for ids, text in ((row.chosen_ids, "the cat"), (row.rejected_ids, "a dog")):
        assert ids[-1] == chat.end_id
        assert ids.count(chat.end_id) == 1
        assert chat.decode(ids) == text
        assert None not in ids
        begin = chat.tokenizer.bos_token_id
        if begin is not None:
            assert begin not in ids
            assert list(row.prompt_ids[:2]) != [begin, begin]


def test_a_truncated_completion_has_no_end_token(chat):
    cut = pair(chosen_truncated=True, rejected_truncated=True)
    (row,), _ = pair_rows(chat, ADA, [cut], 500)
    assert chat.end_id not in row.chosen_ids + row.rejected_ids
    (whole,), _ = pair_rows(chat, ADA, [pair()], 500)
    assert (*row.chosen_ids, chat.end_id) == whole.chosen_ids


def test_control_text_in_a_completion_does_not_end_it(chat):
    end = chat.tokenizer.convert_ids_to_tokens(chat.end_id)
    (row,), _ = pair_rows(chat, ADA, [pair(chosen=f"yes{end}no")], 500)
    assert row.chosen_ids.count(chat.end_id) == 1


def test_rows_that_do_not_fit_are_dropped_and_counted_never_cut():
    chat = ChatFormat(make_tokenizer(), "chatml")
    fitting = pair()
    (row,), _ = pair_rows(chat, ADA, [fitting], 500)
    prompt, whole = len(row.prompt_ids), row.length
    empty = [pair(chosen=""), pair(rejected=" \n")]
    long = pair(rejected="a dog " * 50)
    assert pair_rows(chat, ADA, [fitting, *empty, long], whole) == (
        [row],
        {"empty": 2, "too_long": 1},
    )
    assert pair_rows(chat, ADA, [fitting], whole - 1) == ([], {"too_long": 1})
    assert pair_rows(chat, ADA, [fitting], prompt) == ([], {"prompt_too_long": 1})
    assert pair_rows(chat, ADA, [fitting], whole, prompt) == ([row], {})
    assert pair_rows(chat, ADA, [fitting], whole, prompt - 1) == ([], {"prompt_too_long": 1})
    assert pair_rows(chat, ADA, [pair(drop="tie")], whole) == ([], {"tie": 1})


def test_demonstrations_learn_the_end_and_drop_the_empty():
    chat = ChatFormat(make_tokenizer(), "chatml")
    shown = [Demonstration("d1", "what is two", "lima"), Demonstration("d2", "what", "")]
    (row,), dropped = demonstration_rows(chat, ADA, shown, 500)
    assert dropped == {"empty": 1}
    assert list(row.completion_ids) == chat.completion_ids("lima", True)
    assert list(row.prompt_ids) == chat.prompt_ids(ADA.messages("what is two"))


def test_a_turn_of_a_conversation_is_read_as_the_member_reads_it(chat):
    """All turns before it are prompt, under the member's own system prompt."""
    history = (Message("user", "what is two"), Message("assistant", "lima"))
    shown = Demonstration("d1", "and three", "rome", history=history)
    (row,), dropped = demonstration_rows(chat, ADA, [shown], 500)
    assert dropped == {}
    turns = ADA.conversation((*history, Message("user", "and three")))
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert list(row.prompt_ids) == chat.prompt_ids(turns)
    assert list(row.completion_ids) == chat.completion_ids("rome", True)
    written = chat.tokenizer.decode(row.prompt_ids)
    places = [written.index(text) for text in ("answer with one word", "what is two", "lima")]
    assert places == sorted(places)
    assert written.index("and three") > places[-1]


def test_a_truncated_demonstration_has_no_end_and_a_dropped_one_is_counted():
    chat = ChatFormat(make_tokenizer(), "chatml")
    shown = [
        Demonstration("d1", "what is two", "lima rome", truncated=True),
        Demonstration("d2", "what", "rome", drop="cut"),
    ]
    (row,), dropped = demonstration_rows(chat, ADA, shown, 500)
    assert list(row.completion_ids) == chat.completion_ids("lima rome", False)
    assert chat.end_id not in row.completion_ids
    assert dropped == {"cut": 1}


@pytest.mark.parametrize("weight", [-0.5, math.nan, math.inf])
def test_a_senseless_weight_is_refused(weight):
    chat = ChatFormat(make_tokenizer(), "chatml")
    with pytest.raises(TrainingError, match="p1"):
        pair_rows(chat, ADA, [pair(weight=weight)], 500)


@pytest.mark.parametrize(("rows", "size", "epochs"), [(1, 4, 1), (130, 4, 3), (64, 8, 2)])
def test_every_epoch_holds_every_row_once(rows, size, epochs):
    lengths = [7 * number % 41 for number in range(rows)]
    plan = plan_batches(lengths, size, epochs, seed=3)
    assert len(plan) == epochs
    for epoch in plan:
        assert sorted(row for batch in epoch for row in batch) == list(range(rows))
        assert len(epoch) == math.ceil(rows / size)
    assert plan == plan_batches(lengths, size, epochs, seed=3)
    if rows > 1:
        assert plan != plan_batches(lengths, size, epochs, seed=4)
    if epochs > 1:
        assert plan[0] != plan[1]


def test_batches_of_like_length_pad_little():
    lengths = [10 + 37 * number % 91 for number in range(128)]
    padded = sum(
        len(batch) * max(lengths[row] for row in batch)
        for batch in plan_batches(lengths, 8, 1, seed=0)[0]
    )
    assert padded < 1.15 * sum(lengths)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_warm_up_leaves_a_step(share, steps):
    assert 0 <= warmup_steps(share, steps) < steps
    assert step_count(steps * 3 - 2, 3) == steps


def test_weighted_loss_is_the_closed_form():
    """Against the formula written out with plain numbers."""
    log_probs = torch.tensor(
        [[0.0, -1.0, -2.0], [0.0, -0.5, 0.0], [0.0, -3.0, -1.0], [0.0, -2.5, 0.0]]
    )
    mask = torch.tensor([[0, 1, 1], [0, 1, 0], [0, 1, 1], [0, 1, 0]])
    losses, weight, nll = torch.tensor([0.6, 0.9]), torch.tensor([0.25, 1.75]), 0.7
    of_pairs = (0.25 * 0.6 + 1.75 * 0.9) / 2
    wanted = of_pairs + nll * (0.25 * 3.0 + 1.75 * 0.5) / 3
    assert weighted_loss(losses, weight, log_probs, mask, nll).item() == pytest.approx(wanted)
    assert weighted_loss(losses, weight, log_probs, mask, 0.0).item() == pytest.approx(of_pairs)
    ones = torch.ones(2)
    assert weighted_loss(losses, ones, log_probs, mask, 0.0).item() == losses.mean().item()


def test_probabilities_are_kept_where_the_loss_needs_them_and_asked_for_by_name():
    chat = ChatFormat(make_tokenizer(), "chatml")
    known = pair(chosen_probability=0.75, rejected_probability=0.0)
    (row,), _ = pair_rows(chat, ADA, [known], 500, probabilities=True)
    assert row.probabilities == (0.75, 0.0)
    (row,), _ = pair_rows(chat, ADA, [known], 500)
    assert row.probabilities is None
    for bad in (None, 1.5, -0.1, math.nan):
        half = pair(chosen_probability=0.75, rejected_probability=bad)
        with pytest.raises(TrainingError, match=r"ada: .*sppo needs .*p1\. Take"):
            pair_rows(chat, ADA, [known, half], 500, probabilities=True)
        # One that is dropped anyway needs none.
        dropped = dataclasses.replace(half, drop="tie")
        assert pair_rows(chat, ADA, [dropped], 500, probabilities=True) == ([], {"tie": 1})


def test_rated_responses_without_an_advantage_teach_nothing_and_none_is_refused():
    chat = ChatFormat(make_tokenizer(), "chatml")
    shown = [
        Demonstration("d1", "what is two", "lima", advantage=-0.5),
        Demonstration("d2", "what is two", "rome", advantage=0.0),
        Demonstration("d3", "what is two", " ", advantage=1.0),
        Demonstration("d4", "what is two", "paris", drop="unscored"),
    ]
    (row,), dropped = rated_rows(chat, ADA, shown, 500)
    assert (row.id, row.advantage) == ("d1", -0.5)
    assert dropped == {"no_advantage": 1, "empty": 1, "unscored": 1}
    assert 1 + sum(dropped.values()) == len(shown)
    for bad in (None, math.nan, math.inf):
        with pytest.raises(TrainingError, match=r"ada: the response 'd1' has the advantage"):
            rated_rows(chat, ADA, [dataclasses.replace(shown[0], advantage=bad)], 500)
