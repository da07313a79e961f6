"""Runs of agents and calls of tools that a body starts, as calls inside the body's call.

A body may run again from its beginning, after an answer or in another process. Each of its requests is then
matched with an earlier call of the same tool and input: a finished call has its result, others continue.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from nbagent.core.base.errors import (
    Misuse,
    Rejected,
    StoreError,
    ToolError,
    ToolFailed,
    UsageError,
)
from nbagent.core.base.events import (
    BodyCalled,
    RunCancelled,
    RunFailed,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import EXPIRY, input_json
from nbagent.core.base.messages import INSTEAD, Message, canonical, dumps, thawed
from nbagent.core.base.secrets import schema_has_secret
from nbagent.core.call.setup import (
    BodyStop,
    CallJournal,
    CallSetup,
    CallTakenOver,
    SubrunWaits,
    continue_event,
    started_by_bodies,
)
from nbagent.core.call.threads import in_slot, running_loop, without_slot
from nbagent.core.journal.journal import InnerJournal
from nbagent.core.state.fold import apply
from nbagent.core.state.state import CallState, RunState
from nbagent.core.tools.define import as_tool
from nbagent.core.tools.policy import Rule, matches
from nbagent.core.tools.result_text import describe
from nbagent.core.tools.spec import BodySettings, RunSpec
from nbagent.core.tools.tool import Tool

from .driver import Driver, inner_retried, inner_spec, run_started

T = TypeVar("T")

MAX_QUOTED_INPUT = 200
"""Maximum characters of an input in an error."""


class BodyRequest(NamedTuple):
    """A run or call that a body starts."""

    tool: Tool[..., Any]
    input: dict[str, Any]
    spec: RunSpec | None = None
    """The agent's spec, for a run; None for the call of a tool."""
    messages: Sequence[Message] = ()
    """The history at the start of a run; its last message is the prompt."""
    server_id: str | None = None
    """The body's own id of a call that it runs itself."""
    is_approval: bool = False
    """Whether this only asks for an approval: the body runs the call itself."""

    def is_of(self, call: CallState) -> bool:
        """Whether the call was started with the same request."""
        masked = self.tool.masked
        is_same = (call.name, call.server_id) == (self.tool.name, self.server_id)
        return is_same and canonical(masked(call.proposed)) == canonical(masked(self.input))


class Started:
    """One run or tool call that a body has started."""

    def __init__(self, id_: str, request: BodyRequest, setup: CallSetup, *, is_new: bool) -> None:
        self.id = id_
        self.request = request
        self.setup = setup
        self.is_new = is_new
        self.is_busy = True
        """True if the run or call is running, or about to run."""
        self.is_stopping = False
        self.is_retried = False
        """True if the run had failed and is about to be retried."""
        self.is_awaited = False
        self.task: asyncio.Task[None] | None = None
        self.values: dict[str, Any] = {}
        """Python results of a run's calls, by call id."""
        self.error: BaseException | None = None
        """The exception object that a run failed with, if this process has it."""
        self.broke: BaseException | None = None
        """The error because of which the run or call cannot continue, although it has not ended."""
        self.undecided: set[str] = set()
        """Questions that the body's ``answers=`` may settle and that are not checked yet."""
        self.wrong_answers: dict[str, Exception] = {}
        """Errors of the body's ``answers=``, by interrupt id."""
        self.last: CallState | None = None
        """The state as last read from the journal."""
        self.wake = asyncio.Event()

    @property
    def is_at_work(self) -> bool:
        """Whether the run or call may change without an answer."""
        return self.is_busy or bool(self.undecided)

    @property
    def is_task_ended(self) -> bool:
        """Whether its task has ended, and all waiters have been notified."""
        return self.task is not None and self.task.done() and not self.is_at_work


