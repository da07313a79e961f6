"""Rules that allow, review or deny a call before it runs, and remembered approvals."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from typing import Any

import numpy
import pytest

import nbagent as nb
from nbagent.core.base.interrupts import CODE_CHANGED, SCHEMA_CHANGED
from tests.until import turns, until

call = nb.ScriptedModel.call


class Bank:
    """Two tools that record their acts, one of them streaming, and a question."""

    def __init__(self, **options: Any) -> None:
        self.did: list[Any] = []
        self._options = options

    def __call__(self, agent: nb.Agent) -> None:
        """Define send, stream and ask."""

        @agent.tool(**self._options)
        def send(amount: float, to: str = "A") -> str:
            self.did.append((amount, to))
            return f"sent {amount} to {to}"

        @agent.tool(**self._options)
        async def stream(amount: float):
            self.did.append(amount)
            yield "sent "
            yield str(amount)

        agent.add(nb.interrupt_tool("ask", output=str))


def large(typed: Any) -> bool:
    """A predicate on the typed input."""
    return typed.amount > 100


def broken(typed: Any) -> bool:
    """A predicate that raises."""
    return typed.nonsense > 1


async def later(typed: Any) -> bool:
    """A condition that has to be awaited."""
    await asyncio.sleep(0)
    return bool(typed.amount < 0)


def promising(typed: Any) -> Any:
    """A plain function that returns an awaitable."""
    return later(typed)


class Asynchronous:
    """A callable object that is async and looks at the call."""

    async def __call__(self, typed: Any, call: nb.CallView) -> bool:
        """Whether the call has the expected context, history, id and tool name."""
        asked = [part["id"] for part in call.messages[-1]["content"]]
        return call.context == "ctx" and asked == [call.id] and call.tool_name == "send"


async def late_break(typed: Any) -> bool:
    """A condition that raises once it is awaited."""
    await asyncio.sleep(0)
    raise LookupError


async def swallowing(typed: Any) -> bool:
    """A condition that returns True, also when cancelled."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return True
    return True


def with_default(typed: Any, limit: int = 100) -> bool:
    """A condition whose second parameter has a default."""
    return bool(typed.amount > limit)


RULES: list[tuple[list[Any], dict[str, Any], str, str | None]] = [
    # rules, options of the tool, outcome of send(amount=500), verdict in the journal
    ([], {}, "runs", None),
    ([nb.allow("*")], {}, "runs", "allow *"),
    ([nb.allow("send")], {"approval": True}, "runs", "allow send"),
    ([], {"approval": large}, "asks", "approval= of send"),
    ([], {"approval": lambda a: a.amount < 100}, "runs", None),
    ([], {"approval": broken}, "asks", "approval= of send"),
    ([nb.review("*")], {}, "asks", "review *"),
    ([nb.review("s?nd", when=large)], {}, "asks", "review s?nd"),
    ([nb.review("send", when=lambda a: a.amount < 100)], {}, "runs", None),
    ([nb.deny("send"), nb.allow("*")], {}, "denied", "deny send"),
    ([nb.allow("send"), nb.deny("*")], {}, "runs", "allow send"),
    ([nb.allow("send", when=broken)], {}, "asks", "allow send (its condition raised"),
    ([nb.review("send", when=broken)], {}, "asks", "review send (its condition raised"),
    ([nb.deny("send", when=broken)], {}, "denied", "deny send (its condition raised"),
    ([nb.deny("send", when=lambda a: a.amount < 100), nb.review("*")], {}, "asks", "review *"),
    # async, or with the call
    ([nb.allow("send", when=later), nb.review("*")], {}, "asks", "review *"),
    ([nb.allow("send", when=promising), nb.review("*")], {}, "asks", "review *"),
    ([nb.deny("send", when=later)], {}, "runs", None),
    ([], {"approval": later}, "runs", None),
    ([nb.allow("send", when=late_break)], {}, "asks", "allow send (its condition raised Lookup"),
    ([nb.review("send", when=late_break)], {}, "asks", "review send (its condition raised"),
    ([nb.deny("send", when=late_break)], {}, "denied", "deny send (its condition raised"),
    ([], {"approval": late_break}, "asks", "approval= of send"),
    ([nb.review("send", when=Asynchronous())], {}, "asks", "review send"),
    ([], {"approval": Asynchronous()}, "asks", "approval= of send"),
    ([nb.review("send", when=lambda a, c: c.context == "ctx")], {}, "asks", "review send"),
    ([nb.review("send", when=lambda a, call=None: call.id is None)], {}, "runs", None),
    ([nb.deny("send", when=with_default)], {}, "denied", "deny send"),
    (
        [nb.allow("send", when=lambda a, c: c.no_such)],
        {},
        "asks",
        "allow send (its condition raised",
    ),
    # results other than True and False
    (
        [nb.allow("send", when=lambda a: "yes")],
        {},
        "asks",
        "allow send (its condition returned a",
    ),
    ([nb.review("send", when=lambda a: None)], {}, "asks", "review send (its condition returned"),
    ([nb.deny("send", when=lambda a: None)], {}, "denied", "deny send (its condition returned a"),
    ([], {"approval": lambda a: 0}, "asks", "approval= of send"),
    ([nb.allow("send", when=lambda a: numpy.float64(a.amount) > 1)], {}, "runs", "allow send"),
]


