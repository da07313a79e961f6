"""The durable events of a run: what the journal holds.

Each is appended once and numbered from 0 by its place in the journal. ``scope`` is empty for the
run itself; inside a call, whose tool is an agent or whose body starts runs, it holds the ids of the
calls that lead there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import core_schema

from .errors import StoreError
from .files import Said
from .foreign import MAX_EVENT_PARTS, counted, parts_of, read_by
from .interrupts import Asker, Expects, InterruptKind, OnExpire, Resolution, digest_of
from .memory import Remembered
from .messages import check_depth, dumps, written_out

T = TypeVar("T")

FORMAT_VERSION = 2
"""Of the journal; a newer one is refused, an older one is migrated."""


class _KeptAsGiven:
    """Lets pydantic take a dict without copying it."""

    def __get_pydantic_core_schema__(self, _type: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.json_or_python_schema(
            core_schema.dict_schema(core_schema.str_schema()),
            core_schema.is_instance_schema(dict),
        )


Input: TypeAlias = Annotated[dict[str, Any], _KeptAsGiven()]
"""A JSON object that is kept as it is given, and not copied: several events tell of the same input."""

_CONFIG = ConfigDict(extra="forbid", defer_build=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def _made(kind: type[T]) -> type[T]:
    """An event that the engine makes by the thousand, of values that it has checked before."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def _checked(kind: type[T]) -> type[T]:
    """An event that holds values of people and of their code: pydantic checks them when it is made."""
    decorate: Any = checked_dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
    made: type[T] = decorate(kind)
    return made


class _Told:
    """A part of a journal, with the names that people know from pydantic's models."""

    __slots__ = ()

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """All of it as plain data."""
        plain: dict[str, Any] = _serializer(type(self)).to_python(self, **options)
        return plain

    def model_dump_json(self, **options: Any) -> str:
        """All of it as JSON; ``dump`` gives an event as a store keeps it."""
        text: str = _serializer(type(self)).to_json(self, **options).decode()
        return text

    def model_copy(self, *, update: dict[str, Any]) -> Self:
        """The same with these fields changed."""
        made: Self = replace(self, **update)  # type: ignore[type-var]
        return made


class _Encoded(_Told):
    """Has room for its own JSON, from the check whether it can be kept until it is stored."""

    __slots__ = ("_data",)


@_made
class Event(_Encoded):
    """Something that happened; ``at`` is Unix time in seconds."""

    __pydantic_config__ = _CONFIG
    at: float
    scope: tuple[str, ...] = ()


AnswerForm: TypeAlias = Literal["text", "json", "value"]


@_checked
class RowOf(_Told):
    """Which row of which batch a run is of; what ends the run adds what the row has used."""

    batch: str
    key: str
    number: int
    """Its place among the rows, from 0."""
    prompt: str
    """The digest of what the row asked: another one has changed."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    """US dollars; None as well where a part of it is not known."""


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
    """The id of the run whose conversation this one goes on with."""
    owner: str = ""
    """The process that drives it to begin with, as ``this_process`` names it."""
    flow: bool = False
    """Whether it has no model: the call that ``messages`` end with is all of it."""
    answer: AnswerForm = "text"
    """What the model is to end with: a text, JSON, or JSON as the ``value`` of an object."""
    cell: str = ""
    """The id of the notebook's cell whose code began it; empty where that is not known."""
    row: RowOf | None = None
    """The row of a batch that it is of."""


@_checked
class RunQueued(Event):
    """A run was asked for that begins, with ``RunStarted``, once the run before it has ended."""

    type: Literal["run_queued"] = "run_queued"
    version: int = FORMAT_VERSION
    agent: str
    model: str
    after: str
    """The id of the run before, whose conversation it goes on with."""
    text: str
    content: tuple[dict[str, Any], ...] | None = None
    """The prompt's parts, text and files, where it has files; ``text`` is then a word for each part."""
    elsewhere: bool = False
    """Whether the run before is kept in another store: who opens this one finds it in no journal."""

    @property
    def said(self) -> Said:
        """What the model is told."""
        return self.text if self.content is None else self.content


