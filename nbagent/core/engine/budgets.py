"""The limits of a run: which one is used up, the question whether to continue, and the error if nobody can be asked."""

from __future__ import annotations

from nbagent.core.base.errors import BudgetExceeded, TurnLimit
from nbagent.core.base.events import Interrupted
from nbagent.core.base.model import Usage
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

_USED_UP_TEXTS = {
    "turns": "The model has used its {turns} (max_turns).",
    "tokens": "The run has used its tokens (budget).",
    "cost": "The run has used its cost limit (budget).",
    "seconds": "The run has used its time (budget).",
}
_UNKNOWN_TEXTS = {
    "tokens": "The number of tokens used is unknown, and is at least {tokens} (budget).",
    "cost": "The cost of the run is unknown, and is at least ${cost} (budget).",
}


def used_up_budget(state: RunState, spec: RunSpec, more: Usage) -> str | None:
    """The name of a used-up budget; None if another model call is allowed. ``more`` is usage that is not stored yet.

    An unknown amount counts as used up until a person grants more; from then on the known amount counts.
    """
    budget = spec.budget
    used = {
        "tokens": (state.usage.total_tokens + more.total_tokens, budget.tokens),
        "cost": (state.usage.known_cost + more.known_cost, budget.cost),
        "seconds": (state.active + spec.clock() - state.at, budget.seconds),
    }
    for name, (spent, allowed) in used.items():
        if allowed is None:
            continue
        granted = state.granted.get(name)
        if spent >= allowed + (granted or 0) or (granted is None and _is_unknown(name, state)):
            return name
    return None


def _is_unknown(name: str, state: RunState) -> bool:
    """Whether more may have been used than the model reported."""
    usage = state.usage
    return {"tokens": usage.partial, "cost": not usage.is_priced}.get(name, False)


def limit_error(name: str, state: RunState) -> BudgetExceeded:
    """The error that ends a run at this limit."""
    kind = TurnLimit if name == "turns" else BudgetExceeded
    return kind(_limit_text(name, state), messages=state.messages, text=state.text)


def limit_question(
    name: str, state: RunState, spec: RunSpec, scope: tuple[str, ...]
) -> Interrupted:
    """The question whether to continue past this limit: what was spent, and half of the limit as the first answer."""
    number = "integer" if name in ("turns", "tokens") else "number"
    limit = spec.max_turns if name == "turns" else getattr(spec.budget, name)
    used = state.usage
    cost = f", ${used.known_cost:.4g}" if used.known_cost else ""
    spent = f" So far: {used.total_tokens:,} tokens{cost}." if used.total_tokens else ""
    return Interrupted(
        at=spec.clock(),
        scope=scope,
        id=spec.new_id(),
        call_id="",
        tool_name="",
        kind="budget",
        expects="budget",
        input={},
        metadata={"message": f"{_limit_text(name, state).partition(' (')[0]}.{spent}"},
        reply_schema={"type": number, "exclusiveMinimum": 0, "title": f"More {name}"},
        prefill=(max(1, limit // 2) if number == "integer" else limit / 2) or None,
        budget=name,
    )


def _limit_text(name: str, state: RunState) -> str:
    used = state.usage
    texts = _UNKNOWN_TEXTS if _is_unknown(name, state) else _USED_UP_TEXTS
    numbers = {"tokens": f"{used.total_tokens:,}", "cost": f"{used.known_cost:.4g}"}
    turns = "1 turn" if state.limit == 1 else f"{state.limit} turns"
    return texts[name].format(turns=turns, **numbers)
