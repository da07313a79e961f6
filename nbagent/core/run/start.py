"""The start of a live run, or its opening from a store: with its loop, its journal and its card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from nbagent.core.arguments import checked_store
from nbagent.core.base.errors import (
    HistoryTooLong,
    NbagentError,
    RunNotFinished,
    ToolError,
    UnansweredInterrupts,
    UsageError,
)
from nbagent.core.base.events import RowOf, RunFailed
from nbagent.core.base.file_parts import Content
from nbagent.core.base.messages import Message, is_prompt
from nbagent.core.call.threads import private_loop, running_loop
from nbagent.core.engine.runs import StartedRuns
from nbagent.core.journal.default import report_place
from nbagent.core.journal.journal import Journal, finished, is_slow
from nbagent.core.journal.store import RunDeleted, Store
from nbagent.core.state.pause_record import closed_messages
from nbagent.core.tools.attachments import Prompt, prompt_content
from nbagent.core.tools.rule_check import check_rules
from nbagent.core.tools.spec import RunSpec, as_started, check_cost, new_id
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.toolbox import is_complete

from .generate import Pending, RunPending, beginning
from .host import Place, current_host, is_attended, is_there, started
from .nested import InnerTool, NestedRun, run_inside, runs_of_body
from .result import Result
from .run import Run, session_of
from .run_ids import RunRequest, checked_id, found
from .scripted_answers import Answers, check_answers
from .session import Session, find_session


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a live run; see ``Agent.run``."""

    after: Run | None = None
    pending: RunPending = "wait"
    store: Store | None = None
    answers: Answers = None
    attended: bool | None = None
    show: bool = True
    on_rerun: Literal["cancel", "keep"] = "cancel"
    messages: Sequence[Any] | None = None
    context: Any = None
    nested: bool = True
    background: bool = False
    id: str | None = None
    """The run's id in its store; None for a new id."""
    is_new: bool = False
    """True to refuse an existing run of this id, instead of opening it."""
    row: RowOf | None = None
    """The row of a batch to which the run belongs. Such a run belongs to no cell."""
    send_again: Callable[[], Run] | None = None
    """With ``pending="queue"``: sends the prompt again, if it turns out only later that the run before has ended."""

    def check(self, spec: RunSpec) -> None:
        """Check the options.

        Raises:
            UsageError: an option is not valid; the message names it.
        """
        if self.on_rerun not in ("cancel", "keep"):
            raise UsageError(f"on_rerun must be 'cancel' or 'keep', got {self.on_rerun!r}")
        if self.nested not in (True, False):
            raise UsageError(f"nested must be True or False, got {self.nested!r:.80}")
        if self.background not in (True, False):
            raise UsageError(f"background must be True or False, got {self.background!r:.80}")
        if self.attended not in (True, False, None):
            raise UsageError(f"attended must be True, False or None, got {self.attended!r:.80}")
        if self.pending != "wait":
            check_pending(self.pending, "'wait', ")
        if self.id is not None:
            checked_id(self.id, "a run's")
        checked_store(self.store)
        check_rules(spec, spec.tools)
        check_cost(spec)
        check_answers(self.answers, spec.tools)

    def applied_to(self, spec: RunSpec) -> RunSpec:
        """The spec of a run that starts with these options."""
        spec = as_started(spec)
        return spec if self.context is None else replace(spec, context=self.context)


def launch(
    spec: RunSpec, prompt: Prompt | None, options: Options, tool: InnerTool | None = None
) -> Run:
    """Start a run; or, with ``pending="queue"``, send the prompt to the previous run if that has not ended.

    Args:
        spec: the agent's spec; the store is in the options.
        prompt: the prompt; None continues the options' messages.
        options: the other options of the run.
        tool: returns the agent as a tool, for a run that a tool's body starts; None for a flow.

    Raises:
        UsageError: a body starts a flow, or uses an option that only a separate run has.
    """
    runs = runs_of_body(nested=options.nested)
    if runs is not None:
        return _launched_inside(runs, spec, prompt, options, _tool_inside(spec, tool))
    return launch_apart(spec, prompt, options, blocking=False)


