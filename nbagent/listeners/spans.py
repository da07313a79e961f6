"""The spans of a run, as a fold over its events: plain values, without OpenTelemetry.

Names follow OpenTelemetry's semantic conventions for generative AI (semantic-conventions-genai 0.1); what these do not
have begins with ``nbagent``. All ids are digests of the run's id and start, and of the place in the run. So all
processes that continue a run, and all that read it from its store, make the same spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from nbagent.core.base import errors
from nbagent.core.base.events import (
    BodyCalled,
    Event,
    Interrupted,
    ModelPartial,
    ModelResponded,
    Resolved,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.messages import Json, calls_of, dumps, text_of
from nbagent.core.base.secrets import shown

Scope: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["internal", "client"]
MAX_CONTENT = 10_000
"""Maximum characters of one attribute with content."""
KNOWN_BY = ("form", "code", "command line", "external", "expiry", "middleware")
"""Sources of answers that are named in a span; any other is a text of the program."""
PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""The names of providers in the conventions, where nbagent or LiteLLM has another name."""
OWN_MODELS = ("gpt-", "o1", "o3", "o4", "chatgpt-", "codex-", "ft:gpt")
"""How the names of OpenAI's models begin, which need no provider."""


@dataclass(slots=True)
class Span:
    """A span, which is open until ``ended``. Times are Unix seconds."""

    id: int
    parent: int | None
    """The id of the span around it; None for the run itself."""
    name: str
    start: float
    attributes: dict[str, Any]
    kind: Kind = "internal"
    attempt: int = 0
    """For a call: the attempt of its body."""
    end: float = 0.0
    error: str | None = None
    """The ``error.type``, if the operation failed."""

    def ended(self, at: float, error: str | None = None, **further: Any) -> Span:
        """The span with its end, and with further attributes of nbagent."""
        attributes = {**self.attributes, **{f"nbagent.{k}": v for k, v in further.items()}}
        if error is not None:
            attributes["error.type"] = error
        return replace(self, end=max(self.start, at), attributes=attributes, error=error)


@dataclass(slots=True)
class _Agent:
    """The run of one agent: the outermost run, or one inside a call."""

    span: Span
    model: str
    free_at: float
    """The time since which nothing else happened in the run: the start of the next request to the model."""
    is_over: bool = False
    is_cut: bool = False
    """Whether the last request to the model failed after a part of its response."""
    usage: dict[str, int] = field(default_factory=dict)
    responses: int = 0
    retries: int = 0


