"""What both APIs encode alike: JSON as bytes, made once for what is sent again and again; answer types, tool choice, files.

Which models see is known of few: of any other it is tried, and a server that refuses says so. Few servers
take every way to be told an answer's type (https://platform.openai.com/docs/guides/structured-outputs):
one that refuses a way is asked in the next from then on, and whatever comes is checked here all the same.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.base.errors import ModelConfigError, ModelError
from nbagent.core.base.file_parts import files_of, is_base64, is_image, is_text, label
from nbagent.core.base.messages import Message, Part, dumps
from nbagent.core.base.model import Hosted, Request, ToolSpec

from .errors import Refusal
from .providers import OutputMode

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
    ) -> list[bytes]:
        """Each message's bytes, which it keeps.

        Args:
            messages: a history, which only ever grows at its end.
            wire: the name of this encoding, see ``Message.wire``; bytes of another are made anew.
            encode: makes them.
        """
        return [
            kept[1]
            if (kept := message.wire) is not None and kept[0] == wire
            else self._encoded(message, wire, encode)
            for message in messages
        ]

    def _encoded(self, message: Message, wire: str, encode: Callable[[Message], bytes]) -> bytes:
        encoded = encode(message)
        self.messages_encoded += 1
        if not any(files_of(message)):  # their bytes are kept once, in the history
            message.wire = (wire, encoded)
        return encoded

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


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model was given that shapes its requests, in either API."""

    model: str
    """What its server calls it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each request."""
    tool_choice: str | None = None
    """Which tool its first answer calls, see ``tool_choice``."""
    output: OutputMode = "schema"
    """How the server is told the shape of a typed answer, until it refuses that."""
    sees: bool = True
    """Whether it takes pictures; else they are told in words."""


MODES: tuple[OutputMode, ...] = ("schema", "object", "prompt")
"""From the one that binds the model most."""
_NAMED = re.compile(
    r"response_?format|text\.format|json_schema|json_object|json mode|structured output",
    re.IGNORECASE,
)
_BY_TYPE: Mapping[Any, OutputMode] = {"json_schema": "schema", "json_object": "object"}
"""By the type of format that a request asks for."""
_TOLD = (
    "Your final answer must be one JSON object that matches this JSON Schema, with no other text around it "
    "and no code fence:\n{schema}"
)


def checked_mode(mode: Any) -> OutputMode:
    """A way that there is.

    Raises:
        ModelConfigError: naming them.
    """
    if mode not in MODES:
        raise ModelConfigError(
            f"output must be one of {', '.join(map(repr, MODES))}, got {mode!r:.80}"
        )
    known: OutputMode = mode
    return known


def in_words(request: Request, mode: OutputMode) -> Request:
    """The request with the schema in its instructions, where the server is not told it in a field."""
    if request.output_schema is None or mode == "schema":
        return request
    told = _TOLD.format(schema=dumps(request.output_schema))
    before = f"{request.instructions}\n\n" if request.instructions else ""
    return request._replace(instructions=f"{before}{told}")


def next_mode(mode: OutputMode, refusal: Refusal) -> OutputMode | None:
    """The way to ask in from now on, where a server refused the one that it was asked in.

    Args:
        mode: the way that is used now.
        refusal: maybe of a request that was sent in an earlier way.
    """
    if not _NAMED.search(refusal.said):
        return None
    refused = MODES.index(mode if refusal.request is None else _mode_of(refusal.request))
    if refused + 1 >= len(MODES):
        return None
    return MODES[max(refused + 1, MODES.index(mode))]


def _mode_of(request: Mapping[str, Any]) -> OutputMode:
    """The way that a request was sent in."""
    for told in (request.get("response_format"), request.get("text")):
        said = told.get("format", told) if isinstance(told, Mapping) else {}
        if isinstance(said, Mapping) and said.get("type") in _BY_TYPE:
            return _BY_TYPE[said["type"]]
    return "prompt"


AUTO = "auto"
WORDS = (AUTO, "required", "none")


