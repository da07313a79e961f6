"""The conversation as plain, immutable, JSON-able data.

A message is ``{"role": "user" | "assistant" | "tool" | "system", "content": [part, …]}``. An assistant message
may have ``"provider": {"name": str, "data": JSON}``: data that only this provider reads, and must receive
again with the history. Any message except a tool message may have a ``"name": str``, which says who of several
people wrote the message. A part is one of

- ``{"type": "text", "text": str}``
- ``{"type": "reasoning", "text": str}``, for the person; only a provider that needs its own reasoning
  receives it again
- ``{"type": "file", "media_type": str, "data": str}`` in a user message, in base64, with ``"name"`` if the
  file has a name
- ``{"type": "tool_call", "id": str, "name": str, "input": {…}}``, with ``"raw": str`` if the model's
  arguments were not a JSON object, with ``"server_id": str``, the model's own id of the call, if an earlier call
  already has that id (the call's result has the key too), and with ``"provider": JSON`` for the provider of the message
- ``{"type": "tool_result", "id": str, "name": str, "output": JSON}``, with ``"error": true`` for a failure,
  with ``"input": {…}`` if the tool ran with another input than the model requested, and with
  ``"files": [file part, …]`` that the model receives in addition to the output

After an assistant message with calls, one tool message has the results of all calls, in call order.
A part's key ``"nbagent"`` has nbagent's own record, which models never receive. On a waiting call, the record is
the pause; on a result, the resolution. On a text, it says that nbagent wrote it, or that the answer was cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

from .errors import MessagesError
from .file_parts import Content, check_file
from .incoming_json import MAX_MODEL_PARTS, read_by, within_parts
from .pickling import Travels

Json: TypeAlias = Any
Part: TypeAlias = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")


def _frozen(self: object, *_args: object, **_kwargs: object) -> Never:
    raise TypeError(f"A {type(self).__name__} cannot be changed. Build a new one")


class FrozenDict(Travels, dict[str, Any]):
    """A dict that cannot be changed, equal to the dict of the same content."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _frozen
    clear = pop = popitem = setdefault = update = _frozen

    def __hash__(self) -> int:  # type: ignore[override]
        """Raise as for any dict; but a class with ``__hash__`` lets ``EMPTY`` be a dataclass's default."""
        raise TypeError("unhashable type: 'FrozenDict'")

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (dict(self),))


EMPTY: dict[Any, Any] = FrozenDict()
"""The empty dict that all states share."""


