"""A preview, an output or a value paints only inside its own box, whatever passes the sanitizer."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page

from nbagent.forms.form import Form
from nbagent.notebook.render import rich, sanitize, static
from nbagent.notebook.wire import CallItem, Fact, FormItem, Rich
from tests.browser.form_page import APPROVE, FormPage

ROUNDING = 4
"""Color steps by which a rounded corner may differ between two drawings."""
NUMBERS = ["-300px", "300px", "-90%", "9999"]
EXTREMES = {
    "mathbackground": ["#e00000"],
    "mathcolor": ["#e00000"],
    "class": ["nba-form nba-go nba-facts math note code dataframe"],
    "display": ["block"],
    "displaystyle": ["true"],
    "largeop": ["true"],
    "stretchy": ["true"],
    "symmetric": ["true"],
    "scriptlevel": ["-9", "+9"],
    "linethickness": ["300px"],
    "minsize": ["600px"],
    "maxsize": ["9999px"],
    "notation": ["box longdiv roundedbox circle updiagonalstrike"],
    "frame": ["solid"],
    "columnlines": ["solid"],
    "rowlines": ["solid"],
    "colspan": ["999"],
    "rowspan": ["999"],
    "start": ["-99999999999"],
    "src": ["data:image/gif;base64,R0lGODlhAQABAIAAAP8AAP8AACwAAAAAAQABAAACAkQBADs="],
    "alt": ["W" * 300],
    "title": ["x"],
    "href": ["https://example.org/" + "x" * 300],
}
RED = '<math><mstyle mathbackground="#e00000"><mspace width="400px" height="300px" depth="300px"/></mstyle></math>'
OVER = (
    '<math display="block"><mpadded voffset="{v}" lspace="{h}" width="0" height="0" depth="0">'
    '<mstyle mathbackground="#e00000" mathcolor="#fff"><mtext>to: a friend, amount: 1</mtext>'
    '<mspace width="500px" height="200px" depth="200px"/></mstyle></mpadded></math>'
)
OFFSETS = [
    OVER.format(v=v, h=h) for v in ("-150px", "0", "150px") for h in ("-200px", "0", "400px")
]
MARKS = "pay" + "e" + "\u0336\u0353\u033f\u034b\u0302" * 60 + "W" * 400
PULLED = '<math><mspace width="-500px"/><mtext mathcolor="#e00000">to: a friend</mtext></math>'


WORST = {
    "painting over": OFFSETS,
    "pulled": [PULLED, RED, MARKS, f"<p>{MARKS}</p>", "<h1>" + "<sup>W" * 60, "<br>" * 3],
}
TAGS: dict[str, list[str]] = {}
"""The allowed tags by first letter (prose) or alone (MathML)."""
for each in sorted(sanitize.PROSE | sanitize.MATH):
    TAGS.setdefault(f"{each[0]}…" if each in sanitize.PROSE else each, []).append(each)


def markup_of(tag: str) -> str:
    """Markup of the tag, alone and with extreme attributes."""
    inner = "x" if tag in sanitize.PROSE else f"<mtext>{'W' * 60}</mtext>"
    wrap = "{}" if tag in sanitize.PROSE or tag == "math" else "<math>{}</math>"
    found = [f"<{tag}>{inner}{inner}{inner}</{tag}>"]
    for name in sorted(sanitize.ATTRIBUTES):
        found += [
            f'<{tag} {name}="{value}">{inner}{inner}</{tag}>'
            for value in EXTREMES.get(name, NUMBERS)
        ]
    return "".join(dict.fromkeys(rich.safe_html(wrap.format(case)) for case in found))


DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def pixels(page: Page) -> np.ndarray:
    """The page's pixels as RGB values, once its newest content is drawn: Chromium has no picture before that."""
    page.evaluate(DRAWN)
    return np.asarray(
        Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    ).astype(int)


def painted_outside(page: Page, block: Locator) -> int:
    """Number of pixels outside the block's box that change with the block's content."""
    box = block.bounding_box()
    assert box is not None
    while True:  # until nothing else moves
        full = pixels(page)
        block.evaluate("el => { el.style.visibility = 'hidden'; }")
        empty = pixels(page)
        block.evaluate("el => { el.style.visibility = ''; }")
        if (abs(full - pixels(page)) <= ROUNDING).all():
            break
    differs = (abs(full - empty) > ROUNDING).any(axis=2)
    top, left = max(0, int(box["y"])), max(0, int(box["x"]))
    differs[top : int(box["y"] + box["height"]) + 2, left : int(box["x"] + box["width"]) + 2] = (
        False
    )
    return int(differs.sum())


