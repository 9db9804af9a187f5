"""What the documents show works: code blocks run, links lead somewhere, pages are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.pool import members_from

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_python_page_runs(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/python.md", "exec"), {})
    assert (tmp_path / "runs/api-example/report.html").stat().st_size > 1000
    assert (tmp_path / "runs/api-example/pairs.jsonl").read_text("utf-8").count("\n") > 0
    assert "judgments could not be read" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_are_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text("utf-8")):
        there = page.parent / target if target else page
        assert anchor in _headings(there), f"{page.name} links to {target}#{anchor}"


def test_the_page_of_every_method_leads_to_its_settings_and_a_run_in_seconds():
    from phalanx.methods import METHODS

    for name in METHODS:
        text = (ROOT / f"docs/methods/{name}.md").read_text(encoding="utf-8")
        assert "](../configuration.md#" in text, name
        (smoke,) = re.findall(r"`phalanx run (configs/smoke/\w+\.yaml)`", text)
        written = (ROOT / smoke).read_text(encoding="utf-8")
        named = re.search(r"^method: (\w+)$", written, re.MULTILINE)
        assert (named[1] if named else "sparta") == name


def test_the_script_of_the_engines_page_is_one(tmp_path):
    from phalanx.engines.scripted import load_script

    path = tmp_path / "rules.yaml"
    path.write_text(_yaml_of("docs/engines.md", "rules.yaml"), encoding="utf-8")
    assert set(load_script(f"script:{path}")) == {
        "sampling", "options", "likelihood", "reward", "user_turn",
    }  # fmt: skip


def test_the_comparison_of_the_readme_is_good_for_the_pool_shown(tmp_path, monkeypatch):
    from phalanx.comparing.loading import read_comparison

    monkeypatch.chdir(tmp_path)
    own = re.sub(r"adapter: adapters/\w+", "engine: scripted", _yaml_of("README.md", "mine.yaml"))
    Path("mine.yaml").write_text(re.sub(r"  base: .*\n", "", own), encoding="utf-8")
    Path("comparison.yaml").write_text(_yaml_of("README.md", "comparison.yaml"), encoding="utf-8")
    rows = [f'{{"instruction": "Say {n}.", "answer": "{n}"}}\n' for n in range(2000)]
    Path("prompts.jsonl").write_text("".join(rows[:1000]), encoding="utf-8")
    Path("dev.jsonl").write_text("".join(rows[1000:1040]), encoding="utf-8")
    compared = read_comparison(Path("comparison.yaml"))
    assert {way.name for way in compared.ways} >= {"sparta", "sppo", "rejection_sampling", "debate"}


def test_every_command_of_the_readme_exists():
    from typer.main import get_command

    from phalanx.cli import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    known = set(get_command(app).commands)
    used = set(re.findall(r"`?phalanx ([a-z-]+)", text)) - {"aligns"}
    assert used - known == set()
    assert known - used == set(), "a command that the README does not mention"


def _yaml_of(page: str, name: str) -> str:
    """The YAML block of a page that begins with its name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search(rf"```yaml\n(# {re.escape(name)}\n.*?)```", text, re.DOTALL)[1]


def test_the_mixture_of_the_readme_is_good_for_each_command_shown_with_it(tmp_path, monkeypatch):
    from phalanx.config import load

    text = re.sub(r"model: org/[\w-]+", "engine: scripted", _yaml_of("README.md", "moaa.yaml"))
    monkeypatch.chdir(tmp_path)
    Path("moaa.yaml").write_text(text, encoding="utf-8")
    row = '{"instruction": "Say seven.", "answer": "seven"}\n'
    for name in re.findall(r"source: ([\w.]+)", text):
        Path(name).write_text(row, encoding="utf-8")
    for purpose in ("run", "mix", "search"):  # each has rules of its own, and refuses by raising
        assert load(Path("moaa.yaml"), purpose=purpose).mixture.aggregator == "big"
    judging = load(Path("moaa.yaml"), ["judge.protocol=moa"], purpose="judge")
    assert judging.judge.protocol == "moa"


def test_the_configuration_of_the_search_page_runs(tmp_path):
    from phalanx.config import load
    from phalanx.engines.scripted import ScriptedEngine, load_script
    from phalanx.search import search
    from phalanx.workshop import Workshop

    path = tmp_path / "search.yaml"
    path.write_text(_yaml_of("docs/mixture-search.md", "search.yaml"), encoding="utf-8")
    config = load(path, purpose="search")
    shop = Workshop(config, tmp_path / "search")
    script = load_script("script:default")
    shop.use("hf", ScriptedEngine({member.base: script for member in members_from(config)}))
    found = search(config, tmp_path / "search", workshop=shop)
    assert found.stopped == ""
    assert len({trial.design for trial in found.trials}) == config.search.trials
    assert max(trial.num_items for trial in found.trials) == config.search.items


def test_every_fault_names_tests_that_exist():
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*$", text, re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 39))
    named = set(re.findall(r"`(test_\w+)`", text))
    defined: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
    assert sorted(named - defined) == []


def _without_padding(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_plans_on_the_scaling_page_are_what_check_prints():
    from phalanx.plan import check

    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    shown = re.findall(r"```sh\nphalanx check ([^\n]+)\n```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(shown) == 3
    for command, expected in shown:
        source, *words = command.split()
        at = words.index("--machine")
        machine = words[at + 1]
        code, printed = check(source, words[:at] + words[at + 2 :], machine=machine, width=100)
        assert code == 0, printed
        assert _without_padding(expected) in _without_padding(printed), command


def test_the_configurations_of_the_scaling_page_are_understood():
    from phalanx.config import Config
    from phalanx.config.reading import read_text

    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        Config.model_validate(read_text(block, "docs/scaling.md").data)
