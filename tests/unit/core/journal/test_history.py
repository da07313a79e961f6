"""A conversation is stored once: a follow-up run refers to the run before it, and is read as if complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import RunStarted, dump
from nbagent.core.base.messages import user
from nbagent.core.journal.history import (
    Histories,
    KnownHistory,
    Reference,
    histories_of,
    reference_of,
)
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import with_seals

TEXT = "x" * 400
call = nb.ScriptedModel.call


def failing(count: int) -> nb.Agent[Any]:
    """An agent whose tool fails the run the first time."""
    agent = nb.Agent(
        nb.ScriptedModel([call("work"), *[f"{TEXT} {n}" for n in range(count)]]),
        on_tool_error="raise",
    )
    done: list[int] = []

    @agent.tool
    def work() -> str:
        done.append(1)
        if len(done) == 1:
            raise ValueError("once")
        return "worked"

    return agent


def long_answer_agent(count: int) -> nb.Agent[Any]:
    """An agent with long answers."""
    return nb.Agent(nb.ScriptedModel([f"{TEXT} {n}" for n in range(count)]))


async def by_after(store: nb.Store) -> list[nb.Run]:
    agent = long_answer_agent(3)
    runs: list[nb.Run] = []
    for n in range(3):
        runs.append(agent.run(f"go {n}", after=runs[-1] if runs else None, store=store))
        await runs[-1]
    return runs


async def by_chat(store: nb.Store) -> list[nb.Run]:
    chat = nb.Agent(nb.ScriptedModel([TEXT] * 3), store=store).chat(id="c")
    for n in range(3):
        await chat.send(f"go {n}")
    return list(chat.runs)


async def by_edit(store: nb.Store) -> list[nb.Run]:
    chat = nb.Agent(nb.ScriptedModel([TEXT] * 5), store=store).chat(id="c")
    for n in range(3):
        await chat.send(f"go {n}")
    await chat.edit(chat.runs[1], "go elsewhere")
    await chat.send("and on")
    return list(chat.runs)


async def by_line(store: nb.Store) -> list[nb.Run]:
    agent = long_answer_agent(3)
    runs = [agent.run("go", store=store)]
    runs += [agent.run("then", after=runs[-1], store=store)]
    runs += [agent.run("then", after=runs[-1], store=store)]
    await runs[-1]
    return runs


async def by_fork(store: nb.Store) -> list[nb.Run]:
    runs = await by_after(store)
    fork = runs[-1].fork()
    await fork.settled()
    return [*runs, fork]


async def by_retry(store: nb.Store) -> list[nb.Run]:
    agent = failing(3)
    first = agent.run("go", store=store)
    with pytest.raises(nb.errors.RunError):
        await first
    second = agent.run("all the same", after=first, store=store)
    await second
    first.retry()
    await first
    return [first, second]


PATHS: list[Callable[[nb.Store], Awaitable[list[nb.Run]]]] = [
    by_after,
    by_chat,
    by_edit,
    by_line,
    by_fork,
    by_retry,
]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_c256_every_kind_of_follow_up_refers_to_its_run_and_is_read_back_complete(
    path, kind, tmp_path
):
    """All kinds of follow-up obey one rule; a new process folds the state of the live run."""
    store = nb.MemoryStore() if kind == "memory" else nb.SQLiteStore(tmp_path / "runs.db")
    runs = await path(store)
    live = [(list(run.journal), run.messages) for run in runs]
    histories_of(store)._known.clear()
    for run, (events, messages) in zip(runs, live, strict=True):
        [started] = [e for e in store.read(run.id) if isinstance(e, RunStarted)]
        assert (reference_of(started) is not None) == (started.after is not None)
        again = Journal(run.id, store)
        again.catch_up()
        assert again.read() == events
        assert again.state.messages == messages
        assert sum(len(row.data) for row in store.rows(run.id)) < 2_500


async def test_turn_100_costs_as_much_as_turn_5(tmp_path):
    """The bytes of a turn do not grow with the conversation, and a file is stored once."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    chat = nb.Agent(nb.ScriptedModel([f"{TEXT} {n}" for n in range(100)]), store=store).chat(id="c")
    await chat.send(["look", nb.File(b"%PDF-1.4 " + b"0" * 300_000, "application/pdf")])
    for n in range(1, 100):
        await chat.send(f"go {n:02}")
    sizes = [sum(len(row.data) for row in store.rows(run.id)) for run in chat.runs]
    assert abs(sizes[99] - sizes[4]) <= 0.1 * sizes[4]
    assert sizes[99] <= 6_000
    histories_of(store)._known.clear()
    opened = nb.Agent(nb.ScriptedModel([]), store=store).chat(id="c")
    assert opened.messages == chat.messages