class SpanFold:
    """The spans of one run: ``after(event)`` returns those that the event ends.

    With ``has_content``, spans have prompts, answers, inputs and results.
    """

    def __init__(self, run_id: str, *, has_content: bool = False) -> None:
        self.run_id = run_id
        self._has_content = has_content
        self._agents: dict[Scope, _Agent] = {}
        self._calls: dict[Scope, Span] = {}
        """The running calls by their place: their scope, then their id."""
        self.names: dict[Scope, str] = {}
        """The names of calls by their places."""
        self._waits: dict[str, tuple[Scope, Span]] = {}
        """The open questions by interrupt id."""
        self._started_at = 0.0

    @property
    def trace_id(self) -> int:
        """The id of the run's trace, unless there is a span around the run."""
        return _number(16, "trace", self.run_id, repr(self._started_at))

    def place(self, scope: Scope) -> int | None:
        """The id of the innermost open span at this place in the run."""
        for depth in range(len(scope), -1, -1):
            call, agent = self._calls.get(scope[:depth]), self._agents.get(scope[:depth])
            if agent is not None:
                return agent.span.id
            if call is not None:
                return call.id
        return None

    def close(self, at: float, error: str | None) -> Sequence[Span]:
        """The spans that end because the run is no longer driven, as when ``generate`` returns at a pause."""
        agent = self._agents.get(())
        if agent is None or agent.is_over:
            return ()
        self._waits.clear()  # the caller has the questions, and may answer them elsewhere, or never
        return [*self._closed((), at, error), self._over(agent, at, error)]

    def after(self, event: object) -> Sequence[Span]:
        """Fold an event in, and return the spans that it ends."""
        if not isinstance(event, Event) or isinstance(event, ModelPartial):
            return ()
        ended = list(self._after(event))
        for depth in range(len(event.scope) + 1):
            agent = self._agents.get(event.scope[:depth])
            if agent is not None:
                agent.free_at = event.at
        return ended

    @singledispatchmethod
    def _after(self, _event: Event) -> Iterator[Span]:
        yield from ()

    # --- runs

    @_after.register
    def _(self, event: RunStarted) -> Iterator[Span]:
        if not event.scope:
            self._started_at = event.at
        for message in event.messages[-2:]:
            for call in calls_of(message):
                self.names[*event.scope, str(call["id"])] = str(call["name"])
        operation = "invoke_workflow" if event.flow else "invoke_agent"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": event.agent,
        }
        if event.model:
            attributes |= _model(event.model)
        if not event.scope:
            attributes["nbagent.run.id"] = self.run_id
        if event.row is not None:
            attributes |= {"nbagent.batch.id": event.row.batch, "nbagent.row": event.row.number}
        if self._has_content and event.messages and not event.flow:
            last = event.messages[-1]
            part = {"type": "text", "content": text_of(last)}
            attributes["gen_ai.input.messages"] = _content(
                [{"role": last["role"], "parts": [part]}]
            )
        self._agents[event.scope] = _Agent(
            Span(
                self._id(event.scope, "run", 0),
                self.place(event.scope),
                f"{operation} {event.agent}",
                event.at,
                attributes,
            ),
            event.model,
            event.at,
        )
        yield from ()

    @_after.register
    def _(self, event: RunRetried) -> Iterator[Span]:
        agent = self._agents.get(event.scope)
        if agent is not None:
            agent.retries += 1
            agent.span.id = self._id(event.scope, "run", agent.retries)
            agent.span.start, agent.usage, agent.is_over = event.at, {}, False
        yield from ()

    @_after.register(RunCompleted)
    @_after.register(RunFailed)
    @_after.register(RunCancelled)
    def _(self, event: RunCompleted | RunFailed | RunCancelled) -> Iterator[Span]:
        agent = self._agents.get(event.scope)
        if agent is None or agent.is_over:
            return
        error: str | None = None
        if isinstance(event, RunFailed):
            error = event.error
            known = getattr(errors, event.error, None)
            is_of_model = isinstance(known, type) and issubclass(known, errors.ModelError)
            if is_of_model and not agent.is_cut:
                yield self._chat(event.scope, agent, event.at, {}, error)
        elif isinstance(event, RunCancelled):
            error = "cancelled"
        yield from self._closed(event.scope, event.at, error)
        if self._has_content and isinstance(event, RunCompleted):
            message = {"role": "assistant", "parts": [{"type": "text", "content": event.text}]}
            agent.span.attributes["gen_ai.output.messages"] = _content([message])
        yield self._over(agent, event.at, error)

    def _over(self, agent: _Agent, at: float, error: str | None) -> Span:
        agent.is_over = True
        agent.span.attributes |= agent.usage
        # a part of a response is written as the run ends, and may be a little later
        return agent.span.ended(max(at, agent.free_at), error)

    def _closed(self, scope: Scope, at: float, error: str | None) -> Iterator[Span]:
        """What is still open inside of a run or call that ends, from the inside out."""
        depth = len(scope)
        for asked, (place, wait) in list(self._waits.items()):
            if place[:depth] == scope:
                del self._waits[asked]
                yield wait.ended(at)
        places = {*self._calls, *self._agents}
        inside = [place for place in places if place[:depth] == scope and place != scope]
        for place in sorted(inside, key=len, reverse=True):
            agent = self._agents.pop(place, None)
            if agent is not None and not agent.is_over:
                yield self._over(agent, at, error)
            if place in self._calls:
                yield self._calls.pop(place).ended(at, error)

    # --- the model

    @_after.register
    def _(self, event: ModelResponded) -> Iterator[Span]:
        for call in event.calls:
            self.names[*event.scope, call.id] = call.name
        agent = self._agents.get(event.scope)
        if agent is None:
            return
        usage = {
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
        }
        if event.cached_tokens:
            usage["gen_ai.usage.cache_read.input_tokens"] = event.cached_tokens
        if event.reasoning_tokens:
            usage["gen_ai.usage.reasoning.output_tokens"] = event.reasoning_tokens
        for key, value in usage.items():
            agent.usage[key] = agent.usage.get(key, 0) + value
        attributes: dict[str, Any] = usage | {
            "gen_ai.response.finish_reasons": (event.finish_reason,)
        }
        if event.cost is not None:
            attributes["nbagent.usage.cost"] = event.cost
        if self._has_content:
            attributes["gen_ai.output.messages"] = _content([_answer(event)])
        agent.is_cut = event.cut == "failed"
        error = {"stopped": "cancelled", "failed": "incomplete", None: None}[event.cut]
        yield self._chat(event.scope, agent, event.at, attributes, error, event.model)

    def _chat(
        self,
        scope: Scope,
        agent: _Agent,
        at: float,
        attributes: Mapping[str, Any],
        error: str | None,
        model: str | None = None,
    ) -> Span:
        """The span of one request to the model, with its retries."""
        own = _model(agent.model if model is None else model)
        agent.responses += 1
        return Span(
            self._id(scope, "chat", agent.responses),
            agent.span.id,
            f"chat {own['gen_ai.request.model']}",
            min(agent.free_at, at),
            {"gen_ai.operation.name": "chat", **own, **attributes},
            "client",
        ).ended(at, error)

    # --- calls

    @_after.register
    def _(self, event: BodyCalled) -> Iterator[Span]:
        self.names[*event.scope, event.call_id] = event.name
        yield from ()

    @_after.register
    def _(self, event: ToolStarted) -> Iterator[Span]:
        place = (*event.scope, event.call_id)
        before = self._calls.get(place)
        if before is not None and before.attempt == event.attempt:
            return  # it continues after an answer
        if before is not None:
            yield self._calls.pop(place).ended(event.at, "lost")
        name = self.names.get(place, "tool")
        attributes = _tool(name, event.call_id)
        if self._has_content:
            attributes["gen_ai.tool.call.arguments"] = _content(event.input)
        self._calls[place] = Span(
            self._id(place, "call", event.attempt),
            self.place(event.scope),
            f"execute_tool {name}",
            event.at,
            attributes,
            attempt=event.attempt,
        )

    @_after.register
    def _(self, event: ToolFinished) -> Iterator[Span]:
        place = (*event.scope, event.call_id)
        yield from self._closed(place, event.at, "cancelled" if event.error else None)
        running = self._calls.pop(place, None)
        if running is None and event.error:  # a rule denied it, or its input is not valid
            name = self.names.get(place, "tool")
            running = Span(
                self._id(place, "call", 0),
                self.place(event.scope),
                f"execute_tool {name}",
                event.at,
                _tool(name, event.call_id),
            )
            yield running.ended(event.at, "denied" if event.verdict else "not_run")
        elif running is not None:
            if self._has_content:
                running.attributes["gen_ai.tool.call.result"] = _content(event.output)
            yield running.ended(event.at, "tool_error" if event.error else None)

    # --- questions

    @_after.register
    def _(self, event: Interrupted) -> Iterator[Span]:
        place = (*event.scope, event.call_id)
        if event.tool_name:
            self.names[place] = event.tool_name
        who = "system" if event.external is not None or event.kind == "later" else "person"
        name = event.tool_name or "budget"
        attributes = {"nbagent.wait.kind": event.kind, "nbagent.interrupt.id": event.id}
        if event.tool_name:
            attributes |= {
                "gen_ai.tool.name": event.tool_name,
                "gen_ai.tool.call.id": event.call_id,
            }
        waits_in_body = event.kind in ("ask", "later")
        if not waits_in_body and place in self._calls:  # the body has ended, and may run again
            error = "lost" if event.kind == "lost" else None
            yield self._calls.pop(place).ended(event.at, error, paused=error is None)
        self._waits[event.id] = (
            place,
            Span(
                self._id(place, "wait", event.id),
                self.place(place if waits_in_body else event.scope),
                f"wait_for_{who} {name}",
                event.at,
                attributes,
            ),
        )

    @_after.register
    def _(self, event: Resolved) -> Iterator[Span]:
        _place, wait = self._waits.pop(event.id, ((), None))
        if wait is not None:
            by = event.by if event.by in KNOWN_BY else "other"
            yield wait.ended(event.at, answer=event.resolution.type, answered_by=by)

    def _id(self, scope: Scope, *parts: object) -> int:
        return _number(8, "span", self.run_id, repr(self._started_at), *scope, "", *parts)


def _number(size: int, *parts: object) -> int:
    """A number of this many bytes, never 0."""
    text = "\0".join(str(part) for part in parts)
    data = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(data[:size], "big") or 1


def _model(name: str) -> dict[str, Any]:
    """The attributes of a model, by its name in the journal."""
    provider, colon, rest = name.partition(":")
    if provider == "litellm":
        provider, colon, rest = rest.partition("/")
    if not colon or name.startswith("ft:") or " or " in name:  # the last: of ``nb.Fallback``
        is_own = name.startswith(OWN_MODELS) and " or " not in name
        provider, rest = "openai" if is_own else "_OTHER", name
    return {
        "gen_ai.provider.name": PROVIDERS.get(provider, provider),
        "gen_ai.request.model": rest,
    }


def _tool(name: str, call_id: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
    }


# --- content, with secrets masked


def _answer(event: ModelResponded) -> Json:
    parts: list[Json] = [{"type": "text", "content": event.text}] if event.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.input}
        for call in event.calls
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": event.finish_reason}


def _content(value: Json | Iterable[Json]) -> str:
    """A value as JSON, cut."""
    text = dumps(shown(value))
    return text if len(text) <= MAX_CONTENT else f"{text[: MAX_CONTENT - 1]}…"
