"""What the server writes, whichever engine is behind it: text, tokens and log-probabilities."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from phalanx.identity import content_id, derived_random
from phalanx.types import Engine, Member, Message, Request, Response, Sampling


class ApiError(Exception):
    """A reply other than 200, in OpenAI's shape."""

    def __init__(self, status: int, message: str, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        kind = {401: "AuthenticationError", 404: "NotFoundError"}.get(status, "BadRequestError")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class Abilities:
    """What this server can do. ``refuse`` answers 400, ``ignore`` leaves the parameter out."""

    logprobs: str = "yes"  # yes, refuse, ignore
    choice: str = "yes"  # yes, refuse, ignore
    prefill: str = "yes"  # continue_final_message: yes, refuse, ignore
    system: bool = True
    max_tokens: bool = True  # False: wants max_completion_tokens
    temperature: bool = True  # False: refuses any but 1
    token_ids: bool = True  # logprob_token_ids are honoured; False: left out, as older vLLMs do
    max_logprobs: int = 20
    reasoning: str = ""  # sent as reasoning_content with every chat reply
    lora: bool = True
    sleep: bool = True
    tokenize: bool = True
    stream: bool = True
    stream_options: bool = True


@dataclass(frozen=True)
class Token:
    """One token and its alternatives, each (id, text, log-probability), likeliest first."""

    id: int
    text: str
    logprob: float
    top: tuple[tuple[int, str, float], ...] = ()


@dataclass(frozen=True)
class Ask:
    """A request of either kind, read. ``prompt`` is set for completions, else ``messages``."""

    member: Member
    sampling: Sampling
    seed: int
    messages: tuple[Message, ...] = ()
    prefix: str = ""
    prompt: str | tuple[int, ...] = ""
    choices: tuple[str, ...] = ()
    num_top: int | None = None
    prompt_top: int | None = None
    token_ids: tuple[int, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_end: bool = False
    add_special_tokens: bool = True


@dataclass(frozen=True)
class Written:
    """``prompt_tokens`` are set where they were asked for; the first of them has no value."""

    text: str
    finish: str
    prompt_ids: tuple[int, ...]
    tokens: tuple[Token, ...]
    prompt_tokens: tuple[Token | None, ...] = field(default=())


class Writer(Protocol):
    def write(self, ask: Ask) -> Written: ...


class ScriptedWriter:
    """Texts of the scripted engine; its option weights are the log-probabilities of numbers.

    A token is a word, a number, a run of spaces or one other character. Where an options rule
    fits, a number (or one of the rule's options) has the rule's weights as its alternatives.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = threading.Lock()

    def write(self, ask: Ask) -> Written:
        messages = ask.messages or (Message("user", str(ask.prompt)),)
        weights = self._weights(ask, messages)
        if ask.choices or (ask.prefix and weights):
            text = self._chosen(ask, weights)
            finish = "stop"
        else:
            reply = self._ask(ask, messages, ask.sampling)
            text, finish = reply.text or "", reply.finish_reason or "stop"
        tokens = [self._token(piece, weights, ask) for piece in _pieces(text)]
        if len(tokens) > ask.sampling.max_new_tokens:
            tokens, finish = tokens[: ask.sampling.max_new_tokens], "length"
            text = "".join(token.text for token in tokens)
        prompt = tuple(number(p) for m in messages for p in _pieces(m.content))
        return Written(text, finish, prompt, tuple(tokens))

    def _ask(self, ask: Ask, messages: tuple[Message, ...], want: Any) -> Response:
        request = Request(
            content_id("served", ask.member, messages, ask.seed, want),
            ask.member,
            messages,
            want,
            purpose="served",
            seed=ask.seed,
        )
        with self.lock:
            reply = self.engine.respond([request])[0]
        if reply.error is not None:
            raise ApiError(500 if reply.error.transient else 400, reply.error.message)
        return reply

    def _weights(self, ask: Ask, messages: tuple[Message, ...]) -> dict[str, float]:
        """Option -> probability by the script's first options rule that fits; {} without one."""
        script = getattr(self.engine, "_scripts", {}).get(ask.member.base)
        if script is None:
            from phalanx.engines.scripted import load_script

            script = load_script(ask.member.base)
        last = messages[-1].content
        for rule in script.get("options", []):
            if rule.get("member", ask.member.name) != ask.member.name or "weights" not in rule:
                continue
            if re.search(str(rule["when"]), last, re.DOTALL):
                total = sum(map(float, rule["weights"].values()))
                return {str(k): float(v) / total for k, v in rule["weights"].items() if v}
        return {}

    def _chosen(self, ask: Ask, weights: dict[str, float]) -> str:
        if not ask.choices:
            options = weights
        elif weights:
            options = {choice: _weight(choice, weights) for choice in ask.choices}
        else:
            options = dict.fromkeys(ask.choices, 1.0)
        if ask.sampling.temperature == 0:
            return max(options, key=lambda option: options[option])
        rng = derived_random("choice", ask.seed)
        return rng.choices(list(options), list(options.values()))[0]

    def _token(self, piece: str, weights: dict[str, float], ask: Ask) -> Token:
        shares = weights if piece in weights else {piece: 1.0}
        ranked = sorted(shares, key=lambda text: -shares[text])[: ask.num_top or 0]
        top = tuple((number(text), text, math.log(shares[text])) for text in ranked)
        return Token(number(piece), piece, math.log(shares[piece]), top)


def _weight(choice: str, weights: dict[str, float]) -> float:
    """The weight of the option that a choice is, or that it ends in (``{"score": 7``)."""
    found = [k for k in weights if re.search(rf"(?:^|\W){re.escape(k)}$", choice)]
    return weights[max(found, key=len)] if found else 0.0


def _pieces(text: str) -> list[str]:
    return re.findall(r"\d+|[^\W\d]+|\s+|[^\w\s]|_", text)


def number(piece: str) -> int:
    """A made-up token id, the same for equal texts."""
    return int(content_id(piece, length=7), 16)


class HFWriter:
    """Texts and exact log-probabilities of the hf engine's weights; one request at a time."""

    def __init__(self, engine: Any) -> None:
        self.weights = engine.weights
        self.lock = threading.Lock()

    def write(self, ask: Ask) -> Written:
        with self.lock:
            chat = self.weights.chat(ask.member)
            prompt = self._prompt(ask, chat)
            length = self.weights.context_length(ask.member)
            if len(prompt) + ask.sampling.max_new_tokens > length:
                raise ApiError(
                    400,
                    f"This model's maximum context length is {length} tokens, and the request has "
                    f"{len(prompt)} and wants {ask.sampling.max_new_tokens} more.",
                )
            with self.weights.serving(ask.member) as model:
                return self._write(ask, chat, model, prompt)

    def _prompt(self, ask: Ask, chat: Any) -> list[int]:
        if ask.messages:
            return chat.prompt_ids(ask.messages) + (
                chat.option_ids(ask.prefix, "") if ask.prefix else []
            )
        if isinstance(ask.prompt, str):
            encoded = chat.tokenizer(ask.prompt, add_special_tokens=ask.add_special_tokens)
            return list(encoded["input_ids"])
        return list(ask.prompt)

    def _write(self, ask: Ask, chat: Any, model: Any, prompt: list[int]) -> Written:
        ended = True
        if ask.choices:
            new = self._choose(ask, chat, model, prompt)
        else:
            new, ended = self._generate(ask, chat, model, prompt)
        tokens: tuple[Token, ...] = ()
        prompt_tokens: tuple[Token | None, ...] = ()
        logprobs = self._logprobs(model, prompt + new)
        if ask.num_top is not None:
            rows = range(len(prompt) - 1, len(prompt) + len(new) - 1)
            pairs = zip(new, rows, strict=True)
            tokens = tuple(
                self._token(chat, token, logprobs[row], ask.num_top, ask.token_ids)
                for token, row in pairs
            )
        else:
            tokens = tuple(Token(token, _piece(chat, token), 0.0) for token in new)
        if ask.prompt_top is not None:
            prompt_tokens = (
                None,
                *(
                    self._token(chat, token, logprobs[row], ask.prompt_top)
                    for row, token in enumerate(prompt[1:])
                ),
            )
        return Written(
            chat.decode(new), "stop" if ended else "length", tuple(prompt), tokens, prompt_tokens
        )

    def _generate(
        self, ask: Ask, chat: Any, model: Any, prompt: list[int]
    ) -> tuple[list[int], bool]:
        """New ids up to and with the end token, and whether there was one."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        from phalanx.engines.hf_sampling import Sampler

        stops = () if ask.ignore_end else (*chat.stop_ids, *ask.stop_token_ids)
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=ask.sampling.max_new_tokens,
            pad_token_id=chat.pad_id,
            eos_token_id=list(stops) or None,
        )
        ids = torch.tensor([prompt], device=model.device)
        sampler = Sampler([ask.sampling], [ask.seed], len(prompt), model.device)
        with torch.no_grad():
            written = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
            )
        new = written[0, len(prompt) :].tolist()
        end = next((at for at, token in enumerate(new) if token in stops), None)
        return (new, False) if end is None else (new[: end + 1], True)

    def _choose(self, ask: Ask, chat: Any, model: Any, prompt: list[int]) -> list[int]:
        """The tokens of one choice, drawn from a decoder that may write the choices alone."""
        open_ = {choice: chat.option_ids("", choice) for choice in ask.choices}
        rng = derived_random("choice", ask.seed)
        new: list[int] = []
        while True:
            following = {ids[len(new)] for ids in open_.values() if len(ids) > len(new)}
            if any(ids == new for ids in open_.values()):
                following.add(chat.end_id)
            if following == {chat.end_id}:
                return new
            ranked = sorted(following)
            values = self._logprobs(model, prompt + new)[-1][ranked].tolist()
            if ask.sampling.temperature == 0:
                token = max(zip(values, ranked, strict=True))[1]
            else:
                weights = [math.exp(v / ask.sampling.temperature) for v in values]
                token = rng.choices(ranked, weights)[0]
            if token == chat.end_id:
                return new
            new.append(token)
            open_ = {c: ids for c, ids in open_.items() if ids[: len(new)] == new}

    def _logprobs(self, model: Any, ids: Sequence[int]) -> Any:
        """Log-probabilities of the next token after each position, [positions, vocabulary]."""
        import torch

        with torch.no_grad():
            row = torch.tensor([list(ids)], device=model.device)
            return model(input_ids=row).logits[0].float().log_softmax(-1)

    def _token(
        self, chat: Any, token: int, row: Any, num_top: int, asked: Sequence[int] = ()
    ) -> Token:
        """Alternatives: the ``num_top`` likeliest, or the ids that were asked for."""
        ids = list(asked) or (row.topk(num_top).indices.tolist() if num_top else [])
        if asked:
            ids.sort(key=lambda one: -float(row[one]))
        top = tuple((one, _piece(chat, one), float(row[one])) for one in ids)
        return Token(token, _piece(chat, token), float(row[token]), top)


def _piece(chat: Any, token: int) -> str:
    return chat.tokenizer.decode([token], clean_up_tokenization_spaces=False)


def writer_of(engine: Engine) -> Writer:
    """The writer that suits the engine."""
    return HFWriter(engine) if hasattr(engine, "weights") else ScriptedWriter(engine)


def blank(written: Written) -> Written:
    """The same with nothing written."""
    return replace(written, text="", tokens=())
