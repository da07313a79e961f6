"""A request as the bytes of a Responses body, each message and tool encoded once.

The history only ever grows at its end, so a body is a join of bytes that earlier turns made. Nothing is
kept by the server (``store`` is false): all that the model needs goes along.
Format: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nbagent.core.base.errors import ModelError
from nbagent.core.base.files import is_image, label
from nbagent.core.base.messages import Message, calls_of, results_of, text_of
from nbagent.core.base.model import Hosted, Request, ToolSpec
from nbagent.models.openai.api import Settings
from nbagent.models.openai.encoding import (
    EncodedOnce,
    arguments_of,
    id_at_server,
    json_bytes,
    schema_name,
    text_of_result,
)
from nbagent.models.openai.files import as_text, data_of
from nbagent.models.openai.output import in_words
from nbagent.models.openai.providers import OutputMode
from nbagent.models.openai.strict import is_strict
from nbagent.models.openai.tool_choice import chosen

from .hosted import included
from .kept import items_of

WIRE = "openai-responses"
"""The name of this encoding in ``Message.wire``, before the provider's."""
ENCRYPTED = "reasoning.encrypted_content"
_OF_CHAT: Mapping[str, tuple[str, ...]] = {
    "reasoning_effort": ("reasoning", "effort"),
    "verbosity": ("text", "verbosity"),
    "max_tokens": ("max_output_tokens",),
    "max_completion_tokens": ("max_output_tokens",),
}
"""Fields of Chat Completions, and where they stand in this API."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is asked: what it refused is left out."""

    provider: str
    """The name of whose server it is: messages that come from it have its data back."""
    summary: bool = False
    """Whether summaries of the reasoning are asked for."""
    encrypted: bool = False
    """Whether the reasoning itself is asked for, in encrypted form."""
    output: OutputMode = "schema"
    """How it is told the shape of a typed answer."""


class ResponsesEncoder:
    """Encodes the requests of one model; of its fields, what is nested is merged into what stands there already."""

    def __init__(self, settings: Settings) -> None:
        self._head = b'{"model":' + json_bytes(settings.model) + b',"input":['
        self.given = _translated(settings.fields)
        """The model's own fields."""
        self._tool_choice = settings.tool_choice
        self._sees = settings.sees
        self.once = EncodedOnce()

    def body(self, request: Request, way: Way) -> bytes:
        """The JSON of one request, in the way of the server that it goes to.

        Raises:
            ModelConfigError: the tool that is to be called is not among those of the request.
        """
        request = in_words(request, way.output)
        messages = self.once.messages(
            request.messages,
            f"{WIRE} {way.provider}",
            partial(encode_message, provider=way.provider, sees=self._sees),
        )
        said = b",".join(filter(None, messages))  # one that says nothing is no item
        tools = self.once.tools((*request.tools, *request.hosted), partial(_tools, request))
        instructions = self.once.instructions(request.instructions, _instruct)
        return b"".join((self._head, said, b"]", instructions, tools, self._tail(request, way)))

    def _tail(self, request: Request, way: Way) -> bytes:
        fields: dict[str, Any] = {"stream": request.stream, "store": False}
        include = [ENCRYPTED] if way.encrypted else []
        include += filter(None, map(included, request.hosted))
        if include:
            fields["include"] = list(dict.fromkeys(include))
        if way.summary:
            fields["reasoning"] = {"summary": "auto"}
        choice = chosen(self._tool_choice, request)
        if choice is not None:
            fields["tool_choice"] = _choice(choice)
        if request.output_schema is not None and way.output != "prompt":
            fields["text"] = {"format": _format(request.output_schema, way.output)}
        return b"," + json_bytes(merged(fields, self.given))[1:]


