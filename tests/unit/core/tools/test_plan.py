"""The plan of a tool or a model, and what agents, flows and tools show of themselves."""

import re
from html import unescape

import pytest

import nbagent as nb
from nbagent.core.base.events import RunFailed, dump, parse
from nbagent.core.tools.call_output import Planned
from nbagent.notebook.render import static
from nbagent.notebook.view.view import SingleRunView

call = nb.ScriptedModel.call
STEPS = ["Read <b>", "Check", "Write"]


async def test_c794_a_plan_is_a_checklist_in_the_header_of_its_card():
    """Of ``ctx.plan`` and ``nb.plan``, the last one counts; steps of a model are text; a wrong number is limited."""
    agent = nb.Agent(
        nb.ScriptedModel(
            [
                call("work"),
                call("plan", steps=STEPS, done=1),
                call("plan", steps=STEPS, done=9),
                ".",
            ]
        ),
        tools=[nb.plan],
    )

    @agent.tool
    def work(ctx: nb.ToolContext) -> str:
        ctx.plan(["One"])
        return "ok"

    run = agent.run("Work")
    plans: list[Planned] = []
    run.subscribe(lambda event: plans.append(event) if event.type == "planned" else None)
    await run
    assert [(plan.steps, plan.done) for plan in plans] == [
        (("One",), 0),
        (tuple(STEPS), 1),
        (tuple(STEPS), 3),
    ]
    ends = [event for event in run.journal if event.type == "tool_finished"]
    assert [(end.plan, end.plan_done) for end in ends] == [
        (plan.steps, plan.done) for plan in plans
    ]
    view = SingleRunView("r")
    for event in run.journal[:-1]:
        view.apply(parse(dump(event)))
    assert [step.state for step in view.head.plan] == ["done"] * 3, "a stored run has its plan"
    view.apply(plans[1])
    head = view.head
    assert [(step.text, step.state) for step in head.plan] == [
        ("Read <b>", "done"),
        ("Check", "now"),
        ("Write", "open"),
    ]
    header = static.render(view.snapshot(), style=False).partition("</header>")[0]
    assert "Read &lt;b&gt;" in header
    text = unescape(re.sub(r"<[^>]*>", "", header))
    assert "1 of 3 steps done Check" in text
    assert "Read <b> (done)Check (in progress)Write (not done)" in text
    view.apply(RunFailed(at=run.journal[-1].at, error="E", message="no"))
    assert [step.state for step in view.head.plan] == ["done", "open", "open"], "it has ended"
    head = view.head
    view.apply(plans[0]._replace(scope=("c",)))
    assert view.head.plan == head.plan, "the plan of an inner agent is not the run's"


@pytest.mark.parametrize(
    ("steps", "done", "error"),
    [
        ("Read", 0, "a list of 1 to 50 strings"),
        ([], 0, "a list of 1 to 50 strings"),
        ([1], 0, "a list of 1 to 50 strings"),
        (["x"] * 51, 0, "a list of 1 to 50 strings"),
        (["x"], 2, "`done` must be an integer from 0 to 1"),
        (["x"], "1", "`done` must be an integer from 0 to 1"),
    ],
)
async def test_c794_a_wrong_plan_is_an_error_of_its_tool(steps, done, error):
    """The error names the argument and its limits."""
    agent = nb.Agent(nb.ScriptedModel([call("work"), "Done."]))

    @agent.tool
    def work(ctx: nb.ToolContext) -> None:
        ctx.plan(steps, done=done)

    with pytest.raises(nb.errors.Misuse, match=re.escape(error)):
        await agent.run("Work")


@pytest.mark.parametrize(
    ("rules", "approval", "asks"),
    [
        ([], False, "pay"),
        ([], True, "pay (asks)"),
        ([], lambda _: True, "pay (may ask)"),
        ([nb.review("p*")], False, "pay (asks)"),
        ([nb.review("p*", when=lambda _: True)], False, "pay (may ask)"),
        ([nb.allow("pay")], True, "pay"),
        ([nb.allow("pay", when=lambda _: True)], True, "pay (may ask)"),
        ([nb.deny("pay")], True, "pay (denied)"),
        ([nb.deny("pay", when=lambda _: True)], False, "pay (may be denied)"),
        ([nb.review("other")], False, "pay"),
    ],
)
def test_c795_an_agent_shows_its_model_tools_and_which_of_them_ask(rules, approval, asks):
    """As HTML, whose text is escaped; a tool and a flow show themselves, too."""

    @nb.tool(approval=approval)
    def pay(to: str) -> str:
        """Pay <i>somebody</i>."""
        return to

    @nb.flow(tools=[pay], policy=rules)
    async def monthly() -> None:
        """Pay all bills."""

    agent = nb.Agent(
        nb.ScriptedModel([]),
        name="<clerk>",
        tools=[pay],
        policy=rules,
        budget=nb.Budget(cost=2.5),
    )
    for owner in (agent, monthly):
        assert f">{asks}</td>" in owner._repr_html_()
    html = agent._repr_html_()
    assert "<clerk>" not in html
    for part in ("Agent &lt;clerk&gt;", ">scripted<", "cost: 2.5", *map(str, rules)):
        assert part in html
    assert "Pay all bills." in monthly._repr_html_()
    assert "Pay &lt;i&gt;somebody&lt;/i&gt;." in pay._repr_html_()
