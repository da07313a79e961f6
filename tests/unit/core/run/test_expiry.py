"""A question's deadline: applied once, by the first process that notices it."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ToolError
from nbagent.core.run.run import session_of
from tests.unit.core.clock import Clock, put_forward
from tests.unit.core.family import wait_for_question
from tests.unit.core.journal.test_store_failures import Shaky
from tests.until import turns, until

call = nb.ScriptedModel.call


def timed(agent: nb.Agent, ran: list[Any], *, seconds: Any = 60, on_expire: Any = "reject") -> None:
    """Define a gate whose question expires."""

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"m": 1}, expires_in=seconds, on_expire=on_expire)
        ran.append(1)
        return "ran"


def make(ran: list[Any], *more: Any, **options: Any) -> nb.Agent:
    """An agent that asks with a time limit."""
    agent = nb.Agent(nb.ScriptedModel([[call("gate"), *more], "done"]))
    timed(agent, ran, **options)
    return agent


def clocked(agent: nb.Agent, clock: Clock) -> nb.Run:
    """A run that uses this clock."""
    return clock.on(agent).run("go")


def first_question_id(run: nb.Run) -> str:
    """The id of the first question, whether or not it is still open."""
    return next(e.id for e in run.journal if e.type == "interrupted")


EXPIRED = [
    ("reject", "Nobody answered in time, so this call of gate was rejected. It was not run."),
    (nb.Respond(output="the default"), "the default"),
]


@pytest.mark.parametrize(("on_expire", "told"), EXPIRED)
@pytest.mark.parametrize("seconds", [60, timedelta(minutes=1)])
async def test_c133_after_the_deadline_the_default_is_applied_once_and_recorded(
    on_expire, told, seconds
):
    """The recorded answer is by "expiry"; the body never runs, and a later answer is an error."""
    ran: list[Any] = []
    clock = Clock()
    run = await clocked(make(ran, on_expire=on_expire, seconds=seconds), clock).settled()
    i = first_question_id(run)
    await clock.go_on(59)
    assert run.status == "interrupted"
    await clock.go_on(2)
    assert run.status == "completed"
    assert told in run.calls["gate"][0].output
    answers = [e for e in run.journal if e.type == "resolved"]
    assert ([e.by for e in answers], ran) == (["expiry"], [])
    with pytest.raises(nb.Conflict, match="expiry"):
        run.restart(i)


async def test_c133_a_deadline_can_fail_the_run_and_a_retry_waits_as_long_again():
    """``Expired`` names the tool and has the history; finished siblings are kept."""
    ran: list[Any] = []
    clock = Clock()
    agent = make(ran, call("plain"), on_expire="fail", seconds=60)
    plain: list[int] = []

    agent.add(nb.tool(name="plain")(lambda: plain.append(1)))
    run = await clocked(agent, clock).settled()
    clock.now += 61
    with pytest.raises(nb.errors.Expired, match="'gate'") as caught:
        await run
    assert (run.status, ran, plain) == ("failed", [], [1])
    assert caught.value.messages[-1]["role"] == "assistant"
    session_of(run).seen = -1  # as if another process had written
    session_of(run).follower.look()
    with pytest.raises(nb.errors.Expired, match="'gate'"):
        await run
    for again in (True, False):
        run.retry()
        await run.settled()
        (i,) = run.interrupts
        assert i.expires_at == clock.now + 60
        if again:
            clock.now += 61
            with pytest.raises(nb.errors.Expired, match="'gate'"):
                await run
    run.restart(i)
    assert (await asyncio.wait_for(run, 10)).text == "done"
    assert (ran, plain) == ([1], [1])


async def test_a_failing_deadline_waits_for_calls_that_still_run():
    """Results of these calls are kept, and a retry does not repeat the calls."""
    did: list[int] = []
    go = asyncio.Event()
    clock = Clock()
    agent = make([], call("slow"), on_expire="fail", seconds=60)

    @agent.tool
    async def slow() -> str:
        await go.wait()
        did.append(1)
        return "slow"

    run = clocked(agent, clock)
    await wait_for_question(run)
    await clock.go_on(61)
    assert run.status == "running"
    with pytest.raises(nb.Conflict, match="expired"):
        run.restart(run.interrupts[0])
    go.set()
    with pytest.raises(nb.errors.Expired):
        await asyncio.wait_for(run, 10)
    assert run.calls["slow"][0].output == "slow"
    run.retry()
    await run.settled()
    run.respond(run.interrupts[0], "b")
    await asyncio.wait_for(run, 10)
    assert did == [1]


@pytest.mark.parametrize("on_expire", ["reject", "fail", nb.Respond(output="default")])
async def test_a_question_in_the_middle_of_a_body_has_a_deadline(on_expire):
    """``ctx.ask`` raises Rejected, returns the default, or fails the run and ends the body."""
    ended: list[str] = []
    agent = nb.Agent(nb.ScriptedModel([call("asks"), "done"]))

    @agent.tool
    async def asks(ctx: nb.ToolContext) -> str:
        try:
            return await ctx.ask("well?", expires_in=60, on_expire=on_expire)
        except nb.Rejected:
            return "rejected"
        finally:
            ended.append("body")

    clock = Clock()
    run = await clock.on(agent).run("go", attended=True, show=False).settled()
    await clock.go_on(61)
    if on_expire == "fail":
        with pytest.raises(nb.errors.Expired):
            await asyncio.wait_for(run, 10)
    else:
        await asyncio.wait_for(run, 10)
        expected = "rejected" if on_expire == "reject" else "default"
        assert run.calls["asks"][0].output == expected
    assert ended == ["body"]


@pytest.mark.parametrize("on_expire", ["reject", "fail"])
async def test_of_the_deadline_and_many_answers_at_once_exactly_one_wins(on_expire):
    """The body runs at most once, and the journal has one outcome."""
    for _ in range(10):
        ran: list[Any] = []
        clock = Clock()
        run = await clocked(make(ran, seconds=60, on_expire=on_expire), clock).settled()
        (i,) = run.interrupts
        start = threading.Barrier(6)

        def attempt(late: bool, run: Any = run, i: Any = i, start: Any = start) -> str:
            start.wait()
            try:
                if late:
                    clock.now += 61  # noqa: B023 - this round's
                    session_of(run).when_settled()  # a waiter notices the deadline
                else:
                    run.restart(i)
            except nb.NbagentError as error:
                return type(error).__name__
            return "late" if late else "won"

        with ThreadPoolExecutor(6) as pool:
            waiting = [
                asyncio.wrap_future(pool.submit(attempt, late)) for late in (True, *[False] * 5)
            ]
            outcomes = await asyncio.gather(*waiting)
        await run.settled()
        settled = [e for e in run.journal if e.type == "resolved"]
        failed = [e for e in run.journal if e.type == "run_failed"]
        assert len(settled) + len(failed) == 1
        won = outcomes.count("won")
        assert won == len([e for e in settled if e.by == "code"]) == len(ran)


def test_a_deadline_that_passed_without_a_loop_is_applied_at_the_next_access():
    """The run's loop is closed; a late answer is refused, and the default is applied."""
    ran: list[Any] = []
    clock = Clock()

    async def begin() -> nb.Run:
        return await clocked(make(ran), clock).settled()

    async def late(run: nb.Run) -> str:
        with pytest.raises(nb.Conflict, match="expiry"):
            run.restart(i)
        return (await run).text

    run = asyncio.run(begin())
    i = first_question_id(run)
    clock.now += 61
    assert asyncio.run(late(run)) == "done"
    assert ran == []


