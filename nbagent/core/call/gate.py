"""The gate: judges the input of a call right before the tool would run.

Only the gate compares an approval with the call that would run: the tool's name, its schema and the input. The
comparison is the same for every approval, whoever gave it and wherever the question came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.core.base.events import Interrupted
from nbagent.core.base.interrupts import CODE_CHANGED, INPUT_CHANGED, SCHEMA_CHANGED, Interrupt
from nbagent.core.base.messages import Json, canonical
from nbagent.core.journal.journal import AnyJournal
from nbagent.core.state.state import CallState
from nbagent.core.tools.policy import CallView, Judgement, denial, judge, tool_approval
from nbagent.core.tools.spec import RunSpec
from nbagent.core.tools.tool import Tool

from .setup import CallDenied


class Gate:
    """The gate of one attempt. It judges each input once, even if middleware passes the input again."""

    def __init__(self, call: CallState, journal: AnyJournal, spec: RunSpec) -> None:
        self.verdict: str | None = None
        """The rule that decided last, as text."""
        self.note: str | None = None
        """A note for the person about the question."""
        self._why: str | None = None
        """The part of ``note`` about a changed tool or a failed condition."""
        self._call = call
        self._spec = spec
        self._journal = journal
        self._judged: dict[str, Judgement | None] = {}

    def outdated(self, tool: Tool[..., Any]) -> Interrupted | None:
        """The answered pause, if the tool's parameters, or its server's description, have changed since then."""
        pause = self._call.pause
        if pause is None or self._call.resumed is None:
            return None
        return pause if pause.digest != tool.digest(pause.input) else None

    async def stops(
        self, tool: Tool[..., Any], typed: Callable[[], Any], input_: Json
    ) -> Interrupt | None:
        """The question that a person must answer first; None if the call may run.

        Args:
            tool: the tool of the call.
            typed: makes a typed copy of the input for conditions, so that they cannot change the body's input.
            input_: the input as JSON.

        Raises:
            CallDenied: a rule denies the call.
        """
        shown, options = self._call.seen_input, tool.options
        has_rules = not options.flow and bool(
            self._spec.policy or self._spec.above or options.approval or self._call.passed_input
        )
        if shown is None and not has_rules:
            return None
        text = canonical(input_)
        stop = await self._judged_stop(tool, typed, input_, text) if has_rules else None
        if shown is None or text == canonical(shown):
            return stop
        self.note = " ".join(filter(None, (self.note, INPUT_CHANGED)))
        if stop is not None:
            return stop
        self.verdict = None  # no rule asks this question
        return Interrupt(editable=options.editable)

    async def _judged_stop(
        self, tool: Tool[..., Any], typed: Callable[[], Any], input_: Json, text: str
    ) -> Interrupt | None:
        """The question of the rules about an input, which ``text`` identifies; see ``stops``."""
        if text not in self._judged:
            self._judged[text] = await self._judge(tool, typed(), input_, text)
        judgement = self._judged[text]
        if judgement is None:
            return None
        self.verdict = judgement.rule_name
        if judgement.verdict == "deny":
            why = f" Reason: {judgement.text}" if judgement.text else ""
            raise CallDenied(f"A rule denies this call of {tool.name}. It was not run.{why}")
        if judgement.verdict == "allow" or tool.fn is None:  # a tool without a body asks anyway
            return None
        if tool.options.origin is not None:
            self.note = " ".join(filter(None, (self._why, tool.options.origin.note)))
        metadata: Json = {"message": judgement.text} if judgement.text else {}
        if judgement.danger:
            metadata = {**metadata, "danger": True}
        return Interrupt(metadata or None, editable=judgement.editable or tool.options.editable)

    async def _judge(
        self, tool: Tool[..., Any], typed: Any, input_: Json, text: str
    ) -> Judgement | None:
        passed, judged = self._call.passed_input, self._call.judged_input
        cleared = passed is not None and canonical(passed) == text
        if cleared and judged is not None and canonical(judged) == text:
            return None
        origin = tool.options.origin
        annotations = {} if origin is None else dict(origin.annotations)
        call = CallView(
            self._call.id, tool.name, self._journal.history, self._spec.context, annotations
        )
        for rules, path in self._spec.above:
            names = (tool.name, f"{path}/{tool.name}")
            refused = await denial(rules, names, typed, call, reviewed=False)
            if refused is not None:
                return refused
        path = self._spec.path
        own_names = [tool.name, *([f"{path}/{tool.name}"] if path else [])]
        if cleared:  # no second review, but a denial still counts
            return await denial(self._spec.policy, own_names, typed, call, reviewed=True)
        rules = self._spec.policy
        if tool.options.asks is not None:  # a wildcard does not replace a person
            rules = [one for one in rules if one.verdict != "allow" or one.pattern in own_names]
        judgement = await judge(rules, own_names, typed, call)
        if (
            tool.options.always_needs_approval
            and judgement is not None
            and judgement.verdict == "allow"
        ):
            judgement = None
        if judgement is None and tool.fn is not None:
            judgement = await tool_approval(
                tool.options.approval,
                typed,
                call,
                editable=tool.options.editable,
                text=tool.options.asks,
            )
        if judgement is not None and judgement.verdict == "review":
            return self._with_remembered(judgement, tool, input_)
        return judgement

    def _with_remembered(
        self, judgement: Judgement, tool: Tool[..., Any], input_: Json
    ) -> Judgement:
        """The review; an approval instead, if a person chose to remember an approval of such calls."""
        ever = () if tool.options.always_needs_approval else self._spec.remembered
        known = (*ever, *self._journal.remembered)
        such = [one for one in known if one.covers(tool.name, input_)]
        same = [one for one in such if one.has_schema(tool.input_schema)]
        if same and tool.code_digest in {one.code for one in same}:
            return Judgement("allow", f"remembered, instead of {judgement.rule_name}")
        name = judgement.rule_name
        broken = f"This call needs approval because a condition failed: {name}."
        mistake = broken if judgement.is_broken else None
        self._why = self.note = CODE_CHANGED if same else SCHEMA_CHANGED if such else mistake
        return judgement
