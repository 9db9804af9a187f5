"""Runs that are watched while they go on: real processes, how they end, and who reads what."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from bench import big_ledger

import phalanx
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.holding import holder
from phalanx.report.facts import gather
from phalanx.report.machine import KILLED, ending
from tests.scripts import command

SMOKE = Path(__file__).resolve().parent.parent / "configs" / "smoke" / "rubric.yaml"
LONG = ("instructions.source=builtin:skills", "match.duels=150", "iterations=6")


def _heeding_control_c() -> None:
    """As in a terminal: a shell that starts the tests behind itself has them ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words: object, **kind: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "phalanx.cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        preexec_fn=_heeding_control_c, **kind,
    )  # fmt: skip


def start_run(folder: Path, *words: object) -> subprocess.Popen:
    """A run that has answered something, held (SIGSTOP): scripted members would be done before
    anybody could look."""
    run = start("run", SMOKE, *LONG, *words, "--out", folder)
    end = time.monotonic() + 60
    while time.monotonic() < end and run.poll() is None:
        if run_ledger_path(folder).exists():
            with Ledger(run_ledger_path(folder)) as ledger:
                if ledger.count("responses"):
                    run.send_signal(signal.SIGSTOP)
                    return run
        time.sleep(0.01)
    raise AssertionError(f"the run did not begin: {run.communicate()}")


