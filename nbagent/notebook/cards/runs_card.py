"""The live list of a store's runs, and below it the card of the open run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import traitlets

from nbagent.core.agent import Agent
from nbagent.core.base.errors import NbagentError, UsageError
from nbagent.core.call.threads import run_in_thread
from nbagent.core.flow import Flow
from nbagent.core.journal.journal import Journal, RunEvent
from nbagent.core.journal.store import Store
from nbagent.core.known import known_named
from nbagent.core.run.run import Run
from nbagent.core.run.session import find_session
from nbagent.core.stored.listing import Listing, StoredRun
from nbagent.core.stored.opening import open_run
from nbagent.notebook import kernel
from nbagent.notebook.render import plain, static
from nbagent.notebook.render.outline import form_facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.runs import RunsView
from nbagent.notebook.view.view import RunView
from nbagent.notebook.wire import Item, NoticeItem, Op, Put, View

from .card import Card
from .list_bar import ListBar, StoreReader
from .run_card import RunCard, Typed

MAX_ID = 500
"""Characters of a run's id that a page may name."""
REDRAWN = 10.0
"""Seconds after which the list is drawn again although its store has not changed: processes may have ended."""
AT_ONCE = 500
"""Number of runs that are read before the list is drawn again."""
REMEMBERED = 20
"""Maximum number of closed runs whose unsent input is stored; the oldest input is dropped."""


class RunsTable(ListBar):
    """The rows of the list, below the filters."""

    table = traitlets.Dict().tag(sync=True)
    """The value of ``RunsView.table``."""


class StoredCard(Card):
    """The read-only card of a stored run, for a process that cannot continue the run."""

    def __init__(self, journal: Journal, view: RunView, loop: asyncio.AbstractEventLoop) -> None:
        self.journal = journal
        self.view = view
        self._loop = loop
        self._update_notice()
        view.flush(time.monotonic())
        super().__init__()
        journal.listeners = (self._on_event,)
        self.add_class("nba-reads")

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The kernel's loop."""
        return self._loop

    def detach(self) -> None:
        """Stop following the journal."""
        self.journal.listeners = ()

    @classmethod
    async def of(cls, run_id: str, store: Store, loop: asyncio.AbstractEventLoop) -> StoredCard:
        """The card of a stored run, which is read in a thread."""
        journal, view = Journal(run_id, store), RunView(run_id)

        def read_journal() -> None:
            journal.catch_up()
            for event in journal.read():
                view.apply(event)

        await run_in_thread(read_journal)
        return cls(journal, view, loop)

    def bundle(self) -> dict[str, str]:
        """The run as HTML and text that need no kernel."""
        view = self.view.snapshot()
        html = static.render(view, measured=True)
        return {"text/html": html, "text/plain": plain.render(view)}

    @property
    def can_continue(self) -> bool:
        """Whether the run has not ended, and this process has the run's agent by now."""
        state = self.journal.state
        known = known_named(Flow, state.agent) if state.flow else known_named(Agent, state.agent)
        return state.outcome is None and known is not None

    def follow(self) -> None:
        """Read the events that other processes have written. Do not call this on the loop."""
        self.journal.catch_up()

    def show_news(self) -> None:
        """Draw the new events."""
        with self._lock:
            self._push()

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
    fields = [] if item.spec is None else form_facts(item.spec["root"])
    update: dict[str, Any] = {"actions": [], "remember": [], "spec": None, "instead": None}
    update |= {"group": "", "facts": [*item.facts, *fields]}
    return item.model_copy(update=update)


