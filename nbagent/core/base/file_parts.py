"""Files in a conversation: message parts with a file's bytes in base64, and descriptions of them in words.

A file part is ``{"type": "file", "media_type": str, "data": str}``, with ``"name"`` if the file has a name; see
``messages``. A file part is never a path or an address: a history contains all bytes of its files.
"""

from __future__ import annotations

import base64
import hashlib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

from .amounts import counted
from .controls import escaped
from .errors import MessagesError, UsageError

Part: TypeAlias = dict[str, Any]
Content: TypeAlias = str | tuple[Part, ...]
"""The content of a user's message: text, or parts."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Image types that models accept and pages display."""
MAX_FILE_BYTES = 50_000_000
"""Maximum bytes of all files of one history: OpenAI's APIs accept this many in one request."""
MAX_NAME = 100
"""Maximum characters of a file's name."""
KEPT = "$nbagent.kept"
"""The key of a file part that stores a step's table or array. The key's value is the Python type. A dict that a step
returns cannot have this key."""
_TYPE = re.compile(r"[a-z]+/[a-z0-9][a-z0-9.+-]{0,99}")
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="


def file_part(data: bytes, media_type: str, name: str | None = None) -> Part:
    """A file part with these bytes. The file's name is the last part of ``name``, after any slash.

    Raises:
        UsageError: ``media_type`` is not a media type.
    """
    if not is_media_type(media_type):
        raise UsageError(f"{media_type!r:.80} is not a media type, such as 'image/png'")
    part: Part = {"type": "file", "media_type": media_type}
    if name and (plain := plain_name(name)):
        part["name"] = plain
    part["data"] = base64.b64encode(data).decode("ascii")
    return part


def plain_name(name: str) -> str:
    """A file's name for display: one line, without a folder or invisible characters."""
    last = re.split(r"[\\/]", name)[-1]
    text = " ".join(escaped(last).split())
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME // 2]}…{text[1 - MAX_NAME // 2 :]}"


def is_media_type(text: Any) -> bool:
    """Whether a value is a media type without parameters."""
    return isinstance(text, str) and _TYPE.fullmatch(text) is not None


def check_file(part: Mapping[str, Any], where: str) -> None:
    """Raise if a part is not a valid file part.

    Raises:
        MessagesError: the part is not valid; the message starts with ``where``.
    """

    def refuse(problem: str) -> NoReturn:
        raise MessagesError(f"{where}: {problem}")

    media_type, data, name = part.get("media_type"), part.get("data"), part.get("name", "")
    if not is_media_type(media_type):
        refuse(
            f"The 'media_type' of a file must be one such as 'image/png', got {media_type!r:.80}"
        )
    if not isinstance(name, str) or plain_name(name) != name:
        refuse(f"The 'name' of a file must be one line without a folder, got {name!r:.80}")
    if not isinstance(data, str):
        refuse(f"The 'data' of a file must be base64 text, got a {type(data).__name__}")
    if len(data) % 4 or not is_base64(data):
        refuse(f"The 'data' of a file is not base64: {data!r:.40}")


def is_base64(data: str) -> bool:
    """Whether a string has only base64 characters, so that it needs no JSON escapes."""
    return data.isascii() and not data.encode("ascii").translate(None, _ALPHABET)


def files_of(message: Mapping[str, Any]) -> Iterator[Part]:
    """The files of a message: from the person, and from tool results."""
    for part in message["content"]:
        if part["type"] == "file":
            yield part
        elif part["type"] == "tool_result":
            yield from part.get("files", ())


def size_of(part: Mapping[str, Any]) -> int:
    """A file's size, in bytes."""
    data: str = part["data"]
    return len(data) * 3 // 4 - data[-2:].count("=")


def size_of_all(messages: Iterable[Mapping[str, Any]]) -> int:
    """The size of all files of a history, in bytes."""
    return sum(size_of(part) for message in messages for part in files_of(message))


