"""Answers to runs whose agent is not in this process, checked against the journal."""

from __future__ import annotations

from nbagent.core.base.events import Interrupted, Resolved, StoredEvent
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import AnyResolution, answer, next_driver
from nbagent.core.run.lost_calls import is_idle
from nbagent.core.state.state import RunState


def answer_by_record(
    journal: Journal, interrupt_id: str, resolution: AnyResolution, stamp: tuple[str, float]
) -> Resolved:
    """Answer an interrupt of a run whose agent is not in this process; another process continues the run.

    If no process is running the run, the answer names no process. Then the next process that continues the
    run first takes the run over.

    Do not call this function on an event loop, because it waits for the store.

    Args:
        journal: the run's journal, read beforehand.
        interrupt_id: the id of the question.
        resolution: the answer.
        stamp: the source of the answer, and its time (Unix seconds).

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
