"""The question that a person sees for an interrupt, and the resolution for the button that the person presses.

``Question.of`` decides the shown facts and the buttons from the interrupt alone.
``Question.resolve`` turns a button, the drafts and a reason into exactly one resolution, or into errors.
Unexpected input is an error: a press can approve only what the question offers to approve.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never, get_args

from nbagent.core.base.events import Resolved
from nbagent.core.base.incoming_json import TooManyParts, check_parts
from nbagent.core.base.interrupts import Expects, Reject, Remember, Respond, Restart
from nbagent.core.base.secrets import has_secret, revealed
from nbagent.core.base.user import is_somebody_else, named
from nbagent.core.tools.tool import Tool
from nbagent.forms.form import Form, Submission
from nbagent.forms.hints import factory_of
from nbagent.notebook import wire
from nbagent.notebook.render import arguments, facts
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Action, Fact, FieldError, FormItem, Instead, RecordItem

from . import grids, question_kinds
from .metadata import AnyInterrupt, QuestionMetadata
from .question_kinds import Types

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:\d\d)?")
"""A moment in JSON: day, time and zone."""

MAX_REASON = 4_000
MAX_DRAFTS = 1_000_000
"""Characters of the drafts that are stored for other pages. Larger drafts can still be submitted."""
MAX_DRAFT_PARTS = 50_000
"""Keys and values of the drafts that are stored for other pages."""


@dataclass(frozen=True, slots=True)
class Question:
    """One interrupt as a question."""

    id: str
    tool: str
    title: str
    expects: Expects
    input: dict[str, Any]
    """The exact input that runs after an approval."""
    digest: str = ""
    """The digest of the call's tool, input and schema. An approval is valid only for this digest."""
    facts: list[Fact] = field(default_factory=list)
    form: Form | None = None
    named: str = ""
    """A description of the form's fields, if the title has none."""
    instead: Form | None = None
    """The form for the call's result, which a person may enter instead of approving."""
    asking: tuple[str, ...] = ()
    """The inputs that are shown as the question itself."""
    actions: tuple[Action, ...] = ()
    editable: bool | tuple[str, ...] = False
    note: str | None = None
    warning: str = ""
    """A warning to show before answering, below the note."""
    expires_at: float | None = None
    memorable: bool = False
    """Whether an approval may be remembered as a rule. True only if the gate before the body has asked."""
    only_in_run: bool = False
    """Whether an approval can be remembered only in this run."""
    labels: tuple[tuple[Any, str], ...] = ()
    """Choices as value and label, for the record."""

    @property
    def approval(self) -> bool:
        """Whether the question is about running a call, or about letting its body continue."""
        return self.expects in ("approval", "edit", "confirmation", "outcome")

    @property
    def confirms(self) -> bool:
        """Whether approving returns True to a body that asks while it runs."""
        return self.expects == "confirmation"

    def is_previewed(self, tool: Tool[..., Any]) -> bool:
        """Whether the tool previews the effect of approving. False for a lost call, which may have run already."""
        return tool.options.preview is not None and self.approval and self.expects != "outcome"

    @classmethod
    def of(cls, waiting: AnyInterrupt, types: Types | None = None) -> Question:
        """The question of an interrupt; never raises, whatever its metadata looks like."""
        known = types or Types()
        metadata = QuestionMetadata(waiting)
        common: dict[str, Any] = {
            "id": waiting.id,
            "expects": waiting.expects,
            "tool": reveal(waiting.tool_name),
            "input": waiting.input,
            "digest": waiting.digest,
            "note": None if waiting.note is None else facts.shown(waiting.note, facts.MAX_TEXT),
            "expires_at": waiting.expires_at,
            "memorable": waiting.kind == "approval",
            "only_in_run": known.always_needs_approval,
            "asking": metadata.shown,
        }
        expects = waiting.expects
        runs = expects == "approval" or (expects in ("choice", "value") and waiting.kind == "tool")
        if runs and known.missing_secrets(waiting):  # it runs once they are entered again
            common["expects"] = expects = "edit"
        match expects:
            case "external":
                own = question_kinds.external(waiting, metadata)
            case "confirmation":
                own = question_kinds.confirmation(waiting, metadata)
            case "edit" if facts.is_complete(facts.beside_rows(waiting.input)):
                own = question_kinds.edit(waiting, metadata, known)
            case "outcome":
                own = question_kinds.outcome(waiting, metadata, known)
            case "approval" | "edit":
                own = question_kinds.approval(waiting, metadata, known)
            case "choice" if metadata.choices:
                own = question_kinds.choice(waiting, metadata, known)
            case "choice" | "value" | "budget":
                own = question_kinds.answer(waiting, metadata, known)
            case never:
                assert_never(never)
        return cls(**common, **own)

    def resolve(
        self, action: Any, drafts: Any = None, reason: Any = None, remember: Any = None
    ) -> Respond | Restart | Reject | list[FieldError]:
        """The resolution for pressing a button with these drafts, or its errors.

        Never raises and never approves unknown input: ``action`` must be the name of
        one of this question's buttons, ``drafts`` must fit its form.
        """
        refused = self.refusal(action, reason)
        if refused:
            return refused
        if action == "reject":
            return Reject(reason=(reason or "").strip()[:MAX_REASON] or None)
        if action in ("submit", "answer"):
            submission = self.submitted(drafts, instead=action == "answer")
            if isinstance(submission, list):
                return submission
            return Respond(output=submission.document)
        if not self.approval:  # the call runs with the input of the question
            return Restart() if drafts is None and remember is None else _refused("not_editable")
        if self.expects == "outcome":  # typed input belongs to the button for the result
            return Restart() if remember is None else _refused("not_memorable")
        approved = self._approval_from(drafts)
        if self.confirms and isinstance(approved, Restart) and remember is None:
            return Respond(output=True)
        return approved if remember is None else self._with_rule(approved, remember)

    def refusal(self, action: Any, reason: Any = None) -> list[FieldError]:
        """The errors if this is not a valid press of one of the question's buttons; empty otherwise."""
        if not isinstance(action, str) or action not in {a.name for a in self.actions}:
            return _refused("unknown_action")
        if reason is not None and not isinstance(reason, str):
            return _refused("bad_reason")
        return []

    def fills(self, action: str) -> bool:
        """Whether a press of this button sends the question's own form."""
        return action == "submit" or (action == "approve" and self.approval)

    def storable_draft(self, drafts: Any, *, instead: bool = False) -> Any:
        """The drafts to store for other pages: without secrets; None if they are too large."""
        form = self.instead if instead else self.form
        if form is None:
            return None
        try:
            check_parts(drafts, MAX_DRAFT_PARTS, characters=MAX_DRAFTS)
        except TooManyParts:
            return None
        return form.storable_draft(drafts)

    def submitted(self, drafts: Any, *, instead: bool = False) -> Submission | list[FieldError]:
        """The drafts parsed and validated by this question's form, or their errors."""
        form = self.instead if instead else self.form
        if form is None:
            return _refused("no_form")
        submission = form.submit(drafts)
        if submission.ok and submission.json_text is not None:
            return submission
        errors = []
        for index, (id_, _, message) in enumerate(submission.errors):
            if index in submission.cells:
                continue
            why = submission.why.get(index)  # the errors for the other alternatives of the type
            more = f" {TEXTS['other_kinds'].format(why=reveal(why))}" if why else ""
            errors.append(FieldError(field=id_, message=f"{message}{more}"))
        return errors + grids.cell_errors(form.fields, submission) or _refused("invalid")

    def _with_rule(
        self, approved: Restart | list[FieldError], remember: Any
    ) -> Restart | list[FieldError]:
        """The approval with a rule to remember; an error if the input is changed or the question has no such rule."""
        if isinstance(approved, list):
            return approved
        known = [memory.id for memory in self._memories()]
        if remember not in known or approved.input is not None:
            return _refused("not_memorable")
        return approved.model_copy(update={"remember": remember})

    def item(self, key: str, call: str, path: str) -> FormItem:
        """The question as an item of the view."""
        spec = None if self.form is None else self._spec(self.form)
        return FormItem(
            key=key,
            interrupt=self.id,
            call=call,
            tool=self.tool,
            path=path,
            title=self.title,
            note=" ".join(filter(None, (self.note, reveal(self.warning)))) or None,
            facts=self.facts,
            spec=None if spec is None else {**spec, "root": _drawn(spec["root"])},
            named=self.named,
            instead=None if self.instead is None else Instead(spec=self._spec(self.instead)),
            approval=self.approval,
            **self.offered(changed=False),
            expires_at=self.expires_at,
        )

    def _spec(self, form: Form) -> dict[str, Any]:
        return grids.add_code(form.spec(), approval=self.approval)

    def offered(self, *, changed: bool) -> dict[str, Any]:
        """The buttons, and the rules that approving may add: none for changed input."""
        actions = [
            action.model_copy(update={"label": action.changed_label or action.label})
            if changed
            else action
            for action in self.actions
        ]
        return {"actions": actions, "remember": [] if changed else self._memories()}

    def _memories(self) -> list[wire.Remember]:
        if not self.memorable:
            return []
        return [
            wire.Remember(
                id=id_,
                label=TEXTS[f"remember_{id_}"].format(tool=self.tool),
                help=TEXTS[f"remember_{id_}_help"].format(tool=self.tool),
            )
            for id_ in get_args(Remember)
            if id_ not in ("input", "input_in_run") or not has_secret(self.input)
            if id_.endswith("_in_run") or not self.only_in_run
        ]

    @property
    def record_title(self) -> str:
        """The title of the record: the tool if that says what was asked, so that its row shows the input."""
        is_named = self.expects == "external" or (self.approval and not self.confirms)
        return self.tool if is_named and self.tool else self.title

    def record(self, key: str, event: Resolved, asked_at: float) -> RecordItem:
        """The record of the settled question: the decision, who made it, after how long."""
        by_you = event.by in ("form", "") and not is_somebody_else(event.user)
        decision, tone, details = self._decision(event.resolution, by_you=by_you)
        if not by_you:
            if event.by in ("form", ""):
                by_whom = TEXTS["by"].format(who=event.user)
            else:
                said = TEXTS.get(f"by_{event.by}") or TEXTS["by"].format(who=event.by)
                by_whom = named(said, event.user)
            decision = f"{decision} · {reveal(by_whom)}"
        if self.expects == "value" and self.named:  # its title does not say what was asked
            details = [*self.facts, *details]
        return RecordItem(
            key=key,
            title=self.record_title,
            decision=decision,
            tone=tone,
            details=details,
            after=max(0.0, event.at - asked_at),
        )

    def public(self, answer: Any) -> Any:
        """An answer to show: without the values of secret fields."""
        form = self.instead or self.form
        return answer if form is None else form.without_secrets(answer, TEXTS["provided"])

    @property
    def public_input(self) -> dict[str, Any] | None:
        """The input to show: without the values of the form's secret fields; None if all of it may be secret."""
        if self.expects != "edit" or self.form is None:
            return self.input
        shown = self.form.without_secrets(self.input, TEXTS["provided"])
        return shown if isinstance(shown, dict) else None

    def _approval_from(self, drafts: Any) -> Restart | list[FieldError]:
        if self.form is None:
            return Restart() if drafts is None else _refused("not_editable")
        submission = self.submitted(drafts)
        if isinstance(submission, list):
            return submission
        document = submission.document
        if facts.same_json(document, revealed(self.input)):
            return Restart()
        if not isinstance(document, dict) or not self._may_become(document):
            return _refused("not_editable")
        return Restart(input=document)

    def _may_become(self, document: dict[str, Any]) -> bool:
        """Whether only editable fields are changed."""
        if self.editable is True:
            return True
        shown = revealed(self.input)
        fixed = (set(document) | set(shown)) - set(self.editable or ())
        return all(
            name in document and name in shown and facts.same_json(document[name], shown[name])
            for name in fixed
        )

    def _decision(
        self, resolution: Respond | Restart | Reject, *, by_you: bool
    ) -> tuple[str, Literal["good", "bad", "plain"], list[Fact]]:
        if self.confirms and isinstance(resolution, Respond):
            resolution = Restart() if resolution.output else Reject()
        if isinstance(resolution, Restart) and (self.expects == "outcome" or not self.approval):
            again = "ran_again" if self.approval else "ran_anyway"
            return _decision_text(again, by_you), "good", []
        match resolution:
            case Reject(reason=reason):
                why = "" if reason is None else f" · “{facts.shown(reason, MAX_REASON)}”"
                return f"{TEXTS['rejected' if self.approval else 'declined']}{why}", "bad", []
            case Restart(input=None, remember=scope):
                rule = "" if scope is None else f" · {TEXTS[f'always_{scope}']}"
                return f"{TEXTS['approved']}{rule}", "good", []
            case Restart(input=changed):
                details = facts.changes(changed or {}, self.input)
                return TEXTS["approved_changed" if details else "approved"], "good", details
            case Respond(error=str() as error):
                text = facts.shown(error, MAX_REASON)
                return TEXTS["failed_elsewhere"].format(why=text), "bad", []
            case Respond(output=given):
                return self._answer_text(given, by_you=by_you)

    def _answer_text(self, value: Any, *, by_you: bool) -> tuple[str, Literal["good"], list[Fact]]:
        if self.labels:
            label = facts.bounded(self._label(value), MAX_REASON)
            return _decision_text("chose", by_you).format(what=label), "good", []
        value = self.public(value)
        if isinstance(value, dict):
            plain = {name: _in_words(each) for name, each in value.items()}
            return _decision_text("answered_form", by_you), "good", facts.answer_facts(plain)
        text = facts.shown(_in_words(value))
        has_rows = isinstance(value, list) and any(isinstance(each, dict) for each in value)
        if len(text) > 120 or "\n" in text or has_rows:
            return _decision_text("answered_form", by_you), "good", [facts.nested("answer", value)]
        return _decision_text("answered", by_you).format(what=text), "good", []

    def _label(self, value: Any) -> str:
        for known, label in self.labels:
            if facts.same_json(known, value):
                return label
        if isinstance(value, list):
            return ", ".join(self._label(one) for one in value) or TEXTS["nothing"]
        return facts.shown(value)


