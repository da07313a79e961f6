"""Tools: Python functions that a model may call."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import typing
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from types import CodeType
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from pydantic import (
    BaseModel,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError

from nbagent.core.base.controls import escaped_repr
from nbagent.core.base.errors import InvalidAnswer, ToolError
from nbagent.core.base.interrupts import (
    PendingInterrupt,
    Reject,
    Remember,
    Respond,
    Restart,
    digest_of,
    restart_of,
)
from nbagent.core.base.messages import Json, dumps, freeze
from nbagent.core.base.model import ToolSpec
from nbagent.core.base.secrets import (
    SecretPlaces,
    SecretSchema,
    plain_json,
    revealed,
    sealed_json,
    without_secrets,
)

from .attachments import File
from .context import ToolContext
from .json_schema import adapter_of
from .policy import Approval
from .result_text import MAX_OUTPUT, checked_value, invalid
from .signature import Signature

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
M_contra = TypeVar("M_contra", bound=BaseModel, contravariant=True)


@escaped_repr
@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool: the model receives ``value``, and the person sees ``display``.

    Both see ``files``: figures, images, paths, or ``nb.File``.
    """

    value: Any
    display: Any = None
    files: Sequence[Any] = ()


Presenter: TypeAlias = Callable[[Any], dict[str, Any] | None]
"""A function that makes the mime bundle of a value, or None if its JSON is enough to show it. Never raises."""


class Origin(NamedTuple):
    """The source of a tool that others provide, such as a server."""

    note: str
    """A text that the person sees below the title of an approval; nbagent writes it, not the source."""
    annotations: Mapping[str, Any]
    """The source's hints about the tool; see ``CallView.annotations``."""
    identity: Json
    """The tool's identity besides its name. "Always allow" is valid as long as the identity is equal."""
    definition: Json
    """The source's description and hints. An approval is valid as long as they are equal."""
    renewed: Callable[[], Awaitable[Any]]
    """Gets the current tool from the source; None if the tool no longer exists. Raises an ``NbagentError`` if the
    source is not available."""


MAX_LABEL = 40
"""Characters of a button's label."""


class ToolOptions(NamedTuple):
    """The options of a tool."""

    thread: bool = True
    """True if a sync body runs in its own thread; False for the thread of the cells, or of the run's loop."""
    approval: Approval = False
    """True to ask a person before the tool runs, or a condition. A rule that matches comes first."""
    editable: bool | tuple[str, ...] = False
    """True if the approval form may change all inputs, or the names of the inputs that it may change."""
    final: bool = False
    """True if the tool's answer ends the run."""
    idempotent: bool = False
    """True if the body may run again, whatever its earlier outcome was."""
    flow: bool = False
    """True for the function of a flow. A person starts the flow, so no rules and no middleware apply."""
    inner: Any = None
    """For an agent as a tool: the inner run (see ``spec.Inner``)."""
    body_settings: Any = None
    """For a flow as a tool: its rules, middleware and budget for its body (see ``spec.BodySettings``)."""
    metadata: Any = None
    """For a tool without a body: the metadata of its question, or a (maybe async) function of the input."""
    approve_label: str = ""
    """The verb of the button that approves; empty for the usual one."""
    preview: Callable[[Any], Any] | None = None
    """A function that shows the effect of an input; the result appears above the buttons of the approval."""
    max_output: int | None = MAX_OUTPUT
    """Maximum characters of a result for the model; None for no limit."""
    origin: Origin | None = None
    """For a tool of a server: its source."""
    always_needs_approval: bool = False
    """True if a person must approve: no rule can allow a call, and an approval is remembered for one run at most.
    ``answers=`` then must name the tool."""
    asks: str | None = None
    """For a call of ``ctx.approve``, which only asks because the body runs the call: the question's text. A rule lets
    such a call pass only if it has the tool's exact name."""


_ANYTHING: tuple[Any, ...] = (
    inspect.Signature.empty,
    Any,
    None,
    type(None),
    ToolResult,
    File,
    typing.Never,
    typing.NoReturn,
)
"""Return annotations that do not restrict an answer that a person gives in place of the tool."""


