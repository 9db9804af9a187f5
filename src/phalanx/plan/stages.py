"""How much the stages of moaa are to do, and the rounds of whatever method a run has.

Counts are those of a stage in which nothing fails: failed proposals, ties and identical responses
make it less, and so does a conversation of ``best_of`` that is by chance that of a teacher alone.
An answer of a teacher that several builders need is one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.collective.ranking import most_comparisons
from phalanx.config.mixing import (
    MIXTURE,
    MOA,
    TEACHER,
    USER_TURN_TOKENS,
    longest_answer,
    panel_of,
    pool_settings,
    proposers_of,
    ranker_of,
    rewriter_of,
    selector_of,
    students_of,
    teachers_of,
    verdict_of,
)
from phalanx.config.schema import Config, StudentSettings
from phalanx.config.staging import joining, lesson, stage_of
from phalanx.config.uses import ANSWERING
from phalanx.plan.rounds import (
    USUAL_SHARE,
    Demand,
    Round,
    Training,
    long_text,
    writing,
)
from phalanx.plan.work import duel_rounds, judging, trained
from phalanx.pool import measured
from phalanx.types import Member

AGGREGATE_TOKENS = 150
"""Tokens of the instruction to aggregators."""
PROMPT_TOKENS = 200
"""Tokens of a prompt around what is evaluated, decided or mended."""
CRITERIA_TOKENS = 400
"""Tokens of the list of criteria, and of the question which ones matter."""
CHOSEN_TOKENS = 25
"""Tokens of a criterion as evaluators see it."""

Tokens = tuple[float, float]
"""(at most, usually)."""


def rounds_of(
    config: Config,
    members: Sequence[Member],
    instruction_tokens: int,
    turns: float = 1.0,
    available: int | None = None,
) -> tuple[Round, ...]:
    """The rounds of a run, by its method. ``turns``: user turns of an instruction, on average.

    ``available``: how many instructions there are, where that is known: all but duels take none
    of them twice in an iteration.
    """
    if config.method == "sparta":
        return duel_rounds(config, members, instruction_tokens)
    if config.method != "moaa":
        from phalanx.plan.rehearsal import rehearsed_rounds  # it loads every method

        return rehearsed_rounds(config, members, instruction_tokens, available)
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for number in range(1, config.iterations + 1):
        kind = stage_of(config, number).kind
        key = (kind, joining(config, number) if kind == "sft" else ())
        counts[key] = counts.get(key, 0) + 1
    stages = _Stages(config, tuple(members), instruction_tokens, turns, available)
    return tuple(
        stages.sft(count, joined) if kind == "sft" else stages.dpo(count)
        for (kind, joined), count in counts.items()
    )


def rankers_of(config: Config) -> Iterator[str]:
    """What a reward model is sent where it compares two responses: only its files say that."""
    engines = {member.name: member.engine for member in pool_settings(config)}
    kinds = {stage_of(config, number + 1).kind for number in range(config.iterations)}
    asked: dict[tuple[str, str], int] = {}
    if "sft" in kinds and any(s.data == "best_of" for s in students_of(config)):
        asked["sft", ranker_of(config)] = len(teachers_of(config))
    if "dpo" in kinds:
        asked |= {("dpo", s.reward): config.reward.samples for s in students_of(config)}
    for (kind, name), candidates in asked.items():
        pairs = most_comparisons(config.reward.ranking, candidates)
        if engines.get(name) == "reward" and pairs:
            yield (
                f"{name}: a stage {kind} is planned for a model that scores each response alone, "
                f"{candidates} requests for each instruction; a ranker of pairs, such as PairRM, "
                f"is sent {2 * pairs}"
            )


def mixing(
    config: Config,
    layers: Sequence[Sequence[str]],
    count: float,
    prompt: Tokens,
    last: int,
    lead: str = "",
    first: Sequence[str] | None = None,
) -> Iterator[Demand]:
    """The requests of ``count`` answers of a mixture, of at most ``last`` tokens.

    ``first``: who of the first layer is asked, where the others have answered before.
    """
    settings = config.mixture
    one = settings.propose.max_new_tokens
    shown = 0
    for number, layer in enumerate(layers, start=1):
        read = _with_proposals(prompt, shown, one)
        for name in layer:
            asked = count if number > 1 or first is None or name in first else 0.0
            requests = asked * settings.samples
            yield writing(name, "propose", requests, read, one, f"{lead}propose {number}")
        shown = len(layer) * settings.samples
    read = _with_proposals(prompt, shown, one)
    yield writing(settings.aggregator, "aggregate", count, read, last, f"{lead}aggregate")


def _with_proposals(prompt: Tokens, shown: int, tokens: int) -> Tokens:
    if not shown:
        return prompt
    most, usual = prompt
    more = AGGREGATE_TOKENS + shown * tokens
    return most + more, usual + AGGREGATE_TOKENS + shown * ceil(tokens * USUAL_SHARE)


def _usual(tokens: int) -> tuple[int, int]:
    return tokens, ceil(tokens * USUAL_SHARE)


@dataclass(frozen=True)
class _Stages:
    """What both kinds of stages have in common."""

    config: Config
    members: tuple[Member, ...]
    tokens: int
    turns: float
    available: int | None = None

    @property
    def students(self) -> tuple[StudentSettings, ...]:
        return students_of(self.config)

    @property
    def later(self) -> float:
        """User turns after the first."""
        return max(0.0, self.turns - 1)

    def instructions(self, kind: str) -> int:
        """Instructions of a stage: as many as it wants, but none twice."""
        settings = self.config.moaa
        wanted = settings.sft_instructions if kind == "sft" else settings.dpo_instructions
        return wanted if self.available is None else min(wanted, self.available)

    def conversation(self, answered: float, data: str = MIXTURE) -> Tokens:
        """A user turn and what stood before it, after ``answered`` answers on average."""
        most, usual = _usual(longest_answer(self.config, data)[1])
        return (
            self.tokens + answered * (self.tokens + most),
            self.tokens + answered * (self.tokens + usual),
        )

    # sft -----------------------------------------------------------------------------------------

    def sft(self, count: int, joined: tuple[str, ...]) -> Round:
        config, number = self.config, self.instructions("sft")
        builders = {student.data for student in self.students} - {"none"}
        layers, prompt = proposers_of(config, joined), self.conversation(self.later / 2)
        alone = self.conversation(self.later / 2, "best_of")
        demands: list[Demand] = []
        if MIXTURE in builders:
            last = config.mixture.aggregate.max_new_tokens
            demands += mixing(config, layers, number * self.turns, prompt, last)
        teachers = teachers_of(config)
        demands += self._teachers(builders, layers, teachers, alone)
        if "best_of" in builders:
            answers = _usual(config.mixture.propose.max_new_tokens)
            groups = number * self.turns
            ranker, calls = ranker_of(config), ceil(self.turns)
            demands += self._ranking(ranker, groups, len(teachers), alone, answers, calls=calls)
        demands += self._mending(builders, teachers)
        name = "sft, students propose" if joined else "sft"
        trainings = self._tuning(len(teachers))
        return Round(name, count, tuple(demands), trainings, number)

    def _teachers(
        self,
        builders: set[str],
        layers: Sequence[Sequence[str]],
        teachers: Sequence[str],
        prompt: Tokens,
    ) -> Iterator[Demand]:
        """Answers of single teachers that are no proposals of the mixture's first layer."""
        settings, number = self.config.mixture, self.instructions("sft")
        proposing = set(layers[0]) if layers and MIXTURE in builders else set()
        best = float("best_of" in builders)
        names = dict.fromkeys([*teachers, *(b.removeprefix(TEACHER) for b in sorted(builders)
                                            if b.startswith(TEACHER))])  # fmt: skip
        for name in names:
            own = self._own_conversations(name, builders, teachers)
            first = 0.0 if name in proposing else max(own, best)
            requests = number * (first + self.later * (own + best))
            if requests:
                most = settings.propose.max_new_tokens
                yield writing(name, "propose", requests, prompt, most, "teachers")

    def _own_conversations(self, name: str, builders: set[str], teachers: Sequence[str]) -> float:
        """Conversations of a teacher alone for each instruction, whichever builders want them."""
        if f"{TEACHER}{name}" in builders or ("combined" in builders and name in teachers):
            return 1.0
        return 1 / len(teachers) if "random" in builders and name in teachers else 0.0

    def _mending(self, builders: set[str], teachers: Sequence[str]) -> Iterator[Demand]:
        """Does the next user turn fit, and if not, what would."""
        config = self.config
        if not builders or not self.later or config.moaa.multi_turn == "faithful":
            return
        single = {b.removeprefix(TEACHER) for b in builders if b.startswith(TEACHER)}
        names = dict.fromkeys([*teachers, *single])
        courses = sum(self._own_conversations(name, builders, teachers) for name in names)
        courses += (MIXTURE in builders) + ("best_of" in builders)
        asked = self.instructions("sft") * self.later * courses
        most, usual = max(self.conversation(self.turns / 2, data) for data in builders)
        read = (most + PROMPT_TOKENS, usual + PROMPT_TOKENS)
        member = rewriter_of(config)
        yield self._options(member, "fit", asked, read)
        if config.moaa.multi_turn == "rewrite":
            longest = min(config.mixture.aggregate.max_new_tokens, USER_TURN_TOKENS)
            yield writing(member, "rewrite", asked, read, longest)

    def _options(self, member: str, purpose: str, requests: float, read: Tokens) -> Demand:
        """Requests whose answer is read off in one forward pass, where that can be done."""
        unguided = self.config.judge.max_new_tokens
        return Demand(member, purpose, requests, read[0], 0, read[1], 0, 0, unguided=unguided)

    def _tuning(self, teachers: int) -> tuple[Training, ...]:
        """Tokens of an example are the mean over those of all students."""
        config, rows = self.config, self.instructions("sft") * self.turns
        able = {member.name for member in trained(config, self.members)}
        learning = [s for s in self.students if s.data != "none" and s.name in able]
        if not learning:
            return ()
        examples = {
            s.name: ceil(rows * (teachers if s.data == "combined" else 1)) for s in learning
        }
        most = usual = 0.0
        long = 0
        for student in learning:
            prompt = self.conversation(self.later / 2, student.data)
            written = _usual(longest_answer(config, student.data)[1])
            share = examples[student.name] / sum(examples.values())
            most += share * (prompt[0] + written[0])
            usual += share * (prompt[1] + written[1])
            long = max(long, long_text(config.sft, prompt[1], written[0]))
        return (Training("tune", config.sft, examples, 1, most, usual, long),)

    # dpo -----------------------------------------------------------------------------------------

    def dpo(self, count: int) -> Round:
        config, settings = self.config, self.config.reward
        number = self.instructions("dpo")
        learning = [student for student in self.students if student.reward != "none"]
        prompt = (float(self.tokens), float(self.tokens))
        most, usual = _usual(settings.sample.max_new_tokens)
        demands = [
            writing(student.name, "sample", number * settings.samples, prompt, most)
            for student in learning
        ]
        rewards = [student.reward for student in learning]
        for name in dict.fromkeys(rewards):
            demands += self._ranking(
                name, number, settings.samples, prompt, (most, usual), rewards.count(name)
            )
        able = {member.name for member in trained(config, self.members)}
        kept = max(1, round(number * config.pairs.keep))
        examples = {student.name: kept for student in learning if student.name in able}
        trainings = ()
        if examples:
            long = long_text(config.train, self.tokens, most)
            pair = (self.tokens + most, self.tokens + usual)
            trainings = (Training("train", config.train, examples, 2, *pair, long),)
        return Round("dpo", count, tuple(demands), trainings, number)

    def _ranking(
        self,
        judge: str,
        groups: float,
        candidates: int,
        prompt: Tokens,
        response: tuple[int, int],
        times: int = 1,
        calls: int = 1,
    ) -> Iterator[Demand]:
        """Best and worst of each group of responses; ``times`` groups share an instruction.

        Groups are ranked in as many ``calls`` of each time; in each, a reward model is asked once
        about a pair, to learn whether it scores pairs alone.
        """
        config = self.config
        pairs = groups * times * most_comparisons(config.reward.ranking, candidates)
        if judge == MOA:
            yield from self._panel(groups, pairs, prompt, response)
            return
        engine = {member.name: member.engine for member in self.members}.get(judge)
        protocol = "reward" if engine == "reward" else config.judge.protocol
        asked = 2 * pairs if protocol == "pairwise" else groups * times * candidates
        if protocol == "reward":
            asked += times * calls
        yield judging(config, judge, asked, prompt, response, protocol)

    def _panel(
        self, groups: float, pairs: float, prompt: Tokens, response: tuple[int, int]
    ) -> Iterator[Demand]:
        config, settings = self.config, self.config.reward
        written = settings.verdict == "written"
        if settings.num_criteria:
            read = (prompt[0] + CRITERIA_TOKENS, prompt[1] + CRITERIA_TOKENS)
            yield self._decision(selector_of(config), "criteria", groups, read, written)
        shown = settings.num_criteria * CHOSEN_TOKENS or CRITERIA_TOKENS
        around = PROMPT_TOKENS + shown
        read = (prompt[0] + 2 * response[0] + around, prompt[1] + 2 * response[1] + around)
        asked, panel = pairs * (2 if settings.both_orders else 1), panel_of(config)
        most, usual = _usual(settings.evaluate.max_new_tokens)
        for name in panel:
            yield writing(name, "assess", asked, read, most)
        read = (read[0] + len(panel) * most, read[1] + len(panel) * usual)
        yield self._decision(verdict_of(config), "verdict", asked, read, written)

    def _decision(
        self, member: str, purpose: str, requests: float, read: Tokens, written: bool
    ) -> Demand:
        if not written:
            return self._options(member, purpose, requests, read)
        return writing(member, purpose, requests, read, self.config.reward.verdict_tokens)


