"""Runs that a tool's body starts: the outermost run has their questions, in any process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from typing import Any

import pydantic
import pytest

import nbagent as nb
from nbagent.core.base.events import Resolved, RunFailed
from nbagent.core.base.model import Usage
from nbagent.core.engine.driver import begin
from nbagent.core.engine.runs import StartedRuns
from nbagent.core.journal.journal import InnerJournal
from nbagent.core.run.run import session_of
from tests.until import turns, until

call = nb.ScriptedModel.call


class Bank:
    """planner, whose tool pay awaits a run of banker, whose tool transfer asks."""

    def __init__(self, how: str, *inner: Any, depth: int = 1) -> None:
        self.how = how
        self.depth = depth
        self.log: list[Any] = []
        self.entered: list[str] = []
        self.model = nb.ScriptedModel(
            inner or [[call("look", n=1)], call("transfer", amount=5), "all sent"],
            usage=Usage(10, 1),
        )
        self.middles = [
            nb.ScriptedModel([call("pay", to="bob"), "passed on"]) for _ in range(1, depth)
        ]

    def __call__(self, agent: nb.Agent) -> None:
        """Add the tool to the agent."""
        inner = self._banker()
        for model in self.middles:
            middle = nb.Agent(model, name="middle")
            self._give(middle, inner)
            inner = middle
        self._give(agent, inner)

    def _banker(self) -> nb.Agent:
        banker = nb.Agent(self.model, name="banker")
        banker.add(nb.interrupt_tool("ask", output=str))

        @banker.tool
        def look(n: int) -> str:
            self.log.append(("look", n))
            return f"looked {n}"

        @banker.tool
        async def transfer(amount: float, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"amount": amount}, state={"asked": amount})
            self.log.append(("transfer", amount, ctx.state))
            return f"sent {amount}"

        return banker

    def _give(self, agent: nb.Agent, inner: nb.Agent) -> None:
        async def pay_run(to: str) -> str:
            self.entered.append(to)
            return (await inner.run(f"pay {to}")).text

        def pay_sync(to: str) -> str:
            self.entered.append(to)
            return inner.run_sync(f"pay {to}").text

        async def pay_generate(to: str) -> str:
            self.entered.append(to)
            return (await inner.generate(f"pay {to}")).text

        bodies: dict[str, Any] = {"run": pay_run, "run_sync": pay_sync, "generate": pay_generate}
        agent.add(nb.tool(bodies[self.how], name="pay"))


HOWS = ["run", "run_sync", "generate"]
SCRIPT = [call("pay", to="bob"), "done"]


@pytest.mark.parametrize(
    ("how", "answer", "told", "sent"),
    [
        ("run", {"respond": {0: "by hand"}}, "by hand", []),
        ("run", {"restart": {0: {}}}, "sent 5.0", [5.0]),
        ("run", {"reject": {0: "too much"}}, "too much", []),
        ("run_sync", {"restart": {0: {}}}, "sent 5.0", [5.0]),
        ("generate", {"restart": {0: {}}}, "sent 5.0", [5.0]),
    ],
)
async def test_c140_a_tool_awaits_a_run_that_it_started(play, how, answer, told, sent):
    """One question with the whole path; the answer reaches the inner model, and nothing is done twice."""
    bank = Bank(how)
    s = await play(SCRIPT, bank, name="planner")
    (i,) = s.interrupts
    assert i.path == ("planner", "pay", "banker", "transfer")
    assert (i.metadata, i.state, i.input) == ({"amount": 5.0}, {"asked": 5.0}, {"amount": 5})
    await s.answer(**answer)
    assert told in bank.model.requests[-1].messages[-1]["content"][0]["output"]
    assert [entry[1] for entry in bank.log] == [1, *sent]
    assert (s.results, s.text) == (["all sent"], "done")
    assert len(bank.model.requests) == 3


@pytest.mark.parametrize("how", HOWS)
async def test_c140_a_question_two_runs_deep_has_the_whole_path(play, how):
    """The one question has every agent and tool in its path."""
    bank = Bank(how, depth=2)
    s = await play(SCRIPT, bank, name="planner")
    (i,) = s.interrupts
    assert i.path == ("planner", "pay", "middle", "pay", "banker", "transfer")
    await s.answer(restart={0: {}})
    assert [entry[1] for entry in bank.log] == [1, 5.0]
    assert s.results == ["passed on"]


def asking(*script: Any, name: str = "inner", log: list[Any] | None = None) -> nb.Agent:
    """An agent whose tool act needs approval."""
    agent = nb.Agent(nb.ScriptedModel(script), name=name)
    done = [] if log is None else log

    @agent.tool(approval=True)
    def act(n: int) -> str:
        done.append(n)
        return f"did {n}"

    return agent


async def test_c150_a_run_started_before_by_a_body_is_not_repeated(play):
    """A body that runs again gets the first run's result at once and continues with the second."""
    log: list[Any] = []
    models = [nb.ScriptedModel([call("act", n=n), f"agent {n}"]) for n in (1, 2)]

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def both() -> str:
            said = []
            for n, model in enumerate(models, 1):
                inner = nb.Agent(model, name="inner")

                @inner.tool(approval=True)
                def act(n: int) -> str:
                    log.append(n)
                    return f"did {n}"

                said.append((await inner.run(f"task {n}")).text)
            return " ".join(said)

    s = await play([call("both"), "done"], define)
    assert [i.input for i in s.interrupts] == [{"n": 1}]
    await s.answer(restart={0: {}})
    assert (log, [i.input for i in s.interrupts]) == ([1], [{"n": 2}])
    await s.answer(restart={0: {}})
    assert (log, s.results) == ([1, 2], ["agent 1 agent 2"])
    assert [len(model.requests) for model in models] == [2, 2]


