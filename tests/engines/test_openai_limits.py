"""The gate: a window that grows and shrinks, pauses, smooth rates; and the books."""

from __future__ import annotations

import asyncio
import json
from collections import deque

import pytest

from phalanx.config.schema import BudgetSettings, EndpointSettings
from phalanx.engines.http_account import Account, Cost, costs
from phalanx.engines.http_limits import Bucket, Gate, backoff
from phalanx.errors import LedgerError


def test_backoff_doubles_has_jitter_and_is_the_same_again() -> None:
    waits = [backoff(0.5, number, "r1") for number in range(8)]
    assert waits == [backoff(0.5, number, "r1") for number in range(8)]
    assert waits != [backoff(0.5, number, "r2") for number in range(8)]
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits[:6]))
    assert max(waits) <= 30


def test_a_bucket_is_smooth_and_large_amounts_are_paid_back() -> None:
    bucket = Bucket(600, now=0.0)  # ten a second
    assert bucket.delay(10, 0.0) == 0
    bucket.take(10, 0.0)
    assert bucket.delay(1, 0.0) == pytest.approx(0.1)
    assert bucket.delay(1, 0.1) == pytest.approx(0.0)
    assert bucket.delay(50, 1.0) == pytest.approx(0.0)
    bucket.take(50, 1.0)
    assert bucket.delay(1, 1.0) == pytest.approx(4.1)
    bucket.take(-30, 1.0)
    assert bucket.delay(1, 1.0) == pytest.approx(1.1)


def test_what_is_given_back_stays_as_credit_for_a_minute_at_most() -> None:
    bucket = Bucket(600, now=0.0)  # ten a second
    bucket.take(10, 0.0)
    bucket.take(-100, 0.0)  # the bucket is full again, and 90 are kept
    for _ in range(9):
        assert bucket.delay(10, 0.0) == 0
        bucket.take(10, 0.0)
    assert bucket.delay(10, 0.0) == 0
    bucket.take(10, 0.0)
    assert bucket.delay(10, 0.0) == pytest.approx(1.0)
    bucket.take(-10_000, 0.0)
    bucket.take(610, 0.0)
    assert bucket.delay(10, 0.0) == pytest.approx(1.0)


async def _fill(gate: Gate, count: int) -> list[int]:
    return [await asyncio.wait_for(gate.enter(1), 1) for _ in range(count)]


async def _replies(gate: Gate, count: int) -> None:
    """So many good replies while the window is full; each place is taken again at once."""
    inside = deque(await _fill(gate, gate.window))
    for _ in range(count):
        gate.went_well(inside.popleft())
        gate.leave()
        inside.extend(await _fill(gate, gate.window - gate.num_inside))
    for _ in range(gate.num_inside):
        gate.leave()


async def _round(gate: Gate, busy: int) -> None:
    """A full window of which so many come back busy."""
    for number, epoch in enumerate(await _fill(gate, gate.window)):
        if number < busy:
            gate.congested(epoch)
        else:
            gate.went_well(epoch)
        gate.leave()


def test_the_window_doubles_a_round_until_it_is_crowded_then_grows_by_one_a_round() -> None:
    async def scenario() -> None:
        gate = Gate(most=100)
        for window in (4, 8, 16, 32):
            assert gate.window == window
            await _replies(gate, window)
        assert gate.window == 64
        await _round(gate, busy=64)
        narrowed = gate.window
        assert narrowed in (31, 32)  # halved once, not once for each of them
        await _replies(gate, narrowed)  # a round without growth
        assert gate.window == narrowed
        await _replies(gate, narrowed + 1)
        assert gate.window == narrowed + 1

    asyncio.run(scenario())


def test_a_few_busy_replies_narrow_the_window_a_little_and_in_proportion() -> None:
    async def scenario() -> None:
        gate = Gate(most=100)
        for window in (4, 8, 16, 32):
            await _replies(gate, window)
        before = gate.window
        await _round(gate, busy=4)  # one in sixteen
        assert before * 0.95 <= gate.window <= before + 60
        gate = Gate(most=40)
        for window in (4, 8, 16, 32):
            await _replies(gate, window)
        assert gate.window == 40
        await _round(gate, busy=20)
        assert gate.window == 30

    asyncio.run(scenario())


def test_a_server_with_room_for_a_few_is_asked_for_a_few() -> None:
    """Seven at a time is one too many: the window settles there and does not swing."""

    async def scenario() -> None:
        gate, refused, sent = Gate(most=256), 0, 0
        for _ in range(200):
            over = max(0, gate.window - 6)
            refused, sent = refused + over, sent + gate.window
            await _round(gate, busy=over)
        assert 4 <= gate.window <= 8
        assert refused < 0.15 * sent

    asyncio.run(scenario())


def test_the_window_never_falls_below_one_nor_grows_beyond_its_most() -> None:
    async def scenario() -> None:
        gate = Gate(most=6)
        await _replies(gate, 30)
        assert gate.window == 6
        for _ in range(6):
            await _round(gate, busy=gate.window)
        assert gate.window == 1

    asyncio.run(scenario())


def test_a_wider_window_is_not_earned_while_it_is_not_used() -> None:
    async def scenario() -> None:
        gate = Gate(most=64)
        for _ in range(20):
            (epoch,) = await _fill(gate, 1)
            gate.went_well(epoch)
            gate.leave()
        assert gate.window == 4

    asyncio.run(scenario())


