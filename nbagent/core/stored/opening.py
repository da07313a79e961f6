"""Open a stored run, and answer its questions."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from contextlib import suppress
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.arguments import checked_store
from nbagent.core.base.awaited import awaited
from nbagent.core.base.errors import (
    Conflict,
    InvalidAnswer,
    McpError,
    NotPending,
    StoreError,
    UsageError,
)
from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.interrupts import Respond, token_digest
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.origin import PERSON, current_mark, marked
from nbagent.core.base.process import this_process
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.default import StoreLike, current_store, near_runs
from nbagent.core.journal.journal import Journal, finished
from nbagent.core.journal.rows import Searching
from nbagent.core.journal.store import Store
from nbagent.core.registry import known_named
from nbagent.core.run.answers import AnyResolution, Stamp, answer, next_driver
from nbagent.core.run.lost_calls import is_idle
from nbagent.core.run.result import Receipt
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.run.session import Session, all_sessions, find_session
from nbagent.core.state.state import RunState

logger = logging.getLogger("nbagent")


@checks_keywords("nb.answer_external")
def answer_external(
    token: str,
    value: Any = None,
    *,
    error: str | None = None,
    agent: Agent | Flow[..., Any] | None = None,
    store: StoreLike | None = None,
) -> Receipt:
    """Answer the interrupt of a token, so that its run continues. Works on any thread.

    Args:
        token: the ``ctx.external_token`` that the tool passed on.
        value: the answer, as if the tool had returned it.
        error: an error instead of a value; the model receives only this text.
        agent: the agent that continues the run in this process, if the run is not open in this process yet.
            Without an agent, the answer is checked against the journal and stored there. The run then continues
            in the process that is running it or opens it next.
        store: the store to search if no run that is open in this process has the token. By default it is the
            agent's store; without an agent, no store is searched.

    Returns:
        A receipt, as from ``Run.respond``.

    Raises:
        NotPending: no known interrupt has this token.
        Conflict: the token was already used, or its question was already answered.
        InvalidAnswer: the value does not match the tool, the token or error is not a string, or there are
            both a value and an error. The token can still be used.
    """
    given: object = token
    if not isinstance(given, str) or not token:
        raise InvalidAnswer(f"A token must be a non-empty string, got {type(given).__name__}")
    resolution = _answer(value, error)
    digest = token_digest(token)
    sessions = all_sessions()
    searched_store = agent.store if store is None and agent is not None else checked_store(store)
    with marked(current_mark() or PERSON):  # whoever has the token may answer, on any thread
        for session in sessions:
            event = _waiting(session.state.open, digest)
            if event is not None:
                return Receipt(session.resolve(event.id, resolution, by="external"))
        stored = [] if searched_store is None else _stored(searched_store, digest)
        for journal in stored:
            event = _waiting([] if journal.state.outcome else journal.state.pending, digest)
            if event is None:
                continue
            if agent is None:
                stamp = Stamp.of("external", time.time())
                return Receipt(finished(answer_by_record(journal, event.id, resolution, stamp)))
            run = agent._open_stored(journal, show=False)  # noqa: SLF001 - internal to the engine
            return run.resolve(event.id, resolution, by="external")
    raise _refusal(sessions, stored, digest, searched_store)


def _answer(value: Any, error: Any) -> Respond:
    if error is None:
        return Respond(output=value)
    if not isinstance(error, str) or not error.strip():
        raise InvalidAnswer(f"error= must be a string that explains the failure, got {error!r:.80}")
    if value is not None:
        raise InvalidAnswer("Got both a value and error=. Pass only one")
    return Respond(error=error)


def _waiting(events: list[Interrupted], digest: str) -> Interrupted | None:
    for event in events:
        if event.external is not None and hmac.compare_digest(event.external, digest):
            return event
    return None


def _stored(store: Store, digest: str) -> list[Journal]:
    """The journals of runs that may have this token and are not open in this process."""
    journals = []
    for run_id in store.search(digest) if isinstance(store, Searching) else store.run_ids():
        if find_session(run_id, store) is None:
            journal = Journal(run_id, store)
            # a damaged run does not matter for the token of another run
            with suppress(StoreError, UsageError):
                journal.catch_up()
                journals.append(journal)
    return journals


def _refusal(
    sessions: list[Session], stored: list[Journal], digest: str, searched_store: Store | None
) -> NotPending | Conflict:
    """The error for a token without an open question: the token was used, or is unknown."""
    for journal in [*(session.journal for session in sessions), *stored]:
        used = _waiting(_asked(journal), digest)
        if used is None:
            continue
        if any(used.id == each.id for each in journal.state.open):
            return Conflict(
                f"This token was created before run {journal.run_id!r} was imported, and the imported run does not accept "
                f"it. Answer interrupt {used.id!r} ({used.tool_name!r}) with run.respond, or restart it, so that its "
                "tool creates a new token"
            )
        session = next((each for each in sessions if each.journal is journal), None)
        if session is None:
            return Conflict("This token was already used, or its question is closed")
        return Conflict(
            f"This token was already used, or its question was closed: {session.why_not_pending(used.id)}"
        )
    if searched_store is not None:
        return NotPending(
            f"No interrupt in {searched_store!r} is waiting for this token. Is the token complete, and from this store?"
        )
    return NotPending(
        "No interrupt in this process is waiting for this token. If the run is in a store, pass store=, and "
        "agent= to continue it here"
    )


def _asked(journal: Journal) -> list[Interrupted]:
    """All questions of a run, also the answered ones; empty if its store was closed."""
    try:
        return [event for event in journal.read() if isinstance(event, Interrupted)]
    # the run's store was closed, which does not matter for the token of another run
    except StoreError:
        return []


async def answer_stored(
    journal: Journal,
    interrupt_id: str,
    resolution: AnyResolution,
    *,
    by: str,
    agent: Agent | Flow[..., Any] | None = None,
    journal_only: bool = False,
) -> Resolved:
    """Answer a question of a stored run, and continue the run if possible.

    If the run is open in this process, its session stores the answer. Otherwise ``agent`` continues the run in
    this process, unless another process is running it.

    Args:
        journal: the run's journal.
        interrupt_id: the id of the question.
        resolution: the answer.
        by: the source of the answer.
        agent: the agent, whose tools and model continue the run. Without an agent, the answer is checked against
            the journal and stored there. The run then continues in the process that is running it or opens it next.
        journal_only: True to store the answer in the journal even if the run is open in this process, because the
            run continues elsewhere; do not pass ``agent`` then.

    Returns:
        The stored event.

    Raises:
        Conflict: the question was already answered; the message says by whom and when.
        NotPending, InvalidAnswer: nothing was changed.
        StoreError: the answer could not be stored.
    """
    session = None if journal_only else find_session(journal.run_id, journal.store)
    if session is not None:
        answered = session.resolve(interrupt_id, resolution, by=by)
    elif agent is not None:
        run = await open_run(journal.run_id, agent=agent, store=journal.store, show=False)
        answered = session_of(run).resolve(interrupt_id, resolution, by=by)
    else:
        await run_in_thread(journal.catch_up)
        stamp = Stamp.of(by, time.time())
        return await run_in_thread(
            lambda: answer_by_record(journal, interrupt_id, resolution, stamp)
        )
    event = await asyncio.wrap_future(answered)
    assert isinstance(event, Resolved)  # the event of an answer
    return event


def answer_by_record(
    journal: Journal, interrupt_id: str, resolution: AnyResolution, stamp: Stamp
) -> Resolved:
    """Answer an interrupt of a run whose agent is not in this process; another process continues the run.

    If no process is running the run, the answer names no process. Then the next process that continues the
    run first takes the run over.

    Do not call this function on an event loop, because it waits for the store.

    Args:
        journal: the run's journal, read beforehand.
        interrupt_id: the id of the question.
        resolution: the answer.
        stamp: the source of the answer, and its time.

    Returns:
        The stored event.

    Raises:
        Conflict, NotPending, InvalidAnswer: as in ``answer``; nothing was changed.
        StoreError: the answer could not be stored.
    """

    def owner(state: RunState, event: Interrupted) -> str:
        driver = next_driver(state, event)
        if driver != this_process():
            return driver
        # this process is only the default, and must not continue the run
        return "" if journal.is_vacant or is_idle(state) else journal.driver

    def decide(state: RunState) -> list[StoredEvent]:
        return [answer(state, interrupt_id, resolution, None, stamp, owner=owner)]

    [settled] = journal.commit(decide)
    assert isinstance(settled, Resolved)  # ``decide`` returned it
    return settled


def _named_by(journal: Journal) -> Agent | Flow[..., Any]:
    """The newest agent or flow of this process that has the name in the journal."""
    state = journal.state
    name = state.agent or ("" if state.queue_event is None else state.queue_event.agent)
    found: Agent | Flow[..., Any] | None
    found = known_named(Flow, name) if state.flow else known_named(Agent, name)
    if found is None:
        word = "flow" if state.flow else "agent"
        raise UsageError(
            f"{journal.run_id!r} is a run of the {word} {name!r}, and this process has none of that name. Define it "
            "first, or pass agent="
        )
    return found


@awaited("nb.open_run")
@checks_keywords("nb.open_run")
async def open_run(
    run_id: str,
    *,
    agent: Agent | Flow[..., Any] | None = None,
    store: StoreLike | None = None,
    answers: Answers = None,
    attended: bool | None = None,
    show: bool = True,
    context: Any = None,
    take_over: bool = False,
) -> Run:
    """Open a stored run: paused, running in another process, or ended.

    Open questions stay open. Work that needs no person continues in this process. If another process is running
    the run, this handle follows that process. If a process died during a call, the call runs again only if its
    tool is idempotent; otherwise a person is asked.

    Args:
        run_id: ``run.id`` of the run.
        agent: the agent (or flow) whose model and tools continue the run; by default the newest one in this
            process with the run's agent name.
        store: the store of the run; by default the agent's, or the one of ``nb.use_store``.
        answers: as in ``Agent.run``; also for questions that are already open.
        attended: True if a person can answer; detected by default.
        show: True to show the card at once.
        context: as in ``Agent.run``. The context is never stored.
        take_over: True to take the run over from a process that is stuck or asleep, as ``run.take_over()``
            does.

    Raises:
        UsageError: the store has no such run, or this process has no agent with the run's agent name.
        ToolError: an answer restarts a tool that the agent does not have.
        StoreError: the journal cannot be read, or was written by a newer nbagent.
    """
    if not isinstance(run_id, str):
        raise UsageError(f"run_id must be the id of a run, such as run.id, got {run_id!r:.80}")
    kept = checked_store(store)
    if kept is None:
        kept = current_store() if agent is None else agent.store
    journal = Journal(run_id, kept)
    try:
        await run_in_thread(journal.catch_up)
    except UsageError as error:
        raise UsageError(f"{error}{await run_in_thread(lambda: near_runs(run_id, kept))}") from None
    agent = _named_by(journal) if agent is None else agent
    if isinstance(agent, Agent):
        try:
            await agent._know_tools(journal)  # noqa: SLF001 - as below
        except McpError as error:
            # without a server's tools the run can still be shown, and questions of other tools can be answered
            logger.warning("run %r is opened without some tools: %s", run_id, error)
    options = {"answers": answers, "attended": attended, "show": show, "context": context}
    run = agent._open_stored(journal, **options)  # noqa: SLF001 - internal to the engine
    if take_over:
        await run.take_over()
    return run
