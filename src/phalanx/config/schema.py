"""The configuration: one typed tree. The string under a field is its documentation.

``docs/configuration.md`` is generated from this file. Unknown keys are refused, numbers are
numbers (``1e-6`` too, ``true`` is not one), and rules that span fields live in
:mod:`phalanx.config.rules`, so that one message can list every fault.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from phalanx.config.base import (
    AggregateSettings,
    AnswerSettings,
    LoraSettings,
    OptimiserSettings,
    Points,
    Positive,
    Section,
    Share,
)
from phalanx.config.schema_evaluate import EvaluateSettings, TaskKind, TaskSettings
from phalanx.config.schema_moaa import (
    MixtureSettings,
    MoaaSettings,
    ProposalSettings,
    RewardSettings,
    SearchSettings,
    SftSettings,
    StudentSettings,
)
from phalanx.config.schema_rivals import (
    BestOfSettings,
    ConsensusSettings,
    CouncilSettings,
    DebateSettings,
    GrpoSettings,
    MetaRewardingSettings,
    MultiagentSettings,
    PreferenceFileSettings,
    RejectionSamplingSettings,
    SelfConsistencySettings,
    SelfRewardingSettings,
    SingleMultiSettings,
    SpinSettings,
    SppoSettings,
)
from phalanx.config.schema_sharing import ShareSettings
from phalanx.config.schema_watching import GuardSettings, TrackSettings

__all__ = [
    "AggregateSettings", "AnswerSettings", "Config", "EvaluateSettings", "LoraSettings",
    "MixtureSettings", "MoaaSettings", "OptimiserSettings", "ProposalSettings", "RewardSettings",
    "SearchSettings", "Section", "SftSettings", "StudentSettings", "TaskKind", "TaskSettings",
]  # fmt: skip


class MemberSettings(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Short unique name; letters, digits, dot, dash and underscore. `mixture`, `moa`, `majority`,
    `best_of` and `none` are taken."""
    model: str | None = None
    """Base weights: `builtin:smollm2-135m`, a folder, a `.gguf` file, or a hub id.
    Default: `pool.base`. A scripted member has `script:FILE.yaml` here, or nothing."""
    adapter: str | None = None
    """LoRA adapter on top: a PEFT folder, or `hub:org/name`."""
    system: str = ""
    """System prompt, used the same way for answering and for training."""
    engine: Literal["hf", "openai", "reward", "scripted"] = "hf"
    """What runs the member: weights in this process, an endpoint, a reward model (a sequence
    classification head, in this process; roles: [judge]), or a script (for tests)."""
    endpoint: str | None = None
    """With `engine: openai`: the name of one of `endpoints`; may be left out where there is one.
    `model` is then the name that the server knows."""
    serve: Literal["here", "vllm"] = "here"
    """`vllm`: a vLLM server answers for this member, and its weights are trained here."""
    roles: list[Literal["contest", "judge", "learn"]] = ["contest", "judge", "learn"]
    """A pure judge has `[judge]`; a frozen member `[contest, judge]`."""
    family: str = ""
    """A label of your own, such as the base's maker; kept with the member in the ledger."""
    reputation: float | None = Field(None, gt=0, le=1e9)
    """Reputation at the start; default: the reputation rule's own."""
    gpus: int = Field(0, ge=0)
    """GPUs that the member needs. It is only checked, against `resources.gpus`: more than there are
    is refused, and with `keep_all_loaded` so is a sum that is more. It reserves nothing: the
    member is on the run's device."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision of the weights; auto is bfloat16 where the device computes it well."""
    trust_remote_code: bool = False
    """Run Python code that comes with this model. Off unless you know the code."""


class RecruitTraining(OptimiserSettings):
    learning_rate: Positive = 5e-4
    """Largest learning rate, reached after the warm-up."""
    schedule: Literal["cosine", "linear", "constant"] = "linear"
    """How the learning rate falls after the warm-up."""
    epochs: int = Field(2, ge=1)
    """Passes over the demonstrations."""
    batch_size: int = Field(16, ge=1)
    """Demonstrations in one forward pass."""


class RecruitSettings(Section):
    data: str = "builtin:skills"
    """Demonstrations with a domain each: `builtin:skills`, or a JSONL/CSV/Parquet file with
    the columns instruction, response and domain."""
    specialists: dict[str, list[str]]
    """Member name -> the domains it learns. Let them overlap: a duel needs judges who know."""
    examples_per_domain: int = Field(200, ge=1)
    """Demonstrations a specialist sees of each of its domains; each specialist draws its own."""
    system: str = ""
    """System prompt of every recruit, in its training and ever after."""
    train: RecruitTraining = RecruitTraining()


