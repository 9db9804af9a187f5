"""The in-process engine: transformers on this machine's CPU or GPU.

Batches are planned from the requests of a whole phase: one member at a time (its weights are set
once), one kind of request at a time, sorted by length. On a CPU the same configuration gives the
same responses; on any device a response's randomness depends on its own seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.chat import ChatFormat, clean_text
from phalanx.engines.hf_batches import cut, halving, last_logits, padded
from phalanx.engines.hf_options import OptionTree, Path
from phalanx.engines.hf_orders import fulfil
from phalanx.engines.hf_prompts import Prompt, encoder, not_a_reward_model, shorten
from phalanx.engines.hf_writing import write
from phalanx.engines.orders import Order, Written
from phalanx.engines.streaming import TokenStream
from phalanx.errors import EngineError, PhalanxError
from phalanx.types import (
    Failure,
    Member,
    Message,
    Options,
    Request,
    Response,
    Reward,
    Sampling,
    UserTurn,
)

if TYPE_CHECKING:
    from phalanx.weights import Weights

_CACHED_PROMPTS = 20_000


@dataclass(frozen=True, slots=True)
class _Job:
    """A request with its prompt's ids, and what its kind needs besides."""

    position: int
    request: Request
    prompt: Prompt
    tree: OptionTree | None = None
    completion: list[int] | None = None


