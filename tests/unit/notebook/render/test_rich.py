"""Rich output: the best format that needs no trust, or a note why there is none."""

import base64
import io

import pandas as pd
import pytest
from matplotlib.figure import Figure

from nbagent.notebook.render import rich
from nbagent.notebook.render.plain import text_of
from nbagent.notebook.wire import Rich

PNG = base64.b64encode(b"\x89PNG....").decode()


def test_a_data_frame_is_a_table_without_its_style():
    """The table of a DataFrame stays a table, aligned by the card's own rules."""
    frame = pd.DataFrame({"region": ["North", "South"], "margin": [188_020, -42_908]})
    (drawn,) = rich.render({"text/html": frame._repr_html_(), "text/plain": str(frame)})
    assert drawn.kind == "html"
    assert '<table class="dataframe">' in drawn.data
    assert "style" not in drawn.data
    assert "1 | South | -42908" in text_of(drawn.data)


def test_a_figure_is_a_picture_from_its_own_bytes():
    """PNG data becomes a data URL, from text or from bytes."""
    figure = Figure()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    encoded = base64.encodebytes(buffer.getvalue()).decode()
    (from_text,) = rich.render({"image/png": encoded})
    (from_bytes,) = rich.render({"image/png": buffer.getvalue()})
    assert from_text == from_bytes
    assert from_text.data.startswith("data:image/png;base64,iVBOR")


TABLE = [
    ({"image/png": PNG, "text/plain": "x"}, "image", "data:image/png;base64," + PNG),
    ({"text/html": "<b>x</b>", "text/plain": "y"}, "html", "<b>x</b>"),
    ({"text/html": "<script>x</script><div id=p></div>", "text/plain": "y"}, "text", "y"),
    ({"text/markdown": "**x**", "text/plain": "y"}, "html", "<p><strong>x</strong></p>"),
    ({"text/html": ["<b>", "x</b>"]}, "html", "<b>x</b>"),
    ({"application/json": {"a": 1}}, "text", '{"a": 1}'),
    ({"text/plain": "a\u202eb"}, "text", "a⟨U+202E⟩b"),
    ({"application/javascript": "alert(1)", "text/plain": "y"}, "text", "y"),
    ({"application/vnd.plotly.v1+json": {}, "text/html": "<script>x</script>"}, None, None),
    ({}, None, None),
]


@pytest.mark.parametrize(("bundle", "kind", "data"), TABLE)
def test_the_best_safe_type_of_a_bundle_is_drawn(bundle, kind, data):
    """Pictures before HTML, HTML with content before text, scripts never."""
    drawn = rich.render(bundle)
    assert drawn == ([] if kind is None else [Rich(kind=kind, data=data)])


def test_an_svg_is_a_picture_and_never_markup():
    """In an image no script of a drawing runs and nothing is fetched."""
    (drawn,) = rich.render({"image/svg+xml": "<svg onload=alert(1)/>"})
    assert drawn.kind == "image"
    assert drawn.data.startswith("data:image/svg+xml;base64,")


def test_a_formula_is_drawn_with_any_dollar_signs():
    """SymPy writes its results as text/latex."""
    for source in (r"$\displaystyle x^{2}$", "$$x^{2}$$", "x^{2}"):
        (drawn,) = rich.render({"text/latex": source})
        assert "<msup><mi>x</mi><mrow><mn>2</mn></mrow></msup>" in drawn.data


def test_remote_images_of_html_are_named_and_not_loaded():
    """A person sees that an image was left out, and its address."""
    (drawn,) = rich.render({"text/html": '<p>hi</p><img alt="cat" src="https://e.vil/c.png?x=1">'})
    assert drawn.data == ('<p>hi</p><img alt="cat"><p class="note">https://e.vil/c.png?x=1</p>')


@pytest.mark.parametrize(
    ("bundle", "note"),
    [
        ({"image/png": "A" * (rich.MAX_IMAGE + 1)}, "image/png of 6.0 MB is too large"),
        ({"text/html": "<p>" + "x" * rich.MAX_MARKUP}, "text/html of 0.4 MB is too large"),
        ({"image/png": "no base64 '\""}, "image/png cannot be shown"),
        ({"image/png": 5}, "image/png cannot be shown"),
        ({"image/png": "AAAAA"}, "image/png cannot be shown"),
    ],
)
def test_a_value_that_cannot_be_drawn_leaves_a_note_and_the_next_best_type(bundle, note):
    """For a value too large or broken, the person reads a note and the text."""
    first, second = rich.render({**bundle, "text/plain": "plain"})
    assert first.data.startswith(note)
    assert second.data == "plain"


def test_very_long_text_keeps_its_beginning_and_its_end():
    """A million characters do not reach the page."""
    (drawn,) = rich.render({"text/plain": "a" * 1_000_000 + "end"})
    assert len(drawn.data) < 21_000
    assert drawn.data.endswith("end")