class PoolSettings(Section):
    base: str | None = None
    """Base weights of every member that names none."""
    members: list[MemberSettings] = []
    """The members. Those that share a base share its weights in memory."""
    recruit: RecruitSettings | None = None
    """Make (further) members from the base by supervised fine-tuning before the first iteration."""


class InstructionSettings(Section):
    source: str = ""
    """A JSONL, CSV or Parquet file, `hub:org/name`, or `builtin:skills`."""
    domains: list[str] = []
    """Only instructions of these domains; default: all."""
    column: str = "instruction"
    """Column or field that holds the instruction: a text, or a conversation as a list of `role` and
    `content` (or ShareGPT's `from` and `value`)."""
    split: str = "train"
    """Split of a hub data set."""
    limit: int | None = Field(None, ge=1)
    """Use at most this many (the first ones, after cleaning)."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What to do when a row cannot be used: refuse to start (all are listed), or skip and count."""
    duplicates: Literal["keep", "drop"] = "drop"
    """Instructions with the same text (a conversation: all its turns) under another id."""
    contamination: Literal["drop", "report", "off"] = "drop"
    """Instructions, and demonstrations of a file for recruits, that overlap items of
    `evaluate.tasks`, exactly or nearly: leave them out and say so, only say so, or do not look."""


class MatchSettings(Section):
    duels: int = Field(1000, ge=1)
    """Duels, each on one fresh instruction, in an iteration."""
    random_probability: Share = 0.2
    """Chance that an opponent is drawn from everybody (the papers' alpha)."""
    nearest: int = Field(3, ge=1)
    """Otherwise it is drawn from this many nearest in reputation (k); ties are broken at random."""
    active: Literal["shuffled", "in_order"] = "shuffled"
    """How the active member goes round the pool."""


class JudgeSettings(Section):
    protocol: Literal["rubric", "expected", "pairwise", "likelihood", "reward", "moa"] = "rubric"
    """`rubric`: JSON score written out, each response alone (the paper). `expected`: the mean of
    the score's probabilities, one forward pass. `pairwise`: both orders, a win needs both.
    `likelihood`: mean log-probability of the response; for models too small to follow a prompt.
    `reward`: the score of judges with `engine: reward`. `moa`: the mixture of `reward` judges as
    one (`phalanx judge` and method moaa)."""
    temperature: float = Field(0.7, ge=0)
    """For verdicts that are written out; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """The same as answer.top_p."""
    top_k: int = Field(50, ge=0)
    """The same as answer.top_k."""
    max_new_tokens: int = Field(256, ge=1)
    """Longest verdict; one that is cut off before a score is unreadable. It also bounds what a
    judge behind an endpoint writes, reasoning included, for the probabilities of `expected`."""
    low: int = 1
    """Lowest score."""
    high: int = 10
    """Highest score."""
    template: str | None = None
    """A file with your own prompt; it must hold the protocol's placeholders."""
    per_duel: int | None = Field(None, ge=1)
    """Ask only this many judges of each duel, drawn at random; default: all who may."""
    quorum: Share = 0.5
    """Share of the judgments asked for that must be readable, or there is no verdict."""
    max_unreadable: Share = 0.5
    """Stop the run when a larger share of an iteration's judgments cannot be read."""


class SpartaReputation(Section):
    rule: Literal["sparta"] = "sparta"
    initial: Points = 100
    """Reputation at the start, unless a member has its own."""
    deviation: Positive = 0.5
    """Deviation at the start."""
    k_start: Points = 10
    """K at the start of the run."""
    k_min: Points = 5
    """K never falls below this."""
    k_decay: Share = 0.9
    """How fast K falls."""
    k_steps: Positive = 10
    """K = max(k_min, k_start * k_decay ** (duels so far / k_steps)), carried over iterations."""
    scale: Positive = 20
    """Divides every change (lambda)."""
    epsilon: float = Field(0.01, ge=0)
    """Smallest gap factor."""
    floor: float = Field(10, ge=0)
    """Reputations never fall below this."""
    window: int = Field(10, ge=2)
    """Recent actual changes whose spread is the deviation."""
    min_deviation: Positive = 0.1
    """The deviation never falls below this."""
    restart_each_iteration: bool = False
    """Start K and the window anew each iteration, as the released code does."""
    fade: Literal["none", "static", "dynamic"] = "none"
    """The released code's fade-out: from the third iteration on, one more of the lowest-ranked
    members has its scores multiplied by 0, 0.1, 0.2 ... in the reputation update."""