@pytest.mark.parametrize(("rules", "options", "expected", "verdict"), RULES)
async def test_c73_c74_c75_c87_the_first_rule_that_matches_decides(
    rules, options, expected, verdict
):
    """The call runs, asks or is denied, and the journal has the verdict. Fail closed."""
    bank = Bank(**options)
    agent = nb.Agent(nb.ScriptedModel([call("send", amount=500), "done"]), policy=rules)
    bank(agent)
    run = await agent.run("go", context="ctx").settled()
    told = [e.verdict for e in run.journal if getattr(e, "verdict", None)]
    assert [v.startswith(verdict or "") for v in told] == ([True] if verdict else [])
    if expected == "asks":
        (i,) = run.interrupts
        assert (i.kind, i.input, bank.did) == ("approval", {"amount": 500}, [])
        run.restart(i)
    assert (await run).text == "done"
    assert bank.did == ([] if expected == "denied" else [(500.0, "A")])
    if expected == "denied":
        assert "denies this call of send" in run.calls["send"][0].output


@pytest.mark.parametrize("make", [nb.allow, nb.review, nb.deny])
@pytest.mark.parametrize(
    ("when", "said"),
    [
        (True, "must be a function of the input"),
        (lambda a: (yield), "must be a function of the input"),
        (bool, "must be a function of the input"),
        (lambda: True, "must take one argument"),
        (lambda a, b, c: True, "must take one argument"),
        (lambda *, typed: True, "must take one argument"),
    ],
)
def test_c156_an_invalid_condition_is_refused_at_once(make, when, said):
    """A value that is always true would let everything run."""
    with pytest.raises(nb.errors.UsageError, match=f"when= .*{said}"):
        make("send", when=when)
    with pytest.raises(nb.errors.ToolError, match="approval must be True, False or a condition"):
        nb.tool(approval="yes")  # type: ignore[call-overload]


@pytest.mark.parametrize("verdict", [nb.allow("send", when=swallowing), None])
async def test_c156_a_call_whose_condition_ignores_a_cancel_never_runs(verdict, short_grace):
    """The True after the cancel does not count."""
    bank = Bank(**({} if verdict else {"approval": swallowing}))
    rules = [] if verdict is None else [verdict]
    agent = nb.Agent(nb.ScriptedModel([call("send", amount=5), "done"]), policy=rules)
    bank(agent)
    run = agent.run("go")
    await until(lambda: any(e.type == "model_responded" for e in run.journal))
    await turns()
    await run.cancel()
    assert (run.status, bank.did) == ("cancelled", [])
    assert not any(e.type == "tool_started" for e in run.journal)


async def test_c156_an_async_condition_is_awaited_once_before_the_call_is_claimed(play):
    """Also if a sibling is answered meanwhile."""
    judged: list[float] = []
    bank = Bank()

    async def when(typed: Any, call: nb.CallView) -> bool:
        judged.append(typed.amount)
        await asyncio.sleep(0.01)
        return True

    s = await play(
        [[call("send", amount=1), call("ask"), call("send", amount=2)], "done"],
        bank,
        policy=[nb.allow("send", when=when)],
    )
    await s.answer(respond={0: "b"})
    assert (sorted(judged), sorted(bank.did)) == ([1.0, 2.0], [(1.0, "A"), (2.0, "A")])
    assert s.text == "done"


