"""A clock that the test moves, so that no test waits in real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import nbagent as nb
from nbagent.core.tools.spec import RunSpec
from tests.until import turns


def spec_of(agent: nb.Agent, clock: Callable[[], float]) -> RunSpec:
    """The spec of a run of this agent, with this clock."""
    return replace(agent._spec(agent.tools), clock=clock)


class Clock:
    """The clock of runs, and of the timers of the running loop."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def on(self, agent: nb.Agent) -> nb.Agent:
        """Set this clock for an agent's runs."""
        given: Any = agent
        spec = given._spec
        given._spec = lambda tools: replace(spec(tools), clock=self)
        return agent

    async def go_on(self, seconds: float) -> None:
        """Let this much time pass, and run what is then due."""
        self.now += seconds
        put_forward(seconds)
        await turns()


def put_forward(seconds: float) -> None:
    """Put the clock of the running loop forward: its timers are due so much earlier."""
    loop: Any = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds
