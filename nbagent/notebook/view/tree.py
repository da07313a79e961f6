"""The tree of a view's items: agents have turns, turns have calls, calls have questions and inner agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from nbagent.core.base.events import AnswerForm, Interrupted, ToolFinished
from nbagent.core.base.file_parts import Content
from nbagent.notebook.wire import CallItem, FormItem, NoticeItem, TextItem

from .items import (
    AnswerNode,
    CallNode,
    FixedNode,
    HostedNode,
    ReasoningNode,
    StepNode,
    TextNode,
    ViewNode,
)
from .questions import Question


class Turn:
    """The items of one model response."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.reasoning: ReasoningNode | None = None
        self.text: TextNode | None = None
        self.notice: FixedNode | None = None
        """The notice that an earlier attempt at the response was discarded."""
        self.waiting: FixedNode | None = None
        """The notice that the request waits, with the reason."""
        self.notes: dict[str, FixedNode] = {}
        """The notes on the response, by text. They are stored with the response."""
        self.hosted: dict[int, HostedNode] = {}
        """The calls that the provider ran for the response, by number."""
        self.hosted_ids: dict[str, int] = {}
        """The numbers of the provider's calls, by the provider's ids, while the response streams."""
        self.citations: list[dict[str, str]] = []
        """The sources of the response's text, while the text streams."""
        self.sources: FixedNode | None = None
        """The line below the text that names the sources."""
        self.calls: list[CallTree] = []
        self.streaming_calls: dict[int, CallTree] = {}
        """Calls while they stream, by the number that the model gave them."""

    def note(self, text: str, tone: Literal["warn", "plain"] = "plain") -> FixedNode:
        """The note with this text, made once."""
        key = f"{self.key}.n{len(self.notes)}"
        return self.notes.setdefault(text, FixedNode(NoticeItem(key=key, tone=tone, text=text)))

    def cites(self, markup: str) -> FixedNode:
        """The line below the response's text that names the cited sources."""
        item = TextItem(key=f"{self.key}.s", blocks=[markup])
        if self.sources is None:
            self.sources = FixedNode(item)
        elif self.sources.item != item:
            self.sources.replace(item)
        return self.sources

    def clear(self) -> Iterator[ViewNode]:
        """Remove the streamed items, and return them."""
        notes = self.notes.values()
        removed: list[ViewNode | None] = [self.waiting, self.reasoning, self.text, self.sources]
        removed += [*self.calls, *notes, *self.hosted.values()]
        self.waiting = self.reasoning = self.text = self.sources = None
        self.notes, self.hosted, self.hosted_ids, self.citations = {}, {}, {}, []
        self.calls.clear()
        self.streaming_calls.clear()
        return (node for node in removed if node is not None)

    def walk(self) -> Iterator[ViewNode]:
        """The items in order."""
        first_nodes = (self.notice, self.waiting, self.reasoning)
        for node in (*first_nodes, *self.hosted.values(), self.text, self.sources):
            if node is not None:
                yield node
        for call in self.calls:
            yield from call.walk()
        yield from self.notes.values()


class CallTree(CallNode):
    """A call with the items below it."""

    def __init__(self, key: str, path: str) -> None:
        super().__init__(key, path)
        self.below: list[Turn | ViewNode] = []
        """The steps, inner calls, questions and records of the call, in order of arrival."""
        self.steps: dict[str, StepNode] = {}
        """The steps of the call's body, by name."""
        self.inner: AgentNode | None = None
        self.question: FixedNode | None = None
        """The form of the call's own question, while the question is open."""
        self.written = 0
        """Characters of the body's own text that are stored."""
        self.texts = 0
        """The number of these texts."""
        self.streaming: list[TextNode] = []
        """The nodes of the body's text that is not stored yet."""
        self.is_row_below = False
        """Whether the call's row is below the items inside the call. True for a flow, which ends with its result."""

    def wire(self) -> CallItem:
        """The item in its current form. A flow's input is left out, as the header has it."""
        item = super().wire()
        return item.model_copy(update={"brief": ""}) if self.is_row_below else item

    def finished(self, event: ToolFinished, traceback: Callable[[], str]) -> None:
        """Set the call's result. A flow's result is not shown in the row, as the text below shows it."""
        super().finished(event, traceback)
        if self.is_row_below and not event.error:
            self._result = None

    @property
    def hidden(self) -> bool:
        """Whether the question replaces the call's row, because the form shows everything that the row would.

        A question for an outside system shows no input, so it never replaces the row.
        """
        form = None if self.question is None else self.question.item
        if not isinstance(form, FormItem) or not form.actions or self.has_more:
            return False
        return self.inner is None and self.below == [self.question]

    def walk(self) -> Iterator[ViewNode]:
        """The call and the items below it."""
        if not self.is_row_below and not self.hidden:
            yield self
        yield from walk(self.below)
        if self.inner is not None:
            yield from self.inner.walk()
        if self.is_row_below and not self.hidden:
            yield self


