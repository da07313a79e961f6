"""The live card of an inbox: the questions of many runs, with the same forms as in the cards of these runs.

While a page shows the card, a thread checks the store once a second, and reads only the runs that have changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from nbagent.core.base.errors import Conflict, NbagentError, NotPending
from nbagent.core.stored.inbox import Asked, Waiting
from nbagent.notebook import kernel
from nbagent.notebook.render import plain, static
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.inbox import MORE, STRANDED, InboxView
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import Answer, FieldError, Op, Press, View

from .asking import AskingCard, Asks
from .list_bar import ListBar, StoreReader, log_failure
from .preview import Preview

REDRAWN = 5.0
"""Seconds after which an inbox is drawn again although its store has not changed: processes may have ended."""
PACE = 0.05
"""Seconds for which changes of widgets and previews are collected, to be sent together."""
AGES = (("", 0.0), ("age_hour", 3600.0), ("age_day", 86_400.0), ("age_week", 604_800.0))
"""The choices of the age filter: the key of the text, and the minimum age in seconds."""


class InboxCard(AskingCard):
    """An inbox on the page. Used only on the kernel's loop."""

    def __init__(self, waiting: Waiting, scope_text: str) -> None:
        self.waiting = waiting
        self._given = (waiting.agent, waiting.tool, waiting.older_than)
        self.view = InboxView(scope_text)
        self._previews: dict[str, Preview] = {}
        self._drafts: dict[str, Any] = {}
        self._followed: dict[str, Question] = {}
        """The drawn open questions, by key, at the last update of widgets and previews."""
        self._update_timer: asyncio.TimerHandle | None = None
        """The timer of the next update of the pages."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the content of the card has changed."""
        self._loop = kernel.kernel_loop() or asyncio.get_running_loop()
        self._drawn_at = float("-inf")
        self._looking = StoreReader(self._loop, self._read_questions, self._looked)
        self.bar = ListBar(chosen={"agent": "", "tool": "", "age": ""})
        self.bar.choices = self._choices()
        self.bar.observe(lambda _change: self._later(self._chosen), names="chosen")
        self.bar.on_msg(lambda *_: self._later(self._looking.seen))
        super().__init__()
        self.add_class("nba-inbox")
        self._later(self._looking.seen)

    def __repr__(self) -> str:
        return "InboxCard()"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The kernel's loop."""
        return self._loop

    def bundle(self) -> dict[str, str]:
        """The inbox as HTML and text that need no kernel."""
        return bundle(self.view)

    # --- reading the store

    def _read_questions(self, again: bool) -> bool:  # noqa: FBT001 -- a fact, not a mode
        now = time.monotonic()
        if self.waiting.has_changed:
            self.waiting.look()
        elif not again and now - self._drawn_at < REDRAWN:
            return False
        self._drawn_at = now
        self.view.look(self.waiting.chosen(), self.waiting, busy=self.busy)
        return False

    def _looked(self, trouble: str) -> None:
        self.view.trouble(trouble)
        self._update_page()

    def _update_page(self) -> None:
        self._update_timer = None
        with self._lock:
            before = self._seq
            self._push()
            changed = self._seq != before
        choices = self._choices()
        if choices != self.bar.choices:
            self.bar.choices = choices
        if any(self.bar.chosen.values()) or self.bar.said:
            self.bar.said = self.view.snapshot().head.status_text
        if changed:
            self._follow_questions()
            self.on_change()

    def _follow_questions(self) -> None:
        """Show the widgets and previews of open questions, and remove those of settled questions."""
        open_questions = {
            question.id: (question, tool) for question, tool in self.view.open_questions()
        }
        for key in {*self._controls, *self._previews} - open_questions.keys():
            self._question_settled(key)
        for question, tool in open_questions.values():
            if self._followed.get(question.id) is not question:
                self._question_settled(question.id)
                self._question_opened(question, tool)
        self._followed = {key: question for key, (question, _) in open_questions.items()}

    @property
    def _asks(self) -> Asks:
        return self.view

    def _send_soon(self) -> None:
        if self._update_timer is None:
            self._update_timer = self._loop.call_later(PACE, self._update_page)

    def _chosen(self) -> None:
        """Handle a change of the filters."""
        agent, tool, older_than = self._given
        chosen = self.bar.chosen
        self.waiting.agent = agent or chosen.get("agent") or None
        self.waiting.tool = tool or chosen.get("tool") or None
        age = dict(AGES).get(str(chosen.get("age", "")), 0.0)
        self.waiting.older_than = max(age, older_than or 0.0) or None
        self._looking.seen()
        self._looking.soon()

    def _choices(self) -> dict[str, Any]:
        """Choices for the filters that code has not set; empty without a filter if fewer than two questions wait."""
        if len(self.waiting.all) < 2 and not any(self.bar.chosen.values()):
            return {}
        agent, tool, _ = self._given
        agents = [] if agent else sorted({one.run.agent for one in self.waiting.all})
        tools = [] if tool else sorted({one.interrupt.tool_name for one in self.waiting.all})
        return {
            "agent": [
                ["", TEXTS["all_agents"]],
                *([name, reveal(name)] for name in agents if name),
            ],
            "tool": [["", TEXTS["all_tools"]], *([name, reveal(name)] for name in tools if name)],
            "age": [[key, TEXTS[key or "any_age"]] for key, _ in AGES],
            "labels": {name: TEXTS[f"filter_{name}"] for name in ("agent", "tool", "age")},
        }

    # --- methods of every card

    def _view(self) -> View:
        return self.view.snapshot()

    def _changes(self) -> list[Op] | None:
        return self.view.flush() or None

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": "{agent}: {prompt}", "gone": TEXTS["inbox_gone"]}

    def _take(self, message: Any) -> None:
        if message.type in ("answer", "drafts", "press", "focus"):
            self.view.seen()
        super()._take(message)

    def _pressed(self, message: Press) -> None:
        if message.notice == MORE:
            self.view.show_more()
            self._looking.soon()
        elif message.notice == STRANDED:
            self._loop.create_task(self._continue_stranded()).add_done_callback(log_failure)

    async def _continue_stranded(self) -> None:
        """Continue in this process the runs that no process is running, if an agent for them is known."""
        refused: list[str] = []
        for stranded in self.view.stranded:
            if stranded.here:
                try:
                    await self.waiting.continue_stranded(stranded)
                except NbagentError as error:
                    refused.append(f"{stranded.run.id}: {error}")
        self.view.refused(reveal("\n".join(refused)))
        self._looking.soon()

    def _take_answer(self, message: Answer) -> list[FieldError] | Future[Any]:
        question, asked = self.view.question(message.interrupt), self.view.asked(message.interrupt)
        if question is None or asked is None:
            return [FieldError(field=None, message=TEXTS["inbox_closed"])]
        fills = question.fills(message.action)
        drafts = self._drafts_of(message) if fills else message.drafts
        resolution = question.resolve(message.action, drafts, message.reason, message.remember)
        if isinstance(resolution, list):
            return resolution
        return asyncio.run_coroutine_threadsafe(self._answer(asked, resolution), self._loop)

    async def _answer(self, asked: Asked, resolution: Any) -> None:
        try:
            await self.waiting.answer(asked, resolution, by="form")
        except (Conflict, NotPending):
            self._looking.soon()  # somebody answered first: show the record of that answer
            raise
        self._looking.soon()


def bundle(view: InboxView) -> dict[str, str]:
    """An inbox as HTML and text that need no kernel: without buttons."""
    shown = view.snapshot()
    items = [
        item.model_copy(update={"actions": []}) if item.type == "notice" else item
        for item in shown.items
    ]
    shown = shown.model_copy(update={"items": items})
    return {"text/html": static.render(shown), "text/plain": plain.render(shown)}
