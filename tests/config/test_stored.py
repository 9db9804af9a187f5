"""Runs of other versions can be looked at: settings that this one lacks are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.config.schema import Config
from phalanx.config.stored import readable
from phalanx.errors import LedgerError

MEMBERS = {"members": [{"name": "ada", "model": "builtin:smollm2-135m"}]}


def test_settings_of_a_later_version_are_left_out():
    plain = Config.model_validate({"pool": MEMBERS, "seed": 7})
    stored = plain.model_dump(mode="json")
    stored["later"] = {"deep": 1}
    stored["judge"]["later"] = 2
    stored["pool"]["members"][0]["later"] = 3
    assert readable(json.dumps(stored), Path("run")) == plain


def test_what_is_left_must_be_readable():
    stored = json.dumps({"seed": "many", "later": 1, "train": {"beta": "much"}})
    with pytest.raises(LedgerError, match=r"^run: .*cannot read \(seed, train\.beta\); look at"):
        readable(stored, Path("run"))
