"""What a server's tool gives, as the model is told it and a person sees it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types as types
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic_core import to_json

from nbagent.core.base.errors import McpError, UsageError
from nbagent.core.base.file_parts import IMAGES
from nbagent.core.base.foreign import counted
from nbagent.core.base.messages import canonical
from nbagent.core.hooks import hooks
from nbagent.core.tools.attachments import MAX_FILES, File
from nbagent.core.tools.tool import ToolResult

ASKS_MIDWAY = (
    "it asks a question during a call (ctx.elicit), which only older versions of the protocol support. "
    f"Connect with nb.mcp(…, protocol='{LATEST_HANDSHAKE_VERSION}')"
)
"""What to do about a tool that asks where nobody can."""
_NO_WAY_BACK = ("no back-channel", "elicitation via server-initiated requests is unavailable")
"""What servers on ``mcp`` and FastMCP say there."""
MAX_CONTENT = 200
"""Parts of one result; further ones are left out, and a last one says so."""
SHORT = 100
"""Characters of base64 from which they are no words of any text."""
MAX_PICTURE = 8_000_000
"""Characters of a picture's base64 that are looked at."""


class _Told(NamedTuple):
    """One part: in words, and as the picture that it is."""

    text: str
    picture: File | None = None
    data: str = ""
    """Its bytes in base64, where it has some: they stand in no text."""


def told(result: types.CallToolResult, schema: dict[str, Any] | None, room: int) -> Any:
    """A result as it is told: text or data, with its pictures beside it where it has some.

    What texts and data both say is told once, and without the ``{"result": …}`` that libraries of servers put
    around a plain value. Bytes are told in words, wherever they stand. A picture that cannot be sent is told in words
    alone, with why: the rest of the result stands.

    Args:
        result: as the server gave it.
        schema: what the server said that its data fits.
        room: bytes that its pictures may have together.

    Raises:
        McpError: the server says that the tool failed, or its data does not fit.
    """
    parts = _within([_part(part) for part in result.content], room)
    in_words = {part.data: part.text for part in parts if part.data}
    texts = [_without_bytes(part.text, in_words) for part in parts]
    if result.is_error:
        why = "\n".join(texts) or "the server reported a failure without a message"
        raise McpError(f"{why} ({ASKS_MIDWAY})" if asks_midway(why) else why)
    data = result.structured_content
    if schema is not None:
        _check(data, schema)
    value = _value(result.content, texts, _without_bytes(data, in_words))
    pictures = [part.picture for part in parts if part.picture is not None]
    return ToolResult(value, files=pictures) if pictures else value


def _value(content: list[Any], texts: list[str], data: Any) -> Any:
    """Texts and data as one value, with what both say once."""
    if data is None:
        return "\n".join(texts)
    found = _alike(content, texts, data)
    if found is not _OTHER:
        return found
    others = [text for text in texts if not _says(text, data)]
    return "\n".join([*others, _as_json(data)]) if others else data


def _as_json(data: Any) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:  # an infinite number, which is no JSON
        return to_json(data, inf_nan_mode="strings").decode()


_OTHER = object()
"""Is told where texts and data do not say the same."""


def _alike(content: list[Any], texts: list[str], data: Any) -> Any:
    """What is told where the texts say the same as the data, or as the one value in it."""
    if not isinstance(data, dict) or len(data) != 1:
        return _OTHER
    ((name, value),) = data.items()
    whole = "\n".join(texts)
    if value == whole or _lists(content, texts, value):
        return whole
    if name != "result":  # which is a word of libraries, and no word of the tool
        return _OTHER
    if not texts:
        return value if value in (None, "", []) else _OTHER
    says_each = isinstance(value, list) and len(value) == len(texts)
    is_each = says_each and all(map(_is_or_says, texts, value))
    return value if is_each or _says(whole, value) else _OTHER


def _lists(content: list[Any], texts: list[str], value: Any) -> bool:
    """Whether a value is the list of the result's parts once more, or one of one part."""
    if not content or not isinstance(value, list | dict):
        return False
    parts = [
        {"type": part.type, "text" if part.type == "text" else "data": text}
        for part, text in zip(content, texts, strict=False)
    ]
    listed = value if isinstance(value, list) else [value]
    return len(listed) == len(parts) and all(
        isinstance(one, dict) and part.items() <= one.items()
        for one, part in zip(listed, parts, strict=True)
    )


def _without_bytes(value: Any, in_words: Mapping[str, str]) -> Any:
    """A value with the words of each part in the place of its bytes; at any depth that it can have."""
    if not in_words:
        return value
    if isinstance(value, str):
        for data, words in in_words.items():
            if value == data or len(value) >= len(data) >= SHORT:
                value = value.replace(data, words)
        return value
    if isinstance(value, list):
        return [_without_bytes(one, in_words) for one in value]
    if isinstance(value, dict):
        return {name: _without_bytes(one, in_words) for name, one in value.items()}
    return value


def _within(parts: list[_Told], room: int) -> list[_Told]:
    """The parts, with no more pictures than a result may have."""
    kept, count = [], 0
    for part in parts:
        size = len(part.picture.data) if part.picture is not None else 0
        if size and (count == MAX_FILES or size > room):
            why = f"a result can have at most {MAX_FILES}" if count == MAX_FILES else "no room left"
            kept.append(_unseen(part.text, why, part.data))
            continue
        count, room = count + bool(size), room - size
        kept.append(part)
    return kept


def _check(data: Any, schema: dict[str, Any]) -> None:
    try:
        misfit = hooks.schema_misfit(schema, as_input=False)
        if misfit:
            raise McpError(f"the server's schema for its results is invalid: {misfit}")
        if data is None:
            raise McpError("the server announced data in its result, but sent none")
        errors = hooks.schema_errors(schema, data)
    except (ValueError, RecursionError) as error:
        raise McpError(
            f"the server's result cannot be checked with its own schema: {error}"
        ) from None
    if errors:
        first = errors[0]
        place = ".".join(map(str, first["loc"])) or "the data"
        raise McpError(
            f"the server's result does not match its own schema: {place}: {first['msg']}"
        )


def asks_midway(why: str) -> bool:
    """Whether a tool failed because it asks in the middle of a call, which the protocol's version has no way for."""
    return any(words in why for words in _NO_WAY_BACK)


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
            return _Told(f"[a part of unknown kind {kind!s:.80}]")


def _of_bytes(text: str, media_type: str, data: str) -> _Told:
    """A part with bytes in base64: the picture that it is, or why it is none that can be sent."""
    if media_type not in IMAGES:
        return _Told(text, data=data)
    if len(data) > MAX_PICTURE:
        return _unseen(text, "too large", data)
    try:
        return _Told(text, File(base64.b64decode(data, validate=True), media_type), data)
    except (binascii.Error, ValueError, UsageError) as error:
        return _unseen(text, str(error), data)
    except Exception as error:  # of Pillow, which makes it smaller, about bytes of somebody else
        return _unseen(text, f"{type(error).__name__}: {error}", data)


def _unseen(text: str, why: str, data: str) -> _Told:
    return _Told(f"{text[:-1]}; not sent: {why:.200}]", data=data)


def _size(data: str) -> str:
    count = len(data) * 3 // 4
    return f"{count} bytes" if count < 1_000 else f"{count // 1_000:,} kB"


def _is_or_says(text: str, data: Any) -> bool:
    return data == text or _says(text, data)


def _says(text: str, data: Any) -> bool:
    """Whether a text is the data, as JSON; there, 1 is not true."""
    try:
        return canonical(json.loads(counted(text))) == canonical(data)
    except (ValueError, RecursionError):
        return False
