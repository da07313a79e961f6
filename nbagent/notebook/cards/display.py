"""Where a run is shown: live while it goes on, as static HTML once it has ended.

The displayed root is a ``VBox`` whose first child is the card, so that rich outputs and the person's
own widgets can join it later without redrawing the card. A saved notebook cannot draw a widget
without its kernel, so at the end the display is replaced by HTML that reads anywhere.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets
from IPython.display import display, update_display

from nbagent.core.base.events import Event, RunCancelled, RunCompleted, RunFailed
from nbagent.core.chat import Chat, thread_of
from nbagent.core.journal.journal import RunEvent
from nbagent.core.run.run import Run, session_of
from nbagent.notebook import kernel
from nbagent.notebook.render import plain, static
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.view.view import RunView
from nbagent.notebook.wire import NoticeAction, NoticeItem

from .card import Card
from .charts import Charts
from .chat_card import ChatCard
from .run_card import RunCard, traceback_of_call

QUIET = 2.0
"""Seconds without anything in the card being touched before live gives way to static."""
RETRY_FOR = 120.0
"""Seconds in which the card of a run that failed stays live, for its Retry button."""
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


def goes_on(run: Run) -> bool:
    """Whether the run has not ended."""
    return run.status in ("queued", "running", "interrupted")


class RunBox(ipywidgets.VBox):
    """The displayed root of one run."""

    def __repr__(self) -> str:
        return f"RunBox({self.children[0]!r})" if self.children else "RunBox()"


class Live:
    """One live card in its box, shown in one or more places until static HTML takes them over."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.below: list[Card] = []
        """Cards that stand below it in the same box, and give way together with it."""
        self.held: Callable[[], bool] = lambda: False
        """Whether something in it is still needed live."""
        self.box = RunBox(children=[card, *card.rows])
        card.rows_changed = self._arrange
        self._places: list[str] = []
        """Display ids."""
        self._cells: list[kernel.Cell] = []
        """The executions whose output has them."""

    def add(self, card: Card) -> None:
        """Show another card below."""
        self.below.append(card)
        card.rows_changed = self._arrange
        self._arrange(card.rows)

    def _arrange(self, _rows: list[Any]) -> None:
        cards = (self.card, *self.below)
        self.box.children = tuple(each for card in cards for each in (card, *card.rows))

    def show(self, text: str) -> None:
        """Show it in the output of the code that runs now; ``text`` is for where no widget is drawn."""
        display_id = uuid.uuid4().hex
        self._places.append(display_id)
        self._cells.append(kernel.Cell())
        bundle = {
            "text/plain": text,
            WIDGET_MIME: {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id},
        }
        display(bundle, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]

    def settle(
        self, bundle: Callable[[], dict[str, str]], *, settled: Callable[[], None] | None = None
    ) -> None:
        """Give way to what ``bundle`` makes, once nobody is looking into the card any more.

        Safe from any thread. ``settled`` is called when that is done and before the widgets close,
        which they do not where a reloaded page may still show them.
        """
        self._later(QUIET, partial(self._settle, bundle, settled))

    def _later(self, delay: float, work: Callable[[], None]) -> None:
        loop = self.card.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, delay, work)

    def _settle(
        self, bundle: Callable[[], dict[str, str]], settled: Callable[[], None] | None
    ) -> None:
        if not self._places:
            return  # it has given way already
        if self.held() or not all(map(_is_quiet, (self.card, *self.below))):
            self._later(QUIET / 2, partial(self._settle, bundle, settled))
            return
        shown = bundle()
        for display_id in self._places:
            update_display(shown, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]
        if self.card.greetings > 1:
            return  # a page that was reloaded has no display to update: closing would leave it blank
        self._places = []
        cards, self.below = [self.card, *self.below], []
        for cell in self._cells:
            for chart in (chart for card in cards for chart in card.charts):
                cell.show(chart)
        self._cells = []
        for card in cards:
            card.detach()
        if settled is not None:
            settled()
        widgets: list[Any] = [*cards, self.box]
        for widget in widgets:
            layout = widget.layout
            widget.close()
            layout.close()  # without this its model stays


