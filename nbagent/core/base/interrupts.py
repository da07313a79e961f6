"""The interrupt of a paused tool, and its answers."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_overloads,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from .amounts import amount
from .errors import InvalidAnswer, suggest
from .keywords import checks_keywords, in_few_lines, spell_out
from .messages import Json, canonical, dumps, freeze, jsonable, storable
from .secrets import sealed_json

EXPIRY = "expiry"
"""The value of ``by`` (who answered) if an interrupt's time ran out."""
MAX_EXPIRY = 100 * 365.25 * 86400
"""Maximum seconds that a question may wait, so that its deadline is a valid time."""

F = TypeVar("F", bound=Callable[..., None])


def skipped_by_validation(init: F) -> F:
    """A decorator of a model's ``__init__``: pydantic creates the model from data without calling it.

    The signature that Jupyter shows is the first overload, if there is one.
    """
    init.__dict__["__pydantic_base_init__"] = True
    overloads = get_overloads(init)
    if overloads:
        init.__dict__["__wrapped__"] = overloads[0]
    spell_out(overloads[0] if overloads else init)
    return init


class Positional(BaseModel):
    """Base of models whose first fields can be positional."""

    model_config = ConfigDict(defer_build=True)
    first_fields: ClassVar[tuple[str, ...]] = ()
    """The positional fields, in order."""

    @skipped_by_validation
    def __init__(self, *given: Any, **fields: Any) -> None:
        names, name = self.first_fields, type(self).__name__
        if len(given) > len(names):
            raise TypeError(
                f"{name} takes {', '.join(names)} by position and everything else by name, as in {name}(…, name=value). "
                f"Got {len(given)} values"
            )
        placed = dict(zip(names, given, strict=False))
        for duplicate in placed.keys() & fields.keys():
            raise TypeError(f"{name} got {duplicate!r} twice: by position and by name")
        try:
            super().__init__(**placed, **fields)
        except ValidationError as error:
            raise _misfit(self, placed | fields, error) from None


def _misfit(model: BaseModel, fields: dict[str, Any], error: ValidationError) -> Exception:
    """The error for a field that is missing, unknown or wrong, or for fields that exclude each other, in one line."""
    problem = error.errors(include_url=False)[0]
    name, known = type(model).__name__, [*type(model).model_fields]
    unknown = next((field for field in fields if field not in known), None)
    where, message = (
        str(next(iter(problem["loc"]), "")),
        problem["msg"].removeprefix("Value error, "),
    )
    if unknown is not None:
        hint = suggest(unknown, known) or f". Available: {', '.join(known)}"
        text = f"got an unexpected keyword argument {unknown!r}{hint}"
    elif problem["type"] == "missing" and where not in fields:
        text = f"needs {where!r}, as in {name}({', '.join(getattr(model, 'first_fields', known))})"
    elif where:
        got = type(problem["input"]).__name__
        text = f"got {where!r} of type {got}: {message.replace('Input should', 'it should')}"
    else:
        return in_few_lines(ValueError(f"{name}() is wrong: {message}"))
    return in_few_lines(TypeError(f"{name}() {text}"))


T = TypeVar("T")
A = TypeVar("A", bound="Respond | Restart")

InterruptKind = Literal["tool", "question", "approval", "ask", "later", "lost", "budget"]
"""The body of a tool is its Python function. ``tool``: a body, or middleware around it, paused and can run
again. ``question``: a tool without a body; only an answer ends its call. ``approval``: the gate asks before a
body runs. ``ask``: a body called ``ctx.ask`` and waits at that line for the answer. ``later``: a call has an
interim result, and an outside system sends the final one. ``lost``: the process that ran a body has ended, and
the outcome is unknown. ``budget``: the run reached a limit (no call)."""

Asker: TypeAlias = InterruptKind | Literal["middleware"]
"""Who asks: ``middleware`` if middleware around a tool paused, otherwise the kind of the interrupt."""

