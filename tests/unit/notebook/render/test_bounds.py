"""P14: code that draws foreign text takes time in proportion to the text's length."""

from __future__ import annotations

import io
import itertools
import re
import time

import pytest

from nbagent.core.tools.call_output import CallOutput
from nbagent.notebook.capture import capture
from nbagent.notebook.capture.libraries import meter
from nbagent.notebook.render import facts, foreign, highlight, plain, reveal, rich
from nbagent.notebook.render.markdown import MAX_MARKDOWN, MAX_PLAIN, Stream, blocks

SIGNS = ["\n", "\n ", " ", "a", "a ", "a.", "a:", "0.", '"', "'", '"""', "`", "\\", "//", "/*", "#"]
SIGNS += [
    "--",
    "<!--",
    "<a ",
    "&",
    "$",
    "${",
    "@",
    "%",
    "*",
    "=",
    "(",
    "[",
    "{{",
    "?",
    "-",
    "\u00e9",
]


LINEAR = 11
"""Allowed ratio of times for a text four times as long: linear is 4, quadratic 16."""


def grows(work, unit: str, size: int, *, times: int = 4) -> float:
    """The ratio of this thread's times for a text ``times`` as long and for the text."""

    def fastest(length: int) -> float:
        text = (unit * length)[:length]
        spent = []
        for _ in range(3):
            start = time.thread_time()
            work(text)
            spent.append(time.thread_time() - start)
        return max(min(spent), 5e-3)

    found = []
    for _ in range(4):  # a real fault is slow every time; a busy machine is not
        found.append(fastest(size * times) / fastest(size))
        if found[-1] < LINEAR:
            break
    return min(found)


@pytest.mark.variant
@pytest.mark.parametrize("language", sorted(highlight._LANGUAGES))
def test_coloring_code_takes_linear_time(language, monkeypatch):
    """In no language does a text that is 4 times as long take 16 times as long."""
    monkeypatch.setattr(highlight, "MAX_COLORED", 1_000_000)
    for unit in SIGNS:
        assert grows(lambda text: highlight.highlighted(text, language), unit, 8_000) < LINEAR, unit


TAGS = ["<img ", "<b>", "<div>", "<p>", "<b><p>", "<a a ", '<a b="', "<li>", "<td>", "<", "<!--"]
TAGS += ["<style>", "<svg>", "<a href=x>", "</b>", "<table>x", "&amp;", "<img src=", "<font a=1>"]


@pytest.mark.variant
@pytest.mark.parametrize("unit", TAGS)
def test_foreign_html_is_parsed_in_linear_time(unit):
    """Neither depth, attributes nor unclosed formatting takes more than linear time."""
    assert grows(rich.safe_html, unit, 40_000) < LINEAR


@pytest.mark.variant
@pytest.mark.parametrize(
    "work",
    [
        reveal.terminal,
        reveal.reveal,
        meter,
        plain.text_of,
        facts.result,
        lambda t: facts.brief({"a": t}),
    ],
    ids=["terminal", "reveal", "meter", "text_of", "result", "brief"],
)
@pytest.mark.parametrize("unit", ["a", " ", "\r", "a\r", "\x1b", "1%|", "\u202e", "<", "<a ", "\n"])
def test_small_text_parsers_take_linear_time(work, unit):
    """A line of any length and content."""
    assert grows(work, unit, 50_000) < LINEAR


def test_html_that_is_too_deep_or_broken_loses_its_tags_and_not_its_text():
    """Valid HTML is unchanged, and open tags are closed."""
    cases = [
        ("<p>a<p>b", "<p>a</p><p>b</p>"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>d"),
        ("<tr><td>1<td>2<tr><td>3", "<tr><td>1</td><td>2</td></tr><tr><td>3</td></tr>"),
        ("<b>a<i>b</b>c", "<b>a<i>b</i></b>c"),
        ("a < b <<x>b> c", "a &lt; b &lt;b> c"),
        ("<script>if (a<b) x='</p>'</script>y<svg><b>z</svg>!", "y!"),
        ("<img src=x onerror=y alt='a\"b'>", '<img src="x" alt="a&quot;b">'),
        ("<div>" * 100 + "x", "<div>" * 64 + "x" + "</div>" * 64),
        ("<b>" * 20 + "x</b>", "<b>" * 8 + "x" + "</b>" * 8),
        ("<!-- <b> -->x<!-- y", "x"),
    ]
    for markup, expected in cases:
        assert foreign.bounded_markup(markup) == (expected, [])
    assert foreign.bounded_markup("<img src='//x.y/z'>")[1] == ["//x.y/z"]


def test_text_beyond_the_bound_is_plain_and_text_beyond_a_second_bound_is_counted():
    """A person sees plain text beyond the first bound, and a count beyond the second."""
    line = "some **bold** words and many others that are not bold\n"
    text = line * ((MAX_MARKDOWN + MAX_PLAIN + 5_000) // len(line))
    *drawn, rest, note = blocks(text)
    assert all(re.match("<p>some <strong>", block) for block in drawn)
    assert rest.startswith('<pre class="code"><code>some **bold** words and')
    lines = MAX_MARKDOWN // len(line)
    assert f"{len(text) - lines * len(line) - MAX_PLAIN:,} more characters" in note


@pytest.mark.variant
@pytest.mark.parametrize("size", [7, 997, 20_000, 200_000])
@pytest.mark.parametrize(
    "line",
    [
        "some *words* in a paragraph of some length\n\n",
        "- an item of a list\n",
        "x",
        "# A heading of some length\n",
        "# Heading\n\n" + "word " * 690 + "\n\n",
    ],
)
def test_a_text_beyond_the_bound_streams_to_the_same_html(size, line):
    """However it arrives: the end of Markdown depends on the text alone."""
    text = (line * MAX_PLAIN)[: MAX_MARKDOWN + MAX_PLAIN + 500]
    stream, now = Stream(), itertools.count()
    for start in range(0, len(text), size):
        stream.pending.append(text[start : start + size])
        if size > 100 or start % 3_500 == 0:
            stream.advance(next(now))
            assert len(stream.raw) <= MAX_MARKDOWN + MAX_PLAIN
    stream.close(text)
    same = stream.blocks == blocks(text)
    assert same


def test_a_text_that_is_too_slow_to_parse_is_shown_as_written():
    """A table of 3,000 columns and 5,000 rows has 15 million cells for a parser."""
    text = "|a" * 3_000 + "\n" + "|-" * 3_000 + "\n" + "a\n" * 5_000
    assert blocks(text)[0].startswith('<pre class="code"><code>|a|a')


@pytest.mark.parametrize("unit", ["a\rb\n", " ", "\r", "1%|", "a\n"])
def test_printed_text_of_a_tool_arrives_in_a_few_pieces(unit):
    """For any number of lines: each piece is an event for every listener."""
    heard: list[object] = []
    output = CallOutput("c", heard.append)
    stream = capture._CapturedStream("stdout", io.StringIO())
    stream._take(output, "\r" + unit * 50_000)
    assert len(heard) <= 2
