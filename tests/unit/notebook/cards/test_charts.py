"""Displays that Jupyter's own renderers draw, and the words that describe them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nbagent.core.base.events import ToolFinished
from nbagent.core.tools.call_output import Displayed
from nbagent.core.tools.result_text import for_model
from nbagent.notebook.capture import charts
from nbagent.notebook.capture.bundles import present
from nbagent.notebook.cards.charts import MAX_CHARTS, Charts
from nbagent.notebook.render import rich

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v6.json"
DRAWN = "application/vnd.vegalite.v5+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "iVBORw0KGgo="

SPEC = {
    "title": "Rain",
    "layer": [{"mark": "line"}, {"mark": {"type": "point"}, "encoding": {"y": {"field": "mm"}}}],
    "data": {"values": [{"mm": 1}, {"mm": 2}]},
}
FIGURE = {
    "data": [
        {"type": "bar", "name": "2024", "y": [1, 2, 3]},
        {"y": {"dtype": "f8", "bdata": "A" * 1_066_664}},
    ],
    "layout": {"title": {"text": "Sales <b>up</b>"}, "xaxis": {"title": {"text": "month"}}},
}
WORDS = {
    PLOTLY: (
        FIGURE,
        "Plotly figure “Sales <b>up</b>”: bar “2024” (3 points), scatter (99,999 points); x: month",
    ),
    VEGA: (SPEC, "Vega chart “Rain”: line, point; y: mm; 2 rows"),
    "application/geo+json": (
        {"type": "FeatureCollection", "features": [{"properties": {"name": "x"}}] * 3},
        "GeoJSON FeatureCollection: 3 features; name",
    ),
    WIDGET: ({"model_id": "a"}, "IntSlider(value=3)"),
}


EVIL = "https://evil.example/?q=secret"
LOADS: list[tuple[str, Any]] = [
    (VEGA, {"mark": "bar", "data": {"url": EVIL}}),
    (VEGA, {"mark": "bar", "data": {"url": "//evil.example/x"}}),
    (VEGA, {"vconcat": [{"mark": "bar", "transform": [{"from": {"data": {"url": EVIL}}}]}]}),
    (
        VEGA,
        {
            "mark": {"type": "image"},
            "encoding": {"url": {"field": "a"}},
            "data": {"values": [{"a": EVIL}]},
        },
    ),
    (
        "application/vnd.vega.v5+json",
        {"marks": [{"type": "image", "encode": {"enter": {"url": {"field": "a"}}}}]},
    ),
    (PLOTLY, {"data": [], "layout": {"images": [{"source": EVIL}]}}),
    (PLOTLY, {"data": [{"type": "image", "source": EVIL}]}),
    (PLOTLY, {"data": [{"type": "choroplethmap", "geojson": EVIL}]}),
]


@pytest.mark.parametrize(("mime", "data"), LOADS)
def test_a_chart_that_loads_from_elsewhere_is_shown_as_words(mime: str, data: Any):
    """A model may have written the chart: no renderer gets an address to send data to."""
    bundle = charts.with_words({mime: data, "text/plain": "chart"})
    assert [*bundle] == ["text/plain"]
    assert "loads from elsewhere" in bundle["text/plain"]


def test_chart_data_with_addresses_is_drawn_and_no_text_of_a_map_is_markup():
    """Rows may contain addresses; page options are removed, and a popup shows text."""
    rows = {"values": [{"url": EVIL}]}
    spec = {"mark": "bar", "data": rows, "usermeta": {"embedOptions": {"config": EVIL}}}
    drawn = charts.chart_of(charts.with_words({VEGA: spec}))
    assert drawn is not None
    assert drawn[DRAWN]["data"] == rows
    assert "usermeta" not in drawn[DRAWN]
    point = {"type": "Point", "coordinates": [1, 2]}
    features = [{"geometry": point, "properties": {"<b>": "<img src=x onerror=alert(1)>"}}]
    mapped = charts.chart_of(charts.with_words({"application/geo+json": {"features": features}}))
    assert mapped is not None
    assert "<" not in json.dumps(mapped["application/geo+json"])
    assert mapped["application/geo+json"]["features"][0]["geometry"] == point


@pytest.mark.parametrize("mime", WORDS)
def test_a_chart_is_described_in_words_and_its_script_is_removed(mime: str):
    """Row, text and model get one line, whatever the library's own text is."""
    data, words = WORDS[mime]
    text = words if mime == WIDGET else "alt.Chart(...)"
    bundle = charts.with_words(
        {mime: data, "text/plain": text, "text/html": "<div></div><script>draw()</script>"}
    )
    assert "text/html" not in bundle
    assert bundle["text/plain"] == words
    assert [piece.data for piece in rich.render(bundle)] == [words]
    picture = charts.with_words({mime: data, "image/png": PNG})
    assert rich.render(picture)[-1].kind == "image"


