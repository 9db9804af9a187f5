"""A comparison's file: what it means, and everything that can be wrong with it, at once."""

from __future__ import annotations

import json

import pytest

from phalanx.cli.base import numbers
from phalanx.comparing.loading import comparison_of, nested, read_comparison
from phalanx.comparing.spec import ComparisonFile
from phalanx.errors import ConfigError
from tests.comparing.files import ROOT, base, comparison

SMOKE = ROOT / "configs" / "compare" / "smoke.yaml"
SKILLS = {"source": "builtin:skills"}


def test_the_method_is_the_name_where_it_is_one_and_else_the_base_s():
    made = comparison({"rejection_sampling": {}, "uniform": {"without": ["reputation"]}})
    found = {way.name: (way.config.method, way.config.without) for way in made.ways}
    assert found == {
        "frozen": ("frozen", []),
        "rejection_sampling": ("rejection_sampling", []),
        "uniform": ("sparta", ["reputation"]),
    }


def test_frozen_is_added_and_runs_first_in_every_seed(tmp_path):
    made = comparison({"sparta": {}, "sppo": {}}, seeds=[3, 1])
    arms = made.all_arms(tmp_path)
    assert [(arm.seed, arm.name) for arm in arms] == [
        (seed, name) for seed in (3, 1) for name in ("frozen", "sparta", "sppo")
    ]
    assert {arm.config.seed for arm in arms if arm.seed == 3} == {3}
    assert len({arm.folder for arm in arms}) == len(arms)


def test_who_the_others_are_compared_with_runs_first(tmp_path):
    made = comparison({"sppo": {}, "sparta": {}}, against="sparta")
    assert [arm.name for arm in made.all_arms(tmp_path)] == ["sparta", "frozen", "sppo"]


def test_a_misspelt_method_is_not_the_base_s():
    with pytest.raises(ConfigError) as error:
        comparison({"spo": {}, "debat": {"debate.rounds": 3}, "other": {}, "sparta-2": {}})
    text = str(error.value)
    assert "methods.spo: is no method (did you mean sppo?" in text
    assert "methods.debat: is no method (did you mean debate?" in text
    assert "methods.other: is no method (known: sparta" in text
    assert "methods.sparta-2: is no method" in text
    made = comparison({"sparta-2": {"match.nearest": 2}, "debat": {"method": "debate"}})
    assert [way.config.method for way in made.ways] == ["frozen", "sparta", "debate"]


def test_settings_are_nested_or_dotted_and_layered():
    made = comparison(
        {"a": {"match.duels": 4, "judge": {"protocol": "pairwise"}}, "b": {"match": {"duels": 5}}}
    )
    a, b = made.ways[1:]
    assert (a.config.match.duels, a.config.judge.protocol) == (4, "pairwise")
    assert (b.config.match.duels, b.config.judge.protocol) == (5, "expected")


def test_another_reputation_rule_brings_its_own_keys():
    (_, way) = comparison({"elo": {"reputation": {"rule": "elo"}}}).ways
    assert way.config.reputation.rule == "elo"


def test_items_are_the_same_for_all_seeds_and_instructions_are_not(tmp_path):
    from phalanx.evaluate import load_tasks

    one, two = comparison({"sparta": {}}, seeds=[1, 2]).all_arms(tmp_path)[1::2]
    assert (one.seed, two.seed) == (1, 2)
    assert load_tasks(one.config) == load_tasks(two.config)


def test_a_file_beside_the_comparison_is_found(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "i", "instruction": "Name a prime."}\n', "utf-8")
    made = comparison({"a": {"instructions.source": "rows.jsonl"}}, folder=tmp_path)
    assert made.ways[1].config.instructions.source == str(tmp_path / "rows.jsonl")


def test_a_key_given_twice_is_refused(tmp_path):
    for settings in (
        {"match.duels": 3, "match": {"duels": 4}},
        {"match": {"duels": 4}, "match.duels": 3},
        {"match": 1, "match.duels": 3},
    ):
        with pytest.raises(ConfigError):
            nested(settings, tmp_path)
    assert nested({"match.duels": 3, "match": {"nearest": 4}}, tmp_path) == {
        "match": {"duels": 3, "nearest": 4}
    }


def test_every_fault_of_every_method_is_in_one_message():
    with pytest.raises(ConfigError) as error:
        comparison(
            {
                "sparta": {"match.duelz": 3},
                "sppo": {"sppo": {"samples": 1}},
                "b/c": {},
                "pool": {},
                "mine": {"seed": 3, "pool": {"members": []}, "lineup": {"frist": 2}},
            },
            against="spata",
            seeds=[1, 1, -2],
        )
    text = str(error.value)
    for words in (
        "c.yaml: methods.sparta: match.duelz: unknown key; did you mean duels?",
        "c.yaml: methods.sppo: sppo.samples: expected",
        "methods: 'b/c' names a folder",
        "methods: 'pool' is the folder of the recruits",
        "against: no method is named 'spata'; did you mean sparta?",
        "seeds: one stands twice",
        "seeds: -2 is none",
        "methods.mine: lineup.frist",
    ):
        assert words in text, text
    assert "override" not in text


