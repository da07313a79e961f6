"""Code with colors: Pygments' tokens in few classes, neighbors of one class joined."""

from __future__ import annotations

from functools import cache
from typing import Any

from pygments import token as kinds
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from .sanitize import escape

MAX_COLORED = 20_000
"""Characters of a code block that is still colored."""

_KINDS = (
    (kinds.Comment, "c"),
    (kinds.Keyword, "k"),
    (kinds.Operator.Word, "k"),
    (kinds.String, "s"),
    (kinds.Number, "m"),
    (kinds.Name.Function, "nf"),
    (kinds.Name.Class, "nf"),
    (kinds.Name.Decorator, "nf"),
    (kinds.Name.Tag, "k"),
    (kinds.Name.Attribute, "s"),
    (kinds.Name.Builtin, "nb"),
    (kinds.Name.Exception, "nf"),
    (kinds.Generic.Inserted, "gi"),
    (kinds.Generic.Deleted, "gd"),
    (kinds.Generic.Heading, "gh"),
    (kinds.Generic.Subheading, "gh"),
    (kinds.Error, "err"),
)


@cache
def _class_of(kind: Any) -> str:
    return next((name for parent, name in _KINDS if kind in parent), "")


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def block(code: str, info: str) -> str:
    """The code as a ``pre``; ``info`` begins with its language. To be sanitized like all markup."""
    return f'<pre class="code"><code>{_colored(code, info)}</code></pre>'


def _colored(code: str, info: str) -> str:
    language = info.split(maxsplit=1)[0].lower() if info.strip() else ""
    lexer = _lexer(language) if language and len(code) <= MAX_COLORED else None
    if lexer is None:
        return escape(code)
    out: list[str] = []
    last, held = "", ""
    for kind, text in lexer.get_tokens(code):
        name = _class_of(kind)
        if name != last:
            out.append(_span(last, held))
            last, held = name, ""
        held += text
    out.append(_span(last, held))
    return "".join(out)


def _span(name: str, text: str) -> str:
    return f'<span class="{name}">{escape(text)}</span>' if name and text else escape(text)