class EloReputation(Section):
    rule: Literal["elo"] = "elo"
    initial: Points = 100
    """Reputation at the start, unless a member has its own."""
    k: Points = 4
    """Largest change in one duel."""
    spread: Points = 40
    """A lead of this much means odds of ten to one."""
    floor: float = Field(1, ge=0)
    """Reputations never fall below this."""


class BradleyTerryReputation(Section):
    rule: Literal["bradley_terry"] = "bradley_terry"
    initial: Points = 100
    """Reputation at the start, and the mean of every fit."""
    spread: Points = 20
    """Reputation points for one unit of the fitted log-strength."""
    regularise: Positive = 0.1
    """Pulls members with few duels towards the middle (choix's alpha)."""
    floor: float = Field(1, ge=0)
    """Reputations never fall below this."""


class FrozenReputation(Section):
    rule: Literal["frozen"] = "frozen"
    initial: Points = 100
    """Reputation throughout, unless a member has its own."""


ReputationSettings = Annotated[
    SpartaReputation | EloReputation | BradleyTerryReputation | FrozenReputation,
    Field(discriminator="rule"),
]


class PairSettings(Section):
    margin: float = Field(0.0, ge=0)
    """Smallest difference of the aggregated scores that makes a pair; exact ties never do."""
    keep: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep this share of an iteration's pairs, those with the largest margin."""
    truncated: Literal["rejected_only", "drop", "allow"] = "rejected_only"
    """A response that hit the token limit: may be rejected but never chosen, drops the pair, or
    is used like any other (no end token is ever trained after it)."""
    max_length_ratio: float | None = Field(None, gt=0)
    """Drop a pair whose chosen response is longer than this many times the rejected one."""
    weight_by_margin: bool = False
    """Weight each pair's loss by its margin (mean weight 1)."""


MethodName = Literal[
    "sparta", "moaa", "self_rewarding", "meta_rewarding", "spin", "sppo", "preference_file",
    "rejection_sampling", "multiagent", "consensus_grpo", "single_multi", "self_consistency",
    "debate", "mixture", "council", "best_of_n", "frozen",
]  # fmt: skip


_BETAS = {"sppo": 0.001, "sppo_hard": 0.001, "simpo": 2.0}
"""The betas of losses that are not 0.1; see ``docs/methods/losses.md``."""


class TrainSettings(OptimiserSettings):
    method: Literal["dpo", "sft", "none"] = "dpo"
    """`sft` learns the chosen responses alone, by the settings of the section `sft` (rejection
    sampling; for duels). `none` stops after the pairs: a preference data set and no training."""
    loss: Literal[
        "auto", "sigmoid", "sppo", "simpo", "sppo_hard", "ipo", "hinge", "robust", "exo_pair",
        "nca_pair", "apo_zero", "apo_down", "sigmoid_norm", "orpo",
    ] = "auto"  # fmt: skip
    """What pairs are learned by. `auto`: the method's own, `sppo` for that method, else `sigmoid`
    (DPO, and SPIN's). `sppo` is the squared loss with the pairs' win probabilities; `simpo` and
    `orpo` need no reference; the others are TRL's. `docs/methods/losses.md` has a table of them."""
    margin: float = Field(1.6, ge=0)
    """SimPO's gamma: the margin that the chosen response is to have, of `beta` times the mean
    log-probability of a token (with a `beta` of 2 to 10)."""
    smoothing: Share = 0.0
    """The share of pairs that `robust` (below 0.5) and `exo_pair` (above 0, such as 0.001) take to
    be the wrong way round."""
    scope: Literal["all", "own"] = "all"
    """Learn from every duel's pair (the paper), or only from one's own duels."""
    beta: float | None = Field(None, gt=0)
    """DPO's beta. SPPO's is 1 / eta, SimPO's scales mean log-probabilities (2 to 10), and ORPO's is
    the weight of the odds beside the likelihood (its lambda). Default: the loss's own, 0.001 for
    `sppo` and `sppo_hard`, 2 for `simpo`, and 0.1 for all others."""
    nll_weight: float = Field(0.0, ge=0)
    """Weight of an added negative log-likelihood of the chosen response; `orpo` has one already."""
    reference: Literal["start", "initial"] = "start"
    """The reference, where the loss has one: the member at the start of the iteration (the paper),
    or before the run."""
    label_noise: Share = 0.0
    """Swap chosen and rejected with this chance: 0.5 is the random-winner control, and with
    `method: sft` plain supervised fine-tuning on the pool's own responses."""

    @property
    def has_reference(self) -> bool:
        """Whether the loss is relative to a reference, whose log-probabilities it then needs."""
        return self.loss not in ("simpo", "orpo")

    def named(self, own: str = "sigmoid") -> TrainSettings:
        """The same with a loss, ``own`` where it is `auto`, and the beta that goes with it."""
        loss = own if self.loss == "auto" else self.loss
        beta = _BETAS.get(loss, 0.1) if self.beta is None else self.beta
        return self.model_copy(update={"loss": loss, "beta": beta})


