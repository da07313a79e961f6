"""``nb.form``: one form in the calling cell, awaited."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar, overload

from IPython.display import display

from nbagent.core.base.awaited import Awaited
from nbagent.core.base.errors import HumanInputRequired, InvalidAnswer, UsageError
from nbagent.core.base.keywords import caller, checks_keywords
from nbagent.core.hooks import hooks
from nbagent.core.run.host import ScriptHost, current_host, has_terminal
from nbagent.forms.form import Form, Submission
from nbagent.forms.values import ABSENT

from . import kernel
from .capture.libraries import live_call
from .cards.display import Live
from .cards.form_card import FormCard, answer_record, bundle, question_of
from .render.reveal import reveal
from .texts import TEXTS
from .view.metadata import link_fact
from .view.questions import Question

T = TypeVar("T")


@overload
def form(
    target: type[T],
    *,
    value: Any = ABSENT,
    title: str | None = None,
    submit_label: str | None = None,
    unattended: Any = ABSENT,
) -> Awaitable[T]: ...
@overload
def form(
    target: Any,
    *,
    value: Any = ABSENT,
    title: str | None = None,
    submit_label: str | None = None,
    unattended: Any = ABSENT,
) -> Awaitable[Any]: ...
@checks_keywords("nb.form")
def form(
    target: Any,
    *,
    value: Any = ABSENT,
    title: str | None = None,
    submit_label: str | None = None,
    unattended: Any = ABSENT,
) -> Awaitable[Any]:
    """Show a form in the calling cell, and return the answer once a person has sent a valid one.

    Example:
            late = await nb.form(int, title="Late from which hour?", value=10)

    Args:
        target: a pydantic model or any type pydantic knows, a function (its parameters), or a JSON
            Schema. The answer is typed accordingly; for a JSON Schema it is the document.
        value: the prefill: an instance, or a JSON document that may be incomplete or invalid.
        title: the question; the model's title by default.
        submit_label: the label of the main button.
        unattended: the answer if nobody is attached (nbclient, nbval, papermill, scripts): an
            instance or a JSON document, validated like a person's answer. Ignored if a form is shown.

    Raises:
        Rejected: the person pressed Cancel.
        HumanInputRequired: nobody is attached, ``unattended`` is not passed, and a script has no terminal to ask in.
        InvalidAnswer: ``unattended`` does not match ``target``.
        TypeError: ``target`` is a dict of names and Python types; raised before the ``await``.
        UsageError: called inside a tool, where ``ctx.ask`` must be used; or this version of
            ipykernel does not support waiting in a cell.
    """
    if isinstance(target, dict) and any(isinstance(each, type) for each in target.values()):
        names = ", ".join(map(str, target))
        raise TypeError(
            "nb.form takes a pydantic model or a JSON Schema, got a dict of types. Write a class that inherits from "
            f"pydantic.BaseModel with the fields {names}"
        )

    async def ask() -> Any:
        if live_call() is not None:
            raise UsageError("nb.form asks in a cell. Inside a tool, use `await ctx.ask(...)`")
        shown = Form(target, value=value)
        heading = reveal(title or shown.fields.label or TEXTS["form_title"])
        question = question_of(shown, title=heading, submit_label=submit_label)
        if not kernel.attended():
            is_script = type(current_host()) is ScriptHost
            if unattended is ABSENT and is_script and has_terminal():
                return hooks.fills_in_terminal(question)
            return _unattended(target, question, unattended)
        return await _shown(question)

    frame = caller()
    return Awaited(ask(), "nb.form(…)", (frame.f_code.co_filename, frame.f_lineno))


async def ask_outside(target: Any, message: str, *, link: str) -> Any:
    """Ask a person to sign in outside of a call, at a page with this link.

    Raises:
        Rejected: the person pressed Cancel.
        HumanInputRequired: called in a tool's body, whose output is not the cell's.
    """
    if live_call() is not None:
        raise HumanInputRequired("a tool's body cannot show a form")
    question = question_of(Form(target), title=reveal(message))
    return await _shown(replace(question, facts=[link_fact(link, "sign_in")]), TEXTS["signed_in"])


async def _shown(question: Question, unanswered: str = TEXTS["unanswered"]) -> Any:
    """Show the form and wait for its answer; if the wait ends without an answer, the form shows ``unanswered``."""
    card = FormCard(question)
    live = Live(card)
    live.show()
    try:
        return await kernel.wait(card.future, on_kernel_interrupt=None)
    finally:
        card.withdraw(unanswered)  # does nothing if the form is answered
        live.settle()


def _unattended(target: Any, question: Question, given: Any) -> Any:
    """The answer that was passed as ``unattended``, shown like a person's answer."""
    if given is ABSENT:
        raise HumanInputRequired(
            f"nb.form({_named(target)}) needs a person, but nobody can answer here. Pass "
            "unattended=ANSWER for such runs, or run this where a person can answer"
        )
    submission = Form(target, value=given).submit(None)
    is_typed = isinstance(target, type) and not isinstance(given, dict)
    if is_typed and isinstance(given, target):  # the JSON of an instance lacks the secrets
        submission = Submission(ok=True, json_text=submission.json_text, value=given)
    if not submission.ok:
        problems = "; ".join(
            f"{'.'.join(map(str, path)) or 'value'}: {message}"
            for _, path, message in submission.errors
        )
        raise InvalidAnswer(
            f"unattended= does not match nb.form({_named(target)}): {problems}",
            errors=[{"loc": path, "msg": message} for _, path, message in submission.errors],
        )
    if kernel.in_kernel():
        record = answer_record(question, submission, by="code", after=0.0)
        display(bundle(question.title, record, "completed"), raw=True)  # type: ignore[no-untyped-call]
    return submission.value


def _named(target: Any) -> str:
    """The target as an error names it."""
    if isinstance(target, dict):
        return f"JSON Schema {target.get('title', '')!r}" if "title" in target else "a JSON Schema"
    return str(getattr(target, "__name__", target))
