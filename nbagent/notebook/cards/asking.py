"""A card whose questions come from tools: beside a form, it shows field widgets and the tool's preview."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from nbagent.core.tools.tool import Tool
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import Drafts, Rich

from .card import Card
from .preview import Preview


class Asks(Protocol):
    """The part of a view that has the questions."""

    def question(self, interrupt: str) -> Question | None:
        """The open question of this id, as it is shown."""

    def set_drafts(self, interrupt: str, drafts: Any, *, instead: bool) -> None:
        """Store unsent input for pages that are drawn later."""

    def set_preview(
        self, interrupt: str, preview: list[Rich], *, error: str | None, note: str | None
    ) -> None:
        """Show the effect of approving, or why it cannot be shown."""

    def set_changed(self, interrupt: str, changed: bool) -> None:  # noqa: FBT001 -- a fact, not a mode
        """Show whether a widget of the question has another value than the proposed value."""


class AskingCard(Card):
    """The common part of the run card and the inbox. All methods are called on the card's loop."""

    _previews: dict[str, Preview]
    """The previews, by the question's id."""
    _drafts: dict[str, Any]
    """Unsent input of questions that have a preview, by the question's id."""

    @property
    def _asks(self) -> Asks:
        """The view that has the questions."""
        raise NotImplementedError

    def _send_soon(self) -> None:
        """Send the changed view to the pages soon. Called with the lock held."""
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
            self._asks.set_changed(interrupt, controls.changed)
            self._send_soon()
        self._update_preview(interrupt)

    def _update_preview(self, interrupt: str) -> None:
        preview = self._previews.get(interrupt)
        if preview is not None:
            preview.typed(self._with_controls(interrupt, self._drafts.get(interrupt)))

    def _previewed(
        self, interrupt: str, preview: list[Rich], error: str | None, note: str | None
    ) -> None:
        with self._lock:
            self._asks.set_preview(interrupt, preview, error=error, note=note)
            self._send_soon()

    def _keep_drafts(self, message: Drafts) -> None:
        with self._lock:
            question = self._asks.question(message.interrupt)
            if question is not None:
                kept = question.storable_draft(message.drafts, instead=message.instead)
                self._asks.set_drafts(message.interrupt, kept, instead=message.instead)
        if message.instead:
            return
        if message.interrupt in self._previews:
            self._drafts[message.interrupt] = message.drafts
        self._update_preview(message.interrupt)
