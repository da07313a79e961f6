"""The settings that an agent passes to the engine for a run; the engine never sees an ``Agent``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nbagent.core.base.amounts import checked_amount
from nbagent.core.base.errors import UsageError
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.memory import Remembered
from nbagent.core.base.model import Hosted, Model
from nbagent.core.base.origin import process

from .answer_type import AnswerType, answer_type
from .instructions import Instructions
from .kept_history import History
from .middleware import Middleware
from .policy import Rule
from .tool import Tool

MAX_CALLS = 128
"""Maximum number of calls of one turn that are run."""
MAX_QUESTIONS = 64
"""Maximum number of open questions in one turn. With more, a person would approve without looking."""


def new_id() -> str:
    """A random id of 128 bits. If ids were derived from calls, one run's answer could match another run."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for a run, including its inner runs. None means no limit. Waiting for a person does not count.

    Raises:
        UsageError: a limit is not a finite number of at least 0.
    """

    tokens: int | None = None
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "cost", "seconds"):
            checked_amount(f"Budget({name}=…)", getattr(self, name), optional=True)


Budget.__init__ = checks_keywords("nb.Budget")(Budget.__init__)  # type: ignore[method-assign]
NO_BUDGET = Budget()
"""A budget without limits."""


def check_cost(spec: RunSpec, *, counted: bool = False) -> None:
    """Raise if cost is limited and the model's price is unknown.

    Args:
        spec: the run's settings.
        counted: True if an outer run limits the cost too.

    Raises:
        UsageError: the price is unknown. The message names the model and how to set the price.
    """
    model, counted = spec.model, counted or spec.budget.cost is not None
    if not counted or model is None or getattr(model, "reports_cost", False) is True:
        return
    name = getattr(model, "unpriced", model.name)  # one of several
    raise UsageError(
        f"Budget(cost=…) cannot be enforced: the price of the model {name!r} is unknown, also to the "
        f"package genai-prices. Upgrade it, or set the price with nb.set_prices({{{name!r}: {{'input': …, 'output': …}}}}), in US dollars per million "
        "tokens. If your own model reports Usage(cost=…), set its reports_cost = True"
    )


class Inner(NamedTuple):
    """The inner run of a call whose tool is an agent."""

    tools: Mapping[str, Tool[..., Any]]
    spec: Callable[[], RunSpec]
    remembered: list[Remembered]


class BodySettings(NamedTuple):
    """The rules, middleware and budget that a flow used as a tool adds for the calls of its body."""

    policy: Sequence[Rule] = ()
    middleware: Sequence[Middleware] = ()
    budget: Budget = NO_BUDGET


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The settings that an agent passes to the engine for a run; the engine never sees an ``Agent``."""

    agent: str
    model: Model | None
    """None for a flow, whose runs are one call of its function."""
    tools: Mapping[str, Tool[..., Any]]
    """The live mapping, not a copy, so that a redefined tool takes effect at once."""
    hosted: tuple[Hosted, ...] = ()
    """Tools that the model's provider may run itself."""
    instructions: Instructions = None
    history: History = None
    """The part of the history that the model receives; None for all of it."""
    max_turns: int = 20
    max_calls: int = MAX_CALLS
    max_questions: int = MAX_QUESTIONS
    raise_errors: bool = False
    output_type: Any = None
    output_retries: int = 2
    """Number of times in a row that an answer of the wrong type is returned to the model."""
    policy: Sequence[Rule] = ()
    above: tuple[tuple[Sequence[Rule], str], ...] = ()
    """The rules of each outer agent, and the path from that agent to this one. Such rules can only deny."""
    path: str = ""
    """The path from the agent to the body that makes these calls; empty for calls that the model makes."""
    remembered: list[Remembered] = field(default_factory=list)
    """Approvals that a person chose to remember in every run; the agent's own list."""
    middleware: Sequence[Middleware] = ()
    budget: Budget = NO_BUDGET
    context: Any = field(default=None, compare=False, repr=False)
    """The ``context=`` of the run, for tools and conditions. It is not stored."""
    trace_parent: str | None = field(default=None, compare=False)
    """The span around a run that ``nb.trace`` follows, as in the W3C header ``traceparent``."""
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = new_id
    answer: AnswerType = field(init=False, compare=False, repr=False)
    """The type of the final answer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer", answer_type(self.output_type))

    @property
    def model_name(self) -> str:
        """The name of the model in the journal; empty without a model."""
        return "" if self.model is None else self.model.name


def as_started(spec: RunSpec) -> RunSpec:
    """The settings of a run that starts now: a copy, if a model of the run may write code that changes them."""
    if not process.may_run_code:
        return spec
    from .frozen import frozen  # noqa: PLC0415 - loaded where a model may write code

    return frozen(spec)
