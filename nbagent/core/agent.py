"""Agents: a model, its instructions and tools, run live or step by step."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from nbagent.core.base.awaited import awaited

from .arguments import (
    checked_budget,
    checked_list,
    checked_middleware,
    checked_rules,
    checked_store,
    checked_text,
    checked_turns,
)
from .base.controls import escaped
from .base.errors import ToolError, UsageError, suggest
from .base.interrupts import PendingInterrupt, Reject, Respond, Restart
from .base.keywords import caller, checks_keywords
from .base.memory import Remembered
from .base.messages import load
from .base.model import Hosted, Model
from .base.origin import PersonsAttribute
from .chat import Chat, Thread, checked_starters
from .engine.driver import Driver, fetch_tools_of_questions
from .engine.runs import StartedRuns
from .hooks import hooks
from .journal.default import StoreLike, current_store
from .journal.journal import Journal, RunEvent
from .journal.store import Store
from .registry import register
from .run.answers import interrupts_of
from .run.generate import (
    Pending,
    Response,
    RunPending,
    add_message,
    replies_of,
    response_of,
    settle,
)
from .run.host import current_host, is_attended
from .run.nested import generated_inside, run_inside, runs_of_body
from .run.result import Result
from .run.run import Run
from .run.scripted_answers import Answers
from .run.start import Options, check_pending, follow_stored, launch, launch_and_wait
from .state.pause_record import restore
from .state.state import EMPTY_STATE
from .tools.attachments import Prompt, prompt_content
from .tools.define import ToolMaker, as_tool, inner_tool
from .tools.hosted import check_hosted
from .tools.instructions import Instructions, checked_instructions, described
from .tools.json_schema import usable
from .tools.kept_history import History, checked_history
from .tools.middleware import Middleware
from .tools.policy import Rule
from .tools.rule_check import check_rules
from .tools.spec import (
    MAX_CALLS,
    MAX_QUESTIONS,
    Budget,
    Inner,
    RunSpec,
    as_started,
    check_cost,
    new_id,
)
from .tools.tool import Tool
from .tools.toolbox import Toolbox, ToolSource, toolbox

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=ToolSource)


class _OwnTools:
    """The descriptor of ``agent.tool``. With a property, ``agent.tool?`` in a notebook would not show the options."""

    def __get__(self, agent: Agent | None, _owner: type[Agent]) -> ToolMaker:
        return ToolMaker() if agent is None else ToolMaker(agent.add)


class Agent:
    """A model with instructions and tools.

    Example:
            agent = nb.Agent("gpt-5", instructions="Answer with numbers.", tools=nb.notebook_tools(sales))

    Args:
        model: a ``Model``, a model name such as ``"gpt-5"``, or ``"demo"`` (needs no key).
        name: the name that people read, on the run card for example.
        instructions: the system prompt, or a function that returns it for each request to the model. The
            function receives the run (``nb.RunView``), and can be async.
        history: what the model receives of a long conversation: ``nb.keep(tokens=100_000)``, or a function
            (maybe async) that receives the messages and returns those to send. By default it receives all.
        tools: tools, plain functions, or servers of tools (``nb.mcp``), which a run connects when it needs
            them; and tools that the model's provider runs itself (``nb.hosted``).
        max_turns: maximum number of model answers before a person is asked whether to continue.
        max_calls: maximum number of calls in one model response that are run. The model receives an error for
            the others.
        max_questions: maximum number of open questions in one turn, including those of inner agents. A call
            that asks beyond this limit fails, and the model receives the reason.
        output_type: a type, or a JSON Schema, that the final answer must match; see ``result.output``.
            ``str`` is plain text.
        output_retries: number of times in a row that an answer of the wrong type is returned to the model,
            with the error. Then the run fails; ``run.retry()`` asks the model again.
        policy: rules that allow, review or deny calls (``nb.allow``, ``nb.review``, ``nb.deny``). The first
            matching rule decides; without a match, the tool's own ``approval=`` does.
        middleware: middleware around tool calls, the outermost first.
        budget: limits on tokens, cost and time of a run, in addition to turns.
        on_tool_error: ``"report"`` returns a tool's error to the model as the result of the call; ``"raise"``
            fails the run.
        store: the store for runs; by default the one of ``nb.use_store``, or this process's memory.
    """

    policy: list[Rule] = cast("list[Rule]", PersonsAttribute())
    middleware: list[Middleware] = cast("list[Middleware]", PersonsAttribute())
    budget: Budget = cast("Budget", PersonsAttribute())
    remembered: list[Remembered] = cast("list[Remembered]", PersonsAttribute())
    """Approvals that a person chose to remember in every run. Remove one to be asked again."""
    tools: Toolbox = cast("Toolbox", PersonsAttribute())

    @checks_keywords("nb.Agent")
    def __init__(  # noqa: PLR0913 - the product's front door, keyword-only
        self,
        model: str | Model,
        *,
        name: str = "agent",
        instructions: Instructions = None,
        history: History = None,
        tools: Iterable[Tool[..., Any] | ToolSource | Callable[..., Any] | Hosted] = (),
        max_turns: int = 20,
        max_calls: int = MAX_CALLS,
        max_questions: int = MAX_QUESTIONS,
        output_type: Any = None,
        output_retries: int = 2,
        policy: Iterable[Rule] | Rule = (),
        middleware: Iterable[Middleware] = (),
        budget: Budget | None = None,
        on_tool_error: Literal["report", "raise"] = "report",
        store: StoreLike | None = None,
    ) -> None:
        self.name = checked_text("name", name)
        self.model = _model(model)
        self.instructions = checked_instructions(instructions)
        self.history = history if history is None else checked_history(history)
        self.max_turns = checked_turns(max_turns)
        self.max_calls = checked_turns(max_calls, "max_calls")
        self.max_questions = checked_turns(max_questions, "max_questions")
        self.output_type = usable(output_type, "output_type=", UsageError)
        self.output_retries = checked_turns(output_retries, "output_retries", least=0)
        if on_tool_error not in ("report", "raise"):
            raise UsageError(f"on_tool_error must be 'report' or 'raise', got {on_tool_error!r}")
        self.policy = checked_rules(policy)
        self.middleware = checked_middleware(middleware)
        self.budget = checked_budget(budget)
        self.remembered = []
        self.on_tool_error = on_tool_error
        self._store: Store | None = checked_store(store)
        self.tools = Toolbox()
        self.hosted: dict[str, Hosted] = {}
        """Tools that the model's provider runs itself, by name."""
        self._added: dict[str, tuple[Tool[..., Any], tuple[str, str]]] = {}
        """Tools that cells added, by name, with the cell and its execution."""
        self._last_spec: RunSpec | None = None
        self._cached_tool: tuple[str, Tool[..., Any]] | None = None
        local_names = caller().f_locals  # annotations may use the caller's local names
        for one in checked_list("tools", tools, "[a_function, a_tool]"):
            if isinstance(one, Hosted):
                self._refuse_second(one.name, {**self.tools, **self.hosted})
                self.hosted[one.name] = one
            elif isinstance(one, ToolSource):
                self.add(one)
            else:
                made = as_tool(one, local_names)
                self._refuse_second(made.name, self.tools)  # a list has each name only once
                self.add(made)
        check_hosted(self.model, self.hosted.values(), self.policy)
        register(self)

    def __repr__(self) -> str:
        return escaped(f"<Agent {self.name} on {self.model.name}>")

    def _repr_html_(self) -> str:
        """The model, the tools and which of them ask, the rules and the budget."""
        from .tools.overview import settings, table  # noqa: PLC0415 - only where one is displayed

        servers = (source.name for source in self.tools.sources)
        rows = {"model": [self.model.name], **settings(self.tools, self.policy, self.budget)}
        more = {
            "servers": servers,
            "hosted tools": self.hosted,
            "turns": [f"at most {self.max_turns}"],
        }
        return table(f"Agent {self.name}", {**rows, **more})

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, without this process's cells and runs."""
        return {**self.__dict__, "_added": {}, "_last_spec": None, "_cached_tool": None}

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

    # --- tools

    @overload
    def add(self, one: Tool[P, R] | Callable[P, R]) -> Tool[P, R]: ...
    @overload
    def add(self, one: S) -> S: ...
    def add(self, one: Any) -> Any:
        """Register a tool, or a server of tools.

        If a notebook cell runs again, it replaces the tools that it added before, even if they were renamed. If
        two tools defined in ``__main__`` have the same name, the later one replaces the earlier one.

        Raises:
            ToolError: another tool has that name.
        """
        if isinstance(one, ToolSource):
            self.tools.add_source(one)
            return one
        made = as_tool(one, caller().f_locals)
        self._refuse_second(made.name, self.hosted)
        known = self.tools.get(made.name)
        if known is not None and known is not made and not (_in_main(known) and _in_main(made)):
            raise ToolError(f"{self!r} already has a tool {made.name!r}")
        self._forget_earlier(made)
        self.tools[made.name] = made
        return made

    def _forget_earlier(self, new: Tool[..., Any]) -> None:
        """Remove the tools that an earlier execution of the same cell added."""
        cell = current_host().cell() if _in_main(new) else None
        if cell is not None:
            for name, (tool, added) in list(self._added.items()):
                if added[0] == cell[0] and added[1] != cell[1]:
                    del self._added[name]
                    if self.tools.get(name) is tool:
                        del self.tools[name]
            self._added[new.name] = (new, cell)

    def _refuse_second(self, name: str, known: Mapping[str, object]) -> None:
        """Raise if the name is taken: rules could not distinguish a function from a hosted tool of that name."""
        if name in known:
            raise ToolError(f"{self!r} already has a tool {name!r}")

    tool = _OwnTools()
    """A decorator that makes a function a tool of this agent: ``nb.tool`` and ``add`` in one."""

    @checks_keywords("agent.as_tool")
    def as_tool(self, *, name: str | None = None, description: str = "") -> Tool[..., Any]:
        """Return this agent as a tool of another agent. Its input is a prompt, and its result is the agent's answer.

        The agent's questions appear on the outermost run, with the path to the agent. If the run is continued,
        the agent's finished calls are not repeated.

        Args:
            name: the tool's name; the agent's name by default.
            description: the tool's description for the outer model; the instructions by default.
        """
        spec = partial(self._spec, self.tools)
        return self._inside(self.tools, spec, name=name, description=description)

    def _inside(
        self,
        tools: Mapping[str, Tool[..., Any]],
        spec: Callable[[], RunSpec],
        *,
        name: str | None = None,
        description: str = "",
    ) -> Tool[..., Any]:
        return inner_tool(
            Inner(tools, spec, self.remembered),
            name=name or re.sub(r"[^\w.:/-]+", "_", self.name),
            description=description or described(self.instructions),
            output=str if self.output_type is None else self.output_type,
        )

    def _tool_inside(self) -> Tool[..., Any]:
        """This agent as a tool that a body starts; cached, because ``started_by_bodies`` holds it weakly."""
        known = self._cached_tool
        if known is None or known[0] != self.name:
            known = self._cached_tool = (self.name, self.as_tool())
        return known[1]

    # --- live

    @checks_keywords("agent.run")
    def run(  # noqa: PLR0913 - keyword-only, one for each documented part
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        after: Run | None = None,
        pending: RunPending = "wait",
        store: StoreLike | None = None,
        answers: Answers = None,
        attended: bool | None = None,
        show: bool = True,
        on_rerun: Literal["cancel", "keep"] = "cancel",
        context: Any = None,
        nested: bool = True,
        background: bool = False,
        id: str | None = None,  # noqa: A002 - the word that people look for
    ) -> Run:
        """Start a run. In a notebook, its card appears in the cell.

        Example:
                run = agent.run("Which of these is overdue?", after=earlier)
                result = await run

        Args:
            prompt: the task: text, or a list of texts and files (figures, images, arrays, paths, tables,
                ``nb.File``), such as ``["What is odd here?", figure]``. Optional if ``messages`` has open
                calls.
            messages: a history to continue, such as ``run.messages`` or ``response.messages``. Its open
                questions are asked again.
            after: the run whose conversation the new run continues.
            pending: what to do if the ``after`` run has not ended. ``"wait"`` (default): start when that run
                ends; if it fails or is cancelled, the new run ends in the same way. ``"raise"``: raise an
                error. ``"reject"``: reject that run's questions and stop it. ``"queue"``: send the prompt in
                that run after its open calls, and return that run. With ``messages``: as in ``generate``.
            store: the store for the run; the agent's by default.
            answers: answers for a run without a person: a list in order, a dict by tool name, or a function
                of the interrupt. Not used if forms are shown: in a notebook, also pass ``show=False``.
            attended: True if a person can answer; detected by default.
            show: True to show the card at once.
            on_rerun: what to do with a waiting run that this cell started earlier: ``"cancel"`` (default) or
                ``"keep"`` it.
            context: any object, for tools (``ctx.context``) and conditions. It is not stored.
            nested: True: if a tool's body starts this run, it belongs to the tool's call: the outermost run stores,
                shows and cancels it, and asks its questions. False: it is separate.
            background: True if the run continues, and accepts answers in forms, while a cell computes. It uses
                an event loop in its own thread. Tools with ``thread=False`` wait for the main thread; see
                ``docs/threads.md``.
            id: a name for the run. If the store already has a run with this name, that run is opened and
                nothing is repeated; the prompt is then optional.

        Raises:
            UnansweredInterrupts: there is a prompt, but the history or the ``after`` run has questions; see
                ``pending``.
            RunNotFinished: the ``after`` run has not ended, and ``pending`` is ``"raise"``.
            UsageError: there is nothing to do, ``messages`` is not a history, or the run with this ``id`` has
                another prompt.
        """
        given = Options(
            after,
            pending,
            None,
            answers,
            attended,
            show,
            on_rerun,
            messages,
            context,
            nested,
            background,
            id,
        )
        return launch(
            self._spec(self.tools), prompt, self._with_store(given, store), self._tool_inside
        )

    @checks_keywords("agent.run_sync")
    def run_sync(  # noqa: PLR0913 - keyword-only, one for each documented part
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        after: Run | None = None,
        pending: RunPending = "wait",
        store: StoreLike | None = None,
        answers: Answers = None,
        attended: bool | None = None,
        show: bool = True,
        on_rerun: Literal["cancel", "keep"] = "cancel",
        context: Any = None,
        nested: bool = True,
        id: str | None = None,  # noqa: A002 - the word that people look for
    ) -> Result:
        """Run the agent and return the result. For code that cannot ``await``: a cell, a script or a thread.

        Example:
                print(agent.run_sync("Pay the bill", answers={"pay": True}).text)

        Has the arguments of ``run``, and raises what ``await run`` raises.
        """
        given = Options(
            after,
            pending,
            None,
            answers,
            attended,
            show,
            on_rerun,
            messages,
            context,
            nested,
            id=id,
        )
        stored = self._with_store(given, store)
        return launch_and_wait(self._spec(self.tools), prompt, stored, self._tool_inside)

    def _with_store(self, options: Options, store: Any) -> Options:
        """The options with this store, or with the agent's, if ``store`` is None."""
        if store is None:
            return replace(options, store=self.store)
        if runs_of_body(nested=options.nested) is not None:
            raise UsageError(
                "A run that a tool starts is stored with the outer run. Leave out store=, or pass nested=False"
            )
        return replace(options, store=checked_store(store))

    async def _know_tools(self, journal: Journal) -> None:
        """Load the tools of a journal's open questions, if they are on a server."""
        if journal.state.outcome is None:
            await fetch_tools_of_questions(self._spec(self.tools), journal.state)

    def _open_stored(self, journal: Journal, **options: Any) -> Run:
        """Return a handle for the run of a stored journal; see ``nb.open_run``."""
        return follow_stored(self._spec(self.tools), journal, Options(**options))

    @checks_keywords("agent.chat")
    def chat(  # noqa: PLR0913 - keyword-only, one for each documented part
        self,
        prompt: Prompt | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word that people look for
        store: StoreLike | None = None,
        after: Run | None = None,
        answers: Answers = None,
        attended: bool | None = None,
        show: bool = True,
        context: Any = None,
        starters: Sequence[str] = (),
    ) -> Chat:
        """Open a chat: one live card with a message box. Each message starts a run that continues the conversation.

        Example:
                chat = agent.chat(id="bills", store="runs.db")

        Args:
            prompt: the first message, as in ``run``. It is not sent if the chat already has messages.
            id: a name for the chat. If the store already has a chat with this name, that chat is opened and
                continues. Without an id, the chat is new.
            store: the store for its runs; the agent's by default.
            after: a run whose conversation the chat continues.
            answers: as in ``run``, for every run of the chat.
            attended: True if a person can answer; detected by default.
            show: True to show the card at once.
            context: as in ``run``, for every run of the chat.
            starters: first messages that the empty card offers as buttons.

        Raises:
            UsageError: the id or another option is invalid.
            StoreError: the stored chat cannot be read.
        """
        place = self.store if store is None else checked_store(store)
        host = current_host()
        is_detected = attended is None and not host.attended()
        attended = is_attended(host, attended=attended, answers=answers, show=show)
        options = Options(
            after=after,
            answers=answers,
            attended=None if is_detected else attended,
            show=False,
            context=context,
        )
        spec = partial(self._spec, self.tools)
        options.check(spec())
        thread = Thread(spec, options, place, id)
        thread.starters = checked_starters(starters)
        chat = Chat(thread)
        if prompt is not None and thread.count == 0:
            chat.send(prompt)
        if show and attended:
            host.show_chat(chat)
        return chat

    # --- step by step

    @awaited("agent.generate")
    @checks_keywords("agent.generate")
    async def generate(  # noqa: PLR0913 - keyword-only, one for each documented part
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        tools: Sequence[Tool[..., Any] | ToolSource | Callable[..., Any] | Hosted | str]
        | None = None,
        tool_responses: Sequence[Respond] = (),
        tool_restarts: Sequence[Restart] = (),
        tool_rejections: Sequence[Reject] = (),
        partial: bool = False,
        pending: Pending = "raise",
        return_tool_calls: bool = False,
        max_turns: int | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        context: Any = None,
        nested: bool = True,
    ) -> Response:
        """Run until the agent needs an answer or is done, and return a response.

        Example:
                response = await agent.generate("Plan a dinner")
                replies = [nb.tool_response(asked, "Italian") for asked in response.interrupts]
                response = await agent.generate(messages=response.messages, tool_responses=replies)

        Args:
            prompt: a new user message; as in ``run``.
            messages: the history to continue, such as ``response.messages``.
            tools: tools, or names of registered ones; by default all registered tools.
            tool_responses: results of ``tool_response``, for interrupts of ``messages``; or
                ``nb.Respond(value, interrupt=i)``.
            tool_restarts: results of ``tool_restart``.
            tool_rejections: results of ``tool_rejection``.
            partial: True if some interrupts may stay unanswered for now.
            pending: what to do if there is a new prompt and ``messages`` has open interrupts. ``"raise"``
                (default): raise an error. ``"reject"``: reject the interrupts first. ``"queue"``: store the
                prompt in the messages, and send it after the tool results.
            return_tool_calls: True to stop at tool calls instead of running them.
            max_turns: a limit that replaces the agent's limit.
            on_event: a function that receives every event and delta as it happens.
            context: as in ``run``.
            nested: True: a prompt sent in a tool's body belongs to the tool's call, as in ``run``.
                ``generate`` then returns when the answer is complete, and questions appear on the outermost run.

        Raises:
            UsageError: there is nothing to do, or an answer is invalid; nothing ran.
            RunError: the model or a tool failed; ``error.messages`` is the history to continue.
        """
        spec = as_started(self._chosen(tools, caller().f_locals))
        if context is not None:
            spec = replace(spec, context=context)
        check_rules(spec, self.tools)
        check_cost(spec)
        if pending != "raise":
            check_pending(pending)
        limit = self.max_turns if max_turns is None else checked_turns(max_turns)
        state = restore(load(messages)) if messages else EMPTY_STATE
        replies = replies_of(tool_responses, tool_restarts, tool_rejections)
        if prompt is not None and replies:
            raise UsageError(
                "Got both a prompt and answers. Send the answers first, then the prompt"
            )
        runs = runs_of_body(nested=nested)
        is_new = prompt is not None and not state.calls and pending == "raise"
        if runs is not None and is_new and not return_tool_calls and not replies:
            inner_spec = replace(spec, max_turns=limit)
            tool = self._inside(inner_spec.tools, lambda: inner_spec)
            text = prompt_content(prompt)
            return await generated_inside(
                run_inside(runs, tool, inner_spec, text, state.messages), on_event
            )
        state = replace(state, limit=limit, at=spec.clock())
        journal = Journal(new_id(), None, state)
        if on_event is not None:
            journal.subscribe(on_event)
        if prompt is not None:
            add_message(journal, spec, prompt_content(prompt), pending)
        else:
            await fetch_tools_of_questions(spec, state)
            settle(journal, spec, replies, partial=partial)
        driver = Driver(spec, journal, live=False, runs=StartedRuns)
        driving = driver.drive(one_response=return_tool_calls)
        for wrap in hooks.generates:
            driving = wrap(journal, spec, driving)
        await driving
        return response_of(journal.state, spec)

    def interrupts(self, messages: Sequence[Mapping[str, Any]]) -> list[PendingInterrupt]:
        """The open interrupts of a history, such as one that was stored as JSON."""
        return interrupts_of(restore(load(messages)), self.tools, self.name)

    # --- inside

    def _spec(self, tools: Mapping[str, Tool[..., Any]]) -> RunSpec:
        """The settings of a run; the previous object if nothing changed."""
        spec = RunSpec(
            agent=self.name,
            model=self.model,
            tools=tools,
            hosted=tuple(self.hosted.values()),
            instructions=self.instructions,
            history=self.history,
            max_turns=self.max_turns,
            max_calls=self.max_calls,
            max_questions=self.max_questions,
            raise_errors=self.on_tool_error == "raise",
            output_type=self.output_type,
            output_retries=self.output_retries,
            policy=self.policy,
            remembered=self.remembered,
            middleware=self.middleware,
            budget=self.budget,
        )
        last = self._last_spec
        if last is not None and last.tools is tools and last == spec:
            return last
        self._last_spec = spec
        return spec

    def _chosen(self, tools: Sequence[Any] | None, local_names: dict[str, Any]) -> RunSpec:
        """The settings with only these tools."""
        if tools is None:
            return self._spec(self.tools)
        given = checked_list("tools", tools, "[a_function, 'a_registered_name']")
        found = [self._named(one) if isinstance(one, str) else one for one in given]
        chosen = toolbox(
            one if isinstance(one, ToolSource) else as_tool(one, local_names)
            for one in found
            if not isinstance(one, Hosted)
        )
        return replace(self._spec(chosen), hosted=tuple(h for h in found if isinstance(h, Hosted)))

    def _named(self, name: str) -> Tool[..., Any] | Hosted:
        registered: dict[str, Tool[..., Any] | Hosted] = {**self.tools, **self.hosted}
        if name not in registered:
            known = ", ".join(sorted(registered)) or "none"
            hint = suggest(name, registered)
            raise ToolError(f"{self!r} has no tool {name!r}. Available: {known}{hint}")
        return registered[name]


def _model(model: str | Model) -> Model:
    if isinstance(model, type):
        raise UsageError(
            f"A model must be an instance, got the class {model.__name__}. Use {model.__name__}(…)"
        )
    if not isinstance(model, str) and not hasattr(model, "stream"):
        is_client = hasattr(model, "chat") and hasattr(model, "base_url")
        hint = ". To use this client, write nb.OpenAIModel(name, client=…)" if is_client else ""
        given: Any = model
        if inspect.isroutine(given):
            hint = ". To use a function as the model, write nb.ScriptedModel(function)"
        raise UsageError(
            f"A model must be a name or an object with a stream method, got {model!r:.80}{hint}"
        )
    if model == "":
        raise UsageError('The model name is empty. Pass a name, such as nb.Agent("gpt-5.1")')
    model = hooks.recorded_or_same(model)
    if not isinstance(model, str):
        return model
    named: Model = hooks.model_named(model)
    return named


def _in_main(one: Tool[..., Any]) -> bool:
    return one.module == "__main__"
