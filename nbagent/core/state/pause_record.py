"""The state of an open turn, stored in the messages of a history, so that any saved history can continue.

The message part of each call has the record of the call's state under the key ``"nbagent"``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, assert_never

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nbagent.core.base.amounts import amount
from nbagent.core.base.errors import MessagesError, StoreError
from nbagent.core.base.events import (
    Input,
    Interrupted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    checked,
)
from nbagent.core.base.interrupts import Resumed
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import (
    EMPTY,
    Message,
    Part,
    calls_of,
    canonical,
    is_cut_off,
    is_prompt,
    load,
    message,
    results_of,
)
from nbagent.core.base.model import Usage

from .next_step import is_stuck
from .state import Answered, Calls, CallState, CallStatus, RunEnd, RunState, evolve, waiting_or

_MISFIT = "its status {status!r} does not match its other fields"


class _Record(BaseModel):
    """A part of the record; pydantic validates only records from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def dumped(self) -> dict[str, Any]:
        """The record as JSON, without defaults; JSON values in it are not copied."""
        fields = type(self).model_fields
        entries = ((name, value, fields[name].default) for name, value in vars(self).items())
        return {
            name: _json(value)
            for name, value, usual in entries
            if value is not usual and value != usual
        }


def _json(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.dumped()
    if isinstance(value, RunCompleted | RunFailed | RunCancelled):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Interrupted):
        return {**value.model_dump(mode="json", exclude_defaults=True), "input": value.input}
    if isinstance(value, Remembered):
        return {name: field for name, field in vars(value).items() if field is not None}
    if isinstance(value, Resumed):
        return {"data": value.data}
    return [_json(item) for item in value] if isinstance(value, tuple) else value


class RunRecord(_Record):
    """The record of a run, not of a call: its usage, queued messages and remembered approvals."""

    usage: (
        tuple[int, int, float | None]
        | tuple[int, int, float | None, int, int]
        | tuple[int, int, float | None, int, int, float, bool]
    ) = (0, 0, None)
    """Input tokens, output tokens and cost; cached and reasoning tokens; the known part of the cost, and
    whether tokens are missing, as in ``Usage``."""
    seconds: float = 0.0
    granted: dict[str, int | float] = EMPTY
    queued: tuple[str | tuple[Input, ...], ...] = ()
    remembered: tuple[Remembered, ...] = ()
    """Remembered approvals replace a review, but never a denial."""

    @classmethod
    def of(cls, state: RunState) -> RunRecord | None:
        """The record of a run; None if it is empty."""
        used = state.usage
        usage: Any = (used.input_tokens, used.output_tokens, used.cost)
        more = (used.cached, used.reasoning)
        missing = (used.known_cost, used.partial)
        if used.partial or (used.cost is None and used.known_cost):
            usage = (*usage, *more, *missing)
        elif any(more):
            usage = (*usage, *more)
        made = cls.model_construct(
            usage=usage,
            seconds=state.active,
            granted=state.granted,
            queued=state.queued,
            remembered=state.remembered,
        )
        return made if made.dumped() else None


def _put_on(state: RunState, run: RunRecord | None) -> RunState:
    if run is None:
        return state
    return evolve(
        state,
        usage=Usage(*run.usage),
        active=amount(run.seconds) or 0.0,
        granted={name: more for name, more in run.granted.items() if amount(more)},
        queued=tuple(
            one
            if isinstance(one, str)
            else tuple(load([{"role": "user", "content": one}])[0]["content"])
            for one in run.queued
        ),
        remembered=run.remembered,
    )


