"""A process under attack: forked from the attack, which sends commands through a pipe.

The process has an agent with a tool of each kind. It drives, answers and cancels runs of one store, and dies
at a given moment or time. Each body writes a line to the file ``effects`` when it runs; each accepted answer
is written to the file ``accepted``.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import SecretStr

import nbagent as nb
from nbagent import cli
from nbagent.core.base import process
from nbagent.core.base.events import StoredEvent, dump
from nbagent.core.base.model import ModelDelta, Request, ToolCallDelta
from nbagent.core.journal.journal import Journal
from nbagent.core.journal.rows import first_broken
from nbagent.core.run import heartbeat
from nbagent.core.run.answers import interrupts_of
from nbagent.core.stored.opening import answer_stored
from nbagent.stores import sqlite
from tests.integration.process_worker import Caller
from tests.until import until

SECRET = "hunter2"
"""A part of every secret; no file may contain it."""
ENDED = ("completed", "failed", "cancelled")
Tell = Callable[..., None]

_moments = itertools.count(1)
_last = [0]
_deaths = [Path("deaths")]
"""The file with the places at which processes died."""
_appending = threading.local()
"""The type of the first event that this thread is appending."""


def moment(place: str) -> None:
    """Count a moment at this place; kill this process at its last moment."""
    if next(_moments) == _last[0]:
        with _deaths[0].open("a") as file:
            file.write(f"{place}\n")
        os.kill(os.getpid(), signal.SIGKILL)


class _Momentous:
    """A store with moments in each append: before it, before the commit, and after it."""

    def append(self, run_id: str, events: Sequence[StoredEvent], expected: int) -> None:
        first = events[0].type if events else "nothing"
        moment(f"before {first}")
        _appending.first = first
        try:
            super().append(run_id, events, expected)  # type: ignore[misc]
        finally:
            _appending.first = None
        moment(f"after {first}")


class Momentous(_Momentous, nb.SQLiteStore):
    """A store in a file."""


def _dying() -> None:
    if getattr(_appending, "first", None):
        moment(f"in {_appending.first}")


def store_in(folder: Path) -> Any:
    """The store of a round: a file, or the database whose URL is in the file ``url``."""
    if not (folder / "url").exists():
        return Momentous(folder / "runs.db")
    import sqlalchemy  # noqa: PLC0415 - for rounds on a server alone

    from nbagent.stores.sql import SQLStore  # noqa: PLC0415 - as above

    class Served(_Momentous, SQLStore):
        """A store on a server."""

    store = Served((folder / "url").read_text())
    sqlalchemy.event.listen(store._engine, "commit", lambda _connection: _dying())
    return store


@contextmanager
def _dying_before_the_commit(connection: Any, *kind: Any) -> Iterator[Any]:
    with _transaction(connection, *kind) as within:
        yield within
        _dying()


_transaction = sqlite._transaction
sqlite._transaction = _dying_before_the_commit


class Teller(Caller):
    """A ``Caller`` that replaces ``$SECRET`` by the secret, which must be in no prompt."""

    async def stream(self, request: Request) -> AsyncIterator[ModelDelta]:
        """The response that the prompt names, with a moment before each piece."""
        async for delta in super().stream(request):
            moment("in a model call")
            await asyncio.sleep(0)
            if isinstance(delta, ToolCallDelta) and delta.name == "secretive":
                told = delta.arguments.replace("$SECRET", SECRET)
                delta = ToolCallDelta(delta.index, told, delta.id, delta.name)  # noqa: PLW2901
            yield delta
        moment("in a model call")


def make_agent(store: Any, folder: Path) -> tuple[nb.Agent, nb.Flow[..., Any]]:
    """The agent of every process, whose banker has the same tools; and one tool body as a flow."""

    def tell(what: str, token: str) -> None:
        moment("in a body")
        with (folder / "effects").open("a") as file:
            file.write(f"{what} {token} {os.getpid()}\n")
        moment("in a body")

    banker = nb.Agent(Teller(), name="banker")
    agent = nb.Agent(Teller(), store=store, max_turns=6, on_tool_error="raise")
    agent.add(banker.as_tool())
    for one in (agent, banker):
        one.policy = [nb.deny("denied")]
        add_tools(one, tell)
        add_asking_tools(one, tell)
    calls = add_calling(agent, banker, tell)
    fragile(agent, tell, folder)
    return agent, nb.flow(calls).with_options(store=store)


async def _while() -> None:
    await asyncio.sleep(random.choice((0, 0, 0.002, 0.01)))


def add_tools(agent: nb.Agent, tell: Tell) -> None:
    """Add the tools that ask nothing, or only for approval."""

    @agent.tool
    async def plain(token: str) -> str:
        await _while()
        tell("plain", token)
        await _while()
        return f"did {token}"

    @agent.tool
    def thread(token: str) -> str:
        time.sleep(random.choice((0, 0.005)))
        tell("thread", token)
        return f"did {token}"

    @agent.tool
    async def streaming(token: str) -> AsyncIterator[str]:
        yield "did "
        await _while()
        tell("streaming", token)
        yield token

    @agent.tool(idempotent=True)
    async def steady(token: str) -> str:
        tell("steady", token)
        await _while()
        return f"did {token}"

    @agent.tool(approval=True, editable=["amount"])
    async def approved(token: str, amount: int) -> str:
        await _while()
        tell("approved", token)
        return f"did {token} {amount}"

    @agent.tool(approval=True, editable=True)
    def secretive(token: str, password: SecretStr) -> str:
        assert password.get_secret_value() == f"{SECRET}-{token}"
        tell("secretive", token)
        return f"did {token}"

    @agent.tool
    async def denied(token: str) -> str:
        tell("denied", token)
        return f"did {token}"


def add_asking_tools(agent: nb.Agent, tell: Tell) -> None:
    """Add the tools whose bodies ask something."""
    agent.add(nb.interrupt_tool("question", output=str))

    @agent.tool
    async def gate(token: str, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(nb.Confirm(message="Sure?"), state={"token": token})
        tell("gate", token)
        await _while()
        return f"did {ctx.state['token']} {ctx.resumed.data}"

    @agent.tool
    async def hurried(token: str, ctx: nb.ToolContext) -> str:
        if not ctx.resumed:
            ctx.interrupt(expires_in=0.25)
        tell("hurried", token)
        return f"did {token}"

    @agent.tool
    async def asks(token: str, ctx: nb.ToolContext) -> str:
        await ctx.step("first", lambda: tell("step", token))
        color = await ctx.ask("Which color?", reply=str)
        size = await ctx.ask("Which size?", reply=int)
        tell("asks", token)
        await _while()
        return f"did {token} {color} {size}"

    @agent.tool
    def asks_in_thread(token: str, ctx: nb.ToolContext) -> str:
        color = ctx.ask_sync("Which color?", reply=str)
        tell("asks_in_thread", token)
        return f"did {token} {color}"

    @agent.tool
    async def asks_secret(token: str, ctx: nb.ToolContext) -> str:
        secret = await ctx.ask("Which password?", reply=SecretStr)
        assert secret.get_secret_value() == f"{SECRET}-{token}"
        tell("asks_secret", token)
        return f"did {token}"


def add_calling(agent: nb.Agent, banker: nb.Agent, tell: Tell) -> Callable[..., Any]:
    """A body with steps that calls two tools, one with approval, and runs an agent that asks."""

    @nb.tool
    async def called(token: str) -> str:
        tell("called", token)
        await _while()
        return f"did {token}"

    @nb.tool(approval=True)
    async def called_approved(token: str) -> str:
        await _while()
        tell("called_approved", token)
        return f"did {token}"

    async def calls(token: str, ctx: nb.ToolContext) -> str:
        await ctx.step("first", lambda: tell("calls_step", token))
        told = []
        for n, (tool, kind) in enumerate(((called, "a"), (called_approved, "b"))):
            try:
                told.append(await ctx.call(tool, token=f"{token}.{kind}"))
            except (nb.Rejected, nb.errors.ToolFailed):
                told.append("refused")
            await ctx.step(f"after {n}", lambda n=n: tell(f"calls_after_{n}", token))
        inside = json.dumps(
            [[["gate", {"token": f"{token}.g"}], ["plain", {"token": f"{token}.p"}]]]
        )
        told.append((await banker.run(inside)).text)
        tell("calls", token)
        return f"did {token} {told}"

    agent.tool(calls)
    return calls


def fragile(agent: nb.Agent, tell: Tell, folder: Path) -> None:
    """Add a tool that fails once, which fails its run."""

    @agent.tool
    async def fails_once(token: str) -> str:
        tell("fails_once", token)
        once = folder / f"failed-{token}"
        if not once.exists():
            once.touch()
            raise ValueError(token)
        return f"did {token}"


def an_answer(i: nb.PendingInterrupt, chance: random.Random) -> Any:
    """A random answer that is valid for an interrupt."""
    token, often = i.input.get("token", ""), chance.random() < 0.8
    password = f"{SECRET}-{token}"
    if i.kind == "lost":
        given = nb.Respond(f"given {token}")
        return chance.choice((nb.Restart(), nb.Restart(), given, nb.Reject("no")))
    if i.kind == "budget":
        return nb.Respond(5)
    if i.kind == "ask":
        value = {"asks_secret": password}.get(i.tool_name, f"c{chance.randrange(99)}")
        message = i.metadata.get("message", "") if isinstance(i.metadata, dict) else ""
        return (
            nb.Respond(chance.randrange(99) if "size" in message else value)
            if often or chance.random() < 0.7
            else nb.Reject("no")
        )
    if i.kind == "question":
        return nb.Respond(f"a{chance.randrange(99)}")
    if not often:
        return nb.Reject("no")
    if i.tool_name == "secretive":
        return nb.Restart({"token": token, "password": password})
    if i.tool_name == "approved" and chance.random() < 0.3:
        return nb.Restart({**i.input, "amount": 7})
    return nb.Restart(data="go") if i.kind == "tool" else nb.Restart()


async def _at(at: float) -> None:
    await asyncio.sleep(max(0.0, at - time.time() - 0.005))
    _spin(at)


def _spin(at: float) -> None:
    time.sleep(max(0.0, at - time.time() - 0.002))
    while time.time() < at:
        pass


def _here(words: list[str]) -> tuple[int, str]:
    """Run the command in this process; return its exit code and error output."""
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        return cli.main(words), said.getvalue()


def _as_a_process(words: list[str]) -> tuple[int, str]:
    """Run the command in a new process, as a shell does."""
    command = [sys.executable, "-m", "nbagent", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


class Worker:
    """Executes commands on runs of one store."""

    def __init__(self, store: Any, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.agent, self.flow = make_agent(store, folder)
        self.runs: dict[str, nb.Run] = {}
        self.unhandled: list[str] = []
        self._answers = itertools.count(1)

    def heard(self, _loop: object, context: dict[str, Any]) -> None:
        """Note an exception that nothing handled."""
        self.unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    # --- kills

    async def die(self, *, moment: int, seconds: float, machine: str, seed: int) -> None:
        """Die at the n-th moment from now, or after these seconds, whichever comes first."""
        random.seed(seed)
        if machine:
            process._machine = lambda: machine
            process.this_process.cache_clear()
        if moment:
            _last[0] = next(_moments) + moment
        signal.setitimer(signal.ITIMER_REAL, seconds)  # no handler: SIGALRM ends the process

    async def begin(self, turns: list[Any], *, attended: bool = True) -> str:
        """Start a run; return its id."""
        run = self.agent.run(json.dumps(turns), attended=attended, show=False)
        self.runs[run.id] = run
        await self._begun(run)
        return run.id

    async def begin_flow(self, token: str, *, attended: bool) -> list[str]:
        """Start a flow; return its id."""
        run = self.flow.with_options(attended=attended, show=False).run(token)
        self.runs[run.id] = run
        await self._begun(run)
        return [run.id]

    async def begin_thread(
        self, first: list[Any], second: list[Any], *, kind: str, attended: bool
    ) -> list[str]:
        """Start a run, in a chat or in the background, and a second run that waits for its end."""
        options: dict[str, Any] = {"attended": attended, "show": False}
        if kind == "chat":
            one = self.agent.chat(**options).send(json.dumps(first))
        else:
            one = self.agent.run(json.dumps(first), background=kind == "background", **options)
        runs = [one, self.agent.run(json.dumps(second), after=one, **options)]
        self.runs |= {run.id: run for run in runs}
        await self._begun(*runs)
        return [run.id for run in runs]

    async def _begun(self, *runs: nb.Run) -> None:
        """Wait until other processes find the runs; writes to a server happen in a thread."""
        await until(lambda: {run.id for run in runs} <= set(self.store.run_ids()))

    async def pilots(self, run_ids: list[str], **how: Any) -> list[Any]:
        """Call ``pilot`` for one run after the other."""
        return [await self.pilot(run_id, **how) for run_id in run_ids]

    async def answer_by_record(self, run_ids: list[str], *, seed: int) -> list[str]:
        """For up to 3 s, answer the questions of runs without driving them, like a terminal or an inbox."""
        chance, until = random.Random(seed), time.monotonic() + 3
        for run_id in run_ids:
            journal = Journal(run_id, self.store)
            while time.monotonic() < until:
                journal.catch_up()
                state = journal.state
                if state.outcome is not None:
                    break
                for i in interrupts_of(state, {}, state.agent):
                    await self._answer_record(journal, i, an_answer(i, chance))
                await asyncio.sleep(chance.choice((0.002, 0.01)))
        return []

    async def _answer_record(self, journal: Journal, i: nb.PendingInterrupt, given: Any) -> str:
        by = f"{os.getpid()}-{next(self._answers)}"
        moment("before an answer by record")
        try:
            await answer_stored(journal, i.id, given, by=by)
        except (nb.Conflict, nb.errors.NotPending, nb.errors.InvalidAnswer) as error:
            return f"{type(error).__name__}: {error}"
        self._accepted(journal.run_id, i, by, given)
        moment("after an answer by record")
        return "won"

    async def pilot(self, run_id: str, *, how: str, seed: int, cancels: float = 0) -> Any:
        """Drive a run and answer its questions; return how the run ended.

        With ``how`` "settled" or "unattended", wait until the run needs an answer. "eager" looks for
        questions all the time. "waits" answers nothing.
        """
        chance = random.Random(seed)
        if run_id not in self.runs:
            attended = how != "unattended"
            self.runs[run_id] = await nb.open_run(
                run_id, agent=self._of(run_id), attended=attended, show=False
            )
        run, stalled = self.runs[run_id], 0
        while run.status not in ENDED and stalled < 400:
            if how == "settled":
                await run.settled()
            elif how == "waits":
                await run.settled()
                await asyncio.sleep(0.01)
                continue
            elif how == "unattended":
                with suppress(nb.HumanInputRequired, nb.errors.RunError):
                    await run
            await asyncio.sleep(chance.choice((0, 0.002, 0.01)))
            if chance.random() < cancels:
                await run.cancel()
            asked = chance.sample(run.interrupts, len(run.interrupts))
            stalled = 0 if asked or how == "eager" or run.status == "interrupted" else stalled + 1
            for i in asked:
                await self._answer(run, i, an_answer(i, chance))
                if chance.random() < 0.3:
                    break
        if run.status not in ENDED:
            return {"status": f"settled again and again, {run!r}", "unhandled": self.unhandled}
        return await self.end(run_id)

    def _of(self, run_id: str) -> nb.Agent | nb.Flow[..., Any]:
        return self.flow if getattr(self.store.read(run_id)[0], "flow", False) else self.agent

    async def _answer(self, run: nb.Run, i: nb.PendingInterrupt, resolution: Any) -> str:
        by = f"{os.getpid()}-{next(self._answers)}"
        try:
            await run.resolve(i, resolution, by=by)
        except (nb.Conflict, nb.errors.NotPending) as error:
            return str(error)
        self._accepted(run.id, i, by, resolution)
        return "won"

    def _accepted(self, run_id: str, i: nb.PendingInterrupt, by: str, resolution: Any) -> None:
        with (self.folder / "accepted").open("a") as file:
            file.write(json.dumps([run_id, i.id, by, resolution.type]) + "\n")

    async def end(self, run_id: str) -> Any:
        """A run's end and the unhandled errors of this process; the run's handle is dropped."""
        run = self.runs.pop(run_id)
        text = ""
        try:
            text = (await run).text
        except nb.NbagentError as error:
            text = f"{type(error).__name__}: {error}"
            if run.status == "failed":  # other processes raise it as a RunError
                text = text.removeprefix("RunError: ")
        unhandled, self.unhandled = self.unhandled, []
        kept = [event.type for event in run.journal]
        return {"status": run.status, "text": text, "journal": kept, "unhandled": unhandled}

    async def journal(self, run_id: str) -> list[str]:
        """The stored events of a run, as JSON."""
        assert first_broken(run_id, self.store.rows(run_id)) is None, "a seal is broken"
        journal = Journal(run_id, self.store)
        journal.catch_up()
        return [dump(event) for event in journal.read()]

    # --- races

    async def settle(self, run_id: str) -> Any:
        """Open the run if needed, wait until only answers can continue it, and return its questions."""
        if run_id not in self.runs:
            self.runs[run_id] = await nb.open_run(
                run_id, agent=self.agent, attended=True, show=False
            )
        run = await self.runs[run_id].settled()
        return [(i.tool_name, i.id, i.kind, i.expires_at) for i in run.interrupts]

    async def race(self, run_id: str, at: float, acts: list[Any], seed: int) -> list[Any]:
        """Do all acts on a run at one moment, each answer in its own thread."""
        chance = random.Random(seed)
        doing = [self._act(run_id, at + chance.random() * 0.004, *act) for act in acts]
        return await asyncio.gather(*doing)

    def _command(self, run_id: str, interrupt: str) -> list[str]:
        """The words that a person types in a terminal, after ``nbagent``."""
        url = self.folder / "url"
        place = url.read_text() if url.exists() else str(self.folder / "runs.db")
        return ["answer", run_id, interrupt, "--approve", "--store", place]

    async def _act(self, run_id: str, at: float, what: str, interrupt: str = "") -> list[Any]:
        run: Any = self.runs.get(run_id)
        by = f"{os.getpid()}-{next(self._answers)}"
        try:
            if what in ("cancel", "retry", "fork"):
                await _at(at)
                if what == "cancel":
                    await run.cancel(by=by)
                elif what == "retry":
                    run.retry()
                else:
                    forked = run.fork(at=interrupt or None)
                    self.runs[forked.id] = forked
                    by = forked.id
            elif what in ("terminal", "command"):
                by = "command line"
                if what == "terminal":  # start earlier: the command first opens the store
                    await _at(at - random.uniform(0, 0.04))
                words = self._command(run_id, interrupt)
                doing = _here if what == "terminal" else _as_a_process
                code, told = await asyncio.to_thread(doing, words)
                if code:
                    return [what, by, f"exit code {code}: {told}"]
            else:
                resolution = {
                    "restart": nb.Restart(),
                    "respond": nb.Respond("given"),
                    "reject": nb.Reject("no"),
                }[what]

                def answer() -> None:
                    _spin(at)
                    _ = run.resolve(interrupt, resolution, by=by).event

                await asyncio.to_thread(answer)
        except nb.NbagentError as error:
            return [what, by, f"{type(error).__name__}: {error}"]
        return [what, by, "won"]


async def serve(worker: Worker, pipe: Connection) -> None:
    """Execute the commands from the pipe, one at a time."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(worker.heard)
    while True:
        try:
            verb, arguments = await loop.run_in_executor(None, pipe.recv)
        except EOFError:
            return
        try:
            reply: Any = await getattr(worker, verb)(**arguments)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        pipe.send(reply)


def main(pipe: Connection, folder: Path) -> None:
    """Serve until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (folder / f"stderr-{os.getpid()}").open("w") as stderr:
        os.dup2(stderr.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, file=stderr, all_threads=True)
        heartbeat.BEAT = 0.5
        _deaths[0] = folder / "deaths"
        with store_in(folder) as store:
            asyncio.run(serve(Worker(store, folder), pipe))
