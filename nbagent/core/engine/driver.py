"""The driver: performs what ``next_step`` decides. The only place that awaits a model or a tool."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, assert_never

from nbagent.core.base.errors import (
    BudgetExceeded,
    McpError,
    ModelError,
    NbagentError,
    RunError,
    StoreError,
    ToolFailed,
    TurnLimit,
    UsageError,
)
from nbagent.core.base.events import (
    Interrupted,
    ModelPartial,
    OutputRefused,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    StoredEvent,
    ToolStarted,
)
from nbagent.core.base.file_parts import MAX_FILES, size_of_all
from nbagent.core.base.messages import user
from nbagent.core.base.process import this_process
from nbagent.core.call.attempt import Attempt
from nbagent.core.call.setup import (
    BodyRuns,
    CallSetup,
    CallTakenOver,
    Hooks,
    Stop,
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
from nbagent.core.tools.rules import check_rules
from nbagent.core.tools.spec import Inner, OfBody, RunSpec, check_cost
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.toolbox import Toolbox, is_plain, is_whole

from .response import Collected, respond
from .runs import Request, StartedRuns, Surroundings

logger = logging.getLogger("nbagent")


async def begin(journal: InnerJournal, spec: RunSpec, scope: tuple[str, ...], prompt: str) -> None:
    """Start the run inside; one that failed goes on from its last good state."""
    now = spec.clock()
    started = RunStarted(
        at=now,
        scope=scope,
        agent=spec.agent,
        model=spec.model_name,
        messages=[user(prompt)],
        max_turns=spec.max_turns,
        owner=this_process(),
        answer=spec.answer.form,
    )
    again = RunRetried(at=now, scope=scope, by="middleware", owner=this_process())

    def decide(state: RunState) -> list[StoredEvent]:
        if not journal.is_driven_here:
            return []
        if not state.messages and state.outcome is None:
            return [started]
        return [again] if isinstance(state.outcome, RunFailed) else []

    await journal.write(decide)


def answer_of(state: RunState) -> Any:
    """What the run inside a call gives as the call's result; raises where it has none, as when it was settled elsewhere."""
    match state.outcome:
        case RunCompleted(text=text, output=output):
            return text if output is None else output
        case RunFailed(error=name, message=message):
            raise ToolFailed(f"{name}: {message}")
        case None:
            raise SubrunWaits
        case _:
            raise CallTakenOver


def inside_of(around: RunSpec, tool: Tool[..., Any], spec: RunSpec) -> RunSpec:
    """What a run needs inside a call of ``tool``: what is denied around it is denied there."""
    further = ((rules, f"{path}/{tool.name}") for rules, path in around.above)
    above = ((around.policy, tool.name), *further)
    context = around.context if spec.context is None else spec.context
    return replace(spec, above=above, clock=around.clock, new_id=around.new_id, context=context)


async def know_tools(spec: RunSpec) -> None:
    """Have the tools of servers as they are now.

    Raises:
        NbagentError: they cannot be had, two of all tools have one name, or a rule names none.
    """
    tools = spec.tools
    if isinstance(tools, Toolbox) and tools.sources:
        was_whole = tools.is_whole
        await tools.ready()
        if not was_whole:
            check_rules(spec, tools)


async def know_tools_asked_for(spec: RunSpec, state: RunState) -> None:
    """Have the tools on the way to each open question, so that its answer can be checked.

    Raises:
        NbagentError: as ``know_tools``.
    """
    for event in state.pending:
        around, level = spec, state
        for call_id in (*event.scope, None):
            if not is_whole(around.tools):
                await know_tools(around)
            call = None if call_id is None else level.calls[call_id]
            tool = None if call is None else around.tools.get(call.name)
            inner = None if tool is None else tool.options.inner
            if call is None or tool is None or inner is None:
                break  # the question's own run, or what a body has started
            around, level = inside_of(around, tool, inner.spec()), call.child or RunState()


_TEXTS = {
    "turns": "The model has used its {turns} turns (max_turns).",
    "tokens": "The run has used its tokens (budget).",
    "cost": "The run has used its cost limit (budget).",
    "seconds": "The run has used its time (budget).",
}
_UNKNOWN = {
    "tokens": "The number of tokens used is unknown, and is at least {tokens} (budget).",
    "cost": "The cost of the run is unknown, and is at least ${cost} (budget).",
}


