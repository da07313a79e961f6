"""Defining tools: ``@nb.tool`` on a function, ``nb.interrupt_tool`` for one that only a person answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field

from nbagent.core.base.errors import ToolError
from nbagent.core.base.keywords import caller, checks_keywords
from nbagent.core.base.model import TOOL_NAME, Hosted
from nbagent.core.base.secrets import SecretSchema, schema_has_secret

from .attachments import is_table
from .docstring import documented
from .json_schema import adapter_of, input_model, usable
from .policy import Approval, condition_misfit
from .result_text import MAX_OUTPUT
from .signature import Signature, signature_of
from .tool import MAX_LABEL, Tool, ToolOptions
from .toolbox import ToolSource

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ToolMaker:
    """A decorator that makes a function a tool, with or without parentheses. The function stays callable.

    ``nb.tool`` is a ``ToolMaker``. So is ``agent.tool``, which also adds the tool to the agent.

    Example:
            @agent.tool(approval=True, editable=["euros"], preview=lambda asked: bills.loc[[asked.bill]])
            def pay(bill: int, euros: float) -> str:
                "Pay a bill."
                return f"paid {euros}"

    ``approval=True`` asks a person before the tool runs. ``editable`` names the inputs that the person may
    change first (True for all). The result of ``preview`` for the input (a table, a figure, text) appears above
    the buttons, and is updated after each edit.
    """

    def __init__(self, add: Callable[[Tool[..., Any]], object] | None = None) -> None:
        self._add = add

    def __repr__(self) -> str:
        return "<nb.tool>" if self._add is None else "<tool of an agent>"

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[P, R]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        approval: Approval = False,
        approve_label: str | None = None,
        editable: bool | Sequence[str] = False,
        final: bool = False,
        thread: bool = True,
        idempotent: bool = False,
        preview: Callable[[Any], Any] | None = None,
        max_output: int | None = MAX_OUTPUT,
        schema: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
    @checks_keywords("nb.tool")
    def __call__(  # noqa: PLR0913 - keyword-only, one for each documented option
        self,
        fn: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        approval: Approval = False,
        approve_label: str | None = None,
        editable: bool | Sequence[str] = False,
        final: bool = False,
        thread: bool = True,
        idempotent: bool = False,
        preview: Callable[[Any], Any] | None = None,
        max_output: int | None = MAX_OUTPUT,
        schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a function a tool.

        The model receives the return value: text unchanged, data (lists, dicts, models, dataclasses, dates,
        numpy's scalars and short arrays among them) as JSON, and anything else as bounded text.

        Args:
            fn: the function. Its parameters are the input. Its docstring is the description for the model,
                and may describe parameters (``Args:``, or in NumPy's or Sphinx's style).
            name: the tool's name; the function's name by default.
            description: a description that replaces the docstring.
            approval: True to ask a person before the tool runs, or a condition as in ``nb.allow``. If the
                condition raises, the person is asked. Rules of the agent's policy come first.
            approve_label: the label of the button that approves, a verb with its noun, such as "Send mail".
            editable: True if the approval form may change all inputs, or the names of the inputs that it may change.
            final: True if the tool's answer ends the run.
            thread: False to run a sync body on the thread of the cells, for objects bound to that thread. The body
                waits until no cell computes. Without cells, the body runs on the run's event loop.
            idempotent: True if a second run has no further effect. The tool may then run again after a failure
                (by ``nb.Retry``), or if the process died during a call.
            preview: a function of the typed input, sync or async, that shows the effect of the call. Its
                result (a table, a plot, text) appears above the buttons where a person approves.
            max_output: maximum characters of a result for the model; a longer one is shortened in the middle.
                None for no limit. The whole result is ``run.calls[name][-1].value``.
            schema: a JSON Schema of the input, instead of the function's parameters. The function has
                ``**arguments``, or one parameter for the whole input, and receives plain JSON that matches
                the schema.

        Raises:
            ToolError: the function's signature or an option is not valid, or the agent has a tool of that name.
        """
        scope = caller().f_locals  # annotations may use the caller's local names

        misfit = None if isinstance(approval, bool) else condition_misfit(approval)
        if misfit is not None:
            raise ToolError(f"approval must be True, False or a condition. A condition {misfit}")
        label: Any = approve_label
        if label is not None and not (
            isinstance(label, str) and 0 < len(label.strip()) <= MAX_LABEL
        ):
            raise ToolError(
                f"approve_label must be a text of at most {MAX_LABEL} characters, such as 'Send mail', got {label!r:.80}"
            )
        if isinstance(editable, str):
            raise ToolError(
                f"editable must be True, False or a list of input names, got {editable!r:.80}"
            )
        is_int = isinstance(max_output, int) and not isinstance(max_output, bool)
        if max_output is not None and not (is_int and max_output > 0):
            raise ToolError(
                f"max_output must be a positive number of characters, or None for no limit, got {max_output!r:.80}"
            )
        options = ToolOptions(
            thread=thread,
            approval=approval,
            approve_label=approve_label or "",
            editable=editable if isinstance(editable, bool) else tuple(editable),
            final=final,
            idempotent=idempotent,
            preview=preview,
            max_output=max_output,
        )

        def make(function: Callable[P, R]) -> Tool[P, R]:
            made = _make_tool(
                function,
                scope,
                name=name,
                description=description,
                options=options,
                schema=usable(schema, "schema=", ToolError, as_input=True),
            )
            if self._add is not None:
                self._add(made)
            return made

        return make if fn is None else make(fn)