class PageLoop(asyncio.SelectorEventLoop):
    """An event loop that takes no past time, as that of a web page (Pyodide)."""

    def call_at(self, when, callback, *args, context=None):
        """As in any loop, but only from ``call_later``, whose delay is not negative."""
        raise ValueError("Can't schedule in the past")

    def call_later(self, delay, callback, *args, context=None):
        """As in any loop."""
        assert delay >= 0
        return super().call_at(self.time() + delay, callback, *args, context=context)


def test_a_deadline_that_has_passed_is_applied_on_the_loop_of_a_web_page(tmp_path):
    """A run is opened after the deadline of its question."""
    clock, ran = Clock(), []
    path = tmp_path / "runs.db"

    async def begin() -> str:
        run = clock.on(make(ran)).run("go", store=nb.SQLiteStore(path), attended=True)
        await run.settled()
        return run.id

    async def opened(run_id: str) -> str:
        store = nb.SQLiteStore(path)
        agent = nb.Agent(nb.ScriptedModel(["done"]))
        timed(agent, ran)
        run = await nb.open_run(run_id, agent=clock.on(agent), store=store, attended=True)
        return (await run).text

    run_id = asyncio.run(begin())
    clock.now += 61
    with asyncio.Runner(loop_factory=PageLoop) as runner:
        assert runner.run(opened(run_id)) == "done"
    assert ran == []


