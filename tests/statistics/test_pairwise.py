from __future__ import annotations

import math

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.statistics import Battle, bootstrap, bradley_terry, by_cluster


def played(rng: np.random.Generator, members: int, battles: int) -> list[tuple[int, int]]:
    """(winner, loser) pairs of members whose strengths are half a unit apart."""
    pairs = [tuple(rng.permutation(members)[:2].tolist()) for _ in range(battles)]
    chances = [1 / (1 + math.exp(-(left - right) / 2)) for left, right in pairs]
    draws = rng.random(battles)
    return [
        (left, right) if draw < chance else (right, left)
        for (left, right), chance, draw in zip(pairs, chances, draws, strict=True)
    ]


def styled(seed: int, battles: int) -> list[Battle]:
    """Two equals and a better third; ``long`` writes more, and the judge likes it."""
    rng = np.random.default_rng(seed)
    truth = {"long": 0.0, "plain": 0.0, "good": 0.8}
    more = {"long": 1.0, "plain": 0.0, "good": 0.0}
    found = []
    for _ in range(battles):
        left, right = rng.permutation(list(truth))[:2].tolist()
        length = more[left] - more[right] + rng.normal()
        odds = truth[left] - truth[right] + 1.2 * length
        won = float(rng.random() < 1 / (1 + math.exp(-odds)))
        found.append(Battle(left, right, won, covariates=(length,)))
    return found


@pytest.mark.parametrize("members", [2, 5, 12])
def test_strengths_agree_with_choix(members: int) -> None:
    wins = played(np.random.default_rng(members), members, 60 * members)
    found = bradley_terry(Battle(f"m{won:02}", f"m{lost:02}", 1.0) for won, lost in wins)
    theirs = choix.ilsr_pairwise(members, wins, tol=1e-10)
    assert list(found.strengths.values()) == pytest.approx(theirs, abs=1e-6)
    assert sum(found.strengths.values()) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("penalty", [0.02, 1.0, 30.0])
def test_penalised_strengths_agree_with_choix(penalty: float) -> None:
    wins = [(0, 1), (0, 1), (1, 2), (0, 2)]  # 0 never lost: infinite without a penalty
    found = bradley_terry((Battle(str(won), str(lost), 1.0) for won, lost in wins), penalty=penalty)
    theirs = choix.opt_pairwise(3, wins, alpha=penalty / 2, tol=1e-12)
    assert list(found.strengths.values()) == pytest.approx(theirs, abs=1e-5)


def test_two_members_by_hand() -> None:
    # 3 wins, 2 ties, 1 defeat: 4 of 6, log-odds log 2.
    battles = [Battle("a", "b", score) for score in (1, 1, 1, 0.5, 0.5, 0)]
    found = bradley_terry(battles)
    assert found.strengths["a"] - found.strengths["b"] == pytest.approx(math.log(2))
    assert found.win_rate("a", "b") == pytest.approx(2 / 3)
    assert found.win_rate("b", "a") == pytest.approx(1 / 3)
    elo = found.elo("b")
    assert elo["b"] == 1000
    assert 1 / (1 + 10 ** ((elo["b"] - elo["a"]) / 400)) == pytest.approx(2 / 3)


@given(
    games=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from([0, 0.5, 1]), st.sampled_from([1, 3]),
            st.booleans(),
        ),
        max_size=60,
    )
)  # fmt: skip
@settings(deadline=None, max_examples=50)
def test_with_one_baseline_the_fit_is_the_weighted_mean(games) -> None:
    games = [*games, *((name, 0.5, 1, False) for name in "abc")]
    battles = [
        Battle("base", name, 1 - score, weight) if turned else Battle(name, "base", score, weight)
        for name, score, weight, turned in games
    ]
    found = bradley_terry(battles)
    for name in "abc":
        rows = [(score, weight) for who, score, weight, _ in games if who == name]
        mean = sum(score * weight for score, weight in rows) / sum(weight for _, weight in rows)
        assert found.win_rate(name, "base") == pytest.approx(mean, abs=1e-9)


def test_a_weight_is_so_many_battles_and_sides_do_not_matter() -> None:
    battles = styled(3, 80)
    heavy = [battle._replace(weight=3.0) for battle in battles[:20]]
    found = bradley_terry([*heavy, *battles[20:], battles[0]._replace(weight=0.0)])
    copies = bradley_terry([*battles[:20] * 3, *battles[20:]])
    turned = bradley_terry(
        Battle(b.right, b.left, 1 - b.score, b.weight, tuple(-x for x in b.covariates))
        for b in [*heavy, *battles[20:]]
    )
    for other in (copies, turned):
        assert other.strengths == pytest.approx(dict(found.strengths), abs=1e-8)
        assert other.effects == pytest.approx(found.effects, abs=1e-8)