def changed_form(item: FormItem, update: dict[str, Any], *, instead: bool) -> FormItem:
    """A question's item with changes, or (``instead``) with changes of the form that is shown instead."""
    if instead:
        update = {"instead": item.instead and item.instead.model_copy(update=update)}
    return item.model_copy(update=update)


def _drawn(node: dict[str, Any]) -> dict[str, Any]:
    """A node of a spec without the fields that an ipywidget beside the card replaces, and with colors for code."""
    if node["kind"] == "code" and "text" in node.get("initial", {}):
        tint = arguments.tint(node["initial"]["text"], str(node["hint"]["code"]))
        return {**node, "tint": tint} if tint else node
    if node["kind"] != "object" or "fields" not in node:
        return node
    fields = [
        _drawn(each)
        for each in node["fields"]
        if each.get("read_only") or each.get("secret") or factory_of(each.get("hint", {})) is None
    ]
    return {**node, "fields": fields}


def _decision_text(text: str, by_you: bool) -> str:  # noqa: FBT001 -- a fact, not a mode
    """A decision in words: "you" is only the person at the card."""
    return TEXTS.get(text if by_you else f"{text}_by_other", TEXTS[text])


def _in_words(value: Any) -> Any:
    """A boolean as a word, and a moment without the T of its JSON; any other value as it is."""
    if isinstance(value, bool):
        return TEXTS["yes" if value else "no"]
    moment = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if moment is None:
        return value
    day, time, zone = moment.groups("")
    return f"{day} {time}{' UTC' if zone in ('Z', '+00:00') else zone}"


def _refused(text: str) -> list[FieldError]:
    return [FieldError(field=None, message=TEXTS[text])]
