"""An open turn carried through messages, so that step by step, live and saved histories are one thing.

Each call of the turn carries the record of where it stands, under its part's ``"nbagent"`` key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nbagent.core.base.errors import MessagesError, StoreError
from nbagent.core.base.events import Input, Interrupted, RunFailed
from nbagent.core.base.interrupts import Resumed
from nbagent.core.base.messages import EMPTY, Message, Part, calls_of, canonical, load, message
from nbagent.core.base.model import Usage

from .state import Calls, CallState, CallStatus, RunState, evolve


class _Record(BaseModel):
    """A part of what is carried; it is validated only where it comes from outside."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def dumped(self) -> dict[str, Any]:
        """Its JSON, without what has its default; JSON inside of it is kept as it is, and not copied."""
        fields = type(self).model_fields
        told = ((name, value, fields[name].default) for name, value in vars(self).items())
        return {
            name: _json(value)
            for name, value, usual in told
            if value is not usual and value != usual
        }


def _json(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.dumped()
    if isinstance(value, Interrupted):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Resumed):
        return {"data": value.data}
    return [_json(item) for item in value] if isinstance(value, tuple) else value


class RunRecord(_Record):
    """What belongs to the run and not to a call: what it has used, and what is still to be sent."""

    usage: tuple[int, int, float | None] = (0, 0, None)
    """Tokens in, tokens out, and cost."""
    seconds: float = 0.0
    granted: dict[str, int | float] = EMPTY
    queued: tuple[str, ...] = ()

    @classmethod
    def of(cls, state: RunState) -> RunRecord | None:
        """The record of a run; None where there is nothing to tell."""
        usage = state.usage
        made = cls.model_construct(
            usage=(usage.input_tokens, usage.output_tokens, usage.cost),
            seconds=state.active,
            granted=state.granted,
            queued=state.queued,
        )
        return made if made.dumped() else None


def _put_on(state: RunState, run: RunRecord | None) -> RunState:
    if run is None:
        return state
    return evolve(
        state,
        usage=Usage(*run.usage),
        active=run.seconds,
        granted=run.granted,
        queued=run.queued,
    )


class ChildRecord(_Record):
    """Where the run inside a call stands."""

    agent: str
    limit: int
    messages: list[Any]
    budget: Interrupted | None = None
    run: RunRecord | None = None
    """Told here where no call is open; else the first open call tells it."""

    @classmethod
    def of(cls, child: RunState, *, stopped: bool) -> ChildRecord:
        """The record of a run inside; ``stopped`` as in ``paused_messages``."""
        return cls.model_construct(
            agent=child.agent,
            limit=child.limit,
            messages=list(paused_messages(child, stopped=stopped)),
            budget=child.budget,
            run=None if child.calls else RunRecord.of(child),
        )

    def state(self) -> RunState:
        """The state that it stands for."""
        child = _put_on(restore(load(self.messages)), self.run)
        return evolve(child, agent=self.agent, limit=self.limit, budget=self.budget)


class CallRecord(_Record):
    """Where an open call stands; the fields are those of ``CallState``, told where they matter."""

    status: CallStatus = "ready"
    attempt: int = Field(0, ge=0)
    input: Input | None = None
    """What a person put in place of the model's."""
    pause: Interrupted | None = None
    resumed: Resumed | None = None
    record: tuple[Input, ...] = ()
    cleared: Input | None = None
    asked: tuple[Interrupted, ...] = ()
    answers: tuple[tuple[int, Input], ...] = ()
    steps: Input = EMPTY
    final: bool = False
    child: ChildRecord | None = None
    result: Input | None = None
    answer: Any = None
    run: RunRecord | None = None
    """On the first call of a turn."""

    @classmethod
    def of(cls, call: CallState, *, stopped: bool) -> CallRecord:
        """The record of a call; ``stopped`` as in ``paused_messages``."""
        if call.result is not None:
            return cls.model_construct(
                status="done", result=call.result, final=call.final, answer=call.answer
            )
        cleared, begun = call.cleared, call.attempt > 0
        if begun and cleared is not None and canonical(cleared) == canonical(call.input):
            cleared = None  # as it is taken to be
        return cls.model_construct(
            status="ready" if stopped and call.status == "running" else call.status,
            attempt=call.attempt,
            input=call.input if call.replaced else None,
            pause=call.pause,
            resumed=call.resumed,
            record=call.record,
            cleared=cleared,
            asked=tuple(call.asked.values()),
            answers=tuple(call.answers.items()),
            steps=call.steps,
            final=call.final,
            child=None if call.child is None else ChildRecord.of(call.child, stopped=stopped),
        )

    def is_whole(self, call_id: str) -> bool:
        """Whether what belongs to its status is there, and is of this very call."""
        match self.status:
            case "waiting":
                waits_for = [*self.asked, *([self.pause] if self.pause is not None else [])]
                return self.child is not None or any(e.call_id == call_id for e in waits_for)
            case "done":
                return self.result is not None and self.result.get("id") == call_id
            case "ready":
                return self.resumed is None or self.pause is not None
            case "running":
                return True

    def state(self, part: Part) -> CallState:
        """The state of the call that this part of a message asks for."""
        input_ = part["input"] if self.input is None else self.input
        cleared = input_ if self.cleared is None and self.attempt else self.cleared
        return CallState(
            id=part["id"],
            name=part["name"],
            proposed=part["input"],
            input=input_,
            raw=part.get("raw"),
            status=self.status,
            attempt=self.attempt,
            pause=self.pause,
            resumed=self.resumed,
            cleared=cleared,
            judged=self._judged(cleared),
            asked={event.id: event for event in self.asked},
            answers=dict(self.answers),
            steps=self.steps,
            child=None if self.child is None else self.child.state(),
            final=self.final,
            record=self.record,
            result=self.result,
            answer=self.answer,
        )

    def _judged(self, cleared: dict[str, Any] | None) -> dict[str, Any] | None:
        """The input that the rules let pass or asked about, so that they are not asked again."""
        if self.pause is not None and self.pause.verdict:
            return self.pause.input
        asked_a_person = self.pause or self.resumed or self.asked or self.answers or self.child
        return cleared if asked_a_person else None


