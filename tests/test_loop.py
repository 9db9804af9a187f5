"""A whole run on the scripted engine: rows, sums, resuming, refusals, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError, Interrupted, JudgmentError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.report.facts import gather

ROOT = Path(__file__).resolve().parent.parent
SMOKE = [
    path
    for path in sorted((ROOT / "configs" / "smoke").glob("*.yaml"))
    if "\nmethod:" not in path.read_text(encoding="utf-8")
]
"""Those of Sparta, whose duels can be counted beforehand."""


def contents(folder: Path) -> dict:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def query(folder: Path, sql: str) -> list[dict]:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.query(sql)


@pytest.mark.parametrize("path", SMOKE, ids=lambda path: path.stem)
def test_every_smoke_configuration_runs_and_adds_up(path, tmp_path):
    config = load(path)
    align(config, tmp_path / "run")
    duels = config.match.duels * config.iterations
    assert len(query(tmp_path / "run", "SELECT 1 FROM duels")) == duels
    statuses = query(tmp_path / "run", "SELECT status, count(*) AS n FROM outcomes GROUP BY 1")
    assert sum(row["n"] for row in statuses) == duels
    dropped = query(tmp_path / "run", "SELECT dropped, count(*) AS n FROM pairs GROUP BY 1")
    assert sum(row["n"] for row in dropped) == duels
    own = query(
        tmp_path / "run",
        "SELECT 1 FROM judgments j JOIN duels d ON d.id = j.duel "
        "WHERE j.judge IN (d.left, d.right)",
    )
    assert own == [], "a member judged its own duel"
    used = query(
        tmp_path / "run",
        "SELECT iteration, count(DISTINCT instruction) AS n FROM duels GROUP BY iteration",
    )
    assert all(row["n"] == config.match.duels for row in used)


def test_instructions_are_fresh_in_every_iteration(tmp_path):
    """The released code seeds each iteration's process alike and sees the same ones again."""
    align(load(SMOKE[0]), tmp_path / "run")
    rows = query(tmp_path / "run", "SELECT iteration, instruction FROM duels ORDER BY position")
    first = [row["instruction"] for row in rows if row["iteration"] == 1]
    second = [row["instruction"] for row in rows if row["iteration"] == 2]
    assert first != second


