"""What a server's tool gives, as the model is told it and a person sees it."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

import mcp_types as types

from nbagent.core.base.errors import McpError, UsageError
from nbagent.core.base.files import IMAGES
from nbagent.core.hooks import hooks
from nbagent.core.tools.files import MAX_FILES, File
from nbagent.core.tools.tool import ToolResult

MAX_PARTS = 200
"""Parts of one result that are looked at."""
MAX_PICTURE = 8_000_000
"""Characters of a picture's base64 that are looked at."""


class _Told(NamedTuple):
    """One part: in words, and as the picture that it is."""

    text: str
    picture: File | None = None


def told(result: types.CallToolResult, schema: dict[str, Any] | None, room: int) -> Any:
    """A result as it is told: text or data, with its pictures beside it where it has some.

    Data that comes with a text saying the same is told once, as data. A picture that cannot be sent is told
    in words alone, with why: the rest of the result stands.

    Args:
        result: as the server gave it.
        schema: what the server said that its data fits.
        room: bytes that its pictures may have together.

    Raises:
        McpError: the server says that the tool failed, or its data does not fit.
    """
    parts = _within([_part(part) for part in result.content[:MAX_PARTS]], room)
    texts = [part.text for part in parts]
    left_out = len(result.content) - MAX_PARTS
    if left_out > 0:
        texts.append(f"[{left_out} more parts were left out]")
    if result.is_error:
        raise McpError("\n".join(texts) or "the server says that it failed, and nothing else")
    data = result.structured_content
    if schema is not None:
        _check(data, schema)
    value = _value(texts, data)
    pictures = [part.picture for part in parts if part.picture is not None]
    return ToolResult(value, files=pictures) if pictures else value


def _value(texts: list[str], data: Any) -> Any:
    if data is None:
        return "\n".join(texts)
    others = [text for text in texts if not _says(text, data)]
    return "\n".join([*others, json.dumps(data, ensure_ascii=False)]) if others else data


def _within(parts: list[_Told], room: int) -> list[_Told]:
    """The parts, with no more pictures than a result may have."""
    kept, count = [], 0
    for part in parts:
        size = len(part.picture.data) if part.picture is not None else 0
        if size and (count == MAX_FILES or size > room):
            why = f"a result may have {MAX_FILES}" if count == MAX_FILES else "no room for it"
            kept.append(_unseen(part.text, why))
            continue
        count, room = count + bool(size), room - size
        kept.append(part)
    return kept


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


def _part(part: Any) -> _Told:
    """What is told of one part."""
    match part:
        case types.TextContent():
            return _Told(part.text)
        case types.ImageContent() | types.AudioContent():
            return _of_bytes(
                f"[{part.mime_type:.80}, {_size(part.data)}]", part.mime_type, part.data
            )
        case types.ResourceLink():
            kind = f", {part.mime_type:.80}" if part.mime_type else ""
            return _Told(f"[{part.name:.200}: {part.uri!s:.2000}{kind}]")
        case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
            return _Told(f"{inside.uri!s:.2000}:\n{inside.text}")
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inside):
            kind = inside.mime_type or "data"
            text = f"[{inside.uri!s:.2000}, {kind:.80}, {_size(inside.blob)}]"
            return _of_bytes(text, kind, inside.blob)
        case _:
            kind = getattr(part, "type", "")
            return _Told(f"[a part of the kind {kind!s:.80}, which is not known]")


def _of_bytes(text: str, media_type: str, data: str) -> _Told:
    """A part with bytes in base64: the picture that it is, or why it is none that can be sent."""
    if media_type not in IMAGES:
        return _Told(text)
    if len(data) > MAX_PICTURE:
        return _unseen(text, "too large")
    try:
        return _Told(text, File(base64.b64decode(data, validate=True), media_type))
    except (binascii.Error, ValueError, UsageError) as error:
        return _unseen(text, str(error))
    except Exception as error:  # of Pillow, which makes it smaller, about bytes of somebody else
        return _unseen(text, f"{type(error).__name__}: {error}")


def _unseen(text: str, why: str) -> _Told:
    return _Told(f"{text[:-1]}; not sent: {why:.200}]")


def _size(data: str) -> str:
    count = len(data) * 3 // 4
    return f"{count} bytes" if count < 1_000 else f"{count // 1_000:,} kB"


def _says(text: str, data: Any) -> bool:
    """Whether a text is the data, as JSON."""
    try:
        return bool(json.loads(text) == data)
    except (ValueError, RecursionError):
        return False
