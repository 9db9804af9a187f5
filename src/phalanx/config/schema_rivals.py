"""The sections of the rival methods; see :mod:`phalanx.config.schema` and ``docs/methods/``.

Published constants are the defaults where they are known; the method's page says which.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.config.base import AnswerSettings, OptimiserSettings, Section, Share

Match = Literal["exact", "number", "choice", "math"]
"""How final answers are read and compared where members vote on them."""


class RivalSampling(AnswerSettings):
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Draw from the likeliest tokens that together have this probability; 1 is off."""
    top_k: int = Field(0, ge=0)
    """0 is off (slow on a CPU: the whole vocabulary is sorted)."""


class WarmerSampling(RivalSampling):
    temperature: float = Field(0.8, ge=0)
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Draw from the likeliest tokens that together have this probability; 1 is off."""


class PlainSampling(RivalSampling):
    temperature: float = Field(1.0, ge=0)
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """1 is off."""
    max_new_tokens: int = Field(256, ge=1)
    """A response that reaches it is marked truncated."""


# Training, one model at a time ---------------------------------------------------------------


class SelfRewardingSettings(Section):
    instructions: int = Field(1000, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    samples: int = Field(4, ge=2)
    """Responses of each learner to each instruction (N)."""
    sample: RivalSampling = RivalSampling()
    """How they are written."""
    judgments: int = Field(3, ge=1)
    """Times that the learner judges each of its responses; the mean of those that can be read
    counts."""
    judge: RivalSampling = RivalSampling()
    """How judgments are written."""
    template: str | None = None
    """A file with your own rubric. It must hold {instruction} and {response}, and ask for a last
    line such as `Score: 3`, from 0 to 5."""
    judge_seed: str = ""
    """A JSONL, CSV or Parquet file of demonstrations of judging (columns instruction: what a judge
    is asked; response: what it says), learned in the first iteration by the settings of `sft`; that
    iteration makes no pairs. Empty: none."""


class MetaRewardingSettings(Section):
    instructions: int = Field(1000, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    samples: int = Field(7, ge=2)
    """Responses of each learner to each instruction (K)."""
    sample: WarmerSampling = WarmerSampling()
    """How they are written."""
    judgments: int = Field(11, ge=1)
    """Times that the learner judges each of its responses (N)."""
    judge: WarmerSampling = WarmerSampling()
    """How judgments, and the meta-judge's verdicts on them, are written."""
    length_control: list[float] = [0.0, 0.32, 0.32, 0.4]
    """The published rho of each iteration, from 0 to 1; the last one goes on. The larger, the more
    length counts against a response; with 0 it decides ties alone."""
    judge_iterations: int = Field(2, ge=0)
    """The first so many iterations learn judging, too (later the meta-judge follows the score)."""


class SpinSettings(Section):
    instructions: int = Field(1000, ge=1)
    """Fresh instructions, with an answer each, in an iteration."""
    sample: PlainSampling = PlainSampling()
    """How a learner writes the response that it is to give up."""
    history: bool = True
    """Learn from the pairs of the iteration before, too (from the second on)."""