class FrozenList(Travels, list[Any]):
    """A list that cannot be changed, equal to the list of the same content."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _frozen
    append = clear = extend = insert = pop = remove = reverse = sort = _frozen

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (list(self),))


class FrozenFile(FrozenDict):
    """A file part, whose ``repr`` shows only the first few characters of the data."""

    __slots__ = ()

    def __repr__(self) -> str:
        data = self.get("data")
        if not isinstance(data, str):  # not a file part, but another dict with this "type"
            return dict.__repr__(self)
        return repr({**self, "data": f"{data[:12]}… ({len(data):,} characters)"})


class Message(FrozenDict):
    """One message; ``wire`` has its bytes as an adapter encoded them, so that each message is encoded once."""

    __slots__ = ("ids", "wire")

    ids: tuple[list[str], list[str]] | None
    """The ids of the message's calls and results, computed once, because a history is checked at each turn."""
    wire: tuple[str, bytes] | None
    """``(adapter format, bytes)`` or None; never part of the message's value."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self.ids = self.wire = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Message, (dict(self),))


def freeze(value: Json) -> Json:
    """The JSON value with all dicts and lists in it unchangeable."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        kind = FrozenFile if value.get("type") == "file" else FrozenDict
        return kind({k: v if type(v) in _FROZEN else freeze(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([v if type(v) in _FROZEN else freeze(v) for v in value])
    return value


def thawed(value: Json) -> Json:
    """A copy of the JSON value whose dicts and lists are plain, and may be changed."""
    if isinstance(value, dict):
        return {k: v if type(v) in _PLAIN else thawed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [v if type(v) in _PLAIN else thawed(v) for v in value]
    return value


_PLAIN = frozenset({str, int, float, bool, type(None)})
_FROZEN = frozenset({str, int, float, bool, type(None), FrozenDict, FrozenList, FrozenFile})
"""Types whose values never change."""


def message(
    role: str, *parts: Part, provider: Mapping[str, Any] | None = None, name: str | None = None
) -> Message:
    """A message of these parts."""
    fields: dict[str, Any] = {"role": role, "content": freeze(list(parts))}
    if name is not None:
        fields["name"] = name
    if provider is not None:
        fields["provider"] = freeze(provider)
    return Message(fields)


def text_part(text: str) -> Part:
    """A text part."""
    return {"type": "text", "text": text}


def user(content: Content) -> Message:
    """A user message of one text, or of parts."""
    return message("user", *([text_part(content)] if isinstance(content, str) else content))


def correction(text: str) -> Message:
    """A correction for the model as a user message: its answer does not match the type."""
    return message("user", {**text_part(text), "nbagent": {"correction": True}})


def is_prompt(value: Mapping[str, Any]) -> bool:
    """Whether a message is from the person, and not a correction."""
    return value["role"] == "user" and not any("nbagent" in part for part in value["content"])


def cut_off(text: str, reasoning: str, reason: str) -> Message:
    """The assistant message of an answer that was cut off."""
    texts = (("reasoning", reasoning), ("text", text))
    record = {"nbagent": {"cut": reason}}
    return message("assistant", *({"type": k, "text": t, **record} for k, t in texts if t))


def is_cut_off(value: Mapping[str, Any]) -> bool:
    """Whether a message is an answer that was cut off."""
    records = (part.get("nbagent") for part in value["content"])
    return any(isinstance(record, dict) and "cut" in record for record in records)


def without_cut_off(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A history without a cut-off answer at its end, so that the model answers again."""
    ends = bool(messages) and messages[-1]["role"] == "assistant" and is_cut_off(messages[-1])
    return messages[:-1] if ends else messages


def text_of(value: Mapping[str, Any]) -> str:
    """All the text of a message, without reasoning, calls and results."""
    return "".join(p["text"] for p in value["content"] if p["type"] == "text")


def calls_of(value: Mapping[str, Any]) -> list[Part]:
    """The tool calls of a message, in order."""
    return [p for p in value["content"] if p["type"] == "tool_call"]


def results_of(value: Mapping[str, Any]) -> list[Part]:
    """The tool results of a message, in order."""
    return [p for p in value["content"] if p["type"] == "tool_result"]


def load(values: Iterable[Mapping[str, Any] | str]) -> tuple[Message, ...]:
    """Messages from plain data, such as parsed JSON; a string is a user message.

    Raises:
        MessagesError: something is not a message, or a tool call does not have exactly one result. In the last
            message, calls without results are valid: they are paused.
    """
    if isinstance(values, str | Mapping):
        raise MessagesError(f"messages must be a list of messages, got {values!r:.80}")
    loaded = tuple(_load_one(i, v) for i, v in enumerate(values))
    check(loaded)
    return loaded


def _load_one(index: int, value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, str):
        return user(value)
    if not isinstance(value, Mapping) or value.get("role") not in ROLES:
        raise MessagesError(
            f"messages[{index}] is {value!r:.80}: expected a dict with role "
            f"{', '.join(map(repr, ROLES))} and content"
        )
    content = value.get("content")
    if isinstance(content, str):
        content = [text_part(content)]
    if not isinstance(content, Sequence):
        raise MessagesError(f"messages[{index}]['content'] must be a string or a list of parts")
    for part in content:
        _check_part(index, part)
    content = _readable(content, f"messages[{index}]")
    name = value.get("name")
    if name is not None and (not isinstance(name, str) or value["role"] == "tool"):
        raise MessagesError(f"messages[{index}]['name'] is {name!r:.80}: {_NAME}")
    return message(value["role"], *content, provider=_provider(index, value), name=name)


_NAME = "it must be a string that says who of several people wrote the message, and a tool message has none"


def _provider(index: int, value: Mapping[str, Any]) -> Json:
    """The data that a message's provider must receive again, if any."""
    provider = value.get("provider")
    if provider is None:
        return None
    if not isinstance(provider, Mapping) or not isinstance(provider.get("name"), str):
        raise MessagesError(
            f"messages[{index}]['provider'] is {provider!r:.80}: expected a dict with the name of the provider, such "
            f"as {{'name': 'api.openai.com', 'data': …}}"
        )
    if value["role"] != "assistant":
        raise MessagesError(
            f"messages[{index}] is a {value['role']} message with a 'provider'. Only assistant messages have one"
        )
    return _readable(dict(provider), f"messages[{index}]['provider']")


_REQUIRED: dict[Any, dict[str, type]] = {
    "text": {"text": str},
    "reasoning": {"text": str},
    "file": {"media_type": str, "data": str},
    "tool_call": {"id": str, "name": str, "input": dict},
    "tool_result": {"id": str, "name": str, "output": object},
}


def _check_part(index: int, part: Json) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in _REQUIRED:
        raise MessagesError(
            f"messages[{index}] has the part {part!r:.80}: its 'type' must be one of "
            f"{', '.join(map(repr, _REQUIRED))}"
        )
    if kind == "file":
        check_file(part, f"messages[{index}]")
    files = part.get("files", ()) if kind == "tool_result" else ()
    if not isinstance(files, list | tuple):
        raise MessagesError(
            f"messages[{index}]: 'files' of a result must be a list, got {files!r:.80}"
        )
    for file in files:
        check_file(file if isinstance(file, Mapping) else {}, f"messages[{index}]")
    if not isinstance(part.get("server_id", ""), str):
        raise MessagesError(f"messages[{index}]: 'server_id' of a {kind} part must be a string")
    for key, type_ in _REQUIRED[kind].items():
        if key not in part:
            raise MessagesError(f"messages[{index}]: a {kind} part has no {key!r}")
        if not isinstance(part[key], type_):
            raise MessagesError(
                f"messages[{index}]: {key!r} of a {kind} part is {part[key]!r:.80}, expected a {type_.__name__}"
            )


def check(messages: Sequence[Message]) -> None:
    """Raise if a call of a history is unanswered (except in the last message), repeated or misplaced.

    Raises:
        MessagesError: a call is wrong, or the results are not in call order; the message names the first place.
    """
    asked: list[str] = []
    for index, item in enumerate(messages):
        calls, results = getattr(item, "ids", None) or _ids(item)
        role = item["role"]
        if (calls and role != "assistant") or (results and role != "tool"):
            raise MessagesError(
                f"messages[{index}] is a {role} message, but only assistant messages have tool calls and only tool "
                "messages have results"
            )
        answered = results if role == "tool" else []
        if answered != asked:
            raise MessagesError(
                f"messages[{index}] has results for the tool calls {answered!r}, but the message before it has the calls "
                f"{asked!r}. Each call needs exactly one result, in the same order"
            )
        asked = calls if role == "assistant" else []
        if asked and len(set(asked)) != len(asked):
            raise MessagesError(f"messages[{index}] has the same tool call id twice: {asked!r}")


def _ids(item: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    found = [p["id"] for p in calls_of(item)], [p["id"] for p in results_of(item)]
    if found == _NO_IDS:
        found = _NO_IDS
    if isinstance(item, Message):
        item.ids = found
    return found


_NO_IDS: tuple[list[str], list[str]] = ([], [])
"""The ids of a message without calls and results, one object for all such messages."""


INSTEAD = "pass a path, an id or plain data instead, such as df.to_dict('records')"
"""Advice in errors for a value that is not JSON."""


def jsonable(value: Any) -> Json:
    """A Python value as JSON data, as pydantic serializes it; a numpy scalar becomes a number.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    return to_jsonable_python(value, fallback=_number)


def _number(value: Any) -> Json:
    """A numpy scalar, such as the sum of a column, as a Python number."""
    if getattr(value, "ndim", None) == 0 and getattr(value.dtype, "kind", "") in set("biuf"):
        return value.item()
    raise PydanticSerializationError(f"Unable to serialize unknown type: {type(value)}")


def dumps(value: Json) -> str:
    """Strict, compact JSON: the encoding that digests and journals use.

    Raises:
        TypeError, ValueError: the value is not JSON (NaN and infinity included).
    """
    return _encode(value)


def _readable(content: Json, where: str) -> Json:
    """The content in a form that a journal can store, also deep inside the events of nested runs."""
    try:
        check_depth(dumps(content).encode(), _READABLE - 10)
    except UnicodeEncodeError:
        return _readable(with_escaped_surrogates(content), where)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessagesError(f"{where} is not JSON: {error}") from error
    return content


MAX_DEPTH = 100
"""Maximum levels of lists and objects in one value. An event with the value in it may have 200."""


def storable(value: Json) -> Json:
    """A JSON value that a journal can store and read again; invalid Unicode is escaped.

    Raises:
        TypeError, ValueError: the value is not JSON, or nested too deep; the message says which.
    """
    try:
        data = dumps(value).encode()
    except UnicodeEncodeError:
        return storable(with_escaped_surrogates(value))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    check_depth(data, MAX_DEPTH)
    return value


def check_depth(data: bytes, depth: int) -> None:
    """Raise if JSON is nested deeper than ``depth``.

    Raises:
        ValueError: the JSON is nested deeper, or has a number that is out of range.
    """
    if data.count(b"[") + data.count(b"{") > depth or len(data) > _SHORT:
        outer = _READABLE - depth
        try:
            from_json(b"[" * outer + data + b"]" * outer)
        except ValueError as error:
            raise ValueError(_TOO_DEEP if "recursion" in str(error) else str(error)) from None


def with_escaped_surrogates(value: Json) -> Json:
    """The value with invalid Unicode (half a surrogate pair) escaped in its strings."""
    match value:
        case str():
            escaped = value.encode(errors="backslashreplace").decode()
            return value if escaped == value else escaped
        case Mapping():
            return {
                with_escaped_surrogates(key): with_escaped_surrogates(part)
                for key, part in value.items()
            }
        case list() | tuple():
            return [with_escaped_surrogates(part) for part in value]
        case _:
            return value


_READABLE = 201
"""Maximum levels that pydantic's parser reads."""
_SHORT = 4_000
"""Bytes of a text that cannot contain a number with too many digits for Python."""
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object in a call's arguments: empty for empty text, None for text that is not a JSON object.

    Some servers send the object as a JSON string, an empty object before it, or null for an empty one.
    """
    if text.strip() in ("", "null"):
        return {}
    try:
        value = json_in(_PLACEHOLDER.sub("", text))
    except ValueError:
        return None
    if isinstance(value, str) and value.lstrip()[:1] in ("{", '"'):
        return object_in(value)
    return value if isinstance(value, dict) else None


_PLACEHOLDER = re.compile(r"\A\s*\{\s*\}(?=\s*\{)")
"""An empty object before another one."""


def input_of(arguments: Any) -> dict[str, Any]:
    """A call's arguments as an object, also if the model wrote something else."""
    found = object_in(arguments) if isinstance(arguments, str) else arguments
    return found if isinstance(found, dict) else {"arguments": arguments} if arguments else {}


def json_in(text: str) -> Json:
    """The JSON value in a model's text.

    Raises:
        ValueError: the text is not JSON, or cannot be stored; the message says why.
    """
    try:
        value = read_by(strict_json.decode, within_parts(text, MAX_MODEL_PARTS))
        # ``dumps`` raises for 1e999, ``encode`` for lone surrogates, which no server accepts
        check_depth(dumps(value).encode(), MAX_DEPTH)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


strict_json = json.JSONDecoder(parse_constant=_no_constant)
"""A decoder that refuses NaN and infinity."""


def canonical(value: Json) -> str:
    """``dumps`` with sorted keys, because a store may return the keys of an object in another order.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    return _encode_sorted(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
