"""`phalanx export` for tools and weights, and the question that `phalanx push` asks."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phalanx.cli import app
from phalanx.errors import ConfigError

REPO = "me/pool"


def phalanx(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_export_writes_a_folder_for_a_tool(run, tmp_path):
    out = tmp_path / "rows"
    said = phalanx("export", str(run), "preferences", "--format", "openrlhf", "--out", str(out),
                   "--system-of", "ada")  # fmt: skip
    assert "Wrote 3 preferences" in said
    assert "Left out 1 whose answer hit the token limit" in said
    assert sorted(path.name for path in out.iterdir()) == ["openrlhf.sh", "preferences.jsonl"]
    said = phalanx("export", str(run), "prompts", "--conversational", "--out",
                   str(tmp_path / "prompts.jsonl"))  # fmt: skip
    assert "Wrote 4 prompts" in said


def test_rows_are_alone_in_a_pipe(run):
    words = ["export", str(run), "prompts", "--conversational", "--out", "/dev/stdout"]
    done = subprocess.run(
        [sys.executable, "-m", "phalanx.cli", *words], capture_output=True, text=True, check=True
    )
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 4
    assert "Wrote 4 prompts to /dev/stdout" in done.stderr


SLOW = """
import sys, time
from phalanx import export
from phalanx.cli import main

def slow(path, rows, columns):
    path.write_text("half")
    print("writing", flush=True)
    time.sleep(60)

export.WRITERS["jsonl"] = slow
main()
"""


def test_nothing_half_written_stays_behind_a_command_that_was_stopped(run, tmp_path):
    out = tmp_path / "rows.jsonl"
    out.write_text("old", encoding="utf-8")
    words = ["export", str(run), "prompts", "--conversational", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "writing\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.terminate()
        assert process.wait(timeout=30) == 143
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("rows.jsonl", "old")]


def test_export_writes_weights_and_adapters(run, tmp_path):
    phalanx("export", str(run), "adapter", "--member", "ada", "--out", str(tmp_path / "ada"))
    assert sorted(path.name for path in (tmp_path / "ada").iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip
    phalanx("export", str(run), "weights", "--member", "ada", "--out", str(tmp_path / "whole"),
            "--dtype", "float16")  # fmt: skip
    config = json.loads((tmp_path / "whole" / "config.json").read_text("utf-8"))
    assert config["dtype"] == "float16"
    card = (tmp_path / "whole" / "README.md").read_text("utf-8")
    assert "AutoModelForCausalLM.from_pretrained" in card
    assert "library_name: transformers" in card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["preferences"], "name the file or folder with --out"),
        (["weights", "--format", "jsonl"], "--format says nothing about weights"),
        (
            ["adapter", "--member", "ada", "--dtype", "float16"],
            "--dtype says nothing about ada",
        ),
        (["preferences", "--member", "ada", "--out", "x"], "--member says nothing about preferen"),
        (["preferences", "--system-of", "ada", "--out", "x"], "--system-of says nothing about"),
        (["preferences", "--format", "verl", "--conversational", "--out", "x"], "its own form"),
    ],
)
def test_what_says_nothing_is_refused(run, words, message):
    with pytest.raises(ConfigError, match=message):
        phalanx("export", str(run), *words)
    assert not Path("x").exists()


@pytest.mark.parametrize(("answer", "sent"), [(b"n\n", False), (b"y\n", True)])
def test_a_person_is_shown_everything_and_asked(run, hub, tmp_path, answer, sent):
    """In a real terminal (a pseudo one), by the real command."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "phalanx.cli", "push", str(run), REPO, "--data", "none"]
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    try:
        with subprocess.Popen(
            words, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
        ) as process:
            os.write(ours, answer)
            said = process.communicate(timeout=120)[0].decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 0, said
    assert said.index("ada/adapter_model.safetensors") < said.index("Send this?")
    assert f"Model {REPO} (new, private)" in said
    assert bool(hub.repos) == sent
    assert ("Nothing was sent." in said) == (not sent)