def used_up(state: RunState, spec: RunSpec) -> str | None:
    """The name of a budget that allows no further model call; None where there is none.

    What is not known may be all of it, until a person says how much more is left: from then on, what is
    known counts.
    """
    budget = spec.budget
    if budget.tokens is None and budget.cost is None and budget.seconds is None:
        return None
    used = {
        "tokens": (state.usage.total_tokens, budget.tokens),
        "cost": (state.usage.known_cost, budget.cost),
        "seconds": (state.active + spec.clock() - state.at, budget.seconds),
    }
    for name, (spent, allowed) in used.items():
        if allowed is None:
            continue
        granted = state.granted.get(name)
        if spent >= allowed + (granted or 0) or (granted is None and _is_unknown(name, state)):
            return name
    return None


def _is_unknown(name: str, state: RunState) -> bool:
    """Whether more of this may be used than was told."""
    usage = state.usage
    return {"tokens": usage.partial, "cost": not usage.is_priced}.get(name, False)


def exceeded(name: str, state: RunState) -> BudgetExceeded:
    """The error that ends a run at this limit."""
    kind = TurnLimit if name == "turns" else BudgetExceeded
    return kind(_text(name, state), messages=state.messages, text=state.text)


def question(name: str, state: RunState, spec: RunSpec, scope: tuple[str, ...]) -> Interrupted:
    """The question whether to go on past this limit."""
    number = "integer" if name in ("turns", "tokens") else "number"
    return Interrupted(
        at=spec.clock(),
        scope=scope,
        id=spec.new_id(),
        call_id="",
        tool_name="",
        kind="budget",
        expects="budget",
        input={},
        metadata={"message": f"{_text(name, state)} Continue?"},
        reply_schema={"type": number, "exclusiveMinimum": 0, "title": f"More {name}"},
        budget=name,
    )


def _text(name: str, state: RunState) -> str:
    used = state.usage
    texts = _UNKNOWN if _is_unknown(name, state) else _TEXTS
    told = {"tokens": f"{used.total_tokens:,}", "cost": f"{used.known_cost:.4g}"}
    return texts[name].format(turns=state.limit, **told)


MAX_QUOTED = 200
"""Characters of an answer that does not fit, in the error that says so."""


