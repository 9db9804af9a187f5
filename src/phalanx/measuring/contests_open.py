"""Open tasks: any prompts, every member against the baseline, by ``judge.protocol``.

A pairwise judge sees both orders, and orders that disagree are a tie. A judge that scores each
answer alone (``rubric``, ``expected``, ``likelihood``, a reward model) prefers the higher score;
how much higher is kept, since the scores of one model alone say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.collective.conversation import Answer
from phalanx.collective.judging import read_written_verdict
from phalanx.collective.ranking import Candidate
from phalanx.collective.reading import SCORES
from phalanx.collective.referee import rank_by
from phalanx.config.schema import Config
from phalanx.measuring.contests_judging import Bench, Match, Row, Verdict, row, settled
from phalanx.types import Duel, Instruction, Judgment, Member, Response

SCORED = "scores"
"""The game of a judge that scores each answer alone; its label is the difference of the scores."""
ORDERS = ("first", "second")


def comparisons(matches: Sequence[Match], bench: Bench) -> list[Row]:
    """The rows of every judge on every match that it may judge."""
    rows: list[Row] = []
    for judge in dict.fromkeys(judge for match in matches for judge in match.judges):
        mine = [match for match in matches if judge in match.judges]
        open_ = [match for match in mine if settled(match) is None]
        found = iter(_judged(open_, judge, bench))
        for match in mine:
            known = settled(match)
            if known is None:
                rows += next(found)
            else:
                games = ORDERS if pairwise(judge, bench.config) else (SCORED,)
                label = repr(0.0) if known.value == 0.5 and games == (SCORED,) else ""
                verdict = Verdict(known.value, label, known.reason)
                rows += [row(match, judge.name, game, verdict, "") for game in games]
    return rows


def pairwise(judge: Member, config: Config) -> bool:
    """Whether this judge sees two answers side by side; a reward model never does."""
    return config.judge.protocol == "pairwise" and judge.engine != "reward"


def _judged(matches: Sequence[Match], judge: Member, bench: Bench) -> Iterator[list[Row]]:
    """The rows of one judge on matches that it has to look at, match by match."""
    groups = [
        (
            Instruction(match.question.id, match.question.turns[0], match.question.group),
            (_candidate(match.member, match.answers[0]), _candidate(match.rival, match.others[0])),
        )
        for match in matches
    ]
    if not groups:
        return
    reward = bench.config.reward.model_copy(update={"ranking": "round_robin"})
    config = bench.config.model_copy(update={"reward": reward})
    place = (config.seed, "contest", bench.task.name)
    found = rank_by(judge.name, groups, [judge], bench.ask, config, place=place)
    for match, duel, judgment in zip(matches, found.duels, found.judgments, strict=True):
        yield list(_rows(match, duel, judgment, bench))


def _candidate(name: str, answer: Answer) -> Candidate:
    return Candidate(name, answer.text, answer.response_id, answer.truncated)


def _rows(match: Match, duel: Duel, judgment: Judgment, bench: Bench) -> Iterator[Row]:
    """One row an order of a pairwise judge, or one of the scores."""
    left = duel.left == match.member
    if judgment.protocol != "pairwise":
        yield row(match, judgment.judge, SCORED, _by_scores(judgment, left), _first(judgment))
        return
    replies = bench.ledger.responses(list(judgment.requests.values()))
    for slot, key in judgment.requests.items():
        # The first order shows the left answer as A.
        first = left == (slot == "first")
        verdict = _in_order(replies[key][0], first)
        yield row(match, judgment.judge, ORDERS[not first], verdict, key)


def _in_order(reply: Response, member_first: bool) -> Verdict:
    """The member's share of the win in one order."""
    verdict, reason = read_written_verdict(reply)
    of_a, of_b = SCORES[verdict]
    odd = "shortened" if reply.num_shortened_tokens and verdict else ""
    return Verdict(of_a if member_first else of_b, verdict or "", reason or odd)


def _by_scores(judgment: Judgment, left: bool) -> Verdict:
    one, other = judgment.score_left, judgment.score_right
    if one is None or other is None:
        return Verdict(None, "", judgment.reason or "no score")
    difference = one - other if left else other - one
    share = 0.5 if difference == 0 else float(difference > 0)
    return Verdict(share, repr(difference), "shortened" if "shortened" in judgment.flags else "")


def _first(judgment: Judgment) -> str:
    return next(iter(judgment.requests.values()), "")
