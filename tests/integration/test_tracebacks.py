"""Errors of ours in a real kernel: how much of them a person has to read."""

from __future__ import annotations

import re

from tests.integration.kernels import NEWEST, front_end

SETUP = """
import nbagent as nb

def divide(x: int) -> float:
    "Divide."
    return x / 0

def failing(agent):
    return agent.run_sync("go")
"""
MISTAKES = {
    'await nb.Agent("gpt-5.1").run("hi")': "needs an API key",
    'nb.Agent("gpt-5.1").run_sync("hi")': "needs an API key",
    'nb.Agent("antropic:claude-sonnet-4-5")': "did you mean",
    'nb.Agent("demo").run_sync(["x", __import__("pathlib").Path("none.pdf")])': "no such file",
    'nb.Budget(cost="1")': "finite number",
    'nb.Agent(nb.ScriptedModel(["1"]), output_type=[int])': "list[int]",
    'nb.Agent(nb.ScriptedModel(["1"]), output_type="City")': "and this is the text 'City'",
    'nb.Agent(nb.ScriptedModel(["one"]*3), output_type=int).run_sync("go")': "does not fit",
}
RAISES = (
    'failing(nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("divide", x=1)]), tools=[divide], '
    'on_tool_error="raise"))'
)


def test_an_error_shows_the_lines_of_the_person_and_none_of_ours(tmp_path, monkeypatch):
    """A mistake takes the cell's own line and what to do; a tool that failed its own lines, too."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with front_end(NEWEST) as kernel:
        kernel.must_run(SETUP)
        for code, told in MISTAKES.items():
            shown = _shown(kernel, code)
            assert told in shown.splitlines()[-1]
            assert code in shown
            assert len(shown.splitlines()) <= 12, shown
            assert "nbagent/" not in shown
        shown = _shown(kernel, RAISES)
        assert "return x / 0" in shown
        assert 'return agent.run_sync("go")' in shown
        assert "nbagent/" not in shown
        kernel.must_run("%xmode Verbose")
        assert "nbagent/" in _shown(kernel, RAISES)


def _shown(kernel, code: str) -> str:
    kernel.seen.clear()
    kernel.run(code)
    return re.sub(r"\x1b\[[0-9;]*m", "", kernel.errors())
