"""Markdown in the kernel: the sanitized HTML for live and static cards.

``render`` makes the HTML of a whole text; ``Stream`` makes the same HTML piece by piece while the
text arrives. Both sanitize each block as the last step, including formulas and colored code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from nbagent.core.base.controls import without_controls
from nbagent.notebook.texts import TEXTS

from . import formulas, sanitize
from .highlight import highlighted
from .sanitize import escape

MAX_MARKDOWN = 32_000
"""Characters of a text that are drawn as Markdown, up to a line's end; the rest is plain text."""
MAX_PLAIN = 100_000
"""Characters of the plain text that follows; further characters are only counted."""
MAX_FORMULAS = 6_000
"""Characters of the formulas that are drawn in one piece of text."""
MAX_STEPS = 60_000
"""Number of times that the parser's rules may be tried on one piece of text; beyond, it is plain text.

Documents of ``MAX_MARKDOWN`` characters take 20,000 to 30,000 steps.
"""
MAX_NESTED = 18
"""Levels of lists and quotes in each other, of which a list takes two; the parser's own limit is 20."""
OPEN_LIMIT = 3_000
"""Characters of an open block that is still redrawn as HTML."""
REDRAW_EVERY = 0.2
"""Seconds between two drawings of the open block."""
MAX_DRAWN_STEP = 800
"""The length of new text from which on the open block is not drawn yet, because more text will follow at once."""
MAX_DRAW_DELAY = 0.2
"""Seconds after which the text of such a block is shown, as it was written."""

_Env = MutableMapping[str, Any]


def render(text: str) -> str:
    """The text as sanitized HTML."""
    return "".join(blocks(text))


def blocks(text: str) -> list[str]:
    """The text as sanitized HTML, one string for each block at the top level."""
    text = without_controls(text)
    cut = _markdown_end(text)
    return [*(piece.html for piece in _pieces(text[:cut], {})), *_plain(text[cut:])]


