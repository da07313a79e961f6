"""The parts of an interrupt's question, decided from its kind and its metadata: title, facts, form and buttons.

The function for each kind returns the keyword arguments of its ``Question``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from nbagent.core.base.events import Interrupted
from nbagent.core.base.interrupts import ASKED_AGAIN, SECRET_GONE
from nbagent.core.base.secrets import SecretPlaces, prefilled
from nbagent.core.call.questions import reply_types
from nbagent.core.tools.json_schema import form_type
from nbagent.core.tools.tool import MAX_LABEL, Tool
from nbagent.forms.form import Form
from nbagent.forms.nodes import Grid, Object
from nbagent.notebook.render import arguments, facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Action, Fact

from . import grids
from .metadata import AnyInterrupt, QuestionMetadata, shape, titled


def _answering_buttons(waiting: AnyInterrupt) -> tuple[Action, ...]:
    """The buttons of a question for a value; for a tool, one runs it without the answer that its body asked for."""
    send = Action(name="submit", label=TEXTS["send"], primary=True)
    decline = Action(name="reject", label=TEXTS["decline"], reason=True)
    if waiting.kind != "tool":
        return send, decline
    tool = reveal(waiting.tool_name)
    label, help_ = (TEXTS[key].format(tool=tool) for key in ("run_anyway", "run_anyway_help"))
    return send, decline, Action(name="approve", label=label, menu=True, help=help_)


def _approving_buttons(
    waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types, *, changes: bool = False
) -> tuple[Action, ...]:
    """The buttons of a call that waits for approval; one button enters the call's result."""
    label = types.label(metadata)
    changed = TEXTS["with_changes"].format(what=label) if label else TEXTS["approve_changed"]
    approve = Action(
        name="approve",
        label=label or TEXTS["approve"],
        changed_label=changed if changes else None,
        primary=True,
        danger=metadata.danger,
    )
    reject = Action(name="reject", label=TEXTS["reject"], reason=True)
    answer_instead = Action(
        name="answer",
        label=TEXTS["answer_instead"],
        menu=waiting.note != ASKED_AGAIN,  # beside the others if the tool has asked the same again
        help=TEXTS["answer_instead_help"].format(tool=reveal(waiting.tool_name)),
    )
    return approve, reject, answer_instead


def result_form(waiting: AnyInterrupt, types: Types) -> Form:
    """The form for a call's result, which a person enters instead of running the tool."""
    reply = _reply_type(waiting, types)
    return _form_of(Form, _FREE_TEXT if reply is None else reply)


@dataclass(frozen=True, slots=True)
class Types:
    """The interrupted tool's types in this process: pydantic types or JSON Schemas, or None."""

    input: Any = None
    output: Any = None
    secrets: SecretPlaces | None = None
    """The places of secrets in the input."""
    always_needs_approval: bool = False
    """Whether each run asks again, because an approval is remembered only in its run."""
    title: str = ""
    """What a function does, as the first line of its docstring says; empty for a tool of a server."""
    approve_label: str = ""
    """The label of the button that approves; empty for the usual one."""

    @classmethod
    def of(cls, tool: Tool[..., Any]) -> Types:
        """The types of a tool."""
        input_, output = form_type(tool.input_type), form_type(tool.output_adapter)
        options = tool.options
        first_line = "" if options.origin else tool.description.strip().partition("\n")[0].strip()
        return cls(
            input_,
            output,
            tool.secrets,
            options.always_needs_approval,
            facts.shown(first_line.removesuffix("."), 2 * facts.MAX_SHORT),
            options.approve_label,
        )

    def asks(self, waiting: AnyInterrupt) -> str:
        """The title of an approval without a message."""
        return self.title or TEXTS["run_it"].format(tool=reveal(waiting.tool_name))

    def label(self, metadata: QuestionMetadata) -> str:
        """The label of the button that approves: a call that cannot be undone has a verb of its own."""
        derived = self.title if metadata.danger and len(self.title) <= MAX_LABEL else ""
        return reveal(self.approve_label) or derived

    def missing_secrets(self, waiting: AnyInterrupt) -> list[str]:
        """The inputs whose secrets this process does not have, so that the person enters them again."""
        paths = [] if self.secrets is None else self.secrets.missing(waiting.input)
        return list(dict.fromkeys(str(path[0]) for path in paths if path))


