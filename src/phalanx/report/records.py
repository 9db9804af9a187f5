"""The numbers of a run, without any formatting. Shares are in [0, 1], times in seconds.

Iteration 0 is the pool before alignment. Members are in the order of the pool everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phalanx.statistics import Interval
from phalanx.statistics.paired import ALPHA

if TYPE_CHECKING:
    from phalanx.collective.alarms import Guarded
    from phalanx.collective.designs import Found
    from phalanx.report.games import Contest
    from phalanx.report.judged_facts import Tested
    from phalanx.report.measured_records import Measured
    from phalanx.report.moaa_records import MoaaFacts
    from phalanx.report.people import People
    from phalanx.report.rivals import RivalFacts
    from phalanx.tasks.contamination import Overlaps

OutcomeStatus = str


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member as it is now; ``version`` counts its trainings since the pool was made."""

    name: str
    version: int
    base: str
    family: str
    roles: tuple[str, ...]
    engine: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``owed`` counts what ``phase`` still needs (``unit``); an upper bound
    while judging, because a duel without two responses needs no judge. Where how much a phase
    needs is not ``known``, ``asked`` is what is recorded of it and ``owed`` is 0."""

    iteration: int
    num_iterations: int
    phase: str
    asked: int
    owed: int
    unit: str
    finished: str | None
    stop_reason: str | None
    last_error: str = ""
    """Why the last start ended early; empty where it did not, or the run is finished."""
    known: bool = True
    stage: str = ""
    """The stage of the method moaa that the iteration is: ``1 sft``."""


@dataclass(frozen=True, slots=True)
class PhaseAccount:
    """Requests of one phase: ``asked == answered + sum(failed.values()) + owed``.

    One that several phases share counts where it was asked first; ``owed`` is at most that many.

    ``truncated`` (hit the token limit) and ``shortened`` (prompt cut in the middle) are among
    the answered ones.
    """

    iteration: int
    phase: str
    asked: int
    answered: int
    failed: dict[str, int]
    owed: int
    truncated: int
    shortened: int
    num_completion_tokens: int


@dataclass(frozen=True, slots=True)
class Accounting:
    """Nothing is lost: duels == sum(outcomes) and judgments asked == readable + sum(unreadable).

    Pairs kept + sum(dropped) == duels in the method sparta; in moaa one pair is one instruction
    of one student, and demonstrations == kept + sum(dropped) as well.
    """

    phases: tuple[PhaseAccount, ...]
    num_duels: int
    num_responses_needed: int
    outcomes: dict[OutcomeStatus, int]
    judgments_asked: int
    judgments_readable: int
    judgments_flipped: int | None
    unreadable: dict[str, int]
    pairs_kept: int
    dropped: dict[str, int]
    demonstrations_kept: int = 0
    demonstrations_dropped: dict[str, int] = field(default_factory=dict)

    @property
    def num_pairs(self) -> int:
        return self.pairs_kept + sum(self.dropped.values())

    @property
    def num_demonstrations(self) -> int:
        return self.demonstrations_kept + sum(self.demonstrations_dropped.values())


@dataclass(frozen=True, slots=True)
class ReputationLine:
    """A member's reputation over the duels of the run.

    ``points`` are (duels so far, reputation), starting at (0, start); ``deviations`` belong to
    them (0 at the start, and where the rule has none).
    """

    member: str
    points: tuple[tuple[int, float], ...]
    start: float
    value: float
    deviation: float
    num_updates: int
    wins: int
    losses: int
    ties: int
    deviations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Encounter:
    """``wins`` of ``member`` over ``opponent`` in ``judged`` duels (decided or tied)."""

    member: str
    opponent: str
    wins: int
    judged: int


@dataclass(frozen=True, slots=True)
class Leaning:
    """``share`` of ``n`` untied judgments that favour one kind of response, where just one of the
    two was of it; ``outcome`` is the share of the decided ones among them that it won."""

    share: float
    n: int
    outcome: float | None


@dataclass(frozen=True, slots=True)
class JudgeFacts:
    """One judge over the whole run.

    ``agreement``: share of its untied judgments on decided duels that favour the winner, out of
    ``num_compared``. Its own vote is part of the outcome, so this is above chance by itself.
    ``longer``: share of its untied judgments that favour the longer response (in characters),
    out of ``num_lengths``. None where nothing could be counted (``flipped``: each response judged
    alone). ``own`` is for its own responses, ``family`` for others' of its family.
    """

    member: str
    asked: int
    readable: int
    unreadable: dict[str, int]
    flipped: int | None
    ties: int
    agreement: float | None
    num_compared: int
    mean_score: float | None
    longer: float | None
    num_lengths: int
    reliability: float | None
    own: Leaning | None = None
    family: Leaning | None = None


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """One member's training in one iteration. ``steps`` are the trainer's signals, in order."""

    iteration: int
    member: str
    version: int
    num_examples: int
    num_dropped: dict[str, int]
    seconds: float
    steps: tuple[dict[str, float], ...]

    def series(self, signal: str) -> tuple[float, ...]:
        return tuple(step[signal] for step in self.steps if signal in step)

    def first(self, signal: str) -> float | None:
        values = self.series(signal)
        return values[0] if values else None

    def last(self, signal: str) -> float | None:
        values = self.series(signal)
        return values[-1] if values else None

    def change(self, signal: str) -> float | None:
        values = self.series(signal)
        return values[-1] - values[0] if values else None


@dataclass(frozen=True, slots=True)
class Change:
    """The same items before and after alignment, on the test split.

    ``member`` is "" for the mean over members, ``domain`` "" for the mean over domains (each
    domain counts the same). Intervals are 95 %: Wilson for one member in one domain, bootstrap
    over items for means, and paired bootstrap over items for ``difference``.

    ``pvalue`` is that of one domain: exact McNemar where each item is right or wrong, else of
    flipped signs (shares of an item, means over members); None for means over domains.
    ``adjusted`` is the same after Holm over the domains of this member, ``detectable`` the smallest
    difference that the first of these tests would find with 80 % chance, None where there is none.
    """

    member: str
    domain: str
    n: int
    before: float
    before_interval: Interval
    after: float
    after_interval: Interval
    difference: float
    interval: Interval
    pvalue: float | None
    adjusted: float | None = None
    detectable: float | None = None

    @property
    def direction(self) -> int:
        """1 or -1 where the paired interval excludes 0, else 0."""
        if self.interval.low > 0:
            return 1
        return -1 if self.interval.high < 0 else 0

    @property
    def proven(self) -> int:
        """1 or -1 where the adjusted test says so, else 0; 0 for means, which are not tested."""
        if self.adjusted is None or self.adjusted >= ALPHA:
            return 0
        return 1 if self.difference > 0 else -1


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkpoint chosen on the dev split and measured on the test split (means over domains)."""

    member: str
    iteration: int
    dev: float
    num_dev: int
    test: float
    num_test: int
    test_interval: Interval


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Before is iteration 0, after is ``last``. Empty where the run measured nothing.

    ``trajectory``: (iteration, member) -> mean over domains on the test split; member "" is the
    mean over members. The collective's changes are of the measured tasks without those that are
    ``unvoted`` (no answer to agree on) or ``uncompared`` (expressions, without math-verify). The
    mixture's are those of ``evaluate.mixture``, of the members at both ends.
    """

    iterations: tuple[int, ...] = ()
    domains: tuple[str, ...] = ()
    num_dev: int = 0
    num_test: int = 0
    unreadable: dict[int, int] | None = None
    changes: tuple[Change, ...] = ()
    trajectory: dict[tuple[int, str], float] | None = None
    best_of_member: tuple[Choice, ...] = ()
    best_initial: Choice | None = None
    best_aligned: Choice | None = None
    aligned_over_initial: Change | None = None
    collective: tuple[Change, ...] = ()
    mixture: tuple[Change, ...] = ()
    unvoted: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()
    note: str = ""

    @property
    def last(self) -> int:
        return self.iterations[-1] if self.iterations else 0

    @property
    def together(self) -> dict[str, dict[str, Change]]:
        """Who answers together -> domain ("": all) -> change: the vote, and the mixture where that
        was measured."""
        found = {"collective": self.collective, "mixture": self.mixture}
        return {
            name: {change.domain: change for change in changes}
            for name, changes in found.items()
            if changes
        }

    def change(self, member: str = "", domain: str = "") -> Change | None:
        for change in self.changes:
            if change.member == member and change.domain == domain:
                return change
        return None


@dataclass(frozen=True, slots=True)
class ExampleJudgment:
    judge: str
    score_left: float | None
    score_right: float | None
    reason: str
    flipped: bool
    raw: dict[str, Any]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One duel with everything that was said. ``why`` is contested, clear, dropped, flipped (a
    verdict changed with the order) or unread (a verdict is missing)."""

    why: str
    iteration: int
    duel: str
    instruction: str
    domain: str
    answer: str | None
    left: str
    right: str
    left_text: str
    right_text: str
    left_note: str
    right_note: str
    status: str
    winner: str | None
    score_left: float | None
    score_right: float | None
    agreement: float | None
    reason: str
    dropped: str
    judgments: tuple[ExampleJudgment, ...]


