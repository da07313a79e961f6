"""A body with a loop of its own: the text it writes, the calls that it runs itself, and their approvals.

Only bodies that use ``ctx.write``, ``ctx.row`` or ``ctx.approve`` import this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError

from nbagent.core.base.errors import ToolError
from nbagent.core.base.events import RowOfCall, StepFinished, StoredEvent, TextWritten, ToolStarted
from nbagent.core.base.messages import INSTEAD, canonical, with_escaped_surrogates
from nbagent.core.base.secrets import has_secret, sealed_json
from nbagent.core.journal.journal import Decide
from nbagent.core.state.fold import row_digest
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.call_output import CallOutput
from nbagent.core.tools.json_schema import input_model, usable
from nbagent.core.tools.result_text import MAX_OUTPUT, MAX_SHOWN, for_model, shortened_text
from nbagent.core.tools.signature import Signature
from nbagent.core.tools.tool import Tool, ToolOptions

from .setup import is_mine

MAX_WRITTEN = 16_000_000
"""Maximum characters of ``ctx.write`` in one call."""
MAX_ID = 1_000
"""Maximum characters of a call's own id."""
_CUT = "\n\n… (more text was written, and is left out)\n"
_AT_ONCE = (str, int, float, bool, type(None))


class Texts:
    """The text of ``ctx.write`` in one body that is not stored yet; safe from any thread.

    A body that runs again writes the text outside of its steps again. As far as it is the same, it is not stored twice.
    """

    def __init__(
        self,
        call: CallState,
        started: ToolStarted,
        output: CallOutput,
        clock: Callable[[], float],
    ) -> None:
        self._started = started
        self._output = output
        self._clock = clock
        self._lock = threading.Lock()
        self._pieces: list[tuple[str, bool]] = []
        """Text that may not be stored yet, and whether it was written outside of steps."""
        self._start = self._end = call.written
        """The places of the first piece's beginning and of the last piece's end in all text of the call."""
        self._earlier = "".join(call.texts)
        self._repeated = 0
        """Characters of ``_earlier`` that this body has written again."""

    def write(self, text: str, *, in_step: bool) -> None:
        """Add text, and report it."""
        text = with_escaped_surrogates(text)
        with self._lock:
            text = text if in_step else self._new(text)
            room = MAX_WRITTEN - self._end
            if len(text) > room:
                text = text[:room] + _CUT if room > 0 else ""
            if text:
                start, self._end = self._end, self._end + len(text)
                self._pieces.append((text, not in_step))
                self._output.text(text, start)

    def _new(self, text: str) -> str:
        """The part of the text that an earlier body has not written at this place."""
        earlier, at = self._earlier, self._repeated
        if at == len(earlier):
            return text
        if earlier.startswith(text, at):
            self._repeated += len(text)
            return ""
        known = earlier[at : at + len(text)]
        self._repeated = len(earlier)  # from here on, this body writes something else
        return (
            text[len(known) :] if at + len(text) > len(earlier) and text.startswith(known) else text
        )

    def before(self, decide: Decide) -> Decide:
        """A decision that stores the text before the events of ``decide``, if there are any."""

        def with_text(state: RunState) -> Sequence[StoredEvent]:
            events = decide(state)
            return [*self.unstored(state), *events] if events else events

        return with_text

    def unstored(self, state: RunState) -> list[StoredEvent]:
        """The event for the text that the state does not have."""
        call = state.calls.get(self._started.call_id)
        if call is None or not is_mine(state, self._started):
            return []
        with self._lock:
            stored = 0
            while stored < len(self._pieces) and self._start < call.written:
                self._start += len(self._pieces[stored][0])
                stored += 1
            del self._pieces[:stored]
            text = "".join(text for text, _ in self._pieces)
            own = "".join(text for text, is_own in self._pieces if is_own)
        if not text:
            return []
        return [
            TextWritten(
                at=self._clock(),
                scope=self._started.scope,
                call_id=self._started.call_id,
                text=text,
                own=None if own == text else own,
            )
        ]


