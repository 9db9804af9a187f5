"""Reward models from files: what each of them reads, and how its score comes out.

Four ways to read, told from the tokenizer. ``chat``: the whole conversation by the model's own
chat template (Skywork-Reward, ArmoRM and most others). ``pair``: a tokenizer without a template
but with separators gets conversation and response as a pair of texts (cross-encoders such as
OpenAssistant's). ``plain``: neither; :data:`phalanx.chat.PLAIN_TEMPLATE`. ``ranker``: a pair
ranker in the layout of PairRM (LLM-Blender, arXiv 2306.02561), which reads two responses at once.

A score is what the model gives: the one number of its head, or its own ``score`` where its remote
code has one (ArmoRM, arXiv 2406.12845). Nothing is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from phalanx.chat import ChatFormat
from phalanx.engines.hf_batches import padded
from phalanx.errors import EngineError
from phalanx.types import Member, Message
from phalanx.weights import resolve_model
from phalanx.weights.builtin import without_bars
from phalanx.weights.store import context_of, dtype_of, read_files

if TYPE_CHECKING:
    import torch

Kind = Literal["chat", "pair", "plain", "ranker"]
MARKS = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
"""What stands before the instruction and the two responses in a ranker's text."""
RANKER_TOKENS = 1224 + 2 * 412
"""Tokens that a ranker reads at most: PairRM was trained on 1224 of the instruction and 412 of
each response, and lets responses have what the instruction leaves of the sum."""
_HEAD = "head_layer."
_BODY = "pretrained_model."
Scorer = Callable[[Sequence[Sequence[int]]], list[float]]
"""From rows of token ids to their scores."""


