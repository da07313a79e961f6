"""ipywidgets in place of fields: their first values and their answers."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import ipywidgets
import pytest
from pydantic import BaseModel, Field, SecretStr

import nbagent as nb
from nbagent.forms.form import Form
from nbagent.notebook.cards.controls import Controls
from nbagent.notebook.cards.form_card import question_of
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.wire import Drafts, FieldError, FormItem
from tests.until import until

Slider = nb.FormHint(widget=lambda: ipywidgets.IntSlider(max=50))


class Place(BaseModel):
    north: Annotated[int, Slider, Field(ge=10)]
    name: str = ""


class Plan(BaseModel):
    size: Annotated[int, Slider]
    day: Annotated[dt.date | None, nb.FormHint(widget=ipywidgets.DatePicker)] = None
    place: Place
    key: Annotated[SecretStr | None, nb.FormHint(widget=ipywidgets.Password)] = None


VALUE = {"size": 7, "day": "2026-01-02", "place": {"north": 20, "name": "here"}}


def form_with_controls(**options: Any) -> tuple[Form, Controls, list[Any]]:
    form = Form(Plan, **options)
    controls = Controls(question_of(form, title="?"))
    return form, controls, [row.children[1] for row in controls.rows]


def test_an_untouched_widget_returns_the_prefill_exactly() -> None:
    """Like an untouched field, the widget has no draft."""
    form, controls, widgets = form_with_controls(value=VALUE)
    assert [widget.value for widget in widgets] == [7, dt.date(2026, 1, 2), 20]
    assert controls.drafts(None) is None
    assert form.submit(controls.drafts(None)).document == VALUE


def test_values_of_the_widgets_are_added_to_the_typed_text() -> None:
    """Nested fields too; the page's own drafts stay."""
    form, controls, widgets = form_with_controls(value=VALUE)
    widgets[0].value, widgets[1].value, widgets[2].value = 8, None, 21
    typed = {"fields": {"place": {"fields": {"name": {"text": "there"}}}}}
    answer = form.submit(controls.drafts(typed)).value
    assert answer == Plan(size=8, day=None, place=Place(north=21, name="there"))


def test_without_a_prefill_the_displayed_value_of_the_widget_counts() -> None:
    """A slider always shows a value; an empty picker answers nothing."""
    form, controls, _ = form_with_controls()
    wrong = form.submit(controls.drafts(None))
    assert [path for _, path, _ in wrong.errors] == [("place", "north")]
    told = [FieldError(field=id_, message=text) for id_, _, text in wrong.errors]
    assert controls.named(told)[0].field is None
    assert controls.named(told)[0].message.startswith("North: ")


def test_the_page_draws_no_field_replaced_by_a_widget_and_a_secret_is_never_a_widget() -> None:
    """A widget's state is synced, so secrets stay with the page."""
    form, _, _ = form_with_controls()
    item = question_of(form, title="?").item("k", "", "")
    assert item.spec is not None
    fields = {each["key"]: each for each in item.spec["root"]["fields"]}
    assert set(fields) == {"place", "key"}
    assert [each["key"] for each in fields["place"]["fields"]] == ["name"]


def test_the_model_sees_no_hint() -> None:
    """The schema is pydantic's own."""
    assert "ipywidget" not in str(Plan.model_json_schema())


@pytest.mark.parametrize("around", [{"null": True}, {"json": {"text": "{}"}}])
def test_a_draft_of_the_whole_object_overrides_its_widgets(around: dict[str, Any]) -> None:
    """A nested object that was emptied or written as JSON gets no value of a widget."""
    _, controls, _ = form_with_controls()
    drafts = controls.drafts({"fields": {"place": around}})
    assert drafts["fields"]["place"] == around


def test_closing_closes_every_widget_model() -> None:
    """Rows, labels, layouts and styles too."""
    before = set(ipywidgets.widgets.widget._instances)
    _, controls, _ = form_with_controls()
    controls.close()
    assert set(ipywidgets.widgets.widget._instances) <= before


async def test_an_approval_follows_its_widgets() -> None:
    """The button says "with changes", rules are not offered, and the preview shows what would run."""

    @nb.tool(
        approval=True, editable=True, preview=lambda given: f"{given.rows} rows of {given.table}"
    )
    def delete(rows: Annotated[int, Slider], table: str) -> str:
        """Delete rows."""
        return f"deleted {rows} of {table}"

    call = nb.ScriptedModel.call("delete", rows=7, table="t")
    run = nb.Agent(nb.ScriptedModel([call, "done"]), tools=[delete]).run("Go")
    await run.settled()
    card = RunCard(run)
    (waiting,) = run.interrupts
    await until(lambda: [piece.data for piece in _item(card).preview] == ["7 rows of t"])
    assert _item(card).actions[0].label == "Approve"
    (row,) = card.rows
    row.children[1].value = 8
    await until(lambda: [piece.data for piece in _item(card).preview] == ["8 rows of t"])
    assert _item(card).actions[0].label == "Approve with changes"
    card._keep_drafts(Drafts(interrupt=waiting.id, drafts={"fields": {"table": {"text": "u"}}}))
    await until(lambda: [piece.data for piece in _item(card).preview] == ["8 rows of u"])
    row.children[1].value = 7
    await until(lambda: _item(card).actions[0].label == "Approve")
    await until(lambda: [piece.data for piece in _item(card).preview] == ["7 rows of u"])
    await run.reject(waiting)
    await run
    card.detach()
    card.close()


def _item(card: RunCard) -> FormItem:
    (item,) = [each for each in card.view.snapshot().items if isinstance(each, FormItem)]
    return item
