"""Questions that a tool asks while it runs, in a live card."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

import nbagent as nb
from nbagent.core.run.run import session_of
from nbagent.notebook.cards.run_card import RunCard
from nbagent.notebook.view.questions import Question


class Trip(BaseModel):
    days: Annotated[int, nb.FormHint(widget="slider", order=2)]
    why: Annotated[str, nb.FormHint(widget="textarea", order=1)] = ""


async def test_a_question_in_the_middle_of_a_tool_is_drawn_with_the_hints_of_its_type() -> None:
    """The journal stores only the schema for the model, which has no hints."""

    @nb.tool
    async def plan(ctx: nb.ToolContext) -> str:
        """Plan a trip."""
        trip = await ctx.ask("How long?", reply=Trip)
        return f"{trip.days} days"

    run = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("plan"), "fine"]), tools=[plan]).run(
        "Go"
    )
    await run.settled()
    card = RunCard(run)
    (waiting,) = run.interrupts
    fields = _fields(card.view.question(waiting.id))
    assert [(each["key"], each["hint"]["widget"]) for each in fields] == [
        ("why", "textarea"),
        ("days", "slider"),
    ]
    asked = next(event for event in run.journal if event.type == "interrupted")
    stored = asked.model_copy(update={"id": "of another process"})
    assert [each["key"] for each in _fields(Question.of(stored))] == ["days", "why"]
    await run.respond(waiting, {"days": 3})
    assert (await run).text == "fine"
    card.detach()
    card.close()


def _fields(question: Question | None) -> list[dict[str, Any]]:
    assert question is not None
    assert question.form is not None
    fields: list[dict[str, Any]] = question.form.spec()["root"]["fields"]
    return fields


async def test_a_tool_that_interrupts_with_ask_is_answered_in_its_place() -> None:
    """The return annotation types the form; ``answers=`` sets the value; code can restart the call."""

    @nb.tool
    def rate(film: str, ctx: nb.ToolContext) -> int:
        """Rate a film."""
        ctx.interrupt(nb.Ask(message=f"How good was {film}?"))

    def agent() -> nb.Agent:
        script = [nb.ScriptedModel.call("rate", film="Ran"), "noted"]
        return nb.Agent(nb.ScriptedModel(script), tools=[rate])

    run = agent().run("Go")
    await run.settled()
    (waiting,) = run.interrupts
    question = Question.of(session_of(run).state.open[0])
    assert (question.expects, question.title) == ("value", "How good was Ran?")
    assert [each.name for each in question.actions] == ["submit", "reject", "approve"]
    assert question.resolve("submit", {"text": "5"}) == nb.Respond(output=5)
    assert waiting.restartable
    await run.resolve(waiting, nb.Respond(output=5))
    assert (await run).text == "noted"
    given = agent().run("Go", answers={"rate": 4}, attended=False)
    await given
    assert given.calls["rate"][0].output == 4