tool = ToolMaker()


def _make_tool(
    function: Callable[P, R],
    local_names: dict[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    options: ToolOptions,
    schema: Any = None,
) -> Tool[P, R]:
    # a ``functools.partial`` counts as a routine from Python 3.14 on, and has no name
    is_function = inspect.isroutine(function) and hasattr(function, "__name__")
    if not is_function:
        raise ToolError(f"A tool must be made from a function, got {function!r:.100}")
    if name is None and function.__name__ == "<lambda>":
        raise ToolError(
            "A lambda has no name for the model. Pass one, as in nb.tool(name='add')(…)"
        )
    own_name: Any = name or function.__name__
    if not options.flow and not (isinstance(own_name, str) and TOOL_NAME.fullmatch(own_name)):
        raise _bad_name(own_name)
    signature = signature_of(function, local_names, schema)
    own_description = documented(function, signature.descriptions).description
    made = Tool(
        function,
        name=name or function.__name__,
        description=own_description if description is None else description,
        signature=signature,
        options=options,
    )
    # raises if a parameter cannot be filled from JSON
    known = list(made.input_schema.get("properties", {}))
    for field in () if isinstance(options.editable, bool) else options.editable:
        if field not in known:
            raise ToolError(
                f"The tool {made.name!r} has no input {field!r}, so it cannot be editable. Its inputs: {', '.join(known) or 'none'}"
            )
    return made


def _bad_name(name: Any) -> ToolError:
    return ToolError(
        f"A tool name can have letters a to z, digits, _ and -, at most 64, because models' APIs reject "
        f"others; got {name!r:.80}. Pass another, as in nb.tool(name='add')(…)"
    )


class AnyInput(BaseModel):
    """The input of a tool without declared inputs: any JSON object."""

    model_config = ConfigDict(extra="allow", defer_build=True)


@overload
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | Mapping[str, Any] | None = None,
    output: type[T],
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., T]: ...
@overload
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | Mapping[str, Any] | None = None,
    output: Any = inspect.Signature.empty,
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., Any]: ...
@checks_keywords("nb.interrupt_tool")
def interrupt_tool(
    name: str,
    *,
    description: str = "",
    input: type[BaseModel] | Mapping[str, Any] | None = None,  # noqa: A002 - the systems this follows say input
    output: Any = inspect.Signature.empty,
    metadata: Any = None,
    final: bool = False,
) -> Tool[..., Any]:
    """A tool with no body: each call waits for a person, and the answer is its result.

    Example:
            agent = nb.Agent("gpt-5", tools=[nb.interrupt_tool("ask_the_boss", output=str)])

    Args:
        name: the tool's name.
        description: the description for the model.
        input: pydantic model, or JSON Schema, of the input; it is shown to the person.
        output: type, or JSON Schema, of an answer; anything by default.
        metadata: the metadata of the question: a value, or a (maybe async) function of the typed input. By
            default the input itself.
        final: True if the answer ends the run.

    Raises:
        ToolError: an answer would contain a secret, or a schema cannot be used.
    """
    if not TOOL_NAME.fullmatch(name):
        raise _bad_name(name)
    taken = usable(input, "input=", ToolError, as_input=True)
    output = usable(output, "output=", ToolError)
    if isinstance(taken, dict):
        taken = input_model(taken, name)
    if taken is not None and not (isinstance(taken, type) and issubclass(taken, BaseModel)):
        raise ToolError(f"input= must be a pydantic model or a JSON Schema, got {taken!r:.80}")
    made: Tool[..., Any] = Tool(
        None,
        name=name,
        description=description,
        signature=Signature({}, input_type=taken or AnyInput, output=output),
        options=ToolOptions(metadata=metadata, final=final),
    )
    made.module = caller().f_globals.get("__name__")  # like the ``__module__`` of a function
    schema = None
    if output is not inspect.Signature.empty:
        with suppress(Exception):  # a type whose parts are not defined yet
            schema = adapter_of(output).json_schema(schema_generator=SecretSchema)
    if schema_has_secret(schema):
        raise ToolError(
            f"The answer of {name!r} would contain a secret, and the model receives the answer. Ask for the secret "
            "with `await ctx.ask(..., reply=...)` inside a tool, where the model does not see it"
        )
    return made


