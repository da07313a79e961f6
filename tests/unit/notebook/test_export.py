"""A run as one document: a page, Markdown, a notebook."""

from __future__ import annotations

import asyncio
import html
import json
import re

import nbformat
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import nbagent as nb
from nbagent.core.base.controls import without_controls
from nbagent.notebook.render import sanitize
from nbagent.notebook.render.as_markdown import escaped, of_html

call = nb.ScriptedModel.call
TEXT = """It costs $5 and $6, see:

```python
total = 1

print(total)
```

```
not python
```

| a | b |
|---|---|
| 1 | 2 |

<script>alert(1)</script> ![x](https://evil.example/x.png)
"""


async def paused(store):
    """A run that waits for an approval."""
    agent = nb.Agent(
        nb.ScriptedModel([[TEXT, call("pay", to="Ada <b>")], "All paid."]), name="cl*erk"
    )

    @agent.tool(approval=True, editable=True)
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    run = agent.run("Pay _Ada_ <i>now</i>", store=store, attended=True, show=False)
    return agent, await run.settled()


async def test_a_waiting_and_an_ended_run_are_complete_documents(tmp_path, monkeypatch):
    """For the original and the opened run: nothing in the documents runs, loads or breaks out."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        agent, run = await paused(store)
        opened = await nb.open_run(run.id, agent=agent, store=store, show=False, attended=True)
        for one in (run, opened):
            for text in (one.to_html(), one.to_markdown(), one.to_notebook()):
                assert "Not answered." in text
                assert "nb.open_run(" in text
                assert not re.search(r"<script|<i>|<b>now|src=.?.?http|<img", text)
        run.approve(run.interrupts[0])
        await run
        path = tmp_path / "run.html"
        page = run.to_html(path)
        assert path.read_text(encoding="utf-8") == page
        assert re.fullmatch(r"<.*run.html, \d+ kB>", repr(page))
        with pytest.raises(nb.errors.UsageError, match=r"[Tt]he folder .*missing.* does not exist"):
            run.to_html(tmp_path / "missing" / "run.html")
        with pytest.raises(nb.errors.UsageError, match=r"is a folder. Pass the path of a file"):
            run.to_html(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        run.to_html("~/home.html")
        assert (tmp_path / "home.html").is_file()
        assert page.startswith("<!doctype html>")
        assert "All paid." in page
        assert "nb.open_run(" not in page
        assert "color-scheme: light dark" in page
        assert "default-src 'none'" in page


async def test_python_of_the_model_is_code_and_everything_else_is_text():
    """A notebook that is valid for nbformat: the prompt first, code in cells that were not run."""
    _, run = await paused(nb.MemoryStore())
    notebook = nbformat.reads(run.to_notebook(), as_version=4)
    nbformat.validate(notebook)
    first, code, last = notebook.cells
    assert first.source.startswith("# cl\\*erk · not answered\n\n> Pay \\_Ada\\_ &lt;i>now")
    assert "costs <span>&#36;</span>5 and <span>&#36;</span>6" in first.source
    assert (code.cell_type, code.source) == ("code", "total = 1\n\nprint(total)")
    assert (code.outputs, code.execution_count) == ([], None)
    assert "not python" in last.source
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in last.source
    assert run.to_notebook() == run.to_notebook()
    assert "```python\ntotal = 1\n\nprint(total)\n```" in run.to_markdown()
    assert "nb.open_run" not in json.dumps(notebook)
    await run.cancel()


async def test_a_chat_is_one_document_with_all_its_messages(tmp_path):
    """Messages, answers, calls and open questions of all runs in order, without a form; text is escaped."""
    steps = [TEXT, [call("pay", to="Ada <b>")], "All paid."]
    agent = nb.Agent(nb.ScriptedModel(steps), name="cl*erk")

    @agent.tool(approval=True)
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    chat = agent.chat()
    assert "<h1>" not in chat.to_html()
    await chat.send("What does _it_ cost? <i>now</i>")
    path = tmp_path / "chat.html"
    page = chat.to_html(path)
    assert path.read_text(encoding="utf-8") == page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<i>|src=.?.?http|<img|<textarea|<button", page)
    waiting = await chat.send(["Pay it", nb.File(b"a,b", name="bill.csv")], answers=None).settled()
    said = "> What does \\_it\\_ cost? &lt;i>now&lt;/i>"
    for form in (chat.to_markdown(), chat.to_notebook()):
        assert "Not answered." in form
    assert "<span>scripted</span>" in chat.to_html()
    waiting.approve(waiting.interrupts[0])
    await waiting
    text = chat.to_markdown(tmp_path / "chat")
    told = [
        "# cl\\*erk",
        said,
        "total = 1",
        "> Pay it",
        "bill",
        "```\npaid Ada <b>\n```",
        "All paid.",
    ]
    places = [text.index(each) for each in told]
    assert places == sorted(places)
    notebook = nbformat.reads(chat.to_notebook(), as_version=4)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "markdown"]


FENCE = "`" * 5
BREAKS_OUT = f"""x

```python
a = 1
   ```
