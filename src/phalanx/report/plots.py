"""From facts to charts: which numbers go on which axes."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from phalanx import thresholds
from phalanx.report.charts import (
    Dot,
    Line,
    Stage,
    dot_plot,
    flow,
    line_chart,
    time_bars,
)
from phalanx.report.health import response_lengths, signs
from phalanx.report.measured_records import Measured
from phalanx.report.moaa_records import MoaaFacts
from phalanx.report.moaa_words import stage_name
from phalanx.report.records import Change, ReputationLine, RunFacts, TrainingFacts
from phalanx.report.words import DROP_WORDS, STATUS_WORDS, counted, duration, points

# Reasons that a pair is dropped for although its duel was decided; the others follow from the
# duel itself, which the flow has counted one bar earlier.
_UNDECIDED = ("tie", "identical", "empty", "unscored")
_PANELS = (
    ("loss", "Loss", "loss"),
    ("rewards/margins", "Reward margin, chosen over rejected", "margin"),
    ("rewards/accuracies", "Share of pairs ranked right", "share"),
    ("logps/chosen", "Log-probability of the chosen", "nats"),
    ("logps/rejected", "Log-probability of the rejected", "nats"),
    ("kl/chosen", "Chosen, more likely than by the reference", "nats a token"),
    ("kl", "Distance from the start", "nats a token"),
    ("length/chosen", "Length of the chosen", "tokens"),
    ("length/completion", "Length of the response", "tokens"),
    ("grad_norm", "Gradient norm", "norm"),
    ("clip_ratio/region_mean", "Share of tokens whose ratio is clipped", "share"),
)
MAX_LINES = 200
"""Lines in a chart of a training signal: one for each member and iteration."""
MAX_NAMED = 30
"""Lines of a chart that are named at their ends."""
_LEAST_LEARNERS = 4
_LIMITS = {
    "rewards/margins": (thresholds.MARGIN_FLAT,),
    "kl/chosen": (thresholds.MAX_KL, -thresholds.CHOSEN_FALLS),
    "kl": (thresholds.MAX_KL,),
    "clip_ratio/region_mean": (thresholds.CLIPPED,),
}


def colours(facts: RunFacts) -> dict[str, int]:
    """Each member's colour, the same in every chart."""
    return {member.name: place for place, member in enumerate(facts.members)}


def _dot(change: Change, label: str, strong: bool) -> Dot:
    arrow = {1: " ▲", -1: " ▼", 0: ""}[change.direction]
    return Dot(
        label=label,
        before=change.before,
        before_interval=change.before_interval,
        after=change.after,
        after_interval=change.after_interval,
        note=points(change.difference) + arrow,
        strong=strong,
    )


def domain_plot(facts: RunFacts) -> Markup | None:
    measured = facts.evaluation
    rows = [(measured.change("", domain), domain) for domain in (*measured.domains, "")]
    dots = [_dot(c, name or "all domains", not name) for c, name in rows if c]
    if not dots:
        return None
    return dot_plot(dots, "Accuracy by domain, before and after", _highest(facts))


def member_plot(facts: RunFacts) -> Markup | None:
    measured = facts.evaluation
    dots = [_dot(c, c.member, False) for c in measured.changes if c.member and not c.domain]
    mean = measured.change()
    if mean is None:
        return None
    dots.append(_dot(mean, "all members", True))
    dots += [_dot(changes[""], name, False) for name, changes in measured.together.items()]
    return dot_plot(dots, "Accuracy by member, before and after", _highest(facts))


def _highest(facts: RunFacts) -> float:
    """The largest share that either dot plot shows: both have the same axis."""
    measured = facts.evaluation
    shown = [c for c in measured.changes if not c.member or not c.domain]
    shown += [changes[""] for changes in measured.together.values()]
    return max(max(c.before_interval.high, c.after_interval.high) for c in shown)


