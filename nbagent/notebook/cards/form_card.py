"""The live card of one form that has no run around it."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any

from nbagent.core.base.errors import Rejected
from nbagent.core.base.events import Resolved
from nbagent.core.base.interrupts import Respond
from nbagent.forms.form import Form, Submission
from nbagent.notebook.render import plain
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import (
    Action,
    CardHead,
    Drafts,
    FieldError,
    FormAnswer,
    FormItem,
    Put,
    RecordItem,
    Remove,
    RunStatus,
    SetHead,
    View,
)

from .card import Card

_ID = "form"
"""The id of every such form on the wire, as a card has only one form."""


def question_of(form: Form, *, title: str, submit_label: str | None = None) -> Question:
    """A form as a question with two buttons."""
    actions = (
        Action(name="submit", label=submit_label or TEXTS["send"], primary=True),
        Action(name="reject", label=TEXTS["cancel"]),
    )
    return Question(
        id=_ID,
        tool="",
        title=title,
        expects="value",
        input={},
        form=form,
        actions=actions,
        warning=form.warning,
    )


def answer_record(
    question: Question, submission: Submission, *, by: str, after: float
) -> RecordItem:
    """The record of an answer; ``by`` is ``form`` or ``unattended=``, ``after`` is the seconds since the question."""
    event = Resolved(
        at=after,
        scope=(),
        id=_ID,
        call_id="",
        resolution=Respond(output=submission.document),
        by=by,
    )
    return question.record(f"a:{_ID}", event, 0.0)


def bundle(title: str, item: FormItem | RecordItem, status: RunStatus) -> dict[str, str]:
    """A form, or its record, as HTML and text that need no kernel."""
    view = View(head=_head(title, status, 0.0), items=[item])
    return plain.bundle(view, frame=False)


class FormCard(Card):
    """One form: ``future`` has the typed answer once a person has answered.

    Used only on the loop on which the card is created.
    """

    css_classes = ("nba-alone",)

    def __init__(self, question: Question) -> None:
        self.question = question
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._asked_at = time.time()
        self._status: RunStatus = "interrupted"
        self._item: FormItem | RecordItem = question.item(f"q:{_ID}", "", "")
        super().__init__()
        self._show_controls(question)

    def __repr__(self) -> str:
        return f"FormCard({self.question.title!r})"

    def bundle(self) -> dict[str, str]:
        """The card as HTML and text that need no kernel."""
        return bundle(self.question.title, self._item, self._status)

    def withdraw(self, reason: str = TEXTS["unanswered"]) -> None:
        """Close the form, as nothing waits for its answer any longer."""
        self._end(self._line(reason), "cancelled")
        self.push()

    # --- methods of every card

    def _view(self) -> View:
        return View(head=self._head(), items=[self._item])

    def _texts(self) -> dict[str, str]:
        return TEXTS | {"card": TEXTS["form_card"], "gone": TEXTS["form_gone"]}

    def _keep_drafts(self, message: Drafts) -> None:
        with self._lock:
            if isinstance(self._item, FormItem) and message.interrupt == _ID:
                kept = self.question.storable_draft(message.drafts)
                self._item = self._item.model_copy(update={"drafts": kept})

    def _stop(self) -> None:
        self._cancelled()
        self.push()

    def _send_receipt(self, message: FormAnswer, outcome: list[FieldError] | Future[Any]) -> None:
        super()._send_receipt(message, outcome)
        self.push()  # after the page's receipt, so that its unsent input is not lost

    def _take_answer(self, message: FormAnswer) -> list[FieldError]:
        if self._status != "interrupted" or message.interrupt != _ID:
            return [FieldError(field=None, message=TEXTS["form_over"])]
        refused = self.question.refusal(message.action, message.reason)
        if refused:
            return refused
        if message.action == "reject":
            self._cancelled()
            return []
        submission = self.question.submitted(self._with_controls(message.interrupt, message.drafts))
        if isinstance(submission, list):
            return submission
        after = time.time() - self._asked_at
        self._end(answer_record(self.question, submission, by="form", after=after), "completed")
        if not self.future.done():
            self.future.set_result(submission.value)
        return []

    def _cancelled(self) -> None:
        self._end(self._line(TEXTS["form_cancelled"]), "cancelled")
        if not self.future.done():
            title = self.question.title
            self.future.set_exception(Rejected(f"A person cancelled the form {title!r}"))

    def _end(self, record: RecordItem, status: RunStatus) -> None:
        with self._lock:
            if self._status != "interrupted":
                return
            removal = Remove(key=self._item.key)
            self._item, self._status = record, status
            self._unsent += [removal, Put(item=record, index=0), SetHead(head=self._head())]
        self._close_controls(_ID)

    def _line(self, decision: str) -> RecordItem:
        return RecordItem(
            key=f"a:{_ID}", title=self.question.title, decision=decision, tone="plain"
        )

    def _head(self) -> CardHead:
        return _head(self.question.title, self._status, self._asked_at)


def _head(title: str, status: RunStatus, asked_at: float) -> CardHead:
    return CardHead(
        run=_ID,
        agent=title,
        status=status,
        status_text=TEXTS[f"status_{status}"],
        started_at=asked_at,
        questions=1 if status == "interrupted" else 0,
    )
