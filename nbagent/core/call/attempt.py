"""One attempt at one tool call: through the middleware to the gate, the claim and the body, and back.

An attempt ends in events: ``ToolFinished`` or ``Interrupted`` (several of those where a body asked
several questions at once). Nothing here decides what a run does next; that is ``next_step``. Nothing
runs but here, behind the gate and the claim, so no middleware can make a refused call run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, assert_never

from pydantic import BaseModel, ValidationError

from nbagent.core.base.errors import Misuse, Rejected, StoreError
from nbagent.core.base.events import Interrupted, ToolFinished, ToolStarted, made
from nbagent.core.base.interrupts import (
    ASKED_AGAIN,
    SCHEMA_CHANGED,
    Interrupt,
    digest_of,
    to_json,
)
from nbagent.core.base.messages import Json, canonical
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.context import Carried, ToolContext
from nbagent.core.tools.middleware import ToolCall, chain
from nbagent.core.tools.output import CallOutput
from nbagent.core.tools.tool import Tool, ToolResult
from nbagent.core.tools.values import describe

from .body import Body, Raised, found_in, log_failed, log_late
from .call_events import CallEvents
from .gate import Gate
from .questions import Questions
from .setup import (
    CallDenied,
    CallJournal,
    CallSetup,
    CallTakenOver,
    Pause,
    Stop,
    SubrunWaits,
)

Ending = Sequence[ToolFinished | Interrupted]
"""What an attempt is written down as; nothing where somebody else goes on with the call."""


class Attempt:
    """One attempt at a call."""

    def __init__(self, call: CallState, journal: AnyJournal, setup: CallSetup) -> None:
        self.call = call
        self.value: Any = None
        """The tool's own Python object once it returned, or where it raised."""
        self.has_value = False
        self._setup = setup
        self._stop = Stop()
        self._journal = CallJournal(journal, self._stop)
        self._output = CallOutput(call.id, journal.emit, setup.scope)
        self._events = CallEvents(call, setup, self._output)
        self._gate = Gate(call, journal.run_id, setup.spec)
        self._bodies = call.attempt
        """How many bodies were started."""
        self._body: Body | None = None
        self._questions: Questions | None = None
        self._input = call.input
        """What reached the gate last."""
        self._success: list[Any] = []
        self._over = False

    @property
    def body_runs(self) -> bool:
        """Whether the body is still executing, in its thread or task."""
        return self._body is not None and self._body.runs

    def wake(self) -> None:
        """An answer came: it may be one that the body waits for."""
        if self._questions is not None:
            self._questions.wake()

    # --- from the call to its events

    async def run(self) -> None:
        """Take the call to a result or a pause, and write it down.

        Raises:
            Misuse: the tool's metadata or state is no JSON, or it misused its context.
            StoreError: something of it could not be stored.
            ToolFailed: the tool raised and the run is to raise as well.
        """
        try:
            events = await self._ending()
        finally:
            self._output.close()
        if not events:
            return
        written = self._journal.commit(lambda state: events if self._is_ours(state) else [])
        if not written:
            log_late(self.call.name)
        for event in written:
            if isinstance(event, Interrupted):
                self._setup.hooks.paused(event)

    def _is_ours(self, state: RunState) -> bool:
        """Whether the call stands where this attempt left it: no other process has taken it over."""
        current = state.calls.get(self.call.id)
        if state.outcome is not None or current is None or current.status == "done":
            return False
        if not self._has_claimed and current.child is None:
            return current is self.call  # so it must be untouched
        return current.attempt == self._bodies

    @property
    def _has_claimed(self) -> bool:
        return self._bodies != self.call.attempt

    async def _ending(self) -> Ending:
        call, tools = self.call, self._setup.spec.tools
        tool = tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(tools)) or "none"
            return self._failed(f"There is no tool {call.name!r}. The tools are: {known}.")
        if call.raw is not None:
            return self._failed(f"The arguments are no JSON object: {call.raw}")
        try:
            typed = tool.parse(call.input)
        except ValidationError as error:
            return self._failed(f"The arguments do not fit {call.name}: {describe(error)}")
        except BaseException as error:  # a validator of the tool's own that breaks
            return self._raised(error)
        outdated = self._outdated(tool)
        if outdated is not None:
            again = Interrupt(outdated.metadata, state=outdated.state, editable=outdated.editable)
            pause = Pause(outdated.kind, again)
            return [self._events.paused(tool, pause, call.input, note=SCHEMA_CHANGED)]
        return await self._surrounded(tool, typed)

    def _outdated(self, tool: Tool[..., Any]) -> Interrupted | None:
        """The pause that was approved, if the tool's schema is another by now."""
        pause = self.call.pause
        if pause is None or self.call.resumed is None:
            return None
        current = digest_of(tool.name, pause.input, tool.input_schema)
        return pause if pause.digest != current else None

    async def _surrounded(self, tool: Tool[..., Any], typed: BaseModel) -> Ending:
        """Take the call through the middleware to its body, and read what comes back."""
        failure: BaseException | None = None
        value: Any = None
        try:
            value = await self._through_middleware(tool, typed)
        except (
            BaseException
        ) as error:  # SystemExit too: past here it would end the loop, and with it all
            if isinstance(error, asyncio.CancelledError) and _cancelling():
                raise
            pause = found_in(error)
            if pause is not None:
                self._stop.by(Pause("tool", pause))
            failure = error
        finally:
            self._over = True
        if self._stop.reason is not None:
            return self._stopped(tool)
        if failure is not None:
            return self._raised(failure)
        try:
            return self._finished(value)
        except BaseException as error:  # a result whose own methods break
            return self._raised(error)

    def _stopped(self, tool: Tool[..., Any]) -> Ending:
        """What a call comes to that something has stopped, whatever surrounded it made of that.

        Raises:
            Misuse: the tool misused its context.
            StoreError: something that it asked or did could not be stored.
        """
        match self._stop.reason:
            case Misuse() | StoreError() as error:
                raise error
            case SubrunWaits() | CallTakenOver() | None:
                return ()
            case CallDenied() as denied:
                return self._failed(str(denied))
            case Pause() as pause:
                own = () if pause.kind == "ask" else (self._paused(tool, pause),)
                return [*self._stop.asked, *own]
            case never:
                assert_never(never)

    def _paused(self, tool: Tool[..., Any], pause: Pause) -> Interrupted:
        call = self.call
        entered = None if self._input is call.input else call.input
        verdict, note = self._gate.verdict, self._gate.note if pause.kind == "approval" else None
        event = self._events.paused(
            tool, pause, self._input, entered=entered, verdict=verdict, note=note
        )
        if note is None and call.resumed is not None and _same_question(call.pause, event):
            return event.model_copy(update={"note": ASKED_AGAIN})
        return event

    def _finished(self, value: Any) -> Ending:
        self.value = value.value if isinstance(value, ToolResult) else value
        self.has_value = True
        return [self._events.finished(value, self._verdict)]

    def _raised(self, error: BaseException) -> Ending:
        ending = [self._events.raised(error, self._verdict)]
        if not isinstance(error, Rejected):
            self.value, self.has_value = Raised.by(error), True
            log_failed(self.call.name, self.value.traceback)
        return ending

    def _failed(self, text: str) -> Ending:
        return [self._events.failed(text, self._verdict)]

    @property
    def _verdict(self) -> str | None:
        """The rule that kept the body from being started."""
        return None if self._has_claimed else self._gate.verdict

    # --- through the middleware

    async def _through_middleware(self, tool: Tool[..., Any], typed: BaseModel) -> Any:
        middleware = self._setup.spec.middleware
        if not middleware:
            return await self._pass(tool, typed, self.call.input)
        before = canonical(to_json(typed))
        # a middleware may call ``next`` twice at once: the second waits, and gets what the first got
        one_at_a_time = asyncio.Lock()

        async def innermost(call: ToolCall) -> Any:
            if self._over:
                raise RuntimeError(f"the call of {tool.name!r} is over: `next` runs it no more")
            changed = to_json(call.input)
            is_same = canonical(changed) == before
            async with one_at_a_time:
                if is_same:
                    return await self._pass(tool, typed, self.call.input)
                return await self._pass(tool, tool.parse(changed), changed)

        carried = self._carried()
        view = ToolCall(
            id=self.call.id,
            tool_name=self.call.name,
            input=typed,
            resumed=carried.resumed,
            original_input=carried.original_input,
            state=carried.state,
            waited=self._waited,
        )
        return await chain(middleware, innermost)(view)

    def _waited(self) -> float:
        """Seconds that the call has waited for a person, up to now."""
        call = self._journal.state.calls.get(self.call.id, self.call)
        now = 0.0 if call.waits_since is None else self._setup.spec.clock() - call.waits_since
        return call.waited + max(0.0, now)

    def _carried(self) -> Carried:
        """What a restart brings into the body."""
        call = self.call
        return Carried(
            resumed=call.resumed,
            original_input=call.proposed if call.replaced else None,
            state=call.pause.state if call.pause is not None else None,
        )

    # --- the gate, the claim, the body

    async def _pass(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        """Let the call pass with this input, and give what came of it; after a success the same again."""
        self._stop.check()
        if self._success:
            return self._success[0]
        self._input = input_
        try:
            value = await self._behind_gate(tool, typed, input_)
        except (Misuse, SubrunWaits, CallTakenOver, CallDenied) as reason:
            self._stop.by(reason)
            raise
        except StoreError:
            self._stop.check()  # the tool's own failure, unless it was this call's write that failed
            raise
        self._success = [value]
        return value

    async def _behind_gate(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        review = self._gate.stops(tool, typed, input_)
        if review is not None:
            self._stop.by(Pause("approval", review))
            raise review
        if tool.options.inner is not None:
            return await self._inside(tool, typed)
        if tool.fn is None:
            question = Interrupt(await _question(tool, typed, input_))
            self._stop.by(Pause("question", question))
            raise question
        return await self._execute(tool, typed)

    async def _inside(self, tool: Tool[..., Any], typed: Any) -> Any:
        current = self._journal.state.calls.get(self.call.id)
        if current is None:
            raise CallTakenOver
        if current.child is None:
            self._claim()
        try:
            return await self._setup.inside(current, tool, typed)
        except StoreError as error:  # it has the same journal
            self._stop.by(error)
            raise

    async def _execute(self, tool: Tool[..., Any], typed: Any) -> Any:
        started = self._claim()
        self._body = body = Body(tool, self._output)
        try:
            if not tool.takes_context:
                return await body.run(tool.arguments(typed, None))
            return await self._with_context(tool, typed, body, started)
        except BaseException as error:
            pause = found_in(error)
            if (
                pause is not None
            ):  # raised by hand; one of the context's has stopped the call before
                self._stop.by(Pause("tool", pause))
            raise

    async def _with_context(
        self, tool: Tool[..., Any], typed: Any, body: Body, started: ToolStarted
    ) -> Any:
        questions = self._questions = Questions(
            self._journal, self._stop, self._setup, self._events, tool, started
        )
        ctx = ToolContext(
            call_id=self.call.id,
            tool_name=tool.name,
            attempt=self._bodies,
            output=self._output,
            carried=self._carried(),
            asker=questions,
        )
        try:
            value = await body.run(tool.arguments(typed, ctx))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, Rejected):
                questions.check_awaited()
            raise
        finally:
            questions.close()
        questions.check_awaited()
        self._stop.check()  # a pause, or misuse, that the tool's own except swallowed
        return value

    def _claim(self) -> ToolStarted:
        """Write that the body starts.

        Raises:
            CallTakenOver: somebody else has claimed it, or the run is over.
        """
        call, number, me = self.call, self._bodies, this_process()
        started = made(
            ToolStarted,
            at=self._setup.spec.clock(),
            scope=self._setup.scope,
            call_id=call.id,
            attempt=number + 1,
            owner=me,
            input=self._input,
            verdict=self._gate.verdict,
        )

        def decide(state: RunState) -> list[ToolStarted]:
            current = state.calls.get(call.id)
            if state.outcome is not None or current is None or current.attempt != number:
                return []
            again = number > call.attempt and current.owner == me  # a middleware's second try
            return [started] if current.status == "ready" or again else []

        if not self._journal.commit(decide):
            raise CallTakenOver
        self._bodies = number + 1
        return started


def _same_question(earlier: Interrupted | None, event: Interrupted) -> bool:
    """Whether a restarted tool asks what it asked before, of the same input, having kept nothing."""
    if earlier is None or (earlier.kind, event.kind) != ("tool", "tool"):
        return False
    asked = ([e.input, e.metadata, e.state] for e in (earlier, event))
    return len({canonical(each) for each in asked}) == 1


async def _question(tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
    """What a tool with no body asks."""
    metadata = tool.options.metadata
    if metadata is None:
        return input_
    if callable(metadata):
        metadata = metadata(typed)
    return await metadata if inspect.isawaitable(metadata) else metadata


def _cancelling() -> bool:
    """Whether it is the call that is cancelled, and not something that its tool waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
