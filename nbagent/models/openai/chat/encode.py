"""A request as the bytes of a Chat Completions body, each message and tool encoded once.

The history only ever grows at its end, so a body is a join of bytes that earlier turns made.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.core.base.files import files_of
from nbagent.core.base.messages import Message, calls_of, dumps, results_of, text_of
from nbagent.core.base.model import Request, ToolSpec
from nbagent.models.openai.output import in_words
from nbagent.models.openai.providers import OutputMode
from nbagent.models.openai.strict import is_strict
from nbagent.models.openai.tool_choice import chosen

from .fields import (
    OF_CALL,
    OF_FUNCTION,
    OF_MESSAGE,
    REASONING,
    THINKING,
    reasoning_name,
    wanted,
)
from .files import content, of_results

WIRE = "openai-chat"
"""The name of this encoding in ``Message.wire``, before the provider's."""
KEPT_TOOL_LISTS = 8
"""How many different tool lists keep their bytes; agents seldom have more than one."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a server takes back what it said."""

    provider: str
    """The name of whose server it is: messages that come from it have its data back."""
    without: frozenset[str] = frozenset()
    """The fields that it refused."""
    always: frozenset[str] = frozenset()
    """The names of reasoning that it wants in every message of the assistant, empty where there is none."""
    sees: bool = True
    """Whether it takes pictures; else they are told in words."""

    def __str__(self) -> str:
        return " ".join((self.provider, *sorted(self.without), "+", *sorted(self.always)))


class ChatEncoder:
    """Encodes the requests of one model; ``encoded`` counts the messages it really had to encode."""

    def __init__(
        self, model: str, fields: Mapping[str, Any], *, tool_choice: str | None = None
    ) -> None:
        self._head = b'{"model":' + _bytes(model) + b',"messages":['
        self._fields = dict(fields)
        self._tool_choice = tool_choice
        self._tools: dict[tuple[ToolSpec, ...], bytes] = {}
        self._instructions: tuple[str, bytes] = ("", b"")
        self.encoded = 0

    def body(
        self, request: Request, way: Way, *, usage: bool, output: OutputMode = "schema"
    ) -> bytes:
        """The JSON of one request.

        Args:
            request: what to encode.
            way: whose server it goes to, and how it takes back what it said.
            usage: whether to ask for the token counts at a stream's end.
            output: how the server is told the shape of the answer.
        """
        request = in_words(request, output)
        tools = self._tool_bytes(request.tools)
        tail = self._tail(request, usage=usage, output=output)
        messages = b",".join(self._messages(request, way))
        return b"".join((self._head, messages, b"]", tools, tail))

    def _messages(self, request: Request, way: Way) -> list[bytes]:
        format_, encoded = f"{WIRE} {way}", []
        if request.instructions:
            if self._instructions[0] != request.instructions:
                system = _bytes({"role": "system", "content": request.instructions})
                self._instructions = (request.instructions, system)
            encoded.append(self._instructions[1])
        for message in request.messages:
            wire = message.wire
            if wire is None or wire[0] != format_:
                wire = (format_, encode_message(message, way))
                self.encoded += 1
                if not any(files_of(message)):  # their bytes are kept once, in the history
                    message.wire = wire
            encoded.append(wire[1])
        return encoded

    def _tool_bytes(self, tools: Sequence[ToolSpec]) -> bytes:
        if not tools:
            return b""
        key = tuple(tools)
        known = self._tools.get(key)
        if known is None:
            if len(self._tools) >= KEPT_TOOL_LISTS:
                del self._tools[next(iter(self._tools))]
            known = self._tools[key] = b',"tools":' + _bytes([_tool(tool) for tool in tools])
        return known

    def _tail(self, request: Request, *, usage: bool, output: OutputMode) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream}
        if request.stream and usage:
            fields["stream_options"] = {"include_usage": True}
        choice = chosen(self._tool_choice, request)
        if choice is not None:
            fields["tool_choice"] = choice if isinstance(choice, str) else _named(choice.name)
        fields.update(self._fields)
        if request.output_schema is not None and output != "prompt":
            fields["response_format"] = _response_format(request.output_schema, output)
        return b"," + _bytes(fields)[1:]


def encode_message(message: Message, way: Way) -> bytes:
    """One message as chat messages joined by commas: several where a tool message has several results.

    Raises:
        TypeError, ValueError: a part holds something that is no JSON.
    """
    if message["role"] == "tool":
        results = results_of(message)
        told = b",".join(_bytes(_result(part)) for part in results)
        return b"".join((told, *of_results(results, sees=way.sees)))
    if message["role"] == "assistant":
        return _bytes(_assistant(message, way))
    if any(files_of(message)):
        head = b'{"role":' + _bytes(message["role"]) + b',"content":'
        return b"".join((head, *content(message["content"], sees=way.sees), b"}"))
    return _bytes({"role": message["role"], "content": _content(message)})


def _content(message: Message) -> str | list[dict[str, str]]:
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    if len(texts) <= 1:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _assistant(message: Message, way: Way) -> dict[str, Any]:
    provider = message.get("provider") or {}
    mine = provider.get("name") == way.provider
    data = provider.get("data") if mine else None
    calls = [_call(part, part.get("provider") if mine else None, way) for part in calls_of(message)]
    text = text_of(message)
    said: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        said |= {"content": text or None, "tool_calls": calls}
    name = reasoning_name(data)
    thoughts = "".join(p["text"] for p in message["content"] if p["type"] == "reasoning")
    if name == THINKING and thoughts and THINKING not in way.without:
        thought = {"type": THINKING, THINKING: [{"type": "text", "text": thoughts}]}
        said["content"] = [thought, *([{"type": "text", "text": text}] if text else ())]
    elif name in REASONING and name not in way.without:
        said[name] = thoughts
    said |= dict.fromkeys(way.always, thoughts if mine else "")
    return {**wanted(data, OF_MESSAGE, way.without), **said}


def _call(part: Mapping[str, Any], data: Any, way: Way) -> dict[str, Any]:
    # arguments that were no JSON object would make the server refuse the whole history
    arguments = "{}" if "raw" in part else dumps(part["input"])
    function = {"name": part["name"], "arguments": arguments}
    inside = {"fields": data.get("fields", {}).get("function")} if _has_fields(data) else None
    own = wanted(data, OF_CALL, way.without)
    return {
        **own,
        "id": _own_id(part),
        "type": "function",
        "function": {**wanted(inside, OF_FUNCTION, way.without), **function},
    }


def _has_fields(data: Any) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("fields"), Mapping)


def _own_id(part: Mapping[str, Any]) -> str:
    """The id of a call as the server gave it, though it may have given it twice."""
    own: str = part.get("server_id", part["id"])
    return own


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    output = part["output"]
    text = output if isinstance(output, str) else dumps(output)
    return {"role": "tool", "tool_call_id": _own_id(part), "content": text}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def _response_format(schema: Mapping[str, Any], output: OutputMode) -> dict[str, Any]:
    if output == "object":
        return {"type": "json_object"}
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "output"))[:64]
    told: dict[str, Any] = {"name": name, "schema": schema}
    if is_strict(schema):  # left out where it is not: few servers know the word
        told["strict"] = True
    return {"type": "json_schema", "json_schema": told}


def _bytes(value: Any) -> bytes:
    # half of a surrogate pair, as broken tool output may hold, has no UTF-8
    return dumps(value).encode("utf-8", "replace")
