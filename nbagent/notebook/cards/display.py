"""The display of a run: live while it runs, as static HTML once it has ended.

The displayed root is a ``VBox`` whose first child is the card, so that rich outputs and the person's
own widgets can be added later without redrawing the card. A saved notebook cannot draw a widget
without its kernel. So at the end, the display is replaced by HTML that is readable anywhere.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import ipywidgets
from IPython.display import display

from nbagent.core.base.events import (
    Event,
    Interrupted,
    Resolved,
    RunFailed,
)
from nbagent.core.chat import Chat, is_active, thread_after
from nbagent.core.journal.journal import RunEvent
from nbagent.core.run.run import Run, session_of
from nbagent.core.state.state import RunEnd
from nbagent.core.tools.call_output import Bundle
from nbagent.notebook import kernel
from nbagent.notebook.render import plain
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.render.styles import MIN_REFERENCE_LENGTH, in_pieces
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    Drawn,
    Keep,
    NoticeAction,
    NoticeItem,
    Piece,
    TextItem,
)

from .card import Card
from .charts import Charts
from .chat_card import ChatCard
from .run_card import RunCard, static_bundle
from .table_card import TableCard

QUIET = 2.0
"""Seconds without any activity in the card before it is replaced by static HTML."""
MAX_SECONDS_OUTDATED = 10.0
"""Maximum seconds that the static version of a card in pages is out of date, while nothing waits for a person."""
RETRY_FOR = 120.0
"""Seconds in which the card of a run that failed stays live, for its Retry button."""
STAY = 20
"""Number of the newest ended cards that stay live, for follow-ups, search and copying. They stay live only if a page
saves them in its notebook by itself, or no page has connected yet. Static HTML replaces all other cards."""
UPDATE_PACE = 1.0
"""Minimum seconds between two updates of the outputs that show a card."""
LOOK_AGAIN = 4.0
"""Maximum seconds between checks whether somebody is still using a card that could be replaced."""
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


class RunBox(ipywidgets.VBox):
    """The displayed root of one run."""

    def __repr__(self) -> str:
        return f"RunBox({self.children[0]!r})" if self.children else "RunBox()"


class Timer(NamedTuple):
    """Work that is planned on an event loop. A web page's handle does not know its time, and its loop takes no past time."""

    at: float
    handle: asyncio.Handle


