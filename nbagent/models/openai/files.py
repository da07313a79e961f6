"""Files as a model is told of them: by their bytes where it takes them, else in words.

Which models see is known of few: of any other it is tried, and a server that refuses says so.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbagent.core.base.errors import ModelError
from nbagent.core.base.files import files_of, is_base64, is_image, is_text, label
from nbagent.core.base.messages import Message, Part

_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(-0613|-0314|-32k.*)?$|o1-(mini|preview)|o3-mini|davinci|babbage|deepseek-(chat|reasoner|v|r)",
    re.IGNORECASE,
)
"""Names of models that see no pictures, from their providers' pages."""
BLIND_HINT = "if the model sees no pictures, give OpenAIModel(name, vision=False): it is then told of them in words"


def sees(name: str) -> bool:
    """Whether a model of this name may see pictures: any that is not known not to."""
    return _BLIND.match(name.rpartition("/")[2]) is None


def data_of(part: Mapping[str, Any]) -> bytes:
    """A file's base64 as it stands in JSON, where it needs no escapes.

    Raises:
        ModelError: it is none.
    """
    data: str = part["data"]
    if not is_base64(data):
        raise ModelError(f"the {label(part)} is no base64")
    return data.encode("ascii")


def as_text(part: Mapping[str, Any], *, sees: bool) -> str | None:
    """A part that is text, or is told in words; None where its bytes are sent.

    Args:
        part: a text or a file.
        sees: whether the model takes pictures.
    """
    if part["type"] == "text":
        text: str = part["text"]
        return text
    if is_text(part["media_type"]):
        inside = base64.b64decode(part["data"]).decode("utf-8", "replace")
        return f"[{label(part)}]\n{inside}\n[end of {part.get('name') or 'the file'}]"
    if is_image(part) and not sees:
        return f"[{label(part)}: it is shown to the person; you cannot see it]"
    return None


def blind_note(model: str, messages: Sequence[Message]) -> str | None:
    """What the person should know where a model gets new pictures and sees none."""
    blind = [part for part in _new_files(messages) if is_image(part)]
    if not blind:
        return None
    what = label(blind[0]) if len(blind) == 1 else f"{len(blind)} images"
    return f"{model} cannot see pictures: it was told of the {what} in words alone"


def _new_files(messages: Sequence[Message]) -> Iterator[Part]:
    """The files since the model's last answer."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return
        yield from files_of(message)


def has_images(messages: Iterable[Message]) -> bool:
    """Whether a history has pictures."""
    return any(is_image(part) for message in messages for part in files_of(message))
