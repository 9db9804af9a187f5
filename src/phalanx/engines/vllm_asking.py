"""Requests to vLLM's completions endpoint as token ids, and what its replies mean.

The prompts are the hf engine's own: the member's :class:`~phalanx.chat.ChatFormat` makes the ids
here, so control tokens in untrusted text stay neutralised whatever template the server has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.chat import ChatFormat, clean_text
from phalanx.engines.hf_options import OptionTree, Path
from phalanx.engines.hf_prompts import Prompt, encoder, shorten
from phalanx.errors import EngineError
from phalanx.types import (
    Failure,
    FinishReason,
    Likelihood,
    Request,
    Response,
    Sampling,
    UserTurn,
)

Body = dict[str, Any]
_FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "repetition": "length"}


@dataclass(frozen=True, slots=True)
class Job:
    """A request ready to send. ``tree`` for options, ``completion`` ids for a likelihood."""

    request: Request
    chat: ChatFormat
    prompt: Prompt
    tree: OptionTree | None = None
    completion: tuple[int, ...] = ()


def prepare(
    request: Request, chat: ChatFormat, context: int, tree: OptionTree | None
) -> Job | Failure:
    """Token ids that fit the server's context; ``tree`` is given exactly for options.

    The server writes one token even where only the prompt is read, so there has to be room.
    """
    want = request.want
    completion: tuple[int, ...] = ()
    if isinstance(want, Sampling | UserTurn):
        num_new = want.max_new_tokens
    elif isinstance(want, Likelihood):
        completion = tuple(chat.completion_ids(want.completion, ended=False))
        num_new = len(completion) + 1
        if not completion:
            return Failure("empty", "an empty completion has no likelihood")
    else:
        assert tree is not None
        num_new = tree.width + 2  # a token of the tree may have to be read in the prompt
    prompt = Prompt(encoder(chat, want)(request.messages))
    if len(prompt.ids) + num_new > context:
        shortened = shorten(chat, request, num_new, context)
        if isinstance(shortened, Failure):
            return shortened
        prompt = shortened
    return Job(request, chat, prompt, tree, completion)


def sampling_body(job: Job) -> Body:
    """``top_k`` 0 and a temperature of 0 mean the same to vLLM as here: off, and greedy."""
    want = job.request.want
    assert isinstance(want, Sampling | UserTurn)
    return {
        "prompt": job.prompt.ids,
        "max_tokens": want.max_new_tokens,
        "temperature": want.temperature,
        "top_p": want.top_p,
        "top_k": want.top_k,
        "seed": job.request.seed,
        "stop_token_ids": list(_stop_ids(job)),
        "return_token_ids": True,
    }


def _stop_ids(job: Job) -> tuple[int, ...]:
    of_user = isinstance(job.request.want, UserTurn)
    return job.chat.user_stop_ids if of_user else job.chat.stop_ids


def broken_off(choice: Mapping[str, Any]) -> Failure | None:
    """What it amounts to that the server ended the request itself; None where it did not."""
    reason = choice.get("finish_reason")
    if reason not in ("abort", "error"):
        return None
    text = f"the vLLM server broke the request off (finish_reason {reason})"
    return Failure("engine", text, transient=True)


def read_sampling(job: Job, choice: Mapping[str, Any]) -> Response:
    """Text up to the first end token. A limit cut it off where the reply says so.

    vLLM's ``repetition`` is a limit as well: the text was going round in circles.
    """
    ids, stop_ids = choice.get("token_ids"), _stop_ids(job)
    reason = choice.get("finish_reason")
    finish = _FINISH.get(reason) if isinstance(reason, str) else None
    if finish is None:
        text = f"the vLLM server ended the text for a reason that is not known here: {reason!r}"
        return Response(job.request.id, error=Failure("engine", text))
    if isinstance(ids, list):
        end = next((at for at, token in enumerate(ids) if token in stop_ids), None)
        ids = ids[:end]
        written = job.chat.decode(ids)
    else:  # a server from before return_token_ids
        written = str(choice.get("text", ""))
        ids = job.chat.completion_ids(written, ended=False)
    text, flags = clean_text(written)
    if isinstance(job.request.want, UserTurn) and (turn := job.chat.before_marker(text)) != text:
        text, finish = turn, "stop"  # no control token: the next turn was begun
    return Response(
        job.request.id,
        text=text,
        finish_reason=finish,
        num_prompt_tokens=len(job.prompt.ids),
        num_completion_tokens=len(ids),
        num_shortened_tokens=job.prompt.num_shortened,
        flags=flags,
    )


def node_body(job: Job, path: Path, tokens: Sequence[int], limit: int) -> Body:
    """Ask for the log-probabilities of ``tokens`` as the next token at a node of the tree.

    vLLM gives those of exactly these ids (``logprob_token_ids``, 2026); an older one leaves that
    out and gives the ``limit`` likeliest at most.
    """
    assert job.tree is not None
    return {
        "prompt": [*job.prompt.ids, *job.tree.forced, *path],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": min(len(tokens), limit),
        "logprob_token_ids": list(tokens),
        "return_tokens_as_token_ids": True,
    }


def read_node(choice: Mapping[str, Any], tokens: Sequence[int]) -> dict[int, float]:
    """Token id -> log-probability, of those among ``tokens`` that the reply holds."""
    rows = (choice.get("logprobs") or {}).get("top_logprobs") or [{}]
    first = rows[0] or {}
    found = {token: first.get(f"token_id:{token}") for token in tokens}
    return {token: float(value) for token, value in found.items() if value is not None}


def scored_body(ids: Sequence[int]) -> Body:
    """Ask for the log-probability of every id of the prompt itself."""
    return {"prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def read_scored(choice: Mapping[str, Any], ids: Sequence[int], count: int) -> list[float]:
    """Log-probabilities of the last ``count`` ids. Raises EngineError where one is missing."""
    rows = choice.get("prompt_logprobs") or []
    if len(rows) != len(ids):
        raise EngineError(
            f"the vLLM server gave {len(rows)} prompt log-probabilities for {len(ids)} tokens; "
            "this engine needs a server that honours prompt_logprobs"
        )
    pairs = zip(rows[-count:], ids[-count:], strict=True)
    found = [(row or {}).get(str(token), {}).get("logprob") for row, token in pairs]
    if any(value is None or not math.isfinite(value) for value in found):
        raise EngineError(
            f"the vLLM server's log-probabilities are {found[:5]}; check the model's weights"
        )
    return [float(value) for value in found]


def likelihood_response(job: Job, logprobs: Sequence[float]) -> Response:
    return Response(
        job.request.id,
        logprob_sum=math.fsum(logprobs),
        num_scored_tokens=len(logprobs),
        num_prompt_tokens=len(job.prompt.ids),
        num_completion_tokens=len(logprobs),
        num_shortened_tokens=job.prompt.num_shortened,
    )


def options_response(job: Job, logprobs: Mapping[Path, Mapping[int, float]]) -> Response:
    assert job.tree is not None
    probabilities, mass = job.tree.read(logprobs)
    return Response(
        job.request.id,
        probabilities=probabilities,
        option_mass=mass,
        num_prompt_tokens=len(job.prompt.ids),
        num_shortened_tokens=job.prompt.num_shortened,
    )


def nodes(tree: OptionTree) -> dict[Path, list[int]]:
    """The nodes to ask at, each once, and the next tokens to read there."""
    found: dict[Path, list[int]] = {}
    for row in tree.rows:
        found.update(tree.asked(row))
    return found
