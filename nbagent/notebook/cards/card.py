"""The base of every card: a widget that shows a view, and receives a person's actions in it.

The page's messages are parsed into types first, and are handled on the card's own
loop. Changes are sent to the page as numbered patches.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, assert_never

import ipywidgets
import traitlets
from pydantic import ValidationError

from nbagent.core.base.incoming_json import TooManyParts, check_parts
from nbagent.core.tools.call_output import Bundle
from nbagent.notebook import kernel
from nbagent.notebook.locale import open_cards
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import (
    MAX_TEXT,
    Attach,
    Complete,
    Copied,
    Copy,
    Drafts,
    FieldError,
    Focus,
    FormAnswer,
    FromFrontEnd,
    FromKernel,
    Hello,
    Keeps,
    Op,
    Patch,
    Press,
    RetryPress,
    Say,
    Snapshot,
    Stop,
    SubmissionReceipt,
    TextItem,
    View,
    parse_message,
)

from . import front_end
from .controls import Controls

log = logging.getLogger("nbagent")

STOP = Stop().model_dump()
MAX_WAITING = 1_000
"""Maximum number of unhandled messages from one card's pages; further messages are refused."""
SLICE = 0.02
"""Seconds of handling messages after which the loop does other work."""
MAX_OPENED = 4_000
"""Keys of open items that are stored for a page."""
MAX_KEY = 500
"""Characters of the key of an open item, and of a submission's id."""

ANSWER_DELAY = 0.1
"""Seconds that an answer waits if ipywidgets replace fields. A kernel with subshells may deliver the answer before
the last change of a widget, which is sent another way."""
MAX_ERRORS = 100
"""Number of errors in a message above which only their number is logged."""


