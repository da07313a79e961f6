"""A person with a keyboard and no pointer, who fills any form from the first control to the last."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page

from nbagent.forms.nodes import Choice, Const, Leaf, Map, Node, Object, Parts, Rows, Union
from nbagent.forms.values import ABSENT, Json, is_number, same
from nbagent.notebook.texts import TEXTS

FOCUSED = """() => {
  const el = document.activeElement;
  if (!el?.closest(".nbagent")) return null;
  window.seen ??= new Set();
  const before = [...window.seen].at(-1);
  const back = before?.isConnected && !before.contains(el)
    && before.compareDocumentPosition(el) & Node.DOCUMENT_POSITION_PRECEDING;
  window.seen.delete(el);
  window.seen.add(el);
  const ids = (node, name) => (node.getAttribute(name) ?? "").split(" ").filter(Boolean);
  const all = (node, name) => ids(node, name).map((id) => document.getElementById(id));
  const said = (node) => node.getAttribute("aria-label")
    ?? (all(node, "aria-labelledby")[0] ?? node.labels?.[0] ?? node)?.innerText.trim() ?? "";
  const legend = (box) => box.querySelector(":scope > legend")?.innerText.trim() ?? said(box);
  const group = el.matches("[type=radio], [type=checkbox]")
    ? el.closest(".nba-options, .nba-shapes")?.closest("fieldset, [role=radiogroup]") : null;
  const wrong = all(el, "aria-describedby").filter((one) => one.matches(".nba-err"));
  return {
    name: (el.closest(".nba-errors") ? "to: " : "") + (group ? legend(group) : said(el)),
    option: group ? said(el) : "",
    type: el.type,
    closed: el.matches("[aria-expanded=false]"),
    back: Boolean(back),
    // innerText is empty until the page has drawn it
    error: wrong.map((one) => (one.hidden ? "" : one.textContent)).join(" "),
    text: ["text", "textarea"].includes(el.type) ? el.value : "",
  };
}"""
MISSED = """() => {
  const radio = (el) => el.type === "radio"
    && [...window.seen].some((one) => one.name === el.name && one.type === "radio");
  const all = document.querySelectorAll("button, input, select, textarea, summary, a[href]");
  return [...all].filter((el) => el.checkVisibility() && el.closest(".nbagent")
    && !window.seen.has(el) && !radio(el) && !el.matches(".nba-mark *, .nba-fold"))
    .map((el) => el.outerHTML.slice(0, 200));
}"""
SAMPLES = {
    "email": "a.d@jk.org",
    "uri": "https://abd.org/jk?x=00",
    "date": "2026-07-01",
}
ROWS = 2
MANY = 12


class Typist:
    """Fills fields by Tab, arrows, Space, Enter and typing alone, and returns the intended values."""

    def __init__(self, page: Page) -> None:
        self.errors: dict[str, str] = {}
        """The error that described each control when the control was reached, by the node's id."""
        self._page = page
        self._count = 0
        self._at: dict[str, Any] | None = None
        page.evaluate("window.seen = undefined")

    def press(self, *keys: str) -> None:
        """Press keys one after the other; Enter may move the focus."""
        for key in keys:
            self._page.keyboard.press(key)
        if "Enter" in keys:
            self._look()

    def here(self) -> dict[str, Any]:
        """The focused control: its ``name``, ``type``, ``error``, and ``back`` if it precedes the last control."""
        self._look()
        return self._at or {"name": None}

    def tab(self, key: str = "Tab") -> str | None:
        """Go to the next control, which must be further down; return its name, or None outside of the card."""
        self._page.keyboard.press(key)
        self._look()
        if self._at is None:
            return None
        assert key != "Tab" or not self._at["back"], f"Tab went back to {self._at}"
        return str(self._at["name"])

    def _look(self) -> None:
        self._at = self._page.evaluate(FOCUSED)

    def enter(self) -> None:
        """Go back out of the card, and from there to its first control."""
        while self.tab("Shift+Tab") is not None:
            pass
        self._page.evaluate("window.seen = undefined")
        for _ in range(3):
            if self.tab() is not None:
                return
        pytest.fail("Tab does not lead into the card")

    def leave(self) -> list[str]:
        """Leave the card by Tab; return the names of the controls from here on."""
        assert self._at is not None
        names = [str(self._at["name"])]
        while (name := self.tab()) is not None:
            names.append(name)
            assert len(names) < 100, f"no way out: {names[-5:]}"
        return names

    def missed(self) -> list[str]:
        """Visible controls that Tab never reached, except offers to undo or fold what was filled."""
        found = self._page.evaluate(MISSED)
        return [str(each) for each in found]

    def fill(self, node: Node, name: str = "", *, depth: int = 0) -> Json:
        """Fill a field and its children; return the intended document."""
        name = name or node.label
        match node:
            case Const():
                return node.const
            case Leaf(kind="bool"):
                return self._truth(node, name, depth)
            case Leaf():
                return self._typed(node, name)
            case Choice():
                return self._several(node, name) if node.kind == "multi" else self._one(node, name)
            case _:
                return self._inside(node, name, depth)

    def _inside(self, node: Node, name: str, depth: int) -> Json:
        match node:
            case Object():
                return self._fields(node, depth)
            case Rows():
                return self._rows(node, name, depth)
            case Map():
                return self._map(node, name, depth)
            case Parts():
                return [self.fill(each, depth=depth + 1) for each in node.parts]
            case Union():
                return self._union(node, name, depth)
            case _:
                raise NotImplementedError(node.kind)

    def _fields(self, node: Object, depth: int) -> Json:
        return {each.key: self.fill(each, depth=depth + 1) for each in node.fields if answers(each)}

    def go_to(self, name: str, option: str = "") -> None:
        """Press Tab until the control with this name has the focus."""
        passed: list[str] = []
        while (
            self._at is None or self._at["name"] != name or option not in ("", self._at["option"])
        ):
            if self._at and self._at["closed"]:
                self.press("Enter")
            passed.append(self.tab() or "")
            assert len(passed) < 60, f"{name!r} is not on the way: {passed}"

    def type(self, text: str) -> None:
        """Replace the text in the focused control."""
        assert self._at is not None
        if self._at["text"]:
            self.press("Control+A")
        if self._at["type"] == "date":
            year, month, day = text.split("-")
            text = month + day + year
        self._page.keyboard.type(text)

    def _reach(self, node: Node, name: str, option: str = "") -> None:
        self.go_to(name, option)
        assert self._at is not None
        self.errors.setdefault(node.id, self._at["error"])

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _typed(self, node: Leaf, name: str) -> Json:
        value, text = self._sample(node)
        self._reach(node, name)
        self.type(text)
        return value

    def _sample(self, node: Leaf) -> tuple[Json, str]:
        n = self._next()
        low, high = node.limits.get("minimum"), node.limits.get("maximum")
        match node.kind:
            case "int" | "num":
                least = low if is_number(low) else n
                number = high if is_number(high) else max(least, n)
                whole = node.kind == "int" or number == high
                return (number, str(number)) if whole else (number + 0.5, str(number + 0.5))
            case "json":
                return {"j": [n, None]}, json.dumps({"j": [n, None]})
            case "text" if node.format in SAMPLES:
                return SAMPLES[node.format], SAMPLES[node.format]
            case "text":
                return f"jk-{n}", f"jk-{n}"
            case _:
                raise NotImplementedError(node.kind)

    def _truth(self, node: Leaf, name: str, depth: int) -> Json:
        self._reach(node, name)
        if isinstance(node.shows, bool) and not node.nullable and depth > 0:
            self.press("Space")
            return not node.shows
        yes = self._next() % 2 == 0
        self._pick([TEXTS["yes"], TEXTS["no"]], 0 if yes else 1)
        return yes

    def _pick(self, labels: list[str], wanted: int) -> None:
        """Check a radio of the focused group, from whichever radio Tab reached."""
        assert self._at is not None
        steps = wanted - labels.index(self._at["option"])
        self.press(*(["ArrowDown" if steps > 0 else "ArrowUp"] * abs(steps) or ["Space"]))

    def _one(self, node: Choice, name: str) -> Json:
        last = len(node.options) - 1
        start = self._place(node, node.shows)
        wanted = last if start != last else 0
        if len(node.options) > MANY:
            return self._filtered(node, wanted)
        self._reach(node, name)
        self._choose([option.label for option in node.options], wanted)
        return node.options[wanted].value

    def _choose(self, labels: list[str], wanted: int) -> None:
        """Pick an option of the focused list or radios."""
        assert self._at is not None
        if self._at["type"] == "radio":
            self._pick(labels, wanted)
            return
        self.press("Home", *["ArrowDown"] * (wanted + 1))

    def _filtered(self, node: Choice, wanted: int) -> Json:
        self._reach(node, TEXTS["filter"])
        self.type(node.options[wanted].label)
        self.tab()
        self.press("Space")
        return node.options[wanted].value

    def _several(self, node: Choice, name: str) -> Json:
        shown = node.shows if isinstance(node.shows, list) else []
        before = {self._place(node, value) for value in shown}
        most = node.limits.get("maxItems")
        room = int(most) if is_number(most) else len(node.options)
        wanted = {0, len(node.options) - 1} if room > 1 else {len(node.options) - 1}
        for index in sorted(before ^ wanted, key=lambda index: index or 0):
            self._reach(node, name, node.options[index or 0].label)
            self.press("Space")
        return [node.options[index].value for index in sorted(wanted)]

    def _place(self, node: Choice, value: Json) -> int | None:
        options = enumerate(node.options)
        found = (index for index, option in options if same(option.value, value))
        return next(found, None) if value is not ABSENT else None

    def _rows(self, node: Rows, name: str, depth: int) -> Json:
        values = list(node.shows) if isinstance(node.shows, list) else []
        most = node.limits.get("maxItems")
        room = int(most) if is_number(most) else ROWS
        for _ in range(min(ROWS, room)):
            self._reach(node, f"{TEXTS['add']}: {name}")
            self.press("Enter")
            values.append(self._row(node, name, len(values) + 1, depth))
        return values

    def _row(self, node: Rows, name: str, n: int, depth: int) -> Json:
        item = node.item
        if node.kind == "table" and isinstance(item, Object):
            return {
                each.key: self.fill(
                    each, TEXTS["row_of"].format(name=each.label, n=n), depth=depth + 2
                )
                for each in item.fields
            }
        plain = isinstance(item, Leaf | Choice)
        called = TEXTS["row_of" if plain else "row"].format(name=name, n=n)
        return self.fill(item, called, depth=depth + 1)

    def _map(self, node: Map, name: str, depth: int) -> Json:
        self._reach(node, f"{TEXTS['add']}: {name}")
        self.press("Enter")
        self._reach(node, TEXTS["name_of"].format(n=1))
        key = f"j{self._next()}"
        self.type(key)
        return {key: self.fill(node.item, key, depth=depth + 1)}

    def _union(self, node: Union, name: str, depth: int) -> Json:
        index = self._next() % len(node.branches)
        branch = node.branches[index]
        self._reach(node, TEXTS["shape_of"].format(name=name))
        self._choose([each.label for each in node.branches], index)
        return self.fill(branch.node, f"{name}: {branch.label}", depth=depth + 1)


def answers(node: Node) -> bool:
    """Whether a field has an answer: optional constants and empty objects have none."""
    nothing = isinstance(node, Const) and not node.always
    empty = isinstance(node, Object) and not node.fields and node.more is None
    return node.required or not (nothing or empty)
