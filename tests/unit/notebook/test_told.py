"""Nested questions and answers in the static view: names as terms, alike rows as a table, all escaped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from nbagent.core.events import Resolved
from nbagent.core.interrupts import Respond
from nbagent.forms import Form
from nbagent.notebook import plain, static
from nbagent.notebook.form_card import _head, question_of
from nbagent.notebook.wire import FormItem, RecordItem, View


class Line(BaseModel):
    item: str
    count: int


class Address(BaseModel):
    street: str
    zip: str = ""


class Order(BaseModel):
    address: Address
    billing: Address | None = None
    lines: list[Line] = []
    tags: list[str] = []


ORDER = {
    "address": {"street": "<b>Main</b>", "zip": "1"},
    "lines": [{"item": "pear", "count": 2}, {"item": "fig", "count": 1}],
    "tags": ["x", "y"],
}


def drawn(item: FormItem | RecordItem) -> str:
    view = View(head=_head("?", "interrupted", 0.0), items=[item])
    json.dumps(view.model_dump(mode="json"))
    plain.render(view)
    return static.render(view, style=False)


def answered(value: Any) -> RecordItem:
    event = Resolved(
        at=1, scope=(), id="i", call_id="", resolution=Respond(output=value), by="form"
    )
    return question_of(Form(True), title="?").record("k", event, 0.0)


def test_the_record_of_a_nested_answer_keeps_its_shape() -> None:
    """An object in an object is a list of terms in one, rows are a table, and nothing is markup."""
    html = drawn(answered(ORDER))
    assert (
        '<dt dir="auto">street</dt><dd><div dir="auto">&lt;b&gt;Main&lt;/b&gt;</div></dd>' in html
    )
    assert '<th scope="col" dir="auto">item</th>' in html
    assert '<tr><td dir="auto">pear</td><td dir="auto">2</td></tr>' in html
    assert '<li><div dir="auto">x</div></li>' in html
    sent = answered(ORDER).model_dump(mode="json")["details"][0]
    assert set(sent) == {"label", "value", "code", "changed_from"}
    assert json.loads(sent["value"]) == ORDER["address"]


def test_a_waiting_form_shows_whose_fields_are_whose() -> None:
    """Two addresses have each their street."""
    form = question_of(Form(Order, value={**ORDER, "billing": {"street": "Side"}}), title="?")
    html = drawn(form.item("k", "", ""))
    assert html.count('<dt dir="auto">Street</dt>') == 2
    assert '<dt dir="auto">Billing</dt><dd><dl' in html
    assert '<td dir="auto">pear</td>' in html


def _deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "value", [_deep(60), [{"a": i} for i in range(5_000)], {str(i): i for i in range(5_000)}]
)
def test_a_large_or_deep_answer_is_bounded(value: Any) -> None:
    """As JSON, its middle left out."""
    assert len(drawn(answered({"v": value}))) < 100_000