@_made
class CallRequested(_Told):
    """One tool call of a model response; ``raw`` is the arguments' text where it was no JSON object."""

    __pydantic_config__ = _CONFIG
    id: str
    name: str
    input: dict[str, Any]
    raw: str | None = None
    final: bool = False
    """Whether the tool's answer ends the run."""
    server_id: str | None = None
    """The id that the model gave, where another call of the history has it: the model sees it again."""
    provider: Any = None
    """What the response's provider wants back with this call."""


@_checked
class HostedRan(_Told):
    """One call of a hosted tool, which the model's provider ran within its response."""

    name: str
    input: Input
    status: Literal["running", "done", "failed"] = "done"
    """``running`` where the response ended before the call did."""
    output: str | None = None
    sources: tuple[dict[str, str], ...] = ()
    """What it read, each with its ``url``, and its ``title`` where it has one."""
    files: tuple[dict[str, Any], ...] = ()
    """What it made, as file parts."""


@_made
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
    """Of the input tokens, those that the server had already."""
    reasoning_tokens: int = 0
    """Of the output tokens, those that nobody reads."""
    provider: dict[str, Any] | None = None
    """Whose response it is (``name``), where it has what that provider wants back (``data``)."""
    notes: tuple[str, ...] = ()
    """What the person should know of it."""
    hosted: tuple[HostedRan, ...] = ()
    """What the provider ran for it."""
    citations: tuple[dict[str, str], ...] = ()
    """What its text refers to, each with a ``title``, and a ``url`` where it has one."""
    cut: Literal["stopped", "failed"] | None = None
    """Why it ends before its end: the run was stopped, or the model's call failed. None of a whole response."""


@_made
class ModelPartial(Event):
    """What a model has streamed since the last one of these, kept in case the process ends before the response is whole."""

    type: Literal["model_partial"] = "model_partial"
    text: str = ""
    reasoning: str = ""
    anew: bool = False
    """Whether it is the first of a response: what was kept before counts no more."""


@_checked
class OutputRefused(Event):
    """The model's last text is no answer of the wanted type; the model is told why."""

    type: Literal["output_refused"] = "output_refused"
    errors: str
    """What does not fit, in words."""
    again: bool = True
    """Whether asking again may help: what was cut off at a limit is cut off again."""


@_made
class ToolStarted(Event):
    """The claim to run a body: written before it runs, so that nobody runs it twice."""

    type: Literal["tool_started"] = "tool_started"
    call_id: str
    attempt: int
    owner: str
    """Host, process id and process start of who runs it."""
    input: dict[str, Any]
    """What the body gets: the input as proposed, or as the person changed it."""
    verdict: str | None = None
    """The rule that let it run, where one was asked."""


@_checked
class BodyCalled(Event):
    """A body started a run of an agent, or called a tool: a call of its own; ``scope`` leads to the body's."""

    type: Literal["body_called"] = "body_called"
    call_id: str
    name: str
    """The agent's or the tool's."""
    input: dict[str, Any]


@_checked
class StepFinished(Event):
    """A named step inside a body has its value, which a later attempt takes instead of repeating it."""

    type: Literal["step_finished"] = "step_finished"
    call_id: str
    name: str
    value: Any = None
    error: str | None = None
    """Why it has none: a step that failed is done again."""
    seconds: float | None = None
    """How long it took."""