class EndpointSettings(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Short unique name; members refer to it."""
    url: str
    """Base URL of an OpenAI-compatible server, such as `http://127.0.0.1:8000/v1`."""
    key: str = ""
    """Name of the environment variable that holds the key; empty: the server wants none."""
    extra: dict[str, Any] = {}
    """Further fields of every request body, as the server wants them."""
    options: Literal["auto", "logprobs", "choice", "written"] = "auto"
    """How the `expected` protocol is read: from log-probabilities, from the server's structured
    choice, or from the score that is written. `auto` tries in this order, once, and records it."""
    max_concurrency: int = Field(256, ge=1)
    """Most requests in flight; the number starts low, grows, and falls where the server is busy."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Most requests begun in a minute."""
    tokens_per_minute: float | None = Field(None, gt=0)
    """Most tokens, read and written, in a minute."""
    timeout: Positive = 120
    """Seconds until an unanswered request is given up and tried again."""
    tries: int = Field(6, ge=1)
    """Times that a request is sent while the server fails or answers in pieces; while it says that
    it is busy, for as long as `patience`, too."""
    patience: Positive = 120
    """Seconds without any reply until the run stops, to be taken up again later."""
    price_in: float = Field(0.0, ge=0)
    """Money for a million tokens read."""
    price_out: float = Field(0.0, ge=0)
    """Money for a million tokens written."""

    def money(self, read: float, written: float) -> float:
        """What so many tokens cost here."""
        return (read * self.price_in + written * self.price_out) / 1e6


class BudgetSettings(Section):
    requests: int | None = Field(None, ge=1)
    """Most requests to endpoints in the whole run, tries included."""
    tokens: int | None = Field(None, ge=1)
    """Most tokens read and written by endpoints in the whole run."""
    money: float | None = Field(None, gt=0)
    """Most money, in the currency of the endpoints' prices."""
    seconds: float | None = Field(None, gt=0)
    """Most seconds that a run takes, all starts together."""


class VllmSettings(Section):
    command: list[str] = ["vllm"]
    """How vLLM is called, in an environment of its own: `[/opt/vllm/bin/vllm]`, or a Python
    interpreter that has it, `[/opt/vllm/bin/python]`."""
    url: str = ""
    """Use this server, which runs already, instead of starting one. It must allow adapters to be
    loaded at run time (VLLM_ALLOW_RUNTIME_LORA_UPDATING) and see the run's folder."""
    arguments: list[str] = []
    """Further arguments of `vllm serve`, such as `--gpu-memory-utilization`, `0.85`."""
    start_timeout: Positive = 900
    """Seconds until a server that has not become ready is given up."""
    between_phases: Literal["sleep", "stop", "keep"] = "sleep"
    """While members train: the server sleeps (its memory is free, it wakes in seconds), is stopped
    and started again, or is left alone (a device of its own)."""
    max_concurrency: int = Field(256, ge=1)
    """Most requests in flight."""
    timeout: Positive = 600
    """Seconds until an unanswered request is given up and tried again."""


class RaySettings(Section):
    address: str = "local"
    """`local` starts a cluster on this machine for the run; `auto` joins the one that runs here;
    or an address such as `ray://head:10001`."""
    workers: int | None = Field(None, ge=1)
    """Workers, each with bases of its own; default: as many as the cluster has room for."""
    cpus: Positive = 1
    """CPUs that a worker holds, which is also its number of threads."""
    gpus: float = Field(0.0, ge=0)
    """GPUs that a worker holds, 1 at most, since it computes on one; a share such as 0.5 lets two
    workers use one GPU. 0: workers compute on CPUs."""
    resources: dict[str, float] = {}
    """Further Ray resources that a worker holds, for placement."""
    adapters: Literal["store", "folder"] = "store"
    """How adapters travel: as files through Ray's object store, or through the run's folder, which
    every node must then see under the same path."""


class ResourceSettings(Section):
    device: str = "auto"
    """auto, cpu, cuda, or cuda:N. With `executor: ray` that of every worker: auto, cpu or cuda, as
    a worker sees no other GPU than the one that it holds."""
    gpus: int | None = Field(None, ge=0)
    """What `gpus` of the members are checked against; default: the GPUs that the machine has.
    More than it has is refused. 0 with `device: auto` means the CPU, save for Ray workers, whose
    GPUs are those of `ray.gpus`. No other value chooses a device."""
    keep_all_loaded: bool = False
    """Hold every base at once, in every worker where there are some. Otherwise they take turns."""
    batch_size: int = Field(32, ge=1)
    """Requests in one batch of an engine."""
    batch_tokens: int = Field(16384, ge=256)
    """Prompt plus new tokens in one batch of an engine."""
    merge_adapters: bool = True
    """Set the weights to base + adapter while a member serves: twice as fast on a CPU. Off:
    serve through the adapter (exact where changes are smaller than the weights' precision)."""
    workers: int = Field(1, ge=1)
    """Processes that serve and train members side by side on a CPU, each with one thread and the
    base in memory once more. As many as cores is fastest for small models. On a GPU leave it at
    1: `executor: ray` uses several."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of torch; default: its own choice."""
    executor: Literal["local", "ray"] = "local"
    """Where members answer, judge and train: on this machine, or on a Ray cluster."""
    ray: RaySettings = RaySettings()


class Config(Section):
    seed: int = Field(0, ge=0)
    """Same configuration and seed: same ledger on the local engine."""
    method: MethodName = "sparta"
    """The method, with the section of its name (`phalanx methods` lists them). `self_consistency`,
    `debate`, `mixture`, `council` and `best_of_n` answer together and train nobody; `frozen` only
    measures."""
    iterations: int = Field(8, ge=1)
    """Rounds of answering and learning, or stages (moaa)."""
    without: list[Literal["reputation", "match-making"]] = []
    """The paper's ablations: uniform judge weights; opponents fully at random."""
    output: str = ""
    """The run's folder; default: runs/ and the name of the configuration file."""
    pool: PoolSettings = PoolSettings()
    endpoints: list[EndpointSettings] = []
    """OpenAI-compatible servers that members are behind."""
    budget: BudgetSettings = BudgetSettings()
    vllm: VllmSettings = VllmSettings()
    instructions: InstructionSettings = InstructionSettings()
    match: MatchSettings = MatchSettings()
    answer: AnswerSettings = AnswerSettings()
    judge: JudgeSettings = JudgeSettings()
    aggregate: AggregateSettings = AggregateSettings()
    reputation: ReputationSettings = SpartaReputation()
    pairs: PairSettings = PairSettings()
    mixture: MixtureSettings = MixtureSettings()
    moaa: MoaaSettings = MoaaSettings()
    reward: RewardSettings = RewardSettings()
    self_rewarding: SelfRewardingSettings = SelfRewardingSettings()
    meta_rewarding: MetaRewardingSettings = MetaRewardingSettings()
    spin: SpinSettings = SpinSettings()
    sppo: SppoSettings = SppoSettings()
    preference_file: PreferenceFileSettings = PreferenceFileSettings()
    rejection_sampling: RejectionSamplingSettings = RejectionSamplingSettings()
    multiagent: MultiagentSettings = MultiagentSettings()
    consensus_grpo: ConsensusSettings = ConsensusSettings()
    single_multi: SingleMultiSettings = SingleMultiSettings()
    self_consistency: SelfConsistencySettings = SelfConsistencySettings()
    debate: DebateSettings = DebateSettings()
    council: CouncilSettings = CouncilSettings()
    best_of_n: BestOfSettings = BestOfSettings()
    sft: SftSettings = SftSettings()
    grpo: GrpoSettings = GrpoSettings()
    train: TrainSettings = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    search: SearchSettings = SearchSettings()
    resources: ResourceSettings = ResourceSettings()
    share: ShareSettings = ShareSettings()
    guard: GuardSettings = GuardSettings()
    track: TrackSettings = TrackSettings()

    @property
    def pair_section(self) -> Literal["sft", "train"]:
        """The section with which pairs are learned."""
        return "sft" if self.train.method == "sft" else "train"

    @property
    def pair_training(self) -> OptimiserSettings:
        """The settings of that section; the loss and its beta are named."""
        if self.pair_section == "sft":
            return self.sft
        return self.train.named("sppo" if self.method == "sppo" else "sigmoid")
