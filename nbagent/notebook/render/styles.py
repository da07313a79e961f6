"""The part of the style sheet that a static card needs; in a saved notebook, every card has its own part.

A page may contain cards of several versions of nbagent, in any order. Therefore one card's rules never apply to another
card. The rules of a static card apply to one class, named by the hash of the rules. The live sheet applies only to
cards that are not static.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from nbagent.notebook.wire import Piece

from .shorthand import common_start

_SHEET = Path(__file__).parents[2] / "static" / "card.css"
_CLASSES = re.compile(r'class="([^"]*)"')
_TAG = re.compile(r"<(\w+)")
_NAME = re.compile(r"\.?[a-zA-Z][\w-]*")
"""A class or an element in a selector, after the content of parentheses and brackets is removed."""
_NO_NAME = re.compile(r"\[[^]]*]|::?[\w-]+")
_GROUP = re.compile(r"(:[\w-]+)\(([^()]*)\)")
_VARIABLE = re.compile(r"(--nba-[\w-]+):([^;}]*);?")
_USED = re.compile(r"var\((--nba-[\w-]+)")
_NOWHERE = ".nba-nowhere"
"""A class that no element has."""
_KEYFRAMES = "@keyframes "
_STYLES = re.compile("(<style>.*?</style>)", re.DOTALL)
_ROOT = ".nbagent.nbagent"
"""The start of every selector of the sheet; only conditions on the host may precede this start."""
_ABOVE = "#nba"
"""An id that no card has. ``:not`` of this id outranks the rules of old versions, which did not scope their rules."""
LIVE = f".nbagent:not(.nba-static,{_ABOVE})"
"""The root selector of live cards; ``frontend/loader.js`` has the same selector."""
MIN_REFERENCE_LENGTH = 20
"""The minimum length of a text that is replaced by a reference, if the page has the text already."""


def scoped(html: str) -> tuple[str, str]:
    """The class for a card with this HTML, and the rules that can match in the card, limited to that class."""
    rules = used_by(html)
    name = f"nba-s{hashlib.sha256(rules.encode()).hexdigest()[:8]}"
    inside, keyframes = "", ""  # keyframes cannot be nested
    for prelude, body in _rules(_own_animations(rules, name)):
        if prelude.startswith(_KEYFRAMES):
            keyframes += f"{prelude}{{{body}}}"
        else:
            inside += f"{prelude}{{{body}}}"
    return name, f".{name}:not({_ABOVE}){{{inside.replace(_ROOT, '&')}}}{keyframes}"


@cache
def on_page() -> str:
    """The whole sheet with ``&`` as the root, as a page has it: for live cards, and for the rules of saved cards."""
    sheet = _SHEET.read_text(encoding="utf-8")
    assert "&" not in sheet  # & means only the root
    return _own_animations(sheet.replace(_ROOT, "&"), "nba-live")


def in_pieces(html: str) -> list[Piece]:
    """The HTML of cards in pieces, for a page that has the sheet: rules are replaced by ranges of the sheet."""
    parts = _STYLES.split(html)
    return [
        piece for at, part in enumerate(parts) for piece in (_found(part) if at % 2 else [part])
    ]


@lru_cache(maxsize=64)
def _found(rules: str) -> list[Piece]:
    """The rules as ranges of the sheet, and the text between; the search for a range starts after the previous one."""
    sheet, pieces, at, end, done = on_page(), list[Piece](), 0, 0, 0
    while at < len(rules):
        wanted = rules[at : at + MIN_REFERENCE_LENGTH]
        start = sheet.find(wanted, end)
        start = sheet.find(wanted) if start < 0 else start
        if start < 0 or len(wanted) < MIN_REFERENCE_LENGTH:
            at += 1
            continue
        length = common_start(rules[at:], sheet[start:])
        pieces += [rules[done:at], (start, start + length)]
        at = done = at + length
        end = start + length
    return [piece for piece in (*pieces, rules[done:]) if piece]


def _own_animations(text: str, name: str) -> str:
    """The text with the card's name in animation names, because all cards of a page share animation names."""
    for each in re.findall(rf"{_KEYFRAMES}([\w-]+)", text):
        text = re.sub(rf"\b{each}\b", f"{each}-{name}", text)
    return text


def used_by(html: str) -> str:
    """The rules that can match something in this HTML, in their order."""
    classes = {f".{name}" for found in _CLASSES.findall(html) for name in found.split()}
    tags = set(_TAG.findall(html))
    if any(re.fullmatch("h[1-6]", tag) for tag in tags):
        tags.add("a")  # Jupyter adds a link to each heading
    return _css_for(frozenset((classes | tags) & _names()))


@lru_cache(maxsize=64)
def _css_for(names: frozenset[str]) -> str:
    """The rules for these names, without the animations and variables that no rule uses."""
    text = "".join(_filtered(_sheet(), names))
    animations = set(re.findall(r"animation:([\w-]+)", text))
    text = "".join(
        f"{prelude}{{{body}}}"
        for prelude, body in _rules(text)
        if not prelude.startswith(_KEYFRAMES) or prelude.removeprefix(_KEYFRAMES) in animations
    )
    values = dict(_VARIABLE.findall(text))
    used, new = set[str](), {*_USED.findall(_VARIABLE.sub("", text))}
    while new:
        used |= new
        new = {name for each in new for name in _USED.findall(values.get(each, ""))} - used
    return _VARIABLE.sub(lambda found: found[0] if found[1] in used else "", text)


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
    """Whether every class and element that the selector needs exists below the card's root."""
    selector = selector.rpartition(_ROOT)[2]
    while (
        outer := _GROUP.sub(lambda group: _needed(group[1], group[2], names), selector)
    ) != selector:
        selector = outer
    return all(name in names for name in _named(selector))


def _needed(kind: str, content: str, names: frozenset[str]) -> str:
    """The replacement of a group in parentheses: one part of ``:is`` or ``:where`` must exist; other groups match."""
    matches = kind not in (":is", ":where") or any(
        all(name in names for name in _named(each)) for each in content.split(",")
    )
    return "" if matches else _NOWHERE


def _named(selector: str) -> list[str]:
    """The classes and elements of a selector without parentheses."""
    return _NAME.findall(_NO_NAME.sub("", selector))


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """Each rule as the text before its braces and the text in them."""
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
    """A rule's selectors: the parts between its commas that are not in parentheses."""
    depth = start = 0
    for at, sign in enumerate(prelude):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            yield prelude[start:at]
            start = at + 1
    yield prelude[start:]


@cache
def _names() -> frozenset[str]:
    """The classes and elements that some rule names."""
    preludes = re.findall(r"([^{}]+)\{", _sheet())
    return frozenset(_NAME.findall(" ".join(preludes).replace("(", " ").replace(":", " :")))


@cache
def _sheet() -> str:
    """The whole sheet, in a form that is valid in a ``style`` element."""
    return _SHEET.read_text(encoding="utf-8").replace("</", "<\\/")