@_made
class ToolFinished(Event):
    """A call has its result."""

    type: Literal["tool_finished"] = "tool_finished"
    call_id: str
    output: Any = None
    """What the model is told, as JSON."""
    error: bool = False
    printed: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)
    """Mime bundles the tool displayed while it ran."""
    display: dict[str, Any] | None = None
    """Mime bundle of the result itself, where it shows richer than its JSON."""
    verdict: str | None = None
    """The rule that denied the call, where one did."""
    files: tuple[dict[str, Any], ...] = ()
    """File parts of the result, which the model is to see and the person does: shown, and kept, once."""


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
    """What is shown, and what an approval covers."""
    entered: Input | None = None
    """The input as the call came to the middleware, where that made another of it."""
    metadata: Any = None
    state: Any = None
    editable: bool | tuple[str, ...] = False
    digest: str = ""
    note: str | None = None
    expires_at: float | None = None
    on_expire: OnExpire = "reject"
    expire_output: Any = None
    """The answer that ``on_expire="answer"`` gives."""
    reply_schema: Any = None
    """JSON Schema of an answer, or None where anything goes."""
    input_schema: Any = None
    """JSON Schema of the input, where that may be changed."""
    prefill: Any = None
    """What the answer's form shows to begin with."""
    ask: int | None = None
    """For a question of ``ctx.ask``: which one of its body, counted from 0."""
    external: str | None = None
    """The SHA-256 of the token that answers it from outside; it has no form."""
    verdict: str | None = None
    """The rule that asked, for an approval."""
    budget: str | None = None
    """What is used up: ``turns``, ``tokens``, ``cost`` or ``seconds``."""
    around: bool = False
    """Whether middleware around the tool paused, and not its body."""
    asking: Input | None = None
    """The inputs that ask, by name, of a body that paused without metadata."""
    printed: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)

    @property
    def asker(self) -> Asker:
        """Who asks, and is told what a restart carries."""
        return "middleware" if self.around else self.kind

    def is_late(self, now: float) -> bool:
        """Whether its time is over: it takes no answer any more, and what its tool said comes instead."""
        return self.expires_at is not None and now >= self.expires_at


def question_digest(event: Interrupted) -> str:
    """What the answer to a question of ``ctx.ask`` is bound to: what was asked, and for what."""
    return digest_of(event.tool_name, event.metadata, event.reply_schema)


@_checked
class MessageQueued(Event):
    """A person wrote a message that is sent after the open turn's results."""

    type: Literal["message_queued"] = "message_queued"
    text: str
    by: str
    content: tuple[dict[str, Any], ...] | None = None
    """Its parts, text and files, where it has files; ``text`` is then a word for each part."""
    user: str = ""
    """As in ``Resolved``."""

    @property
    def said(self) -> Said:
        """What the model is told."""
        return self.text if self.content is None else self.content


@_checked
class Resolved(Event):
    """An interrupt has its one answer."""

    type: Literal["resolved"] = "resolved"
    id: str
    call_id: str
    resolution: Resolution
    by: str
    """The way it came: ``form``, ``code``, ``command line``, ``external``, ``expiry``, or what the caller says."""
    owner: str = ""
    """The process that goes on with the run; empty where nobody does before somebody takes it."""
    remembers: Remembered | None = None
    """What an approval that is to be remembered covers, of the tool as it was then."""
    user: str = ""
    """The person whose process took it, as ``this_user`` knows them; empty where no person answered."""

    @property
    def for_this_run(self) -> Remembered | None:
        """What is remembered in this run, and not in every run of the agent object."""
        said = getattr(self.resolution, "remember", None)
        return self.remembers if said in ("input_in_run", "tool_in_run") else None


@_checked
class RunCompleted(Event):
    """The run ended well; ``text`` is the final answer, ``output`` its typed form where asked for."""

    type: Literal["run_completed"] = "run_completed"
    text: str = ""
    output: Any = None
    row: RowOf | None = None
    """The row of a batch that it was of, and what it used: a batch that goes on reads nothing else of it."""


@_checked
class RunFailed(Event):
    """The run could not go on."""

    type: Literal["run_failed"] = "run_failed"
    error: str
    """The exception's class name."""
    message: str
    owner: str = ""
    """The process it failed in, whose own bodies have ended by then."""


@_checked
class RunRetried(Event):
    """A run that had failed goes on from its last good state."""

    type: Literal["run_retried"] = "run_retried"
    by: str
    owner: str = ""
    """The process that goes on with it."""
    user: str = ""
    """As in ``Resolved``."""


