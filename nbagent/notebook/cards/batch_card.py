"""The live card of a batch: the frame, the table of rows, and below it the card of the open row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from html import escape
from typing import Any

import anywidget
import traitlets

from nbagent.batch.batch import Batch, work_of
from nbagent.core.base.errors import NbagentError
from nbagent.core.base.interrupts import PendingInterrupt, Reject
from nbagent.core.call.threads import run_in_thread
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.scripted_answers import approval_of, as_resolution
from nbagent.core.stored.inbox import Answered, Asked
from nbagent.notebook import kernel
from nbagent.notebook.render import static
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import BATCH_TEXTS, TEXTS
from nbagent.notebook.view.batch import (
    COLUMNS,
    OPERATORS,
    ROWS,
    SHOWN,
    BatchView,
    Rule,
    choices_of,
    takes_text,
)
from nbagent.notebook.wire import Op, View

from . import front_end
from .card import Card
from .list_bar import StoreReader, log_failure
from .run_card import RunCard

MAX_TEXT = 500
"""Maximum characters of a search text, and of each part of a rule; a row's key may have twice as many."""
FAILURES = 20
"""Maximum number of failed rows in the static version."""
FIRST = 10
"""Maximum number of rows in the static version."""
MAX_REASON = 5_000
"""Maximum characters of a reason."""


class BatchTable(anywidget.AnyWidget):
    """Progress, questions and rows, below the frame."""

    _esm = (front_end.STATIC / "batch.js").read_text(encoding="utf-8")
    state = traitlets.Dict().tag(sync=True)
    """The value of ``BatchView.state``."""
    window = traitlets.Dict().tag(sync=True)
    """The value of ``BatchView.window``."""
    covers = traitlets.Dict().tag(sync=True)
    """The value of ``BatchView.covers``."""

    def __repr__(self) -> str:
        return "BatchTable()"

    def _repr_keys(self) -> Any:
        return iter(())


class BatchCard(Card):
    """The frame: the batch, its progress, and its errors. Used only on the kernel's loop."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.view = BatchView(batch)
        self.on_change: Callable[[], None] = lambda: None
        """Called when the content of the card has changed."""
        self.on_open: Callable[[Card | None], None] = lambda _card: None
        """Called with the card to show below; None closes the card below."""
        self.below: Card | None = None
        """The card of the open row."""
        self._loop = kernel.kernel_loop() or asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Lock()
        self._version = -1
        self._looking = StoreReader(self._loop, self._read_rows, self._looked)
        self.view.look()
        self.table = BatchTable(**self._drawn())
        self.table.on_msg(
            lambda _widget, content, _buffers: self._later(
                lambda: self._handle_table_message(content)
            )
        )
        super().__init__()
        self.add_class("nba-reads").add_class("nba-frame")
        self._later(self._looking.seen)

    def __repr__(self) -> str:
        return "BatchCard()"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The kernel's loop."""
        return self._loop

    @property
    def rows(self) -> list[Any]:
        """The table, which is shown below the frame."""
        return [self.table]

    # --- reading the store

    def _read_rows(self, again: bool) -> bool:  # noqa: FBT001 -- a fact, not a mode
        work = work_of(self.batch)
        is_running = self.batch.status in ("starting", "running")
        asks = bool(self.view.asked) and self.view.waiting.has_changed
        if again or is_running or asks or self._version != work.version:
            self._version = work.version
            self.view.look()
        return False

    def _looked(self, trouble: str) -> None:
        self.view.trouble = trouble
        changed = False
        for name, new in self._drawn().items():
            if new != getattr(self.table, name):
                setattr(self.table, name, new)
                changed = True
        with self._lock:
            self._push()
        if changed:
            self.on_change()

    def _drawn(self) -> dict[str, Any]:
        """The values of the table's traits."""
        return {name: getattr(self.view, name) for name in ("covers", "state", "window")}

    # --- actions of a person

    def _handle_table_message(self, content: Any) -> None:
        view, batch = self.view, self.batch
        match content:
            case {"type": "shown"}:
                self._looking.seen()
                return
            case {"type": "window", "from": int(first), "count": int(count)} if first >= 0:
                view.first, view.count = first, max(1, min(count, ROWS))
            case {"type": "want", "text": str(text), "status": str(status)}:
                view.text, view.first = text[:MAX_TEXT], 0
                view.status = status if status in SHOWN else ""
            case {"type": "sort", "column": str(column)} if column in COLUMNS:
                view.backwards = not view.backwards if view.by == column else False
                view.by, view.first = column, 0
            case {
                "type": "rule",
                "rule": [str(), str(), str(operator), str(), str()] as parts,
            } if operator in OPERATORS:
                view.rule = Rule(*(part[:MAX_TEXT] for part in parts))
                view.outcome_text = ""
            case {
                "type": "decide",
                "preview": int(number),
                "opened": [*opened],
                "rule": [*parts],
                "action": str(action),
                "reason": str(reason),
            }:
                ids = [each for each in opened if isinstance(each, str)]
                self._start_task(self._decide(number, ids, parts, action, reason[:MAX_REASON]))
                return
            case {"type": "look", "preview": int(number), "value": str(id_)}:
                view.open_value(number, id_)
            case {"type": "open", "key": str(key)} if len(key) <= 2 * MAX_TEXT:
                self._start_task(self._open("" if key == view.opened else key))
                return
            case {"type": "pause" | "resume" | "retry" as verb}:
                getattr(batch, verb)()
            case {"type": "stop"}:
                batch.stop(by="form")
            case _:
                return  # not a message of nbagent's pages
        self._looking.soon()

    def _start_task(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_failure)

    async def _decide(
        self, number: int, opened: list[str], parts: list[Any], action: str, reason: str
    ) -> None:
        """Answer the questions of which the page had every value, for the rule in its controls, and no others."""
        view, rule = self.view, self.view.rule
        preview = view.previews.get(number)
        is_current = preview is not None and preview.rule == rule and parts == list(astuple(rule))
        shown = preview.covered(opened) if preview is not None and is_current else []
        means = _meaning(action, reason, shown)
        if means is None or not shown:
            view.outcome_text = BATCH_TEXTS["batch_check_again"]
            self._looking.soon()
            return
        answered = Answered()
        try:
            await view.waiting.answer_each(
                shown,
                means,
                by=f"form, rule: {rule.in_words()}",
                into=answered,
            )
            view.outcome_text = reveal(
                BATCH_TEXTS["batch_answered"].format(n=f"{answered.count:,}")
            )
            if answered.refused:
                n, error = len(answered.refused), answered.refused[0][1]
                view.outcome_text += " · " + reveal(
                    BATCH_TEXTS["batch_refused"].format(n=f"{n:,}", error=error)
                )
        except NbagentError as error:
            view.outcome_text = reveal(str(error))
        self._looking.soon()

    async def _open(self, key: str) -> None:
        """Show the card of the row with this key below; with an empty key, close the card below."""
        async with self._turns:
            card, error_text = None, ""
            if key in self.batch:
                try:
                    run = await self.batch[key].open(show=False)
                    card = RunCard(run)
                except NbagentError as error:
                    error_text = TEXTS["runs_not_opened"].format(
                        run=reveal(key), error=reveal(str(error))
                    )
            self.view.opened, self.below, self.view.trouble = (
                "" if card is None else key,
                card,
                error_text,
            )
            self.on_open(card)
            await run_in_thread(self.view.look)
            self._looked(error_text)

    # --- methods of every card

    def _view(self) -> View:
        return self.view.snapshot()

    def _changes(self) -> list[Op] | None:
        return self.view.flush() or None

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": "{agent}", "gone": ""}  # the table shows its own "gone" text


