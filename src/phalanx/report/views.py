"""From facts to the texts of the page's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.report.moaa_words import TableView, p_value
from phalanx.report.records import (
    Evaluation,
    Example,
    ExampleJudgment,
    Leaning,
    ReputationLine,
    RunFacts,
    TrainingFacts,
)
from phalanx.report.words import (
    DROP_WORDS,
    MINUS,
    percent,
    plural,
    points,
    points_span,
    span,
    verdict,
    when,
)
from phalanx.statistics.shares import wilson_of_share

MAX_TEXT = 4000
MAX_SAID = 1000
MAX_JUDGMENTS = 12
MAX_HEAT = 30
MAX_ROWS = 120
"""Rows of a table on the page; the whole is in the ledger, and most of it in an export."""
TESTS = (
    "Tests: exact McNemar (for means of members: flipped signs), adjusted by Holm over the domains "
    "of a row. Unclear is not equal: “finds” is the smallest difference (points) that the "
    "test would find (80 % chance, given how many items differ; a dash: none)."
)
_TAGS = {
    "contested": "Contested.",
    "clear": "Clear.",
    "dropped": "No pair.",
    "flipped": "Changed with the order.",
    "unread": "Unreadable.",
}


def cut(rows: Sequence[Any], most: int = MAX_ROWS) -> tuple[list[Any], int]:
    """The first rows of a long table, and how many are left out."""
    return list(rows[:most]), max(0, len(rows) - most)


def signed(value: float, places: int = 2) -> str:
    """A number with a proper minus sign."""
    return f"{value:.{places}f}".replace("-", MINUS)


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """The beginning of a long text, with how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[… {len(text) - most:,} more characters; the ledger has all of it]"


def matrix(facts: RunFacts) -> list[dict[str, Any]]:
    """Members down, domains across, means last."""
    measured = facts.evaluation
    columns = (*measured.domains, "")
    names = [c.member for c in measured.changes if c.member and not c.domain]
    rows = [
        {"name": name, "cells": [measured.change(name, d) for d in columns], "total": False}
        for name in names
    ]
    rows.append(
        {"name": "all members", "cells": [measured.change("", d) for d in columns], "total": True}
    )
    rows += [
        {"name": name, "cells": [changes.get(d) for d in columns], "total": False}
        for name, changes in ({"collective": {}} | measured.together).items()
    ]
    return rows


def paired_tests(measured: Evaluation) -> TableView | None:
    """How many domains changed, by the adjusted tests; None where nothing was tested."""
    rows = []
    for name, changes in (
        ("all members", [c for c in measured.changes if not c.member]),
        *((m, [c for c in measured.changes if c.member == m])
          for m in dict.fromkeys(c.member for c in measured.changes if c.member)),
        *((name, list(by_domain.values())) for name, by_domain in measured.together.items()),
    ):  # fmt: skip
        tests = [c for c in changes if c.adjusted is not None]
        if not tests:
            continue
        unclear = [c for c in tests if not c.proven]
        finds = sorted(c.detectable for c in unclear if c.detectable is not None)
        up, down = (sum(c.proven == sign for c in tests) for sign in (1, -1))
        least = min(c.adjusted for c in tests if c.adjusted is not None)
        ends = dict.fromkeys(map(percent, [*finds[:1], *finds[-1:]]))
        reach = " to ".join(ends) or ("–" if unclear else "")
        rows.append((name, str(up), str(down), str(len(unclear)), p_value(least), reach))
    if not rows:
        return None
    headers = ("tests by domain", "better", "worse", "unclear", "least Holm p", "finds")
    return TableView("Paired tests by domain", headers, tuple(rows), TESTS, left=(0,))


def selection(facts: RunFacts) -> list[dict[str, str]]:
    """Checkpoints chosen on dev, and the collective, all on the same test items."""
    measured = facts.evaluation
    rows = [
        {
            "name": name,
            "who": f"{choice.member}, {when(choice.iteration)}",
            "dev": percent(choice.dev),
            "test": percent(choice.test),
            "interval": span(choice.test_interval),
        }
        for name, choice in (
            ("best initial", measured.best_initial),
            ("best aligned", measured.best_aligned),
        )
        if choice
    ]
    for change in measured.collective:
        if not change.domain:
            for number, value, interval in (
                (0, change.before, change.before_interval),
                (measured.last, change.after, change.after_interval),
            ):
                rows.append(
                    {
                        "name": "collective",
                        "who": f"{'' if facts.rival else 'weighted '}vote, {when(number)}",
                        "dev": "–",
                        "test": percent(value),
                        "interval": span(interval),
                    }
                )
    return rows


