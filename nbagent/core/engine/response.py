"""A model response: asked for, and brought together from its deltas."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from contextlib import aclosing
from typing import Any, assert_never

from nbagent.core.base.errors import ModelError, NbagentError
from nbagent.core.base.events import CallRequested, ModelResponded, made
from nbagent.core.base.messages import dumps, freeze
from nbagent.core.base.model import (
    Discarded,
    Finished,
    ModelDelta,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallDelta,
)
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.tools.spec import RunSpec


async def respond(spec: RunSpec, journal: AnyJournal, scope: tuple[str, ...]) -> ModelResponded:
    """Ask the model for its next message.

    Raises:
        ModelError: it failed, or gave no whole response.
    """
    request = Request(
        messages=journal.state.messages,
        instructions=spec.instructions,
        tools=spec.tool_specs(),
        output_schema=spec.output_schema(),
        stream=bool(journal.listeners),
    )
    collected = Collected()
    try:
        stream: Any = spec.model.stream(request)
        async with aclosing(stream):
            async for delta in stream:
                collected.add(delta)
                journal.emit(delta)
    except NbagentError:
        raise
    except Exception as error:
        raise ModelError(f"{type(error).__name__}: {error}") from error
    final = {tool.name for tool in spec.tools.values() if tool.options.final}
    return collected.event(spec.clock(), journal.state.used_ids, scope=scope, final=final)


class Collected:
    """A model response as it comes together from deltas."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[Any]] = {}
        self._finished: Finished | None = None

    def add(self, delta: ModelDelta) -> None:
        """Take one more delta."""
        match delta:
            case TextDelta(text=text):
                self._text.append(text)
            case ReasoningDelta(text=text):
                self._reasoning.append(text)
            case ToolCallDelta():
                call = self._calls.setdefault(delta.index, [None, None, []])
                call[0] = call[0] or delta.id
                call[1] = call[1] or delta.name
                call[2].append(delta.arguments)
            case Discarded():
                self.__init__()  # type: ignore[misc]
            case Finished():
                self._finished = delta
            case never:
                assert_never(never)

    def event(
        self,
        at: float,
        used_ids: Collection[str],
        *,
        scope: tuple[str, ...],
        final: Collection[str],
    ) -> ModelResponded:
        """The whole response.

        Args:
            at: when it was whole, in Unix seconds.
            used_ids: the call ids that the history has already.
            scope: the calls that lead to the run.
            final: names of the tools whose answer ends the run.

        Raises:
            ModelError: the stream ended without ``Finished``.
        """
        if self._finished is None:
            raise ModelError("the model's stream ended before the response was whole")
        usage = self._finished.usage
        return made(
            ModelResponded,
            at=at,
            scope=scope,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=self._requested(used_ids, final),
            finish_reason=self._finished.reason,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
        )

    def _requested(
        self, used_ids: Collection[str], final: Collection[str]
    ) -> tuple[CallRequested, ...]:
        seen = set(used_ids)
        requested = []
        for _, (call_id, name, pieces) in sorted(self._calls.items()):
            if not call_id or call_id in seen:
                call_id = f"call_{secrets.token_hex(8)}"  # noqa: PLW2901 - made unique here
            seen.add(call_id)
            raw = "".join(pieces)
            input_ = _object(raw)
            requested.append(
                made(
                    CallRequested,
                    id=call_id,
                    name=name or "",
                    input=freeze(input_ or {}),
                    raw=raw if input_ is None else None,
                    final=name in final,
                )
            )
        return tuple(requested)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that a call's arguments are; no text at all is an empty one."""
    if not text.strip():
        return {}
    try:
        value = _decode(text)
        dumps(value).encode()  # refuses 1e999 and lone surrogates, which no server would take
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode
