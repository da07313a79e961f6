"""Nested questions and answers in the static view: names as terms, similar rows as a table, all escaped."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from nbagent.core.base.events import Resolved
from nbagent.core.base.interrupts import Respond
from nbagent.forms.form import Form
from nbagent.notebook.cards.form_card import _head, question_of
from nbagent.notebook.render import plain, static
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
    """Objects are nested lists of terms, rows a table with numbers at the right, and nothing is markup."""
    html = drawn(answered(ORDER))
    assert (
        '<dt dir="auto">street</dt><dd><div dir="auto">&lt;b&gt;Main&lt;/b&gt;</div></dd>' in html
    )
    assert '<th scope="col" dir="auto">item</th>' in html
    assert '<tr><td dir="auto">pear</td><td dir="auto" align="right">2</td></tr>' in html
    assert '<li><div dir="auto">x</div></li>' in html
    sent = answered(ORDER).model_dump(mode="json")["details"][0]
    assert set(sent) == {"label", "value", "code", "changed_from", "parts", "remark", "html"}
    assert json.loads(sent["value"]) == ORDER["address"]


def test_a_waiting_form_shows_to_which_group_each_field_belongs() -> None:
    """Two addresses each have a street."""
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
    """The answer is JSON without its middle."""
    assert len(drawn(answered({"v": value}))) < 100_000


HIDDEN = "A\u202eB\u200bC"
SHOWN = "A⟨U+202E⟩B⟨U+200B⟩C"


class Odd(BaseModel):
    to: str
    names: dict[str, str]
    rows: list[dict[str, str]]
    inner: Line = Field(title=f"i{HIDDEN}")
    pick: Literal["x", "A\u202eB\u200bC"]


def test_invisible_characters_are_shown_in_a_waiting_form() -> None:
    """In labels, values, options and names of entries; of two similar names, both remain."""
    names = {HIDDEN: "one", SHOWN: "two"}
    line = {"item": HIDDEN, "count": 1}
    value = {"to": HIDDEN, "names": names, "rows": [names], "inner": line, "pick": HIDDEN}
    item = question_of(Form(Odd, value=value), title="?").item("k", "", "")
    alone = question_of(Form(str, value=HIDDEN), title="?").item("k", "", "")
    for each, count in ((item, 8), (alone, 1)):
        view = View(head=_head("?", "interrupted", 0.0), items=[each])
        for text in (static.render(view, style=False), plain.render(view)):
            assert "\u202e" not in text
            assert "\u200b" not in text
            assert text.count(SHOWN) >= count
        assert ("one" in text, "two" in text) == (each is item,) * 2
