"""Endpoints on loopback: a scripted pool, and tiny real models of which one has an adapter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from phalanx.live import guarded
from phalanx.serving.desk import open_desk
from phalanx.serving.endpoint import application
from tests.scripts import write_pool
from tests.tiny import make_adapter, make_tiny

RULES = r"""
sampling:
  - {when: '\n1\.\n<<<answer \w+>>>\nLima, of', purpose: vote, reply: '[[1]]'}
  - {when: '\n2\.\n<<<answer \w+>>>\nLima, of', purpose: vote, reply: '[[2]]'}
  - {when: ., purpose: vote, reply: '[[1]]'}
  - {when: long, reply: one two three four five six, finish: length}
  - {when: broken, fail: {kind: engine, message: the script breaks here}}
  - {when: ., member: ada, reply: Lima is the capital.}
  - {when: ., member: cleo, purpose: answer, reply: 'Lima, of course.'}
  - {when: ., reply: I think it is Lima.}
"""


@contextmanager
def endpoint(source: object, *, api_key: str = "", **options) -> Iterator[SimpleNamespace]:
    """``url`` and ``desk`` of an endpoint that runs while the block does."""
    with (
        open_desk(source, **options) as desk,
        guarded.served(application(desk, api_key=api_key, longest=24)) as url,
    ):
        yield SimpleNamespace(url=f"{url}v1", root=url, desk=desk)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("scripted")
    with endpoint(write_pool(folder, ["ada", "bob", "cleo"], RULES)) as place:
        yield place


def tiny_config(folder: Path, *, context: int, members: str, answer: str) -> Path:
    """A configuration of members on one tiny model."""
    base = make_tiny(folder / "base", context=context)
    path = folder / "config.yaml"
    path.write_text(
        f"pool: {{base: {base}, members: [{members}]}}\n"
        f"answer: {{{answer}}}\nresources: {{device: cpu}}\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="session")
def tiny_pool(tmp_path_factory) -> Path:
    """Members ada (the base), bob (an adapter) and cleo (the base, a system prompt); a mixture."""
    folder = tmp_path_factory.mktemp("tiny")
    base = make_tiny(folder / "base", context=1024)
    adapter = make_adapter(base, folder / "adapter", seed=3)
    path = folder / "config.yaml"
    path.write_text(
        f"""\
pool:
  base: {base}
  members:
    - {{name: ada, dtype: float32}}
    - {{name: bob, adapter: {adapter}, dtype: float32}}
    - {{name: cleo, dtype: float32, system: Answer with one word.}}
mixture:
  proposers: [ada, bob]
  aggregator: cleo
  propose: {{max_new_tokens: 8}}
""",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def tiny(tiny_pool) -> Iterator[SimpleNamespace]:
    with endpoint(tiny_pool) as place:
        yield place


def client(place: SimpleNamespace, key: str = "none", **options):
    """The official client, which retries nothing and looks at no proxy."""
    import openai

    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    return openai.OpenAI(base_url=place.url, api_key=key, max_retries=0, **options)
