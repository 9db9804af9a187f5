"""Rules of warnings, rates and time left, what judges favour: from what a ledger has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from bench import big_ledger

from phalanx import thresholds
from phalanx.config.schema import Config
from phalanx.errors import BudgetError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.holding import holder
from phalanx.report import html, markdown
from phalanx.report.facts import gather
from phalanx.report.health import TRAINING_RULES, signs
from phalanx.report.pace_views import about, left_line, phases_view, rate, working_line
from phalanx.report.records import Leaning, TrainingFacts
from tests.report.test_renderers import Page


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    folder = big_ledger.make(tmp_path_factory.mktemp("big") / "run", 240)
    with Ledger(run_ledger_path(folder)) as ledger:
        return gather(ledger)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    return big_ledger.make(tmp_path_factory.mktemp("half") / "run", 120, finished=False)


def training(count: int = 20, **series: float | list[float]) -> TrainingFacts:
    """A training of sound signals, but for those given."""
    sound = {
        "loss": 0.6, "rewards/margins": 0.3, "rewards/accuracies": 0.6, "kl/chosen": 0.02,
        "grad_norm": 1.0, "length/chosen": 100.0, "length/rejected": 100.0,
    }  # fmt: skip
    values = {
        name: value if isinstance(value, list) else [value] * count
        for name, value in {**sound, **series}.items()
    }
    steps = tuple({name: row[n] for name, row in values.items()} for n in range(count))
    return TrainingFacts(1, "ada", 1, 100, {}, 9.0, steps)


BROKEN = {
    "max_kl": {"kl/chosen": 0.8},
    "chosen_falls": {"kl/chosen": -0.2},
    "accuracy_at_once": {"rewards/accuracies": 0.99},
    "margin_flat": {"rewards/margins": 0.001},
    "loss_zero": {"loss": 0.01},
    "gradient_jump": {"grad_norm": [1.0] * 10 + [40.0] + [1.0] * 9},
    "length_gap": {"length/chosen": 200.0},
    "clipped": {"clip_ratio/region_mean": 0.5},
}


def fired(one: TrainingFacts) -> set[str]:
    return {rule.name for rule in TRAINING_RULES if rule.sign(one)}


def test_sound_trainings_fire_nothing():
    assert fired(training()) == set()
    assert set(BROKEN) == {rule.name for rule in TRAINING_RULES}


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_fires_on_its_signal_alone_and_says_number_and_threshold(name):
    broken = training(**BROKEN[name])
    assert fired(broken) == {name}
    (rule,) = [rule for rule in TRAINING_RULES if rule.name == name]
    sign = rule.sign(broken)
    assert sign.where == "ada, iteration 1"
    assert sign.value != sign.threshold
    assert sign.value in sign.sentence
    assert sign.threshold in sign.sentence


def test_where_all_trainings_are_short_the_page_does_not_say_that_all_is_well(big):
    short = replace(big.trainings[0], steps=big.trainings[0].steps[:3])
    quiet = replace(big, trainings=(short,), judges=(), spending=())
    said = "No training had the 8 steps"
    assert said in html.render(quiet)
    assert said not in html.render(replace(quiet, trainings=big.trainings))


def test_short_trainings_say_nothing():
    short = {n: v for n, v in BROKEN.items() if n != "gradient_jump"}
    for series in short.values():
        assert fired(training(thresholds.MIN_STEPS - 1, **series)) == set()


def test_advice_names_settings_that_exist():
    known = Config.model_json_schema()["$defs"]
    names = {field for section in known.values() for field in section.get("properties", {})}
    words = " ".join(rule.advice for rule in TRAINING_RULES)
    settings = re.findall(r"\b(?:train|pairs|grpo|judge)\.(\w+)", words)
    assert len(settings) > 4
    assert set(settings) <= names


def test_a_member_that_forgets_is_told_on_the_page(big):
    found = [sign for sign in signs(big) if sign.name == "chosen_falls"]
    assert {sign.where.split(",")[0] for sign in found} == {"eve"}
    page = Page(html.render(big)).text
    assert "even the chosen responses became less likely" in page
    assert "0.1 nats a token" in page
    assert "chosen responses became less likely" in markdown.render(big)


def test_a_judge_that_favours_its_family_is_found(big):
    cora = next(judge for judge in big.judges if judge.member == "cora")
    assert cora.own is None, "no member judges its own duel here"
    assert cora.family.n > 20
    assert next(judge for judge in big.judges if judge.member == "eve").family is None
    partial = replace(cora, family=Leaning(0.9, 400, 0.5))
    names = [s.name for s in signs(replace(big, judges=(partial,), trainings=(), spending=()))]
    assert names == ["favours_family"]
    fair = replace(cora, family=Leaning(0.55, 400, 0.5))
    assert not signs(replace(big, judges=(fair,), trainings=(), spending=()))


def test_what_judges_favour_is_what_a_slow_count_finds(half):
    with Ledger(run_ledger_path(half)) as ledger:
        judges = {judge.member: judge for judge in gather(ledger, tables=False).judges}
        rows = ledger.query(
            "SELECT j.judge, j.score_left AS a, j.score_right AS b, d.left, d.right, "
            "length(l.text) AS m, length(r.text) AS n FROM judgments j JOIN duels d ON "
            "d.id = j.duel JOIN responses l ON l.id = d.left_response JOIN responses r ON "
            "r.id = d.right_response WHERE j.score_left != j.score_right"
        )
    kin = {name: family for name, (family, _, _) in big_ledger.POOL.items()}
    for name, judge in judges.items():
        mine = [row for row in rows if row["judge"] == name]
        lengths = [(row["a"] > row["b"]) == (row["m"] > row["n"]) for row in mine
                   if row["m"] != row["n"]]  # fmt: skip
        assert judge.num_lengths == len(lengths)
        assert judge.longer == pytest.approx(sum(lengths) / len(lengths))
        sides = [(kin[row["left"]] == kin[name], kin[row["right"]] == kin[name], row)
                 for row in mine]  # fmt: skip
        won = [(row["a"] > row["b"]) == left for left, right, row in sides if left != right]
        if judge.family is None:
            assert not won
        else:
            assert judge.family.n == len(won)
            assert judge.family.share == pytest.approx(sum(won) / len(won))


def test_length_drift_fires_either_way(big):
    def drifted(tokens: int) -> list[str]:
        spent = {"phase": "answer", "iteration": 1, "requests": 10, "answered": 10}
        first = replace(big.spending[0], **spent, tokens_out=1000)
        # Requests that failed are no short responses.
        last = replace(first, iteration=2, requests=40, tokens_out=tokens)
        quiet = replace(big, spending=(first, last), judges=(), trainings=())
        return [sign.name for sign in signs(quiet)]

    assert drifted(1400) == []
    assert drifted(1600) == ["length_drift"]
    assert drifted(600) == ["length_drift"]


def test_the_phase_under_way_has_a_rate_and_what_is_left(half):
    with Ledger(run_ledger_path(half)) as ledger:
        facts = gather(ledger, tables=False)
    now = facts.pace.current
    assert (now.iteration, now.phase, now.done, now.owed) == (2, "answer", 60, 60)
    assert now.per_second > 0
    assert now.left == pytest.approx(now.owed / now.per_second)
    assert facts.pace.left > 1000, "another iteration with its trainings"
    assert "No process" in working_line(facts)
    assert left_line(facts) == "", "nobody is at work"
    going = replace(facts, pace=replace(facts.pace, holder=4711))
    assert "Process 4711" in working_line(going)
    assert left_line(going).startswith("About ")
    assert phases_view(facts).rows[-1][0] == "2 answer (now)"


def test_a_rate_is_that_of_the_last_minute(tmp_path):
    folder = big_ledger.make(tmp_path / "run", 120, finished=False)
    with Ledger(run_ledger_path(folder), writable=True) as ledger, ledger.transaction():
        ids = [row["id"] for row in ledger.query(
            "SELECT id FROM responses WHERE iteration = 2 ORDER BY rowid")]  # fmt: skip
        for place, one in enumerate(ids):  # one batch of ten every five seconds; older ones slower
            at = 10_000.0 + (place // 10) * 5.0 - (1000.0 if place < 20 else 0.0)
            ledger._db.execute("UPDATE responses SET at = ? WHERE id = ?", (at, one))
    with Ledger(run_ledger_path(folder)) as ledger:
        assert gather(ledger, tables=False).pace.current.per_second == pytest.approx(2.0)


def test_who_holds_a_run_is_told_without_its_lock(tmp_path):
    folder = tmp_path / "run"
    assert holder(folder) is None
    with Ledger(run_ledger_path(folder), writable=True):
        assert holder(folder) == os.getpid()
    assert holder(folder) is None
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    (folder / "lock").write_text(gone.stdout)
    assert holder(folder) is None, "killed: its number is left"
    (folder / "lock").write_text(str(os.getpid()))
    os.utime(folder / "lock", (time.time() - 10**9,) * 2)
    assert holder(folder) is None, "a later process with the same number"


def test_how_a_start_ended_is_known_until_something_new_is_recorded(tmp_path):
    from phalanx.asking import stop_is_recorded

    folder = big_ledger.make(tmp_path / "run", 20, finished=False, huge=False)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        with pytest.raises(BudgetError), stop_is_recorded(ledger):
            raise BudgetError("too dear")
        ended = gather(ledger, tables=False)
        assert ended.pace.exit_code == 3
        assert ended.pace.events[-1].text == "too dear"
        assert ended.progress.last_error == "too dear"
        ledger.event("note", "goes on")
        assert gather(ledger, tables=False).pace.exit_code is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (12.345, "12.3/s"), (0.5, "30.0/min"), (0.004, "14.4/h"), (1e-6, "0.0/h")],
)
def test_rates(value, text):
    assert rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (12.3, "12 s"), (125, "2 min"), (1500, "25 min"), (7500, "2 h 05 min")],
)
def test_times_left_are_no_finer_than_known(seconds, text):
    assert about(seconds) == text


def test_the_page_stays_small_however_large_the_pool_and_long_the_run(big):
    """Sections alone, without the browser's data: below 1 MB for hundreds of everything."""
    names = [f"member-{n:03d}" for n in range(200)]
    line = big.reputations[0]
    many = tuple((place, 100.0 + place % 7) for place in range(600))
    facts = replace(
        big,
        members=tuple(replace(big.members[0], name=name) for name in names),
        reputations=tuple(replace(line, member=name, points=many, deviations=(1.0,) * 600)
                          for name in names),
        encounters=tuple(replace(big.encounters[0], member=a, opponent=b)
                         for a in names for b in names if a != b),
        judges=tuple(replace(big.judges[0], member=name) for name in names),
        trainings=tuple(replace(big.trainings[0], member=name, iteration=number)
                        for number in range(1, 11) for name in names),
    )  # fmt: skip
    assert sum(len(one.html.encode()) for one in html.sections(facts)) < 1_000_000
