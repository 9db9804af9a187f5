"""The numbers of a run of the method moaa, without any formatting; see :mod:`.records`.

A stage is one iteration: ``sft`` or ``dpo``, of a generation that counts from 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.report.records import Change, TrainingFacts
from phalanx.statistics import Interval


@dataclass(frozen=True, slots=True)
class BuilderFacts:
    """What one builder made in a stage ``sft``: ``rows == kept + sum(dropped.values())``."""

    name: str
    students: tuple[str, ...]
    instructions: int
    rows: int
    kept: int
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class PairFacts:
    """One student's pairs in a stage ``dpo``: ``rows == kept + sum(dropped.values())``."""

    student: str
    reward: str
    instructions: int
    rows: int
    kept: int
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True)
class ProposerFacts:
    """``left_out`` of the ``asked`` proposals of one member failed or were empty."""

    member: str
    asked: int
    left_out: int


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """User turns after the first of one builder's conversations, by what became of them.

    ``counts`` are the method's: ``later == fitting + rewritten + cut`` where they were looked at;
    ``unreadable_fit``, judgments of the fit that could not be read, are among the last two.
    """

    builder: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class RewardFacts:
    """The verdicts of one judge in one stage: ``asked == readable + unreadable``.

    ``flipped`` ones contradicted themselves when the order changed; they are among ``ties``,
    unless ``reward.contradiction: mean`` lets the mean of both orders decide.
    """

    judge: str
    protocol: str
    asked: int
    readable: int
    decided: int
    ties: int
    flipped: int
    default_criteria: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class StageFacts:
    """One iteration. Empty where it is under way: its rows come all at once.

    ``num_mixed`` turns were put to the mixture, ``unanswered`` of them by reason had no answer.
    ``best_of`` counts turns for which the ranker did not single out one answer;
    ``reasoning_removed``, by builder, answers whose reasoning was taken off. Judges that score
    each response alone were asked for ``scores_asked`` scores.
    """

    iteration: int
    kind: str
    generation: int
    recorded: bool
    builders: tuple[BuilderFacts, ...] = ()
    pairs: tuple[PairFacts, ...] = ()
    trainings: tuple[TrainingFacts, ...] = ()
    proposers: tuple[ProposerFacts, ...] = ()
    num_mixed: int = 0
    unanswered: dict[str, int] | None = None
    turns: tuple[TurnFacts, ...] = ()
    reasoning_removed: dict[str, int] | None = None
    best_of: dict[str, int] | None = None
    rewards: tuple[RewardFacts, ...] = ()
    scores_asked: int = 0
    scores_unreadable: int = 0
    outcomes: dict[str, int] | None = None
    evaluators: tuple[ProposerFacts, ...] = ()
    criteria: dict[str, int] | None = None
    unreadable_criteria: int = 0
    criteria_chosen_for: int = 0
    """Instructions that have criteria here ..."""
    criteria_reused_for: int = 0
    """... and those among them for which an earlier stage chose."""


@dataclass(frozen=True, slots=True)
class Level:
    """Somebody's accuracy on the test items: ``role`` is student, teacher or mixture.

    Means over domains; ``iteration`` is the one after which it was measured.
    """

    name: str
    role: str
    iteration: int
    dev: float | None
    test: float
    interval: Interval
    num_test: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two levels on the same test items; ``change.difference`` is ``name`` minus ``other``.

    ``against`` says what the other one is: "stage" (the same student before this stage),
    "generation" (before this generation), "teacher" (the best, chosen on dev, as it was at the
    start), "baseline" (a student that learned from another builder, as last measured by then) or
    "mixture" (at the start).
    ``pvalue`` is exact McNemar over all items (flipped signs, where some are partly right).
    ``detectable`` is the smallest difference that this
    test would find with 80 % chance, given how many items differ; None where there is none.
    """

    name: str
    iteration: int
    against: str
    other: str
    other_iteration: int
    change: Change
    pvalue: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A student's accuracy as a share of the mixture's, and its tokens an answer likewise.

    ``tokens`` counts read and written ones; ``weighted`` is the share of tokens x parameters,
    None where a member's number of parameters is not known; ``money`` where both have a price.
    """

    student: str
    iteration: int
    accuracy: float
    interval: Interval
    tokens: float | None
    weighted: float | None
    money: float | None


@dataclass(frozen=True, slots=True)
class ResultFacts:
    """``best_teacher`` is the name of the teacher with the highest dev accuracy at the start."""

    levels: tuple[Level, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    best_teacher: str = ""
    num_dev: int = 0
    num_test: int = 0
    note: str = ""
    unmeasured: tuple[str, ...] = ()
    """Students and teachers that were never measured on test items."""

    def last(self, name: str) -> Level | None:
        mine = [level for level in self.levels if level.name == name]
        return mine[-1] if mine else None


@dataclass(frozen=True, slots=True)
class CostFacts:
    """What one purpose took in one stage (``generation`` 0: outside of all stages).

    ``money`` is tokens times the prices of endpoints, None where nobody asked has a price; tries
    that came to nothing are in the account of endpoints alone.
    """

    generation: int
    kind: str
    purpose: str
    requests: int
    tokens_in: int
    tokens_out: int
    seconds: float
    money: float | None


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """What one answer to an evaluation item takes, on average over ``num_items``."""

    name: str
    role: str
    num_items: int
    requests: float
    tokens_in: float
    tokens_out: float
    weighted: float | None
    money: float | None

    @property
    def tokens(self) -> float:
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class MixtureExample:
    """An instruction, what the proposers wrote (layer, member, text), and the mixture's answer."""

    iteration: int
    domain: str
    instruction: str
    proposals: tuple[tuple[str, str, str], ...]
    writer: str
    response: str


@dataclass(frozen=True, slots=True)
class MoaaFacts:
    """Everything that is the method moaa's own."""

    students: tuple[tuple[str, str, str], ...]
    """Name, builder, reward."""
    teachers: tuple[str, ...]
    stages: tuple[StageFacts, ...]
    result: ResultFacts
    costs: tuple[CostFacts, ...]
    answers: tuple[AnswerCost, ...]
    examples: tuple[MixtureExample, ...]
