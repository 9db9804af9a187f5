"""What a method asks and makes, found by running it: a rehearsal with nobody there.

A method is a pure function of ``ask``, so it runs over a few placeholder instructions and an
``ask`` that answers with placeholders: every text is one character that stands for as many tokens
as its writer is allowed, and an ending that readers of answers, scores and votes accept. What is
counted is scaled to the instructions that the run will have. Nothing fails, is cut off or is alike
in a rehearsal, so requests are as many as where nothing fails, and examples at most as many.
Where by chance nothing can be learned, other placeholders are tried.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import ceil
from zlib import crc32

from phalanx.collective.reputation import initial_standing
from phalanx.config.base import sampling
from phalanx.config.schema import Config, OptimiserSettings, TrainSettings
from phalanx.config.uses import USES, trains, wanted_of
from phalanx.errors import JudgmentError
from phalanx.methods import METHODS, Question
from phalanx.plan.rounds import (
    CHARACTERS_A_TOKEN,
    USUAL_SHARE,
    VERDICT_TOKENS,
    Demand,
    Round,
    Training,
    long_text,
)
from phalanx.pool import TRAINABLE, contestants, learners
from phalanx.types import (
    Demonstration,
    Instruction,
    Iteration,
    IterationResult,
    Likelihood,
    Member,
    Message,
    Options,
    PreferencePair,
    Request,
    Response,
    Reward,
    Sampling,
    UserTurn,
)

FEW = 2
"""Placeholder instructions of one rehearsed iteration."""
TRIES = 8
"""Rehearsals of an iteration, of which one must have something to learn."""
_MARK = 0xE000  # the first character of Unicode's private use area
_MARKS = re.compile("[\ue000-\uf8ff]")
_NUMBERED = re.compile(r"^(\d+)\.\n<<<answer \w+>>>\n(.*?)\n<<<end", re.MULTILINE | re.DOTALL)
_ELSEWHERE = {
    "resources", "vllm", "evaluate", "search", "budget", "endpoints", "output",
    "train", "sft", "grpo",
}  # fmt: skip
"""Sections that no method reads: a plan asks again while it changes them."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens where every response is as long as allowed, and usual ones."""

    most: float
    usual: float


@dataclass
class Marks:
    """Characters that stand for texts, each for so many tokens."""

    lengths: list[Tokens] = field(default_factory=list)

    def of(self, most: float, usual: float) -> str:
        """The character of texts of that length."""
        tokens = Tokens(most, usual)
        if tokens not in self.lengths:
            self.lengths.append(tokens)
        return chr(_MARK + self.lengths.index(tokens))

    def tokens(self, *texts: str) -> Tokens:
        """The tokens of what these texts stand for."""
        found = [mark for text in texts for mark in _MARKS.findall(text)]
        plain = (sum(map(len, texts)) - len(found)) / CHARACTERS_A_TOKEN
        lengths = [self.lengths[ord(mark) - _MARK] for mark in found]
        return Tokens(
            plain + sum(one.most for one in lengths), plain + sum(one.usual for one in lengths)
        )


@dataclass(frozen=True)
class Rehearsed:
    """One iteration: every request once, with its phase, and what is to be learned."""

    asked: dict[str, tuple[str, Request]]
    result: IterationResult


@dataclass
class Stand:
    """Answers in the place of members; implements :class:`phalanx.types.Ask`.

    Another ``attempt`` answers otherwise.
    """

    marks: Marks
    config: Config
    attempt: int = 0
    asked: dict[str, tuple[str, Request]] = field(default_factory=dict)

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        for request in requests:
            self.asked.setdefault(request.id, (phase, request))
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        """Always the same to the same request, and as a rule another to another."""
        want, number = request.want, crc32(f"{request.id}{'again' * self.attempt}".encode())
        if isinstance(want, Sampling | UserTurn):
            usual = ceil(want.max_new_tokens * USUAL_SHARE)
            mark = self.marks.of(want.max_new_tokens, usual)
            text = mark + self._ending(request, number)
            return Response(request.id, text=text, finish_reason="stop")
        if isinstance(want, Options):
            weights = [1 + (number >> place) % 7 for place in range(len(want.options))]
            shares = (weight / sum(weights) for weight in weights)
            found = dict(zip(want.options, shares, strict=True))
            return Response(request.id, probabilities=found, option_mass=1.0)
        if isinstance(want, Reward):
            return Response(request.id, reward=number / 2**32)
        tokens = max(1, round(self.marks.tokens(want.completion).usual))
        return Response(
            request.id, logprob_sum=-tokens * (1 + number / 2**32), num_scored_tokens=tokens
        )

    def _ending(self, request: Request, number: int) -> str:
        """A vote or verdict where the prompt shows one, else an answer; mostly the same answer
        where the method compares answers."""
        prompt = request.messages[-1].content if request.messages else ""
        if "[[1]]" in prompt:
            return f"\n[[{_favourite(prompt)}]]"
        if "[[A" in prompt:
            return "\n[[A]]" if number % 2 else "\n[[B]]"
        match = getattr(getattr(self.config, self.config.method, None), "match", "")
        if '"score"' in prompt:
            return f'\n{{"score": {1 + number % 5}}}'
        if match not in ("", "none"):
            which = bool(number % 4)
            return f"The answer is {('AB' if match == 'choice' else '78')[which]}."
        return f"Text {number}.\nScore: {1 + number % 5}"


