"""Taking up a run that a store holds."""

from __future__ import annotations

from .agent import Agent
from .journal import Journal, Store
from .run import Run
from .script import Answers
from .threads import run_in_thread


async def open_run(
    run_id: str,
    *,
    agent: Agent,
    store: Store | None = None,
    answers: Answers = None,
    attended: bool | None = None,
    show: bool = True,
) -> Run:
    """A handle on a run that a store holds: paused, under way elsewhere, or ended.

    What waits for a person goes on waiting. What only the engine is needed for goes on here, unless
    another process is at it; then the handle follows what that one does. A call that was started by
    a process that is gone is not run again: awaiting the run says so.

    Args:
        run_id: ``run.id`` of the run.
        agent: whose model and tools go on with it.
        store: where its journal is; the agent's by default.
        answers: as in ``Agent.run``; also for what waits already.
        attended: whether a person can answer; detected by default.
        show: whether the card appears at once.

    Raises:
        UsageError: the store has no such run.
        ToolError: an answer restarts a tool that the agent does not have.
        StoreError: the journal cannot be read, or a newer nbagent has written it.
    """
    journal = Journal(run_id, store or agent.journals)
    await run_in_thread(journal.catch_up)
    return agent.take_up(journal, answers=answers, attended=attended, show=show)