Expects = Literal[
    "approval", "edit", "confirmation", "choice", "value", "external", "outcome", "budget"
]
"""The kind of answer to a question. ``approval``: whether a tool runs. ``edit``: ``approval``, with input that
may be changed. ``confirmation``: approval or rejection of a ``ctx.ask(nb.Confirm(…))``. ``choice``: one or several
options of the metadata. ``value``: the result of the tool, or of ``ctx.ask``. ``external``: an outside system's
value. ``outcome``: whether a call runs again, or its result. ``budget``: how much more a run may use.
``expected()`` in ``metadata.py`` derives this from the interrupt."""

OnExpire = Literal["reject", "answer", "fail"]
"""The effect of expiry on an interrupt: reject it, answer it with a default, or fail the run."""


Remember = Literal["input_in_run", "tool_in_run", "input", "tool"]
"""The later calls that a remembered approval covers. ``input_in_run``: this tool with the same input, in this run.
``tool_in_run``: this tool with any input, in this run. ``input`` and ``tool``: the same, in every run of this
agent object. "This run" is the outermost run with all its inner runs."""


ASKS_OUTSIDE = "the server is asking, and waits"
"""The name of the step that a body stores before it waits for an answer to an outside program's question. The
program ends with the body's process, so a later answer cannot reach it."""

ASKED_AGAIN = (
    "This question is asked again after you approved it. To ask only once, guard it in the tool with `if not "
    "ctx.resumed:`."
)
"""The note of an interrupt that its tool raised again, with the same input, metadata and state, after a restart."""

SCHEMA_CHANGED = (
    "The tool's parameters changed since you approved this call, so you are asked again."
)
"""The note of an interrupt that was approved for an earlier definition of the tool."""

INPUT_CHANGED = (
    "The input changed on its way to the tool since you approved it, so you are asked again."
)
"""The note of an interrupt whose tool would receive another input than the approved one."""

TOOL_CHANGED = (
    "The server changed this tool since it was shown (its description, hints or parameters), so you are "
    "asked again."
)
"""The start of the note of an interrupt that was approved for an earlier version of a server's tool."""

SECRET_GONE = "Secrets are not stored, and this process does not have this one, so you are asked for it again."
"""The note of an interrupt that asks again for a secret."""

DOES_NOT_FIT = "The last answer was not valid, so you are asked again: {why}"
"""The note of a question that is asked again: a process without the tool accepted an answer that is not valid."""

CODE_CHANGED = "The tool's code changed since you chose to always allow it, so you are asked again."
"""The note of an interrupt whose approval was remembered for another function of the same name."""


LIMIT_LABEL = "the run's limit"
"""What people read in place of a tool name if the question is a ``budget`` question, which has no tool."""


