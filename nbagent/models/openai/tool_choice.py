"""Which tool a model must call: said of a model, and sent where it makes sense.

``required`` or a tool's name holds for the first answer to what a person says. Once there are results the
model is free again: it would call tools for ever.
"""

from __future__ import annotations

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.model import Hosted, Request, ToolSpec

AUTO = "auto"
WORDS = (AUTO, "required", "none")


def chosen(choice: str | None, request: Request) -> str | ToolSpec | Hosted | None:
    """What to say of a request: one of ``WORDS``, a tool, or nothing.

    Raises:
        ModelConfigError: the tool that is to be called, or any at all, is not among those of the request.
    """
    if choice is None:
        return None
    is_first = bool(request.messages) and request.messages[-1]["role"] != "tool"
    every: list[ToolSpec | Hosted] = [*request.tools, *request.hosted]
    tools = {tool.name: tool for tool in every}
    if choice in (AUTO, "none"):
        return choice if tools else None
    if not is_first:
        return AUTO if tools else None
    if not tools or (choice not in WORDS and choice not in tools):
        known = ", ".join(sorted(tools)) or "none"
        raise ModelConfigError(
            f"tool_choice={choice!r}: the agent has no such tool; it has: {known}"
        )
    return choice if choice in WORDS else tools[choice]
