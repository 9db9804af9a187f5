"""What ``phalanx reproduce`` writes: configurations, commands and a plan."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from phalanx.config.loading import map_paths
from phalanx.errors import ConfigError
from phalanx.placing import placed
from phalanx.plan import plan_for
from phalanx.plan.make import Plan
from phalanx.plan.rounds import all_demands
from phalanx.plan.table import duration, render
from phalanx.reproducing.configurations import Run, Study, Wish, yaml_text
from phalanx.reproducing.filling import EVAL

CONFIGS = "configs"


def write(path: Path, text: str) -> None:
    """A file that appears whole."""
    with placed(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_configurations(study: Study, out: Path) -> None:
    """One YAML file a run in ``out/configs``: the preset, and what differs."""
    for run in study.runs.values():
        write(config_path(out, run), configuration(study, run, out / CONFIGS))


def config_path(out: Path, run: Run) -> Path:
    return out / CONFIGS / f"{run.name}.yaml"


def configuration(study: Study, run: Run, folder: Path) -> str:
    """The file of a run; paths in it are relative to ``folder``, where it will be."""

    def near(text: str) -> str:
        head = "script:" if text.startswith("script:") else ""
        path = Path(text.removeprefix(head))
        if not path.is_absolute() or not path.exists():
            return text
        return head + _near(path, folder)

    arm, source = study.paper.arms[run.arm], study.paper.instructions[run.instructions]
    head = [
        f"{study.paper.title}",
        f"{arm.title}; the paper aligns on: {source.words}",
        f"Written by phalanx reproduce {study.wish.paper}; the preset and what differs from it.",
    ]
    comment = "".join(f"# {line}\n" for line in head)
    return f"{comment}\n{yaml_text(map_paths(run.difference, near))}"


# Commands -----------------------------------------------------------------------------------------


def commands(study: Study, out: Path, runs: Path) -> str:
    """A shell script; each of its lines may be given again and goes on from where it was."""
    lines = [
        "#!/bin/sh",
        f"# {study.paper.title}: what fills the tables of README.md.",
        "# Every line may be given again: what is finished is left as it is.",
        "set -eu",
        'cd "$(dirname "$0")"',
    ]
    for run in study.runs.values():
        lines += ["", f"# {study.paper.arms[run.arm].title}, {run.instructions}"]
        lines += list(_of_run(study, run, out, runs))
    lines += ["", "# Fill the tables", again(study.wish, out, runs)]
    return "\n".join(lines) + "\n"


def _of_run(study: Study, run: Run, out: Path, runs: Path) -> Iterator[str]:
    config = f"{CONFIGS}/{run.name}.yaml"
    yield _words("check", config, *_machine(study.wish))
    for seed in study.wish.seeds:
        folder = Path(_near(runs / run.name / f"seed-{seed}", out))
        yield _words("run", config, f"seed={seed}", "--out", folder)
        if run.evals:
            tasks = [{k: _near_file(v, out) for k, v in task.items()} for task in run.evals]
            members = ("--members", ",".join(run.members)) if run.members else ()
            target = folder.with_name(f"{folder.name}{EVAL}")
            wanted = f"evaluate.tasks={json.dumps(tasks)}"
            yield _words("eval", folder, wanted, *members, "--out", target)
    for name, reason in run.lacking.items():
        yield f"# {name}: {reason}"


def again(wish: Wish, out: Path, runs: Path) -> str:
    """The command that writes everything anew, from within ``out``."""
    words = ["reproduce", wish.paper, *wish.overrides, "--out", "."]
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
    return _near(Path(text), out) if Path(text).is_absolute() else text


# Plan ---------------------------------------------------------------------------------------------


def plan(study: Study, out: Path) -> str:
    """Requests, tokens and time of every run, and what ``phalanx check`` says of each."""
    where = study.wish.machine or "this machine"
    plans: dict[str, Plan | str] = {}
    for run in study.runs.values():
        try:
            plans[run.name] = plan_for(config_path(out, run), (), study.wish.machine)
        except ConfigError as error:
            plans[run.name] = str(error)
    seeds = len(study.wish.seeds)
    each = f"one seed of {seeds}" if seeds > 1 else "the only seed"
    lines = [
        f"# {study.paper.title}: the plan for {where}",
        "",
        f"Rough estimates of `phalanx check`, for {each}; evaluations after a run (`phalanx "
        "eval`) are not counted.",
        "",
        "| configuration | requests | tokens read and written, at most | time |",
        "|---|---:|---:|---|",
        *[_row(name, made) for name, made in plans.items()],
        _sum(plans, seeds),
    ]
    for name, made in plans.items():
        lines += ["", f"## {name}", "", "```", _text(made), "```"]
    return "\n".join(lines) + "\n"


def _row(name: str, made: Plan | str) -> str:
    if isinstance(made, str):
        return f"| {name} | | | refused: see below |"
    requests, tokens = _work(made)
    return f"| {name} | {requests:,} | {tokens:,} | {_time(made.total_seconds)} |"


def _sum(plans: Mapping[str, Plan | str], seeds: int) -> str:
    able = [made for made in plans.values() if not isinstance(made, str)]
    counted = [_work(made) for made in able]
    requests, tokens = (sum(one[place] for one in counted) * seeds for place in (0, 1))
    times = [made.total_seconds for made in able]
    known = [seconds for seconds in times if seconds is not None]
    total = _time(sum(known) * seeds) if len(known) == len(times) else "not known"
    left = len(plans) - len(able)
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