async def test_a_thread_of_a_thousand_runs_opens_and_reads_each_run_once(tmp_path):
    """There is no recursion, and no run is read twice."""
    store = nb.MemoryStore()
    agent = nb.Agent(nb.ScriptedModel([TEXT]), store=store)
    first = agent.run("go")
    await first
    events = store.read(first.id)
    before, length = first.id, len(events)
    for n in range(1, 1000):
        entry = {"role": "run", "id": before, "events": length, "messages": 2 * n}
        said = {"role": "user", "content": [{"type": "text", "text": f"go {n}"}]}
        begun = events[0].model_copy(update={"messages": [entry, said], "after": before})
        store.append(f"later {n}", [begun, *events[1:]], 0)
        before = f"later {n}"
    histories_of(store)._known.clear()
    reads: list[str] = []
    read = store.read
    store.read = lambda run_id, start=0: reads.append(run_id) or read(run_id, start)
    journal = Journal(before, store)
    journal.catch_up()
    assert len(journal.state.messages) == 2000
    assert len(reads) == len(set(reads)) == 1000


def forged(**changes: Any) -> dict[str, Any]:
    """A reference with these changes."""
    return {"role": "run", "id": "before", "events": 3, "messages": 2} | changes


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            forged(id="gone"),
            "'run' continues the first 3 events of run 'gone', which cannot be read",
        ),
        (forged(id="run"), "which in turn continues this run"),
        (forged(id="round"), "which in turn continues this run"),
        (forged(events=99), "which has only 3 events"),
        (forged(messages=99), "which has only 2 messages"),
        (forged(events=-1), "not a reference"),
        (forged(events=True), "not a reference"),
        (forged(messages="2"), "not a reference"),
        (forged(more=1), "not a reference"),
        (forged(id=None), "not a reference"),
    ],
)
async def test_c257_a_forged_reference_is_refused_in_words(entry, told):
    """The error names the runs and the fault; nothing hangs."""
    store: Any = nb.MemoryStore()
    store._check_there = lambda *_given: None  # as a program that writes to the file itself
    run = nb.Agent(nb.ScriptedModel(["done"]), store=store).run("go")
    await run
    events = store.read(run.id)
    store.append("before", events, 0)
    said = {"role": "user", "content": [{"type": "text", "text": "go"}]}
    for name, first in (("run", entry), ("round", forged(id="run"))):
        begun = events[0].model_copy(update={"messages": [first, said], "after": "before"})
        store.put(name, with_seals(name, map(dump, [begun, *events[1:]])))
    with pytest.raises(nb.errors.StoreError, match=told):
        Journal("run", store).catch_up()


async def test_a_follow_up_in_another_store_stores_the_whole_history():
    """A reference stays inside one store."""
    first = nb.Agent(nb.ScriptedModel(["one"]), store=nb.MemoryStore())
    run = first.run("go")
    await run
    store = nb.MemoryStore()
    second = first.run("and", after=run, store=store)
    with pytest.raises(nb.errors.RunError):  # the script has ended
        await second
    assert len(store.read(second.id)[0].messages) == 3


def test_remembered_messages_are_used_only_for_the_same_events_of_their_run():
    """A retry removes what was cut off, so later messages need not begin with the earlier ones."""
    known = Histories()
    known.keep("run", KnownHistory(5, (user("go"),)))
    assert known.at(Reference("run", 5, 1)) == (user("go"),)
    assert known.at(Reference("run", 3, 1)) is None
    assert known.at(Reference("other", 5, 1)) is None
