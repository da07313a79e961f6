"""Stores that fail for a moment: the run raises, continues once they work, and does nothing twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import pytest

import nbagent as nb
from nbagent.core.base.events import (
    MessageQueued,
    RunCancelled,
    RunFailed,
    RunStarted,
    StoredEvent,
)
from nbagent.core.base.messages import user
from nbagent.core.journal.journal import Journal
from nbagent.core.run.run import session_of
from tests.until import PATIENCE, turns, until

call = nb.ScriptedModel.call
Fails = Callable[[StoredEvent], bool]


def event_matches(kind: str, *, inside: bool = False) -> Fails:
    """A test for events of this type, of an inner run or not."""
    return lambda event: event.type == kind and bool(event.scope) == inside


class Shaky(nb.MemoryStore):
    """A store that fails once, before or after the first append of such an event."""

    def __init__(self, fails: Fails, when: Literal["before", "after"] = "before") -> None:
        super().__init__()
        self.fails: Fails | None = fails
        self.when = when
        self.down = False

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        if self.down:
            raise OSError("no space left on device")
        now = self.fails is not None and any(map(self.fails, events))
        if now:
            self.fails = None
        if now and self.when == "before":
            raise OSError("no space left on device")
        super().append(run_id, events, expected)
        if now:
            raise OSError("the connection broke")


async def test_a_store_that_refuses_without_a_reason_fails_the_run_and_loses_no_outcome():
    """It says that the journal has grown, but has no new events; the run does not ask it for ever."""

    class Refusing(nb.MemoryStore):
        refuses = True

        def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
            if self.refuses and any(event.type == "tool_finished" for event in events):
                raise nb.Conflict("the journal has grown")
            super().append(run_id, events, expected)

    store, did = Refusing(), []
    agent = nb.Agent(nb.ScriptedModel([call("work"), "done"]), store=store)

    @agent.tool
    def work() -> str:
        did.append("once")
        return "worked"

    run = agent.run("go")
    with pytest.raises(nb.errors.StoreError, match="has no new events: the journal has grown"):
        await run
    store.refuses = False
    run.retry()
    await run
    assert (did, run.calls["work"][0].output) == (["once"], "worked")


def banker(store: Any, sent: list[float]) -> nb.Agent:
    """An agent that sends money once a person approves."""

    def script(messages: Sequence[Any]) -> Any:
        done = any(message["role"] == "tool" for message in messages)
        return "done" if done else [call("transfer", amount=5.0)]

    agent = nb.Agent(nb.ScriptedModel(script), policy=[nb.review("transfer")], store=store)

    @agent.tool
    def transfer(amount: float) -> str:
        sent.append(amount)
        return "sent"

    return agent


async def approved(agent: nb.Agent) -> nb.Run:
    """A run whose transfer was approved, once it has settled."""
    run = agent.run("go", attended=True)
    await run.settled()
    run.restart(run.interrupts[0])
    return await run.settled()


def types(run: nb.Run) -> list[str]:
    """The types of the run's events."""
    return [event.type for event in run.journal]


async def test_a_result_that_could_not_be_stored_is_stored_by_the_retry() -> None:
    """The transfer is not made again: the process still has the result."""
    sent: list[float] = []
    run = await approved(banker(Shaky(event_matches("tool_finished")), sent))
    assert (run.status, sent) == ("failed", [5.0])
    assert (await run.retry()).text == "done"
    assert sent == [5.0]
    assert types(run)[-4:] == ["run_retried", "tool_finished", "model_responded", "run_completed"]


async def test_another_handle_of_the_process_can_store_the_result_as_well() -> None:
    """The unstored result belongs to the run, not to the handle."""
    sent: list[float] = []
    store = Shaky(event_matches("tool_finished"))
    agent = banker(store, sent)
    run = await approved(agent)
    other = await nb.open_run(run.id, agent=agent, store=store, attended=True)
    assert (await other.retry()).text == "done"
    assert sent == [5.0]


@pytest.mark.parametrize("look", ["go_on", "follow"])
async def test_watching_a_run_as_it_fails_does_not_hide_the_error(look: str) -> None:
    """The look does not start the driver again, so awaiting raises the run's own error."""

    class Watched(Shaky):
        def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
            super().append(run_id, events, expected)
            if events[0].type == "run_failed":
                getattr(session_of(run), look)()

    agent = banker(Watched(event_matches("tool_finished")), [])
    run = agent.run("go", attended=True)
    await run.settled()
    run.restart(run.interrupts[0])
    await run.settled()
    for _ in range(2):
        with pytest.raises(nb.errors.StoreError, match="no space left"):
            await run
        session_of(run).follower.look()


