"""The notice in a card that another process is running the run, with a button to take the run over."""

from __future__ import annotations

from collections.abc import Callable

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.process import describe_process
from nbagent.core.run.session import Session
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import NoticeAction, NoticeItem

KEY = "driver"
"""The notice's key among the items of its run."""


class DriverLine:
    """The notice as the first item of one run's view; used only on the run's loop."""

    def __init__(self, session: Session, view: SingleRunView, changed: Callable[[], None]) -> None:
        self._session = session
        self._view = view
        self._changed = changed
        self._asks_to_confirm = False
        """Whether the button was pressed once, and the notice asks for confirmation."""
        self._shown: NoticeItem | None = None

    def follow(self) -> None:
        """Show which other process is running the run; nothing if there is none."""
        process = self._session.follower.driven_elsewhere
        self._asks_to_confirm &= bool(process)
        self._show(self._item(reveal(describe_process(process))) if process else None)

    def pressed(self, action: str) -> None:
        """Handle a press of one of the notice's buttons."""
        if action != "take" or not self._asks_to_confirm:
            self._asks_to_confirm = action == "take"
            self.follow()
            return
        self._asks_to_confirm = False
        try:
            self._session.follower.take_over()
        except NbagentError as error:
            text = TEXTS["take_over_failed"].format(error=reveal(str(error)))
            self._show(NoticeItem(key=KEY, tone="bad", text=text))

    def _item(self, process: str) -> NoticeItem:
        if not self._asks_to_confirm:
            ask = NoticeAction(name="take", label=TEXTS["take_over"])
            return NoticeItem(
                key=KEY, text=TEXTS["driven_by"].format(process=process), actions=[ask]
            )
        actions = [
            NoticeAction(name="take", label=TEXTS["take_over_now"]),
            NoticeAction(name="leave", label=TEXTS["take_over_cancel"]),
        ]
        text = TEXTS["take_over_from"].format(process=process)
        return NoticeItem(key=KEY, tone="warn", text=text, actions=actions)

    def _show(self, item: NoticeItem | None) -> None:
        if item != self._shown:
            self._shown = item
            self._view.notice(KEY, item, first=True)
            self._changed()