def test_what_all_share_cannot_be_changed_by_one():
    keys = {"seed": 3, "evaluate.max_new_tokens": 4, "pool": {"members": []}}
    machinery = {"vllm.arguments": ["-q"], "endpoints": [], "resources.batch_size": 2}
    with pytest.raises(ConfigError) as error:
        comparison({"sparta": keys | machinery})
    for key in ("seed", "evaluate", "pool", "vllm", "endpoints", "resources"):
        assert f"methods.sparta: {key}: " in str(error.value)


def test_a_budget_says_the_size_so_nothing_else_does(tmp_path):
    with pytest.raises(ConfigError, match=r"match\.duels: the budget says how many"):
        comparison({"sparta": {"match": {"duels": 4}}}, budget={"responses": 12})
    section = tmp_path / "match.yaml"
    section.write_text("duels: 5\n", encoding="utf-8")
    for override in ("match.duels=5", "match={duels: 5}", f"match={section}"):
        with pytest.raises(ConfigError, match=r"methods\.sparta: match\.duels: the budget says"):
            read_comparison(SMOKE, [override])
    section.write_text("nearest: 2\n", encoding="utf-8")
    assert read_comparison(SMOKE, [f"match={section}"]).base.match.nearest == 2


def test_the_comparison_needs_items_of_both_splits():

    with pytest.raises(ConfigError, match=r"evaluate\.tasks"):
        comparison({"sparta": {}}, base=base(evaluate={"tasks": []}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: {}\nmethods: {sparta: }\nbudgets: {responses: 3}\n", "did you mean budget?"),
        ("base: {}\nmethods: {sparta: }\nbudget: {responses: 3, steps: 4}\n", "exactly one of"),
        ("base: {}\nmethods: {sparta: }\nbudget: {respones: 3}\n", "did you mean responses?"),
        ("base: {}\nmethods: {}\n", ":2: methods"),
        ("methods: {sparta: }\n", "base: this key is missing"),
        ("base: {}\nmethods: {sparta: }\nseeds: [one]\n", ":3: seeds.1: expected a whole number"),
        ("base: {}\nmethods: {sparta: }\nseeds: []\n", "whole numbers that is not empty, got a"),
        ("base: {}\nmethods: {}\n", "expected a mapping that is not empty, got a mapping"),
        ("base: {}\nmethods: {sparta: 3}\n", ":2: methods.sparta: expected a mapping, got the"),
        ("base: [a]\nmethods: {sparta: }\n", "c.yaml:1: base: expected text or a mapping, got a"),
        ("base: {}\nmethods: {sparta: }\nbudget: 400\n", "budget: expected a mapping of keys, got"),
        (
            "base: {}\nmethods: {sparta: }\nbudget: {responses: 100000000000000000000000}\n",
            "expected a whole number from 1 to 1,000,000,000,000, got the number 1000",
        ),
        ("base: {seed: 3}\nmethods: {sparta: }\n", "c.yaml:1: base.seed: the runs have the seeds"),
        ("base: {output: x}\nmethods: {sparta: }\n", "base.output: every run has a folder"),
        ("base: preset:spart\nmethods: {sparta: }\n", "did you mean sparta?"),
        ("base: nothing.yaml\nmethods: {sparta: }\n", "no such file"),
        ("method: sparta\npool: {members: []}\n", "c.yaml: is the configuration of a run"),
    ],
)
def test_what_is_wrong_with_the_file_is_said_with_its_line(tmp_path, text, words):
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_comparison(path)
    assert words in str(error.value)


def test_faults_below_a_method_have_their_line(tmp_path):
    text = (
        f"base: {json.dumps(base())}\n"
        "methods:\n"
        "  sparta:\n"
        "    match.duelz: 3\n"
        "  mine:\n"
        "    judge:\n"
        "      protocol: expected\n"
        "      quorun: 2\n"
        "    lineup: {frist: 2}\n"
        "  sppo: {lineup: }\n"
        "  spin: {lineup: yes, seed: 3}\n"
        "  debate: {lineup: {first: 1}}\n"
    )
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_comparison(tmp_path / "c.yaml")
    said = str(error.value)
    for words in (
        "c.yaml:4: methods.sparta: match.duelz: unknown key; did you mean duels?",
        "c.yaml:9: methods.mine: lineup.frist: unknown key; did you mean first?",
        "c.yaml:10: methods.sppo: lineup: expected a mapping of keys, got nothing",
        "c.yaml:11: methods.spin: lineup: expected a mapping of keys, got the text 'yes'",
        "c.yaml:12: methods.debate: lineup.first: expected a whole number of at least 2",
    ):
        assert words in said, said
    again = text.replace("    lineup: {frist: 2}\n", "")
    (tmp_path / "c.yaml").write_text(again, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"c\.yaml:8: methods\.mine: judge\.quorun: unknown key"):
        read_comparison(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.yaml", "methods.mine.yaml: a run has files of its name with .yaml and .log"),
        ("mine.LOG", "a run has files of its name"),
        ("a..", "drop the dot at its end"),
        ("Frozen", "methods.Frozen: is the same folder as frozen"),
        ("SPARTA", "methods.SPARTA: is the same folder as sparta"),
        ("Pool", "'Pool' is the folder of the recruits"),
    ],
)
def test_names_that_disks_do_not_keep_apart_are_refused(name, words):
    with pytest.raises(ConfigError) as error:
        comparison({"sparta": {}, name: {"match.nearest": 2}})
    assert words in str(error.value)


