"""Runs of one store that are written together, on one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import MessageQueued, RunFailed, StoredEvent
from nbagent.core.journal import journal as journal_module
from nbagent.core.journal import writer
from nbagent.core.journal.journal import Group, Journal
from nbagent.core.journal.store import Append
from nbagent.core.state.state import RunState
from tests.until import PATIENCE, until


class Joining:
    """A store that appends to several runs at once. The first group waits until ``go``."""

    def __init__(self) -> None:
        self.near = nb.MemoryStore()
        self.group = Group(self)
        self.groups: list[list[str]] = []
        self.alone: list[str] = []
        self.leaves: set[str] = set()
        """The runs that no group appends to."""
        self.error: Exception | None = None
        self.go = threading.Event()

    def append_each(self, appends: Sequence[Append]) -> list[bool]:
        """Append to each run, except some."""
        self.groups.append([append.run_id for append in appends])
        assert self.go.wait(PATIENCE)
        joined = [append.run_id not in self.leaves for append in appends]
        for append, joins in zip(appends, joined, strict=True):
            if joins:
                self.near.append(*append)
        if self.error is not None:
            raise self.error
        return joined

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        """Append to one run."""
        self.alone.append(run_id)
        self.near.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        """Events of a run."""
        return self.near.read(run_id, start)

    def run_ids(self) -> list[str]:
        """Ids of the runs."""
        return self.near.run_ids()


def message(text: str) -> MessageQueued:
    return MessageQueued(at=1.0, text=text, by="a person")


def texts(store: Joining, run_id: str) -> list[Any]:
    return [getattr(event, "text", None) for event in store.read(run_id)]


async def begun(store: Joining, *journals: Journal) -> list[asyncio.Task[Any]]:
    """Start a write to "first", and writes to these runs, which wait for its group."""
    first = asyncio.create_task(Journal("first", store).write(lambda _: [message("a")]))
    await until(lambda: bool(store.groups))
    writes = [asyncio.create_task(one.write(lambda _: [message("a")])) for one in journals]
    await asyncio.sleep(0)
    return [first, *writes]


@asynccontextmanager
async def held(journal: Journal) -> AsyncIterator[None]:
    """Have another thread write to a run until this block ends."""
    inside, over = threading.Event(), threading.Event()

    def hold(_: RunState) -> list[StoredEvent]:
        inside.set()
        assert over.wait(PATIENCE)
        return []

    thread = threading.Thread(target=journal.commit, args=(hold,))
    thread.start()
    await until(inside.is_set)
    yield
    over.set()
    await asyncio.to_thread(thread.join, PATIENCE)


async def test_a_listener_that_writes_to_a_neighbour_finds_its_event_there() -> None:
    """Each order of the two runs: the neighbour's write is stored and folded before the listener's."""
    store = Joining()
    one, two = Journal("one", store), Journal("two", store)
    lengths: dict[str, int] = {}

    def answers(own: str, other: Journal) -> Any:
        def listener(event: Any) -> None:
            def decide(state: RunState) -> list[StoredEvent]:
                lengths[own] = state.position
                return [message("b")]

            if event.text == "a":
                other.commit(decide)

        return listener

    one.subscribe(answers("one", two))
    two.subscribe(answers("two", one))
    writes = await begun(store, one, two)
    store.go.set()
    await asyncio.gather(*writes)
    assert store.groups[1] == ["one", "two"]
    assert lengths == {"one": 1, "two": 1}
    for journal in (one, two):
        assert texts(store, journal.run_id) == ["a", "b"]
        assert journal.state.position == 2


async def test_a_run_that_another_thread_holds_or_the_group_leaves_is_written_by_itself() -> None:
    store = Joining()
    busy, left, joined = (Journal(name, store) for name in ("busy", "left", "joined"))
    store.leaves = {"left"}
    async with held(busy):
        first, of_busy, of_left, of_joined = await begun(store, busy, left, joined)
        store.go.set()
        await asyncio.gather(first, of_left, of_joined)
        assert not of_busy.done()
    await of_busy
    assert store.groups == [["first"], ["left", "joined"]]
    assert store.alone == ["left", "busy"]
    assert {texts(store, name)[0] for name in ("busy", "left", "joined")} == {"a"}


async def test_decisions_of_a_run_that_its_group_left_are_not_made_again() -> None:
    """The same events are appended, since the store may have to recognize them."""
    store = Joining()
    store.leaves = {"left"}
    store.go.set()
    decided: list[StoredEvent] = []

    def decide(_: RunState) -> list[StoredEvent]:
        decided.append(message(f"{len(decided)}"))
        return decided[-1:]

    await Journal("left", store).write(decide)
    assert texts(store, "left") == ["0"]
    assert len(decided) == 1


async def test_a_group_that_raises_reports_only_writes_that_were_not_stored() -> None:
    store = Joining()
    store.leaves = {"lost"}
    store.error = RuntimeError("a bug")
    writes = await begun(store, Journal("stored", store), Journal("lost", store))
    store.go.set()
    await asyncio.wait(writes)
    _, stored, lost = writes
    assert texts(store, "stored") == ["a"]
    assert stored.exception() is None
    assert isinstance(lost.exception(), nb.errors.StoreError)
    assert store.alone == []


async def test_writes_of_one_run_keep_their_order_and_one_that_nobody_awaits_is_done() -> None:
    store = Joining()
    journal = Journal("one", store)
    first, write = await begun(store, journal)
    rest = [journal.submit(lambda _, n=n: [message(f"{n}")]) for n in range(5)]
    write.cancel()
    await asyncio.sleep(0)
    store.go.set()
    await first
    await asyncio.gather(*map(asyncio.wrap_future, rest))
    assert write.cancelled()
    assert texts(store, "one") == ["a", *"01234"]
    assert journal.state.position == 6


@pytest.mark.parametrize("by", ["a write", "a look", "the run's end"])
async def test_the_next_thread_at_a_run_first_finishes_the_write_that_a_group_left(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes in between, and nothing is folded or written twice."""
    store = Joining()
    store.leaves = {"left"}
    store.go.set()
    journal = Journal("left", store)
    others: list[Any] = []
    start = journal_module.in_thread

    def later(work: Any) -> None:
        if work == journal._work_off:
            others.append(work)
        else:
            start(work)

    monkeypatch.setattr(journal_module, "in_thread", later)
    write = asyncio.create_task(journal.write(lambda _: [message("a")]))
    await until(lambda: bool(others))
    if by == "a write":
        await asyncio.to_thread(journal.commit, lambda _: [message("b")])
    elif by == "a look":
        await asyncio.to_thread(journal.catch_up)
    else:
        await asyncio.to_thread(journal.end, RunFailed(at=1.0, error="E", message="b"))
    await write
    after = len(store.read("left"))
    others[0]()
    assert texts(store, "left")[0] == "a"
    assert len(store.read("left")) == after == journal.state.position


