"""OpenAI's and vLLM's request and reply bodies, over a writer."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from phalanx.types import Member, Message, Sampling
from tests.server.texts import Abilities, ApiError, Ask, Token, Written

_serial = itertools.count(1)


def refused(can: Abilities, body: Mapping[str, Any]) -> None:
    """Raise for what this server does not do."""

    def no(param: str, message: str, code: str = "unsupported_parameter") -> ApiError:
        return ApiError(400, message, param, code)

    wants_logprobs = body.get("logprobs") not in (None, False) or "prompt_logprobs" in body
    if wants_logprobs and can.logprobs == "refuse":
        raise no("logprobs", "logprobs are not supported by this server")
    if choices_of(body) and can.choice == "refuse":
        raise no("structured_outputs", "structured outputs are not supported by this server")
    if body.get("continue_final_message") and can.prefill == "refuse":
        raise no("continue_final_message", "the final message cannot be continued")
    if "stream_options" in body and not can.stream_options:
        raise no("stream_options", "stream_options is not supported")
    if body.get("stream") and not can.stream:
        raise no("stream", "stream is not supported by this server")
    if "max_tokens" in body and not can.max_tokens:
        raise no("max_tokens", "unsupported parameter: use 'max_completion_tokens' instead")
    if body.get("temperature", 1) != 1 and not can.temperature:
        message = "only the default temperature is supported"
        raise no("temperature", message, "unsupported_value")
    roles = [message.get("role") for message in body.get("messages", [])]
    if "system" in roles and not can.system:
        raise ApiError(400, "System role not supported", "messages")
    top = max(int(body.get(k) or 0) for k in ("logprobs", "top_logprobs", "prompt_logprobs"))
    if top > can.max_logprobs:
        raise ApiError(
            400, f"Requested logprobs of {top}, which is greater than max allowed: "
            f"{can.max_logprobs}", "logprobs",
        )  # fmt: skip


def choices_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    structured = body.get("structured_outputs") or {}
    return tuple(structured.get("choice") or body.get("guided_choice") or ())


def read_chat(body: Mapping[str, Any], member: Member, can: Abilities) -> Ask:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list of at least one message", "messages")
    turns = tuple(Message(m["role"], _content(m.get("content"))) for m in messages)
    prefix = ""
    if turns[-1].role == "assistant" and body.get("continue_final_message"):
        if body.get("add_generation_prompt", True):
            raise ApiError(400, "Cannot set both `continue_final_message` and "
                           "`add_generation_prompt` to True.")  # fmt: skip
        if can.prefill == "yes":
            turns, prefix = turns[:-1], turns[-1].content
    limit = body.get("max_completion_tokens", body.get("max_tokens")) or 128
    wanted = body.get("logprobs") and can.logprobs == "yes"
    return Ask(
        member,
        _sampling(body, limit),
        seed=int(body.get("seed") or 0),
        messages=turns,
        prefix=prefix,
        choices=choices_of(body) if can.choice == "yes" else (),
        num_top=int(body.get("top_logprobs") or 0) if wanted else None,
        token_ids=_token_ids(body, can),
    )


def read_completions(body: Mapping[str, Any], member: Member, can: Abilities) -> list[Ask]:
    """One ask for each prompt: a text, token ids, or a list of either."""
    prompt = body.get("prompt")
    many = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
    prompts = prompt if many else [prompt]
    limit = body.get("max_tokens", 16)
    echo = bool(body.get("echo"))
    if not (limit or echo):
        raise ApiError(400, f"max_tokens must be at least 1, got {limit}.", "max_tokens")
    top = body.get("logprobs") if can.logprobs == "yes" else None
    asks = []
    for one in prompts:
        if one in (None, "", []):
            raise ApiError(400, "The decoder prompt cannot be empty", "prompt")
        prompt_top = body.get("prompt_logprobs") if can.logprobs == "yes" else None
        asks.append(
            Ask(
                member,
                _sampling(body, limit or 1),
                seed=int(body.get("seed") or 0),
                prompt=tuple(one) if isinstance(one, list) else one,
                choices=choices_of(body) if can.choice == "yes" else (),
                num_top=top,
                prompt_top=top if echo and prompt_top is None else prompt_top,
                token_ids=_token_ids(body, can),
                stop_token_ids=tuple(body.get("stop_token_ids") or ()),
                ignore_end=bool(body.get("ignore_eos")),
                add_special_tokens=body.get("add_special_tokens", True),
            )
        )
    return asks


def _token_ids(body: Mapping[str, Any], can: Abilities) -> tuple[int, ...]:
    return tuple(body.get("logprob_token_ids") or ()) if can.token_ids else ()


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _sampling(body: Mapping[str, Any], limit: int) -> Sampling:
    temperature = body.get("temperature")
    top_k = body.get("top_k") or 0
    return Sampling(
        temperature=1.0 if temperature is None else float(temperature),
        top_p=float(body.get("top_p") or 1.0),
        top_k=max(0, int(top_k)),
        max_new_tokens=int(limit),
    )


def chat_reply(
    body: Mapping[str, Any], written: Written, can: Abilities, num_top: int | None
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": written.text}
    if can.reasoning:
        message["reasoning_content"] = can.reasoning
    choice: dict[str, Any] = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": written.finish,
    }
    if num_top is not None:
        choice["logprobs"] = {"content": [_chat_token(token) for token in written.tokens]}
    return _envelope("chat.completion", body, [choice], [written])


def events(reply: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """A reply as the events of a stream: piece by piece, the end, the usage, the mark."""
    choice = reply["choices"][0]
    shell = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    deltas: list[dict[str, Any]] = []
    if "message" in choice:
        message = choice["message"]
        deltas += [{"delta": {"role": "assistant", "content": ""}}]
        for name in ("reasoning_content", "content"):
            deltas += [{"delta": {name: piece}} for piece in _bits(message.get(name) or "")]
        deltas += [{"delta": {}, "finish_reason": choice["finish_reason"]}]
    else:
        ids = choice.get("token_ids")
        pieces = _bits(choice["text"])
        for at in range(max(len(pieces), len(ids or ()))):
            one: dict[str, Any] = {"text": pieces[at] if at < len(pieces) else ""}
            if ids is not None:
                one["token_ids"] = ids[at : at + 1]
            deltas.append(one)
        last = {"text": "", "finish_reason": choice["finish_reason"]}
        deltas.append(last if ids is None else {**last, "token_ids": ids[len(deltas) :]})
    chunks = [{**shell, "choices": [{"index": 0, "finish_reason": None, **d}]} for d in deltas]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**shell, "choices": [], "usage": reply["usage"]})
    return [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]


def _bits(text: str) -> list[str]:
    """Pieces of at most five characters, whatever they cut through."""
    return re.findall(r"(?s).{1,5}", text)


def _chat_token(token: Token) -> dict[str, Any]:
    def one(text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8"))}

    top = [one(text, logprob) for _, text, logprob in token.top]
    return {**one(token.text, token.logprob), "top_logprobs": top}


def completions_reply(
    body: Mapping[str, Any], asks: list[Ask], written: list[Written]
) -> dict[str, Any]:
    pairs = enumerate(zip(asks, written, strict=True))
    choices = [_completion(body, number, ask, one) for number, (ask, one) in pairs]
    return _envelope("text_completion", body, choices, written)


def _completion(body: Mapping[str, Any], number: int, ask: Ask, one: Written) -> dict[str, Any]:
    echo, only_prompt = bool(body.get("echo")), body.get("max_tokens") == 0
    tokens: list[Token | None] = [] if only_prompt else list(one.tokens)
    shown: list[Token | None] = [*(one.prompt_tokens if echo else ()), *tokens]
    first = Token(one.prompt_ids[0], "", 0.0) if one.prompt_ids else None
    text = "" if only_prompt else one.text
    if echo:
        asked = ask.prompt if isinstance(ask.prompt, str) else ""
        text = asked + text
    choice: dict[str, Any] = {
        "index": number,
        "text": text,
        "logprobs": None,
        "finish_reason": one.finish,
        "stop_reason": None,
        "prompt_logprobs": None,
    }
    if ask.num_top is not None:
        choice["logprobs"] = _legacy(shown, first, bool(body.get("return_tokens_as_token_ids")))
    if body.get("prompt_logprobs") is not None and one.prompt_tokens:
        choice["prompt_logprobs"] = [_by_id(token) for token in one.prompt_tokens]
    if body.get("return_token_ids"):
        choice["prompt_token_ids"] = list(one.prompt_ids)
        choice["token_ids"] = [token.id for token in tokens if token]
    return choice


def _by_id(token: Token | None) -> dict[str, Any] | None:
    """vLLM's prompt_logprobs entry: the prompt's own token first, then the likeliest."""
    if token is None:
        return None
    rank = {one: at + 1 for at, (one, _, _) in enumerate(token.top)}
    found = {
        str(token.id): {
            "logprob": token.logprob,
            "rank": rank.get(token.id, len(rank) + 1),
            "decoded_token": token.text,
        }
    }
    for one, text, logprob in token.top:
        entry = {"logprob": logprob, "rank": rank[one], "decoded_token": text}
        found.setdefault(str(one), entry)
    return found


def _legacy(tokens: list[Token | None], first: Token | None, as_ids: bool) -> dict[str, Any]:
    """The completions endpoint's log-probabilities: four lists of one length."""

    def name(number: int, text: str) -> str:
        return f"token_id:{number}" if as_ids else text

    offsets: list[int] = []
    at = 0
    for token in tokens:
        offsets.append(at)
        at += len(token.text) if token else 0
    names = [token or first for token in tokens]
    return {
        "text_offset": offsets,
        "token_logprobs": [token.logprob if token else None for token in tokens],
        "tokens": [name(token.id, token.text) if token else "" for token in names],
        "top_logprobs": [
            {
                name(token.id, token.text): token.logprob,
                **{name(one, text): logprob for one, text, logprob in token.top},
            }
            if token
            else None
            for token in tokens
        ],
    }


def _envelope(
    kind: str, body: Mapping[str, Any], choices: list[dict[str, Any]], written: list[Written]
) -> dict[str, Any]:
    prompt = sum(len(one.prompt_ids) for one in written)
    new = sum(len(one.tokens) for one in written)
    return {
        "id": f"cmpl-{next(_serial)}",
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model"),
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
        },
    }
