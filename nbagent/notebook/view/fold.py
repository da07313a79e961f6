"""The drawing of stored events: each event of the journal changes the run's state and the board.

The engine's state has the status, turns, limits, usage and queue of the run.
This module has only the visible parts: items, their places, and durations.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias, assert_never

from nbagent.core.base.errors import HistoryTooLong
from nbagent.core.base.events import (
    BodyCalled,
    Interrupted,
    MessageQueued,
    ModelPartial,
    ModelResponded,
    OutputRefused,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunImported,
    RunQueued,
    RunRetried,
    RunStarted,
    RunTaken,
    StepFinished,
    StoredEvent,
    TextWritten,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.file_parts import files_of
from nbagent.core.base.interrupts import Respond
from nbagent.core.base.messages import is_prompt, text_of, user
from nbagent.core.base.process import describe_process
from nbagent.core.base.user import is_somebody_else
from nbagent.core.state.fold import apply
from nbagent.core.state.next_step import CallModel, next_step
from nbagent.core.state.state import CallState, RunEnd, RunState
from nbagent.notebook.render import facts, rich, sources
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    CardHead,
    FormItem,
    MessageItem,
    NoticeAction,
    NoticeActionName,
    NoticeItem,
    RecordItem,
)

from .board import Board, Scope
from .frame import CardFrame, Lane, last_user_message
from .groups import covered, grouped
from .items import AnswerNode, FixedNode, ReasoningNode, TextNode, ViewNode
from .question_kinds import Types
from .questions import Question
from .tree import AgentNode, CallTree, DrawnQuestion, Turn

_END = "end"
"""The key of the item that shows the end of the run."""

TypesOf: TypeAlias = Callable[[str], Types | None]
TracebackOf: TypeAlias = Callable[[str], str]


class Fold:
    """The fold of stored events into a drawing on the board, which depends only on these events."""

    def __init__(
        self,
        board: Board,
        run: str,
        types_of: TypesOf,
        traceback_of: TracebackOf,
        *,
        in_thread: bool = False,
    ) -> None:
        self.state = RunState()
        self.frame = CardFrame(run)
        self.questions: dict[str, DrawnQuestion] = {}
        """The questions that are open, or that were open when the run ended, by interrupt id."""
        self._board = board
        self._types_of = types_of
        self._in_thread = in_thread
        """Whether the prompt is drawn as a message, and not in the card's header."""
        self._prompt: Mapping[str, Any] | None = None
        self._prompted: FixedNode | None = None
        """The item that shows the prompt, or only the prompt's files."""
        self._traceback_of = traceback_of
        self._strip = self.frame.strip

    def apply(self, event: StoredEvent) -> None:
        """Fold one event into the state, and draw its changes."""
        self.state = apply(self.state, event)
        if isinstance(event, ModelPartial):  # deltas have drawn the streamed text already
            return
        self._draw(event)
        self.frame.turns += isinstance(event, ModelResponded) and not event.scope
        everywhere = isinstance(event, RunStarted | RunRetried) and not event.scope
        for scope in list(self._board.agents) if everywhere else [event.scope]:
            self._follow(scope, event.at)
        self._board.head_dirty = True

    def head(self) -> CardHead:
        """The card's frame."""
        root = self._board.root
        return self.frame.head(self.state, root.name, self._board.plan, answering=root.thinking)

    def _draw(self, event: StoredEvent) -> None:  # noqa: C901, PLR0912 - a line for each kind
        match event:
            case RunQueued():
                self._run_queued(event)
            case RunStarted():
                self._run_started(event)
            case ModelResponded():
                self._responded(event)
            case OutputRefused():
                self._output_refused(event)
            case MessageQueued():
                self._message_queued(event)
            case ToolStarted():
                self._tool_started(event)
            case BodyCalled():
                self._body_called(event)
            case StepFinished():
                self._step_finished(event)
            case TextWritten():
                call = self._board.call(event.scope, event.call_id)
                if call is not None:
                    self._board.written(call, event.text)
            case ToolFinished():
                self._show_plan(event)
                self._tool_finished(event)
            case Interrupted():
                self._show_plan(event)
                self._interrupted(event)
            case Resolved():
                self._resolved(event)
            case RunRetried():
                self._retried(event)
            case RunTaken():
                self._draw_takeover(event)
            case RunImported():
                self._imported()
            case RunCompleted() | RunFailed() | RunCancelled():
                self._ended(event)
            case ModelPartial():
                pass
            case never:
                assert_never(never)

    def _state_of(self, scope: Scope) -> RunState | None:
        """The state of the run at this scope; None once the call around the run has ended."""
        state: RunState | None = self.state
        for call_id in scope:
            call = None if state is None else state.calls.get(call_id)
            state = None if call is None else call.child
        return state

    def _known(self, event: ToolStarted | Resolved | ToolFinished) -> CallState | None:
        """The engine's state of the event's call; None once the call's turn has ended."""
        state = self._state_of(event.scope)
        return None if state is None else state.calls.get(event.call_id)

    def _follow(self, scope: Scope, at: float) -> None:
        """Note whether the model is answering, and whether it has received the person's messages."""
        agent, state = self._board.agent(scope), self._state_of(scope)
        agent.thinking = state is not None and isinstance(next_step(state), CallModel)
        if agent.thinking:
            lane: Lane = "inner" if scope else "model"
            self._strip.start(agent.model_key, lane, at)
        else:
            self._strip.stop(agent.model_key, at)
        if state is not None and not state.queued:
            self._note_queued(agent, "")
            agent.queued = []

    # --- the run

    def _run_queued(self, event: RunQueued) -> None:
        prompt = user(event.prompt)
        self._board.root.name = reveal(event.agent)
        self.frame.started(event.at, [prompt], event.model)
        self._draw_prompt(prompt)

    def _run_started(self, event: RunStarted) -> None:
        agent, state = self._board.agent(event.scope), self._state_of(event.scope)
        agent.name = reveal(event.agent)
        agent.answer = event.answer
        outer_state = self._state_of(event.scope[:-1]) if event.scope else None
        outer_call = self._board.call(event.scope[:-1], event.scope[-1]) if event.scope else None
        if outer_state is not None and outer_state.of_body and outer_call is not None:
            # no other event starts the call of a run that a body started
            outer_call.started(event.at)
            self._board.redraw(outer_call)
        if outer_call is not None:  # from here on, its inner model and tools have spans
            self._strip.stop(outer_call.key, event.at)
        if not event.scope:
            self.frame.started(event.at, event.messages, event.model)
            if self._prompt is None:  # else the prompt was drawn when the run was queued
                self._draw_prompt(last_user_message(event.messages))
            for call in self.state.calls.values() if event.flow else ():
                self.frame.prompt = facts.brief(call.input)
        if state is not None:
            self._draw_open_turn(state, event.scope, event.at)

    def join_thread(self) -> None:
        """Draw the prompt as a message, above all other items."""
        self._in_thread = True
        if self._prompted is not None:
            self._board.drop(self._board.root.entries, self._prompted)
        self._prompted = self._prompt_node()
        if self._prompted is not None:
            self._board.add_first(self._prompted)
        self._board.head_dirty = True

    def _draw_prompt(self, prompt: Mapping[str, Any] | None) -> None:
        """Draw the prompt's files; in a thread also its text."""
        self._prompt = prompt
        self._prompted = self._prompt_node()
        if self._prompted is not None:
            self._board.add(self._board.root.entries, self._prompted)

    def _prompt_node(self) -> FixedNode | None:
        if self._prompt is None:
            return None
        files = rich.files(files_of(self._prompt), sized=True)
        if not files and not self._in_thread:
            return None
        text = facts.shown(text_of(self._prompt), facts.MAX_TEXT) if self._in_thread else ""
        key = self._board.root.new_key("m")
        return FixedNode(MessageItem(key=key, text=text, files=files, editable=self._in_thread))

    def _draw_open_turn(self, state: RunState, scope: Scope, at: float) -> None:
        """Draw the last turn of the history that a run starts with: the calls and their states."""
        if state.calls:
            self._draw(ModelResponded(at=at, scope=scope, text=state.text))
        for call in state.calls.values():
            if call.child is not None:
                inner_scope = (*scope, call.id)
                self._board.agent(inner_scope).name = reveal(call.child.agent)
                self._draw_open_turn(call.child, inner_scope, at)
            for question in call.own_pending:
                self._draw(question)
            if call.result is not None:
                output, error = call.result["output"], bool(call.result.get("error"))
                files = tuple(call.result.get("files", ()))
                self._draw(
                    ToolFinished(
                        at=at, scope=scope, call_id=call.id, output=output, error=error, files=files
                    )
                )
        for message in state.queued:
            content = None if isinstance(message, str) else message
            text = message if isinstance(message, str) else ""
            self._draw(MessageQueued(at=at, scope=scope, text=text, by="", content=content))
        if state.limit_question is not None:
            self._draw(state.limit_question)

    def _ended(self, event: RunEnd) -> None:
        agent, root = self._board.agent(event.scope), self._board.root
        self._note_queued(agent, TEXTS["message_unsent"])
        if isinstance(event, RunCompleted):
            self._answer(agent, event)
        if agent is not root:
            return
        self.frame.stopping = False
        self._strip.stop_all(event.at)
        if agent.live_turn is not None:
            for node in agent.live_turn.clear():
                self._board.forget(node)
            agent.live_turn = None
        for call in self._open_calls():
            failed = isinstance(event, RunFailed) and call.state == "running"
            self._abandon(call, event.at, "failed" if failed else "cancelled")
        for drawn in self.questions.values():
            self._record_unanswered(drawn)
        last = self._last_item(event)
        if isinstance(event, RunFailed) and root.refused is not None:
            line, errors = root.refused
            if errors in event.message:  # the end shows the same errors
                self._board.drop(root.entries, line)
        if last is not None:
            self._board.add(root.entries, last)

    def _last_item(self, event: RunEnd) -> ViewNode | None:
        """The item that shows the end of the run; None if the last response shows the answer already."""
        match event:
            case RunFailed(error=error, message=message):
                text = TEXTS["failed"].format(
                    error=reveal(error), message=facts.shown(message, facts.MAX_TEXT)
                )
                actions = self._ways_out() if error == HistoryTooLong.__name__ else []
                return FixedNode(NoticeItem(key=_END, tone="bad", text=text, actions=actions))
            case RunCancelled():
                return FixedNode(NoticeItem(key=_END, tone="warn", text=self._stopped(event)))
            case RunCompleted():
                text = self._final_text(event)
                if not text.strip() or text == self.state.text:
                    return None
                answer = self._board.root.text_node(_END)
                answer.close(text)
                return answer
            case never:
                assert_never(never)

    def _final_text(self, event: RunCompleted) -> str:
        """The answer as text, a flow's dict or list as code; empty if a turn or a row shows it already."""
        root = self._board.root
        if root.answer != "text" and not self._is_by_tool(()):
            return ""
        if not self.state.flow:
            return event.text
        calls = root.last_turn.calls if root.last_turn is not None else []
        if any(call.is_rich for call in calls):
            return ""
        is_data = isinstance(event.output, dict | list)
        text = facts.code_block(event.output) if is_data else event.text
        last = calls[0].below[-1:] if calls else []  # the body may have written what it returned
        end = f"\n\n{text.strip()}"
        is_written = any(
            isinstance(n, TextNode) and f"\n\n{n.source.strip()}".endswith(end) for n in last
        )
        return "" if is_written else text

    def _ways_out(self) -> list[NoticeAction]:
        """What a person can do about a conversation that is too long for its model."""
        names: list[NoticeActionName] = ["shorten"]
        prompt = None if self._prompted is None else self._prompted.item
        last = self.state.messages[-1:]
        if isinstance(prompt, MessageItem) and prompt.editable and all(map(is_prompt, last)):
            names.insert(0, "edit")
        return [NoticeAction(name=name, label=TEXTS[f"too_long_{name}"]) for name in names]

    def _stopped(self, event: RunCancelled) -> str:
        other = is_somebody_else(event.user)
        template = TEXTS["cancelled_here" if event.by == "form" and not other else "cancelled"]
        text = template.format(who=reveal(event.user if other else event.by))
        if not event.still_running:
            return text
        names: dict[str, str] = {}
        for agent in self._board.agents.values():
            for call_id, call in agent.open_calls.items():
                names.setdefault(call_id, call.name)
        tools = ", ".join(reveal(names.get(each, each)) for each in event.still_running)
        return f"{text} {TEXTS['still_running'].format(tools=tools)}"

    def _answer(self, agent: AgentNode, event: RunCompleted) -> None:
        """Draw the last text as the answer parsed from it. A final tool's answer is in the tool's row instead."""
        turn = agent.last_turn
        text = None if turn is None else turn.text
        if isinstance(text, AnswerNode) and not self._is_by_tool(event.scope):
            text.answer(event.output)
            self._board.touch(text)

    def _is_by_tool(self, scope: Scope) -> bool:
        """Whether this run ends with a final tool."""
        state = self._state_of(scope)
        return state is not None and state.final is not None

    def _draw_takeover(self, event: RunTaken) -> None:
        """Show who has taken over the run, unless no process was running it or its process released it."""
        if event.by in ("vacancy", "release"):
            return
        other = event.user if is_somebody_else(event.user) else ""
        owner = describe_process(event.owner) + (f" ({other})" if other else "")
        former = describe_process(event.gone) if event.gone else ""
        moment = dt.datetime.fromtimestamp(event.at).astimezone()  # in the zone of this machine
        text = TEXTS["taken_over_from_ended" if former else "taken_over_by"].format(
            who=reveal(owner), gone=reveal(former), moment=f"{moment:%Y-%m-%d %H:%M}"
        )
        item = NoticeItem(key=f"taken{self.state.position}", text=text[:1].upper() + text[1:])
        self._board.add(self._board.root.entries, FixedNode(item))

    def _retried(self, event: RunRetried) -> None:
        """Remove the item of the end, and show the forms of open questions again."""
        if event.scope:
            return
        entries = self._board.root.entries
        for entry in list(entries):
            if isinstance(entry, ViewNode) and entry.key == _END:
                self._board.drop(entries, entry)
        if self._board.root.refused is not None and self._board.root.refused[0] not in entries:
            self._board.add(entries, self._board.root.refused[0])
        for call in self._open_calls():
            call.ended_as = None
            self._board.redraw(call)
        self._note_queued(self._board.root, TEXTS["message_waits"], waits=True)
        for asked in self.state.pending:
            self._ask_again(self.questions[asked.id], asked)

    def _imported(self) -> None:
        """Remove the decisions on open calls, which an import makes void, and update the deadlines of questions."""
        for call in self._open_calls():
            call.clear_decisions()
            self._board.redraw(call)
        for asked in self.state.pending:
            if asked.id in self.questions:
                node = self.questions[asked.id].node
                node.replace(node.item.model_copy(update={"expires_at": asked.expires_at}))

    def _ask_again(self, drawn: DrawnQuestion, event: Interrupted) -> None:
        """Show the form instead of its record again, with the deadline of the event."""
        if drawn.record is not None and drawn.row is not None:
            drawn.row.undecided()
        elif drawn.record is not None:
            self._board.drop(drawn.siblings, drawn.record)
        drawn.record = None
        form = drawn.node.item.model_copy(update={"expires_at": event.expires_at})
        drawn.node.replace(form)
        drawn.node.sent = False
        self._asks(drawn)

    def _open_calls(self) -> list[CallTree]:
        return [call for agent in self._board.agents.values() for call in agent.open_calls.values()]

    # --- the model and the person's messages

    def _responded(self, event: ModelResponded) -> None:
        agent = self._board.agent(event.scope)
        agent.refused = None
        turn = agent.live_turn or agent.new_turn()
        agent.live_turn = None
        self._strip.stop(agent.model_key, event.at)
        self._settle_text(agent, turn, event)
        for number, hosted in enumerate(event.hosted):
            self._board.show_hosted(agent, turn, number, hosted)
        if event.citations:
            self._board.touch(turn.cites(sources.cited(event.citations)))
        state = self._state_of(event.scope)
        self._settle_calls(agent, turn, [] if state is None else [*state.calls.values()])

    def _settle_text(self, agent: AgentNode, turn: Turn, event: ModelResponded) -> None:
        for node in (turn.notice, turn.waiting):
            if node is not None:
                self._board.forget(node)
        turn.notice = turn.waiting = None
        for text in event.notes:
            self._board.touch(turn.note(facts.shown(text, facts.MAX_TEXT)))
        cut_note = TEXTS.get(f"cut_{event.cut or event.finish_reason}")
        if cut_note is not None and (event.text or event.reasoning or not event.cut):
            self._board.touch(turn.note(cut_note, "warn"))
        if event.text.strip():
            turn.text = turn.text or agent.text_node(f"{turn.key}.t")
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

    def _settle_calls(self, agent: AgentNode, turn: Turn, calls: list[CallState]) -> None:
        for node in turn.calls[len(calls) :]:
            self._board.forget(node)
        del turn.calls[len(calls) :]
        turn.streaming_calls.clear()
        agent.open_calls.clear()
        for number, requested in enumerate(calls):
            call = (
                turn.calls[number]
                if number < len(turn.calls)
                else self._board.new_call(agent, turn)
            )
            call.requested(requested.name, requested.proposed, requested.raw)
            call.is_row_below = self.state.flow and agent is self._board.root
            agent.open_calls[requested.id] = call
            self._board.redraw(call)

    def _output_refused(self, event: OutputRefused) -> None:
        """Show below the answer why it was not accepted. Later events show whether the model is asked again."""
        agent = self._board.agent(event.scope)
        text = TEXTS["answer_refused"].format(errors=facts.shown(event.errors, facts.MAX_TEXT))
        node = FixedNode(NoticeItem(key=agent.new_key("x"), tone="warn", text=text))
        agent.refused = node, event.errors
        self._board.add(agent.entries, node)

    def _message_queued(self, event: MessageQueued) -> None:
        agent = self._board.agent(event.scope)
        if agent.thinking and agent.live_turn is None:
            agent.live_turn = agent.new_turn()  # so that the streaming answer is above the message
        message, number = user(event.prompt), event.replaces
        item = MessageItem(
            key=agent.new_key("m") if number is None else agent.queued[number][0].item.key,
            text=facts.shown(text_of(message), facts.MAX_TEXT),
            note=TEXTS["message_waits"],
            files=rich.files(files_of(message), sized=True),
            editable=self._in_thread and agent is self._board.root,
        )
        if number is None:
            node = FixedNode(item)
            agent.queued.append((node, event.prompt))
            self._board.add(agent.entries, node)
        else:
            node = agent.queued[number][0]
            agent.queued[number] = node, event.prompt
            self._board.replace(node, item)

    def _note_queued(self, agent: AgentNode, note: str, *, waits: bool = False) -> None:
        can_edit = waits and self._in_thread and agent is self._board.root
        for node, _ in agent.queued:
            item = node.item.model_copy(update={"note": note, "editable": can_edit})
            self._board.replace(node, item)

    # --- calls

    def _body_called(self, event: BodyCalled) -> None:
        """Draw a run or call that a body starts as a row below the body's call, among steps and questions."""
        agent, state = self._board.agent(event.scope), self._state_of(event.scope)
        agent.name = "" if state is None else reveal(state.agent)
        outer_call = self._board.call(event.scope[:-1], event.scope[-1])
        if outer_call is None:
            return
        call = self._board.body_call(agent, outer_call)
        call.requested(event.name, event.input, None)
        agent.open_calls[event.call_id] = call
        if event.server_id is not None:
            agent.own_calls[event.call_id] = call
        self._board.redraw(call)
        self._board.head_dirty = True

    def _tool_started(self, event: ToolStarted) -> None:
        call, known = self._board.call(event.scope, event.call_id), self._known(event)
        if call is not None and known is not None:
            call.gets(event.input if known.passed_input is None else known.passed_input)
            call.started(event.at)
            self._strip.start(call.key, "tool", event.at)
            self._board.redraw(call)

    def _step_finished(self, event: StepFinished) -> None:
        call = self._board.call(event.scope, event.call_id)
        if call is None or not event.shown:
            return
        row = event.row
        approved = None if row is None else self._board.approved(event.scope, event.call_id, row)
        if approved is not None:
            approved.row_ended(event)
            self._board.redraw(approved)
            return
        step = self._board.step(call, event.name, row)
        step.ended(event)
        self._board.put_last(call, step)

    def _show_plan(self, event: ToolFinished | Interrupted) -> None:
        if event.plan and not event.scope:
            self._board.show_plan(event.plan, event.plan_done)

    def _tool_finished(self, event: ToolFinished) -> None:
        call = self._board.call(event.scope, event.call_id)
        if call is None:
            return
        known = self._known(event)
        if (
            known is not None and known.replaced and call.elapsed is None
        ):  # an approval, without a body
            call.gets(known.body_input)
        call.finished(event, partial(self._traceback_of, event.call_id))
        self._close_call(event)
        for drawn in self.questions.values():
            item = drawn.node.item
            if drawn.call is call and drawn.event.kind == "later" and isinstance(item, FormItem):
                # the final result comes later: the interim result is a note on the question
                note = facts.shown(event.output, facts.MAX_TEXT)
                self._board.replace(drawn.node, item.model_copy(update={"note": note}))

    def _close_call(self, event: ToolFinished | Resolved) -> None:
        call = self._board.agent(event.scope).open_calls.pop(event.call_id)
        self._board.drop_steps(call)
        self._board.redraw(call)
        self._strip.stop(call.key, event.at)
        self._end_inside((*event.scope, event.call_id), event.at)

    def _end_inside(self, call_scope: Scope, at: float) -> None:
        """End everything that is open inside a call: inner calls are cancelled, questions are unanswered."""
        depth = len(call_scope)
        for scope, agent in self._board.agents.items():
            if scope[:depth] != call_scope:
                continue
            for call in agent.open_calls.values():
                self._abandon(call, at, "cancelled")
            agent.open_calls.clear()
        for drawn in [q for q in self.questions.values() if q.event.scope[:depth] == call_scope]:
            del self.questions[drawn.event.id]
            self._strip.stop(drawn.node.key, at)
            self._record_unanswered(drawn)

    def _abandon(self, call: CallTree, at: float, ended_as: Literal["failed", "cancelled"]) -> None:
        """Show that an open call has ended, because what is around it has."""
        call.ended_as = ended_as
        if call.state == "running":
            call.stopped(at, "preparing")
        self._board.drop_steps(call)
        self._board.redraw(call)
        self._strip.stop(call.key, at)

    # --- questions

    def _interrupted(self, event: Interrupted) -> None:
        agent = self._board.agent(event.scope)
        call = agent.open_calls.get(event.call_id)
        question = Question.of(event, self._types_of(event.tool_name))
        item = question.item(f"q:{event.id}", "" if call is None else call.key, agent.path)
        if call is not None and call.is_row_below:
            item = item.model_copy(update={"tool": ""})  # the header names the flow
        if call is not None:
            call.stopped(event.at, "waiting")
            call.shows(event.printed, event.displays)
            self._strip.stop(call.key, event.at)
            if event.ask is None:  # else the body is still running, maybe with other steps
                self._board.drop_steps(call)
        drawn = DrawnQuestion(question, event, agent, call, FixedNode(grouped(item, question)))
        self.questions[event.id] = drawn
        self._strip.start(item.key, "wait", event.at)
        self._asks(drawn)
        self._cover(drawn)

    def _cover(self, drawn: DrawnQuestion) -> None:
        """Update what an answer to all questions of a group covers, after one came or was settled."""
        group = getattr(drawn.node.item, "group", "")
        if not group:
            return
        asked = [
            (item, one)
            for one in self.questions.values()
            if isinstance(item := one.node.item, FormItem)
            and item.group == group
            and not one.record
        ]
        items = covered([(item, one.question) for item, one in asked])
        for (before, one), item in zip(asked, items, strict=True):
            if item != before:
                self._board.replace(one.node, item)

    def _asks(self, drawn: DrawnQuestion) -> None:
        """Show the form below the call's row, or instead of the row."""
        self._board.add(drawn.siblings, drawn.node)
        if drawn.row is not None:
            drawn.row.question = drawn.node
        if drawn.call is not None:
            self._board.redraw(drawn.call)

    def _resolved(self, event: Resolved) -> None:
        drawn = self.questions.pop(event.id, None)
        if drawn is None:
            return
        self._strip.stop(drawn.node.key, event.at)
        self._record(drawn, drawn.question.record(f"a:{event.id}", event, drawn.event.at))
        if drawn.call is not None:
            self._settle_call(drawn, drawn.call, event)

    def _settle_call(self, drawn: DrawnQuestion, call: CallTree, event: Resolved) -> None:
        if drawn.event.kind == "later":  # the call's row has an interim result
            if isinstance(event.resolution, Respond):
                call.answered(event.resolution.output, event.resolution.error)
                self._board.redraw(call)
            return
        known = self._known(event)
        if known is not None and known.status != "done":  # a body continues with the answer
            call.state = "waiting" if known.status == "waiting" else "preparing"
            self._board.redraw(call)
            return
        if isinstance(event.resolution, Respond):
            call.answered(drawn.question.public(event.resolution.output), event.resolution.error)
        else:
            call.state = "rejected"
        self._close_call(event)

    def _record_unanswered(self, drawn: DrawnQuestion) -> None:
        unanswered = RecordItem(
            key=f"a:{drawn.event.id}",
            title=drawn.question.record_title,
            decision=TEXTS["unanswered"],
            tone="plain",
        )
        self._record(drawn, unanswered)

    def _record(self, drawn: DrawnQuestion, item: RecordItem) -> None:
        """Replace the form by the record, or put the record into the call's row."""
        siblings, row = drawn.siblings, drawn.row
        drawn.record = FixedNode(item)
        self._cover(drawn)
        at = siblings.index(drawn.node)
        self._board.drop(siblings, drawn.node)
        if row is None:
            siblings.insert(at, drawn.record)
            self._board.touch(drawn.record)
            return
        row.question = None
        row.decided(item)
        self._board.redraw(row)
