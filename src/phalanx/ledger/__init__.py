"""One SQLite file per run: see :mod:`phalanx.ledger.store`."""

from phalanx.ledger.holding import ENDED
from phalanx.ledger.store import FILE_NAME, STOPPED, Ledger, RunLock, run_ledger_path

__all__ = ["ENDED", "FILE_NAME", "STOPPED", "Ledger", "RunLock", "run_ledger_path"]