def choice(waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types) -> dict[str, Any]:
    """A question for one or several of the choices in the metadata."""
    title, long_text = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    choices = metadata.choices or []
    selected = [] if metadata.by_model else metadata.values.get("selected")
    selected = [*_prefill(waiting).values()] or selected
    form = _form_of(
        lambda output: Form.choose(
            choices,
            multiple=metadata.multiple,
            allow_other=metadata.allow_other,
            selected=selected if isinstance(selected, Sequence) else (),
            output=output,
        ),
        _reply_type(waiting, types),
    )
    return {
        "title": title,
        "form": form,
        "facts": long_text + _facts_with_input(waiting, metadata, types, *_CHOICE_KEYS),
        "warning": _incomplete_warning(waiting),
        "actions": _answering_buttons(waiting),
        "labels": tuple((value, label or facts.shown(value)) for value, label, _ in choices),
    }


def answer(waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types) -> dict[str, Any]:
    """A question for a value of the expected type."""
    title, long_text = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    reply = _reply_type(waiting, types)
    form = _form_of(partial(Form, **_prefill(waiting)), _FREE_TEXT if reply is None else reply)
    buttons = _answering_buttons(waiting)
    name = "" if metadata.title else TEXTS["your_answer"]
    if waiting.expects == "budget":
        given = reply.get("title") if isinstance(reply, Mapping) else None
        name = reveal(str(given or TEXTS["more_turns"]))
        go_on = Action(name="submit", label=TEXTS["continue_run"], primary=True)
        buttons = (go_on, Action(name="reject", label=TEXTS["stop_here"]))
    return {
        "title": title,
        "form": form,
        "named": name,
        # no warning about the form of ctx.ask: its type is from the body's own code
        "warning": _incomplete_warning(waiting) or ("" if waiting.kind == "ask" else form.warning),
        "facts": long_text + _facts_with_input(waiting, metadata, types, *_CHOICE_KEYS[1:]),
        "actions": buttons,
    }


_CHOICE_KEYS = ("choices", "multiple", "allow_other", "allowOther", "selected")


def _facts_with_input(
    waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types, *used: str
) -> list[Fact]:
    """The other facts of the metadata. If the answer may run a body, also the exact input that runs."""
    if waiting.kind != "tool":
        return metadata.facts(*used)
    rest = {name: each for name, each in waiting.input.items() if name not in metadata.shown}
    seen = {**dict.fromkeys(metadata.shown), **waiting.input}
    exact = facts.facts_of(rest, approved=True) + _defaults(seen, types)
    metadata_facts = [] if metadata.asking else metadata.facts(*used)
    return _not_in_input(metadata_facts, exact) + exact


def _not_in_input(stated: list[Fact], exact: list[Fact]) -> list[Fact]:
    """The facts that are not in the input word for word."""
    shown_below = {(fact.label, fact.value) for fact in exact}
    return [fact for fact in stated if (fact.label, fact.value) not in shown_below]


def _incomplete_warning(waiting: AnyInterrupt) -> str:
    """A warning if the input that would run is not shown whole."""
    runs = waiting.kind in ("tool", "approval")
    return TEXTS["not_whole"] if runs and not facts.is_complete(waiting.input) else ""


def approval(waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types) -> dict[str, Any]:
    """Approval of a call, with its exact input and the defaults of the tool."""
    title, long_text = titled(metadata, types.asks(waiting))
    exact = facts.facts_of(waiting.input, approved=True)
    stated = _not_in_input(metadata.facts("danger"), exact)
    shown = arguments.colored(exact, waiting.input)
    return {
        "title": title,
        "facts": long_text + stated + shown + _defaults(waiting.input, types),
        "instead": result_form(waiting, types),
        "warning": _incomplete_warning(waiting),
        "actions": _approving_buttons(waiting, metadata, types),
    }


def edit(waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types) -> dict[str, Any]:
    """Approval of a call, with a form of its input; without a form if neither facts nor grids show all of it."""
    title, long_text = titled(metadata, types.asks(waiting))
    lost = types.missing_secrets(waiting)
    names = () if isinstance(waiting.editable, bool) else waiting.editable
    editable = waiting.editable is True or (*names, *lost)
    form = _form_of(
        lambda type_: Form(type_, value=prefilled(waiting.input), editable=editable),
        (waiting.input_schema or shape(waiting.input)) if types.input is None else types.input,
    )
    tables = {
        each.key: each
        for each in (form.fields.fields if isinstance(form.fields, Object) else ())
        if isinstance(each, Grid)
    }
    beside = {name: value for name, value in waiting.input.items() if name not in tables}
    is_checked = len(facts.beside_rows(waiting.input)) == len(waiting.input)
    if not is_checked and not facts.is_complete(beside):
        return approval(waiting, metadata, types)
    warning = SECRET_GONE if lost else "" if types.input is None else form.warning
    remarks = [(name, facts.remarks(value)) for name, value in beside.items()]
    remarks += [(name, grids.remark(grid)) for name, grid in tables.items()]
    lookalikes = [  # which the fields of a form cannot mark
        TEXTS["remark_in"].format(name=facts.shown(str(name), facts.MAX_SHORT), what=text)
        for name, text in remarks
        if text
    ]
    return {
        "title": title,
        "form": form,
        "warning": " ".join(filter(None, (warning, *lookalikes))),
        "facts": long_text + metadata.facts("danger", "fields"),
        "editable": editable,
        "instead": result_form(waiting, types),
        "actions": _approving_buttons(waiting, metadata, types, changes=True),
    }