# Evaluation --------------------------------------------------------------------------------------


def measuring_of(
    config: Config,
    members: Sequence[Member],
    instruction_tokens: int,
    items: int,
    judged: int = 0,
    free: int = 0,
) -> tuple[Demand, ...]:
    """The requests of all evaluation: whoever has not changed has answered before.

    ``items`` are the requests to somebody who is measured, ``judged`` the answers of theirs that
    ``evaluate.judges`` grade, whoever of them is not the writer, and ``free`` those on which
    members could not vote.
    """
    if not items:
        return ()
    learning = {member.name for member in trained(config, members)}
    both = (float(instruction_tokens), float(instruction_tokens))
    most = config.evaluate.max_new_tokens
    demands = []
    written: dict[str, int] = {}  # answers to be graded, by their writers
    for member in measured(config, members):
        versions = 1 + _new_versions(config, member, learning)
        demands.append(writing(member.name, "evaluate", items * versions, both, most))
        written[member.name] = judged * versions
    if config.evaluate.mixture and config.mixture.aggregator:
        demands += mixing(config, proposers_of(config), items, both, most, "evaluate ")
        again = list(_mixtures_again(config, learning))
        for layers, new in again:
            demands += mixing(config, layers, items, both, most, "evaluate ", first=sorted(new))
        writer = config.mixture.aggregator
        written[writer] = written.get(writer, 0) + judged * (1 + len(again))
    if config.method in ANSWERING:
        from phalanx.plan.rehearsal import answering_demands

        together = answering_demands(config, members, instruction_tokens, items, free)
        demands += together
        # Whose words the answer will be is not known: nobody may be a judge of theirs.
        written[""] = judged
    for judge in dict.fromkeys(config.evaluate.judges) if judged else ():
        asked = sum(count for name, count in written.items() if name != judge)
        demands.append(grading(config, judge, asked, instruction_tokens))
    return tuple(demands)


