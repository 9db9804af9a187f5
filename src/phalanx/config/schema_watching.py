"""The sections that watch a run: ``track`` sends its numbers to other tools."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from phalanx.config.base import Section


class TrackSettings(Section):
    report_to: list[Literal["tensorboard", "wandb", "trackio", "mlflow"]] = []
    """Trackers that get a run's numbers while it goes on: each training's steps as a run of its
    own (`ada@1`), and reputations, judging, evaluation and cost by iteration as the run `pool`. No
    texts are sent. Keys are the trackers' own affair (`wandb login`); see `docs/trackers.md`."""
    project: str = ""
    """The project (MLflow: experiment). Default: `WANDB_PROJECT` or `MLFLOW_EXPERIMENT_NAME` for
    these trackers, else `phalanx`."""
    name: str = Field("", pattern=r"^([A-Za-z0-9][A-Za-z0-9_. -]{0,99})?$")
    """The run's name in the trackers, without slashes. Default: the name of its folder."""
    folder: str = ""
    """Where TensorBoard and wandb put files, in a folder with the run's name. Default: `track` in
    the run's folder. trackio and MLflow go by `TRACKIO_DIR` and `MLFLOW_TRACKING_URI`."""
