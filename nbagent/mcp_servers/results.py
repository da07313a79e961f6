"""The result of a server's tool, for the model and for a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types as types
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic_core import to_json

from nbagent.core.base.errors import McpError, UsageError
from nbagent.core.base.file_parts import IMAGES
from nbagent.core.base.incoming_json import within_parts
from nbagent.core.base.messages import canonical
from nbagent.core.hooks import hooks
from nbagent.core.tools.attachments import MAX_FILES, File
from nbagent.core.tools.tool import ToolResult

ASKS_MIDWAY = (
    "it asked a question during a call (ctx.elicit). Only older protocol versions support that. "
    f"Connect with nb.mcp(…, protocol='{LATEST_HANDSHAKE_VERSION}')"
)
"""The advice for a tool that asks during a call."""
_NO_WAY_BACK = ("no back-channel", "elicitation via server-initiated requests is unavailable")
"""Words in the error messages of ``mcp`` and FastMCP servers if a tool asks during a call."""
MAX_CONTENT = 200
"""Parts of one result; a last part says how many others were left out."""
SHORT = 100
"""The minimum length of base64 that cannot be ordinary words."""
MAX_PICTURE = 8_000_000
"""Characters of a picture's base64 that are checked."""


class _Part(NamedTuple):
    """One part of a result as text, and as a picture if the part is a picture."""

    text: str
    picture: File | None = None
    data: str = ""
    """The part's bytes in base64, or empty; the bytes must not appear in any text."""


def result_value(
    result: types.CallToolResult, schema: dict[str, Any] | None, max_bytes: int
) -> Any:
    """A result for the model: text or data, with its pictures.

    Content that is in both texts and data appears once, and without the ``{"result": …}`` that server libraries put
    around a plain value. Bytes are described in words everywhere. A picture that cannot be sent is described in
    words, with the reason; the rest of the result is used. All pictures together have at most ``max_bytes``.

    Raises:
        McpError: the server reports a failure of the tool, or the result's data does not match the schema.
    """
    parts = _within([_part(part) for part in result.content], max_bytes)
    in_words = {part.data: part.text for part in parts if part.data}
    texts = [_without_bytes(part.text, in_words) for part in parts]
    data = result.structured_content
    if result.is_error:
        unknown = "the server reported a failure without a message"
        why = "\n".join(texts) or (_as_json(data) if data else unknown)
        raise McpError(f"{why} ({ASKS_MIDWAY})" if asks_midway(why) else why)
    if schema is not None:
        _check(data, schema)
    value = _value(result.content, texts, _without_bytes(data, in_words))
    pictures = [part.picture for part in parts if part.picture is not None]
    return ToolResult(value, files=pictures) if pictures else value


def _value(content: list[Any], texts: list[str], data: Any) -> Any:
    """Texts and data as one value, without repeated content."""
    if data is None:
        return "\n".join(texts)
    found = _alike(content, texts, data)
    if found is not _OTHER:
        return found
    form = _form(data)
    others = [text for text in texts if not _is_json_of(text, form)]
    return "\n".join([*others, _as_json(data)]) if others else data


def _as_json(data: Any) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:  # an infinite number is not JSON
        return to_json(data, inf_nan_mode="strings").decode()


_OTHER = object()
"""Marks texts and data with different content."""


def _alike(content: list[Any], texts: list[str], data: Any) -> Any:
    """The value for the model, if the data is one named value and the texts have its content; otherwise ``_OTHER``."""
    if not isinstance(data, dict) or len(data) != 1:
        return _OTHER
    ((name, value),) = data.items()
    text = "\n".join(texts)
    if value == text or _lists(content, texts, value):
        return text
    if name != "result":  # only this key is from server libraries, not from the tool
        return _OTHER
    if not texts:
        return value if value in (None, "", []) else _OTHER
    is_each = (
        isinstance(value, list)
        and len(value) == len(texts)
        and all(
            own == each or _is_json_of(each, _form(own))
            for each, own in zip(texts, value, strict=True)
        )
    )
    return value if is_each or _is_json_of(text, _form(value)) else _OTHER


def _lists(content: list[Any], texts: list[str], value: Any) -> bool:
    """Whether a value repeats the result's parts as a list, or is one part."""
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
    """A value in which each part's words replace the part's bytes, at any depth."""
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


def _within(parts: list[_Part], max_bytes: int) -> list[_Part]:
    """The parts, with at most as many pictures as a result may have."""
    kept, count = [], 0
    for part in parts:
        size = len(part.picture.data) if part.picture is not None else 0
        if size and (count == MAX_FILES or size > max_bytes):
            why = f"a result can have at most {MAX_FILES}" if count == MAX_FILES else "no room left"
            kept.append(_unseen(part.text, why, part.data))
            continue
        count, max_bytes = count + bool(size), max_bytes - size
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
    """Whether a tool failed because it asks during a call, which this protocol version does not support."""
    return any(words in why for words in _NO_WAY_BACK)


def _part(part: Any) -> _Part:
    """One part for the model."""
    match part:
        case types.TextContent():
            return _Part(part.text)
        case types.ImageContent() | types.AudioContent():
            return _of_bytes(
                f"[{part.mime_type:.80}, {_size(part.data)}]", part.mime_type, part.data
            )
        case types.ResourceLink():
            kind = f", {part.mime_type:.80}" if part.mime_type else ""
            return _Part(f"[{part.name:.200}: {part.uri!s:.2000}{kind}]")
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return _Part(f"{resource.uri!s:.2000}:\n{resource.text}")
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            kind = resource.mime_type or "data"
            text = f"[{resource.uri!s:.2000}, {kind:.80}, {_size(resource.blob)}]"
            return _of_bytes(text, kind, resource.blob)
        case _:
            kind = getattr(part, "type", "")
            return _Part(f"[a part of unknown kind {kind!s:.80}]")


def _of_bytes(text: str, media_type: str, data: str) -> _Part:
    """A part with bytes in base64: a picture, or the reason why it cannot be sent."""
    if media_type not in IMAGES:
        return _Part(text, data=data)
    if len(data) > MAX_PICTURE:
        return _unseen(text, "too large", data)
    try:
        return _Part(text, File(base64.b64decode(data, validate=True), media_type), data)
    except (ValueError, UsageError) as error:
        return _unseen(text, str(error), data)
    except Exception as error:  # such as Pillow's warnings about foreign bytes
        return _unseen(text, f"{type(error).__name__}: {error}", data)


def _unseen(text: str, why: str, data: str) -> _Part:
    return _Part(f"{text[:-1]}; not sent: {why:.200}]", data=data)


def _size(data: str) -> str:
    count = len(data) * 3 // 4
    return f"{count} bytes" if count < 1_000 else f"{count // 1_000:,} kB"


def _form(data: Any) -> str | None:
    """Data as JSON in one form, to compare: 1 does not equal true. None if it is not JSON."""
    try:
        return canonical(data)
    except (ValueError, RecursionError):
        return None


def _is_json_of(text: str, form: str | None) -> bool:
    """Whether a text is JSON, in this form."""
    try:
        return form is not None and canonical(json.loads(within_parts(text))) == form
    except (ValueError, RecursionError):
        return False
