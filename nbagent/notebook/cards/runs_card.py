"""The live list of a store's runs, and below it the card of the open run."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nbagent.core.agent import Agent
from nbagent.core.base.errors import UsageError
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.journal.store import Store
from nbagent.core.registry import known_named
from nbagent.core.run.run import Run
from nbagent.core.run.session import find_session
from nbagent.core.stored.listing import Listing
from nbagent.core.stored.opening import open_run
from nbagent.notebook.render import plain
from nbagent.notebook.render.outline import form_facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.runs import RunsView
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import Item, NoticeItem, Op, Put, View

from .card import Card
from .run_card import RunCard
from .table_card import TableCard

REDRAWN = 10.0
"""Seconds after which the list is drawn again although its store has not changed: processes may have ended."""
AT_ONCE = 500
"""Number of runs that are read before the list is drawn again."""


class StoredCard(Card):
    """The read-only card of a stored run, for a process that cannot continue the run."""

    css_classes = ("nba-reads",)

    def __init__(
        self, journal: Journal, view: SingleRunView, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.journal = journal
        self.view = view
        self.loop = loop
        self._update_notice()
        view.flush(time.monotonic())
        super().__init__()
        journal.listeners = (self._on_event,)

    def detach(self) -> None:
        """Stop following the journal."""
        self.journal.listeners = ()

    @classmethod
    async def of(cls, run_id: str, store: Store, loop: asyncio.AbstractEventLoop) -> StoredCard:
        """The card of a stored run, which is read in a thread."""
        journal, view = Journal(run_id, store), SingleRunView(run_id)

        def read_journal() -> None:
            journal.catch_up()
            view.apply(*journal.read())

        await run_in_thread(read_journal)
        return cls(journal, view, loop)

    def bundle(self) -> dict[str, str]:
        """The run as HTML and text that need no kernel."""
        return plain.bundle(self.view.snapshot(), measured=True)

    @property
    def can_continue(self) -> bool:
        """Whether the run has not ended, and this process has the run's agent by now."""
        state = self.journal.state
        known = known_named(Flow, state.agent) if state.flow else known_named(Agent, state.agent)
        return state.outcome is None and known is not None

    def _on_event(self, event: RunEvent) -> None:
        with self._lock:
            self.view.apply(event)
            self._update_notice()

    def _update_notice(self) -> None:
        ended = self.journal.state.outcome is not None
        template = TEXTS["runs_unknown_ended" if ended else "runs_unknown"]
        message = template.format(agent=reveal(self.journal.state.agent))
        self.view.notice("unknown", NoticeItem(key="unknown", text=message))

    def _view(self) -> View:
        view = self.view.snapshot()
        return view.model_copy(update={"items": [_inert(item) for item in view.items]})

    def _changes(self) -> list[Op] | None:
        ops = self.view.flush(time.monotonic()) or []
        inert_ops = (
            op.model_copy(update={"item": _inert(op.item)}) if isinstance(op, Put) else op
            for op in ops
        )
        return list(inert_ops) or None


def _inert(item: Item) -> Item:
    """A question without its fields and buttons."""
    if item.type != "form":
        return item
    update: dict[str, Any] = {"actions": [], "remember": [], "spec": None, "instead": None}
    update |= {"group": "", "facts": [*item.facts, *form_facts(item)]}
    return item.model_copy(update=update)


class RunsCard(TableCard):
    """The frame of the list: the store, the number of runs, and errors; ``limit`` runs are in the static version."""

    view: RunsView

    def __init__(self, listing: Listing, scope_text: str, limit: int = 100) -> None:
        self.listing = listing
        self._limit = limit
        self._drawn_at = float("-inf")
        super().__init__(RunsView(listing, scope_text))

    def bundle(self) -> dict[str, str]:
        """The list as HTML and text that need no kernel."""
        listed = self.listing.newest(self._limit)
        return {"text/html": listed._repr_html_(), "text/plain": repr(listed)}

    def _read(self, *, again: bool) -> bool:
        now = time.monotonic()
        if self.listing.has_changed:
            self.listing.look(AT_ONCE)
        elif not again and now - self._drawn_at < REDRAWN:
            return False
        self._drawn_at = now
        self.view.look()
        if isinstance(self.below, StoredCard):
            self.below.journal.catch_up()
        return self.listing.left > 0

    def _update_page(self) -> None:
        super()._update_page()
        if isinstance(self.below, StoredCard):
            self.below.push()
            if self.below.can_continue:
                self._start_task(self._open(self.view.opened))

    async def _card_of(self, key: str) -> Card | None:
        """The card of a run: with its forms if this process can continue it."""
        found = next((run for run in self.listing.all if run.id == key), None)
        if found is None:
            return None
        session = find_session(found.id, found.store)
        run: Run | None = None if session is None else session.handle()
        if run is None:
            try:
                run = await open_run(found.id, store=found.store, show=False)
            except UsageError:  # this process has no agent with that name
                return await StoredCard.of(found.id, found.store, self.loop)
        return RunCard(run, self._typed.pop(found.id, None))
