"""Common mistakes in tools and calls, and nbagent's errors for them."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import Misuse
from nbagent.core.run.run import session_of
from nbagent.notebook.view.questions import Question

call = nb.ScriptedModel.call


def agent_with(*tools: Any, script: Any = None, **options: Any) -> nb.Agent:
    """An agent whose model calls its first tool once, and then ends."""
    name = getattr(tools[0], "name", None) or tools[0].__name__
    return nb.Agent(nb.ScriptedModel(script or [call(name), "done"]), tools=tools, **options)


# --- a forgotten await


RAN: list[str] = []


async def truth(ctx: nb.ToolContext) -> str:
    if ctx.ask("Really wipe?", reply=bool):
        RAN.append("wiped")
    return "done"


async def swallowed(ctx: nb.ToolContext) -> str:
    try:
        sure = bool(ctx.ask("Really wipe?", reply=bool))
    except Exception:
        sure = False
    return f"sure: {sure}"


async def never(ctx: nb.ToolContext) -> str:
    ctx.ask("Really wipe?", reply=bool)
    return "wiped"


async def returned(ctx: nb.ToolContext) -> Any:
    return ctx.ask("Really wipe?", reply=bool)


async def compared(ctx: nb.ToolContext) -> str:
    return "many" if ctx.ask("How many?", reply=int) > 5 else "few"


async def stepped(ctx: nb.ToolContext) -> str:
    ctx.step("pay", lambda: RAN.append("paid"))
    return "paid"


async def streamed(ctx: nb.ToolContext) -> Any:
    yield "wiping"
    ctx.ask("Really wipe?", reply=bool)


FORGETFUL = {
    f.__name__: f for f in (truth, swallowed, never, returned, compared, stepped, streamed)
}


@pytest.mark.parametrize("way", sorted(FORGETFUL))
@pytest.mark.parametrize("live", [True, False])
async def test_a_forgotten_await_fails_the_run_and_approves_nothing(way, live):
    """A ``ctx.ask`` without ``await`` is not a yes; the model gets nothing; no warning is left over."""
    RAN.clear()
    agent = agent_with(FORGETFUL[way])
    with warnings.catch_warnings(record=True, action="always") as caught:
        with pytest.raises(Misuse) as raised:
            await (agent.run("go") if live else agent.generate("go"))
        gc.collect()
    what = "step" if way == "stepped" else "ask"
    assert f"`await ctx.{what}(…)`" in str(raised.value)
    assert way in str(raised.value)
    assert (RAN, [str(w.message) for w in caught]) == ([], [])
    assert len(agent.model.requests) == 1


NEXT = {
    "row": lambda ctx: ctx.row("pay", {"amount": 5}, id="p1"),
    "step": lambda ctx: ctx.step("pay", lambda: RAN.append("paid")),
    "ask": lambda ctx: ctx.ask("How?"),
    "call": lambda ctx: ctx.call(len, obj=[]),
}


@pytest.mark.parametrize("following", sorted(NEXT))
async def test_a_body_that_forgot_to_await_an_approval_stops_at_its_next_use_of_ctx(following):
    """So that the call, which usually comes after its row, is not made."""
    RAN.clear()

    async def office(ctx: nb.ToolContext) -> str:
        ctx.approve("pay", {"amount": 5}, id="p1")
        try:
            NEXT[following](ctx)
        finally:
            RAN.append("stopped")
        RAN.append("paid")
        return "paid"

    with pytest.raises(Misuse, match=r"office.*`ctx\.approve\(…\)` was never awaited"):
        await agent_with(office).run("go")
    assert RAN == ["stopped"]


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("verb", ["ask", "step"])
async def test_an_error_in_a_sync_tool_names_the_sync_method(verb, thread):
    """In a thread the error names the sync method; on the loop it says ``await``."""

    @nb.tool(thread=thread)
    def wipe(ctx: nb.ToolContext) -> str:
        sure = ctx.ask("Really?", reply=bool) if verb == "ask" else ctx.step("s", lambda: 1)
        return "wiped" if sure else "kept"

    with pytest.raises(Misuse, match=f"ctx.{verb}_sync" if thread else f"await ctx.{verb}"):
        await agent_with(wipe).run("go")


async def test_questions_can_be_awaited_in_every_way_of_asyncio():
    """Tasks, gather, a later await, and no await after a rejection are no mistakes."""

    @nb.tool
    async def many(ctx: nb.ToolContext) -> str:
        both = await asyncio.gather(ctx.ask("a?"), ctx.ask("b?"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ctx.ask("c?"))
        later = ctx.ask("d?")
        spare = ctx.ask("e?")
        first = await ctx.step("first", lambda: len(both))
        return f"{both} {task.result()} {await later} {first} {await spare}"

    run = agent_with(many).run("go", answers={"many": ["A", "B", "C", "D", nb.Reject()]})
    result = await run
    assert result.text == "done"
    assert "a person rejected this" in run.calls["many"][0].output


async def test_a_pause_leaves_later_questions_unasked():
    """Step by step, a body ends at its first question; an unawaited second one is no mistake."""

    @nb.tool
    async def two(ctx: nb.ToolContext) -> str:
        first, second = ctx.ask("a?"), ctx.ask("b?")
        return f"{await first} {await second}"

    agent = agent_with(two)
    response = await agent.generate("go")
    for answer in ("A", "B"):
        reply = nb.tool_response(response.interrupts[0], answer)
        response = await agent.generate(messages=response.messages, tool_responses=[reply])
    assert response.messages[-2]["content"][0]["output"] == "A B"


# --- a tool that asks again what was approved


def unguarded(**state: Any) -> Any:
    """A tool that forgot ``if not ctx.resumed``."""

    @nb.tool
    def pay(ctx: nb.ToolContext) -> str:
        ctx.interrupt(nb.Confirm(message="Pay?"), **state)

    return pay


@pytest.mark.parametrize(
    "answers",
    [{"pay": True}, [True] * 9, lambda _: True, {"pay": nb.Restart(data=1)}],
    ids=["name", "list", "callable", "data"],
)
async def test_prepared_answers_do_not_approve_the_same_question_forever(answers):
    """A tool without its guard is reported after one approval, instead of an endless loop."""
    run = agent_with(unguarded()).run("go", answers=answers)
    async with asyncio.timeout(20):
        with pytest.raises(nb.HumanInputRequired, match="guard it in the tool"):
            await run
    assert [e.type for e in run.journal].count("resolved") == 1
    assert "guard" in run.interrupts[0].note


async def test_the_form_of_a_repeated_question_says_so():
    """Step by step, the repeated interrupt has the note; the first one does not."""
    agent = agent_with(unguarded())
    first = await agent.generate("go")
    restart = nb.tool_restart(first.interrupts[0])
    again = await agent.generate(messages=first.messages, tool_restarts=[restart])
    assert first.interrupts[0].note is None
    assert "guard it in the tool" in again.interrupts[0].note


@pytest.mark.parametrize("differs", ["message", "input", "state", "answer"])
async def test_a_second_round_with_changes_continues(differs):
    """Other metadata, input or state: no note. Another answer: a note. No case is a loop."""

    @nb.tool
    def pay(amount: int, ctx: nb.ToolContext) -> str:
        count = (ctx.state or 0) + 1
        message = f"Pay {amount}? {bool(ctx.resumed)}"
        done = {"message": ctx.resumed_as(int) == 1, "input": amount > 9, "state": count > 2}
        done["answer"] = ctx.resumed_as(int) == 2
        if not done[differs]:
            ctx.interrupt(
                nb.Confirm(message=message if differs == "message" else "Pay?"),
                state=count if differs == "state" else None,
            )
        return "paid"

    rounds: Any = {
        "message": [True, nb.Restart(data=1)],
        "input": [nb.Restart(input={"amount": 6}), nb.Restart(input={"amount": 10})],
        "state": True,
        "answer": [True, nb.Restart(data=1), nb.Restart(data=2)],
    }
    agent = agent_with(pay, script=[call("pay", amount=5), "done"])
    run = agent.run("go", answers={"pay": rounds[differs]})
    await run
    notes = [event.note for event in run.journal if event.type == "interrupted"]
    assert (len(notes), any(notes)) == (3 if differs == "answer" else 2, differs == "answer")


# --- questions in words


@pytest.mark.parametrize(
    ("metadata", "output", "said"),
    [
        (
            nb.Confirm(message="Send this\nmoney?"),
            str,
            "asks \"Send this money?\"; to approve, use answers={'t': True",
        ),
        (None, str, "asks for an answer; use answers={'t': …} with a string"),
        (nb.Choose(message="Which?", choices=["a", "b"]), str, "with one of 'a', 'b'"),
    ],
)
async def test_an_unanswered_question_is_described_in_words(metadata, output, said):
    """The error has the question, a fitting answer, and the interrupt."""

    @nb.tool
    def t(ctx: nb.ToolContext) -> str:
        ctx.interrupt(metadata)

    with pytest.raises(nb.HumanInputRequired) as raised:
        await agent_with(t).run("go")
    assert said in str(raised.value)
    assert [i.tool_name for i in raised.value.interrupts] == ["t"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (int, "an integer"),
        (bool, "True or False"),
        (dict[str, int], "a matching value"),
        (nb.Option, "a dict with 'value', 'label', 'help'"),
        (Any, "any value"),
    ],
)
async def test_the_expected_answer_is_described_in_words(output, said):
    """The error has words, not a JSON Schema, if possible."""
    ask = nb.interrupt_tool("ask", output=output, metadata=nb.Ask(message="What?"))
    with pytest.raises(nb.HumanInputRequired, match=f'asks "What\\?".*use answers=.* with {said}'):
        await agent_with(ask).run("go")


# --- a Confirm in the middle of a body


def wiper(ran: list[Any]) -> Any:
    """A tool that ignores the answer to its confirmation."""

    @nb.tool
    async def wipe(ctx: nb.ToolContext) -> str:
        ran.append(await ctx.ask(nb.Confirm(message="Really?", danger=True)))
        return "wiped"

    return wipe


@pytest.mark.parametrize(
    ("answers", "ran", "output"),
    [
        ({"wipe": True}, [True], "wiped"),
        ([False], [], "During this call of wipe, a person rejected this"),
        ({"wipe": False}, [], "During this call of wipe, a person rejected this"),
        ({"wipe": nb.Respond(output=False)}, [False], "wiped"),
    ],
)
async def test_a_confirm_is_approved_or_rejected(answers, ran, output):
    """False in ``answers=`` rejects and raises at the line; only ``nb.Respond`` gives False as a value."""
    seen: list[Any] = []
    run = agent_with(wiper(seen)).run("go", answers=answers)
    await run
    assert (seen, run.calls["wipe"][0].output) == (ran, output)


async def test_a_confirm_accepts_no_text_as_yes():
    """The error says how to answer."""
    seen: list[Any] = []
    with pytest.raises(nb.errors.InvalidAnswer, match="True to run it, False to reject"):
        await agent_with(wiper(seen)).run("go", answers={"wipe": "yes"})
    with pytest.raises(nb.HumanInputRequired, match="to approve, use answers="):
        await agent_with(wiper(seen)).run("go")
    assert seen == []


@pytest.mark.parametrize(
    ("press", "ran", "decision"),
    [("approve", [True], "approved"), ("reject", [], "rejected · “too early”")],
)
async def test_the_form_of_a_confirm_approves_or_rejects(press, ran, decision):
    """The form has two buttons, styled as in any approval, and no choice of Yes and No."""
    seen: list[Any] = []
    run = await agent_with(wiper(seen)).run("go", attended=True, show=False).settled()
    (event,) = session_of(run).state.open
    question = Question.of(event)
    assert [(a.name, a.danger) for a in question.actions] == [("approve", True), ("reject", False)]
    assert (question.title, question.form, question.facts) == ("Really?", None, [])
    assert isinstance(question.resolve("approve", {"drafts": 1}), list)
    assert isinstance(question.resolve("approve", remember="tool"), list)
    reason = "too early" if press == "reject" else None
    await run.resolve(event.id, question.resolve(press, reason=reason), by="form")
    await run
    resolved = next(e for e in run.journal if e.type == "resolved")
    record = question.record("k", resolved, 0.0)
    assert (seen, record.decision, record.title) == (ran, decision, "Really?")
