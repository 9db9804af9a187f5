"""A finished scripted run, whose duels people can judge."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.ledger import run_ledger_path
from phalanx.loop import align
from tests.ledger.old import SMOKE


def align_in(home: Path, *overrides: str) -> Path:
    """A run of 20 duels an iteration among four scripted members, its configuration beside it."""
    rows = [f'{{"instruction": "Say the number {n} in words."}}' for n in range(60)]
    (home / "instructions.jsonl").write_text("\n".join(rows))
    text = (SMOKE / "rubric.yaml").read_text().replace("duels: 6", "duels: 20")
    (home / "config.yaml").write_text(f"{text}\naggregate: {{rule: one_coin}}\n")
    align(load(home / "config.yaml", list(overrides)), home / "run")
    return home


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Two iterations."""
    return align_in(tmp_path_factory.mktemp("labelled"))


@pytest.fixture
def home(finished, tmp_path) -> Path:
    """A copy of one's own; the configuration finds its instructions beside it."""
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path


@pytest.fixture
def path(home) -> Path:
    return run_ledger_path(home / "run")
