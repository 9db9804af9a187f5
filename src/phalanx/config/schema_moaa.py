"""The sections of mixtures and of the method moaa; see :mod:`phalanx.config.schema`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.config.base import AnswerSettings, OptimiserSettings, Positive, Section, Share


class ProposalSettings(AnswerSettings):
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Draw from the likeliest tokens that together have this probability; 1 is off."""
    top_k: int = Field(0, ge=0)
    """0 is off (slow on a CPU: the whole vocabulary is sorted)."""
    max_new_tokens: int = Field(2048, ge=1)
    """A response that reaches it is marked truncated."""


class EvaluationSettings(ProposalSettings):
    max_new_tokens: int = Field(512, ge=1)
    """An evaluation that reaches it is marked truncated."""


class StudentSampling(ProposalSettings):
    temperature: float = Field(0.8, ge=0)
    """0 is greedy, and all responses to an instruction would be the same."""


class MixtureSettings(Section):
    proposers: list[str] = []
    """Members that propose in every layer; default: every contestant that is no student."""
    layers: int = Field(2, ge=1)
    """Layers, the aggregator's own included: 2 is one round of proposals and the aggregator, 1 is
    the aggregator alone."""
    per_layer: list[list[str]] = []
    """The proposers of each layer before the aggregator, where they differ; wins over `proposers`
    and `layers`."""
    aggregator: str = ""
    """The member that writes the last answer."""
    samples: int = Field(1, ge=1)
    """Proposals of each proposer in each layer. One proposer with several samples is Self-MoA."""
    min_proposals: int = Field(1, ge=1)
    """Fewer proposals than this in a layer, and the instruction has no answer (and says so)."""
    propose: ProposalSettings = ProposalSettings()
    """How proposers write."""
    aggregate: ProposalSettings = ProposalSettings()
    """How the aggregator writes."""
    template: str | None = None
    """A file with your own instruction to aggregators; it must hold {proposals}."""


class RewardSettings(Section):
    proposers: list[str] = []
    """Members that write an evaluation of the two responses; default: the mixture's proposers."""
    aggregator: str = ""
    """Reads the evaluations and gives the verdict; default: the mixture's aggregator."""
    selector: str = ""
    """Chooses the criteria of an instruction; default: the aggregator."""
    criteria: str = "builtin"
    """`builtin`, or a file of your own list: YAML, name: one line that explains it."""
    num_criteria: int = Field(3, ge=0)
    """Criteria chosen for each instruction; 0 shows the whole list (the ablation)."""
    evaluate: EvaluationSettings = EvaluationSettings()
    """How evaluations are written."""
    verdict: Literal["written", "options"] = "written"
    """`written`: the aggregator writes its verdict. `options`: the probabilities of A and B, and of
    the criteria's numbers, are read in one forward pass; for small models."""
    verdict_tokens: int = Field(256, ge=1)
    """Longest written verdict, and longest written choice of criteria."""
    tie_below: Share = 0.0
    """With `verdict: options`: both orders together must prefer a response by this much
    probability, or it is a tie."""
    both_orders: bool = True
    """Judge each pair in both orders; verdicts that contradict each other are a tie."""
    contradiction: Literal["tie", "mean"] = "tie"
    """With `verdict: options`, where the orders prefer different responses: `tie`, or `mean`: their
    mean decides all the same. Small models like a place so much that `tie` leaves no pair."""
    samples: int = Field(5, ge=2)
    """Responses of the student to each instruction."""
    sample: StudentSampling = StudentSampling()
    """How the student writes them."""
    ranking: Literal["round_robin", "knockout"] = "round_robin"
    """`round_robin`: every pair of responses is judged. `knockout`: far fewer; see
    docs/methods/moaa.md."""


class StudentSettings(Section):
    name: str
    """A member with the role learn."""
    data: str = "mixture"
    """Whose answers it learns in the stage `sft`: `mixture`, `combined` (all teachers' answers),
    `random` (one teacher's at random), `best_of` (the one that the ranker prefers), `teacher:NAME`,
    or `none`."""
    reward: str = "moa"
    """What labels its responses in the stage `dpo`: `moa`, a member's name (a judge by
    `judge.protocol`, or a reward model), or `none`."""


class MoaaSettings(Section):
    stages: list[Literal["sft", "dpo"]] = ["sft", "dpo"]
    """What one generation does, one stage an iteration, each at most once. `iterations` counts
    stages: 4 of them are two generations."""
    students: list[StudentSettings] = []
    """Who learns, and from what; default: every learner that is not in the mixture."""
    sft_instructions: int = Field(1000, ge=1)
    """Fresh instructions in a stage `sft`; all of them, each once, where there are fewer."""
    dpo_instructions: int = Field(1000, ge=1)
    """Fresh instructions in a stage `dpo`; all of them, each once, where there are fewer."""
    self_improve: Literal["join", "replace", "off"] = "join"
    """From the second generation on: `join`: students propose, too, and members of the mixture that
    have learned take the place of their old selves; `replace`: the latter alone; `off`: the mixture
    stays as it was."""
    multi_turn: Literal["faithful", "rewrite", "cut"] = "rewrite"
    """A later user turn was written for another answer. `faithful`: it is asked all the same (the
    paper). `rewrite`: where it does not fit, a member rewrites it to fit. `cut`: the conversation
    ends there."""
    rewriter: str = ""
    """Says whether a user turn fits, and rewrites it; default: the aggregator."""
    ranker: str = ""
    """Who ranks the teachers' answers for `best_of`: a member, or `moa`; default: the aggregator
    by `judge.protocol`, one of whose own answers is among them."""
    truncated: Literal["drop", "allow"] = "drop"
    """Answers that hit the token limit: not learned and counted, or learned without an end."""


class SftSettings(OptimiserSettings):
    learning_rate: Positive = 8e-6
    """Largest learning rate, reached after the warm-up."""


class SearchSettings(Section):
    strategy: Literal["halving", "bayes"] = "halving"
    """`halving`: many designs on few items, the better ones on more. `bayes`: optuna's TPE."""
    trials: int = Field(27, ge=1)
    """Designs that are tried (in the first round of halving)."""
    calls: int | None = Field(None, ge=1)
    """Stop before more requests than this were sent."""
    metric: Literal["accuracy", "reward", "judge"] = "accuracy"
    """What an answer is worth on the dev rows of `evaluate.tasks`: right or wrong; a reward model's
    score; or a judge's, by `judge.protocol`."""
    judge: str = ""
    """The member that scores, with `metric: reward` or `judge`."""
    max_proposers: int = Field(4, ge=1)
    """Most proposers in a layer."""
    max_layers: int = Field(3, ge=1)
    """Most layers, the aggregator's included."""
    max_samples: int = Field(1, ge=1)
    """Most samples of a proposer."""
    items: int = Field(64, ge=1)
    """Dev items of a full trial."""
