"""The live card of one run: a widget that follows the run's events and takes answers.

Events arrive on any thread and change the view at once. Changes are sent as numbered patches,
at a pace that the front end can process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from nbagent.core.base.errors import NbagentError
from nbagent.core.base.events import (
    Interrupted,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunRetried,
    RunStarted,
    RunTaken,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.process import describe_process
from nbagent.core.call.threads import running_loop
from nbagent.core.chat import is_active
from nbagent.core.journal.journal import RunEvent
from nbagent.core.run.run import Run, session_of
from nbagent.core.run.session import Session
from nbagent.core.state.state import RunEnd
from nbagent.core.tools.call_output import Bundle, Displayed, Printed
from nbagent.notebook.export import empty_view_of, reopening, text_of_store, view_of
from nbagent.notebook.render import plain
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.questions import Question
from nbagent.notebook.view.thread import ThreadView
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import (
    CallItem,
    FieldError,
    FormAnswer,
    FormItem,
    Item,
    NoticeAction,
    NoticeItem,
    Op,
    Press,
    View,
)

from .asking import AskingCard
from .card import Card
from .charts import Charts
from .preview import Preview

_DRIVES = RunStarted | Resolved | ToolStarted | RunRetried | RunTaken | RunEnd
"""Events after which the process that drives the run may have changed."""
DRIVER = "driver"
"""The key of the notice that another process is running a run, among the items of that run."""
OF_ONE_RUN = 0.1
"""Seconds between two patches of one run."""
OF_ALL_RUNS = 1 / 30
"""Seconds between two patches of all runs together: a server drops messages that come much faster."""


class PatchRate:
    """The time when the next patch may be sent, over all runs, whose pages share one connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def reserve(self, now: float, earliest: float) -> float:
        """A time for one patch, not before ``earliest``."""
        with self._lock:
            at = max(now, earliest, self._next)
            self._next = at + OF_ALL_RUNS
            return at

    def give_back(self, at: float) -> None:
        """Return an unused time; another run may use it, if it was reserved last."""
        with self._lock:
            if self._next == at + OF_ALL_RUNS:
                self._next = at


patch_rate = PatchRate()


@dataclass(frozen=True)
class Typed:
    """Unsent input of an open question, for another card of its run."""

    form: FormItem
    """The form as it was shown, with drafts but without secrets, which only the page has."""
    widgets: dict[tuple[str, ...], Any]
    """The values of the ipywidgets that replace fields, by path."""

    def fits(self, form: FormItem) -> bool:
        """Whether the question still has the same fields."""
        before = (self.form.spec, self.form.instead and self.form.instead.spec)
        return before == (form.spec, form.instead and form.instead.spec)


