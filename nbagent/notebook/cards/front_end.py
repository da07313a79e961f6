"""The common code, styles and texts of all cards: a widget of its own, sent to a page once.

Cards refer to it. So a page that opens, that is reloaded, or that finds the widgets' state in a saved
notebook has it beside its cards, whichever of them still exist.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from nbagent.notebook import kernel
from nbagent.notebook.render import styles
from nbagent.notebook.texts import TEXTS

STATIC = Path(__file__).parents[2] / "static"
CARD = (STATIC / "card.js").read_text(encoding="utf-8")
"""The module whose default export is a card."""
LOADER = (STATIC / "loader.js").read_text(encoding="utf-8")
"""The module that takes the card's from a ``FrontEnd``."""
FIND = (STATIC / "find.js").read_text(encoding="utf-8")
"""The module that finds in a card, which a page loads when somebody does."""
WAITING = (STATIC / "waiting.js").read_text(encoding="utf-8")
"""The module that leads to questions that are out of sight, which a page loads when there is one."""
SAVED = (STATIC / "saved.js").read_text(encoding="utf-8")
"""The module that writes the saved form of a card into its notebook, where a page has one."""
LISTS = (STATIC / "lists.js").read_text(encoding="utf-8")
"""The module for the filters of an inbox, and for the list of runs."""
SHEET = styles.on_page() + (
    ".nba-alone .nba-header, .nba-alone .nba-footer { display: none !important; }"
    ":is(.nba-inbox, .nba-reads) :is(.nba-stop, .nba-strip) { display: none !important; }"
    ".nba-frame .nbagent.nbagent:not(#nba) { margin-bottom: 0; border-bottom: 0; border-radius: 10px 10px 0 0; }"
    ".nba-frame .nba-footer, .nba-frame .nba-items:empty { display: none !important; }"
    ".nba-inbox .nba-calls :is(th[scope=col], td[data-label]) { min-width: 5ch; }"
)
"""The sheet, whose rules of cards are for ``&``."""
STYLE = SHEET.replace("&", styles.LIVE)


class Own(anywidget.AnyWidget):
    """A widget that a page draws with nbagent's code."""

    comm: Any  # ipywidgets ships no types

    def open(self) -> None:
        """Open the comm as ipywidgets does, but receive its messages before a page can know of it.

        Where a thread of its own receives messages, a page's ``Hello`` may arrive before ``open`` returns.
        """
        if self.comm is not None or kernel.kernel_loop() is None:
            super().open()
            return
        new_comm = kernel.create_comm(target_name="jupyter.widget", primary=False)
        self.comm = new_comm
        state = {"state": self.get_state(), "buffer_paths": []}
        new_comm.open(data=state, metadata={"version": ipywidgets.__protocol_version__})


class FrontEnd(ipywidgets.Widget):  # type: ignore[misc]
    """The common parts of all cards; it shows nothing itself."""

    packed = traitlets.Bytes().tag(sync=True)
    """All of it by name, as JSON that is compressed: a third of its size."""

    def __init__(self) -> None:
        self.texts = dict(TEXTS)
        """The texts at the time when it was opened; a card sends its own texts that differ."""
        parts: dict[str, Any] = {
            "code": CARD,
            "find": FIND,
            "waiting": WAITING,
            "saved": SAVED,
            "css": SHEET,
            "texts": self.texts,
        }
        if sys.platform == "emscripten":
            parts["page"] = (STATIC / "page.js").read_text(encoding="utf-8")
        super().__init__(packed=gzip.compress(json.dumps(parts).encode(), mtime=0))
        self.layout = ipywidgets.Layout()
        """The layout of all cards and their boxes, which have no sizes of their own."""

    def __repr__(self) -> str:
        return "FrontEnd()"

    def _repr_keys(self) -> Any:
        return iter(())


_open: list[FrontEnd] = []


def shared() -> FrontEnd | None:
    """The one of this kernel, opened again if it was closed; None outside of kernels.

    Other hosts need not make the other widgets of a page available to a widget: there each card has its code itself.
    """
    if not kernel.in_kernel():
        return None
    if not _open or _open[0].comm is None:
        _open[:] = [FrontEnd()]
    return _open[0]
