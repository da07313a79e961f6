"""Flows: runs without a model, of one function that asks, repeats no step and returns its value."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

import nbagent as nb
from nbagent.core.base.errors import UsageError
from nbagent.core.base.events import RunStarted, StepFinished
from nbagent.core.base.model import Usage
from nbagent.core.run.run import session_of
from tests.until import until


class Report(BaseModel):
    """What a pipeline gives."""

    rows: int
    dropped: list[str]


def cleaning(done: list[str], **options: Any) -> nb.Flow:
    """A pipeline with steps and two questions, which records the steps that really run."""

    def work(name: str, value: Any) -> Any:
        done.append(name)
        return value

    @nb.flow(**options)
    async def clean(path: str, ctx: nb.ToolContext, limit: int = 10) -> Report:
        """Clean a table."""
        rows = await ctx.step("load", lambda: work("load", 5))
        drop = await ctx.ask(nb.Choose(message="Drop?", choices=["a", "b"], multiple=True))
        left = await ctx.step("drop", lambda: work("drop", rows - len(drop)))
        await ctx.ask(nb.Confirm(message=f"Write {left} of {path}, {limit} at most?"))
        await ctx.step("write", lambda: work("write", path))
        return Report(rows=left, dropped=drop)

    return clean


async def test_c160_a_flow_runs_without_a_model_and_returns_the_value_of_its_function():
    """The run is one call of the function: its input is stored, it can ask, and its value is the output."""
    done: list[str] = []
    clean = cleaning(done)
    run = clean.with_options(answers=[["a"], True]).run("data.csv", limit=3)
    result = await run
    assert result.output == Report(rows=4, dropped=["a"])
    assert isinstance(result.output, Report)
    assert result.text == '{"rows":4,"dropped":["a"]}'
    assert (run.agent, run.status, result.finish_reason) == ("clean", "completed", "stop")
    assert done == ["load", "drop", "write"]
    started = run.journal[0]
    assert isinstance(started, RunStarted)
    assert (started.model, started.flow) == ("", True)
    assert run.calls["clean"][0].input == {"path": "data.csv", "limit": 3}
    assert not any(event.type == "model_responded" for event in run.journal)
    assert result.usage.total_tokens == 0


def plain(path: Path, on: date = date(2026, 1, 2)) -> list[str]:
    """A function without a context, with parameter types that JSON lacks."""
    return [str(path), on.isoformat()]


def asking(n: int, ctx: nb.ToolContext) -> int:
    """A sync function that asks and has a step."""
    doubled = ctx.step_sync("double", lambda: 2 * n)
    return doubled + ctx.ask_sync("And?", reply=int)


def nothing() -> None:
    """Return nothing."""


@pytest.mark.parametrize(
    ("function", "args", "answers", "output", "text"),
    [
        (plain, (Path("x.csv"),), None, ["x.csv", "2026-01-02"], '["x.csv","2026-01-02"]'),
        (asking, (4,), [1], 9, "9"),
        (nothing, (), None, None, ""),
    ],
)
async def test_c160_any_function_can_be_a_flow(function, args, answers, output, text):
    """A flow may be sync, may take a context, and may take any parameter that JSON can represent."""
    made = nb.flow(function).with_options(answers=answers)
    result = await made.run(*args)
    assert (result.output, result.text) == (output, text)


def test_c160_a_flow_runs_in_synchronous_code():
    """``run_sync`` waits; the flow can still be called like its function."""
    assert nb.flow(asking).with_options(answers=[5]).run_sync(n=1).output == 7
    assert nb.flow(plain)(Path("y"))[0] == "y"


async def test_c160_a_flow_validates_its_input():
    """Input that does not fit, or that a run cannot store, is refused before anything is stored."""
    store = nb.MemoryStore()
    made = nb.flow(store=store)(asking)
    with pytest.raises(TypeError, match=r"asking\(\).*'n'"):
        made.run()
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'm'"):
        made.run(1, m=1)
    with pytest.raises(nb.errors.UsageError, match=r"the flow 'asking'.*n:"):
        made.run("many")

    @nb.flow(store=store)
    def look(frame: Any) -> int:
        return 1

    with pytest.raises(nb.errors.UsageError, match=r"the flow 'look'.*stored with its run"):
        look.run(object())
    with pytest.raises(TypeError, match=r"To run it as a flow, use asking\.run"):
        made(1)
    with pytest.raises(TypeError, match="anser"):
        made.with_options(anser=[1])
    assert list(store.run_ids()) == []


async def test_c160_an_agent_and_a_flow_open_only_their_own_runs():
    """Each refuses the other's runs, and no message continues a flow."""
    store = nb.MemoryStore()
    agent = nb.Agent(nb.ScriptedModel(["Hello."]), store=store)
    said, ran = agent.run("Hi"), nb.flow(nothing).with_options(store=store).run()
    await said
    await ran
    with pytest.raises(nb.errors.UsageError, match="of the flow 'nothing'"):
        await nb.open_run(ran.id, agent=agent)
    with pytest.raises(nb.errors.UsageError, match="of the agent 'agent'"):
        await nb.open_run(said.id, agent=nb.flow(nothing), store=store)
    with pytest.raises(nb.errors.UsageError, match="a flow has no conversation"):
        agent.run("And now?", after=ran)


