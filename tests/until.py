"""Waiting for something to come true that tells nobody when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 30
"""Seconds after which it never will."""


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds, while the loop goes round."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


async def turns(count: int = 20) -> None:
    """Let the loop go round so often: whatever can happen by itself happens."""
    for _ in range(count):
        await asyncio.sleep(0)
