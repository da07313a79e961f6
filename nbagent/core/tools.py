"""Tools: Python functions that a model may call, and what they see of their call."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python
from pydantic_core import to_json as to_json_bytes

from .context import ToolContext
from .errors import InvalidAnswer, ToolError
from .interrupts import PendingInterrupt, Reject, Respond, Restart, restart_of, to_json
from .messages import Json, dumps, freeze
from .model import ToolSpec
from .policy import Approval
from .signature import Signature, signature_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
M_contra = TypeVar("M_contra", bound=BaseModel, contravariant=True)

MAX_TEXT = 8_000
"""Characters of a rich value's text that the model is told."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result whose ``value`` goes to the model while ``display`` is what the person sees."""

    value: Any
    display: Any = None


_ANYTHING: tuple[Any, ...] = (
    inspect.Signature.empty,
    Any,
    ToolResult,
    typing.Never,
    typing.NoReturn,
)
"""Return annotations that say nothing about an answer given in the tool's place."""


class Presenter(Protocol):
    """Makes a mime bundle of a value that shows richer than its JSON, or None."""

    def __call__(self, value: Any, /) -> dict[str, Any] | None:
        """The bundle; never raises."""


class _WithContext(Protocol[M_contra]):
    """A tool whose whole input is one model, with its context."""

    def __call__(self, input: M_contra, ctx: ToolContext) -> Any: ...  # noqa: A002


class _Alone(Protocol[M_contra]):
    """A tool whose whole input is one model."""

    def __call__(self, input: M_contra) -> Any: ...  # noqa: A002


class Tool(Generic[P, R]):
    """A function as a tool: still callable, with a name, a description and an input schema.

    ``fn`` is None for a tool with no body, whose every call waits for an answer.
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
        self.fn = fn
        self.name = name
        self.description = description
        self.options = options
        self._signature = signature
        self.module: str | None = getattr(fn, "__module__", None)
        """Where it was defined: a tool of a notebook's cell may be defined again."""
        if fn is not None:
            functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no tool."""
        if self.fn is None:
            raise ToolError(f"the tool {self.name!r} has no body to call: only a person answers it")
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @overload
    def respond(
        self: Tool[P, Coroutine[Any, Any, T]], interrupt: PendingInterrupt, value: T
    ) -> tuple[PendingInterrupt, Respond]: ...
    @overload
    def respond(
        self: Tool[P, AsyncIterator[T]], interrupt: PendingInterrupt, value: T
    ) -> tuple[PendingInterrupt, Respond]: ...
    @overload
    def respond(
        self: Tool[P, Iterator[T]], interrupt: PendingInterrupt, value: T
    ) -> tuple[PendingInterrupt, Respond]: ...
    @overload
    def respond(
        self: Tool[P, R], interrupt: PendingInterrupt, value: R
    ) -> tuple[PendingInterrupt, Respond]: ...
    def respond(self, interrupt: PendingInterrupt, value: Any) -> Any:
        """An answer for ``generate(tool_responses=[…])``, of the type that the tool returns.

        Raises:
            InvalidAnswer: it is another tool's interrupt, or the value does not fit.
        """
        self._check_own(interrupt)
        return interrupt, self.check(interrupt, Respond(output=value))

    @overload
    def restart(
        self: _WithContext[M_contra],
        interrupt: PendingInterrupt,
        *,
        new_input: M_contra | Mapping[str, Any] | None = None,
        data: Any = None,
    ) -> tuple[PendingInterrupt, Restart]: ...
    @overload
    def restart(
        self: _Alone[M_contra],
        interrupt: PendingInterrupt,
        *,
        new_input: M_contra | Mapping[str, Any] | None = None,
        data: Any = None,
    ) -> tuple[PendingInterrupt, Restart]: ...
    @overload
    def restart(
        self,
        interrupt: PendingInterrupt,
        *,
        new_input: Mapping[str, Any] | None = None,
        data: Any = None,
    ) -> tuple[PendingInterrupt, Restart]: ...
    def restart(
        self, interrupt: PendingInterrupt, *, new_input: Any = None, data: Any = None
    ) -> Any:
        """A restart for ``generate(tool_restarts=[…])``; the new input is of the tool's own model.

        Raises:
            InvalidAnswer: it is another tool's interrupt, or the input does not fit.
        """
        self._check_own(interrupt)
        return interrupt, self.check(interrupt, restart_of(new_input, data))

    def _check_own(self, interrupt: Any) -> None:
        if not isinstance(interrupt, PendingInterrupt):
            raise TypeError(
                f"expected one of response.interrupts, not {type(interrupt).__name__} "
                f"{interrupt!r:.80}"
            )
        if interrupt.tool_name != self.name:
            raise InvalidAnswer(
                f"this is an interrupt of {interrupt.tool_name!r}, not of {self.name!r}"
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
        return self.input_type.model_json_schema()

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """The tool as a model is told about it."""
        return ToolSpec(self.name, self.description, self.input_schema)

    @functools.cached_property
    def output_adapter(self) -> TypeAdapter[Any] | None:
        """Validates an answer given in the tool's place; None where anything goes."""
        if self._signature.output in _ANYTHING:
            return None
        try:
            return TypeAdapter(self._signature.output)
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None  # a DataFrame and its like: no schema, so anything goes

    @functools.cached_property
    def output_schema(self) -> Json:
        """JSON Schema of an answer, or None where anything goes."""
        if self.output_adapter is None:
            return None
        try:
            return self.output_adapter.json_schema()
        except PydanticUserError:
            return None

    def parse(self, input_: Json) -> BaseModel:
        """The typed input.

        Raises:
            pydantic.ValidationError: it does not fit.
        """
        return self.input_type.model_validate_json(dumps(input_))

    def arguments(self, typed: BaseModel, ctx: ToolContext) -> dict[str, Any]:
        """The keyword arguments of the body."""
        return self._signature.arguments(typed, ctx)

    def check(
        self, pending: PendingInterrupt, resolution: Respond | Restart | Reject
    ) -> Respond | Restart | Reject:
        """The resolution with its values as the tool's types have them.

        Raises:
            InvalidAnswer: it does not fit the tool; the message and ``errors`` say where.
        """
        match resolution:
            case Respond() if pending.kind == "ask":  # of the question's own type, not the tool's
                return resolution
            case Respond(output=output):
                what = f"answer for {self.name!r}"
                return Respond(output=checked_value(output, self.output_adapter, what))
            case Restart(input=new_input, data=data):
                if not pending.restartable or self.fn is None:
                    raise InvalidAnswer(
                        f"{self.name!r} has no body to restart here: answer it with respond(value)"
                    )
                checked = None if new_input is None else self._checked_input(new_input)
                return resolution.model_copy(
                    update={"input": checked, "data": self._checked_data(data)}
                )
            case Reject():
                return resolution

    def _checked_input(self, new_input: Json) -> dict[str, Any]:
        try:
            self.parse(new_input)
        except ValidationError as error:
            raise _invalid(f"the new input does not fit {self.name!r}", error) from error
        except (TypeError, ValueError) as error:
            raise InvalidAnswer(f"the new input for {self.name!r} is no JSON: {error}") from error
        checked: dict[str, Any] = freeze(new_input)
        return checked

    def _checked_data(self, data: Any) -> Json:
        try:
            return to_json(data)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise InvalidAnswer(f"the data for {self.name!r} is no JSON: {data!r:.200}") from error


