"""The placement: everybody is somewhere, nothing is larger than its place, ways out work."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.plan import Plan, check, make_plan, plan_for, require
from phalanx.plan.machines import GB, machine_named
from phalanx.plan.units import USABLE, server_share
from phalanx.plan.ways import Question, memory_faults
from phalanx.plan.where import where
from phalanx.pool import members_from

BASES = ("org/tiny-135M", "org/small-1.5B", "org/mid-7B", "org/large-14B", "org/huge-70B")
SEVEN = "org/mid-7B"
SMALL = {"batch_size": 2}


def config_of(members: list[dict[str, Any]], **changes: Any) -> Config:
    data = {
        "iterations": 2,
        "pool": {"members": members},
        "instructions": {"source": "builtin:skills"},
        "match": {"duels": 100},
        "endpoints": [{"name": "lab", "url": "http://127.0.0.1:1/v1"}],
        "judge": {"protocol": "rubric"},
    }
    return Config.model_validate(data | changes)


def pool_of(*bases: str, **keys: Any) -> list[dict[str, Any]]:
    return [{"name": f"m{number}", "model": base} | keys for number, base in enumerate(bases)]


def question(config: Config, machine: str) -> Question:
    return Question(config, members_from(config), machine_named(machine), 30)


@st.composite
def pools(draw: st.DrawFn) -> Config:
    members: list[dict[str, Any]] = []
    for number in range(draw(st.integers(3, 10))):
        member: dict[str, Any] = {"name": f"m{number}", "model": draw(st.sampled_from(BASES))}
        kind = draw(st.sampled_from(("hf", "hf", "vllm", "openai", "scripted")))
        if kind == "vllm":
            member["serve"] = "vllm"
        elif kind != "hf":
            member["engine"] = kind
        if draw(st.booleans()):
            member["roles"] = ["contest", "judge"]
        members.append(member)
    resources: dict[str, Any] = {"keep_all_loaded": draw(st.booleans())}
    if draw(st.booleans()):
        resources |= {"executor": "ray", "ray": {"gpus": draw(st.sampled_from((0.5, 1.0)))}}
    vllm = {"between_phases": draw(st.sampled_from(("sleep", "stop", "keep")))}
    if draw(st.booleans()):
        vllm["arguments"] = [f"--gpu-memory-utilization={draw(st.sampled_from((0.3, 0.6)))}"]
    return config_of(members, resources=resources, vllm=vllm)


@settings(max_examples=60, deadline=None)
@given(pools(), st.integers(8, 200), st.sampled_from((1, 2, 8)))
def test_everybody_is_somewhere_once_and_fits(config: Config, memory: int, gpus: int) -> None:
    asked = question(config, f"{gpus}x{memory}GB")
    placement = asked.placement()
    members = asked.members
    placed = {
        phase: sorted(n for wave in placement.of(phase) for held in wave.held for n in held.members)
        for phase in ("serve", "train")
    }
    here = [m for m in members if m.engine in ("hf", "vllm")]
    assert placed["serve"] == sorted(m.name for m in here)
    assert placed["train"] == sorted(m.name for m in here if "learn" in m.roles)
    behind = sorted(name for names in placement.behind.values() for name in names)
    assert behind == sorted(m.name for m in members if m.engine == "openai")
    assert list(placement.scripted) == [m.name for m in members if m.engine == "scripted"]
    for phase in ("serve", "train"):
        own = [wave for wave in placement.of(phase) if not wave.server]
        if config.resources.keep_all_loaded:
            assert len(own) <= 1
        else:
            assert all(len(wave.held) == 1 for wave in own)
    if not list(memory_faults(asked, placement)):
        whole = memory * GB * placement.units.share
        for wave in placement.waves:
            if wave.server:
                assert wave.needed <= memory * GB * server_share(config)
            else:
                assert 0 < wave.needed <= whole * USABLE - wave.beside
                assert all(1 <= held.rows <= held.wanted for held in wave.held)


@settings(max_examples=60, deadline=None)
@given(pools(), st.integers(8, 200), st.integers(1, 100))
def test_more_memory_never_hurts(config: Config, memory: int, more: int) -> None:
    small = question(config, f"{memory}GB")
    large = question(config, f"{memory + more}GB")
    keys = [
        {
            (wave.key, wave.server): [held.rows for held in wave.held]
            for wave in asked.placement().waves
            if wave.fits
        }
        for asked in (small, large)
    ]
    for key, rows in keys[0].items():
        assert key in keys[1], "a wave that fitted does not fit in more memory"
        assert all(a <= b for a, b in zip(rows, keys[1][key], strict=True))


def test_ten_members_of_four_bases_on_one_card_take_turns() -> None:
    config = config_of(pool_of(*(BASES[:4] * 3)[:10]), train=SMALL)
    plan = make_plan(config, machine_named("a100-40gb"))
    waves = plan.placement.of("serve")
    assert [wave.held[0].base.base for wave in waves] == list(BASES[:4])
    assert waves[0].held[0].members == ("m0", "m4", "m8")
    assert len(plan.placement.of("train")) == 4


def test_a_base_without_room_is_refused_with_numbers_and_ways_that_work() -> None:
    members = pool_of(*["org/mid-9B"] * 3)
    with pytest.raises(ConfigError) as caught:
        make_plan(config_of(members), machine_named("l4"))
    message = str(caught.value)
    assert "no room to train org/mid-9B: needs 24." in message
    assert "available: 21.6 GB of l4" in message
    assert "train.batch_size: 2 with train.accumulate: 4" in message
    assert "--machine rtx5090" in message
    make_plan(config_of(members, train={"batch_size": 2, "accumulate": 4}), machine_named("l4"))
    make_plan(config_of(members), machine_named("rtx5090"))
    frozen = pool_of(*["org/mid-9B"] * 3, roles=["contest", "judge"])
    make_plan(config_of(frozen, train={"method": "none"}), machine_named("l4"))


def test_all_at_once_without_room_may_take_turns() -> None:
    config = config_of(pool_of(*BASES[:4]), resources={"keep_all_loaded": True}, train=SMALL)
    with pytest.raises(ConfigError, match="keep_all_loaded: false"):
        make_plan(config, machine_named("a100-40gb"))
    make_plan(config_of(pool_of(*BASES[:4]), train=SMALL), machine_named("a100-40gb"))
    together = make_plan(config, machine_named("h100"))
    assert len(together.placement.of("serve")) == 1


def test_a_base_larger_than_any_one_gpu_may_be_served_split() -> None:
    with pytest.raises(ConfigError, match="tensor-parallel-size, 2") as caught:
        make_plan(config_of(pool_of(*["org/huge-70B"] * 3)), machine_named("8xh200"))
    assert "no room to" in str(caught.value)
    members = pool_of(*["org/huge-70B"] * 3, serve="vllm", roles=["contest", "judge"])
    split = {"arguments": ["--tensor-parallel-size", "2"]}
    plan = make_plan(
        config_of(members, vllm=split, train={"method": "none"}), machine_named("8xh200")
    )
    assert plan.placement.of("serve")[0].server
    with pytest.raises(ConfigError, match="tensor-parallel-size 2, but there is room for 1"):
        make_plan(config_of(members, vllm=split, train={"method": "none"}), machine_named("h200"))


def test_a_server_that_keeps_its_memory_leaves_none_to_train() -> None:
    members = pool_of(*[SEVEN] * 3, serve="vllm")
    with pytest.raises(ConfigError, match="between_phases: sleep"):
        make_plan(config_of(members, vllm={"between_phases": "keep"}), machine_named("1x40GB"))
    plan = make_plan(config_of(members), machine_named("1x40GB"))
    (wave,) = plan.placement.of("train")
    assert 0 < wave.beside < 2 * GB
    mixed = [*members, {"name": "own", "model": "org/small-1.5B"}]
    with pytest.raises(ConfigError, match="serve: vllm for every member"):
        make_plan(config_of(mixed), machine_named("1x40GB"))


def test_a_server_on_a_cpu_cannot_sleep_and_is_stopped() -> None:
    members = pool_of(*["builtin:smollm2-135m"] * 3, serve="vllm")
    plan = make_plan(config_of(members, train=SMALL), machine_named("cpu:8:64GB"))
    (server,) = plan.placement.of("serve")
    (wave,) = plan.placement.of("train")
    assert server.server
    assert server.needed > 4 * GB
    assert wave.beside == 0
    assert plan.seconds is not None
    assert plan.seconds["load and switch"] > 60  # started again in every iteration
    kept = config_of(members, train=SMALL, vllm={"between_phases": "keep"})
    (wave,) = make_plan(kept, machine_named("cpu:8:64GB")).placement.of("train")
    assert wave.beside == server.needed


def test_workers_on_a_cpu_each_hold_the_base() -> None:
    members = pool_of(*["builtin:smollm2-135m"] * 4)
    short = {"answer": {"max_new_tokens": 40}, "train": {"batch_size": 4}}

    def plan(workers: int):
        resources = {"workers": workers, "device": "cpu"}
        return make_plan(
            config_of(members, resources=resources, **short), machine_named("cpu:64:16GB")
        )

    assert plan(2).placement.units.count == 2
    with pytest.raises(ConfigError, match=r"What would work: resources\.workers: \d") as caught:
        plan(40)
    plan(min(map(int, re.findall(r"resources\.workers: (\d+)", str(caught.value)))))


def test_ray_workers_are_as_many_as_there_is_room_for() -> None:
    members = pool_of(*[SEVEN] * 10)

    def plan(machine: str, **ray: Any):
        resources = {"executor": "ray", "ray": {"gpus": 1.0, "address": "auto"} | ray}
        return make_plan(config_of(members, resources=resources), machine_named(machine))

    one, eight, sixteen = plan("h100"), plan("8xh100"), plan("2x8xh100")
    counts = [p.placement.units.count for p in (one, eight, sixteen)]
    assert counts == [1, 8, 16]
    assert one.seconds is not None
    assert eight.seconds is not None
    assert sixteen.seconds is not None
    # Ten members on eight workers train in two rounds, on sixteen in one.
    assert one.seconds["train"] == pytest.approx(10 / 2 * eight.seconds["train"])
    assert eight.seconds["train"] == pytest.approx(2 * sixteen.seconds["train"])
    assert plan("2x8xh100", address="local").placement.units.count == 8
    assert plan("8xh100", gpus=0.5).placement.units.count == 16
    with pytest.raises(ConfigError, match="9 workers with gpus: 1 each asked for; there is room f"):
        plan("8xh100", workers=9)


def test_gpus_that_nobody_uses_are_pointed_out() -> None:
    config = config_of(pool_of(*[SEVEN] * 4))
    notes = make_plan(config, machine_named("8xh100")).notes
    assert any("8 GPUs there, of which members use 1" in note for note in notes)
    assert not any("GPUs there" in n for n in make_plan(config, machine_named("h100")).notes)


@pytest.mark.parametrize("address", ["auto", "ray://elsewhere:10001"])
@pytest.mark.parametrize("gpus", [0.0, 1.0])
def test_an_unknown_cluster_is_not_promised_or_refused_anything(address: str, gpus: float) -> None:
    """Whatever the machine that runs this has: it is not the one that members are on."""
    members = pool_of(*["org/giant-700B"] * 4)

    def config(**changes: Any) -> Config:
        ray = {"gpus": gpus, "address": address} | changes
        return config_of(members, resources={"executor": "ray", "ray": ray})

    require(config())
    for workers in (None, 40):
        plan = make_plan(config(workers=workers))
        units = plan.placement.units
        assert (units.known, units.card, units.count) == (False, None, workers or 1)
        assert all(wave.room is None and wave.fits for wave in plan.placement.waves)
        assert plan.total_seconds is None
        assert any("is not asked; say what it is with --machine" in note for note in plan.notes)
        assert not any("GPUs there" in note for note in plan.notes)
        assert "On a Ray cluster not known here" in where(plan).plain
    with pytest.raises(ConfigError, match="no room to train org/giant-700B"):
        make_plan(config(gpus=1.0), machine_named("2x8xh100"))


def test_a_ray_worker_is_on_a_gpu_only_where_it_holds_one_and_may_use_it() -> None:
    def gpu(device: str, held: float, **resources: Any) -> bool:
        resources |= {"executor": "ray", "device": device, "ray": {"gpus": held}}
        config = config_of(pool_of(*[BASES[0]] * 4), resources=resources)
        return make_plan(config, machine_named("8xh100")).placement.units.gpu

    assert gpu("auto", 1.0)
    assert gpu("cuda", 0.5)
    assert not gpu("auto", 0.0)
    assert not gpu("cpu", 1.0)
    assert gpu("auto", 1.0, gpus=0)  # which is about this machine, not about a worker's own GPU


SHORT = {"answer": {"max_new_tokens": 40}, "train": {"batch_size": 4}}


def on_cores(members: int, machine: str, **resources: Any) -> Plan:
    config = config_of(
        pool_of(*["builtin:smollm2-135m"] * members),
        resources={"device": "cpu"} | resources,
        **SHORT,
    )
    return make_plan(config, machine_named(machine))


def test_cores_are_not_counted_twice() -> None:
    machine = "cpu:4:128GB"
    four, eight = (on_cores(8, machine, workers=workers) for workers in (4, 8))
    assert (four.placement.units.cores, eight.placement.units.cores) == (1, 0.5)
    assert four.seconds is not None
    assert eight.seconds is not None
    for phase in ("answer", "judge", "train"):
        assert eight.seconds[phase] == pytest.approx(four.seconds[phase])
    (note,) = [note for note in eight.notes if "resources.workers: " in note]
    assert "8 processes share the 4 CPU cores there" in note
    assert not [note for note in four.notes if "processes share" in note]
    assert "0.5 CPU cores" in eight.assumption

    usual, many = (on_cores(4, machine, threads=threads) for threads in (4, 64))
    assert many.seconds == pytest.approx(usual.seconds)
    (note,) = [note for note in many.notes if "resources.threads: " in note]
    assert "64 threads share the 4 CPU cores there; at most 4" in note
    assert not [note for note in usual.notes if "threads share" in note]

    halves = on_cores(8, machine, executor="ray", ray={"cpus": 0.5})
    assert (halves.placement.units.count, halves.placement.units.cores) == (8, 0.5)


def test_workers_share_the_batches_of_one_member() -> None:
    """One judge for everybody: its batches are judged side by side, while there are several."""
    members = pool_of(*["builtin:smollm2-135m"] * 3)
    members[0]["roles"] = members[1]["roles"] = ["contest", "learn"]
    members[2]["roles"] = ["judge"]

    def judging(workers: int, duels: int) -> float:
        resources = {"device": "cpu", "workers": workers, "threads": 1}
        config = config_of(members, resources=resources, match={"duels": duels}, **SHORT)
        seconds = make_plan(config, machine_named("cpu:64:128GB")).seconds
        assert seconds is not None
        return seconds["judge"]

    assert judging(4, 200) == pytest.approx(judging(1, 200) / 4)
    assert judging(4, 1) == pytest.approx(judging(1, 1))  # two requests are one batch


def test_recruiting_takes_as_long_in_small_and_in_gathered_steps() -> None:
    def seconds(**train: Any) -> float:
        pool = {
            "base": "builtin:smollm2-135m",
            "recruit": {"specialists": {n: ["addition"] for n in "abc"}, "train": train},
        }
        config = Config.model_validate({"pool": pool, "instructions": {"source": "builtin:skills"}})
        plan = make_plan(config, machine_named("h200"))
        assert plan.times is not None
        return plan.times.once["recruit"]

    once, gathered = seconds(batch_size=1), seconds(batch_size=1, accumulate=16)
    assert gathered == pytest.approx(once)  # every batch is launched, whatever a step gathers
    assert once > 2 * seconds(batch_size=16)


def test_the_words_follow_keep_all_loaded() -> None:
    def words(**resources: Any) -> str:
        members = pool_of(*["builtin:smollm2-135m"] * 2, BASES[0])
        config = config_of(members, resources={"device": "cpu", "workers": 2} | resources, **SHORT)
        return where(make_plan(config, machine_named("cpu:4:128GB"))).plain

    assert "2 worker processes side by side, one base at a time in each." in words()
    assert "2 worker processes side by side, every base in each." in words(keep_all_loaded=True)


def test_endpoints_are_counted_and_priced() -> None:
    members = [{"name": n, "engine": "openai", "model": n} for n in "abc"]
    endpoint = {"name": "lab", "url": "http://127.0.0.1:1/v1", "price_in": 1.0, "price_out": 3.0}
    config = config_of(
        members,
        endpoints=[endpoint | {"requests_per_minute": 60}],
        answer={"max_new_tokens": 100},
        judge={"protocol": "rubric", "max_new_tokens": 50},
        train={"method": "none"},
        budget={"requests": 900, "money": 0.1, "tokens": 10**9},
    )
    plan = make_plan(config)
    (asked,) = plan.endpoints
    tokens = plan.instructions.tokens
    assert asked.requests == 2 * (200 + 200)  # two responses a duel, one judge with two requests
    read = 2 * (200 * tokens + 200 * (tokens + 100 + 120))
    assert (asked.tokens_in, asked.tokens_out) == (read, 2 * (200 * 100 + 200 * 50))
    assert asked.money == pytest.approx((read + 3 * 2 * 30_000) / 1e6)
    assert asked.minutes == pytest.approx(800 / 60)
    requests, tokens_line, money = plan.budget
    assert "about 800 fit within 900" in requests
    assert "fit within 1,000,000,000" in tokens_line
    assert "do not fit within 0.1;" in money
    assert plan.placement.behind == {"lab": ("a", "b", "c")}
    assert plan.total_seconds == 0


def test_an_endpoint_is_measured_once_and_may_write_its_scores() -> None:
    members = [{"name": n, "engine": "openai", "model": n} for n in "abc"]
    common = {
        "endpoints": [{"name": "lab", "url": "http://127.0.0.1:1/v1"}],
        "judge": {"protocol": "expected", "max_new_tokens": 50},
        "train": {"method": "none"},
    }
    task = {"name": "skills", "source": "builtin:skills", "limit": 2}
    bare = make_plan(config_of(members, **common))
    measured = make_plan(config_of(members, evaluate={"tasks": [task]}, **common))
    assert measured.evaluation_items > 0
    more = measured.endpoints[0].requests - bare.endpoints[0].requests
    assert more == 3 * measured.evaluation_items
    assert bare.endpoints[0].tokens_out >= bare.work.judge_requests * 50


def test_a_faster_card_takes_less_time_and_a_gpu_less_than_a_cpu() -> None:
    config = config_of(pool_of(*[SEVEN] * 4))
    machines = ("cpu:16:128GB", "a100-80gb", "h100", "b200")
    totals = [make_plan(config, machine_named(name)).total_seconds for name in machines]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > 20 * totals[1]


def test_larger_batches_are_offered_where_they_fit_and_write_faster() -> None:
    config = config_of(pool_of(*[SEVEN] * 4))
    plan = make_plan(config, machine_named("h200"))
    (note,) = [note for note in plan.notes if "there is room for batches of" in note]
    size = int(note.split("batch_size: ")[1].split(",")[0])
    tokens = int(note.split("batch_tokens: ")[1].split(")")[0])
    larger = config_of(
        pool_of(*[SEVEN] * 4), resources={"batch_size": size, "batch_tokens": tokens}
    )
    better = make_plan(larger, machine_named("h200"))
    (held,) = better.placement.of("serve")[0].held
    assert held.rows == held.wanted == size
    assert better.seconds["answer"] < plan.seconds["answer"]


def test_recruiting_and_evaluation_are_counted() -> None:
    plan = plan_for("configs/examples/demo.yaml")
    assert plan.times is not None
    assert set(plan.times.once) == {"recruit", "evaluate"}
    each = sum(plan.times.each.values()) * plan.iterations
    assert plan.total_seconds == pytest.approx(each + sum(plan.times.once.values()))


@pytest.mark.parametrize("width", [80, 100])
def test_the_text_says_who_goes_where(width: int) -> None:
    code, text = check("preset:sparta-paper", machine="1x40GB", width=width)
    assert code == 0
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    for words in (
        "On 1x40GB: 36.0 GB for members (90% is reckoned with).",
        "Answer and judge, one base, its members in turn: Qwen/Qwen2.5-7B-Instruct with m1, m2, "
        "m3, m4, m5, m6, m7, m8, m9, m10: 19.8 GB (weights 15.2 GB, adapters 1.1 GB, a batch of 17 "
        "requests 3.5 GB)",
        "Train, one base, its members in turn: Qwen/Qwen2.5-7B-Instruct with m1,",
        "Time, a rough estimate: about ",
        "40% of the operations and 60% of the bandwidth of a100-40gb",
    ):
        assert words in flat


def test_faults_about_this_machine_do_not_hold_for_another() -> None:
    overrides = ["resources.device=cuda", "resources.gpus=1"]
    assert check("preset:sparta-paper", overrides, machine="h200")[0] == 0
    code, text = check("preset:sparta-paper", overrides, machine="cpu:8:64GB")
    assert code == 2
    assert "no GPU" in text
    assert check("preset:sparta-paper", machine="h2000")[0] == 2
