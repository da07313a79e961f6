"""Answers from outside systems, by token."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.interrupts import token_digest
from tests.asked import answered_by_many
from tests.until import turns

call = nb.ScriptedModel.call


def paying(tokens: list[str], model: Any = None) -> nb.Agent:
    """An agent whose tool waits for a payment service."""
    agent = nb.Agent(model or nb.ScriptedModel([call("pay", amount=5), "done"]))

    @agent.tool
    def pay(amount: int, ctx: nb.ToolContext) -> int:
        tokens.append(ctx.external_token)
        assert ctx.external_token == tokens[-1]
        ctx.interrupt({"waits for": "the bank"}, external=True)

    return agent


async def test_a_token_answers_its_interrupt_once():
    """Wrong tokens and a second use are refused; only its hash is stored."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    (i,) = run.interrupts
    (token,) = tokens
    assert i.expects == "external"
    assert len(token) >= 22
    assert token not in repr(run.journal)
    assert run.journal[-1].external == token_digest(token)
    for wrong in ("wrong", token + "x", token[:-1], run.journal[-1].external):
        with pytest.raises(nb.errors.NotPending):
            nb.answer_external(wrong, 5)
    for no_token in (None, "", 5, b"x"):
        with pytest.raises(nb.errors.InvalidAnswer):
            nb.answer_external(no_token, 5)
    with pytest.raises(nb.errors.InvalidAnswer):
        nb.answer_external(token, "not a number")
    assert run.status == "interrupted"
    await nb.answer_external(token, 5)
    assert (await run).text == "done"
    assert run.calls["pay"][0].output == 5
    assert [e.by for e in run.journal if e.type == "resolved"] == ["external"]
    with pytest.raises(nb.Conflict, match="was already used"):
        nb.answer_external(token, 5)


async def test_c144_awaiting_without_a_person_waits_for_an_outside_system():
    """No person is missing: the run waits for the answer and continues."""
    tokens: list[str] = []
    run = paying(tokens).run("go")
    waiting = asyncio.ensure_future(run)
    await run.settled()
    await turns()
    assert (waiting.done(), run.status) == (False, "interrupted")
    nb.answer_external(tokens[0], 1)
    assert (await waiting).text == "done"


def test_c144_synchronous_code_waits_for_an_outside_system_too():
    """In a script, while a thread gets the answer."""
    tokens: list[str] = []
    agent = paying(tokens)

    def bank() -> None:
        while not tokens or not answered(tokens[0], 5):
            threading.Event().wait(0.01)

    thread = threading.Thread(target=bank)
    thread.start()
    assert agent.run_sync("go").text == "done"
    thread.join()


def answered(token: str, value: Any) -> bool:
    """Answer, if the call waits by now."""
    try:
        nb.answer_external(token, value)
    except nb.errors.NotPending:
        return False
    return True


async def test_c144_awaiting_still_fails_if_a_person_is_also_asked():
    """Awaiting raises, also if ``answers=`` has a wrong value for the outside system."""
    tokens: list[str] = []
    script = nb.ScriptedModel([[call("pay", amount=5), call("ask")], "done"])
    agent = paying(tokens, script)
    agent.add(nb.interrupt_tool("ask", output=str))
    run = agent.run("go")
    with pytest.raises(nb.HumanInputRequired):
        await run
    run.respond(next(i for i in run.interrupts if i.tool_name == "ask"), "b")
    nb.answer_external(tokens[0], 1)
    assert (await run).text == "done"
    with pytest.raises(nb.errors.InvalidAnswer):
        await paying([]).run("go", answers={"pay": "not a number"})


OUTSIDE = """
import nbagent as nb, sys
path, token = sys.argv[1:]
agent = nb.Agent(nb.ScriptedModel(["done elsewhere"]))

@agent.tool
def pay(amount: int, ctx: nb.ToolContext) -> int:
    raise AssertionError

with nb.SQLiteStore(path) as store:
    nb.answer_external(token, error="the bank is closed", agent=agent, store=store).event
    store  # the run goes on here as well, and whoever is first takes the turn
    import time
    time.sleep(0.5)
"""


async def test_c144_an_answer_given_in_another_process_reaches_the_waiter(tmp_path):
    """Both processes use the same store."""
    tokens: list[str] = []
    path = tmp_path / "runs.db"
    with nb.SQLiteStore(path) as store:
        run = await paying(tokens).run("go", store=store).settled()
        waiting = asyncio.ensure_future(run)
        command = [sys.executable, "-c", OUTSIDE, str(path), tokens[0]]
        process = await asyncio.create_subprocess_exec(*command)
        async with asyncio.timeout(60):
            result = await waiting
        assert await process.wait() == 0
        assert result.text in ("done", "done elsewhere")
        assert run.calls["pay"][0].error == "the bank is closed"