class Stream:
    """Markdown that grows: ``blocks`` are finished, ``tail`` (HTML) and then ``raw`` are the open end.

    ``raw`` continues the text of the last block in ``tail``, and has all its spaces and newlines.
    New text is appended to ``pending``; ``advance`` adds it to the view when the next message is due.
    """

    def __init__(self) -> None:
        self.pending: list[str] = []
        self.blocks: list[str] = []
        self.tail = ""
        self.raw = ""
        self._seen: list[str] = []
        self._open = ""
        self._rest = ""
        """The text after the Markdown, which is shown as plain text."""
        self._start = 0
        """The index in the whole text at which the open end starts."""
        self._env: _Env = {}
        self._parsed_at = 0
        self._drawn = 0
        self._drawn_at = self._open_since = float("-inf")
        self._deferred = ""
        """Text that is not shown before the next drawing."""
        self._in_rest = False
        """Whether ``raw`` belongs to the plain text that follows the Markdown."""

    @property
    def text(self) -> str:
        """All the text so far."""
        if len(self._seen) > 1:
            self._seen = ["".join(self._seen)]
        return "".join([*self._seen, *self.pending])

    @property
    def is_sent(self) -> bool:
        """Whether waiting longer would not change the drawing."""
        if self.pending not in ([], ["\r"]):
            return False
        return self._drawn == len(self._open) if self._redrawable else self._shows or not self._open

    @property
    def _shows(self) -> bool:
        """Whether any part of the open end is on the page."""
        return bool(self.tail or self.raw)

    @property
    def _redrawable(self) -> bool:
        return 0 < len(self._open) <= OPEN_LIMIT

    def advance(self, now: float) -> str | None:
        """Add the pending text to the blocks and the open end; ``now`` is in seconds.

        Returns the text that was appended to ``raw`` if nothing else changed; None if
        ``blocks`` may have grown and ``tail`` and ``raw`` are replaced.
        """
        new = self._take()
        if self._rest:
            return self._advance_plainly()
        finished = self._finish_blocks(new) if new else []
        if finished:
            self.tail, self.raw, self._drawn, self._deferred = "", "", 0, ""
            self._open_since = now
        calm = len(new) < MAX_DRAWN_STEP
        due = calm and (now - self._drawn_at >= REDRAW_EVERY or bool(finished))
        if self._redrawable and due and self._drawn != len(self._open):
            pieces = _pieces(self._open, dict(self._env))
            self.tail, self.raw = "".join(piece.html for piece in pieces), _unseen(self._open)
            self._drawn, self._drawn_at, self._deferred = len(self._open), now, ""
            return None
        if not (calm or self._shows) and now - self._open_since < MAX_DRAW_DELAY:
            return None if finished else ""
        waited = not self._shows and len(self._open) > len(new)
        if finished or waited or self._is_new_code:
            self._leave_undrawn()
            return None
        if _FENCE.match(self._open) and "\n" not in self._open:
            return ""  # the rest of a fence's first line is not code: it waits for the next drawing
        # text that will look different once drawn waits, so that it is not sent twice
        if self._deferred or self.tail.endswith(_NO_PROSE) or not _PROSE.fullmatch(new):
            self._deferred += new
            if calm and self._redrawable:
                return ""
            new, self._deferred = self._deferred, ""
        self.raw += new
        return new

    def _advance_plainly(self) -> str | None:
        """Finish the Markdown, and show the rest as it is written."""
        shown = self._rest[:MAX_PLAIN]
        if self._in_rest:
            new = shown[len(self.raw) :]
            self.raw = shown
            return new
        finished = [piece.html for piece in _pieces(self._open, self._env)]
        self.blocks += finished
        self._open, self._in_rest, self._deferred = "", True, ""
        self.tail, self.raw = _CODE.format(""), shown
        return None

    @property
    def _is_new_code(self) -> bool:
        """Whether the open end is code whose block is not on the page yet."""
        code = _FENCE.match(self._open) is not None and "\n" in self._open
        return code and "\n" not in self._open[: self._drawn]

    def _leave_undrawn(self) -> None:
        """Show the open end as it was written: code in its block, everything else as plain text."""
        self.tail, self.raw, self._drawn, self._deferred = "", self._open, 0, ""
        if self._is_new_code:
            self._drawn = self._open.index("\n") + 1
            self.tail, self.raw = _CODE.format(""), self._open[self._drawn :]

    def close(self, text: str) -> bool:
        """Finish with ``text`` as the whole text; return False if all blocks were drawn again."""
        same = text == self.text
        if same:
            self._take()
            self._add("\n" * len(self.pending))
            rest = [piece.html for piece in _pieces(self._open, self._env)] if self._open else []
            rest += _plain(self._rest)
            # a link defined at the end changes blocks that were finished before
            same = not self._env.get("references")
            self.blocks += rest
        if not same:
            self.blocks = blocks(text)
        self._seen, self._open, self._rest, self._deferred = [text], "", "", ""
        self.pending.clear()
        self.tail = self.raw = ""
        return same

    def _take(self) -> str:
        """Move the pending text, with plain newlines, to the open end, and return it."""
        new = "".join(self.pending)
        self.pending.clear()
        if new.endswith("\r"):  # its newline may still come
            new = new[:-1]
            self.pending.append("\r")
        self._seen.append(new)
        new = without_controls(new)
        self._add(new)
        return new

    def _add(self, new: str) -> None:
        """Add text to the open end, or to the plain text that follows it."""
        if self._rest:
            self._rest += new
            return
        self._open += new
        if self._start + len(self._open) > MAX_MARKDOWN:
            cut = _markdown_end(self._open, self._start)
            self._open, self._rest = self._open[:cut], self._open[cut:]

    def _finish_blocks(self, new: str) -> list[str]:
        size = len(self._open)
        if size < self._parsed_at * 1.25 or not _may_end(self._open, size - len(new)):
            return []
        cut = self._open.rfind("\n") + 1
        done, rest = _split(self._open[:cut], self._env)
        if done:
            self._open, self._start = self._open[cut - rest :], self._start + cut - rest
        self._parsed_at = len(self._open)
        self.blocks += done
        return done


