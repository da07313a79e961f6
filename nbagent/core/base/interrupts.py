"""What a paused tool says, and what settles it."""

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
from .keywords import spell_out, tells
from .messages import Json, canonical, dumps, freeze, jsonable, storable
from .secrets import sealed_json

MAX_EXPIRY = 100 * 365.25 * 86400
"""Seconds that a question may wait at most: a clock must be able to tell when that is."""

F = TypeVar("F", bound=Callable[..., None])


def without_init(init: F) -> F:
    """Let pydantic validate without this ``__init__``, which only places arguments.

    Whoever asks for its signature, such as Jupyter's inspector, gets that of its first overload.
    """
    init.__dict__["__pydantic_base_init__"] = True
    overloads = get_overloads(init)
    if overloads:
        init.__dict__["__wrapped__"] = overloads[0]
    spell_out(overloads[0] if overloads else init)
    return init


class InPlace(BaseModel):
    """Base of what may be made with its first fields in place."""

    model_config = ConfigDict(defer_build=True)
    first_fields: ClassVar[tuple[str, ...]] = ()
    """Those that need no name, in order; a subclass has the same."""

    @without_init
    def __init__(self, *given: Any, **fields: Any) -> None:
        names, name = self.first_fields, type(self).__name__
        if len(given) > len(names):
            raise TypeError(
                f"{name} takes {', '.join(names)} by position and everything else by name, as in {name}(…, name=value). "
                f"Got {len(given)} values"
            )
        placed = dict(zip(names, given, strict=False))
        for twice in placed.keys() & fields.keys():
            raise TypeError(f"{name} got {twice!r} twice: by position and by name")
        known = [*type(self).model_fields]
        try:
            super().__init__(**placed, **fields)
        except ValidationError:
            unknown = next((field for field in fields if field not in known), None)
            if unknown is None:
                raise
        else:
            return
        meant = suggest(unknown, known) or f". Available: {', '.join(known)}"
        raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{meant}")


T = TypeVar("T")
A = TypeVar("A", bound="Respond | Restart")

InterruptKind = Literal["tool", "question", "approval", "ask", "later", "lost", "budget"]
"""``tool``: a body paused, or middleware around it, and can be re-run. ``question``: a tool with no body, only an answer settles
it. ``approval``: the gate asks before a body runs. ``ask``: a body asked with ``ctx.ask`` and goes on
with the answer at that line. ``later``: a call has an interim result, and an outside system gives the final one.
``lost``: the process that ran a body is gone, and nobody knows what that
came to. ``budget``: the run reached a limit (no call)."""

Asker: TypeAlias = InterruptKind | Literal["middleware"]
"""Who asks: as the kind says, but middleware for itself."""

RESTARTED: tuple[Asker, ...] = ("tool", "middleware", "approval")
"""Who is told of the restart that runs the body after its pause."""

Expects = Literal[
    "approval", "edit", "confirmation", "choice", "value", "external", "outcome", "budget"
]
"""What answers a question. ``approval``: whether a tool runs. ``edit``: the same, with input that may be
changed. ``confirmation``: whether a body goes on in its middle. ``choice``: one or several of what the
metadata offers. ``value``: a value in the tool's place, or at the line of ``ctx.ask``. ``external``: an
outside system's value. ``outcome``: whether a call runs again, or what it came to. ``budget``: how much more a run may use. ``metadata.expected`` decides it."""

OnExpire = Literal["reject", "answer", "fail"]
"""What the end of its time does to an interrupt: refuse it, answer it with a default, fail the run."""


Remember = Literal["input_in_run", "tool_in_run", "input", "tool"]
"""What an approval may be remembered for: this tool with this input or with any, in this run alone
or in every run of this agent object. A run is that of the outermost agent, with all that runs inside."""


ASKS_OUTSIDE = "the server is asking, and waits"
"""The step of a body that asks for a program outside, which waits for the answer and ends with the body's process."""

ASKED_AGAIN = (
    "This question is asked again after you approved it. To ask only once, guard it in the tool with `if not "
    "ctx.resumed:`."
)
"""The note of an interrupt that its tool raised once more, word for word, when it was restarted."""

SCHEMA_CHANGED = "The tool's parameters changed since you approved this call, so it is asked again."
"""The note of an interrupt whose approval was for the tool as it was defined before."""

INPUT_CHANGED = (
    "The input changed on its way to the tool since you approved it, so it is asked again."
)
"""The note of an interrupt whose tool would get another input than a person let run."""

TOOL_CHANGED = (
    "The server changed this tool since it was shown (its description, hints or parameters), so it is asked "
    "again."
)
"""What the note begins with of an interrupt whose approval was for a server's tool as it was before."""

SECRET_GONE = (
    "Secrets are not stored, and this process does not have this one, so it is asked for again."
)
"""The note of an interrupt that asks for a secret which was given before."""

DOES_NOT_FIT = "The last answer was not valid, so it is asked again: {why}"
"""The note of an interrupt that was answered where the tool was not known, with what it does not take."""

CODE_CHANGED = "The tool's code changed since you chose to always allow it, so it is asked again."
"""The note of an interrupt whose approval was remembered for another function of that name."""


class Interrupt(BaseException):
    """Raised by a tool to pause its call; takes what ``ToolContext.interrupt`` takes.

    A signal and not an error: it is no ``Exception``, so ``except Exception`` in tools and
    middleware lets it pass.
    """

    @tells("nb.Interrupt")
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
        """The token that answers it from outside; set by ``ToolContext.interrupt``."""


