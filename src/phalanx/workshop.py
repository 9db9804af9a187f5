"""Engines, weights and training processes: made when first needed, shared by all phases."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import Config, ResourceSettings
from phalanx.errors import ConfigError
from phalanx.executors.local import LocalExecutor
from phalanx.executors.processes import ProcessExecutor
from phalanx.progress import Stoppable
from phalanx.training import TrainJob
from phalanx.types import Engine, Progress, TrainResult

if TYPE_CHECKING:
    from phalanx.weights.store import Weights

# Members of these engines have weights here that training can change.
TRAINABLE = frozenset({"hf", "vllm"})


class Workshop:
    """Use as a context manager; leaving it closes every engine and frees the weights."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._resources = config.resources
        self._engines: dict[str, Engine] = {}
        self._weights: Weights | None = None
        self._processes: ProcessExecutor | None = None
        self._steps: Any = None

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._engines.values():
            engine.close()
        if self._processes is not None:
            self._processes.close()
        if self._weights is not None:
            self._weights.close()

    @property
    def weights(self) -> Weights:
        if self._weights is None:
            self._weights = make_weights(self._resources)
        return self._weights

    def engine(self, name: str) -> Engine:
        """The engine of that name. Raises ConfigError for a name that no engine has."""
        if name not in self._engines:
            self._engines[name] = self._make(name)
        return self._engines[name]

    def use(self, name: str, engine: Engine) -> None:
        """Put an engine of one's own in place of a built-in one (tests, extensions)."""
        self._engines[name] = engine

    def train(
        self,
        phase: str,
        jobs: Sequence[TrainJob],
        progress: Progress,
        check_stop: Callable[[], None],
    ) -> Iterator[TrainResult]:
        """Run training jobs here, or in ``resources.workers`` processes; results in order.

        ``check_stop`` raises where the work is to stop; an unfinished training leaves nothing.
        """
        if self._resources.workers == 1:
            stoppable = Stoppable(progress, check_stop)
            yield from LocalExecutor().map(lambda job: job.run(self.weights, stoppable), jobs)
            return
        if self._processes is None:
            self._steps = multiprocessing.get_context("spawn").Queue()
            self._processes = ProcessExecutor(
                self._resources.workers, _set_up_worker, (self._resources, self._steps)
            )

        def poll() -> None:
            check_stop()
            while not self._steps.empty():
                progress.advance(self._steps.get())

        names = ", ".join(job.member.name for job in jobs)
        progress.start(f"{phase} {names}", sum(job.num_steps for job in jobs), "step")
        try:
            yield from self._processes.map(_train_in_worker, jobs, poll)
        finally:
            progress.finish()
            while not self._steps.empty():
                self._steps.get()

    def _make(self, name: str) -> Engine:
        makers = {"scripted": self._scripted, "hf": self._hf}
        if name not in makers:
            raise ConfigError(f"engine {name!r} is not known; known: {', '.join(sorted(makers))}")
        return makers[name]()

    def _scripted(self) -> Engine:
        from phalanx.engines.scripted import ScriptedEngine

        return ScriptedEngine(batch_size=self._resources.batch_size)

    def _hf(self) -> Engine:
        from phalanx.engines.hf import HFEngine

        return HFEngine(
            self.weights,
            batch_size=self._resources.batch_size,
            batch_tokens=self._resources.batch_tokens,
        )


def make_weights(resources: ResourceSettings, threads: int | None = None) -> Weights:
    # Threads that spin while they wait slow a shared machine down by an order of magnitude.
    # Read when torch is first imported; a user's own setting wins.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from phalanx.weights.store import Weights

    return Weights(
        device=resources.device,
        keep_all_loaded=resources.keep_all_loaded,
        merge_adapters=resources.merge_adapters,
        threads=threads or resources.threads,
    )


class _Steps:
    """A worker's progress: steps go to the main process, which draws one bar for all."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def start(self, phase: str, total: int, unit: str = "") -> None: ...

    def advance(self, amount: int = 1) -> None:
        self._queue.put(amount)

    def finish(self, note: str = "") -> None: ...

    def say(self, text: str) -> None: ...


_worker: dict[str, Any] = {}


def _set_up_worker(resources: ResourceSettings, steps: Any) -> None:
    _worker["weights"] = make_weights(resources, threads=1)
    _worker["progress"] = _Steps(steps)


def _train_in_worker(job: TrainJob) -> TrainResult:
    return job.run(_worker["weights"], _worker["progress"])
