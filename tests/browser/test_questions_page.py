"""Questions in Chromium: drafts stay, answering keeps the scroll position, and no typed text is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from pydantic import BaseModel, Field

from nbagent.forms.form import Form
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import (
    Action,
    Fact,
    FormItem,
    RecordItem,
    Remember,
    Rich,
    SubmissionReceipt,
    TextItem,
)
from tests.browser.form_page import APPROVE, SEND, FormPage
from tests.browser.notebook_page import keep_picture


class Bill(BaseModel):
    """What is paid."""

    to: str
    amount: float


class Order(BaseModel):
    """A form with a list, a number and an optional text."""

    names: list[str]
    price: float
    note: str | None = None


class Long(BaseModel):
    """A form that is longer than a window."""

    one: str = Field(json_schema_extra={"format": "textarea"})
    lines: list[str] = []


NAMES = ("Ada", "Bob", "Cid", "Dee", "Eve")
ANSWER = Action(
    name="answer",
    label="Answer instead…",
    menu=True,
    help=TEXTS["answer_instead_help"].format(tool="pay"),
)
RULES = [
    Remember(
        id=id_,
        label=TEXTS[f"remember_{id_}"].format(tool="pay"),
        help=TEXTS[f"remember_{id_}_help"].format(tool="pay"),
    )
    for id_ in ("tool_in_run", "tool")
]


def question(number: int, **more: Any) -> FormItem:
    """A call that waits for approval."""
    form = Form(Bill, value={"to": NAMES[number - 1], "amount": number * 10})
    known = {
        "key": f"q:{number}",
        "interrupt": str(number),
        "call": f"c{number}",
        "tool": "pay",
        "title": "Pay it?",
        "spec": form.spec(),
        "actions": APPROVE,
        "approval": True,
    }
    return FormItem(**(known | more))


def alike(number: int) -> FormItem:
    """One of several questions in a table."""
    facts = [Fact(label="to", value=NAMES[number - 1]), Fact(label="amount", value=f"{number}0")]
    return question(number, group="g", input=facts)


def record(number: int) -> RecordItem:
    """The record of a question."""
    return RecordItem(key=f"a:{number}", title="pay", decision="approved", tone="good", after=3.0)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., FormPage]]:
    """``opened(form, **options)`` opens a page, which is closed at the end."""
    pages: list[FormPage] = []

    def make(form: Form, **options: Any) -> FormPage:
        pages.append(FormPage(browser, form, **options))
        return pages[-1]

    yield make
    for page in pages:
        assert page.errors == []
        page.close()


def accept(page: FormPage) -> None:
    """Accept the last answer."""
    answer = page.answers()[-1]
    page._tell(
        SubmissionReceipt(submission=answer["submission"], interrupt=answer["interrupt"], ok=True)
    )


def shot(page: Page, name: str) -> None:
    """Take a picture of the card."""
    keep_picture(page.locator(".nbagent"), f"questions-{name}")


def button(page: Page, name: str) -> Any:
    """The button with exactly this name."""
    return page.get_by_role("button", name=name, exact=True)


def test_c210_approve_all_skips_questions_with_unsent_edits(opened):
    """An unsent rejection and an edit with an error are not approved, and the button says so."""
    made = opened(Form(Bill))
    page = made.page
    made.show(*(alike(number) for number in range(1, 6)))
    rows = page.locator("table.nba-calls > tbody > tr:not(.nba-under)")
    under = page.locator("tr.nba-under")
    rows.nth(1).get_by_role("button", name="Reject").press("Enter")
    under.nth(1).get_by_label("Reason (the agent").fill("not Bob")
    rows.nth(3).get_by_role("button", name="Open").click()
    under.nth(3).get_by_label("Amount", exact=True).fill("12,5")
    under.nth(3).get_by_label("Amount", exact=True).press("Tab")
    every = page.locator(".nba-group > form.nba-form .nba-go")
    told = "Approve 3 of 5: 1 has an error, 1 has an unsent rejection"
    expect(every).to_have_text(told)
    shot(page, "all-but-two")
    every.press("Enter")
    assert [one["interrupt"] for one in made.answers()] == ["1", "3", "5"]
    expect(under.nth(1).get_by_label("Reason (the agent")).to_have_value("not Bob")

    under.nth(1).get_by_label("Reason (the agent").press("Enter")
    assert [(one["action"], one["reason"]) for one in made.answers()[3:]] == [("reject", "not Bob")]
    under.nth(3).get_by_label("Amount", exact=True).fill("12.5")
    expect(under.nth(3).locator(".nba-err:visible")).to_have_count(0)
    expect(every).to_contain_text("Approve 4 of 5, 1 with changes")


def test_c211_the_row_after_an_answer_takes_the_place_of_the_button(opened):
    """The record stays in view; the focus goes to the next question, or else to the record."""
    made = opened(Form(Bill))
    page = made.page
    page.evaluate("document.body.style.paddingBlock = '900px'")
    long = "\n".join(f"line {n}" for n in range(60))
    facts = [Fact(label="text", value=long, code=True)]
    made.show(question(1, facts=facts), question(2, title="And this?"))
    if button(page, "Show all 60 lines").count():
        button(page, "Show all 60 lines").click()
    approve = button(page, "Approve").first
    approve.focus()
    before = approve.bounding_box()["y"]
    approve.press("Enter")
    accept(made)
    made.show(record(1), question(2, title="And this?"))
    place = page.locator(".nba-record").bounding_box()["y"]
    # The record may be higher, so that the next question is in view with its buttons.
    send = button(page, "Approve").first.bounding_box()
    assert send["y"] + send["height"] <= 900, "the next question's buttons are below the edge"
    assert 0 <= place <= before + 24, "the record jumped away from where the button was"
    expect(page.get_by_role("heading", name="And this?")).to_be_focused()

    approve = button(page, "Approve").first
    approve.focus()
    approve.press("Enter")
    accept(made)
    made.show(record(1), record(2))
    expect(page.locator(".nba-record").nth(1)).to_be_focused()
    shot(page, "record-in-focus")


@pytest.mark.parametrize("width", [400, 900])
@pytest.mark.parametrize("late", [False, True])
def test_c846_after_a_tall_answer_the_next_tall_question_is_in_view_with_its_send(
    opened, width, late
):
    """Also where the next question of the tool comes only after the answer's tall row is drawn."""
    made = opened(Form(Bill), width=width)
    page = made.page
    page.evaluate("document.body.style.paddingBlock = '900px'")
    spec = Form(list[str], value=["one"] * 14).spec()  # a control on each line: no room above it
    tall = {"actions": SEND, "approval": False, "spec": spec}
    answer = TextItem(key="t", blocks=["<p>It is sent.</p>" * 40])
    made.show(question(1, **tall))
    button(page, "Send").press("Enter")
    accept(made)
    if late:
        made.show(record(1), answer)
    made.show(record(1), answer, question(2, title="And this?", **tall))
    form = page.locator("form.nba-form")
    expect(form.get_by_role("heading", name="And this?")).to_be_visible()
    assert 600 < form.bounding_box()["height"] < 880, "the test's question is not tall"
    expect(button(page, "Send")).to_be_in_viewport(ratio=1)
    expect(form).to_be_in_viewport(ratio=0.99)


