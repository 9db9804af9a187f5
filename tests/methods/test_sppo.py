"""SPPO: win probabilities of a learner's own responses, and the pair that they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.collective.samples import Samples
from phalanx.collective.win_probabilities import Preferred
from phalanx.config import Config, load
from phalanx.config.rules import faults
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align, stored_pairs
from phalanx.methods import METHODS
from phalanx.methods.sppo import METHOD, _pair, run
from phalanx.types import Failure, Instruction, Member, Response
from tests.methods.rivals import SMOKE, Asked, golden, start, told

WRITTEN = {"when": ".", "purpose": "sample", "reply": ["Seven.", "Nine.", "Eight, say."]}
REWARD = [
    {"when": "Seven", "reward": 2.0},
    {"when": "Nine", "reward": 0.5},
    {"when": ".", "reward": -1.0},
]
SCORES = [
    {"when": "Seven", "purpose": "judge", "reply": '{"score": 9}'},
    {"when": "Nine", "purpose": "judge", "reply": '{"score": 4}'},
    {"when": ".", "purpose": "judge", "reply": '{"score": 2}'},
]
SCRIPT = {"sampling": [WRITTEN, *SCORES], "reward": REWARD}
ITEMS = [Instruction(f"i{n}", f"Name a prime, not {n}.") for n in range(6)]


def config(**changes) -> Config:
    own = {"instructions": 2, "samples": 3, **changes.pop("sppo", {})}
    return Config.model_validate({"method": "sppo", "sppo": own, **changes})


def ran(script=SCRIPT, names=("ada", "bob"), number=1, roles=None, **changes):
    chosen = config(**changes)
    begin = start(chosen, names, METHOD.draw(chosen, ITEMS, number), number)
    members = tuple(
        replace(member, roles=(roles or {}).get(member.name, member.roles))
        for member in begin.members
    )
    asked = Asked(script)
    return asked, run(replace(begin, members=members), asked, chosen)


def test_golden_transcript():
    asked, result = ran(names=["ada", "bob", "cora"], roles={"cora": ("judge",)})
    golden("sppo", told(asked, result))


def test_the_likeliest_winner_is_chosen_with_its_probability():
    _, result = ran(names=["ada", "rob"], roles={"rob": ("judge",)}, judge={"protocol": "reward"})
    kept = [pair for pair in result.pairs if not pair.drop]
    assert kept
    order = {"Seven.": 2, "Nine.": 1, "Eight, say.": 0}
    for pair in kept:
        assert order[pair.chosen] > order[pair.rejected]
        assert pair.chosen_member == pair.rejected_member == "ada"
        assert 0 < pair.rejected_probability < 0.5 < pair.chosen_probability < 1
        assert pair.margin == pair.chosen_probability - pair.rejected_probability
    assert METHODS["sppo"].lesson(config(), 1, "ada") == "own pairs"
    assert config().pair_training.loss == "sppo"


def test_nobody_judges_their_own_responses():
    asked, result = ran(names=["ada", "bob", "cora"])
    writers = {r.id: r.member.name for r in asked.requests if r.purpose == "sample"}
    contestants = {
        duel.id: {writers[result.responses[duel.id, name]] for name in duel.contestants}
        for duel in result.duels
    }
    assert result.judgments
    for judgment in result.judgments:
        assert contestants[judgment.duel_id].isdisjoint({judgment.judge})
    judges = {r.member.name for r in asked.requests if r.purpose == "judge"}
    assert judges == {"ada", "bob", "cora"}


def test_a_named_judge_judges_everybody():
    asked, _ = ran(names=["ada", "bob", "cora"], roles={"cora": ("judge",)}, sppo={"judge": "cora"})
    assert {r.member.name for r in asked.requests if r.purpose == "judge"} == {"cora"}
    with pytest.raises(ConfigError, match="nobody may judge the responses of ada"):
        ran(names=["ada", "bob"], sppo={"judge": "ada"})
    with pytest.raises(ConfigError, match="nobody may judge"):
        ran(names=["ada"])


@pytest.mark.parametrize(
    ("rules", "drop"),
    [
        ([{**WRITTEN, "reply": "Seven."}, *SCORES], "identical"),
        ([{**WRITTEN, "reply": " "}, *SCORES], "empty"),
        ([{**WRITTEN, "reply": "<think>Hm"}, *SCORES], "empty"),
        ([WRITTEN, {"when": ".", "reply": '{"score": 5}'}], "tie"),
        ([WRITTEN, {"when": ".", "reply": "no idea"}], "unscored"),
        ([{**WRITTEN, "finish": "length"}, *SCORES], "truncated"),
    ],
)
def test_groups_without_a_best_and_a_worst_say_why(rules, drop):
    _, result = ran(script={"sampling": rules}, sppo={"instructions": 6})
    found = {pair.drop for pair in result.pairs}
    # Three draws of three texts are the same now and then.
    assert drop in found
    assert found <= {drop, "identical"}
    assert len(result.pairs) == 2 * 6
    named = {k: v for k, v in result.metrics.items() if k.startswith("num_dropped.")}
    assert sum(named.values()) + result.metrics["num_pairs"] == 12
    if drop in ("tie", "unscored"):
        assert all(p.chosen != p.rejected for p in result.pairs if p.drop == drop)


def test_failed_samples_stop_the_run_and_some_do_not():
    failing = {"when": ".", "purpose": "sample", "fail": {"kind": "engine", "message": "gone"}}
    with pytest.raises(JudgmentError, match="6 of its 6 samples failed"):
        ran(script={"sampling": [failing, *SCORES]})
    some = {**failing, "when": "not 0"}
    _, result = ran(script={"sampling": [some, WRITTEN, *SCORES]}, sppo={"instructions": 6})
    assert {pair.drop for pair in result.pairs if pair.instruction.id == "i0"} == {"unscored"}
    assert result.metrics["num_samples_failed"] == 6


def test_the_same_call_again_gives_the_same_rows():
    (one, first), (two, second) = ran(), ran()
    assert first == second
    assert [r.id for r in one.requests] == [r.id for r in two.requests]
    assert len({pair.id for pair in first.pairs}) == 4


def test_margins_of_probabilities_are_filtered_by_learner():
    """``pairs.keep`` is a share of each learner's own pairs."""
    _, result = ran(sppo={"instructions": 6, "samples": 5}, pairs={"keep": 0.5})
    for name in ("ada", "bob"):
        mine = [p for p in result.pairs if p.chosen_member == name]
        rest = [p for p in mine if p.drop in ("", "margin_rank")]
        assert sum(not p.drop for p in mine) == -(-len(rest) // 2)


# The pair alone ----------------------------------------------------------------------------------


def group(*texts, cut=(), failed=()):
    replies = tuple(
        Response(f"r{at}", error=Failure("engine", "gone"))
        if at in failed
        else Response(f"r{at}", text=text, finish_reason="length" if at in cut else "stop")
        for at, text in enumerate(texts)
    )
    return Samples(Member("ada", "base"), ITEMS[0], replies)


def pair_of(one, wins, truncated="rejected_only"):
    chosen = config(pairs={"truncated": truncated})
    return _pair(one, Preferred(tuple(wins), (), {}), chosen, (7, 1))


def test_a_truncated_response_is_not_chosen_where_a_whole_one_beats_the_worst():
    one = group("A", "B", "C", cut=[0])
    pair = pair_of(one, [0.9, 0.5, 0.1])
    assert (pair.chosen, pair.rejected, pair.drop) == ("B", "C", "")
    assert (pair.chosen_probability, pair.rejected_probability) == (0.5, 0.1)
    assert pair_of(one, [0.9, 0.5, 0.1], "allow").chosen == "A"
    # No whole one is better than the worst.
    assert pair_of(group("A", "B", cut=[0]), [0.9, 0.1]).drop == "truncated"
    # Truncated ones may lose, unless they are to take no part.
    last = group("A", "B", "C", cut=[2])
    assert pair_of(last, [0.9, 0.5, 0.1]).rejected == "C"
    assert pair_of(last, [0.9, 0.5, 0.1], "drop").rejected == "B"


def test_of_several_alike_one_is_drawn_by_the_seed():
    one = group("A", "B", "C", "D")
    drawn = set()
    for seed in range(20):
        chosen = config()
        pair = _pair(one, Preferred((0.7, 0.7, 0.3, 0.3), (), {}), chosen, (seed, 1))
        drawn.add((pair.chosen, pair.rejected))
        assert pair == _pair(one, Preferred((0.7, 0.7, 0.3, 0.3), (), {}), chosen, (seed, 1))
    assert len(drawn) > 1
    assert {a for a, _ in drawn} == {"A", "B"}


def test_one_usable_response_makes_no_pair():
    assert pair_of(group("A", "", failed=[]), [None, None]).drop == "empty"
    assert pair_of(group("A", "B", failed=[1]), [None, None]).drop == "unscored"


WINS = st.lists(st.none() | st.floats(0, 1), min_size=2, max_size=6)


@given(WINS, st.sets(st.integers(0, 5)), st.sampled_from(["rejected_only", "drop", "allow"]))
@settings(max_examples=150, deadline=None)
def test_a_pair_that_trains_is_what_it_says(wins, cut, rule):
    one = group(*(f"text {at}" for at in range(len(wins))), cut=cut)
    pair = pair_of(one, wins, rule)
    if pair.drop:
        return
    texts = {f"text {at}": at for at in range(len(wins))}
    best, worst = texts[pair.chosen], texts[pair.rejected]
    assert (pair.chosen_probability, pair.rejected_probability) == (wins[best], wins[worst])
    assert wins[best] > wins[worst]
    assert rule == "allow" or best not in cut
    assert rule != "drop" or worst not in cut
    may_win = [
        w for at, w in enumerate(wins) if w is not None and (rule == "allow" or at not in cut)
    ]
    assert wins[best] == max(may_win)


# Rules and runs ----------------------------------------------------------------------------------


def test_rules():
    ada, bob = {"name": "ada", "engine": "scripted"}, {"name": "bob", "engine": "scripted"}
    pure = {**bob, "roles": ["judge"]}

    def found(members, **changes):
        given_ = {"pool": {"members": members}, "instructions": {"source": "builtin:skills"}}
        return [f for f in faults(config(**given_, **changes)) if not f.startswith("train.")]

    assert found([ada, bob]) == []
    assert found([ada, pure], sppo={"judge": "bob"}) == []
    (text,) = found([ada])
    assert text.startswith("sppo.judge: is empty, and nobody else has the role judge")
    (text,) = found([ada, bob], sppo={"judge": "ada"})
    assert "would judge its own responses" in text
    (text,) = found([ada, bob], sppo={"judge": "bod"})
    assert "did you mean bob?" in text
    (text,) = found([ada, bob], sppo={"sample": {"temperature": 0}})
    assert text.startswith("sppo.sample.temperature: is 0 (greedy)")
    (text,) = found([ada, bob], judge={"protocol": "moa"})
    assert text.startswith("judge.protocol: is moa, by which ada, bob cannot judge")
    assert found([ada, bob], judge={"protocol": "reward"}) == []


def test_probabilities_reach_the_learner(tmp_path):
    align(load(SMOKE / "sppo.yaml"), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        pairs = stored_pairs(ledger, 1)
    assert pairs
    assert all(pair.chosen_probability > pair.rejected_probability for pair in pairs)


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    settings_ = {
        "method": "sppo",
        "iterations": 1,
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": "ada"}, {"name": "bob", "roles": ["judge"]}],
        },
        "instructions": {"source": "builtin:skills", "limit": 2},
        "sppo": {"samples": 3, "sample": {"max_new_tokens": 8, "temperature": 1.0}},
        "judge": {"protocol": "likelihood"},
        "pairs": {"truncated": "allow"},
        "train": {"learning_rate": 1e-4, "beta": 0.001, "lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings_), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        pairs = stored_pairs(ledger, 1)
        (trained,) = ledger.query("SELECT * FROM trainings WHERE iteration = 1")
        assert trained["num_examples"] == len(pairs) > 0
        assert {member.name: member.version for member in ledger.members(1)} == {"ada": 1, "bob": 0}
    assert all(0 < p.rejected_probability < 0.5 < p.chosen_probability < 1 for p in pairs)
