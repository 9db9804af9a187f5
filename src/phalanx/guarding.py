"""The guards of a run: numbers from its ledger to the rules, and what follows where one fires.

``warn`` says it, ``pause`` and ``stop`` end the process. Whatever fired is an event of the ledger
and stands in its fact ``guards``; there the next start sees what was said already, what it goes on
from after a pause, and which training it need not begin again. All of it is of the newest
iteration: what was let pass once is not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import shorten

from phalanx import pool
from phalanx.collective import alarms
from phalanx.collective.alarms import FACT, Course, Fired, Place
from phalanx.collective.gaps import above, advice, too_many, unreadable_limit
from phalanx.collective.judging import why_unread
from phalanx.collective.reputation import initial_standing
from phalanx.config.rules_guarding import JUDGED_ALONE
from phalanx.config.schema import Config
from phalanx.dispatch import Heard
from phalanx.errors import GuardError, JudgmentError, LossError, UnreadableError
from phalanx.ledger import Ledger
from phalanx.training import TrainJob
from phalanx.training.jobs import NOT_FINITE
from phalanx.types import (
    IterationResult,
    Judgment,
    Member,
    Progress,
    Request,
    Response,
    Reward,
    Standing,
    TrainResult,
)

EVENT = "guard"
"""Kind of the ledger's event for what fired."""


