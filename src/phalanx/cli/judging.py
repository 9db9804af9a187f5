"""The verb ``judge-bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.asking import OutFolder, target_of, write_jsonl
from phalanx.cli.base import Overrides, Quiet, app, folder_of, listed, out, stopping
from phalanx.errors import ConfigError


@app.command("judge-bench")
def judge_bench(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A configuration, preset:NAME, a file with a pool, or a run's folder.",
        ),
    ],
    overrides: Overrides = None,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="Pairs of which the better one is known; or the folder of a run or an `eval`, "
            "whose answers are made into pairs of a right and a wrong one.",
        ),
    ] = "",
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, judgebench, llmbar, rewardbench, ppe, ppe-responses, or pairs of one's "
            "own: instruction, response_a, response_b, label, writer_a, writer_b.",
        ),
    ] = "auto",
    members: Annotated[
        list[str] | None,
        typer.Option("--members", metavar="A,B", help="Only these judges. Default: all."),
    ] = None,
    iterations: Annotated[
        list[str] | None,
        typer.Option(
            "--iterations",
            metavar="0,2",
            help="Of a run (0: the start). Default: its start and its end.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="So many pairs, drawn by the seed.")
    ] = None,
    per_item: Annotated[
        int, typer.Option("--per-item", min=1, help="Pairs of an item, of answers in a folder.")
    ] = 1,
    to: Annotated[Path | None, typer.Option("--to", help="A row for each pair, as JSONL.")] = None,
    out_folder: OutFolder = None,
    quiet: Quiet = False,
) -> None:
    """Test the pool's judges on pairs of which the better response is known.

    `phalanx judge-bench runs/mine --data llmbar.jsonl judge.protocol=likelihood`

    Every judge judges every pair by judge.protocol. The table has each judge, and all together
    by every rule of aggregation. Of a run: before and after.
    """
    from phalanx.measuring.judges import judge_bench as test_judges
    from phalanx.measuring.judges_wanted import wanted_bench
    from phalanx.progress import for_terminal

    made = wanted_bench(
        source, data, overrides or [], format=format, members=listed(members),
        iterations=_numbers(iterations), limit=limit, per_item=per_item,
    )  # fmt: skip
    folder = out_folder or folder_of(source, made.bench.config, "judge-bench")
    target = target_of(to, folder) if to else None
    with stopping():
        test_judges(
            made.bench,
            made.file,
            folder,
            writers=made.writers,
            flags=made.flags,
            progress=for_terminal(quiet=quiet),
        )
    _show(folder, target)


def _show(folder: Path, target: Path | None) -> None:
    from phalanx.ledger import Ledger, run_ledger_path
    from phalanx.report.facts import gather
    from phalanx.report.judged_facts import pair_rows
    from phalanx.report.terminal import summary

    with Ledger(run_ledger_path(folder)) as ledger:
        out.print(summary(gather(ledger)), crop=False)
        if target is not None:
            rows = list(pair_rows(ledger))
            write_jsonl(target, rows)
            out.print(f"Wrote {len(rows)} rows to {target}", markup=False, highlight=False)


def _numbers(given: list[str] | None) -> list[int] | None:
    words = listed(given)
    try:
        return [int(word) for word in words] or None
    except ValueError:
        raise ConfigError(
            f"--iterations {','.join(words)}: expected whole numbers with commas between them, as "
            "in 0,2"
        ) from None
