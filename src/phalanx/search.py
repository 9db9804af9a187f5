"""Which mixture is worth its cost: designs tried on dev items, within a number of requests.

``halving``: many designs on few items, the better ones on more. ``bayes``: optuna's TPE proposes
one design after the other. Every trial is a row of the ledger's ``trials``, and every answer is
recorded before it is used, so the same command goes on where it stopped: recorded trials are read
back, and the next one finds its answers in the ledger.

Designs share proposals: a member's first answer to an item is asked for once, whatever the designs
that need it. A trial says what its answers would cost alone, and what was sent for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx import pool
from phalanx.asking import Asking, asking, refuse_unmade
from phalanx.collective.designs import (
    Design,
    Found,
    Space,
    Trial,
    promoted,
    rungs,
    trial_from,
    uniform,
)
from phalanx.collective.mixture import Mixed, mixture_from
from phalanx.collective.referee import RANKER, Candidate, rank_by
from phalanx.config.mixing import MIXTURE, proposers_of
from phalanx.config.schema import Config
from phalanx.dispatch import MAX_ATTEMPTS, is_settled
from phalanx.errors import BudgetError, ConfigError, LedgerError, MissingPackage
from phalanx.evaluate import answers, load_tasks
from phalanx.identity import canonical_json, content_id, derive_seed, derived_random
from phalanx.ledger import Ledger
from phalanx.statistics import paired_bootstrap, wilson
from phalanx.tasks import TaskItem, score, split_of
from phalanx.types import Ask, Instruction, Member, Progress, Request, Response
from phalanx.workshop import Workshop

KIND = "mixture-search"


class _UsedUp(Exception):
    """The next phase would send more requests than ``search.calls`` allows."""


def search(
    config: Config,
    folder: Path | str,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Found:
    """Search for a mixture, or go on with the search in ``folder``, until it ends or may not go on.

    ``search.calls`` may be raised between starts; nothing else may change. Raises ConfigError
    where there is nothing to search or to score on, and LedgerError for a folder of other work.
    """
    names = candidates(config)
    items = dev_items(config)
    # How long a search may go on is no part of what it is.
    same = config.search.model_copy(update={"calls": None})
    with asking(
        config.model_copy(update={"search": same}),
        folder,
        kind=KIND,
        inputs=content_id(items),
        progress=progress,
        workshop=workshop,
    ) as place:
        if len(items) < config.search.items:
            place.progress.say(
                f"Only {len(items)} dev items, not {config.search.items} (search.items): more rows "
                "of evaluate.tasks, or a larger evaluate.dev_share, tell designs apart better"
            )
        if config.mixture.aggregator and not configured(config, names):
            place.progress.say(
                "The configured mixture is not tried: students and search.judge take no part in "
                "a search, and one of them has a part in it"
            )
        work = _Search(place, config, items)
        stopped = ""
        try:
            STRATEGIES[config.search.strategy](work, names)
        except (_UsedUp, BudgetError) as error:
            stopped = str(error)
        if not stopped and place.ledger.get("finished") is None:
            place.ledger.put("finished", "yes")
        return Found(
            trials=tuple(work.trials),
            metric=config.search.metric,
            num_dev_items=len(items),
            calls=place.ledger.num_sent(),
            budget=config.search.calls,
            priced=any(one.price_in or one.price_out for one in config.endpoints),
            stopped=stopped,
        )


def candidates(config: Config) -> tuple[str, ...]:
    """Names of the members that designs are made of, in pool order.

    Contestants, and whoever the configured mixture names; not the students, which are to learn
    from the mixture, and not whoever scores, since nobody judges an answer that they had a part
    in. Raises ConfigError where nobody is left, or where some have yet to be made.
    """
    students = {student.name for student in config.moaa.students}
    judge = config.search.judge if config.search.metric != "accuracy" else ""
    named = {config.mixture.aggregator, *(n for layer in proposers_of(config) for n in layer)}
    members = [
        member
        for member in pool.members_from(config)
        if ("contest" in member.roles or member.name in named)
        and member.name not in students
        and member.name != judge
    ]
    refuse_unmade(config, members)
    if not members:
        raise ConfigError(
            "pool.members: nobody is left to make mixtures of: members need the role contest, "
            "and students and search.judge do not count"
        )
    return tuple(member.name for member in members)


def dev_items(config: Config) -> tuple[TaskItem, ...]:
    """Up to ``search.items`` dev rows of the tasks, so ordered that any first few of them have as
    many domains as can be. Raises ConfigError where there is none."""
    dev = [i for i in load_tasks(config) if split_of(i, config.evaluate.dev_share) == "dev"]
    if not dev:
        raise ConfigError(
            "evaluate.tasks: a search is scored on the dev rows of tasks, and there is none; add "
            "a task, or raise evaluate.dev_share"
        )
    derived_random("search items", config.seed).shuffle(dev)
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for item in dev:
        turns.append(seen[item.task, item.domain])
        seen[item.task, item.domain] += 1
    order = sorted(range(len(dev)), key=lambda at: turns[at])
    return tuple(dev[at] for at in order[: config.search.items])


@dataclass
class _Meter:
    """The ``ask`` of one trial: stops before the budget is exceeded, knows what each request cost.

    What ``earlier`` trials asked is read from the ledger, failures included, and not sent again:
    engines would answer it once more where it shares a batch with something new. Every try counts
    as sent, whichever start sent it. How often a step's requests have to be tried is not known
    before, so that the second tries of one step may go beyond the budget, and nothing else.
    """

    ask: Ask
    ledger: Ledger
    config: Config
    trial: str
    earlier: set[str]
    costs: dict[str, tuple[int, float]] = field(default_factory=dict)
    """(tokens read and written, money) by request."""

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        owed = [request for request in requests if request.id not in self.earlier]
        self._check_budget(phase, owed)
        replies = {}
        if owed:
            new = self.ask(f"{self.trial} {phase}", owed)
            replies = {reply.request_id: reply for reply in new}
        shared = [request.id for request in requests if request.id in self.earlier]
        replies |= {key: reply for key, (reply, _) in self.ledger.responses(shared).items()}
        for request in requests:
            self.costs[request.id] = self._cost(request.member, replies[request.id])
        return [replies[request.id] for request in requests]

    def _check_budget(self, phase: str, owed: Sequence[Request]) -> None:
        most = self.config.search.calls
        if most is None:
            return
        ids = {request.id for request in owed}
        known = self.ledger.responses(list(ids))
        new = len(ids) - sum(is_settled(reply, tries) for reply, tries in known.values())
        sent = self.ledger.num_sent()
        if sent + new > most:
            raise _UsedUp(
                f"search.calls is {most}: {sent} requests were sent, and the next step "
                f"({self.trial} {phase}) needs {new} more; raise it and run the same command to "
                "go on"
            )

    def _cost(self, member: Member, reply: Response) -> tuple[int, float]:
        read, written = reply.num_prompt_tokens, reply.num_completion_tokens
        behind = [one for one in self.config.endpoints if one.name == member.endpoint]
        return read + written, sum(one.money(read, written) for one in behind)


class _Search:
    """The trials so far, and the means to make the next one."""

    def __init__(self, place: Asking, config: Config, items: Sequence[TaskItem]) -> None:
        self.place = place
        self.config = config
        self.items = items
        self.trials: list[Trial] = []
        self._members = place.ledger.members()
        self._recorded = {row["number"]: row for row in place.ledger.trials()}
        # Failures of earlier starts are asked again, like everywhere.
        settled = "SELECT id, phase FROM responses WHERE status = 'done' OR attempts >= ?"
        asked = place.ledger.query(settled, (MAX_ATTEMPTS,))
        self._asked = {  # of phases such as "trial 3 propose 1"
            row["id"] for row in asked if int(row["phase"].split()[1]) in self._recorded
        }

    def trial(self, design: Design, rung: int, num_items: int) -> Trial:
        """The next trial: as it is in the ledger, or made now. Raises _UsedUp, Interrupted.

        One without enough scores is made again, in case what failed is answered now. Where that
        changes it, whatever came after it followed from it and is made again as well.
        """
        self.place.check_stop()
        number = len(self.trials) + 1
        before = None
        if number in self._recorded:
            before = _read_back(self._recorded[number], design, rung, num_items)
        trial = before
        if before is None or not before.complete:
            try:
                trial = self._made(number, design, rung, num_items)
            except _UsedUp:
                if before is None:
                    raise
        assert trial is not None
        if trial != before:
            self.place.ledger.record_trial(_row(trial))
            self._recorded = {at: row for at, row in self._recorded.items() if at < number}
        self.trials.append(trial)
        value = "no score" if trial.score is None else f"{trial.score:.4g}"
        self.place.progress.say(
            f"Trial {number}: {design.words}: {value} on {num_items} items, "
            f"{trial.new_calls} new requests"
        )
        return trial

    def _made(self, number: int, design: Design, rung: int, num_items: int) -> Trial:
        config, ledger = self.config, self.place.ledger
        items = self.items[:num_items]
        own = config.model_copy(update={"mixture": design.settings(config.mixture)})
        meter = _Meter(self.place.ask(0), ledger, config, f"trial {number}", self._asked)
        mixed = answers(mixture_from(own, self._members), items, meter, own, phase="")
        costs = dict(meter.costs)  # of the answers; scoring them is no cost of the design
        scores = _scores(mixed, items, self._members, meter, config)
        self._asked |= meter.costs.keys()
        known = [value for value in scores if value is not None]
        mean, low, high = _interval(known, config, number)
        return Trial(
            number=number,
            rung=rung,
            design=design,
            num_items=num_items,
            num_scored=len(known),
            score=mean,
            low=low,
            high=high,
            calls=len(costs),
            tokens=sum(tokens for tokens, _ in costs.values()),
            money=sum(money for _, money in costs.values()),
            new_calls=ledger.count("responses", "phase LIKE ?", (f"trial {number} %",)),
            note=_note(mixed, scores),
        )


def _scores(
    mixed: Sequence[Mixed],
    items: Sequence[TaskItem],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
) -> list[float | None]:
    """What each answer is worth. An item without an answer is wrong, but has no number where
    requests failed: that says nothing of the design. Where a member scores, an answer that is
    missing or was not scored has no number.

    Raises ConfigError for a judge that compares pairs and scores no single answer.
    """
    if config.search.metric == "accuracy":
        return [_right(one, item) for one, item in zip(mixed, items, strict=True)]
    answered = [at for at, one in enumerate(mixed) if one.response is not None]
    groups = []
    for at in answered:
        response, item = mixed[at].response, items[at]
        instruction = Instruction(item.id, item.instruction, item.domain)
        candidate = Candidate(MIXTURE, response.text or "", response.request_id, response.truncated)
        groups.append((instruction, (candidate,)))
    verdicts: list[Response] = []

    def scored(phase: str, requests: Sequence[Request]) -> list[Response]:
        replies = ask(phase, requests)
        verdicts.extend(replies)
        return replies

    judge, place = config.search.judge, ("search", config.seed)
    if config.search.metric == "reward":  # whoever gives rewards is asked for one, scripts too
        rewards = config.judge.model_copy(update={"protocol": "reward", "template": None})
        config = config.model_copy(update={"judge": rewards})
    found = rank_by(judge, groups, members, scored, config, place=place)
    usable = any(candidate.usable for _, (candidate,) in groups)
    if any(RANKER in one.flags for one in verdicts) or (usable and not verdicts):
        raise ConfigError(
            f"search.judge: {judge} compares pairs, and a search scores every answer by itself; "
            "name a reward model that scores single responses, or a judge with judge.protocol: "
            "expected, rubric or likelihood"
        )
    by_item = dict(zip(answered, (one.scores[0] for one in found.ranked), strict=True))
    return [by_item.get(at) for at in range(len(items))]


def _right(mixed: Mixed, item: TaskItem) -> float | None:
    """1 or 0; None where there is no answer because requests failed."""
    if mixed.response is not None:
        return float(score(mixed.response.text or "", item).correct)
    reason = mixed.reason.split(":")[0]
    proposals_failed = any(one.response.error is not None for one in mixed.proposals)
    if reason == "failed" or (reason == "too_few_proposals" and proposals_failed):
        return None
    return 0.0


def _interval(
    values: Sequence[float], config: Config, number: int
) -> tuple[float | None, float | None, float | None]:
    """(mean, low, high) at 95 %: Wilson's for shares of right answers, else a bootstrap."""
    if not values:
        return None, None, None
    if config.search.metric == "accuracy":
        low, high = wilson(int(sum(values)), len(values))
        return sum(values) / len(values), low, high
    seed = derive_seed("search interval", config.seed, number)
    mean, (low, high) = paired_bootstrap([0.0] * len(values), values, seed=seed)
    return mean, low, high


