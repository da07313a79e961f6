"""A journal as one attempt at a call writes to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .errors import StoreError
from .events import StoredEvent
from .journal import AnyJournal
from .standing import RunState


class Writes:
    """Keeps that a write failed, whatever the tool's own ``except`` makes of that.

    A ``StoreError`` that the tool got elsewhere, such as from a run of its own, is its own failure.
    """

    def __init__(self, journal: AnyJournal) -> None:
        self.failure: StoreError | None = None
        """Why this attempt cannot be gone on with."""
        self._journal = journal

    @property
    def state(self) -> RunState:
        """The journal's."""
        return self._journal.state

    def commit(self, decide: Callable[[RunState], Sequence[StoredEvent]]) -> Sequence[StoredEvent]:
        """See ``Journal.commit``."""
        try:
            return self._journal.commit(decide)
        except StoreError as error:
            self.failure = error
            raise
