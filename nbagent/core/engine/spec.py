"""What a driver needs to know of its agent; the engine below never sees an ``Agent``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from nbagent.core.base.errors import ModelError
from nbagent.core.base.messages import Json, dumps
from nbagent.core.base.model import Model, ToolSpec
from nbagent.core.state.next_step import Finish
from nbagent.core.tools.middleware import Middleware
from nbagent.core.tools.policy import Rule
from nbagent.core.tools.tool import Tool
from nbagent.core.tools.values import describe

MAX_QUOTED = 200
"""Characters of an answer that does not fit, in the error that says so."""


def new_id() -> str:
    """A random id of 128 bits: ids derived from calls would let one run's answer pass on another."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may use, its inner runs included; None is no limit. Waiting for a person is free."""

    tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None


class Inner(NamedTuple):
    """What runs inside a call whose tool is an agent."""

    tools: Mapping[str, Tool[..., Any]]
    spec: Callable[[], RunSpec]
    prompt: Callable[[Any], str]
    remembered: list[Rule]


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a driver needs to know of its agent; the engine below never sees an ``Agent``."""

    agent: str
    model: Model
    tools: Mapping[str, Tool[..., Any]]
    """The registry itself: a tool defined again takes effect at once."""
    instructions: str | None = None
    max_turns: int = 20
    raise_errors: bool = False
    output_type: Any = None
    policy: Sequence[Rule] = ()
    remembered: list[Rule] = field(default_factory=list)
    """Approvals that a person said to remember; the agent's own list."""
    middleware: Sequence[Middleware] = ()
    budget: Budget = Budget()
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = new_id
    specs: dict[str, tuple[ToolSpec, ...]] = field(default_factory=dict, compare=False)
    """The last tools sent, so that the same tuple is sent as long as they are the same."""

    def typed_output(self, output: Any) -> Any:
        """A final answer's JSON as ``output_type``; None without one."""
        if self.output_type is None or output is None:
            return output
        return TypeAdapter(self.output_type).validate_json(dumps(output))

    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the final answer; None without ``output_type``."""
        if self.output_type is None:
            return None
        return TypeAdapter(self.output_type).json_schema()

    def final_output(self, finish: Finish) -> Json:
        """A final answer's output, as the JSON of ``output_type`` where there is one.

        Raises:
            ModelError: it does not fit.
        """
        if self.output_type is None:
            return finish.output
        adapter = TypeAdapter(self.output_type)
        text = dumps(finish.output) if finish.by_tool else finish.text
        try:
            return adapter.dump_python(adapter.validate_json(text), mode="json")
        except ValidationError as error:
            whose = "tool's" if finish.by_tool else "model's"
            raise ModelError(
                f"the {whose} final answer does not fit output_type: {describe(error)}; "
                f"it was {text[:MAX_QUOTED]!r}{'…' if len(text) > MAX_QUOTED else ''}"
            ) from error

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is told about them; the same object while they don't change."""
        current = tuple(t.spec for t in self.tools.values())
        last = self.specs.get("last", ())
        if len(last) != len(current) or any(a is not b for a, b in zip(last, current, strict=True)):
            self.specs["last"] = current
            return current
        return last
