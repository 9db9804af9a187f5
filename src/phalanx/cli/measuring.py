"""The verb ``eval``: members, models and collectives on tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.base import Quiet, app, folder_of, listed, out, stopping

if TYPE_CHECKING:
    from phalanx.measuring.wanted import Wanted


Members = Annotated[
    list[str] | None,
    typer.Option(
        "--members",
        "--member",
        metavar="A,B@2,...",
        help="NAME, NAME@ITERATION, a model (builtin:smollm2-135m, a folder, org/name; "
        "NAME=MODEL names it), majority, mixture, best_of, self_consistency, debate, council, "
        "best_of_n. Default: everybody, of a run at its start and its end.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        "--tasks",
        metavar="T,...",
        help="A name of evaluate.tasks, a kind (gsm8k, medqa, ...), KIND=FILE, skills, or "
        "lm-eval:TASK. Default: all of evaluate.tasks.",
    ),
]


@app.command("eval")
def eval_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE] [KEY=VALUE]...",
            help="A run's folder, a configuration or preset:NAME, or nothing; then settings that "
            "win over it: evaluate.max_new_tokens=128",
        ),
    ] = None,
    members: Members = None,
    tasks: Tasks = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The folder of the kinds' rows: KIND.jsonl."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Items of each task, drawn by the seed.")
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="NAME",
            help="Whom the others are compared with. Default: NAME@N with its own start, others "
            "with the first.",
        ),
    ] = "",
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The evaluation's folder; the same command goes on there, and one with more "
            "members or tasks adds to it. Default: SOURCE-eval, or runs/eval.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure members, models and collectives on tasks; every item is recorded.

    `phalanx eval runs/mine --task gsm8k=gsm8k.jsonl --members ada@0,ada,majority`

    Nothing is asked twice. `phalanx report` shows the same tables again, `phalanx export OUT
    evaluations` the items.
    """
    from phalanx.measuring.wanted import wanted

    source, overrides = split_source(words or [])
    wish = wanted(
        source, overrides, tasks=listed(tasks), members=listed(members), data=data, limit=limit,
        against=against,
    )  # fmt: skip
    default = folder_of(source, wish.config, "eval") if source else Path("runs") / "eval"
    _measure(wish, out_folder or default, quiet)


def _measure(wish: Wanted, folder: Path, quiet: bool) -> None:
    from phalanx.api import open_run
    from phalanx.measuring.work import measure_subjects
    from phalanx.progress import for_terminal
    from phalanx.report.terminal import summary

    progress = for_terminal(quiet=quiet)
    progress.say(f"Evaluation folder: {folder}")
    try:
        with stopping():
            made = measure_subjects(wish, folder, progress=progress)
    finally:
        progress.finish()
    evaluation = open_run(folder)
    report = evaluation.report()
    for note in made.notes if quiet else ():
        out.print(note, markup=False, highlight=False, soft_wrap=True)
    out.print(summary(evaluation.facts()), crop=False)
    text = f"In all {made}; {made.spent}. Record: {folder}. Report: {report}"
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def split_source(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The source, if the first word is none of the settings, and the settings.

    >>> split_source(["runs/mine", "seed=2"]), split_source(["seed=2"])
    (('runs/mine', ['seed=2']), (None, ['seed=2']))
    """
    if words and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0], list(words[1:])
    return None, list(words)
