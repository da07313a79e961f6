"""The parameters of a tool function: its input model, its ``ctx``, its return type."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from nbagent.core.base.errors import ToolError

from .context import ToolContext
from .docstring import described, documented
from .json_schema import SchemaInput, input_model, why_no_schema


class Signature(NamedTuple):
    """The parameters of a function: its input model, its ``ctx``, its return type."""

    parameters: dict[str, tuple[Any, Any]]
    """Name to (annotation, default), without ``ctx``."""
    input_type: type[BaseModel] | None = None
    """The model of a single parameter named ``input``, or of a JSON Schema."""
    ctx: str | None = None
    output: Any = inspect.Signature.empty
    descriptions: dict[str, str] = {}  # noqa: RUF012 - a named tuple's default
    """The descriptions of parameters in the docstring, by name."""
    document: str | None = None
    """With a JSON Schema: the name of the parameter for the whole input; ``**`` for one argument per name."""

    def model(self, tool_name: str) -> type[BaseModel]:
        """The pydantic model of the input.

        Raises:
            ToolError: a parameter's type has no JSON schema.
        """
        if self.input_type is not None:
            return self.input_type
        fields = {
            name: (described(annotation, self.descriptions.get(name)), default)
            for name, (annotation, default) in self.parameters.items()
        }
        try:
            made = create_model(
                f"{tool_name}_input",
                __config__=ConfigDict(
                    extra="forbid", arbitrary_types_allowed=False, allow_inf_nan=False
                ),
                **fields,  # type: ignore[call-overload]
            )
            made.model_json_schema()
        except PydanticUserError as error:
            raise ToolError(self._unfillable(tool_name) or str(error)) from error
        return typing.cast("type[BaseModel]", made)

    def _unfillable(self, tool_name: str) -> str | None:
        """The error for a parameter whose type has no JSON Schema; None if there is none."""
        for name, (annotation, _) in self.parameters.items():
            try:
                TypeAdapter(annotation).json_schema()
            except PydanticUserError as error:
                kind = getattr(annotation, "__name__", annotation)
                return f"{tool_name!r} has a parameter that JSON cannot represent, {name!r} of type {kind}: {why_no_schema(error, 'take')}"
        return None

    def arguments(self, typed: BaseModel, ctx: ToolContext | None) -> dict[str, Any]:
        """Keyword arguments for the function."""
        arguments: dict[str, Any]
        if isinstance(typed, SchemaInput):
            document = typed.document
            arguments = document if self.document == "**" else {str(self.document): document}
        elif self.input_type is not None:
            arguments = {"input": typed}
        else:
            arguments = {name: getattr(typed, name) for name in self.parameters}
        if self.ctx is not None:
            arguments[self.ctx] = ctx
        return arguments


def signature_of(
    fn: Callable[..., Any], local_names: dict[str, Any], schema: dict[str, Any] | None = None
) -> Signature:
    """The signature of a tool function; with a schema, also the parameter for the whole input.

    Raises:
        ToolError: the function has ``*args`` or positional-only parameters, unknown types, or is a method without its
            object.
    """
    name = getattr(fn, "__name__", repr(fn))
    try:
        hints = typing.get_type_hints(fn, localns=local_names, include_extras=True)
    except NameError as error:
        raise ToolError(
            f"The tool {name!r} has an annotation with an unknown name: {error}"
        ) from error
    names = list(inspect.signature(fn).parameters)
    if names and names[0] in ("self", "cls") and names[0] not in hints:
        raise ToolError(
            f"The tool {name!r} is a method without its object. Pass the method of an object, as in "
            f"agent.add(an_object.{name})"
        )
    parameters: dict[str, tuple[Any, Any]] = {}
    ctx: str | None = None
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD and schema is not None:
            parameters["**"] = (Any, ...)
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(
                f"The tool {name!r} takes {parameter}, but a model can only fill named parameters. Make a tool of your own "
                "function that calls it"
            )
        annotation = hints.get(parameter.name, Any)
        if annotation is ToolContext or (parameter.name == "ctx" and parameter.name not in hints):
            ctx = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        parameters[parameter.name] = (annotation, default)
    output = hints.get("return", inspect.Signature.empty)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):  # what it yields
        output = next(iter(typing.get_args(output)), inspect.Signature.empty)
    if schema is not None:
        if len(parameters) != 1:
            raise ToolError(
                f"The tool {name!r} has a schema=, so besides ctx it must take **arguments, or one parameter for the whole "
                f"input. It takes {', '.join(parameters) or 'neither'}"
            )
        (document,) = parameters
        return Signature({}, input_model(schema, name), ctx, output, document=document)
    input_type = parameters["input"][0] if list(parameters) == ["input"] else None
    if not (isinstance(input_type, type) and issubclass(input_type, BaseModel)):
        input_type = None
    descriptions = {} if input_type else documented(fn, parameters).parameters
    return Signature(parameters, input_type, ctx, output, descriptions)
