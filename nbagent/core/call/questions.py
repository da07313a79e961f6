"""Questions and steps inside a body: ``ctx.ask`` and ``ctx.step``.

An answer is found by the question and its number in the body. So a body that runs again from its beginning gets its
earlier answers at the same lines. In a live run, the body waits at the line instead. To continue with the answer, the
body must claim the call again, as at its start.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Never, TypeVar
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from nbagent.core.base.awaited import OuterCoroutine
from nbagent.core.base.errors import Misuse, Rejected, ToolError, UsageError
from nbagent.core.base.events import (
    Interrupted,
    StepFinished,
    StoredEvent,
    ToolStarted,
    question_digest,
)
from nbagent.core.base.file_parts import KEPT
from nbagent.core.base.interrupts import DOES_NOT_FIT, EXPIRY, SECRET_GONE, Interrupt
from nbagent.core.base.messages import INSTEAD, FrozenFile, Json, dumps, thawed
from nbagent.core.base.secrets import (
    SecretPlaces,
    has_secret,
    revealed,
    sealed_json,
    without_secrets,
)
from nbagent.core.journal.journal import Decide
from nbagent.core.state.state import CallState
from nbagent.core.tools.context import Inquiry, Row
from nbagent.core.tools.result_text import MAX_OUTPUT, describe, shortened_text
from nbagent.core.tools.tool import Tool

from .call_events import CallEvents
from .setup import (
    BodyRuns,
    BodyStop,
    CallJournal,
    CallSetup,
    CallTakenOver,
    Pause,
    continue_event,
    is_mine,
)
from .threads import in_slot, raisable, run_in_thread, running_loop, without_slot

T = TypeVar("T")

TOO_MANY_QUESTIONS = "This turn already has the maximum number of open questions"

_steps_around: ContextVar[tuple[tuple[Questions, str], ...]] = ContextVar(
    "nbagent_steps_around", default=()
)
"""The steps whose work runs this code."""
reply_types: WeakValueDictionary[str, TypeAdapter[Any]] = WeakValueDictionary()
"""Types of the answers that bodies wait for in this process, by interrupt id."""


class MustAwait(OuterCoroutine[T]):
    """A coroutine that is made when it is awaited, so that Python does not warn if it is never awaited.

    Args:
        questions: the questions of the body that must await it.
        name: the name of the called function, such as ``ctx.ask``.
        make: makes the coroutine.
    """

    def __init__(
        self, questions: Questions, name: str, make: Callable[[], Coroutine[Any, Any, T]]
    ) -> None:
        self.name = name
        self._questions = questions
        self._make = make
        self._made: Coroutine[Any, Any, T] | None = None
        questions.not_awaited[id(self)] = name

    def __bool__(self) -> Never:
        raise self._questions.misused_here(
            f"`{self.name}(…)` has not run yet. Write `await {self.name}(…)`"
        )

    def __repr__(self) -> str:
        return f"<{self.name}(…), not awaited yet>"

    def __del__(self) -> None:
        if self._made is None:
            self._questions.has_lost = True

    def _inner(self) -> Coroutine[Any, Any, T]:
        if self._made is None:
            self._made = self._make()
            del self._questions.not_awaited[id(self)]
        return self._made


def _may_be_packed(value: Any) -> bool:
    """Whether a step's value may be a table or an array."""
    return type(value).__module__ != "builtins"


class AskPause(Interrupt):
    """Ends a body that asked, if this process cannot wait for the answer."""


class _Running:
    """The work of a step that is running."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when the work has ended, with its error if it failed."""
        self.waits_for: list[_Running] = []
        """The work of other steps that this work waits for."""

    def way_to(self, any_of: list[_Running]) -> list[_Running]:
        """The work that this work waits for, up to one of the given works; empty if it waits for none of these."""
        ways = [[self]]
        for way in ways:  # grows below, by each work at most once
            if way[-1] in any_of:
                return way
            known = [one for each in ways for one in each]
            ways += [[*way, one] for one in {*way[-1].waits_for} if one not in known]
        return []


