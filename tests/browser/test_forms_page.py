"""Forms of every kind in Chromium: accessible, filled by keyboard alone, and read back in Python."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from playwright.sync_api import Browser
from pydantic import Base64Bytes, BaseModel, Field, SecretStr

from nbagent.forms.form import Form
from nbagent.forms.hints import FormHint
from tests.browser.form_page import FormPage
from tests.browser.typist import Typist

City = Enum("City", {f"C{number}": f"City {number}" for number in range(40)})


class Line(BaseModel):
    """A row of a table."""

    product: str = Field(description="As in the `catalog`")
    count: int = Field(ge=1)
    gift: bool = False


class Card(BaseModel):
    """One way to pay."""

    kind: Literal["card"] = "card"
    number: str


class Cash(BaseModel):
    """Another way to pay."""

    kind: Literal["cash"] = "cash"


class Tree(BaseModel):
    """A shape that repeats."""

    name: str
    children: list[Tree] = []


class Home(BaseModel):
    """A nested object with another in it."""

    street: str
    owner: Line | None = None


class All(BaseModel):
    """One field of each kind."""

    title: str = Field(description="Shown on top, `like_this`.", examples=["Q3"], max_length=40)
    note: Annotated[str, FormHint(widget="textarea")]
    pages: int = Field(ge=1, le=400)
    share: Annotated[float, Field(ge=0, le=1), FormHint(widget="slider")]
    price: Decimal
    big: int
    day: dt.date
    at: dt.datetime
    wait: dt.timedelta
    mail: str | None = "a@b.c"
    urgent: bool
    sure: bool = True
    maybe: bool | None
    size: Literal["S", "M", "L"]
    month: Literal["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul"]
    city: City
    color: Literal["red", "green"] | str
    days: set[Literal["Mon", "Tue", "Wed"]]
    token: SecretStr
    sql: Annotated[str, FormHint(widget="code:sql")]
    data: Base64Bytes | None = None
    anything: Any
    tags: list[str]
    order: list[Line]
    point: tuple[int, int]
    weights: dict[str, int]
    pay: Card | Cash = Field(discriminator="kind")
    value: int | str
    home: Home
    tree: Tree


PREFILL = {
    "title": "Q3 report",
    "note": "one\ntwo",
    "tags": ["a", "b"],
    "order": [{"product": "ink", "count": 2}],
    "weights": {"a": 1},
    "pay": {"kind": "card", "number": "4111"},
    "home": {"street": "Elm", "owner": {"product": "x", "count": 1}},
    "tree": {"name": "root", "children": [{"name": "leaf"}]},
    "data": "aGVsbG8=",
    "anything": {"a": [1]},
}


@pytest.fixture
def open_form(browser: Browser) -> Iterator[Callable[..., FormPage]]:
    """``open_form(form, approval=False, dark=False, width=900)``; script errors fail the test."""
    pages: list[FormPage] = []

    def open_form(form: Form, *, approval: bool = False, **options: Any) -> FormPage:
        pages.append(FormPage(browser, form, **options).ask(approval=approval))
        return pages[-1]

    yield open_form
    for page in pages:
        assert page.errors == []
        page.close()


@pytest.mark.parametrize(
    ("dark", "width", "prefilled"),
    [(False, 320, True), (False, 900, False), (True, 320, False), (True, 900, True)],
)  # every pair of two values occurs
def test_c791_axe_finds_nothing_and_outlines_and_targets_are_large_enough(
    open_form, dark, width, prefilled
):
    """Every kind of field, unfolded and with rows: 3:1 around controls, 24 pixels to press; nothing overflows."""
    form = Form(All, value=PREFILL) if prefilled else Form(All)
    page = open_form(form, approval=prefilled, dark=dark, width=width)
    page.open_all()
    assert page.violations() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_ids_are_unique_and_resolve_and_tab_order_is_document_order(open_form):
    """Labels, descriptions and controls reference each other; no element changes the Tab order."""
    page = open_form(Form(All, value=PREFILL), approval=True)
    page.open_all()
    assert page.tangles() == {"twice": [], "lost": [], "jumps": []}


def test_every_error_leads_to_a_control_that_is_described_by_it(open_form):
    """For each kind of field, an error's link leads to the field, and a screen reader reads the error there."""
    form = Form(All)
    page = open_form(form)
    typist = Typist(page.page)
    typist.enter()
    typist.press("Control+Enter")
    (empty,) = page.answers()
    errors = form.submit(empty["drafts"]).errors
    page.refuse(empty, errors)
    links = page.page.locator(".nba-errors .nba-link")
    assert links.count() == len(errors) > 20
    for number in range(len(errors)):
        links.nth(number).press("Enter")
        here = typist.here()
        assert "Please answer." in here["error"], here
        assert not here["back"], f"{here} is further up than the error before it"
    assert page.violations() == []


