"""Tools: every way to declare them, their schemas, and their results."""

from __future__ import annotations

import asyncio
import enum
import functools
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, Field

import nbagent as nb
from nbagent.core.base.errors import InvalidAnswer, ToolError
from nbagent.core.tools.result_text import MAX_TEXT, for_model
from nbagent.models.scripted import ScriptedCall

call = nb.ScriptedModel.call


class Order(BaseModel):
    """What to order."""

    dish: str
    count: int = 1


async def outcome(tool: Any, /, **arguments: Any) -> Any:
    """The output that the model gets."""
    model = nb.ScriptedModel([call(tool.name, **arguments), "done"])
    agent = nb.Agent(model, tools=[tool])
    response = await agent.generate("go")
    return response.messages[2]["content"][0]["output"]


# --- declaring


def plainly(dish: str, count: int = 1) -> str:
    """Order a dish."""
    return f"{count} {dish}"


async def asynchronously(dish: str, count: int = 1) -> str:
    """Order a dish."""
    return f"{count} {dish}"


def with_context(dish: str, ctx: nb.ToolContext, count: int = 1) -> str:
    """Order a dish."""
    assert isinstance(ctx, nb.ToolContext)
    return f"{count} {dish}"


def with_bare_context(dish: str, ctx, count: int = 1) -> str:
    """Order a dish."""
    assert isinstance(ctx, nb.ToolContext)
    return f"{count} {dish}"


def with_context_by_type(context: nb.ToolContext, dish: str, count: int = 1) -> str:
    """Order a dish."""
    assert isinstance(context, nb.ToolContext)
    return f"{count} {dish}"


def keyword_only(*, dish: str, count: int = 1) -> str:
    """Order a dish."""
    return f"{count} {dish}"


def whole(input: Order) -> str:  # noqa: A002 - the name is what is tested
    """Order a dish."""
    return f"{input.count} {input.dish}"


async def whole_with_context(input: Order, ctx: nb.ToolContext) -> str:  # noqa: A002
    """Order a dish."""
    return f"{input.count} {input.dish}"


def pieces(dish: str, count: int = 1) -> Iterator[str]:
    """Order a dish."""
    yield f"{count} "
    yield dish


async def async_pieces(dish: str, count: int = 1) -> AsyncIterator[str]:
    """Order a dish."""
    yield f"{count} "
    yield dish


def generator_with_result(dish: str, count: int = 1) -> Iterator[Any]:
    """Order a dish."""
    yield "thinking"
    yield nb.ToolResult(f"{count} {dish}")


class Kitchen:
    """A class with a method."""

    def method(self, dish: str, count: int = 1) -> str:
        """Order a dish."""
        return f"{count} {dish}"


FORMS = [
    plainly,
    asynchronously,
    with_context,
    with_bare_context,
    with_context_by_type,
    keyword_only,
    whole,
    whole_with_context,
    pieces,
    async_pieces,
    generator_with_result,
    Kitchen().method,
]


def declared(fn: Any, how: str) -> Any:
    """The function as a tool, declared in this way."""
    agent = nb.Agent(nb.ScriptedModel([]))
    match how:
        case "@nb.tool":
            return nb.tool(fn)
        case "@nb.tool()":
            return nb.tool()(fn)
        case "@agent.tool":
            return agent.tool(fn)
        case "@agent.tool()":
            return agent.tool()(fn)
        case "agent.add":
            return agent.add(fn)
        case _:
            return nb.Agent(nb.ScriptedModel([]), tools=[fn]).tools[fn.__name__]


WAYS = ["@nb.tool", "@nb.tool()", "@agent.tool", "@agent.tool()", "agent.add", "tools="]