class Live:
    """One live card in its box, shown in one or more places until its static version (``bundle``) replaces it."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.below: list[Card] = []
        """Cards below ``card`` in the same box, which are replaced together with it."""
        self.is_needed: Callable[[], bool] = lambda: False
        """Whether something in the box is still needed live."""
        self.settled: Callable[[], None] = lambda: None
        """Called once the static version has replaced the card."""
        self.above: list[Any] = []
        self.is_list = False
        """Whether the card lists runs, so that none of its changes counts as news."""
        self.box = RunBox(children=[card, *card.rows], layout=card.layout)
        card.rows_changed = self.arrange
        card.on_page_saved = self._handle_saved
        card.greeted = self._greeted
        self._places: list[tuple[str, kernel.Cell]] = []
        """The outputs that show the card: their display ids, and the executions that they belong to."""
        self.ended_at = float("-inf")
        """The time when the last run in the card ended, by the monotonic clock."""
        self._ended = False
        """Whether static HTML replaces the card. The widget then exists only for pages without that HTML."""
        self._next_keep: Timer | None = None
        """The next static version for pages; used only on the loop."""
        self._kept: tuple[dict[str, str], bool] = ({}, False)
        """The last static version that pages were sent, and its ``Keep.over``; used only on the loop."""
        self._number = 0
        self._shown: dict[str, str] = {}
        """The last static version in these outputs, for pages that do not save the card; used only on the loop."""
        self._next_update: Timer | None = None
        """The next update of these outputs; used only on the loop."""
        self._updated_at = float("-inf")
        """The time of the last such update, by the loop's clock."""
        self._charts: list[Bundle] = []
        """The charts that are separate outputs of these executions."""

    def add(self, card: Card) -> None:
        """Show another card below."""
        self.below.append(card)
        card.rows_changed = self.arrange
        self.arrange()

    def replace_below(self, card: Card | None) -> None:
        """Show this card below, instead of the cards that are below now; None shows no card below."""
        replaced, self.below = self.below, []
        for each in replaced:
            each.detach()
        if card is None:
            self.arrange()
        else:
            self.add(card)
        for each in replaced:
            each.close()

    def arrange(self) -> None:
        """Put the widgets of the box in order."""
        cards = (self.card, *self.below)
        below = (each for card in cards for each in (card, *card.rows))
        self.box.children = (*self.above, *below)

    def bundle(self) -> dict[str, str]:
        """All cards of the box as HTML and text that need no kernel; unchanged once that has replaced the card."""
        if self._ended:
            return self._kept[0]
        bundles = [card.bundle() for card in (self.card, *self.below)]
        return {mime: "\n".join(each[mime] for each in bundles) for mime in bundles[0]}

    def show(self) -> None:
        """Show the card in the output of the code that runs now."""
        display_id = uuid.uuid4().hex
        self._places.append((display_id, kernel.Cell()))
        self._shown = self.bundle()
        display(self._shown | self._widget, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]
        for chart in self._charts:
            display(chart, raw=True)  # type: ignore[no-untyped-call]

    @property
    def _widget(self) -> dict[str, Any]:
        """The live card, as an addition to the bundle of an output."""
        model_id = self.box.model_id
        return {WIDGET_MIME: {"version_major": 2, "version_minor": 0, "model_id": model_id}}

    def keep(self, *, soon: bool) -> None:
        """Write the current static version for saved notebooks, at once or later; callable on any thread.

        Pages that save the card are sent the static version. Other pages save what the output has, so the output is
        updated, but only for news (``soon``): each update is the whole static version.
        """
        updates = (soon or self.is_list) and self.card.hello_count > self.card.saving_pages
        if self.card.is_saved or updates:
            self.later(0, partial(self._plan, 0 if soon else MAX_SECONDS_OUTDATED, updates=updates))

    def _plan(self, delay: float, *, updates: bool) -> None:
        """Plan what ``keep`` asks for, unless it is planned for an earlier time."""
        if self._ended:
            return
        at = self.card.loop.time() + delay
        if self.card.is_saved:
            self._next_keep = self._sooner(self._next_keep, at, self._keep)
        if updates:
            at = max(at, self._updated_at + UPDATE_PACE)
            self._next_update = self._sooner(self._next_update, at, self._update)

    def _sooner(self, planned: Timer | None, at: float, work: Callable[[], None]) -> Timer:
        """The timer that is planned, or a new timer that replaces it because it is earlier."""
        if planned is not None and planned.at <= at:
            return planned
        if planned is not None:
            planned.handle.cancel()
        loop = self.card.loop
        return Timer(at, loop.call_later(max(0.0, at - loop.time()), work))

    def _update(self) -> None:
        """Update the outputs that show the card; if a page would draw the card again, once nobody is using it."""
        self._next_update = None
        if self._ended:
            return
        is_drawn_again = self.card.hello_count > self.card.saving_pages + self.card.staying_pages
        if is_drawn_again and not all(map(_is_quiet, (self.card, *self.below))):
            at = self.card.loop.time() + LOOK_AGAIN
            self._next_update = self._sooner(None, at, self._update)
            return
        bundle = self.bundle()
        if bundle != self._shown:
            self._shown, self._updated_at = bundle, self.card.loop.time()
            for display_id, cell in self._places:
                cell.update(display_id, bundle | self._widget)

    def _keep(self) -> None:
        """Send the pages the static version, if it has changed."""
        self._next_keep = None
        kept = self.bundle(), self in _staying
        if kept != self._kept:
            self._send_kept(*kept)

    def _send_kept(self, bundle: dict[str, str], over: bool, *, is_complete: bool = False) -> None:  # noqa: FBT001 -- a fact, not a mode
        """Send pages the bundle; or only its number, if it is unchanged and not ``is_complete``."""
        known = bundle == self._kept[0]
        self._number += not known
        self._kept = (bundle, over)
        sent_bundle = {} if known and not is_complete else bundle
        seq, drawn = (None, []) if is_complete or not sent_bundle else self.card.drawn()
        self.card.send_message(
            Keep(
                view=self.box.model_id,
                number=self._number,
                bundle={mime: _in_pieces(mime, text, drawn) for mime, text in sent_bundle.items()},
                seq=seq,
                ended=self._ended,
                over=over,
            )
        )

    def _handle_saved(self, ended: bool) -> None:  # noqa: FBT001 -- a fact, not a mode
        """Send a page the static version that it needs; or (``ended``) close the widgets, as a page has saved it."""
        if ended:
            self._close()
        else:
            self._send_kept(self.bundle(), self in _staying, is_complete=True)

    def settle(self) -> None:
        """Replace the card by its static version, once nobody is using the card. Callable on any thread.

        If a page saves the card by itself, the card stays live until ``STAY`` newer cards have ended. Pages that save
        the card write the static version themselves, and the widgets close once one page confirms this. Of all other
        pages, only one receives a display update. If several such pages have connected, the widgets stay open for the
        rest of them.
        """
        self.ended_at = time.monotonic()
        self.later(QUIET, partial(self._when_still, self._rest))

    def later(self, delay: float, work: Callable[[], None]) -> None:
        """Call ``work`` on the card's loop, after ``delay`` seconds there; callable on any thread."""
        loop = self.card.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, delay, work)

    def _when_still(self, act: Callable[[], None], wait: float | None = None) -> None:
        """Call ``act`` once the box is not needed and nobody is using it; check less and less often."""
        wait = QUIET / 2 if wait is None else wait
        if self._ended:
            return  # the card is replaced already
        if not self.is_needed() and all(map(_is_quiet, (self.card, *self.below))):
            act()
        else:
            self.later(wait, partial(self._when_still, act, min(2 * wait, LOOK_AGAIN)))

    def _rest(self) -> None:
        """Leave the card live among the newest ended cards, or replace it."""
        for chart in (chart for card in (self.card, *self.below) for chart in card.give_charts()):
            self._charts.append(chart)
            for _, cell in self._places:
                cell.show(chart)
        if self._may_stay:
            # later it is replaced even if it still has actions, once nobody is using it
            _staying[self] = partial(self._when_still, self._replace)
            while len(_staying) > STAY:
                oldest = min(_staying, key=lambda each: each.ended_at)
                oldest.later(0, _staying.pop(oldest))
            self._keep()
        else:
            self._replace()

    @property
    def _may_stay(self) -> bool:
        """Whether the card may stay live after its run has ended: a page saves it, or no page has connected yet."""
        return not self.card.hello_count or (self.card.is_saved and self.card.is_useful_after_end)

    def _greeted(self) -> None:
        """Update the output for a page that does not save the card, which stays live only until a page connects."""
        self.keep(soon=True)
        if self in _staying and not self._may_stay:
            self.later(QUIET, _staying.pop(self))

    def _replace(self) -> None:
        if self in _staying:
            return  # another run has ended in the card since
        shown = self.bundle()
        is_saved_by_all = 0 < self.card.hello_count == self.card.saving_pages
        for display_id, cell in () if is_saved_by_all else self._places:
            cell.update(display_id, shown)
        if self.card.hello_count > 1 and not self.card.is_saved:
            return
        self._ended, self._places = True, []
        for timer in (self._next_update, self._next_keep):
            if timer is not None:
                timer.handle.cancel()
        for card in (self.card, *self.below):
            card.detach()
        self.settled()
        if self.card.is_saved:
            self._send_kept(shown, over=False)
        else:
            self._close()

    def _close(self) -> None:
        """Close the widgets, and also the layouts that are not shared, which would otherwise stay open."""
        widgets: list[Any] = [self.card, *self.below, self.box]
        own = [card.layout for card in (self.card, *self.below) if card.front_end is None]
        for widget in (*widgets, *own):
            widget.close()


