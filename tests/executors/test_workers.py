"""A run whose members answer, judge and learn in worker processes is the run of one process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from phalanx.errors import EngineError, Interrupted
from phalanx.loop import align
from phalanx.types import Member, Message, Request, Sampling
from phalanx.weights.parcels import Files, Receiver, Sender
from phalanx.workshop import Workshop
from tests.executors import runs
from tests.executors.watching import Watching
from tests.tiny import make_adapter


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    return runs.make_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="module")
def here(bases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    align(runs.configuration(**bases), folder)
    return runs.results(folder)


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