def launch_apart(spec: RunSpec, prompt: Prompt | None, options: Options, *, blocking: bool) -> Run:
    """Start a separate run, even inside a tool's body; ``blocking`` if this thread waits for the run."""
    run, begin = _prepared(spec, prompt, options, blocking=blocking)
    begin()
    return run


def launch_and_wait(
    spec: RunSpec, prompt: Prompt | None, options: Options, tool: InnerTool | None = None
) -> Result:
    """Start a run and wait for its result in synchronous code. From its first event on, Ctrl+C cancels the run."""
    runs = runs_of_body(nested=options.nested)
    if runs is not None:
        runs.check_thread("run_sync")
        return _launched_inside(runs, spec, prompt, options, _tool_inside(spec, tool)).wait()
    run, begin = _prepared(spec, prompt, options, blocking=True)
    with session_of(run).stopped_by_keyboard():
        begin()
        return run.wait()


def _tool_inside(spec: RunSpec, tool: InnerTool | None) -> Tool[..., Any]:
    """The tool of a run that a body starts."""
    if tool is None:
        name = spec.agent
        raise UsageError(
            f"Inside a tool's body, call a flow with `await ctx.call({name}.as_tool(), …)`, so that its steps and "
            f"questions belong to that call. To start a separate run, use {name}.with_options(nested=False)"
        )
    return tool()


def _launched_inside(
    runs: StartedRuns, spec: RunSpec, prompt: Prompt | None, options: Options, tool: Tool[..., Any]
) -> Run:
    """Start a run inside the call of the current body."""
    options.check(spec)
    if options.background:
        raise UsageError("background=True needs a separate run. Pass nested=False too")
    if options.id is not None:
        raise UsageError("id= needs a separate run. Pass nested=False too")
    if options.pending not in ("wait", "raise"):
        raise UsageError(
            f"pending={options.pending!r} needs a separate run. Inside a tool's body, wait for the previous run, or "
            "pass nested=False"
        )
    if options.messages is not None:
        raise UsageError(
            "messages= needs a separate run. Inside a tool's body, continue with after=, or pass nested=False"
        )
    spec, text = options.applied_to(spec), prompt_content(prompt)
    history = () if options.after is None else _history(_checked_after(options.after))
    attended = is_attended(
        current_host(), attended=options.attended, answers=options.answers, show=options.show
    )
    return run_inside(runs, tool, spec, text, history, None if attended else options.answers)


def _prepared(
    spec: RunSpec, prompt: Prompt | None, options: Options, *, blocking: bool
) -> tuple[Run, Callable[[], None]]:
    """The existing run, the previous run that got the prompt, or a new run; and the function that begins it.

    With ``blocking`` the caller waits on this thread, so the run needs another loop.
    """
    options.check(spec)
    spec = options.applied_to(spec)
    after = None if options.after is None else _checked_after(options.after)
    asked = None if options.id is None or options.is_new else _asked(spec, prompt, options)
    is_unknown = (  # a slow store says only later whether it has the run
        asked is not None
        and is_slow(options.store)
        and running_loop() is not None
        and find_session(options.id or "", options.store) is None
    )
    opened = None if asked is None or is_unknown else _opened(spec, asked, options)
    if opened is not None:
        return opened
    may_be_left_out = options.messages is not None or is_unknown
    text = None if prompt is None and may_be_left_out else prompt_content(prompt)
    if after is not None and options.messages is not None:
        raise UsageError("Got both after= and messages=. Pass only one of them")
    if after is not None and text and options.pending == "queue":
        send_again = options.send_again or (
            lambda: launch_apart(spec, text, options, blocking=blocking)
        )
        if session_of(after).send(text, send_again):
            return after, lambda: None
    journal = Journal(options.id or new_id(), options.store)
    run = _handle(spec, journal, options, is_apart=blocking or options.background)
    start = _Start(session_of(run), text, options, after, asked, is_unknown=is_unknown)
    return run, partial(start.begin, run)


def _handle(spec: RunSpec, journal: Journal, options: Options, *, is_apart: bool) -> Run:
    """A handle of a run, for the current host; ``is_apart`` if the run needs another loop than this code's."""
    host, answers = current_host(), options.answers
    attended = is_attended(host, attended=options.attended, answers=answers, show=options.show)
    is_person_there = is_there(host, attended=options.attended)
    loop = private_loop() if is_apart else host.loop(attended=is_person_there)
    return Run(Session(spec, journal, Place(host, attended, loop), answers=answers))