def _in_pieces(mime: str, text: str, drawn: Iterable[TextItem]) -> list[Piece]:
    """The static version without the styles and texts that a page has already."""
    is_html = mime == "text/html"
    known = [
        (Drawn(key=i.key), "".join([*i.blocks, i.tail]) if is_html else plain.item_text(i))
        for i in drawn
    ]
    return [
        part
        for piece in (in_pieces(text) if is_html else [text])
        for part in (_without(piece, known) if isinstance(piece, str) else [piece])
    ]


def _without(piece: str, known: Iterable[tuple[Drawn, str]]) -> Iterator[Piece]:
    """The piece with the known texts replaced by their keys. Texts in another order are not replaced."""
    at = 0
    for drawn, text in known:
        start = piece.find(text, at) if len(text) >= MIN_REFERENCE_LENGTH else -1
        if start >= 0:
            yield piece[at:start]
            yield drawn
            at = start + len(text)
    yield piece[at:]


_staying: dict[Live, Callable[[], None]] = {}
"""Ended cards that stay live, each with the function that replaces the card."""


def _is_quiet(card: Card) -> bool:
    """Whether nobody is using the card."""
    return not card.busy and time.monotonic() - card.touched_at >= QUIET


class Shown:
    """One run on the page: one live card, shown in one or more places."""

    def __init__(
        self, run: Run, *, earlier: list[Run], on_new_run: Callable[[Run], None] = lambda _run: None
    ) -> None:
        self._run = run
        self._on_new_run = on_new_run
        """Called with each run that somebody starts in the card."""
        self._executions: list[str | None] = []
        """The executions whose output shows the run."""
        self.live: Live | None = None
        self._earlier = earlier
        """Runs that the same cell started before, and that may still be running."""
        self._chat: Chat | None = None
        """The chat of the run and its follow-ups; None until the run is first shown live."""
        self._failed_at = float("-inf")

    def is_shown_in(self, execution: str | None) -> bool:
        """Whether this execution's output shows the run already."""
        return execution in self._executions

    def show(self, execution: str | None) -> None:
        """Show the run in the output of the code that runs now."""
        live = self.live
        if live is None:
            self._chat = Chat(thread_after(self._run))
            card = ChatCard(self._chat, self._run)
            live = self.live = Live(card)
            live.settled = self._settled
            self._add_earlier_notices(card, live)
            card.on_change = self._on_event
            for event in self._run.journal[-1:]:
                self._on_event(event)
        self._executions.append(execution)
        live.show()

    def stopping(self) -> None:
        """Show in the pages that the run is being stopped."""
        if self.live is not None and isinstance(self.live.card, RunCard):
            self.live.card.stopping()

    def _on_event(self, event: Event | None) -> None:
        """Handle an event of one of the card's runs; None means that the card's runs have changed."""
        live = self.live
        if live is None:
            return
        if isinstance(event, RunFailed) and not event.scope:
            self._failed_at = time.monotonic()
        if event is None:
            self._on_new_run(self._runs[-1])
        live.keep(soon=_is_news(event, self._runs))
        if event is not None and _is_end(event):
            live.settle()

    def _settled(self) -> None:
        """Forget the live card, which static HTML has replaced. A new card is made if the run is shown again."""
        self.live, self._executions, self._earlier = None, [], []

    @property
    def _can_be_retried(self) -> bool:
        """Whether the newest run has just failed, so that somebody may press the card's Retry button."""
        failed = self._runs[-1].status == "failed"
        return failed and time.monotonic() - self._failed_at < RETRY_FOR

    # --- earlier runs of the same cell

    def _add_earlier_notices(self, card: RunCard, live: Live) -> None:
        """Add a notice for each earlier run that is still running; the live card stays until all have ended."""
        show = partial(self._show_below, live)
        notices = {
            f"earlier{number}": Earlier(run, f"earlier{number}", card, show)
            for number, run in enumerate(filter(is_active, self._earlier))
        }
        card.pressed = lambda key, action: notices[key].pressed(action)
        earlier_runs = [earlier.run for earlier in notices.values()]
        live.is_needed = lambda: (
            self._can_be_retried or any(map(is_active, (*self._runs, *earlier_runs)))
        )

    @property
    def _runs(self) -> tuple[Run, ...]:
        """The run and its follow-ups."""
        return self._chat.runs if self._chat is not None else (self._run,)

    @staticmethod
    def _show_below(live: Live, run: Run) -> RunCard:
        card = RunCard(run)
        live.add(card)
        return card