@pytest.mark.parametrize(
    ("fn", "how"), [*((fn, WAYS[0]) for fn in FORMS), *((FORMS[0], how) for how in WAYS[1:])]
)
async def test_every_form_of_function_is_a_tool_every_way(fn, how):
    """Same name, description, schema and result; the context is not in the schema."""
    tool = declared(fn, how)
    assert (tool.name, tool.description, tool.__doc__) == (
        fn.__name__,
        "Order a dish.",
        "Order a dish.",
    )
    schema = tool.input_schema
    assert {k: v["type"] for k, v in schema["properties"].items()} == {
        "dish": "string",
        "count": "integer",
    }
    assert schema["required"] == ["dish"]
    assert await outcome(tool, dish="soup", count=2) == "2 soup"
    assert await outcome(tool, dish="soup") == "1 soup"


def test_a_tool_stays_a_plain_function():
    """Sync or async, with its own name and signature."""
    assert nb.tool(plainly)("soup", count=2) == "2 soup"
    assert asyncio.run(nb.tool(asynchronously)("soup")) == "1 soup"
    assert nb.tool(plainly).__wrapped__ is plainly
    assert list(nb.tool(pieces)("soup")) == ["1 ", "soup"]


def test_a_tool_without_a_body_says_so_when_called():
    """Only a person answers such a tool."""
    with pytest.raises(ToolError, match="'ask' has no function to call"):
        nb.interrupt_tool("ask")()


def test_name_and_description_can_be_passed():
    """Instead of the function's own."""
    tool = nb.tool(name="order", description="Get food.")(plainly)
    assert (tool.name, tool.description, tool.spec.name) == ("order", "Get food.", "order")


def test_attributes_of_a_function_do_not_become_attributes_of_the_tool():
    """A ``name`` attribute does not rename the tool."""

    def fn(x: int) -> int:
        return x

    fn.name = "something else"
    assert nb.tool(fn).name == "fn"


def test_types_of_the_defining_scope_are_found():
    """Annotations are strings under ``from __future__ import annotations``."""

    class Local(BaseModel):
        n: int

    Size = Literal["s", "m"]  # noqa: N806 - a type

    @nb.tool
    def one(local: Local, size: Size = "m") -> Local:
        return local

    agent = nb.Agent(nb.ScriptedModel([]))

    @agent.tool()
    def two(local: Local, size: Size = "m") -> Local:
        return local

    def three(local: Local, size: Size = "m") -> Local:
        return local

    for tool in (one, two, agent.add(three)):
        assert tool.input_schema["properties"]["size"]["enum"] == ["s", "m"]
        assert tool.output_schema["title"] == "Local"


class Color(enum.Enum):
    """A color."""

    RED = "red"


@dataclass
class Point:
    """A point."""

    x: int


async def test_rich_annotations_are_validated_and_described():
    """Field, Annotated, enums, dataclasses, unions, defaults."""
    seen: dict[str, Any] = {}

    @nb.tool
    def rich(
        age: Annotated[int, Field(ge=0, description="in years")],
        color: Color,
        point: Point,
        tags: list[str] | None = None,
        where: Annotated[str, "no schema in this"] = "here",
        size: int = Field(3, le=5),
    ) -> None:
        seen.update(age=age, color=color, point=point, tags=tags, where=where, size=size)

    properties = rich.input_schema["properties"]
    assert properties["age"] == {
        "description": "in years",
        "minimum": 0,
        "title": "Age",
        "type": "integer",
    }
    assert properties["size"]["default"] == 3
    assert await outcome(rich, age=3, color="red", point={"x": 1}) is None
    assert seen == {
        "age": 3,
        "color": Color.RED,
        "point": Point(1),
        "tags": None,
        "where": "here",
        "size": 3,
    }
    assert "age" in await outcome(rich, age=-1, color="red", point={"x": 1})


def no_args(*args: int) -> None:
    """Take anything."""


def no_kwargs(**kwargs: int) -> None:
    """Take anything."""


def positional(a: int, /) -> None:
    """Take one."""


def unknown(a: Nowhere) -> None:  # noqa: F821
    """Name a type nobody knows."""


