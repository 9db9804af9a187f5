"""Rules about devices: this machine's, and those of Ray workers, which are others."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.config import Config, rules


def on(gpus: int | None = None, **resources: Any) -> tuple[list[str], list[str]]:
    """(faults, notes); ``gpus`` of a machine that is named, None for this one, which has none."""
    pool = {"base": "builtin:smollm2-135m", "members": [{"name": name} for name in "abc"]}
    config = Config.model_validate(
        {"pool": pool, "instructions": {"source": "builtin:skills"}, "resources": resources}
    )
    found = rules.check(config, gpus=gpus)
    texts = [(fault.level, f"{'.'.join(map(str, fault.path))}: {fault.text}") for fault in found]
    return tuple([text for level, text in texts if level == wanted] for wanted in ("fault", "note"))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "count_gpus", lambda: 0)


def ray(device: str = "auto", **settings: Any) -> dict[str, Any]:
    return {"executor": "ray", "device": device, "ray": {"gpus": 1.0} | settings}


@pytest.mark.parametrize("address", ["local", "auto", "ray://head:10001"])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_ray_workers_have_gpus_that_this_machine_has_not(address: str, device: str) -> None:
    assert on(**ray(device, address=address)) == ([], [])
    assert on(0, **ray(device, address=address)) == ([], [])


def test_this_machine_still_counts_where_members_are_on_it() -> None:
    (fault,), _ = on(device="cuda")
    assert "resources.device: is cuda, but this machine has no GPUs" in fault
    assert on(1, device="cuda:0") == ([], [])
    (fault,), _ = on(1, device="cuda:1")
    assert "has 1 GPU; use auto or cpu" in fault


@pytest.mark.parametrize("device", ["cuda:0", "cuda:3"])
def test_a_number_means_nothing_to_a_ray_worker(device: str) -> None:
    (fault,), _ = on(8, **ray(device))
    assert f"resources.device: is {device}, but every Ray worker sees" in fault
    assert "use cuda or auto" in fault


def test_cuda_needs_workers_with_a_gpu() -> None:
    (fault,), _ = on(8, **ray("cuda", gpus=0))
    assert "is cuda, but Ray workers hold no GPU; set resources.ray.gpus: 1" in fault
    assert on(8, **ray("auto", gpus=0)) == ([], [])
    assert on(8, **ray("cuda", gpus=0.5)) == ([], [])


@pytest.mark.parametrize("gpus", [1.5, 2])
def test_a_worker_holds_one_gpu_at_most(gpus: float) -> None:
    (fault,), _ = on(8, **ray(gpus=gpus))
    assert f"resources.ray.gpus: a worker computes on one GPU and would hold {gpus:g}" in fault
    assert on(8, ray={"gpus": gpus}) == ([], [])  # without Ray they are nobody's


def test_a_gpu_held_by_a_worker_on_the_cpu_is_a_note() -> None:
    faults, (note,) = on(8, **ray("cpu"))
    assert faults == []
    assert "a worker holds 1 GPU and leaves it idle" in note


def test_a_cluster_that_is_not_known_has_as_many_gpus_as_members_need() -> None:
    pool = {
        "base": "builtin:smollm2-135m",
        "members": [{"name": name, "gpus": 1} for name in "abc"],
    }

    def faults(address: str, **resources: Any) -> list[str]:
        settings = ray(address=address) | resources
        config = {"pool": pool, "instructions": {"source": "builtin:skills"}, "resources": settings}
        return rules.faults(Config.model_validate(config))

    assert faults("ray://head:10001") == []
    assert faults("ray://head:10001", gpus=2) == []
    (fault,) = faults("ray://head:10001", gpus=2, keep_all_loaded=True)
    assert "need 3 GPUs, available: 2 (resources.gpus)" in fault
    assert len(faults("local")) == 3
