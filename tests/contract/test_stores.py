"""The contract of every Store; more tests of a file on disk are in unit/stores."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbagent as nb
from nbagent.core.base.events import Resolved, RunCompleted, RunQueued, StoredEvent
from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.journal.rows import Archive, Changing, Ending, Head, Last, Searching, first_broken
from nbagent.core.journal.store import Store
from nbagent.core.run.heartbeat import Beating
from tests.integration.test_pages import names_of_extending
from tests.postgres import database
from tests.until import until

numbers = itertools.count()


Shared: TypeAlias = Callable[[], Any]
"""A function that opens the same journals again, as another process would."""
SHARED = ["sqlite", "postgresql"]


def opener(kind: str, request: pytest.FixtureRequest, folder: Path) -> Shared:
    if kind == "sqlite":
        return lambda: nb.SQLiteStore(folder / "runs.db")
    if kind == "postgresql":
        url = database(request.getfixturevalue("postgres"))
        return lambda: nb.SQLStore(url)
    return lambda: nb.SQLStore(f"sqlite:///{folder / 'alchemy.db'}")


@pytest.fixture(params=["memory", "of the page", *SHARED, "sqlite by SQLAlchemy"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind; all examples of hypothesis share one store, so tests number their runs."""
    if request.param == "memory":
        yield nb.MemoryStore()
        return
    if request.param == "of the page":
        yield names_of_extending()["FileStore"](tmp_path / "runs.jsonl")
        return
    with opener(request.param, request, tmp_path)() as opened:
        yield opened


