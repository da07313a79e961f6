"""BEHAVIOR.md, the rest: case by case, on all drivers where they apply."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

import pytest
from pydantic import BaseModel

import nbagent as nb
from nbagent.core import drive as drive_module
from nbagent.core.output import Chunk

call = nb.ScriptedModel.call


class Tools:
    """Gate, ask and plain, with a log of what ran to its end."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define them."""
        agent.add(nb.interrupt_tool("ask", output=str))

        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"saved": n})
            self.log.append(("gate", n, ctx.state))
            return f"did {n}"

        @agent.tool
        def plain(n: int = 0) -> str:
            self.log.append(("plain", n))
            return f"plain {n}"

        @agent.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            return await ctx.ask("well?")


@pytest.fixture
def tools() -> Tools:
    """The usual tools."""
    return Tools()


def outputs(messages: Any) -> list[Any]:
    """All results in a history, in order."""
    return [p["output"] for m in messages for p in m["content"] if p["type"] == "tool_result"]


# --- a message while paused

OPEN = [call("ask"), call("gate", n=1), call("plain", n=2), call("wizard")]


async def test_c61_a_new_message_while_paused_is_refused_by_default(tools):
    """The error names what is open; nothing is changed, live and step by step."""
    agent = nb.Agent(nb.ScriptedModel([OPEN, OPEN]))
    tools(agent)
    paused = await agent.generate("go")
    with pytest.raises(nb.PendingInterrupts, match=r"'ask'.*'gate'.*'wizard'") as caught:
        await agent.generate("and now?", messages=paused.messages)
    assert list(caught.value.interrupts) == paused.interrupts
    run = await agent.run("go").settled()
    before = run.journal
    with pytest.raises(nb.PendingInterrupts, match="ask") as caught:
        agent.run("and now?", after=run)
    assert list(caught.value.interrupts) == run.interrupts
    assert run.journal == before
    await run.cancel()


async def test_c61_pending_reject_refuses_them_first_step_by_step(tools):
    """The model sees every call answered, then the message; nothing refused ran."""
    model = nb.ScriptedModel([OPEN, "sure"])
    agent = nb.Agent(model)
    tools(agent)
    paused = await agent.generate("go")
    messages = json.loads(json.dumps(paused.messages))
    done = await agent.generate("never mind", messages=messages, pending="reject")
    assert done.text == "sure"
    assert tools.log == [("plain", 2)]
    told = outputs(done.messages)
    assert told[2] == "plain 2"
    assert all("new message" in told[n] for n in (0, 1, 3))
    assert [m["role"] for m in done.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_c61_pending_reject_ends_the_paused_run_live(tools):
    """The old run is cancelled with its questions refused, and bodies that waited are left."""
    model = nb.ScriptedModel([OPEN, "sure"])
    agent = nb.Agent(model)
    tools(agent)
    run = await agent.run("go").settled()
    second = agent.run("never mind", after=run, pending="reject")
    assert (await asyncio.wait_for(second._wait(), 10)).text == "sure"
    assert (run.status, run.interrupts) == ("cancelled", [])
    assert tools.log == [("plain", 2)]
    assert [e.resolution.type for e in run.journal if e.type == "resolved"] == ["reject"] * 3
    assert all("new message" in outputs(second.messages)[n] for n in (0, 1, 3))
    with pytest.raises(nb.Cancelled):
        await run


async def test_c61_pending_reject_closes_an_agent_in_whose_middle_something_was_asked(tools):
    """Its call has a result, so that the outer model never sees it open."""
    inner = nb.Agent(nb.ScriptedModel([call("gate", n=1)]), name="inner")
    tools(inner)
    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="p"), "sure"]), tools=[inner.as_tool()])
    paused = await agent.generate("go")
    done = await agent.generate("never mind", messages=paused.messages, pending="reject")
    assert done.text == "sure"
    assert "new message" in outputs(done.messages)[0]


async def test_c61_pending_queue_sends_the_message_after_the_results_step_by_step(tools):
    """It rides in the messages, through JSON, over several pauses of the turn."""
    model = nb.ScriptedModel([[call("ask"), call("ask")], "both"])
    agent = nb.Agent(model)
    tools(agent)
    response = await agent.generate("go")
    response = await agent.generate("one", messages=response.messages, pending="queue")
    assert (response.finish_reason, len(response.interrupts)) == ("interrupted", 2)
    messages = json.loads(json.dumps(response.messages))
    response = await agent.generate("two", messages=messages, pending="queue")
    for answer in ("a", "b"):
        messages = json.loads(json.dumps(response.messages))
        reply = nb.tool_response(agent.interrupts(messages)[0], answer)
        response = await agent.generate(messages=messages, tool_responses=[reply], partial=True)
    assert response.text == "both"
    roles = [m["role"] for m in model.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "user", "user"]
    assert [m["content"][0]["text"] for m in model.requests[-1].messages[3:]] == ["one", "two"]