def _note(mixed: Sequence[Mixed], scores: Sequence[float | None]) -> str:
    """What is missing of a trial, counted by reason."""
    reasons = Counter(one.reason.split(":")[0] for one in mixed if one.response is None)
    parts = [f"{count} unanswered ({reason})" for reason, count in sorted(reasons.items())]
    pairs = zip(mixed, scores, strict=True)
    unscored = sum(one.response is not None and value is None for one, value in pairs)
    return ", ".join([*parts, *([f"{unscored} not scored"] if unscored else [])])


def _row(trial: Trial) -> dict:
    row = {name: getattr(trial, name) for name in Trial.__slots__}
    return {**row, "design": canonical_json(trial.design.as_json())}


def _read_back(row: dict, design: Design, rung: int, num_items: int) -> Trial:
    trial = trial_from(row)
    expected, got = (design, rung, num_items), (trial.design, trial.rung, trial.num_items)
    if expected != got:
        raise LedgerError(
            f"trial {trial.number} of this folder is {trial.design.words} on {trial.num_items} "
            f"items, and now it would be {design.words} on {num_items}: the search was made by "
            "another version of phalanx or optuna; use that one, or choose another --out"
        )
    return trial


# Strategies --------------------------------------------------------------------------------------


def space_of(config: Config, names: Sequence[str]) -> Space:
    settings = config.search
    return Space(
        names=tuple(names),
        max_proposers=settings.max_proposers,
        max_layers=settings.max_layers,
        max_samples=settings.max_samples,
        fewest=config.mixture.min_proposals,
    )


