"""Engines of the tests, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.config.schema import BudgetSettings, EndpointSettings
from phalanx.engines.openai import OpenAIEngine
from tests.engines.behind import Make
from tests.server import TestServer


@pytest.fixture
def engine_for() -> Iterator[Make]:
    """Engines with short waits; closed at the end."""
    made: list[OpenAIEngine] = []

    def make(
        server: TestServer | str, budget: Any = None, options_tokens: int = 256, **settings: Any
    ) -> OpenAIEngine:
        url = server if isinstance(server, str) else server.url
        endpoint = EndpointSettings(name="e", url=url, **settings)
        environ = {"TEST_KEY": "sk-very-secret-0123456789"}
        limits = BudgetSettings(**(budget or {}))
        made.append(
            OpenAIEngine([endpoint], limits, environ, options_tokens=options_tokens, backoff_s=0.02)
        )
        return made[-1]

    yield make
    for engine in made:
        engine.close()
