"""A kernel that shows run after run, each with a store of its own, keeps none of them open."""

from __future__ import annotations

import gc
import os
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.run.run import session_of
from nbagent.notebook import kernel
from nbagent.notebook.cards import display
from nbagent.notebook.host import NotebookHost
from tests.until import until

call = nb.ScriptedModel.call


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> NotebookHost:
    """A kernel's host with a page that is quick to leave a card alone."""
    monkeypatch.setattr(display, "QUIET", 0.0)
    for name in ("display", "update_display"):
        monkeypatch.setattr(display, name, lambda *_, **__: None)
    monkeypatch.setattr(kernel, "execution_key", lambda: None)
    return NotebookHost()


async def shown(host: NotebookHost, path: Path) -> nb.Run:
    """A run in a card, as a cell makes it; the page has drawn it, and it has ended."""
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


async def is_gone(refs: list[weakref.ref[Any]]) -> None:
    def none_left() -> bool:
        gc.collect()
        return not any(ref() for ref in refs)

    await until(none_left)


async def test_a_shown_run_that_nobody_holds_is_let_go(host: NotebookHost, tmp_path: Path) -> None:
    """Its card has become static: the run, its card, its store and its file are released."""
    path = tmp_path / "runs.db"
    first = await shown(host, path)
    refs = [weakref.ref(first), weakref.ref(session_of(first).journal.store)]
    del first
    await is_gone(refs)
    files = len(os.listdir("/proc/self/fd"))
    refs = [weakref.ref(await shown(host, path)) for _ in range(30)]
    await is_gone(refs)
    # a store's own thread may be the last to hold its file
    await until(lambda: gc.collect() >= 0 and len(os.listdir("/proc/self/fd")) <= files)


async def test_runs_that_are_kept_share_one_file_and_are_small(
    host: NotebookHost, tmp_path: Path
) -> None:
    """Thousands in one kernel: descriptors don't grow, memory by about 20 kB a run, the agent included."""
    path, kept = tmp_path / "runs.db", list[nb.Run]()

    async def memory_after(more: int) -> int:
        kept.extend([await shown(host, path) for _ in range(more)])
        await is_gone(list(host._displays.valuerefs()))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = await memory_after(20)
        files = len(os.listdir("/proc/self/fd"))
        after = await memory_after(60)
    finally:
        tracemalloc.stop()
    assert (after - before) / 60 < 25_000  # 19 kB, and something for other versions of Python
    assert len(os.listdir("/proc/self/fd")) <= files
    assert all(run.status == "completed" for run in kept)


async def test_a_method_that_listens_can_stop_listening() -> None:
    """Python makes a new object of a method each time it is named."""

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
