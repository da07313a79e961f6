"""The request queue of each key: in order, within its limits, across threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbagent as nb
from nbagent.models import limits
from nbagent.models.limits import RateLimit, Ticket, Window


async def wait_until_sent(ticket: Ticket) -> Ticket:
    """Wait until the request may be sent."""
    while (wait := ticket.try_send()) is not None:
        await ticket.wait(wait.seconds)
    return ticket


def quick(limits: RateLimit, length: float) -> RateLimit:
    """The limits, with a shorter minute."""
    limits._line.window.length = length
    return limits


@given(
    requests=st.none() | st.integers(1, 4),
    tokens=st.none() | st.integers(1, 50),
    asked=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=20),
)
def test_no_minute_exceeds_its_limits_of_requests_and_tokens(
    requests: int | None, tokens: int | None, asked: list[tuple[int, int]]
) -> None:
    """In any 60 seconds; a request goes as soon as possible, and a too large request goes alone."""
    window, now, went = Window(requests, tokens), 0.0, []
    for later, size in asked:
        now += later
        delay, why = window.delay(now, size)
        assert (delay > 0) == bool(why)
        now += delay
        assert window.delay(now, size)[0] == 0
        window.add(now, size)
        went.append((now, size))
        within = [n for at, n in went if at > now - 60]
        assert requests is None or len(within) <= requests
        assert tokens is None or len(within) == 1 or sum(within) <= tokens


def test_a_request_counts_its_real_usage_once_that_is_known() -> None:
    """Until then the estimate counts."""
    window = Window(None, 100)
    stamp = window.add(0.0, 90)
    assert stamp is not None
    assert window.delay(1.0, 20)[0] == 59.0
    window.correct(stamp, 10)
    assert window.delay(1.0, 20)[0] == 0
    window.take_back(stamp)
    assert window.delay(1.0, 100)[0] == 0


async def test_requests_are_sent_in_the_order_in_which_they_arrived() -> None:
    """The order holds for many waiting requests, and the concurrency limit too."""
    limits, order, most = RateLimit(concurrency=3), [], 0
    under_way: set[int] = set()

    async def one(n: int, ticket: Ticket) -> None:
        nonlocal most
        await wait_until_sent(ticket)
        order.append(n)
        under_way.add(n)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.discard(n)
        ticket.leave()

    await asyncio.gather(*(one(n, limits.ticket()) for n in range(50)))
    assert order == list(range(50))
    assert most == 3


async def test_a_request_that_need_not_wait_costs_its_loop_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a waiting request is woken, because waking is a write to the loop and another turn."""
    woken: list[Ticket] = []
    monkeypatch.setattr(limits, "_wake", woken.append)
    ticket = await wait_until_sent(RateLimit().ticket())
    ticket.leave()
    assert woken == []


async def test_a_cancelled_request_frees_its_place() -> None:
    """A waiting request and a request that was admitted without being woken free their places."""
    limits = RateLimit(concurrency=1)
    first, second, third = limits.ticket(), limits.ticket(), limits.ticket()
    await wait_until_sent(first)
    assert second.try_send() is not None
    assert third.try_send() is not None
    second.leave()
    first.leave()
    assert third.status == "granted"
    third.leave()
    assert limits.ticket().try_send() is None


async def test_a_request_that_was_never_sent_frees_its_share_of_the_minute() -> None:
    """A stopped run uses no share of the runs that continue."""
    limits = RateLimit(concurrency=1, rpm=2)
    first, second, third = limits.ticket(), limits.ticket(), limits.ticket()
    await wait_until_sent(first)
    assert second.try_send() is not None
    first.leave()  # admits the second, which stops before it notices
    second.leave()
    assert third.try_send() is None


