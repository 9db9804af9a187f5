"""Ledgers of older schemas, as the versions that had them wrote them.

``schema-N.sql.gz`` is a dump of a run of ``configs/smoke/rubric.yaml`` with three items of the
skills in each domain measured; ``@SMOKE@`` stands for the folder of the configurations.
"""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
SMOKE = HERE.parent.parent / "configs" / "smoke"
TASKS = "evaluate.tasks=[{name: skills, source: 'builtin:skills', limit: 3}]"
SCHEMAS = (2, 3, 4, 5)


def old_run(schema: int, folder: Path) -> Path:
    """The run in ``folder``; returns the path of its ledger."""
    text = gzip.decompress((HERE / f"schema-{schema}.sql.gz").read_bytes()).decode()
    folder.mkdir(parents=True)
    path = folder / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(text.replace("@SMOKE@", str(SMOKE)))
        db.execute("PRAGMA journal_mode=WAL")
    return path
