"""Responses of another arm are taken where they are the same, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.comparing.arm import run
from phalanx.comparing.sharing import taken_from
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from phalanx.types import Member, Message, Request, Sampling
from tests.comparing.files import comparison


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    """frozen, sparta and sppo of one seed, each whole and by itself."""
    folder = tmp_path_factory.mktemp("alone")
    made = comparison({"sparta": {}, "sppo": {"sppo.instructions": 2, "sppo.samples": 3}})
    found = {arm.name: arm for arm in made.arms(folder, 1)}
    for arm in found.values():
        align(arm.config, arm.folder)
    return found


def contents(folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def counts(folder):
    with Ledger(run_ledger_path(folder)) as ledger:
        taken = ledger.count("responses", "attempts = 0")
        return taken, ledger.count("responses"), ledger.num_sent()


@pytest.mark.parametrize("name", ["sparta", "sppo"])
def test_an_arm_that_shares_has_the_ledger_of_one_that_does_not(arms, tmp_path, name):
    arm = arms[name]
    run(arm.config, tmp_path / "run", [arms["frozen"].folder], Silent())
    assert contents(tmp_path / "run") == contents(arm.folder)
    taken, total, sent = counts(tmp_path / "run")
    assert taken == 36  # three members on twelve items
    assert sent == total - taken
    assert counts(arm.folder)[0] == 0


def test_an_arm_that_was_interrupted_goes_on_and_shares(arms, tmp_path):
    """With the other arm there only the second time, a phase is partly taken."""
    arm = arms["sppo"]
    stopped = arm.config.model_copy(update={"iterations": 1})
    with Ledger(run_ledger_path(arm.folder)) as whole:
        half = whole.query("SELECT id FROM responses ORDER BY id")[::2]

    def some(requests):
        known = taken_from([arm.folder])(requests)
        return {row["id"]: known[row["id"]] for row in half if row["id"] in known}

    align(stopped, tmp_path / "run", elsewhere=some)
    assert contents(tmp_path / "run") == contents(arm.folder)
    taken, total, _ = counts(tmp_path / "run")
    assert 0 < taken < total


def test_what_is_taken_can_be_asked_again_by_nobody(arms, tmp_path):
    """A second start takes nothing more, and sends nothing."""
    arm = arms["sparta"]
    for _ in range(2):
        run(arm.config, tmp_path / "run", [arms["frozen"].folder], Silent())
    assert counts(tmp_path / "run")[0] == 36


def request_of(folder) -> Request:
    """A request for text that the run in the folder has answered, as it was asked."""
    import json

    with Ledger(run_ledger_path(folder)) as ledger:
        members = {member.name: member for member in ledger.members(0)}
        row = ledger.query(
            "SELECT *, full_messages(messages) AS said, full_text(want) AS wanted FROM responses "
            "ORDER BY id LIMIT 1"
        )[0]
    want = json.loads(row["wanted"])
    said = tuple(Message(one["role"], one["content"]) for one in json.loads(row["said"]))
    return Request(
        row["id"], members[row["member"]], said, Sampling(**want), row["purpose"], row["seed"]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (Message("user", "Another question?"),)},
        {"seed": 99},
        {"purpose": "answer"},
        {"want": Sampling(max_new_tokens=3)},
        {"id": "another"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_request_is_not_the_same(arms, change):
    frozen = arms["frozen"]
    request = request_of(frozen.folder)
    find = taken_from([frozen.folder])
    assert find([request])[request.id].text
    assert find([replace(request, **change)]) == {}


@pytest.mark.parametrize(
    "change",
    [{"version": 1}, {"adapter": "elsewhere"}, {"base": "script:default"}, {"system": "Be kind."}],
    ids=lambda change: next(iter(change)),
)
def test_another_member_s_response_is_not_taken(arms, change):
    frozen = arms["frozen"]
    request = request_of(frozen.folder)
    member: Member = replace(request.member, **change)
    assert taken_from([frozen.folder])([replace(request, member=member)]) == {}


def test_other_roles_change_no_answer(arms):
    """Where one judge judges for all, the others still answer as they did."""
    frozen = arms["frozen"]
    request = request_of(frozen.folder)
    member: Member = replace(request.member, roles=("contest",))
    assert taken_from([frozen.folder])([replace(request, member=member)])[request.id].text


def test_a_failed_response_is_asked_again(arms, tmp_path):
    import shutil
    import sqlite3

    frozen = arms["frozen"]
    shutil.copytree(frozen.folder, tmp_path / "copy")
    request = request_of(frozen.folder)
    with sqlite3.connect(run_ledger_path(tmp_path / "copy")) as db:
        db.execute(
            "UPDATE responses SET status = 'failed', error_kind = 'engine', error = 'broken', "
            "error_transient = 1 WHERE id = ?",
            (request.id,),
        )
    assert taken_from([tmp_path / "copy"])([request]) == {}


def test_a_folder_without_a_run_has_nothing(arms, tmp_path):
    frozen = arms["frozen"]
    assert taken_from([tmp_path])([request_of(frozen.folder)]) == {}
