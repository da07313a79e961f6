"""One attempt at one tool call: middleware, the gate, the claim, the body, and what became of it.

An attempt ends in an event: ``ToolFinished`` or ``Interrupted`` (several of those where a body asked
several questions at once). Nothing here decides what a run does next; that is ``state.next_step``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from .asking import AskPause, Questions
from .body import Body, found_in
from .context import Carried, ToolContext
from .errors import Misuse, Rejected, ToolFailed
from .events import Interrupted, ToolFinished, ToolStarted
from .gate import Gate
from .interrupts import Interrupt, InterruptKind, digest_of, to_json
from .journal import AnyJournal
from .messages import Json, canonical
from .middleware import ToolCall, chain
from .output import CallOutput
from .owner import owner
from .pausing import Pausing
from .standing import CallState, RunState
from .surroundings import Denied, Overtaken, Surroundings, Waits
from .tools import Tool, ToolResult, describe, told

Ending: TypeAlias = Sequence[ToolFinished | Interrupted]
"""What an attempt is written down as; nothing where somebody else goes on with the call."""

logger = logging.getLogger("nbagent")

SCHEMA_CHANGED = "The tool's parameters changed since this was approved, so it is asked again."


class Attempt:
    """One attempt at a call."""

    def __init__(self, call: CallState, journal: AnyJournal, around: Surroundings) -> None:
        self.call = call
        self.value: Any = None
        """The tool's own Python object, once it returned."""
        self.has_value = False
        self._journal = journal
        self._around = around
        self._output = CallOutput(call.id, journal.emit, around.scope)
        self._gate = Gate(call, journal.run_id, around)
        self._number = call.attempt
        self._body: Body | None = None
        self._questions: Questions | None = None
        self._pause: tuple[InterruptKind, Interrupt] | None = None
        """The first pause: whatever surrounds it makes of it, it counts."""
        self._signal: Misuse | Waits | Overtaken | Denied | None = None
        """What else counts, whatever surrounds it makes of it."""
        self._input = call.input
        """What reached the gate last."""
        self._success: list[Any] = []

    @property
    def body_runs(self) -> bool:
        """Whether the body is still executing, in its thread or task."""
        return self._body is not None and self._body.runs

    @property
    def surrounded(self) -> bool:
        """Whether middleware may change the input."""
        return bool(self._around.middleware)

    def wake(self) -> None:
        """An answer came: it may be one that the body waits for."""
        if self._questions is not None:
            self._questions.wake()

    async def run(self) -> None:
        """Take the call to a result or a pause, and write it down.

        Raises:
            Misuse: the tool's metadata or state is no JSON.
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
            self._log_late()
        for event in written:
            if isinstance(event, Interrupted):
                self._around.paused(event)

    def _is_ours(self, state: RunState) -> bool:
        """Whether the call stands where this attempt left it: no other process has taken it over."""
        current = state.calls.get(self.call.id)
        if state.outcome is not None or current is None or current.status == "done":
            return False
        if self._number == self.call.attempt and current.child is None:
            return current is self.call  # not claimed, so it must be untouched
        return current.attempt == self._number

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
            return [
                self._pausing(tool).event(outdated.kind, again, call.input, note=SCHEMA_CHANGED)
            ]
        return await self._through(tool, typed)

    def _outdated(self, tool: Tool[..., Any]) -> Interrupted | None:
        """The pause that was approved, if the tool's schema is another by now."""
        pause = self.call.pause
        if pause is None or self.call.resumed is None:
            return None
        current = digest_of(tool.name, pause.input, tool.input_schema)
        return pause if pause.digest != current else None

    def _pausing(self, tool: Tool[..., Any]) -> Pausing:
        return Pausing(self.call.id, tool, self._around, self._output)

    # --- middleware, gate, body

    async def _through(self, tool: Tool[..., Any], typed: BaseModel) -> Ending:
        """Take the call through the middleware to its body, and read what comes back."""
        inner = _Innermost(self, tool, typed)
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
        carried = self._carried()
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
        if self._pause is None and pause is not None:
            self._pause = ("tool", pause)
        sticky = self._sticky(tool)
        return self._raised(error) if sticky is None else sticky

    def _sticky(self, tool: Tool[..., Any]) -> Ending | None:
        """What the call comes to whatever surrounded it; None where that has its say.

        Raises:
            Misuse: the tool misused its context.
        """
        match self._signal:
            case Misuse() as misuse:
                raise misuse
            case Waits() | Overtaken():
                return ()
            case Denied() as denied:
                return self._failed(str(denied))
            case None:
                pass
        if self._pause is None:
            return None
        events = list(self._questions.asked) if self._questions is not None else []
        kind, pause = self._pause
        if not isinstance(pause, AskPause):
            entered = self.call.input if self._input is not self.call.input else None
            events.append(
                self._pausing(tool).event(
                    kind, pause, self._input, entered=entered, verdict=self._gate.verdict
                )
            )
        return events

    async def dispatch(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        """The gate, then the claim, then the body: nothing runs but through here."""
        if self._signal is not None:
            raise self._signal
        if self._pause is not None:
            raise self._pause[1]
        if self._success:
            return self._success[0]
        self._input = input_
        try:
            value = await self._behind_gate(tool, typed, input_)
        except (Misuse, Waits, Overtaken, Denied) as signal:
            self._signal = signal
            raise
        self._success = [value]
        return value

    async def _behind_gate(self, tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
        review = self._gate.stops(tool, typed, input_)
        if review is not None:
            self._pause = ("approval", review)
            raise review
        if tool.options.inner is not None:
            return await self._inside(tool, typed)
        if tool.fn is None:
            question = Interrupt(await _question(tool, typed, input_))
            self._pause = ("question", question)
            raise question
        return await self._execute(tool, typed)

    async def _inside(self, tool: Tool[..., Any], typed: Any) -> Any:
        current = self._journal.state.calls.get(self.call.id)
        if current is None:
            raise Overtaken
        if current.child is None:
            self._claim()
        return await self._around.inside(current, tool, typed)

    async def _execute(self, tool: Tool[..., Any], typed: Any) -> Any:
        started = self._claim()
        questions = self._questions = Questions(
            self._journal,
            live=self._around.live,
            clock=self._around.clock,
            started=started,
            interrupted=partial(self._pausing(tool).question, input_=self._input),
            paused=self._around.paused,
        )
        ctx = ToolContext(
            call_id=self.call.id,
            tool_name=tool.name,
            attempt=self._number,
            output=self._output,
            carried=self._carried(),
            asker=questions,
        )
        self._body = Body(tool, self._output, self._log_late)
        try:
            value = await self._body.run(tool.arguments(typed, ctx))
        except BaseException as error:
            self._stick(questions, ctx.pause or found_in(error))
            raise
        finally:
            questions.close()
        pause = self._stick(questions, ctx.pause)
        if pause is not None:  # swallowed by the tool's own except
            raise pause
        return value

    def _stick(self, questions: Questions, pause: Interrupt | None) -> Interrupt | None:
        """Keep the body's pause, so that nothing around it can make a result of it."""
        if questions.misuse is not None:
            raise questions.misuse
        if pause is None and questions.asked:
            pause = AskPause()
        if pause is not None and self._pause is None:
            self._pause = ("tool", pause)
        return pause

    def _carried(self) -> Carried:
        call = self.call
        return Carried(
            resumed=call.resumed,
            original_input=call.proposed if call.replaced else None,
            state=call.pause.state if call.pause is not None else None,
        )

    def _claim(self) -> ToolStarted:
        """Write that the body starts.

        Raises:
            Overtaken: somebody else has claimed it, or the run is over.
        """
        call, number = self.call, self._number
        started = ToolStarted(
            at=self._around.clock(),
            scope=self._around.scope,
            call_id=call.id,
            attempt=number + 1,
            owner=owner(),
            input=self._input,
            verdict=self._gate.verdict,
        )

        def decide(state: RunState) -> list[ToolStarted]:
            current = state.calls.get(call.id)
            if state.outcome is not None or current is None or current.attempt != number:
                return []
            again = number > call.attempt and current.owner == owner()  # a middleware's second try
            return [started] if current.status == "ready" or again else []

        if not self._journal.commit(decide):
            raise Overtaken
        self._number = number + 1
        return started

    # --- events

    def _log_late(self) -> None:
        logger.warning(
            "the tool %r ended after its run had; its result is discarded", self.call.name
        )

    def _finished(self, value: Any) -> Ending:
        self.value, self.has_value = value, True
        shown = value
        if isinstance(value, ToolResult):
            self.value = value.value
            shown = value.display if value.display is not None else value.value
        display = self._around.present(shown)
        return self._result(told(self.value), display=display)

    def _raised(self, error: BaseException) -> Ending:
        if isinstance(error, Misuse):
            raise error
        if isinstance(error, Rejected):  # a person's no is no failure
            return self._failed(f"In the middle of this call of {self.call.name}, {error}")
        if self._around.raise_errors:
            raise ToolFailed(f"the tool {self.call.name!r} failed: {_named(error)}") from error
        return self._failed(f"The tool {self.call.name} failed: {_named(error)}")

    def _failed(self, text: str) -> Ending:
        return self._result(text, error=True)

    def _result(
        self, output: Json, *, error: bool = False, display: dict[str, Any] | None = None
    ) -> Ending:
        finished = ToolFinished(
            at=self._around.clock(),
            scope=self._around.scope,
            call_id=self.call.id,
            output=output,
            error=error,
            printed=self._output.printed,
            # a figure both left open and returned is shown once
            displays=[shown for shown in self._output.displays if shown != display],
            display=display,
            verdict=self._gate.verdict if self._number == self.call.attempt else None,
        )
        return [finished]


class _Innermost:
    """The last ``next``: hands the call to the dispatcher, while its attempt lasts."""

    def __init__(self, attempt: Attempt, tool: Tool[..., Any], typed: BaseModel) -> None:
        self.over = False
        self._attempt = attempt
        self._tool = tool
        self._typed = typed
        self._before = canonical(to_json(typed)) if attempt.surrounded else ""

    async def __call__(self, call: ToolCall) -> Any:
        tool, attempt = self._tool, self._attempt
        if self.over:
            raise RuntimeError(f"the call of {tool.name!r} is over: `next` runs it no more")
        if self._before and canonical(to_json(call.input)) != self._before:
            changed = to_json(call.input)
            return await attempt.dispatch(tool, tool.parse(changed), changed)
        return await attempt.dispatch(tool, self._typed, attempt.call.input)


def _cancelling() -> bool:
    """Whether it is the call that is cancelled, and not something that its tool waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _named(error: BaseException) -> str:
    hint = ""
    if "created in a thread can only be used in that same thread" in str(error):
        hint = " (give the tool @nb.tool(thread=False) to run it where the object was made)"
    return f"{type(error).__name__}: {error}{hint}"


async def _question(tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
    metadata = tool.options.metadata
    if metadata is None:
        return input_
    if callable(metadata):
        metadata = metadata(typed)
    return await metadata if inspect.isawaitable(metadata) else metadata