async def test_a_fork_or_history_of_such_a_run_does_not_repeat_the_call() -> None:
    """A fork has the result; the messages say that the outcome is unknown."""
    sent: list[float] = []
    agent = banker(Shaky(event_matches("tool_finished")), sent)
    run = await approved(agent)
    assert (await run.fork()).text == "done"
    with pytest.raises(nb.errors.StoreError) as error:
        await run
    for messages in (error.value.messages, run.messages):
        with pytest.raises(nb.errors.MessagesError, match="It may or may not have taken effect"):
            await agent.generate(messages=list(messages))
    assert sent == [5.0]


async def test_another_process_does_not_repeat_a_call_that_may_have_taken_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outcome is unknown there, and the error names the call."""
    sent: list[float] = []
    run = await approved(banker(Shaky(event_matches("tool_finished")), sent))
    monkeypatch.setattr("nbagent.core.state.retried_calls.this_process", lambda: "elsewhere:1:1")
    with pytest.raises(nb.errors.UsageError, match="was running these calls: 'transfer'"):
        run.retry()
    assert (run.status, sent) == ("failed", [5.0])


async def test_a_run_continues_once_its_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither result nor failure could be stored; the first retry that can be stored stores both."""
    caplog.set_level(logging.CRITICAL, "nbagent")
    sent: list[float] = []
    store = Shaky(lambda event: False)
    agent = banker(store, sent)
    run = agent.run("go", attended=True)
    await run.settled()
    store.fails = lambda event: setattr(store, "down", event.type == "tool_finished") or store.down
    run.restart(run.interrupts[0])
    await run.settled()
    assert run.status == "failed"
    assert types(run)[-1] == "run_failed"
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        run.retry()
    assert run.status == "failed"
    store.down = False
    assert (await run.retry()).text == "done"
    assert sent == [5.0]
    assert types(run)[-5:-3] == ["run_failed", "run_retried"]
    assert run.journal == store.read(run.id)
    assert (await nb.open_run(run.id, agent=agent, store=store)).status == "completed"