async def test_c150_concurrent_inner_runs_are_answered_one_by_one(play):
    """Two runs at once in one body; each answer counts alone, in any order."""
    log: list[Any] = []
    models = [nb.ScriptedModel([call("act", "same", n=n), f"agent {n}"]) for n in (1, 2)]

    def define(agent: nb.Agent) -> None:
        inner = [nb.Agent(model, name=f"a{n}") for n, model in enumerate(models, 1)]
        for one in inner:

            @one.tool(approval=True)
            def act(n: int) -> str:
                log.append(n)
                return f"did {n}"

        @agent.tool
        async def both() -> list[str]:
            return [r.text for r in await asyncio.gather(*(one.run("go") for one in inner))]

    s = await play([call("both"), "done"], define)
    assert [i.path[2] for i in s.interrupts] == ["a1", "a2"]
    await s.answer(restart={1: {}})
    assert (log, [i.path[2] for i in s.interrupts]) == ([2], ["a1"])
    await s.answer(reject={0: None})
    assert (log, s.results) == ([2], [["agent 1", "agent 2"]])
    assert [len(model.requests) for model in models] == [2, 2]


async def test_c150_a_body_that_starts_a_different_run_is_reported(play_steps):
    """The run fails with an error that names both prompts; the inner run is not repeated."""
    prompts = iter(["one", "two"])
    model = nb.ScriptedModel([call("ask"), "in"])

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner", tools=[nb.interrupt_tool("ask", output=str)])

        @agent.tool
        async def changing() -> str:
            return (await inner.run(next(prompts))).text

    s = await play_steps([call("changing"), "done"], define)
    with pytest.raises(nb.errors.RunError, match=r"'changing' ran again.*\"two\".*\"one\""):
        await s.answer(respond={0: "x"})
    assert len(model.requests) == 1


async def test_c150_one_body_can_combine_asks_runs_and_steps(play):
    """A question, a run and a step in one body: each is done once."""
    did: list[str] = []
    model = nb.ScriptedModel([call("ask"), "in"])

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner", tools=[nb.interrupt_tool("ask", output=str)])

        @agent.tool
        async def mixed(ctx: nb.ToolContext) -> str:
            name = await ctx.ask("who?")
            await ctx.step("note", lambda: did.append(name))
            said = await inner.run(f"greet {name}")
            return f"{said} {await ctx.ask('sure?')}"

    s = await play([call("mixed"), "done"], define)
    await s.answer(respond={0: "ann"})
    assert s.interrupts[0].path == ("agent", "mixed", "inner", "ask")
    await s.answer(respond={0: "x"})
    assert s.interrupts[0].metadata == {"message": "sure?"}
    await s.answer(respond={0: "yes"})
    assert (s.results, did, len(model.requests)) == (["in yes"], ["ann"], 2)


async def test_c140_an_inner_body_asks_at_its_line(play):
    """``ctx.ask`` in the inner run's tool: live both bodies wait, through JSON both run again."""
    model = nb.ScriptedModel([call("wizard"), "in"])

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner")

        @inner.tool
        async def wizard(ctx: nb.ToolContext) -> str:
            return f"{await ctx.ask('first?')} {await ctx.ask('second?')}"

        @agent.tool
        async def outer() -> str:
            return (await inner.run("p")).text

    s = await play([call("outer"), "done"], define)
    assert s.interrupts[0].path == ("agent", "outer", "inner", "wizard")
    await s.answer(respond={0: "a"})
    await s.answer(respond={0: "b"})
    assert model.requests[-1].messages[-1]["content"][0]["output"] == "a b"
    assert s.results == ["in"]


async def test_c140_an_answer_that_does_not_fit_is_refused_without_the_tools(play):
    """The stored schema validates the answer; the question stays open."""
    bank = Bank("run", call("ask"), "fine")
    s = await play(SCRIPT, bank)
    with pytest.raises(nb.errors.InvalidAnswer):
        await s.decide(nb.Respond(7, interrupt=s.interrupts[0]))
    assert len(bank.model.requests) == 1
    await s.answer(respond={0: "b"})
    assert s.results == ["fine"]


def giving(body: Any, *script: Any, **options: Any) -> nb.Agent:
    """An agent whose model calls this body."""
    steps = script or (call(body.__name__), "done")
    return nb.Agent(nb.ScriptedModel(steps, usage=Usage(0, 1)), tools=[body], **options)


