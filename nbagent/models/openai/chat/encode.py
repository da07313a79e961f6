"""A request as the bytes of a Chat Completions body, each message and tool encoded once.

The history only ever grows at its end, so a body is a join of bytes that earlier turns made.
Format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nbagent.core.base.files import files_of
from nbagent.core.base.messages import Message, calls_of, results_of, text_of
from nbagent.core.base.model import Request, ToolSpec
from nbagent.models.openai.api import Settings
from nbagent.models.openai.encoding import (
    EncodedOnce,
    arguments_of,
    id_at_server,
    json_bytes,
    schema_name,
    text_of_result,
)
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


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is asked, and takes back what it said."""

    provider: str
    """The name of whose server it is: messages that come from it have its data back."""
    without: frozenset[str] = frozenset()
    """The fields that it refused."""
    always: frozenset[str] = frozenset()
    """The names of reasoning that it wants in every message of the assistant, empty where there is none."""
    sees: bool = True
    """Whether it takes pictures; else they are told in words."""
    usage: bool = True
    """Whether it is asked for the token counts at a stream's end."""
    output: OutputMode = "schema"
    """How it is told the shape of a typed answer."""

    @property
    def wire(self) -> str:
        """All of it that shows in a message."""
        return " ".join((self.provider, *sorted(self.without), "+", *sorted(self.always)))


class ChatEncoder:
    """Encodes the requests of one model."""

    def __init__(self, settings: Settings) -> None:
        self._head = b'{"model":' + json_bytes(settings.model) + b',"messages":['
        self._fields = settings.fields
        self._tool_choice = settings.tool_choice
        self.once = EncodedOnce()

    def body(self, request: Request, way: Way) -> bytes:
        """The JSON of one request, in the way of the server that it goes to."""
        request = in_words(request, way.output)
        tools = self.once.tools(request.tools, partial(_tools, request.tools))
        tail = self._tail(request, way)
        messages = self.once.messages(
            request.messages, f"{WIRE} {way.wire}", partial(encode_message, way=way)
        )
        system = self.once.instructions(request.instructions, _system)
        said = b",".join((system, *messages) if system else messages)
        return b"".join((self._head, said, b"]", tools, tail))

    def _tail(self, request: Request, way: Way) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream}
        if request.stream and way.usage:
            fields["stream_options"] = {"include_usage": True}
        choice = chosen(self._tool_choice, request)
        if choice is not None:
            fields["tool_choice"] = choice if isinstance(choice, str) else _named(choice.name)
        fields.update(self._fields)
        if request.output_schema is not None and way.output != "prompt":
            fields["response_format"] = _response_format(request.output_schema, way.output)
        return b"," + json_bytes(fields)[1:]


def encode_message(message: Message, way: Way) -> bytes:
    """One message as chat messages joined by commas: several where a tool message has several results.

    Raises:
        TypeError, ValueError: a part holds something that is no JSON.
    """
    if message["role"] == "tool":
        results = results_of(message)
        told = b",".join(json_bytes(_result(part)) for part in results)
        return b"".join((told, *of_results(results, sees=way.sees)))
    if message["role"] == "assistant":
        return json_bytes(_assistant(message, way))
    if any(files_of(message)):
        head = b'{"role":' + json_bytes(message["role"]) + b',"content":'
        return b"".join((head, *content(message["content"], sees=way.sees), b"}"))
    return json_bytes({"role": message["role"], "content": _content(message)})


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
    function = {"name": part["name"], "arguments": arguments_of(part)}
    inside = {"fields": data.get("fields", {}).get("function")} if _has_fields(data) else None
    own = wanted(data, OF_CALL, way.without)
    return {
        **own,
        "id": id_at_server(part),
        "type": "function",
        "function": {**wanted(inside, OF_FUNCTION, way.without), **function},
    }


def _has_fields(data: Any) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("fields"), Mapping)


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_at_server(part), "content": text_of_result(part)}


def _system(instructions: str) -> bytes:
    return json_bytes({"role": "system", "content": instructions})


def _tools(tools: Sequence[ToolSpec]) -> bytes:
    return b',"tools":' + json_bytes([_tool(tool) for tool in tools])


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
    told: dict[str, Any] = {"name": schema_name(schema), "schema": schema}
    if is_strict(schema):  # left out where it is not: few servers know the word
        told["strict"] = True
    return {"type": "json_schema", "json_schema": told}
