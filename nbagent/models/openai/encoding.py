"""What both encoders do alike: JSON as bytes, made once for what is sent again and again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nbagent.core.base.files import files_of
from nbagent.core.base.messages import Message, dumps

KEPT_TOOL_LISTS = 8
"""How many different tool lists keep their bytes; agents seldom have more than one."""


class EncodedOnce:
    """The bytes of one model's messages, tool lists and instructions."""

    def __init__(self) -> None:
        self.messages_encoded = 0
        """How many messages really had to be encoded."""
        self._tools: dict[tuple[Any, ...], bytes] = {}
        self._instructions: tuple[str, bytes] = ("", b"")

    def messages(
        self, messages: Sequence[Message], wire: str, encode: Callable[[Message], bytes]
    ) -> Iterator[bytes]:
        """Each message's bytes, which it keeps.

        Args:
            messages: a history, which only ever grows at its end.
            wire: the name of this encoding, see ``Message.wire``; bytes of another are made anew.
            encode: makes them.
        """
        for message in messages:
            kept = message.wire
            if kept is None or kept[0] != wire:
                kept = (wire, encode(message))
                self.messages_encoded += 1
                if not any(files_of(message)):  # their bytes are kept once, in the history
                    message.wire = kept
            yield kept[1]

    def tools(self, tools: Sequence[Any], encode: Callable[[], bytes]) -> bytes:
        """The bytes of a tool list; nothing of an empty one."""
        key = tuple(tools)
        if not key:
            return b""
        known = self._tools.get(key)
        if known is None:
            if len(self._tools) >= KEPT_TOOL_LISTS:
                del self._tools[next(iter(self._tools))]
            known = self._tools[key] = encode()
        return known

    def instructions(self, text: str | None, encode: Callable[[str], bytes]) -> bytes:
        """The bytes of the instructions; nothing where there are none."""
        if not text:
            return b""
        if self._instructions[0] != text:
            self._instructions = (text, encode(text))
        return self._instructions[1]


def json_bytes(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        TypeError, ValueError: it is none.
    """
    # half of a surrogate pair, as broken tool output may hold, has no UTF-8
    return dumps(value).encode("utf-8", "replace")


def id_at_server(part: Mapping[str, Any]) -> str:
    """The id of a call, or of its result, as the server gave it, though it may have given it twice."""
    own: str = part.get("server_id", part["id"])
    return own


def arguments_of(call: Mapping[str, Any]) -> str:
    """The arguments of a call; none where they were no JSON object: a server would refuse the whole history."""
    return "{}" if "raw" in call else dumps(call["input"])


def text_of_result(result: Mapping[str, Any]) -> str:
    """What the model is told of a result."""
    output = result["output"]
    return output if isinstance(output, str) else dumps(output)


def schema_name(schema: Mapping[str, Any]) -> str:
    """What servers call the shape of an answer, in the letters that they take."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "output"))[:64]
