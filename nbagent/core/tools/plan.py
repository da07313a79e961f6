"""A tool with which a model shows its plan in the card."""

from __future__ import annotations

from .context import MAX_STEPS, ToolContext
from .define import tool


@tool
def plan(ctx: ToolContext, steps: list[str], done: int = 0) -> str:
    """Show the person your plan as a checklist.

    Call it before work of several steps, and again whenever a step is done or the plan changes.

    Args:
        ctx: the context of the call.
        steps: all steps of the plan, in order, each in a few words.
        done: the number of steps that are done.
    """
    ctx.plan(steps[:MAX_STEPS], done=max(0, min(done, len(steps[:MAX_STEPS]))))
    return "The plan is shown."
