"""The live card of an inbox: the questions of many runs, with the same forms as in the cards of these runs."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any

from nbagent.core.base.errors import Conflict, NbagentError, NotPending
from nbagent.core.stored.inbox import InboxEntry, InboxQuestion
from nbagent.notebook.render import plain
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.inbox import AGES, MORE, STRANDED, InboxView
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import FieldError, FormAnswer, Press

from .asking import AskingCard
from .preview import Preview
from .table_card import TableCard

REDRAWN = 5.0
"""Seconds after which an inbox is drawn again although its store has not changed: processes may have ended."""
PACE = 0.05
"""Seconds for which changes of widgets and previews are collected, to be sent together."""


class InboxCard(TableCard, AskingCard):
    """An inbox on the page: its filters are a table's, its rows are forms."""

    css_classes = ("nba-inbox",)
    view: InboxView
    has_forms = True

    def __init__(self, waiting: InboxEntry, scope_text: str) -> None:
        self.waiting = waiting
        self._given = {
            name: value
            for name in ("agent", "tool", "older_than")
            if (value := getattr(waiting, name))
        }
        self._previews: dict[str, Preview] = {}
        self._drafts: dict[str, Any] = {}
        self._followed: dict[str, Question] = {}
        """The drawn open questions, by key, at the last update of widgets and previews."""
        self._update_timer: asyncio.TimerHandle | None = None
        self._drawn_at = float("-inf")
        view = InboxView(scope_text)
        view.draw_filters(self._given, waiting)
        super().__init__(view)

    def bundle(self) -> dict[str, str]:
        """The inbox as HTML and text that need no kernel, without buttons."""
        return plain.bundle(self.view.snapshot())

    # --- reading the store

    def _read(self, *, again: bool) -> bool:
        now, waiting, given = time.monotonic(), self.waiting, self._given
        chosen = self.view.query.filters
        waiting.agent = given.get("agent") or chosen["agent"] or None
        waiting.tool = given.get("tool") or chosen["tool"] or None
        age = max(AGES.get(chosen["age"], 0.0), given.get("older_than", 0.0))
        waiting.older_than = age or None
        if waiting.has_changed:
            waiting.look()
        elif not again and now - self._drawn_at < REDRAWN:
            return False
        self._drawn_at = now
        self.view.look(waiting.chosen(), waiting, busy=self.busy)
        self.view.draw_filters(given, waiting)
        return False

    def _update_page(self) -> None:
        self._update_timer = None
        before = self._seq
        super()._update_page()
        if self._seq != before:
            self._follow_questions()

    def _follow_questions(self) -> None:
        """Show the widgets and previews of open questions, and remove those of settled questions."""
        open_questions = {one.id: (one, tool) for one, tool in self.view.open_questions()}
        for key in {*self._controls, *self._previews} - open_questions.keys():
            self._question_settled(key)
        for key, (question, tool) in open_questions.items():
            if self._followed.get(key) is not question:
                self._question_settled(key)
                self._question_opened(question, tool)
        self._followed = {key: question for key, (question, _) in open_questions.items()}

    def _send_soon(self) -> None:
        if self._update_timer is None:
            self._update_timer = self.loop.call_later(PACE, self._update_page)

    # --- methods of every card

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": "{agent}: {prompt}", "gone": TEXTS["inbox_gone"]}

    def _take(self, message: Any) -> None:
        if message.type in ("answer", "drafts", "press", "focus"):
            self.view.seen()
        super()._take(message)

    def _pressed(self, message: Press) -> None:
        if message.notice == MORE:
            self.view.show_more()
            self.read_soon()
        elif message.notice == STRANDED:
            self._start_task(self._continue_stranded())

    async def _continue_stranded(self) -> None:
        """Continue in this process the runs that no process is running, if an agent for them is known."""
        refused: list[str] = []
        for stranded in self.view.stranded:
            if stranded.here:
                try:
                    await self.waiting.continue_stranded(stranded)
                except NbagentError as error:
                    refused.append(f"{stranded.run.id}: {error}")
        self.view.set_notice("refused", reveal("\n".join(refused)))
        self.read_soon()

    def _take_answer(self, message: FormAnswer) -> list[FieldError] | Future[Any]:
        question, asked = self.view.question(message.interrupt), self.view.asked(message.interrupt)
        if question is None or asked is None:
            return [FieldError(field=None, message=TEXTS["inbox_closed"])]
        resolution = self._resolution(question, message)
        if isinstance(resolution, list):
            return resolution
        return asyncio.run_coroutine_threadsafe(self._answer(asked, resolution), self.loop)

    async def _answer(self, asked: InboxQuestion, resolution: Any) -> None:
        try:
            await self.waiting.answer(asked, resolution, by="form")
        except (Conflict, NotPending):
            self.read_soon()  # somebody answered first: show the record of that answer
            raise
        self.read_soon()
