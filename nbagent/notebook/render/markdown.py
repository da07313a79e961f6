"""Markdown in the kernel: sanitized HTML for the live view and the static one alike.

``render`` makes the HTML of a whole text; ``Stream`` makes the same HTML piece by piece while the
text arrives. Both sanitize last, block by block, formulas and colored code included.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import token as kinds
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from . import formulas, sanitize
from .sanitize import escape

MAX_COLORED = 20_000
"""Characters of a code block that is still colored."""
OPEN_LIMIT = 2_000
"""Characters of an open block that is still redrawn as HTML."""
REDRAW_EVERY = 0.2
"""Seconds between two drawings of the open block."""
BURST = 400
"""Characters in one step from which on an open block waits: it will be finished, or be another."""
HOLD = 0.2
"""Seconds for which it waits before its text is shown as it is."""

_Env = MutableMapping[str, Any]


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


def highlighted(code: str, info: str) -> str:
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


def render(text: str) -> str:
    """The text as sanitized HTML."""
    return "".join(blocks(text))


def blocks(text: str) -> list[str]:
    """The text as sanitized HTML, one string for each block at the top level."""
    return [piece.html for piece in _pieces(_newlines(text), {})]


class Stream:
    """Markdown that grows: ``blocks`` are finished, ``tail`` (HTML) and then ``raw`` are the open end.

    ``raw`` goes on where ``tail`` ends, inside its last block, spaces and newlines included.
    ``pending`` takes pieces of text; ``advance`` works them in when the next message is due.
    """

    def __init__(self) -> None:
        self.pending: list[str] = []
        self.blocks: list[str] = []
        self.tail = ""
        self.raw = ""
        self._seen: list[str] = []
        self._open = ""
        self._env: _Env = {}
        self._parsed_at = 0
        self._drawn = 0
        self._drawn_at = self._open_since = float("-inf")
        self._as_code = False
        """Whether ``tail`` is an empty block of code and ``raw`` all that is in it so far."""
        self.kept: str | None = None
        """Where the next finished block is what is open already: the text it still lacks."""

    @property
    def text(self) -> str:
        """All the text so far."""
        if len(self._seen) > 1:
            self._seen = ["".join(self._seen)]
        return "".join([*self._seen, *self.pending])

    @property
    def settled(self) -> bool:
        """Whether waiting longer would not change what is drawn."""
        if self.pending not in ([], ["\r"]):
            return False
        return self._drawn == len(self._open) if self._redrawable else self._shows or not self._open

    @property
    def _shows(self) -> bool:
        """Whether anything of the open end is on the page."""
        return bool(self.tail or self.raw)

    @property
    def _redrawable(self) -> bool:
        return 0 < len(self._open) <= OPEN_LIMIT

    def advance(self, now: float) -> str | None:
        """Work in what is pending, at this time in seconds.

        Returns the text that was appended to ``raw`` where that is all that changed; None where
        ``blocks`` may have grown and ``tail`` and ``raw`` are other ones.
        """
        new = self._take()
        finished = self._finish_blocks(new) if new else []
        if finished:
            self.tail, self.raw, self._drawn, self._as_code = "", "", 0, False
            self._open_since = now
        calm = len(new) < BURST
        due = calm and (now - self._drawn_at >= REDRAW_EVERY or bool(finished))
        if self._redrawable and due and self._drawn != len(self._open):
            self.tail, self.raw = self._draw(self._open), _unseen(self._open)
            self._drawn, self._drawn_at, self._as_code = len(self._open), now, False
            return None
        if not (calm or self._shows) and now - self._open_since < HOLD:
            return None if finished else ""
        waited = not self._shows and len(self._open) > len(new)
        if finished or waited or self._begins_code:
            self._leave_undrawn()
            return None
        if _FENCE.match(self._open) and "\n" not in self._open:
            return ""  # the rest of a fence's first line is not code: it waits for the next drawing
        self.raw += new
        return new

    @property
    def _begins_code(self) -> bool:
        """Whether the open end is code whose block is not on the page yet."""
        code = _FENCE.match(self._open) is not None and "\n" in self._open
        return code and "\n" not in self._open[: self._drawn]

    def _leave_undrawn(self) -> None:
        """Show the open end as it was written: code in its block, all else as plain text."""
        self.tail, self.raw, self._drawn, self._as_code = "", self._open, 0, False
        if self._begins_code:
            self._drawn = self._open.index("\n") + 1
            self.tail, self.raw, self._as_code = _CODE.format(""), self._open[self._drawn :], True

    def _keep(self, finished: list[str]) -> None:
        """Code without colors that is on the page already need not travel again."""
        if not (self._as_code and finished):
            return
        code = html.unescape(finished[0].removeprefix(_CODE_START).removesuffix(_CODE_END))
        same = finished[0] == _CODE.format(html.escape(code, quote=False))
        self.kept = code[len(self.raw) :] if same and code.startswith(self.raw) else None

    def close(self, text: str) -> bool:
        """Finish with ``text`` as the whole; False if that needed all blocks anew."""
        same = text == self.text
        if same:
            self._take()
            self._open += "\n" * len(self.pending)
            rest = [piece.html for piece in _pieces(self._open, self._env)]
            self._keep(rest)
            # a link defined at the end changes blocks that were finished before
            same = not self._env.get("references")
            self.blocks += rest
        if not same:
            self.blocks = blocks(text)
        self._seen, self._open = [], ""
        self.pending.clear()
        self.tail = self.raw = ""
        return same

    def _take(self) -> str:
        """The pending text with plain newlines, now part of the open end."""
        new = "".join(self.pending)
        self.pending.clear()
        if new.endswith("\r"):  # its newline may still come
            new = new[:-1]
            self.pending.append("\r")
        self._seen.append(new)
        new = _newlines(new)
        self._open += new
        return new

    def _finish_blocks(self, new: str) -> list[str]:
        size = len(self._open)
        if size < self._parsed_at * 1.25 or not _may_end(self._open, size - len(new)):
            return []
        cut = self._open.rfind("\n") + 1
        done, rest = _split(self._open[:cut], self._env)
        self._keep(done)
        self._open = self._open[cut - rest :] if done else self._open
        self._parsed_at = len(self._open)
        self.blocks += done
        return done

    def _draw(self, text: str) -> str:
        return "".join(piece.html for piece in _pieces(text, dict(self._env)))


_CODE_START, _CODE_END = highlighted("\n", "").split("\n")
_CODE = f"{_CODE_START}{{}}{_CODE_END}"
_BOUNDARY = re.compile(
    r"^[ \t]*\n|^ {0,3}#{1,6}[ \t].*\n|^[ \t>]*(?:```|~~~)[ \t]*\n", re.MULTILINE
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_MATH_OPEN = re.compile(r"\$\$|\\\[")


def _newlines(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    return sanitize.encodable(text)


def _may_end(text: str, start: int) -> bool:
    """Whether a block may have ended in the text from ``start`` on: worth parsing."""
    line = text.rfind("\n", 0, start) + 1
    line = text.rfind("\n", 0, max(line - 1, 0)) + 1
    return _BOUNDARY.search(text, line) is not None and not _in_fence(text)


def _in_fence(text: str) -> bool:
    """Whether the text starts with a fence that has not been closed."""
    first = _FENCE.match(text)
    if first is None:
        return False
    mark = first[1]
    close = re.compile(rf"^ {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*\n", re.MULTILINE)
    return close.search(text, first.end()) is None


def _split(text: str, env: _Env) -> tuple[list[str], int]:
    """The finished blocks of whole lines of text, and how many characters at its end are open."""
    pieces = _pieces(text, env)
    if not pieces:
        return [], len(text)
    lines = text.split("\n")
    rest = "\n".join(lines[pieces[-1].line :])
    blank = re.search(r"\n[ \t]*\n(?!.*\n[ \t]*\n)", text, re.DOTALL)
    if _MATH_OPEN.search(text, blank.end() if blank else 0):
        return [], len(text)
    if _is_over(pieces[-1].kind, rest):
        return [piece.html for piece in pieces], 0
    return [piece.html for piece in pieces[:-1]], len(rest)


_ENDED_BY_BLANK = ("paragraph_open", "table_open")


def _is_over(kind: str, text: str) -> bool:
    """Whether nothing that may follow these whole lines can still change the block they are."""
    if kind == "fence":
        return not _in_fence(text)
    return kind == "heading_open" or (kind in _ENDED_BY_BLANK and not text.split("\n")[-2].strip())


def _unseen(text: str) -> str:
    """The end of an open text that its HTML does not show yet: spaces and newlines."""
    if _in_fence(text):
        return "\n" if text.endswith("\n") and text.count("\n") > 1 else ""
    return text[len(text.rstrip()) :]


class _Piece(NamedTuple):
    """A block at the top level: its first line's number, what its first token is, sanitized HTML."""

    line: int
    kind: str
    html: str


