"""A place from which members are asked: a ledger, the engines, and a way to stop.

Runs have one (:mod:`phalanx.loop`), and so has every command that asks members without a run:
``mix``, ``judge``, ``synthesise``, ``mixture-search``. What is asked is recorded; the same command
on the same folder goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.collective.gaps import above
from phalanx.config.compare import differences
from phalanx.config.schema import Config, PoolSettings
from phalanx.dispatch import Dispatcher, Elsewhere, Heard
from phalanx.errors import BudgetError, ConfigError, Interrupted, LedgerError, PhalanxError
from phalanx.identity import canonical_json, content_id
from phalanx.ledger import ENDED, STOPPED, Ledger, run_ledger_path
from phalanx.progress import Silent
from phalanx.types import Ask, Engine, Instruction, Member, Progress
from phalanx.version import __version__
from phalanx.workshop import Workshop

SECONDS = "seconds"
"""Fact of the ledger: how long work went on in its folder."""
_SAVE_S = 5.0


@dataclass
class Asking:
    """Members can be asked, and every answer is in the ledger before it is used."""

    config: Config
    folder: Path
    ledger: Ledger
    workshop: Workshop
    progress: Progress
    should_stop: Callable[[], bool]
    restored: set[str] = field(default_factory=set)
    elsewhere: Elsewhere | None = None
    """Where responses may be known already; see :class:`phalanx.dispatch.Dispatcher`."""

    def ask(self, iteration: int) -> Ask:
        """The ``ask`` of one iteration (0 where there are none)."""
        return self.dispatcher(iteration).ask

    def dispatcher(self, iteration: int, heard: Heard | None = None) -> Dispatcher:
        place = (self.ledger, self.engine, self.progress, self.should_stop, iteration)
        return Dispatcher(*place, self.elsewhere, heard)

    def engine(self, name: str) -> Engine:
        """The engine of that name; one that keeps facts takes up those of the ledger first."""
        engine = self.workshop.engine(name)
        if name not in self.restored and hasattr(engine, "restore"):
            engine.restore(self.ledger.facts(name))
        self.restored.add(name)
        return engine

    def check_stop(self) -> None:
        if self.should_stop():
            raise Interrupted(
                "stopped; everything finished is recorded, and the same command goes on from here"
            )


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks to stop after the batch in hand; the second one stops at once."""
    stopped = False

    def handle(signum, frame) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    try:
        before = signal.signal(signal.SIGINT, handle)
    except ValueError:  # not the main thread: signals are not ours to take
        yield lambda: False
        return
    try:
        yield lambda: stopped
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def timed(
    config: Config, ledger: Ledger, should_stop: Callable[[], bool]
) -> Iterator[Callable[[], bool]]:
    """``should_stop``, which also raises BudgetError once ``budget.seconds`` have passed.

    The ledger keeps the seconds of all starts together; who is killed loses few of them.
    """
    before, most = float(ledger.get(SECONDS) or 0.0), config.budget.seconds
    began, saved = time.monotonic(), None

    def seconds() -> float:
        return before + time.monotonic() - began

    def look() -> bool:
        nonlocal saved
        if saved is None or time.monotonic() - saved >= _SAVE_S:
            ledger.put(SECONDS, f"{seconds():.3f}")
            saved = time.monotonic()
        if most is not None and seconds() > most:
            raise BudgetError(
                f"the budget is used up: {seconds():.3g} of {most:g} seconds, all starts together; "
                f"everything finished is recorded, and goes on with a larger limit: the same "
                f"command with budget.seconds={above(2 * seconds())}"
            )
        return should_stop()

    try:
        yield look
    finally:
        if saved is not None:  # a start without work leaves the ledger as it is
            ledger.put(SECONDS, f"{seconds():.3f}")


@contextmanager
def stop_is_recorded(ledger: Ledger) -> Iterator[None]:
    """Why a start ended early is for whoever looks at it later; ``status`` shows the last."""
    try:
        yield
    except PhalanxError as error:
        ledger.event(STOPPED, str(error))
        ledger.event(ENDED, f"{error.exit_code} {type(error).__name__}")
        raise