class HFEngine:
    """Requests to members whose weights are in this process; a :class:`StreamingEngine`.

    ``batch_size`` is the largest number of requests in a batch, ``batch_tokens`` the largest
    number of tokens (padding and new tokens included). A batch that does not fit in memory is
    halved; a single request that does not is an ``engine`` failure.
    """

    def __init__(
        self, weights: Weights, *, batch_size: int = 32, batch_tokens: int = 16384
    ) -> None:
        self.weights = weights
        self.batch_size = batch_size
        self.batch_tokens = batch_tokens
        self._prompts: dict[tuple[Any, bool, tuple[Message, ...]], list[int]] = {}
        self._trees: dict[tuple[Any, Options], OptionTree] = {}

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        """Batches as lists of positions. Depends on the requests alone."""
        groups: dict[Any, dict[Member, dict[str, list[int]]]] = {}
        for position, request in enumerate(requests):
            member = request.member
            of_base = groups.setdefault(member.base_key, {})
            of_base.setdefault(member, {}).setdefault(request.want.kind, []).append(position)
        batches: list[list[int]] = []
        for members in groups.values():
            for kinds in members.values():
                for positions in kinds.values():
                    sizes = {at: self._size(requests[at]) for at in positions}
                    batches += cut(sizes, self.batch_size, self.batch_tokens)
        return batches

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """One response for each request, in order. Best given one planned batch at a time."""
        found: dict[int, Response] = {}
        for batch in self.plan(requests):
            for position, response in self._run([(at, requests[at]) for at in batch]):
                found[position] = response
        return [found[position] for position in range(len(requests))]

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """Answer one Sampling request as :meth:`respond` does; ``show`` gets the text as it comes.

        The pieces joined are the response's text. Raises ValueError for another kind of request.
        """
        if not isinstance(request.want, Sampling):
            raise ValueError(f"only a Sampling request can be streamed, not {request.want.kind}")
        job = self._prepare(0, request)
        if isinstance(job, Failure):
            return Response(request.id, error=job)
        chat = self.weights.chat(request.member)
        watch = TokenStream(chat, chat.stop_ids, show)
        with self.answering(request.member, "streamed sampling", 1) as model:
            (response,) = halving(lambda part: _sample(model, chat, part, watch), [job])
        watch.finish(response.text)
        return response

    def fulfil(self, orders: Sequence[Order]) -> list[Written]:
        """What somebody who talks to one member directly wants of it, in order.

        Raises ValueError for orders of several members.
        """
        return fulfil(self, orders)

    def close(self) -> None:
        """Forget the models."""
        self.weights.close()

    def _size(self, request: Request) -> tuple[int, int]:
        """Rows that the request takes in a batch, and their length in tokens."""
        member, want = request.member, request.want
        rows = 1
        if isinstance(want, Reward):
            return 1, 1  # refused when it is to be answered
        if isinstance(want, Sampling | UserTurn):
            new = want.max_new_tokens
        elif isinstance(want, Options):
            tree = self._tree(member, want)
            rows, new = len(tree.rows), tree.width
        else:
            new = len(self.weights.chat(member).completion_ids(want.completion, ended=False))
        length = len(self._prompt_ids(request)) + new
        return rows, min(length, self.weights.context_length(member))

    def _prompt_ids(self, request: Request) -> list[int]:
        """The whole prompt; kept, since it is wanted when planning and when answering."""
        of_user = isinstance(request.want, UserTurn)
        key = (request.member.base_key, of_user, request.messages)
        if key not in self._prompts:
            if len(self._prompts) >= _CACHED_PROMPTS:
                self._prompts.clear()
            encode = encoder(self.weights.chat(request.member), request.want)
            self._prompts[key] = encode(request.messages)
        return self._prompts[key]

    def _tree(self, member: Member, want: Options) -> OptionTree:
        key = (member.base_key, want)
        if key not in self._trees:
            self._trees[key] = OptionTree(want, self.weights.chat(member))
        return self._trees[key]

    def _run(self, batch: list[tuple[int, Request]]) -> list[tuple[int, Response]]:
        """Answer one planned batch: one member, one kind."""
        done: list[tuple[int, Response]] = []
        jobs: list[_Job] = []
        for position, request in batch:
            job = self._prepare(position, request)
            if isinstance(job, Failure):
                done.append((position, Response(request.id, error=job)))
            else:
                jobs.append(job)
        if not jobs:
            return done
        member, kind = jobs[0].request.member, jobs[0].request.want.kind
        chat = self.weights.chat(member)
        answer = {
            "sampling": _sample,
            "user_turn": _sample,
            "options": _options,
            "likelihood": _likelihood,
        }[kind]
        with self.answering(member, kind, len(jobs)) as model:
            responses = halving(lambda part: answer(model, chat, part), jobs)
        return done + [(job.position, found) for job, found in zip(jobs, responses, strict=True)]

    @contextmanager
    def answering(self, member: Member, kind: str, count: int) -> Iterator[Any]:
        """The member's model; whatever it raises names the member and the batch."""
        try:
            with self.weights.serving(member) as model:
                yield model
        except PhalanxError:
            raise
        except Exception as error:
            raise EngineError(
                f"{member.key}: a batch of {count} {kind} requests failed: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _prepare(self, position: int, request: Request) -> _Job | Failure:
        member, want = request.member, request.want
        chat = self.weights.chat(member)
        tree = completion = None
        if isinstance(want, Reward):
            return not_a_reward_model(member)
        if isinstance(want, Sampling | UserTurn):
            num_new = want.max_new_tokens
        elif isinstance(want, Options):
            tree = self._tree(member, want)
            num_new = tree.width
        else:
            completion = chat.completion_ids(want.completion, ended=False)
            num_new = len(completion)
            if not completion:
                return Failure("empty", "an empty completion has no likelihood")
        context = self.weights.context_length(member)
        prompt = Prompt(self._prompt_ids(request))
        if len(prompt.ids) + num_new > context:
            prompt = shorten(chat, request, num_new, context)
        if isinstance(prompt, Failure):
            return prompt
        return _Job(position, request, prompt, tree, completion)


def _sample(
    model: Any, chat: ChatFormat, jobs: list[_Job], watch: TokenStream | None = None
) -> list[Response]:
    """Write all jobs of one kind; ``watch`` sees the tokens of a single one as they come."""
    stop_ids = _stop_ids(chat, jobs[0])
    ids, mask = padded([job.prompt.ids for job in jobs], chat.pad_id, model.device)
    rows = write(
        model,
        ids,
        mask,
        [_sampling(job) for job in jobs],
        [job.request.seed for job in jobs],
        stop_ids,
        chat.pad_id,
        None if watch is None else lambda _, tokens: watch(tokens),
    )
    return [_read(chat, job, row) for job, row in zip(jobs, rows, strict=True)]


def _sampling(job: _Job) -> Sampling | UserTurn:
    want = job.request.want
    assert isinstance(want, Sampling | UserTurn)
    return want


def _stop_ids(chat: ChatFormat, job: _Job) -> tuple[int, ...]:
    return chat.user_stop_ids if isinstance(job.request.want, UserTurn) else chat.stop_ids


def _read(chat: ChatFormat, job: _Job, row: list[int]) -> Response:
    """Text up to the first end token; without one, the row's own limit cut it off."""
    row, stop_ids = row[: _sampling(job).max_new_tokens], _stop_ids(chat, job)
    end = next((at for at, token in enumerate(row) if token in stop_ids), None)
    tokens = row[:end]
    text, flags = clean_text(chat.decode(tokens))
    ended = end is not None
    if isinstance(job.request.want, UserTurn) and (turn := chat.before_marker(text)) != text:
        text, ended = turn, True  # a template without control tokens: the next turn was begun
    return Response(
        job.request.id,
        text=text,
        finish_reason="stop" if ended else "length",
        num_prompt_tokens=len(job.prompt.ids),
        num_completion_tokens=len(tokens),
        num_shortened_tokens=job.prompt.num_shortened,
        flags=flags,
    )


def _options(model: Any, chat: ChatFormat, jobs: list[_Job]) -> list[Response]:
    rows = [(number, row) for number, job in enumerate(jobs) for row in _tree_of(job).rows]
    ids = [jobs[n].prompt.ids + _tree_of(jobs[n]).forced + list(row) for n, row in rows]
    keep = max(len(row) for _, row in rows) + 1
    logits = last_logits(model, ids, chat.pad_id, keep)
    read: list[dict[Path, dict[int, float]]] = [{} for _ in jobs]
    for at, (number, row) in enumerate(rows):
        for path, tokens in _tree_of(jobs[number]).asked(row).items():
            logprobs = logits[at, keep - 1 - len(row) + len(path)].float().log_softmax(-1)
            read[number][path] = dict(zip(tokens, logprobs[tokens].tolist(), strict=True))
    responses = []
    for job, logprobs in zip(jobs, read, strict=True):
        probabilities, mass = _tree_of(job).read(logprobs)
        responses.append(
            Response(
                job.request.id,
                probabilities=probabilities,
                option_mass=mass,
                num_prompt_tokens=len(job.prompt.ids),
                num_shortened_tokens=job.prompt.num_shortened,
            )
        )
    return responses


def _tree_of(job: _Job) -> OptionTree:
    assert job.tree is not None
    return job.tree


def _likelihood(model: Any, chat: ChatFormat, jobs: list[_Job]) -> list[Response]:
    import torch

    completions = [job.completion or [] for job in jobs]
    keep = max(map(len, completions)) + 1
    ids = [job.prompt.ids + tokens for job, tokens in zip(jobs, completions, strict=True)]
    logits = last_logits(model, ids, chat.pad_id, keep)
    responses = []
    for at, (job, tokens) in enumerate(zip(jobs, completions, strict=True)):
        # Position i predicts token i + 1. One row at a time: float32 of all would be large.
        row = logits[at, keep - 1 - len(tokens) : keep - 1].float()
        target = torch.tensor(tokens, device=row.device)[:, None]
        total = float((row.gather(1, target)[:, 0] - row.logsumexp(-1)).sum())
        if not math.isfinite(total):
            member = job.request.member
            raise EngineError(f"{member.key}: the log-probability is {total}; check its weights")
        responses.append(
            Response(
                job.request.id,
                logprob_sum=total,
                num_scored_tokens=len(tokens),
                num_prompt_tokens=len(job.prompt.ids),
                num_completion_tokens=len(tokens),
                num_shortened_tokens=job.prompt.num_shortened,
            )
        )
    return responses
