"""Which key of two configurations differs first."""

from __future__ import annotations

from phalanx.config import RESUME_FREE, Config, differences
from phalanx.config.keys import sections_with


def make(**changes: object) -> Config:
    pool = {"members": [{"name": name} for name in ("ada", "bob", "cora")]}
    return Config.model_validate({"pool": pool, **changes})


def test_equal_ones_have_none() -> None:
    assert differences(make(), make(), free=()) == []


def test_schema_order_first_key_first() -> None:
    a = make()
    b = make(train={"learning_rate": 2e-4}, seed=3, match={"duels": 5})
    assert differences(a, b) == [
        ("seed", 0, 3),
        ("match.duels", 1000, 5),
        ("train.learning_rate", 1e-6, 2e-4),
    ]


def test_members_are_matched_by_name() -> None:
    members = [{"name": "ada", "system": "Be brief."}, {"name": "bob"}, {"name": "dan"}]
    found = differences(make(), make(pool={"members": members}))
    assert [key for key, _, _ in found] == [
        "pool.members.ada.system",
        "pool.members.cora",
        "pool.members.dan",
    ]
    assert found[2][1:] == (None, {"name": "dan"})


def test_order_of_members_counts() -> None:
    members = [{"name": name} for name in ("bob", "ada", "cora")]
    found = differences(make(), make(pool={"members": members}))
    assert found == [("pool.members", ["ada", "bob", "cora"], ["bob", "ada", "cora"])]


def test_another_rule_is_one_difference() -> None:
    found = differences(make(), make(reputation={"rule": "elo", "k": 3}))
    assert found == [("reputation", {"rule": "sparta"}, {"rule": "elo", "k": 3})]


def test_what_may_change_on_resume() -> None:
    members = [{"name": "ada", "gpus": 1}, {"name": "bob"}, {"name": "cora"}]
    other = make(
        output="elsewhere",
        pool={"members": members},
        resources={"keep_all_loaded": True, "gpus": 2},
        judge={"max_unreadable": 0.9},
    )
    assert differences(make(), other) == []
    assert len(differences(make(), other, free=())) == 5
    strict = make(resources={"merge_adapters": False, "batch_size": 1, "batch_tokens": 512})
    assert [key for key, _, _ in differences(make(), strict)] == [
        "resources.batch_size",
        "resources.batch_tokens",
        "resources.merge_adapters",
    ]


def test_of_ray_only_where_the_workers_are_may_change() -> None:
    ray = {"address": "auto", "workers": 3, "adapters": "folder", "resources": {"big": 1.0}}
    begun = make(resources={"executor": "ray"})
    assert differences(begun, make(resources={"executor": "ray", "ray": ray})) == []
    other = make(resources={"executor": "ray", "ray": ray | {"cpus": 2, "gpus": 0.5}})
    assert differences(begun, other) == [
        ("resources.ray.cpus", 1, 2),
        ("resources.ray.gpus", 0.0, 0.5),
    ]
    assert differences(make(), begun) == [("resources.executor", "local", "ray")]


def test_every_free_key_exists() -> None:
    for key in RESUME_FREE:
        assert key.replace(".*", "") in sections_with(key.rsplit(".", 1)[-1])