def lines_of(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_that_tells_machines_is_watched_until_it_finishes(tmp_path):
    folder = tmp_path / "run"
    run = start_run(folder, "--json")
    watch = start("watch", folder, "--json", "--every", "0.1")
    first = watch.stdout.readline()
    run.send_signal(signal.SIGCONT)
    said, _ = watch.communicate(timeout=120)
    told, complaint = run.communicate(timeout=120)
    assert (run.returncode, watch.returncode) == (0, 0), complaint
    seen = lines_of(first + said)
    assert [line["event"] for line in seen[:-1]] == ["state"] * (len(seen) - 1)
    assert seen[-1]["event"] == "end"
    assert seen[-1]["state"] == "finished"
    running = seen[:-1]
    assert running, "it was seen while it ran"
    assert {line["state"] for line in running} == {"running"}
    assert {line["process"] for line in running} == {run.pid}
    counts = [line["requests"] for line in seen]
    assert counts == sorted(counts)
    assert len(set(counts)) > 1
    assert set(seen[-1]["reputations"]) == {"ada", "bob", "cora", "dan"}
    events = lines_of(told)
    assert events[0]["event"] == "start"
    assert events[-1]["event"] == "end"
    assert events[-1]["exit_code"] == 0
    assert [e["iteration"] for e in events if e["event"] == "iteration"] == list(range(1, 7))
    begun = [(e["phase"], e["total"]) for e in events if e["event"] == "phase"]
    ended = [(e["phase"], e["done"]) for e in events if e["event"] == "phase_end"]
    assert begun == ended
    assert holder(folder) is None
    again = command("watch", folder)
    assert again.returncode == 0
    assert again.stdout.splitlines()[-1] == "run: finished"


def test_control_c_ends_watching_and_then_the_run(tmp_path):
    folder = tmp_path / "run"
    run = start_run(folder, "--json")
    watch = start("watch", folder, "--every", "0.1")
    lines = iter(watch.stdout.readline, "")
    assert any(line.startswith("run: iteration 1 of 6") for line in lines)
    watch.send_signal(signal.SIGINT)
    _, complaint = watch.communicate(timeout=30)
    assert watch.returncode == 130
    assert "Traceback" not in complaint
    assert run.poll() is None
    assert json.loads(command("status", folder, "--json").stdout)["state"] == "running"
    watch = start("watch", folder, "--quiet", "--every", "0.1")
    run.send_signal(signal.SIGINT)
    run.send_signal(signal.SIGCONT)
    told, _ = run.communicate(timeout=60)
    said, _ = watch.communicate(timeout=60)
    assert run.returncode == watch.returncode == 130
    assert lines_of(told)[-1]["exit_code"] == 130
    assert len(said.splitlines()) == 1
    assert said.startswith("run: ended: ")
    assert "the same command goes on" in said


def test_a_killed_run_is_told_from_one_that_ended(tmp_path):
    folder = tmp_path / "run"
    run = start_run(folder)
    run.kill()
    run.communicate(timeout=60)
    said = command("watch", folder, "--quiet")
    assert said.returncode == KILLED
    assert said.stdout.startswith("run: killed: ")
    shown = json.loads(command("status", folder, "--json").stdout)
    assert (shown["state"], shown["exit_code"]) == ("killed", KILLED)


def in_a_terminal(columns: int, *words: object, **variables: str) -> tuple[str, int]:
    """What a command writes to a terminal of that many columns, and its exit code."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "phalanx.cli", *map(str, words)], stdin=side, stdout=side,
        stderr=side, env={**environment, "TERM": "xterm-256color", **variables},
    )  # fmt: skip
    os.close(side)
    parts = []
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(main)
    return b"".join(parts).decode(), process.wait(timeout=60)


def test_a_narrow_terminal_and_one_without_colour(tmp_path):
    folder = big_ledger.make(tmp_path / "run", 60, finished=False)
    said, code = in_a_terminal(40, "watch", folder, NO_COLOR="1")
    assert code == KILLED
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", said)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", plain)) <= 40
    assert "Reputations" in plain


def test_a_dumb_terminal_gets_lines_while_the_run_goes_on(tmp_path):
    folder = big_ledger.make(tmp_path / "run", 20, finished=False, huge=False)
    said, code = in_a_terminal(80, "watch", folder, TERM="dumb")
    assert code == KILLED
    assert "\x1b" not in said
    assert said.splitlines()[-1].startswith("run: killed: ")


def test_what_failed_steers_no_terminal(tmp_path):
    folder = big_ledger.make(tmp_path / "run", 20, finished=False, huge=False)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        ledger.event("stopped", "a model said \x1b]0;owned\x07 and \u202ebackwards\x1b[2J")
    for words in ((), ("--quiet",)):
        said = command("status", folder, *words).stdout
        assert not set(said) & {"\x1b", "\x07", "\u202e"}
    said = command("watch", folder)
    assert "owned" in said.stdout
    assert not set(said.stdout) & {"\x1b", "\x07", "\u202e"}
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ending(gather(ledger, tables=False)).state == "killed", "no exit code is recorded"


def test_no_run_is_one_message(tmp_path):
    done = command("watch", tmp_path / "nothing")
    assert done.returncode == 1
    assert "no run in" in done.stderr
    Ledger(run_ledger_path(tmp_path / "empty"), writable=True).close()
    for words in (("status", "--json"), ("watch", "--wait", "0.2")):
        done = command(words[0], tmp_path / "empty", *words[1:])
        assert (done.returncode, done.stdout) == (1, "")
        assert "no run has begun in" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_an_error_steers_no_terminal(tmp_path):
    done = command("status", tmp_path / "a\x1b[2Jb")
    assert done.returncode == 1
    assert "a\N{REPLACEMENT CHARACTER}[2Jb" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_run_that_begins_later_is_waited_for(tmp_path):
    folder = tmp_path / "run"
    watch = start("watch", folder, "--wait", "60", "--every", "0.1", "--quiet")
    with pytest.raises(subprocess.TimeoutExpired):
        watch.wait(timeout=1)
    assert command("run", SMOKE, "--quiet", "--out", folder).returncode == 0
    said, complaint = watch.communicate(timeout=60)
    assert (watch.returncode, said) == (0, "run: finished\n"), complaint


def test_status_for_machines_has_stable_keys(tmp_path):
    folder = big_ledger.make(tmp_path / "run", 60, finished=False)
    shown = json.loads(command("status", folder, "--json").stdout)
    assert shown == phalanx.status(folder)
    document = (SMOKE.parents[2] / "docs" / "terminal.md").read_text(encoding="utf-8")
    assert [key for key in shown if f"`{key}`" not in document] == []
    assert shown["owed"] == 30
    assert shown["seconds_left"] > 0
