"""Where items stand: agents hold turns, turns hold calls, calls hold questions and inner agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nbagent.core.base.events import AnswerForm, Interrupted, ToolFinished
from nbagent.notebook.wire import CallItem, FormItem, NoticeItem, TextItem

from .items import (
    AnswerNode,
    CallNode,
    FixedNode,
    HostedNode,
    Node,
    ReasoningNode,
    StepNode,
    TextNode,
)
from .questions import Question


class Turn:
    """What one model response shows."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.reasoning: ReasoningNode | None = None
        self.text: TextNode | None = None
        self.notice: FixedNode | None = None
        """Why the response is not there yet."""
        self.waiting: FixedNode | None = None
        """What its request waits for."""
        self.notes: dict[str, FixedNode] = {}
        """What the response says of itself, and is kept with it, by its text."""
        self.hosted: dict[int, HostedNode] = {}
        """What the provider runs for it, by number."""
        self.hosted_ids: dict[str, int] = {}
        """Their numbers, by the provider's ids, while they stream."""
        self.citations: list[dict[str, str]] = []
        """What its text refers to, while it streams."""
        self.sources: FixedNode | None = None
        """What its text refers to."""
        self.calls: list[Call] = []
        self.streaming_calls: dict[int, Call] = {}
        """Calls while they stream, by the model's own number."""

    def note(self, text: str, tone: Literal["warn", "plain"] = "plain") -> FixedNode:
        """The note with this text, which is there once."""
        key = f"{self.key}.n{len(self.notes)}"
        return self.notes.setdefault(text, FixedNode(NoticeItem(key=key, tone=tone, text=text)))

    def cites(self, markup: str) -> FixedNode:
        """The line below its text that names what that refers to."""
        item = TextItem(key=f"{self.key}.s", blocks=[markup])
        if self.sources is None:
            self.sources = FixedNode(item)
        elif self.sources.item != item:
            self.sources.replace(item)
        return self.sources

    def clear(self) -> Iterator[Node]:
        """Take away what was streamed, and give it back to be forgotten."""
        notes = self.notes.values()
        gone: list[Node | None] = [self.waiting, self.reasoning, self.text, self.sources]
        gone += [*self.calls, *notes, *self.hosted.values()]
        self.waiting = self.reasoning = self.text = self.sources = None
        self.notes, self.hosted, self.hosted_ids, self.citations = {}, {}, {}, []
        self.calls.clear()
        self.streaming_calls.clear()
        return (node for node in gone if node is not None)

    def walk(self) -> Iterator[Node]:
        """The items in order."""
        said = (self.notice, self.waiting, self.reasoning)
        for node in (*said, *self.hosted.values(), self.text, self.sources):
            if node is not None:
                yield node
        for call in self.calls:
            yield from call.walk()
        yield from self.notes.values()


class Call(CallNode):
    """A call with what stands below it."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(key, path)
        self.below: list[Turn | Node] = []
        """Its steps, what its body called, its questions and their records, in the order in which they came."""
        self.steps: dict[str, StepNode] = {}
        """Its steps, by name."""
        self.inner: Agent | None = None
        self.question: FixedNode | None = None
        """The form of its own question, while that waits."""
        self.is_last = False
        """Whether it stands below all that is its own: a flow's result is what it ends with."""

    def wire(self) -> CallItem:
        """The item with all that is known of it; a flow's input stands in the header."""
        item = super().wire()
        return item.model_copy(update={"brief": ""}) if self.is_last else item

    def finished(self, event: ToolFinished) -> None:
        """The call has its result; a flow's as text stands below it, and is not told twice."""
        super().finished(event)
        if self.is_last and not event.error:
            self._result = None

    @property
    def hidden(self) -> bool:
        """Whether its question stands in its place: where that tells all that its row would.

        What an outside system answers shows no input.
        """
        form = None if self.question is None else self.question.item
        if not isinstance(form, FormItem) or not form.actions or self.has_more:
            return False
        return self.inner is None and self.below == [self.question]

    def walk(self) -> Iterator[Node]:
        """The call and what stands below it."""
        if not self.is_last and not self.hidden:
            yield self
        yield from walk(self.below)
        if self.inner is not None:
            yield from self.inner.walk()
        if self.is_last and not self.hidden:
            yield self


class Agent:
    """The run itself, or an agent that is a tool of it."""

    def __init__(self, key: str, outer: tuple[str, ...]) -> None:
        self.key = key
        """What its items' keys begin with."""
        self.model_key = f"{key}m"
        """What the model's stretches on the time strip belong to."""
        self.outer = outer
        """Names of the agents around it, outermost first."""
        self.name = ""
        self.answer: AnswerForm = "text"
        """What its model is to end with."""
        self.refused: tuple[FixedNode, str] | None = None
        """Where its last answer does not fit: the line that says so, and why."""
        self.queued: list[FixedNode] = []
        """What the person wrote that the model does not have yet."""
        self.entries: list[Turn | Node] = []
        self.open_calls: dict[str, Call] = {}
        """The calls of the last response that have no result yet, by id."""
        self.live_turn: Turn | None = None
        """The response that streams."""
        self.thinking = False
        """Whether the model is answering."""
        self.last_turn: Turn | None = None
        self._turns = self._messages = self._refusals = 0
        self.started = 0
        """How many calls a body has started, where it is no agent but what a body calls in."""

    @property
    def path(self) -> str:
        """``planner ▸ banker`` for an inner agent, else empty."""
        return " ▸ ".join(name for name in (*self.outer, self.name) if name) if self.outer else ""

    def new_turn(self) -> Turn:
        """A turn at the end."""
        turn = Turn(f"{self.key}{self._turns}")
        self._turns += 1
        self.entries.append(turn)
        self.last_turn = turn
        return turn

    def text_node(self, key: str) -> TextNode:
        """A text of its model, to be drawn as what it is to end with."""
        return TextNode(key) if self.answer == "text" else AnswerNode(key, self.answer)

    def message_key(self) -> str:
        """A key for one more message of the person."""
        self._messages += 1
        return f"{self.key}m{self._messages}"

    def refusal_key(self) -> str:
        """A key for one more answer that does not fit."""
        self._refusals += 1
        return f"{self.key}x{self._refusals}"

    def walk(self) -> Iterator[Node]:
        """All items in the order they are drawn."""
        return walk(self.entries)


@dataclass(slots=True)
class DrawnQuestion:
    """A question, and where its form or its record is drawn."""

    question: Question
    event: Interrupted
    agent: Agent
    call: Call | None
    node: FixedNode
    record: FixedNode | None = None

    @property
    def row(self) -> Call | None:
        """The call whose row its decision stands in; what a body asks in its middle has a line of its own."""
        return self.call if self.event.ask is None else None

    @property
    def siblings(self) -> list[Turn | Node]:
        """The list its form and its record stand in."""
        return self.agent.entries if self.call is None else self.call.below


def walk(entries: list[Turn | Node]) -> Iterator[Node]:
    """The items of turns and of what stands between them."""
    for entry in entries:
        if isinstance(entry, Turn | Call):
            yield from entry.walk()
        else:
            yield entry
