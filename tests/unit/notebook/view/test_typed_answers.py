"""A typed answer in the card: the value grows while it streams, and ends with its JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagent.core.base.events import (
    CallRequested,
    ModelResponded,
    OutputRefused,
    RunCompleted,
    RunFailed,
    RunRetried,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.messages import user
from nbagent.core.base.model import Discarded, TextDelta
from nbagent.notebook.render import static
from nbagent.notebook.render.answer import MAX_ROWS, drawn
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import NoticeItem, Put, TextItem

CITIES = [{"name": "Rome", "people": 3}, {"name": "Milan", "people": 1}]


def started(answer: Any = "value") -> RunStarted:
    return RunStarted(
        at=100.0, agent="a", model="m", messages=[user("go")], max_turns=20, answer=answer
    )


def view_of(*events: Any) -> SingleRunView:
    view = SingleRunView("r")
    for event in events:
        view.apply(event)
    return view


def text_item(view: SingleRunView) -> TextItem:
    (item,) = [i for i in view.snapshot().items if isinstance(i, TextItem)]
    return item


def html(view: SingleRunView) -> str:
    item = text_item(view)
    return "".join([*item.blocks, item.tail])


def stream(view: SingleRunView, text: str, size: int = 1) -> list[str]:
    """The HTML after each piece of a text, half a second apart."""
    seen = []
    for number, start in enumerate(range(0, len(text), size)):
        view.apply(TextDelta(text[start : start + size]))
        view.flush(number * 0.5)
        seen.append(html(view))
    return seen


@pytest.mark.parametrize(
    "text", [json.dumps({"value": CITIES}), f"```json\n{json.dumps(CITIES)}\n```"]
)
def test_a_list_of_objects_grows_as_a_table(text):
    """Rows appear one by one, never raw JSON; the final table is the same, with its JSON to copy."""
    view = view_of(started())
    seen = stream(view, text)
    rows = [each.count("<tr>") for each in seen]
    assert rows == sorted(rows)
    assert rows[-1] == 3
    assert not any("{" in each or "`" in each for each in seen)
    view.apply(ModelResponded(at=101.0, text=text))
    view.flush(1000.0)
    whole = html(view)
    assert whole.startswith(seen[-1])
    assert "<summary>JSON</summary>" in whole
    view.apply(RunCompleted(at=102.0, text=json.dumps(CITIES), output=CITIES))
    assert html(view) == whole
    assert view.snapshot().items[-1].type == "text"
    assert view.flush(2000.0)[0].op == "head"  # nothing is drawn anew


def test_an_object_grows_as_named_values():
    """A string in the object grows too."""
    view = view_of(started("json"))
    seen = stream(view, '{"name": "Rome", "mayor": {"name": "X"}}', size=4)
    assert any("<dt>name</dt><dd><div>Ro</div></dd>" in each for each in seen)
    assert seen[-1].startswith('<dl class="nba-kv"><dt>name</dt>')


def test_the_live_view_of_a_typed_answer_equals_its_replay():
    """The static card also has the CSS rules that the answer needs."""
    text = json.dumps({"value": CITIES})
    end = [
        ModelResponded(at=101.0, text=text),
        RunCompleted(at=102.0, text=json.dumps(CITIES), output=CITIES),
    ]
    live = view_of(started())
    stream(live, text, size=7)
    for event in end:
        live.apply(event)
    live.flush(1000.0)
    replayed = view_of(started(), *end)
    assert live.snapshot().items == replayed.snapshot().items
    named = view_of(started("json"), ModelResponded(at=101.0, text='{"a": 1}'))
    assert ".nba-kv" in static.render(named.snapshot())


def test_an_answer_that_is_not_json_is_a_text():
    """A refused answer in words is drawn as words, with the reason below."""
    view = view_of(started())
    stream(view, "{sorry}, **no**", size=3)
    view.apply(ModelResponded(at=101.0, text="{sorry}, **no**"))
    view.apply(OutputRefused(at=102.0, errors="it is not JSON: <b>x</b>"))
    view.flush(1000.0)
    assert "<strong>no</strong>" in html(view)
    notice = view.snapshot().items[-1]
    assert (notice.type, notice.tone) == ("notice", "warn")
    assert "it is not JSON" in notice.text


def test_an_answer_is_drawn_with_its_defaults():
    """The defaults are those of ``result.output``."""
    view = view_of(
        started("json"),
        ModelResponded(at=101.0, text='{"name": "Rome"}'),
        RunCompleted(at=102.0, text='{"name": "Rome"}', output={"name": "Rome", "people": 0}),
    )
    assert "<dt>people</dt>" in html(view)


def test_the_answer_of_a_final_tool_is_at_the_end():
    """The answer is drawn like any other; the text beside the call is unchanged."""
    call = CallRequested(id="c", name="deliver", input={}, final=True)
    view = view_of(
        started(),
        ModelResponded(at=101.0, text="Let me see.", calls=(call,)),
        ToolStarted(at=101.5, call_id="c", attempt=1, owner="o", input={}),
        ToolFinished(at=102.0, call_id="c", output=CITIES),
        RunCompleted(at=103.0, text=json.dumps(CITIES), output=CITIES),
    )
    said, _, answer = view.snapshot().items
    assert "Let me see." in "".join(said.blocks)
    assert answer.key == "end"
    assert "<table>" in answer.blocks[0]


def test_a_discarded_attempt_leaves_nothing_of_its_answer():
    """The next attempt starts anew."""
    view = view_of(started())
    stream(view, '{"value": [{"name": "Wrong', size=5)
    view.apply(Discarded("broke"))
    stream(view, '{"value": [{"name": "Right', size=5)
    assert "Wrong" not in html(view)
    assert "Right" in html(view)


def test_hostile_values_are_text():
    """A model's names and values are never markup, and hidden characters are made visible."""
    name = "<img src=x onerror=alert(1)>"
    for whole in (True, False):
        made = drawn({name: [{"a</td>": "<script>x</script>\u202e"}]}, is_complete=whole)
        assert "<img" not in made
        assert "<script" not in made
        assert "\u202e" not in made