async def test_c157_the_context_of_a_run_reaches_tools_middleware_conditions_and_inner_agents(
    tmp_path,
):
    """The same object, stored nowhere; an opened run has the context that was passed for it."""
    context, seen = object(), []

    def when(typed: Any, call: nb.CallView) -> bool:
        seen.append(call.context)
        return False

    async def around(call_: nb.ToolCall, next_: Any) -> Any:
        seen.append(call_.context)
        return await next_(call_)

    @nb.tool
    def look(ctx: nb.ToolContext) -> str:
        seen.append(ctx.context)
        if not ctx.resumed:
            ctx.interrupt("?")
        return "seen"

    def made(*, again: bool) -> nb.Agent:
        inner_steps: list[Any] = ["in"] if again else [call("look"), "in"]
        inner = nb.Agent(nb.ScriptedModel(inner_steps), name="inner", tools=[look])
        outer_steps: list[Any] = ["done"] if again else [call("inner", prompt="x"), "done"]
        return nb.Agent(
            nb.ScriptedModel(outer_steps),
            tools=[inner.as_tool()],
            policy=[nb.deny("look", when=when), nb.deny("inner", when=when)],
            middleware=[around],
        )

    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        run = await made(again=False).run("go", context=context, store=store).settled()
        assert seen == [context] * 4
        assert run.fork()._session.spec.context is context
        seen.clear()
        opened = await nb.open_run(run.id, agent=made(again=True), store=store, context="other")
        opened.restart(opened.interrupts[0])
        assert (await opened).text == "done"
        assert set(seen) == {"other"}
        seen.clear()
        assert "object at" not in repr(run.journal)
    agent = made(again=False)
    response = await agent.generate("go", context=context)
    await made(again=True).generate(
        messages=response.messages, tool_restarts=[response.interrupts[0].restart()]
    )
    assert (context in seen, None in seen) == (True, True)


async def test_c75_everything_pauses_including_streaming_tools(play):
    """One approval each, in call order; a question without a body is asked once, not twice."""
    bank = Bank()
    s = await play(
        [[call("send", amount=1), call("stream", amount=2), call("ask")], "done"],
        bank,
        policy=[nb.review("*")],
    )
    assert [(i.tool_name, i.kind) for i in s.interrupts] == [
        ("send", "approval"),
        ("stream", "approval"),
        ("ask", "question"),
    ]
    assert bank.did == []
    await s.answer(restart={0: {}, 1: {}}, respond={2: "b"})
    assert s.results == ["sent 1.0 to A", "sent 2.0", "b"]
    assert sorted(bank.did, key=str) == [(1.0, "A"), 2.0]


async def test_c87_a_rule_is_evaluated_once_and_not_again_after_the_answer(play):
    """Also when the tool pauses by itself afterwards, and when it is tried again."""
    asked: list[float] = []
    entered: list[Any] = []

    def when(typed: Any) -> bool:
        asked.append(typed.amount)
        return True

    def define(agent: nb.Agent) -> None:
        @agent.tool(idempotent=True)
        def send(amount: float, ctx: nb.ToolContext) -> str:
            entered.append(ctx.resumed)
            if len(entered) == 1:
                ctx.interrupt({"otp": True})
            if len(entered) == 2:
                raise OSError("line is down")
            return "sent"

    s = await play(
        [call("send", amount=500), "done"],
        define,
        policy=[nb.review("send", when=when)],
        middleware=[nb.Retry(2)],
    )
    assert [i.kind for i in s.interrupts] == ["approval"]
    await s.answer(restart={0: {}})
    assert [i.kind for i in s.interrupts] == ["tool"]
    await s.answer(restart={0: {"data": 1}})
    assert (s.results, s.text, asked) == (["sent"], "done", [500.0])


async def test_an_approval_by_a_person_cannot_override_a_denial(play):
    """An answer to middleware that asks before the gate does not skip the gate."""
    bank = Bank()

    async def ask_first(call_: nb.ToolCall, next_: Any) -> Any:
        if not call_.resumed:
            call_.interrupt({"why": "second factor"})
        return await next_(call_)

    s = await play(
        [call("send", amount=5), "done"], bank, policy=[nb.deny("send")], middleware=[ask_first]
    )
    await s.answer(restart={0: {}})
    assert bank.did == []
    assert "denies this call" in s.results[0]


