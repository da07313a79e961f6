"""Many cards on one page, live or saved by any version: each card looks as it does alone."""

from __future__ import annotations

import pytest

from nbagent.forms.form import Form
from nbagent.notebook.render import markdown, rich, static, styles
from nbagent.notebook.wire import (
    CallItem,
    CardHead,
    Fact,
    FormItem,
    MessageItem,
    NoticeItem,
    ReasoningItem,
    RecordItem,
    Rich,
    TextItem,
    View,
)
from tests.browser.form_page import APPROVE, FormPage

WIDE = "".join(f"<td>some wide column {n}</td>" for n in range(9))
TABLE = Rich(kind="html", data=rich.safe_html(f"<table><tr>{WIDE}</tr></table>"))
FACTS = [
    Fact(label="to", value="account 7"),
    Fact(label="note", value="a\nb", changed_from="a\nc", code=False),
]
PROSE = "# Heading\n\nSome text, `code`.\n\n- a\n- b\n\n> quoted\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"
FORM = FormItem(
    key="f", interrupt="i", call="", tool="pay", title="Pay?", note="Now", facts=FACTS,
    preview=[TABLE], actions=APPROVE, approval=True,
)  # fmt: skip
SCENES = {
    "text": [TextItem(key="t", blocks=[markdown.render(PROSE)])],
    "reasoning": [ReasoningItem(key="t", text="Hm. " * 30)],
    "table": [CallItem(key="c", name="look", state="done", outputs=[TABLE])],
    "call": [
        CallItem(key="c", name="look", brief="x=1", state="failed", input=FACTS, printed="a\n" * 20)
    ],
    "form": [FORM],
    "record": [RecordItem(key="r", title="Pay?", decision="approved", details=FACTS)],
    "notice": [NoticeItem(key="n", text="It waits. " * 20, tone="warn")],
    "message": [MessageItem(key="m", text="And hurry", note="will be sent after this turn")],
}
MEASURE = """(card) => {
  for (const fold of card.querySelectorAll("details")) fold.open = true;
  const { x, y } = card.getBoundingClientRect();
  const drawn = [...card.querySelectorAll("*")].filter((el) => el.getClientRects().length);
  return drawn.map((el) => {
    const box = el.getBoundingClientRect();
    const { color, font, margin, padding, display } = getComputedStyle(el);
    const place = [box.x - x, box.y - y, box.width, box.height].map((n) => Math.round(n * 10));
    return [el.tagName, String(el.className), ...place, color, font, margin, padding, display].join(" ");
  });
}"""

AT_REST = """card => Promise.allSettled(
  card.getAnimations({ subtree: true }).map((each) => (each.finish(), each.finished)))"""
"""Finishes animations: rows that are merged keep their space for a while."""


@pytest.fixture(scope="module")
def page(browser):
    """A live card on a page of its own."""
    form = FormPage(browser, Form(dict))
    sheet = "document.querySelector('link').outerHTML = `<style>${css}</style>`"
    form.page.evaluate(
        f"css => {{ {sheet} }}", styles.on_page().replace("&", styles.LIVE).replace("\\", "\\\\")
    )
    yield form
    form.close()


PLACE = "() => dispatchEvent(new Event('scroll'))"
"""Moves the sticky buttons of a long form at once; by themselves they move a moment later."""


def test_no_card_changes_another(browser, page):
    """In both orders, beside all others, old cards whose styles apply to every card on the page, and a live card."""
    saved = {name: static.render(_view(items)) for name, items in SCENES.items()}
    before = {name: _unscoped(items) for name, items in SCENES.items()}
    other = browser.new_page(viewport={"width": 820, "height": 600})

    def measured(*cards: str) -> list[list[str]]:
        other.set_content("".join(f"<div>{card}</div>" for card in cards))
        return [card.evaluate(MEASURE) for card in other.locator(".nbagent").all()]

    alone = {name: measured(card)[0] for name, card in saved.items()}
    cards, names = list(saved.values()), list(saved)
    first = measured(*cards, *before.values())[: len(cards)]
    last = measured(*before.values(), *reversed(cards))[: -len(cards) - 1 : -1]
    for drawn in (first, last):
        assert dict(zip(names, drawn, strict=True)) == alone
    other.close()
    for name, items in SCENES.items():
        page.show(*items, FORM)
        live = page.page.locator("#out .nbagent")
        live.evaluate(AT_REST)
        page.page.evaluate(PLACE)
        drawn = live.evaluate(MEASURE)
        for cards in (saved, before):
            page.page.evaluate(
                """html => {
                  document.querySelector("#saved")?.remove();
                  document.body.insertAdjacentHTML("beforeend", `<div id="saved">${html}</div>`);
                }""",
                "".join(cards.values()),
            )
            page.page.evaluate(PLACE)
            assert live.evaluate(MEASURE) == drawn, name


def _view(items) -> View:
    head = CardHead(
        run="r", agent="a", prompt="p", started_at=0.0, status="completed", status_text="done"
    )
    return View(head=head, items=items)


def _unscoped(items) -> str:
    """The card as an old version drew it, whose styles apply to every card on the page."""
    card = static.render(_view(items), style=False)
    return f"<style>{styles.used_by(card)}</style>{card}"
