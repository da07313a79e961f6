"""The drawing of deltas: streamed parts of responses and outputs, until a stored event has everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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
from nbagent.core.tools.call_output import Chunk, Displayed, Printed, Progressed, StepStarted
from nbagent.notebook.render import facts, sources
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import NoticeItem

from .board import Board
from .items import FixedNode, ReasoningNode
from .tree import Turn


class Deltas:
    """The handlers of deltas, which draw them on the board."""

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

    def _output(self, delta: Printed | Chunk | Displayed | Progressed | StepStarted) -> None:
        call = self._board.call(delta.scope, delta.call_id)
        if call is None:
            return
        match delta:
            case StepStarted():
                self._board.step(call, delta.name).began(delta.at)
                return
            case Displayed():
                call.displayed(delta.bundle, delta.display_id)
            case Progressed():
                call.progressed(delta.fraction, delta.text)
            case _:
                call.printed(delta.text)
        self._board.touch(call)
