"""Whose answer is best: judges choose one of several answers to each conversation.

Two ways. :func:`choose` has judges compare every two answers and decide by ``aggregate``, which is
for the answers of several members, each judged by whoever is in neither side. In :func:`by_voices`
every judge ranks all answers and has one voice for its best, which is for several answers of one
member, to answer with (best of n) or to learn from (rejection sampling), and costs a judge that
scores each response no more than one request for each.

Nobody judges an answer of their own. Of equally good ones one is drawn by the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from phalanx.collective.conversation import transcript
from phalanx.collective.council import writers
from phalanx.collective.hearing import heard_by
from phalanx.collective.ownwords import answer_alone
from phalanx.collective.panel import decide
from phalanx.collective.ranking import Candidate, Ranked, distinct
from phalanx.collective.referee import MOA, Several, rank_by_each
from phalanx.config.schema import Config
from phalanx.identity import content_id, derive_seed, derived_random
from phalanx.types import Ask, Duel, Instruction, Judgment, Member, Message, Outcome, Response

Group = tuple[Instruction, Sequence[Candidate]]
"""What was asked, and the answers to it, named after the members that wrote them (``ada#2``)."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """``at`` is the position of the candidate that judges like best; None without a verdict.

    ``reason`` says why there is none, or "drawn" where several were equally good. Of
    :func:`by_voices`, ``num_voices`` are the judges with a voice, ``num_silent`` those that were
    asked and did not say of every answer something that can be read.
    """

    at: int | None
    reason: str = ""
    num_voices: int = 0
    num_silent: int = 0

    @property
    def counts(self) -> dict[str, int]:
        drawn = int(self.reason == "drawn")
        return {"voices": self.num_voices, "silent": self.num_silent, "drawn": drawn}


def shown_to_judges(turns: Sequence[Message]) -> Instruction:
    """A conversation as judges see it: its last user turn, or a transcript with all turns."""
    text = turns[-1].content
    if len(turns) == 1:
        return Instruction(content_id(text), text)
    written = transcript(turns, derive_seed("best_of", *turns))
    return Instruction(content_id(*turns), written, turns=tuple(turns))


def candidate(name: str, reply: Response) -> Candidate:
    """A member's answer as judges compare it: without reasoning that goes before it."""
    text = answer_alone(reply.text or "") if reply.error is None else ""
    failed = reply.error.kind if reply.error else ""
    return Candidate(name, text, reply.request_id, reply.truncated, failed)


def choose(
    groups: Sequence[Group],
    judges: Sequence[Member],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    reputations: Mapping[str, float],
) -> list[Chosen]:
    """The best candidate of each group; ``members`` are everybody there is at the start.

    With ``judge.protocol: moa``, or one judge who is no candidate, that one ranks them.
    Otherwise every two are a duel before all judges who are in neither side of it, decided by
    ``aggregate``, and the largest share of duels won is best: judges of different severity count
    the same. Of equals one is drawn by the seed.
    """
    names = {one.name for _, candidates in groups for one in candidates}
    outside = [judge for judge in judges if judge.name not in names]
    if config.judge.protocol == MOA:
        scores = _ranked(MOA, groups, members, ask, config)
    elif len(judges) == 1 and outside:
        scores = _ranked(outside[0].name, groups, outside, ask, config)
    else:
        scores = _by_duels(groups, judges, ask, config, reputations)
    return [
        _first_of(instruction, candidates, mine, config.seed)
        for (instruction, candidates), mine in zip(groups, scores, strict=True)
    ]


def _ranked(
    judge: str, groups: Sequence[Group], members: Sequence[Member], ask: Ask, config: Config
) -> list[Sequence[float | None]]:
    place = (config.seed, "best_of")
    found = rank_by_each(groups, [[judge]] * len(groups), members, ask, config, place=place)
    return [
        ranked[judge].scores if ranked else [None] * len(candidates)
        for (_, candidates), ranked in zip(groups, found.ranked, strict=True)
    ]


def _by_duels(
    groups: Sequence[Group],
    judges: Sequence[Member],
    ask: Ask,
    config: Config,
    reputations: Mapping[str, float],
) -> list[Sequence[float | None]]:
    """The share of duels that each candidate won (a tie is half a win); None without any.

    Who wrote the same as one side judges it no more than its writer does. Where that leaves no
    judge, the side that more of the members wrote wins: what they wrote is all they have to say.
    """
    asked: list[tuple[Duel, tuple[str, str], list[Member]]] = []
    settled: dict[str, Outcome] = {}
    for number, (instruction, candidates) in enumerate(groups):
        for left, right in combinations(distinct(candidates), 2):
            one, two = candidates[left], candidates[right]
            key = content_id("best_of", config.seed, number, instruction.id, one, two)
            duel = Duel(key, instruction, one.name, two.name, matched="ranking")
            lefts, rights = writers(one, candidates), writers(two, candidates)
            mine = [judge for judge in judges if judge.name not in lefts | rights]
            asked.append((duel, (one.text, two.text), mine))
            if not mine:
                settled[key] = _by_number(key, len(lefts), len(rights))
    outcomes = _outcomes(asked, settled, judges, ask, config, reputations)
    duels = iter([duel for duel, *_ in asked])
    return [_shares(candidates, duels, outcomes) for _, candidates in groups]


def _by_number(key: str, lefts: int, rights: int) -> Outcome:
    if lefts == rights:
        return Outcome(key, "tie", reason="no judge")
    return Outcome(key, "decided", "left" if lefts > rights else "right", reason="no judge")


def _outcomes(
    asked: Sequence[tuple[Duel, tuple[str, str], list[Member]]],
    settled: Mapping[str, Outcome],
    judges: Sequence[Member],
    ask: Ask,
    config: Config,
    reputations: Mapping[str, float],
) -> dict[str, Outcome]:
    """Reward models score; everybody else judges by ``judge.protocol``."""
    place, judgments = (config.seed, "best_of"), list[Judgment]()
    of_rewards = config.judge.model_copy(update={"protocol": "reward", "template": None})
    for settings, scorers in ((config.judge, False), (of_rewards, True)):
        some = [
            (duel, pair, [judge for judge in mine if (judge.engine == "reward") == scorers])
            for duel, pair, mine in asked
        ]
        if any(mine for *_, mine in some):
            judgments += heard_by(some, settings, ask, place)
    reputations = {judge.name: reputations[judge.name] for judge in judges}
    found, _ = decide(
        [duel for duel, *_ in asked],
        settled,
        judgments,
        list(reputations),
        config.aggregate,
        quorum=config.judge.quorum,
        reputations=reputations,
    )
    return found


def _shares(
    candidates: Sequence[Candidate], duels: Iterator[Duel], outcomes: Mapping[str, Outcome]
) -> list[float | None]:
    won, met = [0.0] * len(candidates), [0] * len(candidates)
    for left, right in combinations(distinct(candidates), 2):
        outcome = outcomes[next(duels).id]
        if outcome.status not in ("decided", "tie"):
            continue
        points = {"left": 1.0, "right": 0.0, None: 0.5}[outcome.winner]
        won[left] += points
        won[right] += 1 - points
        met[left] += 1
        met[right] += 1
    return [wins / games if games else None for wins, games in zip(won, met, strict=True)]


def _first_of(
    instruction: Instruction,
    candidates: Sequence[Candidate],
    scores: Sequence[float | Fraction | None],
    *place: Any,
) -> Chosen:
    options = distinct(candidates)
    if not options:
        failed = next((one.failed for one in candidates if one.failed), "")
        return Chosen(None, failed or "empty")
    if len(options) == 1:
        return Chosen(options[0])
    known = {at: score for at in options if (score := scores[at]) is not None}
    if not known:
        return Chosen(None, "no verdict")
    top = [at for at, score in known.items() if score == max(known.values())]
    if len(top) == 1:
        return Chosen(top[0])
    texts = [candidates[at].name for at in top]
    drawn = derived_random("best_of", *place, instruction.id, texts).choice(top)
    return Chosen(drawn, "drawn")


# One voice each ----------------------------------------------------------------------------------


def by_voices(
    groups: Sequence[Group],
    judges: Collection[str],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    place: tuple,
) -> tuple[list[Chosen], Several]:
    """The candidate of each group that most judges like best, and what they said.

    ``judges`` are names of members, or ``moa`` for the panel of ``reward``; none of them is asked
    about a group with an answer of its own. Who likes several equally well shares its voice among
    them. Where fewer than the share ``judge.quorum`` of those asked have a voice there is no
    verdict. ``place`` is where in the work this happens, the run seed first. Raises ConfigError as
    :func:`rank_by_each`.
    """
    own = [{one.name.partition("#")[0] for one in candidates} for _, candidates in groups]
    others = [[judge for judge in judges if judge not in mine] for mine in own]
    said = rank_by_each(groups, others, members, ask, config, place=place)
    chosen = [
        _loudest(instruction, candidates, [*ranked.values()], config.judge.quorum, place)
        for (instruction, candidates), ranked in zip(groups, said.ranked, strict=True)
    ]
    return chosen, said


def _loudest(
    instruction: Instruction,
    candidates: Sequence[Candidate],
    ranked: Sequence[Ranked],
    quorum: float,
    place: tuple,
) -> Chosen:
    options = distinct(candidates)
    voices: Counter[int] = Counter()
    silent = 0
    for one in ranked:
        known = {at: score for at in options if (score := one.scores[at]) is not None}
        if len(known) < len(options):  # it may like best what is missing
            silent += 1
            continue
        top = [at for at, score in known.items() if score == max(known.values())]
        for at in top:
            voices[at] += Fraction(1, len(top))
    enough = voices and len(ranked) - silent >= quorum * len(ranked) - 1e-12
    scores = [voices[at] if enough else None for at in range(len(candidates))]
    chosen = _first_of(instruction, candidates, scores, *place)
    return replace(chosen, num_voices=len(ranked) - silent, num_silent=silent)
