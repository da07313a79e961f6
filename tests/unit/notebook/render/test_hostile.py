"""No text of a model or tool becomes script, style, a fetch or an invisible character."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    MessageQueued,
    ModelResponded,
    Resolved,
    RunFailed,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Reject
from nbagent.core.base.messages import user
from nbagent.core.base.metadata import expected
from nbagent.core.base.model import Discarded, ReasoningDelta, TextDelta, ToolCallDelta
from nbagent.core.tools.call_output import Chunk, Displayed, Printed, Progressed
from nbagent.notebook.render import markdown, plain, reveal, rich, sanitize, static
from nbagent.notebook.view.view import SingleRunView
from nbagent.notebook.wire import FormItem, TextItem
from tests.unit.notebook.allowlist import violations

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='java\tscript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "<javascript:alert(1)>",
    "![x](https://evil.example/pixel.png)",
    "![x](//evil.example/pixel.png)",
    "![x](data:text/html;base64,AAAA)",
    "![x](data:image/svg+xml;base64,AAAA)",
    '<img src="https://evil.example/p.png">',
    "<img srcset='https://evil.example/p.png 1x'>",
    "<link rel=stylesheet href=https://evil.example/c.css>",
    "<style>@import url(https://evil.example/c.css)</style>",
    "<div style='background:url(https://evil.example/p.png)'>x</div>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<form action=https://evil.example><button>Approve</button></form>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content=0;url=https://evil.example>",
    "<object data=https://evil.example></object><embed src=x>",
    "<video src=x onerror=alert(1)></video>",
    "<details open ontoggle=alert(1)>x</details>",
    "<p id=card name=x class=nba-form>x</p>",
    r"$\text{<img src=x onerror=alert(1)>}$",
    r"$\text{<script>alert(1)</script>}$",
    r"$\href{javascript:alert(1)}{x}$",
    r"$\mathrm{<style>}\unicode{<img src=x>}$",
    r"\[\begin{aligned}\text{<svg onload=alert(1)>}&=\href{javascript:alert(1)}{y}\end{aligned}\]",
    r"$\color{red;background:url(//evil.example)}{x}$",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<svg></p><style><a id='</style><img src=1 onerror=alert(1)>'>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<math><mi//xlink:href='data:x,<script>alert(4)</script>'>",
    "<table><td background='https://evil.example/p.png'>x",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml-stylesheet href='javascript:alert(1)'?>",
    "```html\n<script>alert(1)</script>\n```",
    "```<img/src=x/onerror=alert(1)>\nx\n```",
    "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
    "[x]: javascript:alert(1)\n\n[x]",
    "</style></script></textarea></title><script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "\x00<scr\x00ipt>alert(1)</script>",
    "safe \u202e evil \u2066 \u200b \u2028 \ufeff \U000e0041 \u00ad \u3164 text",
]
HIDDEN = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200c\u200d\u200e\u200f\u061c"
)
INVISIBLE = (
    HIDDEN + "\u2028\u2029\u2060\u2064\ufeff\u00ad\u034f\u115f\u3164\uffa0\ufe0f\x1b\x00\x85"
)


def run_saying(text):
    """A run with this text in every place for a text, and with open forms."""
    view = SingleRunView("r")
    key = text or "k"
    call = CallRequested(id="c1", name=text, input={key: text, "n": [text]})
    view.apply(RunStarted(at=0, agent=text, model="m", messages=[user(text)], max_turns=3))
    view.apply(ReasoningDelta(text))
    view.apply(TextDelta(text))
    view.apply(ToolCallDelta(0, text, "c1", text))
    view.flush(0.0)
    view.apply(Discarded(text))
    view.apply(ModelResponded(at=1, text=text, reasoning=text, calls=(call,)))
    view.apply(ToolStarted(at=1, call_id="c1", attempt=1, owner="o", input={key: text}))
    view.apply(Printed("c1", "stdout", text))
    view.apply(Progressed("c1", 0.5, text))
    view.apply(Chunk("c1", text))
    bundles = [{mime: text} for mime in ("text/html", "text/markdown", "text/latex", "text/plain")]
    bundles += [{"image/png": text}, {"image/svg+xml": text}, {"application/json": {key: text}}]
    for bundle in bundles:
        view.apply(Displayed("c1", bundle))
    view.flush(1.0)
    view.apply(ToolFinished(at=2, call_id="c1", output={key: text}, printed=text, displays=bundles))
    calls = tuple(CallRequested(id=f"d{i}", name=text, input={key: text}) for i in range(5))
    view.apply(ModelResponded(at=3, text=text, calls=calls))
    metadata = [
        {"message": text, "reason": text, key: text},
        {"message": text, "choices": [text, {"value": text, "label": text, "help": text}]},
        text,
        [text],
        {"message": text, "fields": None},
    ]
    kinds = ["tool", "tool", "approval", "question", "tool"]
    for number, (kind, data) in enumerate(zip(kinds, metadata, strict=True)):
        view.apply(
            Interrupted(
                at=4,
                id=f"i{number}",
                call_id=f"d{number}",
                tool_name=text,
                kind=kind,
                expects=expected(kind, data, editable=number == 4),
                input={key: text},
                metadata=data,
                note=text,
                editable=number == 4,
            )
        )
    rejected = Resolved(at=5, id="i0", call_id="d0", resolution=Reject(reason=text), by=text)
    view.apply(rejected)
    view.apply(MessageQueued(at=5, text=text, by=text))
    return view


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_in_any_place_reaches_no_page(text):
    """Live blocks and static HTML have only what is on the allow-list, forms open or run ended."""
    view, snapshots = run_saying(text), []
    snapshots.append(view.snapshot())
    view.apply(RunFailed(at=6, error=text, message=text))
    snapshots.append(view.snapshot())
    for snapshot in snapshots:
        for item in snapshot.items:
            if isinstance(item, TextItem):
                assert violations("".join(item.blocks) + item.tail) == []
            for output in getattr(item, "outputs", []):
                assert output.kind != "html" or violations(output.data) == []
                assert output.kind != "image" or output.data.startswith("data:image/")
        assert violations(static.render(snapshot, style=False)) == []
        plain.render(snapshot).encode()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_sanitized_html_is_read_the_same_a_second_time(text):
    """Sanitized markup keeps its meaning when it is parsed again."""
    for markup in (markdown.render(text), sanitize.clean(text)):
        again = sanitize.clean(markup)
        assert sanitize.clean(again) == again
        assert violations(again) == []


FRAGMENTS = [
    *HOSTILE,
    *("<", ">", "</", "<!--", "-->", "<math>", "<mtext>", "</math>", "<svg>", "</svg>", "<style>"),
    *(
        "</style>",
        "<table>",
        "<mglyph>",
        "<p>",
        "</p>",
        "<select>",
        "<title>",
        "$",
        "`",
        "\n",
        "\\[",
    ),
    *("&lt;", "&#x3c;", "'", '"', "<a href='", "<img src='", "<template>", "<noscript>"),
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
def test_no_mixture_of_hostile_pieces_passes_the_sanitizer(text):
    """Hostile pieces in any order are harmless, as Markdown and as HTML."""
    assert violations(markdown.render(text)) == []
    assert violations(rich.safe_html(text)) == []


@pytest.mark.parametrize("character", INVISIBLE, ids=[f"U+{ord(c):04X}" for c in INVISIBLE])
def test_no_invisible_character_is_left_in_approvals_or_data(character):
    """Names, inputs, metadata, reasons and prints show their hidden characters."""
    text = f"a{character}b"
    view = run_saying(text)
    for item in view.snapshot().items:
        if isinstance(item, TextItem) or item.type == "reasoning":
            continue
        drawn = item.model_dump(mode="json", exclude={"key", "call", "interrupt", "spec", "path"})
        for output in drawn.pop("outputs", []):
            assert output["kind"] != "text" or character not in output["data"]
        assert character not in json.dumps(drawn, ensure_ascii=False)
        if isinstance(item, FormItem):
            assert reveal.reveal(text) in json.dumps(drawn, ensure_ascii=False)


def test_reveal_names_the_character_and_keeps_newline_tab_and_emoji():
    """A hidden character is shown by its code; visible text is unchanged."""
    assert reveal.reveal("pay \u202etxt.exe") == "pay ⟨U+202E⟩txt.exe"
    assert reveal.reveal("a\u200db\U000e0061") == "a⟨U+200D⟩b⟨U+E0061⟩"
    for kept in ("a\n\tb", "⚠\ufe0f", "👩\u200d💻", "naïve 漢字 עברית", "1\u00a0000"):
        assert reveal.reveal(kept) == kept
    assert reveal.reveal("⚠\ufe0f\ufe0f") == "⚠\ufe0f⟨U+FE0F⟩"


def test_every_format_control_and_default_ignorable_letter_is_revealed():
    """Every format, control or line-separating character of Unicode is replaced."""
    for number in range(0x110000):
        character = chr(number)
        if (
            unicodedata.category(character) in {"Cf", "Cc", "Zl", "Zp", "Cs"}
            and character not in "\n\t"
        ):
            assert reveal.reveal(character) == f"⟨U+{number:04X}⟩"


def test_printed_text_is_shown_as_in_a_terminal():
    """Progress lines show their last state, and colors are removed."""
    assert reveal.terminal(" 10%\r 50%\r100%\ndone\r\n") == "100%\ndone\n"
    assert reveal.terminal("\x1b[31mred\x1b[0m \x1b]0;t\x07") == "red ⟨U+001B⟩]0;t⟨U+0007⟩"


def test_no_class_id_or_name_of_the_card_is_left_in_foreign_html():
    """A preview cannot look like a button, a form or a record, nor be selected as one."""
    sheet = (Path(static.__file__).parents[2] / "static" / "card.css").read_text(encoding="utf-8")
    ours = sorted(set(re.findall(r"\.((?:nba|nbagent)[\w-]*)", sheet)))
    assert len(ours) > 50
    for tag in sorted(sanitize.PROSE | sanitize.MATH):
        markup = (
            f"<{tag} class='{' '.join(ours)}' id=card name=form style='position:fixed'>x</{tag}>"
        )
        for cleaned in (rich.safe_html(markup), sanitize.clean(markup)):
            assert not re.search(r"nba|\b(id|name|style)=", cleaned), tag


@pytest.mark.parametrize("turn", ["\u202e", "&#x202e;", "\u2067", "\u202b"])
def test_prose_cannot_change_the_text_direction(turn: str) -> None:
    """Characters that change the direction are shown by their code: streamed, whole, and in foreign HTML."""
    text = f"pay {turn}txt.exe"
    streamed = markdown.Stream()
    streamed.pending.append(text)
    streamed.close(text)
    for shown in ("".join(streamed.blocks), markdown.render(text), sanitize.clean(text)):
        assert "⟨U+20" in shown
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", shown)


def test_few_hidden_characters_are_shown_like_many():
    """Each hidden character is shown by its code, however many differ, and nothing else changes."""
    every = [chr(code) for code in reveal._signs()]
    for count in (1, reveal.FEW, reveal.FEW + 1, len(every)):
        text = "".join(f"a{each}{each}b" for each in every[-count:] if each not in "\u200d\ufe0f")
        assert reveal.reveal(text) == text.translate(reveal._signs())
