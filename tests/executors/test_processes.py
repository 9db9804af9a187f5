"""Jobs in real processes: order, failures, deaths, and no orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from phalanx.errors import EngineError, Interrupted, TrainingError
from phalanx.executors.processes import ProcessExecutor
from tests.executors import work


@pytest.fixture
def executor():
    made = ProcessExecutor(2, work.set_up, ("tool",))
    yield made
    made.close()


def test_results_come_in_the_order_of_the_jobs_from_workers_set_up_once(executor):
    results = list(executor.map(work.slow_square, [0.3, 0.0, 0.1]))
    assert [round(value, 3) for value, _, _ in results] == [0.09, 0.0, 0.01]
    assert {tool for _, tool, _ in results} == {"tool"}
    assert all(threads == "1" for _, _, threads in results)
    again = list(executor.map(work.process_id, [1, 2, 3, 4]))
    assert len(set(again)) <= 2
    assert os.getpid() not in again


def test_what_a_job_raises_is_raised_here(executor):
    with pytest.raises(TrainingError, match="not finite"):
        list(executor.map(work.fail, [1]))


def test_a_dead_worker_is_an_error_not_a_hang(executor):
    with pytest.raises(EngineError, match="worker process died"):
        list(executor.map(work.die, [1]))


def test_stopping_ends_the_workers_at_once(executor):
    def poll() -> None:
        if time.monotonic() - started > 3:
            raise Interrupted("stopped")

    started = time.monotonic()
    with pytest.raises(Interrupted):
        list(executor.map(work.sleep, [60, 60], poll))
    assert time.monotonic() - started < 20


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    code = (
        "import sys\nfrom phalanx.executors.processes import ProcessExecutor\n"
        "from tests.executors import work\n"
        "if __name__ == '__main__':\n"
        "    executor = ProcessExecutor(1, work.set_up, ('tool',))\n"
        f"    list(executor.map(work.write_id_and_sleep, [{str(tmp_path / 'pid')!r}]))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code, encoding="utf-8")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": root})
    pid_file = tmp_path / "pid"
    for _ in range(300):
        if pid_file.exists() and pid_file.read_text("utf-8"):
            break
        time.sleep(0.1)
    worker = int(pid_file.read_text("utf-8"))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    for _ in range(100):
        if not alive(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent by ten seconds")


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be collected does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
