"""Engines, weights and training processes: made when first needed, shared by all phases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import Config, ResourceSettings
from phalanx.engines.pooled import PooledEngine, job_key
from phalanx.errors import ConfigError
from phalanx.executors.local import LocalExecutor
from phalanx.executors.processes import ProcessExecutor
from phalanx.executors.sharing import WorkerExecutor
from phalanx.pool import TRAINABLE as TRAINABLE
from phalanx.pool import members_from
from phalanx.progress import Silent, Stoppable
from phalanx.training import TrainJob
from phalanx.training.saving import held_in, trained_member, whole_folder
from phalanx.types import Engine, Member, Progress, Request, Response, TrainResult
from phalanx.weights.parcels import Files, Parcel, Receiver, Sender, pack, unpack

if TYPE_CHECKING:
    from phalanx.weights.store import Weights


class Workshop:
    """Use as a context manager; leaving it closes every engine and frees the weights.

    ``folder`` is the run's; servers that are started write their logs below it.
    """

    def __init__(self, config: Config, folder: Path | None = None) -> None:
        self._config = config
        self._folder = folder
        self._resources = config.resources
        self._engines: dict[str, Engine] = {}
        self._weights: Weights | None = None
        self._workers: WorkerExecutor | None = None
        self._sender: Sender | None = None

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # backwards; all of them, also where one raises
            if self._weights is not None:
                stack.callback(self._weights.close)
            if self._workers is not None:
                stack.callback(self._workers.close)
            for engine in self._engines.values():
                stack.callback(engine.close)

    @property
    def weights(self) -> Weights:
        if self._weights is None:
            self._weights = make_weights(self._resources)
        return self._weights

    @property
    def workers(self) -> WorkerExecutor | None:
        """The workers that serve and train, there and ready to begin; None: this process does.

        Raises ConfigError where a cluster has no room for them.
        """
        resources = self._resources
        if self._workers is None and resources.executor == "ray":
            from phalanx.executors.ray import RayExecutor

            threads = max(1, int(resources.ray.cpus))
            setup = (_of_a_ray_worker(resources), threads)
            cluster = RayExecutor(resources.ray, _set_up_worker, setup)
            if resources.ray.adapters == "store":
                self._sender = Sender(cluster.put)
            self._workers = cluster
        elif self._workers is None and resources.workers > 1:
            self._workers = ProcessExecutor(resources.workers, _set_up_worker, (resources, 1))
        if self._workers is not None:
            self._workers.open()
        return self._workers

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
        """Run training jobs here, or on the workers where there are any; results in order.

        ``check_stop`` raises where the work is to stop; an unfinished training leaves nothing.
        Raises ConfigError where new weights of a whole model could not be served afterwards.
        Servers on this machine rest meanwhile, and reward models leave the device; the base is put
        away before servers go on, and workers, which hold bases too, are ended until they are
        needed again.
        """
        self._refuse_unservable(jobs)
        if self._config.vllm.url and self._serves_itself:
            self.engine("vllm")  # a server that runs already holds its memory, asked or not
        served = self._engines.get("vllm")
        if served is not None:
            served.rest(progress.say)
        if not all(job.is_on_disk for job in jobs):
            self._put_rewards_away()
        try:
            yield from self._train(phase, jobs, progress, check_stop)
        finally:
            if self._serves_itself:
                self._clear_the_device()

    def _refuse_unservable(self, jobs: Sequence[TrainJob]) -> None:
        """A whole model reaches neither a vLLM server that runs nor a machine without our folders.

        The rules of the configuration say so earlier; this is for jobs made in Python.
        """
        whole = [job.member for job in jobs if job.settings.is_full]
        for name, engine in ((member.name, member.engine) for member in whole):
            if engine == "vllm":
                raise ConfigError(
                    f"{name} is served by vLLM, which takes up new adapters alone; with weights: "
                    "full use serve: here"
                )
            if self._resources.executor == "ray" and self._resources.ray.adapters == "store":
                raise ConfigError(
                    f"{name}: a whole model does not travel through Ray's object store; with "
                    "weights: full set resources.ray.adapters: folder"
                )

    def _clear_the_device(self) -> None:
        if self._weights is not None:
            self._weights.release()
        self._put_rewards_away()
        if self._workers is not None:
            self._workers.close()
            if self._sender is not None:  # what it sent may be gone with the cluster
                self._sender = Sender(self._sender.put)

    def _put_rewards_away(self) -> None:
        release = getattr(self._engines.get("reward"), "release", None)
        if release is not None:  # an engine put in its place may hold nothing
            release()

    @property
    def _serves_itself(self) -> bool:
        """Whether members are behind a vLLM server that shares the device with training."""
        shares = self._config.vllm.between_phases != "keep"
        return shares and any(member.serve == "vllm" for member in self._config.pool.members)

    def _train(
        self,
        phase: str,
        jobs: Sequence[TrainJob],
        progress: Progress,
        check_stop: Callable[[], None],
    ) -> Iterator[TrainResult]:
        owed = [job for job in jobs if not job.is_on_disk]
        workers = self.workers if owed else None
        if workers is None:
            stoppable = Stoppable(progress, check_stop)
            yield from LocalExecutor().map(lambda job: job.run(self.weights, stoppable), jobs)
            return
        done = {job.folder: job.run(self.weights, Silent()) for job in jobs if job not in owed}
        names = ", ".join(job.member.name for job in owed)
        progress.start(f"{phase} {names}", sum(job.num_steps for job in owed), "step")
        results = workers.map(
            _train_on_worker,
            self._errands(owed, [(job.member.adapter, job.initial_adapter) for job in owed]),
            check_stop,
            keys=[job_key(job.member) for job in owed],
            report=progress.advance,
            arrived=lambda number, result: _land(owed[number], *result),
        )
        try:
            for job in jobs:
                yield done[job.folder] if job.folder in done else next(results)
        finally:
            results.close()
            progress.finish()

    def _errands(
        self, work: Sequence[Any], adapters: Sequence[Sequence[str | None]]
    ) -> list[_Errand]:
        """Each piece of work with the adapters that it needs, where those have to be sent along."""
        if self._sender is None:
            return [_Errand(piece) for piece in work]
        parcels = self._sender.parcels(name for names in adapters for name in names)
        return [
            _Errand(piece, {name: parcels[name] for name in names if name in parcels}, away=True)
            for piece, names in zip(work, adapters, strict=True)
        ]

    def _make(self, name: str) -> Engine:
        makers = {
            "scripted": self._scripted,
            "hf": self._hf,
            "openai": self._openai,
            "vllm": self._vllm,
            "reward": self._reward,
        }
        if name not in makers:
            raise ConfigError(f"engine {name!r} is not known; known: {', '.join(sorted(makers))}")
        return makers[name]()

    def _scripted(self) -> Engine:
        from phalanx.engines.scripted import ScriptedEngine

        return ScriptedEngine(batch_size=self._resources.batch_size)

    def _openai(self) -> Engine:
        from phalanx.engines.openai import OpenAIEngine

        config = self._config
        longest = config.judge.max_new_tokens
        return OpenAIEngine(config.endpoints, config.budget, options_tokens=longest)

    def _vllm(self) -> Engine:
        from phalanx.engines.vllm import ServedPool, VllmEngine

        config = self._config
        members = [member for member in members_from(config) if member.engine == "vllm"]
        rank = 0 if config.train.method == "none" else config.pair_training.lora.rank
        return VllmEngine(
            config.vllm,
            ServedPool(tuple(members), rank),
            folder=self._folder / "servers" if self._folder else None,
            keep_all=self._resources.keep_all_loaded,
        )

    def _reward(self) -> Engine:
        from phalanx.engines.reward import RewardEngine

        sizes = self._resources
        return RewardEngine(
            self.weights, batch_size=sizes.batch_size, batch_tokens=sizes.batch_tokens
        )

    def _hf(self) -> Engine:
        workers = self.workers  # before anything is loaded: there may be no room for them
        engine = _hf_engine(self.weights, self._resources)
        if workers is None:
            return engine

        def errands(batches: Sequence[Sequence[Request]]) -> list[_Errand]:
            return self._errands(batches, [[r.member.adapter for r in batch] for batch in batches])

        return PooledEngine(engine, workers, _answer_on_worker, errands)


def _hf_engine(weights: Weights, resources: ResourceSettings) -> Engine:
    from phalanx.engines.hf import HFEngine

    return HFEngine(weights, batch_size=resources.batch_size, batch_tokens=resources.batch_tokens)


def _of_a_ray_worker(resources: ResourceSettings) -> ResourceSettings:
    """The GPUs that a worker holds say where it computes: Ray hides none from one without."""
    return resources.model_copy(update={"gpus": None} if resources.ray.gpus else {"device": "cpu"})


def make_weights(resources: ResourceSettings, threads: int | None = None) -> Weights:
    # Threads that spin while they wait slow a shared machine down by an order of magnitude.
    # Read when torch is first imported; a user's own setting wins.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from phalanx.weights.store import Weights

    on_cpu = resources.device == "auto" and resources.gpus == 0
    return Weights(
        device="cpu" if on_cpu else resources.device,
        keep_all_loaded=resources.keep_all_loaded,
        merge_adapters=resources.merge_adapters,
        threads=threads or resources.threads,
    )


@dataclass(frozen=True)
class _Errand:
    """Work for a worker. ``away``: it sees none of our folders, so ``parcels`` come along."""

    work: Any
    parcels: dict[str, Parcel] = field(default_factory=dict)
    away: bool = False


class _Reporting(Silent):
    """A worker's progress: its steps go to the main process, which draws one bar for all."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report

    def advance(self, amount: int = 1) -> None:
        self._report(amount)


