"""The records that flow through Phalanx, and the protocols that move them.

Every record is frozen. A worked example stands in each docstring; read this file first and the
rest of the package is plumbing. Directions are always spelled out (``left``/``right``,
``chosen``/``rejected``), never hidden in a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant"]
Winner = Literal["left", "right"]
FinishReason = Literal["stop", "length", ""]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message: ``Message("user", "Name a prime.")``."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Member:
    """One version of one model of the pool. A trained member is a new record, version + 1.

    >>> Member(name="ada", base="builtin:smollm2-135m", adapter="runs/x/adapters/iteration-1/ada",
    ...        version=1).key
    'ada@1'
    """

    name: str
    base: str
    adapter: str | None = None
    version: int = 0
    system: str = ""
    engine: str = "hf"
    endpoint: str = ""
    dtype: str = "auto"
    trust_remote_code: bool = False
    family: str = ""
    roles: tuple[str, ...] = ("contest", "judge", "learn")

    @property
    def key(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def base_key(self) -> tuple[str, str, bool]:
        """What tells one base in memory from another: weights, precision, and its own code."""
        return (self.base, self.dtype, self.trust_remote_code)

    def messages(self, text: str) -> tuple[Message, ...]:
        """The conversation in which this member answers ``text``: the same wherever it does."""
        return self.conversation((Message("user", text),))

    def conversation(self, turns: Sequence[Message]) -> tuple[Message, ...]:
        """A conversation of several turns as this member reads it: its system prompt, the turns."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, *turns)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A prompt that members answer; ``answer`` is set only where a reference is known.
    ``text`` is the first user turn; ``later`` has the assistant and user turns that followed it in
    a conversation as it was found, up to the last user turn. ``turns`` is for judges of a later
    answer: the conversation up to its user turn; ``text`` then has it as a transcript.
    """

    id: str
    text: str
    domain: str = ""
    answer: str | None = None
    flags: tuple[str, ...] = ()
    later: tuple[Message, ...] = ()
    turns: tuple[Message, ...] = ()

    @property
    def user_turns(self) -> tuple[str, ...]:
        return (self.text, *(turn.content for turn in self.later if turn.role == "user"))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Write text. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off."""

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 50
    max_new_tokens: int = 512
    kind: Literal["sampling"] = "sampling"


@dataclass(frozen=True, slots=True)
class UserTurn:
    """Write the next *user* turn: the model goes on from the template's pre-query part.

    The same settings as :class:`Sampling`. With no messages the model invents an instruction of
    its own (Magpie, arXiv 2406.08464); a system message alone may steer it. Only engines that see
    the chat template can do it (hf, scripted); others refuse.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    kind: Literal["user_turn"] = "user_turn"


@dataclass(frozen=True, slots=True)
class Reward:
    """The score of ``response`` as the next assistant turn; with ``rival`` a ranker's logit that it
    is the better of the two. For members of engine ``reward``."""

    response: str
    rival: str | None = None
    kind: Literal["reward"] = "reward"


@dataclass(frozen=True, slots=True)
class Options:
    """Probability of each option string, given that the assistant turn starts with ``prefix``.

    The probabilities are those of a decoder restricted to the options, so they sum to one;
    ``Response.option_mass`` says how much of its unrestricted probability the model gave them.

    >>> Options(prefix='{"score": ', options=tuple(str(n) for n in range(1, 11))).options[-1]
    '10'
    """

    prefix: str
    options: tuple[str, ...]
    kind: Literal["options"] = "options"


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Log-probability of ``completion`` as the assistant turn (text tokens only, no end token)."""

    completion: str
    kind: Literal["likelihood"] = "likelihood"


