"""The memory of a paused run."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    dump,
    encoded,
    forget_encoding,
    parse,
    storable_event,
)
from nbagent.core.run.run import session_of

RUNS = 200


async def test_many_paused_runs_are_little_more_than_their_messages():
    """A live paused run takes about 6 KiB, or 7 since Python 3.13: hundreds of questions may stay open."""
    model = nb.ScriptedModel(lambda _messages: nb.ScriptedModel.call("pay", amount=12.5))
    agent = nb.Agent(model)

    @agent.tool
    async def pay(amount: float, ctx: nb.ToolContext) -> str:
        return str(amount) if ctx.resumed else ctx.interrupt(nb.Confirm(message="Go on?"))

    async def paused(count: int) -> list[nb.Run]:
        runs = [await agent.run("go", attended=True, show=False).settled() for _ in range(count)]
        model.requests.clear()
        gc.collect()
        return runs

    first = await paused(20)
    tracemalloc.start()
    try:
        held = await paused(RUNS)
        size = tracemalloc.get_traced_memory()[0] / RUNS
    finally:
        tracemalloc.stop()
    assert {run.status for run in [*first, *held]} == {"interrupted"}
    # with pydantic's own dicts and sets 10 KiB; from 3.13 on CPython reserves 30 names in each object
    assert size < (6.25 if sys.version_info < (3, 13) else 7) * 1024


def test_an_event_is_small_and_is_copied_and_written_like_a_pydantic_model():
    """An event has no ``__dict__``, but pydantic's method names."""
    event = ModelResponded(at=1.0, text="hm", calls=(CallRequested(id="c", name="pay", input={}),))
    assert not hasattr(event, "__dict__")
    assert event.model_copy(update={"at": 3.0}) == replace(event, at=3.0)
    assert parse(event.model_dump_json()) == event == parse(dump(event))
    assert event.model_dump()["calls"][0]["name"] == "pay"


def test_the_encoding_of_an_event_is_freed_once_it_is_stored():
    """The encoding that was checked is the stored one; after the write only the event stays in memory."""
    event = storable_event(ModelResponded(at=1.0, text="hm"))
    data = encoded(event)
    assert encoded(event) is data
    forget_encoding(event)
    assert encoded(event) == data
    assert encoded(event) is not data


@pytest.mark.parametrize(("length", "is_kept"), [(7, False), (9, True)])
async def test_a_paused_run_keeps_the_encoded_messages_of_a_long_history_only(length, is_kept):
    """A short history is quick to encode again; a long one would be encoded at each pause."""

    def ask(messages: Sequence[Any]) -> Any:
        for each in messages:
            each.wire = ("name", b"{}")
        return nb.ScriptedModel.call("pay", amount=1)

    agent = nb.Agent(nb.ScriptedModel(ask))

    @agent.tool(approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    history = [{"role": "user", "content": f"message {n}"} for n in range(length)]
    run = await agent.run(messages=history, attended=True, show=False).settled()
    assert run.status == "interrupted"
    *before, _ = session_of(run).state.messages
    assert [each.wire is not None for each in before] == [is_kept] * length
