"""The card on a page of its own, without Jupyter: what the kernel would send goes in, drafts come out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route

from nbagent.forms import Form
from nbagent.notebook.texts import TEXTS
from nbagent.notebook.wire import Action, FormItem, Head, Snapshot, View

PACKAGE = Path(__file__).parents[2] / "nbagent"
AXE = Path(
    os.environ.get("NBAGENT_AXE")
    or PACKAGE / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
)
HOST = "http://card.test/"
PAGE = """<!doctype html><html lang="en"><title>card</title>
<link rel="stylesheet" href="card.css"><body data-jp-theme-light="true"><div id="out"></div>
<script type="module">
import card from "./card.js";
const heard = [];
window.sent = [];
window.kernel = (content) => heard.forEach((listener) => listener(content));
const model = {
  get: () => ({}),
  on: (event, listener) => event === "msg:custom" && heard.push(listener),
  off: () => {},
  send: (content) => window.sent.push(structuredClone(content)),
};
const { signal } = new AbortController();
const widget = card();
widget.initialize({ model, signal });
widget.render({ model, el: document.getElementById("out"), signal });
window.ready = true;
</script>"""
APPROVE = [
    Action(name="approve", label="Approve", changed_label="Approve with changes", primary=True),
    Action(name="reject", label="Reject…", reason=True),
]
SEND = [Action(name="submit", label="Send", primary=True)]


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

    def ask(self, *, approval: bool = False, title: str = "A question") -> FormPage:
        """Send the question."""
        item = FormItem(
            key="f",
            interrupt="i",
            call="",
            tool="tool",
            title=title,
            spec=self._form.spec(),
            actions=APPROVE if approval else SEND,
            approval=approval,
        )
        head = Head(
            run="r", agent="agent", prompt="p", status="interrupted", status_text="", started_at=0
        )
        view = View(head=head, items=[item])
        message = Snapshot(seq=1, view=view, now=0, texts=TEXTS).model_dump(mode="json")
        self.page.evaluate("content => window.kernel(content)", message)
        return self

    def answers(self) -> list[dict[str, Any]]:
        """What was sent as answers so far."""
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
        """What axe-core finds wrong, worst first."""
        self.page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run('.nbagent')")["violations"]
        return [
            f"{one['impact']} {one['id']}: {json.dumps([n['html'][:200] for n in one['nodes'][:3]])}"
            for one in found
        ]

    def close(self) -> None:
        """Close the page."""
        self.page.context.close()


def _serve(route: Route) -> None:
    name = route.request.url.removeprefix(HOST)
    if name in ("card.js", "card.css"):
        route.fulfill(path=PACKAGE / "static" / name)
    else:
        route.fulfill(body=PAGE if name == "" else "", content_type="text/html")
