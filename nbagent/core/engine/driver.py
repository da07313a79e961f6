"""The driver performs the steps that ``next_step`` returns. Only the driver awaits a model or a tool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias, assert_never

from nbagent.core.base.errors import (
    BudgetExceeded,
    McpError,
    ModelError,
    NbagentError,
    RunError,
    StoreError,
    ToolFailed,
    UsageError,
)
from nbagent.core.base.events import (
    ModelPartial,
    OutputRefused,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    StoredEvent,
    ToolStarted,
)
from nbagent.core.base.file_parts import MAX_FILE_BYTES, size_of_all
from nbagent.core.base.messages import Message, user
from nbagent.core.base.model import NOTHING, Usage
from nbagent.core.base.process import this_process
from nbagent.core.call.attempt import Attempt
from nbagent.core.call.setup import (
    BodyRuns,
    BodyStop,
    CallSetup,
    CallTakenOver,
    RunHooks,
    SubrunWaits,
    current_runs,
)
from nbagent.core.journal.journal import AnyJournal, InnerJournal
from nbagent.core.state.next_step import (
    CallModel,
    Done,
    Fail,
    Finish,
    LimitReached,
    RunCalls,
    Step,
    Wait,
    next_step,
)
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import CallState, RunState, running_calls
from nbagent.core.tools.answer_type import Misfit
from nbagent.core.tools.rule_check import check_rules
from nbagent.core.tools.spec import NO_BUDGET, Inner, RunSpec, as_started, check_cost
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.toolbox import Toolbox, is_complete

from .budgets import limit_error, limit_question, used_up_budget
from .response import Collected, respond

logger = logging.getLogger("nbagent")


def run_started(
    spec: RunSpec, messages: Sequence[Message], now: float, **further: Any
) -> RunStarted:
    """The event that starts a run on a history; ``further`` are other fields of the event."""
    return RunStarted(
        at=now,
        agent=spec.agent,
        model=spec.model_name,
        messages=list(messages),
        max_turns=spec.max_turns,
        owner=this_process(),
        flow=spec.model is None,
        answer=spec.answer.form,
        trace_parent=spec.trace_parent,
        **further,
    )


def inner_retried(now: float, scope: tuple[str, ...]) -> RunRetried:
    """The retry of an inner run that has failed."""
    return RunRetried(at=now, scope=scope, by="middleware", owner=this_process())


async def begin(journal: InnerJournal, spec: RunSpec, scope: tuple[str, ...], prompt: str) -> None:
    """Start the inner run; retry it if it has failed."""
    now = spec.clock()
    started = run_started(spec, [user(prompt)], now, scope=scope)
    again = inner_retried(now, scope)

    def decide(state: RunState) -> list[StoredEvent]:
        if not journal.may_drive or journal.is_outer_over:
            return []
        if not state.messages and state.outcome is None:
            return [started]
        return [again] if isinstance(state.outcome, RunFailed) else []

    await journal.write(decide)


def answer_of(state: RunState) -> Any:
    """The inner run's answer, as the result of its call.

    Raises:
        ToolFailed: the run failed.
        SubrunWaits: the run waits for an answer.
        CallTakenOver: the run was cancelled, or another process has ended its call.
    """
    match state.outcome:
        case RunCompleted(text=text, output=output):
            return text if output is None else output
        case RunFailed(error=name, message=message):
            raise ToolFailed(f"{name}: {message}")
        case None:
            raise SubrunWaits
        case _:
            raise CallTakenOver


def inner_spec(outer: RunSpec, tool: Tool[..., Any], spec: RunSpec) -> RunSpec:
    """The spec of an inner run in a call of ``tool``; denials of the outer run apply to it."""
    further = ((rules, f"{path}/{tool.name}") for rules, path in outer.above)
    above = ((outer.policy, tool.name), *further)
    context = outer.context if spec.context is None else spec.context
    return replace(spec, above=above, clock=outer.clock, new_id=outer.new_id, context=context)


async def fetch_tools(spec: RunSpec) -> None:
    """Fetch the current tools of the servers.

    Raises:
        NbagentError: the tools cannot be fetched, two tools have the same name, or a rule names no tool.
    """
    tools = spec.tools
    if isinstance(tools, Toolbox) and tools.sources:
        was_complete = tools.is_complete
        await tools.ready()
        if not was_complete:
            check_rules(spec, tools)


async def fetch_tools_of_questions(spec: RunSpec, state: RunState) -> None:
    """Fetch the tools on the path to each open question, so that its answer can be checked.

    Raises:
        NbagentError: as ``fetch_tools``.
    """
    for event in state.pending:
        spec_of_level, level = spec, state
        for call_id in (*event.scope, None):
            if not is_complete(spec_of_level.tools):
                await fetch_tools(spec_of_level)
            call = None if call_id is None else level.calls[call_id]
            tool = None if call is None else spec_of_level.tools.get(call.name)
            inner = None if tool is None else tool.options.inner
            if call is None or tool is None or inner is None:
                break  # this is the run that asks, or a run that a body started
            spec_of_level = inner_spec(spec_of_level, tool, inner.spec())
            level = call.child or RunState()


MAX_QUOTED = 200
"""Maximum characters of a mismatched answer that its error quotes."""
MakeRuns: TypeAlias = Callable[["Driver", ToolStarted, Tool[..., Any], BodyStop, bool], BodyRuns]
"""Makes the runs of a body: for the driver of the body's call; the last argument is as in ``CallSetup.runs``."""


