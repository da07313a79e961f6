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
from nbagent.core.base.messages import Part, dumps
from nbagent.models.openai.files import data_of, text_in, unseen

_AUDIO = {"audio/wav": b"wav", "audio/x-wav": b"wav", "audio/mpeg": b"mp3"}


def content(parts: Sequence[Part], *, sees: bool) -> bytes:
    """A user's texts and files, in their order.

    Raises:
        ModelError: there is a file that this API does not take.
    """
    told = (p for p in parts if p["type"] in ("text", "file"))
    return b"[" + b",".join(_part(part, sees=sees) for part in told) + b"]"


def of_results(results: Sequence[Part], *, sees: bool) -> bytes | None:
    """The message with the files of a turn's results; None where they have none.

    Raises:
        ModelError: there is a file that this API does not take.
    """
    parts = list(_listed(results))
    if not parts:
        return None
    return b'{"role":"user","content":' + content(parts, sees=sees) + b"}"


def _listed(results: Sequence[Part]) -> Iterator[Part]:
    for result in results:
        for file in result.get("files", ()):
            call = result.get("server_id", result["id"])
            told = f"{label(file)}, from the tool {result['name']}, call {call}:"
            yield {"type": "text", "text": told}
            yield file


def _part(part: Mapping[str, Any], *, sees: bool) -> bytes:
    if part["type"] == "text":
        return _text(part["text"])
    media_type: str = part["media_type"]
    text = text_in(part)
    if text is not None:
        return _text(text)
    if is_image(part):
        if not sees:
            return _text(unseen(part))
        url = b"data:" + media_type.encode() + b";base64," + data_of(part)
        return b'{"type":"image_url","image_url":{"url":"' + url + b'"}}'
    if media_type == "application/pdf":
        name = dumps(part.get("name") or "file.pdf").encode()
        data = b"data:application/pdf;base64," + data_of(part)
        return b'{"type":"file","file":{"filename":' + name + b',"file_data":"' + data + b'"}}'
    if media_type in _AUDIO:
        told = data_of(part) + b'","format":"' + _AUDIO[media_type]
        return b'{"type":"input_audio","input_audio":{"data":"' + told + b'"}}'
    raise ModelError(
        f"the {label(part)} is {media_type}, which Chat Completions does not take: it takes pictures (PNG, "
        "JPEG, GIF, WebP), PDF, audio (wav, mp3) and text"
    )


def _text(text: str) -> bytes:
    return dumps({"type": "text", "text": text}).encode("utf-8", "replace")