FOCUSED = """() => {
  const el = document.activeElement;
  const legend = el.closest("fieldset")?.querySelector("legend")?.textContent;
  const label = el.getAttribute("aria-label") ?? el.labels?.[0]?.innerText ?? el.textContent;
  window.order ??= new Map();
  if (!window.order.has(el)) window.order.set(el, window.order.size);
  return [el.type === "radio" && !el.closest(".nba-shapes") ? legend : label, window.order.get(el)];
}"""

KEYS: dict[str, list[str]] = {
    "Title": ["=Q3"],
    "Note": ["=two", "Enter", "=lines"],
    "Pages": ["=12"],
    "Share": ["ArrowRight", "Home"],
    "Price": ["=19.90"],
    "Big": ["=9007199254740993"],
    "Day": ["=07012026"],
    "At": ["=07012026", "ArrowRight", "=0930AM"],
    "Wait": ["=PT2H"],
    "Mail: no value": ["Space"],
    "Urgent": ["ArrowDown"],
    "Sure": ["Space"],
    "Maybe": ["ArrowUp"],
    "Size": ["ArrowDown"],
    "Month": ["=Ma"],
    "Filter": ["=C37"],
    "City": ["Space"],
    "Color": ["ArrowUp"],
    "Another answer": ["=blue"],
    "Tue": ["Space"],
    "Token": ["=secret"],
    "Sql": ["=SELECT 1"],
    "Anything": ['={"a": [1]}'],
    "Add: Tags": ["Enter"],
    "Tags, item 1": ["=x"],
    "Add: Order": ["Enter"],
    "Product, item 1": ["=ink"],
    "Count, item 1": ["=3"],
    "Part 1": ["=1"],
    "Part 2": ["=2"],
    "Add: Weights": ["Enter"],
    "Name 1": ["=k"],
    "k": ["=5"],
    "Card": ["Space"],
    "Number": ["=4111"],
    "Whole number": ["ArrowDown"],
    "Value: Text": ["=12"],
    "Street": ["=Elm"],
    "Name": ["=root"],
}


