"""Escapes, bidi and invisible controls of others are never raw in errors, reprs, logs and the terminal."""

from __future__ import annotations

import pickle
import sys
import traceback
import unicodedata
from typing import Any

import pytest

import nbagent as nb
from nbagent import cli
from nbagent.cli import demo
from nbagent.core.base import errors
from nbagent.core.base.controls import escaped

call = nb.ScriptedModel.call
HOSTILE = "\x1b[2Jno\x07\x9b31m\u202edanger\u2066\u200b\ufeff\u2028\r\x00"
TELLING = [c for c in HOSTILE if not c.isprintable()]


def check(*texts: str) -> None:
    """Nothing of it is raw, and the rest is there."""
    for text in texts:
        assert [c for c in TELLING if c in text] == [], repr(text)
        assert "danger" in text


ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.NbagentError)
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_no_error_has_a_raw_control(kind):
    """Whatever was put into its text, and after a way through pickle."""
    error = kind(f"the tool {HOSTILE} failed\n\tbadly")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert "failed\n\tbadly" in str(error)
    check(str(error), repr(error), "".join(traceback.format_exception(error)))


def test_only_controls_are_written_out():
    """Letters, marks, spaces and emoji of any script stay, and so do newline and tab."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category != "Cn":  # what this Python's Unicode does not know may be one in a later
            is_control = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\n\t"
            assert (escaped(character) != character) is is_control, hex(code)
    assert escaped("a\x1b\u202e\ud800") == "a\\x1b\\u202e\\ud800"


@pytest.mark.filterwarnings("ignore")
async def test_no_repr_log_or_error_of_a_run_has_a_raw_control(caplog):
    """Names and values that a model, a tool, a person or a server gave."""
    caplog.set_level("INFO", "nbagent")
    agent = nb.Agent(nb.ScriptedModel([]), name=HOSTILE)

    @agent.tool
    def fails(what: str) -> str:
        raise OSError(what)

    @agent.tool
    def asks(what: str, ctx: nb.ToolContext) -> str:
        ctx.interrupt({"message": what, "choices": [what]})

    def play(*steps: Any) -> Any:
        agent.model = nb.ScriptedModel(list(steps))
        return agent.run("go", attended=False)

    run = play(call("fails", what=HOSTILE), call(HOSTILE, **{HOSTILE: HOSTILE}), HOSTILE)
    result = await run
    check(repr(agent), repr(run), repr(result), repr(run.calls), caplog.text)
    check(run.calls["fails"][0].traceback, repr(run.interrupts) + "danger")

    run = play(call("asks", what=HOSTILE))
    with pytest.raises(nb.HumanInputRequired) as asked:
        await run
    check(repr(run), repr(run.interrupts), str(asked.value), repr(asked.value))
    with pytest.raises(nb.errors.NotPending) as wrong:
        run.reject(HOSTILE)
    check(str(wrong.value))
    run.reject(run.interrupts[0], HOSTILE)
    await run.settled()
    check(repr(run))

    for said in (RuntimeError(HOSTILE), nb.errors.ModelError(HOSTILE)):
        run = play(said)
        with pytest.raises(errors.RunError) as failed:
            await run
        check(str(failed.value), repr(run))
    check(str(nb.review("x", message=HOSTILE)) + "danger")


def test_the_command_line_prints_no_raw_control(capsys, monkeypatch, tmp_path):
    """A folder may be called anything, and a server may answer anything."""

    def fail(*_: Any, **__: Any) -> int:
        raise demo.DemoError(f"cannot write {HOSTILE}")

    monkeypatch.setattr(demo, "demo", fail)
    assert cli.main(["demo", "--dir", str(tmp_path)]) == 1
    check(capsys.readouterr().err)
