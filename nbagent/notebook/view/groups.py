"""Groups of similar questions, so that the page can draw several of them as one table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nbagent.notebook.render import facts
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import FormItem

from .covers import MIN, Summary
from .questions import Question

_PREFILL = frozenset(
    ("initial", "initial_json", "prefilled", "provided", "multiline", "rows", "entries", "branch")
)
"""The keys of a form's spec that depend on prefilled values."""


def grouped(item: FormItem, question: Question) -> FormItem:
    """The item with its group and the exact input as facts; unchanged if it must be shown by itself.

    Questions of one turn are in one group if they have the same tool, kind, form and buttons, and only
    their values differ. The following questions are shown by themselves: about the run itself, about a lost
    call, for an outside system, with ipywidgets beside the card, and too large for a row.
    """
    spec = None if question.form is None else question.form.spec()
    small = facts.is_complete(question.input, facts.MAX_TEXT)
    is_single = not (item.call and item.actions and small) or question.expects == "outcome"
    if is_single or spec != item.spec:
        return item
    identity = [
        item.call.rpartition(".")[0],  # the key of the turn, which includes the agent and the place
        question.tool,
        question.expects,
        question.editable,
        question.memorable,
        item.note,
        [action.model_copy(update={"danger": False}).model_dump() for action in item.actions],
        None if spec is None else _unfilled(spec["root"]),
    ]
    text = json.dumps(identity, sort_keys=True)
    given = question.public_input
    if given is None:
        return item
    given = {name: each for name, each in given.items() if name not in question.asking}
    return item.model_copy(
        update={
            "group": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16],
            "input": facts.facts_of(given, approved=question.approval),
        }
    )


def covered(asked: Sequence[tuple[FormItem, Question]]) -> list[FormItem]:
    """The open items of one group with their odd values; the first one with the values of the others.

    The table shows each question, and the page knows the values that it cuts. Few questions need no summary.
    """
    if len(asked) < MIN:
        return [item.model_copy(update={"look": [], "covers": None}) for item, _ in asked]
    titles = len({item.title for item, _ in asked}) > 1
    summary = Summary(
        {
            number: ({TEXTS["question"]: item.title} if titles else {})
            | (question.public_input or {})
            for number, (item, question) in enumerate(asked)
        },
        room=facts.MAX_TEXT,
    )
    look: dict[int, list[str]] = {}
    for odd in summary.odd:
        for number in odd.keys:
            look.setdefault(number, []).append(str(odd))
    covers = summary.covers(())
    return [
        item.model_copy(update={"look": look.get(number, []), "covers": None if number else covers})
        for number, (item, _) in enumerate(asked)
    ]


def _unfilled(node: Any) -> Any:
    """A node of a spec with its inner nodes, without prefilled values."""
    if isinstance(node, Mapping):
        return {name: _unfilled(each) for name, each in node.items() if name not in _PREFILL}
    return [_unfilled(each) for each in node] if isinstance(node, list) else node
