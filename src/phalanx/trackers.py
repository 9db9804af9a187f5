"""Runs in TensorBoard, Weights & Biases, trackio and MLflow: opened, written to, closed.

Training steps go through transformers' own callbacks; numbers of a whole run go through
:func:`write`. No tracker may end the work: one that raises is left out until the next start, and
:func:`reporting` and :func:`write` give back what it said. What trackers print is not shown, and
none of them may ask for a key.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback

PROJECT = "phalanx"
_PROJECT_VARIABLES = {"wandb": "WANDB_PROJECT", "mlflow": "MLFLOW_EXPERIMENT_NAME"}
# transformers would upload weights, or leave hooks in a base that others use.
_NEVER = ("WANDB_LOG_MODEL", "WANDB_WATCH")
# Command lines hold settings, which may be texts; a repository's address is nobody's business.
_UNSENT = ("x_disable_meta", "disable_git")
_TAG = "phalanx.id"
_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
_LEAST_SECRET = 6
_IN_URL = re.compile(r"//[^/@\s]+@")
given_up: dict[tuple[str, str, str], str] = {}
"""(tracker, project, folder) that failed in this process, and why."""


@dataclass(frozen=True)
class Target:
    """One run in each of ``report_to``: a training (``ada@1``), or the pool by iterations.

    ``group`` is the name of the whole run, ``id`` is this target's alone wherever it is written,
    ``folder`` is where TensorBoard and Weights & Biases put files. An empty ``project`` is the
    tracker's own variable (``WANDB_PROJECT``), else ``phalanx``.
    """

    report_to: tuple[str, ...]
    project: str
    group: str
    name: str
    id: str
    folder: Path

    @property
    def title(self) -> str:
        return f"{self.group}/{self.name}"

    def project_of(self, tracker: str) -> str:
        return self.project or os.environ.get(_PROJECT_VARIABLES.get(tracker, ""), "") or PROJECT

    def place(self, tracker: str) -> tuple[str, str, str]:
        return (tracker, self.project_of(tracker), str(self.folder))


@contextmanager
def reporting(target: Target | None, trainer: Trainer) -> Iterator[list[str]]:
    """Inside, the trainer's steps reach the trackers; gives the list that failures are noted in.

    Each training is a new run in a tracker: one that was cut off and begins anew does not mix with
    what it had written (TensorBoard, which goes by folders, hides the earlier steps).
    """
    if target is None or not target.report_to:
        yield []
        return
    desk = _Desk(target)
    trainer.add_callback(_forwarding(desk))
    ok = False
    try:
        yield desk.notes
        ok = True
    finally:
        desk.each(lambda tracker: tracker.close(ok))


def write(target: Target, values: Mapping[int, Mapping[str, float]], about: str) -> dict[str, str]:
    """Numbers by step, all in one run of each tracker, which is taken up where it was.

    ``about``: a short text to keep with the run. Returns what failed: tracker -> why.
    """
    desk = _Desk(target)
    desk.each(lambda tracker: tracker.resume(about, min(values)))
    for step, numbers in sorted(values.items()):
        desk.each(lambda tracker, at=step, what=dict(numbers): tracker.log(what, at))
    desk.each(lambda tracker: tracker.close(True))
    return dict(zip(desk.failed, desk.notes, strict=True))


class _Desk:
    """The trackers of one target that still work."""

    def __init__(self, target: Target) -> None:
        self.notes: list[str] = []
        self.failed: list[str] = []
        self._target = target
        self._open: dict[str, _Tracker] = {}
        for name in target.report_to:
            if target.place(name) in given_up:
                self.failed.append(name)
                self.notes.append(
                    given_up[target.place(name)]
                )  # whoever is heard first has the why
            else:
                self._open[name] = _TRACKERS[name](target)

    def each(self, do: Callable[[_Tracker], object]) -> None:
        for name, tracker in list(self._open.items()):
            try:
                with _quiet():
                    do(tracker)
            except Exception as error:  # whatever a tracker raises, the run goes on
                del self._open[name]
                why = given_up[self._target.place(name)] = _why(name, self._target.name, error)
                self.failed.append(name)
                self.notes.append(why)


def _why(name: str, what: str, error: Exception) -> str:
    said = " ".join(str(error).split()) or "no message"
    said = f"{type(error).__name__}: {said[:300]}{'…' if len(said) > 300 else ''}"
    return (
        f"{name} failed at {what} and is left out until the next start; the ledger has everything "
        f"({_without_keys(said)})"
    )


def _without_keys(text: str) -> str:
    """Values of variables that are named like keys, and passwords in URLs, are taken out."""
    for name, value in os.environ.items():
        if _SECRET_NAMES.search(name) and len(value) >= _LEAST_SECRET:
            text = text.replace(value, "[key]")
    return _IN_URL.sub("//[key]@", text)


@contextmanager
def _quiet() -> Iterator[None]:
    """What is printed inside is dropped, and without a terminal nobody is asked for a key."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


