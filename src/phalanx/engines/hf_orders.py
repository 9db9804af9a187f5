"""Orders of the in-process engine: texts with log-probabilities, in batches of one member.

The log-probability of a token is that of a plain forward pass: log-softmax of the logits in
float32, before temperature, top-p and top-k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from phalanx.chat import ChatFormat, clean_text
from phalanx.engines.hf_batches import cut, halving, last_logits, padded
from phalanx.engines.hf_prompts import shorten
from phalanx.engines.hf_sampling import Sampler
from phalanx.engines.hf_writing import write
from phalanx.engines.orders import Order, Token, Written, cut_at, open_end, request_of
from phalanx.engines.streaming import Shown, settled_text
from phalanx.engines.token_pieces import Pieces
from phalanx.errors import EngineError, PhalanxError
from phalanx.types import Failure, Sampling

if TYPE_CHECKING:
    import torch

    from phalanx.engines.hf import HFEngine

_MOST_LOGITS = 1 << 28
"""Numbers that the logits of one batch of prompts may have: 1 GiB in float32."""
_ROWS = 512
GIVEN_UP = "nobody waits for this text any more"
Scored = tuple[float, tuple[tuple[int, float], ...]]
"""A token's log-probability, and the likeliest in its place."""


@dataclass
class _Job:
    """An order with its prompt's ids; ``notes`` are of the tokens written so far."""

    order: Order
    ids: list[int]
    want: Sampling
    notes: list[Scored] = field(default_factory=list)
    prompt: tuple[Token, ...] = ()
    first: list[int] | None = None
    """The only token to be written, where reading the prompt has shown it already."""

    @property
    def writes(self) -> bool:
        return self.want.max_new_tokens > 0 and self.first is None

    @property
    def is_scored(self) -> bool:
        return self.order.echo and self.order.num_top is not None


