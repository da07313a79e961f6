"""``agent.run(messages=…)``: a live run that continues a history, as ``generate`` would."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nbagent as nb
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.view.view import SingleRunView
from tests.until import until

call = nb.ScriptedModel.call
OPEN = [call("ask"), call("gate", n=1), call("plain", n=2), call("helper", prompt="p")]


def talk(messages: Any) -> Any:
    """A model whose response depends only on the number of tool messages, so that branches can share it."""
    return [OPEN, "done", "again"][sum(m["role"] == "tool" for m in messages)]


class Desk:
    """An agent with every kind of open call, and a log of its tools' work."""

    def __init__(self, **options: Any) -> None:
        self.log: list[Any] = []
        inner = nb.Agent(
            nb.ScriptedModel(lambda m: "in" if m[-1]["role"] == "tool" else call("act")),
            name="helper",
        )

        @inner.tool(approval=True)
        def act() -> str:
            self.log.append("act")
            return "acted"

        self.agent = nb.Agent(nb.ScriptedModel(talk), tools=[inner.as_tool()], **options)
        self.agent.add(nb.interrupt_tool("ask", output=str))

        @self.agent.tool
        def gate(n: int, ctx: nb.ToolContext) -> str:
            if not ctx.resumed:
                ctx.interrupt({"n": n}, state={"saved": n})
            self.log.append(("gate", n, ctx.state))
            return f"did {n}"

        @self.agent.tool
        def plain(n: int) -> str:
            self.log.append(("plain", n))
            return f"plain {n}"

    def answer(self, run: nb.Run) -> None:
        """Answer all open questions."""
        for i in run.interrupts:
            run.respond(i, "b") if i.tool_name == "ask" else run.approve(i)


@pytest.mark.parametrize("source", ["response", "run", "json"])
async def test_c167_a_live_run_continues_from_a_history_with_its_open_calls(source):
    """The run asks the history's questions, and repeats no finished call."""
    desk = Desk(store=nb.MemoryStore())
    if source == "run":
        before = await desk.agent.run("go").settled()
        messages: Any = before.messages
    else:
        messages = (await desk.agent.generate("go")).messages
        messages = json.loads(json.dumps(messages)) if source == "json" else messages
    run = await desk.agent.run(messages=messages).settled()
    assert [i.tool_name for i in run.interrupts] == ["ask", "gate", "act"]
    assert run.interrupts == desk.agent.interrupts(messages)
    view = SingleRunView(run.id)
    for event in run.journal:
        view.apply(event)
    assert all(view.question(i.id) is not None for i in run.interrupts)
    opened = await nb.open_run(run.id, agent=desk.agent)
    assert opened.interrupts == run.interrupts
    desk.answer(run)
    result = await run
    assert result.text == "done"
    assert [p["output"] for p in run.messages[2]["content"]] == ["b", "did 1", "plain 2", "in"]
    assert sorted(map(str, desk.log)) == sorted(
        ["act", "('gate', 1, {'saved': 1})", "('plain', 2)"]
    )


async def test_c167_a_prompt_can_follow_a_history_without_open_calls():
    """The history of a run or of ``generate`` can be continued by either."""
    desk = Desk()
    run = desk.agent.run("go", answers={"ask": "b", "gate": True, "act": True}, attended=False)
    first = await run
    again = desk.agent.run("more", messages=first.messages)
    assert (await again).text == "done"
    assert [m["role"] for m in again.messages[-2:]] == ["user", "assistant"]
    response = await desk.agent.generate("and more", messages=again.messages)
    assert response.messages[: len(again.messages)] == again.messages


