"""Makes the events for a tool's results, errors and questions."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from nbagent.core.base.errors import Misuse, Rejected, ToolFailed, UsageError, as_shown
from nbagent.core.base.events import NO_DISPLAYS, Interrupted, ToolFinished
from nbagent.core.base.interrupts import Interrupt, InterruptKind, token_digest
from nbagent.core.base.messages import Json, freeze
from nbagent.core.base.metadata import Choose, Edit, asking_inputs, expected, is_bare
from nbagent.core.base.secrets import SecretPlaces, has_secret, sealed_json, shown
from nbagent.core.hooks import hooks
from nbagent.core.state.state import CallState
from nbagent.core.tools.attachments import NOTHING, ValueAndFiles, take_files
from nbagent.core.tools.call_output import CallOutput
from nbagent.core.tools.context import Inquiry, Later
from nbagent.core.tools.result_text import MAX_OUTPUT, MAX_SHOWN, for_model, shortened_text
from nbagent.core.tools.tool import Presenter, Tool, ToolResult

from .setup import CallSetup, Pause

_NAMED = 12
"""Maximum number of a tool's parameters that a text for the model lists."""


class CallEvents(NamedTuple):
    """Makes the events of one call: its results, failures and pauses."""

    call: CallState
    setup: CallSetup
    output: CallOutput

    def finished(self, value: Any, verdict: str | None) -> ToolFinished:
        """The event of a body that returned ``value``; ``verdict`` as in ``ToolFinished``."""
        result = value if isinstance(value, ToolResult) else ToolResult(value)
        present = _once(self.setup.hooks.present)
        try:
            found = take_files(result.value, present, result.files, self.setup.file_room)
        except UsageError as error:
            return self.raised(error, verdict)
        shown = found.value if result.display is None else result.display
        limit = None if self.call.final else self._limit  # the answer of a run is not shortened
        display = present(shown)
        words = None if display is None or result.display is not None else display.get("text/plain")
        output = for_model(found.value, limit, words, self._how_to_get_the_rest)
        if (
            display is None
            and limit is not None
            and isinstance(output, str)
            and len(output) > limit
        ):
            kept = for_model(found.value, MAX_SHOWN)  # only the model's text is shortened
            display = {"text/plain" if isinstance(kept, str) else "application/json": kept}
        return self._event(output, verdict, display=display, found=found)

    def raised(self, error: BaseException, verdict: str | None) -> ToolFinished:
        """The event of an attempt that raised.

        Raises:
            Misuse: the tool misused its context, which the model cannot correct.
            ToolFailed: the tool raised, and an error of a tool fails this run.
        """
        if isinstance(error, Misuse):
            raise error
        tool = self.setup.spec.tools.get(self.call.name)
        is_flow = tool is not None and tool.options.flow
        if isinstance(error, Rejected) and not is_flow:  # a rejection is not a failure
            told_so = f"During this call of {self.call.name}, {error}"
            return self.failed(told_so, verdict)
        if self.setup.spec.raise_errors:
            kind = "flow" if is_flow else "tool"
            raise ToolFailed(f"The {kind} {self.call.name!r} failed: {_named(error)}") from error
        return self.failed(f"The tool {self.call.name} failed: {_named(error)}", verdict)

    def failed(self, text: str, verdict: str | None) -> ToolFinished:
        """The event of a call that failed."""
        return self._event(shortened_text(text, self._limit), verdict, error=True)

    @property
    def _limit(self) -> int | None:
        """Maximum characters of a result for the model."""
        tool = self.setup.spec.tools.get(self.call.name)
        return MAX_OUTPUT if tool is None else tool.options.max_output

    def _how_to_get_the_rest(self) -> str:
        """Advice for the model if a result is too long."""
        tool = self.setup.spec.tools.get(self.call.name)
        takes = [] if tool is None else [*tool.input_schema.get("properties", {})]
        if not takes:
            return f"and {self.call.name} has no parameter to select a part. The person sees more of the result"
        by = ", ".join(takes[:_NAMED]) + (", …" if len(takes) > _NAMED else "")
        return (
            f"call {self.call.name} again so that it returns less, or a part of it (it takes {by})"
        )

    def _event(
        self,
        output: Json,
        verdict: str | None,
        *,
        error: bool = False,
        display: dict[str, Any] | None = None,
        found: ValueAndFiles = NOTHING,
    ) -> ToolFinished:
        return ToolFinished(
            at=self.setup.spec.clock(),
            scope=self.setup.scope,
            call_id=self.call.id,
            output=output,
            error=error,
            printed=self.output.printed,
            # a figure that is both displayed and returned is shown once
            displays=[
                shown
                for shown in self.output.displays
                if shown != display and shown not in found.drawn
            ]
            or NO_DISPLAYS,
            display=display,
            verdict=verdict,
            files=tuple(map(freeze, found.files)),
            plan=self.output.last_plan,
            plan_done=self.output.last_done,
        )

    def paused(
        self, tool: Tool[..., Any], pause: Pause, input_: dict[str, Any], **more: Any
    ) -> Interrupted:
        """The event of a pause that shows ``input_``.

        Raises:
            Misuse: the metadata, state or default answer is not JSON, or there is nothing to choose.
        """
        interrupt = pause.interrupt
        around = pause.asker == "middleware"
        kind: InterruptKind = "tool" if pause.asker == "middleware" else pause.asker
        if isinstance(interrupt.metadata, Choose):
            interrupt.metadata.check_askable()
        spec, expiry = self.setup.spec, interrupt.expiry
        now = spec.clock()
        editable = _editable(interrupt)
        external = interrupt.external is not None
        bare = pause.asker == "tool" and is_bare(interrupt.metadata)
        asking = None
        if bare and not (editable or external):
            declared = tool.input_schema.get("properties", {})
            asking = asking_inputs(input_, declared, tool.output_schema)
        fields = {
            "at": now,
            "scope": self.setup.scope,
            "id": spec.new_id(),
            "call_id": self.call.id,
            "tool_name": tool.name,
            "kind": kind,
            "around": around,
            "asking": freeze(asking) if asking else None,
            "input": input_,
            "metadata": stored(interrupt.metadata, "metadata", tool.name),
            "state": stored(interrupt.state, "state", tool.name, comes_back=True),
            "expects": expected(
                kind,
                interrupt.metadata,
                reply_schema=more.get("reply_schema"),
                editable=editable,
                external=external,
                asking=asking,
            ),
            "editable": editable,
            "digest": tool.digest(input_),
            "reply_schema": tool.output_schema,
            "input_schema": tool.input_schema if editable else None,
            "external": None if interrupt.external is None else token_digest(interrupt.external),
            "printed": self.output.printed,
            "displays": self.output.displays,
            "plan": self.output.last_plan,
            "plan_done": self.output.last_done,
        }
        if expiry is not None:
            fields["expires_at"] = now + expiry.seconds
            fields["on_expire"] = expiry.then
            fields["expire_output"] = stored(expiry.output, "answer", tool.name, comes_back=True)
        return Interrupted(**(fields | more))

    def later(self, tool: Tool[..., Any], later: Later, input_: dict[str, Any]) -> Interrupted:
        """The event of an interim result, whose final result an outside system sends.

        Raises:
            Misuse: the default answer does not match the schema.
        """
        interrupt = Interrupt()
        interrupt.expiry, interrupt.external = later.expiry, later.token
        schema = tool.output_schema if later.schema is None else later.schema
        event = self.paused(tool, Pause("later", interrupt), input_, reply_schema=schema)
        by_default = event.on_expire == "answer" and schema is not None
        if by_default and hooks.schema_errors(schema, event.expire_output):
            raise Misuse(f"The on_expire= answer of {tool.name!r} does not match its answer type")
        return event

    def asked(self, tool: Tool[..., Any], inquiry: Inquiry, input_: dict[str, Any]) -> Interrupted:
        """The event of a question of ``ctx.ask``.

        Raises:
            Misuse: the metadata or the prefilled answer is not JSON.
        """
        interrupt = Interrupt(inquiry.metadata)
        interrupt.expiry = inquiry.expiry
        prefill = stored(inquiry.prefill, "value", tool.name)
        places = SecretPlaces.of(inquiry.schema)
        return self.paused(
            tool,
            Pause("ask", interrupt),
            input_,
            reply_schema=inquiry.schema,
            prefill=prefill if places is None else places.masked(prefill),
            ask=inquiry.number,
        )


