"""Batches of requests: how they are cut, and what is done where one does not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from phalanx.types import Failure, Request, Response
from phalanx.weights.store import free

if TYPE_CHECKING:
    import torch


class HasRequest(Protocol):
    """A request made ready; ``request`` is the one that it answers."""

    @property
    def request(self) -> Request: ...


Job = TypeVar("Job")
Result = TypeVar("Result")


def cut(
    sizes: Mapping[int, tuple[int, int]], batch_size: int, batch_tokens: int
) -> list[list[int]]:
    """Positions in batches, shortest first.

    ``sizes`` has the rows that each position takes and their length in tokens. A batch holds at
    most ``batch_size`` positions and ``batch_tokens`` tokens, padding included (but one position
    at least).

    >>> cut({0: (1, 9), 1: (1, 2), 2: (1, 3)}, 2, 100)
    [[1, 2], [0]]
    """
    batches: list[list[int]] = []
    rows = 0
    for at in sorted(sizes, key=lambda at: sizes[at][1]):
        num_rows, length = sizes[at]
        full = len(batches[-1]) >= batch_size if batches else True
        if full or (rows + num_rows) * length > batch_tokens:
            batches.append([])
            rows = 0
        batches[-1].append(at)
        rows += num_rows
    return batches


def failed(job: HasRequest, failure: Failure) -> Response:
    return Response(job.request.id, error=failure)


def halving(
    answer: Callable[[list[Job]], list[Result]],
    jobs: list[Job],
    failed: Callable[[Any, Failure], Any] = failed,
) -> list[Result]:
    """Answer the jobs; halve them where memory runs out, down to one.

    ``failed`` makes the result of one that does not fit alone.
    """
    try:
        return answer(jobs)
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else "out of memory"
    free()
    if len(jobs) == 1:
        failure = Failure("engine", f"out of memory with this request alone: {reason}")
        return [failed(jobs[0], failure)]
    middle = len(jobs) // 2
    return halving(answer, jobs[:middle], failed) + halving(answer, jobs[middle:], failed)


def _out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "out of memory" in str(error) or "can't allocate memory" in str(error)


def padded(
    rows: Sequence[Sequence[int]], pad: int, device: Any, side: str = "left"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask, both int64 [rows, longest], padded on ``side``."""
    import torch

    longest = max(map(len, rows))
    ids, mask = [], []
    for row in rows:
        gap = longest - len(row)
        first, last = (gap, 0) if side == "left" else (0, gap)
        ids.append([pad] * first + list(row) + [pad] * last)
        mask.append([0] * first + [1] * len(row) + [0] * last)
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def last_logits(model: Any, rows: Sequence[Sequence[int]], pad: int, keep: int) -> torch.Tensor:
    """Logits of the last ``keep`` positions of each row: [rows, keep, vocabulary]."""
    import inspect

    import torch

    ids, mask = padded(rows, pad, model.device)
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    accepted = inspect.signature(bare.forward).parameters
    extra: dict[str, Any] = {}
    if "position_ids" in accepted:  # learnt positions must not count the padding
        extra["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    if "logits_to_keep" in accepted:
        extra["logits_to_keep"] = keep
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **extra).logits
    return logits[:, -keep:]
