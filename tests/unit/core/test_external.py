"""Answers from outside systems, by token."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.interrupts import token_digest

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
    """Not before it is right, not twice; only its hash is stored."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    (i,) = run.interrupts
    (token,) = tokens
    assert i.external
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
    with pytest.raises(nb.Conflict, match="was used"):
        nb.answer_external(token, 5)


async def test_awaiting_headless_says_that_an_outside_system_must_answer():
    """It does not hang."""
    tokens: list[str] = []
    run = paying(tokens).run("go")
    with pytest.raises(nb.HumanInputRequired) as caught:
        await run
    assert caught.value.interrupts[0].external
    nb.answer_external(tokens[0], 1)
    assert (await run).text == "done"


async def test_a_token_answers_from_any_thread_and_only_once_among_many():
    """A web hook lives elsewhere."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    outcomes: list[str] = []

    def hook() -> None:
        try:
            nb.answer_external(tokens[0], 5)
        except nb.Conflict:
            outcomes.append("told")
        else:
            outcomes.append("took")

    threads = [threading.Thread(target=hook) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert (await run).text == "done"
    assert sorted(outcomes) == ["told"] * 7 + ["took"]


def test_a_run_that_no_process_holds_is_found_in_its_store(tmp_path):
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


async def test_two_waiting_calls_have_a_token_each():
    """A token of one is none of the other."""
    tokens: list[str] = []
    model = nb.ScriptedModel([[call("pay", amount=1), call("pay", amount=2)], "done"])
    run = await paying(tokens, model).run("go").settled()
    assert len(set(tokens)) == 2
    for token, value in zip(tokens, (10, 20), strict=True):
        nb.answer_external(token, value)
    await run
    assert sorted(c.output for c in run.calls["pay"]) == [10, 20]


async def test_inside_an_agent_a_token_works_as_well():
    """The token's interrupt may be at any depth."""
    tokens: list[str] = []
    inner = paying(tokens, nb.ScriptedModel([call("pay", amount=1), "in"]))
    agent = nb.Agent(
        nb.ScriptedModel([call("bank", prompt="p"), "done"]), tools=[inner.as_tool(name="bank")]
    )
    run = await agent.run("go").settled()
    nb.answer_external(tokens[0], 7)
    assert (await run).text == "done"


async def test_a_rejected_or_ended_wait_takes_no_token_any_more():
    """The person may refuse in its place."""
    tokens: list[str] = []
    run = await paying(tokens).run("go").settled()
    run.reject(run.interrupts[0])
    await run
    with pytest.raises(nb.Conflict):
        nb.answer_external(tokens[0], 5)