@dataclass(frozen=True)
class _Bench:
    """What a worker process holds: one set of weights, with which it serves and trains."""

    weights: Weights
    engine: Engine
    progress: Progress
    received: Receiver

    def local(self, member: Member, errand: _Errand) -> Member:
        """The member with its adapter where this machine has it."""
        return replace(member, adapter=self.adapter(member.adapter, errand))

    def adapter(self, name: str | None, errand: _Errand) -> str | None:
        parcel = errand.parcels.get(name or "")
        return name if parcel is None else str(self.received.folder(parcel))


_bench: list[_Bench] = []
"""One in a worker process, none elsewhere."""


def _set_up_worker(
    report: Callable[[int], None], resources: ResourceSettings, threads: int
) -> None:
    weights = make_weights(resources, threads)
    engine = _hf_engine(weights, resources)
    _bench[:] = [_Bench(weights, engine, _Reporting(report), Receiver())]
    weights.import_packages()  # while the main process reads tokenizers and plans


def _answer_on_worker(errand: _Errand) -> list[Response]:
    bench = _bench[0]
    here = {request.member: request.member for request in errand.work}
    here = {member: bench.local(member, errand) for member in here}
    return bench.engine.respond([replace(r, member=here[r.member]) for r in errand.work])


def _train_on_worker(errand: _Errand) -> tuple[TrainResult, Files]:
    """The result, and the files of its folder where the main process has to write them."""
    bench, job = _bench[0], errand.work
    member = bench.local(job.member, errand)
    initial = bench.adapter(job.initial_adapter, errand)
    if not errand.away:
        return job.run(bench.weights, bench.progress), {}
    with TemporaryDirectory(dir=bench.received.root) as scratch:
        folder = Path(scratch) / job.member.name
        here = replace(job, member=member, initial_adapter=initial, folder=folder)
        result = here.run(bench.weights, bench.progress)
        return result, pack(folder) if here.is_on_disk else {}


def _land(job: TrainJob, result: TrainResult, files: Files) -> TrainResult:
    """Write what a worker sent back, whole or not at all; the member as this machine sees it."""
    if not files:
        return result
    with whole_folder(job.folder) as scratch:
        unpack(files, scratch)
    held = held_in(job.folder)
    return replace(result, member=trained_member(job.member, job.folder, job.version, held))
