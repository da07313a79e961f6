"""What a server's tool gives, as the model is told it and a person sees it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import mcp_types as types

from nbagent.core.base.errors import McpError
from nbagent.core.hooks import hooks

MAX_PARTS = 200
"""Parts of one result that are looked at."""
MAX_PICTURE = 8_000_000
"""Characters of a picture's base64 that are shown."""
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What a page shows without running anything of it."""


class Told(NamedTuple):
    """A result: what the model gets, and the pictures beside it, as mime bundles."""

    value: Any
    pictures: list[dict[str, Any]]


def told(result: types.CallToolResult, schema: dict[str, Any] | None) -> Told:
    """A result as it is told.

    Data that comes with a text saying the same is told once, as data.

    Args:
        result: as the server gave it.
        schema: what the server said that its data fits.

    Raises:
        McpError: the server says that the tool failed, or its data does not fit.
    """
    texts = [text for part in result.content[:MAX_PARTS] for text in _texts(part)]
    left_out = len(result.content) - MAX_PARTS
    if left_out > 0:
        texts.append(f"[{left_out} more parts were left out]")
    if result.is_error:
        raise McpError("\n".join(texts) or "the server says that it failed, and nothing else")
    data = result.structured_content
    if schema is not None:
        _check(data, schema)
    pictures = [shown for part in result.content[:MAX_PARTS] if (shown := _picture(part))]
    if data is None:
        return Told("\n".join(texts), pictures)
    others = [text for text in texts if not _says(text, data)]
    if not others:
        return Told(data, pictures)
    return Told("\n".join([*others, json.dumps(data, ensure_ascii=False)]), pictures)


def _check(data: Any, schema: dict[str, Any]) -> None:
    try:
        misfit = hooks.schema_misfit(schema, as_input=False)
        if misfit:
            raise McpError(f"the schema that the server gave for its results is wrong: {misfit}")
        if data is None:
            raise McpError("the server said that its result has data, and sent none")
        errors = hooks.schema_errors(schema, data)
    except (ValueError, RecursionError) as error:
        raise McpError(
            f"the server's result cannot be held against its own schema: {error}"
        ) from None
    if errors:
        first = errors[0]
        place = ".".join(map(str, first["loc"])) or "the data"
        raise McpError(f"the server's result does not fit its own schema: {place}: {first['msg']}")


def _texts(part: Any) -> Iterator[str]:
    """What the model is told of one part."""
    match part:
        case types.TextContent():
            yield part.text
        case types.ImageContent() | types.AudioContent():
            yield f"[{part.mime_type:.80}, {_size(part.data)}]"
        case types.ResourceLink():
            kind = f", {part.mime_type:.80}" if part.mime_type else ""
            yield f"[{part.name:.200}: {part.uri!s:.2000}{kind}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
            yield f"{inside.uri!s:.2000}:\n{inside.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inside):
            kind = inside.mime_type or "data"
            yield f"[{inside.uri!s:.2000}, {kind:.80}, {_size(inside.blob)}]"
        case _:
            yield f"[a part of the kind {getattr(part, 'type', '')!s:.80}, which is not known]"


def _size(data: str) -> str:
    count = len(data) * 3 // 4
    return f"{count} bytes" if count < 1_000 else f"{count // 1_000:,} kB"


def _picture(part: Any) -> dict[str, Any] | None:
    if not isinstance(part, types.ImageContent) or part.mime_type not in _PICTURES:
        return None
    if len(part.data) > MAX_PICTURE:
        return None
    try:
        base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return {part.mime_type: part.data}


def _says(text: str, data: Any) -> bool:
    """Whether a text is the data, as JSON."""
    try:
        return bool(json.loads(text) == data)
    except (ValueError, RecursionError):
        return False