def test_a_pause_holds_everybody_and_tries_go_before_new_ones() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gate, order = Gate(most=1), []

        async def go(name: str, again: bool) -> None:
            await gate.enter(1, again=again)
            order.append((name, loop.time() - started))
            gate.leave()

        started = loop.time()
        gate.pause(0.15)
        await asyncio.gather(go("new", False), go("another", False), go("again", True))
        assert [name for name, _ in order] == ["again", "new", "another"]
        assert order[0][1] >= 0.14

    asyncio.run(scenario())


def test_a_cancelled_wait_takes_no_place() -> None:
    async def scenario() -> None:
        gate = Gate(most=1)
        await gate.enter(1)
        waiting = asyncio.create_task(gate.enter(1))
        await asyncio.sleep(0)
        waiting.cancel()
        gate.leave()
        assert await asyncio.wait_for(gate.enter(1), 1) == 0
        assert gate.num_inside == 1

    asyncio.run(scenario())


def test_requests_per_minute() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gate = Gate(most=100, requests_per_minute=1200)  # twenty a second, twenty at once
        started = loop.time()
        for _ in range(30):
            await gate.enter(1)
            gate.leave()
        assert 0.4 <= loop.time() - started < 2.0

    asyncio.run(scenario())


# The books ---------------------------------------------------------------------------------------

PRICED = EndpointSettings(name="e", url="http://h/v1", price_in=1.0, price_out=2.0)


def account(**limits: float) -> Account:
    return Account([PRICED], BudgetSettings(**limits), "openai")


def test_the_worst_case_is_a_bound_and_counts_every_field_that_holds_text() -> None:
    chat = {"messages": [{"role": "user", "content": "€" * 10}], "max_tokens": 5}
    worst, usual = costs(chat)
    assert worst.tokens_in >= 30
    assert worst.tokens_out == usual.tokens_out == 5
    text = "word " * 100
    tools = chat | {"tools": [{"name": "t", "description": text}], "seed": 10**9, "top_p": 0.95}
    assert costs(tools)[0].tokens_in >= worst.tokens_in + len(text)
    assert costs(chat | {"seed": 10**9})[0] == worst
    assert costs(chat | {"max_completion_tokens": 7})[0].tokens_out == 7


def test_a_reservation_counts_until_the_real_cost_is_known() -> None:
    books = account(tokens=100)
    worst = Cost(40, 20)
    assert books.reserve("e", worst)
    assert not books.reserve("e", worst)
    assert not books.idle
    books.settle("e", worst, Cost(5, 5))
    assert books.idle
    assert books.reserve("e", worst)
    books.settle("e", worst, None)  # it never reached the server
    assert (books.spent("e").requests, books.spent("e").tokens_in) == (1, 5)


def test_money_and_requests() -> None:
    books = account(money=100e-6, requests=2)
    assert not books.reserve("e", Cost(1, 50))
    for _ in range(2):
        assert books.reserve("e", Cost(10, 10))
        books.settle("e", Cost(10, 10), Cost(10, 10))
    assert books.spent("e").money == pytest.approx(60e-6)
    assert not books.reserve("e", Cost(1, 1))
    assert "2 of 2 requests" in books.in_words()
    assert "Raise budget.requests or budget.money" in books.in_words()


def test_facts_come_back_once_however_often_they_are_restored() -> None:
    books = account(tokens=100)
    books.reserve("e", Cost(40, 20))
    books.settle("e", Cost(40, 20), Cost(40, 20))
    books.retried("e", "status 429")
    facts = books.facts()
    assert list(facts) == ["openai:e"]
    later = account(tokens=100)
    later.restore(facts)
    later.restore(facts)
    assert later.facts() == facts
    assert not later.reserve("e", Cost(40, 20))
    books.restore(facts)
    assert books.facts() == facts


def test_what_was_learnt_about_another_url_is_forgotten_and_what_was_spent_is_not() -> None:
    books = account(tokens=100)
    books.reserve("e", Cost(40, 20))
    books.settle("e", Cost(40, 20), Cost(40, 20))
    books.spent("e").capabilities["m"] = "written"
    books.spent("e").adaptations["m"] = ["fold_system"]
    same = account(tokens=100)
    same.restore(books.facts())
    assert same.spent("e").capabilities == {"m": "written"}
    moved = PRICED.model_copy(update={"url": "http://elsewhere/v1"})
    other = Account([moved], BudgetSettings(tokens=100), "openai")
    other.restore(books.facts())
    assert (other.spent("e").capabilities, other.spent("e").adaptations) == ({}, {})
    assert not other.reserve("e", Cost(40, 20))
    assert json.loads(other.facts()["openai:e"])["url"] == "http://elsewhere/v1"


def test_what_a_removed_endpoint_has_cost_still_counts() -> None:
    gone = json.dumps({"requests": 9, "tokens_in": 90, "tokens_out": 0})
    books = account(tokens=100)
    books.restore({"openai:gone": gone})
    assert not books.reserve("e", Cost(10, 10))
    assert "openai:gone" in books.facts()
    with pytest.raises(LedgerError, match="cannot be read"):
        books.restore({"openai:e": "{"})