def test_the_same_seed_gives_the_same_ledger_and_another_does_not(tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        align(load(ROOT / "configs/smoke/rubric.yaml", [f"seed={seed}"]), tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a")["outcomes"] != contents(tmp_path / "c")["outcomes"]


def test_a_finished_run_does_nothing_more(tmp_path):
    config = load(ROOT / "configs/smoke/rubric.yaml")
    align(config, tmp_path / "run")
    before = query(tmp_path / "run", "SELECT * FROM responses ORDER BY id")
    align(config, tmp_path / "run")
    assert query(tmp_path / "run", "SELECT * FROM responses ORDER BY id") == before


def test_another_configuration_is_refused_with_the_first_difference(tmp_path):
    path = ROOT / "configs/smoke/rubric.yaml"
    align(load(path), tmp_path / "run")
    with pytest.raises(LedgerError, match=r"answer\.temperature was 0\.7 and is now 0\.9"):
        align(load(path, ["answer.temperature=0.9", "train.beta=0.3"]), tmp_path / "run")


def test_changed_instructions_are_refused(tmp_path):
    text = (ROOT / "configs/smoke/instructions.jsonl").read_text(encoding="utf-8")
    source = tmp_path / "mine.jsonl"
    source.write_text(text, encoding="utf-8")
    config = load(ROOT / "configs/smoke/rubric.yaml", [f"instructions.source={source}"])
    align(config, tmp_path / "run")
    lines = text.splitlines()
    row = json.loads(lines[0])
    row["instruction"] += " Really?"
    source.write_text("\n".join([json.dumps(row), *lines[1:]]), encoding="utf-8")
    with pytest.raises(LedgerError, match="instructions or evaluation items"):
        align(config, tmp_path / "run")


def test_all_faults_are_refused_before_anything_is_written(tmp_path):
    source = tmp_path / "none.jsonl"
    source.write_text('{"instruction": "Say 1."}', encoding="utf-8")
    config = load(ROOT / "configs/smoke/rubric.yaml", [f"instructions.source={source}"])
    source.unlink()
    with pytest.raises(ConfigError, match=r"none\.jsonl"):
        align(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def script_where_judges_are_unreadable(folder: Path) -> Path:
    path = folder / "mute.yaml"
    path.write_text(
        "sampling:\n  - {when: '\"score\"', reply: no opinion}\n"
        "  - {when: ., reply: [yes, no, perhaps]}\n",
        encoding="utf-8",
    )
    return path


def pool_of(script: Path) -> list[dict]:
    return [{"name": n, "engine": "scripted", "model": f"script:{script}"} for n in "abcd"]


def test_unreadable_judgments_are_missing_and_too_many_stop_the_run(tmp_path):
    """The released code would book 5/5 everywhere and go on."""
    members = pool_of(script_where_judges_are_unreadable(tmp_path))
    config = load(ROOT / "configs/smoke/rubric.yaml", {"pool": {"members": members}})
    with pytest.raises(JudgmentError, match="could not be read"):
        align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("responses", "purpose = 'judge' AND status = 'done'") > 0
        assert ledger.count("judgments") == 0
    lenient = load(
        ROOT / "configs/smoke/rubric.yaml",
        {"pool": {"members": members}, "judge": {"max_unreadable": 1.0}},
    )
    align(lenient, tmp_path / "run")
    rows = query(tmp_path / "run", "SELECT DISTINCT score_left, score_right FROM judgments")
    assert rows == [{"score_left": None, "score_right": None}]
    kinds = query(tmp_path / "run", "SELECT DISTINCT status FROM outcomes")
    assert {row["status"] for row in kinds} <= {"no_quorum", "tie"}
    assert query(tmp_path / "run", "SELECT 1 FROM pairs WHERE dropped = ''") == []


@pytest.mark.parametrize(
    ("given", "said", "again"),
    [
        ("reply: 'says %s'", "could not be read .* or likelihood", False),
        ("reply: ''", "none of .* empty response", False),
        ("fail: {kind: engine, message: out of memory}", "none of .* left: engine", True),
    ],
)
def test_where_no_duel_has_an_outcome_the_advice_fits(tmp_path, given, said, again):
    path = tmp_path / "mute.yaml"
    rules = ["{when: '\"score\"', reply: no opinion}"]
    rules += [f"{{when: ., member: {name}, {given.replace('%s', name)}}}" for name in "abcd"]
    path.write_text("sampling:\n" + "".join(f"  - {rule}\n" for rule in rules), encoding="utf-8")
    config = load(ROOT / "configs/smoke/rubric.yaml", {"pool": {"members": pool_of(path)}})
    with pytest.raises(JudgmentError, match=said) as raised:
        align(config, tmp_path / "run")
    assert ("asked again" in str(raised.value)) is again


def test_a_contestant_that_fails_never_becomes_a_response(tmp_path):
    """An engine's error text must not be judged, chosen or rejected."""
    path = tmp_path / "broken.yaml"
    path.write_text(
        "sampling:\n"
        "  - {when: '\"score\"', reply: ['{\"score\": 8}', '{\"score\": 3}']}\n"
        "  - {when: ., member: a, fail: {kind: engine, message: out of memory}}\n"
        "  - {when: ., reply: [yes, no, perhaps]}\n",
        encoding="utf-8",
    )
    config = load(ROOT / "configs/smoke/rubric.yaml", {"pool": {"members": pool_of(path)}})
    align(config, tmp_path / "run")
    rows = query(
        tmp_path / "run",
        "SELECT d.left, d.right, o.status, o.reason, p.chosen, p.rejected, p.dropped "
        "FROM duels d JOIN outcomes o ON o.duel = d.id JOIN pairs p ON p.instruction = "
        "d.instruction AND p.iteration = d.iteration",
    )
    broken = [row for row in rows if "a" in (row["left"], row["right"])]
    assert broken
    assert {row["status"] for row in broken} == {"unanswered"}
    assert {row["dropped"] for row in broken} == {"unscored"}
    assert not any("out of memory" in row["chosen"] + row["rejected"] for row in rows)
    assert any(row["status"] == "decided" for row in rows)


class Interrupting(Silent):
    """Sends this process a real SIGINT when the n-th phase starts."""

    def __init__(self, phase: int) -> None:
        self._left = phase

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("phase", [1, 2, 3, 4])
def test_ctrl_c_keeps_everything_and_resuming_gives_the_same_ledger(phase, tmp_path):
    config = load(ROOT / "configs/smoke/pairwise.yaml")
    align(config, tmp_path / "whole")
    with pytest.raises(Interrupted, match="the same command goes on"):
        align(config, tmp_path / "cut", progress=Interrupting(phase))
    with Ledger(run_ledger_path(tmp_path / "cut")) as ledger:
        assert "the same command goes on" in gather(ledger).progress.last_error
    align(config, tmp_path / "cut")
    with Ledger(run_ledger_path(tmp_path / "cut")) as ledger:
        assert not gather(ledger).progress.last_error
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_second_process_is_refused_by_the_command(tmp_path):
    config = ROOT / "configs/smoke/rubric.yaml"
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "phalanx.cli",
                "run",
                str(config),
                "--out",
                str(tmp_path / "run"),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 1
    assert "in use by process" in done.stderr
    assert "Traceback" not in done.stderr


def test_iteration_times_are_recorded(tmp_path):
    started = time.monotonic()
    align(load(ROOT / "configs/smoke/rubric.yaml"), tmp_path / "run")
    rows = query(tmp_path / "run", "SELECT phase, seconds FROM phases")
    assert {row["phase"] for row in rows} >= {"answer", "judge"}
    assert 0 < sum(row["seconds"] for row in rows) <= time.monotonic() - started


def test_a_finished_run_can_go_on_to_more_iterations(tmp_path):
    path = ROOT / "configs/smoke/rubric.yaml"
    align(load(path, ["iterations=3"]), tmp_path / "whole")
    align(load(path, ["iterations=2"]), tmp_path / "run")
    align(load(path, ["iterations=3"]), tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_reputations_are_those_of_the_pool_in_every_iteration(tmp_path):
    """Match-making by other names than the reputations' would be random from then on."""
    align(load(ROOT / "configs/smoke/rubric.yaml"), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        pool = {member.name for member in ledger.members()}
        for number in (1, 2):
            assert set(ledger.state(number)["standings"]) == pool
        first = ledger.state(1)["standings"]
        changes = ledger.query("SELECT * FROM reputations WHERE iteration = 2 ORDER BY position")
        assert changes[0]["before"] == first[changes[0]["member"]].value


def test_a_run_in_which_every_answer_fails_stops(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(
        "sampling:\n  - {when: ., fail: {kind: engine, message: out of memory}}\n",
        encoding="utf-8",
    )
    config = load(ROOT / "configs/smoke/rubric.yaml", {"pool": {"members": pool_of(path)}})
    with pytest.raises(JudgmentError, match="none of 6 duels has an outcome"):
        align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.get("finished") is None
        assert ledger.count("duels") == 0


def test_a_changed_template_is_refused_on_resume(tmp_path):
    template = tmp_path / "mine.txt"
    template.write_text('Rate {response} to {instruction} as {"score": n}', encoding="utf-8")
    path = ROOT / "configs/smoke/rubric.yaml"
    words = [f"judge.template={template}", "judge.max_unreadable=1.0"]
    align(load(path, [*words, "iterations=1"]), tmp_path / "run")
    template.write_text('Grade {response} to {instruction} as {"score": n}', encoding="utf-8")
    with pytest.raises(LedgerError, match="a file that its configuration names"):
        align(load(path, [*words, "iterations=2"]), tmp_path / "run")


def test_iterations_cannot_be_unmade(tmp_path):
    path = ROOT / "configs/smoke/rubric.yaml"
    align(load(path, ["iterations=2"]), tmp_path / "run")
    with pytest.raises(LedgerError, match="has 2 iterations already"):
        align(load(path, ["iterations=1"]), tmp_path / "run")


def test_exports_and_reports_spare_the_run(tmp_path):
    import phalanx

    run = phalanx.run(load(ROOT / "configs/smoke/rubric.yaml"), out=tmp_path / "run")
    for write in (run.report, lambda path: run.export("preferences", path)):
        with pytest.raises(LedgerError, match="belongs to the run"):
            write(tmp_path / "run" / "ledger.sqlite")
    assert run.preferences()


def test_a_run_that_never_answered_can_be_started_anew(tmp_path):
    """A first start that failed must not bind the folder to a configuration that never worked."""
    path = ROOT / "configs/smoke/rubric.yaml"
    with pytest.raises(Interrupted):
        align(load(path), tmp_path / "run", progress=Interrupting(1))
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.is_untouched()
    changed = load(path, ["answer.temperature=0.9"])
    align(changed, tmp_path / "run")
    align(changed, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