async def test_after_a_refusal_all_requests_wait_and_then_start_one_by_one() -> None:
    """The refused requests go first, in order; each has the delay and the reason."""
    limits, loop = RateLimit(), asyncio.get_running_loop()
    tickets = [limits.ticket() for _ in range(5)]
    for ticket in tickets:
        assert ticket.try_send() is None
    began = loop.time()
    for ticket in reversed(tickets):
        ticket.hold(0.2, "too many requests (429)")
    newcomer = limits.ticket()
    for ticket in (*tickets, newcomer):
        wait = ticket.try_send()
        assert wait is not None
        assert 0 < wait.seconds < 1
        assert wait.reason == "too many requests (429)"
    went: list[tuple[float, Ticket]] = []

    async def goes(ticket: Ticket) -> None:
        await wait_until_sent(ticket)
        went.append((loop.time(), ticket))

    await asyncio.gather(*(goes(ticket) for ticket in (newcomer, *reversed(tickets))))
    assert [ticket for _, ticket in went] == [*tickets, newcomer]
    assert went[0][0] - began >= 0.2
    assert len({at for at, _ in went}) == 6


async def test_a_shorter_wait_does_not_end_a_longer_one() -> None:
    """Each server's answer sets a wait; all requests wait until the last one ends."""
    limits = RateLimit()
    for seconds, reason in ((60, "the day's requests are used up"), (1, "the minute's")):
        limits.ticket().hold(seconds, reason)
        wait = limits.ticket().try_send()
        assert wait is not None
        assert wait.seconds > 50
        assert wait.reason == "the day's requests are used up"


def test_loops_of_several_threads_share_one_queue() -> None:
    """No loop waits for a blocked loop, and no loop is woken from a foreign thread."""
    limits, most, now, lock = RateLimit(concurrency=2), 0, 0, threading.Lock()
    done: list[int] = []

    async def one() -> None:
        nonlocal most, now
        ticket = await wait_until_sent(limits.ticket())
        with lock:
            now += 1
            most = max(most, now)
        await asyncio.sleep(0.001)
        with lock:
            now -= 1
            done.append(1)
        ticket.leave()

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(25)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 100
    assert most == 2


def test_a_waiter_on_a_closed_loop_blocks_nobody() -> None:
    """A program that stopped without closing holds no place."""
    limits = RateLimit(concurrency=1)

    async def leave_without_a_word() -> list[Ticket]:
        under_way, waiting = limits.ticket(), limits.ticket()
        assert under_way.try_send() is None
        assert waiting.try_send() is not None
        return [under_way, waiting]

    under_way, _ = asyncio.run(leave_without_a_word())

    async def later() -> None:
        ticket = limits.ticket()
        assert ticket.try_send() is not None
        under_way.leave()
        await asyncio.wait_for(wait_until_sent(ticket), 5)

    asyncio.run(later())


async def test_waiting_for_a_minute_does_not_poll() -> None:
    """Each request sleeps until its turn."""
    limits, looks = quick(RateLimit(rpm=2), 0.1), 0

    async def one() -> None:
        nonlocal looks
        ticket = limits.ticket()
        while (wait := ticket.try_send()) is not None:
            looks += 1
            await ticket.wait(wait.seconds)
        ticket.leave()

    await asyncio.gather(*(one() for _ in range(6)))
    assert looks < 40


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", True, [], float("nan")])
@pytest.mark.parametrize("name", ["concurrency", "rpm", "tpm"])
def test_an_invalid_limit_is_refused(name: str, wrong: Any) -> None:
    """The error names the limit at the call that sets it."""
    with pytest.raises(nb.errors.UsageError, match=f"{name} must be an integer"):
        RateLimit(**{name: wrong})
    with pytest.raises(nb.errors.UsageError, match=f"{name} must be an integer"):
        nb.OpenAIModel("m", **{name: wrong})


def test_limits_are_set_once() -> None:
    """Pass shared limits or the model's own."""
    with pytest.raises(nb.errors.UsageError, match="Got both"):
        nb.OpenAIModel("m", limits=nb.RateLimit(rpm=3), rpm=3)
    with pytest.raises(nb.errors.UsageError, match="limits must be"):
        nb.OpenAIModel("m", limits=3)  # type: ignore[arg-type]
    assert repr(nb.RateLimit(rpm=3, concurrency=2)) == "RateLimit(concurrency=2, rpm=3)"
