"""A clock that the test moves, so that nothing waits on a real one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import nbagent as nb


class Clock:
    """The time of runs, and of the timers of the loop that runs."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def on(self, agent: nb.Agent) -> nb.Agent:
        """Give an agent's runs this clock."""
        given: Any = agent
        spec = given._spec
        given._spec = lambda tools: replace(spec(tools), clock=self)
        return agent

    async def go_on(self, seconds: float) -> None:
        """Let this much time pass, and what was to happen in it happen."""
        self.now += seconds
        put_forward(seconds)
        for _ in range(20):
            await asyncio.sleep(0)


def put_forward(seconds: float) -> None:
    """Put the clock of the running loop forward: its timers are due so much earlier."""
    loop: Any = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds
