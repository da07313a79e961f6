"""The stored events of a run, which form its journal.

Each event is appended once and numbered from 0 by its place in the journal. An event's ``scope`` is empty for
the run itself. A call whose tool is an agent, or whose body starts runs, has inner events. Their ``scope`` is
the ids of the calls around them, outermost first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_origin,
)

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import core_schema

from .errors import StoreError
from .file_parts import Content
from .incoming_json import MAX_EVENT_PARTS, parts_of, read_by, within_parts
from .interrupts import Asker, Expects, InterruptKind, OnExpire, Resolution, digest_of
from .memory import Remembered
from .messages import FrozenList, check_depth, dumps, with_escaped_surrogates

T = TypeVar("T")

FORMAT_VERSION = 2
"""The format of the journal. A newer format raises an error; an older format is migrated."""


class _KeptAsGiven:
    """A pydantic marker for a dict or list that is used without copying it."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> core_schema.CoreSchema:
        is_kind = core_schema.is_instance_schema(get_origin(kind))
        return core_schema.json_or_python_schema(handler(kind), is_kind)


Input: TypeAlias = Annotated[dict[str, Any], _KeptAsGiven()]
"""A JSON object that is not copied, because several events have the same input."""
Displays: TypeAlias = Annotated[list[dict[str, Any]], _KeptAsGiven()]
"""Mime bundles in a list that is not copied, because most events have the same empty list."""
NO_DISPLAYS: list[dict[str, Any]] = FrozenList()
"""That list."""

