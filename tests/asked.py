"""What a model gets for a call, and an answer that arrives many times."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import nbagent as nb


async def text_to_model(tools: Any, name: str, /, **arguments: Any) -> Any:
    """The result that the model gets for one call."""
    model = nb.ScriptedModel([nb.ScriptedModel.call(name, **arguments), "done"])
    run = nb.Agent(model, tools=tools).run("go", show=False)
    await run
    return run.calls[name][-1].output


async def answered_by_many(token: str, value: Any) -> list[str]:
    """What became of one answer that eight threads send at once."""
    outcomes: list[str] = []

    def hook() -> None:
        try:
            nb.answer_external(token, value)
        except nb.Conflict:
            outcomes.append("told")
        else:
            outcomes.append("took")

    threads = [threading.Thread(target=hook) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    return sorted(outcomes)