class ChildRecord(_Record):
    """The state of the run inside a call."""

    agent: str
    limit: int
    messages: list[Any] = Field(min_length=1)
    budget: Interrupted | None = None
    run: RunRecord | None = None
    """Set if no call is open; otherwise the first open call has the run's record."""
    of_body: bool = False
    """True if a body started the calls: the only message has the body's calls, not a model's."""
    end: Annotated[RunEnd, Field(discriminator="type")] | None = None
    """The run's end, if a body started the run and may ask for its result again."""

    @classmethod
    def of(cls, child: RunState, *, stopped: bool, kept: bool = False) -> ChildRecord:
        """The record of an inner run; ``stopped`` as in ``paused_messages``, ``kept`` to include its end."""
        return cls.model_construct(
            agent=child.agent,
            limit=child.limit,
            messages=list(paused_messages(child, stopped=stopped)),
            budget=child.limit_question,
            run=None if child.calls else RunRecord.of(child),
            of_body=child.of_body,
            end=child.outcome if kept else None,
        )

    def state(self, scope: tuple[str, ...]) -> RunState:
        """The run's state from this record; ``scope`` has the ids of the calls that lead to the run."""
        child = _put_on(_restored(load(self.messages), scope), self.run)
        if self.of_body:
            child = evolve(child, messages=(), turns=0, used_ids=())
        return evolve(
            child,
            agent=self.agent,
            limit=self.limit,
            limit_question=self.budget,
            outcome=self.end,
        )


class AnsweredRecord(_Record):
    """A restarted pause before the call's last pause."""

    pause: Interrupted
    resumed: Resumed