def is_image(part: Mapping[str, Any]) -> bool:
    """Whether a file is an image that models accept and pages display."""
    return part["media_type"] in IMAGES


def is_text(media_type: str) -> bool:
    """Whether a file of this type is text, which any model accepts."""
    return media_type.startswith("text/") or media_type in _TEXTS


_TEXTS = {
    "application/json",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/javascript",
    "image/svg+xml",
}


def label(part: Mapping[str, Any], *, sized: bool = True) -> str:
    """A file in words: ``image scan.png, 120 kB``. ``sized=False`` omits the size, which varies for a figure."""
    if part["media_type"] == "text/plain" and str(part.get("name") or "").startswith("@"):
        # it describes a variable that the prompt mentions; its first line names the variable's kind
        head = base64.b64decode(part["data"][:_HEAD_LENGTH]).decode("utf-8", "replace")
        first_line = head.partition("\n")[0][:_LINE_LENGTH]
        return f"{part['name']}, {first_line}"
    kind = part["media_type"].partition("/")[0]
    noun = kind if kind in ("image", "audio", "video") else "file"
    name = part.get("name") or (part["media_type"] if noun == "file" else "")
    size = f", {in_bytes(size_of(part))}" if sized else ""
    return f"{noun} {name}".rstrip() + size


_HEAD_LENGTH, _LINE_LENGTH = 400, 80
"""Base64 characters that are read for a file's first line, and maximum characters of the line."""


def bracketed_label(part: Mapping[str, Any], *, sized: bool = True) -> str:
    """The text that replaces a file: ``[image scan.png, 120 kB]``."""
    return f"[{label(part, sized=sized)}]"


def in_bytes(size: int) -> str:
    """A size with its unit: bytes, kB or MB."""
    if size < 1_000:
        return counted(size, "byte")
    return f"{size / 1_000:.0f} kB" if size < 999_500 else f"{size / 1_000_000:.1f} MB"


def in_words(content: Content, name: Callable[[Part], str] = bracketed_label) -> str:
    """A message as text, with a label, or another name, in place of each file."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] if part["type"] == "text" else name(part) for part in content)


def outline(content: Content) -> str:
    """A message as text, to be stored as an input; a label and a digest replace each file."""
    return in_words(content, _identified)


def _identified(part: Part) -> str:
    digest = hashlib.sha256(part["data"].encode()).hexdigest()
    return f"[{label(part)}, sha256 {digest[:16]}]"


def check_room(messages: Iterable[Mapping[str, Any]], content: Content) -> None:
    """Raise if the files of a prompt do not fit into its history.

    Raises:
        UsageError: the files of the history and the prompt together are larger than ``MAX_FILE_BYTES``.
    """
    parts = () if isinstance(content, str) else content
    new = sum(size_of(part) for part in parts if part["type"] == "file")
    if not new:
        return
    known = size_of_all(messages)
    if known + new > MAX_FILE_BYTES:
        before = f" plus the {in_bytes(known)} already in the conversation" if known else ""
        raise UsageError(
            f"The files of this prompt have {in_bytes(new)}{before}. The limit for one conversation is "
            f"{in_bytes(MAX_FILE_BYTES)}. Start another conversation, or continue from messages= without some of the files"
        )


def tokens_of(text: bytes) -> int:
    """Estimated tokens of a text in UTF-8: words of 3.5 letters, groups of digits, single symbols."""
    letters = len(text) - len(text.translate(None, _LETTERS))
    digits = len(text) - len(text.translate(None, _DIGITS))
    spaces = len(text) - len(text.translate(None, b" \t\r"))
    non_ascii = len(text) - len(text.translate(None, bytes(range(128, 256))))
    symbols = len(text) - letters - digits - spaces - non_ascii
    tokens = round(letters / 3.5 + digits / 2.2 + symbols + non_ascii / 3)
    return round(tokens, 2 - len(str(tokens)))  # two significant digits, because it is an estimate


_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