class _Start:
    """The start of a new run: at once, or after the store was read or the previous run's questions are rejected."""

    def __init__(
        self,
        session: Session,
        text: Content | None,
        options: Options,
        after: Run | None,
        asked: RunRequest | None,
        *,
        is_unknown: bool,
    ) -> None:
        self._session = session
        self._text = text
        self._options = options
        self._after = after
        self._asked = asked
        self._cell, _ = session.host.cell() or ("", "")
        self._write_first: Callable[[], None] = self._look_first
        if is_unknown:
            return
        dismissed = self._dismiss() if options.pending == "reject" else None
        if dismissed is not None and not dismissed.done():
            self._write_first = partial(self._wait_for, dismissed)
            return
        if dismissed is not None:
            dismissed.result()
        self._write_first = self._first_event()

    def begin(self, run: Run) -> None:
        """Start the run, and show it."""
        options, session = self._options, self._session
        if options.row is None:
            on_rerun = options.on_rerun if self._asked is None else "keep"
            session.host.started(run, on_rerun=on_rerun)
        if options.attended is False:
            started.alone.add(run)
        report_place(session.journal.run_id, session.journal.store)
        self._write_first()
        if session.attended and options.show:
            session.host.show(run)

    def _first_event(self) -> Callable[[], None]:
        """Check the arguments, and return the function that writes the run's first event."""
        after, options, session = self._after, self._options, self._session
        history = options.messages or ()
        if after is not None:
            before = session_of(after)
            is_running = before.state.outcome is None and not isinstance(after, NestedRun)
            if is_running and self._text is not None and options.pending == "wait":
                return partial(session.start_behind, before, self._text)
            history = _history(after)
        pending = "raise" if options.pending == "wait" else options.pending
        return partial(
            session.start,
            beginning(session.spec, history, self._text, pending),
            after=after.id if after is not None else None,
            on_started_elsewhere=(
                None if self._asked is None else partial(self._asked.check, session.journal)
            ),
            cell=self._cell,
            row=options.row,
        )

    # --- later: a run that cannot start gets an ``error``

    def _dismiss(self) -> Future[None]:
        """Reject the previous run's questions; done at once if there is no previous run."""
        return finished(None) if self._after is None else session_of(self._after).dismiss()

    def _wait_for(self, dismissed: Future[None]) -> None:
        self._session.expect_start()
        self._session.then(dismissed, self._start_soon, self._fail)

    def _look_first(self) -> None:
        """Start the run, unless the store has a run of this id: then follow that one."""
        session, asked = self._session, self._asked
        session.expect_start()
        assert asked is not None  # only a run with a chosen id may be there already
        there = Journal(session.run_id, session.journal.store)

        def found(_: object) -> None:
            asked.check(there)
            _check_opens(session.spec, there)
            session.journal.catch_up(there.read())
            session.note_started()
            session.call_soon(session.follow_stored)

        def not_there(error: BaseException) -> None:
            if there.state.position or not isinstance(error, UsageError):
                self._fail(error)
            elif asked.is_nothing:
                self._fail(asked.missing(session.journal))
            elif self._options.pending == "reject":
                session.submit_own(self._dismiss, self._start_soon, self._fail)
            else:
                self._start()

        session.submit_own(there.look, found, not_there)

    def _start_soon(self, _: object) -> None:
        self._session.call_soon(self._start)

    def _start(self) -> None:
        try:
            self._first_event()()
        except NbagentError as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._session.fail_to_start(error)
        self._session.note_started(error)


def _asked(spec: RunSpec, prompt: Prompt | None, options: Options) -> RunRequest:
    """The request for a run with a chosen id that may already exist."""
    earlier = options.messages
    call = earlier[-1]["content"][-1]["input"] if spec.model is None and earlier else None
    return RunRequest(spec, None if prompt is None else prompt_content(prompt), call)


