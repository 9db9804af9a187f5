"""One file per method; this dict names them.

A method is ``run(iteration, ask, config) -> IterationResult``. ``ask`` is its only power: it
touches no disk, network or device, so every method also runs on the scripted engine.
"""

from collections.abc import Callable

from phalanx.config.schema import Config
from phalanx.methods import sparta
from phalanx.types import Ask, Iteration, IterationResult

METHODS: dict[str, Callable[[Iteration, Ask, Config], IterationResult]] = {"sparta": sparta.run}
