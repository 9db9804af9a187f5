"""The sections that watch a run: ``guard`` may stop it, ``track`` sends its numbers elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from phalanx.config.base import Section

Action = Literal["warn", "pause", "stop"]


class GuardActions(Section):
    max_unreadable: Action = "stop"
    """`warn` says it once an iteration and goes on; `pause` ends the process, and the same command
    goes on; `stop` ends it, and the same command ends again until the limit is changed."""
    max_flips: Action = "stop"
    """The same for this rule."""
    length_drift: Action = "stop"
    """The same for this rule."""
    hacking: Action = "stop"
    """The same for this rule."""
    max_kl: Action = "stop"
    """The same for this rule."""
    finite_loss: Literal["stop", "skip"] = "stop"
    """Where a loss, a gradient or a weight is not finite. `skip` leaves the member as it was in
    that iteration and goes on. There is no limit to set: this guard is always on."""


class GuardSettings(Section):
    max_unreadable: float | None = Field(None, ge=0, le=1)
    """Largest share of an iteration's judgments that cannot be read. Default:
    `judge.max_unreadable`."""
    max_flips: float | None = Field(None, ge=0, le=1)
    """Largest share of an iteration's readable judgments that change when the responses change
    places (of protocols that judge both orders). Default: no limit."""
    length_drift: float | None = Field(None, gt=1)
    """Largest ratio, either way, of a member's mean tokens a response to those of the first
    iteration. Default: no limit."""
    hacking: float | None = Field(None, ge=0, le=1)
    """Largest fall of a member's dev score below the best that it had (0.05 is five points) while
    its reputation has risen. Default: no limit."""
    max_kl: float | None = Field(None, gt=0)
    """Largest distance of a member in training to its reference, in nats a token, over the last
    eight steps. Default: no limit."""
    action: GuardActions = GuardActions()
    """What a rule does that fires."""


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
