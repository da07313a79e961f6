"""Files in Chat Completions: parts of a user's content, as bytes of JSON.

A tool's message takes text alone: the files of a turn's results follow behind all of them, in a user
message that says which is whose.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagent.core.base.errors import ModelError
from nbagent.core.base.files import is_image, label
from nbagent.core.base.messages import Part
from nbagent.models.openai.encoding import id_at_server, json_bytes
from nbagent.models.openai.files import as_text, data_of

_AUDIO = {"audio/wav": b"wav", "audio/x-wav": b"wav", "audio/mpeg": b"mp3"}


def content(parts: Sequence[Part], *, sees: bool) -> Iterator[bytes]:
    """A user's texts and files, in their order: JSON in pieces, so that large ones are joined once.

    Raises:
        ModelError: there is a file that this API does not take.
    """
    between = b"["
    for part in parts:
        if part["type"] in ("text", "file"):
            yield between
            yield from _part(part, sees=sees)
            between = b","
    yield b"]"


def of_results(results: Sequence[Part], *, sees: bool) -> Iterator[bytes]:
    """The message with the files of a turn's results, behind a comma; nothing where they have none.

    Raises:
        ModelError: there is a file that this API does not take.
    """
    parts = list(_listed(results))
    if parts:
        yield b',{"role":"user","content":'
        yield from content(parts, sees=sees)
        yield b"}"


def _listed(results: Sequence[Part]) -> Iterator[Part]:
    for result in results:
        for file in result.get("files", ()):
            call = id_at_server(result)
            told = f"{label(file)}, from the tool {result['name']}, call {call}:"
            yield {"type": "text", "text": told}
            yield file


def _part(part: Mapping[str, Any], *, sees: bool) -> tuple[bytes, ...]:
    text = as_text(part, sees=sees)
    if text is not None:
        return (json_bytes({"type": "text", "text": text}),)
    media_type: str = part["media_type"]
    if is_image(part):
        head = b'{"type":"image_url","image_url":{"url":"data:' + media_type.encode() + b";base64,"
        return head, data_of(part), b'"}}'
    if media_type == "application/pdf":
        name = json_bytes(part.get("name") or "file.pdf")
        head = b'{"type":"file","file":{"filename":' + name
        return head, b',"file_data":"data:application/pdf;base64,', data_of(part), b'"}}'
    if media_type in _AUDIO:
        end = b'","format":"' + _AUDIO[media_type] + b'"}}'
        return b'{"type":"input_audio","input_audio":{"data":"', data_of(part), end
    raise ModelError(
        f"the {label(part)} is {media_type}, which Chat Completions does not take: it takes pictures (PNG, "
        "JPEG, GIF, WebP), PDF, audio (wav, mp3) and text"
    )
