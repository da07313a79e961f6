"""What the card of a cell that was run again says of a run that the cell started before."""

from __future__ import annotations

from collections.abc import Callable

from nbagent.core.events import Event
from nbagent.core.journal import Heard
from nbagent.core.run import Run

from .card import RunCard
from .reveal import reveal
from .texts import TEXTS
from .wire import NoticeAction, NoticeItem


def goes_on(run: Run) -> bool:
    """Whether the run has not ended."""
    return run.status in ("running", "interrupted")


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
        self._told: NoticeItem | None = None
        run.subscribe(self._heard)
        self._tell()

    def pressed(self, action: str) -> None:
        """A button of the notice was pressed."""
        if action == "stop":
            self._stopping = True
            self.run.stop(by="form")
        else:
            self._shown = self._show(self.run)
        if self._stopping and self._shown is not None:
            self._shown.stopping()
        self._tell()

    def _heard(self, heard: Heard) -> None:
        loop = self._card.loop
        if isinstance(heard, Event) and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        item = self._item() if goes_on(self.run) else None
        if item is None:
            self.run.unsubscribe(self._heard)
        if item != self._told:
            self._told = item
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
        tools = ", ".join(reveal(name) for name in self.run.executing)
        return TEXTS["earlier_executes"].format(tool=tools) if tools else TEXTS["earlier_goes_on"]
