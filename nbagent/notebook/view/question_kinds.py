"""What an interrupt asks, decided from its kind and its metadata: title, facts, form and buttons.

Each function gives the keyword arguments of ``Question`` that are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from nbagent.core.base.events import Interrupted
from nbagent.core.base.interrupts import SECRET_GONE
from nbagent.core.base.secrets import SecretPlaces, prefilled
from nbagent.core.call.questions import reply_types
from nbagent.core.tools.json_schema import form_type
from nbagent.forms.form import Form
from nbagent.notebook.render import facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Action, Fact

from .metadata import Metadata, Waiting, shape, titled


def answering_buttons() -> tuple[Action, ...]:
    """The buttons of a question that an answer is sent to."""
    return (
        Action(name="submit", label=TEXTS["send"], primary=True),
        Action(name="reject", label=TEXTS["decline"], reason=True),
    )


def budget_buttons() -> tuple[Action, ...]:
    """The buttons where a run has used up its turns."""
    return (
        Action(name="submit", label=TEXTS["go_on"], primary=True),
        Action(name="reject", label=TEXTS["stop_here"]),
    )


def approving_buttons(*, danger: bool, changes: bool) -> tuple[Action, ...]:
    """The buttons of a call that waits to be approved."""
    changed = TEXTS["approve_changed"] if changes else None
    return (
        Action(
            name="approve",
            label=TEXTS["approve"],
            changed_label=changed,
            primary=True,
            danger=danger,
        ),
        Action(name="reject", label=TEXTS["reject"], reason=True),
    )


@dataclass(frozen=True, slots=True)
class Types:
    """What this process knows of the interrupted tool: pydantic types or JSON Schemas, or None."""

    input: Any = None
    output: Any = None
    secrets: SecretPlaces | None = None
    """Where the input is secret."""

    def lost(self, waiting: Waiting) -> list[str]:
        """The inputs whose secrets this process does not have, so that the person gives them again."""
        paths = [] if self.secrets is None else self.secrets.lost(waiting.input)
        return list(dict.fromkeys(str(path[0]) for path in paths if path))


def choice(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    """One or several of the choices in the metadata."""
    title, long = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    choices = metadata.choices or []
    selected = [] if metadata.by_model else metadata.values.get("selected")
    selected = [*_prefill(waiting).values()] or selected
    form = _built(
        lambda output: Form.choose(
            choices,
            multiple=metadata.values.get("multiple") is True,
            allow_other=metadata.values.get("allow_other") is True,
            selected=selected if isinstance(selected, Sequence) else (),
            output=output,
        ),
        _reply_type(waiting, known),
    )
    return {
        "title": title,
        "form": form,
        "facts": long + metadata.facts("choices", "multiple", "allow_other", "selected"),
        "actions": answering_buttons(),
        "labels": tuple((value, label or facts.shown(value)) for value, label, _ in choices),
    }


def answer(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    """A value of the type that is waited for."""
    title, long = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    reply = _reply_type(waiting, known)
    form = _built(partial(Form, **_prefill(waiting)), _FREE_TEXT if reply is None else reply)
    return {
        "title": title,
        "form": form,
        "warning": "" if waiting.kind == "ask" else form.warning,  # code here wrote what it asks
        "facts": long + metadata.facts(),
        "actions": budget_buttons() if waiting.expects == "budget" else answering_buttons(),
    }


def approval(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    """Whether a call runs, with its exact input and the defaults that it leaves to the tool."""
    title, long = titled(metadata, TEXTS["run_it"].format(tool=reveal(waiting.tool_name)))
    exact = facts.facts_of(waiting.input, approved=True)
    shown_below = {(fact.label, fact.value) for fact in exact}
    said = [f for f in metadata.facts("danger") if (f.label, f.value) not in shown_below]
    return {
        "title": title,
        "facts": long + said + exact + _defaults(waiting.input, known),
        "warning": "" if facts.is_whole(waiting.input) else TEXTS["not_whole"],
        "actions": approving_buttons(danger=metadata.danger, changes=False),
    }


def edit(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    """Whether a call runs, with a form of its input."""
    title, long = titled(metadata, TEXTS["run_it"].format(tool=reveal(waiting.tool_name)))
    lost = known.lost(waiting)
    names = () if isinstance(waiting.editable, bool) else waiting.editable
    editable = waiting.editable is True or (*names, *lost)
    form = _built(
        lambda type_: Form(type_, value=prefilled(waiting.input), editable=editable),
        shape(waiting.input) if known.input is None else known.input,
    )
    warning = SECRET_GONE if lost else "" if known.input is None else form.warning
    return {
        "title": title,
        "form": form,
        "warning": " ".join(filter(None, (warning, _odd(waiting)))),
        "facts": long + metadata.facts("danger", "fields"),
        "editable": editable,
        "actions": approving_buttons(danger=metadata.danger, changes=True),
    }


def confirmation(waiting: Waiting, metadata: Metadata) -> dict[str, Any]:
    """Whether a body goes on, asked in its middle: no value is chosen, so there is no form."""
    title, long = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    return {
        "title": title,
        "facts": long + metadata.facts("danger"),
        "actions": approving_buttons(danger=metadata.danger, changes=False),
    }


def outcome(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    """What becomes of a call whose process is gone: it runs again, its result is given, or it fails."""
    reply = _reply_type(waiting, known)
    return {
        "title": TEXTS["took_effect"].format(tool=reveal(waiting.tool_name)),
        "form": _built(Form, _FREE_TEXT if reply is None else reply),
        "warning": metadata.title or "",
        "facts": metadata.facts() + facts.facts_of(waiting.input),
        "actions": (
            Action(name="submit", label=TEXTS["give_result"]),
            Action(name="approve", label=TEXTS["run_again"], danger=True),
            Action(name="reject", label=TEXTS["let_fail"], reason=True),
        ),
    }


def external(waiting: Waiting, metadata: Metadata) -> dict[str, Any]:
    """What an outside system answers: shown, with nothing to press."""
    title, long = titled(metadata, TEXTS["external"].format(tool=reveal(waiting.tool_name)))
    return {"title": title, "facts": long + metadata.facts() + facts.facts_of(waiting.input)}


def _odd(waiting: Waiting) -> str:
    """What in an input that a form shows looks like something else: no field can mark it."""
    said = ((name, facts.remarks(value)) for name, value in waiting.input.items())
    return " ".join(
        TEXTS["odd_in"].format(name=facts.shown(str(name), facts.MAX_SHORT), what=what)
        for name, what in said
        if what
    )


def _defaults(input_: Mapping[str, Any], known: Types) -> list[Fact]:
    """What the tool takes for what the model left out."""
    left_out = {
        name: field["default"]
        for name, field in _properties(known.input).items()
        if name not in input_ and isinstance(field, Mapping) and field.get("default") is not None
    }
    return [
        fact.model_copy(
            update={"remark": ", ".join(filter(None, (TEXTS["default_used"], fact.remark)))}
        )
        for fact in facts.facts_of(left_out, approved=True)
    ]


def _properties(type_: Any) -> Mapping[str, Any]:
    """The named values that a tool takes; none where its type has no schema."""
    with suppress(Exception):  # a type without a JSON Schema has no defaults that could be shown
        adapter = type_ if isinstance(type_, TypeAdapter) else None
        if adapter is None and not isinstance(type_, Mapping):
            adapter = TypeAdapter(type_)
        schema = type_ if adapter is None else adapter.json_schema()
        properties = schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}
    return {}


def _built(build: Callable[[Any], Form], type_: Any) -> Form:
    """A form of this type, or of anything where the type has no form: a question is always asked."""
    try:
        return build(type_)
    except Exception:  # a schema of others may hold anything, and the engine validates after
        return build({})


def _reply_type(waiting: Waiting, known: Types) -> Any:
    """The type of the answer, or None where anything goes."""
    schema = waiting.reply_schema if isinstance(waiting, Interrupted) else None
    if waiting.expects == "budget":
        return schema or {"type": "integer", "minimum": 1, "title": TEXTS["more_turns"]}
    if waiting.kind == "ask":  # the type itself, where the body waits in this process: it has hints
        reply = form_type(reply_types.get(waiting.id, schema))
    else:
        reply = schema if known.output is None else known.output
    return None if _is_anything(reply) else reply


def _is_anything(type_: Any) -> bool:
    if isinstance(type_, TypeAdapter):
        with suppress(Exception):  # a type that cannot be built is the form's to report
            return bool(type_.core_schema["type"] == "any")
    return type_ in (None, True) or type_ == {}


def _prefill(waiting: Waiting) -> dict[str, Any]:
    """What code put into the answer's form to begin with, as an argument of the form."""
    given = waiting.prefill if isinstance(waiting, Interrupted) else None
    return {} if given is None else {"value": given}


_FREE_TEXT = {"type": "string", "title": ""}
"""Where anything goes, a person writes a text and not JSON."""
