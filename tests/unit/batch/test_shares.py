"""The division of a model's limits among a batch's tasks, with a clock that the test moves."""

from __future__ import annotations

import pickle
import random

import pytest

import nbagent as nb
from nbagent.batch import shares
from nbagent.batch.shares import Lease, RequestQueues, SentRequest, Shares, dumped
from nbagent.models.limits import Ticket


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all shares."""
    made = Clock()
    monkeypatch.setattr(shares, "time", made)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_no_minute_has_more_requests_than_the_limit_whatever_tasks_come_and_are_lost(
    clock: Clock, seed: int
) -> None:
    """Random tasks with a changing number of workers; some tasks are lost after their whole share was used."""
    chance, limit, went = random.Random(seed), nb.RateLimit(rpm=7), []
    held, tasks = Shares([limit]), []
    for _ in range(600):
        clock.now += chance.random() * 3
        lease = held.lease(chance.choice([1, 2, 4, 30]))
        if isinstance(lease, Lease):
            n = chance.randint(0, lease.grant.shares[0].rpm or 0)
            went += [clock.now] * n
            tasks.append((lease, n, clock.now))
        if tasks and chance.random() < 0.5:
            lease, n, at = tasks.pop(chance.randrange(len(tasks)))
            if chance.random() < 0.3:
                lease.record_lost()
            else:
                lease.record_used([[SentRequest(clock.now - at, 5)] * n])
    assert len(went) > 50
    assert max(sum(at <= each < at + 60 for each in went) for at in went) <= 7


def test_a_share_is_smaller_where_there_are_more_tasks_and_waits_where_nothing_is_left(
    clock: Clock,
) -> None:
    """With fewer requests than tasks, some tasks wait for others."""
    limit = nb.RateLimit(rpm=3, concurrency=8, tpm=1000)
    held = Shares([limit])
    given = [held.lease(10) for _ in range(4)]
    assert [one.grant.shares[0].rpm for one in given if isinstance(one, Lease)] == [1, 1, 1]
    assert given[3] == 0.0  # another task must end first
    first = given[0]
    assert isinstance(first, Lease)
    first.record_used([[SentRequest(10.0, 100)]])
    assert held.lease(10) == pytest.approx(51)
    clock.now += 52
    again = Shares([limit]).lease(10)  # another batch, the same limit
    assert isinstance(again, Lease)
    assert again.grant.shares[0] == (1, 1, 100)
    assert held.max_tasks == 3


def test_a_small_rest_of_tokens_waits_until_older_requests_do_not_count(clock: Clock) -> None:
    """A task sends even a request that is larger than its share."""
    held = Shares([nb.RateLimit(tpm=1000)])
    first = held.lease(2)
    assert isinstance(first, Lease)
    first.record_used([[SentRequest(0.0, 900)]])
    assert held.lease(2) == pytest.approx(61)
    clock.now += 62
    assert isinstance(held.lease(2), Lease)


async def test_a_task_reports_only_requests_that_still_count(clock: Clock) -> None:
    """The others are forgotten, so a long task does not grow."""
    queues = RequestQueues(shares.Grant((shares.Share(None, 9, None),)), is_used=False)
    for seconds in (0, 50, 20):
        clock.now += seconds
        queues.windows[0].add(clock.now, 7)
    assert queues.used() == [[SentRequest(20.0, 7), SentRequest(0.0, 7)]]


def test_another_driver_may_have_used_all_of_a_limit_just_now(clock: Clock) -> None:
    """A batch that continues in another process waits a minute; in the same process it does not wait."""
    held = Shares([nb.RateLimit(rpm=4)])
    held.hold()
    assert held.lease(2) == pytest.approx(61)
    clock.now += 62
    assert isinstance(held.lease(2), Lease)
    held.hold()
    assert isinstance(held.lease(2), Lease)


async def test_a_task_that_is_run_again_begins_with_its_share_used() -> None:
    """The lost worker may have sent its whole share."""
    grant = shares.Grant((shares.Share(None, 2, None),))
    again = Ticket(RequestQueues(grant, is_used=True).lines[0]).try_send()
    assert again is not None
    assert again.seconds == pytest.approx(60, abs=5)
    assert Ticket(RequestQueues(grant, is_used=False).lines[0]).try_send() is None


def test_limits_are_found_wherever_they_are_in_what_travels() -> None:
    """Limits of the agent, an inner agent and a model in a closure; a shared limit is found once."""
    shared, other = nb.RateLimit(rpm=5), nb.RateLimit(tpm=9)
    inner = nb.Agent(nb.OpenAIModel("m", limits=shared), name="inner")
    closed = nb.OpenAIModel("n", limits=other)
    agent = nb.Agent(nb.OpenAIModel("m", limits=shared), name="outer", tools=[inner.as_tool()])

    @agent.tool
    def asks() -> str:
        return closed.name

    data, found = dumped(agent)
    assert set(found) == {shared, other}
    assert len(found) == 2
    there, models = pickle.loads(data)
    assert [model.name for model in models] == ["m", "m", "n"]
    assert there.model in models
    assert repr(there.model._limits) == "RateLimit(rpm=5)"