@pytest.fixture(params=SHARED)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """A function that opens a shared store, of each kind, again; the test's end closes all."""
    again, made = opener(request.param, request, tmp_path), ExitStack()
    with made:
        yield lambda: made.enter_context(again())


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXT
JSON = st.recursive(
    SCALAR | st.floats(allow_nan=False, allow_infinity=False),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXT, inside, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
RESOLUTION = (
    st.builds(Respond, output=JSON)
    | st.builds(Restart, input=st.none() | OBJECT, data=JSON)
    | st.builds(Reject, reason=st.none() | TEXT)
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    Any: JSON,
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(0, 10**9),
    float: st.floats(0, 4e9),
    type(None): st.none(),
}


def valued(type_: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, for all types in events."""
    origin, inside = typing.get_origin(type_), typing.get_args(type_)
    if type_ in SCALARS:
        return SCALARS[type_]
    if origin is typing.Annotated:
        return valued(inside[0])
    if origin is typing.Literal:
        return st.sampled_from(inside)
    if origin in (typing.Union, types.UnionType):
        return RESOLUTION if Respond in inside else st.one_of(*map(valued, inside))
    if origin in (list, tuple):
        return st.lists(valued(inside[0]), max_size=2).map(origin)
    if origin is dict:
        return st.dictionaries(TEXT, valued(inside[1]), max_size=2)
    return built(type_)


def built(model: type[Any]) -> st.SearchStrategy[Any]:
    """Events of one type, with any value in any current field."""
    types = typing.get_type_hints(model)
    fields = {
        name: valued(types[name])
        for name in getattr(model, "model_fields", None) or model.__dataclass_fields__
        if name not in ("type", "version")
    }
    if model is RunQueued:  # the previous run is not in this store
        fields["elsewhere"] = st.just(True)
    return st.builds(model, **fields)


KINDS = typing.get_args(StoredEvent)
ANY_EVENT = st.one_of(*map(built, KINDS))
FEW = settings(max_examples=25)


def completed(text: str) -> StoredEvent:
    return RunCompleted(at=1.0, text=text)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@FEW
def test_an_event_of_any_kind_reads_back_equal_and_equally_typed(
    store: Store, kind: type[Any], data: st.DataObject
) -> None:
    """A run restored from its journal has the live run's values, to the last falsy one."""
    event: Any = data.draw(built(kind))
    run_id = f"run {next(numbers)}"
    store.append(run_id, [event], 0)
    [found] = store.read(run_id)
    assert repr(found) == repr(event)  # unlike ==, repr distinguishes 1, True and 1.0
    assert type(found) is type(event)


@given(appends=st.lists(st.tuples(st.sampled_from("abc"), st.lists(ANY_EVENT, max_size=3))))
@FEW
def test_any_appends_read_back_in_order_run_by_run(store: Store, appends: list[Any]) -> None:
    """Events of different runs never mix, and ``read`` returns the rest of a journal from any start."""
    before, number = store.run_ids(), next(numbers)
    model: dict[str, list[StoredEvent]] = {}
    for letter, events in appends:
        run_id = f"{letter} {number}"
        store.append(run_id, events, len(model.get(run_id, ())))
        if events:
            model.setdefault(run_id, []).extend(events)
    assert store.run_ids() == [*before, *model]
    for run_id, events in model.items():
        for start in range(len(events) + 2):
            assert store.read(run_id, start) == events[start:]


@pytest.mark.parametrize("expected", [0, 1, 3, 4, 100])
def test_an_append_at_another_position_is_refused_and_changes_nothing(
    store: Store, expected: int
) -> None:
    """Because of this rule an answer counts once; earlier and later positions are refused."""
    store.append("run", [completed("a"), completed("b")], 0)
    with pytest.raises(
        nb.Conflict, match="'run' was changed in the meantime: it has 2 events, expected"
    ):
        store.append("run", [completed("late"), completed("later")], expected)
    with pytest.raises(nb.Conflict):
        store.append("new", [completed("early")], expected or 1)
    assert store.read("run") == [completed("a"), completed("b")]
    assert store.run_ids() == ["run"]


def test_heartbeats_are_counted_per_process(store: Store) -> None:
    """Heartbeats, if a store has them: each raises the count, from any thread and beside any run."""
    if not isinstance(store, Beating):
        return
    assert store.beats("a:1:1:host") == 0
    store.append("run", [completed("a")], 0)
    threads = [threading.Thread(target=store.beat, args=("a:1:1:host",)) for _ in range(5)]
    for thread in threads:
        thread.start()
    store.beat("b:1:1:host")
    for thread in threads:
        thread.join()
    assert (store.beats("a:1:1:host"), store.beats("b:1:1:host")) == (5, 1)
    assert store.run_ids() == ["run"]


def test_a_conflict_says_who_was_first_and_when(store: Store) -> None:
    """The error names the person and the time of the first event."""
    answer = Resolved(at=0.0, id="i", call_id="c", resolution=Respond(output=1), by="Ada")
    store.append("run", [completed("a"), answer], 0)
    told = "Event 1 is 'resolved' by Ada at 1970-01-01T00:00:00"
    with pytest.raises(nb.Conflict, match=told):
        store.append("run", [completed("late")], 1)


def test_an_unknown_run_is_an_error_that_names_run_and_store(store: Store) -> None:
    """C122: a mistyped id does not look like an empty run."""
    with pytest.raises(nb.NbagentError, match="has no run 'nope'") as error:
        store.read("nope")
    assert repr(store) in str(error.value)
    assert store.run_ids() == []


def test_of_many_threads_at_one_position_exactly_one_gets_it(store: Store) -> None:
    """The kernel's loop, tools' threads and the private loop use a store at the same time."""
    wins: list[tuple[int, str]] = []
    start = threading.Barrier(8)

    def writer(name: int) -> None:
        start.wait()
        for position in range(10):
            try:
                store.append("run", [completed(f"{name}")], position)
            except nb.Conflict:
                continue
            wins.append((position, f"{name}"))

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [event.text for event in store.read("run") if isinstance(event, RunCompleted)]
    assert found == [name for _, name in sorted(wins)]
    assert len(found) == 10


def test_runs_are_listed_exported_imported_and_deleted_in_bulk(store: Store) -> None:
    """An archive lists heads, changes its stamp only at a write, and moves rows with their seals."""
    if not isinstance(store, Archive):
        return
    is_listening = isinstance(store, nb.SQLStore) and store._has_notices
    for _ in range(500):  # the stamp becomes a number once PostgreSQL's notices provide it
        if not is_listening or isinstance(store.stamp(), int):
            break
        time.sleep(0.01)
    stamps = [store.stamp(), store.stamp()]
    store.append("a", [completed("1"), completed("2")], 0)
    store.append("b", [completed("3")], 0)
    assert [(h.run_id, h.length, h.last) for h in store.heads()] == [
        ("a", 2, Last("run_completed", completed("2").at)),
        ("b", 1, Last("run_completed", completed("3").at)),
    ]
    store.append("A%", [completed("5")], 0)
    found = [[h.run_id for h in store.heads(prefix)] for prefix in ("a", "A%", "_", "b", "ab")]
    assert found == [["a"], ["A%"], [], ["b"], []]
    store.delete("A%")
    stamps += [store.stamp(), store.stamp()]
    rows = store.rows("a")
    assert first_broken("a", rows) is None
    store.delete("a")
    stamps += [store.stamp(), store.stamp()]
    for act in (store.read, store.rows, store.delete):
        with pytest.raises(nb.errors.UsageError, match="has no run 'a'"):
            act("a")
    store.put("a", rows)
    stamps += [store.stamp(), store.stamp()]
    with pytest.raises(nb.Conflict, match="already has a run 'a'"):
        store.put("a", rows)
    store.append("a", [completed("4")], 2)
    assert store.rows("a")[:2] == rows
    assert first_broken("a", store.rows("a")) is None
    assert store.run_ids() == ["b", "a"]
    assert store.read("b") == [completed("3")]
    assert [stamps[n] == stamps[n + 1] for n in range(7)] == [n % 2 == 0 for n in range(7)]


MANY = 220
"""Enough runs for each store to report only the changes."""


class Looking:
    """A reader that looks repeatedly at the runs of a prefix, and reads only the changes if possible."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.store, self.prefix = store, prefix
        self.since: object = None
        self.heads: dict[str, Head] = {}
        self.wholes = 0

    def look(self) -> dict[str, Head]:
        changes = self.store.changes(self.prefix, self.since)
        self.wholes += changes.is_whole
        found = {head.run_id: head for head in changes.heads}
        self.heads = found if changes.is_whole else {**self.heads, **found}
        self.since = changes.token
        return self.heads


def heads_of(store: Any, prefix: str) -> dict[str, Head]:
    return {head.run_id: head for head in store.heads(prefix)}


def test_folded_changes_equal_the_heads(store: Store) -> None:
    """For frequent and rare readers, after any writes and deletions; a single write is read alone."""
    if not isinstance(store, Archive) or not isinstance(store, Changing):
        return
    chosen = random.Random(7)
    lengths = {f"{'ab'[n % 2]}%:{n}": 1 for n in range(MANY)}
    for run_id in lengths:
        store.append(run_id, [completed("0")], 0)
    looking = [Looking(store, prefix) for prefix in ("", "a%:", "b", "c", "a_")]
    for step in range(150):
        run_id = chosen.choice([*lengths, f"a%:new{step}", f"c{step}"])
        if run_id in lengths and chosen.random() < 0.1:
            rows = store.rows(run_id)
            store.delete(run_id)
            if chosen.random() < 0.5:
                store.put(run_id, rows)
            else:
                del lengths[run_id]
        else:
            store.append(run_id, [completed(str(step))] * 2, lengths.get(run_id, 0))
            lengths[run_id] = lengths.get(run_id, 0) + 2
        for each in chosen.sample(looking, chosen.randrange(3)):
            assert each.look() == heads_of(store, each.prefix)
    for each in looking:
        assert each.look() == heads_of(store, each.prefix)
    store.append("a%:last", [completed("0")], 0)
    store.append("b last", [completed("0")], 0)
    found = [store.changes(each.prefix, each.since) for each in looking]
    if found[0].token is None:  # this database cannot report changes
        assert all(changes.is_whole for changes in found)
        return
    ids = [{head.run_id for head in changes.heads} for changes in found]
    assert not any(changes.is_whole for changes in found)
    assert [own & {"a%:last", "b last"} for own in ids] == [
        {"a%:last", "b last"},
        {"a%:last"},
        {"b last"},
        set(),
        set(),
    ]
    assert max(map(len, ids)) < 10  # PostgreSQL may return some again


def test_changes_miss_no_write_of_several_processes(opened: Shared) -> None:
    """A reader has all runs in the end, although others start and continue runs meanwhile; it reads only changes."""
    store = opened()
    for n in range(MANY):
        store.append(f"r{n}", [completed("0")], 0)
    looking = [Looking(store, ""), Looking(opened(), "r")]
    for each in looking * 3:
        each.look()
    before = [each.wholes for each in looking]
    others = [opened() for _ in range(4)]

    def write(number: int) -> None:
        for n in range(30):
            others[number].append(f"r{number} {n}", [completed("1")], 0)
            others[number].append(f"r{number * 50 + n}", [completed("2")], 1)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(len(others))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for each in looking:
            each.look()
    for each in looking:
        assert each.look() == heads_of(store, "r")
        assert len(each.heads) == MANY + 120
    assert [each.wholes for each in looking] == before


def test_changes_include_a_write_by_a_process_that_never_looks(opened: Shared) -> None:
    """The writer opened the store before the reader first looked."""
    writer = opened()
    for n in range(MANY):
        writer.append(f"r{n}", [completed("0")], 0)
    looking = Looking(opened(), "")
    for _ in range(2):
        looking.look()
    writer.append("r7", [completed("1")], 1)
    changes = looking.store.changes("", looking.since)
    assert ([h.run_id for h in changes.heads], changes.is_whole) == (["r7"], False)
    writer.delete("r7")
    assert looking.look() == heads_of(writer, "")
    assert "r7" not in looking.heads


def test_the_last_events_of_many_runs_are_read_in_one_query(store: Store) -> None:
    """The query returns the last event and the number of events, only of runs whose ids have the prefix."""
    if not isinstance(store, Ending):
        return
    store.append("m:a", [completed("1"), completed("2 é")], 0)
    store.append("n:a", [completed("3")], 0)
    store.append("m:b", [completed("4")], 0)
    found = [
        (end.run_id, end.length, json.loads(end.data or "")["text"]) for end in store.ends("m:")
    ]
    assert found == [("m:a", 2, "2 é"), ("m:b", 1, "4")]
    assert store.ends("m%") == []
    assert [end.run_id for end in store.ends("")] == ["m:a", "n:a", "m:b"]


def test_a_search_finds_a_text_in_any_event_of_a_run(store: Store) -> None:
    """If a store can search, a token finds its run without reading other runs."""
    if not isinstance(store, Searching):
        return
    assert store.search("a1b2") == []
    store.append("one", [completed("a1b2"), completed("")], 0)
    store.append("other", [completed("A1B2"), completed("b1b2")], 0)
    store.append("two", [completed("x"), completed("x" * 9000 + "a1b2'%_")], 0)
    assert store.search("a1b2") == ["one", "two"]
    assert store.search("a1b2'%_") == ["two"]


async def test_c246_a_handle_of_a_deleted_run_reports_the_deletion(opened: Shared) -> None:
    """No wait hangs, and a new run with the same id gets no event."""
    model = nb.ScriptedModel([nb.ScriptedModel.call("send", to="Ada")])
    agent = nb.Agent(model, store=opened())

    @agent.tool(approval=True)
    def send(to: str) -> str:
        """Send."""
        raise AssertionError(to)

    run = agent.run("Go.", attended=True, show=False)
    await until(lambda: len(run.interrupts) > 0)
    asked, others = run.interrupts[0].id, opened()
    length = len(others.rows(run.id))
    others.delete(run.id)
    with pytest.raises(nb.errors.StoreError, match="was deleted"):
        await asyncio.wait_for(run, 30)
    other = [completed(f"{n}") for n in range(length)]
    others.append(run.id, other, 0)
    with pytest.raises(nb.errors.StoreError, match="was deleted"):
        await run.approve(asked)
    assert others.read(run.id) == other


STORED = Path(__file__).parents[1] / "fixtures" / "stores"


def of_format_1(way: str, folder: Path, postgres: Path) -> Any:
    """A store with the runs of format 1: the original file, its rows, or its exported documents."""
    copied = folder / "format_1.db"
    copied.write_bytes((STORED / "format_1.db").read_bytes())
    old = nb.SQLiteStore(copied)
    if way == "their file":
        return old
    if way == "their rows":
        store: Any = nb.SQLStore(database(postgres))
        for run_id in old.run_ids():
            store.put(run_id, old.rows(run_id))
        return store
    store = nb.SQLiteStore(folder / "new.db")
    for run_id in old.run_ids():
        nb.import_run(nb.export_run(run_id, store=old), store=store)
    return store


@pytest.mark.parametrize("way", ["their file", "their rows", "their documents"])
async def test_runs_of_format_1_keep_their_state_and_can_finish(
    way: str, tmp_path: Path, postgres: Path
) -> None:
    """Waiting runs are answered, failed runs retried and queued runs started; seals cover old and new events."""
    told = json.loads((STORED / "format_1.json").read_text(encoding="utf-8"))
    with of_format_1(way, tmp_path, postgres) as store:
        assert {run.id: run.status for run in nb.runs(store)} == told["statuses"]
        added = 1 if way == "their documents" else 0  # an import adds an event
        lengths = {head.run_id: head.length - added for head in store.heads()}
        assert lengths == told["lengths"]
        teller, banker = (
            nb.Agent(nb.ScriptedModel(["Done."]), name=name, store=store)
            for name in ("teller", "banker")
        )
        planner = nb.Agent(
            nb.ScriptedModel(["Planned."]), name="planner", store=store, tools=[teller.as_tool()]
        )
        sent: list[str] = []

        def transfer(to: str, amount: float) -> str:
            sent.append(to)
            return f"sent {amount} to {to}"

        for agent in (teller, banker):
            agent.tool(approval=True)(transfer)

        @banker.tool
        async def size(ctx: nb.ToolContext) -> str:
            kind = await ctx.step("kind", lambda: "trousers")
            return kind + await ctx.ask(nb.Choose("What size?", ["S", "M"]))

        async def opened(name: str, agent: nb.Agent = banker) -> nb.Run:
            agent.model = nb.ScriptedModel([f"{name}: done."])
            return await nb.open_run(
                told.get(name, name), agent=agent, store=store, attended=True, show=False
            )

        first, queued = await opened("first"), await opened("queued")
        await first.approve(first.interrupts[0])
        assert [(await run).text[-6:] for run in (first, queued)] == [" done."] * 2
        waits = await opened("waits")
        await waits.respond(waits.interrupts[1], "M")
        await waits.approve(waits.interrupts[0])
        results = [part["output"] for part in (await waits).messages[-2]["content"]]
        assert results == ["sent 1.5 to C3", "shirtM"]  # the step was finished in format 1
        inner = await opened("inner", planner)
        await inner.approve(inner.interrupts[0])
        assert ((await inner).text, sent) == ("inner: done.", ["F6", "C3", "E5"])
        failed = await opened("failed")
        assert (await failed.retry()).text == "failed: done."
        last = await opened("cities.3")
        more = banker.run("And more?", after=last, show=False)
        assert (await more).text == "cities.3: done."
        assert "How many in Rome?" not in store.rows(more.id)[0].data  # it has a reference instead
        for run_id in store.run_ids():
            assert first_broken(run_id, store.rows(run_id)) is None


FILL = """
import sys
import nbagent as nb
from nbagent.core.base.events import RunCompleted
kind, place, name, count = sys.argv[1:]
with getattr(nb, kind)(place, timeout=60) as store:
    for n in range(int(count)):
        store.append(name, [RunCompleted(at=n)], n)
        if n % 40 == 0:
            while True:
                there = len(store.read("all")) if "all" in store.run_ids() else 0
                try:
                    store.append("all", [RunCompleted(at=n, text=name)], there)
                    break
                except nb.Conflict:
                    pass
        print(n, flush=True)
"""


def place_of(store: Any) -> tuple[str, str]:
    if isinstance(store, nb.SQLiteStore):
        return "SQLiteStore", str(store.path)
    return "SQLStore", store._engine.url.render_as_string(hide_password=False)


def fillers(store: Any, count: int, length: int) -> list[subprocess.Popen[bytes]]:
    words = [
        [sys.executable, "-c", FILL, *place_of(store), f"{n}", f"{length}"] for n in range(count)
    ]
    return [subprocess.Popen(each, stdout=subprocess.PIPE) for each in words]


def test_eight_processes_append_at_once_and_nothing_is_lost(opened: Shared) -> None:
    """The first process creates the tables; each event is stored once, and each run is unbroken."""
    with opened() as store:
        started = fillers(store, 8, 80)
        assert [len(p.communicate()[0].split()) for p in started] == [80] * 8
        assert [p.returncode for p in started] == [0] * 8
        for n in range(8):
            assert [event.at for event in store.read(f"{n}")] == list(range(80))
            assert first_broken(f"{n}", store.rows(f"{n}")) is None
        everybodys = sorted((e.text, e.at) for e in store.read("all"))
        assert everybodys == sorted(
            (f"{n}", float(at)) for n in range(8) for at in range(0, 80, 40)
        )


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
def test_c247_events_reported_as_stored_survive_a_killed_process(opened: Shared) -> None:
    """A kill in the middle of appends tears no event, and other processes continue at once."""
    with opened() as store:
        started = fillers(store, 2, 100_000)
        for number, process in enumerate(started):
            assert process.stdout is not None
            for _ in range(20 + 7 * number):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            told = 20 + 7 * number + len(process.communicate()[0].splitlines())
            there = [event.at for event in store.read(f"{number}")]
            assert there == list(range(len(there)))
            assert told - 1 <= len(there) <= told + 2
            assert first_broken(f"{number}", store.rows(f"{number}")) is None
            store.append(f"{number}", [completed("goes on")], len(there))
