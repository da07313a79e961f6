"""From what a tool says when it pauses to the event that tells of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from .context import Inquiry
from .errors import Misuse
from .events import Interrupted
from .interrupts import Interrupt, InterruptKind, digest_of, to_json, token_digest
from .messages import Json
from .metadata import Ask, Choose, Edit
from .output import CallOutput
from .surroundings import Surroundings
from .tools import Tool


class Pausing(NamedTuple):
    """What makes the events of one attempt's pauses."""

    call_id: str
    tool: Tool[..., Any]
    around: Surroundings
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
            "editable": _editable(pause),
            "digest": digest_of(tool.name, input_, tool.input_schema),
            "wants_value": isinstance(pause.metadata, Ask),
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
