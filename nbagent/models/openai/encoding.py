"""The encoding that both APIs share: cached JSON bytes, answer types, tool choice.

Few servers support every form of a typed answer's schema
(https://platform.openai.com/docs/guides/structured-outputs). If a server rejects a form, requests use the next
form from then on. nbagent validates every answer itself.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nbagent.core.base.errors import ModelConfigError
from nbagent.core.base.file_parts import files_of
from nbagent.core.base.messages import Message, dumps, is_prompt
from nbagent.core.base.model import TOOL_NAME, Hosted, Request, ToolSpec

from .errors import Refusal
from .providers import CallIds, OutputMode

KEPT_TOOL_LISTS = 8
"""The number of different tool lists with cached bytes; agents rarely have more than one."""


class EncodingCache:
    """A cache of the bytes of one model's messages, tool lists and instructions.

    Args:
        describe: returns a message with files that the API does not take described in words.
    """

    def __init__(self, describe: Callable[[Message], Message]) -> None:
        self._describe = describe
        self._tools: dict[tuple[Any, ...], bytes] = {}
        self._instructions: tuple[str, bytes] = ("", b"")

    def messages(
        self, messages: Sequence[Message], wire: str, encode: Callable[[Message], bytes]
    ) -> list[bytes]:
        """The bytes of each message, cached in the message itself.

        Args:
            messages: a history, which only ever grows at its end.
            wire: the name of this encoding, see ``Message.wire``; bytes of another encoding are replaced.
            encode: the function that encodes a message; it raises if the API does not take a file. Only the last
                message may raise: an earlier one is of another API, or its error is known.
        """
        return [
            kept[1]
            if (kept := message.wire) is not None and kept[0] == wire
            else self._encoded(message, wire, encode, is_last=message is messages[-1])
            for message in messages
        ]

    def _encoded(
        self, message: Message, wire: str, encode: Callable[[Message], bytes], *, is_last: bool
    ) -> bytes:
        if any(files_of(message)):  # not cached: files are stored once, in the history
            return encode(message if is_last else self._describe(message))
        encoded = encode(message)
        message.wire = (wire, encoded)
        return encoded

    def tools(self, tools: Sequence[Any], encode: Callable[[], bytes]) -> bytes:
        """The bytes of a tool list; empty for an empty list."""
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
        """The bytes of the instructions; empty if there are none."""
        if not text:
            return b""
        if self._instructions[0] != text:
            self._instructions = (text, encode(text))
        return self._instructions[1]


def json_bytes(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    # half of a surrogate pair, from broken tool output, cannot be encoded as UTF-8
    return dumps(value).encode("utf-8", "replace")


def id_at_server(part: Mapping[str, Any], accepted: CallIds = "any") -> str:
    """The id of a call or its result in requests: the server's own, which may not be unique, or one that it accepts.

    An id of another server that this one does not accept becomes one of nine letters and digits, always the same.
    """
    if accepted == "any":
        own: str = part.get("server_id", part["id"])
        return own
    own = part["id"]
    return own if _IDS[accepted].fullmatch(own) else _digest(own)


def _digest(text: str) -> str:
    return b32encode(hashlib.sha256(text.encode("utf-8", "replace")).digest())[:9].decode().lower()


_IDS: Mapping[CallIds, re.Pattern[str]] = {
    "wide": re.compile(r"[a-zA-Z0-9_-]{1,40}"),
    "nine": re.compile(r"[a-zA-Z0-9]{9}"),
}
"""The ids that the rules accept."""
_OF_CALL = re.compile(r"tool_?\s?(?:call|use)s?\W*(?:\d+\W*)?_?ids?\b|call_id", re.IGNORECASE)
_OF_FORM = re.compile(
    r"too long|length|pattern|constraint|unique|duplicate|must be a-z", re.IGNORECASE
)


def next_call_ids(accepted: CallIds, refusal: Refusal) -> CallIds | None:
    """The next stricter rule, if a server rejected the form of a call's id."""
    text = refusal.text
    if accepted == "nine" or not (_OF_CALL.search(text) and _OF_FORM.search(text)):
        return None
    if accepted == "wide" and not all(map(_IDS["wide"].fullmatch, _ids_in(refusal.request or {}))):
        return None  # another request, sent before this answer, changed the rule
    return "nine" if accepted == "wide" or "length of 9" in text else "wide"


def _ids_in(request: Mapping[str, Any]) -> Iterator[str]:
    for item in (*request.get("messages", ()), *request.get("input", ())):
        yield from (call["id"] for call in item.get("tool_calls", ()))
        if "call_id" in item:
            yield item["call_id"]


