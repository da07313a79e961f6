"""A run that the body of a tool starts: it is part of that body's call, and used like any other run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, cast

from nbagent.core.base.awaited import awaited
from nbagent.core.base.errors import RunError, UsageError
from nbagent.core.base.events import Resolved, RunCancelled, StoredEvent
from nbagent.core.base.file_parts import Content, check_room, outline
from nbagent.core.base.interrupts import PendingInterrupt
from nbagent.core.base.messages import Message, user
from nbagent.core.base.process import this_process
from nbagent.core.call.setup import CallTakenOver, current_runs
from nbagent.core.call.threads import in_slot
from nbagent.core.engine.runs import BodyRequest, Started, StartedRuns
from nbagent.core.journal.journal import RunEvent, chained, finished
from nbagent.core.state.state import CallState, RunState, Status, evolve
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

from .answers import AnyResolution, Stamp, answer, interrupts_of, remember
from .describe import result_of
from .generate import Response, response_of
from .result import Result
from .run import Run
from .scripted_answers import Answerer, Answers, AnswerSource
from .session import Session

InnerTool: TypeAlias = Callable[[], Tool[..., Any]]


def runs_of_body(*, nested: bool) -> StartedRuns | None:
    """The runs that the current body has started; None outside of a body, or without ``nested``.

    Code that runs on after the body's end starts separate runs. If the body was cancelled, it starts none: it would
    escape the outer run's budget and rules.
    """
    runs: StartedRuns | None = current_runs.get() if nested else None
    return None if runs is None or (runs.is_over and not runs.is_abandoned) else runs


def run_inside(
    runs: StartedRuns,
    tool: Tool[..., Any],
    spec: RunSpec,
    prompt: Content,
    history: Sequence[Message] = (),
    answers: Answers = None,
) -> NestedRun:
    """Start a run of an agent inside the call of the current body.

    Args:
        runs: the runs of that body.
        tool: the agent as a tool.
        spec: the agent's spec.
        prompt: the prompt.
        history: the earlier messages.
        answers: answers for runs without a person.
    """
    check_room(history, prompt)
    request = BodyRequest(tool, {"prompt": outline(prompt)}, spec, [*history, user(prompt)])
    return NestedRun(NestedSession(runs, runs.start(request), spec, answers))


async def generated_inside(run: NestedRun, on_event: Callable[[RunEvent], None] | None) -> Response:
    """Wait until a nested run has ended, and return its response as ``generate`` does."""
    if on_event is not None:
        run.subscribe(on_event)
    await run
    session = run.nested
    return response_of(session.state, session.spec)


class NestedSession:
    """The session of a ``Run`` inside a call; see ``Session``."""

    awaited = ""

    def __init__(
        self, runs: StartedRuns, started: Started, spec: RunSpec, answers: Answers
    ) -> None:
        self.runs = runs
        self.started = started
        self.spec = spec
        self.journal = runs.journal_of(started)
        self.scope = self.journal.scope
        self.loop = runs.loop
        self.call_soon = runs.loop.call_soon_threadsafe
        self.notify = runs.notify
        if answers is not None:
            scripted = Answerer(AnswerSource(answers), None, self)
            started.undecided, started.wrong_answers = scripted.undecided, scripted.wrong
            for event in self.state.pending:
                scripted.look_at(event.id)
            self.journal.subscribe(scripted.on_event)

    @property
    def run_id(self) -> str:
        """The outermost run's id, and the ids of the calls that lead to this run."""
        return "/".join((self.journal.run_id, *self.scope))

    @property
    def call(self) -> CallState:
        """The call of this run."""
        try:
            return self.runs.state(self.started)
        except CallTakenOver:
            last = self.started.last
            return CallState(self.started.id, "", {}, {}) if last is None else last

    @property
    def state(self) -> RunState:
        """The state of the run; cancelled if the outer call has ended."""
        call = self.call
        child = call.child or RunState(agent=self.spec.agent)
        if child.outcome is None and (call.status == "done" or self.runs.is_over):
            by = "the end of the outer call"
            return evolve(child, outcome=RunCancelled(at=0.0, by=by))
        return child

    @property
    def status(self) -> Status:
        """The run's status."""
        return self.state.status

    @property
    def interrupts(self) -> list[PendingInterrupt]:
        """The open questions, with the path from this run's agent."""
        state = self.state
        if state.outcome or not state.questions:
            return []
        inner = self.started.request.tool.options.inner
        return interrupts_of(state, inner.tools, self.spec.agent)

    @property
    def values(self) -> dict[str, Any]:
        """Python results by call id."""
        return self.started.values

    @property
    def error(self) -> BaseException | None:
        """The exception of the run's failure, if known."""
        return self.started.broke or self.started.error

    @property
    def result(self) -> Result:
        """The result of a completed run; raises the error of a failed run."""
        call, state, error = self.call, self.state, self.error
        if call.result is not None and (call.child is None or call.child.outcome is None):
            raise error or RunError(str(call.result["output"]))
        if error is not None and state.outcome is None:
            raise error
        return result_of(state, self.spec, error, self.values)

    def follow(self) -> None:
        """Do nothing: the outermost run is followed."""

    def first_in_queue(self) -> None:
        """None: this run is never queued, because a body continues only runs that have ended."""

    def resolve(
        self, interrupt_id: str, resolution: AnyResolution, *, by: str
    ) -> Future[StoredEvent]:
        """Settle an interrupt of this run, in the outermost run's journal; see ``Session.resolve``."""
        stamp = Stamp.of(by, self.spec.clock(), resolution)
        asked_in: list[RunState] = []

        def decide(state: RunState) -> list[StoredEvent]:
            asked_in.append(state)
            return [
                answer(
                    state,
                    interrupt_id,
                    resolution,
                    {},
                    stamp,
                    owner=lambda *_: this_process(),
                    scope=self.scope,
                )
            ]

        def stored() -> Future[StoredEvent]:
            (event,) = written.result()
            if isinstance(event, Resolved):
                remember(asked_in[-1], event, {}, [])
            return finished(event)

        written = self.journal.root.submit(decide)
        answered = chained(written, stored)
        answered.add_done_callback(lambda _: self.runs.look())
        return answered


