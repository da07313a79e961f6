"""The view of a run: a fold over the run's events and deltas to the wire's view model.

``SingleRunView.apply`` takes every event and delta from the engine, and is fast. ``flush`` makes the
operations that bring a page up to date. ``snapshot`` makes the whole view. A replayed journal has no
deltas, but its final view is the same, because the stored events contain everything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nbagent.core.base.events import Event
from nbagent.core.base.file_parts import Content
from nbagent.core.base.model import (
    Citation,
    Discarded,
    Finished,
    HostedCall,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Waiting,
)
from nbagent.core.journal.journal import RunEvent
from nbagent.core.state.state import Status
from nbagent.core.tools.call_output import (
    Chunk,
    Displayed,
    Planned,
    Printed,
    Progressed,
    StepStarted,
    TextPiece,
)
from nbagent.notebook.render import facts, sources
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import CardHead, FormItem, NoticeItem, Op, SetHead, View

from .board import Board
from .fold import Fold, TracebackOf, TypesOf
from .items import FixedNode, ReasoningNode, TextNode
from .questions import Question, changed_form
from .tree import Turn


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

    def queued(self, key: str) -> Content | None:
        """The message with this key, if the model does not have it yet."""
        with self._lock:
            return self._fold.queued(key)

    def question(self, interrupt: str) -> Question | None:
        """The open question of this interrupt, as it is shown."""
        with self._lock:
            drawn = self._fold.questions.get(interrupt)
            return None if drawn is None or drawn.record is not None else drawn.question

    def update_form(
        self, interrupt: str, update: dict[str, Any], *, instead: bool = False, send: bool = True
    ) -> None:
        """Change parts of a question's item as in ``changed_form``; without ``send``, only for later pages."""
        with self._lock:
            drawn = self._fold.questions.get(interrupt)
            if drawn is None or not isinstance(drawn.node.item, FormItem):
                return
            item = changed_form(drawn.node.item, update, instead=instead)
            if send:
                drawn.node.replace(item)
                self._board.touch(drawn.node)
            else:
                drawn.node.item = item

    def source(self, key: str) -> str:
        """The text of the item with this key as the model wrote it; empty if it is no text of a model."""
        with self._lock:
            nodes = (n for n in self._board.root.walk() if isinstance(n, TextNode) and n.key == key)
            return next((node.source for node in nodes), "")

    def set_stopping(self) -> None:
        """Show that the run is being stopped, until it has ended."""
        with self._lock:
            if self.status in ("queued", "running", "interrupted"):
                self._fold.frame.stopping = self._board.head_dirty = True

    def set_signing_in(self, *, now: bool) -> None:
        """Show that the run waits for a person to sign in, in a form beside the card, or that this has ended."""
        with self._lock:
            self._fold.frame.signing_in = now
            self._board.head_dirty = True

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