def checked_value(value: Any, adapter: TypeAdapter[Any] | None, what: str) -> Json:
    """A value as the JSON that ``adapter`` makes of it; any JSON without one.

    Raises:
        InvalidAnswer: it is no JSON, or does not fit; ``what`` names it.
    """
    try:
        plain = to_jsonable_python(value)
        text = dumps(plain)
        text.encode()
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise InvalidAnswer(f"the {what} is no JSON: {value!r:.200}") from error
    if adapter is None:
        return freeze(plain)
    try:
        typed = adapter.validate_json(text)
    except ValidationError as error:
        raise _invalid(f"the {what} does not fit", error) from error
    return freeze(adapter.dump_python(typed, mode="json"))


def _invalid(what: str, error: ValidationError) -> InvalidAnswer:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return InvalidAnswer(
        f"{what}: {describe(error)}", errors=[{"loc": e["loc"], "msg": e["msg"]} for e in errors]
    )


def describe(error: ValidationError) -> str:
    """A validation error in one line, without echoing values."""
    items = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in items[:5]
    ) + (f"; and {len(items) - 5} more" if len(items) > 5 else "")


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """How a tool is run."""

    thread: bool = True
    """Whether a sync body runs in a thread of its own; False runs it on the loop's thread."""
    approval: Approval = False
    """Whether a person is asked before it runs, where no rule says otherwise."""
    editable: bool | tuple[str, ...] = False
    """Whether that question's form may change the input."""
    final: bool = False
    """Whether its answer ends the run."""
    inner: Any = None
    """For an agent as a tool: what runs inside (see ``loop.Inner``)."""
    metadata: Any = None
    """For a tool with no body: what its question says, or a (maybe async) function of the input."""
    preview: Callable[[Any], Any] | None = None
    """What running it with an input would do, to be shown above the buttons of its approval."""


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = False,
    editable: bool | Sequence[str] = False,
    final: bool = False,
    thread: bool = True,
    preview: Callable[[Any], Any] | None = None,
    local_names: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(  # noqa: PLR0913 - keyword-only, each a property of the tool
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = False,
    editable: bool | Sequence[str] = False,
    final: bool = False,
    thread: bool = True,
    preview: Callable[[Any], Any] | None = None,
    local_names: dict[str, Any] | None = None,
) -> Any:
    """Make a function a tool, with or without parentheses; it stays callable.

    Args:
        fn: the function; its parameters are the input, its docstring tells the model what it does.
        name: what the model calls it; the function's name by default.
        description: instead of the docstring.
        approval: whether a person is asked before it runs: True, or a predicate on the typed input
            (one that raises asks). Rules of the agent's policy come first.
        editable: whether the form of that question may change the input: True, or names of inputs.
        final: whether the tool's answer ends the run.
        local_names: names that annotations may use besides the function's module; by default those
            of the calling scope.
        thread: False runs a sync body on the event loop's own thread, for objects bound to it.
        preview: a function of the typed input, sync or async, that shows what running would do: what
            it returns (a table, a plot, a text) stands above the buttons where a person approves.

    Raises:
        ToolError: the function's signature cannot be a tool.
    """
    scope = local_names if local_names is not None else sys._getframe(1).f_locals  # noqa: SLF001

    if not (isinstance(approval, bool) or callable(approval)):
        raise ToolError(
            f"approval is True, False or a predicate on the input, not {approval!r:.80}"
        )
    if isinstance(editable, str):
        raise ToolError(f"editable is True, False or a list of input names, not {editable!r:.80}")

    def make(function: Callable[P, R]) -> Tool[P, R]:
        options = ToolOptions(
            thread=thread,
            approval=approval,
            editable=editable if isinstance(editable, bool) else tuple(editable),
            final=final,
            preview=preview,
        )
        return _made(function, scope, name=name, description=description, options=options)

    return make if fn is None else make(fn)