@contextmanager
def asking(
    config: Config,
    folder: Path | str,
    *,
    kind: str,
    inputs: str,
    members: Sequence[Member] | None = None,
    instructions: Sequence[Instruction] = (),
    facts: Mapping[str, str] = {},
    flags: Mapping[str, Any] = {},
    growing: bool = False,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Iterator[Asking]:
    """Open ``folder`` for one piece of work that is no run, or go on with it.

    ``kind`` names the work ("mix", "judge", ...), ``inputs`` is a content id of what goes in
    besides the files that the configuration names, ``facts`` are further texts to keep.
    ``flags`` are plain values among the inputs, by the name of the flag that gives each, so that
    one that differs can be named. Members are recorded as those of iteration 0. Work that is
    ``growing`` may go on with further tasks and members in its configuration, and with none
    fewer; then the caller vouches for the files behind its members, and records what is new.

    Raises LedgerError where the folder is in use, or holds other work, another configuration or
    other inputs.
    """
    folder = Path(folder)
    pooled = config.model_copy(update={"pool": PoolSettings()}) if growing else config
    inputs = content_id(inputs, files_behind(pooled))
    with (
        stop_on_interrupt() as should_stop,
        Ledger(run_ledger_path(folder), writable=True) as ledger,
        workshop or Workshop(config, folder) as shop,
        timed(config, ledger, should_stop) as should_stop,
    ):
        members = pool.members_from(config) if members is None else members
        if ledger.get("config") is not None and ledger.is_untouched():
            ledger.forget_start()
        if ledger.get("config") is None:
            known = start_facts(config, members, method=kind, inputs=inputs, iterations=0)
            known["flags"] = canonical_json(dict(flags))
            ledger.record_start({**known, **facts}, members, instructions)
        _refuse_other_work(ledger, folder, config, kind, flags, growing)
        if ledger.get("inputs") != inputs:
            raise LedgerError(
                f"{folder} was made from other inputs, or a file that its configuration names has "
                "changed; restore them, or choose another --out"
            )
        with stop_is_recorded(ledger):
            yield Asking(config, folder, ledger, shop, progress or Silent(), should_stop)


def start_facts(
    config: Config, members: Sequence[Member], *, method: str, inputs: str, iterations: int
) -> dict[str, str]:
    """What every ledger has of its start."""
    return {
        "config": config.model_dump_json(),
        "inputs": inputs,
        "method": method,
        "pool_order": json.dumps(list(dict.fromkeys(member.name for member in members))),
        "seed": str(config.seed),
        "num_iterations": str(iterations),
        "engines": canonical_json(sorted({member.engine for member in members})),
        "phalanx_version": __version__,
        "created_at": now(),
    }


def now() -> str:
    """The time as ledgers have it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def stored_config(folder: Path, stored: str) -> Config:
    """A configuration as a ledger has it. Raises LedgerError for one of another version."""
    try:
        return Config.model_validate(json.loads(stored))
    except ValueError as error:
        raise LedgerError(
            f"{folder} was made by a version of phalanx whose configuration this one cannot "
            f"read; use that version, or another folder with --out ({error})"
        ) from None


def refuse_changes(folder: Path, changes: Sequence[tuple[str, Any, Any]]) -> None:
    """Raise LedgerError that names the first of the :func:`differences` there are, if any."""
    for key, old, new in changes:
        raise LedgerError(
            f"{folder} was made with another configuration: {key} was {old!r} and is now {new!r}; "
            "restore it, or choose another folder with --out"
        )


def _refuse_other_work(
    ledger: Ledger,
    folder: Path,
    config: Config,
    kind: str,
    flags: Mapping[str, Any],
    growing: bool,
) -> None:
    other = ledger.get("method")
    if other != kind:
        raise LedgerError(f"{folder} is work of {other!r}, not {kind!r}; choose another --out")
    before = stored_config(folder, ledger.get("config") or "{}")
    changes = differences(before, config)
    if growing:
        more = {f"evaluate.tasks.{task.name}" for task in config.evaluate.tasks}
        more |= {f"pool.members.{member.name}" for member in config.pool.members}
        changes = [change for change in changes if change[0] not in more or change[1] is not None]
    refuse_changes(folder, changes)
    earlier = json.loads(ledger.get("flags") or "{}")
    for name, value in flags.items():
        if name in earlier and earlier[name] != value:
            raise LedgerError(
                f"{folder} was made with {name} {earlier[name]!r}, and is now asked for {value!r}; "
                "restore it, or choose another --out"
            )


def files_behind(config: Config) -> list[str]:
    """Hashes of the files that the configuration names and whose content decides results.

    Base weights are not read for this: they are large, and a base that changed under its name
    shows in its answers only.
    """
    paths = [config.judge.template, config.mixture.template, config.reward.criteria]
    paths += [config.self_rewarding.template, config.self_rewarding.judge_seed]
    paths += [str(m.model).removeprefix("script:") for m in config.pool.members if m.model]
    recruit_data = config.pool.recruit.data if config.pool.recruit else None
    paths.append(recruit_data)
    for member in config.pool.members:
        paths += adapter_files(member.adapter)
    return hashes(paths)


def adapter_files(adapter: str | None) -> list[str]:
    """The files of an adapter in a folder; none where there is no adapter."""
    names = ("adapter_config.json", "adapter_model.safetensors") if adapter else ()
    return [str(Path(adapter or "") / name) for name in names]


def hashes(paths: Iterable[str | None]) -> list[str]:
    """Hashes of those that are files, in order, base weights left out."""
    files = [Path(path) for path in paths if path and not path.startswith(("builtin:", "hub:"))]
    small = [path for path in files if path.suffix != ".gguf" and path.is_file()]
    return [hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in small]


def pool_members(asking: Asking) -> dict[str, Member]:
    """Members by name, as the ledger has them."""
    return {member.name: member for member in asking.ledger.members()}


UNMADE = (
    "recruits are made by a run and are not there yet; make them with `phalanx recruit CONFIG`, "
    "and add pool=pool/pool.yaml"
)


def refuse_unmade(config: Config, members: Sequence[Member]) -> None:
    """Raise ConfigError for recruits: only a run makes them."""
    recruits = {member.name for member in pool.recruits_from(config)}
    unmade = [member.name for member in members if member.name in recruits]
    if unmade:
        raise ConfigError(f"{', '.join(unmade)}: {UNMADE}")


@dataclass(frozen=True, slots=True)
class Spent:
    """What was asked in all: requests with their repetitions, tokens, and money by the endpoints'
    prices (0 where there are none)."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float = 0.0

    def __sub__(self, before: Spent) -> Spent:
        return Spent(
            self.calls - before.calls,
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            self.money - before.money,
        )

    def __str__(self) -> str:
        money = f", {self.money:.4f} in money" if self.money else ""
        return (
            f"{self.calls} calls, {self.prompt_tokens} tokens read and "
            f"{self.completion_tokens} written{money}"
        )


def spent(place: Asking) -> Spent:
    """Everything that the ledger of this place has, failed requests included."""
    endpoints = {end.name: end for end in place.config.endpoints}
    behind = {name: endpoints.get(m.endpoint) for name, m in pool_members(place).items()}
    total = Spent()
    for row in place.ledger.query(
        "SELECT member, sum(attempts) AS calls, sum(num_prompt_tokens) AS read, "
        "sum(num_completion_tokens) AS written FROM responses GROUP BY member"
    ):
        endpoint = behind[row["member"]]
        total = Spent(
            total.calls + row["calls"],
            total.prompt_tokens + row["read"],
            total.completion_tokens + row["written"],
            total.money + (endpoint.money(row["read"], row["written"]) if endpoint else 0.0),
        )
    return total
