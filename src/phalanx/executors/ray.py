"""Jobs on a Ray cluster: one actor a worker, placed by the resources that it declares.

The only file that knows Ray. Actors are never restarted by Ray itself: a lost one is replaced
here, and its job given to whoever is free, which is also right after its node is gone.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from phalanx.config.machine import cores
from phalanx.config.schema import RaySettings
from phalanx.errors import ConfigError, EngineError, MissingPackage
from phalanx.executors.sharing import (
    POLL_S,
    Ended,
    Function,
    Lost,
    Station,
    WorkerExecutor,
)
from phalanx.version import __version__

_REPORT_S = 1.0
_LEAVE_S = 5.0
# A cluster needs a moment to see what is free, above all when another run has just ended.
_ROOM_S = 5.0
# How long to wait for a worker while there is none: a lost node may come back.
_PATIENCE_S = 120.0
# A worker that does not start is tried again this often, after longer and longer pauses: the
# cluster may not know yet that the node it chose is gone.
_STARTS = 5
_PAUSE_S = 2.0
_ROUND = 1e-9


@dataclass(frozen=True)
class Stored:
    """An object in Ray's store. It can travel inside a job; whoever wants it loads it."""

    reference: Any

    def load(self) -> Any:
        return _ray().get(self.reference)


class Worker:
    """The actor's side: jobs in one thread that is always the same, questions beside it."""

    def __init__(self, setup: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._reported = 0
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1)
        self._station = self._thread.submit(Station, setup, self._report, arguments)

    def place(self) -> str:
        """The version that is installed here; that this answers means that the worker is there.

        It may still be at its set-up, which the first job waits for.
        """
        return __version__

    def run(self, function: Function, job: Any) -> tuple[bool, Any, int]:
        """What :meth:`Station.do` says, and what this worker has reported by then."""
        station = self._station.result()
        ok, value = self._thread.submit(station.do, function, job).result()
        if not ok and isinstance(value, EngineError):
            node = _ray().util.get_node_ip_address()
            value = EngineError(f"on node {node} ({socket.gethostname()}): {value}")
        return ok, value, self.reports()

    def reports(self) -> int:
        """What was reported in this worker's life."""
        with self._lock:
            return self._reported

    def _report(self, amount: int) -> None:
        with self._lock:
            self._reported += amount


Kind = Literal["place", "run", "reports"]


