"""A live run: loops, threads, cancelling, listeners, and continuing a conversation."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import MessagesError, UsageError
from nbagent.core.base.model import TextDelta
from nbagent.core.base.process import this_process
from nbagent.core.call import threads
from nbagent.core.call.threads import MAX_THREADS, private_loop, run_in_thread
from nbagent.core.run import session as session_module
from nbagent.core.run.host import ScriptHost
from nbagent.core.run.result import Result
from nbagent.core.run.run import session_of
from tests.until import turns, until

call = nb.ScriptedModel.call


def asking(*more: Any, calls: int = 1) -> nb.Agent:
    """An agent whose model asks, then sends "done"."""
    agent = nb.Agent(nb.ScriptedModel([[call("ask") for _ in range(calls)], *more, "done"]))
    agent.add(nb.interrupt_tool("ask", output=str))
    return agent


# --- loops


def test_a_run_in_a_script_lives_on_the_callers_loop():
    """Its tools may use objects that belong to that loop."""
    seen = []

    async def main() -> None:
        agent = nb.Agent(nb.ScriptedModel([call("where"), "done"]))

        @agent.tool
        async def where() -> str:
            seen.append(asyncio.get_running_loop())
            return "here"

        await agent.run("go")
        seen.append(asyncio.get_running_loop())

    asyncio.run(main())
    assert seen[0] is seen[1]


def test_a_paused_run_is_answered_in_a_second_asyncio_run():
    """The first loop is closed; the run continues on the second."""

    async def begin() -> nb.Run:
        return await asking(call("ask")).run("go").settled()

    async def finish(run: nb.Run) -> str:
        run.respond(run.interrupts[0], "x")
        return (await run).text

    run = asyncio.run(begin())
    first = asyncio.run(_answered(run))
    assert first.status == "interrupted"
    assert asyncio.run(finish(run)) == "done"


async def _answered(run: nb.Run) -> nb.Run:
    run.respond(run.interrupts[0], "x")
    return await run.settled()


def test_a_paused_run_is_answered_without_any_loop():
    """The run continues on the private loop, and ``wait`` works without a loop."""

    async def begin() -> nb.Run:
        return await asking().run("go").settled()

    run = asyncio.run(begin())
    run.respond(run.interrupts[0], "x")
    assert run.wait().text == "done"


def test_an_answer_given_as_the_loop_ends_is_not_lost():
    """One asyncio.run accepts the answer and ends at once; the next one continues the run."""
    slow = [nb.ScriptedModel.slow("done", delay=0.01) for _ in range(2)]

    async def begin() -> nb.Run:
        run = await asking(*slow).run("go").settled()
        run.respond(run.interrupts[0], "x")
        return run

    async def finish(run: nb.Run) -> str:
        return (await asyncio.wait_for(asyncio.ensure_future(_wait(run)), 10)).text

    run = asyncio.run(begin())
    assert run.interrupts == []
    assert asyncio.run(finish(run)) == "done"


async def _wait(run: nb.Run) -> Result:
    return await run


def test_a_run_whose_loop_stopped_in_a_tool_asks_about_the_call():
    """In the next loop, a person says what the call did, as after the end of a process, and the run goes on."""
    agent = nb.Agent(nb.ScriptedModel([call("slow"), "done"]))

    entered: list[int] = []

    @agent.tool
    async def slow() -> str:
        entered.append(1)
        await asyncio.Event().wait()
        return "never"

    async def begin() -> nb.Run:
        run = agent.run("go")
        await until(lambda: bool(entered))
        return run

    async def wait(run: nb.Run) -> None:
        await asyncio.wait_for(_wait(run), 10)

    run = asyncio.run(begin())
    for _ in range(2):
        with pytest.raises(nb.HumanInputRequired, match="no longer drives this run"):
            asyncio.run(wait(run))
    assert entered == [1]
    run.respond(run.interrupts[0], "it worked")
    asyncio.run(wait(run))
    assert (run.status, run.messages[-1]["content"][0]["text"]) == ("completed", "done")


async def test_a_cancelled_run_of_a_closed_loop_is_cancelled():
    """Cancelling needs no loop when no call runs."""
    run = await asyncio.to_thread(lambda: asyncio.run(_paused()))
    await asyncio.wait_for(run.cancel(), 10)
    assert run.status == "cancelled"


async def _paused() -> nb.Run:
    return await asking().run("go").settled()


@pytest.mark.parametrize("where", ["script", "thread", "running loop"])
def test_run_sync_works_wherever_it_is_called(where):
    """In a script, in a thread, and inside a running loop, which it blocks."""

    def work() -> str:
        return asking().run_sync("go", answers={"ask": "x"}).text

    async def inside() -> str:
        return work()

    match where:
        case "script":
            text = work()
        case "thread":
            with ThreadPoolExecutor(1) as pool:
                text = pool.submit(work).result(20)
        case _:
            text = asyncio.run(inside())
    assert text == "done"


def test_run_sync_raises_the_same_error_as_awaiting():
    """No person is present, so the call must not hang."""
    with pytest.raises(nb.HumanInputRequired):
        asking().run_sync("go")


async def test_waiting_without_await_on_the_runs_own_loop_is_refused():
    """The loop would wait for itself."""
    run = asking().run("go")
    with pytest.raises(UsageError, match="await run"):
        run.wait()
    await run.settled()
    with pytest.raises(nb.HumanInputRequired):  # a paused run needs no loop
        run.wait()


def test_run_sync_inside_a_tool_on_the_private_loop_is_refused():
    """A clear error instead of a deadlock."""
    inner = asking()
    outer = nb.Agent(nb.ScriptedModel([call("nested"), "done"]))

    @outer.tool
    async def nested() -> str:
        return inner.run_sync("go").text

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(outer.run_sync, "go")
        result = future.result(20)
    (told,) = [p["output"] for m in result.messages for p in m["content"] if "output" in p]
    assert "UsageError" in told
    assert "await run" in told


# --- answers while the loop runs


async def test_answers_from_threads_while_the_loop_runs_all_count():
    """Forty questions, answered from many threads in any order: each call gets its own."""
    agent = asking(calls=40)
    run = await agent.run("go").settled()
    found = run.interrupts
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            asyncio.wrap_future(pool.submit(run.respond, i, i.call_id)) for i in reversed(found)
        ]
        await asyncio.gather(*jobs)
    assert (await asyncio.wait_for(_wait(run), 20)).text == "done"
    assert [c.output for c in run.calls["ask"]] == [i.call_id for i in found]


async def test_an_answer_given_by_a_listener_counts():
    """A listener answers the moment a question is asked; other listeners get the question first."""
    agent = asking(calls=3)
    run = agent.run("go")
    heard: list[str] = []

    def answer(event: Any) -> None:
        if event.type == "interrupted":
            run.respond(event.id, "at once")

    run.subscribe(answer)
    run.subscribe(lambda event: heard.append(event.type))
    assert (await asyncio.wait_for(_wait(run), 10)).text == "done"
    told = [h for h in heard if h in ("interrupted", "resolved")]
    assert told[0] == "interrupted"
    assert told.count("interrupted") == told.count("resolved") == 3


async def test_a_waiter_is_not_woken_between_an_answer_and_its_effects():
    """settled() after an answer returns after the effects of that answer."""
    agent = nb.Agent(nb.ScriptedModel([[call("gate"), call("gate")], "done"]))
    ran = []

    @agent.tool
    async def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        await turns()
        ran.append(ctx.call_id)
        return "ok"

    run = await agent.run("go").settled()
    for n in (1, 2):
        run.restart(run.interrupts[0])
        assert run.status == "running"
        await run.settled()
        assert len(ran) == n
    assert run.status == "completed"


# --- cancelling


async def test_awaiting_a_cancelled_run_reports_the_cancellation(short_grace):
    """The error does not claim that the run has not finished."""
    agent = nb.Agent(nb.ScriptedModel([call("slow")]))
    entered = asyncio.Event()

    @agent.tool
    async def slow() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    run = agent.run("go")
    waiting = asyncio.ensure_future(_wait(run))
    await entered.wait()
    await asyncio.gather(run.cancel(by="ada"), run.cancel(by="bob"))
    with pytest.raises(nb.errors.Cancelled, match=r"by (ada|bob)"):
        await waiting
    assert [e.type for e in run.journal].count("run_cancelled") == 1


async def test_no_answer_is_accepted_while_a_run_is_being_cancelled():
    """An approval during a stop does not run the tool."""
    agent = nb.Agent(nb.ScriptedModel([[call("gate"), call("stubborn")]]))
    ran, entered, leave = [], threading.Event(), threading.Event()

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt()
        ran.append(1)
        return "ran"

    @agent.tool
    def stubborn() -> str:
        entered.set()
        leave.wait(30)
        return "late"

    run = agent.run("go")
    await asyncio.to_thread(entered.wait)
    await until(lambda: bool(run.interrupts))
    (i,) = run.interrupts
    stopping = session_of(run).stop(by="code")
    with pytest.raises(nb.Conflict, match="being cancelled"):
        run.restart(i)
    leave.set()
    await asyncio.wrap_future(stopping)
    with pytest.raises(nb.Conflict, match="cancelled"):
        run.restart(i)
    assert ran == []


async def test_a_tool_that_swallows_its_cancellation_does_not_continue_to_the_model(short_grace):
    """The tool's result is kept, and the model gets no further request."""
    model = nb.ScriptedModel([call("deaf"), "never"])
    agent = nb.Agent(model)
    entered = asyncio.Event()

    @agent.tool
    async def deaf() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished all the same"
        return "slept"

    run = agent.run("go")
    await entered.wait()
    await run.cancel()
    assert run.status == "cancelled"
    assert run.calls["deaf"][0].output == "finished all the same"
    await turns()
    assert len(model.requests) == 1