class StartedRuns:
    """The runs and calls that one body has started. Methods without a note on threads need the run's event loop."""

    def __init__(
        self,
        outer: Driver,
        started: ToolStarted,
        tool: Tool[..., Any],
        stop: BodyStop,
        is_retry: bool,  # noqa: FBT001 - as CallSetup.runs has it
    ) -> None:
        self._outer = outer
        """The driver of the body's call."""
        self._journal = CallJournal(outer.journal, stop)
        self._setup = outer.setup_of(started.call_id)
        self._is_retry = is_retry
        """True if a middleware retries the body, so that failed runs in it are retried too."""
        self._started = started
        self._tool = tool
        self._stop = stop
        self.loop = asyncio.get_running_loop()
        """The event loop of the run that has the body's call."""
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self.all: dict[str, Started] = {}
        """All that the body has started, by call id."""
        self._live: dict[str, Started] = {}
        """The part of ``all`` that may still change; a body may start thousands, one after the other."""
        self._left: dict[str, CallState] | None = None
        """Calls of an earlier attempt that this attempt has not requested yet; None before the first request."""
        self._waiters: set[asyncio.Event] = set()
        self._awaiting = 0
        """Number of places in the body that wait for the end of a run or call."""
        self._continuing: asyncio.Task[None] | None = None
        self.is_over = False
        self.is_abandoned = False
        """As in ``BodyRuns``."""

    def journal_of(self, made: Started) -> InnerJournal:
        """The journal of a run that the body has started."""
        return InnerJournal(self._driver.journal, made.id)

    @property
    def scope(self) -> tuple[str, ...]:
        """The scope of the runs and calls that the body starts."""
        return (*self._started.scope, self._started.call_id)

    def clock(self) -> float:
        """Unix seconds."""
        return self._setup.spec.clock()

    @cached_property
    def _driver(self) -> BodyDriver:
        """The driver of what the body starts; there is none before the first start."""
        driver = BodyDriver(self, self._outer, self._started, self._tool)
        self._outer.inner[self._started.call_id] = driver
        return driver

    # --- starting

    def start(self, request: BodyRequest) -> Started:
        """Start this request, or continue it if an earlier attempt of the body started it; from any thread.

        Raises:
            Misuse: an earlier attempt of the body started other requests.
            CallTakenOver: the body has ended.
        """
        with self._lock:
            if self.is_over:
                raise CallTakenOver
            call_id = self._earlier(request)
            is_new = call_id is None
            call_id = self._setup.spec.new_id() if call_id is None else call_id
            setup = self._driver.setup_for(request)
            made = self.all[call_id] = Started(call_id, request, setup, is_new=is_new)
            self._live[call_id] = made
            made.is_retried = self._is_retry and not is_new and _has_failed(self.state(made))
            started_by_bodies[call_id] = request.tool
        if running_loop() is self.loop:
            self._start_task(made)
        else:
            self.loop.call_soon_threadsafe(partial(self._start_task, made))
        return made

    def _earlier(self, request: BodyRequest) -> str | None:
        call = self._call
        if self._left is None:
            self._left = {} if call.child is None else dict(call.child.calls)
        if not self._left:
            return None
        for one in self._left.values():
            if request.is_of(one):
                del self._left[one.id]
                return one.id
        first = next(iter(self._left.values()))
        misuse = Misuse(
            f"The body of {call.name!r} ran again and called {request.tool.name!r} with "
            f"{canonical(request.input)[:MAX_QUOTED_INPUT]}, but the first time it called {first.name!r} with "
            f"{canonical(first.proposed)[:MAX_QUOTED_INPUT]}. No call was repeated. The body must start the same calls each "
            "time. Get values that change (the time, a random number, data that was read) from `await ctx.step(…)`"
        )
        self._stop.because(misuse)
        raise misuse

    def _start_task(self, made: Started) -> None:
        if not self.is_over:
            made.task = self.loop.create_task(self._perform(made), context=self._context.copy())

    # --- continuing

    async def _perform(self, made: Started) -> None:
        try:
            if made.is_new:
                await self._write(self._first(made))
            elif made.is_retried:
                await self._write([inner_retried(self.clock(), (*self.scope, made.id))])
                made.is_retried = False
            while self.state(made).status != "done":
                made.wake.clear()
                await self._write([])
                if self.state(made).status == "ready":
                    made.is_busy = True
                    await self._attempt(made)
                if self.state(made).status == "done":
                    break
                made.is_busy = False
                self.notify()
                await made.wake.wait()
        except Exception as error:
            made.broke = error
            if isinstance(error, StoreError):
                self._stop.because(error)
                self._driver.wake()  # the body's other calls no longer wait for a person
        except CallTakenOver as error:
            made.broke = error
        finally:
            made.is_busy = made.is_stopping
            self.notify()

    async def _attempt(self, made: Started) -> None:
        try:
            await self._driver.attempt(made.id)
        except (StoreError, asyncio.CancelledError):
            raise
        except Exception as error:  # a misuse inside fails only this run
            made.error = error if made.error is None else made.error
            await self._write([self._failed(made, f"{type(error).__name__}: {error}")])

    def _first(self, made: Started) -> list[StoredEvent]:
        request, now = made.request, self.clock()
        name = request.tool.name
        called = BodyCalled(
            at=now,
            scope=self.scope,
            call_id=made.id,
            name=name,
            input=request.input,
            server_id=request.server_id,
        )
        spec = request.spec
        if spec is None:
            return [called]
        scope = (*self.scope, made.id)
        return [called, run_started(spec, request.messages, now, scope=scope)]

    def _failed(self, made: Started, text: str) -> ToolFinished:
        return ToolFinished(
            at=self.clock(), scope=self.scope, call_id=made.id, output=text, error=True
        )

    async def _write(self, events: Sequence[StoredEvent]) -> None:
        """Store these events, and that the body continues after its pause.

        Raises:
            CallTakenOver: another process has taken the call over.
        """
        if not events and self._call.status != "ready":
            continue_event(self._journal.state, self._started, 0.0)
            return
        depth = len(self._started.scope)

        def decide(state: RunState) -> list[StoredEvent]:
            continue_event(state, self._started, 0.0)
            after = state
            for event in events:
                after = apply(after, event, depth)
            return [*events, *continue_event(after, self._started, self.clock())]

        await self._journal.write(decide)

    def wake(self) -> None:
        """Look at the state again; on the loop of the run."""
        for made in self._unfinished():
            made.wake.set()
        if self.all and not self.is_over:
            self._continuing = self.loop.create_task(
                self._continue_body(), context=self._context.copy()
            )

    async def _continue_body(self) -> None:
        """Store that the body continues with an answer, unless another process has taken its call over."""
        try:
            await self._write([])
        except (CallTakenOver, StoreError) as error:
            for made in self._open():
                made.broke = error
            self.notify()

    def look(self) -> None:
        """Look at the state again, in all runs that the body has started; from any thread."""
        if self.all and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._driver.wake)

    # --- state

    @property
    def _call(self) -> CallState:
        call = self._journal.state.calls.get(self._started.call_id)
        if call is None or call.status == "done":
            raise CallTakenOver
        return call

    def state(self, made: Started) -> CallState:
        """The state of one run or call; its initial state if it is not stored yet.

        Raises:
            CallTakenOver: the body's call has ended.
        """
        child = self._call.child
        known = None if child is None else child.calls.get(made.id)
        if known is not None:
            made.last = known
            return known
        request = made.request
        return CallState(made.id, request.tool.name, request.input, request.input, final=True)

    @property
    def is_stopped(self) -> bool:
        """Whether the body's call was stopped. After that, its body waits for no person, even if it still runs."""
        return self._stop.reason is not None

    @property
    def body_may_answer(self) -> bool:
        """Whether the body may still answer or cancel a run that it started, so that no person is needed yet."""
        return any(
            one.undecided or one.is_stopping or not (one.is_busy or self._awaiting)
            for one in self._open()
        )

    def _open(self) -> list[Started]:
        return [one for one in self._unfinished() if not self.is_ended(one)]

    def _unfinished(self) -> list[Started]:
        """The runs and calls that may still change; others are removed from ``_live``."""
        live = list(self._live.values())
        over = [one for one in live if one.is_task_ended and self.is_ended(one)]
        for one in over:
            self._live.pop(one.id, None)
        return [one for one in live if one.id in self._live] if over else live

    def is_ended(self, made: Started) -> bool:
        """Whether the run or call has ended, or cannot end."""
        if made.broke is not None or self.is_over:
            return True
        if made.is_retried:
            return False
        try:
            return self.state(made).status == "done"
        except CallTakenOver:
            return True

    # --- calling a tool

    async def call(self, tool: Any, input_: Mapping[str, Any], *, slot: bool = False) -> Any:
        """The result of a tool, called like a model's call: with the run's rules and middleware.

        Raises:
            Rejected: a person rejected the call.
            ToolFailed: the tool failed, a rule denied the call, or a result with a secret was lost.
            ToolError: the input does not match the tool's schema.
        """
        request = _call_of(tool, input_)
        made, call = await self._ended(request, slot=slot)
        if made.id in self._driver.values:
            return self._driver.values[made.id]
        if schema_has_secret(request.tool.output_schema):
            raise ToolFailed(
                f"The result of {call.name} contained a secret, which is never stored. It was lost when the function that "
                "made the call ran again, or when a person gave the result. Use the result before the function asks a question"
            )
        adapter = request.tool.output_adapter
        return call.answer if adapter is None else adapter.validate_json(dumps(call.answer))

    def call_sync(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """``call`` in a thread."""
        slot = in_slot.get()
        return self.here_sync(lambda: self.call(tool, input_, slot=slot), "ctx.call_sync")

    async def _ended(self, request: BodyRequest, *, slot: bool) -> tuple[Started, CallState]:
        """Start a call, and wait for its result; raises if the call has none."""
        made = self.start(request)
        await self.wait(made, slot=slot)
        call = self.state(made)
        if call.result is not None and call.result.get("error"):
            text = str(call.result["output"])
            answers = [each["resolution"] for each in call.result.get("nbagent", ())]
            if answers and answers[-1]["type"] == "reject":
                by_person = call.result["nbagent"][-1]["by"] != EXPIRY
                raise Rejected(text, reason=answers[-1].get("reason") if by_person else None)
            raise ToolFailed(text)
        return made, call

    async def approve(
        self,
        tool: Tool[..., Any],
        input_: Mapping[str, Any],
        id_: str | None,
        *,
        slot: bool = False,
    ) -> dict[str, Any]:
        """The input of a call, as approved; see ``ToolContext.approve``."""
        request = _call_of(tool, input_)._replace(server_id=id_, is_approval=True)
        _, call = await self._ended(request, slot=slot)
        answers = () if call.result is None else call.result.get("nbagent", ())
        if answers and answers[-1]["resolution"]["type"] == "respond":
            given = answers[-1]["resolution"].get("output")
            text = given if isinstance(given, str) else dumps(given)
            raise Rejected(
                f"A person answered this call of {tool.name} instead of approving it: {text}",
                reason=text,
            )
        approved: dict[str, Any] = thawed(call.body_input)
        return approved

    def approve_sync(
        self, tool: Tool[..., Any], input_: Mapping[str, Any], id_: str | None
    ) -> dict[str, Any]:
        """``approve`` in a thread."""
        slot = in_slot.get()
        return self.here_sync(
            lambda: self.approve(tool, input_, id_, slot=slot), "ctx.approve_sync"
        )

    def rule_on(self, name: str) -> Rule | None:
        """The first rule that denies or reviews calls of this name; None if there is none."""
        spec = self._setup.spec
        if not (spec.policy or spec.above or self._tool.options.body_settings):
            return None
        return self._driver.rule_on(name)

    # --- waiting

    async def wait(self, made: Started, *, settled: bool = False, slot: bool = False) -> None:
        """Wait until the run or call has ended; with ``settled``, also until it needs an answer.

        Raises:
            SubrunWaits: everything the body started needs answers that this process does not wait for.
        """
        if slot:
            async with without_slot(self.loop):
                await self.wait(made, settled=settled)
            return
        made.is_awaited = made.is_awaited or not settled
        self._awaiting += not settled
        change = asyncio.Event()
        self._waiters.add(change)
        try:
            if not settled:
                self._setup.hooks.may_be_idle()
            while not self.is_ended(made) and not (settled and not made.is_busy):
                self._check_waits()
                change.clear()
                await change.wait()
                if self.is_over:
                    raise asyncio.CancelledError
        finally:
            self._waiters.discard(change)
            self._awaiting -= not settled
        if made.broke is not None:
            raise made.broke
        await self._write([])  # raises if another process answered and took the call over

    def _check_waits(self) -> None:
        """End the body if all that it started needs answers that this process does not wait for."""
        at_work = any(one.is_at_work for one in self._unfinished())
        if at_work or (self._setup.bodies_wait() and not self.is_stopped):
            return
        waits = SubrunWaits()
        self._stop.because(waits)
        raise waits

    def notify(self) -> None:
        """Let all that wait look at the state again, because a call has changed or its answers were checked."""
        self._setup.hooks.may_be_idle()
        for change in self._waiters:
            change.set()

    async def here(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop of the run, from any loop."""
        if running_loop() is self.loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self.loop))

    def here_sync(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Run a coroutine on the loop of the run, and block this thread until it ends.

        Raises:
            UsageError: called on that loop, which would block itself.
        """
        self.check_thread(name)
        done = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return done.result()
        except concurrent.futures.CancelledError:
            raise CallTakenOver from None

    def check_thread(self, name: str) -> None:
        """Check that this thread may block, because it is not the thread of the run's loop.

        Raises:
            UsageError: it is the thread of the run's loop.
        """
        if running_loop() is self.loop:
            raise UsageError(
                f"{name}: this run uses the event loop of this code, so waiting here would block it. Use `await run`, or "
                "(not in a web page) make this tool a `def`, which runs in a thread"
            )

    async def cancel(self, made: Started, by: str) -> None:
        """Cancel a run or call; finished results stay stored."""
        if self.is_ended(made):
            return
        made.is_stopping = True
        if made.id in self._driver.inner:
            self._driver.inner[made.id].stop()
        if made.task is not None:
            made.task.cancel()
            await asyncio.wait([made.task])
        if self.state(made).status == "done":
            made.is_busy = False
            return
        stopped: list[StoredEvent] = [self._failed(made, f"It was cancelled (by {by}).")]
        child = self.state(made).child
        if child is not None and child.outcome is None:
            scope = (*self.scope, made.id)
            stopped.insert(0, RunCancelled(at=self.clock(), scope=scope, by=by))
        await self._write(stopped)
        made.is_busy = False
        self.notify()

    # --- the end of the body

    async def end(self) -> None:
        """Wait for the runs and calls that the body did not await; if one failed, the body fails too. Open approvals end."""
        for made in list(self.all.values()):
            if made.request.is_approval:
                await self.cancel(made, "its body, which has ended")
            elif not self.is_ended(made):
                await self.wait(made)
                if not made.is_awaited and self.state(made).result is not None:
                    error = made.broke or made.error
                    if error is not None:
                        raise error

    def close(self) -> None:
        """Cancel all tasks after the end of the body."""
        with self._lock:
            self.is_over = True
        for made in self.all.values():
            if made.task is not None:
                made.task.cancel()
        if self.all:
            self.notify()
            self._outer.inner.pop(self._started.call_id, None)


def _has_failed(call: CallState) -> bool:
    return call.child is not None and isinstance(call.child.outcome, RunFailed)


def _call_of(tool: Any, input_: Mapping[str, Any]) -> BodyRequest:
    """The call of a tool, or of a plain function, with this input."""
    made = as_tool(tool, {})
    try:
        plain = input_json(dict(input_)) or {}
        made.parse(plain)
        return BodyRequest(made, made.sealed(plain))
    except ValidationError as error:
        why = describe(error) if made.secrets is None else "see its parameters"
        raise ToolError(f"The input does not match the schema of {made.name}: {why}") from None
    except (TypeError, ValueError) as error:
        raise ToolError(f"The input of {made.name} is not JSON: {error}; {INSTEAD}") from error


class BodyDriver(Driver):
    """The driver of the runs that one body starts; a run is driven after its start and after each answer."""

    def __init__(
        self, body: StartedRuns, outer: Driver, started: ToolStarted, tool: Tool[..., Any]
    ) -> None:
        outer_spec = outer.setup_of(started.call_id).spec
        own = tool.options.body_settings or BodySettings()
        bare = replace(
            outer_spec,
            agent=tool.name,
            tools={},
            max_calls=sys.maxsize,
            raise_errors=False,
            policy=(),
            middleware=(),
            budget=own.budget,
            path="",
        )
        spec = inner_spec(outer_spec, tool, bare)
        super().__init__(
            replace(spec, above=((own.policy, tool.name), *spec.above)) if own.policy else spec,
            InnerJournal(outer.journal, started.call_id, started),
            live=outer.live,
            runs=StartedRuns,
            hooks=outer.hooks,
            outer=outer,
            scope=(*outer.scope, started.call_id),
        )
        self._body = body
        self._outer_spec = replace(
            outer_spec,
            policy=(*own.policy, *outer_spec.policy),
            middleware=(*outer_spec.middleware, *own.middleware),
            path=f"{outer_spec.path}/{tool.name}" if outer_spec.path else tool.name,
        )

    def setup_for(self, request: BodyRequest) -> CallSetup:
        """The setup of a call that the body starts.

        A tool call gets the outer run's rules and middleware; a run gets its own, and the denials of outer runs
        (``above``).
        """
        rules = self._spec if request.spec is not None else self._outer_spec
        is_run_here = request.tool.options.asks is None  # else there is no body to be around
        spec = replace(
            self._spec,
            tools={request.tool.name: request.tool},
            policy=rules.policy,
            middleware=rules.middleware if is_run_here else (),
            path=rules.path,
        )
        return self._setup._replace(spec=spec)

    def rule_on(self, name: str) -> Rule | None:
        """As in ``StartedRuns``."""
        own = self._outer_spec
        asking = [(one, own.path) for one in own.policy if one.verdict == "review"]
        levels = (*self._spec.above, (own.policy, own.path))
        denying = [(one, path) for rules, path in levels for one in rules if one.verdict == "deny"]
        found = (one for one, path in denying + asking if matches(one, (name, f"{path}/{name}")))
        return next(found, None)

    def setup_of(self, call_id: str) -> CallSetup:
        """The setup of a call that the body has started."""
        return self._body.all[call_id].setup

    @property
    def body_may_answer(self) -> bool:
        """Whether the body, or a body of a run inside, still runs and may answer an open question."""
        return self._body.body_may_answer or super().body_may_answer

    @property
    def wrong_answers(self) -> dict[str, Exception]:
        """The errors of wrong ``answers=`` of the body's runs, and of those inside, by interrupt id."""
        own = {i: e for one in self._body.all.values() for i, e in one.wrong_answers.items()}
        return own | super().wrong_answers

    def bodies_wait(self) -> bool:
        """Whether bodies wait for answers; False after their outer body was stopped."""
        return super().bodies_wait() and not self._body.is_stopped

    def wake(self) -> None:
        """Look at the state again."""
        self._body.wake()
        super().wake()

    async def _run_inner(self, call: CallState, tool: Tool[..., Any], typed: Any) -> Any:
        try:
            return await super()._run_inner(call, tool, typed)
        except Exception as error:
            self._body.all[call.id].error = error
            raise

    def _take_values(self, call_id: str, values: Mapping[str, Any]) -> None:
        self._body.all[call_id].values.update(values)