async def test_an_input_edited_by_a_person_is_checked_by_the_denial_rules(play):
    """Each input is judged once: the model's before the question, the person's own after it."""
    judged: list[float] = []
    bank = Bank()

    def too_much(typed: Any) -> bool:
        judged.append(typed.amount)
        return typed.amount > 1000

    policy = [nb.deny("send", when=too_much), nb.review("send", editable=True)]
    s = await play([call("send", amount=5), "done"], bank, policy=policy)
    await s.answer(restart={0: {"new_input": {"amount": 5000}}})
    assert (bank.did, s.text) == ([], "done")
    assert "denies this call of send" in s.results[0]
    assert judged == [5.0, 5000.0]


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ([nb.review("send", editable=True), nb.deny("*")], True),
        ([nb.review("*", when=lambda a: a.amount < 100, editable=True), nb.deny("*")], False),
        ([nb.deny("send", when=lambda a: a.amount > 1000), nb.review("*", editable=True)], True),
    ],
)
async def test_an_edited_input_runs_if_a_rule_before_each_denial_reviews_it(play, rules, runs):
    """The person has reviewed it; a rule that reviews only other inputs permits nothing."""
    bank = Bank()
    s = await play([call("send", amount=5), "done"], bank, policy=rules)
    await s.answer(restart={0: {"new_input": {"amount": 500}}})
    assert (bank.did, s.text) == ([(500.0, "A")] if runs else [], "done")


async def test_c87_an_input_that_was_judged_in_this_run_is_not_judged_again():
    """Neither after the approval, nor when the body restarts after its own question."""
    judged: list[float] = []
    agent = nb.Agent(
        nb.ScriptedModel([call("send", amount=5), "done"]),
        policy=[
            nb.deny("send", when=lambda a: judged.append(a.amount) or False),
            nb.review("send"),
        ],
    )

    @agent.tool
    def send(amount: float, ctx: nb.ToolContext) -> str:
        if not ctx.resumed or ctx.resumed.data != "code":
            ctx.interrupt({"otp": True})
        return "sent"

    run = await agent.run("go").settled()
    run.restart(run.interrupts[0])
    await run.settled()
    run.restart(run.interrupts[0], data="code")
    assert ((await run).text, judged) == ("done", [5.0])


async def test_a_rejected_approval_runs_no_middleware_and_no_body(play):
    """A rejection ends the call."""
    bank = Bank()
    seen: list[str] = []

    async def look(call_: nb.ToolCall, next_: Any) -> Any:
        seen.append(call_.tool_name)
        return await next_(call_)

    s = await play(
        [call("send", amount=5), "done"], bank, policy=[nb.review("*")], middleware=[look]
    )
    assert seen == ["send"]
    await s.answer(reject={0: "no"})
    assert (seen, bank.did) == (["send"], [])


# --- remembered approvals


async def approved(agent: nb.Agent, remember: Any, **more: Any) -> nb.Run:
    """A run whose first approval is remembered."""
    run = await agent.run("go").settled()
    run.resolve(run.interrupts[0], nb.Restart(remember=remember, **more))
    return await run.settled()


REMEMBERED: list[tuple[Any, bool, bool, bool]] = [
    # what is remembered; asked again: same input same run, other input same run, next run
    ("input_in_run", False, True, True),
    ("tool_in_run", False, False, True),
    ("input", False, True, False),
    ("tool", False, False, False),
    (None, True, True, True),
]


@pytest.mark.parametrize(("remember", "same", "other", "later"), REMEMBERED)
@pytest.mark.parametrize("by_rule", [True, False])
async def test_always_allow_covers_exactly_the_chosen_scope(remember, same, other, later, by_rule):
    """This input or this tool, in this run or in all runs of this agent object."""
    steps = [
        call("send", amount=5),
        [call("send", amount=5), call("send", amount=6)],
        "done",
        call("send", amount=5),
    ]
    agent = nb.Agent(nb.ScriptedModel(steps), policy=[nb.review("*")] if by_rule else [])
    Bank(approval=True)(agent)
    run = await approved(agent, remember)
    expected = ([5] if same else []) + ([6] if other else [])
    assert [i.input["amount"] for i in run.interrupts] == expected
    for i in run.interrupts:
        run.restart(i)
    await run
    second = await agent.run("again").settled()
    assert bool(second.interrupts) == later
    assert len(agent.remembered) == (remember in ("input", "tool"))


