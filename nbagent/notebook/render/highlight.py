"""Colored code, in time proportional to the code's length, whatever the code.

A language consists of word lists and one pattern. The pattern is searched once, from left to right, without
backtracking (every repetition is possessive, and no alternative fails far from its start).
The grammars of editors take minutes for a few kilobytes of code that was written to be slow.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from .sanitize import names

MAX_COLORED = 20_000
"""Characters of a code block that is still colored."""

_DOUBLE = r'"(?:[^"\\\n]|\\.)*+"?'
_SINGLE = r"'(?:[^'\\\n]|\\.)*+'?"
_TRIPLE = (
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:""")?' + "|'''(?:[^'\\\\]|\\\\[\\s\\S]|'(?!''))*+(?:''')?"
)
_TEMPLATE = r"`(?:[^`\\]|\\[\s\S])*+`?"
_DOUBLED = r"'(?:[^']|'')*+'?" + '|"[^"\n]*+"?'
_HASH = r"(?<![\w$&{])#[^\n]*+"
_SLASHES = r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
_NUMBER = r"(?P<m>\d[\w.]*+)"
_WORD = r"(?P<w>[^\W\d]\w*+)"


class _Language(NamedTuple):
    pattern: re.Pattern[str]
    """Its groups are named like ``sanitize.TOKENS``; the group ``w`` is a word, which the sets below classify."""
    keywords: frozenset[str] = frozenset()
    builtins: frozenset[str] = frozenset()
    naming: frozenset[str] = frozenset()
    """Keywords that are followed by the name that they define."""
    key: str = ""
    """The character that marks the word or the string before it as a key."""
    folded: bool = False
    """Whether keywords ignore case."""


def _language(  # noqa: PLR0913 -- what languages differ in
    comment: str,
    string: str,
    keywords: str,
    *,
    builtins: str = "",
    more: str = "",
    word: str = _WORD,
    naming: str = "class struct enum interface trait func function fn fun def",
    key: str = "",
    folded: bool = False,
) -> _Language:
    known = names(keywords)
    parts = (f"(?P<c>{comment})", f"(?P<s>{string})", *([more] if more else ()), _NUMBER, word)
    pattern = re.compile("|".join(parts))
    return _Language(pattern, known, names(builtins), known & names(naming), key, folded)


_C = (
    "auto bool break case char const continue default do double else enum extern false float for goto "
    "if inline int long return short signed sizeof static struct switch true typedef union unsigned "
    "void volatile while"
)
_CLIKE = rf"{_DOUBLE}|'(?:[^'\\\n]|\\.){{1,8}}+'"
_JAVA = (
    f"{_C} abstract boolean byte catch class extends final finally implements import instanceof "
    "interface new null override package private protected public super this throw throws try var"
)
_JS = (
    "abstract any as async await boolean break case catch class const continue debugger declare default "
    "delete do else enum export extends false finally for from function get if implements import in "
    "instanceof interface keyof let namespace never new null number of private protected public "
    "readonly return set static string super switch this throw true try type typeof undefined unknown "
    "var void while with yield"
)
_PYTHON_BUILTINS = (
    "abs all any bool bytes callable dict dir enumerate filter float format frozenset getattr hasattr "
    "hash id input int isinstance issubclass iter len list map max min next object open ord pow print "
    "property range repr reversed round self set setattr slice sorted staticmethod str sum super tuple "
    "type vars zip Exception KeyError TypeError ValueError"
)
_SQL = (
    "add all alter and any as asc begin between by case cast check column commit constraint create "
    "cross database default delete desc distinct drop else end except exists explain false foreign from "
    "full group having if in index inner insert intersect into is join key left like limit not null "
    "offset on or order outer over partition primary references returning right rollback select set "
    "table temporary then true union unique update using values view when where window with"
)
_TAG = r"(?P<k></?[A-Za-z][\w:.-]*+|/?>)"
_DASHED = r"(?P<w>[^\W\d][\w-]*+)"

_LANGUAGES = {
    "python": _language(
        r"\#[^\n]*+",
        rf"[rRbBuUfF]{{0,2}}(?:{_TRIPLE}|{_DOUBLE}|{_SINGLE})",
        "and as assert async await break case class continue def del elif else except False finally for "
        "from global if import in is lambda match None nonlocal not or pass raise return True try while "
        "with yield",
        builtins=_PYTHON_BUILTINS,
        more=r"(?P<nf>@[\w.]++)",
    ),
    "sql": _language(r"--[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?", _DOUBLED, _SQL, folded=True),
    "r": _language(
        _HASH,
        f"{_DOUBLE}|{_SINGLE}",
        "break else FALSE for function if Inf NA NaN next NULL repeat return TRUE while",
        builtins="c cat data.frame library list names paste print require rep seq sum mean",
        naming="",
    ),
    "julia": _language(
        _HASH,
        f"{_TRIPLE}|{_DOUBLE}",
        "abstract begin break catch const continue do else elseif end export false finally for function "
        "global if import let local macro module mutable quote return struct true try using where while",
        builtins="println print length push!",
        more=r"(?P<nf>@\w++)",
    ),
    "bash": _language(
        _HASH,
        r'"(?:[^"\\]|\\[\s\S])*+"?|\'[^\']*+\'?',
        "case do done elif else esac export fi for function if in local return select then until while",
        builtins="cat cd curl echo eval exec exit git grep ls mkdir pip python read rm sed set source test",
        more=r"(?P<nb>\$\{?\w++)",
    ),
    "json": _language(_SLASHES, _DOUBLE, "true false null", key=":"),
    "yaml": _language(
        _HASH, f"{_DOUBLE}|{_SINGLE}", "true false null yes no", word=_DASHED, key=":"
    ),
    "toml": _language(
        _HASH,
        f"{_TRIPLE}|{_DOUBLE}|{_SINGLE}",
        "true false",
        more=r"(?P<gh>(?<![^\n])\[[^\n]*+)",
        word=_DASHED,
        key="=",
    ),
    "html": _language(
        r"<!--(?:[^-]|-(?!->))*+(?:-->)?",
        r"(?<==)(?:\"[^\"]*+\"?|'[^']*+'?)",
        "",
        more=_TAG,
        word=_DASHED,
        key="=",
    ),
    "css": _language(
        r"/\*(?:[^*]|\*(?!/))*+(?:\*/)?",
        f"{_DOUBLE}|{_SINGLE}",
        "",
        more=r"(?P<nf>@[\w-]++)|(?P<nb>\#[\w-]++|\.[A-Za-z][\w-]*+)",
        word=_DASHED,
        key=":",
    ),
    "javascript": _language(_SLASHES, f"{_DOUBLE}|{_SINGLE}|{_TEMPLATE}", _JS, builtins="console"),
    "c": _language(_SLASHES, _CLIKE, _C, more=r"(?P<nb>\#[ \t]*+[a-z]++)"),
    "cpp": _language(
        _SLASHES,
        _CLIKE,
        f"{_C} catch class constexpr delete explicit friend namespace new noexcept nullptr operator "
        "override private protected public template this throw try typename using virtual",
        builtins="std string vector map",
        more=r"(?P<nb>\#[ \t]*+[a-z]++)",
    ),
    "java": _language(_SLASHES, _CLIKE, _JAVA, builtins="String System", more=r"(?P<nf>@\w++)"),
    "go": _language(
        _SLASHES,
        f"{_CLIKE}|{_TEMPLATE}",
        "break case chan const continue default defer else fallthrough false for func go goto if import "
        "interface map nil package range return select struct switch true type var",
        builtins="append bool byte error float64 int len make string",
    ),
    "rust": _language(
        _SLASHES,
        _CLIKE,
        "as async await break const continue crate else enum extern false fn for if impl in let loop match "
        "mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
        builtins="bool f64 i32 i64 u8 u32 u64 usize str String Vec Option Result Some None Ok Err",
    ),
    "diff": _Language(
        re.compile(
            r"(?P<gh>^(?:@@|diff|index|---|\+\+\+)[^\n]*+)|(?P<gi>^\+[^\n]*+)|(?P<gd>^-[^\n]*+)",
            re.MULTILINE,
        )
    ),
    "latex": _Language(re.compile(r"(?P<k>\\(?:[A-Za-z@]++|.))|(?P<c>%[^\n]*+)|(?P<nb>[{}$&])")),
}
_ALIASES = {
    "python": "py python3 py3 ipython ipython3 pycon",
    "sql": "postgresql mysql sqlite duckdb",
    "bash": "sh shell zsh console dockerfile docker make makefile",
    "json": "jsonc json5 ndjson",
    "yaml": "yml",
    "toml": "ini cfg properties",
    "html": "xml svg",
    "css": "scss less",
    "javascript": "js jsx ts tsx typescript node mjs",
    "cpp": "c++ cc cxx hpp cuda",
    "java": "kotlin kt scala csharp cs c#",
    "go": "golang",
    "rust": "rs",
    "diff": "patch",
    "latex": "tex",
}
_BY_NAME = _LANGUAGES | {
    alias: _LANGUAGES[name] for name, aliases in _ALIASES.items() for alias in aliases.split()
}
_BLOCK = '<pre class="code"><code>{}</code></pre>'


def highlighted(code: str, info: str) -> str:
    """The code as a ``pre``, which is not sanitized yet; ``info`` starts with the code's language."""
    name = info.split(maxsplit=1)[0].lower() if info.strip() else ""
    language = _BY_NAME.get(name)
    if language is None or len(code) > MAX_COLORED:
        return _BLOCK.format(html.escape(code))
    out: list[str] = []
    end, named = 0, False
    for match in language.pattern.finditer(code):
        word, kind = match[0], match.lastgroup
        after = code[match.end() : match.end() + 1]
        if kind == "w":
            if named:
                kind = "nf"
            elif (word.lower() if language.folded else word) in language.keywords:
                kind = "k"
            elif word in language.builtins:
                kind = "nb"
            else:
                kind = "k" if after and after in language.key else ""
            named = word in language.naming
        elif kind == "s" and language.key == ":" and after == ":":
            kind = "k"
        if kind:
            out.append(html.escape(code[end : match.start()]))
            out.append(f'<span class="{kind}">{html.escape(word)}</span>')
            end = match.end()
    return _BLOCK.format("".join(out) + html.escape(code[end:]))