@pytest.mark.parametrize("on_expire", ["reject", nb.Respond(output="default"), "fail"])
async def test_step_by_step_an_expired_call_never_runs(on_expire):
    """P1: a late answer is refused; without an answer the default is applied, also through JSON."""
    ran: list[Any] = []
    clock = Clock()
    agent = clock.on(make(ran, on_expire=on_expire))
    paused = await agent.generate("go")
    clock.now += 61
    messages = json.loads(json.dumps(paused.messages))
    (i,) = agent.interrupts(messages)
    with pytest.raises(nb.Conflict, match="expired"):
        await agent.generate(messages=messages, tool_restarts=[nb.tool_restart(i)])
    if on_expire == "fail":
        with pytest.raises(nb.errors.Expired, match="'gate'"):
            await agent.generate(messages=messages)
    else:
        done = await agent.generate(messages=messages)
        assert done.text == "done"
        record = done.messages[2]["content"][0]["nbagent"][0]
        assert record["by"] == "expiry"
    assert ran == []


async def test_a_nested_deadline_is_applied_inside():
    """The inner model gets the rejection."""
    model = nb.ScriptedModel([call("gate"), "understood"])
    inner = nb.Agent(model, name="inner")
    timed(inner, [])
    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="p"), "done"]), tools=[inner.as_tool()])
    clock = Clock()
    run = await clock.on(agent).run("go", attended=True, show=False).settled()
    await clock.go_on(61)
    assert (await asyncio.wait_for(run, 10)).text == "done"
    assert "in time" in model.requests[-1].messages[-1]["content"][0]["output"]


