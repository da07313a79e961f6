"""What a driver needs to know of its agent; the engine below never sees an ``Agent``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import UsageError
from nbagent.core.base.keywords import tells_made
from nbagent.core.base.memory import Remembered
from nbagent.core.base.messages import Json
from nbagent.core.base.model import Hosted, Model, ToolSpec
from nbagent.core.hooks import hooks

from .answer_type import AnswerType, answer_type
from .hosted import allowed
from .instructions import Instructions
from .middleware import Middleware
from .policy import Rule
from .tool import Tool

MAX_CALLS = 128
"""Calls of one turn that are run."""
MAX_QUESTIONS = 64
"""Questions of one turn that wait at a time: who is asked without end approves without looking."""


def new_id() -> str:
    """A random id of 128 bits: ids derived from calls would let one run's answer pass on another."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may use, its inner runs included; None is no limit. Waiting for a person is free.

    Raises:
        UsageError: a limit is no finite number of at least 0.
    """

    tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "cost", "seconds"):
            checked_amount(f"Budget({name}=…)", getattr(self, name), optional=True)


tells_made(Budget, "nb.Budget")
NO_BUDGET = Budget()
"""Limits nothing."""


def check_cost(spec: RunSpec, *, counted: bool = False) -> None:
    """Refuse a model of which nobody knows what it costs, where cost is limited.

    Args:
        spec: the run's.
        counted: whether a run around this one limits the cost too.

    Raises:
        UsageError: naming the model, and how to say what it costs.
    """
    model, counted = spec.model, counted or spec.budget.cost is not None
    if not counted or model is None or getattr(model, "tells_cost", False) is True:
        return
    raise UsageError(
        f"Budget(cost=…) cannot be enforced: the price of the model {model.name!r} is unknown{hooks.price_list()}. "
        f"Set it with nb.set_prices({{{model.name!r}: {{'input': …, 'output': …}}}}), in US dollars per million "
        "tokens. If your own model reports Usage(cost=…), set its tells_cost = True"
    )


class Inner(NamedTuple):
    """What runs inside a call whose tool is an agent."""

    tools: Mapping[str, Tool[..., Any]]
    spec: Callable[[], RunSpec]
    prompt: Callable[[Any], str]
    remembered: list[Remembered]


class OfBody(NamedTuple):
    """What a flow that is a tool brings along for what its body starts, beside what its agent has."""

    policy: Sequence[Rule] = ()
    middleware: Sequence[Middleware] = ()
    budget: Budget = NO_BUDGET


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a driver needs to know of its agent; the engine below never sees an ``Agent``."""

    agent: str
    model: Model | None
    """None for a flow, whose runs are one call of its function."""
    tools: Mapping[str, Tool[..., Any]]
    """The registry itself: a tool defined again takes effect at once."""
    hosted: tuple[Hosted, ...] = ()
    """What the model's provider may run by itself."""
    instructions: Instructions = None
    max_turns: int = 20
    max_calls: int = MAX_CALLS
    max_questions: int = MAX_QUESTIONS
    raise_errors: bool = False
    output_type: Any = None
    output_retries: int = 2
    """How often in a row an answer that does not fit goes back to the model."""
    policy: Sequence[Rule] = ()
    above: tuple[tuple[Sequence[Rule], str], ...] = ()
    """The rules of the agents around it, which may deny, and the path from each to this one."""
    remembered: list[Remembered] = field(default_factory=list)
    """Approvals that a person said to remember for every run; the agent's own list."""
    middleware: Sequence[Middleware] = ()
    budget: Budget = NO_BUDGET
    context: Any = field(default=None, compare=False, repr=False)
    """What the run was given for its tools and conditions; in memory alone."""
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = new_id
    specs: dict[str, tuple[ToolSpec, ...]] = field(default_factory=dict, compare=False)
    """The last tools sent, so that the same tuple is sent as long as they are the same."""

    @property
    def model_name(self) -> str:
        """What the journal calls the model; empty where there is none."""
        return "" if self.model is None else self.model.name

    @property
    def answer(self) -> AnswerType:
        """What its runs end with."""
        return answer_type(self.output_type)

    def typed_output(self, output: Json) -> Any:
        """A final answer's JSON as ``output_type``; as it is without one."""
        return self.answer.typed(output)

    def hosted_allowed(self) -> tuple[Hosted, ...]:
        """The hosted tools that the rules let the model have, this agent's and those around it."""
        return allowed(self.hosted, self.policy, self.above) if self.hosted else ()

    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is told about them; the same object while they don't change."""
        current = tuple(t.spec for t in self.tools.values())
        last = self.specs.get("last", ())
        if len(last) != len(current) or any(a is not b for a, b in zip(last, current, strict=True)):
            self.specs["last"] = current
            return current
        return last
