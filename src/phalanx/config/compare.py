"""Two configurations compared key by key, in the order of the schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from phalanx.config.schema import Config, Section

RESUME_FREE = (
    "iterations",
    "output",
    "judge.max_unreadable",
    "aggregate.anchors",
    "resources.gpus",
    "resources.keep_all_loaded",
    "pool.members.*.gpus",
    "budget",
    "search.calls",
    "share",
    "guard",
    "track",
    "endpoints.*.url",
    "endpoints.*.key",
    "endpoints.*.max_concurrency",
    "endpoints.*.requests_per_minute",
    "endpoints.*.tokens_per_minute",
    "endpoints.*.timeout",
    "endpoints.*.tries",
    "endpoints.*.patience",
    "endpoints.*.price_in",
    "endpoints.*.price_out",
    "vllm",
    "resources.ray.address",
    "resources.ray.workers",
    "resources.ray.adapters",
    "resources.ray.resources",
)
"""Keys that may change between the start of a run and its resumption. They say where and when
work is done, or when to stop, not what is computed; ``aggregate.anchors`` says so only of
iterations that have not begun. ``device``, ``threads``, ``workers``,
``executor``, ``ray.cpus``, ``ray.gpus``, ``batch_size``, ``batch_tokens`` and ``merge_adapters``
are not free: they choose kinds of devices, numbers of threads and batches, which round
differently."""


def differences(
    a: Config, b: Config, free: Iterable[str] = RESUME_FREE
) -> list[tuple[str, Any, Any]]:
    """(key, value in a, value in b) for every key that differs, the first one first.

    Items of a list are matched by name. ``free`` names keys to leave out (``*`` is any one part):
    the default says why a run cannot be resumed, or is empty; ``free=()`` gives everything.
    """
    patterns = [pattern.split(".") for pattern in free]
    found: list[tuple[tuple[str, ...], Any, Any]] = []
    _compare((), a, b, found)
    return [
        (".".join(path), left, right)
        for path, left, right in found
        if not any(_matches(path, pattern) for pattern in patterns)
    ]


def _matches(path: tuple[str, ...], pattern: list[str]) -> bool:
    return len(path) >= len(pattern) and all(
        word in ("*", part) for word, part in zip(pattern, path, strict=False)
    )


def _compare(
    path: tuple[str, ...], a: Any, b: Any, found: list[tuple[tuple[str, ...], Any, Any]]
) -> None:
    if a == b:
        return
    if isinstance(a, Section) and type(a) is type(b):
        for name in type(a).model_fields:
            _compare((*path, name), getattr(a, name), getattr(b, name), found)
    elif _named(a) and _named(b):
        left, right = ({item.name: item for item in items} for items in (a, b))
        if list(left) != list(right) and set(left) == set(right):
            found.append((path, list(left), list(right)))
        for name in [*left, *(name for name in right if name not in left)]:
            _compare((*path, name), left.get(name), right.get(name), found)
    else:
        found.append((path, _plain(a), _plain(b)))


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(hasattr(item, "name") for item in value)


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        rule = {"rule": value.rule} if hasattr(value, "rule") else {}
        return rule | value.model_dump(exclude_defaults=True)
    return [_plain(item) for item in value] if isinstance(value, list) else value