def configured(config: Config, names: Sequence[str]) -> tuple[Design, ...]:
    """The mixture that the configuration has already, if a search may try it."""
    settings = config.mixture
    if not settings.aggregator:
        return ()
    layers = proposers_of(config)
    design = Design(layers, settings.aggregator, settings.samples if layers else 1)
    members = {settings.aggregator, *(name for layer in layers for name in layer)}
    return (design,) if members <= set(names) else ()


def _halving(work: _Search, names: Sequence[str]) -> None:
    config = work.config
    first = configured(config, names)
    rng = derived_random("search designs", config.seed)
    designs = space_of(config, names).draw(config.search.trials, rng, first)
    steps = rungs(len(designs), len(work.items))
    for rung, (_, num_items) in enumerate(steps):
        done = [work.trial(design, rung, num_items) for design in designs]
        if rung + 1 < len(steps):
            designs = promoted(done, steps[rung + 1][0])


def _bayes(work: _Search, names: Sequence[str]) -> None:
    """TPE over layers, aggregator, number of proposers and who they are, and samples.

    Each member alone comes first, and the configured mixture. A design that comes again is told
    the score that it has; one without enough scores counts as failed, which TPE leaves out.
    """
    optuna = _optuna()
    config, total = work.config, len(work.items)
    space = space_of(config, names)
    seed = derive_seed("search sampler", config.seed) % 2**32
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    first = list(dict.fromkeys([*space.alone, *configured(config, names)]))
    for design in first[: config.search.trials]:
        if space.holds(design):
            study.enqueue_trial(_parameters(design))
    known = {d: work.trial(d, 0, total) for d in first[: config.search.trials]}
    wanted = min(config.search.trials, max(space.size, len(known)))
    for _ in range(4 * config.search.trials):  # in a small space designs come again and again
        if len(known) >= wanted:
            break
        asked = study.ask()
        design = _suggested(asked, space)
        if design not in known:
            known[design] = work.trial(design, 0, total)
        if known[design].complete:
            study.tell(asked, known[design].score)
        else:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)


