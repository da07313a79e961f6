"""The output of a running tool call besides its result: prints, displays, progress.

In the thread or task of a call, ``current_call`` has the ``CallOutput`` of that call. The notebook layer uses this
variable to capture output. Core itself never touches ``sys.stdout``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, TypeAlias

from nbagent.core.base.amounts import amount
from nbagent.core.base.events import NO_DISPLAYS, RowOfCall

MAX_PRINTED = 20_000
"""Maximum characters of printed text stored per call; of a longer text, the beginning and the end are stored."""
MAX_DISPLAYS = 20
"""Maximum displays stored per call; later ones are dropped."""

Stream = Literal["stdout", "stderr", "log"]
Bundle: TypeAlias = dict[str, Any]
"""A mime bundle: mime type to data, as IPython publishes it."""


class Printed(NamedTuple):
    """Text that a tool printed or logged, or a warning."""

    call_id: str
    stream: Stream
    text: str
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["printed"]:
        """The tag of this kind of event."""
        return "printed"


class Displayed(NamedTuple):
    """A display of a tool. A later display with the same ``display_id`` replaces this one."""

    call_id: str
    bundle: Bundle
    display_id: str | None = None
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["displayed"]:
        """The tag of this kind of event."""
        return "displayed"


class Progressed(NamedTuple):
    """Progress of a tool: ``fraction`` from 0 to 1, or None if it is unknown."""

    call_id: str
    fraction: float | None
    text: str
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["progressed"]:
        """The tag of this kind of event."""
        return "progressed"


class Planned(NamedTuple):
    """The plan of a tool: the first ``done`` steps are done, and the next one is being done."""

    call_id: str
    steps: tuple[str, ...]
    done: int
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["planned"]:
        """The tag of this kind of event."""
        return "planned"


class Chunk(NamedTuple):
    """A piece of the result of a streaming tool."""

    call_id: str
    text: str
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["chunk"]:
        """The tag of this kind of event."""
        return "chunk"


class StepStarted(NamedTuple):
    """The start of a step; the event ``step_finished`` has the outcome."""

    call_id: str
    name: str
    at: float
    """Unix time in seconds."""
    scope: tuple[str, ...] = ()
    row: RowOfCall | None = None
    """The call of a ``ctx.row``; None for a step."""

    @property
    def type(self) -> Literal["step_started"]:
        """The tag of this kind of event."""
        return "step_started"


class TextPiece(NamedTuple):
    """Text that a body wrote with ``ctx.write``."""

    call_id: str
    text: str
    start: int
    """Characters that the call's bodies had written before."""
    scope: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["text_piece"]:
        """The tag of this kind of event."""
        return "text_piece"


OutputDelta: TypeAlias = (
    Printed | Displayed | Progressed | Planned | Chunk | StepStarted | TextPiece
)


class CallOutput:
    """Collects the output of one call, and sends it to listeners; safe from any thread."""

    def __init__(
        self, call_id: str, emit: Callable[[OutputDelta], None], scope: tuple[str, ...] = ()
    ) -> None:
        self.call_id = call_id
        self._emit = emit
        self._scope = scope
        self._head = ""
        self._tail = ""
        self._dropped = 0
        self._displays: dict[str | int, Bundle] = {}
        self.last_plan: tuple[str, ...] = ()
        """The steps of the last plan."""
        self.last_done = 0
        """The number of its steps that are done."""
        self.closed = False
        """Whether the call has ended, so that late output is ignored."""
        self._late = 0
        self.interrupt: Callable[[], None] | None = None
        """Ends a body that keeps the loop's thread; callable on any other thread. None for any other body."""

    def close(self, *, runs: bool = False) -> None:
        """Ignore output from now on, because the call has ended.

        Args:
            runs: True if the body still runs, such as in a thread that cannot be stopped. Its prints are then
                still sent, but not stored.
        """
        self.closed = True
        self._late = MAX_PRINTED if runs else 0

    @property
    def takes_prints(self) -> bool:
        """Whether prints are accepted: until the call ends, and for a body that runs longer than the call."""
        return not self.closed or self._late > 0

    def write(self, stream: Stream, text: str) -> None:
        """Add printed text."""
        if self._late and text:
            self._emit(Printed(self.call_id, stream, text[: self._late], self._scope))
            self._late = max(0, self._late - len(text))
        if self.closed or not text:
            return
        room = MAX_PRINTED // 2 - len(self._head)
        if room > 0:
            self._head, text_left = self._head + text[:room], text[room:]
        else:
            text_left = text
        tail = self._tail + text_left
        self._dropped += max(0, len(tail) - MAX_PRINTED // 2)
        self._tail = tail[-(MAX_PRINTED // 2) :]
        self._emit(Printed(self.call_id, stream, text, self._scope))

    def display(self, bundle: Bundle, *, display_id: str | None = None) -> None:
        """Add a mime bundle; it replaces an earlier one with the same ``display_id``."""
        if self.closed:
            return
        key: str | int = display_id if display_id is not None else len(self._displays)
        if key in self._displays or len(self._displays) < MAX_DISPLAYS:
            self._displays[key] = bundle
            self._emit(Displayed(self.call_id, bundle, display_id, self._scope))

    def progress(self, fraction: float | None, text: str) -> None:
        """Add a progress report; an invalid fraction counts as unknown."""
        if not self.closed:
            known = amount(fraction)
            at = None if known is None else min(1.0, known)
            self._emit(Progressed(self.call_id, at, text, self._scope))

    def plan(self, steps: tuple[str, ...], done: int) -> None:
        """Show a plan."""
        if not self.closed:
            self.last_plan, self.last_done = steps, done
            self._emit(Planned(self.call_id, steps, done, self._scope))

    def step(self, name: str, at: float, row: RowOfCall | None = None) -> None:
        """Add the start of a step or row, with its Unix time in seconds."""
        if not self.closed:
            self._emit(StepStarted(self.call_id, name, at, self._scope, row))

    def text(self, text: str, start: int) -> None:
        """Add text of ``ctx.write``, after ``start`` characters."""
        if not self.closed:
            self._emit(TextPiece(self.call_id, text, start, self._scope))

    def chunk(self, text: str) -> None:
        """Add a piece of a streaming tool's result."""
        if not self.closed:
            self._emit(Chunk(self.call_id, text, self._scope))

    @property
    def printed(self) -> str:
        """All printed text, with a note in the middle where some was dropped."""
        if self._dropped:
            return f"{self._head}\n… {self._dropped} characters left out …\n{self._tail}"
        return self._head + self._tail

    @property
    def displays(self) -> list[Bundle]:
        """The displays, in the order they first appeared."""
        return list(self._displays.values()) or NO_DISPLAYS


current_call: ContextVar[CallOutput | None] = ContextVar("nbagent_current_call", default=None)
"""The output of the call that the current code belongs to; None outside of tools."""
