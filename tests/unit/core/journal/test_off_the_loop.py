"""No store is called on an event loop: all methods of runs and chats, with a store that must be waited for."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import nbagent as nb
from nbagent.core.base.process import this_process
from nbagent.core.call.threads import running_loop
from nbagent.core.journal import writer
from nbagent.core.run import heartbeat
from nbagent.core.run.run import session_of
from tests.until import PATIENCE, until

call = nb.ScriptedModel.call
CALLS = ("append", "read", "run_ids", "heads", "rows", "put", "delete", "search", "beat", "beats")


class Guarded:
    """A store that records the calls on a thread with an event loop, which they would block."""

    def __init__(self) -> None:
        self.near = nb.MemoryStore()
        self.on_loop: list[str] = []
        self.count = 0


def _counted(name: str) -> Any:
    def called(self: Guarded, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if running_loop() is not None:
            self.on_loop.append(name)
        if name in ("beat", "beats"):  # memory has none
            return 1
        return getattr(self.near, name)(*args, **kwargs)

    return called


for _name in CALLS:
    setattr(Guarded, _name, _counted(_name))


def office(store: Any) -> nb.Agent:
    def script(messages: Any) -> Any:
        last = messages[-1]
        return "done" if last["role"] == "tool" else [call("pay", amount=1)]

    agent = nb.Agent(nb.ScriptedModel(script), name="office", store=store)

    @agent.tool(approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    return agent


class Door:
    """An agent, its store, and a run that waits for approval."""

    def __init__(self) -> None:
        self.store = Guarded()
        self.agent = office(self.store)
        self.options: dict[str, Any] = {"attended": True, "show": False}

    async def paused(self, **options: Any) -> nb.Run:
        return await self.agent.run("go", **self.options, **options).settled()

    async def paid(self) -> nb.Run:
        run = await self.paused()
        await run.approve(run.interrupts[0])
        await run
        return run


async def answered(door: Door) -> None:
    run = await door.paid()
    assert [event.type for event in run.journal][-1] == "run_completed"
    assert run.subscribe(lambda _: None) == run.journal
    assert [event async for event in run.events()]


async def named(door: Door) -> None:
    first = await door.agent.run("go", id="a", **door.options).settled()
    again = door.agent.run("go", id="a", **door.options)
    assert again is first


async def named_elsewhere(door: Door) -> None:
    await (await door.paused(id="a")).cancel()
    asked = {
        "cancelled": ("go", "a"),
        "has the prompt": ("else", "a"),
        "Pass a prompt": (None, "b"),
    }
    for told, (prompt, run_id) in asked.items():
        other = office(Guarded())
        other.store.near = door.store.near
        run = other.run(prompt, id=run_id, **door.options)
        for _ in range(2):
            with pytest.raises(nb.NbagentError, match=told):
                await run
        if prompt != "go":  # and a refused run is not found by that id
            assert other.run("go", id=run_id, **door.options) is not run
        door.store.on_loop += other.store.on_loop


async def after_each(door: Door) -> None:
    first = await door.paused()
    second = door.agent.run("then", after=first, **door.options)
    await first.approve(first.interrupts[0])
    await until(lambda: second.status == "interrupted")
    third = door.agent.run("instead", after=second, pending="reject", **door.options)
    await until(lambda: third.status == "interrupted")
    assert second.status == "cancelled"
    assert door.agent.run("more", after=third, pending="queue", **door.options) is third
    await third.approve(third.interrupts[0])
    await until(lambda: "message_queued" in [event.type for event in third.journal])


async def chatted(door: Door) -> None:
    chat = door.agent.chat(**door.options)
    run = chat.send("go")
    await run.settled()
    assert chat.send("and") is run
    await chat.stop()


async def forked(door: Door) -> None:
    run = await door.paused()
    fork = run.fork(at=run.interrupts[0])
    await until(lambda: fork.status == "interrupted")
    await fork.cancel()


async def retried(door: Door) -> None:
    def script(messages: Any) -> Any:
        if not door.options.get("is_up"):
            raise OSError("the model is down")
        return "done"

    agent = nb.Agent(nb.ScriptedModel(script), name="shaky", store=door.store)
    run = agent.run("go", attended=True, show=False)
    await run.settled()
    door.options["is_up"] = True
    run.retry()
    assert (await run).text == "done"


async def opened(door: Door) -> None:
    run_id = (await door.paused()).id
    run = await nb.open_run(run_id, agent=door.agent, **door.options)
    assert run.journal
    await run.release()
    await run.take_over()
    await run.cancel()


async def by_token(door: Door) -> None:
    tokens: list[str] = []

    async def wire(ctx: nb.ToolContext) -> str:
        tokens.append(ctx.external_token)
        ctx.interrupt("wait", external=True)

    model = nb.ScriptedModel([call("wire"), "done"])
    agent = nb.Agent(model, tools=[nb.tool(wire)], store=door.store)
    run = await agent.run("go", **door.options).settled()
    await nb.answer_external(tokens[0], "sent")
    assert (await run).text == "done"


async def settled_in_each_way(door: Door) -> None:
    for settle in (nb.Run.restart, nb.Run.reject, nb.Run.respond):
        run = await door.paused()
        answer = {"respond": ("paid",)}.get(settle.__name__, ())
        await settle(run, run.interrupts[0], *answer)  # type: ignore[operator]
        await run
    run = await door.paused()
    await run.resolve(nb.tool_restart(run.interrupts[0]))
    assert (await run).text == run.result.text == "done"
    assert [run.calls, run.messages, run.usage, run.partials(), run.remembered]
    assert [run.to_html(), run.to_markdown(), run.to_notebook()]
    run.unsubscribe(print)


async def edited(door: Door) -> None:
    chat = door.agent.chat(**door.options)
    await chat.send("go").settled()
    run = chat.edit(chat.runs[-1], "instead")
    await until(lambda: run.status == "interrupted")
    assert [chat.messages, chat.to_html(), chat.to_markdown(), chat.to_notebook()]
    await chat.stop()


async def waited_for(door: Door) -> None:
    run = await door.paused()
    others = session_of(run).follower.others
    away = this_process().replace(":", ":0", 1).replace(this_process()[:4], "elsw", 1)
    for _ in range(2):
        others.has_ended(away)
        await until(lambda: not others._watched[away].is_asked)
        others._watched[away].looked -= heartbeat.BEAT
    assert others._watched[away].beats == 1
    await run.cancel()


DOORS: list[Callable[[Door], Coroutine[Any, Any, None]]] = [
    *(answered, named, named_elsewhere, after_each, chatted, forked, retried, opened, by_token),
    *(waited_for, settled_in_each_way, edited),
]
ON_THIS_THREAD = {"wait", "send_sync"}
"""Methods for code without a loop, which wait."""
NO_STORE = {"view"}
"""Methods that use no store."""


def test_each_method_of_a_run_and_a_chat_is_covered_here() -> None:
    """A new method is used here, or listed as an exception."""
    names = {n for kind in (nb.Run, nb.Chat) for n in dir(kind) if not n.startswith("_")}
    source = "".join(map(inspect.getsource, [Door, *DOORS]))
    gone_through = {name for name in names if re.search(rf"\.{name}\b", source)}
    assert names - gone_through == ON_THIS_THREAD | NO_STORE


@pytest.mark.parametrize("use", DOORS, ids=lambda use: use.__name__)
async def test_no_method_of_a_run_blocks_the_loop_on_its_store(use: Any) -> None:
    """A run is started, opened, answered, followed and read while the loop continues."""
    door = Door()
    await use(door)
    assert door.store.count
    assert door.store.on_loop == []


async def test_a_run_by_its_id_returns_at_once_however_slow_the_store() -> None:
    """The loop continues during the search; the run starts once no such run was found."""
    door, free = Door(), threading.Event()
    read = door.store.near.read

    def slow(run_id: str, start: int = 0) -> Any:
        assert free.wait(PATIENCE)
        return read(run_id, start)

    door.store.near.read = slow  # type: ignore[method-assign]
    run = door.agent.run("go", id="a", **door.options)
    assert (run.id, run.status) == ("a", "running")
    free.set()
    await until(lambda: run.status == "interrupted")
    assert door.store.on_loop == []


async def test_writes_that_follow_each_other_share_their_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    monkeypatch.setattr(writer, "LINGER", 2.0)
    runs = 20
    for _ in range(runs):
        await Door().paid()
    # a few, as a thread wakes the loop just before it is idle
    assert started.count("nbagent-write") < runs / 2


class LateFork(Guarded):
    """A store that stores a fork only once another run is written, or after a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.is_forking = False
        self.is_other_written = threading.Event()

    def append(self, run_id: str, events: Any, expected: int) -> None:
        """Append to a run."""
        is_fork, self.is_forking = self.is_forking, False
        if is_fork:
            self.is_other_written.wait(0.2)
        elif not expected:
            self.is_other_written.set()
        self.near.append(run_id, events, expected)


async def test_a_run_behind_a_fork_is_stored_after_the_fork() -> None:
    """Its first event refers to the fork, and a store refuses a reference to a run that it does not have."""
    store = LateFork()
    agent = office(store)
    options: dict[str, Any] = {"attended": True, "show": False}
    run = await agent.run("go", **options).settled()
    store.is_other_written.clear()
    store.is_forking = True
    fork = run.fork()
    behind = await agent.run("and then?", after=fork, **options).settled()
    assert (behind.status, store.run_ids()) == ("queued", [run.id, fork.id, behind.id])
    await behind.cancel()
    await fork.cancel()
    await run.cancel()
