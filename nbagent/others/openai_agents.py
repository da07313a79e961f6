"""Agents of the OpenAI Agents SDK: ``needs_approval`` as approvals, its ``RunState`` as the state of a leg."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from nbagent.core.base.messages import input_of

from .legs import Ask, Leg, Progress, plain


class Adapter:
    """One agent of the SDK."""

    has_checkpoints = False
    passes = ("starting_agent", "input")

    def __init__(self, agent: Any, options: dict[str, Any]) -> None:
        self._agent, self._options = agent, options
        self._sdk = import_module("agents")
        self.runs: Any = self._sdk.Runner.run_streamed
        self.name: str = agent.name
        self._agents = _reached(agent)
        self.tools = [tool.name for one in self._agents for tool in _named(*one, one[0].tools)]
        self.lists_more = any(agent.mcp_servers for agent, _ in self._agents)

    async def listed(self) -> list[str]:
        """The tools of the agents' MCP servers."""
        context = self._sdk.RunContextWrapper(self._options.get("context"))
        found = [(*one, await one[0].get_mcp_tools(context)) for one in self._agents]
        return [tool.name for one in found for tool in _named(*one)]

    async def leg(
        self, given: Any, before: Leg, answers: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Run to the next pauses or the end."""
        options = {**self._options}
        if progress.ctx.context is not None:
            options["context"] = progress.ctx.context
        options["hooks"] = _hooks(options.get("hooks") or self._sdk.RunHooks(), progress)
        start = given if before.state is None else await self._continued(before, answers, options)
        calls = {one["id"]: one for one in before.asks}
        run = self.runs(self._agent, start, **options)
        try:
            async for event in run.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    progress.write(data.delta)
                elif getattr(event, "name", "") == "message_output_created":
                    progress.write("", of=object())  # the message has ended
                elif getattr(event, "name", "") in ("tool_called", "tool_output"):
                    await _report(event, calls, progress)
        except Exception:
            state = _state(run)
            step = state["current_step"] or {}
            if step.get("type") == "next_step_run_again":  # all calls have ended
                progress.state = state
            raise
        finally:
            run.cancel()
            if run.run_loop_task is not None:
                run.run_loop_task.cancel()
                await asyncio.wait([run.run_loop_task])
        if not run.interruptions:
            return Leg.ended(run.final_output)
        asks = [
            Ask(
                id=str(one.call_id),
                kind="approval",
                name=str(one.name),
                input=_input(one.raw_item),
                call=str(one.call_id),
            )
            for one in run.interruptions
        ]
        return Leg.paused(asks, _state(run))

    async def _continued(
        self, before: Leg, answers: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """The state with all answers."""
        override = {"context_override": options["context"]} if "context" in options else {}
        stored: Any = before.state
        if "max_turns" in options:  # it may have been raised since
            stored = {**stored, "max_turns": options["max_turns"]}
        state = await self._sdk.RunState.from_json(self._agent, stored, **override)
        for item in state.get_interruptions():
            answer = answers[str(item.call_id)]
            if "rejected" in answer:
                state.reject(item, rejection_message=answer["rejected"])
            else:
                state.approve(item)
        return state


def _reached(agent: Any) -> list[tuple[Any, bool]]:
    """The agent, those of its handoffs, and agents that are tools; and whether it is inside a tool."""
    todo = [(agent, False)]
    for one, is_inside in todo:
        inner = [(getattr(tool, "_agent_instance", None), True) for tool in one.tools]
        refs = [(each, getattr(each, "_agent_ref", None)) for each in one.handoffs]
        inner += [(each if ref is None else ref(), is_inside) for each, ref in refs]
        known = [(id(each), where) for each, where in todo]
        todo += [e for e in inner if hasattr(e[0], "tools") and (id(e[0]), e[1]) not in known]
    return todo


def _named(_agent: Any, is_inside: bool, tools: list[Any]) -> list[Any]:  # noqa: FBT001 - of ``_reached``
    """The tools that rules may name. Of calls inside a tool, the SDK reports only those that are gated."""
    return [tool for tool in tools if not is_inside or getattr(tool, "needs_approval", False)]


def _input(raw: Any) -> dict[str, Any]:
    """The input of a call; its place depends on the kind of the tool, such as a shell or a patch."""
    given: Any = plain(raw)
    places = ("arguments", "params", "input", "action", "operation", "actions")
    return input_of(next((given[each] for each in places if given.get(each)), None))


async def _report(event: Any, calls: dict[str, Any], progress: Progress) -> None:
    """Show a call of a tool that is no function, such as a shell: the hooks do not tell which call it is."""
    raw: Any = plain(event.item.raw_item)
    call, kind = raw.get("call_id"), raw.get("type", "").removesuffix("_call_output")
    if event.name == "tool_called":
        calls.setdefault(call, {"input": _input(raw)})
    elif kind not in ("function", "custom_tool"):
        known, failed = calls.get(call, {}), raw.get("status") == "failed"
        name = known.get("name", kind)
        await progress.done(name, known.get("input"), str(call), event.item.output, failed=failed)


def _state(run: Any) -> Any:
    """The state of a run as JSON, without the person's ``context``, which is never stored."""
    state = run.to_state().to_json(context_serializer=lambda _: {})
    if state["context"].get("context"):  # a dict has no serializer
        state["context"]["context"] = {}
    return state


def _hooks(theirs: Any, progress: Progress) -> Any:
    """The person's hooks, which also report calls of functions."""

    class Hooks(type(theirs)):  # type: ignore[misc]
        def __init__(self) -> None:
            self.__dict__ = theirs.__dict__

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            if hasattr(context, "tool_arguments"):
                given, call = input_of(context.tool_arguments), str(context.tool_call_id)
                progress.started(tool.name, given, call)
            await super().on_tool_start(context, agent, tool)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            if hasattr(context, "tool_arguments"):
                given, call = input_of(context.tool_arguments), str(context.tool_call_id)
                await progress.done(tool.name, given, call, result)
            await super().on_tool_end(context, agent, tool, result)

    return Hooks()
