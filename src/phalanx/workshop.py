"""Engines and weights of one process: made when first needed, shared by all phases."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from phalanx.config.schema import ResourceSettings
from phalanx.errors import ConfigError
from phalanx.types import Engine

if TYPE_CHECKING:
    from phalanx.weights.store import Weights

# Members of these engines have weights here that training can change.
TRAINABLE = frozenset({"hf"})


class Workshop:
    """Use as a context manager; leaving it closes every engine and frees the weights."""

    def __init__(self, resources: ResourceSettings) -> None:
        self._resources = resources
        self._engines: dict[str, Engine] = {}
        self._weights: Weights | None = None

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._engines.values():
            engine.close()
        if self._weights is not None:
            self._weights.close()

    @property
    def weights(self) -> Weights:
        if self._weights is None:
            # Threads that spin while they wait slow a shared machine down by an order of
            # magnitude. Read when torch is first imported; a user's own setting wins.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            from phalanx.weights.store import Weights

            self._weights = Weights(
                device=self._resources.device,
                keep_all_loaded=self._resources.keep_all_loaded,
                merge_adapters=self._resources.merge_adapters,
                threads=self._resources.threads,
            )
        return self._weights

    def engine(self, name: str) -> Engine:
        """The engine of that name. Raises ConfigError for a name that no engine has."""
        if name not in self._engines:
            self._engines[name] = self._make(name)
        return self._engines[name]

    def use(self, name: str, engine: Engine) -> None:
        """Put an engine of one's own in place of a built-in one (tests, extensions)."""
        self._engines[name] = engine

    def _make(self, name: str) -> Engine:
        if name == "scripted":
            from phalanx.engines.scripted import ScriptedEngine

            return ScriptedEngine(batch_size=self._resources.batch_size)
        if name == "hf":
            from phalanx.engines.hf import HFEngine

            return HFEngine(
                self.weights,
                batch_size=self._resources.batch_size,
                batch_tokens=self._resources.batch_tokens,
            )
        raise ConfigError(f"engine {name!r} is not known; known: hf, scripted")