async def test_a_tool_can_cancel_its_own_run():
    """The stop succeeds although the stopped tool awaits it."""
    agent = nb.Agent(nb.ScriptedModel([call("stop")]))

    @agent.tool
    async def stop() -> str:
        await run.cancel(by="its own tool")
        return "unreachable"

    run = agent.run("go")
    with pytest.raises(nb.errors.Cancelled, match="its own tool"):
        await asyncio.wait_for(_wait(run), 10)


async def test_a_timed_out_wait_does_not_stop_the_run():
    """A timeout around ``await run`` ends only the wait."""
    go = asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel([call("slow"), "done"]))

    @agent.tool
    async def slow() -> str:
        await go.wait()
        return "ok"

    run = agent.run("go")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_wait(run), 0.02)
    assert run.status == "running"
    go.set()
    assert (await run).text == "done"


async def test_cancelling_generate_stops_its_tools():
    """The bodies are cancelled."""
    agent = nb.Agent(nb.ScriptedModel([[call("slow"), call("slow")]]))
    started, stopped = [], []

    @agent.tool
    async def slow(ctx: nb.ToolContext) -> str:
        started.append(ctx.call_id)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(ctx.call_id)
        return "never"

    going = asyncio.ensure_future(agent.generate("go"))
    await until(lambda: len(started) == 2)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await turns()
    assert sorted(stopped) == ["call_1", "call_2"]


