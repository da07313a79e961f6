"""Rows of a result: a table for the person, bounded text for the model."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.core.tools.tables import cell

MAX_CELL = 300
"""Characters of one value."""
MAX_TEXT = 20_000
"""Characters of one table that the model receives."""
MAX_COLUMNS = 60
"""Columns that are shown."""
MAX_NAMES = 30
"""Columns, tables or variables that one list names."""
MAX_SCHEMA = 500
"""Tables and columns in the description of a database."""


def some(names: Sequence[str], *, joint: str = ", ", most: int = MAX_NAMES) -> str:
    """The first names, and how many more there are."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return joint.join([*names[:most], *more])


@dataclass(frozen=True, repr=False)
class Table:
    """Named columns and their rows; ``note`` says what was left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._shown_columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_text(value))}</td>' for value in row[:MAX_COLUMNS])}</tr>"
            for row in self.rows
        )
        note = f"<p>{html.escape(self._notes)}</p>" if self._notes else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def __str__(self) -> str:
        """Rows as tab-separated lines below a line of column names; then notes about the omitted parts."""
        lines = ["\t".join(_text(name) for name in self._shown_columns)]
        size = len(lines[0])
        for number, row in enumerate(self.rows):
            line = "\t".join(_text(value) for value in row[:MAX_COLUMNS])
            size += len(line) + 1
            if size > MAX_TEXT:
                lines.append(f"({len(self.rows) - number} more rows are too long to show)")
                break
            lines.append(line)
        if not self.rows:
            lines.append("(no rows)")
        return "\n".join([*lines, f"({self._notes})"] if self._notes else lines)

    __repr__ = __str__

    @property
    def _shown_columns(self) -> Sequence[str]:
        return self.columns[:MAX_COLUMNS]

    @property
    def _notes(self) -> str:
        more = len(self.columns) - MAX_COLUMNS
        notes = [self.note, f"{more} more columns are not shown" if more > 0 else ""]
        return "; ".join(note for note in notes if note)


def columns_table(rows: Sequence[Sequence[Any]]) -> Table:
    """A row for each column of a database's tables: the table, the column, its type."""
    note = f"the first {MAX_SCHEMA} columns; there are more" if len(rows) > MAX_SCHEMA else ""
    return Table(["table", "column", "type"], rows[:MAX_SCHEMA], note)


def _text(value: Any) -> str:
    return "" if value is None else cell(value if isinstance(value, str) else str(value), MAX_CELL)
