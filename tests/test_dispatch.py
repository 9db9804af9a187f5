"""Owed work alone is done; nothing is lost, repeated or mixed up."""

from __future__ import annotations

import pytest

from phalanx.dispatch import MAX_ATTEMPTS, Dispatcher
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.progress import Silent
from phalanx.types import Member, Message, Request, Sampling

ADA = Member("ada", "script:test", engine="scripted")
REPLIES = {"sampling": [{"when": r"Say \d", "reply": ["yes", "no", "perhaps"]}]}


def request(number: int, text: str = "") -> Request:
    messages = (Message("user", text or f"Say {number}"),)
    return Request(f"r{number}", ADA, messages, Sampling(), "answer", seed=number)


def requests(count: int) -> list[Request]:
    return [request(number) for number in range(count)]


class World:
    """A ledger in a folder and engines that can be swapped, as after a restart."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def ask(self, wanted, *, script=None, stop=lambda: False, batch=4, engine=None):
        self.engine = engine or ScriptedEngine(
            {"script:test": script or REPLIES}, batch_size=batch, keep_calls=True
        )
        with Ledger(run_ledger_path(self.folder), writable=True) as ledger:
            dispatcher = Dispatcher(ledger, lambda _: self.engine, Silent(), stop, 1)
            return dispatcher.ask("answer", wanted)

    @property
    def stored(self) -> dict[str, str]:
        with Ledger(run_ledger_path(self.folder)) as ledger:
            return {r["id"]: r["status"] for r in ledger.query("SELECT id, status FROM responses")}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_answers_come_in_the_order_of_the_questions(world):
    wanted = requests(10)[::-1]
    assert [reply.request_id for reply in world.ask(wanted)] == [w.id for w in wanted]


def test_what_is_answered_is_not_asked_again(world):
    first = world.ask(requests(6))
    again = world.ask(requests(6))
    assert again == first
    assert world.engine.calls == []


def test_a_resumed_phase_forms_the_same_batches(world):
    """Of a half-known batch all is asked, so that the batch is the same, and the rest recorded."""
    world.ask(requests(8)[:6])
    world.ask(requests(12))
    batches = [call.id for call in world.engine.calls]
    assert batches == [f"r{n}" for n in (4, 5, 6, 7, 8, 9, 10, 11)]


def test_equal_questions_are_asked_once(world):
    replies = world.ask([request(1), request(2), request(1)])
    assert len(world.engine.calls) == 2
    assert replies[0] == replies[2]


def test_interrupt_finishes_the_batch_and_keeps_it(world):
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(Interrupted, match="goes on from here"):
        world.ask(requests(12), stop=stop)
    assert len(world.stored) == 8
    whole = world.ask(requests(12))
    assert len(world.engine.calls) == 4
    assert [reply.request_id for reply in whole] == [f"r{n}" for n in range(12)]


def failing(times: int, *, transient: bool = True):
    fail = {"kind": "engine", "message": "provoked", "transient": transient, "times": times}
    return {"sampling": [{"when": "Say 2", "reply": "late", "fail": fail}, *REPLIES["sampling"]]}


def test_a_failure_that_passes_is_retried_at_once(world):
    replies = world.ask(requests(4), script=failing(2))
    assert replies[2].text == "late"
    assert set(world.stored.values()) == {"done"}


def test_a_failure_that_stays_is_a_row_with_its_reason_and_does_not_stop_its_siblings(world):
    replies = world.ask(requests(4), script=failing(99))
    assert replies[2].error.message == "provoked"
    assert replies[2].text is None
    assert [reply.error for reply in replies].count(None) == 3
    assert world.stored["r2"] == "failed"


def test_a_failed_row_is_asked_again_on_resume_and_never_counted_as_done(world):
    world.ask(requests(4), script=failing(99, transient=False))
    replies = world.ask(requests(4))
    assert replies[2].error is None
    assert world.stored["r2"] == "done"


def test_retries_have_a_limit_over_all_starts(world):
    tries = 0
    for _ in range(MAX_ATTEMPTS + 3):
        replies = world.ask(requests(4), script=failing(99, transient=False))
        tries += sum(call.id == "r2" for call in world.engine.calls)
        assert replies[2].error is not None
    assert tries == MAX_ATTEMPTS


class Losing(ScriptedEngine):
    def respond(self, batch):
        return super().respond(batch)[::-1]


def test_an_engine_that_mixes_up_responses_is_broken_and_nothing_is_recorded(world):
    with pytest.raises(EngineError, match="not theirs"):
        world.ask(requests(4), engine=Losing({"script:test": REPLIES}))
    assert world.stored == {}


def test_the_scripted_engine_is_strict(world):
    with pytest.raises(EngineError, match="no sampling rule"):
        world.ask([request(1, "something else")])


def test_a_phase_asked_several_times_knows_what_it_owes_in_the_middle(tmp_path):
    """As with each turn of conversations; also where the process ends without a word."""

    class Ends(BaseException):
        pass

    class Mortal(ScriptedEngine):
        def respond(self, batch):
            if any(request.id == "r12" for request in batch):
                raise Ends
            return super().respond(batch)

    def asked_and_stored(ledger):
        (row,) = ledger.query("SELECT asked FROM phases WHERE phase = 'answer'")
        return row["asked"], ledger.count("responses", "phase = 'answer'")

    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        engine = Mortal({"script:test": REPLIES}, batch_size=4)
        ask = Dispatcher(ledger, lambda _: engine, Silent(), lambda: False, 1).ask
        ask("other", requests(2))
        ask("answer", requests(6))
        assert asked_and_stored(ledger) == (4, 4), "two belong to the phase that asked them first"
        with pytest.raises(Ends):
            ask("answer", requests(16)[6:])
        assert asked_and_stored(ledger) == (14, 8)
        engine = ScriptedEngine({"script:test": REPLIES}, batch_size=4)
        for part in (requests(6), requests(16)[6:]):
            ask("answer", part)
        assert asked_and_stored(ledger) == (14, 14)