class Interrupt(BaseException):
    """A signal that a tool raises to pause its call; for the arguments see ``ToolContext.interrupt``.

    It is not an ``Exception``, so ``except Exception`` in tools and middleware does not catch it.
    """

    @checks_keywords("nb.Interrupt")
    def __init__(
        self,
        metadata: Any = None,
        *,
        state: Any = None,
        editable: bool | Sequence[str] | None = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> None:
        super().__init__("the tool call is waiting for an answer")
        self.metadata = metadata
        self.state = state
        self.editable = editable
        self.expiry = Expiry.of(expires_in, on_expire)
        self.external: str | None = None
        """The token for an answer from outside; set by ``ToolContext.interrupt``."""


class Expiry(NamedTuple):
    """The time limit of an interrupt, and its effect."""

    seconds: float
    then: OnExpire = "reject"
    output: Any = None
    """The answer if ``then`` is ``"answer"``."""

    @classmethod
    def of(cls, expires_in: float | timedelta | None, on_expire: Any) -> Expiry | None:
        """Make an expiry from a tool's arguments; return None if ``expires_in`` is None.

        Args:
            expires_in: seconds, or a timedelta.
            on_expire: ``"reject"``, ``"fail"``, or a ``Respond`` whose output is the default answer.

        Raises:
            ValueError: the time is not positive or too long, or ``on_expire`` is something else.
        """
        if expires_in is None:
            return None
        given = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
        seconds = amount(given)
        if not seconds or seconds > MAX_EXPIRY:
            raise ValueError(
                f"expires_in must be positive and at most 100 years, got {expires_in!r:.80}"
            )
        if isinstance(on_expire, Respond) and on_expire.error is None:
            return cls(seconds, "answer", on_expire.output)
        if on_expire in (None, "reject"):
            return cls(seconds)
        if on_expire == "fail":
            return cls(seconds, "fail")
        raise ValueError(
            f"on_expire must be 'reject', 'fail' or nb.Respond(default answer), got {on_expire!r}"
        )


@dataclass(frozen=True, slots=True)
class Resumed:
    """The data that a restart passes to the tool. It counts as true in an ``if``, even if ``data`` is None."""

    data: Json = None

    def __bool__(self) -> bool:
        return True


class _Resolution(BaseModel):
    """Common fields of all answers to an interrupt."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    interrupt: str | None = None
    """The id of the answered interrupt; None if the code that receives the answer already has the id."""

    @skipped_by_validation
    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise _misfit(self, fields, error) from None

    @field_validator("interrupt", mode="before")
    @classmethod
    def _id_of(cls, value: Any) -> Any:
        return value.id if isinstance(value, PendingInterrupt) else value


class Respond(_Resolution):
    """Answer as if the tool had returned ``output``, or had failed with ``error``."""

    type: Literal["respond"] = "respond"
    output: Any = None
    error: str | None = None
    """The error that the model receives instead of a result."""

    @skipped_by_validation
    def __init__(
        self,
        output: Any = None,
        *,
        error: str | None = None,
        interrupt: PendingInterrupt | str | None = None,
    ) -> None:
        super().__init__(output=output, error=error, interrupt=interrupt)

    @model_validator(mode="after")
    def _one_of_both(self) -> Respond:
        if self.error is not None and self.output is not None:
            raise ValueError("An answer can have an output or an error, not both")
        return self


class Restart(_Resolution):
    """Run the tool (again), with the input replaced if ``input`` is not None."""

    type: Literal["restart"] = "restart"
    input: dict[str, Any] | None = None
    data: Any = None
    remember: Remember | None = None
    """For an approval: the scope in which not to ask again."""

    @skipped_by_validation
    def __init__(
        self,
        input: dict[str, Any] | None = None,  # noqa: A002 - the field
        *,
        data: Any = None,
        remember: Remember | None = None,
        interrupt: PendingInterrupt | str | None = None,
    ) -> None:
        super().__init__(input=input, data=data, remember=remember, interrupt=interrupt)


class Reject(_Resolution):
    """Reject the call: the tool does not run, and the model learns why."""

    type: Literal["reject"] = "reject"
    reason: str | None = None

    @skipped_by_validation
    def __init__(
        self, reason: str | None = None, *, interrupt: PendingInterrupt | str | None = None
    ) -> None:
        super().__init__(reason=reason, interrupt=interrupt)


Resolution: TypeAlias = Annotated[Respond | Restart | Reject, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """An open interrupt, to be answered by a person, a form or code."""

    id: str
    tool_name: str
    call_id: str
    input: dict[str, Any]
    metadata: Json = None
    kind: InterruptKind = "tool"
    expects: Expects = "approval"
    path: tuple[str, ...] = ()
    """Names from the outermost agent to the tool."""
    editable: bool | tuple[str, ...] = False
    expires_at: float | None = None
    """Unix time in seconds, or None."""
    digest: str = ""
    """Digest of tool name, input and schema as displayed, to which an approval is bound."""
    note: str | None = None
    """A note for the person, such as that the tool changed since it was last approved."""
    original_input: dict[str, Any] | None = None
    """The model's input if a person has changed it; otherwise None."""
    state: Json = None
    """The ``state=`` that the tool passed when it paused."""
    reply_schema: Json = None
    """JSON Schema of an answer, or None if any value is valid."""
    input_schema: Json = None
    """JSON Schema of the input, if it may be changed."""
    asking: dict[str, Any] | None = None
    """The inputs that contain the question, by name, if the body paused without metadata."""
    _tool: Any = field(default=None, compare=False, repr=False)
    """The tool in this process, if known, so that helpers can validate early."""

    @property
    def restartable(self) -> bool:
        """Whether the tool has a body that an answer can run."""
        return self.kind in ("tool", "approval", "lost")

    def metadata_as(self, type_: type[T]) -> T | None:
        """The metadata as ``type_``; None without metadata, or if it has another shape."""
        return value_as(self.metadata, type_)

    def respond(self, value: Any) -> Respond:
        """Build an answer, for ``generate`` or ``run.resolve``.

        Raises:
            InvalidAnswer: the value is not valid; checked if the tool is known.
        """
        return self._checked(Respond(value, interrupt=self))

    def restart(
        self, *, new_input: Any = None, data: Any = None, remember: Remember | None = None
    ) -> Restart:
        """Build a restart, for ``generate`` or ``run.resolve``.

        Raises:
            InvalidAnswer: the tool has no body, or the input is not valid; checked if the tool is known.
        """
        return self._checked(restart_of(new_input, data, self, remember=remember))

    def reject(self, reason: str | None = None) -> Reject:
        """Build a rejection, for ``generate`` or ``run.resolve``."""
        return reject_of(reason, self)

    def _checked(self, resolution: A) -> A:
        checked: A = resolution if self._tool is None else self._tool.check(self, resolution)
        return checked


def value_as(value: Json, type_: type[T]) -> T | None:
    """A stored JSON value as ``type_`` if it has the type's shape and no unknown keys, else None."""
    if value is None:
        return None
    try:
        typed = TypeAdapter(type_).validate_json(dumps(value))
    except (ValidationError, TypeError, ValueError):
        return None
    known = set(getattr(type_, "model_fields", ()))
    if known and isinstance(value, dict) and not set(value) <= known:
        return None
    return typed


def to_json(value: Any) -> Json:
    """A Python value (pydantic model, dataclass, plain data) as unchangeable JSON.

    Raises:
        TypeError, ValueError: the value is not JSON.
    """
    if value is None:
        return None
    return freeze(storable(jsonable(value)))


def restart_of(
    new_input: Any,
    data: Any,
    interrupt: PendingInterrupt | str | None = None,
    *,
    remember: Remember | None = None,
) -> Restart:
    """A restart from Python values.

    Raises:
        InvalidAnswer: a value is not JSON, the input is not a mapping, or ``remember`` is not valid.
    """
    if remember not in (None, *get_args(Remember)):
        known = ", ".join(map(repr, get_args(Remember)))
        raise InvalidAnswer(f"remember must be one of {known}, got {remember!r:.80}")
    try:
        return Restart(
            input_json(new_input), data=sealed_json(data), remember=remember, interrupt=interrupt
        )
    except (TypeError, ValueError) as error:
        raise InvalidAnswer(f"new_input and data must be JSON: {error}") from error


def reject_of(reason: Any, interrupt: PendingInterrupt | str | None = None) -> Reject:
    """A rejection.

    Raises:
        InvalidAnswer: the reason is not a string.
    """
    if reason is not None and not isinstance(reason, str):
        raise InvalidAnswer(f"A reason must be a string or None, got a {type(reason).__name__}")
    return Reject(reason, interrupt=interrupt)


def input_json(value: Any) -> dict[str, Any] | None:
    """A replacement input (a model, a mapping) as a JSON object, or None for no replacement."""
    plain = sealed_json(value)
    if plain is not None and not isinstance(plain, dict):
        raise TypeError(f"new_input must be a mapping or a model, got {type(value).__name__}")
    return plain


def digest_of(tool_name: str, input_: Json, schema: Json) -> str:
    """The SHA-256 that binds an approval to what was displayed."""
    text = canonical([tool_name, input_, schema])
    return hashlib.sha256(text.encode()).hexdigest()


def new_token() -> str:
    """A secret of 128 bits that answers one interrupt from outside."""
    return secrets.token_urlsafe(16)


def token_digest(token: str) -> str:
    """The stored form of a token: its SHA-256."""
    return hashlib.sha256(token.encode()).hexdigest()
