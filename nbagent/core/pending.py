"""Open interrupts as people and code see them, bound to the tools they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .events import Interrupted
from .interrupts import PendingInterrupt
from .policy import Rule
from .standing import RunState
from .tools import Tool


def interrupts_of(
    state: RunState, tools: Mapping[str, Tool[..., Any]], agent: str, path: tuple[str, ...] = ()
) -> list[PendingInterrupt]:
    """The open interrupts, in call order, those of runs inside included, each with its path."""
    names = (*path, agent)
    found: list[PendingInterrupt] = []
    for call in state.calls.values():
        if call.child is not None and call.status != "done":
            found += interrupts_of(
                call.child, tools_inside(tools, call.name), call.child.agent, names
            )
        original = call.proposed if call.replaced else None
        found += [pending_of(e, tools, names, original) for e in call.own_pending]
    if state.budget is not None:
        found.append(pending_of(state.budget, tools, names))
    return found


def pending_of(
    event: Interrupted,
    tools: Mapping[str, Tool[..., Any]],
    path: tuple[str, ...],
    original_input: dict[str, Any] | None = None,
) -> PendingInterrupt:
    """An open interrupt as people and code see it, bound to its tool where that is registered."""
    return PendingInterrupt(
        id=event.id,
        tool_name=event.tool_name,
        call_id=event.call_id,
        input=event.input,
        metadata=event.metadata,
        kind=event.kind,
        path=tuple(p for p in (*path, event.tool_name) if p),
        editable=event.editable,
        expires_at=event.expires_at,
        external=event.external is not None,
        digest=event.digest,
        note=event.note,
        original_input=original_input,
        state=event.state,
        wants_value=event.wants_value,
        reply_schema=event.reply_schema,
        tool=tools.get(event.tool_name),
    )


def tools_inside(tools: Mapping[str, Tool[..., Any]], name: str) -> Mapping[str, Tool[..., Any]]:
    """The tools of the agent that a tool is; none where it is not registered, or no agent."""
    tool = tools.get(name)
    inner = None if tool is None else tool.options.inner
    return {} if inner is None else inner.tools


def tools_at(
    state: RunState, scope: tuple[str, ...], tools: Mapping[str, Tool[..., Any]]
) -> Mapping[str, Tool[..., Any]]:
    """The tools of the run that an event of this scope belongs to."""
    for call_id in scope:
        call = state.calls[call_id]
        tools = tools_inside(tools, call.name)
        state = call.child or RunState()
    return tools


def remembered_at(
    state: RunState,
    scope: tuple[str, ...],
    tools: Mapping[str, Tool[..., Any]],
    remembered: list[Rule],
) -> list[Rule]:
    """The list of the agent whose run an event of this scope belongs to."""
    for call_id in scope:
        call = state.calls[call_id]
        remembered = tools[call.name].options.inner.remembered
        tools, state = tools_inside(tools, call.name), call.child or RunState()
    return remembered
