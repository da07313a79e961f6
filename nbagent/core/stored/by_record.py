"""An answer to a run whose agent this process does not have: checked by what the journal says of it."""

from __future__ import annotations

from nbagent.core.base.events import Resolved, StoredEvent
from nbagent.core.base.process import this_process
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import AnyResolution, check_in_time, check_takes_answers, resolved
from nbagent.core.run.follow import is_at_a_stand, next_driver
from nbagent.core.state.state import RunState


def answer_by_record(
    journal: Journal, interrupt_id: str, resolution: AnyResolution, stamp: tuple[str, float]
) -> Resolved:
    """Settle an interrupt of a run whose agent this process does not have; whoever drives it goes on.

    Where nobody does, the answer names no process: whoever has the run, or opens it, takes it first.

    Not for an event loop: it waits for the store.

    Args:
        journal: the run's, as it was read.
        interrupt_id: what to answer.
        resolution: the answer.
        stamp: who answers, and when (Unix seconds).

    Returns:
        The event, as it is stored.

    Raises:
        Conflict, NotPending, InvalidAnswer: as in ``resolved``; nothing was changed.
        StoreError: it could not be stored.
    """

    def decide(state: RunState) -> list[StoredEvent]:
        check_takes_answers(state, interrupt_id)
        check_in_time(state, interrupt_id, stamp)
        event = resolved(state, interrupt_id, resolution, {}, stamp, by_record=True)
        owner = next_driver(state, event)
        if owner == this_process():  # which has nothing to go on with
            owner = "" if journal.is_vacant or is_at_a_stand(state) else journal.driver
        return [event.model_copy(update={"owner": owner})]

    [answer] = journal.commit(decide)
    assert isinstance(answer, Resolved)  # it is what was decided
    return answer