class _WithContext(Protocol[M_contra]):
    """A tool function whose whole input is one model, with ``ctx``."""

    def __call__(self, input: M_contra, ctx: ToolContext) -> Any: ...  # noqa: A002


class _WithoutContext(Protocol[M_contra]):
    """A tool function whose whole input is one model."""

    def __call__(self, input: M_contra) -> Any: ...  # noqa: A002


def _code_of(tool: Tool[..., Any], outer_ids: tuple[int, ...]) -> Any:
    inner = tool.options.inner
    if inner is not None:
        if id(inner) in outer_ids:
            return tool.name
        return [_code_of(one, (*outer_ids, id(inner))) for _, one in sorted(inner.tools.items())]
    parts: list[Any] = [tool.name]
    if tool.options.origin is not None:
        parts.append(dumps(tool.options.origin.identity))
    fn: Any = tool.fn
    while fn is not None:  # wrappers count, and the functions that they wrap
        fn_code = getattr(fn, "__code__", None)
        named = (getattr(fn, "__module__", ""), getattr(fn, "__qualname__", ""))
        parts.append((*named, None if fn_code is None else _parts_of(fn_code)))
        fn = getattr(fn, "__wrapped__", None)
    return parts


def _parts_of(code: CodeType) -> Any:
    """The code of a function, without line numbers."""
    constants = [
        _parts_of(c)
        if isinstance(c, CodeType)
        else sorted(map(repr, c))
        if isinstance(c, frozenset)
        else c
        for c in code.co_consts
    ]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