@dataclass(frozen=True)
class RewardText:
    """How one reward model reads, without its weights. ``limit`` is in tokens."""

    source: Path | str
    config: Any
    tokenizer: Any
    chat: ChatFormat
    kind: Kind
    limit: int

    @property
    def ranks(self) -> bool:
        return self.kind == "ranker"

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of one row; the last message is the response, for a ranker the last two are.

        Texts are neutralised: none of them can make a mark, a turn or a separator.
        """
        if self.kind == "ranker":
            texts = [_as_text(messages[:-2]), messages[-2].content, messages[-1].content]
            parts = [
                self._ids(mark + self.chat.neutralise(text))
                for mark, text in zip(MARKS, texts, strict=True)
            ]
            return [token for part in parts for token in part]
        if self.kind == "pair":
            texts = [_as_text(messages[:-1]), messages[-1].content]
            return self._ids(*map(self.chat.neutralise, texts))
        return self.chat.conversation_ids(messages)

    def _ids(self, *texts: str) -> list[int]:
        return list(self.tokenizer(*texts, verbose=False)["input_ids"])


def _as_text(turns: Sequence[Message]) -> str:
    """A conversation for a model that knows no turns: a single user turn is its text alone."""
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].content
    return "\n".join(f"{turn.role.capitalize()}: {turn.content}" for turn in turns)


def load_text(member: Member) -> RewardText:
    """Tokenizer and configuration. Raises EngineError where they are none of a reward model."""
    if member.adapter is not None:
        raise EngineError(f"{member.name}: a reward model takes no adapter; merge it into a folder")
    source = resolve_model(member.base)
    config, tokenizer = read_files(member, source)
    if tokenizer.eos_token is None and tokenizer.sep_token is not None:
        tokenizer.eos_token = tokenizer.sep_token  # encoders end a text with their separator
    size = getattr(config.get_text_config(), "vocab_size", None)
    chat = ChatFormat(tokenizer, member.base, (), size)
    kind = _kind(tokenizer)
    limit = context_of(config, tokenizer)
    if kind == "ranker":
        absolute = getattr(config, "position_biased_input", True)
        limit = min(RANKER_TOKENS, limit) if absolute else RANKER_TOKENS
    return RewardText(source, config, tokenizer, chat, kind, limit)


def _kind(tokenizer: Any) -> Kind:
    if set(MARKS) <= set(tokenizer.get_added_vocab()):
        return "ranker"
    if tokenizer.chat_template:
        return "chat"
    separates = tokenizer.sep_token is not None and tokenizer.cls_token is not None
    return "pair" if separates else "plain"


def load_scorer(member: Member, text: RewardText, device: torch.device) -> Scorer:
    """The model on its device. Raises EngineError where weights are missing or not its own."""
    dtype = dtype_of(member.dtype, device)
    if text.ranks:
        model = _ranker(member, text, dtype)
        return _pair_scorer(model.to(device).eval().requires_grad_(False), text, device)
    model = _head(member, text, dtype)
    return _scalar_scorer(member, model.to(device).eval().requires_grad_(False), text, device)


# One number for one response ----------------------------------------------------------------------


def _head(member: Member, text: RewardText, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForSequenceClassification

    try:
        with without_bars():
            model, info = AutoModelForSequenceClassification.from_pretrained(
                text.source,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=member.trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{member.name}: the weights of '{member.base}' could not be loaded: {error}"
        ) from error
    if missing := sorted(info["missing_keys"]):
        # They would be random, and so would every reward.
        lacks = ", ".join(missing[:4])
        raise EngineError(
            f"{member.name}: '{member.base}' is no reward model: it lacks {lacks}; name a "
            "model with a sequence-classification head of one output"
        )
    return model


def _scalar_scorer(member: Member, model: Any, text: RewardText, device: torch.device) -> Scorer:
    """Rows side by side; one by one where the model cannot tell padding from the end of a text.

    Causal heads look for the last token that is not ``config.pad_token_id``. Where the model names
    one, its own rule stands; where it names none, a token that no text can hold is named.
    """
    import torch

    inner = model.config.get_text_config()
    pad, spare = getattr(inner, "pad_token_id", None), text.chat.pad_id
    alone = False
    if pad is None or not 0 <= pad < getattr(inner, "vocab_size", math.inf):
        alone = text.kind != "pair" and spare in text.chat.stop_ids
        inner.pad_token_id = pad = None if alone else spare
    types = text.kind == "pair" and getattr(inner, "type_vocab_size", 0) > 1

    def score(rows: Sequence[Sequence[int]]) -> list[float]:
        ids, mask = padded(rows, spare if pad is None else pad, device, side="right")
        extra = {}
        if types:
            extra["token_type_ids"] = _segments(ids, mask, text.tokenizer.sep_token_id)
        with torch.no_grad():
            found = model(input_ids=ids, attention_mask=mask, **extra)
        own = getattr(found, "score", None)
        values = (found.logits if own is None else own).float().reshape(len(rows), -1)
        if values.shape[1] != 1:
            raise EngineError(
                f"{member.name}: '{member.base}' gives {values.shape[1]} numbers for a response, "
                "and a reward is one; name a model with one output, or with a `score` of its own"
            )
        return values[:, 0].tolist()

    if alone:
        return lambda rows: [value for row in rows for value in score([row])]
    return score


def _segments(ids: torch.Tensor, mask: torch.Tensor, separator: int) -> torch.Tensor:
    """0 up to the first separator, 1 after it: the segments of a pair of texts."""
    ends = (ids == separator).long() * mask
    return (ends.cumsum(-1) - ends).clamp(max=1) * mask


# One number for two responses ---------------------------------------------------------------------


def _ranker(member: Member, text: RewardText, dtype: torch.dtype) -> Any:
    """The published layout: an encoder and a head over the encodings at the marks.

    The head reads the encoding at the source's mark and the one at a response's mark, [2h], through
    a hidden layer of h with tanh; it has one output for each task that it was trained on.
    """
    import torch
    from transformers import AutoModel

    state = _read_weights(member, text)
    try:
        num_tasks, hidden = state[_HEAD + "4.weight"].shape
        double = state[_HEAD + "1.weight"].shape[1]
    except KeyError as error:
        raise EngineError(
            f"{member.name}: '{member.base}' has a ranker's tokens but no weights {error}; "
            "expected PairRM's layout"
        ) from None
    body = AutoModel.from_config(text.config, dtype=dtype)
    head = torch.nn.Sequential(
        torch.nn.Dropout(0.0),
        torch.nn.Linear(double, hidden),
        torch.nn.Tanh(),
        torch.nn.Dropout(0.0),
        torch.nn.Linear(hidden, num_tasks),
    ).to(dtype)
    model = torch.nn.ModuleDict({_BODY[:-1]: body, _HEAD[:-1]: head})
    try:
        found = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # a shape does not fit
        raise EngineError(f"{member.name}: '{member.base}': {error}") from error
    # Older files hold the positions 0, 1, 2, ... as if they were weights.
    odd = [name for name in found.unexpected_keys if not name.endswith("position_ids")]
    if odd or found.missing_keys:
        raise EngineError(
            f"{member.name}: '{member.base}' is not in PairRM's layout: missing "
            f"{found.missing_keys[:4]}, unexpected {odd[:4]}"
        )
    return model


def _read_weights(member: Member, text: RewardText) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    folder = Path(text.source)
    if not isinstance(text.source, Path):
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(text.source, allow_patterns=["*.safetensors"]))
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{member.name}: the weights of '{member.base}' could not be fetched: {error}"
            ) from error
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(
            f"{member.name}: '{member.base}' has no *.safetensors; other formats are not loaded"
        )
    return {name: value for file in files for name, value in load_file(file).items()}


def _pair_scorer(model: Any, text: RewardText, device: torch.device) -> Scorer:
    """Mean over the head's tasks of the left response's score minus the right one's."""
    import torch

    marks = text.tokenizer.convert_tokens_to_ids(list(MARKS))
    body, head = model[_BODY[:-1]], model[_HEAD[:-1]]

    def score(rows: Sequence[Sequence[int]]) -> list[float]:
        ids, mask = padded(rows, text.chat.pad_id, device, side="right")
        at = torch.tensor([[list(row).index(mark) for mark in marks] for row in rows])
        with torch.no_grad():
            states = body(input_ids=ids, attention_mask=mask).last_hidden_state
            source, left, right = (states[range(len(rows)), at[:, n].to(device)] for n in range(3))
            scores = head(torch.cat([source, left], -1)) - head(torch.cat([source, right], -1))
        return scores.float().mean(-1).tolist()

    return score
