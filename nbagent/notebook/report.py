"""A batch as one document to send: its counts, who decided what, failures, all rows, and the card of each row that asked.

The text of models, tools and people is escaped or sanitized, as in an exported run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from nbagent.batch.batch import Batch, work_of
from nbagent.batch.frame import fields_of
from nbagent.batch.listing import RowState, update_row
from nbagent.core.base.errors import NbagentError
from nbagent.core.base.events import Interrupted, RunCompleted, RunStarted, StoredEvent
from nbagent.core.base.messages import dumps, text_of
from nbagent.core.journal.journal import Journal
from nbagent.core.stored.decisions import Decision, Decisions, decisions_in

from .export import page, pieces, view_of_events
from .render import as_markdown, facts, static
from .render.reveal import reveal
from .render.sanitize import escape
from .texts import BATCH_TEXTS, REPORT_TEXTS
from .view.batch import count_texts, used_text
from .wire import View

MAX_ROWS = 2_000
"""Maximum number of rows in each table; ``Batch.to_frame`` has all."""
MAX_CARDS = 300
"""Maximum number of rows whose cards are in the report."""
MAX_PEOPLE = 20
"""Maximum number of counts by person and decision."""
MAX_VALUE = 2_000
"""Maximum characters of a cell."""

_STYLE = """body { font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.wide { overflow-x: auto; }
.wide table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.wide :is(th, td) { padding: 5px 10px; border-bottom: 1px solid color-mix(in srgb, CanvasText 18%, Canvas); text-align: start; vertical-align: top; overflow-wrap: break-word; }
.wide td { white-space: pre-line; } .wide th { white-space: nowrap; }
@media print { .wide td { overflow-wrap: anywhere; min-width: 4.5em; } }
.row { margin-block: 8px; } .row > summary { padding-block: 4px; cursor: pointer; font-weight: 600; }
"""


class _Table(NamedTuple):
    """A part of the report; cells are plain text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int
    """The number of rows, including those that are left out."""
    about: str = ""


class _Report:
    """What both forms of the report say."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._work = work_of(batch)
        self._output_type = self._work.agent.output_type
        self._fields = fields_of(self._output_type)
        self._has_cost = bool(batch.usage.known_cost)
        self._counts: Counter[str] = Counter()
        self._keys: dict[str, str] = {}
        """The row's key by run id, which has a hash of some keys."""
        self._decided: list[Decision] = []
        self._failed: list[RowState] = []
        self._cells: list[list[str]] = []
        self.cards: list[tuple[str, View]] = []
        """The title and the view of each row that asked."""
        self.asked = 0
        """The number of rows that asked, including those whose cards are left out."""
        for row in sorted(self._work.rows.values(), key=lambda row: row.number):
            self._add(row)

    def _add(self, known: RowState) -> None:
        row, store = replace(known), self._batch.store
        journal = Journal(row.run_id, store, keeps_events=False)
        try:
            events = store.read(row.run_id)
            journal.catch_up(events)
        except NbagentError as error:  # the other rows can be read
            row.error, events = f"({error})", []
        else:
            update_row(row, journal.state)
        status = "stuck" if row.key in self._work.stuck else row.status
        status = "running" if status == "queued" else status
        self._counts[status] += 1
        self._keys[row.run_id] = row.key
        self._decided += decisions_in(row.run_id, events)
        if row.status == "failed":
            self._failed.append(row)
        word = BATCH_TEXTS[f"batch_{status}"]
        if len(self._cells) < MAX_ROWS:
            cells = [f"{row.number:,}", _cell(row.key), word, _cell(_prompt(events))]
            cost = [f"${row.usage.cost:,.4f}" if row.usage.cost else ""] * self._has_cost
            self._cells.append([*cells, *self._results(row, events), *cost])
        if any(isinstance(event, Interrupted) for event in events):
            self.asked += 1
            if self.asked <= MAX_CARDS:
                self.cards.append(
                    (f"{_cell(row.key)} · {word}", view_of_events(row.run_id, events))
                )

    def _results(self, row: RowState, events: Sequence[StoredEvent]) -> list[str]:
        """The cells of a row's result; a reason why there is none is in the first."""
        done = next(
            (e for e in reversed(events) if isinstance(e, RunCompleted) and not e.scope), None
        )
        number = len(self._fields) or 1
        if done is None:
            waits = ", ".join(name or BATCH_TEXTS["batch_limit"] for name in row.asks)
            return [_cell(row.error or waits), *[""] * (number - 1)]
        if self._output_type is None:
            return [_cell(done.text)]
        if not self._fields:
            return [_cell(done.output)]
        values = done.output if isinstance(done.output, dict) else {}
        return [_cell(values.get(name)) for name in self._fields]

    @property
    def title(self) -> str:
        """The agent and the batch."""
        return f"{reveal(self._batch.agent)} · {self._batch.id}"

    @property
    def summary(self) -> str:
        """The counts, the usage, and the error that ended the batch."""
        counts = count_texts({**self._counts, "left": self._work.left or 0})
        error = self._batch.error
        ended = "" if error is None else facts.shown(str(error), MAX_VALUE)
        return " · ".join(
            filter(None, (*(text for _, text, _ in counts), used_text(self._batch.usage), ended))
        )

    @property
    def tables(self) -> list[_Table]:
        """The decisions, the failures and the rows."""
        texts, report = BATCH_TEXTS, REPORT_TEXTS
        decided = sorted(self._decided, key=lambda one: one.answered_at)
        by = Counter((one.who, one.decision) for one in decided)
        counts = (
            f"{reveal(who)}: {n:,} {decision}" for (who, decision), n in by.most_common(MAX_PEOPLE)
        )
        shown = Decisions(decided[:MAX_ROWS])
        results = [*map(reveal, self._fields)] or [texts["batch_result"]]
        return [
            _Table(
                report["report_decisions"].format(n=f"{len(decided):,}"),
                [
                    texts["batch_key"],
                    *(name[0].upper() + name[1:] for name in shown.head[1:-1]),
                    report["report_on"],
                ],
                [[*map(_cell, (self._keys[run], *cells))] for run, *cells in shown.rows()],
                len(decided),
                " · ".join(counts),
            ),
            _Table(
                report["report_failures"].format(n=f"{len(self._failed):,}"),
                [texts["batch_key"], report["report_error"]],
                [[_cell(row.key), _cell(row.error)] for row in self._failed[:MAX_ROWS]],
                len(self._failed),
            ),
            _Table(
                report["report_rows"],
                [
                    *(texts[f"batch_{name}"] for name in ("number", "key", "status")),
                    report["report_input"],
                    *results,
                    *([texts["batch_cost"]] if self._has_cost else []),
                ],
                self._cells,
                len(self._work.rows),
            ),
        ]

    @property
    def cards_more(self) -> str:
        """How many cards are left out; empty if none are."""
        return _more(self.asked - len(self.cards))


def reported(batch: Batch, form: Literal["html", "markdown"]) -> str:
    """The batch as one whole document."""
    made = _Report(batch)
    if form == "html":
        content = "".join((*_overview(made), *_cards(made)))
        return page(made.title, content, style=_STYLE, width="1200px")
    return "\n\n".join((*map(as_markdown.of_html, _overview(made)), *_markdown_cards(made))) + "\n"


def _prompt(events: Sequence[StoredEvent]) -> str:
    first = events[0] if events else None
    return text_of(first.messages[-1]) if isinstance(first, RunStarted) and first.messages else ""


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else dumps(value)
    return facts.shown(text, MAX_VALUE)


def _overview(made: _Report) -> Iterator[str]:
    """The report without the cards, as HTML in parts; Markdown is made of the same."""
    yield f"<h1>{escape(made.title)}</h1>{_note(made.summary)}"
    for table in made.tables:
        if table.rows:
            more = _note(_more(table.total - len(table.rows)))
            yield f"<h2>{escape(table.title)}</h2>{_note(table.about)}{_drawn(table)}{more}"
    if made.cards:
        title = REPORT_TEXTS["report_asked"].format(n=f"{made.asked:,}")
        yield f"<h2>{escape(title)}</h2>"


def _more(left_out: int) -> str:
    return REPORT_TEXTS["report_more"].format(n=f"{left_out:,}") if left_out else ""


def _note(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _drawn(table: _Table) -> str:
    head = "".join(f'<th scope="col" dir="auto">{escape(name)}</th>' for name in table.head)
    rows = ("".join(f'<td dir="auto">{escape(cell)}</td>' for cell in row) for row in table.rows)
    body = "".join(f"<tr>{cells}</tr>" for cells in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cards(made: _Report) -> Iterator[str]:
    styles = set[str]()
    for title, view in made.cards:
        style, end, card = static.render(view, all_turns=True).partition("</style>")
        drawn = card if style in styles else style + end + card
        yield f'<details class="row"><summary>{escape(title)}</summary>{drawn}</details>'
        styles.add(style)
    yield _note(made.cards_more)


def _markdown_cards(made: _Report) -> Iterator[str]:
    for title, view in made.cards:
        yield f"### {as_markdown.escaped(title)}"
        yield from (text for _, text in pieces(view))
    if made.cards_more:
        yield as_markdown.escaped(made.cards_more)
