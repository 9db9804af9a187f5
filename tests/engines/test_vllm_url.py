"""A server that the user runs: woken to be asked, left awake, and of the members' base."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config.schema import VllmSettings
from phalanx.engines.hf import HFEngine
from phalanx.engines.vllm import ServedPool, VllmEngine
from phalanx.errors import EngineError
from phalanx.progress import Silent
from phalanx.types import Member, Request, Sampling
from phalanx.weights import Weights
from phalanx.workshop import Workshop
from tests.server import Abilities, TestServer
from tests.test_run_vllm import configuration
from tests.tiny import make_adapter, make_tiny


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("bases") / "one", seed=1)


@pytest.fixture
def member(base) -> Member:
    return Member("m", str(base), engine="vllm")


def serve(*members: Member, **options) -> TestServer:
    served = {f"base-{n}": member for n, member in enumerate(members)}
    return TestServer(HFEngine(Weights(device="cpu")), served, **options)


def engine_at(server: TestServer, member: Member, folder: Path | None = None) -> VllmEngine:
    return VllmEngine(VllmSettings(url=server.url), ServedPool((member,)), folder)


def ask(engine: VllmEngine, member: Member) -> None:
    want = Sampling(temperature=0, max_new_tokens=2)
    (reply,) = engine.respond([Request("r", member, member.messages("say"), want, "test")])
    assert reply.error is None


def paths(server: TestServer) -> list[str]:
    return [entry.path for entry in server.requests() if entry.method == "POST"]


def test_it_is_woken_to_be_asked_and_left_awake(member):
    with serve(member) as server:
        server.sleeping = True
        engine = engine_at(server, member)
        ask(engine, member)
        engine.rest()
        assert server.sleeping
        engine.close()
        assert not server.sleeping
        assert server.running
        assert paths(server) == ["/wake_up", "/v1/completions", "/sleep", "/wake_up"]


def test_one_that_somebody_else_put_to_sleep_sleeps_on(member):
    with serve(member) as server:
        server.sleeping = True
        engine = engine_at(server, member)
        engine.rest()
        engine.close()
        assert server.sleeping
        assert paths(server) == []


def test_one_without_sleep_mode_is_used_all_the_same(member):
    with serve(member, can=Abilities(sleep=False)) as server:
        engine = engine_at(server, member)
        ask(engine, member)
        said: list[str] = []
        engine.rest(said.append)
        engine.close()
    assert len(said) == 1
    assert "cannot sleep; it keeps its memory" in said[0]


def test_one_that_is_gone_when_it_should_rest_is_an_error(member):
    with serve(member) as server:
        engine = engine_at(server, member)
        ask(engine, member)
        server.stop()
        with pytest.raises(EngineError, match="did not answer POST /sleep"):
            engine.rest()
        engine.close()


@pytest.mark.parametrize("between", ["sleep", "keep"])
def test_it_rests_while_members_train_though_nothing_was_asked_yet(base, member, between):
    with serve(member) as server:
        more = {"vllm.url": server.url, "vllm.between_phases": between}
        with Workshop(configuration(base, **more)) as shop:
            assert list(shop.train("recruit", [], Silent(), lambda: None)) == []
            assert server.sleeping == (between == "sleep")
        assert not server.sleeping


def test_another_base_is_refused_by_its_tokens(member, tmp_path):
    other = make_tiny(tmp_path / "one", words="quite other words zebra quilt xylophone " * 4)
    with serve(replace(member, base=str(other))) as server:
        engine = engine_at(server, member)
        with pytest.raises(EngineError, match=r"vllm.url\) serves .*token ids are not those of"):
            ask(engine, member)
        engine.close()
        assert paths(server) == ["/tokenize"]


@pytest.mark.parametrize(
    ("tokenizes", "told"), [(True, "it has the vocabulary of"), (False, "it has no /tokenize")]
)
def test_a_base_of_another_name_is_noted(base, member, tokenizes, told, tmp_path):
    other = shutil.copytree(base, tmp_path / "other")
    served = replace(member, base=str(other))
    with serve(served, can=Abilities(tokenize=tokenizes)) as server:
        engine = engine_at(server, member)
        with pytest.warns(UserWarning, match=told) as caught:
            ask(engine, member)
        assert [one.category for one in caught].count(UserWarning) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ask(engine, member)  # said once
        engine.close()


def test_the_same_name_in_another_place_will_do(base, member, tmp_path):
    other = shutil.copytree(base, tmp_path / base.name)
    with serve(replace(member, base=str(other))) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = engine_at(server, member)
        ask(engine, member)
        engine.close()
        assert "/tokenize" in paths(server)


def test_adapters_that_an_earlier_start_of_the_run_left_there_are_unloaded(base, tmp_path):
    run = tmp_path / "run"
    bare = Member("m", str(base), engine="vllm")
    first, second = (
        replace(
            bare,
            adapter=str(make_adapter(base, run / "adapters" / f"iteration-{n}" / "m", seed=n)),
            version=n,
        )
        for n in (1, 2)
    )
    foreign = "m@1.00000000"
    with serve(bare) as server:
        server.loras[foreign] = replace(bare, adapter=str(tmp_path / "elsewhere"))
        engine = engine_at(server, first, run / "servers")
        ask(engine, first)
        engine.close()
        assert len(server.loras) == 2
        engine = engine_at(server, second, run / "servers")  # the run is started again
        ask(engine, second)
        engine.close()
        assert [name.partition(".")[0] for name in server.loras] == ["m@1", "m@2"]
        assert foreign in server.loras
