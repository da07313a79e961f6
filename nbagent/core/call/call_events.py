"""From what a tool says when it pauses to the event that tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import PydanticSerializationError

from nbagent.core.base.errors import Misuse, Rejected, ToolFailed
from nbagent.core.base.events import Interrupted, ToolFinished
from nbagent.core.base.interrupts import Interrupt, InterruptKind, digest_of, to_json, token_digest
from nbagent.core.base.messages import Json
from nbagent.core.base.metadata import Choose, Edit, expected
from nbagent.core.tools.context import Inquiry
from nbagent.core.tools.output import CallOutput
from nbagent.core.tools.tool import Tool, ToolResult
from nbagent.core.tools.values import for_model

from .setup import CallSetup

Ending: TypeAlias = Sequence[ToolFinished | Interrupted]
"""What an attempt is written down as; nothing where somebody else goes on with the call."""


class Endings(NamedTuple):
    """What makes the events of one attempt's results and failures."""

    call_id: str
    tool_name: str
    around: CallSetup
    output: CallOutput

    def finished(self, value: Any, verdict: str | None) -> ToolFinished:
        """The event of a body that returned ``value``; ``verdict`` as in ``ToolFinished``."""
        plain = shown = value
        if isinstance(value, ToolResult):
            plain = value.value
            shown = value.display if value.display is not None else value.value
        display = self.around.present(shown)
        return self._event(for_model(plain), verdict, display=display)

    def raised(self, error: BaseException, verdict: str | None) -> ToolFinished:
        """The event of an attempt that raised.

        Raises:
            Misuse: the tool misused its context, which is no failure that a model could mend.
            ToolFailed: the run is to raise as well.
        """
        if isinstance(error, Misuse):
            raise error
        if isinstance(error, Rejected):  # a person's no is no failure
            told_so = f"In the middle of this call of {self.tool_name}, {error}"
            return self.failed(told_so, verdict)
        if self.around.raise_errors:
            raise ToolFailed(f"the tool {self.tool_name!r} failed: {_named(error)}") from error
        return self.failed(f"The tool {self.tool_name} failed: {_named(error)}", verdict)

    def failed(self, text: str, verdict: str | None) -> ToolFinished:
        """The event of a call that came to nothing."""
        return self._event(text, verdict, error=True)

    def _event(
        self,
        output: Json,
        verdict: str | None,
        *,
        error: bool = False,
        display: dict[str, Any] | None = None,
    ) -> ToolFinished:
        return ToolFinished(
            at=self.around.clock(),
            scope=self.around.scope,
            call_id=self.call_id,
            output=output,
            error=error,
            printed=self.output.printed,
            # a figure both left open and returned is shown once
            displays=[shown for shown in self.output.displays if shown != display],
            display=display,
            verdict=verdict,
        )


def _named(error: BaseException) -> str:
    hint = ""
    if "created in a thread can only be used in that same thread" in str(error):
        hint = " (give the tool @nb.tool(thread=False) to run it where the object was made)"
    return f"{type(error).__name__}: {error}{hint}"


class Pausing(NamedTuple):
    """What makes the events of one attempt's pauses."""

    call_id: str
    tool: Tool[..., Any]
    around: CallSetup
    output: CallOutput

    def event(
        self, kind: InterruptKind, pause: Interrupt, input_: dict[str, Any], **more: Any
    ) -> Interrupted:
        """The event of a pause that shows ``input_``.

        Raises:
            Misuse: its metadata, state or default answer is no JSON, or leaves nothing to choose.
        """
        if isinstance(pause.metadata, Choose):
            pause.metadata.check_askable()
        tool, now, expiry = self.tool, self.around.clock(), pause.expiry
        editable = _editable(pause)
        fields = {
            "at": now,
            "scope": self.around.scope,
            "id": self.around.new_id(),
            "call_id": self.call_id,
            "tool_name": tool.name,
            "kind": kind,
            "input": input_,
            "metadata": stored(pause.metadata, "metadata", tool.name),
            "state": stored(pause.state, "state", tool.name),
            "expects": expected(
                kind,
                pause.metadata,
                reply_schema=more.get("reply_schema"),
                editable=editable,
                external=pause.external is not None,
            ),
            "editable": editable,
            "digest": digest_of(tool.name, input_, tool.input_schema),
            "reply_schema": tool.output_schema,
            "external": None if pause.external is None else token_digest(pause.external),
            "printed": self.output.printed,
            "displays": self.output.displays,
        }
        if expiry is not None:
            fields["expires_at"] = now + expiry.seconds
            fields["on_expire"] = expiry.then
            fields["expire_output"] = stored(expiry.output, "answer", tool.name)
        return Interrupted(**(fields | more))

    def question(self, inquiry: Inquiry, input_: dict[str, Any]) -> Interrupted:
        """The event of a question of ``ctx.ask``.

        Raises:
            Misuse: its metadata or its prefilled answer is no JSON.
        """
        pause = Interrupt(inquiry.metadata)
        pause.expiry = inquiry.expiry
        return self.event(
            "ask",
            pause,
            input_,
            reply_schema=inquiry.schema,
            prefill=stored(inquiry.prefill, "value", self.tool.name),
            ask=inquiry.number,
        )


def stored(value: Any, what: str, tool_name: str) -> Json:
    """A tool's value as the JSON that the journal keeps.

    Raises:
        Misuse: it is no JSON.
    """
    try:
        return to_json(value)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise Misuse(
            f"the tool {tool_name!r} interrupted with {what} that is no JSON: {value!r:.200}"
        ) from error


def _editable(pause: Interrupt) -> bool | tuple[str, ...]:
    editable = pause.editable
    if editable is None and isinstance(pause.metadata, Edit):
        editable = True if pause.metadata.fields is None else pause.metadata.fields
    return editable if isinstance(editable, bool) else tuple(editable or ()) or False
