"""The ways a conversation is driven, behind one interface."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import nbagent as nb
from tests.unit.core.behavior.elsewhere import Elsewhere

Define = Callable[[nb.Agent], Any]
"""A function that adds a case's tools to an agent; called for every fresh agent."""


class Session:
    """A conversation under test. Answers are keyed by their place among the open interrupts."""

    live: ClassVar[bool] = False
    """Whether the session is a run, not messages for ``generate``."""

    def __init__(self, script: Any, define: Define | None, **options: Any) -> None:
        self.model = script if isinstance(script, nb.ScriptedModel) else nb.ScriptedModel(script)
        self._define = define
        self._options = options
        self.agent = self.fresh()
        self.interrupts: list[nb.PendingInterrupt] = []
        self.messages: tuple[Any, ...] = ()
        self.text = ""
        self.status = ""
        self.heard: list[Any] = []
        """The events of the last step, short-lived ones too."""

    def fresh(self) -> nb.Agent:
        """A new agent with new tools on the same model."""
        agent = nb.Agent(self.model, **self._options)
        if self._define is not None:
            self._define(agent)
        return agent

    def lose(self, tool: str) -> None:
        """Unregister a tool, in this agent and in every fresh agent."""
        self._define = Without(self._define, tool)
        del self.agent.tools[tool]

    async def start(self, prompt: str) -> None:
        """Start."""
        raise NotImplementedError

    async def answer(
        self,
        respond: Mapping[int, Any] | None = None,
        restart: Mapping[int, dict[str, Any]] | None = None,
        reject: Mapping[int, str | None] | None = None,
        *,
        partial: bool = True,
    ) -> None:
        """Answer some or all open interrupts, and continue."""
        raise NotImplementedError

    async def decide(self, decision: Any, where: str = "tool_responses") -> None:
        """Answer the first interrupt with any value; ``generate`` gets it in a list."""
        raise NotImplementedError

    async def say(self, prompt: str, **how: Any) -> None:
        """Send another message."""
        raise NotImplementedError

    async def retry(self) -> None:
        """Continue after a failure."""
        raise NotImplementedError

    async def branch(self) -> Self:
        """A second conversation in the same state."""
        raise NotImplementedError

    @property
    def results(self) -> list[Any]:
        """The outputs in the last tool message, in call order."""
        last = [m for m in self.messages if m["role"] == "tool"][-1]
        return [part["output"] for part in last["content"]]

    @property
    def requests(self) -> int:
        """The number of model calls."""
        return len(self.model.requests)


class Without:
    """A case's ``Define`` without one tool."""

    def __init__(self, define: Define | None, tool: str) -> None:
        self._define, self._tool = define, tool

    def __call__(self, agent: nb.Agent) -> None:
        if self._define is not None:
            self._define(agent)
        del agent.tools[self._tool]


class Steps(Session):
    """A conversation step by step."""

    async def start(self, prompt: str) -> None:
        await self.generate(prompt=prompt)

    async def answer(self, respond=None, restart=None, reject=None, *, partial=True) -> None:
        found = self.interrupts
        await self.generate(
            tool_responses=[nb.tool_response(found[n], v) for n, v in (respond or {}).items()],
            tool_restarts=[nb.tool_restart(found[n], **v) for n, v in (restart or {}).items()],
            tool_rejections=[nb.tool_rejection(found[n], v) for n, v in (reject or {}).items()],
            partial=partial,
        )

    async def decide(self, decision, where="tool_responses") -> None:
        await self.generate(**{where: [decision]})

    async def say(self, prompt, **how) -> None:
        await self.generate(prompt=prompt, **how)

    async def retry(self) -> None:
        await self.generate()

    async def branch(self) -> Self:
        other = copy.copy(self)
        other.heard = []
        return other

    async def generate(self, **arguments: Any) -> None:
        """Continue with arguments that only ``generate`` has."""
        self.heard.clear()
        try:
            response = await self.agent.generate(
                messages=self.messages, on_event=self.heard.append, **arguments
            )
        except nb.errors.RunError as error:
            self.messages = error.messages
            raise
        self.messages, self.text = response.messages, response.text
        self.interrupts = response.interrupts
        self.status = "completed"
        if response.finish_reason in ("interrupted", "tool_calls"):
            self.status = response.finish_reason


