"""A run under test, its handles, and the stores of a process that has died, or that is cut off for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from nbagent.core.base import events
from nbagent.core.base.errors import NbagentError, StoreError
from nbagent.core.journal.journal import Append, Group, Store
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
    """The numbers of calls that were done before it was forked."""
    shared: bool = False
    """Whether two processes ever had it at once."""
    chunks: dict[tuple[tuple[str, ...], str], str] = field(default_factory=dict)
    """What streaming tools yielded, by scope and call id."""
    acts_seen: int = 0
    known: list[events.StoredEvent] = field(default_factory=list)
    """The events that were read from the store."""
    worked_out: Ledger = field(default_factory=lambda: Ledger([]))

    def __repr__(self) -> str:
        return f"<branch {self.number}: {self.run.status}>"

    @property
    def run(self) -> Run:
        """Its first handle's."""
        run: Run = self.seats[0].run
        return run

    @property
    def state(self) -> RunState:
        """Where it stands."""
        state: RunState = self.seats[0].journal.state
        return state

    @property
    def journal(self) -> list[events.StoredEvent]:
        """Its events, as they are in the store."""
        store = self.seats[0].journal.store
        with store.outage.over():
            self.known += store.read(self.run_id, len(self.known))
        return list(self.known)

    @property
    def ledger(self) -> Ledger:
        """What they say."""
        journal = self.journal
        if len(journal) != len(self.worked_out.journal):
            self.worked_out = Ledger(journal)
        return self.worked_out

    def hears(self, heard: Any) -> None:
        """Keep what a streaming tool yields."""
        if isinstance(heard, Chunk):
            where = (heard.scope, heard.call_id)
            self.chunks[where] = self.chunks.get(where, "") + heard.text


class Outage:
    """So many calls of a store that fail, for all who use it: then it is back, and tells nobody."""

    def __init__(self) -> None:
        self.reads = self.writes = 0
        """How many further ones fail."""
        self.loses_word = False
        """Whether a write that fails was done all the same."""

    @contextmanager
    def over(self) -> Iterator[None]:
        """As long as this lasts the store is there: for the test, which looks into it."""
        before = self.reads, self.writes
        self.reads = self.writes = 0
        yield
        self.reads, self.writes = before


class Remote:
    """A store as a process has it that may be cut off from it; it is written to and read in threads."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self.store = store
        self.outage = outage
        self.path = getattr(store, "path", None)

    def append(self, run_id: str, events: Sequence[Any], expected: int) -> None:
        """Add events, while it is there."""
        if self.outage.writes:
            self.outage.writes -= 1
            if self.outage.loses_word:
                self.store.append(run_id, events, expected)
            raise StoreError("the store is away")
        self.store.append(run_id, events, expected)

    def read(self, run_id: str, start: int = 0) -> list[Any]:
        """Read events, while it is there."""
        if self.outage.reads:
            self.outage.reads -= 1
            raise StoreError("the store is away")
        return self.store.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The runs it holds."""
        return self.store.run_ids()

    def watch(self, run_id: str, watcher: Any) -> bool:
        """Tell of what is written, where the store does."""
        store: Any = self.store
        return hasattr(store, "watch") and store.watch(run_id, watcher)


class Near(Remote):
    """The same for a store that is written to on the loop."""

    def without_waiting(self) -> AbstractContextManager[None]:
        """It never has to wait."""
        return nullcontext()


class Grouped(Remote):
    """The same for a store that appends to several runs at once, but for some of them."""

    def __init__(self, store: Store, outage: Outage) -> None:
        super().__init__(store, outage)
        self.group = Group(self)
        self.count = 0

    def append_each(self, appends: Sequence[Append]) -> list[bool]:
        """Append to two of three runs."""
        return [self.joins(append) for append in appends]

    def joins(self, append: Append) -> bool:
        """Add events, while the store is there and has the expected length."""
        self.count += 1
        if self.outage.writes or not self.count % 3:
            return False
        try:
            self.store.append(*append)
        except NbagentError:
            return False
        return True


class Mortal:
    """A store as a process has it that may die: then it writes and reads nothing any more."""

    def __init__(self, store: Remote) -> None:
        self.store = store
        self.outage = store.outage
        self.dead = False

    def append(self, run_id: str, events: Sequence[Any], expected: int) -> None:
        """Add events, while it lives."""
        if self.dead:
            raise StoreError("this process is dead")
        self.store.append(run_id, events, expected)

    def without_waiting(self) -> AbstractContextManager[None]:
        """Nothing has to wait: schedules are the test's to make."""
        return nullcontext()

    def read(self, run_id: str, start: int = 0) -> list[Any]:
        """Read events, while it lives."""
        return [] if self.dead else self.store.read(run_id, start)

    def run_ids(self) -> list[str]:
        """The runs it holds."""
        return self.store.run_ids()