class AgentNode:
    """The outermost agent of a run, or an inner agent that runs inside a call."""

    def __init__(self, key: str, outer: tuple[str, ...]) -> None:
        self.key = key
        """The prefix of the keys of the agent's items."""
        self.model_key = f"{key}m"
        """The key of the model's spans on the time strip."""
        self.outer = outer
        """Names of the outer agents, outermost first."""
        self.name = ""
        self.answer: AnswerForm = "text"
        """The form of the agent's final answer."""
        self.refused: tuple[FixedNode, str] | None = None
        """The notice about the last invalid answer, and the error."""
        self.queued: list[tuple[FixedNode, Content]] = []
        """The person's messages that the model does not have yet, as drawn and as sent."""
        self.entries: list[Turn | ViewNode] = []
        self.open_calls: dict[str, CallTree] = {}
        """The calls of the last response that have no result yet, by id."""
        self.live_turn: Turn | None = None
        """The response that is streaming."""
        self.thinking = False
        """Whether the model is answering."""
        self.last_turn: Turn | None = None
        self._turns = 0
        self._numbers = {"m": 0, "x": 0}
        self.started = 0
        """The number of calls that a body has started, if this agent is the body of a call."""
        self.own_calls: dict[str, CallTree] = {}
        """The calls that the body runs itself after their approval, by id."""

    @property
    def path(self) -> str:
        """``planner ▸ banker`` for an inner agent, else empty."""
        return " ▸ ".join(name for name in (*self.outer, self.name) if name) if self.outer else ""

    def new_turn(self) -> Turn:
        """Add a turn at the end."""
        turn = Turn(f"{self.key}{self._turns}")
        self._turns += 1
        self.entries.append(turn)
        self.last_turn = turn
        return turn

    def text_node(self, key: str) -> TextNode:
        """A node for text of the model: plain text, or JSON if the final answer is JSON."""
        return TextNode(key) if self.answer == "text" else AnswerNode(key, self.answer)

    def new_key(self, kind: Literal["m", "x"]) -> str:
        """A key for one more message of the person (``m``), or one more invalid answer (``x``)."""
        self._numbers[kind] += 1
        return f"{self.key}{kind}{self._numbers[kind]}"

    def walk(self) -> Iterator[ViewNode]:
        """All items in the order they are drawn."""
        return walk(self.entries)


@dataclass(slots=True)
class DrawnQuestion:
    """A question, and the place of its form or its record."""

    question: Question
    event: Interrupted
    agent: AgentNode
    call: CallTree | None
    node: FixedNode
    record: FixedNode | None = None

    @property
    def row(self) -> CallTree | None:
        """The call whose row shows the decision; None for a question of a running body, which has its own line."""
        return self.call if self.event.ask is None else None

    @property
    def siblings(self) -> list[Turn | ViewNode]:
        """The list of items that has the question's form or record."""
        return self.agent.entries if self.call is None else self.call.below


def walk(entries: list[Turn | ViewNode]) -> Iterator[ViewNode]:
    """The items of turns and of the entries between them."""
    for entry in entries:
        if isinstance(entry, Turn | CallTree):
            yield from entry.walk()
        else:
            yield entry
