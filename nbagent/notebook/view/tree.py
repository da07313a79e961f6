"""The places of items: agents have turns, turns have calls, calls have questions and inner agents."""

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
    """The items of one model response."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.reasoning: ReasoningNode | None = None
        self.text: TextNode | None = None
        self.notice: FixedNode | None = None
        """The reason why the response is not there yet."""
        self.waiting: FixedNode | None = None
        """The reason why its request waits."""
        self.notes: dict[str, FixedNode] = {}
        """The response's own notes, which are stored with it, by their text."""
        self.hosted: dict[int, HostedNode] = {}
        """The provider's calls for it, by number."""
        self.hosted_ids: dict[str, int] = {}
        """Their numbers, by the provider's ids, while they stream."""
        self.citations: list[dict[str, str]] = []
        """The sources of its text, while it streams."""
        self.sources: FixedNode | None = None
        """The sources of its text."""
        self.calls: list[Call] = []
        self.streaming_calls: dict[int, Call] = {}
        """Calls while they stream, by the model's own number."""

    def note(self, text: str, tone: Literal["warn", "plain"] = "plain") -> FixedNode:
        """The note with this text, made once."""
        key = f"{self.key}.n{len(self.notes)}"
        return self.notes.setdefault(text, FixedNode(NoticeItem(key=key, tone=tone, text=text)))

    def cites(self, markup: str) -> FixedNode:
        """The line below its text that names the cited sources."""
        item = TextItem(key=f"{self.key}.s", blocks=[markup])
        if self.sources is None:
            self.sources = FixedNode(item)
        elif self.sources.item != item:
            self.sources.replace(item)
        return self.sources

    def clear(self) -> Iterator[Node]:
        """Remove the streamed items, and return them."""
        notes = self.notes.values()
        removed: list[Node | None] = [self.waiting, self.reasoning, self.text, self.sources]
        removed += [*self.calls, *notes, *self.hosted.values()]
        self.waiting = self.reasoning = self.text = self.sources = None
        self.notes, self.hosted, self.hosted_ids, self.citations = {}, {}, {}, []
        self.calls.clear()
        self.streaming_calls.clear()
        return (node for node in removed if node is not None)

    def walk(self) -> Iterator[Node]:
        """The items in order."""
        first_nodes = (self.notice, self.waiting, self.reasoning)
        for node in (*first_nodes, *self.hosted.values(), self.text, self.sources):
            if node is not None:
                yield node
        for call in self.calls:
            yield from call.walk()
        yield from self.notes.values()


class Call(CallNode):
    """A call with the items below it."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(key, path)
        self.below: list[Turn | Node] = []
        """Its steps, the calls of its body, its questions and their records, in the order in which they came."""
        self.steps: dict[str, StepNode] = {}
        """Its steps, by name."""
        self.inner: Agent | None = None
        self.question: FixedNode | None = None
        """The form of its own question, while that is open."""
        self.is_last = False
        """Whether it is below all of its own items: a flow ends with its result."""

    def wire(self) -> CallItem:
        """The item in its current form; a flow's input is in the header."""
        item = super().wire()
        return item.model_copy(update={"brief": ""}) if self.is_last else item

    def finished(self, event: ToolFinished) -> None:
        """Set the call's result; a flow's text is below it, and is not shown twice."""
        super().finished(event)
        if self.is_last and not event.error:
            self._result = None

    @property
    def hidden(self) -> bool:
        """Whether its question is in its place, because that shows everything that its row would.

        A question for an outside system shows no input.
        """
        form = None if self.question is None else self.question.item
        if not isinstance(form, FormItem) or not form.actions or self.has_more:
            return False
        return self.inner is None and self.below == [self.question]

    def walk(self) -> Iterator[Node]:
        """The call and the items below it."""
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
        """The prefix of its items' keys."""
        self.model_key = f"{key}m"
        """The key of the model's spans on the time strip."""
        self.outer = outer
        """Names of the agents around it, outermost first."""
        self.name = ""
        self.answer: AnswerForm = "text"
        """The form in which its model ends."""
        self.refused: tuple[FixedNode, str] | None = None
        """The line about its last invalid answer, and the error."""
        self.queued: list[FixedNode] = []
        """The person's messages that the model does not have yet."""
        self.entries: list[Turn | Node] = []
        self.open_calls: dict[str, Call] = {}
        """The calls of the last response that have no result yet, by id."""
        self.live_turn: Turn | None = None
        """The response that is streaming."""
        self.thinking = False
        """Whether the model is answering."""
        self.last_turn: Turn | None = None
        self._turns = self._messages = self._refusals = 0
        self.started = 0
        """The number of calls that a body has started, if it is not an agent but the calls of a body."""

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
        """A text of its model, drawn in the form in which it is to end."""
        return TextNode(key) if self.answer == "text" else AnswerNode(key, self.answer)

    def message_key(self) -> str:
        """A key for one more message of the person."""
        self._messages += 1
        return f"{self.key}m{self._messages}"

    def refusal_key(self) -> str:
        """A key for one more invalid answer."""
        self._refusals += 1
        return f"{self.key}x{self._refusals}"

    def walk(self) -> Iterator[Node]:
        """All items in the order they are drawn."""
        return walk(self.entries)


@dataclass(slots=True)
class DrawnQuestion:
    """A question, and the place of its form or its record."""

    question: Question
    event: Interrupted
    agent: Agent
    call: Call | None
    node: FixedNode
    record: FixedNode | None = None

    @property
    def row(self) -> Call | None:
        """The call whose row has its decision; a question of a running body has a line of its own."""
        return self.call if self.event.ask is None else None

    @property
    def siblings(self) -> list[Turn | Node]:
        """The list that its form and its record are in."""
        return self.agent.entries if self.call is None else self.call.below


def walk(entries: list[Turn | Node]) -> Iterator[Node]:
    """The items of turns and of the entries between them."""
    for entry in entries:
        if isinstance(entry, Turn | Call):
            yield from entry.walk()
        else:
            yield entry
