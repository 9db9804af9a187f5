"""What people said of duels, as known truth where the reliability of judges is estimated.

An iteration takes the labels on duels of earlier iterations that there are when it begins, and
keeps which they are. Labels that come later, or another setting, while it is stopped half way,
change nothing in it: it is computed anew from what is recorded, and has to come out the same.
"""

from __future__ import annotations

import json
from collections import defaultdict

from phalanx.config.schema import Config
from phalanx.identity import canonical_json
from phalanx.ledger import Ledger
from phalanx.ledger.labels import labels_of, majority
from phalanx.types import Judgment, Winner


def anchors_key(iteration: int) -> str:
    """The key of the fact that has an iteration's anchors: {duel: winner}."""
    return f"anchors:{iteration}"


def anchors_of(
    ledger: Ledger, config: Config, iteration: int
) -> tuple[tuple[Judgment, Winner], ...]:
    """The judgments of duels before ``iteration`` whose winner people named, with that winner.

    What most people say counts; duels of which as many say the other, or a tie, are no anchors.
    Empty where ``aggregate.anchors`` was none when the iteration began. A judge is taken to be as
    able as it was.
    """
    stored = ledger.get(anchors_key(iteration))
    if stored is None:
        begun = ledger.count("responses", "iteration = ?", (iteration,))
        if begun or config.aggregate.anchors == "none":
            return ()
        stored = canonical_json(_known_now(ledger, iteration))
        ledger.put(anchors_key(iteration), stored)
    winners: dict[str, Winner] = json.loads(stored)
    rows = ledger.iterate(
        "SELECT duel, judge, protocol, score_left, score_right FROM judgments "
        "WHERE iteration < ? AND score_left IS NOT NULL AND score_right IS NOT NULL "
        "ORDER BY iteration, duel, judge",
        (iteration,),
    )
    return tuple(
        (Judgment(*row.values()), winners[row["duel"]]) for row in rows if row["duel"] in winners
    )


def _known_now(ledger: Ledger, iteration: int) -> dict[str, Winner]:
    before = {row["id"] for row in
              ledger.iterate("SELECT id FROM duels WHERE iteration < ?", (iteration,))}  # fmt: skip
    verdicts: dict[str, list[str]] = defaultdict(list)
    for row in labels_of(ledger):
        if row["duel"] in before:
            verdicts[row["duel"]].append(row["verdict"])
    named = {duel: majority(found) for duel, found in sorted(verdicts.items())}
    return {duel: winner for duel, winner in named.items() if winner is not None}