def chosen(choice: str | None, request: Request) -> str | ToolSpec | Hosted | None:
    """What to say of a request: one of ``WORDS``, a tool, or nothing.

    Raises:
        ModelConfigError: the tool that is to be called, or any at all, is not among those of the request.
    """
    if choice is None:
        return None
    is_first = bool(request.messages) and request.messages[-1]["role"] != "tool"
    every: list[ToolSpec | Hosted] = [*request.tools, *request.hosted]
    tools = {tool.name: tool for tool in every}
    if choice in (AUTO, "none"):
        return choice if tools else None
    if not is_first:
        return AUTO if tools else None
    if not tools or (choice not in WORDS and choice not in tools):
        known = ", ".join(sorted(tools)) or "none"
        raise ModelConfigError(
            f"tool_choice={choice!r} names no tool of the agent. Its tools: {known}"
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
"""Characters of all names, definitions and values of enums."""
_MAX_VALUES = 1_000
"""Values of all enums."""


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether the schema satisfies the rules of strict mode as it is.

    All properties are required, nothing else is allowed, nothing has a default, and only keywords are used
    that the mode has.
    """
    counted = _Counted()
    is_object = schema.get("type") == "object" and "anyOf" not in schema
    return is_object and _fits(schema, 1, counted) and counted.within()


def as_strict(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """An answer's schema as strict mode takes it; None where it does not.

    Objects that do not say whether they may have more properties get none, as a pydantic model would ignore them.
    """
    closed: Mapping[str, Any] = _closed(schema, 1)
    return closed if is_strict(closed) else None


def _closed(schema: Any, level: int) -> Any:
    if not isinstance(schema, Mapping) or level > _MAX_LEVELS:
        return schema
    closed = dict(schema)
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    for name in ("properties", "$defs", "definitions"):
        if isinstance(closed.get(name), Mapping):
            closed[name] = {key: _closed(each, level + 1) for key, each in closed[name].items()}
    if isinstance(closed.get("anyOf"), Sequence):
        closed["anyOf"] = [_closed(each, level + 1) for each in closed["anyOf"]]
    if "items" in closed:
        closed["items"] = _closed(closed["items"], level + 1)
    return closed


class _Counted:
    """What the mode limits over a whole schema."""

    def __init__(self) -> None:
        self.properties = 0
        self.values = 0
        self.text = 0

    def within(self) -> bool:
        return (
            self.properties <= _MAX_PROPERTIES
            and self.values <= _MAX_VALUES
            and self.text <= _MAX_TEXT
        )


def _fits(schema: Any, level: int, counted: _Counted) -> bool:
    if not isinstance(schema, Mapping) or level > _MAX_LEVELS or not schema.keys() <= _WORDS:
        return False
    if not {"type", "$ref", "anyOf", "enum", "const"} & schema.keys():
        return False  # anything goes
    if "$ref" in schema and schema.keys() - {"$ref", "description", "title"}:
        return False
    if schema.get("format", "uuid") not in _FORMATS:
        return False
    values = schema.get("enum", ())
    counted.values += len(values)
    counted.text += sum(len(str(value)) for value in values)
    if not _object_fits(schema, level, counted):
        return False
    inside = [*schema.get("anyOf", ())]
    if "array" in _types(schema):
        inside.append(schema.get("items"))
    for name in ("$defs", "definitions"):
        counted.text += sum(map(len, schema.get(name, {})))
        inside += schema.get(name, {}).values()
    return all(_fits(each, level + 1, counted) for each in inside)


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
    said = schema.get("type", ())
    return [said] if isinstance(said, str) else [*said]


_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(-0613|-0314|-32k.*)?$|o1-(mini|preview)|o3-mini|davinci|babbage|deepseek-(chat|reasoner|v|r)",
    re.IGNORECASE,
)
"""Names of models that see no pictures, from their providers' pages."""
BLIND_HINT = "If the model cannot read images, use OpenAIModel(name, vision=False), which describes images in words"


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
        raise ModelError(f"The {label(part)} is not base64")
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
        return f"[{label(part)}: shown to the person; you cannot see it]"
    return None


def blind_note(model: str, messages: Sequence[Message]) -> str | None:
    """What the person should know where a model gets new pictures and sees none."""
    blind = [part for part in _new_files(messages) if is_image(part)]
    if not blind:
        return None
    what = label(blind[0]) if len(blind) == 1 else f"{len(blind)} images"
    return f"{model} cannot read images, so the {what} was only described in words"


def _new_files(messages: Sequence[Message]) -> Iterator[Part]:
    """The files since the model's last answer."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return
        yield from files_of(message)


def has_images(messages: Iterable[Message]) -> bool:
    """Whether a history has pictures."""
    return any(is_image(part) for message in messages for part in files_of(message))