class Guards:
    """What the configuration says must not go on, over the ledger of one run."""

    def __init__(self, config: Config, ledger: Ledger, progress: Progress) -> None:
        self._config, self._ledger, self._progress = config, ledger, progress

    # Judging -------------------------------------------------------------------------------------

    def hearing(self, number: int) -> Heard | None:
        """Ends judging once more replies are unreadable than the limit allows, whatever the rest
        will say: it stops no run that would pass at the end.

        Sparta's judges alone, who answer one duel in two replies each. None: nothing to listen to.
        """
        limit, _ = unreadable_limit(self._config)
        place = ("max_unreadable", number, "judgments")
        waits = self._action("max_unreadable") == "warn" or self._lets_pass(place)
        if self._config.method != "sparta" or limit >= 1 or waits:
            return None
        unread: list[Judgment] = []
        left: dict[str, int] = {}
        settings = self._config.judge

        def heard(phase: str, asked: int, replies: Sequence[tuple[Request, Response]]) -> None:
            if phase != "judge" or left.get(phase) == 0:
                return
            left[phase] = left.get(phase, asked) - len(replies)
            for request, reply in replies:
                # What a ranker says of a pair is read otherwise.
                score = isinstance(request.want, Reward) and not reply.error
                if why := "" if score else why_unread(settings, reply):
                    said = {"reply": reply.said}
                    unread.append(Judgment("", request.member.name, settings.protocol, None, None,
                                           why, raw=said))  # fmt: skip
            if left[phase] and len(unread) / asked > limit:
                # Each of two replies spoils a judgment: at least this share is unreadable, and as
                # things are at most twice the share of those heard.
                count, most = len(unread), min(1.0, 2 * len(unread) / (asked - left[phase]))
                left[phase] = 0  # what is under way still ends, and is told nobody
                what = "replies of judges"
                self._refuse(number, "judgments", unread, count, asked, what, most, "at least ")

        return heard

    def judged(self, result: IterationResult, number: int) -> None:
        """Before an iteration is recorded. Raises UnreadableError where too much of what judges
        said could not be read, and JudgmentError where no duel has an outcome.

        Rankings by scores have one judgment a group, of best and worst; there the scores count.
        """
        counts, (limit, _) = result.metrics, unreadable_limit(self._config)
        for what, given, lacking in (
            ("judgments", "num_judgments", "num_unreadable"),
            ("scores", "scores.asked", "scores.unreadable"),
            ("verdicts on judgments", "meta.asked", "meta.unreadable"),
        ):
            asked, unreadable = int(counts.get(given, 0)), int(counts.get(lacking, 0))
            if asked and unreadable / asked > limit:
                gaps = [judgment for judgment in result.judgments if not judgment.readable]
                self._refuse(number, what, gaps, unreadable, asked, what)
        lost = [o for o in result.outcomes if o.status in ("unanswered", "no_quorum")]
        if limit < 1 and lost and len(lost) == len(result.outcomes):
            reasons = sorted({shorten(outcome.reason, 200) for outcome in lost})
            unanswered = [o.reason for o in lost if o.status == "unanswered"]
            failed = any(not reason.endswith("empty response") for reason in unanswered)
            again = "; failed ones are asked again next time" if failed else ""
            raise JudgmentError(
                f"none of {len(result.outcomes)} duels has an outcome: {'; '.join(reasons[:3])}. "
                f"Look at the responses (phalanx export RUN responses){again}"
            )

    def _refuse(
        self,
        number: int,
        where: str,
        gaps: Sequence[Judgment],
        missing: int,
        asked: int,
        what: str,
        proposed: float | None = None,
        bound: str = "",
    ) -> None:
        proposed = missing / asked if proposed is None else proposed
        limit, key = unreadable_limit(self._config)
        fired = Fired(
            "max_unreadable", where, missing / asked, limit,
            f"{bound}{missing} of {asked} {what} could not be read", advice(gaps, self._config),
            f"{key}={above(proposed)}", number,
        )  # fmt: skip
        whole = too_many(gaps, missing, asked, self._config, what, (limit, key), proposed)
        self._act(fired, bound + whole)

    # What an iteration has -----------------------------------------------------------------------

    def recorded(self, number: int) -> None:
        """Between judging and learning: flips, and how long responses are."""
        guard = self._config.guard
        if self._is_past(number):
            return
        if guard.max_flips is not None:
            self._look(alarms.flips(*self._flips(number), guard.max_flips), number)
        if guard.length_drift is not None:
            lengths = self._lengths(number)
            self._look(alarms.length_drift(lengths, number, guard.length_drift), number)

    def measured(self, number: int) -> None:
        """After the members were measured: reputations that rise while dev scores fall."""
        limit = self._config.guard.hacking
        if limit is not None and not self._is_past(number):
            self._look(alarms.hacking(self._courses(number), limit), number)

    def _is_past(self, number: int) -> bool:
        done = self._ledger.get("finished") is not None
        return done or self._ledger.count("states", "iteration > ?", (number,)) > 0

    def _flips(self, number: int) -> tuple[int, int]:
        alone = ", ".join(f"'{protocol}'" for protocol in JUDGED_ALONE)
        row = self._ledger.query(
            "SELECT coalesce(sum(flipped), 0) AS flipped, count(*) AS readable FROM judgments "
            "WHERE iteration = ? AND score_left IS NOT NULL AND score_right IS NOT NULL "
            f"AND protocol NOT IN ({alone})",
            (number,),
        )[0]
        return row["flipped"], row["readable"]

    def _lengths(self, number: int) -> dict[str, dict[int, tuple[int, float]]]:
        found: dict[str, dict[int, tuple[int, float]]] = {}
        for row in self._ledger.iterate(
            "SELECT member, iteration, count(*) AS n, avg(num_completion_tokens) AS mean "
            "FROM responses WHERE phase IN ('answer', 'sample') AND status = 'done' "
            "AND iteration BETWEEN 1 AND ? GROUP BY 1, 2",
            (number,),
        ):
            found.setdefault(row["member"], {})[row["iteration"]] = (row["n"], row["mean"] or 0.0)
        return found

    def _courses(self, number: int) -> list[Course]:
        """Of every member: from each earlier measurement to that of this iteration."""
        scores: dict[str, dict[int, dict[tuple[str, str], float]]] = {}
        for row in self._ledger.iterate(
            "SELECT member, iteration, task, item, score FROM evaluations "
            "WHERE split = 'dev' AND iteration <= ?",
            (number,),
        ):
            items = scores.setdefault(row["member"], {}).setdefault(row["iteration"], {})
            items[row["task"], row["item"]] = row["score"]
        standings = {at: self._standings_after(at) for at in range(number + 1)}
        found = []
        for member, by_iteration in scores.items():
            now = by_iteration.pop(number, {})
            for since, then in by_iteration.items():
                both = then.keys() & now.keys()
                if not both or not all(member in standings[at] for at in (since, number)):
                    continue
                found.append(
                    Course(
                        member, since,
                        (standings[since][member].value, standings[number][member].value),
                        (sum(then[one] for one in both) / len(both),
                         sum(now[one] for one in both) / len(both)),
                        len(both),
                    )
                )  # fmt: skip
        return found

    def _standings_after(self, number: int) -> Mapping[str, Standing]:
        if number == 0:
            return standings_at_start(self._config, self._ledger.members(0))
        state = self._ledger.state(number)
        return state["standings"] if state else {}

    # Training ------------------------------------------------------------------------------------

    def watched(self, number: int, jobs: Sequence[TrainJob]) -> list[TrainJob]:
        """The jobs with what ends them. Raises GuardError where one was ended that would be again:
        its training need not be repeated to know it."""
        guard = self._config.guard
        before = {one.place: one for one, _ in self._known()}
        watched = []
        for job in jobs:
            limit = guard.max_kl if guard.action.max_kl != "warn" else None
            seen = before.get(("max_kl", number, job.member.name))
            if limit is not None and seen is not None and seen.value > limit:
                seen = replace(seen, limit=limit)
                self._act(seen)
                limit = None  # it was let pass
            skip = guard.action.finite_loss == "skip"
            watched.append(replace(job, max_kl=limit, skip=skip))
        return watched

    def trained(self, number: int, results: Iterator[TrainResult]) -> Iterator[TrainResult]:
        """The results; what ended a training is recorded, and raised with its place."""
        limit = self._config.guard.max_kl
        try:
            for result in results:
                name = result.member.name
                if NOT_FINITE in result.num_dropped:
                    fired = alarms.not_finite(name, result.notes[0])
                    self._note(replace(fired, iteration=number), "skip")
                    result = replace(result, notes=result.notes[1:])
                elif limit is not None:
                    self._look(alarms.ever_too_far(name, result.steps, limit), number)
                yield result
        except GuardError as error:
            if error.fired.iteration:
                raise
            self._look(error.fired, number)
        except LossError as error:
            fired = replace(alarms.not_finite(error.member, str(error)), iteration=number)
            self._note(fired, "stop")
            raise LossError(
                f"guard finite_loss stopped the run in iteration {number}: {error} (with another "
                "--out), or leave the member as it was in such an iteration and go on here: "
                f"phalanx run CONFIG {fired.setting}",
                error.member,
            ) from error

    # What follows --------------------------------------------------------------------------------

    def _look(self, fired: Fired | None, number: int) -> None:
        if fired is not None:
            self._act(replace(fired, iteration=number))

    def _action(self, rule: str) -> str:
        return getattr(self._config.guard.action, rule)

    def _lets_pass(self, place: Place) -> bool:
        """Whether this was said or paused for already, and is to be no more than that."""
        enough = {"stop": (), "pause": ("pause",), "warn": ("warn", "pause")}[
            self._action(place[0])
        ]
        return any(one.place == place and did in enough for one, did in self._known())

    def _act(self, fired: Fired, whole: str = "") -> None:
        """Warn, pause or stop; ``whole`` is the error's message but for its beginning."""
        if self._lets_pass(fired.place):
            return
        action = self._action(fired.rule)
        self._note(fired, action)
        if action == "warn":
            return
        paused = action == "pause"
        kind = UnreadableError if fired.rule == "max_unreadable" else GuardError
        raise kind(_message(fired, whole, paused), fired, paused)

    def _known(self) -> list[tuple[Fired, str]]:
        return alarms.from_json(self._ledger.get(FACT))

    def _note(self, fired: Fired, action: str) -> None:
        """Record what fired, and say it where the run goes on; once for its place and action,
        unless the limit was changed in between: then the newest stands."""
        known = self._known()
        if (fired, action) in known:
            return
        kept = [one for one in known if (one[0].place, one[1]) != (fired.place, action)]
        self._ledger.event(EVENT, f"{fired.rule} ({action}), {fired.sentence}")
        self._ledger.put(FACT, alarms.as_json([*kept, (fired, action)]))
        if action in ("warn", "skip"):
            self._progress.say(f"Warning: guard {fired.rule}, {fired.sentence}")


def standings_at_start(config: Config, members: Sequence[Member]) -> dict[str, Standing]:
    """Everybody's reputation before the first iteration."""
    given = pool.starting_reputations(config)
    return {m.name: initial_standing(config.reputation, given.get(m.name)) for m in members}


def _message(fired: Fired, whole: str, paused: bool) -> str:
    did = "paused" if paused else "stopped"
    head = f"guard {fired.rule} {did} the run in iteration {fired.iteration}: "
    on = "; the same command goes on" if paused else ""
    if whole:
        return f"{head}{whole}{on}"
    return (
        f"{head}{fired.says} ({fired.value:.3g}, limit {fired.limit:g}){on}; {fired.advice}, or "
        f"go on here: phalanx run CONFIG {fired.setting}"
    )
