"""The public results of a run: its events, its result, its calls, and receipts for answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import UTC, datetime
from html import escape
from typing import Any

from pydantic import BaseModel

from nbagent.core.base.controls import escaped, escaped_repr
from nbagent.core.base.errors import UsageError, suggest
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
    dump,
)
from nbagent.core.base.messages import Json, Message, Part, calls_of, dumps, results_of, text_of
from nbagent.core.base.model import Usage
from nbagent.core.base.table import dataframe_of
from nbagent.core.base.user import named
from nbagent.core.call.body import Raised
from nbagent.core.journal.verification import Verification
from nbagent.core.state.state import CallState, RunState


class Events(list[StoredEvent]):
    """The events of a run. A notebook displays them as a table; printed, each event is a line."""

    def __init__(
        self, events: Iterable[StoredEvent] = (), verify: Callable[..., Verification] | None = None
    ) -> None:
        super().__init__(events)
        self._verify = verify

    def verify(self, *, seal: str | None = None) -> Verification:
        """Check that the events are those that were written; see ``nb.verify_run``.

        Args:
            seal: the last seal, from an earlier check.

        Raises:
            UsageError: the events have no store, or the store has no seals.
        """
        if self._verify is None:
            raise UsageError(
                "These events have no store. To check the events of a run, use run.journal.verify()"
            )
        return self._verify(seal=seal)

    def rows(self) -> list[tuple[str, str, str]]:
        """The number, type and summary of each event, without ids and times: equal runs have equal rows."""
        names: dict[str, str] = {}
        rows: list[tuple[str, str, str]] = []
        for number, event in enumerate(self):
            for call in event.calls if isinstance(event, ModelResponded) else ():
                names[call.id] = call.name
            if isinstance(event, BodyCalled):
                names[event.call_id] = event.name
            depth = "▸ " * len(event.scope)
            rows.append((str(number), event.type, escaped(depth + _gist(event, names))))
        return rows

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each event; the column ``event`` has the event as JSON.

        Raises:
            UsageError: pandas is not installed.
        """
        rows = []
        for event, (number, kind, gist) in zip(self, self.rows(), strict=True):
            fields = json.loads(dump(event))
            row = {"number": int(number), "at": datetime.fromtimestamp(event.at, UTC), "type": kind}
            row |= {"scope": event.scope, "call_id": fields.get("call_id"), "gist": gist}
            rows.append(row | {"by": fields.get("by"), "user": fields.get("user"), "event": fields})
        columns = ("number", "at", "type", "scope", "call_id", "gist", "by", "user", "event")
        return dataframe_of(rows, columns)

    def __repr__(self) -> str:
        if not self:
            return "no events"
        return "\n".join(f"{number:>4}  {kind:<15} {gist}" for number, kind, gist in self.rows())

    def _repr_html_(self) -> str:
        head = "<tr><th></th><th align='left'>event</th><th align='left'></th></tr>"
        rows = (
            f"<tr><td>{n}</td><td align='left'>{kind}</td><td align='left'>{escape(gist)}</td></tr>"
            for n, kind, gist in self.rows()
        )
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _gist(event: StoredEvent, names: Mapping[str, str]) -> str:  # noqa: C901, PLR0911, PLR0912 - one line each
    """A summary of an event in a few words."""
    tool = names.get(getattr(event, "call_id", ""), "")
    match event:
        case RunStarted(agent=agent, messages=messages):
            return f"{agent} {shortened(text_of(messages[-1])) if messages else ''}"
        case RunQueued(agent=agent, text=text):
            return f"{agent} {shortened(text)}"
        case ModelResponded(text=text, calls=calls):
            called = ", ".join(f"{each.name} {shortened(dumps(each.input))}" for each in calls)
            return " ".join(filter(None, (shortened(text) if text else "", called)))
        case ModelPartial(text=text):
            return shortened(text)
        case ToolStarted(attempt=attempt):
            return tool if attempt == 1 else f"{tool}, attempt {attempt}"
        case BodyCalled(input=given):
            return f"{tool} {shortened(dumps(given))}"
        case TextWritten(text=text):
            return f"{tool} {shortened(text)}"
        case StepFinished(name=name, error=error):
            return f"{tool} {shortened(name)}{', failed' if error else ''}"
        case ToolFinished(output=output, error=failed):
            result = output if isinstance(output, str) else dumps(output)
            return f"{tool}{' failed' if failed else ''} {shortened(result)}"
        case Interrupted(tool_name=name, kind=kind):
            return f"{name} waits: {kind}"
        case Resolved(resolution=resolution, by=by, user=user):
            return f"{tool} {resolution.type}, by {named(by, user)}"
        case MessageQueued(text=text, by=by, user=user):
            return f"{shortened(text)}, by {named(by, user)}"
        case OutputRefused(errors=errors):
            return shortened(errors)
        case RunCompleted(text=text):
            return shortened(text)
        case RunFailed(error=error, message=message):
            return f"{error}: {shortened(message)}"
        case (
            RunRetried(by=by, user=user)
            | RunTaken(by=by, user=user)
            | RunImported(by=by, user=user)
            | RunCancelled(by=by, user=user)
        ):
            return f"by {named(by, user)}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a finished run."""

    text: str
    output: Any
    """The final answer as ``output_type``; None without ``output_type``."""
    messages: tuple[Message, ...]
    usage: Usage
    calls: dict[str, list[Call]] = field(default_factory=dict, compare=False)
    """The tool calls by tool name, in order, as ``run.calls`` has them."""
    finish_reason: str = "stop"
    """The reason why the last model response ended, as in ``Response``."""

    def to_frame(self) -> Any:
        """The output as a pandas DataFrame: a row for each item of a list, a column for each field.

        Items without fields are in a column ``output``. Without ``output_type`` the text is the output.

        Raises:
            UsageError: pandas is not installed.
        """
        output = self.text if self.output is None else self.output
        items = output if isinstance(output, list | tuple | set | frozenset) else [output]
        rows = [_fields(item) for item in items]
        return dataframe_of(rows, list(dict.fromkeys(name for row in rows for name in row)))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Result: {shortened(self.text)}>"