class Tool(Generic[P, R]):
    """A function as a tool: still callable, with a name, a description and an input schema.

    ``fn`` is None for a tool without a body; each of its calls waits for an answer.
    """

    def __init__(
        self,
        fn: Callable[P, R] | None,
        *,
        name: str,
        description: str,
        signature: Signature,
        options: ToolOptions,
    ) -> None:
        if not re.fullmatch(r"[\w.:/-]{1,128}", name):
            raise ToolError(f"A tool name can have letters, digits, _ and -, got {name!r:.80}")
        self.fn = fn
        self.name = name
        self.description = description
        self.options = options
        self._signature = signature
        self.module: str | None = getattr(fn, "__module__", None)
        """The module that defines the tool. A tool of a notebook cell may be defined again."""
        if fn is not None:
            functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly."""
        if self.fn is None:
            raise ToolError(
                f"The tool {self.name!r} has no function to call. Only a person can answer it"
            )
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def _repr_html_(self) -> str:
        """The description, the inputs, and whether a person is asked."""
        from .overview import line_of, table  # noqa: PLC0415 - only where one is displayed

        about, inputs = (
            [self.description.partition("\n")[0]],
            self.input_schema.get("properties", {}),
        )
        return table(f"Tool {line_of(self)}", {"about": about, "inputs": inputs})

    @overload
    def respond(
        self: Tool[P, Coroutine[Any, Any, T]], interrupt: PendingInterrupt, value: T
    ) -> Respond: ...
    @overload
    def respond(
        self: Tool[P, AsyncIterator[T]], interrupt: PendingInterrupt, value: T
    ) -> Respond: ...
    @overload
    def respond(self: Tool[P, Iterator[T]], interrupt: PendingInterrupt, value: T) -> Respond: ...
    @overload
    def respond(self: Tool[P, R], interrupt: PendingInterrupt, value: R) -> Respond: ...
    def respond(self, interrupt: PendingInterrupt, value: Any) -> Any:
        """An answer for ``generate`` or ``run.resolve``, of the type that the tool returns.

        Raises:
            InvalidAnswer: the interrupt belongs to another tool, or the value does not match the type.
        """
        self._check_own(interrupt)
        return self.check(interrupt, Respond(value, interrupt=interrupt))

    @overload
    def restart(
        self: _WithContext[M_contra],
        interrupt: PendingInterrupt,
        *,
        new_input: M_contra | Mapping[str, Any] | None = None,
        data: Any = None,
        remember: Remember | None = None,
    ) -> Restart: ...
    @overload
    def restart(
        self: _WithoutContext[M_contra],
        interrupt: PendingInterrupt,
        *,
        new_input: M_contra | Mapping[str, Any] | None = None,
        data: Any = None,
        remember: Remember | None = None,
    ) -> Restart: ...
    @overload
    def restart(
        self,
        interrupt: PendingInterrupt,
        *,
        new_input: Mapping[str, Any] | None = None,
        data: Any = None,
        remember: Remember | None = None,
    ) -> Restart: ...
    def restart(
        self,
        interrupt: PendingInterrupt,
        *,
        new_input: Any = None,
        data: Any = None,
        remember: Remember | None = None,
    ) -> Any:
        """A restart for ``generate`` or ``run.resolve``; the new input is of the tool's own model.

        Raises:
            InvalidAnswer: the interrupt belongs to another tool, or the input does not match the model.
        """
        self._check_own(interrupt)
        return self.check(interrupt, restart_of(new_input, data, interrupt, remember=remember))

    def _check_own(self, interrupt: Any) -> None:
        if not isinstance(interrupt, PendingInterrupt):
            raise TypeError(
                f"Expected one of response.interrupts, got {type(interrupt).__name__} {interrupt!r:.80}"
            )
        if interrupt.tool_name != self.name:
            raise InvalidAnswer(
                f"This interrupt belongs to {interrupt.tool_name!r}, not to {self.name!r}"
            )

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the body is a coroutine function."""
        return inspect.iscoroutinefunction(self.fn)

    @functools.cached_property
    def input_type(self) -> type[BaseModel]:
        """The pydantic model of the input."""
        return self._signature.model(self.name)

    @functools.cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input, as the model gets it."""
        return self.input_type.model_json_schema(schema_generator=SecretSchema)

    @functools.cached_property
    def secrets(self) -> SecretPlaces | None:
        """The places of secrets in the input; None if there are none."""
        return SecretPlaces.of(self.input_schema)

    def sealed(self, input_: Json, *, like: Json = None) -> Json:
        """The input with a mask for each secret; a secret that is also in ``like`` gets the same mask."""
        if self.secrets is None:
            return freeze(input_)
        return self.secrets.seal(input_, like=like, read=lambda: plain_json(self.parse(input_)))

    def masked(self, input_: Json) -> Json:
        """The input with pydantic's mask for each secret, only to be shown."""
        return input_ if self.secrets is None else self.secrets.masked(input_)

    def missing_secrets(self, input_: Json) -> list[str]:
        """The names of inputs that have a mask whose secret this process does not have."""
        found = [] if self.secrets is None else self.secrets.missing(input_)
        return list(dict.fromkeys(str(path[0]) for path in found if path))

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model receives it."""
        return ToolSpec(self.name, self.description, self.input_schema)

    @functools.cached_property
    def output_adapter(self) -> TypeAdapter[Any] | None:
        """The validator of an answer in place of the tool's result; None if any answer is valid."""
        if self._signature.output in _ANYTHING:
            return None
        try:
            return adapter_of(self._signature.output)
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None  # a type without a schema, such as a DataFrame: any answer is valid

    @functools.cached_property
    def output_schema(self) -> Json:
        """JSON Schema of an answer; None if any answer is valid."""
        if self.output_adapter is None:
            return None
        try:
            return self.output_adapter.json_schema()
        except PydanticUserError:
            return None

    @property
    def code_digest(self) -> str:
        """SHA-256 of the function's name and code; for an agent as a tool, of its tools' names and code.

        Unchanged after a restart, and if an unchanged cell runs again. Functions that the function calls, and
        values of variables in its closure, do not count.
        """
        return hashlib.sha256(repr(_code_of(self, ())).encode("utf-8", "replace")).hexdigest()

    def digest(self, input_: Json) -> str:
        """The digest that binds an approval to an input, the tool's parameters, and its server's description."""
        origin, schema = self.options.origin, self.input_schema
        return digest_of(
            self.name, input_, schema if origin is None else [schema, origin.definition]
        )

    def parse(self, input_: Json) -> BaseModel:
        """The typed input; masks of secrets are replaced by the secrets.

        Raises:
            pydantic.ValidationError: the input does not match the model.
        """
        plain = input_ if self.secrets is None else revealed(input_)
        return self.input_type.model_validate_json(dumps(plain))

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name, without ``ctx``.

        Raises:
            TypeError: the function has other parameters.
        """
        assert self.fn is not None
        function, ctx = inspect.signature(self.fn), self._signature.ctx
        parameters = [one for name, one in function.parameters.items() if name != ctx]
        return function.replace(parameters=parameters).bind(*args, **kwargs).arguments

    def typed(self, given: dict[str, Any]) -> Any:
        """The arguments, converted to the types of the parameters.

        Raises:
            pydantic.ValidationError: an argument does not match its type.
        """
        model = self._signature.input_type
        if model is not None:
            return model.model_validate(given["input"])
        typed = self.input_type.model_validate(given)
        return {name: getattr(typed, name) for name in given}

    @property
    def takes_context(self) -> bool:
        """Whether the body has a ``ToolContext`` parameter."""
        return self._signature.ctx is not None

    def arguments(self, typed: BaseModel, ctx: ToolContext | None) -> dict[str, Any]:
        """The keyword arguments of the body."""
        return self._signature.arguments(typed, ctx)

    def check(
        self, pending: PendingInterrupt, resolution: Respond | Restart | Reject
    ) -> Respond | Restart | Reject:
        """The resolution, with its values validated and converted by the tool's types.

        Raises:
            InvalidAnswer: a value does not match the tool; the message and ``errors`` name the fields.
        """
        match resolution:
            case Respond() if pending.kind in ("ask", "later"):  # such an answer has its own type
                return resolution
            case Respond(error=str()):
                return resolution
            case Respond(output=output):
                label = f"answer for {self.name!r}"
                checked = checked_value(output, self.output_adapter, label)
                return resolution.model_copy(update={"output": checked})
            case Restart(input=new_input, data=data):
                if not pending.restartable or self.fn is None:
                    raise InvalidAnswer(
                        f"{self.name!r} has no function to restart. Answer it with respond(value)"
                    )
                input_ = None
                if new_input is not None:
                    input_ = self._checked_input(new_input, pending.input)
                if pending.kind in ("tool", "approval"):  # else the attempt asks for secrets
                    self._check_held(pending.input if input_ is None else input_)
                try:
                    sealed = sealed_json(data)
                except (PydanticSerializationError, TypeError, ValueError) as error:
                    raise InvalidAnswer(
                        f"The restart's data= for {self.name!r} is not JSON: {error}"
                    ) from error
                return resolution.model_copy(update={"input": input_, "data": sealed})
            case Reject():
                return resolution

    def _checked_input(self, new_input: Json, shown: Json) -> dict[str, Any]:
        """The new input, sealed with the masks of the ``shown`` input."""
        checked: dict[str, Any] = freeze(new_input)
        misfit: InvalidAnswer | None = None
        try:
            self.parse(new_input)
            checked = self.sealed(new_input, like=shown)
        except ValidationError as error:
            misfit = invalid(f"The new input does not match the schema of {self.name!r}", error)
        except (TypeError, ValueError) as error:
            misfit = InvalidAnswer(f"The new input for {self.name!r} is not JSON: {error}")
        if misfit is None:
            return checked
        if self.secrets is None:
            raise misfit
        sealed = self.secrets.seal(new_input)  # pydantic's error would contain the secrets
        errors = [{**each, "msg": without_secrets(each["msg"], sealed)} for each in misfit.errors]
        raise InvalidAnswer(without_secrets(str(misfit), sealed), errors=errors)

    def _check_held(self, input_: Json) -> None:
        lost = self.missing_secrets(input_)
        if lost:
            raise InvalidAnswer(
                f"This process does not have the secrets in {', '.join(lost)} of {self.name!r}, because secrets are never "
                "stored. Enter them again, in the form or in the new input of a restart"
            )
