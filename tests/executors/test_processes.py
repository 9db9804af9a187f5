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


def test_a_job_that_kills_its_workers_is_an_error_not_a_hang(executor):
    with pytest.raises(EngineError, match=r"job 1 of 1 \(ada\).*3 losses.*by signal 9"):
        list(executor.map(work.die, [1], keys=[("ada",)]))


def test_a_lost_worker_costs_its_own_job_alone_which_another_does(executor, tmp_path):
    executor.open()
    before = {worker.process.pid for worker in executor._crew.values()}
    found = list(executor.map(work.die_unless_there, [str(tmp_path / n) for n in "ab"]))
    assert not before & set(found)  # both died once, and were replaced
    assert len(list(executor.map(work.process_id, [1, 2, 3]))) == 3


def test_an_idle_worker_takes_the_next_job(executor):
    """Twelve short jobs beside a long one: the other worker does them all."""
    work_ = executor.start(work.sleep_and_say_where, [2.0] + [0.05] * 12)
    ended = []
    while work_.num_open:
        ended += work_.wait(1.0)
    assert [number for number, _ in ended][-1] == 0
    places = dict(ended)
    assert {places[number] for number in range(1, 13)} == {places[1]}
    assert places[0] != places[1]


def test_a_worker_goes_on_with_what_it_holds(executor):
    """Two members with many jobs each: neither moves to the other worker."""
    executor.open()
    list(executor.map(work.sleep_and_say_where, [0.5, 0.5]))  # both workers are up
    keys = [("base", name) for name in "ab" for _ in range(6)]
    places = list(executor.map(work.sleep_and_say_where, [0.1] * 12, keys=keys))
    moves = sum(places[at] != places[at - 1] for at in range(1, 12) if at != 6)
    assert moves <= 1  # the last job may go to a worker that has nothing else to do
    assert len(set(places)) == 2


def test_stop_begins_nothing_more_and_what_is_under_way_ends(executor):
    list(executor.map(work.process_id, [1, 2]))
    under_way = executor.start(work.sleep_and_say_where, [0.5] * 8)
    assert under_way.wait(0.0) == []
    under_way.stop()
    assert 1 <= under_way.num_open <= 2
    ended = []
    while under_way.num_open:
        ended += under_way.wait(1.0)
    assert {number for number, _ in ended} <= {0, 1}


def test_steps_are_reported_while_jobs_run(executor):
    steps = []
    assert list(executor.map(work.report_steps, [3, 4], report=steps.append)) == [3, 4]
    assert sum(steps) == 7


def test_a_set_up_that_fails_is_raised_with_the_first_job():
    executor = ProcessExecutor(1, work.set_up_wrongly)
    with pytest.raises(TrainingError, match="no weights here"):
        list(executor.map(work.process_id, [1]))
    executor.close()


def test_what_cannot_travel_is_an_error_and_the_worker_lives_on(executor):
    with pytest.raises(EngineError, match="cannot be sent back"):
        list(executor.map(work.unpicklable, [1]))
    under_way = executor.start(lambda job: job, [1])
    with pytest.raises(Exception, match="pickle"):
        under_way.wait(5.0)
    assert under_way.num_open == 0
    assert len(list(executor.map(work.process_id, [1]))) == 1


def test_a_job_that_fails_lets_those_under_way_end_and_no_other_begin(executor, tmp_path):
    before = set(executor.map(work.sleep_and_say_where, [0.5, 0.5]))
    under_way, waiting = str(tmp_path / "under way"), str(tmp_path / "waiting")
    arrived = []
    jobs = [("", 0.2), (under_way, 1.0), (waiting, 0.0)]
    with pytest.raises(TrainingError, match=r"failed after 0\.2 s"):
        list(executor.map(work.fail_or_touch, jobs, arrived=lambda *one: arrived.append(one)))
    assert arrived == [(1, under_way)]
    assert not os.path.exists(waiting)
    assert set(executor.map(work.sleep_and_say_where, [0.2, 0.2])) == before


def test_of_two_jobs_that_fail_the_first_is_told(executor):
    list(executor.map(work.sleep_and_say_where, [0.5, 0.5]))
    with pytest.raises(TrainingError, match=r"failed after 0\.2 s"):
        list(executor.map(work.fail_or_touch, [("", 0.8), ("", 0.2)]))
    assert len(list(executor.map(work.process_id, [1, 2]))) == 2


def test_stopping_while_others_end_after_a_failure_ends_them_at_once(executor, tmp_path):
    failing = [("", 0.2), (str(tmp_path / "never"), 60.0)]

    def poll() -> None:
        if time.monotonic() - started > 4:
            raise Interrupted("stopped")

    started = time.monotonic()
    with pytest.raises(Interrupted):
        list(executor.map(work.fail_or_touch, failing, poll))
    assert time.monotonic() - started < 20
    assert not (tmp_path / "never").exists()


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