class OpenRow:
    """The row of a call that the body's own code runs, until its end is stored."""

    def __init__(self, started: ToolStarted, name: str, row: RowOfCall, at: float) -> None:
        self._started = started
        self._name = name
        self._row = row
        self._at = at

    @property
    def is_approval(self) -> bool:
        """Whether a person has approved this call, or a rule that names its tool."""
        return self._row.approved is not None

    def is_known(self, call: CallState) -> bool:
        """Whether the end of this call is stored."""
        return row_digest(self._name, self._row) in call.rows

    def show(self, output: CallOutput) -> None:
        """Report the start."""
        output.step(self._name, self._at, self._row)

    def end(self, value: Any, now: float, *, failed: bool) -> Decide:
        """The decision that stores the end, unless it is stored already."""
        event = StepFinished(
            at=now,
            scope=self._started.scope,
            call_id=self._started.call_id,
            name=self._name,
            value=None if failed else value,
            error=shortened_text(str(value), MAX_OUTPUT) if failed else None,
            seconds=max(0.0, now - self._at),
            row=self._row,
        )

        def decide(state: RunState) -> Sequence[StoredEvent]:
            call = state.calls.get(self._started.call_id)
            if call is None or not is_mine(state, self._started) or self.is_known(call):
                return []
            return [event]

        return decide


def row_of(
    call: CallState, started: ToolStarted, name: Any, input_: Any, id_: Any, at: float
) -> OpenRow:
    """The row of a call; if the body has asked for its approval, the row of the approval.

    Raises:
        ToolError: the name or the id is not usable.
    """
    _check_name(name)
    _check_id(id_)
    shown = None if input_ is None else bounded(input_)
    plain = shown if shown is None or isinstance(shown, dict) else {"input": shown}
    row = RowOfCall(id=id_, input=plain)
    for one in () if call.child is None else call.child.calls.values():
        is_same = (one.server_id, one.name) == (id_, name) and is_approved(one)
        if is_same and (shown is None or canonical(shown) == canonical(bounded(one.body_input))):
            row = RowOfCall(id=id_, approved=one.id)
    return OpenRow(started, name, row, at)


def is_approved(call: CallState) -> bool:
    """Whether a call of ``ctx.approve`` has ended with an approval."""
    if call.result is None or call.result.get("error"):
        return False
    answers = [each["resolution"]["type"] for each in call.result.get("nbagent", ())]
    return answers[-1:] != ["respond"]


def is_quick(value: Any) -> bool:
    """Whether ``bounded`` takes no time, so that it needs no thread."""
    return type(value) in _AT_ONCE


def bounded(value: Any) -> Any:
    """A value as it is shown and stored: JSON of limited size, or text."""
    try:
        return for_model(value, MAX_SHOWN)
    except Exception as error:  # the value's own methods raise
        return f"A {type(value).__name__} that cannot be shown as text: {type(error).__name__}: {error}"


def approval_of(
    name: Any, input_: Any, id_: Any, message: Any, editable: Any, schema: Any
) -> Tool[..., Any]:
    """A tool whose call ends with a person's approval, as the body's own code runs the call.

    Raises:
        ToolError: an argument is not usable; the message names it.
    """
    _check_name(name)
    if id_ is not None:
        _check_id(id_)
    if not isinstance(input_, Mapping):
        raise ToolError(
            f"The input of {name!r} must be a JSON object, such as {{'amount': 5}}, got {input_!r:.80}"
        )
    try:
        if has_secret(sealed_json(dict(input_))):
            raise ToolError(
                f"The input of {name!r} contains a secret. The input is shown and stored, and secrets are never stored"
            )
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise ToolError(f"The input of {name!r} is not JSON: {error}; {INSTEAD}") from error
    if not isinstance(message, str):
        raise ToolError(f"message= must be a string, got {message!r:.80}")
    fields = usable(
        {"type": "object"} if schema is None else schema, "schema=", ToolError, as_input=True
    )
    if not isinstance(fields, dict):
        raise ToolError(f"schema= must be a JSON Schema, got {schema!r:.80}")
    known: Any = fields.get("properties", input_ if schema is None else None)
    for field in () if known is None or isinstance(editable, bool) else editable:
        if field not in known:
            raise ToolError(
                f"{name!r} has no input {field!r}, so it cannot be editable. Its inputs: {', '.join(known) or 'none'}"
            )
    tool = Tool(
        _nothing,
        name=name,
        description="",
        signature=Signature({}, input_type=input_model(fields, name), document="arguments"),
        options=ToolOptions(
            approval=True,
            editable=editable if isinstance(editable, bool) else tuple(editable),
            asks=message,
        ),
    )
    if tool.secrets is not None:
        raise ToolError(
            f"schema= of {name!r} has a secret. The input is shown and stored, and secrets are never stored"
        )
    return tool


async def _nothing(arguments: dict[str, Any]) -> None:
    """The body of a tool of ``ctx.approve``, which is never called."""


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.strip():
        raise ToolError(f"A call needs the name of its tool, a string, got {name!r:.80}")


def _check_id(id_: Any) -> None:
    if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID:
        raise ToolError(
            f"id= must be a string of 1 to {MAX_ID:,} characters, such as the id that the model gave the call, got "
            f"{id_!r:.80}"
        )