class Questions:
    """The questions and steps of one body."""

    def __init__(
        self,
        journal: CallJournal,
        stop: BodyStop,
        setup: CallSetup,
        events: CallEvents,
        tool: Tool[..., Any],
        started: ToolStarted,
        runs: BodyRuns,
    ) -> None:
        self._journal = journal
        self._stop = stop
        self._setup = setup
        self._events = events
        self._tool = tool
        self._started = started
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._over = False
        self.not_awaited: dict[int, str] = {}
        """The names of the functions whose coroutine is not awaited yet, by the coroutine's ``id``."""
        self.has_lost = False
        """Whether the body has lost such a coroutine, so that a question or step never runs."""
        self._works: dict[str, tuple[Any, ...]] = {}
        """The ``work_parts`` of each step, by name."""
        self._under_way: dict[str, _Running] = {}
        """The steps whose work is running, by name."""
        self._texts: Any = None
        """The ``Texts`` of the body; None before its first ``ctx.write``."""

    def wake(self) -> None:
        """Check the run's state again, because it may have an answer."""
        self._changed.set()

    def close(self) -> None:
        """End all questions, because the body has ended: a thread that is still running can ask no more."""
        self._over = True
        self._changed.set()

    def _check_not_over(self) -> None:
        """Raise if the call has ended, so that abandoned code does no more work."""
        if self._over:
            raise CallTakenOver
        self._check_not_lost()

    def pause(self, interrupt: Interrupt) -> None:
        """Pause the call, even if the body catches the interrupt."""
        if not self._over:
            self._stop.because(Pause("tool", interrupt))

    @property
    def is_live(self) -> bool:
        """Whether the body waits for an answer at the line of its question."""
        return self._setup.bodies_wait()

    def promised(
        self, name: str, make: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """The coroutine that ``make`` creates, for a body that must await it."""
        self._check_loop(name, f"{name}_sync")
        self._check_not_lost()
        return MustAwait(self, name, make)

    def _check_loop(self, what: str, instead: str) -> None:
        """Raise ``Misuse`` in code that does not run on the body's loop, and so cannot await."""
        if running_loop() is not self._loop:
            raise self.misused_here(
                f"Synchronous code, or a thread with a loop of its own, cannot await {what}. Use {instead}"
            )

    def _check_not_lost(self) -> None:
        """Raise if the body forgot an ``await``, before the body does what it forgot to ask for."""
        if self.has_lost:
            self.check_awaited()
            self._stop.check()

    def check_awaited(self) -> None:
        """Stop the call with an error if the body forgot an ``await``, so that a question or step never ran."""
        for name in self.not_awaited.values():
            self.misused_here(f"`{name}(…)` was never awaited. Write `await {name}(…)`")

    async def ask(self, inquiry: Inquiry, *, slot: bool = False) -> Any:
        """Return the answer to a question. With ``slot``, a waiting thread releases its slot."""
        if self._over:
            raise asyncio.CancelledError
        event = self._event(inquiry)
        answer = _answer(self._call, event, inquiry.reply)
        if answer is None:
            answer = await self._wait(inquiry, event, slot=slot)
        if "rejected" in answer:
            reason = answer["rejected"]
            if answer["by"] == EXPIRY:
                raise Rejected(f"{reason[:1].lower()}{reason[1:]}")
            text = "a person rejected this" + (f": {reason}" if reason else "")
            raise Rejected(text, reason=reason)
        return inquiry.reply.validate_json(dumps(revealed(answer["output"])))

    def steps(self) -> Mapping[str, Json]:
        """The values of this body's finished steps, by name."""
        return {name: self._step_value(name, value) for name, value in self._call.steps.items()}

    async def step(self, name: str, work: Callable[[], Any], *, shown: bool) -> Any:
        """Return the value of a step; its work runs only if no value is stored, and not twice at once."""
        while (running := self._begin_step(name, work)) is not None:
            with self._waiting_for(running):
                await asyncio.shield(asyncio.wrap_future(running.ended))
        try:
            self._check_not_over()
            if name in self._call.steps:
                self._end_step(name)
                return self._step_value(name, self._call.steps[name])
            since = self._step_starts(name, shown=shown)
            try:
                with self._inside(name):
                    value = work()
                    if inspect.isawaitable(value):
                        value = await value
            except Exception as error:
                if not self._over:
                    failed = self._step_failed(name, error, since, shown=shown)
                    await self._journal.write(self._if_mine(failed))
                self._end_step(name, error)
                raise
        except BaseException:
            self._end_step(name)
            raise

        def stored(task: asyncio.Task[Any]) -> None:
            self._end_step(name)
            if not task.cancelled():
                task.exception()  # else Python warns if the body does not wait any more

        storing = asyncio.create_task(self._store_step(name, value, since, shown=shown))
        storing.add_done_callback(stored)
        return await asyncio.shield(storing)  # a body that is cancelled has done the work

    async def _store_step(self, name: str, value: Any, since: float, *, shown: bool) -> Any:
        is_packed = _may_be_packed(value)
        kept = await run_in_thread(partial(self._packed, name, value)) if is_packed else None
        event = self._step(name, value if kept is None else kept, since, shown=shown)
        if self._over or not await self._journal.write(self._if_mine(event)):
            raise CallTakenOver
        return thawed(event.value) if kept is None else value

    async def call(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """Return the result of a tool that the body calls."""
        return await self._runs.call(tool, input_)

    def call_sync(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """``call`` in a thread."""
        return self._runs.call_sync(tool, input_)

    def ask_sync(self, inquiry: Inquiry) -> Any:
        """``ask`` in a thread."""
        loop = running_loop()
        if loop is self._loop or (loop is not None and not in_slot.get()):
            raise self._misused(
                "ctx.ask_sync would block the event loop that it needs. Use `await ctx.ask`, or set thread=True "
                "(a web page has no threads)"
            )
        return self._in_loop(self.ask(inquiry, slot=in_slot.get()))

    # --- calls that the body runs itself, and text

    async def approve(self, name: str, input_: Any, id_: str | None, **asked: Any) -> Any:
        """Return the input of a call that the body runs itself, as approved."""
        from .own_loop import approval_of  # noqa: PLC0415 - few bodies have a loop of their own

        return await self._runs.approve(approval_of(name, input_, id_, **asked), input_, id_)

    def approve_sync(self, name: str, input_: Any, id_: str | None, **asked: Any) -> Any:
        """``approve`` in a thread."""
        from .own_loop import approval_of  # noqa: PLC0415 - as above

        return self._runs.approve_sync(approval_of(name, input_, id_, **asked), input_, id_)

    def row(self, name: str, input_: Any, id_: str, *, sync: bool) -> Row:
        """Show a call that the body runs itself."""
        from .own_loop import bounded, is_quick, row_of  # noqa: PLC0415 - as above

        self._check_not_over()
        if not sync:
            self._check_loop("the end of a row", "ctx.row_sync")
        row = row_of(self._call, self._started, name, input_, id_, self._setup.spec.clock())
        rule = None if row.is_approval else self._runs.rule_on(name)
        if rule is not None:
            raise self._misused(
                f"The rule {str(rule)!r} cannot apply to this call of {name!r}, because {self._call.name!r} runs the call "
                f"itself, and nobody was asked before. Ask with `await ctx.approve({name!r}, input, id=…)` and the id of "
                "ctx.row. For an agent of nb.watch, gate the tool in its framework"
            )
        if not row.is_known(self._call):
            row.show(self._events.output)

        async def end(value: Any, failed: bool) -> None:  # noqa: FBT001 - of this function
            if not failed:
                quick = is_quick(value)
                value = bounded(value) if quick else await run_in_thread(partial(bounded, value))
            self._check_not_over()
            await self._journal.write(row.end(value, self._setup.spec.clock(), failed=failed))

        def end_sync(value: Any, failed: bool) -> None:  # noqa: FBT001 - as above
            value = value if failed else bounded(value)
            self._check_not_over()
            self._journal.commit(row.end(value, self._setup.spec.clock(), failed=failed))

        if sync:
            return Row(end_sync)
        return Row(lambda *ended: self.promised("row.done", lambda: end(*ended)))

    def write(self, text: str) -> None:
        """Add text to the card, which is stored with the body's next event."""
        from .own_loop import Texts  # noqa: PLC0415 - as above

        if not isinstance(text, str):
            raise self.misused_here(f"ctx.write takes a string, got {text!r:.80}")
        if self._over:
            return
        if self._texts is None:
            clock = self._setup.spec.clock
            self._texts = Texts(self._call, self._started, self._events.output, clock)
            self._stop.before = self._texts.before
        self._texts.write(text, in_step=any(each is self for each, _ in _steps_around.get()))

    async def store_text(self) -> None:
        """Store the text that no event has stored, because the body failed or was stopped."""
        self._stop.before = None
        await self._journal.write(self._texts.unstored)

    def step_sync(self, name: str, work: Callable[[], Any], *, shown: bool) -> Any:
        """``step`` in a thread: the work runs in that thread."""
        while (running := self._begin_step(name, work)) is not None:
            if running_loop() is not None:
                raise self._misused(
                    f"Step {name!r} of {self._call.name!r} is already running, and waiting here would block its event loop. "
                    "Write `await ctx.step(...)`"
                )
            with self._waiting_for(running):
                running.ended.result()
        try:
            return self._stored_or_new_sync(name, work, shown=shown)
        finally:
            self._end_step(name)

    def _stored_or_new_sync(self, name: str, work: Callable[[], Any], *, shown: bool) -> Any:
        self._check_not_over()
        if name in self._call.steps:
            return self._step_value(name, self._call.steps[name])
        since = self._step_starts(name, shown=shown)
        try:
            with self._inside(name):
                value = work()
        except Exception as error:
            if not self._over:
                failed = self._step_failed(name, error, since, shown=shown)
                self._journal.commit(self._if_mine(failed))
            self._end_step(name, error)
            raise
        if inspect.iscoroutine(value):
            value.close()
            raise self._misused(f"Step {name!r} has async work. Write `await ctx.step(...)`")
        kept = self._packed(name, value) if _may_be_packed(value) else None
        event = self._step(name, value if kept is None else kept, since, shown=shown)
        if self._over or not self._journal.commit(self._if_mine(event)):
            raise CallTakenOver
        return thawed(event.value) if kept is None else value

    def _begin_step(self, name: str, work: Callable[[], Any]) -> _Running | None:
        """Mark a step as running; if its work runs already, return that work.

        Work that uses its own step does not wait for itself.
        """
        self._one_work(name, work)
        own = _Running(name)
        first = self._under_way.setdefault(name, own)
        return None if first is own or (self, name) in _steps_around.get() else first

    @contextmanager
    def _waiting_for(self, running: _Running) -> Iterator[None]:
        """A context to wait for the work of a step; raises if that work waits for a step that runs this code."""
        running_in = (q._under_way.get(name) for q, name in _steps_around.get())  # noqa: SLF001 - of its class
        around = [one for one in running_in if one is not None]
        for one in around:  # first: of two threads that begin to wait, at least one sees the other
            one.waits_for.append(running)
        try:
            circle = running.way_to(around)
            if circle:
                names = " and ".join(repr(one.name) for one in circle)
                raise self._misused(
                    f"The steps {names} of {self._call.name!r} wait for each other, so none of them could end. Use no "
                    "step inside the work of another step that uses it"
                )
            yield
            self._stop.check()
        finally:
            for one in around:
                one.waits_for.remove(running)

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        """A context for the work of a step."""
        before = _steps_around.get()
        _steps_around.set((*before, (self, name)))
        try:
            yield
        finally:
            # a token could be refused: a forgotten coroutine ends in another context
            _steps_around.set(before)

    def _end_step(self, name: str, error: Exception | None = None) -> None:
        """Mark a step as ended. Uses that wait for its work get the work's error; later uses run the work again."""
        running = self._under_way.get(name)
        if running is None or running.ended.done():
            return  # work that used its own step has ended it
        if self._stop.reason is not None:  # every use of the step raises, and does not ask again
            running.ended.set_result(None)
            return
        del self._under_way[name]
        if error is None:
            running.ended.set_result(None)
        else:
            running.ended.set_exception(raisable(error))

    def _packed(self, name: str, value: Any) -> Json | None:
        """The stored form of a step's value that is a table or an array; None for other values."""
        from nbagent.core.tools import step_values  # noqa: PLC0415 - only who gives one needs it

        try:
            return step_values.encode_table(value)
        except UsageError as error:
            raise self._misused(f"Step {name!r} of {self._call.name!r}: {error}") from error

    def _step_value(self, name: str, value: Json) -> Any:
        """The stored value of a step, as a body receives it."""
        if not (isinstance(value, Mapping) and KEPT in value):
            return thawed(value)
        from nbagent.core.tools import step_values  # noqa: PLC0415 - as above

        try:
            return step_values.decode_table(value)
        except UsageError as error:
            raise self._misused(f"Step {name!r} of {self._call.name!r}: {error}") from error

    def _step_starts(self, name: str, *, shown: bool) -> float:
        """Report the start of a step, and return the time in Unix seconds."""
        now = self._setup.spec.clock()
        if shown and not self._over:
            self._events.output.step(name, now)
        return now

    def _one_work(self, name: str, work: Callable[[], Any]) -> None:
        """Raise if a step's name is used for different work, which would get the value of the first work."""
        from .step_identity import is_same_work, work_parts  # noqa: PLC0415 - few tools have steps

        parts = work_parts(work)
        if not is_same_work(self._works.setdefault(name, parts), parts):
            raise self._misused(
                f"Step {name!r} of {self._call.name!r} is used twice for different work, so the second would get the value "
                f"of the first. In a loop, give each step its own name, as in ctx.step(f'{name} {{n}}', …)"
            )

    def _step_failed(
        self, name: str, error: Exception, since: float, *, shown: bool
    ) -> StepFinished:
        self._works.pop(name, None)  # the step may be tried again with other work
        text = shortened_text(f"{type(error).__name__}: {error}", MAX_OUTPUT)
        return replace(self._step_event(name, since, shown=shown), error=text)

    def _step_event(self, name: str, since: float, *, shown: bool) -> StepFinished:
        now = self._setup.spec.clock()
        return StepFinished(
            at=now,
            scope=self._started.scope,
            call_id=self._started.call_id,
            name=name,
            seconds=max(0.0, now - since),
            shown=shown,
        )

    def _step(self, name: str, value: Any, since: float, *, shown: bool) -> StepFinished:
        event = self._step_event(name, since, shown=shown)
        if isinstance(value, FrozenFile):  # made by ``_packed``
            return replace(event, value=value)
        try:
            plain = sealed_json(value)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise self._misused(
                f"The value of step {name!r} in {self._call.name!r} is stored with the run, so it must be JSON. Got "
                f"{type(value).__name__}; {INSTEAD}. Or do the work outside a step, where it is done again when the body "
                "restarts"
            ) from error
        if isinstance(plain, dict) and KEPT in plain:
            raise self._misused(
                f"The value of step {name!r} in {self._call.name!r} is a dict with the key {KEPT!r}, which is reserved for stored "
                "tables. Rename that key"
            )
        if has_secret(plain):
            raise self._misused(
                f"The value of step {name!r} in {self._call.name!r} contains a secret, and secrets are never stored. Do "
                "the work outside a step"
            )
        return replace(event, value=plain)

    def misused_here(self, text: str) -> Misuse:
        """Stop the call with an error of this tool, and return the error."""
        return self._misused(f"In the tool {self._call.name!r}: {text}")

    def _misused(self, text: str) -> Misuse:
        misuse = Misuse(text)
        self._stop.because(misuse)
        return misuse

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except concurrent.futures.CancelledError:
            raise CallTakenOver from None
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            work.close()
            raise CallTakenOver from None

    @property
    def _call(self) -> CallState:
        call = self._journal.state.calls.get(self._started.call_id)
        if call is None:
            raise CallTakenOver
        return call

    def _event(self, inquiry: Inquiry) -> Interrupted:
        """The question's event: the one that is already open, such as after a restart, or a new one."""
        try:
            event = self._events.asked(self._tool, inquiry, self._started.input)
        except Misuse as error:
            self._stop.because(error)
            raise
        for earlier in self._call.asked.values():
            if earlier.ask == event.ask and question_digest(earlier) == question_digest(event):
                return earlier
        why = _why_again(self._call, event, inquiry.reply)
        return event if why is None else replace(event, note=why)

    async def _wait(self, inquiry: Inquiry, event: Interrupted, *, slot: bool) -> dict[str, Any]:
        is_open = event.id in self._call.asked
        if not self._setup.bodies_wait():
            self._stop.asked += [] if is_open else [event]
            raise self._paused()
        if not (is_open or self._setup.has_room(1)):
            raise ToolError(f"{TOO_MANY_QUESTIONS}, so this one was not asked")
        reply_types[event.id] = inquiry.reply
        if not is_open:
            await self._open(event)
        if slot:
            async with without_slot(self._loop):
                return await self._answered(event)
        return await self._answered(event)

    async def _open(self, event: Interrupted) -> None:
        if not await self._journal.write(self._if_mine(event)):
            raise CallTakenOver
        self._setup.hooks.paused(event)

    async def _answered(self, event: Interrupted) -> dict[str, Any]:
        reply = reply_types[event.id]
        while (answer := _answer(self._call, event, reply)) is None:
            why = _why_again(self._call, event, reply)
            if why is not None and event.id not in self._call.asked:
                # another process accepted the answer, and could not check it
                event = replace(event, id=self._setup.spec.new_id(), note=why)
                reply_types[event.id] = reply
                await self._open(event)
                continue
            if not self._setup.bodies_wait():  # the run has started to fail meanwhile
                raise self._paused()
            self._changed.clear()
            await self._changed.wait()
            if self._over:
                raise asyncio.CancelledError
        now = self._setup.spec.clock()
        await self._journal.write(lambda state: continue_event(state, self._started, now))
        return answer

    def _paused(self) -> AskPause:
        """The interrupt that ends the body where it asks."""
        pause = AskPause()
        self._stop.because(Pause("ask", pause))
        return pause

    def _if_mine(self, event: StoredEvent) -> Decide:
        return lambda state: [event] if is_mine(state, self._started) else []


def _valid_answer(call: CallState, event: Interrupted) -> dict[str, Any] | None:
    """The answer to this question, or None; an answer to another question with this number does not count."""
    answer = call.answers.get(event.ask or 0)
    if answer is None or answer.get("question") != question_digest(event):
        return None
    return answer


def _answer(call: CallState, event: Interrupted, reply: TypeAdapter[Any]) -> dict[str, Any] | None:
    """The answer; None if there is none, or if it cannot be used."""
    return _valid_answer(call, event) if _why_again(call, event, reply) is None else None


def _why_again(call: CallState, event: Interrupted, reply: TypeAdapter[Any]) -> str | None:
    """The reason why the answer cannot be used: a secret in it is lost, or it does not match the type."""
    answer, places = _valid_answer(call, event), SecretPlaces.of(event.reply_schema)
    if answer is None or "output" not in answer:
        return None
    if places is not None and places.missing(answer["output"]):
        return SECRET_GONE
    try:
        reply.validate_json(dumps(revealed(answer["output"])))
    except ValidationError as error:  # its own text may contain a secret
        return DOES_NOT_FIT.format(why=without_secrets(describe(error), answer["output"]))
    return None
