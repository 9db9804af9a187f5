"""Where members come from (a run, a configuration, nowhere), and who of them is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.asking import UNMADE, stored_config
from phalanx.collective.mixture import mixture_from
from phalanx.collective.reputation import initial_standing
from phalanx.config.compare import differences
from phalanx.config.faults import did_you_mean
from phalanx.config.loading import shaped
from phalanx.config.mixing import MOA, TOGETHER, teachers_of
from phalanx.config.reading import read_file
from phalanx.config.rules import base_problem
from phalanx.config.rules_answering import faults_of
from phalanx.config.schema import Config, MemberSettings
from phalanx.config.staging import joining
from phalanx.errors import ConfigError, LedgerError
from phalanx.identity import content_id
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import messages
from phalanx.measuring.subjects import COLLECTIVES, MIXED, Subject, Together
from phalanx.methods import METHODS
from phalanx.methods.council import council_of
from phalanx.report.scores import best_on_dev
from phalanx.types import Instruction, Member

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where members come from: a run, a configuration, or nowhere.

    ``versions[n]`` has the members as they were when iteration ``n`` had ended; a configuration
    has iteration 0 alone. ``reputations[n]`` likewise, of members that have any. ``identity``
    tells one run from another; "" for a configuration. ``instructions``: what a run learned from.
    """

    config: Config
    versions: Mapping[int, tuple[Member, ...]]
    reputations: Mapping[int, dict[str, float]] = field(default_factory=dict)
    identity: str = ""
    folder: Path | None = None
    instructions: tuple[Instruction, ...] = ()

    @property
    def last(self) -> int:
        return max(self.versions)

    @property
    def is_run(self) -> bool:
        return self.folder is not None


