"""The part of the style sheet that a static card needs: a saved notebook holds one for every card.

A page may hold many cards, drawn by several versions, in any order. So no card's rules meet another's: those of a static
card are for a class that is the hash of their own text, and the live sheet is for what is not static.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

_SHEET = Path(__file__).parents[2] / "static" / "card.css"
_CLASSES = re.compile(r'class="([^"]*)"')
_OUR_CLASS = re.compile(r"\.(nba-[\w-]+)")
_GROUP = re.compile(r"\([^()]*\)")
_KEYFRAMES = "@keyframes "
_ROOT = ".nbagent.nbagent"
"""What every selector of the sheet begins with, or has behind what it asks of the host."""
_ABOVE = "#nba"
"""No card has this id: that it is not there weighs more than any rule of a version that did not scope its own."""


def scoped(html: str) -> tuple[str, str]:
    """The class that a card with this HTML gets, and the rules that can match in it, for that class alone."""
    rules = used_by(html)
    name = f"nba-s{hashlib.sha256(rules.encode()).hexdigest()[:8]}"
    return name, _for(rules, f".{name}:not({_ABOVE})", name)


@cache
def live() -> str:
    """The whole sheet, for live cards alone."""
    sheet = _SHEET.read_text(encoding="utf-8")
    return _for(sheet, f".nbagent:not(.nba-static,{_ABOVE})", "nba-live")


def _for(rules: str, root: str, name: str) -> str:
    """The rules for this root alone; animations, whose names all of a page share, are called after it."""
    text = rules.replace(_ROOT, root)
    for each in re.findall(rf"{_KEYFRAMES}([\w-]+)", text):
        text = re.sub(rf"\b{each}\b", f"{each}-{name}", text)
    return text


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
