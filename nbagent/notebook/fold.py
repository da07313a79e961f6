"""What is stored: each event of the journal, drawn on the board and counted for the head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from nbagent.core.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.interrupts import Reject, Respond, Restart
from nbagent.core.messages import calls_of, text_of

from .board import Board
from .items import FixedNode, Node, ReasoningNode, TextNode
from .questions import Question, Types
from .reveal import reveal
from .sanitize import encodable
from .strip import Strip
from .texts import TEXTS
from .tree import Agent, Asked, Call, Turn
from .wire import Head, NoticeItem, RecordItem, RunStatus

TypesOf: TypeAlias = Callable[[str], Types | None]


class Fold:
    """Draws stored events on the board; what it shows in the end depends on them alone."""

    def __init__(self, board: Board, run: str, types_of: TypesOf) -> None:
        self._board = board
        self._run = run
        self._types_of = types_of
        self.asked: dict[str, Asked] = {}
        """The questions that are open, or were when the run ended, by interrupt id."""
        self.note = ""
        self._strip = Strip()
        self._prompt = ""
        self._started_at = 0.0
        self._tokens = 0
        self._cost: float | None = None
        self._decisions = 0
        self._end: RunCompleted | RunFailed | RunCancelled | None = None
        self.handlers: dict[type[Any], Callable[[Any], None]] = {
            RunStarted: self._run_started,
            ModelResponded: self._model_responded,
            ToolStarted: self._tool_started,
            ToolFinished: self._tool_finished,
            Interrupted: self._interrupted,
            Resolved: self._resolved,
            RunCompleted: self._ended,
            RunFailed: self._ended,
            RunCancelled: self._ended,
            RunRetried: self._retried,
        }

    @property
    def status(self) -> RunStatus:
        """The run's status as the head shows it."""
        match self._end:
            case RunCompleted():
                return "completed"
            case RunFailed():
                return "failed"
            case RunCancelled():
                return "cancelled"
            case None:
                return "interrupted" if self.asked and not self._board.root.busy else "running"

    def head(self) -> Head:
        """The card's frame."""
        status = self.status
        return Head(
            run=self._run,
            agent=self._board.root.name,
            prompt=self._prompt,
            status=status,
            status_text=TEXTS[f"status_{status}"],
            started_at=self._started_at,
            turns=self._board.root.turns_taken,
            max_turns=self._board.root.max_turns,
            tokens=self._tokens,
            cost=self._cost,
            questions=0 if self._end is not None else len(self.asked),
            decisions=self._decisions,
            note=self.note,
            spans=self._strip.spans(self._started_at),
        )

    def _run_started(self, event: RunStarted) -> None:
        agent = self._board.agent(event.scope)
        agent.name, agent.max_turns = reveal(event.agent), event.max_turns
        if agent is self._board.root:
            self._started_at = event.at
            self._prompt = _prompt(event.messages)
        self._board.head_dirty = True
        self._think(agent, event.at)
        if event.messages and event.messages[-1].get("role") == "assistant":
            self._carry_on(agent, event)

    def _carry_on(self, agent: Agent, event: RunStarted) -> None:
        """A history that ends in open calls: they are this run's first turn."""
        last = event.messages[-1]
        calls = calls_of(last)
        if not calls:
            return
        asked = tuple(
            CallRequested(id=c["id"], name=c["name"], input=c["input"], raw=c.get("raw"))
            for c in calls
        )
        whole = ModelResponded(at=event.at, scope=event.scope, text=text_of(last), calls=asked)
        self._model_responded(whole)
        agent.turns_taken -= 1
        for call in calls:
            carried = call.get("nbagent") or {}
            if carried.get("status") == "waiting" and carried.get("pause"):
                self._interrupted(Interrupted.model_validate(carried["pause"]))
            elif carried.get("result") is not None:
                output, error = carried["result"]["output"], bool(carried["result"].get("error"))
                self._tool_finished(
                    ToolFinished(
                        at=event.at,
                        scope=event.scope,
                        call_id=call["id"],
                        output=output,
                        error=error,
                    )
                )

    def _model_responded(self, event: ModelResponded) -> None:
        self._reopen()
        agent = self._board.agent(event.scope)
        turn = agent.live or agent.new_turn()
        agent.live = None
        agent.turns_taken += 1
        self._tokens += event.input_tokens + event.output_tokens
        if event.cost is not None:
            self._cost = (self._cost or 0.0) + event.cost
        self._strip.stop(f"{agent.key}m", event.at)
        self._settle_text(turn, event)
        self._settle_calls(agent, turn, event)
        agent.thinking = False
        agent.text = event.text
        self._board.head_dirty = True

    def _settle_text(self, turn: Turn, event: ModelResponded) -> None:
        if turn.notice is not None:
            self._board.forget(turn.notice)
            turn.notice = None
        if event.text.strip():
            turn.text = turn.text or TextNode(f"{turn.key}.t")
            turn.text.close(event.text)
            self._board.touch(turn.text)
        elif turn.text is not None:
            self._board.forget(turn.text)
            turn.text = None
        if event.reasoning.strip():
            turn.reasoning = turn.reasoning or ReasoningNode(f"{turn.key}.r")
            turn.reasoning.close(event.reasoning)
            self._board.touch(turn.reasoning)
        elif turn.reasoning is not None:
            self._board.forget(turn.reasoning)
            turn.reasoning = None

    def _settle_calls(self, agent: Agent, turn: Turn, event: ModelResponded) -> None:
        for node in turn.calls[len(event.calls) :]:
            self._board.forget(node)
        del turn.calls[len(event.calls) :]
        turn.by_index.clear()
        agent.open.clear()
        for number, requested in enumerate(event.calls):
            call = (
                turn.calls[number]
                if number < len(turn.calls)
                else self._board.new_call(agent, turn)
            )
            call.requested(requested.name, requested.input, requested.raw)
            agent.open[requested.id] = call
            self._board.touch(call)

    def _tool_started(self, event: ToolStarted) -> None:
        self._reopen()
        call = self._board.call(event.scope, event.call_id)
        if call is None:
            return
        at = max(event.at, call.continued_at)  # a body that goes on after a question started before
        call.changed(event.input)
        call.started(at)
        self._strip.start(call.key, "tool", at)
        self._board.touch(call)
        self._board.head_dirty = True

    def _tool_finished(self, event: ToolFinished) -> None:
        self._reopen()
        agent = self._board.agent(event.scope)
        call = agent.open.get(event.call_id)
        if call is None:
            return
        call.finished(event, rejected=False)
        self._close_call(agent, event.call_id, event.at)

    def _interrupted(self, event: Interrupted) -> None:
        self._reopen()
        agent = self._board.agent(event.scope)
        call = agent.open.get(event.call_id)
        question = Question.of(event, self._types_of(event.tool_name))
        item = question.item(f"q:{event.id}", "" if call is None else call.key, agent.path)
        node = FixedNode(item)
        if call is not None:
            call.stopped(event.at, "waiting")
            call.shows(event.printed, event.displays)
            self._strip.stop(call.key, event.at)
            self._board.touch(call)
        asked = Asked(question, event, agent, call, node)
        self.asked[event.id] = asked
        agent.thinking = agent.thinking and call is not None
        if call is None:
            self._strip.stop(f"{agent.key}m", event.at)
        self._strip.start(item.key, "wait", event.at)
        self._board.add(asked.siblings, node)

    def _resolved(self, event: Resolved) -> None:
        self._reopen()
        asked = self.asked.pop(event.id, None)
        if asked is None:
            return
        self._decisions += 1
        self._strip.stop(asked.node.key, event.at)
        self._record(asked, asked.question.record(f"a:{event.id}", event, asked.event.at))
        call, agent = asked.call, asked.agent
        if call is None:
            more = event.resolution.output if isinstance(event.resolution, Respond) else 0
            if asked.event.budget in (None, "turns") and isinstance(more, int):
                agent.max_turns += more
            self._think(agent, event.at)
            return
        if asked.event.ask is not None:  # its body goes on with the answer, once it has all of them
            waits = any(other.call is call for other in self.asked.values())
            call.state, call.continued_at = "waiting" if waits else "preparing", event.at
        else:
            self._settle_call(asked, call, event)
        call.touch()
        self._board.touch(call)

    def _settle_call(self, asked: Asked, call: Call, event: Resolved) -> None:
        agent = asked.agent
        match event.resolution:
            case Respond(output=output):
                call.answered(asked.question.public(output))
                self._close_call(agent, event.call_id, event.at)
            case Reject():
                call.state = "rejected"
                self._close_call(agent, event.call_id, event.at)
            case Restart():
                call.state = "preparing"

    def _close_call(self, agent: Agent, call_id: str, at: float) -> None:
        """The call has its result; after the last one of a turn the model goes on."""
        call = agent.open.pop(call_id)
        call.touch()
        self._board.touch(call)
        self._strip.stop(call.key, at)
        self._board.head_dirty = True
        if not agent.open:
            self._think(agent, at)

    def _ended(self, event: RunCompleted | RunFailed | RunCancelled) -> None:
        agent = self._board.agent(event.scope)
        if agent is self._board.root and self._end is not None:
            return
        agent.thinking, agent.ended = False, True
        agent.failed = isinstance(event, RunFailed)
        self._strip.stop(f"{agent.key}m", event.at)
        self._board.head_dirty = True
        if agent is not self._board.root:
            return
        self._end = event
        self._strip.stop_all(event.at)
        if agent.live is not None:
            for node in agent.live.clear():
                self._board.forget(node)
            agent.live = None
        self._end_calls(event)
        for asked in self.asked.values():
            unanswered = RecordItem(
                key=f"a:{asked.event.id}",
                title=asked.question.title,
                decision=TEXTS["unanswered"],
                tone="plain",
            )
            self._record(asked, unanswered)
        self._tell_end(event)

    def _end_calls(self, event: RunCompleted | RunFailed | RunCancelled) -> None:
        for agent in self._board.agents.values():
            for call in agent.open.values():
                failed = isinstance(event, RunFailed) and call.state == "running"
                call.ended_as = "failed" if failed else "cancelled"
                if call.state == "running":
                    call.stopped(event.at, "preparing")
                call.touch()
                self._board.touch(call)

    def _tell_end(self, event: RunCompleted | RunFailed | RunCancelled) -> None:
        nodes = self._board.root.entries
        match event:
            case RunFailed(error=error, message=message):
                text = TEXTS["failed"].format(error=reveal(error), message=reveal(message))
                self._board.add(nodes, FixedNode(NoticeItem(key="end", tone="bad", text=text)))
            case RunCancelled(by=by, still_running=names):
                text = TEXTS["cancelled"].format(who=reveal(by))
                if names:
                    tools = ", ".join(reveal(self._name_of(name)) for name in names)
                    text = f"{text} {TEXTS['still_running'].format(tools=tools)}"
                self._board.add(nodes, FixedNode(NoticeItem(key="end", tone="warn", text=text)))
            case RunCompleted(text=text) if text.strip() and text != self._board.root.text:
                node = TextNode("end")
                node.close(text)
                self._board.add(nodes, node)
            case RunCompleted():
                pass

    def _name_of(self, call_id: str) -> str:
        found = (a.open[call_id].name for a in self._board.agents.values() if call_id in a.open)
        return next(found, call_id)

    def _reopen(self) -> None:
        """A run that had failed goes on: what it waited for is asked again."""
        if self._end is None:
            return
        self._end, self._board.root.ended, self._board.head_dirty = None, False, True
        for entry in list(self._board.root.entries):
            if isinstance(entry, Node) and entry.key == "end":
                self._board.drop(self._board.root.entries, entry)
        for agent in self._board.agents.values():
            for call in agent.open.values():
                call.ended_as = None
                call.touch()
                self._board.touch(call)
        for asked in self.asked.values():
            if asked.record is not None:
                self._board.drop(asked.siblings, asked.record)
                asked.record = None
            asked.node.sent, asked.node.stale = False, True
            self._board.add(asked.siblings, asked.node)

    def _retried(self, event: RunRetried) -> None:
        self._reopen()
        for agent in self._board.agents.values():
            if agent.failed and not agent.open:
                self._think(agent, event.at)
            agent.failed, agent.ended = False, agent.ended and not agent.failed

    def _think(self, agent: Agent, at: float) -> None:
        agent.thinking, agent.ended = True, False
        self._strip.start(f"{agent.key}m", "model", at)
        self._board.head_dirty = True

    def _record(self, asked: Asked, item: RecordItem) -> None:
        """Put the record where the form stands."""
        siblings = asked.siblings
        record = FixedNode(item)
        at = siblings.index(asked.node)
        self._board.drop(siblings, asked.node)
        siblings.insert(at, record)
        asked.record = record
        self._board.touch(record)
        self._board.head_dirty = True


def _prompt(messages: list[Any]) -> str:
    """The text of the last thing the person said."""
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "user":
            return encodable(text_of(message))
    return ""