def merged(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those that are given: objects in one another, ``include`` together, else the given one."""
    both = dict(own)
    for name, value in given.items():
        known = both.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            both[name] = merged(known, value)
        elif name == "include" and isinstance(known, list) and isinstance(value, list | tuple):
            both[name] = list(dict.fromkeys([*known, *value]))
        else:
            both[name] = value
    return both


def encode_message(message: Message, provider: str, *, sees: bool = True) -> bytes:
    """One message as items joined by commas; nothing where it says nothing.

    Args:
        message: whatever its provider.
        provider: whose server it goes to.
        sees: whether the model takes pictures; else they are told in words.

    Raises:
        ModelError: there is a file that this API does not take.
        TypeError, ValueError: a part holds something that is no JSON.
    """
    if message["role"] == "tool":
        items = [_result(part, sees=sees) for part in results_of(message)]
    elif message["role"] == "assistant":
        items = _assistant(message, provider)
    else:
        items = [{"role": message["role"], "content": _content(message["content"], sees=sees)}]
    return b",".join(map(json_bytes, items))


def _content(parts: Sequence[Mapping[str, Any]], *, sees: bool) -> str | list[dict[str, Any]]:
    told = [part for part in parts if part["type"] in ("text", "file")]
    if all(part["type"] == "text" for part in told) and len(told) <= 1:
        return "".join(part["text"] for part in told)
    return [_part(part, sees=sees) for part in told]


def _part(part: Mapping[str, Any], *, sees: bool) -> dict[str, Any]:
    text = as_text(part, sees=sees)
    if text is not None:
        return {"type": "input_text", "text": text}
    media_type: str = part["media_type"]
    if media_type.partition("/")[0] in ("audio", "video"):
        raise ModelError(
            f"the {label(part)} is {media_type}, which Responses does not take: it takes pictures, documents "
            "and text"
        )
    url = f"data:{media_type};base64,{data_of(part).decode()}"
    if is_image(part):
        return {"type": "input_image", "detail": "auto", "image_url": url}
    return {"type": "input_file", "filename": part.get("name") or "file", "file_data": url}


def _assistant(message: Message, provider: str) -> list[dict[str, Any]]:
    calls = [_call(part) for part in calls_of(message)]
    text = text_of(message)
    came = message.get("provider") or {}
    if came.get("name") == provider:
        thought = "".join(p["text"] for p in message["content"] if p["type"] == "reasoning")
        items = items_of(came.get("data"), text, thought, calls)
        if items is not None:
            return items
    said = [{"role": "assistant", "content": text}] if text else []
    return [*said, *calls]


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    own = {"call_id": id_at_server(part), "name": part["name"], "arguments": arguments_of(part)}
    return {"type": "function_call", **own}


def _result(part: Mapping[str, Any], *, sees: bool) -> dict[str, Any]:
    told: Any = text_of_result(part)
    files = part.get("files")
    if files:
        text = [{"type": "text", "text": told}] if told else []
        told = [_part(each, sees=sees) for each in (*text, *files)]
    return {"type": "function_call_output", "call_id": id_at_server(part), "output": told}


def _instruct(instructions: str) -> bytes:
    return b',"instructions":' + json_bytes(instructions)


def _tools(request: Request) -> bytes:
    hosted = ({"type": tool.kind, **tool.options} for tool in request.hosted)
    return b',"tools":' + json_bytes([*map(_tool, request.tools), *hosted])


def _tool(tool: ToolSpec) -> dict[str, Any]:
    said = {"description": tool.description} if tool.description else {}
    schema = tool.input_schema
    own = {"name": tool.name, **said, "parameters": schema, "strict": is_strict(schema)}
    return {"type": "function", **own}


def _format(schema: Mapping[str, Any], output: OutputMode) -> dict[str, Any]:
    if output == "object":
        return {"type": "json_object"}
    own = {"name": schema_name(schema), "schema": schema, "strict": is_strict(schema)}
    return {"type": "json_schema", **own}


def _choice(choice: str | ToolSpec | Hosted) -> Any:
    if isinstance(choice, ToolSpec):
        return {"type": "function", "name": choice.name}
    if isinstance(choice, Hosted):
        label = choice.options.get("server_label")
        return {"type": choice.kind, **({"server_label": label} if label else {})}
    return choice


def _translated(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that are named as in Chat Completions, as this API has them."""
    told: dict[str, Any] = {}
    for name, value in fields.items():
        own: Any = value
        for step in reversed(_OF_CHAT.get(name, (name,))):
            own = {step: own}
        told = merged(told, own)
    return told