def _parameters(design: Design) -> dict[str, int | str]:
    """What :func:`_suggested` has to be told to come to this design of its space."""
    told: dict[str, int | str] = {
        "layers": len(design.layers) + 1,
        "aggregator": design.aggregator,
    }
    if design.layers:
        told["proposers"], told["samples"] = len(design.layers[0]), design.samples
        slots = enumerate(design.layers[0], start=1)
        told |= {f"proposer {number}": name for number, name in slots}
    return told


def _suggested(asked, space: Space) -> Design:
    """A design of the space from what TPE suggests.

    Proposers are drawn slot by slot; where a slot names one that is there, the next in the pool
    takes its place. Too few proposals for ``min_proposals`` are raised to enough.
    """
    names = space.names
    layers = asked.suggest_int("layers", 1, space.max_layers if space.mixes else 1)
    aggregator = asked.suggest_categorical("aggregator", names)
    if layers == 1:
        return Design((), aggregator)
    most = min(space.max_proposers, len(names))
    samples = asked.suggest_int("samples", 1, space.max_samples)
    samples = max(samples, math.ceil(space.fewest / most))
    count = asked.suggest_int("proposers", 1, most)
    count = max(count, math.ceil(space.fewest / samples))
    chosen: set[str] = set()
    for number in range(1, count + 1):
        at = names.index(asked.suggest_categorical(f"proposer {number}", names))
        after = (*names[at:], *names[:at])
        chosen.add(next(name for name in after if name not in chosen))
    return uniform([name for name in names if name in chosen], layers, aggregator, samples)


def _optuna():
    try:
        import optuna
    except ImportError:
        raise MissingPackage("optuna", "search", "search.strategy: bayes") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


STRATEGIES: dict[str, Callable[[_Search, Sequence[str]], None]] = {
    "halving": _halving,
    "bayes": _bayes,
}
