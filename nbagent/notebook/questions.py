"""From an interrupt to the question a person sees, and from the person's press to its resolution.

``Question.of`` decides, from the interrupt alone, what is shown and which buttons there are;
``resolve`` turns a button, the drafts and a reason into exactly one resolution, or into errors. What
it does not expect is an error: a press can approve only what this question offers to approve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from pydantic import TypeAdapter

from nbagent.core.events import Interrupted, Resolved
from nbagent.core.interrupts import PendingInterrupt, Reject, Remember, Respond, Restart
from nbagent.forms import Form, Submission
from nbagent.forms.hints import factory_of

from . import facts, wire
from .metadata import Metadata, Waiting, shape, titled
from .reveal import reveal
from .texts import TEXTS
from .wire import Action, Fact, FieldError, FormItem, RecordItem

Mode: TypeAlias = Literal["answer", "approve", "edit"]
MAX_REASON = 4_000


@dataclass(frozen=True, slots=True)
class Types:
    """What this process knows of the interrupted tool: pydantic types or JSON Schemas, or None."""

    input: Any = None
    output: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """One interrupt as it is asked."""

    id: str
    tool: str
    title: str
    mode: Mode
    input: dict[str, Any]
    """The exact input that approving runs."""
    digest: str = ""
    """Of what is shown: an approval counts for this and nothing else."""
    facts: list[Fact] = field(default_factory=list)
    form: Form | None = None
    actions: tuple[Action, ...] = ()
    editable: bool | tuple[str, ...] = False
    note: str | None = None
    expires_at: float | None = None
    memorable: bool = False
    """Whether approving may be remembered: for what a rule asked, as it is shown."""
    labels: tuple[tuple[Any, str], ...] = ()
    """Choices as value and label, for the record."""

    @property
    def approval(self) -> bool:
        """Whether a press lets something run."""
        return self.mode != "answer"

    @classmethod
    def of(cls, waiting: Waiting, types: Types | None = None) -> Question:
        """The question that an interrupt asks; never raises, whatever its metadata looks like."""
        known = types or Types()
        metadata = Metadata(waiting)
        common: dict[str, Any] = {
            "id": waiting.id,
            "tool": reveal(waiting.tool_name),
            "input": waiting.input,
            "digest": waiting.digest,
            "note": None if waiting.note is None else reveal(waiting.note),
            "expires_at": waiting.expires_at,
        }
        if _is_external(waiting):
            return cls(**common, **_external(waiting, metadata))
        if waiting.kind == "approval":
            return cls(**common, memorable=True, **_approval(waiting, metadata, known))
        if metadata.choices is not None and waiting.kind != "budget":
            return cls(**common, **_choice(waiting, metadata, known))
        if waiting.kind in ("question", "ask", "budget"):
            return cls(**common, **_answer(waiting, metadata, known))
        return cls(**common, **_approval(waiting, metadata, known))

    def resolve(
        self, action: Any, drafts: Any = None, reason: Any = None, remember: Any = None
    ) -> Respond | Restart | Reject | list[FieldError]:
        """What pressing a button with these drafts means, or what is wrong with it.

        Never raises and never approves what it does not understand: ``action`` must be the name of
        one of this question's buttons, ``drafts`` must fit its form.
        """
        refused = self.refusal(action, reason)
        if refused:
            return refused
        if action == "reject":
            return Reject(reason=(reason or "").strip()[:MAX_REASON] or None)
        if action == "submit":
            return self._answered(drafts)
        approved = self._approved(drafts)
        return approved if remember is None else self._remembered(approved, remember)

    def refusal(self, action: Any, reason: Any = None) -> list[FieldError]:
        """Why this is no press of one of this question's buttons; empty where it is one."""
        if not isinstance(action, str) or action not in {a.name for a in self.actions}:
            return _refused("unknown_action")
        if reason is not None and not isinstance(reason, str):
            return _refused("bad_reason")
        return []

    def submitted(self, drafts: Any) -> Submission | list[FieldError]:
        """The drafts read and validated by this question's form, or what is wrong with them."""
        if self.form is None:
            return _refused("no_form")
        submission = self.form.submit(drafts)
        if not submission.ok or submission.json_text is None:
            return _errors(submission)
        return submission

    def _remembered(
        self, approved: Restart | list[FieldError], remember: Any
    ) -> Restart | list[FieldError]:
        """An approval that adds a rule: never for changed input, never for what no rule asked."""
        if isinstance(approved, list):
            return approved
        known = remember in get_args(Remember)
        if not self.memorable or not known or approved.input is not None:
            return _refused("not_memorable")
        return approved.model_copy(update={"remember": remember})

    def item(self, key: str, call: str, path: str, drafts: Any = None) -> FormItem:
        """The question as an item of the view."""
        return FormItem(
            key=key,
            interrupt=self.id,
            call=call,
            tool=self.tool,
            path=path,
            title=self.title,
            note=self.note,
            facts=self.facts,
            spec=None if self.form is None else _drawn_here(self.form.spec()),
            drafts=drafts,
            actions=list(self.actions),
            approval=self.approval,
            remember=self._memories(),
            expires_at=self.expires_at,
        )

    def _memories(self) -> list[wire.Remember]:
        if not self.memorable:
            return []
        return [
            wire.Remember(id=id_, label=TEXTS[f"remember_{id_}"].format(tool=self.tool))
            for id_ in get_args(Remember)
        ]

    def record(self, key: str, event: Resolved, asked_at: float) -> RecordItem:
        """The question once it is settled: what was decided, by whom, after how long."""
        decision, tone, details = self._decision(event.resolution)
        if event.by not in ("form", ""):
            decision = f"{decision} · {TEXTS['by'].format(who=reveal(event.by))}"
        return RecordItem(
            key=key,
            title=self.tool if self.approval and self.tool else self.title,
            decision=decision,
            tone=tone,
            details=details,
            after=max(0.0, event.at - asked_at),
        )

    def public(self, answer: Any) -> Any:
        """An answer as it may be shown: without what was typed into secret fields."""
        return answer if self.form is None else _without_secrets(self.form.spec()["root"], answer)

    def _answered(self, drafts: Any) -> Respond | list[FieldError]:
        submission = self.submitted(drafts)
        if isinstance(submission, list):
            return submission
        return Respond(output=submission.document)

    def _approved(self, drafts: Any) -> Restart | list[FieldError]:
        if self.form is None:
            return Restart() if drafts is None else _refused("not_editable")
        submission = self.submitted(drafts)
        if isinstance(submission, list):
            return submission
        document = submission.document
        if facts.same(document, self.input):
            return Restart()
        if not isinstance(document, dict) or not self._may_become(document):
            return _refused("not_editable")
        return Restart(input=document)

    def _may_become(self, document: dict[str, Any]) -> bool:
        """Whether only what may be changed is changed."""
        if self.editable is True:
            return True
        names = set(self.editable or ())
        fixed = (set(document) | set(self.input)) - names
        gone: Any = object()
        return all(
            name in document
            and name in self.input
            and facts.same(document.get(name, gone), self.input[name])
            for name in fixed
        )

    def _decision(
        self, resolution: Respond | Restart | Reject
    ) -> tuple[str, Literal["good", "bad", "plain"], list[Fact]]:
        match resolution:
            case Reject(reason=None):
                return TEXTS["rejected" if self.approval else "declined"], "bad", []
            case Reject(reason=reason):
                word = TEXTS["rejected" if self.approval else "declined"]
                return f"{word} · “{reveal(reason or '')}”", "bad", []
            case Restart(input=None, remember=None):
                return TEXTS["approved"], "good", []
            case Restart(input=None, remember=scope):
                return f"{TEXTS['approved']} · {TEXTS[f'always_{scope}']}", "good", []
            case Restart(input=changed):
                details = facts.changes(changed or {}, self.input)
                return TEXTS["approved_changed" if details else "approved"], "good", details
            case Respond(output=given):
                return self._answer_text(given)

    def _answer_text(self, value: Any) -> tuple[str, Literal["good"], list[Fact]]:
        if self.labels:
            return TEXTS["chose"].format(what=self._label(value)), "good", []
        value = self.public(value)
        text = facts.shown(value)
        if isinstance(value, dict):
            return TEXTS["answered_form"], "good", facts.facts_of(value)
        if len(text) > 120 or "\n" in text:
            return TEXTS["answered_form"], "good", [Fact(label="answer", value=text)]
        return TEXTS["answered"].format(what=text), "good", []

    def _label(self, value: Any) -> str:
        for known, label in self.labels:
            if facts.same(known, value):
                return label
        if isinstance(value, list):
            return ", ".join(self._label(one) for one in value) or TEXTS["nothing"]
        return facts.shown(value)


