"""Real Ray clusters on this machine: equal ledgers, lost nodes, refusals, and no orphans."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.config.schema import RaySettings
from phalanx.errors import ConfigError, EngineError, TrainingError
from phalanx.loop import align
from phalanx.types import Member, Message, Request, Sampling
from phalanx.weights.parcels import Sender
from phalanx.workshop import Workshop
from tests.executors import runs, work
from tests.executors.test_processes import alive
from tests.executors.watching import Watching

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one CPU each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    yield made
    made.shutdown()


def on_ray(cluster, bases, **settings):
    given = {"address": cluster.address, "workers": 2, **settings}
    more = {f"resources.ray.{name}": value for name, value in given.items()}
    return runs.configuration(**bases, **{"resources.executor": "ray", **more})


@pytest.fixture
def executor(cluster):
    from phalanx.executors.ray import RayExecutor

    settings = RaySettings(address=cluster.address, workers=2)
    made = RayExecutor(settings, work.set_up, ("tool",))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"workers": 3}, r"3 workers with CPU 1 each.*room for 2.*2 nodes.*CPU 1; CPU 1"),
        ({"workers": 1, "cpus": 2}, r"1 workers with CPU 2 each.*room for 0"),
        ({"workers": 1, "gpus": 0.5}, r"GPU 0.5 each.*room for 0"),
        ({"workers": None, "resources": {"big": 1.0}}, r"CPU 1, big 1 each.*big 0"),
    ],
)
def test_asking_for_more_than_there_is_is_refused_at_once(cluster, bases, tmp_path, asked, told):
    shop = Workshop(on_ray(cluster, bases, **asked))
    started = time.monotonic()
    with shop, pytest.raises(ConfigError, match=told):
        shop.engine("hf")
    assert time.monotonic() - started < 5
    assert shop._weights is None


def test_no_cluster_at_the_address_is_an_error_that_says_so():
    from phalanx.executors.ray import RayExecutor

    missing = RayExecutor(RaySettings(address="127.0.0.1:1"), work.set_up, ("tool",))
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1.*could not be joined"):
        missing.open()


def test_a_run_through_the_store_equals_the_local_one_and_reads_no_folder_of_ours(
    cluster, bases, here, tmp_path
):
    """The workers are refused the run's folder and the first adapter's."""
    from phalanx.executors.ray import RayExecutor

    given = {"base": bases["base"], "adapter": tmp_path / "adapter"}
    shutil.copytree(bases["adapter"], given["adapter"])
    config = on_ray(cluster, given)
    shop = Workshop(config)
    setup = (str(tmp_path), config.resources, 1)
    workers = RayExecutor(config.resources.ray, work.set_up_guarded, setup)
    shop._workers, shop._sender = workers, Sender(workers.put)
    loaded = []
    watching = Watching(lambda phase: loaded.append((phase, dict(shop.weights.loaded))))

    with shop:
        with pytest.raises(PermissionError, match=r"open of .*adapter_config\.json"):
            list(shop.workers.map(work.read, [str(given["adapter"] / "adapter_config.json")]))
        align(config, tmp_path / "run", workshop=shop, progress=watching)
    found = runs.results(tmp_path / "run")
    assert [name for name in runs.differing(here, found) if name != "members"] == []
    assert {phase for phase, _ in loaded} >= {"answer", "judge"}
    assert all(bases_here == {} for _, bases_here in loaded)  # no second copy in the driver


def test_a_run_through_a_shared_folder_equals_the_local_one(cluster, bases, here, tmp_path):
    align(on_ray(cluster, bases, adapters="folder"), tmp_path / "run")
    assert runs.differing(here, runs.results(tmp_path / "run")) == []


def test_nodes_that_die_in_the_middle_cost_their_unfinished_work_alone(
    cluster, bases, here, tmp_path
):
    """One dies while members answer, another while they learn; both are killed, not asked."""
    done = []

    def act(phase: str) -> None:
        (lost,) = cluster.worker_nodes
        if phase == "answer" and not done:
            cluster.remove_node(lost, allow_graceful=False)
            done.append("answer")
            cluster.add_node(**NODE)
        elif phase.startswith("train") and len(done) == 1:
            cluster.remove_node(lost, allow_graceful=False)
            done.append("train")
            cluster.add_node(**NODE)

    align(on_ray(cluster, bases), tmp_path / "run", progress=Watching(act))
    assert done == ["answer", "train"]
    assert runs.differing(here, runs.results(tmp_path / "run")) == []


def test_results_errors_and_reports_travel(executor):
    assert [round(v, 3) for v, _, _ in executor.map(work.slow_square, [0.3, 0.0])] == [0.09, 0.0]
    assert {tool for _, tool, _ in executor.map(work.slow_square, [0.0] * 3)} == {"tool"}
    assert {threads for _, _, threads in executor.map(work.slow_square, [0.0] * 3)} == {"1"}
    with pytest.raises(TrainingError, match="not finite"):
        list(executor.map(work.fail, [1]))
    steps = []
    jobs = [(3, 1.5), (4, 1.5)]
    assert list(executor.map(work.report_and_sleep, jobs, report=steps.append)) == [3, 4]
    assert sum(steps) == 7


def test_steps_of_work_that_nobody_watched_are_not_counted_later(executor):
    list(executor.map(work.report_steps, [5, 5, 5]))
    steps = []
    list(executor.map(work.report_and_sleep, [(2, 1.5), (1, 1.5)], report=steps.append))
    assert sum(steps) == 3


def test_a_lost_worker_costs_its_own_job_and_a_deadly_job_is_named(executor, tmp_path):
    found = list(executor.map(work.die_unless_there, [str(tmp_path / "mark")]))
    assert len(found) == 1
    with pytest.raises(EngineError, match=r"job 1 of 1 \(base, ada@1\) was given up after 3"):
        list(executor.map(work.die, [1], keys=[("base", "ada@1")]))


def test_a_base_that_a_node_lacks_is_an_error_that_names_the_node(cluster, bases, tmp_path):
    base = shutil.copytree(bases["base"], tmp_path / "base")
    with Workshop(on_ray(cluster, {"base": base, "adapter": bases["adapter"]})) as shop:
        request = Request(
            "r1", Member("ada", str(base)), (Message("user", "Say one"),), Sampling(), "answer"
        )
        engine = shop.engine("hf")
        assert engine.plan([request]) == [[0]]
        shutil.rmtree(base)
        with pytest.raises(EngineError, match=r"on node 127\.0\.0\.1 .*base.*neither a folder"):
            engine.respond([request])


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_local_cluster_does_not_outlive_its_driver(tmp_path, sent):
    """Killed, or interrupted by Ctrl-C, which reaches the whole process group.

    It has the one CPU that the driver may use, not all of the machine.
    """
    pid_file = tmp_path / "pid"
    script = tmp_path / "driver.py"
    script.write_text(
        "import os\n"
        "import signal\n"
        "import ray\n"
        # A shell's background job, which the tests may be, ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from phalanx.config.schema import RaySettings\n"
        "from phalanx.executors.ray import RayExecutor\n"
        "from tests.executors import work\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "executor = RayExecutor(RaySettings(workers=1), work.set_up, ('tool',))\n"
        "executor.open()\n"
        "assert ray.cluster_resources()['CPU'] == 1\n"
        f"list(executor.map(work.write_id_and_sleep, [{str(pid_file)!r}]))\n",
        encoding="utf-8",
    )
    root = str(Path(__file__).resolve().parent.parent.parent)
    environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    environment.pop("RAY_ADDRESS", None)
    driver = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert waits_until(lambda: pid_file.exists() and pid_file.read_text("utf-8"), 60)
        family = descendants(driver.pid)
        assert all(address.endswith("0100007F") for address in listening(family))  # 127.0.0.1
        assert listening(family)
        assert int(pid_file.read_text("utf-8")) in family
    finally:
        os.killpg(driver.pid, sent) if sent == signal.SIGINT else driver.send_signal(sent)
    driver.wait(timeout=30)
    # Two helpers of Ray's look for the rest of a killed cluster for about another minute.
    helpers = {pid for pid in family if sent == signal.SIGKILL and is_agent(pid)}
    family -= helpers
    try:
        assert waits_until(lambda: not any(map(alive, family)), 30), list(filter(alive, family))
    finally:
        for helper in filter(alive, helpers):
            os.kill(helper, signal.SIGKILL)


def is_agent(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # gone already
    return command.startswith((b"ray::DashboardAgent", b"ray::RuntimeEnvAgent"))


def waits_until(true: Callable[[], object], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.1)
    return False


def listening(family: set[int]) -> set[str]:
    """Local addresses, as /proc writes them, of the listening sockets of these processes."""
    inodes = set()
    for pid in family:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except FileNotFoundError:
                continue  # it was closed while we looked
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text("utf-8").splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                found.add(columns[1].split(":")[0])
    return found


def descendants(pid: int) -> set[int]:
    parents = dict(parents_of_all())
    found, grown = {pid}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {pid}


def parents_of_all() -> Iterator[tuple[int, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text("utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        yield int(stat.parent.name), int(text.rsplit(")", 1)[1].split()[1])