def confirmation(waiting: AnyInterrupt, metadata: QuestionMetadata) -> dict[str, Any]:
    """Confirmation for a running body: no value is chosen, so there is no form."""
    title, long_text = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    approve, reject, _ = _approving_buttons(
        waiting, metadata, Types()
    )  # no call waits for a result
    return {
        "title": title,
        "facts": long_text + metadata.facts("danger"),
        "actions": (approve, reject),
    }


def outcome(waiting: AnyInterrupt, metadata: QuestionMetadata, types: Types) -> dict[str, Any]:
    """The outcome of a call whose process has ended: run it again, give its result, or mark it as failed."""
    return {
        "title": TEXTS["took_effect"].format(tool=reveal(waiting.tool_name)),
        "form": result_form(waiting, types),
        "named": TEXTS["its_result"],
        "warning": " ".join(filter(None, (metadata.title, TEXTS["took_effect_help"]))),
        "facts": metadata.facts() + facts.facts_of(waiting.input),
        "actions": (
            Action(name="submit", label=TEXTS["give_result"]),
            Action(name="approve", label=TEXTS["run_again"], danger=True),
            Action(name="reject", label=TEXTS["mark_failed"], reason=True),
        ),
    }


def external(waiting: AnyInterrupt, metadata: QuestionMetadata) -> dict[str, Any]:
    """A question for another system, without buttons. The call's row has the input."""
    text = TEXTS["later" if waiting.kind == "later" else "external"]
    title, long_text = titled(metadata, text.format(tool=reveal(waiting.tool_name)))
    return {"title": title, "facts": long_text + metadata.facts("danger")}


def _defaults(input_: Mapping[str, Any], types: Types) -> list[Fact]:
    """The tool's values for inputs that the model left out."""
    left_out = {
        name: field["default"]
        for name, field in _properties(types.input).items()
        if name not in input_ and isinstance(field, Mapping) and field.get("default") is not None
    }
    found = facts.facts_of(left_out, approved=True)
    remarks = [", ".join(filter(None, (TEXTS["default_used"], fact.remark))) for fact in found]
    return [f.model_copy(update={"remark": r}) for f, r in zip(found, remarks, strict=True)]


def _properties(type_: Any) -> Mapping[str, Any]:
    """The JSON Schemas of a tool's inputs, by name; empty if the type has no schema."""
    with suppress(Exception):  # a type without a JSON Schema has no defaults that could be shown
        if not isinstance(type_, Mapping):
            type_ = (type_ if isinstance(type_, TypeAdapter) else TypeAdapter(type_)).json_schema()
        properties = type_.get("properties")
        return properties if isinstance(properties, Mapping) else {}
    return {}


def _form_of(build: Callable[[Any], Form], type_: Any) -> Form:
    """A form for this type, or for any value if the type has no form, so that the question can always be asked."""
    try:
        return build(type_)
    except Exception:  # a foreign schema may contain anything; the engine validates the answer
        return build({})


def _reply_type(waiting: AnyInterrupt, types: Types) -> Any:
    """The type of the answer, or None if any value is valid."""
    schema = waiting.reply_schema
    if waiting.expects == "budget":
        return schema or {"type": "integer", "minimum": 1, "title": TEXTS["more_turns"]}
    if waiting.kind == "ask":  # if the body waits in this process, the Python type, which has hints
        reply = form_type(reply_types.get(waiting.id, schema))
    else:
        reply = schema if types.output is None else types.output
    if isinstance(reply, TypeAdapter):
        with suppress(Exception):  # the form reports a type that cannot be built
            return None if reply.core_schema["type"] == "any" else reply
    return None if reply in (None, True) or reply == {} else reply


def _prefill(waiting: AnyInterrupt) -> dict[str, Any]:
    """The ``value`` argument of the answer's form, if code has prefilled the form."""
    given = waiting.prefill if isinstance(waiting, Interrupted) else None
    return {} if given is None else {"value": given}


_FREE_TEXT = {"type": "string", "title": ""}
"""The schema for any value: a person writes text, not JSON."""
