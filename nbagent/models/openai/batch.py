"""What a parser makes of the bytes that arrived together: their JSON, and the deltas in them."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from nbagent.core.base.model import ModelDelta, ReasoningDelta, TextDelta

from .bounds import BrokenStream


class Batch:
    """Collects deltas and joins neighboring texts."""

    __slots__ = ("_deltas", "_kind", "_texts")

    def __init__(self) -> None:
        self._deltas: list[ModelDelta] = []
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        self._texts: list[str] = []

    def say(self, kind: type[TextDelta] | type[ReasoningDelta], text: str) -> None:
        """More text of this kind."""
        if kind is not self._kind:
            self.flushed()
            self._kind = kind
        self._texts.append(text)

    def add(self, delta: ModelDelta) -> None:
        """A delta that is no text."""
        self.flushed().append(delta)

    def flushed(self) -> list[ModelDelta]:
        """All deltas so far, the last text included."""
        if self._texts:
            text = "".join(self._texts)
            self._texts.clear()
            if text:
                self._deltas.append(self._kind(text))
        return self._deltas


def parsed(payload: bytes) -> Any:
    """The JSON of an event or a response.

    Raises:
        BrokenStream: it is none.
    """
    try:
        return from_json(payload)  # three times as fast as json
    except ValueError:
        pass  # half of a surrogate pair is no Unicode, but json takes it
    try:
        return json.loads(payload)
    except ValueError as error:
        raise BrokenStream(f"the server sent {payload[:80]!r}, which is no JSON") from error
    except RecursionError as error:
        said = f"the server sent {payload[:80]!r}, which is nested too deep to be read"
        raise BrokenStream(said, again=False) from error
