"""The card on a page of its own, without Jupyter: tests send the kernel's messages, and read the page's answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route
from pydantic import BaseModel

from nbagent.forms.form import Error, Form
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.view.grids import add_code
from nbagent.notebook.wire import (
    Action,
    CardHead,
    FieldError,
    FormItem,
    Item,
    Snapshot,
    SubmissionReceipt,
    View,
)
from tests.browser.notebook_page import NotebookPage

PACKAGE = Path(__file__).parents[2] / "nbagent"
AXE = Path(
    os.environ.get("NBAGENT_AXE")
    or PACKAGE / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
)
HOST = "http://card.test/"
PAGE = """<!doctype html><html lang="en"><title>card</title>
<link rel="stylesheet" href="card.css"><body data-jp-theme-light="true"><button>before</button><div id="out"></div><button>after</button>
<script type="module">
import card from "./card.js";
let life = new AbortController();
window.mount = () => {
  life.abort();
  life = new AbortController();
  const { signal } = life;
  const heard = [];
  window.sent = [];
  window.kernel = (content) => heard.forEach((listener) => listener(content));
  const model = {
    get: () => ({}),
    on: (event, listener) => event === "msg:custom" && heard.push(listener),
    off: () => {},
    send: (content) => window.sent.push(structuredClone(content)),
  };
  const widget = card();
  widget.initialize({ model, signal, finder: () => import("./find.js") });
  widget.render({ model, el: document.getElementById("out"), signal });
};
window.mount();
window.ready = true;
</script>"""
TANGLES = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((el) => el.id);
  const names = ["for", "aria-describedby", "aria-labelledby", "aria-controls"];
  const refs = [...document.querySelectorAll("*")].flatMap((el) => names.flatMap(
    (name) => (el.getAttribute(name) ?? "").split(" ").filter(Boolean)));
  return {
    twice: ids.filter((id, at) => ids.indexOf(id) !== at),
    lost: refs.filter((id) => !document.getElementById(id)),
    jumps: [...document.querySelectorAll("[tabindex]:not([tabindex='-1'], [tabindex='0'])")].map(String),
  };
}"""
UNFIT = """(within) => {
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[-\\d.e]+(?![a-z])/g).map(Number);
    return [text.startsWith("rgb") ? [r, g, b].map((c) => c / 255) : [r, g, b], a];
  };
  const over = ([top, alpha], below) => top.map((c, at) => c * alpha + below[at] * (1 - alpha));
  const backOf = (el) => {
    if (!el) return [1, 1, 1];
    const [color, alpha] = parse(getComputedStyle(el).backgroundColor);
    return alpha === 1 ? color : over([color, alpha], backOf(el.parentElement));
  };
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const label_of = (el) => [...(el.labels ?? [])].find((label) => label.contains(el));
  const told = [];
  const all = [...document.querySelectorAll(within)].flatMap((card) => [...card.querySelectorAll(
    "button, input, select, textarea, summary, a[href], .nba-option")]);
  for (const el of all) {
    const box = el.getBoundingClientRect();
    const style = getComputedStyle(el);
    if (!box.width || style.visibility === "hidden" || style.pointerEvents === "none" || style.opacity < 1) continue;
    if (el.closest(".nba-sr") || el.matches("a, p *")) continue;
    const name = `${el.tagName} ${el.className} ${(el.getAttribute("aria-label") ?? el.textContent).slice(0, 40)}`;
    const label = label_of(el)?.getBoundingClientRect() ?? box;
    const grow = getComputedStyle(label_of(el) ?? el, "::after");
    const grown = grow.content === '""' && grow.position === "absolute" ? parseFloat(grow.height) : 0;
    const wide = Math.max(label.width, grown && parseFloat(grow.width));
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const isClose = all.some((other) => {
      const { left, right, top, bottom, width } = other.getBoundingClientRect();
      const far = Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
      const isClipped = other.closest(".nba-scroll") !== el.closest(".nba-scroll");
      return width && far < 12 && !isClipped && !other.contains(el) && !el.contains(other);
    });
    if ((Math.max(label.height, grown) < 23.5 || wide < 23.5) && isClose)
      told.push(`small ${Math.round(wide)} x ${Math.round(Math.max(label.height, grown))}: ${name}`);
    const drawn = el.matches(".nba-button, select, textarea, .nba-option")
      || (el.tagName === "INPUT" && !/radio|checkbox|range|file/.test(el.type));
    if (!drawn || el.matches(".nba-scroll > *")) continue;
    const page = backOf(el.parentElement);
    const edge = over(parse(style.borderTopColor), page);
    const best = Math.max(ratio(edge, page), ratio(backOf(el), page));
    if (parseFloat(style.borderTopWidth) && parse(style.borderTopColor)[1] && best < 3) told.push(`pale ${best.toFixed(2)}: ${name}`);
  }
  return told;
}"""
"""What is pressed but smaller than 24 pixels with something else as near, and controls whose outline has a contrast below 3:1."""
APPROVE = [
    Action(name="approve", label="Approve", changed_label="Approve with changes", primary=True),
    Action(name="reject", label="Reject…", reason=True),
]
SEND = [Action(name="submit", label="Send", primary=True)]