@pytest.mark.parametrize("remember", ["input", "tool"])
async def test_a_remembered_approval_covers_the_tool_as_it_was(remember):
    """A tool of the same name with other parameters asks again, and the person gets the reason."""
    agent = nb.Agent(
        nb.ScriptedModel([call("send", amount=5), "ok", call("send", amount=5), "done"])
    )
    Bank(approval=True)(agent)
    await approved(agent, remember)

    def send(amount: float, to: str = "A", target: str = "elsewhere") -> str:
        return "sent"

    agent.tools["send"] = nb.tool(approval=True)(send)
    run = await agent.run("again").settled()
    (i,) = run.interrupts
    assert (i.kind, i.note) == ("approval", SCHEMA_CHANGED)
    run.resolve(i, nb.Restart(remember=remember))
    await run
    assert len(agent.remembered) == 1
    assert agent.remembered[0].has_schema(agent.tools["send"].input_schema)


def pay(agent: nb.Agent, way: str, did: list[str]) -> None:
    """Replace the tool by one of the same name and schema, as a cell that runs again does."""
    if way == "changed":

        def send(amount: float) -> str:
            did.append("elsewhere")
            return "sent"
    elif way == "wrapped":

        def plain(amount: float) -> str:
            did.append("sent")
            return "sent"

        @functools.wraps(plain)
        def send(amount: float) -> str:
            did.append("seen")
            return plain(amount)
    else:

        def send(amount: float) -> str:
            did.append("sent")
            return "sent"

    agent.tools["send"] = nb.tool(name="send", approval=True)(send)


@pytest.mark.parametrize("remember", ["input", "tool"])
@pytest.mark.parametrize("way", ["same", "changed", "wrapped"])
async def test_always_allow_is_bound_to_the_function_and_not_to_its_name_and_schema(way, remember):
    """A cell that runs again unchanged asks nothing; another body asks again, and says why."""
    did: list[str] = []
    script = [call("send", amount=5), "ok", call("send", amount=5), "done"]
    agent = nb.Agent(nb.ScriptedModel(script))
    pay(agent, "first", did)
    await approved(agent, remember)
    pay(agent, way, did)
    run = await agent.run("again").settled()
    assert [i.note for i in run.interrupts] == ([] if way == "same" else [CODE_CHANGED])
    for i in run.interrupts:
        run.resolve(i, nb.Restart(remember=remember))
    await run
    assert (len(did) >= 2, len(agent.remembered)) == (True, 1)


async def test_always_allow_for_an_agent_is_bound_to_its_tools():
    """After a change of its tools the agent asks again."""
    inner = nb.Agent(nb.ScriptedModel(["in"] * 3), name="inner")
    pay(inner, "first", [])
    outer = nb.Agent(
        nb.ScriptedModel([call("inner", prompt="p"), "ok"] * 3),
        tools=[inner.as_tool()],
        policy=[nb.review("inner")],
    )
    await approved(outer, "tool")
    assert not (await outer.run("again").settled()).interrupts
    pay(inner, "changed", [])
    (i,) = (await outer.run("again").settled()).interrupts
    assert i.note == CODE_CHANGED


def test_the_code_digest_of_a_tool_is_the_same_in_another_process():
    """So the digest can be stored."""
    says = (
        "import nbagent as nb\n"
        "def send(to: str) -> bool:\n    return to in {'a', 'b', 'c', 'd'} or (lambda: 1)() == 2\n"
        "print(nb.tool(send).code_digest)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", says],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


async def test_inputs_that_are_equal_only_in_python_are_remembered_separately():
    """``1`` and ``true`` are two inputs, and two rules."""
    agent = nb.Agent(nb.ScriptedModel([[call("put", x=x) for x in (1, True, 1)], "done"]))

    @agent.tool(approval=True)
    def put(x: Any) -> str:
        return "put"

    run = await agent.run("go").settled()
    for i in run.interrupts:
        run.resolve(i, nb.Restart(remember="input"))
    assert (await run).text == "done"
    assert sorted(map(str, agent.remembered)) == [
        'allow put with {"x":1}',
        'allow put with {"x":true}',
    ]


async def test_a_remembered_approval_never_overrides_a_denial():
    """It replaces a question, never a denial."""
    did = Bank()
    agent = nb.Agent(
        nb.ScriptedModel([call("send", amount=5), call("send", amount=500), "done"]),
        policy=[nb.deny("send", when=large), nb.review("*")],
    )
    did(agent)
    await approved(agent, "tool")
    assert did.did == [(5.0, "A")]


