"""What methods that make demonstrations have in common: rows, their counts, and when to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.collective.conversation import Answer
from phalanx.errors import JudgmentError
from phalanx.identity import content_id
from phalanx.types import Demonstration, Instruction, Message


def of_answer(
    builder: str,
    instruction: Instruction,
    answer: Answer,
    truncated: str,
    *,
    place: tuple,
    turns: Sequence[Message] = (),
    drop: str = "",
    at: int = 0,
) -> Demonstration:
    """An answer as a row to learn, or with the reason why not: first the answer's own, then that it
    is ``truncated`` where this setting says ``drop``, then ``drop``.

    ``place`` is where in the work this happens, (run seed, iteration); rows of another place have
    other ids. ``turns`` is what was answered, up to its user turn, where that is not the
    instruction's first turn alone; ``at`` tells rows of one builder, instruction and writer apart.
    """
    *history, last = turns or (Message("user", instruction.text),)
    cut = "truncated" if answer.truncated and truncated == "drop" else ""
    return Demonstration(
        id=content_id(builder, *place, instruction.id, at, answer.writer),
        prompt=last.content,
        response=answer.text,
        domain=instruction.domain,
        history=tuple(history),
        builder=builder,
        instruction=instruction.id,
        writer=answer.writer,
        response_id=answer.response_id,
        truncated=answer.truncated,
        drop=answer.drop or cut or drop,
    )


def row_counts(builders: Sequence[str], rows: Sequence[Demonstration]) -> Counter[str]:
    """``num_demonstrations.B`` and all ``num_dropped.B.*`` are the rows of builder B."""
    counts: Counter[str] = Counter()
    for name in builders:
        counts[f"num_demonstrations.{name}"] = 0
    for row in rows:
        if row.drop:
            counts[f"num_dropped.{row.builder}.{row.drop}"] += 1
        else:
            counts[f"num_demonstrations.{row.builder}"] += 1
    return counts


def refuse_nothing(
    builder: str, rows: Sequence[Demonstration], setting: str, *, only_failed: bool = False
) -> None:
    """Raise JudgmentError where a builder made no row that can be learned.

    ``setting`` is the one that drops truncated rows. ``only_failed``: where most rows failed, that
    is; rows that were answered and teach nothing all the same are then a result.
    """
    if any(not row.drop for row in rows):
        return
    reasons = Counter(row.drop for row in rows)
    if only_failed and (not reasons["failed"] or 2 * reasons["failed"] < len(rows)):
        return
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    raise JudgmentError(
        f"the builder {builder!r} made no demonstration that can be learned ({listed or 'no rows'})"
        f". Look at the responses (phalanx export RUN responses){_remedy(set(reasons), setting)}"
    )


def _remedy(reasons: set[str], setting: str) -> str:
    """What helps against these reasons: only what failed is asked again in the same folder."""
    again = ""
    if "failed" in reasons:
        again = "; failed ones are asked again next time"
    elif reasons & {"too_few_proposals", "unscored"}:
        again = "; those among them that failed are asked again next time"
    if "truncated" not in reasons:
        return again
    return (
        f"{again}. Against truncation, raise max_new_tokens or set {setting}: allow; either is "
        "another configuration, which needs another folder (--out)"
    )
