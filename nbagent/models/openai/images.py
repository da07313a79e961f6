"""Images and other files in requests, in the forms of both APIs.

A few models are known not to accept images. All other models get images; a server may reject them with an error.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbagent.core.base.errors import ModelError
from nbagent.core.base.file_parts import files_of, is_base64, is_image, is_text, label
from nbagent.core.base.messages import Message, Part, text_part

from .encoding import json_bytes, text_of_result

_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(-0613|-0314|-32k.*)?$|o1-(mini|preview)|o3-mini|davinci|babbage|deepseek-(chat|reasoner|v|r)",
    re.IGNORECASE,
)
"""The names of models without image input, from their providers' pages."""
BLIND_HINT = "If the model cannot read images, use OpenAIModel(name, vision=False), which describes images in words"


def has_vision(name: str) -> bool:
    """Whether a model with this name may accept pictures: True unless it is known not to."""
    return _BLIND.match(name.rpartition("/")[2]) is None


_AUDIO = {"audio/wav": b"wav", "audio/x-wav": b"wav", "audio/mpeg": b"mp3"}


def chat_takes(file: Mapping[str, Any]) -> bool:
    """Whether Chat Completions takes a file."""
    kind: str = file["media_type"]
    return is_text(kind) or is_image(file) or kind == "application/pdf" or kind in _AUDIO


def responses_takes(file: Mapping[str, Any]) -> bool:
    """Whether the Responses API takes a file."""
    return file["media_type"].partition("/")[0] not in ("audio", "video")


def described(message: Message, takes: Callable[[Mapping[str, Any]], bool]) -> Message:
    """The message with the files that an API does not take described in words."""
    if all(map(takes, files_of(message))):
        return message
    content = []
    for part in message["content"]:
        if part["type"] == "file" and not takes(part):
            content.append(text_part(_NOT_TAKEN.format(label(part))))
        elif part["type"] == "tool_result" and part.get("files"):
            files = [file for file in part["files"] if takes(file)]
            left = [_NOT_TAKEN.format(label(file)) for file in part["files"] if not takes(file)]
            output = "\n".join([text_of_result(part), *left])
            content.append({**part, "files": files, "output": output})
        else:
            content.append(part)
    return Message({**message, "content": content})


_NOT_TAKEN = "[{}: this API does not take it, so you cannot see it]"


def chat_part(part: Mapping[str, Any], *, has_vision: bool) -> tuple[bytes, ...]:
    """A text, image or other file for Chat Completions, as JSON in pieces, so that large files are joined only once.

    Raises:
        ModelError: this API does not support the file.
    """
    text = _as_text(part, has_vision=has_vision)
    if text is not None:
        return (json_bytes({"type": "text", "text": text}),)
    media_type: str = part["media_type"]
    if not chat_takes(part):
        raise ModelError(
            f"Chat Completions does not take the {label(part)}, because it is {media_type}. It takes images (PNG, "
            "JPEG, GIF, WebP), PDF, audio (wav, mp3) and text"
        )
    if is_image(part):
        head = b'{"type":"image_url","image_url":{"url":"data:' + media_type.encode() + b";base64,"
        return head, _data_of(part), b'"}}'
    if media_type == "application/pdf":
        name = json_bytes(part.get("name") or "file.pdf")
        head = b'{"type":"file","file":{"filename":' + name
        return head, b',"file_data":"data:application/pdf;base64,', _data_of(part), b'"}}'
    end = b'","format":"' + _AUDIO[media_type] + b'"}}'
    return b'{"type":"input_audio","input_audio":{"data":"', _data_of(part), end


def responses_part(part: Mapping[str, Any], *, has_vision: bool) -> dict[str, Any]:
    """A text, image or other file for Responses.

    Raises:
        ModelError: this API does not support the file.
    """
    text = _as_text(part, has_vision=has_vision)
    if text is not None:
        return {"type": "input_text", "text": text}
    media_type: str = part["media_type"]
    if not responses_takes(part):
        raise ModelError(
            f"The Responses API does not take the {label(part)}, because it is {media_type}. It takes images, "
            "documents and text"
        )
    url = f"data:{media_type};base64,{_data_of(part).decode()}"
    if is_image(part):
        return {"type": "input_image", "detail": "auto", "image_url": url}
    return {"type": "input_file", "filename": part.get("name") or "file", "file_data": url}


def _data_of(part: Mapping[str, Any]) -> bytes:
    """A file's base64 for JSON, which needs no escapes."""
    data: str = part["data"]
    if not is_base64(data):
        raise ModelError(f"The {label(part)} is not base64")
    return data.encode("ascii")


def _as_text(part: Mapping[str, Any], *, has_vision: bool) -> str | None:
    """A part as text; None if its bytes are sent."""
    if part["type"] == "text":
        text: str = part["text"]
        return text
    if is_text(part["media_type"]):
        content = base64.b64decode(part["data"]).decode("utf-8", "replace")
        return f"[{label(part)}]\n{content}\n[end of {part.get('name') or 'the file'}]"
    if is_image(part) and not has_vision:
        return f"[{label(part)}: shown to the person; you cannot see it]"
    return None


def blind_note(model: str, messages: Sequence[Message]) -> str | None:
    """A note for the person if a model that accepts no pictures gets new pictures; otherwise None."""
    blind: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        blind += filter(is_image, files_of(message))
    if not blind:
        return None
    images = label(blind[0]) if len(blind) == 1 else f"{len(blind)} images"
    return f"{model} cannot read images, so the {images} was only described in words"


def left_out_note(messages: Sequence[Message], takes: Callable[[Part], bool]) -> str | None:
    """A note for the person about files before the last message that the API does not take; otherwise None."""
    left = [file for message in messages[:-1] for file in files_of(message) if not takes(file)]
    if not left:
        return None
    what = (
        f"the {label(left[0])}, so it was" if len(left) == 1 else f"{len(left)} files, so they were"
    )
    return f"This API does not take {what} only described in words"
