"""How numbers are written, the same in every renderer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.report.moaa_words import p_value

if TYPE_CHECKING:
    from phalanx.report.records import Change, Choice, Progress, RunFacts
    from phalanx.statistics import Interval

MINUS = "−"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")

NO_PAIRS = (
    "Warning: no pair was kept, so nothing can be learnt. Look at the judges (phalanx export RUN "
    "judgments): scores that are all alike, or unreadable, make no winner"
)
DROP_WORDS = {
    "tie": "tied",
    "identical": "identical responses",
    "empty": "empty response",
    "unscored": "not scored",
    "truncated": "truncated",
    "margin": "margin too small",
    "margin_rank": "not among the widest margins",
    "length": "chosen much longer",
    "failed": "failed",
    "too_few_proposals": "too few proposals",
    "cut": "conversation cut",
    "no_advantage": "all of the group alike",
    "no_majority": "no majority",
    "minority": "not the majority's answer",
    "unrevised": "nothing to revise",
    "unsettled": "neither corrected nor right throughout",
    "shortened": "asked by a shortened prompt",
    "surplus": "more than the share wanted",
}
STATUS_WORDS = {
    "decided": "decided",
    "tie": "tied",
    "no_quorum": "too few readable judgments",
    "unanswered": "a response missing",
}
PHASE_WORDS = {
    "recruit": "recruiting",
    "answer": "answering",
    "judge": "judging",
    "train": "training",
    "evaluate": "evaluating",
}


_DOING = {
    "propose": "proposing",
    "aggregate": "aggregating",
    "teachers": "asking teachers",
    "fit": "looking whether user turns fit",
    "rewrite": "rewriting user turns",
    "sample": "sampling responses",
    "debate": "debating",
    "vote": "voting",
    "summarise": "summing up",
    "meta-judge": "judging judgments",
    "criteria": "choosing criteria",
    "assess": "evaluating responses",
    "verdict": "giving verdicts",
    "grade": "grading",
    "reward": "scoring",
    "user_turn": "writing user turns",
}
OWED = "Owed: not answered yet; the same command asks for them."
AGREES = (
    "Agrees as judge: its untied judgments on decided duels that favour the winner; its own vote "
    "is part of that outcome."
)
FLIPPED = "Flipped: the verdict changed when the two responses changed places; it counts as a tie."
FLIPPED_MEAN = (
    "Flipped: the verdict changed when the two responses changed places; the mean of both orders "
    "decides (reward.contradiction: mean)."
)


def flipped(config: Mapping[str, Any]) -> str:
    """What becomes of verdicts that changed with the order, by the configuration of a run."""
    reward = config["reward"]
    means = reward["verdict"] == "options" and reward["contradiction"] == "mean"
    mixed = config["method"] == "moaa" or config["judge"]["protocol"] == "moa"
    return FLIPPED_MEAN if means and mixed else FLIPPED


def doing(phase: str) -> str:
    """What is done in a phase: ``answering``, ``proposing (propose 2)``, ``criteria``."""
    if phase in PHASE_WORDS:
        return PHASE_WORDS[phase]
    known = [word for word in phase.split() if word in _DOING]
    if not known:
        return phase
    word = _DOING[known[-1]]
    return word if phase == known[-1] else f"{word} ({phase})"


def harmless(text: str) -> str:
    """The text with a visible sign for whatever would steer a terminal, or turn the direction of
    what follows: control characters but for tabs and line ends, and bidirectional marks."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def percent(share: float, places: int = 1) -> str:
    return f"{100 * share:.{places}f}"


def points(difference: float, places: int = 1) -> str:
    """A signed difference of shares in percentage points: +8.7 or −1.2.

    The sign is that of the exact number, so that +0 says "above 0, but less than shown"; 0 has
    none.
    """
    value = round(100 * difference, places)
    sign = "" if abs(difference) < 1e-12 else "+" if difference > 0 else MINUS
    return f"{sign}{abs(value):.{places}f}"


def span(interval: Interval, places: int = 0) -> str:
    return f"{100 * interval.low:.{places}f} to {100 * interval.high:.{places}f}"


def points_span(interval: Interval, places: int = 1) -> str:
    return f"{points(interval.low, places)} to {points(interval.high, places)}"


def share_of(part: int, whole: int) -> str:
    """9.5 %, or a dash where there is nothing to divide by."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def duration(seconds: float) -> str:
    """3.2 s, 4 min 05 s, 2 h 07 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def counted(counts: Mapping[str, int], words: Mapping[str, str] | None = None) -> str:
    """``12 tie, 3 truncated``; "none" where empty."""
    words = words or {}
    return ", ".join(f"{n:,} {words.get(key, key)}" for key, n in counts.items()) or "none"


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def when(iteration: int) -> str:
    return "before alignment" if iteration == 0 else f"after iteration {iteration}"


def verdict(change: Change) -> str:
    """A neutral sentence: what the paired interval says and no more."""
    return {
        1: "higher; the paired 95 % interval excludes 0",
        -1: "lower; the paired 95 % interval excludes 0",
        0: "no clear change; the paired 95 % interval includes 0",
    }[change.direction]


def tested(change: Change) -> str:
    """``Holm p .012``, or what could have been found: ``Holm p .420, finds 9.1``."""
    text = f"Holm p {p_value(change.adjusted)}" if change.adjusted is not None else ""
    if change.proven or change.adjusted is None:
        return text
    return f"{text}, finds {'–' if change.detectable is None else percent(change.detectable)}"


def choice_line(choice: Choice) -> str:
    return (
        f"{choice.member}, {when(choice.iteration)}: {percent(choice.test)} % "
        f"[{span(choice.test_interval)}] on test (dev {percent(choice.dev)} %)"
    )


def who(facts: RunFacts) -> str:
    """Of whom a summary speaks: the members, or whom an evaluation has measured."""
    if facts.measured and facts.measured.subjects:
        return f"{len(facts.measured.subjects):,} measured"
    return plural(len(facts.members), "member")


def run_name(facts: RunFacts) -> str:
    return Path(facts.folder).resolve().name


def words_of_place(state: Progress) -> str:
    """Where a run is: its iteration; a run that has none only measures."""
    if not state.num_iterations:
        return "the measurement"
    return f"iteration {state.iteration} of {state.num_iterations}"


def total_seconds(facts: RunFacts) -> float:
    return sum(time.seconds for time in facts.times)


def seconds_by_phase(facts: RunFacts) -> dict[str, float]:
    sums: dict[str, float] = {}
    for time in facts.times:
        sums[time.phase] = sums.get(time.phase, 0.0) + time.seconds
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted key, JSON value) rows, in order; lists of sections by number."""
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = {str(place): section for place, section in enumerate(value)}
        if isinstance(value, dict) and value:
            rows += flat(value, f"{before}{key}.")
        else:
            shown = value if isinstance(value, str) and value else json.dumps(value)
            rows.append((f"{before}{key}", shown))
    return rows
