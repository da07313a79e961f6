"""The tracebacks of nbagent's errors in a real kernel are short."""

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
    'nb.Agent("antropic:claude-sonnet-4-5")': "Did you mean",
    'nb.Agent("demo").run_sync(["x", __import__("pathlib").Path("none.pdf")])': "does not exist",
    'nb.Budget(cost="1")': "finite number",
    "nb.Agent()": "nb.Agent() needs 'model', as in nb.Agent(model)",
    'nb.Agent("demo", instruction="Be brief")': "Did you mean 'instructions'",
    'nb.Agent(nb.ScriptedModel(["1"]), output_type=[int])': "list[int]",
    'nb.Agent(nb.ScriptedModel(["1"]), output_type="City")': "got the string 'City'",
    'nb.Agent(nb.ScriptedModel(["one"]*3), output_type=int).run_sync("go")': "does not match",
}
RAISES = (
    'failing(nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("divide", x=1)]), tools=[divide], '
    'on_tool_error="raise"))'
)


def test_an_error_shows_the_lines_of_the_person_and_none_of_nbagent(tmp_path, monkeypatch):
    """A mistake shows the cell's line and what to do; a failing tool shows its own lines too."""
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


SLOW = """
import _thread, asyncio

def slow():
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("sleep"), "done"]))

    @agent.tool
    async def sleep() -> str:
        "Sleep."
        _thread.start_new_thread(print, ("sleeping",))  # past the card, into the cell
        await asyncio.sleep(600)

    return agent
"""


def test_a_run_that_the_kernel_stops_says_so_in_one_line():
    """After Jupyter's stop button, no frames of nbagent or asyncio are shown."""
    with front_end(NEWEST) as kernel:
        kernel.must_run(SETUP + SLOW)
        kernel.seen.clear()
        request = kernel.send('await slow().run("go")')
        kernel.until_printed("sleeping")
        kernel.interrupt()
        kernel.finish(request)
        assert _plain(kernel.errors()) == "KeyboardInterrupt: the run was cancelled"


def test_a_failure_shown_in_the_card_is_one_line_below_it():
    """Without a person, a failed run is shown and its cell fails, but the error is not shown twice."""
    code = 'nb.Agent(nb.ScriptedModel([RuntimeError("broke")])).run("go")'
    with front_end(NEWEST) as kernel:
        kernel.must_run(SETUP)
        kernel.seen.clear()
        outcome = kernel.finish(kernel.send(code, allow_stdin=False))
        assert outcome.status == "error"
        assert "broke" in str(outcome.displays)
        assert _plain(kernel.errors()) == "ModelError: RuntimeError: broke"


def test_a_question_mark_shows_the_options():
    """The kernel answers ``agent?``, ``agent.tool?`` and ``agent.run?``."""
    with front_end(NEWEST) as kernel:
        kernel.must_run('import nbagent as nb\nagent = nb.Agent("demo")')
        for name, options in (
            ("agent", ("max_turns:", "<Agent agent on")),
            ("agent.tool", ("approval: ", "preview:", "agent.tool(")),
            ("agent.run", ("answers:", "prompt:", "agent.run(")),
        ):
            told = kernel.inspect(name)
            assert not [option for option in options if option not in told], told
            assert " at 0x" not in told


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def _shown(kernel, code: str) -> str:
    kernel.seen.clear()
    kernel.run(code)
    return re.sub(r"\x1b\[[0-9;]*m", "", kernel.errors())
