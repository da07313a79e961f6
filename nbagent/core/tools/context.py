"""The context of a tool call: its input and run, its pauses, questions and steps, and its progress."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Never, Protocol, TypeVar, cast, get_args, overload

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from nbagent.core.base.errors import Misuse
from nbagent.core.base.interrupts import Expiry, Interrupt, Resumed, new_token, value_as
from nbagent.core.base.keywords import checks_keywords
from nbagent.core.base.messages import Json, Message
from nbagent.core.base.metadata import Ask, Choose, Confirm
from nbagent.core.base.secrets import SecretSchema, schema_has_secret

from .call_output import CallOutput
from .json_schema import adapter_of, usable, why_no_schema

MAX_STEPS = 50
"""Steps of a plan."""

T = TypeVar("T")


class RestartValues(NamedTuple):
    """The values that a restart passes to a body."""

    resumed: Resumed | None = None
    approved: Resumed | None = None
    original_input: Json = None
    state: Json = None


class Inquiry(NamedTuple):
    """One question of ``ctx.ask``."""

    number: int
    """The question's number in the body, from 0. The answer is found by this number."""
    metadata: Any
    reply: TypeAdapter[Any]
    schema: Json = None
    """JSON Schema of the answer."""
    prefill: Any = None
    expiry: Expiry | None = None


class Later(NamedTuple):
    """The result of ``ctx.later``, for a body to return."""

    interim: Any
    token: str
    schema: Json
    """JSON Schema of the final result; None for the schema of the tool's return type."""
    expiry: Expiry | None


class Row:
    """The row of a call that other code runs; ``ctx.row`` returns it. It ends with ``done`` or ``failed``, or with the body.

    Await both methods. After ``ctx.row_sync`` they are plain functions. Only the first end counts.
    """

    def __init__(self, end: Callable[[Any, bool], Any]) -> None:
        self._end = end

    def done(self, value: Any = None) -> Any:
        """Show the result of the call. A value that is not JSON, or is too long, is shown by its text."""
        return self._end(value, False)  # noqa: FBT003 - of its own function

    def failed(self, text: str) -> Any:
        """Show that the call failed, with the reason."""
        return self._end(text, True)  # noqa: FBT003 - as above