_CONFIG = ConfigDict(extra="forbid", defer_build=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def _unchecked(kind: type[T]) -> type[T]:
    """A class decorator for events that the engine makes by the thousand, from values that it has already checked."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def _checked(kind: type[T]) -> type[T]:
    """A class decorator for events with values from people and their code: pydantic checks them when they are made."""
    decorate: Any = checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
    made: type[T] = decorate(kind)
    return made


class _EventPart:
    """Base of events and their parts, with the method names of pydantic's models."""

    __slots__ = ()

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The event, or part of an event, as plain data."""
        plain: dict[str, Any] = _serializer(type(self)).to_python(self, **options)
        return plain

    def model_dump_json(self, **options: Any) -> str:
        """The event, or part of an event, as JSON; ``dump`` returns the form that stores have."""
        text: str = _serializer(type(self)).to_json(self, **options).decode()
        return text

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """A copy with these fields changed."""
        made: Self = replace(self, **update)  # type: ignore[type-var]
        return made


class _Encoded(_EventPart):
    """Base of events, whose JSON is cached from ``storable_event`` until ``forget_encoding``."""

    __slots__ = ("_data",)


@_unchecked
class Event(_Encoded):
    """Something that happened; ``at`` is Unix time in seconds."""

    __pydantic_config__ = _CONFIG
    at: float
    scope: tuple[str, ...] = ()


AnswerForm: TypeAlias = Literal["text", "json", "value"]


@_checked
class RowOf(_EventPart):
    """The row and batch of a run; the event that ends the run adds its usage."""

    batch: str
    key: str
    number: int
    """The place of the row among all rows, from 0."""
    prompt: str
    """The digest of the row's prompt; if it differs, the row has changed."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """US dollars; None if any part of the cost is unknown."""


@_checked
class RunStarted(Event):
    """A run began with this history; its last message is the prompt."""

    type: Literal["run_started"] = "run_started"
    version: int = FORMAT_VERSION
    agent: str
    model: str
    messages: list[Any]
    max_turns: int
    after: str | None = None
    """The id of the run that this one continues."""
    owner: str = ""
    """The process that starts the run, as ``this_process`` returns it."""
    flow: bool = False
    """True for a flow: the call at the end of ``messages`` is the whole run."""
    answer: AnswerForm = "text"
    """The form of the final answer: text, JSON, or JSON as the ``value`` of an object."""
    cell: str = ""
    """The id of the notebook cell whose code started the run; empty if unknown."""
    row: RowOf | None = None
    """The row of a batch that this run is for."""
    trace_parent: str | None = None
    """The span around the run, if ``nb.trace`` follows it, as in the W3C header ``traceparent``."""


@_checked
class RunQueued(Event):
    """A run was requested. It starts, with a ``RunStarted``, when the previous run has ended."""

    type: Literal["run_queued"] = "run_queued"
    version: int = FORMAT_VERSION
    agent: str
    model: str
    after: str
    """The id of the previous run, which this one continues."""
    text: str
    content: tuple[dict[str, Any], ...] | None = None
    """The prompt's parts, text and files, if it has files; ``text`` then has a label for each file."""
    elsewhere: bool = False
    """True if the previous run is in another store."""

    @property
    def prompt(self) -> Content:
        """The prompt for the model: text, or parts."""
        return self.text if self.content is None else self.content


@_unchecked
class CallRequested(_EventPart):
    """One tool call of a model response; ``raw`` is the arguments' text if it was not a JSON object."""

    __pydantic_config__ = _CONFIG
    id: str
    name: str
    input: dict[str, Any]
    raw: str | None = None
    final: bool = False
    """True if the tool's answer ends the run."""
    server_id: str | None = None
    """The model's own id of the call, if another call of the history has that id. The model receives this id."""
    provider: Any = None
    """Data that the response's provider must receive again with this call."""


@_checked
class HostedRan(_EventPart):
    """One call of a hosted tool, which the model's provider ran within its response."""

    name: str
    input: Input
    status: Literal["running", "done", "failed"] = "done"
    """``running`` if the response ended before the call did."""
    output: str | None = None
    sources: tuple[dict[str, str], ...] = ()
    """The pages that the call read, each with its ``url``, and its ``title`` if it has one."""
    files: tuple[dict[str, Any], ...] = ()
    """The files that the call made, as file parts."""


@_unchecked
class ModelResponded(Event):
    """The model answered: text, calls, or both."""

    type: Literal["model_responded"] = "model_responded"
    text: str = ""
    reasoning: str = ""
    calls: tuple[CallRequested, ...] = ()
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    reasoning_tokens: int = 0
    """Output tokens of hidden reasoning."""
    provider: dict[str, Any] | None = None
    """The provider's ``name``, if it must receive data again, with the ``data`` of the response itself, if any."""
    notes: tuple[str, ...] = ()
    """Notes on the response for the person."""
    hosted: tuple[HostedRan, ...] = ()
    """Calls of hosted tools by the provider."""
    citations: tuple[dict[str, str], ...] = ()
    """References of the text, each with a ``title``, and a ``url`` if it has one."""
    cut: Literal["stopped", "failed"] | None = None
    """Why the response is incomplete: the run was stopped, or the request failed. None if it is complete."""
    model: str | None = None
    """The name of the model that answered, if the run's model is made of several (``nb.Fallback``)."""


@_unchecked
class ModelPartial(Event):
    """The text streamed since the last such event, stored in case the process ends before the response does."""

    type: Literal["model_partial"] = "model_partial"
    text: str = ""
    reasoning: str = ""
    anew: bool = False
    """True for the first partial text of a response; earlier partial texts no longer count."""


@_checked
class OutputRefused(Event):
    """The model's last text is not an answer of the wanted type; the model receives the reason."""

    type: Literal["output_refused"] = "output_refused"
    errors: str
    """The errors, in words."""
    again: bool = True
    """True if another request may help; a response at its length limit would be cut off again."""


@_unchecked
class ToolStarted(Event):
    """The claim to run a body, stored before it runs, so that no other process runs it too."""

    type: Literal["tool_started"] = "tool_started"
    call_id: str
    attempt: int
    owner: str
    """The process that runs the body, as ``this_process`` returns it."""
    input: dict[str, Any]
    """The input of the body: as proposed, or as a person or middleware changed it."""
    verdict: str | None = None
    """The rule that allowed the body to run, if any."""


@_checked
class BodyCalled(Event):
    """A body called a tool or an agent, which is a call inside the body's call. ``scope`` ends with the body's call."""

    type: Literal["body_called"] = "body_called"
    call_id: str
    name: str
    """The name of the agent or tool."""
    input: dict[str, Any]
    server_id: str | None = None
    """The body's own id of the call, if the body runs the call itself after ``ctx.approve``."""


@_checked
class RowOfCall(_EventPart):
    """A call that the body's own code runs, and that a row shows."""

    id: str
    """The body's own id of the call."""
    input: Input | None = None
    """The input; None if it is unknown, or if the row is that of an approval."""
    approved: str | None = None
    """The id of the ``body_called`` with which a person approved the call; the row is that call's row."""


@_checked
class StepFinished(Event):
    """The value of a named step of a body; a later attempt uses it instead of running the step again."""

    type: Literal["step_finished"] = "step_finished"
    call_id: str
    name: str
    value: Any = None
    error: str | None = None
    """The error of a failed step, which runs again."""
    seconds: float | None = None
    """Duration."""
    row: RowOfCall | None = None
    """Set if this is not a step, but a call of this ``name`` that the body's own code ran, with its result."""
    shown: bool = True
    """False for a step without a row."""


@_checked
class TextWritten(Event):
    """Text of ``ctx.write`` since the body's last event; stored together with its next event."""

    type: Literal["text_written"] = "text_written"
    call_id: str
    text: str
    own: str | None = None
    """The part of the text that was not written in the work of a step; None if it is the whole text."""


@_unchecked
class ToolFinished(Event):
    """A call has its result."""

    type: Literal["tool_finished"] = "tool_finished"
    call_id: str
    output: Any = None
    """The result for the model, as JSON."""
    error: bool = False
    printed: str = ""
    displays: Displays = field(default_factory=list)
    """Mime bundles the tool displayed while it ran."""
    display: dict[str, Any] | None = None
    """Mime bundle of the result itself, if it is richer than its JSON."""
    verdict: str | None = None
    """The rule that denied the call, if any."""
    files: tuple[dict[str, Any], ...] = ()
    """File parts of the result for the model and the person; shown and stored once."""
    plan: tuple[str, ...] = ()
    """The steps of the last ``ctx.plan`` of the call."""
    plan_done: int = 0
    """The number of its steps that are done."""


@_checked
class Interrupted(Event):
    """A call waits."""

    type: Literal["interrupted"] = "interrupted"
    id: str
    call_id: str
    tool_name: str
    kind: InterruptKind
    expects: Expects
    input: Input
    """The displayed input, to which an approval applies."""
    entered: Input | None = None
    """The input before middleware changed it."""
    metadata: Any = None
    state: Any = None
    editable: bool | tuple[str, ...] = False
    digest: str = ""
    note: str | None = None
    expires_at: float | None = None
    on_expire: OnExpire = "reject"
    expire_output: Any = None
    """The answer of ``on_expire="answer"``."""
    reply_schema: Any = None
    """JSON Schema of an answer, or None if any value is valid."""
    input_schema: Any = None
    """JSON Schema of the input, if the input may be changed."""
    prefill: Any = None
    """The initial value in the answer's form."""
    ask: int | None = None
    """The number of a ``ctx.ask`` question among those of its body, from 0."""
    external: str | None = None
    """The SHA-256 of the token with which an outside system answers; the question then has no form."""
    verdict: str | None = None
    """The rule that requires an approval, if any."""
    budget: str | None = None
    """The used-up limit: ``turns``, ``tokens``, ``cost`` or ``seconds``."""
    around: bool = False
    """True if middleware around the tool paused, not its body."""
    asking: Input | None = None
    """The inputs that contain the question, by name, if the body paused without metadata."""
    printed: str = ""
    displays: Displays = field(default_factory=list)
    plan: tuple[str, ...] = ()
    plan_done: int = 0

    @property
    def asker(self) -> Asker:
        """Who asks the question. After a restart, the asking code receives the restart's data."""
        return "middleware" if self.around else self.kind

    def is_late(self, now: float) -> bool:
        """Whether the question has expired, so that ``on_expire`` applies and nobody can answer."""
        return self.expires_at is not None and now >= self.expires_at


def question_digest(event: Interrupted) -> str:
    """The digest of a ``ctx.ask`` question and its answer type, to which an answer is bound."""
    return digest_of(event.tool_name, event.metadata, event.reply_schema)


@_checked
class MessageQueued(Event):
    """A message from a person or code, which the model receives after the open turn's results."""

    type: Literal["message_queued"] = "message_queued"
    text: str
    by: str
    content: tuple[dict[str, Any], ...] | None = None
    """The message's parts, text and files, if it has files; ``text`` then has a label for each file."""
    user: str = ""
    """As in ``Resolved``."""
    replaces: int | None = None
    """The number of the message that this one replaces, from 0, among those that the model does not have yet."""

    @property
    def prompt(self) -> Content:
        """The message for the model: text, or parts."""
        return self.text if self.content is None else self.content


@_checked
class Resolved(Event):
    """An interrupt has its one answer."""

    type: Literal["resolved"] = "resolved"
    id: str
    call_id: str
    resolution: Resolution
    by: str
    """The source of the answer: ``form``, ``code``, ``command line``, ``external``, ``expiry``, or the
    caller's text."""
    owner: str = ""
    """The process that continues the run; empty if no process does before one takes the run over."""
    remembers: Remembered | None = None
    """The approval to remember, for the tool as it was when the person answered; None if there is none."""
    user: str = ""
    """The person whose process received the answer, as ``this_user`` returns; empty if no person answered."""

    def __repr__(self) -> str:
        given = self.resolution.model_dump(exclude_defaults=True, exclude={"type", "interrupt"})
        parts = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return (
            f"Resolved({type(self.resolution).__name__}({parts}), by={self.by!r}, id={self.id!r})"
        )

    @property
    def for_this_run(self) -> Remembered | None:
        """The approval to remember in this run, but not in every run of the agent object."""
        remember = getattr(self.resolution, "remember", None)
        return self.remembers if remember in ("input_in_run", "tool_in_run") else None


@_checked
class RunCompleted(Event):
    """The run ended well; ``text`` is the final answer, ``output`` is its typed form, if a type was asked for."""

    type: Literal["run_completed"] = "run_completed"
    text: str = ""
    output: Any = None
    row: RowOf | None = None
    """The row of a batch with its usage, so that a batch can continue without reading other events."""


@_checked
class RunFailed(Event):
    """The run could not continue."""

    type: Literal["run_failed"] = "run_failed"
    error: str
    """The exception's class name."""
    message: str
    owner: str = ""
    """The process in which the run failed. Before the failure, all bodies in this process had ended."""


@_checked
class RunRetried(Event):
    """A failed run continues from its last good state."""

    type: Literal["run_retried"] = "run_retried"
    by: str
    owner: str = ""
    """The process that continues the run."""
    user: str = ""
    """As in ``Resolved``."""


@_checked
class RunTaken(Event):
    """Another process runs the run from here on; the results of earlier processes no longer count."""

    type: Literal["run_taken"] = "run_taken"
    by: str
    """The reason: ``take over`` if a person asked for it, ``silence`` if the earlier process had ended,
    ``vacancy`` if no process was running it (because of an answer in another process, or an import), ``release``
    if its process released it."""
    owner: str = ""
    """The process that drives the run now; empty after a release."""
    gone: str = ""
    """The earlier process, whose calls are taken over; empty to take over from all processes."""
    user: str = ""
    """As in ``Resolved``."""


@_checked
class RunImported(Event):
    """All earlier events were imported from a document, so their approvals do not count."""

    type: Literal["run_imported"] = "run_imported"
    by: str
    user: str = ""


@_checked
class RunCancelled(Event):
    """The run was stopped. The named calls were still running; their results are discarded."""

    type: Literal["run_cancelled"] = "run_cancelled"
    by: str
    still_running: tuple[str, ...] = ()
    user: str = ""
    """As in ``Resolved``."""


StoredEvent: TypeAlias = (
    RunQueued
    | RunStarted
    | ModelResponded
    | ModelPartial
    | OutputRefused
    | ToolStarted
    | BodyCalled
    | StepFinished
    | TextWritten
    | ToolFinished
    | Interrupted
    | MessageQueued
    | Resolved
    | RunCompleted
    | RunFailed
    | RunRetried
    | RunTaken
    | RunImported
    | RunCancelled
)

AnyEvent: TypeAlias = Annotated[StoredEvent, Field(discriminator="type")]


@cache
def _adapter() -> TypeAdapter[StoredEvent]:
    """The reader of all events, made on first use, because that takes milliseconds."""
    return TypeAdapter(AnyEvent)


def event_schema() -> dict[str, Any]:
    """The JSON Schema of an event as it is stored in this format."""
    return _adapter().json_schema(mode="validation", ref_template="#/$defs/{model}")


MIGRATIONS: list[Callable[[dict[str, Any]], dict[str, Any]] | None] = [
    None,  # in format 2, a history may begin with a reference to an earlier run; in format 1, never
]
"""The n-th function (from 1) converts an event's JSON from format n to n + 1; None if nothing changes."""


def parse(data: str | bytes, version: int = FORMAT_VERSION) -> StoredEvent:
    """An event from its JSON, written in the format ``version``.

    Raises:
        StoreError: a newer nbagent wrote the data, or the data is not an event.
    """
    _check_version(version)
    try:
        within_parts(data, MAX_EVENT_PARTS)
    except ValueError as error:
        raise StoreError(f"The journal has an event that cannot be read: {error}") from None
    if version < FORMAT_VERSION:
        data = _migrated(data, version)
    try:
        event = read_by(_adapter().validate_json, data)
    except ValidationError as error:
        raise StoreError(f"The journal has an entry that is not an event: {error}") from error
    if isinstance(event, RunQueued | RunStarted):
        _check_version(event.version)
    return event


def dump(event: StoredEvent) -> str:
    """An event as JSON, without defaults, but always with types and the version.

    Raises:
        ValueError: a string in the event is not valid Unicode.
    """
    return encoded(event).decode()


def encoded(event: StoredEvent) -> bytes:
    """``dump`` as UTF-8. The result of ``storable_event`` is not encoded again."""
    data: bytes | None = getattr(event, "_data", None)
    if data is not None:
        return data
    serializer = _serializers.get(type(event)) or _serializer(type(event))
    if isinstance(event, RunQueued | RunStarted | Resolved):
        # with defaults: the version, and the type of a resolution
        json_bytes: bytes = serializer.to_json(event, exclude_none=True)
        return json_bytes
    text: bytes = serializer.to_json(event, exclude_defaults=True)
    return b'{"type":"%s",%s' % (
        event.type.encode(),
        text[1:],
    )  # never empty: ``at`` has no default


def _serializer(kind: type[Any]) -> Any:
    """The serializer for a kind of event; made on first use, because that is slow."""
    found = _serializers.get(kind)
    if found is None:
        found = _serializers[kind] = TypeAdapter(kind).serializer
    return found


_serializers: dict[type[Any], Any] = {}


def checked(kind: type[T], value: Any) -> T:
    """An event of this kind from plain data.

    Raises:
        pydantic.ValidationError: the value is not valid.
    """
    return TypeAdapter(kind).validate_python(value)


def storable_event(event: StoredEvent) -> StoredEvent:
    """Return the event in a form that every store can write and read, with its JSON cached until ``forget_encoding``.

    The result is the same object, or a copy with escapes if a string is not valid Unicode.

    Raises:
        ValueError: the event cannot be stored; the message explains why.
    """
    try:
        data = encoded(event)
    except ValueError:
        event = checked(type(event), with_escaped_surrogates(event.model_dump()))
        data = encoded(event)
    check_depth(data, _READABLE)
    if len(data) > MAX_SIZE:
        raise ValueError(
            f"The event {event.type!r} has {len(data):,} bytes. The limit for one write is {MAX_SIZE:,}"
        )
    if len(data) > MAX_EVENT_PARTS and parts_of(data, MAX_EVENT_PARTS) > MAX_EVENT_PARTS:
        raise ValueError(f"The event {event.type!r} has more than {MAX_EVENT_PARTS:,} values")
    object.__setattr__(event, "_data", data)
    return event


def forget_encoding(event: StoredEvent) -> None:
    """Forget the cached JSON, because the event is stored or will not be stored."""
    object.__setattr__(event, "_data", None)


MAX_SIZE = 200_000_000
"""Maximum bytes of one event; SQLite stores a billion bytes in one row."""
_READABLE = 200
"""Maximum levels of lists and objects in an event, including the event itself."""


def _check_version(version: int) -> None:
    if version > FORMAT_VERSION:
        raise StoreError(
            f"This journal was written by a newer nbagent: its format is {version}, and this nbagent reads formats up "
            f"to {FORMAT_VERSION}. Upgrade with: pip install -U jupyter-nbagent"
        )


def _migrated(data: str | bytes, version: int) -> str | bytes:
    steps = [migrate for migrate in MIGRATIONS[version - 1 :] if migrate is not None]
    if not steps:
        return data
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"The journal has an entry that is not an event: {error}") from error
    for migrate in steps:
        plain = migrate(plain)
    return dumps(plain)
