"""The card as plain text, as a terminal and nbval read it."""

from nbagent.core.base.events import (
    CallRequested,
    Interrupted,
    ModelResponded,
    Resolved,
    RunCompleted,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from nbagent.core.base.interrupts import Respond
from nbagent.core.base.messages import user
from nbagent.notebook.render import plain
from nbagent.notebook.view.view import SingleRunView

TEXT = "I'll look:\n\n- margin\n- *price*\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nif x:\n    y\n```"


def test_a_run_is_readable_as_text_from_prompt_to_answer():
    """Prompt, text, calls with input, print and result, the question and the decision."""
    sql = CallRequested(id="c", name="run_sql", input={"query": "SELECT 1\nFROM t"})
    ask = CallRequested(id="d", name="ask", input={"question": "Whom?", "choices": ["A", "B"]})
    view = SingleRunView("r")
    for event in (
        RunStarted(
            at=1, agent="analyst", model="m", messages=[user("Which\nregion?")], max_turns=9
        ),
        ModelResponded(at=2, text=TEXT, reasoning="hm", calls=(sql, ask)),
        ToolStarted(at=2, call_id="c", attempt=1, owner="o", input=sql.input),
        ToolFinished(
            at=3,
            call_id="c",
            output=[1],
            printed="one\ntwo\n",
            display={"text/html": "<table><tr><td>1<td>2</table>"},
        ),
        Interrupted(
            at=3,
            id="q",
            call_id="d",
            tool_name="ask",
            kind="question",
            expects="choice",
            input=ask.input,
        ),
    ):
        view.apply(event)
    assert plain.render(view.snapshot()) == (
        "analyst · not answered\n> Which\n> region?\n\n"
        "I'll look:\n\n- margin\n- price\n\na | b\n1 | 2\n\nif x:\n    y\n\n"
        "✓ run_sql\n    query:\n      SELECT 1\n      FROM t\n  | one\n    two\n  → 1 | 2\n\n"
        "? ask: Whom?\n    A / B\n  Not answered."
    )
    view.apply(Resolved(at=9, id="q", call_id="d", resolution=Respond(output="B"), by="form"))
    view.apply(ModelResponded(at=10, text="Done."))
    view.apply(RunCompleted(at=10, text="Done."))
    assert plain.render(view.snapshot()).endswith(
        '✓ ask · you chose B\n    question: Whom?\n    choices: ["A", "B"]\n  → B\n\nDone.'
    )