@dataclass(frozen=True, slots=True)
class PhaseTime:
    iteration: int
    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PhasePace:
    """A phase: what is done and owed of it (``unit``), its wall-clock ``seconds``, how many units a
    second, and for the one under way the seconds left. ``owed`` is unknown where not ``known``."""

    iteration: int
    phase: str
    unit: str
    done: int
    owed: int
    seconds: float
    per_second: float | None
    left: float | None = None
    current: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the run; ``at`` in seconds since 1970."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Pace:
    """``left``: seconds until the run ends, guessed from its iterations; ``holder``: the process at
    work on it; ``last_at``: when something was last recorded; ``exit_code``: how the last start
    ended, where that was early and nothing came since."""

    phases: tuple[PhasePace, ...] = ()
    left: float | None = None
    holder: int | None = None
    last_at: float | None = None
    exit_code: int | None = None
    events: tuple[Event, ...] = ()

    @property
    def current(self) -> PhasePace | None:
        return next((phase for phase in self.phases if phase.current), None)


@dataclass(frozen=True, slots=True)
class Spending:
    """What one member was asked, and ``answered``. ``seconds``: its share of the batches' time."""

    iteration: int
    phase: str
    member: str
    requests: int
    tokens_in: int
    tokens_out: int
    seconds: float
    answered: int = 0


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What one endpoint was asked and cost in the whole run, tries included.

    ``retries`` counts tries that had to be made again, by cause. ``notes`` say how options were
    read and what was sent in another way than usual.
    """

    name: str
    requests: int
    tokens_in: int
    tokens_out: int
    money: float
    retries: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneVerdict:
    """A judge that said ``label`` to all ``count`` answers of a task that it compared with gold."""

    task: str
    judge: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Everything that the summary, the page and ``status`` show of one run."""

    folder: str
    method: str
    version: str
    code: str
    created_at: str
    seed: int
    engines: tuple[str, ...]
    config: dict[str, Any]
    progress: Progress
    members: tuple[MemberFacts, ...]
    accounting: Accounting
    reputations: tuple[ReputationLine, ...]
    boundaries: tuple[int, ...]
    encounters: tuple[Encounter, ...]
    judges: tuple[JudgeFacts, ...]
    label_accuracy: dict[int, tuple[float, int]]
    trainings: tuple[TrainingFacts, ...]
    evaluation: Evaluation
    times: tuple[PhaseTime, ...]
    examples: tuple[Example, ...]
    endpoints: tuple[EndpointFacts, ...] = ()
    written_scores: dict[str, int] = field(default_factory=dict)
    """Judge -> judgments read from the score that was written, for want of probabilities."""
    moaa: MoaaFacts | None = None
    """What only a run of the method moaa has."""
    rival: RivalFacts | None = None
    """What only a run of another method than the two papers' has."""
    overlaps: tuple[Overlaps, ...] = ()
    """What of the instructions and demonstrations overlaps evaluation items."""
    command: str = ""
    """The command whose work this is, "" for a run; ``found`` is what a search has."""
    contests: tuple[Contest, ...] = ()
    """Tasks whose answers were compared or rated by judges."""
    found: Found | None = None
    measured: Measured | None = None
    """What only the work of ``eval`` has."""
    tested: Tested | None = None
    """What only the work of ``judge-bench`` has."""
    one_verdicts: tuple[OneVerdict, ...] = ()
    pace: Pace = Pace()
    spending: tuple[Spending, ...] = ()
    people: People | None = None
    """What people said of duels; None where nobody did."""
    guards: Guarded | None = None
    """None for the work of a command, which has none."""

    @property
    def sectioned(self) -> bool:
        """Whether its report is made of sections of its own: all but runs of duels."""
        return bool(self.moaa or self.command or self.rival)

    @property
    def trains(self) -> bool:
        """Whether the method makes rows to learn from; commands do not."""
        answers = self.rival and (self.rival.answers or self.rival.kind == "none")
        return not (self.command or answers)