def _meaning(
    action: str, text: str, shown: Sequence[Asked]
) -> Callable[[PendingInterrupt], AnyResolution] | None:
    """A function that returns the resolution for a button; None if the button is not valid for these questions."""
    if action == "approve":
        return approval_of
    if action == "reject":
        return lambda _: Reject(reason=text or None)
    choices = choices_of(shown)
    if action == "answer" and text.isdecimal() and int(text) < len(choices):
        return partial(as_resolution, choices[int(text)][0])
    if action == "answer" and text and takes_text(shown):
        return partial(as_resolution, text)
    return None


def bundle(batch: Batch) -> dict[str, str]:
    """A batch as HTML and text that need no kernel: counts, the first rows, failures."""
    view = BatchView(batch)
    view.count = FIRST
    view.look()
    frame = static.render(view.snapshot())
    counts = [label for _, label, _ in view.state["counts"]]
    counts_text = " · ".join(filter(None, (*counts, view.state["used"])))
    table, more = _table(view.window["rows"]), view.state["total"] - FIRST
    more_note = (
        f"<p>{escape(BATCH_TEXTS['batch_more'].format(n=f'{more:,}'))}</p>" if more > 0 else ""
    )
    failed, n = "", batch.counts["failed"]
    if n:
        view.status, view.first, view.count = "failed", 0, FAILURES
        view.look()
        first = f" ({BATCH_TEXTS['batch_first'].format(n=FAILURES)})" if n > FAILURES else ""
        heading = f"{BATCH_TEXTS['batch_count'].format(n=f'{n:,}', what=BATCH_TEXTS['batch_failed'])}{first}"
        failed = f"<p><b>{escape(heading)}</b></p>{_table(view.window['rows'])}"
    html = f"{frame}<div style='margin-top:8px'><p>{escape(counts_text)}</p>{table}{more_note}{failed}</div>"
    return {"text/html": html, "text/plain": repr(batch)}


def _table(rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    names = (
        "#",
        BATCH_TEXTS["batch_key"],
        BATCH_TEXTS["batch_status"],
        BATCH_TEXTS["batch_result"],
        BATCH_TEXTS["batch_cost"],
    )
    head = "".join(f"<th scope='col' style='text-align:left'>{escape(name)}</th>" for name in names)

    def line(row: Sequence[Any]) -> str:
        _, number, _, status, text, cost, key = row
        cells = (f"{number:,}", key, status, text, cost)
        return "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)

    body = "".join(f"<tr>{line(row)}</tr>" for row in rows)
    return f"<div style='overflow-x:auto'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
