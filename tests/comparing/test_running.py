"""Arms and seeds: run, go on, skip, refuse, fail; in this process and in others."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from phalanx.comparing.running import run_all
from phalanx.config import rules
from phalanx.errors import Interrupted, LedgerError
from phalanx.ledger import Ledger, RunLock, run_ledger_path
from phalanx.progress import Silent
from tests import kill_driver
from tests.comparing.files import SCRIPT, base, comparison
from tests.scripts import command

NEAR = {"match.nearest": 2}
METHODS = {"sparta": {}, "sppo": {"sppo.instructions": 2, "sppo.samples": 3}}


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def made(**settings):
    return comparison(METHODS, **{"seeds": [1, 2], **settings})


def contents(out: Path, *names: str) -> dict:
    found = {}
    for path in sorted(out.glob("seed-*/*/ledger.sqlite")):
        if names and path.parent.name not in names:
            continue
        with Ledger(path) as ledger:
            found[str(path.relative_to(out))] = ledger.contents()
            assert ledger.get("finished") is not None
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert run_all(made(), out, progress=Silent()) == ()
    return out


def test_every_arm_has_a_run_of_its_own(whole):
    assert set(contents(whole)) == {
        f"seed-{seed}/{name}/ledger.sqlite" for seed in (1, 2) for name in ("frozen", *METHODS)
    }
    assert (whole / "seed-2" / "sppo.yaml").exists()


def test_seeds_are_runs_of_their_own(whole):
    one, two = (contents(whole)[f"seed-{s}/sparta/ledger.sqlite"] for s in (1, 2))
    assert one["duels"] != two["duels"]
    assert {row["item"] for row in one["evaluations"]} == {
        row["item"] for row in two["evaluations"]
    }


def test_arms_of_a_seed_share_their_measurement(whole):
    for name, shared in (("frozen", 0), ("sparta", 36), ("sppo", 36)):
        with Ledger(whole / "seed-1" / name / "ledger.sqlite") as ledger:
            taken = ledger.query("SELECT phase, attempts FROM responses WHERE attempts = 0")
        assert len([row for row in taken if row["phase"].startswith("evaluate")]) == shared


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_guard_stops_its_own_arm_and_says_how_that_one_goes_on(jobs, tmp_path):
    ways = {"sparta": {"guard.max_flips": 0, "match.duels": 30}, "sppo": METHODS["sppo"]}
    compared = comparison(ways, base=base(judge={"protocol": "pairwise"}))
    out = tmp_path / "out"
    (failed,) = run_all(compared, out, jobs=jobs, progress=Silent())
    assert failed.name == "sparta"
    assert "guard max_flips stopped the run in iteration 1: " in failed.why
    copied = failed.why.partition("go on here: phalanx ")[2].split(" (")[0]
    arm = out / "seed-1" / "sparta"
    assert copied.startswith(f"run {arm}.yaml --out {arm} guard.max_flips=")
    assert set(contents(out, "frozen", "sppo")), "the others are finished"
    more = command(*copied.split(), "-q")
    assert more.returncode == 0, more.stderr
    assert run_all(compared, out, progress=Silent()) == ()


def test_an_arm_s_configuration_can_be_run_by_itself(whole, tmp_path):
    """What lies beside a run is its whole configuration."""
    from phalanx.api import run

    run(whole / "seed-1" / "sppo.yaml", out=tmp_path / "sppo")
    with Ledger(tmp_path / "sppo" / "ledger.sqlite") as ledger:
        assert ledger.contents() == contents(whole)["seed-1/sppo/ledger.sqlite"]


def test_the_same_again_asks_nobody(whole):
    before = {path: counted(path) for path in whole.glob("seed-*/*/ledger.sqlite")}
    assert run_all(made(), whole, progress=Silent()) == ()
    assert {path: counted(path) for path in before} == before


def counted(path: Path) -> tuple[int, int]:
    with Ledger(path) as ledger:
        return ledger.count("responses"), ledger.num_sent()


def test_other_settings_are_refused_before_anything_runs(whole, tmp_path):
    other = comparison({**METHODS, "sparta": {"match.duels": 5}, "near": NEAR}, seeds=[1, 2])
    with pytest.raises(LedgerError) as error:
        run_all(other, whole, progress=Silent())
    text = str(error.value)
    assert "seed-1/sparta: match.duels was 6 and is now 5" in text
    assert "seed-2/sparta" in text
    assert not (whole / "seed-1" / "near").exists()


def test_arms_and_seeds_may_be_added(whole, tmp_path):
    import shutil

    out = tmp_path / "out"
    shutil.copytree(whole, out)
    more = comparison({**METHODS, "uniform": {"without": ["reputation"]}}, seeds=[1, 2, 3])
    assert run_all(more, out, progress=Silent()) == ()
    assert len(contents(out)) == 12
    assert contents(out).items() >= contents(whole).items()


def test_a_failed_arm_is_reported_and_stops_no_other(tmp_path):
    """Nothing of what the judges of one arm say can be read."""
    script = tmp_path / "mute.yaml"
    text = SCRIPT.read_text(encoding="utf-8")
    scores = """['{"score": 9}', '{"score": 7}', '{"score": 5}', '{"score": 3}']"""
    assert scores in text
    script.write_text(text.replace(scores, "no score"), encoding="utf-8")
    members = [
        {"name": name, "engine": "scripted", "model": f"script:{script}"}
        for name in ("ada", "bob", "cora")
    ]
    methods = {"sparta": {"judge.protocol": "rubric"}, "expected": NEAR}
    one = comparison(methods, base=base(pool={"members": members}))
    told = Told()
    failed = run_all(one, tmp_path / "out", progress=told)
    assert [(one.name, one.seed) for one in failed] == [("sparta", 1)]
    assert "judgments" in failed[0].why
    assert any("Seed 1, sparta failed" in line for line in told.lines)
    assert set(contents(tmp_path / "out", "frozen", "expected")) == {
        "seed-1/frozen/ledger.sqlite", "seed-1/expected/ledger.sqlite",
    }  # fmt: skip


def test_a_fault_of_ours_is_reported_with_its_traceback(tmp_path, monkeypatch):
    from phalanx.comparing import arm

    def broken(*_):
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr(arm, "run", broken)
    failed = run_all(comparison({"frozen": {}}), tmp_path, progress=Silent())
    assert "ZeroDivisionError: one over nothing" in failed[0].why
    assert "in broken" in (tmp_path / "seed-1" / "frozen.log").read_text("utf-8")


def test_a_folder_is_compared_in_by_one_at_a_time(tmp_path):
    lock = RunLock(tmp_path)
    try:
        with pytest.raises(LedgerError, match="in use by process"):
            run_all(made(), tmp_path, progress=Silent())
    finally:
        lock.release()


def test_whoever_needs_to_know_the_best_runs_last_and_is_lined_up(tmp_path):
    one = comparison({"copies": {"lineup": {"copies": True}}, "sparta": {}})
    told = Told()
    assert run_all(one, tmp_path, progress=told) == ()
    order = [line for line in told.lines if line.startswith("Seed")]
    assert order == ["Seed 1, frozen", "Seed 1, sparta", "Seed 1, copies"]
    assert run_all(one, tmp_path, progress=told) == ()  # the best is the same again


def of_one_seed(whole: Path) -> dict:
    """What is expected of arms in processes of their own, whose starts take longest."""
    return {name: rows for name, rows in contents(whole).items() if name.startswith("seed-1/")}


def test_in_processes_it_is_the_same(whole, tmp_path):
    assert run_all(made(seeds=[1]), tmp_path, jobs=2, progress=Silent()) == ()
    assert contents(tmp_path) == of_one_seed(whole)
    assert (tmp_path / "seed-1" / "sppo.log").exists()


@pytest.mark.slow
def test_a_process_that_fails_is_reported(tmp_path):
    one = comparison({"sparta": {}})
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "sparta").write_text("in the way", encoding="utf-8")
    failed = run_all(one, tmp_path, jobs=2, progress=Silent())
    assert [(one.name, one.seed) for one in failed] == [("sparta", 1)]
    assert "ended with 1" in failed[0].why
    assert "is, or is in, a file" in failed[0].why


DRIVER = """
import sys
from pathlib import Path
from phalanx.comparing.running import run_all
from phalanx.config import rules
from phalanx.progress import Silent
from tests.comparing.test_running import made
print("ready", flush=True)
run_all(made(seeds=[1]), Path(sys.argv[1]), jobs=int(sys.argv[2]), progress=Silent())
"""


def start(out: Path, jobs: int) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out), str(jobs)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_kill_9_and_again(whole, tmp_path):
    """Killed at random moments, then to the end: every ledger is that of a whole comparison."""
    out, rng, landed = tmp_path / "out", random.Random(1), 0
    for _ in range(8):
        child = kill_driver.start(lambda: run_all(made(), out, progress=Silent()))
        time.sleep(rng.uniform(0.02, 0.5))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        landed += os.WIFSIGNALED(status)
    assert landed
    assert run_all(made(), out, progress=Silent()) == ()
    assert contents(out) == contents(whole)


@pytest.mark.slow
def test_kill_9_and_again_in_processes(whole, tmp_path):
    out, rng = tmp_path / "out", random.Random(2)
    for _ in range(3):
        child = start(out, 2)
        time.sleep(rng.uniform(1, 4))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        wait_until_free(out)
    assert run_all(made(seeds=[1]), out, progress=Silent()) == ()
    assert contents(out) == of_one_seed(whole)


def wait_until_free(out: Path) -> None:
    """Processes of arms notice soon that the one that started them is gone."""
    deadline = time.monotonic() + 60
    for folder in out.glob("seed-*/*/"):
        while run_ledger_path(folder).exists():
            try:
                RunLock(folder).release()
                break
            except LedgerError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_and_is_told(tmp_path):
    child = start(tmp_path / "out", 2)
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) != 0
    wait_until_free(tmp_path / "out")


def test_ctrl_c_stops_the_whole_comparison(tmp_path, monkeypatch):
    from phalanx.comparing import arm

    def stopped(*_):
        raise Interrupted("stopped")

    monkeypatch.setattr(arm, "run", stopped)
    with pytest.raises(Interrupted):
        run_all(made(), tmp_path, progress=Silent())


def test_settings_of_the_other_methods_are_no_slip_of_one(tmp_path):
    told = Told()
    one = comparison({"self_consistency": {}}, seeds=[1])
    assert run_all(one, tmp_path, progress=told) == ()
    assert not [line for line in told.lines if "has no use" in line]
    assert [line for line in rules.notes(one.ways[-1].config) if "has no use" in line]
