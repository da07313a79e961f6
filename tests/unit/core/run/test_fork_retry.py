"""Forks and retries: independent runs that repeat no finished work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import ToolFailed, UsageError
from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.model import Usage
from tests.unit.core.family import wait_for_question
from tests.unit.core.usual import outputs
from tests.until import until

call = nb.ScriptedModel.call


class Shop:
    """Tools that log their effects: with a gate, with questions, and one that can fail first."""

    def __init__(self, **fails: int) -> None:
        self.log: list[Any] = []
        self.fails = fails
        self.go = asyncio.Event()
        self.go.set()

    def __call__(self, agent: nb.Agent) -> None:
        """Define the tools."""

        @agent.tool
        async def plain(n: int = 0) -> str:
            await self.go.wait()
            if self.fails.get("plain", 0) > 0:
                self.fails["plain"] -= 1
                raise OSError("line is down")
            self.log.append(("plain", n))
            return f"plain {n}"

        @agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n})
            self.log.append(("gate", n))
            return f"gate {n}"

        @agent.tool
        async def asks(ctx: nb.ToolContext) -> str:
            first = await ctx.ask("first?")
            second = await ctx.ask("second?")
            return f"{first} {second}"


def talk(messages: Any) -> Any:
    """A model whose response depends only on the number of tool messages, so that forks can share it."""
    turns = sum(m["role"] == "tool" for m in messages)
    return [[call("plain", n=1), call("gate", n=2), call("gate", n=3)], call("plain", n=4), "done"][
        turns
    ]


async def test_c99_a_fork_at_an_interrupt_is_an_independent_run():
    """The fork has new ids and its own journal; finished calls are reused."""
    shop = Shop()
    agent = nb.Agent(nb.ScriptedModel(talk))
    shop(agent)
    run = await agent.run("go").settled()
    gate2, gate3 = run.interrupts
    fork = await run.fork(at=gate2).settled()
    assert fork.id != run.id
    assert [i.input for i in fork.interrupts] == [{"n": 2}, {"n": 3}]
    assert not {i.id for i in fork.interrupts} & {gate2.id, gate3.id}
    with pytest.raises(nb.errors.NotPending):
        fork.restart(gate2)
    before = run.journal
    fork.restart(fork.interrupts[0])
    fork.reject(fork.interrupts[0])
    assert (await fork).text == "done"
    assert run.journal == before
    run.reject(gate2)
    run.restart(gate3)
    assert (await run).text == "done"
    assert shop.log.count(("plain", 1)) == 1
    assert [e for e in shop.log if e[0] == "gate"] == [("gate", 2), ("gate", 3)]
    assert run.calls["plain"][0].value == fork.calls["plain"][0].value == "plain 1"


async def test_c99_a_fork_at_an_earlier_interrupt_keeps_later_results_of_siblings():
    """The fork keeps siblings' results and answers, but no effect of the forked answer."""
    shop = Shop()
    agent = nb.Agent(nb.ScriptedModel(talk))
    shop(agent)
    run = await agent.run("go").settled()
    gate2, gate3 = run.interrupts
    run.restart(gate3)
    await run.settled()
    run.restart(gate2)
    assert (await run).text == "done"
    fork = await run.fork(at=gate2.id).settled()
    assert [i.input for i in fork.interrupts] == [{"n": 2}]
    assert fork.calls["gate"][1].output == "gate 3"
    fork.respond(fork.interrupts[0], "by hand")
    assert (await fork).text == "done"
    assert shop.log.count(("gate", 3)) == shop.log.count(("gate", 2)) == 1
    assert [c.output for c in fork.calls["gate"]] == ["by hand", "gate 3"]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_fork_at_a_question_takes_over_results_of_a_later_retry(inside):
    """A sibling that failed the run and succeeded in a retry does not run again."""
    shop = Shop(plain=1)
    turns = [[call("gate", n=1), call("plain", n=2)], "done"]
    agent = worker = nb.Agent(
        nb.ScriptedModel(lambda messages: turns[sum(m["role"] == "tool" for m in messages)]),
        name="worker",
        on_tool_error="raise",
    )
    shop(worker)
    if inside:
        around = [call("worker", prompt="go"), "done"]
        agent = nb.Agent(
            nb.ScriptedModel(lambda messages: around[len(messages) > 1]),
            tools=[worker.as_tool()],
            on_tool_error="raise",
        )
    run = agent.run("go")
    with pytest.raises(ToolFailed):
        await run
    await run.retry().settled()
    (gate,) = run.interrupts
    assert shop.log == [("plain", 2)]
    run.respond(gate, "by hand")
    await run
    fork = await run.fork(at=gate).settled()
    fork.respond(fork.interrupts[0], "otherwise")
    assert (await fork).text == "done"
    assert shop.log == [("plain", 2)]