class Deltas:
    """The handlers of deltas, which draw streamed parts on the board, until a stored event has everything."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.handlers: dict[type[Any], Callable[[Any], object]] = {
            TextDelta: self._text_delta,
            ReasoningDelta: self._reasoning_delta,
            ToolCallDelta: self._call_delta,
            HostedCall: self._hosted,
            Citation: self._cited,
            Discarded: self._discarded,
            Notice: self._noticed,
            Waiting: self._waiting,
            # it only ends a wait: the stored response has everything else
            Finished: lambda _: self._answering(),
            Printed: self._output,
            Chunk: self._output,
            Displayed: self._output,
            Progressed: self._output,
            StepStarted: self._output,
            TextPiece: self._output,
            Planned: self._planned,
        }

    def _text_delta(self, delta: TextDelta) -> None:
        live = self._board.root.live_turn
        text = None if live is None else live.text
        if text is None:
            turn = self._answering()
            if turn is None:
                return
            if turn.text is None:
                turn.text = self._board.root.text_node(f"{turn.key}.t")
            text = turn.text
        text.stream.pending.append(delta.text)
        self._board.touch(text)

    def _reasoning_delta(self, delta: ReasoningDelta) -> None:
        turn = self._answering()
        if turn is None:
            return
        if turn.reasoning is None:
            turn.reasoning = ReasoningNode(f"{turn.key}.r")
        turn.reasoning.pending.append(delta.text)
        self._board.touch(turn.reasoning)

    def _call_delta(self, delta: ToolCallDelta) -> None:
        turn = self._answering()
        if turn is None:
            return
        call = turn.streaming_calls.get(delta.index)
        if call is None:
            call = turn.streaming_calls[delta.index] = self._board.new_call(self._board.root, turn)
        call.prepare(delta.name, delta.arguments)
        if call.stale:
            self._board.touch(call)

    def _hosted(self, delta: HostedCall) -> None:
        turn = self._live()
        if turn is not None:
            number = turn.hosted_ids.setdefault(delta.id, len(turn.hosted_ids))
            node = self._board.hosted(self._board.root, turn, number)
            node.show_call(delta, is_over=False)
            self._board.touch(node)

    def _cited(self, delta: Citation) -> None:
        turn = self._live()
        if turn is not None and len(turn.citations) < sources.MAX_SOURCES:
            turn.citations.append({"title": delta.title, "url": delta.url})
            self._board.touch(turn.cites(sources.cited(turn.citations)))

    def _discarded(self, delta: Discarded) -> None:
        turn = self._answering()
        if turn is None:
            return
        for node in turn.clear():
            self._board.forget(node)
        text = TEXTS["discarded"].format(reason=facts.shown(delta.reason, facts.MAX_TEXT))
        item = NoticeItem(key=f"{turn.key}.n", tone="warn", text=text)
        turn.notice = self._put_notice(turn.notice, item)

    def _waiting(self, delta: Waiting) -> None:
        turn = self._live()
        if turn is None:
            return
        text = TEXTS["model_waits"].format(reason=facts.shown(delta.reason, facts.MAX_TEXT))
        until = time.time() + delta.seconds if delta.seconds else None
        item = NoticeItem(key=f"{turn.key}.w", text=text, until=until)
        turn.waiting = self._put_notice(turn.waiting, item)

    def _put_notice(self, node: FixedNode | None, item: NoticeItem) -> FixedNode:
        """Show the notice, instead of the previous notice if there is one."""
        node = node or FixedNode(item)
        node.replace(item)
        self._board.touch(node)
        return node

    def _noticed(self, delta: Notice) -> None:
        turn = self._answering()
        if turn is not None:
            self._board.touch(turn.note(facts.shown(delta.text, facts.MAX_TEXT)))

    def _planned(self, delta: Planned) -> None:
        """Show the plan of the outermost agent."""
        if not delta.scope:
            self._board.show_plan(delta.steps, delta.done)

    def _answering(self) -> Turn | None:
        """The turn that deltas belong to. Its notice of a wait is removed, as a delta ends the wait."""
        turn = self._live()
        if turn is not None and turn.waiting is not None:
            self._board.forget(turn.waiting)
            turn.waiting = None
        return turn

    def _live(self) -> Turn | None:
        """The turn that deltas belong to; None if no model is answering the outermost agent."""
        root = self._board.root
        if root.live_turn is None and root.thinking:
            root.live_turn = root.new_turn()
        return root.live_turn

    def _output(
        self, delta: Printed | Chunk | Displayed | Progressed | StepStarted | TextPiece
    ) -> None:
        call = self._board.call(delta.scope, delta.call_id)
        if call is None:
            return
        match delta:
            case StepStarted(row=row):
                approved = row and self._board.approved(delta.scope, delta.call_id, row)
                if not approved:
                    self._board.step(call, delta.name, row).began(delta.at)
                    return
                approved.started(delta.at)
                call = approved
            case TextPiece():
                self._board.streamed(call, delta.text, delta.start)
                return
            case Displayed():
                call.displayed(delta.bundle, delta.display_id)
            case Progressed():
                call.progressed(delta.fraction, delta.text)
            case _:
                call.printed(delta.text)
        self._board.touch(call)
