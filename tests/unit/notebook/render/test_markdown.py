"""Markdown: its HTML, hostile input, and streaming that ends with the same HTML."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.notebook.render import formulas, markdown, sanitize
from nbagent.notebook.render.as_markdown import of_html
from nbagent.notebook.render.markdown import Stream, blocks, render

RULES = [
    ("# One\n\n### Three", "<h4>One</h4><h6>Three</h6>"),
    ("## Two\n\n### Three\n\n# One", "<h4>Two</h4><h5>Three</h5><h4>One</h4>"),
    ("costs $5 and $6", "<p>costs $5 and $6</p>"),
    ("costs $5, or `$x$`", "<p>costs $5, or <code>$x$</code></p>"),
    ("![cat](https://e.vil/c.png)", "<p>cat (https://e.vil/c.png)</p>"),
    ("![p](data:image/png;base64,AAAA)", '<p><img src="data:image/png;base64,AAAA" alt="p"></p>'),
    ("![p](data:image/svg+xml;base64,AAAA)", "<p>![p](data:image/svg+xml;base64,AAAA)</p>"),
    (
        "[a](https://x.y)",
        '<p><a href="https://x.y" target="_blank" rel="noopener noreferrer">a</a></p>',
    ),
    (
        "[m](mailto:a@b.c)",
        '<p><a href="mailto:a@b.c" target="_blank" rel="noopener noreferrer">m</a></p>',
    ),
    ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
    ("<b onclick=x>raw</b>", "<p>&lt;b onclick=x&gt;raw&lt;/b&gt;</p>"),
    ("```nolang\na<b\n```", '<pre class="code"><code>a&lt;b</code></pre>'),
    ("```python\n1\n```", '<pre class="code"><code><span class="m">1</span></code></pre>'),
    ("~~gone~~", "<p><s>gone</s></p>"),
    (
        "- " * 11 + "a\n\nb",
        "<ul>\n<li>\n" * 8 + "<ul>\n<li>- - a</li>\n</ul>" + "\n</li>\n</ul>" * 8 + "<p>b</p>",
    ),
    (
        ">" * 20 + "a\n\nb",
        "<blockquote>\n" * 18 + "<p>&gt;&gt;a</p>" + "\n</blockquote>" * 18 + "<p>b</p>",
    ),
]


DIRECTIONS = [
    ("\u05e9\u05dc\u05d5\u05dd", '<p dir="auto">\u05e9\u05dc\u05d5\u05dd</p>'),
    ("a\n\n- \u0645 *b*", '<p>a</p><ul dir="auto">\n<li>\u0645 <em>b</em></li>\n</ul>'),
    (
        "# \u0645\n\n> \u0645",
        '<h4 dir="auto">\u0645</h4><blockquote dir="auto">\n<p dir="auto">\u0645</p>\n</blockquote>',
    ),
    ("```\n<p> \u0645\n```", '<pre class="code"><code>&lt;p&gt; \u0645</code></pre>'),
]


@pytest.mark.parametrize(("source", "expected"), DIRECTIONS)
def test_c683_text_from_right_to_left_has_a_direction_by_paragraph(source, expected):
    """A block of another script has its own direction; text from left to right has no attribute more."""
    assert render(source) == expected
    stream = Stream()
    for sign in source:
        stream.pending.append(sign)
        stream.advance(1.0)
    stream.close(source)
    assert "".join(stream.blocks) == expected
    assert stream.text == source
    drawn = sanitize.clean_values("<dl><dt>\u05d0</dt></dl>")
    assert drawn == '<dl><dt dir="auto">\u05d0</dt></dl>'
    assert of_html(expected) == of_html(expected.replace(' dir="auto"', ""))


@pytest.mark.parametrize(("source", "expected"), RULES, ids=[r[0][:24] for r in RULES])
def test_c882_each_markdown_construct_becomes_what_the_card_can_show(source, expected):
    """Links, images, code and prices are drawn as expected, raw HTML as text."""
    assert render(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "$x^2$",
        r"\(x^2\)",
        "$$x^2$$",
        "$$\nx^2\n$$",
        r"\[x^2\]",
        "\\[\nx\n+ x^2\n\\]",
        r"so \[x^2\] it is",
        r"$$\begin{aligned}a&=b\\c&=x^2\end{aligned}$$",
        r"$$\begin{gathered}a\\x^2\end{gathered}$$",
    ],
)
def test_every_way_to_write_a_formula_becomes_mathml(source):
    """Formulas in dollar signs or brackets are drawn, and no source is left."""
    html = render(source)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert "&amp;" not in html
    assert "\\" not in html


def test_a_formula_that_is_too_long_is_shown_as_its_source():
    """A formula of more than 1,000 characters is not parsed."""
    source = "x+" * 1_001 + "x"
    assert render(f"${source}$") == f"<p><code>{source}</code></p>"


def test_text_that_makes_a_parser_fail_is_shown_as_code(monkeypatch):
    """Whatever fails inside, the person reads the model's text."""

    def broken(*_args):
        raise RecursionError

    monkeypatch.setattr(markdown.sanitize, "clean", broken)
    assert render("a <b>") == '<pre class="code"><code>a &lt;b&gt;</code></pre>'


