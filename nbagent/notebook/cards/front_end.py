"""The code, styles and texts that all cards share: a separate widget, which is sent to a page once.

Every card refers to this widget. A page that has any card therefore also has this widget, even after a reload,
or if the page reads both from the widget state in a saved notebook.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
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
"""The module that loads the card's module from a ``FrontEnd``."""
FIND = (STATIC / "find.js").read_text(encoding="utf-8")
"""The module for searching in a card. A page loads it at the first search."""
WAITING = (STATIC / "waiting.js").read_text(encoding="utf-8")
"""The module that leads to questions outside the visible area. A page loads it at the first such question."""
SAVED = (STATIC / "saved.js").read_text(encoding="utf-8")
"""The module that writes the static version of a card into the page's notebook, if there is one."""
TABLE = (STATIC / "table.js").read_text(encoding="utf-8")
"""The module for the rows of runs and batches, and for the filters of an inbox."""
SHEET = styles.on_page() + (
    ".nba-alone .nba-header, .nba-alone .nba-footer { display: none !important; }"
    ":is(.nba-inbox, .nba-reads) :is(.nba-stop, .nba-strip) { display: none !important; }"
    ".nba-frame .nbagent.nbagent:not(#nba) { margin-bottom: 0; border-bottom: 0; border-radius: 10px 10px 0 0; }"
    ".nba-frame .nba-footer, .nba-frame .nba-items:empty { display: none !important; }"
    ".nba-inbox .nba-calls :is(th[scope=col], td[data-label]) { min-width: 5ch; }"
)
"""The style sheet, with ``&`` in place of the selector of a card."""
STYLE = SHEET.replace("&", styles.LIVE)


class CardWidget(anywidget.AnyWidget):
    """A widget that a page draws with nbagent's code."""

    comm: Any  # ipywidgets ships no types

    def open(self) -> None:
        """Open the comm as ipywidgets does, but register for its messages before a page receives the widget.

        If a separate thread receives messages, a page's ``Hello`` may arrive before ``open`` returns.
        """
        if self.comm is not None or kernel.kernel_loop() is None:
            super().open()
            return
        new_comm = kernel.create_comm(target_name="jupyter.widget", primary=False)
        self.comm = new_comm
        state = {"state": self.get_state(), "buffer_paths": []}
        new_comm.open(data=state, metadata={"version": ipywidgets.__protocol_version__})

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class FrontEnd(ipywidgets.Widget):  # type: ignore[misc]
    """The common parts of all cards; it shows nothing itself."""

    packed = traitlets.Bytes().tag(sync=True)
    """All parts by name, as compressed JSON, which has a third of the size."""

    def __init__(self) -> None:
        self.texts = dict(TEXTS)
        """The texts when this widget was opened. A card sends only texts that differ from them."""
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

    def _repr_keys(self) -> Any:
        return iter(())


def close_boxes(boxes: Iterable[Any]) -> None:
    """Close boxes and the widgets in them, with their layouts and styles, which would stay in the kernel."""
    for box in boxes:
        for widget in (*box.children, box):
            for part in (widget, widget.layout, getattr(widget, "style", None)):
                if part is not None:
                    part.close()


_open: list[FrontEnd] = []


def shared() -> FrontEnd | None:
    """The kernel's ``FrontEnd``, opened again if it was closed; None outside of kernels.

    In other hosts, a widget may not have access to the page's other widgets, so each card has its own code.
    """
    if not kernel.in_kernel():
        return None
    if not _open or _open[0].comm is None:
        _open[:] = [FrontEnd()]
    return _open[0]
