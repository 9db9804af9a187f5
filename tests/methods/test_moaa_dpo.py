"""Stage 2 of MoAA on the scripted engine: responses, rankings, pairs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config.schema import StudentSettings
from phalanx.errors import ConfigError, JudgmentError
from phalanx.identity import content_id
from phalanx.methods.moaa_dpo import compare
from phalanx.types import Instruction, Iteration, Message, Response, Standing
from tests.collective.hearings import Asked, by_rank, members, preferring_good, script, settings

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DRAWS = ["Seven is good.", "Nine.", "Eight, say."]
PANEL = ["ada", "bob", "cora"]


def answering(*answers, verdicts=()):
    rules = script(*verdicts)
    rules["sampling"] += answers or [{"when": ".", "purpose": "sample", "reply": DRAWS}]
    return rules


def iteration(count=3, **changes):
    start = Iteration(
        number=2,
        seed=7,
        members=(*members(PANEL), *members(["dan", "eve"], version=1)),
        instructions=tuple(Instruction(f"i{n}", f"Name a prime, not {n}.") for n in range(count)),
        standings={"ada": Standing(101.0)},
        reliability={"ada": 0.9},
        faded={"ada": 1.5},
    )
    return replace(start, **changes)


def compared(asked, start=None, students=None, **sections):
    students = students or [StudentSettings(name="dan"), StudentSettings(name="eve")]
    sections.setdefault("reward", {"samples": 3})
    config = settings(**sections)
    return compare(start or iteration(), students, members(), asked, config)


def transcript(asked, result) -> str:
    lines = [*asked.lines, ""]
    outcomes = {outcome.duel_id: outcome for outcome in result.outcomes}
    for duel, judgment in zip(result.duels, result.judgments, strict=True):
        outcome = outcomes[duel.id]
        lines.append(
            f"duel {duel.instruction.id} {duel.left} {duel.right} ({duel.matched}): "
            f"{outcome.status} {outcome.winner} {judgment.score_left} {judgment.score_right} "
            f"flipped={judgment.flipped} {','.join(judgment.requests)} {' '.join(judgment.flags)}"
        )
    for pair in result.pairs:
        lines.append(
            f"pair {pair.chosen_member} {pair.instruction.id}: {pair.chosen!r} > "
            f"{pair.rejected!r} margin={pair.margin} drop={pair.drop!r}"
        )
    lines += [f"metric {name} {value}" for name, value in result.metrics.items()]
    return "\n".join(lines) + "\n"


def test_golden_transcript():
    """Set PHALANX_UPDATE_GOLDEN=1 to write it anew, and read the difference before you commit."""
    asked = Asked(answering())
    found = transcript(asked, compared(asked, iteration(2)))
    path = GOLDEN / "moaa_dpo.txt"
    if os.environ.get("PHALANX_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_students_answer_as_the_newest_and_the_panel_judges_as_the_generation_began():
    asked = Asked(answering())
    compared(asked)
    assert {request.member.key for request in asked.of("sample")} == {"dan@1", "eve@1"}
    assert {request.member.key for request in asked.of("verdict")} == {"cora@0"}
    assert [phase for phase, _ in asked.phases] == ["sample", "criteria", "assess", "verdict"]


def test_every_sample_has_a_seed_of_its_own_and_sees_the_first_turn_alone():
    asked = Asked(answering())
    later = (Message("assistant", "Two."), Message("user", "Another."))
    one = replace(iteration().instructions[0], later=later)
    compared(asked, iteration(instructions=(one,)))
    requests = asked.of("sample")
    assert len(requests) == 2 * 3
    assert len({request.seed for request in requests}) == len({r.id for r in requests}) == 6
    assert {request.messages for request in requests} == {(Message("user", one.text),)}
    assert {request.want.temperature for request in requests} == {0.8}


def test_best_over_worst_is_a_pair_of_the_student_itself():
    result = compared(Asked(answering()))
    assert len(result.pairs) == 2 * 3
    kept = [pair for pair in result.pairs if not pair.drop]
    assert kept
    for pair in kept:
        assert "good" in pair.chosen
        assert "good" not in pair.rejected
        assert pair.chosen_member == pair.rejected_member
        assert pair.margin > 0
    assert {(p.chosen_member, p.instruction.id) for p in result.pairs} == {
        (name, f"i{n}") for name in ("dan", "eve") for n in range(3)
    }
    assert result.pairs[0].id == content_id("pair", "dan", "i0", 7, 2)
    assert len({pair.id for pair in result.pairs}) == 6


def test_criteria_are_asked_for_once_an_instruction():
    asked = Asked(answering())
    result = compared(asked)
    assert len(asked.of("criteria")) == 3
    assert result.metrics["criteria.chosen.reasoning"] == 3


def test_every_contestant_of_a_duel_has_its_response():
    asked = Asked(answering())
    result = compared(asked)
    assert set(result.responses) == {(d.id, name) for d in result.duels for name in d.contestants}
    for (_, name), request in result.responses.items():
        asking = next(r for r in asked.requests if r.id == request)
        assert asking.member.name == name.split("#")[0]
        assert asking.purpose == "sample"


def test_each_student_is_ranked_by_its_own_reward():
    rewards = [{"when": "Seven", "reward": 1.0}, {"when": ".", "reward": 2.0}]
    asked = Asked({**answering(), "reward": rewards})
    students = [
        StudentSettings(name="dan"),
        StudentSettings(name="eve", reward="rob"),
        StudentSettings(name="fay", reward="none"),
    ]
    pool = (*members(), *members(["rob"], rob="reward"))
    config = settings(reward={"samples": 4})
    result = compare(iteration(4), students, pool, asked, config)
    assert {pair.chosen_member for pair in result.pairs} == {"dan", "eve"}
    kept = [pair for pair in result.pairs if not pair.drop]
    assert {"good" in p.chosen for p in kept if p.chosen_member == "dan"} == {True}
    assert {"good" in p.rejected for p in kept if p.chosen_member == "eve"} == {True}
    assert {judgment.judge for judgment in result.judgments} == {"mixture", "rob"}


def test_what_a_stage_does_not_touch_is_carried_over():
    start = iteration()
    result = compared(Asked(answering()), start)
    assert result.standings == start.standings
    assert result.reliability == start.reliability
    assert result.faded == start.faded
    assert result.changes == result.demonstrations == ()


def test_without_students_there_is_nothing_to_do():
    asked = Asked(answering())
    result = compared(asked, students=[StudentSettings(name="dan", reward="none")])
    assert asked.phases == []
    assert result.pairs == result.duels == ()
    assert result.metrics["num_pairs"] == 0


def test_a_student_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="no member is named zoe"):
        compared(Asked(answering()), students=[StudentSettings(name="zoe")])


# Why a pair does not train -----------------------------------------------------------------------

FAIL = {"kind": "timeout", "message": "-"}


@pytest.mark.parametrize(
    ("answers", "verdict", "drop"),
    [
        ([{"reply": "Nine."}], None, "identical"),
        ([{"reply": ""}], None, "empty"),
        ([{"reply": ["Nine.", "Eight.", "Ten."]}], "[[C]]", "tie"),
        ([{"reply": ["Nine.", "Eight.", "Ten."]}], "[[A]]", "tie"),
        ([{"reply": ["Nine.", "Eight.", "Ten."]}], "Hm.", "unscored"),
    ],
)
def test_drops(answers, verdict, drop):
    rules = [{"when": ".", "purpose": "sample", **answer} for answer in answers]
    judge = [{"when": ".", "purpose": "verdict", "reply": verdict}] if verdict else ()
    result = compared(Asked(answering(*rules, verdicts=judge)), reward={"samples": 6})
    assert {pair.drop for pair in result.pairs} == {drop}
    assert len(result.pairs) == 6
    assert result.metrics["num_pairs"] == 0
    if drop in ("tie", "identical"):
        assert all(pair.chosen for pair in result.pairs)


def test_one_usable_sample_beside_failed_ones_is_counted():
    rules = [
        {"when": "not 0", "purpose": "sample", "fail": FAIL},
        {"when": ".", "purpose": "sample", "reply": ["Nine.", ""]},
    ]
    result = compared(Asked(answering(*rules)), reward={"samples": 4})
    assert result.metrics["num_samples"] == 24
    assert result.metrics["num_samples_failed"] == 8
    assert 0 < result.metrics["num_samples_empty"] < 16
    assert all(pair.drop for pair in result.pairs)


def failing(*names, instructions="."):
    rules = [
        {"when": instructions, "purpose": "sample", "member": name, "fail": FAIL} for name in names
    ]
    return Asked(answering(*rules, {"when": ".", "purpose": "sample", "reply": DRAWS}))


@pytest.mark.parametrize("names", [("dan",), ("eve",), ("dan", "eve")])
def test_a_student_without_a_pair_because_its_samples_failed_stops_the_stage(names):
    with pytest.raises(JudgmentError, match=f"{names[0]} has no pair .* 9 of its samples failed "
                       r"\(9 timeout\), and 3 of 3 instructions"):  # fmt: skip
        compared(failing(*names))


def test_failed_samples_stop_nothing_while_a_pair_is_left():
    result = compared(failing("dan", instructions="not [02]"))
    drops = {p.instruction.id: p.drop for p in result.pairs if p.chosen_member == "dan"}
    assert drops == {"i0": "unscored", "i1": "", "i2": "unscored"}


def test_failed_samples_of_a_few_instructions_stop_nothing_where_the_others_tie():
    judge = {"when": ".", "purpose": "verdict", "reply": "[[C]]"}
    rules = [
        {"when": "not 0", "purpose": "sample", "fail": FAIL},
        {"when": ".", "purpose": "sample", "reply": DRAWS},
    ]
    result = compared(Asked(answering(*rules, verdicts=[judge])), reward={"samples": 6})
    assert [pair.drop for pair in result.pairs] == 2 * ["unscored", "tie", "tie"]


# Truncated samples -------------------------------------------------------------------------------

RANKING = pytest.mark.parametrize("ranking", ["round_robin", "knockout"])


class Truncating(Asked):
    """One student's samples in order; those that begin with a word of ``cut`` hit the limit."""

    def __init__(self, samples, cut, verdicts):
        super().__init__(script(*verdicts))
        self.samples, self.cut = iter(samples), cut

    def __call__(self, phase, requests):
        if phase != "sample":
            return super().__call__(phase, requests)
        texts = [next(self.samples) for _ in requests]
        return [
            Response(
                request.id,
                text=text,
                finish_reason="length" if text.startswith(self.cut) else "stop",
            )
            for request, text in zip(requests, texts, strict=True)
        ]


