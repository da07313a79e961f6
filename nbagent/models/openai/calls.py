"""The calls of an answer in either API: to which call each piece belongs, and whether the answer can be used.

Servers number, name and cut calls differently. A piece with a name continues the call with its index and id, or starts
another. A piece without a name belongs to the call with its id, else to that with its index, else to the only call that
is still incomplete. What belongs to no call for sure becomes a call without a name, and the answer cannot be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from nbagent.core.base.calls import Call, CallPart, put_together
from nbagent.core.base.model import Finished, TextDelta, ToolCallDelta

from .stream import Batch, UnusableAnswer

MAX_CHECKED = 100_000
"""The maximum characters of arguments whose end is detected."""


class Part:
    """A call, or what may be a piece of a call, while it streams."""

    __slots__ = ("_end", "_pieces", "_size", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self._pieces: list[str] = []
        self._size = 0
        self._end = ""
        """The last piece that is more than white space."""

    @property
    def arguments(self) -> str:
        """All arguments so far."""
        return "".join(self._pieces)

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
        """Whether the arguments are one complete JSON object, and short enough to check repeatedly."""
        if self._size > MAX_CHECKED or not self._end.rstrip().endswith("}"):
            return False
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


class Calls:
    """The calls of one answer, from their pieces."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.last: Part
        """The call of the last piece."""
        self._by_key: dict[Any, list[Part]] = {}

    def delta(
        self, key: int | str | None, call_id: str | None, name: str | None, arguments: str
    ) -> ToolCallDelta:
        """Add a piece; ``key`` is the server's index of the call, if it has one."""
        own = self.parts if key is None else self._by_key.get(key, ())
        if name is None and len(own) == 1 and (call_id is None or call_id == own[0].id):
            part: Part | None = own[0]  # nearly always
        elif name is None:
            part = self._continued(own, call_id, arguments)
        else:
            part = self._named(own, key, call_id, name, arguments)
        if part is None:
            part = Part(len(self.parts))
            self.parts.append(part)
            self._by_key.setdefault(key, []).append(part)
        self.last = part
        new_id, new_name = (None if part.id else call_id), (None if part.name else name)
        part.id, part.name = part.id or call_id, part.name or name
        return ToolCallDelta(part.index, part.add(arguments), new_id, new_name)

    def has(self, key: int | str) -> bool:
        """Whether a call has this index."""
        return key in self._by_key

    def _continued(self, own: Sequence[Part], call_id: str | None, arguments: str) -> Part | None:
        """The call of a piece without a name; None if it is unknown.

        ``own`` are the calls with its index; all calls if it has none.
        """
        if call_id is not None:
            same = [each for each in (*own, *self.parts) if each.id == call_id]
            if same:
                return next((each for each in same if not each.is_complete()), same[0])
        pool = own or self.parts
        open_ = [each for each in pool if not each.is_complete()]
        if arguments.strip():
            return open_[0] if len(open_) == 1 else None
        if call_id is not None and not (own and open_):
            return None  # its name may follow
        return pool[-1] if pool else None

    def _named(
        self,
        own: Sequence[Part],
        key: int | str | None,
        call_id: str | None,
        name: str,
        arguments: str,
    ) -> Part | None:
        """The call that a piece with a name continues or repeats; None if it starts another.

        ``own`` are the calls with its index; all calls if it has none.
        """
        alike = [each for each in own if each.name in (None, name)]
        if call_id is not None:
            late = own[-1:] if key is not None and own and own[-1].id is None else ()
            alike = [each for each in alike if each.id == call_id or each in late]
        if arguments.strip() and (call_id is not None or key is not None):
            repeated = next((each for each in alike if each.is_repeated_by(arguments)), None)
            if repeated is not None:
                return repeated
        open_ = [each for each in alike if not each.is_complete()]
        if open_:
            return open_[0] if len(open_) == 1 else None
        return alike[-1] if alike and not arguments.strip() else None

    def put_together(self) -> list[Call]:
        """The calls without repetitions.

        Raises:
            ValueError: they cannot be told apart.
        """
        return put_together([CallPart(each.id, each.name, each.arguments) for each in self.parts])

    def numbers(self) -> dict[int, int]:
        """The number of each part's call; if the calls cannot be told apart, of the part."""
        try:
            calls = self.put_together()
        except ValueError:  # the answer is not used; see check_usable
            return {part.index: part.index for part in self.parts}
        return {part: number for number, call in enumerate(calls) for part in call.parts}


_FAILED = re.compile(r"malformed|unexpected_tool|invalid|fail|error")
"""Words in finish reasons of answers that cannot be used, such as Gemini's ``MALFORMED_FUNCTION_CALL``."""
_CUT = {
    "length": "its limit of tokens was reached before any text. Raise the limit, such as max_tokens",
    "content_filter": "the provider's content filter removed it",
}
"""The reasons for an empty answer that would be empty again."""


def check_usable(
    end: Finished, calls: Calls, batch: Batch, reason: str, *, has_hosted: bool
) -> None:
    """Check that a complete response is an answer.

    Args:
        end: its end.
        calls: its calls.
        batch: its texts.
        reason: the server's own finish reason.
        has_hosted: whether it has calls of hosted tools.

    Raises:
        UnusableAnswer: it is malformed or empty, or its calls cannot be told apart.
    """
    if _FAILED.search(reason):
        raise UnusableAnswer(f"ended its answer with {reason!r}", end)
    try:
        has_calls = bool(calls.parts and calls.put_together())
    except ValueError as error:
        raise UnusableAnswer(f"sent calls that were not run, because {error}", end) from None
    if has_calls or has_hosted or batch.has(TextDelta):
        return
    if (why := _CUT.get(end.reason)) is not None:
        raise UnusableAnswer(f"gave no answer: {why} ({reason})", end, again=False)
    raise UnusableAnswer(f"gave no answer: no text and no call ({reason})", end)