# --- continuing


async def test_a_result_before_the_end_says_what_to_do():
    """With Run All the next cell runs before the run ends."""
    run = asking().run("go")
    with pytest.raises(nb.errors.RunNotFinished, match="await run"):
        _ = run.result
    await run.settled()
    with pytest.raises(nb.errors.RunNotFinished, match="interrupted"):
        _ = run.result


# --- watching


async def test_events_are_complete_and_in_order_with_unread_text_joined():
    """All readers get all events, whenever they start."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.slow("a long text", pieces=11)]))
    run = agent.run("go")
    live = [event async for event in run.events()]
    late = [event async for event in run.events()]
    assert late == run.journal
    assert [e for e in live if hasattr(e, "at")] == run.journal
    texts = [e.text for e in live if isinstance(e, TextDelta)]
    assert "".join(texts) == "a long text"
    types = [e.type for e in live]
    assert types[0] == "run_started"
    assert types[-2:] == ["model_responded", "run_completed"]


async def test_a_slow_reader_gets_the_text_joined():
    """Unread pieces are joined into one."""
    agent = nb.Agent(nb.ScriptedModel([[TextDelta("x") for _ in range(1000)]]))
    run = agent.run("go")
    reader = run.events()
    first = await anext(reader)
    await run
    rest = [event async for event in reader]
    assert first.type == "run_started"
    deltas = [e for e in rest if isinstance(e, TextDelta)]
    assert [d.text for d in deltas] == ["x" * 1000]


async def test_a_listener_that_fails_is_dropped_and_the_run_continues(caplog):
    """The error is logged once; other listeners get every event."""
    agent = asking()
    run = agent.run("go")
    heard, failed = [], []

    def broken(event: Any) -> None:
        failed.append(event)
        raise RuntimeError("the view broke")

    run.subscribe(broken)
    run.subscribe(heard.append)
    await run.settled()
    run.respond(run.interrupts[0], "x")
    assert (await run).text == "done"
    assert len(failed) == 1
    assert [h for h in heard if hasattr(h, "at")] == run.journal[1:]
    errors = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "the view broke" in caplog.text


# --- tools' threads


async def test_tool_threads_have_the_context_of_the_caller_and_at_most_64_run():
    """Context variables are copied; further tools wait."""
    variable = contextvars.ContextVar("variable", default="outside")
    variable.set("inside")
    running, most, lock = 0, 0, threading.Lock()
    full, leave = threading.Event(), threading.Event()

    def work() -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == MAX_THREADS:
                full.set()
        leave.wait(30)
        with lock:
            running -= 1
        return variable.get()

    jobs = [asyncio.ensure_future(run_in_thread(work)) for _ in range(MAX_THREADS + 10)]
    assert await asyncio.to_thread(full.wait, 30)
    await turns()
    leave.set()
    assert set(await asyncio.gather(*jobs)) == {"inside"}
    assert most == MAX_THREADS


async def test_cancelling_leaves_the_thread_and_frees_its_place():
    """The thread's later result is ignored."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def work() -> str:
        entered.set()
        leave.wait(30)
        left.set()
        return "late"

    job = asyncio.ensure_future(run_in_thread(work))
    assert await asyncio.to_thread(entered.wait, 30)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert await run_in_thread(lambda: "next") == "next"
    leave.set()
    assert await asyncio.to_thread(left.wait, 30)


