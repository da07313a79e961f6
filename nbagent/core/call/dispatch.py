"""A call's way to its body, behind all middleware: the gate, the claim, the body. Nothing runs but here."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

from nbagent.core.base.errors import Misuse, Rejected, StoreError
from nbagent.core.base.events import Interrupted, ToolStarted
from nbagent.core.base.interrupts import ASKED_AGAIN, Interrupt, InterruptKind
from nbagent.core.base.messages import Json, canonical
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.context import Carried, ToolContext
from nbagent.core.tools.output import CallOutput
from nbagent.core.tools.tool import Tool

from .body import Body, found_in
from .call_events import Pausing
from .gate import Gate
from .questions import AskPause, Questions
from .setup import CallDenied, CallSetup, CallTakenOver, SubrunWaits, Writes


class Dispatch:
    """The dispatcher of one attempt. What paused or stopped it counts, whatever surrounds it makes of it."""

    def __init__(
        self, call: CallState, journal: AnyJournal, around: CallSetup, output: CallOutput
    ) -> None:
        self.pause: tuple[InterruptKind, Interrupt] | None = None
        """The first pause."""
        self.signal: Misuse | StoreError | SubrunWaits | CallTakenOver | CallDenied | None = None
        """What else ended it without a result."""
        self.attempt = call.attempt
        """How many bodies were started."""
        self._call = call
        self._journal = Writes(journal)
        self._around = around
        self._output = output
        self._gate = Gate(call, journal.run_id, around)
        self._body: Body | None = None
        self._questions: Questions | None = None
        self._input = call.input
        """What reached the gate last."""
        self._success: list[Any] = []
        self._one_at_a_time = asyncio.Lock()
        """A middleware may call ``next`` twice at once: the second waits, and gets what the first got."""

    @property
    def body_runs(self) -> bool:
        """Whether the body is still executing, in its thread or task."""
        return self._body is not None and self._body.runs

    @property
    def claimed(self) -> bool:
        """Whether it has written that a body starts."""
        return self.attempt != self._call.attempt

    @property
    def verdict(self) -> str | None:
        """The rule that kept the body from being started."""
        return None if self.claimed else self._gate.verdict

    def wake(self) -> None:
        """An answer came: it may be one that the body waits for."""
        if self._questions is not None:
            self._questions.wake()

    def pausing(self, tool: Tool[..., Any]) -> Pausing:
        """What makes the events of its pauses."""
        return Pausing(self._call.id, tool, self._around, self._output)

    def paused(self, tool: Tool[..., Any]) -> list[Interrupted]:
        """The events of its pause; none where it did not pause."""
        if self.pause is None:
            return []
        events = list(self._questions.asked) if self._questions is not None else []
        kind, pause = self.pause
        if not isinstance(pause, AskPause):
            entered = self._call.input if self._input is not self._call.input else None
            verdict = self._gate.verdict
            event = self.pausing(tool).event(
                kind, pause, self._input, entered=entered, verdict=verdict
            )
            if self._call.resumed is not None and _same_question(self._call.pause, event):
                event = event.model_copy(update={"note": ASKED_AGAIN})
            if kind == "approval" and self._gate.note is not None:
                event = event.model_copy(update={"note": self._gate.note})
            events.append(event)
        return events

    async def __call__(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        """Let the call pass with this input, and give what came of it; after a success the same again."""
        async with self._one_at_a_time:
            return await self._pass(tool, typed, input_)

    async def _pass(self, tool: Tool[..., Any], typed: Any, input_: dict[str, Any]) -> Any:
        if self.signal is not None:
            raise self.signal
        if self.pause is not None:
            raise self.pause[1]
        if self._success:
            return self._success[0]
        self._input = input_
        try:
            value = await self._behind_gate(tool, typed, input_)
        except (Misuse, SubrunWaits, CallTakenOver, CallDenied) as signal:
            self.signal = signal
            raise
        except StoreError as error:
            self.signal = self._journal.failure  # None where it is the tool's own
            raise self.signal or error from error.__cause__
        self._success = [value]
        return value

    async def _behind_gate(self, tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
        review = self._gate.stops(tool, typed, input_)
        if review is not None:
            self.pause = ("approval", review)
            raise review
        if tool.options.inner is not None:
            return await self._inside(tool, typed)
        if tool.fn is None:
            question = Interrupt(await _question(tool, typed, input_))
            self.pause = ("question", question)
            raise question
        return await self._execute(tool, typed)

    async def _inside(self, tool: Tool[..., Any], typed: Any) -> Any:
        current = self._journal.state.calls.get(self._call.id)
        if current is None:
            raise CallTakenOver
        if current.child is None:
            self._claim()
        try:
            return await self._around.inside(current, tool, typed)
        except StoreError as error:  # it has the same journal
            self._journal.failure = error
            raise

    async def _execute(self, tool: Tool[..., Any], typed: Any) -> Any:
        started = self._claim()
        questions = self._questions = Questions(
            self._journal,
            live=self._around.live,
            clock=self._around.clock,
            started=started,
            interrupted=partial(self.pausing(tool).question, input_=self._input),
            paused=self._around.paused,
        )
        ctx = ToolContext(
            call_id=self._call.id,
            tool_name=tool.name,
            attempt=self.attempt,
            output=self._output,
            carried=carried_by(self._call),
            asker=questions,
        )
        self._body = Body(tool, self._output)
        try:
            value = await self._body.run(tool.arguments(typed, ctx))
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, Rejected):
                questions.check_awaited()
            self._stick(questions, ctx.pause or found_in(error))
            raise
        finally:
            questions.close()
        questions.check_awaited()
        pause = self._stick(questions, ctx.pause)
        if pause is not None:  # swallowed by the tool's own except
            raise pause
        return value

    def _stick(self, questions: Questions, pause: Interrupt | None) -> Interrupt | None:
        """Keep the body's pause, so that nothing around it can make a result of it."""
        if questions.misuse is not None:
            raise questions.misuse
        if self._journal.failure is not None:
            raise self._journal.failure
        if pause is None and questions.asked:
            pause = AskPause()
        if pause is not None and self.pause is None:
            self.pause = ("tool", pause)
        return pause

    def _claim(self) -> ToolStarted:
        """Write that the body starts.

        Raises:
            CallTakenOver: somebody else has claimed it, or the run is over.
        """
        call, number = self._call, self.attempt
        started = ToolStarted(
            at=self._around.clock(),
            scope=self._around.scope,
            call_id=call.id,
            attempt=number + 1,
            owner=this_process(),
            input=self._input,
            verdict=self._gate.verdict,
        )

        def decide(state: RunState) -> list[ToolStarted]:
            current = state.calls.get(call.id)
            if state.outcome is not None or current is None or current.attempt != number:
                return []
            again = (
                number > call.attempt and current.owner == this_process()
            )  # a middleware's second try
            return [started] if current.status == "ready" or again else []

        if not self._journal.commit(decide):
            raise CallTakenOver
        self.attempt = number + 1
        return started


def carried_by(call: CallState) -> Carried:
    """What a restart brings into the body of a call."""
    return Carried(
        resumed=call.resumed,
        original_input=call.proposed if call.replaced else None,
        state=call.pause.state if call.pause is not None else None,
    )


def _same_question(earlier: Interrupted | None, event: Interrupted) -> bool:
    """Whether a restarted tool asks what it asked before, of the same input, having kept nothing."""
    if earlier is None or (earlier.kind, event.kind) != ("tool", "tool"):
        return False
    asked = ([e.input, e.metadata, e.state] for e in (earlier, event))
    return len({canonical(each) for each in asked}) == 1


async def _question(tool: Tool[..., Any], typed: Any, input_: Json) -> Any:
    metadata = tool.options.metadata
    if metadata is None:
        return input_
    if callable(metadata):
        metadata = metadata(typed)
    return await metadata if inspect.isawaitable(metadata) else metadata