async def test_an_end_that_was_not_stored_loses_to_events_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A handle that could not store its end reads the run from the store again."""
    caplog.set_level(logging.CRITICAL, "nbagent")
    store = Shaky(lambda event: False)
    agent = banker(store, [])
    run = agent.run("go", attended=True)
    await run.settled()
    await until(lambda: not session_of(run).is_active)
    await turns()  # the look at the last write
    store.down = True
    await run.cancel()
    assert run.status == "cancelled"
    store.down = False
    other = await nb.open_run(run.id, agent=agent, store=store, attended=True)
    assert other.status == "interrupted"
    other.restart(other.interrupts[0])
    assert (await other).text == "done"
    await run.cancel()
    assert run.status == "completed"
    assert run.journal == other.journal == store.read(run.id)
    assert (run.messages, run.usage) == (other.messages, other.usage)


@pytest.mark.parametrize("kind", ["tool_started", "interrupted", "step_finished"])
@pytest.mark.parametrize("swallows", [False, True])
async def test_c121_a_store_failure_during_a_tool_fails_the_run(kind: str, swallows: bool) -> None:
    """The model gets no failure of the tool, even if the tool swallows the error."""
    done: list[str] = []
    model = nb.ScriptedModel([call("pay"), "done"])
    agent = nb.Agent(model, store=Shaky(event_matches(kind)))

    @agent.tool
    async def pay(ctx: nb.ToolContext) -> str:
        try:
            await ctx.step("pay", lambda: done.append("paid"))
            return str(await ctx.ask("Which account?", reply=str))
        except nb.errors.StoreError:
            if swallows:
                return "never mind"
            raise

    run = agent.run("go", attended=True)
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        await run
    assert (run.status, len(model.requests)) == ("failed", 1)
    run.retry()
    await run.settled()
    assert run.interrupts[0].metadata["message"] == "Which account?"
    assert done == ["paid"]


@pytest.mark.parametrize("deep", [False, True])
async def test_c121_a_body_that_swallows_a_store_failure_does_not_wait_for_a_person(
    deep: bool,
) -> None:
    """The call fails the run, and nothing waits for an answer."""
    did: list[str] = []
    store = Shaky(lambda event: event.type == "tool_finished" and event.output == "paid")
    agent = nb.Agent(
        nb.ScriptedModel([call("both"), "done"]), store=store, policy=[nb.review("reviewed")]
    )

    @agent.tool
    async def reviewed() -> str:
        return "mine"

    async def asks(ctx: nb.ToolContext) -> str:
        return str(await ctx.call(reviewed)) if deep else await ctx.ask("Which account?")

    async def pays() -> str:
        await until(lambda: bool(run.interrupts))
        await turns()
        did.append("paid")
        return "paid"

    @agent.tool
    async def both(ctx: nb.ToolContext) -> str:
        told = await asyncio.gather(ctx.call(asks), ctx.call(pays), return_exceptions=True)
        return str(told)

    run = agent.run("go")
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        await asyncio.wait_for(run, PATIENCE)
    await run.retry().settled()
    (asked,) = run.interrupts
    run.restart(asked) if deep else run.respond(asked, "mine")
    assert (await asyncio.wait_for(run, PATIENCE)).text == "done"
    assert (run.calls["both"][0].output, did) == ("['mine', 'paid']", ["paid"])


async def test_c121_a_store_failure_in_an_inner_run_fails_the_outer_run() -> None:
    """An unstored response is not a failure of the inner agent."""
    inner = nb.Agent(nb.ScriptedModel(["lost", "found"]), name="inner")
    model = nb.ScriptedModel([call("inner", prompt="x"), "done"])
    agent = nb.Agent(
        model, tools=[inner.as_tool()], store=Shaky(event_matches("model_responded", inside=True))
    )
    run = agent.run("go")
    with pytest.raises(nb.errors.StoreError, match="no space left"):
        await run
    assert [e.error for e in run.journal if isinstance(e, RunFailed)] == ["StoreError"] * 2
    assert (await run.retry()).text == "done"
    assert "found" in str(run.result.messages)


async def test_a_store_error_raised_by_the_tool_itself_is_its_own_failure() -> None:
    """A tool that uses another store fails as tools do, and the model gets the error."""
    agent = nb.Agent(nb.ScriptedModel([call("archive"), "done"]))

    @agent.tool
    def archive() -> str:
        raise nb.errors.StoreError("the archive is closed")

    result = await agent.run("go")
    assert "The tool archive failed: StoreError: the archive is closed" in str(result.messages)


KINDS = ["model_responded", "tool_started", "tool_finished", "interrupted", "resolved"]


@pytest.mark.parametrize("kind", [*KINDS, "run_completed"])
async def test_an_append_that_succeeded_and_raised_counts(kind: str) -> None:
    """A connection may break after the commit: stored events count, and nothing hangs."""
    sent: list[float] = []
    store = Shaky(event_matches(kind), "after")
    run = await approved(banker(store, sent))
    assert store.fails is None
    assert (await run).text == "done"
    assert sent == [5.0]
    assert run.journal == store.read(run.id)
    assert types(run).count(kind) == (2 if kind == "model_responded" else 1)


async def test_an_answer_with_an_unknown_outcome_is_found_later() -> None:
    """The caller gets an error; the run continues once the store can be read again."""

    class Cut(Shaky):
        cut = False

        def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
            try:
                super().append(run_id, events, expected)
            except OSError:
                self.cut = True
                raise

        def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
            if self.cut:
                self.cut = False
                raise OSError("no connection")
            return super().read(run_id, start)

    sent: list[float] = []
    run = banker(Cut(event_matches("resolved"), "after"), sent).run("go", attended=True)
    await run.settled()
    with pytest.raises(nb.errors.StoreError, match="the connection broke"):
        run.restart(run.interrupts[0])
    assert (await run).text == "done"
    assert sent == [5.0]


class Away(nb.MemoryStore):
    """A store that fails and recovers without notice."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: tuple[str, ...] = ()

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        if "writes" in self.fails:
            raise nb.errors.StoreError("the store is away")
        super().append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[StoredEvent]:
        if "reads" in self.fails:
            raise nb.errors.StoreError("the store is away")
        return super().read(run_id, start)


class FarAway:
    """The same store, called in threads: a call may end before anybody waits for it."""

    def __init__(self) -> None:
        self.near = Away()
        self.append, self.read = self.near.append, self.near.read
        self.run_ids, self.watch = self.near.run_ids, self.near.watch

    @property
    def fails(self) -> tuple[str, ...]:
        """The operations that fail."""
        return self.near.fails

    @fails.setter
    def fails(self, fails: tuple[str, ...]) -> None:
        self.near.fails = fails


