"""Labels, weights, the rating against the baseline, and the interval over prompts."""

from __future__ import annotations

import math
import random

import choix
import numpy as np
import pytest

from phalanx.benchmarks.arena_hard import (
    LABELS,
    Game,
    arena_hard,
    battle_weight,
    rating_of,
    read_label,
    win_rate_of,
)
from phalanx.errors import ConfigError


def both(prompt: str, baseline_first: str | None, model_first: str | None) -> list[Game]:
    return [Game(prompt, False, baseline_first), Game(prompt, True, model_first)]


def random_games(n: int, seed: int) -> list[Game]:
    rng = random.Random(seed)
    return [
        game for i in range(n)
        for game in both(str(i), rng.choice(LABELS), rng.choice([*LABELS, None]))
    ]  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("version", ["v0.1", "v2.0"])
def test_reads_every_label(label, version):
    text = f"I compare both.\n\nMy final verdict is: [[{label}]]."
    assert read_label(text, version=version).label == label


@pytest.mark.parametrize(("text", "reason"), [
    ("", "no verdict"), ("A is better: A>B", "no verdict"), ("[A>B]", "no verdict"),
    ("[[A > B]]", "no verdict"), ("[[a>b]]", "no verdict"), ("[[C>B]]", "no verdict"),
    ("[[A>B]] or [[A=B]]", "several verdicts: A>B, A=B"), ("[[A<B]]", "unknown label 'A<B'"),
    ("[[A]]", "unknown label 'A'"), ("[[A>>>B]]", "unknown label 'A>>>B'"),
])  # fmt: skip
def test_the_first_version_reads_strictly(text, reason):
    found = read_label(text)
    assert (found.label, found.reason) == (None, reason)


def test_the_same_verdict_twice_is_one():
    assert read_label("[[B>>A]], that is [[B>>A]]").label == "B>>A"


@pytest.mark.parametrize(("text", "label"), [
    ("[[A>B]] ... no: [[b>>a]]", "B>>A"), ("so [a=b]", "A=B"), ("[[A>B]] and [B>A]", "A>B"),
    ("[[A<B]]", None), ("nothing", None),
])  # fmt: skip
def test_the_second_version_takes_the_last(text, label):
    assert read_label(text, version="v2.0").label == label


def test_scores_follow_the_side():
    scores = [Game("p", True, label).score for label in LABELS]
    assert scores == [1, 1, 0.5, 0, 0]
    assert [Game("p", False, label).score for label in LABELS] == [0, 0, 0.5, 1, 1]
    assert Game("p", True, None).score is None


def test_weights_by_hand():
    """A clear win of the model (3), a loss (1), a tie (1/2 of 1), one game unread."""
    games = [*both("p", "B>>A", "B>A"), *both("q", "A=B", None)]
    found = arena_hard(games, seed=0, draws=50)
    assert found.win_rate == pytest.approx(3.5 / 5)
    assert (found.num_prompts, found.num_games, found.num_missing) == (2, 4, 1)
    assert found.rating == pytest.approx(1000 + 400 * math.log10(0.7 / 0.3))
    plain = arena_hard(games, seed=0, draws=50, clear_weight=1)
    assert plain.win_rate == pytest.approx(1.5 / 3)
    assert plain.rating == pytest.approx(1000)


def test_an_unread_game_is_dropped_alone():
    whole = arena_hard([*both("p", "B>A", None), *both("q", "A>B", "B>A")], seed=0, draws=50)
    assert whole.win_rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", range(3))
def test_the_rating_is_the_bradley_terry_fit(seed):
    """Two models fitted together with the baseline by choix get the same win rates."""
    games = {1: random_games(60, seed), 2: random_games(40, seed + 100)}
    data = []
    for model, rows in games.items():
        for game in rows:
            if game.label is None:
                continue
            score = game.score
            assert score is not None
            # A tie is half a win each way, so that every win counts twice.
            times = int(2 * battle_weight(game.label))
            data += [(model, 0)] * int(times * score) + [(0, model)] * int(times * (1 - score))
    strengths = choix.ilsr_pairwise(3, data)
    for model, rows in games.items():
        found = arena_hard(rows, seed=0, draws=10)
        fitted = 1 / (1 + np.exp(strengths[0] - strengths[model]))
        assert found.win_rate == pytest.approx(fitted, abs=1e-6)
        assert win_rate_of(found.rating) == pytest.approx(found.win_rate, abs=1e-12)


def test_prompts_are_resampled_not_games():
    """Two games that always agree say no more than one: the error is that of the prompts."""
    rng = random.Random(1)
    games = []
    for i in range(400):
        won = rng.random() < 0.5
        games += both(str(i), *(("B>A", "A>B") if won else ("A>B", "B>A")))
    found = arena_hard(games, seed=2, draws=1000)
    assert found.standard_error == pytest.approx(math.sqrt(0.25 / 400), rel=0.1)
    assert found.interval.low < found.win_rate < found.interval.high


def test_the_seed_decides():
    games = random_games(50, 0)
    assert arena_hard(games, seed=1, draws=50) == arena_hard(games, seed=1, draws=50)
    assert arena_hard(games, seed=1, draws=50) != arena_hard(games, seed=2, draws=50)


def test_position_bias_shows():
    found = arena_hard([g for i in range(9) for g in both(str(i), "A>B", "A>>B")], seed=0)
    assert found.first_slot == 1
    assert arena_hard(both("p", "A=B", "A=B"), seed=0, draws=5).first_slot is None


def test_ends_of_the_scale():
    assert rating_of(1) == math.inf
    assert rating_of(0) == -math.inf
    assert win_rate_of(math.inf) == 1
    assert win_rate_of(-math.inf) == 0
    with pytest.raises(ValueError, match="between 0 and 1"):
        rating_of(1.01)


def test_faulty_games_are_refused():
    games = [Game("p", True, "A>B"), Game("p", True, "A<B"), Game("p", False, None)]  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        arena_hard(games, seed=0)
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="none of 2 games has a verdict"):
        arena_hard(both("p", None, None), seed=0)
    with pytest.raises(ValueError, match="must be positive"):
        arena_hard(both("p", "A>B", "A>B"), seed=0, clear_weight=0)