def trajectory_plot(facts: RunFacts) -> Markup | None:
    """Only where there are points between the first and the last."""
    measured = facts.evaluation
    if len(measured.iterations) < 3 or not measured.trajectory:
        return None
    lines = []
    for name, colour in colours(facts).items():
        dots = [(n, 100 * measured.trajectory[n, name]) for n in measured.iterations
                if (n, name) in measured.trajectory]  # fmt: skip
        if dots:
            lines.append(Line(name, dots, colour))
    lines = lines[:MAX_NAMED]
    if not lines:
        return None
    return line_chart(lines, "Accuracy of each member after each iteration",
                      x_label="iteration", y_label="% right, test items")  # fmt: skip


def students_plot(facts: RunFacts, moaa: MoaaFacts) -> Markup | None:
    """Each student at the start and as it is now."""
    dots = []
    for name, *_ in moaa.students:
        mine = [level for level in moaa.result.levels if level.name == name]
        if len(mine) > 1:
            first, last = mine[0], mine[-1]
            dots.append(
                Dot(
                    label=name,
                    before=first.test,
                    before_interval=first.interval,
                    after=last.test,
                    after_interval=last.interval,
                    note=points(last.test - first.test),
                )
            )
    if not dots:
        return None
    return dot_plot(dots, "Accuracy of the students, before and after")


def measured_plot(measured: Measured) -> Markup | None:
    """Subjects beside those they are compared with, means over the tasks that all have."""
    means = {mean.subject: mean for mean in measured.means}
    dots = []
    for (subject, other), rows in measured.comparisons.items():
        one, two, line = means.get(other), means.get(subject), measured.overall(rows)
        if one is None or two is None or line is None:
            continue
        arrow = {1: " ▲", -1: " ▼", 0: ""}[line.direction]
        note = f"{points(two.score - one.score)}{arrow}"
        label = subject if len(subject) <= 15 else f"{subject[:14]}…"
        dots.append(Dot(label, one.score, one.interval, two.score, two.interval, note))
    if not dots:
        return None
    others = {other for _, other in measured.comparisons}
    name = next(iter(others)) if len(others) == 1 else "compared with"
    one = dots[0].label if len(dots) == 1 else "whoever is named"
    names = (name if len(name) <= 20 else f"{name[:19]}…", one)
    return dot_plot(dots, "Means of the subjects and of those they are compared with",
                    names=names, axis="% right, all items")  # fmt: skip


def reputation_plot(facts: RunFacts) -> Markup | None:
    known = colours(facts)
    lines = [
        Line(one.member, one.points, known[one.member], band=_deviations(one))
        for one in sorted(facts.reputations, key=lambda one: -one.value)[:MAX_NAMED]
    ]
    if not lines or not any(len(line.points) > 1 for line in lines):
        return None
    return line_chart(lines, "Reputation of each member over the duels", x_label="duels so far",
                      y_label="reputation", boundaries=facts.boundaries, steps=True,
                      height=300)  # fmt: skip


def _deviations(line: ReputationLine) -> tuple[float, ...]:
    """How far a reputation moved of late; nothing for rules that know no deviation."""
    if len(line.deviations) != len(line.points) or not any(line.deviations):
        return ()
    return line.deviations


def length_plot(facts: RunFacts) -> Markup | None:
    """Mean length of each member's responses over the iterations; None before the second."""
    known = colours(facts)
    lines = [
        Line(member, points, known[member])
        for member, points in response_lengths(facts).items()
        if len(points) > 1 and member in known
    ][:MAX_NAMED]
    if not lines:
        return None
    return line_chart(lines, "Mean length of the responses of each member",
                      x_label="iteration", y_label="tokens a response")  # fmt: skip