async def test_c144_an_outside_failure_is_reported_only_to_the_model():
    """The model gets exactly the message, as the failure of the call, once; the tool is not run again."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    for wrong in ({"error": ""}, {"error": 5}, {"value": 5, "error": "both"}):
        with pytest.raises(nb.errors.InvalidAnswer):
            nb.answer_external(tokens[0], **wrong)
    nb.answer_external(tokens[0], error="the bank is closed")
    assert (await run).text == "done"
    (one,) = run.calls["pay"]
    assert (one.failed, one.error, len(tokens)) == (True, "the bank is closed", 1)
    with pytest.raises(nb.Conflict, match="was already used"):
        nb.answer_external(tokens[0], 5)


async def test_c144_an_answer_in_code_can_be_a_failure_too(play):
    """For any waiting call."""

    def define(agent: nb.Agent) -> None:
        agent.add(nb.interrupt_tool("lookup", output=int))

    s = await play([call("lookup"), "done"], define)
    await s.decide(nb.Respond(error="no such thing", interrupt=s.interrupts[0].id))
    assert (s.results, s.text) == (["no such thing"], "done")
    assert s.messages[-2]["content"][0]["error"] is True


async def test_c144_an_error_cannot_answer_a_question_in_the_middle_of_a_body(play):
    """The line waits for a value or a rejection."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        async def asks(ctx: nb.ToolContext) -> Any:
            return await ctx.ask("What?")

    s = await play([call("asks"), "done"], define)
    with pytest.raises(nb.errors.InvalidAnswer, match="do not pass error="):
        await s.decide(nb.Respond(error="no", interrupt=s.interrupts[0].id))
    await s.answer(respond={0: "b"})
    assert (s.results, s.text) == (["b"], "done")


def test_c144_an_answer_is_either_a_value_or_an_error():
    with pytest.raises(ValueError, match="not both"):
        nb.Respond(5, error="no")
    with pytest.raises(ValueError, match="on_expire must be"):
        nb.Interrupt(expires_in=1, on_expire=nb.Respond(error="no"))


async def test_a_token_answers_from_any_thread_and_only_once_among_many():
    """A web hook runs in another thread."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    outcomes = await answered_by_many(tokens[0], 5)
    assert (await run).text == "done"
    assert outcomes == ["told"] * 7 + ["took"]


def test_a_run_that_no_process_has_open_is_found_in_its_store(tmp_path):
    """With ``agent=`` and ``store=``; without, the error says so."""
    tokens: list[str] = []
    path = tmp_path / "runs.db"

    async def begin() -> str:
        run = await paying(tokens).run("go", store=nb.SQLiteStore(path)).settled()
        return run.id

    run_id = asyncio.run(begin())

    async def hook() -> str:
        store = nb.SQLiteStore(path)
        agent = paying([], nb.ScriptedModel(["done"]))
        with pytest.raises(nb.errors.NotPending, match="agent="):
            nb.answer_external("unknown", 5)
        with pytest.raises(nb.errors.NotPending):
            nb.answer_external("unknown", 5, agent=agent, store=store)
        nb.answer_external(tokens[0], 5, agent=agent, store=store)
        run = await nb.open_run(run_id, agent=agent, store=store)
        text = (await run).text
        with pytest.raises(nb.Conflict):
            nb.answer_external(tokens[0], 5, agent=agent, store=store)
        return text

    assert asyncio.run(hook()) == "done"


async def test_a_damaged_run_does_not_prevent_the_token_of_another():
    """The store has to be searched run by run."""

    class Damaged(nb.MemoryStore):
        def read(self, run_id: str, start: int = 0) -> Any:
            if run_id == "damaged":
                raise nb.errors.StoreError("event 1 is damaged")
            return super().read(run_id, start)

    tokens: list[str] = []
    store = Damaged()
    begun = await paying(tokens).run("go").settled()
    for run_id in ("damaged", "good"):
        store.append(run_id, begun.journal, 0)
    await begun.cancel()
    await nb.answer_external(tokens[0], 5, store=store)
    assert store.read("good")[-1].resolution == nb.Respond(output=5)
    with pytest.raises(nb.errors.NotPending, match="No interrupt in"):
        nb.answer_external("unknown", 5, store=store)


async def test_two_waiting_calls_have_a_token_each():
    """Each token answers only its own call."""
    tokens: list[str] = []
    model = nb.ScriptedModel([[call("pay", amount=1), call("pay", amount=2)], "done"])
    run = await paying(tokens, model).run("go").settled()
    assert len(set(tokens)) == 2
    for token, value in zip(tokens, (10, 20), strict=True):
        nb.answer_external(token, value)
    await run
    assert sorted(c.output for c in run.calls["pay"]) == [10, 20]


async def test_a_token_works_inside_an_agent_as_well():
    """The token's interrupt may be at any depth."""
    tokens: list[str] = []
    inner = paying(tokens, nb.ScriptedModel([call("pay", amount=1), "in"]))
    agent = nb.Agent(
        nb.ScriptedModel([call("bank", prompt="p"), "done"]), tools=[inner.as_tool(name="bank")]
    )
    run = await agent.run("go").settled()
    nb.answer_external(tokens[0], 7)
    assert (await run).text == "done"


async def test_a_rejected_or_ended_wait_no_longer_accepts_its_token():
    """A person may reject the call."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    run.reject(run.interrupts[0])
    await run
    with pytest.raises(nb.Conflict):
        nb.answer_external(tokens[0], 5)