class Earlier:
    """A notice in a newer run's card, with the buttons Stop and Show, until the earlier run ends."""

    def __init__(self, run: Run, key: str, card: RunCard, show: Callable[[Run], RunCard]) -> None:
        self.run = run
        self.key = key
        self._card = card
        self._show = show
        self._stopping = False
        self._shown: RunCard | None = None
        self._notice: NoticeItem | None = None
        run.subscribe(self._on_event)
        self._update_notice()

    def pressed(self, action: str) -> None:
        """Handle a press of one of the notice's buttons."""
        if action == "stop":
            self._stopping = True
            session_of(self.run).stop(by="form")
        else:
            self._shown = self._show(self.run)
        if self._stopping and self._shown is not None:
            self._shown.stopping()
        self._update_notice()

    def _on_event(self, event: RunEvent) -> None:
        loop = self._card.loop
        if isinstance(event, Event) and not loop.is_closed():
            loop.call_soon_threadsafe(self._update_notice)

    def _update_notice(self) -> None:
        item = self._item() if is_active(self.run) else None
        if item is None:
            self.run.unsubscribe(self._on_event)
        if item != self._notice:
            self._notice = item
            self._card.notice(self.key, item)

    def _item(self) -> NoticeItem:
        actions = []
        if not self._stopping:
            actions.append(NoticeAction(name="stop", label=TEXTS["stop_it"]))
        if self._shown is None:
            actions.append(NoticeAction(name="show", label=TEXTS["show_it"]))
        return NoticeItem(key=self.key, tone="warn", text=self._text(), actions=actions)

    def _text(self) -> str:
        if self._stopping:
            return TEXTS["earlier_stops"]
        if self.run.status == "interrupted":
            return TEXTS["earlier_waits"]
        tools = ", ".join(reveal(name) for name in session_of(self.run).executing)
        return TEXTS["earlier_executes"].format(tool=tools) if tools else TEXTS["earlier_runs"]


