"""A question in a terminal, as it is shown there."""

from __future__ import annotations

from typing import Any

import pytest

import nbagent as nb
from nbagent.cli.asking import ask_question, no_errors, view_of
from nbagent.cli.terminal import Terminal

SAID = [
    {"to": "ABC123", "amount": 5.5},
    {"to": "Bob Smith", "amount": True},
    {"to": "5", "amount": None},
    {"to": "Bob", "amount": {"euros": [1]}},
]
SHOWN_EXACTLY = {
    "a letter that looks like another": {"to": "B\u043eb"},
    "a hidden character": {"to": "Bob\u200b"},
    "blanks at the end": {"to": "Bob "},
    "two blanks": {"to": "Bob  Smith"},
    "two lines": {"to": "Bob\namount: 1"},
    "a text that looks like a value": {"to": "null"},
    "a long text": {"to": "B" * 80},
}  # fmt: skip


class Shown(Terminal):
    """A terminal whose person skips the question."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, text: str = "") -> None:
        self.lines.append(text)

    def pick(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("input_", "again"),
    [*((each, False) for each in SAID), *((each, True) for each in SHOWN_EXACTLY.values())],
    ids=[*map(str, SAID), *SHOWN_EXACTLY],
)
async def test_an_input_is_shown_again_as_json_where_its_lines_can_be_misread(input_, again):
    """What runs is what was shown; a plain input is shown once."""
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay", **input_), "done"]))

    @agent.tool(approval=True)
    def pay(to: str, amount: Any = 1) -> str:
        """Pay."""
        return "paid"

    run = agent.run("go", attended=True)
    await run.settled()
    terminal = Shown()
    interrupt = run.interrupts[0]
    question = view_of(run._session.journal, lambda _name: None).question(interrupt.id)
    assert ask_question(terminal, question, interrupt, no_errors) is None
    text = "\n".join(terminal.lines)
    assert "to:" in text
    assert ("exactly:" in text) == again, text
    await run.cancel()
