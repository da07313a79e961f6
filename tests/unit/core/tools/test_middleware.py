"""Middleware around tool calls: what it may do, and what it can't."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from nbagent.data.code import CodeError

call = nb.ScriptedModel.call


class Fix(BaseModel):
    """Data of a restart."""

    code: int


def gated(agent: nb.Agent, ran: list[Any]) -> None:
    """A tool that asks first."""

    @agent.tool
    def gate(n: int, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt({"n": n})
        ran.append(n)
        return f"did {n}"


def flaky(agent: nb.Agent, tries: list[int], *, failures: int = 1) -> None:
    """A tool that fails at first, plain and streaming."""

    @agent.tool(idempotent=True)
    def plain() -> str:
        tries.append(1)
        if len(tries) <= failures:
            raise OSError("line is down")
        return "through"

    @agent.tool(idempotent=True)
    async def stream():
        tries.append(1)
        yield "thr"
        if len(tries) <= failures:
            raise OSError("line is down")
        yield "ough"


def acting(agent: nb.Agent, ran: list[Any]) -> None:
    """A tool that is approved first."""

    @agent.tool(approval=True)
    def act(n: int) -> str:
        ran.append(n)
        return f"did {n}"


async def test_c44_middleware_sees_the_restarted_call_and_its_data(play):
    """The data, the replaced input, and the model's own input."""
    ran: list[Any] = []
    seen: list[Any] = []

    async def look(c: nb.ToolCall, nxt: Any) -> Any:
        seen.append((c.tool_name, c.input.n, c.resumed_as(Fix), c.original_input))
        return await nxt(c)

    s = await play([call("gate", n=1), "done"], lambda a: gated(a, ran), middleware=[look])
    await s.answer(restart={0: {"new_input": {"n": 2}, "data": {"code": 7}}})
    assert seen == [("gate", 1, None, None), ("gate", 2, Fix(code=7), {"n": 1})]
    assert ran == [2]


@pytest.mark.parametrize("tool", ["plain", "stream"])
async def test_retry_runs_a_failing_tool_again(play, tool):
    """Streaming tools too; if all tries fail, the last failure is the result."""
    tries: list[int] = []
    s = await play(
        [call(tool), "done"], lambda a: flaky(a, tries, failures=2), middleware=[nb.Retry(3)]
    )
    assert (s.results, len(tries)) == (["through"], 3)
    tries.clear()
    s = await play(
        [call(tool), "done"], lambda a: flaky(a, tries, failures=9), middleware=[nb.Retry(2)]
    )
    assert (len(tries), "line is down" in s.results[0]) == (2, True)


@pytest.mark.parametrize("tool", ["plain", "stream"])
async def test_errors_become_text_even_where_the_agent_raises(play, tool):
    """``ToolErrorsToText`` wins over ``on_tool_error="raise"``."""
    s = await play(
        [call(tool), "done"],
        lambda a: flaky(a, [], failures=1),
        middleware=[nb.ToolErrorsToText()],
        on_tool_error="raise",
    )
    assert "OSError: line is down" in s.results[0]


@pytest.mark.parametrize("middleware", [[], [nb.ToolErrorsToText()]])
async def test_an_error_that_says_all_is_shown_without_its_class(middleware):
    """Such as one of ``run_python``, whose text begins with the name of the code's own error."""

    @nb.tool
    def fails() -> None:
        raise CodeError("KeyError: 'grew'")

    model = nb.ScriptedModel([call("fails"), "done"])
    done = await nb.Agent(model, tools=[fails], middleware=middleware).generate("go")
    assert "The tool fails failed: KeyError: 'grew'" in str(done.messages[-2])


@pytest.mark.parametrize(
    "middleware",
    [nb.Retry(5), nb.ToolErrorsToText(), nb.Timeout(30)],
    ids=lambda m: type(m).__name__,
)
async def test_c81_c82_a_pause_is_not_a_failure(play, middleware):
    """One attempt, the pause passes through, and the restart runs once."""
    ran: list[Any] = []
    s = await play([call("gate", n=1), "done"], lambda a: gated(a, ran), middleware=[middleware])
    assert (len(s.interrupts), ran) == (1, [])
    await s.answer(restart={0: {}})
    assert (s.results, ran) == (["did 1"], [1])