def _favourite(prompt: str) -> str:
    """The number of the answer that a voter names: the same one in whatever order they stand."""
    shown = _NUMBERED.findall(prompt)
    return max(shown, key=lambda one: one[1])[0] if shown else "1"


@dataclass
class Rehearsal:
    """All iterations of a run as they would go with :data:`FEW` instructions each."""

    config: Config
    members: tuple[Member, ...]
    tokens: int
    marks: Marks = field(default_factory=Marks)
    done: dict[int, Rehearsed] = field(default_factory=dict)
    grouped: dict[int, tuple[Demand, ...]] = field(default_factory=dict)
    read: dict[int, tuple[Demonstration | PreferencePair, ...]] = field(default_factory=dict)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """So many that no iteration meets those of another again, unless it means to."""
        count = FEW * self.config.iterations
        return tuple(_placeholder(n, self.marks, self.tokens) for n in range(count))

    def of(self, number: int) -> Rehearsed:
        """Iteration ``number``, from 1.

        Raises JudgmentError where nothing can be learned, whatever members answer.
        """
        for attempt in range(TRIES):
            if number in self.done:
                break
            stand = Stand(self.marks, self.config, attempt)
            try:
                result = METHODS[self.config.method].run(self._start(number), stand, self.config)
            except JudgmentError:  # by chance: of few instructions no answer may have won
                if attempt == TRIES - 1:
                    raise
            else:
                self.done[number] = Rehearsed(stand.asked, result)
        return self.done[number]

    def new(self, number: int) -> list[tuple[str, Request]]:
        """(phase, request) of what the iteration before has not asked."""
        before = self.of(number - 1).asked if number > 1 else {}
        return [asked for name, asked in self.of(number).asked.items() if name not in before]

    def demands(self, number: int, times: float) -> Iterator[Demand]:
        """Requests of an iteration with so many times the instructions."""
        if number not in self.grouped:
            self.grouped[number] = tuple(_grouped(self.new(number), self, 1))
        for one in self.grouped[number]:
            yield replace(one, requests=one.requests * times)

    def lessons(self, number: int) -> dict[str, str]:
        """What each learner with weights here learns from."""
        able = [m.name for m in learners(self.members) if m.engine in TRAINABLE]
        lesson = METHODS[self.config.method].lesson
        found = {name: lesson(self.config, number, name) for name in able}
        return {name: words for name, words in found.items() if words}

    def alike(self, iterations: int) -> Iterator[tuple[int, int]]:
        """(number, how many) of iterations that follow each other and are alike.

        Those between two that are alike are taken to be so, too, but for the first one.
        """
        starts = [1]
        if iterations > 1:
            starts += [*self._changes(1, 2), *self._changes(2, iterations)]
        for start, end in zip(starts, [*starts[1:], iterations + 1], strict=True):
            yield start, end - start

    def _changes(self, low: int, high: int) -> Iterator[int]:
        """The numbers in (low, high] whose iteration differs from the one before."""
        if low == high or self._shape(low) == self._shape(high):
            return
        if high == low + 1:
            yield high
            return
        middle = (low + high) // 2
        yield from self._changes(low, middle)
        yield from self._changes(middle, high)

    def _shape(self, number: int) -> object:
        asked = Counter(
            (phase, request.member.name, request.purpose) for phase, request in self.new(number)
        )
        result = self.of(number).result
        return asked, self.lessons(number), len(result.pairs), len(result.demonstrations)

    def given(self, number: int) -> tuple[Demonstration | PreferencePair, ...]:
        """Rows of files, read as in the run; those of a data set on the hub are placeholders."""
        config, read = self.config, METHODS[self.config.method].given
        if read is None:
            return ()
        if "instructions" not in USES[config.method]:
            number = 1  # all rows of its own file, in every iteration
        if number not in self.read:
            local = not getattr(getattr(config, config.method), "source", "").startswith("hub:")
            self.read[number] = read(config, number) if local else self._from_hub()
        return self.read[number]

    def _from_hub(self) -> tuple[PreferencePair, ...]:
        config = self.config
        wanted = (wanted_of(config, 1) or ("", 0))[1] * config.iterations
        longest = TrainSettings.model_fields["max_length"].default
        length = self.marks.of(longest / 2, longest / 4)
        return tuple(
            PreferencePair(f"given-{n}", _placeholder(n, self.marks, self.tokens),
                           f"{length}{n}", f"{length}{n}, worse")
            for n in range(wanted)
        )  # fmt: skip

    def _start(self, number: int) -> Iteration:
        """Members learn in every iteration, which gives them other versions."""
        config = self.config
        earlier = tuple(
            tuple(replace(m, version=before) if "learn" in m.roles else m for m in self.members)
            for before in range(number)
        )
        given, about = self.given(number), self.instructions
        if "instructions" not in USES[config.method]:  # it is about the rows of its file
            about = tuple(row.instruction for row in given if isinstance(row, PreferencePair))
        return Iteration(
            number=number,
            seed=config.seed,
            members=earlier[-1],
            instructions=METHODS[config.method].draw(config, about, number),
            standings={m.name: initial_standing(config.reputation) for m in self.members},
            reliability={},
            earlier=earlier,
            given=given,
        )


