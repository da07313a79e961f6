"""Taking up a run that a store holds."""

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
from nbagent.core.base.keywords import tells
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.default import Kept, kept_in, near_runs
from nbagent.core.journal.journal import Journal, Store, finished
from nbagent.core.journal.rows import Searching
from nbagent.core.known import known_named
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.result import Receipt
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.scripted_answers import Answers
from nbagent.core.run.session import Session, held, open_sessions

from .by_record import answer_by_record

logger = logging.getLogger("nbagent")


@tells("nb.answer_external")
def answer_external(
    token: str,
    value: Any = None,
    *,
    error: str | None = None,
    agent: Agent | Flow[..., Any] | None = None,
    store: Kept | None = None,
) -> Receipt:
    """Answer the interrupt that waits for this token, and let its run go on; from any thread.

    Args:
        token: the ``ctx.external_token`` that the tool handed out.
        value: the answer, as if the tool had returned it.
        error: instead of a value: why there is none; the model is told just that.
        agent: whose runs are looked through in ``store``, where this process does not hold the run; it goes on
            here.
        store: where the journals of those are; the agent's by default. Without ``agent`` the answer is kept
            there, checked by what the journal says of the question, for whoever drives the run or opens it next.

    Returns:
        A receipt, as ``Run.respond`` gives.

    Raises:
        NotPending: nothing that is known here waits for this token.
        Conflict: it was used already, or its interrupt was settled otherwise.
        InvalidAnswer: the value does not fit the tool, the token or error is no text, or there is a value
            and an error; the token can be used again.
    """
    given: object = token
    if not isinstance(given, str) or not token:
        raise InvalidAnswer(f"A token must be a string, got {type(given).__name__}")
    answer = _answer(value, error)
    digest = token_digest(token)
    sessions = open_sessions()
    for session in sessions:
        event = _waiting(session.state.open, digest)
        if event is not None:
            return Receipt(session.resolve(event.id, answer, by="external"))
    place = agent.store if store is None and agent is not None else checked_store(store)
    stored = [] if place is None else _stored(place, digest)
    for journal in stored:
        event = _waiting([] if journal.state.outcome else journal.state.pending, digest)
        if event is None:
            continue
        if agent is None:
            stamp = ("external", time.time())
            return Receipt(finished(answer_by_record(journal, event.id, answer, stamp)))
        run = agent._take_up(journal, show=False)  # noqa: SLF001 - the engine's own door
        return run.resolve(event.id, answer, by="external")
    raise _refusal(sessions, stored, digest, place)


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


def _stored(place: Store, digest: str) -> list[Journal]:
    """The journals of the runs that may have asked for a token, of those that nobody here holds."""
    journals = []
    for run_id in place.search(digest) if isinstance(place, Searching) else place.run_ids():
        if held(run_id, place) is None:
            journal = Journal(run_id, place)
            with suppress(
                StoreError, UsageError
            ):  # a damaged run has no say in another one's token
                journal.catch_up()
                journals.append(journal)
    return journals


def _refusal(
    sessions: list[Session], stored: list[Journal], digest: str, place: Store | None
) -> NotPending | Conflict:
    """Why a token answers nothing: it was used, or nobody knows it."""
    for session in sessions:
        used = _waiting(_asked(session.journal), digest)
        if used is not None and any(used.id == each.id for each in session.state.open):
            return _of_elsewhere(session.run_id, used)
        if used is not None:
            return Conflict(
                f"This token is used, or can no longer be answered: {session.why_not_pending(used.id)}"
            )
    for journal in stored:
        used = _waiting(_interrupts(journal.read()), digest)
        if used is not None and any(used.id == each.id for each in journal.state.open):
            return _of_elsewhere(journal.run_id, used)
        if used is not None:
            return Conflict("This token is used, or its interrupt is already settled")
    if place is not None:
        return NotPending(
            f"No interrupt in {place!r} is waiting for this token. Is the token complete, and from this store?"
        )
    return NotPending(
        "No interrupt in this process is waiting for this token. If the run is in a store, pass store=, and "
        "agent= to continue it here"
    )


def _of_elsewhere(run_id: str, event: Interrupted) -> Conflict:
    """Why a token does not answer what still waits."""
    return Conflict(
        f"This token is from before run {run_id!r} was imported from its document, so it cannot be used here. "
        f"Answer interrupt {event.id!r} ({event.tool_name!r}) with run.respond, or restart it, so that its tool "
        "creates a new token"
    )


