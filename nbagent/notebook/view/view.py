"""The view of a run: a fold over the run's events and deltas to the wire's view model.

``SingleRunView.apply`` takes every event and delta from the engine, and is fast. ``flush`` makes the
operations that bring a page up to date. ``snapshot`` makes the whole view. A replayed journal has no
deltas, but its final view is the same, because the stored events contain everything.
"""

from __future__ import annotations

import threading
from typing import Any

from nbagent.core.base.events import Event
from nbagent.core.journal.journal import RunEvent
from nbagent.core.state.state import Status
from nbagent.notebook.wire import CardHead, FormItem, NoticeItem, Op, Rich, SetHead, View

from .board import Board
from .deltas import Deltas
from .fold import Fold, TracebackOf, TypesOf
from .items import FixedNode
from .questions import Question


class SingleRunView:
    """The view of one run; safe to use from several threads.

    Args:
        run: the run's id, as the head shows it.
        types_of: returns the types of a tool by the tool's name; None if this process does not have the tool.
        traceback_of: returns the traceback of a failed call by the call's id; empty if this process has none.
        in_thread: whether the prompt is drawn as a message, and not in the card's header.
    """

    def __init__(
        self,
        run: str,
        *,
        types_of: TypesOf | None = None,
        traceback_of: TracebackOf | None = None,
        in_thread: bool = False,
    ) -> None:
        self._lock = threading.RLock()
        self._board = Board()
        self._fold = Fold(
            self._board,
            run,
            types_of or (lambda _name: None),
            traceback_of or (lambda _id: ""),
            in_thread=in_thread,
        )
        self._deltas = Deltas(self._board).handlers

    def apply(self, event: RunEvent) -> None:
        """Apply one event or delta."""
        with self._lock:
            if isinstance(event, Event):
                self._fold.apply(event)
            else:
                self._deltas[type(event)](event)

    def flush(self, now: float) -> list[Op] | None:
        """The next operations, in order, or None if none are due; see ``dirty``.

        ``now`` is a monotonic time in seconds, which limits how often growing items are drawn again.
        """
        with self._lock:
            ops = self._board.ops(now)
            if self._board.head_dirty:
                ops.append(SetHead(head=self._fold.head()))
                self._board.head_dirty = False
            return ops or None

    @property
    def dirty(self) -> bool:
        """Whether a flush, now or a little later, will have something to send."""
        return self._board.changed

    def snapshot(self) -> View:
        """The whole view. If the view is not ``dirty``, a page that received all patches has the same view."""
        with self._lock:
            items = [node.wire() for node in self._board.root.walk()]
            return View(head=self._fold.head(), items=items)

    @property
    def head(self) -> CardHead:
        """The card's frame."""
        with self._lock:
            return self._fold.head()

    @property
    def status(self) -> Status:
        """The run's status."""
        return self._fold.state.status

    def question(self, interrupt: str) -> Question | None:
        """The open question of this interrupt, as it is shown."""
        with self._lock:
            drawn = self._fold.questions.get(interrupt)
            return None if drawn is None or drawn.record is not None else drawn.question

    def set_drafts(self, interrupt: str, drafts: Any, *, instead: bool = False) -> None:
        """Store unsent input of a form, or of its ``instead`` form, for pages that are drawn later."""
        with self._lock:
            update: dict[str, Any] = {"drafts": drafts}
            if instead:
                item = self._form(interrupt)
                form = None if item is None else item.instead
                update = {"instead": form and form.model_copy(update=update)}
            self._update_form(interrupt, update, send=False)

    def set_preview(
        self, interrupt: str, preview: list[Rich], *, error: str | None, note: str | None
    ) -> None:
        """Show the effect of approving, or the preview's error, or a note that input is missing."""
        with self._lock:
            update = {"preview": preview, "preview_error": error, "preview_note": note}
            self._update_form(interrupt, update, send=True)

    def set_changed(self, interrupt: str, changed: bool) -> None:  # noqa: FBT001 -- a fact, not a mode
        """Show whether a widget of the question has another value than the proposed value."""
        with self._lock:
            question = self.question(interrupt)
            if question is not None:
                self._update_form(interrupt, question.offered(changed=changed), send=True)

    def set_stopping(self) -> None:
        """Show that the run is being stopped, until it has ended."""
        with self._lock:
            if self.status in ("queued", "running", "interrupted"):
                self._fold.frame.stopping = self._board.head_dirty = True

    def notice(self, key: str, item: NoticeItem | None, *, first: bool = False) -> None:
        """Add a notice of the notebook layer at the end (or ``first``), replace the notice, or (None) remove it."""
        with self._lock:
            entries, known = self._board.root.entries, self._noticed(key)
            if known is not None and item is not None:
                known.replace(item.model_copy(update={"key": key}))
                self._board.touch(known)
            elif known is not None:
                self._board.drop(entries, known)
            elif item is not None and first:
                self._board.add_first(FixedNode(item.model_copy(update={"key": key})))
            elif item is not None:
                self._board.add(entries, FixedNode(item.model_copy(update={"key": key})))

    def join_thread(self) -> None:
        """Show the prompt as a message, as the run is now part of a chat."""
        with self._lock:
            self._fold.join_thread()

    def has_notice(self, key: str) -> bool:
        """Whether a notice of the notebook layer has this key."""
        with self._lock:
            return self._noticed(key) is not None

    def offers(self, key: str, action: str) -> bool:
        """Whether the notice with this key is shown and has this button."""
        with self._lock:
            known = self._noticed(key)
            item = None if known is None else known.item
            return isinstance(item, NoticeItem) and any(a.name == action for a in item.actions)

    def _noticed(self, key: str) -> FixedNode | None:
        entries = self._board.root.entries
        return next((n for n in entries if isinstance(n, FixedNode) and n.key == key), None)

    def _form(self, interrupt: str) -> FormItem | None:
        drawn = self._fold.questions.get(interrupt)
        item = None if drawn is None else drawn.node.item
        return item if isinstance(item, FormItem) else None

    def _update_form(self, interrupt: str, update: dict[str, Any], *, send: bool) -> None:
        drawn, form = self._fold.questions.get(interrupt), self._form(interrupt)
        if drawn is None or form is None:
            return
        item = form.model_copy(update=update)
        if send:
            drawn.node.replace(item)
            self._board.touch(drawn.node)
        else:
            drawn.node.item = item
