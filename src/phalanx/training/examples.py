"""Preference pairs and demonstrations as token ids: what reaches the loss, and what does not.

A row is never cut. One that does not fit, or has nothing to learn, is dropped and counted by
reason: ``too_long`` (prompt plus a completion), ``prompt_too_long`` (the prompt alone, or no room
for a completion), ``empty`` (a completion without text).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.chat import ChatFormat
from phalanx.errors import TrainingError
from phalanx.types import Demonstration, Member, Message, PreferencePair


@dataclass(frozen=True, slots=True)
class PairRow:
    """Token ids of one preference pair; the completions do not contain the prompt."""

    id: str
    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    weight: float = 1.0

    @property
    def length(self) -> int:
        """Tokens of the longer of the two sequences."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass(frozen=True, slots=True)
class DemonstrationRow:
    """Token ids of one demonstration; only the completion is learned."""

    id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def pair_rows(
    chat: ChatFormat,
    member: Member,
    pairs: Sequence[PreferencePair],
    max_length: int,
    max_prompt_length: int | None = None,
) -> tuple[list[PairRow], dict[str, int]]:
    """Rows of the pairs that can train, and how many cannot, by reason.

    The prompt is the one that the member answers: its own system prompt and the instruction. A
    completion ends with one end token unless it was truncated. A pair that already names a
    reason in ``drop`` is counted under it.
    """
    rows: list[PairRow] = []
    dropped: Counter[str] = Counter()
    for pair in pairs:
        _check_weight(member, pair)
        prompt = chat.prompt_ids(member.messages(pair.instruction.text))
        chosen = chat.completion_ids(pair.chosen, not pair.chosen_truncated)
        rejected = chat.completion_ids(pair.rejected, not pair.rejected_truncated)
        texts = (pair.chosen, pair.rejected)
        reason = pair.drop or _reason(
            len(prompt), texts, max(len(chosen), len(rejected)), max_length, max_prompt_length
        )
        if reason:
            dropped[reason] += 1
        else:
            rows.append(
                PairRow(pair.id, tuple(prompt), tuple(chosen), tuple(rejected), pair.weight)
            )
    return rows, dict(dropped)


def demonstration_rows(
    chat: ChatFormat,
    member: Member,
    demonstrations: Sequence[Demonstration],
    max_length: int,
    max_prompt_length: int | None = None,
) -> tuple[list[DemonstrationRow], dict[str, int]]:
    """Rows of the demonstrations that can train, and how many cannot, by reason.

    The turns before the prompt are read as the member reads a conversation; of all turns the
    response alone is learned. It ends with one end token unless it was truncated.
    """
    rows: list[DemonstrationRow] = []
    dropped: Counter[str] = Counter()
    for shown in demonstrations:
        turns = (*shown.history, Message("user", shown.prompt))
        prompt = chat.prompt_ids(member.conversation(turns))
        completion = chat.completion_ids(shown.response, not shown.truncated)
        reason = shown.drop or _reason(
            len(prompt), (shown.response,), len(completion), max_length, max_prompt_length
        )
        if reason:
            dropped[reason] += 1
        else:
            rows.append(DemonstrationRow(shown.id, tuple(prompt), tuple(completion)))
    return rows, dict(dropped)


def _reason(
    prompt: int, texts: Sequence[str], completion: int, longest: int, longest_prompt: int | None
) -> str:
    if any(not text.strip() for text in texts):
        return "empty"
    if prompt >= longest or (longest_prompt is not None and prompt > longest_prompt):
        return "prompt_too_long"
    return "too_long" if prompt + completion > longest else ""


def _check_weight(member: Member, pair: PreferencePair) -> None:
    if not (math.isfinite(pair.weight) and pair.weight >= 0):
        raise TrainingError(
            f"{member.name}: the preference pair '{pair.id}' has the weight {pair.weight}; "
            "a weight is a finite number of at least 0"
        )