class Prompted(BaseModel):
    """The input of an agent as a tool."""

    model_config = ConfigDict(defer_build=True)
    prompt: str = Field(description="The task for the agent.")


def inner_tool(inner: Any, *, name: str, description: str, output: Any) -> Tool[..., Any]:
    """An agent as a tool. The driver runs ``inner`` (a ``spec.Inner``) in place of the body."""

    def body(input: Prompted) -> Any:  # noqa: A002 - the systems this follows say input
        raise ToolError(f"Only an agent can call the agent tool {name!r}. Got the input {input!r}")

    return Tool(
        body,
        name=name,
        description=description,
        signature=Signature({}, input_type=Prompted, output=output),
        options=ToolOptions(inner=inner),
    )


def flow_tool(
    function: Callable[P, R],
    local_names: dict[str, Any],
    *,
    name: str | None,
    idempotent: bool,
    thread: bool,
) -> Tool[P, R]:
    """The one tool of a flow: its function, whose answer ends the run."""
    options = ToolOptions(thread=thread, final=True, idempotent=idempotent, flow=True)
    return _make_tool(function, local_names, name=name, options=options)


def as_tool(value: Any, local_names: dict[str, Any]) -> Tool[..., Any]:
    """Return a tool unchanged, or a tool made from a plain function.

    Raises:
        ToolError: ``value`` is neither.
    """
    if isinstance(value, Tool):
        return value
    if inspect.isroutine(value):
        return _make_tool(value, local_names, options=ToolOptions())
    if isinstance(value, Hosted):
        raise ToolError(
            f"{value.name!r} is a hosted tool. Pass it in tools= of nb.Agent or .generate"
        )
    if is_table(value):
        raise ToolError(
            f"A {type(value).__name__} is not a tool. Use nb.notebook_tools(df) for tools that query it"
        )
    if hasattr(value, "as_tool"):
        raise ToolError(f"{value!r:.100} is not a tool. Use its as_tool()")
    if isinstance(value, ToolSource):
        raise ToolError(
            f"{value!r:.200} is an MCP server, not one tool. After it is connected, pass one of its .tools"
        )
    raise ToolError(
        f"{value!r:.100} is not a tool. Pass a function, or the result of @nb.tool{_hint(value)}"
    )


def _hint(value: Any) -> str:
    """A hint for a list, a string or a dict among tools, as the end of a sentence."""
    if isinstance(value, list | tuple):
        return ". Write * before a list of tools, as in tools=[*nb.notebook_tools(df), a_function]"
    if isinstance(value, Mapping):
        if {"mcpServers", "command", "url"} & set(value):
            return ". For the tools of an MCP server, use nb.mcp(config)"
        value = value.get("type")
    if not isinstance(value, str):
        return ""
    if "://" in value or set(value) & set(" /"):
        return ". For the tools of an MCP server, use nb.mcp(…) with its command or URL"
    return f". For a tool of the model's provider, use nb.hosted({value!r:.40})"
