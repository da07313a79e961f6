"""Formulas in Markdown, in all notations that models use, and LaTeX as sanitized MathML."""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache
from typing import Any

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath import dollarmath_plugin

from . import sanitize
from .sanitize import escape

MAX_FORMULA = 1_000
"""Characters of a formula up to which it is drawn; a longer formula is shown as code."""
COST = 15
"""Characters that are added to the length of every formula, to limit the number of formulas in a text."""


def recognize(engine: MarkdownIt) -> None:
    r"""Add ``$…$``, ``$$…$$``, ``\(…\)`` and ``\[…\]`` to the parser; prices stay text."""
    dollarmath_plugin(
        engine,
        allow_labels=False,
        allow_space=False,
        allow_digits=False,
        allow_blank_lines=False,
        double_inline=True,
    )
    engine.inline.ruler.before("math_inline", "price", _price)
    engine.inline.ruler.before("escape", "bracket_math", _bracket_math)
    engine.block.ruler.before(
        "fence",
        "bracket_math_block",
        _bracket_math_block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )


def _price(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 -- markdown-it calls it so
    """Parse a dollar sign as text, if code starts before the next dollar sign: code takes precedence over formulas."""
    start = state.pos + 1
    if state.src[state.pos] != "$" or "`" not in state.src[start : state.src.find("$", start)]:
        return False
    if not silent:
        state.pending += "$"
    state.pos = start
    return True


_ENVIRONMENTS = (("{aligned}", "{align*}"), ("{gathered}", "{gather*}"))
_TEXT = re.compile(r"\\(?:text[a-z]*|mbox|hbox)\s*\{[^{}]*\}")
_STAND_INS = str.maketrans({"<": "\ue0f0", ">": "\ue0f1", "&": "\ue0f2"})
_ENTITIES = str.maketrans({"\ue0f0": "&lt;", "\ue0f1": "&gt;", "\ue0f2": "&amp;"})


MAX_SOURCES = 1_000
"""Formulas whose LaTeX is stored for ``source_of``."""
_sources: OrderedDict[str, str] = OrderedDict()


def formula(latex: str, *, display: bool) -> str:
    """LaTeX as sanitized MathML, or its source as code if that cannot be drawn."""
    source = latex.strip()
    drawn = _drawn(source, display=display)
    _sources.pop(drawn, None)
    _sources[drawn] = source
    if len(_sources) > MAX_SOURCES:
        _sources.popitem(last=False)  # in one step, as several threads draw
    return drawn


def source_of(mathml: str) -> str | None:
    """The LaTeX of a recently drawn formula; None if it is not stored."""
    return _sources.get(mathml)


@lru_cache(maxsize=1_000)
def _drawn(source: str, *, display: bool) -> str:
    if len(source) <= MAX_FORMULA:
        with suppress(Exception):  # LaTeX that the converter does not support is shown as code
            latex = source
            for old, new in _ENVIRONMENTS:
                latex = latex.replace(old, new)
            # latex2mathml escapes nothing inside \text, so that HTML in \text would stay HTML
            latex = _TEXT.sub(lambda found: found[0].translate(_STAND_INS), latex)
            mathml = convert(latex, display="block" if display else "inline")
            return sanitize.clean_formula(mathml.translate(_ENTITIES))
    return f"<code>{escape(source)}</code>"


_CLOSE = {"(": re.compile(r"(?<!\\)\\\)"), "[": re.compile(r"(?<!\\)\\\]")}


def _bracket_math(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 -- markdown-it calls it so
    opening = state.src[state.pos : state.pos + 2]
    if opening not in (r"\(", r"\["):
        return False
    close = _close(state, opening)
    if close is None or not state.src[state.pos + 2 : close.start()].strip():
        return False
    if not silent:
        name = "math_inline" if opening == r"\(" else "math_inline_double"
        token = state.push(name, "math", 0)
        token.content = state.src[state.pos + 2 : close.start()]
        token.markup = opening
    state.pos = close.end()
    return True


def _close(state: StateInline, opening: str) -> re.Match[str] | None:
    """The match that closes an opening; after a failed search, later openings are not searched again."""
    unclosed = _unclosed(state)
    searched = unclosed.get((opening, state.posMax))
    if searched is not None and searched <= state.pos:
        return None
    close = _CLOSE[opening[1]].search(state.src, state.pos + 2, state.posMax)
    if close is None:
        unclosed[opening, state.posMax] = state.pos
    return close


def _unclosed(state: StateInline | StateBlock) -> dict[Any, int]:
    """The failed searches in the text that is parsed, stored in the parser's state."""
    found: dict[Any, int] = vars(state).setdefault("nbagent_unclosed", {})
    return found


def _bracket_math_block(
    state: StateBlock,
    start: int,
    end: int,
    silent: bool,  # noqa: FBT001 -- markdown-it calls it so
) -> bool:
    if state.is_code_block(start) or not _line(state, start).startswith(r"\["):
        return False
    unclosed, place = _unclosed(state), (state.level, state.blkIndent, end)
    if start < unclosed.get(place, 0):
        return False
    lines, stop = _block_lines(state, start, end)
    if not lines:
        unclosed[place] = stop
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.block = True
        token.content = "\n".join(lines).rstrip()[:-2]
        token.markup = r"\["
        token.map = [start, start + len(lines)]
        state.line = start + len(lines)
    return True


def _block_lines(state: StateBlock, start: int, end: int) -> tuple[list[str], int]:
    """The lines up to the closing line, or none; and a line number: no opening line before that line is closed."""
    lines: list[str] = []
    for number in range(start, end):
        line = _line(state, number) if number > start else _line(state, number)[2:]
        if number > start and (not line.strip() or state.sCount[number] < state.blkIndent):
            return [], number
        lines.append(line)
        if r"\]" in line:
            closes = line.rstrip().endswith(r"\]") and r"\]" not in line.rstrip()[:-2]
            return (lines if closes else []), number
    return [], end


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