async def test_c160_only_the_function_of_a_flow_gets_its_secret():
    """The journal has a mask."""
    seen = []

    @nb.flow
    def log_in(user: str, password: SecretStr) -> str:
        seen.append(password.get_secret_value())
        return user

    run = log_in.run("ada", SecretStr("correct horse"))
    await run
    assert seen == ["correct horse"]
    assert "horse" not in "".join(event.model_dump_json() for event in run.journal)


@pytest.mark.parametrize("pausing", [0, 1])
async def test_c161_a_reopened_flow_continues_after_its_finished_steps(tmp_path, pausing):
    """Finished steps and answers return at once, and the open question is asked again."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        done: list[str] = []
        first = cleaning(done, store=store).run("data.csv")
        await first.settled()
        if pausing:
            first.respond(first.interrupts[0], ["b"])
            await until(lambda: bool(first.interrupts) and first.interrupts[0].expects != "choice")
        again = await nb.open_run(first.id, agent=cleaning(done, store=store))
        await again.settled()
        if not pausing:
            again.respond(again.interrupts[0], ["b"])
            await again.settled()
        question = again.interrupts[0]
        assert question.metadata["message"] == "Write 4 of data.csv, 10 at most?"
        again.respond(question, value=True)
        assert (await again).output == Report(rows=4, dropped=["b"])
        assert done == ["load", "drop", "write"]
        third = await nb.open_run(first.id, agent=cleaning(done, store=store))
        assert third.result.output == Report(rows=4, dropped=["b"])


@pytest.mark.parametrize("idempotent", [False, True])
async def test_c161_a_flow_whose_process_died_while_it_ran_is_asked_about(
    idempotent, ended_process
):
    """An idempotent flow needs no question; finished steps are kept in both cases."""
    done: list[str] = []

    @nb.flow(idempotent=idempotent)
    async def work(ctx: nb.ToolContext) -> str:
        await ctx.step("first", lambda: done.append("first"))
        await ctx.step("second", lambda: done.append("second"))
        return "worked"

    run = work.run()
    await run
    kept = [
        event.model_copy(update={"owner": ended_process}) if getattr(event, "owner", "") else event
        for event in run.journal[:3]
    ]
    assert [event.type for event in kept[1:]] == ["tool_started", "step_finished"]
    store = nb.MemoryStore()
    store.append("r", kept, 0)
    done.clear()
    again = await nb.open_run("r", agent=work, store=store, attended=True, show=False)
    await again.settled()
    if not idempotent:
        assert [question.kind for question in again.interrupts] == ["lost"]
        again.restart(again.interrupts[0])
    assert (await again).output == "worked"
    assert done == ["second"]


async def test_c162_a_failing_flow_fails_its_run_and_a_retry_continues_after_its_steps():
    """The flow's own error is the cause; finished steps are kept, and the failed step runs again."""
    done: list[str] = []

    @nb.flow
    async def fetch(ctx: nb.ToolContext) -> str:
        await ctx.step("first", lambda: done.append("first"))

        def second() -> str:
            done.append("second")
            if len(done) < 3:
                raise OSError("the disk is away")
            return "read"

        return await ctx.step("second", second)

    run = fetch.run()
    with pytest.raises(nb.errors.ToolFailed, match="The flow 'fetch' failed: OSError") as caught:
        await run
    assert isinstance(caught.value.__cause__, OSError)
    assert run.status == "failed"
    failed = [e for e in run.journal if isinstance(e, StepFinished) and e.error is not None]
    assert [(e.name, e.error) for e in failed] == [("second", "OSError: the disk is away")]
    assert (await run.retry()).output == "read"
    assert done == ["first", "second", "second"]