class CallRecord(_Record):
    """The state of an open call; the fields are those of ``CallState``, without defaults."""

    status: CallStatus = "ready"
    attempt: int = Field(0, ge=0)
    input: Input | None = None
    """The input that a person set instead of the model's."""
    pause: Interrupted | None = None
    resumed: Resumed | None = None
    earlier: tuple[AnsweredRecord, ...] = ()
    record: tuple[Input, ...] = ()
    cleared: Input | None = None
    """The input that a person approved; valid only if ``record`` has the approval."""
    asked: tuple[Interrupted, ...] = ()
    lost: Interrupted | None = None
    answers: tuple[tuple[int, Input], ...] = ()
    steps: Input = EMPTY
    rows: dict[str, tuple[str, int]] = EMPTY
    written: int = Field(0, ge=0)
    texts: tuple[str, ...] = ()
    final: bool = False
    child: ChildRecord | None = None
    result: Input | None = None
    answer: Any = None
    run: RunRecord | None = None
    """The run's record, on the first call of a turn only."""

    @classmethod
    def of(cls, call: CallState, *, stopped: bool) -> CallRecord:
        """The record of a call; ``stopped`` as in ``paused_messages``."""
        if call.result is not None:
            child = call.child
            return cls.model_construct(
                status="done",
                result=call.result,
                final=call.final,
                answer=call.answer,
                child=None if child is None else ChildRecord.of(child, stopped=stopped, kept=True),
            )
        cleared, has_started = call.passed_input, call.attempt > 0
        if has_started and cleared is not None and canonical(cleared) == canonical(call.input):
            cleared = None  # `_cleared` derives it from the input
        return cls.model_construct(
            status="ready" if stopped and call.status == "running" else call.status,
            attempt=call.attempt,
            input=call.input if call.replaced else None,
            pause=call.pause,
            resumed=call.resumed,
            earlier=tuple(
                AnsweredRecord.model_construct(pause=one.pause, resumed=one.resumed)
                for one in call.earlier.values()
            ),
            record=call.record,
            cleared=cleared,
            asked=tuple(call.asked.values()),
            lost=call.lost,
            answers=tuple(call.answers.items()),
            steps=call.steps,
            rows=call.rows,
            written=call.written,
            texts=call.texts,
            final=call.final,
            child=None if call.child is None else ChildRecord.of(call.child, stopped=stopped),
        )

    def wrong(self, part: Part, scope: tuple[str, ...]) -> str | None:
        """The reason why the record does not match its status or call; None if it is valid."""
        pauses = [one.pause for one in self.earlier] + ([self.pause] if self.pause else [])
        own = [*self.asked, *pauses, *([self.lost] if self.lost else [])]
        if any((e.scope, e.call_id, e.tool_name) != (scope, part["id"], part["name"]) for e in own):
            return "its question belongs to another call"
        if any(e.kind != "ask" or e.ask is None for e in self.asked):
            return "its body's question does not come from ctx.ask"
        for event in pauses:
            if event.kind in ("ask", "lost", "budget"):
                return f"a call cannot pause with {event.kind!r}"
        if self.lost is not None and (self.lost.kind != "lost" or not self.attempt):
            return "it is marked as lost, without details"
        restarted = self.resumed is not None or bool(self.earlier)
        if restarted and not (self.pause is not None and self._is_approved):
            return "it is marked as restarted, without who did it"
        waits = self.pause is not None and self.resumed is None
        is_open = bool(self.asked) or self.lost is not None or waits
        match self.status:
            case "waiting":
                whole = is_open or self.child is not None
            case "done":
                whole = self.result is not None and self.result.get("id") == part["id"]
            case "ready":
                whole = not is_open
            case "running":
                whole = True
            case never:
                assert_never(never)
        return None if whole else _MISFIT.format(status=self.status)

    @property
    def _is_approved(self) -> bool:
        """Whether a person approved the call."""
        answers = [entry.get("resolution") for entry in self.record]
        return any(isinstance(a, dict) and a.get("type") == "restart" for a in answers)

    def _cleared(self, input_: dict[str, Any]) -> dict[str, Any] | None:
        """The input that a person approved; rules decide again about any other input.

        If the body itself paused, the answer that restarts the call also approves the input.
        """
        paused = self.pause is not None and self.pause.kind == "tool"
        asks = self.attempt > 0 and paused
        if not (self._is_approved or asks):
            return None
        return input_ if self.cleared is None and self.attempt else self.cleared

    def _shown(self) -> dict[str, Any] | None:
        """The input that was shown to, or set by, the person who restarted the call."""
        pause = self.pause
        if pause is None or self.resumed is None or (pause.around and pause.entered is None):
            return None
        answers = [one for one in self.record if one.get("interrupt") == pause.id]
        resolution = answers[-1].get("resolution") if answers else None
        given = resolution.get("input") if isinstance(resolution, dict) else None
        return given if isinstance(given, dict) else pause.input

    def state(self, part: Part, scope: tuple[str, ...]) -> CallState:
        """The state of the call in this message part; ``scope`` has the ids of the calls that lead to its run."""
        input_ = part["input"] if self.input is None else self.input
        return CallState(
            id=part["id"],
            name=part["name"],
            proposed=part["input"],
            input=input_,
            raw=part.get("raw"),
            server_id=part.get("server_id"),
            status=self.status,
            attempt=self.attempt,
            pause=self.pause,
            resumed=self.resumed,
            earlier={one.pause.asker: Answered(one.pause, one.resumed) for one in self.earlier},
            passed_input=self._cleared(input_),
            seen_input=self._shown(),
            asked={event.id: event for event in self.asked},
            lost=self.lost,
            answers=dict(self.answers),
            steps=self.steps,
            rows=self.rows,
            written=self.written,
            texts=self.texts,
            child=None if self.child is None else self.child.state((*scope, part["id"])),
            final=self.final,
            record=self.record,
            result=self.result,
            answer=self.answer,
        )