STORES = [Away, FarAway]
TROUBLES = [("reads",), ("writes",), ("reads", "writes")]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("fails", TROUBLES, ids="+".join)
async def test_c226_a_queued_run_ends_with_a_run_cancelled_while_the_store_is_down(
    kind: Any, fails: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Once the store is back, the end is stored, and the queued run reads it."""
    caplog.set_level(logging.CRITICAL, "nbagent")
    store = kind()
    agent = banker(store, [])
    first = await agent.run("go", attended=True).settled()
    second = agent.run("and then", after=first, attended=True)
    await until(lambda: second.status == "queued")
    store.fails = fails
    await first.cancel()
    await asyncio.sleep(0.01)
    store.fails = ()
    await until(lambda: second.status == "cancelled")
    await until(lambda: [run_id for run_id in store.run_ids() if open_in(store, run_id)] == [])
    with pytest.raises(nb.errors.RunError, match="cancelled"):
        await second


def open_in(store: Any, run_id: str) -> bool:
    """Whether the store's journal of a run has no end."""
    return store.read(run_id)[-1].type != "run_cancelled"


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("fails", TROUBLES, ids="+".join)
async def test_an_answer_that_fails_while_the_store_is_down_can_be_given_again(
    kind: Any, fails: tuple[str, ...]
) -> None:
    """The error ends with the outage: awaiting the run waits for the answer and returns the result."""
    store, sent = kind(), list[float]()
    run = await banker(store, sent).run("go", attended=True).settled()
    store.fails = fails
    session_of(run).follow()
    with suppress(nb.errors.StoreError):
        await run.restart(run.interrupts[0])
    store.fails = ()
    await until(lambda: session_of(run).error is None)
    if run.interrupts:
        await run.restart(run.interrupts[0])
    assert ((await run).text, sent) == ("done", [5.0])


@pytest.mark.parametrize("kind", STORES)
async def test_a_look_that_fails_while_the_run_is_at_work_leaves_no_error_when_it_completes(
    kind: Any,
) -> None:
    store, asked, go_on = kind(), asyncio.Event(), asyncio.Event()

    async def script(_messages: Any) -> str:
        asked.set()
        await go_on.wait()
        return "done"

    run = nb.Agent(nb.ScriptedModel(script), store=store).run("go")
    await asked.wait()
    store.fails = ("reads",)
    follower = session_of(run).follower
    follower.follow()
    await until(lambda: follower.looks_finished == follower.looks_requested)
    store.fails = ()
    go_on.set()
    assert (await run).text == "done"
    assert session_of(run).error is None


async def test_an_end_discovered_by_a_refused_answer_reaches_all_waiters() -> None:
    """Waiting code and queued runs learn of the end, even if the store reports nothing."""

    class Slow(nb.MemoryStore):
        def watch(self, run_id: str, watcher: Any) -> bool:
            return True

    store = Slow()
    agent = banker(store, [])
    run = await agent.run("go", attended=True).settled()
    behind = agent.run("and then", after=run, attended=True)
    waiting = asyncio.ensure_future(asyncio.wait_for(run, PATIENCE))
    await turns()
    elsewhere = Journal(run.id, store)
    elsewhere.catch_up()
    elsewhere.end(RunCancelled(at=1.0, by="somebody else"))
    with pytest.raises(nb.Conflict, match="cancelled"):
        await run.restart(run.interrupts[0])
    with pytest.raises(nb.errors.RunError, match="somebody else"):
        await waiting
    await until(lambda: behind.status == "cancelled")


async def test_a_waiting_body_learns_of_an_end_discovered_by_a_refused_answer() -> None:
    """The driver ends with the run."""
    store = Away()
    agent = nb.Agent(nb.ScriptedModel([call("pay"), "done"]), store=store)

    @agent.tool
    async def pay(ctx: nb.ToolContext) -> str:
        return str(await ctx.ask("Which account?", reply=str))

    run = await agent.run("go", attended=True).settled()
    session = session_of(run)
    store.append(run.id, [RunCancelled(at=1.0, by="somebody else")], session.state.position)
    session.journal.catch_up()  # as a refused answer does
    session.follow()
    await until(lambda: not session.is_active)
    with pytest.raises(nb.errors.RunError, match="somebody else"):
        await run


def test_an_end_that_was_not_stored_gives_way_to_as_many_events_of_others() -> None:
    """Journal and store have the same length, but other events: the store is read again, nothing is lost."""
    store, now = Shaky(event_matches("run_cancelled")), 1.0
    journal = Journal("r", store)
    journal.commit(
        lambda _: [RunStarted(at=now, agent="a", model="m", messages=[user("go")], max_turns=20)]
    )
    journal.end(RunCancelled(at=now, by="code"))
    assert (len(journal.unstored_end), journal.state.position) == (1, 2)
    store.append("r", [MessageQueued(at=now, by="code", text="of another handle")], 1)
    journal.commit(lambda _state: [MessageQueued(at=now, by="code", text="of this one")])
    assert [event.type for event in store.read("r")] == [
        "run_started",
        "message_queued",
        "message_queued",
    ]
    assert (journal.unstored_end, journal.state.position) == ((), 3)
