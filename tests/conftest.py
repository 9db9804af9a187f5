"""Shared fixtures. Tests never use the network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Two test processes share two cores: one thread each, and none that spins while it waits.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium():
    """The browser of a file's pages. Playwright has an event loop in this thread while it runs, so
    that nobody else could begin one: it ends with the file."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of evaluation rows, named by PHALANX_DATA; skips without it."""
    folder = os.environ.get("PHALANX_DATA")
    if not folder:
        pytest.skip("PHALANX_DATA names no folder of evaluation rows")
    return Path(folder)


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """The folder of external case files, named by PHALANX_CASES; skips where there is none."""
    folder = Path(os.environ.get("PHALANX_CASES", ROOT.parent / "shared" / "cases"))
    if not folder.is_dir():
        pytest.skip(f"no case files at {folder}")
    return folder
