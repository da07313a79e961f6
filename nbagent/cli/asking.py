"""One question, asked in a terminal: what it shows, its ways to answer, and the answer that comes of it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Any, TypeAlias

from nbagent.core.base.errors import InvalidAnswer
from nbagent.core.base.interrupts import PendingInterrupt, Restart
from nbagent.core.journal.journal import Journal
from nbagent.core.run.answers import AnyResolution, answer
from nbagent.forms.nodes import Choice
from nbagent.forms.schema.fields import escaped as step_of
from nbagent.notebook.render import plain
from nbagent.notebook.view.questions import Question
from nbagent.notebook.view.view import RunView
from nbagent.notebook.wire import FieldError

from .terminal import Filling, Terminal, tell_choices

Check: TypeAlias = Callable[[AnyResolution], list[FieldError]]
"""What is wrong with an answer, before it is given."""


def asked(
    terminal: Terminal, question: Question, interrupt: PendingInterrupt, check: Check
) -> AnyResolution | None:
    """What a person says to a question; None where they leave it.

    Raises:
        Left: the input has ended, or Ctrl+C was pressed.
    """
    shown = question.item(interrupt.id, "", " ▸ ".join(interrupt.path[1:-1]))
    terminal.say(plain.item_text(shown.model_copy(update={"spec": None})))
    if interrupt.restartable:
        whole = json.dumps(interrupt.input, ensure_ascii=False, indent=2, default=str)
        terminal.say(textwrap.indent(f"exactly:\n{whole}", "    "))
    if question.form is not None and isinstance(question.form.fields, Choice):
        tell_choices(terminal, question.form.fields)
    ways: dict[str, str] = {_LETTERS[each.name]: each.name for each in question.actions}
    if question.form is not None and question.expects == "edit":
        ways["c"] = "change"
    for each in question.actions:
        terminal.say(f"  {_LETTERS[each.name]}) {each.label}")
    if "c" in ways:
        terminal.say("  c) Change, then approve")
    while True:
        picked = terminal.pick(f"{'/'.join(ways)}, Enter to skip:", ways)
        if picked is None:
            return None
        resolution = _pressed(terminal, question, picked, check)
        if resolution is not None:
            return resolution


_LONG = 2_000
"""Characters of a text that are shown before an answer is sent."""
_LETTERS = {"approve": "a", "reject": "r", "submit": "s", "answer": "i"}


def _pressed(
    terminal: Terminal, question: Question, picked: str, check: Check
) -> AnyResolution | None:
    """What one of the ways comes to; None where the person goes back."""
    if picked == "reject":
        found = question.resolve(
            "reject", None, terminal.ask("Reason (the agent sees it; Enter: no reason)")
        )
        return None if isinstance(found, list) else found
    dangerous = any(each.danger for each in question.actions if each.name == picked)
    if dangerous and terminal.ask("This cannot be undone. Type yes to continue:").strip() != "yes":
        return None
    if picked == "approve":
        found = question.resolve("approve")
        wrong = found if isinstance(found, list) else check(found)
        if not isinstance(found, list) and not wrong:
            return found
        for error in wrong:  # its input has to be filled in first
            terminal.say(f"  ! {error.message}")
        picked = "change" if question.expects == "edit" else "back"
    form = question.instead if picked == "answer" else question.form
    if form is None or picked == "back":
        return None
    filling = Filling(terminal, form)
    filled = _filled(filling, question, "approve" if picked == "change" else picked, check)
    if filled is None:
        return None
    value = filled.input if isinstance(filled, Restart) else getattr(filled, "output", None)
    said = json.dumps(_short(question.public(value)), ensure_ascii=False, indent=2, default=str)
    terminal.say(textwrap.indent(said, "    "))
    return filled if terminal.agrees("Send this?") else None


def _short(value: Any) -> Any:
    """What was filled in, for a last look: of a long text, a file's bytes above all, the beginning."""
    match value:
        case dict():
            return {key: _short(each) for key, each in value.items()}
        case list():
            return [_short(each) for each in value]
        case str() if len(value) > _LONG:
            return f"{value[:_LONG]}… ({len(value):,} characters)"
        case _:
            return value


def _filled(
    filling: Filling, question: Question, action: str, check: Check
) -> AnyResolution | None:
    """The answer, once nothing in it is wrong; None where no field of it can be mended."""
    errors: list[FieldError] = []
    while True:
        found = question.resolve(action, filling.drafts(errors))
        errors = found if isinstance(found, list) else check(found)
        if not isinstance(found, list) and not errors:
            return found
        if not any(each.field for each in errors):
            filling.tell(errors)
            return None


def field_errors(error: InvalidAnswer) -> list[FieldError]:
    """What is wrong, at its fields."""
    return [
        FieldError(
            field="".join(f"/{step_of(str(part))}" for part in each["loc"]), message=each["msg"]
        )
        for each in error.errors
    ] or [FieldError(field=None, message=str(error))]


def view_of(journal: Journal) -> RunView:
    """What is drawn of a run."""
    view = RunView(journal.run_id)
    for event in journal.read():
        view.apply(event)
    return view


def no_refusal(_resolution: AnyResolution) -> list[FieldError]:
    """The agent itself checks the answer."""
    return []


def refusal(
    journal: Journal, interrupt: PendingInterrupt, by: str, resolution: AnyResolution
) -> list[FieldError]:
    """What the record has against an answer, so that it can be mended before it is given."""
    try:
        answer(journal.state, interrupt.id, resolution, None, (by, journal.state.at))
    except InvalidAnswer as error:
        return field_errors(error)
    return []
