"""docs/behavior.md, streaming and limits, on every driver."""

from __future__ import annotations

import asyncio
import json

import pytest

import nbagent as nb
from nbagent.core.base.model import Discarded, TextDelta
from nbagent.core.tools.call_output import Chunk
from tests.unit.core.usual import parts

call = nb.ScriptedModel.call


async def test_c67_a_pause_while_streaming_is_one_event_at_the_moment_it_is_raised(play):
    """The event has id, path and metadata, in each round, while a sibling still runs."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if n < 3:
                ctx.interrupt({"n": n})
            return "ok"

        @agent.tool
        async def slow(ctx: nb.ToolContext):
            if not ctx.resumed:
                ctx.interrupt()
            for _ in range(2000):
                await asyncio.sleep(0)
            yield "slow"

    s = await play([["hm", call("gate", n=1), call("slow")], "done"], define)
    for answer in ({0: {"new_input": {"n": 2}}, 1: {}}, {0: {"new_input": {"n": 3}}}):
        raised = [e for e in s.heard if e.type == "interrupted"]
        assert {e.id: e.metadata for e in raised} == {i.id: i.metadata for i in s.interrupts}
        assert len(raised) == len(s.interrupts)
        assert s.interrupts[0].path == ("agent", "gate")
        before = list(s.heard)
        await s.answer(restart=answer)
    told = [e.type for e in before]
    assert told.index("interrupted") < told.index("tool_finished")
    assert s.text == "done"


async def test_c69_a_model_that_loops_forever_is_stopped(play, tools):
    """Step by step an error with the history and text so far, live a question for a number; both can continue."""
    model = nb.ScriptedModel(lambda messages: ["hm", call("plain" if messages[1:] else "ask")])
    s = await play(model, tools, max_turns=3)
    if s.live:
        await s.answer(respond={0: "b"})
        (i,) = s.interrupts
        assert (s.status, i.kind, i.tool_name, i.call_id) == ("interrupted", "budget", "", "")
        for bad in (0, -1, "3", None, True, 1.5):
            with pytest.raises(nb.errors.InvalidAnswer):
                await s.answer(respond={0: bad})
        with pytest.raises(nb.errors.InvalidAnswer):
            await s.answer(restart={0: {}})
        await s.answer(respond={0: 2})
        assert (s.requests, [i.kind for i in s.interrupts]) == (5, ["budget"])
        with pytest.raises(nb.TurnLimit) as caught:
            await s.answer(reject={0: None})
    else:
        with pytest.raises(nb.TurnLimit, match="3 turns"):
            await s.answer(respond={0: "b"})
        assert s.requests == 3
        with pytest.raises(nb.TurnLimit) as caught:
            await s.generate(max_turns=5)
    assert (s.requests, caught.value.text) == (5, "hm")
    assert json.dumps(caught.value.messages) == json.dumps(s.messages)
    assert s.messages[-1]["role"] == "tool"
    assert tools.log == [("plain", 0)] * 4


async def test_c70_c134_a_pause_in_the_last_turn_is_delivered_and_resuming_costs_no_turn(
    play, tools
):
    """Only model responses count."""
    s = await play([call("ask"), call("gate", amount=1), "done"], tools, max_turns=3)
    await s.answer(respond={0: "b"})
    assert s.interrupts[0].tool_name == "gate"
    await s.answer(restart={0: {}})
    assert s.text == "done"
    last = await play([call("ask")], tools, max_turns=1)
    assert [i.tool_name for i in last.interrupts] == ["ask"]


async def test_c66_a_resume_streams_the_results_before_the_text_of_the_model(play, tools):
    s = await play([call("gate", amount=1), nb.ScriptedModel.slow("a b c d")], tools)
    await s.answer(restart={0: {}})
    heard = [event.type for event in s.heard]
    assert heard[0] == "resolved"
    assert heard.index("tool_finished") < heard.index("text_delta")
    assert "".join(e.text for e in s.heard if isinstance(e, TextDelta)) == "a b c d"


def shows(heard, call_id):
    """Whether an event is a chunk of this call."""
    return isinstance(heard, Chunk) and heard.call_id == call_id


async def test_c72_concurrent_streaming_tools_never_mix(play):
    """Each chunk has its call's id, and the final result counts; sync and async."""

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        async def a(n: int):
            for piece in range(20):
                yield f"{n}:{piece} "
                await asyncio.sleep(0)

        @agent.tool(approval=True)
        def b(n: int):
            for piece in range(20):
                yield f"{n}:{piece} "

        @agent.tool(approval=True)
        async def c():
            yield "shown, "
            yield nb.ToolResult("the real result")

    s = await play([[call("a", n=1), call("a", n=2), call("b", n=3), call("c")], "done"], define)
    await s.answer(restart={n: {} for n in range(4)})
    chunks = {n: "".join(c.text for c in s.heard if shows(c, f"call_{n}")) for n in range(1, 5)}
    whole = ["".join(f"{n}:{piece} " for piece in range(20)) for n in (1, 2, 3)]
    assert list(chunks.values()) == [*whole, "shown, "]
    assert s.results == [*whole, "the real result"]


async def test_c134_a_pause_in_the_last_turn_is_delivered_and_an_approval_too(play):
    """Resuming costs no turn; the limit applies only afterwards."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return "did"

    s = await play([call("act", n=1)], define, max_turns=1)
    assert [i.kind for i in s.interrupts] == ["approval"]
    if s.live:
        await s.answer(restart={0: {}})
        assert [i.kind for i in s.interrupts] == ["budget"]
    else:
        with pytest.raises(nb.TurnLimit):
            await s.answer(restart={0: {}})
    assert (did, s.requests) == ([1], 1)


async def test_c135_a_model_stream_that_breaks_halfway_leaves_only_the_good_attempt(play, tools):
    """The partial text and call are marked as discarded; the history has only the whole answer."""
    broken = [TextDelta("half an ans"), call("gate", amount=1), Discarded("cut"), "whole"]
    s = await play([[*broken, call("ask")], broken], tools)
    assert [i.tool_name for i in s.interrupts] == ["ask"]
    for answer in ({0: "b"}, None):
        heard = [e.text if isinstance(e, TextDelta) else e for e in s.heard if not hasattr(e, "at")]
        assert heard.index(Discarded("cut")) == heard.index("whole") - 1
        assert heard[0] == "half an ans"
        if answer:
            await s.answer(respond=answer)
    assert [p["text"] for p in parts(s.messages, "text")] == ["go", "whole", "whole"]
    assert [p["name"] for p in parts(s.messages, "tool_call")] == ["ask"]
    assert (s.text, tools.entered) == ("whole", [])