class Expiry(NamedTuple):
    """When an interrupt stops waiting, and what becomes of it then."""

    seconds: float
    then: OnExpire = "reject"
    output: Any = None
    """The answer that ``answer`` gives."""

    @classmethod
    def of(cls, expires_in: float | timedelta | None, on_expire: Any) -> Expiry | None:
        """From what a tool says; None without a time.

        Args:
            expires_in: seconds, or a timedelta.
            on_expire: ``"reject"``, ``"fail"``, or a ``Respond`` whose output is the default answer.

        Raises:
            ValueError: the time is not positive, or ``on_expire`` is something else.
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
    """What a restart carries to the tool; always truthy, also without data."""

    data: Json = None

    def __bool__(self) -> bool:
        return True


class _Resolution(BaseModel):
    """What all that settles an interrupt has."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    interrupt: str | None = None
    """The id of the interrupt that it settles, where it knows it; an event tells that beside it."""

    @field_validator("interrupt", mode="before")
    @classmethod
    def _id_of(cls, value: Any) -> Any:
        return value.id if isinstance(value, PendingInterrupt) else value


class Respond(_Resolution):
    """Answer as if the tool had returned ``output``, or had failed with ``error``."""

    type: Literal["respond"] = "respond"
    output: Any = None
    error: str | None = None
    """What the model is told instead of a result."""

    @without_init
    def __init__(
        self,
        output: Any = None,
        *,
        error: str | None = None,
        interrupt: PendingInterrupt | str | None = None,
    ) -> None:
        BaseModel.__init__(self, output=output, error=error, interrupt=interrupt)

    @model_validator(mode="after")
    def _one_of_both(self) -> Respond:
        if self.error is not None and self.output is not None:
            raise ValueError("An answer can have an output or an error, not both")
        return self


class Restart(_Resolution):
    """Run the tool (again), with the input replaced where ``input`` is given."""

    type: Literal["restart"] = "restart"
    input: dict[str, Any] | None = None
    data: Any = None
    remember: Remember | None = None
    """For an approval: what not to ask about again."""

    @without_init
    def __init__(
        self,
        input: dict[str, Any] | None = None,  # noqa: A002 - the field
        *,
        data: Any = None,
        remember: Remember | None = None,
        interrupt: PendingInterrupt | str | None = None,
    ) -> None:
        BaseModel.__init__(self, input=input, data=data, remember=remember, interrupt=interrupt)


class Reject(_Resolution):
    """Refuse: the tool never runs, and the model is told, with the reason where there is one."""

    type: Literal["reject"] = "reject"
    reason: str | None = None

    @without_init
    def __init__(
        self, reason: str | None = None, *, interrupt: PendingInterrupt | str | None = None
    ) -> None:
        BaseModel.__init__(self, reason=reason, interrupt=interrupt)


Resolution: TypeAlias = Annotated[Respond | Restart | Reject, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """An interrupt that waits: what a person, a form or code answers."""

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
    """Of tool name, input and schema as displayed: what an approval is bound to."""
    note: str | None = None
    """Something the person should know, such as that the tool changed since it was last approved."""
    original_input: dict[str, Any] | None = None
    state: Json = None
    reply_schema: Json = None
    """JSON Schema of an answer, or None where anything goes."""
    input_schema: Json = None
    """JSON Schema of the input, where that may be changed."""
    asking: dict[str, Any] | None = None
    """The inputs that ask, by name, where the body paused without metadata."""
    _tool: Any = field(default=None, compare=False, repr=False)
    """The tool it is bound to in this process, if it is, so that helpers can validate early."""

    @property
    def restartable(self) -> bool:
        """Whether the tool has a body that an answer can run."""
        return self.kind in ("tool", "approval", "lost")

    def metadata_as(self, type_: type[T]) -> T | None:
        """The metadata as ``type_``, or None where there is none or it has another shape."""
        return value_as(self.metadata, type_)

    def respond(self, value: Any) -> Respond:
        """An answer to this, for ``generate`` or ``run.resolve``.

        Raises:
            InvalidAnswer: the value does not fit, where the tool is known.
        """
        return self._checked(Respond(value, interrupt=self))

    def restart(
        self, *, new_input: Any = None, data: Any = None, remember: Remember | None = None
    ) -> Restart:
        """A restart of this, for ``generate`` or ``run.resolve``.

        Raises:
            InvalidAnswer: the tool has no body, or the input does not fit, where the tool is known.
        """
        return self._checked(restart_of(new_input, data, self, remember=remember))

    def reject(self, reason: str | None = None) -> Reject:
        """A refusal of this, for ``generate`` or ``run.resolve``."""
        return reject_of(reason, self)

    def _checked(self, resolution: A) -> A:
        checked: A = resolution if self._tool is None else self._tool.check(self, resolution)
        return checked


def value_as(value: Json, type_: type[T]) -> T | None:
    """A stored JSON value as ``type_`` where its shape fits with no unknown keys, else None."""
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
        TypeError, ValueError: it is no JSON.
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
        InvalidAnswer: they are no JSON, the input is no mapping, or nothing can be remembered so.
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
    """A refusal.

    Raises:
        InvalidAnswer: the reason is no text.
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
    """What is stored of a token: its SHA-256."""
    return hashlib.sha256(token.encode()).hexdigest()
