"""A list of many objects is one grid: its rows are sent once, and a person's changes come back as a patch."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, model_validator

from nbagent.forms.form import Form
from nbagent.forms.nodes import Grid
from tests.unit.forms.test_properties import RELAXED, documents


class Bill(BaseModel):
    name: str
    amount: float = Field(ge=0)
    price: Decimal = Decimal(1)
    copies: int | None = None
    paid: bool = False
    status: Literal["open", "sent"] = "open"
    color: Literal["red", "green"] | str = "red"
    due: dt.date | None = None
    tags: list[str] = []


class Secret(BaseModel):
    name: str
    key: SecretStr


class Ordered(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _in_order(self) -> Ordered:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def bills(number: int) -> list[dict[str, Any]]:
    return [{"name": f"n{at}", "amount": at, "price": "1.50"} for at in range(number)]


def grid_of(form: Form) -> Grid:
    """The only grid of a form, at its root or one level below it."""
    nodes = [form.fields, *getattr(form.fields, "fields", ())]
    [grid] = [node for node in nodes if isinstance(node, Grid)]
    return grid


def patch(added: int = 0, deleted: Any = (), **cells: Any) -> dict[str, Any]:
    """A draft of changes; each of ``cells`` is the typed text of rows."""
    typed = {key: [list(each), list(each.values())] for key, each in cells.items()}
    return {"grid": {"added": added, "deleted": list(deleted), "cells": typed}}


KINDS = [
    (list[Bill], bills(51), "grid"),
    (list[Bill], bills(20), "list"),  # with nested values a grid is for more rows
    (list[Ordered], None, "grid"),  # the whole form: a person may paste many rows
    (list[Ordered] | None, None, "list"),
    (list[Ordered], [{"low": 1, "high": 2}] * 3, "grid"),
    (list[dict], [{"a": 1, "b": "x"}] * 11, "grid"),
    (list[dict[str, int]], [{"a": 1}] * 11, "grid"),
    (list[dict], [{"a": 1}] * 10 + [5], "list"),
    (list[Secret], [{"name": "a", "key": "b"}] * 50, "list"),
    (list[int], list(range(99)), "list"),
    (list[Ordered], [{"low": 1, "high": 2}] * 60_000, "json"),  # too many cells
    ({"type": "array", "items": {"properties": {"a": {"type": "string"}}}}, [{"a": "x"}] * 11, "grid"),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "kind"), KINDS, ids=lambda each: str(each)[:40])
def test_c821_many_objects_are_a_grid_and_few_are_not(type_, value, kind):
    """Which lists become a grid; a secret never does."""
    form = Form(type_) if value is None else Form(type_, value=value)
    assert {"list": "list", "table": "list"}.get(form.fields.kind, form.fields.kind) == kind
    if value is not None:
        assert form.submit(None).document == value


def test_c822_rows_are_sent_once_in_a_compact_form():
    """The spec has the columns once, and for each cell little more than its text, whatever the number of rows."""
    rows = [
        {"place": f"place {at}", "number": at, "value": at / 7, "valid": True}
        for at in range(5_000)
    ]

    class Sample(BaseModel):
        place: str
        number: int
        value: float
        valid: bool

    class Input(BaseModel):
        why: str
        rows: list[Sample]

    spec = Form(Input, value={"why": "w", "rows": rows}).spec()
    texts = sum(len(str(cell)) for row in rows for cell in row.values())
    assert len(json.dumps(spec)) < texts + 5 * 20_000 + 3_000
    assert spec["root"]["fields"][0]["kind"] == "text"  # the other fields keep their controls
    columns = json.loads(spec["root"]["fields"][1]["cells"])
    assert [column[3] for column in columns] == ["place 3", "3", repr(3 / 7), True]


@RELAXED
@given(rows=st.lists(st.dictionaries(st.sampled_from("abc"), documents, max_size=3), min_size=11))
def test_c823_untouched_rows_return_as_they_came(rows):
    """Whatever the rows have: any value in any column, absent ones, null; and a deletion changes only what it names."""
    for schema in ({"type": "array", "items": {"type": "object"}}, list[dict]):
        form = Form(schema, value=rows)
        assert json.dumps(form.submit(None).document) == json.dumps(rows)
        if form.fields.kind != "grid":  # no column, or nested values in few rows
            continue
        answer = form.submit(patch(deleted=[1, 3])).document
        assert json.dumps(answer) == json.dumps([rows[0], rows[2], *rows[4:]])


TYPED = [
    ("name", "Ada", "Ada"),
    ("name", None, ""),  # emptied text is empty text
    ("amount", "1e3", 1000.0),
    ("amount", "12,5", "Please enter a number, such as 12.5."),
    ("amount", None, "Please answer."),
    ("price", "2.10", "2.10"),
    ("copies", "7", 7),
    ("copies", None, None),  # null is allowed
    ("copies", "7.5", "Please enter a whole number, such as 12."),
    ("paid", True, True),
    ("paid", "maybe", "Please answer yes or no."),
    ("status", 1, "sent"),
    ("status", "lost", "This is not one of the options."),
    ("status", 9, "This is not one of the options."),
    ("color", 1, "green"),
    ("color", "violet", "violet"),
    ("due", "2026-02-01", "2026-02-01"),
    ("due", "1.2.26", "Please enter a date, such as 2026-11-30."),
    ("tags", '["a"]', ["a"]),
    ("tags", "[", "Invalid JSON: Expecting value, line 1, column 2."),
    ("amount", "-1", "Must be at least 0."),
]


@pytest.mark.parametrize(("key", "typed", "expected"), TYPED)
def test_c824_a_cell_is_read_by_its_type_and_its_error_has_its_place(key, typed, expected):
    """Each type has its text; a wrong one is an error at its row in the answer, after deleted rows."""
    form = Form(list[Bill], value=bills(60))
    sub = form.submit(patch(deleted=[0, 59], **{key: {5: typed}}))
    if sub.ok:
        assert sub.document[4].get(key) == expected
        assert [row for at, row in enumerate(sub.document) if at != 4] == bills(60)[1:5] + bills(60)[6:59]  # fmt: skip
    else:
        [(field, path, message)] = sub.errors
        assert (field, path) == ("", (4, key))
        assert message.startswith(expected.rstrip("."))
        assert sub.cells == {0: (4, key)}


def test_c824_an_added_row_has_defaults_and_must_be_complete():
    """Values that are left out get their defaults, required ones are errors, and a row's own error is at the row."""
    form = Form(list[Bill], value=bills(60))
    sub = form.submit(patch(added=2, name={60: "New"}, amount={60: "3", 61: "4"}))
    assert sub.cells == {0: (61, "name")}
    sub = form.submit(patch(added=1, name={60: "New"}, amount={60: "3"}))
    assert sub.document[60] == {"name": "New", "amount": 3}
    assert sub.value[60] == Bill(name="New", amount=3)
    pairs = Form(list[Ordered])
    sub = pairs.submit(patch(added=2, low={0: "1", 1: "9"}, high={0: "2", 1: "2"}))
    assert (sub.errors, sub.cells) == ([("", (1,), "low is above high")], {0: (1, "")})
    assert pairs.submit(None).errors[0][2] == "Please answer."
    assert pairs.submit(patch()).document == []


