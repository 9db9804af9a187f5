"""Reading, merging, overriding, writing back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config import Config, differences, from_yaml, load, preset_names, rules, to_yaml
from phalanx.config.document import document
from phalanx.config.loading import moved_override
from phalanx.errors import ConfigError

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "configs").rglob("*.yaml")
    if path.relative_to(ROOT).parts[1] != "compare"  # comparisons: tests/comparing/test_ablation.py
)
POOL = "pool:\n  members:\n" + "".join(
    f"    - {{name: {name}, engine: scripted}}\n" for name in ("ada", "bob", "cora")
)
WHOLE = POOL + "instructions: {source: builtin:skills}\n"


def write(folder: Path, text: str, name: str = "config.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def faults_of(source: object, overrides: object = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(source, overrides)  # type: ignore[arg-type]
    return caught.value.faults


@pytest.mark.parametrize("path", SHIPPED)
def test_every_shipped_config_loads(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load(path)
    assert from_yaml(to_yaml(config)) == config


def test_shipped_configs_are_there() -> None:
    assert len(SHIPPED) >= 8
    assert {"sparta", "sparta-paper", "sparta-small"} <= set(preset_names())


def test_the_paper_preset_has_the_published_constants() -> None:
    config = load("preset:sparta-paper")
    assert (config.iterations, config.match.duels) == (8, 1000)
    assert (config.match.random_probability, config.match.nearest) == (0.2, 3)
    answer, judge = config.answer, config.judge
    assert (answer.temperature, answer.top_p, answer.top_k, answer.max_new_tokens) == (
        0.7,
        0.95,
        50,
        512,
    )
    assert (judge.protocol, judge.temperature, judge.max_new_tokens) == ("rubric", 0.7, 256)
    rule = config.reputation
    assert rule.rule == "sparta"
    assert (rule.initial, rule.deviation, rule.k_start, rule.k_min) == (100, 0.5, 10, 5)
    assert (rule.k_decay, rule.k_steps, rule.scale, rule.epsilon) == (0.9, 10, 20, 0.01)
    assert (rule.floor, rule.window, rule.min_deviation) == (10, 10, 0.1)
    train = config.train
    assert (train.beta, train.learning_rate, train.schedule) == (0.1, 1e-6, "cosine")
    assert (train.warmup, train.weight_decay, train.batch_size, train.epochs) == (0.1, 1e-5, 1, 1)
    assert (config.pairs.margin, config.pairs.truncated) == (0, "allow")
    # What was judged fits into what is learned, with room for the prompt.
    assert train.max_length >= 2 * answer.max_new_tokens


@pytest.mark.parametrize(
    ("method", "iterations", "instructions", "samples", "wrote", "rate", "epochs", "step", "beta"),
    [
        ("self_rewarding", 2, 5000, 4, (0.7, 0.9), 1e-6, 1, 16, 0.1),
        ("meta_rewarding", 4, 5000, 7, (0.8, 0.95), 5e-6, 10, 32, 0.1),
        ("spin", 4, 50000, None, (1.0, 1.0), 5e-7, 3, 64, 0.1),
        ("sppo", 3, 20000, 5, (0.7, 0.9), 5e-7, 1, 64, 0.001),
    ],
)
def test_the_presets_of_rivals_have_the_published_constants(
    method, iterations, instructions, samples, wrote, rate, epochs, step, beta
) -> None:
    config = load(f"preset:{method.replace('_', '-')}-paper")
    own, train = getattr(config, method), config.pair_training
    assert (config.method, config.iterations) == (method, iterations)
    assert (own.instructions, getattr(own, "samples", None)) == (instructions, samples)
    assert (own.sample.temperature, own.sample.top_p) == wrote
    assert (train.learning_rate, train.epochs, train.beta) == (rate, epochs, beta)
    assert train.batch_size * train.accumulate == step
    assert train.optimizer == ("rmsprop" if method in ("spin", "sppo") else "adamw")
    assert rules.notes(config, complete=False)[:-2] == []  # no pool yet, and no instructions


@pytest.mark.parametrize(
    ("text", "value"), [("1e-6", 1e-6), ("1e-5", 1e-5), ("1.0E-3", 1e-3), (".5", 0.5), ("1", 1.0)]
)
def test_numbers_are_numbers(text: str, value: float, tmp_path: Path) -> None:
    path = write(tmp_path, f"{WHOLE}train: {{learning_rate: {text}}}\n")
    assert load(path).train.learning_rate == value
    assert load(path, [f"train.weight_decay={text}"]).train.weight_decay == value


@pytest.mark.parametrize("text", ["'1e-5'", "yes", ".inf", ".nan", "[1]", "true", "1,5"])
def test_what_is_no_number_is_refused(text: str, tmp_path: Path) -> None:
    (fault,) = faults_of(write(tmp_path, f"{WHOLE}train:\n  learning_rate: {text}\n"))
    assert "train.learning_rate: expected a number above 0, got" in fault


def test_no_is_a_word(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE.replace("ada", "no"))
    assert load(path).pool.members[0].name == "no"


def test_file_wins_over_preset_and_override_over_both(tmp_path: Path) -> None:
    text = f"preset: sparta-small\nmatch: {{duels: 7}}\n{WHOLE}"
    config = load(write(tmp_path, text), ["train.epochs=3", "judge.protocol=expected"])
    small = load("preset:sparta-small")
    assert config.match.duels == 7
    assert config.match.nearest == small.match.nearest
    assert config.train.epochs == 3
    assert config.train.learning_rate == small.train.learning_rate == 2e-4
    assert config.judge.protocol == "expected"
    assert (
        load(write(tmp_path, text.replace("sparta-small", "preset:sparta-small"))).match.duels == 7
    )


def test_lists_replace(tmp_path: Path) -> None:
    path = write(tmp_path, f"without: [reputation]\n{WHOLE}")
    assert load(path, ["without=[match-making]"]).without == ["match-making"]


def test_another_reputation_rule_replaces_the_section() -> None:
    config = load("preset:sparta-paper", ["reputation.rule=elo"])
    assert config.reputation.model_dump() == {
        "rule": "elo", "initial": 100, "k": 4, "spread": 40, "floor": 1,
    }  # fmt: skip
    config = load("preset:sparta-paper", ["reputation.scale=1"])
    assert (config.reputation.scale, config.reputation.k_start) == (1, 10)


def test_a_section_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("ada", "bob", "cora")
    members = "members:\n" + "".join(f"  - {{name: {name}}}\n" for name in names)
    write(tmp_path, f"base: builtin:smollm2-135m\n{members}", "section.yaml")
    write(tmp_path, POOL, "wrapped.yml")
    monkeypatch.chdir(tmp_path)
    for file in ("section.yaml", "wrapped.yml"):
        config = load("preset:sparta", [f"pool={file}", "instructions.source=builtin:skills"])
        assert tuple(member.name for member in config.pool.members) == names
    write(tmp_path, "membrs: []\n", "bad.yaml")
    faults = faults_of("preset:sparta", ["pool=bad.yaml"])
    assert any("bad.yaml:1: pool.membrs" in fault and "members?" in fault for fault in faults)


def test_a_list_of_sections_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = "{name: mine, url: 'http://127.0.0.1:9000/v1'}"
    write(tmp_path, f"endpoints:\n  - {one}\n", "endpoints.yaml")
    write(tmp_path, f"endpoints:\n  - {one[:-1]}, prot: 1}}\n", "bad.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(WHOLE, encoding="utf-8")
    config = load("config.yaml", ["endpoints=endpoints.yaml"])
    assert [endpoint.name for endpoint in config.endpoints] == ["mine"]
    assert any("bad.yaml:2" in fault for fault in faults_of("config.yaml", ["endpoints=bad.yaml"]))


def test_an_override_for_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, POOL, "pool.yaml")
    write(tmp_path, "", "rows.jsonl")
    monkeypatch.chdir(tmp_path)

    def far(text: str) -> str:
        return f"/far/{Path(text).name}" if Path(text).exists() else text

    def moved(text: str) -> str:
        return moved_override(text, far)

    assert moved("pool=pool.yaml") == "pool=/far/pool.yaml"
    assert moved("instructions.source=rows.jsonl") == 'instructions.source="/far/rows.jsonl"'
    assert moved("evaluate.tasks=[{name: a, source: rows.jsonl}]") == (
        'evaluate.tasks=[{"name": "a", "source": "/far/rows.jsonl"}]'
    )
    for same in ("match.duels=4", "instructions.source=hub:a/b", "evaluate.judges=[rows.jsonl]"):
        assert moved(same) == same


def test_overrides_as_a_mapping(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    config = load(path, {"train.epochs": 2, "match": {"duels": 5}, "without": ("reputation",)})
    assert (config.train.epochs, config.match.duels) == (2, 5)
    assert config.without == ["reputation"]
    path = write(tmp_path, "match:\n  duels: 5\npool: {members: [{name: ada, engine: scripted}]}\n")
    faults = faults_of(path, {"match.duels": "many", "moaa": {"students": ["ada"]}})
    assert faults[0].startswith("match.duels: expected a whole number")  # no line of the file
    assert faults[1].startswith("moaa.students.1: expected a mapping of keys")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("epochs", "expected key.path=value"),
        ("=3", "expected key.path=value"),
        ("train..epochs=3", "expected key.path=value"),
        ("train.epochs=[", "not valid YAML"),
        ("train.epoch=3", "train.epoch: unknown key; did you mean epochs?"),
        (
            "batch_size=3",
            "pool.recruit.train.batch_size, sft.batch_size, grpo.batch_size, train.batch_size",
        ),
        ("preset=sparta", "preset:NAME"),
        ("train.method=dqo", "expected one of dpo, sft, none; did you mean dpo?"),
        ("reputation.rule=elo2", "did you mean elo?"),
        ("pool=missing.yaml", "no such file"),
        ("output=2024-01-01", "put it in quotes"),
        ("match.duels=", "got nothing (null)"),
        ("train.lora.targets=7", "a list of texts or one of all-linear, attention"),
    ],
)
def test_faulty_override(override: str, words: str, tmp_path: Path) -> None:
    faults = faults_of(write(tmp_path, WHOLE), [override])
    assert len(faults) == 1
    assert words in faults[0]


def test_one_text_is_not_a_list_of_overrides(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="sequence"):
        load(write(tmp_path, WHOLE), "train.epochs=2")


def test_unknown_preset(tmp_path: Path) -> None:
    (fault,) = faults_of("preset:spatra")
    assert "did you mean sparta?" in fault
    assert "sparta-paper" in fault
    (fault,) = faults_of(write(tmp_path, "preset: alpaca\n"))
    assert "config.yaml:1: preset" in fault
    assert ", ".join(preset_names()) in fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\n", "not valid YAML"),
        ("- a\n- b\n", "expected a mapping of keys, got a list of 2 items"),
        ("a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        ("a: &x [*x]\n", "nested deeper"),
        ("\ttab: 1\n", "not valid YAML"),
    ],
)
def test_what_is_no_configuration(text: str, words: str, tmp_path: Path) -> None:
    (fault,) = faults_of(write(tmp_path, text))
    assert words in fault
    assert "config.yaml" in fault


def test_absent_and_unreadable_files(tmp_path: Path) -> None:
    write(tmp_path, WHOLE, "other.yaml")
    assert "other.yaml" in faults_of(tmp_path / "config.yaml")[0]
    assert "is a folder" in faults_of(tmp_path)[0]
    (tmp_path / "latin.yaml").write_bytes("output: caf\xe9".encode("latin-1"))
    assert "not UTF-8" in faults_of(tmp_path / "latin.yaml")[0]


def test_paths_are_looked_up_beside_the_file_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "project", tmp_path / "work"
    row = '{"instruction": "Name a prime."}\n'
    write(beside, row, "data/a.jsonl")
    write(here, row, "data/a.jsonl")
    write(here, row, "data/b.jsonl")
    monkeypatch.chdir(here)
    for name, folder in (("a", beside), ("b", here)):
        path = write(beside, f"{POOL}instructions: {{source: data/{name}.jsonl}}\n")
        assert load(path).instructions.source == str(folder / "data" / f"{name}.jsonl")
    override = ["instructions.source=data/a.jsonl"]
    assert load(path, override).instructions.source == str(here / "data" / "a.jsonl")


def test_further_rules_join_the_message(tmp_path: Path) -> None:
    def never(config: Config) -> list[rules.Fault]:
        return [rules.Fault(("match", "duels"), f"{config.match.duels} is never enough")]

    path = write(tmp_path, f"match: {{duels: 3}}\njudge: {{low: 9, high: 2}}\n{WHOLE}")
    with pytest.raises(ConfigError) as caught:
        load(path, also=[never])
    assert [":1: match.duels: 3 is never" in f for f in caught.value.faults] == [False, True]


def test_a_bare_preset_needs_no_pool_but_a_file_does(tmp_path: Path) -> None:
    assert load("preset:sparta").pool.members == []
    with pytest.raises(ConfigError, match="the pool is empty"):
        load("preset:sparta", complete=True)
    with pytest.raises(ConfigError, match="the pool is empty"):
        load(write(tmp_path, "preset: sparta\n"))
    with pytest.raises(ConfigError, match="names no instructions"):
        load("preset:sparta", {"pool": {"members": [{"name": "a", "engine": "scripted"}] * 1}})


def test_the_page_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == document(), "run: python -m phalanx.config.document > docs/configuration.md"


def test_every_key_has_a_meaning() -> None:
    lines = document().splitlines()
    assert [line for line in lines if line.startswith("| `") and line.endswith("|  |")] == []


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
SMALL = st.floats(0, 1, exclude_min=True)


@settings(max_examples=25, deadline=None)
@given(
    system=TEXT,
    column=st.sampled_from(["no", "1e-6", "null", "~", "a: b", "# x", "'", '"', "- x", "é\n\nü "]),
    rate=st.floats(1e-300, 1e300),
    share=SMALL,
    seed=st.integers(0, 2**63),
    limit=st.none() | st.integers(1, 10**9),
    targets=st.just("all-linear") | st.lists(TEXT, max_size=3),
    rule=st.sampled_from(["sparta", "elo", "bradley_terry", "frozen"]),
)
def test_written_and_read_back_is_equal(
    system: str, column: str, rate: float, share: float, seed: int, limit: int | None,
    targets: object, rule: str,
) -> None:  # fmt: skip
    config = Config.model_validate(
        {
            "seed": seed,
            "pool": {"members": [{"name": "ada", "system": system, "engine": "scripted"}]},
            "instructions": {"column": column, "limit": limit},
            "match": {"random_probability": share},
            "train": {"learning_rate": rate, "lora": {"targets": targets}},
            "reputation": {"rule": rule},
        }
    )
    assert from_yaml(to_yaml(config)) == config
    assert differences(config, from_yaml(to_yaml(config))) == []
