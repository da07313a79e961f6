"""Runs the README's Python as a reader would: block after block, in one session."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import nbagent as nb
from nbagent.core.hooks import hooks

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


async def execute(block: str, names: dict) -> object:
    """Run a block like a notebook cell, with top-level await; return the value of its last line."""
    tree = ast.parse(block)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(tree, "README.md", "exec", flags, dont_inherit=True)
    body = eval(code, names)
    if inspect.isawaitable(body):
        await body
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), "README.md", "eval", flags), names)
    return await value if inspect.iscoroutine(value) else value


async def test_every_python_block_of_the_readme_does_what_the_text_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hello world pauses before its tool until an approval or a passed answer; a table is read and saved."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.chdir(tmp_path)
    hello, headless, table = BLOCKS
    names: dict = {}

    run = await execute(hello, names)
    await run.settled()
    assert run.status == "interrupted"
    assert [pending.tool_name for pending in run.interrupts] == ["transfer_money"]
    run.approve(run.interrupts[0])
    await run
    await execute(headless, names)
    assert str(run.calls["transfer_money"][-1].value).startswith("sent ")
    (returned,) = names["result"].messages[2]["content"]
    assert returned["output"] == "sent 50.0 to XYZ789"

    (tmp_path / "orders.csv").write_text("customer,cups\nAda,3\nGrace,5\nGrace,5\n")
    await a_table(table, names, monkeypatch)
    assert "Grace does." in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "clean.csv").read_text() == "customer,cups\nAda,3\nGrace,5\n"


async def a_table(block: str, names: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model reads rows; a duplicate row is removed after approval; a chat continues the conversation."""
    call = nb.ScriptedModel.call
    model = nb.ScriptedModel(
        [
            call("query_data", sql="SELECT customer, SUM(cups) FROM orders GROUP BY customer"),
            call("save_unique", columns=["customer", "cups"]),
            "Grace does.",
            "Ada.",
        ]
    )
    with monkeypatch.context() as patched:
        patched.setattr(hooks, "model_named", lambda _name: model)
        await execute(block, names)
    run = names["run"]
    await run.settled()
    (question,) = run.interrupts
    assert (question.tool_name, question.input) == (
        "save_unique",
        {"columns": ["customer", "cups"]},
    )
    await run.approve(question)
    assert (await run).text == "Grace does."
    for code in ('run.to_html("report.html")', "analyst.chat(after=run)"):
        assert f"`{code}`" in README
        names["last"] = eval(code, names)
    assert "Grace" in str(run.calls["query_data"][-1].output)
    assert not any(call.failed for calls in run.calls.values() for call in calls)
    assert (await names["last"].send("And who buys least?")).text == "Ada."


def test_hello_world_is_under_12_lines():
    """The first example fits on a slide."""
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) < 12


def test_the_readme_has_exactly_the_two_commands():
    """CI runs the commands of the README."""
    ci = (Path(__file__).parents[2] / ".ci" / "run").read_text(encoding="utf-8")
    assert 'python -m pip install -e ".[demo]" && nbagent demo\n' in README
    assert 'python -m pip install -e ".[test]" && pytest\n' in README
    for extra in ("demo", "test"):
        assert f'\npython -m pip install -e ".[{extra}]"\n' in ci


def test_every_link_of_the_readme_into_the_repository_has_a_target():
    for target in re.findall(r'(?:\]\(|src=")(?!https?:)([^)#"]+)', README):
        assert (Path(__file__).parents[2] / target).is_file(), target
