"""Conversations answered turn by turn, and what to do where a user turn no longer fits.

The later user turns of a recorded conversation were written for other answers than those that it
gets here. Asking them all the same is the published way (MoAA, section on multi-turn data, which
states the limitation); the repairs are ours: a member says whether the next turn fits the answer
that it follows, and where not the turn is rewritten, or the conversation ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from phalanx.collective.ownwords import answer_alone
from phalanx.collective.templates import USER, fence, fill, load_template
from phalanx.identity import canonical_json, derive_seed, joined_id, joined_seed, messages_json
from phalanx.types import (
    Ask,
    Instruction,
    Member,
    Message,
    Options,
    Request,
    Response,
    Sampling,
    Want,
)

FITS = Options('{"fits": "', ("yes", "no"))
"""Whether a user turn fits: the likelier of the two."""

CUT = "cut"
"""``Answer.drop`` of user turns that were never asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation that waits for an answer: ``turns`` end with the user's turn ``number``
    (from 0). ``writer`` says who is to answer, where the answerer serves several."""

    instruction: Instruction
    writer: str
    number: int
    turns: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """``drop`` is "" for an answer, or why there is none (``failed``, ``empty``, ...); its
    conversation then ends. ``reasoned``: reasoning that went before the answer was taken off."""

    writer: str
    text: str = ""
    response_id: str = ""
    truncated: bool = False
    drop: str = ""
    reasoned: bool = False

    @classmethod
    def of(cls, response: Response, writer: str) -> Answer:
        """A response as an answer: a failed one is none, nor is one that is empty or reasoning
        alone."""
        whole = response.text or ""
        text = answer_alone(whole)
        none = "truncated" if response.truncated else "empty"
        drop = "failed" if response.error else "" if text.strip() else none
        return cls(writer, text, response.request_id, response.truncated, drop, text != whole)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn and its answer; ``history`` has the turns before, with the new answers."""

    instruction: Instruction
    number: int
    history: tuple[Message, ...]
    prompt: str
    answer: Answer


Answerer = Callable[[Sequence[Asked]], Sequence[Answer]]
"""Answers conversations, in their order: one member each, a mixture, the best of several."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What becomes of a later user turn. ``place`` places the requests in the run.

    ``faithful`` asks nobody. The others ask ``member`` whether the turn fits (phase ``fit``), and
    ``rewrite`` has it rewritten where it does not (phase ``rewrite``, written as ``want`` says).
    """

    mode: Literal["faithful", "rewrite", "cut"]
    member: Member
    want: Sampling
    ask: Ask
    place: tuple


@dataclass(frozen=True, slots=True)
class Step:
    """A later user turn as it was found, and the assistant's text that it was written for."""

    earlier: str
    text: str


@dataclass
class _Course:
    """A conversation on its way; ``said`` has the turns so far, ``made`` what is done."""

    instruction: Instruction
    writer: str
    steps: tuple[Step, ...]
    said: tuple[Message, ...]
    made: list[Turn] = field(default_factory=list)

    @property
    def number(self) -> int:
        return len(self.made)

    @property
    def next(self) -> Step | None:
        """The user turn that would follow the last answer; None at the end."""
        return self.steps[self.number - 1] if self.number <= len(self.steps) else None


def steps_of(instruction: Instruction) -> tuple[Step, ...]:
    """The later user turns of a conversation.

    >>> later = (Message("assistant", "4."), Message("user", "And 3+3?"))
    >>> steps_of(Instruction("i", "2+2?", later=later))
    (Step(earlier='4.', text='And 3+3?'),)
    """
    steps: list[Step] = []
    earlier: list[str] = []
    for turn in instruction.later:
        if turn.role == "user":
            steps.append(Step("\n\n".join(earlier), turn.content))
            earlier = []
        elif turn.role == "assistant":
            earlier.append(turn.content)
    return tuple(steps)


def converse(
    asked: Sequence[tuple[Instruction, str]], answer: Answerer, repair: Repair
) -> tuple[list[Turn], Counter[str]]:
    """Answer conversations turn by turn, all of them together; (turns, counts).

    ``asked`` has (instruction, writer) of each. The turns are those of the first conversation,
    then of the second, ...: one for each user turn, asked or not; those that were not have
    ``drop`` "cut". Counts: ``later`` (later user turns that were reached) and, unless faithful,
    what became of them: ``fitting``, ``rewritten``, ``cut``; ``unreadable_fit`` are those of the
    last two for which nobody could say whether they fit.
    """
    courses = [
        _Course(instruction, writer, steps_of(instruction), (Message("user", instruction.text),))
        for instruction, writer in asked
    ]
    counts: Counter[str] = Counter()
    going = courses
    while going:
        waiting = [Asked(c.instruction, c.writer, c.number, c.said) for c in going]
        for course, found in zip(going, answer(waiting), strict=True):
            *history, last = course.said
            made = Turn(course.instruction, course.number, tuple(history), last.content, found)
            course.made.append(made)
            course.said = (*course.said, Message("assistant", found.text))
        going = [course for course in going if not course.made[-1].answer.drop and course.next]
        counts["later"] += len(going)
        going = _next_turns(going, repair, counts)
    return [turn for course in courses for turn in (*course.made, *_unasked(course))], counts


