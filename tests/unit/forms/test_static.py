"""The record of a form, as pages without a kernel show it."""

import json
from html.parser import HTMLParser

import pytest
from pydantic import BaseModel, Field

from nbagent.forms.form import Form


class Order(BaseModel):
    """What to buy."""

    item: str
    count: int = Field(default=1, title="How many")
    sizes: list[str] = []
    parts: list["Order"] = []


class Seen(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.open.append(tag)
        classes = dict(attrs).get("class") or ""
        assert all(name.startswith("nbagent-") for name in classes.split())

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def seen(html):
    """The content of a page, whose tags must be closed in order."""
    parser = Seen()
    parser.feed(html)
    assert parser.open == []
    return parser


def test_title_and_answer_appear_once():
    """A record is short: the question and the answer."""
    form = Form(Order, title="Buy a thing?")
    html = form.static_html(form.submit({"fields": {"item": {"text": "lamp"}}}))
    assert html.count("Buy a thing?") == html.count("lamp") == 1
    chosen = Form.choose([("yes", None, None), ("no", None, None)])
    assert chosen.static_html(chosen.submit({"option": 0})).count("yes") == 1


@pytest.mark.parametrize(
    "bad", ["<script>alert(1)</script>", '" onclick="x', "<img src=x onerror=y>"]
)
def test_text_from_outside_is_never_markup(bad):
    """Titles, labels, names and values are text."""
    schema = {
        "title": bad,
        "type": "object",
        "properties": {bad: {"type": "string", "description": bad}},
    }
    form = Form(schema, value={bad: bad, "x": {bad: [bad]}})
    for html in (form.static_html(), form.static_html({bad: bad + "2", "x": [bad]})):
        page = seen(html)
        assert not page.tags & {"script", "img"}
        assert page.attributes <= {"class", "scope"}
        assert bad in "".join(page.text)


def test_a_change_shows_the_old_value():
    """Old and new, line by line for longer texts; unchanged lines are not marked."""
    form = Form(Order, value={"item": "lamp\nred", "count": 1, "sizes": ["S"]})
    html = form.static_html({"item": "lamp\nblue", "count": 1})
    assert '<del class="nbagent-before">red</del>' in html
    assert '<ins class="nbagent-after">blue</ins>' in html
    assert html.count("lamp") == 1
    assert html.count("<del") == 2, "the color, and the sizes that are gone"


def test_a_record_is_the_same_each_time():
    """Nbval compares records, so nothing is random or timed."""
    value = {"item": "x", "parts": [{"item": "y"}]}
    pages = {Form(Order, value=value).static_html(value) for _ in range(3)}
    assert len(pages) == 1
    assert " id=" not in pages.pop()


def test_rows_of_objects_are_a_table_and_an_open_question_says_so():
    """A record keeps the shape of the document."""
    rows = {
        "type": "array",
        "items": {"properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}},
    }
    page = seen(Form(rows).static_html([{"a": 1, "b": True}, {"a": 2}]))
    assert {"table", "th", "td"} <= page.tags
    assert "not answered" in Form(int).static_html()
    assert json.dumps(Form(int).spec())