def no_json(a: sqlite3.Connection) -> None:
    """Take what no model can give."""


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (no_args, r"'no_args' takes \*args"),
        (no_kwargs, r"'no_kwargs' takes \*\*kwargs"),
        (positional, "'positional' takes a"),
        (unknown, "'unknown' .*Nowhere"),
        (no_json, "'no_json' has a parameter"),
        (functools.partial(plainly, "soup"), "from a function|not a tool"),
        (5, "from a function|not a tool"),
        (Kitchen, "from a function|not a tool"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused_where_it_is_declared(fn, says):
    """Each way of declaring raises an error that names the tool."""
    agent = nb.Agent(nb.ScriptedModel([]))
    for declare in (nb.tool, agent.tool, agent.add):
        with pytest.raises(ToolError, match=says):
            declare(fn)
    assert agent.tools == {}


def test_two_tools_with_the_same_name_are_refused_outside_of_a_notebook():
    """In ``__main__`` a cell that is run again replaces its tool, with or without a body."""
    agent = nb.Agent(nb.ScriptedModel([]), tools=[plainly])
    with pytest.raises(ToolError, match="already has a tool 'plainly'"):
        agent.add(nb.tool(name="plainly")(asynchronously))
    cell = {"nb": nb, "agent": agent, "__name__": "__main__"}
    text = (
        "@agent.tool\ndef again() -> int:\n    return {n}\n"
        "agent.add(nb.interrupt_tool('question', description='{n}'))"
    )
    exec(text.format(n=1), cell)
    exec(text.format(n=2), cell)
    assert agent.tools["again"]() == 2
    with pytest.raises(
        ToolError, match="already has a tool 'again'"
    ):  # in one list it is a mistake
        exec("nb.Agent(agent.model, tools=[again, nb.tool(name='again')(lambda: 3)])", cell)
    assert agent.tools["question"].description == "2"


def test_adding_the_same_tool_twice_is_allowed():
    """Adding is idempotent."""
    tool = nb.tool(plainly)
    agent = nb.Agent(nb.ScriptedModel([]), tools=[tool])
    assert agent.add(tool) is tool


# --- input from the model


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "dish: Field required"),
        ({"dish": 5}, "dish: Input should be a valid string"),
        ({"dish": "x", "count": "many"}, "count"),
        ({"dish": "x", "extra": 1}, "extra: Extra inputs are not permitted"),
    ],
)
async def test_input_that_does_not_fit_is_sent_back_to_the_model(arguments, says):
    """The error is the call's result; the body never runs."""
    ran = []

    @nb.tool
    def order(dish: str, count: int = 1) -> str:
        ran.append(dish)
        return dish

    text = await outcome(order, **arguments)
    assert "do not match the schema of order" in text
    assert says in text
    assert ran == []


RAW = [
    "{",
    "[1]",
    "5",
    '"x"',
    '{"dish": NaN}',
    '{"dish": 1e999}',
    '{"dish": "\\ud800"}',
    "[" * 100_000,
]


@pytest.mark.parametrize("raw", RAW, ids=lambda r: r[:20])
async def test_arguments_that_are_not_a_json_object_are_sent_back_to_the_model(raw):
    """The history has the raw text, and a server still accepts it."""
    ran = []

    @nb.tool
    def order(dish: Any) -> str:
        ran.append(dish)
        return "x"

    model = nb.ScriptedModel([ScriptedCall("order", raw=raw), "done"])
    response = await nb.Agent(model, tools=[order]).generate("go")
    asked = response.messages[1]["content"][0]
    assert asked["input"] == {}
    assert asked["raw"] == raw
    assert "not a JSON object" in response.messages[2]["content"][0]["output"]
    assert ran == []
    json.dumps(response.messages[2]).encode()


async def test_no_arguments_at_all_are_an_empty_object():
    """Some servers send an empty text."""

    @nb.tool
    def now() -> str:
        return "noon"

    model = nb.ScriptedModel([ScriptedCall("now", raw=""), "done"])
    response = await nb.Agent(model, tools=[now]).generate("go")
    assert response.messages[2]["content"][0]["output"] == "noon"