def _opened(
    spec: RunSpec, asked: RunRequest, options: Options
) -> tuple[Run, Callable[[], None]] | None:
    """The existing run of the options' id, and the function that shows the run; None if there is no such run.

    Raises:
        UsageError: the existing run has another agent or prompt.
    """
    assert options.id is not None  # checked by the caller
    assert options.store is not None
    there = found(options.id, options.store)
    if isinstance(there, Session):
        try:
            asked.check(there.journal)
        except RunDeleted as error:
            there.missing_error, there = error, None
    if there is None:
        if asked.is_nothing and options.messages is None:
            raise asked.missing(Journal(options.id, options.store))
        return None
    if isinstance(there, Journal):
        asked.check(there)
        return follow_stored(spec, there, options), lambda: None
    if options.answers is not None and there.status == "interrupted":
        journal = Journal(options.id, options.store)
        journal.catch_up(there.journal.read())
        return follow_stored(spec, journal, options), lambda: None
    run = there.handle() or Run(there)
    show = options.show and there.attended
    return run, (lambda: there.host.show(run)) if show else (lambda: None)


def follow_stored(spec: RunSpec, journal: Journal, options: Options) -> Run:
    """Open a run whose journal was read from its store; see ``nb.open_run``."""
    _check_opens(spec, journal)
    run = _handle(options.applied_to(spec), journal, options, is_apart=options.background)
    session = session_of(run)
    if options.row is None:
        session.host.started(run, on_rerun="keep", is_opened=True, only_looks=options.id is None)
        if options.attended is False:
            started.alone.add(run)
    report_place(run.id, journal.store)
    session.follow_stored()
    if session.attended and options.show:
        session.host.show(run)
    return run


def _check_opens(spec: RunSpec, journal: Journal) -> None:
    """Check that a run is of this agent, and that the agent has the tools that the run needs next."""
    if journal.state.flow != (spec.model is None):
        kind = "flow" if journal.state.flow else "agent"
        raise UsageError(
            f"{journal.run_id!r} is a run of the {kind} {journal.state.agent!r}. Pass this {kind} as agent=, not "
            f"{spec.agent!r}"
        )
    state = journal.state
    name = state.agent or ("" if state.queue_event is None else state.queue_event.agent)
    if name and name != spec.agent:
        raise UsageError(
            f"{journal.run_id!r} is a run of {name!r}, not of {spec.agent!r}. Open it with an agent of that name, "
            f"or rename this agent: nb.Agent(…, name={name!r}). If {name!r} is defined in this process, leave out agent="
        )
    for call in journal.state.calls.values():
        known = call.name in spec.tools or not is_complete(spec.tools)
        if call.status == "ready" and call.resumed is not None and not known:
            raise ToolError(
                f"{spec.agent!r} has no tool {call.name!r}, which a paused call of this run needs. Add it to the agent "
                "and open the run again"
            )


def check_pending(pending: Any, more: str = "") -> None:
    """Check that ``pending`` is a valid value; ``more`` has further valid values for the message.

    Raises:
        UsageError: the value is not valid; the message has the valid values.
    """
    if pending not in get_args(Pending):
        raise UsageError(f"pending must be {more}'raise', 'reject' or 'queue', got {pending!r:.80}")


def _checked_after(after: Any) -> Run:
    """The previous run that a prompt continues."""
    if not isinstance(after, Run):
        raise UsageError(f"after= must be a run, got {after!r:.80}")
    if session_of(after).spec.model is None:
        raise UsageError(
            f"{after!r} is a run of a flow, and a flow has no conversation to continue"
        )
    return after


def _history(after: Run) -> tuple[Message, ...]:
    if after.interrupts:
        raise UnansweredInterrupts(
            f"{after!r} is waiting for answers: {', '.join(i.tool_name for i in after.interrupts)}. Answer or cancel "
            "it first, or pass pending='wait', 'reject' or 'queue'",
            interrupts=after.interrupts,
        )
    if after.status in ("queued", "running"):
        raise RunNotFinished(
            f"{after!r} has not ended. Use `await run` before you continue it, or pass pending='wait'"
        )
    state = session_of(after).state
    if state.queue_event is not None:
        raise UsageError(
            f"{after!r} never started, because it was cancelled or its previous run failed. It has no "
            "conversation to continue. Run its cell again, or pass the previous run as after="
        )
    messages = closed_messages(state)
    if isinstance(state.outcome, RunFailed) and state.outcome.error == HistoryTooLong.__name__:
        while messages and is_prompt(messages[-1]):  # the server refused it: nobody has answered it
            messages = messages[:-1]
    return messages
