"""What a server says beside what Chat Completions knows, and wants back: brought together, and put back.

Gemini's ``extra_content`` of a call, OpenRouter's ``reasoning_details`` and whatever comes next: no field
is named here that needs it, only those that are nbagent's own or that no request takes. It is kept as
``{"reasoning": name, "fields": {…}}`` of a message, ``{"fields": {…}}`` of a call; ``reasoning`` is the
name under which the reasoning came, whose text the message has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.core.base.messages import dumps

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
_NOTHING: dict[str, Any] = {}
_RUNNING = frozenset({*REASONING, THINKING, "text", "summary", "data", "content", "arguments"})
"""Texts whose pieces are always joined; another text that is the same in each piece is said once."""


def of_message(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What of a message, or a piece of one, may be wanted back; nothing and empty things are not."""
    found = _beside(raw, OF_MESSAGE)
    for name in REASONING if found else ():
        if isinstance(found.get(name), str | list):
            del found[name]
    return found


def of_call(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a call."""
    found = _beside(raw, OF_CALL)
    function = _beside(raw.get("function") or _NOTHING, OF_FUNCTION)
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

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def add(self, piece: Mapping[str, Any]) -> int:
        """Take one more piece; returns by how many characters there is more to keep."""
        return sum(self._add(key, value) for key, value in piece.items() if value is not None)

    def _add(self, key: str, value: Any) -> int:
        kind = _kind(value)
        if kind is None:
            new = key not in self._values
            self._values[key] = value
            return _NODE + len(key) if new else 0
        known = self._values.get(key)
        if isinstance(known, kind):
            return known.add(value)
        made = self._values[key] = _Texts(in_pieces=key in _RUNNING) if kind is _Texts else kind()
        return _NODE + len(key) + made.add(value)

    def take(self, whole: Mapping[str, Any]) -> int:
        """Be this object, which came in one piece; returns its characters."""
        self._values = dict(whole)
        return len(dumps(whole))

    def __bool__(self) -> bool:
        return bool(self._values)

    def whole(self) -> dict[str, Any]:
        """The object, as far as it came."""
        return {key: _whole(value) for key, value in self._values.items()}


class _Texts:
    """A text in pieces; where it is not known to be one, the same piece again is a label that is said again."""

    def __init__(self, *, in_pieces: bool = False) -> None:
        self._in_pieces = in_pieces
        self._label: str | None = None
        self._said = 0
        """How often the label was."""
        self._joined: list[str] = []
        self._last: list[str] = []

    def add(self, text: str) -> int:
        more = len(text)
        if not self._in_pieces:
            if self._said == 0 or text == self._label:
                self._label, self._said = text, self._said + 1
                return more if self._said == 1 else 0
            self._in_pieces = True
            self._last = [self._label or ""] * self._said
            more += len(self._label or "") * (self._said - 1)
        self._last.append(text)
        if len(self._last) >= _PIECES:
            self._joined.append("".join(self._last))
            self._last.clear()
        return more

    def whole(self) -> str:
        if not self._in_pieces:
            return self._label or ""
        return "".join((*self._joined, *self._last))


class _Items:
    """A list; of items that are numbered, those with one number and type are pieces of one."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._numbered: dict[tuple[int, str | None], Pieces] = {}
        self._types: dict[int, str | None] = {}
        """The type that the last item of a number began with."""
        self._thought: Pieces | None = None
        """The one that is not signed yet."""

    def add(self, items: list[Any]) -> int:
        return sum(map(self._add, items))

    def _add(self, item: Any) -> int:
        if not isinstance(item, Mapping):
            self._items.append(item)
            return _NODE + len(dumps(item))
        number, said = item.get("index"), item.get("type")
        if not isinstance(number, int):
            return self._add_bare(item)
        type_ = said if isinstance(said, str) else None
        key = (number, type_ or self._types.get(number))  # a later piece need not say it again
        if key in self._numbered:
            return self._numbered[key].add(item)
        self._numbered[key] = self._made()
        self._types[number] = type_
        return _NODE + self._numbered[key].add(item)

    def _add_bare(self, item: Mapping[str, Any]) -> int:
        """Without a number it is whole, unless it is a thought: that goes on until it is signed."""
        if not isinstance(item.get(THINKING), str):
            self._thought = None
            return _NODE + self._made().take(item)
        open_ = self._thought or self._made()
        self._thought = None if item.get("signature") else open_
        return _NODE + open_.add(item)

    def _made(self) -> Pieces:
        self._items.append(Pieces())
        made: Pieces = self._items[-1]
        return made

    def whole(self) -> list[Any]:
        return [_whole(item) for item in self._items]


_NODE = 100
"""What one more value counts beside its characters, as it takes memory."""
_PIECES = 1_000
"""Of a text, so many are held before they are joined."""


def _kind(value: Any) -> type[_Texts | _Items | Pieces] | None:
    """What brings values of this kind together; None where the last one counts."""
    match value:
        case str():
            return _Texts
        case list():
            return _Items
        case Mapping():
            return Pieces
        case _:
            return None


def _whole(value: Any) -> Any:
    return value.whole() if isinstance(value, _Texts | _Items | Pieces) else value


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