Want = Sampling | UserTurn | Options | Likelihood | Reward


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one member.
    ``id`` is a content id (:func:`phalanx.identity.content_id`): the same question in the same
    place of the run has the same id, which is how a resumed run knows what is owed.
    ``seed`` fixes the noise of this response alone. ``shortenable`` lists exact parts of the
    messages (judged texts) that an engine may shorten in the middle, with a visible mark, when
    the prompt does not fit; anything else that does not fit is a ``too_long`` failure.
    """

    id: str
    member: Member
    messages: tuple[Message, ...]
    want: Want
    purpose: str
    seed: int = 0
    shortenable: tuple[str, ...] = ()


FailureKind = Literal[
    "too_long", "engine", "timeout", "refused", "empty", "truncated", "unreadable"
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no result. ``transient`` ones are worth asking again."""

    kind: FailureKind
    message: str
    transient: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request: exactly one of ``error`` or the field that was wanted is set.
    Sampling and UserTurn fill ``text`` and ``finish_reason`` ("length" = hit the token limit =
    truncated), Reward ``reward``, Options ``probabilities`` (option -> probability) and
    ``option_mass``, Likelihood ``logprob_sum`` (nats) and ``num_scored_tokens``.
    """

    request_id: str
    text: str | None = None
    finish_reason: FinishReason = ""
    probabilities: dict[str, float] | None = None
    option_mass: float | None = None
    logprob_sum: float | None = None
    num_scored_tokens: int = 0
    reward: float | None = None
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    num_shortened_tokens: int = 0
    flags: tuple[str, ...] = ()
    error: Failure | None = None

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def said(self) -> Any:
        """What was answered, in plain values: the text, or a small dictionary."""
        if self.error is not None:
            return {"error": self.error.kind, "message": self.error.message}
        if self.probabilities is not None:
            return {"probabilities": self.probabilities, "option_mass": self.option_mass}
        if self.logprob_sum is not None:
            return {"logprob_sum": self.logprob_sum, "num_scored_tokens": self.num_scored_tokens}
        if self.reward is not None:
            return {"reward": self.reward}
        return self.text


@dataclass(frozen=True, slots=True)
class Duel:
    """Two contestants on one instruction. ``left`` is the active member; sides mean no more.
    Where several responses of one member meet, a contestant is a response: ``ada#2``.

    >>> Duel(id="d0", instruction=Instruction("i1", "2+2?"), left="ada", right="bob",
    ...      matched="near").contestants
    ('ada', 'bob')
    """

    id: str
    instruction: Instruction
    left: str
    right: str
    matched: Literal["random", "near", "ranking"] = "near"

    @property
    def contestants(self) -> tuple[str, str]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Judgment:
    """One judge's verdict on one duel. A side that could not be read is None, never a number.
    ``score_left``/``score_right`` are on the protocol's own scale. For pairwise judging they are
    1/0, 0/1 or 0.5/0.5. ``reason`` says why a score is missing; ``raw`` keeps what the judge
    wrote, or its probabilities, per side, so that it can be read again later. ``requests`` names
    the request of each of its slots where ``raw`` is ``Response.said`` of them and no more; then
    the ledger does not store it twice.
    """

    duel_id: str
    judge: str
    protocol: str
    score_left: float | None
    score_right: float | None
    reason: str = ""
    flipped: bool = False
    raw: dict[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    requests: dict[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return self.score_left is not None and self.score_right is not None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the judges together say of a duel. ``status`` is the duel's one final state.

    ``decided`` (winner set), ``tie``, ``no_quorum`` (too few readable judgments) or
    ``unanswered`` (a contestant's response is missing). ``score_*`` are None unless judged.
    ``agreement`` is the weighted share of judges on the winner's side.
    """

    duel_id: str
    status: Literal["decided", "tie", "no_quorum", "unanswered"]
    winner: Winner | None = None
    score_left: float | None = None
    score_right: float | None = None
    num_judges: int = 0
    num_missing: int = 0
    agreement: float | None = None
    reason: str = ""

    @property
    def margin(self) -> float:
        """Absolute difference of the aggregated scores; 0 where there is none."""
        if self.score_left is None or self.score_right is None:
            return 0.0
        return abs(self.score_left - self.score_right)


@dataclass(frozen=True, slots=True)
class Standing:
    """A member's reputation: value, deviation, recent actual changes, number of updates."""

    value: float = 100.0
    deviation: float = 0.5
    changes: tuple[float, ...] = ()
    num_updates: int = 0


