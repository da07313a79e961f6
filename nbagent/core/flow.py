"""Flows: a user's function as a run, without a model, with questions, steps and a card."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from .arguments import (
    checked_budget,
    checked_list,
    checked_middleware,
    checked_rules,
    checked_store,
)
from .base.controls import escaped
from .base.errors import ToolError, UsageError
from .base.keywords import caller, checks_keywords
from .base.messages import INSTEAD, message
from .base.origin import PersonsAttribute
from .base.secrets import plain_json
from .journal.default import StoreLike, current_store
from .journal.journal import Journal
from .journal.store import Store
from .registry import register
from .run.result import Result
from .run.run import Run
from .run.scripted_answers import Answers
from .run.start import Options, follow_stored, launch, launch_and_wait
from .tools.define import as_tool, flow_tool
from .tools.middleware import Middleware
from .tools.policy import Rule
from .tools.result_text import describe
from .tools.spec import BodySettings, Budget, RunSpec, new_id
from .tools.tool import Tool
from .tools.toolbox import Toolbox, ToolSource, toolbox

P = ParamSpec("P")
R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """The options of ``Flow.with_options``, as in ``Agent.run``."""

    store: StoreLike | None
    answers: Answers
    attended: bool | None
    show: bool
    on_rerun: Literal["cancel", "keep"]
    context: Any
    nested: bool
    background: bool
    id: str | None


class Flow(Generic[P, R]):
    """A function that runs like an agent, without a model: with a card, questions and stored steps.

    Made by ``nb.flow``. A stored run can continue after a restart of the process. The flow can still be called as a
    plain function.
    """

    policy: list[Rule] = cast("list[Rule]", PersonsAttribute())
    middleware: list[Middleware] = cast("list[Middleware]", PersonsAttribute())
    budget: Budget = cast("Budget", PersonsAttribute())
    tools: Toolbox = cast("Toolbox", PersonsAttribute())

    def __init__(
        self,
        tool: Tool[P, R],
        options: Options,
        *,
        tools: Iterable[Tool[..., Any] | ToolSource],
        policy: Any,
        middleware: Any,
        budget: Any,
    ) -> None:
        self.name = tool.name
        self.tools = toolbox(tools)
        if self.name in self.tools:
            raise ToolError(
                f"{self.name!r} is the name of the flow itself. Use another name for the tool"
            )
        self.policy = checked_rules(policy)
        self.middleware = checked_middleware(middleware)
        self.budget = checked_budget(budget)
        self._tool = tool
        self._options = options
        self._store = options.store
        self.__doc__ = tool.__doc__
        self.__name__ = self.name
        register(self)

    def __repr__(self) -> str:
        return escaped(f"<Flow {self.name}>")

    def _repr_html_(self) -> str:
        """The description, the tools and which of them ask, the rules and the budget."""
        from .tools.overview import settings, table  # noqa: PLC0415 - only where one is displayed

        about = {"about": [self._tool.description.partition("\n")[0]]}
        return table(
            f"Flow {self.name}", {**about, **settings(self.tools, self.policy, self.budget)}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        register(self)

    @property
    def store(self) -> Store:
        """The store for new runs: the ``store=`` argument, or the default store when a run starts."""
        return current_store() if self._store is None else self._store

    @store.setter
    def store(self, store: StoreLike | None) -> None:
        self._store = checked_store(store)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly: nothing is stored, and no person is asked.

        Raises:
            TypeError: the arguments are wrong, or the function needs the ``ctx`` that only a run passes.
        """
        try:
            inspect.signature(self._tool).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{self.name}(): {error}. To run it as a flow, use {self.name}.run(…)"
            ) from None
        return self._tool(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Run:
        """Start a run. In a notebook, its card appears in the cell.

        Pass the function's arguments, without its ``ctx``. They are stored with the run, so they must be
        JSON, or of a type that pydantic can turn into JSON.

        Raises:
            TypeError: the function has other parameters.
            UsageError: the arguments do not match the function's types, or cannot be stored.
        """
        return launch(self._spec(), None, self._start_options(args, kwargs))

    def run_sync(self, *args: Any, **kwargs: Any) -> Result:
        """Run the flow and return the result. For code that cannot ``await``: a cell, a script or a thread.

        Has the arguments of ``run``, and raises what ``await run`` raises.
        """
        return launch_and_wait(self._spec(), None, self._start_options(args, kwargs))

    def with_options(self, **options: Unpack[RunOptions]) -> Flow[P, R]:
        """Return a copy of this flow, with these options for its runs: ``clean.with_options(answers=[…]).run(…)``.

        Args:
            options: ``store``, ``answers``, ``attended``, ``show``, ``on_rerun``, ``context``,
                ``background``, ``id``, as for ``Agent.run``. ``nested=False``: a run started in a tool is a
                separate run.
        """
        known = RunOptions.__optional_keys__
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(f"with_options takes {', '.join(sorted(known))}, got {unknown[0]!r}")
        given: dict[str, Any] = {**options}
        if "store" in given:  # may be a path or URL
            given["store"] = checked_store(given["store"])
        return Flow(
            self._tool,
            replace(replace(self._options, store=self._store), **given),
            tools=[*self.tools.values(), *self.tools.sources],
            policy=self.policy,
            middleware=self.middleware,
            budget=self.budget,
        )

    def as_tool(self) -> Tool[P, R]:
        """Return this flow as a tool, for an agent or ``ctx.call``. Its steps and questions belong to the tool's call.

        The flow's rules, middleware and budget still apply to the tools that the flow calls. The agent's rules
        apply after the flow's rules, so the flow cannot allow what the agent denies.
        """
        made = copy(self._tool)
        own = BodySettings(self.policy, self.middleware, self.budget)
        made.options = made.options._replace(flow=False, final=False, body_settings=own)
        return made

    # --- inside

    def _open_stored(self, journal: Journal, **options: Any) -> Run:
        """Return a handle for the run of a stored journal; see ``nb.open_run``."""
        return follow_stored(self._spec(), journal, Options(**options))

    def _spec(self) -> RunSpec:
        """The settings of a run."""
        return RunSpec(
            agent=self.name,
            model=None,
            tools=toolbox([self._tool, *self.tools.values(), *self.tools.sources]),
            raise_errors=True,
            policy=self.policy,
            middleware=self.middleware,
            budget=self.budget,
        )

    def _start_options(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Options:
        """The options of a run that starts with a call of the function with this input."""
        call = {
            "type": "tool_call",
            "id": f"call_{new_id()}",
            "name": self.name,
            "input": self._input(args, kwargs),
            "nbagent": {"final": True},
        }
        return replace(self._options, store=self.store, messages=[message("assistant", call)])

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        tool = self._tool
        try:
            given = tool.bound(args, kwargs)
        except TypeError as error:
            option = next((name for name in kwargs if name in RunOptions.__optional_keys__), None)
            hint = (
                option
                and f". This is a run option: use {self.name}.with_options({option}=…).run(…)"
            )
            hint = hint or getattr(tool.fn, "hint", "")  # of nb.watch
            raise TypeError(f"{self.name}(): {error}{hint}") from None
        try:
            plain = plain_json(tool.typed(given))
            tool.parse(plain)
        except ValidationError as error:
            raise UsageError(
                f"The arguments of the flow {self.name!r} do not match its types: {describe(error)}"
            ) from None
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise UsageError(
                f"The arguments of the flow {self.name!r} are stored with its run, so they must be JSON: {INSTEAD} "
                f"({error})"
            ) from error
        return cast("Mapping[str, Any]", tool.sealed(plain))


def own_call(named: Any) -> Any:
    """A tool for rules to name, if this is the name of a tool whose calls the function runs itself; else unchanged."""
    if not isinstance(named, str) or re.fullmatch(r"[\w.-]+", named) is None:
        return named
    from .call.own_loop import approval_of  # noqa: PLC0415 - few flows have a loop of their own

    return approval_of(named, {}, None, message="", editable=False, schema=None)


@overload
def flow(fn: Callable[P, R], /) -> Flow[P, R]: ...
@overload
def flow(
    *,
    name: str | None = None,
    store: StoreLike | None = None,
    tools: Iterable[Tool[..., Any] | ToolSource | Callable[..., Any] | str] = (),
    policy: Iterable[Rule] | Rule = (),
    middleware: Iterable[Middleware] = (),
    budget: Budget | None = None,
    idempotent: bool = False,
    thread: bool = True,
) -> Callable[[Callable[P, R]], Flow[P, R]]: ...
@checks_keywords("nb.flow")
def flow(  # noqa: PLR0913 - keyword-only, one for each documented option
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    store: StoreLike | None = None,
    tools: Iterable[Tool[..., Any] | ToolSource | Callable[..., Any] | str] = (),
    policy: Iterable[Rule] | Rule = (),
    middleware: Iterable[Middleware] = (),
    budget: Budget | None = None,
    idempotent: bool = False,
    thread: bool = True,
) -> Any:
    """Make a function a flow: ``await clean.run("data.csv")`` runs it with a card, questions and steps.

    Example:
            @nb.flow
            async def clean(path: str, ctx: nb.ToolContext) -> str:
                keep = await ctx.ask(nb.Choose("Keep which?", choices=["name", "age"], multiple=True))
                return await ctx.step("write", lambda: write(path, keep))

    A question (``ctx.ask``) is a form in the cell. After a restart, continue the run with
    ``nb.open_run(run_id, agent=clean)``. The function then runs again from its beginning. Earlier answers and
    ``ctx.step`` values return at once.

    Args:
        fn: the function, sync or async. If it has a ``ctx`` parameter, it receives a ``ToolContext``.
        name: the name that people read; the function's name by default.
        store: the store for runs; by default the one of ``nb.use_store``, or this process's memory.
        tools: the tools that the function calls with ``ctx.call``, if rules or ``answers=`` name them; also the names of
            tools for which it uses ``ctx.approve``. To call a tool of an MCP server, pass ``server.tools["name"]`` to
            ``ctx.call``.
        policy: rules for the tools that the function calls. No rule applies to the flow itself, because a
            person started it.
        middleware: middleware around the function's tool calls, the outermost first.
        budget: a shared limit for the agents that the function calls.
        idempotent: True if a second run has no further effect. If the process died, the run then continues
            without a question. Otherwise a person is asked first.
        thread: False to run a sync function on the thread of the cells, as for ``Agent.tool``.

    Raises:
        ToolError: a function with this signature cannot be a flow.
    """
    local_names = caller().f_locals  # annotations may use the caller's local names
    called = [
        one if isinstance(one, ToolSource) else as_tool(own_call(one), local_names)
        for one in checked_list("tools", tools, "[a_tool]")
    ]

    def make(function: Callable[P, R]) -> Flow[P, R]:
        made = flow_tool(function, local_names, name=name, idempotent=idempotent, thread=thread)
        options = Options(store=checked_store(store))
        return Flow(
            made, options, tools=called, policy=policy, middleware=middleware, budget=budget
        )

    return make if fn is None else make(fn)