def truncating(rule, ranking, cut, samples=("Nine.", "Seven.", "Eight.", "Ten.")):
    asked = Truncating(samples, cut, by_rank())
    result = compared(
        asked,
        iteration(1),
        [StudentSettings(name="dan")],
        reward={"samples": len(samples), "ranking": ranking},
        pairs={"truncated": rule},
    )
    return result, asked


@RANKING
@pytest.mark.parametrize(
    ("rule", "cut", "chosen", "rejected"),
    [
        ("allow", ("Seven", "Ten"), "Seven.", "Ten."),
        ("drop", ("Seven", "Ten"), "Nine.", "Eight."),
        ("drop", ("Eight", "Nine"), "Seven.", "Ten."),
        ("rejected_only", ("Seven",), "Nine.", "Ten."),
        ("rejected_only", ("Seven", "Nine"), "Eight.", "Ten."),
    ],
)
def test_a_truncated_sample_costs_no_pair(ranking, rule, cut, chosen, rejected):
    (pair,) = truncating(rule, ranking, cut)[0].pairs
    assert (pair.chosen, pair.rejected, pair.drop) == (chosen, rejected, "")
    assert pair.margin > 0


def test_with_rejected_only_a_truncated_sample_may_be_the_worst():
    (pair,) = truncating("rejected_only", "round_robin", ("Seven", "Ten"))[0].pairs
    assert (pair.chosen, pair.rejected, pair.drop) == ("Nine.", "Ten.", "")
    assert pair.rejected_truncated
    # A knockout has no second best: whole ones meet alone where they differ.
    (pair,) = truncating("rejected_only", "knockout", ("Seven", "Ten"))[0].pairs
    assert (pair.chosen, pair.rejected, pair.drop) == ("Nine.", "Eight.", "")


