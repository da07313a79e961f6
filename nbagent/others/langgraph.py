"""Graphs of LangGraph, and agents of LangChain: interrupts as questions, the checkpointer's thread as the state.

The thread's id is the run's id. Whether the thread has ended is read from its tasks: after a kill, ``next`` may be
empty although tasks are left.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from nbagent.core.base.errors import UsageError

from .legs import NAME, Ask, Leg, Progress, plain


class Adapter:
    """One compiled graph."""

    has_checkpoints = True
    lists_more = False
    passes = ("input", "stream_mode", "output_keys", "subgraphs", "version")

    def __init__(self, graph: Any, options: dict[str, Any]) -> None:
        if graph.checkpointer in (None, False, True):
            raise UsageError(
                "nb.watch needs a graph with a checkpointer, because a graph without one cannot continue after a pause. "
                "Compile it with checkpointer=…; a checkpointer in memory forgets with its process"
            )
        self._graph = graph
        self._options = {"durability": "sync", **options}
        self._config = self._options.pop("config", None) or {}
        self.runs: Any = graph.astream
        self._command = import_module("langgraph.types").Command
        self.name: str = graph.get_name()
        graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
        self._breakpoints = [
            options.get("interrupt_before") or options.get("interrupt_after"),
            *(one.interrupt_before_nodes or one.interrupt_after_nodes for one in graphs),
        ]
        self._known = {
            name: tool
            for one in graphs
            for node in one.nodes.values()
            for name, tool in getattr(getattr(node, "bound", None), "tools_by_name", {}).items()
        }
        """The tools of the tool nodes, by name."""
        self.tools = [*self._known]

    async def leg(
        self, given: Any, before: Leg, answers: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Run to the next pauses or the end; a leg whose process was killed continues from its last checkpoint."""
        ctx = progress.ctx
        own = len(ctx.messages) == 1  # else the flow is a tool
        run = ctx.run_id if own else f"{ctx.run_id}:{ctx.call_id}"
        both = (self._graph.config or {}, self._config)
        places = {"thread_id": run} | {
            k: v for c in both for k, v in c.get("configurable", {}).items()
        }
        thread, config = places["thread_id"], {**self._config, "configurable": places}
        if thread != run:  # the person's, in which other runs may have been
            config["metadata"] = {**config.get("metadata", {}), "nbagent_run": run}
        state = await self._graph.aget_state(config, subgraphs=True)
        of = (state.metadata or {}).get("nbagent_run", run if thread == run else None)
        is_new = "checkpoint_id" not in state.config["configurable"] or of != run
        if is_new and before.asks:
            raise UsageError(
                f"The checkpointer of {self.name!r} has no thread {thread!r} that waits for this run. A checkpointer in "
                "memory forgets with its process; use one on disk to continue in another process. Of a thread that "
                "several runs share, only the last run can continue"
            )
        values = self._values(before, answers)
        resumed = {one.id: values[one.id] for one in state.interrupts if one.id in values}
        if is_new:
            is_said = "messages" in self._graph.channels and isinstance(given, str | list)
            said = {"messages": [{"role": "user", "content": given}]}
            start: Any = said if is_said else given
        elif resumed:
            start = self._command(resume=resumed)
        elif state.interrupts or not state.tasks or self._may_break(before, state):
            return self._end(state)
        else:
            start = None
        seen = await self._stream(start, config, state, progress)
        return self._end(await self._graph.aget_state(config, subgraphs=True), seen)

    def _may_break(self, before: Leg, state: Any) -> bool:
        """Whether a thread may wait at its next breakpoint already, after a leg whose process was killed."""
        # a pause of an older version has no place
        has_gone_on = before.state != _place(state) if before.state else not before.asks
        failed = any(task.error for one in _states(state) for task in one.tasks)
        return any(self._breakpoints) and has_gone_on and not failed

    async def _stream(self, start: Any, config: Any, state: Any, progress: Progress) -> list[Any]:
        seen: list[Any] = []
        calls = {call["id"]: call for one in _all_messages(state) for call in _calls(one)}
        options = {**self._options, "stream_mode": ["messages", "updates"], "subgraphs": True}
        if progress.ctx.context is not None:
            options["context"] = progress.ctx.context
        pieces = self.runs(start, config, **options)
        async for _, mode, data in pieces:
            if mode == "messages":
                message = data[0]
                if getattr(message, "type", "") in ("ai", "AIMessageChunk"):
                    progress.write(message.text, message.id)
                continue
            for update in data.values() if isinstance(data, dict) else ():
                for message in _messages(update):
                    seen.append(message)
                    calls |= {call["id"]: call for call in _calls(message)}
                    if getattr(message, "type", "") == "tool":
                        call = calls.get(message.tool_call_id, {})
                        await progress.done(
                            message.name or call.get("name") or "tool",
                            call.get("args"),
                            message.tool_call_id,
                            message.content,
                            failed=message.status == "error",
                        )
        return seen

    def _end(self, state: Any, seen: list[Any] | tuple[()] = ()) -> dict[str, Any]:
        """The pauses of a thread, or its output; ``seen`` has also messages of a graph that a tool invoked."""
        if state.interrupts:
            calls: list[Any] = []  # without a result
            for one in [*_all_messages(state), *seen]:
                ended = getattr(one, "tool_call_id", None)
                calls = [call for call in calls if call["id"] != ended] + _calls(one)
            asks = [ask for one in state.interrupts for ask in self._asks(one, calls)]
            return Leg.paused(asks, _place(state))
        if state.tasks:
            tasks = [each for one in _states(state) for each in one.tasks]
            names = sorted({each.name for each in tasks if not hasattr(each.state, "tasks")})
            text = f"The graph stopped before {', '.join(names)}. Continue?"
            return Leg.paused([Ask(id="go on", kind="go on", message=text)], _place(state))
        messages = _messages(state.values)
        if messages and state.values.get("structured_response") is not None:
            return Leg.ended(state.values["structured_response"])
        return Leg.ended(messages[-1].text if messages else plain(state.values))

    def _values(self, before: Leg, answers: dict[str, Any]) -> dict[str, Any]:
        """The resume values by the ids of interrupts."""
        found: dict[str, Any] = {}
        for one in before.asks:
            interrupt, _, place = one["id"].partition("#")
            answer = answers[one["id"]]
            if one["kind"] != "approval":
                decision = answer["value"]
                if one["kind"] == "respond":
                    decision = {"type": "respond", "message": answer["value"]}
            elif "rejected" in answer:
                reason = answer["rejected"]
                if reason is None and one["rejection"] == "respond":  # which needs a text
                    reason = "A person rejected this call."
                told = {} if reason is None else {"message": reason}
                decision = {"type": one["rejection"]} | told
            elif answer["edited"]:
                action = {"name": one["name"], "args": answer["input"]}
                decision = {"type": "edit", "edited_action": action}
            else:
                decision = {"type": "approve"}
            if place:
                found.setdefault(interrupt, {"decisions": []})["decisions"].append(decision)
            else:
                found[interrupt] = decision
        return found

    def _asks(self, interrupt: Any, calls: list[Any]) -> list[Ask]:
        """The questions of one interrupt: an approval for each gated call, or one question with the raw value."""
        value, schema = interrupt.value, plain(interrupt.response_schema)
        if isinstance(value, dict):
            try:
                asks = self._approvals(interrupt.id, value, schema, calls)
            except (KeyError, TypeError, ValueError):  # it only resembles their middleware's
                asks = []
            if asks:
                return asks
            texts = (value[k] for k in ("question", "message") if isinstance(value.get(k), str))
            text, choices = next(texts, ""), value.get("choices", value.get("options"))
            is_choice = isinstance(choices, list) and all(isinstance(c, str) for c in choices)
            if text and is_choice and choices and schema is None:
                return [Ask(id=interrupt.id, kind="question", message=text, choices=choices)]
        if isinstance(value, str):
            return [Ask(id=interrupt.id, kind="question", message=value, schema=schema)]
        return [Ask(id=interrupt.id, kind="question", raw={"pause": plain(value)}, schema=schema)]

    def _approvals(self, id_: str, value: Any, schema: Any, calls: list[Any]) -> list[Ask]:
        """The approvals of the human-in-the-loop middleware.

        Raises:
            KeyError, TypeError, ValueError: the interrupt is of another form.
        """
        if value.get("type") == "tool_approval":
            return [self._approval(id_, value, _allowed(schema), str(value["tool_call_id"]))]
        if not {"action_requests", "review_configs"} <= set(value):
            return []
        configs = {one["action_name"]: one for one in value["review_configs"]}
        asks, left = [], [*calls]
        for place, action in enumerate(value["action_requests"]):
            same = (c for c in left if (c["name"], c["args"]) == (action["name"], action["args"]))
            call = next(same, {"id": ""})
            left = [c for c in left if c is not call]
            allowed = configs[action["name"]]["allowed_decisions"]
            asks.append(self._approval(f"{id_}#{place}", action, allowed, call["id"]))
        return asks

    def _approval(self, id_: str, action: Any, allowed: list[str], call: str) -> Ask:
        name, text = action["name"], str(action.get("description") or "")
        if re.fullmatch(NAME, name) is None or not isinstance(action["args"], dict):
            raise ValueError("nbagent has no such tool")
        if "approve" not in allowed:  # the person's answer is the tool's result
            raw = {"tool": name, "input": plain(action["args"]), "message": text}
            return Ask(id=id_, kind="respond", raw=raw, name=name)
        can_edit = "edit" in allowed
        return Ask(
            id=id_,
            kind="approval",
            name=name,
            input=action["args"],
            # their own text repeats what the form shows
            message="" if f"Tool: {name}" in text else text,
            editable=can_edit,
            schema=_schema(self._known.get(name)) if can_edit else None,
            call=call,
            rejection=next((one for one in ("reject", "respond") if one in allowed), ""),
        )