def selection_note(facts: RunFacts) -> str:
    measured = facts.evaluation
    parts = [
        f"Best members are chosen on {measured.num_dev} dev items and reported on "
        f"{measured.num_test} others, so the test numbers are not those of the luckiest."
    ]
    change = measured.aligned_over_initial
    if change:
        parts.append(
            f"Best aligned minus best initial: {points(change.difference)} points "
            f"[{points_span(change.interval)}], {verdict(change)}."
        )
    votes = "the most votes" if facts.rival else "the largest sum of reputations behind it"
    parts.append(f"The collective gives each item the answer with {votes}.")
    parts += collective_notes(measured)
    kept = [
        f"{choice.member} {choice.iteration or 'initial'}" for choice in measured.best_of_member
    ]
    if kept:
        parts.append(f"Best iteration of each member by dev: {', '.join(kept)}.")
    return " ".join(parts)


def collective_notes(measured: Evaluation) -> list[str]:
    """Of which tasks the collective's numbers are not; nothing where they are of all."""
    lines = []
    if measured.unvoted:
        lines.append(f"The collective has no vote on {', '.join(measured.unvoted)}.")
    if measured.uncompared:
        named = ", ".join(measured.uncompared)
        lines.append(f"Without the package math-verify there is no vote on {named}.")
    if lines and measured.collective:
        lines.append("The collective's mean is of the other tasks.")
    return lines


def reputations(facts: RunFacts) -> list[dict[str, str]]:
    """Enough decimals that members differ where they do."""
    values = [line.value for line in facts.reputations]
    spread = max(values) - min(values) if values else 0.0
    places = 1 if spread >= 1 else 3
    moved = any(line.deviation for line in facts.reputations)  # Elo and frozen have none
    return [
        {
            "member": line.member,
            "start": f"{line.start:.{places}f}",
            "value": f"{line.value:.{places}f}",
            "deviation": f"{line.deviation:.2f}" if moved else "–",
            "won": _won(line),
            "wins": f"{line.wins:,}",
            "losses": f"{line.losses:,}",
            "ties": f"{line.ties:,}",
        }
        for line in sorted(facts.reputations, key=lambda line: -line.value)
    ]


def _won(line: ReputationLine) -> str:
    """The share of its judged duels that a member won, ties as half, with its interval."""
    judged = line.wins + line.losses + line.ties
    if not judged:
        return "–"
    share = (line.wins + line.ties / 2) / judged
    return f"{percent(share, 0)} [{span(wilson_of_share(share, judged))}]"


def heat(facts: RunFacts) -> tuple[list[str], list[dict[str, Any]]]:
    """Rows and columns by reputation, the highest first; at most :data:`MAX_HEAT` of them."""
    order = sorted(facts.reputations, key=lambda line: -line.value)[:MAX_HEAT]
    names = [line.member for line in order]
    met = {(e.member, e.opponent): e for e in facts.encounters}
    rows = []
    for name in names:
        cells = []
        for opponent in names:
            encounter = met.get((name, opponent))
            if encounter is None:
                cells.append({"text": "·" if name == opponent else "–", "kind": "", "share": ""})
                continue
            lost = met[opponent, name].wins
            tied = encounter.judged - encounter.wins - lost
            share = (encounter.wins + tied / 2) / encounter.judged
            side, strength = "won" if share > 0.5 else "lost", round(10 * abs(share - 0.5))
            kind = f"{side}{strength}" if strength else ""
            text = f"{encounter.wins} / {lost} / {tied}"
            cells.append({"text": text, "kind": kind, "share": f"{percent(share, 0)} %"})
        rows.append({"name": name, "cells": cells})
    return names, rows


def _part(part: int | None, whole: int) -> float | None:
    return part / whole if whole and part is not None else None


def judges(facts: RunFacts) -> list[dict[str, Any]]:
    """Cells of the judges' table; a share is (share and count, interval)."""

    def share(value: float | None, count: int, beside: str = "") -> tuple[str, str]:
        """The share with its count, then its interval."""
        if value is None:
            return ("–", "")
        interval = span(wilson_of_share(value, count))
        return (f"{percent(value, 0)} % of {count:,}", f"[{interval}]{beside}")

    def leaning(found: Leaning | None) -> tuple[str, str]:
        if found is None:
            return ("–", "")
        outcome = found.outcome
        beside = "" if outcome is None else f", outcomes {percent(outcome, 0)}"
        return share(found.share, found.n, beside)

    return [
        {
            "name": judge.member,
            "asked": f"{judge.asked:,}",
            "unreadable": share(_part(judge.asked - judge.readable, judge.asked), judge.asked),
            "ties": f"{judge.ties:,}",
            "flipped": share(_part(judge.flipped, judge.readable), judge.readable),
            "agreement": share(judge.agreement, judge.num_compared),
            "mean": "–" if judge.mean_score is None else signed(judge.mean_score),
            "longer": share(judge.longer, judge.num_lengths),
            "own": leaning(judge.own),
            "family": leaning(judge.family),
            "reliability": "–" if judge.reliability is None else f"{judge.reliability:.2f}",
        }
        for judge in facts.judges
    ]