@pytest.mark.parametrize("error", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_an_exception_that_a_future_cannot_carry_is_wrapped(error):
    """The loop survives the exception."""

    def work() -> None:
        raise error("x")

    with pytest.raises(threads.ThreadStopped, match=error.__name__):
        await run_in_thread(work)


def test_only_one_private_loop_exists():
    """Many threads ask for the loop at once."""
    with ThreadPoolExecutor(8) as pool:
        found = {id(loop) for loop in pool.map(lambda _: private_loop(), range(32))}
    assert len(found) == 1


async def test_sync_tools_of_one_turn_run_side_by_side():
    """Two tools that wait for each other finish."""
    agent = nb.Agent(nb.ScriptedModel([[call("meet"), call("meet")], "done"]))
    barrier = threading.Barrier(2)

    @agent.tool
    def meet() -> str:
        barrier.wait(20)
        return "met"

    run = agent.run("go")
    await run
    assert [c.output for c in run.calls["meet"]] == ["met", "met"]


async def test_messages_copied_while_a_body_runs_do_not_run_it_again():
    """A resumed history cannot show whether the body took effect; a failed body has ended."""
    acted, go = [], asyncio.Event()
    agent = nb.Agent(nb.ScriptedModel([call("act"), "done"]))

    @agent.tool
    async def act() -> str:
        acted.append("act")
        await go.wait()
        return "acted"

    run = agent.run("go")
    async for event in run.events():
        if event.type == "tool_started":
            break
    taken = json.loads(json.dumps(run.messages))
    with pytest.raises(MessagesError, match="'act' was running when these messages"):
        await agent.generate(messages=taken)
    go.set()
    assert (await run).text == "done"
    assert acted == ["act"]


@pytest.mark.parametrize("where", ["show", "wait_sync"])
def test_a_keyboard_interrupt_ends_a_blocking_run_at_any_moment(monkeypatch, where):
    """Even an interrupt before the wait cancels the run, so no question stays open."""
    started: list[nb.Run] = []

    def interrupted(_host: Any, run: nb.Run, *_: Any, **__: Any) -> None:
        started.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptHost, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        asking().run_sync("go", attended=True)
    session_of(started[0]).stop(by="the test").result(20)
    assert (started[0].status, started[0].journal[-1].by) == ("cancelled", "keyboard")


def test_a_keyboard_interrupt_on_the_loop_of_the_run_waits_for_nothing_there(monkeypatch):
    """The run's calls are on that blocked loop, so the run is stored as cancelled at once."""
    started: list[nb.Run] = []

    async def interrupted(_host: Any, run: nb.Run, *_: Any) -> None:
        started.append(run)
        raise KeyboardInterrupt

    async def main() -> None:
        await asking().run("go", attended=True)

    monkeypatch.setattr(ScriptHost, "wait", interrupted)
    monkeypatch.setattr(session_module, "GRACE", 1000.0)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert (started[0].status, started[0].journal[-1].by) == ("cancelled", "keyboard")


async def test_a_cancelled_run_names_the_calls_that_still_run():
    """A body that ends before the run's end is named too: its result was dropped, its effect was not."""
    go_on, began = threading.Event(), threading.Event()
    agent = nb.Agent(nb.ScriptedModel([call("pay"), "done"]))

    @agent.tool
    def pay() -> str:
        began.set()
        go_on.wait(30)
        return "paid"

    run = agent.run("go")
    await until(began.is_set)
    stopping = asyncio.create_task(run.cancel())
    await turns()
    go_on.set()
    await stopping
    assert run.journal[-1].still_running == ("call_1",)
    with pytest.raises(
        nb.errors.Cancelled, match="pay was still running and may or may not have taken effect"
    ):
        await run


@pytest.mark.parametrize("owner", ["another", "this"])
async def test_ctrl_c_stops_local_runs_and_only_the_waiting_for_remote_ones(owner):
    """Watching a run that another process drives does not end it."""
    model = nb.ScriptedModel([lambda _messages: asyncio.Event().wait()])
    session = session_of(nb.Agent(model).run("go", attended=True))
    if owner == "another":
        session.is_active, session.journal.driver = False, "elsewhere:1:1:far"
    with pytest.raises(KeyboardInterrupt), session.stopped_by_keyboard():
        raise KeyboardInterrupt
    assert session.status == ("running" if owner == "another" else "cancelled")
    session.is_active, session.journal.driver = True, this_process()
    await asyncio.wrap_future(session.stop(by="code"))


async def test_a_journal_prints_a_line_for_each_event_and_is_a_table_in_a_notebook():
    """The text is readable, has no markup, and is the same for equal runs."""

    async def a_journal() -> Any:
        agent = nb.Agent(nb.ScriptedModel([call("send", to="<b>ada"), call("boom"), "done"]))
        agent.tool(approval=True)(send)
        agent.tool(boom)
        run = agent.run("Tell\nher", answers={"send": nb.Restart()}, show=False)
        await run
        return run.journal

    def send(to: str) -> str:
        return f"sent to {to}"

    def boom() -> None:
        raise ValueError("no")

    journal = await a_journal()
    assert [type(event) for event in journal] == [type(event) for event in list(journal)]
    assert repr(journal).splitlines() == [
        "   0  run_started     agent 'Tell her'",
        """   1  model_responded send '{"to":"<b>ada"}'""",
        "   2  interrupted     send waits: approval",
        "   3  resolved        send restart, by answers=",
        "   4  tool_started    send",
        "   5  tool_finished   send 'sent to <b>ada'",
        "   6  model_responded boom '{}'",
        "   7  tool_started    boom",
        "   8  tool_finished   boom failed 'The tool boom failed: ValueError: no'",
        "   9  model_responded 'done'",
        "  10  run_completed   'done'",
    ]
    assert repr(journal) == repr(await a_journal())
    html = journal._repr_html_()
    assert html.count("<tr>") == 12
    assert "sent to &lt;b&gt;ada" in html
    assert "<b>" not in html


async def test_c491_an_answer_from_another_context_continues_in_the_context_of_the_start() -> None:
    """A tool sees the context of the code that started the run, not of the code that answers."""
    variable = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []
    agent = asking([call("where")])

    @agent.tool
    async def where() -> str:
        seen.append(variable.get())
        return "here"

    def in_context(value: str, work: Callable[[], Any]) -> Any:
        def do() -> Any:
            variable.set(value)
            return work()

        return contextvars.copy_context().run(do)

    run = in_context("start", lambda: agent.run("go"))
    await until(lambda: run.status == "interrupted")
    in_context("answer", lambda: run.respond(run.interrupts[0], "yes"))
    assert (await run).text == "done"
    assert seen == ["start"]


async def test_the_next_run_learns_how_far_each_call_of_a_cancelled_run_was():
    """Finished, running, started and waiting, or not started: a model must not repeat what took effect."""
    gate = asyncio.Event()
    names = ["quick", "slow", "halfway", "guarded"]
    agent = nb.Agent(nb.ScriptedModel([[call(name) for name in names], "done"]))

    @agent.tool
    def quick() -> str:
        return "finished"

    @agent.tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @agent.tool
    def halfway(ctx: nb.ToolContext) -> str:
        ctx.interrupt()

    @agent.tool(approval=True)
    def guarded() -> str:
        return "guarded"

    run = agent.run("go", attended=True, show=False)
    await until(lambda: len(run.interrupts) == 2 and run.calls["quick"][0].done)
    await run.cancel()
    await agent.run("and now?", after=run)
    told = [part["output"] for part in agent.model.requests[-1].messages[2]["content"]]
    expected = ["finished", "while this call was running", "It had started", "before this call"]
    assert [text in output for text, output in zip(expected, told, strict=True)] == [True] * 4, told