def origin_of(source: str | None, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Origin:
    """A run's folder, a configuration, preset or pool's file, or None: ``overrides`` alone.

    Raises ConfigError for a configuration that has not the right shape, and LedgerError for a
    folder that holds no run.
    """
    if source is not None and Path(source).expanduser().is_dir():
        return _origin_of_run(Path(source).expanduser(), overrides)
    _refuse_nothing(source)
    if source is not None and _is_pool(source):
        source, overrides = None, [f"pool={source}", *as_texts(overrides)]
    config = shaped(source, overrides)
    members = made_members(config)
    return Origin(config, {0: members}, {0: _at_start(config, members)})


def _refuse_nothing(source: str | None) -> None:
    """Raise ConfigError for what is neither a file nor a folder, and looks like a folder."""
    if source is None or source.startswith("preset:"):
        return
    path = Path(source).expanduser()
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise ConfigError(
            f"{source}: there is no such run's folder, and no such file; a preset is written "
            "preset:NAME"
        )


def _is_pool(source: str) -> bool:
    """Whether a file is the section ``pool`` alone, as ``phalanx recruit`` writes it."""
    path = Path(source).expanduser()
    if source.startswith("preset:") or path.suffix not in (".yaml", ".yml"):
        return False
    keys = read_file(path, source).data.keys()
    return "members" in keys and "pool" not in keys


def as_texts(overrides: Sequence[str] | Mapping[str, Any]) -> Sequence[str]:
    """Overrides as the command line has them."""
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return overrides


def _at_start(config: Config, members: Sequence[Member]) -> dict[str, float]:
    given = pool.starting_reputations(config)
    return {
        member.name: initial_standing(config.reputation, given.get(member.name)).value
        for member in members
    }


def made_members(config: Config) -> tuple[Member, ...]:
    """Members without recruits, which only a run makes."""
    return pool.members_from(
        config.model_copy(update={"pool": config.pool.model_copy(update={"recruit": None})})
    )


def _origin_of_run(folder: Path, overrides: Sequence[str] | Mapping[str, Any]) -> Origin:
    with Ledger(run_ledger_path(folder)) as ledger:
        method = ledger.get("method") or ""
        if method not in METHODS:
            raise LedgerError(
                f"{folder} is work of {method!r} and no run, so it has no members of its own; name "
                "a run's folder, or a configuration"
            )
        stored = stored_config(folder, ledger.get("config") or "{}")
        config = shaped(stored, overrides)
        if other := [key for key, *_ in differences(stored, config) if key.startswith("pool")]:
            raise ConfigError(
                f"{', '.join(other)}: a run's members are as they were, and a setting of the pool "
                "changes none of them; leave it out, or measure a configuration"
            )
        ended = _last_ended(ledger, config)
        versions = {number: tuple(ledger.members(number)) for number in range(ended + 1)}
        reputations = {0: _at_start(config, versions[0])}
        for number in range(1, ended + 1):
            state = ledger.state(number) or {"standings": {}}
            values = {name: one.value for name, one in state["standings"].items()}
            reputations[number] = reputations[number - 1] | values
        learned = tuple(map(_instruction, ledger.query("SELECT * FROM instructions")))
        known = (ledger.get("inputs"), ledger.get("created_at"), ledger.get("seed"))
    return Origin(config, versions, reputations, content_id("run", *known), folder, learned)


def _instruction(row: Mapping[str, Any]) -> Instruction:
    return Instruction(row["id"], row["text"], row["domain"], later=messages(row["later"]))


def _last_ended(ledger: Ledger, config: Config) -> int:
    """The last iteration after which nothing more is trained; 0 where there is none yet."""
    begun = ledger.query("SELECT max(iteration) AS n FROM states")[0]["n"] or 0
    if begun and not (
        ledger.get("finished") or ledger.has_evaluation(begun) or config.train.method == "none"
    ):
        return begun - 1
    return begun


def with_members(config: Config, more: Sequence[MemberSettings]) -> Config:
    """With further members in the pool."""
    both = [*config.pool.members, *more]
    return config.model_copy(update={"pool": config.pool.model_copy(update={"members": both})})


# Members -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Members:
    """Subjects from words, one after another; faults are gathered."""

    origin: Origin
    bare: list[MemberSettings] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.origin.versions[self.origin.last]]

    @property
    def unmade(self) -> list[str]:
        recruit = None if self.origin.is_run else self.origin.config.pool.recruit
        return list(recruit.specialists) if recruit else []

    @property
    def bare_members(self) -> tuple[Member, ...]:
        """The models that were named and are no members of the source."""
        return tuple(made_members(with_members(self.origin.config, [one]))[-1] for one in self.bare)

    def read(self, words: Sequence[str]) -> list[Subject]:
        """Collectives last: they are of everybody, bare models of the other words included."""
        found: dict[str, Subject | None] = {}
        for word in words:
            if word in found:
                self.faults.append(f"--members: {word} is named twice")
            found[word] = None if self._collective(word) else self._single(word)
        singles = {subject.name: subject for subject in found.values() if subject}
        if len(singles) < sum(subject is not None for subject in found.values()):
            self.faults.append(
                "--members: two models have one name; give them names: --members NAME=MODEL,..."
            )
        subjects = [found[word] or self._together(word) for word in found]
        return [subject for subject in subjects if subject is not None]

    def default(self) -> list[Subject]:
        """Everybody who answers; of a run at the start and at the end."""
        origin = self.origin
        if not origin.is_run:
            if self.unmade:
                self.faults.append(f"{', '.join(self.unmade)}: {UNMADE}")
            members = pool.measured(origin.config, origin.versions[0])
            return [Subject(member.name, (member,)) for member in members]
        return [
            Subject(f"{member.name}@{number}", (member,))
            for number in dict.fromkeys((0, origin.last))
            for member in pool.measured(origin.config, origin.versions[number])
        ]

    def _collective(self, word: str) -> bool:
        head = word.partition("@")[0]
        return head in COLLECTIVES and head not in self.names

    def _single(self, word: str) -> Subject | None:
        head, at, number = word.partition("@")
        if head in self.unmade:
            self.faults.append(f"--members {word}: {UNMADE}")
            return None
        if head in self.names:
            iteration = self._iteration(word, number) if at else self.origin.last
            return None if iteration is None else self._member(word, head, iteration)
        name, equals, model = word.partition("=")
        if not equals:
            name, model = "", word
        return self._model(word, name, model)

    def _member(self, word: str, name: str, iteration: int) -> Subject | None:
        known = {member.name: member for member in self.origin.versions[iteration]}
        if name not in known:
            self.faults.append(f"--members {word}: {name} is not in the pool at that iteration")
            return None
        if known[name].engine == "reward":
            self.faults.append(
                f"--members {word}: a reward model gives scores and writes nothing to measure; "
                "name it in evaluate.judges, or test it with phalanx judge-bench"
            )
            return None
        return Subject(word, (known[name],))

    def _iteration(self, word: str, text: str) -> int | None:
        if text.isdecimal() and int(text) in self.origin.versions:
            return int(text)
        have = f"0 to {self.origin.last}" if self.origin.last else "0 alone"
        kind = "the run has" if self.origin.is_run else "a configuration has"
        self.faults.append(f"--members {word}: no iteration {text!r}; {kind} {have}")
        return None

    def _model(self, word: str, name: str, model: str) -> Subject | None:
        """A model that is no member: on the embedded engine, named by its last part."""
        if problem := base_problem(model):
            close = did_you_mean(word, [*self.names, *COLLECTIVES], "members")
            self.faults.append(f"--members {word}: no member has that name ({close}), and as a "
                               f"model: {problem}")  # fmt: skip
            return None
        path = Path(model).expanduser()
        if not model.startswith("builtin:") and path.exists():
            model = str(path.absolute())
        last = re.split(r"[/:]", model.rstrip("/"))[-1].removesuffix(".gguf")
        name = name or re.sub(r"[^A-Za-z0-9_.-]", "-", last)
        if not NAME.fullmatch(name):
            self.faults.append(
                f"--members {word}: {name!r} is not a short name of letters, digits, dot, dash, _"
            )
            return None
        # Without a role: it is measured, and nobody's judge or proposer unless it is named.
        settings = {"name": name, "model": model, "roles": []}
        self.bare.append(MemberSettings.model_validate(settings))
        return Subject(name, (self.bare_members[-1],))

    def _together(self, word: str) -> Subject | None:
        """Everybody who answers, as they were at an iteration."""
        if not self._collective(word):
            return None
        head, at, number = word.partition("@")
        iteration = self._iteration(word, number) if at else self.origin.last
        if iteration is None:
            return None
        here = self.origin.versions[iteration]
        also = () if self.origin.is_run else self.bare_members
        if head == MIXED:
            return self._mixture(word, iteration, (*here, *also))
        if self.unmade:
            self.faults.append(f"--members {word}: {', '.join(self.unmade)}: {UNMADE}")
            return None
        members = (*pool.contestants(here), *also)
        if head in TOGETHER:
            return self._method(word, head, members, (*here, *also))
        if len(members) < 2:
            self.faults.append(
                f"--members {word}: there are {len(members)} members who answer; it takes two"
            )
            return None
        return Subject(word, members, COLLECTIVES[COLLECTIVES.index(head)])

    def _method(
        self, word: str, method: Together, members: tuple[Member, ...], asked: tuple[Member, ...]
    ) -> Subject | None:
        """A method that answers; its section says who of the members does what."""
        config = with_members(self.origin.config, self.bare)
        known = {member.name: member for member in asked}
        best, seats = "", [member.name for member in members]
        if method in ("self_consistency", "best_of_n"):
            best = getattr(config, method).member or self._best(members)
            if not best:
                self.faults.append(
                    f"--members {word}: who of {', '.join(seats)} is best is not known without a "
                    f"run that measured them; name one in {method}.member"
                )
                return None
            writing = [best]
        elif method == "council":
            writing = seats = config.council.members or seats
        else:
            seats = config.debate.debaters or seats
            writing = [*seats, config.debate.summariser]
        wrote = tuple(known[name] for name in dict.fromkeys(writing) if name in known)
        subject = Subject(word, wrote, method, seats=tuple(seats), best=best)
        settings = subject.settings(config)
        lacking = faults_of(method, settings, best)
        self.faults += [f"--members {word}: {fault}" for fault in lacking]
        return None if lacking else replace(subject, asked=_may_ask(subject, settings, asked))

    def _best(self, members: Sequence[Member]) -> str:
        """Who was best on dev items at the start of the run, or is the only one."""
        if len(members) == 1:
            return members[0].name
        if self.origin.folder is None:
            return ""
        with Ledger(run_ledger_path(self.origin.folder)) as ledger:
            return best_on_dev(ledger, [member.name for member in members])

    def _mixture(self, word: str, iteration: int, members: tuple[Member, ...]) -> Subject | None:
        """The mixture of the source's configuration; of MoAA with the students that have joined."""
        config = self.origin.config
        if unmade := [name for name in teachers_of(config) if name in self.unmade]:
            self.faults.append(f"--members {word}: {', '.join(unmade)}: {UNMADE}")
            return None
        joined = joining(config, iteration + 1) if config.method == "moaa" else ()
        try:
            mixture = mixture_from(config, members, joined)
        except ConfigError as error:
            self.faults.append(f"--members {word}: {error}")
            return None
        return Subject(word, mixture.members, MIXED, mixture)


def _may_ask(subject: Subject, config: Config, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Those of ``members`` whom a method may ask by its section, in their order."""
    names = {member.name for member in subject.members}
    if subject.together == "council":
        names |= {voter.name for voter in council_of(config, members)[1]}
    elif subject.together == "best_of_n" and config.best_of_n.judge:
        names.add(config.best_of_n.judge)
    elif subject.together == "best_of_n" and config.judge.protocol == MOA:
        return members
    elif subject.together == "best_of_n":
        names |= {judge.name for judge in pool.judges(members)}
    return tuple(member for member in members if member.name in names)
