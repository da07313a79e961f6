"""A card whose questions come from tools: beside a form, it shows field widgets and the tool's preview."""

from __future__ import annotations

from functools import partial
from typing import Any

from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.tools.tool import Tool
from nbagent.notebook.view.inbox import InboxView
from nbagent.notebook.view.questions import Question
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.wire import Drafts, FieldError, FormAnswer, Rich

from .card import Card
from .preview import Preview


class AskingCard(Card):
    """The common part of the run card and the inbox. All methods are called on the card's loop."""

    view: ThreadView | InboxView
    _previews: dict[str, Preview]
    """The previews, by the question's id."""
    _drafts: dict[str, Any]
    """Unsent input of questions that have a preview, by the question's id."""

    def _send_soon(self) -> None:
        """Send the changed view to the pages soon."""
        raise NotImplementedError

    def _question_opened(self, question: Question, tool: Tool[..., Any] | None) -> None:
        """Show the question's widgets and preview. ``tool`` is the tool that asks; None if this process lacks it."""
        self._show_controls(question)
        if question.id not in self._previews and tool is not None and question.is_previewed(tool):
            show = partial(self._previewed, question.id)
            self._previews[question.id] = Preview(tool, question, show)
        self._control_changed(question.id)

    def _question_settled(self, interrupt: str) -> None:
        self._close_controls(interrupt)
        self._drafts.pop(interrupt, None)
        preview = self._previews.pop(interrupt, None)
        if preview is not None:
            preview.end()

    def _settle_all(self) -> None:
        for interrupt in {*self._controls, *self._previews}:
            self._question_settled(interrupt)

    def _control_changed(self, interrupt: str) -> None:
        """Show whether the widgets have changed values, and update the preview."""
        controls = self._controls.get(interrupt)
        if controls is None:
            return
        with self._lock:
            question = self.view.question(interrupt)
            if question is not None:
                self.view.update_form(interrupt, question.offered(changed=bool(controls.values)))
            self._send_soon()
        self._update_preview(interrupt)

    def _update_preview(self, interrupt: str) -> None:
        preview = self._previews.get(interrupt)
        if preview is not None:
            preview.typed(self._with_controls(interrupt, self._drafts.get(interrupt)))

    def _previewed(
        self, interrupt: str, preview: list[Rich], error: str | None, note: str | None
    ) -> None:
        update = {"preview": preview, "preview_error": error, "preview_note": note}
        with self._lock:
            self.view.update_form(interrupt, update)
            self._send_soon()

    def _resolution(
        self, question: Question, message: FormAnswer
    ) -> Respond | Restart | Reject | list[FieldError]:
        """The resolution for a press, with the values of the question's widgets, or its errors."""
        drafts = message.drafts
        if question.fills(message.action):
            drafts = self._with_controls(message.interrupt, drafts)
        return question.resolve(message.action, drafts, message.reason, message.remember)

    def _keep_drafts(self, message: Drafts) -> None:
        with self._lock:
            question = self.view.question(message.interrupt)
            if question is not None:
                instead = message.instead
                update = {"drafts": question.storable_draft(message.drafts, instead=instead)}
                self.view.update_form(message.interrupt, update, instead=instead, send=False)
        if message.instead:
            return
        if message.interrupt in self._previews:
            self._drafts[message.interrupt] = message.drafts
        self._update_preview(message.interrupt)
