"""The part of the style sheet that a static card needs: a saved notebook holds one for every card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

_SHEET = Path(__file__).parents[2] / "static" / "card.css"
_CLASSES = re.compile(r'class="([^"]*)"')
_OUR_CLASS = re.compile(r"\.(nba-[\w-]+)")
_GROUP = re.compile(r"\([^()]*\)")
_KEYFRAMES = "@keyframes "


def used_by(html: str) -> str:
    """The rules that can match something in this HTML, in their order."""
    names = {name for found in _CLASSES.findall(html) for name in found.split()}
    return _kept(frozenset(names & _our_classes()))


@lru_cache(maxsize=64)
def _kept(names: frozenset[str]) -> str:
    text = "".join(_filtered(_sheet(), names))
    return "".join(
        f"{prelude}{{{body}}}"
        for prelude, body in _rules(text)
        if not prelude.startswith(_KEYFRAMES) or prelude.removeprefix(_KEYFRAMES) in _uses(text)
    )


def _filtered(sheet: str, names: frozenset[str]) -> Iterator[str]:
    for prelude, body in _rules(sheet):
        if prelude.startswith(_KEYFRAMES):
            yield f"{prelude}{{{body}}}"
        elif prelude.startswith("@"):
            inner = "".join(_filtered(body, names))
            if inner:
                yield f"{prelude}{{{inner}}}"
        elif selectors := [each for each in _selectors(prelude) if _can_match(each, names)]:
            yield f"{','.join(selectors)}{{{body}}}"


def _can_match(selector: str, names: frozenset[str]) -> bool:
    """Whether every class of ours that it needs is there; what stands in parentheses may not be needed."""
    while (outer := _GROUP.sub("", selector)) != selector:
        selector = outer
    return all(name in names for name in _OUR_CLASS.findall(selector))


def _uses(text: str) -> frozenset[str]:
    """The animations that rules name."""
    return frozenset(re.findall(r"animation:([\w-]+)", text))


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """Each rule as what stands before its braces and what stands in them."""
    depth = start = opened = 0
    for at, sign in enumerate(sheet):
        if sign == "{":
            depth += 1
            if depth == 1:
                opened = at
        elif sign == "}":
            depth -= 1
            if depth == 0:
                yield sheet[start:opened].strip(), sheet[opened + 1 : at]
                start = at + 1


def _selectors(prelude: str) -> Iterator[str]:
    """A rule's selectors: its parts between the commas that stand in no parentheses."""
    depth = start = 0
    for at, sign in enumerate(prelude):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            yield prelude[start:at]
            start = at + 1
    yield prelude[start:]


@cache
def _our_classes() -> frozenset[str]:
    return frozenset(_OUR_CLASS.findall(_sheet()))


@cache
def _sheet() -> str:
    """The whole sheet, as it may stand in a ``style`` element."""
    return _SHEET.read_text(encoding="utf-8").replace("</", "<\\/")
