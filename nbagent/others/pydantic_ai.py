"""Agents of pydantic-ai: deferred approvals and calls as questions, the messages as the state of a leg."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nbagent.core.base.messages import canonical, input_of

from .legs import Ask, Leg, Progress, plain


class Adapter:
    """One agent of pydantic-ai."""

    has_checkpoints = False

    passes = ("user_prompt", "deferred_tool_results", "event_stream_handler")

    def __init__(self, agent: Any, options: dict[str, Any]) -> None:
        self._agent, self._options = agent, options
        self.runs: Any = agent.run_stream_events
        self._deferred = import_module("pydantic_ai").DeferredToolRequests
        self._capture = import_module("pydantic_ai").capture_run_messages
        self._results = import_module("pydantic_ai.tools")
        self._stored = import_module("pydantic_ai.conversation").ConversationTypeAdapter
        self.name: str = agent.name or "agent"
        self._known: dict[str, Any] = {}
        """The JSON Schemas of the tools, by name."""
        self._unlisted: list[tuple[Any, str, bool]] = []
        """The toolsets whose tools are listed when they run, with their prefix, and whether all their tools ask."""
        self._gated: set[str] = set()
        """The names of the tools that ask before they run."""
        for each in (*agent.toolsets, *(options.get("toolsets") or ())):
            self._add(each)
        self.tools, self.lists_more = [*self._known], bool(self._unlisted)

    async def listed(self) -> list[str]:
        """The tools of MCP servers, and of other toolsets that list theirs when they run."""
        deps, usage = self._options.get("deps"), import_module("pydantic_ai.usage").RunUsage()
        context = self._results.RunContext(deps=deps, model=self._agent.model, usage=usage)
        for toolset, prefix, is_gated in [*self._unlisted]:
            async with toolset:
                found = await toolset.get_tools(context)
            for name, tool in found.items():
                self._known[f"{prefix}{name}"] = tool.tool_def.parameters_json_schema
                if is_gated or tool.tool_def.kind == "unapproved":
                    self._gated.add(f"{prefix}{name}")
            del self._unlisted[:1]
        return [*self._known]

    def _add(self, toolset: Any, prefix: str = "", *, is_gated: bool = False) -> None:
        """Add the tools of a toolset, and of the toolsets that it wraps or combines."""
        is_gated = is_gated or hasattr(toolset, "approval_required_func")
        prefix += f"{toolset.prefix}_" if getattr(toolset, "prefix", None) else ""
        places = {"toolsets", "wrapped", "tools", "name_map"}
        if "name_map" in (has := {each for each in places if hasattr(toolset, each)}) or not has:
            self._unlisted.append((toolset, prefix, is_gated))
            return
        for inner in [*getattr(toolset, "toolsets", ()), getattr(toolset, "wrapped", None)]:
            if inner is not None:
                self._add(inner, prefix, is_gated=is_gated)
        for name, tool in getattr(toolset, "tools", {}).items():
            self._known[f"{prefix}{name}"] = tool.function_schema.json_schema
            if is_gated or tool.requires_approval:
                self._gated.add(f"{prefix}{name}")

    async def leg(
        self, given: Any, before: Leg, answers: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Run to the next pauses or the end."""
        options = {**self._options}
        if progress.ctx.context is not None:
            options["deps"] = progress.ctx.context
        # with validators, pydantic-ai takes no other output type; it then names the one for pauses itself
        has_validators = bool(getattr(self._agent, "_output_validators", None))
        types = _types(options.get("output_type") or self._agent.output_type)
        if not has_validators and self._deferred not in types:
            options["output_type"] = [*types, self._deferred]
        if before.state is not None:
            given = None
            kept = before.state if isinstance(before.state, dict) else {"messages": before.state}
            kept = self._stored.validate_python(kept)
            for first in ("conversation", "run_id"):  # which the history has
                options.pop(first, None)
            options = {"usage": kept.usage, **options, "message_history": kept.messages}
            if before.asks:
                options["deferred_tool_results"] = self._answered(before, answers)
        calls = {one["id"]: one["input"] for one in before.asks}
        result: Any = None
        with self._capture() as messages:
            try:
                async with self.runs(given, **options) as events:
                    async for event in events:
                        await self._report(event, calls, progress)
                        result = getattr(event, "result", result)
            except Exception:
                if _have_ended(messages):
                    kept = self._stored.validate_python({"messages": messages})
                    progress.state = self._stored.dump_python(kept, mode="json")
                raise
        if not isinstance(result.output, self._deferred):
            return Leg.ended(result.output)
        kept = self._stored.dump_python(result.conversation, mode="json")
        return Leg.paused(self._asks(result.output), kept)

    async def _report(self, event: Any, calls: dict[str, Any], progress: Progress) -> None:
        kind: str = getattr(event, "event_kind", "")
        part: Any = getattr(event, "part", None)
        if kind == "part_start" and getattr(part, "part_kind", "") == "text":
            progress.write(part.content, object())
        elif kind == "part_delta" and getattr(event.delta, "part_delta_kind", "") == "text":
            progress.write(event.delta.content_delta)
        elif kind == "function_tool_call":
            calls[part.tool_call_id] = input_of(part.args)
            runs_now = event.args_valid is not None
            if runs_now and part.tool_name not in self._gated:
                progress.started(part.tool_name, calls[part.tool_call_id], part.tool_call_id)
        elif kind == "function_tool_result" and part.tool_name:
            call, failed = part.tool_call_id, getattr(part, "outcome", "success") != "success"
            given = calls.get(call)
            await progress.done(part.tool_name, given, call, part.content, failed=failed)

    def _asks(self, requests: Any) -> list[Ask]:
        asks = []
        for call in requests.approvals:
            more: Any = plain(requests.metadata.get(call.tool_call_id) or {})
            told = (f"{k}: {v if isinstance(v, str) else canonical(v)}" for k, v in more.items())
            asks.append(
                Ask(
                    id=call.tool_call_id,
                    kind="approval",
                    name=call.tool_name,
                    input=input_of(call.args),
                    editable=True,
                    schema=self._known.get(call.tool_name),
                    message="\n".join(told),
                    call=call.tool_call_id,
                )
            )
        for call in requests.calls:
            given = input_of(call.args)
            more = plain(requests.metadata.get(call.tool_call_id))
            raw = {"tool": call.tool_name, "input": given} | ({"metadata": more} if more else {})
            asks.append(Ask(id=call.tool_call_id, kind="question", input=given, raw=raw))
        return asks

    def _answered(self, before: Leg, answers: dict[str, Any]) -> Any:
        found = self._results.DeferredToolResults()
        for one in before.asks:
            answer = answers[one["id"]]
            if one["kind"] == "question":
                found.calls[one["id"]] = answer["value"]
            elif "rejected" in answer:
                told = {} if answer["rejected"] is None else {"message": answer["rejected"]}
                found.approvals[one["id"]] = self._results.ToolDenied(**told)
            else:
                new = answer["input"] if answer["edited"] else None
                found.approvals[one["id"]] = self._results.ToolApproved(override_args=new)
        return found


def _have_ended(messages: list[Any]) -> bool:
    """Whether all calls have results, so that the model can continue. A response that was cut off is removed."""
    while messages and messages[-1].state == "interrupted":
        messages.pop()
    left: set[str] = set()
    for each in messages:
        if each.kind == "response":
            left = {call.tool_call_id for call in each.tool_calls}
        else:
            left -= {getattr(part, "tool_call_id", "") for part in each.parts}
    return bool(messages) and messages[-1].kind == "request" and not left


def _types(output: Any) -> list[Any]:
    return list(output) if isinstance(output, list | tuple) else [output]
