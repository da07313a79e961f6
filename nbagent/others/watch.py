"""``nb.watch``: an agent of another framework as a flow, with its pauses as questions of the run.

The framework runs in legs: from the start, or from the answers, to its next pauses or its end. Each leg is a stored
step, so a flow that runs again repeats no finished leg, and sends answers once, when all are there.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from nbagent.core.base.errors import (
    McpError,
    Misuse,
    Rejected,
    ToolError,
    ToolFailed,
    UsageError,
    as_shown,
    suggest,
)
from nbagent.core.base.keywords import checks_keywords, in_few_lines
from nbagent.core.base.metadata import Choose, Confirm
from nbagent.core.flow import Flow, flow, own_call
from nbagent.core.journal.default import StoreLike
from nbagent.core.tools.context import ToolContext
from nbagent.core.tools.toolbox import ToolSource

from .legs import NAME, Ask, Leg, Progress

_ADAPTERS = {
    "langgraph.pregel.main.Pregel": "langgraph",
    "agents.agent.Agent": "openai_agents",
    "pydantic_ai.agent.abstract.AbstractAgent": "pydantic_ai",
}
"""The module here for each base class of a framework's agents."""


@checks_keywords("nb.watch")
def watch(
    theirs: Any,
    to_input: Callable[[Any], Any] | None = None,
    *,
    store: StoreLike | None = None,
    name: str | None = None,
    **options: Any,
) -> Flow[..., Any]:
    """Make an agent of another framework a flow: ``await nb.watch(graph).run("Pay the bill")``.

    Its text and tool calls appear in the card, its pauses are questions, and the answers continue it. Calls that it does
    not pause for have run before nbagent knows of them, so rules cannot apply to them.

    Args:
        theirs: a compiled LangGraph graph with a checkpointer, an ``Agent`` of the OpenAI Agents SDK, or an ``Agent`` of
            pydantic-ai.
        to_input: a function of the prompt that returns the framework's input; by default the prompt itself. A LangGraph
            graph whose state has ``messages`` gets a text as the user's message.
        store: the store for runs, as for ``nb.flow``.
        name: the name that people read; the agent's name by default.
        options: options of the framework's own run, which are not stored, such as ``config=`` of a graph, ``max_turns=`` and
            ``session=`` of ``Runner.run``, or ``message_history=`` and ``usage_limits=`` of pydantic-ai.

    Raises:
        TypeError: the framework has no such option.
        UsageError: ``theirs`` is not such an agent, or has no checkpointer.
    """
    kinds = type(theirs).__mro__ if not isinstance(theirs, type) else ()
    named = (_ADAPTERS.get(f"{kind.__module__}.{kind.__qualname__}") for kind in kinds)
    module = next(filter(None, named), None)
    if module is None:
        raise UsageError(
            "nb.watch takes a compiled LangGraph graph, an Agent of the OpenAI Agents SDK, or an Agent of pydantic-ai, "
            f"got {theirs!r:.100}. For a loop of your own, write an nb.flow with ctx.write, ctx.approve and ctx.row; an "
            "nb.Agent runs by itself: agent.run(prompt)"
        )
    if to_input is not None and not callable(to_input):
        raise UsageError(f"to_input= must be a function of the prompt, got {to_input!r:.80}")
    adapter = import_module(f"nbagent.others.{module}").Adapter(theirs, options)
    _check_options(adapter, options)

    async def body(prompt: Any, ctx: ToolContext) -> Any:
        given = prompt if to_input is None else to_input(prompt)
        given = await given if inspect.isawaitable(given) else given
        progress, leg, number = Progress(ctx), Leg(), 0
        answers: dict[str, Any] = {}
        while True:
            run_leg = partial(adapter.leg, given, leg, answers, progress)
            if not adapter.has_checkpoints:
                run_leg = partial(progress.leg, run_leg, leg, answers)
            progress.error = None
            now = Leg(**await ctx.step(f"leg {number}", run_leg, shown=False))
            number += 1
            if now.repeats is not None:
                if progress.error is not None:
                    raise progress.error
                if now.state is not None:
                    leg, answers = now, {}
                else:
                    names = ", ".join(now.repeats)
                    text = f"The agent failed. It would repeat its calls since the last answers: {names}. Repeat them?"
                    await ctx.ask(Confirm(message=text))
                continue
            leg = now
            if not leg.asks:
                return leg.output
            asks = [Ask(**one) for one in leg.asks]
            check_ids(asks)
            given_now = await asyncio.gather(*(_answer(ctx, one) for one in asks))
            answers = dict(zip((one.id for one in asks), given_now, strict=True))
            for one in asks:
                progress.decide(one, answers[one.id])

    body.__dict__["hint"] = ". Options of the agent's own run belong to nb.watch(agent, …)"
    body.__doc__ = getattr(theirs, "description", None) or f"Run {adapter.name}."
    own_name = re.sub(r"[^\w.-]+", "_", adapter.name).strip("_") or "agent"
    own_name = name or own_name
    known = [n for n in dict.fromkeys(adapter.tools) if re.fullmatch(NAME, n)]
    tools = [one for one in known if one != own_name]  # for rules to name
    sources = [_Listed(adapter, {own_name, *tools})] if adapter.lists_more else []
    return flow(name=own_name, store=store, tools=[*tools, *sources])(body)