class RunsCard(Card):
    """The frame of the list: the store, the number of runs, and errors. Used only on the kernel's loop."""

    def __init__(self, listing: Listing, scope_text: str) -> None:
        self.listing = listing
        self.view = RunsView(scope_text)
        self.on_change: Callable[[], None] = lambda: None
        """Called when the content of the card has changed."""
        self.on_open: Callable[[Card | None], None] = lambda _card: None
        """Called with the card to show below; None closes the card below."""
        self.below: Card | None = None
        """The card of the open run."""
        self._loop = kernel.kernel_loop() or asyncio.get_running_loop()
        self._drawn_at = float("-inf")
        self._turns = asyncio.Lock()
        """Held while a run is opened."""
        self._typed: dict[str, dict[str, Typed]] = {}
        """The unsent input of closed runs' forms, by run."""
        self._looking = StoreReader(self._loop, self._read_runs, self._read_so_far)
        self.view.look(listing)
        chosen = {"text": "", "agent": "", "status": ""}
        self.table = RunsTable(choices=self.view.choices, chosen=chosen, table=self.view.table)
        self.table.observe(lambda _change: self._later(self._chosen), names="chosen")
        self.table.on_msg(self._on_table_message)
        super().__init__()
        self.add_class("nba-reads").add_class("nba-frame")
        self._later(self._looking.seen)

    def __repr__(self) -> str:
        return "RunsCard()"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The kernel's loop."""
        return self._loop

    @property
    def rows(self) -> list[Any]:
        """The table, which is shown below the frame."""
        return [self.table]

    # --- reading the store

    def _read_runs(self, again: bool) -> bool:  # noqa: FBT001 -- a fact, not a mode
        now = time.monotonic()
        if self.listing.has_changed:
            self.listing.look(AT_ONCE)
        elif not again and now - self._drawn_at < REDRAWN:
            return False
        self._drawn_at = now
        self.view.look(self.listing)
        if isinstance(self.below, StoredCard):
            self.below.follow()
        return self.listing.left > 0

    def _read_so_far(self, trouble: str) -> None:
        self.view.set_notice("trouble", trouble)
        self._update_page()

    def _update_page(self) -> None:
        """Send the changed list to the page."""
        table = self.view.table
        changed = table != self.table.table
        if changed:
            self.table.table = table
        if self.view.choices != self.table.choices:
            self.table.choices = self.view.choices
        if isinstance(self.below, StoredCard):
            self.below.show_news()
            if self.below.can_continue:
                self._start_task(self._open(self.view.opened))
        with self._lock:
            self._push()
        if changed:
            self.on_change()

    async def _draw(self) -> None:
        await run_in_thread(lambda: self.view.look(self.listing))
        self._update_page()

    # --- actions of a person

    def _on_table_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        self._later(lambda: self._handle_table_message(content))

    def _handle_table_message(self, content: Any) -> None:
        match content:
            case {"type": "shown"}:
                self._looking.seen()
            case {"type": "sort", "column": str(column)}:
                self.view.sort(column)
                self._start_task(self._draw())
            case {"type": "more"}:
                self.view.show_more()
                self._start_task(self._draw())
            case {"type": "open", "run": str(run_id)} if len(run_id) <= MAX_ID:
                self._start_task(self._pressed_open(run_id))
            case _:
                pass  # not a message of nbagent's pages

    def _chosen(self) -> None:
        chosen = self.table.chosen
        text, agent, status = (str(chosen.get(n, "")) for n in ("text", "agent", "status"))
        self.view.want(text[:200], agent, status)
        self._looking.seen()
        self._start_task(self._draw())

    def _start_task(self, work: Any) -> None:
        task = self._loop.create_task(work)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _pressed_open(self, run_id: str) -> None:
        """Open this run below, or close it if it is open already."""
        await self._open("" if run_id == self.view.opened else run_id)

    async def _open(self, run_id: str) -> None:
        """Show the card of the run with this id below; with an empty id, close the card below."""
        async with self._turns:
            card, error_text = None, ""
            found = next((run for run in self.listing.all if run.id == run_id), None)
            if found is not None:
                try:
                    card = await self._card_of(found)
                except NbagentError as error:
                    error_text = TEXTS["runs_not_opened"].format(
                        run=reveal(run_id), error=reveal(str(error))
                    )
            typed = self.below.typed() if isinstance(self.below, RunCard) else {}
            if typed:  # unsent input of the card below, which is about to close
                self._typed[self.view.opened] = typed
            while len(self._typed) > REMEMBERED:
                del self._typed[next(iter(self._typed))]
            self.view.set_notice("opening", error_text)
            self.view.opened, self.below = "" if card is None else run_id, card
            self.on_open(card)
            self._update_page()

    async def _card_of(self, found: StoredRun) -> Card:
        """The card of a run: with its forms if this process can continue it."""
        session = find_session(found.id, found.store)
        run: Run | None = None if session is None else session.handle()
        if run is None:
            try:
                run = await open_run(found.id, store=found.store, show=False)
            except UsageError:  # this process has no agent with that name
                return await StoredCard.of(found.id, found.store, self._loop)
        return RunCard(run, self._typed.pop(found.id, None))

    # --- methods of every card

    def _view(self) -> View:
        return self.view.snapshot()

    def _changes(self) -> list[Op] | None:
        return self.view.flush() or None

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": "{agent}", "gone": ""}  # the table shows its own "gone" text


_tasks: set[asyncio.Task[None]] = set()
"""Running tasks, as an event loop alone does not keep a task alive."""
