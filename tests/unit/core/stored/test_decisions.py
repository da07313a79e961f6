"""Evidence: who decided what, from which displayed input, after how long, and with which changes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import SecretStr

import nbagent as nb
from nbagent.core.base import user as user_module
from nbagent.core.base.events import Resolved, parse
from nbagent.core.base.user import this_user
from tests.unit.core.clock import Clock

call = nb.ScriptedModel.call


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that changes the user of this process."""

    def become(name: str) -> None:
        monkeypatch.setenv("JUPYTERHUB_USER", name)
        this_user.cache_clear()

    become("anna")
    yield become
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    this_user.cache_clear()


def transferring(store: nb.Store) -> nb.Agent:
    turn = [call("transfer", to="bob", amount=5), call("login", password="hunter2")]
    agent = nb.Agent(nb.ScriptedModel([turn, "done"]), name="bank", store=store)

    @agent.tool(approval=True, editable=["amount"])
    def transfer(to: str, amount: int) -> str:
        return f"{amount} to {to}"

    @agent.tool(approval=True, editable=True)
    def login(password: SecretStr) -> str:
        return "in"

    return agent


async def test_c300_evidence_names_who_decided_on_which_displayed_input(as_user):
    """Evidence has user, way, time, digest, change and reason; a secret stays masked."""
    store, clock = nb.MemoryStore(), Clock()
    run = await clock.on(transferring(store)).run("go", attended=True, show=False).settled()
    transfer, login = run.interrupts
    clock.now += 90
    await run.resolve(transfer, nb.Restart({**transfer.input, "amount": 7}))
    as_user("ben")
    await run.reject(login, "not today")
    await run
    first, second = nb.decisions(store)
    assert (first.run, first.agent, first.path, first.tool) == (
        run.id,
        "bank",
        ("transfer",),
        "transfer",
    )
    assert (first.decision, first.by, first.user, first.waited) == ("changed", "code", "anna", 90.0)
    assert first.changed == {"amount": (5, 7)}
    assert (first.shown, first.digest) == ({"to": "bob", "amount": 5}, transfer.digest)
    assert (second.decision, second.reason, second.user) == ("rejected", "not today", "ben")
    for told in (repr(nb.decisions(run)), nb.decisions(run)._repr_html_(), repr(first)):
        assert "hunter2" not in told
    assert nb.decisions(store, tool="login") == [second]
    frame = nb.decisions(store).to_frame()
    assert list(frame["user"]) == ["anna", "ben"]
    events = run.journal.to_frame()
    assert list(events["type"]) == [event.type for event in run.journal]
    assert "hunter2" not in events.to_csv()


async def test_each_question_of_a_body_is_recorded_with_its_own_words_and_digest():
    """Questions of one call stay separate, and the call's approval is no answer to the body's question."""

    @nb.flow(store=(store := nb.MemoryStore()))
    async def plan(ctx: nb.ToolContext) -> str:
        await ctx.ask(nb.Choose("Which\nhotel?", ["Roma", "Stella"]))
        await ctx.ask("How many nights?", reply=int)
        return "fine" if await ctx.ask(nb.Confirm("Book it?")) else ""

    await plan.with_options(answers=["Roma", 2, True], show=False).run()
    found = nb.decisions(store)
    assert [one.question for one in found] == ["Which\nhotel?", "How many nights?", "Book it?"]
    assert len({one.digest for one in found}) == len(found)
    assert "'Which hotel?'" in repr(found)
    assert nb.decisions(store=store) == found


async def test_c301_a_loser_learns_which_person_won(as_user):
    """If another user won, the error and the events have the name."""
    run = await transferring(nb.MemoryStore()).run("go", attended=True, show=False).settled()
    first, second = run.interrupts
    await run.reject(first)
    as_user("ben")
    with pytest.raises(nb.Conflict, match=r"by code \(anna\) at"):
        await run.approve(first)
    assert "reject, by code (anna)" in repr(run.journal)
    await run.reject(second)
    assert repr(run.journal).endswith("login reject, by code")
    await run


@pytest.mark.parametrize("by", ["expiry", "external", "idempotent=True", "middleware", "recording"])
def test_an_automatic_decision_names_nobody(by, as_user):
    """A clock or a server is no person, and the process's user did not decide."""
    assert user_module.user_behind(by) == ""
    assert user_module.user_behind("form") == "anna"


def test_an_event_of_an_older_version_names_nobody():
    """The event has no user."""
    old = '{"type":"resolved","at":1,"id":"i","call_id":"c","resolution":{"type":"reject"},"by":"form"}'
    event = parse(old, 1)
    assert isinstance(event, Resolved)
    assert event.user == ""


async def test_without_pandas_a_frame_says_what_is_missing(monkeypatch):
    """The error names the package; the list itself works without it."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    for one in (nb.decisions(nb.MemoryStore()),):
        assert repr(one) == "no decisions"
        with pytest.raises(nb.errors.UsageError, match="pip install pandas"):
            one.to_frame()
    with pytest.raises(nb.errors.UsageError, match="got 3"):
        nb.decisions(3)


def test_without_the_hub_the_user_is_the_system_user(monkeypatch):
    """Variables that anyone can set do not count."""
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("LOGNAME", "somebody")
    this_user.cache_clear()
    assert this_user() not in ("", "somebody")
    this_user.cache_clear()


async def test_an_answer_of_the_deadline_is_no_decision_of_a_person():
    """The question expired; nobody rejected it."""
    clock = Clock()
    agent = clock.on(nb.Agent(nb.ScriptedModel([call("gate"), "done"]), store=nb.MemoryStore()))

    @agent.tool
    def gate(ctx: nb.ToolContext) -> str:
        ctx.interrupt({"message": "open?"}, expires_in=60)

    run = await agent.run("go", attended=True, show=False).settled()
    await clock.go_on(61)
    await run
    assert [(one.decision, one.by) for one in nb.decisions(run)] == [("expired", "expiry")]
