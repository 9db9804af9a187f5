"""Round robin against knockout on simulated judges of known quality.

``python -m tests.collective.simulated_judges`` prints the table of docs/methods/moaa.md.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from phalanx.collective.ranking import Pair, Placing, Verdict, tournament

NOISES = (0.0, 0.25, 0.5, 1.0, 2.0)
KINDS = ("round_robin", "knockout")


@dataclass(frozen=True)
class Tally:
    """Shares of the instructions, and the mean number of comparisons.

    ``kept``: a best and a worst came out. Of the kept: ``ordered`` has the better response as the
    best, ``extreme`` has the truly best and the truly worst. ``gap`` is their mean difference in
    quality, in standard deviations between responses.
    """

    kept: float
    ordered: float
    extreme: float
    gap: float
    comparisons: float


class Judge:
    """Prefers what is shown as A by a logistic law of the difference in quality over ``noise``.

    Both orders; a disagreement is a tie. A pair is judged once: both tournaments hear the same.
    """

    def __init__(self, quality: list[float], noise: float, rng: random.Random) -> None:
        self._quality, self._noise, self._rng = quality, noise, rng
        self._verdicts: dict[Pair, Verdict] = {}

    def _prefers_a(self, a: int, b: int) -> bool:
        gap = self._quality[a] - self._quality[b]
        if self._noise == 0:
            return gap > 0
        return self._rng.random() < 1 / (1 + math.exp(-gap / self._noise))

    def verdict(self, pair: Pair) -> Verdict:
        low, high = sorted(pair)
        if (low, high) not in self._verdicts:
            first, second = self._prefers_a(low, high), not self._prefers_a(high, low)
            verdict: Verdict = "tie" if first != second else "left" if first else "right"
            self._verdicts[low, high] = verdict
        verdict = self._verdicts[low, high]
        if pair == (low, high) or verdict == "tie":
            return verdict
        return "left" if verdict == "right" else "right"


def play(kind: str, judge: Judge, count: int, rng: random.Random) -> tuple[Placing, int]:
    """The placing, and how many pairs were judged."""
    games, comparisons = tournament(kind, count, rng), 0
    while pairs := games.pairs():
        comparisons += len(pairs)
        games.tell({pair: judge.verdict(pair) for pair in pairs})
    return games.placing(), comparisons


def simulate(noise: float, *, count: int = 5, trials: int = 20_000, seed: int = 0):
    """(tally by kind, share of the instructions kept by both on which the pairs differ)."""
    rng = random.Random(seed)
    rows: dict[str, list[tuple[Placing, int, list[float]]]] = {kind: [] for kind in KINDS}
    for _ in range(trials):
        quality = [rng.gauss(0, 1) for _ in range(count)]
        judge = Judge(quality, noise, rng)
        for kind in KINDS:
            rows[kind].append((*play(kind, judge, count, rng), quality))
    both = [
        (one[0].best, one[0].worst) != (other[0].best, other[0].worst)
        for one, other in zip(*rows.values(), strict=True)
        if one[0].best is not None and other[0].best is not None
    ]
    return {kind: _tally(rows[kind]) for kind in KINDS}, sum(both) / len(both)


def _tally(rows: list[tuple[Placing, int, list[float]]]) -> Tally:
    gaps, extreme = [], 0
    for placing, _, quality in rows:
        if placing.best is not None and placing.worst is not None:
            best, worst = quality[placing.best], quality[placing.worst]
            gaps.append(best - worst)
            extreme += best == max(quality) and worst == min(quality)
    return Tally(
        kept=len(gaps) / len(rows),
        ordered=sum(gap > 0 for gap in gaps) / len(gaps),
        extreme=extreme / len(gaps),
        gap=sum(gaps) / len(gaps),
        comparisons=sum(comparisons for _, comparisons, _ in rows) / len(rows),
    )


def table(readers: int = 3, trials: int = 20_000) -> str:
    """Markdown. Requests are comparisons x (readers + 1) x 2 orders, for one instruction."""
    lines = [
        "| noise | ranking | comparisons | requests | kept | ordered | best and worst | gap "
        "| another pair |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for noise in NOISES:
        tallies, differ = simulate(noise, trials=trials)
        for kind, tally in tallies.items():
            other = f"{differ:.1%}" if kind == "knockout" else ""
            lines.append(
                f"| {noise:g} | {kind} | {tally.comparisons:.2f} | "
                f"{tally.comparisons * (readers + 1) * 2:.0f} | {tally.kept:.1%} | "
                f"{tally.ordered:.1%} | {tally.extreme:.1%} | {tally.gap:.2f} | {other} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
