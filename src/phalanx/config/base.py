"""What the sections of the configuration have in common, and settings that several of them use."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from phalanx.types import Sampling


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
# Far beyond any use; keeps sums and powers of reputations finite.
Points = Annotated[float, Field(gt=0, le=1e9)]


class LoraSettings(Section):
    rank: int = Field(16, ge=1)
    """Rank of a new adapter; an existing adapter keeps its own."""
    alpha: Positive = 32
    """LoRA alpha of a new adapter."""
    dropout: Share = 0.0
    """Dropout inside a new adapter while it trains."""
    targets: list[str] | Literal["all-linear", "attention"] = "all-linear"
    """Which layers get an adapter: all linear ones, the attention projections, or module names."""


class OptimiserSettings(Section):
    learning_rate: Positive = 1e-6
    """Largest learning rate, reached after the warm-up."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup: Share = 0.1
    """Share of the optimiser steps spent warming up; never so long that nothing trains."""
    optimizer: Literal["adamw", "rmsprop"] = "adamw"
    """AdamW, or RMSprop (SPIN and SPPO), which keeps one moment of the gradient."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: decoupled from the gradient with AdamW, added to it with RMSprop."""
    epochs: int = Field(1, ge=1)
    """Passes over the examples."""
    batch_size: int = Field(8, ge=1)
    """Examples in one forward pass."""
    accumulate: int = Field(1, ge=1)
    """Batches that make one optimiser step."""
    max_length: int = Field(2048, ge=8)
    """Tokens of prompt plus response. Longer examples are dropped and counted, never cut."""
    max_prompt_length: int | None = Field(None, ge=4)
    """Tokens of the prompt alone; longer ones are dropped and counted."""
    max_grad_norm: Positive = 1.0
    """Gradients are scaled down to this norm."""
    weights: Literal["lora", "full"] = "lora"
    """`lora` trains an adapter on frozen weights; `full` trains all weights, and the trained member
    has a base of its own."""
    lora: LoraSettings = LoraSettings()

    @property
    def is_full(self) -> bool:
        """Whether all weights train, so that the trained member becomes a base of its own."""
        return self.weights == "full"


class AnswerSettings(Section):
    temperature: float = Field(0.7, ge=0)
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Draw from the likeliest tokens that together have this probability; 1 is off."""
    top_k: int = Field(50, ge=0)
    """0 is off (slow on a CPU: the whole vocabulary is sorted)."""
    max_new_tokens: int = Field(512, ge=1)
    """A response that reaches it is marked truncated."""


class Writes(Protocol):
    """Settings that say how a text is written, answers and verdicts alike."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_p(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def max_new_tokens(self) -> int: ...


def sampling(settings: Writes) -> Sampling:
    """How a text is written with these settings."""
    return Sampling(settings.temperature, settings.top_p, settings.top_k, settings.max_new_tokens)


class AggregateSettings(Section):
    rule: Literal["mean", "reputation", "median", "one_coin"] = "reputation"
    """How judgments become an outcome: plain mean, weighted by the judges' reputation at the
    start of the iteration (the paper), median of differences, or reliability by one-coin EM."""
    standardise: bool = False
    """Divide each judge's score differences by their spread over the iteration first."""
    anchors: Literal["none", "labels"] = "none"
    """`labels`: duels of earlier iterations that people judged (`phalanx label`) are known truth
    where the reliability of judges is estimated. Only the rule `one_coin` weighs by it."""