def test_what_the_command_says_is_no_setting():
    with pytest.raises(ConfigError) as error:
        read_comparison(SMOKE, ["seed=5", "output=x"])
    assert "'seed=5': the runs have the seeds of the comparison; give --seeds" in str(error.value)
    assert "'output=x': every run has a folder of its own" in str(error.value)
    assert read_comparison(SMOKE, ["method=sppo"]).base.method == "sppo"  # of those without


def test_a_method_for_nobody_is_refused(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"base: {json.dumps(base())}\nmethods: {{sparta: }}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'method=sppo': every way here says its own method"):
        read_comparison(path, ["method=sppo"])


def test_seeds_are_named_once():
    for given in (lambda: comparison({"sparta": {}}, seeds=[1, 1]),
                  lambda: read_comparison(SMOKE, seeds=[2, 2])):  # fmt: skip
        with pytest.raises(ConfigError, match="seeds: one stands twice"):
            given()
    with pytest.raises(ConfigError, match="--seeds '1,1': one stands twice"):
        numbers("1,1")
    assert numbers("3,1") == (3, 1)


def test_what_has_less_effect_than_it_seems_is_said(tmp_path):
    made = comparison({"sparta": {"lineup": {"first": 9}}, "sppo": {"lineup": {"first": 2}}})
    assert made.notes == ("sparta: lineup.first 9 leaves nobody out: there are 3 contestants.",)
    assert "compared with nothing" in comparison({"frozen": {}}).notes[0]
    assert "nobody else is compared with debate" in comparison(
        {"debate": {}}, against="debate"
    ).notes[0]  # fmt: skip
    (tmp_path / "base.yaml").write_text(
        json.dumps(base(seed=5, output="runs/x", method="moaa")), encoding="utf-8"
    )
    path = tmp_path / "c.yaml"
    path.write_text("base: base.yaml\nseeds: [1]\nmethods: {sparta: }\n", encoding="utf-8")
    notes = read_comparison(path).notes
    assert [note.split(" ")[1] for note in notes] == ["seed", "output", "method"]
    assert {arm.seed for arm in read_comparison(path).all_arms(tmp_path)} == {1}


def test_only_some_and_other_seeds():
    made = read_comparison(SMOKE, ["iterations=2"], seeds=[9], only=["sppo"])
    assert [way.name for way in made.ways] == ["frozen", "sppo"]
    assert made.seeds == (9,)
    assert {way.config.iterations for way in made.ways} == {2}
    with pytest.raises(ConfigError, match=r"--only sppoo: .*did you mean sppo\?"):
        read_comparison(SMOKE, only=["sppoo"])
    with pytest.raises(ConfigError) as error:
        comparison_of(
            ComparisonFile(base=base(), methods={"frozen": {}}), "c.yaml", ROOT, only=["nope"]
        )
    assert str(error.value).count("frozen") == 1


def test_recruits_are_made_once_a_seed_and_named_in_every_arm(tmp_path):

    recruit = {"specialists": {"eve": ["sentiment"], "fay": ["kinds"], "gus": ["words"]}}
    pool = {"base": "builtin:smollm2-135m", "recruit": {**recruit, "system": "Be brief."}}
    made = comparison({"sparta": {}}, base=base(pool=pool, instructions=SKILLS))
    for arm in made.arms(tmp_path, 1):
        eve, fay, _ = arm.config.pool.members
        assert (eve.name, eve.system) == ("eve", "Be brief.")
        assert eve.adapter == str(tmp_path / "seed-1" / "pool" / "eve")
        assert fay.adapter == str(tmp_path / "seed-1" / "pool" / "fay")
        assert arm.config.pool.recruit is None


def test_faults_of_the_recruits_are_found_before_they_are_made():

    pool = {"base": "builtin:smollm2-135m", "recruit": {"specialists": {"eve": ["sentimnt"]}}}
    with pytest.raises(ConfigError, match="no domain 'sentimnt'"):
        comparison({"frozen": {}}, base=base(pool=pool, instructions=SKILLS))