class NestedRun(Run):
    """A run inside the call whose body started the run. Its questions appear on the outermost run."""

    __slots__ = ()

    def __init__(self, session: NestedSession) -> None:
        super().__init__(cast("Session", session))

    @property
    def nested(self) -> NestedSession:
        """The session of this run."""
        return cast("NestedSession", self._session)

    @property
    def result(self) -> Result:
        """The result of a completed run.

        Raises:
            RunNotFinished: the run has not ended.
            RunError: the run failed or was cancelled.
        """
        return self.nested.result

    async def _wait(self) -> Result:
        await self._until(settled=False)
        return self.nested.result

    @awaited("run.settled")
    async def settled(self) -> Run:
        """Wait until the run has ended or needs an answer, and return the run."""
        await self._until(settled=True)
        return self

    async def _until(self, *, settled: bool) -> None:
        runs, started = self.nested.runs, self.nested.started
        if not runs.is_ended(started):
            slot = in_slot.get()
            await runs.here(lambda: runs.wait(started, settled=settled, slot=slot))

    def wait(self) -> Result:
        """Wait for the result in synchronous code, on a thread without the run's event loop."""
        runs, started = self.nested.runs, self.nested.started
        if not runs.is_ended(started):
            slot = in_slot.get()
            runs.here_sync(lambda: runs.wait(started, slot=slot), "waiting for a run")
        return self.nested.result

    @awaited("run.cancel")
    async def cancel(self, *, by: str = "code") -> None:
        """Cancel this run; the outer run continues."""
        runs, started = self.nested.runs, self.nested.started
        await runs.here(lambda: runs.cancel(started, by))

    def retry(self, *, history: Any = None) -> Run:  # noqa: ARG002 - of Run
        """Raise an error: only the outermost run can be retried."""
        raise self._alone("retried")

    def fork(self, *, at: Any = None) -> Run:  # noqa: ARG002 - of Run
        """Raise an error: only the outermost run can be forked."""
        raise self._alone("forked")

    def view(self) -> None:
        """Do nothing: the card of the outermost run shows this run."""

    def _ipython_display_(self) -> None:
        return None

    def _alone(self, what: str) -> UsageError:
        return UsageError(
            f"{self!r} runs inside a tool call and cannot be {what} separately. Use the outermost run, or start "
            "this one with nested=False"
        )
