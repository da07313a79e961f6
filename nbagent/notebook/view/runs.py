"""The view of a store's runs: a table of the matching runs, of which the first are shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbagent.core.journal.default import is_missing
from nbagent.core.stored.listing import COLUMNS, STATUSES, Listing, StoredRun, Wanted, row_of
from nbagent.notebook.render import facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Head, NoticeItem, Op, Put, Remove, SetHead, View

PAGE = 50
"""Number of runs that are shown at first, and that each press of "Show more" adds."""


class RunsView:
    """The view of a list of runs; safe to use from several threads.

    Args:
        scope_text: the store of the runs, for the header.
    """

    def __init__(self, scope_text: str) -> None:
        self._scope_text = scope_text
        self._lock = threading.RLock()
        self.wanted = Wanted()
        self._room = PAGE
        self.opened = ""
        """The id of the run whose card is open below the table."""
        self.choices: dict[str, Any] = {}
        """The choices of each filter, by name, as value and label; see ``_choices``."""
        self._table: dict[str, Any] = _drawn(self.wanted, [], 0, TEXTS["inbox_loading"])
        self._is_missing = False
        """Whether the store's file does not exist yet."""
        self._count: int | None = None
        """The number of runs; None before the first look."""
        self._waiting = 0
        self._notices: dict[str, NoticeItem] = {}
        self._sent: View | None = None

    # --- actions of a person

    def want(self, text: str, agent: str, status: str) -> None:
        """Set the filters."""
        with self._lock:
            self.wanted = replace(self.wanted, text=text, agent=agent, status=status)
            self._room = PAGE

    def sort(self, column: str) -> None:
        """Sort by a column. A second call reverses the order; a third call sorts by latest change again."""
        with self._lock:
            if column not in COLUMNS:
                return
            by, backwards = self.wanted.by, self.wanted.backwards
            if by != column:
                by, backwards = column, False
            elif not backwards:
                backwards = True
            else:
                by, backwards = "", False
            self.wanted = replace(self.wanted, by=by, backwards=backwards)

    def show_more(self) -> None:
        """Make room for more rows."""
        with self._lock:
            self._room += PAGE

    # --- drawing

    def look(self, listing: Listing) -> None:
        """Draw the runs that were read last. Do not call this on an event loop, as there may be many runs."""
        every, count, unread = listing.all, listing.count, listing.left
        choices, is_new = _choices(listing), is_missing(listing.catalog.store)
        waiting = sum(run.status == "interrupted" for run in every)
        while True:
            with self._lock:
                wanted, room = self.wanted, self._room
            chosen = listing.chosen(wanted)
            text = _counted("runs", count)
            if len(chosen) != len(every):
                text = TEXTS["filter_count"].format(n=f"{len(chosen):,}", m=text)
            if unread:
                text = f"{text} · {TEXTS['runs_left'].format(n=f'{unread:,}')}"
            if count:
                table = _drawn(wanted, chosen, room, text)
            else:
                table = _drawn(Wanted(), [], 0, "") | {"columns": [], "none": TEXTS["runs_empty"]}
            with self._lock:
                if (wanted, room) == (
                    self.wanted,
                    self._room,
                ):  # else the filters have changed: draw again
                    self._table, self._count, self._waiting = table, count, waiting
                    self.choices, self._is_missing = choices, is_new
                    return

    def set_notice(self, about: str, text: str) -> None:
        """Show an error of the store, or of opening a run; an empty ``text`` removes the error."""
        with self._lock:
            self._notices.pop(about, None)
            if text:
                self._notices[about] = NoticeItem(key=about, tone="bad", text=text)

    @property
    def table(self) -> dict[str, Any]:
        """The rows and texts of the table, as the page draws them.

        ``columns``: the name, label and sort order of each column (``ascending``, ``descending`` or empty),
        and whether any run has a value in the column.
        ``rows``: the id, cell texts and status of each run. ``said``: the number of runs, in words.
        ``more``: the label of the button that shows more rows, or empty. ``opened``: the id of the open run.
        ``none``: the text for an empty list. ``open``, ``close``, ``gone``: other texts of the page.
        """
        with self._lock:
            return {**self._table, "opened": self.opened}

    def snapshot(self) -> View:
        """The card above the list: its store, and its errors."""
        with self._lock:
            return View(head=self._head(), items=[*self._notices.values()])

    def flush(self) -> list[Op]:
        """The operations on the card since the last flush."""
        with self._lock:
            view, before = self.snapshot(), self._sent
            self._sent = view
        old = [] if before is None else before.items
        ops: list[Op] = []
        if old != view.items:
            ops += [Remove(key=item.key) for item in old]
            ops += [Put(item=item, index=index) for index, item in enumerate(view.items)]
        if before is None or before.head != view.head:
            ops.append(SetHead(head=view.head))
        return ops

    def _head(self) -> Head:
        if self._count is None:
            status_text = TEXTS["inbox_loading"]
        else:
            status_text = _counted("runs", self._count)
            if self._waiting:
                status_text += " · " + TEXTS["inbox_waiting"].format(n=f"{self._waiting:,}")
        return Head(
            run="runs",
            agent=TEXTS["runs"],
            prompt=TEXTS["no_file"].format(place=self._scope_text)
            if self._is_missing
            else self._scope_text,
            status="interrupted" if self._waiting else "completed" if self._count else "cancelled",
            status_text=status_text,
            started_at=0.0,
            max_turns=0,
            questions=self._waiting,
        )


def _drawn(
    wanted: Wanted, chosen: Sequence[StoredRun], room: int, count_text: str
) -> dict[str, Any]:
    order, now = "descending" if wanted.backwards else "ascending", time.time()
    remaining = max(0, len(chosen) - room)
    has = {
        "asks": any(run.asks for run in chosen),
        "deadline": any(run.deadline is not None for run in chosen),
        "cost": any(run.usage.cost for run in chosen),
    }
    return {
        "columns": [
            [
                name,
                TEXTS[f"column_{name}"],
                order if name == wanted.by else "",
                has.get(name, True) or name == wanted.by,
            ]
            for name in COLUMNS
        ],
        "rows": [[run.id, _cells(run, now), run.status] for run in chosen[:room]],
        "said": count_text,
        "more": TEXTS["inbox_show_more"].format(n=min(PAGE, remaining)) if remaining else "",
        "none": TEXTS["runs_none"],
        "open": TEXTS["runs_open"],
        "close": TEXTS["runs_close"],
        "gone": TEXTS["runs_gone"],
    }


def _choices(listing: Listing) -> dict[str, Any]:
    """The choices of the filters, as value and label; empty if there are fewer than two runs."""
    if listing.count < 2:
        return {}
    agents = sorted({run.agent for run in listing.all if run.agent})
    present = {run.status for run in listing.all}
    statuses = [status for status in STATUSES if status in present]
    return {
        "agent": [["", TEXTS["all_agents"]], *([name, reveal(name)] for name in agents)],
        "status": [
            ["", TEXTS["all_statuses"]],
            *([status, TEXTS[f"run_{status}"]] for status in statuses),
        ],
        "labels": {name: TEXTS[f"filter_{name}"] for name in ("text", "agent", "status")},
    }


def _cells(run: StoredRun, now: float) -> list[str]:
    return [reveal(facts.bounded(text, facts.MAX_BRIEF)) for text in row_of(run, now)]


def _counted(name: str, count: int) -> str:
    return TEXTS[f"{name}_one" if count == 1 else f"{name}_count"].format(n=f"{count:,}")
