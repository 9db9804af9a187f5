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
from phalanx.collective.conversation import judged_turns
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
    probabilities: tuple[float, float] | None = None
    """Of the chosen and of the rejected response to beat the policy's own ones, where known."""

    @property
    def length(self) -> int:
        """Tokens of the longer of the two sequences."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))


@dataclass(frozen=True, slots=True)
class DemonstrationRow:
    """Token ids of one demonstration; only the completion is learned, or unlearned where its
    ``advantage`` (None: not rated) is negative."""

    id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    advantage: float | None = None

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def pair_rows(
    chat: ChatFormat,
    member: Member,
    pairs: Sequence[PreferencePair],
    max_length: int,
    max_prompt_length: int | None = None,
    probabilities: bool = False,
) -> tuple[list[PairRow], dict[str, int]]:
    """Rows of the pairs that can train, and how many cannot, by reason.

    The prompt is the one that the member answers: its own system prompt and the instruction, or
    the whole conversation where the pair is about a later turn. A
    completion ends with one end token unless it was truncated. A pair that already names a
    reason in ``drop`` is counted under it.

    Raises :class:`TrainingError` for a pair with a weight that is none and, with
    ``probabilities``, for pairs that would train and lack the probability of a response.
    """
    rows: list[PairRow] = []
    dropped: Counter[str] = Counter()
    if probabilities:
        _check_probabilities(member, pairs)
    for pair in pairs:
        _check_weight(member, pair)
        prompt = chat.prompt_ids(member.conversation(judged_turns(pair.instruction)))
        chosen = chat.completion_ids(pair.chosen, not pair.chosen_truncated)
        rejected = chat.completion_ids(pair.rejected, not pair.rejected_truncated)
        texts = (pair.chosen, pair.rejected)
        reason = pair.drop or _reason(
            len(prompt), texts, max(len(chosen), len(rejected)), max_length, max_prompt_length
        )
        if reason:
            dropped[reason] += 1
        else:
            both = (pair.chosen_probability, pair.rejected_probability)
            known = both if probabilities else None
            ids = (tuple(prompt), tuple(chosen), tuple(rejected))
            rows.append(PairRow(pair.id, *ids, pair.weight, known))
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
            ids = (tuple(prompt), tuple(completion))
            rows.append(DemonstrationRow(shown.id, *ids, shown.advantage))
    return rows, dict(dropped)


def rated_rows(
    chat: ChatFormat,
    member: Member,
    rated: Sequence[Demonstration],
    max_length: int,
    max_prompt_length: int | None = None,
) -> tuple[list[DemonstrationRow], dict[str, int]]:
    """Rows of the rated responses that can train, and how many cannot, by reason.

    As :func:`demonstration_rows`; a response with an advantage of 0 teaches nothing and is counted
    as ``no_advantage``. Raises :class:`TrainingError` for one without a finite advantage.
    """
    for shown in rated:
        if not shown.drop and (shown.advantage is None or not math.isfinite(shown.advantage)):
            raise TrainingError(
                f"{member.name}: the response '{shown.id}' has the advantage {shown.advantage}; "
                "GRPO learns from responses that each have a finite one"
            )
    teaching = [shown for shown in rated if shown.drop or shown.advantage != 0]
    rows, dropped = demonstration_rows(chat, member, teaching, max_length, max_prompt_length)
    if silent := len(rated) - len(teaching):
        dropped["no_advantage"] = silent
    return rows, dropped


def _reason(
    prompt: int, texts: Sequence[str], completion: int, longest: int, longest_prompt: int | None
) -> str:
    if any(not text.strip() for text in texts):
        return "empty"
    if prompt >= longest or (longest_prompt is not None and prompt > longest_prompt):
        return "prompt_too_long"
    return "too_long" if prompt + completion > longest else ""


def _check_probabilities(member: Member, pairs: Sequence[PreferencePair]) -> None:
    def known(*values: float | None) -> bool:
        return all(value is not None and 0 <= value <= 1 for value in values)

    bad = [
        pair.id
        for pair in pairs
        if not pair.drop and not known(pair.chosen_probability, pair.rejected_probability)
    ]
    if bad:
        more = f" and {len(bad) - 8} more" if len(bad) > 8 else ""
        raise TrainingError(
            f"{member.name}: the loss sppo needs the probability, from 0 to 1, that each response "
            f"of a pair beats the policy's own ones, and these pairs have none: "
            f"{', '.join(bad[:8])}{more}. Take pairs of the method sppo, or train.loss: sppo_hard"
        )


def _check_weight(member: Member, pair: PreferencePair) -> None:
    if not (math.isfinite(pair.weight) and pair.weight >= 0):
        raise TrainingError(
            f"{member.name}: the preference pair '{pair.id}' has the weight {pair.weight}; "
            "a weight is a finite number of at least 0"
        )