async def test_a_fork_of_a_question_in_the_middle_keeps_earlier_answers():
    """The fork starts the body again."""
    agent = nb.Agent(
        nb.ScriptedModel(lambda m: "done" if m[-1]["role"] == "tool" else call("asks"))
    )
    Shop()(agent)
    run = await agent.run("go").settled()
    run.respond(run.interrupts[0], "a")
    await run.settled()
    second = run.interrupts[0]
    run.respond(second, "b")
    await run
    fork = await run.fork(at=second).settled()
    assert fork.interrupts[0].metadata == {"message": "second?"}
    fork.respond(fork.interrupts[0], "B")
    await fork
    assert [r.calls["asks"][0].output for r in (run, fork)] == ["a b", "a B"]


async def test_a_fork_inside_an_agent_keeps_results_of_siblings_inside_and_outside():
    """Two agents deep."""
    log: list[Any] = []

    def inner_talk(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "inner done"
        return [call("act", n=1), call("act", n=2)]

    inner = nb.Agent(nb.ScriptedModel(inner_talk), name="inner")

    @inner.tool(approval=True)
    def act(n: int) -> str:
        log.append(n)
        return f"act {n}"

    def outer_talk(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return "done"
        return [call("inner", prompt="p"), call("gate", n=9)]

    agent = nb.Agent(nb.ScriptedModel(outer_talk), tools=[inner.as_tool()])
    shop = Shop()
    shop(agent)
    run = await agent.run("go").settled()
    first, second, gate = run.interrupts
    for i in (second, first, gate):
        run.restart(i)
        await run.settled()
    assert (await run).text == "done"
    fork = await run.fork(at=first).settled()
    assert [i.path for i in fork.interrupts] == [("agent", "inner", "act")]
    fork.reject(fork.interrupts[0])
    assert (await fork).text == "done"
    assert (sorted(log), shop.log) == ([1, 2], [("gate", 9)])


async def test_a_fork_is_refused_while_calls_run():
    """A fork could neither copy the calls' results nor run the calls again."""
    shop = Shop()
    shop.go.clear()
    agent = nb.Agent(nb.ScriptedModel(talk))
    shop(agent)
    run = agent.run("go")
    await wait_for_question(run)
    with pytest.raises(UsageError, match="'plain'"):
        run.fork(at=run.interrupts[0])
    shop.go.set()
    await run.settled()
    assert run.fork().interrupts
    with pytest.raises(nb.errors.NotPending, match="nonsense"):
        run.fork(at="nonsense")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", ["approved", "gate", "asks"])
@pytest.mark.parametrize("at", [False, True])
async def test_p3_an_answer_is_acted_on_by_the_original_and_the_fork_asks_again(kind, inside, at):
    """A fork between an answer and its body: one approval runs one body, wherever the fork is made."""
    did: list[str] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def approved() -> str:
            did.append("approved")
            return "ok"

        @agent.tool
        def gate(ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"sure": True})
            did.append("gate")
            return "ok"

        @agent.tool
        async def asks(ctx: nb.ToolContext) -> str:
            await ctx.ask("Sure?")
            did.append("asks")
            return "ok"

        agent.add(nb.interrupt_tool("other", output=str))

    def script(messages: Any) -> Any:
        return "done" if messages[-1]["role"] == "tool" else [call(kind), call("other")]

    agent = nb.Agent(nb.ScriptedModel(script), name="inner")
    define(agent)
    if inside:
        model = nb.ScriptedModel(
            lambda m: "done" if m[-1]["role"] == "tool" else call("inner", prompt="go")
        )
        agent = nb.Agent(model, tools=[agent.as_tool()])
    run = await agent.run("go", attended=True, show=False).settled()
    mine, other = run.interrupts
    run.resolve(mine, nb.Respond("x") if kind == "asks" else nb.Restart())
    fork = run.fork(at=other if at else None)
    await fork.settled()
    assert [i.tool_name for i in fork.interrupts] == [kind, "other"]
    assert not {i.id for i in fork.interrupts} & {mine.id, other.id}
    await run.settled()
    assert did == [kind]
    for one in (run, fork):
        for i in one.interrupts:
            one.resolve(i, nb.Restart() if i.tool_name in ("approved", "gate") else nb.Respond("x"))
        assert (await one).text == "done"
    assert did == [kind, kind]


async def test_the_token_of_an_external_question_does_not_answer_its_fork():
    """The fork waits for its own answer."""
    tokens: list[str] = []
    agent = nb.Agent(nb.ScriptedModel(lambda m: "done" if m[-1]["role"] == "tool" else call("pay")))

    @agent.tool
    def pay(ctx: nb.ToolContext) -> str:
        tokens.append(ctx.external_token)
        ctx.interrupt(external=True)

    run = await agent.run("go").settled()
    fork = await run.fork(at=run.interrupts[0]).settled()
    nb.answer_external(tokens[0], "paid")
    assert (await run).text == "done"
    assert fork.status == "interrupted"


async def test_forks_of_ended_runs_continue_from_their_end():
    """A failed run is tried again, a completed run is complete."""
    shop = Shop(plain=1)
    agent = nb.Agent(nb.ScriptedModel([call("plain"), "done"]), on_tool_error="raise")
    shop(agent)
    run = agent.run("go")
    with pytest.raises(ToolFailed):
        await run
    fork = run.fork()
    assert (await fork).text == "done"
    assert run.status == "failed"
    assert (await fork.fork()).text == "done"


# --- retry


async def test_c102_a_retry_continues_from_the_last_good_state():
    """Finished calls and answers are kept; only the failed call runs again."""
    shop = Shop(plain=1)
    agent = nb.Agent(
        nb.ScriptedModel([[call("gate", n=1), call("plain", n=5), call("gate", n=2)], "done"]),
        on_tool_error="raise",
    )
    shop(agent)
    shop.go.clear()
    run = agent.run("go")
    while len(run.interrupts) < 2:  # noqa: ASYNC110 - events() would do, at more length
        await asyncio.sleep(0)
    run.restart(run.interrupts[0])
    for _ in range(50):
        await asyncio.sleep(0)
    shop.go.set()
    with pytest.raises(ToolFailed, match="line is down"):
        await run
    assert run.status == "failed"
    await run.retry().settled()
    assert [i.input for i in run.interrupts] == [{"n": 2}]
    run.respond(run.interrupts[0], "by hand")
    assert (await run).text == "done"
    assert shop.log == [("gate", 1), ("plain", 5)]


async def test_a_retried_run_whose_inner_agent_asks_about_its_budget_waits_for_that_answer():
    """The run waits for that answer, and then runs the failed inner call again."""
    spent = Usage(5, 5)

    def deep_says(messages: Any) -> Any:
        return "deep done" if messages[-1]["role"] == "tool" else call("work")

    def inner_says(messages: Any) -> Any:
        first = [call("broken"), call("deep", prompt="p")]
        return "inner done" if messages[-1]["role"] == "tool" else first

    deep = nb.Agent(nb.ScriptedModel(deep_says, usage=spent), name="deep")
    options: dict[str, Any] = {"on_tool_error": "raise", "budget": nb.Budget(tokens=15)}
    inner = nb.Agent(nb.ScriptedModel(inner_says, usage=spent), name="inner", **options)
    inner.add(deep.as_tool())
    tries: list[int] = []

    @deep.tool
    async def work() -> str:
        return "worked"

    @inner.tool
    async def broken() -> str:
        tries.append(1)
        while len(tries) == 1 and not run.interrupts:  # noqa: ASYNC110 - until it is asked about
            await asyncio.sleep(0)
        if len(tries) == 1:
            raise OSError("line is down")
        return "mended"

    model = nb.ScriptedModel([call("inner", prompt="p"), "done"])
    run = nb.Agent(model, tools=[inner.as_tool()], on_tool_error="raise").run("go")
    with pytest.raises(nb.errors.RunError, match="line is down"):
        await asyncio.wait_for(run, 10)
    await asyncio.wait_for(run.retry().settled(), 10)
    assert [i.kind for i in run.interrupts] == ["budget"]
    run.respond(run.interrupts[0], 1000)
    assert (await asyncio.wait_for(run, 10)).text == "done"
    assert len(tries) == 2


async def test_only_a_failed_run_can_be_retried():
    """Other runs raise a clear error."""
    agent = nb.Agent(nb.ScriptedModel([call("gate", n=1), "done"]))
    Shop()(agent)
    run = await agent.run("go").settled()
    with pytest.raises(UsageError, match="interrupted"):
        run.retry()
    run.reject(run.interrupts[0])
    await run
    with pytest.raises(UsageError, match="completed"):
        run.retry()


async def test_a_retry_repeats_no_call_of_another_process():
    """The other process's call may still run; calls of the process that failed have ended."""
    shop = Shop(plain=1)
    agent = nb.Agent(nb.ScriptedModel([call("plain")]), on_tool_error="raise")
    shop(agent)
    run = agent.run("go", store=nb.MemoryStore())
    with pytest.raises(ToolFailed):
        await run
    (started,) = [e for e in run.journal if e.type == "tool_started"]
    events = [
        e.model_copy(update={"owner": "elsewhere:1:1"}) if e is started else e for e in run.journal
    ]
    store = nb.MemoryStore()
    store.append("r", events, 0)
    other = await nb.open_run("r", agent=agent, store=store)
    with pytest.raises(UsageError, match=r"'plain' \(by process 1 on elsewhere\)"):
        other.retry()
    assert (other.status, shop.log) == ("failed", [])


class Patient(nb.MemoryStore):
    """A store that may block, and that reports no writes."""

    without_waiting = None
    watch = None


@pytest.mark.parametrize("kind", ["memory", "file", "patient"])
async def test_the_loser_of_two_retries_follows_the_winner(kind, tmp_path):
    """The loser gets an error or a log line that the run continues, and receives the run's end."""
    shop = Shop(plain=1)
    agent = nb.Agent(nb.ScriptedModel([call("plain"), "done"]), on_tool_error="raise")
    shop(agent)
    make = {"memory": nb.MemoryStore, "patient": Patient}.get(kind)
    store = nb.SQLiteStore(tmp_path / "runs.db") if make is None else make()
    run = agent.run("go", store=store)
    with pytest.raises(ToolFailed):
        await run
    other = await nb.open_run(run.id, agent=agent, store=store)
    assert other.status == "failed"
    shop.go.clear()
    run.retry()
    await until(lambda: store.read(run.id)[-1].type == "tool_started")
    refused = pytest.raises(UsageError, match="this one is running")
    with suppress(UsageError) if kind == "patient" else refused:
        other.retry()
    shop.go.set()
    assert (await asyncio.wait_for(other, 20)).text == "done"
    assert shop.log == [("plain", 0)]


# --- at any event of a finished turn


async def test_c168_a_fork_at_any_event_continues_after_the_turn_of_that_event():
    """Results of that turn are reused, and the model is asked again."""
    shop = Shop()
    agent = nb.Agent(nb.ScriptedModel(talk), store=nb.MemoryStore())
    shop(agent)
    run = await agent.run("go").settled()
    for gate in run.interrupts:
        run.restart(gate)
    assert (await run).text == "done"
    begins = [n for n, e in enumerate(run.journal) if e.type == "model_responded"]
    opened = await nb.open_run(run.id, agent=agent)
    for number, event in enumerate(opened.journal):
        shop.log.clear()
        fork = await run.fork(at=event).settled()
        turn = sum(begin <= number for begin in begins)
        asks = event.type == "interrupted"
        open_ = [event.input] if asks else [{"n": 2}, {"n": 3}] if turn == 0 else []
        assert [i.input for i in fork.interrupts] == open_
        did = [[("plain", 1)], [("plain", 4)], [], []][turn]
        assert shop.log == ([] if asks else did)
        if fork.interrupts:
            await fork.cancel()
        else:
            assert outputs((await fork).messages) == outputs(run.messages)


async def test_c168_a_fork_at_an_event_inside_an_agent_continues_after_its_inner_turn():
    """Calls beside the inner agent are reused or asked again, as in a fork at a question."""
    did: list[int] = []

    def inside(messages: Any) -> Any:
        told = [p["output"] for m in messages if m["role"] == "tool" for p in m["content"]]
        return [call("act", n=1), call("act", n=2), "in"][len(told)]

    inner = nb.Agent(nb.ScriptedModel(inside), name="inner")

    @inner.tool
    def act(n: int) -> str:
        did.append(n)
        return f"act {n}"

    around = [[call("inner", prompt="p"), call("ask")], "done"]
    outer = nb.ScriptedModel(lambda m: around[len(m) > 1])
    agent = nb.Agent(outer, tools=[inner.as_tool(), nb.interrupt_tool("ask", output=str)])
    run = await agent.run("go").settled()
    run.respond(run.interrupts[0], "b")
    await run
    for event in [e for e in run.journal if e.scope]:
        turn = sum(e.type == "model_responded" for e in run.journal[: run.journal.index(event) + 1])
        did.clear()
        fork = await run.fork(at=event).settled()
        assert did == [[1, 2], [2], [], []][turn - 1]
        assert outputs((await fork).messages) == outputs(run.messages)


async def test_c168_a_fork_at_an_event_of_another_run_is_refused():
    """The error says where to find an event."""
    shop = Shop()
    agent = nb.Agent(nb.ScriptedModel(lambda m: "done"))
    shop(agent)
    first, second = agent.run("go"), agent.run("go")
    await first, await second
    with pytest.raises(UsageError, match=r"no such event .*run\.journal"):
        first.fork(at=second.journal[1])


class AnsweredMeanwhile(nb.MemoryStore):
    """Another handle answers the open question right before the run's failure is stored."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        if events[-1].type == "run_failed" and not self.is_answered:
            self.is_answered = True
            asked = next(e for e in self.read(run_id) if isinstance(e, Interrupted))
            yes = nb.Respond("yes")
            answered = Resolved(
                at=1.0, id=asked.id, call_id=asked.call_id, resolution=yes, by="somebody"
            )
            super().append(run_id, [answered], expected)
        super().append(run_id, events, expected)

    is_answered = False


async def test_the_error_of_a_run_has_the_history_with_which_the_run_failed():
    """An answer that is stored before the failure is not lost where a person resumes from the error."""

    async def broken() -> str:
        await until(lambda: run.interrupts)
        raise OSError("no disk")

    ask = nb.interrupt_tool("ask", output=str)
    model = nb.ScriptedModel([[call("ask"), call("broken")], "done"])
    agent = nb.Agent(model, tools=[ask, broken], on_tool_error="raise", store=AnsweredMeanwhile())
    run = agent.run("go")
    with pytest.raises(nb.errors.RunError) as caught:
        await run
    assert "somebody" in str(caught.value.messages)