def test_lone_surrogates_do_not_stop_a_page():
    """Text that cannot be encoded is shown with replacements instead of failing a message."""
    html = render("a \ud800 `\udfff`")
    html.encode()


PIECES = st.sampled_from(
    [
        "a",
        "word ",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        " ",
        "    ",
        "# ",
        "- ",
        "1. ",
        "2",
        ". ",
        "> ",
        "```",
        "```\n",
        "~~~\n",
        "$$",
        "$$\n",
        "$x$",
        "\\[",
        "\\]\n",
        "\\(y\\)",
        "===\n",
        "| a | b |\n|---|---|\n",
        "| 1 | 2 |\n",
        "**",
        "`",
        "[l]",
        "[l]: https://x.y\n",
        "![i](u)",
        "<b>",
        "\t",
        "\u202e",
        "\ud800",
    ]
)


@settings(max_examples=300)
@given(st.lists(st.tuples(PIECES, st.booleans(), st.booleans()), max_size=40))
def test_streaming_in_any_chunking_ends_with_the_same_html(steps):
    """However text arrives and whenever it is drawn, the end equals the rendering of the whole."""
    stream, now, text = Stream(), 0.0, ""
    for piece, flush, wait in steps:
        stream.pending.append(piece)
        text += piece
        if flush:
            now += 1.0 if wait else 0.01
            stream.advance(now)
    stream.close(text)
    assert "".join(stream.blocks) == render(text)
    assert (stream.tail, stream.raw) == ("", "")


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from([*"ab \n-.,'\"中é²(:/", "_b_", "*c*", "`d`", "&lt;", "\xa0", "1. "]), max_size=7)
    .map("".join)
)  # fmt: skip
def test_a_plain_line_is_drawn_as_the_parser_draws_it(text):
    """Text without Markdown is not parsed, but the parser would draw the same."""
    with_markup = blocks(f"{text}\n\n*x*")
    assert with_markup == [*blocks(text), "<p><em>x</em></p>"] or not text[:1].isalpha()


@settings(max_examples=150)
@given(st.lists(st.tuples(PIECES, st.booleans()), max_size=40))
def test_finished_blocks_are_never_withdrawn(steps):
    """A page gets each finished block once: later text only adds blocks, unless it defines a link."""
    stream, now, text = Stream(), 0.0, ""
    for piece, wait in steps:
        stream.pending.append(piece)
        text += piece
        before = list(stream.blocks)
        now += 1.0 if wait else 0.01
        stream.advance(now)
        assert stream.blocks[: len(before)] == before
    before = list(stream.blocks)
    if stream.close(text):
        assert stream.blocks[: len(before)] == before


def test_an_open_fence_is_redrawn_and_not_finished():
    """Code streams as code from its first line on, and a blank line inside finishes nothing."""
    stream = Stream()
    stream.pending.append("```python\nx = 1\n\n# not a heading\n\n")
    stream.advance(1.0)
    assert stream.blocks == []
    assert stream.tail.startswith('<pre class="code">')


def test_the_open_block_is_redrawn_five_times_a_second_up_to_two_kilobytes():
    """Between redraws, and in very long blocks, only raw text is sent."""
    stream, redraws = Stream(), 0
    for step in range(100):
        stream.pending.append("word ")
        redraws += stream.advance(step * 0.05) is None
    assert 20 <= redraws <= 26
    stream.pending.append("word " * 500)
    assert stream.advance(100.0) == "word " * 500


def test_code_that_arrives_fast_is_shown_as_code_meanwhile():
    """A long block is never blank until its end: its text continues in a block of code."""
    stream = Stream()
    stream.pending.append("Look:\n\n```pyt")
    assert stream.advance(1.0) is None
    stream.pending.append("hon\n")
    for step in range(8):
        stream.pending.append("x = 1\n" * 200)
        stream.advance(1.05 + step * 0.05)
    assert (stream.tail, stream.raw) == (
        '<pre class="code"><code></code></pre>',
        "x = 1\n" * 1_600,
    )
    stream.pending.append("y = 2\n")
    assert stream.advance(1.5) == "y = 2\n"


