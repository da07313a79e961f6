"""Groups of similar questions, so that the page can draw several of them as one table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nbagent.notebook.render import facts
from nbagent.notebook.wire import FormItem

from .questions import Question

_PREFILL = frozenset(
    ("initial", "initial_json", "prefilled", "provided", "multiline", "rows", "entries", "branch")
)
"""The keys that a document's values fill in the nodes of a form's spec."""


def grouped(item: FormItem, question: Question) -> FormItem:
    """The item, marked as one of its group and with the exact input as facts, if possible.

    Questions of one turn are alike if they come from one tool and ask the same in the same form with
    the same buttons: only the values differ. A question about the run itself, one about a lost call, one
    that an outside system answers, one with ipywidgets beside the card and one too large for a row
    are shown by themselves.
    """
    spec = None if question.form is None else question.form.spec()
    small = facts.is_complete(question.input, facts.MAX_TEXT)
    is_single = not (item.call and item.actions and small) or question.expects == "outcome"
    if is_single or spec != item.spec:
        return item
    identity = [
        item.call.rpartition(".")[0],  # the turn, whose agent and place are in its key
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
    given = {name: each for name, each in given.items() if name not in question.asking}
    return item.model_copy(
        update={
            "group": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16],
            "input": facts.facts_of(given, approved=question.approval),
        }
    )


def _unfilled(node: Any) -> Any:
    """A node and all below it, without the values that a document filled in."""
    if isinstance(node, Mapping):
        return {name: _unfilled(each) for name, each in node.items() if name not in _PREFILL}
    return [_unfilled(each) for each in node] if isinstance(node, list) else node