def test_a_form_of_every_kind_is_filled_and_sent_with_the_keyboard_only(open_form):
    """Tab reaches and leaves every control in order; the typed values validate in Python."""
    form = Form(All)
    page = open_form(form)
    keyboard = page.page.keyboard
    done: dict[str, int] = {}
    for _ in range(200):
        keyboard.press("Tab")
        name, place = page.page.evaluate(FOCUSED)
        while name.strip() not in done and name.strip() in KEYS:
            done[name.strip()] = place
            for key in KEYS[name.strip()]:
                keyboard.type(key[1:]) if key[0] == "=" and len(key) > 1 else keyboard.press(key)
            name, place = page.page.evaluate(FOCUSED)
        if name == "Send":
            break
    assert set(done) == set(KEYS)
    keyboard.press("Shift+Tab")
    keyboard.press("Control+Enter")
    (answer,) = page.answers()
    submission = form.submit(answer["drafts"])
    assert submission.errors == []
    value = submission.value
    assert value.model_dump(exclude={"token", "home", "tree"}) == {
        "title": "Q3",
        "note": "two\nlines",
        "pages": 12,
        "share": 0.0,
        "price": Decimal("19.90"),
        "big": 9007199254740993,
        "day": dt.date(2026, 7, 1),
        "at": dt.datetime(2026, 7, 1, 9, 30, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "wait": dt.timedelta(hours=2),
        "mail": None,
        "urgent": False,
        "sure": False,
        "maybe": None,
        "size": "M",
        "month": "Mar",
        "city": City.C37,
        "color": "blue",
        "days": {"Tue"},
        "sql": "SELECT 1",
        "data": None,
        "anything": {"a": [1]},
        "tags": ["x"],
        "order": [{"product": "ink", "count": 3, "gift": False}],
        "point": (1, 2),
        "weights": {"k": 5},
        "pay": {"kind": "card", "number": "4111"},
        "value": "12",
    }
    assert value.token.get_secret_value() == "secret"
    assert (value.home.street, value.tree.name) == ("Elm", "root")


def test_an_untouched_approval_sends_no_drafts(open_form):
    """The page does not echo the proposed input, so the input runs byte for byte."""
    page = open_form(Form(All, value=PREFILL), approval=True)
    for fold in page.page.get_by_role("button", name="Show all").all():
        fold.click()
    page.page.keyboard.press("Tab")
    page.page.locator(".nba-fields input").first.focus()
    page.page.keyboard.press("Control+Enter")
    (answer,) = page.answers()
    assert (answer["action"], answer["drafts"]) == ("approve", None)


class Trip(BaseModel):
    """A number, and below it a choice."""

    days: int
    kind: Literal["a", "b"]


def test_the_error_of_a_number_does_not_take_the_press_on_the_control_below_it(open_form):
    """The number loses the focus when the mouse is pressed; the error has no room until the mouse is released."""
    page = open_form(Form(Trip)).page
    page.get_by_label("Days").fill("abc")
    radio = page.get_by_role("radio", name="b")
    radio.hover()
    before = radio.bounding_box()
    page.mouse.down()
    page.locator(".nba-err:not([hidden])").wait_for(state="attached")
    assert radio.bounding_box() == before
    page.mouse.up()
    assert radio.is_checked()
    page.locator(".nba-err:visible").wait_for()


class Person(BaseModel):
    name: str
    tags: list[str]


class Team(BaseModel):
    people: list[Person]
    notes: list[str]
    sums: dict[str, int]


TEAM = {
    "people": [{"name": "Ada", "tags": ["a", "b"]}, {"name": "Bob", "tags": ["c"]}],
    "notes": ["n"],
    "sums": {"x": 1},
}


def test_c682_each_button_of_a_form_has_a_name_of_its_own(open_form):
    """The buttons of rows are named after their lists and the items around those."""
    page = open_form(Form(Team, value=TEAM)).page
    names = [one.rpartition('"')[0] for one in page.locator(".nbagent").aria_snapshot().split("- ")]
    buttons = [name.partition('"')[2] for name in names if name.startswith(("button", "'button"))]
    assert len(set(buttons)) == len(buttons) > 20
    assert [name for name in buttons if "Remove item 1" in name] == [
        "Remove item 1 Tags Item 1 People",
        "Remove item 1 People",
        "Remove item 1 Tags Item 2 People",
        "Remove item 1 Notes",
        "Remove item 1 Sums",
    ]


def test_c682_text_typed_after_a_click_on_other_is_written_into_its_field(open_form):
    """The first click opens the field and gives it the focus; also where the label is clicked."""
    for click_on in ("radio", "label"):
        page = open_form(Form.choose([("a", None, None), ("b", None, None)], allow_other=True)).page
        radio, label = page.get_by_role("radio", name="Other…"), page.get_by_text("Other…")
        (radio if click_on == "radio" else label).click()
        page.keyboard.type("green")
        assert page.get_by_role("textbox", name="Another answer").input_value() == "green"