@_checked
class RunTaken(Event):
    """Another process drives the run from here on; what ran elsewhere has no say in it any more."""

    type: Literal["run_taken"] = "run_taken"
    by: str
    """Why: ``take over`` where somebody said so, ``silence`` where the one before was gone, ``vacancy`` where nobody
    drove it: it had been answered by its record, or came in a document; ``release`` where the process that drove it
    has left it to any."""
    owner: str = ""
    """The process that drives it now; empty after a release."""
    gone: str = ""
    """The process that had it before, whose calls it takes; empty where it takes all, whoever lives."""
    user: str = ""
    """As in ``Resolved``."""


@_checked
class RunImported(Event):
    """All before came in a document: nothing in it counts as approved here."""

    type: Literal["run_imported"] = "run_imported"
    by: str
    user: str = ""


@_checked
class RunCancelled(Event):
    """Somebody stopped the run; calls named here were still running and their results are discarded."""

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
    """Built late: it costs milliseconds that an import should not pay."""
    return TypeAdapter(AnyEvent)


def event_schema() -> dict[str, Any]:
    """The JSON Schema of an event as it is stored in this format."""
    return _adapter().json_schema(mode="validation", ref_template="#/$defs/{model}")


MIGRATIONS: list[Callable[[dict[str, Any]], dict[str, Any]] | None] = [
    None,  # format 2 can begin a history with a reference to the run before; 1 always has all of it
]
"""The n-th (from 1) makes the JSON of an event of format n one of format n + 1; None where it is one."""


def parse(data: str | bytes, version: int = FORMAT_VERSION) -> StoredEvent:
    """An event from its JSON, written in the format ``version``.

    Raises:
        StoreError: a newer nbagent wrote it, or it is no event.
    """
    _check_version(version)
    try:
        counted(data, MAX_EVENT_PARTS)
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
    """An event as JSON, without what has its default; types and the version are always told.

    Raises:
        ValueError: it holds a text that is no Unicode.
    """
    return encoded(event).decode()


def encoded(event: StoredEvent) -> bytes:
    """``dump`` as UTF-8; what ``kept`` has encoded is not encoded again."""
    data: bytes | None = getattr(event, "_data", None)
    if data is not None:
        return data
    serializer = _serializers.get(type(event)) or _serializer(type(event))
    if isinstance(event, RunQueued | RunStarted | Resolved):  # the version; a resolution's type
        whole: bytes = serializer.to_json(event, exclude_none=True)
        return whole
    text: bytes = serializer.to_json(event, exclude_defaults=True)
    return b'{"type":"%s",%s' % (
        event.type.encode(),
        text[1:],
    )  # never empty: ``at`` has no default


def _serializer(kind: type[Any]) -> Any:
    """What writes events of a kind; made late, as it costs what an import should not pay."""
    found = _serializers.get(kind)
    if found is None:
        found = _serializers[kind] = TypeAdapter(kind).serializer
    return found


_serializers: dict[type[Any], Any] = {}


def checked(kind: type[T], value: Any) -> T:
    """An event of this kind from plain data.

    Raises:
        pydantic.ValidationError: it is none.
    """
    return TypeAdapter(kind).validate_python(value)


def kept(event: StoredEvent) -> StoredEvent:
    """The event as every journal can keep it and any later process read it, encoded until ``stored``.

    It is the same object, unless a text in it is no Unicode, which is written out.

    Raises:
        ValueError: there is no such; the message says why.
    """
    try:
        data = encoded(event)
    except ValueError:
        event = checked(type(event), written_out(event.model_dump()))
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


def stored(event: StoredEvent) -> None:
    """Forget the encoding: the event is stored, or is not going to be."""
    object.__setattr__(event, "_data", None)


MAX_SIZE = 200_000_000
"""Bytes of one event; SQLite keeps a billion bytes in one row."""
_READABLE = 200
"""Levels of lists and objects, the event itself included."""


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
