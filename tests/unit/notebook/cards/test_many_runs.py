"""A kernel that shows many runs, each with its own store, keeps none of them open."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
import tracemalloc
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run.run import session_of
from nbagent.core.tools.call_output import current_call
from nbagent.notebook import kernel
from nbagent.notebook.cards import display, run_card
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.host import NotebookHost, _Started
from tests.until import until

call = nb.ScriptedModel.call


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> NotebookHost:
    """A kernel's host whose cards become static without delay."""
    monkeypatch.setattr(display, "QUIET", 0.0)
    monkeypatch.setattr(display, "display", lambda *_, **__: None)
    monkeypatch.setattr(kernel.Cell, "update", lambda *_: None)
    monkeypatch.setattr(kernel, "execution_key", lambda: None)
    return NotebookHost()


async def shown(host: NotebookHost, path: Path) -> nb.Run:
    """An ended run in a card, as a cell makes it, which the page has drawn."""
    agent = nb.Agent(nb.ScriptedModel([call("add", a=1), "done"]))

    @agent.tool
    async def add(a: int) -> str:
        return "x" * 200

    run = agent.run("go", store=nb.SQLiteStore(path), attended=True, show=False)
    host.show(run)
    live = host._displays[run.id].live
    assert live is not None
    live.card._handle({"type": "hello"})
    await run
    return run


def open_files(path: Path) -> list[str]:
    """The files of a database that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return [each for each in found if each.startswith(str(path))]


async def wait_until_collected(refs: list[weakref.ref[Any]]) -> None:
    def none_left() -> bool:
        gc.collect()
        return not any(ref() for ref in refs)

    await until(none_left)


async def test_a_shown_run_without_references_is_released(
    host: NotebookHost, tmp_path: Path
) -> None:
    """The run's card is static; the run, its card, store and file are released."""
    path = tmp_path / "runs.db"
    first = await shown(host, path)
    assert open_files(path)
    refs = [weakref.ref(first), weakref.ref(session_of(first).journal.store)]
    del first
    await wait_until_collected(refs)
    refs = [weakref.ref(await shown(host, path)) for _ in range(30)]
    await wait_until_collected(refs)
    # a store's own thread may be the last to close its file
    await until(lambda: gc.collect() >= 0 and not open_files(path))


async def test_stored_runs_share_one_file_and_are_small(host: NotebookHost, tmp_path: Path) -> None:
    """For thousands of runs, descriptors don't grow, and memory by about 20 kB a run, agent included."""
    path, kept = tmp_path / "runs.db", list[nb.Run]()

    async def memory_after(more: int) -> int:
        kept.extend([await shown(host, path) for _ in range(more)])
        await wait_until_collected(list(host._displays.valuerefs()))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await memory_after(20)
        files = len(open_files(path))
        after = await memory_after(60)
    finally:
        tracemalloc.stop()
    assert (after - before) / 60 < 25_000  # 19 kB, and something for other versions of Python
    assert len(open_files(path)) <= files
    assert all(run.status == "completed" for run in kept)


