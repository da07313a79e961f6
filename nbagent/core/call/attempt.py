"""One attempt at one tool call: through the middleware to the gate, the claim and the body, and back.

An attempt ends in events: ``ToolFinished``, ``Interrupted`` (one for each question that a body asks at once), both,
or none. ``next_step`` then decides the next step of the run. Only this module runs a body, after the gate and the
claim, so no middleware can run a denied call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from pydantic import BaseModel, ValidationError

from nbagent.core.base.errors import Misuse, NbagentError, Rejected, StoreError, as_shown
from nbagent.core.base.events import Interrupted, ToolFinished, ToolStarted
from nbagent.core.base.interrupts import (
    ASKED_AGAIN,
    DOES_NOT_FIT,
    SCHEMA_CHANGED,
    SECRET_GONE,
    TOOL_CHANGED,
    Asker,
    Interrupt,
    Resumed,
    to_json,
)
from nbagent.core.base.messages import MAX_DEPTH, Json, canonical, json_in
from nbagent.core.base.process import this_process
from nbagent.core.base.secrets import has_missing_secrets, plain_json, revealed, without_secrets
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.call_output import CallOutput
from nbagent.core.tools.context import Later, RestartValues, ToolContext
from nbagent.core.tools.middleware import ToolCall, chain
from nbagent.core.tools.result_text import describe
from nbagent.core.tools.tool import Tool, ToolResult
from nbagent.core.tools.toolbox import Toolbox

from .body import Body, Raised, interrupt_in, log_failed, log_late, wait_for_earlier_body
from .call_events import CallEvents
from .gate import Gate
from .questions import TOO_MANY_QUESTIONS, Questions
from .setup import (
    BodyRuns,
    BodyStop,
    CallDenied,
    CallJournal,
    CallSetup,
    CallTakenOver,
    Pause,
    SubrunWaits,
    current_runs,
)

MAX_RAW = 2_000
"""Maximum characters of malformed arguments quoted to the model."""
MAX_DESCRIPTION = 1_000
"""Characters of a changed description that a question quotes."""

_CUT_OFF = {
    "length": "Your answer was cut off at its token limit, so this call was not run. Make it shorter. ",
    "content_filter": "A content filter cut off your answer, so this call was not run. ",
}
"""The beginning of the error for arguments that were cut off."""
Ending = Sequence[ToolFinished | Interrupted]
"""The events to store at the end of an attempt. Empty if the inner run waits, or the call was taken over."""


class Attempt:
    """One attempt at a call."""

    def __init__(self, call: CallState, journal: AnyJournal, setup: CallSetup) -> None:
        self.call = call
        self.value: Any = None
        """The return value of the tool, as a Python object; a ``Raised`` if the tool raised."""
        self.has_value = False
        self._setup = setup
        self._stop = BodyStop()
        self._journal = CallJournal(journal, self._stop)
        self._output = CallOutput(call.id, journal.emit, setup.scope)
        self._events = CallEvents(call, setup, self._output)
        self._gate = Gate(call, journal, setup.spec)
        self._body_count = call.attempt
        """The number of bodies that the call has started so far."""
        self._body: Body | None = None
        self._questions: Questions | None = None
        self._input = call.input
        """The last input that reached the gate."""
        self._later: Later | None = None
        """The body's ``Later``, if it returned an interim result."""
        self._returned: list[Any] = []
        """The value that the call has returned to the middleware; empty before."""
        self._is_over = False
        """Whether the middleware has returned, so that ``next`` can no longer run the call."""
        self._claim_cancelled = False
        """Whether the attempt was cancelled while its claim was being written."""

    @property
    def is_body_running(self) -> bool:
        """Whether the body is still executing, in its thread or task."""
        return self._body is not None and self._body.is_running

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the body's outcome is unknown: it still runs, or was abandoned and its result was never read."""
        return self.is_body_running or (self._body is not None and self._body.has_unread_result)

    def interrupt(self) -> None:
        """End a body that keeps the loop's thread; called on another thread."""
        if self._output.interrupt is not None:
            self._output.interrupt()

    def wake(self) -> None:
        """Check for an answer that the body waits for."""
        if self._questions is not None:
            self._questions.wake()

    # --- from the call to its events

    async def run(self) -> None:
        """Run the call until it has a result or a pause, and store the events.

        Raises:
            Misuse: the tool's metadata or state is not JSON, or it misused its context.
            StoreError: an event could not be stored.
            ToolFailed: the tool raised, and its errors fail the run.
        """
        try:
            events = await self._ending()
        finally:
            self._output.close(runs=self.is_body_running)
        if not events:
            return

        def decide(state: RunState) -> Ending:
            if not self._is_ours(state):
                return []
            asked = sum(isinstance(event, Interrupted) for event in events)
            if not asked or self._setup.has_room(asked):
                return events
            is_started = self._body_count > 0
            what_happened = "stopped at its question" if is_started else "not run"
            return self._failed(f"{TOO_MANY_QUESTIONS}. The call was {what_happened}.")

        written = await self._journal.write(decide)
        if not written:
            log_late(self.call.name)
        for event in written:
            if isinstance(event, Interrupted):
                self._setup.hooks.paused(event)

    def _is_ours(self, state: RunState) -> bool:
        """Whether the call still belongs to this attempt: no other process has changed it or taken it over."""
        current = state.calls.get(self.call.id)
        if state.outcome is not None or current is None or current.status == "done":
            return False
        if not self._has_claimed and current.child is None:
            return current is self.call  # else another process changed the call
        if not self._has_claimed:  # changed by its inner run
            return self._journal.may_drive and current.attempt == self._body_count
        return (current.attempt, current.owner) == (self._body_count, this_process())

    @property
    def _has_claimed(self) -> bool:
        return self._body_count != self.call.attempt

    async def _ending(self) -> Ending:
        call, calls, most = self.call, self._journal.state.calls, self._setup.spec.max_calls
        is_new = not call.attempt and call.pause is None and call.id in calls
        if is_new and calls.place(call.id) >= most:
            return self._failed(
                f"One turn can run at most {most} calls. This call was over the limit and was not run. Request what you "
                "still need in the next turn."
            )
        tool = await self._tool()
        if isinstance(tool, str):
            return self._failed(tool)
        if call.raw is not None:
            shown = call.raw if len(call.raw) <= MAX_RAW else f"{call.raw[:MAX_RAW]}…"
            reason = _CUT_OFF.get(self._journal.state.finish_reason, "")
            why = "" if reason or tool.secrets is not None else _why_unread(call.raw)
            return self._failed(
                f"{reason}The arguments are not a JSON object of at most {MAX_DEPTH} levels{why}: {shown}"
            )
        missing = tool.missing_secrets(call.input)
        pause_of_missing = next(
            (a.pause for a in call.answered.values() if has_missing_secrets(a.resumed.data)), None
        )
        if (missing or pause_of_missing) and tool.fn is not None:
            return [self._secret_question(tool, missing, pause_of_missing or call.pause)]
        try:
            typed = tool.parse(call.input)
        except ValidationError as error:
            return self._invalid_arguments(tool, without_secrets(describe(error), call.input))
        except BaseException as error:  # a validator of the tool's model raised
            return self._raised(error)
        outdated = self._gate.outdated(tool)
        if outdated is not None:
            return [self._repeated_question(tool, outdated, _change_note(tool))]
        return await self._run_tool(tool, typed)

    async def _tool(self) -> Tool[..., Any] | str:
        """The tool, or the reason why there is none. A server's tool is loaded again after a person's answer."""
        call, tools = self.call, self._setup.spec.tools
        tool = tools.get(call.name)
        origin = None if tool is None else tool.options.origin
        if origin is not None and call.resumed is not None:
            try:
                tool = await origin.renewed()
                if isinstance(tools, Toolbox):
                    await tools.ready()
            except NbagentError as error:
                return f"{call.name} was not run after the answer: {error}"
        if tool is not None:
            return tool
        known = ", ".join(sorted(tools)) or "none"
        return f"There is no tool {call.name!r}. The tools are: {known}."

    def _invalid_arguments(self, tool: Tool[..., Any], why: str) -> Ending:
        """The events for invalid arguments: an error for the model, or a question if a person edited them."""
        # the edits may have passed only a check of the schema, in a process without the tool
        if self.call.replaced and self.call.pause is not None:
            return [self._repeated_question(tool, self.call.pause, DOES_NOT_FIT.format(why=why))]
        return self._failed(f"The arguments do not match the schema of {self.call.name}: {why}")

    def _repeated_question(
        self, tool: Tool[..., Any], pause: Interrupted, note: str
    ) -> Interrupted:
        """The question of ``pause`` again, about the current input, with a note why it is asked."""
        again = Interrupt(pause.metadata, state=pause.state, editable=pause.editable)
        return self._events.paused(tool, Pause(pause.asker, again), self.call.input, note=note)

    def _secret_question(
        self, tool: Tool[..., Any], missing: list[str], pause: Interrupted | None
    ) -> Interrupted:
        """Ask for the secrets of the call's input, or of an answer to ``pause``, that this process lacks."""
        asked = Interrupt() if pause is None else Interrupt(pause.metadata, state=pause.state)
        editable = False if pause is None else pause.editable
        asked.editable = editable is True or list(dict.fromkeys([*(editable or ()), *missing]))
        asker = "approval" if pause is None else pause.asker
        event = self._events.paused(tool, Pause(asker, asked), self.call.input, note=SECRET_GONE)
        return replace(event, expects="edit") if missing else event

    async def _run_tool(self, tool: Tool[..., Any], typed: BaseModel) -> Ending:
        """Run the call through the middleware to its body, and return the events of its outcome."""
        failure: BaseException | None = None
        value: Any = None
        try:
            if self._setup.spec.middleware and not tool.options.flow:
                value = await self._through_middleware(tool, typed)
            else:
                value = await self._pass_gate(tool, typed, self.call.input)
        except BaseException as error:  # also SystemExit, which would end the event loop
            if isinstance(error, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # the call itself is cancelled, and not only something that its tool waited for
            # of middleware; a body's pause has already stopped the call
            pause = interrupt_in(error) if self._stop.reason is None else None
            if pause is not None:
                self._stop.because(Pause("middleware", pause))
            failure = error
        finally:
            self._is_over = True
        if self._stop.reason is not None:
            return self._stopped(tool)
        if failure is not None:
            return self._raised(failure)
        try:
            return self._finished(value)
        except Misuse:
            raise
        except BaseException as error:  # the result's own methods raise
            message = f"{self.call.name} ran and returned a {type(value).__name__}, which cannot be shown as text"
            return self._failed(f"{message}: {as_shown(error)}")

    def _stopped(self, tool: Tool[..., Any]) -> Ending:
        """The end of a call that was stopped, whatever middleware did.

        Raises:
            Misuse: the tool misused its context.
            StoreError: a question or a step of the tool could not be stored.
        """
        match self._stop.reason:
            case Misuse() | StoreError() as error:
                raise error
            case SubrunWaits() | CallTakenOver() | None:
                return ()
            case CallDenied() as denied:
                return self._failed(str(denied))
            case Pause() as pause:
                own = () if pause.asker == "ask" else (self._paused(tool, pause),)
                return [*self._stop.asked, *own]
            case never:
                assert_never(never)

    def _paused(self, tool: Tool[..., Any], pause: Pause) -> Interrupted:
        call = self.call
        before_middleware = None if self._input is call.input else call.input
        verdict, note = self._gate.verdict, self._gate.note if pause.asker == "approval" else None
        event = self._events.paused(
            tool, pause, self._input, entered=before_middleware, verdict=verdict, note=note
        )
        earlier = call.pause
        if note is not None or earlier is None or call.resumed is None:
            return event
        if earlier.asker != event.asker or event.kind == "approval":
            return event
        asked = ([e.input, e.metadata, e.state] for e in (earlier, event))
        is_same = len({canonical(each) for each in asked}) == 1
        return replace(event, note=ASKED_AGAIN) if is_same else event

    def _finished(self, value: Any) -> Ending:
        self.value = value.value if isinstance(value, ToolResult) else value
        self.has_value = True
        finished = self._events.finished(value, self._verdict)
        tool = self._setup.spec.tools.get(self.call.name)
        if self._later is None or tool is None:
            return [finished]
        return [self._events.later(tool, self._later, self._input), finished]

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
        """The rule that decided last, if no body was started."""
        return None if self._has_claimed else self._gate.verdict

    # --- through the middleware

    async def _through_middleware(self, tool: Tool[..., Any], typed: BaseModel) -> Any:
        as_json = to_json if tool.secrets is None else plain_json
        before = canonical(as_json(typed))
        # middleware may call ``next`` twice at once: the second call waits, and returns the result of the first, if any
        one_at_a_time = asyncio.Lock()

        async def innermost(call: ToolCall) -> Any:
            if self._is_over:
                raise RuntimeError(
                    f"The call of {tool.name!r} has ended, so `next` cannot run it again"
                )
            changed = as_json(call.input)
            sealed = self.call.input
            async with one_at_a_time:  # parsed again: middleware may change call.input in place
                if canonical(changed) != before:
                    sealed = self._changed(tool, changed)
                return await self._pass_gate(tool, _parsed(tool, sealed), sealed)

        carried = self._carried("middleware", "tool")
        view = ToolCall(
            id=self.call.id,
            tool_name=self.call.name,
            input=typed,
            resumed=carried.resumed,
            approved=carried.approved,
            original_input=carried.original_input,
            state=carried.state,
            context=self._setup.spec.context,
            waited=self._waited,
            still_runs=lambda: self.is_body_running,
            may_repeat=partial(self._may_repeat, tool),
        )
        return await chain(self._setup.spec.middleware, innermost)(view)

    def _may_repeat(self, tool: Tool[..., Any]) -> bool:
        """Whether ``next`` may run again: this attempt has started no body, or only idempotent ones."""
        current = self._journal.state.calls.get(self.call.id, self.call)
        if current.child is not None and not current.child.of_body:
            return _can_continue(current.child, tool.options.inner.tools)
        return tool.options.idempotent or not self._has_claimed

    def _changed(self, tool: Tool[..., Any], changed: Json) -> dict[str, Any]:
        """The changed input, with its secrets masked.

        Raises:
            Misuse: middleware passed the mask of a secret instead of the secret.
        """
        call = self.call
        seen = None if call.pause is None else call.pause.input
        # a known secret keeps its mask
        known = [call.input, call.passed_input, call.seen_input, seen]
        sealed: dict[str, Any] = tool.sealed(changed, like=known)
        lost = tool.missing_secrets(sealed)
        if lost:
            misuse = Misuse(
                f"Middleware around {tool.name!r} passed a masked secret in {', '.join(lost)}. Pass the SecretStr itself, "
                "as in call.input.model_copy(update=…)"
            )
            self._stop.because(misuse)
            raise misuse
        return sealed

    def _waited(self) -> float:
        """Seconds that the call has waited for a person, up to now."""
        call = self._journal.state.calls.get(self.call.id, self.call)
        now = 0.0 if call.waits_since is None else self._setup.spec.clock() - call.waits_since
        return call.waited + max(0.0, now)

    def _carried(self, *askers: Asker) -> RestartValues:
        """The values of earlier pauses: the answer for the first of these askers that has one, and the approval."""
        call, answered = self.call, self.call.answered
        own = next((answered[asker] for asker in askers if asker in answered), None)
        approval = answered.get("approval")
        return RestartValues(
            resumed=None if own is None else own.resumed,
            approved=None if approval is None else approval.resumed,
            original_input=call.proposed if call.replaced else None,
            state=None if own is None else own.pause.state,
        )

    # --- the gate, the claim, the body

    async def _pass_gate(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        """Judge this input at the gate, then ask the tool's question, or run the inner run or the body.

        If the call has already returned a value, that value is returned again.
        """
        self._stop.check()
        if self._returned:
            return self._returned[0]
        self._input = input_
        try:
            review = await self._gate.stops(tool, partial(_parsed, tool, input_), input_)
            if review is not None:
                self._stop.because(Pause("approval", review))
                raise review
            if tool.options.inner is not None:
                value = await self._run_inner(tool, typed)
            elif tool.options.asks is not None:  # the body around this call runs it
                value = None
            elif tool.fn is not None:
                value = await self._run_body(tool, typed)
            else:
                question = Interrupt(await _question(tool, typed, input_))
                self._stop.because(Pause("question", question))
                raise question
        except (Misuse, SubrunWaits, CallTakenOver, CallDenied) as reason:
            self._stop.because(reason)
            raise
        except StoreError:
            self._stop.check()  # raises if this call's write failed; otherwise the tool failed
            raise
        self._returned = [value]
        return value

    async def _run_inner(self, tool: Tool[..., Any], typed: Any) -> Any:
        current = self._journal.state.calls.get(self.call.id)
        if current is None:
            raise CallTakenOver
        if current.child is None:
            await self._claim()
        try:
            return await self._setup.run_inner(current, tool, typed)
        except StoreError as error:  # the inner run writes to the same journal
            self._stop.because(error)
            raise

    async def _run_body(self, tool: Tool[..., Any], typed: Any) -> Any:
        """Claim the call, run the tool's function and return its value."""
        try:
            if self._body is not None and self._body.has_unread_result:
                return await self._body.wait_for_abandoned()
            place = (self._journal.run_id, *self._setup.scope, self.call.id)
            await wait_for_earlier_body(place)
            started = await self._claim()
            self._body = body = Body(tool, self._output, place, self._setup.hooks.on_main)
            is_retry = started.attempt > self.call.attempt + 1
            runs = self._setup.runs(started, tool, self._stop, is_retry)
            token = current_runs.set(runs)
            try:
                if tool.takes_context:
                    value = await self._in_context(tool, typed, body, started, runs)
                else:
                    value = await body.run(tool.arguments(typed, None))
                await runs.end()
            except asyncio.CancelledError:
                runs.is_abandoned = True
                raise
            finally:
                current_runs.reset(token)
                runs.close()
            self._stop.check()  # raises if the tool's own ``except`` suppressed a pause or misuse
        except BaseException as error:
            # raised by the tool; a pause of ``ctx`` has already stopped the call
            pause = interrupt_in(error) if self._stop.reason is None else None
            if pause is not None:
                self._stop.because(Pause("tool", pause))
            raise
        return value

    async def _in_context(
        self, tool: Tool[..., Any], typed: Any, body: Body, started: ToolStarted, runs: BodyRuns
    ) -> Any:
        questions = self._questions = Questions(
            self._journal, self._stop, self._setup, self._events, tool, started, runs
        )
        carried = self._carried("tool")
        answers = (carried.resumed, carried.approved)
        resumed, approved = (one and Resumed(revealed(one.data)) for one in answers)
        ctx = ToolContext(
            call_id=self.call.id,
            tool_name=tool.name,
            attempt=self._body_count,
            output=self._output,
            carried=carried._replace(resumed=resumed, approved=approved),
            asker=questions,
            context=self._setup.spec.context,
            run_id=self._journal.run_id,
            messages=lambda: self._journal.history,
        )
        try:
            value = await body.run(tool.arguments(typed, ctx))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, Rejected):
                questions.check_awaited()
            if self._stop.before is not None:
                await questions.store_text()
            raise
        finally:
            questions.close()
        questions.check_awaited()
        self._stop.check()  # raises if the tool's own ``except`` suppressed a pause or misuse
        self._later = later = ctx.promised_later
        if later is None and not isinstance(value, Later):
            return value
        if value is not later or later is None:
            raise Misuse(f"The tool {tool.name!r} must return the value of ctx.later unchanged")
        if self.call.final:
            why = "ends the run (final=True)"
            if self._journal.state.of_body:
                why = "belongs to the tool body that called it, so a later result could not reach a model"
            raise Misuse(
                f"The result of {tool.name!r} {why}. Wait for it with ctx.interrupt(external=True)"
            )
        return later.interim

    async def _claim(self) -> ToolStarted:
        """Store the body's start.

        Raises:
            CallTakenOver: another attempt has claimed the call, or the run has ended.
        """
        call, number, me = self.call, self._body_count, this_process()
        started = ToolStarted(
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
            if self._claim_cancelled:  # this attempt would not start the body
                return []
            again = number > call.attempt and current.owner == me  # a middleware's second try
            is_first = current.status == "ready" and self._journal.may_drive
            return [started] if is_first or again else []

        try:
            written = await self._journal.write(decide)
        except asyncio.CancelledError:
            self._claim_cancelled = True
            raise
        if not written:
            raise CallTakenOver
        self._body_count = number + 1
        return started


def _why_unread(raw: str) -> str:
    """The reason why arguments are not JSON, such as a comma at the end of a list; empty if they are no object."""
    try:
        json_in(raw)
    except ValueError as error:
        return f" ({error})"
    return ""


def _can_continue(state: RunState, tools: Mapping[str, Tool[..., Any]]) -> bool:
    """Whether continuing a failed run would run only idempotent bodies again."""
    for call in state.calls.values():
        tool = tools.get(call.name)
        if call.status == "running" and (tool is None or not tool.options.idempotent):
            return False
        inner = None if tool is None else tool.options.inner
        child = call.child
        if child is None or child.of_body:
            continue
        if not (inner and _can_continue(child, inner.tools)):
            return False
    return True


def _change_note(tool: Tool[..., Any]) -> str:
    """The note of a question that is asked again because the tool has changed since it was approved."""
    origin = tool.options.origin
    if origin is None:
        return SCHEMA_CHANGED
    now = " ".join(tool.description[:MAX_DESCRIPTION].split())
    description = f"Its description is now: “{now}”." if now else "It now has no description."
    return f"{TOOL_CHANGED} {description} {origin.note}"


def _parsed(tool: Tool[..., Any], sealed: dict[str, Any]) -> BaseModel:
    """An input, possibly changed by middleware, as the tool's type.

    Raises:
        ValueError: the input does not match; pydantic's own error would contain its secrets.
    """
    try:
        return tool.parse(sealed)
    except ValidationError as error:
        if tool.secrets is None:
            raise
        why = without_secrets(describe(error), sealed)
    raise ValueError(f"The input does not match the schema of {tool.name}: {why}")


async def _question(tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
    """The question of a tool without a body."""
    metadata = tool.options.metadata
    if metadata is None:
        return input_
    if callable(metadata):
        metadata = metadata(typed)
    return await metadata if inspect.isawaitable(metadata) else metadata
