"""One arm's ledger, read: who scored what on which items, and what it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import eq
from pathlib import Path

from phalanx.asking import stored_config
from phalanx.collective.voting import shared_vote
from phalanx.comparing.budget import Use, shared_in_all, spent
from phalanx.comparing.spec import Arm
from phalanx.config.schema import Config
from phalanx.errors import LedgerError
from phalanx.evaluate import load_tasks
from phalanx.ledger import STOPPED, Ledger, run_ledger_path
from phalanx.ledger.rows import together_key
from phalanx.methods import METHODS
from phalanx.methods.method import Kind
from phalanx.report.scores import Item, Scores, Table, best_in
from phalanx.report.warnings import mostly_unread
from phalanx.tasks import equivalence, split_of
from phalanx.tasks.items import is_voted


@dataclass(frozen=True, slots=True)
class Used(Use):
    """What a run took: what counts for budgets (:class:`Use`), and in all, what other runs had
    answered included.

    ``shared_in_all`` are the requests that those had; ``money`` is by the endpoints' prices.
    ``labels_right`` of ``labels_decidable`` pairs prefer the right response, where exactly one is
    right and the instruction's answer is known.
    """

    requests: int = 0
    shared_in_all: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    seconds: float = 0.0
    money: float = 0.0
    pairs: int = 0
    demonstrations: int = 0
    labels_right: int = 0
    labels_decidable: int = 0


@dataclass(frozen=True)
class Reading:
    """What an arm measured. Scores are of items, (task, id) each, from 0 to 1.

    ``together`` is the name of those rows that members answered together, "" where the method
    trains or does nothing. ``unvoted`` are tasks on whose answers nobody can vote.
    """

    method: str
    kind: Kind
    table: Table
    together: str
    unvoted: frozenset[str]
    maths: frozenset[str]
    used: Used
    warnings: tuple[str, ...]
    """What makes it say little of its method, whatever its scores."""

    @property
    def domain(self) -> Mapping[Item, str]:
        return self.table.domain

    @property
    def members(self) -> tuple[str, ...]:
        return self.table.members

    @property
    def last(self) -> int:
        """The last iteration after which members were measured."""
        return max(
            number
            for number in self.table.iterations
            if any(self.table.of(number, name, "test") for name in self.members)
        )

    def best(self, number: int) -> str:
        """The member that is best on dev items after an iteration; the first of equals."""
        return best_in(self.table, number)

    def of_best(self, number: int) -> Scores:
        """Test scores of the member that is best on dev items."""
        return self.table.of(number, self.best(number), "test")

    def of_pool(self, number: int) -> Scores:
        """Test scores, the mean over the members."""
        return self.table.pool_mean(number, "test")

    def of_vote(self, number: int) -> Scores:
        """Test scores of the answer that most members give; equally frequent ones share. Items on
        whose answers nobody can vote are left out."""
        given = {
            name: {
                item: answer
                for item, answer in self.table.answer.get((number, name), {}).items()
                if item[0] not in self.unvoted
            }
            for name in self.members
        }
        return shared_vote(given, lambda item: equivalence.same if item[0] in self.maths else eq)

    @cached_property
    def headline(self) -> Scores:
        """The test scores that an arm stands for: of its best member by dev items, or of those who
        answer together."""
        return (
            self.table.of(*self._together_at, "test") if self.together else self.of_best(self.last)
        )

    @property
    def headline_of(self) -> str:
        """Whose scores they are."""
        return self.together or self.best(self.last)

    @property
    def _together_at(self) -> tuple[int, str]:
        rows = self.table.score
        return max((number, name) for number, name, _ in rows if name == self.together)


def unfinished(arm: Arm) -> str:
    """Why an arm cannot be read yet; "" where it can."""
    path = run_ledger_path(arm.folder)
    if not path.exists():
        return "not started"
    with Ledger(path) as ledger:
        # With more iterations a finished run goes on; without a run there are none.
        owed = arm.config.iterations if METHODS[arm.config.method].run else 0
        if ledger.get("finished") is not None and int(ledger.get("num_iterations") or 0) >= owed:
            return ""
        recorded = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"] or 0
        stopped = ledger.query(
            "SELECT text FROM events WHERE kind = ? ORDER BY number DESC LIMIT 1", (STOPPED,)
        )
    why = f"; it stopped: {stopped[0]['text']}" if stopped else ""
    return f"not finished, {recorded} of {arm.config.iterations} iterations recorded{why}"


def read_arm(arm: Arm) -> Reading:
    """A finished arm. Raises LedgerError where it is not, or where nothing can be compared."""
    if why := unfinished(arm):
        raise LedgerError(why)
    return read_run(arm.folder)


def read_run(folder: Path) -> Reading:
    """A finished run. Raises LedgerError where nothing can be compared."""
    with Ledger(run_ledger_path(folder)) as ledger:
        config = stored_config(folder, ledger.get("config") or "{}")
        method = METHODS[config.method]
        names = [member.name for member in ledger.members()]
        used = _used(ledger, config)
        reading = Reading(
            method=config.method,
            kind=method.kind,
            table=Table(ledger, names),
            together=config.method if method.kind == "answer" else "",
            unvoted=_unvoted(config),
            maths=frozenset(task.name for task in config.evaluate.tasks if task.kind == "math"),
            used=used,
            warnings=tuple(_warnings(ledger, config, used)),
        )
    splits = {split for _, name, split in reading.table.score if name in reading.members}
    if lacking := {"dev", "test"} - splits:
        raise LedgerError(
            f"{folder} has no {' and no '.join(sorted(lacking))} items, so it cannot be compared; "
            "set evaluate.tasks and evaluate.dev_share so that there are both"
        )
    if reading.together and not any(name == reading.together for _, name, _ in reading.table.score):
        raise LedgerError(f"{folder} has no answers of {reading.together}; run it again")
    return reading


def _warnings(ledger: Ledger, config: Config, used: Used) -> Iterator[str]:
    made = ledger.count("pairs") + ledger.count("demonstrations")
    if made and not used.pairs + used.demonstrations:
        yield (
            f"none of {made:,} pairs and demonstrations was kept, so nothing could be learned; "
            "phalanx report says why"
        )
    counts = json.loads(ledger.get(together_key(0, config.method)) or "{}")
    if words := mostly_unread(config.method, counts):
        yield f"{words}, so it says little of what they can together"


def _unvoted(config: Config) -> frozenset[str]:
    """Tasks without an answer to agree on, or whose answers cannot be compared here."""
    return frozenset(
        task.name
        for task in config.evaluate.tasks
        if not is_voted(task.kind, task.match)
        or (task.kind == "math" and not equivalence.is_there())
    )


def _used(ledger: Ledger, config: Config) -> Used:
    endpoints = {end.name: end for end in config.endpoints}
    behind = {member.name: endpoints.get(member.endpoint) for member in ledger.members()}
    read = written = 0
    money = 0.0
    for row in ledger.query(
        "SELECT member, total(num_prompt_tokens) AS read, total(num_completion_tokens) AS written "
        "FROM responses GROUP BY member"
    ):
        read, written = read + int(row["read"]), written + int(row["written"])
        if endpoint := behind.get(row["member"]):
            money += endpoint.money(row["read"], row["written"])
    states = [ledger.state(row["iteration"]) for row in ledger.query("SELECT * FROM states")]
    metrics = [state["metrics"] for state in states if state]
    decidable = [int(one.get("num_decidable_pairs", 0)) for one in metrics]
    right = [
        round(one.get("label_accuracy", 0) * n) for one, n in zip(metrics, decidable, strict=True)
    ]
    return Used(
        **asdict(spent(ledger)),
        requests=ledger.count("responses"),
        shared_in_all=shared_in_all(ledger),
        tokens_read=read,
        tokens_written=written,
        seconds=ledger.query("SELECT total(seconds) AS n FROM phases")[0]["n"],
        money=money,
        pairs=ledger.count("pairs", "dropped = ''"),
        demonstrations=ledger.count("demonstrations", "dropped = ''"),
        labels_right=sum(right),
        labels_decidable=sum(decidable),
    )


def measurable(config: Config) -> list[str]:
    """Why runs of this configuration could not be compared, before any of them runs."""
    if not config.evaluate.tasks:
        return ["evaluate.tasks: names no task; a comparison needs items with answers"]
    splits = [split_of(item, config.evaluate.dev_share) for item in load_tasks(config)]
    return [
        f"evaluate.dev_share: {config.evaluate.dev_share:g} leaves no {split} items of "
        f"{len(splits):,}; {why}"
        for split, why in (
            ("dev", "the best member is chosen on them: raise it, or measure more items"),
            ("test", "results are reported on them: lower it, or measure more items"),
        )
        if split not in splits
    ]


def same_items(readings: Sequence[Reading]) -> bool:
    """Whether all have scores of the same test items."""
    return len({frozenset(reading.headline) for reading in readings}) <= 1
