"""A server's tool as an nbagent tool: its name, schema, description, and the body that calls it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types

from nbagent.core.base.errors import ToolError
from nbagent.core.base.messages import dumps
from nbagent.core.hooks import hooks
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.json_schema import input_model, usable
from nbagent.core.tools.signature import Signature
from nbagent.core.tools.tool import Origin, Tool, ToolOptions

MAX_SCHEMA = 100_000
"""Characters of the schema of one tool's input."""
MAX_PATTERNS = 5
"""Unchecked patterns of one schema that a note lists."""
MAX_DESCRIPTION = 8_000
"""Characters of one tool's description."""
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_WORDS = {
    ("readOnlyHint", True): "it only reads",
    ("destructiveHint", True): "it may destroy data",
    ("destructiveHint", False): "it destroys nothing",
    ("idempotentHint", True): "repeating it has no further effect",
    ("openWorldHint", True): "it reaches outside its own system",
    ("openWorldHint", False): "it stays in its own system",
}

Call = Callable[[types.Tool, dict[str, Any], ToolContext], Awaitable[Any]]
"""A function that calls a tool of the server."""


def tool_of(
    listed: types.Tool,
    call: Call,
    renewed: Callable[[], Awaitable[Any]],
    *,
    name: str,
    server: str,
    place: str,
    options: ToolOptions,
) -> Tool[..., Any]:
    """The tool for an entry of the server's list; ``place`` identifies the server without its credentials.

    Raises:
        ToolError: the tool's name or schema cannot be used, or the tool runs only as an MCP task.
    """
    if listed.execution is not None and listed.execution.task_support == "required":
        raise ToolError("it runs only as an MCP task, which nbagent does not support")
    schema = _schema(listed)
    noted = listed.annotations
    given = {} if noted is None else noted.model_dump(by_alias=True, exclude_none=True)
    annotations: dict[str, Any] = {word: given[word] for word in _HINTS if word in given}
    if title := given.get("title"):
        annotations["title"] = str(title)[:200]
    description = listed.description or listed.title or ""
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"

    async def body(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return await call(listed, arguments, ctx)

    origin = Origin(
        note=_description(server, annotations),
        annotations=annotations,
        identity=[place, description, annotations, listed.output_schema],
        definition=[description, annotations],
        renewed=renewed,
    )
    return Tool(
        body,
        name=name,
        description=description,
        signature=Signature(
            {},
            input_type=input_model(schema, name),
            ctx="ctx",
            output=inspect.Signature.empty,
            document="arguments",
        ),
        options=options._replace(origin=origin),
    )


def _schema(listed: types.Tool) -> dict[str, Any]:
    try:
        length = len(dumps(listed.input_schema))
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolError(f"its schema is not JSON: {error}") from None
    if length > MAX_SCHEMA:
        raise ToolError(f"its schema has {length:,} characters. The limit is {MAX_SCHEMA:,}")
    try:
        checked: dict[str, Any] = usable(
            listed.input_schema, "its inputSchema", ToolError, as_input=True
        )
    except (ValueError, RecursionError) as error:
        raise ToolError(f"its schema cannot be used: {error}") from None
    return checked


def unsearched(listed: types.Tool) -> list[str]:
    """The parts of a tool's schemas that are not checked, with the reasons."""
    schemas = {"input": listed.input_schema, "result": listed.output_schema or {}}
    return [
        f"the pattern {pattern!r:.100} of its {name} is not checked: it has look-arounds or back references, is "
        "not a regular expression, or is too long"
        for name, schema in schemas.items()
        for pattern in hooks.unsearched_patterns(schema)[:MAX_PATTERNS]
    ]


def _description(server: str, annotations: dict[str, Any]) -> str:
    words = [
        _WORDS[word, annotations[word]]
        for word in _HINTS
        if (word, annotations.get(word)) in _WORDS
    ]
    if not words:
        return f"A tool of the MCP server {server}. The server does not say what it changes."
    return f"According to the MCP server {server}, {'; '.join(words)}. Nobody has verified this."