async def test_c162_a_rejection_ends_a_flow():
    """A run fails unless its function catches the rejection."""

    @nb.flow
    async def send(ctx: nb.ToolContext) -> str:
        await ctx.ask(nb.Confirm(message="Send?"))
        return "sent"

    @nb.flow
    async def maybe(ctx: nb.ToolContext) -> str:
        try:
            await ctx.ask(nb.Confirm(message="Send?"))
        except nb.Rejected:
            return "kept"
        return "sent"

    with pytest.raises(nb.errors.ToolFailed, match="The flow 'send' failed: Rejected"):
        await send.with_options(answers=[False]).run()
    assert (await maybe.with_options(answers=[False]).run()).output == "kept"


async def test_c162_a_flow_whose_call_is_rejected_fails():
    """No model can be informed, so the rejection's reason becomes the error of the run."""

    @nb.flow
    async def send(ctx: nb.ToolContext) -> str:
        ctx.interrupt({"message": "Send?"})

    run = send.run()
    await run.settled()
    run.reject(run.interrupts[0], "not today")
    with pytest.raises(nb.errors.ToolFailed, match="not today"):
        await run


class Counting:
    """Middleware that records the calls around which it runs."""

    def __init__(self) -> None:
        self.saw: list[str] = []

    async def __call__(self, call, go_on):
        self.saw.append(call.tool_name)
        return await go_on(call)


class Shop:
    """Tools that a flow calls, and a record of their work."""

    def __init__(self) -> None:
        did = self.did = []

        @nb.tool
        def drop(table: str) -> int:
            did.append(table)
            return len(table)

        @nb.tool
        async def name(ctx: nb.ToolContext) -> str:
            return await ctx.ask("Which name?")

        self.drop, self.name = drop, name

    def flow(self, **options: Any) -> nb.Flow:
        """A flow that has a step, calls both tools, and has another step."""

        @nb.flow(tools=[self.drop, self.name], **options)
        async def tidy(table: str, ctx: nb.ToolContext) -> list:
            await ctx.step("look", lambda: self.did.append("look"))
            found = [await ctx.call(self.drop, table=table), await ctx.call(self.name)]
            await ctx.step("note", lambda: self.did.append("note"))
            return found

        return tidy


async def test_c164_a_flow_calls_tools_under_its_rules():
    """Policies and middleware apply to the tools, but not to the flow, which a person started."""
    shop, middleware = Shop(), Counting()
    flow = shop.flow(policy=[nb.review("*")], middleware=[middleware])
    run = flow.with_options(answers={"drop": True, "name": [True, "ada"]}).run("logs")
    assert (await run).output == [4, "ada"]
    assert shop.did == ["look", "logs", "note"]
    assert set(middleware.saw) == {"drop", "name"}


async def test_c164_a_tool_call_of_a_flow_survives_its_process(tmp_path):
    """Finished calls return at once; a tool's question belongs to the run, with the path to the tool."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        shop = Shop()
        first = shop.flow(store=store).run("logs")
        await first.settled()
        assert first.interrupts[0].path == ("tidy", "name")
        again = await nb.open_run(first.id, agent=shop.flow(store=store))
        await again.settled()
        again.respond(again.interrupts[0], "ada")
        assert (await again).output == [4, "ada"]
        assert shop.did == ["look", "logs", "note"]


async def test_c164_a_denial_or_rejection_is_raised_in_the_flow():
    """The flow may catch the error; otherwise the run fails with the reason."""
    shop = Shop()
    denied = shop.flow(policy=[nb.deny("drop", reason="Not today.")])
    with pytest.raises(
        nb.errors.ToolFailed, match=r"The flow 'tidy' failed: ToolFailed.*Not today"
    ):
        await denied.run("logs")
    asked = shop.flow(policy=[nb.review("drop")])
    with pytest.raises(nb.errors.ToolFailed, match="The flow 'tidy' failed: Rejected"):
        await asked.with_options(answers=[False]).run("logs")
    assert shop.did == ["look", "look"]


async def test_c164_rules_of_a_flow_must_name_its_tools():
    """A rule that can never match is an error."""
    with pytest.raises(nb.errors.UsageError, match=r"'dorp'.*drop.*nb\.flow\(tools="):
        Shop().flow(policy=[nb.deny("dorp")]).run("logs")
    with pytest.raises(nb.errors.ToolError, match="name of the flow itself"):
        nb.flow(tools=[nb.tool(name="send")(lambda: 1)], name="send")(lambda: 2)


async def test_c164_a_flow_is_a_tool_of_an_agent():
    """The flow's questions and steps belong to the agent's call."""
    shop = Shop()
    model = nb.ScriptedModel([nb.ScriptedModel.call("tidy", table="logs"), "Tidied."])
    agent = nb.Agent(model, tools=[shop.flow().as_tool()])
    run = agent.run("Tidy up", answers=["ada"])
    assert (await run).text == "Tidied."
    assert run.calls["tidy"][0].value == [4, "ada"]


@pytest.mark.parametrize("way", ["run", "run_sync"])
async def test_c151_a_flow_inside_a_body_must_be_called_or_run_separately(way: str) -> None:
    """A flow started in a body would ask unseen; calling it, or a run with ``nested=False``, works."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("tidy"), "Done."]))

    @nb.flow
    def halve(number: int) -> float:
        return number / 2

    own = halve.with_options(nested=False, show=False)

    @agent.tool
    def tidy(ctx: nb.ToolContext) -> list[float]:
        with pytest.raises(UsageError, match=r"ctx\.call\(halve\.as_tool\(\), …\)"):
            getattr(halve, way)(4)
        return [ctx.call_sync(halve.as_tool(), number=4), own.run_sync(6).output]

    run = agent.run("go", show=False)
    await run
    assert run.calls["tidy"][0].output == [2, 3]


