"""What ``phalanx reproduce`` writes: configurations, commands and a plan."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phalanx.config.loading import map_paths, moved_override
from phalanx.errors import ConfigError
from phalanx.placing import placed
from phalanx.plan import plan_for
from phalanx.plan.make import Plan
from phalanx.plan.rounds import all_demands
from phalanx.plan.table import duration, render
from phalanx.reproducing.configurations import Run, Study, Wish, yaml_text
from phalanx.reproducing.filling import EVAL
from phalanx.reproducing.papers import JudgeTest

CONFIGS = "configs"
MARK = "# Written by phalanx reproduce"
Plans = Mapping[str, Plan | str]
"""The plan of each run by its name, or why ``phalanx check`` refuses it."""


def write(path: Path, text: str) -> None:
    """A file that appears whole."""
    with placed(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_configurations(study: Study, out: Path) -> None:
    """One YAML file a run in ``out/configs``: the preset, and what differs.

    Files of earlier calls that are of no run now are removed; those of a person stay.
    """
    for run in study.runs.values():
        write(config_path(out, run), configuration(study, run, out / CONFIGS))
    kept = {config_path(out, run) for run in study.runs.values()}
    for path in (out / CONFIGS).glob("*.yaml"):
        if path not in kept and MARK.encode() in path.read_bytes():
            path.unlink()


def config_path(out: Path, run: Run) -> Path:
    return out / CONFIGS / f"{run.name}.yaml"


def configuration(study: Study, run: Run, folder: Path) -> str:
    """The file of a run; paths in it are relative to ``folder``, where it will be."""
    arm, source = study.paper.arms[run.arm], study.paper.instructions[run.instructions]
    head = [
        f"# {study.paper.title}",
        f"# {arm.title}; the paper aligns on: {source.words}",
        f"{MARK} {study.wish.paper}; the preset and what differs from it.",
    ]
    moved = map_paths(run.difference, lambda text: _near_file(text, folder))
    return "\n".join([*head, "", yaml_text(moved)])


# Commands -----------------------------------------------------------------------------------------

_START = r"""
cd "$(dirname "$0")" || exit
trap 'exit 130' INT
failed=
phalanx() { # what fails is told at the end, and stops nothing but its own evaluation
    command phalanx "$@" && return
    failed="$failed
  phalanx $*"
    return 1
}
""".strip().splitlines()
_END = r"""
if [ -n "$failed" ]; then
    echo "Failed; the same script goes on with them:$failed" >&2
    exit 1
