"""Code and forms have no character that a person who approves them cannot see."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Annotated

import pytest

import nbagent as nb
from nbagent.cli.terminal import Filling, Terminal
from nbagent.core.base import hidden
from nbagent.core.tools.json_schema import form_type
from nbagent.forms.form import Form
from nbagent.notebook.render.reveal import reveal
from nbagent.notebook.view.question_kinds import Types
from nbagent.notebook.view.questions import Question

call = nb.ScriptedModel.call
PAGE = Path(nb.__file__).parent / "frontend/fields/hidden.js"
EVERY = "".join(map(chr, range(sys.maxunicode + 1)))
DEAD = "if False:\n    pass\n\x0cran.append(1)"
HIDDEN = {
    DEAD: "line 3 has U+000C form feed",
    "x = 1 # \u202e": "line 1 has U+202E right-to-left override",
    "x = '\u200b'": "line 1 has U+200B zero width space",
    "# \u2028ran.append(1)": "line 1 has U+2028 line separator",
    "# \rran.append(1)": "line 1 has U+000D carriage return",
    "\ufeffx = 1": "line 1 has U+FEFF zero width no-break space",
    "x = 'e" + "\u0301" * 9 + "'": "line 1 has U+0301 combining acute accent",
}


def _char(escape: re.Match[str]) -> str:
    return chr(int(escape[1] or escape[2], 16))


@pytest.mark.parametrize("code", HIDDEN, ids=ascii)
async def test_code_with_a_hidden_character_never_runs_and_nobody_is_asked(code):
    """The model learns the line and the name, whether Python, SQL or a tool of one's own runs the code."""
    ran: list[str] = []

    def run_sql(sql: Annotated[str, nb.FormHint(widget="code:sql")]) -> str:
        ran.append(sql)
        return "ran"

    tools = [*nb.notebook_tools(code=True), nb.tool(approval=True)(run_sql)]
    steps = [[call("run_python", code=code), call("run_sql", sql=code)], "done"]
    agent = nb.Agent(nb.ScriptedModel(steps), tools=tools)
    run = await agent.run("go", attended=True, show=False).settled()
    assert run.interrupts == []
    for name in ("run_python", "run_sql"):
        assert HIDDEN[code] in run.calls[name][-1].output
    assert ran == []


@pytest.mark.parametrize(
    "code", ["a = 1\r\nb = 2\r\n", "x = '\N{WOMAN}\u200d\N{MICROSCOPE} \u2764\ufe0f'", "\tx = 'é'"]
)
def test_code_with_windows_line_ends_emoji_and_accents_is_unchanged(code):
    assert hidden.checked_code(code) == code


async def test_a_person_cannot_type_hidden_characters_into_code():
    """The error is at the field, and the question stays open."""
    agent = nb.Agent(
        nb.ScriptedModel([call("run_python", code="1"), "done"]), tools=nb.notebook_tools(code=True)
    )
    run = await agent.run("go", attended=True, show=False).settled()
    question = Question.of(
        run.interrupts[0], Types(form_type(agent.tools["run_python"].input_type))
    )
    [error] = question.resolve("approve", {"fields": {"code": {"text": DEAD}}})
    assert error.field == "/code"
    assert "3 has U+000C form feed" in error.message
    with pytest.raises(nb.errors.InvalidAnswer, match="U\\+000C form feed"):
        agent.tools["run_python"].restart(run.interrupts[0], new_input={"code": DEAD})
    assert len(run.interrupts) == 1
    await run.cancel()


def test_the_page_and_the_kernel_reveal_the_same_characters():
    """The page's patterns are those of the kernel, code point by code point."""
    source = PAGE.read_text(encoding="utf-8")
    for name in ("HIDDEN", "EMOJI", "MARK"):
        [text] = re.findall(rf"^const {name} =\s(.*?);$", source, re.MULTILINE | re.DOTALL)
        pattern = "".join(re.findall("`(.*?)`", text))
        as_python = re.sub(r"\\u(\w{4})|\\u\{(\w+)\}", _char, pattern)
        theirs, ours = (re.compile(each) for each in (as_python, getattr(hidden, name)))
        assert theirs.findall(EVERY) == ours.findall(EVERY) != []


@pytest.mark.parametrize("char", [*"\0\x08\xad\u200b\u202e\u2028\u3164\U000e0041"], ids=ascii)
def test_every_hidden_character_is_revealed_and_found(char):
    assert [found for _, found in hidden.hidden_in(f"a{char}b")] == [char]
    assert reveal(f"a{char}b") == f"a⟨U+{ord(char):04X}⟩b"


def test_a_terminal_reveals_the_same_characters(capsys, monkeypatch):
    """Also in the proposed value of a field, which Enter keeps."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    form = Form(str, value="a\u3164b\u202e")
    Terminal().show("pay c\u3164d")
    assert Filling(Terminal(), form).drafts([]) is None
    assert form.submit(None).value == "a\u3164b\u202e"
    shown = capsys.readouterr().err
    assert "pay c⟨U+3164⟩d" in shown
    assert "[a⟨U+3164⟩b⟨U+202E⟩]" in shown