class Card(front_end.CardWidget):
    """One card; ``snapshot`` is up to date whenever a page asks for the widget's state.

    Each kind of card defines its view and the handling of answers, in the methods without a body.
    """

    snapshot = traitlets.Dict().tag(sync=True)
    front_end = traitlets.Instance(front_end.FrontEnd, allow_none=True).tag(
        sync=True, **ipywidgets.widget_serialization
    )
    """The widget with the shared code, styles and texts; None if the card has its own copy of them."""

    css_classes: tuple[str, ...] = ()
    """The classes of the card's element. They are in the first state, as a slow page may lose a later change."""

    loop: asyncio.AbstractEventLoop

    hello_count = 0
    """Number of pages that have sent ``Hello``. Changes are sent only after the first ``Hello``."""

    _seq = 0
    """The number of the last patch."""

    _lock: threading.RLock
    """Held while the view changes and while changes are sent; made first, as events arrive before the comm is open."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Make a card with its lock."""
        made: Self = super().__new__(cls, *args, **options)
        made._lock = threading.RLock()
        return made

    def __init__(self) -> None:
        self.saving_pages = 0
        """Number of pages that write the static version of the card into their notebook."""
        self.staying_pages = 0
        """Number of pages that leave the card as it is when the output that shows the card is updated."""
        self.busy = False
        """Whether something in the card has focus or is selected."""
        self.opened: list[str] = []
        """Keys of the items that are open in the page."""
        self.touched_at = time.monotonic()
        self.rows_changed: Callable[[], None] = lambda: None
        """Called whenever the widgets below the card change."""
        self.on_page_saved: Callable[[bool], None] = lambda _ended: None
        """Called on the loop when a page needs the static version (False), or has written the last one (True)."""
        self.greeted: Callable[[], None] = lambda: None
        """Called on the loop when a page has sent ``Hello``."""
        self._controls: dict[str, Controls] = {}
        """The widgets of questions, by interrupt id; used only on the loop."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """Running tasks, as an event loop alone does not keep a task alive."""
        self._incoming: deque[Any] = deque()
        """Messages of pages that wait to be handled."""
        self._is_scheduled = False
        self._unsent: list[Op] = []
        """Changes that no page has received, of a card that notes them itself."""
        shared = front_end.shared()
        self._esm = front_end.CARD if shared is None else front_end.LOADER
        self._css = front_end.STYLE if shared is None else ""
        self.on_msg(self._on_message)  # first: a page may send Hello as soon as the comm opens
        layout = ipywidgets.Layout() if shared is None else shared.layout
        super().__init__(front_end=shared, layout=layout, _dom_classes=self.css_classes)
        kernel.receive_off_main(self.comm)
        open_cards.add(self)

    # --- defined by each kind of card

    is_useful_after_end = False
    """Whether the card is useful after its run has ended, and then stays live if a page saves it."""

    def bundle(self) -> dict[str, str]:
        """The card as HTML and text that need no kernel."""
        raise NotImplementedError

    def detach(self) -> None:
        """Stop following the shown run or form, as the widget is about to close."""

    @property
    def is_saved(self) -> bool:
        """Whether some page writes the static version of the card into its notebook."""
        return self.saving_pages > 0

    def allow_staying_live(self) -> None:
        """Note that a page saves the card in its notebook, so that the card may stay live after its run has ended."""

    def give_charts(self) -> list[Bundle]:
        """Remove and return the charts that Jupyter draws by itself below the card; by default there are none."""
        return []

    # --- ipywidgets that replace fields

    @property
    def rows(self) -> list[Any]:
        """The widgets below the card."""
        return [row for controls in self._controls.values() for row in controls.rows]

    def _show_controls(self, question: Question) -> None:
        """Show the widgets of an open question."""
        if question.id in self._controls or not (controls := Controls(question)).rows:
            return
        self._controls[question.id] = controls
        controls.follow(partial(self._later, partial(self._control_changed, question.id)))
        self.rows_changed()

    def _control_changed(self, interrupt: str) -> None:
        """Handle the new value of a widget that replaces a field."""

    def _later(self, work: Callable[[], None]) -> None:
        """Call ``work`` on the loop; callable on any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(work)

    def _start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task

    def _close_controls(self, interrupt: str) -> None:
        """Remove the widgets of a settled question."""
        controls = self._controls.pop(interrupt, None)
        if controls is not None:
            self.rows_changed()
            controls.close()

    def _with_controls(self, interrupt: str, drafts: Any) -> Any:
        """A page's drafts, with the values of their question's widgets."""
        controls = self._controls.get(interrupt)
        return drafts if controls is None else controls.drafts(drafts)

    def _view(self) -> View:
        """All that is drawn."""
        raise NotImplementedError

    def _changes(self) -> list[Op] | None:
        """The next changes to send; None if there are none. Call repeatedly to get all changes."""
        unsent, self._unsent = self._unsent, []
        return unsent or None

    def _texts(self) -> dict[str, str]:
        """The texts that the page shows by itself."""
        return TEXTS

    def _take_answer(self, message: FormAnswer) -> list[FieldError] | Future[Any]:
        """Settle the question of the message. Return errors, or a future that ends once the answer is stored.

        A card without questions refuses every answer.
        """
        del message
        return [FieldError(field=None, message=TEXTS["unknown_action"])]

    def _keep_drafts(self, message: Drafts) -> None:
        """Store the unsent input; a card without fields does nothing."""

    def _stop(self) -> None:
        """Handle a press of the Stop button; a card that cannot be stopped does nothing."""

    def _interrupt(self) -> None:
        """End code that keeps the loop from handling a press of the Stop button; called on any thread."""

    def _retry(self) -> None:
        """Handle a press of the Retry button; only a run has one."""

    def _pressed(self, message: Press) -> None:
        """Handle a press of a notice's button; a card without notices does nothing."""

    def _take_message(self, message: Say) -> None:
        """Take a message; a card without a message box refuses it."""
        self._receipt(message.submission, "", [FieldError(field=None, message=TEXTS["no_chat"])])

    def _attach(self, message: Attach) -> None:
        """Store a file for the next message; a card without a message box ignores it."""

    def _unsent_box(self) -> dict[str, Any]:
        """The unsent input of the message box, as a snapshot has it; empty for a card without one."""
        return {}

    def _source(self, _key: str) -> str:
        """The text of an item as the model wrote it; empty in a card without such texts."""
        return ""

    def _complete(self, message: Complete) -> None:
        """Send the names that are asked for; a card without a message box has none."""

    # --- to the pages

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:  # noqa: FBT001, FBT002 - ipywidgets
        """The widget's state, with the snapshot as of now."""
        self._trait_values["snapshot"] = self._snapshot().model_dump(mode="json")
        return super().get_state(key, drop_defaults)

    def greet(self) -> None:
        """Send the whole view, with all texts."""
        self._show(texts=self._texts())

    def send_message(self, message: FromKernel) -> None:
        """Send a message to the pages; nothing happens if the card is closed."""
        self.send(message.model_dump(mode="json"))

    def shown(self) -> View:
        """All that is drawn now."""
        with self._lock:
            return self._view()

    def drawn(self) -> tuple[int, list[TextItem]]:
        """The number of the last patch, and the texts whose ``raw`` is empty, as a page draws them after it."""
        with self._lock:
            self._flush_all()
            texts = (item for item in self._view().items if isinstance(item, TextItem))
            return self._seq, [item for item in texts if not item.raw]

    def _show(self, **more: Any) -> None:
        """Send the snapshot, with the parts that are not in the widget's state."""
        self.send_message(self._snapshot().model_copy(update=self._unsent_box() | more))

    def _snapshot(self) -> Snapshot:
        with self._lock:
            self._flush_all()  # so that the snapshot equals a page with all patches
            known = {} if self.front_end is None else self.front_end.texts
            texts = {key: text for key, text in self._texts().items() if known.get(key) != text}
            return Snapshot(seq=self._seq, view=self._view(), now=time.time(), texts=texts)

    def _flush_all(self) -> None:
        while self.push():
            pass

    def push(self) -> bool:
        """Send the next changes to the pages. Return False if there are none.

        Nothing is sent before the first ``Hello``, as a page receives everything after its ``Hello``.
        """
        with self._lock:
            ops = self._changes()
            if not ops:
                return False
            self._seq += 1
            if self.hello_count:
                self.send_message(Patch(seq=self._seq, ops=ops))
            return True

    # --- from the pages

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """Pass a page's message to the loop. The kernel may call this on another thread."""
        try:
            check_parts(content, characters=MAX_TEXT)
        except TooManyParts:
            self._later(partial(self._refuse, _submission_of(content), "message_too_large"))
            return
        if len(self._incoming) >= MAX_WAITING:
            self._later(partial(self._refuse, _submission_of(content), "too_many_messages"))
        else:
            self._incoming.append(content)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._later(self._handle_messages)
            if content == STOP:
                self._interrupt()

    def _handle_messages(self) -> None:
        """Handle waiting messages for about ``SLICE`` seconds, so that many messages do not block the loop."""
        deadline = time.monotonic() + SLICE
        try:
            while self._incoming:
                self._handle(self._incoming.popleft())
                if time.monotonic() >= deadline:
                    break
        finally:
            self._is_scheduled = False
            if (
                self._incoming
            ):  # checked last: a later message on another thread schedules this again
                self._is_scheduled = True
                self._later(self._handle_messages)

    def _handle(self, content: Any) -> None:
        try:
            message = parse_message(content)
        except ValueError as error:
            details: Any = error
            if isinstance(error, ValidationError):  # errors() makes an object for each error
                count = error.error_count()
                few = count <= MAX_ERRORS
                details = error.errors(include_input=False)[:3] if few else f"{count} errors"
            log.warning("ignored a message from the page: %s", details)
            self._refuse(_submission_of(content), "unknown_action")
            return
        self.touched_at = time.monotonic()
        if isinstance(message, FormAnswer) and message.interrupt in self._controls:
            self.loop.call_later(ANSWER_DELAY, self._take, message)
        else:
            self._take(message)

    def _take(self, message: FromFrontEnd) -> None:  # noqa: C901 - a line for each kind
        match message:
            case Hello():
                self._greeted(message)
            case FormAnswer():
                self._send_receipt(message, self._take_answer(message))
            case Drafts():
                self._keep_drafts(message)
            case Press():
                self._pressed(message)
            case Stop():
                self._stop()
            case Keeps(ended=ended):
                self.on_page_saved(ended)
            case RetryPress():
                self._retry()
            case Focus(busy=busy, opened=opened):
                self.busy = busy
                self.opened = [key for key in opened[:MAX_OPENED] if len(key) <= MAX_KEY]
            case Attach():
                self._attach(message)
            case Say():
                self._take_message(message)
            case Complete():
                self._complete(message)
            case Copy(key=key):
                self.send_message(Copied(key=key, text=self._source(key)))
            case never:
                assert_never(never)

    def _greeted(self, hello: Hello) -> None:
        """Send the snapshot after a page's ``Hello``. The other pages have this data already."""
        if hello.again and self.hello_count:
            self._show()
            return
        if hello.keeps:
            self.allow_staying_live()
        self._flush_all()
        self.hello_count += 1
        self.saving_pages += hello.keeps
        self.staying_pages += hello.stays and not hello.keeps
        self.busy, self.opened = False, []
        self._show()
        self.greeted()
        if hello.keeps:
            self._take(Keeps())

    def _send_receipt(self, message: FormAnswer, outcome: list[FieldError] | Future[Any]) -> None:
        """Send the page the outcome of its answer, once it is known."""
        if isinstance(outcome, list):
            controls = self._controls.get(message.interrupt)
            errors = outcome if controls is None else controls.named(outcome)
            self._receipt(message.submission, message.interrupt, errors)
            return
        if not outcome.done():
            outcome.add_done_callback(
                lambda done: self._later(partial(self._send_receipt, message, done))
            )
            return
        error = outcome.exception()
        field_errors = [] if error is None else [FieldError(field=None, message=reveal(str(error)))]
        self._send_receipt(message, field_errors)

    def _refuse(self, submission: str, text: str) -> None:
        """Send the page the reason why its message changed nothing, if it waits for a receipt."""
        if submission:
            self._receipt(submission, "", [FieldError(field=None, message=TEXTS[text])])
        elif text != "unknown_action":
            log.warning("ignored a message from the page: %s", TEXTS[text])

    def _receipt(self, submission: str, interrupt: str, errors: list[FieldError]) -> None:
        receipt = SubmissionReceipt(
            submission=submission, interrupt=interrupt, ok=not errors, errors=errors
        )
        self.send_message(receipt)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("an action of a card failed", exc_info=task.exception())


def _submission_of(content: Any) -> str:
    """The id of the receipt that a page waits for; empty if the page waits for none."""
    submission = content.get("submission") if isinstance(content, dict) else None
    return submission if isinstance(submission, str) and len(submission) <= MAX_KEY else ""
