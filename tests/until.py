"""Waiting for conditions that have no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 30
"""Seconds after which a wait fails."""


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds, while the loop runs."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def turns(count: int = 20) -> None:
    """Let the loop run ``count`` turns, enough for everything that needs no outside event."""
    for _ in range(count):
        await asyncio.sleep(0)