@lru_cache(maxsize=4_096)
def name_at_server(name: str) -> str:
    """A tool's name in requests: its own, or, if APIs reject that, its letters and a digest of it."""
    if TOOL_NAME.fullmatch(name):
        return name
    letters = re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")[:48]
    return f"{'' if letters[:1].isalpha() else 'tool_'}{letters}_{_digest(name)}"


def own_names(tools: Iterable[ToolSpec]) -> dict[str, str]:
    """The own names of the tools that have another name in requests, by that name."""
    sent = ((name_at_server(tool.name), tool.name) for tool in tools)
    return {name: own for name, own in sent if name != own}


def arguments_of(call: Mapping[str, Any]) -> str:
    """The arguments of a call; an empty object if they are not a JSON object, because a server would reject them."""
    return "{}" if "raw" in call else dumps(call["input"])


def text_of_result(result: Mapping[str, Any]) -> str:
    """The text of a result for the model."""
    output = result["output"]
    return output if isinstance(output, str) else dumps(output)


def filled(text: str) -> str:
    """The text; if it is blank, which servers reject, as JSON."""
    return text if text.strip() else dumps(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a model that affect its requests, in either API."""

    model: str
    """The model's name at the server."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of each request."""
    tool_choice: str | None = None
    """The value of ``tool_choice``, see ``OpenAIModel``."""
    output: OutputMode = "schema"
    """The form of a typed answer's schema in requests, until the server rejects it."""
    call_ids: CallIds = "any"
    """The ids of calls that the server accepts, until it rejects one."""
    has_vision: bool = True
    """Whether the model accepts pictures; otherwise they are described in words."""


MODES: tuple[OutputMode, ...] = ("schema", "object", "prompt")
"""The forms of a typed answer's schema, strictest first."""
OTHER_MODE: Mapping[OutputMode, str] = {
    "object": "The server does not accept a JSON Schema for the answer, so it is asked for JSON, and the schema is in the instructions.",
    "prompt": "The server has no JSON mode, so the answer's schema is only in the instructions.",
}
"""The notes for the person, by the form that is used from now on."""
_NAMED = re.compile(
    r"response_?format|text\.format|json_schema|json_object|json mode|structured output",
    re.IGNORECASE,
)
_BY_TYPE: Mapping[Any, OutputMode] = {"json_schema": "schema", "json_object": "object"}
"""The form by the format type in a request."""
_SCHEMA_NOTE = (
    "Your final answer must be one JSON object that matches this JSON Schema, with no other text around it "
    "and no code fence:\n{schema}"
)


def in_words(request: Request, mode: OutputMode) -> Request:
    """The request, with the schema in its instructions if no field contains it, or if the server may ignore the field.

    Servers ignore the field without an error, so after a wrong answer the model also gets the schema in words.
    """
    last = request.messages[-1] if request.messages else None
    is_corrected = last is not None and last["role"] == "user" and not is_prompt(last)
    if request.output_schema is None or (mode == "schema" and not is_corrected):
        return request
    note = _SCHEMA_NOTE.format(schema=dumps(request.output_schema))
    before = f"{request.instructions}\n\n" if request.instructions else ""
    return request._replace(instructions=f"{before}{note}")


def answer_format(request: Request, mode: OutputMode) -> dict[str, Any] | None:
    """The format of a typed answer, in the form of Responses; None if no field of the request has it."""
    schema = request.output_schema
    if schema is None or mode == "prompt":
        return None
    if mode == "object":
        return {"type": "json_object"}
    strict = as_strict(schema)
    return {
        "type": "json_schema",
        # servers allow only these characters
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "output"))[:64],
        "schema": strict or schema,
        "strict": strict is not None,
    }


def next_mode(mode: OutputMode, refusal: Refusal) -> OutputMode | None:
    """The next form to use, if a server rejected the current one, perhaps in a request of an earlier form."""
    if not _NAMED.search(refusal.text):
        return None
    refused = MODES.index(mode if refusal.request is None else _mode_of(refusal.request))
    if refused + 1 >= len(MODES):
        return None
    return MODES[max(refused + 1, MODES.index(mode))]


def _mode_of(request: Mapping[str, Any]) -> OutputMode:
    """The form of a request."""
    for part in (request.get("response_format"), request.get("text")):
        format_ = part.get("format", part) if isinstance(part, Mapping) else {}
        if isinstance(format_, Mapping) and format_.get("type") in _BY_TYPE:
            return _BY_TYPE[format_["type"]]
    return "prompt"


