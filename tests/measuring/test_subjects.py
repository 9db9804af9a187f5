"""Answers of members, mixtures and the best of several."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import pool
from phalanx.asking import Asking, asking
from phalanx.collective.choosing import Chosen
from phalanx.collective.mixture import mixture_from
from phalanx.collective.ranking import Candidate
from phalanx.collective.voting import vote, winning_answer
from phalanx.config.loading import load
from phalanx.errors import ConfigError
from phalanx.measuring.subjects import Subject, answers, chosen_among, judges_from, voters
from phalanx.types import Failure, Instruction, Member, Message, Response, Sampling
from tests.scripts import write_pool

RULES = r"""
sampling:
  - {when: 'response A \w+>>>\ngood', purpose: judge, reply: "[[A]]"}
  - {when: 'response B \w+>>>\ngood', purpose: judge, reply: "[[B]]"}
  - {when: ., purpose: judge, reply: "[[C]]"}
  - {when: same, reply: all alike}
  - {when: pair, member: cora, reply: other}
  - {when: pair, reply: most}
  - {when: breaks, fail: {kind: refused, message: not today}}
  - {when: ., member: ada, reply: "<think>well</think>good answer"}
  - {when: ., member: bob, reply: bad answer}
  - {when: ., member: cora, reply: poor answer}
