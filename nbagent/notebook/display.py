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

from nbagent.core.events import RunCancelled, RunCompleted, RunFailed
from nbagent.core.journal import Heard
from nbagent.core.run import Run

from . import plain, static
from .card import RunCard
from .texts import TEXTS
from .view import RunView
from .widget import Card
from .wire import NoticeItem

QUIET = 2.0
"""Seconds without anything in the card being touched before live gives way to static."""
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


class RunBox(ipywidgets.VBox):
    """The displayed root of one run."""

    def __repr__(self) -> str:
        return f"RunBox({self.children[0]!r})" if self.children else "RunBox()"


class Live:
    """One live card in its box, shown in one or more places until static HTML takes them over."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.box = RunBox(children=[card, *card.rows])
        card.joined = self._joined
        self._places: list[str] = []
        """Display ids."""

    def _joined(self, rows: list[Any]) -> None:
        self.box.children = (self.card, *rows)

    def show(self, text: str) -> None:
        """Show it in the output of the code that runs now; ``text`` is for where no widget is drawn."""
        display_id = uuid.uuid4().hex
        self._places.append(display_id)
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
        quiet_for = time.monotonic() - self.card.touched_at
        if not self.card.greetings or self.card.busy or quiet_for < QUIET:
            self._later(QUIET / 2, partial(self._settle, bundle, settled))
            return
        shown = bundle()
        for display_id in self._places:
            update_display(shown, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]
        if self.card.greetings > 1:
            return  # a page that was reloaded has no display to update: closing would leave it blank
        self._places = []
        self.card.detach()
        if settled is not None:
            settled()
        for widget in (self.card, self.box):
            layout = widget.layout
            widget.close()
            layout.close()  # without this its model stays


class Shown:
    """One run on the page: one live card, shown in one or more places."""

    def __init__(self, run: Run, *, notices: list[str]) -> None:
        self._run = run
        self._executions: list[str | None] = []
        """The executions whose output shows the run."""
        self._live: Live | None = None
        self._notices = notices

    def stands_in(self, execution: str | None) -> bool:
        """Whether this execution's output shows the run already."""
        return execution in self._executions

    def show(self, execution: str | None) -> None:
        """Show it in the output of the code that runs now."""
        live = self._made()
        self._executions.append(execution)
        live.show(plain.render(_view(self._run)))

    def _made(self) -> Live:
        if self._live is None:
            card = RunCard(self._run)
            for number, tool in enumerate(self._notices):
                text = TEXTS["earlier_run"].format(tool=tool)
                card.view.notice(f"earlier{number}", NoticeItem(key="", tone="warn", text=text))
            self._live = Live(card)
            events = self._run.subscribe(self._heard)
            if events:
                self._heard(events[-1])
        return self._live

    def _heard(self, heard: Heard) -> None:
        live = self._live
        if live is not None and isinstance(heard, RunCompleted | RunFailed | RunCancelled):
            live.settle(
                lambda: static_bundle(self._run, opened=live.card.opened),
                settled=self._settled,
            )

    def _settled(self) -> None:
        """The page has the static HTML: begin anew if the run is shown again."""
        self._run.unsubscribe(self._heard)
        self._live, self._executions, self._notices = None, [], []


def _view(run: Run) -> Any:
    view = RunView(run.id)
    for event in run.journal:
        view.apply(event)
    return view.snapshot()


def static_bundle(run: Run, *, opened: list[str] | None = None) -> dict[str, str]:
    """The run as it stands, as HTML and text that need no kernel."""
    view = _view(run)
    return {
        "text/html": static.render(view, opened=opened),
        "text/plain": plain.render(view),
    }


def publish_static(run: Run) -> None:
    """Show the run as it stands, for good."""
    display(static_bundle(run), raw=True)  # type: ignore[no-untyped-call]
