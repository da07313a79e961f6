"""The view of a run: a fold over the run's events and deltas to the wire's view model.

``SingleRunView.apply`` takes every event and delta from the engine, and is fast. ``flush`` makes the
operations that bring a page up to date. ``snapshot`` makes the whole view. A replayed journal has no
deltas, but its final view is the same, because the stored events contain everything.
"""

from __future__ import annotations

import threading
import time
from typing import Any, assert_never

from nbagent.core.base.events import Event
from nbagent.core.base.file_parts import Content
from nbagent.core.base.model import (
    Citation,
    Discarded,
    Finished,
    HostedCall,
    ModelDelta,
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
    OutputDelta,
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
        self._deltas = Deltas(self._board)

    def apply(self, *events: RunEvent) -> None:
        """Apply events and deltas, in order."""
        with self._lock:
            for event in events:
                if isinstance(event, Event):
                    self._fold.apply(event)
                else:
                    self._deltas.draw(event)

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
            waiting = self._board.root.queued
            return next((content for node, content in waiting if node.key == key), None)

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
                self._board.replace(drawn.node, item)
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
                self._board.replace(known, item)
            elif known is not None:
                self._board.drop(entries, known)
            elif item is not None and first:
                self._board.add_first(FixedNode(item))
            elif item is not None:
                self._board.add(entries, FixedNode(item))

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
    """The drawing of deltas: streamed parts on the board, until a stored event has everything."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def draw(self, delta: ModelDelta | OutputDelta) -> None:
        """Draw one delta of the outermost agent's model, or of a call."""
        match delta:
            case Planned():
                if not delta.scope:
                    self._board.show_plan(delta.steps, delta.done)
            case Printed() | Chunk() | Displayed() | Progressed() | StepStarted() | TextPiece():
                self._draw_output(delta)
            case _:
                turn = self._turn(delta)
                if turn is not None:
                    self._draw_part(turn, delta)

    def _turn(self, delta: ModelDelta) -> Turn | None:
        """The turn that the delta belongs to; None if no model is answering the outermost agent.

        A delta of the model's own ends a wait, so the notice of the wait is removed.
        """
        root = self._board.root
        if root.live_turn is None and root.thinking:
            root.live_turn = root.new_turn()
        turn = root.live_turn
        if turn is None or turn.waiting is None:
            return turn
        if not isinstance(delta, HostedCall | Citation | Waiting):
            self._board.forget(turn.waiting)
            turn.waiting = None
        return turn

    def _draw_part(self, turn: Turn, delta: ModelDelta) -> None:  # noqa: C901, PLR0912 - as in the fold
        board, root = self._board, self._board.root
        match delta:
            case TextDelta():
                turn.text = turn.text or root.text_node(f"{turn.key}.t")
                turn.text.stream.pending.append(delta.text)
                board.touch(turn.text)
            case ReasoningDelta():
                if delta.replaces_text and turn.text is not None:
                    board.forget(turn.text)
                    turn.text = None
                turn.reasoning = turn.reasoning or ReasoningNode(f"{turn.key}.r")
                turn.reasoning.pending.append(delta.text)
                board.touch(turn.reasoning)
            case ToolCallDelta():
                call = turn.streaming_calls.get(delta.index)
                if call is None:
                    call = turn.streaming_calls[delta.index] = board.new_call(root, turn)
                call.prepare(delta.name, delta.arguments)
                if call.stale:
                    board.touch(call)
            case HostedCall():
                number = turn.hosted_ids.setdefault(delta.id, len(turn.hosted_ids))
                board.show_hosted(root, turn, number, delta)
            case Citation():
                if len(turn.citations) < sources.MAX_SOURCES:
                    turn.citations.append({"title": delta.title, "url": delta.url})
                    board.touch(turn.cites(sources.cited(turn.citations)))
            case Discarded():
                for removed in turn.clear():
                    board.forget(removed)
                text = TEXTS["discarded"].format(reason=facts.shown(delta.reason, facts.MAX_TEXT))
                item = NoticeItem(key=f"{turn.key}.n", tone="warn", text=text)
                turn.notice = turn.notice or FixedNode(item)
                board.replace(turn.notice, item)
            case Notice():
                board.touch(turn.note(facts.shown(delta.text, facts.MAX_TEXT)))
            case Waiting():
                text = TEXTS["model_waits"].format(reason=facts.shown(delta.reason, facts.MAX_TEXT))
                until = time.time() + delta.seconds if delta.seconds else None
                item = NoticeItem(key=f"{turn.key}.w", text=text, until=until)
                turn.waiting = turn.waiting or FixedNode(item)
                board.replace(turn.waiting, item)
            case Finished():
                pass  # the stored response has everything else
            case never:
                assert_never(never)

    def _draw_output(
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
