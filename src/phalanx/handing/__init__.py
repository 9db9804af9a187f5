"""Hand a result on: rows in other trainers' forms, weights, and what goes to the Hub and back."""

from phalanx.handing.parcel import Parcel, Repository, build
from phalanx.handing.pull import pull
from phalanx.handing.push import push, write_parcel
from phalanx.handing.tools import Exported, export_for
from phalanx.handing.weights import export_adapter, export_weights

__all__ = [
    "Exported", "Parcel", "Repository", "build", "export_adapter", "export_for", "export_weights",
    "pull", "push", "write_parcel",
]  # fmt: skip