async def test_older_cards_that_no_page_has_opened_become_static_first(
    host: NotebookHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cell with too many outputs, the newest cards stay live, the others are static, and nothing polls."""
    displayed: list[str] = []
    monkeypatch.setattr(
        kernel.Cell, "update", lambda _cell, _id, shown: displayed.append(shown["text/plain"])
    )
    monkeypatch.setattr(display, "_staying", {})
    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "done"))
    looks = 0
    usual = display.Live._when_still

    def counted(live: display.Live, *more: Any) -> None:
        nonlocal looks
        looks += 1
        usual(live, *more)

    monkeypatch.setattr(display.Live, "_when_still", counted)
    runs = []
    for number in range(display.STAY + 30):
        run = agent.run(f"go {number}", attended=True, show=False)
        host.show(run)
        await run
        runs.append(run)
    lives = [host._displays[run.id].live for run in runs[-display.STAY :]]
    await until(lambda: len(displayed) == 30)
    await asyncio.sleep(0.02)
    assert len(displayed) == 30
    assert looks <= 2 * len(runs) + 5, "each is looked at when it ends, and when it gives way"
    assert all(live is not None and live in display._staying for live in lives)
    newest = lives[-1]
    assert newest is not None
    newest.card._on_message(newest.card, {"type": "hello"}, None)
    await until(lambda: len(displayed) == 31)
    assert "go 49" in displayed[-1]
    for live in lives[:-1]:
        assert live is not None
        live.card.detach()


async def test_the_run_that_ended_first_becomes_static_even_if_a_person_used_its_card(
    host: NotebookHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person used the older card while the newer run ended: the newer card stays live."""
    gone: list[str] = []
    monkeypatch.setattr(
        kernel.Cell, "update", lambda _cell, _id, shown: gone.append(shown["text/plain"])
    )
    monkeypatch.setattr(display, "_staying", {})
    monkeypatch.setattr(display, "STAY", 1)
    agent = nb.Agent(nb.ScriptedModel(lambda _messages: "done"))
    lives = []
    for prompt in ("older", "newer"):
        run = agent.run(prompt, attended=True, show=False)
        host.show(run)
        live = host._displays[run.id].live
        assert live is not None
        live.card.busy = prompt == "older"
        lives.append(live)
        await run
    older, newer = lives
    await until(lambda: newer in display._staying)
    assert gone == []
    older.card.busy = False
    await until(lambda: bool(gone))
    assert "older" in gone[0]
    assert list(display._staying) == [newer]
    newer.card.detach()


async def test_an_invisible_card_sends_nothing_and_a_waiting_one_need_not_queue(
    host: NotebookHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs stream at once, a card sends its question and answer without delay."""
    script = [call("hold"), call("pay"), "done"]
    agent = nb.Agent(nb.ScriptedModel([*script, *script]))
    gates = {"hold": asyncio.Event(), "pay": asyncio.Event()}

    @agent.tool
    async def hold() -> None:
        await gates["hold"].wait()

    @agent.tool(approval=True)
    async def pay() -> None:
        await gates["pay"].wait()

    turns: list[float] = []
    monkeypatch.setattr(run_card, "patch_rate", Crowded(turns))
    for seen in (False, True):
        for gate in gates.values():
            gate.clear()
        run = agent.run("go", attended=True, show=False)
        sent: list[Any] = []
        card = RunCard(run)
        monkeypatch.setattr(card, "send", sent.append)
        if seen:
            card._on_message(card, {"type": "hello"}, None)
            await until(lambda sent=sent: len(sent) == 1)  # type: ignore[misc]
            assert not asks(sent)
        gates["hold"].set()
        await run.settled()
        if seen:
            await until(lambda sent=sent: asks(sent))  # type: ignore[misc]
        run.approve(run.interrupts[0])
        if seen:
            await until(lambda sent=sent: approved(sent))  # type: ignore[misc]
            assert turns, "what nobody waits for takes its turn"
        gates["pay"].set()
        await run
        assert seen or (sent, turns) == ([], [])
        card.detach()


async def test_text_printed_on_the_loop_takes_its_turn_too(
    host: NotebookHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent while its code keeps the loop, but however many runs print, their pages get no more patches."""
    agent = nb.Agent(nb.ScriptedModel([call("count"), "done"]))
    sent: list[Any] = []
    begin, during = asyncio.Event(), []

    @agent.tool(thread=False)
    async def count() -> None:
        await begin.wait()
        sent.clear()
        print_for_long()
        during.extend(sent)

    def print_for_long() -> None:
        output = current_call.get()
        assert output is not None
        for n in range(20):
            output.write("stdout", f"{n}\n")
            time.sleep(0.01)

    run = agent.run("go", attended=True, show=False)
    card = RunCard(run)
    monkeypatch.setattr(card, "send", sent.append)
    card._on_message(card, {"type": "hello"}, None)
    await until(lambda: len(sent) == 1)
    monkeypatch.setattr(run_card, "patch_rate", Crowded([]))
    begin.set()
    await run
    assert during == []
    card.detach()


class Crowded:
    """A pace with so many runs that a turn takes an hour."""

    def __init__(self, turns: list[float]) -> None:
        self._turns = turns

    def reserve(self, now: float, _earliest: float) -> float:
        self._turns.append(now)
        return now + 3600

    def give_back(self, at: float) -> None:
        del at


def _items(sent: list[Any]) -> list[dict[str, Any]]:
    ops = [op for message in sent if message["type"] == "patch" for op in message["ops"]]
    whole = [one for m in sent if m["type"] == "snapshot" for one in m["view"]["items"]]
    return [*whole, *(op["item"] for op in ops if op["op"] == "put")]


def asks(sent: list[Any]) -> bool:
    """Whether the page received the question."""
    return any(item["type"] == "form" for item in _items(sent))


def approved(sent: list[Any]) -> bool:
    """Whether the page received the answer."""
    return any("approved" in json.dumps(item) for item in _items(sent))


def test_a_cell_that_starts_thousands_of_runs_checks_each_only_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unfinished runs are returned when the cell is run again; ended runs are released."""
    looked = 0

    def goes_on(run: Any) -> bool:
        nonlocal looked
        looked += 1
        return bool(run.waits)

    monkeypatch.setattr("nbagent.notebook.host.is_active", goes_on)
    runs = [SimpleRun(waits=number % 2 == 0) for number in range(10_000)]
    started = _Started()
    for run in runs:
        started.add(run, "first")  # type: ignore[arg-type]
        assert started.before("first") == []
    assert looked < 4 * len(runs)
    assert started.before("second") == runs[::2]
    started.add(runs[0], "second")  # type: ignore[arg-type]
    assert started.before("second") == runs[2::2]
    for run in runs:
        run.waits = False
    assert started.before("second") == []
    assert started._by_execution == {}


@dataclass(eq=False)
class SimpleRun:
    """A run of which only ``waits`` matters."""

    waits: bool


async def test_a_bound_method_can_be_removed_as_a_listener() -> None:
    """Python makes a new method object at each access."""

    class Listener:
        heard: list[Any]

        def hear(self, event: Any) -> None:
            self.heard.append(event)

    listener = Listener()
    listener.heard = []
    run = nb.Agent(nb.ScriptedModel(["done"])).run("go")
    run.subscribe(listener.hear)
    run.unsubscribe(listener.hear)
    await run
    assert listener.heard == []


@pytest.mark.parametrize("stays", [True, False])
async def test_an_output_is_updated_at_a_pause_but_not_under_a_person_whose_page_redraws(
    host: NotebookHost, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    """VS Code leaves the card as it is, so a person may be typing; for another page the update waits."""
    updates: list[dict[str, object]] = []
    monkeypatch.setattr(kernel.Cell, "update", lambda _cell, _id, shown: updates.append(shown))
    monkeypatch.setattr(display, "LOOK_AGAIN", 0.01)
    monkeypatch.setattr(display, "UPDATE_PACE", 0.0)
    go = asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel([call("pick"), "done"]))

    @agent.tool
    async def pick(ctx: nb.ToolContext) -> str:
        await go.wait()
        return await ctx.ask(nb.Choose("Which?", ["north", "south"]))

    run = agent.run("go", attended=True, show=False)
    host.show(run)
    live = host._displays[run.id].live
    assert live is not None
    live.card._on_message(live.card, {"type": "hello", "stays": stays}, None)
    await until(lambda: live.card.hello_count == 1)
    live.card.busy = True
    go.set()
    await until(lambda: run.status == "interrupted")
    if stays:
        await until(lambda: any("Which?" in str(one["text/plain"]) for one in updates))
    else:
        await asyncio.sleep(0.1)
        assert not any("Which?" in str(one["text/plain"]) for one in updates)
        live.card.busy = False
        await until(lambda: any("Which?" in str(one["text/plain"]) for one in updates))
    assert display.WIDGET_MIME in updates[-1], "the card stays live"
    live.card.detach()
    await run.cancel()