@RANKING
@pytest.mark.parametrize(
    ("rule", "cut"),
    [
        ("drop", ("Seven", "Nine", "Eight", "Ten")),
        ("drop", ("Seven", "Nine", "Eight")),
        ("rejected_only", ("Seven", "Nine", "Eight", "Ten")),
        ("rejected_only", ("Seven", "Nine", "Eight")),
    ],
)
def test_where_no_whole_sample_can_be_chosen_the_pair_is_dropped_as_truncated(ranking, rule, cut):
    result, asked = truncating(rule, ranking, cut)
    (pair,) = result.pairs
    assert pair.drop == "truncated"
    assert pair.chosen
    assert pair.rejected
    assert bool(asked.of("verdict")) == (rule == "rejected_only")
    assert result.metrics["num_samples_truncated"] == len(cut)


def test_a_whole_sample_chosen_in_place_of_a_truncated_one_was_ranked_above_the_worst():
    samples = ("Seven.", "Nine.", " Nine.", "Nine. ")  # whole ones are alike, and all the worst
    (pair,) = truncating("rejected_only", "round_robin", ("Seven",), samples)[0].pairs
    assert (pair.drop, pair.chosen) == ("truncated", "Seven.")


def test_margin_keep_and_weights_follow_the_rules_of_pairs():
    def drawing():
        return Asked(answering(verdicts=by_rank()))

    all_of = compared(drawing(), iteration(12))
    margins = [pair.margin for pair in all_of.pairs if not pair.drop]
    assert len(set(margins)) > 1
    strict = compared(drawing(), iteration(12), pairs={"margin": 1.5})
    assert {p.drop for p in strict.pairs if 0 < p.margin < 1.5} == {"margin"}
    half = compared(drawing(), iteration(12), pairs={"keep": 0.5})
    for name in ("dan", "eve"):
        mine = [p for p in half.pairs if p.chosen_member == name]
        whole = [p for p in all_of.pairs if p.chosen_member == name and not p.drop]
        assert sum(not p.drop for p in mine) == -(-len(whole) // 2)
    weighed = compared(drawing(), iteration(12), pairs={"weight_by_margin": True})
    kept = [pair for pair in weighed.pairs if pair.chosen_member == "dan" and not pair.drop]
    assert sum(pair.weight for pair in kept) / len(kept) == pytest.approx(1)


def test_all_scores_of_a_pointwise_judge_are_counted():
    """Best and worst have one judgment a group; what is missing of the others counts, too."""
    rules = [
        {"when": "<<<response \\w+>>>\n(Nine|Ten)", "purpose": "judge", "reply": '{"score": 6}'},
        {"when": "<<<response \\w+>>>\nSeven", "purpose": "judge", "reply": '{"score": 8}'},
        {"when": ".", "purpose": "judge", "reply": "Good!"},
    ]
    asked = Truncating(("Nine.", "Seven.", "Eight.", "Four."), ("-",), rules)
    result = compared(
        asked,
        iteration(1),
        [StudentSettings(name="dan", reward="cora")],
        reward={"samples": 4},
        judge={"protocol": "rubric"},
    )
    assert (result.metrics["num_judgments"], result.metrics["num_unreadable"]) == (1, 0)
    assert (result.metrics["scores.asked"], result.metrics["scores.unreadable"]) == (4, 2)
    assert [pair.drop for pair in result.pairs] == [""]


def test_counts_add_up():
    asked = Asked(answering(verdicts=[preferring_good()[1], {"when": ".", "purpose": "verdict",
                                                            "reply": "Hm."}]))  # fmt: skip
    result = compared(asked)
    numbers = result.metrics
    assert numbers["num_duels"] == len(result.duels) == numbers["num_judgments"]
    statuses = [numbers.get(f"num_{s}", 0) for s in ("decided", "tie", "no_quorum")]
    assert sum(statuses) == numbers["num_duels"]
    assert numbers["num_unreadable"] == numbers["num_no_quorum"] > 0


def test_a_resumed_stage_asks_the_same():
    first, second = Asked(answering()), Asked(answering())
    one, two = compared(first), compared(second)
    assert [r.id for r in first.requests] == [r.id for r in second.requests]
    assert one == two