<img src=x onerror=alert(1)> ![t](https://evil.example/1)
```

{FENCE}
a = 1
   ```
<img src=x onerror=alert(1)> ![t](https://evil.example/1)
{FENCE}

one&#10;&#32;&#10;![t](https://evil.example/2) two&#13;&#13;![t](https://evil.example/3)

| a |
|---|
| &#10;&#9;&#10;![t](https://evil.example/4) |
"""


async def test_no_text_ends_the_block_that_contains_it():
    """Neither a fence in a fence nor a line that looks empty: Markdown finds no image or tag in it."""
    run = nb.Agent(nb.ScriptedModel([BREAKS_OUT])).run("go", show=False)
    await run
    for source in (run.to_markdown(), *map(_markdown, [run.to_notebook()])):
        drawn = MarkdownIt("commonmark").enable("table").render(source)
        assert not re.search(r"<img|<script|<a [^>]*evil", drawn), drawn


def _markdown(notebook):
    cells = nbformat.reads(notebook, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


RICH = """## *What* it is

1. one, `a|b` and **two *words***
2. two
   - inner

   still two
3. three

- first
- second

> quoted
> - item

| left | right | mid |
|:--|--:|:-:|
| `x` | **2** | [l](https://e.org/a(b)) |
| a \\| b |  | ~~gone~~ |

It costs $5, and $x^2$

$$\\frac{1}{2}$$

1\\. no list, __init__, a_b, `` ` `` &amp;amp; \\> no quote

```
- code
```

---
"""


async def test_c423_an_exported_run_is_markdown_that_looks_like_the_card():
    """Lists, tables, quotations and code render like the model's own Markdown, also for a stopped run."""
    begun = asyncio.Event()

    async def frames() -> pd.DataFrame:
        """A table with a cell over two rows."""
        keys = pd.MultiIndex.from_tuples([("n", 1), ("n", 2), ("s|t", 1)], names=["region", "k"])
        return pd.DataFrame({"<b>": [1.5, 2.0, 3.0]}, index=keys)

    async def wait() -> None:
        """Never end."""
        begun.set()
        await asyncio.Event().wait()

    model = nb.ScriptedModel([[RICH, call("frames"), call("wait")]])
    agent = nb.Agent(model, tools=[frames, wait])
    run = agent.run("- go\n# on", show=False)
    await begun.wait()
    await run.cancel()
    text = run.to_markdown()
    assert not re.search(r"<(?!/?span>)[a-z/]", re.sub(CODE, "", text)), text
    drawn = MarkdownIt("commonmark").enable("table").enable("strikethrough").render(text)
    own = MarkdownIt("commonmark").enable("table").enable("strikethrough").render(RICH)
    own = own.replace("h2>", "h4>").replace("a(b)", "a%28b%29")
    own = own.replace("costs $5", "costs <span>$</span>5")  # two dollars would be a formula
    assert _bare(own) in _bare(drawn), drawn
    assert "Stopped" in drawn
    assert "<blockquote>\n<p>- go\n# on</p>" in drawn
    assert of_html(FRAME).split("\n") == [
        "| region | k | \\&lt;b> |".replace("\\&", "&"),
        "| --- | ---: | ---: |",
        "| n | 1 | 1.5 |",
        "|  | 2 | 2.0 |",
        "| s\\|t | 1 | 3.0 |",
    ]


CODE = re.compile(r"^(`{3,})$.*?^\1$|(`+)[^\n]*?\2", re.MULTILINE | re.DOTALL)


def _bare(drawn):
    """Rendered HTML without whitespace and paragraph tags."""
    return re.sub(r"\s+", "", re.sub(r"</?p>", "", drawn))


FRAME = (
    "<table><thead><tr><th>region</th><th align='right'>k</th><th>&lt;b&gt;</th></tr></thead><tbody>"
    "<tr><th rowspan='2'>n</th><td align='right'>1</td><td align='right'>1.5</td></tr>"
    "<tr><td align='right'>2</td><td align='right'>2.0</td></tr>"
    "<tr><th>s|t</th><td align='right'>1</td><td align='right'>3.0</td></tr></tbody></table>"
).replace("'", '"')


TEXTS = st.text(alphabet="a1 _*`~[]()!<>#+-=.|$&;\\\n\"'/:&") | st.text()


@given(TEXTS)
@settings(max_examples=300)
def test_c423_foreign_text_is_never_markup(text):
    """Any characters, in a paragraph or a list, are drawn as themselves."""
    draw = MarkdownIt("commonmark").enable("table").enable("strikethrough").render
    plain = html.escape(text)
    for markup in (f"<p>{plain}</p>", f"<ul><li>{plain}</li></ul>", f"<p><b>x</b>{plain}</p>"):
        drawn = draw(of_html(sanitize.clean(markup)))
        tags = set(re.findall(r"</?([a-z0-9]+)", drawn))
        assert tags <= {"p", "ul", "li", "strong", "span"}, (text, drawn)
    drawn = draw(escaped(text))
    assert set(re.findall(r"</?([a-z0-9]+)", drawn)) <= {"p", "span"}, (text, drawn)
    assert _bare(html.unescape(re.sub("<[^>]*>", "", drawn))) == _bare(without_controls(text))


async def test_an_exported_approval_has_the_title_of_the_live_one():
    """The first line of the tool's docstring, for a run and for a chat."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay", amount=5)] * 2))

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        """Pay somebody."""
        return f"paid {amount}"

    run = await agent.run("go", attended=True, show=False).settled()
    assert "Pay somebody" in run.to_html()
    assert "Pay somebody" in run.to_markdown()
    await run.cancel()
    chat = agent.chat()
    waiting = await chat.send("go", answers=None).settled()
    assert "Pay somebody" in chat.to_html()
    await waiting.cancel()