def need_axe() -> None:
    """Skip the test if axe-core is missing; fail the test in CI."""
    if not AXE.exists():
        told = pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip
        told("axe-core is missing: npm ci in nbagent/frontend")


def axe_finds(page: Page, within: str = ".nbagent") -> list[str]:
    """Problems that axe-core finds in these elements of a page, controls that are small, and pale outlines."""
    need_axe()
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "within => axe.run({ include: [within] }, { resultTypes: ['violations'] })", within
    )
    wrong = [
        f"{one['impact']} {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
    ]
    return [*wrong, *page.evaluate(UNFIT, within)]


def check_picture(notebook: NotebookPage, of: Locator, name: str, within: str = ".nbagent") -> None:
    """Take a picture of an element, and check that axe-core finds nothing wrong in these elements of the page."""
    notebook.shot(name, of=of)
    found = axe_finds(notebook.page, within)
    assert found == [], "\n".join(found)


def check_all_looks(
    notebook: NotebookPage, of: Locator, name: str, within: str = ".nbagent"
) -> None:
    """Check the pictures in the light, in the dark, wide and narrow."""
    check_picture(notebook, of, f"{name}-light", within)
    notebook.dark()
    check_picture(notebook, of, f"{name}-dark", within)
    notebook.style(".jp-OutputArea-child { max-width: 400px }")
    notebook.shot(f"{name}-dark-narrow", of=of)  # its colors and its layout are checked apart
    notebook.light()
    check_picture(notebook, of, f"{name}-narrow", within)
    notebook.style(".jp-OutputArea-child.jp-OutputArea-child { max-width: none }")


class FormPage:
    """One form in a card."""

    def __init__(
        self, browser: Browser, form: Form, *, dark: bool = False, width: int = 900
    ) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, locale="en-US", timezone_id="Europe/Berlin"
        )
        self.page: Page = context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.route(f"{HOST}**", _serve)
        self.page.goto(HOST)
        self.page.wait_for_function("window.ready")
        if dark:
            self.page.evaluate(
                "document.body.dataset.jpThemeLight = 'false';"
                "document.documentElement.style.colorScheme = 'dark'"
            )
        self._form = form
        self._asked = 0

    def ask_next(self, form: Form) -> FormPage:
        """Accept the last answer, and replace its question with another one."""
        for sent in self.answers()[-1:]:
            taken = {"submission": sent["submission"], "interrupt": sent["interrupt"]}
            self._tell(SubmissionReceipt(ok=True, **taken))
        self._form = form
        self.page.evaluate("window.sent.length = 0")
        return self.ask()

    def ask(self, *, approval: bool = False, title: str = "A question") -> FormPage:
        """Send the question."""
        number = self._asked + 1
        item = FormItem(
            key=f"f{number}",
            interrupt=f"i{number}",
            call="",
            tool="tool",
            title=title,
            spec=add_code(self._form.spec(), approval=approval),
            actions=APPROVE if approval else SEND,
            approval=approval,
        )
        self.show(item)
        return self

    def show(self, *items: Item) -> View:
        """Send a snapshot with only these items."""
        self._asked += 1
        head = CardHead(
            run="r", agent="agent", prompt="p", status="interrupted", status_text="", started_at=0
        )
        view = View(head=head, items=list(items))
        self._tell(Snapshot(seq=self._asked, view=view, now=0, texts=TEXTS))
        return view

    def refuse(self, answer: dict[str, Any], errors: list[Error]) -> None:
        """Send an answer back with its errors."""
        told = [FieldError(field=field, message=message) for field, _, message in errors]
        self._tell(
            SubmissionReceipt(
                submission=answer["submission"],
                interrupt=answer["interrupt"],
                ok=False,
                errors=told,
            )
        )

    def _tell(self, message: BaseModel) -> None:
        self.page.evaluate("content => window.kernel(content)", message.model_dump(mode="json"))

    def answers(self) -> list[dict[str, Any]]:
        """Answers that the page has sent so far."""
        sent = self.page.evaluate("window.sent")
        return [message for message in sent if message["type"] == "answer"]

    def open_all(self) -> None:
        """Unfold everything, add one of every kind of row, and pick every shape once."""
        self.page.evaluate("""() => {
          const all = (selector) => [...document.querySelectorAll(selector)];
          for (const fold of all(".nba-fold[aria-expanded=false]")) fold.click();
          for (const add of all(".nba-addbar > .nba-button:not([hidden])")) add.click();
          for (const shapes of all(".nba-shapes")) shapes.querySelector("input").click();
          for (const details of all(".nba-fields details")) details.open = true;
        }""")

    def violations(self) -> list[str]:
        """Problems of ``axe_finds`` in the card."""
        return axe_finds(self.page)

    def tangles(self) -> dict[str, list[str]]:
        """Duplicate ids, references to missing ids, and elements that change the Tab order."""
        return self.page.evaluate(TANGLES)

    def close(self) -> None:
        """Close the page."""
        self.page.context.close()


def _serve(route: Route) -> None:
    name = route.request.url.removeprefix(HOST)
    if name in ("card.js", "card.css", "find.js"):
        route.fulfill(path=PACKAGE / "static" / name)
    else:
        route.fulfill(body=PAGE if name == "" else "", content_type="text/html")
