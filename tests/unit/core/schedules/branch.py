"""A run under test, its handles, and stores whose process dies or loses the connection for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.base import events
from nbagent.core.base.errors import NbagentError, StoreError
from nbagent.core.journal.journal import Group
from nbagent.core.journal.store import Append, Store
from nbagent.core.run.run import Run
from nbagent.core.state.state import RunState
from nbagent.core.tools.call_output import Chunk
from tests.unit.core.schedules.ledger import Ledger
from tests.unit.core.schedules.world import Seat


@dataclass(eq=False, repr=False)
class Branch:
    """A run, or a fork of it."""

    number: int
    run_id: str
    forked: bool = False
    seats: list[Seat] = field(default_factory=list)
    past: list[events.StoredEvent] = field(default_factory=list)
    """The journal when it was last looked at."""
    inherited: set[int] = field(default_factory=set)
    """The numbers of calls that were done before the fork."""
    shared: bool = False
    """Whether two processes ever had the run at once."""
    chunks: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict)
    """The text that streaming tools yielded, by scope and call id."""
    acts_seen: int = 0
    known: list[events.StoredEvent] = field(default_factory=list)
    """The events that were read from the store."""
    worked_out: Ledger = field(default_factory=lambda: Ledger([]))

    def __repr__(self) -> str:
        return f"<branch {self.number}: {self.run.status}>"

    @property
    def run(self) -> Run:
        """The run of the first handle."""
        run: Run = self.seats[0].run
        return run

    @property
    def state(self) -> RunState:
        """The state of the first handle."""
        state: RunState = self.seats[0].journal.state
        return state

    @property
    def journal(self) -> list[events.StoredEvent]:
        """The run's events in the store."""
        store = self.seats[0].journal.store
        with store.outage.over():
            self.known += store.read(self.run_id, len(self.known))
        return list(self.known)

    @property
    def ledger(self) -> Ledger:
        """The ledger of the journal."""
        journal = self.journal
        if len(journal) != len(self.worked_out.journal):
            self.worked_out = Ledger(journal)
        return self.worked_out

    def hears(self, heard: Any) -> None:
        """Record the text that a streaming tool yields."""
        if isinstance(heard, Chunk):
            where = (heard.scope, heard.call_id)
            self.chunks[where] = self.chunks.get(where, "") + heard.text


class Outage:
    """A number of store calls that fail, for all users of the store; then it works again, unannounced."""

    def __init__(self) -> None:
        self.reads = self.writes = 0
        """The number of further calls that fail."""
        self.loses_word = False
        """Whether a failing write is stored all the same."""

    @contextmanager
    def over(self) -> Iterator[None]:
        """Suspend the outage, so that the test can look into the store."""
        before = self.reads, self.writes
        self.reads = self.writes = 0
        yield
        self.reads, self.writes = before


class Remote:
    """A store whose connection can fail; it is written to and read in threads."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self.store = store
        self.outage = outage
        self.path = getattr(store, "path", None)

    def append(self, run_id: str, events: Sequence[Any], expected: int) -> None:
        """Add events, or fail in an outage."""
        if self.outage.writes:
            self.outage.writes -= 1
            if self.outage.loses_word:
                self.store.append(run_id, events, expected)
            raise StoreError("the store is away")
        self.store.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[Any]:
        """Read events, or fail in an outage."""
        if self.outage.reads:
            self.outage.reads -= 1
            raise StoreError("the store is away")
        return self.store.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The ids of the stored runs."""
        return self.store.run_ids()

    def watch(self, run_id: str, watcher: Any) -> bool:
        """Watch a run, if the store can."""
        store: Any = self.store
        return hasattr(store, "watch") and store.watch(run_id, watcher)


class Near(Remote):
    """A ``Remote`` that is written to on the loop."""

    def without_waiting(self) -> AbstractContextManager[None]:
        """A context that does nothing, as no call waits."""
        return nullcontext()


class Grouped(Remote):
    """A ``Remote`` that appends to several runs at once, but skips some of them."""

    def __init__(self, store: Store, outage: Outage) -> None:
        super().__init__(store, outage)
        self.group = Group(self)
        self.count = 0

    def append_each(self, appends: Sequence[Append]) -> list[bool]:
        """Append to two of three runs."""
        return [self.joins(append) for append in appends]

    def joins(self, append: Append) -> bool:
        """Append, unless in an outage, at another length, or at every third call."""
        self.count += 1
        if self.outage.writes or not self.count % 3:
            return False
        try:
            self.store.append(*append)
        except NbagentError:
            return False
        return True


class Mortal:
    """The store of a process that can die: then writes fail and reads return nothing."""

    def __init__(self, store: Remote) -> None:
        self.store = store
        self.outage = store.outage
        self.dead = False

    def append(self, run_id: str, events: Sequence[Any], expected: int) -> None:
        """Add events, or fail once the process is dead."""
        if self.dead:
            raise StoreError("this process is dead")
        self.store.append(run_id, events, expected)

    def without_waiting(self) -> AbstractContextManager[None]:
        """A context that does nothing: the test makes the schedules."""
        return nullcontext()

    def read(self, run_id: str, start: int = 0) -> list[Any]:
        """The events, or none once the process is dead."""
        return [] if self.dead else self.store.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The ids of the stored runs."""
        return self.store.run_ids()
