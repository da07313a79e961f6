"""``nb.notify`` without a browser: the card's text after each press, and the error in a script."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb
from nbagent.notebook.browser_notes import NotifyCard


async def test_c405_the_card_shows_only_the_known_notification_states() -> None:
    """On, off, or blocked by the browser; any other press changes nothing."""
    card = NotifyCard()

    def press(action: str, notice: str = "notify") -> tuple[str, list[Any]]:
        card._handle({"type": "press", "notice": notice, "action": action})
        (item,) = card._view().items
        return item.text.split()[2], [(one.name, one.label) for one in item.actions]

    turned_off = ("can", [("notify", "Turn on notifications")])
    assert press("stop") == turned_off
    assert press("notify", "other") == turned_off
    assert press("notify") == ("notifies", [("quiet", "Turn off")])
    assert press("bogus") == ("notifies", [("quiet", "Turn off")])
    assert press("blocked") == ("blocks", [("notify", "Try again")])
    assert press("quiet") == turned_off
    assert "button" not in card.bundle()["text/html"].rpartition("</style>")[2]


def test_a_script_gets_an_error_that_it_has_no_browser() -> None:
    """A button would be shown to nobody."""
    with pytest.raises(nb.errors.UsageError, match="shows a button in a notebook"):
        nb.notify()