class Driver:
    """The driver of one run, until the run has ended or only an answer can continue it."""

    def __init__(
        self,
        spec: RunSpec,
        journal: AnyJournal,
        *,
        live: bool,
        runs: MakeRuns,
        hooks: RunHooks = RunHooks(),  # noqa: B008 - a frozen value
        outer: Driver | None = None,
        scope: tuple[str, ...] = (),
    ) -> None:
        self.journal = journal
        self.values: dict[str, Any] = {}
        """Python results by call id: in memory only."""
        self.keeps_partials = False
        """Whether a response is stored in parts while it streams."""
        self.live = live
        """Whether answers can arrive during ``drive``. If not, a question ends ``drive``, and a limit ends the run."""
        self.hooks = hooks
        self.scope = scope
        self._spec = spec
        self._outer = outer
        self._make_runs = runs
        self.has_budget: bool = spec.budget != NO_BUDGET or (outer is not None and outer.has_budget)
        """Whether tokens, cost or time are limited, in this run or an outer run."""
        self.inner: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[str] = []
        """The ids of calls whose tasks have ended and were not handled yet."""
        self._attempts: dict[str, Attempt] = {}
        self._wake = asyncio.Event()
        self.stopped = False
        """Whether this driver takes no further step."""
        self._failing = False
        """Whether the run is about to fail, so that bodies that ask a question no longer wait."""
        self._collected: Collected | None = None
        """The response in progress."""
        self._exceeded: BudgetExceeded | None = None
        """The error that ends this run, because a limit is used up and nobody can be asked."""
        self._seen: RunState | None = None
        """The state from which the step in progress follows."""
        self._current: tuple[Step | None, int] = (None, 0)
        """The step in progress, and the length of the history at its start."""
        self._setup = CallSetup(
            spec,
            scope,
            self.bodies_wait,
            self._run_inner,
            partial(runs, self),
            self.has_room,
            self.file_room,
            hooks,
        )

    @property
    def unfinished_calls(self) -> tuple[str, ...]:
        """The running calls whose outcome would be unknown if the run ended now."""
        calls = self.journal.state.calls
        unknown = (i for i, attempt in self._attempts.items() if attempt.is_outcome_unknown)
        own = tuple(i for i in unknown if i in calls and calls[i].status == "running")
        return own + tuple(i for inner in self.inner.values() for i in inner.unfinished_calls)

    @property
    def running_bodies(self) -> tuple[str, ...]:
        """The calls whose bodies still run, including abandoned bodies."""
        own = tuple(i for i, attempt in self._attempts.items() if attempt.is_body_running)
        return own + tuple(i for inner in self.inner.values() for i in inner.running_bodies)

    @property
    def body_may_answer(self) -> bool:
        """Whether a body may still answer the questions of a run that it started."""
        return any(inner.body_may_answer for inner in self.inner.values())

    @property
    def wrong_answers(self) -> dict[str, Exception]:
        """The errors of wrong ``answers=`` of the runs that bodies started, by interrupt id."""
        return {i: e for inner in self.inner.values() for i, e in inner.wrong_answers.items()}

    def wake(self) -> None:
        """Look at the state again; called on the driver's loop."""
        self._wake.set()
        for attempt in self._attempts.values():
            attempt.wake()
        for inner in self.inner.values():
            inner.wake()

    def interrupt(self) -> None:
        """End a body that keeps the loop's thread; called on another thread, and so while the loop does nothing else."""
        for attempt in [*self._attempts.values()]:  # copied at once, as the loop may go on
            attempt.interrupt()
        for inner in [*self.inner.values()]:
            inner.interrupt()

    def stop(self) -> None:
        """Take no further step after the one in progress."""
        self.stopped = True

    async def drive(self, *, one_response: bool = False) -> None:
        """Drive the run until it has ended or waits only for answers.

        Args:
            one_response: stop before running the calls of the first response that has any.

        Raises:
            RunError: the run failed; the journal has the failure too.
            UsageError: the model or a tool is misconfigured; the journal has the failure too.
        """
        turns = self.journal.state.turns
        # runs that this run's tools start do not belong to the outer body
        token = current_runs.set(None)
        try:
            while not self.stopped and await self._step():
                state = self.journal.state
                if one_response and state.calls and state.turns > turns:
                    return
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also SystemExit, which would end the event loop
            self.stop()  # a retry, even an immediate one, uses another driver
            failure = await self._failed(error)
            if failure is error:
                raise
            raise failure from error
        finally:
            current_runs.reset(token)
            for task in self._tasks.values():
                task.cancel()

    def bodies_wait(self) -> bool:
        """Whether a body that asks a question waits for the answer inside its code."""
        outer = self._outer
        return self.live and not self._failing and (outer is None or outer.bodies_wait())

    def has_room(self, questions: int) -> bool:
        """Whether this run and its outer runs may have this many more questions."""
        if self.journal.state.questions + questions > self._spec.max_questions:
            return False
        return self._outer is None or self._outer.has_room(questions)

    def file_room(self) -> int:
        """Bytes of files that may still be added to the run's history."""
        state = self.journal.state
        results = [call.result for call in state.calls.values() if call.result is not None]
        return MAX_FILE_BYTES - size_of_all([*state.messages, {"content": results}])

    @property
    def is_blocked(self) -> bool:
        """Whether this run or an outer run has used up a budget, so that no model is called."""
        own = self.journal.state.limit_question is not None or self._exceeded is not None
        return own or (self._outer is not None and self._outer.is_blocked)

    async def _step(self) -> bool:
        """Perform one step; returns False if there is nothing to do now."""
        state = self.journal.state
        step = next_step(state)
        self._seen, self._current = state, (step, len(state.messages))
        if state.misfits:
            self._check_misfits(state)
        tools = self._spec.tools
        has_sources = isinstance(tools, Toolbox) and tools.has_sources
        match await self._allowed(state, step):
            case CallModel():
                if has_sources:
                    await fetch_tools(self._spec)
                await self._call_model()
            case RunCalls(ids=ids):
                if has_sources and not is_complete(tools):
                    await fetch_tools(self._spec)
                await self._run_calls(ids)
            case Wait():
                return await self._wait()
            case LimitReached():
                await self.ask_past_limit("turns")
            case Finish() as finish:
                await self._write(self._end_or_correction(finish))
            case Fail(reason=reason):
                raise ToolFailed(reason)
            case Done():
                return False
            case never:
                assert_never(never)
        return True

    async def _allowed(self, state: RunState, step: Step) -> Step:
        """The next step; ``Wait`` while a budget is used up or another process drives the run.

        Raises:
            BudgetExceeded: a budget is used up, and nobody can be asked.
        """
        if self._exceeded is not None:
            await self._wait_for_siblings()
            raise self._exceeded
        is_blocked = self._outer is not None and self._outer.is_blocked
        must_wait = is_blocked or not self.journal.may_drive
        return Wait() if must_wait and state.outcome is None else step

    async def _wait(self) -> bool:
        """Wait for the end of a call or for an answer; returns False if no call runs in this process.

        Raises:
            RunError: the run cannot continue, and waits for nothing.
        """
        if self._tasks:
            await self._wait_for_change()
            return True
        state = self.journal.state
        is_at_rest = not (state.questions or running_calls(state) or self.is_blocked)
        if is_at_rest and self.journal.may_drive:
            if not isinstance(next_step(state), Wait):
                return True  # another thread has stored an answer since the step was chosen
            raise RunError(
                "The run is not waiting for anything. This is a bug in nbagent. Please report it"
            )
        if self._outer is None and state.questions:
            try:  # questions of an imported history may need a server
                await fetch_tools_of_questions(self._spec, state)
            except McpError as error:  # other questions of the run can be answered
                logger.warning("%s", error)
        return False

    # --- calls

    async def _run_calls(self, ids: tuple[str, ...]) -> None:
        new = [i for i in ids if i not in self._tasks]
        if len(new) == len(self.journal.state.calls) == 1:
            await self.attempt(new[0])  # nothing else is open that could be answered meanwhile
            return
        for call_id in new:
            task = self._tasks[call_id] = asyncio.create_task(self.attempt(call_id))
            task.add_done_callback(partial(self._note_ended, call_id))
        await self._wait_for_change()

    def _note_ended(self, call_id: str, _task: object) -> None:
        self._ended.append(call_id)
        self._wake.set()

    async def attempt(self, call_id: str) -> None:
        """Attempt a call, if it is open."""
        call = self.journal.state.calls.get(call_id)
        if call is None:
            return  # another process ended the turn before this task began
        attempt = Attempt(call, self.journal, self.setup_of(call_id))
        self._attempts[call_id] = attempt
        await attempt.run()
        self._attempts.pop(call_id, None)
        if attempt.has_value:
            self.values[call_id] = attempt.value

    def setup_of(self, _call_id: str) -> CallSetup:
        """The setup of a call."""
        return self._setup

    async def _wait_for_change(self) -> None:
        """Wait for the end of an attempt or for an answer; raises an attempt's error."""
        if self.journal.state.status == "interrupted":
            self.hooks.may_be_idle()
        await self._wake.wait()
        self._wake.clear()
        failures = self._collect_errors()
        if failures:
            await self._wait_for_siblings()
            self._collect_errors()
            raise failures[0]

    async def _wait_for_siblings(self) -> None:
        """Wait for the siblings of a failed call; siblings that ask a person are abandoned."""
        self._stop_waiting_for_answers()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _stop_waiting_for_answers(self) -> None:
        """Wake the bodies that wait for a person, also in inner runs. From now on, no body waits for a person."""
        self._failing = True
        self.wake()

    def _collect_errors(self) -> list[BaseException]:
        """Return the errors of the tasks that have ended, and remove these tasks."""
        ended, self._ended = self._ended, []
        done = [self._tasks.pop(call_id) for call_id in ended]
        raised = [None if task.cancelled() else task.exception() for task in done]
        return [error for error in raised if error is not None]

    # --- the run inside a call

    async def _run_inner(self, call: CallState, tool: Tool[..., Any], typed: Any) -> Any:
        """Drive a call's inner run to its answer.

        Raises:
            SubrunWaits: the run waits for an answer, so the call waits too.
            ToolFailed: the run failed.
        """
        inner: Inner = tool.options.inner
        spec = inner_spec(self._spec, tool, as_started(inner.spec()))
        scope = (*self.scope, call.id)
        journal = InnerJournal(self.journal, call.id)
        await begin(journal, spec, scope, typed.prompt)
        if not journal.state.messages:  # another process drives the outer run, and starts this one
            raise CallTakenOver
        driver = Driver(
            spec,
            journal,
            live=self.live,
            runs=self._make_runs,
            hooks=self.hooks,
            outer=self,
            scope=scope,
        )
        self.inner[call.id] = driver
        try:
            await driver.drive()
        finally:
            self.inner.pop(call.id, None)
            self._take_values(call.id, driver.values)
        return answer_of(journal.state)

    def _take_values(self, _call_id: str, values: Mapping[str, Any]) -> None:
        self.values.update(values)

    # --- the model

    async def _call_model(self) -> None:
        """Call the model; if a budget is used up, ask whether to continue."""
        limited = self.used_up() if self.has_budget else None
        if limited is None:
            if self.has_budget:
                check_cost(self._spec, counted=self.counts_cost)
            collected = self._collected = Collected(self._spec.tools)
            # nobody sees what the model of an inner run streams
            keep = self._store_partial if self.keeps_partials and self._outer is None else None
            is_used_up = self.used_up if self.has_budget else None
            response = await respond(
                self._spec, self.journal, self.scope, collected, keep, is_used_up
            )
            if response is not None:
                await self._write(response)
            self._collected = None
        else:
            driver, name = limited
            await driver.ask_past_limit(name)

    async def _store_partial(self, partial: ModelPartial) -> bool:
        """Store the response in progress; a failing store does not end the run."""
        try:
            await self._write(partial)
        except StoreError as error:
            logger.warning(
                "the text that the model has streamed so far is not stored yet: %s", error
            )
            return False
        return True

    async def _write(self, event: StoredEvent) -> None:
        """Write the result of the step in progress, unless the step is no longer due."""
        await self.journal.write(lambda _state: [event] if self._is_due() else [])

    def cut_off(self, why: Literal["stopped", "failed"]) -> list[StoredEvent]:
        """The event of a response that is cut off; none if the response is already in the journal.

        The response of an inner run's model is not stored unless its usage counts, because nobody has seen it.
        """
        if self._collected is None or not self._is_due():
            return []
        if self._outer is not None and self._collected.spent == NOTHING:
            return []
        event = self._collected.cut_off(self._spec.clock(), why, scope=self.scope)
        return [] if event is None else [event]

    def _is_due(self) -> bool:
        """Whether the step in progress is still the run's next step and due in this process."""
        state = self.journal.state
        if not self.journal.may_drive:
            return False
        return state is self._seen or (next_step(state), len(state.messages)) == self._current

    def _end_or_correction(self, finish: Finish) -> RunCompleted | OutputRefused:
        """The end of the run; or, if the answer does not match the type, the correction for the model.

        Raises:
            ModelError: the result of a final tool does not match the type.
        """
        spec, now = self._spec, self._spec.clock()
        try:
            if finish.by_tool:
                output, text = spec.answer.of_tool(finish.output), finish.text
            else:
                text, output = spec.answer.parse(finish.text)
        except Misfit as misfit:
            if finish.by_tool:
                raise ModelError(
                    _misfit_message(
                        "tool's", "does not match output_type", str(misfit), finish.text
                    )
                ) from misfit
            return _refused(misfit, self.journal.state.finish_reason, now, self.scope)
        row, used = self.journal.state.row, self.journal.state.usage
        if row is not None:
            row = replace(
                row,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost=used.cost,
            )
        return RunCompleted(at=now, scope=self.scope, text=text, output=output, row=row)

    def _check_misfits(self, state: RunState) -> None:
        """Fail the run if the model may not try again."""
        if state.outcome is not None:
            return
        last = state.misfits[-1]
        if len(state.misfits) > self._spec.output_retries or not last.again:
            kind = "does not match output_type" if last.again else "is incomplete"
            raise ModelError(_misfit_message("model's", kind, last.errors, state.text))

    # --- limits and ends

    def used_up(self, more: Usage = NOTHING) -> tuple[Driver, str] | None:
        """The driver (this or an outer driver) whose budget is used up, and the budget's name."""
        used = self._outer.used_up(more) if self._outer is not None else None
        if used is not None:
            return used
        name = used_up_budget(self.journal.state, self._spec, more)
        return None if name is None else (self, name)

    @property
    def counts_cost(self) -> bool:
        """Whether this run or an outer run has a cost budget."""
        outer = self._outer is not None and self._outer.counts_cost
        return outer or self._spec.budget.cost is not None

    async def ask_past_limit(self, name: str) -> None:
        """Ask whether to continue past a limit; if nobody can be asked, end the run."""
        state = self.journal.state
        if not self.live or state.limit_declined:
            self._exceeded = limit_error(name, state)
            self._stop_waiting_for_answers()
            return
        event = limit_question(name, state, self._spec, self.scope)
        asked = await self.journal.write(
            lambda state: (
                [event]
                if self.journal.may_drive and state.outcome is None and state.limit_question is None
                else []
            )
        )
        if asked:
            self.hooks.paused(event)

    async def _failed(self, error: BaseException) -> NbagentError:
        """Store the failure, and return an error with the history before that end."""
        states: list[RunState] = []

        def cut_off() -> list[StoredEvent]:
            states.append(self.journal.state)  # which other handles may have changed meanwhile
            return self.cut_off("failed")

        name = type(error).__name__
        if isinstance(error, StoreError):  # also a subclass: a retry checks this name
            name = StoreError.__name__
        failure = RunFailed(
            at=self._spec.clock(),
            scope=self.scope,
            error=name,
            message=str(error) or name,
            owner=this_process(),
        )
        ended = self.journal.submit_end(failure, cut_off)
        await asyncio.shield(asyncio.wrap_future(ended))
        return with_history(error, states[-1] if states else self.journal.state)