async def test_a_listener_holds_up_no_neighbour() -> None:
    """The listener answers a run that another thread holds for a long time."""
    store = Joining()
    one, two, busy = (Journal(name, store) for name in ("one", "two", "busy"))
    answers: list[Any] = []
    one.subscribe(lambda _: answers.append(busy.submit(lambda _: [message("b")])))
    async with held(busy):
        writes = await begun(store, one, two)
        store.go.set()
        await asyncio.gather(*writes)
        assert not answers[0].done()
    await asyncio.wrap_future(answers[0])
    assert texts(store, "busy") == ["b"]


@pytest.mark.parametrize("has_first", [True, False])
async def test_writes_are_done_where_the_system_gives_no_further_thread(
    has_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also writes that a group leaves out; later writes use threads again."""
    store = Joining()
    store.leaves = {"left"}
    writes: list[asyncio.Task[Any]] = await begun(store) if has_first else []

    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    await until(lambda: not writer._idle)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuses)
        store.go.set()
        writes += [
            asyncio.create_task(Journal(name, store).write(lambda _: [message("a")]))
            for name in ("left", "one")
        ]
        await asyncio.gather(*writes)
    await Journal("two", store).write(lambda _: [message("a")])
    assert [texts(store, name) for name in ("left", "one", "two")] == [["a"]] * 3


def test_a_loop_that_closes_before_its_write_is_done_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Joining()

    async def leaves() -> None:
        asyncio.create_task(Journal("first", store).write(lambda _: [message("a")]))  # noqa: RUF006
        await until(lambda: bool(store.groups))

    asyncio.run(leaves())
    store.go.set()
    asyncio.run(Journal("second", store).write(lambda _: [message("a")]))
    assert texts(store, "first") == texts(store, "second") == ["a"]
    assert caplog.text == ""


async def test_a_store_around_another_is_not_bypassed_by_the_group() -> None:
    inner = Joining()
    inner.go.set()

    class Around:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
            self.seen.append(run_id)
            inner.append(run_id, events, expected)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    around = Around()
    await Journal("one", around).write(lambda _: [message("a")])
    assert (around.seen, inner.groups) == (["one"], [])


async def test_a_store_with_a_wrong_number_of_outcomes_loses_no_write() -> None:
    store = Joining()
    store.go.set()
    store.append_each = lambda _appends: []
    with pytest.raises(nb.errors.StoreError, match="could not be written"):
        await Journal("one", store).write(lambda _: [message("a")])
    del store.append_each
    await Journal("one", store).write(lambda _: [message("a")])
    assert texts(store, "one") == ["a"]


async def test_listeners_that_write_to_each_others_runs_do_not_wait_for_each_other() -> None:
    """One answers a run whose listener answers a neighbour of the first, on another thread."""
    store = Joining()
    one, two, three = (Journal(name, store) for name in ("one", "two", "three"))
    inside, over = threading.Event(), threading.Event()
    answers: list[Any] = []

    def answer_two(event: Any) -> None:
        if event.text == "a":
            inside.set()
            assert over.wait(PATIENCE)
            answers.append(two.submit(lambda _: [message("b")]))

    def answer_three(_: Any) -> None:
        over.set()
        answers.append(three.submit(lambda _: [message("b")]))

    three.subscribe(answer_two)
    one.subscribe(answer_three)
    writes = await begun(store, one, two)
    thread = threading.Thread(target=three.commit, args=(lambda _: [message("a")],))
    thread.start()
    await until(inside.is_set)
    store.go.set()
    await asyncio.gather(*writes)
    await asyncio.to_thread(thread.join, PATIENCE)
    await asyncio.gather(*map(asyncio.wrap_future, answers))
    assert texts(store, "two") == texts(store, "three") == ["a", "b"]


async def test_what_a_write_without_events_starts_waits_for_no_other_thread() -> None:
    """Its callback answers a run that another thread is writing to, while the group is being put together."""
    store = Joining()
    one, idle, busy = (Journal(name, store) for name in ("one", "idle", "busy"))
    answers: list[Any] = []
    async with held(busy):
        writes = await begun(store, one)
        nothing = idle.submit(lambda _: [])
        nothing.add_done_callback(lambda _: answers.append(busy.submit(lambda _: [message("b")])))
        store.go.set()
        await asyncio.gather(*writes)
    await until(lambda: bool(answers))
    await asyncio.wrap_future(answers[0])
    assert texts(store, "busy") == ["b"]
