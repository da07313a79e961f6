"""The calls of an answer in either API: to which call each piece belongs.

Servers number, name and cut calls differently. A piece with a name continues the call with its index and id, or starts
another. A piece without a name belongs to the call with its id, else to that with its index, else to the only call that
is still incomplete. What belongs to no call for sure becomes a call without a name, and the answer cannot be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from nbagent.core.base.calls import CallPart, ModelCall, put_together
from nbagent.core.base.messages import canonical, dumps, object_in
from nbagent.core.base.model import ToolCallDelta

MAX_CHECKED = 100_000
"""The maximum characters of arguments whose end is detected."""
MAX_COMPARED = 20
"""The maximum number of calls, the last ones, that a piece without its own index is compared with."""


_TOKEN = re.compile(r'[{}"]|\\.?', re.DOTALL)
"""A brace, a quote or an escaped character of JSON; a backslash alone is at the end of a piece."""


class StreamedCall:
    """A call, or what may be a piece of a call, while it streams."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self._pieces: list[str] = []
        self._size = 0
        self._end = ""
        """The last piece that is more than white space."""
        self._read = self._depth = self._objects = 0
        """The pieces of which the braces are counted, their open braces, and their closed objects."""
        self._is_in_text = self._is_complete = False
        self._rest = ""

    @property
    def arguments(self) -> str:
        """All arguments so far."""
        return "".join(self._pieces)

    @property
    def ends_object(self) -> bool:
        """Whether the last piece may have been the end of an object."""
        return self._end.endswith("}")

    @property
    def is_blank(self) -> bool:
        """Whether no arguments have arrived, other than white space."""
        return not self._end

    def add(self, arguments: str) -> str:
        """Add a piece of the arguments, and return it; a piece that the server has repeated is empty."""
        if arguments.endswith("}") and (
            self.is_repeated_by(arguments) or (arguments == self._end and self.is_complete())
        ):
            return ""
        self._pieces.append(arguments)
        self._size += len(arguments)
        if arguments and not arguments.isspace():
            self._end = arguments
        return arguments

    def is_repeated_by(self, arguments: str) -> bool:
        """Whether a piece repeats all arguments; no JSON object begins with such a repetition."""
        return len(arguments) == self._size > 0 and arguments == self.arguments

    def is_complete(self) -> bool:
        """Whether the arguments are one complete JSON object, and not too long; each piece is read once."""
        if self._read == len(self._pieces):
            return self._is_complete
        new = "".join(self._pieces[self._read :])
        self._read = len(self._pieces)
        if new and not new.isspace():
            self._count(self._rest + new)
            ends = self._end.rstrip().endswith("}") and not self._is_in_text
            is_one = ends and (self._depth, self._objects) == (0, 1) and self._size <= MAX_CHECKED
            self._is_complete = is_one and _is_json(self.arguments)
        return self._is_complete

    def _count(self, text: str) -> None:
        self._rest = ""
        for token in _TOKEN.findall(text):
            if token == "\\":
                self._rest = token
            elif token == '"':
                self._is_in_text = not self._is_in_text
            elif len(token) == 1 and not self._is_in_text:
                self._depth += 1 if token == "{" else -1
                self._objects += self._depth == 0


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class StreamedCalls:
    """The calls of one answer, from their pieces."""

    def __init__(self, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = names
        """The tools' own names by the names that the model knows, if these differ."""
        self.parts: list[StreamedCall] = []
        self.last: StreamedCall
        """The call of the last piece."""
        self._guessed_keys: set[int | str | None] = set()
        self._has_guessed = False
        """Whether arguments were taken for those of a call, or repeated, without its id."""
        self._may_have_begun = False
        """Whether a name without an id was taken for a repetition, but may be another call."""
        self._is_unclear = False
        """Whether arguments or a name may belong to another call."""
        self._repeated: list[str] | None = None
        """The names and inputs of all calls, as the server has repeated them."""
        self._by_key: dict[Any, list[StreamedCall]] = {}

    def delta(
        self, key: int | str | None, call_id: str | None, name: str | None, arguments: str
    ) -> ToolCallDelta:
        """Add a piece; ``key`` is the server's index of the call, if it has one."""
        name = name and self._names.get(name, name)
        known = self.parts if key is None else self._by_key.setdefault(key, [])
        own = known[-MAX_COMPARED:]
        has_key = len(own) == 1 and key is not None
        if name is None and has_key and (call_id is None or own[0].id in (None, call_id)):
            part: StreamedCall | None = own[0]  # nearly always
        elif name is None:
            part = self._continued(own, key, call_id, arguments)
        else:
            part = self._named(own, key, call_id, name, arguments)
        says_nothing = name is None and call_id is None and not arguments.strip()
        if part is None:
            part = StreamedCall(len(self.parts))
            self.parts.append(part)
            says_nothing = False
        if key is not None and part not in own and not says_nothing:
            known.append(part)
        self.last = part
        new_id, new_name = (None if part.id else call_id), (None if part.name else name)
        part.id, part.name = part.id or call_id, part.name or name
        if call_id is None and arguments and not arguments.isspace():
            self._has_guessed |= part.ends_object and part.is_complete()
        added = part.add(arguments)
        return ToolCallDelta(part.index, added, new_id, new_name)

    def repeat(self, calls: Iterable[tuple[str | None, str]]) -> None:
        """Note the names and arguments of all calls, which the server repeats in one piece at the end."""
        own = ((name and self._names.get(name, name), text) for name, text in calls)
        self._repeated = sorted(_in_one(*call) for call in own)

    def _continued(
        self,
        own: Sequence[StreamedCall],
        key: int | str | None,
        call_id: str | None,
        arguments: str,
    ) -> StreamedCall | None:
        """The call of a piece without a name; None if it is unknown.

        ``own`` are the calls with its index; all calls if it has none.
        """
        pool, is_empty = own or self.parts[-MAX_COMPARED:], not arguments.strip()
        if call_id is not None and (own or not is_empty):
            same = [each for each in (*own, *self.parts[-MAX_COMPARED:]) if each.id == call_id]
            if same and (own or same[0].name is not None):
                # another call may have this id, and its name may follow
                self._has_guessed |= not own
                open_ = (each for each in same if not each.is_complete())
                repeated = (each for each in same if each.is_repeated_by(arguments))
                return next(open_, None) or next(repeated, None)
        opens = [*islice((each for each in pool if not each.is_complete()), 2)]
        is_sure = len(opens) == 1 and opens[0].name is not None and not self._may_have_begun
        only = opens[0] if is_sure else None
        if call_id is not None and (is_empty or key is None or len(own) != 1):
            return None  # it may be another call, whose name follows
        if is_empty:
            return pool[-1] if pool else None
        self._has_guessed = True
        if not own and only is not None:
            self._guessed_keys.add(key)
        return only

    def _named(
        self,
        own: Sequence[StreamedCall],
        key: int | str | None,
        call_id: str | None,
        name: str,
        arguments: str,
    ) -> StreamedCall | None:
        """The call that a piece with a name continues or repeats; None if it starts another.

        ``own`` are the calls with its index; all calls if it has none.
        """
        is_empty = not arguments.strip()
        waiting = [each for each in own if each.name is None and each.id is not None]
        if key in self._guessed_keys or (call_id is None and len(waiting) > 1):
            self._is_unclear = True  # it may be the name of any of these
        can_follow = key is not None and len(own) == 1  # a name after arguments
        alike = [
            each
            for each in own
            if each.name == name or (each.name is None and (can_follow or each.is_blank))
        ]
        if call_id is not None:
            late = own[-1:] if own and own[-1].id is None else ()  # its id may follow
            if late and key is None and not late[0].is_blank:
                late = ()
            alike = [each for each in alike if each.id == call_id or each in late]
            if is_empty and late and late[0] in alike:
                return late[0]
        elif is_empty:
            self._may_have_begun |= bool(alike) and alike[-1].is_complete()
            return alike[-1] if alike else None
        if not is_empty:
            no_key = key is None and call_id is None  # then it may be another call
            same = [each for each in alike if each.is_repeated_by(arguments)]
            repeated = next((each for each in same if each.id is not None or not no_key), None)
            if repeated is not None:
                self._has_guessed |= call_id is None
                return repeated
            self._is_unclear |= bool(same) and any(each.id for each in self.parts)
        opens = [each for each in alike if not each.is_complete()]
        return opens[0] if len(opens) == 1 else None

    def put_together(self) -> list[ModelCall]:
        """The calls without repetitions.

        Raises:
            ValueError: they cannot be told apart.
        """
        parts = [CallPart(each.id, each.name, each.arguments) for each in self.parts]
        calls = put_together(parts)
        if self._is_unclear or (
            self._has_guessed and not all(call.arguments.strip() for call in calls)
        ):
            raise ValueError("arguments arrived without the id of their call")
        found = (_in_one(parts[call.parts[0]].name, call.arguments) for call in calls)
        if self._repeated is not None and sorted(found) != self._repeated:
            raise ValueError("the message at the end has other calls than its pieces")
        return calls

    def numbers(self) -> dict[int, int]:
        """The number of each part's call; if the calls cannot be told apart, of the part."""
        try:
            calls = self.put_together()
        except ValueError:  # the answer is not used; see Parser.check
            return {part.index: part.index for part in self.parts}
        return {part: number for number, call in enumerate(calls) for part in call.parts}


def arguments_in(value: Any) -> str:
    """The arguments of a call as text; some servers send an object."""
    if isinstance(value, str):
        return value
    try:
        return dumps(value) if value else ""
    except (ValueError, RecursionError):
        return str(value)  # not JSON, and stays invalid


def _in_one(name: str | None, arguments: str) -> str:
    """A name and an input as one text, to compare."""
    value = object_in(arguments)
    return f"{name} {arguments if value is None else canonical(value)}"
