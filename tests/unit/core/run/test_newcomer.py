"""What a newcomer got wrong, and what nbagent says now."""

import pytest

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, ToolError, UsageError
from nbagent.core.base.events import ToolFinished
from nbagent.core.run.host import ScriptHost
from nbagent.core.tools.output import current_call

call = nb.ScriptedModel.call


def banker(**options):
    """An agent whose tool asks for approval."""
    ran = []
    agent = nb.Agent(nb.ScriptedModel([call("pay", amount=5), "done"]), **options)

    @agent.tool(approval=True)
    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    return agent, ran


@pytest.mark.parametrize("value", ["yes", "no", "True", 1, 0, {}, "approve"])
async def test_an_approval_takes_true_or_false_and_nothing_else(value):
    """A text in ``answers=`` neither approves nor passes for the tool's result."""
    agent, ran = banker()
    run = agent.run("go", answers={"pay": value})
    with pytest.raises(InvalidAnswer, match="True to run it, False to refuse"):
        await run
    assert (run.status, ran) == ("interrupted", [])


async def test_what_is_needed_is_said_in_the_words_of_answers():
    """The error of an unanswered approval says what to give."""
    agent, _ = banker()
    with pytest.raises(nb.HumanInputRequired, match=r"answers=\{'pay': True\} approves it"):
        await agent.run("go")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (True, "answers= is a list"),
        ("yes", "answers= is a list"),
        ({"pey": True}, "no tool of this"),
    ],
)
async def test_answers_that_answer_nothing_are_refused(answers, said):
    """Before anything starts."""
    agent, _ = banker()
    with pytest.raises(UsageError, match=said):
        agent.run("go", answers=answers)


def test_options_that_cannot_be_meant_are_refused():
    """A typo in an option never passes for its default."""
    with pytest.raises(UsageError, match="on_tool_error"):
        nb.Agent(nb.ScriptedModel(["x"]), on_tool_error="rais")
    with pytest.raises(UsageError, match="a model is a name"):
        nb.Agent(None)
    with pytest.raises(ToolError, match="approval is True, False or a condition"):
        nb.tool(approval="yes")(lambda: None)
    with pytest.raises(ToolError, match="no input 'y'"):
        banker()[0].tool(name="other", approval=True, editable=["y"])(_takes_x)
    agent, _ = banker()
    with pytest.raises(UsageError, match="on_rerun"):
        agent.run("go", on_rerun="kep")
    with pytest.raises(TypeError, match="unexpected keyword argument 'answer'"):
        agent.run_sync("go", answer=[True])
    with pytest.raises(UsageError, match="after= takes a run"):
        agent.run("go", after="abc")


def _takes_x(x: int) -> str:
    return str(x)


async def test_a_figure_both_left_open_and_returned_is_shown_once(monkeypatch):
    """What capture took and what the result shows are one thing."""
    agent = nb.Agent(nb.ScriptedModel([call("plot"), "done"]))

    @agent.tool
    async def plot():
        current_call.get().display({"image/png": "AAAA"})
        current_call.get().display({"text/plain": "another"})
        return "a figure"

    monkeypatch.setattr(ScriptHost, "present", lambda _self, _value: {"image/png": "AAAA"})
    run = agent.run("go")
    await run
    (finished,) = (event for event in run.journal if isinstance(event, ToolFinished))
    assert finished.display == {"image/png": "AAAA"}
    assert finished.displays == [{"text/plain": "another"}]