def _once(present: Presenter) -> Presenter:
    """The presenter, with its results cached, so that each value is drawn once."""
    drawn: dict[int, tuple[Any, dict[str, Any] | None]] = {}

    def presented(value: Any, /) -> dict[str, Any] | None:
        if id(value) not in drawn:
            drawn[id(value)] = (value, present(value))
        return drawn[id(value)][1]

    return presented


def _named(error: BaseException) -> str:
    hint, shown = "", as_shown(error)
    text = shown.removeprefix(f"{type(error).__name__}: ")
    if "created in a thread can only be used in that same thread" in text:
        hint = (
            " (set @nb.tool(thread=False) to run the tool in the thread where the object was made)"
        )
    match error:  # an error of ``input()``: no line can be typed in a script, a kernel, or a test
        case EOFError():
            is_of_input = text == "EOF when reading a line" or (not text and _is_of_getpass(error))
        case RuntimeError():
            is_of_input = text.startswith(
                ("input():", "raw_input was called", "getpass was called")
            )
        case _:
            is_of_input = isinstance(error, OSError) and "reading from stdin" in text
    if is_of_input:
        hint = " (a tool cannot use input(). Use ctx.ask_sync(…) or await ctx.ask(…))"
        if not text or text.startswith("getpass"):
            hint = " (a tool cannot use getpass. Use ctx.ask_sync(…, reply=pydantic.SecretStr))"
    return f"{shown}{hint}"


def _is_of_getpass(error: BaseException) -> bool:
    frames = (frame for frame, _line in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == "getpass" for frame in frames)


def stored(value: Any, what: str, tool_name: str, *, comes_back: bool = False) -> Json:
    """A tool's value as JSON for the journal, with masks for secrets.

    ``comes_back``: the tool receives the stored value again, so the value must not have secrets.

    Raises:
        Misuse: the value is not JSON, or has a secret although it comes back.
    """
    if value is None:
        return None
    if isinstance(value, type):
        name = value.__name__
        also = f", or reply={name} to ask for one" if what == "metadata" else ""
        raise Misuse(
            f"The tool {tool_name!r} passed the class {name} as {what}. Pass an instance, {name}(…){also}"
        )
    try:
        sealed = sealed_json(value)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise Misuse(
            f"The tool {tool_name!r} interrupted with {what} that is not JSON: {value!r:.200}"
        ) from error
    if comes_back and has_secret(sealed):
        raise Misuse(
            f"The tool {tool_name!r} interrupted with {what} that contains a secret, and secrets are never stored. Ask "
            "for it again when the tool continues"
        )
    return shown(sealed)


def _editable(pause: Interrupt) -> bool | tuple[str, ...]:
    editable = pause.editable
    if editable is None and isinstance(pause.metadata, Edit):
        editable = True if pause.metadata.fields is None else pause.metadata.fields
    return editable if isinstance(editable, bool) else tuple(editable or ()) or False
