"""What a search for mixtures found, for a terminal: trials, the front, and YAML to go on with."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from phalanx.collective.designs import Choice, Design, Found, Trial, choose, front, latest
from phalanx.report.words import plural

MOST_ROWS = 30
NAME_WIDTH = 8
"""Characters of a design that a narrow terminal has on a line; the rest is folded, never cut."""
METRICS = {
    "accuracy": "share of right answers, in %",
    "reward": "mean score of the reward model",
    "judge": "mean score of the judge",
}


def trials_table(found: Found) -> RenderableType:
    """Every design by its last trial, the best first; the front; the block of the best design.

    The last line says whether the search is complete, or why it stopped.
    """
    parts: list[RenderableType] = []
    choice = choose(found.trials)
    if found.trials:
        parts += [_table(found, choice), *_notes(found)]
    if choice is None:
        parts.append(Text("\nNo design has enough scores to be chosen."))
    else:
        parts += [_front(found), *_choice(found, choice)]
    return Group(*parts, Text(f"\n{_last_line(found)}"))


def value(found: Found, score: float | None) -> str:
    if score is None:
        return "none"
    return f"{100 * score:.1f}" if found.metric == "accuracy" else f"{score:.3f}"


def _interval(found: Found, trial: Trial) -> str:
    if trial.low is None or trial.high is None:
        return ""
    return f"{value(found, trial.low)} to {value(found, trial.high)}"


def _table(found: Found, choice: Choice | None) -> Table:
    rows = latest(found.trials)
    names, cells = design_rows(found)
    table = Table(
        title=f"{plural(len(rows), 'design')}: {METRICS[found.metric]}, cost for one answer",
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="bold",
    )
    table.add_column(names[0], overflow="fold", min_width=NAME_WIDTH)
    for name in names[1:]:
        table.add_column(name, justify="right", overflow="fold")
    for trial, row in zip(rows[:MOST_ROWS], cells, strict=False):
        best = choice is not None and trial == choice.best
        table.add_row(*row, style="bold" if best else None)
    return table


def design_rows(found: Found) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Headers, and every design by its last trial, the best first."""
    names = ["proposers > aggregator", "items", "score", "95 % interval", "requests", "tokens"]
    names += ["money"] if found.priced else []
    return tuple(names), tuple(tuple(_cells(found, trial)) for trial in latest(found.trials))


def _cells(found: Found, trial: Trial) -> list[str]:
    money, tokens, requests = trial.cost
    cells = [
        trial.design.words,
        str(trial.num_items),
        value(found, trial.score),
        _interval(found, trial),
        f"{requests:.1f}",
        f"{tokens:,.0f}",
    ]
    return [*cells, f"{money:.3g}"] if found.priced else cells


def _notes(found: Found) -> list[Text]:
    rows = latest(found.trials)
    notes = [
        Text(f"{trial.design.words}: of {trial.num_items} items {trial.note}")
        for trial in rows[:MOST_ROWS]
        if trial.note
    ]
    if len(rows) > MOST_ROWS:
        notes.append(Text(f"and {len(rows) - MOST_ROWS} more, in the table `trials` of the ledger"))
    return notes


def _front(found: Found) -> RenderableType:
    costs = "money, tokens and requests" if found.priced else "tokens and requests"
    table = Table(
        title=f"\nPareto front: nothing is better for less ({costs})",
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
    )
    table.add_column(overflow="fold", min_width=NAME_WIDTH)
    for _ in range(3):
        table.add_column(justify="right", overflow="fold")
    for trial in front(latest(found.trials)):
        money, tokens, requests = trial.cost
        cost = f"{requests:.1f} requests, {tokens:,.0f} tokens"
        if found.priced:
            cost += f", {money:.3g} money"
        on = plural(trial.num_items, "item")
        table.add_row(trial.design.words, value(found, trial.score), f"on {on}", cost)
    return table


def _choice(found: Found, choice: Choice) -> list[Text]:
    best, cheapest = choice.best, choice.cheapest
    tried = len(latest(found.trials))
    caution = (
        f"\nThe score is of {plural(best.num_items, 'dev item')}, and this design is here because "
        f"it was the best of {tried} on them: expect less elsewhere (95 % interval "
        f"{_interval(found, best)}, without that choice). Measure it on the test rows before you "
        "report it: evaluate.mixture=true in a run."
    )
    if found.metric == "accuracy" and best.num_items < 100:
        caution += " Fewer than 100 items tell designs apart only roughly."
    parts = [Text(caution), Text("\nBest by score:", style="bold"), Text(block(best.design))]
    if cheapest.design != best.design:
        title = f"\nCheapest within its interval (score {value(found, cheapest.score)}):"
        parts += [Text(title, style="bold"), Text(block(cheapest.design))]
    return parts


def block(design: Design) -> str:
    """The section ``mixture`` as YAML."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = None  # lists on one line
    yaml.width = 4096
    stream = io.StringIO()
    yaml.dump({"mixture": design.as_yaml()}, stream)
    return stream.getvalue().rstrip()


def fragment(found: Found) -> str:
    """A YAML file for ``mixture=FILE``: the best design, and the cheapest one as a comment.

    Raises ValueError where no design can be chosen.
    """
    choice = choose(found.trials)
    if choice is None:
        raise ValueError("no design has enough scores to be chosen")
    lines = [
        f"# {choice.best.design.words}",
        f"# {found.metric} {_said(found, choice.best)}",
        "# chosen on these items, so expect less elsewhere.",
        block(choice.best.design),
    ]
    if choice.cheapest.design != choice.best.design:
        lines.append(f"# Cheapest within its interval: {_said(found, choice.cheapest)}")
        lines += _commented(block(choice.cheapest.design).splitlines())
    return "\n".join(lines) + "\n"


def _said(found: Found, trial: Trial) -> str:
    return (
        f"{value(found, trial.score)} ({_interval(found, trial)}) on "
        f"{plural(trial.num_items, 'dev item')}"
    )


def _commented(lines: Sequence[str]) -> list[str]:
    return [f"# {line}" for line in lines]


def _last_line(found: Found) -> str:
    sent = plural(found.calls, "request")
    if found.stopped:
        return f"Stopped after {plural(len(found.trials), 'trial')}, {sent}: {found.stopped}"
    of = f" of at most {found.budget:,}" if found.budget is not None else ""
    if choose(found.trials) is None:
        return (
            f"The search ended without a result: {plural(len(found.trials), 'trial')}, {sent}{of}."
        )
    return f"The search is complete: {plural(len(found.trials), 'trial')}, {sent}{of}."