AUTO = "auto"
WORDS = (AUTO, "required", "none")


def chosen(choice: str | None, request: Request) -> str | ToolSpec | Hosted | None:
    """The tool choice of a request: one of ``WORDS``, a tool, or None.

    Raises:
        ModelConfigError: the request does not have this tool, or has no tools.
    """
    if choice is None:
        return None
    is_first = bool(request.messages) and is_prompt(request.messages[-1])
    every: list[ToolSpec | Hosted] = [*request.tools, *request.hosted]
    tools = {tool.name: tool for tool in every}
    if choice in (AUTO, "none"):
        return choice if tools else None
    if not is_first:
        return AUTO if tools else None
    if not tools or (choice not in WORDS and choice not in tools):
        known = ", ".join(sorted(tools)) or "none"
        raise ModelConfigError(
            f"tool_choice={choice!r} is not a tool of the agent. Available: {known}"
        )
    return choice if choice in WORDS else tools[choice]


_WORDS = frozenset(
    (
        *("title", "description", "$defs", "definitions", "$ref", "type", "enum", "const", "anyOf"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("pattern", "format"),
    )
)
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_MAX_PROPERTIES = 5_000
_MAX_LEVELS = 10
_MAX_TEXT = 120_000
"""The maximum characters of all names of properties and definitions and all values of enums."""
_MAX_VALUES = 1_000
"""The maximum number of values of all enums."""


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether the schema satisfies the rules of strict mode without changes.

    Strict mode requires all properties, and forbids other properties, defaults and many keywords.
    """
    counted = _Counted()
    is_object = schema.get("type") == "object" and "anyOf" not in schema
    return (
        is_object
        and _fits(schema, 1, counted)
        and counted.properties <= _MAX_PROPERTIES
        and counted.values <= _MAX_VALUES
        and counted.text <= _MAX_TEXT
    )


def as_strict(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """An answer's schema in the form of strict mode; None if that is not possible.

    Objects that do not mention additional properties then forbid them, because a pydantic model ignores them anyway.
    """
    closed: Mapping[str, Any] = _without_additional(schema, 1)
    return closed if is_strict(closed) else None


def _without_additional(schema: Any, level: int) -> Any:
    if not isinstance(schema, Mapping) or level > _MAX_LEVELS:
        return schema
    closed = dict(schema)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    for name in ("properties", "$defs", "definitions"):
        if isinstance(closed.get(name), Mapping):
            closed[name] = {
                key: _without_additional(each, level + 1) for key, each in closed[name].items()
            }
    if isinstance(closed.get("anyOf"), Sequence):
        closed["anyOf"] = [_without_additional(each, level + 1) for each in closed["anyOf"]]
    if "items" in closed:
        closed["items"] = _without_additional(closed["items"], level + 1)
    return closed


@dataclass(slots=True)
class _Counted:
    """The numbers that strict mode limits for a whole schema."""

    properties: int = 0
    values: int = 0
    text: int = 0


def _fits(schema: Any, level: int, counted: _Counted) -> bool:
    if not isinstance(schema, Mapping) or level > _MAX_LEVELS or not schema.keys() <= _WORDS:
        return False
    if not {"type", "$ref", "anyOf", "enum", "const"} & schema.keys():
        return False  # the schema allows any value
    if "$ref" in schema and schema.keys() - {"$ref", "description", "title"}:
        return False
    if schema.get("format", "uuid") not in _FORMATS:
        return False
    values = schema.get("enum", ())
    counted.values += len(values)
    counted.text += sum(len(str(value)) for value in values)
    if not _object_fits(schema, level, counted):
        return False
    inner_schemas = [*schema.get("anyOf", ())]
    if "array" in _types(schema):
        inner_schemas.append(schema.get("items"))
    for name in ("$defs", "definitions"):
        counted.text += sum(map(len, schema.get(name, {})))
        inner_schemas += schema.get(name, {}).values()
    return all(_fits(each, level + 1, counted) for each in inner_schemas)


def _object_fits(schema: Mapping[str, Any], level: int, counted: _Counted) -> bool:
    if "object" not in _types(schema):
        return not {"properties", "required", "additionalProperties"} & schema.keys()
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return False
    if sorted(schema.get("required", ())) != sorted(properties):
        return False
    counted.properties += len(properties)
    counted.text += sum(map(len, properties))
    return all(_fits(each, level + 1, counted) for each in properties.values())


def _types(schema: Mapping[str, Any]) -> list[Any]:
    types = schema.get("type", ())
    return [types] if isinstance(types, str) else [*types]