def flow_plot(facts: RunFacts) -> Markup | None:
    """Duels, answered, decided, kept: what is lost at each step adds up."""
    account = facts.accounting
    if not account.num_duels:
        return None
    outcomes = account.outcomes
    answered = account.num_duels - outcomes.get("unanswered", 0)
    decided = outcomes.get("decided", 0)
    unanswered = {k: n for k, n in outcomes.items() if k == "unanswered"}
    undecided = {k: n for k, n in outcomes.items() if k in ("tie", "no_quorum")}
    dropped = {k: n for k, n in account.dropped.items() if k not in _UNDECIDED}
    return flow(
        [
            Stage("duels", account.num_duels),
            Stage("answered by both", answered, _lost(unanswered, STATUS_WORDS)),
            Stage("decided", decided, _lost(undecided, STATUS_WORDS)),
            Stage("pairs kept", account.pairs_kept, _lost(dropped, DROP_WORDS)),
        ],
        "From duels to preference pairs",
    )


def _lost(counts: dict[str, int], words: dict[str, str]) -> str:
    return f"lost: {counted(counts, words)}" if counts else ""


def time_plot(facts: RunFacts) -> Markup | None:
    rows = []
    stages = facts.moaa.stages if facts.moaa else ()
    names = {stage.iteration: stage_name(stage.generation, stage.kind) for stage in stages}
    for number in dict.fromkeys(time.iteration for time in facts.times):
        phases = [(t.phase, t.seconds) for t in facts.times if t.iteration == number]
        if facts.moaa or facts.rival:  # their phases are too many for one bar
            phases = _grouped(phases)
        name = names.get(number, f"iteration {number}") if number else "before"
        name = "all" if facts.command else name
        rows.append((name, phases, duration(sum(seconds for _, seconds in phases))))
    return time_bars(rows, "Time by iteration and phase") if rows else None


def _grouped(phases: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Seconds of whatever is asked in a stage as one, and of whatever is measured."""
    sums: dict[str, float] = {}
    for phase, seconds in phases:
        known = phase if phase in ("recruit", "train") else "ask"
        kind = "evaluate" if phase.startswith("evaluate") else known
        sums[kind] = sums.get(kind, 0.0) + seconds
    return list(sums.items())


def shown_learners(facts: RunFacts) -> list[str]:
    """Whose signals are drawn: all, or so many that the page stays small; with warnings first."""
    names = list(dict.fromkeys(t.member for t in facts.trainings if t.iteration > 0))
    rounds = len({t.iteration for t in facts.trainings if t.iteration > 0})
    most = max(_LEAST_LEARNERS, MAX_LINES // max(1, rounds))
    if len(names) <= most:
        return names
    warned = {sign.where.split(",")[0] for sign in signs(facts)}
    return sorted(names, key=lambda name: name not in warned)[:most]


def training_panels(facts: RunFacts) -> list[dict[str, object]]:
    """One small chart a signal; the iterations stand one after another. Recruiting is left out."""
    shown = shown_learners(facts)
    trainings = [t for t in facts.trainings if t.iteration > 0 and t.member in shown]
    panels = []
    for signal, title, unit in _PANELS:
        chart = _panel(facts, trainings, signal, unit)
        if chart:
            panels.append({"title": title, "chart": chart})
    return panels


def _panel(
    facts: RunFacts, trainings: Sequence[TrainingFacts], signal: str, unit: str
) -> Markup | None:
    known = colours(facts)
    lines, boundaries, begin = [], [], 0
    for number in sorted({t.iteration for t in trainings}):
        here = [t for t in trainings if t.iteration == number]
        for training in here:
            values = training.series(signal)
            dots = [(begin + place, value) for place, value in enumerate(values, start=1)]
            if dots:
                lines.append(Line(training.member, dots, known[training.member]))
        begin += max(len(t.steps) for t in here)
        boundaries.append(begin)
    if not lines:
        return None
    return line_chart(lines, f"{signal} over the training steps", x_label="steps", y_label=unit,
                      boundaries=boundaries, named=False, limits=_LIMITS.get(signal, ()),
                      width=290, height=170)  # fmt: skip
