"""The answer so far of a run that streams. The text is parsed repeatedly, but not after each new letter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbagent.core.base.events import AnswerForm, ModelResponded, RunCompleted
from nbagent.core.base.model import Discarded, ReasoningDelta, TextDelta
from nbagent.core.journal.journal import RunEvent
from nbagent.core.tools.answer_type import partial_of

STEP = 32
"""A text is parsed again once it is longer by 1/``STEP``, so all parses cost about ``STEP`` times the last one."""
_NOTHING: Any = object()


class PartialAnswer:
    """The answer so far, after each event of a run."""

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._pieces: list[str] = []
        self._size = self._read = 0
        """Number of characters so far, and at the last parse."""
        self._last: Any = _NOTHING

    def after(self, event: RunEvent) -> Iterator[Any]:
        """Yield the answer so far, if this event has changed it."""
        match event:
            case TextDelta(text=text):
                self._pieces.append(text)
                self._size += len(text)
                if self._size - self._read > self._read // STEP:
                    self._read = self._size
                    yield from self._new(self._so_far())
            case Discarded() | ModelResponded(scope=()) | ReasoningDelta(replaces_text=True):
                self._pieces = []
                self._size = self._read = 0
            case RunCompleted(scope=()):
                yield from self._new(event.text if event.output is None else event.output)
            case _:
                pass

    def _so_far(self) -> Any:
        text = "".join(self._pieces)
        self._pieces = [text]
        if self._form == "text":
            return text
        value = partial_of(text, self._form)
        return self._last if value is None else value

    def _new(self, value: Any) -> Iterator[Any]:
        if value is not _NOTHING and value != self._last:
            self._last = value
            yield value
