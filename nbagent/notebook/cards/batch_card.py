"""The live card of a batch: the frame, the table of rows, and below it the card of the open row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from html import escape
from typing import Any

from nbagent.batch.batch import Batch, work_of
from nbagent.core.base.errors import NbagentError
from nbagent.core.base.interrupts import PendingInterrupt, Reject
from nbagent.core.run.answers import AnyResolution
from nbagent.core.run.scripted_answers import approval_of, as_resolution
from nbagent.core.stored.inbox import InboxAnswer, InboxQuestion
from nbagent.notebook.render import static
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import BATCH_TEXTS
from nbagent.notebook.view.batch import OPERATORS, BatchView, QuestionRule, choices_of, takes_text
from nbagent.notebook.view.table import MAX_TEXT

from .card import Card
from .run_card import RunCard
from .table_card import TableCard

FAILURES = 20
"""Maximum number of failed rows in the static version."""
FIRST = 10
"""Maximum number of rows in the static version."""
MAX_REASON = 5_000


class BatchCard(TableCard):
    """The frame: the batch, its progress, and its errors."""

    view: BatchView

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._version = -1
        view = BatchView(batch)
        view.look()
        super().__init__(view)

    def bundle(self) -> dict[str, str]:
        """The batch as HTML and text that need no kernel."""
        return bundle(self.batch)

    def _read(self, *, again: bool) -> bool:
        work = work_of(self.batch)
        is_running = self.batch.status in ("starting", "running")
        asks = bool(self.view.asked) and self.view.waiting.has_changed
        if again or is_running or asks or self._version != work.version:
            self._version = work.version
            self.view.look()
        return False

    async def _card_of(self, key: str) -> Card | None:
        if key not in self.batch:
            return None
        return RunCard(await self.batch[key].open(show=False), self._typed.pop(key, None))

    def _handle_action(self, message: Any) -> None:
        view = self.view
        match message:
            case {
                "type": "rule",
                "rule": [str(), str(), str(operator), str(), str()] as parts,
            } if operator in OPERATORS:
                view.rule = QuestionRule(*(part[:MAX_TEXT] for part in parts))
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
            case {"type": "press", "action": "pause" | "resume" | "retry" as action}:
                refusal = ""
                try:
                    getattr(self.batch, action)()
                except NbagentError as error:  # such as that another process works on the batch
                    refusal = reveal(str(error))
                view.set_notice("press", refusal)
            case {"type": "press", "action": "stop"}:
                self.batch.stop(by="form")
            case _:
                return  # not a message of nbagent's pages
        self.read_soon()

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
            self.read_soon()
            return
        answered = InboxAnswer()
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
        self.read_soon()


def _meaning(
    action: str, text: str, shown: Sequence[InboxQuestion]
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
    view.show_rows(0, FIRST)
    view.look()
    frame = static.render(view.snapshot())
    progress = view.state["progress"]
    counts = [label for _, label, _ in progress["counts"]]
    counts_text = " · ".join(filter(None, (*counts, progress["text"])))
    table, more = _table(view.window), progress["total"] - FIRST
    more_note = (
        f"<p>{escape(BATCH_TEXTS['batch_more'].format(n=f'{more:,}'))}</p>" if more > 0 else ""
    )
    failed, n = "", batch.counts["failed"]
    if n:
        view.want({"status": "failed"})
        view.show_rows(0, FAILURES)
        view.look()
        first = f" ({BATCH_TEXTS['batch_first'].format(n=FAILURES)})" if n > FAILURES else ""
        heading = f"{BATCH_TEXTS['batch_count'].format(n=f'{n:,}', what=BATCH_TEXTS['batch_failed'])}{first}"
        failed = f"<p><b>{escape(heading)}</b></p>{_table(view.window)}"
    html = f"{frame}<div style='margin-top:8px'><p>{escape(counts_text)}</p>{table}{more_note}{failed}</div>"
    return {"text/html": html, "text/plain": repr(batch)}


def _table(window: Mapping[str, Any]) -> str:
    if not window["rows"]:
        return ""
    head = "".join(
        f"<th scope='col' style='text-align:left'>{escape(label)}</th>"
        for _, label in window["columns"]
    )

    def line(cells: Sequence[str]) -> str:
        return "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)

    body = "".join(f"<tr>{line(cells)}</tr>" for *_, cells in window["rows"])
    return f"<div style='overflow-x:auto'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