def _messages(values: Any) -> list[Any]:
    """The messages in a state or an update."""
    found = values.get("messages") if isinstance(values, dict) else None
    found = getattr(found, "value", found)  # of an ``Overwrite``
    return found if isinstance(found, list) else [] if found is None else [found]


def _states(state: Any) -> list[Any]:
    """The state of a thread, and those of the subgraphs that it waits in."""
    inner = [task.state for task in state.tasks if hasattr(task.state, "tasks")]
    return [state, *(one for each in inner for one in _states(each))]


def _all_messages(state: Any) -> list[Any]:
    return [message for each in _states(state) for message in _messages(each.values)]


def _place(state: Any) -> Any:
    """How far a thread has come: its checkpoint, and those of the subgraphs that it waits in."""
    return [one.config["configurable"].get("checkpoint_id") for one in _states(state)]


def _calls(message: Any) -> list[Any]:
    return [call for call in getattr(message, "tool_calls", None) or () if call.get("id")]


def _allowed(schema: Any) -> list[str]:
    """The types of the decisions that an interrupt's schema allows."""
    if schema is None:
        return ["approve", "reject"]
    found = []
    for one in schema.get("oneOf", [schema]) if isinstance(schema, dict) else []:
        branch = schema.get("$defs", {}).get(one.get("$ref", "").rpartition("/")[2], one)
        found.append(branch.get("properties", {}).get("type", {}).get("const", ""))
    return found


def _schema(tool: Any) -> Any:
    """The JSON Schema of a tool's input; None if it is unknown."""
    schema: Any = getattr(tool, "tool_call_schema", None)
    return schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
