"""The card of a run that continues another run: a follow-up, a fork or a retry."""

from __future__ import annotations

import nbagent as nb
from nbagent.core.base.events import RunStarted
from nbagent.notebook.render import plain
from nbagent.notebook.view.view import SingleRunView

CALL = nb.ScriptedModel.call


def drawn(run: nb.Run) -> SingleRunView:
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    return view


def careful(*steps: object) -> nb.Agent:
    agent = nb.Agent(nb.ScriptedModel([*steps]), name="banker")

    @agent.tool
    def look() -> str:
        return "seen"

    @agent.tool
    def pay(amount: float, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Pay?"))
        return f"paid {amount}"

    return agent


async def test_the_next_run_of_a_conversation_shows_only_its_own_part() -> None:
    """Earlier messages of the conversation are only in the first run's card."""
    agent = careful([CALL("look")], "First.", "Second.")
    first = agent.run("Look")
    await first
    second = agent.run("And now?", after=first)
    await second
    assert plain.render(drawn(second).snapshot()) == "banker · done\n> And now?\n\nSecond."


async def test_a_fork_shows_the_finished_work_and_asks_separately() -> None:
    """The fork lacks the original's later answer, and its question has a new id."""
    agent = careful([CALL("look"), CALL("pay", amount=5.0)], "Paid.", "Paid too.")
    run = agent.run("Pay", attended=True, show=False)
    await run.settled()
    (asked,) = run.interrupts
    run.reject(asked, "no")
    await run
    fork = run.fork(at=asked)
    view = drawn(fork)
    assert [item.type for item in view.snapshot().items] == ["call", "form"]
    assert view.status == "interrupted"
    (again,) = fork.interrupts
    assert again.id != asked.id
    assert view.question(again.id) is not None
    fork.restart(again)
    await fork
    text = plain.render(drawn(fork).snapshot())
    assert "paid 5.0" in text
    assert "rejected" not in text


async def test_a_fork_of_a_failed_run_continues_without_its_failure() -> None:
    """The fork's card shows the copied work and the fork's own end, not the original's failure."""
    agent = careful([CALL("look")], RuntimeError("broke"), "Fine.")
    run = agent.run("Look")
    await run.settled()
    assert "broke" in plain.render(drawn(run).snapshot())
    fork = run.fork()
    await fork
    text = plain.render(drawn(fork).snapshot())
    assert text.endswith("Fine.")
    assert "broke" not in text


async def test_a_queued_message_is_between_the_turns_of_a_real_run() -> None:
    """Engine and view agree on when the message is sent and on how many turns remain."""
    agent = careful([CALL("pay", amount=5.0)], "Hurried.")
    run = agent.run("Pay", attended=True, show=False)
    await run.settled()
    assert agent.run("Hurry", after=run, pending="queue") is run
    run.restart(run.interrupts[0])
    await run
    items = drawn(run).snapshot().items
    assert [item.type for item in items] == ["call", "message", "text"]
    assert drawn(run).snapshot().head.max_turns == 21


async def test_a_paused_history_is_drawn_with_the_open_questions_in_its_calls() -> None:
    """A question asked in an inner agent's tool is below the call that asked it."""
    inner = nb.Agent(nb.ScriptedModel([CALL("trip"), "Booked."]), name="clerk")

    @inner.tool
    async def trip(ctx: nb.ToolContext) -> str:
        """Plan a trip."""
        return f"to {await ctx.ask('Where to?')}"

    script = nb.ScriptedModel([CALL("clerk", prompt="a trip"), "Done."])
    run = nb.Agent(script, name="planner", tools=[inner.as_tool()]).run("Plan", attended=True)
    await run.settled()
    history = [*run.messages]
    view = SingleRunView("r")
    view.apply(RunStarted(at=1, agent="planner", model="m", messages=history, max_turns=5))
    items = view.snapshot().items
    assert [item.type for item in items] == ["call", "call", "form"]
    assert [getattr(item, "path", "") for item in items[1:]] == ["planner ▸ clerk"] * 2
    assert view.status == "interrupted"
    await run.cancel()
