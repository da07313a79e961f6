"""The live card of a table: the frame, the table, and below it the card of the open row.

A page receives only the visible rows. The kernel filters and sorts, as only the kernel has all rows. While a page
shows the card, a thread reads the store about once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import traitlets

from nbagent.core.base.errors import NbagentError, StoreError
from nbagent.core.call.threads import run_in_thread
from nbagent.notebook import kernel
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.table import TableView
from nbagent.notebook.wire import Op, View

from . import front_end
from .card import Card
from .run_card import RunCard, Typed

READ_INTERVAL = 1.0
"""Seconds between two reads of the store."""
MAX_READ_SHARE = 0.2
"""Maximum share of time spent reading. A store with many runs is read less often, as a read takes longer."""
SHOWN_FOR = 45.0
"""Seconds without a message from a page after which no page shows the table."""
MAX_KEY = 1_000
"""Maximum characters of a row's key that a page may name."""
REMEMBERED = 20
"""Maximum number of closed rows whose unsent input is stored; the oldest input is dropped."""


class TableWidget(front_end.CardWidget):
    """The filters, the buttons, the questions and the rows, below the frame: the attributes of ``TableView``."""

    _esm = front_end.TABLE
    labels = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    window = traitlets.Dict().tag(sync=True)
    covers = traitlets.Dict().tag(sync=True)


class TableCard(Card):
    """A card whose rows come from runs, a batch or an inbox. Used only on the kernel's loop."""

    view: TableView
    css_classes: tuple[str, ...] = ("nba-reads", "nba-frame")
    has_forms = False
    """Whether the card itself shows the rows, as forms; otherwise a row opens as a card below the table."""

    def __init__(self, view: TableView) -> None:
        self.view = view
        self.on_change: Callable[[], None] = lambda: None
        """Called when the content of the card has changed."""
        self.on_open: Callable[[Card | None], None] = lambda _card: None
        """Called with the card to show below; None closes the card below."""
        self.below: Card | None = None
        """The card of the open row."""
        self.loop = kernel.kernel_loop() or asyncio.get_running_loop()
        self._opening = asyncio.Lock()
        """Held while a row is opened."""
        self._typed: dict[str, dict[str, Typed]] = {}
        """The unsent input of closed rows' forms, by row."""
        self._seen_at = time.monotonic()
        self._reading: asyncio.Task[Any] | None = None
        self._again = False
        self._turn = asyncio.Lock()
        """Held while the store is read."""
        self.table = TableWidget(**self._drawn())
        handle = self._handle_table_message
        self.table.on_msg(lambda _, content, __: self._later(partial(handle, content)))
        super().__init__()
        self._later(self._shown)

    @property
    def rows(self) -> list[Any]:
        """The table, which is shown below the frame."""
        return super().rows if self.has_forms else [self.table]

    # --- defined by each kind of table

    def _read(self, *, again: bool) -> bool:
        """Read what is new, and draw it; with ``again``, also if the store has not changed.

        Called in a thread, once at a time. Returns whether to read more without a pause.
        """
        raise NotImplementedError

    async def _card_of(self, key: str) -> Card | None:
        """The card of the row with this key; None if there is no such row."""
        raise NotImplementedError

    def _handle_action(self, message: Any) -> None:
        """Handle a message that only this kind of table has."""

    # --- reading the store

    def _shown(self) -> None:
        """Note that a page shows the table: read the store for a while."""
        self._seen_at = time.monotonic()
        if self._reading is None or self._reading.done():
            self._reading = self._start_task(self._keep_reading())

    def read_soon(self) -> None:
        """Read now, also if the store has not changed."""
        self._again = True
        if self._reading is None or self._reading.done():
            self._shown()
        else:
            self._start_task(self._read_once())

    async def _keep_reading(self) -> None:
        while time.monotonic() - self._seen_at < SHOWN_FOR:
            started_at = time.monotonic()
            if await self._read_once():
                continue
            seconds = time.monotonic() - started_at
            await asyncio.sleep(max(READ_INTERVAL, seconds / MAX_READ_SHARE - seconds))

    async def _read_once(self) -> bool:
        async with self._turn:
            again, self._again = self._again, False
            more, trouble = False, ""
            try:
                more = await run_in_thread(lambda: self._read(again=again))
            except StoreError as error:
                trouble = reveal(str(error))
            self.view.set_notice("trouble", trouble)
            self._update_page()
            return more

    def _drawn(self) -> dict[str, Any]:
        """The values of the table's traits."""
        names = ("labels", "state", "window", "covers")
        return {name: getattr(self.view, name) for name in names}

    def _update_page(self) -> None:
        """Send what has changed to the pages."""
        changed = False
        for name, new in self._drawn().items():
            if new != getattr(self.table, name):
                setattr(self.table, name, new)
                changed = True
        if self.push() or changed:
            self.on_change()

    # --- actions of a person

    def _handle_table_message(self, content: Any) -> None:
        view = self.view
        match content:
            case {"type": "shown"}:
                self._shown()
                return
            case {"type": "hello"}:
                self.table.send_state(list(self._drawn()))
                return
            case {"type": "want", "filters": dict(filters)}:
                view.want({name: each for name, each in filters.items() if isinstance(each, str)})
            case {"type": "window", "from": int(first), "count": int(count)}:
                view.show_rows(first, count)
            case {"type": "sort", "column": str(column)}:
                view.sort(column)
            case {"type": "open", "key": str(key)} if len(key) <= MAX_KEY and not self.has_forms:
                self._start_task(self._open("" if key == view.opened else key))
                return
            case _:
                self._handle_action(content)
                return
        self.read_soon()

    async def _open(self, key: str) -> None:
        """Show the card of the row with this key below; with an empty key, close the card below."""
        view = self.view
        async with self._opening:
            card, error_text = None, ""
            try:
                card = await self._card_of(key) if key else None
            except NbagentError as error:
                error_text = TEXTS["runs_not_opened"].format(
                    run=reveal(key), error=reveal(str(error))
                )
            typed = self.below.typed() if isinstance(self.below, RunCard) else {}
            if typed:  # unsent input of the card below, which is about to close
                self._typed[view.opened] = typed
            while len(self._typed) > REMEMBERED:
                del self._typed[next(iter(self._typed))]
            view.set_notice("opening", error_text)
            view.opened, self.below = "" if card is None else key, card
            self.on_open(card)
        self.read_soon()

    # --- methods of every card

    def _view(self) -> View:
        return self.view.snapshot()

    def _changes(self) -> list[Op] | None:
        return self.view.flush() or None

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": "{agent}", "gone": ""}  # the table shows its own "gone" text