WRONG = [
    {"grid": 5}, {"grid": None}, {"grid": {}}, patch(-1), patch(10**9), patch(1.5), patch(True), patch(0, ["a"]),
    patch(0, [60]), patch(0, [-1]), patch(0, 5 * [None]), patch(other={0: "x"}), patch(name={60: "x"}),
    patch(name={-1: "x"}), patch(name={0: ["x"]}), patch(amount={0: {"text": "1"}}), patch(status={0: 1.5}),
    {"grid": {"cells": {"name": "x"}}}, {"grid": {"cells": {"name": [[0, 1], ["x"]]}}}, {"grid": {"cells": []}},
    {"grid": {"cells": {"name": [[True], ["x"]]}}}, {"grid": {"deleted": {}}}, {"rows": []}, {"text": "x"}, [],
    patch(name={0: "\ud800"}),
]  # fmt: skip


@pytest.mark.parametrize("draft", WRONG, ids=str)
def test_c825_a_malformed_patch_changes_nothing(draft):
    """It is an error, never an exception and never a part of the answer."""
    sub = Form(list[Bill], value=bills(60)).submit(draft)
    assert not sub.ok
    assert sub.errors


@RELAXED
@given(draft=documents | st.fixed_dictionaries({"grid": documents}))
def test_c825_any_patch_is_read_without_an_exception(draft):
    """Whatever a page sends, an answer has whole rows."""
    sub = Form(list[Ordered], value=[{"low": 1, "high": 2}] * 12).submit(draft)
    assert not sub.ok or all(set(row) == {"low", "high"} for row in sub.document)


def test_c826_an_exact_number_stays_a_number_or_a_text():
    """A decimal that came as a number stays one, and a long one loses no digit."""

    class Price(BaseModel):
        price: Decimal

    rows: list[dict[str, Any]] = [{"price": 1.5}, {"price": "12345678901234567890.10"}] * 6
    form = Form(list[Price], value=rows)
    assert json.loads(grid_of(form).cells)[0][:2] == ["1.5", "12345678901234567890.10"]
    sub = form.submit(patch(price={0: "2.5", 1: "98765432109876543210.01"}))
    assert sub.document[:2] == [{"price": 2.5}, {"price": "98765432109876543210.01"}]


def test_c826_a_column_with_an_unfitting_value_has_json():
    """No two values of different types look alike: such a column shows and takes JSON."""
    rows = [{"low": "1", "high": 2}, *[{"low": 1, "high": 2}] * 11]
    form = Form(list[Ordered], value=rows)
    assert json.loads(grid_of(form).cells)[0][:2] == ['"1"', "1"]
    assert form.submit(patch(low={0: "1"})).document == [{"low": 1, "high": 2}] * 12


def test_c827_an_unknown_option_is_shown_and_kept():
    """A value that is none of the options is an option of its own, and its error has its cell."""
    rows = [{"name": "n", "amount": 1, "status": "lost"}, *bills(59)]
    form = Form(list[Bill], value=rows)
    column = next(each for each in grid_of(form).item.fields if each.key == "status")
    assert [option.label for option in column.options][2] == "lost (not one of the options)"
    sub = form.submit(None)
    assert (json.loads(str(sub.json_text))[0]["status"], sub.cells) == ("lost", {0: (0, "status")})