def _is_quiet(card: Card) -> bool:
    """Whether a page shows the card and nobody is at work in it."""
    quiet_for = time.monotonic() - card.touched_at
    return card.greetings > 0 and not card.busy and quiet_for >= QUIET


class Shown:
    """One run on the page: one live card, shown in one or more places."""

    def __init__(self, run: Run, *, earlier: list[Run]) -> None:
        self._run = run
        self._executions: list[str | None] = []
        """The executions whose output shows the run."""
        self.live: Live | None = None
        self._earlier = earlier
        """Runs that the same cell started before, and that may still go on."""
        self._below: list[Run] = []
        """Those of them whose cards stand below this one."""
        self._failed_at = float("-inf")
        """When it failed last, by the monotonic clock."""

    def stands_in(self, execution: str | None) -> bool:
        """Whether this execution's output shows the run already."""
        return execution in self._executions

    def show(self, execution: str | None) -> None:
        """Show it in the output of the code that runs now."""
        live = self._made()
        self._executions.append(execution)
        live.show(plain.render(_view(self._run)))

    def stopping(self) -> None:
        """Tell the pages that the run is being stopped."""
        if self.live is not None and isinstance(self.live.card, RunCard):
            self.live.card.stopping()

    def _made(self) -> Live:
        if self.live is None:
            card = RunCard(self._run)
            self.live = Live(card)
            self._tell_earlier(card, self.live)
            events = self._run.subscribe(self._heard)
            if events:
                self._heard(events[-1])
        return self.live

    def _heard(self, heard: RunEvent) -> None:
        live = self.live
        ended = isinstance(heard, RunCompleted | RunFailed | RunCancelled) and not heard.scope
        if isinstance(heard, RunFailed) and not heard.scope:
            self._failed_at = time.monotonic()
        if live is not None and ended:
            live.settle(partial(self.bundle, live), settled=self._settled)

    def _settled(self) -> None:
        """The page has the static HTML: begin anew if the run is shown again."""
        self._run.unsubscribe(self._heard)
        self.live, self._executions, self._earlier, self._below = None, [], [], []

    def bundle(self, live: Live) -> dict[str, str]:
        """The run, and those whose cards stand below it, as HTML and text."""
        bundle = static_bundle(self._run, opened=live.card.opened, measured=True)
        for run, card in zip(self._below, live.below, strict=True):
            more = static_bundle(run, opened=card.opened, measured=True)
            bundle = {mime: f"{text}\n{more[mime]}" for mime, text in bundle.items()}
        return bundle

    @property
    def _can_be_retried(self) -> bool:
        """Whether it has failed a moment ago: its card has a button to go on."""
        failed = self._run.status == "failed"
        return failed and time.monotonic() - self._failed_at < RETRY_FOR

    # --- what the same cell started before

    def _tell_earlier(self, card: RunCard, live: Live) -> None:
        """A notice for each earlier run that goes on; the live card stays until all have ended."""
        show = partial(self._show_below, live)
        notices = {
            f"earlier{number}": Earlier(run, f"earlier{number}", card, show)
            for number, run in enumerate(filter(goes_on, self._earlier))
        }
        card.pressed = lambda key, action: notices[key].pressed(action)
        runs = [self._run, *(earlier.run for earlier in notices.values())]
        live.held = lambda: self._can_be_retried or any(map(goes_on, runs))

    def _show_below(self, live: Live, run: Run) -> RunCard:
        card = RunCard(run)
        self._below.append(run)
        live.add(card)
        return card


