"""One attempt at one tool call: what surrounds its way to the body, and what became of it.

An attempt ends in an event: ``ToolFinished`` or ``Interrupted`` (several of those where a body asked
several questions at once). Nothing here decides what a run does next; that is ``state.next_step``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, ValidationError

from nbagent.core.base.errors import Misuse, Rejected, StoreError
from nbagent.core.base.events import Interrupted
from nbagent.core.base.interrupts import SCHEMA_CHANGED, Interrupt, digest_of, to_json
from nbagent.core.base.messages import canonical
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.middleware import ToolCall, chain
from nbagent.core.tools.output import CallOutput
from nbagent.core.tools.tool import Tool, ToolResult
from nbagent.core.tools.values import describe

from .body import Raised, found_in, log_failed, log_late
from .call_events import Ending, Endings
from .dispatch import Dispatch, carried_by
from .setup import CallDenied, CallSetup, CallTakenOver, SubrunWaits


class Attempt:
    """One attempt at a call."""

    def __init__(self, call: CallState, journal: AnyJournal, around: CallSetup) -> None:
        self.call = call
        self.value: Any = None
        """The tool's own Python object once it returned, or where it raised."""
        self.has_value = False
        self._journal = journal
        self._around = around
        self._output = CallOutput(call.id, journal.emit, around.scope)
        self._dispatch = Dispatch(call, journal, around, self._output)
        self._endings = Endings(call.id, call.name, around, self._output)

    @property
    def body_runs(self) -> bool:
        """Whether the body is still executing, in its thread or task."""
        return self._dispatch.body_runs

    def wake(self) -> None:
        """An answer came: it may be one that the body waits for."""
        self._dispatch.wake()

    async def run(self) -> None:
        """Take the call to a result or a pause, and write it down.

        Raises:
            Misuse: the tool's metadata or state is no JSON.
            StoreError: something of it could not be stored.
            ToolFailed: the tool raised and the run is to raise as well.
        """
        try:
            events = await self._events()
        finally:
            self._output.close()
        if not events:
            return
        written = self._journal.commit(lambda state: events if self._is_ours(state) else [])
        if not written:
            log_late(self.call.name)
        for event in written:
            if isinstance(event, Interrupted):
                self._around.paused(event)

    def _is_ours(self, state: RunState) -> bool:
        """Whether the call stands where this attempt left it: no other process has taken it over."""
        current = state.calls.get(self.call.id)
        if state.outcome is not None or current is None or current.status == "done":
            return False
        if not self._dispatch.claimed and current.child is None:
            return current is self.call  # so it must be untouched
        return current.attempt == self._dispatch.attempt

    async def _events(self) -> Ending:
        call = self.call
        tool = self._around.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._around.tools)) or "none"
            return self._failed(f"There is no tool {call.name!r}. The tools are: {known}.")
        if call.raw is not None:
            return self._failed(f"The arguments are no JSON object: {call.raw}")
        try:
            typed = tool.parse(call.input)
        except ValidationError as error:
            return self._failed(f"The arguments do not fit {call.name}: {describe(error)}")
        except Exception as error:  # a validator of the tool's own that breaks
            return self._raised(error)
        outdated = self._outdated(tool)
        if outdated is not None:
            again = Interrupt(outdated.metadata, state=outdated.state, editable=outdated.editable)
            pausing = self._dispatch.pausing(tool)
            return [pausing.event(outdated.kind, again, call.input, note=SCHEMA_CHANGED)]
        return await self._through(tool, typed)

    def _outdated(self, tool: Tool[..., Any]) -> Interrupted | None:
        """The pause that was approved, if the tool's schema is another by now."""
        pause = self.call.pause
        if pause is None or self.call.resumed is None:
            return None
        current = digest_of(tool.name, pause.input, tool.input_schema)
        return pause if pause.digest != current else None

    async def _through(self, tool: Tool[..., Any], typed: BaseModel) -> Ending:
        """Take the call through the middleware to its body, and read what comes back."""
        surrounded = bool(self._around.middleware)
        inner = _Innermost(self._dispatch, tool, self.call.input, typed, surrounded=surrounded)
        try:
            value = await chain(self._around.middleware, inner)(self._view(typed))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return self._ended_by(tool, error)
        finally:
            inner.over = True
        sticky = self._sticky(tool)  # swallowed on its way out
        if sticky is not None:
            return sticky
        try:
            return self._finished(value)
        except Exception as error:  # a result whose own methods break
            return self._raised(error)

    def _view(self, typed: BaseModel) -> ToolCall:
        carried = carried_by(self.call)
        return ToolCall(
            id=self.call.id,
            tool_name=self.call.name,
            input=typed,
            resumed=carried.resumed,
            original_input=carried.original_input,
            state=carried.state,
            waited=self._waited,
        )

    def _waited(self) -> float:
        """Seconds that the call has waited for a person, up to now."""
        call = self._journal.state.calls.get(self.call.id, self.call)
        now = 0.0 if call.waits_since is None else self._around.clock() - call.waits_since
        return call.waited + max(0.0, now)

    def _ended_by(self, tool: Tool[..., Any], error: BaseException) -> Ending:
        if isinstance(error, asyncio.CancelledError) and _cancelling():
            raise error
        pause = found_in(error)
        if self._dispatch.pause is None and pause is not None:
            self._dispatch.pause = ("tool", pause)
        sticky = self._sticky(tool)
        return self._raised(error) if sticky is None else sticky

    def _sticky(self, tool: Tool[..., Any]) -> Ending | None:
        """What the call comes to whatever surrounded it; None where that has its say.

        Raises:
            Misuse: the tool misused its context.
            StoreError: something that it asked or did could not be stored.
        """
        match self._dispatch.signal:
            case Misuse() | StoreError() as error:
                raise error
            case SubrunWaits() | CallTakenOver():
                return ()
            case CallDenied() as denied:
                return self._failed(str(denied))
            case None:
                return self._dispatch.paused(tool) if self._dispatch.pause is not None else None

    def _finished(self, value: Any) -> Ending:
        self.value = value.value if isinstance(value, ToolResult) else value
        self.has_value = True
        return [self._endings.finished(value, self._dispatch.verdict)]

    def _raised(self, error: BaseException) -> Ending:
        ending = [self._endings.raised(error, self._dispatch.verdict)]
        if not isinstance(error, Rejected):
            self.value, self.has_value = Raised.by(error), True
            log_failed(self.call.name, self.value.traceback)
        return ending

    def _failed(self, text: str) -> Ending:
        return [self._endings.failed(text, self._dispatch.verdict)]


class _Innermost:
    """The last ``next``: hands the call to the dispatcher, while its attempt lasts."""

    def __init__(
        self,
        dispatch: Dispatch,
        tool: Tool[..., Any],
        input_: dict[str, Any],
        typed: BaseModel,
        *,
        surrounded: bool,
    ) -> None:
        self.over = False
        self._dispatch = dispatch
        self._tool = tool
        self._input = input_
        self._typed = typed
        self._before = canonical(to_json(typed)) if surrounded else ""
        """The input as it came, where middleware may change it."""

    async def __call__(self, call: ToolCall) -> Any:
        tool = self._tool
        if self.over:
            raise RuntimeError(f"the call of {tool.name!r} is over: `next` runs it no more")
        if self._before and canonical(to_json(call.input)) != self._before:
            changed = to_json(call.input)
            return await self._dispatch(tool, tool.parse(changed), changed)
        return await self._dispatch(tool, self._typed, self._input)


def _cancelling() -> bool:
    """Whether it is the call that is cancelled, and not something that its tool waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