FACTS = [Fact(label="to", value="mallory@evil.example"), Fact(label="amount", value="9,999")]


def question(preview: list[Rich]) -> FormItem:
    """An approval with facts, and this preview above its buttons."""
    return FormItem(
        key="f", interrupt="i", call="", tool="pay", title="Run pay?", facts=FACTS, actions=APPROVE,
        approval=True, preview=preview,
    )  # fmt: skip


def output(shown: list[Rich]) -> CallItem:
    """A finished call with these outputs."""
    return CallItem(key="c", name="load", state="done", input=FACTS, outputs=shown, result="ok")


@pytest.fixture(scope="module")
def page(browser):
    """A card on a page of its own."""
    form = FormPage(browser, Form(dict))
    yield form
    form.close()


@pytest.mark.parametrize(
    "name", [*(pytest.param(one, marks=pytest.mark.variant) for one in TAGS), *WORST]
)
def test_a_preview_cannot_draw_outside_its_box(page, name):
    """A preview paints neither over the facts above it nor over the buttons below."""
    cases = WORST.get(name) or map(markup_of, TAGS[name])
    shown = [Rich(kind="html", data=rich.safe_html(case)) for case in cases]
    for piece in shown:
        page.show(question([piece]))
        block = page.page.locator(".nba-preview > .nba-view > *")
        assert painted_outside(page.page, block) == 0, piece.data[:300]


@pytest.mark.parametrize("name", WORST)
def test_output_of_a_tool_cannot_draw_outside_its_box(page, name):
    """In the live card and in the saved card."""
    other = page.page.context.new_page()
    for case in WORST[name]:
        view = page.show(output([Rich(kind="html", data=rich.safe_html(case))]), question([]))
        page.page.locator(".nba-call > summary").click()
        assert painted_outside(page.page, page.page.locator(".nba-outputs > *").first) == 0, case
        other.set_content(static.render(view))
        assert painted_outside(other, other.locator(".nba-outputs > *").first) == 0, case
    other.close()


def test_a_value_does_not_paint_over_its_neighbors(page):
    """A fact with stacked marks is clipped to its own lines."""
    item = question([]).model_copy(
        update={"facts": [Fact(label="a", value="1"), Fact(label=MARKS, value=MARKS), *FACTS]}
    )
    view = page.show(item.model_copy(update={"title": MARKS, "note": MARKS}))
    other = page.page.context.new_page()
    other.set_content(static.render(view))
    for where in (page.page, other):
        for block in ("dt:nth-of-type(2)", "dd:nth-of-type(2) > div", "h4.nba-title", ".nba-note"):
            assert painted_outside(where, where.locator(block).first) == 0, block
    other.close()


@pytest.mark.parametrize("width", [900, 380])
def test_a_long_value_keeps_the_table_of_questions_in_the_card(page, width):
    """A value without spaces is broken into lines, and does not cover the row's number."""
    page.page.set_viewport_size({"width": width, "height": 900})
    values = ["short", "x" * 300, "other"]
    asked = [
        question([]).model_copy(
            update={
                "key": f"q:{n}", "interrupt": f"i{n}", "call": f"0.c{n}", "group": "g", "facts": [],
                "input": [Fact(label="to", value=value), Fact(label="n", value=str(n))],
            }
        )
        for n, value in enumerate(values)
    ]  # fmt: skip
    page.show(*asked)
    table, card = (page.page.locator(one).bounding_box() for one in (".nba-calls", ".nba-group"))
    assert table["x"] + table["width"] <= card["x"] + card["width"]
    row = page.page.locator(".nba-calls > tbody > tr:not(.nba-under)").nth(1)
    number, value = row.locator("th").bounding_box(), row.locator(".nba-mono").first.bounding_box()
    apart = (
        number["x"] + number["width"] <= value["x"] or value["x"] + value["width"] <= number["x"]
    )
    assert apart
    page.page.set_viewport_size({"width": 900, "height": 900})
