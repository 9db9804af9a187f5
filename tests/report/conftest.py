"""One finished synthetic run for all tests of this folder."""

from __future__ import annotations

import pytest

from phalanx.ledger import Ledger, run_ledger_path
from phalanx.report.facts import gather
from tests.report import fixture_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    return fixture_run.build(tmp_path_factory.mktemp("runs") / "demo-run")


@pytest.fixture(scope="session")
def facts(run_folder):
    with Ledger(run_ledger_path(run_folder)) as ledger:
        return gather(ledger)
