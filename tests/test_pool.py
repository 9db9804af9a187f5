"""From settings to members, and who may judge whom."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx import pool
from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.types import Duel, Instruction


def config(**settings: Any) -> Config:
    return Config.model_validate({"pool": settings})


def test_members_come_first_then_recruits_in_order() -> None:
    made = pool.members_from(
        config(
            base="org/base",
            members=[{"name": "zoe", "model": "org/other", "system": "Be brief."}, {"name": "ada"}],
            recruit={"specialists": {"yan": ["words"], "bob": ["words"]}},
        )
    )
    assert [member.key for member in made] == ["zoe@0", "ada@0", "yan@0", "bob@0"]
    assert [member.base for member in made] == ["org/other", *["org/base"] * 3]
    assert made[0].system == "Be brief."
    assert all(member.adapter is None for member in made)


def test_every_setting_reaches_the_member() -> None:
    settings = {
        "name": "ada",
        "model": "org/m",
        "adapter": "hub:org/a",
        "system": "s",
        "roles": ["judge"],
        "family": "f",
        "dtype": "float32",
        "trust_remote_code": True,
    }
    (member,) = pool.members_from(config(members=[settings]))
    assert (member.name, member.base, member.adapter, member.system) == (
        "ada",
        "org/m",
        "hub:org/a",
        "s",
    )
    assert (member.roles, member.family, member.dtype) == (("judge",), "f", "float32")
    assert member.trust_remote_code
    assert member.engine == "hf"


def test_scripted_members() -> None:
    members = [
        {"name": "ada", "engine": "scripted"},
        {"name": "bob", "engine": "scripted", "model": "script:mine.yaml"},
        {"name": "cora"},
    ]
    made = pool.members_from(config(base="org/base", members=members))
    assert [member.base for member in made] == ["script:default", "script:mine.yaml", "org/base"]
    made = pool.members_from(config(base="script:x.yaml", members=members[:1]))
    assert made[0].base == "script:x.yaml"


def test_no_base() -> None:
    with pytest.raises(ConfigError, match="ada has no model"):
        pool.members_from(config(members=[{"name": "ada"}]))
    with pytest.raises(ConfigError, match=r"pool\.base"):
        pool.members_from(config(recruit={"specialists": {"ada": ["words"]}}))


def test_roles() -> None:
    members = [
        {"name": "ada"},
        {"name": "bob", "roles": ["contest"]},
        {"name": "cora", "roles": ["judge"]},
        {"name": "dan", "roles": ["contest", "judge"]},
    ]
    made = pool.members_from(config(base="org/b", members=members))

    def names(group: tuple[pool.Member, ...]) -> list[str]:
        return [member.name for member in group]

    assert names(pool.contestants(made)) == ["ada", "bob", "dan"]
    assert names(pool.judges(made)) == ["ada", "cora", "dan"]
    assert names(pool.learners(made)) == ["ada"]
    duel = Duel("d", Instruction("i", "?"), left="ada", right="bob")
    assert names(pool.judges_of(duel, pool.judges(made))) == ["cora", "dan"]


def test_moaa_measures_its_teachers_and_students_whatever_their_roles() -> None:
    members = [
        {"name": "cora", "roles": ["judge"]},
        {"name": "ada", "roles": ["judge"]},
        {"name": "ruth", "roles": ["judge"]},
        {"name": "dan", "roles": ["learn"]},
        {"name": "bob", "roles": ["contest"]},
    ]
    settings = {
        "pool": {"base": "org/b", "members": members},
        "mixture": {"proposers": ["ada"], "aggregator": "cora"},
        "moaa": {"students": [{"name": "dan"}]},
    }
    for method, names in (("moaa", ["cora", "ada", "dan", "bob"]), ("sparta", ["bob"])):
        made = Config.model_validate({**settings, "method": method})
        measured = pool.measured(made, pool.members_from(made))
        assert [member.name for member in measured] == names, method


def test_starting_reputations() -> None:
    made = config(base="org/b", members=[{"name": "ada", "reputation": 120}, {"name": "bob"}])
    assert pool.starting_reputations(made) == {"ada": 120}
