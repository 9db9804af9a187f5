"""The command line's verbs in Python.

import phalanx

run = phalanx.run("config.yaml", out="runs/mine")   # starts, or goes on
run.preferences()                                   # rows for TRL
run.reputations()                                   # who stands where
run.report("report.html")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx import config as _config
from phalanx.config.schema import Config
from phalanx.export import export, rows_of
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.plan import content_faults
from phalanx.report.facts import RunFacts, gather
from phalanx.report.html import write_html
from phalanx.report.markdown import write_markdown
from phalanx.types import Member, Progress
from phalanx.workshop import Workshop

__all__ = ["Run", "load_config", "open_run", "run"]


class Run:
    """A run folder, read-only: every method reads the ledger anew.

    Raises LedgerError where the folder holds no run.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        with self._ledger():
            pass

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _ledger(self) -> Ledger:
        return Ledger(run_ledger_path(self.folder))

    @property
    def config(self) -> Config:
        with self._ledger() as ledger:
            return Config.model_validate(json.loads(ledger.get("config") or "{}"))

    @property
    def finished(self) -> bool:
        with self._ledger() as ledger:
            return ledger.get("finished") is not None

    def members(self, iteration: int | None = None) -> list[Member]:
        """The newest version of every member, or the version when ``iteration`` had ended."""
        with self._ledger() as ledger:
            return ledger.members(iteration)

    def rows(self, what: str, **options: Any) -> list[dict[str, Any]]:
        """``preferences``, ``judgments``, ``responses`` or ``reputations`` as dictionaries."""
        with self._ledger() as ledger:
            return list(rows_of(ledger, what, **options))

    def preferences(self, *, conversational: bool = False) -> list[dict[str, Any]]:
        """The kept pairs: ``prompt``, ``chosen``, ``rejected`` as TRL reads them, and more."""
        return self.rows("preferences", conversational=conversational)

    def judgments(self) -> list[dict[str, Any]]:
        return self.rows("judgments")

    def responses(self) -> list[dict[str, Any]]:
        return self.rows("responses")

    def reputations(self) -> dict[str, float]:
        """Each member's reputation after the last recorded iteration."""
        with self._ledger() as ledger:
            last = ledger.query("SELECT max(iteration) AS number FROM states")[0]["number"]
            if last is None:
                return {}
            return {name: s.value for name, s in ledger.state(last)["standings"].items()}

    def facts(self) -> RunFacts:
        """Every number that the summary and the report show."""
        with self._ledger() as ledger:
            return gather(ledger)

    def report(self, path: Path | str | None = None) -> Path:
        """Write the report: ``report.html`` in the run folder, or ``path``; ``.md`` is Markdown."""
        target = Path(path) if path else self.folder / "report.html"
        with self._ledger() as ledger:
            ledger.refuse_target(target)
            write = write_markdown if target.suffix == ".md" else write_html
            write(gather(ledger), target)
        return target

    def export(self, what: str, out: Path | str, **options: Any) -> int:
        """Write rows as jsonl, parquet or a ``datasets`` folder; returns how many."""
        with self._ledger() as ledger:
            return export(ledger, what, out=out, **options)


def load_config(source: Path | str, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Config:
    """Read a YAML file or ``preset:NAME``. Raises ConfigError that lists every fault."""
    return _config.load(source, overrides, also=(content_faults,))


def default_folder(source: Path | str, config: Config) -> Path:
    """``output`` of the configuration, or ``runs/`` and the name of its file or preset."""
    if config.output:
        return Path(config.output)
    name = str(source).removeprefix("preset:")
    return Path("runs") / Path(name).stem


def run(
    config: Config | Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Run:
    """Start or continue a run. ``config`` is a file, ``preset:NAME``, or a loaded Config.

    ``overrides`` are ``key.path=value`` texts or a mapping, as on the command line.
    ``workshop`` brings one's own engines.
    """
    if isinstance(config, Config):
        loaded, source = config, "run"
    else:
        loaded, source = load_config(config, overrides), config
    folder = Path(out) if out else default_folder(source, loaded)
    return Run(align(loaded, folder, progress=progress, workshop=workshop))


def open_run(folder: Path | str) -> Run:
    """Open a run that exists, finished or not."""
    return Run(folder)
