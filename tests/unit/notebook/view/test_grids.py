"""An approval of thousands of rows: all of them are shown and bound, marks and errors are at cells, records are short."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from nbagent.core.base.events import Resolved
from nbagent.core.base.interrupts import PendingInterrupt, Respond, Restart
from nbagent.forms.form import Form
from nbagent.notebook import locale
from nbagent.notebook.render import facts, plain, static
from nbagent.notebook.texts import GRID_TEXTS, TEXTS
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.questions import Question
from nbagent.notebook.wire import CardHead, View


class Bill(BaseModel):
    name: str
    amount: float
    note: str | None = None


class Input(BaseModel):
    rows: list[Bill]
    why: str = ""


def bills(number: int) -> list[dict[str, Any]]:
    return [{"name": f"Customer number {at}", "amount": at, "note": "as agreed"} for at in range(number)]  # fmt: skip


def asked(rows: Any, why: str = "", **more: Any) -> Question:
    """The question of an approval whose input can be edited."""
    waiting = PendingInterrupt(
        id="i1", tool_name="pay", call_id="c1", kind="approval", metadata=None, expects="edit",
        input={"rows": rows, "why": why}, digest="d1", editable=True, **more,
    )  # fmt: skip
    return Question.of(waiting, Types(input=TypeAdapter(Input)))


def patch(deleted: Any = (), added: int = 0, **cells: Any) -> dict[str, Any]:
    typed = {key: [list(each), list(each.values())] for key, each in cells.items()}
    return {"fields": {"rows": {"grid": {"added": added, "deleted": list(deleted), "cells": typed}}}}  # fmt: skip


def test_c828_rows_beyond_the_limit_of_facts_are_edited_and_what_was_shown_runs():
    """2,000 rows of 150 kB are a grid; untouched they run as they are, edited only with the changes."""
    rows = bills(2_000)
    assert not facts.is_complete({"rows": rows})
    question = asked(rows)
    assert question.form is not None
    assert question.form.fields.fields[0].kind == "grid"
    assert question.warning == ""
    assert question.resolve("approve") == Restart()
    restart = question.resolve("approve", patch([7], amount={3: "0.5"}))
    assert isinstance(restart, Restart)
    expected = [*rows[:3], {**rows[3], "amount": 0.5}, *rows[4:7], *rows[8:]]
    assert restart.input == {"rows": expected, "why": ""}


@pytest.mark.parametrize(
    ("rows", "why"), [(bills(2_000), "x" * 200_000), ([{"name": "n", "more": bills(3_000)}] * 11, "")]
)  # fmt: skip
def test_c828_an_input_that_is_not_shown_whole_cannot_be_edited(rows, why):
    """If something beside the grid is too long to show, or the rows make no grid, the approval says so."""
    question = asked(rows, why)
    assert question.form is None
    assert question.warning == TEXTS["not_whole"]


def test_c829_only_a_question_with_a_grid_has_its_code_and_texts():
    """Other forms pay nothing; the texts follow the locale."""
    assert "module" not in json.dumps(asked(bills(3)).item("k", "c", "").spec)
    locale.set_locale({"grid_undo": "Zurück"})
    try:
        spec = asked(bills(30)).item("k", "c", "").spec
    finally:
        locale.set_locale({})
    assert spec is not None
    module = spec["root"]["fields"][0]["module"]
    assert "export{" in module["code"]
    assert module["texts"] == GRID_TEXTS | {"grid_undo": "Zurück"}
    assert not set(GRID_TEXTS) & set(TEXTS)


def test_c830_deceiving_characters_are_marked_at_their_cells_and_named_above():
    """Lookalikes and hidden characters, wherever the rows have them."""
    rows = bills(2_000)
    rows[1_500]["name"] = "p\u0430ypal"
    rows[20]["note"] = "a\u202eb"
    rows[30]["note"] = "ends "
    rows[40]["note"] = "quoth \\u00 \u00e9 fine"
    question = asked(rows)
    spec = question.item("k", "c", "").spec
    assert spec is not None
    assert spec["root"]["fields"][0]["marks"] == [
        (20, 2, "hidden characters"), (30, 2, "ends with a space"), (1_500, 0, "Cyrillic \u0430")
    ]  # fmt: skip
    assert question.warning == "Check rows: row 21, Note: hidden characters and 2 more."
    assert asked(bills(50)).warning == ""


def test_c831_errors_of_cells_are_one_bounded_error_of_their_grid():
    """The page gets each error at its cell, up to a limit; the message names the first and counts the others."""
    question = asked(bills(2_000))
    [error] = question.resolve("approve", patch([0], amount=dict.fromkeys(range(1, 1_501), "x")))  # type: ignore[misc]
    assert error.field == "/rows"
    assert error.message == ("row 1, Amount: Please enter a number, such as 12.5. and 1,499 more")
    assert len(error.cells) == 1_000
    assert error.cells[0] == (0, "amount", "Please enter a number, such as 12.5.")
    many = question.storable_draft(patch(amount=dict.fromkeys(range(2_000), "1")))
    assert many == patch(amount=dict.fromkeys(range(2_000), "1"))


def recorded(question: Question, resolution: Any) -> View:
    event = Resolved(at=5.0, scope=(), id="i1", call_id="c1", resolution=resolution, by="form")
    head = CardHead(run="r", agent="a", prompt="p", status="completed", status_text="", started_at=0)  # fmt: skip
    return View(head=head, items=[question.record("a:i1", event, 1.0)])


def test_c832_the_record_of_edited_rows_has_the_changes_and_not_the_rows():
    """In every form that a notebook or report saves: the changed cells, added and deleted rows, bounded."""
    question = asked(bills(2_000))
    draft = patch([7], 1, amount={3: "0.5", 2000: "9"}, name={2000: "New"})
    view = recorded(question, question.resolve("approve", draft))
    expected = [
        "1 changed, 1 added, 1 deleted, of 2,000 rows",
        "Row 4: amount: 3 \u2192 0.5",
        'Row 8: deleted (name="Customer number 7", amount=7, note="as agreed")',
        'Row 2,000: added (name="New", amount=9)',
    ]
    [fact] = view.items[0].details  # type: ignore[union-attr]
    assert fact.value.split("\n") == expected
    for drawn in (static.render(view), plain.render(view)):
        assert len(drawn) < 20_000
        assert "1 added, 1 deleted, of 2,000 rows" in drawn
    every = question.resolve("approve", patch(amount=dict.fromkeys(range(2_000), "-1")))
    [fact] = recorded(question, every).items[0].details  # type: ignore[union-attr]
    assert fact.value.startswith("2,000 changed, of 2,000 rows")
    assert fact.value.endswith("and 1,980 more")


def test_c832_the_differences_of_rows_are_true_for_any_two_lists():
    """Applied to the earlier rows, they give the new ones, also with equal rows and several edits side by side."""
    before = [{"n": at % 7} for at in range(40)]
    for after in (
        before[1:], before[:-3], [{"n": 9}, *before], [*before, {"n": 1}], before[5:20], [{"n": 8}] * 40,
        [*before[:10], {"n": 50}, {"n": 51}, *before[12:30], *before[33:], {"n": 3}], [],
    ):  # fmt: skip
        rows, at = [], 0
        for kind, number, _ in facts._edits(after, before):
            same = number - 1 - (len(rows) if kind == "grid_added" else at)
            rows += before[at : at + same]
            at += same
            if kind != "grid_deleted":
                rows.append(after[len(rows)])
            if kind != "grid_added":
                at += 1
        assert [*rows, *before[at:]] == after


def test_c833_a_saved_question_and_an_answer_show_the_first_rows_and_their_number():
    """While it waits, and after it was answered."""
    question = asked(bills(2_000))
    head = CardHead(run="r", agent="a", prompt="p", status="interrupted", status_text="", started_at=0)  # fmt: skip
    waiting = View(head=head, items=[question.item("k", "", "")])
    rows = bills(2_000)
    form = Question(
        id="i1", tool="", title="Rows?", expects="value", input={}, form=Form(list[Bill])
    )
    answered = recorded(form, Respond(output=rows))
    for view in (waiting, answered):
        html = static.render(view)
        assert len(html) < 30_000
        assert "the first 20 of 2,000 rows" in html
        assert "<td" in html
        assert "Customer number 19<" in html
        assert "Customer number 20<" not in html
