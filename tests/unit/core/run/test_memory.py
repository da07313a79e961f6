"""What a paused run holds in memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import nbagent as nb
from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    dump,
    kept,
    made,
    slim,
)

RUNS = 200


async def test_many_paused_runs_are_little_more_than_their_messages():
    """A live paused run takes some 6 KiB, since Python 3.13 some 7: a person may leave hundreds of questions open."""
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
    # with pydantic's own dicts and sets 10 KiB; from 3.13 on CPython leaves room for 30 names in each
    assert size < (6.25 if sys.version_info < (3, 13) else 7) * 1024


def test_a_slim_event_is_the_same_event():
    """It is equal, is written as the same JSON, and can be copied with changes."""
    call = CallRequested(id="c", name="pay", input={"amount": 1})
    for event in (
        ModelResponded(at=1.0, text="hm", calls=(call,)),
        Interrupted(
            at=2.0,
            id="i",
            call_id="c",
            tool_name="pay",
            kind="tool",
            expects="approval",
            input={"amount": 1},
        ),
    ):
        slimmed = slim(event)
        assert slimmed == event
        assert dump(slimmed) == dump(event)
        assert repr(slimmed) == repr(event)
        assert slimmed.model_copy(update={"at": 3.0}).at == 3.0


def test_what_was_written_as_json_is_kept_without_what_that_takes():
    """A journal keeps events that nobody has looked at: each look leaves a dict in memory."""
    made_one = made(ModelResponded, at=1.0, text="hm")
    assert kept(made_one) == made_one
    assert kept(made_one) is not made_one