async def test_step_by_step_approvals_are_remembered_too():
    """By the agent object, over the next conversations."""
    agent = nb.Agent(
        nb.ScriptedModel([call("send", amount=5), "done", call("send", amount=9), "done"])
    )
    Bank(approval=True)(agent)
    paused = await agent.generate("go")
    reply = nb.Restart(remember="tool", interrupt=paused.interrupts[0])
    await agent.generate(messages=paused.messages, tool_restarts=[reply])
    assert (await agent.generate("again")).text == "done"


async def test_an_inner_agent_has_its_own_list_of_remembered_approvals():
    """The inner agent's tool is remembered by the inner agent."""
    inner = nb.Agent(nb.ScriptedModel([call("send", amount=5), "in", call("send", amount=5), "in"]))
    bank = Bank(approval=True)
    bank(inner)
    outer = nb.Agent(
        nb.ScriptedModel([call("helper", prompt="p"), call("helper", prompt="p"), "done"]),
        tools=[inner.as_tool(name="helper")],
    )
    run = await approved(outer, "tool")
    assert (await run).text == "done"
    assert (len(inner.remembered), len(outer.remembered), len(bank.did)) == (1, 0, 2)


# --- outer denials apply inside


REACH: list[tuple[list[Any], bool]] = [
    # rules of the outermost agent, whether send(amount=500) two agents below runs
    ([nb.deny("send")], False),
    ([nb.deny("s?nd")], False),
    ([nb.deny("middle/inner/send")], False),
    ([nb.deny("*/send")], False),
    ([nb.deny("middle/*")], False),
    ([nb.deny("inner/send")], True),
    ([nb.deny("send", when=large)], False),
    ([nb.deny("send", when=lambda a: a.amount > 1000)], True),
    ([nb.deny("send", when=lambda a: a.amount > 1000), nb.deny("send", when=large)], False),
    ([nb.deny("send", when=broken)], False),
    ([nb.allow("middle"), nb.deny("*")], False),
    ([nb.allow("middle"), nb.allow("middle/*"), nb.deny("*")], True),
    ([nb.allow("send"), nb.deny("middle/inner/*")], True),
    ([nb.allow("middle"), nb.review("[ms]*")], True),
    # outer rules ask nobody about inner tools, so a review shields no call from a denial
    ([nb.allow("middle"), nb.review("[mis]*"), nb.deny("*")], False),
    ([nb.allow("middle"), nb.review("[mis]*", when=broken), nb.deny("*")], False),
    ([nb.allow("middle"), nb.allow("middle/*", when=broken), nb.deny("*")], False),
]


def nested(bank: Bank, **options: Any) -> nb.Agent:
    """An agent whose innermost agent, two levels below, allows everything."""
    inner = nb.Agent(
        nb.ScriptedModel([call("send", amount=500), "in"]), name="inner", policy=[nb.allow("*")]
    )
    bank(inner)
    middle = nb.Agent(
        nb.ScriptedModel([call("inner", prompt="p"), "mid"]), name="middle", tools=[inner.as_tool()]
    )
    script = [call("middle", prompt="p"), "done"]
    return nb.Agent(nb.ScriptedModel(script), tools=[middle.as_tool()], **options)


@pytest.mark.parametrize(("rules", "runs"), REACH, ids=[", ".join(map(str, r)) for r, _ in REACH])
@pytest.mark.parametrize("how", ["live", "steps"])
async def test_p1_a_tool_denied_by_an_outer_rule_runs_in_no_inner_agent(rules, runs, how):
    """By its own name or its path, whatever the inner rules say; other calls run as usual."""
    bank = Bank()
    agent = nested(bank, policy=rules)
    text = (await agent.run("go")).text if how == "live" else (await agent.generate("go")).text
    assert (text, bank.did) == ("done", [(500.0, "A")] if runs else [])


async def test_p1_no_inner_approval_overrides_an_outer_denial():
    """Neither an approval, nor an edit, nor a remembered approval."""
    for answer in (nb.Restart(), nb.Restart({"amount": 500}), nb.Restart(remember="tool")):
        bank = Bank(approval=True)
        inner = nb.Agent(nb.ScriptedModel([call("send", amount=5), "in"]), name="inner")
        bank(inner)
        agent = nb.Agent(
            nb.ScriptedModel([call("inner", prompt="p"), "done"]),
            tools=[inner.as_tool()],
            policy=[nb.deny("inner/send", when=large)],
        )
        run = await agent.run("go", attended=True, show=False).settled()
        run.resolve(run.interrupts[0], answer)
        assert (await run).text == "done"
        assert bank.did == ([] if answer.input else [(5.0, "A")])


