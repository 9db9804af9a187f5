"""Rules about ``track``: a tracker that is not installed is refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config
from phalanx.trackers import lacking

_INSTALLED_WITH = {"torch": "'phalanx[hf]'", "mlflow": "mlflow-skinny"}


def check_tracking(config: Config) -> Iterator[Fault]:
    path = ("track", "report_to")
    for name in dict.fromkeys(config.track.report_to):
        if missing := lacking(name):
            packages = " ".join(_INSTALLED_WITH.get(one, one) for one in missing)
            yield Fault(
                path,
                f"{name} needs {' and '.join(missing)}, not installed here; install with: pip "
                f"install {packages}, or leave {name} out",
            )
    resources = config.resources
    away = resources.executor == "ray" and resources.ray.adapters == "store"
    if away and "tensorboard" in config.track.report_to:
        text = "Ray workers would write TensorBoard's files where nobody reads them; set "
        yield Fault(path, f"{text}resources.ray.adapters: folder, or leave tensorboard out")