_CUT_OFF = {
    "length": "its JSON was cut off at the length limit",
    "content_filter": "the server's content filter cut it off, before its JSON was complete",
}
"""The reasons for an incomplete response, by its finish reason."""
MAX_ERRORS = 2_000
"""Maximum characters of a mismatched answer's errors sent to the model."""


def _refused(
    misfit: Misfit, finish_reason: str, now: float, scope: tuple[str, ...]
) -> OutputRefused:
    cut = _CUT_OFF.get(finish_reason)
    errors = str(misfit) if cut is None else cut
    errors = errors if len(errors) <= MAX_ERRORS else f"{errors[:MAX_ERRORS]}…"
    return OutputRefused(at=now, scope=scope, errors=errors, again=cut is None)


def _misfit_message(whose: str, kind: str, why: str, text: str) -> str:
    more = "…" if len(text) > MAX_QUOTED else ""
    return f"The {whose} final answer {kind}: {why}. The answer was {text[:MAX_QUOTED]!r}{more}"


def with_history(error: BaseException, state: RunState) -> NbagentError:
    """The error with the messages to resume from; a ``UsageError`` is returned unchanged."""
    if isinstance(error, UsageError):
        return error
    if not isinstance(error, RunError):
        error = RunError(f"{type(error).__name__}: {error}")
    error.messages = paused_messages(state, stopped=not isinstance(error, StoreError))
    error.text = error.text or state.text
    return error