def labels(facts: RunFacts) -> list[str]:
    return [
        f"Iteration {number}: the chosen response was the right one in {percent(share, 0)} % of "
        f"the {plural(count, 'pair')} in which exactly one response was right."
        for number, (share, count) in facts.label_accuracy.items()
    ]


def trainings(facts: RunFacts) -> list[list[str]]:
    return [_training(training) for training in facts.trainings]


def _training(training: TrainingFacts) -> list[str]:
    def value(number: float | None, places: int = 2) -> str:
        return "–" if number is None else signed(number, places)

    loss = f"{value(training.first('loss'), 3)} → {value(training.last('loss'), 3)}"
    lengths = (training.last("length/chosen"), training.last("length/rejected"))
    return [
        str(training.iteration),
        training.member,
        f"{training.num_examples:,}",
        f"{sum(training.num_dropped.values()):,}",
        loss if training.steps else "no step",
        value(training.last("rewards/margins")),
        value(training.last("rewards/accuracies")),
        value(training.change("logps/chosen")),
        value(training.change("logps/rejected")),
        value(training.last("kl/chosen"), 3),
        " / ".join(value(length, 0) for length in lengths),
        f"{training.seconds:.0f} s",
    ]


def examples(facts: RunFacts) -> list[dict[str, Any]]:
    return [_example(example) for example in facts.examples]


def _example(example: Example) -> dict[str, Any]:
    def side(name: str) -> dict[str, Any]:
        member, text = getattr(example, name), getattr(example, f"{name}_text")
        note = getattr(example, f"{name}_note")
        won = example.winner == name
        extra = "".join(f", {part}" for part in ("won" if won else "", note) if part)
        shown = shortened(text) if text.strip() else "(empty)"
        return {"title": f"{member}{extra}", "text": shown, "won": won}

    return {
        "tag": _TAGS[example.why],
        "title": f"{example.left} against {example.right}, iteration {example.iteration}"
        + (f", {example.domain}" if example.domain else ""),
        "instruction": shortened(example.instruction),
        "domain": example.domain,
        "answer": example.answer,
        "left": example.left,
        "right": example.right,
        "sides": [side("left"), side("right")],
        "outcome": _outcome(example),
        "judgments": [_judgment(judgment) for judgment in example.judgments[:MAX_JUDGMENTS]],
        "more": max(0, len(example.judgments) - MAX_JUDGMENTS),
    }


def _outcome(example: Example) -> str:
    score = ""
    if example.score_left is not None and example.score_right is not None:
        score = f" {signed(example.score_left)} to {signed(example.score_right)}"
    if example.status == "decided":
        winner = example.left if example.winner == "left" else example.right
        text = f"Decided for {winner},{score}"
        if example.agreement is not None:
            text += f", {percent(example.agreement, 0)} % of the judges' weight on that side"
    else:
        text = {"tie": "Tie", "no_quorum": "Too few readable judgments"}.get(
            example.status, "Not judged"
        )
        text += score + (f" ({example.reason})" if example.reason else "")
    if example.dropped:
        text += f". No pair: {DROP_WORDS.get(example.dropped, example.dropped)}"
    return text + "."


def _judgment(judgment: ExampleJudgment) -> dict[str, Any]:
    def score(value: float | None) -> str:
        return "unreadable" if value is None else signed(value)

    notes = [judgment.reason, "flipped with the order" if judgment.flipped else ""]
    notes += [flag.replace("_", " ") for flag in judgment.flags]
    return {
        "judge": judgment.judge,
        "left": score(judgment.score_left),
        "right": score(judgment.score_right),
        "notes": "; ".join(note for note in notes if note) or "–",
        "said": [(slot, shortened(said(raw), MAX_SAID)) for slot, raw in judgment.raw.items()],
    }


def said(raw: Any) -> str:
    """What a judge said in one slot, whatever its protocol."""
    if not isinstance(raw, dict):
        return str(raw)
    if "error" in raw:
        return f"failed: {raw['error']}: {raw.get('message', '')}"
    if "logprob_sum" in raw:
        tokens = raw["num_scored_tokens"]
        mean = raw["logprob_sum"] / tokens if tokens else float("nan")
        return f"mean log-probability {signed(mean, 3)} nats a token over {tokens} tokens"
    if "probabilities" in raw:
        return ", ".join(f"{option}: {p:.3f}" for option, p in raw["probabilities"].items())
    return str(raw)