def _placeholder(number: int, marks: Marks, tokens: int) -> Instruction:
    """An instruction of the usual length, with an answer, which some methods learn from."""
    text = f"{marks.of(tokens, tokens)}{number}"
    return Instruction(f"placeholder-{number}", text, "any", answer=f"{text} answer")


@lru_cache(maxsize=16)
def rehearsal(settings: str, members: tuple[Member, ...], tokens: int) -> Rehearsal:
    """The rehearsal of a configuration as JSON; its instructions are cut down to a few."""
    config = Config.model_validate_json(settings)
    wanted = wanted_of(config, 1)
    if wanted and "instructions" in USES[config.method]:
        section, key = wanted[0].split(".")
        part = getattr(config, section).model_copy(update={key: FEW})
        config = config.model_copy(update={section: part})
    return Rehearsal(config, members, tokens)


def rehearsed_rounds(
    config: Config, members: Sequence[Member], instruction_tokens: int, available: int | None
) -> tuple[Round, ...]:
    """The rounds of a run of any method that trains; one empty round where none does.

    ``available``: how many instructions there are, where that is known.
    """
    if not trains(config):
        return (Round("", 1, ()),)
    settings = config.model_dump_json(exclude=_ELSEWHERE)
    whole = rehearsal(settings, tuple(members), instruction_tokens)
    rounds = []
    for number, count in whole.alike(config.iterations):
        each = (wanted_of(config, number) or ("", 0))[1]
        if "instructions" not in USES[config.method]:
            each = FEW  # its rows are those of a file: nothing is scaled
        elif available is not None:
            each = min(each, available)
        demands = tuple(whole.demands(number, each / FEW))
        trainings = tuple(_trainings(whole, number, each / FEW, config))
        name = "" if count == config.iterations else _name(number, count)
        asked = each if "instructions" in USES[config.method] else 0
        rounds.append(Round(name, count, demands, trainings, asked))
    return tuple(rounds)


def answering_demands(
    config: Config,
    members: Sequence[Member],
    instruction_tokens: int,
    items: int,
    free: int = 0,
) -> tuple[Demand, ...]:
    """Requests with which a method that answers together is measured on so many items.

    ``free``: those of the items on whose answers nobody can vote.
    """
    settings = config.model_dump_json(exclude=_ELSEWHERE)
    whole = rehearsal(settings, tuple(members), instruction_tokens)
    answer = METHODS[config.method].answer
    if answer is None:
        return ()
    want = Sampling(0, 1, 0, config.evaluate.max_new_tokens)
    texts = [_placeholder(n, whole.marks, instruction_tokens) for n in range(FEW)]
    able = [member.name for member in contestants(members)]
    best = able[0] if able else ""
    place, demands = ("evaluate", 0), list[Demand]()
    for read, count in ((str.strip, items - free), (None, free)):
        questions = [Question(one.id, (Message("user", one.text),), read) for one in texts]
        stand = Stand(whole.marks, whole.config)
        if count:
            answer(questions, members, stand, whole.config, best=best, want=want, place=place)
        demands += _grouped(stand.asked.values(), whole, count / FEW)
    return tuple(demands)


def _name(first: int, count: int) -> str:
    last = first + count - 1
    return f"iteration {first}" if count == 1 else f"{first} to {last}, each"