class Earlier:
    """A notice in a newer run's card, with the buttons Stop and Show, until the earlier run ends.

    Args:
        run: the earlier run.
        key: of the notice.
        card: the newer run's; the notice changes on its loop.
        show: shows the earlier run's card, and gives it.
    """

    def __init__(self, run: Run, key: str, card: RunCard, show: Callable[[Run], RunCard]) -> None:
        self.run = run
        self.key = key
        self._card = card
        self._show = show
        self._stopping = False
        self._shown: RunCard | None = None
        self._notice: NoticeItem | None = None
        run.subscribe(self._heard)
        self._tell()

    def pressed(self, action: str) -> None:
        """A button of the notice was pressed."""
        if action == "stop":
            self._stopping = True
            session_of(self.run).stop(by="form")
        else:
            self._shown = self._show(self.run)
        if self._stopping and self._shown is not None:
            self._shown.stopping()
        self._tell()

    def _heard(self, heard: RunEvent) -> None:
        loop = self._card.loop
        if isinstance(heard, Event) and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        item = self._item() if goes_on(self.run) else None
        if item is None:
            self.run.unsubscribe(self._heard)
        if item != self._notice:
            self._notice = item
            self._card.notice(self.key, item)

    def _item(self) -> NoticeItem:
        actions = [
            *([] if self._stopping else [NoticeAction(name="stop", label=TEXTS["stop_it"])]),
            *(
                []
                if self._shown is not None
                else [NoticeAction(name="show", label=TEXTS["show_it"])]
            ),
        ]
        return NoticeItem(key=self.key, tone="warn", text=self._text(), actions=actions)

    def _text(self) -> str:
        if self._stopping:
            return TEXTS["earlier_stops"]
        if self.run.status == "interrupted":
            return TEXTS["earlier_waits"]
        tools = ", ".join(reveal(name) for name in session_of(self.run).executing)
        return TEXTS["earlier_executes"].format(tool=tools) if tools else TEXTS["earlier_goes_on"]


class ShownChat:
    """One chat on the page: live as long as its kernel, as somebody may go on writing in it."""

    def __init__(self, chat: Chat) -> None:
        self._live = Live(ChatCard(chat))
        self._chat = chat
        self._executions: list[str | None] = []

    def show(self, execution: str | None) -> None:
        """Show it in the output of the code that runs now, once."""
        if execution is None or execution not in self._executions:
            self._executions.append(execution)
            self._live.show(chat_bundle(self._chat)["text/plain"])


def chat_bundle(chat: Chat) -> dict[str, str]:
    """The thread as it stands, as HTML and text that need no kernel."""
    thread = ThreadView(reveal(thread_of(chat).agent.spec().agent))
    for run in chat.runs:
        view = RunView(run.id, in_thread=True)
        for event in run.journal:
            view.apply(event)
        thread.begin(view)
    shown = thread.snapshot()
    return {"text/html": static.render(shown), "text/plain": plain.render(shown)}


def publish_chat(chat: Chat) -> None:
    """Show the thread as it stands, for good."""
    display(chat_bundle(chat), raw=True)  # type: ignore[no-untyped-call]


def _view(run: Run) -> Any:
    view = RunView(run.id, traceback_of=partial(traceback_of_call, run))
    for event in run.journal:
        view.apply(event)
    return view.snapshot()


def static_bundle(
    run: Run, *, opened: list[str] | None = None, measured: bool = False
) -> dict[str, str]:
    """The run as it stands, as HTML and text that need no kernel.

    What differs each time is told (``measured``) where a person has seen it on the live card: a cell
    that runs with nobody there shows the same each time, and can be compared.
    """
    view = _view(run)
    return {
        "text/html": static.render(view, opened=opened, measured=measured),
        "text/plain": plain.render(view),
    }


def publish_static(run: Run) -> None:
    """Show the run as it stands, for good, and below it the charts of its calls."""
    display(static_bundle(run), raw=True)  # type: ignore[no-untyped-call]
    charts = Charts()
    for event in run.journal:
        charts.heard(event)
    for chart in charts.bundles:
        display(chart, raw=True)  # type: ignore[no-untyped-call]