@contextmanager
def _never() -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in _NEVER if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


class _Tracker(Protocol):
    """One run in one tracker: for a training :meth:`callback`, else :meth:`resume` and :meth:`log`,
    and then :meth:`close`."""

    def callback(self) -> TrainerCallback:
        """transformers' own, for a new run that is open already."""

    def resume(self, about: str, step: int) -> None:
        """Take the run up before this step; open it where it is not there yet."""

    def log(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self, ok: bool) -> None:
        """``ok``: nothing was raised meanwhile. Does nothing where nothing was opened."""


class _TensorBoard:
    def __init__(self, target: Target) -> None:
        self._folder = target.folder / target.name
        self._writer: Any = None

    def callback(self) -> TrainerCallback:
        from transformers.integrations import TensorBoardCallback

        self._open(0)
        return TensorBoardCallback(self._writer)

    def resume(self, about: str, step: int) -> None:
        # In this process nothing is sent twice; an earlier one may have died before it marked it.
        self._open(None if self._folder in _written else step)
        self._writer.add_text("about", about, step)
        _written.add(self._folder)

    def _open(self, step: int | None) -> None:
        """Steps from ``step`` on that are there already are hidden from now on."""
        from torch.utils.tensorboard import SummaryWriter

        if step is not None:
            _wait_for_a_new_second(self._folder)
        self._writer = SummaryWriter(str(self._folder), purge_step=step)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, ok: bool) -> None:
        if self._writer is not None:
            self._writer.close()


_written: set[Path] = set()
"""Folders of runs that this process has written to and goes on with."""


def _wait_for_a_new_second(folder: Path) -> None:
    """TensorBoard reads files in the order of their names, which have the second that they are of:
    what hides earlier steps must not come before them."""
    while any(
        path.name.split(".")[3] == f"{int(time.time()):010d}"
        for path in folder.glob("events.out.tfevents.*")
    ):
        time.sleep(0.05)


class _Wandb:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._run: Any = None

    def callback(self) -> TrainerCallback:
        from transformers.integrations import WandbCallback

        self._open(reinit="finish_previous")
        with _never():
            return WandbCallback()

    def resume(self, about: str, step: int) -> None:
        # A step that the run has already is not taken twice: it must be larger than the last.
        self._open(id=self._target.id, resume="allow", notes=about, reinit="create_new")

    def _open(self, **more: Any) -> None:
        import wandb

        target = self._target
        target.folder.mkdir(parents=True, exist_ok=True)
        unsent = {name: True for name in _UNSENT if name in wandb.Settings.model_fields}
        self._run = wandb.init(
            project=target.project_of("wandb"),
            group=target.group,
            name=target.title,
            dir=str(target.folder),
            # What goes through the terminal may be texts of models.
            settings=wandb.Settings(console="off", silent=True, save_code=False, **unsent),
            **more,
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, ok: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if ok else 1)


_LOST = {"write-logs-to-sqlite", "local-sender-loop", "persist-logs-locally"}
"""Warnings of trackio that say that numbers are gone."""


