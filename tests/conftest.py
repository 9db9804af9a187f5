"""Settings and fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder of collected case files (``PHALANX_CASES``); the test is skipped without it."""
    folder = Path(os.environ.get("PHALANX_CASES", ROOT.parent / "shared" / "cases"))
    if not folder.is_dir():
        pytest.skip("no case files; set PHALANX_CASES to their folder")
    return folder
