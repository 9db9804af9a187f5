"""Who compares two responses for a tournament: the mixture, one pairwise judge, or a ranker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from phalanx.collective import moa_reward
from phalanx.collective.conversation import earlier_answers, judged_turns
from phalanx.collective.criteria import Choice
from phalanx.collective.judging import judge_requests, read_judgment, read_reward
from phalanx.config.schema import JudgeSettings
from phalanx.identity import content_id, derive_seed
from phalanx.types import Ask, Duel, Judgment, Member, Request, Response, Reward

RANKER = "ranker"
"""The flag of a reward model's replies, failed ones too: it scores pairs and no single response."""

Texts = tuple[str, str]
Place = tuple[Any, ...]


class Compare(Protocol):
    """Judges duels, one judgment each, in order; ``suffix`` is that of the phases asked."""

    def judge(
        self, duels: Sequence[Duel], texts: Sequence[Texts], suffix: str
    ) -> Sequence[Judgment]: ...

    def metrics(self) -> dict[str, float]: ...


class ByPanel:
    """The mixture; the criteria of an instruction are chosen once in a run.

    ``place`` begins with the run's seed. Criteria are placed by it alone, so that every stage and
    generation, and every builder, shares one choice.
    """

    def __init__(self, panel: moa_reward.Panel, ask: Ask, place: Place) -> None:
        self._panel, self._ask, self._place = panel, ask, place
        self._choices: dict[str, Choice] = {}
        self._left_out: Counter[str] = Counter()

    def judge(
        self, duels: Sequence[Duel], texts: Sequence[Texts], suffix: str
    ) -> Sequence[Judgment]:
        new = [duel.instruction for duel in duels if duel.instruction.id not in self._choices]
        if new:
            self._choices |= moa_reward.choose(self._panel, new, self._ask, place=self._place[:1])
        found = moa_reward.judge_duels(
            self._panel, duels, texts, self._choices, self._ask, place=self._place, suffix=suffix
        )
        self._left_out.update(found.left_out)
        return found.judgments

    def metrics(self) -> dict[str, float]:
        return moa_reward.panel_metrics(self._choices, self._left_out)


class ByJudge:
    """One member by the pairwise protocol."""

    def __init__(self, judge: Member, settings: JudgeSettings, ask: Ask, place: Place) -> None:
        self._judge, self._settings, self._ask, self._place = judge, settings, ask, place

    def judge(
        self, duels: Sequence[Duel], texts: Sequence[Texts], suffix: str
    ) -> Sequence[Judgment]:
        requests = [
            judge_requests(duel, pair, self._judge, self._settings, seed_parts=self._place)
            for duel, pair in zip(duels, texts, strict=True)
        ]
        replies = iter(self._ask(f"judge{suffix}", [one for some in requests for one in some]))
        return [
            read_judgment(duel, pair, self._judge, self._settings, [next(replies) for _ in some])
            for duel, pair, some in zip(duels, texts, requests, strict=True)
        ]

    def metrics(self) -> dict[str, float]:
        return {}


class ByRanker:
    """A ranker: the logit that one response is better, in both orders; their mean decides."""

    def __init__(self, judge: Member, ask: Ask, place: Place) -> None:
        self._judge, self._ask, self._place = judge, ask, place

    def judge(
        self, duels: Sequence[Duel], texts: Sequence[Texts], suffix: str
    ) -> Sequence[Judgment]:
        requests = [
            self.request(duel, slot, shown)
            for duel, pair in zip(duels, texts, strict=True)
            for slot, shown in (("first", pair), ("second", pair[::-1]))
        ]
        replies = iter(self._ask(f"judge{suffix}", requests))
        return [self._judgment(duel, next(replies), next(replies)) for duel in duels]

    def metrics(self) -> dict[str, float]:
        return {}

    def request(self, duel: Duel, slot: str, shown: Texts) -> Request:
        """One order, ``first`` or ``second``, of a duel, whose texts it ``shown`` in that order."""
        messages = self._judge.conversation(judged_turns(duel.instruction))
        want = Reward(*shown)
        here = ("judge", *self._place, duel.id, self._judge.key, "reward", slot)
        return Request(
            id=content_id(*here, messages, want),
            member=self._judge,
            messages=messages,
            want=want,
            purpose="judge",
            seed=derive_seed(*here),
            shortenable=(*shown, *earlier_answers(duel.instruction)),
        )

    def _judgment(self, duel: Duel, first: Response, second: Response) -> Judgment:
        slots = {"first": first, "second": second}
        faults = [(slot, read_reward(reply)[1]) for slot, reply in slots.items()]
        reasons = [f"{slot}: {why}" for slot, why in faults if why]
        half = flipped = None
        if not reasons:
            half = (first.reward - second.reward) / 4
            # Both prefer what stood first, or both what stood second.
            flipped = first.reward * second.reward > 0
        shortened = any(reply.num_shortened_tokens > 0 for reply in slots.values())
        return Judgment(
            duel_id=duel.id,
            judge=self._judge.name,
            protocol="reward",
            score_left=half,
            score_right=None if half is None else -half,
            reason="; ".join(reasons),
            flipped=bool(flipped),
            raw={slot: reply.said for slot, reply in slots.items()},
            flags=(RANKER, "shortened") if shortened else (RANKER,),
            requests={slot: reply.request_id for slot, reply in slots.items()},
        )