# Requests ----------------------------------------------------------------------------------------


def _grouped(
    asked: Iterable[tuple[str, Request]], whole: Rehearsal, times: float
) -> Iterator[Demand]:
    """One for each phase, member and purpose, in the order in which they are asked."""
    groups: dict[tuple[str, str, str, str], list[Request]] = {}
    for phase, request in asked:
        key = (phase, request.member.name, request.purpose, request.want.kind)
        groups.setdefault(key, []).append(request)
    for (phase, member, purpose, _), mine in groups.items():
        read = [whole.marks.tokens(*_read(request)) for request in mine]
        written = max(_written(request) for request in mine)
        usual = ceil(written * USUAL_SHARE)
        if written and mine[0].want == sampling(whole.config.judge):
            usual = min(written, VERDICT_TOKENS)  # a score or a verdict, and few words
        scored = [
            whole.marks.tokens(request.want.completion).most
            for request in mine
            if isinstance(request.want, Likelihood)
        ]
        options = isinstance(mine[0].want, Options)
        yield Demand(
            member=member,
            purpose=purpose,
            requests=len(mine) * times,
            read=sum(one.most for one in read) / len(read),
            written=written,
            usual_read=sum(one.usual for one in read) / len(read),
            usual=usual,
            longest=usual if usual == VERDICT_TOKENS else written,
            phase=phase,
            unguided=whole.config.judge.max_new_tokens if options else 0,
            scored=ceil(max(scored, default=0)),
        )


def _read(request: Request) -> Iterator[str]:
    """Every text that goes through the model before it writes."""
    yield from (message.content for message in request.messages)
    want = request.want
    if isinstance(want, Likelihood):
        yield want.completion
    elif isinstance(want, Reward):
        yield from (want.response, want.rival or "")


def _written(request: Request) -> int:
    want = request.want
    return want.max_new_tokens if isinstance(want, Sampling | UserTurn) else 0


# Trainings ---------------------------------------------------------------------------------------


def _trainings(whole: Rehearsal, number: int, times: float, config: Config) -> Iterator[Training]:
    """One for each section of settings by which somebody learns."""
    if config.train.method == "none":
        return
    result = whole.of(number).result
    read = {row.id for row in whole.given(number)}
    groups: dict[tuple[str, str], dict[str, list[_Example]]] = {}
    for name, lesson in whole.lessons(number).items():
        kind, _, builder = lesson.partition(":")
        if kind in ("demonstrations", "rated"):
            place = ("tune", "sft") if kind == "demonstrations" else ("train", "grpo")
            rows = [row for row in result.demonstrations if row.builder == builder]
            texts = [_of_row(row, whole.marks, row.id in read) for row in rows]
        else:
            place = ("train", config.pair_section)
            pairs = [p for p in result.pairs if p.drop != "margin_rank"]  # a share, not chance
            if lesson == "own pairs":
                pairs = [p for p in pairs if name in (p.chosen_member, p.rejected_member)]
            texts = [_of_pair(pair, whole.marks, pair.id in read) for pair in pairs]
        groups.setdefault(place, {})[name] = texts
    for (phase, section), learned in groups.items():
        settings: OptimiserSettings = (
            config.pair_training if section == config.pair_section else getattr(config, section)
        )
        texts = [one for mine in learned.values() for one in mine]
        if not texts:
            continue
        examples = {
            name: ceil(sum(1 if one.given else times for one in mine))
            for name, mine in learned.items()
        }
        yield Training(
            phase=phase,
            settings=settings,
            examples=examples,
            texts=2 if section == "train" else 1,
            most=sum(one.prompt.most + one.response.most for one in texts) / len(texts),
            usual=sum(one.prompt.usual + one.response.usual for one in texts) / len(texts),
            long=max(
                long_text(settings, one.prompt.usual, ceil(one.response.most)) for one in texts
            ),
        )


@dataclass(frozen=True, slots=True)
class _Example:
    """Tokens of what is learned; of a pair the mean of both responses. ``given``: from a file."""

    prompt: Tokens
    response: Tokens
    given: bool


def _of_row(row: Demonstration, marks: Marks, given: bool) -> _Example:
    turns = (message.content for message in row.history)
    return _Example(marks.tokens(row.prompt, *turns), marks.tokens(row.response), given)


def _of_pair(pair: PreferencePair, marks: Marks, given: bool) -> _Example:
    both = [marks.tokens(text) for text in (pair.chosen, pair.rejected)]
    mean = Tokens(sum(one.most for one in both) / 2, sum(one.usual for one in both) / 2)
    return _Example(marks.tokens(pair.instruction.text), mean, given)
