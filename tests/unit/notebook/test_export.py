"""A run as one document: a page, Markdown, a notebook."""

from __future__ import annotations

import json
import re

import nbformat

import nbagent as nb

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


async def test_a_run_that_waits_and_one_that_ended_are_whole_documents(tmp_path):
    """Of the run itself and of the one that is opened; nothing in them runs, loads, or breaks out."""
    with nb.SQLiteStore(tmp_path / "runs.db") as store:
        agent, run = await paused(store)
        opened = await nb.open_run(run.id, agent=agent, store=store, show=False, attended=True)
        for one in (run, opened):
            for text in (one.to_html(), one.to_markdown(), one.to_notebook()):
                assert "Waits for an answer." in text
                assert "nb.open_run(" in text
                assert not re.search(r"<script|<i>|<b>now|src=.?.?http|<img", text)
        run.approve(run.interrupts[0])
        await run
        path = tmp_path / "run.html"
        page = run.to_html(path)
        assert path.read_text(encoding="utf-8") == page
        assert page.startswith("<!doctype html>")
        assert "All paid." in page
        assert "nb.open_run(" not in page
        assert "color-scheme: light dark" in page
        assert "default-src 'none'" in page


async def test_python_of_the_model_is_code_and_all_else_is_text():
    """A notebook that nbformat takes: the prompt first, code in cells that were not run."""
    _, run = await paused(nb.MemoryStore())
    notebook = nbformat.reads(run.to_notebook(), as_version=4)
    nbformat.validate(notebook)
    first, code, last = notebook.cells
    assert first.source.startswith("# cl\\*erk · waiting for you\n\n> Pay \\_Ada\\_ &lt;i&gt;now")
    assert "&#36;5" in first.source
    assert (code.cell_type, code.source) == ("code", "total = 1\n\nprint(total)")
    assert (code.outputs, code.execution_count) == ([], None)
    assert "not python" in last.source
    assert "<td>2</td>" in last.source
    assert run.to_notebook() == run.to_notebook()
    assert "```python\ntotal = 1\n\nprint(total)\n```" in run.to_markdown()
    assert "nb.open_run" not in json.dumps(notebook)
    await run.cancel()


async def test_a_chat_is_one_document_with_all_that_was_said(tmp_path):
    """Messages, answers and calls of all its runs in their order; what is open, and no form; text is data."""
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
    said = "> What does \\_it\\_ cost? &lt;i&gt;now&lt;/i&gt;"
    for form in (chat.to_markdown(), chat.to_notebook()):
        assert "Waits for an answer." in form
    waiting.approve(waiting.interrupts[0])
    await waiting
    text = chat.to_markdown(tmp_path / "chat")
    told = ["# cl\\*erk", said, "total = 1", "> Pay it", "bill", "paid Ada &lt;b&gt;", "All paid."]
    places = [text.index(each) for each in told]
    assert places == sorted(places)
    notebook = nbformat.reads(chat.to_notebook(), as_version=4)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "markdown"]
