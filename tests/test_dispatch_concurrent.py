"""Engines that work beside the caller: all is begun, each is recorded as it ends, nothing twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from phalanx.dispatch import Dispatcher
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import EngineError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.progress import Silent
from phalanx.types import Member, Message, Request, Response, Sampling

NEAR = Member("near", "script:test", engine="scripted")
FAR = Member("far", "model", engine="far")
FACT = "far:count"


def request(member: Member, number: int) -> Request:
    messages = (Message("user", f"Say {number}"),)
    return Request(f"{member.name}{number}", member, messages, Sampling(), "answer", seed=number)


class ThreadWork:
    def __init__(self, engine, batches) -> None:
        self._pool = ThreadPoolExecutor(engine.at_once)
        self._futures = {
            self._pool.submit(engine.one, batch): number for number, batch in enumerate(batches)
        }
        self._engine = engine

    @property
    def num_open(self) -> int:
        return len(self._futures)

    def wait(self, seconds: float):
        done, _ = wait(self._futures, seconds, "FIRST_COMPLETED")
        ended = [(self._futures.pop(future), future.result()) for future in done]
        if not ended and self._engine.broken.is_set():
            raise EngineError("the far side is gone")
        return ended

    def stop(self) -> None:
        self._futures = {f: n for f, n in self._futures.items() if not f.cancel()}


class ThreadEngine:
    """Real threads; one request a batch; ``before(request)`` runs in the thread."""

    def __init__(self, before=lambda request: None, at_once: int = 4) -> None:
        self.before, self.at_once = before, at_once
        self.broken = threading.Event()
        self.asked: Counter[str] = Counter()
        self.restored: dict[str, str] = {}

    def plan(self, requests):
        return [[position] for position in range(len(requests))]

    def start(self, batches):
        return ThreadWork(self, batches)

    def one(self, batch):
        self.asked[batch[0].id] += 1
        self.before(batch[0])
        return [Response(batch[0].id, text=f"done {batch[0].id}", finish_reason="stop")]

    def facts(self):
        return {FACT: str(self.asked.total())}

    def restore(self, facts):
        self.restored = dict(facts)


class World:
    def __init__(self, folder) -> None:
        self.folder = folder
        self.near = ScriptedEngine({"script:test": {"sampling": [{"when": ".", "reply": "ok"}]}})

    def ask(self, requests, far, stop=lambda: False):
        engines = {"scripted": self.near, "far": far}
        with Ledger(run_ledger_path(self.folder), writable=True) as ledger:
            return Dispatcher(ledger, engines.__getitem__, Silent(), stop, 1).ask(
                "answer", requests
            )

    @property
    def stored(self) -> set[str]:
        with Ledger(run_ledger_path(self.folder)) as ledger:
            return {row["id"] for row in ledger.query("SELECT id FROM responses")}

    @property
    def fact(self) -> str | None:
        with Ledger(run_ledger_path(self.folder)) as ledger:
            return ledger.facts("far").get(FACT)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def mixed(count: int) -> list[Request]:
    return [request(member, number) for number in range(count) for member in (FAR, NEAR)]


def test_answers_come_in_order_whatever_ends_first(world):
    def slow_first(request):
        time.sleep(0.05 if request.seed < 3 else 0)

    wanted = mixed(12)
    replies = world.ask(wanted, ThreadEngine(slow_first))
    assert [reply.request_id for reply in replies] == [w.id for w in wanted]
    assert world.stored == {w.id for w in wanted}


def test_the_far_side_works_while_this_process_answers(world):
    begun = threading.Event()
    overlapped = []
    near_respond = world.near.respond

    def respond(requests):
        overlapped.append(begun.wait(5))  # only true if the far side was started before
        return near_respond(requests)

    world.near.respond = respond
    world.ask(mixed(3), ThreadEngine(lambda request: begun.set()))
    assert overlapped == [True]


def test_rows_share_all_of_the_time_however_often_it_was_looked_for_them(world):
    """Looking in vain, every fifth of a second, used to start the clock anew."""
    world.ask([request(FAR, 0)], ThreadEngine(lambda request: time.sleep(0.7)))
    with Ledger(run_ledger_path(world.folder)) as ledger:
        (row,) = ledger.query("SELECT seconds FROM responses")
    assert row["seconds"] >= 0.7


def test_what_ended_before_a_breakdown_is_kept_and_not_asked_again(world):
    far = ThreadEngine(at_once=1)
    release = threading.Event()

    def break_at_five(request):
        if request.seed == 5:
            far.broken.set()
            release.wait(10)

    far.before = break_at_five
    wanted = [request(FAR, number) for number in range(10)]
    threading.Timer(1.0, release.set).start()
    with pytest.raises(EngineError, match="gone"):
        world.ask(wanted, far)
    kept = world.stored
    assert {f"far{n}" for n in range(5)} <= kept
    again = ThreadEngine()
    assert len(world.ask(wanted, again)) == 10
    assert not kept & set(again.asked)
    assert again.asked.total() == 10 - len(kept)


def test_ctrl_c_keeps_what_was_under_way_and_begins_nothing_more(world):
    stop = threading.Event()

    def stop_soon(request):
        if request.seed == 4:
            stop.set()
        time.sleep(0.1)

    far = ThreadEngine(stop_soon, at_once=2)
    wanted = [request(FAR, number) for number in range(30)]
    with pytest.raises(Interrupted, match="goes on from here"):
        world.ask(wanted, far, stop.is_set)
    assert world.stored == set(far.asked), "everything begun was recorded"
    assert 4 < len(world.stored) < 30
    again = ThreadEngine()
    world.ask(wanted, again)
    assert not set(far.asked) & set(again.asked)


def test_facts_are_recorded_with_the_responses(world):
    far = ThreadEngine()
    world.ask([request(FAR, number) for number in range(7)], far)
    assert world.fact == "7"


def test_facts_are_recorded_although_nothing_was_answered(world):
    """Tries that came to nothing may have cost something."""
    far = ThreadEngine()

    def break_at_once(request):
        far.broken.set()
        raise EngineError("the far side is gone")

    far.before = break_at_once
    with pytest.raises(EngineError, match="gone"):
        world.ask([request(FAR, number) for number in range(4)], far)
    assert not world.stored
    assert int(world.fact) > 0


def test_nothing_is_sent_before_every_engine_has_planned(world):
    far = ThreadEngine()

    def plan(requests):
        raise EngineError("this side has no room")

    world.near.plan = plan
    with pytest.raises(EngineError, match="no room"):
        world.ask(mixed(4), far)
    assert not far.asked


def test_a_broken_engine_does_not_lose_what_another_has_under_way(world):
    far = ThreadEngine(lambda request: time.sleep(0.2), at_once=8)

    def respond(requests):
        raise EngineError("this side is broken")

    world.near.respond = respond
    with pytest.raises(EngineError, match="this side"):
        world.ask(mixed(8), far)
    assert world.stored == set(far.asked)
    assert world.stored
