"""What a server says beside what Chat Completions knows, and wants back: brought together, and put back.

Gemini's ``extra_content`` of a call, OpenRouter's ``reasoning_details`` and whatever comes next: no field
is named here that needs it, only those that are nbagent's own or that no request takes. It is kept as
``{"reasoning": name, "fields": {…}}`` of a message, ``{"fields": {…}}`` of a call; ``reasoning`` is the
name under which the reasoning came, whose text the message has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REASONING = ("reasoning_content", "reasoning")
"""The names of a message's reasoning, as text."""
THINKING = "thinking"
"""The type of a part of a message's content that is reasoning."""
OF_MESSAGE = frozenset(
    {
        *("role", "content", "tool_calls", "index"),
        *("refusal", "annotations", "audio", "function_call"),  # no request takes them as they come
    }
)
"""What of a message is said otherwise, or is not for sending back."""
OF_CALL = frozenset({"index", "id", "type", "function"})
OF_FUNCTION = frozenset({"name", "arguments"})
_RUNNING = frozenset({*REASONING, THINKING, "text", "summary", "data", "content", "arguments"})
"""Texts whose pieces are always joined; another text that is the same in each piece is said once."""


def of_message(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What of a message, or a piece of one, may be wanted back; nothing and empty things are not."""
    found = _beside(raw, OF_MESSAGE)
    for name in REASONING:
        if isinstance(found.get(name), str | list):
            del found[name]
    return found


def of_call(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a call."""
    found = _beside(raw, OF_CALL)
    function = _beside(raw.get("function") or {}, OF_FUNCTION)
    return {**found, "function": function} if function else found


def _beside(raw: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if raw.keys() <= known:
        return {}
    return {
        key: value
        for key, value in raw.items()
        if key not in known and value is not None and value not in ("", [], {})
    }


class Pieces:
    """An object that comes in pieces: texts are joined, lists and objects too, of all else the last counts."""

    def __init__(self, piece: Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if piece is not None:
            self.add(piece)

    def add(self, piece: Mapping[str, Any]) -> None:
        """Take one more piece."""
        for key, value in piece.items():
            before = self._values.get(key)
            match value:
                case None:
                    continue
                case str() if isinstance(before, _Texts):
                    before.texts.append(value)
                case str():
                    self._values[key] = _Texts(value)
                case list() if isinstance(before, _Items):
                    before.add(value)
                case list():
                    self._values[key] = _Items(value)
                case Mapping() if isinstance(before, Pieces):
                    before.add(value)
                case Mapping():
                    self._values[key] = Pieces(value)
                case _:
                    self._values[key] = value

    def take(self, whole: Mapping[str, Any]) -> None:
        """Be this object, which came in one piece."""
        self._values = dict(whole)

    def __bool__(self) -> bool:
        return bool(self._values)

    def whole(self) -> dict[str, Any]:
        """The object, as far as it came."""
        return {key: _whole(key, value) for key, value in self._values.items()}


class _Texts:
    def __init__(self, text: str) -> None:
        self.texts = [text]

    def whole(self, key: str) -> str:
        same = key not in _RUNNING and all(text == self.texts[0] for text in self.texts)
        return self.texts[0] if same else "".join(self.texts)


class _Items:
    """A list; of items that are numbered, those with one number and type are pieces of one."""

    def __init__(self, items: list[Any]) -> None:
        self._items: list[Any] = []
        self._numbered: dict[tuple[int, str | None], Pieces] = {}
        self._types: dict[int, str | None] = {}
        """The type that the last item of a number began with."""
        self._thought: Pieces | None = None
        """The one that is not signed yet."""
        self.add(items)

    def add(self, items: list[Any]) -> None:
        for item in items:
            number = item.get("index") if isinstance(item, Mapping) else None
            if not isinstance(number, int):
                self._add_bare(item)
                continue
            said = item.get("type")
            type_ = said if isinstance(said, str) else None
            key = (number, type_ or self._types.get(number))  # a later piece need not say it again
            if key in self._numbered:
                self._numbered[key].add(item)
            else:
                made = self._numbered[key] = Pieces(item)
                self._items.append(made)
                self._types[number] = type_

    def _add_bare(self, item: Any) -> None:
        """Without a number it is whole, unless it is a thought: that goes on until it is signed."""
        is_thought = isinstance(item, Mapping) and isinstance(item.get(THINKING), str)
        if is_thought and self._thought is not None:
            self._thought.add(item)
        else:
            self._thought = Pieces(item) if is_thought else None
            self._items.append(self._thought or item)
        if is_thought and item.get("signature"):
            self._thought = None

    def whole(self) -> list[Any]:
        return [item.whole() if isinstance(item, Pieces) else item for item in self._items]


def _whole(key: str, value: Any) -> Any:
    match value:
        case _Texts():
            return value.whole(key)
        case _Items() | Pieces():
            return value.whole()
        case _:
            return value


def reasoning_name(data: Any) -> str | None:
    """Under which name the reasoning of a message came, by what was kept of it."""
    name = data.get("reasoning") if isinstance(data, Mapping) else None
    return name if name in (*REASONING, THINKING) else None


def wanted(data: Any, known: frozenset[str], left_out: frozenset[str]) -> dict[str, Any]:
    """The fields that go back, by what was kept: none that nbagent says itself, or that the server refused."""
    fields = data.get("fields") if isinstance(data, Mapping) else None
    if not isinstance(fields, Mapping):
        return {}
    return {key: v for key, v in fields.items() if key not in known and key not in left_out}