# --- recipes


async def test_rules_can_be_added_while_an_agent_is_in_use():
    """The list is the agent's own, and read at each call."""
    bank = Bank()

    def tighten(_messages: Any) -> Any:
        agent.policy.insert(0, nb.deny("*"))
        return call("send", amount=2)

    agent = nb.Agent(nb.ScriptedModel([call("send", amount=1), tighten, "done"]))
    bank(agent)
    await agent.run("go")
    assert bank.did == [(1.0, "A")]


@pytest.mark.parametrize("pattern", [len, ["send"], None])
def test_a_rule_names_tools_by_a_string(pattern):
    """Other values are refused at once."""
    for rule in (nb.allow, nb.review, nb.deny):
        with pytest.raises(nb.errors.UsageError, match="must name tools with a string"):
            rule(pattern)


async def test_a_condition_cannot_change_the_input_of_the_body():
    """The condition gets a copy; the requested, displayed and stored input runs."""
    ran: list[list[str]] = []

    async def adds(input_: Any) -> bool:
        input_.paths.append("/etc")
        return False

    script = [nb.ScriptedModel.call("remove", paths=["a"]), "done"]
    agent = nb.Agent(nb.ScriptedModel(script), policy=[nb.review("remove", when=adds)])

    @agent.tool
    def remove(paths: list[str]) -> str:
        ran.append(paths)
        return "ok"

    await agent.run("go")
    assert ran == [["a"]]


async def test_a_condition_sees_the_history_around_a_call_made_by_a_body():
    """The history ends with the model's request of the outer call."""
    seen: list[Any] = []

    def looks(_input: Any, call: nb.CallView) -> bool:
        seen.append([part["name"] for part in call.messages[-1]["content"]])
        return False

    remove = nb.tool(name="remove")(lambda: "ok")
    script = [nb.ScriptedModel.call("tidy"), "done"]
    rules = [nb.deny("remove", when=looks)]
    agent = nb.Agent(nb.ScriptedModel(script), tools=[remove], policy=rules)

    @agent.tool
    async def tidy(ctx: nb.ToolContext) -> str:
        return str(await ctx.call(remove))

    run = agent.run("go")
    await run
    assert run.calls["tidy"][0].value == "ok"
    assert seen
    assert all(names == ["tidy"] for names in seen)


@pytest.mark.parametrize(
    ("policy", "asks", "ran"),
    [
        ([nb.allow("check"), nb.allow("check/*"), nb.deny("*")], [], 1),
        ([nb.allow("check"), nb.allow("check/price"), nb.deny("*")], [], 1),
        ([nb.allow("check"), nb.deny("*")], [], 0),
        ([nb.review("check/*")], ["price"], 0),
        ([nb.review("check/price")], ["price"], 0),
        ([nb.review("check/deep/*")], [], 1),
    ],
)
async def test_rules_with_a_path_reach_a_tool_that_a_body_calls(policy, asks, ran):
    """They allow it and ask about it, as they deny it."""
    prices: list[int] = []

    async def check(ctx: nb.ToolContext) -> str:
        return str(await ctx.call(nb.tool(name="price")(lambda: prices.append(1))))

    script = [nb.ScriptedModel.call("check"), "done"]
    agent = nb.Agent(nb.ScriptedModel(script), tools=[check], policy=policy)
    run = await agent.run("go", attended=True, show=False).settled()
    assert [one.tool_name for one in run.interrupts] == asks
    assert len(prices) == ran


async def test_a_rule_keeps_what_the_tool_itself_lets_a_person_edit():
    """A review without ``editable=`` has the tool's; with one, its own."""

    def pay(to: str, amount: float) -> str:
        """Pay somebody."""
        return f"{to}: {amount}"

    for rule, editable in (
        (nb.review("pay", danger=True), ("amount",)),
        (nb.review("pay", editable=["to"]), ("to",)),
    ):
        model = nb.ScriptedModel([nb.ScriptedModel.call("pay", to="Ada", amount=5.0), "Done."])
        agent = nb.Agent(model, tools=[nb.tool(editable=["amount"])(pay)], policy=[rule])
        run = await agent.run("Pay", attended=True, show=False).settled()
        assert run.interrupts[0].editable == editable
        await run.cancel()
