"""The engine of reward models: a conversation and a response in, one number out.

It runs in the main process, on the device of the run, whatever the executor is: reward models are
not sent to workers, not served by vLLM and not trained. One is in memory at a time, beside the
base that answers, unless ``resources.keep_all_loaded``. See :mod:`phalanx.engines.reward_models`
for the kinds of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from phalanx.collective.comparing import RANKER
from phalanx.engines.hf_batches import cut, halving
from phalanx.engines.hf_prompts import Prompt, shorten
from phalanx.engines.reward_models import RewardText, Scorer, load_scorer, load_text
from phalanx.errors import EngineError, PhalanxError
from phalanx.types import Failure, Member, Message, Request, Response, Reward
from phalanx.weights.store import free

if TYPE_CHECKING:
    from phalanx.weights import Weights

_CACHED_ROWS = 20_000
Key = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class _Job:
    """A request with the rows that are to be scored: one, or two with a rival (a ranker: one)."""

    position: int
    request: Request
    rows: tuple[Prompt, ...]


class RewardEngine:
    """Implements :class:`phalanx.types.Engine` for members of engine ``reward``.

    ``weights`` says where to compute and how many bases may stay in memory. ``batch_size`` and
    ``batch_tokens`` are as in the hf engine. A response depends on its own request alone, but for
    rounding. A reward that is no number, and a model that does not load, are EngineErrors that
    name the member.
    """

    def __init__(
        self, weights: Weights, *, batch_size: int = 32, batch_tokens: int = 16384
    ) -> None:
        self.weights = weights
        self.batch_size = batch_size
        self.batch_tokens = batch_tokens
        self._texts: dict[Key, RewardText] = {}
        self._scorers: dict[Key, Scorer] = {}
        self._ids: dict[tuple[Key, tuple[Message, ...]], list[int]] = {}

    @property
    def loaded(self) -> tuple[str, ...]:
        """Models in memory."""
        return tuple(key[0] for key in self._scorers)

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        """One model after the other, short texts first. Depends on the requests alone."""
        groups: dict[Key, list[int]] = {}
        for position, request in enumerate(requests):
            groups.setdefault(request.member.base_key, []).append(position)
        batches: list[list[int]] = []
        for positions in groups.values():
            sizes = {at: self._size(requests[at]) for at in positions}
            batches += cut(sizes, self.batch_size, self.batch_tokens)
        return batches

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response for each request, in order. Best given one planned batch at a time."""
        found: dict[int, Response] = {}
        for batch in self.plan(requests):
            jobs = []
            for at in batch:
                job = self._prepare(at, requests[at])
                if isinstance(job, Failure):
                    flags = self._flags(requests[at])
                    found[at] = Response(requests[at].id, error=job, flags=flags)
                else:
                    jobs.append(job)
            if jobs:
                found |= self._answer(jobs)
        return [found[position] for position in range(len(requests))]

    def close(self) -> None:
        """Free the models."""
        self._texts.clear()
        self._ids.clear()
        self.release()

    def release(self) -> None:
        """Take the models off the device; what they read with stays."""
        if self._scorers:
            self._scorers.clear()
            free()

    # Rows ----------------------------------------------------------------------------------------

    def _text(self, member: Member) -> RewardText:
        if member.base_key not in self._texts:
            self._texts[member.base_key] = load_text(member)
        return self._texts[member.base_key]

    def _flags(self, request: Request) -> tuple[str, ...]:
        wanted = isinstance(request.want, Reward)
        return (RANKER,) if wanted and self._text(request.member).ranks else ()

    def _conversations(self, request: Request) -> list[tuple[Message, ...]]:
        """What each row holds; none where the request cannot be answered."""
        want = request.want
        if not isinstance(want, Reward):
            return []
        said = tuple(
            Message("assistant", text) for text in (want.response, want.rival) if text is not None
        )
        if self._text(request.member).ranks:
            return [(*request.messages, *said)] if len(said) == 2 else []
        return [(*request.messages, one) for one in said]

    def _encode(self, member: Member, messages: Sequence[Message]) -> list[int]:
        """Kept, since it is wanted when planning and when answering."""
        key = (member.base_key, tuple(messages))
        if key not in self._ids:
            if len(self._ids) >= _CACHED_ROWS:
                self._ids.clear()
            self._ids[key] = self._text(member).encode(messages)
        return self._ids[key]

    def _size(self, request: Request) -> tuple[int, int]:
        rows = [self._encode(request.member, one) for one in self._conversations(request)]
        limit = self._text(request.member).limit
        return len(rows) or 1, min(max(map(len, rows), default=1), limit)

    def _prepare(self, position: int, request: Request) -> _Job | Failure:
        member, text = request.member, self._text(request.member)
        conversations = self._conversations(request)
        if not conversations:
            return _cannot(request)
        rows = []
        for messages in conversations:
            row: Prompt | Failure = Prompt(self._encode(member, messages))
            if len(row.ids) > text.limit:
                row = self._shortened(request, messages, text)
            if isinstance(row, Failure):
                return row
            rows.append(row)
        return _Job(position, request, tuple(rows))

    def _shortened(
        self, request: Request, messages: tuple[Message, ...], text: RewardText
    ) -> Prompt | Failure:
        return shorten(text.chat, replace(request, messages=messages), 0, text.limit, text.encode)

    # Scores --------------------------------------------------------------------------------------

    def _scorer(self, member: Member) -> Scorer:
        key = member.base_key
        if key not in self._scorers:
            text = self._text(member)
            if not self.weights.keep_all_loaded:
                self.release()
            if self.weights.threads:
                import torch

                torch.set_num_threads(self.weights.threads)
            self._scorers[key] = load_scorer(member, text, self.weights.device)
        return self._scorers[key]

    def _answer(self, jobs: list[_Job]) -> dict[int, Response]:
        member = jobs[0].request.member
        try:
            scorer = self._scorer(member)
            responses = halving(lambda part: self._scored(scorer, part), jobs)
        except PhalanxError:
            raise
        except Exception as error:
            raise EngineError(
                f"{member.key}: a batch of {len(jobs)} reward requests failed: "
                f"{type(error).__name__}: {error}"
            ) from error
        return {job.position: found for job, found in zip(jobs, responses, strict=True)}

    def _scored(self, scorer: Scorer, jobs: list[_Job]) -> list[Response]:
        scores = iter(scorer([row.ids for job in jobs for row in job.rows]))
        responses = []
        for job in jobs:
            own, *others = [next(scores) for _ in job.rows]
            reward = own - others[0] if others else own
            if not math.isfinite(reward):
                name = job.request.member.key
                raise EngineError(f"{name}: the reward is {reward}; check the model's weights")
            responses.append(
                Response(
                    job.request.id,
                    reward=reward,
                    num_prompt_tokens=sum(len(row.ids) for row in job.rows),
                    num_shortened_tokens=sum(row.num_shortened for row in job.rows),
                    flags=self._flags(job.request),
                )
            )
        return responses


def _cannot(request: Request) -> Failure:
    name = request.member.name
    if isinstance(request.want, Reward):
        text = f"{name} is a ranker: it compares two responses and scores none alone; give a rival"
    else:
        text = f"{name} is a reward model: it scores responses and writes none; ask another member"
    return Failure("engine", text)