def _without_secrets(node: dict[str, Any], value: Any) -> Any:
    """The value, with each field that is secret or holds a secret as a word that says it is there."""
    if node.get("kind") == "object" and isinstance(value, Mapping) and not node.get("secret"):
        fields = {field["key"]: field for field in node.get("fields", ())}
        return {k: _without_secrets(fields.get(k, {}), v) for k, v in value.items()}
    return TEXTS["provided"] if value is not None and _is_secret(node) else value


def _is_secret(node: Any) -> bool:
    if isinstance(node, Mapping):
        return node.get("secret") is True or any(map(_is_secret, node.values()))
    return isinstance(node, list) and any(map(_is_secret, node))


def _drawn_here(spec: dict[str, Any]) -> dict[str, Any]:
    """A form's spec without the fields that an ipywidget stands for."""
    return {**spec, "root": _without_widgets(spec["root"])}


def _without_widgets(node: dict[str, Any]) -> dict[str, Any]:
    if node["kind"] != "object" or "fields" not in node:
        return node
    kept = [_without_widgets(each) for each in node["fields"] if not _is_widget(each)]
    return {**node, "fields": kept}


def _is_widget(node: dict[str, Any]) -> bool:
    shown_here = node.get("read_only") or node.get("secret")
    return not shown_here and factory_of(node.get("hint", {})) is not None