class _Trackio:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._run: Any = None

    def callback(self) -> TrainerCallback:
        from transformers.integrations import TrackioCallback

        def setup(callback: Any, args: Any, state: Any, model: Any, **_: Any) -> None:
            self._open(self._target.title, "never", config=args.to_dict())
            callback._initialized = True

        # transformers' own setup goes on with an earlier run of the same name.
        return type("Ours", (TrackioCallback,), {"setup": setup})()

    def resume(self, about: str, step: int) -> None:
        # Runs are found by name here, and another run may have a folder of the same name.
        name = f"{self._target.title} {self._target.id[:6]}"
        self._open(name, "allow", config={"about": about})

    def _open(self, name: str, resume: str, config: dict[str, Any]) -> None:
        import trackio

        self._run = trackio.init(
            project=self._target.project_of("trackio"),
            name=name,
            group=self._target.group,
            resume=resume,
            private=True,
            embed=False,
            config=config,
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self, ok: bool) -> None:
        if self._run is None:
            return
        import trackio

        if trackio.context_vars.current_run.get() is self._run:  # its callback may have ended it
            trackio.finish()
        # It raises nothing where it could not keep what it was given: it goes on without.
        if lost := _LOST & getattr(self._run, "_warned_failures", set()):
            place = os.environ.get("TRACKIO_DIR", "its own folder")
            raise OSError(f"numbers could not be kept in {place} ({', '.join(sorted(lost))})")


# MLflow reports on its use to its makers, also where the store is a local file; and it waits more
# than four minutes for a server that does not answer, where one will do.
_MLFLOW = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5"}


class _Mlflow:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._run: Any = None

    def callback(self) -> TrainerCallback:
        from transformers.integrations import MLflowCallback

        self._open(None)
        return MLflowCallback()

    def resume(self, about: str, step: int) -> None:
        self._choose()
        import mlflow

        quoted = self._target.id.replace("'", "")
        found = mlflow.search_runs(
            filter_string=f"tags.`{_TAG}` = '{quoted}'", max_results=1, output_format="list"
        )
        self._open(found[0].info.run_id if found else None)
        mlflow.set_tag("mlflow.note.content", about)

    def _choose(self) -> None:
        for name, value in _MLFLOW.items():
            os.environ.setdefault(name, value)
        import mlflow

        mlflow.set_experiment(self._target.project_of("mlflow"))

    def _open(self, run_id: str | None) -> None:
        self._choose()
        import mlflow

        tags = {_TAG: self._target.id, "phalanx.run": self._target.group}
        name = None if run_id else self._target.title
        self._run = mlflow.start_run(run_id=run_id, run_name=name, tags=tags)

    def log(self, values: Mapping[str, float], step: int) -> None:
        import mlflow

        # The signs that MLflow allows in names, as transformers has them.
        named = {re.sub(r"[^0-9A-Za-z_\-\.\ :/]", "_", name): v for name, v in values.items()}
        known = mlflow.MlflowClient().get_metric_history(self._run.info.run_id, next(iter(named)))
        if all(one.step != step for one in known):
            mlflow.log_metrics(named, step=step)

    def close(self, ok: bool) -> None:
        import mlflow

        if self._run is not None:
            mlflow.end_run("FINISHED" if ok else "FAILED")


_TRACKERS: dict[str, Callable[[Target], _Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
    "mlflow": _Mlflow,
}


def _forwarding(desk: _Desk) -> TrainerCallback:
    """One callback that hands everything on to those of the trackers."""
    from transformers import TrainerCallback

    class Forwarding(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self._callbacks: dict[int, TrainerCallback] = {}

            def begin(tracker: _Tracker) -> None:
                callback = tracker.callback()
                with _never():
                    callback.on_train_begin(args, state, control, **more)
                self._callbacks[id(tracker)] = callback

            desk.each(begin)

        def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            desk.each(lambda t: self._callbacks[id(t)].on_log(args, state, control, **more))

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            desk.each(lambda t: self._callbacks[id(t)].on_train_end(args, state, control, **more))

    return Forwarding()


def lacking(name: str) -> list[str]:
    """The packages that a tracker needs and that are not installed; none is imported."""
    needed = ("tensorboard", "torch") if name == "tensorboard" else (name,)
    return [package for package in needed if importlib.util.find_spec(package) is None]