def _made(
    function: Callable[P, R],
    local_names: dict[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    options: ToolOptions,
) -> Tool[P, R]:
    is_function = inspect.isroutine(function)
    if not is_function:
        raise ToolError(f"{function!r:.100} is no function: a tool is made of one")
    made = Tool(
        function,
        name=name or function.__name__,
        description=description if description is not None else inspect.getdoc(function) or "",
        signature=signature_of(function, local_names),
        options=options,
    )
    known = list(made.input_schema.get("properties", {}))  # what no JSON can fill is refused here
    for field in () if isinstance(options.editable, bool) else options.editable:
        if field not in known:
            raise ToolError(
                f"the tool {made.name!r} has no input {field!r} that could be editable; "
                f"its inputs are: {', '.join(known) or 'none'}"
            )
    return made


class AnyInput(BaseModel):
    """The input of a tool that says nothing about it: any JSON object."""

    model_config = ConfigDict(extra="allow", defer_build=True)


@overload
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | None = None,
    output: type[T],
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., T]: ...
@overload
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | None = None,
    output: Any = inspect.Signature.empty,
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., Any]: ...
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | None = None,  # noqa: A002 - the systems this follows say input
    output: Any = inspect.Signature.empty,
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., Any]:
    """A tool with no body: each call waits for a person, and the answer is its result.

    Args:
        name: what the model calls it.
        description: what the model is told it does.
        input: pydantic model of the input; it is shown to the person.
        output: type of an answer; anything by default.
        metadata: what the question says: a value, or a (maybe async) function of the typed input.
            By default the input itself.
        final: whether the answer ends the run.
    """
    made: Tool[..., Any] = Tool(
        None,
        name=name,
        description=description,
        signature=Signature({}, whole=input or AnyInput, output=output),
        options=ToolOptions(metadata=metadata, final=final),
    )
    made.module = sys._getframe(1).f_globals.get("__name__")  # noqa: SLF001 - as a function's
    return made


class Prompted(BaseModel):
    """The input of an agent as a tool."""

    model_config = ConfigDict(defer_build=True)
    prompt: str = Field(description="What the agent is to do.")


def inner_tool(inner: Any, *, name: str, description: str, output: Any) -> Tool[..., Any]:
    """An agent as a tool; ``inner`` is what the driver runs in the body's place."""

    def body(input: Prompted) -> Any:  # noqa: A002 - the systems this follows say input
        raise ToolError(f"the agent {name!r} is run by the agent that has it as a tool: {input!r}")

    return Tool(
        body,
        name=name,
        description=description,
        signature=Signature({}, whole=Prompted, output=output),
        options=ToolOptions(inner=inner),
    )


def as_tool(value: Any, local_names: dict[str, Any]) -> Tool[..., Any]:
    """A tool from a tool or a plain function.

    Raises:
        ToolError: it is neither.
    """
    if isinstance(value, Tool):
        return value
    if inspect.isroutine(value):
        return _made(value, local_names, options=ToolOptions())
    raise ToolError(f"{value!r:.100} is no tool: give a function, or what @nb.tool made of one")


def told(value: Any) -> Json:
    """What the model is told of a result: text as it is, data as JSON, anything else as bounded text."""
    if type(value) in (int, bool, type(None)):
        return value
    if isinstance(value, str):
        return _sendable(str(value))
    try:
        plain = from_json(to_json_bytes(value, inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        text = _sendable(str(value))
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n… ({len(text)} characters)"
    return freeze(plain)


def _sendable(text: str) -> str:
    """The text, with lone surrogates (an undecodable file name has them) written out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