"""
MORE = """
judge: {protocol: pairwise}
aggregate: {rule: mean}
mixture: {proposers: [ada, bob], aggregator: cora}
"""
WANT = Sampling(temperature=0, top_p=1, top_k=0, max_new_tokens=16)


def talk(*texts: str) -> list[tuple[Message, ...]]:
    return [(Message("user", text),) for text in texts]


@pytest.fixture
def place(tmp_path):
    yield from opened(tmp_path)


def opened(tmp_path: Path, *overrides: str, names=("ada", "bob", "cora"), rules=RULES):
    config = load(str(write_pool(tmp_path, names, rules, MORE)), overrides, purpose="eval")
    with asking(config, tmp_path / "out", kind="eval", inputs="x") as there:
        yield there


def together(place: Asking, kind: str) -> Subject:
    members = pool.members_from(place.config)
    if kind == "mixture":
        return Subject(kind, members, kind, mixture_from(place.config, members))
    return Subject(kind, members, kind, judges=judges_from(place.config, members))


def texts(subject: Subject, place: Asking, *asked: str) -> list[str | None]:
    replies = answers(subject, talk(*asked), [WANT] * len(asked), place)
    assert all(bool(one.reason) is (one.response is None) for one in replies)
    return [one.response.text if one.response else None for one in replies]


def test_a_member_answers_and_is_asked_once(place):
    ada = Subject("ada@0", pool.members_from(place.config)[:1])
    assert texts(ada, place, "Why?", "Why?") == ["<think>well</think>good answer"] * 2
    assert place.ledger.count("responses") == 1
    failed = answers(ada, talk("breaks"), [WANT], place)
    assert failed[0].response is not None
    assert failed[0].response.error is not None


def test_a_conversation_may_have_a_system_message_and_turns(place):
    ada = Subject("ada", pool.members_from(place.config)[:1])
    turns = (Message("system", "s"), Message("user", "a"), Message("assistant", "b"),
             Message("user", "c"))  # fmt: skip
    assert answers(ada, [turns], [WANT], place)[0].response.text.endswith("good answer")
    best = answers(together(place, "best_of"), [turns], [WANT], place)
    assert best[0].response.text.endswith("good answer")


def test_the_best_of_several_is_the_one_that_others_prefer(place):
    best = together(place, "best_of")
    # ada's answer has the word that judges like: it wins its duels, whatever is shown first.
    assert texts(best, place, "Why?") == ["<think>well</think>good answer"]
    asked = place.ledger.query("SELECT member FROM responses WHERE purpose = 'judge'")
    assert len(asked) == 6  # three duels in two orders, each before the one who is in neither
    assert texts(best, place, "same") == ["all alike"]
    assert place.ledger.count("responses", "purpose = 'judge'") == 6  # nothing to judge
    # Nobody is left who wrote neither: what most of them wrote.
    assert texts(best, place, "pair") == ["most"]
    assert texts(best, place, "breaks") == [None]


def test_one_judge_from_outside_ranks_alone(tmp_path):
    outside = ("evaluate.judges=[judy]",)
    for place in opened(tmp_path, *outside, names=("ada", "bob", "cora", "judy")):
        *members, judy = pool.members_from(place.config)
        best = Subject("best_of", tuple(members), "best_of", judges=(judy,))
        assert texts(best, place, "Why?") == ["<think>well</think>good answer"]
        judges = place.ledger.query("SELECT DISTINCT member FROM responses WHERE purpose = 'judge'")
        assert [row["member"] for row in judges] == ["judy"]


def test_a_knockout_of_the_settings_never_ties_the_best_with_another(tmp_path):
    """In one the best may have a bye, and win no more rounds than who loses the final to it."""
    settings = ("evaluate.judges=[judy]", "reward.ranking=knockout")
    words = ("best", "next", "mean", "poor", "last")
    script = "sampling:\n" + "".join(
        f"  - {{when: 'response {side} \\w+>>>\\n{word}', reply: '[[{side}]]'}}\n"
        for word in words
        for side in "AB"
    )
    for place in opened(tmp_path, *settings, names=(*words, "judy"), rules=script):
        judy = pool.members_from(place.config)[-1]
        groups = [
            (Instruction(str(n), f"Why {n}?"), [Candidate(word, word) for word in words])
            for n in range(20)
        ]
        assert chosen_among(groups, [judy], place, place.ask(0)) == [Chosen(0)] * 20


def test_rankers_among_several_judges_compare_pairs(place):
    """A reward model that has scores for pairs alone refuses a response without a rival."""

    def longer(phase, requests):
        replies = []
        for request in requests:
            mine, rival = request.want.response, request.want.rival
            refused = Failure("engine", "a ranker: give a rival") if rival is None else None
            value = None if rival is None else float(len(mine) - len(rival))
            replies.append(Response(request.id, reward=value, error=refused, flags=("ranker",)))
        return replies

    words = ("a", "longest", "mean")
    groups = [(Instruction("1", "Why?"), [Candidate(word, word) for word in words])]
    judges = [Member(name, "pairs", engine="reward") for name in ("judy", "jack")]
    assert chosen_among(groups, judges, place, longer) == [Chosen(1)]


def test_a_mixture_answers_as_it_is_wanted(place):
    mixed = together(place, "mixture")
    wants = [WANT, Sampling(temperature=0.5, max_new_tokens=8)]
    replies = answers(mixed, talk("Why?", "How?"), wants, place)
    assert [one.response.text for one in replies] == ["poor answer"] * 2
    purposes = {
        row["purpose"]: row["n"]
        for row in place.ledger.query("SELECT purpose, count(*) AS n FROM responses GROUP BY 1")
    }
    assert purposes == {"propose": 4, "aggregate": 2}
    assert texts(mixed, place, "breaks") == [None]


def test_a_majority_has_no_free_answers(place):
    with pytest.raises(ConfigError, match="writes none of its own"):
        answers(together(place, "majority"), talk("Why?"), [WANT], place)
    with pytest.raises(ValueError, match="1 conversations but 0 wants"):
        answers(together(place, "mixture"), talk("Why?"), [], place)


def test_voters_are_named_as_their_collective_and_no_subject_twice():
    old, new = Member("ada", "b"), Member("ada", "b", "x", 1)
    bob = Member("bob", "b")
    subjects = [
        Subject("ada@1", (new,)),
        Subject("majority@0", (old, bob), "majority"),
        Subject("best_of", (new, bob), "best_of"),
        Subject("mixture", (new, bob), "mixture"),
    ]
    assert voters(subjects) == (Subject("ada@0", (old,)), Subject("bob@0", (bob,)))


@given(
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["", "1", "2", "3"]), min_size=1),
    st.data(),
)
def test_the_answer_that_wins_has_the_largest_sum(given_answers, data):
    weights = {name: data.draw(st.integers(1, 5)) for name in given_answers}
    won = winning_answer(given_answers, weights)
    sums = {
        answer: sum(weights[name] for name, one in given_answers.items() if one == answer)
        for answer in set(given_answers.values()) - {""}
    }
    assert (won == "") == (not sums)
    assert not sums or sums[won] == max(sums.values())
    rows = {name: {"item": (answer, int(answer == "2"))} for name, answer in given_answers.items()}
    assert vote(rows, weights) == {"item": int(won == "2")}
