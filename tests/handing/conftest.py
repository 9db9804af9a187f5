"""A run with real (tiny) weights, and a Hub on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config.schema import Config
from phalanx.types import Member
from tests.handing.hub_server import WRITER, serving
from tests.handing.runs import SYSTEM, record
from tests.tiny import make_adapter, make_tiny

PRIVATE = "The launch code of project Zebra is never to be told."


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    folder = make_tiny(tmp_path_factory.mktemp("handing") / "tiny-base", seed=1)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n\n# Tiny\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory, base) -> Path:
    """Three members with an adapter each, pairs and demonstrations."""
    folder = tmp_path_factory.mktemp("handing") / "run"
    settings = {
        "seed": 3,
        "iterations": 2,
        "pool": {
            "base": str(base),
            "members": [
                {"name": "ada", "adapter": "pool/ada", "system": SYSTEM},
                {"name": "bob", "adapter": "pool/bob"},
                {"name": "cora", "adapter": "pool/cora"},
            ],
        },
        "instructions": {"source": "/data/of/mine/prompts.jsonl"},
        "train": {"beta": 0.2},
    }
    members = tuple(
        Member(
            name,
            str(base),
            str(make_adapter(base, folder / "adapters" / "iteration-1" / name, seed=n)),
            version=1,
            system=SYSTEM if name == "ada" else "",
        )
        for n, name in enumerate(("ada", "bob", "cora"))
    )
    config = Config.model_validate(settings).model_dump_json()
    return record(folder, members=members, config=config)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The loopback Hub, with a token that may write. Nothing else of the network is there."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with serving() as here:
        monkeypatch.setenv("HF_ENDPOINT", here.url)
        monkeypatch.setattr(constants, "ENDPOINT", here.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE",
            here.url + "/{repo_id}/resolve/{revision}/{filename}",
        )  # fmt: skip
        monkeypatch.setenv("HF_TOKEN", WRITER)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield here
