"""The view of a table card: the rows that a page wants, and the frame above them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from nbagent.notebook.wire import CardHead, Item, NoticeItem, Op, Put, Remove, SetHead, View

ROWS = 60
"""Maximum number of rows that a page receives at once."""
MAX_TEXT = 500
"""Maximum characters of a filter's value."""
Row = TypeVar("Row")
Filter: TypeAlias = tuple[str, str, Sequence[tuple[str, str]] | None]
"""The name and label of a filter, and its choices, as value and label; None for a search box."""


@dataclass(frozen=True, slots=True)
class Query:
    """The rows that a page wants: the values of the filters, the order, and the visible part."""

    filters: Mapping[str, str]
    """The value of each filter, by name; empty for all rows."""
    by: str = ""
    """The column to sort by; empty for the order in which the rows come."""
    backwards: bool = False
    first: int = 0
    count: int = ROWS // 2


class TableView:
    """The common part of the views of tables, with these filters and sortable columns; safe to use from several threads."""

    def __init__(self, filters: Sequence[str], columns: Sequence[str] = ()) -> None:
        self._lock = threading.RLock()
        self._columns = columns
        self.query = Query(dict.fromkeys(filters, ""))
        self.opened = ""
        """The key of the row whose card is open below the table."""
        self.notices: dict[str, str] = {}
        """Errors of the store and of opening a row, by what they are about."""
        self.state: dict[str, Any] = draw_state(self.query.filters)
        self.window: dict[str, Any] = {}
        """The columns, and the rows of the visible part; see ``_draw_window``. Empty for a card without a table."""
        self.covers: dict[str, Any] = {}
        """The values that an answer to many questions covers."""
        self._sent: View | None = None

    # --- actions of a person

    def want(self, filters: Mapping[str, str]) -> None:
        """Set the filters, and go to the first row."""
        known = {name: filters.get(name, "")[:MAX_TEXT] for name in self.query.filters}
        self.query = replace(self.query, filters=known, first=0)

    def sort(self, column: str) -> None:
        """Sort by a column. A second call reverses the order; a third call sorts as at first."""
        if column not in self._columns:
            return
        query = self.query
        by, backwards = (column, False) if query.by != column else (column, True)
        if query.by == column and query.backwards:
            by, backwards = "", False
        self.query = replace(query, by=by, backwards=backwards, first=0)

    def show_rows(self, first: int, count: int) -> None:
        """Show this part of the rows."""
        self.query = replace(self.query, first=max(0, first), count=max(1, min(count, ROWS)))

    def set_notice(self, about: str, text: str) -> None:
        """Show an error; an empty ``text`` removes it."""
        with self._lock:
            self.notices.pop(about, None)
            if text:
                self.notices[about] = text

    # --- drawing

    @property
    def labels(self) -> dict[str, str]:
        """The texts that the page shows by itself."""
        return {"gone": ""}

    def _draw_window(
        self,
        query: Query,
        rows: Sequence[Row],
        columns: Sequence[tuple[str, str]],
        cells: Callable[[Row], tuple[str, str, str, list[str]]],
        none: str,
    ) -> dict[str, Any]:
        """The visible part of these rows, as the page draws it.

        ``columns``: the name and label of each column. ``from``, ``total``: the index of the first visible row, and
        the number of all rows. ``rows``: key, name, status and cell texts of each row. ``opened``: the key of the
        open row. ``by``, ``order``: as in ``aria-sort``. ``none``: the text for no rows.
        """
        first = max(0, min(query.first, len(rows) - 1))
        return {
            "columns": columns,
            "from": first,
            "total": len(rows),
            "rows": [cells(row) for row in rows[first : first + query.count]],
            "opened": self.opened,
            "by": query.by,
            "order": "descending" if query.backwards else "ascending",
            "none": none,
        }

    def snapshot(self) -> View:
        """The card above the rows: what the table is of, and its errors."""
        with self._lock:
            return View(head=self._head(), items=self._items())

    def _head(self) -> CardHead:
        raise NotImplementedError

    def _items(self) -> list[Item]:
        """The items of the card; by default its errors."""
        return [
            NoticeItem(key=about, tone="bad", text=text) for about, text in self.notices.items()
        ]

    def flush(self) -> list[Op]:
        """The operations on the card since the last flush."""
        with self._lock:
            view, before = self.snapshot(), self._sent
            self._sent = view
        old = {} if before is None else {item.key: item for item in before.items}
        present = {item.key for item in view.items}
        ops: list[Op] = [Remove(key=key) for key in old if key not in present]
        for index, item in enumerate(view.items):
            if old.get(item.key) is not item and old.get(item.key) != item:
                ops.append(Put(item=item, index=index))
        if before is None or before.head != view.head:
            ops.append(SetHead(head=view.head))
        return ops


def choose(
    rows: Sequence[Row],
    query: Query,
    text: Callable[[Row], str],
    order: Mapping[str, Callable[[Row], Any]],
) -> list[Row]:
    """The rows that have all words of the filter ``text``, sorted; rows without a value in the column come last.

    Args:
        rows: the rows that match the other filters.
        query: the words and the order.
        text: the text of a row in which words are found.
        order: the sort key of each column; None or empty for no value.
    """
    words = query.filters["text"].casefold().split()
    if words:
        texts = ((row, text(row).casefold()) for row in rows)
        rows = [row for row, found in texts if all(word in found for word in words)]
    if query.by not in order:
        return list(rows)
    keyed = [(order[query.by](row), row) for row in rows]
    filled = [each for each in keyed if each[0] not in (None, "")]
    filled.sort(key=lambda each: each[0], reverse=query.backwards)
    return [row for _, row in filled] + [row for key, row in keyed if key in (None, "")]


def draw_state(
    wanted: Mapping[str, str],
    *,
    filters: Sequence[Filter] = (),
    found: str = "",
    buttons: Sequence[tuple[str, str, str, str]] = (),
    progress: Mapping[str, Any] | None = None,
    asks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All that a page draws around the rows.

    Args:
        wanted: the values of the filters.
        filters: the filters that the page shows.
        found: the number of matching rows, in words.
        buttons: the place, action and label of each button, and the label that asks whether the person is sure.
        progress: the bar above the filters.
        asks: the questions that are answered together.
    """
    return {
        "wanted": wanted,
        "filters": filters,
        "found": found,
        "buttons": buttons,
        "progress": progress,
        "asks": asks,
    }
