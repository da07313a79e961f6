"""What a run may use: whether it is used up, and what is asked or raised then."""

from __future__ import annotations

from .errors import BudgetExceeded, TurnLimit
from .events import Interrupted
from .spec import RunSpec
from .standing import RunState

_TEXTS = {
    "turns": "The model used its {turns} turns (max_turns).",
    "tokens": "The run used its tokens (budget).",
    "cost": "The run used up what it may cost (budget).",
    "seconds": "The run used its time (budget).",
}


def used_up(state: RunState, spec: RunSpec) -> str | None:
    """The name of a budget that allows no further model call; None where there is none."""
    budget = spec.budget
    used = {
        "tokens": (state.usage.total_tokens, budget.tokens),
        "cost": (state.usage.cost or 0.0, budget.cost),
        "seconds": (state.active + spec.clock() - state.at, budget.seconds),
    }
    for name, (spent, allowed) in used.items():
        if allowed is not None and spent >= allowed + state.granted.get(name, 0):
            return name
    return None


def exceeded(name: str, state: RunState) -> BudgetExceeded:
    """The error that ends a run at this limit."""
    kind = TurnLimit if name == "turns" else BudgetExceeded
    return kind(_text(name, state), messages=state.messages, text=state.text)


def question(name: str, state: RunState, spec: RunSpec, scope: tuple[str, ...]) -> Interrupted:
    """The question whether to go on past this limit."""
    number = "integer" if name in ("turns", "tokens") else "number"
    return Interrupted(
        at=spec.clock(),
        scope=scope,
        id=spec.new_id(),
        call_id="",
        tool_name="",
        kind="budget",
        input={},
        metadata={"message": f"{_text(name, state)} Go on?"},
        reply_schema={"type": number, "exclusiveMinimum": 0, "title": f"More {name}"},
        budget=name,
    )


def _text(name: str, state: RunState) -> str:
    return _TEXTS[name].format(turns=state.limit)