def _asked(journal: Journal) -> list[Interrupted]:
    try:
        return _interrupts(journal.read())
    except StoreError:  # its store is closed by now: it has no say in another run's token
        return []


def _interrupts(events: list[StoredEvent]) -> list[Interrupted]:
    return [event for event in events if isinstance(event, Interrupted)]


async def answer_stored(
    journal: Journal,
    interrupt_id: str,
    resolution: AnyResolution,
    *,
    by: str,
    agent: Agent | Flow[..., Any] | None = None,
    by_record: bool = False,
) -> Resolved:
    """Answer a question of a run that a store holds, and let it go on where it can.

    A run that this process holds takes the answer itself. Else it goes on here with ``agent``, unless another
    process is at it, which then goes on; without one the answer is kept, checked by what the journal says of the
    question, for whoever drives the run or takes it up next.

    Args:
        journal: the run's.
        interrupt_id: what to answer.
        resolution: the answer.
        by: who answers.
        agent: whose tools and model the run goes on with.
        by_record: whether another process goes on with it: what this one holds of it only follows.

    Returns:
        The event, once it is stored.

    Raises:
        Conflict: it was answered already, and the message says by whom and when.
        NotPending, InvalidAnswer: nothing was changed.
        StoreError: it could not be stored.
    """
    session = None if by_record else held(journal.run_id, journal.store)
    if session is not None:
        answered = session.resolve(interrupt_id, resolution, by=by)
    elif agent is not None:
        run = await open_run(journal.run_id, agent=agent, store=journal.store, show=False)
        answered = session_of(run).resolve(interrupt_id, resolution, by=by)
    else:
        await run_in_thread(journal.catch_up)
        stamp = (by, time.time())
        return await run_in_thread(
            lambda: answer_by_record(journal, interrupt_id, resolution, stamp)
        )
    event = await asyncio.wrap_future(answered)
    assert isinstance(event, Resolved)  # what an answer is stored as
    return event


def _named_by(journal: Journal) -> Agent | Flow[..., Any]:
    """The newest agent or flow of this process that has the name of the run's.

    Raises:
        UsageError: there is none.
    """
    state = journal.state
    name = state.agent or ("" if state.behind is None else state.behind.agent)
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
@tells("nb.open_run")
async def open_run(
    run_id: str,
    *,
    agent: Agent | Flow[..., Any] | None = None,
    store: Kept | None = None,
    answers: Answers = None,
    attended: bool | None = None,
    show: bool = True,
    context: Any = None,
    take_over: bool = False,
) -> Run:
    """A handle on a run that a store holds: paused, under way elsewhere, or ended.

    What waits for a person goes on waiting. What only the engine is needed for goes on here, unless
    another process is at it; then the handle follows what that one does. A call that was started by
    a process that is gone is run again only if its tool is idempotent; else a person is asked about it.

    Args:
        run_id: ``run.id`` of the run.
        agent: whose model and tools go on with it; the flow, for a run of one. By default the newest agent, or
            flow, of this process that has the name of the run's.
        store: where its journal is; by default the agent's, or what ``nb.use_store`` says.
        answers: as in ``Agent.run``; also for what waits already.
        attended: whether a person can answer; detected by default.
        show: whether the card appears at once.
        context: as in ``Agent.run``: none is stored.
        take_over: drive the run here from now on, as ``run.take_over()`` does: for one whose process lives, but
            is stuck or asleep.

    Raises:
        UsageError: the store has no such run, or nothing here has the name of its agent.
        ToolError: an answer restarts a tool that the agent does not have.
        StoreError: the journal cannot be read, or a newer nbagent has written it.
    """
    kept = checked_store(store)
    if kept is None:
        kept = kept_in() if agent is None else agent.store
    journal = Journal(run_id, kept)
    try:
        await run_in_thread(journal.catch_up)
    except UsageError as error:
        raise UsageError(f"{error}{await run_in_thread(lambda: near_runs(run_id, kept))}") from None
    agent = _named_by(journal) if agent is None else agent
    if isinstance(agent, Agent):
        try:
            await agent._know_tools(journal)  # noqa: SLF001 - as below
        except McpError as error:  # the run can be looked at, and all else of it be answered
            logger.warning("%s", error)
    options = {"answers": answers, "attended": attended, "show": show, "context": context}
    run = agent._take_up(journal, **options)  # noqa: SLF001 - the engine's own door
    if take_over:
        await run.take_over()
    return run
