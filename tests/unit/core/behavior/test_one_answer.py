"""One question, and every way to answer it: of two answers at once, one counts."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.errors import Conflict, NotPending
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import TIME_IS_OVER, answer
from nbagent.core.run.run import session_of
from nbagent.core.stored.inbox import InboxEntry
from nbagent.core.stored.opening import answer_by_record

call = nb.ScriptedModel.call


class Desk:
    """A run that waits for an outside system, and all ways to answer it."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.ended: list[Any] = []
        self.store = nb.MemoryStore()
        self.agent = nb.Agent(
            nb.ScriptedModel([call("wait"), *["done"] * 3]), name="desk", store=self.store
        )
        self.agent.tool(self.wait)
        self.run: Any = None
        self.id = ""

    def wait(self, ctx: nb.ToolContext) -> str:
        """Waits."""
        if not ctx.resumed:
            self.tokens.append(ctx.external_token)
            ctx.interrupt({"why": "x"}, external=True)
        self.ended.append(ctx.resumed.data)
        return "ran"

    async def begin(self) -> None:
        """Start."""
        self.run = self.agent.run("go", attended=True, show=False)
        await self.run.settled()
        self.id = self.run.interrupts[0].id

    def journal(self) -> Journal:
        """The run as another process reads it."""
        journal = Journal(self.run.id, self.store)
        journal.catch_up()
        return journal

    # --- the ways to answer

    def code(self) -> None:
        self.run.restart(self.id, data="code")

    def form(self) -> None:
        session_of(self.run).resolve(self.id, nb.Restart(data="form"), by="form").result(20)

    def token(self) -> None:
        nb.answer_external(self.tokens[0], "token").event  # noqa: B018 - waits for the store

    def record(self) -> None:
        answer_by_record(self.journal(), self.id, nb.Restart(data="record"), ("x", time.time()))

    def inbox(self) -> None:
        inbox = InboxEntry(self.store, agents=[self.agent])
        (asked,) = inbox.look() or [None]
        if asked is None:
            raise NotPending("the inbox asks nothing any more")
        asyncio.run(inbox.answer(asked, nb.Restart(data="inbox"), by="inbox"))

    def reject(self) -> None:
        self.run.reject(self.id, "no")


DOORS: dict[str, Callable[[Desk], None]] = {
    name: getattr(Desk, name) for name in ("code", "form", "token", "record", "inbox", "reject")
}


@pytest.mark.parametrize(
    "doors", list(itertools.combinations_with_replacement(DOORS, 2)), ids="-".join
)
async def test_p2_of_two_concurrent_answers_by_any_two_ways_one_counts(doors):
    """The other caller gets an error; the body runs once, or not at all."""
    desk = Desk()
    await desk.begin()
    both, said = threading.Barrier(2), []

    def come(door: str) -> None:
        both.wait(20)
        try:
            DOORS[door](desk)
        except (Conflict, NotPending) as error:
            said.append(error)
        else:
            said.append(door)

    await asyncio.gather(*(asyncio.to_thread(come, door) for door in doors))
    assert (await asyncio.wait_for(desk.run, 60)).text == "done"
    won = [one for one in said if isinstance(one, str)]
    assert len(won) == 1, said
    settled = [e for e in desk.run.journal if e.type == "resolved"]
    assert [e.id for e in settled] == [desk.id]
    assert desk.ended == ([] if won[0] in ("token", "reject") else won)


async def answered_by_twenty(run: nb.Run, agent: Any, store: nb.MemoryStore) -> list[Any]:
    """The accepted answers to the first open question, of twenty at once over card, shell and inbox."""
    asked, all_here, accepted = run.interrupts[0].id, threading.Barrier(20), []

    def come(number: int) -> None:
        given: Any = nb.Restart() if number % 2 else nb.Reject(f"{number}")
        inbox = InboxEntry(store, agents=[agent])
        (mine,) = [one for one in inbox.look() if one.interrupt.id == asked]
        journal = Journal(run.id, store)
        journal.catch_up()
        all_here.wait(30)
        try:
            match number % 3:
                case 0:
                    session_of(run).resolve(asked, given, by="form").result(20)
                case 1:
                    answer_by_record(journal, asked, given, ("shell", time.time()))
                case _:
                    asyncio.run(inbox.answer(mine, given, by="inbox"))
        except (Conflict, NotPending):
            return
        accepted.append(given)

    with ThreadPoolExecutor(20) as threads:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(threads, come, n) for n in range(20)))
    return accepted


async def test_p1_an_expiry_answers_only_after_the_deadline():
    """A false claim about the time neither applies the default early nor allows a late answer."""
    desk = Desk()
    await desk.begin()
    state = desk.run._session.state
    for stamp in (("expiry", 5e9), ("code", 5e9)):
        with pytest.raises(Conflict, match="has not expired yet"):
            answer(state, desk.id, TIME_IS_OVER, desk.agent.tools, stamp)
    await desk.run.cancel()
    agent = nb.Agent(nb.ScriptedModel([call("hurry"), "done"]))

    @agent.tool
    def hurry(ctx: nb.ToolContext) -> str:
        ctx.interrupt(expires_in=60, on_expire=nb.Respond("default"))

    run = agent.run("go", attended=True, show=False)
    await run.settled()
    asked, state = run.interrupts[0], session_of(run).state
    for by in ("code", "expiry"):
        with pytest.raises(Conflict, match="has expired"):
            answer(state, asked.id, nb.Respond("mine"), agent.tools, (by, time.time() + 61))
    late = answer(state, asked.id, TIME_IS_OVER, agent.tools, ("code", time.time() + 61))
    assert (late.by, late.resolution) == ("expiry", nb.Respond("default"))
    await run.cancel()
