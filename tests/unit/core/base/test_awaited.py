"""Calls that must be awaited say so if they are not."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import nbagent as nb
from nbagent.mcp_servers.server import mcp


def _run() -> nb.Run:
    return nb.Agent(nb.ScriptedModel(["hello"]), name="talker", store=nb.MemoryStore()).run("Hi.")


def stored_run() -> Any:
    store = nb.MemoryStore()
    nb.Agent(nb.ScriptedModel(["hello"]), store=store).run_sync("Hi.")
    return nb.runs(store)[0]


CALLS: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
    "nb.open_run('abc', take_over=True)": lambda: nb.open_run("abc", take_over=True),
    "nb.open_run('abc', store=…)": lambda: nb.open_run("abc", store="postgresql://u:pw@h/d"),
    "run.open()": lambda: stored_run().open(),
    "run.settled()": lambda: _run().settled(),
    "run.cancel(by=…)": lambda: _run().cancel(by="me"),
    "run.take_over()": lambda: _run().take_over(),
    "chat.stop()": lambda: nb.Agent(nb.ScriptedModel([])).chat().stop(),
    "agent.generate('Hi.', tools=…)": lambda: nb.Agent(nb.ScriptedModel([])).generate(
        "Hi.", tools=[]
    ),
    "inbox.changed()": lambda: nb.inbox(nb.MemoryStore()).changed(),
    "server.connect()": lambda: mcp("http://127.0.0.1:9/mcp").connect(),
    "server.aclose()": lambda: mcp("http://127.0.0.1:9/mcp").aclose(),
    "nb.form(…)": lambda: nb.form(int),  # type: ignore[dict-item,return-value]
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_not_awaited_says_what_to_write_when_shown_or_dropped(
    call: str,
) -> None:
    """Shown, the result is a sentence without a warning; dropped, it is a warning with the line."""
    given = CALLS[call]()
    assert repr(given) == f"Not started. Write `await {call}`"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del given
        gc.collect()
    with pytest.warns(RuntimeWarning, match="was not awaited. Write `await") as told:
        _ = (CALLS[call](), gc.collect())[1]
    assert [Path(one.filename) for one in told] == [Path(__file__)]
    assert len(told) == 1


async def test_an_awaitable_result_is_a_coroutine_wherever_one_is_accepted(tmp_path: Path) -> None:
    """Results can be awaited, gathered, made a task, limited in time and closed; errors are unchanged."""
    store = nb.SQLiteStore(tmp_path / "runs.db")
    agent = nb.Agent(nb.ScriptedModel(["one"]), name="talker", store=store)
    await agent.run("Hi.", id="hi")
    task = asyncio.create_task(nb.open_run("hi", agent=agent, show=False))
    gathered = await asyncio.gather(nb.open_run("hi", agent=agent, show=False), task)
    in_time = await asyncio.wait_for(nb.open_run("hi", agent=agent, show=False), 60)
    assert {run.id for run in [*gathered, in_time, await in_time.settled()]} == {"hi"}
    with pytest.raises(nb.errors.UsageError, match="Did you mean 'hi'"):
        await nb.open_run("h", agent=agent, store=store)
    nb.open_run("hi").close()
    done = in_time.settled()
    await done
    assert repr(done) == "<run.settled(), awaited>"


def test_asyncio_run_accepts_an_awaitable_result(tmp_path: Path) -> None:
    agent = nb.Agent(
        nb.ScriptedModel(["one"]), name="talker", store=nb.SQLiteStore(tmp_path / "a.db")
    )
    assert asyncio.run(agent.generate("Hi.")).text == "one"