@pytest.mark.parametrize("verdict", [nb.deny, nb.review])
async def test_c164_a_flow_as_a_tool_keeps_its_rules_and_middleware(verdict):
    """The flow's rules and middleware also apply to an agent's call of the flow."""
    shop, own, around = Shop(), Counting(), Counting()
    flow = shop.flow(policy=[verdict("drop")], middleware=[own])
    model = nb.ScriptedModel([nb.ScriptedModel.call("tidy", table="logs"), "Tidied."])
    agent = nb.Agent(model, tools=[flow.as_tool()], middleware=[around])
    run = agent.run("Tidy up", attended=True, show=False)
    await run.settled()
    asked = [one.path for one in run.interrupts]
    assert asked == ([] if verdict is nb.deny else [("agent", "tidy", "drop")])
    assert shop.did == ["look"]
    assert (set(own.saw), set(around.saw)) == ({"drop"}, {"tidy", "drop"})
    await run.cancel()


async def test_c164_a_flow_as_a_tool_cannot_allow_calls_that_its_agent_denies():
    """The flow's own allow rule is checked first, and only replaces a question."""
    shop = Shop()
    flow = shop.flow(policy=[nb.allow("drop")])
    model = nb.ScriptedModel([nb.ScriptedModel.call("tidy", table="logs"), "Tidied."])
    agent = nb.Agent(model, tools=[flow.as_tool()], policy=[nb.deny("dro?"), nb.allow("*")])
    assert (await agent.run("Tidy up")).text == "Tidied."
    assert shop.did == ["look"]


@pytest.mark.parametrize("is_tool", [False, True])
async def test_c164_the_budget_of_a_flow_applies_where_it_is_a_tool(is_tool):
    """Inner agents share the budget; once it is used up, a person is asked for more."""
    call, used = nb.ScriptedModel.call, Usage(100, 1)
    script = [call("look", n=1), call("look", n=2), "Looked."]
    inner = nb.Agent(nb.ScriptedModel(script, usage=used), name="inner")
    inner.tool(name="look")(lambda n: "ok")

    @nb.flow(budget=nb.Budget(tokens=150))
    async def tidy() -> str:
        return (await inner.run("go")).text

    outer = nb.Agent(nb.ScriptedModel([call("tidy"), "Looked."]), tools=[tidy.as_tool()])
    plain = tidy.with_options(attended=True, show=False)
    run = outer.run("go", attended=True, show=False) if is_tool else plain.run()
    await run.settled()
    assert [one.kind for one in run.interrupts] == ["budget"]
    run.respond(run.interrupts[0], 1_000)
    assert (await run).text == "Looked."


async def test_a_call_that_is_answered_in_its_place_frees_its_body():
    """The body continues even if the open questions are read between the answer and the body's next step."""
    pay = nb.tool(name="pay", approval=True)(lambda n: f"paid {n}")

    @nb.flow(tools=[pay])
    async def settle(ctx: nb.ToolContext) -> list[str]:
        return list(await asyncio.gather(ctx.call(pay, n=1), ctx.call(pay, n=2)))

    run = settle.with_options(attended=True, show=False).run()
    await until(lambda: len(run.interrupts) == 2)
    first, second = run.interrupts
    for question, answer in ((second, "by hand"), (first, "not due")):
        given = run.respond(question, answer)
        assert run.status in ("running", "interrupted", "completed")
        assert (
            not session_of(run).is_over() or run.status == "completed"
        )  # looks at all that is open
        await given
        await asyncio.wait_for(run.settled(), 20)
    assert run.result.output == ["not due", "by hand"]