_CODE_START, _CODE_END = highlighted("\n", "").split("\n")
_CODE = f"{_CODE_START}{{}}{_CODE_END}"
_BOUNDARY = re.compile(
    r"^[ \t]*\n|^ {0,3}#{1,6}[ \t].*\n|^[ \t>]*(?:```|~~~)[ \t]*\n", re.MULTILINE
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_PROSE = re.compile(r"[^\n\\`*_~$\[\]|#&<>]*")
"""Text in which no Markdown starts or ends."""
_NO_PROSE = ("</pre>", "</table>")
"""The ends of blocks whose text differs from its source."""
_PLAIN_LINE = re.compile(r"[^\W\d_](?:[^\W_]|[ ,.;:?%/()'\"-])*\n*")
"""A paragraph of one line without Markdown, and with the same text in HTML."""
_BLANK = re.compile(r"\n[ \t]*(?=\n)")
_MATH_OPEN = re.compile(r"\$\$|\\\[")


def _markdown_end(text: str, start: int = 0) -> int:
    """The end of the Markdown in ``text``: after the last whole line within ``MAX_MARKDOWN``."""
    limit = MAX_MARKDOWN - start
    if len(text) <= limit:
        return len(text)
    return text.rfind("\n", 0, limit) + 1 or (0 if start else limit)


def _plain(text: str) -> list[str]:
    """The text after the Markdown as plain text, and a note on the number of omitted characters."""
    if not text:
        return []
    drawn = sanitize.clean(_CODE.format(escape(text[:MAX_PLAIN])))
    more = len(text) - MAX_PLAIN
    note = f'<p class="note">{TEXTS["more_text"].format(n=f"{more:,}")}</p>'
    return [drawn, note] if more > 0 else [drawn]


def _may_end(text: str, start: int) -> bool:
    """Whether a block may have ended in the text from ``start`` on, so that parsing is worthwhile."""
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
    """The finished blocks of whole lines of text, and the number of open characters at its end."""
    pieces = _pieces(text, env)
    if not pieces:
        return [], len(text)
    lines = text.split("\n")
    rest = "\n".join(lines[pieces[-1].line :])
    blank = max((found.end() for found in _BLANK.finditer(text)), default=0)
    if _MATH_OPEN.search(text, blank):
        return [], len(text)
    if _is_over(pieces[-1].kind, rest):
        return [piece.html for piece in pieces], 0
    return [piece.html for piece in pieces[:-1]], len(rest)


_ENDED_BY_BLANK = ("paragraph_open", "table_open")


def _is_over(kind: str, text: str) -> bool:
    """Whether no text after these whole lines can still change their block."""
    if kind == "fence":
        return not _in_fence(text)
    return kind == "heading_open" or (kind in _ENDED_BY_BLANK and not text.split("\n")[-2].strip())


def _unseen(text: str) -> str:
    """The spaces and newlines at the end of an open text, which the text's HTML does not show yet."""
    if _in_fence(text):
        return "\n" if text.endswith("\n") and text.count("\n") > 1 else ""
    return text[len(text.rstrip()) :]


class _Piece(NamedTuple):
    """A block at the top level: its first line's number, its first token's type, sanitized HTML."""

    line: int
    kind: str
    html: str


def _pieces(text: str, env: _Env) -> list[_Piece]:
    """Each block at the top level."""
    if _PLAIN_LINE.fullmatch(text):
        return [_Piece(0, "paragraph_open", sanitize.directed(f"<p>{text.rstrip()}</p>"))]
    env.update(steps=0, formulas=0)
    pieces: list[_Piece] = []
    block: list[Token] = []
    try:
        engine = _engine()
        for token in engine.parse(text, env):
            block.append(token)
            if token.level == 0 and token.nesting <= 0:
                html = sanitize.clean(engine.renderer.render(block, engine.options, env)).strip()
                pieces.append(_Piece((block[0].map or [0])[0], block[0].type, html))
                block = []
    except Exception:  # text on which a parser fails is shown as it was written
        return [_Piece(0, "", f'<pre class="code"><code>{escape(text)}</code></pre>')]
    return pieces


@cache
def _engine() -> MarkdownIt:
    engine = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    engine.disable(["html_block", "html_inline"])
    engine.inline.ruler.at("text", _plain_text)
    formulas.recognize(engine)
    inline = engine.inline
    for ruler, steps in ((engine.block.ruler, 2), (inline.ruler, 1), (inline.ruler2, 1)):
        known: list[Any] = ruler.__rules__
        for each in known:
            rule = _measured_table if each.name == "table" else each.fn
            if each.name in ("list", "blockquote"):
                rule = partial(_shallow, rule)
            each.fn = _metered(rule, steps)
    engine.validateLink = lambda url: (  # type: ignore[method-assign]
        (":" not in url and not url.startswith("//"))  # a relative address
        or sanitize.link_is_safe(url)
        or sanitize.image_is_safe(url)
    )
    for name, rule in _RULES.items():
        engine.add_render_rule(name, rule)
    return engine


_NO_MARKUP = re.compile(r"[^\n!$&*<\[\\\]_`~]+")
"""Text in which no enabled rule starts. The parser's own pattern also stops at signs of rules that are not enabled."""


def _plain_text(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 -- markdown-it calls it so
    """Text without markup, in one piece."""
    found = _NO_MARKUP.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


class _TooMuch(Exception):
    """The error if the parser takes too many steps in a text."""


def _charge(env: _Env, steps: int) -> None:
    env["steps"] += steps
    if env["steps"] > MAX_STEPS:
        raise _TooMuch


def _metered(rule: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """A rule of the parser that counts its tries."""

    def tried(state: Any, *args: Any) -> Any:
        _charge(state.env, steps)
        done = rule(state, *args)
        if done:
            _charge(state.env, _MATCH)
        return done

    return tried


def _shallow(rule: Callable[..., Any], state: StateBlock, *args: Any) -> Any:
    """Parse a list or a quote. Inside of many others it is text: below them the parser would drop all that follows."""
    return state.level < MAX_NESTED and rule(state, *args)


def _measured_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 -- markdown-it calls it so
    """Parse a table, whose steps are counted by its cells: every row gets as many cells as the first row."""
    below = start + 1
    if below < end:
        line = state.src[state.bMarks[below] + state.tShift[below] : state.eMarks[below]]
        if _DELIMITERS.fullmatch(line):
            stop = next((n for n in range(start, end) if state.isEmpty(n)), end)
            _charge(state.env, _CELL * (line.count("|") + 1) * (stop - start))
    return table(state, start, end, silent)


_CELL = 10
_MATCH = 4
"""Steps that each match of a rule adds, because the match is drawn too; ``_CELL`` is for each cell of a table."""
_DELIMITERS = re.compile(r"[-:| \t]+")


# functions that turn tokens into HTML; markdown-it passes the renderer as the first argument


def _fence(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    return highlighted(tokens[index].content.removesuffix("\n"), tokens[index].info)


def _image(_self: RendererHTML, tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    url = str(token.attrs.get("src", ""))
    if sanitize.image_is_safe(url):
        return f'<img src="{escape(url)}" alt="{escape(token.content)}">'
    shown = url if len(url) <= 200 else url[:199] + "…"
    return f"{escape(token.content)} ({escape(shown)})".strip()


def _math(
    _self: RendererHTML, tokens: Sequence[Token], index: int, _options: Any, env: _Env
) -> str:
    """A formula; as its source, if the piece of text has too many formulas to draw."""
    kind, latex = tokens[index].type, tokens[index].content
    env["formulas"] += formulas.COST + len(latex)
    if env["formulas"] > MAX_FORMULAS:
        drawn = f"<code>{escape(latex.strip())}</code>"
    else:
        drawn = formulas.formula(latex, display=kind != "math_inline")
    if kind == "math_inline":
        return drawn
    tag = "div" if kind == "math_block" else "span"
    return f'<{tag} class="math">{drawn}</{tag}>'


def _heading(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: _Env
) -> str:
    # the first heading of a text is h4: below the card's own, and in no notebook's table of contents
    level = int(tokens[index].tag[1])
    tokens[index].tag = f"h{min(max(4, 4 + level - env.setdefault('top', level)), 6)}"
    return self.renderToken(tokens, index, options, env)


def _cell(self: RendererHTML, tokens: Sequence[Token], index: int, *rest: Any) -> str:
    style = str(tokens[index].attrs.pop("style", ""))
    if style:
        tokens[index].attrs["align"] = style.removeprefix("text-align:")
    return self.renderToken(tokens, index, *rest)


_RULES: dict[str, Callable[..., str]] = {
    "fence": _fence,
    "code_block": _fence,
    "image": _image,
    "math_inline": _math,
    "math_inline_double": _math,
    "math_block": _math,
    "heading_open": _heading,
    "heading_close": _heading,
    "th_open": _cell,
    "td_open": _cell,
}
