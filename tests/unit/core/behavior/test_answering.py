"""docs/behavior.md, answers: a bare pause is answered, restarted or rejected, on every driver."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer

call = nb.ScriptedModel.call


class Questions(BaseModel):
    """What the model asks, as the tutorials have it."""

    question: str = Field(description="what to ask")
    choices: list[str] = Field(default_factory=list)
    allow_other: bool = False


class Path(BaseModel):
    """What a tool takes that ignores what else a model says."""

    path: str


class Asker:
    """A tool that only asks, and one that asks for approval by a bare pause."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    def __call__(self, agent: nb.Agent) -> None:
        """Define ask_question and act."""

        @agent.tool
        def ask_question(input: Questions, ctx: nb.ToolContext) -> str:  # noqa: A002 - the dialect
            """Ask the person."""
            self.ran.append(input.question)
            ctx.interrupt()

        @agent.tool
        def act(n: int, ctx: nb.ToolContext) -> str:
            """Act once it may."""
            if not ctx.resumed:
                ctx.interrupt()
            self.ran.append(n)
            return f"did {n}"


FUEL = {"question": "Coal or gas?", "choices": ["coal", "gas"], "allow_other": True}


async def test_c138_a_bare_pause_asks_for_an_answer_and_can_be_run_again(play):
    """The input offers the choices, and the answer is the result. Code can still restart the call."""
    asker = Asker()
    script = [[call("ask_question", **FUEL), call("act", n=1)], "done"]
    s = await play(script, asker)
    assert [(i.expects, i.restartable) for i in s.interrupts] == [("choice", True), ("value", True)]
    assert [i.metadata for i in s.interrupts] == [None, None]
    await s.answer(respond={0: "wood"}, restart={1: {}})
    assert (s.status, s.results) == ("completed", ["wood", "did 1"])
    assert asker.ran == ["Coal or gas?", 1]


async def test_c138_a_value_that_does_not_fit_the_return_type_is_refused(play):
    """Refused before anything runs; the question stays open."""
    s = await play([call("ask_question", **FUEL), "done"], Asker())
    with pytest.raises(InvalidAnswer):
        await s.answer(respond={0: {"fuel": "coal"}})
    await s.answer(respond={0: "gas"})
    assert s.results == ["gas"]


def answered(returns: Any, given: Any, metadata: Any = None) -> Any:
    """The output of a tool with this return type, whose pause ``answers=`` answers."""

    def asks(ctx: nb.ToolContext) -> Any:
        if not ctx.resumed:
            ctx.interrupt(metadata)
        return "ran"

    if returns is not ...:
        asks.__annotations__["return"] = returns
    agent = nb.Agent(nb.ScriptedModel([call("asks"), "done"]), tools=[nb.tool(asks)])
    run = agent.run("go", answers={"asks": given}, attended=False)
    run.wait()
    return run.calls["asks"][-1].output


REFUSED = "A person rejected this call of asks. It was not run."
QUESTION = {"question": "Coal or gas?"}

ANSWERS: list[tuple[Any, Any, Any, Any]] = [
    # the return type, the answer, the metadata, the output
    (str, "b", None, "b"),
    (str, True, None, "ran"),
    (str, False, None, REFUSED),
    (str, nb.Restart(), None, "ran"),
    (str, nb.Reject(), None, REFUSED),
    (int, 1, None, 1),
    (int, True, None, "ran"),
    (None, "b", None, "b"),
    (None, {"any": "thing"}, None, {"any": "thing"}),
    (None, True, None, "ran"),
    (..., "b", None, "b"),
    (..., True, None, "ran"),
    (bool, True, None, True),
    (bool, False, None, False),
    (bool, nb.Restart(), None, "ran"),
    (bool | str, False, None, False),
    (str, "b", QUESTION, "b"),
    (str, True, QUESTION, "ran"),
    (bool, True, QUESTION, True),
    (..., True, nb.Ask("Well?"), True),
    (str, True, nb.Confirm("Well?"), "ran"),
    (str, nb.Respond("b"), nb.Confirm("Well?"), "b"),
]


@pytest.mark.parametrize("row", ANSWERS, ids=repr)
def test_c138_answers_accept_the_same_values_as_the_form(row):
    """Values of the return type; True and False approve or reject, unless the type declares them."""
    returns, given, metadata, output = row
    assert answered(returns, given, metadata) == output


async def test_c138_a_bare_pause_is_approved_by_code():
    """``run.approve`` runs the body, whatever its return type; a choice cannot be approved."""

    @nb.tool
    def sure(ctx: nb.ToolContext) -> bool:
        if not ctx.resumed:
            ctx.interrupt()
        return True

    @nb.tool
    def pick(ctx: nb.ToolContext) -> str:
        ctx.interrupt(nb.Choose("Which?", ["a", "b"]))

    agent = nb.Agent(nb.ScriptedModel([[call("sure"), call("pick")], "done"]), tools=[sure, pick])
    run = agent.run("go", attended=False)
    await run.settled()
    bare, choice = run.interrupts
    await run.approve(bare)
    with pytest.raises(InvalidAnswer, match="Answer it with"):
        run.approve(choice)
    await run.respond(choice, "a")
    await run
    assert [run.calls[name][-1].output for name in ("sure", "pick")] == [True, "a"]


@pytest.mark.parametrize("metadata", [nb.Confirm("Wipe it?", danger=True), {"message": "Wipe it?"}])
async def test_c147_input_from_a_model_never_turns_an_approval_into_a_choice(play, metadata):
    """Input is a question only after a bare pause, and only its declared fields."""

    def define(agent: nb.Agent) -> None:
        @agent.tool
        def wipe(question: str, choices: list[str], ctx: nb.ToolContext) -> str:
            ctx.interrupt(metadata)

        @agent.tool
        def drop(input: Path, ctx: nb.ToolContext) -> str:  # noqa: A002 - the dialect
            ctx.interrupt()

    harmless = {"question": "Like it?", "choices": ["yes", "very"]}
    s = await play([[call("wipe", **harmless), call("drop", path="/", **harmless)], "done"], define)
    assert [(i.expects, i.asking) for i in s.interrupts] == [("approval", None), ("value", None)]