async def test_c140_cancelling_the_outer_run_cancels_runs_started_by_bodies():
    """The inner model's request is cancelled, and so is the body."""
    begun, seen = asyncio.Event(), []

    class Slow(nb.ScriptedModel):
        async def stream(self, request: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            yield

    inner = nb.Agent(Slow([]), name="inner")

    async def body() -> str:
        return (await inner.run("p")).text

    run = giving(body).run("go")
    await begun.wait()
    await run.cancel()
    assert (run.status, seen) == ("cancelled", ["cancelled"])


async def test_c140_budgets_count_usage_of_runs_started_by_bodies():
    """Inner tokens count for the outer run, which fails or asks when they are used up."""
    inner = nb.Agent(nb.ScriptedModel(["in"], usage=Usage(50, 1)), name="inner")
    asked: list[str] = []

    async def body() -> str:
        asked.append((await inner.run("one")).text)
        return (await inner.run("two")).text

    agent = giving(body, budget=nb.Budget(tokens=40))
    with pytest.raises(nb.errors.BudgetExceeded):
        await agent.generate("go")
    assert asked == ["in"]
    asked.clear()
    inner.model = nb.ScriptedModel(["in", "in too"], usage=Usage(50, 1))
    agent = giving(body, budget=nb.Budget(tokens=40))
    run = await asyncio.wait_for(agent.run("go").settled(), 20)
    assert (run.status, [i.kind for i in run.interrupts]) == ("interrupted", ["budget"])
    run.respond(run.interrupts[0], 1_000)
    result = await asyncio.wait_for(run, 20)
    assert (result.text, result.usage.input_tokens) == ("done", 100)


@pytest.mark.parametrize("rule", ["*fer", "pay/banker/transfer"])
async def test_c140_a_tool_denied_in_the_outer_run_is_denied_in_runs_started_by_its_bodies(
    play, rule
):
    bank = Bank("run", call("transfer", amount=5), "understood")
    s = await play(SCRIPT, bank, policy=[nb.deny(rule, reason="never")])
    assert "never" in bank.model.requests[-1].messages[-1]["content"][0]["output"]
    assert (bank.log, s.results) == ([], ["understood"])


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(
    ("answer", "told", "did"),
    [
        ({"restart": {0: {}}}, "got 10", [5]),
        ({"respond": {0: 7}}, "got 7", []),
        ({"reject": {0: "no"}}, "refused", []),
    ],
    ids=["restart", "respond", "reject"],
)
async def test_c153_a_body_calls_a_tool(play, sync, answer, told, did):
    """The run's rules apply, the outermost run has the question, and the result is typed."""
    log: list[Any] = []

    def define(agent: nb.Agent) -> None:
        @nb.tool(approval=True)
        def double(n: int) -> int:
            log.append(n)
            return 2 * n

        @nb.tool
        def plain() -> str:
            log.append("plain")
            return "p"

        async def body(ctx: nb.ToolContext) -> str:
            await ctx.call(plain)
            try:
                return f"got {await ctx.call(double, n=5)}"
            except nb.Rejected:
                return "refused"

        def body_sync(ctx: nb.ToolContext) -> str:
            ctx.call_sync(plain)
            try:
                return f"got {ctx.call_sync(double, n=5)}"
            except nb.Rejected:
                return "refused"

        agent.add(nb.tool(body_sync if sync else body, name="body"))

    s = await play([call("body"), "done"], define, name="planner")
    (i,) = s.interrupts
    assert (i.path, i.kind, i.input) == (("planner", "body", "double"), "approval", {"n": 5})
    await s.answer(**answer)
    assert (s.results, log) == ([told], ["plain", *did])


async def test_c153_a_body_whose_call_another_process_took_over_stops():
    """P3: the other process settled the inner call, so the body continues only there."""
    log: list[str] = []
    other = "elsewhere:1:1:host"

    @nb.tool(approval=True)
    def approved() -> None:
        log.append("approved")

    async def body(ctx: nb.ToolContext) -> str:
        with contextlib.suppress(nb.Rejected):
            await ctx.call(approved)
        await ctx.step("after", lambda: log.append("after"))
        return "here"

    agent = nb.Agent(nb.ScriptedModel([call("body"), "done"]), tools=[body])
    store = nb.MemoryStore()
    run = await agent.run("go", store=store, attended=True, show=False).settled()
    (i,) = run.interrupts
    (began,) = [e for e in run.journal if e.type == "tool_started"]
    where = {"at": 1.0, "scope": (began.call_id,), "call_id": i.call_id}
    refused = nb.Reject("no")
    taken = [
        Resolved(id=i.id, resolution=refused, by="other", owner=other, **where),
        began.model_copy(update={"attempt": 2, "owner": other}),
    ]
    before = run.journal[-1]
    store.append(run.id, taken, len(run.journal))
    await until(lambda: run.journal[-1] is not before)
    await turns(50)
    await run.cancel()
    assert log == []


async def test_c153_a_tool_called_by_a_called_tool_is_judged_as_well(play):
    """The rules and the middleware of the run apply at any depth of bodies."""
    log: list[Any] = []

    async def around(made: nb.ToolCall, nxt: Any) -> Any:
        log.append(made.tool_name)
        return await nxt(made)

    def define(agent: nb.Agent) -> None:
        def wipe(n: int) -> str:
            log.append(n)
            return f"wiped {n}"

        async def innermost(ctx: nb.ToolContext) -> str:
            return await ctx.call(wipe, n=5)

        async def middle(ctx: nb.ToolContext) -> str:
            return await ctx.call(innermost)

        async def body(ctx: nb.ToolContext) -> str:
            return await ctx.call(middle)

        agent.add(nb.tool(body))

    rules = [nb.review("wip*")]
    s = await play([call("body"), "done"], define, name="a", policy=rules, middleware=[around])
    (i,) = s.interrupts
    assert (i.path, i.kind) == (("a", "body", "middle", "innermost", "wipe"), "approval")
    assert log == ["body", "middle", "innermost", "wipe"]
    await s.answer(restart={0: {}})
    assert (s.results, log[-2:], log.count(5)) == (["wiped 5"], ["wipe", 5], 1)


async def test_c153_a_tool_called_by_a_body_fails_alone():
    """A failure, a denial and a wrong argument are each raised at the line of the call."""
    told: list[str] = []

    def broken(n: int) -> int:
        raise ValueError(f"no {n}")

    async def body(ctx: nb.ToolContext) -> str:
        for attempt in ({"n": 1}, {"n": "x"}, {"m": 1}):
            try:
                await ctx.call(broken, **attempt)
            except (nb.errors.ToolFailed, nb.errors.ToolError) as error:
                told.append(str(error))
        return "over"

    response = await giving(body).generate("go")
    assert response.text == "done"
    assert "ValueError: no 1" in told[0]
    assert all("does not match the schema of broken" in each for each in told[1:])
    told.clear()
    response = await giving(body, policy=[nb.deny("bro*")]).generate("go")
    assert "A rule denies this call of broken" in told[0]


async def test_the_handle_of_an_inner_run_answers_only_the_questions_of_that_run():
    """Not those of another inner run, nor of the outermost run."""
    runs: list[Any] = []

    async def body() -> str:
        runs.extend(asking(call("act", n=n), f"in {n}").run("p") for n in range(2))
        await asyncio.gather(*(one.settled() for one in runs))
        ours, theirs = (one.interrupts[0] for one in runs)
        for question in (theirs.id, *outer):
            with pytest.raises(nb.errors.NotPending, match="has no interrupt"):
                await runs[0].respond(question, "x")
        await runs[0].respond(ours, "x")
        await runs[1].respond(theirs, "y")
        return " ".join([(await one).text for one in runs])

    outer: list[str] = []
    agent = giving(body, [call("body"), call("wait")], "done")
    agent.add(nb.interrupt_tool("wait", output=str))
    run = agent.run("go", attended=True, show=False)
    run.subscribe(lambda e: outer.append(e.id) if e.type == "interrupted" and not e.scope else None)
    await until(lambda: run.journal[-1].type == "tool_finished" and not run.journal[-1].scope)
    assert run.journal[-1].output == "in 0 in 1"
    assert len(outer) == 1
    await run.cancel()


async def test_c151_the_handle_reports_the_inner_run():
    """Status, questions, journal and calls are the inner run's; the body can answer it."""
    seen: list[Any] = []
    log: list[Any] = []
    inner = asking([call("act", n=1)], "in", log=log)

    async def body() -> str:
        run = inner.run("p")
        heard: list[str] = []
        run.subscribe(lambda event: heard.append(event.type))
        seen.append((run.status, run.agent))
        await run.settled()
        seen.append((run.status, [i.tool_name for i in run.interrupts]))
        await run.restart(run.interrupts[0])
        result = await run
        seen.append(
            (run.status, result.calls["act"][0].value, [m["role"] for m in result.messages])
        )
        seen.append([event.type for event in run.journal][:2])
        assert heard[-1] == "run_completed"
        return run.result.text

    run = giving(body).run("go")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert run.calls["body"][0].output == "in"
    assert log == [1]
    assert seen[:2] == [("running", "inner"), ("interrupted", ["act"])]
    assert seen[2:] == [
        ("completed", "did 1", ["user", "assistant", "tool", "assistant"]),
        ["run_started", "model_responded"],
    ]


@pytest.mark.parametrize("live", [True, False])
async def test_c151_answers_passed_to_an_inner_run_count_without_a_person(live):
    """The outermost run asks nobody."""
    log: list[Any] = []
    inner = asking([call("act", n=1)], "in", log=log)

    async def body() -> str:
        return (await inner.run("p", answers={"act": True})).text

    agent = giving(body)
    if live:
        assert (await asyncio.wait_for(agent.run("go"), 20)).text == "done"
    else:
        assert (await agent.generate("go")).text == "done"
    assert log == [1]


async def test_a_wrong_answer_passed_to_an_inner_run_is_raised_where_the_outer_run_is_awaited():
    """The run stays paused, as after a wrong answer of its own."""
    log: list[Any] = []
    inner = asking([call("act", n=1)], "in", log=log)

    async def body() -> str:
        return (await inner.run("p", answers={"act": "maybe"})).text

    run = giving(body).run("go")
    with pytest.raises(nb.errors.InvalidAnswer, match="'act' asks for approval"):
        await asyncio.wait_for(run, 20)
    run.approve(run.interrupts[0])
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert log == [1]


async def test_c151_a_run_that_was_not_awaited_ends_with_the_call(play):
    """The call waits for the run, whose question is asked."""
    log: list[Any] = []
    model = nb.ScriptedModel([call("act", n=1), "in"])

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner")

        @inner.tool(approval=True)
        def act(n: int) -> str:
            log.append(n)
            return f"did {n}"

        @agent.tool
        async def body() -> str:
            inner.run("p")
            return "said"

    s = await play([call("body"), "done"], define)
    assert [i.path[-1] for i in s.interrupts] == ["act"]
    await s.answer(restart={0: {}})
    assert (s.results, log, len(model.requests)) == (["said"], [1], 2)


async def test_c151_a_failing_body_ends_the_runs_that_it_started():
    """No inner run continues or asks after the failure."""
    inner = asking([call("act", n=1)], "in")

    async def body() -> str:
        run = inner.run("p")
        await run.settled()
        raise ValueError("broken")

    run = giving(body).run("go")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert "broken" in run.calls["body"][0].output
    assert run.interrupts == []


async def test_c151_a_failing_inner_run_raises_where_it_is_awaited():
    """The error is the inner run's; the body can catch it and continue."""
    inner = nb.Agent(nb.ScriptedModel([]), name="inner")
    told: list[str] = []

    async def body() -> str:
        try:
            await inner.run("p")
        except nb.errors.RunError as error:
            told.append(type(error).__name__)
        return "over"

    run = giving(body).run("go")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert (await giving(body).generate("go")).text == "done"
    assert len(told) == 2


async def test_c151_one_inner_run_is_cancelled_and_the_body_continues():
    """Awaiting the inner run raises ``Cancelled``."""
    inner = asking([call("act", n=1)], "in")

    async def body() -> str:
        run = inner.run("p")
        await run.settled()
        await run.cancel()
        try:
            await run
        except nb.errors.Cancelled:
            return f"{run.status}, {len(run.interrupts)} open"
        return "never"

    run = giving(body).run("go")
    await asyncio.wait_for(run, 20)
    assert run.calls["body"][0].output == "cancelled, 0 open"


async def test_c151_an_option_that_needs_a_top_level_run_is_refused():
    """Errors for ``store=``, ``pending=``, fork and retry name ``nested=False``."""
    inner = nb.Agent(nb.ScriptedModel(["a"] * 9), name="inner")
    told: list[str] = []

    async def body() -> str:
        run = inner.run("p")
        await run
        doings: list[Any] = [
            lambda: inner.run("q", store=nb.MemoryStore()),
            lambda: inner.run("q", after=run, pending="queue"),
            run.fork,
            run.retry,
        ]
        for doing in doings:
            try:
                doing()
            except nb.errors.UsageError as error:
                told.append(str(error))
        again = await inner.run("q", after=run)
        return str(len(again.messages))

    run = giving(body).run("go")
    await asyncio.wait_for(run, 20)
    assert len(told) == 4
    assert all("nested=False" in each for each in told)
    assert run.calls["body"][0].output == "4"


@pytest.mark.parametrize("way", ["to_thread", "asyncio.run", "task"])
async def test_c140_a_helper_thread_or_task_of_the_body_can_start_runs(play, way):
    """Their runs count as started by the body."""
    model = nb.ScriptedModel([call("ask"), "in"])

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner", tools=[nb.interrupt_tool("ask", output=str)])

        async def text() -> str:
            return (await inner.run("p")).text

        async def by_thread() -> str:
            return (await asyncio.to_thread(inner.run_sync, "p")).text

        async def by_task() -> str:
            return await asyncio.create_task(text())

        def by_loop() -> str:
            return asyncio.run(text())

        ways: dict[str, Any] = {"to_thread": by_thread, "asyncio.run": by_loop, "task": by_task}
        agent.add(nb.tool(ways[way], name="body"))

    s = await play([call("body"), "done"], define)
    assert s.interrupts[0].path == ("agent", "body", "inner", "ask")
    await s.answer(respond={0: "x"})
    assert (s.results, len(model.requests)) == (["in"], 2)


async def test_c152_a_run_with_nested_false_is_not_inside():
    """The run has its own id, journal and questions, like a run outside of a tool."""
    inner = asking([call("act", n=1)], "in")
    kept: list[nb.Run] = []

    async def body() -> str:
        run = inner.run("p", nested=False)
        kept.append(run)
        await run.settled()
        response = await inner.generate("again", nested=False)
        return f"{run.status} {response.finish_reason}"

    inner.model = nb.ScriptedModel([call("act", n=1), call("act", n=2), "in"])
    run = giving(body).run("go")
    await asyncio.wait_for(run, 20)
    assert run.calls["body"][0].output == "interrupted interrupted"
    assert kept[0].id != run.id
    kept[0].restart(kept[0].interrupts[0])
    assert (await kept[0]).text == "in"
    assert all(event.type != "body_called" for event in run.journal)


async def test_c151_waiting_sync_bodies_free_their_threads(monkeypatch):
    """More bodies wait for a person than threads can run at one time."""
    monkeypatch.setattr("nbagent.core.call.threads.MAX_THREADS", 2)
    agents = [
        nb.Agent(
            nb.ScriptedModel([call("ask"), "in"]),
            name="inner",
            tools=[nb.interrupt_tool("ask", output=str)],
        )
        for _ in range(4)
    ]

    def body(n: int) -> str:
        return agents[n].run_sync("p").text

    agent = giving(body, [call("body", n=n) for n in range(4)], "done")
    run = await asyncio.wait_for(agent.run("go").settled(), 20)
    assert len(run.interrupts) == 4
    for interrupt in run.interrupts:
        run.respond(interrupt, "x")
    assert (await asyncio.wait_for(run, 20)).text == "done"


async def test_c154_a_fork_asks_questions_of_inner_runs_again(tmp_path):
    """Both runs continue from the inner question, each with its own answer."""
    inner = nb.ScriptedModel([call("ask"), "in", "in too"])
    other = nb.Agent(inner, name="inner", tools=[nb.interrupt_tool("ask", output=str)])

    async def body() -> str:
        return (await other.run("p")).text

    agent = nb.Agent(
        nb.ScriptedModel([call("body"), "done", "done too"]),
        tools=[body],
        store=nb.SQLiteStore(tmp_path / "runs.db"),
    )
    run = await agent.run("go").settled()
    fork = await run.fork(at=run.interrupts[0]).settled()
    assert fork.interrupts[0].id != run.interrupts[0].id
    assert fork.interrupts[0].path == ("agent", "body", "inner", "ask")
    fork.respond(fork.interrupts[0], "x")
    assert (await asyncio.wait_for(fork, 20)).text == "done"
    run.respond(run.interrupts[0], "y")
    assert (await asyncio.wait_for(run, 20)).text == "done too"
    assert [r.messages[-1]["content"][0].get("output") for r in inner.requests[1:]] == ["x", "y"]


async def test_c154_a_fork_at_a_question_ignores_calls_that_the_body_made_after_it():
    """The fork's body continues from the question with its own answer."""
    log: list[Any] = []

    @nb.tool(approval=True)
    def asked(n: int) -> str:
        log.append(n)
        return f"asked {n}"

    def after(n: int) -> str:
        log.append(n)
        return f"after {n}"

    async def body(ctx: nb.ToolContext) -> str:
        try:
            told = await ctx.call(asked, n=1)
        except nb.Rejected:
            told = "refused"
        return f"{told}, {await ctx.call(after, n=2)}"

    agent = giving(body, [call("body")], "done", "done too")
    run = await agent.run("go", attended=True, show=False).settled()
    (question,) = run.interrupts
    run.restart(question)
    assert (await run).messages[2]["content"][0]["output"] == "asked 1, after 2"
    fork = await run.fork(at=question).settled()
    assert (fork.status, log) == ("interrupted", [1, 2])
    fork.reject(fork.interrupts[0], "no")
    assert (await fork).messages[2]["content"][0]["output"] == "refused, after 2"
    assert log == [1, 2, 2]


async def test_c150_a_retry_continues_with_the_inner_run_that_failed():
    """The body runs again and continues the inner run, whose call is not repeated."""
    log: list[int] = []
    model = nb.ScriptedModel([call("count"), nb.errors.ModelError("down"), "in"])
    inner = nb.Agent(model, name="inner")

    @inner.tool
    def count() -> int:
        log.append(1)
        return len(log)

    async def body() -> str:
        return (await inner.run("p")).text

    run = giving(body, on_tool_error="raise").run("go")
    with pytest.raises(nb.errors.ToolFailed):
        await asyncio.wait_for(run, 20)
    run.retry()
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert (log, run.calls["body"][0].output) == ([1], "in")


async def test_a_body_that_runs_again_after_its_question_gets_the_same_failure():
    """Only a retry, of the run or by middleware, repeats a failed inner run."""
    inner = nb.Agent(nb.ScriptedModel([nb.errors.ModelError("down"), "in"]), name="inner")

    async def body(ctx: nb.ToolContext) -> str:
        try:
            return (await inner.run("p")).text
        except nb.errors.ModelError as error:
            if not ctx.resumed:
                ctx.interrupt()
            return str(error)

    run = await giving(body).run("go", attended=True, show=False).settled()
    run.restart(run.interrupts[0])
    await asyncio.wait_for(run, 20)
    assert "down" in run.calls["body"][0].output


async def test_c140_an_inner_question_expires_on_the_outermost_run():
    """The outermost run applies the deadline."""

    async def hurried(ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(expires_in=0.05)
        return "in time"

    model = nb.ScriptedModel([call("hurried"), "in"])
    inner = nb.Agent(model, name="inner", tools=[hurried])

    async def body() -> str:
        return (await inner.run("p")).text

    run = giving(body).run("go", attended=True, show=False)
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert "Nobody answered in time" in model.requests[-1].messages[-1]["content"][0]["output"]


async def test_c140_inner_questions_count_towards_max_questions_of_the_outer_run():
    models = [nb.ScriptedModel([call("ask"), "in"]) for _ in range(3)]
    inner = [
        nb.Agent(m, name=f"a{n}", tools=[nb.interrupt_tool("ask", output=str)])
        for n, m in enumerate(models)
    ]

    async def body() -> str:
        await asyncio.gather(*(one.run("p") for one in inner))
        return "all"

    run = await asyncio.wait_for(giving(body, max_questions=2).run("go").settled(), 20)
    assert len(run.interrupts) == 2
    for interrupt in run.interrupts:
        run.respond(interrupt, "x")
    assert (await asyncio.wait_for(run, 20)).text == "done"


async def test_c140_an_unattended_outer_run_names_the_question_of_a_body():
    """Awaiting raises with the path; the run stays paused, and ``answers=`` of the outer run counts."""
    inner = nb.Agent(
        nb.ScriptedModel([call("ask"), "in", call("ask"), "in"]),
        name="inner",
        tools=[nb.interrupt_tool("ask", output=str)],
    )

    async def body() -> str:
        return (await inner.run("p")).text

    run = giving(body).run("go")
    with pytest.raises(nb.HumanInputRequired) as caught:
        await asyncio.wait_for(run, 20)
    assert caught.value.interrupts[0].path == ("agent", "body", "inner", "ask")
    run.respond(run.interrupts[0], "x")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    again = giving(body).run("go", answers=lambda i: "y" if i.tool_name == "ask" else None)
    assert (await asyncio.wait_for(again, 20)).text == "done"


async def test_c140_a_secret_of_an_inner_run_reaches_only_its_body():
    """The secret in the answer is in no journal."""
    got: list[str] = []

    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    async def login(ctx: nb.ToolContext) -> str:
        answer = await ctx.ask("log in", reply=Login)
        got.append(answer.password.get_secret_value())
        return "ok"

    inner = nb.Agent(nb.ScriptedModel([call("login"), "in"]), name="inner", tools=[login])

    async def body() -> str:
        return (await inner.run("p")).text

    run = await giving(body).run("go").settled()
    run.respond(run.interrupts[0], {"password": "hunter2"})
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert got == ["hunter2"]
    assert "hunter2" not in repr(run.journal)


async def test_c150_retry_middleware_continues_with_the_inner_run_that_failed():
    """``nb.Retry`` around an idempotent tool also retries the inner run."""
    model = nb.ScriptedModel([nb.errors.ModelError("down"), "in"])
    inner = nb.Agent(model, name="inner")

    @nb.tool(idempotent=True)
    async def body() -> str:
        return (await inner.run("p")).text

    run = giving(body, call("body"), "done", middleware=[nb.Retry(2)]).run("go")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert run.calls["body"][0].output == "in"


@pytest.mark.parametrize("sync", [False, True])
async def test_c151_a_time_limit_ends_runs_started_by_the_body(sync):
    """``nb.Timeout`` around the body covers the inner run."""

    class Slow(nb.ScriptedModel):
        async def stream(self, request: Any) -> Any:
            await asyncio.Event().wait()
            yield

    inner = nb.Agent(Slow([]), name="inner")

    async def body() -> str:
        return (await inner.run("p")).text

    def body_sync() -> str:
        return inner.run_sync("p").text

    tool = nb.tool(body_sync if sync else body, name="body")
    run = giving(tool, call("body"), "done", middleware=[nb.Timeout(0.2)]).run("go")
    assert (await asyncio.wait_for(run, 20)).text == "done"
    assert "0.2" in run.calls["body"][0].output


@pytest.mark.parametrize("agent_outside", [True, False])
async def test_c140_bodies_and_agents_as_tools_can_contain_each_other(play, agent_outside):
    """The question has one path, and nothing runs twice, in either order of nesting."""
    model = nb.ScriptedModel([call("ask"), "in"])
    middles = nb.ScriptedModel(
        [call("starts") if agent_outside else call("inner", prompt="y"), "mid"]
    )

    def define(agent: nb.Agent) -> None:
        inner = nb.Agent(model, name="inner", tools=[nb.interrupt_tool("ask", output=str)])
        middle = nb.Agent(middles, name="middle")

        async def starts() -> str:
            return (await (inner if agent_outside else middle).run("p")).text

        middle.add(nb.tool(starts) if agent_outside else inner.as_tool())
        agent.add(middle.as_tool() if agent_outside else nb.tool(starts))

    first = call("middle", prompt="x") if agent_outside else call("starts")
    s = await play([first, "done"], define, policy=[nb.review("*")])
    await s.answer(restart={0: {}})
    between = ("middle", "starts") if agent_outside else ("starts", "middle")
    assert s.interrupts[0].path == ("agent", *between, "inner", "ask")
    await s.answer(respond={0: "x"})
    assert (s.results, len(model.requests), len(middles.requests)) == (["mid"], 2, 2)


async def test_c140_a_new_message_rejects_questions_of_a_body():
    """``pending="reject"`` rejects them like any question."""
    inner = nb.Agent(
        nb.ScriptedModel([call("ask"), call("ask")]),
        name="inner",
        tools=[nb.interrupt_tool("ask", output=str)],
    )

    async def body() -> str:
        return (await inner.run("p")).text

    agent = giving(body, call("body"), "new", call("body"), "newer")
    paused = await agent.generate("go")
    after = await agent.generate("other", messages=paused.messages, pending="reject")
    assert after.text == "new"
    run = await agent.run("go").settled()
    assert (await asyncio.wait_for(agent.run("b", after=run, pending="reject"), 20)).text == "newer"


async def test_c153_the_cost_of_thousands_of_calls_grows_with_their_number(monkeypatch):
    """One more call of a body does not look at all earlier calls."""
    looks = 0
    state = StartedRuns.state

    def counted(self: StartedRuns, made: Any) -> Any:
        nonlocal looks
        looks += 1
        return state(self, made)

    monkeypatch.setattr(StartedRuns, "state", counted)
    small = nb.tool(name="small")(lambda i: i)
    agent = nb.Agent(nb.ScriptedModel([call("many", n=n) for n in (30, 300)] + ["done"]))
    cost: list[int] = []

    @agent.tool
    async def many(n: int, ctx: nb.ToolContext) -> int:
        before = looks
        for i in range(n):
            await ctx.call(small, i=i)
        cost.append(looks - before)
        return n

    await agent.run("go")
    assert cost[1] < 15 * cost[0]


async def test_c153_a_secret_result_of_a_call_is_never_a_mask():
    """After a person's answer the body runs again: the secret is gone, and the call raises."""
    got: list[str] = []

    @nb.tool
    def key(ctx: nb.ToolContext, ask: bool) -> pydantic.SecretStr:
        if ask:
            ctx.interrupt()
        return pydantic.SecretStr("hunter2")

    @nb.flow
    async def use(ask: bool, ctx: nb.ToolContext) -> str:
        got.append((await ctx.call(key, ask=ask)).get_secret_value())
        return "used"

    assert (await use.run(ask=False)).text == "used"
    run = await use.with_options(attended=True, show=False).run(ask=True).settled()
    await run.respond(run.interrupts[0], "hunter3")
    with pytest.raises(nb.errors.ToolFailed, match="never stored"):
        await run
    assert got == ["hunter2"]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("is_flow", [False, True])
async def test_c153_rules_and_middleware_apply_to_called_tools_at_any_depth(depth, is_flow):
    """Calls by called tools are reviewed and surrounded like calls by the model."""
    ran: list[str] = []
    saw: list[str] = []

    async def sees(called: nb.ToolCall, next_: Any) -> Any:
        saw.append(called.tool_name)
        return await next_(called)

    @nb.tool
    def drop() -> str:
        ran.append("drop")
        return "dropped"

    def around(inner: Any, number: int) -> Any:
        async def body(ctx: nb.ToolContext) -> str:
            return str(await ctx.call(inner))

        name = f"around_{number}"
        return nb.flow(name=name)(body).as_tool() if is_flow else nb.tool(name=name)(body)

    outermost: Any = drop
    for number in range(depth):
        outermost = around(outermost, number)
    script = [call(outermost.name), "done"]
    agent = nb.Agent(
        nb.ScriptedModel(script),
        tools=[drop, outermost],
        policy=[nb.review("drop")],
        middleware=[sees],
    )
    run = await agent.run("go", attended=True, show=False).settled()
    path = [f"around_{number}" for number in reversed(range(depth))]
    assert [one.path for one in run.interrupts] == [("agent", *path, "drop")]
    assert (ran, saw) == ([], [*path, "drop"])
    run.approve(run.interrupts[0])
    assert (await run).text == "done"
    assert ran == ["drop"]


async def test_c153_a_rejection_is_raised_again_where_the_body_is_run_again(play):
    """The body gets the same rejection, so it takes the same branch as before."""
    ran: list[str] = []

    def define(agent: nb.Agent) -> None:
        @nb.tool(approval=True)
        def drop() -> str:
            ran.append("drop")
            return "dropped"

        @agent.tool
        async def tidy(ctx: nb.ToolContext) -> str:
            try:
                said = str(await ctx.call(drop))
            except nb.Rejected:
                said = "kept"
            await ctx.ask(nb.Confirm(message="Go on?"))
            return said

    s = await play([call("tidy"), "done"], define)
    await s.answer(reject={0: "No."})
    assert s.interrupts[0].metadata["message"] == "Go on?"
    await s.answer(respond={0: True})
    assert (s.results, ran) == (["kept"], [])


@pytest.mark.parametrize("how", ["stop", "timeout"])
async def test_c151_an_abandoned_body_starts_no_run_that_escapes_the_outer_rules(how):
    """Its thread continues after the call's end; the next run that it starts raises."""
    wiped: list[int] = []
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    inner = nb.Agent(nb.ScriptedModel(lambda _: call("wipe")), name="inner", max_turns=1)

    @inner.tool
    def wipe() -> str:
        wiped.append(1)
        return "wiped"

    def clean() -> str:
        begun.set()
        assert go_on.wait(20)
        try:
            return inner.run_sync("again").text
        finally:
            ended.set()

    model = nb.ScriptedModel([call("clean"), "done"])
    middleware = [nb.Timeout(0.2)] if how == "timeout" else []
    outer = nb.Agent(model, middleware=middleware, policy=[nb.deny("wip*"), nb.allow("*")])
    outer.add(nb.tool(clean))
    run = outer.run("go", show=False, attended=True)
    await until(begun.is_set)
    if how == "stop":
        await run.cancel()
    else:
        await run
    go_on.set()
    await until(ended.is_set)
    assert (wiped, inner.model.requests) == ([], [])


async def test_a_body_whose_call_another_body_runs_starts_nothing_at_any_depth() -> None:
    """Another handle of the run started the outer call again before the waiting body read the answer."""
    ran: list[int] = []
    pay = nb.tool(name="pay", approval=True)(lambda: ran.append(1))

    @nb.tool
    async def middle(ctx: nb.ToolContext) -> str:
        return str(await ctx.call(pay))

    async def outer(ctx: nb.ToolContext) -> str:
        return str(await ctx.call(middle))

    agent = nb.Agent(nb.ScriptedModel([call("outer"), "done"]), tools=[outer])
    run = await agent.run("go", attended=True, show=False).settled()
    before = len(run.journal)
    started = next(e for e in run.journal if e.type == "tool_started")

    def take(event: Any) -> None:
        if event.type == "resolved":
            session_of(run).journal.commit(lambda _: [replace(started, attempt=2)])

    run.subscribe(take)
    run.approve(run.interrupts[0])
    await turns()
    assert [event.type for event in run.journal[before:]] == ["resolved", "tool_started"]
    assert ran == []
    await run.cancel()


async def test_an_inner_run_is_not_retried_because_its_outer_run_failed() -> None:
    """Another call of the turn failed the outer run just before the inner run began."""
    agent = nb.Agent(nb.ScriptedModel([call("inner", prompt="x"), "done"]), name="outer")
    agent.add(
        nb.Agent(
            nb.ScriptedModel([call("ask")]), name="inner", tools=[nb.interrupt_tool("ask")]
        ).as_tool()
    )
    run = await agent.run("go", attended=True, show=False).settled()
    session = session_of(run)
    (call_id,) = session.state.calls
    session.journal.commit(lambda _: [RunFailed(at=1.0, error="E", message="another call failed")])
    before = len(run.journal)
    await begin(InnerJournal(session.journal, call_id), session.spec, (call_id,), "x")
    assert len(run.journal) == before


async def test_p2_a_run_in_a_body_takes_answers_only_to_its_own_questions():
    """Neither those of a run beside it, nor those of the outer run's other calls."""
    model = nb.ScriptedModel([call("asks"), call("asks"), "done", "done"])
    inner = nb.Agent(model, name="inner", tools=[nb.interrupt_tool("asks", output=str)])
    agent = nb.Agent(nb.ScriptedModel([call("both"), "done"]))
    refused = []

    @agent.tool
    async def both() -> list[str]:
        one, other = [await inner.run("go", attended=True).settled() for _ in range(2)]
        for run, asked in ((one, other.interrupts[0]), (other, one.interrupts[0])):
            try:
                await run.respond(asked, "wrong")
            except nb.errors.NotPending as error:
                refused.append(str(error))
        await one.respond(one.interrupts[0], "1")
        await other.respond(other.interrupts[0], "2")
        return [(await run).text for run in (one, other)]

    run = agent.run("go", attended=True, show=False)
    await run
    assert len(refused) == 2, run.calls["both"][-1].output
    answers = [event.resolution.output for event in run.journal if event.type == "resolved"]
    assert answers == ["1", "2"]
