"""The command as a person meets it: exit codes, one message, no traceback, files where promised."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.cli import app
from phalanx.cli.base import VERBS
from tests.scripts import command

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ROOT / "configs" / "smoke" / "rubric.yaml"


def phalanx(*words: object, cwd: Path | None = None, **variables: str):
    return subprocess.run(
        [sys.executable, "-m", "phalanx.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **variables},
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    done = phalanx("run", SMOKE, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_run_leaves_what_the_readme_promises(run_folder):
    names = {path.name for path in run_folder.iterdir()}
    assert {"ledger.sqlite", "report.html", "lock"} <= names


def test_run_again_shows_the_same_summary_and_asks_nothing(run_folder):
    once, twice = (phalanx("run", SMOKE, "--out", run_folder) for _ in range(2))
    assert once.returncode == twice.returncode == 0
    assert once.stdout == twice.stdout


@pytest.mark.parametrize("verb", ["status", "report"])
def test_reading_verbs(verb, run_folder):
    done = phalanx(verb, run_folder)
    assert done.returncode == 0, done.stderr
    assert "ada" in done.stdout


def test_a_report_for_a_pull_request(run_folder, tmp_path):
    done = phalanx("report", run_folder, "--out", tmp_path / "report.md")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("#")


def test_export_and_its_refusals(run_folder, tmp_path):
    out = tmp_path / "pairs.jsonl"
    done = phalanx("export", run_folder, "preferences", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert {"prompt", "chosen", "rejected"} <= set(rows[0])
    wrong = phalanx("export", run_folder, "preference", "--out", out)
    assert wrong.returncode == 2
    assert "preferences" in wrong.stderr


def test_init_writes_what_check_accepts(tmp_path):
    assert phalanx("init", "mine.yaml", cwd=tmp_path).returncode == 0
    done = phalanx("check", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = phalanx("init", "mine.yaml", cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_every_line_of_the_starting_file_can_be_uncommented(tmp_path):
    from phalanx.config import load
    from phalanx.config.loading import preset_names
    from phalanx.config.starter import starter

    for preset in preset_names():
        if "demo" in preset:
            assert starter(preset).startswith("# The demo")
            continue
        text = re.sub(r"^# (?=\s*#?\s*\S)", "", starter(preset).split("set it.")[1], flags=re.M)
        head = starter(preset).split("# Settings of the preset")[0]
        path = tmp_path / f"{preset}.yaml"
        path.write_text(head + text, encoding="utf-8")
        assert load(path).pool.members[0].name == "ada"


def test_errors_are_one_message_and_an_exit_code(tmp_path):
    """A stage that fails must end the command with a code of its own, not a log line."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("train: {lerning_rate: 1e-5}\npool: {members: [{name: a}]}\n", encoding="utf-8")
    done = phalanx("run", bad)
    assert done.returncode == 2
    assert "lerning_rate" in done.stderr
    assert "learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    missing = phalanx("status", tmp_path / "nothing")
    assert missing.returncode == 1
    assert "no run in" in missing.stderr
    assert phalanx("frobnicate").returncode == 2


def test_a_run_that_fails_says_so_last(tmp_path):
    script = tmp_path / "mute.yaml"
    script.write_text(
        "sampling:\n  - {when: '\"score\"', reply: no opinion}\n"
        "  - {when: ., reply: [yes, no, perhaps]}\n",
        encoding="utf-8",
    )
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "members:\n"
        + "".join(
            f"  - {{name: {n}, engine: scripted, model: 'script:{script}'}}\n" for n in "abc"
        ),
        encoding="utf-8",
    )
    done = phalanx("run", SMOKE, f"pool={pool}", "--out", tmp_path / "run")
    assert done.returncode == 5
    assert "could not be read" in done.stderr.splitlines()[-1]


CHECKS = """
import sys
from tests.scripts import command
for path in sys.argv[1:]:
    done = command("check", path)
    assert done.returncode == 0, (path, done.stderr)
assert not {"torch", "transformers", "datasets"} & set(sys.modules)
"""


def test_presets_check_in_a_bare_environment():
    paths = sorted((ROOT / "configs" / "presets").glob("*.yaml"))
    assert phalanx("check", paths[0]).returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", CHECKS, *map(str, paths)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_help_lists_every_verb_once():
    listed = [verb for verbs in VERBS.values() for verb in verbs]
    assert sorted(listed) == sorted(command.name or command.callback.__name__
                                    for command in app.registered_commands)  # fmt: skip


def test_help_of_every_command():
    assert "phalanx demo" in phalanx("--help").stdout
    verbs = ("demo", "init", "check", "recruit", "run", "status", "report", "export")
    for verb in (*verbs, "mix", "judge", "synthesise", "mixture-search"):
        done = command(verb, "--help")
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) > 5


def test_plain_output_has_no_escape_codes(run_folder):
    done = phalanx("report", run_folder, NO_COLOR="1", TERM="dumb")
    assert "\x1b[" not in done.stdout