@dataclass(frozen=True, slots=True)
class ReputationChange:
    """One member's reputation before and after one duel (or one batch fit: ``duel_id`` "")."""

    duel_id: str
    member: str
    before: float
    after: float
    deviation: float


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """``prompt``/``chosen``/``rejected`` in TRL's sense, with where they came from.

    ``*_probability`` is that of the response to beat the policy's own ones (SPPO), where a method
    estimates it. ``drop`` is empty for a pair that trains and names the reason otherwise (``tie``,
    ``identical``, ``empty``, ``unscored``, ``truncated``, ``margin``, ``margin_rank``, ``length``).
    A dropped pair keeps what is known of it, so that the sums add up.
    """

    id: str
    instruction: Instruction
    chosen: str = ""
    rejected: str = ""
    chosen_member: str = ""
    rejected_member: str = ""
    margin: float = 0.0
    weight: float = 1.0
    chosen_probability: float | None = None
    rejected_probability: float | None = None
    chosen_truncated: bool = False
    rejected_truncated: bool = False
    drop: str = ""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One SFT row: a prompt and the response to learn. Only the response is learned.

    ``history`` has the turns before ``prompt`` (user, assistant, ...). The other fields say where
    a row that a method made came from: the ``builder`` ("mixture", "random", ...), the
    ``instruction``'s id and the ``turn`` of its conversation (0 the first), the ``writer`` (a
    member, or "mixture"), and the ``response_id`` of the request that wrote it. ``advantage`` is
    set where the row is one of a group of rated responses, for policy gradients. ``drop`` names
    the reason why a row does not train; such a row keeps what is known of it, so that the sums
    add up.
    """

    id: str
    prompt: str
    response: str
    domain: str = ""
    history: tuple[Message, ...] = ()
    builder: str = ""
    instruction: str = ""
    turn: int = 0
    writer: str = ""
    response_id: str = ""
    advantage: float | None = None
    truncated: bool = False
    drop: str = ""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What training one member produced. ``steps``: signals of each; ``notes``: of trackers."""

    member: Member
    num_examples: int
    num_dropped: dict[str, int]
    steps: tuple[dict[str, float], ...]
    summary: dict[str, float]
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration:
    """What a method sees as an iteration starts; ``standings`` is carried over. ``earlier[n]`` has
    the members when iteration ``n`` had ended (0: at the start), ``given`` rows from elsewhere
    (:attr:`phalanx.methods.Method.given`), ``anchors`` judgments with people's winners."""

    number: int
    seed: int
    members: tuple[Member, ...]
    instructions: tuple[Instruction, ...]
    standings: dict[str, Standing]
    reliability: dict[str, float]
    num_duels_before: int = 0
    faded: dict[str, float] = field(default_factory=dict)
    earlier: tuple[tuple[Member, ...], ...] = ()
    given: tuple[Demonstration | PreferencePair, ...] = ()
    anchors: tuple[tuple[Judgment, Winner], ...] = ()


@dataclass(frozen=True, slots=True)
class IterationResult:
    """What a method hands back: every row the ledger needs, and the carried-over state.
    ``responses`` maps (duel id, contestant) to the id of the response's request. ``prompts`` are
    what pairs are about that is no instruction of the run (a judge's prompt, a row of a file).
    ``metrics`` are plain numbers; the report shows those that it knows.
    """

    duels: tuple[Duel, ...] = ()
    responses: dict[tuple[str, str], str] = field(default_factory=dict)
    judgments: tuple[Judgment, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    changes: tuple[ReputationChange, ...] = ()
    standings: dict[str, Standing] = field(default_factory=dict)
    reliability: dict[str, float] = field(default_factory=dict)
    pairs: tuple[PreferencePair, ...] = ()
    prompts: tuple[Instruction, ...] = ()
    demonstrations: tuple[Demonstration, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    faded: dict[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """Requests in, the same number of responses out, in order. Synchronous and batched.

    ``plan`` cuts a whole phase into batches (lists of positions). It depends on the requests
    alone, so a resumed run forms the same batches as an uninterrupted one. A request that fails
    is a Response with ``error`` set; an exception means that the engine itself is broken.
    """

    def plan(self, requests: Sequence[Request]) -> list[list[int]]: ...

    def respond(self, requests: Sequence[Request]) -> list[Response]: ...

    def close(self) -> None: ...


class Work(Protocol):
    """Batches under way in an engine that answers several of them at once."""

    @property
    def num_open(self) -> int:
        """Batches that :meth:`wait` has yet to return; after :meth:`stop`, those under way."""

    def wait(self, seconds: float) -> list[tuple[int, list[Response]]]:
        """(number of the batch, its responses in order) of those that ended since the last call.

        Blocks up to ``seconds`` for the first one. Raises EngineError where the engine is broken;
        what ended before is returned first.
        """

    def stop(self) -> None:
        """Begin nothing more. What is under way still ends, and ``wait`` still returns it."""


class ConcurrentEngine(Engine, Protocol):
    """An engine that works on many batches at once, beside the caller.

    The dispatcher starts them all, records each as it ends, and serves the other engines in the
    meantime. ``close`` gives up whatever is under way. ``facts`` are kept in the run's ledger in
    the transaction of the responses that they belong to, and handed to ``restore`` when a run is
    taken up again: what was spent, what a server can do. Keys start with the engine's name and
    a colon. An engine may also have ``news() -> Sequence[str]``: what somebody who watches the
    run should hear, each once.
    """

    def start(self, batches: Sequence[Sequence[Request]]) -> Work: ...

    def facts(self) -> dict[str, str]: ...

    def restore(self, facts: Mapping[str, str]) -> None: ...


class StreamingEngine(Engine, Protocol):
    """An engine that can show a text while it is written (``phalanx mix``, chats)."""

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """Answer one Sampling request; ``show`` gets each new piece of text as it comes."""


class Ask(Protocol):
    """A method's only power: questions to members, responses in the same order."""

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]: ...


class Progress(Protocol):
    """Where long steps report."""

    def start(self, phase: str, total: int, unit: str = "") -> None: ...

    def advance(self, amount: int = 1) -> None: ...

    def finish(self, note: str = "") -> None: ...

    def say(self, text: str) -> None: ...
