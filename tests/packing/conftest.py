"""A packed run, and archives that somebody made otherwise."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.loop import align
from phalanx.packing import pack
from tests.ledger.old import SMOKE


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Path:
    """A finished run whose instructions, script and adapter lie elsewhere; and its archive."""
    home = tmp_path_factory.mktemp("home")
    for name in ("rubric.yaml", "instructions.jsonl"):
        shutil.copy(SMOKE / name, home / name)
    align(load(home / "rubric.yaml"), home / "run")
    adapter = home / "run" / "adapters" / "iteration-1" / "ada"
    adapter.mkdir(parents=True)
    (adapter / "adapter_model.safetensors").write_bytes(os.urandom(3000))
    (home / "run" / "servers").mkdir()
    (home / "run" / "servers" / "secret.log").write_text("token")
    pack(home / "run", home / "run.phalanx.tar.gz")
    return home
