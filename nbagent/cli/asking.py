"""One question in a terminal: show it, offer the ways to answer, and return the answer."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from nbagent.core.base.errors import InvalidAnswer
from nbagent.core.base.interrupts import PendingInterrupt, Restart
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import AnyResolution, Stamp, answer
from nbagent.forms.nodes import Choice
from nbagent.forms.schema.fields import escaped as step_of
from nbagent.notebook.render import plain
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.fold import TypesOf
from nbagent.notebook.view.questions import Question
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import Fact, FieldError

from .editor import EditorForm
from .output import CommandError
from .terminal import Filling, Stopped, Terminal, is_short, show_choices

Check: TypeAlias = Callable[[AnyResolution], list[FieldError]]
"""A check of an answer before it is sent; returns its errors."""


def ask_question(
    terminal: Terminal, question: Question, interrupt: PendingInterrupt, check: Check
) -> AnyResolution | None:
    """Ask a person a question and return the answer; None if they skip it.

    Raises:
        Left: the input has ended, or Ctrl+C was pressed.
    """
    shown = question.item(interrupt.id, "", " ▸ ".join(interrupt.path[1:-1]))
    text = plain.item_text(shown.model_copy(update={"spec": None}))
    terminal.show(text.removesuffix(f"\n  {TEXTS['waiting_static']}"))  # it is asked here
    if interrupt.restartable and not _is_said(interrupt.input, shown.facts):
        input_text = json.dumps(interrupt.input, ensure_ascii=False, indent=2, default=str)
        terminal.show(textwrap.indent(f"exactly:\n{input_text}", "    "))
    if question.form is not None and isinstance(question.form.fields, Choice):
        show_choices(terminal, question.form.fields)
    ways: dict[str, str] = {_LETTERS[each.name]: each.name for each in question.actions}
    if question.form is not None and question.expects == "edit":
        ways["c"] = "change"
    labels: dict[str, str] = {each.name: each.label for each in question.actions}
    labels["change"] = "Change, then approve"
    menu = {f"{letter}) {labels[name]}": name for letter, name in ways.items()}
    final: set[str] = {each.name for each in question.actions if each.danger}
    for line, name in menu.items():
        is_final = ("approve" if name == "change" else name) in final
        terminal.show(f"  {line}{'  (cannot be undone)' if is_final else ''}")
    while True:
        picked = terminal.pick(f"{'/'.join(ways)}, Enter to skip:", ways, [*menu])
        if picked is None:
            return None
        resolution = _resolution_of(terminal, question, picked, check)
        if resolution is not None:
            return resolution


def _is_said(input_: Any, facts: Sequence[Fact]) -> bool:
    """Whether the facts above the menu say the whole input exactly: each value is JSON, or a word in plain letters."""
    said = {fact.label: fact.value for fact in facts}
    texts = {
        name: value if isinstance(value, str) and _WORD.fullmatch(value) else json.dumps(value)
        for name, value in input_.items()
    }
    return said == texts


_WORD = re.compile(r"[A-Za-z](?: ?[!-~]){,78}")
"""A short text that nobody reads as another one."""
_LONG = 2_000
"""Maximum characters of a text that is shown before an answer is sent."""
_LETTERS = {"approve": "a", "reject": "r", "submit": "s", "answer": "i"}


def _resolution_of(
    terminal: Terminal, question: Question, picked: str, check: Check
) -> AnyResolution | None:
    """The answer after one of the actions was chosen; None if the person goes back."""
    if picked == "reject":
        found = question.resolve(
            "reject", None, terminal.ask("Reason for the agent (Enter for none):")
        )
        return None if isinstance(found, list) else found
    chosen = "approve" if picked == "change" else picked
    for each in question.actions:
        sure = f"{each.label}? This cannot be undone. Type yes to continue:"
        if each.name == chosen and each.danger and terminal.ask(sure, fresh=True).strip() != "yes":
            terminal.show("  ! Nothing was sent, because the answer was not yes.")
            return None
    if picked == "approve":
        found = question.resolve("approve")
        wrong = found if isinstance(found, list) else check(found)
        if not isinstance(found, list) and not wrong:
            return found
        for error in wrong:  # the call's input must be filled in first
            terminal.show(f"  ! {error.message}")
        picked = "change" if question.expects == "edit" else "back"
    form = question.instead if picked == "answer" else question.form
    if form is None or picked == "back":
        return None
    filling = (Filling if is_short(form.fields) else EditorForm)(terminal, form)
    try:
        filled = _fill_form(filling, question, "approve" if picked == "change" else picked, check)
    except Stopped as stopped:
        for reason in stopped.args:
            terminal.show(f"  ! {reason}")
        return None
    except CommandError as error:  # such as a missing editor
        if picked != "change":
            raise
        terminal.show(f"  ! {error}")
        return None
    value = filled.input if isinstance(filled, Restart) else getattr(filled, "output", None)
    text = json.dumps(_shorten(question.public(value)), ensure_ascii=False, indent=2, default=str)
    terminal.show(textwrap.indent(text, "    "))
    return filled if terminal.agrees("Send this?") else None


def _shorten(value: Any) -> Any:
    """The value as shown before it is sent: long texts, such as the bytes of files, are shortened."""
    match value:
        case dict():
            return {key: _shorten(each) for key, each in value.items()}
        case list():
            return [_shorten(each) for each in value]
        case str() if len(value) > _LONG:
            return f"{value[:_LONG]}… ({len(value):,} characters)"
        case _:
            return value


def _fill_form(
    filling: Filling | EditorForm, question: Question, action: str, check: Check
) -> AnyResolution:
    """Ask until the answer is valid, and return it."""
    errors: list[FieldError] = []
    while True:
        found = question.resolve(action, filling.drafts(errors))
        errors = found if isinstance(found, list) else check(found)
        if not isinstance(found, list) and not errors:
            return found


def view_of(journal: Journal, types_of: TypesOf = lambda _name: None) -> SingleRunView:
    """The view of a run; ``types_of`` returns the types of a tool that this process knows."""
    view = SingleRunView(journal.run_id, types_of=types_of)
    for event in journal.read():
        view.apply(event)
    return view


def no_errors(_resolution: AnyResolution) -> list[FieldError]:
    """Return no errors, because the agent itself checks the answer."""
    return []


def answer_errors(
    journal: Journal, interrupt: PendingInterrupt, by: str, resolution: AnyResolution
) -> list[FieldError]:
    """The errors of an answer according to the stored run, so that it can be corrected before it is sent."""
    try:
        answer(journal.state, interrupt.id, resolution, None, Stamp.of(by, journal.state.at))
    except InvalidAnswer as error:
        return [
            FieldError(
                field="".join(f"/{step_of(str(part))}" for part in each["loc"]), message=each["msg"]
            )
            for each in error.errors
        ] or [FieldError(field=None, message=str(error))]
    return []
