"""One interface over the three ways a conversation is driven."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import nbagent as nb

Define = Callable[[nb.Agent], Any]
"""Puts a case's tools into an agent; called again for every fresh agent."""


class Session:
    """A conversation under test. Answers are keyed by their place among the open interrupts."""

    def __init__(self, script: Any, define: Define | None, **options: Any) -> None:
        self.model = script if isinstance(script, nb.ScriptedModel) else nb.ScriptedModel(script)
        self._define = define or (lambda _agent: None)
        self._options = options
        self.agent = self.fresh()

    def fresh(self) -> nb.Agent:
        """A new agent with new tools on the same model."""
        agent = nb.Agent(self.model, **self._options)
        self._define(agent)
        return agent

    interrupts: list[nb.PendingInterrupt]
    messages: tuple[Any, ...]
    text: str
    status: str

    async def start(self, prompt: str) -> None:
        """Begin."""
        raise NotImplementedError

    async def answer(
        self,
        respond: Mapping[int, Any] | None = None,
        restart: Mapping[int, dict[str, Any]] | None = None,
        reject: Mapping[int, str | None] | None = None,
    ) -> None:
        """Answer some or all open interrupts, and go on."""
        raise NotImplementedError

    @property
    def results(self) -> list[Any]:
        """The outputs in the last tool message, in call order."""
        last = [m for m in self.messages if m["role"] == "tool"][-1]
        return [part["output"] for part in last["content"]]

    @property
    def requests(self) -> int:
        """How often the model was called."""
        return len(self.model.requests)


class Steps(Session):
    """Step by step, on one agent."""

    async def start(self, prompt: str) -> None:
        self._take(await self.agent.generate(prompt))

    def _take(self, response: nb.Response) -> None:
        self.messages, self.text = response.messages, response.text
        self.interrupts = response.interrupts
        self.status = "interrupted" if response.finish_reason == "interrupted" else "completed"

    async def answer(self, respond=None, restart=None, reject=None) -> None:
        found = self.interrupts
        self._take(
            await self.agent.generate(
                messages=self.messages,
                tool_responses=[nb.tool_response(found[n], v) for n, v in (respond or {}).items()],
                tool_restarts=[nb.tool_restart(found[n], **v) for n, v in (restart or {}).items()],
                tool_rejections=[nb.tool_rejection(found[n], v) for n, v in (reject or {}).items()],
                partial=True,
            )
        )


class Json(Steps):
    """Step by step, with the history through JSON into a fresh agent with fresh tools each time."""

    async def answer(self, respond=None, restart=None, reject=None) -> None:
        self.messages = json.loads(json.dumps(self.messages))
        self.agent = self.fresh()
        found = {i.id: i for i in self.agent.interrupts(self.messages)}
        self.interrupts = [found.get(i.id, i) for i in self.interrupts]
        await super().answer(respond, restart, reject)


class Live(Session):
    """A live run."""

    run: nb.Run

    async def start(self, prompt: str) -> None:
        self.run = self.agent.run(prompt, store=nb.MemoryStore())
        await self._settle()

    async def _settle(self) -> None:
        await self.run.settled()
        if self.run.status in ("failed", "cancelled"):
            await self.run
        self.messages, self.interrupts = self.run.messages, self.run.interrupts
        self.status = self.run.status
        self.text = self.run.result.text if self.status == "completed" else ""

    async def answer(self, respond=None, restart=None, reject=None) -> None:
        found = self.interrupts
        for n, value in (respond or {}).items():
            await self.run.respond(found[n], value)
        for n, options in (restart or {}).items():
            await self.run.restart(found[n], **options)
        for n, reason in (reject or {}).items():
            await self.run.reject(found[n], reason)
        await self._settle()


KINDS: dict[str, type[Session]] = {"steps": Steps, "live": Live, "json": Json}


@pytest.fixture(params=list(KINDS))
def play(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What starts a conversation: a script, its tools, and the options of the agent."""

    async def start(script: Any, define: Define | None = None, prompt: str = "go", **options: Any):
        session = KINDS[request.param](script, define, **options)
        await session.start(prompt)
        return session

    return start