def test_covariates_take_length_out() -> None:
    battles = styled(0, 6000)
    naive = bradley_terry(battle._replace(covariates=()) for battle in battles)
    assert naive.win_rate("long", "plain") > 0.65
    fair = bradley_terry(battles)
    assert fair.win_rate("long", "plain") == pytest.approx(0.5, abs=0.04)
    assert fair.win_rate("good", "plain") == pytest.approx(1 / (1 + math.exp(-0.8)), abs=0.03)
    assert fair.effects == pytest.approx((1.2,), abs=0.1)


def test_covariates_agree_with_a_logistic_regression() -> None:
    models = pytest.importorskip("statsmodels.discrete.discrete_model")
    battles = styled(1, 400)
    names = ["good", "long", "plain"]
    columns = [
        [(battle.left == name) - (battle.right == name) for name in names[1:]]
        + list(battle.covariates)
        for battle in battles
    ]
    theirs = models.Logit([battle.score for battle in battles], np.array(columns, dtype=float))
    fit = theirs.fit(disp=0, tol=1e-12)
    found = bradley_terry(battles)
    ours = [found.strengths[name] - found.strengths["good"] for name in names[1:]]
    assert [*ours, *found.effects] == pytest.approx(fit.params, abs=1e-7)


def test_prompts_are_resampled_and_the_fit_repeated() -> None:
    # Both games of a prompt say the same: rows look twice as certain as they are.
    rng = np.random.default_rng(5)
    scores = rng.choice([0.0, 1.0], size=120, p=[0.4, 0.6]).tolist()
    battles = [Battle("a", "base", score) for score in scores for _ in range(2)]
    prompts = by_cluster(battles, [number for number in range(120) for _ in range(2)])

    def rate(groups) -> float:
        rows = [battle for group in groups for battle in group]
        return bradley_terry(rows, penalty=1e-6).win_rate("a", "base")

    value, interval = bootstrap(prompts, rate, seed=0, draws=300)
    mean = sum(scores) / 120
    assert value == pytest.approx(mean, abs=1e-6)
    half = 1.96 * math.sqrt(mean * (1 - mean) / 120)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.15)


@pytest.mark.parametrize(
    ("battles", "message"),
    [
        ([], "no battle"),
        ([Battle("a", "b", 1.0, weight=0.0)], "no battle"),
        ([Battle("a", "a", 1.0)], "against itself"),
        ([Battle("a", "b", 1.5)], "score 1.5"),
        ([Battle("a", "b", math.nan)], "score nan"),
        ([Battle("a", "b", 1.0, weight=-1.0)], "weight -1.0"),
        ([Battle("a", "b", 1.0), Battle("a", "b", 0.0, 1.0, (1.0,))], "other covariates"),
        ([Battle("a", "b", 1.0, 1.0, (math.inf,))], "not finite"),
        ([Battle("a", "b", 1.0)] * 9, "do not lead both ways"),
        ([Battle("a", "b", 0.5), Battle("c", "d", 0.5), Battle("d", "a", 0.5),
          Battle("z", "a", 1.0)], "^z: wins and defeats"),
        ([Battle("a", "b", 0.5, 1.0, (2.0,))] * 5, "leave it out"),
        ([Battle("a", "b", 0.5, 1.0, (0.0,))] * 5, "leave it out"),
        ([Battle("a", "b", float(x > 0), 1.0, (float(x),)) for x in (-2, -1, 1, 2)],
         "decide every battle"),
    ],
)  # fmt: skip
def test_bradley_terry_refuses(battles, message) -> None:
    with pytest.raises(ValueError, match=message):
        bradley_terry(battles)


def test_a_penalty_keeps_everything_finite() -> None:
    decided = [Battle("a", "b", float(x > 0), 1.0, (float(x),)) for x in (-2, -1, 1, 2)]
    found = bradley_terry(decided, penalty=0.1)
    assert found.effects[0] > 0.5
    apart = bradley_terry([Battle("a", "b", 1.0)] * 9, penalty=1e-4)
    assert 0.99 < apart.win_rate("a", "b") < 1
    with pytest.raises(ValueError, match="penalty must be"):
        bradley_terry(decided, penalty=-1.0)