@pytest.mark.parametrize("width", [400, 900])
def test_c850_a_menu_leaves_stop_free(opened, width):
    """The menu of further ways to answer is beside Stop, or above its button where the card is narrow."""
    made = opened(Form(Bill), width=width)
    page = made.page
    made.show(question(1, actions=[*APPROVE, ANSWER], remember=RULES))
    page.evaluate("document.body.style.paddingTop = '300px'")
    button(page, "More ways to approve").click()
    menu = page.get_by_role("menu", name="More ways to approve").bounding_box()
    stop = button(page, "Stop")
    free = stop.bounding_box()
    assert menu["y"] + menu["height"] <= free["y"] or menu["x"] + menu["width"] <= free["x"]
    keep_picture(page, f"questions-menu-{width}")
    stop.click()
    assert [one["type"] for one in page.evaluate("sent")][-1] == "stop"


def test_c884_the_menu_describes_each_entry_and_supports_arrow_keys(opened):
    """The menu has roles, a line for each entry, and supports arrows, End and Escape; it moves nothing."""
    made = opened(Form(Bill))
    page = made.page
    made.show(question(1, actions=[*APPROVE, ANSWER], remember=RULES))
    more = button(page, "More ways to approve")
    height = page.locator(".nbagent").bounding_box()["height"]
    more.press("Enter")
    menu = page.get_by_role("menu", name="More ways to approve")
    assert page.locator(".nbagent").bounding_box()["height"] == height, "the menu floats"
    entries = menu.get_by_role("menuitem")
    expect(entries).to_have_count(3)
    expect(entries.nth(0)).to_be_focused()
    expect(entries.nth(0).locator("small")).to_contain_text("does not run")
    shot(page, "menu")
    page.keyboard.press("ArrowDown")
    expect(entries.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(entries.nth(2)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(entries.nth(0)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(entries.nth(2)).to_be_focused()
    assert made.violations() == []
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(more).to_be_focused()
    more.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert [(one["action"], one["remember"]) for one in made.answers()] == [("approve", "tool")]
    made.show(question(2, actions=APPROVE, remember=RULES))
    button(page, "More ways to approve").click()
    page.get_by_role("heading", name="Pay it?").click()
    expect(menu).to_be_hidden()


def test_c791_a_refusal_is_sent_by_enter_and_its_button_is_filled_also_in_forced_colors(opened):
    """Shift+Enter adds a line to the reason."""
    made = opened(Form(Bill))
    page = made.page
    made.show(question(1))
    button(page, "Reject…").press("Enter")
    page.get_by_label("Reason (the agent").fill("too much")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("by far")
    final = button(page, "Reject")
    page.emulate_media(forced_colors="active")
    filled, plain = (
        button(page, name).evaluate("el => getComputedStyle(el).backgroundColor")
        for name in ("Reject", "Back")
    )
    assert filled != plain, "with forced colors, the main button looks like the others"
    page.emulate_media(forced_colors="none", contrast="more")
    assert made.violations() == []
    page.emulate_media(contrast="no-preference", media="print")
    expect(page.locator(".nba-form .nba-title")).to_be_visible()
    expect(page.locator("button:visible", has_text=re.compile("Stop|Copy|Approve"))).to_have_count(
        0
    )
    page.emulate_media(media="screen")
    ground = final.evaluate("el => getComputedStyle(el).backgroundColor")
    assert len(set(re.findall(r"[\d.]+", ground)[:3])) == 1, "a refusal is red"
    shot(page, "reject")
    page.keyboard.press("Enter")
    assert [one["reason"] for one in made.answers()] == ["too much\nby far"]


def test_c214_a_failed_preview_is_red_and_approve_is_no_longer_the_main_button(opened):
    """A preview has a heading and a limited height."""
    made = opened(Form(Bill))
    page = made.page
    table = "<table>" + "".join(f"<tr><td>row {n}</td></tr>" for n in range(80)) + "</table>"
    rich = [Rich(kind="html", data=table)]
    made.show(question(1, preview=rich))
    expect(page.get_by_role("group", name="Preview")).to_be_visible()
    made.show(question(3, preview=rich, spec=None, facts=[Fact(label="code", value="a = 1")]))
    expect(page.get_by_role("group", name="Effects")).to_be_visible()
    made.show(question(1, preview=rich))
    assert page.locator(".nba-view").bounding_box()["height"] <= 321
    inviting = button(page, "Approve").evaluate("el => getComputedStyle(el).backgroundColor")
    shot(page, "preview")
    assert made.violations() == []
    made.show(question(1, preview_error=TEXTS["preview_failed"].format(error="KeyError: 'x'")))
    told = page.locator(".nba-preview .nba-err")
    expect(told).to_contain_text("KeyError")
    assert told.evaluate("el => getComputedStyle(el).color") == "rgb(198, 40, 40)"
    calm = button(page, "Approve").evaluate("el => getComputedStyle(el).backgroundColor")
    assert calm != inviting
    shot(page, "preview-failed")
    made.show(question(1, preview_note=TEXTS["preview_waits"]))
    expect(page.locator(".nba-preview .nba-help")).to_be_visible()
    expect(page.locator(".nba-preview .nba-err")).to_have_count(0)


@pytest.mark.parametrize("width", [400, 900])
def test_the_buttons_of_a_long_form_stay_in_view(opened, width):
    """The Approve button is in view without scrolling."""
    made = opened(Form(Long), width=width)
    page = made.page
    facts = [Fact(label=f"fact {n}", value="something to read") for n in range(70)]
    made.show(question(1, facts=facts))
    approve = button(page, "Approve")
    expect(approve).to_be_in_viewport()
    keep_picture(page, f"questions-long-{width}")


def test_enter_in_a_list_blocks_nothing_and_a_wrong_number_shows_its_error_at_once(opened):
    """An empty row is ignored; a comma in a number shows its error at the field; "no value" is close to its field."""
    form = Form(Order)
    made = opened(form)
    page = made.page
    made.ask(title="What to order?")
    button(page, "Add: Names").click()
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    price = page.get_by_label("Price", exact=True)
    price.fill("12,5")
    price.press("Tab")
    expect(page.locator(".nba-err:visible")).to_have_text(TEXTS["not_num_comma"])
    expect(price).to_have_attribute("aria-invalid", "true")
    note, none = page.get_by_label("Note", exact=True), page.get_by_label("Note: no value")
    inner, box = note.bounding_box(), none.bounding_box()
    assert 0 <= box["y"] - inner["y"] - inner["height"] < 12
    assert abs(box["x"] - inner["x"]) < 12
    shot(page, "list")
    button(page, "Send").press("Enter")
    assert made.answers() == []
    price.fill("12.5")
    expect(page.locator(".nba-err:visible")).to_have_count(0)
    button(page, "Send").press("Enter")
    submission = form.submit(made.answers()[0]["drafts"])
    assert submission.ok, submission.errors
    assert submission.document == {"names": ["one", "two"], "price": 12.5}


def test_c213_typed_text_is_not_lost_when_another_person_answers(opened):
    """Unsent fields and reasons are shown below until they are dismissed."""
    made = opened(Form(Bill))
    page = made.page
    made.show(question(1), question(2))
    page.get_by_label("Amount").first.fill("17")
    button(page, "Reject…").nth(1).press("Enter")
    page.locator(".nba-reason textarea:visible").fill("because of the")
    made.show(record(1), record(2))
    notes = page.locator(".nba-unsent")
    expect(notes).to_have_count(2)
    expect(notes.nth(0)).to_contain_text("17")
    expect(notes.nth(1)).to_contain_text("because of the")
    shot(page, "unsent")
    assert made.violations() == []
    button(page, "Dismiss").first.click()
    expect(notes).to_have_count(1)


def test_sent_text_is_not_reported_as_lost(opened):
    """An edit that was approved on this page is not unsent."""
    made = opened(Form(Bill))
    page = made.page
    made.show(question(1))
    page.get_by_label("Amount").fill("17")
    button(page, "Approve with changes").press("Enter")
    accept(made)
    made.show(record(1))
    expect(page.locator(".nba-record")).to_be_focused()
    expect(page.locator(".nba-unsent")).to_have_count(0)


def test_an_edit_is_a_difference_of_lines_and_words(opened):
    """Changed lines are blocks, and the changed words are marked inside them."""
    made = opened(Form(Bill))
    page = made.page
    before = "Dear Ada,\n\nyour bill of 10 EUR is due.\nPlease pay it soon.\n\nBest\nBob"
    after = before.replace("10 EUR is", "25 EUR was").replace("soon", "today")
    details = [
        Fact(label="text", value=after, changed_from=before, code=True),
        Fact(label="to", value="ada@example.org", changed_from="ada@example.com", code=True),
    ]
    made.show(record(1).model_copy(update={"details": details}))
    page.locator(".nba-record summary").click()
    marked = page.locator(".nba-record ins > b")
    expect(marked).to_have_text(["25", "was", "today", "org"])
    one = page.locator(".nba-record ins").first.bounding_box()
    two = page.locator(".nba-record ins").nth(1).bounding_box()
    assert two["y"] >= one["y"] + one["height"] - 1
    shot(page, "diff")
    made.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    made.page.evaluate("document.documentElement.style.colorScheme = 'dark'")
    shot(page, "diff-dark")
