"""``nb.notify()`` without an address: a button for the browser's notifications about open questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from IPython.display import display

from nbagent.core.base.errors import UsageError

from . import kernel
from .cards.card import Card
from .cards.display import Live
from .render import static
from .texts import TEXTS
from .wire import CardHead, NoticeAction, NoticeActionName, NoticeItem, Press, Put, View

_KEY = "notify"
_BUTTONS: dict[NoticeActionName, tuple[str, str]] = {
    "notify": ("notify_on", "notify_turn_off"),
    "quiet": ("notify_ask", "notify_turn_on"),
    "blocked": ("notify_blocked", "notify_again"),
}
"""The keys of the notice's text and of its button's label, for each action that a page can send."""


class NotifyCard(Card):
    """A card with one notice and a button: the page asks the browser for permission, and sends the outcome."""

    css_classes = ("nba-alone",)

    def __init__(self) -> None:
        self.loop = kernel.kernel_loop() or asyncio.get_running_loop()
        self._last_action: NoticeActionName = "quiet"
        self.on_change: Callable[[], None] = lambda: None
        super().__init__()

    def bundle(self) -> dict[str, str]:
        """The card as HTML and text that need no kernel."""
        return _bundle(self._item())

    def _item(self) -> NoticeItem:
        text, label = (TEXTS[key] for key in _BUTTONS[self._last_action])
        tone = "warn" if self._last_action == "blocked" else "plain"
        name: NoticeActionName = "quiet" if self._last_action == "notify" else "notify"
        return NoticeItem(
            key=_KEY, tone=tone, text=text, actions=[NoticeAction(name=name, label=label)]
        )

    def _view(self) -> View:
        return _view(self._item())

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": TEXTS["notify_card"]}

    def _pressed(self, message: Press) -> None:
        if message.notice != _KEY or message.action not in _BUTTONS:
            return
        with self._lock:
            self._last_action = message.action
            self._unsent.append(Put(item=self._item(), index=0))
        self.push()
        self.on_change()


def show_button() -> None:
    """Show the button that turns on the browser's notifications about open questions.

    The browser asks the person once, and notifies only while the notebook's tab is in the background. The choice
    applies to this browser, in all notebooks of this server, until the same button turns notifications off.
    Nothing leaves the machine. If nobody is attached, the text is shown without the button.

    Raises:
        UsageError: this is not a notebook.
    """
    if not kernel.in_kernel():
        raise UsageError(
            "nb.notify() shows a button in a notebook. In a script, pass a recipient: nb.notify(to=…)"
        )
    if not kernel.attended():
        item = NoticeItem(key=_KEY, text=TEXTS["notify_ask"])
        display(_bundle(item), raw=True)  # type: ignore[no-untyped-call]
        return
    card = NotifyCard()
    live = Live(card)
    card.on_change = lambda: live.keep(soon=True)
    live.show()


def _bundle(item: NoticeItem) -> dict[str, str]:
    return {"text/html": static.render(_view(item), frame=False), "text/plain": item.text}


def _view(item: NoticeItem) -> View:
    name, status_text = TEXTS["notify_card"], TEXTS["status_completed"]
    head = CardHead(run=_KEY, agent=name, status="completed", status_text=status_text)
    return View(head=head, items=[item])