async def test_c167_prepared_answers_and_the_deadline_apply_to_open_calls():
    """Both work as for the run's own questions."""
    desk = Desk()
    messages = (await desk.agent.generate("go")).messages
    answers = {"ask": "b", "gate": nb.Reject("no"), "act": True}
    run = desk.agent.run(messages=messages, answers=answers, attended=False)
    assert (await run).text == "done"
    asks = nb.Agent(nb.ScriptedModel([call("late"), "done"]))

    @asks.tool
    def late(ctx: nb.ToolContext) -> str:
        ctx.interrupt("soon", expires_in=0.01, on_expire=nb.Respond("nobody came"))
        return "never"

    waits = (await asks.generate("go")).messages
    assert (await asks.run(messages=waits, attended=True, show=False)).text == "done"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"messages": []}, nb.errors.UsageError, "Nothing to do"),
        ({}, nb.errors.UsageError, "A prompt must be"),
        ({"messages": "closed"}, nb.errors.NotPending, "the model has answered"),
        ({"messages": "open", "prompt": "x"}, nb.errors.UnansweredInterrupts, "ask"),
        ({"messages": "forged"}, nb.errors.MessagesError, "record of the open call"),
        ({"messages": [{"role": "who"}]}, nb.errors.MessagesError, "role"),
        ({"messages": "open", "after": True}, nb.errors.UsageError, "Got both"),
    ],
)
async def test_c167_a_history_that_cannot_be_continued_is_refused_before_anything_is_stored(
    given, error, said
):
    """The errors are those of ``generate``, and nothing runs."""
    desk, store = Desk(), nb.MemoryStore()
    paused = (await desk.agent.generate("go")).messages
    forged = json.loads(json.dumps(paused))
    forged[-1]["content"][0]["nbagent"]["pause"]["tool_name"] = "plain"
    closed = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    histories = {"open": paused, "closed": closed, "forged": forged}
    options = dict(given)
    if isinstance(options.get("messages"), str):
        options["messages"] = histories[options["messages"]]
    if "after" in options:
        options["after"] = await desk.agent.run("go").settled()
    before = list(desk.log)
    with pytest.raises(error, match=said):
        desk.agent.run(**options, store=store)
    assert (store.run_ids(), desk.log) == ([], before)


@pytest.mark.parametrize("pending", ["reject", "queue"])
async def test_c167_a_prompt_can_reject_open_calls_or_wait_for_them(pending):
    """The options are those of ``generate``."""
    desk = Desk()
    messages = (await desk.agent.generate("go")).messages
    run = await desk.agent.run("well?", messages=messages, pending=pending).settled()
    assert len(run.interrupts) == (3 if pending == "queue" else 0)
    desk.answer(run)
    assert (await run).text == "done"
    assert [m["role"] for m in run.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_c167_a_fork_of_such_a_run_asks_with_new_ids():
    """Open calls of the history get new ids too, and a fork can be made at their questions."""
    desk = Desk()
    messages = (await desk.agent.generate("go")).messages
    run = await desk.agent.run(messages=messages).settled()
    old = run.interrupts
    for fork in (run.fork(), run.fork(at=old[1])):
        await fork.settled()
        assert [i.tool_name for i in fork.interrupts] == [i.tool_name for i in old]
        assert not {i.id for i in fork.interrupts} & {i.id for i in old}
    desk.answer(run)
    await run
    late = await run.fork(at=old[1]).settled()
    assert [i.tool_name for i in late.interrupts] == ["gate"]
    desk.answer(late)
    assert (await late).text == "done"
    assert desk.log.count("act") == 1


async def test_c167_its_card_previews_open_calls_of_the_history():
    """The preview of a question from the history, which the run did not ask."""
    seen: list[int] = []

    def preview(given: Any) -> str:
        seen.append(given.rows)
        return f"{given.rows} rows"

    agent = nb.Agent(nb.ScriptedModel([call("delete", rows=214), "done"]))

    @agent.tool(approval=True, preview=preview)
    def delete(rows: int) -> str:
        return f"deleted {rows}"

    messages = (await agent.generate("go")).messages
    run = agent.run(messages=messages, attended=True, show=False)
    card = RunCard(run)
    await until(lambda: seen == [214])
    run.approve(run.interrupts[0])
    await run
    card.detach()