async def test_c83_middleware_raises_an_interrupt(play):
    """The interrupt works like the tool's own; the body does not run before it."""
    seen: list[Any] = []

    async def confirm(c: nb.ToolCall, nxt: Any) -> Any:
        if not c.resumed:
            c.interrupt({"sure": c.input.n}, state={"asked": 1}, editable=["n"])
        seen.append((c.state, c.input.n))
        return await nxt(c)

    ran: list[Any] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def act(n: int) -> str:
            ran.append(n)
            return f"did {n}"

    s = await play([[call("act", n=1), call("act", n=2)], "done"], define, middleware=[confirm])
    assert [(i.metadata, i.state, i.editable) for i in s.interrupts] == [
        ({"sure": 1}, {"asked": 1}, ("n",)),
        ({"sure": 2}, {"asked": 1}, ("n",)),
    ]
    assert ran == []
    await s.answer(restart={0: {"new_input": {"n": 5}}}, respond={1: "by hand"})
    assert seen == [({"asked": 1}, 5)]
    assert (ran, s.results[1]) == ([5], "by hand")


async def test_the_first_middleware_is_the_outermost_and_can_change_input_and_result(play):
    """Order is the list's; the changed input is what runs, and it is still typed."""

    def layer(name: str, extra: int) -> Any:
        async def wrap(c: nb.ToolCall, nxt: Any) -> Any:
            c.input = c.input.model_copy(update={"n": c.input.n * 10 + extra})
            return f"{name}({await nxt(c)})"

        return wrap

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def act(n: int) -> str:
            return str(n)

    s = await play([call("act", n=1), "done"], define, middleware=[layer("a", 2), layer("b", 3)])
    assert s.results == ["a(b(123))"]


async def test_middleware_can_answer_without_running_the_tool(play):
    """Such as from a cache."""
    tries: list[int] = []

    async def cached(_c: nb.ToolCall, _next: Any) -> Any:
        return "cached"

    s = await play([call("plain"), "done"], lambda a: flaky(a, tries), middleware=[cached])
    assert (s.results, tries) == (["cached"], [])


async def test_input_that_middleware_breaks_never_reaches_the_tool(play):
    """The gate validates the input again."""
    ran: list[Any] = []

    async def spoil(c: nb.ToolCall, nxt: Any) -> Any:
        c.input = {"n": "many"}
        return await nxt(c)

    s = await play([call("gate", n=1), "done"], lambda a: gated(a, ran), middleware=[spoil])
    assert (ran, "failed" in s.results[0]) == ([], True)


async def test_only_the_input_that_the_gate_shows_can_pass(play):
    """A person approves the changed input; the model gets no note about middleware's changes."""
    ran: list[int] = []

    async def tenfold(c: nb.ToolCall, nxt: Any) -> Any:
        c.input = c.input.model_copy(update={"n": c.input.n * 10})
        return await nxt(c)

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            ran.append(n)
            return f"did {n}"

    s = await play([call("act", n=1), "done"], define, middleware=[tenfold])
    assert [i.input for i in s.interrupts] == [{"n": 10}]
    await s.answer(restart={0: {}})
    assert (ran, s.results) == ([10], ["did 10"])
    s = await play([call("act", n=1), "done"], define, middleware=[tenfold])
    await s.answer(restart={0: {"new_input": {"n": 3}}})
    assert [i.input for i in s.interrupts] == [{"n": 30}], (
        "another input than was approved asks again"
    )
    await s.answer(restart={0: {}})
    assert ran == [10, 30]


class Order(BaseModel):
    """An input with parts that can be changed in place, one of them unseen."""

    n: int
    lines: list[int] = []
    code: int = Field(0, exclude=True)


