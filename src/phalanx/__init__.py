"""Phalanx aligns a pool of language models together, without labels.

    >>> import phalanx
    >>> run = phalanx.run("preset:demo")          # doctest: +SKIP
    >>> run.preferences()[0].keys()               # doctest: +SKIP

The names below are loaded when first used, so ``import phalanx`` stays light.
"""

from typing import Any

from phalanx.version import __version__

_FROM = {
    "Run": "phalanx.api",
    "open_run": "phalanx.api",
    "run": "phalanx.api",
    "Config": "phalanx.config.schema",
    "ablate": "phalanx.api",
    "compare": "phalanx.api",
    "export_adapter": "phalanx.handing",
    "export_for": "phalanx.handing",
    "export_weights": "phalanx.handing",
    "load_config": "phalanx.api",
    "measure": "phalanx.api",
    "list_methods": "phalanx.api",
    "mix": "phalanx.api",
    "judge": "phalanx.api",
    "judge_bench": "phalanx.api",
    "label": "phalanx.labelling",
    "pack": "phalanx.packing",
    "pull": "phalanx.handing",
    "push": "phalanx.handing",
    "serve": "phalanx.live.application",
    "status": "phalanx.report.following",
    "unpack": "phalanx.packing",
    "watch": "phalanx.report.following",
    "reproduce": "phalanx.api",
    "synthesise": "phalanx.api",
}

__all__ = [
    "Config",
    "Run",
    "__version__",
    "ablate",
    "compare",
    "export_adapter",
    "export_for",
    "export_weights",
    "judge",
    "judge_bench",
    "label",
    "list_methods",
    "load_config",
    "measure",
    "mix",
    "open_run",
    "pack",
    "pull",
    "push",
    "reproduce",
    "run",
    "serve",
    "status",
    "synthesise",
    "unpack",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _FROM:
        import importlib

        return getattr(importlib.import_module(_FROM[name]), name)
    raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