class Live(Session):
    """A live run in a store."""

    live = True
    run: nb.Run

    def __init__(self, script: Any, define: Define | None, *, store: Any, **options: Any) -> None:
        super().__init__(script, define, **options)
        self.store = store

    async def start(self, prompt: str) -> None:
        await self._follow(self.agent.run(prompt, store=self.store))

    async def _follow(self, run: nb.Run) -> None:
        self.listen(run)
        await self._settle()

    def listen(self, run: nb.Run) -> None:
        """Continue with this run."""
        self.run = run
        self.heard[:] = run.subscribe(self.heard.append)

    async def open(self, run_id: str) -> None:
        """Open a run of the same store, and read its state."""
        self.listen(await nb.open_run(run_id, agent=self.agent, store=self.store))
        self.look()

    def journal(self) -> list[Any]:
        """The stored events."""
        return self.run.journal

    async def wait(self) -> None:
        """Wait until the run has settled."""
        await self._settle()

    async def cancel(self) -> None:
        """Cancel the run."""
        await self.run.cancel()
        self.look()

    async def _settle(self) -> None:
        await self.run.settled()
        self.look()
        if self.status in ("failed", "cancelled"):
            await self.run

    def look(self) -> None:
        """Read the state of the run."""
        self.messages, self.interrupts = self.run.messages, self.run.interrupts
        self.status = self.run.status
        self.text = self.run.result.text if self.status == "completed" else ""

    async def answer(self, respond=None, restart=None, reject=None, *, partial=True) -> None:
        found = self.interrupts
        self.heard.clear()
        for n, value in (respond or {}).items():
            await self.run.respond(found[n], value)
        for n, options in (restart or {}).items():
            await self.run.restart(found[n], **options)
        for n, reason in (reject or {}).items():
            await self.run.reject(found[n], reason)
        await self._settle()

    async def decide(self, decision, where="tool_responses") -> None:
        await self.run.resolve(self.interrupts[0], decision)
        await self._settle()

    async def say(self, prompt, **how) -> None:
        how = {"pending": "raise", **how}  # the default of ``generate``
        await self._follow(self.agent.run(prompt, after=self.run, store=self.store, **how))

    async def retry(self) -> None:
        self.heard.clear()
        self.run.retry()
        await self._settle()

    async def branch(self) -> Self:
        other = copy.copy(self)
        other.heard = []
        await other._follow(self.run.fork())
        return other


class Json(Steps):
    """A conversation step by step; later steps are in processes that get the history as JSON."""

    def __init__(
        self, script: Any, define: Define | None, *, elsewhere: Elsewhere, **options: Any
    ) -> None:
        super().__init__(script, define, **options)
        self._elsewhere = elsewhere

    async def start(self, prompt: str) -> None:
        await super().generate(prompt=prompt)

    async def answer(self, *answers: Any, **how: Any) -> None:
        await self._there("answer", *answers, **how)

    async def generate(self, **arguments: Any) -> None:
        await self._there("generate", **arguments)

    async def _there(self, verb: str, *values: Any, **named: Any) -> None:
        found = list(self.interrupts)
        code = (self.model, self._define, self._options, found, self.heard, (verb, values, named))
        try:
            told = self._elsewhere.run(generated, code, self.messages)
        except nb.errors.RunError as error:
            self.messages = json.loads(json.dumps(error.messages))
            raise
        self.messages, self.text, self.status = told
        self.agent = self.fresh()
        self.interrupts = self.agent.interrupts(self.messages)
        assert self.interrupts == found


async def generated(code: Any, data: str) -> str:
    """One step of ``Json``, in the other process."""
    model, define, options, found, heard, (verb, values, named) = code
    session = Steps(model, define, **options)
    session.messages, session.heard = json.loads(data), heard
    known = {i.id: i for i in session.agent.interrupts(session.messages)}
    session.interrupts = [known.get(i.id, i) for i in found]
    await getattr(session, verb)(*values, **named)
    found[:] = session.interrupts
    return json.dumps([session.messages, session.text, session.status])


class Reopened(Live):
    """A live run in a file; each step is in a process that opens the run and then dies."""

    run_id = ""

    def __init__(
        self, script: Any, define: Define | None, *, elsewhere: Elsewhere, **options: Any
    ) -> None:
        super().__init__(script, define, **options)
        self._elsewhere = elsewhere

    async def start(self, prompt: str) -> None:
        await self._there("start", prompt)

    async def answer(self, *answers: Any, **how: Any) -> None:
        await self._there("answer", *answers, **how)

    async def decide(self, *decision: Any, **how: Any) -> None:
        await self._there("decide", *decision, **how)

    async def say(self, prompt: str, **how: Any) -> None:
        await self._there("say", prompt, **how)

    async def retry(self) -> None:
        await self._there("retry")

    async def open(self, run_id: str) -> None:
        await self._there("open", run_id)

    def journal(self) -> list[Any]:
        with nb.SQLiteStore(self.store) as store:
            return store.read(self.run_id)

    async def wait(self) -> None:
        await self._there("wait")

    async def cancel(self) -> None:
        await self._there("cancel")

    async def branch(self) -> Self:
        other = copy.copy(self)
        other.heard = []
        await other._there("become_fork")
        return other

    async def _there(self, verb: str, *values: Any, **named: Any) -> None:
        found = list(self.interrupts)
        code = (self.model, self._define, self._options, found, self.heard, (verb, values, named))
        path = str(self.store)
        told = self._elsewhere.run(ran, code, [path, self.run_id])
        self.run_id, self.messages, self.text, self.status = told
        self.interrupts = found


class _There(Live):
    """A live run, in the other process."""

    async def become_fork(self) -> None:
        """Continue with a fork."""
        await self._follow(self.run.fork())


async def ran(code: Any, data: str) -> str:
    """One step of ``Reopened``, in the other process."""
    model, define, options, found, heard, (verb, values, named) = code
    path, run_id = json.loads(data)
    with nb.SQLiteStore(path) as store:
        session = _There(model, define, store=store, **options)
        session.heard, session.interrupts = heard, found
        if run_id:
            session.listen(await nb.open_run(run_id, agent=session.agent, store=store))
        await getattr(session, verb)(*values, **named)
        found[:] = session.interrupts
        return json.dumps([session.run.id, session.messages, session.text, session.status])