@pytest.mark.parametrize("verdict", ["allow", "review", "deny"])
@pytest.mark.parametrize("when", ["before the gate", "at the gate", "after the gate"])
async def test_p5_an_input_changed_in_place_by_middleware_never_reaches_the_body_unjudged(
    when, verdict
):
    """The body gets the judged input, whatever happens to the object that middleware has."""
    ran: list[Any] = []
    held: list[Any] = []

    def spoil() -> None:
        held[-1].lines.append(666)
        held[-1].code = held[-1].n = 666

    async def hold(c: nb.ToolCall, nxt: Any) -> Any:
        held.append(c.input)
        if when == "before the gate":
            held[-1].code = 666  # not in the JSON
        return await nxt(c)

    def judge(typed: Any) -> bool:
        assert (typed.n, typed.lines, typed.code) == (1, [2], 0)
        if when == "at the gate":
            spoil()
        return verdict == "deny"

    policy = [nb.deny("*", when=judge), nb.review("*") if verdict == "review" else nb.allow("*")]
    agent = nb.Agent(
        nb.ScriptedModel([call("act", n=1, lines=[2]), "done"]), policy=policy, middleware=[hold]
    )

    @agent.tool
    async def act(input: Order, ctx: nb.ToolContext) -> str:  # noqa: A002 - the whole input
        if when == "after the gate":
            spoil()
        ran.append((input.n, input.lines, input.code))
        return "did"

    run = agent.run("go", answers={"act": True}, attended=False)
    assert (await run).text == "done"
    assert ran == ([] if verdict == "deny" else [(1, [2], 0)])


async def test_a_middleware_that_changes_the_input_each_time_never_passes_the_gate(play):
    """Approval of one input is no approval of another."""
    ran: list[int] = []
    count = iter(range(100))

    async def drift(c: nb.ToolCall, nxt: Any) -> Any:
        c.input = c.input.model_copy(update={"n": next(count)})
        return await nxt(c)

    def define(agent: nb.Agent) -> None:
        @agent.tool(approval=True)
        def act(n: int) -> str:
            ran.append(n)
            return "did"

    s = await play([call("act", n=1), "done"], define, middleware=[drift])
    for _ in range(3):
        await s.answer(restart={0: {}})
    assert (ran, len(s.interrupts)) == ([], 1)


async def test_next_after_a_success_returns_the_same_result_again(play):
    """Middleware that calls ``next`` twice runs the body once."""
    ran: list[int] = []

    async def twice(c: nb.ToolCall, nxt: Any) -> Any:
        return [await nxt(c), await nxt(c)]

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def act(n: int) -> str:
            ran.append(n)
            return f"did {n}"

    s = await play([call("act", n=1), "done"], define, middleware=[twice])
    assert (s.results, ran) == ([["did 1", "did 1"]], [1])


async def test_a_rejection_is_not_retried_and_not_a_failure(play):
    """``nb.Rejected`` passes Retry, and is the call's result even with on_tool_error="raise"."""
    entered: list[int] = []

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def gate(ctx: nb.ToolContext) -> str:
            entered.append(1)
            await ctx.ask("sure?", reply=bool)
            return "did"

    s = await play([call("gate"), "done"], define, middleware=[nb.Retry(4)], on_tool_error="raise")
    before = len(entered)
    await s.answer(reject={0: "no way"})
    assert len(entered) - before <= 1
    assert "no way" in s.results[0]
    assert s.text == "done"


async def test_retry_waits_between_attempts_and_only_for_chosen_errors(play):
    """Other errors are not retried."""
    tries: list[int] = []

    def define(agent: nb.Agent) -> None:
        flaky(agent, tries, failures=1)

        @agent.tool
        def wrong() -> str:
            tries.append(1)
            raise ValueError("wrong")

    s = await play(
        [[call("plain")], [call("wrong")], "done"],
        define,
        middleware=[nb.Retry(3, on=OSError, delay=0.001)],
    )
    assert len(tries) == 3
    assert s.text == "done"
    with pytest.raises(ValueError, match="at least 1"):
        nb.Retry(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": 2.5},
        {"times": float("inf")},
        {"times": True},
        {"times": "3"},
        {"on": [OSError]},
        {"on": "OSError"},
        {"on": (OSError, "x")},
        {"on": BaseException},
    ],
)
def test_a_wrong_argument_of_retry_is_refused_when_it_is_made(wrong):
    """At the call, its error would replace the error of the tool."""
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"Retry\({name}=…\) must be an"):
        nb.Retry(**wrong)