fi
""".splitlines()


def commands(study: Study, out: Path, runs: Path, plans: Plans) -> str:
    """A shell script; each of its lines may be given again and goes on from where it was.

    Lines of a run that fills no cell or has no room are comments. One that fails stops no other
    run; all that failed are told at the end.
    """
    lines = [
        "#!/bin/sh",
        f"# {study.paper.title}: what fills the tables of README.md.",
        "# Every line may be given again: what is finished is left as it is.",
        *_START,
    ]
    for run in study.runs.values():
        lines += ["", f"# {study.paper.arms[run.arm].title}, {run.instructions}"]
        own = list(_of_run(study, run, out, runs))
        reasons = []
        if not run.benchmarks:
            reasons = ["# Fills no cell as it is, so it is not made:"]
        if isinstance(plans[run.name], str):
            reasons.append(f"# No room on {_where(study.wish)}: plan.md says why. Where there is:")
        if reasons:
            own = [f"# {line.removeprefix('# ')}" for line in own]
        lines += [*reasons, *own]
    for table in study.tables:
        for test in table.tests:
            lines += [
                "",
                f"# {table.title}: {test.file}",
                _of_judges(study, test, out, runs, plans),
            ]
    lines += ["", "# Fill the tables", again(study.wish, out, runs), *_END]
    return "\n".join(lines) + "\n"


def _of_run(study: Study, run: Run, out: Path, runs: Path) -> Iterator[str]:
    config = f"{CONFIGS}/{run.name}.yaml"
    yield _words("check", config, *_machine(study.wish))
    for seed in study.wish.seeds:
        folder = Path(_near(runs / run.name / f"seed-{seed}", out))
        line = _words("run", config, f"seed={seed}", "--out", folder)
        yield f"{line} &&" if run.evals else line
        if run.evals:
            tasks = [{k: _near_file(v, out) for k, v in task.items()} for task in run.evals]
            members = ("--members", ",".join(run.members)) if run.members else ()
            target = folder.with_name(f"{folder.name}{EVAL}")
            wanted = f"evaluate.tasks={json.dumps(tasks)}"
            yield _words("eval", folder, wanted, *members, "--out", target)
    for name, reason in run.lacking.items():
        yield f"# {name}: {reason}"


def _of_judges(study: Study, test: JudgeTest, out: Path, runs: Path, plans: Plans) -> str:
    """The command that tests the judges of an arm, or what it lacks."""
    path = study.wish.file(test.file)
    run = next((run for run in study.runs.values() if run.arm == test.arm), None)
    if run is None or path is None:
        rows = f"rows, {test.file}.jsonl in the folder of --data"
        arm = f"judges: those of a run of {study.paper.arms[test.arm].title!r}"
        return f"# needs {' and '.join([rows] * (path is None) + [arm] * (run is None))}"
    line = _words(
        "judge-bench", f"{CONFIGS}/{run.name}.yaml", *test.settings, "--data", _near(path, out),
        "--out", _near(runs / "judge-bench" / test.file, out),
    )  # fmt: skip
    return f"# {line}" if isinstance(plans[run.name], str) else line


def again(wish: Wish, out: Path, runs: Path) -> str:
    """The command that writes everything anew, from within ``out``."""
    moved = [moved_override(text, lambda name: _near_file(name, out)) for text in wish.overrides]
    words = ["reproduce", wish.paper, *moved, "--out", "."]
    if wish.table:
        words += ["--table", wish.table]
    if wish.columns:
        words += ["--only", ",".join(wish.columns)]
    if wish.data is not None:
        words += ["--data", _near(wish.data, out)]
    if wish.pool is not None:
        words += ["--pool", _near(wish.pool, out)]
    if wish.seeds != (0,):
        words += ["--seeds", ",".join(map(str, wish.seeds))]
    if runs != out / "runs":
        words += ["--runs", _near(runs, out)]
    return _words(*words, *_machine(wish))


def _machine(wish: Wish) -> tuple[str, ...]:
    return ("--machine", wish.machine) if wish.machine else ()


def _words(*words: object) -> str:
    return " ".join(["phalanx", *(shlex.quote(str(word)) for word in words)])


def _near(path: Path, out: Path) -> str:
    """The path as seen from ``out``, so that both can move; absolute where they share no folder."""
    ends = (path.absolute(), out.absolute())
    if os.path.commonpath(ends) == ends[0].anchor:
        return str(ends[0])
    return os.path.relpath(*ends)


def _near_file(text: str, out: Path) -> str:
    """The same for a text that may name a file or a folder; what is not there stays as it is."""
    head = "script:" if text.startswith("script:") else ""
    path = Path(text.removeprefix(head)).expanduser()
    return head + _near(path, out) if path.is_absolute() and path.exists() else text


# Plan ---------------------------------------------------------------------------------------------


def plans_of(study: Study, out: Path) -> Plans:
    """What ``phalanx check`` says of each configuration that was written."""
    plans: dict[str, Plan | str] = {}
    for run in study.runs.values():
        try:
            plans[run.name] = plan_for(config_path(out, run), (), study.wish.machine)
        except ConfigError as error:
            plans[run.name] = str(error)
    return plans


def plan(study: Study, plans: Plans) -> str:
    """Requests, tokens and time of every run, and what ``phalanx check`` says of each."""
    seeds = len(study.wish.seeds)
    filling = [
        made for name, made in plans.items()
        if not isinstance(made, str) and study.runs[name].benchmarks
    ]  # fmt: skip
    each = f"one seed of {seeds}" if seeds > 1 else "the only seed"
    lines = [
        f"# {study.paper.title}: the plan for {_where(study.wish)}",
        "",
        f"Rough estimates of `phalanx check`, for {each}; evaluations after a run (`phalanx "
        "eval`) are not counted.",
        "",
        "| configuration | requests | tokens read and written, at most | time |",
        "|---|---:|---:|---|",
        *[_row(study.runs[name], made) for name, made in plans.items()],
        _sum(filling, len(plans), seeds),
        *_measuring(filling, seeds),
    ]
    for name, made in plans.items():
        lines += ["", f"## {name}", "", "```", _text(made), "```"]
    return "\n".join(lines) + "\n"


def _where(wish: Wish) -> str:
    return wish.machine or "this machine"


def _measuring(plans: Sequence[Plan], seeds: int) -> Iterator[str]:
    """What it costs to measure after every iteration, where that is most of the time."""
    often = [
        made for made in plans
        if made.times is not None and made.config.evaluate.every < made.iterations
    ]  # fmt: skip
    spent = sum(made.times.once.get("evaluate", 0) for made in often if made.times) * seeds
    if spent > sum(made.total_seconds or 0 for made in often) * seeds / 2:
        last = max(made.iterations for made in often)
        yield ""
        yield (
            f"Of it, evaluation takes {_time(spent)}: everybody is measured after every iteration, "
            f"on all rows. `evaluate.every={last}` measures at the start and at the end alone; the "
            "best member is then chosen among those, not among all iterations."
        )


def _row(run: Run, made: Plan | str) -> str:
    idle = "" if run.benchmarks else " (fills no cell)"
    if isinstance(made, str):
        return f"| {run.name}{idle} | | | refused: see below |"
    requests, tokens = _work(made)
    return f"| {run.name}{idle} | {requests:,} | {tokens:,} | {_time(made.total_seconds)} |"


def _sum(able: Sequence[Plan], listed: int, seeds: int) -> str:
    """Of the runs that can be made and fill a cell; ``listed`` are there in all."""
    counted = [_work(made) for made in able]
    requests, tokens = (sum(one[place] for one in counted) * seeds for place in (0, 1))
    times = [made.total_seconds for made in able]
    known = [seconds for seconds in times if seconds is not None]
    total = _time(sum(known) * seeds) if len(known) == len(times) else "not known"
    left = listed - len(able)
    words = "all" + (f" seeds ({seeds})" if seeds > 1 else "") + (f" but {left}" if left else "")
    return f"| **{words}** | {requests:,} | {tokens:,} | {total} |"


def _work(made: Plan) -> tuple[int, int]:
    """(requests, tokens) of a run; evaluation's requests are among them, its tokens are not."""
    requests = sum(count * demand.requests for count, demand in all_demands(made.rounds))
    tokens = sum(
        count * demand.requests * (demand.read + demand.written)
        for count, demand in all_demands(made.rounds)
    )
    return round(requests) + made.evaluation_requests, round(tokens)


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None else f"about {duration(seconds)}"


def _text(made: Plan | str) -> str:
    if isinstance(made, str):
        return made
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=100, no_color=True, highlight=False).print(render(made))
    return stream.getvalue().rstrip()