def test_in_a_burst_only_finished_blocks_are_sent():
    """A block that will change at the next step waits, but not for long, and not after the burst."""
    text = "**word** " * 100
    stream = Stream()
    stream.pending.append(f"One.\n\n{text}")
    assert stream.advance(1.0) is None
    assert (stream.blocks, stream.tail, stream.raw) == (["<p>One.</p>"], "", "")
    assert not stream.is_sent
    assert stream.advance(1.05) is None
    assert stream.tail.startswith("<p><strong>")
    stream, shown = Stream(), ""
    stream.pending.append(f"One.\n\n{text}")
    for step in range(6):
        stream.advance(1.0 + step * 0.05)
        shown += stream.raw and "x"
        stream.pending.append(text)
    assert shown
    assert stream.raw == text * 6


@pytest.mark.parametrize("wait", [0.01, 0.3])
def test_raw_text_continues_exactly_after_the_drawn_text(wait):
    """Whenever the text is drawn, no space between two words is lost or doubled."""
    stream, text = Stream(), ""
    for step, piece in enumerate(["Here ", "is", " a", " draft.", " ", "Have\n", "a look", "."]):
        stream.pending.append(piece)
        text += piece
        stream.advance(1 + step * wait)
        assert text.startswith(re.sub("</?p>", "", stream.tail) + stream.raw)
    stream.advance(9.0)
    assert re.sub("</?p>", "", stream.tail) + stream.raw == text


@pytest.mark.parametrize("block", ["One.\n\n", "# One\n", "```\n1\n```\n", "|a|\n|-|\n|1|\n\n"])
def test_a_block_that_can_no_longer_change_is_finished_before_the_next_begins(block):
    """The next words are never shown inside the previous block."""
    stream = Stream()
    stream.pending.append(block)
    stream.advance(1.0)
    assert (stream.blocks, stream.tail, stream.raw) == (blocks(block), "", "")


def test_a_long_list_streams_in_linear_time():
    """A list of 1,000 items is parsed a few times in all, and not at each line."""
    parses = []
    original = markdown._pieces

    def counted(text, env):
        parses.append(len(text))
        return original(text, env)

    stream = Stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markdown, "_pieces", counted)
        for item in range(1_000):
            stream.pending.append(f"- item number {item}\n\n")
            stream.advance(1_000 + item * 0.001)
    total = sum(len(f"- item number {item}\n\n") for item in range(1_000))
    assert sum(parses) < 8 * total
    stream.close(stream.text)
    assert len(stream.blocks) == 1


class Counted:
    """A pattern that counts the characters it searches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.looked = 0
        self._pattern = pattern

    def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
        found = self._pattern.search(text, start, end)
        self.looked += (end if found is None else found.end()) - start
        return found


@pytest.mark.parametrize("unit", ["\\(", "\\[ a ", "[\\( ](x) ", "![a](b) \\(", "\\( `"])
def test_formulas_that_never_close_are_searched_once(unit, monkeypatch):
    """Otherwise a text with twenty thousand openings would block the kernel."""
    closes = {name: Counted(pattern) for name, pattern in formulas._CLOSE.items()}
    monkeypatch.setattr(formulas, "_CLOSE", closes)
    text = "a " + unit * 500
    render(text)
    assert 0 < sum(close.looked for close in closes.values()) <= 20 * len(text)


@pytest.mark.parametrize("end", ["", "x \\] y\n", "\n\\]"])
def test_formulas_of_several_lines_that_never_close_are_searched_once(end, monkeypatch):
    """Each of the lines could open a formula."""
    lines: list[int] = []
    line = formulas._line
    monkeypatch.setattr(formulas, "_line", lambda s, n: lines.append(n) or line(s, n))
    render("\\[ a\n" * 500 + end)
    assert 500 <= len(lines) <= 20 * 500


def test_threads_draw_formulas_together(monkeypatch):
    """Each run is drawn on its own loop, and all share the stored sources."""
    monkeypatch.setattr(formulas, "MAX_SOURCES", 2)
    monkeypatch.setattr(formulas, "_drawn", lambda source, display: source)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def draw(thread: int) -> None:
        for n in range(100_000):
            formulas.formula(f"{thread} {n % 7}", display=False)

    try:
        with ThreadPoolExecutor(6) as pool:
            [*pool.map(draw, range(6))]
    finally:
        sys.setswitchinterval(before)


def test_a_formula_after_one_that_never_closes_is_drawn():
    """A failed search counts only for its kind of formula and its paragraph."""
    html = render("\\( a \\[b\\] $c$\n\n\\(d\\)\n\n\\[\ne\n\n\\[\nf\n\\]")
    assert html.count("<math") == 4


def test_text_that_starts_no_markup_is_not_parsed_as_markup():
    """Hidden characters are shown with a plus sign: thousands of them take almost no steps."""
    env = {}
    text = "a\u202eb - c + d: e% " * 1_500
    (piece,) = markdown._pieces(markdown.without_controls(text), env)
    assert piece.html == f"<p>{text.replace(chr(0x202E), '⟨U+202E⟩').strip()}</p>"
    assert env["steps"] < 100
