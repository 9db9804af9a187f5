"""What is to be tested, from the words of a command: the judges, and the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.benchmarks.pair_files import FORMATS, PairFile, read_pair_file
from phalanx.errors import ConfigError
from phalanx.ledger import run_ledger_path
from phalanx.measuring.judges_pairs import own_answers
from phalanx.measuring.judges_source import Bench, bench_from

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class WantedBench:
    """``writers`` has families of writers by name; ``flags`` what was asked for, for the record."""

    bench: Bench
    file: PairFile
    writers: dict[str, str]
    flags: dict[str, Any]


def wanted_bench(
    source: Path | str,
    data: Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    format: str = AUTO,
    members: Sequence[str] = (),
    iterations: Sequence[int] | None = None,
    limit: int | None = None,
    per_item: int = 1,
) -> WantedBench:
    """Judges and pairs; see :func:`bench_from`. ``data`` is a file with pairs, or the folder of a
    run or an evaluation, whose answers become pairs (``per_item`` of an item at most).

    Raises ConfigError before a model is loaded.
    """
    if not str(data):
        raise ConfigError("--data is missing; name a file with pairs, or a folder with answers")
    if format not in (AUTO, *FORMATS):
        raise ConfigError(f"--format {format!r}: expected auto or one of {', '.join(FORMATS)}")
    bench = bench_from(source, overrides, members=members, iterations=iterations)
    seed, writers = bench.config.seed, {}
    path = Path(data).expanduser()
    if run_ledger_path(path).exists():
        if format != AUTO:
            raise ConfigError(f"--format {format}: {data} has answers, not a file of pairs")
        own = own_answers(path, per_item=per_item, seed=seed)
        file, writers = own.file, own.families
    else:
        file = read_pair_file(str(data), format)
    flags = {
        "--data": str(data), "--format": format, "--limit": limit, "--members": list(members),
        "--iterations": list(bench.iterations), "--per-item": per_item,
    }  # fmt: skip
    return WantedBench(bench, file.limited(limit, seed), writers, flags)
