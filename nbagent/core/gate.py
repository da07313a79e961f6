"""The gate: judges the input that reaches a tool, right before it would run."""

from __future__ import annotations

from typing import Any

from .interrupts import Interrupt
from .messages import Json, canonical
from .policy import Judgement, asks, judge, remembers
from .standing import CallState
from .surroundings import Denied, Surroundings
from .tools import Tool


class Gate:
    """The gate of one attempt; it judges an input once, however often that comes."""

    def __init__(self, call: CallState, run_id: str, around: Surroundings) -> None:
        self.verdict: str | None = None
        """The rule that spoke last."""
        self._call = call
        self._around = around
        self._remembered = [rule for rule in around.remembered if rule.covers(run_id)]
        self._judged: dict[str, Judgement | None] = {}

    def stops(self, tool: Tool[..., Any], typed: Any, input_: Json) -> Interrupt | None:
        """The question that a person must answer first; None lets the call pass.

        Raises:
            Denied: a rule refuses the call.
        """
        if self._is_approved(input_):
            return None
        key = canonical(input_)
        if key not in self._judged:
            self._judged[key] = self._judge(tool, typed, input_)
        judgement = self._judged[key]
        if judgement is None:
            return None
        self.verdict = judgement.rule
        if judgement.verdict == "deny":
            why = f" The reason: {judgement.text}" if judgement.text else ""
            raise Denied(f"A rule refuses this call of {tool.name}; it was not run.{why}")
        if judgement.verdict == "allow" or tool.fn is None:  # one without a body asks anyway
            return None
        metadata = {"message": judgement.text} if judgement.text else None
        return Interrupt(metadata, editable=judgement.editable)

    def _judge(self, tool: Tool[..., Any], typed: Any, input_: Json) -> Judgement | None:
        judgement = judge(self._around.policy, self._remembered, tool.name, typed, input_)
        if judgement is not None or tool.fn is None:
            return judgement
        if not asks(tool.options.approval, typed):
            return None
        if remembers(self._remembered, tool.name, input_):
            return Judgement("allow", f"remembered, instead of approval= of {tool.name}")
        return Judgement("review", f"approval= of {tool.name}", tool.options.editable)

    def _is_approved(self, input_: Json) -> bool:
        """Whether exactly this input has passed the gate before, or a person approved it there."""
        cleared = self._call.cleared
        return cleared is not None and canonical(input_) == canonical(cleared)
