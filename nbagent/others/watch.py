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

from nbagent.core.base.errors import Rejected, ToolFailed, UsageError
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.metadata import Choose, Confirm
from nbagent.core.flow import Flow, flow
from nbagent.core.journal.default import StoreLike
from nbagent.core.tools.context import ToolContext

from .legs import Ask, Leg, Progress

_ADAPTERS = {
    "langgraph.pregel.main.Pregel": "langgraph",
    "agents.agent.Agent": "openai_agents",
    "pydantic_ai.agent.abstract.AbstractAgent": "pydantic_ai",
}
"""The module here for each base class of a framework's agents."""
_ACCEPTED = (
    "a compiled LangGraph graph, an Agent of the OpenAI Agents SDK, or an Agent of pydantic-ai"
)


@checks_keywords("nb.watch")
def watch(
    theirs: Any,
    to_input: Callable[[Any], Any] | None = None,
    *,
    store: StoreLike | None = None,
    name: str | None = None,
) -> Flow[..., Any]:
    """Make an agent of another framework a flow: ``await nb.watch(graph).run("Pay the bill")``.

    Its text and tool calls appear in the card, its pauses are questions, and the answers continue it. Calls that it does
    not pause for have run before nbagent knows of them, so rules cannot apply to them.

    Args:
        theirs: a compiled LangGraph graph with a checkpointer, an ``Agent`` of the OpenAI Agents SDK, or an ``Agent`` of
            pydantic-ai.
        to_input: a function of the prompt that returns the framework's input. By default, a LangGraph graph gets
            ``{"messages": [the prompt as the user's message]}``, or the prompt itself if it is a dict.
        store: the store for runs, as for ``nb.flow``.
        name: the name that people read; the agent's name by default.

    Raises:
        UsageError: ``theirs`` is not such an agent, or has no checkpointer.
    """
    kinds = type(theirs).__mro__ if not isinstance(theirs, type) else ()
    named = (_ADAPTERS.get(f"{kind.__module__}.{kind.__qualname__}") for kind in kinds)
    module = next(filter(None, named), None)
    if module is None:
        raise UsageError(
            f"nb.watch takes {_ACCEPTED}, got {theirs!r:.100}. For a loop of your own, write an nb.flow with "
            "ctx.write, ctx.approve and ctx.row; an nb.Agent runs by itself: agent.run(prompt)"
        )
    if to_input is not None and not callable(to_input):
        raise UsageError(f"to_input= must be a function of the prompt, got {to_input!r:.80}")
    adapter = import_module(f"nbagent.others.{module}").Adapter(theirs)

    async def body(prompt: Any, ctx: ToolContext) -> Any:
        given = prompt if to_input is None else to_input(prompt)
        given = await given if inspect.isawaitable(given) else given
        progress, leg, number = Progress(ctx), Leg(), 0
        answers: dict[str, Any] = {}
        while True:
            run_leg = partial(adapter.leg, given, leg, answers, progress)
            leg = Leg(**await ctx.step(f"leg {number}", run_leg, shown=False))
            if not leg.asks:
                return leg.output
            asks = [Ask(**one) for one in leg.asks]
            check_ids(asks)
            given_now = await asyncio.gather(*(_answer(ctx, one) for one in asks))
            answers = dict(zip((one.id for one in asks), given_now, strict=True))
            for one in asks:
                progress.decide(one, answers[one.id])
            number += 1

    body.__doc__ = getattr(theirs, "description", None) or f"Run {adapter.name}."
    own_name = re.sub(r"[^\w.-]+", "_", adapter.name).strip("_") or "agent"
    own_name = name or own_name
    known = [n for n in dict.fromkeys(adapter.tools) if re.fullmatch(r"[\w.-]{1,128}", n)]
    tools = [one for one in known if one != own_name]  # for rules to name
    return flow(name=own_name, store=store, tools=tools)(body)


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
        try:
            got = await ctx.approve(
                ask.name,
                ask.input,
                id=ask.call or ask.id,
                message=ask.message,
                editable=ask.editable,
                schema=ask.schema,
            )
        except Rejected as rejected:
            return {"rejected": rejected.reason}
        except ToolFailed as denied:  # by a rule
            return {"rejected": str(denied)}
        return {"input": got, "edited": got != ask.input}
    if ask.kind == "go on":
        await ctx.ask(Confirm(message=ask.message))
        return {"value": None}
    metadata: Any = ask.raw if ask.raw is not None else ask.message
    if ask.choices:
        metadata = Choose(message=ask.message, choices=ask.choices)
        return {"value": await ctx.ask(metadata)}
    if ask.schema is not None:
        return {"value": await ctx.ask(metadata, reply=ask.schema)}
    reply = Any if ask.raw is not None and ask.kind != "respond" else str
    return {"value": await ctx.ask(metadata, reply=reply)}
