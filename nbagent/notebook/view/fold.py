"""What is stored: each event of the journal, drawn on the board and counted for the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, assert_never

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    MessageQueued,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    StepFinished,
    StoredEvent,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Reject, Respond, Restart
from nbagent.core.base.messages import calls_of, text_of
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view import ending
from nbagent.notebook.wire import Head, MessageItem, RecordItem, RunStatus

from .board import Board
from .frame import Frame
from .groups import grouped
from .items import FixedNode, Node, ReasoningNode, TextNode
from .question_kinds import Types
from .questions import Question
from .tree import Agent, Asked, Call, Turn


def carried(event: RunStarted) -> Iterator[StoredEvent]:
    """What had happened in the last turn of the history: its calls, their questions and results."""
    last = event.messages[-1] if event.messages else {}
    calls = calls_of(last) if last.get("role") == "assistant" else []
    if not calls:
        return
    asked = tuple(
        CallRequested(id=c["id"], name=c["name"], input=c["input"], raw=c.get("raw")) for c in calls
    )
    yield ModelResponded(at=event.at, scope=event.scope, text=text_of(last), calls=asked)
    for call in calls:
        known = call.get("nbagent") or {}
        if known.get("status") == "waiting" and known.get("pause"):
            yield Interrupted.model_validate(known["pause"])
        elif known.get("result") is not None:
            yield ToolFinished(
                at=event.at,
                scope=event.scope,
                call_id=call["id"],
                output=known["result"]["output"],
                error=bool(known["result"].get("error")),
            )


TypesOf: TypeAlias = Callable[[str], Types | None]


class Fold:
    """Draws stored events on the board; what it shows in the end depends on them alone."""

    def __init__(self, board: Board, run: str, types_of: TypesOf) -> None:
        self._board = board
        self._types_of = types_of
        self.frame = Frame(run)
        self.asked: dict[str, Asked] = {}
        """The questions that are open, or were when the run ended, by interrupt id."""
        self._strip = self.frame.strip
        self._end: RunCompleted | RunFailed | RunCancelled | None = None

    def apply(self, event: StoredEvent) -> None:
        """Draw one event."""
        match event:
            case ToolStarted() | StepFinished() | ToolFinished():
                self._call_went_on(event)
            case Interrupted():
                self._interrupted(event)
            case Resolved():
                self._resolved(event)
            case ModelResponded():
                self._model_responded(event)
            case MessageQueued():
                self._message_queued(event)
            case _:
                self._run_went_on(event)

    def _call_went_on(self, event: ToolStarted | StepFinished | ToolFinished) -> None:
        match event:
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case StepFinished():
                pass  # it saves a later attempt work, and shows in nothing
            case never:
                assert_never(never)

    def _run_went_on(
        self, event: RunStarted | RunRetried | RunCompleted | RunFailed | RunCancelled
    ) -> None:
        match event:
            case RunStarted():
                self._run_started(event)
            case RunRetried():
                self._retried(event)
            case RunCompleted() | RunFailed() | RunCancelled():
                self._ended(event)
            case never:
                assert_never(never)

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
        questions = 0 if self._end is not None else len(self.asked)
        return self.frame.head(self._board.root, self.status, questions)

    def _run_started(self, event: RunStarted) -> None:
        agent = self._board.agent(event.scope)
        agent.name, agent.max_turns = reveal(event.agent), event.max_turns
        if agent is self._board.root:
            self.frame.started(event.at, event.messages)
        self._board.head_dirty = True
        self._think(agent, event.at)
        before = list(carried(event))
        for past in before:
            self.apply(past)
        if before:
            agent.turns_taken -= 1

    def _model_responded(self, event: ModelResponded) -> None:
        self._reopen()
        agent = self._board.agent(event.scope)
        turn = agent.live or agent.new_turn()
        agent.live = None
        agent.turns_taken += 1
        self.frame.spent(event)
        self._strip.stop(f"{agent.key}m", event.at)
        self._settle_text(turn, event)
        self._settle_calls(agent, turn, event)
        agent.thinking = False
        agent.text = event.text
        self._board.head_dirty = True
        if not event.calls and self._send_queued(agent):
            self._think(agent, event.at)

    def _message_queued(self, event: MessageQueued) -> None:
        agent = self._board.agent(event.scope)
        if agent.thinking and agent.live is None:
            agent.live = agent.new_turn()  # the answer that is on its way comes before the message
        note = TEXTS["message_waits"]
        node = FixedNode(MessageItem(key=agent.message_key(), text=reveal(event.text), note=note))
        agent.queued.append(node)
        self._board.add(agent.entries, node)

    def _send_queued(self, agent: Agent) -> bool:
        """The model is told what the person wrote meanwhile, and has all its turns again."""
        queued = agent.queued
        self._note_queued(agent, "")
        agent.queued = []
        if queued:
            agent.max_turns += agent.turns_taken - agent.counted_from
            agent.counted_from = agent.turns_taken
        return bool(queued)

    def _note_queued(self, agent: Agent, note: str) -> None:
        for node in agent.queued:
            node.replace(node.item.model_copy(update={"note": note}))
            self._board.touch(node)

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
        node = FixedNode(grouped(item, question))
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
        self.frame.decisions += event.by == "form"
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
            self._send_queued(agent)
            self._think(agent, at)

    def _ended(self, event: RunCompleted | RunFailed | RunCancelled) -> None:
        agent = self._board.agent(event.scope)
        if agent is self._board.root and self._end is not None:
            return
        agent.thinking, agent.ended = False, True
        self._note_queued(agent, TEXTS["message_unsent"])
        agent.failed = isinstance(event, RunFailed)
        self._strip.stop(f"{agent.key}m", event.at)
        self._board.head_dirty = True
        if agent is not self._board.root:
            return
        self._end, self.frame.stopping = event, False
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
        last = ending.last_word(event, self._board.root.text, self._name_of)
        if last is not None:
            self._board.add(self._board.root.entries, last)

    def _name_of(self, call_id: str) -> str:
        found = (a.open[call_id].name for a in self._board.agents.values() if call_id in a.open)
        return next(found, call_id)

    def _end_calls(self, event: RunCompleted | RunFailed | RunCancelled) -> None:
        for agent in self._board.agents.values():
            for call in agent.open.values():
                failed = isinstance(event, RunFailed) and call.state == "running"
                call.ended_as = "failed" if failed else "cancelled"
                if call.state == "running":
                    call.stopped(event.at, "preparing")
                call.touch()
                self._board.touch(call)

    def _reopen(self) -> None:
        """A run that had failed goes on: what it waited for is asked again."""
        if self._end is None:
            return
        self._end, self._board.root.ended, self._board.head_dirty = None, False, True
        for entry in list(self._board.root.entries):
            if isinstance(entry, Node) and entry.key == ending.KEY:
                self._board.drop(self._board.root.entries, entry)
        for agent in self._board.agents.values():
            for call in agent.open.values():
                call.ended_as = None
                call.touch()
                self._board.touch(call)
        self._note_queued(self._board.root, TEXTS["message_waits"])
        for asked in self.asked.values():
            if asked.record is not None:
                self._board.drop(asked.siblings, asked.record)
                asked.record = None
            asked.node.sent, asked.node.stale = False, True
            self._board.add(asked.siblings, asked.node)

    def _retried(self, event: RunRetried) -> None:
        """The run of this scope goes on; those inside and around it tell by themselves."""
        if not event.scope:
            self._reopen()
        agent = self._board.agent(event.scope)
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