def paused_messages(state: RunState, *, stopped: bool = False) -> tuple[Message, ...]:
    """The history; each call of an open turn has the record of its state.

    ``stopped``: no body is running any more, so a started body may run again.
    """
    if not (state.calls or state.later):
        return state.messages
    history = _with_later(state.messages, state.later)
    if not state.calls:
        return _with_final(history, state.final)
    failed = state.outcome if isinstance(state.outcome, RunFailed) else None
    if failed is not None:  # if the store failed, the result of an ended body may be lost
        stopped = stopped or failed.error != StoreError.__name__
    calls = state.calls.values()
    records = {call.id: CallRecord.of(call, stopped=stopped).dumped() for call in calls}
    for event in state.later.values():
        if event.call_id in records:
            record = records[event.call_id]
            record["result"] = {**record["result"], "later": _json(event)}
    run = RunRecord.of(state)
    if run is not None:
        records[next(iter(records))]["run"] = run.dumped()
    if state.of_body:
        parts = [
            {"type": "tool_call", "id": call.id, "name": call.name, "input": call.proposed}
            | ({} if call.server_id is None else {"server_id": call.server_id})
            | {"nbagent": records[call.id]}
            for call in calls
        ]
        return (message("assistant", *parts),)
    last = history[-1]
    parts = [
        {**part, "nbagent": records[part["id"]]} if part["type"] == "tool_call" else part
        for part in last["content"]
    ]
    changed = message("assistant", *parts, provider=last.get("provider"), name=last.get("name"))
    return (*history[:-1], changed)


def _with_later(
    messages: tuple[Message, ...], later: Mapping[str, Interrupted]
) -> tuple[Message, ...]:
    """The history; each interim result has the awaited interrupt under the key ``"later"``."""
    if not later:
        return messages
    awaited = {event.call_id: {"later": _json(event)} for event in later.values()}
    return tuple(
        message("tool", *({**part, **awaited.get(part["id"], {})} for part in results_of(item)))
        if item["role"] == "tool" and any(part["id"] in awaited for part in results_of(item))
        else item
        for item in messages
    )


def _with_final(messages: tuple[Message, ...], final: Part | None) -> tuple[Message, ...]:
    """The history; its last message has the answer of a final tool under the key ``"final"``, if the run has one."""
    if final is None or messages[-1]["role"] != "tool":
        return messages
    first, *others = results_of(messages[-1])
    return (*messages[:-1], message("tool", {**first, "final": final}, *others))


def _final_in(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Part | None]:
    """A history without its ``"final"`` entry, and the answer of the final tool, if there is one.

    Raises:
        MessagesError: the entry is malformed.
    """
    parts = results_of(messages[-1]) if messages and messages[-1]["role"] == "tool" else []
    final = parts[0].get("final") if parts else None
    if final is None:
        return messages, None
    first, *others = parts
    if not isinstance(final, Mapping) or list(final) != ["output"]:
        raise MessagesError(
            f"the final answer with the call {first['id']!r} is malformed: it must be an object with the output"
        )
    bare = {key: value for key, value in first.items() if key != "final"}
    return (*messages[:-1], message("tool", bare, *others)), dict(final)


def _later_in(
    messages: tuple[Message, ...], scope: tuple[str, ...]
) -> tuple[tuple[Message, ...], dict[str, Interrupted]]:
    """A history without the ``"later"`` entries of its results, and the awaited interrupts by id.

    Raises:
        MessagesError: a ``"later"`` entry is malformed.
    """
    found: dict[str, Interrupted] = {}
    bare: list[Message] = []
    for item in messages:
        parts = results_of(item) if item["role"] == "tool" else []
        if any("later" in part for part in parts):
            pairs = [_later_of(part, scope) for part in parts]
            found |= {event.id: event for _, event in pairs if event is not None}
            bare.append(message("tool", *(part for part, _ in pairs)))
        else:
            bare.append(item)
    return tuple(bare), found


def _later_of(part: Part, scope: tuple[str, ...]) -> tuple[Part, Interrupted | None]:
    """A result without its ``"later"`` entry, and the awaited interrupt, if any."""
    if "later" not in part:
        return part, None
    label = f"the pending result of the call {part['id']!r} ({part['name']!r})"
    try:
        event = checked(Interrupted, part["later"])
    except ValidationError as error:
        raise MessagesError(f"{label} is malformed: {error.errors()[0]['msg']}") from error
    own = (event.kind, event.expects, event.scope, event.call_id, event.tool_name)
    if own != ("later", "external", scope, part["id"], part["name"]):
        raise MessagesError(f"{label} is malformed: it belongs to another call")
    return {key: value for key, value in part.items() if key != "later"}, event