@pytest.mark.parametrize(
    "odd",
    [
        [],
        "x",
        None,
        {"data": 3, "layout": [], "title": [1]},
        {"data": [None, {"type": 5}]},
        {"data": [{"y": {"dtype": "f" + "9" * 5_000, "bdata": "AAAA"}}]},
    ],
)
@pytest.mark.parametrize("mime", WORDS)
def test_malformed_data_of_a_chart_is_described_in_words_too(mime: str, odd: Any):
    """No such data raises."""
    assert charts.with_words({mime: odd, "text/plain": "it"})["text/plain"]


def test_data_with_an_endless_version_is_no_chart():
    """The version is part of the mime type, which any value may choose."""
    bundle = {f"application/vnd.vega.v{'9' * 5_000}+json": SPEC, "text/plain": "it"}
    assert charts.with_words(bundle) == bundle


def test_the_model_gets_the_words_of_a_chart_and_never_its_data():
    """The model gets no megabytes of chart data; a value's own ``__str__`` is used."""

    class Chart:
        def _repr_mimebundle_(self, include: object = None, exclude: object = None):
            return {VEGA: SPEC, "text/plain": "it"}

        def __repr__(self) -> str:
            return "x" * 10**6

    class Texted(Chart):
        def __str__(self) -> str:
            return "as it says"

    InteractiveShell.instance()
    try:
        bundle = present(Chart())
    finally:
        InteractiveShell.clear_instance()
    assert bundle is not None
    assert for_model(Chart(), None, bundle["text/plain"]) == WORDS[VEGA][1]
    assert for_model(Texted(), None, bundle["text/plain"]) == "as it says"


def test_c237_a_chart_that_was_not_created_here_is_not_drawn_by_jupyter():
    """Data that was changed is shown as words, and nothing is run; a stored chart of this kernel is drawn."""
    made = charts.with_words({VEGA: SPEC, "text/plain": ""})
    stored = json.loads(json.dumps(made))
    assert charts.chart_of(stored) == made
    forged = {DRAWN: {**SPEC, "data": {"url": "https://evil.example/x.json"}}, "text/plain": "it"}
    assert charts.chart_of(forged) is None
    assert charts.chart_of({"text/html": "<script>x()</script>"}) is None
    below = Charts()
    assert not below.add_event(finished(display=forged, displays=[forged]))
    assert below.bundles == []
    assert below.add_event(finished(display=stored))
    assert below.bundles == [made]


def test_a_chart_that_is_too_large_is_shown_as_words():
    """Page, file and model get none of its megabytes."""
    values = [{"mm": n} for n in range(200_000)]
    bundle = charts.with_words({VEGA: {**SPEC, "data": {"values": values}}, "text/plain": ""})
    assert list(bundle) == ["text/plain"]
    assert bundle["text/plain"].endswith("200,000 rows (too large to draw here)")


def finished(**shown: Any) -> ToolFinished:
    """The end of a call."""
    return ToolFinished(at=0.0, call_id="c", output=None, **shown)


def test_the_charts_of_a_card_follow_what_is_displayed():
    """An update replaces its chart, the end of a call adds the returned one, and their number is limited."""
    one = charts.with_words({VEGA: SPEC})
    two = charts.with_words({VEGA: {**SPEC, "title": "Snow"}})
    three = charts.with_words({VEGA: {**SPEC, "title": "Hail"}})
    below = Charts()
    assert below.add_event(Displayed("c", one, "here"))
    assert below.add_event(Displayed("c", two))
    assert below.add_event(Displayed("c", three, "here"))
    assert [each["text/plain"].split("”")[0] for each in below.bundles] == [
        "Vega chart “Hail",
        "Vega chart “Snow",
    ]
    assert not below.add_event(finished(displays=[three, two], display=two))
    assert below.add_event(finished(displays=[three, two], display=one))
    assert len(below.bundles) == 3
    first = below.rows
    assert below.rows == first
    below.close()
    for number in range(MAX_CHARTS + 5):
        below.add_event(Displayed("d", charts.with_words({VEGA: {**SPEC, "title": str(number)}})))
    assert len(below.rows) == len(below.bundles) == MAX_CHARTS
    below.close()