def _unasked(course: _Course) -> list[Turn]:
    """The user turns that a conversation never came to, as they were found."""
    gone = Answer(course.writer, drop=CUT)
    return [
        Turn(course.instruction, number, (), step.text, gone)
        for number, step in enumerate(course.steps[course.number - 1 :], start=course.number)
    ]


def _next_turns(courses: Sequence[_Course], repair: Repair, counts: Counter[str]) -> list[_Course]:
    """Put the next user turn into each conversation; returns those that go on."""
    if repair.mode == "faithful" or not courses:
        texts: list[str | None] = [_found(course).text for course in courses]
    else:
        texts = _mended(courses, repair, counts)
    going = []
    for course, text in zip(courses, texts, strict=True):
        if text is not None:
            course.said = (*course.said, Message("user", text))
            going.append(course)
    return going


def _found(course: _Course) -> Step:
    step = course.next
    assert step is not None  # those without were left out before
    return step


def _mended(courses: Sequence[_Course], repair: Repair, counts: Counter[str]) -> list[str | None]:
    """The next user turn of each conversation, as found or rewritten; None where it is cut."""
    requests = [_request(course, repair, "fit", FITS) for course in courses]
    verdicts = [read_fit(reply) for reply in repair.ask("fit", requests)]
    counts["fitting"] += sum(verdict is True for verdict in verdicts)
    counts["unreadable_fit"] += sum(verdict is None for verdict in verdicts)
    broken = [c for c, verdict in zip(courses, verdicts, strict=True) if not verdict]
    rewritten: dict[int, str] = {}
    if repair.mode == "rewrite" and broken:
        requests = [_request(course, repair, "rewrite", repair.want) for course in broken]
        replies = repair.ask("rewrite", requests)
        for course, reply in zip(broken, replies, strict=True):
            text = answer_alone(reply.text or "").strip()
            # A turn that did not come to its end is no turn.
            if reply.error is None and not reply.truncated and text:
                rewritten[id(course)] = text
    counts["rewritten"] += len(rewritten)
    counts["cut"] += len(broken) - len(rewritten)
    return [
        _found(course).text if verdict else rewritten.get(id(course))
        for course, verdict in zip(courses, verdicts, strict=True)
    ]


def read_fit(response: Response) -> bool | None:
    """Whether the turn fits; None where that cannot be read: failed, or as likely as not."""
    chances = response.probabilities
    if response.error is not None or not chances:
        return None
    yes, no = (chances.get(option, 0.0) for option in FITS.options)
    return None if yes == no else yes > no


def transcript(turns: Sequence[Message], seed: int) -> str:
    """A conversation to be read, not answered: each turn between marks drawn from ``seed``."""
    return "\n\n".join(
        fence(turn.content, derive_seed(seed, at), turn.role)[0] for at, turn in enumerate(turns)
    )


def judged_turns(instruction: Instruction) -> tuple[Message, ...]:
    """The conversation whose next assistant turn is judged."""
    return instruction.turns or (Message("user", instruction.text),)


def earlier_answers(instruction: Instruction) -> tuple[str, ...]:
    """The answers within it: texts of models, which may be shortened."""
    return tuple(turn.content for turn in instruction.turns if turn.role == "assistant")


def _request(course: _Course, repair: Repair, purpose: str, want: Want) -> Request:
    """A question about the next user turn; like judges, the member is asked without its system."""
    step = _found(course)
    place = canonical_json((purpose, *repair.place, repair.member.key))[1:-1]
    seed = derive_seed(purpose, *repair.place, course.said, step)
    values = {
        "conversation": transcript(course.said, derive_seed(seed, "conversation")),
        "turn": fence(step.text, derive_seed(seed, "turn"), USER)[0],
    }
    parts = [turn.content for turn in course.said if turn.role == "assistant"]
    if purpose == "rewrite":
        values["earlier"] = fence(step.earlier, derive_seed(seed, "earlier"), "assistant")[0]
        parts.append(step.earlier)
    messages = (Message("user", fill(load_template(purpose, tuple(values)), values)),)
    where = (place, messages_json(messages))
    return Request(
        id=joined_id(*where, canonical_json(want)),
        member=repair.member,
        messages=messages,
        want=want,
        purpose=purpose,
        seed=joined_seed(*where),
        shortenable=tuple(dict.fromkeys(part for part in parts if part)),
    )