class Driver:
    """Drives one run until nothing can go on without an answer, or to its end."""

    def __init__(
        self,
        spec: RunSpec,
        journal: AnyJournal,
        *,
        live: bool,
        hooks: Hooks = Hooks(),  # noqa: B008 - a frozen value
        outer: Driver | None = None,
        scope: tuple[str, ...] = (),
    ) -> None:
        self.journal = journal
        self.values: dict[str, Any] = {}
        """Python results by call id: in memory only."""
        self.keeps_partials = False
        """Whether what a model streams is stored before its response is whole."""
        self.live = live
        self.hooks = hooks
        self.scope = scope
        self._spec = spec
        self._outer = outer
        self._inner: dict[str, Driver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: list[str] = []
        """Calls whose tasks have ended, and were not looked at yet."""
        self._attempts: dict[str, Attempt] = {}
        self._wake = asyncio.Event()
        self.stopped = False
        """Whether it was told to take no further step."""
        self._failing = False
        """Whether a call failed for good: bodies that ask now wait for nobody."""
        self._collected: Collected | None = None
        """What has come of the response under way."""
        self._exceeded: BudgetExceeded | None = None
        """What a run inside found: this run's budget is used up, and nobody is asked."""
        self._at: tuple[Step | None, int] = (None, 0)
        """The step under way, and how long the history was when it began."""
        self._setup = CallSetup(
            spec,
            scope,
            self.bodies_wait,
            self._inside,
            self._runs,
            self.has_room,
            self.file_room,
            hooks,
        )

    @property
    def left_bodies(self) -> tuple[str, ...]:
        """The calls of which nobody knows what they came to, as their bodies were abandoned."""
        calls = self.journal.state.calls
        left = (i for i, attempt in self._attempts.items() if attempt.body_is_left)
        own = tuple(i for i in left if i in calls and calls[i].status == "running")
        return own + tuple(i for inner in self._inner.values() for i in inner.left_bodies)

    @property
    def running_bodies(self) -> tuple[str, ...]:
        """The calls whose bodies still run, also after they were abandoned."""
        own = tuple(i for i, attempt in self._attempts.items() if attempt.body_runs)
        return own + tuple(i for inner in self._inner.values() for i in inner.running_bodies)

    @property
    def decides(self) -> bool:
        """Whether what is asked inside may yet be answered by the body that started it."""
        return any(inner.decides for inner in self._inner.values())

    def wake(self) -> None:
        """Look at the state again; to be called on the driver's loop."""
        self._wake.set()
        for attempt in self._attempts.values():
            attempt.wake()
        for inner in self._inner.values():
            inner.wake()

    def stop(self) -> None:
        """Take no further step, whatever becomes of the one that is under way."""
        self.stopped = True

    async def drive(self, *, one_response: bool = False) -> None:
        """Go on until the run is settled: ended, or waiting for answers alone.

        Args:
            one_response: stop before the calls of the first model response that asks for some.

        Raises:
            RunError: the run failed; the journal says so too.
            UsageError: the model is misconfigured, or a tool is; the journal says so too.
        """
        turns = self.journal.state.turns
        inside = current_runs.set(None)  # whoever started this run does not start what its tools do
        try:
            while not self.stopped and await self._step():
                state = self.journal.state
                if one_response and state.calls and state.turns > turns:
                    return
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit too: past here it would end the loop
            self.stop()  # a retry is for another driver, however soon it comes
            failure = await self._failed(error)
            if failure is error:
                raise
            raise failure from error
        finally:
            current_runs.reset(inside)
            for task in self._tasks.values():
                task.cancel()

    def bodies_wait(self) -> bool:
        """Whether a body that asks waits at that line."""
        outer = self._outer
        return self.live and not self._failing and (outer is None or outer.bodies_wait())

    def has_room(self, questions: int) -> bool:
        """Whether so many more questions may wait in this run, and in those around it."""
        if self.journal.state.questions + questions > self._spec.max_questions:
            return False
        return self._outer is None or self._outer.has_room(questions)

    def file_room(self) -> int:
        """How many bytes of files the run's history may still get."""
        state = self.journal.state
        results = [call.result for call in state.calls.values() if call.result is not None]
        return MAX_FILES - size_of_all([*state.messages, {"content": results}])

    @property
    def is_blocked(self) -> bool:
        """Whether this run, or one around it, has used up a budget: no model is called any more."""
        own = self.journal.state.budget is not None or self._exceeded is not None
        return own or (self._outer is not None and self._outer.is_blocked)

    async def _step(self) -> bool:
        """Perform one step; False when there is nothing left to do now."""
        state = self.journal.state
        step = next_step(state)
        self._at = (step, len(state.messages))
        if state.misfits:
            self._check_misfits(state)
        match await self._allowed(state, step):
            case CallModel():
                if not is_plain(self._spec.tools):
                    await know_tools(self._spec)
                await self._within_budget()
            case RunCalls(ids=ids):
                if not is_whole(self._spec.tools):
                    await know_tools(self._spec)
                await self._run_calls(ids)
            case Wait():
                return await self._wait()
            case LimitReached():
                await self.limit("turns")
            case Finish() as finish:
                await self._write(self._answered(finish))
            case Fail(reason=reason):
                raise ToolFailed(reason)
            case Done():
                return False
            case never:
                assert_never(never)
        return True

    async def _allowed(self, state: RunState, step: Step) -> Step:
        """The next step; none while a budget is used up, or where another process drives the run.

        Raises:
            BudgetExceeded: a budget is used up, and nobody is asked.
        """
        if self._exceeded is not None:
            await self._let_siblings_end()
            raise self._exceeded
        is_blocked = self._outer is not None and self._outer.is_blocked
        held = is_blocked or not self.journal.is_driven_here
        return Wait() if held and state.outcome is None else step

    async def _wait(self) -> bool:
        """Wait for a call to end or an answer to come; False where no call runs here."""
        if self._tasks:
            await self._change()
            return True
        self._check_waits()
        if self._outer is None:
            await self._know_tools_asked_for()
        return False

    async def _know_tools_asked_for(self) -> None:
        """Have the tools that the open questions are about: a history may bring some of no server connected yet."""
        try:
            await know_tools_asked_for(self._spec, self.journal.state)
        except McpError as error:  # all else of the run can be answered
            logger.warning("%s", error)

    def _check_waits(self) -> None:
        """Nothing to do here is right only while a person is asked, or somebody else runs a call or the run."""
        state = self.journal.state
        if not self.journal.is_driven_here:
            return
        if not state.asks and not running_calls(state) and not self.is_blocked:
            raise RunError(
                "The run is not waiting for anything. This is a bug in nbagent. Please report it"
            )

    # --- calls

    async def _run_calls(self, ids: tuple[str, ...]) -> None:
        new = [i for i in ids if i not in self._tasks]
        state = self.journal.state
        if len(new) == len(state.calls) == 1:
            await self._attempt(new[0])  # nothing else is open that could be answered meanwhile
            return
        for call_id in new:
            task = self._tasks[call_id] = asyncio.create_task(self._attempt(call_id))
            task.add_done_callback(partial(self._note_ended, call_id))
        await self._change()

    def _note_ended(self, call_id: str, _task: object) -> None:
        self._ended.append(call_id)
        self._wake.set()

    async def _attempt(self, call_id: str) -> None:
        call = self.journal.state.calls.get(call_id)
        if call is None:
            return  # another process ended the turn before this task began
        attempt = Attempt(call, self.journal, self._setup_of(call_id))
        self._attempts[call_id] = attempt
        await attempt.run()
        self._attempts.pop(call_id, None)
        if attempt.has_value:
            self.values[call_id] = attempt.value

    def _setup_of(self, _call_id: str) -> CallSetup:
        """What the call needs of its run."""
        return self._setup

    def _runs(
        self,
        started: ToolStarted,
        tool: Tool[..., Any],
        stop: Stop,
        retries: bool,  # noqa: FBT001 - as CallSetup.runs has it
    ) -> BodyRuns:
        """What a body starts inside its call."""
        call_id = started.call_id
        spec = self._setup_of(call_id).spec

        def driver() -> BodyDriver:
            made = self._inner[call_id] = BodyDriver(self, spec, call_id, tool)
            return made

        def leave() -> None:
            self._inner.pop(call_id, None)

        around = Surroundings(self.journal, self._setup, driver, leave)
        return StartedRuns(around, started, stop, retries=retries)

    async def _change(self) -> None:
        """Wait until an attempt ended or an answer came; an attempt's error is raised."""
        if self.journal.state.status == "interrupted":
            self.hooks.idle()
        await self._wake.wait()
        self._wake.clear()
        failures = self._take_done()
        if failures:
            await self._let_siblings_end()
            self._take_done()
            raise failures[0]

    async def _let_siblings_end(self) -> None:
        """A failing call does not destroy its siblings; only those that ask a person are left off."""
        self._leave_questions()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _leave_questions(self) -> None:
        """Have bodies wait for no person any more, those in runs inside included: who does, or is about to, is woken."""
        self._failing = True
        self.wake()

    def _take_done(self) -> list[BaseException]:
        """Forget the attempts that have ended, and give what they raised."""
        ended, self._ended = self._ended, []
        done = [self._tasks.pop(call_id) for call_id in ended]
        raised = [None if task.cancelled() else task.exception() for task in done]
        return [error for error in raised if error is not None]

    # --- the run inside a call

    async def _inside(self, call: CallState, tool: Tool[..., Any], typed: Any) -> Any:
        """Drive the run inside a call to its answer.

        Raises:
            SubrunWaits: it waits for an answer, and so does the call.
            ToolFailed: it failed.
        """
        inner: Inner = tool.options.inner
        spec = inside_of(self._spec, tool, inner.spec())
        scope = (*self.scope, call.id)
        journal = InnerJournal(self.journal, call.id)
        await begin(journal, spec, scope, inner.prompt(typed))
        if not journal.state.messages:  # begun by another process, which goes on with the run
            raise CallTakenOver
        driver = Driver(
            spec,
            journal,
            live=self.live,
            hooks=self.hooks,
            outer=self,
            scope=scope,
        )
        self._inner[call.id] = driver
        try:
            await driver.drive()
        finally:
            self._inner.pop(call.id, None)
            self._take_values(call.id, driver.values)
        return answer_of(journal.state)

    def _take_values(self, _call_id: str, values: Mapping[str, Any]) -> None:
        self.values.update(values)

    # --- the model

    async def _within_budget(self) -> None:
        limited = self.used_up()
        if limited is None:
            check_cost(self._spec, counted=self.counts_cost)
            collected = self._collected = Collected(self._spec.tools)
            # what the model of a run inside a call says, nobody sees
            keep = self._keep if self.keeps_partials and self._outer is None else None
            response = await respond(self._spec, self.journal, self.scope, collected, keep)
            await self._write(response)
            self._collected = None
        else:
            driver, name = limited
            await driver.limit(name)

    async def _keep(self, partial: ModelPartial) -> bool:
        """Store what has come of the response under way; a store that fails ends no run for that."""
        try:
            await self._write(partial)
        except StoreError as error:
            logger.warning(
                "the text that the model has streamed so far is not stored yet: %s", error
            )
            return False
        return True

    async def _write(self, event: StoredEvent) -> None:
        """Add what came of the step under way, unless somebody else has taken it meanwhile."""
        await self.journal.write(lambda _state: [event] if self._is_due() else [])

    def cut_off(self, why: Literal["stopped", "failed"]) -> list[StoredEvent]:
        """What came of a response that gets no further, unless it has been written whole meanwhile.

        Nobody has seen what the model of a run inside a call has said so far.
        """
        if self._collected is None or self._outer is not None or not self._is_due():
            return []
        event = self._collected.cut_off(self._spec.clock(), why, scope=self.scope)
        return [] if event is None else [event]

    def _is_due(self) -> bool:
        """Whether the step under way is still the run's next one, and this process's to take."""
        state = self.journal.state
        return self.journal.is_driven_here and (next_step(state), len(state.messages)) == self._at

    def _answered(self, finish: Finish) -> RunCompleted | OutputRefused:
        """The end of the run; or, where the model's answer does not fit, what it is told.

        Raises:
            ModelError: what a final tool gave does not fit.
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
                    _misfit("tool's", "does not match output_type", str(misfit), finish.text)
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
        """Fail the run where the model has had its tries.

        Raises:
            ModelError: naming what did not fit.
        """
        if state.outcome is not None:
            return
        last = state.misfits[-1]
        if len(state.misfits) > self._spec.output_retries or not last.again:
            kind = "does not match output_type" if last.again else "is incomplete"
            raise ModelError(_misfit("model's", kind, last.errors, state.text))

    # --- limits and ends

    def used_up(self) -> tuple[Driver, str] | None:
        """Whose budget allows no further model call, of this run and those around it, and which."""
        around = self._outer.used_up() if self._outer is not None else None
        if around is not None:
            return around
        name = used_up(self.journal.state, self._spec)
        return None if name is None else (self, name)

    @property
    def counts_cost(self) -> bool:
        """Whether a budget of cost holds, here or around."""
        outer = self._outer is not None and self._outer.counts_cost
        return outer or self._spec.budget.cost is not None

    async def limit(self, name: str) -> None:
        """Ask whether to go on past a limit, or note that nobody is asked and the run is over."""
        state = self.journal.state
        if not self.live or state.refused:
            self._exceeded = exceeded(name, state)
            self._leave_questions()
            return
        event = question(name, state, self._spec, self.scope)
        asked = await self.journal.write(
            lambda state: (
                [event]
                if self.journal.is_driven_here and state.outcome is None and state.budget is None
                else []
            )
        )
        if asked:
            self.hooks.paused(event)

    async def _failed(self, error: BaseException) -> NbagentError:
        """Write the failure down, and make it an error that carries the history so far."""
        state = self.journal.state
        name = type(error).__name__
        if isinstance(
            error, StoreError
        ):  # what it found is for the message: a retry goes by this name
            name = StoreError.__name__
        failure = RunFailed(
            at=self._spec.clock(),
            scope=self.scope,
            error=name,
            message=str(error) or name,
            owner=this_process(),
        )
        ended = self.journal.submit_end(failure, partial(self.cut_off, "failed"))
        await asyncio.shield(asyncio.wrap_future(ended))
        return with_history(error, state)


_CUT = {
    "length": "its JSON was cut off at the length limit",
    "content_filter": "the server's content filter cut it off, before its JSON was complete",
}
"""What is said where a response was ended from outside: its shape is not what was wrong."""
MAX_ERRORS = 2_000
"""Characters of what does not fit, as it is told."""


def _refused(
    misfit: Misfit, finish_reason: str, now: float, scope: tuple[str, ...]
) -> OutputRefused:
    cut = _CUT.get(finish_reason)
    errors = str(misfit) if cut is None else cut
    errors = errors if len(errors) <= MAX_ERRORS else f"{errors[:MAX_ERRORS]}…"
    return OutputRefused(at=now, scope=scope, errors=errors, again=cut is None)


def _misfit(whose: str, kind: str, why: str, text: str) -> str:
    more = "…" if len(text) > MAX_QUOTED else ""
    return f"The {whose} final answer {kind}: {why}. The answer was {text[:MAX_QUOTED]!r}{more}"


def with_history(error: BaseException, state: RunState) -> NbagentError:
    """The error, carrying the messages to resume from; misuse stays what it is."""
    if isinstance(error, UsageError):
        return error
    if not isinstance(error, RunError):
        error = RunError(f"{type(error).__name__}: {error}")
    error.messages = paused_messages(state, stopped=not isinstance(error, StoreError))
    error.text = error.text or state.text
    return error


class BodyDriver(Driver):
    """Drives what one body starts: each by itself, when the body starts it or an answer lets it go on."""

    def __init__(self, outer: Driver, around: RunSpec, call_id: str, tool: Tool[..., Any]) -> None:
        own = tool.options.of_body or OfBody()
        bare = replace(
            around,
            agent=tool.name,
            tools={},
            max_calls=sys.maxsize,
            raise_errors=False,
            policy=(),
            middleware=(),
            budget=own.budget,
            specs={},
        )
        spec = inside_of(around, tool, bare)
        super().__init__(
            replace(spec, above=((own.policy, tool.name), *spec.above)) if own.policy else spec,
            InnerJournal(outer.journal, call_id),
            live=outer.live,
            hooks=outer.hooks,
            outer=outer,
            scope=(*outer.scope, call_id),
        )
        self.runs: StartedRuns | None = None
        self.errors: dict[str, BaseException] = {}
        """What runs failed with, by call id."""
        self.values_of: dict[str, dict[str, Any]] = {}
        """Python results of the runs' calls, by the run's call id."""
        self._around = replace(
            around,
            policy=(*own.policy, *around.policy),
            middleware=(*around.middleware, *own.middleware),
        )
        self._setups: dict[str, CallSetup] = {}

    def admit(self, call_id: str, request: Request) -> None:
        """Know what the call is: a run has no rules but its own, a tool those of the run around it."""
        around = self._spec if request.spec is not None else self._around
        spec = replace(
            self._spec,
            tools={request.tool.name: request.tool},
            policy=around.policy,
            middleware=around.middleware,
        )
        self._setups[call_id] = self._setup._replace(spec=spec)

    async def attempt(self, call_id: str) -> None:
        """Attempt a call that the body has started."""
        await self._attempt(call_id)

    def stop_one(self, call_id: str) -> None:
        """Take no further step in the run inside a call."""
        if call_id in self._inner:
            self._inner[call_id].stop()

    @property
    def decides(self) -> bool:
        """Whether the body, or one inside, is at work and may yet answer what is asked."""
        return (self.runs is not None and self.runs.decides) or super().decides

    def bodies_wait(self) -> bool:
        """Not once something has stopped the body that started them: no answer changes what it comes to."""
        return super().bodies_wait() and not (self.runs is not None and self.runs.is_stopped)

    def wake(self) -> None:
        """Look at the state again."""
        if self.runs is not None:
            self.runs.wake()
        super().wake()

    def _setup_of(self, call_id: str) -> CallSetup:
        return self._setups[call_id]

    async def _inside(self, call: CallState, tool: Tool[..., Any], typed: Any) -> Any:
        try:
            return await super()._inside(call, tool, typed)
        except Exception as error:
            self.errors[call.id] = error
            raise

    def _take_values(self, call_id: str, values: Mapping[str, Any]) -> None:
        self.values_of[call_id] = {**self.values_of.get(call_id, {}), **values}