async def test_an_unknown_tool_is_reported_with_the_known_ones():
    """So that the model can correct itself."""
    model = nb.ScriptedModel([call("nope"), "done"])
    response = await nb.Agent(model, tools=[plainly]).generate("go")
    assert "'nope'" in response.messages[2]["content"][0]["output"]
    assert "plainly" in response.messages[2]["content"][0]["output"]


async def test_a_validator_that_raises_is_a_failure_of_that_call():
    """The run continues."""

    class Touchy(BaseModel):
        n: int

        def model_post_init(self, _context: Any) -> None:
            raise KeyError("touchy")

    @nb.tool
    def take(input: Touchy) -> int:  # noqa: A002
        return input.n

    assert "KeyError" in await outcome(take, n=1)


# --- results


class Unprintable:
    """A result whose own methods raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


FRAME = pd.DataFrame({"a": range(5000), "b": ["x" * 20] * 5000})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ("", ""),
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (Order(dish="x"), {"dish": "x", "count": 1}),
        ([Order(dish="x")], [{"dish": "x", "count": 1}]),
        (Point(1), {"x": 1}),
        (Color.RED, "red"),
        (Path("/a/b"), "/a/b"),
        ({1}, [1]),
        (float("nan"), "NaN"),
        ({"a": float("inf")}, {"a": "Infinity"}),
        ("lone \ud800", "lone \\ud800"),
        (np.int64(3), 3),
        (b"\xff", "b'\\xff'"),
        (nb.ToolResult({"a": 1}, display="shown"), {"a": 1}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("thread", [True, False])
async def test_a_tool_result_is_sent_as_text_or_json(value, expected, thread):
    """Text verbatim, data as JSON, the rest as text; always something that can be sent."""

    @nb.tool(thread=thread)
    def give():
        return value

    got = await outcome(give)
    assert got == expected
    assert type(got) is type(expected) or isinstance(got, dict | list)
    json.dumps(got, allow_nan=False, ensure_ascii=False).encode()


async def test_a_data_frame_is_sent_as_bounded_text_and_kept_whole():
    """The model gets text; code gets the object itself."""

    @nb.tool
    def load() -> pd.DataFrame:
        return FRAME

    assert load.output_schema is None
    agent = nb.Agent(nb.ScriptedModel([call("load"), "done"]), tools=[load])
    run = agent.run("go")
    await run
    text = run.calls["load"][0].output
    assert "5,000 rows" in text
    assert len(text) < MAX_TEXT + 100
    assert run.calls["load"][0].value is FRAME


def test_the_long_text_of_an_object_is_truncated():
    """The text says how long it was."""

    class Long:
        def __str__(self) -> str:
            return "x" * 50_000

    text = for_model(Long())
    assert len(text) < MAX_TEXT + 100
    assert "50000 characters" in text


async def test_a_result_that_cannot_be_sent_says_that_the_tool_has_run():
    """So the model does not retry; the run continues."""

    @nb.tool
    def give() -> Any:
        return Unprintable()

    told = (
        "give ran and returned a Unprintable, which cannot be shown as text: RuntimeError: no text"
    )
    assert await outcome(give) == told


@pytest.mark.parametrize("annotation", [Any, pd.DataFrame, nb.ToolResult, NoReturn, None])
def test_a_return_annotation_without_a_schema_allows_any_answer(annotation):
    """Such a tool has no type to check an answer by."""

    def fn(x: int):
        raise NotImplementedError

    fn.__annotations__["return"] = annotation
    checked = nb.tool(fn).check(_pending(), nb.Respond(output={"a": 1}))
    assert checked == nb.Respond(output={"a": 1})


def _pending() -> nb.PendingInterrupt:
    return nb.PendingInterrupt(id="i", tool_name="fn", call_id="c", input={"x": 1})


@pytest.mark.parametrize(
    ("annotation", "good", "stored", "bad"),
    [
        (str, "x", "x", 5),
        (int, "5", 5, "x"),
        (list[int], [1], [1], ["x"]),
        (Order, Order(dish="x"), {"dish": "x", "count": 1}, {}),
        (Order, {"dish": "x"}, {"dish": "x", "count": 1}, "x"),
        (Literal["a", "b"], "a", "a", "c"),
        (str | None, None, None, 5),
        (Iterator[str], "x", "x", 5),
    ],
)
def test_an_answer_must_fit_the_return_type_of_the_tool(annotation, good, stored, bad):
    """The answer is stored as the type converts it."""

    def fn(x: int):
        yield

    def gn(x: int):
        raise NotImplementedError

    chosen = fn if annotation == Iterator[str] else gn
    chosen.__annotations__["return"] = annotation
    tool = nb.tool(chosen)
    assert tool.check(_pending(), nb.Respond(output=good)) == nb.Respond(output=stored)
    for wrong in (bad, object(), float("nan"), {"x": object()}):
        with pytest.raises(InvalidAnswer):
            tool.check(_pending(), nb.Respond(output=wrong))


@pytest.mark.parametrize("data", [object(), float("nan"), {"x": {1: object()}}])
def test_a_restart_made_by_hand_with_non_json_data_is_refused(data):
    """Such data never gets into a journal."""
    tool = nb.tool(plainly)
    with pytest.raises(InvalidAnswer, match="not JSON"):
        tool.check(_pending(), nb.Restart(data=data))
    with pytest.raises(InvalidAnswer):
        tool.check(_pending(), nb.Restart(input={"dish": data}))


async def test_an_object_bound_to_one_thread_fails_with_a_solution():
    """A sqlite3 connection made in a cell: the error names thread=False, and that works."""
    with closing(sqlite3.connect(":memory:")) as connection:

        @nb.tool
        def query() -> int:
            return connection.execute("select 1").fetchone()[0]

        @nb.tool(thread=False)
        def here() -> int:
            return connection.execute("select 1").fetchone()[0]

        assert "@nb.tool(thread=False)" in await outcome(query)
        assert await outcome(here) == 1
    connection.close()


async def test_tools_are_chosen_by_object_and_by_name():
    """For one ``generate``; the error for an unknown name lists the tools."""
    model = nb.ScriptedModel(["a", "b", "c"])
    agent = nb.Agent(model, tools=[plainly])
    await agent.generate("go", tools=["plainly", asynchronously])
    assert [t.name for t in model.requests[0].tools] == ["plainly", "asynchronously"]
    await agent.generate("go", tools=[])
    assert list(model.requests[1].tools) == []
    with pytest.raises(ToolError, match=r"'nope'. Available: plainly"):
        await agent.generate("go", tools=["nope"])


async def test_the_tools_sent_are_the_same_objects_every_turn():
    """So an adapter can cache their bytes; a new tool makes a new list."""
    model = nb.ScriptedModel([call("plainly", dish="x"), "a", "b"])
    agent = nb.Agent(model, tools=[plainly])
    run = agent.run("go")
    await run
    assert model.requests[0].tools == model.requests[1].tools  # compared by identity
    agent.add(asynchronously)
    await agent.run("more", after=run)
    assert [t.name for t in model.requests[2].tools] == ["plainly", "asynchronously"]


@pytest.mark.parametrize("amount", ["NaN", "inf", "-Infinity"])
async def test_numeric_options_of_a_tool_must_be_finite(amount):
    """A NaN passes every limit, and pydantic reads a NaN from a string."""
    paid = []
    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("pay", amount=amount), "done"]))

    @agent.tool
    def pay(amount: float) -> str:
        paid.append(amount)
        return "paid"

    run = agent.run("go")
    await run
    assert paid == []
    assert "finite" in run.calls["pay"][0].error


async def test_pieces_that_are_not_all_text_are_a_list():
    """Only text is joined."""

    def mixed() -> Iterator[Any]:
        yield "one"
        yield 2

    agent = nb.Agent(nb.ScriptedModel([nb.ScriptedModel.call("mixed"), "done"]), tools=[mixed])
    run = agent.run("go")
    await run
    assert run.calls["mixed"][0].value == ["one", 2]