class RayExecutor(WorkerExecutor):
    """Workers as ``settings`` declare them.

    A cluster of this machine (``address: local``) is started for the work and ended with it; any
    other is joined and left as it was.
    """

    def __init__(
        self, settings: RaySettings, setup: Callable[..., None], arguments: tuple[Any, ...] = ()
    ) -> None:
        super().__init__()
        self._settings = settings
        self._setup = (setup, arguments)
        self._joined = False
        self._actors: dict[int, Any] = {}
        self._ready: set[int] = set()
        self._pending: dict[Any, tuple[Kind, int]] = {}
        self._told: dict[int, int] = {}
        self._hired = 0
        self._false_starts = 0
        self._hire_at: list[float] = []
        self._asked_at = self._alive_at = 0.0

    @property
    def asked(self) -> dict[str, float]:
        """What one worker holds, in Ray's names."""
        settings = self._settings
        wanted = {"CPU": settings.cpus, "GPU": settings.gpus, **settings.resources}
        return {name: amount for name, amount in wanted.items() if amount}

    def open(self) -> None:
        """Start or join the cluster, and ask for the workers.

        Raises ConfigError where it has no room for them, EngineError where no cluster answers.
        """
        if self._actors:
            return
        ray = _ray()
        if not ray.is_initialized():
            _connect(self._settings.address)
            self._joined = True
        try:
            for _ in range(self._count()):
                self._hire()
        except BaseException:
            self.close()
            raise
        self._alive_at = time.monotonic()

    def close(self) -> None:
        """End the workers, and the cluster where it is ours."""
        ray = _ray()
        if ray.is_initialized():
            busy = {worker for kind, worker in self._pending.values() if kind != "reports"}
            idle = [actor for worker, actor in self._actors.items() if worker not in busy]
            leaving = [actor.__ray_terminate__.remote() for actor in idle]
            if leaving:
                ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
            for actor in self._actors.values():
                ray.kill(actor)
            if self._joined:
                ray.shutdown()
        self._actors.clear()
        self._ready.clear()
        self._pending.clear()
        self._told.clear()
        self._hire_at.clear()
        self.last.clear()
        self._joined = False

    def put(self, value: Any) -> Stored:
        """Lay an object into the store, from where every node can load it."""
        self.open()
        return Stored(_ray().put(value))

    def ready(self) -> Sequence[int]:
        return sorted(self._ready)

    def give(self, worker: Hashable, function: Function, job: Any) -> None:
        self._ask("run", worker, self._actors[worker].run.remote(function, job))

    def events(
        self, seconds: float, report: Callable[[int], None] | None
    ) -> Sequence[Ended | Lost]:
        ray = _ray()
        self._hire_again()
        if report is not None:
            self._ask_for_reports()
        found: list[Ended | Lost] = []
        for reference in self._answered(seconds):
            if reference not in self._pending:
                continue  # of a worker that was lost a moment ago
            kind, worker = self._pending.pop(reference)
            try:
                value = ray.get(reference)
            except ray.exceptions.RayError as error:
                found.append(self._replace(worker, kind, error))
                continue
            if kind == "run":
                *ended, total = value
                found.append(Ended(worker, *ended))
                self._tell(worker, total, report)
            elif kind == "reports":
                self._tell(worker, value, report)
            elif kind == "place":
                self._welcome(worker, value)
        self._refuse_endless_waiting()
        return found

    def _tell(self, worker: int, total: int, report: Callable[[int], None] | None) -> None:
        """Hand on what a worker has reported since it last said so.

        Answers overtake each other. A job's last steps come with its end, so that none are left
        for the next job's bar.
        """
        new = total - self._told.get(worker, 0)
        if new > 0:
            self._told[worker] = total
            if report is not None:
                report(new)

    def _count(self) -> int:
        """How many workers there will be. Raises ConfigError where there is no room for them."""
        ray, ask, wanted = _ray(), self.asked, self._settings.workers
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = _room(nodes, ask)
        until = time.monotonic() + _ROOM_S
        left = _free()
        free = min(room, _room(left, ask))
        while room >= (wanted or 1) and free < (wanted or room) and time.monotonic() < until:
            time.sleep(POLL_S)
            left = _free()
            free = min(room, _room(left, ask))
        if free >= (wanted or 1):
            return wanted or free
        raise ConfigError(
            f"resources.ray asks for {wanted or 1} workers with {_amounts(ask)} each; the cluster "
            f"at '{self._settings.address}' has room for {free}. Its {len(nodes)} nodes have "
            f"{_each(nodes, ask)}; free are {_each(left, ask)}. Ask for fewer workers, or for less "
            "per worker (cpus, gpus, resources), or add nodes"
        )

    def _hire(self) -> None:
        ray, settings = _ray(), self._settings
        threads = str(max(1, int(settings.cpus)))
        variables = {
            "OMP_NUM_THREADS": threads,
            "OMP_WAIT_POLICY": "PASSIVE",
            "TOKENIZERS_PARALLELISM": "false",
        }
        made = ray.remote(Worker).options(
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            resources=settings.resources or None,
            max_concurrency=2,  # a job, and a question about it
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": variables},
        )
        self._hired += 1
        actor = made.remote(*self._setup)
        self._actors[self._hired] = actor
        self._ask("place", self._hired, actor.place.remote())

    def _hire_again(self) -> None:
        now = time.monotonic()
        due = [at for at in self._hire_at if at <= now]
        self._hire_at = [at for at in self._hire_at if at > now]
        for _ in due:
            self._hire()

    def _answered(self, seconds: float) -> Sequence[Any]:
        """References that have their value by now; waits for the first one."""
        ray, pending = _ray(), list(self._pending)
        if not pending:
            time.sleep(seconds)
            return []
        done, _ = ray.wait(pending, num_returns=1, timeout=seconds)
        if done:
            done, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
        return done

    def _ask(self, kind: Kind, worker: Any, reference: Any) -> None:
        self._pending[reference] = (kind, worker)

    def _ask_for_reports(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < _REPORT_S:
            return
        self._asked_at = now
        asked = {worker for kind, worker in self._pending.values() if kind == "reports"}
        for worker in self._ready - asked:
            self._ask("reports", worker, self._actors[worker].reports.remote())

    def _welcome(self, worker: int, version: str) -> None:
        if version != __version__:
            raise EngineError(
                f"a node of the cluster has phalanx {version}, this machine {__version__}; "
                "install the same version everywhere"
            )
        self._ready.add(worker)
        self._false_starts = 0

    def _replace(self, worker: int, kind: Kind, error: Exception) -> Lost:
        """Bury a worker that cannot be reached; another will be hired."""
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        if kind == "place":
            self._false_starts += 1
            if self._false_starts >= _STARTS:
                raise EngineError(f"no worker can be started on the cluster: {reason}")
        self._pending = {ref: what for ref, what in self._pending.items() if what[1] != worker}
        self._ready.discard(worker)
        _ray().kill(self._actors.pop(worker))
        self._hire_at.append(time.monotonic() + _PAUSE_S * self._false_starts)
        return Lost(worker, reason)

    def _refuse_endless_waiting(self) -> None:
        now = time.monotonic()
        if self._ready:
            self._alive_at = now
        elif now - self._alive_at > _PATIENCE_S:
            raise EngineError(
                f"no worker with {_amounts(self.asked)} could be had from the cluster for "
                f"{_PATIENCE_S:.0f} s; its nodes are gone or in use. Everything recorded is kept"
            )


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingPackage("ray", "ray", "resources.executor: ray") from error
    return ray


def _connect(address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = _ray()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        options["include_dashboard"] = False
        options["num_cpus"] = cores()  # Ray itself counts those that are not ours to use, too
    try:
        _refuse_silence(address)
        with _loopback(address):
            ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"the Ray cluster at '{address}' could not be joined: {error}. Start one with "
            "`ray start --head`, or set resources.ray.address: local"
        ) from error


def _refuse_silence(address: str) -> None:
    """Raises OSError where nothing listens; Ray itself would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ROOM_S).close()


@contextmanager
def _loopback(address: str) -> Iterator[None]:
    """A cluster of this machine alone listens to no other machine.

    Ray takes 127.0.0.1 for the address by which others see this machine, unless it is told that
    there are no others, as it is told on systems where it knows no real clusters.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    alone = address == "local" or address.startswith(("127.0.0.1:", "localhost:"))
    ray_constants.ENABLE_RAY_CLUSTER = before and not alone
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _free() -> list[dict[str, float]]:
    """What is free by now, node by node: leftovers of two nodes do not add up to a worker."""
    from ray._private.state import available_resources_per_node
    from ray.util.client import ray as client

    ray = _ray()
    if client.is_connected():  # an address ray://: only the cluster's side can say
        found = ray.get(ray.remote(num_cpus=0)(available_resources_per_node).remote())
    else:
        found = available_resources_per_node()
    return list(found.values())


def _room(nodes: Sequence[Mapping[str, float]], ask: Mapping[str, float]) -> int:
    return sum(_fits(node, ask) for node in nodes)


def _fits(have: Mapping[str, float], ask: Mapping[str, float]) -> int:
    """Workers that one node has room for."""
    return min(_times(name, have.get(name, 0.0), amount) for name, amount in ask.items())


def _times(name: str, have: float, amount: float) -> int:
    """How often an amount can be had. A share of a GPU is had from one GPU, not from two.

    >>> _times("GPU", 2.0, 0.6), _times("GPU", 1.5, 0.5), _times("CPU", 2.0, 0.6)
    (2, 3, 3)
    """
    if name != "GPU" or amount >= 1:
        return math.floor(have / amount + _ROUND)
    whole = math.floor(have + _ROUND)  # what is left beside them is of a GPU that others share
    each, left = (math.floor(part / amount + _ROUND) for part in (1.0, have - whole))
    return whole * each + left


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items())


def _each(nodes: Sequence[Mapping[str, float]], ask: Mapping[str, float]) -> str:
    """``CPU 1; CPU 4``: what every node has of that which is asked for."""
    words = [_amounts({name: node.get(name, 0) for name in ask}) for node in nodes]
    return "; ".join(words) or "nothing"