def paused_messages(state: RunState, *, stopped: bool = False) -> tuple[Message, ...]:
    """The history, with each call of an open turn carrying the record of where it stands.

    ``stopped`` says that no body runs any more, so that one which had begun may be run again.
    """
    if not state.calls:
        return state.messages
    failed = state.outcome if isinstance(state.outcome, RunFailed) else None
    if failed is not None:  # where the store failed, a body may have ended, and its result be lost
        stopped = stopped or failed.error != StoreError.__name__
    calls = state.calls.values()
    records = {call.id: CallRecord.of(call, stopped=stopped).dumped() for call in calls}
    run = RunRecord.of(state)
    if run is not None:
        records[next(iter(records))]["run"] = run.dumped()
    last = state.messages[-1]
    parts = [
        {**part, "nbagent": records[part["id"]]} if part["type"] == "tool_call" else part
        for part in last["content"]
    ]
    return (*state.messages[:-1], message("assistant", *parts))


def closed_messages(state: RunState) -> tuple[Message, ...]:
    """The history of a run that has ended, with a result for each call that its end left open.

    What was done is kept, so that a model that goes on from here does not do it again.
    """
    if not state.calls:
        return state.messages
    results = [call.result or _left_open(call) for call in state.calls.values()]
    return (*state.messages, message("tool", *results))


def _left_open(call: CallState) -> Part:
    if call.status == "running":
        told = "The run ended while this call was running: whether it took effect is not known."
    elif call.attempt:
        told = "The run ended while this call waited for a person: it was begun, and not finished."
    else:
        told = "The run ended before this call was run."
    return {
        "type": "tool_result",
        "id": call.id,
        "name": call.name,
        "output": told,
        "error": True,
    }


def restore(messages: Sequence[Message]) -> RunState:
    """The state that a history stands for, its open turn included.

    Raises:
        MessagesError: the record of an open call is malformed.
    """
    history = tuple(messages)
    open_ = calls_of(history[-1]) if history and history[-1]["role"] == "assistant" else []
    records = [_record_of(part) for part in open_]
    calls = {p["id"]: record.state(p) for p, record in zip(open_, records, strict=True)}
    if calls:
        history = (*history[:-1], _without_records(history[-1]))
    turns = 0
    for item in reversed(history):
        if item["role"] == "user":
            break
        turns += item["role"] == "assistant"
    ids = tuple(p["id"] for m in history if m["role"] == "assistant" for p in calls_of(m))
    state = RunState(messages=history, calls=Calls(calls.values()), turns=turns, used_ids=ids)
    return _put_on(state, records[0].run if records else None)


def _record_of(part: Part) -> CallRecord:
    told = f"the record of the open call {part['id']!r} ({part['name']!r})"
    try:
        record = CallRecord.model_validate(part.get("nbagent", EMPTY))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the whole"
        raise MessagesError(f"{told} is malformed: {where}: {wrong['msg']}") from error
    if record.status == "running":
        raise MessagesError(
            f"{told} says that {part['name']!r} was running when these messages were taken; whether it took "
            "effect is not known, so it is not run again: wait for that run to end, or put a tool message "
            "with the call's result behind them"
        )
    if not record.is_whole(part["id"]):
        missing = f"its status is {record.status!r}, but what belongs to that is missing"
        raise MessagesError(f"{told} is malformed: {missing}")
    return record


def _without_records(item: Message) -> Message:
    bare = [{k: v for k, v in part.items() if k != "nbagent"} for part in item["content"]]
    return message("assistant", *bare)