class RunCard(AskingCard):
    """One run's card, and the common part of a chat's card; ``typed`` is the unsent input of an earlier card of the run."""

    is_useful_after_end = True
    view: ThreadView
    _flush_at: float | None = None
    """The time of the next patch; None if none is planned."""
    _flushed_at = 0.0
    _timer: asyncio.TimerHandle | None = None
    """The timer of the next patch; touched on the run's loop only."""
    pressed: Callable[[str, str], None] = staticmethod(lambda _key, _action: None)
    """Called with the key of a notice and the name of its pressed button."""

    def __init__(self, run: Run, typed: Mapping[str, Typed] | None = None) -> None:
        self.run = run
        self._first_session: Session | None = session_of(run)
        self.loop = self._first_session.loop
        self._prepare(ThreadView("", chat=False))
        with self._lock:
            self._follow(run)
        self._fill_forms(typed or {})
        self.view.flush(time.monotonic())
        super().__init__()  # opens the comm; the snapshot has all events so far

    def _prepare(self, view: ThreadView) -> None:
        """Set what events of the shown runs use, before the comm opens."""
        self.view = view
        self._previews: dict[str, Preview] = {}
        self._drafts: dict[str, Any] = {}
        self._charts = Charts()
        """The charts of the calls: filled on the caller's thread first, and then changed only on the run's loop."""
        self._drivers: dict[str, DriverLine] = {}
        """The notices that name the other process that drives a run, by run id; used only on the loop."""
        self._typed_before: dict[str, Typed] = {}
        """Earlier unsent input of questions whose widgets are not shown yet; used only on the loop."""
        self._followed: list[tuple[Run, Callable[[RunEvent], None]]] = []
        """The runs that are shown, each with its listener."""

    def _follow(self, run: Run) -> None:
        """Show a run below the others. Called with the lock held."""
        session = session_of(run)
        view = empty_view_of(run, in_thread=self.view.chat or bool(self._followed))
        listener = partial(self._follow_event, session, view)
        events = run.subscribe(listener)
        view.apply(*events)
        for event in events:
            self._charts.add_event(event)
        self.view.add_run(view)
        self._followed.append((run, listener))
        if is_active(run):
            for event in events:
                self._follow_question(session, event)
            self._later(partial(self._follow_driver, session, view))

    def bundle(self) -> dict[str, str]:
        """The run as HTML and text that need no kernel."""
        return static_bundle(self.run, self)

    def detach(self) -> None:
        """Stop following the runs."""
        for run, listener in self._followed:
            run.unsubscribe(listener)
        self._settle_all()
        self._charts.close()
        if self._timer is not None:
            self._timer.cancel()  # else the loop would keep the card in memory until the timer fires

    def __repr__(self) -> str:
        return f"RunCard({self.run!r})"

    @property
    def _newest(self) -> Run:
        """The run that the Retry button continues."""
        return self._followed[-1][0]

    # --- to the pages

    def notice(self, key: str, item: NoticeItem | None) -> None:
        """Show a notice of the notebook layer, replace the notice, or (None) remove it."""
        with self._lock:
            self.view.notice(key, item)
        self.push()

    def stopping(self) -> None:
        """Show in every page that the run is being stopped."""
        with self._lock:
            self.view.set_stopping()
        self.push()

    def is_driven_by(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task drives the newest run."""
        return any(session_of(run).is_driven_by(task) for run, _ in self._followed[-1:])

    def signing_in(self, *, now: bool) -> None:
        """Show in every page whether the run waits for a person to sign in."""
        with self._lock:
            self.view.set_signing_in(now=now)
        self._send_soon()

    def _texts(self) -> dict[str, str]:
        session, texts = self._first_session, super()._texts()
        if session is None:
            gone = texts["chat_gone"]
        else:
            gone = text_of_store(session, "gone_default", "gone_stored") or texts["gone"]
            gone = gone.replace("{run}", session.run_id)
        return texts | {"card": texts["chat_card" if self.view.chat else "card"], "gone": gone}

    def _view(self) -> View:
        return self.view.snapshot()

    def _source(self, key: str) -> str:
        return self.view.source(key)

    def _changes(self) -> list[Op] | None:
        self._flushed_at = time.monotonic()
        return self.view.flush(self._flushed_at)

    @property
    def rows(self) -> list[Any]:
        """The charts of the run's calls, then the widgets of open questions."""
        return [*self._charts.rows, *super().rows]

    def give_charts(self) -> list[Bundle]:
        """Remove and return the charts of the calls, for Jupyter to draw. The card shows later charts again."""
        given = self._charts.give()
        if given:
            self.rows_changed()
        return given

    def _chart_shown(self, event: RunEvent) -> None:
        if self._charts.add_event(event):
            self.rows_changed()

    def _follow_event(self, session: Session, view: SingleRunView, event: RunEvent) -> None:
        with self._lock:
            view.apply(event)
            self._follow_question(session, event)
            if isinstance(event, _DRIVES):
                self._later(partial(self._follow_driver, session, view))
            if isinstance(event, Displayed | ToolFinished):
                self._later(partial(self._chart_shown, event))
            if isinstance(event, RunEnd):
                self.push()
                if self._flush_at is not None:
                    patch_rate.give_back(self._flush_at)
                elif self.view.dirty:
                    self._plan()
            elif isinstance(event, Interrupted | Resolved):
                self._plan(soon=True)  # a person waits for these, however many runs are shown
            elif isinstance(event, Printed) and running_loop() is self.loop:
                self._send_soon()  # or at once: the printing code may keep the loop for long
                if self._flush_at is not None and self._flush_at <= time.monotonic():
                    self._flush()
            else:
                self._send_soon()

    def _plan(self, *, soon: bool = False) -> None:
        """Plan this run's next patch. With ``soon``, the patch does not wait for patches of other runs."""
        if not self.hello_count:
            return
        now, earliest = time.monotonic(), self._flushed_at + OF_ONE_RUN
        at = max(now, earliest) if soon else patch_rate.reserve(now, earliest)
        if (before := self._flush_at) is not None:
            if before <= at:
                return
            patch_rate.give_back(before)
        self._flush_at = at
        self._later(partial(self._wait_to_flush, at - now))

    def _wait_to_flush(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if delay > 0:
            self._timer = self.loop.call_later(delay, self._flush)
        else:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            if self._flush_at is None:  # printed text was sent meanwhile
                return
            self._flush_at = None
            self.push()
            if self.view.dirty:
                self._plan()

    # --- widgets and previews beside the forms

    def _asked_by(self, interrupt: str) -> Session:
        """The session of the run that asks this question."""
        with self._lock:
            place = self.view.asker(interrupt)
            return session_of(self._followed[-1 if place is None else place][0])

    def _follow_question(self, session: Session, event: RunEvent) -> None:
        """Show the widgets and the preview of a new question, and remove those of a settled question."""
        if isinstance(event, Interrupted):
            self._later(partial(self._interrupted, event.id, event.tool_name))
        elif isinstance(event, RunStarted):
            for asked in session.state.pending:  # questions in the history that the run starts with
                self._later(partial(self._interrupted, asked.id, asked.tool_name))
        elif isinstance(event, Resolved):
            self._later(partial(self._question_settled, event.id))
        elif isinstance(event, RunCompleted | RunCancelled) and not event.scope:
            self._later(self._settle_all)  # a failed run may be retried, and ask again

    def _send_soon(self) -> None:
        with self._lock:
            if self._flush_at is None:
                self._plan()

    def typed(self) -> dict[str, Typed]:
        """The unsent input of open questions, by interrupt id, without untouched questions."""
        found = {}
        for item in self._view().items:
            if not isinstance(item, FormItem):
                continue
            controls = self._controls.get(item.interrupt)
            widgets = {} if controls is None else controls.values
            if item.drafts is not None or (item.instead and item.instead.drafts) or widgets:
                found[item.interrupt] = Typed(item, widgets)
        return found

    def _fill_forms(self, typed: Mapping[str, Typed]) -> None:
        """Fill in the unsent input of an earlier card, if a question still has the same fields."""
        for item in self._view().items:
            before = typed.get(item.interrupt) if isinstance(item, FormItem) else None
            if before is None or not isinstance(item, FormItem) or not before.fits(item):
                continue
            id_, instead = item.interrupt, before.form.instead
            self.view.update_form(id_, {"drafts": before.form.drafts}, send=False)
            if instead is not None:
                self.view.update_form(id_, {"drafts": instead.drafts}, instead=True, send=False)
            self._drafts[id_] = before.form.drafts
            self._typed_before[id_] = before

    def _show_controls(self, question: Question) -> None:
        super()._show_controls(question)
        before = self._typed_before.pop(question.id, None)
        controls = self._controls.get(question.id)
        if before is not None and controls is not None:
            controls.put(before.widgets)

    def _interrupted(self, interrupt: str, tool_name: str) -> None:
        with self._lock:
            question = self.view.question(interrupt)
        if question is not None:
            self._question_opened(question, self._asked_by(interrupt).tool(tool_name))

    # --- from the pages

    @property
    def _open_session(self) -> Session | None:
        """The session that the Stop button stops, if any."""
        return self._first_session

    def _stop(self) -> None:
        session = self._open_session
        if session is not None:
            self.stopping()
            session.stop(by="form")

    def _interrupt(self) -> None:
        session = self._open_session
        if session is not None:
            session.interrupt()

    def _pressed(self, message: Press) -> None:
        if not self.view.offers(message.notice, message.action):
            return
        line = self._drivers.get(self._run_of(message.notice))
        if line is not None and message.notice.endswith(DRIVER):
            line.pressed(message.action)
        else:
            self.pressed(message.notice, message.action)

    def _run_of(self, key: str) -> str:
        """The id of the run that has the item with this key."""
        with self._lock:
            place = self.view.place(key)
            return self._followed[-1 if place is None else place][0].id

    def _follow_driver(self, session: Session, view: SingleRunView) -> None:
        """Show which other process drives the run."""
        if session.run_id not in self._drivers:
            if not session.is_stored:
                return
            self._drivers[session.run_id] = DriverLine(session, view, self._send_soon)
        self._drivers[session.run_id].follow()

    def _retry(self) -> None:
        """Continue after the failure, or show why that is not possible."""
        self._send_again(self._newest.retry)

    def _send_again(self, retry: Callable[[], object]) -> None:
        self.notice("retry", None)
        try:
            retry()
        except NbagentError as error:
            self._say_not_retried(reveal(str(error)))

    def _say_not_retried(self, error: str) -> None:
        text = TEXTS["not_retried"].format(error=error)
        self.notice("retry", NoticeItem(key="retry", tone="warn", text=text))

    def _take_answer(self, message: FormAnswer) -> list[FieldError] | Future[Any]:
        with self._lock:
            question = self.view.question(message.interrupt)
        asker = self._asked_by(message.interrupt)
        if question is None:
            text = asker.why_not_pending(message.interrupt)
            return [FieldError(field=None, message=reveal(text))]
        resolution = self._resolution(question, message)
        if isinstance(resolution, list):
            return resolution
        try:
            return asker.resolve(message.interrupt, resolution, by="form")
        except NbagentError as error:
            return [FieldError(field=None, message=reveal(str(error)))]


class DriverLine:
    """The notice that another process is running a run, with a button to take the run over.

    It is the first item of the run's view. Used only on the run's loop.
    """

    def __init__(self, session: Session, view: SingleRunView, changed: Callable[[], None]) -> None:
        self._session = session
        self._view = view
        self._changed = changed
        self._asks_to_confirm = False
        """Whether the button was pressed once, and the notice asks for confirmation."""
        self._shown: NoticeItem | None = None

    def follow(self) -> None:
        """Show which other process is running the run; nothing if there is none."""
        process = self._session.follower.driven_elsewhere
        self._asks_to_confirm &= bool(process)
        self._show(self._item(reveal(describe_process(process))) if process else None)

    def pressed(self, action: str) -> None:
        """Handle a press of one of the notice's buttons."""
        if action != "take" or not self._asks_to_confirm:
            self._asks_to_confirm = action == "take"
            self.follow()
            return
        self._asks_to_confirm = False
        try:
            self._session.follower.take_over()
        except NbagentError as error:
            text = TEXTS["take_over_failed"].format(error=reveal(str(error)))
            self._show(NoticeItem(key=DRIVER, tone="bad", text=text))

    def _item(self, process: str) -> NoticeItem:
        if not self._asks_to_confirm:
            ask = NoticeAction(name="take", label=TEXTS["take_over"])
            return NoticeItem(
                key=DRIVER, text=TEXTS["driven_by"].format(process=process), actions=[ask]
            )
        actions = [
            NoticeAction(name="take", label=TEXTS["take_over_now"]),
            NoticeAction(name="leave", label=TEXTS["take_over_cancel"]),
        ]
        text = TEXTS["take_over_from"].format(process=process)
        return NoticeItem(key=DRIVER, tone="warn", text=text, actions=actions)

    def _show(self, item: NoticeItem | None) -> None:
        if item != self._shown:
            self._shown = item
            self._view.notice(DRIVER, item, first=True)
            self._changed()


def with_prints(view: View, card: Card | None) -> View:
    """The view with the output of stopped calls, which only the card has, as no event stores it."""
    stopped = (isinstance(item, CallItem) and item.state == "cancelled" for item in view.items)
    if card is None or not any(stopped):
        return view
    calls = {item.key: item for item in card.shown().items if isinstance(item, CallItem)}

    def shown(item: Item) -> Item:
        seen = calls.get(item.key)
        if seen is None or not isinstance(item, CallItem) or item.state != "cancelled":
            return item
        return item.model_copy(update={"printed": seen.printed, "outputs": seen.outputs})

    return view.model_copy(update={"items": [shown(item) for item in view.items]})


def static_bundle(run: Run, card: Card | None = None) -> dict[str, str]:
    """The run as HTML and text that need no kernel.

    With the run's live ``card``, it is what a page shows now, and how to continue the run if its kernel has stopped.
    Without the card, as in a cell that runs unattended, values that differ each time, such as times, are left out, so
    that outputs can be compared.
    """
    view = with_prints(view_of(run, with_place=True), card)
    opened = card.opened if card is not None and card.hello_count else None
    reopen = "" if card is None else reopening(run) or TEXTS["reopen_unstored"]
    return plain.bundle(view, reopen=reopen, opened=opened, measured=card is not None)
