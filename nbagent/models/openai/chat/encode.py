"""A request as the bytes of a Chat Completions body, each message and tool encoded once.

The history only ever grows at its end, so a body is a join of bytes that earlier turns made.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbagent.core.base.files import files_of
from nbagent.core.base.messages import Message, calls_of, dumps, results_of, text_of
from nbagent.core.base.model import Request, ToolSpec

from .files import content, of_results

WIRE = "openai-chat"
"""The name of this encoding in ``Message.wire``, before the provider's."""
KEPT_TOOL_LISTS = 8
"""How many different tool lists keep their bytes; agents seldom have more than one."""


class ChatEncoder:
    """Encodes the requests of one model; ``encoded`` counts the messages it really had to encode."""

    def __init__(self, model: str, fields: Mapping[str, Any], *, sees: bool = True) -> None:
        self._sees = sees
        self._head = b'{"model":' + _bytes(model) + b',"messages":['
        self._fields = dict(fields)
        self._tools: dict[tuple[ToolSpec, ...], bytes] = {}
        self._instructions: tuple[str, bytes] = ("", b"")
        self.encoded = 0

    def body(self, request: Request, provider: str, *, usage: bool) -> bytes:
        """The JSON of one request.

        Args:
            request: what to encode.
            provider: whose server it goes to; messages that come from it have its data back.
            usage: whether to ask for the token counts at a stream's end.
        """
        tools = self._tool_bytes(request.tools)
        tail = self._tail(request, usage=usage)
        messages = b",".join(self._messages(request, f"{WIRE} {provider}"))
        return b"".join((self._head, messages, b"]", tools, tail))

    def _messages(self, request: Request, format_: str) -> Iterator[bytes]:
        if request.instructions:
            if self._instructions[0] != request.instructions:
                system = _bytes({"role": "system", "content": request.instructions})
                self._instructions = (request.instructions, system)
            yield self._instructions[1]
        for message in request.messages:
            wire = message.wire
            if wire is None or wire[0] != format_:
                wire = (format_, encode_message(message, sees=self._sees))
                self.encoded += 1
                if not any(files_of(message)):  # their bytes are kept once, in the history
                    message.wire = wire
            yield wire[1]

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

    def _tail(self, request: Request, *, usage: bool) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream}
        if request.stream and usage:
            fields["stream_options"] = {"include_usage": True}
        fields.update(self._fields)
        if request.output_schema is not None:
            fields["response_format"] = _response_format(request.output_schema)
        return b"," + _bytes(fields)[1:]


def encode_message(message: Message, *, sees: bool = True) -> bytes:
    """One message as chat messages joined by commas: several where a tool message has several results.

    Raises:
        TypeError, ValueError: a part holds something that is no JSON.
    """
    if message["role"] == "tool":
        results = results_of(message)
        told = b",".join(_bytes(_result(part)) for part in results)
        return b"".join((told, *of_results(results, sees=sees)))
    if message["role"] == "assistant":
        return _bytes(_assistant(message))
    if any(files_of(message)):
        head = b'{"role":' + _bytes(message["role"]) + b',"content":'
        return b"".join((head, *content(message["content"], sees=sees), b"}"))
    return _bytes({"role": message["role"], "content": _content(message)})


def _content(message: Message) -> str | list[dict[str, str]]:
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    if len(texts) <= 1:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _assistant(message: Message) -> dict[str, Any]:
    calls = [
        {
            "id": _own_id(part),
            "type": "function",
            # arguments that were no JSON object would make the server refuse the whole history
            "function": {
                "name": part["name"],
                "arguments": "{}" if "raw" in part else dumps(part["input"]),
            },
        }
        for part in calls_of(message)
    ]
    text = text_of(message)
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


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


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "output"))[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


def _bytes(value: Any) -> bytes:
    # half of a surrogate pair, as broken tool output may hold, has no UTF-8
    return dumps(value).encode("utf-8", "replace")
