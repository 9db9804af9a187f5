"""How many workers a cluster has room for, counted node by node; no cluster is needed for it."""

from __future__ import annotations

import pytest

from phalanx.executors.ray import _room

GPU = {"CPU": 1.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("nodes", "ask", "room"),
    [
        ([{"CPU": 4.0}], {"CPU": 1.0}, 4),
        ([{"CPU": 4.0}, {"CPU": 3.0}], {"CPU": 2.0}, 3),
        ([{"CPU": 1.0}, {"CPU": 1.0}], {"CPU": 2.0}, 0),  # two leftovers make no worker
        ([{"CPU": 0.3}], {"CPU": 0.1}, 3),
        ([{"CPU": 8.0}, {"GPU": 8.0}], GPU, 0),  # CPUs of one node, GPUs of another
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 4.0}], GPU, 3),
        ([{"GPU": 1.0}], {"GPU": 0.5}, 2),
        ([{"GPU": 4.0}], {"GPU": 0.6}, 4),  # not 6: a share lies in one GPU
        ([{"GPU": 2.0}], {"GPU": 0.3}, 6),
        ([{"GPU": 0.5}], {"GPU": 0.5}, 1),  # beside another run that has the other half
        ([{"GPU": 5.0}], {"GPU": 2.0}, 2),
        ([{"CPU": 2.0}], {"CPU": 1.0, "big": 1.0}, 0),
        ([], {"CPU": 1.0}, 0),
    ],
)
def test_workers_are_counted_node_by_node_and_share_by_share(nodes, ask, room):
    assert _room(nodes, ask) == room