class _Listed(ToolSource):
    """The tools that the framework lists only when it runs, such as those of its MCP servers, for rules to name."""

    def __init__(self, adapter: Any, others: set[str]) -> None:
        self.name = f"an MCP server of {adapter.name!r}"
        self._adapter, self._others = adapter, others
        self._tools: dict[str, Any] = {}

    async def ready(self) -> dict[str, Any]:
        try:
            names = await self._adapter.listed()
        except Exception as error:
            raise McpError(
                f"The tools of {self._adapter.name!r} cannot be listed: {as_shown(error)}"
            ) from error
        found = {n: own_call(n) for n in names if re.fullmatch(NAME, n) and n not in self._others}
        if [*found] != [*self._tools]:
            self._tools = found
        return self._tools


def _check_options(adapter: Any, options: dict[str, Any]) -> None:
    """Raise ``TypeError`` for an option that the framework's own run does not have, or that is the run's here."""
    own = inspect.signature(adapter.runs).parameters.values()
    takes = [each.name for each in own if each.name not in (*adapter.passes, "kwargs")]
    for wrong in [each for each in options if each not in takes][:1]:
        named = f"; it takes to_input, store, name, and of this agent's own run {', '.join(takes)}"
        close = suggest(wrong, ["to_input", "store", "name", *takes])
        raise in_few_lines(TypeError(f"nb.watch() got {wrong!r}{close or named}"))


def check_ids(asks: list[Ask]) -> None:
    """Check that each pause and its call have ids of their own, so that no answer reaches another pause.

    Raises:
        UsageError: two pauses or their calls have the same id, or a pause's id is empty.
    """
    for ids in [one.id for one in asks], [one.call or one.id for one in asks]:
        twice = next((i for i in ids if not i or ids.count(i) > 1), None)
        if twice is not None:
            raise UsageError(
                f"Two of the agent's pauses have the id {twice!r}, or it is empty, so an answer could reach the wrong one"
            )


async def _answer(ctx: ToolContext, ask: Ask) -> dict[str, Any]:
    """The person's answer to a pause: ``{"input": …}``, ``{"rejected": reason}``, or ``{"value": …}``."""
    if ask.kind == "approval":
        # code may answer with another input than a person can, but the framework would run this one
        schema = ask.schema if ask.editable else {"type": "object", "const": ask.input}
        asked: dict[str, Any] = {"id": ask.call or ask.id, "message": ask.message}
        asked["editable"] = ask.editable
        try:
            try:
                got = await ctx.approve(ask.name, ask.input, schema=schema, **asked)
            except ToolError:  # the schema cannot be used, or the model's input does not fit: the framework checks it
                got = await ctx.approve(ask.name, ask.input, **asked)
        except (Rejected, ToolFailed) as no:  # by a person or a rule
            if not ask.rejection:
                raise
            return {"rejected": no.reason if isinstance(no, Rejected) else str(no)}
        return {"input": got, "edited": got != ask.input}
    if ask.kind == "go on":
        await ctx.ask(Confirm(message=ask.message))
        return {"value": None}
    metadata: Any = ask.raw if ask.raw is not None else ask.message
    if ask.choices:
        metadata = Choose(message=ask.message, choices=ask.choices)
        return {"value": await ctx.ask(metadata)}
    if ask.schema is not None:
        try:
            return {"value": await ctx.ask(metadata, reply=ask.schema)}
        except Misuse:  # there is no form for it
            return {"value": await ctx.ask(metadata, reply=Any)}
    reply = Any if ask.raw is not None and ask.kind != "respond" else str
    return {"value": await ctx.ask(metadata, reply=reply)}
