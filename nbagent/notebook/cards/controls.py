"""ipywidgets that replace fields of a form: shown below the card, and read when the form is submitted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ipywidgets

from nbagent.forms.hints import factory_of
from nbagent.forms.nodes import Node, Object
from nbagent.forms.values import ABSENT, as_document, dumps, same
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import FieldError

from .front_end import close_boxes

_TYPED: dict[str, Callable[[str], Any]] = {
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "date-time": dt.datetime.fromisoformat,
}
"""Functions that convert a prefill into the Python value that a widget needs."""


@dataclass(frozen=True)
class _Control:
    """One widget that replaces one field."""

    path: tuple[str, ...]
    node: Node
    widget: Any
    initial: Any
    """The widget's first value, as JSON; ``ABSENT`` if it differs from the prefill."""

    def draft(self) -> Any:
        """The widget's value as a draft; None if it is still the prefill."""
        value = as_document(self.widget.value)
        if self.initial is not ABSENT and same(value, self.initial):
            return None
        if value is None or value is ABSENT:
            prefilled = self.node.value is not ABSENT
            if self.node.nullable and (prefilled or self.node.required):
                return {"null": True}
            return {"cleared": True} if prefilled else None
        return {"json": {"text": dumps(value)}}


class Controls:
    """The widgets of one open question; ``rows`` are the shown widgets, in order."""

    def __init__(self, question: Question) -> None:
        fields = () if question.form is None else _widgets(question.form.fields, ())
        self._controls = [_control(path, node) for path, node in fields]
        self.rows = [
            ipywidgets.VBox([ipywidgets.Label(reveal(each.node.label)), each.widget])
            for each in self._controls
        ]

    def follow(self, moved: Callable[[], None]) -> None:
        """Call ``moved`` whenever a widget's value changes, on the thread of the change."""
        for control in self._controls:
            with suppress(Exception):  # a custom widget may not report changes
                control.widget.observe(lambda _change: moved(), names="value")

    @property
    def values(self) -> dict[tuple[str, ...], Any]:
        """The values of the widgets that differ from the prefill, by the paths of their fields."""
        changed = (each for each in self._controls if each.draft() is not None)
        return {each.path: each.widget.value for each in changed}

    def put(self, values: Mapping[tuple[str, ...], Any]) -> None:
        """Set the widgets of these fields, if the widgets accept the values."""
        for each in self._controls:
            if each.path in values:
                with suppress(Exception):  # the field may have another widget by now
                    each.widget.value = values[each.path]

    def drafts(self, drafts: Any) -> Any:
        """The page's drafts, with the widgets' values."""
        for control in self._controls:
            draft = control.draft()
            if draft is not None:
                drafts = _with(drafts, control.path, draft)
        return drafts

    def named(self, errors: list[FieldError]) -> list[FieldError]:
        """The errors, with the labels of replaced fields in the messages, as the page has no such fields."""
        labels = {each.node.id: each.node.label for each in self._controls}
        return [
            FieldError(field=None, message=f"{reveal(labels[each.field])}: {each.message}")
            if each.field in labels
            else each
            for each in errors
        ]

    def close(self) -> None:
        """Remove the widgets from the page."""
        close_boxes(self.rows)


def _widgets(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """The fields that widgets replace. Secret fields are left out, because the state of a widget is synced."""
    if not isinstance(node, Object):
        return
    for each in node.fields:
        inner = (*path, each.key)
        if not each.read_only and not each.secret and factory_of(each.hint) is not None:
            yield inner, each
        else:
            yield from _widgets(each, inner)


def _control(path: tuple[str, ...], node: Node) -> _Control:
    factory = factory_of(node.hint)
    assert factory is not None  # _widgets returns no other nodes
    widget = factory()
    initial: Any = ABSENT
    if node.shows is not ABSENT:
        with suppress(Exception):  # the widget does not accept the value: its own value counts
            read = _TYPED.get(getattr(node, "format", ""))
            widget.value = read(node.shows) if read else node.shows
            initial = as_document(widget.value)
            if node.value is ABSENT or not same(initial, node.value):
                initial = ABSENT
    return _Control(path, node, widget, initial)


def _with(drafts: Any, path: tuple[str, ...], draft: Any) -> Any:
    """The drafts with one more draft; unchanged if the page has emptied an object around the field."""
    if not path:
        return draft
    outer = {} if drafts is None else drafts
    fields = outer.get("fields", {}) if isinstance(outer, Mapping) else None
    if not isinstance(fields, Mapping) or set(outer) - {"fields", "more"}:
        return drafts
    inner = _with(fields.get(path[0]), path[1:], draft)
    return {**outer, "fields": {**fields, path[0]: inner}}
