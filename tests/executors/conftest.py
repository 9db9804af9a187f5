"""The bases of small runs, and the same run in one process to hold others against."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.loop import align
from tests.executors import runs


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    return runs.make_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="module")
def here(bases, tmp_path_factory):
    """The same run in this process."""
    folder = tmp_path_factory.mktemp("here")
    align(runs.configuration(**bases), folder)
    return runs.results(folder)
