"""Machines: what --machine means, how GPUs are recognised, and what the system says of this one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from phalanx.config import machine as here
from phalanx.errors import ConfigError
from phalanx.plan.machines import CARDS, card_like, machine_named, this_machine


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "gigabytes"),
    [
        ("h200", 1, 1, 141),
        ("8xh100", 1, 8, 80),
        ("2x8xH100", 2, 8, 80),
        ("a100", 1, 1, 40),
        ("a100-80gb", 1, 1, 80),
        ("1x40GB", 1, 1, 40),
        ("4x23.5gb", 1, 4, 23.5),
        ("mi300x", 1, 1, 192),
    ],
)
def test_gpus_by_name_and_by_memory(text: str, nodes: int, gpus: int, gigabytes: float) -> None:
    machine = machine_named(text)
    assert machine.card is not None
    assert (machine.nodes, machine.gpus, machine.card.memory) == (nodes, gpus, gigabytes * 1e9)
    assert not machine.here


def test_machines_without_a_gpu() -> None:
    machine = machine_named("4xcpu:8:16GB")
    assert (machine.card, machine.nodes, machine.gpus) == (None, 4, 0)
    assert (machine.cores, machine.memory) == (8, 16 * 10**9)
    assert machine_named("cpu").memory is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h10", "did you mean h100?"),
        ("a100-44gb", "did you mean a100-40gb?"),
        ("0xh100", "has none"),
        ("h100 and more", "cannot be read"),
        ("toaster", "known: "),
    ],
)
def test_unknown_machines_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"--machine") as caught:
        machine_named(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "gigabytes", "known"),
    [
        ("NVIDIA A100-SXM4-40GB", 42.9, "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", 85.9, "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", 85.5, "h100"),
        ("NVIDIA H100 PCIe", 85.5, "h100-pcie"),
        ("NVIDIA H200", 150.7, "h200"),
        ("NVIDIA GeForce RTX 4090", 25.8, "rtx4090"),
        ("NVIDIA L40S", 48.3, "l40s"),
        ("NVIDIA L4", 24.2, "l4"),
        ("Tesla T4", 16.1, "t4"),
    ],
)
def test_a_card_is_recognised_by_the_name_of_its_driver(
    name: str, gigabytes: float, known: str
) -> None:
    card = card_like(name, int(gigabytes * 1e9))
    assert (card.name, card.memory, card.known) == (known, int(gigabytes * 1e9), True)


def test_an_unknown_card_has_its_memory_and_the_speed_of_its_like() -> None:
    card = card_like("Acme X1", 47 * 10**9)
    assert (card.memory, card.known) == (47 * 10**9, False)
    assert (card.flops, card.bandwidth) == next(
        (c.flops, c.bandwidth) for c in CARDS if c.name == "a6000"
    )


def test_what_nvidia_smi_prints() -> None:
    text = "NVIDIA H200, 143771\nNVIDIA GB10, [N/A]\n"
    first, second = here.read_gpus(text)
    assert (first.name, first.memory) == ("NVIDIA H200", 143771 * 2**20)
    assert (second.name, second.memory) == ("NVIDIA GB10", None)


def program(folder: Path, body: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def test_nvidia_smi_is_asked_and_may_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, 'echo "NVIDIA L4, 23034"; echo "NVIDIA L4, 23034"')
    here._all_gpus.cache_clear()
    assert [gpu.memory for gpu in here._all_gpus()] == [23034 * 2**20] * 2
    program(tmp_path, "exec sleep 60")
    monkeypatch.setattr(here, "NVIDIA_SMI_S", 0.2)
    here._all_gpus.cache_clear()
    started = time.monotonic()
    assert here._all_gpus() == ()
    assert time.monotonic() - started < 5
    here._all_gpus.cache_clear()


def test_this_machine() -> None:
    machine = this_machine()
    assert machine.here
    assert machine.cores
    assert machine.memory == here.memory_bytes()
    assert machine.gpus == here.count_gpus() == len(here.gpus())
    assert (machine.card is None) == (machine.gpus == 0)