async def test_two_handles_on_one_run_apply_a_deadline_once():
    """Two handles of one store act like two processes."""
    ran: list[Any] = []
    store = nb.MemoryStore()
    clock = Clock()
    agent = clock.on(make(ran))
    run = await agent.run("go", store=store).settled()
    other = await nb.open_run(run.id, agent=agent, store=store)
    await clock.go_on(61)
    await asyncio.wait_for(asyncio.gather(run.settled(), other.settled()), 10)
    assert [e.by for e in store.read(run.id) if e.type == "resolved"] == ["expiry"]
    assert (run.status, other.status, ran) == ("completed", "completed", [])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"expires_in": 0}, "positive"),
        ({"expires_in": -1}, "positive"),
        ({"expires_in": 1, "on_expire": "explode"}, "'reject', 'fail'"),
        ({"expires_in": 1, "on_expire": nb.Restart()}, "'reject', 'fail'"),
    ],
)
async def test_an_invalid_deadline_is_a_failure_of_the_tool(play, options, problem):
    """The message lists the options; an expiry can never run a tool."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            ctx.interrupt(**options)

    s = await play([call("gate"), "done"], define)
    assert problem in s.results[0]


def test_the_raised_interrupt_accepts_the_options_of_the_context_method():
    """``raise nb.Interrupt(…, expires_in=…)``."""
    raised = nb.Interrupt({"m": 1}, expires_in=timedelta(minutes=1), on_expire="fail")
    assert (raised.expiry.seconds, raised.expiry.then) == (60.0, "fail")
    assert issubclass(ToolError, nb.NbagentError)
    assert not issubclass(nb.Interrupt, Exception)


@pytest.mark.parametrize("on_expire", ["reject", "fail", nb.Respond(output="default")])
@pytest.mark.parametrize(
    "moves", [[(-1000, 61), (1060, 1060)], [(61, 60)], [(59, 59), (-3, 2), (4, 4)]]
)
async def test_setting_the_clock_moves_the_deadline_with_it(on_expire, moves):
    """A deadline follows the clock that set it, whatever the loop's own clock shows.

    Each move: seconds added to that clock, and seconds added to the loop's timers.
    """
    clock = Clock()
    run = await clocked(make([], on_expire=on_expire), clock).settled()
    (i,) = run.interrupts
    for wall, timers in moves:
        assert run.status == "interrupted"
        clock.now += wall
        put_forward(timers)
        await turns()
    assert clock.now >= i.expires_at
    assert run.status == ("failed" if on_expire == "fail" else "completed")


@pytest.mark.parametrize("past", [-0.001, 0, 0.001])
async def test_an_answer_is_refused_from_the_moment_its_question_expires(past):
    """Answer and expiry use one rule, so at every moment one of them counts."""
    clock = Clock()
    run = await clocked(make([]), clock).settled()
    (i,) = run.interrupts
    clock.now = i.expires_at + past
    if past < 0:
        run.restart(i)
        by = "code"
    else:
        with pytest.raises(nb.Conflict, match="expiry"):
            run.restart(i)
        by = "expiry"
    assert [e.by for e in run.journal if e.type == "resolved"] == [by]
    await run


async def test_a_deadline_that_could_not_be_stored_is_applied_later(caplog):
    """The store fails once at the deadline; the question does not stay open forever."""
    clock = Clock()
    store = Shaky(lambda event: event.type == "resolved")
    run = await clock.on(make([])).run("go", store=store).settled()
    await clock.go_on(61)
    assert (run.status, caplog.text.count("is not stored yet")) == ("interrupted", 1)
    await clock.go_on(1)
    assert run.status == "completed"


async def test_a_deadline_that_cannot_be_stored_does_not_fail_other_calls() -> None:
    """A call that ends meanwhile keeps its result, and a waiter sees that the run is interrupted."""

    class Full(nb.MemoryStore):
        def append(self, run_id: str, events: Any, expected: int) -> None:
            if events[0].type == "resolved":
                raise OSError("no space left on device")
            super().append(run_id, events, expected)

    clock, go_on = Clock(), asyncio.Event()
    agent = make([], call("work"))

    @agent.tool
    async def work() -> str:
        await go_on.wait()
        return "worked"

    run = clock.on(agent).run("go", store=Full(), attended=True)
    await until(lambda: bool(run.interrupts) and "work" in session_of(run).executing)
    waiting = asyncio.create_task(run.settled())
    await turns()
    clock.now += 61
    go_on.set()
    await asyncio.wait_for(waiting, 5)
    assert run.calls["work"][0].output == "worked"
    assert run.status == "interrupted"


async def test_a_deadline_still_applies_when_the_loop_of_its_run_is_closed():
    """Looking at the run moves its deadline to the loop that runs now."""
    clock = Clock()

    async def begin() -> nb.Run:
        return await clocked(make([]), clock).settled()

    run = await asyncio.to_thread(asyncio.run, begin())
    assert (await run.settled()).status == "interrupted"
    await turns()
    await clock.go_on(61)
    assert run.status == "completed"


async def test_a_default_answer_that_does_not_fit_rejects_its_question_and_no_other():
    """The model learns why; other questions take answers and expire as usual."""
    agent = nb.Agent(nb.ScriptedModel([[call("how_many"), call("named"), call("open")], "done"]))

    @agent.tool
    async def how_many(ctx: nb.ToolContext) -> str:
        asked = ctx.ask("How many?", reply=int, expires_in=60, on_expire=nb.Respond("none"))
        return str(await asked)

    @agent.tool
    async def named(ctx: nb.ToolContext) -> str:
        return await ctx.ask("Name?", expires_in=60, on_expire=nb.Respond("Ada"))

    agent.add(nb.interrupt_tool("open"))
    clock = Clock()
    run = await clock.on(agent).run("go", attended=True, show=False).settled()
    await clock.go_on(61)
    await until(lambda: len(run.interrupts) == 1)
    run.respond(run.interrupts[0], "still open")
    assert (await asyncio.wait_for(run, 10)).text == "done"
    rejected, named_, open_ = (run.calls[name][0].output for name in ("how_many", "named", "open"))
    assert "nobody answered in time, and the on_expire= answer is invalid" in rejected
    assert (named_, open_) == ("Ada", "still open")


async def test_c133_an_expired_question_of_a_body_is_not_said_to_be_rejected_by_a_person():
    """Nobody answered."""
    agent = nb.Agent(nb.ScriptedModel([call("asks"), "done"]))

    @agent.tool
    async def asks(ctx: nb.ToolContext) -> str:
        return await ctx.ask("well?", expires_in=60)

    clock = Clock()
    run = await clock.on(agent).run("go", attended=True, show=False).settled()
    await clock.go_on(61)
    await asyncio.wait_for(run, 10)
    assert run.calls["asks"][0].output == "During this call of asks, nobody answered in time."