class Asker(Protocol):
    """The part of a call that serves its ``ToolContext``: pauses, questions, steps and inner calls."""

    def pause(self, interrupt: Interrupt) -> None:
        """Pause the call, even if the body catches the interrupt."""

    def promised(
        self, name: str, make: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """The coroutine of ``make``. If the body never awaits the coroutine, the call fails."""

    @property
    def is_live(self) -> bool:
        """Whether the body waits for an answer at the line of its question."""

    async def ask(self, inquiry: Inquiry) -> Any:
        """Return the answer to a question."""

    def steps(self) -> Mapping[str, Json]:
        """The values of this body's finished steps, by name."""

    def step(self, name: str, work: Callable[[], Any], *, shown: bool) -> Coroutine[Any, Any, Any]:
        """Return the value of a step, which runs once."""

    async def call(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """Return the result of a tool that the body calls."""

    def call_sync(self, tool: Any, input_: Mapping[str, Any]) -> Any:
        """``call`` in a thread."""

    def ask_sync(self, inquiry: Inquiry) -> Any:
        """``ask`` in a thread."""

    def step_sync(self, name: str, work: Callable[[], Any], *, shown: bool) -> Any:
        """``step`` in a thread."""

    async def approve(self, name: str, input_: Any, id_: str | None, **asked: Any) -> Any:
        """Return the input of a call that the body runs itself, as approved."""

    def approve_sync(self, name: str, input_: Any, id_: str | None, **asked: Any) -> Any:
        """``approve`` in a thread."""

    def row(self, name: str, input_: Any, id_: str, *, sync: bool) -> Row:
        """Show a call that the body runs itself."""

    def write(self, text: str) -> None:
        """Show text."""


class ToolContext:
    """The context of a tool call: its input, run and questions. A tool receives it as its ``ctx`` parameter."""

    def __init__(  # noqa: PLR0913 - keyword-only, and made in one place
        self,
        *,
        call_id: str,
        tool_name: str,
        attempt: int,
        output: CallOutput,
        carried: RestartValues,
        asker: Asker,
        context: Any = None,
        run_id: str = "",
        messages: Callable[[], tuple[Message, ...]] = tuple,
    ) -> None:
        self.call_id = call_id
        self.tool_name = tool_name
        self.attempt = attempt
        """Number of starts of the body, including this one."""
        self.resumed: Resumed | None = carried.resumed
        """The data of a restart after the tool's own pause; None if there was none, or it has no answer."""
        self.approved: Resumed | None = carried.approved
        """The data of a person's approval of this call, if a rule or ``approval=`` asked for one."""
        self.original_input: Json = carried.original_input
        self.state: Json = carried.state
        self.context = context
        """The ``context=`` of the run; None if the run was started or opened without ``context=``."""
        self.run_id = run_id
        """The id of the run; for a call in an inner run, that of the outermost run."""
        self._messages = messages
        self._output = output
        self._asker = asker
        self._ask_count = 0
        self._token: str | None = None
        self.promised_later: Later | None = None
        """The last result of ``later``."""

    @property
    def is_live(self) -> bool:
        """True if ``ask`` waits at its line. Otherwise the body ends at that line, and runs again with the answer."""
        return self._asker.is_live

    @checks_keywords("ctx.interrupt")
    def interrupt(
        self,
        metadata: Any = None,
        *,
        state: Any = None,
        editable: bool | Sequence[str] | None = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
        external: bool = False,
    ) -> Never:
        """Pause this call until it is answered. Never returns.

        Args:
            metadata: the reason, for the person: ``Choose``, ``Confirm``, ``Edit``, any pydantic model, a
                dict. It must be JSON-able.
            state: a value stored with the pause; it is ``ctx.state`` when the tool runs again.
            editable: True if a form may change the input, or the names of the inputs that it may change.
            expires_in: seconds (or a timedelta) until ``on_expire`` is applied.
            on_expire: ``"reject"``, ``"fail"`` (the run), or ``nb.Respond(default answer)``.
            external: True if an outside system answers, with ``ctx.external_token``. No form is shown.
        """
        interrupt = Interrupt(
            metadata, state=state, editable=editable, expires_in=expires_in, on_expire=on_expire
        )
        interrupt.external = self.external_token if external else None
        self._asker.pause(interrupt)
        raise interrupt

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history up to the call; its last message has the call, or, for a ``ctx.call``, the outer call."""
        return self._messages()

    @property
    def external_token(self) -> str:
        """The secret token with which an outside system answers ``interrupt(external=True)`` or ``later``, once.

        First pass the token to the outside system, which calls ``nb.answer_external(token, value)``. Only the
        token's hash is stored.
        """
        if self._token is None:
            self._token = new_token()
        return self._token

    @checks_keywords("ctx.later")
    def later(
        self,
        interim: Any,
        *,
        reply: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Any:
        """A return value for a result that comes later: ``return ctx.later(f"started, {job}")``.

        First pass ``ctx.external_token`` to the outside system. The call ends with ``interim``, and the run
        continues. When the system calls ``nb.answer_external(token, value)``, the model receives the value as a
        message, after the results of the open turn. The run does not end before this message.

        Args:
            interim: the text that the model receives now.
            reply: the type of the final result, or its JSON Schema; the tool's return type by default.
            expires_in: seconds (or a timedelta) until ``on_expire`` is applied.
            on_expire: ``"reject"``, ``"fail"`` (the run), or ``nb.Respond(default answer)``.

        Raises:
            Misuse: the final result would contain a secret, which the model would receive.
        """
        schema = None
        if reply is not None:
            adapter = adapter_of(usable(reply, "reply=", Misuse))
            schema = adapter.json_schema(schema_generator=SecretSchema)
        if schema_has_secret(schema):
            raise Misuse(
                "The final result would contain a secret, and the model receives the result"
            )
        expiry = Expiry.of(expires_in, on_expire)
        self.promised_later = Later(interim, self.external_token, schema, expiry)
        return self.promised_later

    @overload
    def ask(
        self,
        metadata: Any,
        *,
        reply: type[T],
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def ask(
        self,
        metadata: Any,
        *,
        reply: Mapping[str, Any] | None = None,
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Coroutine[Any, Any, Any]: ...
    @checks_keywords("ctx.ask")
    def ask(
        self,
        metadata: Any,
        *,
        reply: Any = None,
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Coroutine[Any, Any, Any]:
        """Ask the person and return the answer.

        In a live kernel the body waits at this line with its local variables. After a restart of the kernel,
        and in ``generate``, the body runs again from its beginning. Earlier answers then return at once. Put
        work that must not be repeated into ``ctx.step``. A secret in an answer (``SecretStr``) is not stored;
        if the secret is lost, the question is asked again.

        Args:
            metadata: a text, ``Ask``, ``Choose``, ``Confirm``, or any metadata of your own.
            reply: the type of the answer, or its JSON Schema; by default from the metadata, if it has one.
            value: the initial value in the form.
            expires_in: seconds (or a timedelta) until ``on_expire`` is applied.
            on_expire: ``"reject"``, ``"fail"`` (the run), or ``nb.Respond(default answer)``.

        Approval of a ``Confirm`` returns True, and rejection raises ``Rejected``. Code may also answer False.

        Raises:
            Rejected: the person rejected the question.
        """
        # raises at the call, not at the ``await``, if no form can ask for the type
        wanted = _wanted(metadata, reply)

        async def ask() -> Any:
            expiry = Expiry.of(expires_in, on_expire)
            return await self._asker.ask(self._inquiry(metadata, wanted, value, expiry))

        return self._asker.promised("ctx.ask", ask)

    @overload
    def ask_sync(
        self,
        metadata: Any,
        *,
        reply: type[T],
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> T: ...
    @overload
    def ask_sync(
        self,
        metadata: Any,
        *,
        reply: Mapping[str, Any] | None = None,
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Any: ...
    @checks_keywords("ctx.ask_sync")
    def ask_sync(
        self,
        metadata: Any,
        *,
        reply: Any = None,
        value: Any = None,
        expires_in: float | timedelta | None = None,
        on_expire: Any = "reject",
    ) -> Any:
        """``ask`` for sync tools: waits in the tool's own thread.

        Raises:
            Rejected: the person rejected the question.
        """
        expiry = Expiry.of(expires_in, on_expire)
        wanted = _wanted(metadata, reply)
        return self._asker.ask_sync(self._inquiry(metadata, wanted, value, expiry))

    @property
    def steps(self) -> Mapping[str, Json]:
        """Values of the finished steps, by name, including steps of earlier starts of the body."""
        return self._asker.steps()

    def step(
        self, name: str, work: Callable[[], Any], *, shown: bool = True
    ) -> Coroutine[Any, Any, Any]:
        """Run ``work`` (a function, maybe async) once and store its value. If the body runs again, return that value.

        If the same step is already running, wait for its value.

        The value must be JSON-able, and is returned as plain JSON, which may be changed. It can also be a table (pandas,
        polars, Arrow) or a numpy array, of up to 20 MB as Parquet or npy; if the body runs again, it gets a copy. Use a
        separate name for each piece of work, such as for each round of a loop. Other work with the same name raises.

        Args:
            name: the name of the step.
            work: the function.
            shown: False for a step without a row in the card.
        """
        work = _checked_work(name, work)
        return self._asker.promised("ctx.step", lambda: self._asker.step(name, work, shown=shown))

    def step_sync(self, name: str, work: Callable[[], Any], *, shown: bool = True) -> Any:
        """``step`` for sync tools."""
        return self._asker.step_sync(name, _checked_work(name, work), shown=shown)

    def write(self, text: str) -> None:
        """Show text (Markdown) in the card, below the rows so far. Pieces of streamed text are joined.

        The text is stored together with the body's next step, row, question, call or end. If the process is killed
        before, the text is lost. Of more than 16 million characters in one call, the rest is left out.
        """
        self._asker.write(text)

    @checks_keywords("ctx.row")
    def row(self, name: str, input: Any = None, *, id: str) -> Row:  # noqa: A002
        """Show a call that your own code runs: ``row = ctx.row("search", {"for": "x"}, id=call_id)``.

        Then ``await row.done(value)`` or ``await row.failed(text)``. With the ``id`` of a ``ctx.approve``, the row is the
        approval's row. A call whose id, name and input were shown before is not shown again.

        Args:
            name: the name of the tool.
            input: the input, to be shown.
            id: your code's id of the call.

        Raises:
            ToolError: the name or the id is not usable.
            Misuse: a rule denies or reviews this tool. Ask with ``ctx.approve`` before your code runs the call.
        """
        return self._asker.row(name, input, id, sync=False)

    @checks_keywords("ctx.row_sync")
    def row_sync(self, name: str, input: Any = None, *, id: str) -> Row:  # noqa: A002
        """``row`` for sync tools: ``row.done(value)`` and ``row.failed(text)`` without ``await``."""
        return self._asker.row(name, input, id, sync=True)

    @checks_keywords("ctx.approve")
    def approve(
        self,
        name: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        id: str | None = None,  # noqa: A002
        message: str = "",
        editable: bool | Sequence[str] = False,
        schema: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask a person before your own code runs a call, and return the input, as the person approved it.

        The run's rules apply as for a tool of this name, but only ``nb.allow`` with the exact name lets the call pass
        without a person. If the body runs again, the stored answer returns at once.

        Args:
            name: the name of the tool.
            input: the input, a JSON object.
            id: your code's id of the call, also for ``ctx.row``.
            message: the text of the question.
            editable: True if the person may change the input, or the names of the inputs that may be changed.
            schema: the JSON Schema of the input, with which a changed input is checked.

        Raises:
            Rejected: the person rejected the call; ``reason`` has the person's words.
            ToolFailed: a rule denies the call.
            ToolError: an argument is not usable.
        """
        asked = {"message": message, "editable": editable, "schema": schema}
        return self._asker.promised(
            "ctx.approve", lambda: self._asker.approve(name, input, id, **asked)
        )

    @checks_keywords("ctx.approve_sync")
    def approve_sync(
        self,
        name: str,
        input: Mapping[str, Any],  # noqa: A002
        *,
        id: str | None = None,  # noqa: A002
        message: str = "",
        editable: bool | Sequence[str] = False,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """``approve`` for sync tools: waits in the tool's own thread."""
        asked = {"message": message, "editable": editable, "schema": schema}
        approved: dict[str, Any] = self._asker.approve_sync(name, input, id, **asked)
        return approved

    @overload
    def call(
        self,
        tool: Callable[..., Coroutine[Any, Any, T]],
        /,
        **input: Any,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def call(self, tool: Callable[..., T], /, **input: Any) -> Coroutine[Any, Any, T]: ...
    def call(self, tool: Any, /, **input: Any) -> Coroutine[Any, Any, Any]:  # noqa: A002
        """Call a tool (or a plain function) as a model would, and return its result.

        The new call is inside this call: the run's rules and middleware apply, its questions appear on the
        outermost run, and its row in the card is below this call's row. If the body runs again, the stored
        result returns at once.

        Raises:
            Rejected: a person rejected the new call.
            ToolFailed: the new call failed, or a rule denies it.
            ToolError: the input is invalid.
        """
        return self._asker.promised("ctx.call", lambda: self._asker.call(tool, input))

    @overload
    def call_sync(self, tool: Callable[..., Coroutine[Any, Any, T]], /, **input: Any) -> T: ...
    @overload
    def call_sync(self, tool: Callable[..., T], /, **input: Any) -> T: ...
    def call_sync(self, tool: Any, /, **input: Any) -> Any:  # noqa: A002
        """``call`` for sync tools: waits in the tool's own thread."""
        return self._asker.call_sync(tool, input)

    def progress(self, fraction: float | None = None, text: str = "") -> None:
        """Show progress: ``fraction`` from 0 to 1, or None if it is unknown."""
        self._output.progress(fraction, text)

    def plan(self, steps: Sequence[str], *, done: int = 0) -> None:
        """Show a checklist in the card's header, instead of an earlier one.

        Example:
                ctx.plan(["Read the orders", "Check them", "Write the report"], done=1)

        Args:
            steps: the steps, in order; at most 50.
            done: the number of steps that are done. The next one is shown as the current one.

        Raises:
            Misuse: the steps are not strings, or ``done`` is not their number at most.
        """
        listed = () if isinstance(steps, str) else tuple(steps)
        if not 0 < len(listed) <= MAX_STEPS or not all(isinstance(step, str) for step in listed):
            raise Misuse(f"ctx.plan needs a list of 1 to {MAX_STEPS} strings, got {steps!r:.80}")
        if done not in range(len(listed) + 1):
            raise Misuse(f"`done` must be an integer from 0 to {len(listed)}, got {done!r:.80}")
        self._output.plan(listed, done)

    def resumed_as(self, type_: type[T]) -> T | None:
        """The data of a restart, as ``type_``; None if there is none or it has another shape."""
        return None if self.resumed is None else value_as(self.resumed.data, type_)

    def original_input_as(self, type_: type[T]) -> T | None:
        """The model's own input if a person replaced it, as ``type_``; else None."""
        return value_as(self.original_input, type_)

    def state_as(self, type_: type[T]) -> T | None:
        """The state stored with the interrupt, as ``type_``; None if there is none."""
        return value_as(self.state, type_)

    def _inquiry(
        self,
        metadata: Any,
        wanted: tuple[TypeAdapter[Any], Json],
        value: Any,
        expiry: Expiry | None,
    ) -> Inquiry:
        number = self._ask_count
        self._ask_count += 1
        return Inquiry(number, _as_metadata(metadata), *wanted, value, expiry)


def _wanted(metadata: Any, reply: Any) -> tuple[TypeAdapter[Any], Json]:
    """The type that was passed as ``reply``, or the type of the metadata's answer, with its JSON Schema.

    Raises:
        Misuse: a form cannot ask for the type.
    """
    known = _reply_type(_as_metadata(metadata))
    type_ = known if reply is None else usable(reply, "reply=", Misuse)
    try:
        adapter = adapter_of(type_)
        return adapter, adapter.json_schema(schema_generator=SecretSchema)
    except PydanticUserError as error:
        kind = repr(type_) if get_args(type_) else getattr(type_, "__name__", type_)
        raise Misuse(
            f"reply= has a part that JSON cannot represent, {kind}: {why_no_schema(error, 'ask for')}"
        ) from error


def _as_metadata(metadata: Any) -> Any:
    return Ask(message=metadata) if isinstance(metadata, str) else metadata


def _checked_work(name: str, work: Any) -> Any:
    if callable(work):
        return work
    if inspect.iscoroutine(work):
        work.close()
    raise TypeError(
        f"The work of step {name!r:.100} must be a function, because it runs only if its result is not stored yet. "
        f"Write ctx.step({name!r:.100}, lambda: …). Got a value of type {type(work).__name__}"
    )


def _reply_type(metadata: Any) -> Any:
    """The type of an answer, according to the metadata."""
    if isinstance(metadata, Confirm):
        return bool
    if isinstance(metadata, Ask):
        return str
    if isinstance(metadata, Choose):
        values = [c if isinstance(c, str) else c.value for c in metadata.choices]
        one: Any = Any
        if all(isinstance(v, str | int | bool) for v in values):
            one = cast("Any", Literal)[tuple(values)] if values else str
            one = one | str if metadata.allow_other else one
        return list[one] if metadata.multiple else one
    return Any