def fulfil(engine: HFEngine, orders: Sequence[Order]) -> list[Written]:
    """See :meth:`phalanx.engines.hf.HFEngine.fulfil`."""
    if len({order.member for order in orders}) > 1:
        raise ValueError("the orders are of several members; fulfil those of each by itself")
    if not orders:
        return []
    member = orders[0].member
    chat = engine.weights.chat(member)
    pieces = Pieces(chat.tokenizer)
    found: dict[int, Written] = {}
    jobs: dict[int, _Job] = {}
    with engine.answering(member, "direct", len(orders)) as model:
        known = model.get_input_embeddings().num_embeddings
        context = engine.weights.context_length(member)
        for at, order in enumerate(orders):
            job = _prepared(order, chat, context, known)
            if isinstance(job, Failure):
                found[at] = Written(error=job)
            else:
                jobs[at] = job
        scored = {at: (1, len(job.ids)) for at, job in jobs.items() if job.is_scored}
        width = max(1, _MOST_LOGITS // _vocabulary(model))
        for batch in cut(scored, engine.batch_size, min(width, engine.batch_tokens)):
            read = [jobs[at] for at in batch]
            for at, failure in zip(
                batch,
                halving(lambda part: _score(model, chat, pieces, part), read, _failed),
                strict=True,
            ):
                if failure is not None:
                    found[at] = Written(error=failure)
        sizes = {
            at: (1, len(job.ids) + job.want.max_new_tokens)
            for at, job in jobs.items()
            if at not in found and job.writes
        }
        for batch in cut(sizes, engine.batch_size, engine.batch_tokens):
            texts = halving(
                lambda part: _write(model, chat, pieces, part),
                [jobs[at] for at in batch],
                lambda _, failure: Written(error=failure),
            )
            found.update(zip(batch, texts, strict=True))
    for at, job in jobs.items():
        if at not in found:
            row = _Row(job, chat, pieces)
            found[at] = row.written(job.first or [])
    return [found[at] for at in range(len(orders))]


def _failed(_: _Job, failure: Failure) -> Failure:
    return failure


def _vocabulary(model: Any) -> int:
    head = model.get_output_embeddings()
    return int(head.weight.shape[0]) if head is not None else model.config.vocab_size


# The prompt --------------------------------------------------------------------------------------


def prompt_ids(order: Order, chat: ChatFormat) -> list[int]:
    """Token ids of an order's prompt. Nothing at all is read as a text's beginning."""
    prompt, tokenizer = order.prompt, chat.tokenizer
    if isinstance(prompt, str):
        ids = list(tokenizer(prompt, verbose=False)["input_ids"])
        bos = tokenizer.bos_token_id
        while bos is not None and ids[:2] == [bos, bos]:  # the text had one, too
            ids = ids[1:]
    elif order.is_chat:
        ids = chat.prompt_ids(prompt)
    else:
        ids = list(prompt)
    first = tokenizer.bos_token_id
    return ids or [chat.end_id if first is None else first]


def _prepared(order: Order, chat: ChatFormat, context: int, known: int) -> _Job | Failure:
    """An order that cannot be read fails alone, and not those of others beside it."""
    try:
        return _prepare(order, chat, context, known)
    except PhalanxError as error:
        return Failure("refused", str(error))


def _prepare(order: Order, chat: ChatFormat, context: int, known: int) -> _Job | Failure:
    if order.given_up():
        return Failure("engine", GIVEN_UP)
    ids = prompt_ids(order, chat)
    if strange := [token for token in ids if not 0 <= token < known]:
        said = f"the prompt has the token {strange[0]}; this model knows 0 to {known - 1}"
        return Failure("refused", said)
    new, room = order.sampling.max_new_tokens, context - len(ids)
    if order.fits:
        new = min(new, max(room, 1))
    if new > room and order.is_chat and order.shortenable:
        prompt = shorten(chat, request_of(order), new, context)
        if isinstance(prompt, Failure):
            return prompt
        ids, room = prompt.ids, context - len(prompt.ids)
    if new > room:
        return Failure(
            "too_long",
            f"the prompt has {len(ids)} tokens and {new} more are to come, but the context holds "
            f"{context}",
        )
    return _Job(order, ids, replace(order.sampling, max_new_tokens=new))


def _score(model: Any, chat: ChatFormat, pieces: Pieces, jobs: list[_Job]) -> list[Failure | None]:
    """Fill in the prompts' tokens, and the next one where no more than one is wanted."""
    import torch

    longest = max(len(job.ids) for job in jobs)
    logits = last_logits(model, [job.ids for job in jobs], chat.pad_id, longest)
    for at, job in enumerate(jobs):
        row = logits[at, longest - len(job.ids) :]
        scored = _scored(row[:-1], job.ids[1:], job.order.num_top or 0)
        job.prompt = (
            Token(job.ids[0], pieces(job.ids[0])),
            *(_token(token, one, pieces) for token, one in zip(job.ids[1:], scored, strict=True)),
        )
        if job.want.max_new_tokens == 1:
            # No second reading for one token, which is all that likelihoods of texts ask for.
            sampler = Sampler([job.want], [job.order.seed], len(job.ids), row.device)
            read = torch.tensor([job.ids], device=row.device)
            chosen = int(sampler(read, row[-1:])[0].argmax())
            job.first = [chosen]
            job.notes = _scored(row[-1:], [chosen], job.order.num_top or 0)
    return [None] * len(jobs)


def _scored(logits: torch.Tensor, tokens: Sequence[int], num_top: int) -> list[Scored]:
    """What each row of ``logits`` [tokens, vocabulary] thinks of its token, and the likeliest."""
    import torch

    found: list[Scored] = []
    for start in range(0, len(tokens), _ROWS):  # float32 of a whole long prompt would be large
        logprobs = logits[start : start + _ROWS].float().log_softmax(-1)
        target = torch.tensor(tokens[start : start + _ROWS], device=logits.device)[:, None]
        own = logprobs.gather(1, target)[:, 0].tolist()
        found += zip(own, _likeliest(logprobs, num_top), strict=True)
    return found


def _likeliest(logprobs: torch.Tensor, count: int) -> list[tuple[tuple[int, float], ...]]:
    """The ``count`` likeliest tokens of each row [rows, vocabulary], likeliest first."""
    if not count:
        return [()] * len(logprobs)
    values, tokens = logprobs.topk(min(count, logprobs.shape[-1]))
    return [
        tuple(zip(ids, some, strict=True))
        for ids, some in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


def _token(token: int, scored: Scored | None, pieces: Pieces, ends: bool = False) -> Token:
    if scored is None:
        return Token(token, pieces(token), ends=ends)
    value, top = scored
    if math.isnan(value):
        raise EngineError("a log-probability is not a number; check the member's weights")
    likeliest = tuple((pieces(other), logprob) for other, logprob in top)
    return Token(token, pieces(token), value, likeliest, ends)


# The text ----------------------------------------------------------------------------------------


def _write(model: Any, chat: ChatFormat, pieces: Pieces, jobs: list[_Job]) -> list[Written]:
    rows = [_Row(job, chat, pieces) for job in jobs]
    for job in jobs:
        job.notes.clear()  # of a try for which the memory was too small
    ids, mask = padded([job.ids for job in jobs], chat.pad_id, model.device)
    noted = any(job.order.num_top is not None for job in jobs)
    written = write(
        model,
        ids,
        mask,
        [job.want for job in jobs],
        [job.order.seed for job in jobs],
        chat.stop_ids,
        chat.pad_id,
        lambda number, tokens: rows[number](tokens),
        _Notes(jobs) if noted else None,
    )
    return [row.written(tokens) for row, tokens in zip(rows, written, strict=True)]


class _Notes:
    """The :class:`phalanx.engines.hf_writing.Scores` of jobs that want log-probabilities."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._jobs = jobs

    def around(self, sampler: Any, rows: Sequence[int]) -> Any:
        places = [at for at, row in enumerate(rows) if self._jobs[row].order.num_top is not None]
        jobs = [self._jobs[rows[at]] for at in places]
        most = max((job.order.num_top or 0 for job in jobs), default=0)

        def choose(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            chosen = sampler(input_ids, scores)
            if jobs:
                logprobs = scores[places].float().log_softmax(-1)
                tokens = chosen[places].argmax(-1, keepdim=True)
                own = logprobs.gather(1, tokens)[:, 0].tolist()
                for job, value, top in zip(jobs, own, _likeliest(logprobs, most), strict=True):
                    job.notes.append((value, top[: job.order.num_top or 0]))
            return chosen

        return choose


class _Row:
    """One text while it is written: shown as it comes, ended at a string that ends it."""

    def __init__(self, job: _Job, chat: ChatFormat, pieces: Pieces) -> None:
        self._job, self._chat, self._pieces = job, chat, pieces
        self._order = job.order
        self._over = False
        self._given_up = False
        self._num_heard = 0
        self._shown = Shown(self._show)
        self._new: list[Token] = []

    def __call__(self, tokens: Sequence[int]) -> bool:
        """``tokens`` are all those written so far; True where the text is to end with them."""
        if self._over:
            return True
        self._given_up = self._over = self._order.given_up()
        if self._over or not (self._order.stop or self._order.hear):
            return self._over
        text = settled_text(self._chat, self._chat.stop_ids, tokens)
        self._over = cut_at(text, self._order.stop) is not None or (
            tokens[-1] in self._chat.stop_ids or len(tokens) >= self._job.want.max_new_tokens
        )
        held = open_end(text, self._order.stop)
        if not self._over and self._order.hear is not None:  # the end is shown by `written`
            self._hear(text[: len(text) - held], [] if held else tokens)
        return self._over

    def written(self, row: Sequence[int]) -> Written:
        """The text of these tokens; what of it was not shown yet is shown."""
        if self._given_up:
            return Written(error=Failure("engine", GIVEN_UP))
        self._over = True
        row = list(row[: self._job.want.max_new_tokens])
        stops = self._chat.stop_ids
        end = next((at for at, token in enumerate(row) if token in stops), len(row))
        text, flags = clean_text(self._chat.decode(row[:end]))
        at = cut_at(text, self._order.stop)
        stopped = end < len(row) or at is not None
        if at is not None:
            text = text[:at]
            while end and len(clean_text(self._chat.decode(row[: end - 1]))[0]) >= at:
                end -= 1
            row = row[:end]
        if self._order.hear is not None:
            self._hear(text, row)
        return Written(
            text=text,
            finish_reason="stop" if stopped else "length",
            tokens=self._tokens(row, 0) if self._order.num_top is not None else (),
            prompt=self._job.prompt,
            prompt_text=self._prompt_text() if self._order.echo else "",
            num_prompt_tokens=len(self._job.ids),
            num_completion_tokens=end,
            flags=flags,
        )

    def _prompt_text(self) -> str:
        if isinstance(self._order.prompt, str):
            return self._order.prompt
        return self._chat.tokenizer.decode(self._job.ids, clean_up_tokenization_spaces=False)

    def _tokens(self, row: Sequence[int], start: int) -> tuple[Token, ...]:
        notes = self._job.notes
        return tuple(
            _token(row[at], notes[at], self._pieces, row[at] in self._chat.stop_ids)
            for at in range(start, len(row))
        )

    def _hear(self, text: str, tokens: Sequence[int]) -> None:
        if self._order.num_top is not None and len(tokens) > self._num_heard:
            self._new += self._tokens(tokens, self._num_heard)
            self._num_heard = len(tokens)
        self._shown.up_to(text)
        if self._new and self._over:
            self._show("")

    def _show(self, piece: str) -> None:
        new, self._new = self._new, []
        if self._order.hear is not None:
            self._order.hear(piece, new)