def grading(config: Config, judge: str, requests: float, instruction_tokens: int) -> Demand:
    """Answers that a judge compares with the gold ones; read off in one forward pass."""
    most, usual = _usual(config.evaluate.max_new_tokens)
    around = instruction_tokens + PROMPT_TOKENS
    return Demand(
        judge, "grade", requests, around + most, 0, around + usual, 0, 0,
        phase="evaluate grade", unguided=config.judge.max_new_tokens,
    )  # fmt: skip


def _measured(config: Config) -> list[int]:
    """Iterations after which members are measured."""
    every, last = config.evaluate.every, config.iterations
    return [number for number in range(1, last + 1) if number % every == 0 or number == last]


def _new_versions(config: Config, member: Member, learning: set[str]) -> int:
    """How often a member is measured as somebody new, after the start."""
    if config.method == "sparta":  # at most
        return 0 if member.engine == "openai" else len(_measured(config))
    if member.name not in learning:
        return 0
    lesson_of = lesson
    if config.method != "moaa":
        from phalanx.methods import METHODS

        lesson_of = METHODS[config.method].lesson
    versions, count = [0], 0
    for number in range(1, config.iterations + 1):
        count += bool(lesson_of(config, number, member.name))
        versions.append(count)
    return len({versions[number] for number in _measured(config)} - {0})


def _mixtures_again(
    config: Config, learning: set[str]
) -> Iterator[tuple[Sequence[Sequence[str]], set[str]]]:
    """(layers, who is new) of the mixture after each generation (or measured iteration), where
    somebody in it is new."""
    measured = _measured(config)
    moaa = config.method == "moaa"
    if moaa:
        measured = [n for n in measured if n % len(config.moaa.stages) == 0]
        if config.moaa.self_improve == "off":
            return
    for number in measured:
        joined = joining(config, number + 1) if moaa else ()
        if new := learning & {*teachers_of(config), *joined}:
            yield proposers_of(config, joined), new
