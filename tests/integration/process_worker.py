"""A worker process of the tests with several processes; reads a command per line from standard input.

    python -m tests.integration.process_worker STORE EFFECTS [MACHINE]

MACHINE is the machine name that the process reports, so that other processes cannot see it. The process answers
each line with a line of JSON. Each tool body writes a line to the file EFFECTS.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbagent as nb
from nbagent.core.base import process
from nbagent.core.base.messages import results_of
from nbagent.core.base.model import Finished, ModelDelta, Request, TextDelta, ToolCallDelta
from nbagent.core.run import heartbeat


class Caller:
    """A model that calls the tools named in the last prompt, turn by turn, then returns their results.

    The model is the same in every process, so any process can continue the run.
    """

    name = "caller"

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """The calls of the next turn in the prompt; after the last turn, the results."""
        asked = max(n for n, m in enumerate(request.messages) if m["role"] == "user")
        turns = json.loads(request.messages[asked]["content"][0]["text"])
        since = request.messages[asked:]
        done = sum(m["role"] == "assistant" for m in since)
        if done == len(turns):
            results = [p["output"] for m in since for p in results_of(m)]
            yield TextDelta(json.dumps(results))
            yield Finished("stop")
            return
        for index, (tool, arguments) in enumerate(turns[done]):
            yield ToolCallDelta(index, json.dumps(arguments), f"call_{index}", tool)
        yield Finished("tool_calls")


class Hanging(Caller):
    """A ``Caller`` that never answers after a result while the file HANG exists."""

    def __init__(self, hang: Path, note: Callable[[str], None]) -> None:
        self._hang, self._note = hang, note

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """Stream like ``Caller``, or never answer."""
        if self._hang.exists() and request.messages[1:]:
            self._note("hangs")
            await asyncio.Event().wait()
        async for delta in super().stream(request):
            yield delta


def make_agent(store: nb.SQLiteStore, effects: Path) -> nb.Agent:
    """The agent of every process, with tools, and a manager whose banker has the same tools."""

    def note(what: str) -> None:
        with effects.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    banker = nb.Agent(Hanging(effects.with_name("HANG"), note), name="banker")
    manager = nb.Agent(Caller(), name="manager", tools=[banker.as_tool()])
    agent = nb.Agent(Caller(), store=store, max_turns=5, tools=[manager.as_tool()])
    for one in (agent, banker):
        add_tools(one, note)
    add_starters(agent, banker, note)
    return agent


def add_starters(agent: nb.Agent, banker: nb.Agent, note: Callable[[str], None]) -> None:
    """Add two tools whose bodies start runs of the banker."""

    @agent.tool
    async def starts(prompt: str) -> str:
        """Have the banker do it, and wait for that."""
        note("starts")
        return (await banker.run(prompt)).text

    @agent.tool
    def starts_sync(prompt: str) -> str:
        """The same in a thread."""
        note("starts")
        return banker.run_sync(prompt).text


go_on = asyncio.Event()
"""The event that slow calls of this process wait for."""


def add_tools(agent: nb.Agent, note: Callable[[str], None]) -> None:
    """Add the tools: an ask, a gate that stores state, a look, slow tools, and questions inside a body."""
    agent.add(nb.interrupt_tool("ask", output=str))

    @agent.tool
    async def gate(amount: int, ctx: nb.ToolContext) -> str:
        """Pause, keeping a quote; then act on quote and answer."""
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Sure?"), state={"quote": amount * 2})
        note("gate")
        return f"{amount} {ctx.state} {ctx.resumed.data}"

    @agent.tool
    async def hurried(ctx: nb.ToolContext) -> str:
        """Pause for a quarter of a second."""
        if not ctx.resumed:
            ctx.interrupt(expires_in=0.25)
        note("hurried")
        return "in time"

    @agent.tool
    async def look(at: str) -> str:
        """Look at something."""
        note(f"look:{at}")
        return f"saw {at}"

    @agent.tool
    async def slow() -> str:
        """Take as long as the test wants."""
        note("slow")
        await go_on.wait()
        return "slept"

    @agent.tool(idempotent=True)
    def steady() -> str:
        """Take as long as the test wants, and do the same however often."""
        note("steady")
        while not go_on.is_set():
            time.sleep(0.01)
        return "set"

    @agent.tool
    async def asker(ctx: nb.ToolContext) -> str:
        """Ask at a line, and go on there."""
        note("before")
        color = await ctx.ask("Which color?", reply=str)
        note("after")
        return color

    @agent.tool
    async def twice(ctx: nb.ToolContext) -> list[str]:
        """Ask at two lines."""
        return [await ctx.ask(f"Which {what}?", reply=str) for what in ("color", "size")]


async def _moment(at: float) -> None:
    """Wait until exactly this time."""
    await asyncio.sleep(max(0.0, at - time.time() - 0.005))
    while time.time() < at:
        pass


class Worker:
    """Executes commands on runs of one store."""

    def __init__(self, store: nb.SQLiteStore, agent: nb.Agent) -> None:
        self.store, self.agent = store, agent
        self.runs: dict[str, nb.Run] = {}
        self.heard: dict[str, list[str]] = {}

    async def start(self, calls: list[Any], *, settle: bool = True) -> Any:
        """Start a run; return its id and its interrupts, once it is paused."""
        run = self.agent.run(json.dumps([calls]), attended=True, show=False)
        self._keep(run)
        if settle:
            await run.settled()
        return self._told(run)

    async def open(self, run_id: str, *, attended: bool = True, take_over: bool = False) -> Any:
        """Open a run."""
        self._keep(
            await nb.open_run(run_id, agent=self.agent, attended=attended, take_over=take_over)
        )
        return self._told(self.runs[run_id])

    async def answer(self, run_id: str, interrupt: str, at: float, **answer: Any) -> Any:
        """Answer at a given time; return "won" or the conflict."""
        run = self.runs[run_id]
        await _moment(at)
        try:
            if "output" in answer:
                await run.respond(interrupt, answer["output"])
            elif "reason" in answer:
                await run.reject(interrupt, answer["reason"])
            else:
                await run.restart(interrupt, **answer)
        except nb.Conflict as error:
            return str(error)
        return "won"

    async def cancel(self, run_id: str, at: float) -> Any:
        """Cancel at a given time."""
        await _moment(at)
        await self.runs[run_id].cancel()
        return "cancelled"

    async def answer_and_die(self, run_id: str, interrupt: str, data: Any) -> Any:
        """Store an answer, and exit right after that."""
        run = self.runs[run_id]
        run.subscribe(lambda _: os._exit(0))
        run.restart(interrupt, data=data)

    async def forget(self, run_id: str) -> None:
        """Drop the handle of a run, but keep the process."""
        del self.runs[run_id]
        gc.collect()

    async def let_go(self) -> None:
        """Let slow calls end."""
        go_on.set()

    async def finish(self, run_id: str) -> Any:
        """Wait for the result; return it with the events that were published."""
        run = self.runs[run_id]
        try:
            text = (await run).text
        except nb.NbagentError as error:
            text = f"{type(error).__name__}: {error}"
        kept = [event.type for event in run.journal]
        return {**self._told(run), "text": text, "heard": self.heard[run_id], "journal": kept}

    async def settle(self, run_id: str) -> Any:
        """Wait until only an answer can continue the run."""
        return self._told(await self.runs[run_id].settled())

    async def tell(self, run_id: str) -> Any:
        """The current state of a run."""
        return self._told(self.runs[run_id])

    async def shown(self, run_id: str) -> Any:
        """The ``repr`` of a run."""
        return repr(self.runs[run_id])

    def _keep(self, run: nb.Run) -> None:
        self.runs[run.id] = run
        self.heard[run.id] = [e.type for e in run.subscribe(lambda e: self._hear(run.id, e))]

    def _hear(self, run_id: str, heard: Any) -> None:
        if hasattr(heard, "at"):
            self.heard[run_id].append(heard.type)

    def _told(self, run: nb.Run) -> Any:
        return {
            "id": run.id,
            "status": run.status,
            "interrupts": {i.tool_name: i.id for i in run.interrupts},
            "messages": {i.tool_name: message_of(i) for i in run.interrupts},
            "states": {i.tool_name: i.state for i in run.interrupts},
            "inputs": {i.tool_name: i.input for i in run.interrupts},
            "deadlines": {i.tool_name: i.expires_at for i in run.interrupts},
            "paths": [[*i.path, i.id] for i in run.interrupts],
        }


def message_of(interrupt: nb.PendingInterrupt) -> Any:
    """The message of an interrupt."""
    metadata = interrupt.metadata
    return metadata.get("message") if isinstance(metadata, dict) else metadata


async def serve(worker: Worker) -> None:
    """Execute the commands from standard input, a line at a time."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, arguments = json.loads(line)
        try:
            reply: Any = await getattr(worker, verb)(**arguments)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


def main() -> None:
    """Serve until standard input ends."""
    store, effects, *machine = sys.argv[1:]
    if machine:
        process._machine = lambda: machine[0]
    heartbeat.BEAT = 0.5
    with suppress(KeyboardInterrupt), nb.SQLiteStore(store) as opened:
        asyncio.run(serve(Worker(opened, make_agent(opened, Path(effects)))))


if __name__ == "__main__":
    main()