def _refused(text: str) -> list[FieldError]:
    return [FieldError(field=None, message=TEXTS[text])]


def _errors(submission: Submission) -> list[FieldError]:
    found = [FieldError(field=id_, message=message) for id_, _, message in submission.errors]
    return found or _refused("invalid")


def _choice(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
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
        "mode": "answer",
        "form": form,
        "facts": long + metadata.facts("choices", "multiple", "allow_other", "selected"),
        "actions": answering(),
        "labels": tuple((value, label or facts.shown(value)) for value, label, _ in choices),
    }


def _answer(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    title, long = titled(metadata, TEXTS["asks"].format(tool=reveal(waiting.tool_name)))
    reply = _reply_type(waiting, known)
    return {
        "title": title,
        "mode": "answer",
        "form": _built(partial(Form, **_prefill(waiting)), _FREE_TEXT if reply is None else reply),
        "facts": long + metadata.facts(),
        "actions": _budget() if waiting.kind == "budget" else answering(),
    }


def _approval(waiting: Waiting, metadata: Metadata, known: Types) -> dict[str, Any]:
    title, long = titled(metadata, TEXTS["run_it"].format(tool=reveal(waiting.tool_name)))
    danger = metadata.values.get("danger") is True
    shown = metadata.facts("danger", *(("fields",) if waiting.editable else ()))
    if not waiting.editable:
        exact = facts.facts_of(waiting.input)
        told = {(f.label, f.value) for f in exact}
        return {
            "title": title,
            "mode": "approve",
            "facts": long + [f for f in shown if (f.label, f.value) not in told] + exact,
            "actions": _approve(danger=danger, changes=False),
        }
    editable = True if waiting.editable is True else list(waiting.editable or ())
    form = _built(
        lambda type_: Form(type_, value=waiting.input, editable=editable),
        shape(waiting.input) if known.input is None else known.input,
    )
    return {
        "title": title,
        "mode": "edit",
        "form": form,
        "facts": long + shown,
        "editable": waiting.editable,
        "actions": _approve(danger=danger, changes=True),
    }


def _external(waiting: Waiting, metadata: Metadata) -> dict[str, Any]:
    """What an outside system answers: shown, with nothing to press."""
    title, long = titled(metadata, TEXTS["external"].format(tool=reveal(waiting.tool_name)))
    shown = long + metadata.facts() + facts.facts_of(waiting.input)
    return {"title": title, "mode": "answer", "facts": shown}


def _is_external(waiting: Waiting) -> bool:
    if isinstance(waiting, PendingInterrupt):
        return waiting.external
    return waiting.external is not None


def _built(build: Callable[[Any], Form], type_: Any) -> Form:
    """A form of this type, or of anything where the type has no form: a question is always asked."""
    try:
        return build(type_)
    except Exception:  # a schema of others may hold anything, and the engine validates after
        return build({})


def _reply_type(waiting: Waiting, known: Types) -> Any:
    """The type of the answer, or None where anything goes."""
    schema = waiting.reply_schema if isinstance(waiting, Interrupted) else None
    if waiting.kind == "budget":
        return schema or {"type": "integer", "minimum": 1, "title": TEXTS["more_turns"]}
    reply = schema if known.output is None or waiting.kind == "ask" else known.output
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


def answering() -> tuple[Action, ...]:
    """The buttons of a question that an answer is sent to."""
    return (
        Action(name="submit", label=TEXTS["send"], primary=True),
        Action(name="reject", label=TEXTS["decline"], reason=True),
    )


def _budget() -> tuple[Action, ...]:
    return (
        Action(name="submit", label=TEXTS["go_on"], primary=True),
        Action(name="reject", label=TEXTS["stop_here"]),
    )


def _approve(*, danger: bool, changes: bool) -> tuple[Action, ...]:
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