def test_an_answer_of_any_size_is_visibly_bounded():
    """Rows, levels and lengths are limited, and omitted values are counted."""
    many = drawn([{"n": n} for n in range(5_000)], is_complete=False)
    assert many.count("<tr>") == MAX_ROWS + 1
    assert "4,900 more values" in many
    deep: Any = 1
    for _ in range(90):
        deep = [deep]
    assert len(drawn(deep, is_complete=True)) < 30_000
    assert len(drawn({"x": "y" * 1_000_000}, is_complete=True)) < 60_000
    assert len(drawn([["x" * 2_000] * 100] * 100, is_complete=False)) < 100_000


def test_a_long_answer_is_drawn_in_steps_and_not_for_each_piece():
    """The answer is drawn at most four times a second, and not beyond a size."""
    view = view_of(started())
    view.flush(0.0)
    puts = 0
    for number in range(2_000):
        view.apply(TextDelta('{"value": [' if number == 0 else f'{{"name": "{"x" * 80}"}},'))
        puts += sum(isinstance(op, Put) for op in view.flush(number * 0.01) or ())
    assert puts <= 20 / 0.25 + 2


def test_the_validation_error_is_shown_once_where_the_run_fails_with_it() -> None:
    """The run's failure includes the error; after a retry or another failure, its notice is shown."""
    said = [
        started(),
        ModelResponded(at=101.0, text="soup"),
        OutputRefused(at=102.0, errors="not JSON"),
    ]
    misfit = "The model's final answer does not match output_type: not JSON. The answer was 'soup'"
    view = view_of(*said, RunFailed(at=103.0, error="ModelError", message=misfit))
    assert notices(view) == [f"ModelError: {misfit}"]
    view.apply(RunRetried(at=104.0, by="code"))
    (line,) = notices(view)
    assert line.endswith(": not JSON")
    down = RunFailed(at=103.0, error="ModelError", message="the server is down")
    assert len(notices(view_of(*said, down))) == 2


def notices(view: SingleRunView) -> list[str]:
    """The texts of all notices."""
    return [item.text for item in view.snapshot().items if isinstance(item, NoticeItem)]


@pytest.mark.parametrize(("value", "folds"), [([], 0), ({}, 0), ([1], 1), ({"a": 1}, 1), (1, 0)])
def test_json_is_folded_below_a_value_that_is_drawn_in_another_way(value: Any, folds: int) -> None:
    """An empty list is already drawn as JSON."""
    assert drawn(value, is_complete=True).count("<details>") == folds