class SppoSettings(Section):
    instructions: int = Field(1000, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    samples: int = Field(5, ge=2)
    """Responses of each learner to each instruction (K)."""
    sample: RivalSampling = RivalSampling()
    """How they are written."""
    judge: str = ""
    """Who prefers: a ranker of pairs, a reward model, or a member by `judge.protocol`. Empty: the
    mean over all members with the role judge, save the learner."""


class PreferenceFileSettings(Section):
    source: str = ""
    """A JSONL, CSV or Parquet file of pairs with TRL's columns (prompt, chosen, rejected; texts or
    conversations), or `hub:org/name`."""
    split: str = "train"
    """Split of a hub data set."""
    pairs: int = Field(1000, ge=1)
    """Fresh pairs in an iteration; all of them where there are fewer."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What to do when a row cannot be used: refuse to start (all are listed), or skip and count."""


class RejectionSamplingSettings(Section):
    instructions: int = Field(1000, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    samples: int = Field(8, ge=1)
    """Responses of each learner to each instruction."""
    sample: WarmerSampling = WarmerSampling()
    """How they are written."""
    judge: str = ""
    """Who chooses the best one: a reward model, or a member by `judge.protocol`. Empty: all
    members with the role judge, save the learner, each with one voice."""
    truncated: Literal["drop", "allow"] = "drop"
    """Responses that hit the token limit: not learned, or like any other (no end token is ever
    trained after one)."""


# Training, several models --------------------------------------------------------------------


class MultiagentSettings(Section):
    instructions: int = Field(500, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    critics: list[str] = []
    """Learners that learn to revise; the other learners learn to answer first. Empty: every second
    learner of the pool."""
    match: Match = "exact"
    """How the answers that agents vote on are compared."""
    corrected: Share = 0.5
    """A critic learns from corrected answers and from those that were right throughout; this is
    the share of the former."""
    truncated: Literal["drop", "allow"] = "drop"
    """Truncated answers neither vote nor are learned; `allow`: they do, like others."""


class ConsensusSettings(Section):
    instructions: int = Field(700, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    samples: int = Field(8, ge=2)
    """Responses of each learner to each instruction: its group."""
    sample: PlainSampling = PlainSampling()
    """How they are written."""
    match: Match = "number"
    """How final answers are read and compared."""
    weights: Literal["consistency", "count"] = "consistency"
    """What a member's voices count: each as much as the share of its samples that agree (the
    paper), or one each."""
    truncated: Literal["drop", "allow"] = "drop"
    """Truncated responses have no vote, earn 0 and are not learned themselves; `allow`: they do,
    like others."""


class SingleMultiSettings(Section):
    instructions: int = Field(500, ge=1)
    """Fresh instructions in an iteration; all of them, each once, where there are fewer."""
    collective: Literal["mixture", "debate", "council", "best_of_n"] = "debate"
    """Whose answer every learner learns; by the section of that name."""
    match: Match | Literal["none"] = "none"
    """How final answers are compared where a debate votes. `none`: instructions ask for free texts,
    of which the council of the debaters chooses one."""
    truncated: Literal["drop", "allow"] = "drop"
    """Truncated answers are not learned, or are, without an end token."""


# Answering together --------------------------------------------------------------------------


class SelfConsistencySettings(Section):
    member: str = ""
    """Who answers; empty: the best member on the dev items before the run."""
    samples: int = Field(10, ge=1)
    """Answers, of which the most frequent one counts (k)."""
    sample: RivalSampling = RivalSampling()
    """How they are written; never longer than `evaluate.max_new_tokens`."""


class DebateSettings(Section):
    debaters: list[str] = []
    """Who debates; default: every contestant. One that is named several times has as many seats,
    which needs a temperature."""
    rounds: int = Field(2, ge=1)
    """Rounds, the first answers included."""
    summariser: str = ""
    """Writes the last answer from those of the last round. Empty: the most frequent answer counts,
    and of free texts, which have none, the council of the debaters votes for one."""
    sample: RivalSampling = RivalSampling()
    """How debaters write; without a summariser never longer than `evaluate.max_new_tokens`."""


class CouncilSettings(Section):
    members: list[str] = []
    """Who answers; default: every contestant."""
    voters: list[str] = []
    """Who votes for the best answer, never for one of their own; default: every judge."""
    sample: RivalSampling = RivalSampling(temperature=0.0)
    """How answers are written; never longer than `evaluate.max_new_tokens`."""
    votes: RivalSampling = RivalSampling(temperature=0.0)
    """How votes are written: perhaps some reasons, then a number."""


class BestOfSettings(Section):
    member: str = ""
    """Who answers; empty: the best member on the dev items before the run."""
    samples: int = Field(8, ge=1)
    """Answers, of which the judge chooses one (n)."""
    sample: WarmerSampling = WarmerSampling()
    """How they are written; never longer than `evaluate.max_new_tokens`."""
    judge: str = ""
    """Who chooses: a reward model, or a member by `judge.protocol`. Empty: all members with the
    role judge, save the one that answers, each with one voice (a council). Whoever may be the one
    that answers leaves somebody who chooses."""


# Policy gradients ----------------------------------------------------------------------------


class GrpoSettings(OptimiserSettings):
    clip: float = Field(0.2, gt=0)
    """Ratios of probabilities, to the member at the start of the iteration, are clipped at 1 plus
    and minus this. With one optimiser step they are 1."""
    kl: float = Field(0.0, ge=0)
    """Weight of the distance to the member at the start of the iteration."""
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo"] = "dapo"
    """How tokens are averaged (TRL's `loss_type`): over a response, then over responses (`grpo`),
    over all tokens of a step (`dapo`) or of a batch (`bnpo`), or by the constant batch_size times
    max_length (`dr_grpo`)."""