def _is_end(event: Event) -> bool:
    return isinstance(event, RunEnd) and not event.scope


def _is_news(event: Event | None, runs: Sequence[Run]) -> bool:
    """Whether a notebook that is saved right after the event should show it: a new run, an end, or a question."""
    if event is None or _is_end(event) or isinstance(event, Interrupted | Resolved):
        return True
    return bool(runs) and runs[-1].status == "interrupted"


class ShownChat:
    """One chat on the page: live as long as its kernel, as somebody may write another message."""

    def __init__(self, chat: Chat, *, on_new_run: Callable[[Run], None]) -> None:
        card = ChatCard(chat)
        self.live = Live(card)
        card.on_change = partial(self._moved, chat, on_new_run)
        self._executions: list[str | None] = []

    def _moved(self, chat: Chat, on_new_run: Callable[[Run], None], event: Event | None) -> None:
        if event is None and chat.runs:
            on_new_run(chat.runs[-1])
        self.live.keep(soon=_is_news(event, chat.runs))

    def show(self, execution: str | None) -> None:
        """Show the chat in the output of the code that runs now, once per cell execution."""
        if execution is None or execution not in self._executions:
            self._executions.append(execution)
            self.live.show()


class ShownTable:
    """One table on the page, with the card of its open row: live as long as its kernel."""

    def __init__(self, card: TableCard) -> None:
        self._live = Live(card)
        self._live.is_list = not card.has_forms
        if card.has_forms:
            self._live.above = [card.table]
            self._live.arrange()
        card.on_open = self._opened
        card.on_change = partial(self._live.keep, soon=card.has_forms)
        self.key: str | None = None
        """The last cell execution that shows the table."""

    def show(self, key: str | None = None) -> None:
        """Show the table in the output of the code that runs now."""
        self.key = key
        self._live.show()

    def _opened(self, card: Card | None) -> None:
        self._live.replace_below(card)
        self._live.keep(soon=True)


def publish_static(run: Run) -> None:
    """Show the run as it is now, not live, and below it the charts of its calls."""
    display(static_bundle(run), raw=True)  # type: ignore[no-untyped-call]
    for chart in Charts(run.journal).bundles:
        display(chart, raw=True)  # type: ignore[no-untyped-call]