def _pieces(text: str, env: _Env) -> list[_Piece]:
    """Each block at the top level."""
    try:
        tokens = _engine().parse(text, env)
        return [
            _Piece((group[0].map or [0])[0], group[0].type, _rendered(group, env))
            for group in _groups(tokens)
        ]
    except Exception:  # whatever a parser stumbles over is shown as it was written
        return [_Piece(0, "", f'<pre class="code"><code>{escape(text)}</code></pre>')]


def _groups(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield group
            group = []


def _rendered(tokens: list[Token], env: _Env) -> str:
    engine = _engine()
    return sanitize.clean(engine.renderer.render(tokens, engine.options, env)).strip()


@cache
def _engine() -> MarkdownIt:
    engine = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    engine.disable(["html_block", "html_inline"])
    formulas.recognize(engine)
    engine.validateLink = _link_or_image  # type: ignore[method-assign]
    for name, rule in _RULES.items():
        engine.add_render_rule(name, rule)
    return engine


def _link_or_image(url: str) -> bool:
    return sanitize.link_is_safe(url) or sanitize.image_is_safe(url) or _is_remote(url)


def _is_remote(url: str) -> bool:
    return ":" not in url and not url.startswith("//")


# how tokens become HTML: called by markdown-it with the renderer first


def _fence(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return highlighted(tokens[index].content.removesuffix("\n"), tokens[index].info)


def _image(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    url = str(token.attrs.get("src", ""))
    if sanitize.image_is_safe(url):
        return f'<img src="{escape(url)}" alt="{escape(token.content)}">'
    shown = url if len(url) <= 200 else url[:199] + "…"
    return f"{escape(token.content)} ({escape(shown)})".strip()


def _inline_math(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return formulas.formula(tokens[index].content, display=False)


def _display_math(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return f'<span class="math">{formulas.formula(tokens[index].content, display=True)}</span>'


def _block_math(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return f'<div class="math">{formulas.formula(tokens[index].content, display=True)}</div>'


def _heading(self: RendererHTML, tokens: Sequence[Token], index: int, *rest: Any) -> str:
    # a card is not a document: its headings start at h4 and stay out of a notebook's contents
    tokens[index].tag = {"h1": "h4", "h2": "h5"}.get(tokens[index].tag, "h6")
    return self.renderToken(tokens, index, *rest)


def _cell(self: RendererHTML, tokens: Sequence[Token], index: int, *rest: Any) -> str:
    style = str(tokens[index].attrs.pop("style", ""))
    if style:
        tokens[index].attrs["align"] = style.removeprefix("text-align:")
    return self.renderToken(tokens, index, *rest)


_RULES = {
    "fence": _fence,
    "code_block": _fence,
    "image": _image,
    "math_inline": _inline_math,
    "math_inline_double": _display_math,
    "math_block": _block_math,
    "heading_open": _heading,
    "heading_close": _heading,
    "th_open": _cell,
    "td_open": _cell,
}