def _fields(item: Any) -> Mapping[Any, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump()
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    return item if isinstance(item, Mapping) else {"output": item}


def shortened(text: str, limit: int = 60) -> str:
    """A text in quotes, in one line, shortened if it is long."""
    line = " ".join(text.split())
    return repr(line if len(line) <= limit else f"{line[:limit]}…")


@escaped_repr
@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a run, in its current state."""

    id: str
    name: str
    input: dict[str, Any]
    """The input that the tool ran with, or would have run with."""
    output: Json = None
    """The result for the model, or None while there is no result."""
    value: Any = None
    """The tool's Python result, in the process that ran the tool; in other processes ``output``."""
    done: bool = False
    failed: bool = False
    """True if the tool returned no result: it raised, was rejected or denied, or could not run."""
    traceback: str | None = None
    """The tool's traceback, in the process that ran the tool. The model never receives the traceback."""
    proposed: dict[str, Any] = field(default_factory=dict)
    """The model's input; ``input`` differs if a person or a middleware changed it."""

    @property
    def error(self) -> str | None:
        """The error that the model received instead of a result; None if there is a result."""
        return str(self.output) if self.failed else None


class CallsByName(dict[str, list[Call]]):
    """The calls of each tool; the error for an unknown name lists the names with calls."""

    def __missing__(self, name: str) -> list[Call]:
        called = ", ".join(map(repr, self)) or "none"
        raise KeyError(f"The run has no call of {name!r}{suggest(name, self)}. Its calls: {called}")


class Receipt:
    """The receipt for an answer. Await the receipt to make sure that the answer is stored.

    Usually the answer is stored already. With a slow store, ``await`` may raise an error: ``Conflict`` if the
    question was answered first elsewhere, ``StoreError`` if the store failed.
    """

    def __init__(self, answer: Future[StoredEvent]) -> None:
        self._answer = answer

    @property
    def event(self) -> StoredEvent:
        """The stored event. Not for an event loop, because this attribute waits for the store."""
        return self._answer.result()

    def __await__(self) -> Generator[Any, None, None]:
        if self._answer.done():
            self._answer.result()
            return
        yield from asyncio.wrap_future(self._answer).__await__()

    def __repr__(self) -> str:
        return "<answer accepted>" if self._answer.done() else "<answer is being stored>"


def calls_by_name(state: RunState, values: Mapping[str, Any]) -> dict[str, list[Call]]:
    """The tool calls of a run by tool name, in order; ``values`` are Python results by call id."""
    found = CallsByName()
    results = {
        part["id"]: part
        for item in state.messages
        if item["role"] == "tool"
        for part in results_of(item)
    }
    results |= {call.id: call.result for call in state.calls.values() if call.result is not None}
    for item in state.messages:
        for part in calls_of(item):
            call = _call_of(part, state.calls.get(part["id"]), results.get(part["id"]), values)
            found.setdefault(call.name, []).append(call)
    return found


def _call_of(
    part: Part, known: CallState | None, result: Part | None, values: Mapping[str, Any]
) -> Call:
    """The current state of a call; ``known`` is its state while its turn is open."""
    call_id: str = part["id"]
    proposed: dict[str, Any] = part["input"]
    bare = Call(
        call_id, part["name"], proposed if known is None else known.body_input, proposed=proposed
    )
    if result is None:
        return bare
    output, traceback = result["output"], None
    value = values.get(call_id, output)
    if isinstance(value, Raised):
        value, traceback = output, value.traceback
    return replace(
        bare,
        input=result.get("input", proposed),
        output=output,
        value=value,
        done=True,
        failed=result.get("error") is True,
        traceback=traceback,
    )
