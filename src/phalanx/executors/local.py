"""Jobs one after another in this process: one base in memory, shared by all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class LocalExecutor:
    """Results come as each job ends, so a finished one is recorded before the next begins."""

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        for job in jobs:
            yield function(job)
