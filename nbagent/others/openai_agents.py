"""Agents of the OpenAI Agents SDK: ``needs_approval`` as approvals, its ``RunState`` as the state of a leg."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nbagent.core.base.messages import input_of

from .legs import Ask, Leg, Progress


class Adapter:
    """One agent of the SDK."""

    has_checkpoints = False

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._sdk = import_module("agents")
        self.name: str = agent.name
        self.tools = _tools(agent)

    async def leg(
        self, given: Any, before: Leg, answers: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Run to the next pauses or the end."""
        context = progress.ctx.context
        start = given if before.state is None else await self._continued(before, answers, context)
        hooks = _hooks(self._sdk.RunHooks, progress)
        run = self._sdk.Runner.run_streamed(self._agent, start, context=context, hooks=hooks)
        try:
            async for event in run.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    progress.write(data.delta)
                elif getattr(event, "name", "") == "message_output_created":
                    progress.write("", of=object())  # the message has ended
        except Exception:
            state = _state(run)
            if (state["current_step"] or {}).get(
                "type"
            ) == "next_step_run_again":  # all calls have ended
                progress.state = state
            raise
        finally:
            run.cancel()
            await _ended(run)
        if not run.interruptions:
            return Leg.ended(run.final_output)
        asks = [
            Ask(
                id=str(one.call_id),
                kind="approval",
                name=str(one.name),
                input=input_of(one.arguments),
                call=str(one.call_id),
            )
            for one in run.interruptions
        ]
        return Leg.paused(asks, _state(run))

    async def _continued(self, before: Leg, answers: dict[str, Any], context: Any) -> Any:
        """The state with all answers."""
        override = {} if context is None else {"context_override": context}
        state = await self._sdk.RunState.from_json(self._agent, before.state, **override)
        for item in state.get_interruptions():
            answer = answers[str(item.call_id)]
            if "rejected" in answer:
                state.reject(item, rejection_message=answer["rejected"])
            else:
                state.approve(item)
        return state


def _tools(agent: Any) -> list[str]:
    """The tools that rules may name: those of the agent and of its handoffs, and what agents that are tools gate.

    The SDK does not report other calls inside a tool.
    """
    todo, names = [(agent, False)], []
    for one, is_inside in todo:
        names += [t.name for t in one.tools if not is_inside or getattr(t, "needs_approval", False)]
        inner = [(getattr(tool, "_agent_instance", None), True) for tool in one.tools]
        refs = [(each, getattr(each, "_agent_ref", None)) for each in one.handoffs]
        inner += [(each if ref is None else ref(), is_inside) for each, ref in refs]
        known = [(id(each), where) for each, where in todo]
        todo += [e for e in inner if hasattr(e[0], "tools") and (id(e[0]), e[1]) not in known]
    return names


def _state(run: Any) -> Any:
    """The state of a run as JSON, without the person's ``context``, which is never stored."""
    state = run.to_state().to_json(context_serializer=lambda _: {})
    if state["context"].get("context"):  # a dict has no serializer
        state["context"]["context"] = {}
    return state


async def _ended(run: Any) -> None:
    """Wait until the run's own task has ended."""
    task = getattr(run, "run_loop_task", None)
    if task is not None and not task.done():
        task.cancel()
        await import_module("asyncio").wait([task])


def _hooks(base: Any, progress: Progress) -> Any:
    class Hooks(base):  # type: ignore[misc]
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:  # noqa: ARG002
            given, call = input_of(context.tool_arguments), str(context.tool_call_id)
            progress.started(tool.name, given, call)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:  # noqa: ARG002
            given, call = input_of(context.tool_arguments), str(context.tool_call_id)
            await progress.done(tool.name, given, call, result)

    return Hooks()
