"""A run whose members answer, judge and learn in worker processes is the run of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

from phalanx.config.schema import RaySettings, ResourceSettings, TrainSettings
from phalanx.engines.pooled import job_key
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError, Interrupted
from phalanx.executors.processes import ProcessExecutor
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.training import TrainJob
from phalanx.types import Instruction, Member, Message, PreferencePair, Request, Sampling
from phalanx.weights.parcels import Files, Receiver, Sender
from phalanx.workshop import Workshop, _of_a_ray_worker, _set_up_worker, make_weights
from tests.executors import runs, work
from tests.executors.test_processes import alive
from tests.executors.watching import Watching
from tests.tiny import make_adapter


def apart(bases):
    return runs.configuration(**bases, **{"resources.workers": 2})


@pytest.mark.slow
def test_workers_that_die_in_the_middle_change_nothing_and_the_driver_holds_no_base(
    bases, here, tmp_path
):
    killed, loaded = [], []
    shop = Workshop(apart(bases))

    def act(phase: str) -> None:
        loaded.append(dict(shop.weights.loaded))
        if len(killed) < 2 and phase.startswith("train" if killed else "answer"):
            worker = list(shop._workers._crew.values())[-1]
            os.kill(worker.process.pid, signal.SIGKILL)
            killed.append(worker.process.pid)

    align(apart(bases), tmp_path / "run", workshop=shop, progress=Watching(act))
    assert len(set(killed)) == 2  # one that answered, one that learned
    assert loaded
    assert all(bases_here == {} for bases_here in loaded)
    assert runs.differing(here, runs.results(tmp_path / "run")) == []


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_end(bases, here, tmp_path):
    """Ctrl-C while members answer, then while they learn; nothing half-written stays."""
    for wanted in ("answer", "train"):

        def interrupt(phase: str, wanted: str = wanted) -> None:
            if phase.startswith(wanted):
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(Interrupted):
            align(apart(bases), tmp_path / "run", progress=Watching(interrupt))
        assert list((tmp_path / "run").rglob("*.partial")) == []
    align(apart(bases), tmp_path / "run")
    assert runs.differing(here, runs.results(tmp_path / "run")) == []


def test_responses_of_workers_come_in_the_order_of_the_requests(bases):
    base, adapter = str(bases["base"]), str(bases["adapter"])
    members = [Member("ada", base), Member("bob", base, adapter)]
    requests = [
        Request(
            f"r{number}-{member.name}",
            member,
            (Message("user", "Say " + "two " * number),),
            Sampling(max_new_tokens=4),
            "answer",
            seed=number,
        )
        for number in range(5)
        for member in members
    ]
    with Workshop(runs.configuration(**bases)) as one, Workshop(apart(bases)) as two:
        expected = one.engine("hf").respond(requests)
        assert two.engine("hf").plan(requests) == one.engine("hf").plan(requests)
        assert two.engine("hf").respond(requests) == expected
        assert two.weights.loaded == {}


class Held:
    """Contents that count how often they are fetched."""

    def __init__(self, files: Files) -> None:
        self.files, self.fetched = files, 0

    def load(self) -> Files:
        self.fetched += 1
        return self.files


def test_an_adapter_travels_once_and_arrives_as_it_was(bases, tmp_path):
    put: list[Held] = []

    def store(files: Files) -> Held:
        put.append(Held(files))
        return put[-1]

    sender, receiver = Sender(store), Receiver()
    twin = make_adapter(bases["base"], tmp_path / "twin", rank=4, seed=2)
    names = [str(bases["adapter"]), None, "hub:org/name"]
    parcels = sender.parcels(names)
    assert list(parcels) == [str(bases["adapter"])]
    parcel = parcels[str(bases["adapter"])]
    folder = receiver.folder(parcel)
    assert receiver.folder(parcel) == folder
    assert [held.fetched for held in put] == [1]
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (folder / name).read_bytes() == (bases["adapter"] / name).read_bytes()
    assert sender.parcels([str(twin)])[str(twin)].key == parcel.key  # the same content
    assert len(put) == 1
    other = make_adapter(bases["base"], tmp_path / "other", rank=4, seed=9)
    assert sender.parcels([str(other)])[str(other)].key != parcel.key
    assert len(put) == 2
    with pytest.raises(EngineError, match="nowhere"):
        sender.parcels([str(tmp_path / "nowhere")])


def test_the_folder_of_a_killed_worker_is_swept_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, signal\nfrom phalanx.weights.parcels import Receiver\n"
        "(Receiver().root / 'adapter').mkdir()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    (left,) = tmp_path.glob("phalanx-*")
    (tmp_path / "phalanx-elsewhere-1-abc").mkdir()
    one = Receiver().root
    assert not left.exists()
    two = Receiver().root
    assert {path.name for path in tmp_path.iterdir()} == {
        one.name, two.name, "phalanx-elsewhere-1-abc",
    }  # fmt: skip


def test_a_base_in_memory_is_told_by_its_precision_and_its_code_too():
    ada = Member("ada", "org/base")
    others = [replace(ada, dtype="float16"), replace(ada, trust_remote_code=True)]
    assert len({job_key(member)[0] for member in (ada, *others)}) == 3
    assert job_key(ada) == ("org/base", "ada@0")
    assert job_key(replace(ada, name="bob"))[0] == job_key(ada)[0]


def test_no_gpu_is_used_where_none_is_to_be_counted_with():
    """What holds no GPU computes on the CPU, also where torch sees one."""

    def device(**settings) -> str:
        return make_weights(ResourceSettings(**settings))._device_name

    assert device() == "auto"
    assert device(gpus=0) == "cpu"
    assert device(gpus=2) == "auto"
    assert device(gpus=0, device="cuda:1") == "cuda:1"
    bare = _of_a_ray_worker(ResourceSettings())
    assert make_weights(bare)._device_name == "cpu"
    holding = _of_a_ray_worker(ResourceSettings(gpus=0, ray=RaySettings(gpus=0.5)))
    assert make_weights(holding)._device_name == "auto"


class Closing(ScriptedEngine):
    """Notes that it was closed, and then cannot be."""

    def __init__(self, name: str, closed: list[str]) -> None:
        super().__init__()
        self._name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self._name)
        raise EngineError(f"{self._name} cannot be closed")


def test_everything_is_closed_also_where_one_cannot_be(bases):
    closed: list[str] = []
    shop = Workshop(runs.configuration(**bases))
    shop._workers = ProcessExecutor(1, work.set_up, ("tool",))
    (worker,) = shop._workers.map(work.process_id, [1])
    for name in ("one", "two"):
        shop.use(name, Closing(name, closed))
    with pytest.raises(EngineError, match="cannot be closed"), shop:
        pass
    assert sorted(closed) == ["one", "two"]
    assert not alive(worker)


def test_a_worker_loads_its_packages_before_its_first_job():
    executor = ProcessExecutor(1, _set_up_worker, (ResourceSettings(), 1))
    names = ["torch", "transformers.models.auto.modeling_auto"]
    try:
        assert list(executor.map(work.loaded, [names])) == [names]
    finally:
        executor.close()


class Resting(ScriptedEngine):
    """Stands for a server that shares the device; there is none on this machine."""

    rested = 0

    def rest(self, say) -> None:
        self.rested += 1


@pytest.mark.parametrize("between", ["sleep", "stop", "keep"])
def test_workers_leave_the_device_to_a_server_that_wakes(bases, between):
    served = {"name": "ada", "model": str(bases["base"]), "serve": "vllm"}
    others = [{"name": name, "model": str(bases["base"])} for name in ("bob", "cora")]
    more = {
        "pool.members": [served, *others],
        "vllm.url": "http://127.0.0.1:1",
        "vllm.between_phases": between,
        "resources.workers": 2,
    }
    shop, server = Workshop(runs.configuration(**bases, **more)), Resting()
    shop.use("vllm", server)
    with shop:
        before = pids(shop)
        assert list(shop.train("train", [], Silent(), lambda: None)) == []
        assert server.rested == 1
        assert [alive(pid) for pid in before] == [between == "keep"] * 2
        assert (pids(shop) == before) == (between == "keep")


def pids(shop: Workshop) -> list[int | None]:
    assert isinstance(shop.workers, ProcessExecutor)
    return [worker.process.pid for worker in shop.workers._crew.values()]


class Counting(Silent):
    def __init__(self) -> None:
        self.phases: list[tuple[str, int]] = []
        self.done = 0

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self.phases.append((phase, total))

    def advance(self, amount: int = 1) -> None:
        self.done += amount


@pytest.mark.slow
def test_the_bar_of_a_resumed_training_counts_what_is_owed(bases, tmp_path):
    pairs = [
        PreferencePair(f"p{n}", Instruction(f"i{n}", f"say {n}"), "the cat sat", "a bad dog")
        for n in range(4)
    ]
    settings = TrainSettings(batch_size=2, epochs=1, accumulate=1)
    jobs = [
        TrainJob(
            Member(name, str(bases["base"])), tuple(pairs), settings, tmp_path / name,
            seed=1, version=1,
        )
        for name in ("ada", "bob")
    ]  # fmt: skip
    with Workshop(apart(bases)) as shop:
        first, again, nothing = Counting(), Counting(), Counting()
        (ada,) = shop.train("train", jobs[:1], first, lambda: None)
        assert (first.phases, first.done) == ([("train ada", 2)], 2)
        results = list(shop.train("train", jobs, again, lambda: None))
        assert (again.phases, again.done) == ([("train bob", 2)], 2)
        assert [result.member.name for result in results] == ["ada", "bob"]
        assert results[0] == ada
        assert list(shop.train("train", jobs, nothing, lambda: None)) == results
        assert nothing.phases == []