def closed_messages(state: RunState) -> tuple[Message, ...]:
    """The history of a run that has ended, with a result for each call that its end left open.

    Finished calls stay, so that a model that continues does not repeat them.
    """
    if not state.calls:
        return state.messages
    results = [call.result or _left_open(call) for call in state.calls.values()]
    return (*state.messages, message("tool", *results))


def _left_open(call: CallState) -> Part:
    if call.status == "running":
        text = "The run ended while this call was running. It may or may not have taken effect."
    elif call.attempt:
        text = "The run ended while this call was waiting for a person. It had started and did not finish."
    else:
        text = "The run ended before this call started."
    return call.result_part(text, error=True)


def restore(messages: Sequence[Message]) -> RunState:
    """The state of a history, including its open turn.

    Answers of people and results of tools in the history are trusted, but not decisions of rules.

    Raises:
        MessagesError: the record of an open call is malformed.
    """
    state = _restored(messages, ())
    for interrupt_id, number in Counter(event.id for event in state.pending).items():
        if number > 1:
            raise MessagesError(
                f"Two open questions of these messages have the same id {interrupt_id!r}"
            )
    if state.calls and is_stuck(state):
        raise MessagesError(
            "These messages cannot be continued: an open call is not waiting for anything"
        )
    return state


def _restored(messages: Sequence[Message], scope: tuple[str, ...]) -> RunState:
    history, final = _final_in(tuple(messages))
    history, later = _later_in(history, scope)
    open_ = calls_of(history[-1]) if history and history[-1]["role"] == "assistant" else []
    records = [_record_of(part, scope) for part in open_]
    for number, record in enumerate(records):
        if record.result is not None:
            bare, event = _later_of(record.result, scope)
            records[number] = record.model_copy(update={"result": bare})
            later |= {} if event is None else {event.id: event}
    calls = {p["id"]: record.state(p, scope) for p, record in zip(open_, records, strict=True)}
    for call in calls.values():
        if call.status not in ("done", waiting_or(call, 0.0).status):
            raise MessagesError(
                f"{_record_label(call.id, call.name)} is malformed: {_MISFIT.format(status=call.status)}"
            )
    if calls:
        history = (*history[:-1], _without_records(history[-1]))
    turns = 0
    for item in reversed(history):
        if is_prompt(item):
            break
        turns += item["role"] == "assistant" and not is_cut_off(item)
    ids = tuple(p["id"] for m in history if m["role"] == "assistant" for p in calls_of(m))
    state = RunState(messages=history, calls=Calls(calls.values()), turns=turns, used_ids=ids)
    state = evolve(state, later=later, final=final) if later else state
    return _put_on(state, records[0].run if records else None)


def _record_label(call_id: str, name: str) -> str:
    return f"the record of the open call {call_id!r} ({name!r})"


def _record_of(part: Part, scope: tuple[str, ...]) -> CallRecord:
    label = _record_label(part["id"], part["name"])
    try:
        record = CallRecord.model_validate(part.get("nbagent", EMPTY))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the whole"
        raise MessagesError(f"{label} is malformed: {where}: {wrong['msg']}") from error
    if record.status == "running":
        raise MessagesError(
            f"{label} says that {part['name']!r} was running when these messages were saved. It may or may not have "
            "taken effect, so it is not run again. Wait for that run to end, or append a tool message with the result "
            "of the call"
        )
    misfit = record.wrong(part, scope)
    if misfit is not None:
        raise MessagesError(f"{label} is malformed: {misfit}")
    return record


def _without_records(item: Message) -> Message:
    bare = [{k: v for k, v in part.items() if k != "nbagent"} for part in item["content"]]
    return message("assistant", *bare, provider=item.get("provider"), name=item.get("name"))