async def test_c61_pending_queue_live_goes_on_in_the_same_run(tools):
    """The run is given back, and its journal holds the message."""
    model = nb.ScriptedModel([[call("ask"), call("plain")], "both"])
    agent = nb.Agent(model)
    tools(agent)
    run = await agent.run("go").settled()
    assert agent.run("and this", after=run, pending="queue") is run
    run.respond(run.interrupts[0], "a")
    assert (await run).text == "both"
    assert [m["role"] for m in run.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert [e.text for e in run.journal if e.type == "message_queued"] == ["and this"]


async def test_c61_a_message_queued_while_the_model_speaks_comes_after_that(tools):
    """The run does not end before it was answered; a queue on an ended run starts a new one."""
    queued: list[bool] = []

    def answer(_messages: Any) -> str:
        if not queued:
            queued.append(run.queue("and this"))
        return f"answer {len(model.requests)}"

    model = nb.ScriptedModel(answer)
    agent = nb.Agent(model)
    run = agent.run("go")
    assert (await run).text == "answer 2"
    assert queued == [True]
    after = agent.run("more", after=run, pending="queue")
    assert after is not run
    assert (await after).text == "answer 3"


# --- streaming


async def test_c66_a_resume_tells_the_results_first_and_then_the_models_words(tools):
    """In that order, step by step and live."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), nb.ScriptedModel.slow("a b c d")]))
    tools(agent)
    paused = await agent.generate("go")
    heard: list[str] = []

    def hear(event: Any) -> None:
        heard.append(getattr(event, "type", type(event).__name__))

    await agent.generate(
        messages=paused.messages,
        tool_restarts=[nb.tool_restart(paused.interrupts[0])],
        on_event=hear,
    )
    first_word, result = heard.index("TextDelta"), heard.index("tool_finished")
    assert heard[0] == "resolved"
    assert result < first_word


async def test_c72_streaming_tools_at_once_never_mix():
    """Chunks are tagged by call, the final result is authoritative; sync and async."""
    agent = nb.Agent(
        nb.ScriptedModel([[call("a", n=1), call("a", n=2), call("b", n=3), call("c", n=4)], "done"])
    )

    @agent.tool
    async def a(n: int):
        for piece in range(20):
            yield f"{n}:{piece} "
            await asyncio.sleep(0)

    @agent.tool
    def b(n: int):
        for piece in range(20):
            yield f"{n}:{piece} "

    @agent.tool
    async def c(n: int):
        yield "shown, "
        yield nb.ToolResult("the real result")

    chunks: dict[str, list[str]] = {}

    def hear(event: Any) -> None:
        if isinstance(event, Chunk):
            chunks.setdefault(event.call_id, []).append(event.text)

    response = await agent.generate("go", on_event=hear)
    whole = ["".join(f"{n}:{piece} " for piece in range(20)) for n in (1, 2, 3)]
    assert ["".join(chunks[f"call_{n}"]) for n in (1, 2, 3)] == whole
    assert outputs(response.messages) == [*whole, "the real result"]
    assert chunks["call_4"] == ["shown, "]


async def test_c80_c84_a_streaming_tool_is_approved_edited_and_refused_as_others_are(play):
    """Approvals bind streams too."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        async def stream(n: int):
            did.append(n)
            yield f"n={n}"

        @agent.tool(approval=True)
        def stream_sync(n: int):
            did.append(n)
            yield f"n={n}"

    s = await play(
        [[call("stream", n=1), call("stream_sync", n=2), call("stream", n=3)], "done"], define
    )
    assert did == []
    await s.answer(restart={0: {}, 1: {"new_input": {"n": 20}}}, reject={2: None})
    assert sorted(did) == [1, 20]
    assert s.results[0] == "n=1"
    assert s.results[1].endswith("n=20")


# --- approval


async def test_c79_a_rejection_without_a_reason_still_says_so(play, tools):
    """The result names the tool and says that it did not run."""
    s = await play([call("gate", n=1), "done"], tools)
    await s.answer(reject={0: None})
    assert s.results == ["A person rejected this call of gate; it was not run."]


async def test_c88_an_answer_in_place_of_an_approval_is_the_result(play):
    """The body does not run."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return "did"

    s = await play([call("act", n=1), "done"], define)
    await s.answer(respond={0: "do it by hand"})
    assert (s.results, did) == (["do it by hand"], [])


@pytest.mark.parametrize("empty", [None, {}, {"seat": None}, {"seat": "1A", "price": ""}])
async def test_c89_a_required_answer_left_empty_is_an_error_at_its_field(play, empty):
    """Still pending; the error's ``loc`` says where."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("ask", output=Seat))

    s = await play([call("ask"), "done"], define)
    with pytest.raises(nb.InvalidAnswer) as caught:
        await s.answer(respond={0: empty})
    fields = {error["loc"] for error in caught.value.errors}
    assert fields <= {(), ("seat",), ("price",)}
    assert fields
    await s.answer(respond={0: {"seat": "1A", "price": 5}})
    assert s.results == [{"seat": "1A", "price": 5.0}]


class Seat(BaseModel):
    """A typed answer."""

    seat: str
    price: float


async def test_c90_comments_lead_to_revisions_until_it_is_accepted(play):
    """Comment twice, accept: two revisions, and the end is the accepted one."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def draft(topic: str, ctx: nb.ToolContext) -> str:
            state = ctx.state_as(dict) or {"text": topic, "revisions": 0}
            comment = ctx.resumed.data if ctx.resumed else None
            if comment is not None:
                state = {
                    "text": f"{state['text']}, {comment}",
                    "revisions": state["revisions"] + 1,
                }
            if comment is not None or not ctx.resumed:
                ctx.interrupt({"draft": state["text"]}, state=state)
            return f"{state['text']} ({state['revisions']} revisions)"

    s = await play([call("draft", topic="birds"), "done"], define)
    for comment, shown in (("longer", "birds, longer"), ("kinder", "birds, longer, kinder")):
        await s.answer(restart={0: {"data": comment}})
        assert s.interrupts[0].metadata == {"draft": shown}
    await s.answer(restart={0: {}})
    assert s.results == ["birds, longer, kinder (2 revisions)"]


# --- storage, cancel


async def test_c113_state_saved_with_the_pause_comes_back_with_the_answer(play, tools):
    """Also in a fresh agent after JSON."""
    s = await play([call("gate", n=3), "done"], tools)
    assert s.interrupts[0].state == {"saved": 3}
    await s.answer(restart={0: {}})
    assert tools.log == [("gate", 3, {"saved": 3})]


async def test_c128_cancel_while_paused_is_the_end_of_it(tools):
    """No answer is taken any more; finished results are kept."""
    agent = nb.Agent(nb.ScriptedModel([OPEN, "and on"]))
    tools(agent)
    run = await agent.run("go").settled()
    found = run.interrupts
    await run.cancel()
    assert (run.status, run.interrupts) == ("cancelled", [])
    for i in found:
        with pytest.raises(nb.Conflict, match="cancelled"):
            run.reject(i)
    assert run.calls["plain"][0].output == "plain 2"
    after = agent.run("go on", after=run)
    assert (await after).text == "and on"
    assert tools.log == [("plain", 2)]


async def test_c129_a_late_result_of_a_cancelled_run_changes_nothing(monkeypatch, caplog):
    """Marked as still running, its result discarded and logged; also one that ends in a pause."""
    monkeypatch.setattr(drive_module, "GRACE", 0.1)
    go, entered, left = threading.Event(), threading.Event(), threading.Event()
    agent = nb.Agent(nb.ScriptedModel([call("stubborn")]))

    @agent.tool
    def stubborn(ctx: nb.ToolContext) -> str:
        entered.set()
        go.wait(30)
        left.set()
        ctx.interrupt({"late": True})

    run = agent.run("go")
    await asyncio.to_thread(entered.wait, 30)
    await run.cancel()
    journal = run.journal
    assert journal[-1].still_running == ("call_1",)
    go.set()
    await asyncio.to_thread(left.wait, 30)
    for _ in range(100):
        if "discarded" in caplog.text:
            break
        await asyncio.sleep(0.01)
    assert "'stubborn'" in caplog.text
    assert (run.journal, run.status, run.interrupts) == (journal, "cancelled", [])


async def test_c134_a_pause_in_the_last_turn_is_delivered_and_an_approval_too(play):
    """At the limit: resuming costs no turn, and only then the limit is met."""
    did: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            did.append(n)
            return "did"

    s = await play([call("act", n=1)], define, max_turns=1)
    assert [i.kind for i in s.interrupts] == ["approval"]
    with contextlib.suppress(nb.TurnLimit):  # live a person is asked instead
        await s.answer(restart={0: {}})
        assert [i.kind for i in s.interrupts] == ["budget"]
    assert did == [1]


def test_c61_synchronous_code_may_reject_or_queue_as_well(tools):
    """``run_sync`` takes ``pending=`` too."""
    agent = nb.Agent(nb.ScriptedModel([call("ask"), "instead", call("ask"), "both"]))
    tools(agent)

    def paused() -> nb.Run:
        run = agent.run("go")
        with pytest.raises(nb.HumanInputRequired):
            run.wait()
        return run

    assert agent.run_sync("never mind", after=paused(), pending="reject").text == "instead"
    run = paused()
    with pytest.raises(nb.PendingInterrupts):
        agent.run_sync("and this", after=run)
    with pytest.raises(nb.HumanInputRequired):
        agent.run_sync("and this", after=run, pending="queue")
    run.respond(run.interrupts[0], "b")
    assert run.wait().text == "both"
