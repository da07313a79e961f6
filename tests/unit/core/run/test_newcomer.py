"""Mistakes that newcomers made, and nbagent's messages for them."""

import json
import sys
import typing
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, ToolError, UsageError
from nbagent.core.base.events import ToolFinished
from nbagent.core.run.host import ScriptHost
from nbagent.core.tools.call_output import current_call

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
async def test_an_approval_accepts_only_true_or_false(value):
    """Other values in ``answers=`` neither approve nor become the tool's result."""
    agent, ran = banker()
    run = agent.run("go", answers={"pay": value})
    with pytest.raises(InvalidAnswer, match="True to run it, False to reject"):
        await run
    assert (run.status, ran) == ("interrupted", [])


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (True, "answers= must be a list"),
        ("yes", "answers= must be a list"),
    ],
)
async def test_answers_that_match_nothing_are_refused(answers, said):
    """The error comes before anything starts."""
    agent, _ = banker()
    with pytest.raises(UsageError, match=said):
        agent.run("go", answers=answers)


async def test_an_unknown_name_in_answers_is_refused():
    """The error comes before the run starts if no body could call a tool of that name."""
    agent = nb.Agent(nb.ScriptedModel(["x"]), tools=[nb.interrupt_tool("choose", output=str)])
    with pytest.raises(
        UsageError, match=r"names 'chose', which is not a tool .*Did you mean 'choose'"
    ):
        agent.run("go", answers={"chose": "a"})


@pytest.mark.parametrize("answers", [{"pay": True}, [True]], ids=["by name", "in order"])
@pytest.mark.parametrize("kind", ["tool", "flow", "call"])
async def test_answers_reach_tools_started_by_a_body_by_the_name_in_the_error(kind, answers):
    """An agent or tool called inside a body of a tool or flow gets answers by its own name."""
    inner, ran = banker(name="inner")

    async def body(ctx: nb.ToolContext) -> str:
        if kind == "call":
            return await ctx.call(inner.tools["pay"], amount=5)
        return (await inner.run("pay")).text

    def begin(**options):
        inner.model = nb.ScriptedModel([call("pay", amount=5), "done"])
        if kind != "tool":
            return nb.flow(body).with_options(**options).run()
        return nb.Agent(nb.ScriptedModel([call("body"), "done"]), tools=[body]).run("go", **options)

    with pytest.raises(nb.HumanInputRequired, match=r"to approve, use answers=\{'pay': True\}"):
        await begin()
    await begin(answers=answers)
    assert ran == [5]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"pey": True}, "answers= names 'pey', but no question has that name"),
        ([], None),
        (["unused", True], None),
    ],
)
async def test_unused_answers_are_listed_where_one_is_missing(answers, said):
    """The unused name is listed next to the open question; used-up answers are not listed."""
    agent, ran = banker()
    run = agent.run("go", answers=answers)
    with pytest.raises(nb.NbagentError, match=said) as caught:
        await run
    assert ("no question has that name" in str(caught.value)) is (said is not None)
    assert (run.status, ran) == ("interrupted", [])


async def test_a_list_of_answers_that_is_used_up_says_so():
    """The next answer belongs at the list's end, not into a dict."""

    @nb.flow
    async def twice(ctx: nb.ToolContext) -> str:
        return await ctx.ask("First?") + await ctx.ask("Second?")

    with pytest.raises(nb.HumanInputRequired, match=r"Second\?.*\n.*list of answers= had 1,.* end"):
        await twice.with_options(answers=["a"]).run()


@pytest.mark.parametrize("by", ["approval", "rule", "rule for any"])
async def test_a_failing_condition_is_reported_with_its_question(by):
    """The question's note names the kind of error, and no value."""
    wrong = lambda amount: amount > 100  # noqa: E731 - it is given the whole input
    ran = []

    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    options = {"approval": wrong} if by == "approval" else {}
    rules = {
        "approval": [],
        "rule": [nb.allow("pay", when=wrong)],
        "rule for any": [nb.review(when=wrong)],
    }
    agent = nb.Agent(nb.ScriptedModel([call("pay", amount=5), "done"]), policy=rules[by])
    agent.tool(**options)(pay)
    run = agent.run("go")
    with pytest.raises(nb.HumanInputRequired, match=r"condition.* raised TypeError"):
        await run
    assert "raised TypeError" in run.interrupts[0].note
    assert ran == []
    run.approve(run.interrupts[0])
    await run
    assert ran == [5]


def test_unknown_options_are_refused():
    """A misspelt option never counts as its default."""
    with pytest.raises(UsageError, match="on_tool_error"):
        nb.Agent(nb.ScriptedModel(["x"]), on_tool_error="rais")
    with pytest.raises(ToolError, match="no input 'y'"):
        banker()[0].tool(name="other", approval=True, editable=["y"])(_takes_x)
    agent, _ = banker()
    with pytest.raises(UsageError, match="on_rerun"):
        agent.run("go", on_rerun="kep")
    with pytest.raises(TypeError, match="unexpected keyword argument 'answer'"):
        agent.run_sync("go", answer=[True])
    with pytest.raises(UsageError, match="after= must be a run"):
        agent.run("go", after="abc")


def _takes_x(x: int) -> str:
    return str(x)


async def test_a_figure_both_left_open_and_returned_is_shown_once(monkeypatch):
    """The captured figure and the returned figure are the same object."""
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


class Table:
    """What a data scientist has in hand: no JSON, and columns."""

    columns = ("a", "b")

    def to_dict(self, orient: str) -> list[dict[str, int]]:
        """As pandas does."""
        return [{orient: 1}]


def _takes_a_table(path: str, table: Table) -> str:
    return path


async def _keeps_a_table(ctx):
    await ctx.step("load", Table)


