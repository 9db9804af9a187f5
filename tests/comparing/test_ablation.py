"""What can be taken from Sparta: which ways there are, which are idle and why, and that all run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.comparing.ablating import ablate_to, ablation, sections
from phalanx.comparing.ablation import GROUPS, HURTS, study
from phalanx.comparing.lineup import JUDGE, Lineup, line_up
from phalanx.comparing.loading import read_comparison
from phalanx.comparing.reading import read_run
from phalanx.comparing.table import Missing, tabulate
from phalanx.config import Config, load
from phalanx.config.loading import shaped
from phalanx.config.schema import MemberSettings
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.progress import Silent
from tests.scripts import command
from tests.tiny import make_tiny

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "configs" / "ablate" / "smoke.yaml"
DEMO = ROOT / "configs" / "examples" / "demo-quick.yaml"
COMPARISONS = sorted(path.name for path in (ROOT / "configs" / "compare").glob("*.yaml"))


def members(*names: str, roles: tuple[str, ...] = ("contest", "judge", "learn")):
    return [MemberSettings(name=name, engine="scripted", roles=list(roles)) for name in names]


def shown(found) -> list[tuple[str, str]]:
    return [(one.name, "".join(role[0] for role in one.roles)) for one in found]


def test_pools_are_nested_and_a_judge_stays_where_none_would_be_left():
    pool = [*members("ada", "bob", "cora", "dan"), *members("eve", roles=("judge",))]
    assert shown(line_up(pool, Lineup())) == shown(pool)
    assert shown(line_up(pool, Lineup(first=3))) == [
        ("ada", "cjl"), ("bob", "cjl"), ("cora", "cjl"), ("eve", "j"),
    ]  # fmt: skip
    assert shown(line_up(pool, Lineup(first=2))) == [
        ("ada", "cjl"), ("bob", "cjl"), ("eve", "j"),
    ]  # fmt: skip
    assert shown(line_up(pool[:4], Lineup(first=3))) == shown(pool[:3])
    assert shown(line_up(pool[:4], Lineup(first=2))) == [
        ("ada", "cjl"), ("bob", "cjl"), ("cora", "j"),
    ]  # fmt: skip
    learners = members("ada", "bob", "cora", roles=("contest", "learn"))
    assert shown(line_up([*learners, *pool[3:4]], Lineup(first=3))) == [
        ("ada", "cl"), ("bob", "cl"), ("cora", "cl"), ("dan", "j"),
    ]  # fmt: skip
    assert shown(line_up(learners, Lineup(first=2))) == [("ada", "cl"), ("bob", "cl")]


def test_copies_and_the_one_judge_are_of_the_best():
    pool = [MemberSettings(name=n, adapter=f"a/{n}", model="m") for n in ("ada", "bob", "cora")]
    copies = line_up(pool, Lineup(copies=True), "bob")
    assert [(one.name, one.adapter) for one in copies] == [
        ("ada", "a/bob"), ("bob", "a/bob"), ("cora", "a/bob"),
    ]  # fmt: skip
    judged = line_up(pool, Lineup(one_judge=True), "cora")
    assert shown(judged) == [("ada", "cl"), ("bob", "cl"), ("cora", "cl"), (JUDGE, "j")]
    assert (judged[-1].adapter, judged[2].adapter) == ("a/cora", "a/cora")
    assert line_up(pool, Lineup(copies=True))[1].adapter == "a/ada"  # while it is planned
    with pytest.raises(ValueError, match="unpack"):
        line_up(pool, Lineup(copies=True), "nobody")


@given(st.integers(3, 9), st.integers(2, 9))
def test_a_smaller_pool_is_the_beginning_of_a_larger_one(size, first):
    pool = members(*(f"m{n}" for n in range(size)))
    names = [one.name for one in line_up(pool, Lineup(first=first)) if "contest" in one.roles]
    assert names == [one.name for one in pool][:first]


def test_every_way_is_run_or_says_why_not():
    config = load(DEMO)
    found = study(config)
    names = [one.name for one in (*found.ways, *found.idle)]
    assert len(names) == len(set(names))
    assert {one.group for one in (*found.ways, *found.idle)} == set(GROUPS)
    assert all(one.words and not one.idle for one in found.ways)
    idle = {one.name: one.idle for one in found.idle}
    assert idle["judge-likelihood"] == idle["aggregate-reputation"] == "it is so already"
    assert idle["fade-static"] == "it begins with the third iteration"
    assert idle["judge-reward"].startswith("refused:")
    assert idle["aggregate-mean"] == "no-reputation is the same"
    assert idle["no-margin-weights"] == "pairs have no weights here"
    ways = {one.name: one for one in found.ways}
    assert {"no-reputation", "no-match-making", "neither", "copies",
            "random-winners", "chosen-only", "own-pairs", "no-filters", "no-nll", "one-judge",
            "no-standardise", "pool-2", "pool-3", "reputation-elo"} <= set(ways)  # fmt: skip
    assert "nearest 3 are everybody else" in ways["no-match-making"].note
    assert ways["pool-2"].note == ways["pool-3"].note == "1 may judge a duel, of the whole 2"
    near = {one.name: one for one in study(load(DEMO, ["match.nearest=1"])).ways}
    assert near["no-match-making"].note == ""


def test_each_way_differs_from_the_whole_in_what_it_says():
    config = load(DEMO)
    for way in study(config).ways:
        settings = {key: value for key, value in way.settings.items() if key != "lineup"}
        assert "lineup" in way.settings or shaped(config, settings) != config, way.name


def test_what_two_kinds_of_settings_have_in_common_is_kept():
    """SFT learns by the optimiser of the pairs, and reputations begin where they did."""
    config = load(
        DEMO,
        ["train.lora.rank=32", "train.optimizer=rmsprop", "train.weight_decay=0.1",
         "train.max_grad_norm=0.5", "reputation.initial=50", "sft.accumulate=4"],
    )  # fmt: skip
    ways = {way.name: dict(way.settings) for way in study(config).ways}
    sft = shaped(config, ways["chosen-only"]).sft
    assert sft.model_dump() == config.train.model_dump(include=set(type(sft).model_fields))
    for rule in ("elo", "bradley_terry", "frozen"):
        changed = shaped(config, ways[f"reputation-{rule}"]).reputation
        assert (changed.rule, changed.initial) == (rule, 50)
        assert getattr(changed, "floor", 1) == 1


def test_scripts_without_rewards_give_none(tmp_path):
    config = load(SMOKE)
    assert "judge-reward" in {way.name for way in study(config).ways}
    script = tmp_path / "talk.yaml"
    script.write_text("sampling: [{when: ., reply: '7'}]\n", encoding="utf-8")
    pool = {"members": [{"name": n, "engine": "scripted", "model": f"script:{script}"}
                        for n in ("ada", "bob", "cora")]}  # fmt: skip
    idle = {one.name: one.idle for one in study(shaped(config, {"pool": pool})).idle}
    assert idle["judge-reward"] == f"the script script:{script} has no rewards"


def test_parts_that_a_configuration_does_not_have_are_not_taken_away():
    plain = load(
        DEMO,
        [
            "aggregate.rule=mean", "aggregate.standardise=false", "train.nll_weight=0",
            "match.random_probability=1", "train.scope=own", "judge.per_duel=1",
            "pairs={keep: 1, truncated: allow}", "reputation.rule=frozen",
        ],
    )  # fmt: skip
    idle = {one.name: one.idle for one in study(plain).idle}
    assert {"no-reputation", "no-match-making", "neither", "own-pairs",
            "no-filters", "no-nll", "one-judge-a-duel", "no-standardise", "reputation-frozen",
            "aggregate-mean"} <= set(idle)  # fmt: skip
    faded = load(DEMO, ["iterations=4", "judge.protocol=rubric", "reputation.fade=dynamic"])
    assert "no-fade" in {one.name for one in study(faded).ways}


def test_groups_and_names_choose_and_are_checked():
    config = load(DEMO)
    assert [one.name for one in study(config, ["pool"]).ways] == ["pool-2", "pool-3"]
    assert [one.name for one in study(config, only=["copies", "no-nll"]).ways] == [
        "no-nll", "copies",
    ]  # fmt: skip
    assert "aggregate-mean" in {one.name for one in study(config, ["aggregation"]).ways}
    with pytest.raises(ConfigError) as error:
        study(config, ["pools"], ["copy", "judge-likelihood"])
    text = str(error.value)
    assert "did you mean pool?" in text
    assert "did you mean copies?" in text
    assert "--only judge-likelihood: it is so already" in text
    with pytest.raises(ConfigError, match="what is taken apart here is sparta"):
        study(Config.model_validate({"method": "debate"}))


def test_all_ways_run_and_the_table_names_them(tmp_path):
    """On a scripted pool nobody learns, so that every way has the same scores, and says so."""
    made = ablate_to(
        str(SMOKE), [], tmp_path, title="ablation", groups=["components", "pool", "diversity"],
        seeds=[7], progress=Silent(),
    )  # fmt: skip
    assert made.failed == ()
    rows = {row.name: row for row in made.findings.rows}
    assert {"sparta", "frozen", "no-reputation", "pool-2", "copies", "one-judge"} <= set(rows)
    assert all(row.seeds == (7,) for row in rows.values())
    assert rows["no-reputation"].differences["sparta"].alike
    assert set(rows["no-reputation"].differences) == {"sparta", "frozen"}
    text = made.path.read_text(encoding="utf-8")
    for words in ("Against sparta", "Against the best initial member",
                  "What this configuration cannot lose", "No member was trained in any run",
                  "1 may judge a duel, of the whole 2"):  # fmt: skip
        assert words in text, words
    assert "Beside the paper" not in text
    trained = [replace(row, used={**row.used, "steps": 3.0}) for row in made.findings.rows]
    beside = sections(study(load(SMOKE)), replace(made.findings, rows=tuple(trained)))[-1]
    assert beside.title == "Beside the paper"
    assert "wrong in places" in " ".join(beside.lines)
    assert ("no-reputation", HURTS, "the same scores") in beside.tables[0].rows
    asked = {}
    for name in ("sparta", "pool-2", "one-judge", "no-match-making"):
        with Ledger(run_ledger_path(tmp_path / "seed-7" / name)) as ledger:
            asked[name] = {row["judge"] for row in ledger.query("SELECT judge FROM judgments")}
            duels = ledger.query("SELECT DISTINCT left, right FROM duels")
            contestants = {one for row in duels for one in (row["left"], row["right"])}
        assert contestants == (
            {"ada", "bob"} if name == "pool-2" else {"ada", "bob", "cora", "dan"}
        )
    assert asked["pool-2"] == {"cora"}
    assert asked["one-judge"] == {JUDGE}


def test_seeds_are_by_default_the_configuration_s_and_the_next():
    made = ablation("sparta", str(SMOKE), [], only=["copies"])
    assert made.seeds == (7, 8)
    assert [way.name for way in made.ways] == ["frozen", "sparta", "copies"]


def test_the_command_goes_on_and_adds_a_group(tmp_path):
    words = ("ablate", "sparta", SMOKE, "--out", tmp_path, "--seeds", "3", "--quiet")
    first = command(*words, "--only", "no-reputation")
    assert first.returncode == 0, first.stderr
    assert "no-reputation" in first.stdout
    assert "aggregate-median" not in first.stdout
    with Ledger(run_ledger_path(tmp_path / "seed-3" / "sparta")) as ledger:
        before = ledger.contents()
    second = command(*words, "--groups", "aggregation")
    assert second.returncode == 0, second.stderr
    assert "aggregate-median" in second.stdout
    assert "no-reputation" in second.stdout  # it has begun here, though nothing of it is asked now
    with Ledger(run_ledger_path(tmp_path / "seed-3" / "sparta")) as ledger:
        assert ledger.contents() == before
    plain = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert plain["against"] == ["sparta", "frozen"]
    plan = command(*words, "--plan", "--groups", "pool")
    assert plan.returncode == 0, plan.stderr
    assert "pool-2 (sparta): 3 members." in plan.stdout
    assert "4 runs with about " in plan.stdout
    other = command(*words, "match.duels=3", "--only", "no-reputation")
    assert other.returncode != 0
    assert "match.duels was" in other.stderr
    nobody = command("ablate", "moaa", SMOKE)
    assert nobody.returncode != 0
    assert "sparta" in nobody.stderr


def test_what_is_not_finished_is_said_beside_what_it_takes_away():
    chosen = study(load(SMOKE), only=["copies", "pool-2"])
    missing = tuple(Missing("copies", seed, "it failed") for seed in (1, 2))
    shown_ways = dict(sections(chosen, replace(tabulate([]), missing=missing))[0].tables[0].rows)
    assert shown_ways["copies"].endswith("; not finished in 2 seeds")
    assert "not finished" not in shown_ways["pool-2"]


@pytest.mark.slow
def test_the_arms_of_the_first_result_on_tiny_models(tmp_path):
    """One seed: who is best judges alone, SFT learns from as many examples, and items are fixed."""
    base = make_tiny(tmp_path / "base", seed=1)
    tiny = (
        f"pool.base={base}", "pool.recruit.examples_per_domain=2", "match.duels=6",
        "answer.max_new_tokens=4", "pairs.truncated=allow", "evaluate.max_new_tokens=2",
    )  # fmt: skip
    made = phalanx.compare(
        ROOT / "configs" / "compare" / "first-result.yaml", tiny, out=tmp_path / "out", seeds=[7],
        only=["frozen", "collective", "plain-sft", "one-judge"],
    )  # fmt: skip
    assert made.failed == ()
    assert (made.findings.num_dev, made.findings.num_test) == (29, 91)
    rows = {row.name: row.used for row in made.findings.rows}
    aligned = ("collective", "plain-sft", "one-judge")
    assert [rows[name]["responses"] for name in aligned] == [12] * 3
    assert rows["collective"]["judgments"] == 2 * rows["one-judge"]["judgments"] > 0
    assert rows["collective"]["steps"] == rows["plain-sft"]["steps"] > 0
    assert rows["frozen"]["responses"] == rows["frozen"]["steps"] == 0
    best = read_run(tmp_path / "out" / "seed-7" / "collective").best(0)
    with Ledger(run_ledger_path(tmp_path / "out" / "seed-7" / "one-judge")) as ledger:
        adapters = {member.name: member.adapter for member in ledger.members(0)}
    assert adapters[JUDGE] == adapters[best]
    assert len(set(adapters.values())) == 4


@pytest.mark.parametrize("path", COMPARISONS)
def test_every_shipped_comparison_can_be_run(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = read_comparison(Path("configs/compare") / path)
    assert len(found.ways) > 2
    assert found.base.evaluate.seed is not None


@pytest.mark.parametrize(
    "path", sorted(path.name for path in (ROOT / "configs" / "ablate").glob("*.yaml"))
)
def test_every_shipped_ablation_can_be_run(path):
    assert len(study(load(ROOT / "configs" / "ablate" / path)).ways) > 10
