"""An open interrupt in words: its question, and the answers that fit. Also a run's result or error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, assert_never

from pydantic import ValidationError

from nbagent.core.base.errors import Cancelled, HumanInputRequired, RunError, RunNotFinished
from nbagent.core.base.events import RunCancelled, RunCompleted, RunFailed
from nbagent.core.base.interrupts import ASKED_AGAIN, LIMIT_LABEL, PendingInterrupt
from nbagent.core.base.messages import Json, dumps
from nbagent.core.journal.default import place_for_others
from nbagent.core.journal.journal import Journal
from nbagent.core.state.pause_record import paused_messages
from nbagent.core.state.state import RunState
from nbagent.core.tools.spec import RunSpec

from .result import Call, Result, calls_by_name
from .scripted_answers import is_approval

MAX_TEXT = 120
"""Maximum characters of a text or value in a message."""

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "True or False",
    "array": "a list",
    "null": "None",
}


def asks(interrupt: PendingInterrupt) -> str:
    """The question of an interrupt, in one line: ``asks "Send this money?"``."""
    metadata = _question_of(interrupt)
    for name in ("message", "question"):
        if isinstance(metadata, Mapping) and isinstance(metadata.get(name), str):
            return f'asks "{bounded(" ".join(metadata[name].split()))}"'
    if metadata in (None, {}):
        return "asks for approval" if is_approval(interrupt) else "asks for an answer"
    return f"asks {bounded(repr(metadata))}"


def wanted(interrupt: PendingInterrupt) -> str:
    """The kind of answer that an interrupt needs, in one line."""
    name = interrupt.tool_name
    if interrupt.note == ASKED_AGAIN:
        return ASKED_AGAIN
    match interrupt.expects:
        case "external":
            return (
                "to answer, use nb.answer_external(token, value), or error=… instead of the value"
            )
        case "approval" | "edit" | "confirmation":
            return f"to approve, use answers={{{name!r}: True}}; to reject, answers={{{name!r}: False}}"
        case "outcome":
            return (
                f"use answers={{{name!r}: nb.Restart()}} to run it again, nb.Respond(value) to give its result, or "
                "nb.Reject() to mark it as failed"
            )
        case "budget":
            return "to continue, answer with a number greater than 0"
        case "choice" | "value":
            hint = f"use answers={{{name!r}: …}} with {_fitting(interrupt)}"
            return f"{hint}, or nb.Restart() to run it" if interrupt.restartable else hint
        case never:
            assert_never(never)


def _noted(interrupt: PendingInterrupt) -> str:
    return f". {interrupt.note}" if interrupt.note not in (None, ASKED_AGAIN) else ""


def _question_of(interrupt: PendingInterrupt) -> Json:
    """The question: the metadata, or, if a body paused without metadata, the inputs that are the question."""
    return interrupt.asking or interrupt.metadata


def bounded(text: str) -> str:
    """A text, shortened if it is long."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _fitting(interrupt: PendingInterrupt) -> str:
    metadata = _question_of(interrupt)
    if interrupt.expects == "choice" and isinstance(metadata, Mapping):
        choices = metadata.get("choices") or ()
        values = [c.get("value") if isinstance(c, Mapping) else c for c in choices]
        several = "a list of some of" if metadata.get("multiple") is True else "one of"
        others = (metadata.get("allow_other"), metadata.get("allowOther"))
        other = ", or another value" if True in others else ""
        return f"{several} {bounded(', '.join(map(repr, values)))}{other}"
    schema = interrupt.reply_schema
    if schema in (None, {}, True) or not isinstance(schema, Mapping):
        return "any value"
    return f"{_in_words(schema)} (schema {bounded(repr(dict(schema)))})"


def _in_words(schema: Mapping[str, Json]) -> str:
    """The values that a JSON Schema allows, in a few words."""
    if "enum" in schema or "const" in schema:
        values: Any = schema.get("enum", [schema.get("const")])
        return f"one of {bounded(', '.join(map(repr, values)))}"
    if isinstance(schema.get("properties"), Mapping):
        return f"a dict with {bounded(', '.join(map(repr, schema['properties'])))}"
    return _TYPES.get(str(schema.get("type")), "a matching value")


def result_of(
    state: RunState, spec: RunSpec, error: BaseException | None, values: Mapping[str, Any]
) -> Result:
    """The result of a completed run.

    Args:
        state: the state of the run.
        spec: the settings of the run, with the type of its output.
        error: the exception object of its failure, if known in this process.
        values: the tools' own Python objects by call id.

    Raises:
        RunNotFinished: the run has not ended.
        RunError: the run failed or was cancelled.
    """
    match state.outcome:
        case RunCompleted() as done:
            calls = calls_by_name(state, values)
            output = spec.answer.typed(done.output)
            if state.flow:
                output = _returned(calls[state.agent][-1], spec)
            return Result(done.text, output, state.messages, state.usage, calls, state.why_finished)
        case RunFailed() as failed:
            message = f"{failed.error}: {failed.message}"
            raise error or RunError(message, messages=paused_messages(state))
        case RunCancelled(by=by, still_running=left):
            names = [call.name for call in state.calls.values() if call.id in left]
            unknown = f". {', '.join(names)} was still running and may or may not have taken effect"
            message = f"The run was cancelled (by {by}){unknown if names else ''}"
            raise Cancelled(message, messages=paused_messages(state))
        case None:
            raise RunNotFinished(
                f"The run is {state.status}, so there is no result yet. Use `await run` to wait for it"
            )


def _returned(call: Call, spec: RunSpec) -> Any:
    """The return value of a flow's function: the object itself, or the stored JSON converted to the return type."""
    tool = spec.tools.get(call.name)
    if call.value is not call.output or tool is None or tool.output_adapter is None:
        return call.value
    try:
        return tool.output_adapter.validate_json(dumps(call.output))
    except ValidationError:  # the return type has changed since then
        return call.value


def unanswered(
    asked: Sequence[PendingInterrupt],
    wrong: Mapping[str, Exception],
    journal: Journal,
    hint: str,
) -> Exception:
    """The exception for a run with open questions that no person can answer.

    Args:
        asked: the open questions.
        wrong: errors of answers, by interrupt id.
        journal: the run's journal.
        hint: a hint about the ``answers=``.
    """
    for interrupt in asked:
        if interrupt.id in wrong:
            return wrong[interrupt.id]
    lines = [
        f"- {i.tool_name or LIMIT_LABEL} (interrupt {i.id}), input {dict(i.input)!r}, {asks(i)}; "
        f"{wanted(i)}{_noted(i)}"
        for i in asked
    ]
    place, run_id = place_for_others(journal.store), journal.run_id
    text = (
        "The run is paused because it needs an answer and nobody can answer. Pass `answers=`. Or call "
        "run.approve, run.respond, run.restart or run.reject, then await the run again. With attended=True the run waits for a person"
        + (
            f". Or answer in a shell: nbagent answer {run_id} --store {quote(place)}"
            if place
            else ""
        )
        + ":\n"
        + "\n".join([*lines, hint] if hint else lines)
    )
    return HumanInputRequired(text, interrupts=list(asked), run_id=run_id)