async def _asks_for_a_table(ctx):
    await ctx.ask("Which?", reply=Table)


async def _calls_with_a_table(ctx):
    await ctx.call(_takes_x, x=Table())


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (
            lambda: nb.flow(_takes_a_table),
            r"'_takes_a_table' has .* 'table' of type Table: .*a path",
        ),
        (
            lambda: nb.tool(_takes_a_table),
            r"'_takes_a_table' has .* 'table' of type Table: .*a path",
        ),
        (lambda: nb.flow(_keeps_a_table).run_sync(), r"step 'load'.*to_dict\('records'\)"),
        (lambda: nb.flow(_asks_for_a_table).run_sync(), r"reply= .* Table: .*a path"),
        (lambda: nb.flow(_calls_with_a_table).run_sync(), r"_takes_x is not JSON.*a path"),
    ],
)
def test_a_table_in_a_place_for_plain_data_is_refused_with_an_alternative(do, said):
    """The error names the parameter and suggests a path, an id or rows; it does not mention schemas."""
    with pytest.raises(nb.NbagentError, match=said) as caught:
        do()
    assert "pydantic" not in str(caught.value)
    assert "\n" not in str(caught.value)


class Cat(BaseModel):
    """One of two kinds, that does not say its kind."""

    kind: str


class OldDict(typing.TypedDict):
    """Before Python 3.12 pydantic wants that of typing_extensions."""

    a: int


class Dog(Cat):
    """The other one."""


def _taking(type_):
    def takes(x): ...

    takes.__annotations__ = {"x": type_}
    return takes


def _asking(type_):
    async def asks(ctx):
        await ctx.ask("Which?", reply=type_)

    return asks


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        (Annotated[Cat | Dog, Field(discriminator="kind")], "kind"),
        (OldDict, "typing_extensions.TypedDict"),
    ],
)
def test_a_wrong_type_annotation_is_reported_with_its_reason(type_, said):
    """The error has pydantic's reason, and does not claim that the type has no JSON."""
    if type_ is OldDict and sys.version_info >= (3, 12):
        assert nb.tool(_taking(type_)).input_schema["properties"]["x"]
        return
    for make in (lambda: nb.tool(_taking(type_)), nb.flow(_asking(type_)).run_sync):
        with pytest.raises(nb.NbagentError, match=said) as caught:
            make()
        assert "a path" not in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_a_numpy_number_is_stored_as_that_number():
    """Such a number comes from ``Series.sum()``: as a step's value, a flow's input, or an answer."""
    numpy = pytest.importorskip("numpy")

    @nb.flow
    async def count(rows: int, ctx: nb.ToolContext) -> int:
        kept = await ctx.step("sum", lambda: {"n": [numpy.int64(3)], "yes": numpy.bool_(True)})
        asked = await ctx.ask("More?", reply=int)
        return rows + kept["n"][0] + asked

    run = count.with_options(answers=[numpy.int64(4)]).run(numpy.int64(2))
    assert (await run).output == 9


@pytest.mark.parametrize("work", [2, "coroutine"])
@pytest.mark.parametrize("sync", [False, True])
def test_a_step_that_gets_a_value_asks_for_a_function(work, sync):
    """The mistake is to pass a value or the coroutine of a called async function."""

    async def load() -> int:
        return 2

    def given():
        return load() if work == "coroutine" else work

    async def waits(ctx: nb.ToolContext) -> int:
        return await ctx.step("load", given())

    def waits_not(ctx: nb.ToolContext) -> int:
        return ctx.step_sync("load", given())

    with pytest.raises(nb.NbagentError, match=r"step 'load' must be a function.*lambda: …"):
        nb.flow(waits_not if sync else waits).run_sync()


def test_a_run_option_among_the_inputs_of_a_flow_names_its_place():
    """``answers=`` and other run options belong into ``with_options``."""
    with pytest.raises(
        TypeError, match=r"'answers'. This is a run option: use f\.with_options\(answers=…\)"
    ):
        nb.flow(name="f")(_takes_x).run(3, answers=[True])


class Sight(BaseModel):
    """One row of an answer."""

    name: str
    height: float


@dataclass
class Town:
    """The same as a dataclass."""

    name: str
    people: int


@pytest.mark.parametrize(
    ("output_type", "answer", "columns", "rows"),
    [
        (list[Sight], [{"name": "Tower", "height": 3.5}], ["name", "height"], [["Tower", 3.5]]),
        (Town, {"name": "Rome", "people": 3}, ["name", "people"], [["Rome", 3]]),
        (dict[str, int], {"a": 1, "b": 2}, ["a", "b"], [[1, 2]]),
        (list[int], [1, 2], ["output"], [[1], [2]]),
        (list[Sight], [], [], []),
        (None, "Hello.", ["output"], [["Hello."]]),
    ],
)
async def test_a_typed_answer_is_a_table_of_its_fields(
    output_type: Any, answer: Any, columns: list[str], rows: list[list[Any]]
) -> None:
    """``result.to_frame()`` has a row for each item and a column for each field."""
    said = answer if isinstance(answer, str) else json.dumps(answer)
    result = await nb.Agent(nb.ScriptedModel([said]), output_type=output_type).run("go")
    table = result.to_frame()
    assert (list(table.columns), table.to_numpy().tolist()) == (columns, rows)


def test_answers_for_an_agent_that_is_its_own_tool_name_one_of_its_tools():
    """An unknown name is refused with the names of all its tools."""
    agent = nb.Agent(nb.ScriptedModel(["done"]), name="self")
    agent.add(agent.as_tool())
    with pytest.raises(nb.errors.UsageError, match=r"names 'nope'.* Its tools: self"):
        agent.run_sync("go", answers={"nope": True})
    assert agent.run_sync("go", answers={"self": True}).text == "done"
